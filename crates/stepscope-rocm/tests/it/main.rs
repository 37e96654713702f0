//! Programs into which the collector is loaded, on a library in the place of rocprofiler-sdk. Its records are made by
//! the layouts of AMD's headers; none was recorded on a device.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use stepscope_formats::probe::{Probe, ProbeSlice};
use stepscope_model::{Limits, ReadContext, SharedBytes};

/// The folder with the programs of this build.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

fn collector() -> String {
    let library = built().join("deps/libstepscope_rocm.so");
    library.to_str().unwrap().to_owned()
}

/// A program with these words, and a log directory.
fn program(log_dir: &Path, words: &str, more: &[(&str, &str)]) -> Command {
    let built = built();
    let mut program = Command::new(built.join("examples/hip_program"));
    program
        .args(words.split(' '))
        .env("STEPSCOPE_LOG_DIR", log_dir)
        .env("STEPSCOPE_SESSION_ID", "run")
        .env("STEPSCOPE_REPORTS", log_dir)
        .env(
            "STEPSCOPE_ROCPROFILER",
            built.join("examples/librocprofiler_stand_in.so"),
        )
        .env("ROCPROFILER_REGISTER_LIBRARY", collector())
        .envs(more.iter().copied());
    program
}

fn check(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stderr.is_empty(),
        "a guest prints nothing: {output:?}"
    );
}

fn succeed(log_dir: &Path, words: &str, more: &[(&str, &str)]) {
    check(&program(log_dir, words, more).output().unwrap());
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

/// Returns the report for `stepscope run`.
fn report_of(log_dir: &Path) -> String {
    let entries = std::fs::read_dir(log_dir).unwrap();
    let mut reports = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == "json"));
    std::fs::read_to_string(reports.next().unwrap()).unwrap()
}

const KERNEL: &str = "void add<float>(float*, float const*, int)";

fn check_run(log_dir: &Path) -> Probe {
    let files = files(log_dir);
    assert_eq!(files.len(), 1, "{files:?}");
    let probe = read(&files[0]);
    assert_eq!(
        counts(&probe, "kernel"),
        BTreeMap::from([(KERNEL.to_owned(), 3)])
    );
    assert_eq!(
        counts(&probe, "gpu_memcpy"),
        BTreeMap::from([
            ("Memcpy DtoH (Device -> Host)".to_owned(), 1),
            ("Memcpy HtoD (Host -> Device)".to_owned(), 1),
            (
                "Memcpy PtoP (Device -> Device) from GPU 0 to GPU 1".to_owned(),
                1
            )
        ])
    );
    let calls = counts(&probe, "hip_runtime");
    assert_eq!((calls["hipLaunchKernel"], calls["hipMemcpyAsync"]), (3, 2));
    assert!(!calls.keys().any(|name| name.contains("Get")), "{calls:?}");
    let allocation = of_category(&probe, "memory_allocation").next().unwrap();
    assert!(
        arg(&probe, allocation, "bytes")
            .unwrap()
            .contains("4194304")
    );
    let report = report_of(log_dir);
    assert!(report.contains(&*files[0].to_string_lossy()), "{report}");
    probe
}

#[test]
fn program_becomes_a_run_with_either_layout_of_records() {
    for version in ["0.6.0", "1.0.0"] {
        let log_dir = tempfile::tempdir().unwrap();
        let version = [("STAND_IN_VERSION", version)];
        succeed(log_dir.path(), "init work", &version);
        check_run(log_dir.path());
    }
}

#[test]
fn tool_libraries_of_rocprofiler_load_the_collector_too() {
    let log_dir = tempfile::tempdir().unwrap();
    let tool = [("ROCP_TOOL_LIBRARIES", &*collector())];
    let mut program = program(log_dir.path(), "init work", &tool);
    program.env_remove("ROCPROFILER_REGISTER_LIBRARY");
    check(&program.output().unwrap());
    check_run(log_dir.path());
}

#[test]
fn kernels_have_their_launch_queue_and_shape() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work", &[]);
    let probe = check_run(log_dir.path());
    for kernel in of_category(&probe, "kernel") {
        let details = arg(&probe, kernel, "kernel_details").unwrap();
        assert!(
            details.contains(
                "regs:32 static_shared:1024 dynamic_shared:2048 grid:3907,1,1 block:256,1,1"
            ),
            "{details}"
        );
        let [(_, number, _)] = kernel.flows.as_slice() else {
            panic!("no launch: {kernel:?}");
        };
        let launches: Vec<_> = of_category(&probe, "hip_runtime")
            .filter(|call| call.flows.iter().any(|(_, id, _)| id == number))
            .collect();
        assert_eq!(launches.len(), 1, "{kernel:?}");
        assert_eq!(launches[0].name, "hipLaunchKernel");
        assert!(launches[0].start_ps <= kernel.start_ps);
    }
    let name = probe.facts.iter().find(|(key, _)| key == "device.1.name");
    assert!(
        name.is_some_and(|(_, name)| name.contains("AMD Instinct MI300X")),
        "{name:?}"
    );
}

#[test]
fn ranges_of_roctx_enclose_their_work() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work", &[]);
    let probe = check_run(log_dir.path());
    let ranges = counts(&probe, "user_annotation");
    assert_eq!((ranges["forward"], ranges["epoch"]), (1, 1), "{ranges:?}");
    let forward = of_category(&probe, "user_annotation")
        .find(|slice| slice.name == "forward")
        .unwrap();
    let end = forward.start_ps + forward.dur_ps;
    for kernel in of_category(&probe, "kernel") {
        // The clocks are measured to less than this.
        let slack = 50_000_000;
        assert!(kernel.start_ps + slack >= forward.start_ps, "{kernel:?}");
        assert!(kernel.start_ps + kernel.dur_ps <= end + slack, "{kernel:?}");
    }
}

