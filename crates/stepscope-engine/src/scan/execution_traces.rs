//! PyTorch's execution traces in a folder: part of the run whose operators they list, or runs of their own.
//!
//! An execution trace has no times; the trace that kineto writes of the same process has them. Three rules decide
//! which run of its folder it belongs to, the first that finds exactly one:
//!
//! 1. The process in the name of kineto's file, `HOST_PID.TIME.pt.trace.json`, is that of the execution trace.
//! 2. The names are equal but for words at their ends such as `_et` and `_kineto`.
//! 3. The folder has one run of Chrome JSON and one execution trace.

use std::path::Path;

use rustc_hash::FxHashSet;
use stepscope_formats::{Format, detect};

use super::sniff::SNIFF_BYTES;
use crate::files::head::head_of;
use crate::found_run::{FoundFile, FoundRun};
use crate::group::Job;
use crate::names::{self, NameClass};

/// The process stands before the list of operators.
const HEAD_BYTES: usize = 4 << 10;
/// Maximum number of execution traces of a folder whose process is read.
const MAX_HEADS: usize = 4_096;
/// Ends of the names of execution traces and of kineto's files, after the extensions.
const ENDS: &[&str] = &[
    "execution_trace",
    "execution-trace",
    "kineto_trace",
    "kineto",
    "trace",
    "et",
    "pt",
];

