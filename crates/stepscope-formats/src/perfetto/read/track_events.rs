//! Track events: their track, time and effect.

use stepscope_model::{EventSink, FlowBind, FlowDirection, FlowKey, NameId};

use super::Reader;
use super::clocks::{ClockKey, ClockTime};
use super::event::{CounterValue, EventFields, Legacy};
use super::pairing::{Act, Event, Extra, FlowEnd, FlowMark};
use super::sequence::Sequence;
use super::tracks::TrackRef;
use crate::perfetto::schema::{clock, event};

impl<S: EventSink> Reader<'_, '_, S> {
    pub(crate) fn track_event(
        &mut self,
        state: &mut Sequence,
        sequence: u32,
        moment: Option<ClockTime>,
        address: u64,
        parts: &EventFields<'_>,
    ) {
        let Some((ns, other)) = self.event_time(state, moment, parts) else {
            self.lost.bad_times += 1;
            return;
        };
        if let Some(key) = other {
            self.unaligned.push((self.pending.events.len(), key));
        } else {
            self.first_event_ns.get_or_insert(ns);
        }
        let place = place_of(state, parts);
        let max_tracks = self.context.limits.max_tracks;
        let Some(slot) = self.tracks.slot(place, max_tracks) else {
            return;
        };
        let category = self.category(state, parts);
        let payload = if parts.has_args { address + 1 } else { 0 };
        let mut event = Event {
            ns,
            payload,
            slot,
            name: NameId::EMPTY,
            category,
            extra: 0,
            act: Act::Instant,
        };
        match parts.kind {
            event::TYPE_BEGIN | event::TYPE_INSTANT | event::TYPE_END => {
                event.act = match parts.kind {
                    event::TYPE_BEGIN => Act::Begin,
                    event::TYPE_END => Act::End,
                    _ if parts.flow_bind != 0 => Act::Flow,
                    _ => Act::Instant,
                };
                let named = event.act == Act::Begin || event.act == Act::Instant;
                event.name = self.name(state, parts, named);
                event.extra = self.extra(parts, 0);
                self.pending.events.push(event);
            }
            event::TYPE_COUNTER => {
                let uuid = parts.track_uuid.or(state.default_track).unwrap_or(0);
                match parts.counter {
                    Some(value) => self.sample(state, ns, slot, uuid, value),
                    None => self.lost.bad_values += 1,
                }
            }
            0 => match parts.legacy {
                Some(legacy) => self.legacy(state, event, &legacy, parts, sequence),
                None => self.odd("TYPE_UNSPECIFIED".to_owned()),
            },
            5 => self.odd("TYPE_STATE".to_owned()),
            other => self.odd(format!("type {other}")),
        }
        self.extra_counters(state, ns, slot, parts);
    }

    fn odd(&mut self, kind: String) {
        if self.odd_events.len() < 64 || self.odd_events.contains_key(&kind) {
            *self.odd_events.entry(kind).or_default() += 1;
        }
    }

    /// Returns the time on the primary clock, and the event's clock if no snapshot has read it yet.
    fn event_time(
        &self,
        state: &mut Sequence,
        moment: Option<ClockTime>,
        parts: &EventFields<'_>,
    ) -> Option<(i64, Option<ClockKey>)> {
        let us = match (parts.delta_us, parts.absolute_us) {
            (Some(delta), _) => {
                state.time_us = state.time_us.saturating_add(delta);
                Some(state.time_us)
            }
            (None, absolute) => absolute,
        };
        if let Some(us) = us {
            let ns = us.checked_mul(1_000)?;
            // Timestamps in these old fields are monotonic; without a snapshot they are used
            // unchanged.
            let moved = self.clocks.on_primary((0, clock::MONOTONIC), ns);
            return Some((moved.unwrap_or(ns), None));
        }
        match moment? {
            ClockTime::Primary(ns) => Some((ns, None)),
            ClockTime::Other(key, ns) => Some((ns, Some(key))),
            ClockTime::Bad => None,
        }
    }

    fn category(&mut self, state: &Sequence, parts: &EventFields<'_>) -> NameId {
        match (parts.category_iids.as_slice(), parts.categories.as_slice()) {
            ([], []) => NameId::EMPTY,
            ([iid], []) => match state.categories.get(iid) {
                Some(name) => *name,
                None => self.missing("category", *iid),
            },
            ([], [text]) => self.texts.category(self.sink, text),
            (iids, texts) => {
                let mut joined: Vec<String> = Vec::new();
                for iid in iids {
                    joined.push(match state.categories.get(iid) {
                        Some(name) => self.texts.category_text(*name).to_owned(),
                        None => format!("category {iid}"),
                    });
                }
                for text in texts {
                    joined.push(String::from_utf8_lossy(text).into_owned());
                }
                let joined = joined.join(",");
                self.texts.category(self.sink, joined.as_bytes())
            }
        }
    }

