//! One run as a comparison needs it: its steps as samples, who owns their time, its memory, its environment.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHasher};
use stepscope_model::vocabulary::kineto::is_python_function;
use stepscope_model::{Cancelled, Diagnostic, Dur, Severity, Time};
use stepscope_store::{EventId, Trace};

use crate::collectives::{Clock, collectives};
use crate::compare::charge::{ChargedOwners, DetailOf, OwnerSums, break_down_and_charge};
use crate::compare::memory::{PeakHolder, peak};
use crate::compare::owner::{
    DEFAULT_PHASE, Owner, OwnerTime, Source, TraceOwner, module_around, stable_name,
};
use crate::findings::diagnose;
use crate::launch::Launches;
use crate::memory::Memory;
use crate::op_class::OpClass;
use crate::ops::framework_op_of;
use crate::ops::hlo::Catalogue;
use crate::parallel::{self, Cancel};
use crate::run_profile::{AnalysisScope, IterationRole, RunProfile, RunWindows};
use crate::steps::breakdown::AnalysisWindow;
use crate::steps::bucket::StepBucket;
use crate::steps::times::outlier_limit;
use crate::torch_args::input_shapes;
use crate::training_phase::TrainingPhase;

/// Fraction of a step above which its compilation excludes it.
const COMPILES: f64 = 0.01;
/// Owners below this fraction of the mean step have no times by step.
const LISTED: f64 = 0.001;

/// What separates operations of equal names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerDetail {
    /// Nothing.
    #[default]
    Name,
    /// Shapes of the inputs. Reads the arguments of every operation.
    Shapes,
    /// Shapes of the inputs, and the module around the call.
    Stack,
}

/// Why a step is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeftOut {
    /// It compiles.
    Compiles,
    /// One of the first, and longer than most.
    WarmUp,
    /// The first after a gap in the numbers: the recording was off before it.
    AfterGap,
    /// The profilers of frameworks did not record all of it, but recorded others.
    Unprofiled,
}

/// One finished step: of several ranks the longest of the same number.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedStep {
    /// Number given by the program.
    pub number: i64,
    /// Length, nanoseconds.
    pub length_ns: f64,
    /// Time by bucket, nanoseconds, in the order of [`StepBucket::ALL`].
    pub buckets_ns: [f64; 7],
    /// Why it is no sample; `None` if it is one.
    pub left_out: Option<LeftOut>,
    /// Whether it is far longer than most; it remains a sample.
    pub is_outlier: bool,
}

/// Total of a function or an action of a run that has no timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTotal {
    /// Name; with its file for functions.
    pub name: String,
    /// Number of calls.
    pub calls: f64,
    /// Its own time where the file has it, else its whole time, nanoseconds.
    pub time_ns: f64,
}

/// A diagnosed problem of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedFinding {
    /// Identifier of the cause.
    pub cause: String,
    /// Potential saving per step, nanoseconds; `None` where it is unknown.
    pub saving_ns: Option<f64>,
}

/// One run of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparedRun {
    /// Finished steps in the order of their start. Empty for a run without steps.
    pub steps: Vec<ComparedStep>,
    /// Whether no step qualified, so that all of them are samples.
    pub all_steps_left_out: bool,
    /// Whether the owners are those of the whole recording, for lack of steps.
    pub is_whole_recording: bool,
    /// Whether steps are derived from a repetition.
    pub derived_steps: bool,
    /// Mean of the samples, picoseconds: the sum of the times of the owners.
    pub mean_ps: i64,
    /// Owners of the time of the samples, in their order.
    pub owners: Vec<OwnerTime>,
    /// Totals of functions or actions, for a run without a timeline.
    pub totals: Vec<FunctionTotal>,
    /// Highest use of a device's memory, else of the host's, bytes.
    pub peak_memory_bytes: Option<f64>,
    /// What holds the memory then, in the order of the names; empty where the files do not say it.
    pub peak_holders: Vec<PeakHolder>,
    /// Number of ranks.
    pub ranks: u64,
    /// Model of each device.
    pub devices: Vec<String>,
    /// Facts of the files by key, each value once.
    pub environment: BTreeMap<String, Vec<String>>,
    /// Whether the recording has Python calls, shapes, memory events: they slow the host.
    pub recording: [bool; 3],
    /// Shapes of the heaviest operations, by name.
    pub heaviest_shapes: BTreeMap<String, String>,
    /// Device time whose launch is unknown, as a fraction of all.
    pub unlaunched_share: f64,
    /// How events were lost, with the number of occurrences.
    pub losses: Vec<(Diagnostic, u64)>,
    /// Largest possible error between the clocks of the ranks, nanoseconds; 0 for one file.
    pub clock_error_ns: f64,
    /// Findings, the first one first.
    pub findings: Vec<ComparedFinding>,
}

