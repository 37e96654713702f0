//! The events file: blocks that the drain thread appends to a file, to memory, or to a circular
//! journal.
//!
//! When the file cannot grow any more (a full disk, a limit on file sizes), later blocks are stored
//! in memory, up to a limit; beyond that they are dropped and counted. In both cases the recording
//! continues and the program is not disturbed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::journal::block::put_block;
use crate::journal::circular::CircularJournal;
use crate::journal::disk_limit::{AtLimit, DiskLimit, LimitReached};
use crate::journal::prelude::Prelude;
use crate::journal::record_iter::{count_events, lost_records};
use crate::journal::retained_args;
use crate::journal::segment::{SEGMENT_BYTES, Tail};
use crate::platform::clock;
use crate::platform::os;
use crate::ring::layout::{BLOCK_DATA, BLOCK_FILLER, BLOCK_HEAD, BLOCK_META, BlockHead};

/// Minimum size of a hole in a file, bytes.
const PAGE: u64 = 4096;

/// A part of the file: it starts on a page, with a [`Prelude`] and the arguments that it needs from
/// earlier parts.
#[derive(Clone, Copy, Debug)]
struct FilePart {
    /// Offset in the file, bytes.
    from: u64,
    /// Start of the part, ticks.
    ticks: u64,
    /// Events in all earlier parts.
    events_before: u64,
}

/// The journal: the destination of the blocks.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Option<File>,
    file_bytes: u64,
    state: u32,
    limit: DiskLimit,
    /// Parts that are in the file, oldest first; the last one is being written.
    parts: VecDeque<FilePart>,
    /// Blocks at the start of each part.
    prelude: Prelude,
    reached: Option<LimitReached>,
    is_stopped: bool,
    /// Events so far, including dropped ones.
    events: u64,
    /// Whether another process has truncated the file.
    is_shortened: bool,
    removed_bytes: u64,
    /// Error that ended writing to the file.
    pub(crate) file_error: Option<io::Error>,
    memory: Vec<Tail>,
    memory_bytes: usize,
    memory_limit: usize,
    /// Circular journal of a flight recorder.
    circular: Option<CircularJournal>,
    /// Records dropped because memory is full, too.
    lost: u64,
}

impl Journal {
    /// Creates a journal in memory only, of at most `limit` bytes.
    pub(crate) fn in_memory(limit: usize) -> Self {
        Self {
            file: None,
            file_bytes: 0,
            state: 0,
            limit: DiskLimit::new(u64::MAX, Some(0), AtLimit::Stop),
            parts: VecDeque::new(),
            prelude: Prelude::default(),
            reached: None,
            is_stopped: false,
            events: 0,
            is_shortened: false,
            removed_bytes: 0,
            file_error: None,
            memory: Vec::new(),
            memory_bytes: 0,
            memory_limit: limit,
            circular: None,
            lost: 0,
        }
    }

    /// Creates a journal in a new file, within `disk`; when writing fails, it continues in memory,
    /// up to `limit` bytes.
    pub(crate) fn in_file(state: u32, file: File, disk: DiskLimit, limit: usize) -> Self {
        let first = FilePart {
            from: 0,
            ticks: clock::ticks(state),
            events_before: 0,
        };
        Self {
            file: Some(file),
            state,
            limit: disk,
            parts: VecDeque::from([first]),
            ..Self::in_memory(limit)
        }
    }

    /// Forgets a thread that has ended and whose records are all written.
    pub(crate) fn forget_thread(&mut self, serial: u32) {
        self.prelude.forget_thread(serial);
        if let Some(circular) = &mut self.circular {
            circular.forget_thread(serial);
        }
    }

    /// Creates a journal that retains only the latest events.
    pub(crate) fn in_circular(circular: CircularJournal) -> Self {
        Self {
            circular: Some(circular),
            ..Self::in_memory(0)
        }
    }

    /// Appends one small block.
    pub(crate) fn put(&mut self, mut head: BlockHead, content: &[u8]) {
        head.len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let encoded = head.encode();
        self.write(&mut [IoSlice::new(&encoded), IoSlice::new(content)]);
    }

