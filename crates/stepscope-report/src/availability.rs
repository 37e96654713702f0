//! Which pages of the viewer and which reports have data in a run.
//!
//! The answer depends on tracks, names and metadata only. No analysis runs, so opening a run stays
//! fast. A page or report that turns out to be empty states its own reason.

use stepscope_analysis::collectives::may_be_collective;
use stepscope_analysis::compilations::has_compile_log;
use stepscope_analysis::ops::has_torch_operators;
use stepscope_analysis::producer::is_of;
use stepscope_analysis::python_calls::is_call;
use stepscope_analysis::timeline_query::statistics_tree::statistics;
use stepscope_compat::lightning_actions;
use stepscope_model::vocabulary::kineto;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{ProfileKind, TrackKind};
use stepscope_store::Trace;

use crate::hints::{Lack, hint};
use crate::reports::{KINDS, Kind, lack_of};
use crate::tools::{NEURON_TOOLS, TOOLS, Tool};

/// Whether a page or a report has data in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// All its data is available.
    Ready,
    /// Some data is missing: another page is the better start.
    Partial {
        /// What is missing, without a full stop.
        reason: &'static str,
    },
    /// Its data is missing.
    Unavailable {
        /// What the run lacks, without a full stop.
        reason: &'static str,
        /// The line of code that would record it, in the framework that wrote the run.
        hint: Option<&'static str>,
    },
}

/// Availability of every page and report for one run.
pub struct RunAvailability {
    /// The pages, in the order of the viewer's rail; those with Neuron's names last.
    pub tools: Vec<(&'static Tool, Availability)>,
    /// The reports, in the order of [`KINDS`].
    pub reports: Vec<(&'static Kind, Availability)>,
}

/// Returns which pages and reports have data in a run. `has_steps`: the run has marked or derived
/// steps.
pub fn availability(trace: &Trace, has_steps: bool) -> RunAvailability {
    let contents = Contents::from_trace(trace, has_steps);
    let with_hint = |answer: Result<Option<&'static str>, Missing>| match answer {
        Ok(None) => Availability::Ready,
        Ok(Some(reason)) => Availability::Partial { reason },
        Err((reason, lack)) => Availability::Unavailable {
            reason,
            hint: Some(hint(trace, lack)).filter(|line| !line.is_empty()),
        },
    };
    let neuron = is_of(trace, Producer::Neuron).then_some(NEURON_TOOLS);
    RunAvailability {
        tools: TOOLS
            .iter()
            .chain(neuron.unwrap_or_default())
            .map(|tool| (tool, with_hint(contents.tool(tool.page))))
            .collect(),
        reports: KINDS
            .iter()
            .map(|kind| (kind, with_hint(contents.report(kind.name))))
            .collect(),
    }
}

/// The reason why nothing can be shown, and the data that the run lacks.
type Missing = (&'static str, Lack);

const NO_TIMES: Missing = ("the files have no timestamps", Lack::Times);
const NO_KERNELS: Missing = ("the run holds nothing that ran on a device", Lack::Kernels);
const NO_MEMORY: Missing = (
    "the run holds no allocations and no counters of bytes",
    Lack::Memory,
);
const ONE_RANK: Missing = (
    "the run is of one process, and its devices did not communicate: there is nothing to compare",
    Lack::Ranks,
);
const NO_CALLS: Missing = (
    "the run has no calls, labels or stacks of host threads",
    Lack::PythonFunctions,
);
const NO_PYTHON: Missing = (
    "no calls of Python functions are in this run",
    Lack::PythonFunctions,
);
const NO_PROGRAMS: Missing = ("no compiled programs (HLO) are in this run", Lack::Programs);
const NO_WORK: Missing = (
    "no compiled programs (HLO) and no operators of PyTorch are in this run",
    Lack::HloOps,
);
const NO_ACTIONS: Missing = (
    "no action of a Lightning trainer is in this run",
    Lack::Actions,
);
const NO_SAMPLES: Missing = ("no samples with stacks are in this run", Lack::StackSamples);
const NO_COMPILE_LOG: Missing = ("no log of torch.compile is in this run", Lack::CompileLog);
const NO_OPERATORS: Missing = (
    "no operators of PyTorch are in this run",
    Lack::FrameworkOps,
);

/// The data in a run, as far as pages and reports depend on it.
#[derive(Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each asked by some page or report"
)]
struct Contents {
    /// Events with timestamps.
    drawn: bool,
    steps: bool,
    /// Device queues with slices.
    queues: bool,
    /// Allocations, or counters of bytes.
    memory: bool,
    /// More than one process.
    ranks: bool,
    /// Collectives, also among the devices of one process.
    collectives: bool,
    /// Statistics without timestamps.
    statistics: bool,
    /// Statistics of functions.
    functions: bool,
    /// Statistics of functions with their callers.
    callers: bool,
    /// Samples with stacks.
    stack_samples: bool,
    /// Live arrays of JAX's devices.
    live_arrays: bool,
    /// A report file of Lightning's profilers.
    lightning_file: bool,
    /// Operation names of a framework or compiler: the overview has content.
    known_ops: bool,
    /// Slices of host threads.
    host: bool,
    /// Calls of Python functions on the timeline.
    python: bool,
    /// Actions of a Lightning trainer on the timeline.
    actions: bool,
    /// Operators of PyTorch.
    torch: bool,
    /// A log of `torch.compile`.
    compile_log: bool,
    /// The framework compiles programs, which its files usually carry.
    programs: bool,
}