impl ComparedRun {
    /// Returns the steps that are samples.
    pub fn samples(&self) -> impl Iterator<Item = &ComparedStep> + Clone {
        let all = self.all_steps_left_out;
        self.steps
            .iter()
            .filter(move |step| all || step.left_out.is_none())
    }

    /// Reads a run. Cost: `n log n` in its slices.
    pub fn compute(
        trace: &Trace,
        scope: &AnalysisScope,
        detail: OwnerDetail,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let windows = RunWindows::find(trace, scope, cancel)?;
        let candidates = Candidates::find(&windows);
        let shapes = |event: EventId| {
            use std::hash::{Hash, Hasher};
            let mut hash = FxHasher::default();
            input_shapes(trace, event).hash(&mut hash);
            if detail == OwnerDetail::Stack {
                module_around(trace, event).hash(&mut hash);
            }
            hash.finish()
        };
        let nothing = |_: EventId| 0;
        let owner_detail: DetailOf<'_> = match detail {
            OwnerDetail::Name => &nothing,
            OwnerDetail::Shapes | OwnerDetail::Stack => &shapes,
        };
        let ((breakdown, charged), memory) = parallel::both(
            || break_down_and_charge(&windows, &candidates.chosen, owner_detail, cancel),
            || Memory::read(trace, cancel),
        )?;
        let profile = windows.profile(breakdown, cancel)?;
        // The usual steps stand for the run: its peak may lie before them.
        let limit = scope.numbers.as_ref();
        let within = limit.map(|_| spans(&profile.analysis_windows));
        let peak = peak(&memory, scope.rank, within.as_ref());
        let mut run = Self {
            totals: totals(trace),
            peak_memory_bytes: peak.as_ref().map(|(bytes, _)| *bytes),
            peak_holders: peak.map_or_else(Vec::new, |(_, holders)| holders),
            ranks: profile.steps.ranks().max(1) as u64,
            environment: environment(trace),
            derived_steps: profile.steps.derived.is_some(),
            is_whole_recording: !profile.has_steps(),
            losses: losses(trace),
            ..Self::default()
        };
        run.devices = profile
            .devices
            .list
            .iter()
            .filter(|device| scope.has_file(trace, device.file))
            .map(|device| device_model(trace, device.file, device.ordinal))
            .collect();
        if trace.files().len() > 1 && scope.rank.is_none() {
            let launches = Launches::from_trace(trace, &profile.devices, cancel)?;
            let matched = collectives(trace, &profile.devices, &launches, cancel)?;
            let errors = matched.clocks.iter().filter_map(Clock::arrival_error);
            run.clock_error_ns = errors.map(Dur::as_ns_f64).fold(0.0, f64::max);
        }
        let samples = run.add_steps(&profile, candidates);
        let sum = || {
            run.add_owners(&profile, &samples, &charged, detail);
            Ok(())
        };
        let ((), diagnosis) = parallel::both(sum, || diagnose(&profile, &memory, cancel))?;
        run.findings = diagnosis
            .findings
            .iter()
            .map(|finding| ComparedFinding {
                cause: finding.cause.as_str().to_owned(),
                saving_ns: finding.saving_ns.map(|ns| ns / diagnosis.steps),
            })
            .collect();
        let has_python_category = trace
            .by_category()
            .iter()
            .any(|(category, count)| *count > 0 && is_python_function(trace.name(*category)));
        // Calls that JAX's tracer and ours record.
        let has_python_name = || {
            !trace
                .find_names(&mut |name| name.starts_with('$'))
                .is_empty()
        };
        run.recording = [
            has_python_category || has_python_name(),
            !run.heaviest_shapes.is_empty(),
            !memory.records.is_empty(),
        ];
        Ok(run)
    }

    /// Fills the steps, and returns the windows whose time is charged, by their indexes: the samples, or the whole
    /// recording.
    fn add_steps(&mut self, profile: &RunProfile<'_>, candidates: Candidates) -> Vec<usize> {
        let Candidates {
            chosen,
            numbers,
            after_gap,
        } = candidates;
        if self.is_whole_recording {
            return chosen;
        }
        for index in &chosen {
            let parts = profile
                .breakdown
                .parts
                .get(*index)
                .copied()
                .unwrap_or_default();
            let length_ns = parts.sum().as_ns_f64();
            let role = profile.iterations[*index].role;
            let left_out = if role == IterationRole::Unprofiled {
                Some(LeftOut::Unprofiled)
            } else if parts.compile.as_ns_f64() > COMPILES * length_ns {
                Some(LeftOut::Compiles)
            } else if role == IterationRole::WarmUp {
                Some(LeftOut::WarmUp)
            } else {
                after_gap[*index].then_some(LeftOut::AfterGap)
            };
            self.steps.push(ComparedStep {
                number: numbers.get(*index).copied().unwrap_or_default(),
                length_ns,
                buckets_ns: parts.buckets().map(|(_, dur)| dur.as_ns_f64()),
                left_out,
                is_outlier: false,
            });
        }
        self.all_steps_left_out = self.steps.iter().all(|step| step.left_out.is_some());
        let mut lengths: Vec<Dur> = self.samples().map(|step| dur_of(step.length_ns)).collect();
        lengths.sort_unstable();
        if let Some(limit) = outlier_limit(&lengths) {
            for step in &mut self.steps {
                step.is_outlier = step.left_out.is_none() && step.length_ns > limit;
            }
        }
        let all = self.all_steps_left_out;
        let windows = chosen.into_iter().zip(&self.steps);
        windows
            .filter(|(_, step)| all || step.left_out.is_none())
            .map(|(index, _)| index)
            .collect()
    }

    /// Sums up the owners of windows, by their indexes, under names that do not depend on the run.
    fn add_owners(
        &mut self,
        profile: &RunProfile<'_>,
        samples: &[usize],
        charged: &[ChargedOwners],
        detail: OwnerDetail,
    ) {
        if samples.is_empty() {
            return;
        }
        let trace = profile.trace;
        let windows: Vec<&AnalysisWindow> = samples
            .iter()
            .map(|index| &profile.analysis_windows[*index])
            .collect();
        let positions = samples.iter().enumerate();
        let positions: FxHashMap<usize, usize> =
            positions.map(|(at, index)| (*index, at)).collect();
        // Position of each sample, with the owners of one device.
        let mut of_samples = Vec::new();
        for (part, charged) in charged.iter().enumerate() {
            let windows = charged.windows.iter();
            of_samples.extend(windows.filter_map(|(window, range)| {
                let position = *positions.get(window)?;
                Some((position, part, &charged.sums[range.clone()]))
            }));
        }
        of_samples.sort_by_key(|(window, ..)| *window);
        let names = Names {
            trace,
            catalogue: Catalogue::from_trace(trace),
            detail,
        };
        let mut devices = vec![0_i128; windows.len()];
        for (window, ..) in &of_samples {
            devices[*window] += 1;
        }
        // Texts are compared once for each owner of the trace, and owners once for each part, not for each window.
        let unknown = charged.iter().map(|part| vec![None; part.owners.len()]);
        let mut of_part: Vec<Vec<Option<usize>>> = unknown.collect();
        let mut known: FxHashMap<TraceOwner, usize> = FxHashMap::default();
        let mut positions: BTreeMap<Owner, usize> = BTreeMap::new();
        let mut all_sums: Vec<RunSums> = Vec::new();
        for (window, part, sums) in of_samples {
            let device_count = devices[window].max(1);
            for (owner, found) in sums {
                let owner = *owner as usize;
                let position = *of_part[part][owner].get_or_insert_with(|| {
                    let owner = charged[part].owners[owner];
                    *known.entry(owner).or_insert_with(|| {
                        let next = positions.len();
                        *positions.entry(names.owner(&owner, found)).or_insert(next)
                    })
                });
                if position == all_sums.len() {
                    all_sums.push(RunSums::default());
                }
                all_sums[position].add(found, window, device_count);
            }
        }
        let sums = positions.iter();
        let sums = sums.map(|(owner, position)| (owner, &all_sums[*position]));
        let length = |range: &Range<Time>| i128::from(range.end.since(range.start).ps().max(0));
        let count = windows.len() as i128;
        let all: i128 = windows.iter().map(|window| length(&window.range)).sum();
        self.mean_ps = i64::try_from(all / count).unwrap_or(i64::MAX);
        let (mut so_far, mut given, mut launched, mut device_all) = (0_i128, 0_i64, 0.0, 0.0);
        let mut heaviest: Vec<(i64, &Owner, EventId)> = Vec::new();
        let last = sums.len().saturating_sub(1);
        for (position, (owner, sum)) in sums.enumerate() {
            so_far += sum.own;
            // Cumulative sums are divided, so that the means add up to the mean step.
            let until = if position == last {
                self.mean_ps
            } else {
                i64::try_from((so_far >> FRACTION) / count).unwrap_or(i64::MAX)
            };
            let mean_ps = until.saturating_sub(given);
            given = until;
            let per_step = |sum: f64| sum / count as f64;
            let is_listed = mean_ps as f64 >= LISTED * self.mean_ps as f64;
            let mut by_step_ns = Vec::new();
            if is_listed && !self.is_whole_recording {
                by_step_ns = vec![0.0; windows.len()];
                for (window, ns) in &sum.by_window {
                    by_step_ns[*window] += ns;
                }
            }
            let is_listed = per_step(sum.device_ns) * 1e3 >= LISTED * self.mean_ps as f64;
            let mut device_by_step_ns = Vec::new();
            if is_listed && sum.device_ns > 0.0 && !self.is_whole_recording {
                device_by_step_ns = vec![0.0; windows.len()];
                for (window, ns) in &sum.device_by_window {
                    device_by_step_ns[*window] += ns;
                }
            }
            if owner.bucket.is_work() && !owner.kernel.is_empty() {
                device_all += sum.device_ns;
                if owner.operation != owner.kernel {
                    launched += sum.device_ns;
                }
            }
            if let Some(operation) = sum.operation.filter(|_| owner.bucket.is_work()) {
                heaviest.push((mean_ps, owner, operation));
            }
            self.owners.push(OwnerTime {
                owner: owner.clone(),
                calls: per_step(sum.calls),
                executions: per_step(sum.executions),
                mean_ps,
                device_ns: per_step(sum.device_ns),
                by_step_ns,
                device_by_step_ns,
            });
        }
        if device_all > 0.0 {
            self.unlaunched_share = 1.0 - launched / device_all;
        }
        heaviest.sort_by_key(|(mean_ps, owner, _)| (std::cmp::Reverse(*mean_ps), *owner));
        for (_, owner, operation) in heaviest.into_iter().take(10) {
            if let Some(shapes) = input_shapes(trace, operation) {
                let known = self.heaviest_shapes.entry(owner.operation.clone());
                known.or_insert(shapes);
            }
        }
    }
}

