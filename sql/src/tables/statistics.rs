//! `names` and `profiles`: sums by name, and rows of statistics without a timeline.

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use rustc_hash::FxHashMap;
use stepscope_analysis::parallel::scan_items;
use stepscope_model::{Dur, NameId, SliceKind, TrackId};
use stepscope_store::{EventId, Trace};

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(super) const NAMES: Table = Table {
    name: "names",
    row: "a name of slices on a host",
    columns: &[
        common::RUN,
        common::HOST,
        column("name", Type::Text, "Name in the file"),
        column("category", Type::Text, "Category in the file"),
        column("kind", Type::Text, "Kind that decides colours"),
        column("count", Type::BigInt, "Slices").unit("count"),
        column("total_ps", Type::BigInt, "Sum of the durations").unit("ps"),
        column("self_ps", Type::BigInt, "Sum without direct children").unit("ps"),
        column("max_ps", Type::BigInt, "Longest duration").unit("ps"),
        column("longest_id", Type::BigInt, "The longest slice").unit("event"),
    ],
    list: |data| Ok(Arc::new(names(data)?)),
};

/// File (of a host), name, category, kind.
type Key = (usize, NameId, NameId, SliceKind);

#[derive(Clone, Copy)]
struct Sums {
    count: u64,
    total: Dur,
    own: Dur,
    max: Dur,
    longest: EventId,
}

impl Sums {
    fn new(longest: EventId, max: Dur) -> Self {
        Self {
            count: 0,
            total: Dur::ZERO,
            own: Dur::ZERO,
            max,
            longest,
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.own = self.own.saturating_add(other.own);
        // Of several, the first one is the longest, whichever thread came first.
        let longer = (other.max, Reverse(other.longest)) > (self.max, Reverse(self.longest));
        if longer {
            (self.max, self.longest) = (other.max, other.longest);
        }
    }
}

/// Sums of one track, by name and category.
fn sums_of(trace: &Trace, track: TrackId) -> Vec<((NameId, NameId), Sums)> {
    let slices = trace.slices(track);
    let own = trace.self_times(track);
    let mut sums: FxHashMap<(NameId, NameId), Sums> = FxHashMap::default();
    for (index, (name, dur)) in slices.name.iter().zip(slices.dur).enumerate() {
        let id = slices.id(index);
        let found = sums
            .entry((*name, slices.category.get(index)))
            .or_insert_with(|| Sums::new(id, *dur));
        found.add(&Sums {
            count: 1,
            total: *dur,
            own: own.get(index).copied().unwrap_or_default(),
            max: *dur,
            longest: id,
        });
    }
    sums.into_iter().collect()
}

fn names(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let mut hosts: FxHashMap<&str, usize> = FxHashMap::default();
    // Files of one host are summed up together.
    let tracks: Vec<(TrackId, usize)> = trace
        .tracks()
        .iter()
        .map(|track| {
            let host = *hosts.entry(data.host(track.file)).or_insert(track.file);
            (track.id, host)
        })
        .collect();
    let size = usize::try_from(trace.slice_count()).unwrap_or(usize::MAX);
    let work = |sums: &mut FxHashMap<Key, Sums>, (track, host): &(TrackId, usize)| {
        for ((name, category), found) in sums_of(trace, *track) {
            let key = (*host, name, category, trace.kind(*track, name, category));
            sums.entry(key)
                .or_insert_with(|| Sums::new(found.longest, found.max))
                .add(&found);
        }
    };
    let parts = scan_items(&tracks, size, data.cancel(), FxHashMap::default, work);
    let mut sums: FxHashMap<Key, Sums> = FxHashMap::default();
    for (key, found) in parts.map_err(stopped)?.into_iter().flatten() {
        sums.entry(key)
            .or_insert_with(|| Sums::new(found.longest, found.max))
            .add(&found);
    }
    let mut sums: Vec<(Key, Sums)> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, sums)| (Reverse(sums.total), *key));
    let mut rows = Rows::new(NAMES.columns);
    for ((host, name, category, kind), sums) in sums {
        rows.push([
            (&data.key).into(),
            data.host(host).into(),
            trace.name(name).into(),
            trace.name(category).into(),
            kind.label().into(),
            sums.count.into(),
            sums.total.into(),
            sums.own.into(),
            sums.max.into(),
            data.id(sums.longest).into(),
        ]);
    }
    rows.finish()
}

pub(super) const PROFILES: Table = Table {
    name: "profiles",
    row: "a function or action in statistics without a timeline",
    columns: &[
        common::RUN,
        column("path", Type::Text, "File of the statistics"),
        common::HOST,
        common::RANK,
        column("profile", Type::Text, "Name of the statistics"),
        column("stage", Type::Text, "Stage of the program, such as 'fit'"),
        column("kind", Type::Text, "'functions', 'actions' or 'samples'"),
        column("name", Type::Text, "Name"),
        column("source", Type::Text, "Source file and line"),
        column("calls", Type::BigInt, "Calls").unit("count"),
        column(
            "primitive_calls",
            Type::BigInt,
            "Calls without recursive ones",
        )
        .unit("count"),
        column("total_ps", Type::BigInt, "Time with callees").unit("ps"),
        column("self_ps", Type::BigInt, "Time without callees").unit("ps"),
        column(
            "mean_ps",
            Type::BigInt,
            "Time per call, where the file has it",
        )
        .unit("ps"),
    ],
    list: |data| Ok(Arc::new(profiles(data)?)),
};

fn profiles(data: &RunData) -> Result<RecordBatch> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a cast of a float saturates"
    )]
    let ps = |seconds: Option<f64>| seconds.map(|seconds| (seconds * 1e12).round() as i64);
    let mut rows = Rows::new(PROFILES.columns);
    for (file, profile) in data.trace().profiles() {
        for row in &profile.rows {
            let source = match (&*row.file, row.line) {
                ("", _) => None,
                (path, 0) => Some(path.to_owned()),
                (path, line) => Some(format!("{path}:{line}")),
            };
            rows.push([
                (&data.key).into(),
                (&file.spec.path).into(),
                (&file.spec.host).into(),
                profile.rank.or(file.spec.rank).into(),
                (&profile.name).into(),
                (&profile.stage).into(),
                profile.kind.code().into(),
                (&*row.name).into(),
                source.into(),
                row.calls.into(),
                row.primitive_calls.into(),
                ps(row.total_s).into(),
                ps(row.self_s).into(),
                ps(row.mean_s).into(),
            ]);
        }
    }
    rows.finish()
}
