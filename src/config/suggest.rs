//! "Did you mean": the nearest known word.

/// The candidate nearest to `word` by edit distance (insertions, deletions, substitutions and
/// swaps of neighbours; case, `-` and `_` count as equal), or `None` if all are too far to be a
/// slip of the pen: more than a third of the longer word.
pub(crate) fn nearest<'a, I>(word: &str, candidates: I) -> Option<&'a str>
where
    I: IntoIterator<Item = &'a str>,
{
    let word = folded(word);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let folded = folded(candidate);
            let longer = word.len().max(folded.len());
            let distance = distance(&word, &folded);
            (distance <= (longer / 3).max(1) && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

fn folded(word: &str) -> Vec<char> {
    word.chars()
        .take(64)
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

/// Optimal string alignment distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut table = vec![0; (a.len() + 1) * width];
    for (i, row) in table.chunks_mut(width).enumerate() {
        row[0] = i;
    }
    for (j, cell) in table[..width].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substitution = table[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution
                .min(table[(i - 1) * width + j] + 1)
                .min(table[i * width + j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(table[(i - 2) * width + j - 2] + 1);
            }
            table[i * width + j] = best;
        }
    }
    table[a.len() * width + b.len()]
}

/// What users of other tools write, and what it is called here.
pub(crate) fn name_elsewhere(word: &str) -> Option<&'static str> {
    Some(match word {
        "batch_size" | "batchsize" | "batch" => {
            "set `train.global_batch` (examples of one update over all workers) or \
             `train.local_batch` (examples of one update on one worker)"
        }
        "lr" => "the learning rate is `learning_rate.base_lr`",
        "num_workers" | "world_size" | "ranks" => "the number of workers is `train.workers`",
        "num_epochs" | "max_epochs" => "the number of epochs is `train.epochs`",
        "max_steps" | "num_steps" | "iterations" => "the number of updates is `train.steps`",
        "warmup_steps" => "write `steps` under `[learning_rate.warmup]`",
        "warmup_epochs" => "write `epochs` under `[learning_rate.warmup]`",
        "hidden" | "hidden_sizes" | "layers" => "the hidden layers are `model.mlp.widths`",
        "betas" => "write `beta1` and `beta2`",
        "eps" => "write `epsilon`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_understood() {
        let known = ["global_batch", "local_batch", "base_batch", "epochs"];
        for (slip, meant) in [
            ("base_bach", "base_batch"),
            ("base-batch", "base_batch"),
            ("Global_Batch", "global_batch"),
            ("epcohs", "epochs"),
            ("epoch", "epochs"),
        ] {
            assert_eq!(nearest(slip, known), Some(meant));
        }
    }

    #[test]
    fn a_word_far_from_all_gets_no_suggestion() {
        assert_eq!(nearest("colour", ["global_batch", "epochs"]), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("", ["epochs"]), None);
        assert_eq!(nearest("word", []), None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_slip() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("batch"), &chars("bacth")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
