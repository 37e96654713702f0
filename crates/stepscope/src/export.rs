//! From events to the file that viewers open: `HOST.xplane.pb`, written atomically.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use stepscope_formats::xplane::{
    COUNTERS_LINE, EventId, EventKind, HOST_PLANE, LineWriter, PlaneWriter, Stat, StatId,
    StatValue, TrackRecord, XSpaceWriter,
};

use crate::clock::Timeline;
use crate::decode::{Arg, Decoder, Event, Index, Kind, Thread, Value, Window};
use crate::names;

/// Id of the line with the counters; no thread has it.
const COUNTERS_ID: i64 = -1;

/// What the file says besides the events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Name of the machine.
    pub(crate) host: String,
    /// Plane stats: key and value.
    pub(crate) stats: Vec<(String, String)>,
    /// What the user should know.
    pub(crate) warnings: Vec<String>,
    /// Put together from what a killed program left.
    pub(crate) recovered: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Spans and steps, finished or not.
    pub(crate) spans: u64,
    /// Of them, those that were open when the recording ended.
    pub(crate) unfinished: u64,
    /// Instants.
    pub(crate) instants: u64,
    /// Samples of counters.
    pub(crate) samples: u64,
    /// Size of the file.
    pub(crate) bytes: u64,
}

/// Where the texts of name numbers come from.
pub(crate) enum Names<'a> {
    /// This process.
    Own,
    /// A name table that another process left.
    Table(HashMap<u32, &'a [u8]>),
}

impl Names<'_> {
    fn text(&self, id: u32) -> std::borrow::Cow<'_, str> {
        let text = match self {
            Self::Own => names::text(id).map(Into::into),
            Self::Table(table) => table.get(&id).map(|text| String::from_utf8_lossy(text)),
        };
        text.unwrap_or_else(|| format!("name {id}").into())
    }
}

/// Writes a recording to `path`, or beside it under another name if there is a file: a temporary
/// file first, then fsync, then the name. `before` is told the size and the name just before.
pub(crate) fn write_file(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &Facts,
    before: &mut dyn FnMut(u64, &Path),
) -> io::Result<(PathBuf, Written)> {
    let (temporary, file) = temporary_beside(path)?;
    let result = (|| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut written = write(&mut out, index, names, facts)?;
        out.flush()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        written.bytes = file.metadata()?.len();
        let path = publish(&temporary, path, &mut |path| before(written.bytes, path))?;
        sync_folder(&path);
        Ok((path, written))
    })();
    let _ = fs::remove_file(&temporary);
    result
}

