//! Nesting: turns a sorted track into a forest by filling `depth` and `parent`.
//!
//! Why here and not in the readers: formats disagree on whether nesting is stored (begin/end
//! pairs) or implied (lines of intervals). Doing it once keeps `depth` comparable.
//!
//! Slices come sorted by (start, longest first, pour order), so a slice's parent is the innermost
//! slice that is still open. Intervals are half-open: a slice that begins where another ends is
//! its neighbour. Of equal slices the first poured holds the others, zero-length ones too, so each
//! has a row of its own.
//!
//! A slice that outlasts the open one cannot nest. It goes to the first *overflow lane* in which
//! it nests; each lane is a forest of its own, drawn below the lanes before it. Nothing is
//! dropped, and each such slice is counted. One that sticks out by at most [`TOLERANCE`] is
//! counted too but stays where it is: clocks that are rounded to whole nanoseconds make such
//! children by the thousand, and a row of their own would tear them from their parents. Their
//! times stay exact; what is blurred is that neighbours within a row may overlap by as much.
//!
//! Rows past [`MAX_DEPTH`] share the last one. Levels in memory are not limited, so a nest of a
//! million is linear.
//!
//! Cost: O(n) without overlaps; O(log lanes) for each slice that overlaps, at most 4,096 lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stepscope_model::limits::MAX_DEPTH;
use stepscope_model::{Dur, Time};

use crate::maxend::MaxEndBuilder;

/// How far a child may stick out of its parent and still be drawn within it.
pub(crate) const TOLERANCE: Dur = Dur::from_ps(1_000);

/// No parent.
pub(crate) const TOP: u32 = u32::MAX;

/// What nesting finds out about one track.
#[derive(Default)]
pub(crate) struct Nest {
    /// Level within its lane, at most `MAX_DEPTH - 1`.
    pub(crate) depth: Vec<u16>,
    /// Index of the enclosing slice or [`TOP`].
    pub(crate) parent: Vec<u32>,
    /// Display row of each slice; empty when it equals `depth`.
    pub(crate) row: Vec<u16>,
    /// Rows in use, at most `MAX_DEPTH`.
    pub(crate) rows: u16,
    /// How many of them belong to overflow lanes.
    pub(crate) overflow_rows: u16,
    /// Slices that overlap the one before them without nesting.
    pub(crate) overlapping: u64,
    /// Slices drawn on a row that is not theirs alone.
    pub(crate) clipped: u64,
    /// Union of all slices.
    pub(crate) busy: Dur,
    /// Latest end; `Time::MIN` without slices.
    pub(crate) last_end: Time,
    /// See [`crate::maxend`].
    pub(crate) max_end: Vec<Time>,
}

/// An open slice.
#[derive(Clone, Copy)]
struct Open {
    start: Time,
    /// Never after the end of the slice that holds it.
    end: Time,
    index: u32,
}

impl Open {
    /// Whether it is over when a slice begins at `start`. A zero-length slice is still open for
    /// those that begin with it: they come after it only if they are zero-length, too.
    fn is_over(&self, start: Time) -> bool {
        self.end <= start && self.start != start
    }
}

/// Nests slices sorted by (start, longest first, pour order).
pub(crate) fn nest(start: &[Time], dur: &[Dur]) -> Nest {
    let count = start.len().min(dur.len());
    let mut found = Nest {
        depth: Vec::with_capacity(count),
        parent: Vec::with_capacity(count),
        last_end: Time::MIN,
        ..Nest::default()
    };
    let mut max_end = MaxEndBuilder::with_capacity(count);
    let mut open: Vec<Open> = Vec::new();
    let mut lanes: Option<Lanes> = None;
    let mut deepest = 0;
    let mut busy_ps: i64 = 0;
    for (index, (start, dur)) in start.iter().copied().zip(dur.iter().copied()).enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let end = start.saturating_add(dur);
        max_end.push(end);
        if end > found.last_end {
            let from = start.max(found.last_end);
            busy_ps = busy_ps.saturating_add(end.since(from).ps());
            found.last_end = end;
        }
        while open.last().is_some_and(|top| top.is_over(start)) {
            open.pop();
        }
        let top = open.last().copied();
        let limit = top.map_or(Time::MAX, |top| top.end);
        if end > limit {
            found.overlapping += 1;
            if end > limit.saturating_add(TOLERANCE) {
                let lanes = lanes.get_or_insert_with(|| {
                    found.row = Vec::with_capacity(count);
                    found.row.resize(index as usize, 0);
                    Lanes::default()
                });
                let place = lanes.place(Open { start, end, index });
                found.depth.push(clip(place.depth));
                found.parent.push(place.parent);
                // Lane numbers at first; rows are known at the end.
                found.row.push(place.lane + 1);
                continue;
            }
        }
        let depth = open.len();
        deepest = deepest.max(depth + 1);
        found.clipped += u64::from(depth >= usize::from(MAX_DEPTH));
        found.depth.push(clip(depth));
        found.parent.push(top.map_or(TOP, |top| top.index));
        if lanes.is_some() {
            found.row.push(0);
        }
        open.push(Open {
            start,
            end: end.min(limit),
            index,
        });
    }
    found.busy = Dur::from_ps(busy_ps);
    found.max_end = max_end.finish();
    found.rows = u16::try_from(deepest.min(usize::from(MAX_DEPTH))).unwrap_or(MAX_DEPTH);
    if let Some(lanes) = lanes {
        lanes_to_rows(&mut found, &lanes);
    }
    found
}

