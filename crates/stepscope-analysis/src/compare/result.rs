//! Two sides of a comparison, each of one or several runs: measures, attribution, what makes them incomparable.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::align::{AlignedRow, align};
pub use crate::compare::align::{MatchBy, MatchLevel, RowKey, RowSide, RowsBy};
use crate::compare::owner::{Bucket, Owner, OwnerTime};
use crate::compare::run::{ComparedRun, ComparedStep, OwnerDetail};
use crate::compare::statistics::{
    RatioEstimate, Verdict, compare_quantiles, compare_runs, compare_samples,
    false_discovery_rates, family_wise, mann_whitney, median, widening,
};

/// Fewest steps of a side for a verdict.
pub const FEWEST_STEPS: usize = 5;
/// Fewest runs of both sides from which the run is the sample.
pub const FEWEST_RUNS: usize = 3;
/// Fewest steps of a side for quantiles above the median.
const FEWEST_FOR_TAIL: usize = 10;
/// Fraction of device time without a known launch from which it is worth a note.
const UNLAUNCHED: f64 = 0.1;
/// Facts that differ between any two runs.
const CHANGING_FACTS: [&str; 22] = [
    "unix_start_ns",
    "metadata",
    "baseTimeNanoseconds",
    "trace_id",
    "traceName",
    "displayTimeUnit",
    "hostname",
    "host",
    "pid",
    "process_id",
    "start_time",
    "profile_start_time",
    "profile_stop_time",
    "start_unix_ns",
    "time",
    "date",
    "session",
    "record_shapes",
    "task_id",
    "profile.start",
    "profile.end",
    "distributedInfo",
];

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareOptions {
    /// Rows of the attribution.
    pub by: RowsBy,
    /// First key of the alignment.
    pub match_by: MatchBy,
    /// Relative change below which sides are the same.
    pub tolerance: f64,
    /// Coverage of intervals.
    pub confidence: f64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            by: RowsBy::default(),
            match_by: MatchBy::default(),
            tolerance: 0.01,
            confidence: 0.95,
        }
    }
}

impl CompareOptions {
    /// Returns what must separate the owners of a run for these options.
    pub const fn detail(&self) -> OwnerDetail {
        match (self.match_by, self.by) {
            (MatchBy::Stack, _) | (_, RowsBy::Module) => OwnerDetail::Stack,
            (MatchBy::Shape, _) => OwnerDetail::Shapes,
            (MatchBy::Auto | MatchBy::Name | MatchBy::Class, _) => OwnerDetail::Name,
        }
    }
}

/// Unit of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureUnit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// A number of items.
    Count,
    /// A fraction of the step.
    Share,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Key with its unit.
    pub key: String,
    /// Unit of both values.
    pub unit: MeasureUnit,
    /// Value of each side: the median of the samples, or the figure itself.
    pub values: [f64; 2],
    /// Ratio with its interval; `None` where a side has no positive value.
    pub estimate: Option<RatioEstimate>,
    /// Whether the values are exact, without a distribution.
    pub is_exact: bool,
    /// p after Holm's correction over the measures with a test.
    pub family_p: Option<f64>,
    /// `None`: too few samples.
    pub verdict: Option<Verdict>,
    /// Number of samples of each side.
    pub samples: [usize; 2],
}

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

/// A property in which the sides differ, so that their times cannot be compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// Models of the devices.
    Device([Vec<String>; 2]),
    /// Number of ranks.
    WorldSize([u64; 2]),
    /// Whether Python calls, shapes, memory were recorded.
    RecordingOptions([[bool; 3]; 2]),
}

impl Mismatch {
    /// Returns the word that a gate uses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Device(_) => "device",
            Self::WorldSize(_) => "world_size",
            Self::RecordingOptions(_) => "recording_options",
        }
    }
}

