//! Bounded inflation of gzip.
//!
//! If a stream is damaged, the bytes inflated before the damage are kept and the reader continues
//! with them: a truncated file still shows its beginning.
//!
//! A stream's own header and trailer never determine the allocated memory. The size in the trailer
//! is only a hint for the first reservation, limited to 64 times the compressed size; after that
//! the buffer grows by a quarter at a time, which on Linux remaps pages without copying.
//!
//! For streams of several members (`cat a.gz b.gz`, bgzip, pigz) the output is the concatenated
//! contents. Zero bytes after the last member are valid padding.
//! another. Zero bytes behind the last member are padding and no problem.

use std::fmt;

use flate2::{Crc, Decompress, DecompressError, FlushDecompress, Status};
use stepscope_model::{Diagnostic, Limits, ReadContext};

/// Maximum number of compressed bytes per step.
const STEP_BYTES: usize = 256 << 10;
/// Maximum number of inflated bytes per step: the checksum then reads them from the CPU cache.
const ROOM_BYTES: usize = 256 << 10;
/// Inflated size from which the ratio is checked: small files of blanks are harmless.
const RATIO_FROM_BYTES: u64 = 64 << 20;
/// Limit of the size hint in the trailer, as a multiple of the compressed size.
const HINT_RATIO: u64 = 64;

/// Result of [`inflate`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inflated {
    /// All inflated bytes, in order.
    pub bytes: Vec<u8>,
    /// The first problem; `None` if every member was complete with a correct checksum.
    pub problem: Option<GzipProblem>,
}

/// A problem of a gzip stream and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GzipProblem {
    /// Kind of the problem.
    pub kind: GzipProblemKind,
    /// Offset in the compressed bytes.
    pub offset: u64,
    /// Number of inflated bytes before the problem; for a wrong checksum, up to the member's end.
    pub inflated_bytes: u64,
}

/// The kinds of [`GzipProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GzipProblemKind {
    /// The first bytes are not a gzip header.
    BadHeader,
    /// The stream ends before its end marker or inside its trailer.
    Truncated,
    /// The compressed data is invalid from this offset.
    BadData,
    /// The data was inflated, but the checksum differs: some bytes are wrong.
    WrongChecksum,
    /// The data was inflated, but the size in the trailer differs.
    WrongSize,
    /// Bytes after the stream are not gzip. They were skipped.
    TrailingBytes,
    /// The output exceeds `max_inflated_bytes`.
    TooLarge {
        /// The limit, bytes.
        limit: u64,
    },
    /// The ratio of output to input exceeds `max_inflate_ratio`.
    RatioTooHigh {
        /// The limit, output bytes per input byte.
        limit: u64,
    },
    /// Memory allocation failed.
    OutOfMemory,
    /// The user cancelled the read.
    Cancelled,
}

impl GzipProblem {
    /// Returns the diagnostic for this problem.
    pub const fn diagnostic(&self) -> Diagnostic {
        match self.kind {
            GzipProblemKind::TooLarge { .. }
            | GzipProblemKind::RatioTooHigh { .. }
            | GzipProblemKind::OutOfMemory
            | GzipProblemKind::Cancelled => Diagnostic::LimitReached,
            _ => Diagnostic::BadCompression,
        }
    }

    /// Returns whether a user-settable limit stopped the inflation.
    pub const fn is_limit(&self) -> bool {
        matches!(
            self.kind,
            GzipProblemKind::TooLarge { .. } | GzipProblemKind::RatioTooHigh { .. }
        )
    }
}

