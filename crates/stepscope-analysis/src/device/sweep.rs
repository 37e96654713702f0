//! Sweep over the queues of a device in time order: its activity at each timestamp.

use std::ops::Range;

use stepscope_model::{Cancelled, NameId, Time};
use stepscope_store::{Slices, Trace};

use super::work::{AROUND, AWAIT_COMMUNICATION, AWAIT_COPY, CLASSES, COUNTERS, Classes, Row, Work};
use super::{Device, Queue};
use crate::parallel::{self, CHUNK_LEN, Cancel};

/// Number of slices of a queue that share one entry of [`Ends`].
pub(super) const BLOCK: usize = 1 << 13;

/// Latest end of the slices so far, by class.
pub(super) type Ends = [Time; CLASSES];

pub(super) const NO_ENDS: Ends = [Time::MIN; CLASSES];

/// Start of the first slice, by class.
pub(super) type Starts = [Time; CLASSES];

pub(super) const NO_STARTS: Starts = [Time::MAX; CLASSES];

pub(super) fn earlier(starts: &mut Starts, others: &Starts) {
    for (start, other) in starts.iter_mut().zip(others) {
        *start = (*start).min(*other);
    }
}

pub(super) fn later(ends: &mut Ends, others: &Ends) {
    for (end, other) in ends.iter_mut().zip(others) {
        *end = (*end).max(*other);
    }
}

/// Result of the first pass for one chunk of one queue.
#[derive(Clone, Debug)]
pub(super) struct TrackChunk {
    pub(super) counts: [u64; CLASSES],
    pub(super) starts: Starts,
    /// Ends of each [`BLOCK`].
    pub(super) ends: Vec<Ends>,
}

impl TrackChunk {
    pub(super) fn read(
        slices: &Slices<'_>,
        row: Row,
        classes: &Classes<'_>,
        indexes: Range<usize>,
    ) -> Self {
        let mut chunk = Self {
            counts: [0; CLASSES],
            starts: NO_STARTS,
            ends: Vec::with_capacity(indexes.len().div_ceil(BLOCK)),
        };
        let mut from = indexes.start;
        while from < indexes.end {
            let to = indexes.end.min(from + BLOCK);
            let mut ends = NO_ENDS;
            for index in from..to {
                let class = classes.class(row, slices.category.get(index), name(slices, index));
                if let Some(class) = class.index() {
                    chunk.counts[class] += 1;
                    chunk.starts[class] = chunk.starts[class].min(slices.start[index]);
                    ends[class] = ends[class].max(slices.end(index));
                }
            }
            chunk.ends.push(ends);
            from = to;
        }
        chunk
    }
}

#[inline]
fn name(slices: &Slices<'_>, index: usize) -> NameId {
    slices.name.get(index).copied().unwrap_or_default()
}

/// A range of time in which the same kinds of work ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkSegment {
    pub(super) start: Time,
    pub(super) end: Time,
    /// Bits of [`Work`], and [`AWAITS`]; none: the device was idle.
    pub(super) work: u8,
}

/// The bit for an instruction that waits for the end of an asynchronous one.
pub(super) const AWAITS: u8 = 1 << 4;

const COMPUTE: u8 = Work::Compute.bit();
const OTHERS: u8 = 0b1110;

/// Converts the bits of classes to kinds of work.
fn works(classes: u8, counters: bool) -> u8 {
    let mut work = classes & 0b1111;
    let inside = OTHERS | 1 << AWAIT_COMMUNICATION | 1 << AWAIT_COPY;
    let around = classes & (1 << AROUND) != 0 && classes & inside == 0;
    if around || (counters && classes & (1 << COUNTERS) != 0) {
        work |= COMPUTE;
    }
    for (class, awaited) in [
        (AWAIT_COMMUNICATION, Work::Communication),
        (AWAIT_COPY, Work::Memcpy),
    ] {
        if classes & (1 << class) != 0 {
            work |= awaited.bit() | AWAITS;
        }
    }
    work
}

