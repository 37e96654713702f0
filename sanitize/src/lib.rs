//! The recorder's chunk protocol with loom's atomics, which explore every order of execution and
//! every value that the memory model allows a load to return.
//!
//! `cargo xtask sanitize loom` runs it.
#![cfg(test)]

#[path = "../../crates/stepscope/src/ring/chunk.rs"]
#[allow(dead_code, reason = "the recorder uses the rest")]
mod chunk;

/// The module `sync` of the recorder, with loom's atomics.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use loom::sync::Arc;
use loom::thread;

use chunk::{ChunkHead, Record, in_order, publish};
use sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a record.
const RECORD: u32 = 24;
/// Records that fit into a chunk.
const ROOM: usize = 2;
/// Records that the owner writes: two chunks and a half.
const WRITTEN: u64 = 5;

/// State of the ring in the drain thread, like `RegionState` in `drain/region.rs`.
struct RegionState {
    copied: [(u32, u32); 2],
    next: u32,
}

struct Ring {
    heads: [ChunkHead; 2],
    records: [[Record; ROOM]; 2],
    dropped: AtomicU32,
    done: AtomicU32,
}

impl Ring {
    fn new() -> Self {
        let head = || ChunkHead {
            state: AtomicU32::new(0),
            used: AtomicU32::new(0),
        };
        let record = || Record {
            key: AtomicU64::new(0),
            value: AtomicU64::new(0),
            meta: AtomicU64::new(0),
        };
        Self {
            heads: [head(), head()],
            records: [[record(), record()], [record(), record()]],
            dropped: AtomicU32::new(0),
            done: AtomicU32::new(0),
        }
    }

    /// Writes one record after the other, like `Writer::append` and `Writer::make_room`. `chunks`:
    /// number of chunks that it may use.
    fn write_records(&self, chunks: usize) {
        let mut current: Option<(usize, u32)> = None;
        let mut sequence = 0;
        for number in 1..=WRITTEN {
            // loom explores other orders only at the last access to a location, and the last
            // accesses are often the owner's: this makes it also run the drain thread here.
            thread::yield_now();
            let has_room = current.is_some_and(|(_, used)| used < RECORD * ROOM as u32);
            if !has_room {
                let mut heads = self.heads[..chunks].iter().enumerate();
                let is_current = |chunk| current.is_some_and(|(known, _)| known == chunk);
                let free = heads.position(|(chunk, head)| !is_current(chunk) && head.is_free());
                let Some(free) = free else {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                if let Some((old, _)) = current {
                    self.heads[old].leave(sequence);
                }
                sequence += 1;
                self.heads[free].take(sequence);
                current = Some((free, 0));
            }
            let Some((chunk, used)) = &mut current else {
                unreachable!()
            };
            self.records[*chunk][(*used / RECORD) as usize].put([
                number,
                number + 100,
                number + 200,
            ]);
            *used += RECORD;
            publish(&self.heads[*chunk].used, *used);
        }
        self.done.store(1, Ordering::Release);
    }

    /// Makes one pass of the drain thread, like `Drain::drain_region`.
    fn drain(&self, seen: &mut RegionState, found: &mut Vec<[u64; 3]>) {
        let RegionState { copied, next } = seen;
        for (chunk, published) in in_order(&self.heads, *next) {
            let from = match copied[chunk] {
                (sequence, bytes) if sequence == published.sequence => bytes,
                _ => 0,
            };
            for index in from / RECORD..published.used / RECORD {
                let record = &self.records[chunk][index as usize];
                found.push([
                    record.key.load(Ordering::Relaxed),
                    record.value.load(Ordering::Relaxed),
                    record.meta.load(Ordering::Relaxed),
                ]);
            }
            if published.left {
                copied[chunk] = (0, 0);
                *next = published.sequence + 1;
                self.heads[chunk].give_back();
            } else {
                copied[chunk] = (published.sequence, published.used.max(from));
            }
        }
    }
}

/// Explores every order of an owner and a drain thread that makes `passes` concurrent passes; a
/// final pass follows.
fn every_order(chunks: usize, passes: usize) {
    loom::model(move || {
        let ring = Arc::new(Ring::new());
        let owner = {
            let ring = ring.clone();
            thread::spawn(move || ring.write_records(chunks))
        };
        let drain = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut seen = RegionState {
                    copied: [(0, 0); 2],
                    next: 1,
                };
                let mut found = Vec::new();
                for _ in 0..passes {
                    thread::yield_now();
                    ring.drain(&mut seen, &mut found);
                }
                (seen, found)
            })
        };
        let (mut seen, mut found) = drain.join().unwrap();
        owner.join().unwrap();
        assert_eq!(ring.done.load(Ordering::Acquire), 1);
        ring.drain(&mut seen, &mut found);
        let dropped = ring.dropped.load(Ordering::Relaxed) as usize;
        assert_eq!(found.len() + dropped, WRITTEN as usize, "{found:?}");
        for record in &found {
            let number = record[0];
            assert_eq!(
                *record,
                [number, number + 100, number + 200],
                "whole records only"
            );
        }
        let mut keys: Vec<u64> = found.iter().map(|record| record[0]).collect();
        let in_order = keys.clone();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys, in_order, "once each, in order");
    });
}

#[test]
fn records_of_two_chunks_are_drained_once_each() {
    every_order(2, 2);
}

#[test]
fn records_without_a_free_chunk_are_counted() {
    every_order(1, 2);
}
