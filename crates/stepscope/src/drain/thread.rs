//! The drain thread: copies records from the threads' rings to the journal.
//!
//! It wakes every millisecond while events are recorded, and runs without a pause while rings are
//! more than half full, so recording threads need no system call to wake it. Rings that were more
//! than half full get more chunks. When no chunk was left for 200 ms it sleeps for up to 100 ms; a
//! thread that leaves a chunk meanwhile wakes it ([`crate::ring::wakeup`]).
//!
//! It copies only chunks that their owner has left, so writes and blocks are large; the records in
//! the current chunk are safe in the mapped file. A flush, a thread's end and the session's end
//! copy the rest.
//!
//! A chunk is given back only after the write of its content has returned. A kill in between leaves
//! the same records in both files, and readers detect that from the block heads (thread, sequence,
//! offset).
#![allow(unsafe_code, reason = "reads the rings; see the module `ring`")]
#![allow(
    clippy::disallowed_methods,
    reason = "the recorder reads the names of threads from the kernel's files"
)]

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::drain::region::{
    ChunkRange, RegionState, grow, open_block, open_spans, ready_ranges, without_ended,
};
use crate::drain::requests::{Control, DrainProgress, DrainRequest};
use crate::drain::triggers::Triggers;
use crate::journal::append::Journal;
use crate::journal::block::put_block;
use crate::journal::disk_limit::AtLimit;
use crate::journal::files::LeasedFiles;
use crate::journal::leased_file::LeasedFile;
use crate::platform::clock::Pair;
use crate::platform::os;
use crate::ring::chunk::ChunkHead;
use crate::ring::layout::{
    BLOCK_CLOCK, BLOCK_DATA, BLOCK_HEAD, BLOCK_LOST, BLOCK_OPEN, BLOCK_THREAD, BlockHead,
    MAX_CHUNKS, NAMES_BYTES, RECORD_BYTES, RegionHead, THREAD_NAME_BYTES,
};
use crate::ring::memory::{ATTACH, OldRingMapping, RingMemory, SWEEPING, regions};
use crate::ring::name_table;
use crate::ring::session_state::set_state;
use crate::ring::writer::{ATTACHING, LOST, RELOCATING};

const BUSY_PERIOD: Duration = Duration::from_millis(1);
/// Ten times a second. A thread that leaves a chunk wakes the drain thread earlier.
const IDLE_PERIOD: Duration = Duration::from_millis(100);
/// Passes without a record before the longer period applies.
const IDLE_AFTER: u32 = 200;
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// Guard while the rings are moved to another file.
struct Relocating;

impl Relocating {
    fn start() -> Self {
        RELOCATING.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Relocating {
    fn drop(&mut self) {
        RELOCATING.store(false, Ordering::SeqCst);
    }
}

/// Scope of a pass over the rings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PassScope {
    /// Only chunks that their owner has left.
    LeftChunks,
    /// Also the current chunks.
    AllChunks,
    /// Also the spans that are open now.
    OpenSpans,
    /// Everything; the pass then reclaims the region.
    Final,
}

/// The drain thread's state; returned when the thread ends.
pub(crate) struct Drain {
    state: u32,
    pub(crate) journal: Journal,
    seen: Vec<Option<Box<RegionState>>>,
    last_clock: Instant,
    /// Records copied so far.
    pub(crate) records: u64,
    /// Threads seen so far.
    pub(crate) threads: u64,
    /// Dropped records and truncated texts in rings so far. The blocks that report them may
    /// themselves be dropped.
    pub(crate) dropped: u64,
    pub(crate) cut_texts: u64,
    /// Triggers of a flight recorder.
    flight: Option<Triggers>,
    /// Open spans by thread, as the last [`PassScope::OpenSpans`] found them.
    open: Vec<(u32, Vec<[u64; 3]>)>,
    /// The disk limit that was reported.
    reported_limit: Option<AtLimit>,
    /// Whether to suppress warnings: the program's stop reports them for its workers.
    quiet: bool,
    /// The journal's leased files, if any.
    files: Option<LeasedFiles>,
}

impl Drain {
    pub(crate) fn new(state: u32, journal: Journal, files: Option<LeasedFiles>) -> Self {
        Self {
            state,
            journal,
            seen: Vec::new(),
            last_clock: Instant::now(),
            records: 0,
            threads: 0,
            dropped: 0,
            cut_texts: 0,
            flight: None,
            open: Vec::new(),
            reported_limit: None,
            quiet: false,
            files,
        }
    }

