//! The immutable columnar trace. (API skeleton: signatures are the contract, bodies to come.)
#![allow(unused_variables, clippy::todo, missing_docs)]

use std::ops::Range;
use std::sync::Arc;

use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Diagnostic, Dur, Epoch, EventSink, FlowBind, FlowKey,
    InstantIn, NameId, SharedBytes, SliceFlags, SliceFlow, SliceIn, SliceKind, SourceId,
    StepNumber, Time, TrackId, TrackKind, TrackPatch,
};

/// Row of one slice or instant in the whole trace: slices of track 0, then of track 1, ..., then instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct EventId(pub u32);

/// One file that was poured into a trace (one host or one rank).
#[derive(Clone, Debug, Default)]
pub struct FileSpec {
    /// Path as shown to users.
    pub path: String,
    /// `Format::code` of the file.
    pub format: String,
    pub bytes: u64,
    /// Host name, from the file name or its content. Prefixed to track keys when a run has several files.
    pub host: String,
    pub rank: Option<u32>,
}

/// What is known of one file after building.
#[derive(Clone, Debug)]
pub struct FileFacts {
    pub spec: FileSpec,
    pub epoch: Epoch,
    /// This file's own ZERO on the run's clock (added to all its times when files were merged).
    pub shift: Dur,
    pub facts: Vec<(String, FactValue)>,
    pub modules: Vec<(String, Option<u64>)>,
    /// slices (complete intervals on Thread/DeviceQueue/Steps tracks, not derived), per category, in the file's own terms
    pub slices: u64,
    pub async_slices: u64,
    pub derived_slices: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FactValue {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(String),
}

#[derive(Clone, Debug)]
pub struct DiagnosticCount {
    pub what: Diagnostic,
    pub count: u64,
    pub details: Vec<String>,
    pub file: Option<usize>,
}

#[derive(Default)]
pub struct TraceBuilder {}
impl TraceBuilder {
    pub fn new() -> Self {
        todo!()
    }
    /// A sink for one file; sinks of several files may be poured on several threads.
    pub fn file(&self, spec: FileSpec) -> FileSink {
        todo!()
    }
    pub fn add(&mut self, sink: FileSink) {
        todo!()
    }
    /// Sorts, nests, links and seals. Files are put on one clock by their Unix time.
    pub fn finish(self) -> Trace {
        todo!()
    }
}

/// The store's [`EventSink`].
pub struct FileSink {}
impl EventSink for FileSink {
    fn epoch(&mut self, epoch: Epoch) {
        todo!()
    }
    fn name(&mut self, text: &str) -> NameId {
        todo!()
    }
    fn track(&mut self, key: &str) -> TrackId {
        todo!()
    }
    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        todo!()
    }
    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        todo!()
    }
    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        todo!()
    }
    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        todo!()
    }
    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        todo!()
    }
    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        todo!()
    }
    fn module(&mut self, name: &str, program_id: Option<u64>) {
        todo!()
    }
    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        todo!()
    }
    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        todo!()
    }
    fn fork(&self) -> Self {
        todo!()
    }
    fn merge(&mut self, fork: Self) {
        todo!()
    }
}
impl FileSink {
    /// The reader failed: keep what was poured and remember why.
    pub fn fail(&mut self, reason: &str) {
        todo!()
    }
    pub fn spec_mut(&mut self) -> &mut FileSpec {
        todo!()
    }
}

/// A finished trace. Cheap to share, immutable, `Send + Sync`.
pub struct Trace {}

/// One track of a finished trace.
#[derive(Clone, Debug)]
pub struct Track {
    pub id: TrackId,
    /// Stable for the same file content; unique in the run (prefixed by the host when there are several files).
    pub key: String,
    pub name: String,
    pub kind: TrackKind,
    pub parent: Option<TrackId>,
    /// Index into [`Trace::files`].
    pub file: usize,
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    pub device: Option<u32>,
    pub stream: Option<i64>,
    pub unit: Option<String>,
    pub derived: bool,
    /// Display rows that its slices need (nesting and overflow), clipped at 4,096.
    pub rows: u16,
    /// How many of the rows, from the bottom, hold overlapping events.
    pub overflow_rows: u16,
    pub slices: u32,
    pub instants: u32,
    pub samples: u32,
    /// Union of its slices.
    pub busy: Dur,
}

