//! Which tools the viewer offers for a run, and why one has nothing to show.
//!
//! Told from what is known without adding anything up: opening a run waits for no analysis. A tool
//! that turns out to be empty says so itself, with the reason its report gives.

use serde::Serialize;
use stepscope_analysis::device::communicates;
use stepscope_analysis::timeline_query::statistics_tree as tree;
use stepscope_model::TrackKind;
use stepscope_report::hints::{Lack, hint};

use crate::view::RunView;

/// A tool of the viewer.
#[derive(Serialize)]
pub(crate) struct Tool {
    id: &'static str,
    /// Page of the viewer that shows it.
    page: &'static str,
    title: &'static str,
    group: &'static str,
    /// Names that other profilers give it; typed, they find it.
    aliases: &'static [&'static str],
    state: &'static str,
    reason: Option<&'static str>,
    hint: Option<&'static str>,
}

/// What a run can fill of a tool.
enum Fill {
    /// All of it.
    Ready,
    /// Some of it: why it is not what to begin with.
    Partly(&'static str),
    /// Nothing: why, and what the run lacks.
    Not(&'static str, Lack),
}

/// The tools in the order of the viewer's rail: id, title, group, aliases.
const TOOLS: &[(&str, &str, &str, &[&str])] = &[
    ("overview", "Overview", "General", &["overview_page"]),
    ("timeline", "Timeline", "General", &["trace_viewer"]),
    (
        "ops",
        "Ops",
        "General",
        &["op_profile", "hlo_stats", "framework_op_stats"],
    ),
    (
        "calls",
        "Call tree",
        "General",
        &["flame_graph", "flamegraph", "call_tree", "bottom_up"],
    ),
    ("kernels", "Kernels", "GPU", &["kernel_stats"]),
    ("memory", "Memory", "General", &["memory_profile"]),
    (
        "input",
        "Input pipeline",
        "General",
        &["input_pipeline_analyzer"],
    ),
    (
        "ranks",
        "Ranks",
        "General",
        &["pod_viewer", "megascale_stats"],
    ),
    ("reports", "Reports", "General", &[]),
];

/// Parts of the interface that are not built yet: their addresses, and what they will be called.
const PLANNED: &[(&str, &str)] = &[
    ("hlo-memory", "HLO memory"),
    ("graph", "Graph"),
    ("roofline", "Roofline"),
    ("compare", "Compare"),
    ("sql", "SQL"),
];

/// What collectives are called in compiled programs.
const COLLECTIVES: &[&str] = &[
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    // What JAX calls them: instructions are named after its primitives.
    "psum",
    "psum_invariant",
    "ppermute",
];

/// Further names of tools for runs of Neuron devices: id, page, title, aliases.
const NEURON: &[(&str, &str, &str, &[&str])] = &[
    ("neuron-trace", "timeline", "Trace", &["trace"]),
    (
        "neuron-operators-framework",
        "ops",
        "Operators (framework)",
        &["operator-framework"],
    ),
    (
        "neuron-operators-hlo",
        "ops",
        "Operators (HLO)",
        &["operator-hlo"],
    ),
    (
        "neuron-timeline",
        "timeline",
        "Operator timeline",
        &["operator-timeline"],
    ),
];

/// All tools, in the order of the viewer's rail.
pub(crate) fn tools(view: &RunView) -> Vec<Tool> {
    let has = Contents::from_view(view);
    let tool = |id, page, title, group, aliases| {
        let (state, reason, hint) = match has.fill(page) {
            Fill::Ready => ("ready", None, None),
            Fill::Partly(reason) => ("partial", Some(reason), None),
            Fill::Not(reason, lack) => {
                let line = hint(&view.run.trace, lack);
                (
                    "unavailable",
                    Some(reason),
                    (!line.is_empty()).then_some(line),
                )
            }
        };
        Tool {
            id,
            page,
            title,
            group,
            aliases,
            state,
            reason,
            hint,
        }
    };
    let mut out: Vec<Tool> = TOOLS
        .iter()
        .map(|&(id, title, group, aliases)| tool(id, id, title, group, aliases))
        .collect();
    if view.run.kinds.iter().any(|kind| kind == "NEURON") {
        out.extend(
            NEURON
                .iter()
                .map(|&(id, page, title, aliases)| tool(id, page, title, "NEURON", aliases)),
        );
    }
    out
}

/// What a run holds, as far as it decides about tools.
#[derive(Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that some tool asks for"
)]
struct Contents {
    /// Events with times.
    drawn: bool,
    steps: bool,
    /// A device's queues with slices.
    queues: bool,
    /// Allocations, or counters of bytes.
    memory: bool,
    /// More than one process.
    ranks: bool,
    /// Collectives, be it among the devices of one process.
    collectives: bool,
    /// Sums that another profiler took.
    sums: bool,
    /// Slices of a framework or compiler, which are worth an overview.
    known_ops: bool,
    /// Slices of host threads.
    host: bool,
    /// Statistics of functions that know who called whom.
    callers: bool,
}

