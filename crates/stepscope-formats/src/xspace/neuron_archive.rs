//! Extraction of the JSON files that Neuron embeds in an `XSpace`.
//!
//! A plane named `/host:Neuron-runtime:profile//HASH_N/modelM/nodeK/plugins/neuron/EPOCH/FILE` is
//! the file FILE. For Chrome traces, the text stat of each event on the plane's lines holds one
//! event's JSON object; tables are in the plane's stats. [`unpack`] restores the files, and adds
//! the host's rows to the device's in `neuron_trace.json`. `docs/formats/neuron.md` describes the
//! layout.
//!
//! Device times are microseconds since the plane's `neuronStartTimestampNs`, host times are those
//! of the profiler; the common time axis starts at the earlier of the two.

use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use stepscope_model::ArgValue;

use super::read::ABSOLUTE_NS;
use super::read::index::{PlaneFrame, PlaneIndex, Space, frame};
use super::read::span::Span;
use super::well_known_stats::{Role, TASK_ENVIRONMENT};
use super::wire::{self, StatValue, event, line};
use crate::FormatError;
use crate::protobuf::wire::{Fields, Value};

const PLANE: &str = "/host:Neuron-runtime";
const HOST: &str = "/host:CPU";
const TRACE: &str = "neuron_trace.json";
const START: &str = "neuronStartTimestampNs";
const UNIT: &str = "displayTimeUnit";
const TOTAL: &str = "total_time";
/// Maximum number of planes and lines read from one file.
const MAX_KEPT: usize = 1 << 20;

/// One extracted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeuronFile {
    /// The capture that the file belongs to: the identifying parts of the plane's name, valid as a
    /// folder name. Empty for `neuron_trace.json`, which exists once.
    pub capture: String,
    /// The file's name.
    pub name: String,
    /// Its content, JSON.
    pub json: Vec<u8>,
}

/// Result of [`unpack`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// `neuron_trace.json` if it has any rows, then the files of operator captures.
    pub files: Vec<NeuronFile>,
    /// Events of devices, in all files, and rows of tables.
    pub device_rows: u64,
    /// Events of the host, in `neuron_trace.json`.
    pub host_rows: u64,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Unpacks an `XSpace`.
///
/// # Errors
/// Returns [`FormatError::Malformed`] if the first plane cannot be framed.
pub fn unpack(file: &[u8]) -> Result<Unpacked, FormatError> {
    let space = frame(file, MAX_KEPT);
    if let (true, Some((offset, fault))) = (space.indexes.is_empty(), space.fault) {
        return Err(FormatError::Malformed {
            reason: fault.text().to_owned(),
            offset: offset as u64,
        });
    }
    let mut found = Unpacked::default();
    if space.fault.is_some() {
        found
            .notes
            .push("the capture is damaged; what could be read of it is there".to_owned());
    }
    let mut traces = Vec::new();
    let mut bad = 0;
    for (index, frame) in space.indexes.iter().zip(&space.frames) {
        let plane = String::from_utf8_lossy(frame.name.get(file));
        let Some((capture, name)) = place(&plane) else {
            continue;
        };
        let facts = Facts::read(file, index, frame);
        if facts.table.is_empty() {
            let rows = events(file, index, frame, &mut bad);
            found.device_rows += rows.len() as u64;
            if name == TRACE {
                traces.push((plane.into_owned(), facts, rows));
            } else {
                let json = timeline(&facts, &rows);
                found.files.push(NeuronFile {
                    capture,
                    name,
                    json,
                });
            }
        } else {
            let rows = facts.table.iter().filter(|(key, _)| key != TOTAL);
            found.device_rows += rows.count() as u64;
            let json = table(facts);
            found.files.push(NeuronFile {
                capture,
                name,
                json,
            });
        }
    }
    if bad > 0 {
        found.notes.push(format!(
            "{bad} device events hold no JSON object and were left out"
        ));
    }
    if let Some(file) = trace(file, &space, &traces, &mut found) {
        found.files.insert(0, file);
    }
    Ok(found)
}

/// Parses the capture and the file from a plane's name.
fn place(plane: &str) -> Option<(String, String)> {
    let path = plane.strip_prefix(PLANE)?;
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let name = plain(parts.pop()?);
    if let Some(end) = parts.iter().position(|part| *part == "plugins") {
        parts.truncate(end);
    }
    // The text before the first slash belongs to the runtime's name, such as `:profile`.
    if !path.starts_with('/') && !parts.is_empty() {
        parts.remove(0);
    }
    let capture: Vec<String> = parts.into_iter().map(plain).collect();
    Some((capture.join("_"), name))
}

