//! Two sides of a comparison, each of one or several runs: measures, attribution, what makes them incomparable.

use crate::compare::align::align;
pub use crate::compare::align::{MatchBy, MatchLevel, RowKey, RowSide, RowsBy};
pub use crate::compare::attribution::AttributionRow;
use crate::compare::attribution::{add_rates, attribute, merge, owners_of_totals};
pub use crate::compare::comparability::{
    Comparability, CompareNote, EnvironmentDifference, FindingDifference, Mismatch,
};
use crate::compare::comparability::{environment, findings, mismatches, notes};
pub use crate::compare::memory::HeldDifference;
use crate::compare::memory::differences;
use crate::compare::owner::OwnerTime;
use crate::compare::prediction::{Prediction, PredictionCheck, StepChange};
use crate::compare::rename::Renaming;
pub use crate::compare::rename::{Rename, RenamedName};
use crate::compare::run::{ComparedRun, ComparedStep, OwnerDetail};
use crate::compare::sampling::{Sampling, SeriesEstimate};
pub use crate::statistics::{FEWEST_RUNS, FEWEST_STEPS};
use crate::statistics::{
    RatioEstimate, ShiftEstimate, Verdict, compare_quantiles, family_wise, median,
};
use crate::steps::bucket::StepBucket;

/// Fewest steps of a side for quantiles above the median.
const FEWEST_FOR_TAIL: usize = 10;
/// Default of [`CompareOptions::tolerance`]: 1 %.
pub const DEFAULT_TOLERANCE: f64 = 0.01;
/// Default of [`CompareOptions::confidence`]: 95 %.
pub const DEFAULT_CONFIDENCE: f64 = 0.95;

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareOptions {
    /// Rows of the attribution.
    pub by: RowsBy,
    /// First key of the alignment.
    pub match_by: MatchBy,
    /// Names of the base that the new side calls differently; the first rule that matches a name applies.
    pub renames: Vec<Rename>,
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
            renames: Vec::new(),
            tolerance: DEFAULT_TOLERANCE,
            confidence: DEFAULT_CONFIDENCE,
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
    /// Value of each side: the median of the samples, or the figure itself; `None` on a side without it.
    pub values: [Option<f64>; 2],
    /// Ratio with its interval; `None` where a sample of either side is zero.
    pub estimate: Option<RatioEstimate>,
    /// Difference with its interval, in the unit of the values, where there is no ratio.
    pub shift: Option<ShiftEstimate>,
    /// Whether the values are exact, without a distribution.
    pub is_exact: bool,
    /// p after Holm's correction over the measures with a test.
    pub family_p: Option<f64>,
    /// `None`: too few samples.
    pub verdict: Option<Verdict>,
    /// Number of samples of each side.
    pub samples: [usize; 2],
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
    /// Names of the base that are compared under other names.
    pub renamed: Vec<RenamedName>,
    /// What holds the memory at the peaks, the largest difference first; empty where a side does not say it.
    pub memory: Vec<HeldDifference>,
    /// Facts of the environment that differ.
    pub environment: Vec<EnvironmentDifference>,
    /// Findings of both sides.
    pub findings: Vec<FindingDifference>,
    /// Whether the rows are totals of functions, not times per step.
    pub are_totals: bool,
    /// What the samples are.
    pub sampling: Sampling,
    /// All owners of each side, for rules about some of them.
    pub owners: [Vec<OwnerTime>; 2],
    /// Earlier predictions with what happened; empty until [`check_predictions`](Self::check_predictions).
    pub predictions: Vec<PredictionCheck>,
}

impl Comparison {
    /// Returns the measure of the step; `None` where a side has no steps.
    pub fn step(&self) -> Option<&Measure> {
        self.measures
            .iter()
            .find(|measure| measure.key == "step_ns" && measure.values.iter().all(Option::is_some))
    }

    /// Returns how far the sides can be compared.
    pub fn comparability(&self) -> Comparability {
        Comparability::new(&self.mismatches, &self.notes)
    }

    /// Returns the difference of the mean steps, picoseconds.
    pub const fn difference_ps(&self) -> i64 {
        self.mean_ps[1].saturating_sub(self.mean_ps[0])
    }

