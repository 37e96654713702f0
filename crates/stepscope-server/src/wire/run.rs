//! Serialized runs, tracks and tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use stepscope_analysis::steps::StepReport;
use stepscope_engine::{RunProblem, RunState, RunSummary};
use stepscope_model::{Diagnostic, Profile, TrackKind};
use stepscope_report::availability::{Availability, RunAvailability, availability};
use stepscope_report::reports::Kind;
use stepscope_report::tools::Tool;
use stepscope_store::FactValue;

use crate::ns::Ns;
use crate::view::RunView;

/// One page of a list.
#[derive(Serialize)]
pub(crate) struct Page<T> {
    /// Length of the whole list.
    pub(crate) total: usize,
    /// Start of the next page.
    pub(crate) cursor: Option<String>,
    /// The field's name differs by list.
    #[serde(flatten)]
    pub(crate) list: T,
}

/// Files of a known format that this version cannot read.
#[derive(Serialize)]
pub(crate) struct NotReadable {
    count: usize,
    /// Names of the first files.
    files: Vec<String>,
}

impl NotReadable {
    /// Returns `None` if there are no such files; at most `named` files are named.
    pub(crate) fn new(paths: &[PathBuf], named: usize) -> Option<Self> {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        (!paths.is_empty()).then(|| Self {
            count: paths.len(),
            files: paths.iter().take(named).map(name).collect(),
        })
    }
}

/// A row of the run list.
#[derive(Serialize)]
pub(crate) struct RunRow {
    id: String,
    name: String,
    kinds: Vec<String>,
    hosts: Vec<String>,
    devices: u32,
    steps: Option<u64>,
    step_ns: Option<Ns>,
    duration_ns: Option<Ns>,
    profiles: Option<u64>,
    recorded_at: Option<String>,
    bytes: u64,
    state: &'static str,
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    error: Option<Problem>,
}

/// Why a run or a file could not be read.
#[derive(Serialize)]
pub(crate) struct Problem {
    file: String,
    reason: String,
    offset: Option<u64>,
    hint: Option<String>,
}

impl From<&RunProblem> for Problem {
    fn from(problem: &RunProblem) -> Self {
        Self {
            file: problem.file.clone(),
            reason: problem.reason.clone(),
            offset: problem.offset,
            hint: problem.hint.clone(),
        }
    }
}

/// Returns the name of a run's state.
pub(crate) fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Listed => "listed",
        RunState::Importing => "importing",
        RunState::Ready => "ready",
        RunState::Partial => "partial",
        RunState::Error => "error",
    }
}

impl RunRow {
    /// Converts a row of the run list.
    pub(crate) fn new(summary: RunSummary) -> Self {
        let importing = summary.state == RunState::Importing;
        Self {
            state: state_word(summary.state),
            progress: if importing {
                Some(if summary.progress.is_finite() {
                    summary.progress.clamp(0.0, 1.0)
                } else {
                    0.0
                })
            } else {
                None
            },
            phase: None,
            error: summary.error.as_ref().map(Problem::from),
            recorded_at: summary.recorded_unix_ns.map(rfc3339),
            id: summary.id,
            name: summary.name,
            kinds: summary.kinds,
            hosts: summary.hosts,
            devices: summary.devices,
            steps: summary.steps,
            step_ns: summary.step_ns.and_then(Ns::from_f64),
            duration_ns: summary.duration_ns.and_then(Ns::from_f64),
            profiles: summary.profiles,
            bytes: summary.bytes,
        }
    }

    /// Returns the response for a run that is being imported.
    pub(crate) fn importing(summary: RunSummary, phase: Option<&'static str>) -> Self {
        let row = Self::new(summary);
        Self {
            state: "importing",
            progress: Some(row.progress.unwrap_or(0.0)),
            phase: Some(phase.unwrap_or("Reading")),
            error: None,
            ..row
        }
    }
}

/// Formats UTC with milliseconds.
pub(crate) fn rfc3339(unix_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    time.strftime("%FT%T%.3fZ").to_string()
}

