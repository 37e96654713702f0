//! The graph of a compiled program: its nodes with positions, and its edges with lines.

pub(super) mod files;
pub(super) mod op;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use rustc_hash::FxHashMap;
use serde::Serialize;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs::{self, ProgramKey, RunProgram};
use stepscope_formats::hlo::{ComputationAt, InstructionAt};
use stepscope_hlo::cost::{Analysis, Rules};
use stepscope_hlo::graph::{
    DrawnNodeKind, GraphLayout, NodeClass, Selection, VisibleGraph, neighbourhood, path,
};
use stepscope_hlo::memory::MAIN_SPACE;

use crate::ns::Ns;
use crate::op_times::{OpTime, OpTimes, OpTimesCache};
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::state::State;
use crate::view::RunView;

/// Maximum and default number of nodes.
const MAX_NODES: usize = 300;
/// Default number of hops.
const DEFAULT_HOPS: u32 = 2;
const MAX_HOPS: u32 = 8;
/// Value of `open` for no open group.
const NOTHING_OPEN: &str = "none";

#[derive(Serialize)]
struct ModulesAnswer {
    modules: Vec<ModuleAnswer>,
}

#[derive(Serialize)]
struct ModuleAnswer {
    module: String,
    name: String,
    program_id: String,
    message_bytes: usize,
}

/// `GET /runs/{run}/graph/modules`
pub(super) async fn modules(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, |view, _params, cancel| {
        let listed = programs::list(&view.run.trace, cancel)?;
        let modules = listed.into_iter().map(|(key, message_bytes)| ModuleAnswer {
            module: key.to_string(),
            name: key.name.to_string(),
            program_id: key.id.to_string(),
            message_bytes,
        });
        Ok(Json(ModulesAnswer {
            modules: modules.collect(),
        }))
    })
    .await
}

/// What the page draws of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The operations around one.
    Around,
    /// The way of a value between two operations.
    Path,
    /// A whole computation, grouped by scopes.
    Computation,
}

const EXTENTS: [(&str, Extent); 2] = [
    ("around", Extent::Around),
    ("computation", Extent::Computation),
];

/// A program of the run, with the measured times of its operations.
pub(super) struct TimedProgram {
    program: Arc<RunProgram>,
    name: String,
    times: Arc<OpTimes>,
    /// Bytes alive at the peak of the default memory space, by the instruction that defines them.
    peak_bytes: FxHashMap<InstructionAt, u64>,
}

impl TimedProgram {
    /// Returns the program that the parameter `module` names; without it, the one whose operations take most
    /// time, else the one with the largest message.
    fn new(
        cache: &OpTimesCache,
        view: &RunView,
        params: &Params,
        cancel: &Cancel,
    ) -> Result<Self, Problem> {
        let listed = programs::list(&view.run.trace, cancel)?;
        let times = cache.times(&view.run, cancel)?;
        let key = match params.text("module") {
            Some(text) => listed.keys().find(|key| key.is_named(text)),
            None => costliest_program(&listed, &times),
        };
        let key = key.ok_or_else(|| match params.text("module") {
            Some(text) => {
                let detail = format!("the run has no compiled program {text}");
                Problem::bad_request("module", detail)
            }
            None => Problem::bad_request("module", "the run has no compiled programs"),
        })?;
        let read = programs::read(&view.run.trace, cancel, |known| known == key)?;
        let program = read.into_iter().next().ok_or_else(|| {
            Problem::bad_request("module", format!("the program {key} is not readable"))
        })?;
        program.prepare_graph()?;
        Ok(Self {
            name: program.key.to_string(),
            peak_bytes: peak_bytes(&program),
            program,
            times,
        })
    }

    fn costs(&self) -> &Analysis {
        self.program.costs(Rules::Base)
    }

    fn time(&self, at: InstructionAt) -> Option<OpTime> {
        let name = &self.program.module.instruction(at).name;
        self.times.get(&self.name)?.get(&**name).copied()
    }

    /// Returns the instruction that a parameter names.
    fn instruction(&self, params: &Params, name: &str) -> Result<Option<InstructionAt>, Problem> {
        let Some(text) = params.text(name) else {
            return Ok(None);
        };
        let found = (0..).zip(&self.program.module.instructions);
        let mut found = found.filter(|(_, instruction)| &*instruction.name == text);
        let at = found.next().map(|(at, _)| at).ok_or_else(|| {
            let detail = format!("{} has no operation {text}", self.name);
            Problem::bad_request(name, detail)
        })?;
        Ok(Some(at))
    }

