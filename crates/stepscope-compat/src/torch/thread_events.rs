//! Events of one thread, in torch's order.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Slices, Trace, galloping_search};

use super::event_class::{EventClass, Words};
use super::whole_number::whole;
use stepscope_analysis::parallel::{self, Cancel};

/// Missing position of an event.
pub(super) const NO_EVENT: u32 = u32::MAX;

/// A memory record that no operator covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnownedMemory {
    pub(super) id: u32,
    pub(super) at: Time,
    pub(super) name: NameId,
    pub(super) on_cpu: i64,
    pub(super) on_device: i64,
}

/// Events of one thread (or of one queue of a device), by start, the longest first. Their times and names stay in
/// the columns of the trace; columns that are not needed are empty.
pub(super) struct ThreadEvents<'a> {
    /// The tracks of the events, by the id of their first slice.
    pub(super) parts: Vec<(TrackId, Slices<'a>)>,
    /// These tracks and those of other threads, if events came from there.
    pub(super) foreign: Vec<(TrackId, Slices<'a>)>,
    /// Memory records by number.
    unowned_memory: Vec<UnownedMemory>,
    /// Numbers of the events in the trace.
    pub(super) ids: Vec<u32>,
    pub(super) class: Vec<EventClass>,
    pub(super) has_host: bool,
    pub(super) has_device: bool,
    pub(super) has_python: bool,
    /// Position of the event that encloses each, or [`NO_EVENT`]; empty if unknown.
    pub(super) parent: Vec<u32>,
    /// Durations of the kernels that each event launched, added in their order, microseconds; later, including
    /// those of all events below it.
    pub(super) device_us: Vec<f64>,
    pub(super) self_cpu_us: Vec<f64>,
    pub(super) self_device_us: Vec<f64>,
    /// Bytes of host memory and of devices, allocated minus freed while each event ran, by any thread.
    pub(super) memory: Vec<[i64; 2]>,
    pub(super) self_memory: Vec<[i64; 2]>,
    /// Numbers of texts and of lists.
    pub(super) shapes: Vec<u32>,
    pub(super) overload: Vec<u32>,
    pub(super) stack: Vec<u32>,
    /// Links of an operator and its backward function: sequence number, counted from one, and torch's number of
    /// the forward operator's thread. The lower half of each is sufficient within one recording.
    pub(super) sequence: Vec<[u32; 2]>,
    /// Kineto's numbers of operators; empty if arguments were not read.
    pub(super) external: Vec<i64>,
    /// Operations of the counted events, by position.
    pub(super) flops: Vec<(u32, u64)>,
}

fn within<'s, 'a>(part: &'s (TrackId, Slices<'a>), id: u32) -> Option<(&'s Slices<'a>, usize)> {
    let index = id.checked_sub(part.1.first_id.0)? as usize;
    (index < part.1.len()).then_some((&part.1, index))
}

fn among<'s, 'a>(parts: &'s [(TrackId, Slices<'a>)], id: u32) -> Option<(&'s Slices<'a>, usize)> {
    let after = parts.partition_point(|(_, part)| part.first_id.0 <= id);
    within(parts.get(after.checked_sub(1)?)?, id)
}

