//! `stepscope info`: contents of a trace.
//!
//! The JSON form is stable (`docs/reference/info.md`): fields are added, never changed. Times are
//! written with all digits; a JSON number may have more digits than a float holds.

mod print;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use stepscope_engine::{EngineError, PathReport, Run, RunProblem, open_each};
use stepscope_model::{NameId, Profile, ReadContext, TrackId, TrackKind};
use stepscope_store::{FactValue, FileFacts, Trace, Track};

use crate::args;
use crate::error::{CliError, with_help};
use crate::progress::Progress;
use crate::text;

/// The complete output.
#[derive(Debug, Serialize)]
pub struct InfoReport {
    /// The path as the user gave it.
    pub path: String,
    /// Code of the format; `mixed` for several.
    pub format: String,
    /// One entry per run, sorted by name.
    pub runs: Vec<RunInfo>,
    /// Runs that could not be opened.
    pub errors: Vec<Problem>,
    /// Paths that could not be scanned: folders without permission, links to outside, pipes.
    pub problems: Vec<Problem>,
    /// Files of a known format that this version cannot read.
    pub not_readable: Vec<String>,
}

/// Why something is missing or incomplete.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// File or folder.
    pub file: String,
    /// The cause.
    pub reason: String,
    /// Offset of the error in the uncompressed data, bytes.
    pub offset: Option<u64>,
    /// What to do.
    pub hint: Option<String>,
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

/// A duration or timestamp in nanoseconds, printed with all digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos {
    ps: i128,
}

impl Nanos {
    /// Converts from picoseconds.
    pub fn from_ps(ps: i128) -> Self {
        Self { ps }
    }

    /// Converts to picoseconds.
    pub fn ps(self) -> i128 {
        self.ps
    }
}

