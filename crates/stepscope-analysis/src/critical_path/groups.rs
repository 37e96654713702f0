//! The path by operation, kind, kernel, module, class, rank, thread or step.

use rustc_hash::FxHashMap;
use stepscope_model::NameId;
use stepscope_store::EventId;

use super::CriticalPath;
use super::class::classes;
use super::graph::{Confidence, NONE, SegmentKind, index};
use super::path::{PathKind, PathSegment};
use super::what_if::Modules;
use crate::op_class::OpClass;

/// What the rows of a grouping are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathGrouping {
    /// Slices by name: host time of the innermost slice, and device work.
    Op,
    /// Kinds of time.
    Kind,
    /// Device work by name; everything else by kind.
    Kernel,
    /// Modules of the network.
    Module,
    /// Semantic classes.
    Class,
    /// Ranks.
    Rank,
    /// Threads and device queues.
    Thread,
    /// Steps, by the time of the path.
    Step,
}

/// Key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathKey {
    /// A name of slices.
    Name(NameId),
    /// Time of the steps' thread without a slice.
    NothingRecorded,
    /// A kind of time.
    Kind(PathKind),
    /// A class.
    Class(OpClass),
    /// A rank.
    Rank(u32),
    /// A queue of the graph.
    Queue(u32),
    /// A step, by its number.
    Step(i64),
    /// No module, or time between the steps.
    None,
}

/// A row of a grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGroup {
    /// What its time has in common.
    pub key: PathKey,
    /// Kind of its time, where all of it has one.
    pub kind: Option<PathKind>,
    /// Number of ranges of the path.
    pub count: u64,
    /// Time on the path, picoseconds.
    pub path_ps: i64,
    /// Time of the same segments on and off the path, picoseconds; 0 for lags.
    pub total_ps: i64,
    /// Time that depends on inferred edges, picoseconds.
    pub inferred_ps: i64,
    /// The longest segment on the path.
    pub event: Option<EventId>,
    longest: i64,
}

/// Keys of segments and ranges of the path.
struct Keys<'a, 'b> {
    path: &'a CriticalPath<'b>,
    by: PathGrouping,
    modules: Option<Modules>,
    classes: Vec<OpClass>,
}

impl Keys<'_, '_> {
    /// Returns key and kind of a segment's own time.
    fn of_segment(&self, kind: PathKind, segment: usize) -> (PathKey, Option<PathKind>) {
        let path = self.path;
        let name = || {
            path.name(segment)
                .map_or(PathKey::NothingRecorded, PathKey::Name)
        };
        match self.by {
            PathGrouping::Op => (name(), Some(kind)),
            PathGrouping::Kernel if kind != PathKind::Host => (name(), Some(kind)),
            PathGrouping::Kind | PathGrouping::Kernel => (PathKey::Kind(kind), Some(kind)),
            PathGrouping::Module => {
                let module = self
                    .modules
                    .as_ref()
                    .and_then(|modules| modules.id(path, segment));
                (module.map_or(PathKey::None, PathKey::Name), None)
            }
            PathGrouping::Class => {
                let class = self.classes.get(segment).copied().unwrap_or_default();
                (PathKey::Class(class), Some(kind))
            }
            PathGrouping::Rank | PathGrouping::Thread | PathGrouping::Step => {
                (self.position(segment), None)
            }
        }
    }

    fn position(&self, segment: usize) -> PathKey {
        let queue = self.path.graph().queue[segment];
        if self.by == PathGrouping::Thread {
            return PathKey::Queue(queue);
        }
        let file = self.path.segments.queues[queue as usize].file;
        PathKey::Rank(self.path.rank_of(file))
    }

    /// Returns key and kind of a range of the path.
    fn of_row(&self, row: &PathSegment) -> (PathKey, Option<PathKind>) {
        if row.kind.is_segment() {
            return self.of_segment(row.kind, row.segment as usize);
        }
        match self.by {
            PathGrouping::Rank | PathGrouping::Thread => {
                (self.position(row.segment as usize), None)
            }
            PathGrouping::Module => {
                let (key, _) = self.of_segment(row.kind, row.segment as usize);
                (key, None)
            }
            _ => (PathKey::Kind(row.kind), Some(row.kind)),
        }
    }
}

/// Positions of rows by their key: a table of names and kinds, and a map of the others.
struct Positions {
    names: usize,
    table: Vec<u32>,
    others: FxHashMap<(PathKey, Option<PathKind>), u32>,
}

impl Positions {
    fn new(path: &CriticalPath<'_>) -> Self {
        let names = path.trace.name_count();
        Self {
            names,
            table: vec![NONE; (names + PathKind::ALL.len()) * PathKind::ALL.len()],
            others: FxHashMap::default(),
        }
    }

    /// Returns the slot of a key; `NONE` in it means that the key has no row.
    fn slot(&mut self, key: (PathKey, Option<PathKind>)) -> &mut u32 {
        let row = match key.0 {
            PathKey::Name(name) => Some(name.index()),
            PathKey::Kind(kind) => Some(self.names + kind as usize),
            _ => None,
        };
        if let (Some(row), Some(kind)) = (row, key.1)
            && let Some(slot) = self
                .table
                .get_mut(row * PathKind::ALL.len() + kind as usize)
        {
            return slot;
        }
        self.others.entry(key).or_insert(NONE)
    }
}

