//! Distribution of the durations of slices of one name, and the rank of one slice in it.
//!
//! Cost: one pass over the names of the tracks, on all cores; 8 bytes of memory per match.

use std::ops::Range;

use stepscope_model::{Cancelled, Dur, Time, TrackId};
use stepscope_store::Trace;

use crate::names::NameSet;
use crate::parallel::{self, Cancel};

/// Spacing of the bins of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal widths.
    Linear,
    /// Equal ratios; bins start at 1 ps or above.
    Log,
}

/// The durations of some slices, sorted.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    sorted_ps: Vec<i64>,
}

/// Collects the durations of the slices with these names that start in the window.
pub fn durations(
    trace: &Trace,
    names: &NameSet,
    tracks: &[TrackId],
    window: &Range<Time>,
    cancel: &Cancel,
) -> Result<Durations, Cancelled> {
    if names.is_empty() {
        return Ok(Durations::default());
    }
    let chunks = parallel::track_chunks(tracks.iter().map(|&track| {
        let start = trace.slices(track).start;
        let first = start.partition_point(|&at| at < window.start);
        let end = start.partition_point(|&at| at < window.end);
        (track, first..end.max(first))
    }));
    let parts = parallel::scan(&chunks, cancel, Vec::new, |found: &mut Vec<i64>, chunk| {
        let slices = trace.slices(chunk.track);
        for index in chunk.indexes.clone() {
            if names.contains(slices.name[index]) {
                found.push(slices.dur[index].ps());
            }
        }
    })?;
    let mut sorted_ps = parts.concat();
    cancel.check()?;
    sorted_ps.sort_unstable();
    Ok(Durations { sorted_ps })
}

impl FromIterator<Dur> for Durations {
    fn from_iter<I: IntoIterator<Item = Dur>>(durations: I) -> Self {
        let mut sorted_ps: Vec<i64> = durations.into_iter().map(Dur::ps).collect();
        sorted_ps.sort_unstable();
        Self { sorted_ps }
    }
}

impl Durations {
    /// Returns the number of slices.
    pub fn count(&self) -> usize {
        self.sorted_ps.len()
    }

    /// Returns the exact sum, picoseconds.
    pub fn total_ps(&self) -> i128 {
        self.sorted_ps.iter().map(|&ps| i128::from(ps)).sum()
    }

    /// Returns the smallest duration that at least `share` (0 to 1) of the slices do not exceed (nearest rank);
    /// `None` without slices.
    pub fn quantile(&self, share: f64) -> Option<Dur> {
        let count = self.sorted_ps.len();
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a share of a length fits the length"
        )]
        let rank = (share.clamp(0.0, 1.0) * count as f64).ceil() as usize;
        self.sorted_ps
            .get(rank.saturating_sub(1).min(count.saturating_sub(1)))
            .copied()
            .map(Dur::from_ps)
    }

    /// Returns the number of slices shorter than `dur`.
    pub fn shorter_than(&self, dur: Dur) -> usize {
        self.sorted_ps.partition_point(|&ps| ps < dur.ps())
    }

    /// Returns the number of slices longer than `dur`.
    pub fn longer_than(&self, dur: Dur) -> usize {
        self.count() - self.sorted_ps.partition_point(|&ps| ps <= dur.ps())
    }

    /// Computes bins from the shortest to the longest, or over `range` where that is wider; empty without slices.
    ///
    /// Histograms of several runs have the same edges if each gets the range of all.
    pub fn histogram(&self, scale: Scale, bins: usize, range: [Option<Dur>; 2]) -> Histogram {
        let (Some(&shortest), Some(&longest)) = (self.sorted_ps.first(), self.sorted_ps.last())
        else {
            return Histogram::default();
        };
        let [low, high] = range.map(|end| end.map(Dur::ps));
        let least = low.map_or(shortest, |low| low.min(shortest));
        let most = high.map_or(longest, |high| high.max(longest));
        let edges = edges(least, most, scale, bins.max(1));
        let mut counts = Vec::with_capacity(edges.len());
        let mut totals_ps = Vec::with_capacity(edges.len());
        let mut from = 0;
        for (index, edge) in edges.iter().enumerate().skip(1) {
            let to = if index + 1 == edges.len() {
                self.sorted_ps.len()
            } else {
                self.sorted_ps.partition_point(|&ps| ps < *edge)
            };
            let bin = &self.sorted_ps[from..to.max(from)];
            counts.push(bin.len() as u64);
            totals_ps.push(bin.iter().map(|&ps| i128::from(ps)).sum());
            from = to.max(from);
        }
        Histogram {
            edges: edges.into_iter().map(Dur::from_ps).collect(),
            counts,
            totals_ps,
        }
    }
}

