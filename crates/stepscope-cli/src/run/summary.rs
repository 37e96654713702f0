//! What `stepscope run` prints at the end: where the run is, its first finding, and how to view it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::Value;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::reports::Options;
use stepscope_engine::{Engine, EngineOptions};

use crate::args;
use crate::text::{self, shell_word};

/// Folder of the reports, in the folder of the command.
pub(super) const REPORTS: &str = "reports";
/// Runs of more bytes are not opened for their first finding: that takes minutes.
const MAX_OPENED_BYTES: u64 = 1 << 30;
/// Maximum number of lines about the processes.
const MAX_WARNINGS: usize = 8;
/// Reports are small; a larger file is not one.
const MAX_REPORT_BYTES: u64 = 1 << 20;
/// Times of files are those of the kernel's last tick, up to 10 ms ago.
const TICK_NS: i64 = 10_000_000;
/// Smallest slowdown by the profilers of frameworks that is printed.
const LEAST_SLOWDOWN: f64 = 0.01;

/// A process that recorded itself.
#[derive(Debug, Default, PartialEq)]
struct ProcessReport {
    /// The file; none if the process has not ended its recording.
    path: Option<PathBuf>,
    dropped: u64,
    warnings: Vec<String>,
    /// Files about memory.
    memory: Vec<PathBuf>,
    /// Why the process has not begun a recording.
    cause: Option<String>,
    /// Steps that were derived.
    steps: u64,
    /// Length of a step with the profilers of frameworks over the length without.
    source_slowdown: Option<f64>,
}

impl ProcessReport {
    fn from_json(json: &Value) -> Self {
        let count = |key: &str| json.get(key).and_then(Value::as_u64).unwrap_or(0);
        let texts = |key: &str| {
            let texts = json.get(key).and_then(Value::as_array);
            texts.into_iter().flatten().filter_map(Value::as_str)
        };
        Self {
            path: json.get("path").and_then(Value::as_str).map(PathBuf::from),
            dropped: count("dropped"),
            warnings: texts("warnings").map(str::to_owned).collect(),
            memory: texts("memory").map(PathBuf::from).collect(),
            cause: json.get("cause").and_then(Value::as_str).map(str::to_owned),
            steps: count("steps"),
            source_slowdown: json.get("source_slowdown").and_then(Value::as_f64),
        }
    }
}

/// Returns the lines to print. `folder` is the folder of the command.
/// The program began at `began_ns`, Unix time.
pub(super) fn lines(folder: &Path, asked: &args::RunArgs, began_ns: i64) -> Vec<String> {
    let reports = read_reports(&folder.join(REPORTS));
    let mut lines = Vec::new();
    let mut files: BTreeSet<PathBuf> = reports
        .iter()
        .filter_map(|report| report.path.clone())
        .collect();
    for session in sessions(&folder.join(REPORTS), &asked.logdir) {
        for run in stepscope_engine::recover(&session) {
            match run.file {
                Ok(file) => {
                    files.insert(file);
                }
                Err(error) => lines.push(error.to_string()),
            }
        }
        files.extend(written_since(&session, began_ns));
    }
    let runs = by_run(files);
    let Some((session, bytes)) = runs.iter().max_by_key(|(_, bytes)| **bytes) else {
        let reachable = super::check_writable(&folder.join(REPORTS));
        lines.push(nothing(&reports, reachable, &asked.logdir));
        lines.extend(warnings(&reports));
        return lines;
    };
    lines.insert(0, recorded(session, *bytes, runs.len(), &reports));
    if !asked.no_summary {
        lines.extend(first_finding(session, *bytes));
    }
    lines.extend(memory(&reports));
    lines.extend(slowdown(&reports));
    lines.extend(warnings(&reports));
    let logdir = asked.logdir.display().to_string();
    lines.push(format!("View it with: stepscope {}", shell_word(&logdir)));
    lines
}

fn read_reports(folder: &Path) -> Vec<ProcessReport> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let is_small = fs::metadata(path).is_ok_and(|file| file.len() <= MAX_REPORT_BYTES);
        let text = is_small.then(|| fs::read_to_string(path).ok()).flatten()?;
        Some(ProcessReport::from_json(&serde_json::from_str(&text).ok()?))
    };
    paths.iter().filter_map(read).collect()
}