/// Sanitizes a part of a path for use in a file name, so that it cannot refer to another folder.
fn plain(part: &str) -> String {
    part.chars()
        .take(100)
        .enumerate()
        .map(|(at, c)| match c {
            '.' if at > 0 => '.',
            c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => c,
            _ => '_',
        })
        .collect()
}

/// Contents of a plane.
#[derive(Debug, Default)]
struct Facts {
    unit: Option<String>,
    start_ns: Option<i64>,
    /// Rows of operators, and the total.
    table: Vec<(String, Json)>,
}

impl Facts {
    fn read(file: &[u8], index: &PlaneIndex, frame: &PlaneFrame) -> Self {
        let mut facts = Self::default();
        for stat in &frame.stats {
            let Ok(stat) = wire::stat(stat.get(file)) else {
                continue;
            };
            index.visit_stat(file, stat, &mut |key, value| match (key, value) {
                (UNIT, ArgValue::Str(unit)) => facts.unit = Some(unit.to_owned()),
                (START, ArgValue::Int(ns)) => facts.start_ns = Some(ns),
                (_, value) if key.starts_with("op_") || key == TOTAL => {
                    facts.table.push((key.to_owned(), parsed(value)));
                }
                _ => {}
            });
        }
        facts
    }
}

/// Converts a stat to JSON; text that is valid JSON is parsed.
fn parsed(value: ArgValue<'_>) -> Json {
    match value {
        ArgValue::Str(text) | ArgValue::Json(text) => {
            serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        }
        value => plain_json(value),
    }
}

/// Converts a stat to JSON; text stays a string.
fn plain_json(value: ArgValue<'_>) -> Json {
    match value {
        ArgValue::Int(value) => json!(value),
        ArgValue::Uint(value) => json!(value),
        ArgValue::Double(value) => json!(value),
        ArgValue::Bool(value) => json!(value),
        ArgValue::Str(text) => json!(text),
        ArgValue::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        ArgValue::Bytes(bytes) => json!(format!("{} bytes", bytes.len())),
    }
}

fn table(facts: Facts) -> Vec<u8> {
    Json::Object(facts.table.into_iter().collect::<Map<_, _>>())
        .to_string()
        .into_bytes()
}

/// Returns the JSON texts of a plane's events; events without one are counted in `bad`.
fn events<'a>(
    file: &'a [u8],
    index: &PlaneIndex,
    frame: &PlaneFrame,
    bad: &mut u64,
) -> Vec<&'a RawValue> {
    let mut rows = Vec::new();
    for span in &frame.lines {
        let mut fields = Fields::new(span.get(file));
        while let Some(field) = fields.next_lenient() {
            if let (line::EVENTS, Value::Bytes(message)) = (field.number, field.value) {
                match object_of(file, index, message) {
                    Some(row) => rows.push(row),
                    None => *bad += 1,
                }
            }
        }
    }
    rows
}

/// Returns the first stat of an event that is the text of a JSON object.
fn object_of<'a>(file: &'a [u8], index: &PlaneIndex, event: &'a [u8]) -> Option<&'a RawValue> {
    let mut fields = Fields::new(event);
    while let Some(field) = fields.next_lenient() {
        let (event::STATS, Value::Bytes(stat)) = (field.number, field.value) else {
            continue;
        };
        let text = match wire::stat(stat) {
            Ok(stat) => match stat.value {
                StatValue::Str(text) => text,
                StatValue::Ref(id) => match index.stats.get(id) {
                    Some(named) => named.name.get(file),
                    None => continue,
                },
                _ => continue,
            },
            Err(_) => continue,
        };
        let raw = serde_json::from_slice::<&RawValue>(text).ok();
        if let Some(raw) = raw.filter(|raw| raw.get().starts_with('{')) {
            return Some(raw);
        }
    }
    None
}

/// Builds a Chrome trace from unchanged rows.
fn timeline(facts: &Facts, rows: &[&RawValue]) -> Vec<u8> {
    let rows: Vec<&str> = rows.iter().map(|row| row.get()).collect();
    chrome(facts.unit.as_deref(), facts.start_ns, &rows)
}

