//! The pages of the viewer: entries of the tool box, the rail and the keyboard.
//!
//! `cargo xtask gen` writes them for the viewer (`ui/src/model/generated.ts`).

/// An entry for a page of the viewer. A page can have several entries.
#[derive(Debug, PartialEq, Eq)]
pub struct Tool {
    /// Last segment of its address.
    pub id: &'static str,
    /// Id of the opened page; differs from `id` if the entry is another profiler's name for the
    /// page.
    pub page: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Heading of its list.
    pub group: &'static str,
    /// The key that opens it after `G`.
    pub letter: Option<&'static str>,
    /// Names in other viewers; the tool box finds the entry by them.
    pub aliases: &'static [&'static str],
    /// The question that it answers.
    pub question: &'static str,
    /// Parameters of the page's address.
    pub view: &'static [(&'static str, &'static str)],
}

impl Tool {
    const fn new(
        id: &'static str,
        title: &'static str,
        letter: &'static str,
        question: &'static str,
        aliases: &'static [&'static str],
    ) -> Self {
        Self {
            id,
            page: id,
            title,
            group: "General",
            letter: Some(letter),
            aliases,
            question,
            view: &[],
        }
    }

    const fn in_group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }
}

/// Headings of the lists, in display order.
pub const GROUPS: &[&str] = &["General", "XLA", "GPU", "NEURON"];

/// The pages, in the order of the viewer's rail.
pub const TOOLS: &[Tool] = &[
    Tool::new(
        "overview",
        "Overview",
        "o",
        "How long do steps take, and what should I look at first?",
        &["overview_page"],
    ),
    Tool::new(
        "timeline",
        "Timeline",
        "t",
        "What ran when, on every thread and device?",
        &[
            "trace_viewer",
            "trace_viewer@",
            "trace",
            "neuron-trace",
            "neuron-timeline",
            "operator-timeline",
        ],
    ),
    Tool::new(
        "critical-path",
        "Critical path",
        "x",
        "What decides how long a step takes, and what would a change gain?",
        &["critical_path_analysis", "what_if"],
    ),
    Tool::new(
        "ops",
        "Ops",
        "p",
        "Which operations cost most, and which waste most?",
        &[
            "operator-framework",
            "operator-hlo",
            "neuron-operators-framework",
            "neuron-operators-hlo",
        ],
    ),
    Tool::new(
        "calls",
        "Call tree",
        "f",
        "Which functions, labels and stacks take the time of the host, and who calls them?",
        &["flame_graph", "flamegraph", "call_tree", "bottom_up"],
    ),
    Tool::new(
        "kernels",
        "Kernels",
        "k",
        "Which kernels run, how often and how well?",
        &["kernel_stats"],
    )
    .in_group("GPU"),
    Tool::new(
        "memory",
        "Memory",
        "m",
        "What is in memory over time, and what is alive at the peak?",
        &["memory_profile"],
    ),
    Tool::new(
        "hlo-memory",
        "HLO memory",
        "h",
        "How much memory does each compiled program need, and what for?",
        &["memory_viewer"],
    ),
    Tool::new(
        "graph",
        "Graph",
        "g",
        "How do the operations of a compiled program depend on each other?",
        &["graph_viewer"],
    ),
    Tool::new(
        "input",
        "Input pipeline",
        "i",
        "Do steps wait for input?",
        &["input_pipeline_analyzer"],
    ),
    Tool::new(
        "roofline",
        "Roofline",
        "l",
        "Is each operation limited by arithmetic or by memory, and how close is it to the peak?",
        &["roofline_model"],
    ),
    Tool::new(
        "ranks",
        "Ranks",
        "r",
        "Which rank is the straggler, and what does it cost?",
        &["pod_viewer", "megascale_stats"],
    ),
    Tool::new(
        "reports",
        "Reports",
        "e",
        "Tables in familiar formats, and exports.",
        &["perfetto"],
    ),
];

/// Views of pages under the names of XProf's tools; offered in the tool box.
pub const VIEW_TOOLS: &[Tool] = &[
    view(
        "op-profile",
        "ops",
        "Op profile",
        "Which programs, categories and operations took the time, and how well did they use the device?",
        &["op_profile"],
        &[("tab", "profile")],
    ),
    view(
        "hlo-op-stats",
        "ops",
        "HLO op stats",
        "Which operations of compiled programs cost most?",
        &["hlo_stats", "hlo_op_stats"],
        &[("by", "hlo")],
    ),
    view(
        "framework-op-stats",
        "ops",
        "Framework op stats",
        "Which operations of the framework cost most?",
        &["framework_op_stats", "tensorflow_stats"],
        &[("by", "framework")],
    ),
];

const fn view(
    id: &'static str,
    page: &'static str,
    title: &'static str,
    question: &'static str,
    aliases: &'static [&'static str],
    view: &'static [(&'static str, &'static str)],
) -> Tool {
    Tool {
        id,
        page,
        title,
        group: "XLA",
        letter: None,
        aliases,
        question,
        view,
    }
}

