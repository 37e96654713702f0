//! Execution traces of Chakra (`*.et`): the operators of a program, their durations and dependencies. See
//! `docs/formats/chakra.md`.
//!
//! Each node becomes a sample whose stack is the nodes around it. Files with start times have a timeline too.
//!
//! Reading order: `message`, then [`read`], `timeline`, `args`.

mod args;
mod message;
mod timeline;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgSource, Diagnostic, EventSink, ReadContext, SharedBytes};

use self::message::{Attribute, Messages, Node};
use crate::FormatError;
use crate::cprofile::truncated;
use crate::losses;
use crate::protobuf::wire::Fault;
use crate::sampling::{MAX_STACK, SampleTable, compact};

/// Number of nodes between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Maximum number of attributes of the metadata that become facts.
const MAX_FACTS: usize = 64;

/// The part of a node that others refer to.
#[derive(Clone, Copy)]
struct NodeHead {
    /// Offset of the length before its message.
    at: usize,
    parent: Option<u64>,
    is_host: Option<bool>,
    location: u32,
}

/// The nodes of a file in short, to resolve references between them.
struct Graph {
    heads: Vec<NodeHead>,
    by_id: FxHashMap<u64, usize>,
    /// Number of data dependencies of all nodes.
    data_dependencies: u64,
    has_durations: bool,
    /// The earliest start time above 0, microseconds; `None` without one.
    first_start_us: Option<u64>,
}

/// Counts of what was left out.
#[derive(Default)]
struct Losses {
    damaged: u64,
    unknown: u64,
    too_deep: u64,
    /// Control dependencies that no caller can have.
    impossible: u64,
    bad_times: u64,
    links: u64,
}

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the file has no node, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    let mut losses = Losses::default();
    let mut table = SampleTable::new(&[("operators", "count")], file.len());
    let (graph, fault) = collect(file, &mut table, &mut losses, context, sink)?;
    if graph.heads.is_empty() {
        return Err(FormatError::Malformed {
            reason: "no node is in the Chakra trace".to_owned(),
            offset: fault.map_or(file.len(), |(_, at)| at) as u64,
        });
    }
    if let Some((fault, at)) = fault {
        let what = match fault {
            Fault::Cut { .. } | Fault::Ends => Diagnostic::Truncated,
            _ => Diagnostic::Unreadable,
        };
        sink.diagnose(what, 1, &format!("{} at byte {at}", fault.text()));
    }
    let source = sink.source(arg_source(bytes));
    if graph.has_durations {
        table.add_type("duration", "microseconds");
        table.show_first(1);
    }
    add_samples(file, &graph, &mut table, &mut losses, context)?;
    losses.too_deep += table.stacks_left_out();
    sink.profile(table.finish());
    if let Some(first_us) = graph.first_start_us {
        timeline::emit(file, &graph, first_us, source, &mut losses, context, sink)?;
    }
    losses.diagnose(sink);
    context.advance(file.len() as u64)?;
    Ok(())
}

/// Returns the argument source of a file that has already been read. A token is the offset of a node's length.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(args::Source::new(bytes))
}