/// Gives a finished file its name, never replacing another file.
pub(crate) fn publish(
    temporary: &Path,
    path: &Path,
    before: &mut dyn FnMut(&Path),
) -> io::Result<PathBuf> {
    for attempt in 0..1_000_u32 {
        let path = numbered(path, attempt);
        if path.exists() {
            continue;
        }
        before(&path);
        match fs::hard_link(temporary, &path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // A file system without links.
            Err(_) => return fs::rename(temporary, &path).map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// `HOST.xplane.pb`, `HOST_PID.xplane.pb`, `HOST_PID_2.xplane.pb`, ...
fn numbered(path: &Path, attempt: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (host, extension) = name.split_once(".xplane.pb").map_or_else(
        || (name.as_ref(), ""),
        |(host, rest)| (host, if rest.is_empty() { ".xplane.pb" } else { "" }),
    );
    let pid = std::process::id();
    match attempt {
        0 => path.to_owned(),
        1 => path.with_file_name(format!("{host}_{pid}{extension}")),
        _ => path.with_file_name(format!("{host}_{pid}_{attempt}{extension}")),
    }
}

/// A new file in the same folder under a name that listings pass over. Nobody else has it, and a
/// link with its name is not followed.
pub(crate) fn temporary_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..TEMPORARY_NAMES {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".tmp-{}-{number}", std::process::id()));
        let temporary = path.with_file_name(name);
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Names that are tried: a killed program of the same number may have left some.
const TEMPORARY_NAMES: u32 = 100;

/// Makes the rename itself durable, where the file system can.
pub(crate) fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
}

fn write(
    out: &mut impl Write,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &Facts,
) -> io::Result<Written> {
    let mut space = XSpaceWriter::new(out);
    let timeline = index.timeline();
    let mut written = Written::default();
    let mut decoder = Decoder::new(index);
    let mut first = true;
    while let Some(window) = decoder.window() {
        let mut plane = PlaneWriter::new(HOST_PLANE).with_id(1);
        if first {
            describe(&mut plane, facts);
        } else {
            plane.continues();
        }
        PlaneFiller::new(&mut plane, names, &timeline).fill(index, &window, &mut written);
        space.plane(&plane)?;
        first = false;
    }
    let start = timeline.unix_ns();
    let stop = start.saturating_add(timeline.ps(decoder.last_ticks()).max(0) / 1_000);
    space.task_environment(start.max(0).cast_unsigned(), stop.max(0).cast_unsigned())?;
    space.hostname(&facts.host)?;
    for warning in &facts.warnings {
        space.warning(warning)?;
    }
    space.finish()?;
    Ok(written)
}

fn describe(plane: &mut PlaneWriter, facts: &Facts) {
    for (key, value) in &facts.stats {
        let id = plane.stat(key);
        match value.parse::<i64>() {
            Ok(number) => plane.add_stat(id, StatValue::Int(number)),
            Err(_) => plane.add_stat(id, StatValue::Str(value)),
        }
    }
    let id = plane.bool_argument("kind.Rust");
    plane.add_stat(id, StatValue::Int(1));
    if facts.recovered {
        let id = plane.bool_argument("stepscope.recovered");
        plane.add_stat(id, StatValue::Int(1));
    }
}

/// Turns one window into lines of one plane.
struct PlaneFiller<'p> {
    plane: &'p mut PlaneWriter,
    names: &'p Names<'p>,
    timeline: &'p Timeline,
    /// Events by name number and kind; names that are texts are not in it.
    events: HashMap<(u32, bool), EventId>,
    counters: HashMap<String, EventId>,
    /// Arguments by name number, true for those that are true or false.
    args: HashMap<(u32, bool), StatId>,
    value_stat: StatId,
    root_stat: StatId,
    unfinished_stat: StatId,
}

impl<'p> PlaneFiller<'p> {
    fn new(plane: &'p mut PlaneWriter, names: &'p Names<'p>, timeline: &'p Timeline) -> Self {
        Self {
            value_stat: plane.stat("counter_value"),
            root_stat: plane.stat("_r"),
            unfinished_stat: plane.unfinished(),
            plane,
            names,
            timeline,
            events: HashMap::new(),
            counters: HashMap::new(),
            args: HashMap::new(),
        }
    }

    fn fill(mut self, index: &Index<'_>, window: &Window<'_>, written: &mut Written) {
        let ids = line_ids(index);
        let mut counters = LineWriter::new(COUNTERS_ID, COUNTERS_LINE, 0);
        for (serial, events) in &window.threads {
            let unknown = Thread::default();
            let thread = index.threads.get(serial).unwrap_or(&unknown);
            let id = ids.get(serial).copied().unwrap_or(i64::from(*serial));
            let mut line = LineWriter::new(id, &line_name(thread), 0);
            for event in events {
                self.event(window, event, &mut line, &mut counters, written);
            }
            if !line.is_empty() {
                let record = TrackRecord {
                    line: Some(id),
                    tid: Some(thread.tid.cast_signed()),
                    ..TrackRecord::default()
                };
                if thread.tid.cast_signed() != id {
                    self.plane.describe(&record);
                }
                self.plane.add_line(line);
            }
        }
        if !counters.is_empty() {
            self.plane.add_line(counters);
        }
    }

    fn event(
        &mut self,
        window: &Window<'_>,
        event: &Event,
        line: &mut LineWriter,
        counters: &mut LineWriter,
        written: &mut Written,
    ) {
        let begin = self.timeline.ps(event.begin);
        let args = window.args(event);
        match event.kind {
            Kind::Counter => {
                let counter = self.counter(event, args);
                let value = f64::from_bits(event.end);
                counters.sample(counter, begin, self.value_stat, value);
                written.samples += 1;
            }
            Kind::Instant => {
                let name = self.event_id(event, args);
                let stats = self.stats(event, args);
                line.point(name, begin, &stats);
                written.instants += 1;
            }
            Kind::Span | Kind::Step => {
                let name = self.event_id(event, args);
                let length = self.timeline.ps(event.end).saturating_sub(begin).max(0);
                if args.is_empty() && event.kind == Kind::Span && !event.unfinished {
                    line.span(name, begin, length, &[]);
                } else {
                    let stats = self.stats(event, args);
                    line.span(name, begin, length, &stats);
                }
                written.spans += 1;
                written.unfinished += u64::from(event.unfinished);
            }
        }
    }

