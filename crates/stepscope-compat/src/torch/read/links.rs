//! Operator that launched each kernel or copy.
//!
//! Kineto numbers operators (`External id`) and calls of the runtime (`correlation`), and device work has both
//! numbers. Where the file's own link leads from the work to its call, only the numbers there and of the
//! enclosing operators are read; if that is no proof, the numbers of all operators and calls are searched.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{ArgKeys, Cancelled};
use stepscope_store::{EventId, Trace};

use crate::torch::merge;
use crate::torch::thread_events::{self, NO_EVENT, ThreadEvents};
use crate::torch::whole_number::whole;
use stepscope_analysis::parallel::{self, Cancel};

const NUMBERS: ArgKeys = ArgKeys::new(&["External id", "external id", "correlation"]);
const EXTERNAL: ArgKeys = ArgKeys::new(&["External id", "external id"]);
const CORRELATION: ArgKeys = ArgKeys::new(&["correlation"]);

/// Missing number: real ones are positive.
pub(super) const NO_ID: i64 = 0;

/// Maximum number of operators around a call whose numbers are read.
const MOST_AROUND: usize = 32;

/// The numbers of one event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    external: i64,
    correlation: i64,
}

const NO_NUMBERS: Numbers = Numbers {
    external: NO_ID,
    correlation: NO_ID,
};

fn numbers(trace: &Trace, thread_events: &ThreadEvents<'_>, at: usize, keys: ArgKeys) -> Numbers {
    let mut found = NO_NUMBERS;
    // Unreadable arguments have no number.
    thread_events.args(trace, at, keys, &mut |key, value| {
        let number = whole(value).unwrap_or(NO_ID);
        if key == "correlation" {
            found.correlation = number;
        } else {
            found.external = number;
        }
    });
    found
}

/// Position of an event: its thread, and the index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) thread_events: u32,
    pub(super) at: u32,
}

pub(super) const NOWHERE: Position = Position {
    thread_events: NO_EVENT,
    at: NO_EVENT,
};

/// Returns kineto's number of an operator.
fn external(trace: &Trace, thread_events: &ThreadEvents<'_>, at: usize) -> i64 {
    match thread_events.external.get(at) {
        Some(number) => *number,
        None => numbers(trace, thread_events, at, EXTERNAL).external,
    }
}

fn position(thread_events: usize, at: usize) -> Position {
    Position {
        thread_events: u32::try_from(thread_events).unwrap_or(NO_EVENT),
        at: u32::try_from(at).unwrap_or(NO_EVENT),
    }
}

