//! Names, order and kinds of tracks, from metadata entries (`ph` M).

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::vocabulary::kineto::Executor;
use stepscope_model::{ArgValue, Diagnostic, EventSink, TrackKind, TrackPatch};

use super::tracks::{Row, RowKind, Rows, device_key};
use crate::chrome_json::dialect::stepscope::{KIND_WORDS, TRACK_ENTRY};
use crate::chrome_json::entry::{Entry, entry, process_text};
use crate::json::scan::JsonType;
use crate::json::value::{key_text, visit_members};

#[derive(Debug, Default)]
struct Process {
    name: Option<String>,
    labels: Vec<String>,
    /// In the file's order: a host process and a device with the same number have one index each.
    sort_indexes: Vec<i64>,
}

#[derive(Debug, Default)]
struct Thread {
    /// In the file's order: a thread and a stream with the same number have one name each.
    names: Vec<String>,
    sort_index: Option<i64>,
}

/// Content of all metadata entries.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    processes: FxHashMap<String, Process>,
    threads: FxHashMap<String, Thread>,
    own: Vec<ExtensionTrack>,
}

#[derive(Debug, Default)]
struct ExtensionTrack {
    key: String,
    name: Option<String>,
    kind: Option<TrackKind>,
    parent: Option<String>,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    sort_index: Option<i64>,
    unit: Option<String>,
    derived: Option<bool>,
    category: Option<String>,
}

impl Metadata {
    /// Reads the metadata entries at the offsets `places`; emits entries of unknown types as facts.
    pub(crate) fn read<S: EventSink>(bytes: &[u8], places: &[u64], sink: &mut S) -> Self {
        let mut all = Self::default();
        for place in places {
            let at = usize::try_from(*place).unwrap_or(usize::MAX);
            if let Ok(entry) = entry(bytes, at) {
                all.take(bytes, &entry, sink);
            }
        }
        all
    }

    fn take<S: EventSink>(&mut self, bytes: &[u8], entry: &Entry, sink: &mut S) {
        let name = key_text(bytes, &entry.name)
            .map(|text| text.text)
            .unwrap_or_default();
        let pid = process_text(bytes, &entry.pid).unwrap_or_default();
        let thread_key = || {
            let tid = process_text(bytes, &entry.tid).unwrap_or_default();
            format!("{pid}/{tid}")
        };
        match &*name {
            "process_name" => {
                if let Some(text) = text_arg(bytes, entry, "name") {
                    self.process(&pid).name = Some(text);
                }
            }
            "process_labels" => {
                if let Some(text) = text_arg(bytes, entry, "labels") {
                    let labels = &mut self.process(&pid).labels;
                    if !labels.contains(&text) {
                        labels.push(text);
                    }
                }
            }
            "process_sort_index" => {
                if let Some(index) = whole_arg(bytes, entry, "sort_index") {
                    self.process(&pid).sort_indexes.push(index);
                }
            }
            "thread_name" => {
                if let Some(text) = text_arg(bytes, entry, "name") {
                    self.threads
                        .entry(thread_key())
                        .or_default()
                        .names
                        .push(text);
                }
            }
            "thread_sort_index" => {
                if let Some(index) = whole_arg(bytes, entry, "sort_index") {
                    self.threads.entry(thread_key()).or_default().sort_index = Some(index);
                }
            }
            TRACK_ENTRY => self.own.push(ExtensionTrack::read(bytes, entry)),
            "trace_buffer_overflowed" => {
                sink.diagnose(
                    Diagnostic::DroppedByWriter,
                    1,
                    &format!("process {pid}: the trace buffer overflowed"),
                );
            }
            other => {
                let mut first = true;
                each_arg(bytes, entry, &mut |_, value| {
                    if first {
                        sink.fact(&format!("process.{pid}.{other}"), value);
                    }
                    first = false;
                });
            }
        }
    }

    fn process(&mut self, pid: &str) -> &mut Process {
        self.processes.entry(pid.to_owned()).or_default()
    }

    /// Returns the operating-system process of the host: the first one with the label `CPU`.
    pub(crate) fn host_pid(&self, rows: &Rows) -> Option<i64> {
        rows.all
            .iter()
            .filter(|row| {
                self.processes
                    .get(&row.pid)
                    .is_some_and(|process| process.labels.iter().any(|label| label == "CPU"))
            })
            .find_map(|row| row.pid.parse().ok())
    }

    /// Returns whether `wanted` accepts the name of any process.
    pub(crate) fn any_process_named(&self, mut wanted: impl FnMut(&str) -> bool) -> bool {
        let by_name = |process: &Process| process.name.as_deref().is_some_and(&mut wanted);
        self.processes.values().any(by_name)
    }

