//! Change points in a series of runs: E-divisive means.
//!
//! For a split of a series into `x_1..x_n` and `y_1..y_m`:
//!
//! ```text
//! q = (m n / (m + n)) * (2 / (m n) sum |x_i - y_j|
//!                        - 2 / (n (n - 1)) sum over i < k of |x_i - x_k| - 2 / (m (m - 1)) sum over j < k of |y_j - y_k|)
//! p = (number of shuffles whose largest q is as large + 1) / (shuffles + 1)
//! ```
//!
//! The split with the largest `q` is a change point when `p` is at most 5 %; both parts are then searched alone.
//! Changes below the tolerance are dropped. The shuffles start from the content of the series: the same series gives
//! the same points. Cost: quadratic in the length of the series, of which the newest [`MOST`] values are read.

use std::ops::Range;

use crate::statistics::{Random, median};

/// Most values of a series that are read.
pub const MOST: usize = 500;
/// Fewest values of a series with change points; shorter ones are compared with the median of the others.
pub const FEWEST: usize = 8;
/// Fewest values on each side of a split.
const SIDE: usize = 2;
const SHUFFLES: usize = 99;
const LIMIT: f64 = 0.05;

/// A value from which a series has another level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub index: usize,
    /// Median of the level before.
    pub before: f64,
    /// Median of the level from here on.
    pub after: f64,
    /// Probability that the order of the values alone makes such a split.
    pub p: f64,
}

/// Finds the change points of a series, in order. Empty for fewer than [`FEWEST`] values.
pub fn change_points(values: &[f64], tolerance: f64) -> Vec<ChangePoint> {
    let skipped = values.len().saturating_sub(MOST);
    let values = &values[skipped..];
    if values.len() < FEWEST || values.iter().any(|value| !value.is_finite()) {
        return Vec::new();
    }
    let mut cuts: Vec<(usize, f64)> = Vec::new();
    let mut open = vec![Range {
        start: 0,
        end: values.len(),
    }];
    while let Some(range) = open.pop() {
        let part = &values[range.clone()];
        let Some((at, q)) = best_split(part) else {
            continue;
        };
        let mut random = Random::from_samples(part, &[]);
        let mut shuffled = part.to_vec();
        let mut as_large = 1;
        for _ in 0..SHUFFLES {
            for index in (1..shuffled.len()).rev() {
                shuffled.swap(index, random.below(index + 1));
            }
            as_large += usize::from(best_split(&shuffled).is_some_and(|(_, other)| other >= q));
        }
        let p = as_large as f64 / (SHUFFLES + 1) as f64;
        if p <= LIMIT {
            cuts.push((range.start + at, p));
            open.push(range.start..range.start + at);
            open.push(range.start + at..range.end);
        }
    }
    cuts.sort_by_key(|(index, _)| *index);
    levels(values, cuts, tolerance, skipped)
}

/// Computes the levels beside each cut, and drops the smallest change below the tolerance until none is left.
fn levels(
    values: &[f64],
    mut cuts: Vec<(usize, f64)>,
    tolerance: f64,
    skipped: usize,
) -> Vec<ChangePoint> {
    loop {
        let ends = cuts.iter().map(|(index, _)| *index).chain([values.len()]);
        let starts = [0].into_iter().chain(cuts.iter().map(|(index, _)| *index));
        let medians: Vec<f64> = starts
            .zip(ends)
            .map(|(start, end)| median(&values[start..end]).unwrap_or_default())
            .collect();
        let change = |position: usize| {
            let (before, after) = (medians[position], medians[position + 1]);
            let size = (before.abs()).min(after.abs());
            if size > 0.0 {
                (after - before).abs() / size
            } else {
                f64::INFINITY
            }
        };
        let smallest = (0..cuts.len()).min_by(|a, b| change(*a).total_cmp(&change(*b)));
        if let Some(position) = smallest.filter(|position| change(*position) < tolerance) {
            cuts.remove(position);
            continue;
        }
        let points = cuts
            .iter()
            .enumerate()
            .map(|(position, (index, p))| ChangePoint {
                index: index + skipped,
                before: medians[position],
                after: medians[position + 1],
                p: *p,
            });
        return points.collect();
    }
}

/// Returns the split with the largest `q`, and that `q`.
fn best_split(values: &[f64]) -> Option<(usize, f64)> {
    let count = values.len();
    if count < 2 * SIDE {
        return None;
    }
    let distances = |of: usize, range: std::ops::Range<usize>| -> f64 {
        values[range]
            .iter()
            .map(|value| (value - values[of]).abs())
            .sum()
    };
    // Sums of distances between the sides, within the left one and within the right one.
    let mut between = 0.0;
    let mut left = 0.0;
    let mut right: f64 = (0..count)
        .map(|index| distances(index, index + 1..count))
        .sum();
    let mut best: Option<(usize, f64)> = None;
    for at in 0..count - SIDE {
        let (to_left, to_right) = (distances(at, 0..at), distances(at, at + 1..count));
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        let (n, m) = ((at + 1) as f64, (count - at - 1) as f64);
        if at + 1 < SIDE {
            continue;
        }
        let q = n * m / (n + m)
            * (2.0 / (n * m) * between
                - 2.0 / (n * (n - 1.0)) * left
                - 2.0 / (m * (m - 1.0)) * right);
        if best.is_none_or(|(_, most)| q > most) {
            best = Some((at + 1, q));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(levels: &[(usize, f64)]) -> Vec<f64> {
        let mut random = Random::from_samples(&[1.0], &[]);
        levels
            .iter()
            .flat_map(|(count, level)| std::iter::repeat_n(*level, *count))
            .map(|level| level * (1.0 + 0.002 * (random.below(11) as f64 - 5.0)))
            .collect()
    }

    #[test]
    fn a_new_level_is_a_change_point() {
        let values = series(&[(12, 100.0), (10, 110.0), (9, 104.0)]);
        let found = change_points(&values, 0.01);
        let indexes: Vec<usize> = found.iter().map(|point| point.index).collect();
        assert_eq!(indexes, [12, 22], "{found:?}");
        assert!((found[0].before - 100.0).abs() < 1.0 && (found[0].after - 110.0).abs() < 1.0);
        assert_eq!(change_points(&values, 0.01), found, "no chance");
    }

    #[test]
    fn scatter_and_changes_below_the_tolerance_are_none() {
        assert_eq!(change_points(&series(&[(40, 100.0)]), 0.01), []);
        assert_eq!(
            change_points(&series(&[(20, 100.0), (20, 101.5)]), 0.05),
            []
        );
        assert_eq!(change_points(&[1.0; 7], 0.01), [], "too short");
        assert_eq!(change_points(&[0.0; 20], 0.01), []);
        assert_eq!(change_points(&[f64::NAN; 20], 0.01), []);
    }

    #[test]
    fn long_series_are_read_from_their_end() {
        let mut values = series(&[(600, 50.0)]);
        values.extend(series(&[(20, 100.0)]));
        let found = change_points(&values, 0.01);
        assert_eq!(
            found.first().map(|point| point.index),
            Some(600),
            "{found:?}"
        );
    }
}