#[test]
fn recording_of_the_program_takes_the_events() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work begin span end", &[]);
    let files = files(log_dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    let probe = read(&files[0]);
    // What the device did before the recording began is not in it.
    assert_eq!(counts(&probe, "kernel")[KERNEL], 3);
    let span = probe.slices.iter().find(|slice| slice.name == "step");
    let span = span.unwrap();
    for kernel in of_category(&probe, "kernel") {
        assert!(kernel.start_ps >= span.start_ps, "{kernel:?}");
        assert!(kernel.start_ps + kernel.dur_ps <= span.start_ps + span.dur_ps);
    }
}

#[test]
fn second_recording_has_its_own_events_and_devices() {
    let log_dir = tempfile::tempdir().unwrap();
    let words = "init begin work end begin work work end";
    succeed(log_dir.path(), words, &[]);
    let probes: Vec<_> = files(log_dir.path())
        .iter()
        .map(|file| read(file))
        .collect();
    let mut kernels: Vec<_> = probes
        .iter()
        .map(|probe| counts(probe, "kernel")[KERNEL])
        .collect();
    kernels.sort_unstable();
    assert_eq!(kernels, [3, 6]);
    for probe in probes {
        let mut keys = probe.facts.iter().map(|(key, _)| key);
        assert!(keys.any(|key| key == "device.0.name"));
    }
}

#[test]
fn file_of_a_killed_program_is_recovered() {
    let log_dir = tempfile::tempdir().unwrap();
    let words = "init much-work much-work much-work much-work written abort";
    let output = program(log_dir.path(), words, &[]).output().unwrap();
    assert!(!output.status.success());
    let runs = stepscope::recover::recover_dir(log_dir.path(), None);
    assert_eq!(runs.len(), 1);
    let file = runs[0].file.as_ref().unwrap();
    assert_eq!(files(log_dir.path()), [file.as_path()]);
    assert!(counts(&read(file), "kernel")[KERNEL] > 1_000);
}

#[test]
fn forked_processes_leave_the_file_alone() {
    let log_dir = tempfile::tempdir().unwrap();
    succeed(log_dir.path(), "init work fork work", &[]);
    let files = files(log_dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(counts(&read(&files[0]), "kernel")[KERNEL], 6);
}

#[test]
fn program_without_work_leaves_nothing() {
    let log_dir = tempfile::tempdir().unwrap();
    let output = program(log_dir.path(), "init", &[]).output().unwrap();
    check(&output);
    assert_eq!(output.stdout, b"tables 0\ntables 0\n");
    assert!(files(log_dir.path()).is_empty());
}

#[test]
fn process_that_is_not_recorded_does_not_load_rocprofiler() {
    let log_dir = tempfile::tempdir().unwrap();
    let unset = [("STEPSCOPE_LOG_DIR", ""), ("STAND_IN_PRINTS", "1")];
    let output = program(log_dir.path(), "init", &unset).output().unwrap();
    check(&output);
    // Older tools, such as roctracer, are loaded only if no tool has taken the tables.
    assert_eq!(output.stdout, b"tables 1\ntables 1\n");
    assert_eq!(std::fs::read_dir(log_dir.path()).unwrap().count(), 0);
}

#[test]
fn other_tools_get_the_tables_also_without_a_recording() {
    let log_dir = tempfile::tempdir().unwrap();
    let names = tempfile::tempdir().unwrap();
    let library = names.path().join("librocprofiler-sdk.so");
    let stand_in = built().join("examples/librocprofiler_stand_in.so");
    std::os::unix::fs::symlink(stand_in, &library).unwrap();
    let library = library.to_str().unwrap();
    let more = [
        ("STEPSCOPE_LOG_DIR", ""),
        ("LD_LIBRARY_PATH", names.path().to_str().unwrap()),
        ("STAND_IN_PRINTS", "1"),
        ("STEPSCOPE_ROCPROFILER", library),
    ];
    let words = "init want init";
    let output = program(log_dir.path(), words, &more).output().unwrap();
    assert_eq!(output.stdout, b"tables 1\ntables 1\ntables 0\ntables 0\n");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed.matches("stand-in: tables").count(), 2, "{printed}");
}

#[test]
fn refusals_come_with_their_remedy() {
    for (variable, value, expected) in [
        (
            "STAND_IN_LOCKED",
            "1",
            "another tool has rocprofiler-sdk in this process",
        ),
        (
            "STAND_IN_NO_KERNELS",
            "1",
            "ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
        ),
        (
            "STAND_IN_VERSION",
            "0.3.0",
            "is too old (version 0.3.0): install rocprofiler-sdk of ROCm 6.2 or newer",
        ),
        (
            "STEPSCOPE_ROCPROFILER",
            "/nowhere/librocprofiler-sdk.so",
            "apt-get install rocprofiler-sdk",
        ),
    ] {
        let log_dir = tempfile::tempdir().unwrap();
        succeed(log_dir.path(), "init", &[(variable, value)]);
        assert!(files(log_dir.path()).is_empty());
        let report = report_of(log_dir.path());
        assert!(report.contains("cannot record AMD devices: "), "{report}");
        assert!(report.contains(expected), "{report}");
    }
}

#[test]
fn refusal_is_kept_when_the_program_records_itself() {
    let log_dir = tempfile::tempdir().unwrap();
    let missing = [("STEPSCOPE_ROCPROFILER", "/nowhere/librocprofiler-sdk.so")];
    succeed(log_dir.path(), "init begin end", &missing);
    let report = report_of(log_dir.path());
    assert!(
        report.contains("apt-get install rocprofiler-sdk"),
        "{report}"
    );
}
