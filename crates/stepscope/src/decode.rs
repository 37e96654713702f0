//! From blocks of records to events: the same for a recording that is stopped and for one that is
//! recovered.
//!
//! First every block's head is looked at ([`Index`]); then the records are decoded in windows of a
//! few million, so that a recording of a day needs no more memory than one of a minute.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::clock::{Pair, Timeline};
use crate::cut::{Cut, Keep, Verdict};
use crate::journal::blocks;
use crate::layout::{
    ARG_BOOL, ARG_DOUBLE, ARG_INT, ARG_SHARED, ARG_TYPE_MASK, BLOCK_CLOCK, BLOCK_DATA, BLOCK_LOST,
    BLOCK_META, BLOCK_OPEN, BLOCK_THREAD, BLOCK_WRITTEN, BlockHead, FLAG_ARGS, FLAG_LINK,
    FLAG_NAMED_BY_TEXT, KIND_ARG, KIND_COUNTER, KIND_INSTANT, KIND_LINK, KIND_SPAN, KIND_STEP,
    KIND_TEXT, RECORD_BYTES, meta_extra, meta_flags, meta_kind, meta_name,
};

/// Records of one part.
const PART_RECORDS: usize = 3 << 20;

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
    /// Surely no arguments that belong to spans of several threads.
    pub(crate) nothing_shared: bool,
    /// What happened before these ticks may be gone; 0: nothing is gone.
    pub(crate) first_ticks: u64,
    /// What ended before these ticks is not to be written.
    pub(crate) floor: u64,
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

    /// Of a flight recording that a killed program left: nothing older than was to be kept.
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

    /// The latest moment that any record tells of.
    fn latest(&self) -> u64 {
        let mut latest = self.last_reading();
        for data in &self.data {
            for (words, _) in records(data.bytes) {
                let moment = match meta_kind(words[2]) {
                    KIND_SPAN | KIND_STEP => words[0].max(words[1]),
                    KIND_INSTANT | KIND_COUNTER => words[0],
                    _ => 0,
                };
                latest = latest.max(moment);
            }
        }
        let begins = self.open.iter().flat_map(|open| raw_records(open.2));
        begins
            .filter(|(words, _)| words[2] != 0)
            .fold(latest, |latest, (words, _)| latest.max(words[0]))
    }

    /// Leaves only what is known about the recording.
    pub(crate) fn forget_events(&mut self) {
        self.data.clear();
        self.open.clear();
        self.threads.clear();
    }

    /// Records of events and arguments, and open spans: not less than there are events.
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

/// The events of one thread in one part of the recording. Its buffers are used again and again.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    /// Sorted by begin, the longer first.
    pub(crate) events: Vec<Event>,
    args: Vec<Arg<'a>>,
    /// Events that [`Keep`] cut because there were too many.
    pub(crate) cut: u64,
    /// Events whose arguments are no longer there.
    pub(crate) lost_args: u64,
    /// The latest ticks seen.
    pub(crate) last_ticks: u64,
}

impl<'a> Batch<'a> {
    /// The arguments of an event.
    pub(crate) fn args(&self, event: &Event) -> &[Arg<'a>] {
        let (at, len) = (event.args.0 as usize, event.args.1 as usize);
        self.args.get(at..at + len).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.events.clear();
        self.args.clear();
        self.cut = 0;
        self.lost_args = 0;
        self.last_ticks = 0;
    }
}

/// Something with a key that waits for its event.
enum Waiting<'a> {
    Arg(Arg<'a>),
    Link(u64),
}

/// What decoding a thread carries from part to part.
#[derive(Default)]
pub(crate) struct ThreadState<'a> {
    waiting: Vec<(u64, Waiting<'a>)>,
    /// The last spans that ended: key and meta.
    ended: [(u64, u64); 4],
    ended_at: usize,
}

/// A stretch of the recording: which blocks each thread has in it.
pub(crate) struct Part {
    /// By serial number of the thread.
    pub(crate) threads: BTreeMap<u32, Vec<usize>>,
    /// Also what was open at the end.
    last: bool,
}

/// Decodes part after part, thread by thread.
pub(crate) struct Decoder<'i, 'a> {
    index: &'i Index<'a>,
    shared: HashMap<u64, Vec<Arg<'a>>>,
    pub(crate) keep: Keep,
    /// Ticks up to which open spans reach whose end nobody wrote down.
    last_open: u64,
}

impl<'i, 'a> Decoder<'i, 'a> {
    pub(crate) fn new(index: &'i Index<'a>, cut: &Cut) -> Self {
        let mut decoder = Self {
            index,
            shared: HashMap::new(),
            keep: Keep::new(index, cut, index.floor),
            last_open: 0,
        };
        decoder.collect_shared();
        if index.open.iter().any(|open| open.1 == 0) {
            decoder.last_open = index.latest();
        }
        decoder
    }

