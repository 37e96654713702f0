//! Headers of lines: name, start time and number of events.
//!
//! A line's display name comes after its events in the file, so a scan reads each line once without
//! decoding events. The scan also records where a long line may be split into *segments*: a new
//! segment starts at the first event after every [`STRETCH_BYTES`] of the line.
//!
//! One line can hold nearly all of a file, and only the scan finds the start of each event. So
//! several threads scan a long line in *parts*. The scan of a part starts at a position that looks
//! like the start of a sequence of events ([`guess`]). If the part before it ends exactly there,
//! the guess was right and its result is used; otherwise the part is scanned again from its real
//! start. Either way the header equals that of a single scan.

use super::event_framing::{EVENT_TAG, delimited};
use super::span::Span;
use crate::protobuf::wire::{Fault, Fields, Value};
use crate::xspace::wire::line;

/// Approximate size of a segment.
pub(crate) const STRETCH_BYTES: usize = 1 << 20;
/// Approximate size of a part of a long line.
const PART_BYTES: usize = 8 * STRETCH_BYTES;
/// Number of consecutive events that makes a guess reliable.
const ROW: usize = 64;
/// Number of bytes that a guess searches.
const GUESS_BYTES: usize = 64 << 10;

/// A segment: a range of a line that starts and ends at a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockSegment {
    pub(crate) span: Span,
    /// Number of events that start in it.
    pub(crate) events: usize,
}

/// The header of a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineHead {
    pub(crate) id: i64,
    pub(crate) display_id: i64,
    pub(crate) name: Span,
    pub(crate) display_name: Span,
    pub(crate) timestamp_ns: i64,
    /// Number of its events.
    pub(crate) events: u64,
    /// Segments of the line.
    pub(crate) segments: Vec<ClockSegment>,
    /// Position and reason at which the scan stopped, if it did.
    pub(crate) fault: Option<(usize, Fault)>,
}

impl LineHead {
    /// Returns the name to display.
    pub(crate) fn shown_name(&self) -> Span {
        if self.display_name.len() == 0 {
            self.name
        } else {
            self.display_name
        }
    }

    /// Returns the id that viewers show: the display id if there is one.
    pub(crate) fn shown_id(&self) -> i64 {
        if self.display_id == 0 {
            self.id
        } else {
            self.display_id
        }
    }
}

/// A scan task: a whole line or a part of a long one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinePart {
    line: Span,
    /// Presumed start of the part; a guess unless it is the line's first part.
    from: usize,
    /// The part ends at the first field at or after this offset.
    until: usize,
}

impl LinePart {
    pub(crate) fn len(self) -> usize {
        self.until - self.from
    }
}

/// Splits a line into parts for parallel scans.
pub(crate) fn parts(file: &[u8], line: Span) -> Vec<LinePart> {
    let mut begins = vec![line.start()];
    let mut wanted = line.start() + PART_BYTES;
    while wanted + PART_BYTES / 2 < line.end() {
        begins.extend(guess(file, wanted, line.end()));
        wanted += PART_BYTES;
    }
    let ends = begins.iter().skip(1).copied().chain([line.end()]);
    begins
        .iter()
        .zip(ends)
        .map(|(from, until)| LinePart {
            line,
            from: *from,
            until,
        })
        .collect()
}

/// Returns a position at or after `wanted` that most likely starts an event: the end of a sequence
/// of consecutive events.
fn guess(file: &[u8], wanted: usize, end: usize) -> Option<usize> {
    let look = file.get(wanted..end.min(wanted + GUESS_BYTES))?;
    let candidates = look
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == EVENT_TAG);
    candidates.map(|(at, _)| wanted + at).find_map(|mut at| {
        for _ in 0..ROW {
            if file.get(at) != Some(&EVENT_TAG) {
                return None;
            }
            at = delimited(file, at + 1, end).ok()?.1;
        }
        Some(at).filter(|at| *at < end.min(wanted + PART_BYTES))
    })
}

/// Result of scanning a part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walked {
    from: usize,
    /// Offset of the first field after the scanned ones.
    end: usize,
    id: Option<i64>,
    display_id: Option<i64>,
    name: Option<Span>,
    display_name: Option<Span>,
    timestamp_ns: Option<i64>,
    events: usize,
    /// Events that can start a segment: the first of each grid cell that the part reaches.
    begins: Vec<Begin>,
    fault: Option<(usize, Fault)>,
}

/// The first event of a grid cell of [`STRETCH_BYTES`].
#[derive(Clone, Copy, Debug)]
struct Begin {
    cell: usize,
    at: usize,
    /// Number of events of the part before this one.
    events: usize,
}

impl Walked {
    /// Records the first event of a cell; returns the end of the cell.
    #[cold]
    fn begin(&mut self, line: Span, at: usize) -> usize {
        let cell = (at - line.start()) / STRETCH_BYTES;
        self.begins.push(Begin {
            cell,
            at,
            events: self.events,
        });
        line.start() + (cell + 1) * STRETCH_BYTES
    }
}