/// Attaches execution traces that the user named as files to the runs of other named files, by the rules for a folder.
pub(crate) fn attach_named(runs: &mut Vec<FoundRun>, named: &[&Path]) {
    if named.len() < 2 {
        return;
    }
    let is_named = |run: &FoundRun| {
        let [file] = &run.files[..] else {
            return false;
        };
        named.contains(&&*file.path)
    };
    // The files, and the places of their runs.
    let (mut execution_traces, mut jobs, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    for (at, run) in runs.iter().enumerate().filter(|(_, run)| is_named(run)) {
        let mut file = run.files[0].clone();
        file.class = class_of(&file);
        match file.class {
            NameClass::ExecutionTrace => execution_traces.push(file),
            NameClass::TraceJson | NameClass::ChromeJson => {
                jobs.push(Job::single(file));
                owners.push(at);
            }
            _ => {}
        }
    }
    let (of_jobs, _) = assign(execution_traces, &jobs);
    let mut attached = FxHashSet::default();
    for (at, files) in owners.into_iter().zip(of_jobs) {
        attached.extend(files.iter().map(|file| file.path.clone()));
        runs[at].execution_traces = files;
    }
    runs.retain(|run| !is_named(run) || !attached.contains(&run.files[0].path));
}

/// Returns the class of a file that the user named, by its first bytes if its name says too little.
fn class_of(file: &FoundFile) -> NameClass {
    if file.class != NameClass::AnyJson {
        return file.class;
    }
    let head = head_of(&file.path, file.place.as_ref(), SNIFF_BYTES).unwrap_or_default();
    match detect::detect(&head, &file.name).map(|found| found.format) {
        Ok(Format::ExecutionTraceJson) => NameClass::ExecutionTrace,
        Ok(Format::ChromeJson) => NameClass::ChromeJson,
        _ => file.class,
    }
}

/// Splits the execution traces off the files of a folder.
pub(super) fn split_off(files: Vec<FoundFile>) -> (Vec<FoundFile>, Vec<FoundFile>) {
    files
        .into_iter()
        .partition(|file| file.class == NameClass::ExecutionTrace)
}

/// Finds the job of each execution trace: returns a list of execution traces for each job, and those without one.
pub(super) fn assign(
    execution_traces: Vec<FoundFile>,
    jobs: &[Job],
) -> (Vec<Vec<FoundFile>>, Vec<FoundFile>) {
    let mut of_jobs: Vec<Vec<FoundFile>> = jobs.iter().map(|_| Vec::new()).collect();
    let mut alone = Vec::new();
    let is_single = execution_traces.len() == 1;
    let may_read = execution_traces.len() <= MAX_HEADS;
    for file in execution_traces {
        match job_of(&file, jobs, is_single, may_read) {
            Some(job) => of_jobs[job].push(file),
            None => alone.push(file),
        }
    }
    (of_jobs, alone)
}

fn job_of(file: &FoundFile, jobs: &[Job], is_single: bool, may_read: bool) -> Option<usize> {
    let is_chrome =
        |one: &FoundFile| matches!(one.class, NameClass::TraceJson | NameClass::ChromeJson);
    let possible = || {
        let jobs = jobs.iter().enumerate();
        jobs.filter(|(_, job)| job.files.iter().all(is_chrome))
    };
    let process = |one: &FoundFile| names::kineto_process(&one.name).map(|(pid, _)| pid);
    let any_process = possible().any(|(_, job)| job.files.iter().any(|one| process(one).is_some()));
    let own = (any_process && may_read)
        .then(|| process_in_head(file))
        .flatten();
    let is_own = |one: &FoundFile| own.is_some() && process(one) == own;
    let is_foreign =
        |one: &FoundFile| own.is_some_and(|own| process(one).is_some_and(|other| other != own));
    let base = base_of(&file.name);
    let has_base = |one: &FoundFile| base_of(&one.name) == base && !is_foreign(one);
    let only = |jobs: &mut dyn Iterator<Item = (usize, &Job)>| match (jobs.next(), jobs.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    };
    let with = |is: &dyn Fn(&FoundFile) -> bool| {
        only(&mut possible().filter(|(_, job)| job.files.iter().any(is)))
    };
    let is_only_pair = || {
        let job = only(&mut possible()).filter(|_| is_single)?;
        (!jobs[job].files.iter().all(is_foreign)).then_some(job)
    };
    with(&is_own)
        .or_else(|| with(&has_base))
        .or_else(is_only_pair)
}

/// Reads the process from the beginning of an execution trace.
fn process_in_head(file: &FoundFile) -> Option<u64> {
    let head = head_of(&file.path, file.place.as_ref(), HEAD_BYTES).ok()?;
    let text = String::from_utf8_lossy(&head);
    let (_, value) = text.split_once("\"pid\"")?;
    let value = value.trim_start().strip_prefix(':')?.trim_start();
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    value[..digits].parse().ok()
}

/// Returns a name without extensions and without the words at its end that say what the file is.
fn base_of(name: &str) -> String {
    let mut base = names::stem(name).to_ascii_lowercase();
    while let Some(shorter) = ENDS.iter().find_map(|end| {
        let shorter = base.strip_suffix(end)?;
        shorter.strip_suffix(['.', '_', '-'])
    }) {
        base = shorter.to_owned();
    }
    base
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::scan::{Sniffed, scan};

    fn execution_trace(pid: u32) -> String {
        format!(
            "{{\"schema\": \"1.1.1-chakra.0.0.4\", \"pid\": {pid}, \"start_ts\": 1, \"nodes\": []}}"
        )
    }

    /// Returns the runs of a folder with these files, each with the number of its execution traces.
    fn shown(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let found = scan(dir.path(), 4, &mut Sniffed::default()).unwrap();
        let short = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let runs = found.runs.iter().map(|run| {
            let files: Vec<String> = run.files.iter().map(|file| short(&file.path)).collect();
            let traces: Vec<String> = run
                .execution_traces
                .iter()
                .map(|file| short(&file.path))
                .collect();
            format!("{} + {}", files.join(" "), traces.join(" "))
        });
        runs.collect()
    }

    const CHROME: &str = r#"{"traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"a"}]}"#;

    #[test]
    fn one_execution_trace_belongs_to_the_one_trace_of_its_folder() {
        let own = execution_trace(7);
        assert_eq!(
            shown(&[("anything.json", &own), ("a.pt.trace.json", CHROME)]),
            ["a.pt.trace.json + anything.json"]
        );
        assert_eq!(
            shown(&[("anything.json", &own), ("a.json", CHROME)]),
            ["a.json + anything.json"]
        );
        assert_eq!(shown(&[("a_et.json", &own)]), ["a_et.json + "]);
        // Of two, the name decides.
        assert_eq!(
            shown(&[
                ("linear_et.json", &own),
                ("linear_kineto.json", CHROME),
                ("x.et.json", &own),
                ("other.json", CHROME)
            ]),
            [
                "linear_kineto.json + linear_et.json",
                "other.json + ",
                "x.et.json + "
            ]
        );
    }

    #[test]
    fn process_in_the_name_decides_first() {
        let (seven, eight) = (execution_trace(7), execution_trace(8));
        assert_eq!(
            shown(&[
                ("one.json", &seven),
                ("two.json", &eight),
                ("h_7.1694128201545.pt.trace.json", CHROME),
                ("h_8.1694128201550.pt.trace.json", CHROME),
            ]),
            [
                "h_7.1694128201545.pt.trace.json + one.json",
                "h_8.1694128201550.pt.trace.json + two.json",
            ]
        );
        assert_eq!(
            shown(&[
                ("one.json", &eight),
                ("h_7.1694128201545.pt.trace.json", CHROME)
            ]),
            ["h_7.1694128201545.pt.trace.json + ", "one.json + "]
        );
    }

    #[test]
    fn ranks_of_a_job_have_their_execution_traces() {
        let own = execution_trace(7);
        assert_eq!(
            shown(&[
                ("job_rank0.et.json", &own),
                ("job_rank1.et.json", &own),
                ("job_rank0.pt.trace.json", CHROME),
                ("job_rank1.pt.trace.json", CHROME),
            ]),
            [
                "job_rank0.pt.trace.json job_rank1.pt.trace.json + job_rank0.et.json job_rank1.et.json"
            ]
        );
        // Without their traces they are a job of their own.
        assert_eq!(
            shown(&[("job_rank0.et.json", &own), ("job_rank1.et.json", &own)]),
            ["job_rank0.et.json job_rank1.et.json + "]
        );
    }
}