/// Names that Neuron's own viewer gives to pages; offered for runs of Neuron devices.
pub const NEURON_TOOLS: &[Tool] = &[
    neuron("neuron-trace", "timeline", "Trace", &["trace"], &[]),
    neuron(
        "neuron-operators-framework",
        "ops",
        "Operators (framework)",
        &["operator-framework"],
        &[("by", "neuron-framework")],
    ),
    neuron(
        "neuron-operators-hlo",
        "ops",
        "Operators (HLO)",
        &["operator-hlo"],
        &[("by", "neuron-hlo")],
    ),
    neuron(
        "neuron-timeline",
        "timeline",
        "Operator timeline",
        &["operator-timeline"],
        &[("grouping", "device")],
    ),
];

const fn neuron(
    id: &'static str,
    page: &'static str,
    title: &'static str,
    aliases: &'static [&'static str],
    view: &'static [(&'static str, &'static str)],
) -> Tool {
    Tool {
        id,
        page,
        title,
        group: "NEURON",
        letter: None,
        aliases,
        question: "",
        view,
    }
}

/// A page of the viewer that explains figures of reports.
#[derive(Debug)]
pub struct FigurePage {
    /// Id of the page: see [`TOOLS`].
    pub page: &'static str,
    /// Parameters of the page's address.
    pub view: &'static [(&'static str, &'static str)],
    /// Keys of the figures.
    pub keys: &'static [&'static str],
}

impl FigurePage {
    const fn new(page: &'static str, keys: &'static [&'static str]) -> Self {
        Self {
            page,
            view: &[],
            keys,
        }
    }

    const fn with_view(self, view: &'static [(&'static str, &'static str)]) -> Self {
        Self { view, ..self }
    }
}

/// The pages that explain figures of reports. A figure without an entry leads to the timeline.
pub const FIGURE_PAGES: &[FigurePage] = &[
    FigurePage::new("input", &["input_share", "input_per_step_ns", "input_ns"]),
    FigurePage::new(
        "memory",
        &[
            "peak_memory_bytes",
            "memory_bytes",
            "peak_bytes",
            "peak_reserved_bytes",
            "end_bytes",
            "allocated_bytes",
            "freed_bytes",
            "never_freed_bytes",
            "capacity_bytes",
        ],
    ),
    FigurePage::new("memory", &["allocations"]).with_view(&[("tab", "churn")]),
    FigurePage::new(
        "ranks",
        &[
            "ranks",
            "exposed_communication_share",
            "exposed_communication_ns",
            "communication_ns",
            "exposed_ns",
            "collectives",
            "participants",
            "mean_spread_ns",
            "max_spread_ns",
        ],
    ),
    FigurePage::new(
        "kernels",
        &[
            "device_busy_share",
            "launches",
            "launch_delay_p50_ns",
            "launch_delay_p90_ns",
            "self_device_time_total_us",
        ],
    ),
    FigurePage::new("kernels", &["exposed_copy_ns"]).with_view(&[("tab", "copies")]),
    FigurePage::new("reports", &["idle_ns", "idle_share", "gaps"]).with_view(&[("by", "idle")]),
    FigurePage::new(
        "ops",
        &[
            "ops",
            "self_ns",
            "compute_ns",
            "host_ns",
            "rounded_to_ns",
            "self_cpu_time_total_us",
            "mfu_share",
            "covered_share",
            "uncounted_calls",
            "teraflops_per_second",
            "teraflop_per_step",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the page and the view that another profiler's name of a tool leads to.
    fn named(name: &str) -> Vec<(&'static str, &'static [(&'static str, &'static str)])> {
        let tools = TOOLS.iter().chain(VIEW_TOOLS);
        tools
            .filter(|tool| tool.aliases.contains(&name))
            .map(|tool| (tool.page, tool.view))
            .collect()
    }

    #[test]
    fn names_of_xprof_tools_lead_to_one_page_each() {
        #[allow(
            clippy::type_complexity,
            reason = "name, page, and the view's parameters"
        )]
        let cases: &[(&str, &str, &[(&str, &str)])] = &[
            ("overview_page", "overview", &[]),
            ("trace_viewer", "timeline", &[]),
            ("memory_viewer", "hlo-memory", &[]),
            ("memory_profile", "memory", &[]),
            ("graph_viewer", "graph", &[]),
            ("roofline_model", "roofline", &[]),
            ("op_profile", "ops", &[("tab", "profile")]),
            ("hlo_stats", "ops", &[("by", "hlo")]),
            ("framework_op_stats", "ops", &[("by", "framework")]),
            ("kernel_stats", "kernels", &[]),
            ("input_pipeline_analyzer", "input", &[]),
            ("pod_viewer", "ranks", &[]),
        ];
        for (name, page, view) in cases {
            assert_eq!(named(name), [(*page, *view)], "{name}");
        }
    }

    #[test]
    fn each_figure_leads_to_one_existing_page() {
        let mut keys: Vec<&str> = Vec::new();
        for figures in FIGURE_PAGES {
            let is_page = TOOLS.iter().any(|tool| tool.id == figures.page);
            assert!(is_page, "{}", figures.page);
            keys.extend(figures.keys);
        }
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
