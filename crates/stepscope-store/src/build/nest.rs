//! Nesting: turns a sorted track into a forest by filling `depth` and `parent`.
//!
//! The store does this once for all readers, because formats store nesting differently (explicitly
//! as begin/end pairs, or implied by intervals on a line). This keeps `depth` comparable.
//!
//! Slices are sorted by (start, longest first, emit order), so the parent of a slice is the
//! innermost slice that is still open. Intervals are half-open: a slice that begins where another
//! ends is its sibling. Of equal slices, zero-length ones included, the first one emitted encloses
//! the others, so each has its own row.
//!
//! A slice that ends after the open slice cannot nest. It goes to the first *overflow lane* in
//! which it nests; each lane is a separate forest, drawn below the lanes before it. Nothing is
//! dropped, and each such slice is counted. A slice that exceeds its parent by at most
//! [`TOLERANCE`] is counted too but stays nested: clocks rounded to whole nanoseconds produce
//! thousands of such children, and a separate row would separate them from their parents. Their
//! times stay exact; neighbours within a row may overlap by up to the tolerance.
//!
//! Rows past [`MAX_DEPTH`] share the last one. Nesting levels in memory are not limited, so a
//! million nested slices take linear time.
//!
//! Cost: O(n) without overlaps; O(log lanes) for each slice that overlaps, at most 4,096 lanes. A
//! long track is nested in pieces, on several threads (`split_points` finds the boundaries); the
//! result is the same as for the whole track.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use stepscope_model::limits::MAX_DEPTH;
use stepscope_model::{Dur, Time};

use crate::build::split_points::{Open, SplitPoint};
use crate::columns::pages;
use crate::columns::table::{TOLERANCE, TOP};

/// Result of nesting one track.
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
    /// Rows that belong to overflow lanes.
    pub(crate) overflow_rows: u16,
    /// Slices that overlap the one before them without nesting.
    pub(crate) overlapping: u64,
    /// Slices drawn on a row that they share with other levels.
    pub(crate) clipped: u64,
    /// Union of all slices.
    pub(crate) busy: Dur,
    /// Latest end; `Time::MIN` without slices.
    pub(crate) last_end: Time,
}

/// Nests slices sorted by (start, longest first, emit order). A long track is nested in pieces on
/// several threads; `split_points` finds the `pieces`.
pub(crate) fn nest(start: &[Time], dur: &[Dur], pieces: &[SplitPoint]) -> Nest {
    let count = start.len().min(dur.len());
    let mut depth = pages::zeroed::<u16>(count);
    let mut parent = pages::zeroed::<u32>(count);
    let mut jobs = Vec::with_capacity(pieces.len() + 1);
    let (mut depths, mut parents) = (&mut depth[..], &mut parent[..]);
    let whole = [SplitPoint::BEGIN];
    let pieces = if pieces.is_empty() { &whole } else { pieces };
    let ends = pieces.iter().skip(1).map(|cut| cut.at).chain([count]);
    for (cut, end) in pieces.iter().zip(ends) {
        let (depth, depths_left) = depths.split_at_mut(end - cut.at);
        let (parent, parents_left) = parents.split_at_mut(end - cut.at);
        (depths, parents) = (depths_left, parents_left);
        jobs.push((cut, depth, parent));
    }
    let nested: Vec<NestedRange> = jobs
        .into_par_iter()
        .map(|(cut, depth, parent)| nest_piece(start, dur, cut, depth, parent))
        .collect();

    let deepest = nested.iter().map(|piece| piece.deepest).max().unwrap_or(0);
    let mut found = Nest {
        depth,
        parent,
        rows: u16::try_from(deepest.min(usize::from(MAX_DEPTH))).unwrap_or(MAX_DEPTH),
        overlapping: nested.iter().map(|piece| piece.overlapping).sum(),
        clipped: nested.iter().map(|piece| piece.clipped).sum(),
        busy: Dur::from_ps(
            nested
                .iter()
                .map(|piece| piece.busy_ps)
                .fold(0, i64::saturating_add),
        ),
        last_end: nested.last().map_or(Time::MIN, |piece| piece.last_end),
        ..Nest::default()
    };
    if nested.iter().any(|piece| !piece.lanes.is_empty()) {
        lanes_to_rows(&mut found, &nested);
    }
    found
}