/// Lists the folders below the log directory that processes of the command have recorded into.
fn sessions(reports: &Path, logdir: &Path) -> BTreeSet<PathBuf> {
    let logdir = std::path::absolute(logdir).unwrap_or_else(|_| logdir.to_owned());
    let entries = fs::read_dir(reports).into_iter().flatten().flatten();
    let notes = entries.map(|entry| entry.path()).filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "session")
    });
    let read = |note: PathBuf| {
        let mut session = Vec::new();
        let file = fs::File::open(note).ok()?;
        file.take(MAX_REPORT_BYTES).read_to_end(&mut session).ok()?;
        Some(PathBuf::from(OsString::from_vec(session)))
    };
    notes
        .filter_map(read)
        .filter(|session| session.starts_with(&logdir))
        .collect()
}

/// Lists the files of a session that were written since then. Programs that record themselves leave no report, and
/// neither do workers.
fn written_since(session: &Path, began_ns: i64) -> Vec<PathBuf> {
    let began_ns = u128::try_from(began_ns - TICK_NS).unwrap_or(0);
    let is_new = |file: &PathBuf| {
        let written = fs::metadata(file).and_then(|file| file.modified()).ok();
        let since_1970 = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since_1970.is_some_and(|time| time.as_nanos() >= began_ns)
    };
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let recordings = files.filter(|file| file.to_string_lossy().ends_with(".xplane.pb"));
    recordings.filter(is_new).collect()
}

