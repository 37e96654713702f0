//! [`roofline`](stepscope_analysis::roofline) as a report.

mod torch;

use std::collections::BTreeMap;
use std::ops::Range;

use stepscope_analysis::op_profile::{Op, OpProfile, OpProfiler};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::peaks::{DevicePeaks, PeakSource};
use stepscope_analysis::roofline::{DeviceRoofs, Point};
use stepscope_analysis::steps::steps_of;
use stepscope_hlo::cost::{InstructionWork, Level, Precision};
use stepscope_model::{Cancelled, Time};
use stepscope_store::Trace;

use super::cost::whole;
use super::{NO_OPERATIONS, keep_asked, precision};
use crate::report::{
    Cell, Column, Report, Sentence, Table, Unit, count, duration, in_sentence, sentence, share,
};
use crate::reports::Options;

const KIND: &str = "roofline";

pub(in crate::reports) const BY: &[&str] = &["op", "category", "program", "shape", "step"];

/// Tolerance for rates above the peak that result from rounded times.
const ROUNDING: f64 = 1.01;

/// One row: an operation, or a group of them.
struct Row<'a> {
    name: String,
    op: Option<&'a Op>,
    step: Option<i64>,
    time_ps: i128,
    unknown_ps: i128,
    executions: u64,
    work: InstructionWork,
    /// The peaks of its device; `None` for a group over devices with different peaks.
    peaks: Option<DevicePeaks>,
}

pub(in crate::reports) fn make(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, Cancelled> {
    let profiler = super::measured(trace, options, cancel)?;
    if profiler.profile.ops.is_empty() || options.by.as_deref() == Some(torch::SHAPE) {
        return torch::make(trace, options, cancel);
    }
    let mut roofs = DeviceRoofs::new(options.peaks.clone());
    let by = options.by.as_deref();
    let steps = match by {
        Some("step") => by_step(trace, options, &profiler, &mut roofs, cancel)?,
        _ => Vec::new(),
    };
    let profile = &profiler.profile;
    let ops = profile.ops.iter().map(|op| op_row(trace, &mut roofs, op));
    let ops: Vec<Row<'_>> = ops.collect();
    let all_ps: i128 = ops.iter().map(|row| row.time_ps).sum();
    let unknown_ps: i128 = ops.iter().map(|row| row.unknown_ps).sum();
    let unknown = ops.iter().filter(|row| row.unknown_ps > 0).count();
    let rows = match by {
        Some("category") => sums_by(ops, |op| &op.row.category),
        Some("program") => sums_by(ops, |op| op.row.program.as_deref().unwrap_or("")),
        Some("step") => steps,
        _ => ops,
    };
    let mut report = Report::new(KIND);
    report.scalar("time_ns", "Time of operations", Unit::Ns, ns(all_ps));
    report.scalar(
        "unknown_ns",
        "Time of operations whose work is unknown",
        Unit::Ns,
        ns(unknown_ps),
    );
    report.scalar(
        "unknown_ops",
        "Operations whose work is unknown",
        Unit::Count,
        unknown,
    );
    if let Some(longest) = rows.iter().reduce(|most, row| {
        if row.time_ps > most.time_ps {
            row
        } else {
            most
        }
    }) {
        let noun = match by {
            Some("category") => "category",
            Some("program") => "program",
            Some("step") => "step",
            _ => "operation",
        };
        report.sentence = lead(longest, noun, all_ps);
    } else {
        report.sentence = "No step of this range has operations of compiled programs.".into();
    }
    if by == Some("step") {
        report.note(
            "A step has the operations that run between its start and its end, on all ranks. An operation that \
             crosses an end counts with its time inside and with all of its work.",
        );
    }
    if unknown > 0 {
        report.note(sentence!(
            "Operations whose work is unknown, such as custom calls, take {} and have no place under the roofs.",
            duration(ns(unknown_ps))
        ));
    }
    note_peaks(&mut report, &roofs.list());
    let above = |row: &&Row<'_>| {
        let efficiency = row.point().and_then(|point| point.efficiency());
        efficiency.is_some_and(|efficiency| efficiency > ROUNDING)
    };
    let above_peak = rows.iter().filter(above).count();
    if above_peak > 0 {
        report.note(sentence!(
            "{} rows are above a peak: that peak is too low, or their bytes came from a cache.",
            count(above_peak)
        ));
    }
    let roofs = roofs_table(&roofs.list());
    report.table = table(profile, &rows, all_ps);
    report.table.cut(options.top);
    if !roofs.rows.is_empty() {
        report.section("roofs", "Roofs", roofs);
    }
    Ok(report)
}

