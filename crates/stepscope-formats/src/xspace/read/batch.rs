//! Batches of plain events, the vast majority of events, collected in columns.
//!
//! A *plain* event has its three numbers in fewer than [`LONGEST`] bytes, no stats, and a metadata
//! that makes it a slice. It is decoded without branches that depend on its numbers, and it reaches
//! the sink as a row of [`SliceColumns`].

use stepscope_model::{ArgRef, Dur, EventSink, NameId, SliceColumns, Time, TrackId};

/// Number of slices in a batch.
const ROWS: usize = 512;
/// Maximum length of a plain event's message: three tags and three numbers of at most eight bytes.
const LONGEST: usize = 27;
/// Number of bytes that a decode can load: eight bytes from each position of the message.
const WINDOW: usize = LONGEST + 9;

/// The numbers of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) metadata_id: i64,
    pub(crate) offset_ps: i64,
    pub(crate) duration_ps: i64,
}

/// Decodes a message that consists only of numbers 1 to 3, in any order. Returns `None` for any
/// other message, and for some of these; the caller then uses the general decoder.
#[inline]
pub(crate) fn numbers(file: &[u8], begin: usize, len: usize) -> Option<Numbers> {
    let window: &[u8; WINDOW] = file.get(begin..)?.first_chunk()?;
    if len > LONGEST {
        return None;
    }
    let mut values = [0_u64; 4];
    let mut at = 0;
    let mut odd = 0;
    while at < len {
        let tag = *window.get(at)?;
        // Fields 1 to 3 of type 0 are the bytes 8, 16 and 24; 0 would be field number 0.
        odd |= (tag & !0x18) | u8::from(tag == 0);
        let word = u64::from_le_bytes(*window.get(at + 1..)?.first_chunk()?);
        let ends = !word & 0x8080_8080_8080_8080;
        odd |= u8::from(ends == 0);
        // See `protobuf::wire::varint`.
        let word = word & (ends ^ ends.wrapping_sub(1));
        let pairs = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
        let quads = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
        let value = (quads & 0x0fff_ffff) | ((quads & 0x0fff_ffff_0000_0000) >> 4);
        values[usize::from(tag >> 3) & 3] = value;
        at += 1 + (ends.trailing_zeros() as usize + 1) / 8;
    }
    if odd != 0 || at != len {
        return None;
    }
    let [_, metadata_id, offset_ps, duration_ps] = values;
    Some(Numbers {
        metadata_id: metadata_id as i64,
        offset_ps: offset_ps as i64,
        duration_ps: duration_ps as i64,
    })
}

/// Columns of slices that wait for the sink.
#[derive(Debug)]
pub(crate) struct Batch {
    len: usize,
    start: [Time; ROWS],
    dur: [Dur; ROWS],
    name: [NameId; ROWS],
    category: [NameId; ROWS],
    args: [ArgRef; ROWS],
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            len: 0,
            start: [Time::ZERO; ROWS],
            dur: [Dur::ZERO; ROWS],
            name: [NameId::EMPTY; ROWS],
            category: [NameId::EMPTY; ROWS],
            args: [ArgRef::NONE; ROWS],
        }
    }
}

impl Batch {
    /// Adds a slice; emits a full batch first.
    #[inline]
    pub(crate) fn push<S: EventSink>(
        &mut self,
        (start, dur): (Time, Dur),
        (name, category): (NameId, NameId),
        args: ArgRef,
        track: TrackId,
        sink: &mut S,
    ) {
        if self.len >= ROWS {
            self.emit(track, sink);
        }
        let at = self.len % ROWS;
        self.start[at] = start;
        self.dur[at] = dur;
        self.name[at] = name;
        self.category[at] = category;
        self.args[at] = args;
        self.len += 1;
    }

    /// Emits the waiting slices.
    pub(crate) fn emit<S: EventSink>(&mut self, track: TrackId, sink: &mut S) {
        let len = std::mem::take(&mut self.len).min(ROWS);
        if len == 0 {
            return;
        }
        sink.slices(
            track,
            SliceColumns {
                start: &self.start[..len],
                dur: &self.dur[..len],
                name: &self.name[..len],
                category: &self.category[..len],
                args: &self.args[..len],
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::wire::{Fields, Value, put_bytes, put_uint};

    /// What the walk over fields says, or `None` where there is something else.
    fn walked(message: &[u8]) -> Option<Numbers> {
        let mut numbers = Numbers::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next().ok()? {
            match (field.number, field.value) {
                (1, Value::Varint(id)) => numbers.metadata_id = id as i64,
                (2, Value::Varint(ps)) => numbers.offset_ps = ps as i64,
                (3, Value::Varint(ps)) => numbers.duration_ps = ps as i64,
                _ => return None,
            }
        }
        Some(numbers)
    }

    fn quick(message: &[u8]) -> Option<Numbers> {
        let mut file = vec![0xff; 3];
        file.extend_from_slice(message);
        file.extend([0x08; WINDOW]);
        numbers(&file, 3, message.len())
    }

    #[test]
    fn numbers_in_any_order_are_read() {
        for order in [[1, 2, 3], [2, 1, 3], [3, 2, 1], [2, 2, 3]] {
            for bits in 0..56 {
                let mut message = Vec::new();
                for (place, field) in order.into_iter().enumerate() {
                    put_uint(&mut message, field, (1 << bits) - place as u64 % 2);
                }
                assert_eq!(quick(&message), walked(&message), "{order:?} {bits}");
                assert!(quick(&message).is_some());
            }
        }
        assert_eq!(quick(&[]), Some(Numbers::default()));
        assert_eq!(quick(&[8, 5]), walked(&[8, 5]));
    }

    #[test]
    fn whatever_is_not_plain_is_left_to_others() {
        let mut stat = Vec::new();
        put_uint(&mut stat, 1, 4);
        put_bytes(&mut stat, 4, &[8, 1]);
        let mut long = Vec::new();
        put_uint(&mut long, 2, u64::MAX);
        for message in [
            &stat[..],
            &long,
            &[8],
            &[8, 0x80],
            &[0, 1],
            &[0x20, 1],
            &[0x0a, 1, 1],
            &[0x88, 0, 1],
            &[8, 1, 16],
        ] {
            assert_eq!(quick(message), None, "{message:?}");
        }
        assert_eq!(
            numbers(&[8, 1], 0, 2),
            None,
            "too near to the end of the file"
        );
        assert_eq!(numbers(&[8, 1], 5, 2), None);
    }

    #[test]
    fn fast_path_equals_the_walk() {
        let mut state = 1_u64;
        for _ in 0..200_000 {
            let mut message = Vec::new();
            for _ in 0..3 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(7);
                message.push([8, 16, 24, 0x80, 1, 0x22, 0, 0xff][(state >> 40) as usize % 8]);
                message.push([1, 0x81, 0x7f, 0xff, 8, 16][(state >> 50) as usize % 6]);
            }
            if let Some(found) = quick(&message) {
                assert_eq!(Some(found), walked(&message), "{message:?}");
            }
        }
    }
}
