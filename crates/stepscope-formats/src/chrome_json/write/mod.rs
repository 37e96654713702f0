//! Chrome JSON writer: a sink that writes events as they are emitted.
//!
//! Slices are `X`, instants `i`, counters `C`, flows `s`/`t`/`f`, slices of async tracks `b`/`e`.
//! Times are microseconds with up to six decimals, so picoseconds are exact. A track's key is split
//! at its last slash into `pid` and `tid`; reading them back gives the same key. Properties that
//! Chrome JSON cannot express go to fields named `stepscope`; see `docs/formats/chrome-json.md`.
//!
//! One thread writes continuously, with a buffer of one megabyte. Forks keep their text in memory
//! until they are merged, so readers that emit into this sink should use one thread.

mod extension;
mod interner;
mod track_info;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{
    ArgRef, ArgSource, ArgValue, Diagnostic, Epoch, EventSink, FlowBind, FlowDirection, InstantIn,
    NameId, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use crate::chrome_json::dialect::stepscope::TRACK_ENTRY;
use crate::json::write::{self, Disguise};
use extension::{Extra, print_types};
use interner::InternedTexts;
use track_info::TrackInfo;

/// Buffer size at which text goes to the writer.
const FLUSH_BYTES: usize = 1 << 20;

/// Sink that writes Chrome JSON. See the module documentation.
pub struct ChromeSink<W: io::Write> {
    /// `None` in a fork.
    out: Option<W>,
    error: Option<io::Error>,
    buffer: Vec<u8>,
    head_written: bool,
    any_event: bool,
    epoch: Epoch,
    names: InternedTexts,
    tracks: InternedTexts,
    /// Each track's `"pid":…,"tid":…` and, where these cannot express its key, the key.
    places: Vec<TrackFields>,
    kinds: FxHashMap<TrackId, TrackKind>,
    described: Vec<(TrackId, TrackInfo)>,
    sources: Vec<Arc<dyn ArgSource>>,
    facts: Vec<(String, Vec<u8>, Disguise)>,
    modules: Vec<(String, Option<u64>)>,
    diagnostics: Vec<(Diagnostic, u64, String)>,
    /// Prefix that makes ids of async slices unique between forks, independent of timing.
    id_prefix: String,
    next_id: u64,
    forks: AtomicU64,
}

#[derive(Clone, Debug)]
struct TrackFields {
    /// Encoded `"pid":1,"tid":2`.
    fields: Arc<[u8]>,
    pid: Arc<str>,
    key: Option<Arc<str>>,
}

impl<W: io::Write + Send> ChromeSink<W> {
    /// Creates a sink that writes to `out`; it writes nothing before the epoch is known.
    pub fn new(out: W) -> Self {
        let mut sink = Self {
            out: Some(out),
            error: None,
            buffer: Vec::new(),
            head_written: false,
            any_event: false,
            epoch: Epoch::default(),
            names: InternedTexts::default(),
            tracks: InternedTexts::default(),
            places: Vec::new(),
            kinds: FxHashMap::default(),
            described: Vec::new(),
            sources: Vec::new(),
            facts: Vec::new(),
            modules: Vec::new(),
            diagnostics: Vec::new(),
            id_prefix: String::new(),
            next_id: 0,
            forks: AtomicU64::new(0),
        };
        sink.names.add("");
        sink
    }

