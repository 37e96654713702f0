//! Counts of a build: slices by class, anomalies by file.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use stepscope_model::{Diagnostic, NameId, TrackKind};

use crate::build::buffer::is_derived;
use crate::columns::column::Uniform;
use crate::columns::table::TrackTable;
use crate::read::facts::DiagnosticCount;

/// Slices of one track by class.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) recorded: u64,
    pub(crate) asynchronous: u64,
    pub(crate) derived: u64,
    pub(crate) by_category: Vec<(NameId, u64)>,
}

pub(crate) fn count(table: &TrackTable, kind: TrackKind, derived: bool) -> Counted {
    let slices = &table.slices;
    let all = slices.start.len() as u64;
    let mut counted = Counted::default();
    let derived_slices = match (&slices.flags, derived) {
        (_, true) => all,
        (Uniform::One(flags), _) => {
            if is_derived(*flags) {
                all
            } else {
                0
            }
        }
        (Uniform::Each(flags), _) => {
            flags.iter().filter(|flags| is_derived(**flags)).count() as u64
        }
    };
    counted.derived = derived_slices;
    if kind == TrackKind::Async {
        counted.asynchronous = all - derived_slices;
        return counted;
    }
    counted.recorded = all - derived_slices;
    if counted.recorded == 0 {
        return counted;
    }
    match &slices.category {
        Uniform::One(category) => counted.by_category.push((*category, counted.recorded)),
        Uniform::Each(categories) => {
            let mut counts: HashMap<NameId, u64, FxBuildHasher> = HashMap::default();
            for (index, category) in categories.iter().enumerate() {
                if !is_derived(slices.flags.get(index)) {
                    *counts.entry(*category).or_insert(0) += 1;
                }
            }
            counted.by_category = counts.into_iter().collect();
            counted.by_category.sort_unstable();
        }
    }
    counted
}

/// A count and the tracks that contribute most of it.
#[derive(Clone, Default)]
pub(crate) struct TrackCounts {
    count: u64,
    worst: Vec<(u64, String)>,
}

impl TrackCounts {
    pub(crate) fn add(&mut self, count: u64, track: &str) {
        if count == 0 {
            return;
        }
        self.count += count;
        let place = self.worst.partition_point(|known| known.0 >= count);
        if place < 3 {
            self.worst.insert(place, (count, track.to_owned()));
            self.worst.truncate(3);
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct FileCounts {
    pub(crate) overlapping: TrackCounts,
    pub(crate) clipped: TrackCounts,
    pub(crate) impossible: TrackCounts,
    pub(crate) open: TrackCounts,
}

impl FileCounts {
    pub(crate) fn into_diagnostics(self, file: usize) -> impl Iterator<Item = DiagnosticCount> {
        [
            (Diagnostic::PartialOverlap, self.overlapping),
            (Diagnostic::DepthClipped, self.clipped),
            (Diagnostic::ImpossibleDuration, self.impossible),
            (Diagnostic::OpenFlow, self.open),
        ]
        .into_iter()
        .filter(|(_, counts)| counts.count > 0)
        .map(move |(what, counts)| DiagnosticCount {
            what,
            count: counts.count,
            details: counts
                .worst
                .iter()
                .map(|(count, track)| format!("{count} on track {track}"))
                .collect(),
            file: Some(file),
        })
    }
}
