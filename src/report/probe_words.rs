//! How quantities of probes, and the comparisons they stand at, are written.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::analysis::numbers::{list, plural, significant};
use crate::analysis::{Moment, Probe, ProbeAnalysis, ProbeKey};

/// A quantity as it is written: its name, its unit where it has one, and the factor to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) unit: &'static str,
    pub(super) factor: f64,
}

impl Name {
    /// "trace (loss per squared weight)".
    pub(super) fn with_unit(&self) -> String {
        match self.unit {
            "" => self.text.clone(),
            unit => format!("{} ({unit})", self.text),
        }
    }
}

fn subscript(n: usize) -> String {
    let digits = ['₀', '₁', '₂', '₃', '₄', '₅', '₆', '₇', '₈', '₉'];
    let text = n.to_string();
    let digit = |c: char| Some(digits[c.to_digit(10)? as usize]);
    text.chars().filter_map(digit).collect()
}

/// How a quantity is written.
pub(super) fn name(key: &ProbeKey) -> Name {
    let at = key.at.map_or_else(|| "?".to_owned(), |v| v.to_string());
    let rank = key.at.unwrap_or(1.0).max(1.0) as usize;
    let curvature = "loss per squared weight";
    let (mut text, unit, factor) = match (key.probe, key.quantity.as_str()) {
        (_, "eigenvalue" | "block_eigenvalue") => (format!("λ{}", subscript(rank)), curvature, 1.0),
        (_, "smallest_eigenvalue") if rank == 1 => {
            ("smallest eigenvalue".to_owned(), curvature, 1.0)
        }
        (_, "smallest_eigenvalue") => (format!("smallest eigenvalue {rank}"), curvature, 1.0),
        (_, "trace" | "block_trace") => ("trace".to_owned(), curvature, 1.0),
        (_, "sharpness_full") => (format!("sharpness, full space, ε = {at}"), "%", 1.0),
        (_, "sharpness_subspace") => (format!("sharpness, subspace, ε = {at}"), "%", 1.0),
        (_, "worst_loss_l2") => (format!("worst loss rise, L2 radius {at}"), "loss", 1.0),
        (_, "gaussian_loss") => (format!("mean loss rise, Gaussian σ = {at}"), "loss", 1.0),
        (_, "relative_flatness") => ("relative flatness |w|² tr H".to_owned(), "loss", 1.0),
        (_, "fgsm_accuracy") => (format!("accuracy under FGSM, radius {at}"), "%", 100.0),
        (_, "pgd_accuracy") => (format!("accuracy under PGD, radius {at}"), "%", 100.0),
        (_, "b_simple") => ("B_simple".to_owned(), "examples", 1.0),
        (_, "b_noise") => ("B_noise".to_owned(), "examples", 1.0),
        (_, "b_simple_adamw") => ("B_simple for AdamW".to_owned(), "examples", 1.0),
        (_, "eps_max") => ("ε_max".to_owned(), "learning rate", 1.0),
        (_, "tr_sigma") => ("tr Σ".to_owned(), "", 1.0),
        (_, "squared_gradient") => ("|G|²".to_owned(), "", 1.0),
        (_, "tr_h_sigma") => ("tr(HΣ)".to_owned(), "", 1.0),
        (_, "ghg") => ("G′HG".to_owned(), "", 1.0),
        (_, other) => {
            let text = other.replace('_', " ");
            let text = key.at.map_or(text.clone(), |at| format!("{text} at {at}"));
            (text, "", 1.0)
        }
    };
    if key.probe == Probe::GaussNewton {
        text = format!("Gauss–Newton {text}");
    }
    if !key.scope.is_empty() {
        text = format!("{text} of {}", key.scope);
    }
    Name { text, unit, factor }
}

/// Whether the runs end at equal epochs, within 1 %.
fn ends_alike(analysis: &ProbeAnalysis) -> bool {
    let epochs = analysis.epochs(Moment::End);
    epochs.is_some_and(|(low, high)| high - low <= 0.01 * high)
}

/// "equal epochs", "the end of the run" or "equal training loss".
pub(super) fn moment_name(analysis: &ProbeAnalysis, moment: Moment) -> &'static str {
    match moment {
        Moment::End if !analysis.compared => "the end of the run",
        Moment::End if ends_alike(analysis) => "equal epochs",
        Moment::End => "the end of the runs",
        Moment::TrainLoss if !analysis.compared => "the training loss asked for",
        Moment::TrainLoss => "equal training loss",
    }
}

