//! The journal of a flight recorder: a circular list of segments, in which the oldest is
//! overwritten.
//!
//! Each segment is self-contained: it starts with the session's metadata, a clock reading and the
//! living threads, so readers need none of the older segments. A segment is reused when the younger
//! ones cover the time to retain, or when the memory limit is reached. Pages are reused because
//! writing fresh ones costs three times as much.
//!
//! A save pins its segments ([`Snapshot`]); a capture during a flight recording pins all segments
//! from its start. Pinned segments are not overwritten: the circular journal grows instead, within
//! bounds, and beyond them drops and counts.

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
use crate::ring::layout::CHUNK_BYTES;

/// Bounds of a circular journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time to cover.
    pub(crate) keep: Duration,
    /// Maximum bytes of all segments.
    pub(crate) bytes: usize,
}

/// Minimum limit on the bytes, which leaves room for a thread's chunk in each segment.
pub(crate) const MIN_BYTES: usize = 1 << 20;
/// Minimum number of segments within the limit.
const MIN_SEGMENTS: usize = 8;

/// A segment and the length of its valid content.
#[derive(Clone, Debug)]
pub(crate) struct SegmentView {
    segment: Arc<Segment>,
    used: usize,
}

impl SegmentView {
    /// Returns the valid blocks.
    pub(crate) fn blocks(&self) -> &[u8] {
        self.segment.blocks(self.used)
    }
}

/// A full segment.
#[derive(Debug)]
struct FullSegment {
    view: SegmentView,
    sequence: u64,
    start: SegmentStart,
    /// Arguments that are in older segments.
    missing: FxHashSet<ArgOwner>,
}

/// State at the start of a segment.
#[derive(Clone, Copy, Debug)]
struct SegmentStart {
    at: Instant,
    ticks: u64,
    /// Records dropped before in the rings.
    dropped: u64,
}

/// The content of a circular journal at one time. Holds its segments as long as it lives.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Segments, oldest first.
    pub(crate) segments: Vec<SegmentView>,
    /// Blocks in addition to the segments': a clock reading, open spans, arguments from older
    /// segments.
    pub(crate) extra_blocks: Vec<u8>,
    /// Ticks before which events have been overwritten; 0 when none have.
    pub(crate) first_ticks: u64,
    /// Time covered, at most the time to retain.
    pub(crate) covered: Duration,
    /// Whether events within the time to retain were overwritten.
    pub(crate) short: bool,
    /// Records dropped since the start of the oldest segment, and since the start of the flight
    /// recorder.
    pub(crate) dropped: u64,
    pub(crate) dropped_in_all: u64,
    /// Why some segments are not in the journal's file.
    pub(crate) file_error: Option<String>,
}

/// A pin: segments from this sequence on are not overwritten.
#[derive(Debug)]
struct Pin {
    number: u32,
    from_sequence: u64,
    /// Additional bytes that the journal may use.
    bytes: usize,
}

/// A circular list of segments; see the module.
#[derive(Debug)]
pub(crate) struct CircularJournal {
    state: u32,
    bounds: Bounds,
    segment_bytes: usize,
    file: Option<File>,
    /// Bytes of the file, and offsets of its free segments.
    file_bytes: u64,
    free: Vec<u64>,
    full: VecDeque<FullSegment>,
    tail: Option<(Tail, SegmentStart)>,
    sequence: u64,
    pins: Vec<Pin>,
    /// Blocks at the start of each segment.
    prelude: Prelude,
    /// Arguments copied from overwritten segments since the last segment started.
    retained: Vec<u8>,
    /// Ticks of the oldest event that has not been overwritten.
    first_ticks: u64,
    /// Last time that a segment within the time to retain was overwritten.
    short_since: Option<Instant>,
    start: Instant,
    /// Records dropped here.
    pub(crate) lost: u64,
    /// Records dropped before they reached the journal, as reported by the drain thread.
    pub(crate) dropped_so_far: u64,
    /// Why some segments are not in the file.
    pub(crate) file_error: Option<String>,
}

