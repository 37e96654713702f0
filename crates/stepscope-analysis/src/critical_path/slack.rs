//! Slack: how much longer a segment may be before the window is.
//!
//! ```text
//! latest(time) = min over what depends on the time: latest(start or end there) - lag        end of the window: itself
//! latest start = min(latest(start), latest(end) - length)            of a wait, which has no length: latest(end)
//! slack        = latest(end) - end; an edge that leaves inside the segment limits it, too
//! ```
//!
//! Lags are those of the unchanged replay, and the order on each queue is kept: the same dependencies that decide a
//! prediction. A segment on the path has no slack.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::NameId;
use stepscope_store::pages;

use super::CriticalPath;
use super::graph::{DependencyGraph, NONE, index};
use super::groups::{PathGrouping, PathKey};
use super::path::PathKind;
use super::replay::{Arrival, Replay, Unchanged};

/// A time that nothing limits: no end of the window depends on it.
const UNLIMITED: i64 = i64::MAX;

/// Latest times of starts and ends that leave the end of the window where it is.
struct Latest {
    begin: Vec<i64>,
    end: Vec<i64>,
    /// Slack of each segment by the edges from inside it.
    inside: Vec<i64>,
}

impl Latest {
    fn compute(replay: &Replay<'_, Unchanged>, last: usize) -> Self {
        let graph = replay.graph;
        let mut latest = Self {
            begin: pages::filled(UNLIMITED, graph.len()),
            end: pages::filled(UNLIMITED, graph.len()),
            inside: pages::filled(UNLIMITED, graph.len()),
        };
        latest.end[last] = replay.times.end[last];
        for (from, until) in graph.schedule.iter().rev() {
            for time in (*from..*until).rev() {
                let segment = time as usize / 2;
                if time % 2 == 1 {
                    latest.limit_by_end(replay, segment);
                } else {
                    latest.limit_by_start(replay, segment);
                }
            }
        }
        latest
    }

    /// Limits what the end of a segment depends on.
    fn limit_by_end(&mut self, replay: &Replay<'_, Unchanged>, segment: usize) {
        let end = self.end[segment];
        if end == UNLIMITED {
            return;
        }
        let graph = replay.graph;
        let wait = graph.wait[segment];
        if wait != NONE {
            replay.returns(segment, wait, |arrival| {
                self.limit(replay, &arrival, end);
            });
            self.begin[segment] = self.begin[segment].min(end);
        } else if let Some(group) = graph.group(segment) {
            let arrival = graph.last_arrival(segment).unwrap_or(graph.begin[segment]);
            let transfer = graph.end[segment].saturating_sub(arrival);
            for participant in group {
                let begin = &mut self.begin[*participant as usize];
                *begin = (*begin).min(end.saturating_sub(transfer));
            }
        } else {
            let begin = end.saturating_sub(graph.length(segment));
            self.begin[segment] = self.begin[segment].min(begin);
        }
    }

    /// Limits what the start of a segment depends on.
    fn limit_by_start(&mut self, replay: &Replay<'_, Unchanged>, segment: usize) {
        let begin = self.begin[segment];
        if begin == UNLIMITED {
            return;
        }
        replay.arrivals(segment, |arrival| self.limit(replay, &arrival, begin));
    }

    /// Limits the time at which a dependency leaves its segment, so that it arrives at `until`.
    fn limit(&mut self, replay: &Replay<'_, Unchanged>, arrival: &Arrival, until: i64) {
        let (graph, times) = (replay.graph, &replay.times);
        let (from, at) = (arrival.from, arrival.at);
        let latest = until.saturating_sub(arrival.lag);
        let end = times.end[from];
        let in_transfer = graph.last_arrival(from).is_some_and(|begun| at > begun);
        if at >= end || in_transfer {
            let latest = latest.saturating_add(end.saturating_sub(at));
            self.end[from] = self.end[from].min(latest);
            return;
        }
        let offset = at.saturating_sub(times.begin[from]);
        self.begin[from] = self.begin[from].min(latest.saturating_sub(offset));
        // A longer segment moves the point by at most as much.
        if offset > 0 && graph.wait[from] == NONE && graph.group(from).is_none() {
            self.inside[from] = self.inside[from].min(latest.saturating_sub(at));
        }
    }
}

/// Returns the slack of each segment of a graph whose window ends with `last`, picoseconds; `None` where the end of the
/// window depends on no part of it.
pub(crate) fn slack(graph: &DependencyGraph, last: usize) -> Vec<Option<i64>> {
    let replay = Replay::new(graph, &Unchanged);
    let latest = Latest::compute(&replay, last);
    let slack = |segment: usize| {
        let end = latest.end[segment];
        let whole = (end != UNLIMITED).then(|| end.saturating_sub(replay.times.end[segment]));
        let inside = latest.inside[segment];
        let inside = (inside != UNLIMITED).then_some(inside);
        whole.into_iter().chain(inside).min()
    };
    (0..graph.len()).map(slack).collect()
}

/// Slices of one name, none of which is on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffPathGroup {
    /// Their name.
    pub name: NameId,
    /// Kind of their time.
    pub kind: PathKind,
    /// Number of segments on which the end of the window depends.
    pub count: u64,
    /// Time of these segments, picoseconds.
    pub total_ps: i64,
    /// Least slack of them, picoseconds: one of them may be as much longer before the window is.
    pub slack_ps: i64,
    /// The segment with the least slack, the first of several.
    pub segment: usize,
}

impl CriticalPath<'_> {
    /// Returns the names that are off the path, those with the least slack first; waits have no length of their own and
    /// are not among them. Cost: a replay, and a look at every segment.
    pub fn off_path(&self) -> Vec<OffPathGroup> {
        let graph = self.graph();
        let on_path: FxHashSet<(PathKey, Option<PathKind>)> = self
            .groups(PathGrouping::Op)
            .iter()
            .map(|group| (group.key, group.kind))
            .collect();
        let slack = slack(&self.blocks.graph, self.blocks.block_of(self.last));
        // Position of each name, or `None` if it is on the path.
        let mut positions: FxHashMap<(NameId, PathKind), Option<u32>> = FxHashMap::default();
        let mut found: Vec<OffPathGroup> = Vec::new();
        for (block, slack_ps) in slack.into_iter().enumerate() {
            let is_wait = self.blocks.graph.wait[block] != NONE;
            let Some(slack_ps) = slack_ps.filter(|_| !is_wait) else {
                continue;
            };
            for segment in self.blocks.segments(block) {
                let Some(name) = self.name(segment) else {
                    continue;
                };
                let kind = PathKind::of_segment(graph.kind[segment]);
                let position = *positions.entry((name, kind)).or_insert_with(|| {
                    let is_on_path = on_path.contains(&(PathKey::Name(name), Some(kind)));
                    (!is_on_path).then(|| {
                        found.push(OffPathGroup {
                            name,
                            kind,
                            count: 0,
                            total_ps: 0,
                            slack_ps: UNLIMITED,
                            segment,
                        });
                        index(found.len() - 1)
                    })
                });
                let Some(group) = position.and_then(|at| found.get_mut(at as usize)) else {
                    continue;
                };
                group.count += 1;
                let own = self.own_length(block, segment);
                group.total_ps = group.total_ps.saturating_add(own);
                if slack_ps < group.slack_ps {
                    group.slack_ps = slack_ps;
                    group.segment = segment;
                }
            }
        }
        found.sort_by_key(|group| {
            (
                group.slack_ps,
                Reverse(group.total_ps),
                group.name,
                group.kind,
            )
        });
        found
    }
}
