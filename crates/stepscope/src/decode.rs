//! From blocks of records to events: the same for a recording that is stopped and for one that is
//! recovered.
//!
//! First every block's head is looked at ([`Index`]); then the records are decoded in windows of a
//! few million, so that a recording of a day needs no more memory than one of a minute.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::clock::{Pair, Timeline};
use crate::journal::blocks;
use crate::layout::{
    ARG_BOOL, ARG_DOUBLE, ARG_INT, ARG_SHARED, ARG_TYPE_MASK, BLOCK_CLOCK, BLOCK_DATA, BLOCK_LOST,
    BLOCK_META, BLOCK_OPEN, BLOCK_THREAD, BLOCK_WRITTEN, FLAG_ARGS, FLAG_LINK, FLAG_NAMED_BY_TEXT,
    KIND_ARG, KIND_COUNTER, KIND_INSTANT, KIND_LINK, KIND_SPAN, KIND_STEP, KIND_TEXT, RECORD_BYTES,
    meta_extra, meta_flags, meta_kind, meta_name,
};

/// Records decoded at once.
const WINDOW_RECORDS: usize = 3 << 20;

/// A thread of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Its id in the operating system.
    pub(crate) tid: u64,
    /// Its last name.
    pub(crate) name: String,
    /// Records that found no room.
    pub(crate) dropped: u64,
    /// Texts that were cut.
    pub(crate) cut: u64,
}

struct Data<'a> {
    serial: u32,
    sequence: u32,
    from: u32,
    bytes: &'a [u8],
}

/// What a recording consists of.
#[derive(Default)]
pub(crate) struct Index<'a> {
    /// Facts of the session.
    pub(crate) facts: BTreeMap<String, String>,
    /// By serial number.
    pub(crate) threads: BTreeMap<u32, Thread>,
    pairs: Vec<Pair>,
    data: Vec<Data<'a>>,
    open: Vec<(u32, u64, &'a [u8])>,
    /// Path and size of the file that was written from this recording before.
    pub(crate) written: Option<(u64, String)>,
    /// Bytes that made no sense.
    pub(crate) garbage: u64,
}

/// What a recovery finds in one region of the rings file.
pub(crate) struct Leftover<'a> {
    pub(crate) serial: u32,
    pub(crate) thread: Thread,
    /// Sequence and content of each chunk.
    pub(crate) chunks: Vec<(u32, &'a [u8])>,
    pub(crate) open: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

impl<'a> Index<'a> {
    /// Looks through one stretch of blocks.
    pub(crate) fn add(&mut self, bytes: &'a [u8]) {
        let garbage = blocks(bytes, |head, content| match head.kind {
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

    /// Adds what a killed program left in its rings: only what had not been carried yet.
    pub(crate) fn add_leftovers(&mut self, leftovers: Vec<Leftover<'a>>) {
        let mut carried: HashMap<(u32, u32), usize> = HashMap::new();
        for data in &self.data {
            let end = carried.entry((data.serial, data.sequence)).or_default();
            *end = (*end).max(data.from as usize + data.bytes.len());
        }
        for mut left in leftovers {
            let thread = self.threads.entry(left.serial).or_default();
            let known = std::mem::replace(thread, left.thread);
            thread.dropped = thread.dropped.max(known.dropped);
            thread.cut = thread.cut.max(known.cut);
            left.chunks.sort_unstable_by_key(|chunk| chunk.0);
            for (sequence, bytes) in left.chunks {
                let from = carried.get(&(left.serial, sequence)).copied();
                if let Some(bytes) = bytes.get(from.unwrap_or(0)..) {
                    self.data.push(Data {
                        serial: left.serial,
                        sequence,
                        from: 0,
                        bytes,
                    });
                }
            }
            // Written down already when the program was killed after its thread, or its session, had
            // ended.
            let known = self.open.iter().any(|open| open.0 == left.serial);
            if !left.open.is_empty() && !known {
                self.open.push((left.serial, 0, left.open));
            }
        }
    }

    /// The clock.
    pub(crate) fn timeline(&self) -> Timeline {
        Timeline::new(self.pairs.clone())
    }

    /// Ticks of the last clock reading.
    fn last_reading(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.ticks).max().unwrap_or(0)
    }
}

/// Value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(Cow<'a, str>),
}

/// An argument; name number 0 makes it the name of its event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arg<'a> {
    pub(crate) name: u32,
    pub(crate) value: Value<'a>,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Span,
    Step,
    Instant,
    Counter,
}

/// One event; times in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) begin: u64,
    /// End of a span; bits of a counter's value.
    pub(crate) end: u64,
    /// Name number; 0 when the name is among the arguments.
    pub(crate) name: u32,
    pub(crate) kind: Kind,
    /// The recording ended before the span.
    pub(crate) unfinished: bool,
    args: (u32, u32),
}