    /// Sets the triggers of a flight recorder.
    pub(crate) fn with_triggers(mut self, triggers: Option<Triggers>) -> Self {
        self.flight = triggers;
        self
    }

    /// Suppresses warnings, for a worker process.
    pub(crate) fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Publishes the progress counters.
    fn publish_progress(&mut self, progress: &DrainProgress) {
        progress
            .events
            .store(self.journal.events(), Ordering::Relaxed);
        progress
            .bytes
            .store(self.journal.bytes(), Ordering::Relaxed);
        let dropped = self.dropped + self.journal.lost() + LOST.load(Ordering::Relaxed);
        progress.dropped.store(dropped, Ordering::Relaxed);
        if let Some(circular) = self.journal.circular() {
            circular.dropped_so_far = dropped;
            let covered = u64::try_from(circular.covered().as_nanos()).unwrap_or(u64::MAX);
            progress.covered_ns.store(covered, Ordering::Relaxed);
        }
    }

    /// Handles a request. A requester that no longer waits for the reply is ignored.
    fn handle_request(&mut self, request: DrainRequest) {
        let (state, state_blocks) = match &request {
            DrainRequest::Snapshot { .. } => (self.state, self.state_blocks()),
            _ => (self.state, Vec::new()),
        };
        let Some(circular) = self.journal.circular() else {
            return;
        };
        match request {
            DrainRequest::Snapshot { since_pin, reply } => {
                let _ = reply.try_send(circular.snapshot(since_pin, state_blocks));
            }
            DrainRequest::Pin {
                number,
                bytes,
                reply,
            } => {
                circular.pin(number, bytes);
                let _ = reply.try_send(crate::platform::clock::ticks(state));
            }
            DrainRequest::Release { number } => circular.release(number),
        }
    }

    /// Builds the blocks that are valid only now: a clock reading and the open spans.
    fn state_blocks(&self) -> Vec<u8> {
        let mut state_blocks = Vec::new();
        let clock = BlockHead {
            kind: BLOCK_CLOCK,
            ..BlockHead::default()
        };
        put_block(clock, &Pair::read(self.state).encode(), &mut state_blocks);
        let now = crate::platform::clock::ticks(self.state);
        for (serial, open) in &self.open {
            let head = BlockHead {
                kind: BLOCK_OPEN,
                serial: *serial,
                ..BlockHead::default()
            };
            put_block(head, &open_block(now, open), &mut state_blocks);
        }
        state_blocks
    }

    /// Runs the thread's loop.
    pub(crate) fn run(mut self, control: &Control) -> Self {
        os::block_all_signals();
        let progress = &control.progress;
        let mut idle = 0;
        let mut crowded = false;
        let mut flushed = 0;
        loop {
            let long = idle >= IDLE_AFTER;
            let period = match (crowded, long) {
                (true, _) => Duration::ZERO,
                (false, false) => BUSY_PERIOD,
                (false, true) => IDLE_PERIOD,
            };
            let (stop, flush) = control.wait(period, long);
            if self.last_clock.elapsed() >= CLOCK_PERIOD {
                self.put_clock();
                if !long {
                    self.refresh_names();
                }
            }
            self.leave_requested_files();
            let before = self.records;
            let requests = control.take_requests();
            let is_snapshot =
                |request: &DrainRequest| matches!(request, DrainRequest::Snapshot { .. });
            let scope = if requests.iter().any(is_snapshot) {
                PassScope::OpenSpans
            } else if flush > flushed {
                PassScope::AllChunks
            } else {
                PassScope::LeftChunks
            };
            flushed = flush;
            crowded = self.pass(scope);
            self.publish_progress(progress);
            self.report_limit();
            for request in requests {
                self.handle_request(request);
            }
            if let Some(flight) = &mut self.flight {
                flight.poll();
            }
            idle = if self.records == before {
                idle.saturating_add(1)
            } else {
                0
            };
            control.complete_flush(flush);
            if stop {
                // Disconnects the waiting requesters and the receiver of triggers.
                drop(control.take_requests());
                RELOCATING.store(false, Ordering::SeqCst);
                self.flight = None;
                self.put_clock();
                self.refresh_names();
                self.pass(PassScope::Final);
                return self;
            }
        }
    }

