//! Conversion of planes and lines to tracks.
//!
//! A plane is a group and a line a track in it; on a `_counters_` line each event metadata is a
//! track. Properties that the schema cannot express are guessed from names for foreign files, and
//! come from [`TrackRecord`]s for our own files.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::xla::DeviceLine;
use stepscope_model::{Diagnostic, EventSink, NameId, ReadContext, TrackId, TrackKind, TrackPatch};

use super::facts::{neuron_core, plane_name, stream_number};
use super::index::{PlaneFrame, PlaneIndex};
use super::line_header::LineHead;
use super::lines::{self, ReadyLine, ReadyMetadata, ReadyPlane};
use super::{ABSOLUTE_NS, Clock, Reading};
use crate::xspace::record::TrackRecord;
use crate::xspace::well_known_stats::{COUNTERS_LINE, EventPlacement, Role, number_in_name};
use crate::xspace::wire;

impl<'a> Reading<'a> {
    /// Creates the tracks, and prepares planes and lines for emission.
    #[allow(clippy::type_complexity, reason = "two columns, used in one place")]
    pub(crate) fn tracks<S: EventSink>(
        &mut self,
        clock: &Clock,
        context: &ReadContext,
        sink: &mut S,
    ) -> (Vec<Option<ReadyPlane<'a>>>, Vec<Option<(usize, ReadyLine)>>) {
        let mut room = context.limits.max_tracks as usize;
        let mut left_out = 0_u64;
        let mut plane_names = FxHashMap::<String, u64>::default();
        let mut planes = Vec::with_capacity(self.indexes.len());
        let mut lines = Vec::with_capacity(self.jobs.len());
        let mut first_line = 0;
        for (ordinal, (index, frame)) in self.planes().enumerate() {
            let range = first_line..first_line + frame.lines.len();
            first_line = range.end;
            let heads = self.heads.get(range).unwrap_or_default();
            // A plane without lines is only metadata, unless our writer wrote it as an empty group.
            let is_group = || {
                index
                    .find_stat(self.file, &frame.stats, Role::Track)
                    .is_some()
            };
            if heads.is_empty() && !is_group() {
                planes.push(None);
                continue;
            }
            if room == 0 {
                left_out += heads.iter().map(|head| head.events).sum::<u64>();
                planes.push(None);
                lines.extend(heads.iter().map(|_| None));
                continue;
            }
            let mut plane = self.plane(ordinal, index, frame, &mut plane_names, sink);
            room -= 1;
            for (position, head) in heads.iter().enumerate() {
                if room == 0 {
                    left_out += head.events;
                    lines.push(None);
                    continue;
                }
                room -= 1;
                let line = self.line(&mut plane, position, head, clock, sink);
                lines.push(Some((ordinal, line)));
            }
            planes.push(Some(plane.ready));
        }
        left_out += self.space.left_out.unwrap_or(0);
        if left_out > 0 || self.space.left_out.is_some() {
            sink.diagnose(
                Diagnostic::LimitReached,
                left_out.max(1),
                &format!(
                    "max_tracks: only the first {} planes and lines are shown",
                    context.limits.max_tracks
                ),
            );
        }
        (planes, lines)
    }

