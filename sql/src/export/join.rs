//! Joins the tables of a run's files to those of the run.
//!
//! Tables of events move as they are. Other tables become one file, and those that compare the files are computed from
//! their parts: clocks and collectives, and the row of the run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result as TableResult};
use datafusion::prelude::{SessionConfig, SessionContext};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use rustc_hash::FxHashMap;
use stepscope_analysis::collectives::{
    CollectiveCall, CollectiveOp, Collectives, Participant, matched,
};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::steps::StepStatistics;
use stepscope_engine::{DATASET_PARTS, RunFile, joined_hash};
use stepscope_model::{Diagnostic, Dur, Time};
use stepscope_store::EventId;

use super::receipt::{Receipt, folder_of, key_of_divided};
use super::table_files::{Destination, TableTarget, WrittenTable, name_all};
use super::whole::{date_of, key_of, remove_unfinished};
use super::{ExportError, Progress, tables};
use crate::dataset::{DATE, Dataset, EVENT_TABLES, RUNS, file_name};
use crate::rows::Rows;
use crate::schema::{Column, schema_of};
use crate::tables::collectives::{CALLS, CLOCKS, COLLECTIVES, Labels, clock_rows, collective_rows};
use crate::tables::run::{DIAGNOSTICS, FILES, RunTableRow};
use crate::tables::steps::STEPS;

/// Files that are not there yet and named in a message.
const NAMED: usize = 3;

/// Tables with sums by host, and the query that sums up the files of one host.
const SUMMED: [(&str, &str); 2] = [
    (
        "hosts",
        "SELECT run, host, rank, CAST(sum(files) AS INT) AS files, CAST(sum(processes) AS INT) AS processes, \
                CAST(sum(devices) AS INT) AS devices, sum(slices) AS slices, sum(bytes) AS bytes, \
                array_to_string(array_sort(array_distinct(flatten(array_agg(string_to_array(framework, ', ')) \
                    FILTER (WHERE framework IS NOT NULL)))), ', ') AS framework, max(world_size) AS world_size \
         FROM parts GROUP BY run, host, rank ORDER BY host, rank",
    ),
    (
        "names",
        "SELECT run, host, name, category, kind, sum(count) AS count, sum(total_ps) AS total_ps, \
                sum(self_ps) AS self_ps, max(max_ps) AS max_ps, \
                first_value(longest_id ORDER BY max_ps DESC, longest_id) AS longest_id \
         FROM parts GROUP BY run, host, name, category, kind ORDER BY total_ps DESC, host, name, category, kind",
    ),
];

/// Lengths of steps by file and process.
type StepLengths = BTreeMap<(usize, Option<i64>), Vec<Dur>>;

/// A file of the run that was read.
struct ExportedFile {
    folder: PathBuf,
    receipt: Receipt,
}

impl ExportedFile {
    fn path(&self, table: &str, number: Option<usize>) -> PathBuf {
        self.folder.join(file_name(table, number))
    }
}

/// Joins a run, given all of its files.
pub(super) async fn join(
    files: &[RunFile],
    path: &Path,
    dataset: &Path,
) -> Result<Progress, ExportError> {
    let run = files[0].run.clone();
    let key = key_of_divided(&files[0]);
    if Dataset::has_run(dataset, &key).map_err(ExportError::Dataset)? {
        remove_parts(dataset, &key);
        return Ok(Progress::Present { run, file: None });
    }
    let mut parts = Vec::new();
    let mut missing = Vec::new();
    for file in files {
        let folder = folder_of(dataset, file);
        let failed = |error| ExportError::File(folder.clone(), error);
        match Receipt::read(&folder).map_err(failed)? {
            Some(receipt) => parts.push(ExportedFile { folder, receipt }),
            None => missing.push(file.path.as_str()),
        }
    }
    if !missing.is_empty() {
        let named = missing.len().min(NAMED);
        let dots = if named < missing.len() { ", …" } else { "" };
        let cause = format!(
            "{} of {} files are not exported: {}{dots}\nhelp: repeat 'stepscope export --by-file' for them",
            missing.len(),
            files.len(),
            missing[..named].join(", ")
        );
        return Ok(Progress::Failed { run, cause });
    }
    let read = || parts.iter().filter(|part| part.receipt.problem.is_none());
    let zeros: Vec<i64> = read()
        .filter(|part| part.receipt.has_clock)
        .map(|part| part.receipt.zero_ns)
        .collect();
    if zeros.windows(2).any(|pair| pair[0] != pair[1]) {
        let cause = format!(
            "its files were exported with different beginnings of the run, because it changed meanwhile\n\
             help: remove {} and export its files again",
            dataset.join(DATASET_PARTS).join(&key).display()
        );
        return Ok(Progress::Failed { run, cause });
    }
    if read().next().is_none() {
        let problem = parts
            .iter()
            .find_map(|part| part.receipt.problem.as_deref());
        let cause = format!(
            "none of its files is readable: {}",
            problem.unwrap_or_default()
        );
        return Ok(Progress::Failed { run, cause });
    }
    let joined = Joined {
        row: RunTableRow {
            key: key.clone(),
            name: run.clone(),
            path: path.display().to_string(),
            ..run_row(&parts, zeros.first().copied())?
        },
        key,
        parts,
        dataset,
    };
    let bytes = joined.write().await?;
    remove_unfinished(dataset, &joined.key);
    remove_earlier_parts(dataset, files);
    remove_parts(dataset, &joined.key);
    Ok(Progress::Exported {
        run,
        file: None,
        slices: joined.row.slices,
        bytes,
    })
}

