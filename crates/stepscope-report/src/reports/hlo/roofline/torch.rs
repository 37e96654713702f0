//! The roofline of PyTorch operators, from the inputs that kineto records: [`torch_op_profile`].

use std::collections::BTreeMap;

use stepscope_analysis::ops::has_torch_operators;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::peaks::DevicePeaks;
use stepscope_analysis::roofline::{DeviceRoofs, Point};
use stepscope_analysis::torch_cost::{OpCost, TorchOpClass};
use stepscope_analysis::torch_op_profile::{TorchOp, TorchOpQuery, torch_op_profile};
use stepscope_hlo::cost::{InstructionWork, LevelBytes, PrecisionFlops};
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::{
    KIND, NO_OPERATIONS, ROUNDING, note_peaks, ns, place_cells, place_columns, precision,
    roofs_table,
};
use crate::report::{
    Cell, Column, Report, Sentence, Table, Unit, count, duration, in_sentence, sentence, share,
};
use crate::reports::Options;

/// The row type that only runs of PyTorch have.
pub(super) const SHAPE: &str = "shape";

/// Calls of one operator, or a group of operators.
#[derive(Clone)]
struct Row {
    name: String,
    shapes: String,
    types: String,
    class: &'static str,
    step: Option<i64>,
    time_ps: i128,
    unknown_ps: i128,
    calls: u64,
    work: InstructionWork,
    /// The peaks of its device; `None` for a group over devices with different peaks.
    peaks: Option<DevicePeaks>,
}

impl Row {
    fn new(op: &TorchOp, peaks: Option<DevicePeaks>) -> Self {
        Self {
            name: if op.name.is_empty() {
                "(no operator)".to_owned()
            } else {
                op.name.clone()
            },
            shapes: op.shapes.clone(),
            types: op.types.clone(),
            class: op.class.map_or("unknown", TorchOpClass::as_str),
            step: op.step,
            time_ps: op.time_ps,
            unknown_ps: if op.cost.is_none() { op.time_ps } else { 0 },
            calls: op.calls,
            work: op
                .cost
                .map_or_else(InstructionWork::default, |cost| work(cost, op.calls)),
            peaks,
        }
    }

    const fn is_known(&self) -> bool {
        self.unknown_ps < self.time_ps
    }

    fn point(&self) -> Option<Point> {
        let known_ps = self.time_ps - self.unknown_ps;
        Point::new(&self.work, known_ps, self.peaks.as_ref())
    }

    /// Adds another row to a group. A group over devices with different peaks has none.
    fn add(&mut self, other: &Self) {
        let same = |own: &mut String, others: &str| {
            if own != others {
                own.clear();
            }
        };
        same(&mut self.name, &other.name);
        same(&mut self.shapes, &other.shapes);
        same(&mut self.types, &other.types);
        if self.class != other.class {
            self.class = "";
        }
        if self.step != other.step {
            self.step = None;
        }
        if self.peaks != other.peaks {
            self.peaks = None;
        }
        self.time_ps += other.time_ps;
        self.unknown_ps += other.unknown_ps;
        self.calls += other.calls;
        self.work.add(&other.work, 1.0);
    }
}

/// Returns the work of all calls; operators of PyTorch work in the main memory.
fn work(cost: OpCost, calls: u64) -> InstructionWork {
    let (flops, bytes) = (cost.flops as f64, cost.bytes as f64);
    let one = InstructionWork {
        flops,
        transcendentals: 0.0,
        bytes,
        levels: LevelBytes::main_only(bytes),
        precisions: PrecisionFlops::only(cost.data_type.precision(), flops),
    };
    one.scaled(calls as f64)
}

/// Adds up the rows of one key, in the order of their time.
fn sums_by<K: Ord>(rows: &[Row], key: impl Fn(&Row) -> K) -> Vec<Row> {
    let mut groups: BTreeMap<K, Row> = BTreeMap::new();
    for row in rows {
        match groups.entry(key(row)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(row.clone());
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().add(row),
        }
    }
    let mut rows: Vec<Row> = groups.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time_ps));
    rows
}