    /// Returns whether another process has truncated the file since the last call, and appends the
    /// prelude again in that case.
    pub(crate) fn was_shortened(&mut self) -> bool {
        self.check_length();
        if !std::mem::take(&mut self.is_shortened) {
            return false;
        }
        self.append_prelude();
        true
    }

    /// Checks the length of the file. The next write fills a truncated range with zeros.
    fn check_length(&mut self) {
        let len = self.file.as_ref().and_then(|file| file.metadata().ok());
        let len = len.map_or(self.file_bytes, |metadata| metadata.len());
        if len < self.file_bytes && !self.is_shortened {
            self.is_shortened = true;
            self.removed_bytes += self.file_bytes - len.max(self.live_from());
        }
    }

    /// Bytes that another process removed from the file.
    pub(crate) fn removed_bytes(&self) -> u64 {
        self.removed_bytes
    }

    /// Offset of the first remaining part in the file.
    pub(crate) fn live_from(&self) -> u64 {
        self.parts.front().map_or(0, |part| part.from)
    }

    /// Ticks before which events may have been removed; 0 when none have.
    pub(crate) fn first_ticks(&self) -> u64 {
        match self.parts.front() {
            Some(part) if part.from > 0 => part.ticks,
            _ => 0,
        }
    }

    /// Events so far, including dropped ones.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Events that were removed to stay within the limit on the disk.
    pub(crate) fn removed_events(&self) -> u64 {
        self.parts.front().map_or(0, |part| part.events_before)
    }

    /// Returns the limit that was reached first.
    pub(crate) fn limit_reached(&self) -> Option<LimitReached> {
        self.reached
    }

    /// Whether there is no room for another part, so that recording must stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Appends the blocks at the start of a part.
    fn append_prelude(&mut self) {
        let mut all = self.prelude.facts().map(Vec::as_slice).concat();
        let lines = [
            ("removed_events", self.removed_events()),
            ("first_ticks", self.first_ticks()),
            ("removed_bytes", self.removed_bytes),
        ];
        let mut meta = Vec::new();
        for (key, number) in lines {
            if number > 0 {
                meta.push(format!("{key}={number}"));
            }
        }
        if let Some(reached) = self.reached {
            meta.push(format!("limit_reached={reached}"));
        }
        if self.is_stopped {
            meta.push("recording_stopped=1".to_owned());
        }
        if !meta.is_empty() {
            let head = BlockHead {
                kind: BLOCK_META,
                ..BlockHead::default()
            };
            put_block(head, meta.join("\n").as_bytes(), &mut all);
        }
        all.extend(self.prelude.threads().flatten());
        self.append(&mut [IoSlice::new(&all)]);
    }

    /// Ends a full part and starts the next one within the limits.
    fn start_part(&mut self) {
        let Some(fd) = self.file.as_ref().map(File::as_raw_fd) else {
            return;
        };
        let retained = self.copy_needed_args();
        if !self.make_room(fd) {
            self.is_stopped = true;
            return self.append_prelude();
        }
        let filler = self.file_bytes.next_multiple_of(PAGE) - self.file_bytes;
        let filler = if filler < BLOCK_HEAD as u64 {
            filler + PAGE
        } else {
            filler
        };
        let mut border = Vec::new();
        let head = BlockHead {
            kind: BLOCK_FILLER,
            ..BlockHead::default()
        };
        let zeros = vec![0; usize::try_from(filler).unwrap_or(0) - BLOCK_HEAD];
        put_block(head, &zeros, &mut border);
        self.append(&mut [IoSlice::new(&border)]);
        self.parts.push_back(FilePart {
            from: self.file_bytes,
            ticks: clock::ticks(self.state),
            events_before: self.events,
        });
        self.append_prelude();
        if !retained.is_empty() {
            self.append(&mut [IoSlice::new(&retained)]);
        }
    }