impl Contents {
    fn from_trace(trace: &Trace, steps: bool) -> Self {
        let tracks = trace.tracks();
        let mut found = Self {
            drawn: tracks
                .iter()
                .any(|track| track.slices + track.instants + track.samples > 0),
            steps,
            queues: tracks
                .iter()
                .any(|track| track.kind == TrackKind::DeviceQueue && track.slices > 0),
            memory: tracks.iter().any(|track| {
                track.samples > 0 && matches!(track.unit.as_deref(), Some("bytes" | "B" | "byte"))
            }),
            ranks: trace.recordings().count() > 1,
            collectives: false,
            statistics: trace.profiles().next().is_some(),
            functions: trace
                .profiles()
                .any(|(_, profile)| profile.kind == ProfileKind::Functions),
            callers: !statistics(trace).is_empty(),
            stack_samples: trace
                .profiles()
                .any(|(_, profile)| profile.kind == ProfileKind::Samples),
            live_arrays: trace
                .profiles()
                .any(|(_, profile)| profile.samples.is_jax_device_memory()),
            lightning_file: trace
                .profiles()
                .any(|(file, _)| file.spec.format == "lightning-report"),
            known_ops: false,
            host: tracks
                .iter()
                .any(|track| track.kind == TrackKind::Thread && !track.derived && track.slices > 0),
            python: false,
            actions: false,
            // A log of compilations has no operators.
            torch: is_of(trace, Producer::PyTorch) && trace.recordings().next().is_some()
                || has_torch_operators(trace),
            compile_log: has_compile_log(trace),
            // Looking into the files would slow the opening of every run. A device memory profile of JAX has none.
            programs: !trace.is_without_timeline()
                && [Producer::Jax, Producer::Xla, Producer::TensorFlow]
                    .iter()
                    .any(|producer| is_of(trace, *producer))
                || trace.has_added_programs()
                || trace.files().iter().any(|file| file.spec.format == "hlo"),
        };
        // One pass over the distinct names.
        trace.find_names(&mut |name| {
            found.see(name);
            false
        });
        found
    }