/// Scans one part.
pub(crate) fn walk(file: &[u8], part: LinePart) -> Walked {
    let mut found = Walked {
        from: part.from,
        ..Walked::default()
    };
    let line_end = part.line.end();
    let mut at = part.from;
    let mut cell_end = 0;
    while at < part.until {
        if file.get(at) == Some(&EVENT_TAG)
            && let Ok((_, next)) = delimited(file, at + 1, line_end)
        {
            if at >= cell_end {
                cell_end = found.begin(part.line, at);
            }
            found.events += 1;
            at = next;
            continue;
        }
        let mut fields = Fields::new(file.get(at..line_end).unwrap_or_default());
        let field = match fields.next() {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(fault) => {
                // Complete events before the fault are kept; the decoder ends at the same position.
                at += fields.at();
                found.fault = Some((at, fault));
                break;
            }
        };
        match (field.number, field.value) {
            (line::EVENTS, Value::Bytes(_)) => {
                let at = at + fields.begin();
                if at >= cell_end {
                    cell_end = found.begin(part.line, at);
                }
                found.events += 1;
            }
            (line::ID, Value::Varint(id)) => found.id = Some(id as i64),
            (line::DISPLAY_ID, Value::Varint(id)) => found.display_id = Some(id as i64),
            (line::NAME, Value::Bytes(name)) => found.name = Some(Span::locate(file, name)),
            (line::DISPLAY_NAME, Value::Bytes(name)) => {
                found.display_name = Some(Span::locate(file, name));
            }
            (line::TIMESTAMP_NS, Value::Varint(ns)) => found.timestamp_ns = Some(ns as i64),
            _ => {}
        }
        at += fields.at();
    }
    found.end = at;
    found
}

/// Joins the parts of a line.
pub(crate) fn join(file: &[u8], parts: impl IntoIterator<Item = (LinePart, Walked)>) -> LineHead {
    let mut head = LineHead::default();
    let mut begins: Vec<(usize, u64)> = Vec::new();
    let mut last_cell = None;
    let mut end = None;
    for (part, mut walked) in parts {
        if head.fault.is_some() {
            break;
        }
        let from = end.unwrap_or(walked.from);
        if from != walked.from {
            walked = walk(file, LinePart { from, ..part });
        }
        end = Some(walked.end);
        head.id = walked.id.unwrap_or(head.id);
        head.display_id = walked.display_id.unwrap_or(head.display_id);
        head.name = walked.name.unwrap_or(head.name);
        head.display_name = walked.display_name.unwrap_or(head.display_name);
        head.timestamp_ns = walked.timestamp_ns.unwrap_or(head.timestamp_ns);
        for begin in walked.begins {
            if last_cell.replace(begin.cell) != Some(begin.cell) {
                begins.push((begin.at, head.events + begin.events as u64));
            }
        }
        head.events += walked.events as u64;
        head.fault = walked.fault;
    }
    let last = (end.unwrap_or(0), head.events);
    let ends = begins.iter().skip(1).copied().chain([last]);
    head.segments = begins
        .iter()
        .zip(ends)
        .map(|((from, before), (to, after))| ClockSegment {
            span: Span::locate(file, file.get(*from..to).unwrap_or_default()),
            events: usize::try_from(after - before).unwrap_or(0),
        })
        .collect();
    head
}

/// Returns a line as one part.
pub(crate) fn whole(line: Span) -> LinePart {
    LinePart {
        line,
        from: line.start(),
        until: line.end(),
    }
}

/// Returns a line's header from a single scan.
pub(crate) fn scan(file: &[u8], line: Span) -> LineHead {
    let part = whole(line);
    join(file, [(part, walk(file, part))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::wire::{put_bytes, put_int};

    /// A line of some length: events of all sizes, a head in the middle, fields of no meaning.
    fn line(seed: u64, bytes: usize, nasty: bool) -> Vec<u8> {
        let mut state = seed;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut file = Vec::new();
        put_int(&mut file, line::ID, 7);
        while file.len() < bytes {
            let message: Vec<u8> = if nasty {
                // Bytes that look like events at every place.
                (0..random(200))
                    .map(|_| if random(3) == 0 { 2 } else { EVENT_TAG })
                    .collect()
            } else {
                (0..random(40))
                    .map(|_| random(256).to_le_bytes()[0])
                    .collect()
            };
            put_bytes(&mut file, line::EVENTS, &message);
            if random(5_000) == 0 {
                put_bytes(&mut file, line::DISPLAY_NAME, &message);
                put_int(&mut file, line::TIMESTAMP_NS, random(1 << 40) as i64);
                put_int(&mut file, 9, -1);
            }
        }
        file
    }

    fn in_parts(file: &[u8], line: Span) -> (LineHead, usize) {
        let parts = parts(file, line);
        let count = parts.len();
        (
            join(file, parts.into_iter().map(|part| (part, walk(file, part)))),
            count,
        )
    }

    fn check(file: &[u8]) -> usize {
        let whole = Span::locate(file, file);
        let one = scan(file, whole);
        let (many, parts) = in_parts(file, whole);
        assert_eq!(format!("{one:?}"), format!("{many:?}"));
        let counted: usize = one.segments.iter().map(|stretch| stretch.events).sum();
        assert_eq!(counted as u64, one.events);
        parts
    }

    #[test]
    fn parts_find_what_one_walk_finds() {
        for nasty in [false, true] {
            let file = line(3, 5 * PART_BYTES, nasty);
            assert!(check(&file) >= 3);
            // Cut anywhere, and damaged anywhere: parts behind the fault do not count.
            for at in [PART_BYTES - 1, PART_BYTES + 7, 3 * PART_BYTES + 11] {
                check(&file[..at]);
                let mut damaged = file.clone();
                damaged[at..at + 12].fill(0xff);
                check(&damaged);
            }
        }
    }

    #[test]
    fn one_event_across_all_parts_is_one_event() {
        let mut inner = Vec::new();
        while inner.len() < 4 * PART_BYTES {
            put_bytes(&mut inner, line::EVENTS, &[8, 1]);
        }
        let mut file = Vec::new();
        put_bytes(&mut file, line::EVENTS, &inner);
        put_bytes(&mut file, line::EVENTS, &[8, 1]);
        assert!(check(&file) > 1);
        assert_eq!(scan(&file, Span::locate(&file, &file)).events, 2);
    }
}