/// Sums the bytes of each run, by its folder.
fn by_run(files: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, u64> {
    let mut runs: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for file in files {
        let bytes = fs::metadata(&file).map_or(0, |file| file.len());
        if let Some(session) = file.parent() {
            *runs.entry(session.to_owned()).or_default() += bytes;
        }
    }
    runs
}

/// Explains why there is no run. `reachable`: whether processes can leave reports.
fn nothing(reports: &[ProcessReport], reachable: io::Result<()>, logdir: &Path) -> String {
    if let (Err(error), true) = (reachable, reports.is_empty()) {
        return format!(
            "cannot find what was recorded: {}: {error}\nhelp: free space there, or set TMPDIR to another directory; \
            what was recorded is listed by: stepscope {}",
            std::env::temp_dir().display(),
            shell_word(&logdir.display().to_string())
        );
    }
    let known = reports.iter().find_map(|report| report.cause.as_deref());
    let cause = match known {
        Some(cause) => cause,
        None if reports.is_empty() => {
            "no Python interpreter ran, and no program that calls stepscope or uses CUDA"
        }
        None => "the recordings were not written",
    };
    format!(
        "nothing was recorded: {cause}\nhelp: 'stepscope doctor' lists what can be recorded here, \
        docs/guide/run.md what this command records"
    )
}

fn recorded(session: &Path, bytes: u64, runs: usize, reports: &[ProcessReport]) -> String {
    let mut facts = vec![text::bytes(bytes)];
    let steps = reports.iter().map(|report| report.steps).max().unwrap_or(0);
    if steps > 0 {
        facts.push(format!("{} derived steps", text::count(steps)));
    }
    let dropped = reports
        .iter()
        .fold(0_u64, |sum, report| sum.saturating_add(report.dropped));
    if dropped > 0 {
        facts.push(format!("{} events dropped", text::count(dropped)));
    }
    let others = match runs {
        0 | 1 => String::new(),
        2 => " and one smaller run".to_owned(),
        runs => format!(" and {} smaller runs", runs - 1),
    };
    format!(
        "recorded {} ({}){others}",
        session.display(),
        facts.join(", ")
    )
}

/// Returns the sentence of the run's overview.
fn first_finding(session: &Path, bytes: u64) -> Option<String> {
    if bytes > MAX_OPENED_BYTES {
        return Some(format!(
            "the run is large: 'stepscope report {} overview' prints its findings",
            shell_word(&session.display().to_string())
        ));
    }
    let mut options = EngineOptions::new(vec![session.to_owned()]);
    options.watch = false;
    options.keep_at_once = true;
    let engine = Engine::new(options).ok()?;
    let run = engine.open(&engine.runs().first()?.id).ok()?;
    let report = run
        .report("overview", &Options::default(), &Cancel::default())
        .ok()?;
    engine.flush_cache();
    Some(report.sentence.to_string()).filter(|sentence| !sentence.is_empty())
}

/// Returns how to look at the first file about memory.
fn memory(reports: &[ProcessReport]) -> Option<String> {
    let mut files = reports.iter().flat_map(|report| &report.memory);
    let first = files.next()?;
    let others = match files.count() {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    Some(format!(
        "memory at the end{others}: stepscope report {} memory",
        shell_word(&first.display().to_string())
    ))
}

/// Returns what the profilers of frameworks cost, where the program ran steps with and without them.
fn slowdown(reports: &[ProcessReport]) -> Option<String> {
    let known = reports.iter().filter_map(|report| report.source_slowdown);
    let most = known.max_by(f64::total_cmp)?;
    if most < 1.0 + LEAST_SLOWDOWN {
        return Some("steps took no longer while profilers of frameworks recorded".to_owned());
    }
    Some(format!(
        "steps took {:.0} % longer while profilers of frameworks recorded; --sources none leaves them out",
        (most - 1.0) * 100.0
    ))
}

/// Returns the distinct warnings of all processes.
fn warnings(reports: &[ProcessReport]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for warning in reports.iter().flat_map(|report| &report.warnings) {
        let line = format!("warning: {warning}");
        if !found.contains(&line) {
            found.push(line);
        }
    }
    let more = found.len().saturating_sub(MAX_WARNINGS);
    found.truncate(MAX_WARNINGS);
    if more > 0 {
        found.push(format!("and {more} more warnings: they are in the run"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> ProcessReport {
        ProcessReport::from_json(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn reports_of_another_shape_are_empty() {
        for json in ["{}", "[]", r#"{"path": 3, "dropped": -1, "warnings": "x"}"#] {
            assert_eq!(report(json), ProcessReport::default(), "{json}");
        }
    }

    #[test]
    fn the_largest_slowdown_is_printed() {
        let of = |slowdowns: &[f64]| {
            let reports = slowdowns.iter().map(|slowdown| ProcessReport {
                source_slowdown: Some(*slowdown),
                ..ProcessReport::default()
            });
            slowdown(&reports.collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert!(of(&[1.004]).unwrap().contains("no longer"));
        assert!(of(&[1.004, 1.26]).unwrap().contains("26 % longer"));
    }

    #[test]
    fn cause_of_a_process_that_began_nothing_is_printed() {
        let waiting = report(r#"{"state": "waiting", "cause": "the program has made 3 steps"}"#);
        let nothing = |reports: &[ProcessReport]| nothing(reports, Ok(()), Path::new("logs"));
        let line = nothing(&[ProcessReport::default(), waiting]);
        assert!(
            line.starts_with("nothing was recorded: the program has made 3 steps\nhelp: "),
            "{line}"
        );
        assert!(nothing(&[]).contains("no Python interpreter ran"));
        assert!(nothing(&[ProcessReport::default()]).contains("were not written"));
    }

    #[test]
    fn full_disk_of_the_reports_is_named() {
        let full = || Err(io::ErrorKind::StorageFull.into());
        let line = nothing(&[], full(), Path::new("my logs"));
        let folder = std::env::temp_dir();
        let start = format!("cannot find what was recorded: {}: ", folder.display());
        assert!(
            line.starts_with(&start) && line.ends_with("stepscope 'my logs'"),
            "{line}"
        );
        let line = nothing(&[ProcessReport::default()], full(), Path::new("logs"));
        assert!(line.starts_with("nothing was recorded: "), "{line}");
    }

    #[test]
    fn first_file_about_memory_is_named_with_its_report() {
        let two = report(r#"{"memory": ["/l/a.pickle", "/l/b.pb.gz"]}"#);
        assert_eq!(
            memory(&[ProcessReport::default(), two]).as_deref(),
            Some("memory at the end (and 1 more): stepscope report /l/a.pickle memory")
        );
        assert_eq!(memory(&[ProcessReport::default()]), None);
    }

    #[test]
    fn warnings_of_many_ranks_are_printed_once() {
        let one = report(r#"{"warnings": ["a", "b"]}"#);
        let two = report(r#"{"warnings": ["b"]}"#);
        assert_eq!(warnings(&[one, two]), ["warning: a", "warning: b"]);
        let many = (0..20).map(|number| ProcessReport {
            warnings: vec![format!("{number}")],
            ..ProcessReport::default()
        });
        let printed = warnings(&many.collect::<Vec<_>>());
        assert_eq!(
            (printed.len(), printed.last().unwrap().as_str()),
            (9, "and 12 more warnings: they are in the run")
        );
    }
}
