//! Which tools the viewer offers for a run, and why one has nothing to show.
//!
//! Told from what is known without adding anything up: opening a run waits for no analysis. A tool
//! that turns out to be empty says so itself, with the reason its report gives.

use serde::Serialize;
use stepscope_analysis::calls::tree;
use stepscope_analysis::device::communicates;
use stepscope_model::TrackKind;

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
    /// Nothing: why, and the line that would record it; empty where none fits the run.
    Not(&'static str, &'static str),
    /// It is not built yet.
    Coming,
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
    ("hlo-memory", "HLO memory", "XLA", &["memory_viewer"]),
    ("graph", "Graph", "XLA", &["graph_viewer"]),
    (
        "input",
        "Input pipeline",
        "General",
        &["input_pipeline_analyzer"],
    ),
    ("roofline", "Roofline", "XLA", &["roofline_model"]),
    (
        "ranks",
        "Ranks",
        "General",
        &["pod_viewer", "megascale_stats"],
    ),
    ("compare", "Compare", "General", &[]),
    ("sql", "SQL", "General", &[]),
    ("reports", "Reports", "General", &[]),
];

/// Tools of the list above that are not built yet.
const COMING: &[&str] = &["hlo-memory", "graph", "roofline", "compare", "sql"];

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
    let has = Contents::of(view);
    let kinds = &view.run.kinds;
    let tool = |id, page, title, group, aliases| {
        let (state, reason, hint) = match has.fill(page, kinds) {
            Fill::Ready => ("ready", None, None),
            Fill::Partly(reason) => ("partial", Some(reason), None),
            Fill::Not(reason, hint) => (
                "unavailable",
                Some(reason),
                Some(hint).filter(|hint| !hint.is_empty()),
            ),
            Fill::Coming => ("unavailable", Some("coming"), None),
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
    fn of(view: &RunView) -> Self {
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

    fn fill(self, page: &str, kinds: &[String]) -> Fill {
        const NO_TIMES: &str = "not recorded: the run holds no events with times";
        const TIMES: &str = "stepscope.start_trace(\"logs\")  # before the loop, and stepscope.stop_trace() after it";
        let is = |kind: &str| kinds.iter().any(|known| known == kind);
        match page {
            page if COMING.contains(&page) => Fill::Coming,
            "reports" => Fill::Ready,
            "ops" if self.sums => Fill::Ready,
            "calls" if self.host || self.callers => Fill::Ready,
            "calls" => Fill::Not(
                "not recorded: the run holds no calls, labels or stacks of host threads",
                if is("PyTorch") {
                    "torch.profiler.profile(with_stack=True)"
                } else if is("JAX") {
                    "jax.profiler.start_trace(\"logs\")  # with ProfileOptions.python_tracer_level = 1"
                } else if is("Lightning") || is("Python") {
                    "cProfile.run(\"main()\", \"main.prof\")"
                } else {
                    ""
                },
            ),
            _ if !self.drawn => Fill::Not(NO_TIMES, TIMES),
            "overview" if !(self.steps || self.queues || self.known_ops) => {
                Fill::Partly("no steps, devices or operations are marked in this run")
            }
            "kernels" if !self.queues => Fill::Not(
                "not recorded: the run holds nothing that ran on a device",
                if is("JAX") {
                    "jax.profiler.start_trace(\"logs\")  # with JAX_PLATFORMS=cuda, rocm or tpu"
                } else {
                    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
                },
            ),
            "memory" if !self.memory => Fill::Not(
                "not recorded: the run holds no allocations and no counters of bytes",
                if is("JAX") || is("XLA") {
                    "stepscope.start_trace(\"logs\")  # XLA records its allocators on GPUs and TPUs by itself, on CPUs it has none"
                } else {
                    "torch.profiler.profile(profile_memory=True)"
                },
            ),
            "ranks" if !self.ranks && self.collectives => {
                Fill::Partly("the run is of one process: its devices are compared, not ranks")
            }
            "ranks" if !self.ranks => Fill::Not(
                "the run is of one process, and its devices did not communicate: there is nothing to compare",
                if is("JAX") {
                    "jax.profiler.start_trace(\"logs\")  # in every process, into one shared folder"
                } else if is("TensorFlow") {
                    "tf.profiler.experimental.start(\"logs\")  # in every worker, into one shared folder"
                } else {
                    "on_trace_ready=torch.profiler.tensorboard_trace_handler(\"logs\")  # in every rank, into one folder"
                },
            ),
            _ => Fill::Ready,
        }
    }
}

/// Title of a tool that is not built yet, by the last part of its address.
pub(crate) fn coming_title(id: &str) -> Option<&'static str> {
    TOOLS
        .iter()
        .find(|&&(known, ..)| known == id && COMING.contains(&known))
        .map(|&(_, title, ..)| title)
}
