//! [`Trace`], the finished, immutable trace, and the types of its content.

use std::ops::Range;
use std::sync::Arc;

use stepscope_model::{ArgSource, Dur, Epoch, NameId, Time, TrackId, TrackKind};

use crate::columns::column::Uniform;
use crate::columns::sections::Sections;
use crate::columns::table::TrackTable;
use crate::columns::text_column::TextColumn;
use crate::read::derived::DerivedValues;
use crate::read::event::{EventId, StepMark};
use crate::read::facts::{DiagnosticCount, FileFacts};
use crate::read::flow_table::FlowTable;
use crate::read::kinds::KindMemo;

/// One track of a finished trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// Its position in [`Trace::tracks`].
    pub id: TrackId,
    /// Stable for the same file content; unique in the run (prefixed by the host or rank when
    /// there are several files).
    pub key: String,
    /// Display name; the key if the file gives no name.
    pub name: String,
    /// See [`TrackKind`].
    pub kind: TrackKind,
    /// The enclosing group.
    pub parent: Option<TrackId>,
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Operating-system process id, or the id that the file uses instead.
    pub pid: Option<i64>,
    /// Operating-system thread id, or the id that the file uses instead.
    pub tid: Option<i64>,
    /// Ordinal of the accelerator.
    pub device: Option<u32>,
    /// Queue of that accelerator.
    pub stream: Option<i64>,
    /// Position among the siblings, as the file gives it. Tracks are already in this order.
    pub sort_index: Option<i64>,
    /// Unit of a counter's values.
    pub unit: Option<String>,
    /// Whether a tool computed the row.
    pub derived: bool,
    /// Number of display rows of its slices (nesting and overflow), clipped at 4,096.
    pub rows: u16,
    /// Number of rows, from the bottom, that hold overlapping events.
    pub overflow_rows: u16,
    /// Number of slices.
    pub slices: u32,
    /// Number of instants.
    pub instants: u32,
    /// Number of samples.
    pub samples: u32,
    /// Union of its slices.
    pub busy: Dur,
}

/// Categories of one track's events: usually one for all.
#[derive(Clone, Copy, Debug)]
pub enum Categories<'a> {
    /// All events have this category.
    One(NameId),
    /// One category per event.
    Each(&'a [NameId]),
}

impl Categories<'_> {
    /// Returns the category of the event with this index; [`NameId::EMPTY`] if out of range.
    pub fn get(&self, index: usize) -> NameId {
        match self {
            Self::One(category) => *category,
            Self::Each(categories) => categories.get(index).copied().unwrap_or_default(),
        }
    }
}

impl<'a> From<&'a Uniform<NameId>> for Categories<'a> {
    fn from(categories: &'a Uniform<NameId>) -> Self {
        match categories {
            Uniform::One(category) => Self::One(*category),
            Uniform::Each(categories) => Self::Each(categories),
        }
    }
}

/// Columns of one track's slices, sorted by (start, longest first). All have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a> {
    /// Id of the first; ids are consecutive.
    pub first_id: EventId,
    /// Start times.
    pub start: &'a [Time],
    /// Durations; never negative.
    pub dur: &'a [Dur],
    /// Names.
    pub name: &'a [NameId],
    /// The file's own categories.
    pub category: Categories<'a>,
    /// Nesting level within its own lane, below 4,096.
    pub depth: &'a [u16],
    /// Index (within the track) of the enclosing slice, `u32::MAX` at the top.
    pub parent: &'a [u32],
}

impl Slices<'_> {
    /// Returns the number of slices.
    pub fn len(&self) -> usize {
        self.start.len()
    }

    /// Returns whether there are no slices.
    pub fn is_empty(&self) -> bool {
        self.start.is_empty()
    }

    /// Returns the end of the slice with this index; [`Time::MIN`] if out of range.
    #[inline]
    pub fn end(&self, index: usize) -> Time {
        match (self.start.get(index), self.dur.get(index)) {
            (Some(start), Some(dur)) => start.saturating_add(*dur),
            _ => Time::MIN,
        }
    }

    /// Returns the id of the slice with this index.
    pub fn id(&self, index: usize) -> EventId {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        EventId(self.first_id.0.saturating_add(index))
    }
}

/// Columns of one track's instants, sorted by time.
#[derive(Clone, Copy, Debug)]
pub struct Instants<'a> {
    /// Id of the first; ids are consecutive.
    pub first_id: EventId,
    /// Times.
    pub at: &'a [Time],
    /// Names.
    pub name: &'a [NameId],
    /// The file's own categories.
    pub category: Categories<'a>,
}

/// Columns of one counter's samples, sorted by time.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Times.
    pub at: &'a [Time],
    /// Values, in the track's unit.
    pub value: &'a [f64],
}

/// A finished trace: immutable, `Send + Sync`, shared by reference or `Arc`.
///
/// Built by [`TraceBuilder`](crate::TraceBuilder), or opened from a cache image with
/// [`Trace::load`].
pub struct Trace {
    pub(crate) files: Vec<FileFacts>,
    pub(crate) epoch: Epoch,
    pub(crate) names: TextColumn,
    pub(crate) tracks: Vec<Track>,
    pub(crate) tables: Vec<TrackTable>,
    /// Id of each track's first slice, then the id of the first instant of the trace.
    pub(crate) first_slice: Vec<u32>,
    /// Id of each track's first instant, then the number of events.
    pub(crate) first_instant: Vec<u32>,
    /// Tracks in order of their keys.
    pub(crate) by_key: Vec<u32>,
    pub(crate) flows: FlowTable,
    pub(crate) steps: Vec<StepMark>,
    pub(crate) diagnostics: Vec<DiagnosticCount>,
    pub(crate) sources: Vec<Arc<dyn ArgSource>>,
    /// Number of each file's first source.
    pub(crate) first_source: Vec<u16>,
    /// Compiled programs that are in none of the files.
    pub(crate) programs: Option<Arc<dyn ArgSource>>,
    /// Traces without a timeline that were found next to the files.
    pub(crate) attached: Vec<Arc<Self>>,
    pub(crate) by_category: Vec<(NameId, u64)>,
    pub(crate) slice_span: Option<Range<Time>>,
    pub(crate) core: Range<Time>,
    pub(crate) span: Range<Time>,
    pub(crate) kinds: KindMemo,
    pub(crate) derived: DerivedValues,
    /// Verifies the columns of a large cache image.
    pub(crate) sections: Option<Arc<Sections>>,
}
