//! The nodes and edges that are drawn of a selection.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_formats::hlo::{ComputationAt, InstructionAt, Module};

use super::{DataFlow, is_inlined};

/// Largest number of nodes that one group shows before the rest becomes a stub.
const MAX_CHILDREN: usize = 60;
/// Groups open by themselves while the graph has no more nodes than this.
const OPEN_BY_ITSELF: usize = 40;
/// Longest chain of results of open groups that an edge follows.
const MAX_CHAIN: usize = 64;

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The computation at the top.
    pub root: ComputationAt,
    /// The instructions to draw, most important first; `None` for all of the computation.
    pub only: Option<&'a [InstructionAt]>,
    /// Instructions with users that `only` leaves out because there are too many.
    pub without_users: &'a [InstructionAt],
    /// Whether instructions are grouped by the scopes of their `op_name`.
    pub by_scope: bool,
    /// Keys of the open groups; `None` opens small ones.
    pub open: Option<&'a [String]>,
    /// Largest number of nodes.
    pub limit: usize,
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawnNodeKind {
    /// One instruction; open, it shows the computation that it runs.
    Instruction(InstructionAt),
    /// The instructions of one scope of `op_name`.
    Scope,
    /// A computation of an instruction that runs several.
    Computation(ComputationAt),
    /// Nodes that are not drawn; opening it draws more of them.
    Stub,
}

/// A node of the drawing.
#[derive(Clone, Debug)]
pub struct VisibleNode {
    /// Text that names the node in [`Selection::open`].
    pub key: String,
    /// What it stands for.
    pub kind: DrawnNodeKind,
    /// Name of the instruction or the group.
    pub label: String,
    /// The open group that holds it.
    pub parent: Option<usize>,
    /// Whether it is drawn as a box around its nodes.
    pub is_open: bool,
    /// Whether it holds anything to open.
    pub can_open: bool,
    /// Number of instructions that it stands for.
    pub instructions: usize,
    /// Operands that are not drawn.
    pub hidden_operands: usize,
    /// Users that are not drawn.
    pub hidden_users: usize,
}

/// An edge between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeEnds {
    /// Position of the node whose value is taken.
    pub from: usize,
    /// Position of the node that takes it.
    pub to: usize,
    /// Number of values.
    pub values: usize,
}

/// The nodes and edges that are drawn.
#[derive(Clone, Debug, Default)]
pub struct VisibleGraph {
    /// The nodes; a group comes before its nodes.
    pub nodes: Vec<VisibleNode>,
    /// The edges, ordered by their ends.
    pub edges: Vec<EdgeEnds>,
    /// Whether the limit left nodes out.
    pub is_truncated: bool,
    /// Number of the selected instructions that have no node because of the limit.
    pub left_out: usize,
    node_of: FxHashMap<InstructionAt, usize>,
}

/// Something that a group shows as one node.
#[derive(Clone, Debug)]
enum Entry {
    Instruction(InstructionAt),
    Computation(ComputationAt),
    Scope {
        label: String,
        key: String,
        depth: usize,
        members: Vec<InstructionAt>,
    },
}

/// A group whose nodes are to be made.
struct Opened {
    node: Option<usize>,
    entries: Vec<Entry>,
    /// Key of the group, and the position of the first entry in it.
    key: String,
    first: usize,
}

