//! Assembly of collected rows into planes and lines.
//!
//! A track without a parent that is a group, or has children, becomes a plane; all its descendants
//! become the plane's lines; counters become event metadata on one `_counters_` line. Tracks
//! without any group share a plane with a corresponding record. Every line has a [`TrackRecord`],
//! so that reading the file gives the same tracks.
//!
//! Times are relative to the earliest event, or to the source's time zero if that is earlier: XProf
//! requires non-negative times.

use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{ArgValue, SliceFlags, TrackInfo, TrackKind};

use super::rows::{Row, RowFlow, RowKind, RowValue, Rows};
use super::writer::{
    EventMetadataId, LineWriter, PlaneWriter, StatId, TextId, WrittenStat, WrittenStatValue,
    XSpaceWriter,
};
use super::{FactValue, Shared, XSpaceSink};
use crate::xspace::read::facts::plane_name;
use crate::xspace::record::TrackRecord;
use crate::xspace::well_known_stats::{
    COUNTERS_LINE, EventKind, EventPlacement, EventStats, FlowCategory, HOST_PLANE, METADATA_PLANE,
    MarkValue, Role, TASK_ENVIRONMENT, pack_flow, wide_flow_text,
};

/// Writes the trace that a sink has collected.
pub(crate) fn write<W: Write>(sink: &XSpaceSink, shared: &Shared, out: W) -> io::Result<W> {
    let mut tracks = vec![TrackInfo::default(); shared.keys.len()];
    for (id, patch) in &sink.patches {
        if let Some(track) = tracks.get_mut(id.index()) {
            track.merge(patch.clone());
        }
    }
    let assembly = Assembly {
        sink,
        shared,
        tracks,
        shift_ns: shift_ns(sink),
    };
    let mut writer = XSpaceWriter::new(out);
    for (key, value) in &sink.facts {
        if let ("host", FactValue::Text(host)) = (key.as_str(), value) {
            writer.hostname(host)?;
        }
    }
    for error in &sink.errors {
        writer.error(error)?;
    }
    for warning in &sink.warnings {
        writer.warning(warning)?;
    }
    if let Some(plane) = assembly.metadata_plane() {
        writer.plane(&plane)?;
    }
    for (root, members) in assembly.planes() {
        writer.plane(&assembly.plane(root, &members))?;
    }
    if let Some(plane) = assembly.environment_plane() {
        writer.plane(&plane)?;
    }
    writer.finish()
}

/// Returns the shift of all times that makes them non-negative, nanoseconds.
fn shift_ns(sink: &XSpaceSink) -> i64 {
    let first_ps = sink
        .rows
        .iter()
        .filter_map(|rows| Some(rows.span_ps?.0))
        .min()
        .unwrap_or(0);
    if first_ps < 0 {
        -first_ps.div_euclid(1_000)
    } else {
        0
    }
}

/// The whole trace to write.
struct Assembly<'a> {
    sink: &'a XSpaceSink,
    shared: &'a Shared,
    tracks: Vec<TrackInfo>,
    shift_ns: i64,
}