impl<'a> ThreadEvents<'a> {
    fn new() -> Self {
        Self {
            parts: Vec::new(),
            foreign: Vec::new(),
            unowned_memory: Vec::new(),
            ids: Vec::new(),
            class: Vec::new(),
            has_host: false,
            has_device: false,
            has_python: false,
            parent: Vec::new(),
            device_us: Vec::new(),
            self_cpu_us: Vec::new(),
            self_device_us: Vec::new(),
            memory: Vec::new(),
            self_memory: Vec::new(),
            shapes: Vec::new(),
            overload: Vec::new(),
            stack: Vec::new(),
            sequence: Vec::new(),
            external: Vec::new(),
            flops: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the columns that contain an event, and its index in them; `None` for a memory record.
    #[inline]
    fn position(&self, id: u32) -> Option<(&Slices<'a>, usize)> {
        let own = match self.parts.as_slice() {
            [only] => within(only, id),
            parts => among(parts, id),
        };
        if own.is_some() || self.foreign.is_empty() {
            return own;
        }
        among(&self.foreign, id)
    }

    fn unowned(&self, id: u32) -> Option<&UnownedMemory> {
        let at = self
            .unowned_memory
            .binary_search_by_key(&id, |unowned| unowned.id);
        self.unowned_memory.get(at.ok()?)
    }

    #[inline(never)]
    fn times_of(&self, id: u32) -> (Time, Time) {
        if let Some((slices, index)) = self.position(id) {
            return (slices.start[index], slices.end(index));
        }
        let at = self.unowned(id).map_or(Time::MIN, |unowned| unowned.at);
        (at, at)
    }

    /// Returns the columns of a thread that has one track, as most do.
    #[inline]
    fn only(&self, id: u32) -> Option<(&Slices<'a>, usize)> {
        let [(_, only)] = self.parts.as_slice() else {
            return None;
        };
        Some((only, id.wrapping_sub(only.first_id.0) as usize))
    }

    /// Returns start and end of the event at a position.
    #[inline]
    pub(super) fn times(&self, at: usize) -> (Time, Time) {
        let id = self.ids[at];
        if let Some((slices, index)) = self.only(id)
            && let (Some(start), Some(dur)) = (slices.start.get(index), slices.dur.get(index))
        {
            return (*start, start.saturating_add(*dur));
        }
        self.times_of(id)
    }

    /// Returns the start of the event at a position.
    #[inline]
    pub(super) fn start(&self, at: usize) -> Time {
        let id = self.ids[at];
        if let Some((slices, index)) = self.only(id)
            && let Some(start) = slices.start.get(index)
        {
            return *start;
        }
        self.times_of(id).0
    }

    /// Returns the name of the event at a position.
    #[inline]
    pub(super) fn name(&self, at: usize) -> NameId {
        let id = self.ids[at];
        if let Some((slices, index)) = self.only(id)
            && let Some(name) = slices.name.get(index)
        {
            return *name;
        }
        self.name_of(id)
    }

    #[inline(never)]
    fn name_of(&self, id: u32) -> NameId {
        match self.position(id) {
            Some((slices, index)) => slices.name[index],
            None => self
                .unowned(id)
                .map_or(NameId::EMPTY, |unowned| unowned.name),
        }
    }

    /// Visits these arguments of the event at a position. Unreadable ones are skipped.
    #[inline]
    pub(super) fn args(
        &self,
        trace: &Trace,
        at: usize,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) {
        let id = self.ids[at];
        let _ = match self.parts.as_slice() {
            // Most threads have one track, which needs no search.
            [(on, only)] if (id.wrapping_sub(only.first_id.0) as usize) < only.len() => {
                trace.args_of_slice(*on, (id - only.first_id.0) as usize, keys, visit)
            }
            _ => trace.args_of(EventId(id), keys, visit),
        };
    }

    /// Returns the position of an event that starts at `start`; the search starts at `near`.
    pub(super) fn find(&self, id: u32, start: Time, near: usize) -> Option<usize> {
        let count = self.len();
        let from = galloping_search(count, near, |at| self.start(at) < start);
        (from..count)
            .take_while(|at| self.start(*at) == start)
            .find(|at| self.ids[*at] == id)
    }

    /// Inserts events of other threads, or memory records, after events with the same interval.
    pub(super) fn insert(&mut self, mut events: Vec<(u32, EventClass)>) {
        let position = |thread_events: &Self, (id, class): (u32, EventClass)| {
            let (start, end) = thread_events.times_of(id);
            (start, Reverse(end), class.is_memory())
        };
        events.sort_by_cached_key(|event| (position(self, *event), event.0));
        let count = self.len() + events.len();
        let (mut ids, mut whats) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut from = 0;
        for event in events {
            let here = position(self, event);
            // Few are inserted among many: each is searched.
            let step = {
                let (mut low, mut high) = (from, self.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    if position(self, (self.ids[middle], self.class[middle])) <= here {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                low
            };
            ids.extend_from_slice(&self.ids[from..step]);
            whats.extend_from_slice(&self.class[from..step]);
            ids.push(event.0);
            whats.push(event.1);
            from = step;
        }
        ids.extend_from_slice(&self.ids[from..]);
        whats.extend_from_slice(&self.class[from..]);
        (self.ids, self.class) = (ids, whats);
        self.note();
    }

    /// Inserts memory records between the events, and their bytes between the others'.
    pub(super) fn insert_unowned_memory(&mut self, mut unowned_memory: Vec<UnownedMemory>) {
        let events = unowned_memory
            .iter()
            .map(|unowned| (unowned.id, EventClass::MEMORY))
            .collect();
        unowned_memory.sort_unstable_by_key(|unowned| unowned.id);
        self.unowned_memory = unowned_memory;
        let before = std::mem::take(&mut self.ids);
        let bytes = std::mem::take(&mut self.memory);
        self.ids.clone_from(&before);
        self.insert(events);
        let mut of_events = before.iter().zip(bytes).peekable();
        let mut memory = Vec::with_capacity(self.len());
        for id in &self.ids {
            match of_events.next_if(|(event, _)| *event == id) {
                Some((_, bytes)) => memory.push(bytes),
                None => memory.push(
                    self.unowned(*id)
                        .map_or([0; 2], |unowned| [unowned.on_cpu, unowned.on_device]),
                ),
            }
        }
        self.memory = memory;
    }

    fn set(&mut self, mut events: Vec<(u32, EventClass)>) {
        events.sort_by_cached_key(|(id, _)| {
            let (start, end) = self.times_of(*id);
            (start, Reverse(end), *id)
        });
        self.ids = events.iter().map(|(id, _)| *id).collect();
        self.class = events.iter().map(|(_, class)| *class).collect();
        self.note();
    }

    /// Updates the classes of events after a change.
    fn note(&mut self) {
        self.parent = Vec::new();
        self.has_host = self.class.iter().any(|class| !class.on_device());
        self.has_device = self.class.iter().any(|class| class.on_device());
    }

    /// Removes the events at these positions, which ascend.
    pub(super) fn remove(&mut self, positions: &[u32]) {
        let mut next = positions.iter().peekable();
        let mut retained = Vec::with_capacity(self.len());
        for (at, event) in (0..).zip(self.ids.iter().copied().zip(self.class.iter().copied())) {
            if next.next_if_eq(&&at).is_none() {
                retained.push(event);
            }
        }
        (self.ids, self.class) = retained.into_iter().unzip();
        self.note();
    }
}

/// Threads of one file, with their events.
pub(super) struct Collected<'a> {
    pub(super) threads: Vec<ThreadEvents<'a>>,
    /// Thread of each track of the trace.
    pub(super) thread_of: Vec<u32>,
}

/// Collects the slices of one file that are events of torch, by thread.
pub(super) fn collect<'a>(
    trace: &'a Trace,
    file: usize,
    words: &Words,
    cancel: &Cancel,
) -> Result<Collected<'a>, Cancelled> {
    let mut threads: Vec<ThreadEvents<'a>> = Vec::new();
    let mut thread_of = vec![NO_EVENT; trace.tracks().len()];
    let mut known: FxHashMap<(Option<i64>, Option<i64>), u32> = FxHashMap::default();
    let mut ranges = Vec::new();
    for track in trace.tracks() {
        // What lies between two calls, such as a range of NVTX, is on no thread.
        let is_of_none = matches!(track.kind, TrackKind::Group | TrackKind::Async);
        if track.file != file || track.derived || is_of_none {
            continue;
        }
        let next = u32::try_from(threads.len()).unwrap_or(NO_EVENT);
        let thread = *known.entry((track.pid, track.tid)).or_insert(next);
        if thread == next {
            threads.push(ThreadEvents::new());
        }
        thread_of[track.id.index()] = thread;
        let slices = trace.slices(track.id);
        if !slices.is_empty() {
            threads[thread as usize].parts.push((track.id, slices));
            ranges.push((track.id, 0..slices.len()));
        }
    }
    let chunks = parallel::track_chunks(ranges.into_iter());
    let found = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
        let slices = trace.slices(chunk.track);
        let (mut ids, mut whats) = (Vec::new(), Vec::new());
        let mut has_python = false;
        for index in chunk.indexes.clone() {
            let class = words.class(slices.name[index], slices.category.get(index));
            if class == EventClass::NONE || class == EventClass::PYTHON {
                has_python |= class == EventClass::PYTHON;
                continue;
            }
            ids.push(slices.id(index).0);
            whats.push(class);
        }
        out.push((chunk.track, chunk.indexes.start, ids, whats, has_python));
    })?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(track, from, ..)| (*track, *from));
    let mut sizes = vec![0; threads.len()];
    for (track, _, ids, ..) in &found {
        sizes[thread_of[track.index()] as usize] += ids.len();
    }
    for (thread_events, size) in threads.iter_mut().zip(sizes) {
        thread_events.ids.reserve_exact(size);
        thread_events.class.reserve_exact(size);
    }
    for (track, _, ids, class, has_python) in found {
        let thread_events = &mut threads[thread_of[track.index()] as usize];
        thread_events.ids.extend(ids);
        thread_events.class.extend(class);
        thread_events.has_python |= has_python;
    }
    for thread_events in &mut threads {
        if thread_events.parts.len() > 1 {
            let events = thread_events
                .ids
                .drain(..)
                .zip(thread_events.class.drain(..))
                .collect();
            thread_events.set(events);
        } else {
            thread_events.note();
        }
    }
    Ok(Collected { threads, thread_of })
}

