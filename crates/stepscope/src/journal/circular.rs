//! The journal of a flight recorder: a circular of segments, the oldest written over again.
//!
//! Each segment stands for itself: it begins with the facts, a clock reading and the living threads,
//! so that any number of the older ones may be gone. A segment is taken again when the younger ones
//! cover the time to be kept, or when there may be no more memory; pages are used again, since fresh
//! ones cost three times as much to write.
//!
//! Whoever saves a part pins its segments ([`Snapshot`]); a capture that rides along pins all from its
//! begin. What is pinned is not written over: the circular grows for a while instead, within bounds, and
//! past those drops and counts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::journal::leased_file::LeasedFile;
use crate::journal::prelude::Prelude;
use crate::journal::record_iter::lost_records;
use crate::journal::retained_args::{self, ArgOwner};
use crate::journal::segment::{SEGMENT_BYTES, Segment, Tail};
use crate::platform::clock;
use crate::platform::os;
use crate::ring::layout::{BLOCK_HEAD, BlockHead, CHUNK_BYTES};

/// Bounds of a circular.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time that is to be covered.
    pub(crate) keep: Duration,
    /// Bytes of all segments, at most.
    pub(crate) bytes: usize,
}

/// Smallest bound that leaves room for a thread's chunk in each segment.
pub(crate) const LEAST_BYTES: usize = 1 << 20;
/// Segments that a bound is divided into, or more.
const LEAST_SEGMENTS: usize = 8;

/// A segment and how much of it counts.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    segment: Arc<Segment>,
    used: usize,
}

impl Piece {
    /// Its blocks.
    pub(crate) fn blocks(&self) -> &[u8] {
        self.segment.blocks(self.used)
    }
}

/// A segment that is full.
#[derive(Debug)]
struct Full {
    piece: Piece,
    sequence: u64,
    begun: Began,
    /// Arguments that lie in older segments.
    missing: FxHashSet<ArgOwner>,
}

/// When a segment was begun.
#[derive(Clone, Copy, Debug)]
struct Began {
    at: Instant,
    ticks: u64,
    /// Records dropped in rings before.
    dropped: u64,
}

/// What there is at one moment. Holds its segments as long as it lives.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Oldest first.
    pub(crate) pieces: Vec<Piece>,
    /// Blocks of this moment alone: open spans, a clock reading.
    pub(crate) moment: Vec<u8>,
    /// Ticks before which something has been written over; 0 when nothing has.
    pub(crate) first_ticks: u64,
    /// Of the time to be kept.
    pub(crate) covered: Duration,
    /// Parts had to go that were to be kept.
    pub(crate) short: bool,
    /// Records dropped since the oldest of the pieces, and since the flight recorder began.
    pub(crate) dropped: u64,
    pub(crate) dropped_in_all: u64,
    /// Why some segments are not in the journal's file.
    pub(crate) file_error: Option<String>,
}

/// A part that is not to be written over.
#[derive(Debug)]
struct Pin {
    number: u32,
    from_sequence: u64,
    /// Bytes past the circular's own bound.
    bytes: usize,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct CircularJournal {
    state: u32,
    bounds: Bounds,
    segment_bytes: usize,
    file: Option<File>,
    /// Bytes of the file, and pieces of it that are free.
    file_bytes: u64,
    free: Vec<u64>,
    full: VecDeque<Full>,
    tail: Option<(Tail, Began)>,
    sequence: u64,
    pins: Vec<Pin>,
    /// Blocks that each segment begins with.
    prelude: Prelude,
    /// Arguments of segments that have gone since the last one began.
    rescued: Vec<u8>,
    /// Ticks of the oldest moment that has not been written over.
    first_ticks: u64,
    /// The last time that something was written over before its time.
    short_since: Option<Instant>,
    begun: Instant,
    /// Records that found no room.
    pub(crate) lost: u64,
    /// Records dropped before they came here, as the drain thread tells.
    pub(crate) dropped_so_far: u64,
    /// Why some segments are not in the file.
    pub(crate) file_error: Option<String>,
}

impl CircularJournal {
    /// In a file, as long as that can grow, or in memory.
    pub(crate) fn new(state: u32, bounds: Bounds, file: Option<File>) -> Self {
        let bytes = bounds.bytes.max(LEAST_BYTES);
        let segment_bytes = (bytes / LEAST_SEGMENTS).min(SEGMENT_BYTES) & !(CHUNK_BYTES - 1);
        Self {
            state,
            bounds: Bounds { bytes, ..bounds },
            segment_bytes,
            file,
            file_bytes: 0,
            free: Vec::new(),
            full: VecDeque::new(),
            tail: None,
            sequence: 0,
            pins: Vec::new(),
            prelude: Prelude::default(),
            rescued: Vec::new(),
            first_ticks: 0,
            short_since: None,
            begun: Instant::now(),
            lost: 0,
            dropped_so_far: 0,
            file_error: None,
        }
    }

