//! Decodes blocks of records to events, both for a stopped and for a recovered recording.
//!
//! First the head of every block is read ([`Index`]); then the records are decoded in windows of a
//! few million, so that a recording of a day needs no more memory than one of a minute.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::export::limits::{EventFilter, ExportLimits, Verdict};
use crate::journal::index::Index;
use crate::journal::record_iter::{raw_records, records};
use crate::journal::retained_args::{ArgOwner, ID_KEY};
use crate::ring::layout::{
    ARG_BOOL, ARG_DOUBLE, ARG_INT, ARG_SHARED, ARG_TYPE_MASK, FLAG_ARGS, FLAG_LINK,
    FLAG_NAMED_BY_TEXT, KIND_ARG, KIND_COUNTER, KIND_INSTANT, KIND_LINK, KIND_SPAN, KIND_STEP,
    KIND_TEXT, RECORD_BYTES, meta_extra, meta_flags, meta_kind, meta_name,
};

/// Records per window of usual exports.
pub(crate) const WINDOW_RECORDS: usize = 3 << 20;

/// Maximum number of pending arguments that are compared one by one for an event.
const MAX_RECENT: usize = 64;

/// Value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(Cow<'a, str>),
}

/// An argument; name id 0 makes it the name of its event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arg<'a> {
    pub(crate) name: u32,
    pub(crate) value: Value<'a>,
}

/// The kind of an event.
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
    /// Name id; 0 when the name is among the arguments.
    pub(crate) name: u32,
    pub(crate) kind: Kind,
    /// Whether the recording ended before the span.
    pub(crate) unfinished: bool,
    /// Row of its thread; 0 is the thread itself.
    pub(crate) row: u16,
    args: (u32, u32),
}

/// The events of one thread in one window of the recording. Its buffers are reused.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    /// Sorted by start, longer ones first.
    pub(crate) events: Vec<Event>,
    args: Vec<Arg<'a>>,
    /// Events dropped because of [`ExportLimits::max_events`].
    pub(crate) cut: u64,
    /// Events whose arguments were removed with an older window.
    pub(crate) lost_args: u64,
    /// The latest ticks of any event.
    pub(crate) last_ticks: u64,
}

impl<'a> Batch<'a> {
    /// Returns the arguments of an event.
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

/// An argument or link whose event has not been read yet.
enum Pending<'a> {
    Arg(Arg<'a>),
    Link(u64),
}

/// Arguments and links of a thread whose events have not been read yet.
#[derive(Default)]
struct PendingArgs<'a> {
    /// The latest ones in order: most events take the last of them.
    recent: Vec<(u64, Pending<'a>)>,
    /// The earlier ones, by key. Arguments whose event was dropped stay here, and cost later events
    /// nothing.
    older: HashMap<u64, Vec<Pending<'a>>>,
    /// Number of comparisons so far.
    #[cfg(test)]
    compared: usize,
}

impl<'a> PendingArgs<'a> {
    fn push(&mut self, key: u64, pending: Pending<'a>) {
        if self.recent.len() == MAX_RECENT {
            for (key, pending) in self.recent.drain(..MAX_RECENT / 2) {
                self.older.entry(key).or_default().push(pending);
            }
        }
        self.recent.push((key, pending));
    }

