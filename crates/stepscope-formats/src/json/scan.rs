//! Search in JSON text without building a tree.
//!
//! The scan takes one pass, without recursion, allocation or panics on truncated text: every access
//! is a `get`. Values that are not needed are skipped 64 bytes at a time: quotes, backslashes and
//! brackets become bit masks, a prefix XOR over the quotes marks the bytes inside strings, and only
//! brackets outside strings count.
//!
//! The scan detects invalid text where it would make the masks wrong: a backslash outside a string,
//! or a closing quote followed by a letter, means that quotes no longer pair up
//! ([`ScanError::Damaged`]). Other deviations are accepted (raw control characters, `NaN`, a comma
//! before a closing bracket).
#![allow(
    unsafe_code,
    reason = "calls what is compiled for processors with AVX2"
)]

use super::simd::{self, Masks};

/// Reason why the scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanError {
    /// The text ended first.
    End,
    /// The text is not JSON at this byte offset.
    Damaged(usize),
}

/// Byte range `start..end` of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl ByteRange {
    pub(crate) fn slice(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JsonType {
    /// No value.
    #[default]
    Missing,
    /// A string; the range excludes the quotes.
    Str {
        /// Whether the string contains a backslash.
        escaped: bool,
    },
    /// A number or a word (`true`, `null`, `NaN`, also `N/A`).
    Scalar,
    /// An object; the range includes the braces.
    Object,
    /// A list; the range includes the brackets.
    Array,
}

/// A value's type and byte range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) json_type: JsonType,
    pub(crate) span: ByteRange,
    /// Deepest nesting inside the value: 0 for strings and scalars, 1 for a list of scalars.
    pub(crate) depth: u32,
    /// Whether a container has bytes above 127.
    pub(crate) non_ascii: bool,
}

impl Value {
    /// Returns whether the value is missing or `null`.
    pub(crate) fn is_null(&self, bytes: &[u8]) -> bool {
        match self.json_type {
            JsonType::Missing => true,
            JsonType::Scalar => self.span.slice(bytes) == b"null",
            _ => false,
        }
    }

    /// Returns the raw text of a string or scalar, without quotes.
    pub(crate) fn raw<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self.json_type {
            JsonType::Str { .. } | JsonType::Scalar => Some(self.span.slice(bytes)),
            _ => None,
        }
    }

    /// Returns whether a container is empty.
    pub(crate) fn is_empty_container(&self, bytes: &[u8]) -> bool {
        matches!(self.json_type, JsonType::Object | JsonType::Array)
            && skip_space(bytes, self.span.start + 1) + 1 == self.span.end
    }
}

pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns the offset of the first byte at or after `at` that is not white space.
#[inline]
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        if !is_space(*byte) {
            break;
        }
        at += 1;
    }
    at
}

/// Returns the byte at `at`, or [`ScanError::End`].
#[inline]
pub(crate) fn byte_at(bytes: &[u8], at: usize) -> Result<u8, ScanError> {
    bytes.get(at).copied().ok_or(ScanError::End)
}

/// Scans a string whose opening quote is before `at`. Returns its byte range, which ends at the
/// closing quote, and whether it has escapes.
#[allow(
    clippy::inline_always,
    reason = "measured: a call per field costs a fifth of the reading"
)]
#[inline(always)]
pub(crate) fn string(bytes: &[u8], at: usize) -> Result<(ByteRange, bool), ScanError> {
    let mut escaped = false;
    let mut here = at;
    while let Some(word) = bytes.get(here..).and_then(<[u8]>::first_chunk::<8>) {
        let Some(found) = simd::quote_or_backslash(*word) else {
            here += 8;
            continue;
        };
        here += found;
        if bytes.get(here) == Some(&b'"') {
            return Ok((
                ByteRange {
                    start: at,
                    end: here,
                },
                escaped,
            ));
        }
        escaped = true;
        here += 2;
    }
    while let Some(byte) = bytes.get(here) {
        match byte {
            b'"' => {
                return Ok((
                    ByteRange {
                        start: at,
                        end: here,
                    },
                    escaped,
                ));
            }
            b'\\' => {
                escaped = true;
                here += 2;
            }
            _ => here += 1,
        }
    }
    Err(ScanError::End)
}

