//! The path: a walk back from the end of the window along binding dependencies.

use std::ops::Range;

use super::graph::{DependencyGraph, EdgeConfidence, LagKind, SegmentKind, index};

/// What a range of the path is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathKind {
    /// A host thread works, or nothing is recorded on the thread of the steps.
    Host,
    /// A device computes or copies.
    Device,
    /// Communication; of a collective with several participants its transfer.
    Communication,
    /// From the end of a launching call to the start of the work.
    LaunchLatency,
    /// Between two pieces of work on one queue.
    KernelGap,
    /// From the end of the work that an event marks to the start of the work that waits for it.
    EventWait,
    /// From the end of the awaited work to the end of the wait.
    SyncReturn,
    /// From one thread to another.
    Handover,
    /// The file does not show the cause.
    Unknown,
}

impl PathKind {
    /// All, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Host,
        Self::Device,
        Self::Communication,
        Self::LaunchLatency,
        Self::KernelGap,
        Self::EventWait,
        Self::SyncReturn,
        Self::Handover,
        Self::Unknown,
    ];

    /// Returns the name in data.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Communication => "communication",
            Self::LaunchLatency => "launch_latency",
            Self::KernelGap => "kernel_gap",
            Self::EventWait => "event_wait",
            Self::SyncReturn => "sync_return",
            Self::Handover => "handover",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the name in sentences and legends.
    pub const fn label(self) -> &'static str {
        match self {
            Self::LaunchLatency => "launch latency",
            Self::KernelGap => "kernel gap",
            Self::EventWait => "event wait",
            Self::SyncReturn => "return of a wait",
            Self::Handover => "hand-over",
            Self::Host | Self::Device | Self::Communication | Self::Unknown => self.as_str(),
        }
    }

    /// Returns whether the time belongs to a segment, as opposed to the lag before or after one.
    pub const fn is_segment(self) -> bool {
        matches!(self, Self::Host | Self::Device | Self::Communication)
    }

    pub(super) const fn of_segment(kind: SegmentKind) -> Self {
        match kind {
            SegmentKind::Host => Self::Host,
            SegmentKind::Compute | SegmentKind::Copy => Self::Device,
            SegmentKind::Communication => Self::Communication,
        }
    }

    pub(super) const fn of_lag(kind: LagKind) -> Self {
        match kind {
            LagKind::ThreadGap | LagKind::Idle => Self::Unknown,
            LagKind::KernelGap => Self::KernelGap,
            LagKind::EventWait => Self::EventWait,
            LagKind::LaunchLatency => Self::LaunchLatency,
            LagKind::Handover => Self::Handover,
            LagKind::SyncReturn => Self::SyncReturn,
        }
    }
}

/// One range of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSegment {
    /// What it is charged to.
    pub kind: PathKind,
    /// The segment whose time it is, or that the lag belongs to.
    pub segment: u32,
    /// Start, picoseconds.
    pub begin: i64,
    /// End, picoseconds.
    pub end: i64,
    /// Confidence of the edge: of the lag, or of the edge through which the walk reached the segment.
    pub edge: EdgeConfidence,
}

impl PathSegment {
    /// Returns the length, picoseconds.
    pub const fn length(&self) -> i64 {
        self.end.saturating_sub(self.begin)
    }
}

/// Walks back from a point in a segment to the start of the window. The result is in order of time and covers the
/// window without gaps or overlaps.
pub(crate) fn walk(graph: &DependencyGraph, last: usize, window: &Range<i64>) -> Vec<PathSegment> {
    let mut walk = Walk::new(window);
    let mut segment = last;
    // Time after the end of the last segment has no cause.
    walk.charge(PathKind::Unknown, segment, graph.end[segment]);
    while !walk.is_done() {
        if walk.time >= graph.end[segment]
            && let Some(sync) = graph.bound_wait(segment)
        {
            walk.edge = sync.confidence;
            walk.charge(PathKind::SyncReturn, segment, sync.anchor);
            segment = sync.from as usize;
            continue;
        }
        if let Some(group) = graph.group(segment) {
            let last = graph.last_arriver(group);
            // The end of a participant follows the last arrival even if its transfer takes no time.
            if walk.time > graph.begin[last] || walk.time >= graph.end[segment] {
                walk.charge(PathKind::Communication, segment, graph.begin[last]);
                if last != segment {
                    walk.edge = EdgeConfidence::Recorded;
                }
                segment = last;
            }
        }
        walk.charge(
            PathKind::of_segment(graph.kind[segment]),
            segment,
            graph.begin[segment],
        );
        let Some(bound) = graph.bound(segment) else {
            walk.edge = EdgeConfidence::Ordered;
            walk.charge(PathKind::Unknown, segment, walk.start);
            break;
        };
        walk.edge = bound.confidence;
        let kind = PathKind::of_lag(graph.lag_kind(segment, &bound));
        walk.charge(kind, segment, bound.anchor);
        segment = bound.from as usize;
    }
    walk.rows.reverse();
    walk.rows
}

/// A walk back.
pub(super) struct Walk {
    /// The rows so far, the last one first.
    pub(super) rows: Vec<PathSegment>,
    start: i64,
    /// Time up to which the walk came.
    pub(super) time: i64,
    edge: EdgeConfidence,
}

impl Walk {
    /// Begins at the end of a window.
    pub(super) const fn new(window: &Range<i64>) -> Self {
        Self {
            rows: Vec::new(),
            start: window.start,
            time: window.end,
            edge: EdgeConfidence::Ordered,
        }
    }

    /// Returns whether the walk reached the start of the window.
    pub(super) const fn is_done(&self) -> bool {
        self.time <= self.start
    }

    /// Charges the time since `begin` and moves there.
    pub(super) fn charge(&mut self, kind: PathKind, segment: usize, begin: i64) {
        let begin = begin.max(self.start);
        if begin < self.time {
            self.rows.push(PathSegment {
                kind,
                segment: index(segment),
                begin,
                end: self.time,
                edge: self.edge,
            });
            self.time = begin;
        }
    }
}
