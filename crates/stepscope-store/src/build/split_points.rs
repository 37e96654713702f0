//! Where a long track may be cut, so that its pieces can be nested at the same time.
//!
//! One walk over a track's times, on several threads, tells whether they are in order, the latest
//! ends that [`max_end_index`] keeps, and the cuts. Nesting the pieces gives what nesting the whole
//! gives: `nest` has tests of that.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use stepscope_model::{Dur, Time};

use crate::columns::max_end_index;

/// An open slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) start: Time,
    /// Never after the end of the slice that holds it.
    pub(crate) end: Time,
    pub(crate) index: u32,
}

impl Open {
    /// Whether it is over when a slice begins at `start`. A zero-length slice is still open for
    /// those that begin with it: they come after it only if they are zero-length, too.
    pub(crate) fn is_over(&self, start: Time) -> bool {
        self.end <= start && self.start != start
    }
}

/// Where a track may be cut for nesting: at a slice before which nothing is open but slices whose
/// place is known.
#[derive(Clone, Debug)]
pub(crate) struct SplitPoint {
    /// Index of the first slice of the piece.
    pub(crate) at: usize,
    /// What is open there, outermost first.
    pub(crate) open: Vec<Open>,
    /// Latest end of all slices before.
    pub(crate) last_end: Time,
}

impl SplitPoint {
    /// Where a track begins.
    pub(crate) const BEGIN: Self = Self {
        at: 0,
        open: Vec::new(),
        last_end: Time::MIN,
    };
}

/// What one walk over a track's times finds out before it is nested.
pub(crate) struct Walk {
    /// Whether the slices come in the order that nesting wants. If not, the rest means nothing.
    pub(crate) in_order: bool,
    /// See [`max_end_index`].
    pub(crate) max_end: Vec<Time>,
    /// Where pieces begin; at least two, or none for a track that is nested as a whole.
    pub(crate) cuts: Vec<SplitPoint>,
}

/// Pieces have at least so many slices.
const PIECE: usize = 1 << 16;
/// A track has about so many pieces at most.
const PIECES: usize = 32;
/// A slice that lasts this part of its track's time may be open at a cut.
const LONG: i64 = 256;
/// Long slices that are looked at; those beyond count as short ones.
const MAX_LONG: usize = 4_096;

/// Walks over a track's times.
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

/// Whether nesting wants `a` before `b`; equal ones stay as they are.
fn comes_before(a: (Time, Dur), b: (Time, Dur)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 >= b.1)
}

/// A stretch of slices, walked over.
struct Block {
    in_order: bool,
    first: (Time, Dur),
    last: (Time, Dur),
    /// Latest end of every [`max_end_index::FAN`] slices.
    max_end: Vec<Time>,
    /// Long slices, by their position in the block, and the latest end of the short ones before.
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

/// Finds a cut near the beginning of each block but the first.
///
/// A long slice is *known* to lie on the main lane, below the known ones around it, when nothing
/// else is open as it begins and it ends within them. Everything else is unknown, and a cut is
/// where no unknown slice is open. There, nesting depends on the known slices alone: lanes without
/// an open slice are as good as new.
fn cuts(start: &[Time], dur: &[Dur], long: Dur, piece: usize, blocks: &[Block]) -> Vec<SplitPoint> {
    let mut known: Vec<Open> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    // Latest ends of all that is unknown, and of all, before the block at hand.
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

/// The first cut in a range of slices.
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