/// Returns the time from the first to the last window of each file.
fn spans(windows: &[AnalysisWindow]) -> BTreeMap<usize, Range<Time>> {
    let mut spans: BTreeMap<usize, Range<Time>> = BTreeMap::new();
    for window in windows {
        let range = &window.range;
        let span = spans.entry(window.file).or_insert_with(|| range.clone());
        *span = span.start.min(range.start)..span.end.max(range.end);
    }
    spans
}

/// The windows that may become samples.
struct Candidates {
    /// Their indexes, in the order of their start: of steps of the same number in several ranks the longest; the whole
    /// recording where there are no steps.
    chosen: Vec<usize>,
    /// Number of the step of each window of the run.
    numbers: Vec<i64>,
    /// Whether the recording was off before each window of the run.
    after_gap: Vec<bool>,
}

impl Candidates {
    fn find(run: &RunWindows<'_>) -> Self {
        let windows = &run.analysis_windows;
        let finished = run.steps.steps.iter().filter(|step| !step.unfinished);
        let numbers: Vec<i64> = finished.map(|step| step.number).collect();
        let mut after_gap: Vec<bool> = vec![false; windows.len()];
        if !run.has_steps() {
            return Self {
                chosen: (0..windows.len()).collect(),
                numbers,
                after_gap,
            };
        }
        let mut order: Vec<usize> = (0..windows.len()).collect();
        order.sort_by_key(|index| {
            let window = &windows[*index];
            (window.rank(), window.range.start)
        });
        // The same number again in a rank is another step.
        let mut longest: BTreeMap<(i64, u32), (usize, Dur)> = BTreeMap::new();
        for rank in order.chunk_by(|a, b| windows[*a].rank() == windows[*b].rank()) {
            let mut seen: FxHashMap<i64, u32> = FxHashMap::default();
            let mut before: Option<i64> = None;
            for index in rank {
                let Some(number) = numbers.get(*index).copied() else {
                    continue;
                };
                let is_next = |last: i64| last.checked_add(1) == Some(number) || last == number;
                after_gap[*index] = before.is_some_and(|last| !is_next(last));
                before = Some(number);
                let again = seen.entry(number).or_insert(0);
                let range = &windows[*index].range;
                let length = range.end.since(range.start);
                let best = longest.entry((number, *again)).or_insert((*index, length));
                if length > best.1 {
                    *best = (*index, length);
                }
                *again += 1;
            }
        }
        let mut chosen: Vec<usize> = longest.into_values().map(|(index, _)| index).collect();
        chosen.sort_by_key(|index| windows[*index].range.start);
        Self {
            chosen,
            numbers,
            after_gap,
        }
    }
}

