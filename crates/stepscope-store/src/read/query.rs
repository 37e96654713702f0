//! Reading a finished trace: tracks and their columns, single events, neighbours, links.

use std::ops::Range;

use stepscope_model::{Dur, Epoch, NameId, SliceFlags, SliceKind, Time, TrackId};

use crate::columns::table::{TOP, TrackTable};
use crate::read::event::{Event, EventId, FlowEdge, StepMark};
use crate::read::facts::{DiagnosticCount, FileFacts};
use crate::read::galloping_search::galloping_search;
use crate::read::kinds;
use crate::read::trace::{Categories, Instants, Samples, Slices, Trace, Track};

/// Slices of a track that were moved to overflow rows, since they overlap others without nesting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlapping {
    /// Index of each, and the latest end of the moved slices up to it.
    moved: Vec<(u32, Time)>,
}

/// Returns the index of the enclosing slice.
#[inline]
fn above(slices: &Slices<'_>, index: usize) -> Option<usize> {
    let parent = *slices.parent.get(index)?;
    (parent != TOP).then_some(parent as usize)
}

/// Iterator over the slices that have begun and end at a given time or later, latest start first.
struct Around<'a> {
    slices: Slices<'a>,
    at: Time,
    /// The next slice that was not moved.
    next: Option<usize>,
    /// The remaining moved slices; the last one is the next.
    moved: &'a [(u32, Time)],
}

impl<'a> Around<'a> {
    #[inline]
    fn new(slices: Slices<'a>, begun: usize, at: Time, others: Option<&'a Overlapping>) -> Self {
        let moved = others.map_or(&[][..], |others| {
            let left = others
                .moved
                .partition_point(|(index, _)| (*index as usize) < begun);
            &others.moved[..left]
        });
        // The last slice that was not moved.
        let mut next = begun.checked_sub(1);
        for (index, _) in moved.iter().rev() {
            if next != Some(*index as usize) {
                break;
            }
            next = next.and_then(|index| index.checked_sub(1));
        }
        Self {
            slices,
            at,
            next,
            moved,
        }
    }
}

impl Iterator for Around<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let is_open = |index: usize| self.slices.end(index) >= self.at;
        let mut other = None;
        while let [rest @ .., (index, latest)] = self.moved
            && *latest >= self.at
        {
            if is_open(*index as usize) {
                other = Some(*index as usize);
                break;
            }
            self.moved = rest;
        }
        while let Some(index) = self.next
            && !is_open(index)
        {
            self.next = above(&self.slices, index);
        }
        match (self.next, other) {
            (Some(index), other) if other.is_none_or(|other| other < index) => {
                self.next = above(&self.slices, index);
                Some(index)
            }
            (_, Some(other)) => {
                self.moved = &self.moved[..self.moved.len() - 1];
                Some(other)
            }
            _ => None,
        }
    }
}

/// The run as a whole.
impl Trace {
    /// Returns the files in the order in which they were added.
    pub fn files(&self) -> &[FileFacts] {
        &self.files
    }

