//! The drain thread: carries records from the threads' rings into the journal.
//!
//! It wakes by time: every millisecond while something is being recorded, and goes on without a pause
//! while rings are more than half full, so that the recording threads need no system call to wake it.
//! Rings that were more than half full get more chunks. When no chunk was left for 200 ms it sleeps for
//! up to 100 ms; a thread that leaves a chunk meanwhile wakes it ([`crate::drain::wakeup`]).
//!
//! Only chunks that their owner has left are carried, so writes and blocks are large: what is in the
//! current chunk is safe where it is. A flush, a thread's end and the session's end carry the rest.
//!
//! A chunk is given back only after the write that carries its content has returned; a kill in
//! between leaves the same records in both places, and the block heads (thread, sequence, offset)
//! tell so.
#![allow(unsafe_code, reason = "reads the rings; see the module `ring`")]
#![allow(
    clippy::disallowed_methods,
    reason = "the recorder reads the names of threads from the kernel's files"
)]

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::drain::requests::{Carried, Control, DrainRequest};
use crate::drain::triggers::Triggers;
use crate::journal::append::Journal;
use crate::journal::circular::block;
use crate::journal::disk_limit::AtLimit;
use crate::journal::leased_file::LeasedFile;
use crate::journal::record_iter::records;
use crate::platform::clock::Pair;
use crate::platform::os;
use crate::ring::chunk::{ChunkHead, Record, in_order};
use crate::ring::layout::{
    BLOCK_CLOCK, BLOCK_DATA, BLOCK_HEAD, BLOCK_LOST, BLOCK_OPEN, BLOCK_THREAD, BlockHead,
    CHUNK_BYTES, CHUNK_USABLE, KIND_SPAN, KIND_STEP, MAX_CHUNKS, NAMES_BYTES, RECORD_BYTES,
    RegionHead, THREAD_NAME_BYTES, first_extent_bytes, meta_kind,
};
use crate::ring::memory::{ATTACH, LateRecords, LeftRingMemory, RingMemory, SWEEPING, regions};
use crate::ring::thread_exit;
use crate::ring::writer::{ATTACHING, LOST, RELOCATING, set_state};
use crate::session::folder::LeasedFiles;
use crate::session::recording::{forget_names, relocate_names, say};

const BUSY_PERIOD: Duration = Duration::from_millis(1);
/// Ten times a second. A thread that leaves a chunk wakes us earlier.
const IDLE_PERIOD: Duration = Duration::from_millis(100);
/// Passes without a record before the longer period is used.
const IDLE_AFTER: u32 = 200;
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// The rings are being moved to another file, until this is dropped.
struct Relocating;