    fn name(&mut self, state: &Sequence, parts: &EventFields<'_>, needed: bool) -> NameId {
        if let Some(text) = parts.name {
            return self.texts.name(self.sink, text);
        }
        let iid = parts
            .name_iid
            .or(parts.legacy.and_then(|legacy| legacy.name_iid))
            .filter(|iid| *iid != 0);
        match iid {
            None => NameId::EMPTY,
            Some(iid) => match state.names.get(&iid) {
                Some(name) => *name,
                None if needed => self.missing("name", iid),
                None => NameId::EMPTY,
            },
        }
    }

    fn missing(&mut self, what: &str, iid: u64) -> NameId {
        self.lost.missing_names += 1;
        self.sink.name(&format!("{what} {iid}"))
    }

    /// Stores the fields that few events have; returns 0 if this event has none.
    fn extra(&mut self, parts: &EventFields<'_>, duration_ns: i64) -> u32 {
        let bind = match parts.flow_bind {
            1 => Some(FlowBind::Enclosing),
            2 => Some(FlowBind::Next),
            _ => None,
        };
        let plain = parts.flows.is_empty()
            && parts.step.is_none()
            && parts.flags == 0
            && duration_ns == 0
            && bind.is_none();
        if plain {
            return 0;
        }
        let from = self.pending.flows.len();
        self.pending
            .flows
            .extend(parts.flows.iter().map(|(id, terminating)| FlowEnd {
                key: FlowKey {
                    category: NameId::EMPTY,
                    id: *id,
                },
                mark: if *terminating {
                    FlowMark::Terminating
                } else {
                    FlowMark::Member
                },
            }));
        self.put_extra(from, duration_ns, parts, bind)
    }

