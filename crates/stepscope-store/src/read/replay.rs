//! Replays a finished trace into another sink: a writer, or another builder.

use stepscope_model::{
    ArgRef, ArgValue, Diagnostic, EventSink, FlowBind, FlowDirection, FlowKey, InstantIn, NameId,
    SliceFlags, SliceFlow, SliceIn, SourceId, TrackId, TrackPatch,
};

use crate::read::event::EventId;
use crate::read::trace::{Trace, Track};

/// The trace's strings in the other sink, interned on first use.
struct Names<'t> {
    trace: &'t Trace,
    known: Vec<Option<NameId>>,
}

impl Names<'_> {
    fn get<S: EventSink>(&mut self, id: NameId, sink: &mut S) -> NameId {
        let Some(slot) = self.known.get_mut(id.index()) else {
            return NameId::EMPTY;
        };
        *slot.get_or_insert_with(|| sink.name(self.trace.name(id)))
    }
}

impl Trace {
    /// Emits all content into a sink: epoch, facts, modules, statistics, sources, tracks with all
    /// their metadata, and per track its slices in (start, longest first) order with their flow
    /// ends, step numbers and flags, then the remaining flow ends, instants and samples.
    ///
    /// Facts of the first file keep their keys; those of the n-th further file become `file.N.KEY`.
    /// Diagnostics of readers are emitted. Those of the store are omitted, since a builder finds
    /// them again.
    pub fn replay_into<S: EventSink>(&self, sink: &mut S) {
        sink.epoch(self.epoch);
        let sources: Vec<SourceId> = self
            .sources
            .iter()
            .map(|source| sink.source(std::sync::Arc::clone(source)))
            .collect();
        for (index, file) in self.files.iter().enumerate() {
            for (key, value) in &file.facts {
                if index == 0 {
                    sink.fact(key, value.into());
                } else {
                    sink.fact(&format!("file.{index}.{key}"), ArgValue::from(value));
                }
            }
            for (name, program_id) in &file.modules {
                sink.module(name, *program_id);
            }
            for profile in &file.profiles {
                sink.profile(profile.clone());
            }
        }
        let mut names = Names {
            trace: self,
            known: vec![None; self.name_count()],
        };
        let ids: Vec<TrackId> = self
            .tracks
            .iter()
            .map(|track| sink.track(&track.key))
            .collect();
        for (track, id) in self.tracks.iter().zip(&ids) {
            sink.describe(*id, patch(track, &ids));
        }
        for (track, id) in self.tracks.iter().zip(&ids) {
            self.emit_slices(track, *id, &sources, &mut names, sink);
            self.emit_rest(track, *id, &sources, &mut names, sink);
        }
        for found in &self.diagnostics {
            if !found_by_the_store(found.what) {
                let detail = found.details.first().map_or("", String::as_str);
                sink.diagnose(found.what, found.count, detail);
            }
        }
    }

    fn emit_slices<S: EventSink>(
        &self,
        track: &Track,
        id: TrackId,
        sources: &[SourceId],
        names: &mut Names<'_>,
        sink: &mut S,
    ) {
        let Some(table) = self.table(track.id).map(|table| &table.slices) else {
            return;
        };
        let slices = self.slices(track.id);
        let mut flows: Vec<SliceFlow> = Vec::new();
        let mut end = self.flows.ends_of(slices.first_id).start;
        let columns = slices.start.iter().zip(slices.dur).zip(slices.name);
        for (index, ((start, dur), name)) in columns.enumerate() {
            flows.clear();
            while self.flows.end_slice.get(end).copied() == Some(slices.id(index).0) {
                flows.extend(self.flow_end(end, names, sink));
                end += 1;
            }
            let name = names.get(*name, sink);
            let category = names.get(slices.category.get(index), sink);
            sink.slice(
                id,
                SliceIn {
                    start: *start,
                    dur: *dur,
                    name,
                    category,
                    args: self.args_in(track.id, table.args.bits(index), sources),
                    step: table.step(index),
                    flags: SliceFlags(table.flags.get(index)),
                    flows: &flows,
                },
            );
        }
    }

