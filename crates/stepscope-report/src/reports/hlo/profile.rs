//! [`op_profile`](stepscope_analysis::op_profile) as a report: the tree of operations, as rows in depth-first order.

use stepscope_analysis::op_profile::{Grouping, Node, NodeKind, OpProfile};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::peaks::DevicePeaks;
use stepscope_analysis::roofline::{DeviceRoofs, Point};
use stepscope_hlo::cost::Level;
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::NO_OPERATIONS;
use super::cost::whole;
use super::precision;
use crate::report::{
    Cell, Column, Link, Report, Table, Unit, duration, in_sentence, sentence, share,
};
use crate::reports::Options;

const KIND: &str = "op-profile";

pub(in crate::reports) const BY: &[&str] = &["program", "category", "provenance"];

pub(in crate::reports) fn make(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, Cancelled> {
    let profile = super::measured(trace, options, cancel)?.profile;
    if profile.ops.is_empty() {
        return Ok(Report::missing(KIND, NO_OPERATIONS));
    }
    let grouping = match options.by.as_deref() {
        Some("category") => Grouping::Category,
        Some("provenance") => Grouping::Provenance,
        _ => Grouping::Program,
    };
    let tree = profile.tree(grouping);
    let mut roofs = DeviceRoofs::new(options.peaks.clone());
    for op in &profile.ops {
        roofs.device(trace, op.row.longest);
    }
    let common = match *roofs.list() {
        [only] => Some(only.clone()),
        _ => None,
    };
    let mut report = Report::new(KIND);
    let idle_ps = profile.idle_ps.unwrap_or(0);
    report.scalar("time_ns", "Time", Unit::Ns, ns(tree.time_ps));
    report.scalar("idle_ns", "Idle", Unit::Ns, ns(idle_ps));
    report.scalar(
        "unknown_ns",
        "Time of operations whose work is unknown",
        Unit::Ns,
        ns(tree.unknown_ps),
    );
    let first = tree
        .children
        .iter()
        .find(|node| node.kind != NodeKind::Idle);
    if let Some(first) = first {
        report.sentence = sentence!(
            "{} of the time of operations belongs to {}; all operations took {}.",
            share(first.time_ps as f64 / (tree.time_ps - idle_ps).max(1) as f64),
            in_sentence(&first.name),
            duration(ns(tree.time_ps - idle_ps)).link(Link::scalar("time_ns"))
        );
    }
    if profile.idle_ps.is_some() {
        report.note("The time of the root is that of all devices added up, with the time in which they ran no operation.");
    }
    if tree.unknown_ps > 0 {
        report.note(sentence!(
            "Operations that take {} have unknown work, such as custom calls: the rates leave their time out.",
            duration(ns(tree.unknown_ps))
        ));
    }
    let mut rows = Rows {
        trace,
        profile: &profile,
        roofs,
        common,
        root_ps: tree.time_ps,
        table: table(),
    };
    rows.add(&tree, 0, "");
    report.table = rows.table;
    report.table.cut(options.top);
    Ok(report)
}

fn ns(ps: i128) -> f64 {
    ps as f64 / 1_000.0
}

fn table() -> Table {
    Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("depth", "Level", Unit::Count),
        Column::new("node", "Node", Unit::Text),
        Column::new("program", "Program", Unit::Text),
        Column::new("op", "Operation", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
        Column::new("time_ns", "Time", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("executions", "Executions", Unit::Count),
        Column::new("flops", "FLOPs", Unit::Count),
        Column::new("bytes_accessed", "Bytes accessed", Unit::Bytes),
        Column::new("flops_per_second", "FLOP/s", Unit::Number),
        Column::new("bytes_per_second", "Bytes per second", Unit::BytesPerSecond),
        Column::new("flops_utilisation", "FLOPs utilisation", Unit::Share),
        Column::new("memory_utilisation", "Memory utilisation", Unit::Share),
        Column::new("wasted_ns", "Wasted", Unit::Ns),
        Column::new("work_source", "Work from", Unit::Text),
        Column::new("precision", "Precision", Unit::Text),
        Column::new("main_bytes", "Main memory bytes", Unit::Bytes),
        Column::new("chip_read_bytes", "On-chip bytes read", Unit::Bytes),
        Column::new("chip_write_bytes", "On-chip bytes written", Unit::Bytes),
    ])
}

struct Rows<'a> {
    trace: &'a Trace,
    profile: &'a OpProfile,
    roofs: DeviceRoofs,
    /// The peaks of all devices, if they are the same.
    common: Option<DevicePeaks>,
    root_ps: i128,
    table: Table,
}