    /// Returns the clock of the run: the origin of the file that begins first, and the Unix time of
    /// [`Time::ZERO`].
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the first start and last end of the slices that files hold (neither async nor
    /// derived), or `None` if there are none.
    pub fn slice_span(&self) -> Option<Range<Time>> {
        self.slice_span.clone()
    }

    /// Lists the files that hold the recording of a process: all but logs of compilations.
    pub fn recordings(&self) -> impl Iterator<Item = usize> {
        let files = self.files.iter().enumerate();
        let recordings = files.filter(|(_, file)| !file.is_compile_log());
        recordings.map(|(number, _)| number)
    }

    /// Returns the first and last time of all events; empty for an empty trace.
    pub fn span(&self) -> Range<Time> {
        self.span.clone()
    }

    /// Returns the [`span`](Self::span) without logs of compilations that accompany a recording, and without a
    /// few events whose times are damaged and far from all others: the duration of the recording, and the range to show first.
    pub fn core_span(&self) -> Range<Time> {
        self.core.clone()
    }

    /// Returns the text of a name, or an empty string for an unknown id.
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id.index())
    }

    /// Returns the number of distinct names, which may include categories and texts of arguments.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Returns the ids of all names for which `matches` is true. Calls it once per distinct name.
    pub fn find_names(&self, matches: &mut dyn FnMut(&str) -> bool) -> Vec<NameId> {
        (0..self.names.len())
            .filter(|index| matches(self.names.get(*index)))
            .filter_map(|index| u32::try_from(index).ok().map(NameId))
            .collect()
    }

    /// Returns the step markers in time order.
    pub fn step_marks(&self) -> &[StepMark] {
        &self.steps
    }

    /// Returns the diagnostics to show to the user.
    pub fn diagnostics(&self) -> &[DiagnosticCount] {
        &self.diagnostics
    }

    /// Counts slices by category over all files, in the order of the categories' ids. Async and
    /// derived slices are excluded.
    pub fn by_category(&self) -> Vec<(NameId, u64)> {
        self.by_category.clone()
    }

    /// Returns the number of slices, async and derived ones included.
    pub fn slice_count(&self) -> u64 {
        u64::from(self.first_slice.last().copied().unwrap_or(0))
    }

    /// Returns the number of slices and instants; every id is below it.
    pub fn event_count(&self) -> u32 {
        self.first_instant.last().copied().unwrap_or(0)
    }

    /// Returns the memory used by columns, names and links in bytes, without views of a cache
    /// image.
    pub fn heap_bytes(&self) -> usize {
        let attached: usize = self.attached().iter().map(|trace| trace.heap_bytes()).sum();
        let tables: usize = self.tables.iter().map(TrackTable::heap_bytes).sum();
        let texts: usize = self
            .tracks
            .iter()
            .map(|track| track.key.capacity() + track.name.capacity())
            .sum();
        tables
            + attached
            + texts
            + size_of_val(self.tracks.as_slice())
            + size_of_val(self.tables.as_slice())
            + 12 * self.tracks.len()
            + self.names.heap_bytes()
            + self.flows.heap_bytes()
            + size_of_val(self.steps.as_slice())
            + self.kinds.heap_bytes()
    }
}

/// Tracks and their columns.
impl Trace {
    /// Returns all tracks: groups before their members, siblings in display order.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Returns the track with this key.
    pub fn track_by_key(&self, key: &str) -> Option<TrackId> {
        let key_of = |id: &u32| {
            self.tracks
                .get(*id as usize)
                .map(|track| track.key.as_str())
        };
        let at = self.by_key.partition_point(|id| key_of(id) < Some(key));
        let id = self.by_key.get(at)?;
        (key_of(id) == Some(key)).then_some(TrackId(*id))
    }

    pub(crate) fn table(&self, track: TrackId) -> Option<&TrackTable> {
        self.tables.get(track.index())
    }