    /// Removes old parts to make room for the next one. Returns `false` when that is impossible, or
    /// when the limit is to stop.
    fn make_room(&mut self, fd: RawFd) -> bool {
        // Freed space may not show at once, and other programs may take it: at most two parts are
        // removed for each new one.
        let mut for_others = 2;
        while let Some(reached) = self.limit.reached(self.file_bytes - self.live_from(), fd) {
            self.reached.get_or_insert(reached);
            if self.limit.at_limit == AtLimit::Stop {
                return false;
            }
            if matches!(reached, LimitReached::Free(_)) {
                // The latest part stays, even on a full disk.
                if for_others == 0 || self.parts.len() < 2 {
                    return true;
                }
                for_others -= 1;
            }
            if !self.remove_oldest(fd) {
                return false;
            }
        }
        true
    }

    /// Copies from the last part the arguments of spans that are open or still in the rings.
    fn copy_needed_args(&self) -> Vec<u8> {
        let needed = retained_args::referenced_args(self.state);
        let (Some(file), Some(part), false) = (&self.file, self.parts.back(), needed.is_empty())
        else {
            return Vec::new();
        };
        let mut content = vec![0; usize::try_from(self.file_bytes - part.from).unwrap_or(0)];
        if file.read_exact_at(&mut content, part.from).is_err() {
            return Vec::new();
        }
        let most = usize::try_from(self.limit.part_bytes() / 4).unwrap_or(0);
        retained_args::copy_retained(&content, &needed, most)
    }

    /// Frees the space of the oldest part. Returns `false` when there is only one, or the file
    /// system cannot free it.
    fn remove_oldest(&mut self, fd: RawFd) -> bool {
        let (Some(oldest), Some(next)) = (self.parts.front(), self.parts.get(1)) else {
            return false;
        };
        if !os::punch_hole(fd, oldest.from, next.from - oldest.from) {
            return false;
        }
        self.parts.pop_front();
        true
    }