    /// Appends whole blocks: heads and contents alternate.
    pub(crate) fn write(&mut self, parts: &[IoSlice<'_>]) {
        for pair in parts.chunks(2) {
            self.prelude.remember(pair);
            if self.tail.as_mut().is_some_and(|tail| tail.0.append(pair)) {
                continue;
            }
            if !self.begin_segment() || !self.tail.as_mut().is_some_and(|tail| tail.0.append(pair))
            {
                self.lost += lost_records(pair);
            }
        }
    }

    /// A thread has ended, and everything of it is written.
    pub(crate) fn forget_thread(&mut self, serial: u32) {
        self.prelude.forget_thread(serial);
    }

    /// Seals the segment that is written and takes another one. `false` when there is none.
    fn begin_segment(&mut self) -> bool {
        if let Some((tail, begun)) = self.tail.take() {
            let piece = Piece {
                segment: Arc::clone(tail.segment()),
                used: tail.used(),
            };
            self.full.push_back(Full {
                missing: retained_args::missing(piece.blocks(), begun.ticks),
                piece,
                sequence: self.sequence,
                begun,
            });
        }
        let Some(mut tail) = self.oldest_again().or_else(|| self.another()) else {
            return false;
        };
        self.shrink();
        self.sequence += 1;
        let begun = Began {
            at: Instant::now(),
            ticks: clock::ticks(self.state),
            dropped: self.dropped_so_far,
        };
        let [meta, clock] = self.prelude.facts();
        let first = [meta, clock, &self.rescued];
        let threads = self.prelude.threads();
        let mut left = self.segment_bytes / 2;
        for block in first.into_iter().chain(threads) {
            // A crowd of threads leaves half of the segment for what they record.
            if block.len() <= left && !block.is_empty() {
                left -= block.len();
                tail.append(&[IoSlice::new(block)]);
            }
        }
        self.rescued.clear();
        tail.publish(self.sequence);
        self.tail = Some((tail, begun));
        true
    }

    /// The oldest segment, if it has done its time or there may be no more.
    fn oldest_again(&mut self) -> Option<Tail> {
        let oldest = self.full.front()?;
        let covered = self.covered_without_oldest();
        let at_bound = (self.full.len() + 1) * self.segment_bytes > self.bounds.bytes;
        if !(covered || at_bound) || self.is_pinned(oldest.sequence) {
            return None;
        }
        let tail = self.take_oldest()?;
        self.gone(covered);
        Some(tail)
    }

    /// Takes the oldest segment out, unless somebody is reading it.
    fn take_oldest(&mut self) -> Option<Tail> {
        // Nobody else can begin to read it: shots are made by this thread.
        if Arc::strong_count(&self.full.front()?.piece.segment) > 1 {
            return None;
        }
        let oldest = self.full.pop_front()?;
        self.copy_retained(&oldest.piece);
        Tail::again(oldest.piece.segment).ok()
    }

    /// Copies what is still needed of a segment that is about to go.
    fn copy_retained(&mut self, piece: &Piece) {
        let mut needed = retained_args::of_now(self.state);
        for full in &self.full {
            needed.extend(full.missing.iter().copied());
        }
        let most = (self.segment_bytes / 4).saturating_sub(self.rescued.len());
        let found = retained_args::copy_retained(piece.blocks(), &needed, most);
        self.rescued.extend(found);
    }

    /// Whether what is younger than the oldest segment covers the time to be kept.
    fn covered_without_oldest(&self) -> bool {
        let next = self.full.get(1).map(|full| full.begun.at);
        next.is_some_and(|begun| begun.elapsed() >= self.bounds.keep)
    }

    fn is_pinned(&self, sequence: u64) -> bool {
        self.pins.iter().any(|pin| pin.from_sequence <= sequence)
    }

    /// The oldest segment has been taken from the circular.
    fn gone(&mut self, covered: bool) {
        self.first_ticks = self.full.front().map_or(u64::MAX, |next| next.begun.ticks);
        if !covered {
            self.short_since = Some(Instant::now());
        }
    }

    /// A new segment, within the bounds: of the file, or of memory when that cannot grow.
    fn another(&mut self) -> Option<Tail> {
        let pinned: usize = self.pins.iter().map(|pin| pin.bytes).max().unwrap_or(0);
        let read = |full: &Full| Arc::strong_count(&full.piece.segment) > 1;
        let reserve = if self.full.front().is_some_and(read) {
            (self.bounds.bytes / 4).max(2 * self.segment_bytes)
        } else {
            0
        };
        let bound = self.bounds.bytes + pinned.max(reserve);
        if (self.full.len() + 1) * self.segment_bytes > bound {
            return None;
        }
        if let Some(file) = &self.file {
            let place = self.free.last().copied().unwrap_or(self.file_bytes);
            match Tail::in_file(file, place, self.segment_bytes) {
                Ok(tail) => {
                    if self.free.pop().is_none() {
                        self.file_bytes += self.segment_bytes as u64;
                    }
                    return Some(tail);
                }
                Err(error) => self.file_error = Some(error.to_string()),
            }
        }
        Tail::in_memory(self.segment_bytes).ok()
    }

    /// Gives back what is past the bounds, once nobody pins it any more.
    fn shrink(&mut self) {
        while (self.full.len() + 1) * self.segment_bytes > self.bounds.bytes {
            let Some(oldest) = self.full.front() else {
                return;
            };
            if self.is_pinned(oldest.sequence) {
                return;
            }
            let covered = self.covered_without_oldest();
            let Some(tail) = self.take_oldest() else {
                return;
            };
            if let (Some(place), Some(file)) = (tail.segment().place(), &self.file) {
                os::give_back(file.as_raw_fd(), place, self.segment_bytes as u64);
                self.free.push(place);
            }
            self.gone(covered);
        }
    }

    /// From now on nothing is written over, as long as `bytes` more than the bound suffice.
    pub(crate) fn pin(&mut self, number: u32, bytes: usize) {
        let from_sequence = self.sequence;
        self.pins.push(Pin {
            number,
            from_sequence,
            bytes,
        });
    }

    /// The reverse of [`CircularJournal::pin`].
    pub(crate) fn release(&mut self, number: u32) {
        self.pins.retain(|pin| pin.number != number);
        self.shrink();
        // Not only with the next segment: who asks, or is killed, before that one begins needs them.
        if let Some((tail, _)) = &mut self.tail
            && tail.append(&[IoSlice::new(&self.rescued)])
        {
            self.rescued.clear();
        }
    }

    /// All there is, or what there is since a pin began.
    pub(crate) fn snapshot(&self, since_pin: Option<u32>, mut moment: Vec<u8>) -> Snapshot {
        let pin = self.pins.iter().find(|pin| Some(pin.number) == since_pin);
        let from = pin.map_or(0, |pin| pin.from_sequence);
        let oldest = self.full.front().map(|full| full.begun);
        let oldest = oldest.or(self.tail.as_ref().map(|tail| tail.1));
        let dropped_before = oldest.map_or(0, |begun| begun.dropped);
        let full = self.full.iter().filter(|full| full.sequence >= from);
        let mut pieces: Vec<_> = full.map(|full| full.piece.clone()).collect();
        if let Some((tail, _)) = &self.tail {
            pieces.push(Piece {
                segment: Arc::clone(tail.segment()),
                used: tail.used(),
            });
        }
        moment.extend_from_slice(&self.rescued);
        if from > 0 {
            self.add_arguments_before(from, &mut moment);
        }
        Snapshot {
            pieces,
            moment,
            first_ticks: self.first_ticks,
            covered: self.covered(),
            short: self.short(),
            dropped: self.dropped_so_far.saturating_sub(dropped_before),
            dropped_in_all: self.dropped_so_far,
            file_error: self.file_error.clone(),
        }
    }

    /// Adds what segments from this one on, and what is open, need of those before: a span that was
    /// open when a pin began has its arguments there.
    fn add_arguments_before(&self, sequence: u64, into: &mut Vec<u8>) {
        let (older, younger): (Vec<_>, Vec<_>) =
            self.full.iter().partition(|full| full.sequence < sequence);
        if older.is_empty() {
            return;
        }
        let mut needed = retained_args::of_now(self.state);
        needed.extend(younger.into_iter().flat_map(|full| &full.missing));
        if let Some((tail, begun)) = &self.tail {
            let blocks = tail.segment().blocks(tail.used());
            needed.extend(retained_args::missing(blocks, begun.ticks));
        }
        for full in older {
            let found =
                retained_args::copy_retained(full.piece.blocks(), &needed, self.segment_bytes);
            into.extend(found);
        }
    }

    /// Moves all segments of the file to another one, which somebody else does not want. Others may be
    /// reading them: they notice nothing.
    pub(crate) fn leave_file(&mut self, events: &mut LeasedFile) {
        let full = self.full.iter().map(|full| full.piece.clone());
        let tail = self.tail.iter().map(|(tail, _)| Piece {
            segment: Arc::clone(tail.segment()),
            used: tail.used(),
        });
        let pieces: Vec<_> = full.chain(tail).collect();
        let to = events.successor(|file| {
            file.set_len(self.file_bytes)?;
            pieces
                .iter()
                .try_for_each(|piece| piece.segment.copy_into(file, piece.used))
        });
        match to {
            Ok(mut to) => {
                for piece in &pieces {
                    piece.segment.show(&to.file);
                }
                if let Some(reason) = to.reason.take() {
                    self.file_error = Some(reason.to_string());
                }
                if let Err(error) = events.hand_over(to, self.file.as_ref()) {
                    self.file_error = Some(error.to_string());
                }
            }
            Err(error) => {
                self.file_error = Some(error.to_string());
                self.make_private(|_| true);
                self.file = None;
                events.release();
            }
        }
    }

    /// At the end, after which the file may be shortened: what others still read of it becomes private.
    pub(crate) fn forget_file(&self) {
        self.make_private(|segment| Arc::strong_count(segment) > 1);
    }

    fn make_private(&self, wanted: impl Fn(&Arc<Segment>) -> bool) {
        let Some(file) = &self.file else { return };
        let tail = self.tail.iter().map(|(tail, _)| tail.segment());
        let full = self.full.iter().map(|full| &full.piece.segment);
        for segment in full.chain(tail).filter(|segment| wanted(segment)) {
            segment.make_private(file);
        }
    }

    /// How much of the time to be kept there is.
    pub(crate) fn covered(&self) -> Duration {
        let oldest = self.full.front().map(|full| full.begun.at);
        let tail = self.tail.as_ref().map(|tail| tail.1.at);
        let first = match self.first_ticks {
            0 => self.begun,
            _ => oldest.or(tail).unwrap_or_else(Instant::now),
        };
        first.elapsed().min(self.bounds.keep)
    }

    /// Whether something that should have been kept had to go.
    pub(crate) fn short(&self) -> bool {
        let recently = |since: Instant| since.elapsed() < self.bounds.keep;
        self.short_since.is_some_and(recently) && self.covered() < self.bounds.keep
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> usize {
        (self.full.len() + usize::from(self.tail.is_some())) * self.segment_bytes
    }
}

/// One block by itself.
pub(crate) fn block(head: BlockHead, content: &[u8], into: &mut Vec<u8>) {
    let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
    into.reserve(BLOCK_HEAD + content.len());
    into.extend_from_slice(&BlockHead { len, ..head }.encode());
    into.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::index::Index;
    use crate::ring::layout::{BLOCK_DATA, BLOCK_META, BLOCK_THREAD};

    fn put(circular: &mut CircularJournal, kind: u32, serial: u32, content: &[u8]) {
        let head = BlockHead {
            kind,
            serial,
            len: u32::try_from(content.len()).unwrap(),
            ..BlockHead::default()
        };
        circular.write(&[IoSlice::new(&head.encode()), IoSlice::new(content)]);
    }

    fn circular(keep: Duration, bytes: usize) -> CircularJournal {
        let mut circular = CircularJournal::new(clock::choose(), Bounds { keep, bytes }, None);
        put(&mut circular, BLOCK_META, 0, b"host=here");
        put(&mut circular, BLOCK_THREAD, 7, b"\x05\0\0\0\0\0\0\0worker");
        circular
    }

    fn fill(circular: &mut CircularJournal, blocks: u64) {
        for n in 0..blocks {
            let mut content = vec![0; 60_000];
            content[..8].copy_from_slice(&n.to_le_bytes());
            put(circular, BLOCK_DATA, 7, &content);
        }
    }

    fn count(snapshot: &Snapshot) -> usize {
        let mut index = Index::default();
        for piece in &snapshot.pieces {
            index.add(piece.blocks());
        }
        assert_eq!(index.facts["host"], "here");
        assert_eq!(index.threads[&7].name, "worker");
        assert_eq!(index.garbage, 0);
        usize::try_from(index.records()).unwrap() / 2_500
    }

    #[test]
    fn memory_bounds_what_is_kept_and_says_so() {
        let mut circular = circular(Duration::from_hours(1), 2 << 20);
        fill(&mut circular, 10);
        assert!(!circular.short());
        assert_eq!(count(&circular.snapshot(None, Vec::new())), 10);
        fill(&mut circular, 1_000);
        assert!(circular.bytes() <= 2 << 20);
        assert!(circular.short() && circular.covered() < circular.bounds.keep);
        let snapshot = circular.snapshot(None, Vec::new());
        assert!(
            (21..=35).contains(&count(&snapshot)),
            "{}",
            count(&snapshot)
        );
        assert!(snapshot.first_ticks > 0);
        assert_eq!(circular.lost, 0);
    }

    #[test]
    fn time_that_is_covered_takes_no_more_memory() {
        let mut circular = circular(Duration::ZERO, 64 << 20);
        fill(&mut circular, 1_000);
        assert!(
            circular.bytes() <= 3 * SEGMENT_BYTES,
            "{}",
            circular.bytes()
        );
        assert!(!circular.short());
    }

    #[test]
    fn what_is_held_is_not_written_over_and_then_drops_are_counted() {
        let mut circular = circular(Duration::from_hours(1), 1 << 20);
        fill(&mut circular, 100);
        circular.pin(3, 4 << 20);
        fill(&mut circular, 50);
        let snapshot = circular.snapshot(Some(3), Vec::new());
        assert!(count(&snapshot) >= 50);
        assert_eq!(circular.lost, 0);
        fill(&mut circular, 100);
        assert!(circular.lost > 0 && circular.bytes() <= 5 << 20);
        assert!(count(&snapshot) >= 50, "still there");
        drop(snapshot);
        circular.release(3);
        assert!(circular.bytes() <= 1 << 20, "{}", circular.bytes());
    }

    #[test]
    fn arguments_of_what_is_written_over_when_a_hold_ends_are_there_at_once() {
        use crate::ring::layout::{FLAG_ARGS, KIND_ARG, KIND_SPAN, meta};
        let record = |words: [u64; 3]| words.map(u64::to_le_bytes).concat();
        let mut circular = circular(Duration::from_hours(1), 1 << 20);
        circular.pin(3, 4 << 20);
        let argument = record([10, 5, meta(9, KIND_ARG, 0, 0)]);
        put(&mut circular, BLOCK_DATA, 7, &argument);
        fill(&mut circular, 30);
        let span = record([10, 20, meta(1, KIND_SPAN, FLAG_ARGS, 0)]);
        put(&mut circular, BLOCK_DATA, 7, &span);
        fill(&mut circular, 5);
        let holds_argument = |blocks: &[u8]| blocks.windows(24).any(|words| words == argument);
        let in_pieces = |circular: &CircularJournal| {
            let snapshot = circular.snapshot(None, Vec::new());
            snapshot
                .pieces
                .iter()
                .any(|piece| holds_argument(piece.blocks()))
        };
        assert!(in_pieces(&circular));
        circular.release(3);
        assert!(circular.bytes() <= 1 << 20, "the first segments are gone");
        assert!(
            in_pieces(&circular),
            "not only in the segment that begins next"
        );
    }

    #[test]
    fn what_is_being_saved_is_not_written_over() {
        let mut circular = circular(Duration::from_hours(1), 1 << 20);
        fill(&mut circular, 100);
        let snapshot = circular.snapshot(None, Vec::new());
        let before = count(&snapshot);
        fill(&mut circular, 3);
        assert_eq!(circular.lost, 0, "there is a reserve");
        fill(&mut circular, 100);
        assert_eq!(count(&snapshot), before);
        drop(snapshot);
        fill(&mut circular, 100);
        assert!(circular.bytes() <= 1 << 20);
    }
}
