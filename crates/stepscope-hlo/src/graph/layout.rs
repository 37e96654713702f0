//! Positions of nodes and lines of edges: a layered drawing, data flowing downwards.
//!
//! The inside of an open group is laid out alone and becomes one large node of the group around it.

mod level;

use super::{DrawnNodeKind, EdgeEnds, VisibleGraph, VisibleNode};
use level::{Level, Ports, Size};

/// Height of a node with two lines of text.
const NODE_HEIGHT: f64 = 40.0;
/// Height of a stub.
const STUB_HEIGHT: f64 = 26.0;
/// Width of a letter, about.
const LETTER_WIDTH: f64 = 6.6;
const MIN_WIDTH: f64 = 70.0;
const MAX_WIDTH: f64 = 240.0;
/// Space between the border of an open group and its nodes.
const PADDING: f64 = 14.0;
/// Height of the title of an open group.
const TITLE_HEIGHT: f64 = 24.0;

/// A rectangle; its origin is at the top left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    /// Left side.
    pub x: f64,
    /// Top.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// The line of an edge, from the node whose value is taken.
pub type Line = Vec<(f64, f64)>;

/// A drawing of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphLayout {
    /// Rectangle of each node.
    pub nodes: Vec<Rect>,
    /// Line of each edge.
    pub edges: Vec<Line>,
    /// Width of the drawing.
    pub width: f64,
    /// Height of the drawing.
    pub height: f64,
}

fn size_of(node: &VisibleNode, detail: &str) -> Size {
    let letters = node.label.chars().count().max(detail.chars().count());
    #[allow(clippy::cast_precision_loss, reason = "the length of a name")]
    let width = letters as f64 * LETTER_WIDTH + 20.0;
    let height = if node.kind == DrawnNodeKind::Stub {
        STUB_HEIGHT
    } else {
        NODE_HEIGHT
    };
    Size {
        width: width.clamp(MIN_WIDTH, MAX_WIDTH).ceil(),
        height,
    }
}

/// The edges in one group.
#[derive(Clone, Default)]
struct LevelEdges {
    /// Ends by position in the group, each pair once.
    ends: Vec<(usize, usize)>,
    /// Nodes with edges to the outside, by position in the group.
    ports: Ports,
}

impl GraphLayout {
    /// Draws a graph; `details` is the second line of text of each node, which widens it.
    pub fn new(graph: &VisibleGraph, details: &[String]) -> Self {
        let count = graph.nodes.len();
        // Children of each group; the last list is the top.
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); count + 1];
        let mut position = vec![0; count];
        for (number, node) in graph.nodes.iter().enumerate() {
            let siblings = &mut children[node.parent.unwrap_or(count)];
            position[number] = siblings.len();
            siblings.push(number);
        }
        let mut inside = vec![LevelEdges::default(); count + 1];
        let meetings: Vec<Meeting> = graph
            .edges
            .iter()
            .map(|edge| Meeting::new(graph, edge))
            .collect();
        for (edge, meeting) in graph.edges.iter().zip(&meetings) {
            let ends = (position[meeting.from], position[meeting.to]);
            inside[meeting.group].ends.push(ends);
            for (node, group) in outward(graph, edge.from, meeting.from) {
                inside[group].ports.exits.push(position[node]);
            }
            for (node, group) in outward(graph, edge.to, meeting.to) {
                inside[group].ports.entries.push(position[node]);
            }
        }
        let mut sizes = vec![Size::default(); count];
        let mut levels: Vec<Level> = (0..=count).map(|_| Level::default()).collect();
        for edges in &mut inside {
            edges.ends.sort_unstable();
            edges.ends.dedup();
            for nodes in [&mut edges.ports.exits, &mut edges.ports.entries] {
                nodes.sort_unstable();
                nodes.dedup();
            }
        }
        let lay_out = |group: usize, sizes: &[Size]| {
            let members: Vec<Size> = children[group].iter().map(|node| sizes[*node]).collect();
            Level::new(&members, &inside[group].ends, &inside[group].ports)
        };
        // Groups come before their nodes, so the other way round the inside is known first.
        for (group, node) in graph.nodes.iter().enumerate().rev() {
            let detail = details.get(group).map_or("", String::as_str);
            sizes[group] = size_of(node, detail);
            if node.is_open && !children[group].is_empty() {
                levels[group] = lay_out(group, &sizes);
                sizes[group] = Size {
                    width: (levels[group].width + 2.0 * PADDING).max(sizes[group].width),
                    height: levels[group].height + 2.0 * PADDING + TITLE_HEIGHT,
                };
            }
        }
        levels[count] = lay_out(count, &sizes);
        let origins = origins(graph, &sizes, &levels, &position);
        let nodes: Vec<Rect> = sizes
            .iter()
            .zip(&origins)
            .map(|(size, (x, y))| Rect {
                x: *x,
                y: *y,
                width: size.width,
                height: size.height,
            })
            .collect();
        let route = Route {
            graph,
            levels: &levels,
            position: &position,
            nodes: &nodes,
        };
        let edges = graph.edges.iter().zip(&meetings).map(|(edge, meeting)| {
            let ends = (position[meeting.from], position[meeting.to]);
            let line = levels[meeting.group].line(&inside[meeting.group].ends, ends);
            route.line(edge, meeting, line)
        });
        Self {
            edges: edges.collect(),
            width: levels[count].width,
            height: levels[count].height,
            nodes: nodes.clone(),
        }
    }
}