/// Some events of all threads.
#[derive(Default)]
pub(crate) struct Window<'a> {
    /// By serial number of the thread; sorted by begin, the longer first.
    pub(crate) threads: BTreeMap<u32, Vec<Event>>,
    args: Vec<Arg<'a>>,
}

impl<'a> Window<'a> {
    /// The arguments of an event.
    pub(crate) fn args(&self, event: &Event) -> &[Arg<'a>] {
        let (at, len) = (event.args.0 as usize, event.args.1 as usize);
        self.args.get(at..at + len).unwrap_or_default()
    }
}

/// Something with a key that waits for its event.
enum Waiting<'a> {
    Arg(Arg<'a>),
    Link(u64),
}

#[derive(Default)]
struct ThreadState<'a> {
    waiting: Vec<(u64, Waiting<'a>)>,
    /// The last spans that ended: key and meta.
    ended: [(u64, u64); 4],
    ended_at: usize,
}

/// Decodes window after window.
pub(crate) struct Decoder<'i, 'a> {
    index: &'i Index<'a>,
    next: usize,
    states: HashMap<u32, ThreadState<'a>>,
    shared: HashMap<u64, Vec<Arg<'a>>>,
    last_ticks: u64,
    open_done: bool,
}

impl<'i, 'a> Decoder<'i, 'a> {
    pub(crate) fn new(index: &'i Index<'a>) -> Self {
        let mut decoder = Self {
            index,
            next: 0,
            states: HashMap::new(),
            shared: HashMap::new(),
            last_ticks: index.last_reading(),
            open_done: false,
        };
        decoder.collect_shared();
        decoder
    }

    /// The latest ticks seen so far.
    pub(crate) fn last_ticks(&self) -> u64 {
        self.last_ticks
    }

    /// Arguments that spans of any thread may refer to can stand after their use.
    fn collect_shared(&mut self) {
        for data in &self.index.data {
            for (words, tail) in records(data.bytes) {
                let shared = matches!(meta_kind(words[2]), KIND_ARG | KIND_TEXT)
                    && meta_flags(words[2]) & ARG_SHARED != 0;
                if shared && let Some(arg) = arg_of(words, tail) {
                    self.shared.entry(words[0]).or_default().push(arg);
                }
            }
        }
    }