/// A fact that qualifies the figures. `side` is 0 for the base.
#[derive(Clone, Debug, PartialEq)]
pub enum CompareNote {
    /// Fewer than three runs on a side: the variation between runs is unknown.
    RunsUnknown([usize; 2]),
    /// Too few steps for a verdict.
    FewSteps {
        /// Side.
        side: usize,
        /// Number of its compared steps.
        steps: usize,
    },
    /// The run marks no steps; the whole recording is compared.
    WholeRecording {
        /// Side.
        side: usize,
    },
    /// Steps are derived from a repetition.
    DerivedSteps {
        /// Side.
        side: usize,
    },
    /// Every step compiles or is warm-up: all are compared.
    AllStepsLeftOut {
        /// Side.
        side: usize,
    },
    /// An operation has other shapes.
    Shapes {
        /// Its name.
        operation: String,
        /// Shapes of each side.
        shapes: [String; 2],
    },
    /// Device work without a known launch stands under the names of kernels.
    Unlaunched {
        /// Side.
        side: usize,
        /// Fraction of the device time.
        share: f64,
    },
    /// The run has statistics only, without a timeline.
    StatisticsOnly {
        /// Side.
        side: usize,
    },
    /// Nothing was recorded.
    Empty {
        /// Side.
        side: usize,
    },
}

/// A fact of the environment that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentDifference {
    /// Key of the fact.
    pub key: String,
    /// Values of each side.
    pub values: [Vec<String>; 2],
}

/// A finding of either side.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingDifference {
    /// Identifier of the cause.
    pub cause: String,
    /// Whether each side has it.
    pub has: [bool; 2],
    /// Potential saving per step of each side, nanoseconds.
    pub saving_ns: [Option<f64>; 2],
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Measures, the step first where both sides have steps.
    pub measures: Vec<Measure>,
    /// Rows of the attribution, the largest difference first.
    pub rows: Vec<AttributionRow>,
    /// Mean step of each side, picoseconds: the sums of the rows.
    pub mean_ps: [i64; 2],
    /// Part of the difference of means that outlier steps make, nanoseconds.
    pub outliers_ns: f64,
    /// Number of finished steps, compared steps and outliers of each side.
    pub steps: [[usize; 3]; 2],
    /// What makes the sides incomparable.
    pub mismatches: Vec<Mismatch>,
    /// Facts that qualify the figures.
    pub notes: Vec<CompareNote>,
    /// Facts of the environment that differ.
    pub environment: Vec<EnvironmentDifference>,
    /// Findings of both sides.
    pub findings: Vec<FindingDifference>,
    /// Whether the rows are totals of functions, not times per step.
    pub are_totals: bool,
    /// Whether the run is the sample, not the step.
    pub runs_are_samples: bool,
    /// All owners of each side, for rules about some of them.
    pub owners: [Vec<OwnerTime>; 2],
}

impl Comparison {
    /// Returns the measure of the step; `None` where a side has no steps.
    pub fn step(&self) -> Option<&Measure> {
        self.measures
            .iter()
            .find(|measure| measure.key == "step_ns")
    }

    /// Returns the difference of the mean steps, picoseconds.
    pub const fn difference_ps(&self) -> i64 {
        self.mean_ps[1].saturating_sub(self.mean_ps[0])
    }

