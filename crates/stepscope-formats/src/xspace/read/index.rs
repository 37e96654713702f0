//! Framing: finds the positions of all parts of an `XSpace` without decoding lines.
//!
//! Writers put the metadata of a plane after its lines, so a first pass over the plane's fields
//! skips the lines and finds the metadata. The index stores offsets instead of references, because
//! it outlives the read as part of the argument source. Its memory is proportional to the metadata
//! and the number of lines, and independent of the number of events. An index entry takes a hundred
//! times the two bytes that an empty plane or line takes in the file, so their number has a limit.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::Diagnostic;

use crate::protobuf::wire::{Fault, Fields, Value, offset_in};
use crate::xspace::read::line_header;
use crate::xspace::read::span::Span;
use crate::xspace::well_known_stats::{Meaning, Role};
use crate::xspace::wire::{entry, metadata, plane, space};

/// Map from ids in the file to items. A large id never causes a large allocation.
#[derive(Debug)]
pub(crate) struct IdMap<T> {
    items: Vec<T>,
    /// Index into `items` plus one, by id, when the ids are small and dense.
    dense: Vec<u32>,
    sparse: FxHashMap<i64, u32>,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            dense: Vec::new(),
            sparse: FxHashMap::default(),
        }
    }
}

impl<T> IdMap<T> {
    /// Builds the map. For duplicate ids the later item counts, as in any protobuf map.
    fn new(ids: &[i64], items: Vec<T>) -> Self {
        let room = ids.len() as u64 * 4 + 64;
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX - 1) + 1;
        let mut map = Self {
            items,
            ..Self::default()
        };
        if ids.iter().all(|id| (*id as u64) < room) {
            for (index, id) in ids.iter().enumerate() {
                let id = usize::try_from(*id).unwrap_or(0);
                if id >= map.dense.len() {
                    map.dense.resize(id + 1, 0);
                }
                if let Some(slot) = map.dense.get_mut(id) {
                    *slot = number(index);
                }
            }
        } else {
            for (index, id) in ids.iter().enumerate() {
                map.sparse.insert(*id, number(index));
            }
        }
        map
    }

    /// Returns the index of the item with this id.
    #[inline]
    pub(crate) fn index(&self, id: i64) -> Option<usize> {
        let number = if self.sparse.is_empty() {
            usize::try_from(id)
                .ok()
                .and_then(|id| self.dense.get(id))
                .copied()
                .unwrap_or(0)
        } else {
            self.sparse.get(&id).copied().unwrap_or(0)
        };
        (number as usize).checked_sub(1)
    }

    /// Returns the item with this id.
    #[inline]
    pub(crate) fn get(&self, id: i64) -> Option<&T> {
        self.items.get(self.index(id)?)
    }

    /// Returns the range of ids that the dense table covers.
    pub(crate) fn dense_ids(&self) -> Range<i64> {
        0..self.dense.len() as i64
    }

    /// Returns whether some ids are outside the dense table.
    pub(crate) fn is_sparse(&self) -> bool {
        !self.sparse.is_empty()
    }

    /// Returns all items, in the order of the file.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }
}

/// One `XEventMetadata`.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventMetadata {
    pub(crate) name: Span,
    pub(crate) display_name: Span,
    /// Range in [`PlaneIndex::metadata_stats`].
    pub(crate) stats: Range<u32>,
}

impl EventMetadata {
    /// Returns the name to display.
    pub(crate) fn shown_name(&self) -> Span {
        if self.display_name.len() == 0 {
            self.name
        } else {
            self.display_name
        }
    }

    /// Returns the name, if the displayed name is different.
    pub(crate) fn long_name<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let name = self.name.get(file);
        let shown = self.display_name.get(file);
        (!shown.is_empty() && !name.is_empty() && shown != name).then_some(name)
    }
}

/// One `XStatMetadata`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatMetadata {
    pub(crate) name: Span,
    pub(crate) meaning: Meaning,
}

/// Part of a plane's index that outlives the read.
#[derive(Debug, Default)]
pub(crate) struct PlaneIndex {
    /// Range of the whole message.
    pub(crate) span: Span,
    pub(crate) events: IdMap<EventMetadata>,
    pub(crate) stats: IdMap<StatMetadata>,
    /// `XStat` messages of all event metadata.
    pub(crate) metadata_stats: Vec<Span>,
}

impl PlaneIndex {
    /// Returns the stats of an event metadata.
    pub(crate) fn stats_of(&self, event: &EventMetadata) -> &[Span] {
        self.metadata_stats
            .get(event.stats.start as usize..event.stats.end as usize)
            .unwrap_or_default()
    }
}

