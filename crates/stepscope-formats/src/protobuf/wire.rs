//! The protobuf wire format: iteration over messages without building objects, and writing.
//!
//! The `XSpace` and Perfetto modules use it. A message is a sequence of fields, each a tag (number
//! and wire type) and a value:
//!
//! ```text
//! tag = number << 3 | type     varint
//! type 0   varint              at most 10 bytes, 7 bits each, lowest first
//! type 1   8 bytes             little-endian
//! type 2   length, then bytes  text, bytes, messages, packed numbers
//! type 3/4 group begin / end   old; skipped as a whole, whatever is inside
//! type 5   4 bytes             little-endian
//! ```
//!
//! Design constraints: no input causes a panic, recursion, or an allocation of a length that the
//! file claims. [`Fields`] uses eight-byte loads and a few branches per field, because it reads
//! millions of events. Byte values are slices of the input, so that [`offset_in`] can compute their
//! position in the file.

#![allow(
    dead_code,
    reason = "the folders that use this are features: none of them uses all of it"
)]

/// Maximum nesting of skipped groups, as in protobuf's own libraries.
const MAX_GROUP_DEPTH: usize = 100;

/// The value of one field, as decoded from its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1: `fixed64`, `sfixed64`, or the bits of a `double`.
    Fixed64(u64),
    /// Wire type 2: text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Wire type 5: `fixed32`, `sfixed32`, or the bits of a `float`.
    Fixed32(u32),
}

impl<'a> Value<'a> {
    /// Returns the bytes of a length-delimited value, `None` for other wire types.
    #[inline]
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a varint as `uint64`, `None` for other wire types.
    #[inline]
    pub(crate) fn uint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a varint as `int64` (two's complement), `None` for other wire types.
    #[inline]
    pub(crate) fn int(self) -> Option<i64> {
        self.uint().map(|value| value as i64)
    }

    /// Returns a varint as `sint64` (zigzag), `None` for other wire types.
    #[inline]
    pub(crate) fn sint(self) -> Option<i64> {
        self.uint()
            .map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Returns a `double`, `None` for other wire types.
    #[inline]
    pub(crate) fn double(self) -> Option<f64> {
        match self {
            Self::Fixed64(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The field's number in its schema, 1 to 2^29 - 1.
    pub(crate) number: u32,
    /// Its value.
    pub(crate) value: Value<'a>,
}

/// Reason why an iteration over fields stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A length-delimited field claims more bytes than the message has. [`Fields::rest`] holds the
    /// available ones.
    Cut {
        /// Number of the field.
        number: u32,
        /// Number of missing bytes.
        missing: u64,
    },
    /// The bytes end inside a tag, a number or a group.
    Ends,
    /// A varint of more than ten bytes.
    LongVarint,
    /// A tag with number 0, a number above 2^29 - 1, or wire type 6 or 7.
    BadTag,
    /// A group end without a group begin, or groups nested too deep.
    BadGroup,
}

impl Fault {
    /// Returns a description of the fault for users.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Cut { .. } => "a length points past the end",
            Self::Ends => "the bytes end inside a field",
            Self::LongVarint => "a number of more than ten bytes",
            Self::BadTag => "a field tag that cannot be",
            Self::BadGroup => "groups that do not match",
        }
    }
}

/// Iterator over the fields of one message, in the order of the bytes.
///
/// Skips groups. Stops after a fault. [`Fields::at`] is then the start of the faulty field; after
/// [`Fault::Cut`], [`Fields::rest`] is the available part of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    begin: usize,
}

impl<'a> Fields<'a> {
    /// Starts at the first field of `message`.
    #[inline]
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self {
            bytes: message,
            at: 0,
            begin: 0,
        }
    }

    /// Returns the offset of the next field within the message.
    #[inline]
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns the offset of the tag of the last returned field.
    #[inline]
    pub(crate) const fn begin(&self) -> usize {
        self.begin
    }

    /// Returns the bytes after the last returned field.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the next field; `Ok(None)` at the end of the message.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, Fault> {
        loop {
            let begin = self.at;
            if begin >= self.bytes.len() {
                return Ok(None);
            }
            match self.step(begin) {
                Ok(Some(field)) => return Ok(Some(field)),
                Ok(None) => {}
                Err(fault) => {
                    if !matches!(fault, Fault::Cut { .. }) {
                        self.at = begin;
                    }
                    return Err(fault);
                }
            }
        }
    }

    /// Returns the next field and stops silently at a fault: for messages whose framing has already
    /// reported the damage.
    #[inline]
    pub(crate) fn next_lenient(&mut self) -> Option<Field<'a>> {
        self.next().ok().flatten()
    }

    /// Reads one field, `Ok(None)` for a skipped group.
    #[inline]
    fn step(&mut self, begin: usize) -> Result<Option<Field<'a>>, Fault> {
        let (tag, mut at) = varint(self.bytes, begin)?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number) if number != 0 && number < 1 << 29 => number,
            _ => return Err(Fault::BadTag),
        };
        let value = match tag & 7 {
            0 => {
                let (value, next) = varint(self.bytes, at)?;
                at = next;
                Value::Varint(value)
            }
            1 => {
                let bits = fixed::<8>(self.bytes, at).ok_or(Fault::Ends)?;
                at += 8;
                Value::Fixed64(u64::from_le_bytes(bits))
            }
            2 => {
                let (length, next) = varint(self.bytes, at)?;
                let left = self.bytes.len() - next;
                let Some(length) = usize::try_from(length).ok().filter(|n| *n <= left) else {
                    self.at = next;
                    return Err(Fault::Cut {
                        number,
                        missing: length.saturating_sub(left as u64),
                    });
                };
                at = next + length;
                Value::Bytes(self.bytes.get(next..at).unwrap_or_default())
            }
            3 => {
                self.at = skip_group(self.bytes, at, number)?;
                return Ok(None);
            }
            4 => return Err(Fault::BadGroup),
            5 => {
                let bits = fixed::<4>(self.bytes, at).ok_or(Fault::Ends)?;
                at += 4;
                Value::Fixed32(u32::from_le_bytes(bits))
            }
            _ => return Err(Fault::BadTag),
        };
        self.at = at;
        self.begin = begin;
        Ok(Some(Field { number, value }))
    }
}

