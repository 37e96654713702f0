//! Rows of the attribution: what the owners of both sides make of the difference of the mean steps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::compare::align::{AlignedRow, MatchLevel, RowKey, RowSide};
use crate::compare::owner::{Owner, OwnerTime};
use crate::compare::run::ComparedRun;
use crate::compare::sampling::Sampling;
use crate::op_class::OpClass;
use crate::statistics::false_discovery_rates;
use crate::steps::bucket::StepBucket;
use crate::training_phase::TrainingPhase;

/// One row of the attribution.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributionRow {
    /// Its identity.
    pub key: RowKey,
    /// Where the sides met.
    pub level: MatchLevel,
    /// The base.
    pub base: RowSide,
    /// The new side.
    pub new: RowSide,
    /// Difference of the mean times, picoseconds.
    pub difference_ps: i64,
    /// Part of it by the number of calls, picoseconds.
    pub count_ps: i64,
    /// Part of it by the time per call, picoseconds: the rest.
    pub time_ps: i64,
    /// False discovery rate at which the row differs; `None` without times by step.
    pub q: Option<f64>,
}

/// Splits the difference of a row into a part by count and a part by time per call.
pub(super) fn attribute(row: AlignedRow) -> AttributionRow {
    let AlignedRow {
        key,
        level,
        base,
        new,
    } = row;
    let difference_ps = new.mean_ps.saturating_sub(base.mean_ps);
    let count_ps = match level {
        MatchLevel::Added | MatchLevel::Removed => difference_ps,
        _ if base.count > 0.0 => {
            let by_count = (new.count - base.count) * (base.mean_ps as f64 / base.count);
            #[allow(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
            let by_count = by_count.round() as i64;
            by_count
        }
        _ => 0,
    };
    AttributionRow {
        key,
        level,
        base,
        new,
        difference_ps,
        count_ps,
        time_ps: difference_ps.saturating_sub(count_ps),
        q: None,
    }
}

/// Tests each row that has times by step on both sides, and corrects for their number.
pub(super) fn add_rates(rows: &mut [AttributionRow], sampling: &Sampling) {
    let steps = sampling.step_counts();
    let mut tested = Vec::new();
    let mut ps = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let sides = [&row.base, &row.new];
        let series: Vec<Cow<'_, [f64]>> = sides
            .into_iter()
            .zip(steps)
            .filter_map(|(side, count)| match side.by_step_ns.len() {
                0 if side.mean_ps == 0 => Some(vec![0.0; count].into()),
                0 => None,
                _ => Some(Cow::Borrowed(&side.by_step_ns[..])),
            })
            .collect();
        let [base, new] = &series[..] else {
            continue;
        };
        if let Some(p) = sampling.test([base, new]) {
            tested.push(index);
            ps.push(p);
        }
    }
    for (index, q) in tested.into_iter().zip(false_discovery_rates(&ps)) {
        rows[index].q = Some(q);
    }
}

/// Joins the owners of several runs: means over the runs, which add up to the mean of their mean steps.
pub(super) fn merge(runs: &[ComparedRun]) -> (Vec<OwnerTime>, i64) {
    if let [run] = runs {
        return (run.owners.clone(), run.mean_ps);
    }
    let count = i128::try_from(runs.len().max(1)).unwrap_or(1);
    let all: i128 = runs.iter().map(|run| i128::from(run.mean_ps)).sum();
    let narrow = |ps: i128| i64::try_from(ps).unwrap_or(i64::MAX);
    // Each owner with its time over all runs, and whether some run has times by step of it and of its device work.
    let mut sums: BTreeMap<&Owner, (OwnerTime, i128, [bool; 2])> = BTreeMap::new();
    for time in runs.iter().flat_map(|run| &run.owners) {
        let (sum, own, listed) = sums.entry(&time.owner).or_insert_with(|| {
            let mut empty = time.clone();
            (empty.calls, empty.executions, empty.device_ns) = (0.0, 0.0, 0.0);
            empty.by_step_ns.clear();
            empty.device_by_step_ns.clear();
            (empty, 0, [false; 2])
        });
        let share = |value: f64| value / count as f64;
        sum.calls += share(time.calls);
        sum.executions += share(time.executions);
        sum.device_ns += share(time.device_ns);
        *own += i128::from(time.mean_ps);
        listed[0] |= !time.by_step_ns.is_empty();
        listed[1] |= !time.device_by_step_ns.is_empty();
    }
    let samples: Vec<usize> = runs.iter().map(|run| run.samples().count()).collect();
    let all_samples: usize = samples.iter().sum();
    let mut before = 0;
    for (run, samples) in runs.iter().zip(samples) {
        for time in &run.owners {
            let Some((sum, _, listed)) = sums.get_mut(&time.owner) else {
                continue;
            };
            let mean_ns = time.mean_ps as f64 / 1_000.0;
            let series = [
                (&mut sum.by_step_ns, &time.by_step_ns, mean_ns),
                (
                    &mut sum.device_by_step_ns,
                    &time.device_by_step_ns,
                    time.device_ns,
                ),
            ];
            for ((all, series, mean_ns), _) in series
                .into_iter()
                .zip(listed)
                .filter(|(_, listed)| **listed)
            {
                // A run without the owner counts with zeros, one in which it is small with its mean.
                all.resize(all_samples, 0.0);
                let of_run = all.iter_mut().skip(before).take(samples);
                let own = series.iter().copied();
                of_run
                    .zip(own.chain(std::iter::repeat(mean_ns)))
                    .for_each(|(ns, own)| *ns = own);
            }
        }
        before += samples;
    }
    let (mut so_far, mut given) = (0_i128, 0_i128);
    let owners = sums.into_values().map(|(mut time, own, _)| {
        so_far += own;
        time.mean_ps = narrow(so_far / count - given);
        given = so_far / count;
        time
    });
    (owners.collect(), narrow(all / count))
}

/// Returns the totals of functions as owners.
pub(super) fn owners_of_totals(runs: &[ComparedRun]) -> Vec<OwnerTime> {
    let count = runs.len().max(1) as f64;
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for total in runs.iter().flat_map(|run| &run.totals) {
        let sum = sums.entry(&total.name).or_default();
        sum.0 += total.calls / count;
        sum.1 += total.time_ns / count;
    }
    let owners = sums.into_iter().map(|(name, (calls, ns))| OwnerTime {
        owner: Owner {
            bucket: StepBucket::Host,
            class: OpClass::Host,
            operation: name.to_owned(),
            phase: TrainingPhase::Forward,
            kernel: String::new(),
            module: String::new(),
            shapes: String::new(),
        },
        calls,
        executions: calls,
        #[allow(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
        mean_ps: (ns * 1_000.0).round() as i64,
        device_ns: 0.0,
        by_step_ns: Vec::new(),
        device_by_step_ns: Vec::new(),
    });
    owners.collect()
}
