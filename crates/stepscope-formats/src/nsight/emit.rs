//! Reading of a whole export: facts, then work of devices, calls and ranges, then counters and samples.

use rustc_hash::FxHashSet;
use stepscope_model::{Cancelled, Diagnostic, Epoch, EventSink, ReadContext, SourceId, Time};

use super::calls::CallColumns;
use super::device::WorkColumns;
use super::export::{Column, EventTable, Export, Fields, METRICS, SAMPLES, scan_leaf};
use super::nvtx::NvtxColumns;
use super::part::{Correlations, Counts, PartResult, Plan, TablePart};
use super::reading::Reading;
use super::rows::{RowKey, Rows};
use super::sqlite::{Losses, Pages, RowReader, Table};
use super::strings::{Names, Strings};
use super::target::Target;
use super::{counters, samples};
use crate::losses;

/// Minimum number of leaves of a part.
const MIN_PART_LEAVES: usize = 32;
/// Times farther from zero are on another clock than the session's: 100 days, nanoseconds.
const FAR_NS: i64 = 100 * 86_400 * 1_000_000_000;
/// Times from here on are Unix time: 2001, nanoseconds.
const UNIX_NS: i64 = 1_000_000_000_000_000_000;

/// Emits all events of an export.
pub(super) fn emit<S: EventSink>(
    export: &Export<'_>,
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), Cancelled> {
    let mut losses = export.schema.losses.clone();
    let strings = Strings::new(export, context, &mut losses)?;
    let target = Target::read(export, &strings, context, &mut losses, sink)?;
    let origin_ns = origin(export);
    sink.epoch(Epoch {
        origin_ns,
        unix_ns: unix_origin(&target, origin_ns),
    });
    let mut reading = Reading {
        export,
        context,
        source,
        strings: &strings,
        target: &target,
        origin_ns,
        has_calls: [EventTable::Runtime, EventTable::Driver]
            .iter()
            .any(|calls| export.table(calls.name()).is_some()),
        work: Correlations::default(),
        rows: FxHashSet::default(),
        counts: Counts::default(),
        pages: Pages::new(&export.database),
        losses,
        last: Time::MIN,
    };
    for table in EventTable::DEVICE.into_iter().chain(EventTable::CALLS) {
        reading.table(table, sink)?;
    }
    reading.table(EventTable::Nvtx, sink)?;
    counters::metrics(&mut reading, sink)?;
    counters::memory(&mut reading, sink)?;
    samples::emit(&mut reading, sink)?;
    reading.counts.diagnose(sink);
    diagnose_file(export, &reading.losses, sink);
    Ok(())
}

/// Returns the file's time at which the timeline starts: 0, the start of the session, unless the times are on another
/// clock (`nsys export --ts-normalize`).
fn origin(export: &Export<'_>) -> i64 {
    let tables = EventTable::ALL.iter().map(|table| table.name());
    let mut reader = RowReader::new(&export.database);
    let mut ignored = Losses::default();
    let mut first: Option<i64> = None;
    for table in tables.chain([METRICS, SAMPLES]) {
        let Some(table) = export.table(table) else {
            continue;
        };
        let start = Column::any(table, &["start", "timestamp"]);
        let Some(leaf) = reader.first_leaf(table) else {
            continue;
        };
        scan_leaf(&mut reader, table, leaf, &mut ignored, &mut |fields| {
            first = match (first, start.int(fields)) {
                (Some(first), Some(start)) => Some(first.min(start)),
                (first, start) => first.or(start),
            };
        });
    }
    first
        .filter(|first| first.unsigned_abs() > FAR_NS.unsigned_abs())
        .unwrap_or(0)
}

/// Returns Unix time at the start of the timeline.
fn unix_origin(target: &Target, origin_ns: i64) -> Option<i64> {
    if origin_ns == 0 {
        return target.unix_ns?.checked_sub(target.shift_ns);
    }
    (target.is_unix_time || origin_ns >= UNIX_NS).then_some(origin_ns)
}

/// Reports damage of the file, and what it holds beyond what is read.
fn diagnose_file<S: EventSink>(export: &Export<'_>, losses: &Losses, sink: &mut S) {
    let database = &export.database;
    let missing = database.missing_pages();
    let pages = format!(
        "{missing} pages of the database are missing at its end; {} are there",
        database.page_count()
    );
    let cut = "rows beyond 1 MiB, or with missing pages, are cut";
    let found = [
        (Diagnostic::Truncated, u64::from(missing > 0), &*pages),
        (
            Diagnostic::Unreadable,
            losses.pages,
            losses.first_page.as_deref().unwrap_or_default(),
        ),
        (
            Diagnostic::Unreadable,
            losses.rows,
            losses.first_row.as_deref().unwrap_or_default(),
        ),
        (Diagnostic::LimitReached, losses.cut_rows, cut),
        (
            Diagnostic::UnknownEntry,
            u64::from(database.has_write_ahead_log),
            "the database is in write-ahead mode: rows in a file of its name that ends in -wal are not read",
        ),
    ];
    losses::diagnose(sink, &found);
    let not_read = export.tables_not_read();
    if !not_read.is_empty() {
        let names = format!("tables that are not read: {}", not_read.join(", "));
        sink.diagnose(Diagnostic::UnknownEntry, not_read.len() as u64, &names);
    }
}

