//! Arguments of track events, decoded on request.
//!
//! A token is the address of the event's packet: its offset in the file, or, for packets inside
//! compressed packets, an offset past the file's end into the inflated bytes. Names and long texts
//! are interned in other packets; tables store their positions. After a reload from the import
//! cache, the first request for an argument reads the file once to rebuild the tables.

use std::fmt::Write;
use std::sync::OnceLock;

use stepscope_model::{ArgError, ArgSource, ArgValue, Limits, ReadContext, SharedBytes, SourceId};

use super::Tables;
use super::pairing::PAIR_TOKEN;
use super::sequence::text_entry;
use crate::null_sink::NullSink;
use crate::perfetto::extension;
use crate::perfetto::schema::{annotation, event, interned, legacy, location, nested, packet};
use crate::protobuf::wire::{Field, Fields, Value};

/// Maximum nesting of annotations in the output.
const MAX_NESTING: usize = 64;

/// Decodes arguments of one file.
pub(crate) struct LateArgs {
    bytes: SharedBytes,
    limits: Limits,
    tables: OnceLock<Tables>,
}

impl LateArgs {
    pub(crate) fn new(bytes: SharedBytes, limits: Limits) -> Self {
        Self {
            bytes,
            limits,
            tables: OnceLock::new(),
        }
    }

    /// Stores the tables of a file that was just read.
    pub(crate) fn fill(&self, tables: Tables) {
        // The tables already exist only if an argument was requested during the read; they are
        // equal.
        let _ = self.tables.set(tables);
    }

    fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| {
            let progress = ReadContext::new(self.limits);
            let content = (*self.bytes).as_ref();
            super::read(
                content,
                &progress,
                SourceId::default(),
                &mut NullSink::with_names(),
            )
            .unwrap_or_default()
        })
    }
}

impl ArgSource for LateArgs {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let tables = self.tables();
        let decoder = Decoder {
            content: (*self.bytes).as_ref(),
            tables,
        };
        if token & PAIR_TOKEN == 0 {
            return decoder.packet(token, visit);
        }
        let index = usize::try_from(token & !PAIR_TOKEN).unwrap_or(usize::MAX);
        let (begin, end) = tables.pairs.get(index).ok_or(ArgError::BadToken)?;
        decoder.packet(*begin, visit)?;
        decoder.packet(*end, visit)
    }
}

struct Decoder<'a> {
    content: &'a [u8],
    tables: &'a Tables,
}

/// Context in which a packet's arguments look up interned texts.
#[derive(Clone, Copy)]
struct Scope {
    sequence: u32,
    packet_end: u64,
}

type Visit<'v> = dyn FnMut(&str, ArgValue<'_>) + 'v;