fn clip(depth: usize) -> u16 {
    u16::try_from(depth).unwrap_or(MAX_DEPTH).min(MAX_DEPTH - 1)
}

/// Turns lane numbers into rows: each lane begins below the lanes before it.
fn lanes_to_rows(found: &mut Nest, lanes: &Lanes) {
    let mut first_row = Vec::with_capacity(lanes.all.len() + 1);
    let mut next = usize::from(found.rows);
    first_row.push(0);
    for lane in &lanes.all {
        first_row.push(next);
        next += lane.deepest;
    }
    let last = usize::from(MAX_DEPTH) - 1;
    for (lane, depth) in found.row.iter_mut().zip(&found.depth) {
        let begin = first_row
            .get(usize::from(*lane))
            .copied()
            .unwrap_or(last + 1);
        let row = begin + usize::from(*depth);
        found.clipped += u64::from(*lane > 0 && row > last);
        *lane = clip(row);
    }
    let rows = clip(next.saturating_sub(1)) + 1;
    found.overflow_rows = rows.saturating_sub(found.rows);
    found.rows = rows;
}

/// Where an overlapping slice goes.
struct Place {
    lane: u16,
    depth: usize,
    parent: u32,
}

#[derive(Default)]
struct Lane {
    open: Vec<Open>,
    deepest: usize,
}

/// The overflow lanes of a track.
///
/// `room` is a maximum tree over lanes: the latest end that a slice may have to nest in the lane
/// now. `ends` says when a lane's innermost slice ends, so that its room can be looked at again.
struct Lanes {
    all: Vec<Lane>,
    room: Vec<Time>,
    ends: BinaryHeap<Reverse<(Time, u16)>>,
}

/// Lanes at most: more rows are not drawn.
const MAX_LANES: usize = MAX_DEPTH as usize;

impl Default for Lanes {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            room: vec![Time::MIN; 2 * MAX_LANES],
            ends: BinaryHeap::new(),
        }
    }
}

impl Lanes {
    fn place(&mut self, slice: Open) -> Place {
        while let Some(Reverse((end, lane))) = self.ends.peek().copied()
            && end <= slice.start
        {
            self.ends.pop();
            self.close_ended(usize::from(lane), slice.start);
        }
        let lane = match self.first_with_room(slice.end) {
            Some(lane) => lane,
            None if self.all.len() < MAX_LANES => {
                self.all.push(Lane::default());
                self.all.len() - 1
            }
            // Every lane is taken: share the last row.
            None => {
                return Place {
                    lane: u16::try_from(MAX_LANES).unwrap_or(u16::MAX) + 1,
                    depth: 0,
                    parent: TOP,
                };
            }
        };
        // No zero-length slice comes here: it nests in whatever is open.
        let open = &mut self.all[lane].open;
        let place = Place {
            lane: u16::try_from(lane).unwrap_or(u16::MAX),
            depth: open.len(),
            parent: open.last().map_or(TOP, |top| top.index),
        };
        open.push(slice);
        let depth = open.len();
        self.all[lane].deepest = self.all[lane].deepest.max(depth);
        self.set_room(lane, slice.end);
        self.ends.push(Reverse((slice.end, place.lane)));
        place
    }

    fn close_ended(&mut self, lane: usize, start: Time) {
        let open = &mut self.all[lane].open;
        while open.last().is_some_and(|top| top.end <= start) {
            open.pop();
        }
        let room = open.last().map_or(Time::MAX, |top| top.end);
        self.set_room(lane, room);
    }

    fn set_room(&mut self, lane: usize, room: Time) {
        let mut node = MAX_LANES + lane;
        self.room[node] = room;
        while node > 1 {
            node /= 2;
            self.room[node] = self.room[2 * node].max(self.room[2 * node + 1]);
        }
    }

