//! Sums over the slices of one name, category and tag.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, SliceKind, Time, TrackId};
use stepscope_store::EventId;

use super::tag::Tag;
use crate::ops::launched::Launched;

/// Accumulated sums over slices.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Sums {
    pub(in crate::ops) name: NameId,
    category: NameId,
    pub(in crate::ops) kind: SliceKind,
    pub(in crate::ops) track: TrackId,
    pub(in crate::ops) tag: Tag,
    pub(in crate::ops) count: u64,
    pub(in crate::ops) total_ps: i128,
    pub(in crate::ops) self_ps: i128,
    /// Sum over the slices that lie in no other of these: nested calls count once.
    pub(in crate::ops) outermost_ps: i128,
    /// End of the last of those.
    outermost_end: Time,
    /// Device time of the work that the slices launched, if requested.
    pub(in crate::ops) launched: Launched,
    /// Sum by the device's own clock, where every slice has it.
    pub(in crate::ops) device_ps: Option<i128>,
    /// The sum by the device's own clock without nested operations of the class.
    pub(in crate::ops) device_self_ps: Option<i128>,
    pub(in crate::ops) max: Dur,
    pub(in crate::ops) longest: EventId,
    /// All durations, nanoseconds.
    pub(in crate::ops) times: Vec<f32>,
}

impl Sums {
    /// Creates empty sums of a track.
    pub(super) fn new(
        (name, category, kind): (NameId, NameId, SliceKind),
        track: TrackId,
        tag: Tag,
    ) -> Self {
        Self {
            name,
            category,
            kind,
            track,
            tag,
            count: 0,
            total_ps: 0,
            self_ps: 0,
            outermost_ps: 0,
            outermost_end: Time::MIN,
            launched: Launched::default(),
            device_ps: Some(0),
            device_self_ps: Some(0),
            max: Dur::ZERO,
            longest: EventId(u32::MAX),
            times: Vec::new(),
        }
    }

    /// Adds a slice; returns whether it lies in no other of these. Slices come in the order of their starts.
    #[inline]
    pub(super) fn enter(&mut self, start: Time, end: Time) -> bool {
        let is_nested = start < self.outermost_end && end <= self.outermost_end;
        if !is_nested {
            self.outermost_end = self.outermost_end.max(end);
        }
        !is_nested
    }

    /// Adds the sums of another chunk of the track.
    fn add(&mut self, mut other: Self) {
        let longer = (other.max, std::cmp::Reverse(other.longest))
            > (self.max, std::cmp::Reverse(self.longest));
        if other.count > 0 && (self.count == 0 || longer) {
            self.max = other.max;
            self.longest = other.longest;
        }
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.self_ps += other.self_ps;
        self.outermost_ps += other.outermost_ps;
        self.launched.add(other.launched);
        self.device_ps = self
            .device_ps
            .zip(other.device_ps)
            .map(|(own, others)| own + others);
        self.device_self_ps = self
            .device_self_ps
            .zip(other.device_self_ps)
            .map(|(own, others)| own + others);
        self.times.append(&mut other.times);
    }
}

/// Merges the sums of the chunks of tracks into those of whole tracks.
pub(super) fn united(parts: Vec<Sums>) -> Vec<Sums> {
    let mut positions: FxHashMap<(TrackId, NameId, NameId, Tag), usize> = FxHashMap::default();
    let mut all: Vec<Sums> = Vec::new();
    for part in parts {
        let key = (part.track, part.name, part.category, part.tag.clone());
        match positions.entry(key) {
            Entry::Vacant(position) => {
                position.insert(all.len());
                all.push(part);
            }
            Entry::Occupied(position) => all[*position.get()].add(part),
        }
    }
    all
}
