//! Sums over the path: time by kind, by confidence, and by finer kinds of host and device time.

use super::CriticalPath;
use super::graph::{EdgeConfidence, LagKind, SegmentKind};
use super::path::PathKind;
use crate::parallel::Cancel;

/// Sums over a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTotals {
    /// Number of rows.
    pub rows: usize,
    /// Time of each kind, picoseconds, in the order of [`PathKind::ALL`].
    pub by_kind: [i64; PathKind::ALL.len()],
    /// Time that depends on inferred edges, picoseconds.
    pub inferred: i64,
    /// Parts of host and device time.
    pub fine: FineTimes,
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

impl FineTimes {
    fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.input, other.input),
            (&mut self.compile, other.compile),
            (&mut self.host, other.host),
            (&mut self.compute, other.compute),
            (&mut self.copy, other.copy),
        ];
        for (sum, part) in sums {
            *sum = sum.saturating_add(part);
        }
    }
}

impl PathTotals {
    /// Returns the length of the path, picoseconds.
    pub fn length(&self) -> i64 {
        self.by_kind.iter().copied().fold(0, i64::saturating_add)
    }

    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        for (sum, part) in self.by_kind.iter_mut().zip(other.by_kind) {
            *sum = sum.saturating_add(part);
        }
        self.inferred = self.inferred.saturating_add(other.inferred);
        self.fine.add(&other.fine);
    }

    pub(super) fn compute(path: &CriticalPath<'_>) -> Self {
        let (input, compile) = path.host_classes();
        let sums = path.blocks.scan(
            path.graph(),
            &path.path,
            &Cancel::default(),
            Self::default,
            |sums, _, row| {
                let segment = row.segment as usize;
                let length = row.length();
                sums.rows += 1;
                let of_kind = &mut sums.by_kind[row.kind as usize];
                *of_kind = of_kind.saturating_add(length);
                if row.edge == EdgeConfidence::Inferred {
                    sums.inferred = sums.inferred.saturating_add(length);
                }
                let fine = &mut sums.fine;
                let sum = match row.kind {
                    PathKind::Host if input.has(path, segment) => &mut fine.input,
                    PathKind::Host if compile.has(path, segment) => &mut fine.compile,
                    PathKind::Host => &mut fine.host,
                    PathKind::Device if path.graph().kind[segment] == SegmentKind::Copy => {
                        &mut fine.copy
                    }
                    PathKind::Device => &mut fine.compute,
                    _ => return,
                };
                *sum = sum.saturating_add(length);
            },
        );
        let mut found = Self::default();
        // Nothing cancels it.
        for sums in sums.unwrap_or_default() {
            found.add(&sums);
        }
        found
    }
}

impl CriticalPath<'_> {
    /// Returns the sums over the path, computed on first use.
    pub fn totals(&self) -> &PathTotals {
        self.figures
            .totals
            .get_or_init(|| PathTotals::compute(self))
    }

    /// Returns how often consecutive ranges of the path belong to different files.
    pub fn changes_of_file(&self) -> usize {
        let queues = &self.segments.queues;
        let mut files = self.path.iter().map(|row| {
            let queue = self.blocks.graph.queue[row.segment as usize];
            queues[queue as usize].file
        });
        let Some(mut last) = files.next() else {
            return 0;
        };
        files
            .filter(|file| std::mem::replace(&mut last, *file) != *file)
            .count()
    }

    /// Counts the edges of each kind and confidence, in the order of [`LagKind::ALL`] and [`EdgeConfidence::ALL`].
    pub fn edge_counts(&self) -> [[usize; EdgeConfidence::ALL.len()]; LagKind::ALL.len()] {
        let mut counts = [[0; EdgeConfidence::ALL.len()]; LagKind::ALL.len()];
        let graph = &self.blocks.graph;
        for edge in graph.dependencies.list.iter().chain(&graph.syncs.list) {
            counts[edge.kind as usize][edge.confidence as usize] += 1;
        }
        counts
    }
}