/// Number of fractional bits of sums over devices.
const FRACTION: u32 = 20;

/// Sums of one owner over all windows.
#[derive(Default)]
struct RunSums {
    /// Picoseconds with [`FRACTION`] fractional bits, mean over the devices of each window.
    own: i128,
    calls: f64,
    executions: f64,
    device_ns: f64,
    by_window: Vec<(usize, f64)>,
    device_by_window: Vec<(usize, f64)>,
    operation: Option<EventId>,
}

impl RunSums {
    fn add(&mut self, found: &OwnerSums, window: usize, devices: i128) {
        self.own += (i128::from(found.own_ps) << FRACTION) / devices;
        let share = |sum: f64| sum / devices as f64;
        self.calls += share(found.calls as f64);
        self.executions += share(found.executions as f64);
        self.device_ns += share(Dur::from_ps(found.device_ps).as_ns_f64());
        let own_ns = share(Dur::from_ps(found.own_ps).as_ns_f64());
        let device_ns = share(Dur::from_ps(found.device_ps).as_ns_f64());
        for (sums, ns) in [
            (&mut self.by_window, own_ns),
            (&mut self.device_by_window, device_ns),
        ] {
            match sums.last_mut() {
                Some((last, sum)) if *last == window => *sum += ns,
                _ => sums.push((window, ns)),
            }
        }
        self.operation.get_or_insert(found.operation);
    }
}

