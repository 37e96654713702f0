//! Conversion of events to slices: sort by time, pair ends with begins, follow flows.
//!
//! Packets of several sequences follow each other in the file, so events are first sorted by time;
//! equal times keep the order of the file. Each track has a stack of open slices. An end closes the
//! innermost one; an end with a name closes the innermost one with that name, and the slices inside
//! it end there, marked as unfinished.
//!
//! Flow ids do not mark a start: the first event with an id starts the flow, later events continue
//! it, a terminating event ends it, and the id can be used again.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{
    ArgRef, Diagnostic, Dur, EventSink, FlowBind, FlowDirection, FlowKey, InstantIn, NameId,
    SliceFlags, SliceFlow, SliceIn, SourceId, Time, TrackId,
};

use super::tracks::ResolvedTracks;
use crate::losses;

/// Effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Begin,
    End,
    /// A complete slice; its length is in [`Extra`].
    Complete,
    Instant,
    /// A counter sample; `payload` holds the value's bits.
    Sample,
    /// Only flow ends, bound by track and time.
    Flow,
}

/// One event in file order. 40 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Time on the primary clock.
    pub(crate) ns: i64,
    /// Address of the packet plus one, 0 without arguments; for samples, the bits of the value.
    pub(crate) payload: u64,
    pub(crate) slot: u32,
    pub(crate) name: NameId,
    pub(crate) category: NameId,
    /// Index into the extras plus one, 0 for none.
    pub(crate) extra: u32,
    pub(crate) act: Act,
}

/// Fields that few events have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) duration_ns: i64,
    pub(crate) step: Option<i64>,
    pub(crate) flags: u8,
    /// Index range of the flow ends.
    pub(crate) flows: (u32, u32),
    pub(crate) bind: Option<FlowBind>,
}

/// One flow end from the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowEnd {
    pub(crate) key: FlowKey,
    pub(crate) mark: FlowMark,
}

/// Type of a flow end in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowMark {
    /// From `flow_ids`: start or continuation, depending on earlier events.
    Member,
    /// From `terminating_flow_ids`.
    Terminating,
    /// From a legacy event, which states the direction.
    Given(FlowDirection),
}

/// Bit of the token of a slice whose end also has arguments; the other bits are the index of the
/// pair.
pub(crate) const PAIR_TOKEN: u64 = 1 << 47;

/// Events and flow ends before sorting.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) events: Vec<Event>,
    pub(crate) extras: Vec<Extra>,
    pub(crate) flows: Vec<FlowEnd>,
}

struct PendingEmitter<'a, S> {
    sink: &'a mut S,
    source: SourceId,
    origin_ns: i64,
    pending: &'a Pending,
    /// Addresses of the begin and end of slices that have arguments at both.
    pairs: Vec<(u64, u64)>,
    ends: Vec<SliceFlow>,
    bad_times: u64,
    negative: u64,
}

