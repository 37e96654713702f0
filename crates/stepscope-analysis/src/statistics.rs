//! Statistics of samples: ratio of two samples with an interval, tests, corrections for many tests, interval of a mean.
//!
//! With `a_i` the samples of the base and `b_j` those of the new side, all positive, and `d_ij = ln(b_j / a_i)`:
//!
//! ```text
//! ratio    = exp(median over all pairs of d_ij)                              Hodges-Lehmann
//! interval = exp of the k-th smallest and the k-th largest d_ij, k the largest with 2 P(U < k) <= 1 - confidence
//! level    = 1 - 2 P(U < k)                                                  coverage of the interval
//! p        = Mann-Whitney U, two-sided: exact up to 20 samples a side without ties, else the normal approximation
//!            with corrections for ties and continuity
//! ```
//!
//! Steps follow each other and are correlated. With the lag-1 autocorrelation `r` of a side (at least 0), its
//! effective number of samples is `n (1 - r) / (1 + r)`, at least 4. The interval is widened around the ratio by the
//! square root of the growth of the variance that follows, and the test statistic is divided by it.
//!
//! Samples of which some are zero have no ratio: their difference is estimated in the same way, without logarithms.
//!
//! Cost: `n log n`. Pairs are never listed: a rank among their differences is found by bisection, and the pairs below
//! a limit are counted in one pass over both sorted sides.

mod bootstrap;
mod distributions;

pub(crate) use bootstrap::Random;
pub use bootstrap::{compare_quantiles, interval_of_mean};
use distributions::{
    normal_cdf, normal_quantile, student_quantile, student_two_sided, u_distribution,
};

/// Fewest steps of a side for a verdict.
pub const FEWEST_STEPS: usize = 5;
/// Fewest runs of both sides from which the run is the sample.
pub const FEWEST_RUNS: usize = 3;
/// Largest number of samples a side for which the distribution of U is computed exactly.
const EXACT: usize = 20;
/// Smallest effective number of samples that autocorrelation leaves.
const FEWEST_EFFECTIVE: f64 = 4.0;
/// Power with which the smallest detectable effect is found: 80 %.
const POWER: f64 = 0.8;
/// Ratio of two samples, new over base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioEstimate {
    /// The estimate.
    pub ratio: f64,
    /// Lower and upper end of the interval; `None` where too few samples exist for the confidence.
    pub interval: Option<(f64, f64)>,
    /// Coverage of the interval, 0 to 1; 0 without one.
    pub level: f64,
    /// Two-sided p of the test for equality; `None` where the estimate has no test.
    pub p: Option<f64>,
    /// Relative change that these samples would show with a power of 80 %; `None` without an interval.
    pub detectable_share: Option<f64>,
}

/// What a comparison of two samples shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The whole interval lies above the tolerance.
    Regressed,
    /// The whole interval lies below the tolerance.
    Improved,
    /// The whole interval lies within the tolerance: equality is shown.
    Same,
    /// The interval is too wide for any of the others.
    NoDifferenceShown,
}

impl Verdict {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Regressed => "regressed",
            Self::Improved => "improved",
            Self::Same => "same",
            Self::NoDifferenceShown => "no difference shown",
        }
    }

    /// Judges an interval of a ratio by a tolerance (0.01: one per cent).
    pub fn from_interval((low, high): (f64, f64), tolerance: f64) -> Self {
        let most = 1.0 + tolerance.max(0.0);
        if low > most {
            Self::Regressed
        } else if high < 1.0 / most {
            Self::Improved
        } else if low >= 1.0 / most && high <= most {
            Self::Same
        } else {
            Self::NoDifferenceShown
        }
    }

    /// Judges an interval of a difference by the largest change that counts as none, in the same unit.
    pub fn from_shift((low, high): (f64, f64), most: f64) -> Self {
        if low > most {
            Self::Regressed
        } else if high < -most {
            Self::Improved
        } else if low >= -most && high <= most {
            Self::Same
        } else {
            Self::NoDifferenceShown
        }
    }
}

