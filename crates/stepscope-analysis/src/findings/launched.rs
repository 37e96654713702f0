//! Search of the host call that launched one kernel or copy.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId, TrackId, TrackKind};
use stepscope_store::{EventId, Trace};

use crate::device::Devices;
use crate::launch::{Config, Launches, launches_graph};
use crate::parallel::Cancel;

/// Finder of launches by the links of the trace, by the numbers of graph launches, or in a trace without any
/// links by the numbers of all calls.
pub(super) struct LaunchOf<'a> {
    trace: &'a Trace,
    all: Option<Arc<Launches>>,
    graphs: FxHashMap<(usize, i64), EventId>,
    near: usize,
}

impl<'a> LaunchOf<'a> {
    pub(super) fn new(
        trace: &'a Trace,
        devices: &Devices<'_>,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let all = if trace.flow_edge_count() == 0 && !devices.list.is_empty() {
            Some(Launches::from_trace(trace, devices, cancel)?)
        } else {
            None
        };
        Ok(Self {
            trace,
            graphs: if all.is_none() {
                graph_launches(trace)
            } else {
                FxHashMap::default()
            },
            all,
            near: 0,
        })
    }

    /// Returns the launch of a slice of a device queue.
    pub(super) fn get(&mut self, track: TrackId, index: usize) -> Option<EventId> {
        if let Some(all) = &self.all {
            return all.get(track, index);
        }
        let trace = self.trace;
        let id = trace.slices(track).id(index);
        let linked = trace
            .flow_sources(id, &mut self.near)
            .filter(|from| is_on_thread(trace, *from))
            .last();
        if linked.is_some() || self.graphs.is_empty() {
            return linked;
        }
        let file = trace.tracks().get(track.index())?.file;
        self.graphs
            .get(&(file, Config::from_event(trace, id).correlation?))
            .copied()
    }
}

fn is_on_thread(trace: &Trace, id: EventId) -> bool {
    let track = trace
        .track_of(id)
        .and_then(|track| trace.tracks().get(track.index()));
    track.is_some_and(|track| track.kind == TrackKind::Thread)
}

/// Maps file and correlation number to the calls that launch graphs.
fn graph_launches(trace: &Trace) -> FxHashMap<(usize, i64), EventId> {
    let is_graph: Vec<bool> = (0..trace.name_count())
        .map(|name| launches_graph(trace.name(NameId(u32::try_from(name).unwrap_or(u32::MAX)))))
        .collect();
    let mut found = FxHashMap::default();
    if !is_graph.contains(&true) {
        return found;
    }
    for track in trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::Thread)
    {
        let slices = trace.slices(track.id);
        for (index, name) in slices.name.iter().enumerate() {
            if is_graph.get(name.index()) == Some(&true)
                && let Some(number) = Config::from_event(trace, slices.id(index)).correlation
            {
                found.insert((track.file, number), slices.id(index));
            }
        }
    }
    found
}