impl Rows<'_> {
    /// Adds a node and those below it. The tree has a bounded depth.
    fn add(&mut self, node: &Node, depth: usize, program: &str) {
        let op = match node.kind {
            NodeKind::Op(at) => self.profile.ops.get(at),
            _ => None,
        };
        let program = match (node.kind, op) {
            (NodeKind::Program, _) => &node.name,
            (_, Some(op)) => op.row.program.as_deref().unwrap_or(""),
            _ => program,
        };
        let has_time = !matches!(node.kind, NodeKind::Instruction(_));
        let has_work = has_time && node.kind != NodeKind::Idle;
        let roofs = match op {
            Some(op) => self.roofs.device(self.trace, op.row.longest).cloned(),
            None => self.common.clone(),
        };
        let has_rates = has_work && op.is_none_or(|op| !op.row.is_async);
        let point = has_rates
            .then(|| Point::new(&node.work, node.time_ps - node.unknown_ps, roofs.as_ref()))
            .flatten();
        let is_known = op.is_none_or(|op| op.work.is_some());
        let known = |figure: f64| -> Cell {
            if is_known && node.kind != NodeKind::Idle {
                whole(figure)
            } else {
                Cell::Empty
            }
        };
        let at =
            |levels: &[Level]| known(levels.iter().map(|level| node.work.levels.at(*level)).sum());
        // A node whose operations are all unknown wastes nothing that is known.
        let wasted = point
            .and_then(|point| point.efficiency())
            .map(|efficiency| {
                ns(node.time_ps - node.unknown_ps) * (1.0 - efficiency.clamp(0.0, 1.0))
            });
        let op_name = match (op, node.kind) {
            (Some(op), _) => self.profile.instruction(op).map(|one| &*one.origin.op_name),
            _ => None,
        };
        self.table.push([
            (&*node.name).into(),
            depth.into(),
            kind(node.kind).into(),
            program.into(),
            op.map_or("", |op| &op.row.name).into(),
            op_name.unwrap_or("").into(),
            has_time.then(|| ns(node.time_ps)).into(),
            has_time
                .then(|| node.time_ps as f64 / self.root_ps.max(1) as f64)
                .into(),
            (node.kind != NodeKind::Idle)
                .then_some(node.executions)
                .into(),
            known(node.work.flops),
            known(node.work.bytes),
            point.map(|point| point.flops_per_second).into(),
            point.map(|point| point.bytes_per_second).into(),
            point.and_then(|point| point.compute).into(),
            point.and_then(|point| point.memory()).into(),
            wasted.into(),
            op.map_or("", |op| op.source.as_str()).into(),
            precision(&node.work).into(),
            at(&[Level::Main]),
            at(&[Level::CmemRead, Level::VmemRead]),
            at(&[Level::CmemWrite, Level::VmemWrite]),
        ]);
        for child in &node.children {
            self.add(child, depth + 1, program);
        }
    }
}

fn kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Root => "root",
        NodeKind::Program => "program",
        NodeKind::Scope => "scope",
        NodeKind::Category => "category",
        NodeKind::Copies => "copies",
        NodeKind::Op(_) => "op",
        NodeKind::Instruction(_) => "instruction",
        NodeKind::Idle => "idle",
    }
}