/// Difference of two samples, new minus base, in their own unit: for samples that may be zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShiftEstimate {
    /// The estimate.
    pub shift: f64,
    /// Lower and upper end of the interval; `None` where too few samples exist for the confidence.
    pub interval: Option<(f64, f64)>,
    /// Coverage of the interval, 0 to 1; 0 without one.
    pub level: f64,
    /// Two-sided p of the test for equality.
    pub p: Option<f64>,
}

impl ShiftEstimate {
    /// Returns the ratio of which this is the difference of logarithms. `shown` is the difference of logarithms that
    /// the samples would show.
    fn into_ratio(self, shown: Option<f64>) -> RatioEstimate {
        RatioEstimate {
            ratio: self.shift.exp(),
            interval: self.interval.map(|(low, high)| (low.exp(), high.exp())),
            level: self.level,
            p: self.p,
            detectable_share: shown.map(f64::exp_m1),
        }
    }
}

/// Compares two samples; `None` when a side is empty or has a value that is not positive and finite. The samples are
/// in the order of time.
pub fn compare_samples(base: &[f64], new: &[f64], confidence: f64) -> Option<RatioEstimate> {
    let widening = widening(base, new);
    let found = hodges_lehmann(logarithms(base)?, logarithms(new)?, confidence, widening);
    let shown = found.interval;
    let shown = shown.map(|interval| detectable_difference(interval, found.level, confidence));
    // Ranks are the same with and without logarithms.
    let p = mann_whitney(base, new, widening);
    Some(ShiftEstimate { p, ..found }.into_ratio(shown))
}

/// Returns the difference of two samples of which some may be zero: the median over all pairs of `b_j - a_i`. `None`
/// when a side is empty or has a value that is not finite.
pub fn shift_of_samples(base: &[f64], new: &[f64], confidence: f64) -> Option<ShiftEstimate> {
    let is_good = |side: &[f64]| !side.is_empty() && side.iter().all(|value| value.is_finite());
    if !is_good(base) || !is_good(new) {
        return None;
    }
    let widening = growth(base, new, |_mean, variance| variance);
    let found = hodges_lehmann(base.to_vec(), new.to_vec(), confidence, widening);
    let p = mann_whitney(base, new, widening);
    Some(ShiftEstimate { p, ..found })
}

/// Estimates the difference of two samples, without a test.
fn hodges_lehmann(base: Vec<f64>, new: Vec<f64>, confidence: f64, widening: f64) -> ShiftEstimate {
    let alpha = 1.0 - confidence.clamp(0.5, 0.9999);
    let (rank, level) = interval_rank(base.len(), new.len(), alpha);
    let pairs = PairDifferences::new(base, new);
    let shift = pairs.median();
    let interval = (rank > 0).then(|| {
        let low = pairs.kth(rank);
        let high = pairs.kth(pairs.count().saturating_sub(rank).saturating_add(1));
        (
            shift - (shift - low) * widening,
            shift + (high - shift) * widening,
        )
    });
    ShiftEstimate {
        shift,
        interval,
        level: if interval.is_some() { level } else { 0.0 },
        p: None,
    }
}

/// Compares the medians of several runs on each side by a t interval of their logarithms. A run is one sample,
/// whatever its number of steps. `None` where [`shift_of_runs`] has none, or with a value that is not positive.
pub fn compare_runs(base: &[f64], new: &[f64], confidence: f64) -> Option<RatioEstimate> {
    let (found, shown) = t_interval(&logarithms(base)?, &logarithms(new)?, confidence)?;
    Some(found.into_ratio(Some(shown)))
}

/// Returns the difference of the medians of several runs on each side, of which some may be zero.
///
/// Welch's t interval. A side of a single run has no variance of its own: it is taken to have that of the other side,
/// which then needs [`FEWEST_RUNS`]. `None` with fewer runs.
pub fn shift_of_runs(base: &[f64], new: &[f64], confidence: f64) -> Option<ShiftEstimate> {
    Some(t_interval(base, new, confidence)?.0)
}