/// Says which peaks are missing, and what those of tables and measurements mean.
fn note_peaks(report: &mut Report, list: &[&DevicePeaks]) {
    let flops = |peaks: &DevicePeaks| {
        let all = Precision::ALL.into_iter();
        all.filter_map(|precision| peaks.flops(precision))
            .collect::<Vec<_>>()
    };
    if list
        .iter()
        .all(|peaks| flops(peaks).is_empty() || peaks.bytes(Level::Main).is_none())
    {
        report.note(
            "The peaks of arithmetic and memory are not both known: what limits an operation is unknown. The options \
             --peak-flops and --peak-bandwidth give them; 'stepscope peaks' measures those of a processor.",
        );
        return;
    }
    report.note(
        "Each operation is held against the peak of its own element type; a peak is the rate of dense matrix products.",
    );
    let is_measured = |peaks: &&DevicePeaks| {
        let bytes = peaks.bytes(Level::Main);
        let mut all = flops(peaks).into_iter().chain(bytes);
        all.any(|peak| peak.source == PeakSource::Measured)
    };
    if list.iter().any(is_measured) {
        report.note(
            "The peaks of the processor were measured on all of its cores, with data in main memory for the copy.",
        );
    }
}

fn op_row<'a>(trace: &Trace, roofs: &mut DeviceRoofs, op: &'a Op) -> Row<'a> {
    Row {
        name: op.row.name.clone(),
        op: Some(op),
        step: None,
        time_ps: op.row.self_ps,
        unknown_ps: if op.work.is_none() { op.row.self_ps } else { 0 },
        executions: op.row.executions,
        work: op.work.unwrap_or_default(),
        peaks: roofs.device(trace, op.row.longest).cloned(),
    }
}

/// Adds up the operations of each step that lies in the range; the steps of one number on all ranks are one row.
fn by_step<'a>(
    trace: &Trace,
    options: &Options,
    profiler: &OpProfiler<'_>,
    roofs: &mut DeviceRoofs,
    cancel: &Cancel,
) -> Result<Vec<Row<'a>>, Cancelled> {
    let mut ranges: BTreeMap<i64, Range<Time>> = BTreeMap::new();
    for step in steps_of(trace, options.marked_only).steps {
        let end = step.start.saturating_add(step.dur);
        let own = ranges.entry(step.number).or_insert(step.start..end);
        *own = own.start.min(step.start)..own.end.max(end);
    }
    if let Some(range) = &options.range {
        ranges.retain(|_, own| own.start >= range.start && own.end <= range.end);
    }
    let mut rows = Vec::new();
    for (number, range) in ranges {
        let mut ops = profiler.ops_in(range, cancel)?;
        keep_asked(&mut ops, options);
        let mut row: Option<Row<'a>> = None;
        for op in &ops {
            let one = op_row(trace, roofs, op);
            let own = row.get_or_insert_with(|| one.empty_group(format!("step {number}")));
            own.add(&one);
        }
        rows.extend(row.map(|row| Row {
            step: Some(number),
            ..row
        }));
    }
    Ok(rows)
}

fn lead(first: &Row<'_>, noun: &'static str, all_ps: i128) -> Sentence {
    let point = first.point();
    let mut text = sentence!(
        "The longest {} is {}, with {} of the time of operations: ",
        noun,
        in_sentence(&first.name),
        share(first.time_ps as f64 / all_ps.max(1) as f64)
    );
    text.push(
        match point.and_then(|point| point.bound().zip(point.efficiency())) {
            _ if first.op.is_some_and(|op| op.row.is_async) => {
                sentence!("it starts or awaits an asynchronous operation.")
            }
            Some((bound, efficiency)) => sentence!(
                "{} limits it, and it reaches {} of that peak.",
                bound.as_str(),
                share(efficiency)
            ),
            None => sentence!("what limits it is unknown."),
        },
    );
    text
}

fn ns(ps: i128) -> f64 {
    ps as f64 / 1_000.0
}

impl Row<'_> {
    fn point(&self) -> Option<Point> {
        if self.op.is_some_and(|op| op.row.is_async) {
            return None;
        }
        let known_ps = self.time_ps - self.unknown_ps;
        Point::new(&self.work, known_ps, self.peaks.as_ref())
    }

    /// Returns a group with the peaks of this operation, and nothing in it.
    fn empty_group<'a>(&self, name: String) -> Row<'a> {
        Row {
            name,
            op: None,
            step: None,
            time_ps: 0,
            unknown_ps: 0,
            executions: 0,
            work: InstructionWork::default(),
            peaks: self.peaks.clone(),
        }
    }

    /// Adds an operation to a group.
    fn add(&mut self, other: &Row<'_>) {
        self.time_ps += other.time_ps;
        self.unknown_ps += other.unknown_ps;
        self.executions += other.executions;
        self.work.add(&other.work, 1.0);
        if self.peaks != other.peaks {
            self.peaks = None;
        }
    }
}

