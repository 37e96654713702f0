//! `runs`, `files`, `facts`, `diagnostics`: a run as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use stepscope_analysis::steps::StepStatistics;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{Dur, Time};
use stepscope_store::{FactValue, FileFacts, Track};

use super::Table;
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Column, SCHEMA, Type, column, common};

const FILE: Column = column("file", Type::Int, "File: `files.file`");

pub(crate) const RUNS: Table = Table {
    name: "runs",
    row: "a run",
    columns: &[
        common::RUN,
        column("number", Type::Int, "Number of the run in the session"),
        column("name", Type::Text, "Name as the run list shows it"),
        column("date", Type::Date, "Day of the recording, UTC"),
        column("path", Type::Text, "Path that it was opened from"),
        column("kinds", Type::Text, "Frameworks and formats"),
        column(
            "state",
            Type::Text,
            "'ready', or 'partial' if content could not be read",
        ),
        column(
            "start_unix_ns",
            Type::BigInt,
            "Unix time of the first event",
        )
        .unit("ns"),
        column(
            "start_ps",
            Type::BigInt,
            "First event on the run's clock: zero of reports",
        )
        .unit("ps"),
        column("dur_ps", Type::BigInt, "From the first event to the last").unit("ps"),
        column("hosts", Type::Int, "Files with a host").unit("count"),
        column("ranks", Type::Int, "Files with a rank").unit("count"),
        column("devices", Type::Int, "Accelerators").unit("count"),
        column(
            "steps",
            Type::Int,
            "Finished steps of the rank that has the most",
        )
        .unit("count"),
        column("step_p50_ps", Type::BigInt, "Median step").unit("ps"),
        column("step_p90_ps", Type::BigInt, "90th percentile of the steps").unit("ps"),
        column("slices", Type::BigInt, "Slices").unit("count"),
        column("instants", Type::BigInt, "Instants").unit("count"),
        column("samples", Type::BigInt, "Samples of counters").unit("count"),
        column("flows", Type::BigInt, "Links between slices").unit("count"),
        column("bytes", Type::BigInt, "Size of the files").unit("bytes"),
        column("content_hash", Type::Text, "Hash of the files' content"),
        column(
            "stepscope_version",
            Type::Text,
            "Version that computed the tables",
        ),
        column(
            "job",
            Type::Text,
            "The fact 'job' of its files, else the name with '#' for its digits",
        ),
        column(
            "schema_version",
            Type::Int,
            "Version of the layout of the tables",
        ),
    ],
    list: |data| Ok(Arc::new(runs(data)?)),
};

/// The row of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTableRow {
    pub(crate) key: String,
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) kinds: String,
    pub(crate) is_partial: bool,
    pub(crate) start_unix_ns: Option<i64>,
    pub(crate) start: Time,
    pub(crate) dur: Dur,
    pub(crate) hosts: u64,
    pub(crate) ranks: u64,
    pub(crate) devices: u64,
    pub(crate) steps: u64,
    /// Of all steps.
    pub(crate) times: StepStatistics,
    pub(crate) slices: u64,
    pub(crate) instants: u64,
    pub(crate) samples: u64,
    pub(crate) flows: u64,
    pub(crate) bytes: u64,
    pub(crate) content_hash: String,
    /// The job that its files state.
    pub(crate) job: Option<String>,
}

/// Returns the job that facts of files state.
pub(crate) fn stated_job(files: &[FileFacts]) -> Option<String> {
    let facts = files.iter().flat_map(|file| &file.facts);
    let stated = facts.filter(|(key, _)| *key == "job");
    stated.map(|(_, value)| value.to_string()).min()
}

/// Returns a name with `#` for its numbers and times: runs of one job differ in these.
fn without_numbers(name: &str) -> String {
    let mut job = String::new();
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            job.push(letter);
            continue;
        }
        job.push('#');
        loop {
            while letters.next_if(char::is_ascii_digit).is_some() {}
            // Between the parts of a time.
            let mut ahead = letters.clone();
            let separators = std::iter::from_fn(|| ahead.next_if(|next| "-_.:T".contains(*next)));
            let count = separators.count();
            if count == 0 || !ahead.peek().is_some_and(char::is_ascii_digit) {
                break;
            }
            letters = ahead;
        }
    }
    job
}

