//! Prediction: what a replay with the changes of a scenario gives.
//!
//! ```text
//! piece(k)  = from the start of step k to the start of step k + 1 on the window's thread; the last: to the window's end
//! saved(k)  = measured piece(k) - piece(k) in the replay                                  sum over k = saved in all
//! interval  = number of pieces * interval of the mean of saved(k), by a block bootstrap
//! ```

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId};

use super::CriticalPath;
use super::path::{PathKind, PathSegment};
use super::replay::{Times, replay, walk_replayed};
use super::spec::Scenario;
use super::what_if::ScenarioChanges;
use crate::parallel::Cancel;
use crate::statistics::{interval_of_mean, median};

/// Confidence of the interval of what a scenario saves.
pub const CONFIDENCE: f64 = 0.95;
/// Length of the last piece over the median one from which the steps run ahead of the device: their starts say when
/// work was launched, not when it was done.
const LONG_LAST_PIECE: f64 = 2.0;

/// Time on a path that is charged to one kind and one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathShare {
    /// Kind of the time.
    pub kind: PathKind,
    /// Name of the slices; `None` for lags and where nothing is recorded.
    pub name: Option<NameId>,
    /// Time, picoseconds.
    pub ps: i64,
}

/// A replay with the changes of a scenario.
pub struct ReplayedScenario<'a> {
    path: &'a CriticalPath<'a>,
    changes: ScenarioChanges<'a>,
    times: Times,
}

impl CriticalPath<'_> {
    /// Replays the window with the changes of a scenario.
    pub fn what_if(
        &self,
        scenario: &Scenario,
        cancel: &Cancel,
    ) -> Result<ReplayedScenario<'_>, Cancelled> {
        let changes = self.changes(scenario, cancel)?;
        cancel.check()?;
        Ok(ReplayedScenario {
            path: self,
            times: replay(&self.blocks.graph, &changes.changed),
            changes,
        })
    }
}