fn chrome(unit: Option<&str>, start_ns: Option<i64>, rows: &[impl AsRef<str>]) -> Vec<u8> {
    let mut text = format!("{{\"{UNIT}\":{}", json!(unit.unwrap_or("ns")));
    if let Some(start_ns) = start_ns {
        let _ = write!(text, ",\"{START}\":{start_ns}");
    }
    text.push_str(",\"traceEvents\":[");
    for (at, row) in rows.iter().enumerate() {
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        text.push_str(row.as_ref());
    }
    text.push_str("\n]}\n");
    text.into_bytes()
}

/// A slice of the host.
struct HostSlice {
    thread: String,
    name: String,
    /// Start on the profiler's time axis, or since 1970 if that is known, picoseconds.
    start_ps: i128,
    dur_ps: i64,
    args: Map<String, Json>,
}

/// Builds `neuron_trace.json`: the rows of the devices and the host on one time axis.
fn trace(
    file: &[u8],
    space: &Space,
    planes: &[(String, Facts, Vec<&RawValue>)],
    found: &mut Unpacked,
) -> Option<NeuronFile> {
    let (host, aligned) = host_slices(file, space);
    if planes.is_empty() && host.is_empty() {
        return None;
    }
    found.host_rows = host.len() as u64;
    let host_start_ns = host
        .iter()
        .map(|slice| slice.start_ps.div_euclid(1_000))
        .min();
    let device_start_ns = planes
        .iter()
        .filter_map(|(_, facts, _)| facts.start_ns)
        .min();
    let both = !host.is_empty() && !planes.is_empty();
    let untold = planes.iter().any(|(_, facts, _)| facts.start_ns.is_none());
    if both && (untold || !aligned) {
        found.notes.push(format!(
            "the device's rows and the host's are not on one axis: {}",
            if untold {
                "the capture does not tell neuronStartTimestampNs; both begin together"
            } else {
                "the host's rows do not tell when they began; both begin together"
            }
        ));
    }
    let together = both && (untold || !aligned);
    let base_ns: i128 = match (device_start_ns, host_start_ns) {
        (Some(device), Some(host)) if !together => host.min(i128::from(device)),
        (Some(device), _) => i128::from(device),
        (None, Some(host)) => host,
        (None, None) => 0,
    };
    let mut rows: Vec<(f64, String)> = Vec::with_capacity(host.len());
    for (plane, facts, events) in planes {
        let shift_us = match facts.start_ns {
            Some(start_ns) => (i128::from(start_ns) - base_ns) as f64 / 1e3,
            None => 0.0,
        };
        for event in events {
            rows.push(moved(event, shift_us, plane));
        }
    }
    let host_base_ps = if together {
        host_start_ns.unwrap_or(0)
    } else {
        base_ns
    } * 1_000;
    for slice in host {
        let ts = (slice.start_ps - host_base_ps) as f64 / 1e6;
        let args = if slice.args.is_empty() {
            Json::Null
        } else {
            Json::Object(slice.args)
        };
        let row = json!({
            "args": args, "cat": "", "dur": slice.dur_ps as f64 / 1e6, "name": slice.name, "ph": "X",
            "pid": HOST, "tid": slice.thread, "ts": ts, "tts": 0,
        });
        rows.push((ts, row.to_string()));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let unit = planes
        .iter()
        .find_map(|(_, facts, _)| facts.unit.as_deref());
    let rows: Vec<String> = rows.into_iter().map(|(_, row)| row).collect();
    let start_ns = i64::try_from(base_ns)
        .ok()
        .filter(|_| base_ns > i128::from(ABSOLUTE_NS));
    Some(NeuronFile {
        capture: String::new(),
        name: TRACE.to_owned(),
        json: chrome(unit, start_ns, &rows),
    })
}

/// Shifts an event in time, in microseconds; with several nodes, also adds its plane.
fn moved(event: &RawValue, shift_us: f64, plane: &str) -> (f64, String) {
    let Ok(Json::Object(mut fields)) = serde_json::from_str(event.get()) else {
        return (0.0, event.get().to_owned());
    };
    let Some(ts) = fields.get("ts").and_then(Json::as_f64) else {
        // Metadata events with names of processes and threads have no time.
        return (f64::MIN, event.get().to_owned());
    };
    if !fields.contains_key("pid") {
        fields.insert("pid".to_owned(), json!(plane));
    }
    // Rounds to a thousandth, the precision of Chrome traces.
    let ts = ((ts + shift_us) * 1e3).round() / 1e3;
    fields.insert("ts".to_owned(), json!(ts));
    (ts, Json::Object(fields).to_string())
}

/// Returns the slices of the host's threads, and whether their times are since 1970.
fn host_slices(file: &[u8], space: &Space) -> (Vec<HostSlice>, bool) {
    let environment = space
        .indexes
        .iter()
        .zip(&space.frames)
        .find(|(_, frame)| frame.name.get(file) == TASK_ENVIRONMENT.as_bytes());
    let start_ns = environment
        .and_then(|(index, frame)| index.find_stat(file, &frame.stats, Role::ProfileStart))
        .and_then(StatValue::bits)
        .and_then(|bits| i64::try_from(bits).ok());
    let mut aligned = true;
    let mut slices = Vec::new();
    for (index, frame) in space.indexes.iter().zip(&space.frames) {
        if !frame.name.get(file).starts_with(HOST.as_bytes()) {
            continue;
        }
        for span in &frame.lines {
            let head = LineFields::read(file, *span);
            let base_ns = match (head.start_ns > ABSOLUTE_NS, start_ns) {
                (true, _) => i128::from(head.start_ns),
                (false, Some(start_ns)) => i128::from(start_ns) + i128::from(head.start_ns),
                (false, None) => {
                    aligned = false;
                    i128::from(head.start_ns)
                }
            };
            let mut fields = Fields::new(span.get(file));
            while let Some(field) = fields.next_lenient() {
                if let (line::EVENTS, Value::Bytes(message)) = (field.number, field.value) {
                    slices.push(host_slice(
                        file,
                        index,
                        message,
                        &head.thread,
                        base_ns * 1_000,
                    ));
                }
            }
        }
    }
    (slices, aligned)
}

/// Own fields of a line.
struct LineFields {
    thread: String,
    start_ns: i64,
}

impl LineFields {
    fn read(file: &[u8], span: Span) -> Self {
        let (mut id, mut start_ns) = (0, 0);
        let (mut name, mut shown) = (&[][..], &[][..]);
        let mut fields = Fields::new(span.get(file));
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (line::ID, Value::Varint(value)) => id = value,
                (line::TIMESTAMP_NS, Value::Varint(value)) => start_ns = value as i64,
                (line::NAME, Value::Bytes(text)) => name = text,
                (line::DISPLAY_NAME, Value::Bytes(text)) => shown = text,
                _ => {}
            }
        }
        let name = String::from_utf8_lossy(if shown.is_empty() { name } else { shown });
        Self {
            thread: format!("{name}#{id}"),
            start_ns,
        }
    }
}

