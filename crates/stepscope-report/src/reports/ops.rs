//! [`ops`](stepscope_analysis::ops) as a report.

use rustc_hash::FxHashMap;
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::hlo::whole;
use crate::peer_profiler::PeerProfiler;
use crate::report::{
    Cell, Column, Link, Report, Sentence, Table, Unit, duration, in_sentence, sentence, share,
    with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::op_profile::{self, Op};
use stepscope_analysis::ops::rates::Bound;
use stepscope_analysis::ops::{OpGrouping, OpReport, OpRow, OpsQuery, Split, first_look, ops};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::roofline::{DeviceRoofs, Point};

const KIND: &str = "ops";

/// Row types: a class of operations; `auto` selects one, `shape`, `stack` and `tree` divide it.
pub(super) const BY: &[&str] = &[
    "auto",
    "framework",
    "hlo",
    "module",
    "action",
    "label",
    "python",
    "neuron-framework",
    "neuron-hlo",
    "shape",
    "stack",
    "tree",
];

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let word = options.by.as_deref().unwrap_or("auto");
    let split = match word {
        "shape" => Split::Shapes,
        "stack" => Split::Stack,
        _ => Split::None,
    };
    let range = options.range.clone();
    let (by, found) = match OpGrouping::from_name(word) {
        Some(by) => (by, ops(trace, &OpsQuery { by, split, range }, cancel)?),
        None => first_look(trace, split, range.as_ref(), cancel)?,
    };
    if found.rows.is_empty() {
        let asked = OpGrouping::from_name(word);
        return Ok(missing(asked));
    }
    let mut report = Report::new(KIND);
    report.sentence = sentence_of(by, &found);
    report.scalar("by", "Operations", Unit::Text, by.as_str());
    report.scalar("ops", "Rows", Unit::Count, found.rows.len());
    report.scalar("count", "Occurrences", Unit::Count, found.count);
    report.scalar("self_ns", "Self time", Unit::Ns, ns(found.self_ps));
    report.table = if word == "tree" {
        tree(&found)
    } else if by == OpGrouping::Hlo && split == Split::None {
        let works = Works::new(trace, &found, options.range.is_none(), cancel)?;
        rows(costliest(&found).into_iter(), &works, options.top)
    } else {
        rows(
            costliest(&found).into_iter(),
            &Works::default(),
            options.top,
        )
    };
    if word == "tree" {
        report.table.cut(options.top);
    } else if options.compat == Some(PeerProfiler::XProf) {
        let counts = costliest(&found).into_iter();
        let counts = counts.map(|row| Cell::from(row.xprof_count));
        let column = Column::new("xprof_count", "Count in XProf", Unit::Count);
        report.table.insert_column("count", column, counts);
    }
    if found.arguments_lost {
        report.note(
            "The file is not what it was when it was opened: programs and origins of some operations are not known",
        );
    }
    Ok(report)
}

/// Name and program of an operation, and whether a device ran it.
type OpKey<'a> = (&'a str, Option<&'a str>, bool);

/// Work of compiled operations, and their place under the roofs of their devices.
#[derive(Default)]
pub(super) struct Works<'a> {
    known: FxHashMap<OpKey<'a>, (Op, Option<Point>)>,
}

impl<'a> Works<'a> {
    /// Joins the rows with their programs. A range cuts operations: they have no place then.
    fn new(
        trace: &Trace,
        found: &'a OpReport,
        has_rates: bool,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let profile = op_profile::join(trace, found.rows.clone(), cancel)?;
        let mut roofs = DeviceRoofs::default();
        let known = found.rows.iter().zip(profile.ops).map(|(row, op)| {
            let roofs = roofs.device(trace, row.longest);
            let work = op.work.filter(|_| has_rates && !row.is_async);
            let point = work.and_then(|work| Point::new(&work, row.self_ps, roofs));
            let key = (row.name.as_str(), row.program.as_deref(), row.on_device);
            (key, (op, point))
        });
        Ok(Self {
            known: known.collect(),
        })
    }

    fn of_row<'s>(&'s self, row: &'s OpRow) -> Option<&'s (Op, Option<Point>)> {
        let key = (row.name.as_str(), row.program.as_deref(), row.on_device);
        self.known.get(&key)
    }
}