    /// Appends whole blocks (heads and contents alternate), with as few system calls as possible.
    pub(crate) fn write(&mut self, parts: &mut [IoSlice<'_>]) {
        if let Some(circular) = &mut self.circular {
            self.events += events_in(parts);
            return circular.write(parts);
        }
        if self.file.is_none() {
            self.events += events_in(parts);
            return self.append(parts);
        }
        self.check_length();
        let mut rest = parts;
        let mut is_fresh = false;
        while !rest.is_empty() {
            // After the recording has stopped, the content of the rings is still written.
            let count = if self.is_stopped {
                rest.len()
            } else {
                self.fitting(rest)
            };
            if count == 0 && !is_fresh && !self.is_stopped {
                self.start_part();
                is_fresh = true;
                continue;
            }
            is_fresh = false;
            // A block larger than a part is still written.
            let (now, later) = rest.split_at_mut(count.max(2).min(rest.len()));
            now.chunks(2).for_each(|pair| self.prelude.remember(pair));
            self.events += events_in(now);
            self.append(now);
            rest = later;
        }
    }

    /// Returns how many of these slices, heads and contents, fit into the current part.
    fn fitting(&self, parts: &[IoSlice<'_>]) -> usize {
        let end = self.parts.back().map_or(0, |part| part.from) + self.limit.part_bytes();
        let mut room = end.saturating_sub(self.file_bytes);
        let mut count = 0;
        for pair in parts.chunks(2) {
            let bytes: usize = pair.iter().map(|part| part.len()).sum();
            let Some(left) = room.checked_sub(bytes as u64) else {
                break;
            };
            room = left;
            count += pair.len();
        }
        count
    }

    /// Appends to the file, or to memory when the file cannot grow.
    fn append(&mut self, parts: &mut [IoSlice<'_>]) {
        if let Some(file) = &mut self.file {
            let Err(error) = write_all(file, parts) else {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                self.file_bytes += bytes as u64;
                return;
            };
            // Truncates a partial write. After a kill, readers skip it anyway.
            let _ = file.set_len(self.file_bytes);
            self.file = None;
            self.file_error = Some(error);
        }
        for pair in parts.chunks(2) {
            if !self.put_in_memory(pair) {
                self.lost += lost_records(pair);
            }
        }
    }

    /// Stores a block in memory; `false` when memory is full.
    fn put_in_memory(&mut self, pair: &[IoSlice<'_>]) -> bool {
        let bytes: usize = pair.iter().map(|part| part.len()).sum();
        if self.memory_bytes + bytes > self.memory_limit {
            return false;
        }
        self.memory_bytes += bytes;
        if self.memory.last_mut().is_some_and(|last| last.append(pair)) {
            return true;
        }
        let Ok(mut next) = Tail::in_memory(SEGMENT_BYTES) else {
            return false;
        };
        let fits = next.append(pair);
        self.memory.push(next);
        fits
    }

    /// Bytes of whole blocks in the file, also after writing to it has failed.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let circular = self.circular.as_ref().map_or(0, CircularJournal::bytes);
        self.file_bytes + (self.memory_bytes + circular) as u64
    }

    /// Number of dropped records.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.circular.as_ref().map_or(0, |circular| circular.lost)
    }

    /// Iterates over the blocks in memory.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &[u8]> {
        let tails = self.memory.iter();
        tails.map(|tail| tail.segment().blocks(tail.used()))
    }

    /// Returns the circular journal of a flight recorder.
    pub(crate) fn circular(&mut self) -> Option<&mut CircularJournal> {
        self.circular.as_mut()
    }
}

/// Counts events in blocks: heads and contents alternate.
fn events_in(parts: &[IoSlice<'_>]) -> u64 {
    let pairs = parts.chunks(2).filter_map(|pair| match pair {
        [head, content] => Some((BlockHead::decode(head)?, content)),
        _ => None,
    });
    let data = pairs.filter(|(head, _)| head.kind == BLOCK_DATA);
    data.map(|(_, content)| count_events(content)).sum()
}

/// Writes all slices; on an error `parts` is unchanged.
fn write_all(file: &mut File, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    // The kernel takes at most 1,024 slices at once.
    for batch in parts.chunks(1_000) {
        let mut batch = batch.to_vec();
        let mut left = batch.as_mut_slice();
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::block::read_blocks;

    fn data(serial: u32) -> BlockHead {
        BlockHead {
            kind: BLOCK_DATA,
            serial,
            ..BlockHead::default()
        }
    }

    #[test]
    fn records_beyond_the_memory_limit_are_counted() {
        let mut journal = Journal::in_memory(200);
        journal.put(data(1), &[1; 96]);
        journal.put(data(2), &[2; 96]);
        assert_eq!(journal.lost(), 4);
        let all: Vec<u8> = journal.memory().flatten().copied().collect();
        let mut seen = Vec::new();
        assert_eq!(
            read_blocks(&all, |head, bytes| seen.push((head.serial, bytes.len()))),
            0
        );
        assert_eq!(seen, [(1, 96)]);
    }

    /// Creates a journal in a file, with one argument of a span that never ends in it, and this
    /// many blocks of events.
    fn fill(disk: DiskLimit, blocks: u64) -> (Journal, File) {
        let file = tempfile::tempfile().unwrap();
        let copy = file.try_clone().unwrap();
        let mut journal = Journal::in_file(clock::choose(), file, disk, 1 << 20);
        let head = |kind, serial| BlockHead {
            kind,
            serial,
            ..BlockHead::default()
        };
        journal.put(head(BLOCK_META, 0), b"host=here");
        journal.put(head(crate::ring::layout::BLOCK_CLOCK, 0), &[1; 24]);
        journal.put(
            head(crate::ring::layout::BLOCK_THREAD, 7),
            b"\x05\0\0\0\0\0\0\0worker",
        );
        for n in 0..blocks {
            let mut content = vec![1; 24_000];
            content[..8].copy_from_slice(&n.to_le_bytes());
            journal.put(data(7), &content);
        }
        (journal, copy)
    }

    /// Returns the numbers of the remaining blocks of events.
    fn numbers(journal: &Journal, file: &File) -> Vec<u64> {
        let mut all = vec![0; usize::try_from(journal.file_bytes()).unwrap()];
        file.read_exact_at(&mut all, 0).unwrap();
        let mut index = crate::journal::index::Index::default();
        index.add(&all);
        assert_eq!(index.garbage, 0);
        assert_eq!(index.facts["host"], "here");
        assert_eq!(index.threads[&7].name, "worker");
        let number =
            |data: &crate::journal::index::Data<'_>| crate::ring::layout::word(data.bytes, 0);
        index.data.iter().map(number).collect()
    }

    const SPACIOUS: crate::journal::disk_limit::SpaceQuery = |_| {
        Some(crate::platform::os::DiskSpace {
            free: 1 << 50,
            total: 1 << 50,
        })
    };

    fn limit(at_limit: AtLimit) -> DiskLimit {
        DiskLimit {
            query_space: SPACIOUS,
            ..DiskLimit::new(1 << 20, None, at_limit)
        }
    }

    #[test]
    fn a_journal_at_its_size_limit_keeps_the_latest_part() {
        use std::os::unix::fs::MetadataExt;
        let (journal, file) = fill(limit(AtLimit::KeepLatest), 1_000);
        let numbers = numbers(&journal, &file);
        assert_eq!(*numbers.last().unwrap(), 999);
        let expected: Vec<_> = (numbers[0]..1_000).collect();
        assert_eq!(numbers, expected, "one stretch up to the end");
        assert!(numbers.len() > 25, "{}", numbers.len());
        assert_eq!(journal.removed_events(), numbers[0] * 1_000);
        assert!(journal.first_ticks() > 0 && !journal.is_stopped() && journal.lost() == 0);
        assert_eq!(journal.limit_reached(), Some(LimitReached::Size(1 << 20)));
        let on_disk = file.metadata().unwrap().blocks() * 512;
        assert!(on_disk <= (1 << 20) + 8 * PAGE, "{on_disk}");
    }

    #[test]
    fn a_journal_that_stops_at_its_size_limit_keeps_what_it_has() {
        let (journal, file) = fill(limit(AtLimit::Stop), 40);
        assert!(
            !journal.is_stopped() && journal.limit_reached().is_none(),
            "not yet"
        );
        assert_eq!(numbers(&journal, &file), (0..40).collect::<Vec<_>>());
        let (journal, file) = fill(limit(AtLimit::Stop), 50);
        assert!(journal.is_stopped());
        assert_eq!(journal.limit_reached(), Some(LimitReached::Size(1 << 20)));
        assert_eq!(numbers(&journal, &file), (0..50).collect::<Vec<_>>());
        assert_eq!((journal.removed_events(), journal.lost()), (0, 0));
    }

    #[test]
    fn a_journal_on_a_full_disk_does_not_grow() {
        let full: crate::journal::disk_limit::SpaceQuery = |_| {
            Some(crate::platform::os::DiskSpace {
                free: 5 << 20,
                total: 1 << 40,
            })
        };
        let disk = |at_limit| DiskLimit {
            query_space: full,
            ..limit(at_limit)
        };
        let (journal, file) = fill(disk(AtLimit::KeepLatest), 100);
        assert_eq!(numbers(&journal, &file).last(), Some(&99));
        assert!(journal.file_bytes() - journal.live_from() <= 3 * (64 << 10));
        assert!(matches!(
            journal.limit_reached(),
            Some(LimitReached::Free(_))
        ));
        let (journal, file) = fill(disk(AtLimit::Stop), 3);
        assert_eq!(numbers(&journal, &file), [0, 1, 2]);
        assert!(journal.is_stopped(), "after the first part");
    }

    #[test]
    fn journal_continues_in_memory_when_its_file_cannot_grow() {
        let read_only = File::open("/dev/null").unwrap();
        let disk = DiskLimit::new(1 << 20, None, AtLimit::Stop);
        let mut journal = Journal::in_file(clock::choose(), read_only, disk, 1 << 20);
        journal.put(data(5), &[0; 24]);
        assert!(journal.file_error.is_some());
        assert_eq!(journal.memory().map(<[u8]>::len).sum::<usize>(), 56);
    }
}