impl Assembly<'_> {
    fn key(&self, track: usize) -> &str {
        self.shared.keys.get(track).map_or("", |key| key)
    }

    fn text(&self, number: u32) -> &str {
        self.shared
            .texts
            .get(number as usize)
            .map_or("", |text| text)
    }

    fn name(&self, track: usize) -> &str {
        let track = self.tracks.get(track);
        track
            .and_then(|track| track.name.as_deref())
            .unwrap_or_default()
    }

    fn parent(&self, track: usize) -> Option<usize> {
        let parent = self.tracks.get(track)?.parent?.index();
        (parent < self.tracks.len() && parent != track).then_some(parent)
    }

    /// Returns the outermost group of a track. Parents in a cycle count as none.
    fn root(&self, track: usize) -> usize {
        let mut root = track;
        for _ in 0..64 {
            match self.parent(root) {
                Some(parent) => root = parent,
                None => return root,
            }
        }
        track
    }

    /// Returns the planes in the order of writing: their root (`None` for tracks without a group)
    /// and its descendants.
    fn planes(&self) -> Vec<(Option<usize>, Vec<usize>)> {
        let mut order: Vec<usize> = (0..self.tracks.len()).collect();
        order.sort_by(|a, b| {
            let rank = |track: &usize| {
                self.tracks
                    .get(*track)
                    .and_then(|track| track.sort_index)
                    .unwrap_or(i64::MAX)
            };
            (rank(a), self.key(*a)).cmp(&(rank(b), self.key(*b)))
        });
        let roots: Vec<usize> = (0..self.tracks.len())
            .map(|track| self.root(track))
            .collect();
        let root_of = |track: usize| roots.get(track).copied().unwrap_or(track);
        let mut is_plane: Vec<bool> = self
            .tracks
            .iter()
            .map(|track| track.kind == Some(TrackKind::Group))
            .collect();
        for (track, root) in roots.iter().enumerate() {
            if track != *root
                && let Some(slot) = is_plane.get_mut(*root)
            {
                *slot = true;
            }
        }
        let is_plane = |track: usize| is_plane.get(track).copied().unwrap_or(false);

        let mut planes = Vec::new();
        let mut place_of = FxHashMap::default();
        for track in order.iter().copied() {
            if root_of(track) == track && is_plane(track) {
                place_of.insert(track, planes.len());
                planes.push((Some(track), Vec::new()));
            }
        }
        let mut ungrouped = Vec::new();
        for track in order {
            let root = root_of(track);
            match place_of.get(&root).and_then(|place| planes.get_mut(*place)) {
                Some(_) if root == track => {}
                Some((_, members)) => members.push(track),
                None => ungrouped.push(track),
            }
        }
        if !ungrouped.is_empty() {
            planes.push((None, ungrouped));
        }
        planes
    }

    /// Builds the plane of facts and compiled programs.
    fn metadata_plane(&self) -> Option<PlaneWriter> {
        let mut plane = PlaneWriter::new(METADATA_PLANE);
        let mut empty = self.sink.modules.is_empty();
        for (name, program_id) in &self.sink.modules {
            plane.module(name, *program_id);
        }
        // Of several values the last counts, at the position of the first.
        let last: FxHashMap<_, _> = self
            .sink
            .facts
            .iter()
            .map(|(key, value)| (key, value))
            .collect();
        let mut seen = FxHashSet::default();
        for (key, _) in &self.sink.facts {
            let elsewhere = matches!(key.as_str(), "host" | "unix_start_ns" | "unix_stop_ns");
            let Some(value) = last.get(key).filter(|_| !elsewhere && seen.insert(key)) else {
                continue;
            };
            empty = false;
            let (id, value) = match value {
                FactValue::Int(value) => (plane.argument(key), WrittenStatValue::Int(*value)),
                FactValue::Uint(value) => (plane.argument(key), WrittenStatValue::Uint(*value)),
                FactValue::Double(value) => (plane.argument(key), WrittenStatValue::Double(*value)),
                FactValue::Bool(value) => (
                    plane.bool_argument(key),
                    WrittenStatValue::Int(i64::from(*value)),
                ),
                FactValue::Text(text) => (plane.argument(key), WrittenStatValue::Str(text)),
            };
            plane.add_stat(id, value);
        }
        (!empty).then_some(plane)
    }

    /// Builds the plane with the time origin.
    fn environment_plane(&self) -> Option<PlaneWriter> {
        let epoch = self.sink.epoch.unwrap_or_default();
        let mut plane = PlaneWriter::new(TASK_ENVIRONMENT);
        let origin_ns = epoch.origin_ns.saturating_sub(self.shift_ns);
        let start_ns = epoch
            .unix_ns
            .and_then(|unix_ns| u64::try_from(unix_ns.saturating_sub(self.shift_ns)).ok());
        if origin_ns == 0 && start_ns.is_none() {
            return None;
        }
        if let Some(start_ns) = start_ns {
            let last_ps = self
                .sink
                .rows
                .iter()
                .filter_map(|rows| Some(rows.span_ps?.1))
                .max();
            let told = self.sink.facts.iter().find_map(|(key, value)| match value {
                FactValue::Int(stop_ns) if key == "unix_stop_ns" => u64::try_from(*stop_ns).ok(),
                _ => None,
            });
            let length_ns = last_ps.map_or(0, |ps| ps.div_euclid(1_000)) + 1 + self.shift_ns;
            let stop_ns = told.unwrap_or(start_ns.saturating_add_signed(length_ns));
            let id = plane.stat(Role::ProfileStart.name());
            plane.add_stat(id, WrittenStatValue::Uint(start_ns));
            let id = plane.stat("profile_stop_time");
            plane.add_stat(id, WrittenStatValue::Uint(stop_ns));
        }
        if origin_ns != 0 {
            let id = plane.hidden_stat(Role::Origin);
            plane.add_stat(id, WrittenStatValue::Int(origin_ns));
        }
        Some(plane)
    }

    /// Returns the name of a root's plane. Names that XProf knows are unchanged. Other planes get a
    /// name that XProf shows (`/host:CPU` exactly), and the record holds their own name.
    fn plane_name(&self, root: usize, members: &[usize]) -> String {
        let name = self.name(root);
        let known = ["/host:", "/device:", "#Chip", "/virtualdevice:"];
        if known.iter().any(|prefix| name.starts_with(prefix)) && name != METADATA_PLANE {
            return name.to_owned();
        }
        let device = self
            .tracks
            .get(root)
            .and_then(|track| track.device)
            .or_else(|| {
                members.iter().find_map(|member| {
                    let track = self.tracks.get(*member)?;
                    (track.kind == Some(TrackKind::DeviceQueue)).then_some(track.device)?
                })
            });
        match device {
            Some(device) => format!("/device:GPU:{device}"),
            None => HOST_PLANE.to_owned(),
        }
    }

    /// Returns the record of a track.
    fn record(&self, track: usize) -> TrackRecord {
        let Some(state) = self.tracks.get(track) else {
            return TrackRecord::default();
        };
        TrackRecord {
            kind: Some(state.kind.unwrap_or_default()),
            pid: state.pid,
            tid: state.tid,
            device: state.device,
            stream: state.stream,
            unit: state.unit.as_deref().map(str::to_owned),
            derived: state.derived == Some(true),
            sort_index: state.sort_index,
            category: state
                .category
                .map(|category| self.text(category.0).to_owned()),
            ..TrackRecord::default()
        }
    }

    fn plane(&self, root: Option<usize>, members: &[usize]) -> PlaneWriter {
        let name = root.map_or_else(
            || HOST_PLANE.to_owned(),
            |root| self.plane_name(root, members),
        );
        let place = EventPlacement {
            device: plane_name(&name).is_device,
            steps: false,
        };
        let id = plane_name(&name).device.map_or(0, i64::from);
        let mut writing = Writing {
            assembly: self,
            plane: PlaneWriter::new(&name).with_id(id),
            place,
            event_ids: FxHashMap::default(),
            stat_ids: FxHashMap::default(),
            text_ids: FxHashMap::default(),
            flow_numbers: FxHashMap::default(),
        };
        let mut group = root.map_or_else(TrackRecord::default, |root| self.record(root));
        group.ungrouped = root.is_none();
        group.name = root
            .map(|root| self.name(root))
            .filter(|shown| *shown != name)
            .map(str::to_owned);
        writing.plane.describe(&group);
        if let Some(pid) = group.pid {
            let id = writing.plane.stat(Role::ProcessId.name());
            writing.plane.add_stat(id, WrittenStatValue::Int(pid));
        }

        let line_ids = self.line_ids(root, members);
        let line_id = |track: usize| line_ids.get(&track).copied().unwrap_or_default();
        let rows = |track: usize| self.sink.rows.get(track);
        let mut counters = Vec::new();
        for track in root.iter().chain(members).copied() {
            let is_root = Some(track) == root;
            let has_events = rows(track).is_some_and(|rows| rows.has_events);
            let has_samples = rows(track).is_some_and(|rows| rows.has_samples);
            let mut record = self.record(track);
            record.on_group = is_root;
            record.parent = self
                .parent(track)
                .filter(|parent| Some(*parent) != root)
                .map(line_id);
            if has_samples {
                let counter = writing.plane.counter(self.name(track), &record);
                counters.push((track, counter));
            }
            if has_events || !has_samples && !is_root {
                record.line = Some(line_id(track));
                writing.plane.describe(&record);
                writing.line(track, line_id(track));
            }
        }
        if !counters.is_empty() {
            writing.counters(&counters, line_ids.len() as i64);
        }
        writing.plane
    }

    /// Returns an id for each line: the number at the end of the track's key, or its thread, or a
    /// free id.
    fn line_ids(&self, root: Option<usize>, members: &[usize]) -> FxHashMap<usize, i64> {
        let mut used = FxHashSet::default();
        let mut ids = FxHashMap::default();
        let prefix = root.map(|root| format!("{}/", self.key(root)));
        for track in members.iter().copied() {
            let in_key = prefix
                .as_deref()
                .and_then(|prefix| self.key(track).strip_prefix(prefix))
                .and_then(|rest| rest.parse().ok());
            let id = in_key.or_else(|| self.tracks.get(track)?.tid);
            if let Some(id) = id.filter(|id| used.insert(*id)) {
                ids.insert(track, id);
            }
        }
        let mut next = 1;
        for track in root.iter().chain(members) {
            if ids.contains_key(track) {
                continue;
            }
            while !used.insert(next) {
                next += 1;
            }
            ids.insert(*track, next);
        }
        ids
    }
}