/// Skips a group whose begin tag has been read; returns the offset after its end tag.
#[cold]
fn skip_group(bytes: &[u8], mut at: usize, number: u32) -> Result<usize, Fault> {
    let mut open = vec![number];
    while let Some(innermost) = open.last().copied() {
        let (tag, next) = varint(bytes, at)?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 {
            return Err(Fault::BadTag);
        }
        at = match tag & 7 {
            0 => varint(bytes, next)?.1,
            1 => next + 8,
            2 => {
                let (length, next) = varint(bytes, next)?;
                usize::try_from(length)
                    .ok()
                    .and_then(|length| next.checked_add(length))
                    .ok_or(Fault::Ends)?
            }
            3 if open.len() < MAX_GROUP_DEPTH => {
                open.push(number);
                next
            }
            4 if number == innermost => {
                open.pop();
                next
            }
            3 | 4 => return Err(Fault::BadGroup),
            5 => next + 4,
            _ => return Err(Fault::BadTag),
        };
        if at > bytes.len() {
            return Err(Fault::Ends);
        }
    }
    Ok(at)
}

#[inline]
fn fixed<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// Reads a varint at `at`; returns its value and the offset after it.
///
/// Drops bits above the 64th, as protobuf's own libraries do.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: usize) -> Result<(u64, usize), Fault> {
    if let Some(&[low, ..]) = bytes.get(at..)
        && low < 0x80
    {
        return Ok((u64::from(low), at + 1));
    }
    if let Some(chunk) = fixed::<8>(bytes, at) {
        let word = u64::from_le_bytes(chunk);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            // Keeps the bytes up to and including the first one without its high bit.
            let word = word & (ends ^ (ends - 1));
            let pairs = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
            let quads = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
            let value = (quads & 0x0fff_ffff) | ((quads & 0x0fff_ffff_0000_0000) >> 4);
            return Ok((value, at + (ends.trailing_zeros() as usize + 1) / 8));
        }
    }
    varint_slow(bytes, at)
}

#[cold]
fn varint_slow(bytes: &[u8], at: usize) -> Result<(u64, usize), Fault> {
    let mut value = 0_u64;
    for index in 0..10 {
        let byte = *bytes.get(at + index).ok_or(Fault::Ends)?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, at + index + 1));
        }
    }
    Err(Fault::LongVarint)
}

/// Returns the offset of `inner`, a slice of `outer`, in `outer`; 0 if it is not one.
#[inline]
pub(crate) fn offset_in(outer: &[u8], inner: &[u8]) -> usize {
    let offset = inner.as_ptr().addr().wrapping_sub(outer.as_ptr().addr());
    if offset <= outer.len() { offset } else { 0 }
}

/// Returns the encoded length of a varint, 1 to 10 bytes.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Appends a field of wire type 0: `uint64`, `uint32`, `bool`, an enum.
#[inline]
pub(crate) fn put_uint(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends an `int64` (two's complement: a negative number takes ten bytes).
#[inline]
pub(crate) fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_uint(out, number, value as u64);
}

/// Appends a `sint64` (zigzag).
#[inline]
pub(crate) fn put_sint(out: &mut Vec<u8>, number: u32, value: i64) {
    put_uint(out, number, (value << 1 ^ value >> 63) as u64);
}

/// Appends a `fixed64`.
#[inline]
pub(crate) fn put_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `double`.
#[inline]
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_fixed64(out, number, value.to_bits());
}

/// Appends a length-delimited field: text, bytes, or an encoded message.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_length(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends the tag and length of a length-delimited field whose bytes the caller appends next.
#[inline]
pub(crate) fn put_length(out: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, length as u64);
}

