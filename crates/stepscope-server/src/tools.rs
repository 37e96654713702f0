//! Which tools the viewer offers for a run, and why one has nothing to show.

use serde::Serialize;

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

/// Tools that are not built yet: id, title, group, aliases.
const COMING: &[(&str, &str, &str, &[&str])] = &[
    ("overview", "Overview", "General", &["overview_page"]),
    (
        "ops",
        "Ops",
        "General",
        &["op_profile", "hlo_stats", "framework_op_stats"],
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

/// All tools, in the order of the viewer's rail.
pub(crate) fn tools(view: &RunView) -> Vec<Tool> {
    let trace = &view.run.trace;
    let drawn = trace
        .tracks()
        .iter()
        .any(|track| track.slices + track.instants + track.samples > 0);
    let timeline = |id, title, group, aliases| Tool {
        id,
        page: "timeline",
        title,
        group,
        aliases,
        state: if drawn { "ready" } else { "unavailable" },
        reason: (!drawn).then_some("not recorded: the run holds no events with times"),
        hint: (!drawn)
            .then_some("record with a tracer that keeps times, for example stepscope.trace"),
    };
    let coming = |id, page, title, group, aliases| Tool {
        id,
        page,
        title,
        group,
        aliases,
        state: "unavailable",
        reason: Some("coming"),
        hint: None,
    };
    let mut out = Vec::new();
    for &(id, title, group, aliases) in COMING {
        out.push(coming(id, id, title, group, aliases));
        if id == "overview" {
            out.push(timeline(
                "timeline",
                "Timeline",
                "General",
                &["trace_viewer"],
            ));
        }
    }
    if view.run.kinds.iter().any(|kind| kind == "NEURON") {
        out.push(timeline("neuron-trace", "Trace", "NEURON", &["trace"]));
        for (id, title, aliases) in [
            (
                "neuron-operators-framework",
                "Operators (framework)",
                &["operator-framework"][..],
            ),
            (
                "neuron-operators-hlo",
                "Operators (HLO)",
                &["operator-hlo"][..],
            ),
        ] {
            out.push(coming(id, "ops", title, "NEURON", aliases));
        }
        out.push(timeline(
            "neuron-timeline",
            "Operator timeline",
            "NEURON",
            &["operator-timeline"],
        ));
    }
    out
}

/// Title of a tool that is not built yet, by the last part of its address.
pub(crate) fn coming_title(id: &str) -> Option<&'static str> {
    COMING
        .iter()
        .find(|&&(known, ..)| known == id)
        .map(|&(_, title, ..)| title)
}
