//! Figures of a row of lengths: means, percentiles, outliers, trend.

use stepscope_model::Dur;

/// Times of a set of steps. `None` where there is no step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// How many steps the figures are made of.
    pub count: u64,
    /// Sum of their lengths over their number, nanoseconds.
    pub mean_ns: Option<f64>,
    /// See [`percentile`].
    pub p50_ns: Option<f64>,
    /// See [`percentile`].
    pub p90_ns: Option<f64>,
    /// See [`percentile`].
    pub p99_ns: Option<f64>,
    /// Shortest.
    pub min_ns: Option<f64>,
    /// Longest.
    pub max_ns: Option<f64>,
    /// Square root of the mean squared distance from the mean.
    pub deviation_ns: Option<f64>,
    /// From here on a step is an outlier; see [`outlier_limit`].
    pub outlier_ns: Option<f64>,
    /// See [`trend`].
    pub trend: Option<f64>,
}

impl StepTimes {
    /// The figures of these lengths, in the order in which the steps began.
    pub fn of(lengths: &[Dur]) -> Self {
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable();
        let total_ps: i128 = sorted.iter().map(|dur| i128::from(dur.ps())).sum();
        let count = sorted.len() as u64;
        let mean_ns = (count > 0).then(|| total_ps as f64 / 1_000.0 / count as f64);
        let deviation_ns = mean_ns.map(|mean| {
            let squares = sorted.iter().map(|dur| (dur.as_ns_f64() - mean).powi(2));
            (squares.sum::<f64>() / count as f64).sqrt()
        });
        Self {
            count,
            mean_ns,
            p50_ns: percentile(&sorted, 0.5),
            p90_ns: percentile(&sorted, 0.9),
            p99_ns: percentile(&sorted, 0.99),
            min_ns: percentile(&sorted, 0.0),
            max_ns: percentile(&sorted, 1.0),
            deviation_ns,
            outlier_ns: outlier_limit(&sorted),
            trend: trend(lengths),
        }
    }
}

/// The value below which a share `p` (0 to 1) of the sorted values lies: linear interpolation
/// between the two values around position `p * (n - 1)`, as `numpy.percentile` does by default.
/// `None` of no values.
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

/// A step at least this long is an outlier: `max(1.2 p50, p50 + 3 * 1.4826 * MAD)`, where MAD is the
/// median distance from the median (1.4826 MAD is the standard deviation of a normal
/// distribution). `None` below five steps.
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
    let middle = distances.len() / 2;
    let mad = if distances.len() % 2 == 1 {
        distances[middle]
    } else {
        f64::midpoint(distances[middle - 1], distances[middle])
    };
    Some((median * 1.2).max(median + 3.0 * 1.4826 * mad))
}

/// How much longer the steps became: `(p50 of the last quarter - p50 of the first quarter) / p50`, the
/// quarters by order of their begin. `None` below eight steps.
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
    let all = median(lengths)?;
    (all > 0.0).then(|| (last - first) / all)
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
        let times = StepTimes::of(&us(&[30, 10, 11, 10, 10, 9, 10]));
        assert_eq!(times.outlier_ns, Some(12_000.0));
        assert_eq!(StepTimes::of(&us(&[1, 2, 3, 4])).outlier_ns, None);
        // Evenly spread lengths have none.
        let spread = StepTimes::of(&us(&[10, 12, 14, 16, 18, 20]));
        assert!(spread.outlier_ns > spread.max_ns);
    }

    #[test]
    fn a_trend_compares_the_last_quarter_with_the_first() {
        assert_eq!(trend(&us(&[10, 10, 10, 10, 10, 10, 12, 12])), Some(0.2));
        assert_eq!(trend(&us(&[10; 7])), None);
        assert_eq!(trend(&us(&[0; 9])), None);
    }

    #[test]
    fn of_nothing_there_are_no_figures() {
        assert_eq!(StepTimes::of(&[]), StepTimes::default());
        assert_eq!(percentile(&[], 0.5), None);
    }
}
