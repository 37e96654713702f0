//! Programs that the driver would load the collector into, on a library in CUPTI's place that replays what a real one
//! delivered on an H200 (`tests/data/cupti`).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use stepscope_formats::probe::{Probe, ProbeSlice};
use stepscope_model::{Limits, ReadContext, SharedBytes};

/// The recorded program launches `add` three times, then twice a graph of three; it copies and clears memory.
const RECORDS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/cupti/streams_and_graph.records"
);

/// The folder with the programs of this build.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// Runs the program with these words and variables, and a log directory.
fn run(log_dir: &Path, words: &str, more: &[(&str, &str)]) -> Output {
    let built = built();
    let mut program = Command::new(built.join("examples/cuda_program"));
    program
        .args(words.split(' '))
        .env("STEPSCOPE_LOG_DIR", log_dir)
        .env("STEPSCOPE_SESSION_ID", "run")
        .env("STEPSCOPE_REPORTS", log_dir)
        .env(
            "STEPSCOPE_CUPTI",
            built.join("examples/libcupti_stand_in.so"),
        )
        .env(
            "CUDA_INJECTION64_PATH",
            built.join("deps/libstepscope_cupti.so"),
        )
        .env("CUPTI_RECORDS", RECORDS)
        .envs(more.iter().copied());
    program.output().unwrap()
}

fn succeed(log_dir: &Path, words: &str, more: &[(&str, &str)]) {
    let output = run(log_dir, words, more);
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stderr.is_empty(),
        "a guest prints nothing: {output:?}"
    );
}

/// Lists the files of the run.
fn files(log_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(log_dir.join("plugins/profile/run"));
    let entries = entries.into_iter().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[allow(clippy::disallowed_methods, reason = "a test opens files")]
fn read(path: &Path) -> Probe {
    let bytes: SharedBytes = Arc::new(std::fs::read(path).unwrap());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    stepscope_formats::xspace::read(&bytes, &context, &mut probe).unwrap();
    probe
}

/// Counts the slices of a category by name.
fn counts(probe: &Probe, category: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for slice in of_category(probe, category) {
        *counts.entry(slice.name.clone()).or_default() += 1;
    }
    counts
}

fn of_category<'a>(
    probe: &'a Probe,
    category: &'a str,
) -> impl Iterator<Item = &'a ProbeSlice> + 'a {
    let slices = probe.slices.iter();
    slices.filter(move |slice| slice.category == category)
}

fn arg(probe: &Probe, slice: &ProbeSlice, key: &str) -> Option<String> {
    let args = probe.args(slice.args);
    args.into_iter()
        .find(|(found, _)| found == key)
        .map(|(_, value)| value)
}

const KERNEL: &str = "void add<float>(float*, float const*, int)";

#[test]
fn a_program_becomes_a_run() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work", &[]);
    let files = files(log_dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    let probe = read(&files[0]);
    assert_eq!(
        counts(&probe, "kernel"),
        BTreeMap::from([(KERNEL.to_owned(), 9)])
    );
    assert_eq!(
        counts(&probe, "gpu_memcpy"),
        BTreeMap::from([
            ("Memcpy DtoH (Device -> Pinned)".to_owned(), 3),
            ("Memcpy HtoD (Pinned -> Device)".to_owned(), 3)
        ])
    );
    assert_eq!(
        counts(&probe, "gpu_memset"),
        BTreeMap::from([("Memset (Device)".to_owned(), 4)])
    );
    let calls = counts(&probe, "cuda_runtime");
    assert_eq!(
        calls["cudaLaunchKernel"], 6,
        "three of them capture a graph"
    );
    assert_eq!(calls["cudaGraphLaunch"], 2);
    assert!(!calls.keys().any(|name| name.contains("Get")));
    let report = std::fs::read_dir(log_dir.path()).unwrap();
    let report = report
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|found| found == "json"));
    let report = std::fs::read_to_string(report.unwrap()).unwrap();
    assert!(report.contains(&*files[0].to_string_lossy()), "{report}");
}

#[test]
fn kernels_have_their_launch_and_its_shape() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work", &[]);
    let probe = read(&files(log_dir.path())[0]);
    let mut in_graphs = 0;
    for kernel in of_category(&probe, "kernel") {
        let details = arg(&probe, kernel, "kernel_details").unwrap();
        assert!(details.contains("grid:4096,1,1 block:256,1,1"), "{details}");
        let [(_, number, _)] = kernel.flows.as_slice() else {
            panic!("no launch: {kernel:?}");
        };
        let launches: Vec<_> = of_category(&probe, "cuda_runtime")
            .filter(|call| call.flows.iter().any(|(_, id, _)| id == number))
            .collect();
        assert_eq!(launches.len(), 1, "{kernel:?}");
        assert!(launches[0].start_ps <= kernel.start_ps);
        in_graphs += usize::from(launches[0].name == "cudaGraphLaunch");
        let is_in_graph = arg(&probe, kernel, "graph node id").is_some();
        assert_eq!(is_in_graph, launches[0].name == "cudaGraphLaunch");
    }
    assert_eq!(in_graphs, 6);
    let copies = of_category(&probe, "gpu_memcpy");
    for copy in copies {
        let bytes = arg(&probe, copy, "bytes").unwrap();
        assert!(bytes.contains("4194304"), "{bytes}");
    }
}

