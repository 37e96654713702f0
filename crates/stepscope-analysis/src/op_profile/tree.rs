//! The operations as a tree, in XProf's order of levels.
//!
//! ```text
//! program     program > category > copies > operation > instructions of a fusion
//! category    category > copies > operation > ...
//! provenance  program > parts of the framework operation's path > category > copies > operation > ...
//! ```
//!
//! Copies are operations that the compiler found equal (`deduplicated_name`); a single one needs no level. Times are
//! self times, so each level adds up to the one above: XProf takes the time with nested operations at its lower
//! levels, and has no nodes for loops, branches and calls. The instructions of a fusion have no times.

use std::collections::BTreeMap;

use stepscope_formats::hlo::InstructionAt;
use stepscope_hlo::cost::InstructionWork;

use super::{Op, OpProfile};

/// The levels below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// By program.
    #[default]
    Program,
    /// By category, over all programs.
    Category,
    /// By program and path of the framework operation.
    Provenance,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// The whole run.
    Root,
    /// A program.
    Program,
    /// A part of the paths of framework operations.
    Scope,
    /// A category of operations.
    Category,
    /// Operations that the compiler found equal.
    Copies,
    /// An operation, as an index into [`OpProfile::ops`].
    Op(usize),
    /// An instruction of the fusion above it, at its position in the program.
    Instruction(InstructionAt),
    /// Time without operations.
    Idle,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it stands for.
    pub kind: NodeKind,
    /// Its name.
    pub name: String,
    /// Self time of its operations, picoseconds; that of the root contains the idle time. 0 for instructions of a
    /// fusion.
    pub time_ps: i128,
    /// The part of that time in operations whose work is unknown, picoseconds.
    pub unknown_ps: i128,
    /// Executions of its operations.
    pub executions: u64,
    /// What its operations did, as far as it is known.
    pub work: InstructionWork,
    /// Its parts: by time, the longest first; instructions of a fusion by floating-point operations.
    pub children: Vec<Self>,
}

/// Parts of a path below a program; a longer path ends there. Paths come from files.
const MAX_SCOPES: usize = 64;
/// Listed instructions of a fusion.
const MAX_INSTRUCTIONS: usize = 100;

impl OpProfile {
    /// Builds the tree.
    pub fn tree(&self, grouping: Grouping) -> Node {
        let mut root = Builder::default();
        for (at, op) in self.ops.iter().enumerate() {
            let mut path: Vec<(NodeKind, &str)> = Vec::new();
            if grouping != Grouping::Category {
                let program = op.row.program.as_deref().unwrap_or("");
                path.push((NodeKind::Program, program));
            }
            if grouping == Grouping::Provenance
                && let Some(instruction) = self.instruction(op)
            {
                let scopes = instruction.origin.op_name.split('/');
                let scopes = scopes.filter(|scope| !scope.is_empty()).take(MAX_SCOPES);
                path.extend(scopes.map(|scope| (NodeKind::Scope, scope)));
            }
            path.push((NodeKind::Category, &op.row.category));
            path.push((NodeKind::Copies, &op.original));
            root.add(&path, at);
        }
        let mut root = root.finish(self, NodeKind::Root, "");
        if let Some(idle_ps) = self.idle_ps.filter(|idle| *idle > 0) {
            root.time_ps += idle_ps;
            root.children.push(Node {
                time_ps: idle_ps,
                ..Node::new(NodeKind::Idle, "idle")
            });
            root.sort();
        }
        root
    }

    fn leaf(&self, at: usize) -> Node {
        let op = &self.ops[at];
        let mut node = Node {
            time_ps: op.row.self_ps,
            unknown_ps: if op.work.is_none() { op.row.self_ps } else { 0 },
            executions: op.row.executions,
            work: op.work.unwrap_or_default(),
            ..Node::new(NodeKind::Op(at), &op.row.name)
        };
        node.children = self.instructions(op);
        node
    }

    /// Lists the instructions of a fusion with what they do in all executions.
    fn instructions(&self, op: &Op) -> Vec<Node> {
        let Some((module, fused)) = self.fused(op) else {
            return Vec::new();
        };
        let mut found: Vec<Node> = fused
            .instructions
            .clone()
            .filter_map(|at| {
                let instruction = module.instruction(at);
                if matches!(&*instruction.opcode, "parameter" | "tuple") {
                    return None;
                }
                let once = self.once(op, at)?;
                let times = op.row.executions as f64;
                Some(Node {
                    executions: op.row.executions,
                    work: once.scaled(times),
                    ..Node::new(NodeKind::Instruction(at), &instruction.name)
                })
            })
            .collect();
        found.sort_by(|a, b| b.work.flops.total_cmp(&a.work.flops));
        found.truncate(MAX_INSTRUCTIONS);
        found
    }
}

impl Node {
    fn new(kind: NodeKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            time_ps: 0,
            unknown_ps: 0,
            executions: 0,
            work: InstructionWork::default(),
            children: Vec::new(),
        }
    }

    fn sort(&mut self) {
        self.children
            .sort_by(|a, b| (b.time_ps, &a.name).cmp(&(a.time_ps, &b.name)));
    }
}

/// A level while the operations are added.
#[derive(Default)]
struct Builder {
    below: BTreeMap<(u8, String), Builder>,
    ops: Vec<usize>,
}

/// Kinds of levels: those of one name are different nodes.
const LEVELS: [NodeKind; 4] = [
    NodeKind::Program,
    NodeKind::Scope,
    NodeKind::Category,
    NodeKind::Copies,
];

impl Builder {
    fn add(&mut self, path: &[(NodeKind, &str)], op: usize) {
        let mut level = self;
        for (kind, name) in path {
            let kind = (0_u8..).zip(LEVELS).find(|(_, known)| known == kind);
            let kind = kind.map_or(0, |(at, _)| at);
            level = level.below.entry((kind, (*name).to_owned())).or_default();
        }
        level.ops.push(op);
    }

    fn finish(self, profile: &OpProfile, kind: NodeKind, name: &str) -> Node {
        let mut node = Node::new(kind, name);
        let below = self.below.into_iter().map(|((level, name), builder)| {
            let kind = LEVELS[usize::from(level)];
            builder.finish(profile, kind, &name)
        });
        node.children.extend(below);
        let ops = self.ops.iter().map(|op| profile.leaf(*op));
        node.children.extend(ops);
        if kind == NodeKind::Copies
            && let Some(only) = node.children.pop_if(|_| self.ops.len() == 1)
        {
            return only;
        }
        for child in &node.children {
            node.time_ps += child.time_ps;
            node.unknown_ps += child.unknown_ps;
            node.executions += child.executions;
            node.work.add(&child.work, 1.0);
        }
        node.sort();
        node
    }
}
