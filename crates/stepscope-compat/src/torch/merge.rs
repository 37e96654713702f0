//! Merge of the events of several threads in the order of torch's single list.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use stepscope_model::Time;
use stepscope_store::Trace;

use super::thread_events::{ThreadEvents, recorded};

/// Order of an event in torch's list: by start, the longest first; then by the recorder's order.
#[derive(Clone, Copy)]
pub(super) struct EventOrder<'a> {
    trace: &'a Trace,
    start: Time,
    end: Time,
    is_memory: bool,
    id: u32,
}

impl<'a> EventOrder<'a> {
    /// Creates the order of the event at a position of a thread.
    pub(super) fn new(trace: &'a Trace, thread_events: &ThreadEvents<'_>, at: usize) -> Self {
        let (start, end) = thread_events.times(at);
        Self {
            trace,
            start,
            end,
            is_memory: thread_events.class[at].is_memory(),
            id: thread_events.ids[at],
        }
    }

    /// The recorder's order is read only where intervals are equal.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let slow = || {
            self.is_memory.cmp(&other.is_memory).then_with(|| {
                if self.id == other.id || self.is_memory {
                    return self.id.cmp(&other.id);
                }
                let order = |of: &Self| (recorded(of.trace, of.id), of.id);
                order(self).cmp(&order(other))
            })
        };
        self.start
            .cmp(&other.start)
            .then_with(|| other.end.cmp(&self.end))
            .then_with(slow)
    }
}

/// The next event of a thread.
struct Head<'a> {
    index: EventOrder<'a>,
    thread_events: usize,
    at: usize,
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.index.compare(&other.index)
    }
}

/// Returns the next requested event at or after `at`.
fn head<'a>(
    trace: &'a Trace,
    thread_events: &ThreadEvents<'_>,
    number: usize,
    at: usize,
    requested: impl Fn(&ThreadEvents<'_>, usize) -> bool,
) -> Option<Head<'a>> {
    let at = (at..thread_events.len()).find(|at| requested(thread_events, *at))?;
    Some(Head {
        index: EventOrder::new(trace, thread_events, at),
        thread_events: number,
        at,
    })
}

/// Visits the requested events of all threads in torch's order: the thread, the position there, start and end.
/// `requested` is called with the thread and the position there.
pub(super) fn merged(
    trace: &Trace,
    threads: &[ThreadEvents<'_>],
    requested: impl Fn(&ThreadEvents<'_>, usize) -> bool + Copy,
    mut each: impl FnMut(usize, usize, (Time, Time)),
) {
    let mut heads: BinaryHeap<Reverse<Head<'_>>> = threads
        .iter()
        .enumerate()
        .filter_map(|(number, thread_events)| head(trace, thread_events, number, 0, requested))
        .map(Reverse)
        .collect();
    while let Some(Reverse(first)) = heads.pop() {
        let (number, mut at) = (first.thread_events, first.at);
        let mut times = (first.index.start, first.index.end);
        let thread_events = &threads[number];
        // All events of this thread before the next one of any other.
        let next = heads.peek().map(|Reverse(next)| next.index);
        let until = next.map_or(Time::MAX, |next| next.start);
        loop {
            each(number, at, times);
            let behind = (at + 1..thread_events.len()).find(|at| requested(thread_events, *at));
            let Some(following) = behind else { break };
            at = following;
            times = thread_events.times(at);
            if times.0 < until {
                continue;
            }
            let Some(here) = head(trace, thread_events, number, at, requested) else {
                break;
            };
            if next.is_some_and(|next| next.compare(&here.index).is_lt()) {
                heads.push(Reverse(here));
                break;
            }
        }
    }
}