/// All details of a run.
#[derive(Serialize)]
pub(crate) struct RunDetail {
    id: String,
    name: String,
    state: &'static str,
    kinds: Vec<String>,
    content_hash: String,
    start_unix_ns: Option<String>,
    origin_ns: String,
    duration_ns: Ns,
    view: Window,
    hosts: Vec<String>,
    ranks: Vec<u32>,
    devices: Vec<Device>,
    modules: Vec<Module>,
    steps: Steps,
    timeline: bool,
    profiles: Vec<ProfileRow>,
    clock: Clock,
    sources: Vec<Source>,
    counts: Counts,
    tools: Vec<ToolRow>,
    reports: Vec<ReportRow>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct Window {
    t0: Ns,
    t1: Ns,
    /// Number of events outside of `fit`.
    outside: u64,
    labels_only: bool,
}

#[derive(Serialize)]
struct Device {
    index: u32,
    name: Option<String>,
    host: Option<String>,
}

#[derive(Serialize)]
struct Module {
    name: String,
    program_id: Option<String>,
}

/// Statistics without a timeline.
#[derive(Serialize)]
struct ProfileRow {
    name: String,
    stage: String,
    kind: &'static str,
    rank: Option<u32>,
    rows: usize,
    calls: Option<u64>,
    total_ns: Option<Ns>,
}

impl From<&Profile> for ProfileRow {
    fn from(profile: &Profile) -> Self {
        Self {
            name: profile.name.clone(),
            stage: profile.stage.clone(),
            kind: profile.kind.code(),
            rank: profile.rank,
            rows: profile.rows.len(),
            calls: profile.calls,
            total_ns: profile
                .total_s
                .and_then(|seconds| Ns::from_f64(seconds * 1e9)),
        }
    }
}

#[derive(Serialize)]
struct Steps {
    count: u64,
    ranks: usize,
    source: Option<&'static str>,
}

#[derive(Serialize)]
struct Clock {
    aligned: bool,
    error_ns: Option<Ns>,
}

#[derive(Serialize)]
struct Source {
    path: String,
    format: String,
    bytes: u64,
    events: u64,
    host: Option<String>,
    rank: Option<u32>,
    facts: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Counts {
    slices: u64,
    instants: u64,
    samples: u64,
    flows: u64,
    tracks: usize,
    names: usize,
}

/// A page of the viewer and its availability for the run.
#[derive(Serialize)]
struct ToolRow {
    id: &'static str,
    page: &'static str,
    title: &'static str,
    group: &'static str,
    aliases: &'static [&'static str],
    #[serde(flatten)]
    answer: AvailabilityFields,
}

impl ToolRow {
    fn new((tool, answer): (&'static Tool, Availability)) -> Self {
        Self {
            id: tool.id,
            page: tool.page,
            title: tool.title,
            group: tool.group,
            aliases: tool.aliases,
            answer: answer.into(),
        }
    }
}

/// A report and its availability for the run.
#[derive(Serialize)]
struct ReportRow {
    name: &'static str,
    #[serde(flatten)]
    answer: AvailabilityFields,
}

impl ReportRow {
    fn new((kind, answer): (&'static Kind, Availability)) -> Self {
        Self {
            name: kind.name,
            answer: answer.into(),
        }
    }
}

#[derive(Serialize)]
struct AvailabilityFields {
    state: &'static str,
    reason: Option<&'static str>,
    hint: Option<&'static str>,
}

impl From<Availability> for AvailabilityFields {
    fn from(answer: Availability) -> Self {
        let (state, reason, hint) = match answer {
            Availability::Ready => ("ready", None, None),
            Availability::Partial { reason } => ("partial", Some(reason), None),
            Availability::Unavailable { reason, hint } => ("unavailable", Some(reason), hint),
        };
        Self {
            state,
            reason,
            hint,
        }
    }
}

/// A message about the run's quality for the user.
#[derive(Serialize)]
pub(crate) struct Warning {
    code: &'static str,
    severity: &'static str,
    title: &'static str,
    detail: String,
    details: Vec<String>,
    count: u64,
    action: &'static str,
}

/// Maximum number of texts of one warning.
const MAX_DETAILS: usize = 20;

impl RunDetail {
    /// Collects all details of a run.
    pub(crate) fn new(view: &RunView) -> Self {
        let run = &view.run;
        let trace = &run.trace;
        let clock = view.clock();
        let span = view.span();
        let fit = view.fit();
        let epoch = trace.epoch();
        let start_ns = clock.start().floor_ns();
        let files = trace.files();
        let hosts: std::collections::BTreeSet<&String> = files
            .iter()
            .map(|file| &file.spec.host)
            .filter(|host| !host.is_empty())
            .collect();
        let ranks: std::collections::BTreeSet<u32> =
            files.iter().filter_map(|file| file.spec.rank).collect();
        let modules = files
            .iter()
            .flat_map(|file| &file.modules)
            .map(|(name, program)| (name.clone(), *program))
            .collect::<std::collections::BTreeSet<_>>();
        let unaligned = trace
            .diagnostics()
            .iter()
            .any(|count| count.what == Diagnostic::UnalignedClock);
        let steps = run.steps();
        let tracks = trace.tracks();
        let sum = |count: fn(&stepscope_store::Track) -> u32| {
            tracks.iter().map(|track| u64::from(count(track))).sum()
        };
        let RunAvailability { tools, reports } = availability(trace, !steps.steps.is_empty());
        Self {
            id: run.id.clone(),
            name: run.name.clone(),
            state: if run.is_partial() { "partial" } else { "ready" },
            kinds: run.kinds.clone(),
            content_hash: view.tag().to_owned(),
            start_unix_ns: epoch
                .unix_ns
                .map(|unix| unix.saturating_add(start_ns).to_string()),
            origin_ns: epoch.origin_ns.saturating_add(start_ns).to_string(),
            duration_ns: clock.show(span.end),
            view: Window {
                t0: clock.show(fit.start),
                t1: clock.show(fit.end),
                outside: view.outside(),
                labels_only: view.labels_only(),
            },
            hosts: hosts.into_iter().cloned().collect(),
            ranks: ranks.into_iter().collect(),
            devices: devices(view),
            modules: modules
                .into_iter()
                .map(|(name, program)| Module {
                    name,
                    program_id: program.map(|id| id.to_string()),
                })
                .collect(),
            steps: Steps {
                count: steps.count(),
                ranks: steps.ranks(),
                source: source_of(steps),
            },
            timeline: !trace.is_without_timeline(),
            profiles: trace.profiles().map(|(_, one)| one.into()).collect(),
            clock: Clock {
                aligned: !unaligned,
                error_ns: None,
            },
            sources: sources(view),
            counts: Counts {
                slices: trace.slice_count(),
                instants: sum(|track| track.instants),
                samples: sum(|track| track.samples),
                flows: trace.flow_count(),
                tracks: tracks
                    .iter()
                    .filter(|track| track.kind != TrackKind::Group)
                    .count(),
                names: trace.name_count(),
            },
            tools: tools.into_iter().map(ToolRow::new).collect(),
            reports: reports.into_iter().map(ReportRow::new).collect(),
            warnings: warnings(view),
        }
    }
}

/// Returns the source of the steps; `None` without steps.
pub(crate) fn source_of(steps: &StepReport) -> Option<&'static str> {
    match (&steps.derived, steps.steps.is_empty()) {
        (_, true) => None,
        (Some(_), _) => Some("derived"),
        (None, _) => Some("recorded"),
    }
}

fn none_if_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn devices(view: &RunView) -> Vec<Device> {
    let trace = &view.run.trace;
    let mut found: BTreeMap<(usize, u32), Option<String>> = BTreeMap::new();
    for track in trace.tracks() {
        if let Some(index) = track.device {
            found.entry((track.file, index)).or_default();
        }
    }
    for (file, facts) in trace.files().iter().enumerate() {
        for (key, value) in &facts.facts {
            let index = key
                .strip_prefix("device.")
                .and_then(|rest| rest.strip_suffix(".name"))
                .and_then(|index| index.parse().ok());
            if let (Some(index), FactValue::Text(name)) = (index, value) {
                found.insert((file, index), Some(name.clone()));
            }
        }
    }
    found
        .into_iter()
        .map(|((file, index), name)| Device {
            index,
            name,
            host: trace
                .files()
                .get(file)
                .and_then(|file| none_if_empty(&file.spec.host)),
        })
        .collect()
}

fn sources(view: &RunView) -> Vec<Source> {
    let trace = &view.run.trace;
    let mut instants = vec![0_u64; trace.files().len()];
    for track in trace.tracks() {
        if let Some(sum) = instants.get_mut(track.file) {
            *sum += u64::from(track.instants);
        }
    }
    trace
        .files()
        .iter()
        .zip(instants)
        .map(|(file, instants)| Source {
            path: file.spec.path.clone(),
            format: file.spec.format.clone(),
            bytes: file.spec.bytes,
            events: file.slices + file.async_slices + file.derived_slices + instants,
            host: none_if_empty(&file.spec.host),
            rank: file.spec.rank,
            facts: file
                .facts
                .iter()
                .map(|(key, value)| (key.clone(), fact(value)))
                .collect(),
        })
        .collect()
}

fn fact(value: &FactValue) -> serde_json::Value {
    match value {
        FactValue::Int(value) => super::event::whole(i128::from(*value)),
        FactValue::Uint(value) => super::event::whole(i128::from(*value)),
        FactValue::Double(value) => super::event::real(*value),
        FactValue::Bool(value) => (*value).into(),
        FactValue::Text(text) => text.clone().into(),
    }
}

fn warnings(view: &RunView) -> Vec<Warning> {
    let trace = &view.run.trace;
    let several = trace.files().len() > 1;
    let mut found: BTreeMap<Diagnostic, (u64, Vec<String>)> = BTreeMap::new();
    for count in trace.diagnostics() {
        let entry = found.entry(count.what).or_default();
        entry.0 = entry.0.saturating_add(count.count);
        let file = count.file.and_then(|file| trace.files().get(file));
        entry
            .1
            .extend(count.details.iter().map(|detail| match file {
                Some(file) if several => format!("{}: {detail}", file.spec.path),
                _ => detail.clone(),
            }));
    }
    for problem in &view.run.problems {
        let entry = found.entry(Diagnostic::FileUnreadable).or_default();
        let text = format!("{}: {}", problem.file, problem.reason);
        if !entry.1.contains(&text) {
            entry.0 = entry.0.saturating_add(1);
            entry.1.push(text);
        }
    }
    let mut out: Vec<(stepscope_model::Severity, Warning)> = found
        .into_iter()
        .map(|(what, (count, mut details))| {
            details.truncate(MAX_DETAILS);
            let warning = Warning {
                code: what.code(),
                severity: what.severity().as_str(),
                title: what.title(),
                detail: match &*details {
                    [only] => only.clone(),
                    _ => String::new(),
                },
                details,
                count,
                action: what.advice(),
            };
            (what.severity(), warning)
        })
        .collect();
    // Most severe first; within a severity in the order of the list of diagnostics.
    out.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    out.into_iter().map(|(_, warning)| warning).collect()
}

/// A track.
#[derive(Serialize)]
pub(crate) struct TrackRow {
    id: u32,
    key: String,
    parent: Option<u32>,
    name: String,
    kind: &'static str,
    role: &'static str,
    rows: u16,
    overlap_rows: u16,
    events: u64,
    busy_ns: Option<Ns>,
    first_ns: Option<Ns>,
    last_ns: Option<Ns>,
    unit: Option<String>,
    host: Option<String>,
    rank: Option<u32>,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    derived: bool,
    hidden: bool,
}

/// Number of threads above which quiet ones are hidden.
const MANY_THREADS: usize = 24;
/// Maximum number of events of a track that only has marks of a profiler.
const MOST_MARKS: u64 = 4;

/// Returns whether a track has only a profiler's own marks, like `Spans`, `Traces` and `global` of
/// torch's files: a few events without process, thread and device.
fn is_bookkeeping(track: &stepscope_store::Track) -> bool {
    track.kind == TrackKind::Thread
        && track.pid.is_none()
        && track.tid.is_none()
        && track.device.is_none()
        && u64::from(track.slices) + u64::from(track.instants) <= MOST_MARKS
}

/// Returns all tracks in display order.
pub(crate) fn tracks(view: &RunView) -> Vec<TrackRow> {
    let trace = &view.run.trace;
    let all = trace.tracks();
    let clock = view.clock();
    let threads = all
        .iter()
        .filter(|track| track.kind == TrackKind::Thread && track.slices > 0);
    let many = threads.count() > MANY_THREADS;
    let run_ps = view.span().end.since(view.span().start).ps();
    let has_more = |track: &stepscope_store::Track| {
        track.slices + track.instants > 0 && !is_bookkeeping(track)
    };
    let has_more = all.iter().any(has_more);
    // Hidden: profiler marks, and of many threads those busy for less than a thousandth of the run.
    let hidden: Vec<bool> = all
        .iter()
        .map(|track| match track.kind {
            TrackKind::Counter => track.samples == 0,
            TrackKind::Group => false,
            kind => {
                let empty = track.slices == 0 && track.instants == 0;
                let quiet = many
                    && kind == TrackKind::Thread
                    && track.slices < 64
                    && track.busy.ps() < run_ps / 1_000;
                empty || quiet || (has_more && is_bookkeeping(track))
            }
        })
        .collect();
    let mut out = Vec::with_capacity(all.len());
    for &id in view.order() {
        let Some(track) = all.get(id.index()) else {
            continue;
        };
        let has_slices = track.slices > 0;
        let role = role(track.kind);
        let kind = match track.kind {
            TrackKind::Group => "group",
            TrackKind::Counter => "counter",
            _ if !has_slices && track.instants > 0 => "instant",
            _ => "slices",
        };
        let events = if track.kind == TrackKind::Counter {
            u64::from(track.samples)
        } else {
            u64::from(track.slices) + u64::from(track.instants)
        };
        let extent = view.extent(id);
        let file = trace.files().get(track.file);
        // A group is hidden if all its tracks are hidden.
        let hidden = match track.kind {
            TrackKind::Group => view
                .subtree(id)
                .iter()
                .filter(|&&below| !matches!(all[below.index()].kind, TrackKind::Group))
                .all(|below| hidden[below.index()]),
            _ => hidden[id.index()],
        };
        out.push(TrackRow {
            id: id.0,
            key: track.key.clone(),
            parent: track.parent.map(|parent| parent.0),
            name: track.name.clone(),
            kind,
            role,
            rows: if has_slices {
                track.rows
            } else {
                u16::from(track.instants > 0)
            },
            overlap_rows: track.overflow_rows,
            events,
            busy_ns: has_slices.then(|| Ns::from_dur(track.busy)),
            first_ns: extent.as_ref().map(|extent| clock.show(extent.start)),
            last_ns: extent.as_ref().map(|extent| clock.show(extent.end)),
            unit: track.unit.clone(),
            host: file.and_then(|file| none_if_empty(&file.spec.host)),
            rank: file.and_then(|file| file.spec.rank),
            pid: track.pid,
            tid: track.tid,
            device: track.device,
            stream: track.stream,
            derived: track.derived,
            hidden,
        });
    }
    out
}

fn role(kind: TrackKind) -> &'static str {
    match kind {
        TrackKind::Group => "group",
        TrackKind::DeviceQueue => "queue",
        TrackKind::Async => "async",
        TrackKind::Counter => "counter",
        TrackKind::Steps => "steps",
        _ => "thread",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696_789, "2000-02-29T12:34:56.789Z"),
            (1_795_269_731_123, "2026-11-21T14:02:11.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms * 1_000_000), expected);
        }
    }
}
