//! Single events of a trace, and the links between them.

use stepscope_model::{
    ArgRef, Dur, FlowKey, NameId, SliceFlags, SliceKind, StepNumber, Time, TrackId,
};

/// Row of one slice or instant in the whole trace: slices of track 0, then of track 1, ..., then
/// instants in the same order of tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct EventId(pub u32);

/// All data of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// The track it lies on.
    pub track: TrackId,
    /// Index within its track's slices or instants.
    pub index: usize,
    /// Whether it is an instant.
    pub instant: bool,
    /// Start time.
    pub start: Time,
    /// Duration; zero for an instant.
    pub dur: Dur,
    /// `dur` minus the time that its direct children cover.
    pub self_time: Dur,
    /// Name.
    pub name: NameId,
    /// The file's own category.
    pub category: NameId,
    /// Nesting level within its own lane.
    pub depth: u16,
    /// Display row on its track.
    pub row: u16,
    /// The enclosing slice.
    pub parent: Option<EventId>,
    /// Kind, computed from name and category.
    pub kind: SliceKind,
    /// See [`SliceFlags`].
    pub flags: SliceFlags,
    /// Step number; step markers only.
    pub step: Option<StepNumber>,
    /// Reference to its arguments; [`Trace::args`](crate::Trace::args) reads them.
    pub args: ArgRef,
}

/// One directed link between two slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEdge {
    /// The event at which the link starts.
    pub from: EventId,
    /// The event at which the link ends.
    pub to: EventId,
    /// Key of the flow that contains the link.
    pub key: FlowKey,
}

/// One step marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMark {
    /// The step's number, as the program counts it.
    pub number: StepNumber,
    /// The slice that marks it.
    pub event: EventId,
}