/// Groups the path; largest time first. The times of the rows add up to the window.
pub fn group(path: &CriticalPath<'_>, by: PathGrouping) -> Vec<PathGroup> {
    let keys = Keys {
        path,
        by,
        modules: (by == PathGrouping::Module).then(|| Modules::new(path)),
        classes: if by == PathGrouping::Class {
            classes(path)
        } else {
            Vec::new()
        },
    };
    let mut positions = Positions::new(path);
    let mut found: Vec<PathGroup> = Vec::new();
    let mut add = |(key, kind): (PathKey, Option<PathKind>), row: &PathSegment| {
        let slot = positions.slot((key, kind));
        if *slot == NONE {
            *slot = index(found.len());
            found.push(PathGroup {
                key,
                kind,
                count: 0,
                path_ps: 0,
                total_ps: 0,
                inferred_ps: 0,
                event: None,
                longest: -1,
            });
        }
        let group = &mut found[*slot as usize];
        group.count += 1;
        group.path_ps = group.path_ps.saturating_add(row.length());
        if row.edge == Confidence::Inferred {
            group.inferred_ps = group.inferred_ps.saturating_add(row.length());
        }
        if row.length() > group.longest {
            group.longest = row.length();
            group.event = path.event(row.segment as usize);
        }
    };
    if by == PathGrouping::Step {
        for (number, row) in by_step(path) {
            add((number.map_or(PathKey::None, PathKey::Step), None), &row);
        }
    } else {
        for row in &path.path {
            add(keys.of_row(row), row);
        }
        let graph = path.graph();
        for segment in 0..graph.len() {
            let kind = match graph.kind[segment] {
                SegmentKind::Host => PathKind::Host,
                SegmentKind::Communication => PathKind::Communication,
                SegmentKind::Compute | SegmentKind::Copy => PathKind::Device,
            };
            let slot = *positions.slot(keys.of_segment(kind, segment));
            if let Some(group) = found.get_mut(slot as usize) {
                let total = &mut group.total_ps;
                *total = total.saturating_add(path.own_length(segment));
            }
        }
    }
    found.sort_by_key(|group| (std::cmp::Reverse(group.path_ps), group.key, group.kind));
    found
}

/// Cuts the path at the starts and ends of the steps.
fn by_step(path: &CriticalPath<'_>) -> Vec<(Option<i64>, PathSegment)> {
    let mut found = Vec::new();
    let mut steps = path.steps.iter().peekable();
    for row in &path.path {
        let mut begin = row.begin;
        while begin < row.end {
            while steps.peek().is_some_and(|step| step.end <= begin) {
                steps.next();
            }
            let (number, end) = match steps.peek() {
                Some(step) if step.begin <= begin => (Some(step.number), step.end),
                Some(step) => (None, step.begin),
                None => (None, row.end),
            };
            let end = end.min(row.end);
            found.push((number, PathSegment { begin, end, ..*row }));
            begin = end;
        }
    }
    found
}

/// Returns which segments a row of [`PathGrouping::Op`] or [`PathGrouping::Kernel`] stands for.
pub fn segments_named(path: &CriticalPath<'_>, name: NameId, kind: PathKind) -> Vec<bool> {
    let graph = path.graph();
    let is_kind = |segment: usize| {
        let found = match graph.kind[segment] {
            SegmentKind::Host => PathKind::Host,
            SegmentKind::Communication => PathKind::Communication,
            SegmentKind::Compute | SegmentKind::Copy => PathKind::Device,
        };
        found == kind && path.name(segment) == Some(name)
    };
    (0..graph.len()).map(is_kind).collect()
}

/// Time on the path by finer kinds, picoseconds: the parts of host and device time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FineTimes {
    /// Host time of the input pipeline.
    pub input: i64,
    /// Host time of compilation, outside of the input pipeline.
    pub compile: i64,
    /// Other host time.
    pub host: i64,
    /// Computation on devices.
    pub compute: i64,
    /// Copies and memsets on devices.
    pub copy: i64,
}

/// Splits the host and device time of the path.
pub fn fine_times(path: &CriticalPath<'_>) -> FineTimes {
    let (input, compile) = (path.host_class(true), path.host_class(false));
    let mut sums = FineTimes::default();
    for row in &path.path {
        let segment = row.segment as usize;
        let sum = match row.kind {
            PathKind::Host if !input.is_empty() && input.get(path, segment).is_some() => {
                &mut sums.input
            }
            PathKind::Host if !compile.is_empty() && compile.get(path, segment).is_some() => {
                &mut sums.compile
            }
            PathKind::Host => &mut sums.host,
            PathKind::Device if path.graph().kind[segment] == SegmentKind::Copy => &mut sums.copy,
            PathKind::Device => &mut sums.compute,
            _ => continue,
        };
        *sum = sum.saturating_add(row.length());
    }
    sums
}