impl<'a> Decoder<'a> {
    /// Returns the bytes from an address to the end of its buffer, and the bytes before it.
    fn at(&self, address: u64) -> Option<&'a [u8]> {
        let mut begin = 0;
        let buffers =
            std::iter::once(self.content).chain(self.tables.inflated.iter().map(Vec::as_slice));
        for buffer in buffers {
            let end = begin + buffer.len() as u64;
            if address < end {
                return buffer.get(usize::try_from(address - begin).ok()?..);
            }
            begin = end;
        }
        None
    }

    /// Returns the packet whose message starts at `address`. Its length precedes it.
    fn message(&self, address: u64) -> Option<&'a [u8]> {
        // One byte of tag and up to ten of length: the shortest valid length is the right one.
        for back in 1..=10_u64 {
            let head = self.at(address.checked_sub(back + 1)?)?;
            let (tag, length) = head.split_first()?;
            let Ok((count, used)) = crate::protobuf::wire::varint(length, 0) else {
                continue;
            };
            if *tag == 0x0a && used as u64 == back {
                let rest = length.get(used..)?;
                return rest.get(..usize::try_from(count).ok()?);
            }
        }
        None
    }

    fn packet(&self, address: u64, visit: &mut Visit<'_>) -> Result<(), ArgError> {
        let message = self.message(address).ok_or(ArgError::Damaged)?;
        let mut sequence = 0;
        let mut events: Vec<&[u8]> = Vec::new();
        let mut fields = Fields::new(message);
        loop {
            match fields.next() {
                Ok(Some(Field {
                    number: packet::SEQUENCE_ID,
                    value: Value::Varint(id),
                })) => sequence = u32::try_from(id & 0xffff_ffff).unwrap_or(0),
                Ok(Some(Field {
                    number: packet::TRACK_EVENT,
                    value: Value::Bytes(bytes),
                })) => events.push(bytes),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return Err(ArgError::Damaged),
            }
        }
        let event = events.last().ok_or(ArgError::Damaged)?;
        let scope = Scope {
            sequence,
            packet_end: address + message.len() as u64,
        };
        self.event(event, scope, visit);
        Ok(())
    }

    fn event(&self, message: &[u8], scope: Scope, visit: &mut Visit<'_>) {
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (event::DEBUG_ANNOTATIONS, Value::Bytes(entry)) => {
                    self.annotation(entry, scope, visit);
                }
                (event::SOURCE_LOCATION, Value::Bytes(place)) => source_location(place, visit),
                (event::SOURCE_LOCATION_IID, Value::Varint(iid)) => {
                    if let Some(place) = self.entry(scope, interned::SOURCE_LOCATIONS, iid) {
                        source_location(place, visit);
                    } else {
                        visit("source_location", ArgValue::Int(iid as i64));
                    }
                }
                (event::CORRELATION_ID, Value::Varint(id)) => visit("correlation_id", whole(id)),
                (event::CORRELATION_ID_STR, Value::Bytes(text)) => {
                    visit(
                        "correlation_id",
                        ArgValue::Str(&String::from_utf8_lossy(text)),
                    );
                }
                (event::CORRELATION_ID_STR_IID, Value::Varint(iid)) => {
                    let text = self.text(scope, interned::CORRELATION_IDS, iid);
                    visit("correlation_id", ArgValue::Str(&text));
                }
                (event::TASK_EXECUTION, Value::Bytes(task)) => {
                    let posted = Fields::new(task).next_lenient();
                    if let Some(iid) = posted.and_then(|field| field.value.uint())
                        && let Some(place) = self.entry(scope, interned::SOURCE_LOCATIONS, iid)
                    {
                        source_location(place, &mut |key, value| {
                            visit(&format!("task.posted_from.{key}"), value);
                        });
                    }
                }
                (event::LOG_MESSAGE, Value::Bytes(log)) => self.log(log, scope, visit),
                (event::LEGACY_EVENT, Value::Bytes(message)) => legacy_args(message, visit),
                (number, value) if !is_plain(number) => other_field(number, value, visit),
                _ => {}
            }
        }
    }

    fn log(&self, message: &[u8], scope: Scope, visit: &mut Visit<'_>) {
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (1, Value::Varint(iid)) => {
                    if let Some(place) = self.entry(scope, interned::SOURCE_LOCATIONS, iid) {
                        source_location(place, visit);
                    }
                }
                (2, Value::Varint(iid)) => {
                    let text = self.text(scope, interned::LOG_BODIES, iid);
                    visit("log.message", ArgValue::Str(&text));
                }
                (3, Value::Varint(priority)) => visit("log.priority", whole(priority)),
                _ => {}
            }
        }
    }

    /// Returns the interned entry of an iid.
    fn entry(&self, scope: Scope, field: u32, iid: u64) -> Option<&'a [u8]> {
        let found = self
            .tables
            .texts
            .find(scope.sequence, scope.packet_end, field, iid);
        let (address, length) = found?;
        self.at(address)?.get(..length)
    }

    /// Returns the interned text of an iid; the iid as text if there is none.
    fn text(&self, scope: Scope, field: u32, iid: u64) -> String {
        self.entry(scope, field, iid)
            .and_then(|entry| text_entry(entry).1)
            .map_or_else(
                || format!("#{iid}"),
                |text| String::from_utf8_lossy(text).into_owned(),
            )
    }

    /// Returns the interned text of an iid like [`Self::text`], and whether our writer marked the
    /// name as one of JSON values.
    fn marked_text(&self, scope: Scope, field: u32, iid: u64) -> (String, bool) {
        let entry = self.entry(scope, field, iid).unwrap_or_default();
        let mut fields = Fields::new(entry);
        let mut marked = false;
        while let Some(field) = fields.next_lenient() {
            marked |= field.number == extension::FIELD;
        }
        (self.text(scope, field, iid), marked)
    }

    fn annotation(&self, entry: &[u8], scope: Scope, visit: &mut Visit<'_>) {
        let mut json = String::new();
        let lookup = |field, iid| self.marked_text(scope, field, iid);
        let (name, value) = take_apart(entry, &lookup, &mut json);
        value.visit(&name, &json, visit);
    }
}