    fn stats<'a>(&mut self, event: &Event, args: &'a [Arg<'_>]) -> Vec<Stat<'a>> {
        let mut stats = Vec::with_capacity(args.len() + 1);
        for arg in args.iter().filter(|arg| arg.name != 0) {
            let is_bool = matches!(arg.value, Value::Bool(_));
            let id = match self.args.get(&(arg.name, is_bool)) {
                Some(id) => *id,
                None => self.argument(arg.name, is_bool, event.kind),
            };
            let value = match &arg.value {
                Value::Int(value) => StatValue::Int(*value),
                Value::Uint(value) => StatValue::Uint(*value),
                Value::Double(value) => StatValue::Double(*value),
                Value::Bool(value) => StatValue::Int(i64::from(*value)),
                Value::Text(text) if text.len() > 64 => StatValue::Str(text),
                Value::Text(text) => StatValue::Text(self.plane.text(text)),
            };
            stats.push(Stat { id, value });
        }
        if event.kind == Kind::Step {
            stats.push(Stat {
                id: self.root_stat,
                value: StatValue::Int(1),
            });
        }
        if event.unfinished {
            stats.push(Stat {
                id: self.unfinished_stat,
                value: StatValue::Int(1),
            });
        }
        stats
    }

    /// A user's argument has no meaning to readers, whatever its name; a step's number has.
    fn argument(&mut self, name: u32, is_bool: bool, kind: Kind) -> StatId {
        let text = self.names.text(name).into_owned();
        if kind == Kind::Step && text == "step_num" {
            return self.plane.stat(&text);
        }
        let id = if is_bool {
            self.plane.bool_argument(&text)
        } else {
            self.plane.argument(&text)
        };
        self.args.insert((name, is_bool), id);
        id
    }

    fn event_id(&mut self, event: &Event, args: &[Arg<'_>]) -> EventId {
        let instant = event.kind == Kind::Instant;
        if event.name != 0
            && let Some(id) = self.events.get(&(event.name, instant))
        {
            return *id;
        }
        let name = self.name(event, args);
        let kind = if instant {
            EventKind::Instant
        } else {
            EventKind::Slice
        };
        let id = self.plane.event_of(&name, "", kind);
        if event.name != 0 {
            self.events.insert((event.name, instant), id);
        }
        id
    }

    fn counter(&mut self, event: &Event, args: &[Arg<'_>]) -> EventId {
        let name = self.name(event, args);
        if let Some(id) = self.counters.get(&name) {
            return *id;
        }
        let id = self.plane.counter(&name, &TrackRecord::default());
        self.counters.insert(name, id);
        id
    }

    fn name(&self, event: &Event, args: &[Arg<'_>]) -> String {
        if event.name != 0 {
            return self.names.text(event.name).into_owned();
        }
        args.iter()
            .find_map(|arg| match &arg.value {
                Value::Text(text) if arg.name == 0 => Some(text.to_string()),
                _ => None,
            })
            .unwrap_or_else(|| "unnamed".to_owned())
    }
}

/// One id for each thread: its own, unless the system gave it to another thread before.
fn line_ids(index: &Index<'_>) -> HashMap<u32, i64> {
    let mut ids = HashMap::new();
    let mut taken = HashSet::new();
    for (serial, thread) in &index.threads {
        let tid = thread.tid.cast_signed();
        let id = if tid == 0 || taken.contains(&tid) {
            i64::from(*serial) << 32 | tid
        } else {
            tid
        };
        taken.insert(id);
        ids.insert(*serial, id);
    }
    ids
}

fn line_name(thread: &Thread) -> String {
    if thread.name.is_empty() {
        return format!("thread {}", thread.tid);
    }
    thread.name.clone()
}