fn table_error(table: &'static str, error: DataFusionError) -> ExportError {
    ExportError::Table(table, Box::new(error))
}

fn remove_parts(dataset: &Path, key: &str) {
    // Another task may do the same.
    let _ = fs::remove_dir_all(dataset.join(DATASET_PARTS).join(key));
    // It stays while files of other runs are in it.
    let _ = fs::remove_dir(dataset.join(DATASET_PARTS));
}

/// Removes tables that tasks wrote when the run had other files: no join needs them.
///
/// They are of this run if one of its files was read for them, and superseded if all were written before those of the
/// run as it is now. Runs of other paths may have the same name.
fn remove_earlier_parts(dataset: &Path, files: &[RunFile]) {
    let folder = |run: &Path| Receipt::all_in(run).unwrap_or_default();
    let key = key_of_divided(&files[0]);
    let now = folder(&dataset.join(DATASET_PARTS).join(&key));
    let Some(first) = now.iter().map(|(written, _)| *written).min() else {
        return;
    };
    let prefix = key_of(&files[0].run, "");
    for other in fs::read_dir(dataset.join(DATASET_PARTS))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = other.file_name();
        if name == *key || !name.to_string_lossy().starts_with(&prefix) {
            continue;
        }
        let receipts = folder(&other.path());
        let is_of_run = receipts
            .iter()
            .any(|(_, receipt)| files.iter().any(|file| file.path == receipt.path));
        if is_of_run && receipts.iter().all(|(written, _)| *written <= first) {
            // Another task may do the same.
            let _ = fs::remove_dir_all(other.path());
        }
    }
}

/// Returns the row of the run; its key, name and path are the caller's.
fn run_row(parts: &[ExportedFile], zero_ns: Option<i64>) -> Result<RunTableRow, ExportError> {
    let receipts = || parts.iter().map(|part| &part.receipt);
    let read = || receipts().filter(|receipt| receipt.problem.is_none());
    let sum = |count: fn(&Receipt) -> u64| receipts().map(count).sum();
    let start = read().map(|receipt| receipt.start_ps).min().unwrap_or(0);
    let end = read().map(|receipt| receipt.end_ps).max().unwrap_or(0);
    let mut kinds: Vec<&str> = Vec::new();
    for kind in read().flat_map(|receipt| &receipt.kinds) {
        if !kinds.contains(&kind.as_str()) {
            kinds.push(kind);
        }
    }
    let lengths = step_lengths(parts).map_err(|error| table_error("steps", error))?;
    let (times, of_each) = StepStatistics::from_ranks(&lengths);
    Ok(RunTableRow {
        kinds: kinds.join(", "),
        is_partial: receipts().any(|receipt| receipt.is_partial || receipt.problem.is_some()),
        start_unix_ns: zero_ns.map(|zero| zero.saturating_add(Time::from_ps(start).floor_ns())),
        start: Time::from_ps(start),
        dur: Dur::from_ps(end.saturating_sub(start)),
        hosts: sum(|receipt| u64::from(!receipt.host.is_empty())),
        ranks: sum(|receipt| u64::from(receipt.rank.is_some())),
        devices: sum(|receipt| receipt.devices),
        steps: of_each.values().map(|times| times.count).max().unwrap_or(0),
        times,
        slices: sum(|receipt| receipt.slices),
        instants: sum(|receipt| receipt.instants),
        samples: sum(|receipt| receipt.samples),
        flows: sum(|receipt| receipt.flows),
        bytes: sum(|receipt| receipt.bytes),
        content_hash: joined_hash(receipts().map(|receipt| receipt.content_hash.as_str())),
        job: read().filter_map(|receipt| receipt.job.clone()).min(),
        ..RunTableRow::default()
    })
}