/// Runs `work` for each thread, several at a time, the longest first.
pub(super) fn each<T: Send>(
    threads: &[ThreadEvents<'_>],
    cancel: &Cancel,
    work: impl Fn(usize, &ThreadEvents<'_>) -> T + Sync,
) -> Result<Vec<T>, Cancelled> {
    let mut order: Vec<usize> = (0..threads.len()).collect();
    order.sort_by_key(|at| Reverse(threads[*at].len()));
    let size = threads.iter().map(ThreadEvents::len).sum();
    let found = parallel::scan_items(&order, size, cancel, Vec::new, |out, at| {
        out.push((*at, work(*at, &threads[*at])));
    })?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

/// Splits threads into chunks, with the number of the thread as track.
pub(super) fn chunks(
    threads: &[ThreadEvents<'_>],
    requested: impl Fn(&ThreadEvents<'_>) -> bool,
) -> Vec<parallel::TrackChunk> {
    let ranges = (0..)
        .zip(threads)
        .filter(|(_, thread_events)| requested(thread_events));
    parallel::track_chunks(
        ranges.map(|(number, thread_events)| (TrackId(number), 0..thread_events.len())),
    )
}

/// Returns the index of an event in the recorder's own order; the last without it.
pub(super) fn recorded(trace: &Trace, id: u32) -> u32 {
    let mut order = u32::MAX;
    // Unreadable ones are last.
    let _ = trace.args_of(EventId(id), INDEX, &mut |_, value| order = order_of(value));
    order
}

const INDEX: ArgKeys = ArgKeys::new(&["Ev Idx"]);

fn order_of(value: ArgValue<'_>) -> u32 {
    let order = whole(value).and_then(|order| u32::try_from(order).ok());
    order.unwrap_or(u32::MAX)
}

/// Sorts events with the same interval into the recorder's order.
pub(super) fn order_ties(
    trace: &Trace,
    threads: &mut [ThreadEvents<'_>],
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    let read = &*threads;
    let chunks = chunks(read, |_| true);
    let found = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
        let thread_events = &read[chunk.track.index()];
        let interval = |at: usize| (at < thread_events.len()).then(|| thread_events.times(at));
        let (from, to) = (chunk.indexes.start, chunk.indexes.end);
        let mut before = from.checked_sub(1).and_then(interval);
        let mut here = interval(from);
        let mut ties = Vec::new();
        for at in from..to {
            let after = interval(at + 1);
            if here == before || here == after {
                let mut order = u32::MAX;
                thread_events.args(trace, at, INDEX, &mut |_, value| order = order_of(value));
                ties.push((at, order));
            }
            (before, here) = (here, after);
        }
        out.push((chunk.track, from, ties));
    })?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(thread_events, from, _)| (*thread_events, *from));
    let mut run: Vec<(u32, u32, EventClass)> = Vec::new();
    for of_thread in found.chunk_by(|a, b| a.0 == b.0) {
        let Some(thread_events) = of_thread
            .first()
            .and_then(|(number, ..)| threads.get_mut(number.index()))
        else {
            continue;
        };
        let ties: Vec<(usize, u32)> = of_thread
            .iter()
            .flat_map(|(_, _, ties)| ties.iter().copied())
            .collect();
        let mut from = 0;
        while let Some((first, _)) = ties.get(from) {
            let interval = thread_events.times(*first);
            let mut to = from;
            while ties.get(to).is_some_and(|(at, _)| {
                *at == first + (to - from) && thread_events.times(*at) == interval
            }) {
                to += 1;
            }
            run.clear();
            run.extend(
                ties[from..to]
                    .iter()
                    .map(|(at, order)| (*order, thread_events.ids[*at], thread_events.class[*at])),
            );
            if !run.is_sorted_by_key(|(order, ..)| *order) {
                run.sort_by_key(|(order, ..)| *order);
                for ((at, _), (_, id, class)) in ties[from..to].iter().zip(&run) {
                    thread_events.ids[*at] = *id;
                    thread_events.class[*at] = *class;
                }
            }
            from = to;
        }
    }
    Ok(())
}
