//! The ordered tree over ranks: each rank has some of the leaves, all get the total, with the bits of
//! the tree over all leaves in one memory.
//!
//! Each rank has a contiguous part of the leaves ([`leaves_of_rank`]) and deposits it into its
//! [`OrderedTree`]. What remains there are the nodes whose leaves are all its own and whose siblings
//! are not. To add them further each rank owns a part of the vector ([`Blocks`]):
//!
//! 1. every rank sends, of each node that remains, every other rank its part: one exchange;
//! 2. the owner makes the remaining additions of the tree on its part;
//! 3. every rank sends every other rank the sum of its own part: one exchange.
//!
//! Additions of vectors are additions of their elements, so each element sees those of the whole
//! tree, and the bits are the same for any number of ranks.
//!
//! # Cost
//!
//! Let p be the ranks, n the elements, n_r those of the part of rank r (n/p, and at most one more), and
//! k_r the nodes that remain on rank r, K their sum over all ranks. Rank r
//!
//! - sends (k_r + 1)(p - 1) messages with k_r (n - n_r) + (p - 1) n_r elements;
//! - receives K - k_r + p - 1 messages with (K - k_r) n_r + n - n_r elements;
//! - makes (K - 1) n_r additions;
//! - holds k_r + 1 vectors and (K - k_r) n_r elements on the way.
//!
//! A rank with m leaves leaves 1 node where they are a whole subtree, as they are where p is a power
//! of two that divides the leaves; never more than 2 log2((m + 2)/2). Then, with k_r = 1, it is
//! 2 (p - 1)/p n elements each way, which is what Rabenseifner's all-reduce costs, and no all-reduce
//! can do with less; in 2 exchanges of p - 1 messages each, where his has 2 log2 p.

use std::ops::{AddAssign, Range};

use bytemuck::Pod;

use super::plan::Blocks;
use super::ranks::{Element, Ranks, RanksError, after, all_gather_blocks, before};
use super::tree::{Node, OrderedTree, Root, add_up, remaining};

/// The leaves of one rank: contiguous, in the order of the ranks, their numbers differing by at most
/// one. Ranks from the number of leaves on have none.
pub fn leaves_of_rank(leaves: usize, ranks: usize, rank: usize) -> Range<usize> {
    Blocks::new(leaves, ranks).range(rank)
}

/// The nodes that a rank has for the others, in their order. One that has all leaves has the root,
/// here called (0, 0).
fn nodes_of_rank(leaves: usize, ranks: usize, rank: usize) -> Vec<Node> {
    let own = leaves_of_rank(leaves, ranks, rank);
    if own.len() == leaves && leaves > 0 {
        vec![(0, 0)]
    } else {
        remaining(leaves, own)
    }
}

/// What a rank's own leaves come to.
fn own_nodes<F: Pod + Default + AddAssign>(
    tree: &OrderedTree<F>,
    ranks: &dyn Ranks,
    root: Option<Root<F>>,
) -> Result<Vec<(Node, Vec<F>)>, RanksError> {
    let nodes = match root {
        Some(Root { mut left, right }) => {
            if let Some(right) = right {
                add(&mut left, &right);
                tree.give_back(right);
            }
            vec![((0, 0), left)]
        }
        None => tree.take_waiting(),
    };
    let expected = nodes_of_rank(tree.leaves(), ranks.size(), ranks.rank());
    if nodes.iter().map(|(node, _)| node).ne(&expected) {
        return Err(RanksError::Unfinished {
            rank: ranks.rank(),
            expected: expected.len(),
            found: nodes.len(),
        });
    }
    Ok(nodes)
}

fn add<F: Copy + AddAssign>(sum: &mut [F], terms: &[F]) {
    for (s, t) in sum.iter_mut().zip(terms) {
        *s += *t;
    }
}