/// Result of nesting one piece.
#[derive(Default)]
struct NestedRange {
    at: usize,
    len: usize,
    /// Lane of each slice, 0 for the main one; empty while all slices are on the main lane.
    lane: Vec<u16>,
    /// Depth of each overflow lane.
    lanes: Vec<usize>,
    deepest: usize,
    overlapping: u64,
    clipped: u64,
    busy_ps: i64,
    last_end: Time,
}

/// Nests the slices that follow a split point, as many as the output slices hold.
fn nest_piece(
    start: &[Time],
    dur: &[Dur],
    cut: &SplitPoint,
    depth_out: &mut [u16],
    parent_out: &mut [u32],
) -> NestedRange {
    let count = depth_out.len();
    let mut found = NestedRange {
        at: cut.at,
        len: count,
        last_end: cut.last_end,
        deepest: cut.open.len(),
        ..NestedRange::default()
    };
    let mut open = cut.open.clone();
    let mut lanes: Option<Lanes> = None;
    let times = start.iter().zip(dur).skip(cut.at);
    let places = depth_out.iter_mut().zip(parent_out);
    for (at, ((start, dur), (depth_out, parent_out))) in times.zip(places).enumerate() {
        let (start, dur) = (*start, *dur);
        let index = u32::try_from(cut.at + at).unwrap_or(u32::MAX);
        let end = start.saturating_add(dur);
        if end > found.last_end {
            let from = start.max(found.last_end);
            found.busy_ps = found.busy_ps.saturating_add(end.since(from).ps());
            found.last_end = end;
        }
        while open.last().is_some_and(|top| top.is_over(start)) {
            open.pop();
        }
        let (limit, top) = open
            .last()
            .map_or((Time::MAX, TOP), |top| (top.end, top.index));
        if end > limit {
            found.overlapping += 1;
            if end > limit.saturating_add(TOLERANCE) {
                let lanes = lanes.get_or_insert_with(|| {
                    found.lane = Vec::with_capacity(count);
                    found.lane.resize(at, 0);
                    Lanes::default()
                });
                let place = lanes.place(Open { start, end, index });
                *depth_out = clip(place.depth);
                *parent_out = place.parent;
                found.lane.push(place.lane + 1);
                continue;
            }
        }
        let depth = open.len();
        found.deepest = found.deepest.max(depth + 1);
        found.clipped += u64::from(depth >= usize::from(MAX_DEPTH));
        *depth_out = clip(depth);
        *parent_out = top;
        if lanes.is_some() {
            found.lane.push(0);
        }
        open.push(Open {
            start,
            end: end.min(limit),
            index,
        });
    }
    if let Some(lanes) = lanes {
        found.lanes = lanes.all.iter().map(|lane| lane.deepest).collect();
    }
    found
}

fn clip(depth: usize) -> u16 {
    u16::try_from(depth).unwrap_or(MAX_DEPTH).min(MAX_DEPTH - 1)
}

