//! pprof profiles: samples with stacks, as Go, gperftools and JAX (`save_device_memory_profile`) write them. See
//! `docs/formats/pprof.md`.
//!
//! Reading order: `tables` (texts, functions and locations), then [`read`].

mod tables;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    ArgValue, Diagnostic, Epoch, EventSink, Profile, ProfileKind, ReadContext, SampleLabel,
    SampleType, SharedBytes, StackSample, StackSamples,
};

use self::tables::{Tables, numbers, text_index};
use crate::FormatError;
use crate::losses;
use crate::protobuf::wire::{Fault, Fields, Value};

/// `perftools.profiles.Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}
/// `Sample`.
mod sample {
    pub(super) const LOCATION_ID: u32 = 1;
    pub(super) const VALUE: u32 = 2;
    pub(super) const LABEL: u32 = 3;
}
/// `Label`.
mod label {
    pub(super) const KEY: u32 = 1;
    pub(super) const TEXT: u32 = 2;
    pub(super) const NUMBER: u32 = 3;
    pub(super) const UNIT: u32 = 4;
}

/// Number of messages between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Maximum number of comments that become facts.
const MAX_COMMENTS: usize = 16;

/// The messages of a file, before their references are resolved: texts come last.
#[derive(Default)]
struct Messages<'a> {
    types: Vec<&'a [u8]>,
    samples: Vec<&'a [u8]>,
    mappings: Vec<&'a [u8]>,
    locations: Vec<&'a [u8]>,
    functions: Vec<&'a [u8]>,
    texts: Vec<&'a [u8]>,
    comments: Vec<i64>,
    period_type: Option<&'a [u8]>,
    period: Option<i64>,
    time_ns: Option<i64>,
    duration_ns: Option<i64>,
    default_type: Option<u64>,
}

/// Counts of what was left out.
#[derive(Default)]
struct Losses {
    /// Messages that end in unreadable bytes.
    damaged: u64,
    /// References to missing texts, functions or locations.
    unknown: u64,
    /// Samples with more or fewer values than there are types.
    uneven: u64,
    /// Texts that are not UTF-8.
    bad_texts: u64,
    /// Functions inlined at one address beyond the limit.
    too_deep: u64,
}

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the file has no type of sample, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let mut losses = Losses::default();
    let (messages, fault) = Messages::split(file, &mut losses);
    if messages.types.is_empty() {
        return Err(FormatError::Malformed {
            reason: "no type of sample is in the profile".to_owned(),
            offset: 0,
        });
    }
    if let Some((fault, at)) = fault {
        let what = match fault {
            Fault::Cut { .. } | Fault::Ends => Diagnostic::Truncated,
            _ => Diagnostic::Unreadable,
        };
        sink.diagnose(what, 1, &format!("{} at byte {at}", fault.text()));
    }
    let mut tables = Tables::new(&messages.texts);
    tables.add_functions(&messages.functions, &mut losses);
    tables.add_locations(&messages.mappings, &messages.locations, &mut losses);
    context.advance(0)?;
    let mut samples = StackSamples {
        types: sample_types(&messages.types, &mut tables, &mut losses),
        label_sets: vec![Vec::new()],
        ..StackSamples::default()
    };
    samples.default_type = default_type(&messages, &samples.types, &mut tables, &mut losses);
    let mut label_sets = FxHashMap::default();
    label_sets.insert(Vec::new(), 0);
    for (at, message) in messages.samples.iter().enumerate() {
        if at % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        let sample = read_sample(
            message,
            &mut tables,
            &mut samples,
            &mut label_sets,
            &mut losses,
        );
        samples.samples.push(sample);
    }
    if samples.is_jax_device_memory() {
        Producer::Jax.emit(sink);
    }
    emit_facts(&messages, &mut tables, &mut losses, sink);
    let (rows, locations) = tables.finish();
    samples.locations = locations;
    losses.diagnose(sink);
    sink.profile(Profile {
        kind: ProfileKind::Samples,
        rows,
        samples,
        ..Profile::default()
    });
    context.advance(file.len() as u64)?;
    Ok(())
}