/// Returns whether a field of a track event is not an argument.
fn is_plain(number: u32) -> bool {
    matches!(
        number,
        event::TIMESTAMP_DELTA_US
            | event::THREAD_TIME_DELTA_US
            | event::CATEGORY_IIDS
            | event::TYPE
            | event::NAME_IID
            | event::TRACK_UUID
            | event::EXTRA_COUNTER_VALUES
            | event::TIMESTAMP_ABSOLUTE_US
            | event::THREAD_TIME_ABSOLUTE_US
            | event::CATEGORIES
            | event::NAME
            | event::COUNTER_VALUE
            | event::EXTRA_COUNTER_TRACKS
            | event::FLOW_IDS_OLD
            | event::TERMINATING_FLOW_IDS_OLD
            | event::DOUBLE_COUNTER_VALUE
            | event::EXTRA_DOUBLE_COUNTER_TRACKS
            | event::EXTRA_DOUBLE_COUNTER_VALUES
            | event::FLOW_IDS
            | event::TERMINATING_FLOW_IDS
            | extension::FIELD
    )
}

/// Visits a field that is an extension or belongs to a newer schema, under its number.
fn other_field(number: u32, value: Value<'_>, visit: &mut Visit<'_>) {
    let key = format!("field {number}");
    match value {
        Value::Varint(bits) | Value::Fixed64(bits) => visit(&key, whole(bits)),
        Value::Fixed32(bits) => visit(&key, ArgValue::Int(i64::from(bits))),
        Value::Bytes(bytes) => visit(&key, ArgValue::Bytes(bytes)),
    }
}

fn source_location(message: &[u8], visit: &mut Visit<'_>) {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (location::FILE, Value::Bytes(text)) => {
                visit("source.file", ArgValue::Str(&String::from_utf8_lossy(text)));
            }
            (location::FUNCTION, Value::Bytes(text)) => {
                visit(
                    "source.function",
                    ArgValue::Str(&String::from_utf8_lossy(text)),
                );
            }
            (location::LINE, Value::Varint(line)) => visit("source.line", whole(line)),
            _ => {}
        }
    }
}

fn legacy_args(message: &[u8], visit: &mut Visit<'_>) {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        if let (legacy::THREAD_DURATION_US, Some(us)) = (field.number, field.value.int()) {
            visit("thread_duration_us", ArgValue::Int(us));
        }
    }
}

fn whole(value: u64) -> ArgValue<'static> {
    i64::try_from(value).map_or(ArgValue::Uint(value), ArgValue::Int)
}

/// Function that returns the interned text of a field and iid, and whether values under that name
/// are JSON text.
type Lookup<'l> = dyn Fn(u32, u64) -> (String, bool) + 'l;

/// Decoded value of an annotation.
enum Known<'a> {
    Nothing,
    Value(ArgValue<'a>),
    Text(String),
    /// The text is in the JSON buffer.
    Json,
}

impl Known<'_> {
    fn visit(&self, name: &str, json: &str, visit: &mut Visit<'_>) {
        match self {
            Self::Nothing => visit(name, ArgValue::Json("null")),
            Self::Value(value) => visit(name, *value),
            Self::Text(text) => visit(name, ArgValue::Str(text)),
            Self::Json => visit(name, ArgValue::Json(json)),
        }
    }
}

