//! The events file: blocks appended by the drain thread, in a file, in memory, or in a circle.
//!
//! When the file cannot grow any more (a full disk, a limit on file sizes), what comes later is
//! kept in memory, up to a limit; past that it is dropped and counted. Either way the recording goes
//! on and the program is not disturbed.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;

use crate::circle::Circle;
use crate::layout::{BLOCK_DATA, BLOCK_HEAD, BlockHead, RECORD_BYTES};
use crate::segment::{SEGMENT_BYTES, Tail};
use crate::walk::lost_records;

/// Where the blocks go.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Option<File>,
    file_bytes: u64,
    /// What a file begins with: the facts and two readings of the clocks.
    first: Vec<u8>,
    /// Somebody has shortened the file.
    is_shortened: bool,
    /// Why the file is no longer written.
    pub(crate) file_error: Option<io::Error>,
    memory: Vec<Tail>,
    memory_bytes: usize,
    memory_limit: usize,
    /// Of a flight recorder.
    circle: Option<Circle>,
    /// Records that found no room even in memory.
    lost: u64,
}

impl Journal {
    /// In memory only, up to `limit` bytes.
    pub(crate) fn in_memory(limit: usize) -> Self {
        Self {
            file: None,
            file_bytes: 0,
            first: Vec::new(),
            is_shortened: false,
            file_error: None,
            memory: Vec::new(),
            memory_bytes: 0,
            memory_limit: limit,
            circle: None,
            lost: 0,
        }
    }

    /// In a new file; in memory, up to `limit` bytes, when that fails.
    pub(crate) fn in_file(file: File, limit: usize) -> Self {
        Self {
            file: Some(file),
            ..Self::in_memory(limit)
        }
    }

    /// The last of it only.
    pub(crate) fn in_circle(circle: Circle) -> Self {
        Self {
            circle: Some(circle),
            ..Self::in_memory(0)
        }
    }

    /// Appends one small block.
    pub(crate) fn put(&mut self, mut head: BlockHead, content: &[u8]) {
        head.len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let encoded = head.encode();
        self.write(&mut [IoSlice::new(&encoded), IoSlice::new(content)]);
    }

    /// What was appended so far is what the file begins with.
    pub(crate) fn remember_first(&mut self) {
        if let Some(file) = &self.file {
            let mut first = vec![0; usize::try_from(self.file_bytes).unwrap_or(0)];
            if file.read_exact_at(&mut first, 0).is_ok() {
                self.first = first;
            }
        }
    }

    /// Whether somebody has shortened the file since the last call. Its beginning is appended again.
    pub(crate) fn was_shortened(&mut self) -> bool {
        self.look_at_length();
        if !std::mem::take(&mut self.is_shortened) {
            return false;
        }
        let first = std::mem::take(&mut self.first);
        self.write(&mut [IoSlice::new(&first)]);
        self.first = first;
        true
    }

    /// The next write fills the place of what was taken away with zeros.
    fn look_at_length(&mut self) {
        let there = self.file.as_ref().and_then(|file| file.metadata().ok());
        self.is_shortened |= there.is_some_and(|there| there.len() < self.file_bytes);
    }

    /// Appends whole blocks (heads and contents alternate), in as few writes as the kernel takes.
    pub(crate) fn write(&mut self, parts: &mut [IoSlice<'_>]) {
        if let Some(circle) = &mut self.circle {
            return circle.write(parts);
        }
        self.look_at_length();
        if let Some(file) = &mut self.file {
            let Err(error) = write_all(file, parts) else {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                self.file_bytes += bytes as u64;
                return;
            };
            // Cut off the half that got through; what a kill would leave is passed over anyway.
            let _ = file.set_len(self.file_bytes);
            self.file = None;
            self.file_error = Some(error);
        }
        for pair in parts.chunks(2) {
            if !self.keep(pair) {
                self.lost += lost_records(pair);
            }
        }
    }

    /// Keeps a block in memory; `false` when there is no room.
    fn keep(&mut self, pair: &[IoSlice<'_>]) -> bool {
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

    /// The file, if there is one or was one, and its whole blocks' bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let circle = self.circle.as_ref().map_or(0, Circle::bytes);
        self.file_bytes + (self.memory_bytes + circle) as u64
    }

    /// Records that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.circle.as_ref().map_or(0, |circle| circle.lost)
    }

    /// What is in memory.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &[u8]> {
        let tails = self.memory.iter();
        tails.map(|tail| tail.segment().blocks(tail.used()))
    }

    /// The circle of a flight recorder.
    pub(crate) fn circle(&mut self) -> Option<&mut Circle> {
        self.circle.as_mut()
    }
}

/// Writes everything, or leaves `parts` as they were and says why not.
fn write_all(file: &mut File, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    // The kernel takes at most 1,024 pieces at once.
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

/// Calls `found` for each sound block of a stretch of blocks. Garbage is passed over: the number
/// of bytes that were no part of a sound block is returned.
pub(crate) fn blocks<'a>(bytes: &'a [u8], mut found: impl FnMut(BlockHead, &'a [u8])) -> u64 {
    let mut at = 0;
    let mut garbage = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(head) = BlockHead::decode(rest) {
            let content = &rest[BLOCK_HEAD..];
            let len = head.len as usize;
            if len > content.len() {
                // The last write did not get through: the records that did are whole.
                if head.kind == BLOCK_DATA {
                    let whole = content.len() / RECORD_BYTES * RECORD_BYTES;
                    found(head, &content[..whole]);
                }
                return garbage + (content.len() % RECORD_BYTES) as u64;
            }
            found(head, &content[..len]);
            at += BLOCK_HEAD + len;
        } else {
            at += 1;
            garbage += 1;
        }
    }
    garbage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(serial: u32) -> BlockHead {
        BlockHead {
            kind: BLOCK_DATA,
            serial,
            ..BlockHead::default()
        }
    }

    #[test]
    fn what_memory_cannot_hold_is_counted() {
        let mut journal = Journal::in_memory(200);
        journal.put(data(1), &[1; 96]);
        journal.put(data(2), &[2; 96]);
        assert_eq!(journal.lost(), 4);
        let all: Vec<u8> = journal.memory().flatten().copied().collect();
        let mut seen = Vec::new();
        assert_eq!(
            blocks(&all, |head, bytes| seen.push((head.serial, bytes.len()))),
            0
        );
        assert_eq!(seen, [(1, 96)]);
    }

    #[test]
    fn damage_costs_only_the_damaged_block() {
        let mut journal = Journal::in_memory(1 << 20);
        for serial in 1..=3 {
            journal.put(data(serial), &[0; 48]);
        }
        let mut all: Vec<u8> = journal.memory().flatten().copied().collect();
        all[80 + 4] ^= 1;
        let mut seen = Vec::new();
        let garbage = blocks(&all, |head, _| seen.push(head.serial));
        assert_eq!((seen, garbage), (vec![1, 3], 80));
        all.truncate(all.len() - 20);
        let mut last = 0;
        blocks(&all, |_, bytes| last = bytes.len());
        assert_eq!(last, 24);
    }

    #[test]
    fn a_file_that_cannot_grow_continues_in_memory() {
        let read_only = File::open("/dev/null").unwrap();
        let mut journal = Journal::in_file(read_only, 1 << 20);
        journal.put(data(5), &[0; 24]);
        assert!(journal.file_error.is_some());
        assert_eq!(journal.memory().map(<[u8]>::len).sum::<usize>(), 56);
    }
}
