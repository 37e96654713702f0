//! Split points of a long track, so that its pieces can be nested in parallel.
//!
//! One pass over a track's times, on several threads, finds whether they are in order, the latest
//! ends that [`max_end_index`] stores, and the split points. Nesting the pieces gives the same
//! result as nesting the whole track; tests in `nest` check this.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use stepscope_model::{Dur, Time};

use crate::columns::max_end_index;

/// An open slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) start: Time,
    /// End, clamped to the end of the enclosing slice.
    pub(crate) end: Time,
    pub(crate) index: u32,
}

impl Open {
    /// Returns whether the slice is closed when another slice begins at `start`. A zero-length
    /// slice is still open for slices that begin at the same time: those sorted after it are
    /// zero-length too.
    pub(crate) fn is_over(&self, start: Time) -> bool {
        self.end <= start && self.start != start
    }
}

/// A point where a track may be split for nesting: every slice that is open there has a known lane
/// and depth.
#[derive(Clone, Debug)]
pub(crate) struct SplitPoint {
    /// Index of the first slice of the piece.
    pub(crate) at: usize,
    /// The slices open there, outermost first.
    pub(crate) open: Vec<Open>,
    /// Latest end of all earlier slices.
    pub(crate) last_end: Time,
}

impl SplitPoint {
    /// The start of a track.
    pub(crate) const BEGIN: Self = Self {
        at: 0,
        open: Vec::new(),
        last_end: Time::MIN,
    };
}

/// Results of one pass over a track's times before nesting.
pub(crate) struct Walk {
    /// Whether the slices are in nesting order. If not, the other fields are meaningless.
    pub(crate) in_order: bool,
    /// See [`max_end_index`].
    pub(crate) max_end: Vec<Time>,
    /// Starts of the pieces: at least two, or none for a track that is nested as a whole.
    pub(crate) cuts: Vec<SplitPoint>,
}

/// Minimum number of slices in a piece.
const PIECE: usize = 1 << 16;
/// Approximate maximum number of pieces of a track.
const PIECES: usize = 32;
/// A slice that lasts at least 1/256 of its track's time may be open at a split point.
const LONG: i64 = 256;
/// Maximum number of long slices to consider; further ones count as short.
const MAX_LONG: usize = 4_096;

/// Computes the split points and latest ends of a track.
pub(crate) fn walk(start: &[Time], dur: &[Dur]) -> Walk {
    walk_for_pieces(start, dur, PIECE.max(start.len() / PIECES))
}

pub(crate) fn walk_for_pieces(start: &[Time], dur: &[Dur], piece: usize) -> Walk {
    let piece = piece.next_multiple_of(max_end_index::FAN);
    let span = match (start.first(), start.last()) {
        (Some(first), Some(last)) => last.since(*first).ps(),
        _ => 0,
    };
    let long = Dur::from_ps((span / LONG).max(1));
    let blocks: Vec<Block> = start
        .par_chunks(piece)
        .zip(dur.par_chunks(piece))
        .map(|(start, dur)| Block::new(start, dur, long))
        .collect();
    let joined = |(a, b): (&Block, &Block)| comes_before(a.last, b.first);
    let in_order = blocks.iter().all(|block| block.in_order)
        && blocks.iter().zip(blocks.iter().skip(1)).all(joined);
    let max_end = max_end_index::grow(blocks.iter().flat_map(|block| &block.max_end).copied());
    let cuts = if in_order && blocks.len() > 1 {
        cuts(start, dur, long, piece, &blocks)
    } else {
        Vec::new()
    };
    Walk {
        in_order,
        max_end,
        cuts,
    }
}

/// Returns whether `a` must precede `b` for nesting; equal slices keep their order.
fn comes_before(a: (Time, Dur), b: (Time, Dur)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 >= b.1)
}

/// Results of the pass over one range of slices.
struct Block {
    in_order: bool,
    first: (Time, Dur),
    last: (Time, Dur),
    /// Latest end of every [`max_end_index::FAN`] slices.
    max_end: Vec<Time>,
    /// Long slices by their position in the block, each with the latest end of the short slices
    /// before.
    long: Vec<(usize, Time)>,
    /// Latest end of the short slices.
    short_end: Time,
}