/// Names of owners.
struct Names<'a> {
    trace: &'a Trace,
    catalogue: Catalogue,
    detail: OwnerDetail,
}

impl Names<'_> {
    fn owner(&self, owner: &TraceOwner, sums: &OwnerSums) -> Owner {
        let text = |name| stable_name(self.trace.name(name)).into_owned();
        let (operation, kernel, phase) = match owner.source {
            Source::Nothing => (String::new(), String::new(), owner.phase),
            Source::Host(name) => (text(name), String::new(), owner.phase),
            Source::Launched { operation, kernel } => (text(operation), text(kernel), owner.phase),
            Source::Device(_, kernel) => {
                let path = framework_op_of(self.trace, &self.catalogue, sums.example);
                let phase = path.as_deref().and_then(TrainingPhase::from_op_path);
                let kernel = text(kernel);
                let operation = path.map(|path| stable_name(&path).into_owned());
                let operation = operation.unwrap_or_else(|| kernel.clone());
                (operation, kernel, phase.unwrap_or(DEFAULT_PHASE))
            }
        };
        let class = match owner.bucket {
            StepBucket::ExposedCommunication => OpClass::Communication,
            StepBucket::ExposedCopy => OpClass::Copy,
            StepBucket::Compute => OpClass::from_names(&operation, &kernel),
            StepBucket::Input => OpClass::Input,
            StepBucket::Compile => OpClass::Compile,
            StepBucket::Host | StepBucket::Idle => OpClass::Host,
        };
        let known = self.trace.place_of_slice(sums.operation).is_some();
        let has_shapes = known && owner.bucket.is_work() && self.detail != OwnerDetail::Name;
        let has_module = has_shapes && self.detail == OwnerDetail::Stack;
        let shapes = has_shapes
            .then(|| input_shapes(self.trace, sums.operation))
            .flatten();
        let module = has_module
            .then(|| module_around(self.trace, sums.operation))
            .flatten();
        Owner {
            bucket: owner.bucket,
            class,
            operation,
            phase,
            kernel,
            module: module.unwrap_or_default().to_owned(),
            shapes: shapes.unwrap_or_default(),
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a length that was a whole number of picoseconds"
)]
fn dur_of(ns: f64) -> Dur {
    Dur::from_ps((ns * 1_000.0).round() as i64)
}