impl Pending {
    /// Emits everything, with times relative to `origin_ns`. Returns the pairs of addresses that
    /// tokens with [`PAIR_TOKEN`] refer to.
    pub(crate) fn emit<S: EventSink>(
        mut self,
        placed: &ResolvedTracks,
        source: SourceId,
        origin_ns: i64,
        sink: &mut S,
    ) -> Vec<(u64, u64)> {
        let mut events = std::mem::take(&mut self.events);
        if !events.is_sorted_by_key(|event| event.ns) {
            events.sort_by_key(|event| event.ns);
        }
        self.give_directions(&events);
        let last_ns = events.last().map_or(origin_ns, |event| event.ns);
        let mut emit = PendingEmitter {
            sink,
            source,
            origin_ns,
            pending: &self,
            pairs: Vec::new(),
            ends: Vec::new(),
            bad_times: 0,
            negative: 0,
        };
        let mut stacks: Vec<Vec<Event>> = vec![Vec::new(); placed.ids.len()];
        let (mut unmatched, mut unfinished) = (0, 0);
        for event in &events {
            let slot = event.slot as usize;
            let Some(track) = placed.ids.get(slot).copied() else {
                continue;
            };
            let shared = placed.same_as.get(slot).map_or(slot, |same| *same as usize);
            match event.act {
                Act::Begin => {
                    if let Some(stack) = stacks.get_mut(shared) {
                        stack.push(*event);
                    }
                }
                Act::End => {
                    let Some(stack) = stacks.get_mut(shared) else {
                        continue;
                    };
                    let at = innermost(stack, event.name);
                    let Some(at) = at else {
                        unmatched += 1;
                        continue;
                    };
                    for open in stack.drain(at + 1..).rev() {
                        unfinished += 1;
                        emit.slice(track, &open, event.ns, None, SliceFlags::UNFINISHED);
                    }
                    if let Some(begin) = stack.pop() {
                        emit.slice(track, &begin, event.ns, Some(event), SliceFlags::NONE);
                    }
                }
                Act::Complete => {
                    let length = emit.extra(event).duration_ns;
                    let end = event.ns.saturating_add(length);
                    emit.slice(track, event, end, None, SliceFlags::NONE);
                }
                Act::Instant => emit.instant(track, event),
                Act::Sample => emit.sample(track, event),
                Act::Flow => emit.flows_by_time(track, event, None),
            }
        }
        for (slot, stack) in stacks.into_iter().enumerate() {
            let Some(track) = placed.ids.get(slot).copied() else {
                continue;
            };
            for open in stack.into_iter().rev() {
                unfinished += 1;
                emit.slice(track, &open, last_ns, None, SliceFlags::UNFINISHED);
            }
        }
        let PendingEmitter {
            sink,
            pairs,
            bad_times,
            negative,
            ..
        } = emit;
        let losses = [
            (Diagnostic::UnmatchedEnd, unmatched, "ends without a begin"),
            (
                Diagnostic::UnfinishedSlice,
                unfinished,
                "begins without an end",
            ),
            (
                Diagnostic::BadTime,
                bad_times,
                "more than 106 days from the first event",
            ),
            (Diagnostic::NegativeDuration, negative, "complete events"),
        ];
        losses::diagnose(sink, &losses);
        pairs
    }
}

impl Pending {
    /// Sets for every flow end whether it starts, continues or ends its flow.
    fn give_directions(&mut self, events: &[Event]) {
        let mut open: FxHashSet<FlowKey> = FxHashSet::default();
        for event in events {
            let extra = (event.extra as usize)
                .checked_sub(1)
                .and_then(|at| self.extras.get(at));
            let Some(extra) = extra else { continue };
            let range = extra.flows.0 as usize..extra.flows.1 as usize;
            for end in self.flows.get_mut(range).unwrap_or_default() {
                let direction = match end.mark {
                    FlowMark::Given(direction) => direction,
                    FlowMark::Terminating => {
                        open.remove(&end.key);
                        FlowDirection::In
                    }
                    FlowMark::Member if open.insert(end.key) => FlowDirection::Out,
                    FlowMark::Member => FlowDirection::Through,
                };
                end.mark = FlowMark::Given(direction);
            }
        }
    }
}

fn flows_of<'a>(flows: &'a [FlowEnd], extra: &Extra) -> &'a [FlowEnd] {
    flows
        .get(extra.flows.0 as usize..extra.flows.1 as usize)
        .unwrap_or_default()
}

/// Returns the index of the open slice that an end with this name closes.
fn innermost(stack: &[Event], name: NameId) -> Option<usize> {
    let top = stack.len().checked_sub(1)?;
    if name == NameId::EMPTY {
        return Some(top);
    }
    // Unnamed begins match any end. The search in a deep stack is bounded.
    stack
        .iter()
        .enumerate()
        .rev()
        .take(64)
        .find(|(_, open)| open.name == name || open.name == NameId::EMPTY)
        .map(|(at, _)| at)
}

