//! [`roofline`](stepscope_analysis::roofline) as a report.

mod torch;

use std::collections::BTreeMap;

use stepscope_analysis::op_profile::{Op, OpProfile};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::roofline::{DeviceRoofs, Point, Roofs};
use stepscope_hlo::cost::Work;
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::NO_OPERATIONS;
use super::cost::whole;
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
    name: &'a str,
    op: Option<&'a Op>,
    time_ps: i128,
    unknown_ps: i128,
    executions: u64,
    work: Work,
    roofs: Option<Roofs>,
}

pub(in crate::reports) fn make(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, Cancelled> {
    let profile = super::measured(trace, options, cancel)?;
    let by = options.by.as_deref();
    if profile.ops.is_empty() || by.is_some_and(|by| torch::BY.contains(&by)) {
        return torch::make(trace, options, cancel);
    }
    let mut roofs = DeviceRoofs::default();
    let ops: Vec<Row<'_>> = profile
        .ops
        .iter()
        .map(|op| Row {
            name: &op.row.name,
            op: Some(op),
            time_ps: op.row.self_ps,
            unknown_ps: if op.work.is_none() { op.row.self_ps } else { 0 },
            executions: op.row.executions,
            work: op.work.unwrap_or_default(),
            roofs: roofs.device(trace, op.row.longest).cloned(),
        })
        .collect();
    let all_ps: i128 = ops.iter().map(|row| row.time_ps).sum();
    let unknown_ps: i128 = ops.iter().map(|row| row.unknown_ps).sum();
    let unknown = ops.iter().filter(|row| row.unknown_ps > 0).count();
    let rows = match options.by.as_deref() {
        Some("category") => sums_by(ops, |op| &op.row.category),
        Some("program") => sums_by(ops, |op| op.row.program.as_deref().unwrap_or("")),
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
    if let Some(first) = rows.first() {
        let noun = match options.by.as_deref() {
            Some("category") => "category",
            Some("program") => "program",
            _ => "operation",
        };
        report.sentence = lead(first, noun, all_ps);
    }
    if unknown > 0 {
        report.note(sentence!(
            "The work of {} operations is unknown, such as custom calls: they take {} and have no place under the roofs.",
            count(unknown),
            duration(ns(unknown_ps))
        ));
    }
    let list = roofs.list();
    if list
        .iter()
        .all(|roofs| roofs.compute.is_none() || roofs.memory.is_none())
    {
        report.note("The file does not state both peaks of its devices: what limits an operation is unknown.");
    } else {
        report.note("The arithmetic peak is that of products in 16 bits: work in other types cannot reach it.");
    }
    let above = |row: &&Row<'_>| {
        let efficiency = row.point().and_then(|point| point.efficiency());
        efficiency.is_some_and(|efficiency| efficiency > ROUNDING)
    };
    let above_peak = rows.iter().filter(above).count();
    if above_peak > 0 {
        report.note(sentence!(
            "{} rows are above a peak: the peak that the file states is too low, or their bytes came from a cache.",
            count(above_peak)
        ));
    }
    let roofs = roofs_table(&list);
    report.table = table(&profile, &rows, all_ps);
    report.table.cut(options.top);
    if !roofs.rows.is_empty() {
        report.section("roofs", "Roofs", roofs);
    }
    Ok(report)
}

fn lead(first: &Row<'_>, noun: &'static str, all_ps: i128) -> Sentence {
    let point = first.point();
    let mut text = sentence!(
        "The longest {} is {}, with {} of the time of operations: ",
        noun,
        in_sentence(first.name),
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
        Point::new(self.work, known_ps, self.roofs.as_ref())
    }
}

/// Adds up the rows of one text. A group over devices with different peaks has none.
fn sums_by<'a>(ops: Vec<Row<'a>>, name: impl Fn(&'a Op) -> &'a str) -> Vec<Row<'a>> {
    let mut groups: BTreeMap<&str, Row<'a>> = BTreeMap::new();
    for row in ops {
        let name = row.op.map_or("", &name);
        let group = groups.entry(name).or_insert_with(|| Row {
            name,
            op: None,
            time_ps: 0,
            unknown_ps: 0,
            executions: 0,
            work: Work::default(),
            roofs: row.roofs.clone(),
        });
        group.time_ps += row.time_ps;
        group.unknown_ps += row.unknown_ps;
        group.executions += row.executions;
        group.work.flops += row.work.flops;
        group.work.transcendentals += row.work.transcendentals;
        group.work.bytes += row.work.bytes;
        if group.roofs != row.roofs {
            group.roofs = None;
        }
    }
    let mut rows: Vec<Row<'a>> = groups.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time_ps));
    rows
}

fn table(profile: &OpProfile, rows: &[Row<'_>], all_ps: i128) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("op", "Operation", Unit::Text),
        Column::new("program", "Program", Unit::Text),
        Column::new("category", "Category", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
        Column::new("time_ns", "Time", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("executions", "Executions", Unit::Count),
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
        Column::new("work_source", "Work from", Unit::Text),
    ]);
    for row in rows {
        let point = row.point();
        let is_known = row.op.is_none_or(|op| op.work.is_some());
        let known = |figure: f64| -> Cell { if is_known { whole(figure) } else { Cell::Empty } };
        let op = row.op;
        let instruction = op.and_then(|op| profile.instruction(op));
        let roofs = row.roofs.as_ref();
        table.push([
            row.name.into(),
            op.map_or("", |op| &op.row.name).into(),
            op.and_then(|op| op.row.program.as_deref())
                .unwrap_or("")
                .into(),
            op.map_or("", |op| &op.row.category).into(),
            instruction.map_or("", |one| &one.origin.op_name).into(),
            ns(row.time_ps).into(),
            (row.time_ps as f64 / all_ps.max(1) as f64).into(),
            row.executions.into(),
            known(row.work.flops),
            known(row.work.bytes),
            point.and_then(|point| point.intensity).into(),
            point.map(|point| point.flops_per_second).into(),
            point.map(|point| point.bytes_per_second).into(),
            roofs
                .and_then(|roofs| roofs.compute)
                .map(|(peak, _)| peak)
                .into(),
            roofs.and_then(|roofs| roofs.memory).into(),
            point.and_then(|point| point.compute).into(),
            point.and_then(|point| point.memory).into(),
            point
                .and_then(|point| point.bound())
                .map_or("", |bound| bound.as_str())
                .into(),
            point.and_then(|point| point.efficiency()).into(),
            op.map_or("", |op| op.source.as_str()).into(),
        ]);
    }
    table
}

fn roofs_table(list: &[&Roofs]) -> Table {
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
    ]);
    for roofs in list {
        if let Some((peak, source)) = roofs.compute {
            table.push([
                (&*roofs.device).into(),
                "products in 16 bits".into(),
                peak.into(),
                Cell::Empty,
                source.as_str().into(),
            ]);
        }
        if let Some(peak) = roofs.memory {
            table.push([
                (&*roofs.device).into(),
                "main memory".into(),
                Cell::Empty,
                peak.into(),
                "trace file".into(),
            ]);
        }
    }
    table
}
