//! Conversion of packets to events in file order.

pub(crate) mod args;
mod clocks;
mod event;
mod pairing;
mod sequence;
mod track_events;
mod tracks;
mod wrap_up;

use std::collections::BTreeMap;

use flate2::{Decompress, Status};
use rustc_hash::FxHashMap;
use stepscope_model::{Diagnostic, EventSink, ReadContext, SourceId};

use crate::FormatError;
use crate::gzip;
use crate::perfetto::extension;
use crate::perfetto::schema::{self, packet};
use crate::protobuf::wire::{Fault, Field, Fields, Value, offset_in};
use clocks::{ClockKey, ClockTime, Clocks};
use event::EventFields;
use pairing::{FlowNames, Pending};
use sequence::{LateTexts, Sequence, TextCount};
use tracks::Tracks;

/// Number of bytes between two checks for progress and cancellation.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Data of a whole file that late decoding of arguments needs.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) texts: LateTexts,
    /// Pairs of packet addresses: see [`crate::perfetto::read::pairing::PAIR_TOKEN`].
    pub(crate) pairs: Vec<(u64, u64)>,
    /// Inflated packets. Their addresses follow the end of the file, one buffer after another.
    pub(crate) inflated: Vec<Vec<u8>>,
}

/// Fields of one packet.
#[derive(Default)]
struct Packet<'a> {
    timestamp: Option<u64>,
    clock_id: Option<u64>,
    sequence: u32,
    flags: u64,
    dropped: u64,
    first: bool,
    interned: Option<&'a [u8]>,
    defaults: Option<&'a [u8]>,
    /// Field number of the packet's content, 0 if it has no known content.
    kind: u32,
    content: &'a [u8],
    /// Field number of unknown content.
    unknown: u32,
    own: Option<&'a [u8]>,
}

struct Reader<'s, 'c, S> {
    sink: &'s mut S,
    context: &'c ReadContext,
    clocks: Clocks,
    sequences: FxHashMap<u32, Sequence>,
    tracks: Tracks,
    texts: TextCount,
    tables: Tables,
    pending: Pending,
    /// Events on a clock that no snapshot had read before: index and clock.
    unaligned: Vec<(usize, ClockKey)>,
    flow_names: FlowNames,
    /// Number of packets by content type; 0 for none.
    kinds: BTreeMap<u32, u64>,
    unknown_fields: BTreeMap<u32, u64>,
    packets: u64,
    first_ns: Option<i64>,
    first_event_ns: Option<i64>,
    /// Epoch from our writer: origin and base on the primary clock, Unix time.
    own_epoch: Option<(i64, i64, Option<i64>)>,
    lost: Lost,
    /// Types of track events that are not decoded.
    odd_events: BTreeMap<String, u64>,
    /// Address after the last inflated packets.
    next_address: u64,
}

/// Counts of problems, reported at the end.
#[derive(Default)]
struct Lost {
    dropped_by_writer: u64,
    without_state: u64,
    unreadable: u64,
    unreadable_at: Option<u64>,
    bad_times: u64,
    bad_values: u64,
    missing_names: u64,
}

/// Reads the packets of a file into `sink`.
pub(crate) fn read<S: EventSink>(
    content: &[u8],
    progress: &ReadContext,
    source: SourceId,
    sink: &mut S,
) -> Result<Tables, FormatError> {
    let mut reader = Reader {
        sink,
        context: progress,
        clocks: Clocks::new(),
        sequences: FxHashMap::default(),
        tracks: Tracks::default(),
        texts: TextCount::default(),
        tables: Tables::default(),
        pending: Pending::default(),
        unaligned: Vec::new(),
        flow_names: FlowNames::default(),
        kinds: BTreeMap::new(),
        unknown_fields: BTreeMap::new(),
        packets: 0,
        first_ns: None,
        first_event_ns: None,
        own_epoch: None,
        lost: Lost::default(),
        odd_events: BTreeMap::new(),
        next_address: content.len() as u64,
    };
    reader.trace(content, 0, true)?;
    reader.finish(source)
}

impl<S: EventSink> Reader<'_, '_, S> {
    /// Reads the packets of a trace whose bytes start at `address`.
    fn trace(&mut self, content: &[u8], address: u64, outermost: bool) -> Result<(), FormatError> {
        let mut parts = EventFields::default();
        let mut fields = Fields::new(content);
        let mut told = 0;
        loop {
            let begin = fields.at() as u64;
            if outermost && begin - told >= PROGRESS_BYTES {
                self.context.advance(begin - told)?;
                told = begin;
            }
            match fields.next() {
                Ok(Some(Field {
                    number: 1,
                    value: Value::Bytes(message),
                })) => {
                    let at = address + offset_in(content, message) as u64;
                    self.packets += 1;
                    self.packet(message, at, outermost, &mut parts)?;
                }
                // Fields of a later schema version.
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(fault) => {
                    self.broken(fault, &fields, address + begin, outermost)?;
                    break;
                }
            }
        }
        if outermost {
            self.context.advance(content.len() as u64 - told)?;
        }
        Ok(())
    }

