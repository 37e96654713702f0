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
    // What had been written: at least 800 KB, of which a kernel and its call take about 100 bytes.
    let kernels = counts(&read(file), "kernel")[KERNEL];
    assert!((4_000..9 * 2_000).contains(&kernels), "{kernels}");
    assert!(runs[0].spans > 4_000);
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

/// Writes the records of the tests with those of a wait of stream 7 for an event of stream 13, and of the host for stream
/// 7, as the headers of CUPTI define them. The host's is that of the last call. Returns the number of that call.
fn add_waits(to: &Path) -> u64 {
    let text = std::fs::read_to_string(RECORDS).unwrap();
    let bytes = |hex: &str| -> Vec<u8> {
        let pairs = (0..hex.len() / 2).map(|at| &hex[2 * at..2 * at + 2]);
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    };
    let call = text
        .lines()
        .filter_map(|line| line.strip_prefix("record 05000000"))
        .map(|hex| bytes(&format!("05000000{hex}")))
        .next_back()
        .unwrap();
    let time = |at: usize| u64::from_ne_bytes(call[at..at + 8].try_into().unwrap());
    let (start, end) = (time(8), time(16));
    let correlation = u32::from_ne_bytes(call[32..36].try_into().unwrap());
    let record = |words: &[u32]| {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        let hex: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
        format!("record {}\n", hex.concat())
    };
    let halves = |time: u64| [(time & 0xffff_ffff) as u32, (time >> 32) as u32];
    let wait = |kind: u32, correlation: u32, stream: u32, event: u32| {
        let [[start, start_high], [end, end_high]] = [halves(start), halves(end)];
        record(&[
            38,
            kind,
            start,
            start_high,
            end,
            end_high,
            correlation,
            5,
            stream,
            event,
        ])
    };
    let waits = [
        record(&[9, 5, 0, 0]),
        record(&[36, 4_711, 5, 13, 2, 0]),
        wait(2, 4_712, 7, 2),
        wait(3, correlation, 7, u32::MAX),
    ];
    std::fs::write(to, text + &waits.concat()).unwrap();
    correlation.into()
}

#[test]
fn waits_are_recorded_with_what_they_wait_for() {
    let log_dir = tempfile::tempdir().unwrap();
    let records = log_dir.path().join("waits.records");
    let call = add_waits(&records);
    let records = [("CUPTI_RECORDS", records.to_str().unwrap())];
    succeed(log_dir.path(), "init work", &records);
    let probe = read(&files(log_dir.path())[0]);
    let expected = [("Stream Sync", 1), ("Stream Wait Event", 1)];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counts(&probe, "cuda_sync"), BTreeMap::from(expected));
    let values = |name: &str| {
        let wait = of_category(&probe, "cuda_sync").find(|slice| slice.name == name);
        let keys = [
            "correlation",
            "device",
            "stream",
            "wait_on_stream",
            "wait_on_cuda_event_record_corr_id",
        ];
        keys.map(|key| {
            arg(&probe, wait.unwrap(), key).map(|value| {
                let digits = value.chars().filter(char::is_ascii_digit);
                digits.collect::<String>()
            })
        })
    };
    let call = call.to_string();
    assert_eq!(
        values("Stream Wait Event"),
        [Some("4712"), Some("0"), Some("7"), Some("13"), Some("4711")]
            .map(|value| value.map(str::to_owned))
    );
    assert_eq!(
        values("Stream Sync"),
        [Some(call.as_str()), Some("0"), Some("7"), None, None]
            .map(|value| value.map(str::to_owned))
    );
    let wait = of_category(&probe, "cuda_sync").next().unwrap();
    let track = probe.tracks.iter().find(|track| track.key == wait.track);
    assert_eq!(track.unwrap().name, "synchronization");
}

#[test]
fn the_version_of_cupti_is_a_fact_of_each_recording() {
    for words in ["init work", "init begin work end"] {
        let log_dir = tempfile::tempdir().unwrap();
        succeed(log_dir.path(), words, &[("CUPTI_VERSION", "26")]);
        let probe = read(&files(log_dir.path())[0]);
        let version = probe.facts.iter().find(|(key, _)| key == "cupti_version");
        let version = version.map(|(_, version)| version.as_str());
        assert_eq!(
            version,
            Some("Str(\"26 (CUDA 12.8)\")"),
            "{words}: {:?}",
            probe.facts
        );
    }
}

#[test]
fn recording_that_never_began_is_explained() {
    for variable in [
        "STEPSCOPE_STEPS",
        "STEPSCOPE_SKIP_FIRST",
        "STEPSCOPE_SIGNAL",
    ] {
        let log_dir = tempfile::tempdir().unwrap();
        succeed(log_dir.path(), "init work", &[(variable, "3")]);
        assert!(files(log_dir.path()).is_empty());
        let report = report_of(log_dir.path());
        assert!(
            report.contains("--signal need Python, or the crate stepscope"),
            "{report}"
        );
    }
}

#[test]
fn refusals_are_reported_with_their_remedy() {
    let refused = |more: &[(&str, &str)], expected: &str| {
        // The report is there although the program is killed.
        for words in ["init", "init abort"] {
            let log_dir = tempfile::tempdir().unwrap();
            let output = run(log_dir.path(), words, more);
            assert_eq!(output.status.success(), words == "init", "{output:?}");
            assert!(files(log_dir.path()).is_empty());
            let report = report_of(log_dir.path());
            assert!(report.contains(expected), "{report}");
            assert!(
                report.contains("\"warnings\": [\"cannot record CUDA devices: "),
                "{report}"
            );
        }
    };
    for (number, expected) in [
        ("39", "another profiler has CUPTI in this process"),
        ("35", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("33", "enable it in the hypervisor"),
        ("999", "error 999"),
    ] {
        refused(&[("CUPTI_FAILS", number)], expected);
    }
    let too_old =
        "this libcupti.so is too old: it has version 17 (CUDA 11.6), and that of CUDA 11.8";
    refused(&[("CUPTI_VERSION", "17")], too_old);
    let missing = [("STEPSCOPE_CUPTI", "/nowhere/libcupti.so")];
    refused(&missing, "pip install nvidia-cuda-cupti");
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
