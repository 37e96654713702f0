//! Statistics of a range: what ran in it, how often and how long.
//!
//! The accounting rule: a slice belongs to the range when it touches it (a slice without length
//! when its time lies inside), and its time is **clipped** to the range. Totals are exact sums of
//! picoseconds, so the totals of two adjoining ranges add up to that of their union.
//! Self time is a slice's clipped time less the clipped time of its direct children; the self
//! times of a track without overlapping slices therefore add up to its busy time.
//!
//! Cost: one pass over the slices that can touch the range, on all cores.

use std::collections::hash_map::Entry;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::names::NameSet;
use crate::parallel::{self, Cancel};

/// What slices are put together by.
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

/// Which slices are looked at, and how they are put together.
#[derive(Clone, Debug)]
pub struct AggregateQuery<'a> {
    /// The range.
    pub window: Range<Time>,
    /// Tracks to look at, each once.
    pub tracks: &'a [TrackId],
    /// Only slices with one of these names.
    pub names: Option<&'a NameSet>,
    /// Only slices of these classes.
    pub kinds: Option<&'a [SliceKind]>,
    /// What they are put together by; nothing means one group of all.
    pub by: &'a [GroupBy],
}

/// What a group of slices has in common; `None` where slices were not told apart by it.
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
    /// Slices that touch the range.
    pub count: u64,
    /// Sum of their times, picoseconds.
    pub total_ps: i128,
    /// Sum of their times less what their children cover, picoseconds.
    pub self_ps: i128,
    /// The shortest.
    pub min: Dur,
    /// The longest.
    pub max: Dur,
    /// The longest one (the first of several that are equally long).
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

/// Answer of [`aggregate`].
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The groups, longest total first, then by key.
    pub groups: Vec<(GroupKey, Totals)>,
    /// Sums over all groups.
    pub matched: Totals,
    /// Every asked track with slices, in the order asked.
    pub per_track: Vec<TrackTime>,
}

/// Sums up the slices of a range.
pub fn aggregate(
    trace: &Trace,
    query: &AggregateQuery<'_>,
    cancel: &Cancel,
) -> Result<Aggregate, Cancelled> {
    let pieces = parallel::pieces(
        query
            .tracks
            .iter()
            .map(|&track| (track, trace.candidates(track, query.window.clone()))),
    );
    let parts = parallel::scan(
        &pieces,
        cancel,
        || Groups::new(trace, query),
        Groups::add_piece,
    )?;
    let mut merged: FxHashMap<GroupKey, Totals> = FxHashMap::default();
    for part in parts {
        for (key, totals) in part.keys.iter().zip(&part.totals) {
            merged.entry(*key).or_default().merge(totals);
        }
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
    let mut per_track = Vec::new();
    for &track in query.tracks {
        cancel.check()?;
        if trace.slices(track).start.is_empty() {
            continue;
        }
        let busy = trace.busy(track, query.window.clone());
        per_track.push(TrackTime {
            track,
            busy,
            idle: Dur::from_ps(length.ps().saturating_sub(busy.ps())),
        });
    }
    Ok(Aggregate {
        groups,
        matched,
        per_track,
    })
}

/// One thread's groups.
struct Groups<'a> {
    trace: &'a Trace,
    query: &'a AggregateQuery<'a>,
    /// Index into `totals` by name, when names alone tell groups apart (the common case).
    by_name: Vec<u32>,
    by_key: FxHashMap<GroupKey, u32>,
    kinds: FxHashMap<(TrackId, NameId, NameId), SliceKind>,
    keys: Vec<GroupKey>,
    totals: Vec<Totals>,
}

impl<'a> Groups<'a> {
    fn new(trace: &'a Trace, query: &'a AggregateQuery<'a>) -> Self {
        let by_name = if query.by == [GroupBy::Name] {
            vec![u32::MAX; trace.name_count()]
        } else {
            Vec::new()
        };
        Self {
            trace,
            query,
            by_name,
            by_key: FxHashMap::default(),
            kinds: FxHashMap::default(),
            keys: Vec::new(),
            totals: Vec::new(),
        }
    }

    fn add_piece(&mut self, piece: &parallel::Piece) {
        let slices = self.trace.slices(piece.track);
        let window = &self.query.window;
        for index in piece.indexes.clone() {
            let (start, dur) = (slices.start[index], slices.dur[index]);
            let Some(clipped) = clip(start, dur, window) else {
                continue;
            };
            let (name, category) = (slices.name[index], slices.category.get(index));
            if let Some(group) = self.group(piece.track, name, category) {
                let id = EventId(slices.first_id.0.wrapping_add(low32(index)));
                group.add(id, clipped);
            }
            let parent = slices.parent[index] as usize;
            if parent < slices.len() && clipped > Dur::ZERO {
                let (name, category) = (slices.name[parent], slices.category.get(parent));
                // A child may reach beyond its parent by the nesting's tolerance.
                let inside = start.saturating_add(dur).min(slices.end(parent));
                let covered = clip(start, inside.since(start), window);
                let covered = covered.map_or(0, Dur::ps);
                if let Some(group) = self.group(piece.track, name, category) {
                    group.self_ps -= i128::from(covered);
                }
            }
        }
    }

    /// The group of such a slice; `None` when the filters leave it out.
    #[inline]
    fn group(&mut self, track: TrackId, name: NameId, category: NameId) -> Option<&mut Totals> {
        if self
            .query
            .names
            .is_some_and(|wanted| !wanted.contains(name))
        {
            return None;
        }
        if let Some(wanted) = self.query.kinds {
            let kind = self.kind(track, name, category);
            if !wanted.contains(&kind) {
                return None;
            }
        }
        if let Some(slot) = self.by_name.get_mut(name.index()) {
            if *slot == u32::MAX {
                *slot = low32(self.totals.len());
                self.keys.push(GroupKey {
                    name: Some(name),
                    ..GroupKey::default()
                });
                self.totals.push(Totals::default());
            }
            return self.totals.get_mut(*slot as usize);
        }
        let mut key = GroupKey::default();
        for by in self.query.by {
            match by {
                GroupBy::Name => key.name = Some(name),
                GroupBy::Track => key.track = Some(track),
                GroupBy::Kind => key.kind = Some(self.kind(track, name, category)),
                GroupBy::Category => key.category = Some(category),
            }
        }
        let slot = match self.by_key.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                self.keys.push(key);
                self.totals.push(Totals::default());
                *free.insert(low32(self.totals.len() - 1))
            }
        };
        self.totals.get_mut(slot as usize)
    }

    fn kind(&mut self, track: TrackId, name: NameId, category: NameId) -> SliceKind {
        *self
            .kinds
            .entry((track, name, category))
            .or_insert_with(|| self.trace.kind(track, name, category))
    }
}

/// The part of a slice that lies in the window; `None` when it does not touch it.
#[inline]
pub(crate) fn clip(start: Time, dur: Dur, window: &Range<Time>) -> Option<Dur> {
    let end = start.saturating_add(dur);
    let touches =
        start < window.end && (end > window.start || (end == start && start == window.start));
    touches.then(|| end.min(window.end).since(start.max(window.start)))
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
