//! One track event: all fields except arguments.

use super::sequence::{fixed_numbers, numbers};
use crate::perfetto::extension;
use crate::perfetto::schema::{event, legacy};
use crate::protobuf::wire::{Fields, Value};

/// Value of a counter sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CounterValue {
    Int(i64),
    Double(f64),
}

/// A decoded track event. Reused for all events to avoid allocations.
#[derive(Debug, Default)]
pub(crate) struct EventFields<'a> {
    pub(crate) kind: u64,
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) name_iid: Option<u64>,
    pub(crate) categories: Vec<&'a [u8]>,
    pub(crate) category_iids: Vec<u64>,
    pub(crate) track_uuid: Option<u64>,
    pub(crate) counter: Option<CounterValue>,
    pub(crate) extra_tracks: Vec<u64>,
    pub(crate) extra_values: Vec<i64>,
    pub(crate) extra_double_tracks: Vec<u64>,
    pub(crate) extra_double_values: Vec<f64>,
    /// Id, and whether the flow ends here.
    pub(crate) flows: Vec<(u64, bool)>,
    /// Whether arguments can be decoded later.
    pub(crate) has_args: bool,
    pub(crate) delta_us: Option<i64>,
    pub(crate) absolute_us: Option<i64>,
    pub(crate) thread_delta_us: Option<i64>,
    pub(crate) thread_absolute_us: Option<i64>,
    pub(crate) legacy: Option<Legacy<'a>>,
    pub(crate) step: Option<i64>,
    pub(crate) flags: u8,
    pub(crate) flow_bind: u64,
}

/// A `LegacyEvent`: an event converted from the JSON format.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Legacy<'a> {
    pub(crate) name_iid: Option<u64>,
    pub(crate) phase: u8,
    pub(crate) duration_us: Option<i64>,
    /// Unscoped, local or global id.
    pub(crate) id: Option<u64>,
    pub(crate) id_scope: Option<&'a [u8]>,
    pub(crate) bind_id: Option<u64>,
    pub(crate) bind_to_enclosing: bool,
    /// 1 in, 2 out, 3 both.
    pub(crate) flow_direction: u64,
    pub(crate) pid: Option<i64>,
    pub(crate) tid: Option<i64>,
}

impl<'a> EventFields<'a> {
    fn clear(&mut self) {
        self.kind = 0;
        self.name = None;
        self.name_iid = None;
        self.categories.clear();
        self.category_iids.clear();
        self.track_uuid = None;
        self.counter = None;
        self.extra_tracks.clear();
        self.extra_values.clear();
        self.extra_double_tracks.clear();
        self.extra_double_values.clear();
        self.flows.clear();
        self.has_args = false;
        self.delta_us = None;
        self.absolute_us = None;
        self.thread_delta_us = None;
        self.thread_absolute_us = None;
        self.legacy = None;
        self.step = None;
        self.flags = 0;
        self.flow_bind = 0;
    }

