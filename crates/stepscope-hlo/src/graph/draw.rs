//! A drawing as SVG, and a graph as DOT text.

use std::fmt::Write as _;

use super::{DrawnNodeKind, GraphLayout, Rect, VisibleGraph};

fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no other control characters, not even escaped.
            letter if letter.is_control() && !matches!(letter, '\n' | '\t') => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// Returns the start of a text that fits into a node.
fn fitting(text: &str, width: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "widths of nodes are small and positive"
    )]
    let most = (width / 6.4) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{start}…")
}

fn write_node_svg(
    out: &mut String,
    graph: &VisibleGraph,
    number: usize,
    rect: Rect,
    detail: &str,
    fill: &str,
) {
    let node = &graph.nodes[number];
    let Rect {
        x,
        y,
        width,
        height,
    } = rect;
    let label = escape_xml(&fitting(&node.label, width - 8.0));
    let title = escape_xml(&format!("{}\n{detail}", node.label));
    let (fill, dash) = match node.kind {
        _ if node.is_open => ("none", ""),
        DrawnNodeKind::Stub => ("#ffffff", " stroke-dasharray=\"4 3\""),
        _ => (fill, ""),
    };
    let _ = write!(
        out,
        "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" \
         fill=\"{fill}\" stroke=\"#444444\"{dash}/>"
    );
    let middle = x + width / 2.0;
    if node.is_open {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{label}</text></g>",
            x + 8.0,
            y + 17.0
        );
        return;
    }
    let is_stub = node.kind == DrawnNodeKind::Stub;
    let _ = write!(
        out,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
        y + 17.0
    );
    if !is_stub {
        let detail = escape_xml(&fitting(detail, width - 8.0));
        let _ = write!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{detail}</text>",
            y + 32.0
        );
    }
    out.push_str("</g>\n");
}

/// Returns a drawing as SVG, without scripts or links; `details` has the second line and `fills` the colour of
/// each node.
pub fn write_svg(
    graph: &VisibleGraph,
    drawing: &GraphLayout,
    details: &[String],
    fills: &[&str],
) -> String {
    const MARGIN: f64 = 12.0;
    let (width, height) = (drawing.width + 2.0 * MARGIN, drawing.height + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"{} {} {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#666666\"/></marker></defs>\n\
         <rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        -MARGIN, -MARGIN, -MARGIN, -MARGIN
    );
    let detail = |number: usize| details.get(number).map_or("", String::as_str);
    let fill = |number: usize| fills.get(number).copied().unwrap_or("#f4f4f4");
    for (number, rect) in drawing.nodes.iter().enumerate() {
        write_node_svg(&mut out, graph, number, *rect, detail(number), fill(number));
    }
    for line in &drawing.edges {
        let points: Vec<String> = line.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#666666\" marker-end=\"url(#arrow)\"/>",
            points.join(" ")
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Returns a graph as DOT text; open groups are clusters. `details` has the second line of each node.
pub fn write_dot(graph: &VisibleGraph, name: &str, details: &[String]) -> String {
    let mut out = format!("digraph {} {{\nnode [shape=box];\n", quoted(name));
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len() + 1];
    for (number, node) in graph.nodes.iter().enumerate() {
        children[node.parent.unwrap_or(graph.nodes.len())].push(number);
    }
    // A group and the next of its nodes to write.
    let mut open = vec![(graph.nodes.len(), 0)];
    while let Some((group, next)) = open.last_mut() {
        let Some(number) = children[*group].get(*next).copied() else {
            open.pop();
            if !open.is_empty() {
                out.push_str("}\n");
            }
            continue;
        };
        *next += 1;
        let node = &graph.nodes[number];
        if node.is_open {
            let label = quoted(&node.label);
            let _ = writeln!(out, "subgraph \"cluster_{number}\" {{\nlabel={label};");
            // An edge to the group itself ends here.
            let _ = writeln!(out, "n{number} [label={label}, shape=plaintext];");
            open.push((number, 0));
            continue;
        }
        let detail = details.get(number).map_or("", String::as_str);
        let label = quoted(&format!("{}\n{detail}", node.label));
        let style = match node.kind {
            DrawnNodeKind::Stub => ", style=dashed",
            _ => "",
        };
        let _ = writeln!(out, "n{number} [label={label}{style}];");
    }
    for edge in &graph.edges {
        let _ = writeln!(out, "n{} -> n{};", edge.from, edge.to);
    }
    out.push_str("}\n");
    out
}
