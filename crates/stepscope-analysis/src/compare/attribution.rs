//! Rows of the attribution: what the owners of both sides make of the difference of the mean steps.

use std::collections::BTreeMap;

use crate::compare::align::{AlignedRow, MatchLevel, RowKey, RowSide};
use crate::compare::owner::{Bucket, Owner, OwnerTime, Phase};
use crate::compare::run::ComparedRun;
use crate::compare::statistics::{FEWEST_STEPS, false_discovery_rates, mann_whitney, widening};
use crate::op_class::OpClass;

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
pub(super) fn add_rates(rows: &mut [AttributionRow], steps: [usize; 2]) {
    if steps.iter().any(|count| *count < FEWEST_STEPS) {
        return;
    }
    let mut tested = Vec::new();
    let mut ps = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let sides = [&row.base, &row.new];
        let series: Vec<Vec<f64>> = sides
            .into_iter()
            .zip(steps)
            .filter_map(|(side, count)| match side.by_step_ns.len() {
                0 if side.mean_ps == 0 => Some(vec![0.0; count]),
                0 => None,
                _ => Some(side.by_step_ns.clone()),
            })
            .collect();
        if let [base, new] = &series[..]
            && let Some(p) = mann_whitney(base, new, widening(base, new))
        {
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
    let mut sums: BTreeMap<&Owner, (OwnerTime, i128)> = BTreeMap::new();
    let mut before = 0;
    for run in runs {
        let samples = run.samples().count();
        for time in &run.owners {
            let (sum, own) = sums.entry(&time.owner).or_insert_with(|| {
                let mut empty = time.clone();
                (empty.calls, empty.executions, empty.device_ns) = (0.0, 0.0, 0.0);
                empty.by_step_ns.clear();
                empty.device_by_step_ns.clear();
                (empty, 0)
            });
            let share = |value: f64| value / count as f64;
            sum.calls += share(time.calls);
            sum.executions += share(time.executions);
            sum.device_ns += share(time.device_ns);
            *own += i128::from(time.mean_ps);
            for (all, series) in [
                (&mut sum.by_step_ns, &time.by_step_ns),
                (&mut sum.device_by_step_ns, &time.device_by_step_ns),
            ] {
                // A run in which the owner is small or absent counts with its mean.
                all.resize(before, 0.0);
                all.extend(series);
            }
        }
        before += samples;
    }
    let (mut so_far, mut given) = (0_i128, 0_i128);
    let owners = sums.into_values().map(|(mut time, own)| {
        so_far += own;
        time.mean_ps = narrow(so_far / count - given);
        given = so_far / count;
        for series in [&mut time.by_step_ns, &mut time.device_by_step_ns] {
            if !series.is_empty() {
                series.resize(before, 0.0);
            }
        }
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
            bucket: Bucket::Host,
            class: OpClass::Host,
            operation: name.to_owned(),
            phase: Phase::Forward,
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
