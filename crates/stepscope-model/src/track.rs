//! Tracks: named rows of events.

use crate::name::NameId;

/// Id of a track within one sink or one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TrackId(pub u32);

impl TrackId {
    /// Returns the id as an index into a table of tracks.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The type of a track's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum TrackKind {
    /// A group without events of its own: a process, a device, a plane.
    Group = 0,
    /// A thread of the host; also the default for a track without a description.
    #[default]
    Thread = 1,
    /// A queue of a device: a GPU stream, an XLA line of a device plane, a `NeuronCore`.
    DeviceQueue = 2,
    /// Intervals that belong to no thread (Chrome async events, Perfetto global tracks).
    Async = 3,
    /// Samples of one number over time.
    Counter = 4,
    /// Step markers of a device (`Steps` lines of XProf).
    Steps = 5,
}

/// Description of a track. Fields that are `None` leave earlier values unchanged.
///
/// Tracks are created by key with [`EventSink::track`](crate::EventSink::track) and described at
/// any time, before or after events are emitted into them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackPatch<'a> {
    /// Display name, e.g. `python` or `stream 7`. Defaults to the key.
    pub name: Option<&'a str>,
    /// See [`TrackKind`].
    pub kind: Option<TrackKind>,
    /// The enclosing group.
    pub parent: Option<TrackId>,
    /// Operating-system process id, or the id that the file uses instead.
    pub pid: Option<i64>,
    /// Operating-system thread id, or the id that the file uses instead.
    pub tid: Option<i64>,
    /// Ordinal of the accelerator.
    pub device: Option<u32>,
    /// Queue of that accelerator.
    pub stream: Option<i64>,
    /// Position among the siblings; smaller is higher. Tracks without one follow, by key.
    pub sort_index: Option<i64>,
    /// Unit of a counter's values, e.g. `bytes`.
    pub unit: Option<&'a str>,
    /// `true` for rows that a tool computed instead of the program recording them.
    pub derived: Option<bool>,
    /// Category that all events of the track share, shown for events without their own.
    pub category: Option<NameId>,
}

/// The merged patches of a track, with owned strings.
///
/// Sinks whose ids are not valid outside a fork refer to the parent and the category by string: `P`
/// and `C`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields of TrackPatch")]
pub struct TrackInfo<P = TrackId, C = NameId> {
    pub name: Option<Box<str>>,
    pub kind: Option<TrackKind>,
    pub parent: Option<P>,
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    pub device: Option<u32>,
    pub stream: Option<i64>,
    pub sort_index: Option<i64>,
    pub unit: Option<Box<str>>,
    pub derived: Option<bool>,
    pub category: Option<C>,
}

impl<P, C> TrackInfo<P, C> {
    /// Copies a patch after its parent and category are resolved.
    pub fn new(patch: &TrackPatch<'_>, parent: Option<P>, category: Option<C>) -> Self {
        Self {
            name: patch.name.map(Into::into),
            kind: patch.kind,
            parent,
            pid: patch.pid,
            tid: patch.tid,
            device: patch.device,
            stream: patch.stream,
            sort_index: patch.sort_index,
            unit: patch.unit.map(Into::into),
            derived: patch.derived,
            category,
        }
    }

    /// Replaces the fields that `later` sets.
    pub fn merge(&mut self, later: Self) {
        self.name = later.name.or(self.name.take());
        self.kind = later.kind.or(self.kind);
        self.parent = later.parent.or(self.parent.take());
        self.pid = later.pid.or(self.pid);
        self.tid = later.tid.or(self.tid);
        self.device = later.device.or(self.device);
        self.stream = later.stream.or(self.stream);
        self.sort_index = later.sort_index.or(self.sort_index);
        self.unit = later.unit.or(self.unit.take());
        self.derived = later.derived.or(self.derived);
        self.category = later.category.or(self.category.take());
    }
}

impl From<TrackPatch<'_>> for TrackInfo {
    fn from(patch: TrackPatch<'_>) -> Self {
        Self::new(&patch, patch.parent, patch.category)
    }
}