/// Makes the report of a run without operations of compiled programs.
pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let by = options.by.as_deref().unwrap_or("op");
    if !has_torch_operators(trace) || by == "program" {
        let reason = if by == SHAPE {
            "the run has no operators of PyTorch: other operations have no rows by shape"
        } else {
            NO_OPERATIONS
        };
        return Ok(Report::missing(KIND, reason));
    }
    let query = TorchOpQuery {
        range: options.range.clone(),
        by_step: by == "step",
        marked_only: options.marked_only,
    };
    let profile = torch_op_profile(trace, &query, cancel)?;
    let mut roofs = DeviceRoofs::new(options.peaks.clone());
    let ops: Vec<Row> = profile
        .ops
        .iter()
        .map(|op| Row::new(op, roofs.device(trace, op.slice).cloned()))
        .collect();
    if ops.is_empty() {
        return Ok(Report::missing(
            KIND,
            "no operators of PyTorch ran in this range",
        ));
    }
    let by_name = sums_by(&ops, |row| row.name.clone());
    let all_ps: i128 = ops.iter().map(|row| row.time_ps).sum();
    let unknown_ps: i128 = ops.iter().map(|row| row.unknown_ps).sum();
    let unknown = by_name.iter().filter(|row| row.unknown_ps > 0).count();
    let noun = match by {
        "category" => "category",
        "step" => "step",
        _ => "operation",
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
    report.scalar(
        "unknown_share",
        "Share of the time whose work is unknown",
        Unit::Share,
        unknown_ps as f64 / all_ps.max(1) as f64,
    );
    if let Some(longest) = by_name.iter().max_by_key(|row| row.unknown_ps)
        && unknown > 0
    {
        report.note(sentence!(
            "Operations whose work is unknown take {}, {} of the time; the longest is {}.",
            duration(ns(unknown_ps)),
            share(unknown_ps as f64 / all_ps.max(1) as f64),
            in_sentence(&longest.name)
        ));
    }
    if ops.iter().all(|row| row.shapes.is_empty()) {
        report.note(
            "The file has no shapes of inputs: torch.profiler records them with record_shapes=True.",
        );
    }
    if !profile.on_device {
        report.note("No device worked in this run: times are those of the operators on the host.");
    }
    let list = roofs.list();
    note_peaks(&mut report, &list);
    let roofs = roofs_table(&list);
    let mut rows = match by {
        "shape" => sums_by(&ops, |row| {
            (row.name.clone(), row.shapes.clone(), row.types.clone())
        }),
        "category" => sums_by(&ops, |row| row.class),
        "step" => sums_by(&ops, |row| row.step),
        _ => by_name,
    };
    for row in &mut rows {
        match (by, row.step) {
            ("step", Some(step)) => row.name = step.to_string(),
            ("step", None) => "(outside of steps)".clone_into(&mut row.name),
            ("category", _) => row.class.clone_into(&mut row.name),
            _ => {}
        }
    }
    if by == "step" {
        rows.sort_by_key(|row| (row.step.is_none(), row.step));
    }
    if let Some(first) = rows.iter().max_by_key(|row| row.time_ps) {
        report.sentence = lead(first, noun, all_ps);
    }
    let above = |row: &&Row| {
        let efficiency = row.point().and_then(|point| point.efficiency());
        efficiency.is_some_and(|efficiency| efficiency > ROUNDING)
    };
    let above_peak = rows.iter().filter(above).count();
    if above_peak > 0 {
        report.note(sentence!(
            "{} rows are above a peak: their inputs came from a cache, or skipped work counts.",
            count(above_peak)
        ));
    }
    report.table = table(&rows, all_ps, matches!(by, "op" | "shape"));
    report.table.cut(options.top);
    if !roofs.rows.is_empty() {
        report.section("roofs", "Roofs", roofs);
    }
    Ok(report)
}

fn lead(first: &Row, noun: &'static str, all_ps: i128) -> Sentence {
    let mut text = sentence!(
        "The longest {} is {}, with {} of the time of operations: ",
        noun,
        in_sentence(&first.name),
        share(first.time_ps as f64 / all_ps.max(1) as f64)
    );
    let point = first.point();
    text.push(
        if let Some((bound, efficiency)) =
            point.and_then(|point| point.bound().zip(point.efficiency()))
        {
            sentence!(
                "{} limits it, and it reaches {} of that peak.",
                bound.as_str(),
                share(efficiency)
            )
        } else {
            sentence!("what limits it is unknown.")
        },
    );
    text
}

fn table(rows: &[Row], all_ps: i128, are_ops: bool) -> Table {
    let mut columns = vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("op", "Operation", Unit::Text),
        Column::new("category", "Category", Unit::Text),
        Column::new("shapes", "Shapes", Unit::Text),
        Column::new("types", "Types", Unit::Text),
        Column::new("precision", "Precision", Unit::Text),
        Column::new("time_ns", "Time", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("unknown_ns", "Time of unknown work", Unit::Ns),
        Column::new("executions", "Executions", Unit::Count),
    ];
    columns.extend(place_columns());
    columns.extend([
        Column::new("work_source", "Work from", Unit::Text),
        Column::new("roof", "Nearest roof", Unit::Text),
        Column::new("step", "Step", Unit::Number),
    ]);
    let mut table = Table::new(columns);
    for row in rows {
        let point = row.point().filter(|_| row.is_known());
        let roof = point.and_then(|point| point.bound());
        let mut cells: Vec<Cell> = vec![
            row.name.as_str().into(),
            if are_ops { row.name.as_str() } else { "" }.into(),
            row.class.into(),
            row.shapes.as_str().into(),
            row.types.as_str().into(),
            precision(&row.work).into(),
            ns(row.time_ps).into(),
            (row.time_ps as f64 / all_ps.max(1) as f64).into(),
            ns(row.unknown_ps).into(),
            row.calls.into(),
        ];
        cells.extend(place_cells(
            &row.work,
            row.is_known(),
            point.as_ref(),
            row.peaks.as_ref(),
        ));
        cells.extend([
            if row.is_known() {
                "recorded shapes"
            } else {
                "unknown"
            }
            .into(),
            roof.map_or("", |roof| roof.as_str()).into(),
            row.step.into(),
        ]);
        table.rows.push(cells);
    }
    table
}