    /// The first lane in which a slice with this end nests.
    fn first_with_room(&self, end: Time) -> Option<usize> {
        let mut node = 1;
        if self.room[node] < end {
            return None;
        }
        while node < MAX_LANES {
            node *= 2;
            if self.room[node] < end {
                node += 1;
            }
        }
        Some(node - MAX_LANES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000_000;

    /// (start, length) in microseconds, in the order that nesting wants.
    fn nested(slices: &[(i64, i64)]) -> Nest {
        let start: Vec<_> = slices.iter().map(|s| Time::from_ps(s.0 * US)).collect();
        let dur: Vec<_> = slices.iter().map(|s| Dur::from_ps(s.1 * US)).collect();
        nest(&start, &dur)
    }

    #[test]
    fn neighbours_do_not_nest() {
        let found = nested(&[(0, 10), (0, 5), (5, 5), (10, 3)]);
        assert_eq!(found.depth, [0, 1, 1, 0]);
        assert_eq!(found.parent, [TOP, 0, 0, TOP]);
        assert_eq!((found.rows, found.overflow_rows), (2, 0));
        assert!(found.row.is_empty());
        assert_eq!(found.busy, Dur::from_ps(13 * US));
    }

    #[test]
    fn equal_slices_nest_in_pour_order() {
        let found = nested(&[(0, 4), (0, 4), (2, 0), (2, 0), (4, 0)]);
        assert_eq!(found.depth, [0, 1, 2, 3, 0]);
        assert_eq!(found.parent, [TOP, 0, 1, 2, TOP]);
        assert_eq!(found.overlapping, 0);
    }

    #[test]
    fn an_overlap_gets_the_first_free_row() {
        // 0-10, then 5-15 and 6-16 cannot nest; 12-14 nests in 5-15's lane only if that is its
        // innermost, and the main lane is free by then.
        let found = nested(&[(0, 10), (5, 10), (6, 10), (12, 2), (20, 5), (22, 9)]);
        assert_eq!(found.row, [0, 1, 2, 0, 0, 1]);
        assert_eq!(found.depth, [0; 6]);
        assert_eq!((found.rows, found.overflow_rows), (3, 2));
        assert_eq!(found.overlapping, 3);
        assert_eq!(found.busy, Dur::from_ps(27 * US));
    }

    #[test]
    fn overflow_lanes_nest_too() {
        let found = nested(&[(0, 10), (5, 20), (6, 12), (7, 3), (8, 3)]);
        // 6-18 nests in 5-25; 7-10 nests in the main lane; 8-11 nests in 6-18.
        assert_eq!(found.parent, [TOP, TOP, 1, 0, 2]);
        assert_eq!(found.depth, [0, 0, 1, 1, 2]);
        assert_eq!(found.row, [0, 2, 3, 1, 4]);
        assert_eq!((found.rows, found.overflow_rows), (5, 3));
    }

    #[test]
    fn a_nanosecond_too_long_still_nests_and_is_counted() {
        let ns = |ns: i64| ns * 1_000;
        let start = [0, 4, 10, 10].map(|at| Time::from_ps(ns(at)));
        let dur = [10, 7, 5, 2].map(|dur| Dur::from_ps(ns(dur)));
        let found = nest(&start, &dur);
        assert_eq!(found.depth, [0, 1, 0, 1]);
        assert_eq!(found.overlapping, 1);
        assert!(found.row.is_empty());
    }

    #[test]
    fn a_staircase_is_bounded() {
        let slices: Vec<_> = (0..20_000).map(|i| (i, 10_000)).collect();
        let found = nested(&slices);
        assert_eq!(found.rows, MAX_DEPTH);
        assert_eq!(found.depth.len(), 20_000);
        assert!(found.clipped > 5_000);
    }

    #[test]
    fn a_million_deep_nest_is_linear() {
        let slices: Vec<_> = (0..1_000_000).map(|i| (i, 2_000_000 - 2 * i)).collect();
        let found = nested(&slices);
        assert_eq!(found.rows, MAX_DEPTH);
        assert_eq!(found.clipped, 1_000_000 - u64::from(MAX_DEPTH));
        assert_eq!(found.parent[999_999], 999_998);
    }

    #[test]
    fn times_at_the_ends_of_the_range_survive() {
        let start = [Time::MIN, Time::from_ps(0), Time::MAX];
        let dur = [
            Dur::from_ps(i64::MAX),
            Dur::from_ps(i64::MAX),
            Dur::from_ps(5),
        ];
        let found = nest(&start, &dur);
        assert_eq!(found.depth.len(), 3);
    }
}
