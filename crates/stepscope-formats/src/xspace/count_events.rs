//! Counts of planes, lines and events, without decoding events.

use super::wire::{line, plane, space};
use crate::protobuf::wire::{Fault, Fields};

/// Contents of an `XSpace`, counted by skipping over the fields: a few nanoseconds per event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Planes.
    pub planes: u64,
    /// Lines of all planes.
    pub lines: u64,
    /// Events of all lines.
    pub events: u64,
    /// Offset in the file of an unreadable part, and the reason. The counts cover the part before
    /// it.
    pub fault: Option<(u64, &'static str)>,
}

/// Counts the planes, lines and events of `file`.
///
/// ```
/// use stepscope_formats::xspace::count_events;
///
/// // A plane with one line with two events.
/// let file = [0x0a, 6, 0x1a, 4, 0x22, 0, 0x22, 0];
/// assert_eq!((count_events(&file).planes, count_events(&file).events), (1, 2));
/// assert!(count_events(&file[..7]).fault.is_some());
/// assert!(count_events(b"<html>").fault.is_some());
/// ```
pub fn count_events(file: &[u8]) -> EventCounts {
    let mut found = EventCounts::default();
    walk(
        file,
        file,
        space::PLANES,
        &mut |plane, found| {
            found.planes += 1;
            walk(
                file,
                plane,
                plane::LINES,
                &mut |line, found| {
                    found.lines += 1;
                    walk(
                        file,
                        line,
                        line::EVENTS,
                        &mut |_, found| found.events += 1,
                        found,
                    );
                },
                found,
            );
        },
        &mut found,
    );
    found
}

/// Visits each field `number` of `message`, a slice of `file`.
fn walk<'a>(
    file: &[u8],
    message: &'a [u8],
    number: u32,
    visit: &mut dyn FnMut(&'a [u8], &mut EventCounts),
    found: &mut EventCounts,
) {
    let mut fields = Fields::new(message);
    let fault: Fault = loop {
        match fields.next() {
            Ok(Some(field)) => {
                if field.number == number
                    && let Some(inner) = field.value.bytes()
                {
                    visit(inner, found);
                }
            }
            Ok(None) => return,
            Err(fault) => break fault,
        }
    };
    if found.fault.is_none() {
        let offset = crate::protobuf::wire::offset_in(file, message) + fields.at();
        found.fault = Some((offset as u64, fault.text()));
    }
}

/// Returns the profiler's own messages, errors first: at most `most` texts, each truncated to a
/// readable length.
pub fn messages(file: &[u8], most: usize) -> Vec<String> {
    const MAX_BYTES: usize = 4_096;
    let mut found = Vec::new();
    for number in [space::ERRORS, space::WARNINGS] {
        let mut fields = Fields::new(file);
        while found.len() < most
            && let Some(field) = fields.next_lenient()
        {
            if field.number == number
                && let Some(text) = field.value.bytes()
            {
                let text = text.get(..MAX_BYTES).unwrap_or(text);
                found.push(String::from_utf8_lossy(text).into_owned());
            }
        }
    }
    found
}