/// Part of a plane's index that only the read needs.
#[derive(Debug, Default)]
pub(crate) struct PlaneFrame {
    pub(crate) id: i64,
    pub(crate) name: Span,
    pub(crate) lines: Vec<Span>,
    /// The plane's own `XStat` messages.
    pub(crate) stats: Vec<Span>,
}

/// A problem of the file, found while framing.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) what: Diagnostic,
    pub(crate) detail: String,
}

/// A framed file.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) indexes: Vec<PlaneIndex>,
    /// Frames of the planes, parallel to `indexes`.
    pub(crate) frames: Vec<PlaneFrame>,
    pub(crate) errors: Vec<Span>,
    pub(crate) warnings: Vec<Span>,
    pub(crate) hostnames: Vec<Span>,
    pub(crate) problems: Vec<Problem>,
    /// Position and reason at which framing stopped, if it did.
    pub(crate) fault: Option<(usize, Fault)>,
    /// Whether the file ends inside its last plane; that plane's last line may be truncated.
    pub(crate) cut: bool,
    /// Number of events in planes and lines beyond the limit; `None` if there are none.
    pub(crate) left_out: Option<u64>,
    /// Number of further planes and lines that fit.
    room: usize,
}

/// Frames a file: concatenated `XSpace` messages are read as one. Stores only the first `max_kept`
/// planes and lines together.
pub(crate) fn frame(file: &[u8], max_kept: usize) -> Space {
    let mut found = Space {
        room: max_kept,
        ..Space::default()
    };
    let mut fields = Fields::new(file);
    loop {
        match fields.next() {
            Ok(None) => break,
            Ok(Some(field)) => match (field.number, field.value) {
                (space::PLANES, Value::Bytes(plane)) => found.add_plane(file, plane, false),
                (space::ERRORS, Value::Bytes(text)) => found.errors.push(Span::locate(file, text)),
                (space::WARNINGS, Value::Bytes(text)) => {
                    found.warnings.push(Span::locate(file, text));
                }
                (space::HOSTNAMES, Value::Bytes(text)) => {
                    found.hostnames.push(Span::locate(file, text));
                }
                _ => {}
            },
            Err(fault) => {
                if let Fault::Cut {
                    number: space::PLANES,
                    missing,
                } = fault
                    && missing <= plausible_size(file)
                {
                    found.cut = true;
                    found.add_plane(file, fields.rest(), true);
                }
                found.fault = Some((fields.at(), fault));
                break;
            }
        }
    }
    found
}

/// Returns the maximum plausible length. A larger one means damage instead of truncation: no writer
/// makes planes of a terabyte.
fn plausible_size(file: &[u8]) -> u64 {
    (1 << 40) + file.len() as u64
}

impl Space {
    /// Reserves room for one plane or line; returns `false` if none is left.
    fn take_room(&mut self) -> bool {
        let left = self.room.checked_sub(1);
        self.room = left.unwrap_or(0);
        left.is_some()
    }

    /// Adds a line to a plane, or counts its events if there is no room.
    fn add_line(&mut self, file: &[u8], line: &[u8], frame: &mut PlaneFrame) {
        let line = Span::locate(file, line);
        if self.take_room() {
            frame.lines.push(line);
        } else {
            *self.left_out.get_or_insert(0) += line_header::scan(file, line).events;
        }
    }

    /// Counts the events of a plane beyond the limit.
    fn leave_out(&mut self, file: &[u8], message: &[u8]) {
        let mut events = 0;
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            if let (plane::LINES, Value::Bytes(line)) = (field.number, field.value) {
                events += line_header::scan(file, Span::locate(file, line)).events;
            }
        }
        *self.left_out.get_or_insert(0) += events;
    }

    /// Frames one plane; if the file ends inside it, includes the available part of its last field.
    fn add_plane(&mut self, file: &[u8], message: &[u8], cut: bool) {
        if !self.take_room() {
            return self.leave_out(file, message);
        }
        let mut index = PlaneIndex {
            span: Span::locate(file, message),
            ..PlaneIndex::default()
        };
        let mut frame = PlaneFrame::default();
        let (mut event_ids, mut events) = (Vec::new(), Vec::new());
        let (mut stat_ids, mut stats) = (Vec::new(), Vec::new());
        let mut fields = Fields::new(message);
        loop {
            match fields.next() {
                Ok(None) => break,
                Ok(Some(field)) => match (field.number, field.value) {
                    (plane::ID, Value::Varint(id)) => frame.id = id as i64,
                    (plane::NAME, Value::Bytes(name)) => frame.name = Span::locate(file, name),
                    (plane::LINES, Value::Bytes(line)) => self.add_line(file, line, &mut frame),
                    (plane::EVENT_METADATA, Value::Bytes(entry)) => {
                        let (id, item) = event_metadata(file, entry, &mut index.metadata_stats);
                        event_ids.push(id);
                        events.push(item);
                    }
                    (plane::STAT_METADATA, Value::Bytes(entry)) => {
                        let (id, item) = stat_metadata(file, entry);
                        stat_ids.push(id);
                        stats.push(item);
                    }
                    (plane::STATS, Value::Bytes(stat)) => {
                        frame.stats.push(Span::locate(file, stat));
                    }
                    _ => {}
                },
                Err(fault) => {
                    let rest = fields.rest();
                    if let Fault::Cut { number, .. } = fault
                        && number == plane::LINES
                    {
                        self.add_line(file, rest, &mut frame);
                    }
                    if !cut {
                        self.problems.push(Problem {
                            what: Diagnostic::Unreadable,
                            detail: format!(
                                "plane {:?}: {} at byte {}; what comes before it is shown",
                                String::from_utf8_lossy(frame.name.get(file)),
                                fault.text(),
                                offset_in(file, rest),
                            ),
                        });
                    }
                    break;
                }
            }
        }
        index.events = IdMap::new(&event_ids, events);
        index.stats = IdMap::new(&stat_ids, stats);
        self.indexes.push(index);
        self.frames.push(frame);
    }
}

