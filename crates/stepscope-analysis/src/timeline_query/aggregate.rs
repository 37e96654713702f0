//! Statistics of a range: its slices by number and duration.
//!
//! The accounting rule: a slice belongs to the range when it overlaps it (a slice without length when its time
//! lies inside), and its time is **clipped** to the range. Totals are exact sums of picoseconds, so the totals of
//! two adjoining ranges add up to that of their union. Self time is a slice's clipped time minus the clipped time
//! of its direct children; the self times of a track without overlapping slices therefore add up to its busy
//! time.
//!
//! Cost: one pass over the slices that can overlap the range, on all cores.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::intervals::clip;
use crate::names::NameSet;
use crate::parallel::{self, Cancel};

/// Grouping property of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The slice's name.
    Name,
    /// The track it is on.
    Track,
    /// Its colour class.
    Kind,
    /// The file's own category.
    Category,
}

/// Selection and grouping of slices.
#[derive(Clone, Debug)]
pub struct AggregateQuery<'a> {
    /// The range.
    pub window: Range<Time>,
    /// Tracks to read, each once.
    pub tracks: &'a [TrackId],
    /// Only slices with one of these names.
    pub names: Option<&'a NameSet>,
    /// Only slices of these classes.
    pub kinds: Option<&'a [SliceKind]>,
    /// Grouping properties; empty means one group of all.
    pub by: &'a [GroupBy],
}

/// Common properties of a group of slices; `None` for a property that is no grouping property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// See [`GroupBy::Name`].
    pub name: Option<NameId>,
    /// See [`GroupBy::Track`].
    pub track: Option<TrackId>,
    /// See [`GroupBy::Kind`].
    pub kind: Option<SliceKind>,
    /// See [`GroupBy::Category`].
    pub category: Option<NameId>,
}

/// Sums over the slices of one group. Times are clipped to the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of slices that overlap the range.
    pub count: u64,
    /// Sum of their times, picoseconds.
    pub total_ps: i128,
    /// Sum of their times minus the time that their children cover, picoseconds.
    pub self_ps: i128,
    /// Shortest time.
    pub min: Dur,
    /// Longest time.
    pub max: Dur,
    /// The longest slice (the first of several that are equally long).
    pub longest: EventId,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            count: 0,
            total_ps: 0,
            self_ps: 0,
            min: Dur::from_ps(i64::MAX),
            max: Dur::ZERO,
            longest: EventId(u32::MAX),
        }
    }
}

impl Totals {
    #[inline]
    fn add(&mut self, id: EventId, dur: Dur) {
        self.count += 1;
        self.total_ps += i128::from(dur.ps());
        self.self_ps += i128::from(dur.ps());
        self.min = self.min.min(dur);
        if dur > self.max || self.longest.0 == u32::MAX || (dur == self.max && id < self.longest) {
            self.max = dur;
            self.longest = id;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.self_ps += other.self_ps;
        self.min = self.min.min(other.min);
        if other.count > 0
            && (self.longest.0 == u32::MAX
                || other.max > self.max
                || (other.max == self.max && other.longest < self.longest))
        {
            self.max = other.max;
            self.longest = other.longest;
        }
    }
}

/// Time of one track within the range: `busy + idle` is the range's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackTime {
    /// The track.
    pub track: TrackId,
    /// Union of all its slices, whatever the filters.
    pub busy: Dur,
    /// The rest of the range.
    pub idle: Dur,
}

/// Result of [`aggregate`].
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The groups, longest total first, then by key.
    pub groups: Vec<(GroupKey, Totals)>,
    /// Sums over all groups.
    pub matched: Totals,
    /// Requested tracks with slices, in the requested order.
    pub per_track: Vec<TrackTime>,
}

/// Sums up the slices of a range.
pub fn aggregate(
    trace: &Trace,
    query: &AggregateQuery<'_>,
    cancel: &Cancel,
) -> Result<Aggregate, Cancelled> {
    let chunks = parallel::track_chunks(
        query
            .tracks
            .iter()
            .map(|&track| (track, trace.candidates(track, query.window.clone()))),
    );
    let parts = parallel::scan(
        &chunks,
        cancel,
        || Groups::new(trace, query),
        Groups::add_chunk,
    )?;
    let mut merged: FxHashMap<GroupKey, Totals> = FxHashMap::default();
    for mut part in parts {
        part.flush();
        // Sums: the order of the groups has no effect.
        part.sums
            .into_iter()
            .for_each(|(key, totals)| merged.entry(key).or_default().merge(&totals));
    }
    let mut groups: Vec<_> = merged
        .into_iter()
        .filter(|(_, totals)| totals.count > 0)
        .collect();
    groups.sort_unstable_by_key(|(key, totals)| (std::cmp::Reverse(totals.total_ps), *key));
    let mut matched = Totals::default();
    for (_, totals) in &groups {
        matched.merge(totals);
    }
    let length = query.window.end.since(query.window.start);
    let per_track = track_times(trace, query, length, cancel)?;
    Ok(Aggregate {
        groups,
        matched,
        per_track,
    })
}