/// Converts lane numbers to rows: each lane begins below the lanes before it.
fn lanes_to_rows(found: &mut Nest, pieces: &[NestedRange]) {
    let lanes = pieces.iter().map(|piece| piece.lanes.len()).max();
    let mut first_row = Vec::with_capacity(lanes.unwrap_or(0) + 1);
    let mut next = usize::from(found.rows);
    first_row.push(0);
    for lane in 0..lanes.unwrap_or(0) {
        first_row.push(next);
        let depths = pieces.iter().filter_map(|piece| piece.lanes.get(lane));
        next += depths.max().copied().unwrap_or(0);
    }
    let last = usize::from(MAX_DEPTH) - 1;
    let mut row = pages::zeroed::<u16>(found.depth.len());
    let mut jobs = Vec::with_capacity(pieces.len());
    let mut left = &mut row[..];
    for piece in pieces {
        let (rows, rest) = left.split_at_mut(piece.len);
        left = rest;
        let depths = found
            .depth
            .get(piece.at..piece.at + piece.len)
            .unwrap_or_default();
        jobs.push((piece, depths, rows));
    }
    let clipped: u64 = jobs
        .into_par_iter()
        .map(|(piece, depths, rows)| {
            if piece.lane.is_empty() {
                rows.copy_from_slice(depths);
                return 0;
            }
            let mut clipped = 0;
            for ((row, lane), depth) in rows.iter_mut().zip(&piece.lane).zip(depths) {
                let begin = first_row
                    .get(usize::from(*lane))
                    .copied()
                    .unwrap_or(last + 1);
                let place = begin + usize::from(*depth);
                clipped += u64::from(*lane > 0 && place > last);
                *row = clip(place);
            }
            clipped
        })
        .sum();
    found.clipped += clipped;
    found.row = row;
    let rows = clip(next.saturating_sub(1)) + 1;
    found.overflow_rows = rows.saturating_sub(found.rows);
    found.rows = rows;
}