impl<'a> Messages<'a> {
    /// Splits a file into its messages; also returns the fault that ended it, and its position.
    fn split(file: &'a [u8], losses: &mut Losses) -> (Self, Option<(Fault, usize)>) {
        let mut found = Self::default();
        let mut fields = Fields::new(file);
        loop {
            match fields.next() {
                Ok(Some(field)) => found.add(field.number, field.value, losses),
                Ok(None) => return (found, None),
                Err(fault) => {
                    let at = fields.at();
                    // Of a cut sample, location or function, what is there is read; a cut text is none.
                    if let Fault::Cut { number, .. } = fault
                        && number != profile::STRING
                    {
                        found.add(number, Value::Bytes(fields.rest()), losses);
                    }
                    return (found, Some((fault, at)));
                }
            }
        }
    }

    fn add(&mut self, number: u32, value: Value<'a>, losses: &mut Losses) {
        match (number, value) {
            (profile::SAMPLE_TYPE, Value::Bytes(message)) => self.types.push(message),
            (profile::SAMPLE, Value::Bytes(message)) => self.samples.push(message),
            (profile::MAPPING, Value::Bytes(message)) => self.mappings.push(message),
            (profile::LOCATION, Value::Bytes(message)) => self.locations.push(message),
            (profile::FUNCTION, Value::Bytes(message)) => self.functions.push(message),
            (profile::STRING, Value::Bytes(text)) => self.texts.push(text),
            (profile::PERIOD_TYPE, Value::Bytes(message)) => self.period_type = Some(message),
            (profile::PERIOD, value) => self.period = value.int(),
            (profile::TIME_NANOS, value) => self.time_ns = value.int(),
            (profile::DURATION_NANOS, value) => self.duration_ns = value.int(),
            (profile::DEFAULT_SAMPLE_TYPE, value) => self.default_type = value.uint(),
            (profile::COMMENT, value) => numbers(value, &mut self.comments, losses),
            _ => {}
        }
    }
}

/// Reads a `ValueType`: name and unit.
fn sample_type(message: &[u8], tables: &mut Tables<'_>, losses: &mut Losses) -> SampleType {
    let (mut name, mut unit) = (0, 0);
    tables::each(message, losses, |_, number, value| match number {
        1 => name = text_index(value),
        2 => unit = text_index(value),
        _ => {}
    });
    SampleType {
        name: tables.text(name, losses),
        unit: tables.text(unit, losses),
    }
}

fn sample_types(
    messages: &[&[u8]],
    tables: &mut Tables<'_>,
    losses: &mut Losses,
) -> Vec<SampleType> {
    let types = messages.iter();
    types
        .map(|message| sample_type(message, tables, losses))
        .collect()
}

/// Returns the index of the type that pprof shows first: the named one, or the last one.
fn default_type(
    messages: &Messages<'_>,
    types: &[SampleType],
    tables: &mut Tables<'_>,
    losses: &mut Losses,
) -> u32 {
    let named = messages.default_type.filter(|index| *index != 0);
    let named = named.map(|index| tables.text(index, losses));
    let at = named
        .and_then(|name| types.iter().position(|one| one.name == name))
        .unwrap_or(types.len().saturating_sub(1));
    u32::try_from(at).unwrap_or(0)
}