/// Visits an annotation without interned texts, the form in which our writer stores facts.
pub(crate) fn plain_annotation(entry: &[u8], mut visit: impl FnMut(&str, ArgValue<'_>)) {
    let mut json = String::new();
    let (name, value) = take_apart(entry, &|_, iid| (format!("#{iid}"), false), &mut json);
    value.visit(&name, &json, &mut visit);
}

/// Decodes the name and value of a `DebugAnnotation`. Nested values are written to `json`.
fn take_apart<'a>(entry: &'a [u8], lookup: &Lookup<'_>, json: &mut String) -> (String, Known<'a>) {
    let mut name = String::new();
    let mut value = Known::Nothing;
    let mut fields = Fields::new(entry);
    let mut is_nested = false;
    let mut is_json = false;
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (annotation::NAME_IID, Value::Varint(iid)) => {
                (name, is_json) = lookup(interned::ANNOTATION_NAMES, iid);
            }
            (annotation::NAME, Value::Bytes(text)) => {
                name = String::from_utf8_lossy(text).into_owned();
            }
            (annotation::BOOL, Value::Varint(flag)) => {
                value = Known::Value(ArgValue::Bool(flag != 0));
            }
            (annotation::UINT, Value::Varint(number)) => value = Known::Value(whole(number)),
            (annotation::INT, Value::Varint(number)) => {
                value = Known::Value(ArgValue::Int(number as i64));
            }
            (annotation::DOUBLE, Value::Fixed64(bits)) => {
                value = Known::Value(ArgValue::Double(f64::from_bits(bits)));
            }
            (annotation::POINTER, Value::Varint(pointer)) => {
                value = Known::Text(format!("{pointer:#x}"));
            }
            (annotation::STRING, Value::Bytes(text)) => {
                value = match std::str::from_utf8(text) {
                    Ok(text) => Known::Value(ArgValue::Str(text)),
                    Err(_) => Known::Text(String::from_utf8_lossy(text).into_owned()),
                };
            }
            (annotation::STRING_IID, Value::Varint(iid)) => {
                value = Known::Text(lookup(interned::ANNOTATION_STRINGS, iid).0);
            }
            (annotation::LEGACY_JSON, Value::Bytes(text)) => {
                value = match std::str::from_utf8(text) {
                    Ok(text) => Known::Value(ArgValue::Json(text)),
                    Err(_) => Known::Text(String::from_utf8_lossy(text).into_owned()),
                };
            }
            (annotation::PROTO_VALUE, Value::Bytes(bytes)) => {
                value = Known::Value(ArgValue::Bytes(bytes));
            }
            (
                annotation::DICT_ENTRIES | annotation::ARRAY_VALUES | annotation::NESTED,
                Value::Bytes(_),
            ) => is_nested = true,
            (extension::FIELD, Value::Bytes(bytes)) => {
                // Bytes from our writer; the text next to them is for other readers.
                return (name_of(entry, lookup), Known::Value(ArgValue::Bytes(bytes)));
            }
            _ => {}
        }
    }
    if is_json {
        let text = match &value {
            Known::Value(ArgValue::Str(text)) => text,
            Known::Text(text) => text.as_str(),
            _ => "null",
        };
        json.push_str(text);
        value = Known::Json;
    }
    if is_nested {
        annotation_json(entry, lookup, json, 0);
        value = Known::Json;
    }
    (name, value)
}

fn name_of(entry: &[u8], lookup: &Lookup<'_>) -> String {
    let mut fields = Fields::new(entry);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (annotation::NAME_IID, Value::Varint(iid)) => {
                return lookup(interned::ANNOTATION_NAMES, iid).0;
            }
            (annotation::NAME, Value::Bytes(text)) => {
                return String::from_utf8_lossy(text).into_owned();
            }
            _ => {}
        }
    }
    String::new()
}

