//! Statistics of steps: means, percentiles, outliers, trend.
//!
//! Means and percentiles cover all steps. Outliers and trends are judged within each rank: ranks can differ
//! permanently, and steps of different ranks are no time series.

use std::collections::BTreeMap;

use stepscope_model::Dur;

/// Minimum number of steps for percentiles above the median: with fewer they are the longest step, or lie between
/// the two longest.
const FEWEST_FOR_TAIL: usize = 10;

/// Statistics of a set of steps. `None` where there is no step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepStatistics {
    /// Number of steps.
    pub count: u64,
    /// Sum of the lengths over their number, nanoseconds.
    pub mean_ns: Option<f64>,
    /// See [`percentile`].
    pub p50_ns: Option<f64>,
    /// See [`percentile`]; `None` below ten steps.
    pub p90_ns: Option<f64>,
    /// See [`percentile`]; `None` below ten steps.
    pub p99_ns: Option<f64>,
    /// Shortest.
    pub min_ns: Option<f64>,
    /// Longest.
    pub max_ns: Option<f64>,
    /// Square root of the mean squared distance from the mean.
    pub deviation_ns: Option<f64>,
    /// Length from which a step is an outlier; see [`outlier_limit`]. The lowest limit where there are several
    /// ranks.
    pub outlier_ns: Option<f64>,
    /// See [`trend`]. The median trend where there are several ranks.
    pub trend: Option<f64>,
}

impl StepStatistics {
    /// Computes the statistics of the steps of one rank from their lengths, in the order of their start.
    pub fn from_durations(lengths: &[Dur]) -> Self {
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable();
        let total_ps: i128 = sorted.iter().map(|dur| i128::from(dur.ps())).sum();
        let count = sorted.len() as u64;
        let mean_ns = (count > 0).then(|| total_ps as f64 / 1_000.0 / count as f64);
        let deviation_ns = mean_ns.map(|mean| {
            let squares = sorted.iter().map(|dur| (dur.as_ns_f64() - mean).powi(2));
            (squares.sum::<f64>() / count as f64).sqrt()
        });
        let tail = |p| percentile(&sorted, p).filter(|_| sorted.len() >= FEWEST_FOR_TAIL);
        Self {
            count,
            mean_ns,
            p50_ns: percentile(&sorted, 0.5),
            p90_ns: tail(0.9),
            p99_ns: tail(0.99),
            min_ns: percentile(&sorted, 0.0),
            max_ns: percentile(&sorted, 1.0),
            deviation_ns,
            outlier_ns: outlier_limit(&sorted),
            trend: trend(lengths),
        }
    }

    /// Computes the statistics of the steps of all ranks together, and of each rank; `ranks` has the lengths of
    /// each rank's steps, in the order of their start.
    pub fn from_ranks<K: Copy + Ord>(ranks: &BTreeMap<K, Vec<Dur>>) -> (Self, BTreeMap<K, Self>) {
        let of_each: BTreeMap<K, Self> = ranks
            .iter()
            .map(|(rank, lengths)| (*rank, Self::from_durations(lengths)))
            .collect();
        if let [times] = of_each.values().collect::<Vec<_>>()[..] {
            return (*times, of_each);
        }
        let all: Vec<Dur> = ranks.values().flatten().copied().collect();
        let limits = of_each.values().filter_map(|times| times.outlier_ns);
        let mut trends: Vec<f64> = of_each.values().filter_map(|times| times.trend).collect();
        trends.sort_unstable_by(f64::total_cmp);
        let together = Self {
            outlier_ns: limits.reduce(f64::min),
            trend: middle(&trends),
            ..Self::from_durations(&all)
        };
        (together, of_each)
    }
}

/// Returns the median of sorted values: the mean of the two in the middle where their number is even.
fn middle(sorted: &[f64]) -> Option<f64> {
    let above = *sorted.get(sorted.len() / 2)?;
    let below = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(below, above))
}

/// Returns the value below which a fraction `p` (0 to 1) of the sorted values lies: linear interpolation between
/// the two values around position `p * (n - 1)`, the default of `numpy.percentile`. `None` without values.
pub fn percentile(sorted: &[Dur], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the position lies between 0 and the index of the last value"
    )]
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let (low, high) = (sorted[below].as_ns_f64(), sorted[above].as_ns_f64());
    Some(low + (high - low) * (position - below as f64))
}