/// Scans the value at `at` (no white space before it). Returns the value and the offset after it.
#[allow(
    clippy::inline_always,
    reason = "measured: a call per field costs a fifth of the reading"
)]
#[inline(always)]
pub(crate) fn value(bytes: &[u8], at: usize) -> Result<(Value, usize), ScanError> {
    match byte_at(bytes, at)? {
        b'"' => {
            let (span, escaped) = string(bytes, at + 1)?;
            let json_type = JsonType::Str { escaped };
            Ok((
                Value {
                    json_type,
                    span,
                    ..Value::default()
                },
                span.end + 1,
            ))
        }
        first @ (b'{' | b'[') => {
            let passed = container(bytes, at)?;
            let json_type = if first == b'{' {
                JsonType::Object
            } else {
                JsonType::Array
            };
            let span = ByteRange {
                start: at,
                end: passed.end,
            };
            Ok((
                Value {
                    json_type,
                    span,
                    depth: passed.depth,
                    non_ascii: passed.non_ascii,
                },
                passed.end,
            ))
        }
        _ => {
            let end = scalar_end(bytes, at);
            if end == at {
                return Err(ScanError::Damaged(at));
            }
            if end >= bytes.len() {
                return Err(ScanError::End);
            }
            let span = ByteRange { start: at, end };
            Ok((
                Value {
                    json_type: JsonType::Scalar,
                    span,
                    ..Value::default()
                },
                end,
            ))
        }
    }
}

/// Whether a byte ends a number or word. A lookup table avoids unpredictable branches.
static ENDS_SCALAR: [bool; 256] = {
    let mut ends = [false; 256];
    let bytes = b",}] \n\r\t\"{[:\\";
    let mut at = 0;
    while at < bytes.len() {
        ends[bytes[at] as usize] = true;
        at += 1;
    }
    ends
};

/// Returns the offset after a number or word.
#[inline]
fn scalar_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.iter().position(|byte| ENDS_SCALAR[usize::from(*byte)]);
    at + length.unwrap_or(rest.len())
}

struct Passed {
    end: usize,
    depth: u32,
    non_ascii: bool,
}

/// Returns the 64-byte block at `here`. The last block is filled with spaces in `padded`. Returns
/// `None` at the end.
#[allow(clippy::inline_always, reason = "part of the loop over blocks")]
#[inline(always)]
fn block_at<'b>(bytes: &'b [u8], here: usize, padded: &'b mut [u8; 64]) -> Option<&'b [u8; 64]> {
    let rest = bytes.get(here..).filter(|rest| !rest.is_empty())?;
    if let Some(block) = rest.first_chunk::<64>() {
        return Some(block);
    }
    for (to, from) in padded.iter_mut().zip(rest) {
        *to = *from;
    }
    Some(padded)
}

/// Skips the container that opens at `at`.
#[inline(never)]
fn container(bytes: &[u8], at: usize) -> Result<Passed, ScanError> {
    #[cfg(target_arch = "x86_64")]
    {
        if simd::avx2::is_here() {
            // SAFETY: `is_here` checks every target feature of `container_by_avx2`.
            return unsafe { container_by_avx2(bytes, at) };
        }
    }
    container_by(bytes, at, Masks::from_block, simd::prefix_xor)
}

/// Skips a container with AVX2 registers and the population-count instruction. Takes half the time
/// of the portable code.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,popcnt,pclmulqdq")]
fn container_by_avx2(bytes: &[u8], at: usize) -> Result<Passed, ScanError> {
    let masks = |block: &[u8; 64]| simd::avx2::masks(block);
    container_by(bytes, at, masks, |bits| simd::avx2::prefix_xor(bits))
}