    /// Calls `each` for those with this key, in order, and removes them. Returns whether there were
    /// any.
    fn take(&mut self, key: u64, mut each: impl FnMut(Pending<'a>)) -> bool {
        let mut found = false;
        if !self.older.is_empty()
            && let Some(older) = self.older.remove(&key)
        {
            found = true;
            older.into_iter().for_each(&mut each);
        }
        #[cfg(test)]
        {
            self.compared += self.recent.len();
        }
        for (_, pending) in self.recent.extract_if(.., |pending| pending.0 == key) {
            found = true;
            each(pending);
        }
        found
    }
}

/// Decoder state of a thread between windows.
#[derive(Default)]
pub(crate) struct ThreadState<'a> {
    pending: PendingArgs<'a>,
    /// The latest ended spans: key and meta.
    ended: [(u64, u64); 4],
    ended_at: usize,
    serial: u32,
}

/// A window of the recording: the blocks of each thread in it.
pub(crate) struct DecodeWindow {
    /// By serial number of the thread: indexes of blocks.
    pub(crate) threads: BTreeMap<u32, Vec<usize>>,
    /// Whether this is the last window, which also has the open spans.
    last: bool,
}

/// Decodes window after window, thread by thread.
pub(crate) struct Decoder<'i, 'a> {
    index: &'i Index<'a>,
    shared: HashMap<u64, Vec<Arg<'a>>>,
    /// Arguments from overwritten or removed windows.
    retained: HashMap<ArgOwner, Vec<Pending<'a>>>,
    pub(crate) filter: EventFilter,
    /// End in ticks of open spans for which no end was written.
    last_open: u64,
}

impl<'i, 'a> Decoder<'i, 'a> {
    pub(crate) fn new(index: &'i Index<'a>, cut: &ExportLimits) -> Self {
        let mut decoder = Self {
            index,
            shared: HashMap::new(),
            retained: HashMap::new(),
            filter: EventFilter::new(index, cut, index.floor),
            last_open: 0,
        };
        decoder.collect_shared();
        decoder.collect_retained();
        if index.open.iter().any(|open| open.1 == 0) {
            decoder.last_open = index.latest();
        }
        decoder
    }

    /// Collects shared arguments, which may follow the spans that refer to them.
    fn collect_shared(&mut self) {
        if self.index.nothing_shared {
            return;
        }
        for data in &self.index.data {
            for (words, tail) in records(data.bytes) {
                let shared = matches!(meta_kind(words[2]), KIND_ARG | KIND_TEXT)
                    && meta_flags(words[2]) & ARG_SHARED != 0;
                if shared && let Some(arg) = decode_arg(words, tail) {
                    self.shared.entry(words[0]).or_default().push(arg);
                }
            }
        }
    }

    /// Collects the arguments copied from overwritten or removed windows.
    fn collect_retained(&mut self) {
        for (serial, bytes) in &self.index.retained_args {
            let mut found: BTreeMap<u64, Vec<Pending<'a>>> = BTreeMap::new();
            for (words, tail) in records(bytes) {
                let pending = match meta_kind(words[2]) {
                    KIND_LINK => Some(Pending::Link(words[1])),
                    _ => decode_arg(words, tail).map(Pending::Arg),
                };
                found.entry(words[0]).or_default().extend(pending);
            }
            for (key, pending) in found {
                if *serial == 0 {
                    let args = pending.into_iter().filter_map(|pending| match pending {
                        Pending::Arg(arg) => Some(arg),
                        Pending::Link(_) => None,
                    });
                    // Before the arguments that were recorded later.
                    self.shared.entry(key).or_default().splice(0..0, args);
                } else {
                    self.retained.entry((*serial, key)).or_insert(pending);
                }
            }
        }
    }

    /// Splits the recording into windows of this many records, at least one.
    pub(crate) fn windows(&self, records: usize) -> Vec<DecodeWindow> {
        let mut windows = Vec::new();
        let mut threads: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut count = 0;
        for (index, data) in self.index.data.iter().enumerate() {
            if count >= records {
                count = 0;
                let threads = std::mem::take(&mut threads);
                let last = false;
                windows.push(DecodeWindow { threads, last });
            }
            count += data.bytes.len() / RECORD_BYTES;
            threads.entry(data.serial).or_default().push(index);
        }
        for open in &self.index.open {
            threads.entry(open.0).or_default();
        }
        let last = true;
        windows.push(DecodeWindow { threads, last });
        windows
    }