/// Returns the scopes of an `op_name` without the operation itself, outermost first. A slash within
/// parentheses separates nothing.
fn scopes(op_name: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, letter) in op_name.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '/' if depth == 0 => {
                found.push(&op_name[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Makes the nodes of a selection.
struct Builder<'a> {
    module: &'a Module,
    flow: &'a DataFlow,
    selection: Selection<'a>,
    open: FxHashSet<&'a str>,
    only: Option<FxHashSet<InstructionAt>>,
    /// Instructions that run a computation with selected instructions.
    callers: FxHashSet<InstructionAt>,
    shown: FxHashSet<ComputationAt>,
    graph: VisibleGraph,
    waiting: VecDeque<Opened>,
}

impl VisibleGraph {
    /// Makes the nodes and edges of a selection.
    pub fn new(module: &Module, flow: &DataFlow, selection: Selection<'_>) -> Self {
        let mut builder = Builder::new(module, flow, selection);
        let root = builder.entries_of(selection.root, builder.only.is_some());
        builder.shown.insert(selection.root);
        builder.waiting.push_back(Opened {
            node: None,
            entries: root,
            key: String::new(),
            first: 0,
        });
        while let Some(opened) = builder.waiting.pop_front() {
            builder.fill(opened);
        }
        builder.connect();
        builder.graph
    }

    /// Returns the node that stands for an instruction.
    pub fn node_of(&self, at: InstructionAt) -> Option<usize> {
        self.node_of.get(&at).copied()
    }

    /// Returns every instruction with the node that stands for it, in the file's order.
    pub fn instructions(&self) -> Vec<(InstructionAt, usize)> {
        let mut found: Vec<(InstructionAt, usize)> =
            self.node_of.iter().map(|(at, node)| (*at, *node)).collect();
        found.sort_unstable();
        found
    }

    /// Returns whether a group holds a node, at any depth.
    pub(super) fn holds(&self, group: usize, node: usize) -> bool {
        let mut at = Some(node);
        while let Some(number) = at {
            at = self.nodes[number].parent;
            if at == Some(group) {
                return true;
            }
        }
        false
    }
}

impl<'a> Builder<'a> {
    fn new(module: &'a Module, flow: &'a DataFlow, selection: Selection<'a>) -> Self {
        let mut builder = Self {
            module,
            flow,
            selection,
            open: selection
                .open
                .unwrap_or_default()
                .iter()
                .map(String::as_str)
                .collect(),
            only: None,
            callers: FxHashSet::default(),
            shown: FxHashSet::default(),
            graph: VisibleGraph::default(),
            waiting: VecDeque::new(),
        };
        if let Some(only) = selection.only {
            // Groups and stubs need room too.
            let kept = &only[..only.len().min(selection.limit)];
            builder.graph.left_out = only.len() - kept.len();
            builder.graph.is_truncated = builder.graph.left_out > 0;
            let kept: FxHashSet<InstructionAt> = kept.iter().copied().collect();
            builder.callers = builder.callers_of(&kept);
            builder.only = Some(kept);
        }
        builder
    }

    /// Returns the callers between the root computation and selected instructions of other ones.
    fn callers_of(&self, selected: &FxHashSet<InstructionAt>) -> FxHashSet<InstructionAt> {
        let mut found = FxHashSet::default();
        let mut computations: Vec<ComputationAt> = selected
            .iter()
            .map(|at| self.module.instruction(*at).computation)
            .collect();
        computations.sort_unstable();
        computations.dedup();
        let mut seen: FxHashSet<ComputationAt> = computations.iter().copied().collect();
        while let Some(computation) = computations.pop() {
            if computation == self.selection.root {
                continue;
            }
            let callers = self.flow.callers(computation);
            let selected = callers.iter().find(|caller| selected.contains(caller));
            if let Some(caller) = selected.or(callers.first()) {
                found.insert(*caller);
                let outer = self.module.instruction(*caller).computation;
                if seen.insert(outer) {
                    computations.push(outer);
                }
            }
        }
        found
    }

    /// Returns the nodes of a computation; of a filtered one the selected instructions alone.
    fn entries_of(&self, computation: ComputationAt, is_filtered: bool) -> Vec<Entry> {
        let found = self.module.computation(computation);
        let only = self.only.as_ref().filter(|_| is_filtered);
        let important = self.selection.only.and_then(|only| only.first()).copied();
        let members: Vec<InstructionAt> = found
            .instructions
            .clone()
            .filter(|at| only.is_none_or(|only| only.contains(at) || self.callers.contains(at)))
            .filter(|at| Some(*at) == important || !is_inlined(self.module, self.flow, *at))
            .collect();
        if !self.selection.by_scope || is_filtered {
            return members.into_iter().map(Entry::Instruction).collect();
        }
        let named = members
            .iter()
            .filter(|at| !self.module.instruction(**at).origin.op_name.is_empty());
        let depth = self.common_depth(named.copied());
        self.by_scope(&members, depth, &found.name)
    }

    fn scopes(&self, at: InstructionAt) -> Vec<&'a str> {
        scopes(&self.module.instruction(at).origin.op_name)
    }

    /// Returns how many scopes instructions have in common.
    fn common_depth(&self, members: impl Iterator<Item = InstructionAt>) -> usize {
        let mut common: Option<Vec<&str>> = None;
        for at in members {
            let scopes = self.scopes(at);
            let shared = common.as_ref().map_or(scopes.len(), |common| {
                let pairs = common.iter().zip(&scopes);
                pairs.take_while(|(left, right)| left == right).count()
            });
            common.get_or_insert(scopes).truncate(shared);
        }
        common.map_or(0, |common| common.len())
    }

    /// Groups instructions by the scope at a depth, in the order of the first instruction of each.
    fn by_scope(&self, members: &[InstructionAt], depth: usize, computation: &str) -> Vec<Entry> {
        let mut groups: Vec<(Option<&str>, Vec<InstructionAt>)> = Vec::new();
        let mut group_of: FxHashMap<&str, usize> = FxHashMap::default();
        for at in members {
            match self.scopes(*at).get(depth) {
                None => groups.push((None, vec![*at])),
                Some(scope) => {
                    let group = *group_of.entry(scope).or_insert(groups.len());
                    if group == groups.len() {
                        groups.push((Some(scope), Vec::new()));
                    }
                    groups[group].1.push(*at);
                }
            }
        }
        let entries = groups.into_iter().map(|(scope, members)| {
            let first = members[0];
            if scope.is_none() || members.len() == 1 {
                return Entry::Instruction(first);
            }
            // Scopes that hold nothing but one scope are one group.
            let inner = self.common_depth(members.iter().copied()).max(depth + 1);
            let path = self.scopes(first);
            let end = inner.min(path.len());
            Entry::Scope {
                label: path[depth..end].join("/"),
                key: format!("scope:{computation}:{}", path[..end].join("/")),
                depth: end,
                members,
            }
        });
        entries.collect()
    }

    fn is_open(&self, key: &str, entries: usize) -> bool {
        match self.selection.open {
            Some(_) => self.open.contains(key),
            None => {
                self.selection.only.is_none() && self.graph.nodes.len() + entries <= OPEN_BY_ITSELF
            }
        }
    }

    /// Makes the nodes of a group, as far as the limit allows, and a stub for the others.
    fn fill(&mut self, opened: Opened) {
        let Opened {
            node,
            mut entries,
            key,
            first,
        } = opened;
        let room = self.selection.limit.saturating_sub(self.graph.nodes.len());
        let is_filtered = self.only.is_some() && node.is_none();
        let most = if is_filtered {
            usize::MAX
        } else {
            MAX_CHILDREN
        };
        let shown = if entries.len() <= most.min(room) {
            entries.len()
        } else {
            most.min(room.saturating_sub(1))
        };
        let rest = entries.split_off(shown);
        for entry in entries {
            self.add(entry, node);
        }
        if !rest.is_empty() {
            self.add_stub(rest, node, &key, first + shown);
        }
    }

    fn push(&mut self, node: VisibleNode) -> usize {
        self.graph.nodes.push(node);
        self.graph.nodes.len() - 1
    }

    fn add(&mut self, entry: Entry, parent: Option<usize>) {
        match entry {
            Entry::Instruction(at) => self.add_instruction(at, parent),
            Entry::Computation(at) => {
                let computation = self.module.computation(at);
                let key = format!("computation:{}", computation.name);
                let entries = self.entries_of(at, false);
                let is_new = self.shown.insert(at);
                let number = self.push(VisibleNode {
                    is_open: is_new && self.is_open(&key, entries.len()),
                    can_open: is_new && !entries.is_empty(),
                    instructions: computation.instructions.len(),
                    kind: DrawnNodeKind::Computation(at),
                    label: computation.name.to_string(),
                    hidden_operands: 0,
                    hidden_users: 0,
                    key,
                    parent,
                });
                self.enqueue(number, entries);
            }
            Entry::Scope {
                label,
                key,
                depth,
                members,
            } => {
                let first = self.module.instruction(members[0]).computation;
                let name = self.module.computation(first).name.clone();
                let entries = self.by_scope(&members, depth, &name);
                let is_open = self.is_open(&key, entries.len());
                let number = self.push(VisibleNode {
                    is_open,
                    can_open: true,
                    instructions: members.len(),
                    kind: DrawnNodeKind::Scope,
                    label,
                    hidden_operands: 0,
                    hidden_users: 0,
                    key,
                    parent,
                });
                for at in members {
                    self.graph.node_of.insert(at, number);
                }
                self.enqueue(number, entries);
            }
        }
    }

    fn add_instruction(&mut self, at: InstructionAt, parent: Option<usize>) {
        let instruction = self.module.instruction(at);
        let key = format!("op:{}", instruction.name);
        let holds_selected = self.callers.contains(&at);
        let runs = matches!(
            &*instruction.opcode,
            "fusion" | "while" | "conditional" | "call" | "async-start"
        );
        let called: Vec<ComputationAt> = instruction
            .called
            .iter()
            .filter(|called| runs && !self.shown.contains(called))
            .copied()
            .collect();
        let can_open = !called.is_empty();
        let is_asked = self.selection.open.is_some() && self.open.contains(key.as_str());
        let is_open = can_open && (is_asked || holds_selected);
        let inside: usize = called
            .iter()
            .map(|called| self.module.computation(*called).instructions.len())
            .sum();
        let number = self.push(VisibleNode {
            is_open,
            can_open,
            instructions: 1 + inside,
            kind: DrawnNodeKind::Instruction(at),
            label: instruction.name.to_string(),
            hidden_operands: 0,
            hidden_users: 0,
            key,
            parent,
        });
        self.graph.node_of.insert(at, number);
        if !is_open {
            return;
        }
        let entries = match called[..] {
            [only] => {
                self.shown.insert(only);
                self.entries_of(only, !is_asked)
            }
            _ => called.into_iter().map(Entry::Computation).collect(),
        };
        self.enqueue(number, entries);
    }

    /// Lets the nodes of an open group be made, unless the limit leaves no room for them.
    fn enqueue(&mut self, number: usize, entries: Vec<Entry>) {
        let node = &mut self.graph.nodes[number];
        if !node.is_open {
            return;
        }
        if entries.is_empty() || number + 1 >= self.selection.limit {
            node.is_open = false;
            return;
        }
        let key = node.key.clone();
        self.waiting.push_back(Opened {
            node: Some(number),
            entries,
            key,
            first: 0,
        });
    }

    fn add_stub(&mut self, rest: Vec<Entry>, parent: Option<usize>, group: &str, first: usize) {
        if self.graph.nodes.len() >= self.selection.limit {
            // A group that got no node at all is drawn closed.
            if let Some(parent) = parent
                && !self
                    .graph
                    .nodes
                    .iter()
                    .any(|node| node.parent == Some(parent))
            {
                self.graph.nodes[parent].is_open = false;
            }
            self.graph.is_truncated = true;
            return;
        }
        let key = format!("more:{group}:{first}");
        let members: Vec<InstructionAt> = rest
            .iter()
            .flat_map(|entry| match entry {
                Entry::Instruction(at) => vec![*at],
                Entry::Scope { members, .. } => members.clone(),
                Entry::Computation(_) => Vec::new(),
            })
            .collect();
        self.graph.is_truncated = true;
        if self.selection.open.is_some() && self.open.contains(key.as_str()) {
            self.waiting.push_back(Opened {
                node: parent,
                entries: rest,
                key: group.to_owned(),
                first,
            });
            return;
        }
        let number = self.push(VisibleNode {
            is_open: false,
            can_open: true,
            instructions: members.len(),
            kind: DrawnNodeKind::Stub,
            label: format!("{} more", rest.len()),
            hidden_operands: 0,
            hidden_users: 0,
            key,
            parent,
        });
        for at in members {
            self.graph.node_of.insert(at, number);
        }
    }

    /// Returns the node from which a value comes: in an open group, that of the group's result.
    fn source(&self, mut at: InstructionAt) -> Option<usize> {
        for _ in 0..MAX_CHAIN {
            let instruction = self.module.instruction(at);
            let Some(number) = self.graph.node_of(at) else {
                if &*instruction.opcode != "get-tuple-element" {
                    return None;
                }
                at = *instruction.operands.first()?;
                continue;
            };
            let root = match *instruction.called {
                [only] if self.graph.nodes[number].is_open => self.module.computation(only).root,
                _ => None,
            };
            match root {
                Some(root) if self.graph.node_of(root).is_some_and(|node| node != number) => {
                    at = root;
                }
                _ => return Some(number),
            }
        }
        None
    }

    /// Returns the node that takes an operand: in an open group, that of the parameter.
    fn sink(&self, user: InstructionAt, operand: usize) -> Option<usize> {
        let number = self.graph.node_of(user)?;
        let instruction = self.module.instruction(user);
        let is_open = self.graph.nodes[number].is_open
            && self.graph.nodes[number].kind == DrawnNodeKind::Instruction(user);
        let ([only], "fusion" | "call", true) =
            (&*instruction.called, &*instruction.opcode, is_open)
        else {
            return Some(number);
        };
        let mut inside = self.module.computation(*only).instructions.clone();
        let parameter = inside.find(|at| {
            let found = self.module.instruction(*at);
            &*found.opcode == "parameter" && usize::try_from(found.parameter_number) == Ok(operand)
        });
        parameter
            .and_then(|at| self.graph.node_of(at))
            .or(Some(number))
    }

    fn connect(&mut self) {
        let mut edges: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (at, number) in self.graph.instructions() {
            let operands = &self.module.instruction(at).operands;
            for (index, operand) in operands.iter().enumerate() {
                let Some(from) = self.source(*operand) else {
                    let is_constant = &*self.module.instruction(*operand).opcode == "constant";
                    self.graph.nodes[number].hidden_operands += usize::from(!is_constant);
                    continue;
                };
                let Some(to) = self.sink(at, index) else {
                    continue;
                };
                let is_inside = self.graph.holds(from, to) || self.graph.holds(to, from);
                if from != to && !is_inside {
                    *edges.entry((from, to)).or_default() += 1;
                }
            }
            let hidden = self.hidden_users(at);
            self.graph.nodes[number].hidden_users += hidden;
        }
        for at in self.selection.without_users {
            let Some(from) = self.graph.node_of(*at) else {
                continue;
            };
            let node = &self.graph.nodes[from];
            if node.hidden_users == 0 || self.graph.nodes.len() >= self.selection.limit {
                continue;
            }
            let to = self.push(VisibleNode {
                key: format!("users:{}", node.label),
                kind: DrawnNodeKind::Stub,
                label: format!("{} users", node.hidden_users),
                parent: node.parent,
                is_open: false,
                can_open: true,
                instructions: node.hidden_users,
                hidden_operands: 0,
                hidden_users: 0,
            });
            edges.insert((from, to), self.graph.nodes[to].instructions);
            self.graph.is_truncated = true;
        }
        self.graph.edges = edges
            .into_iter()
            .map(|((from, to), values)| EdgeEnds { from, to, values })
            .collect();
    }

    fn hidden_users(&self, at: InstructionAt) -> usize {
        let is_drawn = |user: &InstructionAt| self.graph.node_of(*user).is_some();
        // Elements of a tuple are written into their users.
        let is_inside = |user: &InstructionAt| {
            &*self.module.instruction(*user).opcode == "get-tuple-element"
                && self.flow.users(*user).iter().any(is_drawn)
        };
        let users = self.flow.users(at).iter();
        users
            .filter(|user| !(is_drawn(user) || is_inside(user)))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::scopes;

    #[test]
    fn slashes_within_parentheses_do_not_end_a_scope() {
        assert_eq!(
            scopes("jit(f)/transpose(jvp(a/b))/dot_general"),
            ["jit(f)", "transpose(jvp(a/b))"]
        );
        assert_eq!(scopes("add"), Vec::<&str>::new());
    }
}