    fn flow_end<S: EventSink>(
        &self,
        end: usize,
        names: &mut Names<'_>,
        sink: &mut S,
    ) -> Option<SliceFlow> {
        Some(SliceFlow {
            key: self.key_in(*self.flows.end_key.get(end)?, names, sink),
            direction: direction(*self.flows.end_direction.get(end)?),
        })
    }

    fn emit_rest<S: EventSink>(
        &self,
        track: &Track,
        id: TrackId,
        sources: &[SourceId],
        names: &mut Names<'_>,
        sink: &mut S,
    ) {
        let flows = &self.flows;
        for end in flows.loose_of(track.id) {
            let (Some(at), Some(key), Some(way), Some(bind)) = (
                flows.loose_at.get(end),
                flows.loose_key.get(end),
                flows.loose_direction.get(end),
                flows.loose_bind.get(end),
            ) else {
                continue;
            };
            let flow = SliceFlow {
                key: self.key_in(*key, names, sink),
                direction: direction(*way),
            };
            let bind = if *bind == FlowBind::Next as u8 {
                FlowBind::Next
            } else {
                FlowBind::Enclosing
            };
            sink.flow(id, *at, flow, bind);
        }
        if let Some(table) = self
            .table(track.id)
            .and_then(|table| table.instants.as_ref())
        {
            for (index, (at, name)) in table.at.iter().zip(table.name.iter()).enumerate() {
                let instant = InstantIn {
                    at: *at,
                    name: names.get(*name, sink),
                    category: names.get(table.category.get(index), sink),
                    args: self.args_in(track.id, table.args.bits(index), sources),
                };
                sink.instant(id, instant);
            }
        }
        let samples = self.samples(track.id);
        for (at, value) in samples.at.iter().zip(samples.value) {
            sink.counter(id, *at, *value);
        }
    }

    fn key_in<S: EventSink>(&self, key: u32, names: &mut Names<'_>, sink: &mut S) -> FlowKey {
        let key = self.flows.key_at(key);
        FlowKey {
            category: names.get(key.category, sink),
            id: key.id,
        }
    }

    fn args_in(&self, track: TrackId, bits: u64, sources: &[SourceId]) -> ArgRef {
        self.arg_ref(track, bits)
            .get()
            .and_then(|(source, token)| {
                let source = sources.get(usize::from(source.0))?;
                Some(ArgRef::new(*source, token))
            })
            .unwrap_or(ArgRef::NONE)
    }

    /// Returns the flow ends at the slice's start. Ends at a later time within the slice appear
    /// only in [`Trace::flows_in`] and [`Trace::flows_out`].
    pub fn flow_ends(&self, id: EventId) -> Vec<SliceFlow> {
        self.flows
            .ends_of(id)
            .filter_map(|end| {
                Some(SliceFlow {
                    key: self.flows.key_at(*self.flows.end_key.get(end)?),
                    direction: direction(*self.flows.end_direction.get(end)?),
                })
            })
            .collect()
    }
}

fn patch<'t>(track: &'t Track, ids: &[TrackId]) -> TrackPatch<'t> {
    TrackPatch {
        name: Some(&track.name),
        kind: Some(track.kind),
        parent: track
            .parent
            .and_then(|parent| ids.get(parent.index()).copied()),
        pid: track.pid,
        tid: track.tid,
        device: track.device,
        stream: track.stream,
        sort_index: track.sort_index,
        unit: track.unit.as_deref(),
        derived: Some(track.derived),
        category: None,
    }
}

fn direction(number: u8) -> FlowDirection {
    match number {
        0 => FlowDirection::Out,
        1 => FlowDirection::Through,
        _ => FlowDirection::In,
    }
}

fn found_by_the_store(what: Diagnostic) -> bool {
    matches!(
        what,
        Diagnostic::PartialOverlap
            | Diagnostic::DepthClipped
            | Diagnostic::ImpossibleDuration
            | Diagnostic::OpenFlow
            | Diagnostic::StrayTime
            | Diagnostic::EmptyTrace
            | Diagnostic::UnalignedClock
    )
}