#[test]
fn a_recording_of_the_program_takes_the_events() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work begin span end", &[]);
    let files = files(log_dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    let probe = read(&files[0]);
    // What the device did before the recording began is not in it.
    assert_eq!(counts(&probe, "kernel")[KERNEL], 9);
    let span = probe.slices.iter().find(|slice| slice.name == "forward");
    let span = span.unwrap();
    for kernel in of_category(&probe, "kernel") {
        assert!(kernel.start_ps >= span.start_ps, "{kernel:?}");
        assert!(kernel.start_ps + kernel.dur_ps <= span.start_ps + span.dur_ps);
    }
}

#[test]
fn a_recording_that_begins_before_cuda_takes_the_events_too() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "begin init span end work", &[]);
    let files = files(log_dir.path());
    assert_eq!(
        files.len(),
        1,
        "nothing is recorded after its end: {files:?}"
    );
    assert_eq!(counts(&read(&files[0]), "kernel")[KERNEL], 9);
}

#[test]
fn a_second_recording_has_its_own_events() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(
        log_dir.path(),
        "init begin work end begin work work end",
        &[],
    );
    let probes: Vec<_> = files(log_dir.path())
        .iter()
        .map(|file| read(file))
        .collect();
    let mut kernels: Vec<_> = probes
        .iter()
        .map(|probe| counts(probe, "kernel")[KERNEL])
        .collect();
    kernels.sort_unstable();
    assert_eq!(kernels, [9, 18]);
    for probe in probes {
        let name = probe.facts.iter().find(|(key, _)| key == "device.0.name");
        assert!(
            name.is_some_and(|(_, name)| name.contains("NVIDIA H200")),
            "{name:?}"
        );
    }
}

#[test]
fn the_file_of_a_killed_program_is_recovered() {
    let log_dir = tempfile::tempdir().unwrap();
    let output = run(log_dir.path(), "init much-work written abort", &[]);
    assert!(!output.status.success());
    let runs = stepscope::recover::recover_dir(log_dir.path(), None);
    assert_eq!(runs.len(), 1);
    let file = runs[0].file.as_ref().unwrap();
    assert_eq!(files(log_dir.path()), [file.as_path()]);
    // All but the last batch.
    let kernels = counts(&read(file), "kernel")[KERNEL];
    assert!((9 * 1_000..9 * 2_000).contains(&kernels), "{kernels}");
    assert!(runs[0].spans > 9 * 1_000);
}

#[test]
fn forked_processes_leave_the_file_alone() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work fork work", &[]);
    let files = files(log_dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(counts(&read(&files[0]), "kernel")[KERNEL], 18);
}

#[test]
fn programs_without_work_leave_nothing() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init", &[]);
    assert!(files(log_dir.path()).is_empty());
    assert_eq!(
        std::fs::read_dir(log_dir.path().join("plugins/profile"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn nothing_is_recorded_unasked() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work", &[("STEPSCOPE_LOG_DIR", "")]);
    assert_eq!(std::fs::read_dir(log_dir.path()).unwrap().count(), 0);
}

#[test]
fn refusals_are_reported_with_their_remedy() {
    for (number, expected) in [
        ("39", "another profiler has CUPTI in this process"),
        ("35", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("999", "error 999"),
    ] {
        let log_dir = tempfile::tempdir().unwrap();
        succeed(log_dir.path(), "init work", &[("CUPTI_FAILS", number)]);
        assert!(files(log_dir.path()).is_empty());
        assert!(
            report_of(log_dir.path()).contains(expected),
            "{}",
            report_of(log_dir.path())
        );
    }
    let log_dir = tempfile::tempdir().unwrap();
    let missing = [("STEPSCOPE_CUPTI", "/nowhere/libcupti.so")];
    succeed(log_dir.path(), "init", &missing);
    assert!(report_of(log_dir.path()).contains("pip install nvidia-cuda-cupti"));
}

/// Returns the report for `stepscope run`.
fn report_of(log_dir: &Path) -> String {
    let entries = std::fs::read_dir(log_dir).unwrap();
    let mut reports = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == "json"));
    std::fs::read_to_string(reports.next().unwrap()).unwrap()
}

#[test]
fn a_log_directory_that_cannot_be_written_is_reported() {
    let log_dir = tempfile::tempdir().unwrap();
    std::fs::write(log_dir.path().join("plugins"), "a file").unwrap();
    succeed(log_dir.path(), "init work", &[]);
    let report = report_of(log_dir.path());
    assert!(report.contains("cannot record CUDA devices: "), "{report}");
}