    /// Compares two sides. Cost: `n log n` in the steps and rows.
    pub fn new(base: &[ComparedRun], new: &[ComparedRun], options: &CompareOptions) -> Self {
        let sides = [base, new];
        let samples = sides.map(|runs| {
            runs.iter()
                .flat_map(ComparedRun::samples)
                .collect::<Vec<_>>()
        });
        let mismatches = mismatches(sides);
        let environment = environment(sides);
        let differs = |key: &str| environment.iter().any(|fact| fact.key == key);
        let same_devices = !mismatches
            .iter()
            .any(|found| matches!(found, Mismatch::Device(_)));
        let is_same_platform = same_devices && !differs("format") && !differs("kind");
        let are_totals = sides
            .iter()
            .all(|runs| runs.iter().all(|run| run.mean_ps == 0))
            && sides
                .iter()
                .any(|runs| runs.iter().any(|run| !run.totals.is_empty()));
        let (owners, mean_ps) = if are_totals {
            let owners = sides.map(owners_of_totals);
            let sum = |times: &Vec<OwnerTime>| {
                times
                    .iter()
                    .map(|time| time.mean_ps)
                    .fold(0, i64::saturating_add)
            };
            let means = owners.each_ref().map(sum);
            (owners, means)
        } else {
            let merged = sides.map(merge);
            let means = merged.each_ref().map(|(_, mean_ps)| *mean_ps);
            (merged.map(|(owners, _)| owners), means)
        };
        let aligned = align(
            &owners[0],
            &owners[1],
            options.by,
            options.match_by,
            is_same_platform,
        );
        let mut rows: Vec<AttributionRow> = aligned
            .into_iter()
            .filter(|row| row.base.mean_ps != 0 || row.new.mean_ps != 0)
            .map(attribute)
            .collect();
        add_rates(&mut rows, samples.each_ref().map(Vec::len));
        rows.sort_by(|a, b| {
            let size = |row: &AttributionRow| row.difference_ps.unsigned_abs();
            (size(b), b.base.mean_ps, &a.key).cmp(&(size(a), a.base.mean_ps, &b.key))
        });
        let runs_are_samples = sides.iter().all(|runs| runs.len() >= FEWEST_RUNS);
        let steps = [0, 1].map(|side: usize| {
            let all = sides[side].iter().map(|run| run.steps.len()).sum();
            let outliers = samples[side].iter().filter(|step| step.is_outlier).count();
            [all, samples[side].len(), outliers]
        });
        let mut comparison = Self {
            measures: Vec::new(),
            rows,
            mean_ps,
            outliers_ns: 0.0,
            steps,
            mismatches,
            notes: notes(sides, samples.each_ref().map(Vec::len), are_totals),
            environment,
            findings: findings(sides),
            are_totals,
            runs_are_samples,
            owners,
        };
        comparison.measure(sides, &samples, options);
        comparison
    }

    fn measure(
        &mut self,
        sides: [&[ComparedRun]; 2],
        samples: &[Vec<&ComparedStep>; 2],
        options: &CompareOptions,
    ) {
        if samples.iter().all(|samples| !samples.is_empty()) {
            let lengths = |steps: &[&ComparedStep]| {
                steps.iter().map(|step| step.length_ns).collect::<Vec<_>>()
            };
            let all = samples.each_ref().map(|steps| lengths(steps));
            let without = samples.each_ref().map(|steps| {
                let steady: Vec<_> = steps
                    .iter()
                    .copied()
                    .filter(|step| !step.is_outlier)
                    .collect();
                lengths(&steady)
            });
            let difference = |sides: &[Vec<f64>; 2]| mean(&sides[1]) - mean(&sides[0]);
            self.outliers_ns = difference(&all) - difference(&without);
            self.add_sampled("step_ns", sides, samples, options, |step| step.length_ns);
            let has_tail = samples.iter().all(|steps| steps.len() >= FEWEST_FOR_TAIL);
            if has_tail {
                for (key, quantile) in [("step_p90_ns", 0.9), ("step_p99_ns", 0.99)] {
                    let estimate =
                        compare_quantiles(&all[0], &all[1], quantile, options.confidence);
                    let values = all.each_ref().map(|side| quantile_of(side, quantile));
                    self.add_measure(
                        key,
                        values,
                        estimate,
                        samples.each_ref().map(Vec::len),
                        options,
                    );
                }
            }
            for (position, bucket) in Bucket::ALL.into_iter().enumerate() {
                let key = format!("{}_ns", bucket.as_str());
                self.add_sampled(&key, sides, samples, options, |step| {
                    step.buckets_ns[position]
                });
            }
        }
        let exact = [
            ("peak_memory_bytes", MeasureUnit::Bytes, sides.map(peak)),
            (
                "device_executions_per_step",
                MeasureUnit::Count,
                [0, 1].map(|side: usize| {
                    let sum: f64 = self.owners[side]
                        .iter()
                        .filter(|time| !time.owner.kernel.is_empty())
                        .map(|time| time.executions)
                        .sum();
                    (sum > 0.0).then_some(sum)
                }),
            ),
        ];
        for (key, unit, values) in exact {
            let [Some(base), Some(new)] = values else {
                continue;
            };
            let ratio = new / base;
            self.measures.push(Measure {
                key: key.to_owned(),
                unit,
                values: [base, new],
                estimate: (base > 0.0 && new > 0.0).then_some(RatioEstimate {
                    ratio,
                    interval: Some((ratio, ratio)),
                    level: 1.0,
                    p: None,
                    detectable_share: Some(0.0),
                }),
                is_exact: true,
                family_p: None,
                verdict: (base > 0.0 && new > 0.0)
                    .then(|| Verdict::from_interval((ratio, ratio), options.tolerance)),
                samples: [1, 1],
            });
        }
        let tested: Vec<usize> = (0..self.measures.len())
            .filter(|index| self.measures[*index].p().is_some())
            .collect();
        let ps: Vec<f64> = tested
            .iter()
            .filter_map(|index| self.measures[*index].p())
            .collect();
        for (index, p) in tested.into_iter().zip(family_wise(&ps)) {
            self.measures[index].family_p = Some(p);
        }
    }