    /// Returns the operation with the largest self time, else with the largest model cost. Loops and calls
    /// count as what is inside of them.
    fn costliest(&self) -> Option<InstructionAt> {
        let module = &self.program.module;
        let times = self.times.get(&self.name);
        let candidates = (0..).zip(&module.instructions).filter(|(_, instruction)| {
            !module.computation(instruction.computation).is_fusion
                && !matches!(&*instruction.opcode, "while" | "conditional" | "call")
        });
        let cost = |(at, name): (InstructionAt, &str)| {
            let time = times
                .and_then(|times| times.get(name))
                .map(|time| time.self_ps);
            let work = self.costs().instructions[at as usize].with_loops;
            (time.unwrap_or(0), work.flops, work.bytes)
        };
        let best = candidates.min_by(|(left, one), (right, other)| {
            let (left, right) = (cost((*left, &one.name)), cost((*right, &other.name)));
            let order = right.0.cmp(&left.0);
            order
                .then(right.1.total_cmp(&left.1))
                .then(right.2.total_cmp(&left.2))
        });
        best.map(|(at, _)| at)
    }
}

/// Returns the bytes that are alive at the peak of the default memory space, by the instruction that defines them.
fn peak_bytes(program: &RunProgram) -> FxHashMap<InstructionAt, u64> {
    let mut found: FxHashMap<InstructionAt, u64> = FxHashMap::default();
    let spaces = program.plan().into_iter().flat_map(|plan| &plan.spaces);
    for space in spaces.filter(|space| space.number == MAIN_SPACE) {
        for alive in space.live.alive_at(space.live.peak_position) {
            if let Some(at) = alive.instruction {
                let bytes = found.entry(at).or_default();
                *bytes = bytes.saturating_add(alive.bytes);
            }
        }
    }
    found
}

fn costliest_program<'a>(
    listed: &'a std::collections::BTreeMap<ProgramKey, usize>,
    times: &OpTimes,
) -> Option<&'a ProgramKey> {
    let cost = |key: &ProgramKey, bytes: usize| {
        let times = times.get(&key.to_string());
        let sum: i128 = times.map_or(0, |times| times.values().map(|time| time.self_ps).sum());
        (sum, bytes)
    };
    let best = listed
        .iter()
        .min_by_key(|(key, bytes)| std::cmp::Reverse(cost(key, **bytes)));
    best.map(|(key, _)| key)
}

/// What a request asks to draw, and the graph of it.
pub(super) struct DrawnGraph {
    extent: Extent,
    centre: Option<InstructionAt>,
    computation: ComputationAt,
    hops: u32,
    path: Option<Vec<InstructionAt>>,
    graph: VisibleGraph,
    details: Vec<String>,
    drawing: GraphLayout,
}