    /// Emits the description of each track.
    pub(crate) fn describe<S: EventSink>(&self, bytes: &[u8], rows: &Rows, sink: &mut S) {
        let own_keys: FxHashSet<&str> = self.own.iter().map(|own| own.key.as_str()).collect();
        let mut groups: FxHashSet<String> = FxHashSet::default();
        let executors = Executors::new(rows);
        for (index, row) in rows.all.iter().enumerate() {
            if own_keys.contains(row.key.as_str()) {
                continue;
            }
            let process = self.processes.get(&row.pid);
            let executor = executors.of_row(row);
            let group = executors.group_key(row, executor);
            if !row.pid.is_empty()
                && !own_keys.contains(group.as_str())
                && groups.insert(group.clone())
            {
                let executor = executors.of_group(row, executor);
                Self::describe_group(&group, &row.pid, process, executor, sink);
            }
            let parent = (!row.pid.is_empty()).then(|| sink.track(&group));
            let track = rows.id(index);
            let patch = match row.kind {
                RowKind::Counter | RowKind::Async => TrackPatch {
                    name: (!row.label.is_empty()).then_some(row.label.as_str()),
                    kind: Some(if row.kind == RowKind::Counter {
                        TrackKind::Counter
                    } else {
                        TrackKind::Async
                    }),
                    pid: row.pid.parse().ok(),
                    ..TrackPatch::default()
                },
                RowKind::Thread => {
                    let thread = self.threads.get(row.thread_key());
                    let facts = thread_facts(bytes, row, process, thread, executor);
                    sink.describe(
                        track,
                        TrackPatch {
                            name: facts.name.as_deref(),
                            ..TrackPatch::default()
                        },
                    );
                    facts.patch
                }
            };
            sink.describe(track, TrackPatch { parent, ..patch });
        }
        for own in &self.own {
            own.describe(sink);
        }
    }

    fn describe_group<S: EventSink>(
        key: &str,
        pid: &str,
        process: Option<&Process>,
        executor: Executor,
        sink: &mut S,
    ) {
        let group = sink.track(key);
        let name = process.and_then(|process| process.title(executor));
        let is_text = pid.parse::<f64>().is_err();
        sink.describe(
            group,
            TrackPatch {
                name: name.as_deref().or(is_text.then_some(pid)),
                kind: Some(TrackKind::Group),
                pid: pid.parse().ok(),
                device: match executor {
                    Executor::Host => None,
                    _ => device_of(pid, process),
                },
                sort_index: process.and_then(|process| process.sort_index(executor)),
                ..TrackPatch::default()
            },
        );
    }
}

/// Processes that have host events, and processes that have device events.
#[derive(Debug, Default)]
struct Executors<'a> {
    host: FxHashSet<&'a str>,
    device: FxHashSet<&'a str>,
}

impl<'a> Executors<'a> {
    fn new(rows: &'a Rows) -> Self {
        let mut found = Self::default();
        for row in &rows.all {
            if row.device_event.is_some() {
                found.device.insert(&row.pid);
            }
            if row.has_host_event {
                found.host.insert(&row.pid);
            }
        }
        found
    }

    /// Returns the executor of a row's events: from their categories, or else from the process's
    /// other rows.
    fn of_row(&self, row: &Row) -> Executor {
        match (row.device_event.is_some(), row.has_host_event) {
            (true, _) => Executor::Device,
            (false, true) => Executor::Host,
            (false, false) if self.host.contains(&*row.pid) => Executor::Host,
            (false, false) => Executor::Unknown,
        }
    }

    /// Returns the key of a row's group. A process and a device with the same number are two
    /// groups.
    fn group_key(&self, row: &Row, executor: Executor) -> String {
        let is_both = self.host.contains(&*row.pid) && self.device.contains(&*row.pid);
        if is_both && executor == Executor::Device {
            device_key(&row.pid)
        } else {
            row.pid.clone()
        }
    }

    /// Returns the executor of the events of a row's group.
    fn of_group(&self, row: &Row, executor: Executor) -> Executor {
        match executor {
            Executor::Unknown if self.device.contains(&*row.pid) => Executor::Device,
            executor => executor,
        }
    }
}

impl Process {
    /// Returns the sort position among processes: kineto sorts devices after all host processes.
    fn sort_index(&self, executor: Executor) -> Option<i64> {
        match executor {
            Executor::Host => self.sort_indexes.iter().min().copied(),
            Executor::Device => self.sort_indexes.iter().max().copied(),
            Executor::Unknown => self.sort_indexes.last().copied(),
        }
    }