/// Encoding of an argument's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wording {
    /// With the meaning of the name.
    Meaning,
    /// As a plain argument without a meaning.
    Argument,
    Bool,
    Json,
}

/// A plane under construction.
struct Writing<'a> {
    assembly: &'a Assembly<'a>,
    plane: PlaneWriter,
    place: EventPlacement,
    event_ids: FxHashMap<(u32, u32, EventKind), EventMetadataId>,
    stat_ids: FxHashMap<(u32, Wording), StatId>,
    text_ids: FxHashMap<u32, TextId>,
    /// XProf's numbers of flow categories, by text.
    flow_numbers: FxHashMap<u32, Option<u8>>,
}

impl<'a> Writing<'a> {
    /// Writes a track's events as a line.
    fn line(&mut self, track: usize, id: i64) {
        let rows = self.assembly.sink.rows.get(track);
        let first_ps = rows
            .and_then(|rows| rows.span_ps)
            .map_or(0, |(first, _)| first);
        let (timestamp_ns, base_ps) = self.base(first_ps);
        let mut line = LineWriter::new(id, self.assembly.name(track), timestamp_ns);
        let mut row = Row::default();
        let mut rows = rows.map(Rows::walk).unwrap_or_default();
        while rows.read(&mut row).is_some() {
            if let Some(RowKind::Event(kind)) = row.kind {
                self.event(&mut line, &row, kind, base_ps);
            }
        }
        self.plane.add_line(line);
    }