/// Computes busy and idle time of each track with slices.
fn track_times(
    trace: &Trace,
    query: &AggregateQuery<'_>,
    length: Dur,
    cancel: &Cancel,
) -> Result<Vec<TrackTime>, Cancelled> {
    let whole_tracks: Vec<parallel::TrackChunk> = query
        .tracks
        .iter()
        .map(|&track| parallel::TrackChunk {
            track,
            indexes: 0..trace.slices(track).len(),
        })
        .filter(|chunk| !chunk.indexes.is_empty())
        .collect();
    let parts = parallel::scan(&whole_tracks, cancel, Vec::new, |times, chunk| {
        let busy = trace.busy(chunk.track, query.window.clone());
        times.push((chunk.track, busy));
    })?;
    let busy: FxHashMap<TrackId, Dur> = parts.into_iter().flatten().collect();
    Ok(whole_tracks
        .iter()
        .map(|chunk| {
            let busy = busy.get(&chunk.track).copied().unwrap_or_default();
            TrackTime {
                track: chunk.track,
                busy,
                idle: Dur::from_ps(length.ps().saturating_sub(busy.ps())),
            }
        })
        .collect())
}

/// Sums of one worker thread.
///
/// Slices are first summed by (name, category) of one track, a lookup in an array; the requested grouping costs a
/// hash per distinct name instead of per slice.
struct Groups<'a> {
    trace: &'a Trace,
    query: &'a AggregateQuery<'a>,
    track: Option<TrackId>,
    /// Index into `slots` of the first slot of each name; `NONE` without one.
    by_name: Vec<u32>,
    slots: Vec<Slot>,
    sums: FxHashMap<GroupKey, Totals>,
}

const NONE: u32 = u32::MAX;

/// Slices of one name and category on the current track.
struct Slot {
    name: NameId,
    category: NameId,
    /// The next slot of this name, with another category.
    next: u32,
    selected: bool,
    totals: Totals,
}

impl<'a> Groups<'a> {
    fn new(trace: &'a Trace, query: &'a AggregateQuery<'a>) -> Self {
        Self {
            trace,
            query,
            track: None,
            by_name: vec![NONE; trace.name_count()],
            slots: Vec::new(),
            sums: FxHashMap::default(),
        }
    }

    fn add_chunk(&mut self, chunk: &parallel::TrackChunk) {
        if self.track != Some(chunk.track) {
            self.flush();
            self.track = Some(chunk.track);
        }
        let slices = self.trace.slices(chunk.track);
        let window = &self.query.window;
        for index in chunk.indexes.clone() {
            let (start, dur) = (slices.start[index], slices.dur[index]);
            let Some(clipped) = clip(start, dur, window) else {
                continue;
            };
            let slot = self.slot(slices.name[index], slices.category.get(index));
            if slot.selected {
                let id = EventId(slices.first_id.0.wrapping_add(low32(index)));
                slot.totals.add(id, clipped);
            }
            let parent = slices.parent[index] as usize;
            if parent < slices.len() && clipped > Dur::ZERO {
                // A child may extend beyond its parent by the tolerance of the nesting.
                let inside = start.saturating_add(dur).min(slices.end(parent));
                let covered = clip(start, inside.since(start), window);
                let covered = covered.map_or(0, Dur::ps);
                let slot = self.slot(slices.name[parent], slices.category.get(parent));
                slot.totals.self_ps -= i128::from(covered);
            }
        }
    }

    /// Returns the slot of such a slice on the current track.
    #[inline]
    fn slot(&mut self, name: NameId, category: NameId) -> &mut Slot {
        let mut last = NONE;
        let mut at = self.by_name.get(name.index()).copied().unwrap_or(NONE);
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.category == category {
                break;
            }
            (last, at) = (at, slot.next);
        }
        if at == NONE {
            at = low32(self.slots.len());
            let selected = self.is_selected(name, category);
            self.slots.push(Slot {
                name,
                category,
                next: NONE,
                selected,
                totals: Totals::default(),
            });
            match self.slots.get_mut(last as usize) {
                Some(slot) => slot.next = at,
                None => {
                    if let Some(first) = self.by_name.get_mut(name.index()) {
                        *first = at;
                    }
                }
            }
        }
        &mut self.slots[at as usize]
    }

    fn is_selected(&self, name: NameId, category: NameId) -> bool {
        let by_name = self.query.names.is_none_or(|names| names.contains(name));
        by_name
            && self
                .query
                .kinds
                .is_none_or(|kinds| kinds.contains(&self.kind(name, category)))
    }

    fn kind(&self, name: NameId, category: NameId) -> SliceKind {
        self.track.map_or(SliceKind::Other, |track| {
            self.trace.kind(track, name, category)
        })
    }

    /// Adds the slots of the current track to the requested groups.
    fn flush(&mut self) {
        for slot in std::mem::take(&mut self.slots) {
            if let Some(first) = self.by_name.get_mut(slot.name.index()) {
                *first = NONE;
            }
            if !slot.selected {
                continue;
            }
            let mut key = GroupKey::default();
            for by in self.query.by {
                match by {
                    GroupBy::Name => key.name = Some(slot.name),
                    GroupBy::Track => key.track = self.track,
                    GroupBy::Kind => key.kind = Some(self.kind(slot.name, slot.category)),
                    GroupBy::Category => key.category = Some(slot.category),
                }
            }
            self.sums.entry(key).or_default().merge(&slot.totals);
        }
    }
}

/// Indexes and event numbers are below 2^32 by the store's own ids.
#[inline]
fn low32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_clipped_to_the_window() {
        let window = Time::from_ps(10)..Time::from_ps(20);
        for (start, dur, expected) in [
            (0, 10, None),
            (0, 11, Some(1)),
            (10, 0, Some(0)),
            (20, 0, None),
            (19, 5, Some(1)),
            (0, 100, Some(10)),
            (20, 1, None),
            (5, 0, None),
        ] {
            assert_eq!(
                clip(Time::from_ps(start), Dur::from_ps(dur), &window),
                expected.map(Dur::from_ps),
                "{start}+{dur}"
            );
        }
    }
}