impl DrawnGraph {
    fn new(timed: &TimedProgram, params: &Params) -> Result<Self, Problem> {
        let (module, flow) = (&timed.program.module, timed.program.flow());
        let limit = params.number("limit", MAX_NODES, 1..=MAX_NODES)?;
        let hops = params.number("hops", DEFAULT_HOPS, 0..=MAX_HOPS)?;
        let fusions = params.choice("fusions", &[("closed", false), ("open", true)])?;
        let mut extent = params.choice("extent", &EXTENTS)?;
        let centre = timed.instruction(params, "node")?;
        let to = timed.instruction(params, "to")?;
        let open: Option<Vec<String>> = params
            .text("open")
            .map(|text| text.split('\n').filter(|key| *key != NOTHING_OPEN))
            .map(|keys| keys.map(str::to_owned).collect());
        let centre = match extent {
            Extent::Computation => centre,
            _ => centre.or_else(|| timed.costliest()),
        };
        let computation = match (params.text("computation"), centre) {
            (Some(text), _) => {
                let mut found = (0..).zip(&module.computations);
                let found = found.find(|(_, computation)| &*computation.name == text);
                found.map(|(at, _)| at).ok_or_else(|| {
                    Problem::bad_request("computation", format!("no computation {text}"))
                })?
            }
            (None, Some(centre)) if extent != Extent::Computation => {
                module.instruction(centre).computation
            }
            _ => module.entry.ok_or_else(|| {
                Problem::bad_request("module", format!("{} has no operations", timed.name))
            })?,
        };
        let mut found = None;
        let mut without_users = Vec::new();
        let mut root = computation;
        let mut way = None;
        if let (Some(centre), Extent::Around) = (centre, extent) {
            if let Some(to) = to {
                extent = Extent::Path;
                let steps =
                    path(module, flow, centre, to).or_else(|| path(module, flow, to, centre));
                let steps = steps.unwrap_or_else(|| vec![centre, to]);
                root = common_computation(timed, &steps);
                found = Some(steps.clone());
                way = (steps.len() > 2 || module.instruction(to).operands.contains(&centre))
                    .then_some(steps);
            } else {
                let all_users = fanned_out(timed, open.as_deref().unwrap_or_default());
                let around = neighbourhood(module, flow, centre, hops, &all_users);
                let is_drawn = |at: &InstructionAt| {
                    let inside = module.instruction(*at).computation;
                    inside == computation || fusions && module.computation(inside).is_fusion
                };
                without_users = around.without_users;
                let around = around.instructions.into_iter().filter(is_drawn);
                found = Some(around.collect());
            }
        }
        let graph = VisibleGraph::new(
            module,
            flow,
            Selection {
                root,
                only: found.as_deref(),
                without_users: &without_users,
                by_scope: true,
                open: open.as_deref(),
                limit,
            },
        );
        let details: Vec<String> = graph
            .nodes
            .iter()
            .map(|node| match node.kind {
                DrawnNodeKind::Instruction(at) => {
                    let instruction = module.instruction(at);
                    let shape = instruction.shape.without_layout();
                    shortened(format!("{} {shape}", instruction.opcode))
                }
                DrawnNodeKind::Scope | DrawnNodeKind::Computation(_) => {
                    format!("{} operations", node.instructions)
                }
                DrawnNodeKind::Stub => String::new(),
            })
            .collect();
        let drawing = GraphLayout::new(&graph, &details);
        Ok(Self {
            extent,
            centre,
            computation: root,
            hops,
            path: way,
            graph,
            details,
            drawing,
        })
    }
}