/// Returns the node and those around it below `outermost`, each with the group that it lies in.
fn outward(
    graph: &VisibleGraph,
    node: usize,
    outermost: usize,
) -> impl Iterator<Item = (usize, usize)> {
    let chain = std::iter::successors(Some(node), |node| graph.nodes[*node].parent);
    let inner = chain.take_while(move |node| *node != outermost);
    inner.filter_map(|node| Some((node, graph.nodes[node].parent?)))
}

/// Where the ends of an edge meet: the innermost group that holds both, and its nodes that hold the ends.
struct Meeting {
    group: usize,
    from: usize,
    to: usize,
}

impl Meeting {
    fn new(graph: &VisibleGraph, edge: &EdgeEnds) -> Self {
        let chain = |node: usize| -> Vec<usize> {
            std::iter::successors(Some(node), |node| graph.nodes[*node].parent).collect()
        };
        let (mut from, mut to) = (chain(edge.from), chain(edge.to));
        let mut group = graph.nodes.len();
        while from.len() > 1 && to.len() > 1 && from.last() == to.last() {
            group = from.pop().unwrap_or(group);
            to.pop();
        }
        Self {
            group,
            from: from.pop().unwrap_or(edge.from),
            to: to.pop().unwrap_or(edge.to),
        }
    }
}

/// Returns the point from which the inside of a group is measured.
fn inner_origin(
    graph: &VisibleGraph,
    levels: &[Level],
    nodes: &[Rect],
    group: usize,
) -> (f64, f64) {
    if group == graph.nodes.len() {
        return (0.0, 0.0);
    }
    let rect = nodes[group];
    // A title may be wider than what is inside.
    let left = (rect.width - levels[group].width) / 2.0;
    (rect.x + left, rect.y + PADDING + TITLE_HEIGHT)
}

fn origins(
    graph: &VisibleGraph,
    sizes: &[Size],
    levels: &[Level],
    position: &[usize],
) -> Vec<(f64, f64)> {
    let mut found: Vec<(f64, f64)> = Vec::with_capacity(sizes.len());
    for (number, node) in graph.nodes.iter().enumerate() {
        let (group, origin) = match node.parent {
            None => (graph.nodes.len(), (0.0, 0.0)),
            Some(group) => {
                let (x, y) = found[group];
                let left = (sizes[group].width - levels[group].width) / 2.0;
                (group, (x + left, y + PADDING + TITLE_HEIGHT))
            }
        };
        let (x, y) = levels[group].origins[position[number]];
        found.push((origin.0 + x, origin.1 + y));
    }
    found
}

/// The drawing, as far as lines need it.
struct Route<'a> {
    graph: &'a VisibleGraph,
    levels: &'a [Level],
    position: &'a [usize],
    nodes: &'a [Rect],
}

impl Route<'_> {
    /// Returns a line of a group in the whole drawing.
    fn placed(&self, group: usize, line: Line) -> Line {
        let (x, y) = inner_origin(self.graph, self.levels, self.nodes, group);
        line.into_iter()
            .map(|(at, down)| (at + x, down + y))
            .collect()
    }

    /// Returns the line between the two ends themselves: `line` joins the nodes that hold them, and goes on through
    /// their ports into open groups.
    fn line(&self, edge: &EdgeEnds, meeting: &Meeting, line: Line) -> Line {
        let line = self.placed(meeting.group, line);
        let is_downward = line.first().map(|first| first.1) <= line.last().map(|last| last.1);
        let mut out = self.outward_line(edge.from, meeting.from);
        if let Some(&(x, y)) = out.last() {
            let rect = self.nodes[meeting.from];
            let bottom = rect.y + rect.height;
            if is_downward {
                out.push((x, bottom));
            } else {
                // Back to the top along the right side, where the group has no nodes.
                let side = rect.x + rect.width - PADDING / 2.0;
                let below = y + PADDING / 2.0;
                out.extend([(x, below), (side, below), (side, rect.y)]);
            }
        }
        append(&mut out, line);
        // The groups around the other end, from the outermost one inwards.
        let mut way: Vec<(usize, usize)> = outward(self.graph, edge.to, meeting.to).collect();
        way.reverse();
        for (node, group) in way {
            let inner = self.placed(group, self.levels[group].entry(self.position[node]));
            let Some(&(x, y)) = inner.first() else {
                continue;
            };
            let goes_around = !is_downward && group == meeting.to;
            // The border is entered above the port, or the left side leads from the bottom to the top.
            let border = if goes_around {
                self.nodes[group].x + PADDING / 2.0
            } else {
                x
            };
            let end = out.len();
            for point in &mut out[end.saturating_sub(LEAD)..] {
                point.0 = border;
            }
            if goes_around {
                let above = y - PADDING / 2.0;
                out.extend([(border, above), (x, above)]);
            }
            out.extend(inner);
        }
        out.dedup();
        out
    }

    /// Returns the line from a node to the last rank of the group `outermost`, through the groups between them; empty if
    /// they are the same.
    fn outward_line(&self, node: usize, outermost: usize) -> Line {
        let mut out = Line::new();
        for (node, group) in outward(self.graph, node, outermost) {
            let inner = self.placed(group, self.levels[group].exit(self.position[node]));
            append(&mut out, inner);
            if group == outermost {
                break;
            }
            let rect = self.nodes[group];
            if let Some(&(x, _)) = out.last() {
                out.push((x, rect.y + rect.height));
            }
        }
        out
    }
}

/// Number of points at each end of a line that are straight above each other: at the node, and at the border of its
/// rank.
const LEAD: usize = 2;

/// Continues a line; the continuation starts where the line ends.
fn append(line: &mut Line, mut next: Line) {
    if let Some(&(x, _)) = line.last() {
        for point in next.iter_mut().take(LEAD) {
            point.0 = x;
        }
    }
    line.append(&mut next);
}
