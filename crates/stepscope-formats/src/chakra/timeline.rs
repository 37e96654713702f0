//! The timeline of a file with start times: a row per thread of the host and per stream of a device.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::collective::communicates;
use stepscope_model::{
    ArgRef, Dur, Epoch, EventSink, FlowDirection, FlowKey, NameId, ReadContext, SliceFlow, SliceIn,
    SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use super::message::{Node, NodeType, data_dependencies};
use super::{Graph, LOOK_EVERY, Losses};
use crate::FormatError;
use crate::cprofile::truncated;

/// Maximum number of data dependencies that are drawn.
const MAX_LINKS: usize = 1 << 22;
const PS_PER_US: u64 = 1_000_000;
/// A start time of 0 is a time if the others are at most this far from it, microseconds (one day). The schema has no
/// other way to say that a node has no start time.
const NEAR_ZERO_US: u64 = 86_400_000_000;

/// The row of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Thread(i64),
    Stream(i64),
    /// Work of a device whose stream is not in the file.
    Compute,
    Communication,
    Memory,
}

impl Row {
    fn from_node(node: &Node<'_>) -> Self {
        match (node.is_host, node.stream, node.thread) {
            (Some(true), _, thread) => Self::Thread(thread.unwrap_or(0)),
            // Kineto's threads of a device are its streams.
            (_, Some(stream), _) | (Some(false), None, Some(stream)) => Self::Stream(stream),
            _ if node.role.is_communication() => Self::Communication,
            _ if node.role.is_memory() => Self::Memory,
            _ => Self::Compute,
        }
    }

    fn key_and_name(self) -> (String, String) {
        match self {
            Self::Thread(tid) => (format!("host/{tid}"), format!("thread {tid}")),
            Self::Stream(stream) => (format!("device/{stream}"), format!("stream {stream}")),
            Self::Compute => ("device/compute".to_owned(), "compute".to_owned()),
            Self::Communication => (
                "device/communication".to_owned(),
                "communication".to_owned(),
            ),
            Self::Memory => ("device/memory".to_owned(), "memory".to_owned()),
        }
    }

    fn describe<S: EventSink>(self, sink: &mut S) -> TrackId {
        let (key, name) = self.key_and_name();
        let track = sink.track(&key);
        let is_host = matches!(self, Self::Thread(_));
        let patch = TrackPatch {
            name: Some(&name),
            kind: Some(if is_host {
                TrackKind::Thread
            } else {
                TrackKind::DeviceQueue
            }),
            tid: match self {
                Self::Thread(tid) => Some(tid),
                _ => None,
            },
            stream: match self {
                Self::Stream(stream) => Some(stream),
                _ => None,
            },
            device: (!is_host).then_some(0),
            ..TrackPatch::default()
        };
        sink.describe(track, patch);
        track
    }
}

/// A data dependency: the node that must end, and the number of the link.
type Link = (u32, u64);

/// Emits the nodes as slices, and their data dependencies as links.
pub(super) fn emit<S: EventSink>(
    file: &[u8],
    graph: &Graph,
    first_us: u64,
    source: SourceId,
    losses: &mut Losses,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let origin_us = if first_us <= NEAR_ZERO_US {
        0
    } else {
        first_us
    };
    sink.epoch(Epoch {
        origin_ns: i64::try_from(origin_us.saturating_mul(1_000)).unwrap_or(i64::MAX),
        unix_ns: None,
    });
    let flow = sink.name("data dependency");
    let categories = Categories {
        host: sink.name("cpu_op"),
        kernel: sink.name("kernel"),
        copy: sink.name("gpu_memcpy"),
    };
    let mut links = links(file, graph, losses, context)?;
    links.sort_unstable();
    let mut tracks: FxHashMap<Row, TrackId> = FxHashMap::default();
    let mut next_link = 0;
    let mut flows = Vec::new();
    for (index, head) in graph.heads.iter().enumerate() {
        if index.is_multiple_of(LOOK_EVERY) {
            context.advance(0)?;
        }
        let (Some(node), Some(message)) = (graph.node(file, index), graph.message(file, index))
        else {
            continue;
        };
        let ends = |number: u64, direction| SliceFlow {
            key: FlowKey {
                category: flow,
                id: number,
            },
            direction,
        };
        flows.clear();
        // Numbers are those of `links`: a dependency on a node outside the file has none.
        data_dependencies(message, &mut |id| {
            if graph.by_id.contains_key(&id) && next_link < MAX_LINKS as u64 {
                flows.push(ends(next_link, FlowDirection::In));
                next_link += 1;
            }
        });
        let from = u32::try_from(index).unwrap_or(u32::MAX);
        let first = links.partition_point(|(node, _)| *node < from);
        let own = links.get(first..).unwrap_or_default();
        let own = own.iter().take_while(|(node, _)| *node == from);
        flows.extend(own.map(|(_, number)| ends(*number, FlowDirection::Out)));
        if node.role == NodeType::Metadata {
            continue;
        }
        let Some((start, dur)) = times(&node, origin_us) else {
            losses.bad_times += 1;
            continue;
        };
        let row = Row::from_node(&node);
        let track = *tracks.entry(row).or_insert_with(|| row.describe(sink));
        let slice = SliceIn {
            start,
            dur,
            name: sink.name(&name_of(&node)),
            category: categories.of_node(&node),
            args: ArgRef::new(source, head.at as u64),
            flows: &flows,
            ..SliceIn::default()
        };
        sink.slice(track, slice);
    }
    Ok(())
}

/// Returns the links of the nodes that are in the file, in the order of the dependent nodes.
fn links(
    file: &[u8],
    graph: &Graph,
    losses: &mut Losses,
    context: &ReadContext,
) -> Result<Vec<Link>, FormatError> {
    let mut links: Vec<Link> = Vec::new();
    for index in 0..graph.heads.len() {
        if index.is_multiple_of(LOOK_EVERY) {
            context.advance(0)?;
        }
        let Some(message) = graph.message(file, index) else {
            continue;
        };
        data_dependencies(message, &mut |id| {
            let Some(from) = graph.by_id.get(&id) else {
                return;
            };
            if links.len() == MAX_LINKS {
                losses.links += 1;
                return;
            }
            let from = u32::try_from(*from).unwrap_or(u32::MAX);
            links.push((from, links.len() as u64));
        });
    }
    Ok(links)
}

/// Returns the times of a node; `None` if it has no start time, or an impossible one.
fn times(node: &Node<'_>, origin_us: u64) -> Option<(Time, Dur)> {
    let ps = |us: u64| i64::try_from(us.checked_mul(PS_PER_US)?).ok();
    let start = ps(node.start_us.checked_sub(origin_us)?)?;
    let dur = ps(node.duration_us)?;
    start.checked_add(dur)?;
    Some((Time::from_ps(start), Dur::from_ps(dur)))
}

/// Returns the name of a slice. Simulators name communication as they like: the collective is added then, by which
/// reports recognise it.
fn name_of(node: &Node<'_>) -> String {
    let name = truncated(&String::from_utf8_lossy(node.name));
    match node.collective() {
        Some(op) if node.is_host != Some(true) && !communicates(&name) => {
            format!("{name} ({})", op.as_str())
        }
        _ => name,
    }
}

/// Categories of slices, in kineto's words.
struct Categories {
    host: NameId,
    kernel: NameId,
    copy: NameId,
}

impl Categories {
    fn of_node(&self, node: &Node<'_>) -> NameId {
        if node.is_host == Some(true) {
            self.host
        } else if node.role.is_memory() {
            self.copy
        } else {
            self.kernel
        }
    }
}