    /// Returns the slices of a track; none for an unknown track.
    pub fn slices(&self, track: TrackId) -> Slices<'_> {
        let first = self.first_slice.get(track.index()).copied();
        let Some(slices) = self.table(track).map(|table| &table.slices) else {
            return Slices {
                first_id: EventId(0),
                start: &[],
                dur: &[],
                name: &[],
                category: Categories::One(NameId::EMPTY),
                depth: &[],
                parent: &[],
            };
        };
        Slices {
            first_id: EventId(first.unwrap_or(0)),
            start: &slices.start,
            dur: &slices.dur,
            name: &slices.name,
            category: (&slices.category).into(),
            depth: &slices.depth,
            parent: &slices.parent,
        }
    }

    /// Returns the instants of a track.
    pub fn instants(&self, track: TrackId) -> Instants<'_> {
        let first = self.first_instant.get(track.index()).copied();
        match self.table(track).and_then(|table| table.instants.as_ref()) {
            Some(instants) => Instants {
                first_id: EventId(first.unwrap_or(0)),
                at: &instants.at,
                name: &instants.name,
                category: (&instants.category).into(),
            },
            None => Instants {
                first_id: EventId(first.unwrap_or(0)),
                at: &[],
                name: &[],
                category: Categories::One(NameId::EMPTY),
            },
        }
    }

    /// Returns the samples of a counter.
    pub fn samples(&self, track: TrackId) -> Samples<'_> {
        match self.table(track).and_then(|table| table.samples.as_ref()) {
            Some(samples) => Samples {
                at: &samples.at,
                value: &samples.value,
            },
            None => Samples {
                at: &[],
                value: &[],
            },
        }
    }

    /// Returns the display row of each slice of the track; `None` if every row equals the depth.
    pub fn rows(&self, track: TrackId) -> Option<&[u16]> {
        self.table(track)
            .map(|table| &*table.slices.row)
            .filter(|rows| !rows.is_empty())
    }

    /// Computes the self time of each slice of the track: its length minus the time that its direct
    /// children cover. One pass over the columns.
    pub fn self_times(&self, track: TrackId) -> Vec<Dur> {
        let slices = self.slices(track);
        let mut self_times = slices.dur.to_vec();
        for (index, parent) in slices.parent.iter().enumerate() {
            if *parent == TOP {
                continue;
            }
            let parent = *parent as usize;
            let covered = covered(&slices, index, parent);
            if let Some(time) = self_times.get_mut(parent) {
                *time = Dur::from_ps(time.ps().saturating_sub(covered.ps()));
            }
        }
        self_times
    }

    /// Returns the indexes of slices that may intersect the window, in start order. The range
    /// contains every slice that does. Callers must still check the ends, since long slices that
    /// began earlier extend the range to the left.
    pub fn candidates(&self, track: TrackId, window: Range<Time>) -> Range<usize> {
        let Some(table) = self.table(track).map(|table| &table.slices) else {
            return 0..0;
        };
        let end = table.begun_before(window.end);
        let begin = table.start.partition_point(|start| *start < window.start);
        let first = table.open().first_open_at(window.start).unwrap_or(begin);
        first.min(begin).min(end)..end
    }

    /// Returns the overlapping slices of a track; `None` if all slices nest. One pass over a
    /// column.
    pub fn overlapping(&self, track: TrackId) -> Option<Overlapping> {
        let facts = self.tracks.get(track.index())?;
        let rows = self.rows(track).filter(|_| facts.overflow_rows > 0)?;
        let nested = facts.rows.saturating_sub(facts.overflow_rows);
        let slices = self.slices(track);
        let mut latest = Time::MIN;
        let moved = (0_u32..).zip(rows).filter(|(_, row)| **row >= nested);
        let moved = moved.map(|(index, _)| {
            latest = latest.max(slices.end(index as usize));
            (index, latest)
        });
        Some(Overlapping {
            moved: moved.collect(),
        })
    }

    /// Returns the indexes of the slices of a track that began at or before a time and end at or
    /// after it, latest start first: the open slices, innermost first. `others` is the result of
    /// [`overlapping`](Self::overlapping) for the track: the chain of parents does not contain
    /// those slices.
    #[inline]
    pub fn around<'a>(
        &'a self,
        track: TrackId,
        at: Time,
        others: Option<&'a Overlapping>,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let slices = self.slices(track);
        let begun = slices.start.partition_point(|start| *start <= at);
        Around::new(slices, begun, at, others)
    }

    /// Returns the same as [`around`](Self::around), for queries at many times: `near` (initially
    /// 0) stores where the last search on the track ended, which shortens the next one.
    #[inline]
    pub fn around_near<'a>(
        &'a self,
        track: TrackId,
        at: Time,
        others: Option<&'a Overlapping>,
        near: &mut usize,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let slices = self.slices(track);
        let begun = galloping_search(slices.len(), *near, |index| slices.start[index] <= at);
        *near = begun;
        Around::new(slices, begun, at, others)
    }

    /// Returns the kind of all slices with this name and category on this track; cached.
    pub fn kind(&self, track: TrackId, name: NameId, category: NameId) -> SliceKind {
        let Some(track) = self.tracks.get(track.index()) else {
            return SliceKind::Other;
        };
        let page = self.kinds.page(category, track.kind);
        kinds::look_up(page, name, || {
            SliceKind::from_name(self.name(name), self.name(category), track.kind)
        })
    }
}