/// Columns of one track's slices, sorted by (start, longest first). All slices of columns have equal length.
#[derive(Clone, Copy)]
pub struct Slices<'a> {
    /// Id of the first; ids are consecutive.
    pub first_id: EventId,
    pub start: &'a [Time],
    pub dur: &'a [Dur],
    pub name: &'a [NameId],
    pub category: &'a [NameId],
    /// Nesting level within its own row group.
    pub depth: &'a [u16],
    /// Index (within the track) of the enclosing slice, `u32::MAX` at the top.
    pub parent: &'a [u32],
}

#[derive(Clone, Copy)]
pub struct Instants<'a> {
    pub first_id: EventId,
    pub at: &'a [Time],
    pub name: &'a [NameId],
    pub category: &'a [NameId],
}
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    pub at: &'a [Time],
    pub value: &'a [f64],
}

/// One event, whole.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub id: EventId,
    pub track: TrackId,
    /// Index within its track's slices or instants.
    pub index: usize,
    pub instant: bool,
    pub start: Time,
    pub dur: Dur,
    /// `dur` less what its direct children cover.
    pub self_time: Dur,
    pub name: NameId,
    pub category: NameId,
    pub depth: u16,
    pub row: u16,
    pub parent: Option<EventId>,
    pub kind: SliceKind,
    pub flags: SliceFlags,
    pub step: Option<StepNumber>,
    pub args: ArgRef,
}

/// One directed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEdge {
    pub from: EventId,
    pub to: EventId,
    pub key: FlowKey,
}

#[derive(Clone, Copy, Debug)]
pub struct StepMark {
    pub number: StepNumber,
    pub event: EventId,
}

/// Answer of [`Trace::items`]: columns of equal length, sorted by (row, start).
#[derive(Clone, Debug, Default)]
pub struct Items {
    pub t0: Vec<Time>,
    pub t1: Vec<Time>,
    /// The event itself (count 1) or the longest of the merged ones.
    pub id: Vec<EventId>,
    pub name: Vec<NameId>,
    pub count: Vec<u32>,
    pub row: Vec<u16>,
    pub kind: Vec<SliceKind>,
    /// Covered share of [t0, t1) x 255.
    pub busy: Vec<u8>,
}
/// Counter answer: per bin the first time, min, max and last value.
#[derive(Clone, Debug, Default)]
pub struct CounterBins {
    pub t: Vec<Time>,
    pub min: Vec<f64>,
    pub max: Vec<f64>,
    pub last: Vec<f64>,
}

