//! The links and flow ends of a trace, and queries for those of one slice.
//!
//! Memory: 16 bytes a link and 9 an end. A binary search finds a slice's links.

use stepscope_model::{FlowKey, NameId, Time, TrackId};

use crate::columns::column::Column;
use crate::read::event::{EventId, FlowEdge};
use crate::read::galloping_search::galloping_search;

/// All links and ends of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTable {
    pub(crate) key_category: Column<NameId>,
    pub(crate) key_id: Column<u64>,
    /// Links in order of (from, time of arrival, to).
    pub(crate) from: Column<u32>,
    pub(crate) to: Column<u32>,
    pub(crate) key: Column<u32>,
    /// Positions of links in order of (to, time of departure, from).
    pub(crate) by_to: Column<u32>,
    /// Ends at the start of a slice, in order of slices.
    pub(crate) end_slice: Column<u32>,
    pub(crate) end_key: Column<u32>,
    pub(crate) end_direction: Column<u8>,
    /// All other ends: those without a slice, or with a time that differs from the slice's start.
    pub(crate) loose_track: Column<u32>,
    pub(crate) loose_at: Column<Time>,
    pub(crate) loose_key: Column<u32>,
    pub(crate) loose_direction: Column<u8>,
    pub(crate) loose_bind: Column<u8>,
    /// Keys with both a start and an end.
    pub(crate) complete: u64,
}

impl FlowTable {
    pub(crate) fn key_at(&self, key: u32) -> FlowKey {
        let key = key as usize;
        FlowKey {
            category: self.key_category.get(key).copied().unwrap_or_default(),
            id: self.key_id.get(key).copied().unwrap_or_default(),
        }
    }

    fn edge(&self, index: usize) -> Option<FlowEdge> {
        Some(FlowEdge {
            from: EventId(*self.from.get(index)?),
            to: EventId(*self.to.get(index)?),
            key: self.key_at(*self.key.get(index)?),
        })
    }

    /// Returns all links in order of (from, time of arrival, to).
    pub(crate) fn edges(&self) -> impl Iterator<Item = FlowEdge> + use<'_> {
        (0..self.from.len()).filter_map(|index| self.edge(index))
    }

    /// Returns the links that leave the slice, in order of arrival.
    pub(crate) fn leaving(&self, slice: EventId) -> Vec<FlowEdge> {
        let first = self.from.partition_point(|from| *from < slice.0);
        self.from[first..]
            .iter()
            .take_while(|from| **from == slice.0)
            .zip(first..)
            .filter_map(|(_, index)| self.edge(index))
            .collect()
    }

    /// Returns the sources of the links that arrive at the slice, in order of departure. Allocates
    /// nothing. `near` is the position at which the previous search ended, which shortens a search
    /// for a slice shortly after it.
    pub(crate) fn sources(
        &self,
        slice: EventId,
        near: &mut usize,
    ) -> impl Iterator<Item = EventId> + use<'_> {
        let to = |link: &u32| self.to.get(*link as usize).copied().unwrap_or(u32::MAX);
        let is_before = |at: usize| self.by_to.get(at).is_some_and(|link| to(link) < slice.0);
        let first = galloping_search(self.by_to.len(), *near, is_before);
        *near = first;
        let arriving = self.by_to.get(first..).unwrap_or_default().iter();
        arriving
            .take_while(move |link| to(link) == slice.0)
            .filter_map(|link| self.from.get(*link as usize).map(|from| EventId(*from)))
    }

    /// Returns target and source of the links that arrive at slices with these ids, in order of target and departure.
    pub(crate) fn arriving_at(
        &self,
        slices: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (EventId, EventId)> + use<'_> {
        let to = |link: &u32| self.to.get(*link as usize).copied().unwrap_or(u32::MAX);
        let first = self.by_to.partition_point(|link| to(link) < slices.start);
        let arriving = self.by_to.get(first..).unwrap_or_default().iter();
        arriving
            .map_while(move |link| {
                let to = EventId(to(link));
                (to.0 < slices.end).then_some((to, *link))
            })
            .filter_map(|(to, link)| Some((to, EventId(*self.from.get(link as usize)?))))
    }

    /// Returns the links that arrive at the slice, in order of departure.
    pub(crate) fn arriving(&self, slice: EventId) -> Vec<FlowEdge> {
        let to = |link: &u32| self.to.get(*link as usize).copied().unwrap_or(u32::MAX);
        let first = self.by_to.partition_point(|link| to(link) < slice.0);
        self.by_to[first..]
            .iter()
            .take_while(|link| to(link) == slice.0)
            .filter_map(|link| self.edge(*link as usize))
            .collect()
    }

    /// Returns the ends at the slice's start: positions in the `end_` columns.
    pub(crate) fn ends_of(&self, slice: EventId) -> std::ops::Range<usize> {
        let first = self.end_slice.partition_point(|end| *end < slice.0);
        let count = self.end_slice[first..]
            .iter()
            .take_while(|end| **end == slice.0)
            .count();
        first..first + count
    }

    /// Returns the other ends on the track: positions in the `loose_` columns.
    pub(crate) fn loose_of(&self, track: TrackId) -> std::ops::Range<usize> {
        let first = self.loose_track.partition_point(|on| *on < track.0);
        let end = self.loose_track.partition_point(|on| *on <= track.0);
        first..end.max(first)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.key_category.heap_bytes()
            + self.key_id.heap_bytes()
            + self.from.heap_bytes()
            + self.to.heap_bytes()
            + self.key.heap_bytes()
            + self.by_to.heap_bytes()
            + self.end_slice.heap_bytes()
            + self.end_key.heap_bytes()
            + self.end_direction.heap_bytes()
            + self.loose_track.heap_bytes()
            + self.loose_at.heap_bytes()
            + self.loose_key.heap_bytes()
            + self.loose_direction.heap_bytes()
            + self.loose_bind.heap_bytes()
    }
}
