//! Facts that qualify a comparison, one sentence each.

use stepscope_analysis::compare::result::{
    CompareNote, Comparison, FEWEST_RUNS, FEWEST_STEPS, Mismatch,
};

use super::ComparisonView;
use crate::report::{Sentence, count, duration, sentence, share, with_thousands};

/// Relative difference between the base and the run of a prediction from which they are not the same steps.
const OTHER_STEPS: f64 = 0.05;

/// Returns a sentence for each property that makes the sides incomparable.
pub(super) fn mismatches(view: &ComparisonView<'_>) -> Vec<Sentence> {
    view.comparison.mismatches.iter().map(mismatch).collect()
}

/// Returns the sentence of a property that makes the sides incomparable.
pub(super) fn mismatch(found: &Mismatch) -> Sentence {
    match found {
        Mismatch::Device(models) => {
            let [base, new] = models.each_ref().map(|models| listed(models));
            sentence!("Not comparable: the devices differ: {} and {}", base, new)
        }
        Mismatch::WorldSize([base, new]) => sentence!(
            "Not comparable: the numbers of ranks differ: {} and {}",
            with_thousands(*base),
            with_thousands(*new)
        ),
        Mismatch::RecordingOptions(sides) => {
            let [base, new] = sides.map(|[python, shapes, memory]| {
                let options = [
                    ("Python calls", python),
                    ("shapes", shapes),
                    ("memory", memory),
                ];
                let on = options.iter().filter(|(_, on)| *on).map(|(name, _)| *name);
                let on: Vec<&str> = on.collect();
                if on.is_empty() {
                    "none".to_owned()
                } else {
                    on.join(", ")
                }
            });
            sentence!(
                "Host times are not comparable: the recording options differ: {} and {}",
                base,
                new
            )
        }
    }
}

/// Lists the models of devices: `2 x A100`.
fn listed(models: &[String]) -> String {
    if models.is_empty() {
        return "no device".to_owned();
    }
    let groups = models.chunk_by(|a, b| a == b);
    let texts: Vec<String> = groups
        .map(|group| {
            let name = group.first().filter(|name| !name.is_empty());
            let name = name.map_or("unknown device", String::as_str);
            match group.len() {
                1 => name.to_owned(),
                count => format!("{count} x {name}"),
            }
        })
        .collect();
    texts.join(", ")
}

/// Returns the other facts.
pub(super) fn notes(view: &ComparisonView<'_>) -> Vec<Sentence> {
    let found = view.comparison;
    let mut notes = Vec::new();
    if let Some(step) = found.step() {
        if let Some(detectable) = step.estimate.and_then(|estimate| estimate.detectable_share) {
            let samples = step.samples[0].max(step.samples[1]);
            let more = count(samples.saturating_mul(4));
            let noun = if found.sampling.by_run {
                "runs"
            } else {
                "steps"
            };
            notes.push(sentence!(
                "A change below {} would not have been noticed; {} {} a side would show half of it",
                share(detectable),
                more,
                noun
            ));
        }
        let sides = found.steps.map(|[all, compared, outliers]| {
            let outliers =
                (outliers > 0).then(|| sentence!(", {} of them outliers", count(outliers)));
            sentence!("{} of {} steps{}", count(compared), count(all), outliers)
        });
        let [base, new] = sides;
        notes.push(sentence!(
            "Compared: {} of the base, {} of the new side",
            base,
            new
        ));
    }
    if let Some((first, more)) = found.renamed.split_first() {
        let more = (!more.is_empty()).then(|| sentence!(" and {} more", count(more.len())));
        notes.push(sentence!(
            "Names of {} that are compared under other names: {} as {}{}",
            view.label(0),
            &first.base,
            &first.new,
            more
        ));
    }
    for note in &found.notes {
        // What holds for both sides is said once.
        let other = found
            .notes
            .iter()
            .find(|other| is_of_other_side(note, other));
        match (side_of(note), other) {
            (Some(side), Some(other)) => {
                if side == 0 {
                    notes.extend(sentence_of_both(found, note, other));
                }
            }
            _ => notes.push(sentence_of(view, note)),
        }
    }
    let other = found
        .predictions
        .iter()
        .filter_map(|check| check.base_share);
    let other = other.map(f64::abs).fold(0.0, f64::max);
    if other > OTHER_STEPS {
        notes.push(sentence!(
            "The predictions were made from other steps: those take {} more or less than the mean step of {}",
            share(other),
            view.label(0)
        ));
    }
    notes
}

/// Returns the side of a note that may hold for both.
const fn side_of(note: &CompareNote) -> Option<usize> {
    match note {
        CompareNote::FewSteps { side, .. }
        | CompareNote::WholeRecording { side }
        | CompareNote::DerivedSteps { side }
        | CompareNote::AllStepsLeftOut { side }
        | CompareNote::Unlaunched { side, .. }
        | CompareNote::StatisticsOnly { side }
        | CompareNote::Empty { side } => Some(*side),
        _ => None,
    }
}