    /// Decodes the events of one thread in a window into `batch`.
    pub(crate) fn batch(
        &self,
        window: &DecodeWindow,
        serial: u32,
        state: &mut ThreadState<'a>,
        batch: &mut Batch<'a>,
    ) {
        batch.clear();
        state.serial = serial;
        for index in window.threads.get(&serial).into_iter().flatten() {
            self.decode(self.index.data[*index].bytes, state, batch);
        }
        if window.last {
            self.add_open(serial, state, batch);
        }
        sort_events(&mut batch.events);
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
                        && let Some(arg) = decode_arg(words, tail)
                    {
                        state.pending.push(key, Pending::Arg(arg));
                    }
                    continue;
                }
                KIND_LINK => {
                    state.pending.push(key, Pending::Link(value));
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
                row: meta_extra(meta),
                args: (0, 0),
            };
            self.push(event, end, meta, state, batch);
        }
    }

    /// Adds an event with its arguments, if the limits include it.
    #[inline]
    fn push(
        &self,
        mut event: Event,
        end: u64,
        meta: u64,
        state: &mut ThreadState<'a>,
        batch: &mut Batch<'a>,
    ) {
        let verdict = self.filter.check(event.begin, end);
        if meta_flags(meta) & (FLAG_ARGS | FLAG_NAMED_BY_TEXT | FLAG_LINK) != 0 {
            let before = batch.args.len();
            let complete;
            (event.args, complete) = self.take_args(state, &mut batch.args, event.begin);
            if verdict != Verdict::Included {
                batch.args.truncate(before);
            } else if !complete || (event.args.1 == 0 && event.begin < self.index.first_ticks) {
                batch.lost_args += 1;
            }
        }
        match verdict {
            Verdict::Included => batch.events.push(event),
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
                // The program was killed between appending the record and releasing the slot.
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
                    row: meta_extra(meta),
                    args: (0, 0),
                };
                self.push(event, event.end, meta, state, batch);
            }
        }
    }

    /// Appends an argument, or those that a link refers to. Returns `false` when those were
    /// removed.
    fn put_args(&self, pending: &Pending<'a>, into: &mut Vec<Arg<'a>>) -> bool {
        match pending {
            Pending::Arg(arg) => into.push(arg.clone()),
            Pending::Link(link) => match self.shared.get(link) {
                Some(args) => into.extend_from_slice(args),
                // The key is the lower bits of the span's creation time.
                None => return *link >= self.index.first_ticks & ID_KEY,
            },
        }
        true
    }

    /// Moves the pending arguments of one event into the batch.
    fn take_args(
        &self,
        state: &mut ThreadState<'a>,
        into: &mut Vec<Arg<'a>>,
        key: u64,
    ) -> ((u32, u32), bool) {
        let first = into.len();
        let mut complete = true;
        let found = state
            .pending
            .take(key, |pending| complete &= self.put_args(&pending, into));
        if !found && let Some(retained) = self.retained.get(&(state.serial, key)) {
            for pending in retained {
                complete &= self.put_args(pending, into);
            }
        }
        let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        ((number(first), number(into.len() - first)), complete)
    }
}

/// Sorts by start, longer events first.
///
/// Events arrive in the order of their ends, so only those that enclose others have to move, each
/// over the events it encloses: that costs a few nanoseconds an event, a third of a general sort.
/// Beyond a bound (threads whose spans do not nest) the general sort takes over.
fn sort_events(events: &mut [Event]) {
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
        let index = from + events[from..at].partition_point(|event| order(event) <= key);
        if at - index > moves {
            events.sort_by_key(order);
            return;
        }
        moves -= at - index;
        events[index..=at].rotate_right(1);
    }
}