    /// Creates a plane's group and interns the names of its events.
    fn plane<S: EventSink>(
        &mut self,
        ordinal: usize,
        index: &'a PlaneIndex,
        frame: &PlaneFrame,
        plane_names: &mut FxHashMap<String, u64>,
        sink: &mut S,
    ) -> Plane<'a> {
        let name = self.text(frame.name).into_owned();
        let kind = plane_name(&name);
        let mut records = Vec::new();
        let mut group_record = None;
        let mut continues = false;
        for stat in &frame.stats {
            let Ok(stat) = wire::stat(stat.get(self.file)) else {
                continue;
            };
            match (index.role(stat.metadata_id), stat.value) {
                (Role::Track, value) => {
                    let record = TrackRecord::decode(&index.text(self.file, value));
                    match record.line {
                        Some(line) => records.push((line, record)),
                        None => group_record = Some(record),
                    }
                }
                (Role::Continues, value) => continues = value.bits() != Some(0),
                _ => {}
            }
        }
        let seen = plane_names.entry(name.clone()).or_insert(0);
        // The lines of a continued plane share the key prefix of the plane before it.
        *seen += u64::from(*seen == 0 || !continues);
        let key = numbered(&name, *seen);
        let group_record = group_record.unwrap_or_else(|| TrackRecord {
            device: kind.device,
            ..TrackRecord::default()
        });
        let pid = group_record
            .pid
            .or_else(|| self.plane_number(index, frame, Role::ProcessId));
        let device = group_record.device;
        let group = (!group_record.ungrouped).then(|| {
            let group = sink.track(&key);
            let category = category(&group_record, sink);
            sink.describe(
                group,
                TrackPatch {
                    name: Some(group_record.name.as_deref().unwrap_or(&name))
                        .filter(|name| !name.is_empty()),
                    kind: Some(group_record.kind.unwrap_or(TrackKind::Group)),
                    pid,
                    device,
                    sort_index: Some(
                        group_record
                            .sort_index
                            .unwrap_or(kind.rank << 32 | ordinal as i64),
                    ),
                    derived: group_record.derived.then_some(true),
                    tid: group_record.tid,
                    stream: group_record.stream,
                    unit: group_record.unit.as_deref(),
                    category,
                    ..TrackPatch::default()
                },
            );
            group
        });
        let is_host = !kind.is_device;
        let metadata = index
            .events
            .items()
            .iter()
            .map(|event| {
                let text = self.text(event.shown_name());
                if is_host {
                    self.origin.see_event(&text);
                }
                let stats = index.stats_of(event);
                let category = index
                    .find_stat(self.file, stats, Role::Category)
                    .map_or(NameId::EMPTY, |value| {
                        sink.name(&index.text(self.file, value))
                    });
                ReadyMetadata {
                    name: sink.name(&text),
                    category,
                    kind: index.kind(self.file, stats),
                    has_args: index.has_args(self.file, event),
                    has_marks: stats.iter().any(|stat| {
                        wire::stat(stat.get(self.file))
                            .is_ok_and(|stat| index.role(stat.metadata_id).marks_events())
                    }),
                    step: number_in_name(&text),
                }
            })
            .collect();
        Plane {
            key,
            group,
            pid,
            device,
            is_device: kind.is_device,
            continues,
            records: records.into_iter().collect(),
            line_ids: FxHashMap::default(),
            counter_names: FxHashMap::default(),
            ready: ReadyPlane::new(index, metadata),
        }
    }

    /// Creates a line's track.
    fn line<S: EventSink>(
        &mut self,
        plane: &mut Plane<'a>,
        position: usize,
        head: &LineHead,
        clock: &Clock,
        sink: &mut S,
    ) -> ReadyLine {
        let name = self.text(head.shown_name());
        self.origin.see_line(&name);
        let recorded = plane.records.get(&head.id).cloned();
        let is_foreign = recorded.is_none();
        let record = recorded.unwrap_or_else(|| plane.inherited());
        let steps = DeviceLine::from_name(&name) == DeviceLine::Steps;
        let counters = name == COUNTERS_LINE && is_foreign;
        let kind = record.kind.unwrap_or({
            if counters {
                TrackKind::Group
            } else if steps {
                TrackKind::Steps
            } else if plane.is_device {
                TrackKind::DeviceQueue
            } else {
                TrackKind::Thread
            }
        });
        let track = if counters {
            self.counters(plane, head, sink);
            None
        } else if let (true, Some(group)) = (record.on_group, plane.group) {
            Some(group)
        } else {
            let seen = plane.line_ids.entry(head.id).or_insert(0);
            *seen += 1;
            self.repeated_lines += u64::from(*seen > 1);
            let track = sink.track(&numbered(&format!("{}/{}", plane.key, head.id), *seen));
            let parent = plane.parent(&record, sink);
            let category = category(&record, sink);
            let stream = record.stream.or_else(|| stream_number(&name));
            // The plane that another one continues knows its lines better: it has the names of threads.
            let is_known = !self.described.insert(track) && plane.continues;
            sink.describe(
                track,
                TrackPatch {
                    name: Some(record.name.as_deref().unwrap_or(&name))
                        .filter(|name| !name.is_empty() && !is_known),
                    kind: Some(kind),
                    parent,
                    pid: record.pid,
                    tid: record.tid.or_else(|| {
                        (is_foreign && !plane.is_device).then_some(head.shown_id() & 0xffff_ffff)
                    }),
                    device: record.device.or_else(|| {
                        let is_unnamed = is_foreign && plane.is_device;
                        neuron_core(&name).filter(|_| is_unnamed)
                    }),
                    stream,
                    sort_index: Some(record.sort_index.unwrap_or_else(|| {
                        line_rank(&name, plane.is_device) << 32
                            | stream.unwrap_or(position as i64) & 0xffff_ffff
                    })),
                    unit: record.unit.as_deref(),
                    derived: record.derived.then_some(true),
                    category,
                },
            );
            Some(track)
        };
        let shift_ns = if head.timestamp_ns > ABSOLUTE_NS {
            clock.absolute_ns
        } else {
            0
        };
        let line_ns = i128::from(head.timestamp_ns) - i128::from(shift_ns);
        ReadyLine {
            track: track.or(plane.group).unwrap_or(TrackId(0)),
            base_ps: line_ns * 1_000,
            place: EventPlacement {
                device: plane.is_device,
                // Our own files contain an explicit number for each step.
                steps: steps && is_foreign,
            },
            counters,
        }
    }

    /// Creates a track for each counter of a line of samples.
    fn counters<S: EventSink>(&mut self, plane: &mut Plane<'a>, head: &LineHead, sink: &mut S) {
        for id in lines::metadata_ids(self.file, head) {
            if plane.ready.counters.contains_key(&id) {
                continue;
            }
            let index = plane.ready.index;
            let metadata = index.events.get(id);
            let record = metadata.and_then(|metadata| {
                let stats = index.stats_of(metadata);
                let value = index.find_stat(self.file, stats, Role::Track)?;
                Some(TrackRecord::decode(&index.text(self.file, value)))
            });
            let name = match metadata {
                Some(metadata) => self.text(metadata.shown_name()).into_owned(),
                None => id.to_string(),
            };
            // Equal names are one counter, unless the writer marks them as separate tracks.
            let seen = plane.counter_names.entry(name.clone()).or_insert(0);
            *seen += u64::from(*seen == 0 || record.is_some());
            let track = sink.track(&numbered(&format!("{}/counter/{name}", plane.key), *seen));
            let record = record.unwrap_or_else(|| plane.inherited());
            let parent = plane.parent(&record, sink);
            let category = category(&record, sink);
            sink.describe(
                track,
                TrackPatch {
                    name: Some(record.name.as_deref().unwrap_or(&name))
                        .filter(|name| !name.is_empty()),
                    kind: Some(TrackKind::Counter),
                    parent,
                    pid: record.pid,
                    tid: record.tid,
                    device: record.device,
                    stream: record.stream,
                    sort_index: record.sort_index,
                    unit: record.unit.as_deref(),
                    derived: record.derived.then_some(true),
                    category,
                },
            );
            plane.ready.counters.insert(id, track);
        }
    }
}

