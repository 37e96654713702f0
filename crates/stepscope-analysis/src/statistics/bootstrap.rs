//! Bootstraps: the samples are drawn again, in blocks of neighbours, and the estimate is computed for each draw.

use super::{
    FEWEST_STEPS, RatioEstimate, autocorrelation, detectable_difference, floor_index, interpolate,
    logarithms,
};

/// Draws that a bootstrap makes at most, over all resamples.
const MOST_DRAWS: usize = 4_000_000;
/// Resamples of a bootstrap, where [`MOST_DRAWS`] allows them.
const RESAMPLES: usize = 10_000;
/// Fewest resamples: below them percentiles of the resamples mean nothing.
const FEWEST_RESAMPLES: usize = 400;

/// Compares a quantile (0 to 1) of two samples: percentile interval of a moving-block bootstrap, with a generator that
/// starts from the content of both samples. `None` when a side is empty or has a value that is not positive.
pub fn compare_quantiles(
    base: &[f64],
    new: &[f64],
    quantile: f64,
    confidence: f64,
) -> Option<RatioEstimate> {
    logarithms(base)?;
    logarithms(new)?;
    let [mut from, mut to] = [base, new].map(|side| Resampled::new(side, quantile));
    let ratio = interpolate(&to.sorted, quantile) / interpolate(&from.sorted, quantile);
    let draws = base.len().saturating_add(new.len());
    let resamples = (MOST_DRAWS / draws.max(1)).clamp(FEWEST_RESAMPLES, RESAMPLES);
    let mut random = Random::from_samples(base, new);
    let mut ratios: Vec<f64> = (0..resamples)
        .map(|_| {
            let base = from.draw(&mut random);
            to.draw(&mut random) / base
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let alpha = 1.0 - confidence.clamp(0.5, 0.9999);
    let interval = (
        interpolate(&ratios, alpha / 2.0),
        interpolate(&ratios, 1.0 - alpha / 2.0),
    );
    Some(RatioEstimate {
        ratio,
        interval: Some(interval),
        level: 1.0 - alpha,
        p: None,
        detectable_share: Some(
            detectable_difference((interval.0.ln(), interval.1.ln()), 1.0 - alpha, confidence)
                .exp_m1(),
        ),
    })
}

/// Returns the percentile interval of the mean of samples in the order of time: a moving-block bootstrap, with a
/// generator that starts from their content. `None` with fewer than [`FEWEST_STEPS`], or a value that is not finite.
pub fn interval_of_mean(samples: &[f64], confidence: f64) -> Option<(f64, f64)> {
    if samples.len() < FEWEST_STEPS || samples.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let resamples = (MOST_DRAWS / samples.len()).clamp(FEWEST_RESAMPLES, RESAMPLES);
    let mut random = Random::from_samples(samples, &[]);
    let block = block_length(samples);
    let mut means: Vec<f64> = (0..resamples)
        .map(|_| {
            let mut sum = 0.0;
            random.draw_blocks(samples.len(), block, |at| sum += samples[at]);
            sum / samples.len() as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let outside = (1.0 - confidence.clamp(0.5, 0.9999)) / 2.0;
    Some((
        interpolate(&means, outside),
        interpolate(&means, 1.0 - outside),
    ))
}

/// Samples that are drawn again for a quantile. Their order is known, so no draw is sorted.
struct Resampled {
    sorted: Vec<f64>,
    /// Position of each sample in `sorted`.
    ranks: Vec<usize>,
    /// Length of the blocks.
    block: usize,
    /// How often each of `sorted` is in the draw.
    counts: Vec<u32>,
    /// Position of the quantile in a sorted draw, and the share of the next value in it.
    at: usize,
    share: f64,
}

impl Resampled {
    /// Takes samples, at least one.
    fn new(samples: &[f64], quantile: f64) -> Self {
        let mut order: Vec<usize> = (0..samples.len()).collect();
        order.sort_unstable_by(|a, b| samples[*a].total_cmp(&samples[*b]));
        let mut ranks = vec![0; samples.len()];
        for (rank, sample) in order.iter().enumerate() {
            ranks[*sample] = rank;
        }
        let last = samples.len().saturating_sub(1);
        let position = quantile.clamp(0.0, 1.0) * last as f64;
        let at = floor_index(position, last);
        Self {
            sorted: order.into_iter().map(|sample| samples[sample]).collect(),
            counts: vec![0; ranks.len()],
            ranks,
            block: block_length(samples),
            at,
            share: position - at as f64,
        }
    }

    /// Draws the samples again, and returns the quantile of the draw.
    fn draw(&mut self, random: &mut Random) -> f64 {
        let (counts, ranks) = (&mut self.counts, &self.ranks);
        counts.fill(0);
        random.draw_blocks(ranks.len(), self.block, |sample| {
            counts[ranks[sample]] += 1;
        });
        let mut left = self.at;
        let mut drawn = self
            .sorted
            .iter()
            .zip(&self.counts)
            .filter_map(|(value, count)| {
                let count = *count as usize;
                (count > 0).then_some((*value, count))
            });
        while let Some((low, count)) = drawn.next() {
            if left >= count {
                left -= count;
                continue;
            }
            let next = if left + 1 < count {
                Some(low)
            } else {
                drawn.next().map(|(high, _)| high)
            };
            return low + (next.unwrap_or(low) - low) * self.share;
        }
        f64::NAN
    }
}

/// Returns the length of the blocks of a bootstrap: the cube root of the number of samples, twice that when
/// neighbours are strongly correlated.
fn block_length(samples: &[f64]) -> usize {
    let length = floor_index((samples.len() as f64).cbrt().round(), samples.len()).max(1);
    if autocorrelation(samples) > 0.5 {
        (2 * length).min(samples.len().max(1))
    } else {
        length
    }
}

/// A generator of pseudo-random numbers (SplitMix64): the same samples give the same result.
pub(crate) struct Random(pub(super) u64);

impl Random {
    /// Starts from the content of two samples.
    pub(crate) fn from_samples(base: &[f64], new: &[f64]) -> Self {
        let mut random = Self(0x5EED);
        for value in base.iter().chain(new) {
            random.0 ^= value.to_bits();
            random.next();
        }
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns an index below `count`, which is at least one.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let wide = u128::from(self.next()) * count as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// Visits as many indexes of samples as there are, in blocks of neighbours.
    fn draw_blocks(&mut self, samples: usize, length: usize, mut draw: impl FnMut(usize)) {
        let mut left = samples;
        while left > 0 {
            let start = self.below(samples - length + 1);
            let drawn = length.min(left);
            (start..start + drawn).for_each(&mut draw);
            left -= drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_draw_has_the_quantile_of_the_drawn_samples(
            samples in prop::collection::vec(0..20_i32, 1..40),
            quantile in 0.0..1.0_f64,
            seed in any::<u64>(),
        ) {
            let samples: Vec<f64> = samples.into_iter().map(f64::from).collect();
            let mut resampled = Resampled::new(&samples, quantile);
            let mut random = Random(seed);
            let mut drawn = Vec::new();
            random.draw_blocks(samples.len(), resampled.block, |at| drawn.push(samples[at]));
            prop_assert_eq!(drawn.len(), samples.len());
            drawn.sort_unstable_by(f64::total_cmp);
            let found = resampled.draw(&mut Random(seed));
            prop_assert_eq!(found.to_bits(), interpolate(&drawn, quantile).to_bits());
        }
    }
}