impl Trace {
    pub fn files(&self) -> &[FileFacts] {
        todo!()
    }
    /// Clock of the run: origin of the first file; Unix time of `Time::ZERO`.
    pub fn epoch(&self) -> Epoch {
        todo!()
    }
    /// First begin and last end over slices only; `None` when there are none.
    pub fn slice_span(&self) -> Option<Range<Time>> {
        todo!()
    }
    /// First and last time over everything.
    pub fn span(&self) -> Range<Time> {
        todo!()
    }
    pub fn name(&self, id: NameId) -> &str {
        todo!()
    }
    pub fn name_count(&self) -> usize {
        todo!()
    }
    /// Ids of all names for which `matches` is true (each distinct name is asked once).
    pub fn find_names(&self, matches: &mut dyn FnMut(&str) -> bool) -> Vec<NameId> {
        todo!()
    }
    pub fn tracks(&self) -> &[Track] {
        todo!()
    }
    pub fn track_by_key(&self, key: &str) -> Option<TrackId> {
        todo!()
    }
    pub fn slices(&self, track: TrackId) -> Slices<'_> {
        todo!()
    }
    pub fn instants(&self, track: TrackId) -> Instants<'_> {
        todo!()
    }
    pub fn samples(&self, track: TrackId) -> Samples<'_> {
        todo!()
    }
    /// Display row of each slice of the track: `None` means that it equals `depth`.
    pub fn rows(&self, track: TrackId) -> Option<&[u16]> {
        todo!()
    }
    pub fn event_count(&self) -> u32 {
        todo!()
    }
    pub fn slice_count(&self) -> u64 {
        todo!()
    }
    pub fn event(&self, id: EventId) -> Option<Event> {
        todo!()
    }
    pub fn kind(&self, track: TrackId, name: NameId, category: NameId) -> SliceKind {
        todo!()
    }
    /// Calls `visit` for each argument of the event.
    pub fn args(
        &self,
        id: EventId,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        todo!()
    }
    /// Level of detail: any window, at most about `bins` items per row. `bin` is (t1-t0)/bins.
    pub fn items(&self, track: TrackId, window: Range<Time>, bins: u32) -> Items {
        todo!()
    }
    /// The collapsed row: busy share (x 255) of each bin over the union of these tracks' slices.
    pub fn busy_strip(&self, tracks: &[TrackId], window: Range<Time>, bins: u32) -> Vec<u8> {
        todo!()
    }
    pub fn counter_bins(&self, track: TrackId, window: Range<Time>, bins: u32) -> CounterBins {
        todo!()
    }
    /// Union of the track's slices within the window.
    pub fn busy(&self, track: TrackId, window: Range<Time>) -> Dur {
        todo!()
    }
    /// Indexes of slices that intersect the window: `first..end` bounds candidates in start order
    /// (callers still test the ends; `first` accounts for long slices that began earlier).
    pub fn candidates(&self, track: TrackId, window: Range<Time>) -> Range<usize> {
        todo!()
    }
    pub fn prev_next(&self, id: EventId) -> (Option<EventId>, Option<EventId>) {
        todo!()
    }
    pub fn first_child(&self, id: EventId) -> Option<EventId> {
        todo!()
    }
    /// Links that arrive at / leave the event, in time order.
    pub fn flows_in(&self, id: EventId) -> Vec<FlowEdge> {
        todo!()
    }
    pub fn flows_out(&self, id: EventId) -> Vec<FlowEdge> {
        todo!()
    }
    /// Distinct flow keys with both ends; open ends are a diagnostic.
    pub fn flow_count(&self) -> u64 {
        todo!()
    }
    pub fn step_marks(&self) -> &[StepMark] {
        todo!()
    }
    pub fn diagnostics(&self) -> &[DiagnosticCount] {
        todo!()
    }
    /// Slices by category over all files: (category, complete intervals that are neither async nor derived).
    pub fn by_category(&self) -> Vec<(NameId, u64)> {
        todo!()
    }
    /// Bytes held in memory by columns, names and indexes.
    pub fn heap_bytes(&self) -> usize {
        todo!()
    }
    /// Checks every invariant; lists what is broken.
    pub fn debug_validate(&self) -> Result<(), Vec<String>> {
        todo!()
    }
    /// Pours everything into a writer: per track in time order, nested, flows attached to their slices.
    pub fn pour<S: EventSink>(&self, sink: &mut S) {
        todo!()
    }
    /// Writes the cache image.
    pub fn save(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        todo!()
    }
    /// Opens a cache image; columns are used in place. `sources` are the arg sources, one per file, in order, made on first use.
    pub fn load(image: SharedBytes, sources: Vec<Arc<dyn ArgSource>>) -> Result<Self, CacheError> {
        todo!()
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    #[error("cache version {found}, this program writes {supported}; it will be rebuilt")]
    Version { found: u32, supported: u32 },
    #[error("cache image is damaged: {what}")]
    Damaged { what: &'static str },
}