/// Returns the difference of two means, and the difference that these samples would show.
fn t_interval(base: &[f64], new: &[f64], confidence: f64) -> Option<(ShiftEstimate, f64)> {
    let counts = [base.len(), new.len()].map(|count| count as f64);
    let (fewer, more) = (base.len().min(new.len()), base.len().max(new.len()));
    if fewer == 0 || (fewer == 1 && more < FEWEST_RUNS) {
        return None;
    }
    let [(mean_base, variance_base), (mean_new, variance_new)] = [base, new].map(moments);
    let shift = mean_new - mean_base;
    let parts = if fewer == 1 {
        // A side of one run has no squares, so that the sum is the other side's.
        let pooled = variance_base + variance_new;
        counts.map(|count| pooled / count)
    } else {
        [variance_base / counts[0], variance_new / counts[1]]
    };
    let error = (parts[0] + parts[1]).sqrt();
    let freedom = if error > 0.0 && fewer > 1 {
        let side = |part: f64, count: f64| part.powi(2) / (count - 1.0);
        (parts[0] + parts[1]).powi(2) / (side(parts[0], counts[0]) + side(parts[1], counts[1]))
    } else {
        counts[0] + counts[1] - 2.0
    };
    let confidence = confidence.clamp(0.5, 0.9999);
    let quantile = student_quantile(f64::midpoint(1.0, confidence), freedom);
    let p = if error > 0.0 {
        student_two_sided(shift / error, freedom)
    } else if shift == 0.0 {
        1.0
    } else {
        0.0
    };
    let found = ShiftEstimate {
        shift,
        interval: Some((shift - quantile * error, shift + quantile * error)),
        level: confidence,
        p: Some(p),
    };
    Some((found, (quantile + student_quantile(POWER, freedom)) * error))
}

/// Computes the two-sided p of Mann and Whitney's U. `widening` (at least 1) divides the statistic, for samples that
/// are correlated. `None` when a side is empty.
pub fn mann_whitney(base: &[f64], new: &[f64], widening: f64) -> Option<f64> {
    let (n, m) = (base.len(), new.len());
    if n == 0 || m == 0 {
        return None;
    }
    let mut all: Vec<(f64, bool)> = base.iter().map(|value| (*value, true)).collect();
    all.extend(new.iter().map(|value| (*value, false)));
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties, mut seen) = (0.0, 0.0, 0.0);
    for group in all.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let size = group.len() as f64;
        let of_base = group.iter().filter(|(_, is_base)| *is_base).count() as f64;
        rank_sum += of_base * (seen + f64::midpoint(size, 1.0));
        ties += size.powi(3) - size;
        seen += size;
    }
    let (n_f, m_f) = (n as f64, m as f64);
    let u = rank_sum - n_f * (n_f + 1.0) / 2.0;
    let lower = u.min(n_f * m_f - u);
    if n <= EXACT && m <= EXACT && ties == 0.0 && widening <= 1.0 {
        let below: f64 = u_distribution(n, m)
            .iter()
            .zip(0_u32..)
            .filter(|(_, at)| f64::from(*at) <= lower)
            .map(|(share, _)| share)
            .sum();
        return Some((2.0 * below).min(1.0));
    }
    let all = n_f + m_f;
    let variance = n_f * m_f / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)).max(1.0));
    if variance <= 0.0 {
        return Some(1.0);
    }
    let distance = (n_f * m_f / 2.0 - lower - 0.5).max(0.0);
    let z = distance / variance.sqrt() / widening.max(1.0);
    Some((2.0 * normal_cdf(-z)).min(1.0))
}