    /// Writes the remaining data (tracks, facts, diagnostics), closes the list and the object, and
    /// returns the flushed writer.
    ///
    /// # Errors
    ///
    /// Returns the first error of the writer since the beginning; the output is then incomplete.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.head_written {
            self.write_head();
        }
        self.write_tracks();
        self.write_end();
        self.flush_buffer();
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut out = self
            .out
            .ok_or_else(|| io::Error::other("a fork cannot be finished"))?;
        out.flush()?;
        Ok(out)
    }

    fn flush_buffer(&mut self) {
        let Some(out) = &mut self.out else {
            return;
        };
        if self.error.is_none()
            && let Err(error) = out.write_all(&self.buffer)
        {
            self.error = Some(error);
        }
        self.buffer.clear();
    }

    fn write_head(&mut self) {
        self.head_written = true;
        let out = &mut self.buffer;
        out.extend_from_slice(b"{\"stepscope\":{\"version\":1,\"originNanoseconds\":");
        write::whole(out, self.epoch.origin_ns.into());
        if let Some(unix_ns) = self.epoch.unix_ns {
            out.extend_from_slice(b",\"unixNanoseconds\":");
            write::whole(out, unix_ns.into());
        }
        out.extend_from_slice(b"},\n\"displayTimeUnit\":\"ns\",");
        if let Some(unix_ns) = self.epoch.unix_ns
            && let Some(base) = unix_ns.checked_sub(self.epoch.origin_ns)
        {
            out.extend_from_slice(b"\"baseTimeNanoseconds\":");
            write::whole(out, base.into());
            out.push(b',');
        }
        out.extend_from_slice(b"\n\"traceEvents\":[\n");
    }

    /// Begins an entry: `{"ph":"X"`.
    fn open(&mut self, phase: u8) {
        if self.out.is_some() && self.buffer.len() >= FLUSH_BYTES {
            self.flush_buffer();
        }
        if self.any_event {
            self.buffer.extend_from_slice(b",\n");
        }
        self.any_event = true;
        self.buffer.extend_from_slice(b"{\"ph\":\"");
        self.buffer.push(phase);
        self.buffer.push(b'"');
    }

    fn text(&self, id: NameId) -> Arc<str> {
        self.names.get(id.0).cloned().unwrap_or_default()
    }

    fn place(&self, track: TrackId) -> TrackFields {
        self.places
            .get(track.index())
            .cloned()
            .unwrap_or_else(|| TrackFields::new(""))
    }

    fn field(&mut self, name: &str, text: &str) {
        self.buffer.extend_from_slice(b",\"");
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.extend_from_slice(b"\":");
        write::string(&mut self.buffer, text);
    }

    fn category_and_name(&mut self, category: NameId, name: NameId) {
        if category != NameId::EMPTY {
            let text = self.text(category);
            self.field("cat", &text);
        }
        let text = self.text(name);
        self.field("name", &text);
    }

    fn where_and_when(&mut self, place: &TrackFields, at: Time) {
        self.buffer.push(b',');
        self.buffer.extend_from_slice(&place.fields);
        self.buffer.extend_from_slice(b",\"ts\":");
        let origin_ps = i128::from(self.epoch.origin_ns) * 1_000;
        write::microseconds(&mut self.buffer, origin_ps + i128::from(at.ps()));
    }

    /// Writes `"args":{…}` if there are any; returns the arguments in replacement form.
    fn args(&mut self, args: ArgRef) -> Vec<(String, Disguise)> {
        let mut disguises = Vec::new();
        let Some((source, token)) = args.get() else {
            return disguises;
        };
        let Some(source) = self.sources.get(usize::from(source.0)).cloned() else {
            return disguises;
        };
        let buffer = &mut self.buffer;
        let mut first = true;
        let read = source.visit(token, &mut |key, value| {
            buffer.extend_from_slice(if first { b",\"args\":{" } else { b"," });
            first = false;
            write::string(buffer, key);
            buffer.push(b':');
            let disguise = write::value(buffer, value);
            if disguise != Disguise::None {
                disguises.push((key.to_owned(), disguise));
            }
        });
        if !first {
            self.buffer.push(b'}');
        }
        if let Err(error) = read {
            self.diagnose(Diagnostic::Unreadable, 1, &format!("arguments: {error}"));
        }
        disguises
    }

    /// Starts an event: all fields except the arguments and `stepscope`.
    fn event(&mut self, phase: u8, place: &TrackFields, at: Time, category: NameId, name: NameId) {
        self.open(phase);
        self.category_and_name(category, name);
        self.where_and_when(place, at);
    }

    fn is_async(&self, track: TrackId) -> bool {
        self.kinds.get(&track) == Some(&TrackKind::Async)
    }

    fn new_id(&mut self) -> String {
        self.next_id += 1;
        format!("{}{}", self.id_prefix, self.next_id)
    }

    fn write_flow(
        &mut self,
        place: &TrackFields,
        at: Time,
        flow: SliceFlow,
        bind: FlowBind,
        attached: bool,
    ) {
        let phase = match flow.direction {
            FlowDirection::Out => b's',
            FlowDirection::Through => b't',
            FlowDirection::In => b'f',
        };
        self.open(phase);
        let category = self.text(flow.key.category);
        self.field("cat", &category);
        self.field("name", &category);
        self.buffer.extend_from_slice(b",\"id\":");
        // Parsers that only support floats cannot represent numbers above 2^53.
        if flow.key.id < 1 << 53 {
            write::whole(&mut self.buffer, flow.key.id.into());
        } else {
            let id = format!("\"{:#x}\"", flow.key.id);
            self.buffer.extend_from_slice(id.as_bytes());
        }
        match (bind, flow.direction) {
            (FlowBind::Enclosing, _) => self.field("bp", "e"),
            (FlowBind::Next, FlowDirection::In) => {}
            // Chrome has no value for this; other readers bind the flow to the enclosing slice.
            (FlowBind::Next, _) => self.field("bp", "n"),
        }
        self.where_and_when(place, at);
        Extra {
            key: place.key.as_deref(),
            attached,
            has_id: true,
            ..Extra::default()
        }
        .print(&mut self.buffer);
        self.buffer.push(b'}');
    }

    fn write_tracks(&mut self) {
        let mut by_track: FxHashMap<TrackId, TrackInfo> = FxHashMap::default();
        for (track, patch) in std::mem::take(&mut self.described) {
            by_track.entry(track).or_default().merge(patch);
        }
        let count = u32::try_from(self.tracks.len()).unwrap_or(u32::MAX);
        let mut named_pids: FxHashSet<Arc<str>> = FxHashSet::default();
        for id in 0..count {
            let track = TrackId(id);
            let Some(key) = self.tracks.get(id).cloned() else {
                continue;
            };
            let place = self.place(track);
            let known = by_track.get(&track).cloned().unwrap_or_default();
            // The name of the group whose key is this process's.
            if let Some(group) = self.tracks.find(&place.pid).map(TrackId)
                && named_pids.insert(Arc::clone(&place.pid))
                && let Some(group) = by_track.get(&group)
            {
                let group = group.clone();
                self.metadata(&place, "process_name", "name", group.name.as_deref());
                self.sort_index(&place, "process_sort_index", group.sort_index);
            }
            let is_row = matches!(
                known.kind.unwrap_or_default(),
                TrackKind::Thread | TrackKind::DeviceQueue | TrackKind::Steps
            );
            if is_row {
                self.metadata(&place, "thread_name", "name", known.name.as_deref());
                self.sort_index(&place, "thread_sort_index", known.sort_index);
            }
            self.open(b'M');
            self.field("name", TRACK_ENTRY);
            self.buffer.push(b',');
            self.buffer.extend_from_slice(&place.fields);
            self.buffer.extend_from_slice(b",\"args\":{\"key\":");
            write::string(&mut self.buffer, &key);
            track_info::print(&known, &mut self.buffer);
            self.buffer.extend_from_slice(b"}}");
        }
    }

    fn metadata(&mut self, place: &TrackFields, entry: &str, field: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        self.open(b'M');
        self.field("name", entry);
        self.buffer.push(b',');
        self.buffer.extend_from_slice(&place.fields);
        self.buffer.extend_from_slice(b",\"args\":{\"");
        self.buffer.extend_from_slice(field.as_bytes());
        self.buffer.extend_from_slice(b"\":");
        write::string(&mut self.buffer, text);
        self.buffer.extend_from_slice(b"}}");
    }

    fn sort_index(&mut self, place: &TrackFields, entry: &str, index: Option<i64>) {
        let Some(index) = index else { return };
        self.open(b'M');
        self.field("name", entry);
        self.buffer.push(b',');
        self.buffer.extend_from_slice(&place.fields);
        self.buffer.extend_from_slice(b",\"args\":{\"sort_index\":");
        write::whole(&mut self.buffer, index.into());
        self.buffer.extend_from_slice(b"}}");
    }

    fn write_end(&mut self) {
        let out = &mut self.buffer;
        out.extend_from_slice(b"\n],\n\"stepscopeEnd\":{\"facts\":{");
        for (index, (key, value, _)) in self.facts.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
            write::string(out, key);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.extend_from_slice(b"},\n\"types\":");
        let disguises: Vec<_> = self
            .facts
            .iter()
            .filter(|fact| fact.2 != Disguise::None)
            .map(|(key, _, disguise)| (key.clone(), *disguise))
            .collect();
        print_types(out, &disguises);
        out.extend_from_slice(b",\n\"modules\":[");
        for (index, (name, id)) in self.modules.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
            out.extend_from_slice(b"{\"name\":");
            write::string(out, name);
            if let Some(id) = id {
                out.extend_from_slice(b",\"id\":");
                write::whole(out, (*id).into());
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"],\n\"diagnostics\":[");
        for (index, (what, count, detail)) in self.diagnostics.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
            out.extend_from_slice(b"{\"code\":");
            write::string(out, what.code());
            out.extend_from_slice(b",\"count\":");
            write::whole(out, (*count).into());
            out.extend_from_slice(b",\"detail\":");
            write::string(out, detail);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}}\n");
    }
}

