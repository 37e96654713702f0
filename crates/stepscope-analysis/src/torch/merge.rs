//! The events of several threads in the order of torch's one list.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use stepscope_model::Time;
use stepscope_store::Trace;

use super::lane::{Lane, recorded};

/// Where an event stands in torch's list: by begin, the longest first; then by the recorder's order.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    trace: &'a Trace,
    start: Time,
    end: Time,
    is_memory: bool,
    id: u32,
}

impl<'a> Place<'a> {
    /// Of the event at a position of a lane.
    pub(super) fn of(trace: &'a Trace, lane: &Lane<'_>, at: usize) -> Self {
        let (start, end) = lane.times(at);
        Self {
            trace,
            start,
            end,
            is_memory: lane.what[at].is_memory(),
            id: lane.ids[at],
        }
    }

    /// The recorder's order is asked for only where intervals are the same.
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

/// The next event of a lane.
struct Head<'a> {
    place: Place<'a>,
    lane: usize,
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
        self.place.compare(&other.place)
    }
}

/// The next event at or behind `at` that is wanted.
fn head<'a>(
    trace: &'a Trace,
    lane: &Lane<'_>,
    number: usize,
    at: usize,
    wanted: impl Fn(&Lane<'_>, usize) -> bool,
) -> Option<Head<'a>> {
    let at = (at..lane.len()).find(|at| wanted(lane, *at))?;
    Some(Head {
        place: Place::of(trace, lane, at),
        lane: number,
        at,
    })
}

/// Gives the wanted events of all lanes in torch's order: the lane, the position there, begin and end.
/// `wanted` is asked with the lane and the position there.
pub(super) fn merged(
    trace: &Trace,
    lanes: &[Lane<'_>],
    wanted: impl Fn(&Lane<'_>, usize) -> bool + Copy,
    mut each: impl FnMut(usize, usize, (Time, Time)),
) {
    let mut heads: BinaryHeap<Reverse<Head<'_>>> = lanes
        .iter()
        .enumerate()
        .filter_map(|(number, lane)| head(trace, lane, number, 0, wanted))
        .map(Reverse)
        .collect();
    while let Some(Reverse(first)) = heads.pop() {
        let (number, mut at) = (first.lane, first.at);
        let mut times = (first.place.start, first.place.end);
        let lane = &lanes[number];
        // All of this lane that comes before the next of any other.
        let next = heads.peek().map(|Reverse(next)| next.place);
        let until = next.map_or(Time::MAX, |next| next.start);
        loop {
            each(number, at, times);
            let behind = (at + 1..lane.len()).find(|at| wanted(lane, *at));
            let Some(following) = behind else { break };
            at = following;
            times = lane.times(at);
            if times.0 < until {
                continue;
            }
            let Some(here) = head(trace, lane, number, at, wanted) else {
                break;
            };
            if next.is_some_and(|next| next.compare(&here.place).is_lt()) {
                heads.push(Reverse(here));
                break;
            }
        }
    }
}