fn device_model(trace: &Trace, file: usize, ordinal: u32) -> String {
    let file = trace.files().get(file);
    let name = file.and_then(|file| file.device_fact(ordinal, "name"));
    name.map(ToString::to_string).unwrap_or_default()
}

/// Returns the key of a fact about one device of several as that of all: `device.3.name` becomes `device.name`.
fn without_device_number(key: &str) -> String {
    let parts = key
        .strip_prefix("device.")
        .and_then(|rest| rest.split_once('.'));
    match parts {
        Some((number, fact)) if number.parse::<u32>().is_ok() => format!("device.{fact}"),
        _ => key.to_owned(),
    }
}

fn environment(trace: &Trace) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in trace.files() {
        for (key, value) in &file.facts {
            let values = found.entry(without_device_number(key)).or_default();
            values.push(value.to_string());
        }
        found
            .entry("format".to_owned())
            .or_default()
            .push(file.spec.format.clone());
    }
    for values in found.values_mut() {
        values.sort_unstable();
        values.dedup();
    }
    found
}

/// Returns how the trace lost events. A few damaged times concern single events only.
fn losses(trace: &Trace) -> Vec<(Diagnostic, u64)> {
    let found = trace.diagnostics().iter().filter(|found| {
        let severity = found.what.severity();
        matches!(severity, Severity::DataLoss | Severity::Error)
            && found.what != Diagnostic::StrayTime
    });
    found.map(|found| (found.what, found.count)).collect()
}

/// Returns the totals of the statistics of a run, where it has no timeline.
fn totals(trace: &Trace) -> Vec<FunctionTotal> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let profiles = trace.files().iter().flat_map(|file| &file.profiles);
    for row in profiles.flat_map(|profile| &profile.rows) {
        let name = if row.file.is_empty() || &*row.file == "~" {
            row.name.to_string()
        } else {
            let file = row.file.rsplit(['/', '\\']).next().unwrap_or(&row.file);
            format!("{file}: {}", row.name)
        };
        let sum = sums.entry(name).or_default();
        sum.0 += row.calls.unwrap_or(0) as f64;
        sum.1 += row
            .self_s
            .or(row.total_s)
            .filter(|s| s.is_finite())
            .unwrap_or(0.0);
    }
    sums.into_iter()
        .map(|(name, (calls, seconds))| FunctionTotal {
            name,
            calls,
            time_ns: seconds * 1e9,
        })
        .collect()
}