/// Shortens the text of a large tuple.
fn shortened(text: String) -> String {
    const MOST: usize = 64;
    match text.char_indices().nth(MOST) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Returns the instructions whose many users are asked for, by the keys of their stubs.
fn fanned_out(timed: &TimedProgram, open: &[String]) -> Vec<InstructionAt> {
    let names: Vec<&str> = open
        .iter()
        .filter_map(|key| key.strip_prefix("users:"))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let all = (0..).zip(&timed.program.module.instructions);
    all.filter(|(_, instruction)| names.contains(&&*instruction.name))
        .map(|(at, _)| at)
        .collect()
}

/// Returns the innermost computation that runs all of some instructions.
fn common_computation(timed: &TimedProgram, steps: &[InstructionAt]) -> ComputationAt {
    let (module, flow) = (&timed.program.module, timed.program.flow());
    let chain = |at: InstructionAt| {
        let mut found = vec![module.instruction(at).computation];
        while let Some(caller) = found.last().and_then(|at| flow.callers(*at).first()) {
            let outer = module.instruction(*caller).computation;
            if found.contains(&outer) {
                break;
            }
            found.push(outer);
        }
        found
    };
    let mut chains = steps.iter().map(|at| chain(*at));
    let first = chains.next().unwrap_or_default();
    let others: Vec<Vec<ComputationAt>> = chains.collect();
    let mut common = first.iter().copied();
    common
        .find(|at| others.iter().all(|chain| chain.contains(at)))
        .or(module.entry)
        .unwrap_or(0)
}

#[derive(Serialize)]
struct GraphAnswer {
    module: String,
    program_id: String,
    extent: &'static str,
    centre: Option<String>,
    computation: String,
    hops: u32,
    instructions: usize,
    has_times: bool,
    has_memory: bool,
    truncated: bool,
    left_out: usize,
    /// Operations on the way of the value, where one was asked for and found.
    path: Option<Vec<String>>,
    width: f64,
    height: f64,
    nodes: Vec<NodeAnswer>,
    edges: Vec<EdgeAnswer>,
}

#[derive(Serialize)]
struct NodeAnswer {
    key: String,
    kind: &'static str,
    /// Class of the operation.
    class: &'static str,
    label: String,
    detail: String,
    parent: Option<usize>,
    open: bool,
    can_open: bool,
    instructions: usize,
    hidden_operands: usize,
    hidden_users: usize,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    self_ns: Option<Ns>,
    flops: f64,
    bytes_accessed: f64,
    peak_bytes: u64,
}

#[derive(Serialize)]
struct EdgeAnswer {
    from: usize,
    to: usize,
    values: usize,
    points: Vec<(f64, f64)>,
}

/// Figures of all instructions that one node stands for.
#[derive(Clone, Copy, Default)]
struct NodeSums {
    self_ps: Option<i128>,
    flops: f64,
    bytes: f64,
    peak_bytes: u64,
}

/// `GET /runs/{run}/graph`
pub(super) async fn graph(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let cache = Arc::clone(&state.op_times);
    about_run(&state, request, move |view, params, cancel| {
        let timed = TimedProgram::new(&cache, view, params, cancel)?;
        let drawn = DrawnGraph::new(&timed, params)?;
        Ok(Json(answer(&timed, drawn)))
    })
    .await
}

fn sums(timed: &TimedProgram, graph: &VisibleGraph) -> FxHashMap<usize, NodeSums> {
    let mut found: FxHashMap<usize, NodeSums> = FxHashMap::default();
    for (at, node) in graph.instructions() {
        let sums = found.entry(node).or_default();
        if let Some(time) = timed.time(at) {
            *sums.self_ps.get_or_insert(0) += time.self_ps;
        }
        let cost = &timed.costs().instructions[at as usize];
        if !cost.is_unknown {
            sums.flops += cost.with_loops.flops;
            sums.bytes += cost.with_loops.bytes;
        }
        let bytes = timed.peak_bytes.get(&at).copied();
        sums.peak_bytes = sums.peak_bytes.saturating_add(bytes.unwrap_or(0));
    }
    found
}

fn answer(timed: &TimedProgram, drawn: DrawnGraph) -> GraphAnswer {
    let module = &timed.program.module;
    let name = |at: InstructionAt| module.instruction(at).name.to_string();
    let sums = sums(timed, &drawn.graph);
    let DrawnGraph {
        graph,
        drawing,
        details,
        ..
    } = drawn;
    let nodes = graph.nodes.into_iter().zip(details).enumerate();
    let nodes = nodes.map(|(number, (node, detail))| {
        let rect = drawing.nodes[number];
        let sums = sums.get(&number).copied().unwrap_or_default();
        let (kind, class) = match node.kind {
            DrawnNodeKind::Instruction(at) => {
                ("instruction", NodeClass::new(module.instruction(at)).name())
            }
            DrawnNodeKind::Scope => ("scope", "group"),
            DrawnNodeKind::Computation(_) => ("computation", "group"),
            DrawnNodeKind::Stub => ("stub", "group"),
        };
        NodeAnswer {
            key: node.key,
            kind,
            class,
            label: node.label,
            detail,
            parent: node.parent,
            open: node.is_open,
            can_open: node.can_open,
            instructions: node.instructions,
            hidden_operands: node.hidden_operands,
            hidden_users: node.hidden_users,
            x: rect.x,
            y: rect.y,
            width: rect.width,
            height: rect.height,
            self_ns: sums.self_ps.map(Ns::from_ps),
            flops: sums.flops,
            bytes_accessed: sums.bytes,
            peak_bytes: sums.peak_bytes,
        }
    });
    let nodes = nodes.collect();
    let edges = graph.edges.iter().zip(drawing.edges);
    GraphAnswer {
        module: timed.name.clone(),
        program_id: timed.program.key.id.to_string(),
        extent: match drawn.extent {
            Extent::Around => "around",
            Extent::Path => "path",
            Extent::Computation => "computation",
        },
        centre: drawn.centre.map(name),
        computation: module.computation(drawn.computation).name.to_string(),
        hops: drawn.hops,
        instructions: module.instructions.len(),
        has_times: timed.times.contains_key(&timed.name),
        has_memory: !timed.peak_bytes.is_empty(),
        truncated: graph.is_truncated,
        left_out: graph.left_out,
        path: drawn
            .path
            .map(|steps| steps.into_iter().map(name).collect()),
        width: drawing.width,
        height: drawing.height,
        nodes,
        edges: edges
            .map(|(edge, points)| EdgeAnswer {
                from: edge.from,
                to: edge.to,
                values: edge.values,
                points,
            })
            .collect(),
    }
}
