//! The file as streams: events, texts, and the index of texts. Pages of the three alternate in the
//! file.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use stepscope_model::{Diagnostic, EventSink};

use crate::FormatError;

/// Size of the header of the file and of each stream: four letters and a version.
const HEADER_BYTES: usize = 8;
/// Tags of pages.
mod page {
    pub(super) const EVENTS: u8 = 0;
    pub(super) const TEXTS: u8 = 1;
    pub(super) const INDEX: u8 = 2;
}
/// Ids up to this one are looked up in the index.
const LAST_VIRTUAL_ID: u64 = METADATA_ID;
/// Id of the text about the whole recording.
const METADATA_ID: u64 = 100_000_001;
/// This id stands for the first byte of the stream of texts.
const FIRST_ADDRESS_ID: u64 = METADATA_ID + 2;
/// Ends a text.
const TERMINATOR: u8 = 0xff;
/// Begins a reference to another text.
const REFERENCE: u8 = 0xfe;
/// Maximum number of texts that refer to each other in a row.
const MAX_NESTING: usize = 32;
/// Maximum number of bytes of a text; a text could refer to a long one many times.
const MAX_TEXT_BYTES: usize = 4_096;
/// Maximum number of references in one text.
const MAX_REFERENCES: usize = 256;

/// What an event holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// Start and end, nanoseconds since the recording began.
    Interval(u64, u64),
    /// Nanoseconds since the recording began.
    Instant(u64),
    /// A number without a time.
    Value(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Id of the text of its kind.
    pub(super) kind: u64,
    /// Id of its label and arguments.
    pub(super) label: u64,
    pub(super) thread: u32,
    pub(super) payload: Payload,
}

/// The streams of a file.
pub(super) struct Streams<'a> {
    /// Whether ids have 8 bytes (version 9) or 4 (version 8).
    is_wide: bool,
    events: Cow<'a, [u8]>,
    texts: Cow<'a, [u8]>,
    /// Offset of a text in the stream, by id.
    index: FxHashMap<u64, u64>,
    is_cut: bool,
    unknown_pages: u64,
}

impl<'a> Streams<'a> {
    /// Splits a file. A page that is cut is read as far as it goes.
    pub(super) fn split(file: &'a [u8]) -> Result<Self, FormatError> {
        let malformed = |reason: String| FormatError::Malformed { reason, offset: 0 };
        let header = file.first_chunk::<HEADER_BYTES>();
        let is_wide = match header {
            Some([b'M', b'M', b'P', b'D', version @ ..]) => match u32::from_le_bytes(*version) {
                8 => false,
                9 => true,
                other => {
                    let reason =
                        format!("version {other} of the format; versions 8 and 9 are read");
                    return Err(malformed(reason));
                }
            },
            Some([b'M', b'M', b'E' | b'S', ..]) => {
                let reason = "a part of a profile of an old compiler, which writes three files";
                return Err(malformed(reason.to_owned()));
            }
            _ => return Err(malformed("no header of a self-profile".to_owned())),
        };
        let (mut events, mut texts, mut index) = (Cow::default(), Cow::default(), Cow::default());
        let (mut is_cut, mut unknown_pages) = (false, 0);
        let mut rest = file.get(HEADER_BYTES..).unwrap_or_default();
        while let Some(([tag, length @ ..], body)) = rest.split_first_chunk::<5>() {
            let length = u32::from_le_bytes(*length) as usize;
            is_cut |= length > body.len();
            let (content, after) = body.split_at(length.min(body.len()));
            match *tag {
                page::EVENTS => append(&mut events, content),
                page::TEXTS => append(&mut texts, content),
                page::INDEX => append(&mut index, content),
                _ => unknown_pages += 1,
            }
            rest = after;
        }
        is_cut |= !rest.is_empty();
        let mut streams = Self {
            is_wide,
            events,
            texts,
            index: FxHashMap::default(),
            is_cut,
            unknown_pages,
        };
        let id_bytes = streams.id_bytes();
        let entries = index.get(HEADER_BYTES..).unwrap_or_default();
        for entry in entries.chunks_exact(2 * id_bytes) {
            let (id, address) = entry.split_at(id_bytes);
            streams.index.insert(number(id), number(address));
        }
        Ok(streams)
    }