    /// Compares two sides. Cost: `n log n` in the steps and rows.
    pub fn new(base: &[ComparedRun], new: &[ComparedRun], options: &CompareOptions) -> Self {
        let mut renaming = Renaming::new(&options.renames);
        let base = renaming.apply(base);
        let (renamed, unused_renames) = renaming.into_result();
        let sides = [&*base, new];
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
        let sampling = Sampling::new(sides);
        add_rates(&mut rows, &sampling);
        rows.sort_by(|a, b| {
            let size = |row: &AttributionRow| row.difference_ps.unsigned_abs();
            (size(b), b.base.mean_ps, &a.key).cmp(&(size(a), a.base.mean_ps, &b.key))
        });
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
            memory: differences(sides.map(|runs| {
                let holders = runs.iter().map(|run| &run.peak_holders[..]);
                holders.collect()
            })),
            mismatches,
            notes: notes(
                sides,
                samples.each_ref().map(Vec::len),
                are_totals,
                options.tolerance,
            ),
            renamed,
            environment,
            findings: findings(sides),
            are_totals,
            sampling,
            owners,
            predictions: Vec::new(),
        };
        let unused = unused_renames.into_iter().map(CompareNote::RenameUnused);
        comparison.notes.extend(unused);
        comparison.measure(sides, &samples, options);
        comparison
    }

    /// Holds predictions against this comparison.
    pub fn check_predictions(&mut self, predictions: &[Prediction], tolerance: f64) {
        let [base_ns, new_ns] = self.mean_ps.map(|ps| ps as f64 / 1_000.0);
        let step = self.step().filter(|step| step.verdict.is_some());
        let measured = StepChange {
            base_ns,
            new_ns,
            interval: step.and_then(|step| step.estimate?.interval),
        };
        let check = |prediction: &Prediction| prediction.check(measured, tolerance);
        self.predictions = predictions.iter().map(check).collect();
    }

    fn measure(
        &mut self,
        sides: [&[ComparedRun]; 2],
        samples: &[Vec<&ComparedStep>; 2],
        options: &CompareOptions,
    ) {
        let lengths =
            |steps: &[&ComparedStep]| steps.iter().map(|step| step.length_ns).collect::<Vec<_>>();
        let all = samples.each_ref().map(|steps| lengths(steps));
        if samples.iter().all(|samples| !samples.is_empty()) {
            let without = samples.each_ref().map(|steps| {
                let steps = steps.iter().copied();
                lengths(&steps.filter(|step| !step.is_outlier).collect::<Vec<_>>())
            });
            let difference = |sides: &[Vec<f64>; 2]| mean(&sides[1]) - mean(&sides[0]);
            self.outliers_ns = difference(&all) - difference(&without);
        }
        self.add_sampled("step_ns", samples, options, |step| step.length_ns);
        for (key, quantile) in [("step_p90_ns", 0.9), ("step_p99_ns", 0.99)] {
            let values = all
                .each_ref()
                .map(|side| (side.len() >= FEWEST_FOR_TAIL).then(|| quantile_of(side, quantile)));
            let estimate = (values.iter().all(Option::is_some))
                .then(|| compare_quantiles(&all[0], &all[1], quantile, options.confidence));
            let found = SeriesEstimate {
                ratio: estimate.flatten(),
                shift: None,
                samples: samples.each_ref().map(Vec::len),
            };
            self.add_measure(key, values, found, options);
        }
        for (position, bucket) in StepBucket::ALL.into_iter().enumerate() {
            self.add_sampled(bucket.ns_key(), samples, options, |step| {
                step.buckets_ns[position]
            });
        }
        let executions = |owners: &Vec<OwnerTime>| {
            let executions = owners.iter().filter(|time| !time.owner.kernel.is_empty());
            let sum: f64 = executions.map(|time| time.executions).sum();
            (sum > 0.0).then_some(sum)
        };
        let exact = [
            ("peak_memory_bytes", MeasureUnit::Bytes, sides.map(peak)),
            (
                "device_executions_per_step",
                MeasureUnit::Count,
                self.owners.each_ref().map(executions),
            ),
        ];
        for (key, unit, values) in exact {
            if values == [None, None] {
                continue;
            }
            let ratio = match values {
                [Some(base), Some(new)] if base > 0.0 && new > 0.0 => Some(new / base),
                _ => None,
            };
            self.measures.push(Measure {
                key: key.to_owned(),
                unit,
                values,
                estimate: ratio.map(|ratio| RatioEstimate {
                    ratio,
                    interval: Some((ratio, ratio)),
                    level: 1.0,
                    p: None,
                    detectable_share: Some(0.0),
                }),
                shift: None,
                is_exact: true,
                family_p: None,
                verdict: ratio
                    .map(|ratio| Verdict::from_interval((ratio, ratio), options.tolerance)),
                samples: values.map(|value| usize::from(value.is_some())),
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
        let values = steps.each_ref().map(|side| median(side));
        let series = steps.each_ref().map(Vec::as_slice);
        let found = self.sampling.compare(series, options.confidence);
        self.add_measure(key, values, found, options);
    }

    fn add_measure(
        &mut self,
        key: &str,
        values: [Option<f64>; 2],
        found: SeriesEstimate,
        options: &CompareOptions,
    ) {
        if values == [None, None] {
            return;
        }
        // A time that may be zero has no ratio to itself: the step is the scale.
        let step_ns = self.step().and_then(|step| step.values[0]);
        let most = options.tolerance * step_ns.unwrap_or_default();
        let by_ratio = found.ratio.and_then(|ratio| ratio.interval);
        let by_shift = found.shift.and_then(|shift| shift.interval);
        let verdict = by_ratio
            .map(|interval| Verdict::from_interval(interval, options.tolerance))
            .or_else(|| by_shift.map(|interval| Verdict::from_shift(interval, most)));
        self.measures.push(Measure {
            key: key.to_owned(),
            unit: MeasureUnit::Ns,
            values,
            estimate: found.ratio,
            shift: found.shift,
            is_exact: false,
            family_p: None,
            verdict: verdict.filter(|_| self.sampling.decides(found.samples, FEWEST_STEPS)),
            samples: found.samples,
        });
    }
}

impl Measure {
    /// Returns the two-sided p of the test for equality; `None` where it has none.
    pub fn p(&self) -> Option<f64> {
        let of_shift = || self.shift?.p;
        self.estimate.map_or_else(of_shift, |estimate| estimate.p)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn quantile_of(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    crate::statistics::interpolate(&sorted, quantile)
}

fn peak(runs: &[ComparedRun]) -> Option<f64> {
    runs.iter()
        .filter_map(|run| run.peak_memory_bytes)
        .reduce(f64::max)
}