fn host_slice(
    file: &[u8],
    index: &PlaneIndex,
    message: &[u8],
    thread: &str,
    base_ps: i128,
) -> HostSlice {
    let mut slice = HostSlice {
        thread: thread.to_owned(),
        name: String::new(),
        start_ps: base_ps,
        dur_ps: 0,
        args: Map::new(),
    };
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (event::METADATA_ID, Value::Varint(id)) => {
                if let Some(metadata) = index.events.get(id as i64) {
                    let name = metadata.shown_name().get(file);
                    slice.name = String::from_utf8_lossy(name).into_owned();
                }
            }
            (event::OFFSET_PS, Value::Varint(ps)) => {
                slice.start_ps = base_ps + i128::from(ps as i64);
            }
            (event::DURATION_PS, Value::Varint(ps)) => slice.dur_ps = ps as i64,
            (event::STATS, Value::Bytes(stat)) => {
                if let Ok(stat) = wire::stat(stat) {
                    index.visit_stat(file, stat, &mut |key, value| {
                        slice.args.insert(key.to_owned(), plain_json(value));
                    });
                }
            }
            _ => {}
        }
    }
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_planes_tell_capture_and_file() {
        let told = |plane| place(plane).map(|(capture, name)| format!("{capture} {name}"));
        assert_eq!(
            told(
                "/host:Neuron-runtime:profile//ab12_0/model1/node2/plugins/neuron/1700/neuron_hlo_op.json"
            ),
            Some("ab12_0_model1_node2 neuron_hlo_op.json".to_owned())
        );
        assert_eq!(
            told("/host:Neuron-runtime/opt/prof/nrt/neuron_trace.json"),
            Some("opt_prof_nrt neuron_trace.json".to_owned())
        );
        // Nothing leads elsewhere, nothing hides.
        assert_eq!(
            told("/host:Neuron-runtime:profile//../../etc/plugins/x/.hidden"),
            Some("_.__._etc _hidden".to_owned())
        );
        assert_eq!(told("/host:CPU"), None);
        assert_eq!(told("/host:Neuron-runtime"), None);
    }
}