impl Block {
    fn new(start: &[Time], dur: &[Dur], long: Dur) -> Self {
        let mut found = Self {
            in_order: true,
            first: (Time::MIN, Dur::ZERO),
            last: (Time::MIN, Dur::ZERO),
            max_end: Vec::with_capacity(start.len().div_ceil(max_end_index::FAN)),
            long: Vec::new(),
            short_end: Time::MIN,
        };
        if let (Some(start), Some(dur)) = (start.first(), dur.first()) {
            found.first = (*start, *dur);
            found.last = (*start, *dur);
        }
        for (group, (start, dur)) in start
            .chunks(max_end_index::FAN)
            .zip(dur.chunks(max_end_index::FAN))
            .enumerate()
        {
            let mut latest = Time::MIN;
            for (at, (start, dur)) in start.iter().zip(dur).enumerate() {
                let end = start.saturating_add(*dur);
                latest = latest.max(end);
                found.in_order &= comes_before(found.last, (*start, *dur));
                found.last = (*start, *dur);
                if *dur >= long && found.long.len() < MAX_LONG {
                    found
                        .long
                        .push((group * max_end_index::FAN + at, found.short_end));
                } else {
                    found.short_end = found.short_end.max(end);
                }
            }
            found.max_end.push(latest);
        }
        found
    }
}

/// Finds a split point near the beginning of each block except the first.
///
/// A long slice is *known* to lie on the main lane, nested in the known slices around it, if
/// nothing else is open when it begins and it ends within them. All other slices are unknown, and a
/// split point is a position at which no unknown slice is open. There, nesting depends on the known
/// slices alone, because lanes without an open slice behave like new ones.
/// an open slice are as good as new.
fn cuts(start: &[Time], dur: &[Dur], long: Dur, piece: usize, blocks: &[Block]) -> Vec<SplitPoint> {
    let mut known: Vec<Open> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    // Latest end of the unknown slices, and of all slices, before the current block.
    let mut unknown_end = Time::MIN;
    let mut last_end = Time::MIN;
    let mut found = vec![SplitPoint::BEGIN];
    let mut long_slices = 0;
    for (number, block) in blocks.iter().enumerate() {
        let first = number * piece;
        let known_before = known.len();
        let mut inner_end = unknown_end;
        for (at, short_end) in &block.long {
            let (Some(begin), Some(length)) = (start.get(first + at), dur.get(first + at)) else {
                continue;
            };
            long_slices += 1;
            let slice = Open {
                start: *begin,
                end: begin.saturating_add(*length),
                index: u32::try_from(first + at).unwrap_or(u32::MAX),
            };
            inner_end = inner_end.max(*short_end);
            while open.last().is_some_and(|top| top.is_over(slice.start)) {
                open.pop();
            }
            let limit = open.last().map_or(Time::MAX, |top| top.end);
            if inner_end <= slice.start && slice.end <= limit && long_slices <= MAX_LONG {
                open.push(slice);
                known.push(slice);
            } else {
                inner_end = inner_end.max(slice.end);
            }
        }
        if number > 0 {
            let range = first..(first + piece).min(start.len());
            let so_far = SplitPoint {
                at: first,
                open: Vec::new(),
                last_end,
            };
            found.extend(cut_in(
                start,
                dur,
                range,
                (unknown_end, so_far),
                (&known, known_before),
                long,
            ));
        }
        unknown_end = inner_end.max(block.short_end);
        let latest = block.max_end.iter().copied().max();
        last_end = last_end.max(latest.unwrap_or(Time::MIN));
    }
    if found.len() < 2 {
        return Vec::new();
    }
    found
}

/// Finds the first split point in a range of slices.
fn cut_in(
    start: &[Time],
    dur: &[Dur],
    range: Range<usize>,
    (mut unknown_end, mut cut): (Time, SplitPoint),
    (known, mut next_known): (&[Open], usize),
    long: Dur,
) -> Option<SplitPoint> {
    let mut before = *start.get(range.start.checked_sub(1)?)?;
    for at in range {
        let (begin, length) = (*start.get(at)?, *dur.get(at)?);
        if unknown_end <= begin && before < begin {
            let open = known.iter().take(next_known);
            cut.open = open.filter(|slice| slice.end > begin).copied().collect();
            cut.at = at;
            return Some(cut);
        }
        let end = begin.saturating_add(length);
        let is_known = length >= long
            && known
                .get(next_known)
                .is_some_and(|slice| slice.index as usize == at);
        if is_known {
            next_known += 1;
        } else {
            unknown_end = unknown_end.max(end);
        }
        cut.last_end = cut.last_end.max(end);
        before = begin;
    }
    None
}