impl fmt::Display for GzipProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.offset;
        match self.kind {
            GzipProblemKind::BadHeader => write!(f, "no gzip header at compressed byte {at}"),
            GzipProblemKind::Truncated => write!(f, "gzip ends early, at compressed byte {at}"),
            GzipProblemKind::BadData => write!(f, "gzip data is damaged at compressed byte {at}"),
            GzipProblemKind::WrongChecksum => {
                write!(f, "wrong gzip checksum at compressed byte {at}")
            }
            GzipProblemKind::WrongSize => write!(f, "wrong gzip size at compressed byte {at}"),
            GzipProblemKind::TrailingBytes => {
                write!(f, "bytes that are no gzip from compressed byte {at} on")
            }
            GzipProblemKind::TooLarge { limit } => write!(
                f,
                "stopped at compressed byte {at}: the limit max_inflated_bytes = {limit} is reached; raise it if you trust the file"
            ),
            GzipProblemKind::RatioTooHigh { limit } => write!(
                f,
                "stopped at compressed byte {at}: more than max_inflate_ratio = {limit} bytes out per byte in; raise it if you trust the file"
            ),
            GzipProblemKind::OutOfMemory => {
                write!(f, "out of memory at compressed byte {at}")
            }
            GzipProblemKind::Cancelled => write!(f, "cancelled at compressed byte {at}"),
        }?;
        write!(f, " ({} bytes inflated)", self.inflated_bytes)
    }
}

/// Returns whether these first bytes are a gzip header.
pub fn is_gzip(prefix: &[u8]) -> bool {
    prefix.starts_with(&[0x1f, 0x8b])
}

/// Inflates a whole gzip file of one or more members. Never panics; the module documentation
/// describes damaged streams.
///
/// Progress is measured in compressed bytes.
pub fn inflate(compressed: &[u8], limits: &Limits, context: &ReadContext) -> Inflated {
    let mut bytes = Vec::new();
    if let Some(room) = room_for(compressed, limits) {
        // If this much memory is unavailable, growth in small steps can still suffice.
        let _ = bytes.try_reserve_exact(room);
    }
    let problem = inflate_into(&mut bytes, compressed, limits, context);
    // Untouched pages cost nothing; returning a small number of them delays other threads.
    if bytes.len() < bytes.capacity() / 8 * 7 {
        bytes.shrink_to_fit();
    }
    Inflated { bytes, problem }
}

/// Returns an estimate of the output size: the size at the end of the stream, limited to 64 times
/// the compressed size and to the configured limit, plus room for a last step.
pub fn room_for(compressed: &[u8], limits: &Limits) -> Option<usize> {
    let size = compressed.last_chunk::<4>()?;
    let claimed = u64::from(u32::from_le_bytes(*size));
    let believed = claimed
        .min((compressed.len() as u64).saturating_mul(HINT_RATIO))
        .min(limits.max_inflated_bytes);
    usize::try_from(believed).ok()?.checked_add(ROOM_BYTES)
}

/// Destination of inflated bytes.
pub trait Target {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes at most `most` and at least one bytes of room after the content to `fill`, which
    /// returns how many bytes it wrote at their start. Returns the written bytes; `None` if there
    /// is no room.
    fn put(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<&[u8]>;
}

impl Target for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn put(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<&[u8]> {
        let begin = self.len();
        if self.capacity() - begin < most
            && self.try_reserve_exact((begin / 4).max(most)).is_err()
            && self.try_reserve_exact(most).is_err()
        {
            return None;
        }
        // Only the room is cleared: the library's own method of appending to a vector clears all of
        // its spare capacity at every call.
        self.resize(begin + most, 0);
        let count = fill(self.get_mut(begin..).unwrap_or_default());
        self.truncate(begin.saturating_add(count));
        self.get(begin..)
    }
}

/// Inflates like [`inflate`], after the content of `target`; returns the first problem.
pub fn inflate_into<T: Target>(
    target: &mut T,
    compressed: &[u8],
    limits: &Limits,
    context: &ReadContext,
) -> Option<GzipProblem> {
    let bound = usize::try_from(limits.max_inflated_bytes).unwrap_or(usize::MAX - 1);
    let mut state = Inflater::new(compressed, bound.min(usize::MAX - 1), target);
    let outcome = state.run(|from, to, out_bytes| {
        if context.advance((to - from) as u64).is_err() {
            return Err(GzipProblemKind::Cancelled);
        }
        let ratio = limits.max_inflate_ratio;
        if out_bytes > RATIO_FROM_BYTES && out_bytes > ratio.saturating_mul(to as u64) {
            return Err(GzipProblemKind::RatioTooHigh { limit: ratio });
        }
        Ok(())
    });
    let problem = match outcome {
        Err(kind) => Some(state.problem(kind)),
        Ok(()) => None,
    };
    // The earlier wrong checksum is reported, unless a limit stopped the inflation.
    match (problem, state.earlier) {
        (Some(now), Some(earlier)) if !now.is_limit() => Some(earlier),
        (now, earlier) => now.or(earlier),
    }
}

/// Inflates at most the first `most` bytes, for format detection. Damage only makes the result
/// shorter.
pub fn inflate_prefix(compressed: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut state = Inflater::new(compressed, most.min(usize::MAX - 1), &mut out);
    // A limit or damage ends the read; both are irrelevant for format detection.
    let _ = state.run(|_, _, _| Ok(()));
    out
}

/// A single pass over the members of a stream.
struct Inflater<'a, T> {
    compressed: &'a [u8],
    /// Offset of the next compressed byte.
    at: usize,
    out: &'a mut T,
    /// Maximum number of output bytes.
    bound: usize,
    /// A problem that did not stop the inflation.
    earlier: Option<GzipProblem>,
}