    /// Moves out of files that another process waits to open or truncate.
    fn leave_requested_files(&mut self) {
        let Some(mut files) = self.files.take() else {
            return;
        };
        if files.rings.is_lease_breaking() {
            self.leave_rings(&mut files.rings);
        }
        if let (Some(events), Some(circular)) = (&mut files.events, self.journal.circular())
            && events.is_lease_breaking()
        {
            circular.leave_file(events);
        }
        self.files = Some(files);
    }

    /// Moves the names and the threads' regions to another file.
    fn leave_rings(&mut self, rings: &mut LeasedFile) {
        let _relocating = Relocating::start();
        let start = Instant::now();
        while ATTACHING.load(Ordering::SeqCst) > 0 {
            // Allocating space takes long on a busy disk: the next pass tries again.
            if start.elapsed() > BUSY_PERIOD {
                return;
            }
            std::thread::yield_now();
        }
        self.pass(PassScope::AllChunks);
        if let Err(error) = self.relocate_rings(rings) {
            let code = error.raw_os_error().unwrap_or(libc::ENOMEM);
            ATTACH.failed.store(code.unsigned_abs(), Ordering::Relaxed);
        }
    }

    fn relocate_rings(&mut self, rings: &mut LeasedFile) -> io::Result<()> {
        let is_shown =
            |region: &&RingMemory| region.mapped_for.load(Ordering::Relaxed) == self.state;
        let shown: Vec<_> = regions().filter(is_shown).collect();
        let to = rings.successor(|file| {
            file.set_len(ATTACH.rings_len.load(Ordering::Relaxed))?;
            os::allocate(file.as_raw_fd(), 0, NAMES_BYTES as u64)
                .map_err(io::Error::from_raw_os_error)?;
            shown.iter().try_for_each(|region| region.allot_in(file))
        });
        let Ok(mut to) = to else {
            // No memory: the content of the rings is lost; the program continues.
            for region in shown {
                region.unmap_file();
            }
            name_table::forget();
            rings.release();
            return to.map(drop);
        };
        let mut result = name_table::relocate(&to.file);
        for region in shown {
            // SAFETY: this is the drain thread, and threads wait before they attach.
            match unsafe { region.relocate(rings.fd(), &to.file) } {
                Ok(old) => self.copy_old_mapping(region, &old),
                Err(error) => {
                    region.unmap_file();
                    result = Err(error);
                }
            }
        }
        if let Some(reason) = to.reason.take() {
            result = Err(reason);
        }
        rings.hand_over(to, None)?;
        result
    }

    /// Copies scope was recorded in a region between the last pass and the move.
    fn copy_old_mapping(&mut self, region: &RingMemory, old: &OldRingMapping) {
        let head = region.head();
        let Some(mut seen) = self
            .seen
            .get_mut(region.index as usize)
            .and_then(Option::take)
        else {
            return;
        };
        let is_same = seen.serial == head.serial.load(Ordering::Acquire);
        let ranges = if is_same {
            ready_ranges(old.head(), &seen)
        } else {
            Vec::new()
        };
        for range in ranges {
            let bytes = old.published(range.chunk, range.from, range.to);
            if !bytes.is_empty() {
                self.records += (bytes.len() / RECORD_BYTES) as u64;
                let head = BlockHead {
                    kind: BLOCK_DATA,
                    serial: seen.serial,
                    sequence: range.sequence,
                    from: range.from,
                    ..BlockHead::default()
                };
                self.journal.put(head, bytes);
            }
            let state = range.sequence << 1 | u32::from(range.closed);
            let chunk = &head.chunks[range.chunk];
            if range.closed && chunk.state.load(Ordering::Acquire) == state {
                seen.copied[range.chunk] = (0, 0);
                seen.next = range.sequence + 1;
                chunk.give_back();
            } else {
                // The owner continues after the records it had published, in whichever file.
                seen.copied[range.chunk] = (range.sequence, range.to);
            }
        }
        // Records before the first chunk here were in the old file, and have been copied.
        let here = head.chunks.iter().filter_map(ChunkHead::published);
        if let Some(first) = here.map(|published| published.sequence).min() {
            seen.next = seen.next.max(first);
        }
        seen.late = region.fill_from(old);
        self.seen[region.index as usize] = Some(seen);
    }