    /// Arguments that spans of any thread may refer to can stand after their use.
    fn collect_shared(&mut self) {
        if self.index.nothing_shared {
            return;
        }
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

    /// The parts of the recording, at least one.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut threads: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut count = 0;
        for (place, data) in self.index.data.iter().enumerate() {
            if count >= PART_RECORDS {
                count = 0;
                let threads = std::mem::take(&mut threads);
                let last = false;
                parts.push(Part { threads, last });
            }
            count += data.bytes.len() / RECORD_BYTES;
            threads.entry(data.serial).or_default().push(place);
        }
        for open in &self.index.open {
            threads.entry(open.0).or_default();
        }
        let last = true;
        parts.push(Part { threads, last });
        parts
    }

    /// Decodes what one thread has in a part into `batch`.
    pub(crate) fn batch(
        &self,
        part: &Part,
        serial: u32,
        state: &mut ThreadState<'a>,
        batch: &mut Batch<'a>,
    ) {
        batch.clear();
        for place in part.threads.get(&serial).into_iter().flatten() {
            self.decode(self.index.data[*place].bytes, state, batch);
        }
        if part.last {
            self.add_open(serial, state, batch);
        }
        sort(&mut batch.events);
    }

    fn decode(&self, bytes: &'a [u8], state: &mut ThreadState<'a>, batch: &mut Batch<'a>) {
        for (words, tail) in records(bytes) {
            let [key, value, meta] = words;
            let (kind, end) = match meta_kind(meta) {
                KIND_SPAN => (Kind::Span, value),
                KIND_STEP => (Kind::Step, value),
                KIND_INSTANT => (Kind::Instant, key),
                KIND_COUNTER => (Kind::Counter, key),
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
                _ => continue,
            };
            batch.last_ticks = batch.last_ticks.max(key).max(end);
            if matches!(kind, Kind::Span | Kind::Step) {
                state.ended[state.ended_at % 4] = (key, meta);
                state.ended_at += 1;
            }
            let event = Event {
                begin: key,
                end: value,
                name: meta_name(meta),
                kind,
                unfinished: false,
                args: (0, 0),
            };
            self.push(event, end, meta, state, batch);
        }
    }

    /// Adds an event with its arguments, if it is to be kept.
    #[inline]
    fn push(
        &self,
        mut event: Event,
        end: u64,
        meta: u64,
        state: &mut ThreadState<'a>,
        batch: &mut Batch<'a>,
    ) {
        let kept = self.keep.asks(event.begin, end);
        if meta_flags(meta) & (FLAG_ARGS | FLAG_NAMED_BY_TEXT | FLAG_LINK) != 0 {
            let before = batch.args.len();
            event.args = self.take_args(state, &mut batch.args, event.begin);
            if kept != Verdict::Kept {
                batch.args.truncate(before);
            } else if event.args.1 == 0 && event.begin < self.index.first_ticks {
                batch.lost_args += 1;
            }
        }
        match kept {
            Verdict::Kept => batch.events.push(event),
            Verdict::TooMany => batch.cut += 1,
            Verdict::Outside => {}
        }
    }

    fn add_open(&self, serial: u32, state: &mut ThreadState<'a>, batch: &mut Batch<'a>) {
        for (_, ticks, slots) in self.index.open.iter().filter(|open| open.0 == serial) {
            for (words, _) in raw_records(slots) {
                let [key, _, meta] = words;
                let kind = match meta_kind(meta) {
                    KIND_SPAN => Kind::Span,
                    KIND_STEP => Kind::Step,
                    _ => continue,
                };
                batch.last_ticks = batch.last_ticks.max(key);
                // Killed between the record and giving back the slot.
                if state.ended.contains(&(key, meta)) {
                    continue;
                }
                let end = if *ticks == 0 { self.last_open } else { *ticks };
                let event = Event {
                    begin: key,
                    end: end.max(key),
                    name: meta_name(meta),
                    kind,
                    unfinished: true,
                    args: (0, 0),
                };
                self.push(event, event.end, meta, state, batch);
            }
        }
    }

    /// Moves the arguments of one event from those that wait into the batch.
    fn take_args(
        &self,
        state: &mut ThreadState<'a>,
        into: &mut Vec<Arg<'a>>,
        key: u64,
    ) -> (u32, u32) {
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
                Waiting::Link(link) => {
                    into.extend(self.shared.get(&link).into_iter().flatten().cloned());
                }
            }
        }
        let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        (number(first), number(into.len() - first))
    }
}