/// Counted bins: `edges` has one more entry than the others; the last bin includes its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Bounds of the bins, ascending.
    pub edges: Vec<Dur>,
    /// Number of slices in each bin.
    pub counts: Vec<u64>,
    /// Sum of the durations of each bin, picoseconds.
    pub totals_ps: Vec<i128>,
}

/// Computes bounds in whole picoseconds, strictly ascending, the first at `least` and the last at `most` or
/// above.
#[allow(
    clippy::cast_possible_truncation,
    reason = "edges between two i64 fit an i64; float rounding only moves a bin's bound"
)]
fn edges(least: i64, most: i64, scale: Scale, bins: usize) -> Vec<i64> {
    let mut edges = Vec::with_capacity(bins + 1);
    edges.push(least);
    let mut push = |edge: i64| {
        if edges.last().is_some_and(|&last| edge > last) {
            edges.push(edge);
        }
    };
    for bin in 1..bins {
        let share = bin as f64 / bins as f64;
        push(match scale {
            Scale::Linear => {
                least.saturating_add((share * most.saturating_sub(least) as f64) as i64)
            }
            Scale::Log => {
                let low = least.max(1) as f64;
                (low * (most.max(1) as f64 / low).powf(share)) as i64
            }
        });
    }
    push(most.max(least.saturating_add(1)));
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations_of(ps: &[i64]) -> Durations {
        let mut sorted_ps = ps.to_vec();
        sorted_ps.sort_unstable();
        Durations { sorted_ps }
    }

    #[test]
    fn bins_hold_every_slice_once_and_sum_exactly() {
        for ps in [
            &[5][..],
            &[0, 0, 1, 1_000, 1_000_000, i64::MAX],
            &[10, 20, 30, 40, 50, 60],
            &[7, 7, 7],
        ] {
            for scale in [Scale::Linear, Scale::Log] {
                for bins in [1, 2, 7, 40] {
                    let all = durations_of(ps);
                    let histogram = all.histogram(scale, bins, [None, None]);
                    assert_eq!(histogram.counts.iter().sum::<u64>(), ps.len() as u64);
                    assert_eq!(histogram.totals_ps.iter().sum::<i128>(), all.total_ps());
                    assert_eq!(histogram.edges.len(), histogram.counts.len() + 1);
                    assert!(histogram.counts.len() <= bins);
                    assert!(histogram.edges.windows(2).all(|pair| pair[0] < pair[1]));
                }
            }
        }
        assert_eq!(
            durations_of(&[]).histogram(Scale::Log, 3, [None, None]),
            Histogram::default()
        );
    }

    #[test]
    fn runs_have_equal_edges_in_the_range_of_all() {
        for scale in [Scale::Linear, Scale::Log] {
            let range = [10, 90].map(|ps| Some(Dur::from_ps(ps)));
            let short = durations_of(&[10, 20, 30]).histogram(scale, 4, range);
            let long = durations_of(&[40, 90]).histogram(scale, 4, range);
            assert_eq!(short.edges, long.edges);
            assert_eq!(short.counts.iter().sum::<u64>(), 3);
            // What lies outside is not cut off.
            let longer = durations_of(&[5, 100]).histogram(scale, 4, range);
            assert_eq!(longer.counts.iter().sum::<u64>(), 2);
        }
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let all = durations_of(&[10, 20, 30, 40]);
        for (share, expected) in [(0.0, 10), (0.25, 10), (0.5, 20), (0.9, 40), (1.0, 40)] {
            assert_eq!(all.quantile(share), Some(Dur::from_ps(expected)), "{share}");
        }
        assert_eq!(durations_of(&[]).quantile(0.5), None);
        assert_eq!(all.shorter_than(Dur::from_ps(20)), 1);
        assert_eq!(all.longer_than(Dur::from_ps(20)), 2);
    }
}