    /// The next window, `None` at the end.
    pub(crate) fn window(&mut self) -> Option<Window<'a>> {
        let mut window = Window::default();
        let mut records = 0;
        while records < WINDOW_RECORDS
            && let Some(data) = self.index.data.get(self.next)
        {
            self.next += 1;
            records += data.bytes.len() / RECORD_BYTES;
            self.decode(data, &mut window);
        }
        if self.next == self.index.data.len() {
            if records == 0 && self.open_done {
                return None;
            }
            if !self.open_done {
                self.open_done = true;
                self.add_open(&mut window);
            }
        }
        for events in window.threads.values_mut() {
            events.sort_by_key(|event| (event.begin, Reverse(event.end)));
        }
        Some(window)
    }

    fn decode(&mut self, data: &Data<'a>, window: &mut Window<'a>) {
        let state = self.states.entry(data.serial).or_default();
        let events = window.threads.entry(data.serial).or_default();
        for (words, tail) in records(data.bytes) {
            let [key, value, meta] = words;
            let kind = match meta_kind(meta) {
                KIND_ARG | KIND_TEXT => {
                    if meta_flags(meta) & ARG_SHARED == 0
                        && let Some(arg) = arg_of(words, tail)
                    {
                        state.waiting.push((key, Waiting::Arg(arg)));
                    }
                    continue;
                }
                KIND_LINK => {
                    state.waiting.push((key, Waiting::Link(value)));
                    continue;
                }
                KIND_SPAN => Kind::Span,
                KIND_STEP => Kind::Step,
                KIND_INSTANT => Kind::Instant,
                KIND_COUNTER => Kind::Counter,
                _ => continue,
            };
            self.last_ticks = self.last_ticks.max(key);
            if matches!(kind, Kind::Span | Kind::Step) {
                self.last_ticks = self.last_ticks.max(value);
                state.ended[state.ended_at % 4] = (key, meta);
                state.ended_at += 1;
            }
            events.push(Event {
                begin: key,
                end: value,
                name: meta_name(meta),
                kind,
                unfinished: false,
                args: take_args(state, &self.shared, &mut window.args, key, meta),
            });
        }
    }

    fn add_open(&mut self, window: &mut Window<'a>) {
        for (_, _, slots) in &self.index.open {
            for (words, _) in raw_records(slots).filter(|(words, _)| words[2] != 0) {
                self.last_ticks = self.last_ticks.max(words[0]);
            }
        }
        for (serial, ticks, slots) in &self.index.open {
            let state = self.states.entry(*serial).or_default();
            let events = window.threads.entry(*serial).or_default();
            for (words, _) in raw_records(slots) {
                let [key, _, meta] = words;
                let kind = match meta_kind(meta) {
                    KIND_SPAN => Kind::Span,
                    KIND_STEP => Kind::Step,
                    _ => continue,
                };
                // Killed between the record and giving back the slot.
                if state.ended.contains(&(key, meta)) {
                    continue;
                }
                let end = if *ticks == 0 { self.last_ticks } else { *ticks };
                events.push(Event {
                    begin: key,
                    end: end.max(key),
                    name: meta_name(meta),
                    kind,
                    unfinished: true,
                    args: take_args(state, &self.shared, &mut window.args, key, meta),
                });
            }
        }
    }
}

/// Moves the arguments of one event from those that wait into the window.
fn take_args<'a>(
    state: &mut ThreadState<'a>,
    shared: &HashMap<u64, Vec<Arg<'a>>>,
    into: &mut Vec<Arg<'a>>,
    key: u64,
    meta: u64,
) -> (u32, u32) {
    if meta_flags(meta) & (FLAG_ARGS | FLAG_NAMED_BY_TEXT | FLAG_LINK) == 0 {
        return (0, 0);
    }
    let first = into.len();
    // They were written one after the other, so they are together, near the end.
    let Some(last) = state.waiting.iter().rposition(|waiting| waiting.0 == key) else {
        return (0, 0);
    };
    let begin = state.waiting[..last]
        .iter()
        .rposition(|waiting| waiting.0 != key)
        .map_or(0, |before| before + 1);
    for (_, waiting) in state.waiting.drain(begin..=last) {
        match waiting {
            Waiting::Arg(arg) => into.push(arg),
            Waiting::Link(link) => into.extend(shared.get(&link).into_iter().flatten().cloned()),
        }
    }
    let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    (number(first), number(into.len() - first))
}

fn arg_of(words: [u64; 3], tail: &[u8]) -> Option<Arg<'_>> {
    let [_, value, meta] = words;
    let value = if meta_kind(meta) == KIND_TEXT {
        let bytes = tail.get(..usize::try_from(value).ok()?)?;
        Value::Text(String::from_utf8_lossy(bytes))
    } else {
        match meta_flags(meta) & ARG_TYPE_MASK {
            ARG_INT => Value::Int(value.cast_signed()),
            ARG_DOUBLE => Value::Double(f64::from_bits(value)),
            ARG_BOOL => Value::Bool(value != 0),
            _ => Value::Uint(value),
        }
    };
    Some(Arg {
        name: meta_name(meta),
        value,
    })
}

