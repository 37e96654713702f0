//! The path by operation, kind, kernel, module, class, rank, thread or step.

use rustc_hash::FxHashMap;
use stepscope_model::NameId;
use stepscope_store::EventId;

use super::CriticalPath;
use super::class::classes;
use super::graph::{EdgeConfidence, NONE, index};
use super::path::{PathKind, PathSegment};
use super::selection::Modules;
use crate::op_class::OpClass;
use crate::parallel::Cancel;

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

impl PathGrouping {
    /// All, in their order.
    pub const ALL: [Self; 8] = [
        Self::Op,
        Self::Kind,
        Self::Kernel,
        Self::Module,
        Self::Class,
        Self::Rank,
        Self::Thread,
        Self::Step,
    ];
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
    /// Length, start and segment of the longest range.
    longest: (i64, i64, u32),
}

impl PathGroup {
    /// Takes the longer of two ranges, the first of equal ones.
    fn take_longest(&mut self, range: (i64, i64, u32)) {
        let (length, begin, _) = self.longest;
        if range.0 > length || range.0 == length && range.1 < begin {
            self.longest = range;
        }
    }
}

/// Keys of segments and ranges of the path.
struct Keys<'a, 'b> {
    path: &'a CriticalPath<'b>,
    by: PathGrouping,
    modules: Option<Modules>,
    classes: Option<Vec<OpClass>>,
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
                let classes = self.classes.as_ref();
                let class = classes.and_then(|classes| classes.get(segment).copied());
                (PathKey::Class(class.unwrap_or_default()), Some(kind))
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

/// Groups of a part of the path.
struct Grouping<'a, 'b> {
    keys: &'a Keys<'a, 'b>,
    positions: Positions,
    found: Vec<PathGroup>,
}

impl Grouping<'_, '_> {
    fn group(&mut self, key: (PathKey, Option<PathKind>)) -> &mut PathGroup {
        let slot = self.positions.slot(key);
        if *slot == NONE {
            *slot = index(self.found.len());
            self.found.push(PathGroup {
                key: key.0,
                kind: key.1,
                count: 0,
                path_ps: 0,
                total_ps: 0,
                inferred_ps: 0,
                event: None,
                longest: (-1, 0, NONE),
            });
        }
        &mut self.found[*slot as usize]
    }

    /// Adds a range of the path that lies in a block.
    fn add(&mut self, key: (PathKey, Option<PathKind>), block: usize, row: &PathSegment) {
        let own = if row.kind.is_segment() {
            self.keys.path.own_length(block, row.segment as usize)
        } else {
            0
        };
        let group = self.group(key);
        group.count += 1;
        group.path_ps = group.path_ps.saturating_add(row.length());
        group.total_ps = group.total_ps.saturating_add(own);
        if row.edge == EdgeConfidence::Inferred {
            group.inferred_ps = group.inferred_ps.saturating_add(row.length());
        }
        group.take_longest((row.length(), row.begin, row.segment));
    }

    /// Adds the groups of another part.
    fn merge(&mut self, other: &[PathGroup]) {
        for part in other {
            let group = self.group((part.key, part.kind));
            group.count += part.count;
            group.path_ps = group.path_ps.saturating_add(part.path_ps);
            group.total_ps = group.total_ps.saturating_add(part.total_ps);
            group.inferred_ps = group.inferred_ps.saturating_add(part.inferred_ps);
            group.take_longest(part.longest);
        }
    }
}

impl CriticalPath<'_> {
    /// Returns the path by groups, computed on first use; largest time first. The times of the groups add up to the
    /// window.
    pub fn groups(&self, by: PathGrouping) -> &[PathGroup] {
        self.figures.groups[by as usize].get_or_init(|| group(self, by))
    }
}

fn group(path: &CriticalPath<'_>, by: PathGrouping) -> Vec<PathGroup> {
    let keys = Keys {
        path,
        by,
        modules: (by == PathGrouping::Module).then(|| Modules::new(path)),
        classes: (by == PathGrouping::Class).then(|| classes(path)),
    };
    let new = || Grouping {
        keys: &keys,
        positions: Positions::new(path),
        found: Vec::new(),
    };
    let mut whole = new();
    if by == PathGrouping::Step {
        by_step(path, |number, block, row| {
            let key = number.map_or(PathKey::None, PathKey::Step);
            // Only whole segments have times on and off the path.
            whole.add((key, None), block, row);
        });
        for group in &mut whole.found {
            group.total_ps = 0;
        }
    } else {
        let (segments, rows) = (path.graph(), &path.path);
        let scanned = path.blocks.scan(
            segments,
            rows,
            &Cancel::default(),
            new,
            |part, block, row| {
                part.add(keys.of_row(&row), block, &row);
            },
        );
        // Nothing cancels it.
        for part in scanned.unwrap_or_default() {
            whole.merge(&part.found);
        }
        add_others(&keys, &mut whole);
    }
    let mut found = whole.found;
    for group in &mut found {
        let (_, _, segment) = group.longest;
        group.event = path.event(segment as usize);
    }
    found.sort_by_key(|group| (std::cmp::Reverse(group.path_ps), group.key, group.kind));
    found
}

/// Adds the segments that are not on the path to the groups of the path.
fn add_others(keys: &Keys<'_, '_>, whole: &mut Grouping<'_, '_>) {
    let path = keys.path;
    let mut on_path = vec![false; path.blocks.graph.len()];
    for row in path.path.iter().filter(|row| row.kind.is_segment()) {
        on_path[row.segment as usize] = true;
    }
    let blocks = 0..on_path.len();
    for block in blocks.filter(|block| !on_path[*block]) {
        for segment in path.blocks.segments(block) {
            let kind = PathKind::of_segment(path.graph().kind[segment]);
            let slot = *whole.positions.slot(keys.of_segment(kind, segment));
            if let Some(group) = whole.found.get_mut(slot as usize) {
                let total = &mut group.total_ps;
                *total = total.saturating_add(path.own_length(block, segment));
            }
        }
    }
}

/// Cuts the path at the starts and ends of the steps.
fn by_step(path: &CriticalPath<'_>, mut add: impl FnMut(Option<i64>, usize, &PathSegment)) {
    let mut steps = path.steps.iter().peekable();
    path.blocks.visit(path.graph(), &path.path, |block, row| {
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
            add(number, block, &PathSegment { begin, end, ..row });
            begin = end;
        }
    });
}

/// Returns which segments a row of [`PathGrouping::Op`] or [`PathGrouping::Kernel`] stands for.
pub fn segments_named(path: &CriticalPath<'_>, name: NameId, kind: PathKind) -> Vec<bool> {
    let graph = path.graph();
    let is_kind = |segment: usize| {
        PathKind::of_segment(graph.kind[segment]) == kind && path.name(segment) == Some(name)
    };
    (0..graph.len()).map(is_kind).collect()
}