    /// Copies what borrows from the file.
    pub(super) fn into_owned(self) -> Streams<'static> {
        Streams {
            is_wide: self.is_wide,
            events: Cow::Owned(self.events.into_owned()),
            texts: Cow::Owned(self.texts.into_owned()),
            index: self.index,
            is_cut: self.is_cut,
            unknown_pages: self.unknown_pages,
        }
    }

    const fn id_bytes(&self) -> usize {
        if self.is_wide { 8 } else { 4 }
    }

    const fn event_bytes(&self) -> usize {
        2 * self.id_bytes() + 16
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len().saturating_sub(HEADER_BYTES) / self.event_bytes()
    }

    /// Decodes an event.
    pub(super) fn event(&self, number_of_event: usize) -> Option<Event> {
        /// These ends mark events without a duration.
        const INSTANT: u64 = 0xffff_ffff_ffff;
        const VALUE: u64 = INSTANT - 1;
        let size = self.event_bytes();
        let start = number_of_event
            .checked_mul(size)?
            .checked_add(HEADER_BYTES)?;
        let record = self.events.get(start..start.checked_add(size)?)?;
        let (kind, rest) = record.split_at_checked(self.id_bytes())?;
        let (label, rest) = rest.split_at_checked(self.id_bytes())?;
        let field = |at: usize| Some(number(rest.get(4 * at..4 * at + 4)?));
        let (first, second, upper) = (field(1)?, field(2)?, field(3)?);
        let first = first | (upper & 0xffff_0000) << 16;
        let second = second | (upper & 0xffff) << 32;
        Some(Event {
            kind: number(kind),
            label: number(label),
            thread: u32::try_from(field(0)?).ok()?,
            payload: match second {
                INSTANT => Payload::Instant(first),
                VALUE => Payload::Value(first),
                end => Payload::Interval(first, end),
            },
        })
    }

    /// Returns the JSON text about the whole recording; empty if the file does not have it.
    pub(super) fn metadata(&self) -> String {
        self.text(METADATA_ID).unwrap_or_default()
    }

    /// Returns a text, at most [`MAX_TEXT_BYTES`] of it; `None` if the file does not have it.
    pub(super) fn text(&self, id: u64) -> Option<String> {
        let mut out = Vec::new();
        let mut references = MAX_REFERENCES;
        // Where to go on after the text that is referred to.
        let mut open = vec![self.address(id)?];
        while let Some(at) = open.last_mut() {
            if out.len() >= MAX_TEXT_BYTES {
                break;
            }
            let rest = self.texts.get(*at..).unwrap_or_default();
            let end = memchr::memchr2(TERMINATOR, REFERENCE, rest).unwrap_or(rest.len());
            let plain = rest.get(..end).unwrap_or_default();
            out.extend_from_slice(plain);
            let is_reference = rest.get(end) == Some(&REFERENCE);
            let id_range = end + 1..end + 1 + self.id_bytes();
            let target = rest.get(id_range).filter(|_| is_reference).map(number);
            let Some(target) = target else {
                open.pop();
                continue;
            };
            *at += end + 1 + self.id_bytes();
            if references == 0 || open.len() >= MAX_NESTING {
                break;
            }
            references -= 1;
            open.extend(self.address(target));
        }
        Some(crate::cprofile::truncated(&String::from_utf8_lossy(&out)))
    }

    /// Returns the offset of a text in the stream.
    fn address(&self, id: u64) -> Option<usize> {
        let address = if id <= LAST_VIRTUAL_ID {
            *self.index.get(&id)?
        } else {
            id.checked_sub(FIRST_ADDRESS_ID)?
        };
        let address = usize::try_from(address).ok()?;
        (HEADER_BYTES..self.texts.len())
            .contains(&address)
            .then_some(address)
    }

    /// Reports what the container lacks.
    pub(super) fn diagnose<S: EventSink>(&self, sink: &mut S) {
        if self.is_cut {
            sink.diagnose(Diagnostic::Truncated, 1, "the last page is cut");
        }
        if self.unknown_pages > 0 {
            let detail = "pages of an unknown kind";
            sink.diagnose(Diagnostic::Unreadable, self.unknown_pages, detail);
        }
    }
}

/// Appends a page to a stream; the first page is borrowed.
fn append<'a>(stream: &mut Cow<'a, [u8]>, page: &'a [u8]) {
    if stream.is_empty() {
        *stream = Cow::Borrowed(page);
    } else {
        stream.to_mut().extend_from_slice(page);
    }
}

/// Reads a little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