/// Returns the length from which a step is an outlier: `max(1.2 p50, p50 + 3 * 1.4826 * MAD)`, where MAD is the
/// median distance from the median (1.4826 MAD is the standard deviation of a normal distribution). `None` below
/// five steps.
pub fn outlier_limit(sorted: &[Dur]) -> Option<f64> {
    if sorted.len() < 5 {
        return None;
    }
    let median = percentile(sorted, 0.5)?;
    let mut distances: Vec<f64> = sorted
        .iter()
        .map(|dur| (dur.as_ns_f64() - median).abs())
        .collect();
    distances.sort_unstable_by(f64::total_cmp);
    let mad = middle(&distances)?;
    Some((median * 1.2).max(median + 3.0 * 1.4826 * mad))
}

/// Computes the relative change of the step length: `(p50 of the last quarter - p50 of the first quarter) / p50
/// of the first quarter`, quarters in order of the steps' start; never below -1. `None` below eight steps.
pub fn trend(lengths: &[Dur]) -> Option<f64> {
    let quarter = lengths.len() / 4;
    if quarter < 2 {
        return None;
    }
    let median = |part: &[Dur]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        percentile(&part, 0.5)
    };
    let first = median(lengths.get(..quarter)?)?;
    let last = median(lengths.get(lengths.len() - quarter..)?)?;
    (first > 0.0).then(|| (last - first) / first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(lengths: &[i64]) -> Vec<Dur> {
        let dur = |us: &i64| Dur::from_ps(us * 1_000_000);
        lengths.iter().map(dur).collect()
    }

    #[test]
    fn outliers_are_far_from_the_median() {
        let times = StepStatistics::from_durations(&us(&[30, 10, 11, 10, 10, 9, 10]));
        assert_eq!(times.outlier_ns, Some(12_000.0));
        assert_eq!(
            StepStatistics::from_durations(&us(&[1, 2, 3, 4])).outlier_ns,
            None
        );
        // Evenly spread lengths have no outliers.
        let spread = StepStatistics::from_durations(&us(&[10, 12, 14, 16, 18, 20]));
        assert!(spread.outlier_ns > spread.max_ns);
    }

    #[test]
    fn a_trend_compares_the_last_quarter_with_the_first() {
        assert_eq!(trend(&us(&[10, 10, 10, 10, 10, 10, 12, 12])), Some(0.2));
        // Steps that compiled come first: no length can decrease by more than 100 %.
        let warmed = us(&[1_000, 500, 10, 10, 10, 10, 15, 15]);
        assert_eq!(trend(&warmed), Some(-0.98));
        assert_eq!(trend(&us(&[10; 7])), None);
        assert_eq!(trend(&us(&[0; 9])), None);
    }

    #[test]
    fn ranks_are_judged_by_their_own_steps() {
        let one_each: BTreeMap<usize, Vec<Dur>> = (0..8)
            .map(|rank| (rank, us(&[100 - 5 * rank as i64])))
            .collect();
        let (together, _) = StepStatistics::from_ranks(&one_each);
        assert_eq!((together.count, together.max_ns), (8, Some(100_000.0)));
        assert_eq!((together.trend, together.outlier_ns), (None, None));
        // Rank 1 is permanently slower: none of its steps is an outlier for that. Rank 2 has too few for a trend.
        let ranks = BTreeMap::from([
            (0, us(&[10, 10, 10, 10, 10, 10, 12, 12])),
            (1, us(&[20, 20, 20, 20, 20, 20, 24, 60])),
            (2, us(&[15; 7])),
        ]);
        let (together, of_each) = StepStatistics::from_ranks(&ranks);
        let limits = of_each.values().map(|times| times.outlier_ns);
        assert_eq!(
            limits.collect::<Vec<_>>(),
            [Some(12_000.0), Some(24_000.0), Some(18_000.0)]
        );
        assert_eq!(together.outlier_ns, Some(12_000.0));
        // The last quarter of rank 1 has a median of 42 us: 110 % more.
        let trend = together.trend.unwrap_or_default();
        assert!((trend - f64::midpoint(0.2, 1.1)).abs() < 1e-12, "{trend}");
        assert_eq!(together.count, 23);
    }

    #[test]
    fn no_steps_give_no_statistics() {
        assert_eq!(
            StepStatistics::from_durations(&[]),
            StepStatistics::default()
        );
        assert_eq!(
            StepStatistics::from_ranks::<usize>(&BTreeMap::new()).0,
            StepStatistics::default()
        );
        assert_eq!(percentile(&[], 0.5), None);
    }
}