/// Returns whether two notes are the same fact of different sides.
fn is_of_other_side(a: &CompareNote, b: &CompareNote) -> bool {
    let sides = side_of(a).zip(side_of(b));
    std::mem::discriminant(a) == std::mem::discriminant(b) && sides.is_some_and(|(a, b)| a != b)
}

/// Returns the sentence of a fact of both sides.
fn sentence_of_both(found: &Comparison, base: &CompareNote, new: &CompareNote) -> Option<Sentence> {
    Some(match (base, new) {
        (CompareNote::FewSteps { steps: base, .. }, CompareNote::FewSteps { steps: new, .. }) => {
            sentence!(
                "{} and {} compared steps; a verdict needs {} on each side",
                count(*base),
                count(*new),
                FEWEST_STEPS.to_string()
            )
        }
        (
            CompareNote::Unlaunched { share: base, .. },
            CompareNote::Unlaunched { share: new, .. },
        ) => {
            sentence!(
                "{} of the device time of the base and {} of that of the new side have no known launch and stand \
                 under the names of kernels",
                share(*base),
                share(*new)
            )
        }
        (CompareNote::WholeRecording { .. }, _) => {
            "Neither side marks steps: the whole recordings are compared, without a verdict".into()
        }
        (CompareNote::DerivedSteps { .. }, _) => {
            "Neither side marks steps: the steps are derived from a repetition".into()
        }
        (CompareNote::AllStepsLeftOut { .. }, _) => {
            "Every step of both sides compiles or is warm-up: all of them are compared".into()
        }
        (CompareNote::StatisticsOnly { .. }, _) if found.are_totals => {
            "Both sides have statistics only: totals are compared, without a verdict".into()
        }
        (CompareNote::StatisticsOnly { .. }, _) => "Both sides have statistics only".into(),
        (CompareNote::Empty { .. }, _) => "Neither side has anything to compare".into(),
        _ => return None,
    })
}

fn sentence_of(view: &ComparisonView<'_>, note: &CompareNote) -> Sentence {
    let label = |side: &usize| view.label(*side);
    match note {
        CompareNote::RunsUnknown([1, 1]) => {
            "1 run on each side: run-to-run variation unknown".into()
        }
        CompareNote::RunsUnknown([base, new]) => sentence!(
            "{} and {} runs: from {} runs on a side, the variation between runs is known",
            count(*base),
            count(*new),
            FEWEST_RUNS.to_string()
        ),
        CompareNote::FewSteps { side, steps } => sentence!(
            "{} has {} compared {}; a verdict needs {}",
            label(side),
            count(*steps),
            if *steps == 1 { "step" } else { "steps" },
            FEWEST_STEPS.to_string()
        ),
        CompareNote::WholeRecording { side } => sentence!(
            "{} marks no steps: its whole recording is compared, without a verdict",
            label(side)
        ),
        CompareNote::DerivedSteps { side } => sentence!(
            "{} marks no steps: its steps are derived from a repetition",
            label(side)
        ),
        CompareNote::AllStepsLeftOut { side } => sentence!(
            "Every step of {} compiles or is warm-up: all of them are compared",
            label(side)
        ),
        CompareNote::Shapes { operation, shapes } => sentence!(
            "{} has other shapes: {} and {}",
            operation,
            &shapes[0],
            &shapes[1]
        ),
        CompareNote::Unlaunched { side, share: part } => sentence!(
            "{} of the device time of {} has no known launch and stands under the names of kernels",
            share(*part),
            label(side)
        ),
        CompareNote::StatisticsOnly { side } if view.comparison.are_totals => sentence!(
            "{} has statistics only: totals are compared, without a verdict",
            label(side)
        ),
        CompareNote::StatisticsOnly { side } => sentence!(
            "{} has statistics only: its totals are not compared with a timeline",
            label(side)
        ),
        CompareNote::Losses {
            side,
            what,
            count: number,
        } => sentence!(
            "Comparability is lowered: events of {} are missing: {} ({})",
            label(side),
            what.title(),
            with_thousands(*number)
        ),
        CompareNote::ClockError { side, error_ns } => sentence!(
            "Comparability is lowered: the clocks of the ranks of {} may differ by {}",
            label(side),
            duration(*error_ns)
        ),
        CompareNote::RenameUnused(rule) => sentence!(
            "No name of {} matches the rule {}: names stand in the rows as they are compared",
            label(&0),
            rule
        ),
        CompareNote::Empty { side } => sentence!("{} has nothing to compare", label(side)),
    }
}