/// Place of an overlapping slice.
struct OverflowSlot {
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
/// `room` is a maximum tree over lanes: the latest end at which a slice still nests in the lane.
/// `ends` holds the time at which a lane's innermost slice ends, when its entry in `room` changes.
struct Lanes {
    all: Vec<Lane>,
    room: Vec<Time>,
    ends: BinaryHeap<Reverse<(Time, u16)>>,
}

/// Maximum number of lanes: further rows are not drawn.
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
    fn place(&mut self, slice: Open) -> OverflowSlot {
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
            // Every lane is occupied: share the last row.
            None => {
                return OverflowSlot {
                    lane: u16::try_from(MAX_LANES).unwrap_or(u16::MAX) + 1,
                    depth: 0,
                    parent: TOP,
                };
            }
        };
        // Zero-length slices never reach this point: they nest in any open slice.
        let open = &mut self.all[lane].open;
        let place = OverflowSlot {
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

    /// Returns the first lane in which a slice with this end nests.
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
    use crate::build::split_points::walk_for_pieces;
    use crate::columns::max_end_index;

    const US: i64 = 1_000_000;

    /// (start, length) in microseconds, in the order that nesting wants.
    fn nested(slices: &[(i64, i64)]) -> Nest {
        let start: Vec<_> = slices.iter().map(|s| Time::from_ps(s.0 * US)).collect();
        let dur: Vec<_> = slices.iter().map(|s| Dur::from_ps(s.1 * US)).collect();
        nest(&start, &dur, &[])
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
    fn equal_slices_nest_in_emission_order() {
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
        let found = nest(&start, &dur, &[]);
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

    /// Nests in pieces as small as they can be, and as a whole: `None` when nothing could be cut.
    fn check_pieces(slices: &mut [(i64, i64)]) -> usize {
        slices.sort_by_key(|(start, dur)| (*start, Reverse(*dur)));
        let start: Vec<_> = slices.iter().map(|s| Time::from_ps(s.0)).collect();
        let dur: Vec<_> = slices.iter().map(|s| Dur::from_ps(s.1)).collect();
        let walk = walk_for_pieces(&start, &dur, 1);
        assert!(walk.in_order);
        assert_eq!(walk.max_end, max_end_index::tree(&start, &dur));
        let whole = nest(&start, &dur, &[]);
        let pieces = nest(&start, &dur, &walk.cuts);
        assert_eq!(pieces.depth, whole.depth);
        assert_eq!(pieces.parent, whole.parent);
        assert_eq!(pieces.row, whole.row);
        let counts = |nest: &Nest| {
            let rows = (nest.rows, nest.overflow_rows);
            (
                rows,
                nest.overlapping,
                nest.clipped,
                nest.busy,
                nest.last_end,
            )
        };
        assert_eq!(counts(&pieces), counts(&whole));
        walk.cuts.len()
    }

    fn random(seed: u64) -> impl FnMut(i64) -> i64 {
        let mut state = seed;
        move |below: i64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % below
        }
    }

    #[test]
    fn pieces_nest_as_the_whole_does() {
        let mut most = 0;
        for seed in 0..300_usize {
            let mut random = random(seed as u64);
            // How dense, how long, how often something lasts very long.
            let gap = [1, 3, 2_000, 40_000][seed % 4];
            let longest = [1, 3_000, 30_000][seed % 3];
            let mut now = -random(1_000_000);
            let mut slices: Vec<(i64, i64)> = (0..1_500)
                .map(|_| {
                    now += random(gap) * random(2);
                    let dur = match random(200) {
                        0 => random(1 + gap * 1_500),
                        1 => random(1 + gap * 40),
                        2..40 => 0,
                        _ => random(longest + 1),
                    };
                    (now, dur)
                })
                .collect();
            if seed % 5 == 0 {
                // A recording around all, and one in it.
                let first = slices[0].0 - 10;
                slices.push((first, now - first + 100_000));
                slices.push((first, now - first + 50_000 + random(100_000)));
            }
            most = most.max(check_pieces(&mut slices));
        }
        assert!(most > 10, "hardly anything was cut: {most}");
    }

    #[test]
    fn nested_steps_below_one_long_slice_are_cut() {
        // A recording, epochs in it, steps in them, with an overlap in each step.
        let mut slices = vec![(0, 10_000_000)];
        for epoch in 0..10 {
            slices.push((epoch * 1_000_000, 990_000));
            for step in 0..100 {
                let start = epoch * 1_000_000 + step * 9_000 + 10;
                slices.extend([(start, 5_000), (start + 10, 3_000), (start + 2_000, 4_000)]);
                slices.extend((0..20).map(|op| (start + 20 + op * 40, 30)));
            }
        }
        assert!(check_pieces(&mut slices) > 100);
    }

    #[test]
    fn pieces_with_times_at_the_ends_of_the_range() {
        let far = |at: i64| {
            [
                (i64::MIN + at, i64::MAX),
                (at, at),
                (i64::MAX - at, i64::MAX),
            ]
        };
        let mut slices: Vec<_> = (0..400).flat_map(far).collect();
        check_pieces(&mut slices);
        let mut slices: Vec<_> = (0..400).map(|at| (at * at * at, 5)).collect();
        assert!(check_pieces(&mut slices) > 2);
        let mut equal = vec![(7, 0); 500];
        equal.extend(vec![(7, 3); 500]);
        assert_eq!(check_pieces(&mut equal), 0);
        check_pieces(&mut []);
    }

    #[test]
    fn the_walk_sees_what_is_out_of_order() {
        let start: Vec<_> = (0..1_000).map(Time::from_ps).collect();
        let dur: Vec<_> = (0..1_000).map(Dur::from_ps).collect();
        for (piece, at) in [(64, 64), (64, 640), (64, 500), (100_000, 500)] {
            assert!(walk_for_pieces(&start, &dur, piece).in_order);
            let mut late = start.clone();
            late[at] = late[at - 1];
            assert!(!walk_for_pieces(&late, &dur, piece).in_order, "{at}");
            let mut longest_first = dur.clone();
            longest_first[at] = Dur::ZERO;
            assert!(walk_for_pieces(&late, &longest_first, piece).in_order);
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range_survive() {
        let start = [Time::MIN, Time::from_ps(0), Time::MAX];
        let dur = [
            Dur::from_ps(i64::MAX),
            Dur::from_ps(i64::MAX),
            Dur::from_ps(5),
        ];
        let found = nest(&start, &dur, &[]);
        assert_eq!(found.depth.len(), 3);
    }
}