    /// Records that the packets after this offset are unreadable.
    fn broken(
        &mut self,
        fault: Fault,
        fields: &Fields<'_>,
        at: u64,
        outermost: bool,
    ) -> Result<(), FormatError> {
        let rest = fields.rest();
        if rest.iter().all(|byte| *byte == 0) && !matches!(fault, Fault::Cut { .. }) {
            return Ok(());
        }
        if self.packets == 0 && outermost {
            return Err(FormatError::Malformed {
                reason: fault.text().to_owned(),
                offset: at,
            });
        }
        let (what, detail) = match fault {
            Fault::Cut { missing, .. } => (
                Diagnostic::Truncated,
                format!("at byte {at}: {missing} bytes are missing in the last packet"),
            ),
            Fault::Ends => (Diagnostic::Truncated, format!("at byte {at}")),
            other => (
                Diagnostic::Unreadable,
                format!(
                    "{} at byte {at}; {} bytes from there on were left out",
                    other.text(),
                    rest.len()
                ),
            ),
        };
        self.sink.diagnose(what, 1, &detail);
        Ok(())
    }

    fn packet<'a>(
        &mut self,
        message: &'a [u8],
        address: u64,
        outermost: bool,
        parts: &mut EventFields<'a>,
    ) -> Result<(), FormatError> {
        let found = match Packet::parse(message) {
            Ok(found) => found,
            Err(offset) => {
                self.lost.unreadable += 1;
                self.lost
                    .unreadable_at
                    .get_or_insert(address + offset as u64);
                return Ok(());
            }
        };
        if found.kind == packet::COMPRESSED_PACKETS && outermost {
            *self.kinds.entry(found.kind).or_default() += 1;
            return self.compressed(found.content, address);
        }
        let mut state = self.sequences.remove(&found.sequence).unwrap_or_default();
        self.sequence(&mut state, &found, message, address);
        let usable = !(state.lost && found.flags & packet::FLAG_NEEDS_STATE != 0);
        if usable {
            self.content(&mut state, &found, address, parts);
        } else {
            self.lost.without_state += 1;
        }
        self.sequences.insert(found.sequence, state);
        *self.kinds.entry(found.kind).or_default() += 1;
        if found.kind == 0 && found.unknown != 0 {
            *self.unknown_fields.entry(found.unknown).or_default() += 1;
        }
        Ok(())
    }

    /// Updates the state of a packet's sequence.
    fn sequence(&mut self, state: &mut Sequence, found: &Packet<'_>, message: &[u8], address: u64) {
        if found.dropped != 0 {
            // The first packet of a sequence also clears the state: earlier packets are unknown.
            if state.begun && !found.first {
                self.lost.dropped_by_writer += 1;
                state.lost = true;
            }
        }
        state.begun = true;
        if found.flags & packet::FLAG_CLEARED != 0 {
            state.clear();
        }
        if let Some(defaults) = found.defaults {
            state.defaults(defaults);
        }
        if let Some(interned) = found.interned {
            let at = address + offset_in(message, interned) as u64;
            state.intern(
                found.sequence,
                interned,
                at,
                &mut self.tables.texts,
                self.sink,
                &mut self.texts,
            );
        }
    }

    fn content<'a>(
        &mut self,
        state: &mut Sequence,
        found: &Packet<'a>,
        address: u64,
        parts: &mut EventFields<'a>,
    ) {
        if let Some(own) = found.own {
            self.own_run(own);
        }
        let clock_id = found.clock_id.or(state.default_clock);
        let moment = found
            .timestamp
            .map(|value| self.clocks.moment(found.sequence, clock_id, value));
        if let Some(ClockTime::Primary(ns)) = moment {
            self.first_ns.get_or_insert(ns);
        }
        let max_tracks = self.context.limits.max_tracks;
        match found.kind {
            packet::TRACK_EVENT => {
                if !parts.parse(found.content) {
                    self.lost.unreadable += 1;
                    self.lost.unreadable_at.get_or_insert(address);
                }
                self.track_event(state, found.sequence, moment, address, parts);
            }
            packet::TRACK_DESCRIPTOR => {
                self.tracks
                    .describe(found.content, max_tracks, &mut self.texts);
            }
            packet::CLOCK_SNAPSHOT => self.clocks.snapshot(found.sequence, found.content),
            packet::PROCESS_TREE => self.tracks.process_tree(found.content, &mut self.texts),
            packet::PROCESS_DESCRIPTOR => {
                self.tracks.process(found.content, &mut self.texts);
            }
            packet::THREAD_DESCRIPTOR => {
                state.thread(found.content);
                self.tracks.thread(found.content, &mut self.texts);
            }
            packet::TRACE_STATS => self.trace_stats(found.content),
            packet::SYSTEM_INFO => self.system_info(found.content),
            packet::TRACE_UUID => self.trace_uuid(found.content),
            _ => {}
        }
    }

    /// Inflates compressed packets inside a packet and reads them.
    fn compressed(&mut self, deflated: &[u8], address: u64) -> Result<(), FormatError> {
        let held: u64 = self
            .tables
            .inflated
            .iter()
            .map(|bytes| bytes.len() as u64)
            .sum();
        let left = self.context.limits.max_inflated_bytes.saturating_sub(held);
        let by_ratio = (deflated.len() as u64)
            .saturating_mul(self.context.limits.max_inflate_ratio)
            .max(64 << 20);
        let (bytes, whole) = inflate(deflated, left.min(by_ratio));
        if !whole {
            let what = if bytes.len() as u64 >= left.min(by_ratio) {
                Diagnostic::LimitReached
            } else {
                Diagnostic::BadCompression
            };
            let detail = format!(
                "compressed packets at byte {address} (limits max_inflated_bytes, max_inflate_ratio)"
            );
            self.sink.diagnose(what, 1, &detail);
        }
        let begin = self.next_address;
        self.next_address += bytes.len() as u64;
        let outcome = self.trace(&bytes, begin, false);
        self.tables.inflated.push(bytes);
        outcome
    }
}

