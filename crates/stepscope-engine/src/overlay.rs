//! The critical path in the output of a conversion: a track of its own, flows that lead to it, and the argument
//! `critical` of the slices on it, as in overlays of HTA.
//!
//! Flows lead from slices of the trace to slices of the path, never to slices of the trace: analyses of the output find
//! the same launches and hand-overs as before.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::HashMap;
use std::sync::Arc;

use stepscope_analysis::critical_path::PathScope;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::path_ranges::{PathRange, PathRanges, path_ranges};
use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, EventSink, FlowDirection, FlowKey, SliceFlow, SliceIn,
    SourceId, TrackId, TrackKind, TrackPatch, forward_to_sink,
};
use stepscope_store::{EventId, Trace};

/// Name of the track, and category of its slices and flows.
const TITLE: &str = "Critical path";
const CATEGORY: &str = "critical_path";
/// Key of the track, and key and name of its group.
const KEY: &str = "stepscope/critical-path";
const GROUP: &str = "stepscope";
/// Name of the time of the steps' thread without a slice.
const NOTHING: &str = "(nothing recorded)";

/// The critical path of a run, ready to be written.
pub(crate) struct PathOverlay {
    path: Arc<PathRanges>,
}

/// Numbers of what was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverlayCounts {
    /// Ranges of the path.
    pub(crate) slices: u64,
    /// Flows from slices of the trace to slices of the path.
    pub(crate) flows: u64,
}

impl PathOverlay {
    /// Computes the path of all steps; `None` if the run has neither threads nor device work.
    pub(crate) fn from_trace(trace: &Trace) -> Option<Self> {
        // Never cancelled.
        let found = path_ranges(trace, &PathScope::default(), &Cancel::default());
        let path = Arc::new(found.ok()??);
        Some(Self { path })
    }

    /// Emits a trace and the path into a sink.
    pub(crate) fn replay_into<S: EventSink>(&self, trace: &Trace, sink: S) -> (S, OverlayCounts) {
        let mut with_path = OverlaySink::new(sink);
        let entered = self.add_flows(trace, &mut with_path);
        self.mark(trace, &mut with_path);
        trace.replay_into(&mut with_path);
        let mut sink = with_path.inner;
        self.emit_track(trace, &entered, &mut sink);
        let counts = OverlayCounts {
            slices: self.path.ranges.len() as u64,
            flows: entered.len() as u64,
        };
        (sink, counts)
    }

    /// Adds a flow to each slice that the path leaves for another thread or queue. Returns their keys by the position
    /// of the range that the path enters.
    fn add_flows<S: EventSink>(
        &self,
        trace: &Trace,
        sink: &mut OverlaySink<S>,
    ) -> HashMap<usize, FlowKey> {
        let category = sink.inner.name(CATEGORY);
        let mut entered = HashMap::new();
        for at in 0..self.path.ranges.len() {
            let Some(from) = self.path.hop_to(at).and_then(|hop| hop.events.0) else {
                continue;
            };
            let key = FlowKey {
                category,
                id: at as u64,
            };
            let direction = FlowDirection::Out;
            if let Some(added) = sink.at(trace, from) {
                added.flows.push(SliceFlow { key, direction });
                entered.insert(at, key);
            }
        }
        entered
    }

    /// Marks the slices on the path.
    fn mark<S: EventSink>(&self, trace: &Trace, sink: &mut OverlaySink<S>) {
        let on_path = self.path.ranges.iter().filter(|row| row.kind.is_segment());
        for event in on_path.filter_map(|row| row.event) {
            if let Some(added) = sink.at(trace, event) {
                added.is_critical = true;
            }
        }
    }

    fn emit_track<S: EventSink>(
        &self,
        trace: &Trace,
        entered: &HashMap<usize, FlowKey>,
        sink: &mut S,
    ) {
        // A process of its own: formats of Chrome name tracks by numbers.
        let pids = trace.tracks().iter().filter_map(|track| track.pid);
        let pid = Some(pids.max().unwrap_or(0).saturating_add(1));
        let group = sink.track(GROUP);
        sink.describe(
            group,
            TrackPatch {
                name: Some(GROUP),
                kind: Some(TrackKind::Group),
                pid,
                sort_index: Some(-1),
                ..TrackPatch::default()
            },
        );
        let track = sink.track(KEY);
        sink.describe(
            track,
            TrackPatch {
                name: Some(TITLE),
                kind: Some(TrackKind::Thread),
                parent: Some(group),
                pid,
                tid: Some(0),
                derived: Some(true),
                ..TrackPatch::default()
            },
        );
        let source = sink.source(Arc::new(PathArgs {
            path: Arc::clone(&self.path),
            tracks: trace
                .tracks()
                .iter()
                .map(|track| track.name.clone())
                .collect(),
        }));
        let category = sink.name(CATEGORY);
        for (at, range) in self.path.ranges.iter().enumerate() {
            let direction = FlowDirection::In;
            let flows = entered.get(&at).map(|key| SliceFlow {
                key: *key,
                direction,
            });
            let name = sink.name(&name_of(trace, range));
            sink.slice(
                track,
                SliceIn {
                    start: range.start,
                    dur: range.end.since(range.start),
                    name,
                    category,
                    args: ArgRef::new(source, at as u64),
                    flows: flows.as_slice(),
                    ..SliceIn::default()
                },
            );
        }
    }
}

