//! Writes the tables of one file of a run, which waits for the others.

use std::path::Path;

use stepscope_engine::{Opened, Run, RunFile};

use super::receipt::{Receipt, folder_of, key_of_divided};
use super::table_files::{Destination, TableTarget, WrittenTable, name_all};
use super::{ArgsChoice, ExportError, Progress, Shift, query, tables};
use crate::dataset::{Dataset, RUNS};
use crate::locked::MemoryLimits;
use crate::run_data::RunData;
use crate::session::Session;
use crate::tables::collectives::{CALLS, CLOCKS, COLLECTIVES, collective_calls};
use crate::tables::run::RunTableRow;

/// Tables that compare the files of a run: the join makes them.
const JOINED: [&str; 3] = [COLLECTIVES.name, CLOCKS.name, RUNS];

/// Longest time between the clock of a file and the time that its run states, nanoseconds.
const NEAR_NS: u64 = 30 * 86_400 * 1_000_000_000;
/// The periods whose beginnings are zero otherwise, nanoseconds.
const PERIOD_NS: i64 = 60 * 86_400 * 1_000_000_000;

/// Returns the most tracks of a file: their numbers of 32 bits are dealt out evenly.
pub fn most_tracks(files: u32) -> u32 {
    i32::MAX.unsigned_abs() / files.max(1)
}

/// Returns whether the tables of a file, or of its run, are in the dataset. A file that could not be read is tried again.
pub(super) fn is_done(file: &RunFile, dataset: &Path) -> Result<bool, ExportError> {
    let folder = folder_of(dataset, file);
    let receipt =
        Receipt::read(&folder).map_err(|error| ExportError::File(folder.clone(), error))?;
    let is_read =
        |receipt: &Receipt| receipt.problem.is_none() && receipt.recorded_ns == file.recorded_ns;
    if receipt.as_ref().is_some_and(is_read) {
        return Ok(true);
    }
    Dataset::has_run(dataset, &key_of_divided(file)).map_err(ExportError::Dataset)
}

/// Writes the tables of a file that was opened, and its receipt. A file that cannot be read gets a receipt only.
pub(super) async fn write(
    file: &RunFile,
    opened: Opened,
    dataset: &Path,
    args: &ArgsChoice,
) -> Result<Progress, ExportError> {
    let folder = folder_of(dataset, file);
    let failed = |error| ExportError::File(folder.clone(), error);
    let empty = Receipt {
        path: file.path.clone(),
        recorded_ns: file.recorded_ns,
        bytes: std::fs::metadata(&file.path).map_or(0, |file| file.len()),
        ..Receipt::default()
    };
    let unreadable = |problem: String| {
        let receipt = Receipt {
            problem: Some(problem.clone()),
            ..empty.clone()
        };
        receipt.write(&folder).map_err(failed)?;
        Ok(Progress::Problem(format!("{}: {problem}", file.path)))
    };
    let run = match opened {
        Ok(run) => run,
        Err((_, error)) => return unreadable(error.to_string()),
    };
    let most = most_tracks(file.count);
    if run.trace.tracks().len() > most as usize {
        return unreadable(format!(
            "it has {} tracks; the files of a run of {} may have {most} each",
            run.trace.tracks().len(),
            file.count
        ));
    }
    let zero_ns = zero_of(file.recorded_ns, run.trace.epoch().unix_ns);
    let shift = Shift {
        ps: clock_shift(&run, zero_ns),
        tracks: i64::from(file.number) * i64::from(most),
        files: i64::from(file.number),
    };
    let session = Session::of_run(
        file.number,
        key_of_divided(file),
        file.path.clone(),
        run,
        MemoryLimits::default(),
    );
    let [data] = session.runs() else {
        return unreadable("it is not open".to_owned());
    };
    let mut receipt = receipt_of(
        data,
        shift,
        Receipt {
            zero_ns,
            ..empty.clone()
        },
    );
    let mut all_written = Vec::new();
    for (table, columns) in tables() {
        if JOINED.contains(&table) {
            continue;
        }
        let Some(sql) = query(table, columns, args, shift) else {
            continue;
        };
        let target = TableTarget {
            dataset,
            key: &data.key,
            table,
            columns,
            to: Destination::File { folder: &folder },
        };
        let written = target.write(session.context(), &sql).await?;
        receipt.tables.insert(table.to_owned(), written.size());
        all_written.push(written);
    }
    let written = write_calls(data, dataset, &folder).await?;
    receipt.tables.insert(CALLS.name.to_owned(), written.size());
    all_written.push(written);
    name_all(&all_written)?;
    receipt.write(&folder).map_err(failed)?;
    Ok(Progress::Exported {
        run: file.run.clone(),
        file: Some(file.number),
        slices: receipt.slices,
        bytes: receipt.table_bytes(),
    })
}

/// Writes the calls of collectives, on the clock of the file.
async fn write_calls(
    data: &RunData,
    dataset: &Path,
    folder: &Path,
) -> Result<WrittenTable, ExportError> {
    let calls = collective_calls(data);
    let calls = calls.map_err(|error| ExportError::Table(CALLS.name, Box::new(error)))?;
    let target = TableTarget {
        dataset,
        key: &data.key,
        table: CALLS.name,
        columns: CALLS.columns,
        to: Destination::File { folder },
    };
    target
        .write_batches(&calls.schema(), [Ok(calls.clone())])
        .await
}

/// Returns the zero of the run's clock: the time that the run's name or first file states, the same for every task.
///
/// A copied file may state any time. Far from the clock of the file, the beginning of a fixed period holds instead, so
/// that times fit in 64 bits.
pub fn zero_of(recorded_ns: i64, clock_ns: Option<i64>) -> i64 {
    match clock_ns {
        Some(clock) if clock.abs_diff(recorded_ns) >= NEAR_NS => {
            clock.div_euclid(PERIOD_NS) * PERIOD_NS
        }
        _ => recorded_ns,
    }
}

/// Returns what converts times of a file to the clock of its run. A file without a clock begins at zero.
fn clock_shift(run: &Run, zero_ns: i64) -> i64 {
    match run.trace.epoch().unix_ns {
        Some(clock) => clock.saturating_sub(zero_ns).saturating_mul(1_000),
        None => -run.trace.span().start.ps(),
    }
}

/// Fills a receipt with what an open file has.
fn receipt_of(data: &RunData, shift: Shift, empty: Receipt) -> Receipt {
    let row = RunTableRow::new(data);
    let start_ps = row.start.ps().saturating_add(shift.ps);
    Receipt {
        is_partial: row.is_partial,
        has_clock: data.trace().epoch().unix_ns.is_some(),
        shift_ps: shift.ps,
        kinds: data.run.kinds.clone(),
        host: data.host(0).to_owned(),
        rank: data.rank(0),
        start_ps,
        end_ps: start_ps.saturating_add(row.dur.ps()),
        devices: row.devices,
        slices: row.slices,
        instants: row.instants,
        samples: row.samples,
        flows: row.flows,
        bytes: row.bytes,
        content_hash: row.content_hash,
        job: row.job,
        ..empty
    }
}
