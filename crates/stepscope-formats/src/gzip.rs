//! Inflating gzip, with bounds.
//!
//! Whatever is wrong with a stream, what could be inflated before is kept and the reader goes on
//! with it: a file that was cut in the middle still shows its beginning.
//!
//! Nothing that the stream says about itself decides how much memory is taken. The size at its
//! end is a hint for the first reservation only, held below 64 times the compressed size; from
//! there the buffer grows by a quarter at a time, which on Linux moves pages and copies nothing.
//!
//! Streams of several members (`cat a.gz b.gz`, bgzip, pigz) give the members' contents one after
//! another. Zero bytes behind the last member are padding and no problem.

use std::fmt;

use flate2::{Crc, Decompress, DecompressError, FlushDecompress, Status};
use stepscope_model::{Diagnostic, Limits, ReadContext};

/// Most compressed bytes of one step.
const STEP_BYTES: usize = 256 << 10;
/// Most inflated bytes of one step: still in the cache when they are summed up.
const ROOM_BYTES: usize = 256 << 10;
/// From here on the ratio is looked at: small files of blanks are harmless.
const RATIO_FROM_BYTES: u64 = 64 << 20;
/// The size that a stream claims is believed up to this many times its compressed size.
const HINT_RATIO: u64 = 64;

/// What [`inflate`] gives back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inflated {
    /// All that could be inflated, in order.
    pub bytes: Vec<u8>,
    /// What was wrong first; `None` when every member was whole and its checksum right.
    pub problem: Option<GzipProblem>,
}

/// What was wrong with a gzip stream, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GzipProblem {
    /// What was wrong.
    pub kind: GzipProblemKind,
    /// Where, in the compressed bytes.
    pub offset: u64,
    /// Inflated bytes that came before the problem; with a wrong checksum, up to the member's end.
    pub inflated_bytes: u64,
}

/// The kinds of [`GzipProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GzipProblemKind {
    /// The first bytes are no gzip header.
    BadHeader,
    /// The stream ends before its end marker or inside its trailer.
    Truncated,
    /// The compressed data makes no sense from here on.
    BadData,
    /// All was inflated, but the checksum differs: some bytes are wrong.
    WrongChecksum,
    /// All was inflated, but the stream claims another size.
    WrongSize,
    /// Bytes that are no gzip follow the stream. They were left out.
    TrailingBytes,
    /// More came out than `max_inflated_bytes` allows.
    TooLarge {
        /// The limit, bytes.
        limit: u64,
    },
    /// More came out per byte in than `max_inflate_ratio` allows.
    RatioTooHigh {
        /// The limit, bytes out per byte in.
        limit: u64,
    },
    /// The system gave no more memory.
    OutOfMemory,
    /// The user stopped it.
    Cancelled,
}

impl GzipProblem {
    /// The diagnostic that stands for it.
    pub const fn diagnostic(&self) -> Diagnostic {
        match self.kind {
            GzipProblemKind::TooLarge { .. }
            | GzipProblemKind::RatioTooHigh { .. }
            | GzipProblemKind::OutOfMemory
            | GzipProblemKind::Cancelled => Diagnostic::LimitReached,
            _ => Diagnostic::BadCompression,
        }
    }

    /// Whether a user-settable limit stopped the inflating.
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

/// Whether these first bytes say gzip.
pub fn is_gzip(prefix: &[u8]) -> bool {
    prefix.starts_with(&[0x1f, 0x8b])
}

/// Inflates a whole gzip file of one or more members. Never panics; see the module's text for
/// what happens with damaged streams.
///
/// Progress is counted in compressed bytes.
pub fn inflate(compressed: &[u8], limits: &Limits, context: &ReadContext) -> Inflated {
    let mut bytes = Vec::new();
    if let Some(room) = room_for(compressed, limits) {
        // If there is not so much memory, growing in small steps may still go far enough.
        let _ = bytes.try_reserve_exact(room);
    }
    let problem = inflate_into(&mut bytes, compressed, limits, context);
    // Pages that were never touched cost nothing; giving few of them back makes others wait.
    if bytes.len() < bytes.capacity() / 8 * 7 {
        bytes.shrink_to_fit();
    }
    Inflated { bytes, problem }
}

/// Room in which what comes out can be expected to fit: the size at the end of the stream, believed
/// up to 64 times the compressed size and up to the limit, and what a last step may need.
pub fn room_for(compressed: &[u8], limits: &Limits) -> Option<usize> {
    let size = compressed.last_chunk::<4>()?;
    let claimed = u64::from(u32::from_le_bytes(*size));
    let believed = claimed
        .min((compressed.len() as u64).saturating_mul(HINT_RATIO))
        .min(limits.max_inflated_bytes);
    usize::try_from(believed).ok()?.checked_add(ROOM_BYTES)
}

/// Where inflated bytes go.
pub trait Target {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there is nothing yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows at most `most` bytes of room behind them, and at least one, to `fill`, which says how
    /// many at their beginning hold content now. Gives these; `None` when there is no room.
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
        // Only the room is cleared: the library's own way of appending to a vector clears all of its
        // spare capacity at every call.
        self.resize(begin + most, 0);
        let count = fill(self.get_mut(begin..).unwrap_or_default());
        self.truncate(begin.saturating_add(count));
        self.get(begin..)
    }
}

/// Inflates as [`inflate`] does, behind what `target` holds; the first problem.
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
    // An early wrong checksum is what the user should hear of; what stopped the reading counts more.
    match (problem, state.earlier) {
        (Some(now), Some(earlier)) if !now.is_limit() => Some(earlier),
        (now, earlier) => now.or(earlier),
    }
}

/// Inflates at most the first `most` bytes, for looking at a file's format. Damage only makes the
/// result shorter.
pub fn inflate_prefix(compressed: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut state = Inflater::new(compressed, most.min(usize::MAX - 1), &mut out);
    // The end is found by a limit or by damage: neither matters to somebody who looks.
    let _ = state.run(|_, _, _| Ok(()));
    out
}

/// One pass over the members of a stream.
struct Inflater<'a, T> {
    compressed: &'a [u8],
    /// Next compressed byte.
    at: usize,
    out: &'a mut T,
    /// Most bytes that may come out.
    bound: usize,
    /// A problem that did not stop the inflating.
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

    /// Inflates member after member. `step` hears of each step: first compressed byte, first byte
    /// after it, bytes that have come out so far.
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

    /// Inflates one member, its header already passed, and its trailer.
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
            // One byte past the bound is allowed, so that a stream of exactly that size can reach its
            // end.
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

/// Inflates into `room`. Gives the bytes taken and those that came out.
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

/// Inflates into at most `room` bytes behind what `out` holds. Gives the bytes taken.
#[cfg(feature = "perfetto")]
pub(crate) fn step_into(
    inflate: &mut Decompress,
    input: &[u8],
    out: &mut Vec<u8>,
    room: usize,
) -> (usize, Result<Status, DecompressError>) {
    let mut stepped = (0, 0, Ok(Status::Ok));
    // Without room nothing is taken and nothing given: the caller sees that it is stuck.
    let _ = out.put(room, |room| {
        stepped = step_to(inflate, input, room);
        stepped.1
    });
    (stepped.0, stepped.2)
}

/// Length of the member header at the start of `bytes`.
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
    fn what_follows_is_said() {
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