    /// Reports once that the journal has reached a disk limit, and stops recording if the limit
    /// requires it.
    fn report_limit(&mut self) {
        let Some(reached) = self.journal.limit_reached() else {
            return;
        };
        if self.journal.is_stopped() && self.reported_limit != Some(AtLimit::Stop) {
            self.reported_limit = Some(AtLimit::Stop);
            set_state(0);
            self.warn(&format!(
                "{reached}: recording has stopped; stop_trace writes what there is"
            ));
        } else if self.reported_limit.is_none() {
            self.reported_limit = Some(AtLimit::KeepLatest);
            self.warn(&format!(
                "{reached}: recording continues and keeps its latest part"
            ));
        }
    }

    fn warn(&self, warning: &str) {
        if !self.quiet {
            os::print_warning(warning);
        }
    }

    /// Releases the files at the end, when none is mapped any more: waiting processes continue.
    pub(crate) fn release_files(&self) {
        if let Some(files) = &self.files {
            files.rings.release();
            if let Some(events) = &files.events {
                events.release();
            }
        }
    }

    /// Writes a clock reading.
    pub(crate) fn put_clock(&mut self) {
        let head = BlockHead {
            kind: BLOCK_CLOCK,
            ..BlockHead::default()
        };
        self.journal.was_shortened();
        self.journal.put(head, &Pair::read(self.state).encode());
        self.last_clock = Instant::now();
    }

    /// Reads the names of living threads from the kernel: many are named after their first event.
    fn refresh_names(&self) {
        for region in regions() {
            let head = region.head();
            if region.session.load(Ordering::SeqCst) != self.state || !region.is_owned() {
                continue;
            }
            if head.name_given.load(Ordering::SeqCst) != 0 {
                continue;
            }
            let tid = head.tid.load(Ordering::Relaxed);
            let Ok(now) = std::fs::read(format!("/proc/self/task/{tid}/comm")) else {
                continue;
            };
            let now = now.strip_suffix(b"\n").unwrap_or(&now);
            // The kernel stores 15 bytes; the head may have the whole name.
            if !head.thread_name().starts_with(now) {
                head.set_thread_name(now);
            }
        }
    }

    /// Copies records from all regions. Returns whether a ring was more than half full. The final
    /// pass of a session also writes open spans and reclaims the regions.
    fn pass(&mut self, scope: PassScope) -> bool {
        let last = scope == PassScope::Final;
        let mut crowded = false;
        self.open.clear();
        for region in regions() {
            if region.session.load(Ordering::SeqCst) != self.state {
                continue;
            }
            let owned = region.is_owned();
            crowded |= self.drain_region(region, if owned { scope } else { PassScope::Final });
            if last {
                region.session.store(SWEEPING, Ordering::SeqCst);
                region.unmap_file();
                region.session.store(0, Ordering::SeqCst);
                region.free_retired();
            } else if !owned {
                region.head().serial.store(0, Ordering::Release);
                region.session.store(0, Ordering::SeqCst);
                region.free_retired();
            }
        }
        if last {
            // Regions of ended threads still map the file.
            for region in regions() {
                region.forget_file(self.state);
            }
            if let Some(circular) = self.journal.circular() {
                circular.forget_file();
            }
        }
        crowded
    }