impl Relocating {
    fn begin() -> Self {
        RELOCATING.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Relocating {
    fn drop(&mut self) {
        RELOCATING.store(false, Ordering::SeqCst);
    }
}

/// What the drain thread remembers of a region.
#[derive(Clone)]
struct Seen {
    serial: u32,
    /// Sequence and bytes already carried, by chunk.
    carried: [(u32, u32); MAX_CHUNKS],
    /// Sequence of the chunk after the last one that was given back.
    next: u32,
    name: Vec<u8>,
    lost: (u64, u64),
    /// Of a region that was moved.
    late: Option<LateRecords>,
}

/// What a pass carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Chunks that their owner has left.
    Left,
    /// Also what is in the current chunks.
    All,
    /// Also what is open at that moment.
    Moment,
    /// Everything, and then the region is taken back.
    End,
}

/// A piece of a chunk that is ready to be carried.
struct Piece {
    chunk: usize,
    sequence: u32,
    from: u32,
    to: u32,
    closed: bool,
}

/// The drain thread's state; handed back when it ends.
pub(crate) struct Drain {
    state: u32,
    pub(crate) journal: Journal,
    seen: Vec<Option<Box<Seen>>>,
    last_clock: Instant,
    /// Records carried so far.
    pub(crate) records: u64,
    /// Threads seen so far.
    pub(crate) threads: u64,
    /// Records dropped, and texts cut, in rings so far. The blocks that say so may find no room.
    pub(crate) dropped: u64,
    pub(crate) cut_texts: u64,
    /// What a flight recorder looks for.
    flight: Option<Triggers>,
    /// What was open, by thread, as the last [`What::Moment`] found it.
    open: Vec<(u32, Vec<[u64; 3]>)>,
    /// What was said about a limit on the disk.
    limit_said: Option<AtLimit>,
    /// Prints nothing: the program's stop reports for its workers.
    quiet: bool,
    /// The journal's files, if there are some.
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
            limit_said: None,
            quiet: false,
            files,
        }
    }

    /// For a flight recorder.
    pub(crate) fn looking_for(mut self, triggers: Option<Triggers>) -> Self {
        self.flight = triggers;
        self
    }

    /// For a worker process.
    pub(crate) fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Publishes how far it is.
    fn tell(&mut self, carried: &Carried) {
        carried
            .events
            .store(self.journal.events(), Ordering::Relaxed);
        carried.bytes.store(self.journal.bytes(), Ordering::Relaxed);
        let dropped = self.dropped + self.journal.lost() + LOST.load(Ordering::Relaxed);
        carried.dropped.store(dropped, Ordering::Relaxed);
        if let Some(circular) = self.journal.circular() {
            circular.dropped_so_far = dropped;
            let covered = u64::try_from(circular.covered().as_nanos()).unwrap_or(u64::MAX);
            carried.covered_ns.store(covered, Ordering::Relaxed);
        }
    }

    /// Does what somebody asked for. Who no longer waits for the answer is not missed.
    fn answer(&mut self, request: DrainRequest) {
        let (state, moment) = match &request {
            DrainRequest::Snapshot { .. } => (self.state, self.moment()),
            _ => (self.state, Vec::new()),
        };
        let Some(circular) = self.journal.circular() else {
            return;
        };
        match request {
            DrainRequest::Snapshot { since_pin, answer } => {
                let _ = answer.try_send(circular.snapshot(since_pin, moment));
            }
            DrainRequest::Pin {
                number,
                bytes,
                answer,
            } => {
                circular.pin(number, bytes);
                let _ = answer.try_send(crate::platform::clock::ticks(state));
            }
            DrainRequest::Release { number } => circular.release(number),
        }
    }

    /// What is true at this moment only: what is open, and what time it is.
    fn moment(&self) -> Vec<u8> {
        let mut moment = Vec::new();
        let clock = BlockHead {
            kind: BLOCK_CLOCK,
            ..BlockHead::default()
        };
        block(clock, &Pair::read(self.state).encode(), &mut moment);
        let now = crate::platform::clock::ticks(self.state);
        for (serial, open) in &self.open {
            let head = BlockHead {
                kind: BLOCK_OPEN,
                serial: *serial,
                ..BlockHead::default()
            };
            block(head, &open_block(now, open), &mut moment);
        }
        moment
    }

    /// The thread's body.
    pub(crate) fn run(mut self, control: &Control) -> Self {
        os::hold_all_signals();
        let carried = &control.carried;
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
            self.leave_wanted_files();
            let before = self.records;
            let requests = control.requests();
            let is_shot = |request: &DrainRequest| matches!(request, DrainRequest::Snapshot { .. });
            let wanted = if requests.iter().any(is_shot) {
                What::Moment
            } else if flush > flushed {
                What::All
            } else {
                What::Left
            };
            flushed = flush;
            crowded = self.pass(wanted);
            self.tell(carried);
            self.mind_limit();
            for request in requests {
                self.answer(request);
            }
            if let Some(flight) = &mut self.flight {
                flight.look();
            }
            idle = if self.records == before {
                idle.saturating_add(1)
            } else {
                0
            };
            control.done(flush);
            if stop {
                // Who waits for an answer or an occasion hears that there will be none.
                drop(control.requests());
                RELOCATING.store(false, Ordering::SeqCst);
                self.flight = None;
                self.put_clock();
                self.refresh_names();
                self.pass(What::End);
                return self;
            }
        }
    }

    /// Moves out of files that somebody wants to open or shorten.
    fn leave_wanted_files(&mut self) {
        let Some(mut files) = self.files.take() else {
            return;
        };
        if files.rings.is_wanted() {
            self.leave_rings(&mut files.rings);
        }
        if let (Some(events), Some(circular)) = (&mut files.events, self.journal.circular())
            && events.is_wanted()
        {
            circular.leave_file(events);
        }
        self.files = Some(files);
    }

    /// Moves the names and the threads' regions to another file.
    fn leave_rings(&mut self, rings: &mut LeasedFile) {
        let _relocating = Relocating::begin();
        let begun = Instant::now();
        while ATTACHING.load(Ordering::SeqCst) > 0 {
            // Allotting space takes long on a busy disk: the next pass tries again.
            if begun.elapsed() > BUSY_PERIOD {
                return;
            }
            std::thread::yield_now();
        }
        self.pass(What::All);
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
            os::allot(file.as_raw_fd(), 0, NAMES_BYTES as u64)
                .map_err(io::Error::from_raw_os_error)?;
            shown.iter().try_for_each(|region| region.allot_in(file))
        });
        let Ok(mut to) = to else {
            // No memory: what is in the rings is lost, and the program is not.
            for region in shown {
                region.unmap_file();
            }
            forget_names();
            rings.release();
            return to.map(drop);
        };
        let mut result = relocate_names(&to.file);
        for region in shown {
            // SAFETY: this is the drain thread, and threads that want to attach wait.
            match unsafe { region.relocate(rings.fd(), &to.file) } {
                Ok(old) => self.carry_old(region, &old),
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

    /// Carries what was recorded in a region before it was moved, and since the last pass.
    fn carry_old(&mut self, region: &RingMemory, old: &LeftRingMemory) {
        let head = region.head();
        let Some(mut seen) = self
            .seen
            .get_mut(region.index as usize)
            .and_then(Option::take)
        else {
            return;
        };
        let is_same = seen.serial == head.serial.load(Ordering::Acquire);
        let pieces = if is_same {
            pieces(old.head(), &seen)
        } else {
            Vec::new()
        };
        for piece in pieces {
            let bytes = old.published(piece.chunk, piece.from, piece.to);
            if !bytes.is_empty() {
                self.records += (bytes.len() / RECORD_BYTES) as u64;
                let head = BlockHead {
                    kind: BLOCK_DATA,
                    serial: seen.serial,
                    sequence: piece.sequence,
                    from: piece.from,
                    ..BlockHead::default()
                };
                self.journal.put(head, bytes);
            }
            let state = piece.sequence << 1 | u32::from(piece.closed);
            let chunk = &head.chunks[piece.chunk];
            if piece.closed && chunk.state.load(Ordering::Acquire) == state {
                seen.carried[piece.chunk] = (0, 0);
                seen.next = piece.sequence + 1;
                chunk.give_back();
            } else {
                // The owner goes on behind what it had published, wherever it did so.
                seen.carried[piece.chunk] = (piece.sequence, piece.to);
            }
        }
        // What came before the first chunk here was in the old file, and has been carried.
        let here = head.chunks.iter().filter_map(ChunkHead::published);
        if let Some(first) = here.map(|published| published.sequence).min() {
            seen.next = seen.next.max(first);
        }
        seen.late = old.late();
        self.seen[region.index as usize] = Some(seen);
    }

    /// Says once that the journal has reached a limit on the disk, and stops recording if it stops there.
    fn mind_limit(&mut self) {
        let Some(reached) = self.journal.limit_reached() else {
            return;
        };
        if self.journal.is_stopped() && self.limit_said != Some(AtLimit::Stop) {
            self.limit_said = Some(AtLimit::Stop);
            set_state(0);
            self.say(&format!(
                "{reached}: recording has stopped; stop_trace writes what there is"
            ));
        } else if self.limit_said.is_none() {
            self.limit_said = Some(AtLimit::KeepLatest);
            self.say(&format!("{reached}: it goes on, and keeps its latest part"));
        }
    }

    fn say(&self, warning: &str) {
        if !self.quiet {
            say(warning);
        }
    }

    /// At the end, when nothing is mapped any more: who waits for the files goes on.
    pub(crate) fn release_files(&self) {
        if let Some(files) = &self.files {
            files.rings.release();
            if let Some(events) = &files.events {
                events.release();
            }
        }
    }

    /// Writes a reading of the clocks.
    pub(crate) fn put_clock(&mut self) {
        let head = BlockHead {
            kind: BLOCK_CLOCK,
            ..BlockHead::default()
        };
        self.journal.was_shortened();
        self.journal.put(head, &Pair::read(self.state).encode());
        self.last_clock = Instant::now();
    }

    /// Asks the kernel for the names of living threads: many are named after their first event.
    fn refresh_names(&self) {
        for region in regions() {
            let head = region.head();
            if region.session.load(Ordering::SeqCst) != self.state || !thread_exit::owned(region) {
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
            // The kernel keeps 15 bytes; the head may know the whole name.
            if !name_of(head).starts_with(now) {
                set_name(head, now);
            }
        }
    }

    /// Carries what there is. Whether a ring was more than half full. The last pass of a session
    /// also writes down open spans and takes the regions back.
    fn pass(&mut self, what: What) -> bool {
        let last = what == What::End;
        let mut crowded = false;
        self.open.clear();
        for region in regions() {
            if region.session.load(Ordering::SeqCst) != self.state {
                continue;
            }
            let owned = thread_exit::owned(region);
            crowded |= self.carry(region, if owned { what } else { What::End });
            if last {
                region.session.store(SWEEPING, Ordering::SeqCst);
                region.unmap_file();
                region.session.store(0, Ordering::SeqCst);
                thread_exit::free(region);
            } else if !owned {
                region.head().serial.store(0, Ordering::Release);
                region.session.store(0, Ordering::SeqCst);
                thread_exit::free(region);
            }
        }
        if last {
            // Regions of ended threads still show the file.
            for region in regions() {
                region.forget_file(self.state);
            }
            if let Some(circular) = self.journal.circular() {
                circular.forget_file();
            }
        }
        crowded
    }

    fn carry(&mut self, region: &RingMemory, what: What) -> bool {
        let ended = what == What::End;
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
                Box::new(Seen {
                    serial,
                    carried: [(0, 0); MAX_CHUNKS],
                    next: 1,
                    name: Vec::new(),
                    lost: (0, 0),
                    late: None,
                })
            }
        };
        self.put_thread(head, &mut seen);
        let mut open = match what {
            What::Moment | What::End => open_spans(region),
            What::Left | What::All => Vec::new(),
        };
        seen.late.take_if(|late| region.place_late(late));
        let mut pieces = pieces(head, &seen);
        let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
        let crowded = pieces.len() * 2 > limit && pieces.iter().any(|piece| piece.closed);
        if what == What::Left {
            pieces.retain(|piece| piece.closed);
        }
        self.put_pieces(region, &mut seen, &pieces, &mut open);
        if crowded && !ended {
            grow(region, limit);
        }
        self.put_lost(head, &mut seen);
        if what == What::Moment && !open.is_empty() {
            self.open.push((serial, open));
        } else if ended {
            self.put_open(serial, &open);
            self.journal.forget_thread(serial);
        }
        self.seen[index] = Some(seen);
        crowded
    }

    /// Writes pieces. What they end is taken out of `open`.
    fn put_pieces(
        &mut self,
        region: &RingMemory,
        seen: &mut Seen,
        pieces: &[Piece],
        open: &mut Vec<[u64; 3]>,
    ) {
        let heads: Vec<[u8; BLOCK_HEAD]> = pieces
            .iter()
            .map(|piece| {
                BlockHead {
                    kind: BLOCK_DATA,
                    serial: seen.serial,
                    sequence: piece.sequence,
                    from: piece.from,
                    len: piece.to - piece.from,
                }
                .encode()
            })
            .collect();
        let mut parts = Vec::with_capacity(pieces.len() * 2);
        for (head, piece) in heads.iter().zip(pieces) {
            if piece.to > piece.from {
                // SAFETY: this is the drain thread, and gives the chunk back only below.
                let bytes = unsafe { region.published(piece.chunk, piece.from, piece.to) };
                without_ended(open, bytes);
                parts.push(IoSlice::new(head));
                parts.push(IoSlice::new(bytes));
            }
        }
        if !parts.is_empty() {
            self.journal.write(&mut parts);
        }
        for piece in pieces {
            self.records += u64::from(piece.to - piece.from) / RECORD_BYTES as u64;
            if piece.closed {
                seen.carried[piece.chunk] = (0, 0);
                seen.next = piece.sequence + 1;
                region.head().chunks[piece.chunk].give_back();
            } else {
                seen.carried[piece.chunk] = (piece.sequence, piece.to);
            }
        }
    }

    /// Writes a thread's id and name when they are new.
    fn put_thread(&mut self, head: &RegionHead, seen: &mut Seen) {
        let mut name = name_of(head);
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
            // A thread without a name is written once, too.
            seen.name.push(0);
        }
    }

    fn put_lost(&mut self, head: &RegionHead, seen: &mut Seen) {
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

    /// Writes the spans that are open.
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

/// The content of a block of open spans: now, and one record each.
fn open_block(now: u64, open: &[[u64; 3]]) -> Vec<u8> {
    let words = std::iter::once(&now).chain(open.as_flattened());
    words.flat_map(|word| word.to_le_bytes()).collect()
}

/// The spans that are open.
///
/// Asked *before* the region's chunks: arguments are published before their span's slot, so those of
/// each span found here are among what the chunks then hold. The reverse order would find spans whose
/// arguments were not carried, and lose spans that end in between.
fn open_spans(region: &RingMemory) -> Vec<[u64; 3]> {
    region.open().iter().filter_map(open_span).collect()
}

/// The span of a slot, which its owner may be changing: the key counts when the meta before and after
/// it is the same. A slot that changes each time belongs to spans of nanoseconds, which end in a chunk.
fn open_span(slot: &Record) -> Option<[u64; 3]> {
    const TRIES: u32 = 16;
    let mut before = slot.meta.load(Ordering::Acquire);
    for _ in 0..TRIES {
        if before == 0 {
            return None;
        }
        let key = slot.key.load(Ordering::Acquire);
        let after = slot.meta.load(Ordering::Acquire);
        if after == before && slot.key.load(Ordering::Relaxed) == key {
            return Some([key, 0, after]);
        }
        before = after;
    }
    None
}

/// Leaves those that do not end in these records.
fn without_ended(open: &mut Vec<[u64; 3]>, bytes: &[u8]) {
    if open.is_empty() {
        return;
    }
    for ([key, _, meta], _) in records(bytes) {
        if matches!(meta_kind(meta), KIND_SPAN | KIND_STEP) {
            open.retain(|span| (span[0], span[2]) != (key, meta));
        }
    }
}

/// Writes a thread's name into its head.
pub(crate) fn set_name(head: &RegionHead, name: &[u8]) {
    let mut bytes = [0; THREAD_NAME_BYTES];
    let len = name.len().min(THREAD_NAME_BYTES);
    bytes[..len].copy_from_slice(&name[..len]);
    for (word, bytes) in head.name.iter().zip(bytes.chunks_exact(8)) {
        let bytes = bytes.try_into().unwrap_or([0; 8]);
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
    head.name_len
        .store(u32::try_from(len).unwrap_or(0), Ordering::Relaxed);
}

/// The thread's name as its head has it.
pub(crate) fn name_of(head: &RegionHead) -> Vec<u8> {
    let len = head.name_len.load(Ordering::Relaxed) as usize;
    let mut name: Vec<u8> = head
        .name
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .collect();
    name.truncate(len);
    name
}

/// What can be carried, in the order in which it was recorded.
fn pieces(head: &RegionHead, seen: &Seen) -> Vec<Piece> {
    let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
    let chunks = &head.chunks[..limit.min(MAX_CHUNKS)];
    in_order(chunks, seen.next)
        .into_iter()
        .map(|(chunk, published)| {
            let from = match seen.carried[chunk] {
                (carried, bytes) if carried == published.sequence => bytes,
                _ => 0,
            };
            let usable = u32::try_from(CHUNK_USABLE).unwrap_or(0);
            Piece {
                chunk,
                sequence: published.sequence,
                from,
                to: published.used.clamp(from, usable.max(from)),
                closed: published.left,
            }
        })
        .collect()
}

/// Gives a region as many chunks again as it has.
fn grow(region: &RingMemory, limit: usize) {
    let more = limit.min(MAX_CHUNKS - limit);
    let head = region.head();
    if more == 0 {
        return;
    }
    let at = region.chunk(limit);
    let bytes = more * CHUNK_BYTES;
    if region.mapped_for.load(Ordering::Relaxed) == 0 {
        // SAFETY: the region's own space, so far without memory behind it or unused.
        if !unsafe { os::map_memory(at, bytes) } {
            return;
        }
    } else {
        let extent = head
            .extents
            .iter()
            .find(|extent| extent.chunks.load(Ordering::Relaxed) == 0);
        let rings = ATTACH.rings.load(Ordering::Relaxed).cast_signed();
        let Some(extent) = extent else { return };
        let place = ATTACH.rings_len.fetch_add(bytes as u64, Ordering::Relaxed);
        if os::allot(rings, place, bytes as u64).is_err() {
            return;
        }
        // SAFETY: as above; the space has been allotted.
        if !unsafe { os::map_file(at, bytes, rings, place) } {
            return;
        }
        extent.file_offset.store(place, Ordering::Relaxed);
        extent.chunks.store(more as u64, Ordering::Release);
    }
    debug_assert!(first_extent_bytes(limit + more) <= crate::ring::layout::REGION_BYTES);
    head.chunk_limit
        .store(u32::try_from(limit + more).unwrap_or(1), Ordering::Release);
}