impl<'a, T: Target> Inflater<'a, T> {
    fn new(compressed: &'a [u8], bound: usize, out: &'a mut T) -> Self {
        Self {
            compressed,
            at: 0,
            out,
            bound,
            earlier: None,
        }
    }

    fn problem(&self, kind: GzipProblemKind) -> GzipProblem {
        GzipProblem {
            kind,
            offset: self.at as u64,
            inflated_bytes: self.out.len() as u64,
        }
    }

    /// Inflates member after member. Calls `step` for each step with the offset of its first
    /// compressed byte, the offset after it, and the number of output bytes so far.
    fn run(
        &mut self,
        mut step: impl FnMut(usize, usize, u64) -> Result<(), GzipProblemKind>,
    ) -> Result<(), GzipProblemKind> {
        let mut inflate = Decompress::new(false);
        loop {
            self.at += header_len(self.compressed.get(self.at..).unwrap_or_default())?;
            inflate.reset(false);
            self.member(&mut inflate, &mut step)?;
            let rest = self.compressed.get(self.at..).unwrap_or_default();
            if rest.iter().all(|byte| *byte == 0) {
                return Ok(());
            }
            if !is_gzip(rest) {
                return Err(GzipProblemKind::TrailingBytes);
            }
        }
    }

    /// Inflates one member, after its header, and checks its trailer.
    fn member(
        &mut self,
        inflate: &mut Decompress,
        step: &mut impl FnMut(usize, usize, u64) -> Result<(), GzipProblemKind>,
    ) -> Result<(), GzipProblemKind> {
        let mut sum = Crc::new();
        let member_start = self.out.len();
        loop {
            let from = self.at;
            let until = self.compressed.len().min(from.saturating_add(STEP_BYTES));
            let input = self.compressed.get(from..until).unwrap_or_default();
            let out_before = self.out.len();
            let left = self.bound.saturating_sub(out_before);
            // One byte past the bound is allowed, so that a stream of exactly that size can reach
            // its end.
            let room = ROOM_BYTES.min(left + 1);
            let mut stepped = (0, 0, Ok(Status::Ok));
            let put = self.out.put(room, |room| {
                stepped = step_to(inflate, input, room);
                stepped.1.min(left)
            });
            sum.update(put.ok_or(GzipProblemKind::OutOfMemory)?);
            let (taken, given, status) = stepped;
            self.at += taken;
            if given > left {
                return Err(GzipProblemKind::TooLarge {
                    limit: self.bound as u64,
                });
            }
            match status {
                Err(_) => return Err(GzipProblemKind::BadData),
                Ok(Status::StreamEnd) => {
                    step(from, self.at, self.out.len() as u64)?;
                    break;
                }
                Ok(Status::Ok | Status::BufError) => {
                    step(from, self.at, self.out.len() as u64)?;
                    let stuck = taken == 0 && self.out.len() == out_before;
                    if self.at >= self.compressed.len() && stuck {
                        return Err(GzipProblemKind::Truncated);
                    }
                    if stuck {
                        return Err(GzipProblemKind::BadData);
                    }
                }
            }
        }
        self.trailer(&sum, member_start)
    }