/// Appends a message that `fill` writes in place; inserts its length afterwards.
pub(crate) fn put_message(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, u64::from(number) << 3 | 2);
    let begin = out.len();
    // Most messages are shorter than 128 bytes: one byte is reserved for the length.
    out.push(0);
    fill(out);
    let length = out.len() - begin - 1;
    if let (Ok(short @ 0..0x80), Some(slot)) = (u8::try_from(length), out.get_mut(begin)) {
        *slot = short;
        return;
    }
    let extra = varint_len(length as u64) - 1;
    let end = out.len();
    out.resize(end + extra, 0);
    out.copy_within(begin + 1..end, begin + 1 + extra);
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, length as u64);
    if let Some(slot) = out.get_mut(begin..=begin + extra) {
        slot.copy_from_slice(&prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Field<'_>>, Option<Fault>) {
        let mut fields = Fields::new(bytes);
        let mut found = Vec::new();
        loop {
            match fields.next() {
                Ok(Some(field)) => found.push(field),
                Ok(None) => return (found, None),
                Err(fault) => return (found, Some(fault)),
            }
        }
    }

    #[test]
    fn varints_of_every_length_come_back_anywhere_in_a_buffer() {
        let mut values = vec![0, 1, u64::MAX, u64::MAX - 1, i64::MAX as u64];
        for bit in 0..64 {
            values.extend([1 << bit, (1 << bit) - 1, (1 << bit) | 1, !(1 << bit)]);
        }
        for value in values {
            for tail in 0..10 {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let length = bytes.len();
                assert_eq!(length, varint_len(value));
                bytes.extend(std::iter::repeat_n(0xff, tail));
                assert_eq!(varint(&bytes, 0), Ok((value, length)), "{value:#x} {tail}");
            }
        }
    }

    #[test]
    fn overlong_and_cut_varints_are_faults() {
        assert_eq!(varint(&[0xff; 11], 0), Err(Fault::LongVarint));
        assert_eq!(varint(&[0x80; 7], 0), Err(Fault::Ends));
        assert_eq!(varint(&[], 0), Err(Fault::Ends));
        assert_eq!(varint(&[1], 5), Err(Fault::Ends));
        // Ten bytes with bits past the 64th: the bits are dropped.
        let mut wide = vec![0xff; 9];
        wide.push(0x7f);
        assert_eq!(varint(&wide, 0), Ok((u64::MAX, 10)));
    }

    #[test]
    fn every_wire_type_is_written_and_walked() {
        let mut out = Vec::new();
        put_int(&mut out, 1, -2);
        put_double(&mut out, 2, 0.5);
        put_bytes(&mut out, 3, b"abc");
        put_sint(&mut out, 4, -3);
        out.extend([5 << 3 | 5, 7, 0, 0, 0]);
        put_message(&mut out, 6, |inner| put_bytes(inner, 1, &[9; 300]));
        let (fields, fault) = all(&out);
        assert_eq!(fault, None);
        assert_eq!(fields[0].value.int(), Some(-2));
        assert_eq!(fields[1].value.double(), Some(0.5));
        assert_eq!(fields[2].value.bytes(), Some(&b"abc"[..]));
        assert_eq!(fields[3].value.sint(), Some(-3));
        assert_eq!(fields[4].value, Value::Fixed32(7));
        let inner = fields[5].value.bytes().unwrap();
        assert_eq!(all(inner).0[0].value.bytes(), Some(&[9; 300][..]));
        assert_eq!(offset_in(&out, inner), out.len() - inner.len());
    }

    #[test]
    fn groups_are_skipped_and_bad_ones_are_faults() {
        // 1: group { 1: group {} 2: "x" 3: fixed32 4: fixed64 } then 2: varint 5
        let mut bytes = vec![0x0b, 0x0b, 0x0c, 0x12, 1, b'x', 0x1d, 0, 0, 0, 0, 0x21];
        bytes.extend([0; 8]);
        bytes.extend([0x0c, 0x10, 5]);
        let (fields, fault) = all(&bytes);
        assert_eq!((fields.len(), fault), (1, None));
        assert_eq!(all(&[0x0b, 0x14]).1, Some(Fault::BadGroup));
        assert_eq!(all(&[0x0c]).1, Some(Fault::BadGroup));
        assert_eq!(all(&[0x0b, 0x08]).1, Some(Fault::Ends));
        assert_eq!(all(&vec![0x0b; 1_000_000]).1, Some(Fault::BadGroup));
    }

    #[test]
    fn lengths_past_the_end_say_what_is_missing_and_keep_what_is_there() {
        let mut fields = Fields::new(&[0x0a, 5, 1, 2]);
        assert_eq!(
            fields.next(),
            Err(Fault::Cut {
                number: 1,
                missing: 3
            })
        );
        assert_eq!(fields.rest(), [1, 2]);
        for length in [1_u64 << 31, 1 << 62, u64::MAX] {
            let mut bytes = vec![0x0a];
            put_varint(&mut bytes, length);
            assert!(matches!(
                all(&bytes).1,
                Some(Fault::Cut { number: 1, missing }) if missing == length
            ));
        }
    }

    #[test]
    fn impossible_tags_are_faults_at_their_place() {
        for bytes in [&[0x02, 0][..], &[0x0e], &[0x0f], &[0xff; 10]] {
            let mut fields = Fields::new(bytes);
            assert!(fields.next().is_err());
            assert_eq!(fields.at(), 0);
        }
    }
}