/// "10", "6 to 7".
fn between((low, high): (f64, f64)) -> String {
    let [low, high] = [low, high].map(|v| {
        let text = significant(v, 3);
        if text.contains('.') && !text.contains('e') {
            let text = text.trim_end_matches('0').trim_end_matches('.');
            text.to_owned()
        } else {
            text
        }
    });
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// At which comparisons a figure stands, in one sentence.
pub(super) fn shown_at(analysis: &ProbeAnalysis, moments: &[Moment]) -> String {
    let one = |&moment: &Moment| {
        let mut facts = Vec::new();
        if let Some(epochs) = analysis.epochs(moment).map(between) {
            facts.push(match moment {
                Moment::End => format!("epoch {epochs}"),
                Moment::TrainLoss => format!("after epoch {epochs}"),
            });
        }
        if let Some(losses) = analysis.train_losses(moment).map(between) {
            facts.push(match moment {
                Moment::End => format!("training loss {losses}"),
                Moment::TrainLoss => format!("{losses} reached"),
            });
        }
        let never: usize = analysis.at(moment).map(|p| p.never).sum();
        let all: usize = analysis.at(moment).map(|p| p.probed + p.never).sum();
        if never > 0 {
            facts.push(format!("{never} of {all} trials missing"));
        }
        let name = moment_name(analysis, moment);
        if facts.is_empty() {
            format!("at {name}")
        } else {
            format!("at {name} ({})", facts.join(", "))
        }
    };
    let parts: Vec<String> = moments.iter().map(one).collect();
    format!("Shown {}.", list(&parts))
}

/// At which comparison values stand, with the training losses that were reached, in sentences.
pub(super) fn moment_sentence(analysis: &ProbeAnalysis, moment: Moment) -> String {
    let points = || analysis.at(moment);
    let probed: usize = points().map(|p| p.probed).sum();
    let never: usize = points().map(|p| p.never).sum();
    let losses = analysis.train_losses(moment).map(between);
    let epochs = analysis.epochs(moment).map(between);
    let mut text = match moment {
        Moment::End => {
            let place = match (moment_name(analysis, moment), &epochs) {
                ("equal epochs", Some(epochs)) => {
                    format!("At equal epochs: after the last update, at epoch {epochs}")
                }
                (_, Some(epochs)) if analysis.compared => format!(
                    "At the end of the runs, which is not at equal epochs here: {epochs} epochs"
                ),
                (_, Some(epochs)) => format!("At the end of the run, at epoch {epochs}"),
                (_, None) => "At the end of the run".to_owned(),
            };
            losses.map_or(place.clone(), |losses| {
                format!("{place}; training loss there {losses}")
            })
        }
        Moment::TrainLoss => {
            let asked = analysis.at_train_loss.map_or_else(
                || "at most the one asked for".to_owned(),
                |loss| format!("at most {loss}"),
            );
            let place = format!(
                "At {}: at the first evaluation whose training loss is {asked}",
                moment_name(analysis, moment)
            );
            match (losses, epochs) {
                (Some(losses), Some(epochs)) => format!(
                    "{place}; training loss actually reached {losses}, after {epochs} epochs"
                ),
                (Some(losses), None) => {
                    format!("{place}; training loss actually reached {losses}")
                }
                _ => place,
            }
        }
    };
    text.push('.');
    if never > 0 {
        let all = probed + never;
        let (verb, what) = match moment {
            Moment::TrainLoss => ("never reached it", "is"),
            Moment::End => ("did not finish", "is"),
        };
        let trials = plural(all, "trial", "trials");
        let are = if never == 1 { what } else { "are" };
        let _ = write!(text, " {never} of {trials} {verb}, and {are} missing here.");
    }
    text
}

/// What a probe worked on, in a sentence; empty where the tables do not tell.
pub(super) fn data_sentence(analysis: &ProbeAnalysis, probes: &[Probe]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for &probe in probes {
        let of = || analysis.data.iter().filter(move |d| d.probe == probe);
        let examples: BTreeSet<u64> = of().filter_map(|d| d.examples).collect();
        let statistics: BTreeSet<&str> = of().filter_map(|d| d.statistics.as_deref()).collect();
        let (Some(low), Some(high)) = (examples.first(), examples.last()) else {
            continue;
        };
        let mut text = format!(
            "{} on {} examples",
            probe_name(probe),
            if low == high {
                low.to_string()
            } else {
                format!("{low} to {high}")
            }
        );
        if !statistics.is_empty() {
            let words: Vec<&str> = statistics.into_iter().collect();
            let _ = write!(text, " (batch statistics: {})", words.join(", "));
        }
        parts.push(text);
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!("Measured: {}.", parts.join("; "))
    }
}

pub(super) fn probe_name(probe: Probe) -> &'static str {
    match probe {
        Probe::Hessian => "Hessian",
        Probe::GaussNewton => "Gauss–Newton matrix",
        Probe::Density => "spectral density",
        Probe::Sharpness => "sharpness",
        Probe::Adversarial => "adversarial accuracy",
        Probe::Noise => "noise of the gradient",
    }
}

pub(super) fn subtitle(analysis: &ProbeAnalysis, what: &str) -> String {
    format!("{}: {what}", analysis.name)
}

/// What bars around means are.
pub(super) fn interval_words(analysis: &ProbeAnalysis) -> &'static str {
    let several = analysis.points.iter().any(|p| p.probed > 1);
    if several {
        "mean and 95 % interval over seeds"
    } else {
        "one run a point; bars, where there are any, are the 95 % interval of the estimator"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(probe: Probe, quantity: &str, at: Option<f64>) -> ProbeKey {
        ProbeKey {
            probe,
            quantity: quantity.to_owned(),
            scope: String::new(),
            at,
        }
    }

    #[test]
    fn quantities_are_named_with_their_rank_radius_and_unit() {
        let of = |probe, quantity, at| name(&key(probe, quantity, at)).with_unit();
        assert_eq!(
            of(Probe::Hessian, "eigenvalue", Some(12.0)),
            "λ₁₂ (loss per squared weight)"
        );
        assert_eq!(
            of(Probe::GaussNewton, "trace", None),
            "Gauss–Newton trace (loss per squared weight)"
        );
        assert_eq!(
            of(Probe::Sharpness, "sharpness_full", Some(0.001)),
            "sharpness, full space, ε = 0.001 (%)"
        );
        assert_eq!(of(Probe::Noise, "new_thing", Some(2.0)), "new thing at 2");
    }
}