/// Single events.
impl Trace {
    /// Returns the track of an event, its index there, and whether it is an instant.
    pub(super) fn locate(&self, id: EventId) -> Option<(TrackId, usize, bool)> {
        let slices = self.first_slice.last().copied().unwrap_or(0);
        let (first_ids, instant) = if id.0 < slices {
            (&self.first_slice, false)
        } else {
            (&self.first_instant, true)
        };
        // Of several tracks with the same first id, only the last one has events.
        let track = first_ids
            .partition_point(|first| *first <= id.0)
            .checked_sub(1)?;
        if track >= self.tracks.len() {
            return None;
        }
        let index = (id.0 - first_ids[track]) as usize;
        Some((TrackId(u32::try_from(track).ok()?), index, instant))
    }

    /// Returns the track of an event, or `None` for an unknown id.
    pub fn track_of(&self, id: EventId) -> Option<TrackId> {
        self.locate(id).map(|(track, ..)| track)
    }

    /// Returns the track of a slice and its index there, or `None` for an unknown id. Costs a
    /// search among the tracks, while [`Trace::event`] also visits the slices inside.
    pub fn place_of_slice(&self, id: EventId) -> Option<(TrackId, usize)> {
        let (track, index, instant) = self.locate(id)?;
        (!instant).then_some((track, index))
    }

    /// Returns the flags of the slice with this index on its track; none if out of range.
    pub fn slice_flags(&self, track: TrackId, index: usize) -> SliceFlags {
        let flags = self.table(track).map(|table| table.slices.flags.get(index));
        flags.map_or(SliceFlags::NONE, SliceFlags)
    }

    /// Returns all data of one event, or `None` for an unknown id. Its self time costs a pass over
    /// all slices that begin while it is open.
    pub fn event(&self, id: EventId) -> Option<Event> {
        let (track, index, instant) = self.locate(id)?;
        if instant {
            return self.instant_event(id, track, index);
        }
        let table = &self.table(track)?.slices;
        let slices = self.slices(track);
        let name = *slices.name.get(index)?;
        let category = slices.category.get(index);
        Some(Event {
            id,
            track,
            index,
            instant: false,
            start: *slices.start.get(index)?,
            dur: *slices.dur.get(index)?,
            self_time: self_time(&slices, index),
            name,
            category,
            depth: *slices.depth.get(index)?,
            row: table.row(index),
            parent: table.parent(index).map(|parent| slices.id(parent)),
            kind: self.kind(track, name, category),
            flags: SliceFlags(table.flags.get(index)),
            step: table.step(index),
            args: self.arg_ref(track, table.args.bits(index)),
        })
    }

    fn instant_event(&self, id: EventId, track: TrackId, index: usize) -> Option<Event> {
        let table = self.table(track)?.instants.as_ref()?;
        let name = *table.name.get(index)?;
        let category = table.category.get(index);
        Some(Event {
            id,
            track,
            index,
            instant: true,
            start: *table.at.get(index)?,
            dur: Dur::ZERO,
            self_time: Dur::ZERO,
            name,
            category,
            depth: 0,
            row: 0,
            parent: None,
            kind: self.kind(track, name, category),
            flags: SliceFlags::NONE,
            step: None,
            args: self.arg_ref(track, table.args.bits(index)),
        })
    }

    /// Returns the events before and after this one on the same display row of its track; for an
    /// instant, the instants before and after it on its track.
    ///
    /// Skips the events between them on other rows, hence O(n) in the worst case.
    pub fn prev_next(&self, id: EventId) -> (Option<EventId>, Option<EventId>) {
        let Some((track, index, instant)) = self.locate(id) else {
            return (None, None);
        };
        if instant {
            let count = self.instants(track).at.len();
            return (
                index.checked_sub(1).map(|_| EventId(id.0 - 1)),
                (index + 1 < count).then(|| EventId(id.0 + 1)),
            );
        }
        let Some(table) = self.table(track).map(|table| &table.slices) else {
            return (None, None);
        };
        let slices = self.slices(track);
        let row = table.row(index);
        let same_row = |other: &usize| table.row(*other) == row;
        let before = (0..index).rev().find(same_row);
        let after = (index + 1..slices.len()).find(same_row);
        (
            before.map(|before| slices.id(before)),
            after.map(|after| slices.id(after)),
        )
    }