    fn see(&mut self, name: &str) {
        self.known_ops |=
            name.starts_with("aten::") || kineto::is_step(name) || name == "ThunkExecutor::Execute";
        self.memory |= matches!(
            name,
            kineto::MEMORY | "MemoryAllocation" | "MemoryDeallocation"
        );
        self.python |= kineto::is_python_function(name) || is_call(name);
        self.actions |= lightning_actions::is_action(name);
        // The most expensive test comes last and stops at the first match.
        self.collectives = self.collectives || may_be_collective(name);
    }

    /// Returns `Ok(Some(reason))` for partial availability.
    fn tool(self, page: &str) -> Result<Option<&'static str>, Missing> {
        match page {
            "reports" => Ok(None),
            "ops" if self.statistics => Ok(None),
            "calls" if self.host || self.callers || self.stack_samples => Ok(None),
            "calls" => Err(NO_CALLS),
            "graph" | "hlo-memory" if self.programs => Ok(None),
            "roofline" if self.programs || self.drawn && self.torch => Ok(None),
            "memory" if self.live_arrays => Ok(None),
            _ if !self.drawn => Err(NO_TIMES),
            "graph" | "hlo-memory" => Err(NO_PROGRAMS),
            "roofline" => Err(NO_WORK),
            "overview" if !(self.steps || self.queues || self.known_ops) => Ok(Some(
                "no steps, devices or operations are marked in this run",
            )),
            "kernels" if !self.queues => Err(NO_KERNELS),
            "memory" if !self.memory => Err(NO_MEMORY),
            "ranks" if !self.ranks && self.collectives => Ok(Some(
                "the run is of one process: its devices are compared, not ranks",
            )),
            "ranks" if !self.ranks => Err(ONE_RANK),
            _ => Ok(None),
        }
    }

    /// Like [`Self::tool`], for a report.
    fn report(self, kind: &str) -> Result<Option<&'static str>, Missing> {
        match lack_of(kind, None) {
            Lack::PythonFunctions if self.functions || self.drawn && self.python => Ok(None),
            Lack::PythonFunctions if self.drawn || self.statistics => Err(NO_PYTHON),
            Lack::Actions if self.lightning_file || self.drawn && self.actions => Ok(None),
            Lack::Actions if self.drawn || self.statistics => Err(NO_ACTIONS),
            Lack::Programs => self.tool("hlo-memory"),
            Lack::CompileLog if self.compile_log => Ok(None),
            Lack::CompileLog if self.drawn || self.statistics => Err(NO_COMPILE_LOG),
            Lack::StackSamples if self.stack_samples => Ok(None),
            Lack::StackSamples if self.drawn || self.statistics => Err(NO_SAMPLES),
            Lack::Memory if self.live_arrays => Ok(None),
            _ if !self.drawn => Err(NO_TIMES),
            Lack::FrameworkOps if !self.torch => Err(NO_OPERATORS),
            Lack::Kernels => self.tool("kernels"),
            Lack::Memory => self.tool("memory"),
            Lack::Ranks | Lack::Collectives => self.tool("ranks"),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{Dur, EventSink as _, Profile, ProfileRow, SliceIn, TrackPatch};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;
    use crate::tools::VIEW_TOOLS;

    /// Names of the reports that the run cannot fill.
    fn unfilled(trace: &Trace) -> Vec<&'static str> {
        let found = availability(trace, false);
        assert_eq!(found.reports.len(), KINDS.len());
        let reports = found.reports.into_iter();
        reports
            .filter(|(_, answer)| matches!(answer, Availability::Unavailable { .. }))
            .map(|(kind, _)| kind.name)
            .collect()
    }

    fn tool(trace: &Trace, id: &str) -> Availability {
        let found = availability(trace, false);
        let (_, answer) = found.tools.iter().find(|(tool, _)| tool.id == id).unwrap();
        *answer
    }

    /// A run with one slice on one host thread.
    fn thread_slice(name: &str) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        let track = sink.track("thread");
        let kind = Some(TrackKind::Thread);
        sink.describe(
            track,
            TrackPatch {
                kind,
                ..TrackPatch::default()
            },
        );
        let name = sink.name(name);
        sink.slice(
            track,
            SliceIn {
                name,
                dur: Dur::from_ps(5_000),
                ..SliceIn::default()
            },
        );
        builder.add(sink);
        builder.finish()
    }

    fn statistics_of(kind: ProfileKind, format: &str) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec {
            format: format.to_owned(),
            ..FileSpec::default()
        });
        sink.profile(Profile {
            kind,
            rows: vec![ProfileRow::default()],
            ..Profile::default()
        });
        builder.add(sink);
        builder.finish()
    }

    const DEVICE_REPORTS: [&str; 3] = ["kernels", "idle", "overlap"];
    const OTHERS: [&str; 10] = [
        "collectives",
        "ranks",
        "memory",
        "hlo-memory",
        "hlo-cost",
        "compilations",
        "torch-table",
        "lightning",
        "cprofile",
        "pprof",
    ];

    #[test]
    fn a_timeline_of_host_labels_fills_no_report_of_devices() {
        let trace = thread_slice("forward");
        assert_eq!(unfilled(&trace), [&DEVICE_REPORTS[..], &OTHERS].concat());
        assert_eq!(tool(&trace, "timeline"), Availability::Ready);
        assert!(matches!(
            tool(&trace, "roofline"),
            Availability::Unavailable { .. }
        ));
        assert!(matches!(
            tool(&trace, "overview"),
            Availability::Partial { .. }
        ));
    }

    #[test]
    fn names_on_the_timeline_make_reports_available() {
        let missing_with = |name: &str| unfilled(&thread_slice(name));
        assert!(!missing_with("$a.py:1 f").contains(&"cprofile"));
        assert!(!missing_with("[pl][profile]run_training_batch").contains(&"lightning"));
        assert!(!missing_with("gloo:all_reduce").contains(&"collectives"));
        assert_eq!(missing_with("x").len(), DEVICE_REPORTS.len() + OTHERS.len());
    }

    #[test]
    fn statistics_fill_the_reports_of_their_kind() {
        let all_but = |filled: &[&str]| -> Vec<&str> {
            let names = KINDS.iter().map(|kind| kind.name);
            names.filter(|name| !filled.contains(name)).collect()
        };
        let of_functions = statistics_of(ProfileKind::Functions, "pstats");
        assert_eq!(unfilled(&of_functions), all_but(&["cprofile"]));
        assert_eq!(tool(&of_functions, "ops"), Availability::Ready);
        assert!(matches!(
            tool(&of_functions, "timeline"),
            Availability::Unavailable { .. }
        ));
        let of_actions = statistics_of(ProfileKind::Actions, "lightning-report");
        assert_eq!(unfilled(&of_actions), all_but(&["lightning"]));
        let advanced = statistics_of(ProfileKind::Functions, "lightning-report");
        assert_eq!(unfilled(&advanced), all_but(&["lightning", "cprofile"]));
        let samples = statistics_of(ProfileKind::Samples, "pprof");
        assert_eq!(unfilled(&samples), all_but(&["pprof"]));
        assert_eq!(tool(&samples, "calls"), Availability::Ready);
        assert!(matches!(
            tool(&samples, "memory"),
            Availability::Unavailable { .. }
        ));
        assert_eq!(unfilled(&TraceBuilder::new().finish()), all_but(&[]));
    }

    #[test]
    fn tools_have_their_own_ids_letters_and_groups() {
        let mut letters: Vec<_> = TOOLS.iter().map(|tool| tool.letter.unwrap()).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), TOOLS.len());
        for tool in TOOLS.iter().chain(VIEW_TOOLS).chain(NEURON_TOOLS) {
            assert!(crate::tools::GROUPS.contains(&tool.group), "{}", tool.id);
            assert!(TOOLS.iter().any(|page| page.id == tool.page), "{}", tool.id);
        }
    }
}