/// Adds up the rows of one text.
fn sums_by<'a>(ops: Vec<Row<'a>>, name: impl Fn(&'a Op) -> &'a str) -> Vec<Row<'a>> {
    let mut groups: BTreeMap<&str, Row<'a>> = BTreeMap::new();
    for row in ops {
        let name = row.op.map_or("", &name);
        let group = groups
            .entry(name)
            .or_insert_with(|| row.empty_group(name.to_owned()));
        group.add(&row);
    }
    let mut rows: Vec<Row<'a>> = groups.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time_ps));
    rows
}

/// The memories on the chip, with the keys and titles of their columns: bytes, intensity, utilisation.
const ON_CHIP: [(Level, [(&str, &str); 3]); 4] = [
    (
        Level::CmemRead,
        [
            ("cmem_read_bytes", "CMEM read"),
            ("cmem_read_intensity", "FLOPs per byte of CMEM read"),
            ("cmem_read_utilisation", "CMEM read utilisation"),
        ],
    ),
    (
        Level::CmemWrite,
        [
            ("cmem_write_bytes", "CMEM written"),
            ("cmem_write_intensity", "FLOPs per byte of CMEM written"),
            ("cmem_write_utilisation", "CMEM write utilisation"),
        ],
    ),
    (
        Level::VmemRead,
        [
            ("vmem_read_bytes", "VMEM read"),
            ("vmem_read_intensity", "FLOPs per byte of VMEM read"),
            ("vmem_read_utilisation", "VMEM read utilisation"),
        ],
    ),
    (
        Level::VmemWrite,
        [
            ("vmem_write_bytes", "VMEM written"),
            ("vmem_write_intensity", "FLOPs per byte of VMEM written"),
            ("vmem_write_utilisation", "VMEM write utilisation"),
        ],
    ),
];

/// The columns of the work of a row and of its place under the roofs.
fn place_columns() -> [Column; 11] {
    [
        Column::new("flops", "FLOPs", Unit::Count),
        Column::new("bytes_accessed", "Bytes accessed", Unit::Bytes),
        Column::new("intensity", "FLOPs per byte", Unit::Number),
        Column::new("flops_per_second", "FLOP/s", Unit::Number),
        Column::new("bytes_per_second", "Bytes per second", Unit::BytesPerSecond),
        Column::new("peak_flops_per_second", "Peak FLOP/s", Unit::Number),
        Column::new(
            "peak_bytes_per_second",
            "Peak bytes per second",
            Unit::BytesPerSecond,
        ),
        Column::new("flops_utilisation", "FLOPs utilisation", Unit::Share),
        Column::new("memory_utilisation", "Memory utilisation", Unit::Share),
        Column::new("bound", "Bound by", Unit::Text),
        Column::new("efficiency", "Efficiency", Unit::Share),
    ]
}

/// The cells of [`place_columns`].
fn place_cells(
    work: &InstructionWork,
    is_known: bool,
    point: Option<&Point>,
    peaks: Option<&DevicePeaks>,
) -> [Cell; 11] {
    let known = |figure: f64| -> Cell { if is_known { whole(figure) } else { Cell::Empty } };
    let peak_bytes = peaks.and_then(|peaks| peaks.bytes(Level::Main));
    let roof = point.and_then(Point::bound);
    [
        known(work.flops),
        known(work.bytes),
        point.and_then(|point| point.intensity).into(),
        point.map(|point| point.flops_per_second).into(),
        point.map(|point| point.bytes_per_second).into(),
        point.and_then(|point| point.peak_flops_per_second).into(),
        peak_bytes.map(|peak| peak.per_second).into(),
        point.and_then(|point| point.compute).into(),
        point.and_then(Point::memory).into(),
        roof.map_or("", |roof| roof.bound().as_str()).into(),
        point.and_then(Point::efficiency).into(),
    ]
}