/// Adjusts p values by Benjamini and Hochberg: the returned q of a test is the false discovery rate at which it is
/// accepted.
pub fn false_discovery_rates(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|a, b| ps[*b].total_cmp(&ps[*a]));
    let mut qs = vec![1.0; ps.len()];
    let mut least = 1.0_f64;
    for (position, index) in order.into_iter().enumerate() {
        let rank = (ps.len() - position) as f64;
        least = least.min(ps[index] * ps.len() as f64 / rank);
        qs[index] = least;
    }
    qs
}

/// Adjusts p values of a family of tests by Holm.
pub fn family_wise(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|a, b| ps[*a].total_cmp(&ps[*b]));
    let mut adjusted = vec![1.0; ps.len()];
    let mut most = 0.0_f64;
    for (position, index) in order.into_iter().enumerate() {
        most = most.max((ps[index] * (ps.len() - position) as f64).min(1.0));
        adjusted[index] = most;
    }
    adjusted
}

/// Returns the median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    (!values.is_empty()).then(|| quantile_of(&mut values, 0.5))
}

/// Returns the factor by which correlation widens an interval of the ratio, at least 1.
pub fn widening(base: &[f64], new: &[f64]) -> f64 {
    growth(base, new, |mean, variance| {
        if mean > 0.0 {
            variance / mean.powi(2)
        } else {
            variance
        }
    })
}

/// Returns the square root of the growth of the variance of a difference by correlation, at least 1. `scaled` gives
/// the variance that counts, from the mean and the variance of a side.
fn growth(base: &[f64], new: &[f64], scaled: impl Fn(f64, f64) -> f64) -> f64 {
    let sides = [base, new].map(|side| {
        let (mean, variance) = moments(side);
        let count = side.len() as f64;
        (
            scaled(mean, variance) / count.max(1.0),
            count / effective_count(side),
        )
    });
    let plain: f64 = sides.iter().map(|(variance, _)| variance).sum();
    let grown: f64 = sides
        .iter()
        .map(|(variance, factor)| variance * factor)
        .sum();
    if plain > 0.0 && grown.is_finite() {
        (grown / plain).sqrt().max(1.0)
    } else {
        1.0
    }
}

/// Returns the effective number of samples: `n (1 - r) / (1 + r)`, at least 4 and at most `n`.
fn effective_count(samples: &[f64]) -> f64 {
    let count = samples.len() as f64;
    let r = autocorrelation(samples).clamp(0.0, 0.99);
    (count * (1.0 - r) / (1.0 + r))
        .max(FEWEST_EFFECTIVE)
        .min(count.max(1.0))
}

/// Returns the lag-1 autocorrelation, corrected for its bias in short series (Kendall); 0 where it is undefined.
fn autocorrelation(samples: &[f64]) -> f64 {
    if samples.len() < 3 {
        return 0.0;
    }
    let (mean, variance) = moments(samples);
    let squares = variance * (samples.len() as f64 - 1.0);
    if squares <= 0.0 {
        return 0.0;
    }
    let products: f64 = samples
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    let r = products / squares;
    if r > 0.0 {
        r + (1.0 + 3.0 * r) / samples.len() as f64
    } else {
        r
    }
}

/// Returns the mean and the variance (divisor `n - 1`).
fn moments(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = samples.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}

fn logarithms(samples: &[f64]) -> Option<Vec<f64>> {
    let good = |value: &f64| value.is_finite() && *value > 0.0;
    let is_good = !samples.is_empty() && samples.iter().all(good);
    is_good.then(|| samples.iter().map(|value| value.ln()).collect())
}

/// Returns the smallest difference that an interval of this width would show.
fn detectable_difference((low, high): (f64, f64), level: f64, confidence: f64) -> f64 {
    let z = normal_quantile(f64::midpoint(1.0, level.clamp(0.5, 0.999_999)));
    let error = (high - low) / (2.0 * z);
    let shown =
        normal_quantile(f64::midpoint(1.0, confidence.clamp(0.5, 0.9999))) + normal_quantile(POWER);
    shown * error
}

