//! Serialized details of a run.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_analysis::steps::StepReport;
use stepscope_model::{Diagnostic, Profile, TrackKind};
use stepscope_report::availability::{Availability, RunAvailability, availability};
use stepscope_report::reports::Kind;
use stepscope_report::tools::Tool;
use stepscope_store::FactValue;

use crate::ns::Ns;
use crate::view::RunView;

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

/// Returns the text unless it is empty.
pub(super) fn none_if_empty(text: &str) -> Option<String> {
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
