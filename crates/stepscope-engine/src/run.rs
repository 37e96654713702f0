//! A run: its summary (from names only) and its opened form.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::steps::StepReport;
use stepscope_model::Severity;
use stepscope_report::report::html::{self, Head, HtmlReport};
use stepscope_report::report::{self, Report};
use stepscope_report::reports::{self, Kind, Options, ReportError};
use stepscope_store::Trace;

use crate::error::{EngineError, RunProblem};
use crate::found_run::FoundRun;

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Found in a directory, not opened.
    Listed,
    /// Being read.
    Importing,
    /// Open.
    Ready,
    /// Open, but some of its content could not be read.
    Partial,
    /// The run could not be opened.
    Error,
}

/// One row of the run list. Cheap: created from directory entries, completed when the run is
/// opened.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// Stable, URL-safe id, derived from the path relative to the watched directory.
    pub id: String,
    /// `SUBRUN/SESSION` or the file's name.
    pub name: String,
    /// Badges: JAX, PyTorch, XLA, NEURON, Lightning, Rust, Python, Chrome, Perfetto, TensorFlow.
    pub kinds: Vec<String>,
    /// One host per file; from the names until the run is opened.
    pub hosts: Vec<String>,
    /// Number of accelerators; 0 until the run is opened.
    pub devices: u32,
    /// Finished steps, marked or derived, of the rank with the most steps
    /// ([`StepReport::count`](stepscope_analysis::steps::StepReport::count)); `None` until the run
    /// is opened, or if it has no steps.
    pub steps: Option<u64>,
    /// Median step time in nanoseconds.
    pub step_ns: Option<f64>,
    /// Time between the first and the last event; `None` until the run is opened, or if it has no
    /// timeline.
    pub duration_ns: Option<f64>,
    /// Number of statistics without a timeline; `None` until the run is opened.
    pub profiles: Option<u64>,
    /// Unix time of the recording; from names and files until the run is opened.
    pub recorded_unix_ns: Option<i64>,
    /// Total size of its files on disk.
    pub bytes: u64,
    /// See [`RunState`].
    pub state: RunState,
    /// Progress of the import, 0 to 1.
    pub progress: f64,
    /// The reason if the state is an error, otherwise the first problem.
    pub error: Option<RunProblem>,
    /// Its trace files.
    pub files: Vec<PathBuf>,
}

/// An opened run.
pub struct Run {
    /// See [`RunSummary::id`].
    pub id: String,
    /// See [`RunSummary::name`].
    pub name: String,
    /// See [`RunSummary::kinds`].
    pub kinds: Vec<String>,
    /// The recorded events.
    pub trace: Arc<Trace>,
    /// Content hash in hexadecimal digits. Computed from the bytes of the run's files (for files
    /// above 64 MiB: the length, both ends and 256 samples between them), independent of their
    /// names and times: a copy of a run has the same hash.
    pub content_hash: String,
    /// Files that were unreadable, completely or in part.
    pub problems: Vec<RunProblem>,
    /// Whether it was loaded from the import cache.
    pub from_cache: bool,
    /// Its trace files.
    pub files: Vec<PathBuf>,
    /// Files next to the trace files that hold the same events in another format; not read.
    pub companions: Vec<PathBuf>,
    /// Its steps, computed on first use.
    pub(crate) steps: OnceLock<StepReport>,
    /// Its reports, computed on first use.
    pub(crate) reports: ReportCache,
}

/// The reports that a run has computed, least recently used first.
#[derive(Default)]
pub(crate) struct ReportCache(Mutex<Vec<(ReportKey, Arc<Report>)>>);