/// Records one by one, each with the bytes of the records that continue it.
fn records(bytes: &[u8]) -> impl Iterator<Item = ([u64; 3], &[u8])> {
    walk(bytes, true)
}

/// Slots one by one.
fn raw_records(bytes: &[u8]) -> impl Iterator<Item = ([u64; 3], &[u8])> {
    walk(bytes, false)
}

fn walk(bytes: &[u8], with_tails: bool) -> impl Iterator<Item = ([u64; 3], &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = bytes.get(at..at + RECORD_BYTES)?;
        let words = [word(record, 0), word(record, 8), word(record, 16)];
        at += RECORD_BYTES;
        let mut tail: &[u8] = &[];
        if with_tails && meta_kind(words[2]) == KIND_TEXT {
            let len = usize::from(meta_extra(words[2])) * RECORD_BYTES;
            let end = bytes.len().min(at + len);
            tail = &bytes[at..end];
            at = end;
        }
        Some((words, tail))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::layout::{BlockHead, meta};

    fn record(into: &mut Vec<u8>, words: [u64; 3]) {
        for word in words {
            into.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn span(name: u32, flags: u8) -> u64 {
        meta(name, KIND_SPAN, flags, 0)
    }

    fn block(kind: u32, sequence: u32, content: &[u8]) -> Vec<u8> {
        let mut journal = Journal::in_memory(1 << 20);
        let head = BlockHead {
            kind,
            serial: 1,
            sequence,
            ..BlockHead::default()
        };
        journal.put(head, content);
        journal.memory().flatten().copied().collect()
    }

    #[test]
    fn arguments_find_their_spans_through_nesting_and_blocks() {
        let mut first = Vec::new();
        record(&mut first, [10, 7, meta(50, KIND_ARG, ARG_INT, 0)]);
        record(&mut first, [20, 8, meta(51, KIND_ARG, ARG_INT, 0)]);
        record(&mut first, [20, 2, meta(52, KIND_TEXT, 0, 1)]);
        first.extend_from_slice(b"hi");
        first.resize(first.len() + 22, 0);
        record(&mut first, [20, 30, span(2, FLAG_ARGS)]);
        let mut second = Vec::new();
        record(&mut second, [10, 40, span(1, FLAG_ARGS)]);
        let mut all = block(BLOCK_DATA, 1, &first);
        all.extend(block(BLOCK_DATA, 2, &second));
        let mut index = Index::default();
        index.add(&all);
        let mut decoder = Decoder::new(&index);
        let window = decoder.window().unwrap();
        let events = &window.threads[&1];
        assert_eq!((events[0].name, events[1].name), (1, 2));
        assert_eq!(window.args(&events[0])[0].value, Value::Int(7));
        let inner = window.args(&events[1]);
        assert_eq!(inner.len(), 2);
        assert_eq!(inner[1].value, Value::Text("hi".into()));
        assert!(decoder.window().is_none());
    }

    #[test]
    fn a_ring_adds_only_what_was_not_carried() {
        let mut content = Vec::new();
        for n in 0..3 {
            record(&mut content, [n, n + 1, span(1, 0)]);
        }
        let carried = block(BLOCK_DATA, 4, &content[..48]);
        let mut open = Vec::new();
        record(&mut open, [1, 0, span(9, 0)]);
        record(&mut open, [2, 0, span(1, 0)]);
        let mut index = Index::default();
        index.add(&carried);
        index.add_leftovers(vec![Leftover {
            serial: 1,
            thread: Thread::default(),
            chunks: vec![(4, &content)],
            open: &open,
        }]);
        let mut decoder = Decoder::new(&index);
        let window = decoder.window().unwrap();
        let events = &window.threads[&1];
        assert_eq!(events.len(), 4, "the second open slot had been finished");
        let open: Vec<_> = events.iter().filter(|event| event.unfinished).collect();
        assert_eq!((open.len(), open[0].name, open[0].end), (1, 9, 3));
    }
}
