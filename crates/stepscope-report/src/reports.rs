//! The registry of reports: names, questions, row types and the functions that make them.
//!
//! To add a report: write the analysis as a module of `stepscope-analysis` with types of its own,
//! convert its result to a [`Report`] in a file of this folder, and add an entry to [`KINDS`].

mod collectives;
mod compilations;
mod cprofile;
mod critical_path;
mod environment;
mod error;
mod findings;
mod hlo;
mod idle;
mod input;
mod kernels;
mod lightning;
mod memory;
mod mfu;
mod ops;
mod overview;
mod pprof;
mod ranks;
mod steps;
mod torch_table;

use std::ops::Range;

pub use error::ReportError;
pub use torch_table::unlinked_device_events;

use stepscope_model::spelling::nearest;
use stepscope_model::{Cancelled, Profile, ProfileKind, Time};
use stepscope_store::Trace;

use crate::hints::{Lack, hint};
use crate::peer_profiler::PeerProfiler;
use crate::report::{Report, Sentence, sentence};
use stepscope_analysis::critical_path::WindowEnd;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::peaks::PeakOverrides;
use stepscope_analysis::programs;
use stepscope_analysis::run_profile::AnalysisScope;

/// Options of a report. Every report supports `top`; the others apply where they make sense.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Row type: one of [`Kind::by`]; the first is the default.
    pub by: Option<String>,
    /// Maximum number of rows of a table; further rows are counted.
    pub top: usize,
    /// Time range: events are clipped to it. `None`: the whole run.
    pub range: Option<Range<Time>>,
    /// Use only steps that the program marked, without derived steps.
    pub marked_only: bool,
    /// Only this compiled program: its name, its number, or `name(number)`. For reports of programs.
    pub module: Option<String>,
    /// Only this memory space of a device. For `hlo-memory`.
    pub space: Option<i64>,
    /// This position of program order in place of the peak. For `hlo-memory`.
    pub position: Option<u32>,
    /// What-if scenarios. For `critical-path`.
    pub what_if: Vec<String>,
    /// Names of prepared scenarios. For `critical-path`.
    pub presets: Vec<String>,
    /// Show predictions although the replay error is large. For `critical-path`.
    pub force: bool,
    /// Where the window ends. For `critical-path`.
    pub until: WindowEnd,
    /// Peak rates of devices from outside the trace. For reports of rates.
    pub peaks: PeakOverrides,
    /// Add the figures of this profiler. For the reports of [`PeerProfiler::reports`].
    pub compat: Option<PeerProfiler>,
}

/// The reports whose rows are of compiled programs: they take [`Options::module`].
const PROGRAMS: &[&str] = &["hlo-memory", "hlo-cost", "op-profile", "roofline"];
/// The reports that take [`Options::space`] and [`Options::position`].
const SPACES: &[&str] = &["hlo-memory"];
/// The reports that take [`Options::what_if`], [`Options::presets`], [`Options::force`] and [`Options::until`].
const SCENARIOS: &[&str] = &["critical-path"];
/// The reports that take [`Options::peaks`].
pub const PEAKS: &[&str] = &["mfu", "op-profile", "roofline"];

impl Options {
    /// Returns the scope of the analysis.
    pub fn scope(&self) -> AnalysisScope {
        AnalysisScope {
            range: self.range.clone(),
            marked_only: self.marked_only,
            ..AnalysisScope::default()
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            by: None,
            top: usize::MAX,
            range: None,
            marked_only: false,
            module: None,
            space: None,
            position: None,
            what_if: Vec::new(),
            presets: Vec::new(),
            force: false,
            until: WindowEnd::default(),
            peaks: PeakOverrides::default(),
            compat: None,
        }
    }
}

/// An entry of the registry.
pub struct Kind {
    /// Name in commands and addresses.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// The name that users of the reproduced profiler know.
    pub peer_title: Option<&'static str>,
    /// Row types; empty if there is no choice.
    pub by: &'static [&'static str],
    make: fn(&Trace, &Options, &Cancel) -> Result<Report, Cancelled>,
}