    fn add_sampled(
        &mut self,
        key: &str,
        sides: [&[ComparedRun]; 2],
        samples: &[Vec<&ComparedStep>; 2],
        options: &CompareOptions,
        value: impl Fn(&ComparedStep) -> f64,
    ) {
        let steps = samples
            .each_ref()
            .map(|steps| steps.iter().map(|step| value(step)).collect::<Vec<f64>>());
        if steps.iter().all(|side| side.iter().all(|ns| *ns == 0.0)) {
            return;
        }
        let values = steps
            .each_ref()
            .map(|side| median(side).unwrap_or_default());
        if self.runs_are_samples {
            let runs = sides.map(|runs| {
                let of_run =
                    |run: &ComparedRun| median(&run.samples().map(&value).collect::<Vec<f64>>());
                runs.iter().filter_map(of_run).collect::<Vec<f64>>()
            });
            let estimate = compare_runs(&runs[0], &runs[1], options.confidence);
            self.add_measure(
                key,
                values,
                estimate,
                runs.each_ref().map(Vec::len),
                options,
            );
            return;
        }
        let estimate = compare_samples(&steps[0], &steps[1], options.confidence);
        self.add_measure(
            key,
            values,
            estimate,
            steps.each_ref().map(Vec::len),
            options,
        );
    }

    fn add_measure(
        &mut self,
        key: &str,
        values: [f64; 2],
        estimate: Option<RatioEstimate>,
        samples: [usize; 2],
        options: &CompareOptions,
    ) {
        let fewest = if self.runs_are_samples {
            FEWEST_RUNS
        } else {
            FEWEST_STEPS
        };
        let is_enough = samples.iter().all(|count| *count >= fewest);
        let interval = estimate.and_then(|estimate| estimate.interval);
        self.measures.push(Measure {
            key: key.to_owned(),
            unit: MeasureUnit::Ns,
            values,
            estimate,
            is_exact: false,
            family_p: None,
            verdict: interval
                .filter(|_| is_enough)
                .map(|interval| Verdict::from_interval(interval, options.tolerance)),
            samples,
        });
    }
}