    fn trailer(&mut self, sum: &Crc, member_start: usize) -> Result<(), GzipProblemKind> {
        let rest = self.compressed.get(self.at..).unwrap_or_default();
        let (Some(crc), Some(size)) = (
            rest.first_chunk::<4>(),
            rest.get(4..).and_then(<[u8]>::first_chunk::<4>),
        ) else {
            self.at = self.compressed.len();
            return Err(GzipProblemKind::Truncated);
        };
        let wrong = if u32::from_le_bytes(*crc) != sum.sum() {
            Some(GzipProblemKind::WrongChecksum)
        } else if u64::from(u32::from_le_bytes(*size))
            != (self.out.len() - member_start) as u64 & u64::from(u32::MAX)
        {
            Some(GzipProblemKind::WrongSize)
        } else {
            None
        };
        if let (Some(kind), None) = (wrong, self.earlier) {
            self.earlier = Some(self.problem(kind));
        }
        self.at += 8;
        Ok(())
    }
}

/// Inflates into `room`. Returns the number of bytes read and written.
fn step_to(
    inflate: &mut Decompress,
    input: &[u8],
    room: &mut [u8],
) -> (usize, usize, Result<Status, DecompressError>) {
    let (in_before, out_before) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, room, FlushDecompress::None);
    let since = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(0);
    let taken = since(inflate.total_in(), in_before);
    let given = since(inflate.total_out(), out_before);
    (taken, given, status)
}

/// Inflates into at most `room` bytes after the content of `out`. Returns the number of bytes read.
#[cfg(feature = "perfetto")]
pub(crate) fn step_into(
    inflate: &mut Decompress,
    input: &[u8],
    out: &mut Vec<u8>,
    room: usize,
) -> (usize, Result<Status, DecompressError>) {
    let mut stepped = (0, 0, Ok(Status::Ok));
    // Without room no bytes are read or written: the caller detects the lack of progress.
    let _ = out.put(room, |room| {
        stepped = step_to(inflate, input, room);
        stepped.1
    });
    (stepped.0, stepped.2)
}