impl<'a> Reading<'_, 'a> {
    /// Emits the rows of a table: in parts, if it is large and its rows do not depend on each other.
    fn table<S: EventSink>(&mut self, table: EventTable, sink: &mut S) -> Result<(), Cancelled> {
        let Some(found) = self.export.table(table.name()) else {
            return Ok(());
        };
        let leaves = self.leaves(found);
        let threads = match table {
            EventTable::Nvtx => 1,
            _ => self
                .context
                .threads
                .min(leaves.len() / MIN_PART_LEAVES)
                .max(1),
        };
        let parts = self.parts(table, &leaves, threads, sink)?;
        let distinct: FxHashSet<&RowKey> = parts.iter().flat_map(|part| &part.rows).collect();
        let max_rows = self.context.limits.max_tracks as usize;
        let parts = if threads > 1 && self.rows.len() + distinct.len() > max_rows {
            // Which rows there is room for must not depend on the number of threads.
            drop(parts);
            self.parts(table, &leaves, 1, sink)?
        } else {
            parts
        };
        for part in parts {
            sink.merge(part.sink);
            self.rows.extend(part.rows);
            self.counts.add(&part.counts);
            self.losses.add(part.losses);
            self.work.add(part.work);
            self.last = self.last.max(part.last);
        }
        self.context
            .advance(leaves.len() as u64 * self.export.database.page_bytes())?;
        Ok(())
    }

    fn leaves(&mut self, table: &Table) -> Vec<u32> {
        let reader = RowReader::new(&self.export.database);
        reader.new_leaves(table, &mut self.pages, &mut self.losses)
    }

    /// Reads leaves in parts of nearly equal size, each in a fork of the sink.
    fn parts<S: EventSink>(
        &self,
        table: EventTable,
        leaves: &[u32],
        threads: usize,
        sink: &S,
    ) -> Result<Vec<PartResult<S>>, Cancelled> {
        let plan: Plan<'_, 'a> = Plan {
            export: self.export,
            rows: self.row_names(),
            context: self.context,
            source: self.source,
            origin_ns: self.origin_ns,
            has_calls: self.has_calls,
            work: &self.work,
        };
        let last = self.last;
        let size = leaves.len().div_ceil(threads).max(1);
        let jobs: Vec<&[u32]> = leaves.chunks(size).collect();
        let [job] = jobs[..] else {
            return std::thread::scope(|scope| {
                let running: Vec<_> = jobs
                    .iter()
                    .map(|job| {
                        let (job, fork) = (*job, sink.fork());
                        std::thread::Builder::new()
                            .name("nsight-reader".to_owned())
                            .spawn_scoped(scope, move || {
                                TablePart::read(plan, table, (job, last), fork)
                            })
                    })
                    .collect();
                let results = running.into_iter().zip(&jobs);
                results
                    .map(|(thread, job)| {
                        match thread.map(std::thread::ScopedJoinHandle::join) {
                            Ok(Ok(result)) => result,
                            Ok(Err(panic)) => std::panic::resume_unwind(panic),
                            // Thread creation failed: this thread reads the part.
                            Err(_no_thread) => {
                                TablePart::read(plan, table, (job, last), sink.fork())
                            }
                        }
                    })
                    .collect()
            });
        };
        Ok(vec![TablePart::read(
            plan,
            table,
            (job, last),
            sink.fork(),
        )?])
    }
}

/// Columns of the table of a part.
enum Columns {
    Work(Box<WorkColumns>),
    Calls(CallColumns),
    Nvtx(Box<NvtxColumns>),
}

impl<'c, 'a, S: EventSink> TablePart<'c, 'a, S> {
    /// Emits the rows of some leaves of a table.
    pub(super) fn read(
        plan: Plan<'c, 'a>,
        table: EventTable,
        (leaves, last): (&[u32], Time),
        mut sink: S,
    ) -> Result<PartResult<S>, Cancelled> {
        let correlation = sink.name("correlation");
        let mut part = Self {
            plan,
            table,
            sink,
            names: Names::default(),
            rows: Rows::default(),
            texts: RowReader::new(&plan.export.database),
            counts: Counts::default(),
            losses: Losses::default(),
            work: Correlations::default(),
            last,
            unfinished: Vec::new(),
            correlation,
        };
        if let Some(found) = plan.export.table(table.name()) {
            part.emit(found, leaves)?;
        }
        Ok(PartResult {
            sink: part.sink,
            rows: part.rows.new,
            counts: part.counts,
            losses: part.losses,
            work: part.work,
            last: part.last,
        })
    }

    fn emit(&mut self, table: &Table, leaves: &[u32]) -> Result<(), Cancelled> {
        let mut columns = match self.table {
            kind if EventTable::DEVICE.contains(&kind) => {
                Columns::Work(Box::new(WorkColumns::new(table, &mut self.sink)))
            }
            EventTable::Nvtx => Columns::Nvtx(Box::new(NvtxColumns::new(table, &mut self.sink))),
            kind => Columns::Calls(CallColumns::new(table, kind, &mut self.sink)),
        };
        let mut reader = RowReader::new(&self.plan.export.database);
        let mut losses = Losses::default();
        for page in leaves {
            self.plan.context.advance(0)?;
            scan_leaf(
                &mut reader,
                table,
                *page,
                &mut losses,
                &mut |fields: &Fields<'_>| match &mut columns {
                    Columns::Work(columns) => self.work(columns, fields),
                    Columns::Calls(columns) => self.call(columns, fields),
                    Columns::Nvtx(columns) => self.nvtx(columns, fields),
                },
            );
        }
        self.losses = losses;
        self.finish_ranges();
        Ok(())
    }
}