impl Measure {
    fn p(&self) -> Option<f64> {
        self.estimate?.p
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn quantile_of(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    crate::compare::statistics::interpolate(&sorted, quantile)
}

fn peak(runs: &[ComparedRun]) -> Option<f64> {
    runs.iter()
        .filter_map(|run| run.peak_memory_bytes)
        .reduce(f64::max)
}

/// Splits the difference of a row into a part by count and a part by time per call.
fn attribute(row: AlignedRow) -> AttributionRow {
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
fn add_rates(rows: &mut [AttributionRow], steps: [usize; 2]) {
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
fn merge(runs: &[ComparedRun]) -> (Vec<OwnerTime>, i64) {
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
fn owners_of_totals(runs: &[ComparedRun]) -> Vec<OwnerTime> {
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
            class: crate::op_class::OpClass::Host,
            operation: name.to_owned(),
            phase: crate::compare::owner::Phase::Forward,
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

fn mismatches(sides: [&[ComparedRun]; 2]) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let devices = sides.map(|runs| {
        let models: BTreeSet<Vec<String>> = runs
            .iter()
            .map(|run| {
                let mut models = run.devices.clone();
                models.sort_unstable();
                models
            })
            .collect();
        models.into_iter().flatten().collect::<Vec<_>>()
    });
    if devices[0] != devices[1] {
        found.push(Mismatch::Device(devices));
    }
    let ranks = sides.map(|runs| runs.iter().map(|run| run.ranks).max().unwrap_or(0));
    if ranks[0] != ranks[1] {
        found.push(Mismatch::WorldSize(ranks));
    }
    let recording = sides.map(|runs| {
        let mut any = [false; 3];
        for run in runs {
            for (any, own) in any.iter_mut().zip(run.recording) {
                *any |= own;
            }
        }
        any
    });
    if recording[0] != recording[1] {
        found.push(Mismatch::RecordingOptions(recording));
    }
    found
}

fn environment(sides: [&[ComparedRun]; 2]) -> Vec<EnvironmentDifference> {
    let facts = sides.map(|runs| {
        let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (key, values) in runs.iter().flat_map(|run| &run.environment) {
            let known = all.entry(key).or_default();
            known.extend(values.iter().map(String::as_str));
        }
        all
    });
    let keys: BTreeSet<&str> = facts
        .iter()
        .flat_map(|facts| facts.keys().copied())
        .collect();
    let mut found = Vec::new();
    for key in keys.into_iter().filter(|key| !CHANGING_FACTS.contains(key)) {
        let [base, new] = facts.each_ref().map(|facts| facts.get(key));
        if base != new {
            let values = [base, new].map(|values| {
                let values = values.into_iter().flatten();
                values.map(|value| (*value).to_owned()).collect()
            });
            found.push(EnvironmentDifference {
                key: key.to_owned(),
                values,
            });
        }
    }
    found
}

fn findings(sides: [&[ComparedRun]; 2]) -> Vec<FindingDifference> {
    let mut found: Vec<FindingDifference> = Vec::new();
    for (side, runs) in sides.into_iter().enumerate() {
        for finding in runs.iter().flat_map(|run| &run.findings) {
            let at = found.iter().position(|known| known.cause == finding.cause);
            let at = at.unwrap_or_else(|| {
                found.push(FindingDifference {
                    cause: finding.cause.clone(),
                    has: [false; 2],
                    saving_ns: [None; 2],
                });
                found.len() - 1
            });
            found[at].has[side] = true;
            let saving = &mut found[at].saving_ns[side];
            *saving = match (*saving, finding.saving_ns) {
                (Some(known), Some(new)) => Some(known.max(new)),
                (known, new) => known.or(new),
            };
        }
    }
    found
}

fn notes(sides: [&[ComparedRun]; 2], samples: [usize; 2], are_totals: bool) -> Vec<CompareNote> {
    let mut found = Vec::new();
    let counts = sides.map(<[ComparedRun]>::len);
    let have_steps = samples.iter().all(|count| *count > 0);
    if have_steps && counts.iter().any(|count| *count < FEWEST_RUNS) {
        found.push(CompareNote::RunsUnknown(counts));
    }
    for (side, runs) in sides.into_iter().enumerate() {
        let any = |such: fn(&ComparedRun) -> bool| runs.iter().any(such);
        let is_empty = |run: &ComparedRun| run.mean_ps == 0 && run.totals.is_empty();
        if runs.iter().all(is_empty) {
            found.push(CompareNote::Empty { side });
            continue;
        }
        if any(|run| run.mean_ps == 0 && !run.totals.is_empty()) {
            found.push(CompareNote::StatisticsOnly { side });
        } else if any(|run| run.is_whole_recording) {
            found.push(CompareNote::WholeRecording { side });
        } else if samples[side] < FEWEST_STEPS {
            found.push(CompareNote::FewSteps {
                side,
                steps: samples[side],
            });
        }
        if any(|run| run.derived_steps) {
            found.push(CompareNote::DerivedSteps { side });
        }
        if any(|run| run.all_steps_left_out && !run.steps.is_empty()) {
            found.push(CompareNote::AllStepsLeftOut { side });
        }
        let share = runs
            .iter()
            .map(|run| run.unlaunched_share)
            .fold(0.0, f64::max);
        if share > UNLAUNCHED && !are_totals {
            found.push(CompareNote::Unlaunched { side, share });
        }
    }
    if let [Some(base), Some(new)] = sides.map(<[ComparedRun]>::first) {
        for (operation, shapes) in &base.heaviest_shapes {
            if let Some(other) = new.heaviest_shapes.get(operation)
                && other != shapes
            {
                found.push(CompareNote::Shapes {
                    operation: operation.clone(),
                    shapes: [shapes.clone(), other.clone()],
                });
            }
        }
    }
    found
}