impl CircularJournal {
    /// Creates a journal in a file, as long as that can grow, or in memory.
    pub(crate) fn new(state: u32, bounds: Bounds, file: Option<File>) -> Self {
        let bytes = bounds.bytes.max(MIN_BYTES);
        let segment_bytes = (bytes / MIN_SEGMENTS).min(SEGMENT_BYTES) & !(CHUNK_BYTES - 1);
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
            retained: Vec::new(),
            first_ticks: 0,
            short_since: None,
            start: Instant::now(),
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
            if !self.start_segment() || !self.tail.as_mut().is_some_and(|tail| tail.0.append(pair))
            {
                self.lost += lost_records(pair);
            }
        }
    }

    /// Forgets a thread that has ended and whose records are all written.
    pub(crate) fn forget_thread(&mut self, serial: u32) {
        self.prelude.forget_thread(serial);
    }

    /// Seals the current segment and starts the next one. Returns `false` when there is none.
    fn start_segment(&mut self) -> bool {
        if let Some((tail, start)) = self.tail.take() {
            let view = SegmentView {
                segment: Arc::clone(tail.segment()),
                used: tail.used(),
            };
            self.full.push_back(FullSegment {
                missing: retained_args::missing(view.blocks(), start.ticks),
                view,
                sequence: self.sequence,
                start,
            });
        }
        let Some(mut tail) = self.reuse_oldest().or_else(|| self.new_segment()) else {
            return false;
        };
        self.shrink();
        self.sequence += 1;
        let start = SegmentStart {
            at: Instant::now(),
            ticks: clock::ticks(self.state),
            dropped: self.dropped_so_far,
        };
        let [meta, clock] = self.prelude.facts();
        let first = [meta, clock, &self.retained];
        let threads = self.prelude.threads();
        let mut left = self.segment_bytes / 2;
        for block in first.into_iter().chain(threads) {
            // With many threads, half of the segment remains for their records.
            if block.len() <= left && !block.is_empty() {
                left -= block.len();
                tail.append(&[IoSlice::new(block)]);
            }
        }
        self.retained.clear();
        tail.publish(self.sequence);
        self.tail = Some((tail, start));
        true
    }

    /// Returns the oldest segment for reuse, if the younger ones cover the time to retain or the
    /// limit is reached.
    fn reuse_oldest(&mut self) -> Option<Tail> {
        let oldest = self.full.front()?;
        let covered = self.covered_without_oldest();
        let at_bound = (self.full.len() + 1) * self.segment_bytes > self.bounds.bytes;
        if !(covered || at_bound) || self.is_pinned(oldest.sequence) {
            return None;
        }
        let tail = self.take_oldest()?;
        self.record_removal(covered);
        Some(tail)
    }

    /// Removes the oldest segment, unless a snapshot holds it.
    fn take_oldest(&mut self) -> Option<Tail> {
        // No new reader can appear: this thread makes the snapshots.
        if Arc::strong_count(&self.full.front()?.view.segment) > 1 {
            return None;
        }
        let oldest = self.full.pop_front()?;
        self.copy_retained(&oldest.view);
        Tail::reuse(oldest.view.segment).ok()
    }

    /// Copies the arguments of a segment that are still needed after its removal.
    fn copy_retained(&mut self, view: &SegmentView) {
        let mut needed = retained_args::referenced_args(self.state);
        for full in &self.full {
            needed.extend(full.missing.iter().copied());
        }
        let most = (self.segment_bytes / 4).saturating_sub(self.retained.len());
        let found = retained_args::copy_retained(view.blocks(), &needed, most);
        self.retained.extend(found);
    }

    /// Whether the segments after the oldest cover the time to retain.
    fn covered_without_oldest(&self) -> bool {
        let next = self.full.get(1).map(|full| full.start.at);
        next.is_some_and(|start| start.elapsed() >= self.bounds.keep)
    }

    fn is_pinned(&self, sequence: u64) -> bool {
        self.pins.iter().any(|pin| pin.from_sequence <= sequence)
    }

    /// Records the removal of the oldest segment.
    fn record_removal(&mut self, covered: bool) {
        self.first_ticks = self.full.front().map_or(u64::MAX, |next| next.start.ticks);
        if !covered {
            self.short_since = Some(Instant::now());
        }
    }

    /// Creates a segment within the bounds: in the file, or in memory when the file cannot grow.
    fn new_segment(&mut self) -> Option<Tail> {
        let pinned: usize = self.pins.iter().map(|pin| pin.bytes).max().unwrap_or(0);
        let is_read = |full: &FullSegment| Arc::strong_count(&full.view.segment) > 1;
        let reserve = if self.full.front().is_some_and(is_read) {
            (self.bounds.bytes / 4).max(2 * self.segment_bytes)
        } else {
            0
        };
        let bound = self.bounds.bytes + pinned.max(reserve);
        if (self.full.len() + 1) * self.segment_bytes > bound {
            return None;
        }
        if let Some(file) = &self.file {
            let file_offset = self.free.last().copied().unwrap_or(self.file_bytes);
            match Tail::in_file(file, file_offset, self.segment_bytes) {
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

    /// Frees the segments beyond the limit once they are not pinned.
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
            if let (Some(file_offset), Some(file)) = (tail.segment().file_offset(), &self.file) {
                os::punch_hole(file.as_raw_fd(), file_offset, self.segment_bytes as u64);
                self.free.push(file_offset);
            }
            self.record_removal(covered);
        }
    }

    /// Prevents overwriting from now on, as long as `bytes` beyond the limit suffice.
    pub(crate) fn pin(&mut self, number: u32, bytes: usize) {
        let from_sequence = self.sequence;
        self.pins.push(Pin {
            number,
            from_sequence,
            bytes,
        });
    }

    /// Ends a [`CircularJournal::pin`].
    pub(crate) fn release(&mut self, number: u32) {
        self.pins.retain(|pin| pin.number != number);
        self.shrink();
        // Not only with the next segment: a snapshot or a kill before that needs them.
        if let Some((tail, _)) = &mut self.tail
            && tail.append(&[IoSlice::new(&self.retained)])
        {
            self.retained.clear();
        }
    }

    /// Takes a snapshot of everything, or of what follows the start of a pin.
    pub(crate) fn snapshot(&self, since_pin: Option<u32>, mut extra_blocks: Vec<u8>) -> Snapshot {
        let pin = self.pins.iter().find(|pin| Some(pin.number) == since_pin);
        let from = pin.map_or(0, |pin| pin.from_sequence);
        let oldest = self.full.front().map(|full| full.start);
        let oldest = oldest.or(self.tail.as_ref().map(|tail| tail.1));
        let dropped_before = oldest.map_or(0, |start| start.dropped);
        let full = self.full.iter().filter(|full| full.sequence >= from);
        let mut segments: Vec<_> = full.map(|full| full.view.clone()).collect();
        if let Some((tail, _)) = &self.tail {
            segments.push(SegmentView {
                segment: Arc::clone(tail.segment()),
                used: tail.used(),
            });
        }
        extra_blocks.extend_from_slice(&self.retained);
        if from > 0 {
            self.add_arguments_before(from, &mut extra_blocks);
        }
        Snapshot {
            segments,
            extra_blocks,
            first_ticks: self.first_ticks,
            covered: self.covered(),
            short: self.short(),
            dropped: self.dropped_so_far.saturating_sub(dropped_before),
            dropped_in_all: self.dropped_so_far,
            file_error: self.file_error.clone(),
        }
    }

    /// Adds the arguments that the segments from this one on, and the open spans, need from older
    /// segments: a span that was open when a pin started has its arguments there.
    fn add_arguments_before(&self, sequence: u64, into: &mut Vec<u8>) {
        let (older, younger): (Vec<_>, Vec<_>) =
            self.full.iter().partition(|full| full.sequence < sequence);
        if older.is_empty() {
            return;
        }
        let mut needed = retained_args::referenced_args(self.state);
        needed.extend(younger.into_iter().flat_map(|full| &full.missing));
        if let Some((tail, start)) = &self.tail {
            let blocks = tail.segment().blocks(tail.used());
            needed.extend(retained_args::missing(blocks, start.ticks));
        }
        for full in older {
            let found =
                retained_args::copy_retained(full.view.blocks(), &needed, self.segment_bytes);
            into.extend(found);
        }
    }

    /// Moves all segments of the file to another file, whose lease no process breaks. Concurrent
    /// readers see the same content.
    pub(crate) fn leave_file(&mut self, events: &mut LeasedFile) {
        let full = self.full.iter().map(|full| full.view.clone());
        let tail = self.tail.iter().map(|(tail, _)| SegmentView {
            segment: Arc::clone(tail.segment()),
            used: tail.used(),
        });
        let segments: Vec<_> = full.chain(tail).collect();
        let to = events.successor(|file| {
            file.set_len(self.file_bytes)?;
            segments
                .iter()
                .try_for_each(|view| view.segment.copy_into(file, view.used))
        });
        match to {
            Ok(mut to) => {
                for view in &segments {
                    view.segment.show(&to.file);
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

    /// Makes segments private that snapshots still hold, at the end, after which the file may be
    /// truncated.
    pub(crate) fn forget_file(&self) {
        self.make_private(|segment| Arc::strong_count(segment) > 1);
    }

    fn make_private(&self, predicate: impl Fn(&Arc<Segment>) -> bool) {
        let Some(file) = &self.file else { return };
        let tail = self.tail.iter().map(|(tail, _)| tail.segment());
        let full = self.full.iter().map(|full| &full.view.segment);
        for segment in full.chain(tail).filter(|segment| predicate(segment)) {
            segment.make_private(file);
        }
    }

    /// Returns the covered time, at most the time to retain.
    pub(crate) fn covered(&self) -> Duration {
        let oldest = self.full.front().map(|full| full.start.at);
        let tail = self.tail.as_ref().map(|tail| tail.1.at);
        let first = match self.first_ticks {
            0 => self.start,
            _ => oldest.or(tail).unwrap_or_else(Instant::now),
        };
        first.elapsed().min(self.bounds.keep)
    }

    /// Whether events within the time to retain were overwritten recently.
    pub(crate) fn short(&self) -> bool {
        let recently = |since: Instant| since.elapsed() < self.bounds.keep;
        self.short_since.is_some_and(recently) && self.covered() < self.bounds.keep
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> usize {
        (self.full.len() + usize::from(self.tail.is_some())) * self.segment_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::index::Index;
    use crate::ring::layout::{BLOCK_DATA, BLOCK_META, BLOCK_THREAD, BlockHead};

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
        for view in &snapshot.segments {
            index.add(view.blocks());
        }
        assert_eq!(index.facts["host"], "here");
        assert_eq!(index.threads[&7].name, "worker");
        assert_eq!(index.garbage, 0);
        usize::try_from(index.records()).unwrap() / 2_500
    }

    #[test]
    fn memory_limit_bounds_the_retained_time_and_is_reported() {
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
    fn covered_time_needs_no_more_memory() {
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
    fn pinned_segments_are_not_overwritten_and_drops_are_counted() {
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
    fn arguments_overwritten_at_the_end_of_a_pin_are_available_at_once() {
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
                .segments
                .iter()
                .any(|view| holds_argument(view.blocks()))
        };
        assert!(in_pieces(&circular));
        circular.release(3);
        assert!(
            circular.bytes() <= 1 << 20,
            "the first segments are overwritten"
        );
        assert!(
            in_pieces(&circular),
            "not only in the segment that begins next"
        );
    }

    #[test]
    fn segments_being_saved_are_not_overwritten() {
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