impl RunTableRow {
    /// Describes an open run.
    pub(crate) fn new(data: &RunData) -> Self {
        let run = &data.run;
        let trace = data.trace();
        let span = trace.span();
        let steps = run.steps();
        let files = trace.files();
        let count = |is_counted: fn(&FileFacts) -> bool| {
            files.iter().filter(|file| is_counted(file)).count() as u64
        };
        let sum = |count: fn(&Track) -> u32| -> u64 {
            trace
                .tracks()
                .iter()
                .map(|track| u64::from(count(track)))
                .sum()
        };
        Self {
            key: data.key.clone(),
            number: data.number,
            name: run.name.clone(),
            path: data.path.clone(),
            kinds: run.kinds.join(", "),
            is_partial: run.is_partial(),
            start_unix_ns: run.start_unix_ns(),
            start: span.start,
            dur: span.end.since(span.start),
            hosts: count(|file| !file.spec.host.is_empty()),
            ranks: count(|file| file.spec.rank.is_some()),
            devices: run.devices().len() as u64,
            steps: steps.count(),
            times: steps.times,
            slices: trace.slice_count(),
            instants: sum(|track| track.instants),
            samples: sum(|track| track.samples),
            flows: trace.flow_count(),
            bytes: files.iter().map(|file| file.spec.bytes).sum(),
            content_hash: run.content_hash.clone(),
            job: stated_job(files),
        }
    }

    /// Returns it as the only row of the table.
    pub(crate) fn rows(&self) -> Result<RecordBatch> {
        let day = self
            .start_unix_ns
            .map(|ns| ns.div_euclid(86_400_000_000_000));
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a step lasts less than 106 days"
        )]
        let ps = |ns: Option<f64>| ns.map(|ns| (ns * 1e3).round() as i64);
        let mut rows = Rows::new(RUNS.columns);
        rows.push([
            (&self.key).into(),
            self.number.into(),
            (&self.name).into(),
            day.into(),
            (&self.path).into(),
            (&self.kinds).into(),
            if self.is_partial { "partial" } else { "ready" }.into(),
            self.start_unix_ns.into(),
            self.start.into(),
            self.dur.into(),
            self.hosts.into(),
            self.ranks.into(),
            self.devices.into(),
            self.steps.into(),
            ps(self.times.p50_ns).into(),
            ps(self.times.p90_ns).into(),
            self.slices.into(),
            self.instants.into(),
            self.samples.into(),
            self.flows.into(),
            self.bytes.into(),
            (&self.content_hash).into(),
            env!("CARGO_PKG_VERSION").into(),
            self.job
                .clone()
                .unwrap_or_else(|| without_numbers(&self.name))
                .into(),
            SCHEMA.into(),
        ]);
        rows.finish()
    }
}

fn runs(data: &RunData) -> Result<RecordBatch> {
    RunTableRow::new(data).rows()
}

pub(crate) const FILES: Table = Table {
    name: "files",
    row: "a file of a run",
    columns: &[
        common::RUN,
        FILE,
        column("path", Type::Text, "Path"),
        column("format", Type::Text, "Format"),
        column("bytes", Type::BigInt, "Size").unit("bytes"),
        common::HOST,
        common::RANK,
        column(
            "epoch_unix_ns",
            Type::BigInt,
            "Unix time of zero on the file's clock",
        )
        .unit("ns"),
        column(
            "shift_ps",
            Type::BigInt,
            "Offset that was added to its times",
        )
        .unit("ps"),
        column("slices", Type::BigInt, "Slices of its tracks").unit("count"),
        column("async_slices", Type::BigInt, "Slices of async tracks").unit("count"),
        column(
            "derived_slices",
            Type::BigInt,
            "Slices that a tool computed",
        )
        .unit("count"),
    ],
    list: |data| Ok(Arc::new(files(data)?)),
};

fn files(data: &RunData) -> Result<RecordBatch> {
    let mut rows = Rows::new(FILES.columns);
    for (number, file) in data.trace().files().iter().enumerate() {
        rows.push([
            (&data.key).into(),
            number.into(),
            (&file.spec.path).into(),
            (&file.spec.format).into(),
            file.spec.bytes.into(),
            (&file.spec.host).into(),
            file.spec.rank.into(),
            file.epoch.unix_ns.into(),
            file.shift.into(),
            file.slices.into(),
            file.async_slices.into(),
            file.derived_slices.into(),
        ]);
    }
    rows.finish()
}

pub(super) const HOSTS: Table = Table {
    name: "hosts",
    row: "a host or rank",
    columns: &[
        common::RUN,
        common::HOST,
        common::RANK,
        column("files", Type::Int, "Files").unit("count"),
        column("processes", Type::Int, "Processes with tracks").unit("count"),
        column("devices", Type::Int, "Accelerators with tracks").unit("count"),
        column("slices", Type::BigInt, "Slices").unit("count"),
        column("bytes", Type::BigInt, "Size of the files").unit("bytes"),
        column(
            "framework",
            Type::Text,
            "Frameworks and programs that its files are of, as in 'kinds' of 'runs'",
        ),
        column(
            "world_size",
            Type::Int,
            "Number of ranks of the job, where a file states it",
        )
        .unit("count"),
    ],
    list: |data| Ok(Arc::new(hosts(data)?)),
};