    /// Decodes a `TrackEvent`; returns `false` if its bytes are not a valid message. Fields before
    /// the damage are kept.
    pub(crate) fn parse(&mut self, message: &'a [u8]) -> bool {
        self.clear();
        let mut fields = Fields::new(message);
        loop {
            let field = match fields.next() {
                Ok(Some(field)) => field,
                Ok(None) => return true,
                Err(_) => return false,
            };
            match (field.number, field.value) {
                (event::TYPE, Value::Varint(kind)) => self.kind = kind,
                (event::NAME_IID, Value::Varint(iid)) => self.name_iid = Some(iid),
                (event::NAME, Value::Bytes(text)) => self.name = Some(text),
                (event::CATEGORY_IIDS, value) => {
                    numbers(value, |iid| self.category_iids.push(iid));
                }
                (event::CATEGORIES, Value::Bytes(text)) => self.categories.push(text),
                (event::TRACK_UUID, Value::Varint(uuid)) => self.track_uuid = Some(uuid),
                (event::COUNTER_VALUE, Value::Varint(value)) => {
                    self.counter = Some(CounterValue::Int(value as i64));
                }
                (event::DOUBLE_COUNTER_VALUE, value) => {
                    self.counter = value.double().map(CounterValue::Double).or(self.counter);
                }
                (event::EXTRA_COUNTER_TRACKS, value) => {
                    numbers(value, |uuid| self.extra_tracks.push(uuid));
                }
                (event::EXTRA_COUNTER_VALUES, value) => {
                    numbers(value, |number| self.extra_values.push(number as i64));
                }
                (event::EXTRA_DOUBLE_COUNTER_TRACKS, value) => {
                    numbers(value, |uuid| self.extra_double_tracks.push(uuid));
                }
                (event::EXTRA_DOUBLE_COUNTER_VALUES, value) => fixed_numbers(value, |bits| {
                    self.extra_double_values.push(f64::from_bits(bits));
                }),
                (event::FLOW_IDS_OLD, value) => {
                    numbers(value, |id| self.flows.push((id, false)));
                }
                (event::FLOW_IDS, value) => fixed_numbers(value, |id| self.flows.push((id, false))),
                (event::TERMINATING_FLOW_IDS_OLD, value) => {
                    numbers(value, |id| self.flows.push((id, true)));
                }
                (event::TERMINATING_FLOW_IDS, value) => {
                    fixed_numbers(value, |id| self.flows.push((id, true)));
                }
                (event::TIMESTAMP_DELTA_US, value) => self.delta_us = value.int(),
                (event::TIMESTAMP_ABSOLUTE_US, value) => self.absolute_us = value.int(),
                (event::THREAD_TIME_DELTA_US, value) => self.thread_delta_us = value.int(),
                (event::THREAD_TIME_ABSOLUTE_US, value) => self.thread_absolute_us = value.int(),
                (event::LEGACY_EVENT, Value::Bytes(message)) => {
                    let (parsed, args) = Legacy::parse(message);
                    self.legacy = Some(parsed);
                    self.has_args |= args;
                }
                (extension::FIELD, Value::Bytes(message)) => self.own(message),
                // Annotations, locations, logs and extensions.
                _ => self.has_args = true,
            }
        }
    }

    fn own(&mut self, message: &[u8]) {
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (extension::event::STEP, value) => self.step = value.sint(),
                (extension::event::FLAGS, Value::Varint(flags)) => {
                    self.flags = u8::try_from(flags).unwrap_or(0);
                }
                (extension::event::FLOW_BIND, Value::Varint(bind)) => self.flow_bind = bind,
                _ => {}
            }
        }
    }
}

impl<'a> Legacy<'a> {
    /// Decodes the event; returns it, and whether it has arguments.
    fn parse(message: &'a [u8]) -> (Self, bool) {
        let mut found = Self::default();
        let mut args = false;
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (legacy::NAME_IID, Value::Varint(iid)) => found.name_iid = Some(iid),
                (legacy::PHASE, Value::Varint(phase)) => {
                    found.phase = u8::try_from(phase).unwrap_or(0);
                }
                (legacy::DURATION_US, value) => found.duration_us = value.int(),
                (legacy::THREAD_DURATION_US, _) => args = true,
                (legacy::UNSCOPED_ID | legacy::LOCAL_ID | legacy::GLOBAL_ID, value) => {
                    found.id = value.uint();
                }
                (legacy::ID_SCOPE, Value::Bytes(scope)) => found.id_scope = Some(scope),
                (legacy::BIND_ID, value) => found.bind_id = value.uint(),
                (legacy::BIND_TO_ENCLOSING, Value::Varint(flag)) => {
                    found.bind_to_enclosing = flag != 0;
                }
                (legacy::FLOW_DIRECTION, Value::Varint(direction)) => {
                    found.flow_direction = direction;
                }
                (legacy::PID_OVERRIDE, value) => found.pid = value.int(),
                (legacy::TID_OVERRIDE, value) => found.tid = value.int(),
                _ => {}
            }
        }
        (found, args)
    }
}