    /// Returns a line's time zero, as written and on the sink's clock.
    fn base(&self, first_ps: i64) -> (i64, i64) {
        let base_ns = first_ps.div_euclid(1_000);
        (
            base_ns.saturating_add(self.assembly.shift_ns),
            base_ns.saturating_mul(1_000),
        )
    }

    fn event(&mut self, line: &mut LineWriter, row: &Row<'a>, kind: EventKind, base_ps: i64) {
        let id = self.event_id(row.name, row.category, kind);
        let wide: Vec<String> = row.flows.iter().map(|flow| self.wide_flow(flow)).collect();
        let mut stats: Vec<WrittenStat<'_>> = Vec::with_capacity(row.args.len() + 2);
        let plain = kind != EventKind::Slice || self.args_say_all(row);
        for (key, value) in &row.args {
            stats.push(self.argument(*key, *value, plain));
        }
        if kind != EventKind::Slice {
            self.flows(&row.flows, &wide, &mut stats);
        } else if !plain {
            self.hidden_marks(row, &mut stats);
            self.flows(&row.flows, &wide, &mut stats);
        }
        let offset_ps = row.start_ps.saturating_sub(base_ps);
        line.span(id, offset_ps, row.dur_ps, &stats);
    }

    /// Returns whether the arguments alone give a reader the row's properties; then no hidden stats
    /// are needed.
    fn args_say_all(&self, row: &Row<'a>) -> bool {
        let mut marks = EventStats::default();
        for (key, value) in &row.args {
            let role = Role::from_name(self.assembly.text(*key).as_bytes());
            if !role.marks_events() {
                continue;
            }
            let value = match *value {
                RowValue::Text(text) => MarkValue::Text(self.assembly.text(text)),
                RowValue::Inline(ArgValue::Str(text)) => MarkValue::Text(text),
                RowValue::Inline(ArgValue::Int(value)) => MarkValue::Number(value as u64),
                RowValue::Inline(ArgValue::Uint(value)) => MarkValue::Number(value),
                RowValue::Inline(ArgValue::Double(value)) => MarkValue::Double(value),
                // Values of these types have no meaning as stats.
                RowValue::Inline(ArgValue::Bool(_) | ArgValue::Json(_) | ArgValue::Bytes(_)) => {
                    continue;
                }
            };
            marks.take(role, value, self.place);
        }
        marks.finish();
        let flows_agree = marks.flows.len() == row.flows.len()
            && marks
                .flows
                .iter()
                .zip(&row.flows)
                .all(|((category, id, direction), flow)| {
                    *id == flow.id
                        && *direction == flow.direction
                        && category.text() == self.assembly.text(flow.category)
                });
        flows_agree
            && marks.step_number(self.place, None, 0) == row.step
            && marks.flags.0 == row.flags
    }