fn table(profile: &OpProfile, rows: &[Row<'_>], all_ps: i128) -> Table {
    let is_used = |level: Level| rows.iter().any(|row| row.work.levels.at(level) > 0.0);
    let on_chip = ON_CHIP.iter().filter(|(level, _)| is_used(*level));
    let on_chip: Vec<_> = on_chip.collect();
    let mut columns = vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("op", "Operation", Unit::Text),
        Column::new("program", "Program", Unit::Text),
        Column::new("category", "Category", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
        Column::new("time_ns", "Time", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("executions", "Executions", Unit::Count),
    ];
    columns.extend(place_columns());
    columns.extend([
        Column::new("work_source", "Work from", Unit::Text),
        Column::new("precision", "Precision", Unit::Text),
        Column::new("main_bytes", "Main memory bytes", Unit::Bytes),
        Column::new(
            "main_intensity",
            "FLOPs per byte of main memory",
            Unit::Number,
        ),
        Column::new(
            "main_bytes_per_second",
            "Main memory bytes per second",
            Unit::BytesPerSecond,
        ),
        Column::new("roof", "Nearest roof", Unit::Text),
        Column::new("step", "Step", Unit::Number),
    ]);
    for (_, [bytes, intensity, utilisation]) in &on_chip {
        columns.push(Column::new(bytes.0, bytes.1, Unit::Bytes));
        columns.push(Column::new(intensity.0, intensity.1, Unit::Number));
        columns.push(Column::new(utilisation.0, utilisation.1, Unit::Share));
    }
    let mut table = Table::new(columns);
    for row in rows {
        let point = row.point();
        let is_known = row.op.is_none_or(|op| op.work.is_some());
        let known = |figure: f64| -> Cell { if is_known { whole(figure) } else { Cell::Empty } };
        let op = row.op;
        let instruction = op.and_then(|op| profile.instruction(op));
        let main = point.map(|point| *point.level(Level::Main));
        let roof = point.and_then(|point| point.bound());
        let mut cells: Vec<Cell> = vec![
            (&*row.name).into(),
            op.map_or("", |op| &op.row.name).into(),
            op.and_then(|op| op.row.program.as_deref())
                .unwrap_or("")
                .into(),
            op.map_or("", |op| &op.row.category).into(),
            instruction.map_or("", |one| &one.origin.op_name).into(),
            ns(row.time_ps).into(),
            (row.time_ps as f64 / all_ps.max(1) as f64).into(),
            row.executions.into(),
        ];
        cells.extend(place_cells(
            &row.work,
            is_known,
            point.as_ref(),
            row.peaks.as_ref(),
        ));
        cells.extend([
            op.map_or("", |op| op.source.as_str()).into(),
            precision(&row.work).into(),
            known(row.work.levels.at(Level::Main)),
            main.and_then(|main| main.intensity).into(),
            main.map(|main| main.bytes_per_second).into(),
            roof.map_or("", |roof| roof.as_str()).into(),
            row.step.into(),
        ]);
        for (level, _) in &on_chip {
            let place = point.map(|point| *point.level(*level));
            cells.push(known(row.work.levels.at(*level)));
            cells.push(place.and_then(|place| place.intensity).into());
            cells.push(place.and_then(|place| place.utilisation).into());
        }
        table.rows.push(cells);
    }
    table
}

/// Returns the words for the arithmetic roof of a class.
const fn products(precision: Precision) -> &'static str {
    match precision {
        Precision::F64 => "products in 64 bits",
        Precision::F32 => "products in 32 bits",
        Precision::F16 => "products in 16 bits",
        Precision::F8 => "products in 8 bits",
        Precision::F4 => "products in 4 bits",
    }
}

fn roofs_table(list: &[&DevicePeaks]) -> Table {
    let mut table = Table::new(vec![
        Column::new("device", "Device", Unit::Text),
        Column::new("roof", "Roof", Unit::Text),
        Column::new("peak_flops_per_second", "Peak FLOP/s", Unit::Number),
        Column::new(
            "peak_bytes_per_second",
            "Peak bytes per second",
            Unit::BytesPerSecond,
        ),
        Column::new("source", "From", Unit::Text),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("precision", "Precision", Unit::Text),
        Column::new("level", "Level", Unit::Text),
    ]);
    for peaks in list {
        for precision in Precision::ALL {
            if let Some(peak) = peaks.flops(precision) {
                table.push([
                    (&*peaks.device).into(),
                    products(precision).into(),
                    peak.per_second.into(),
                    Cell::Empty,
                    peak.source.as_str().into(),
                    "compute".into(),
                    precision.as_str().into(),
                    Cell::Empty,
                ]);
            }
        }
        for level in Level::ALL {
            if let Some(peak) = peaks.bytes(level) {
                table.push([
                    (&*peaks.device).into(),
                    level.as_str().into(),
                    Cell::Empty,
                    peak.per_second.into(),
                    peak.source.as_str().into(),
                    "memory".into(),
                    Cell::Empty,
                    level.as_str().into(),
                ]);
            }
        }
    }
    table
}