fn decode_arg(words: [u64; 3], tail: &[u8]) -> Option<Arg<'_>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::append::Journal;
    use crate::journal::index::{Leftover, Thread};
    use crate::ring::layout::{BLOCK_DATA, BlockHead, meta};

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

    fn only_batch<'a>(index: &Index<'a>, cut: &ExportLimits) -> Batch<'a> {
        let decoder = Decoder::new(index, cut);
        let windows = decoder.windows(WINDOW_RECORDS);
        assert_eq!(windows.len(), 1);
        let mut batch = Batch::default();
        decoder.batch(&windows[0], 1, &mut ThreadState::default(), &mut batch);
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
        let batch = only_batch(&index, &ExportLimits::default());
        let events = &batch.events;
        assert_eq!((events[0].name, events[1].name), (1, 2));
        assert_eq!(batch.args(&events[0])[0].value, Value::Int(7));
        let inner = batch.args(&events[1]);
        assert_eq!(inner.len(), 2);
        assert_eq!(inner[1].value, Value::Text("hi".into()));
    }

    #[test]
    fn arguments_without_an_event_cost_later_events_nothing() {
        const ORPHANS: u64 = 20_000;
        const EVENTS: u64 = 1_000;
        let argument = meta(50, KIND_ARG, ARG_INT, 0);
        let outer = ORPHANS + 1;
        let mut content = Vec::new();
        record(&mut content, [outer, 1, argument]);
        for key in 1..=ORPHANS {
            record(&mut content, [key, 7, argument]);
        }
        for event in 0..EVENTS {
            // Every second event has lost its arguments.
            let begin = outer + 1 + event;
            if event % 2 == 0 {
                record(&mut content, [begin, event, argument]);
            }
            let row = u16::try_from(event % 3).unwrap();
            record(
                &mut content,
                [begin, begin, meta(1, KIND_SPAN, FLAG_ARGS, row)],
            );
        }
        record(&mut content, [outer, 2, argument]);
        record(&mut content, [outer, u64::MAX >> 1, span(2, FLAG_ARGS)]);
        let all = block(BLOCK_DATA, 1, &content);
        let mut index = Index::default();
        index.add(&all);
        let decoder = Decoder::new(&index, &ExportLimits::default());
        let windows = decoder.windows(WINDOW_RECORDS);
        let (mut state, mut batch) = (ThreadState::default(), Batch::default());
        decoder.batch(&windows[0], 1, &mut state, &mut batch);
        let values = |event: &Event| -> Vec<_> {
            let args = batch.args(event).iter();
            args.map(|arg| arg.value.clone()).collect()
        };
        assert_eq!(
            values(&batch.events[0]),
            [Value::Int(1), Value::Int(2)],
            "those that waited longest come first"
        );
        for (event, number) in batch.events[1..].iter().zip(0..) {
            let expected = (number % 2 == 0).then_some(Value::Int(number));
            assert_eq!(values(event), Vec::from_iter(expected));
        }
        assert_eq!(batch.events.len() as u64, EVENTS + 1);
        let most = MAX_RECENT * batch.events.len();
        assert!(state.pending.compared <= most, "{}", state.pending.compared);
    }

    #[test]
    fn any_order_is_sorted() {
        let event = |begin: u64, end: u64| Event {
            begin,
            end,
            name: 1,
            kind: Kind::Span,
            unfinished: false,
            row: 0,
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
            sort_events(&mut events);
            assert_eq!(events.iter().map(key).collect::<Vec<_>>(), expected);
        }
        // In the order in which a thread ends them: inner spans first.
        let mut events: Vec<_> = (0..1_000)
            .flat_map(|n| [event(10 * n + 2, 10 * n + 3), event(10 * n, 10 * n + 9)])
            .collect();
        events.push(event(0, 20_000));
        sort_events(&mut events);
        assert!(events.is_sorted_by_key(|event| (event.begin, Reverse(event.end))));
        assert_eq!(events[0].end, 20_000);
    }

    #[test]
    fn max_events_retains_the_earliest_starts_even_if_they_end_last() {
        let mut content = Vec::new();
        for (begin, end) in [(20, 21), (22, 23), (22, 24), (10, 40)] {
            record(&mut content, [begin, end, span(1, 0)]);
        }
        let all = block(BLOCK_DATA, 1, &content);
        let mut index = Index::default();
        index.add(&all);
        let starts = |most: u64| {
            let cut = ExportLimits {
                max_events: Some(most),
                ..ExportLimits::default()
            };
            let batch = only_batch(&index, &cut);
            let starts: Vec<_> = batch.events.iter().map(|event| event.begin).collect();
            (starts, batch.cut)
        };
        assert_eq!(starts(0), (vec![], 4));
        assert_eq!(starts(1), (vec![10], 3));
        assert_eq!(starts(3), (vec![10, 20, 22], 1));
        assert_eq!(starts(4), (vec![10, 20, 22, 22], 0));
    }

    #[test]
    fn leftover_ring_adds_only_undrained_records() {
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
        let batch = only_batch(&index, &ExportLimits::default());
        let events = &batch.events;
        assert_eq!(events.len(), 4, "the second open slot had been finished");
        let open: Vec<_> = events.iter().filter(|event| event.unfinished).collect();
        assert_eq!((open.len(), open[0].name, open[0].end), (1, 9, 3));
    }
}