impl Kind {
    /// Checks that the options fit this report.
    ///
    /// # Errors
    ///
    /// [`ReportError::UnknownBy`] if the row type does not exist, [`ReportError::UnknownOption`],
    /// [`ReportError::NoPeerFigures`], and [`ReportError::WhatIf`].
    pub fn check(&self, options: &Options) -> Result<(), ReportError> {
        let given = [
            ("module", options.module.is_some(), PROGRAMS),
            ("space", options.space.is_some(), SPACES),
            ("position", options.position.is_some(), SPACES),
            ("what-if", !options.what_if.is_empty(), SCENARIOS),
            ("preset", !options.presets.is_empty(), SCENARIOS),
            ("force", options.force, SCENARIOS),
            ("until", options.until != WindowEnd::default(), SCENARIOS),
            ("peaks", !options.peaks.given.is_empty(), PEAKS),
        ];
        for (option, is_given, kinds) in given {
            if is_given && !kinds.contains(&self.name) {
                return Err(ReportError::UnknownOption {
                    option,
                    kind: self.name,
                    kinds,
                });
            }
        }
        if let Some(profiler) = options.compat
            && !profiler.reports().contains(&self.name)
        {
            return Err(ReportError::NoPeerFigures {
                profiler,
                kind: self.name,
            });
        }
        if let Err((text, error)) = critical_path::scenarios(options) {
            return Err(critical_path::mistake(&text, &error));
        }
        match &options.by {
            Some(by) if !self.by.contains(&by.as_str()) => Err(ReportError::UnknownBy {
                asked: by.clone(),
                kind: self.name,
                known: self.by,
            }),
            _ => Ok(()),
        }
    }
}

/// Every report, in the order of lists.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "overview",
        title: "Overview",
        question: "How fast is it, where does the time go, and what should be looked at first?",
        peer_title: None,
        by: &[],
        make: overview::make,
    },
    Kind {
        name: "findings",
        title: "Findings",
        question: "What should be done first?",
        peer_title: None,
        by: &[],
        make: findings::make,
    },
    Kind {
        name: "steps",
        title: "Steps",
        question: "How long do steps take, how steady are they, what dominates them?",
        peer_title: None,
        by: &["label", "step"],
        make: steps::make,
    },
    Kind {
        name: "input",
        title: "Input pipeline",
        question: "Does it wait for its input?",
        peer_title: None,
        by: &[],
        make: input::make,
    },
    Kind {
        name: "ops",
        title: "Operations",
        question: "Which operations cost most?",
        peer_title: None,
        by: ops::BY,
        make: ops::make,
    },
    Kind {
        name: "kernels",
        title: "Kernels",
        question: "What ran on the device?",
        peer_title: None,
        by: kernels::BY,
        make: kernels::make,
    },
    Kind {
        name: "idle",
        title: "Idle time",
        question: "Why was the device idle?",
        peer_title: None,
        by: idle::BY,
        make: idle::make,
    },
    Kind {
        name: "critical-path",
        title: "Critical path",
        question: "What decides how long a step takes, and what would a change gain?",
        peer_title: None,
        by: critical_path::BY,
        make: critical_path::make,
    },
    Kind {
        name: "overlap",
        title: "Overlap",
        question: "How much communication overlaps with computation?",
        peer_title: None,
        by: collectives::OVERLAP_BY,
        make: collectives::overlap,
    },
    Kind {
        name: "collectives",
        title: "Collectives",
        question: "How fast are collectives, and which rank is the straggler?",
        peer_title: None,
        by: collectives::BY,
        make: collectives::make,
    },
    Kind {
        name: "ranks",
        title: "Ranks",
        question: "Which rank is slow, and at what?",
        peer_title: None,
        by: ranks::BY,
        make: ranks::make,
    },
    Kind {
        name: "mfu",
        title: "FLOPs utilisation (MFU)",
        question: "Which share of the devices' peak FLOP/s is used?",
        peer_title: None,
        by: &[],
        make: mfu::make,
    },
    Kind {
        name: "memory",
        title: "Memory",
        question: "What filled the memory, and when?",
        peer_title: None,
        by: &["op", "category", "layer", "stack", "allocator"],
        make: memory::make,
    },
    Kind {
        name: "hlo-memory",
        title: "HLO memory",
        question: "How much memory does each compiled program need, as the compiler planned it?",
        peer_title: None,
        by: hlo::MEMORY_BY,
        make: hlo::memory,
    },
    Kind {
        name: "hlo-cost",
        title: "HLO cost",
        question: "How much does each compiled program compute and move, as XLA counts it?",
        peer_title: None,
        by: hlo::COST_BY,
        make: hlo::cost,
    },
    Kind {
        name: "op-profile",
        title: "Operation profile",
        question: "Which programs, categories and operations took the time, and how well did they use the device?",
        peer_title: None,
        by: hlo::PROFILE_BY,
        make: hlo::profile,
    },
    Kind {
        name: "roofline",
        title: "Roofline",
        question: "Is each operation limited by arithmetic or by memory, and how close is it to the peak?",
        peer_title: None,
        by: hlo::ROOFLINE_BY,
        make: hlo::roofline,
    },
    Kind {
        name: "compilations",
        title: "Compilations",
        question: "Which functions did torch.compile compile, for how long, and why again?",
        peer_title: None,
        by: compilations::BY,
        make: compilations::make,
    },
    Kind {
        name: "torch-table",
        title: "torch table",
        question: "What would key_averages().table() of torch.profiler print?",
        peer_title: Some("PyTorch key_averages"),
        by: &["name", "shape", "stack", "overload"],
        make: torch_table::make,
    },
    Kind {
        name: "lightning",
        title: "Lightning",
        question: "How long do the actions of a Lightning trainer take?",
        peer_title: Some("FIT Profiler Report"),
        by: &[],
        make: lightning::make,
    },
    Kind {
        name: "cprofile",
        title: "Python calls",
        question: "Which Python functions cost most, as pstats counts them?",
        peer_title: Some("cProfile"),
        by: &["function", "caller"],
        make: cprofile::make,
    },
    Kind {
        name: "pprof",
        title: "Sampled stacks",
        question: "Which functions are in most of the sampled stacks?",
        peer_title: Some("pprof -top"),
        by: pprof::BY,
        make: pprof::make,
    },
];