    /// Returns the first direct child of the slice.
    pub fn first_child(&self, id: EventId) -> Option<EventId> {
        let (track, index, instant) = self.locate(id)?;
        if instant {
            return None;
        }
        let slices = self.slices(track);
        inside(&slices, index)
            .find(|child| {
                slices
                    .parent
                    .get(*child)
                    .is_some_and(|p| *p as usize == index)
            })
            .map(|child| slices.id(child))
    }
}

/// Links.
impl Trace {
    /// Returns the links that arrive at the event, in time order.
    pub fn flows_in(&self, id: EventId) -> Vec<FlowEdge> {
        self.flows.arriving(id)
    }

    /// Returns the sources of the links that arrive at the event, in time order. For queries of
    /// many events in sequence: it allocates nothing, and `near` (initially 0) stores where the
    /// last search ended, which shortens the next one.
    pub fn flow_sources(
        &self,
        id: EventId,
        near: &mut usize,
    ) -> impl Iterator<Item = EventId> + use<'_> {
        self.flows.sources(id, near)
    }

    /// Returns target and source of the links that arrive at a range of the slices of a track, in order of the targets;
    /// a target is an index on the track.
    pub fn flows_into(
        &self,
        track: TrackId,
        indexes: Range<usize>,
    ) -> impl Iterator<Item = (usize, EventId)> + use<'_> {
        let slices = self.slices(track);
        let first = slices.first_id.0;
        let ids = slices.id(indexes.start).0..slices.id(indexes.end).0;
        let arriving = self.flows.arriving_at(ids);
        arriving.map(move |(to, from)| ((to.0 - first) as usize, from))
    }

    /// Returns all links in the order of the events that they leave, then of time.
    pub fn flow_edges(&self) -> impl Iterator<Item = FlowEdge> + use<'_> {
        self.flows.edges()
    }

    /// Returns the links that leave the event, in time order.
    pub fn flows_out(&self, id: EventId) -> Vec<FlowEdge> {
        self.flows.leaving(id)
    }

    /// Counts distinct flow keys with both a start and an end; unlinked ends are a diagnostic.
    pub fn flow_count(&self) -> u64 {
        self.flows.complete
    }

    /// Returns the number of links.
    pub fn flow_edge_count(&self) -> usize {
        self.flows.from.len()
    }
}

/// Returns the indexes of slices that begin while this one is open.
fn inside(slices: &Slices<'_>, index: usize) -> Range<usize> {
    let end = slices.end(index);
    let after = slices.start.partition_point(|start| *start < end);
    // Zero-length slices nest in a slice that begins and ends with them.
    let begin = slices.start.get(index).copied().unwrap_or(Time::MAX);
    let with_it = slices.start.partition_point(|start| *start <= begin);
    index + 1..after.max(with_it).max(index + 1)
}

/// Returns the time of the parent that a child covers.
fn covered(slices: &Slices<'_>, child: usize, parent: usize) -> Dur {
    let end = slices.end(child).min(slices.end(parent));
    let start = slices.start.get(child).copied().unwrap_or(end);
    Dur::from_ps(end.since(start).ps().max(0))
}

fn self_time(slices: &Slices<'_>, index: usize) -> Dur {
    let children = inside(slices, index)
        .filter(|child| {
            slices
                .parent
                .get(*child)
                .is_some_and(|p| *p as usize == index)
        })
        .map(|child| covered(slices, child, index).ps())
        .fold(0, i64::saturating_add);
    let dur = slices.dur.get(index).copied().unwrap_or_default();
    Dur::from_ps(dur.ps().saturating_sub(children))
}
