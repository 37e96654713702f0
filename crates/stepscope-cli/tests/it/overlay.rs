//! `stepscope convert --overlay critical-path`: the path in the output, as our own reader finds it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::reports::Options;
use stepscope_model::{ArgValue, TrackKind};
use stepscope_store::Trace;

use crate::traces::open_one;

/// Writes a run of two steps that wait for two kernels on two streams.
fn write_run(folder: &Path) -> PathBuf {
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": 50, "tid": 0, "ts": 0, "args": {"name": "python"}}),
        json!({"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}),
    ];
    let mut slice = |cat: &str,
                     name: &str,
                     place: [i64; 2],
                     (begin, end): (i64, i64),
                     args: Value| {
        events.push(json!({
            "ph": "X", "cat": cat, "name": name, "pid": place[0], "tid": place[1], "ts": 5_000 + begin,
            "dur": end - begin, "args": args,
        }));
    };
    for step in 0..2 {
        let at = step * 1_000;
        let host = [50, 1];
        let call = |number: i64| json!({"correlation": step * 10 + number, "External id": step * 10 + number});
        let on = |stream: i64, number: i64| json!({"device": 0, "context": 1, "stream": stream, "correlation": step * 10 + number});
        let name = format!("ProfilerStep#{step}");
        slice("user_annotation", &name, host, (at, at + 1_000), json!({}));
        slice(
            "cuda_runtime",
            "cudaLaunchKernel",
            host,
            (at, at + 30),
            call(1),
        );
        slice("kernel", "produce", [0, 7], (at + 45, at + 345), on(7, 1));
        slice(
            "cuda_runtime",
            "cudaEventRecord",
            host,
            (at + 32, at + 34),
            call(2),
        );
        slice(
            "cuda_runtime",
            "cudaStreamWaitEvent",
            host,
            (at + 36, at + 38),
            call(3),
        );
        let mut wait = on(20, 3);
        wait["cuda_sync_kind"] = "Stream Wait Event".into();
        wait["wait_on_stream"] = 7.into();
        wait["wait_on_cuda_event_record_corr_id"] = (step * 10 + 2).into();
        slice(
            "cuda_sync",
            "Stream Wait Event",
            [0, 20],
            (at + 36, at + 38),
            wait,
        );
        slice(
            "cuda_runtime",
            "cudaLaunchKernel",
            host,
            (at + 40, at + 60),
            call(4),
        );
        slice(
            "kernel",
            "consume",
            [0, 20],
            (at + 349, at + 928),
            on(20, 4),
        );
        slice(
            "cuda_runtime",
            "cudaDeviceSynchronize",
            host,
            (at + 70, at + 940),
            call(5),
        );
        let mut sync = on(-1, 5);
        sync["cuda_sync_kind"] = "Context Sync".into();
        slice(
            "cuda_sync",
            "Context Sync",
            [0, -1],
            (at + 70, at + 940),
            sync,
        );
    }
    let path = folder.join("run.pt.trace.json");
    let text = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    std::fs::write(&path, text).unwrap();
    path
}

fn convert(input: &Path, output: &Path, more: &[&str]) -> (u8, String) {
    let words = ["stepscope", "convert", "--no-cache"].iter().chain(more);
    let words = words.map(OsString::from);
    let paths = [input, output].map(|path| path.as_os_str().to_owned());
    let mut out = Vec::new();
    let code = match stepscope_cli::run(words.chain(paths).collect(), &mut out) {
        Ok(()) => 0,
        Err(error) => {
            error.print(&mut out);
            error.exit_code()
        }
    };
    (code, String::from_utf8(out).unwrap())
}

/// A segment: kind, name of its slice, start and length in nanoseconds, edge.
type Segment = (String, String, f64, f64, String);

fn segments(trace: &Trace) -> Vec<Segment> {
    let options = Options {
        by: Some("segment".to_owned()),
        ..Options::default()
    };
    let made = stepscope_engine::report::reports::make(
        trace,
        "critical-path",
        &options,
        &Cancel::default(),
    );
    let report = serde_json::to_value(made.unwrap()).unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let row = |row: &Value| {
        let time = |key: &str| row[key].as_f64().unwrap();
        (
            text(row, "kind"),
            text(row, "name"),
            time("start_ns"),
            time("duration_ns"),
            text(row, "edge"),
        )
    };
    report["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Returns the slices of the track of the path: as segments.
fn overlay(trace: &Trace) -> Vec<Segment> {
    let mut tracks = trace.tracks().iter();
    let found = tracks.find(|track| track.name == "Critical path").unwrap();
    assert!(found.derived, "analyses do not count it");
    assert_ne!(found.kind, TrackKind::DeviceQueue);
    let slices = trace.slices(found.id);
    let start = stepscope_engine::report::report::run_start(trace);
    let segment = |at: usize| {
        let mut args = Vec::new();
        trace
            .args(slices.id(at), &mut |key, value| {
                if let ArgValue::Str(text) = value {
                    args.push((key.to_owned(), text.to_owned()));
                }
            })
            .unwrap();
        let arg = |wanted: &str| {
            let pair = args.iter().find(|(key, _)| key == wanted);
            pair.unwrap().1.clone()
        };
        let name = trace.name(slices.name[at]);
        let kind = arg("kind");
        let name = name.strip_prefix(&format!("({kind}) ")).unwrap_or(name);
        (
            kind.clone(),
            name.to_owned(),
            slices.start[at].since(start).as_ns_f64(),
            slices.dur[at].as_ns_f64(),
            arg("edge"),
        )
    };
    (0..slices.len()).map(segment).collect()
}

#[test]
fn written_paths_have_the_segments_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_run(folder.path());
    let expected = segments(&open_one(&input).unwrap().trace);
    assert_eq!(expected.len(), 14);
    for extension in ["json", "json.gz", "pftrace", "xplane.pb"] {
        let output = folder.path().join(format!("out.{extension}"));
        let (code, text) = convert(&input, &output, &["--overlay", "critical-path"]);
        assert_eq!(code, 0, "{extension}: {text}");
        let run = open_one(&output).unwrap();
        run.trace.debug_validate().unwrap();
        assert_eq!(overlay(&run.trace), expected, "{extension}");
        // The path of the output is that of the input: the track of the path is no work.
        assert_eq!(segments(&run.trace), expected, "{extension}");
        // Launch, event and return of each step, and the next step after the wait.
        let of_path = run.trace.flow_count() - open_one(&input).unwrap().trace.flow_count();
        assert_eq!(of_path, 6, "{extension}");
    }
}

#[test]
fn flows_lead_from_the_slices_that_the_path_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_run(folder.path());
    let output = folder.path().join("out.pftrace");
    convert(&input, &output, &["--overlay", "critical-path"]);
    let trace = open_one(&output).unwrap().trace;
    let mut pairs = Vec::new();
    for track in trace.tracks() {
        let slices = trace.slices(track.id);
        for at in 0..slices.len() {
            for flow in trace.flows_out(slices.id(at)) {
                let name = |id| trace.event(id).map(|event| trace.name(event.name)).unwrap();
                if trace.name(flow.key.category) == "critical_path" {
                    pairs.push((name(flow.from), name(flow.to)));
                }
            }
        }
    }
    pairs.sort_unstable();
    let expected = [
        ("consume", "(sync_return) cudaDeviceSynchronize"),
        ("cudaLaunchKernel", "(launch_latency) produce"),
        ("produce", "(event_wait) consume"),
    ];
    let expected: Vec<(&str, &str)> = expected.into_iter().flat_map(|pair| [pair, pair]).collect();
    assert_eq!(pairs, expected);
}

/// Returns the names of the slices with the argument `critical`.
fn critical(trace: &Trace) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for track in trace.tracks().iter().filter(|track| !track.derived) {
        let slices = trace.slices(track.id);
        for at in 0..slices.len() {
            let mut is_critical = false;
            let visit = &mut |key: &str, value: ArgValue<'_>| {
                is_critical |= key == "critical" && matches!(value, ArgValue::Int(1));
            };
            trace.args(slices.id(at), visit).unwrap();
            if is_critical {
                found.insert(trace.name(slices.name[at]).to_owned());
            }
        }
    }
    found
}

#[test]
fn slices_on_the_path_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_run(folder.path());
    assert_eq!(critical(&open_one(&input).unwrap().trace), BTreeSet::new());
    for extension in ["json", "pftrace", "xplane.pb"] {
        let output = folder.path().join(format!("out.{extension}"));
        convert(&input, &output, &["--overlay", "critical-path"]);
        let trace = open_one(&output).unwrap().trace;
        let expected = [
            "ProfilerStep#0",
            "ProfilerStep#1",
            "consume",
            "cudaLaunchKernel",
            "produce",
        ];
        assert_eq!(
            critical(&trace),
            expected.map(str::to_owned).into(),
            "{extension}"
        );
    }
}

#[test]
fn rows_have_no_overlay() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_run(folder.path());
    let output = folder.path().join("out.csv");
    let (code, text) = convert(&input, &output, &["--overlay", "critical-path"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("cannot write") && text.contains("help: use .json"),
        "{text}"
    );
    assert!(!output.exists());
    let (code, text) = convert(&input, &output, &["--overlay", "roofline"]);
    assert_eq!(code, 2, "{text}");
}