/// Splits a map entry into its key and value; a missing part is 0 or empty. A missing key is
/// replaced with the value's own id.
fn map_entry(message: &[u8]) -> (Option<i64>, &[u8]) {
    let (mut key, mut value) = (None, &[][..]);
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (entry::KEY, Value::Varint(id)) => key = Some(id as i64),
            (entry::VALUE, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    (key, value)
}

fn event_metadata(
    file: &[u8],
    message: &[u8],
    metadata_stats: &mut Vec<Span>,
) -> (i64, EventMetadata) {
    let (key, value) = map_entry(message);
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let first = number(metadata_stats.len());
    let mut id = 0;
    let mut item = EventMetadata::default();
    let mut fields = Fields::new(value);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (metadata::ID, Value::Varint(own)) => id = own as i64,
            (metadata::NAME, Value::Bytes(name)) => item.name = Span::locate(file, name),
            (metadata::DISPLAY_NAME, Value::Bytes(name)) => {
                item.display_name = Span::locate(file, name);
            }
            (metadata::STATS, Value::Bytes(stat)) => metadata_stats.push(Span::locate(file, stat)),
            _ => {}
        }
    }
    item.stats = first..number(metadata_stats.len());
    (key.unwrap_or(id), item)
}

fn stat_metadata(file: &[u8], message: &[u8]) -> (i64, StatMetadata) {
    let (key, value) = map_entry(message);
    let mut id = 0;
    let (mut name, mut description) = (&[][..], &[][..]);
    let mut fields = Fields::new(value);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (metadata::ID, Value::Varint(own)) => id = own as i64,
            (metadata::NAME, Value::Bytes(bytes)) => name = bytes,
            (metadata::DESCRIPTION, Value::Bytes(bytes)) => description = bytes,
            _ => {}
        }
    }
    let item = StatMetadata {
        name: Span::locate(file, name),
        meaning: Meaning::new(name, description),
    };
    (key.unwrap_or(id), item)
}

impl PlaneIndex {
    /// Returns whether the metadata alone gives its events arguments.
    pub(crate) fn has_args(&self, file: &[u8], event: &EventMetadata) -> bool {
        event.long_name(file).is_some()
            || self.stats_of(event).iter().any(|stat| {
                crate::xspace::wire::stat(stat.get(file)).is_ok_and(|stat| {
                    self.stats
                        .get(stat.metadata_id)
                        .is_none_or(|metadata| !metadata.meaning.hidden)
                })
            })
    }

    /// Returns the role of a stat metadata.
    #[inline]
    pub(crate) fn role(&self, stat_metadata_id: i64) -> Role {
        self.stats
            .get(stat_metadata_id)
            .map_or(Role::Plain, |stat| stat.meaning.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_no_indexes() {
        let map = IdMap::new(&[1 << 62, -1, 0, 1 << 62], vec!['a', 'b', 'c', 'd']);
        assert_eq!(map.get(1 << 62), Some(&'d'));
        assert_eq!(map.get(-1), Some(&'b'));
        assert_eq!(map.get(0), Some(&'c'));
        assert_eq!(map.get(1), None);
        assert!(map.dense.is_empty());
        let map = IdMap::new(&[2, 1, 2], vec!['a', 'b', 'c']);
        assert_eq!(map.get(2), Some(&'c'));
        assert_eq!(map.get(0), None);
        assert_eq!(map.get(i64::MIN), None);
        assert!(map.sparse.is_empty());
    }
}