fn hosts(data: &RunData) -> Result<RecordBatch> {
    #[derive(Default)]
    struct Found<'a> {
        files: usize,
        processes: BTreeSet<i64>,
        devices: BTreeSet<u32>,
        slices: u64,
        bytes: u64,
        frameworks: BTreeSet<&'a str>,
        world_size: Option<i64>,
    }
    let trace = data.trace();
    let mut found: BTreeMap<(&str, Option<u32>), Found<'_>> = BTreeMap::new();
    for (number, file) in trace.files().iter().enumerate() {
        let host = found
            .entry((data.host(number), file.spec.rank))
            .or_default();
        host.files += 1;
        host.frameworks.extend(file.kinds().filter(is_framework));
        host.world_size = host.world_size.max(world_size(file));
        host.bytes = host.bytes.saturating_add(file.spec.bytes);
    }
    for track in trace.tracks() {
        let host = (data.host(track.file), data.rank(track.file));
        let host = found.entry(host).or_default();
        host.processes.extend(track.pid);
        host.devices.extend(track.device);
        host.slices += u64::from(track.slices);
    }
    let mut rows = Rows::new(HOSTS.columns);
    for ((host, rank), found) in found {
        rows.push([
            (&data.key).into(),
            host.into(),
            rank.into(),
            found.files.into(),
            found.processes.len().into(),
            found.devices.len().into(),
            found.slices.into(),
            found.bytes.into(),
            frameworks(found.frameworks).into(),
            found.world_size.into(),
        ]);
    }
    rows.finish()
}

/// Whether a file's kind is more than its format.
fn is_framework(kind: &&str) -> bool {
    !Producer::from_name(kind).is_some_and(Producer::is_format)
}

fn frameworks(names: BTreeSet<&str>) -> Option<String> {
    (!names.is_empty()).then(|| Vec::from_iter(names).join(", "))
}

fn world_size(file: &FileFacts) -> Option<i64> {
    match file.fact("world_size")? {
        FactValue::Int(size) => Some(*size),
        FactValue::Text(size) => size.parse().ok(),
        _ => None,
    }
}

pub(super) const FACTS: Table = Table {
    name: "facts",
    row: "a fact that a file states about itself",
    columns: &[
        common::RUN,
        FILE,
        common::HOST,
        column("key", Type::Text, "Key"),
        column("type", Type::Text, "Type of the value"),
        column("value", Type::Text, "Value"),
    ],
    list: |data| Ok(Arc::new(facts(data)?)),
};

fn facts(data: &RunData) -> Result<RecordBatch> {
    let mut rows = Rows::new(FACTS.columns);
    for (number, file) in data.trace().files().iter().enumerate() {
        for (key, value) in &file.facts {
            let kind = match value {
                FactValue::Int(_) => "int",
                FactValue::Uint(_) => "uint",
                FactValue::Double(_) => "double",
                FactValue::Bool(_) => "bool",
                FactValue::Text(_) => "text",
            };
            rows.push([
                (&data.key).into(),
                number.into(),
                (&file.spec.host).into(),
                key.into(),
                kind.into(),
                value.to_string().into(),
            ]);
        }
    }
    rows.finish()
}

pub(crate) const DIAGNOSTICS: Table = Table {
    name: "diagnostics",
    row: "what to know before trusting the numbers",
    columns: &[
        common::RUN,
        FILE,
        common::HOST,
        column("code", Type::Text, "Stable code"),
        column("severity", Type::Text, "Severity"),
        column("count", Type::BigInt, "Occurrences").unit("count"),
        column("title", Type::Text, "What it is"),
        column("detail", Type::Text, "The first details"),
        column("advice", Type::Text, "What to do"),
    ],
    list: |data| Ok(Arc::new(diagnostics(data)?)),
};

fn diagnostics(data: &RunData) -> Result<RecordBatch> {
    let mut rows = Rows::new(DIAGNOSTICS.columns);
    for found in data.trace().diagnostics() {
        rows.push([
            (&data.key).into(),
            found.file.into(),
            found.file.map(|file| data.host(file)).into(),
            found.what.code().into(),
            found.what.severity().as_str().into(),
            found.count.into(),
            found.what.title().into(),
            found.details.join("; ").into(),
            found.what.advice().into(),
        ]);
    }
    rows.finish()
}