impl std::fmt::Display for Nanos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.ps.unsigned_abs();
        let (whole, rest) = (size / 1_000, size % 1_000);
        if self.ps < 0 {
            f.write_str("-")?;
        }
        write!(f, "{whole}")?;
        if rest > 0 {
            let digits = format!("{rest:03}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

impl Serialize for Nanos {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.to_string();
        let number = RawValue::from_string(digits).map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

/// A run.
#[derive(Debug, Serialize)]
pub struct RunInfo {
    /// Id in addresses of the viewer.
    pub id: String,
    /// Name that the viewer shows.
    pub name: String,
    /// Kinds of the run, such as frameworks.
    pub kinds: Vec<String>,
    /// One host per file.
    pub hosts: Vec<String>,
    /// Known ranks, ascending.
    pub ranks: Vec<u32>,
    /// Names of the accelerators.
    pub devices: Vec<String>,
    /// Time from the first to the last event.
    pub duration_ns: Nanos,
    /// Unix time of the run start.
    pub start_unix_ns: Option<i64>,
    /// Number of finished steps, marked or derived, of the rank that has the most.
    pub steps: u64,
    /// Number of tracks with events.
    pub tracks: usize,
    /// Number of slices, without those of async tracks and derived ones.
    pub slices: u64,
    /// Number of slices on async tracks.
    pub async_slices: u64,
    /// Number of derived slices.
    pub derived_slices: u64,
    /// Number of instants.
    pub instants: u64,
    /// Number of counter samples.
    pub counters: u64,
    /// Number of flows with both ends.
    pub flows: u64,
    /// Earliest start of a slice on the file's own clock.
    pub first_ns: Option<Nanos>,
    /// Latest end of a slice on the file's own clock.
    pub last_ns: Option<Nanos>,
    /// Number of slices by the file's category.
    pub by_category: BTreeMap<String, u64>,
    /// Tracks with events, in the order of the viewer.
    pub track_list: Vec<TrackSummary>,
    /// Whether any event has a timestamp; statistics alone have none.
    pub timeline: bool,
    /// Statistics without a timeline.
    pub profiles: Vec<ProfileInfo>,
    /// Compiled programs.
    pub hlo_modules: Vec<String>,
    /// Warnings about the quality of the trace.
    pub warnings: Vec<WarningInfo>,
    /// Files that could not be read completely.
    pub problems: Vec<Problem>,
    /// The files with their metadata.
    pub files: Vec<FileInfo>,
    /// Files in the same folder with the same events in another format; not read.
    pub companions: Vec<String>,
    /// Hash of the content.
    pub content_hash: String,
}

/// A track with events.
#[derive(Debug, Serialize)]
pub struct TrackSummary {
    /// Key; stable for the same content.
    pub key: String,
    /// Displayed name.
    pub name: String,
    /// `thread`, `device`, `async`, `counter`, `steps` or `group`.
    pub kind: &'static str,
    /// Number of slices.
    pub events: u64,
    /// Number of instants.
    pub instants: u64,
    /// Number of counter samples.
    pub samples: u64,
    /// Union of its slices.
    pub busy_ns: Nanos,
    /// Key of the enclosing group.
    pub parent: Option<String>,
    /// Displayed name of the enclosing group.
    pub parent_name: Option<String>,
    /// Label of the file, if the run has several files; the keys contain the same.
    #[serde(skip)]
    pub host: Option<String>,
    /// The track is derived.
    pub derived: bool,
}

/// Statistics without a timeline: sums of functions, actions or operations.
#[derive(Debug, Serialize)]
pub struct ProfileInfo {
    /// The profiled part of the program; empty for the whole program.
    pub name: String,
    /// The trainer's stage; empty without one.
    pub stage: String,
    /// `functions`, `actions` or `operations`.
    pub kind: &'static str,
    /// Rank of the process on its machine.
    pub rank: Option<u32>,
    /// Number of rows.
    pub rows: usize,
    /// Number of rows before the writer omitted some.
    pub rows_before: Option<u64>,
    /// Total number of calls.
    pub calls: Option<u64>,
    /// Total time, seconds.
    pub total_s: Option<f64>,
    /// The writer rounded times to multiples of this, in seconds.
    pub rounded_to_s: Option<f64>,
    /// Path of the file.
    pub file: String,
}

/// A diagnostic.
#[derive(Debug, Serialize)]
pub struct WarningInfo {
    /// Stable code.
    pub code: &'static str,
    /// `notice`, `data-loss` or `error`.
    pub severity: &'static str,
    /// Number of occurrences.
    pub count: u64,
    /// The first locations, separated by `; `.
    pub detail: String,
    /// What it means.
    pub title: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// Path of the file; `null` for the run as a whole.
    pub file: Option<String>,
}

/// A file of a run.
#[derive(Debug, Serialize)]
pub struct FileInfo {
    /// Its path.
    pub path: String,
    /// Code of its format.
    pub format: String,
    /// Size on disk.
    pub bytes: u64,
    /// Its host.
    pub host: String,
    /// Its rank.
    pub rank: Option<u32>,
    /// Timestamp on its own clock at the run's time 0.
    pub origin_ns: i64,
    /// Number of slices.
    pub slices: u64,
    /// Metadata in the file.
    pub facts: BTreeMap<String, serde_json::Value>,
}

/// Runs the command.
pub fn run(asked: &args::Info, out: &mut dyn Write) -> Result<(), CliError> {
    let context = Arc::new(ReadContext::new(asked.reading.limits()));
    let progress = Progress::start(&context, stepscope_engine::expected_bytes(&asked.path));
    let (report, first_error, opened) = collect(&asked.path, &context, !asked.reading.no_cache)?;
    drop(progress);
    // If the only run cannot be opened, the command fails instead of printing an empty result.
    if let (true, Some(error)) = (report.runs.is_empty(), first_error) {
        return Err(if report.errors.len() == 1 {
            error.into()
        } else {
            CliError::failed(format!(
                "cannot open any of the {} runs in {}; the first: {}",
                report.errors.len(),
                report.path,
                with_help(&error)
            ))
        });
    }
    if asked.json {
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        out.write_all(text::clean_json(&text).as_bytes())?;
    } else {
        print::print(&report, text::width_of_terminal(), out)?;
    }
    out.flush()?;
    opened.flush_cache();
    Ok(())
}

/// Opens all runs at a path and describes them. Also returns the first error, and the opened path
/// whose cache must be flushed before the program ends.
pub fn collect(
    path: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
) -> Result<(InfoReport, Option<EngineError>, PathReport), EngineError> {
    let mut runs = Vec::new();
    let mut errors = Vec::new();
    let mut first_error = None;
    let report: PathReport = open_each(path, context, use_cache, &mut |opened| {
        match opened {
            Ok(run) => runs.push(run_info(&run)),
            Err((id, error)) => {
                errors.push(problem_of(&id, &error));
                first_error.get_or_insert(error);
            }
        }
        Ok(())
    })?;
    let formats: std::collections::BTreeSet<&str> = runs
        .iter()
        .flat_map(|run: &RunInfo| &run.files)
        .map(|file| file.format.as_str())
        .filter(|format| !format.is_empty())
        .collect();
    let format = match formats.len() {
        0 => "none".to_owned(),
        1 => formats.into_iter().collect(),
        _ => "mixed".to_owned(),
    };
    let info = InfoReport {
        path: stepscope_engine::shown_path(path),
        format,
        runs,
        errors,
        problems: report.problems.iter().map(Problem::from).collect(),
        not_readable: report
            .not_readable
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
    };
    Ok((info, first_error, report))
}

fn problem_of(id: &str, error: &EngineError) -> Problem {
    let (file, reason) = match error {
        EngineError::Unreadable { path, reason, .. } => (path.clone(), reason.clone()),
        other => (id.to_owned(), other.to_string()),
    };
    Problem {
        file,
        reason,
        offset: None,
        hint: error.hint().map(str::to_owned),
    }
}

/// Describes an opened run.
pub fn run_info(run: &Run) -> RunInfo {
    let trace = &*run.trace;
    let span = trace.core_span();
    let origin_ps = i128::from(trace.epoch().origin_ns) * 1_000;
    let own_clock = |ps: i64| Nanos::from_ps(origin_ps + i128::from(ps));
    let slice_span = trace.slice_span();
    let files = trace.files();
    let mut ranks: Vec<u32> = files.iter().filter_map(|file| file.spec.rank).collect();
    ranks.sort_unstable();
    let mut by_category = BTreeMap::new();
    for (category, count) in trace.by_category() {
        let key = if category == NameId::EMPTY {
            "None"
        } else {
            trace.name(category)
        };
        *by_category.entry(key.to_owned()).or_insert(0) += count;
    }
    let track_list: Vec<_> = trace
        .tracks()
        .iter()
        .filter(|track| track.slices > 0 || track.instants > 0 || track.samples > 0)
        .map(|track| track_info(trace, track))
        .collect();
    RunInfo {
        id: run.id.clone(),
        name: run.name.clone(),
        kinds: run.kinds.clone(),
        hosts: files
            .iter()
            .filter(|file| !file.is_compile_log() || trace.recordings().next().is_none())
            .map(|file| file.spec.host.clone())
            .collect(),
        ranks,
        devices: run.devices(),
        duration_ns: Nanos::from_ps(i128::from(span.end.since(span.start).ps())),
        start_unix_ns: run.start_unix_ns(),
        steps: run.steps().count(),
        tracks: track_list.len(),
        slices: files.iter().map(|file| file.slices).sum(),
        async_slices: files.iter().map(|file| file.async_slices).sum(),
        derived_slices: files.iter().map(|file| file.derived_slices).sum(),
        instants: track_list.iter().map(|track| track.instants).sum(),
        counters: track_list.iter().map(|track| track.samples).sum(),
        flows: trace.flow_count(),
        first_ns: slice_span.as_ref().map(|span| own_clock(span.start.ps())),
        last_ns: slice_span.as_ref().map(|span| own_clock(span.end.ps())),
        by_category,
        track_list,
        timeline: !trace.is_without_timeline(),
        profiles: trace
            .profiles()
            .map(|(file, profile)| profile_info(file, profile))
            .collect(),
        hlo_modules: modules(trace),
        warnings: warnings(trace),
        problems: run.problems.iter().map(Problem::from).collect(),
        files: files.iter().map(file_info).collect(),
        companions: run
            .companions
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        content_hash: run.content_hash.clone(),
    }
}

fn profile_info(file: &FileFacts, profile: &Profile) -> ProfileInfo {
    ProfileInfo {
        name: profile.name.clone(),
        stage: profile.stage.clone(),
        kind: profile.kind.code(),
        rank: profile.rank,
        rows: profile.rows.len(),
        rows_before: profile.rows_before,
        calls: profile.calls,
        total_s: profile.total_s,
        rounded_to_s: profile.rounded_to_s,
        file: file.spec.path.clone(),
    }
}

fn track_info(trace: &Trace, row: &Track) -> TrackSummary {
    let parent = |id: TrackId| trace.tracks().get(id.index());
    TrackSummary {
        key: row.key.clone(),
        name: row.name.clone(),
        kind: kind_word(row.kind),
        events: u64::from(row.slices),
        instants: u64::from(row.instants),
        samples: u64::from(row.samples),
        busy_ns: Nanos::from_ps(i128::from(row.busy.ps())),
        parent: row.parent.and_then(parent).map(|parent| parent.key.clone()),
        parent_name: row
            .parent
            .and_then(parent)
            .map(|parent| parent.name.clone()),
        host: host_label(trace, row),
        derived: row.derived,
    }
}

/// Returns the name of the outermost group around a track, in a run of several files.
fn host_label(trace: &Trace, row: &Track) -> Option<String> {
    if trace.files().len() < 2 {
        return None;
    }
    let mut outermost = None;
    let mut next = row.parent;
    while let Some(group) = next.and_then(|id| trace.tracks().get(id.index())) {
        outermost = Some(group);
        next = group.parent.filter(|parent| *parent != group.id);
    }
    outermost.map(|group| group.name.clone())
}

fn kind_word(kind: TrackKind) -> &'static str {
    match kind {
        TrackKind::Group => "group",
        TrackKind::DeviceQueue => "device",
        TrackKind::Async => "async",
        TrackKind::Counter => "counter",
        TrackKind::Steps => "steps",
        _ => "thread",
    }
}

fn modules(trace: &Trace) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, program_id) in trace.files().iter().flat_map(|file| &file.modules) {
        let shown = match program_id {
            Some(id) if !name.ends_with(&format!("({id})")) => format!("{name}({id})"),
            _ => name.clone(),
        };
        if !names.contains(&shown) {
            names.push(shown);
        }
    }
    names
}