    /// Returns the title, such as `python3 (GPU 0)`. A host process has no device label, and a
    /// device has no host label.
    fn title(&self, executor: Executor) -> Option<String> {
        let name = self.name.as_deref().unwrap_or_default().trim();
        let fits = |label: &&String| match executor {
            Executor::Host => device_of_label(label).is_none(),
            Executor::Device => *label != "CPU",
            Executor::Unknown => true,
        };
        let labels: Vec<&str> = self
            .labels
            .iter()
            .filter(fits)
            .map(|label| &**label)
            .collect();
        let labels = labels.join(", ");
        match (name.is_empty(), labels.is_empty()) {
            (true, true) => None,
            (true, false) => Some(labels),
            (false, true) => Some(name.to_owned()),
            // MTIA's processes have their label as name.
            (false, false) if name == labels => Some(labels),
            (false, false) => Some(format!("{name} ({labels})")),
        }
    }
}

/// Returns the ordinal of the device that a process represents: from its label (`GPU 0`, `MTIA 17`)
/// or its name (`/device:GPU:0`).
fn device_of(pid: &str, process: Option<&Process>) -> Option<u32> {
    let from_name = |name: &str| {
        let rest = name.split_once("/device:")?.1;
        let ordinal = rest.split_once(':')?.1;
        let digits = ordinal.split(|c: char| !c.is_ascii_digit()).next()?;
        if rest.starts_with("CPU") {
            return None;
        }
        digits.parse().ok()
    };
    process
        .and_then(|process| {
            process
                .labels
                .iter()
                .find_map(|label| device_of_label(label))
        })
        .or_else(|| process.and_then(|process| process.name.as_deref().and_then(from_name)))
        .or_else(|| from_name(pid))
}

/// Parses the ordinal of a label: 3 for `GPU 3`.
fn device_of_label(label: &str) -> Option<u32> {
    let (word, number) = label.rsplit_once(' ')?;
    let is_word = word.bytes().all(|byte| byte.is_ascii_uppercase()) && word != "CPU";
    is_word.then(|| number.parse().ok()).flatten()
}

struct ThreadFacts {
    name: Option<String>,
    patch: TrackPatch<'static>,
}

fn thread_facts(
    bytes: &[u8],
    row: &Row,
    process: Option<&Process>,
    thread: Option<&Thread>,
    executor: Executor,
) -> ThreadFacts {
    let tid_number = row.label.parse::<i64>().ok();
    let mut name = thread
        .and_then(|thread| thread.name_of(executor))
        .map(str::to_owned);
    let mut device = match executor {
        Executor::Host => None,
        _ => device_of(&row.pid, process),
    };
    let is_neuron = row.pid.contains("Neuron-runtime");
    let core = row
        .label
        .strip_prefix("nc")
        .and_then(|number| number.parse().ok())
        .filter(|_| is_neuron);
    device = device.or(core);
    let by_device = row.device_event.is_some();
    let mut stream = None;
    if let Some(at) = row.device_event
        && let Ok(entry) = entry(bytes, at)
    {
        if let Some(ordinal) = whole_arg(bytes, &entry, "device") {
            device = u32::try_from(ordinal).ok().or(device);
        }
        stream = whole_arg(bytes, &entry, "stream");
    }
    let is_device = by_device || device.is_some();
    if is_device {
        device = device.or_else(|| row.pid.parse().ok().filter(|ordinal| *ordinal < 1_024));
        stream = stream
            .or_else(|| name.as_deref().and_then(stream_of_name))
            .or(tid_number);
        if name.is_none()
            && let Some(stream) = stream
        {
            name = Some(format!("stream {stream}"));
        }
    }
    if name.is_none() && tid_number.is_none() {
        let empty = row.label.is_empty();
        name = (!empty)
            .then(|| row.label.clone())
            .or_else(|| (row.pid.is_empty()).then(|| "global".to_owned()));
    }
    let is_steps = is_device && name.as_deref() == Some("Steps");
    let kind = match (is_steps, is_device) {
        (true, _) => TrackKind::Steps,
        (_, true) => TrackKind::DeviceQueue,
        _ => TrackKind::Thread,
    };
    ThreadFacts {
        name,
        patch: TrackPatch {
            kind: Some(kind),
            pid: row.pid.parse().ok(),
            tid: tid_number,
            device,
            stream,
            sort_index: thread.and_then(|thread| thread.sort_index),
            ..TrackPatch::default()
        },
    }
}