impl Contents {
    fn from_view(view: &RunView) -> Self {
        let trace = &*view.run.trace;
        let tracks = trace.tracks();
        let known = trace.find_names(&mut |name| {
            name.starts_with("aten::")
                || name.starts_with("ProfilerStep#")
                || name == "ThunkExecutor::Execute"
        });
        let memory = trace.find_names(&mut |name| {
            name == "[memory]" || name == "MemoryAllocation" || name == "MemoryDeallocation"
        });
        let together = trace.find_names(&mut |name| {
            let base = name.split('.').next().unwrap_or(name);
            COLLECTIVES.contains(&base)
                || communicates(name)
                || name.starts_with("gloo:")
                || name.starts_with("mpi:")
        });
        Self {
            drawn: tracks
                .iter()
                .any(|track| track.slices + track.instants + track.samples > 0),
            steps: !view.run.steps().steps.is_empty(),
            queues: tracks
                .iter()
                .any(|track| track.kind == TrackKind::DeviceQueue && track.slices > 0),
            memory: !memory.is_empty()
                || tracks.iter().any(|track| {
                    track.samples > 0
                        && matches!(track.unit.as_deref(), Some("bytes" | "B" | "byte"))
                }),
            ranks: trace.files().len() > 1,
            collectives: !together.is_empty(),
            sums: trace.profiles().next().is_some(),
            known_ops: !known.is_empty(),
            host: tracks
                .iter()
                .any(|track| track.kind == TrackKind::Thread && !track.derived && track.slices > 0),
            callers: !tree::statistics(trace).is_empty(),
        }
    }

    fn fill(self, page: &str) -> Fill {
        match page {
            "reports" => Fill::Ready,
            "ops" if self.sums => Fill::Ready,
            "calls" if self.host || self.callers => Fill::Ready,
            "calls" => Fill::Not(
                "not recorded: the run has no calls, labels or stacks of host threads",
                Lack::PythonFunctions,
            ),
            _ if !self.drawn => {
                Fill::Not("not recorded: the files have no timestamps", Lack::Times)
            }
            "overview" if !(self.steps || self.queues || self.known_ops) => {
                Fill::Partly("no steps, devices or operations are marked in this run")
            }
            "kernels" if !self.queues => Fill::Not(
                "not recorded: the run holds nothing that ran on a device",
                Lack::Kernels,
            ),
            "memory" if !self.memory => Fill::Not(
                "not recorded: the run holds no allocations and no counters of bytes",
                Lack::Memory,
            ),
            "ranks" if !self.ranks && self.collectives => {
                Fill::Partly("the run is of one process: its devices are compared, not ranks")
            }
            "ranks" if !self.ranks => Fill::Not(
                "the run is of one process, and its devices did not communicate: there is nothing to compare",
                Lack::Ranks,
            ),
            _ => Fill::Ready,
        }
    }
}

/// Title of a part that is not built yet, by the last part of its address.
pub(crate) fn coming_title(id: &str) -> Option<&'static str> {
    let planned = PLANNED.iter().find(|(known, _)| *known == id);
    planned.map(|(_, title)| *title)
}