/// Returns the rows with the highest cost: device time that they launched if known, else self time.
pub(super) fn costliest(found: &OpReport) -> Vec<&OpRow> {
    let mut rows: Vec<&OpRow> = found.rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.launched_self_ps.unwrap_or(0), row.self_ps)));
    rows
}

fn sentence_of(by: OpGrouping, found: &OpReport) -> Sentence {
    let rows = costliest(found);
    let Some(first) = rows.first() else {
        return Sentence::default();
    };
    let count = with_thousands(rows.len() as u64).link(Link::scalar("ops"));
    let self_time = duration(ns(found.self_ps)).link(Link::scalar("self_ns"));
    let row = Link::row("name", &*first.name);
    let launched: i128 = rows.iter().filter_map(|row| row.launched_self_ps).sum();
    if launched > 0 {
        let own = first.launched_self_ps.unwrap_or(0);
        return sentence!(
            "{} {} took {} on the host and launched {} of device work; the largest is {} ({}).",
            count,
            title_of_rows(by, rows.len()),
            self_time,
            duration(ns(launched)).link(Link::page("kernels")),
            in_sentence(&first.name),
            share(own as f64 / launched as f64).link(row)
        );
    }
    sentence!(
        "{} {} took {}; the largest is {} ({}).",
        count,
        title_of_rows(by, rows.len()),
        self_time,
        in_sentence(&first.name),
        share(first.share).link(row)
    )
}

/// Returns the name of the rows of a grouping.
pub(super) const fn title(by: OpGrouping) -> &'static str {
    match by {
        OpGrouping::Framework => "framework operations",
        OpGrouping::Hlo => "HLO operations",
        OpGrouping::Module => "modules",
        OpGrouping::Action => "Lightning actions",
        OpGrouping::Label => "labels",
        OpGrouping::Python => "Python functions",
        OpGrouping::NeuronFramework => "framework operations on Neuron devices",
        OpGrouping::NeuronHlo => "HLO operations on Neuron devices",
    }
}

/// Returns the [`title`] for this many rows: `1 label`, `2 labels`.
fn title_of_rows(by: OpGrouping, rows: usize) -> String {
    let title = title(by);
    if rows != 1 {
        return title.to_owned();
    }
    let (noun, rest) = title
        .split_once(" on ")
        .map_or((title, String::new()), |(noun, rest)| {
            (noun, format!(" on {rest}"))
        });
    format!("{}{rest}", noun.strip_suffix('s').unwrap_or(noun))
}

fn ns(ps: i128) -> f64 {
    ps as f64 / 1_000.0
}