/// Joins the columns of threads from the results of their chunks.
fn joined<T>(threads: &[ThreadEvents<'_>], found: Vec<Vec<(usize, usize, Vec<T>)>>) -> Vec<Vec<T>> {
    let mut parts: Vec<_> = found.into_iter().flatten().collect();
    parts.sort_unstable_by_key(|(thread_events, from, _)| (*thread_events, *from));
    let mut columns: Vec<Vec<T>> = threads.iter().map(|_| Vec::new()).collect();
    for (thread_events, _, part) in parts {
        columns[thread_events].extend(part);
    }
    columns
}

/// Numbers of device work.
pub(super) struct Work {
    /// Numbers of each thread with device work.
    numbers: Vec<Vec<Numbers>>,
    /// Events of those threads, when they were read.
    ids: Vec<Vec<u32>>,
    /// Whether the file has the numbers of operators; old and some newer files repeat the correlation instead.
    pub(super) named: bool,
}

impl Work {
    pub(super) fn read(
        trace: &Trace,
        threads: &[ThreadEvents<'_>],
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let chunks = thread_events::chunks(threads, |thread_events| thread_events.has_device);
        let found = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
            let thread_events = &threads[chunk.track.index()];
            let part = chunk.indexes.clone().map(|at| {
                if thread_events.class[at].on_device() {
                    numbers(trace, thread_events, at, NUMBERS)
                } else {
                    NO_NUMBERS
                }
            });
            let part: Vec<Numbers> = part.collect();
            out.push((chunk.track.index(), chunk.indexes.start, part));
        })?;
        let numbers = joined(threads, found);
        let named = numbers
            .iter()
            .flatten()
            .any(|own| own.external != NO_ID && own.external != own.correlation);
        let ids = threads.iter().zip(&numbers);
        let ids = ids.map(|(thread_events, numbers)| {
            if numbers.is_empty() {
                Vec::new()
            } else {
                thread_events.ids.clone()
            }
        });
        Ok(Self {
            ids: ids.collect(),
            numbers,
            named,
        })
    }

    /// Updates the positions of the numbers after events were moved and memory records inserted.
    pub(super) fn follow(&mut self, threads: &[ThreadEvents<'_>]) {
        let is_moved = |(thread_events, ids): (&ThreadEvents<'_>, &Vec<u32>)| {
            thread_events.has_device && thread_events.ids != *ids
        };
        if self.ids.len() == threads.len() && !threads.iter().zip(&self.ids).any(is_moved) {
            return;
        }
        let ids = self.ids.iter().flatten().copied();
        let of_event: FxHashMap<u32, Numbers> =
            ids.zip(self.numbers.iter().flatten().copied()).collect();
        let numbers = |id: &u32| of_event.get(id).copied().unwrap_or(NO_NUMBERS);
        self.numbers = threads
            .iter()
            .map(|thread_events| {
                if thread_events.has_device {
                    thread_events.ids.iter().map(numbers).collect()
                } else {
                    Vec::new()
                }
            })
            .collect();
        self.ids = Vec::new();
    }
}

/// Finds the last event, in torch's order, that has each of the requested numbers.
fn bearers(
    trace: &Trace,
    threads: &[ThreadEvents<'_>],
    requested: &FxHashSet<i64>,
    by_operator: bool,
    cancel: &Cancel,
) -> Result<FxHashMap<i64, Position>, Cancelled> {
    if requested.is_empty() {
        return Ok(FxHashMap::default());
    }
    let order = |of: Position| {
        merge::EventOrder::new(trace, &threads[of.thread_events as usize], of.at as usize)
    };
    let put = |found: &mut FxHashMap<i64, Position>, number: i64, here: Position| {
        let last = found.entry(number).or_insert(here);
        if order(*last).compare(&order(here)).is_lt() {
            *last = here;
        }
    };
    let chunks = thread_events::chunks(threads, |thread_events| thread_events.has_host);
    let parts = parallel::scan(&chunks, cancel, FxHashMap::default, |found, chunk| {
        let thread_events = &threads[chunk.track.index()];
        for at in chunk.indexes.clone() {
            let class = thread_events.class[at];
            let number = if by_operator && class.is_frontend() {
                external(trace, thread_events, at)
            } else if !by_operator && class.is_call() {
                numbers(trace, thread_events, at, CORRELATION).correlation
            } else {
                continue;
            };
            if requested.contains(&number) {
                put(found, number, position(chunk.track.index(), at));
            }
        }
    })?;
    let mut found = FxHashMap::default();
    let read = parts.into_iter().flatten();
    read.for_each(|(number, here)| put(&mut found, number, here));
    Ok(found)
}

/// Finds calls without an enclosing operator on their thread that belong to an operator of another thread: the
/// position of each, and of the operator.
pub(super) fn cross_thread_calls(
    trace: &Trace,
    threads: &[ThreadEvents<'_>],
    unlinked: &[Vec<u32>],
    cancel: &Cancel,
) -> Result<Vec<(Position, Position)>, Cancelled> {
    let calls: Vec<Position> = unlinked
        .iter()
        .enumerate()
        .flat_map(|(thread_events, calls)| {
            calls
                .iter()
                .map(move |at| position(thread_events, *at as usize))
        })
        .collect();
    let chunks = parallel::track_chunks(std::iter::once((
        stepscope_model::TrackId(0),
        0..calls.len(),
    )));
    let read = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
        for call in &calls[chunk.indexes.clone()] {
            let thread_events = &threads[call.thread_events as usize];
            let own = numbers(trace, thread_events, call.at as usize, NUMBERS);
            // If it belongs to none, the correlation replaces the operator's number.
            if own.external > 0 && own.external != own.correlation {
                out.push((*call, own.external));
            }
        }
    })?;
    let read: Vec<(Position, i64)> = read.into_iter().flatten().collect();
    let requested = read.iter().map(|(_, number)| *number).collect();
    let operators = bearers(trace, threads, &requested, true, cancel)?;
    let mut cross_thread_calls: Vec<(Position, Position)> = read
        .into_iter()
        .filter_map(|(call, number)| Some((call, *operators.get(&number)?)))
        .collect();
    cross_thread_calls.sort_unstable_by_key(|(call, _)| (call.thread_events, call.at));
    Ok(cross_thread_calls)
}

/// Finds the calls that belong to operators: the positions of both.
pub(super) fn operators(
    trace: &Trace,
    threads: &[ThreadEvents<'_>],
    cancel: &Cancel,
) -> Result<Vec<(Position, Position)>, Cancelled> {
    let chunks = thread_events::chunks(threads, |thread_events| thread_events.has_host);
    let found = parallel::scan(
        &chunks,
        cancel,
        || (Search::new(0), Vec::new(), Vec::new()),
        |(search, found, unproved), chunk| {
            let number = chunk.track.index();
            let thread_events = &threads[number];
            for at in chunk.indexes.clone() {
                if !thread_events.class[at].is_call() {
                    continue;
                }
                let own = numbers(trace, thread_events, at, NUMBERS);
                if own.external <= 0 {
                    continue;
                }
                match search.around(trace, thread_events, at, own.external) {
                    Some(operator) => {
                        found.push((position(number, at), position(number, operator)));
                    }
                    None if own.external == own.correlation => {}
                    None => unproved.push((position(number, at), own.external)),
                }
            }
        },
    )?;
    let (mut all, mut unproved) = (Vec::new(), Vec::new());
    for (_, found, rest) in found {
        all.extend(found);
        unproved.extend(rest);
    }
    let requested = unproved.iter().map(|(_, number)| *number).collect();
    let named = bearers(trace, threads, &requested, true, cancel)?;
    all.extend(
        unproved
            .into_iter()
            .filter_map(|(call, number)| Some((call, *named.get(&number)?))),
    );
    Ok(all)
}

/// Owner of each kernel or copy.
pub(super) struct Links {
    /// For each thread with device work: the operator, or the call that launched it, or [`NOWHERE`].
    pub(super) from: Vec<Vec<Position>>,
    /// Number of kernels and copies without either.
    pub(super) unlinked: u64,
}

/// Search state of one worker thread.
struct Search {
    /// Position of the last result, by thread.
    near: Vec<usize>,
    /// Position of the last result among the links.
    near_link: usize,
    /// Numbers of operators that were read recently.
    external: Vec<(u32, i64)>,
    parts: Vec<(usize, usize, Vec<Position>)>,
    unproved: Vec<Position>,
}

const REMEMBERED: usize = 1 << 10;

/// Evidence in the file's links for a kernel or copy.
enum LinkEvidence {
    Proved(Position),
    Unproved,
}

/// Finds the owners of all device work.
pub(super) fn find(
    trace: &Trace,
    threads: &[ThreadEvents<'_>],
    thread_of: &[u32],
    work: &Work,
    cancel: &Cancel,
) -> Result<Links, Cancelled> {
    let chunks = thread_events::chunks(threads, |thread_events| thread_events.has_device);
    let found = parallel::scan(
        &chunks,
        cancel,
        || Search::new(threads.len()),
        |search, chunk| {
            let number = chunk.track.index();
            let thread_events = &threads[number];
            let mut part = Vec::with_capacity(chunk.indexes.len());
            for at in chunk.indexes.clone() {
                let class = thread_events.class[at];
                part.push(NOWHERE);
                if !class.on_device() || class.is_label() {
                    continue;
                }
                let own = work.numbers[number][at];
                match link_evidence(
                    trace,
                    threads,
                    thread_of,
                    work.named,
                    search,
                    thread_events.ids[at],
                    own,
                ) {
                    LinkEvidence::Proved(from) => part[at - chunk.indexes.start] = from,
                    LinkEvidence::Unproved => search.unproved.push(position(number, at)),
                }
            }
            search.parts.push((number, chunk.indexes.start, part));
        },
    )?;
    let (mut parts, mut unproved) = (Vec::new(), Vec::new());
    for search in found {
        parts.push(search.parts);
        unproved.extend(search.unproved);
    }
    let mut links = Links {
        from: joined(threads, parts),
        unlinked: 0,
    };
    links.look_up(trace, threads, work, &unproved, cancel)?;
    Ok(links)
}

impl Links {
    /// Searches numbers among those of all operators and calls.
    fn look_up(
        &mut self,
        trace: &Trace,
        threads: &[ThreadEvents<'_>],
        work: &Work,
        unproved: &[Position],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let of = |here: &Position| work.numbers[here.thread_events as usize][here.at as usize];
        let requested = unproved
            .iter()
            .map(|here| of(here).external)
            .filter(|number| work.named && *number > 0)
            .collect();
        let operators = bearers(trace, threads, &requested, true, cancel)?;
        let operator = |here: &Position| operators.get(&of(here).external).copied();
        let requested = unproved
            .iter()
            .filter(|here| operator(here).is_none())
            .map(|here| of(here).correlation)
            .filter(|number| *number != NO_ID)
            .collect();
        let calls = bearers(trace, threads, &requested, false, cancel)?;
        for here in unproved {
            let from = operator(here).or_else(|| calls.get(&of(here).correlation).copied());
            match from {
                Some(from) => self.from[here.thread_events as usize][here.at as usize] = from,
                None => self.unlinked += 1,
            }
        }
        Ok(())
    }
}

fn link_evidence(
    trace: &Trace,
    threads: &[ThreadEvents<'_>],
    thread_of: &[u32],
    named: bool,
    search: &mut Search,
    id: u32,
    own: Numbers,
) -> LinkEvidence {
    let by_operator = named && own.external > 0;
    for source in trace.flow_sources(EventId(id), &mut search.near_link) {
        let Some((on, index)) = trace.place_of_slice(source) else {
            continue;
        };
        let number = thread_of[on.index()] as usize;
        let Some(thread_events) = threads
            .get(number)
            .filter(|thread_events| thread_events.has_host)
        else {
            continue;
        };
        let start = trace.slices(on).start[index];
        let Some(at) = thread_events.find(source.0, start, search.near[number]) else {
            continue;
        };
        search.near[number] = at;
        if by_operator && let Some(operator) = search.around(trace, thread_events, at, own.external)
        {
            return LinkEvidence::Proved(position(number, operator));
        }
        // The named operator is not around the call: all are searched, unless the number is only the
        // correlation's.
        if own.correlation == NO_ID || (by_operator && own.external != own.correlation) {
            continue;
        }
        // Writers with clocks of whole microseconds put links at events that start with the call.
        let starts_with_call = |at: &usize| thread_events.start(*at) == start;
        let before = (at.saturating_sub(8)..at)
            .rev()
            .take_while(starts_with_call);
        let behind = (at..thread_events.len().min(at + 8)).take_while(starts_with_call);
        for call in behind.chain(before) {
            if thread_events.class[call].is_call()
                && numbers(trace, thread_events, call, CORRELATION).correlation == own.correlation
            {
                return LinkEvidence::Proved(position(number, call));
            }
        }
    }
    LinkEvidence::Unproved
}

impl Search {
    fn new(threads: usize) -> Self {
        Self {
            near: vec![0; threads],
            near_link: 0,
            external: vec![(NO_EVENT, NO_ID); REMEMBERED],
            parts: Vec::new(),
            unproved: Vec::new(),
        }
    }

    /// Returns the operator with this number around an event, or the event itself.
    fn around(
        &mut self,
        trace: &Trace,
        thread_events: &ThreadEvents<'_>,
        at: usize,
        number: i64,
    ) -> Option<usize> {
        let mut around = at;
        for _ in 0..MOST_AROUND {
            if thread_events.class[around].is_frontend()
                && self.external_of(trace, thread_events, around) == number
            {
                return Some(around);
            }
            let parent = thread_events.parent[around];
            if parent == NO_EVENT {
                break;
            }
            around = parent as usize;
        }
        None
    }

    fn external_of(&mut self, trace: &Trace, thread_events: &ThreadEvents<'_>, at: usize) -> i64 {
        if let Some(number) = thread_events.external.get(at) {
            return *number;
        }
        let id = thread_events.ids[at];
        let known = &mut self.external[id as usize % REMEMBERED];
        if known.0 != id {
            *known = (id, external(trace, thread_events, at));
        }
        known.1
    }
}

/// Adds the durations of device work to the operators that it belongs to, in torch's order.
pub(super) fn add(
    trace: &Trace,
    threads: &mut [ThreadEvents<'_>],
    links: &Links,
    microseconds: impl Fn(stepscope_model::Time) -> f64,
) {
    let mut lengths: Vec<Vec<f64>> = threads
        .iter()
        .map(|thread_events| {
            vec![
                0.0;
                if thread_events.has_host {
                    thread_events.len()
                } else {
                    0
                }
            ]
        })
        .collect();
    let read = &*threads;
    merge::merged(
        trace,
        read,
        |thread_events, at| {
            thread_events.class[at].on_device() && !thread_events.class[at].is_label()
        },
        |number, at, (start, end)| {
            let from = links.from[number][at];
            let Some(thread_events) = read.get(from.thread_events as usize) else {
                return;
            };
            // For a call, use the operator around it.
            let mut at = from.at;
            while let Some(class) = thread_events.class.get(at as usize)
                && !class.is_frontend()
            {
                at = thread_events
                    .parent
                    .get(at as usize)
                    .copied()
                    .unwrap_or(NO_EVENT);
            }
            // Async events launch nothing.
            let nests = thread_events
                .class
                .get(at as usize)
                .is_some_and(|class| class.nests());
            if let Some(sum) = lengths[from.thread_events as usize].get_mut(at as usize)
                && nests
            {
                *sum += microseconds(end) - microseconds(start);
            }
        },
    );
    for (thread_events, lengths) in threads.iter_mut().zip(lengths) {
        thread_events.device_us = lengths;
    }
}