fn warnings(trace: &Trace) -> Vec<WarningInfo> {
    trace
        .diagnostics()
        .iter()
        .map(|found| WarningInfo {
            code: found.what.code(),
            severity: found.what.severity().as_str(),
            count: found.count,
            detail: found.details.join("; "),
            title: found.what.title(),
            advice: found.what.advice(),
            file: found
                .file
                .and_then(|at| trace.files().get(at))
                .map(|file| file.spec.path.clone()),
        })
        .collect()
}

fn file_info(file: &FileFacts) -> FileInfo {
    FileInfo {
        path: file.spec.path.clone(),
        format: file.spec.format.clone(),
        bytes: file.spec.bytes,
        host: file.spec.host.clone(),
        rank: file.spec.rank,
        origin_ns: file.epoch.origin_ns,
        slices: file.slices,
        facts: file
            .facts
            .iter()
            .map(|(key, value)| (key.clone(), json_of(value)))
            .collect(),
    }
}

fn json_of(value: &FactValue) -> serde_json::Value {
    match value {
        FactValue::Int(value) => (*value).into(),
        FactValue::Uint(value) => (*value).into(),
        // JSON has no NaN.
        FactValue::Double(value) if !value.is_finite() => value.to_string().into(),
        FactValue::Double(value) => (*value).into(),
        FactValue::Bool(value) => (*value).into(),
        FactValue::Text(text) => text.as_str().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_keep_all_digits() {
        let shown = |ps| Nanos::from_ps(ps).to_string();
        assert_eq!(shown(1_752_181_589_621_105_859_000), "1752181589621105859");
        assert_eq!(shown(1_500), "1.5");
        assert_eq!(shown(-1), "-0.001");
        assert_eq!(shown(0), "0");
        let json = serde_json::to_string(&Nanos::from_ps(1_752_181_589_621_105_859_001)).unwrap();
        assert_eq!(json, "1752181589621105859.001");
    }
}
