//! Actions of a Lightning trainer from the labels in any trace, as `SimpleProfiler` would report them.
//!
//! A label is a slice named `[pl][profile]ACTION`, as `PyTorchProfiler` and our own timeline name them. A trace
//! without such labels uses slices with the trainer's own names: those that start with `[Strategy]`,
//! `[LightningModule]`, `[LightningDataModule]`, `[Callback]` or the name of a loop, as `XLAProfiler` records
//! them.
//!
//! The accounting rule: an action's total is the sum of its labels' times (clipped to the range, if one is
//! given), its count their number, its mean the quotient. Actions nest, so totals of different actions overlap.
//! The whole is the range, by default from the run's first to its last timestamp.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::lightning::ACTION;
use stepscope_model::{Cancelled, NameId, Profile, ProfileKind, ProfileRow, Time, TrackKind};
use stepscope_store::Trace;

use stepscope_analysis::names::NameSet;
use stepscope_analysis::parallel::Cancel;

/// Prefixes of names of actions, if there is no label.
const OWNERS: &[&str] = &[
    "[Strategy]",
    "[LightningModule]",
    "[LightningDataModule]",
    "[Callback]",
    "[_TrainingEpochLoop]",
    "[_EvaluationLoop]",
    "[_PredictionLoop]",
];
/// Stage of the trainer that is the only one to run a step of this kind.
const STAGES: &[(&str, &str)] = &[
    ("training_step", "FIT"),
    ("test_step", "TEST"),
    ("predict_step", "PREDICT"),
    ("validation_step", "VALIDATE"),
];

/// Returns whether a slice of this name is an action of the trainer.
pub fn is_action(name: &str) -> bool {
    name.starts_with(ACTION) || OWNERS.iter().any(|owner| name.starts_with(owner))
}

/// Sums up the actions of a run. `None` if there are none.
///
/// # Errors
/// [`Cancelled`] after cancellation.
pub fn profile(
    trace: &Trace,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<Option<Profile>, Cancelled> {
    let labels = trace.find_names(&mut |name| name.starts_with(ACTION));
    let names = if labels.is_empty() {
        trace.find_names(&mut |name| OWNERS.iter().any(|owner| name.starts_with(owner)))
    } else {
        labels
    };
    if names.is_empty() {
        return Ok(None);
    }
    let selected = NameSet::from_ids(trace, &names);
    let whole = range.cloned().unwrap_or_else(|| trace.span());
    let mut sums: FxHashMap<NameId, (u64, i128)> = FxHashMap::default();
    let mut order: Vec<NameId> = Vec::new();
    for track in trace.tracks() {
        // Device rows repeat the labels that were open when work was launched.
        if track.slices == 0 || track.derived || track.kind == TrackKind::DeviceQueue {
            continue;
        }
        cancel.check()?;
        let slices = trace.slices(track.id);
        for index in trace.candidates(track.id, whole.clone()) {
            let name = slices.name[index];
            if !selected.contains(name) {
                continue;
            }
            let (start, end) = (slices.start[index], slices.end(index));
            if end < whole.start
                || start > whole.end
                || trace.name(slices.category.get(index)).starts_with("gpu_")
            {
                continue;
            }
            let dur = end.min(whole.end).since(start.max(whole.start)).ps().max(0);
            let sum = sums.entry(name).or_insert_with(|| {
                order.push(name);
                (0, 0)
            });
            sum.0 += 1;
            sum.1 += i128::from(dur);
        }
    }
    let total_s = seconds(i128::from(whole.end.since(whole.start).ps()));
    let mut rows = Vec::with_capacity(order.len());
    let mut calls = 0;
    for name in order {
        let (count, ps) = sums.get(&name).copied().unwrap_or_default();
        let action_s = seconds(ps);
        let text = trace.name(name);
        calls += count;
        rows.push(ProfileRow {
            name: text.strip_prefix(ACTION).unwrap_or(text).into(),
            calls: Some(count),
            total_s: Some(action_s),
            mean_s: Some(action_s / count as f64),
            percent: (total_s > 0.0).then(|| 100.0 * action_s / total_s),
            ..ProfileRow::default()
        });
    }
    // Labels that differ only in their prefix are one action.
    rows.sort_by(|a, b| {
        b.total_s
            .unwrap_or(0.0)
            .total_cmp(&a.total_s.unwrap_or(0.0))
    });
    let stage = STAGES
        .iter()
        .find(|(step, _)| rows.iter().any(|row| row.name.ends_with(step)))
        .map_or("", |(_, stage)| *stage);
    Ok((!rows.is_empty()).then(|| Profile {
        kind: ProfileKind::Actions,
        stage: stage.to_owned(),
        total_s: Some(total_s),
        calls: Some(calls),
        rows,
        ..Profile::default()
    }))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "exact to the picosecond for an hour and a half, rounded beyond"
)]
fn seconds(ps: i128) -> f64 {
    ps as f64 / 1e12
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;

    #[test]
    fn labels_are_summed_and_device_rows_are_not() {
        let trace = ascii_trace::trace(
            "main | [pl][profile]run_training_batch--- [pl][profile]run_training_batch--------\n\
                  | [pl][profile]training_step\n\
             gpu #device | [pl][profile]training_step----\n\
             other | [Strategy]x.backward",
        );
        let found = profile(&trace, None, &Cancel::default()).unwrap().unwrap();
        let rows: Vec<_> = found
            .rows
            .iter()
            .map(|row| {
                (
                    &*row.name,
                    row.calls,
                    (row.total_s.unwrap() * 1e6).round(),
                    (row.mean_s.unwrap() * 1e6).round(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("run_training_batch", Some(2), 73.0, 37.0),
                ("training_step", Some(1), 26.0, 26.0)
            ]
        );
        assert_eq!((found.stage.as_str(), found.calls), ("FIT", Some(3)));
        let whole = found.total_s.unwrap();
        for row in &found.rows {
            assert!((row.percent.unwrap() - 100.0 * row.total_s.unwrap() / whole).abs() < 1e-9);
        }
    }

    #[test]
    fn trainer_names_are_used_without_labels() {
        let trace = ascii_trace::trace(
            "main | [Strategy]x.test_step-- other--- [LightningModule]N.on_test_end",
        );
        let found = profile(&trace, None, &Cancel::default()).unwrap().unwrap();
        assert_eq!((found.rows.len(), found.stage.as_str()), (2, "TEST"));
        let none = ascii_trace::trace("main | work----");
        assert!(profile(&none, None, &Cancel::default()).unwrap().is_none());
    }
}