/// Returns the lengths of the finished steps of each rank: a file, or a process of one.
fn step_lengths(parts: &[ExportedFile]) -> TableResult<StepLengths> {
    let mut lengths = StepLengths::new();
    for (number, part) in parts.iter().enumerate() {
        for batch in read_part(part, STEPS.name, STEPS.columns)? {
            let batch = batch?;
            let process = batch["pid"].as_primitive::<Int64Type>();
            let dur = batch["dur_ps"].as_primitive::<Int64Type>();
            let unfinished = batch["unfinished"].as_boolean();
            for row in (0..batch.num_rows()).filter(|row| !unfinished.value(*row)) {
                let process = process.is_valid(row).then(|| process.value(row));
                let of_rank = lengths.entry((number, process)).or_default();
                of_rank.push(Dur::from_ps(dur.value(row)));
            }
        }
    }
    Ok(lengths)
}

/// Opens a table of one file; no rows for a file that could not be read.
fn read_part(
    part: &ExportedFile,
    table: &str,
    columns: &[Column],
) -> TableResult<impl Iterator<Item = TableResult<RecordBatch>> + use<>> {
    let reader = if part.receipt.problem.is_some() {
        None
    } else {
        // With the types of the tables of open runs.
        let options = ArrowReaderOptions::new().with_schema(stored(columns));
        let file = File::open(part.path(table, None))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?;
        Some(builder.build()?)
    };
    Ok(reader.into_iter().flatten().map(|batch| Ok(batch?)))
}

/// Returns the schema of the stored columns.
fn stored(columns: &[Column]) -> SchemaRef {
    let stored: Vec<Column> = columns
        .iter()
        .copied()
        .filter(|column| column.stored)
        .collect();
    schema_of(&stored)
}

/// A run whose files are all read.
struct Joined<'a> {
    key: String,
    row: RunTableRow,
    parts: Vec<ExportedFile>,
    dataset: &'a Path,
}