impl ReplayedScenario<'_> {
    /// Returns the new length of the window, picoseconds.
    pub fn window_ps(&self) -> i64 {
        let end = self.path.end_of_window(&self.times);
        end.saturating_sub(self.path.window.start)
    }

    /// Returns the number of segments that the scenario selects, without lags.
    pub const fn selected(&self) -> u64 {
        self.changes.selected
    }

    /// Returns the time on the measured path that the scenario selects, picoseconds: no more can be saved.
    pub fn on_path_ps(&self, cancel: &Cancel) -> Result<i64, Cancelled> {
        let changes = &self.changes;
        self.path
            .selected_on_path(&changes.lengths, &changes.lags_on_path, cancel)
    }

    /// Returns the interval of the saved time over steps, picoseconds. `None` with too few steps, and where their
    /// starts run ahead of the device.
    pub fn saved_interval(&self) -> Option<(f64, f64)> {
        let measured: Vec<i64> = self.path.steps.iter().map(|step| step.begin).collect();
        let replayed = self.replayed_times(&measured)?;
        let pieces = |starts: &[i64], end: i64| -> Vec<f64> {
            let ends = starts.iter().skip(1).copied().chain([end]);
            let pieces = starts
                .iter()
                .zip(ends)
                .map(|(start, end)| end.saturating_sub(*start));
            pieces.map(|ps| ps as f64).collect()
        };
        let before = pieces(&measured, self.path.window.end);
        let after = pieces(&replayed, self.path.end_of_window(&self.times));
        let (last, others) = before.split_last()?;
        if *last > LONG_LAST_PIECE * median(others)? {
            return None;
        }
        let saved: Vec<f64> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| before - after)
            .collect();
        let (low, high) = interval_of_mean(&saved, CONFIDENCE)?;
        let count = saved.len() as f64;
        Some((low * count, high * count))
    }

    /// Returns the new times of points on the thread of the steps; `None` without segments there, or where the points
    /// are not in order.
    fn replayed_times(&self, points: &[i64]) -> Option<Vec<i64>> {
        let (path, times) = (self.path, &self.times);
        let (graph, blocks) = (path.graph(), &path.blocks);
        let queue = path.thread_queue().filter(|_| points.is_sorted())?;
        let segments = queue.first as usize..queue.end as usize;
        let mut at = segments.start;
        // New start of the segment `at`.
        let mut begin = times.begin[blocks.block_of(at)];
        let moved = |point: &i64| {
            while at + 1 < segments.end && graph.end[at] <= *point {
                let next = blocks.block_of(at + 1);
                begin = if blocks.segments(next).start == at + 1 {
                    times.begin[next]
                } else {
                    begin
                        .saturating_add(self.length(next, at))
                        .saturating_add(self.lag_before(at + 1))
                };
                at += 1;
            }
            let offset = point.saturating_sub(graph.begin[at]);
            if offset <= 0 {
                return begin.saturating_add(offset);
            }
            let (own, new) = (graph.length(at), self.length(blocks.block_of(at), at));
            begin.saturating_add(if new == own { offset } else { offset.min(new) })
        };
        let mut found: Vec<i64> = points.iter().map(moved).collect();
        // The window begins where it began.
        if let Some(first) = found.first_mut() {
            *first = path.window.start;
        }
        Some(found)
    }

    /// Returns the new length of a segment in a block, picoseconds.
    fn length(&self, block: usize, segment: usize) -> i64 {
        self.path
            .changed_length(block, segment, &self.changes.lengths)
    }

    /// Returns the new lag between a segment in a block and the one before it, picoseconds.
    fn lag_before(&self, segment: usize) -> i64 {
        let graph = self.path.graph();
        let lag = graph.begin[segment].saturating_sub(graph.end[segment - 1]);
        let kind = graph.gap_kind(segment);
        self.changes.changed.lag_of(segment, kind, lag)
    }

    /// Returns the path of the replay by what its time is charged to, the largest first: what binds then. The times
    /// add up to the new length of the window.
    pub fn into_shares(mut self) -> Vec<PathShare> {
        let blocks = &self.path.blocks;
        let start = self.path.window.start;
        let end = self.path.end_of_window(&self.times).max(start);
        let last = blocks.block_of(self.path.last);
        let times = std::mem::take(&mut self.times);
        let changed = &self.changes.changed;
        let rows = walk_replayed(&blocks.graph, changed, times, last, &(start..end));
        let mut sums: FxHashMap<(PathKind, Option<NameId>), i64> = FxHashMap::default();
        for row in &rows {
            self.charge(row, |kind, segment, ps| {
                let name = kind.is_segment().then(|| self.path.name(segment)).flatten();
                let sum = sums.entry((kind, name)).or_insert(0);
                *sum = sum.saturating_add(ps);
            });
        }
        let shares = sums.into_iter().filter(|(_, ps)| *ps != 0);
        let mut shares: Vec<PathShare> = shares
            .map(|((kind, name), ps)| PathShare { kind, name, ps })
            .collect();
        shares.sort_unstable_by_key(|share| (Reverse(share.ps), share.kind, share.name));
        shares
    }

    /// Charges a row of the path over blocks to the segments and lags inside.
    fn charge(&self, row: &PathSegment, mut charge: impl FnMut(PathKind, usize, i64)) {
        let graph = self.path.graph();
        let block = row.segment as usize;
        let segments = self.path.blocks.segments(block);
        let mut left = row.length();
        if row.kind.is_segment() && segments.len() > 1 {
            for segment in segments.clone().rev() {
                let length = self.length(block, segment).clamp(0, left);
                charge(PathKind::of_segment(graph.kind[segment]), segment, length);
                left -= length;
                if segment > segments.start {
                    let lag = self.lag_before(segment).clamp(0, left);
                    charge(PathKind::of_lag(graph.gap_kind(segment)), segment, lag);
                    left -= lag;
                }
            }
        }
        charge(row.kind, segments.start, left);
    }
}