/// Kind and options of a report.
type ReportKey = (&'static str, Options);

/// Maximum number of reports in memory per run: a few pages of the viewer, at a few ranges each.
const MAX_REPORTS: usize = 64;

impl ReportCache {
    fn get(&self, key: &ReportKey) -> Option<Arc<Report>> {
        let mut reports = self.lock();
        let index = reports.iter().position(|(known, _)| known == key)?;
        let used = reports.remove(index);
        let report = Arc::clone(&used.1);
        reports.push(used);
        Some(report)
    }

    fn insert(&self, key: ReportKey, report: Arc<Report>) {
        let mut reports = self.lock();
        if reports.len() >= MAX_REPORTS {
            reports.remove(0);
        }
        reports.push((key, report));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ReportKey, Arc<Report>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// Creates a run from a trace in memory, without files. For benchmarks.
    #[doc(hidden)]
    pub fn from_trace(name: &str, trace: Arc<Trace>) -> Self {
        Self {
            id: name.to_owned(),
            name: name.to_owned(),
            kinds: Vec::new(),
            trace,
            content_hash: String::new(),
            problems: Vec::new(),
            from_cache: false,
            files: Vec::new(),
            companions: Vec::new(),
            steps: OnceLock::new(),
            reports: ReportCache::default(),
        }
    }

    /// Returns its steps and their times, marked or derived; all lists and pages of the run use
    /// these.
    pub fn steps(&self) -> &StepReport {
        self.steps
            .get_or_init(|| stepscope_analysis::steps::steps(&self.trace))
    }

    /// Returns the report of this kind, computed on first use and cached: a run does not change.
    ///
    /// Fails if the kind is unknown, if the options are invalid for it, or if `cancel` stops it.
    pub fn report(
        &self,
        kind: &str,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<Arc<Report>, ReportError> {
        let key = (reports::kind(kind)?.name, options.clone());
        if let Some(report) = self.reports.get(&key) {
            return Ok(report);
        }
        let report = Arc::new(reports::make(&self.trace, kind, options, cancel)?);
        self.reports.insert(key, Arc::clone(&report));
        Ok(report)
    }

    /// Returns reports as one self-contained HTML file: these kinds, or all of them if `kinds` is
    /// empty.
    ///
    /// Fails as [`report`](Self::report) does.
    pub fn page(
        &self,
        kinds: &[&str],
        options: &Options,
        cancel: &Cancel,
    ) -> Result<String, ReportError> {
        let chosen: Vec<&Kind> = if kinds.is_empty() {
            // The overview already contains the findings.
            let all = reports::KINDS.iter();
            all.filter(|kind| kind.name != "findings").collect()
        } else {
            let named = kinds.iter().map(|name| reports::kind(name));
            named.collect::<Result<_, _>>()?
        };
        let mut made = Vec::with_capacity(chosen.len());
        for kind in chosen {
            made.push((kind, self.report(kind.name, options, cancel)?));
        }
        let parts: Vec<HtmlReport<'_>> = made
            .iter()
            .map(|(kind, report)| HtmlReport {
                title: kind.title,
                question: kind.question,
                report,
            })
            .collect();
        Ok(html::page(&self.head(options), &parts))
    }

    fn head(&self, options: &Options) -> Head<'_> {
        let mut facts = Vec::new();
        if !self.kinds.is_empty() {
            facts.push(("kind".to_owned(), self.kinds.join(", ")));
        }
        let hosts: BTreeSet<&str> = self
            .trace
            .files()
            .iter()
            .map(|file| file.spec.host.as_str())
            .filter(|host| !host.is_empty())
            .collect();
        if !hosts.is_empty() {
            let hosts: Vec<&str> = hosts.into_iter().collect();
            facts.push(("hosts".to_owned(), hosts.join(", ")));
        }
        if let Some(range) = &options.range {
            let start = report::run_start(&self.trace);
            let at = |time| report::duration(report::since_start_ns(start, time));
            facts.push((
                "range".to_owned(),
                format!("{} to {}", at(range.start), at(range.end)),
            ));
        }
        for problem in &self.problems {
            let what = format!("{}: {}", problem.file, problem.reason);
            facts.push(("not whole".to_owned(), what));
        }
        Head {
            run: &self.name,
            facts,
        }
    }

    /// Returns whether the run has problems now, including files that changed since it was opened.
    pub fn is_partial(&self) -> bool {
        let lost =
            |count: &stepscope_store::DiagnosticCount| count.what.severity() > Severity::Notice;
        !self.problems.is_empty() || self.trace.diagnostics().iter().any(lost)
    }

    /// Returns the names of the accelerators that have tracks; if none has, those that the files
    /// list.
    pub fn devices(&self) -> Vec<String> {
        devices(&self.trace)
    }

    /// Returns the Unix time of the run's start, in nanoseconds.
    pub fn start_unix_ns(&self) -> Option<i64> {
        let unix_ns = self.trace.epoch().unix_ns?;
        Some(unix_ns.saturating_add(self.trace.span().start.floor_ns()))
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .field("content_hash", &self.content_hash)
            .field("problems", &self.problems)
            .field("from_cache", &self.from_cache)
            .finish_non_exhaustive()
    }
}

fn devices(trace: &Trace) -> Vec<String> {
    let mut named: Vec<(usize, u32, String)> = Vec::new();
    for (at, file) in trace.files().iter().enumerate() {
        for (key, value) in &file.facts {
            let ordinal = key
                .strip_prefix("device.")
                .and_then(|rest| rest.strip_suffix(".name"))
                .and_then(|ordinal| ordinal.parse().ok());
            if let (Some(ordinal), stepscope_store::FactValue::Text(name)) = (ordinal, value) {
                named.push((at, ordinal, name.clone()));
            }
        }
    }
    let mut used: Vec<(usize, u32)> = trace
        .tracks()
        .iter()
        .filter_map(|track| Some((track.file, track.device?)))
        .collect();
    used.sort_unstable();
    used.dedup();
    // A rank lists all accelerators of its machine; only those that it used have tracks.
    if used.is_empty() {
        named.sort();
        return named.into_iter().map(|device| device.2).collect();
    }
    used.into_iter()
        .map(|(file, ordinal)| {
            let file = trace.files().get(file);
            let name = file.and_then(|file| file.device_fact(ordinal, "name"));
            match name {
                Some(stepscope_store::FactValue::Text(name)) => name.clone(),
                _ => format!("device {ordinal}"),
            }
        })
        .collect()
}

/// Creates a summary from names only.
pub(crate) fn listed(found: &FoundRun) -> RunSummary {
    RunSummary {
        id: found.id.clone(),
        name: found.name.clone(),
        kinds: found.kinds.clone(),
        hosts: found
            .files
            .iter()
            .filter(|file| !found.is_programs_only() && !found.is_companion_log(file))
            .map(|file| crate::names::stem(&file.name).to_owned())
            .collect(),
        devices: 0,
        steps: None,
        step_ns: None,
        duration_ns: None,
        profiles: None,
        recorded_unix_ns: found.recorded_ns,
        bytes: found.bytes(),
        state: RunState::Listed,
        progress: 0.0,
        error: None,
        files: found.paths(),
    }
}

/// Creates the summary of an opened run.
pub(crate) fn summary_of(found: &FoundRun, run: &Run) -> RunSummary {
    let trace = &run.trace;
    let span = trace.span();
    let steps = run.steps();
    RunSummary {
        kinds: run.kinds.clone(),
        hosts: trace
            .files()
            .iter()
            .zip(&found.files)
            .filter(|(_, file)| !found.is_programs_only() && !found.is_companion_log(file))
            .map(|(facts, _)| facts.spec.host.clone())
            .collect(),
        devices: u32::try_from(run.devices().len()).unwrap_or(u32::MAX),
        steps: Some(steps.count()).filter(|count| *count > 0),
        step_ns: steps.times.p50_ns,
        duration_ns: (!trace.is_without_timeline()).then(|| span.end.since(span.start).as_ns_f64()),
        profiles: Some(trace.profiles().count() as u64),
        recorded_unix_ns: run.start_unix_ns().or(found.recorded_ns),
        state: state_of(run),
        progress: 1.0,
        error: run.problems.first().cloned(),
        ..listed(found)
    }
}

pub(crate) fn state_of(run: &Run) -> RunState {
    if run.is_partial() {
        RunState::Partial
    } else {
        RunState::Ready
    }
}

pub(crate) fn problem_of(found: &FoundRun, error: &EngineError) -> RunProblem {
    match error {
        EngineError::Unreadable { path, reason, hint } => RunProblem {
            file: path.clone(),
            reason: reason.clone(),
            offset: None,
            hint: hint.clone(),
        },
        other => RunProblem::new(&found.files[0].path, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::Time;

    use super::*;

    #[test]
    fn same_kind_and_options_return_the_report_in_memory() {
        let trace = Arc::new(stepscope_store::TraceBuilder::new().finish());
        let run = Run::from_trace("a", trace);
        let report = |options: &Options| run.report("steps", options, &Cancel::default()).unwrap();
        let options = Options::default();
        let first = report(&options);
        assert!(Arc::ptr_eq(&first, &report(&options)));
        let range = Options {
            range: Some(Time::ZERO..Time::MAX),
            ..Options::default()
        };
        assert!(!Arc::ptr_eq(&first, &report(&range)));
        for top in 1..MAX_REPORTS {
            report(&Options {
                top,
                ..Options::default()
            });
            // Used again and again, it outlives the others.
            assert!(Arc::ptr_eq(&first, &report(&options)));
        }
        assert_eq!(run.reports.lock().len(), MAX_REPORTS);
    }
}