impl Thread {
    /// Returns the name of the thread, or of the stream with the same number.
    fn name_of(&self, executor: Executor) -> Option<&str> {
        let is_stream = |name: &&str| name.to_ascii_lowercase().contains("stream");
        let names = || {
            let names = self.names.iter().rev().map(|name| name.trim());
            names.filter(|name| !name.is_empty())
        };
        let fitting = match executor {
            Executor::Host => names().find(|name| !is_stream(name)),
            Executor::Device => names().find(is_stream),
            Executor::Unknown => None,
        };
        fitting.or_else(|| names().next())
    }
}

/// Parses the stream of a name: 7 for `stream 7`, 13 for `Stream #13(compute)`.
fn stream_of_name(name: &str) -> Option<i64> {
    let lower = name.to_ascii_lowercase();
    let rest = lower.split_once("stream")?.1.trim_start();
    let rest = rest.strip_prefix('#').unwrap_or(rest);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn each_arg(bytes: &[u8], entry: &Entry, visit: &mut dyn FnMut(&str, ArgValue<'_>)) {
    if entry.args.json_type == JsonType::Object {
        let _ = visit_members(bytes, entry.args.span.start, visit);
    }
}

fn text_arg(bytes: &[u8], entry: &Entry, wanted: &str) -> Option<String> {
    let mut found = None;
    each_arg(bytes, entry, &mut |key, value| {
        if key == wanted {
            found = match value {
                ArgValue::Str(text) => Some(text.to_owned()),
                ArgValue::Int(number) => Some(number.to_string()),
                _ => None,
            };
        }
    });
    found
}

fn whole_arg(bytes: &[u8], entry: &Entry, wanted: &str) -> Option<i64> {
    let mut found = None;
    each_arg(bytes, entry, &mut |key, value| {
        if key == wanted {
            found = match value {
                ArgValue::Int(number) => Some(number),
                ArgValue::Str(text) => text.trim().parse().ok(),
                _ => None,
            };
        }
    });
    found
}

impl ExtensionTrack {
    fn read(bytes: &[u8], entry: &Entry) -> Self {
        let mut own = Self::default();
        each_arg(bytes, entry, &mut |key, value| match (key, value) {
            ("key", ArgValue::Str(text)) => text.clone_into(&mut own.key),
            ("name", ArgValue::Str(text)) => own.name = Some(text.to_owned()),
            ("kind", ArgValue::Str(text)) => {
                own.kind = KIND_WORDS
                    .iter()
                    .find(|(word, _)| *word == text)
                    .map(|(_, kind)| *kind);
            }
            ("parent", ArgValue::Str(text)) => own.parent = Some(text.to_owned()),
            ("pid", ArgValue::Int(number)) => own.pid = Some(number),
            ("tid", ArgValue::Int(number)) => own.tid = Some(number),
            ("device", ArgValue::Int(number)) => own.device = u32::try_from(number).ok(),
            ("stream", ArgValue::Int(number)) => own.stream = Some(number),
            ("sort_index", ArgValue::Int(number)) => own.sort_index = Some(number),
            ("unit", ArgValue::Str(text)) => own.unit = Some(text.to_owned()),
            ("derived", ArgValue::Bool(derived)) => own.derived = Some(derived),
            ("category", ArgValue::Str(text)) => own.category = Some(text.to_owned()),
            _ => {}
        });
        own
    }

    fn describe<S: EventSink>(&self, sink: &mut S) {
        let track = sink.track(&self.key);
        let parent = self.parent.as_deref().map(|key| sink.track(key));
        let category = self.category.as_deref().map(|text| sink.name(text));
        sink.describe(
            track,
            TrackPatch {
                name: self.name.as_deref(),
                kind: self.kind,
                parent,
                pid: self.pid,
                tid: self.tid,
                device: self.device,
                stream: self.stream,
                sort_index: self.sort_index,
                unit: self.unit.as_deref(),
                derived: self.derived,
                category,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_devices_are_read_off_names() {
        assert_eq!(stream_of_name("stream 7 "), Some(7));
        assert_eq!(stream_of_name("Stream #13(compute)"), Some(13));
        assert_eq!(stream_of_name("PACKET"), None);
        let labelled = |label: &str| {
            let process = Process {
                labels: vec![label.to_owned()],
                ..Process::default()
            };
            device_of("1", Some(&process))
        };
        assert_eq!(labelled("GPU 3"), Some(3));
        assert_eq!(labelled("MTIA 17"), Some(17));
        assert_eq!(labelled("CPU"), None);
        assert_eq!(device_of("/device:GPU:1", None), Some(1));
        assert_eq!(device_of("/host:CPU", None), None);
    }
}