/// Completes the sum that each rank's `tree` holds of its own leaves: the total over all leaves, on
/// every rank, with exactly the bits of one tree with all leaves in it.
///
/// Every rank has started its tree with the same number of leaves (of all ranks) and the same length,
/// and deposited [`leaves_of_rank`]; `root` is what the last deposit gave, which is nothing but where a
/// rank has all leaves. With one rank it is returned as it is. The tree is then ready for the next
/// sum, and keeps the vectors used here. The module says what it costs.
///
/// # Errors
/// A tree in which leaves of the rank are missing, and what [`Ranks::exchange`] says.
///
/// ```
/// use batchlab::collective::{OrderedTree, complete, leaves_of_rank, on_threads};
///
/// let totals = on_threads(2, |ranks| {
///     let mut tree = OrderedTree::<f64>::new(1);
///     tree.start(3);
///     let mut root = None;
///     for leaf in leaves_of_rank(3, ranks.size(), ranks.rank()) {
///         root = tree.deposit(leaf, vec![10f64.powi(leaf as i32)]);
///     }
///     complete(&tree, ranks, root).map(|root| root.left)
/// })?;
/// assert_eq!(totals, [Ok(vec![111.0]), Ok(vec![111.0])]);
/// # Ok::<(), batchlab::collective::ThreadsError>(())
/// ```
pub fn complete<F: Pod + Default + AddAssign>(
    tree: &OrderedTree<F>,
    ranks: &dyn Ranks,
    root: Option<Root<F>>,
) -> Result<Root<F>, RanksError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    if size == 1
        && let Some(root) = root
    {
        return Ok(root);
    }
    let mut own = own_nodes(tree, ranks, root)?;
    let blocks = Blocks::new(tree.length(), size);
    let part = blocks.range(rank);

    let foreign: Vec<(usize, Node)> = before(rank, size)
        .flat_map(|from| {
            let nodes = nodes_of_rank(tree.leaves(), size, from);
            nodes.into_iter().map(move |node| (from, node))
        })
        .collect();
    // As many parts to a vector as fit, so that the room for them comes from the tree, too.
    let fit = tree.length().checked_div(part.len());
    let mut room: Vec<Vec<F>> = fit
        .map_or(0..0, |fit| 0..foreign.len().div_ceil(fit))
        .map(|_| tree.take_buffer())
        .collect();
    let mut arrived: Vec<&mut [F]> = room
        .iter_mut()
        .flat_map(|buffer| buffer.chunks_exact_mut(part.len().max(1)))
        .take(foreign.len())
        .collect();

    let sends: Vec<(usize, &[u8])> = after(rank, size)
        .flat_map(|to| own.iter().map(move |(_, data)| (to, data)))
        .map(|(to, data)| (to, bytemuck::cast_slice(&data[blocks.range(to)])))
        .collect();
    let mut receives: Vec<(usize, &mut [u8])> = foreign
        .iter()
        .zip(&mut arrived)
        .map(|((from, _), place)| (*from, bytemuck::cast_slice_mut(place)))
        .collect();
    ranks.exchange(&sends, &mut receives)?;

    let mut total = tree.take_buffer();
    let mine = own
        .iter_mut()
        .map(|(node, data)| (*node, &mut data[part.clone()]));
    let theirs = foreign.iter().map(|(_, node)| *node).zip(arrived);
    match add_up(mine.chain(theirs)) {
        Some(sum) => total[part.clone()].copy_from_slice(sum),
        None => total[part].fill(F::default()),
    }
    for buffer in own.into_iter().map(|(_, data)| data).chain(room) {
        tree.give_back(buffer);
    }
    all_gather_blocks(ranks, &mut total)?;
    Ok(Root {
        left: total,
        right: None,
    })
}