impl<S: EventSink> PendingEmitter<'_, S> {
    fn time(&mut self, ns: i64) -> Option<Time> {
        let time = ns.checked_sub(self.origin_ns).and_then(Time::from_ns);
        if time.is_none() {
            self.bad_times += 1;
        }
        time
    }

    fn extra(&self, event: &Event) -> Extra {
        (event.extra as usize)
            .checked_sub(1)
            .and_then(|at| self.pending.extras.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// Appends the flow ends of an event to `ends`.
    fn collect_flows(&mut self, extra: &Extra) {
        for end in flows_of(&self.pending.flows, extra) {
            if let FlowMark::Given(direction) = end.mark {
                self.ends.push(SliceFlow {
                    key: end.key,
                    direction,
                });
            }
        }
    }

    fn slice(
        &mut self,
        track: TrackId,
        begin: &Event,
        end_ns: i64,
        end: Option<&Event>,
        flags: SliceFlags,
    ) {
        let (Some(start), Some(stop)) = (self.time(begin.ns), self.time(end_ns)) else {
            return;
        };
        let mut dur = stop.since(start);
        if dur < Dur::ZERO {
            dur = Dur::ZERO;
            self.negative += 1;
        }
        let extra = self.extra(begin);
        self.ends.clear();
        self.collect_flows(&extra);
        if let Some(end) = end
            && end.extra != 0
        {
            let extra = self.extra(end);
            self.collect_flows(&extra);
        }
        let end_payload = end.map_or(0, |end| end.payload);
        let args = match (begin.payload, end_payload) {
            (0, 0) => ArgRef::NONE,
            (begin, 0) => ArgRef::new(self.source, begin - 1),
            (0, end) => ArgRef::new(self.source, end - 1),
            (begin, end) => {
                self.pairs.push((begin - 1, end - 1));
                let index = self.pairs.len() as u64 - 1;
                ArgRef::new(self.source, PAIR_TOKEN | index)
            }
        };
        let slice = SliceIn {
            start,
            dur,
            name: if begin.name == NameId::EMPTY {
                end.map_or(NameId::EMPTY, |end| end.name)
            } else {
                begin.name
            },
            category: begin.category,
            args,
            step: extra.step,
            flags: flags | SliceFlags(extra.flags),
            flows: &self.ends,
        };
        self.sink.slice(track, slice);
    }

    fn instant(&mut self, track: TrackId, event: &Event) {
        let Some(at) = self.time(event.ns) else {
            return;
        };
        let args = match event.payload {
            0 => ArgRef::NONE,
            payload => ArgRef::new(self.source, payload - 1),
        };
        self.sink.instant(
            track,
            InstantIn {
                at,
                name: event.name,
                category: event.category,
                args,
            },
        );
        self.flows_by_time(track, event, Some(at));
    }

    fn flows_by_time(&mut self, track: TrackId, event: &Event, at: Option<Time>) {
        if event.extra == 0 {
            return;
        }
        let extra = self.extra(event);
        let Some(at) = at.or_else(|| self.time(event.ns)) else {
            return;
        };
        self.ends.clear();
        self.collect_flows(&extra);
        let bind = extra.bind.unwrap_or(FlowBind::Enclosing);
        for end in &self.ends {
            self.sink.flow(track, at, *end, bind);
        }
    }

    fn sample(&mut self, track: TrackId, event: &Event) {
        if let Some(at) = self.time(event.ns) {
            self.sink.counter(track, at, f64::from_bits(event.payload));
        }
    }
}

/// Converts flow ids of our writer back to category and id.
#[derive(Default)]
pub(crate) struct FlowNames {
    /// By category number, or by whole wide id: the category and, for wide ids, the id.
    pub(crate) known: FxHashMap<u64, (NameId, u64)>,
}

impl FlowNames {
    /// Restores the category and id of every flow end that our writer numbered.
    pub(crate) fn restore(&self, flows: &mut [FlowEnd]) {
        use crate::perfetto::extension::{FLOW_SHIFT, WIDE_FLOW};
        if self.known.is_empty() {
            return;
        }
        for end in flows {
            if matches!(end.mark, FlowMark::Given(_)) {
                continue;
            }
            let category = end.key.id >> FLOW_SHIFT;
            let (number, id) = if category == WIDE_FLOW {
                (end.key.id, None)
            } else {
                (category, Some(end.key.id & ((1 << FLOW_SHIFT) - 1)))
            };
            if let Some((name, wide)) = self.known.get(&number) {
                end.key = FlowKey {
                    category: *name,
                    id: id.unwrap_or(*wide),
                };
            }
        }
    }
}
