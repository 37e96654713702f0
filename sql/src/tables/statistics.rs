//! `names` and `profiles`: sums by name, and rows of statistics without a timeline.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, SliceKind};
use stepscope_store::EventId;

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
    build: names,
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

fn names(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let mut hosts: FxHashMap<&str, usize> = FxHashMap::default();
    let mut sums: FxHashMap<Key, Sums> = FxHashMap::default();
    for track in trace.tracks() {
        data.cancel().check().map_err(stopped)?;
        let slices = trace.slices(track.id);
        let own = trace.self_times(track.id);
        // Files of one host are summed up together.
        let host = *hosts.entry(data.host(track.file)).or_insert(track.file);
        for index in 0..slices.len() {
            let name = slices.name.get(index).copied().unwrap_or_default();
            let category = slices.category.get(index);
            let dur = slices.dur.get(index).copied().unwrap_or_default();
            let key = (host, name, category, trace.kind(track.id, name, category));
            let id = slices.id(index);
            let found = sums.entry(key).or_insert(Sums {
                count: 0,
                total: Dur::ZERO,
                own: Dur::ZERO,
                max: dur,
                longest: id,
            });
            found.count += 1;
            found.total = found.total.saturating_add(dur);
            found.own = found
                .own
                .saturating_add(own.get(index).copied().unwrap_or_default());
            if dur > found.max {
                (found.max, found.longest) = (dur, id);
            }
        }
    }
    let mut sums: Vec<(Key, Sums)> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, sums)| (std::cmp::Reverse(sums.total), *key));
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
    build: profiles,
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