    fn drain_region(&mut self, region: &RingMemory, scope: PassScope) -> bool {
        let ended = scope == PassScope::Final;
        let head = region.head();
        let serial = head.serial.load(Ordering::Acquire);
        let index = region.index as usize;
        if self.seen.len() <= index {
            self.seen.resize(index + 1, None);
        }
        let mut seen = match self.seen[index].take() {
            Some(seen) if seen.serial == serial => seen,
            _ => {
                self.threads += 1;
                Box::new(RegionState {
                    serial,
                    copied: [(0, 0); MAX_CHUNKS],
                    next: 1,
                    name: Vec::new(),
                    lost: (0, 0),
                    late: None,
                })
            }
        };
        self.put_thread(head, &mut seen);
        let mut open = match scope {
            PassScope::OpenSpans | PassScope::Final => open_spans(region),
            PassScope::LeftChunks | PassScope::AllChunks => Vec::new(),
        };
        seen.late.take_if(|late| region.write_late_record(late));
        let mut ranges = ready_ranges(head, &seen);
        let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
        let crowded = ranges.len() * 2 > limit && ranges.iter().any(|range| range.closed);
        if scope == PassScope::LeftChunks {
            ranges.retain(|range| range.closed);
        }
        self.put_ranges(region, &mut seen, &ranges, &mut open);
        if crowded && !ended {
            grow(region, limit);
        }
        self.put_lost(head, &mut seen);
        if scope == PassScope::OpenSpans && !open.is_empty() {
            self.open.push((serial, open));
        } else if ended {
            self.put_open(serial, &open);
            self.journal.forget_thread(serial);
        }
        self.seen[index] = Some(seen);
        crowded
    }

    /// Writes ranges of chunks. Removes the spans that end there from `open`.
    fn put_ranges(
        &mut self,
        region: &RingMemory,
        seen: &mut RegionState,
        ranges: &[ChunkRange],
        open: &mut Vec<[u64; 3]>,
    ) {
        let heads: Vec<[u8; BLOCK_HEAD]> = ranges
            .iter()
            .map(|range| {
                BlockHead {
                    kind: BLOCK_DATA,
                    serial: seen.serial,
                    sequence: range.sequence,
                    from: range.from,
                    len: range.to - range.from,
                }
                .encode()
            })
            .collect();
        let mut parts = Vec::with_capacity(ranges.len() * 2);
        for (head, range) in heads.iter().zip(ranges) {
            if range.to > range.from {
                // SAFETY: this is the drain thread, which gives the chunk back only after the
                // write.
                let bytes = unsafe { region.published(range.chunk, range.from, range.to) };
                without_ended(open, bytes);
                parts.push(IoSlice::new(head));
                parts.push(IoSlice::new(bytes));
            }
        }
        if !parts.is_empty() {
            self.journal.write(&mut parts);
        }
        for range in ranges {
            self.records += u64::from(range.to - range.from) / RECORD_BYTES as u64;
            if range.closed {
                seen.copied[range.chunk] = (0, 0);
                seen.next = range.sequence + 1;
                region.head().chunks[range.chunk].give_back();
            } else {
                seen.copied[range.chunk] = (range.sequence, range.to);
            }
        }
    }

    /// Writes a thread's id and name when they have changed.
    fn put_thread(&mut self, head: &RegionHead, seen: &mut RegionState) {
        let mut name = head.thread_name();
        if !seen.name.is_empty() && name == seen.name {
            return;
        }
        name.truncate(THREAD_NAME_BYTES);
        let mut content = u64::from(head.tid.load(Ordering::Relaxed))
            .to_le_bytes()
            .to_vec();
        content.extend_from_slice(&name);
        seen.name = name;
        let head = BlockHead {
            kind: BLOCK_THREAD,
            serial: seen.serial,
            ..BlockHead::default()
        };
        self.journal.put(head, &content);
        if seen.name.is_empty() {
            // Marks a thread without a name as written.
            seen.name.push(0);
        }
    }

    fn put_lost(&mut self, head: &RegionHead, seen: &mut RegionState) {
        let lost = (
            head.dropped.load(Ordering::Relaxed),
            head.cut.load(Ordering::Relaxed),
        );
        if lost == seen.lost {
            return;
        }
        self.dropped += lost.0.saturating_sub(seen.lost.0);
        self.cut_texts += lost.1.saturating_sub(seen.lost.1);
        seen.lost = lost;
        let mut content = lost.0.to_le_bytes().to_vec();
        content.extend_from_slice(&lost.1.to_le_bytes());
        let head = BlockHead {
            kind: BLOCK_LOST,
            serial: seen.serial,
            ..BlockHead::default()
        };
        self.journal.put(head, &content);
    }

    /// Writes the open spans.
    fn put_open(&mut self, serial: u32, open: &[[u64; 3]]) {
        if !open.is_empty() {
            let head = BlockHead {
                kind: BLOCK_OPEN,
                serial,
                ..BlockHead::default()
            };
            let now = crate::platform::clock::ticks(self.state);
            self.journal.put(head, &open_block(now, open));
        }
    }
}