#[allow(
    clippy::inline_always,
    reason = "compiled for the processor that the caller is for"
)]
#[inline(always)]
fn container_by(
    bytes: &[u8],
    at: usize,
    masks_of: impl Fn(&[u8; 64]) -> Masks,
    prefix_xor: impl Fn(u64) -> u64,
) -> Result<Passed, ScanError> {
    let mut here = at;
    let mut depth: u32 = 0;
    let mut deepest: u32 = 0;
    let mut in_string: u64 = 0;
    let mut escape_carry: u64 = 0;
    let mut close_carry: u64 = 0;
    let mut high = 0;
    loop {
        let mut padded = [b' '; 64];
        let block = block_at(bytes, here, &mut padded).ok_or(ScanError::End)?;
        let masks = masks_of(block);
        let escaped = if masks.backslash | escape_carry == 0 {
            0
        } else {
            escaped_bytes(masks.backslash, &mut escape_carry)
        };
        let quote = masks.quote & !escaped;
        let inside = prefix_xor(quote) ^ in_string;
        in_string = ((inside as i64) >> 63) as u64;
        let closing = quote & !inside;
        let damage = (masks.backslash & !inside) | (((closing << 1) | close_carry) & masks.letter);
        close_carry = closing >> 63;
        let open = masks.open & !inside;
        let close = masks.close & !inside;

        let (opened, closed) = (open.count_ones(), close.count_ones());
        // Within one block, brackets are counted one at a time only if the container can end in the
        // block, or if the nesting is close to a depth limit.
        if closed >= depth || depth > 128 {
            let mut brackets = open | close;
            while brackets != 0 {
                let bit = brackets.trailing_zeros();
                brackets &= brackets - 1;
                if open >> bit & 1 == 1 {
                    depth += 1;
                    deepest = deepest.max(depth);
                    continue;
                }
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let before = damage & ((1 << bit) - 1);
                    if before != 0 {
                        return Err(ScanError::Damaged(here + before.trailing_zeros() as usize));
                    }
                    let end = here + bit as usize + 1;
                    let non_ascii = (high | masks.high & ((1 << bit) - 1)) != 0;
                    return Ok(Passed {
                        end,
                        depth: deepest,
                        non_ascii,
                    });
                }
            }
        } else {
            deepest = deepest.max(depth + opened);
            depth = depth + opened - closed;
        }
        if damage != 0 {
            return Err(ScanError::Damaged(here + damage.trailing_zeros() as usize));
        }
        high |= masks.high;
        here += 64;
        if here - at == LONG_BYTES {
            grammar(bytes, at)?;
        }
    }
}

/// A container longer than this is scanned again, token by token: a missing bracket can make it
/// seem long, and it would then include the rest of the text.
const LONG_BYTES: usize = 64 << 10;

/// Checks that the container at `at` follows the grammar: keys, colons, commas, and a matching
/// close for each bracket.
fn grammar(bytes: &[u8], at: usize) -> Result<(), ScanError> {
    let mut open = vec![byte_at(bytes, at)?];
    let mut here = skip_space(bytes, at + 1);
    // Whether the last token was a comma or a bracket, so that a value or key must follow.
    let mut fresh = true;
    while let Some(kind) = open.last().copied() {
        let byte = byte_at(bytes, here)?;
        if byte == kind + 2 {
            // '{' + 2 is '}', '[' + 2 is ']'.
            open.pop();
            fresh = false;
            here = skip_space(bytes, here + 1);
            continue;
        }
        if !fresh {
            if byte != b',' {
                return Err(ScanError::Damaged(here));
            }
            fresh = true;
            here = skip_space(bytes, here + 1);
            continue;
        }
        if kind == b'{' {
            if byte != b'"' {
                return Err(ScanError::Damaged(here));
            }
            let (key, _) = string(bytes, here + 1)?;
            here = skip_space(bytes, key.end + 1);
            if byte_at(bytes, here)? != b':' {
                return Err(ScanError::Damaged(here));
            }
            here = skip_space(bytes, here + 1);
        }
        match byte_at(bytes, here)? {
            bracket @ (b'{' | b'[') => {
                open.push(bracket);
                here = skip_space(bytes, here + 1);
                continue;
            }
            b'"' => here = string(bytes, here + 1)?.0.end + 1,
            _ => {
                let end = scalar_end(bytes, here);
                if end == here {
                    return Err(ScanError::Damaged(here));
                }
                here = end;
            }
        }
        fresh = false;
        here = skip_space(bytes, here);
    }
    Ok(())
}