fn read_sample(
    message: &[u8],
    tables: &mut Tables<'_>,
    samples: &mut StackSamples,
    label_sets: &mut FxHashMap<Vec<SampleLabel>, u32>,
    losses: &mut Losses,
) -> StackSample {
    let (mut locations, mut values) = (Vec::new(), Vec::new());
    let mut label_messages = Vec::new();
    tables::each(message, losses, |losses, number, value| {
        match (number, value) {
            (sample::LOCATION_ID, value) => numbers(value, &mut locations, losses),
            (sample::VALUE, value) => numbers(value, &mut values, losses),
            (sample::LABEL, Value::Bytes(label)) => label_messages.push(label),
            _ => {}
        }
    });
    let mut stack = Vec::with_capacity(locations.len());
    for id in locations {
        match tables.location(id as u64) {
            Some(location) => stack.push(location),
            None => losses.unknown += 1,
        }
    }
    losses.uneven += u64::from(values.len() != samples.types.len());
    values.resize(samples.types.len(), 0);
    let mut labels = Vec::with_capacity(label_messages.len());
    for message in label_messages {
        labels.push(read_label(message, tables, losses));
    }
    let labels = if let Some(known) = label_sets.get(&labels) {
        *known
    } else {
        let fresh = u32::try_from(samples.label_sets.len()).unwrap_or(u32::MAX);
        samples.label_sets.push(labels.clone());
        label_sets.insert(labels, fresh);
        fresh
    };
    StackSample {
        stack: stack.into(),
        values: values.into(),
        labels,
    }
}

fn read_label(message: &[u8], tables: &mut Tables<'_>, losses: &mut Losses) -> SampleLabel {
    let (mut key, mut text, mut number, mut unit) = (0, 0, None, 0);
    tables::each(message, losses, |_, field, value| match field {
        label::KEY => key = text_index(value),
        label::TEXT => text = text_index(value),
        label::NUMBER => number = value.int(),
        label::UNIT => unit = text_index(value),
        _ => {}
    });
    let value = match number {
        Some(number) if text == 0 => {
            let unit = tables.text(unit, losses);
            format!("{number} {unit}").trim_end().into()
        }
        _ => tables.text(text, losses),
    };
    SampleLabel {
        key: tables.text(key, losses),
        value,
    }
}

/// Emits what the file tells about itself: when it was written, over which time, and the sampling period.
fn emit_facts<S: EventSink>(
    messages: &Messages<'_>,
    tables: &mut Tables<'_>,
    losses: &mut Losses,
    sink: &mut S,
) {
    if let Some(time_ns) = messages.time_ns.filter(|time| *time > 0) {
        sink.epoch(Epoch {
            origin_ns: 0,
            unix_ns: Some(time_ns),
        });
    }
    if let Some(duration_ns) = messages.duration_ns.filter(|duration| *duration > 0) {
        sink.fact("duration_ns", ArgValue::Int(duration_ns));
    }
    if let Some(period) = messages.period.filter(|period| *period > 0) {
        sink.fact("period", ArgValue::Int(period));
    }
    if let Some(message) = messages.period_type {
        let period = sample_type(message, tables, losses);
        let text = format!("{} {}", period.name, period.unit);
        if !text.trim().is_empty() {
            sink.fact("period_type", ArgValue::Str(text.trim()));
        }
    }
    for index in messages.comments.iter().take(MAX_COMMENTS) {
        let text = tables.text(*index as u64, losses);
        if !text.is_empty() {
            sink.fact("comment", ArgValue::Str(&text));
        }
    }
}

impl Losses {
    fn diagnose<S: EventSink>(&self, sink: &mut S) {
        let losses = [
            (
                Diagnostic::Unreadable,
                self.damaged,
                "messages that end in unreadable bytes",
            ),
            (
                Diagnostic::Unreadable,
                self.unknown,
                "references to texts, functions or locations that the file does not have",
            ),
            (
                Diagnostic::Unreadable,
                self.uneven,
                "samples with more or fewer values than the profile has types; missing values are 0",
            ),
            (Diagnostic::BadText, self.bad_texts, ""),
            (
                Diagnostic::LimitReached,
                self.too_deep,
                "functions inlined at one address beyond the first 256",
            ),
        ];
        losses::diagnose(sink, &losses);
    }
}
