//! Context of an event: its launch call, operation, module and source line.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_model::{ArgValue, TrackKind};
use stepscope_store::{Event, EventId, Trace};

use crate::launch::{self, Config};
use crate::memory::owners::is_own_line;

/// Maximum number of enclosing slices of a call whose flows are followed to the forward pass.
const MAX_LINKED: usize = 16;
/// Maximum number of launch calls of a thread to search for the correlation number of device work
/// without a flow.
const MAX_CALLS: usize = 8 << 10;
/// Maximum number of slices of a thread to search for these calls.
const MAX_SLICES: usize = 1 << 18;
/// Maximum length of shapes, bytes.
const MAX_SHAPES_BYTES: usize = 4 << 10;

/// Context of an event. Everything is optional: traces record different parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventContext {
    /// The host call that launched device work.
    pub launch: Option<EventId>,
    /// The innermost slice around that call that is not a runtime call.
    pub operator: Option<EventId>,
    /// Input shapes of the operator, as recorded, at most 4 KiB of them.
    pub shapes: Option<String>,
    /// The operator of the forward pass from which a flow leads here.
    pub forward: Option<EventId>,
    /// The innermost module.
    pub module: Option<EventId>,
    /// The innermost Python function of the user's program.
    pub line: Option<EventId>,
    /// The slices around the event, or around its launch; innermost first.
    pub frames: Vec<EventId>,
}

impl EventContext {
    /// Follows the event's flows and enclosing slices. Linear in the nesting depth.
    pub fn compute(trace: &Trace, event: &Event) -> Self {
        let launch = launch_of(trace, event);
        let mut around = enclosing(trace, launch.unwrap_or(event.id));
        if let Some(launch) = launch {
            around.insert(0, launch);
        }
        let operator = launch.and_then(|launch| launch::operation(trace, launch));
        let forward = around
            .iter()
            .take(MAX_LINKED)
            .find_map(|id| forward_of(trace, *id));
        let linked = forward.map_or_else(Vec::new, |forward| {
            let mut chain = enclosing(trace, forward);
            chain.insert(0, forward);
            chain
        });
        let named = |test: &dyn Fn(&str) -> bool| {
            let chain = around.iter().chain(&linked);
            chain
                .copied()
                .find(|id| name_of(trace, *id).is_some_and(test))
        };
        Self {
            launch,
            shapes: operator.and_then(|operator| shapes(trace, operator)),
            operator,
            forward,
            module: named(&|name| name.starts_with(MODULE_CALL)),
            line: named(&is_own_line),
            frames: around,
        }
    }
}

/// Returns the host call whose flow leads to the device work, or without a flow, the call with the
/// same correlation number.
fn launch_of(trace: &Trace, event: &Event) -> Option<EventId> {
    if kind_of_track(trace, event.id)? != TrackKind::DeviceQueue {
        return None;
    }
    let links = trace.flows_in(event.id);
    let mut sources = links.iter().rev().map(|link| link.from);
    sources
        .find(|id| kind_of_track(trace, *id) == Some(TrackKind::Thread))
        .or_else(|| call_by_number(trace, event))
}

/// Returns the last launch call before device work that has its correlation number. Searches at
/// most [`MAX_CALLS`] calls among [`MAX_SLICES`] slices of each thread of the file.
fn call_by_number(trace: &Trace, event: &Event) -> Option<EventId> {
    let number = Config::from_event(trace, event.id).correlation?;
    let tracks = trace.tracks();
    let file = tracks.get(event.track.index())?.file;
    let threads = tracks
        .iter()
        .filter(|track| track.kind == TrackKind::Thread && track.file == file);
    threads
        .filter_map(|track| {
            let slices = trace.slices(track.id);
            let before = slices.start.partition_point(|at| *at <= event.start);
            (0..before)
                .rev()
                .take(MAX_SLICES)
                .filter(|index| {
                    let name = slices.name.get(*index);
                    name.is_some_and(|name| launch::launches_work(trace.name(*name)))
                })
                .take(MAX_CALLS)
                .map(|index| slices.id(index))
                .find(|id| Config::from_event(trace, *id).correlation == Some(number))
        })
        .max_by_key(|id| {
            let place = trace.place_of_slice(*id);
            place.and_then(|(track, index)| trace.slices(track).start.get(index).copied())
        })
}

/// Returns the slice of another thread from which a flow leads here: for a backward operator, the
/// forward operator.
fn forward_of(trace: &Trace, id: EventId) -> Option<EventId> {
    let (track, _) = trace.place_of_slice(id)?;
    let links = trace.flows_in(id);
    let mut sources = links.iter().map(|link| link.from);
    sources.find(|from| {
        let other = trace.place_of_slice(*from).map(|(other, _)| other);
        other.is_some_and(|other| other != track)
            && kind_of_track(trace, *from) == Some(TrackKind::Thread)
    })
}

fn kind_of_track(trace: &Trace, id: EventId) -> Option<TrackKind> {
    let track = trace.track_of(id)?;
    Some(trace.tracks().get(track.index())?.kind)
}

fn name_of(trace: &Trace, id: EventId) -> Option<&str> {
    let (track, index) = trace.place_of_slice(id)?;
    Some(trace.name(*trace.slices(track).name.get(index)?))
}

/// Returns the slices around a slice on its track, innermost first.
fn enclosing(trace: &Trace, id: EventId) -> Vec<EventId> {
    let Some((track, index)) = trace.place_of_slice(id) else {
        return Vec::new();
    };
    let slices = trace.slices(track);
    let parent = |index: usize| Some(*slices.parent.get(index)? as usize);
    std::iter::successors(parent(index), |index| parent(*index))
        .take_while(|index| *index < slices.len())
        .map(|index| slices.id(index))
        .collect()
}

/// Returns the input shapes from the args of an operator.
fn shapes(trace: &Trace, operator: EventId) -> Option<String> {
    let mut found = None;
    let args = trace.args(operator, &mut |key, value| {
        if !matches!(
            key,
            "Input Dims" | "Input dims" | "Input Shapes" | "Input shapes"
        ) {
            return;
        }
        if let ArgValue::Json(text) | ArgValue::Str(text) = value {
            let end = text.floor_char_boundary(MAX_SHAPES_BYTES);
            found = Some(text[..end].to_owned());
        }
    });
    args.ok()?;
    found.filter(|text| !text.is_empty())
}