impl Joined<'_> {
    /// Writes all tables, and returns the size of their files. Nothing is in the dataset before all are complete.
    async fn write(&self) -> Result<u64, ExportError> {
        let mut written = Vec::new();
        let compared = self
            .compare()
            .map_err(|error| table_error(COLLECTIVES.name, error))?;
        for (table, columns) in tables() {
            if EVENT_TABLES.contains(&table) {
                continue;
            }
            written.push(match table {
                _ if table == COLLECTIVES.name => {
                    let rows = collective_rows(&self.key, &compared.found, |call| {
                        compared.labels(&self.parts, call)
                    });
                    self.write_rows(table, columns, rows).await?
                }
                _ if table == CLOCKS.name => {
                    let rows = clock_rows(&self.key, &compared.found, |file| self.host(file));
                    self.write_rows(table, columns, rows).await?
                }
                RUNS => {
                    let rows = self.row.rows().and_then(|rows| without_date(&rows));
                    self.write_rows(table, columns, rows).await?
                }
                _ => match SUMMED.iter().find(|(summed, _)| *summed == table) {
                    Some((_, sql)) => self.write_sums(table, columns, sql).await?,
                    None => self.write_all(table, columns).await?,
                },
            });
        }
        let mut bytes = 0;
        for table in EVENT_TABLES {
            bytes += self.move_files(table)?;
        }
        Ok(bytes + name_all(&written)?)
    }

    fn host(&self, file: usize) -> (&str, Option<u32>) {
        let receipt = self.parts.get(file).map(|part| &part.receipt);
        receipt.map_or(("", None), |receipt| (&receipt.host, receipt.rank))
    }

    fn date(&self) -> String {
        date_of(self.row.start_unix_ns)
    }

    /// Moves the files of a table of events, which are numbered through. Those that a join that broke off has moved
    /// are there.
    fn move_files(&self, table: &'static str) -> Result<u64, ExportError> {
        let date = self.date();
        let (mut number, mut bytes) = (0, 0);
        for part in &self.parts {
            let Some(written) = part.receipt.tables.get(table) else {
                continue;
            };
            bytes += written.bytes;
            for of_part in 0..written.files {
                let from = part.path(table, Some(of_part));
                let to = Destination::Run { date: &date }.path(
                    self.dataset,
                    table,
                    &self.key,
                    Some(number),
                );
                number += 1;
                let moved = match to.parent() {
                    Some(folder) => {
                        fs::create_dir_all(folder).and_then(|()| fs::rename(&from, &to))
                    }
                    None => Ok(()),
                };
                match moved {
                    Err(error) if !to.exists() => return Err(ExportError::File(from, error)),
                    _ => {}
                }
            }
        }
        Ok(bytes)
    }

    /// Compares the calls of collectives of all files.
    fn compare(&self) -> TableResult<Compared> {
        let mut calls = Vec::new();
        let mut steps = FxHashMap::default();
        for (file, part) in self.parts.iter().enumerate() {
            for batch in read_part(part, CALLS.name, CALLS.columns)? {
                add_calls(&batch?, file, part.receipt.shift_ps, &mut calls, &mut steps);
            }
        }
        let found = matched(calls, &Cancel::default())
            .map_err(|_cancelled| DataFusionError::Execution("it was cancelled".to_owned()))?;
        Ok(Compared { found, steps })
    }

    fn target<'b>(
        &'b self,
        table: &'static str,
        columns: &'b [Column],
        date: &'b str,
    ) -> TableTarget<'b> {
        TableTarget {
            dataset: self.dataset,
            key: &self.key,
            table,
            columns,
            to: Destination::Run { date },
        }
    }

    async fn write_rows(
        &self,
        table: &'static str,
        columns: &[Column],
        rows: TableResult<RecordBatch>,
    ) -> Result<WrittenTable, ExportError> {
        let rows = rows.map_err(|error| table_error(table, error))?;
        let date = self.date();
        let target = self.target(table, columns, &date);
        let schema = rows.schema();
        target.write_batches(&schema, [Ok(rows)]).await
    }

    /// Writes the rows of all files, and those of files that could not be read.
    async fn write_all(
        &self,
        table: &'static str,
        columns: &[Column],
    ) -> Result<WrittenTable, ExportError> {
        let unread = self.unread(table);
        let unread = unread.map_err(|error| table_error(table, error))?;
        let parts = self.parts.iter().flat_map(|part| {
            let (batches, failed) = match read_part(part, table, columns) {
                Ok(batches) => (Some(batches), None),
                Err(error) => (None, Some(Err(error))),
            };
            batches.into_iter().flatten().chain(failed)
        });
        let date = self.date();
        let target = self.target(table, columns, &date);
        let batches = parts.chain(unread.map(Ok));
        target.write_batches(&stored(columns), batches).await
    }

    /// Writes a table whose rows of several files are summed up by a query.
    async fn write_sums(
        &self,
        table: &'static str,
        columns: &[Column],
        sql: &str,
    ) -> Result<WrittenTable, ExportError> {
        let failed = |error| table_error(table, error);
        let mut batches = Vec::new();
        for part in &self.parts {
            for batch in read_part(part, table, columns).map_err(failed)? {
                batches.push(batch.map_err(failed)?);
            }
        }
        let parts = MemTable::try_new(stored(columns), vec![batches]).map_err(failed)?;
        let config = SessionConfig::new().with_target_partitions(1);
        let context = SessionContext::new_with_config(config);
        context
            .register_table("parts", Arc::new(parts))
            .map_err(failed)?;
        let date = self.date();
        let target = self.target(table, columns, &date);
        target.write(&context, sql).await
    }

    /// Returns the rows that a table has of files that could not be read, and of files without a clock.
    fn unread(&self, table: &str) -> TableResult<Option<RecordBatch>> {
        if table == FILES.name {
            let mut rows = Rows::new(FILES.columns);
            for (number, receipt) in self.problems() {
                rows.push([
                    (&self.key).into(),
                    number.into(),
                    (&receipt.path).into(),
                    "".into(),
                    receipt.bytes.into(),
                    (&receipt.host).into(),
                    receipt.rank.into(),
                    None::<i64>.into(),
                    0_i64.into(),
                    0_i64.into(),
                    0_i64.into(),
                    0_i64.into(),
                ]);
            }
            return rows.finish().map(Some);
        }
        if table != DIAGNOSTICS.name {
            return Ok(None);
        }
        let mut rows = Rows::new(DIAGNOSTICS.columns);
        let mut add = |file: Option<usize>, what: Diagnostic, count: usize, detail: &str| {
            rows.push([
                (&self.key).into(),
                file.into(),
                file.map(|file| self.host(file).0).into(),
                what.code().into(),
                what.severity().as_str().into(),
                count.into(),
                what.title().into(),
                detail.into(),
                what.advice().into(),
            ]);
        };
        for (number, receipt) in self.problems() {
            let problem = receipt.problem.as_deref().unwrap_or_default();
            add(Some(number), Diagnostic::FileUnreadable, 1, problem);
        }
        let receipts = self.parts.iter().map(|part| &part.receipt);
        let without = receipts
            .filter(|receipt| receipt.problem.is_none() && !receipt.has_clock)
            .count();
        if without > 0 {
            add(None, Diagnostic::UnalignedClock, without, "");
        }
        rows.finish().map(Some)
    }

    /// Returns the files that could not be read, by number.
    fn problems(&self) -> impl Iterator<Item = (usize, &Receipt)> {
        let receipts = self.parts.iter().map(|part| &part.receipt).enumerate();
        receipts.filter(|(_, receipt)| receipt.problem.is_some())
    }
}