/// [`complete`] with the ranks added in an order of the library's choice: each adds its own nodes, in
/// their order, then [`Ranks::sum_native_f32`] or its like. The bits depend on the number of ranks and
/// on the library; those of one rank are those of [`complete`].
///
/// # Errors
/// As [`complete`].
pub fn complete_native<F: Element>(
    tree: &OrderedTree<F>,
    ranks: &dyn Ranks,
    root: Option<Root<F>>,
) -> Result<Root<F>, RanksError> {
    if ranks.size() == 1
        && let Some(root) = root
    {
        return Ok(root);
    }
    let mut own = own_nodes(tree, ranks, root)?.into_iter();
    let mut total = if let Some((_, first)) = own.next() {
        first
    } else {
        let mut nothing = tree.take_buffer();
        nothing.fill(F::default());
        nothing
    };
    for (_, data) in own {
        add(&mut total, &data);
        tree.give_back(data);
    }
    F::sum_native(ranks, &mut total)?;
    Ok(Root {
        left: total,
        right: None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::ranks::on_threads;
    use super::*;
    use crate::rng::Stream;

    const LENGTHS: [usize; 4] = [0, 1, 3, 17];

    /// Numbers whose sum depends on the order of the additions.
    fn values(leaf: usize, length: usize) -> Vec<f64> {
        let mut stream = Stream::new(0, "distributed-test", leaf as u64);
        (0..length)
            .map(|_| stream.normal() * 10f64.powf((leaf % 7) as f64 - 3.0))
            .collect()
    }

    fn deposit<F: Pod + Default + AddAssign>(
        tree: &mut OrderedTree<F>,
        leaves: usize,
        own: Range<usize>,
        from: fn(f64) -> F,
    ) -> Option<Root<F>> {
        tree.start(leaves);
        let mut root = None;
        for leaf in own {
            let mut buffer = tree.take_buffer();
            for (b, v) in buffer.iter_mut().zip(values(leaf, tree.length())) {
                *b = from(v);
            }
            root = tree.deposit(leaf, buffer);
        }
        root
    }

    fn total<F: Copy + AddAssign>(root: Root<F>) -> Vec<F> {
        let mut sum = root.left;
        if let Some(right) = root.right {
            add(&mut sum, &right);
        }
        sum
    }

    fn check<F: Element + PartialEq + std::fmt::Debug>(from: fn(f64) -> F) {
        for length in LENGTHS {
            for leaves in 1..=33 {
                let mut tree = OrderedTree::new(length);
                let expected = total(deposit(&mut tree, leaves, 0..leaves, from).unwrap());
                for size in 1..=7 {
                    let found = on_threads(size, |ranks| {
                        let mut tree = OrderedTree::new(length);
                        let own = leaves_of_rank(leaves, size, ranks.rank());
                        let mut totals = Vec::new();
                        // The second sum is made in vectors that the first one used.
                        for _ in 0..2 {
                            let root = deposit(&mut tree, leaves, own.clone(), from);
                            totals.push(total(complete(&tree, ranks, root).unwrap()));
                        }
                        totals
                    })
                    .unwrap();
                    for sum in found.iter().flatten() {
                        assert_eq!(sum.len(), length);
                        assert_eq!(
                            bytemuck::cast_slice::<F, u8>(sum),
                            bytemuck::cast_slice::<F, u8>(&expected),
                            "{leaves} leaves of {length} on {size} ranks"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_total_has_the_bits_of_one_tree_in_f32() {
        check(|v| v as f32);
    }

    #[test]
    fn the_total_has_the_bits_of_one_tree_in_f64() {
        check(|v| v);
    }

    #[test]
    fn the_test_would_notice_another_order() {
        let (leaves, length) = (13, 17);
        let mut tree = OrderedTree::new(length);
        let ordered = total(deposit(&mut tree, leaves, 0..leaves, |v| v as f32).unwrap());
        let mut running = vec![0.0f32; length];
        for leaf in 0..leaves {
            for (r, v) in running.iter_mut().zip(values(leaf, length)) {
                *r += v as f32;
            }
        }
        assert_ne!(ordered, running);
    }

    #[test]
    fn a_native_total_is_the_same_on_all_ranks_and_near_the_ordered_one() {
        for leaves in [1, 2, 5, 16] {
            for size in 1..=5 {
                let both = on_threads(size, |ranks| {
                    let own = leaves_of_rank(leaves, size, ranks.rank());
                    let mut tree = OrderedTree::new(17);
                    let root = deposit(&mut tree, leaves, own.clone(), |v| v);
                    let native = total(complete_native(&tree, ranks, root).unwrap());
                    let root = deposit(&mut tree, leaves, own, |v| v);
                    (native, total(complete(&tree, ranks, root).unwrap()))
                })
                .unwrap();
                let magnitudes: Vec<Vec<f64>> = (0..leaves).map(|leaf| values(leaf, 17)).collect();
                for (native, ordered) in &both {
                    assert_eq!(native, &both[0].0);
                    for (i, (n, o)) in native.iter().zip(ordered).enumerate() {
                        // Each of at most `leaves` additions rounds by half a unit of a partial sum.
                        let bound: f64 = magnitudes.iter().map(|m| m[i].abs()).sum();
                        assert!((n - o).abs() <= leaves as f64 * f64::EPSILON * bound);
                    }
                    if size == 1 {
                        assert_eq!(native, ordered);
                    }
                }
            }
        }
    }

    #[test]
    fn leaves_are_spread_evenly_in_order() {
        for leaves in 0..40 {
            for size in 1..=9 {
                let mut next = 0;
                for rank in 0..size {
                    let own = leaves_of_rank(leaves, size, rank);
                    assert_eq!(own.start, next);
                    assert!(own.len() == leaves / size || own.len() == leaves.div_ceil(size));
                    next = own.end;
                }
                assert_eq!(next, leaves);
            }
        }
    }

    #[test]
    fn the_nodes_that_remain_are_few_and_those_that_the_tree_holds() {
        for leaves in 1..=40 {
            for start in 0..leaves {
                for end in start + 1..=leaves {
                    let mut tree = OrderedTree::<f64>::new(1);
                    if deposit(&mut tree, leaves, start..end, |v| v).is_some() {
                        assert_eq!(start..end, 0..leaves);
                    }
                    let held: Vec<Node> = tree
                        .take_waiting()
                        .into_iter()
                        .map(|(node, _)| node)
                        .collect();
                    assert_eq!(held, remaining(leaves, start..end));
                    let most = 2.0 * ((end - start + 2) as f64 / 2.0).log2();
                    assert!(
                        held.len() as f64 <= most + 1e-12,
                        "{start}..{end}: {held:?}"
                    );
                }
            }
        }
        for size in [1, 2, 4, 8] {
            for rank in 0..size {
                assert_eq!(nodes_of_rank(32, size, rank).len(), 1);
            }
        }
    }

    /// Ranks that count what goes through them.
    struct Counted<'a> {
        ranks: &'a dyn Ranks,
        exchanges: AtomicUsize,
        /// Messages and bytes, sent and received.
        counts: [AtomicUsize; 4],
    }

    impl<'a> Counted<'a> {
        fn new(ranks: &'a dyn Ranks) -> Self {
            Self {
                ranks,
                exchanges: AtomicUsize::new(0),
                counts: Default::default(),
            }
        }
    }

    impl Ranks for Counted<'_> {
        fn rank(&self) -> usize {
            self.ranks.rank()
        }

        fn size(&self) -> usize {
            self.ranks.size()
        }

        fn exchange(
            &self,
            sends: &[(usize, &[u8])],
            receives: &mut [(usize, &mut [u8])],
        ) -> Result<(), RanksError> {
            self.exchanges.fetch_add(1, Ordering::Relaxed);
            let sent = sends.iter().map(|(to, data)| (*to, data.len()));
            let got = receives.iter().map(|(from, data)| (*from, data.len()));
            let all = sent.map(|s| (0, s)).chain(got.map(|g| (2, g)));
            for (place, (other, bytes)) in all.filter(|(_, (_, bytes))| *bytes > 0) {
                assert_ne!(other, self.rank(), "nothing is sent to oneself");
                self.counts[place].fetch_add(1, Ordering::Relaxed);
                self.counts[place + 1].fetch_add(bytes, Ordering::Relaxed);
            }
            self.ranks.exchange(sends, receives)
        }

        fn sum_native_f32(&self, _: &mut [f32]) -> Result<(), RanksError> {
            unreachable!("the ordered tree needs no native sum")
        }

        fn sum_native_f64(&self, _: &mut [f64]) -> Result<(), RanksError> {
            unreachable!("the ordered tree needs no native sum")
        }

        fn barrier(&self) -> Result<(), RanksError> {
            unreachable!("the ordered tree needs no barrier")
        }
    }

    #[test]
    fn messages_and_bytes_are_those_that_the_module_says() {
        for (leaves, size, length) in [
            (1, 3, 20),
            (2, 5, 20),
            (8, 2, 20),
            (8, 4, 20),
            (8, 4, 21),
            (33, 7, 23),
            (64, 3, 100),
            (64, 6, 7),
        ] {
            let counts = on_threads(size, |ranks| {
                let counted = Counted::new(ranks);
                let mut tree = OrderedTree::new(length);
                let own = leaves_of_rank(leaves, size, ranks.rank());
                let root = deposit(&mut tree, leaves, own, |v| v as f32);
                complete(&tree, &counted, root).unwrap();
                assert_eq!(counted.exchanges.into_inner(), 2);
                counted.counts.map(AtomicUsize::into_inner)
            })
            .unwrap();
            let remain: Vec<usize> = (0..size)
                .map(|rank| nodes_of_rank(leaves, size, rank).len())
                .collect();
            let all: usize = remain.iter().sum();
            for (rank, found) in counts.iter().enumerate() {
                let (k, part) = (remain[rank], Blocks::new(length, size).size(rank));
                let expected = [
                    (k + 1) * (size - 1),
                    4 * (k * (length - part) + (size - 1) * part),
                    all - k + size - 1,
                    4 * ((all - k) * part + length - part),
                ];
                assert_eq!(*found, expected, "{leaves} leaves, rank {rank} of {size}");
            }
            if leaves.is_multiple_of(size) && size.is_power_of_two() && length.is_multiple_of(size)
            {
                assert!(remain.iter().all(|k| *k == 1));
                let rabenseifner = 2 * 4 * length / size * (size - 1);
                assert!(
                    counts
                        .iter()
                        .all(|c| c[1] == rabenseifner && c[3] == rabenseifner)
                );
            }
        }
    }

    #[test]
    fn a_tree_without_all_of_its_leaves_is_refused() {
        let errors = on_threads(2, |ranks| {
            let mut tree = OrderedTree::new(3);
            let own = leaves_of_rank(6, 2, ranks.rank());
            deposit(&mut tree, 6, own.start..own.end - 1, |v| v);
            complete(&tree, ranks, None).map(total)
        })
        .unwrap();
        assert_eq!(
            errors,
            [
                Err(RanksError::Unfinished {
                    rank: 0,
                    expected: 2,
                    found: 1
                }),
                Err(RanksError::Unfinished {
                    rank: 1,
                    expected: 2,
                    found: 2
                })
            ]
        );
        let alone = on_threads(1, |ranks| {
            let mut tree = OrderedTree::<f32>::new(3);
            tree.start(2);
            complete_native(&tree, ranks, None).map(total)
        })
        .unwrap();
        assert!(matches!(alone[0], Err(RanksError::Unfinished { .. })));
    }

    #[test]
    fn vectors_are_used_again_from_sum_to_sum() {
        on_threads(3, |ranks| {
            let mut tree = OrderedTree::new(17);
            let mut spare = Vec::new();
            for _ in 0..4 {
                let root = deposit(&mut tree, 7, leaves_of_rank(7, 3, ranks.rank()), |v| v);
                let root = complete(&tree, ranks, root).unwrap();
                tree.give_back(root.left);
                spare.push(tree.spare_buffers());
            }
            assert_eq!(spare[1..], [spare[0]; 3]);
        })
        .unwrap();
    }
}
