//! Framing of an event in a line: its tag byte and its length.

use crate::protobuf::wire::{Fault, varint};
use crate::xspace::wire::line;

/// The tag byte of nearly every event of a line.
pub(crate) const EVENT_TAG: u8 = tag_byte(line::EVENTS, 2);

/// Returns the tag of a field with a number below 16.
pub(crate) const fn tag_byte(number: u32, wire_type: u32) -> u8 {
    (number << 3 | wire_type).to_le_bytes()[0]
}

/// Returns the length-delimited value whose length is at `at`, and the offset after it, at most
/// `end`.
#[inline]
pub(crate) fn delimited(file: &[u8], at: usize, end: usize) -> Result<(&[u8], usize), Fault> {
    let (length, begin) = varint(file, at)?;
    let stop = usize::try_from(length)
        .ok()
        .and_then(|length| begin.checked_add(length))
        .filter(|stop| *stop <= end)
        .ok_or(Fault::Ends)?;
    Ok((file.get(begin..stop).unwrap_or_default(), stop))
}