/// Appends the value of an annotation as JSON text.
fn annotation_json(entry: &[u8], lookup: &Lookup<'_>, json: &mut String, depth: usize) {
    if depth > MAX_NESTING {
        json.push_str("null");
        return;
    }
    let mut dict: Vec<&[u8]> = Vec::new();
    let mut array: Vec<&[u8]> = Vec::new();
    let mut older = None;
    let mut fields = Fields::new(entry);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (annotation::DICT_ENTRIES, Value::Bytes(inner)) => dict.push(inner),
            (annotation::ARRAY_VALUES, Value::Bytes(inner)) => array.push(inner),
            (annotation::NESTED, Value::Bytes(inner)) => older = Some(inner),
            _ => {}
        }
    }
    if let Some(older) = older {
        nested_json(older, json, depth + 1);
    } else if !dict.is_empty() {
        json.push('{');
        for (at, inner) in dict.into_iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            put_json_text(json, &name_of(inner, lookup));
            json.push(':');
            annotation_json(inner, lookup, json, depth + 1);
        }
        json.push('}');
    } else if !array.is_empty() {
        json.push('[');
        for (at, inner) in array.into_iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            annotation_json(inner, lookup, json, depth + 1);
        }
        json.push(']');
    } else {
        let mut unused = String::new();
        match take_apart(entry, lookup, &mut unused).1 {
            Known::Value(value) => put_json(json, value),
            Known::Text(text) => put_json_text(json, &text),
            Known::Nothing | Known::Json => json.push_str("null"),
        }
    }
}

/// Appends a `NestedValue` as JSON text.
fn nested_json(message: &[u8], json: &mut String, depth: usize) {
    if depth > MAX_NESTING {
        json.push_str("null");
        return;
    }
    let mut kind = 0;
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut values: Vec<&[u8]> = Vec::new();
    let mut simple = None;
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (nested::TYPE, Value::Varint(value)) => kind = value,
            (nested::DICT_KEYS, Value::Bytes(key)) => keys.push(key),
            (nested::DICT_VALUES | nested::ARRAY_VALUES, Value::Bytes(value)) => values.push(value),
            (nested::INT, Value::Varint(number)) => simple = Some(ArgValue::Int(number as i64)),
            (nested::DOUBLE, Value::Fixed64(bits)) => {
                simple = Some(ArgValue::Double(f64::from_bits(bits)));
            }
            (nested::BOOL, Value::Varint(flag)) => simple = Some(ArgValue::Bool(flag != 0)),
            (nested::STRING, Value::Bytes(text)) => simple = Some(ArgValue::Bytes(text)),
            _ => {}
        }
    }
    match (kind, simple) {
        (nested::TYPE_DICT, _) => {
            json.push('{');
            for (at, (key, value)) in keys.into_iter().zip(values).enumerate() {
                if at > 0 {
                    json.push(',');
                }
                put_json_text(json, &String::from_utf8_lossy(key));
                json.push(':');
                nested_json(value, json, depth + 1);
            }
            json.push('}');
        }
        (nested::TYPE_ARRAY, _) => {
            json.push('[');
            for (at, value) in values.into_iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                nested_json(value, json, depth + 1);
            }
            json.push(']');
        }
        (_, Some(value)) => put_json(json, value),
        (_, None) => json.push_str("null"),
    }
}

fn put_json(json: &mut String, value: ArgValue<'_>) {
    // Writing to a string cannot fail.
    let _ = match value {
        ArgValue::Int(number) => write!(json, "{number}"),
        ArgValue::Uint(number) => write!(json, "{number}"),
        ArgValue::Double(number) if number.is_finite() => write!(json, "{number:?}"),
        ArgValue::Double(number) => {
            put_json_text(json, &number.to_string());
            Ok(())
        }
        ArgValue::Bool(flag) => write!(json, "{flag}"),
        ArgValue::Json(text) => json.write_str(text),
        ArgValue::Str(text) => {
            put_json_text(json, text);
            Ok(())
        }
        ArgValue::Bytes(bytes) => {
            put_json_text(json, &String::from_utf8_lossy(bytes));
            Ok(())
        }
    };
}

fn put_json_text(json: &mut String, text: &str) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            letter => json.push(letter),
        }
    }
    json.push('"');
}