/// Returns a mask in which bit i is set if an odd run of backslashes before byte i escapes it.
fn escaped_bytes(backslash: u64, carry: &mut u64) -> u64 {
    let mut escaped = *carry;
    let mut left = backslash & !*carry;
    *carry = 0;
    while left != 0 {
        let bit = left.trailing_zeros();
        if bit == 63 {
            *carry = 1;
            break;
        }
        escaped |= 1 << (bit + 1);
        // An escaped backslash does not escape the next byte.
        left &= !(0b11 << bit);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_agree_on_every_byte() {
        for first in 0..=255_u8 {
            let mut block = [0_u8; 64];
            for (at, byte) in block.iter_mut().enumerate() {
                *byte = first.wrapping_add(u8::try_from(at).unwrap().wrapping_mul(7));
            }
            let masks = Masks::from_block(&block);
            #[cfg(target_arch = "x86_64")]
            if simd::avx2::is_here() {
                // SAFETY: the processor supports the module, as its own check says.
                assert_eq!(unsafe { simd::avx2::masks(&block) }, masks);
                let bits = masks.letter ^ masks.high.rotate_left(u32::from(first));
                // SAFETY: the processor supports the module, as its own check says.
                let parity = unsafe { simd::avx2::prefix_xor(bits) };
                assert_eq!(parity, simd::prefix_xor(bits));
            }
            let is_stop = |byte: &u8| matches!(byte, b'"' | b'\\');
            for word in block.as_chunks::<8>().0 {
                let found = simd::quote_or_backslash(*word);
                assert_eq!(found, word.iter().position(is_stop), "{word:?}");
            }
            for (at, byte) in block.iter().enumerate() {
                let bit = |mask: u64| mask >> at & 1 == 1;
                assert_eq!(bit(masks.letter), byte.is_ascii_alphabetic(), "{byte:#x}");
                assert_eq!(bit(masks.quote), *byte == b'"');
                assert_eq!(bit(masks.backslash), *byte == b'\\');
                assert_eq!(bit(masks.high), !byte.is_ascii());
                assert_eq!(bit(masks.open), matches!(byte, b'{' | b'['), "{byte:#x}");
                assert_eq!(bit(masks.close), matches!(byte, b'}' | b']'), "{byte:#x}");
            }
        }
    }

    /// Scans with AVX2 where the processor has it, and portably.
    fn end_of(text: &str) -> Result<usize, ScanError> {
        let found = value(text.as_bytes(), 0).map(|(_, end)| end);
        let plainly = container_by(text.as_bytes(), 0, Masks::from_block, simd::prefix_xor);
        assert_eq!(found, plainly.map(|passed| passed.end), "{text}");
        found
    }

    #[test]
    fn containers_end_where_they_end_at_every_alignment() {
        for pad in 0..200 {
            let inner = format!(
                "{}\"a\\\\\":[1,{{\"b\":\"}}]\\\"{{\"}},[]], \"c\\\\\\\"\": \"\"",
                " ".repeat(pad)
            );
            let text = format!("{{{inner}}},");
            assert_eq!(end_of(&text), Ok(text.len() - 1), "{text}");
            for cut in 1..text.len() - 1 {
                assert_eq!(
                    end_of(&text[..cut]),
                    Err(ScanError::End),
                    "{}",
                    &text[..cut]
                );
            }
        }
    }

    #[test]
    fn quotes_that_do_not_pair_up_are_noticed() {
        // A Windows path that ends in a backslash swallows its closing quote.
        let one = r#"{"path":"C:\dir\","x":1}"#;
        assert!(matches!(end_of(one), Err(ScanError::Damaged(_))));
        let two = format!("{one},{one} ");
        assert!(matches!(end_of(&two), Err(ScanError::Damaged(_))));
        assert!(matches!(
            end_of(r#"{"a":"5" disk","x":{}} "#),
            Err(ScanError::Damaged(_))
        ));
    }

    #[test]
    fn a_missing_bracket_is_found_near_its_place() {
        let rest = ",{\"ph\":\"X\",\"args\":{\"a\":[1,2]}}".repeat(50_000);
        for broken in ["{\"a\":[1,2}", "{\"a\":{\"b\":1}", "[1,{\"a\":2]"] {
            let text = format!("{broken}{rest}");
            match end_of(&text) {
                Err(ScanError::Damaged(at)) => assert!(at <= broken.len() + 2, "{broken} at {at}"),
                other => panic!("{broken}: {other:?}"),
            }
        }
        let sound = format!("[0{rest}, [] , {{ }}, NaN,\"x\"] ");
        assert_eq!(end_of(&sound), Ok(sound.len() - 1));
    }

    #[test]
    fn a_million_brackets_need_no_stack() {
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let (found, end) = value(deep.as_bytes(), 0).unwrap();
        assert_eq!((found.depth, end), (1_000_000, 2_000_000));
        assert_eq!(end_of(&deep[..1_500_000]), Err(ScanError::End));
    }
}