/// A plane while its lines are created.
struct Plane<'a> {
    key: String,
    group: Option<TrackId>,
    pid: Option<i64>,
    device: Option<u32>,
    is_device: bool,
    /// Whether it continues the plane before it of the same name.
    continues: bool,
    records: FxHashMap<i64, TrackRecord>,
    /// Number of occurrences of each line id.
    line_ids: FxHashMap<i64, u64>,
    /// Number of counters with each name.
    counter_names: FxHashMap<String, u64>,
    ready: ReadyPlane<'a>,
}

impl Plane<'_> {
    /// Returns the default record of lines without one.
    fn inherited(&self) -> TrackRecord {
        TrackRecord {
            pid: self.pid,
            device: self.device,
            ..TrackRecord::default()
        }
    }

    /// Returns the group around a line or a counter.
    fn parent<S: EventSink>(&self, record: &TrackRecord, sink: &mut S) -> Option<TrackId> {
        match record.parent {
            Some(line) => Some(sink.track(&format!("{}/{line}", self.key))),
            None => self.group,
        }
    }
}

fn category<S: EventSink>(record: &TrackRecord, sink: &mut S) -> Option<NameId> {
    record.category.as_deref().map(|text| sink.name(text))
}

/// Returns the key of the `number`th object with the same key.
fn numbered(key: &str, number: u64) -> String {
    if number <= 1 {
        key.to_owned()
    } else {
        format!("{key}#{number}")
    }
}

/// Returns the sort position of a line within its plane.
fn line_rank(name: &str, is_device: bool) -> i64 {
    if is_device {
        match DeviceLine::from_name(name) {
            DeviceLine::Steps => 0,
            DeviceLine::Modules => 1,
            DeviceLine::Ops => 2,
            DeviceLine::AsyncOps => 3,
            DeviceLine::Other if name.starts_with("Stream #") => 4,
            DeviceLine::Summary | DeviceLine::Other => 5,
        }
    } else {
        i64::from(!(name.starts_with("python") || name.starts_with("main")))
    }
}