    fn argument(&mut self, key: u32, value: RowValue<'a>, plain: bool) -> WrittenStat<'a> {
        let (wording, value) = match value {
            RowValue::Text(text) => {
                let worth = self.assembly.shared.uses.get(text as usize) > Some(&1);
                let value = if worth {
                    WrittenStatValue::Text(self.text_id(text))
                } else {
                    WrittenStatValue::Str(self.assembly.text(text))
                };
                (Wording::Meaning, value)
            }
            RowValue::Inline(value) => match value {
                ArgValue::Int(value) => (Wording::Meaning, WrittenStatValue::Int(value)),
                ArgValue::Uint(value) => (Wording::Meaning, WrittenStatValue::Uint(value)),
                ArgValue::Double(value) => (Wording::Meaning, WrittenStatValue::Double(value)),
                ArgValue::Str(text) => (Wording::Meaning, WrittenStatValue::Str(text)),
                ArgValue::Bool(value) => (Wording::Bool, WrittenStatValue::Int(i64::from(value))),
                ArgValue::Json(text) => (Wording::Json, WrittenStatValue::Str(text)),
                ArgValue::Bytes(bytes) => (Wording::Meaning, WrittenStatValue::Bytes(bytes)),
            },
        };
        let wording = match wording {
            Wording::Meaning if !plain => Wording::Argument,
            wording => wording,
        };
        let id = self.stat_id(key, wording);
        WrittenStat { id, value }
    }

    /// Adds step number and flags as hidden stats.
    fn hidden_marks(&mut self, row: &Row<'_>, stats: &mut Vec<WrittenStat<'_>>) {
        let mut add = |role, value| {
            let id = self.plane.hidden_stat(role);
            let value = WrittenStatValue::Int(value);
            stats.push(WrittenStat { id, value });
        };
        if let Some(step) = row.step {
            add(Role::StepNum, step);
            add(Role::Root, 1);
        }
        if row.flags & SliceFlags::UNFINISHED.0 != 0 {
            add(Role::Unfinished, 1);
        }
        if row.flags & SliceFlags::DERIVED.0 != 0 {
            add(Role::Derived, 1);
        }
        if row.flags & SliceFlags::IMPOSSIBLE.0 != 0 {
            add(Role::Impossible, 1);
        }
    }

    /// Encodes a flow as text, if its id does not fit into a number.
    fn wide_flow(&self, flow: &RowFlow) -> String {
        if pack_flow(flow.direction, flow.id, 0).is_some() {
            return String::new();
        }
        wide_flow_text(self.assembly.text(flow.category), flow.id, flow.direction)
    }

    /// Adds flows: in XProf's layout if the id fits, as text otherwise.
    fn flows<'b>(&mut self, flows: &[RowFlow], wide: &'b [String], stats: &mut Vec<WrittenStat<'b>>)
    where
        'a: 'b,
    {
        for (flow, wide) in flows.iter().zip(wide) {
            let text = self.assembly.text(flow.category);
            let number = *self
                .flow_numbers
                .entry(flow.category)
                .or_insert_with(|| FlowCategory::flow_number(text));
            let Some(packed) = pack_flow(flow.direction, flow.id, number.unwrap_or(0)) else {
                let id = self.plane.hidden_stat(Role::WideFlow);
                let value = WrittenStatValue::Str(wide);
                stats.push(WrittenStat { id, value });
                continue;
            };
            let id = self.plane.hidden_stat(Role::Flow);
            let value = WrittenStatValue::Uint(packed);
            stats.push(WrittenStat { id, value });
            if number.is_none() {
                let id = self.plane.hidden_stat(Role::FlowCategory);
                let value = WrittenStatValue::Text(self.text_id(flow.category));
                stats.push(WrittenStat { id, value });
            }
        }
    }

    /// Writes samples of all counters on one line.
    fn counters(&mut self, counters: &[(usize, EventMetadataId)], line_id: i64) {
        let rows = |track: usize| self.assembly.sink.rows.get(track);
        let first_ps = counters
            .iter()
            .filter_map(|(track, _)| Some(rows(*track)?.span_ps?.0))
            .min()
            .unwrap_or(0);
        let (timestamp_ns, base_ps) = self.base(first_ps);
        let value = self.plane.stat(Role::CounterValue.name());
        let mut line =
            LineWriter::new(line_id.saturating_add(1 << 32), COUNTERS_LINE, timestamp_ns);
        for (track, counter) in counters {
            let Some(rows) = rows(*track) else { continue };
            let mut row = Row::default();
            let mut rows = rows.walk();
            while rows.read(&mut row).is_some() {
                if row.kind == Some(RowKind::Sample) {
                    let offset_ps = row.start_ps.saturating_sub(base_ps);
                    line.sample(*counter, offset_ps, value, row.value);
                }
            }
        }
        self.plane.add_line(line);
    }

    fn event_id(&mut self, name: u32, category: u32, kind: EventKind) -> EventMetadataId {
        let assembly = self.assembly;
        *self
            .event_ids
            .entry((name, category, kind))
            .or_insert_with(|| {
                self.plane
                    .event_of(assembly.text(name), assembly.text(category), kind)
            })
    }

    fn stat_id(&mut self, key: u32, wording: Wording) -> StatId {
        let name = self.assembly.text(key);
        *self.stat_ids.entry((key, wording)).or_insert_with(|| {
            let plane = &mut self.plane;
            match wording {
                Wording::Meaning => plane.stat(name),
                Wording::Argument => plane.argument(name),
                Wording::Bool => plane.bool_argument(name),
                Wording::Json => plane.json_argument(name),
            }
        })
    }

    fn text_id(&mut self, text: u32) -> TextId {
        let assembly = self.assembly;
        *self
            .text_ids
            .entry(text)
            .or_insert_with(|| self.plane.text(assembly.text(text)))
    }
}