/// Reads the metadata into facts, and the nodes in short. Also returns the fault that ended the file early, and its
/// offset.
fn collect<S: EventSink>(
    file: &[u8],
    table: &mut SampleTable,
    losses: &mut Losses,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(Graph, Option<(Fault, usize)>), FormatError> {
    let mut graph = Graph {
        heads: Vec::new(),
        by_id: FxHashMap::default(),
        data_dependencies: 0,
        has_durations: false,
        first_start_us: None,
    };
    let mut messages = Messages::new(file);
    let mut fault = None;
    let mut number = 0_usize;
    loop {
        if number.is_multiple_of(LOOK_EVERY) {
            context.advance(0)?;
        }
        let at = messages.at();
        let message = match messages.next() {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(found) => {
                fault = Some((found, at));
                break;
            }
        };
        number += 1;
        // Some writers leave the metadata out, or write it empty.
        if at == 0 && emit_facts(message, sink) || message.is_empty() {
            continue;
        }
        let node = Node::read(message);
        losses.damaged += u64::from(node.is_damaged);
        if node.is_nothing() {
            losses.unknown += u64::from(!node.is_damaged);
            continue;
        }
        let index = graph.heads.len();
        graph.by_id.entry(node.id).or_insert(index);
        graph.heads.push(NodeHead {
            at,
            parent: node.parent,
            is_host: node.is_host,
            location: table.location(&String::from_utf8_lossy(node.name), "", 0, 0),
        });
        graph.data_dependencies += node.data_dependencies;
        graph.has_durations |= node.duration_us > 0;
        if node.start_us > 0 {
            let first = graph.first_start_us.unwrap_or(u64::MAX);
            graph.first_start_us = Some(first.min(node.start_us));
        }
    }
    if graph.data_dependencies > 0 {
        sink.fact(
            "chakra.data_dependencies",
            message::unsigned(graph.data_dependencies),
        );
    }
    Ok((graph, fault))
}

/// Emits the metadata as facts; returns whether the message is metadata.
fn emit_facts<S: EventSink>(message: &[u8], sink: &mut S) -> bool {
    let mut facts: Vec<Attribute<'_>> = Vec::new();
    let mut version = None;
    let is_metadata = message::metadata(message, &mut |text| version = Some(text), &mut |one| {
        if facts.len() < MAX_FACTS {
            facts.push(*one);
        }
    });
    // The version is a text with field number 1, where a node has a number.
    if !is_metadata {
        return false;
    }
    if let Some(version) = version {
        let version = truncated(&String::from_utf8_lossy(version));
        sink.fact("chakra.version", stepscope_model::ArgValue::Str(&version));
    }
    for fact in facts {
        let key = truncated(&format!("chakra.{}", String::from_utf8_lossy(fact.name)));
        if let Some(value) = fact.value {
            value.visit(&key, &mut |key, value| sink.fact(key, value));
        }
    }
    true
}

fn add_samples(
    file: &[u8],
    graph: &Graph,
    table: &mut SampleTable,
    losses: &mut Losses,
    context: &ReadContext,
) -> Result<(), FormatError> {
    let mut stack = Vec::new();
    // The last node whose stack each node is in: circles end at their first node.
    let mut seen = vec![usize::MAX; graph.heads.len()];
    for index in 0..graph.heads.len() {
        if index.is_multiple_of(LOOK_EVERY) {
            context.advance(0)?;
        }
        let Some(node) = graph.node(file, index) else {
            continue;
        };
        stack.clear();
        let mut around = Some(index);
        while let Some((at, head)) = around.and_then(|at| Some((at, graph.heads.get(at)?))) {
            if stack.len() == MAX_STACK {
                losses.too_deep += 1;
                break;
            }
            seen[at] = index;
            stack.push(head.location);
            around = graph.parent(at).filter(|parent| {
                // Converters that split operators leave dependencies on the ids of before. A kernel calls nothing.
                let caller = graph.heads.get(*parent).and_then(|parent| parent.is_host);
                let is_possible = seen.get(*parent) != Some(&index)
                    && (head.is_host, caller) != (Some(true), Some(false));
                losses.impossible += u64::from(!is_possible);
                is_possible
            });
        }
        let labels = labels_of(&node, table);
        let duration = i64::try_from(node.duration_us).unwrap_or(i64::MAX);
        let values = [1, duration];
        let types = if graph.has_durations { 2 } else { 1 };
        table.add(&stack, &values[..types], labels);
    }
    Ok(())
}

fn labels_of(node: &Node<'_>, table: &mut SampleTable) -> u32 {
    let number = |number: Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
    // Threads of the host have the stream 0.
    let stream = node.stream.filter(|_| node.is_host != Some(true));
    let (thread, stream) = (number(node.thread), number(stream));
    let bytes = node.communication_bytes.map(|bytes| bytes.to_string());
    let group = truncated(&String::from_utf8_lossy(node.process_group));
    let runs_on = match node.is_host {
        Some(true) => "host",
        Some(false) => "device",
        None => "",
    };
    let shapes = compact(node.inputs.shapes);
    let types = compact(node.inputs.types);
    table.labels(&[
        ("node type", node.role.name()),
        ("runs on", runs_on),
        ("thread", &thread),
        ("stream", &stream),
        ("collective", node.collective().map_or("", |op| op.as_str())),
        ("bytes", bytes.as_deref().unwrap_or_default()),
        ("process group", &group),
        ("input shapes", &shapes),
        ("input types", &types),
    ])
}

impl Graph {
    /// Returns the node around a node, if the file has it. A root may be its own.
    fn parent(&self, index: usize) -> Option<usize> {
        let parent = self.heads.get(index)?.parent?;
        let parent = self.by_id.get(&parent).copied();
        parent.filter(|parent| *parent != index)
    }

    /// Reads a node again.
    fn node<'a>(&self, file: &'a [u8], index: usize) -> Option<Node<'a>> {
        Some(Node::read(self.message(file, index)?))
    }

    fn message<'a>(&self, file: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let head = self.heads.get(index)?;
        let mut messages = Messages::starting_at(file, head.at);
        messages.next().ok().flatten()
    }
}

impl Losses {
    fn diagnose<S: EventSink>(&self, sink: &mut S) {
        let losses = [
            (
                Diagnostic::Unreadable,
                self.damaged,
                "nodes that end in unreadable bytes",
            ),
            (
                Diagnostic::UnknownEntry,
                self.unknown,
                "messages that are no nodes",
            ),
            (
                Diagnostic::LimitReached,
                self.too_deep,
                "nodes whose callers are not all shown: they nest too deeply",
            ),
            (
                Diagnostic::UnknownEntry,
                self.impossible,
                "steps from a node to its caller that lead back, or from the host into a device: the stack ends there",
            ),
            (Diagnostic::BadTime, self.bad_times, "nodes"),
            (
                Diagnostic::LimitReached,
                self.links,
                "data dependencies beyond the limit",
            ),
        ];
        losses::diagnose(sink, &losses);
    }
}