/// Returns the length of the member header at the start of `bytes`.
fn header_len(bytes: &[u8]) -> Result<usize, GzipProblemKind> {
    const HEADER_SUM: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    let short = |bytes: &[u8]| {
        let magic = [0x1f, 0x8b, 8];
        let seen = bytes.len().min(magic.len());
        if seen > 0 && bytes.get(..seen) == magic.get(..seen) {
            GzipProblemKind::Truncated
        } else {
            GzipProblemKind::BadHeader
        }
    };
    let Some(&[0x1f, 0x8b, 8, flags, ..]) = bytes.first_chunk::<10>() else {
        return Err(short(bytes));
    };
    let mut at = 10;
    if flags & EXTRA != 0 {
        let extra = bytes
            .get(at..)
            .and_then(<[u8]>::first_chunk::<2>)
            .ok_or(GzipProblemKind::Truncated)?;
        at += 2 + usize::from(u16::from_le_bytes(*extra));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let rest = bytes.get(at..).ok_or(GzipProblemKind::Truncated)?;
            at += memchr::memchr(0, rest).ok_or(GzipProblemKind::Truncated)? + 1;
        }
    }
    if flags & HEADER_SUM != 0 {
        at += 2;
    }
    if at > bytes.len() {
        return Err(GzipProblemKind::Truncated);
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, GzBuilder};

    use super::*;

    fn gz(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzBuilder::new()
            .filename("../../etc/passwd")
            .comment("c")
            .extra(vec![1, 2, 3])
            .write(Vec::new(), Compression::new(6));
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn read(compressed: &[u8]) -> Inflated {
        inflate(compressed, &Limits::default(), &ReadContext::default())
    }

    fn text(lines: u32) -> Vec<u8> {
        (0..lines)
            .flat_map(|line| {
                format!("line {line} {}\n", line.wrapping_mul(2_654_435_761)).into_bytes()
            })
            .collect()
    }

    #[test]
    fn members_follow_one_another() {
        let (a, b) = (text(10_000), text(3));
        let mut file = gz(&a);
        file.extend(gz(b""));
        file.extend(gz(&b));
        file.extend([0; 600]);
        let got = read(&file);
        assert_eq!(got.problem, None);
        assert_eq!(got.bytes, [a.as_slice(), &b].concat());
        assert!(is_gzip(&file));
    }

    #[test]
    fn a_cut_anywhere_keeps_the_beginning() {
        let content = text(2_000);
        let file = gz(&content);
        for cut in 0..file.len() {
            let got = read(&file[..cut]);
            let problem = got.problem.expect("a cut file has a problem");
            let expected = if cut == 0 {
                GzipProblemKind::BadHeader
            } else {
                GzipProblemKind::Truncated
            };
            assert_eq!(problem.kind, expected, "cut at {cut}");
            assert!(content.starts_with(&got.bytes));
            assert_eq!(problem.inflated_bytes, got.bytes.len() as u64);
        }
        assert!(read(&file[..file.len() - 1]).bytes == content);
    }

    #[test]
    fn flipped_bits_are_noticed_and_never_panic() {
        let content = text(300);
        let file = gz(&content);
        // Behind the header's fixed part, whose time and system bytes mean nothing to us.
        for bit in (10 * 8)..(file.len() * 8) {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let got = read(&bad);
            assert!(got.bytes == content || got.problem.is_some(), "bit {bit}");
        }
    }

    #[test]
    fn a_wrong_checksum_keeps_everything_and_goes_on() {
        let content = text(50);
        let mut file = gz(&content);
        let end = file.len();
        file[end - 8] ^= 1;
        file.extend(gz(b"more"));
        let got = read(&file);
        let problem = got.problem.unwrap();
        assert_eq!(problem.kind, GzipProblemKind::WrongChecksum);
        assert_eq!(problem.offset, end as u64 - 8);
        assert_eq!(got.bytes, [content.as_slice(), b"more"].concat());
        assert_eq!(problem.diagnostic(), Diagnostic::BadCompression);
    }

    #[test]
    fn a_claimed_size_drives_no_allocation() {
        let content = text(50);
        let mut file = gz(&content);
        let end = file.len();
        file[end - 4..].fill(0xff);
        assert!(room_for(&file, &Limits::default()).unwrap() < 1 << 20);
        assert_eq!(
            read(&file).problem.unwrap().kind,
            GzipProblemKind::WrongSize
        );
    }

    #[test]
    fn limits_are_named() {
        let content = text(5_000);
        let file = gz(&content);
        let limits = Limits {
            max_inflated_bytes: 10_000,
            ..Limits::default()
        };
        let got = inflate(&file, &limits, &ReadContext::default());
        assert_eq!(got.bytes, content[..10_000]);
        let told = got.problem.unwrap().to_string();
        assert!(told.contains("max_inflated_bytes = 10000"), "{told}");

        let exact = Limits {
            max_inflated_bytes: content.len() as u64,
            ..Limits::default()
        };
        let got = inflate(&file, &exact, &ReadContext::default());
        assert_eq!((got.bytes, got.problem), (content, None));
    }

    #[test]
    fn a_bomb_stops_by_its_ratio() {
        let blanks = vec![b' '; 100 << 20];
        let file = gz(&blanks);
        let got = read(&file);
        assert!(got.bytes.len() < 100 << 20);
        let problem = got.problem.unwrap();
        assert!(problem.to_string().contains("max_inflate_ratio = 250"));
        assert_eq!(problem.diagnostic(), Diagnostic::LimitReached);
    }

    #[test]
    fn a_prefix_needs_no_end() {
        let content = text(5_000);
        let file = gz(&content);
        assert_eq!(inflate_prefix(&file, 100), content[..100]);
        let cut = inflate_prefix(&file[..file.len() / 2], usize::MAX);
        assert!(!cut.is_empty() && content.starts_with(&cut));
        assert!(inflate_prefix(b"\x1f\x8b", 100).is_empty());
    }

    #[test]
    fn bytes_after_the_end_are_reported() {
        let mut file = gz(b"abc");
        let end = file.len() as u64;
        file.extend(b"{}");
        let got = read(&file);
        assert_eq!(got.bytes, b"abc");
        let problem = got.problem.unwrap();
        assert_eq!(
            (problem.kind, problem.offset),
            (GzipProblemKind::TrailingBytes, end)
        );
    }

    #[test]
    fn cancelling_stops() {
        let context = ReadContext::default();
        context.cancel();
        let got = inflate(&gz(&text(100)), &Limits::default(), &context);
        assert_eq!(got.problem.unwrap().kind, GzipProblemKind::Cancelled);
    }
}