/// Returns the largest `k` with `2 P(U < k) <= alpha`, and the coverage `1 - 2 P(U < k)` that follows.
fn interval_rank(n: usize, m: usize, alpha: f64) -> (u64, f64) {
    if n <= EXACT && m <= EXACT {
        let (mut below, mut rank) = (0.0, 0);
        for share in u_distribution(n, m) {
            if 2.0 * (below + share) > alpha {
                break;
            }
            below += share;
            rank += 1;
        }
        return (rank, 1.0 - 2.0 * below);
    }
    let (n, m) = (n as f64, m as f64);
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let rank = (n * m / 2.0 + 0.5 + normal_quantile(alpha / 2.0) * deviation).floor();
    if rank < 1.0 {
        return (0, 0.0);
    }
    let below = normal_cdf((rank - 0.5 - n * m / 2.0) / deviation);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between one and half the number of pairs"
    )]
    (rank as u64, 1.0 - 2.0 * below)
}

/// All differences `new_j - base_i`, without a list of them. Neither side is empty.
struct PairDifferences {
    base: Vec<f64>,
    new: Vec<f64>,
}

impl PairDifferences {
    fn new(mut base: Vec<f64>, mut new: Vec<f64>) -> Self {
        base.sort_unstable_by(f64::total_cmp);
        new.sort_unstable_by(f64::total_cmp);
        Self { base, new }
    }

    fn count(&self) -> u64 {
        (self.base.len() as u64).saturating_mul(self.new.len() as u64)
    }

    /// Returns the number of pairs with a difference of at most `limit`.
    fn at_most(&self, limit: f64) -> u64 {
        let mut first = 0;
        let mut count = 0_u64;
        for new in &self.new {
            // A larger base gives a smaller difference.
            while self.base.get(first).is_some_and(|base| new - base > limit) {
                first += 1;
            }
            count += (self.base.len() - first) as u64;
        }
        count
    }

    /// Returns the k-th smallest difference, counted from one: bisection over the order of the numbers themselves.
    fn kth(&self, k: u64) -> f64 {
        let (mut low, mut high) = (
            order(self.new[0] - self.base[self.base.len() - 1]),
            order(self.new[self.new.len() - 1] - self.base[0]),
        );
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at_most(from_order(middle)) >= k {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        from_order(low)
    }

    fn median(&self) -> f64 {
        let count = self.count();
        let above = self.kth(count / 2 + 1);
        if count % 2 == 1 {
            return above;
        }
        f64::midpoint(self.kth(count / 2), above)
    }
}

/// Maps numbers to integers in the same order.
fn order(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    }
}

/// Inverts [`order`].
fn from_order(order: u64) -> f64 {
    f64::from_bits(if order >> 63 == 1 {
        order & !(1 << 63)
    } else {
        !order
    })
}

/// Returns the quantile of values, which it reorders: linear interpolation, as
/// [`percentile`](crate::steps::percentile).
fn quantile_of(values: &mut [f64], quantile: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = quantile.clamp(0.0, 1.0) * last as f64;
    let at = floor_index(position, last);
    let (_, low, rest) = values.select_nth_unstable_by(at, f64::total_cmp);
    let low = *low;
    let high = rest.iter().copied().fold(f64::INFINITY, f64::min);
    let share = position - at as f64;
    if share > 0.0 && high.is_finite() {
        low + (high - low) * share
    } else {
        low
    }
}

/// Returns the quantile of sorted values.
pub(crate) fn interpolate(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = quantile.clamp(0.0, 1.0) * last as f64;
    let at = floor_index(position, last);
    let (low, high) = (sorted[at], sorted[(at + 1).min(last)]);
    low + (high - low) * (position - at as f64)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between zero and the index of the last value"
)]
fn floor_index(position: f64, last: usize) -> usize {
    (position.floor() as usize).min(last)
}

#[cfg(test)]
mod tests;