/// Returns the name of the slice; of a lag its kind and the slice that waited.
fn name_of(trace: &Trace, range: &PathRange) -> String {
    let event = range.event.and_then(|event| trace.event(event));
    let name = event.map_or(NOTHING, |event| trace.name(event.name));
    if range.kind.is_segment() {
        name.to_owned()
    } else {
        format!("({}) {name}", range.kind.as_str())
    }
}

/// Arguments of the slices of the track.
struct PathArgs {
    path: Arc<PathRanges>,
    /// Names by track.
    tracks: Vec<String>,
}

impl ArgSource for PathArgs {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let range = usize::try_from(token).ok();
        let Some(range) = range.and_then(|at| self.path.ranges.get(at)) else {
            return Ok(());
        };
        visit("kind", ArgValue::Str(range.kind.as_str()));
        visit("edge", ArgValue::Str(range.edge.as_str()));
        if let Some(queue) = self.tracks.get(range.track.index()) {
            visit("queue", ArgValue::Str(queue));
        }
        Ok(())
    }
}

/// Arguments of a slice on the path: its own ones, and `critical`.
struct CriticalArgs(Option<Arc<dyn ArgSource>>);

impl ArgSource for CriticalArgs {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let own = match &self.0 {
            Some(own) => own.visit(token, visit),
            None => Ok(()),
        };
        visit("critical", ArgValue::Int(1));
        own
    }
}

/// What the path adds to a slice.
#[derive(Default)]
struct AddedToSlice {
    flows: Vec<SliceFlow>,
    is_critical: bool,
}

/// A sink that adds the path to the slices of a replayed trace.
struct OverlaySink<S> {
    inner: S,
    /// Additions by track of the inner sink and position of the slice on it.
    added: HashMap<(TrackId, usize), AddedToSlice>,
    /// Number of slices of each track with additions.
    seen: HashMap<TrackId, usize>,
    /// The source that adds `critical` to the arguments of each source; `None` for slices without arguments.
    critical: HashMap<Option<SourceId>, SourceId>,
}

impl<S: EventSink> OverlaySink<S> {
    fn new(mut inner: S) -> Self {
        let without = inner.source(Arc::new(CriticalArgs(None)));
        Self {
            inner,
            added: HashMap::new(),
            seen: HashMap::new(),
            critical: HashMap::from([(None, without)]),
        }
    }

    /// Returns what is added to a slice; `None` if the slice does not exist.
    fn at(&mut self, trace: &Trace, event: EventId) -> Option<&mut AddedToSlice> {
        let (track, position) = trace.place_of_slice(event)?;
        let track = trace.tracks().get(track.index())?;
        // The replay asks for the same key.
        let track = self.inner.track(&track.key);
        self.seen.insert(track, 0);
        Some(self.added.entry((track, position)).or_default())
    }

    /// Returns the arguments of a slice with `critical`.
    fn with_critical(&self, args: ArgRef) -> ArgRef {
        let (source, token) = args.get().unzip();
        let critical = self.critical.get(&source);
        critical.map_or(args, |critical| {
            ArgRef::new(*critical, token.unwrap_or_default())
        })
    }
}

impl<S: EventSink> EventSink for OverlaySink<S> {
    forward_to_sink!(inner: epoch name track describe instant counter flow module profile fact diagnose);

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        let id = self.inner.source(Arc::clone(&source));
        let critical = self.inner.source(Arc::new(CriticalArgs(Some(source))));
        self.critical.insert(Some(id), critical);
        id
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        let Some(seen) = self.seen.get_mut(&track) else {
            self.inner.slice(track, slice);
            return;
        };
        let position = *seen;
        *seen += 1;
        let Some(added) = self.added.get(&(track, position)) else {
            self.inner.slice(track, slice);
            return;
        };
        let flows: Vec<SliceFlow> = slice.flows.iter().chain(&added.flows).copied().collect();
        let args = if added.is_critical {
            self.with_critical(slice.args)
        } else {
            slice.args
        };
        self.inner.slice(
            track,
            SliceIn {
                flows: &flows,
                args,
                ..slice
            },
        );
    }

    fn fork(&self) -> Self {
        Self {
            inner: self.inner.fork(),
            added: HashMap::new(),
            seen: HashMap::new(),
            critical: self.critical.clone(),
        }
    }

    fn merge(&mut self, fork: Self) {
        self.inner.merge(fork.inner);
    }
}
