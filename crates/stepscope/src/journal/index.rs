//! The content of a recording, block by block, before any record is decoded.

use std::collections::{BTreeMap, HashMap};

use crate::journal::block::read_blocks;
use crate::journal::record_iter::{raw_records, records};
use crate::platform::clock::{Pair, Timeline};
use crate::ring::layout::{
    BLOCK_CLOCK, BLOCK_DATA, BLOCK_LOST, BLOCK_META, BLOCK_OPEN, BLOCK_RETAINED_ARGS, BLOCK_THREAD,
    BLOCK_WRITTEN, KIND_COUNTER, KIND_INSTANT, KIND_SPAN, KIND_STEP, RECORD_BYTES, meta_kind, word,
};

/// A thread of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Its id in the operating system.
    pub(crate) tid: u64,
    /// Its last name.
    pub(crate) name: String,
    /// Number of dropped records.
    pub(crate) dropped: u64,
    /// Number of truncated texts.
    pub(crate) cut: u64,
}

/// Records of one thread's chunk.
pub(crate) struct Data<'a> {
    pub(crate) serial: u32,
    pub(crate) sequence: u32,
    pub(crate) from: u32,
    pub(crate) bytes: &'a [u8],
}

/// The blocks of a recording, by kind.
#[derive(Default)]
pub(crate) struct Index<'a> {
    /// Metadata of the session.
    pub(crate) facts: BTreeMap<String, String>,
    /// By serial number.
    pub(crate) threads: BTreeMap<u32, Thread>,
    pairs: Vec<Pair>,
    pub(crate) data: Vec<Data<'a>>,
    /// Thread, current ticks (0: the last clock reading), open slots.
    pub(crate) open: Vec<(u32, u64, &'a [u8])>,
    /// Thread (0: shared by all) and arguments from overwritten or removed parts.
    pub(crate) retained_args: Vec<(u32, &'a [u8])>,
    /// Size and path of the file to which this recording was already exported.
    pub(crate) written: Option<(u64, String)>,
    /// Bytes that are not part of a valid block.
    pub(crate) garbage: u64,
    /// Whether the recording certainly has no arguments that several threads share.
    pub(crate) nothing_shared: bool,
    /// Ticks before which events may have been removed; 0 when none have.
    pub(crate) first_ticks: u64,
    /// Ticks; events that ended before are not exported.
    pub(crate) floor: u64,
}

/// Content of one region of the rings file, found by recovery.
pub(crate) struct Leftover<'a> {
    pub(crate) serial: u32,
    pub(crate) thread: Thread,
    /// Sequence and content of each chunk.
    pub(crate) chunks: Vec<(u32, &'a [u8])>,
    pub(crate) open: &'a [u8],
}

impl<'a> Index<'a> {
    /// Returns the id of the recorded process.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.facts.get("process_id")?.parse().ok()
    }

    /// Adds the blocks in `bytes`.
    pub(crate) fn add(&mut self, bytes: &'a [u8]) {
        let garbage = read_blocks(bytes, |head, content| match head.kind {
            BLOCK_META => {
                for line in String::from_utf8_lossy(content).lines() {
                    if let Some((key, value)) = line.split_once('=') {
                        self.facts.insert(key.to_owned(), value.to_owned());
                    }
                }
            }
            BLOCK_CLOCK => self.pairs.extend(Pair::decode(content)),
            BLOCK_THREAD => {
                let thread = self.threads.entry(head.serial).or_default();
                thread.tid = word(content, 0);
                let name = content.get(8..).unwrap_or_default();
                thread.name = String::from_utf8_lossy(name).into_owned();
            }
            BLOCK_DATA => self.data.push(Data {
                serial: head.serial,
                sequence: head.sequence,
                from: head.from,
                bytes: content,
            }),
            BLOCK_OPEN => {
                let slots = content.get(8..).unwrap_or_default();
                self.open.push((head.serial, word(content, 0), slots));
            }
            BLOCK_RETAINED_ARGS => self.retained_args.push((head.serial, content)),
            BLOCK_LOST => {
                let thread = self.threads.entry(head.serial).or_default();
                thread.dropped = word(content, 0);
                thread.cut = word(content, 8);
            }
            BLOCK_WRITTEN => {
                let path = content.get(8..).unwrap_or_default();
                let path = String::from_utf8_lossy(path).into_owned();
                self.written = Some((word(content, 0), path));
            }
            _ => {}
        });
        self.garbage += garbage;
    }

    /// Adds what a killed program left in its rings, without what the journal already has.
    pub(crate) fn add_leftovers(&mut self, leftovers: Vec<Leftover<'a>>) {
        let mut copied: HashMap<(u32, u32), usize> = HashMap::new();
        for data in &self.data {
            let end = copied.entry((data.serial, data.sequence)).or_default();
            *end = (*end).max(data.from as usize + data.bytes.len());
        }
        for mut left in leftovers {
            let thread = self.threads.entry(left.serial).or_default();
            let known = std::mem::replace(thread, left.thread);
            thread.dropped = thread.dropped.max(known.dropped);
            thread.cut = thread.cut.max(known.cut);
            left.chunks.sort_unstable_by_key(|chunk| chunk.0);
            for (sequence, bytes) in left.chunks {
                let from = copied.get(&(left.serial, sequence)).copied();
                if let Some(bytes) = bytes.get(from.unwrap_or(0)..) {
                    self.data.push(Data {
                        serial: left.serial,
                        sequence,
                        from: 0,
                        bytes,
                    });
                }
            }
            // Already written when the program was killed after its thread or its session had
            // ended.
            let known = self.open.iter().any(|open| open.0 == left.serial);
            if !left.open.is_empty() && !known {
                self.open.push((left.serial, 0, left.open));
            }
        }
    }

    /// Returns a numeric metadata value, 0 when it is absent.
    pub(crate) fn number(&self, fact: &str) -> u64 {
        let text = self.facts.get(fact);
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Returns the clock.
    pub(crate) fn timeline(&self) -> Timeline {
        Timeline::new(self.pairs.clone())
    }

    /// Limits a killed program's flight recording to the time to retain.
    pub(crate) fn keep_last(&mut self) {
        let Some(seconds) = self.facts.get("keep_last_s") else {
            return;
        };
        let seconds: f64 = seconds.parse().unwrap_or(0.0);
        let timeline = self.timeline();
        let last = timeline.unix_of(self.latest());
        #[allow(
            clippy::cast_possible_truncation,
            reason = "float to int conversion saturates"
        )]
        let from = last.saturating_sub((seconds * 1e9) as i64);
        self.floor = timeline.ticks(from);
    }

    /// Returns the latest time of any record, ticks.
    pub(crate) fn latest(&self) -> u64 {
        let mut latest = self.last_reading();
        for data in &self.data {
            for (words, _) in records(data.bytes) {
                let time = match meta_kind(words[2]) {
                    KIND_SPAN | KIND_STEP => words[0].max(words[1]),
                    KIND_INSTANT | KIND_COUNTER => words[0],
                    _ => 0,
                };
                latest = latest.max(time);
            }
        }
        let starts = self.open.iter().flat_map(|open| raw_records(open.2));
        starts
            .filter(|(words, _)| words[2] != 0)
            .fold(latest, |latest, (words, _)| latest.max(words[0]))
    }

    /// Removes all events and threads; the metadata remains.
    pub(crate) fn forget_events(&mut self) {
        self.data.clear();
        self.open.clear();
        self.threads.clear();
    }

    /// Number of records of events and arguments, and of open spans: an upper limit on the number
    /// of events.
    pub(crate) fn records(&self) -> u64 {
        let data = self.data.iter().map(|data| data.bytes.len());
        let open = self.open.iter().map(|open| open.2.len());
        (data.chain(open).sum::<usize>() / RECORD_BYTES) as u64
    }

    /// Ticks of the last clock reading.
    pub(crate) fn last_reading(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.ticks).max().unwrap_or(0)
    }
}

/// Calls `found` with the start and end of each event, in ticks.
pub(crate) fn events(index: &Index<'_>, mut found: impl FnMut(u64, u64)) {
    for data in &index.data {
        for (words, _) in records(data.bytes) {
            match meta_kind(words[2]) {
                KIND_SPAN | KIND_STEP => found(words[0], words[1]),
                KIND_INSTANT | KIND_COUNTER => found(words[0], words[0]),
                _ => {}
            }
        }
    }
    for (_, ticks, slots) in &index.open {
        for (words, _) in raw_records(slots).filter(|(words, _)| words[2] != 0) {
            let end = if *ticks == 0 { u64::MAX } else { *ticks };
            found(words[0], end);
        }
    }
}