    fn put_extra(
        &mut self,
        from: usize,
        duration_ns: i64,
        parts: &EventFields<'_>,
        bind: Option<FlowBind>,
    ) -> u32 {
        let to = self.pending.flows.len();
        let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(to)) else {
            return 0;
        };
        self.pending.extras.push(Extra {
            duration_ns,
            step: parts.step,
            flags: parts.flags,
            flows: (from, to),
            bind,
        });
        u32::try_from(self.pending.extras.len()).unwrap_or(0)
    }

    fn sample(&mut self, state: &mut Sequence, ns: i64, slot: u32, uuid: u64, value: CounterValue) {
        let mut number = match value {
            CounterValue::Int(value) => value as f64,
            CounterValue::Double(value) => value,
        };
        if let Some(kind) = self.tracks.counter(uuid) {
            number *= kind.multiplier as f64;
            if kind.incremental {
                let sum = state.counters.entry(uuid).or_default();
                *sum += number;
                number = *sum;
            }
        }
        if !number.is_finite() {
            self.lost.bad_values += 1;
            return;
        }
        self.push_sample(ns, slot, number);
    }

    fn push_sample(&mut self, ns: i64, slot: u32, number: f64) {
        self.pending.events.push(Event {
            ns,
            payload: number.to_bits(),
            slot,
            name: NameId::EMPTY,
            category: NameId::EMPTY,
            extra: 0,
            act: Act::Sample,
        });
    }

    fn extra_counters(
        &mut self,
        state: &mut Sequence,
        ns: i64,
        slot: u32,
        parts: &EventFields<'_>,
    ) {
        let max_tracks = self.context.limits.max_tracks;
        let mut samples: Vec<(u64, CounterValue)> = Vec::new();
        if !parts.extra_values.is_empty() {
            let tracks = first_filled(&parts.extra_tracks, &state.extra_tracks);
            let values = parts.extra_values.iter().map(|v| CounterValue::Int(*v));
            samples.extend(tracks.iter().copied().zip(values));
        }
        if !parts.extra_double_values.is_empty() {
            let tracks = first_filled(&parts.extra_double_tracks, &state.extra_double_tracks);
            let values = parts
                .extra_double_values
                .iter()
                .map(|v| CounterValue::Double(*v));
            samples.extend(tracks.iter().copied().zip(values));
        }
        let wanted = parts.extra_values.len() + parts.extra_double_values.len();
        self.lost.bad_values += (wanted - samples.len()) as u64;
        for (uuid, value) in samples {
            if let Some(slot) = self.tracks.slot(TrackRef::Uuid(uuid), max_tracks) {
                self.sample(state, ns, slot, uuid, value);
            }
        }
        let thread_us = match (parts.thread_delta_us, parts.thread_absolute_us) {
            (Some(delta), _) => {
                state.thread_time_us = state.thread_time_us.saturating_add(delta);
                Some(state.thread_time_us)
            }
            (None, absolute) => absolute,
        };
        if let Some(us) = thread_us
            && let Some(slot) = self.tracks.slot(TrackRef::ThreadTime(slot), max_tracks)
        {
            self.push_sample(ns, slot, us as f64 * 1_000.0);
        }
    }

    /// Converts an event from the JSON format by its phase.
    fn legacy(
        &mut self,
        state: &Sequence,
        mut event: Event,
        legacy: &Legacy<'_>,
        parts: &EventFields<'_>,
        sequence: u32,
    ) {
        let asynchronous = matches!(legacy.phase, b'b' | b'e' | b'n' | b'S' | b'F' | b'T' | b'p');
        event.name = self.name(state, parts, true);
        if asynchronous {
            let pid = legacy.pid.or(state.thread.map(|thread| thread.0));
            let mut id = legacy.id.unwrap_or(0);
            for byte in legacy.id_scope.unwrap_or_default() {
                id = id.rotate_left(9) ^ u64::from(*byte);
            }
            let pid = pid.unwrap_or_else(|| i64::from(sequence));
            let place = TrackRef::Async(pid, event.category, id);
            match self.tracks.slot(place, self.context.limits.max_tracks) {
                Some(slot) => event.slot = slot,
                None => return,
            }
        }
        event.act = match legacy.phase {
            b'B' | b'b' | b'S' => Act::Begin,
            b'E' | b'e' | b'F' => Act::End,
            b'X' => Act::Complete,
            b'I' | b'i' | b'R' | b'n' | b'T' | b'p' => Act::Instant,
            b's' | b't' | b'f' => Act::Flow,
            other => {
                let kind = char::from(other);
                self.odd(format!("legacy phase {}", kind.escape_default()));
                return;
            }
        };
        let duration_ns = legacy.duration_us.unwrap_or(0).saturating_mul(1_000);
        event.extra = self.extra(parts, duration_ns);
        let direction = match (legacy.phase, legacy.flow_direction) {
            (b's', _) | (_, 2) => Some(FlowDirection::Out),
            (b't', _) | (_, 3) => Some(FlowDirection::Through),
            (b'f', _) | (_, 1) => Some(FlowDirection::In),
            _ => None,
        };
        let id = if event.act == Act::Flow {
            legacy.id
        } else {
            legacy.bind_id
        };
        if let (Some(direction), Some(id)) = (direction, id) {
            let from = self.pending.flows.len();
            self.pending.flows.push(FlowEnd {
                key: FlowKey {
                    category: event.category,
                    id,
                },
                mark: FlowMark::Given(direction),
            });
            let next = legacy.phase == b'f' && !legacy.bind_to_enclosing;
            let bind = if next {
                FlowBind::Next
            } else {
                FlowBind::Enclosing
            };
            event.extra = self.put_extra(from, duration_ns, parts, Some(bind));
        }
        self.pending.events.push(event);
    }
}

fn first_filled<'a>(of_event: &'a [u64], of_sequence: &'a [u64]) -> &'a [u64] {
    if of_event.is_empty() {
        of_sequence
    } else {
        of_event
    }
}

/// Returns an event's track: from the event, from its sequence's default, or from its sequence's
/// thread.
fn place_of(state: &Sequence, parts: &EventFields<'_>) -> TrackRef {
    if let Some(legacy) = &parts.legacy
        && (legacy.pid.is_some() || legacy.tid.is_some())
    {
        let (pid, tid) = state.thread.unwrap_or((0, 0));
        return TrackRef::Thread(legacy.pid.unwrap_or(pid), legacy.tid.unwrap_or(tid));
    }
    match (parts.track_uuid.or(state.default_track), state.thread) {
        (Some(uuid), _) => TrackRef::Uuid(uuid),
        (None, Some((pid, tid))) => TrackRef::Thread(pid, tid),
        (None, None) => TrackRef::Uuid(0),
    }
}