impl<'a> Packet<'a> {
    /// Decodes a packet; returns the offset of the damage if its bytes are not a message.
    fn parse(message: &'a [u8]) -> Result<Self, usize> {
        let mut found = Self::default();
        let mut fields = Fields::new(message);
        loop {
            let at = fields.at();
            let field = match fields.next() {
                Ok(Some(field)) => field,
                Ok(None) => return Ok(found),
                Err(_) => return Err(at),
            };
            match (field.number, field.value) {
                (packet::TIMESTAMP, Value::Varint(value)) => found.timestamp = Some(value),
                (packet::SEQUENCE_ID, Value::Varint(value)) => {
                    found.sequence = u32::try_from(value & 0xffff_ffff).unwrap_or(0);
                }
                (packet::SEQUENCE_FLAGS, Value::Varint(value)) => found.flags |= value,
                (packet::STATE_CLEARED, Value::Varint(1..)) => found.flags |= packet::FLAG_CLEARED,
                (packet::PREVIOUS_DROPPED, Value::Varint(value)) => found.dropped = value,
                (packet::FIRST_ON_SEQUENCE, Value::Varint(value)) => found.first = value != 0,
                (packet::CLOCK_ID, Value::Varint(value)) => found.clock_id = Some(value),
                (packet::INTERNED_DATA, Value::Bytes(content)) => found.interned = Some(content),
                (packet::DEFAULTS, Value::Bytes(content)) => found.defaults = Some(content),
                (extension::FIELD, Value::Bytes(content)) => found.own = Some(content),
                (packet::TRACK_EVENT, Value::Bytes(content)) => {
                    found.kind = packet::TRACK_EVENT;
                    found.content = content;
                }
                (number, Value::Bytes(content)) => {
                    if schema::kind_name(number).is_some() {
                        found.kind = number;
                        found.content = content;
                    } else {
                        found.unknown = number;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Inflates a zlib stream; the second value is whether its end was reached.
fn inflate(deflated: &[u8], most: u64) -> (Vec<u8>, bool) {
    const ROOM_BYTES: usize = 64 << 10;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut inflater = Decompress::new(true);
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        let room = ROOM_BYTES.min(most.saturating_sub(out.len()));
        if room == 0 || out.try_reserve(room).is_err() {
            return (out, false);
        }
        let before = out.len();
        let input = deflated.get(at..).unwrap_or_default();
        let (taken, status) = gzip::step_into(&mut inflater, input, &mut out, room);
        at += taken;
        match status {
            Ok(Status::StreamEnd) => return (out, true),
            Ok(_) if taken > 0 || out.len() > before => {}
            Ok(_) | Err(_) => return (out, false),
        }
    }
}