fn mean(row: &OpRow) -> f64 {
    ns(row.total_ps) / row.count.max(1) as f64
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        Column::new("name", "Operation", Unit::Text),
        Column::new("program", "Program", Unit::Text),
        Column::new("category", "Category", Unit::Text),
        Column::new("place", "Where", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("outermost_ns", "Total", Unit::Ns),
        Column::new("self_ns", "Self", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("mean_ns", "Mean", Unit::Ns),
        Column::new("p95_ns", "p95", Unit::Ns),
        Column::new("total_ns", "Sum of calls", Unit::Ns),
        Column::new("device_total_ns", "Device total", Unit::Ns),
        Column::new("device_self_ns", "Device self", Unit::Ns),
        Column::new("utilisation_share", "Utilisation", Unit::Share),
        Column::new("wasted_ns", "Wasted time", Unit::Ns),
        Column::new("bytes_per_second", "Memory rate", Unit::BytesPerSecond),
        Column::new("gflops_per_second", "GFLOP/s", Unit::Number),
        Column::new("bound_by", "Bound by", Unit::Text),
        Column::new("rate_note", "About the rate", Unit::Text),
        Column::new("max_ns", "Longest", Unit::Ns),
        Column::new("device_clock_ns", "Device clock", Unit::Ns),
        Column::new("device_clock_share", "Device clock share", Unit::Share),
        Column::new("holds", "Instructions", Unit::Count),
        Column::new("shapes", "Shapes", Unit::Text),
        Column::new("source", "Source", Unit::Text),
        Column::new("stack", "Stack", Unit::Text),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("event_names", "Names in the timeline", Unit::Text),
        Column::new("event", "Longest occurrence", Unit::Event),
        Column::new("flops", "FLOPs", Unit::Count),
        Column::new("bytes_accessed", "Bytes accessed", Unit::Bytes),
        Column::new("intensity", "FLOPs per byte", Unit::Number),
        Column::new("efficiency", "Efficiency", Unit::Share),
        Column::new("work_source", "Work from", Unit::Text),
    ]
}

/// Returns the first `top` rows and counts the others.
pub(super) fn rows<'a>(
    found: impl ExactSizeIterator<Item = &'a OpRow>,
    works: &Works<'_>,
    top: usize,
) -> Table {
    let mut table = Table::new(columns());
    let all = found.len();
    for row in found.take(top) {
        let op = works.of_row(row).map(|(op, _)| op);
        let point = works.of_row(row).and_then(|(_, point)| *point);
        let work = op.and_then(|op| op.work);
        let recorded = row.rates.and_then(|rates| rates.bound);
        let bound = recorded.or_else(|| Some(point?.bound()?.bound()));
        table.push([
            row.name.as_str().into(),
            row.program.clone().into(),
            row.category.as_str().into(),
            if row.on_device { "device" } else { "host" }.into(),
            row.count.into(),
            ns(row.outermost_ps).into(),
            ns(row.self_ps).into(),
            row.share.into(),
            mean(row).into(),
            row.p95_ns.into(),
            ns(row.total_ps).into(),
            row.launched_ps.map(ns).into(),
            row.launched_self_ps.map(ns).into(),
            row.rates.and_then(|rates| rates.utilisation).into(),
            row.wasted_ps.map(ns).into(),
            row.rates.map(|rates| rates.bytes_per_second).into(),
            row.rates.map(|rates| rates.flops_per_second / 1e9).into(),
            bound.map(Bound::as_str).into(),
            rate_note(row).into(),
            row.max_ns.into(),
            row.device_ps.map(ns).into(),
            row.device_share.into(),
            row.holds.into(),
            row.shapes.clone().into(),
            row.source.clone().into(),
            list(&row.stack),
            row.kind.label().into(),
            list(&row.event_names),
            row.longest.into(),
            work.map(|work| whole(work.flops)).into(),
            work.map(|work| whole(work.bytes)).into(),
            point.and_then(|point| point.intensity).into(),
            point.and_then(|point| point.efficiency()).into(),
            op.map(|op| op.source.as_str()).into(),
        ]);
    }
    table.left_out = all.saturating_sub(top) as u64;
    table
}

/// Returns the reason why a row has no rate, or why its rate is impossible.
fn rate_note(row: &OpRow) -> Option<&'static str> {
    if row.is_async {
        Some("asynchronous: no rate of its own")
    } else if row.rates.is_some_and(|rates| rates.exceeds_peak) {
        Some("above the device's peak")
    } else {
        None
    }
}

fn list(texts: &[String]) -> Cell {
    match texts {
        [] => Cell::Empty,
        texts => texts.to_vec().into(),
    }
}

/// Sums of a branch.
#[derive(Clone, Copy, Default)]
struct Branch {
    count: u64,
    total_ps: i128,
    self_ps: i128,
    share: f64,
}

impl Branch {
    fn from_rows<'a>(rows: impl Iterator<Item = &'a OpRow>) -> Self {
        let mut sum = Self::default();
        for row in rows {
            sum.count += row.count;
            sum.total_ps += row.total_ps;
            sum.self_ps += row.self_ps;
            sum.share += row.share;
        }
        sum
    }
}

/// Returns the tree program > category > operation; each level is sorted by self time.
fn tree(found: &OpReport) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Operation", Unit::Text),
        Column::new("level", "Level", Unit::Text),
        Column::new("depth", "Depth", Unit::Count),
        Column::new("parent", "Parent row", Unit::Number),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("self_ns", "Self", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("mean_ns", "Mean", Unit::Ns),
        Column::new("p95_ns", "p95", Unit::Ns),
        Column::new("shapes", "Shapes", Unit::Text),
        Column::new("source", "Source", Unit::Text),
        Column::new("event", "Longest occurrence", Unit::Event),
    ]);
    let all: Vec<&OpRow> = found.rows.iter().collect();
    let program = |row: &OpRow| row.program.clone().unwrap_or_default();
    for (name, rows) in groups(&all, program) {
        let title = if name.is_empty() {
            "(no program)"
        } else {
            &name
        };
        let at = push_branch(&mut table, title, "program", 0, None, &rows);
        for (name, rows) in groups(&rows, |row| row.category.clone()) {
            let parent = push_branch(&mut table, &name, "category", 1, Some(at), &rows);
            for row in rows {
                table.push([
                    row.name.as_str().into(),
                    "op".into(),
                    2_u32.into(),
                    parent.into(),
                    row.count.into(),
                    ns(row.total_ps).into(),
                    ns(row.self_ps).into(),
                    row.share.into(),
                    mean(row).into(),
                    row.p95_ns.into(),
                    row.shapes.clone().into(),
                    row.source.clone().into(),
                    row.longest.into(),
                ]);
            }
        }
    }
    table
}