/// Sorts by begin, the longer first.
///
/// Events come by their ends, so only those that enclose others have to move, each over what it
/// encloses: that costs a few nanoseconds an event, a third of what a general sort costs. Past
/// a bound (threads whose spans do not nest) the general one takes over.
fn sort(events: &mut [Event]) {
    let order = |event: &Event| (event.begin, Reverse(event.end));
    let mut moves = events.len().saturating_mul(32);
    for at in 1..events.len() {
        let key = order(&events[at]);
        if order(&events[at - 1]) <= key {
            continue;
        }
        let mut far = 1;
        while far < at && order(&events[at - far]) > key {
            far *= 2;
        }
        let from = at.saturating_sub(far);
        let place = from + events[from..at].partition_point(|event| order(event) <= key);
        if at - place > moves {
            events.sort_by_key(order);
            return;
        }
        moves -= at - place;
        events[place..=at].rotate_right(1);
    }
}

/// Spans, steps, instants and samples among some records.
pub(crate) fn count_events(bytes: &[u8]) -> u64 {
    let is_event = |words: [u64; 3]| (KIND_SPAN..=KIND_COUNTER).contains(&meta_kind(words[2]));
    records(bytes).filter(|(words, _)| is_event(*words)).count() as u64
}

/// Events in a block (its head, its content) that was not written.
pub(crate) fn lost_records(pair: &[std::io::IoSlice<'_>]) -> u64 {
    match pair {
        [head, content] => match BlockHead::decode(head) {
            Some(head) if head.kind == BLOCK_DATA => (content.len() / RECORD_BYTES) as u64,
            _ => 0,
        },
        _ => 0,
    }
}

/// Begin and end of every event, in ticks.
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
    use crate::layout::meta;

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

    fn only_batch<'a>(index: &Index<'a>, cut: &Cut) -> Batch<'a> {
        let decoder = Decoder::new(index, cut);
        let parts = decoder.parts();
        assert_eq!(parts.len(), 1);
        let mut batch = Batch::default();
        decoder.batch(&parts[0], 1, &mut ThreadState::default(), &mut batch);
        batch
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
        let batch = only_batch(&index, &Cut::default());
        let events = &batch.events;
        assert_eq!((events[0].name, events[1].name), (1, 2));
        assert_eq!(batch.args(&events[0])[0].value, Value::Int(7));
        let inner = batch.args(&events[1]);
        assert_eq!(inner.len(), 2);
        assert_eq!(inner[1].value, Value::Text("hi".into()));
    }

    #[test]
    fn any_order_is_sorted() {
        let event = |begin: u64, end: u64| Event {
            begin,
            end,
            name: 1,
            kind: Kind::Span,
            unfinished: false,
            args: (0, 0),
        };
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 40
        };
        for count in [0, 1, 2, 3, 50, 3_000] {
            let mut events: Vec<_> = (0..count)
                .map(|_| {
                    let begin = random() % 1_000;
                    event(begin, begin + random() % 10)
                })
                .collect();
            let key = |event: &Event| (event.begin, Reverse(event.end));
            let mut expected: Vec<_> = events.iter().map(key).collect();
            expected.sort_unstable();
            sort(&mut events);
            assert_eq!(events.iter().map(key).collect::<Vec<_>>(), expected);
        }
        // As a thread ends them: the inner first.
        let mut events: Vec<_> = (0..1_000)
            .flat_map(|n| [event(10 * n + 2, 10 * n + 3), event(10 * n, 10 * n + 9)])
            .collect();
        events.push(event(0, 20_000));
        sort(&mut events);
        assert!(events.is_sorted_by_key(|event| (event.begin, Reverse(event.end))));
        assert_eq!(events[0].end, 20_000);
    }

    #[test]
    fn the_earliest_by_begin_are_kept_also_when_they_end_last() {
        let mut content = Vec::new();
        for (begin, end) in [(20, 21), (22, 23), (22, 24), (10, 40)] {
            record(&mut content, [begin, end, span(1, 0)]);
        }
        let all = block(BLOCK_DATA, 1, &content);
        let mut index = Index::default();
        index.add(&all);
        let begins = |most: u64| {
            let cut = Cut {
                max_events: Some(most),
                ..Cut::default()
            };
            let batch = only_batch(&index, &cut);
            let begins: Vec<_> = batch.events.iter().map(|event| event.begin).collect();
            (begins, batch.cut)
        };
        assert_eq!(begins(0), (vec![], 4));
        assert_eq!(begins(1), (vec![10], 3));
        assert_eq!(begins(3), (vec![10, 20, 22], 1));
        assert_eq!(begins(4), (vec![10, 20, 22, 22], 0));
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
        let batch = only_batch(&index, &Cut::default());
        let events = &batch.events;
        assert_eq!(events.len(), 4, "the second open slot had been finished");
        let open: Vec<_> = events.iter().filter(|event| event.unfinished).collect();
        assert_eq!((open.len(), open[0].name, open[0].end), (1, 9, 3));
    }
}
