//! What the samples of a comparison are: steps, or runs.

use crate::compare::run::ComparedRun;
use crate::statistics::{
    FEWEST_RUNS, FEWEST_STEPS, RatioEstimate, ShiftEstimate, compare_runs, compare_samples,
    mann_whitney, median, shift_of_runs, shift_of_samples, widening,
};

/// The samples of both sides.
///
/// Steps of one run say nothing about the variation between runs. From [`FEWEST_RUNS`] runs on a side that variation
/// is known, and a run, by its median, is one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Number of compared steps of each run of each side.
    pub steps: [Vec<usize>; 2],
    /// Whether the run is the sample, not the step.
    pub by_run: bool,
}

/// Comparison of two series: the ratio, or the difference where a value is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeriesEstimate {
    /// Ratio with its interval.
    pub ratio: Option<RatioEstimate>,
    /// Difference with its interval, where there is no ratio.
    pub shift: Option<ShiftEstimate>,
    /// Number of samples of each side.
    pub samples: [usize; 2],
}

impl Sampling {
    /// Counts the samples of two sides.
    pub(super) fn new(sides: [&[ComparedRun]; 2]) -> Self {
        let steps = sides.map(|runs| {
            let counts = runs.iter().map(|run| run.samples().count());
            counts.collect::<Vec<usize>>()
        });
        let with_steps = |counts: &Vec<usize>| counts.iter().filter(|count| **count > 0).count();
        let by_run = steps.iter().any(|counts| with_steps(counts) >= FEWEST_RUNS);
        Self { steps, by_run }
    }

    /// Returns the number of compared steps of each side.
    pub fn step_counts(&self) -> [usize; 2] {
        self.steps.each_ref().map(|counts| counts.iter().sum())
    }

    /// Compares series with a value for each compared step of both sides, run by run in their order.
    pub fn compare(&self, series: [&[f64]; 2], confidence: f64) -> SeriesEstimate {
        if !self.by_run {
            let [base, new] = series;
            let ratio = compare_samples(base, new, confidence);
            let shift = || shift_of_samples(base, new, confidence);
            return SeriesEstimate {
                shift: if ratio.is_some() { None } else { shift() },
                ratio,
                samples: [base.len(), new.len()],
            };
        }
        let [base, new] = [0, 1].map(|side: usize| self.medians(side, series[side]));
        let ratio = compare_runs(&base, &new, confidence);
        let shift = || shift_of_runs(&base, &new, confidence);
        SeriesEstimate {
            shift: if ratio.is_some() { None } else { shift() },
            ratio,
            samples: [base.len(), new.len()],
        }
    }

    /// Computes the two-sided p of the test for equality of two series as those of [`compare`](Self::compare), and
    /// returns it if the samples decide. It is cheaper than an interval.
    pub(super) fn test(&self, series: [&[f64]; 2]) -> Option<f64> {
        let [base, new] = series;
        if !self.by_run {
            let decides = self.decides([base.len(), new.len()], FEWEST_STEPS);
            return decides.then(|| mann_whitney(base, new, widening(base, new)))?;
        }
        let [base, new] = [0, 1].map(|side: usize| self.medians(side, series[side]));
        let decides = self.decides([base.len(), new.len()], FEWEST_STEPS);
        decides.then(|| shift_of_runs(&base, &new, 0.95)?.p)?
    }

    /// Returns whether samples of these numbers decide; `fewest` is the smallest number of steps that does.
    pub fn decides(&self, samples: [usize; 2], fewest: usize) -> bool {
        if self.by_run {
            samples.iter().all(|count| *count > 0)
                && samples.iter().any(|count| *count >= FEWEST_RUNS)
        } else {
            samples.iter().all(|count| *count >= fewest)
        }
    }

    /// Returns the median of each run of a side.
    fn medians(&self, side: usize, series: &[f64]) -> Vec<f64> {
        let mut rest = series;
        let of_run = |count: &usize| {
            let (run, after) = rest.split_at((*count).min(rest.len()));
            rest = after;
            median(run)
        };
        self.steps[side].iter().filter_map(of_run).collect()
    }
}