/// Adds a branch and returns its row index.
fn push_branch(
    table: &mut Table,
    name: &str,
    level: &str,
    depth: u32,
    parent: Option<usize>,
    rows: &[&OpRow],
) -> usize {
    let sum = Branch::from_rows(rows.iter().copied());
    let at = table.rows.len();
    table.push([
        name.into(),
        level.into(),
        depth.into(),
        parent.into(),
        sum.count.into(),
        ns(sum.total_ps).into(),
        ns(sum.self_ps).into(),
        sum.share.into(),
        (ns(sum.total_ps) / sum.count.max(1) as f64).into(),
        Cell::Empty,
        Cell::Empty,
        Cell::Empty,
        Cell::Empty,
    ]);
    at
}

/// Groups rows by key. Groups are sorted by self time; rows keep their order.
fn groups<'a>(rows: &[&'a OpRow], key: impl Fn(&OpRow) -> String) -> Vec<(String, Vec<&'a OpRow>)> {
    let mut found: Vec<(String, Vec<&OpRow>)> = Vec::new();
    let mut places = FxHashMap::<String, usize>::default();
    for row in rows {
        let key = key(row);
        let place = *places.entry(key.clone()).or_insert_with(|| {
            found.push((key, Vec::new()));
            found.len() - 1
        });
        if let Some((_, members)) = found.get_mut(place) {
            members.push(row);
        }
    }
    found.sort_by_cached_key(|(name, rows)| {
        let sum: i128 = rows.iter().map(|row| row.self_ps).sum();
        (std::cmp::Reverse(sum), name.clone())
    });
    found
}

fn missing(by: Option<OpGrouping>) -> Report {
    let reason = match by {
        Some(OpGrouping::Framework) => "no framework operations are in this run",
        Some(OpGrouping::Hlo) => "no operations of compiled programs are in this run",
        Some(OpGrouping::NeuronFramework | OpGrouping::NeuronHlo) => {
            "no operations of Neuron devices are in this run"
        }
        Some(OpGrouping::Module) => "no modules are in this run",
        Some(OpGrouping::Action) => "no actions of Lightning's trainer are in this run",
        Some(OpGrouping::Python) => "no Python functions are in this run",
        Some(OpGrouping::Label) | None => "no operations, labels or functions are in this run",
    };
    Report::missing(KIND, reason)
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;

    fn report(drawing: &str, by: &str) -> Report {
        let options = Options {
            by: Some(by.to_owned()),
            ..Options::default()
        };
        make(&ascii_trace::trace(drawing), &options, &Cancel::default()).unwrap()
    }

    #[test]
    fn a_tree_has_parents_before_their_children_and_its_levels_add_up() {
        let report = report("main | load-----  fwd---  load--", "tree");
        let column = |key: &str| {
            let at = report
                .table
                .columns
                .iter()
                .position(|column| column.key == key);
            at.unwrap()
        };
        let (depth, parent, own) = (column("depth"), column("parent"), column("self_ns"));
        let mut by_depth = [0.0; 3];
        for (at, row) in report.table.rows.iter().enumerate() {
            let Cell::Int(depth) = row[depth] else {
                panic!()
            };
            if let Cell::Int(parent) = row[parent] {
                assert!(usize::try_from(parent).unwrap() < at);
            }
            if let Cell::Number(own) = row[own] {
                by_depth[usize::try_from(depth).unwrap()] += own;
            }
        }
        assert!(
            (by_depth[0] - by_depth[2]).abs() < 1e-6 && (by_depth[1] - by_depth[2]).abs() < 1e-6
        );
    }

    #[test]
    fn a_run_without_such_operations_says_so() {
        let report = report("main | load-----", "hlo");
        assert!(report.missing.unwrap().reason.contains("compiled programs"));
    }
}