impl TrackFields {
    /// Computes the `pid` and `tid` fields of a track with this key.
    fn new(key: &str) -> Self {
        let (pid, tid, said) = match key.rsplit_once('/') {
            Some((pid, tid)) => (pid, tid, true),
            None => (key, "0", false),
        };
        let mut fields = b"\"pid\":".to_vec();
        process_number(&mut fields, pid);
        fields.extend_from_slice(b",\"tid\":");
        process_number(&mut fields, tid);
        Self {
            fields: fields.into(),
            pid: pid.into(),
            key: (!said).then(|| key.into()),
        }
    }
}

/// Appends a number if it reads back as the same text; otherwise appends a quoted string.
fn process_number(out: &mut Vec<u8>, text: &str) {
    match text.parse::<i64>() {
        Ok(number) if number.unsigned_abs() < 1 << 53 && number.to_string() == text => {
            out.extend_from_slice(text.as_bytes());
        }
        _ => write::string(out, text),
    }
}

impl<W: io::Write + Send> EventSink for ChromeSink<W> {
    fn epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        if self.out.is_some() && !self.head_written {
            self.write_head();
        }
    }

    fn name(&mut self, text: &str) -> NameId {
        NameId(
            self.names
                .find(text)
                .unwrap_or_else(|| self.names.add(text)),
        )
    }

    fn track(&mut self, key: &str) -> TrackId {
        if let Some(id) = self.tracks.find(key) {
            return TrackId(id);
        }
        self.places.push(TrackFields::new(key));
        TrackId(self.tracks.add(key))
    }

    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        if let Some(kind) = patch.kind {
            self.kinds.insert(track, kind);
        }
        let key_of = |id: TrackId| self.tracks.get(id.0).cloned();
        let category = patch.category.map(|category| self.text(category));
        let described = TrackInfo::new(&patch, patch.parent.and_then(key_of), category);
        self.described.push((track, described));
    }

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        self.sources.push(source);
        SourceId(u16::try_from(self.sources.len() - 1).unwrap_or(u16::MAX))
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        let place = self.place(track);
        let is_async = self.is_async(track);
        let phase = if is_async { b'b' } else { b'X' };
        self.event(phase, &place, slice.start, slice.category, slice.name);
        let id = if is_async {
            self.new_id()
        } else {
            String::new()
        };
        if is_async {
            self.field("id", &id);
        } else {
            self.buffer.extend_from_slice(b",\"dur\":");
            write::microseconds(&mut self.buffer, slice.dur.ps().into());
        }
        let disguises = self.args(slice.args);
        let flows: Vec<_> = slice
            .flows
            .iter()
            .map(|flow| (self.text(flow.key.category), *flow))
            .collect();
        let key = if is_async {
            self.tracks.get(track.0).cloned()
        } else {
            place.key.clone()
        };
        Extra {
            key: key.as_deref(),
            step: slice.step,
            flags: slice.flags.0,
            flows: &flows,
            disguises: &disguises,
            has_id: is_async,
            ..Extra::default()
        }
        .print(&mut self.buffer);
        self.buffer.push(b'}');
        if is_async {
            let end = slice.start.saturating_add(slice.dur);
            self.event(b'e', &place, end, slice.category, slice.name);
            self.field("id", &id);
            Extra {
                has_id: true,
                ..Extra::default()
            }
            .print(&mut self.buffer);
            self.buffer.push(b'}');
        }
        for flow in slice.flows {
            self.write_flow(&place, slice.start, *flow, FlowBind::Enclosing, true);
        }
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        let place = self.place(track);
        let is_async = self.is_async(track);
        let phase = if is_async { b'n' } else { b'i' };
        self.event(phase, &place, instant.at, instant.category, instant.name);
        let mut key = place.key.clone();
        if is_async {
            let id = self.new_id();
            self.field("id", &id);
            key = self.tracks.get(track.0).cloned();
        }
        let disguises = self.args(instant.args);
        Extra {
            key: key.as_deref(),
            disguises: &disguises,
            has_id: is_async,
            ..Extra::default()
        }
        .print(&mut self.buffer);
        self.buffer.push(b'}');
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        if !value.is_finite() {
            self.diagnose(
                Diagnostic::BadCounterValue,
                1,
                "a sample that is no finite number",
            );
            return;
        }
        let key = self.tracks.get(track.0).cloned().unwrap_or_default();
        let standard = key
            .split_once("/counter/")
            .and_then(|(pid, rest)| Some((pid, rest.rsplit_once('/')?)));
        self.open(b'C');
        let (pid, name, series, said) = match standard {
            Some((pid, (name, series))) => (pid, name, series, true),
            None => ("", &*key, "value", false),
        };
        self.field("name", name);
        self.buffer.extend_from_slice(b",\"pid\":");
        process_number(&mut self.buffer, pid);
        self.buffer.extend_from_slice(b",\"ts\":");
        let origin_ps = i128::from(self.epoch.origin_ns) * 1_000;
        write::microseconds(&mut self.buffer, origin_ps + i128::from(at.ps()));
        self.buffer.extend_from_slice(b",\"args\":{");
        write::string(&mut self.buffer, series);
        self.buffer.push(b':');
        write::float(&mut self.buffer, value);
        self.buffer.push(b'}');
        Extra {
            key: (!said).then_some(&*key),
            ..Extra::default()
        }
        .print(&mut self.buffer);
        self.buffer.push(b'}');
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        let place = self.place(track);
        self.write_flow(&place, at, flow, bind, false);
    }

    fn module(&mut self, name: &str, program_id: Option<u64>) {
        self.modules.push((name.to_owned(), program_id));
    }

    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        let mut text = Vec::new();
        let disguise = write::value(&mut text, value);
        match self.facts.iter_mut().find(|fact| fact.0 == key) {
            Some(fact) => *fact = (key.to_owned(), text, disguise),
            None => self.facts.push((key.to_owned(), text, disguise)),
        }
    }

    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        let known = self
            .diagnostics
            .iter_mut()
            .find(|known| known.0 == what && known.2 == detail);
        match known {
            Some(known) => known.1 += count,
            None => self.diagnostics.push((what, count, detail.to_owned())),
        }
    }

    fn fork(&self) -> Self {
        let number = self.forks.fetch_add(1, Ordering::Relaxed);
        Self {
            out: None,
            error: None,
            buffer: Vec::new(),
            head_written: true,
            any_event: true,
            epoch: self.epoch,
            names: self.names.fork(),
            tracks: self.tracks.fork(),
            places: self.places.clone(),
            kinds: self.kinds.clone(),
            described: Vec::new(),
            sources: self.sources.clone(),
            facts: Vec::new(),
            modules: Vec::new(),
            diagnostics: Vec::new(),
            id_prefix: format!("{}{number}.", self.id_prefix),
            next_id: 0,
            forks: AtomicU64::new(0),
        }
    }

    fn merge(&mut self, fork: Self) {
        let mut text = fork.buffer.as_slice();
        if !self.any_event && !text.is_empty() {
            // A fork's text starts with the comma that separates it from the previous text.
            text = text.strip_prefix(b",\n").unwrap_or(text);
            self.any_event = true;
        }
        self.buffer.extend_from_slice(text);
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush_buffer();
        }
        let mut moved = FxHashMap::default();
        for id in 0..u32::try_from(fork.tracks.len()).unwrap_or(u32::MAX) {
            if let Some(key) = fork.tracks.get(id).cloned() {
                moved.insert(TrackId(id), self.track(&key));
            }
        }
        for (track, described) in fork.described {
            if let Some(track) = moved.get(&track).copied() {
                if let Some(kind) = described.kind {
                    self.kinds.insert(track, kind);
                }
                self.described.push((track, described));
            }
        }
        for (key, value, disguise) in fork.facts {
            match self.facts.iter_mut().find(|fact| fact.0 == key) {
                Some(fact) => *fact = (key, value, disguise),
                None => self.facts.push((key, value, disguise)),
            }
        }
        self.modules.extend(fork.modules);
        for (what, count, detail) in fork.diagnostics {
            self.diagnose(what, count, &detail);
        }
    }
}