/// Returns the rows of `runs` without the day, which is in the path.
fn without_date(rows: &RecordBatch) -> TableResult<RecordBatch> {
    let schema = rows.schema();
    let kept = (0..schema.fields().len()).filter(|at| schema.field(*at).name() != DATE);
    Ok(rows.project(&kept.collect::<Vec<_>>())?)
}

/// The collectives of all files, compared.
struct Compared {
    found: Collectives,
    /// Steps of the calls, by the ids of their events.
    steps: FxHashMap<i64, i64>,
}

impl Compared {
    fn labels<'a>(&self, parts: &'a [ExportedFile], call: &CollectiveCall) -> Labels<'a> {
        let receipt = parts.get(call.who.file).map(|part| &part.receipt);
        let id = id_of(call.who.file, call.event);
        Labels {
            host: receipt.map_or("", |receipt| &receipt.host),
            rank: receipt.and_then(|receipt| receipt.rank),
            id,
            step: self.steps.get(&id).copied(),
        }
    }
}

/// Returns the id of an event of a file, as [`RunData::id`](crate::run_data::RunData::id).
fn id_of(file: usize, event: EventId) -> i64 {
    i64::try_from(file).unwrap_or(0) << 32 | i64::from(event.0)
}

/// Adds the rows of [`CALLS`] of a file, whose times `shift_ps` converts to the clock of the run.
fn add_calls(
    batch: &RecordBatch,
    file: usize,
    shift_ps: i64,
    calls: &mut Vec<CollectiveCall>,
    steps: &mut FxHashMap<i64, i64>,
) {
    let whole = |name: &str, row: usize| {
        let column = batch[name].as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let number = |name: &str, row: usize| {
        let column = batch[name].as_primitive::<Int32Type>();
        let value = column.is_valid(row).then(|| column.value(row))?;
        u32::try_from(value).ok()
    };
    let text = |name: &str, row: usize| batch[name].as_string_view().value(row).to_owned();
    for row in 0..batch.num_rows() {
        let id = whole("id", row).unwrap_or(0);
        if let Some(step) = whole("step", row) {
            steps.insert(id, step);
        }
        let start = whole("start_ps", row).unwrap_or(0).saturating_add(shift_ps);
        let dur = whole("dur_ps", row).unwrap_or(0);
        calls.push(CollectiveCall {
            who: Participant {
                file,
                device: number("device", row).unwrap_or(0),
            },
            event: EventId(u32::try_from(id & i64::from(u32::MAX)).unwrap_or(0)),
            start: Time::from_ps(start),
            end: Time::from_ps(start.saturating_add(dur)),
            kind: CollectiveOp::from_word(&text("kind", row)).unwrap_or(CollectiveOp::Other),
            group: text("process_group", row),
            operation: text("operation", row),
            group_size: number("group_size", row),
            bytes: whole("bytes", row).and_then(|bytes| u64::try_from(bytes).ok()),
            dtype: text("dtype", row),
            hidden: whole("hidden_ps", row).map(Dur::from_ps),
        });
    }
}