/// Returns the names of all reports.
pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// Returns the report of this name.
pub fn kind(name: &str) -> Result<&'static Kind, ReportError> {
    KINDS
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| ReportError::UnknownKind {
            asked: name.to_owned(),
            nearest: nearest(name, names()),
        })
}

/// Makes the report of this name.
pub fn make(
    trace: &Trace,
    name: &str,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, ReportError> {
    let kind = kind(name)?;
    kind.check(options)?;
    if let Some(module) = &options.module {
        check_module(trace, module, cancel)?;
    }
    let mut report = (kind.make)(trace, options, cancel)?;
    if trace.is_damaged() {
        return Err(ReportError::Damaged);
    }
    // Steps outside of the requested range were recorded; their absence needs no hint.
    let is_outside = kind.name == "steps" && options.range.is_some();
    if let Some(missing) = report.missing.as_mut().filter(|_| !is_outside) {
        hint(trace, lack_of(name, options.by.as_deref())).clone_into(&mut missing.fix);
    }
    if let Some(profiler) = options.compat
        && report.missing.is_none()
        && !profiler.has_figures_in(&report)
    {
        report.note(sentence!(
            "{} has no figures for this run or these rows.",
            profiler.title()
        ));
    }
    if report.missing.is_some()
        && let Some(note) = without_timeline(trace)
    {
        report.notes.insert(0, note);
    }
    Ok(report)
}

/// Checks that the run has a compiled program of this name. A run without any is not an error: its report says so.
fn check_module(trace: &Trace, asked: &str, cancel: &Cancel) -> Result<(), ReportError> {
    let programs = programs::list(trace, cancel)?;
    if programs.is_empty() || programs.keys().any(|key| key.is_named(asked)) {
        return Ok(());
    }
    let names = programs.keys().map(|key| &*key.name);
    Err(ReportError::UnknownModule {
        asked: asked.to_owned(),
        nearest: nearest(asked, names).map(str::to_owned),
    })
}

/// Returns the missing data that explains why this report is empty.
pub(crate) fn lack_of(kind: &str, by: Option<&str>) -> Lack {
    match (kind, by) {
        ("kernels" | "idle" | "overlap", _) | ("ops", Some("neuron-framework" | "neuron-hlo")) => {
            Lack::Kernels
        }
        ("collectives", _) => Lack::Collectives,
        ("compilations", _) => Lack::CompileLog,
        ("ranks", _) => Lack::Ranks,
        ("memory", _) => Lack::Memory,
        ("pprof", _) => Lack::StackSamples,
        ("op-profile" | "roofline", _) => Lack::HloOps,
        _ if PROGRAMS.contains(&kind) => Lack::Programs,
        ("mfu", _) => Lack::Flops,
        ("steps", _) => Lack::Steps,
        ("input", _) => Lack::Input,
        ("lightning", _) | ("ops", Some("action")) => Lack::Actions,
        ("cprofile", _) | ("ops", Some("python")) => Lack::PythonFunctions,
        ("torch-table", _) | ("ops", Some("framework" | "shape" | "stack")) => Lack::FrameworkOps,
        ("ops", Some("hlo")) => Lack::HloOps,
        ("ops", Some("module")) => Lack::Modules,
        ("ops", _) => Lack::Labels,
        _ => Lack::Times,
    }
}

/// Returns which report shows the statistics of a run without a timeline; `None` if the run has a
/// timeline.
fn without_timeline(trace: &Trace) -> Option<Sentence> {
    if trace.tracks().is_empty() && trace.files().iter().any(|file| file.spec.format == "hlo") {
        return Some(
            "This run holds compiled programs without a timeline: reports 'hlo-memory' and 'hlo-cost' show them."
                .into(),
        );
    }
    if !trace.is_without_timeline() {
        return None;
    }
    let mut profiles = trace.profiles().map(|(_, profile)| profile);
    if let Some(profile) = profiles.find(|profile| profile.kind == ProfileKind::Samples) {
        let reports = if profile.samples.is_jax_device_memory() {
            "reports 'memory' and 'pprof' show"
        } else {
            "report 'pprof' shows"
        };
        return Some(sentence!(
            "This run holds samples without a timeline: {} them.",
            reports
        ));
    }
    let functions = |profile: &Profile| profile.kind == ProfileKind::Functions;
    let found = match trace.profiles().all(|(_, profile)| functions(profile)) {
        // Tables of functions with an action's name come from an `AdvancedProfiler`.
        true if trace.profiles().all(|(_, profile)| profile.name.is_empty()) => {
            "report 'cprofile' shows"
        }
        true => "reports 'lightning' and 'cprofile' show",
        false => "report 'lightning' shows",
    };
    Some(sentence!(
        "This run holds aggregates without a timeline: the {} them.",
        found
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_report_kind_lists_valid_kinds() {
        let trace = stepscope_store::TraceBuilder::new().finish();
        let ask = |name: &str, by: Option<&str>| {
            let options = Options {
                by: by.map(str::to_owned),
                ..Options::default()
            };
            make(&trace, name, &options, &Cancel::default())
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(
            ask("stepps", None).unwrap(),
            "cannot make report 'stepps': there is no such report\nhelp: did you mean 'steps'?"
        );
        assert_eq!(
            ask("steps", Some("colour")).unwrap(),
            "cannot make report 'steps' by 'colour': it has no such rows\nhelp: use one of label, step"
        );
        assert_eq!(ask("steps", Some("step")), None);
    }

    #[test]
    fn every_kind_has_words_and_survives_an_empty_trace() {
        let trace = stepscope_store::TraceBuilder::new().finish();
        for kind in KINDS {
            assert!(kind.question.ends_with('?'), "{}", kind.name);
            let report = make(&trace, kind.name, &Options::default(), &Cancel::default()).unwrap();
            assert_eq!(report.kind, kind.name);
            assert!(report.missing.is_some(), "{} of nothing", kind.name);
        }
    }

    #[test]
    fn a_run_of_sums_says_which_report_has_them() {
        use stepscope_model::EventSink as _;
        use stepscope_store::FileSpec;
        let note = |profiles: &[Profile], kind: &str| {
            let mut builder = stepscope_store::TraceBuilder::new();
            let mut sink = builder.file(FileSpec::default());
            for profile in profiles {
                sink.profile(profile.clone());
            }
            builder.add(sink);
            let trace = builder.finish();
            let report = make(&trace, kind, &Options::default(), &Cancel::default()).unwrap();
            report
                .notes
                .first()
                .map(Sentence::to_string)
                .unwrap_or_default()
        };
        let of = |kind: ProfileKind, name: &str| Profile {
            kind,
            name: name.to_owned(),
            rows: vec![stepscope_model::ProfileRow::default()],
            ..Profile::default()
        };
        let functions = of(ProfileKind::Functions, "");
        let says = |found: &str| {
            format!("This run holds aggregates without a timeline: the {found} them.")
        };
        for kind in ["overview", "steps", "ops", "input", "memory", "findings"] {
            let note = note(std::slice::from_ref(&functions), kind);
            assert_eq!(note, says("report 'cprofile' shows"), "{kind}");
        }
        let of_actions = of(ProfileKind::Functions, "run_training_batch");
        assert_eq!(
            note(&[of_actions], "steps"),
            says("reports 'lightning' and 'cprofile' show")
        );
        assert_eq!(
            note(&[of(ProfileKind::Actions, "")], "cprofile"),
            says("report 'lightning' shows")
        );
        assert_eq!(note(&[functions], "cprofile"), "");
    }
}