/// Calls `visit` with every segment of `window` in order, idle ones included; neighbours may have the same kinds
/// of work.
pub(super) fn sweep(
    trace: &Trace,
    classes: &Classes<'_>,
    device: &Device,
    window: Range<Time>,
    visit: &mut impl FnMut(WorkSegment),
) {
    let mut ends = NO_ENDS;
    let mut heads: Vec<Head<'_>> = device
        .queues
        .iter()
        .filter_map(|queue| {
            let head = Head::new(trace, classes, queue, &window);
            later(&mut ends, &head.before);
            (head.next < head.until).then_some(head)
        })
        .collect();
    let mut now = window.start;
    let mut advance = |ends: &Ends, to: Time| {
        while now < to {
            let mut active = 0;
            let mut next = to;
            for (class, end) in ends.iter().enumerate() {
                if *end > now {
                    active |= 1 << class;
                    next = next.min(*end);
                }
            }
            visit(WorkSegment {
                start: now,
                end: next,
                work: works(active, device.counters),
            });
            now = next;
        }
    };
    while let Some((first, until)) = earliest(&heads) {
        let head = &mut heads[first];
        loop {
            let index = head.next;
            let start = head.slices.start[index];
            if start > until {
                break;
            }
            let category = head.slices.category.get(index);
            let class = classes.class(head.row, category, name(&head.slices, index));
            if let Some(class) = class.index() {
                advance(&ends, start);
                ends[class] = ends[class].max(head.slices.end(index));
            }
            head.next += 1;
            if head.next == head.until {
                heads.swap_remove(first);
                break;
            }
        }
    }
    advance(&ends, window.end);
}

/// Returns the queue whose next slice starts first, and the time until which that holds.
fn earliest(heads: &[Head<'_>]) -> Option<(usize, Time)> {
    let mut found: Option<(usize, Time)> = None;
    let mut second = Time::MAX;
    for (position, head) in heads.iter().enumerate() {
        let start = head.slices.start[head.next];
        match found {
            Some((_, first)) if first <= start => second = second.min(start),
            _ => {
                if let Some((_, first)) = found {
                    second = second.min(first);
                }
                found = Some((position, start));
            }
        }
    }
    found.map(|(position, _)| (position, second))
}

/// Position of a sweep in one queue.
struct Head<'a> {
    slices: Slices<'a>,
    row: Row,
    next: usize,
    until: usize,
    /// Ends of the slices that started before the window.
    before: Ends,
}

impl<'a> Head<'a> {
    fn new(trace: &'a Trace, classes: &Classes<'_>, queue: &Queue, window: &Range<Time>) -> Self {
        let slices = trace.slices(queue.track);
        let next = slices.start.partition_point(|start| *start < window.start);
        let until = slices.start.partition_point(|start| *start < window.end);
        let whole = next / BLOCK;
        let mut before = whole
            .checked_sub(1)
            .and_then(|block| queue.ends.get(block))
            .copied()
            .unwrap_or(NO_ENDS);
        for index in whole * BLOCK..next {
            let class = classes.class(queue.row, slices.category.get(index), name(&slices, index));
            if let Some(class) = class.index() {
                before[class] = before[class].max(slices.end(index));
            }
        }
        Self {
            slices,
            row: queue.row,
            next,
            until: until.max(next),
            before,
        }
    }
}

/// Splits `range` into windows with about the same number of slices each.
pub(super) fn windows(trace: &Trace, device: &Device, range: &Range<Time>) -> Vec<Range<Time>> {
    if range.start >= range.end {
        return Vec::new();
    }
    let longest = device
        .queues
        .iter()
        .map(|queue| trace.slices(queue.track))
        .max_by_key(Slices::len);
    let mut out = Vec::new();
    let mut start = range.start;
    if let Some(slices) = longest {
        for cut in slices.start.iter().step_by(CHUNK_LEN) {
            if *cut > start && *cut < range.end {
                out.push(start..*cut);
                start = *cut;
            }
        }
    }
    out.push(start..range.end);
    out
}

/// Sweeps `range` in parallel: one accumulator for each window, in the order of time.
pub(super) fn sweep_all<A: Send>(
    trace: &Trace,
    classes: &Classes<'_>,
    device: &Device,
    range: &Range<Time>,
    cancel: &Cancel,
    make: impl Fn(&Range<Time>) -> A + Sync,
    add: impl Fn(&mut A, WorkSegment) + Sync,
) -> Result<Vec<A>, Cancelled> {
    let windows: Vec<_> = windows(trace, device, range)
        .into_iter()
        .enumerate()
        .collect();
    let size = windows.len() * CHUNK_LEN;
    let parts = parallel::scan_items(
        &windows,
        if windows.len() > 1 { size } else { 0 },
        cancel,
        Vec::new,
        |out, (position, window)| {
            let mut accumulator = make(window);
            sweep(trace, classes, device, window.clone(), &mut |segment| {
                add(&mut accumulator, segment);
            });
            out.push((*position, accumulator));
        },
    )?;
    let mut parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.sort_by_key(|(position, _)| *position);
    Ok(parts
        .into_iter()
        .map(|(_, accumulator)| accumulator)
        .collect())
}
