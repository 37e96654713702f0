//! Structured trace logs of `torch.compile`: a committed one against its program and `tlparse`, damaged and
//! hostile ones.

use std::fmt::Write as _;
use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::{Probe, ProbeSlice};
use stepscope_formats::{Format, FormatError, arg_source, gzip, read};
use stepscope_model::{Diagnostic, Limits, ReadContext, SharedBytes, SliceFlags};
use stepscope_test_data::{self as traces, Corpus};

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::TorchCompileLog, &bytes, &context, &mut probe)?;
    assert!(arg_source(Format::TorchCompileLog, &bytes, &context).is_ok());
    Ok(probe)
}

fn compilations(probe: &Probe) -> Vec<&ProbeSlice> {
    let slices = probe.slices.iter();
    slices
        .filter(|slice| slice.category == "torch.compile")
        .collect()
}

/// Returns the text of an argument; `""` without it.
fn arg(probe: &Probe, slice: &ProbeSlice, key: &str) -> String {
    let args = probe.args(slice.args);
    let found = args.into_iter().find(|arg| arg.0 == key);
    let shown = found.map(|arg| arg.1).unwrap_or_default();
    let inner = shown
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    let inner = inner.unwrap_or_default();
    inner.trim_matches('"').to_owned()
}

/// Text of the header of an entry.
const HEAD: &str = "V1127 21:26:05.551000 77 torch/a.py:9] ";
/// Unix time of the events of [`log`], microseconds.
const START_US: u64 = 1_795_814_765_000_000;

/// Appends an entry, and its payload if there is one.
fn put(log: &mut String, fact: &str, place: &str, payload: &str) {
    write!(log, "{HEAD}{{{fact}{place}").unwrap();
    if payload.is_empty() {
        log.push_str("}\n");
    } else {
        log.push_str(", \"has_payload\": \"00\"}\n");
        for line in payload.split('\n') {
            writeln!(log, "\t{line}").unwrap();
        }
    }
}

fn phase(log: &mut String, name: &str, kind: &str, after_us: f64, id: &str) {
    let at = START_US as f64 + after_us;
    let payload = format!(
        "{{\n\"name\": \"{name}\",\n\"ts\": {at:.1},\n\"args\": {{\n\"compile_id\": \"{id}\",\n\"n\": 3\n}},\n\
         \"ph\": \"{kind}\",\n\"cat\": \"dynamo_timed\",\n\"tid\": 0,\n\"pid\": 0\n}}"
    );
    put(log, "\"chromium_event\": {}", "", &payload);
}

/// Two compilations of a function, the second for another reason than the first, its backward graph, and a
/// third compilation that the program did not end.
fn log() -> String {
    let mut log = String::new();
    let first = ", \"frame_id\": 0, \"frame_compile_id\": 0, \"attempt\": 0, \"rank\": 3";
    let second = ", \"frame_id\": 0, \"frame_compile_id\": 1, \"attempt\": 1";
    put(&mut log, "\"str\": [\"/tmp/a \\\"b\\\".py\", 4]", "", "");
    phase(&mut log, "dynamo", "B", 0.0, "0/0");
    let start = "\"dynamo_start\": {\"stack\": [{\"line\": 1, \"name\": \"main\", \"filename\": 9}, \
                 {\"line\": 5, \"name\": \"step\", \"filename\": 4}]}";
    put(&mut log, start, first, "");
    phase(&mut log, "inner", "B", 2.5, "0/0");
    let cache = "\"artifact\": {\"name\": \"fx_graph_cache_miss\", \"encoding\": \"json\"}";
    put(&mut log, cache, first, "{\"key\": 1}");
    phase(&mut log, "lookup", "i", 3.0, "0/0");
    phase(&mut log, "dynamo", "E", 10.0, "0/0");
    let metrics = "\"compilation_metrics\": {\"co_name\": \"step\", \"co_filename\": \"/tmp/a.py\", \
                   \"co_firstlineno\": 5, \"graph_op_count\": 2, \"guard_count\": 7, \"fail_type\": null, \
                   \"restart_reasons\": [], \"start_time\": 1795814765.000001, \"entire_frame_compile_time_s\": \
                   0.000008, \"inductor_config\": \"long\"}";
    put(&mut log, metrics, first, "");
    let backward =
        "\"bwd_compilation_metrics\": {\"start_time_us\": 1795814765000020, \"duration_us\": 4}";
    put(&mut log, backward, first, "");
    let reasons = "\"artifact\": {\"name\": \"recompile_reasons\", \"encoding\": \"json\"}";
    put(
        &mut log,
        reasons,
        second,
        "[\n\"0/0: size mismatch\",\n\"0/0: other\"\n]",
    );
    let again = metrics.replace(
        "\"restart_reasons\": []",
        "\"restart_reasons\": [\"a\", \"b\\nc\"]",
    );
    let again = again.replace("765.000001", "765.000030");
    put(&mut log, &again, second, "");
    put(&mut log, "\"describe_tensor\": {\"id\": 0}", second, "");
    phase(&mut log, "dynamo", "B", 50.0, "1/0");
    let third = start.replace("step", "other");
    put(
        &mut log,
        &third,
        ", \"frame_id\": 1, \"frame_compile_id\": 0",
        "",
    );
    phase(&mut log, "inner", "B", 60.5, "1/0");
    log
}

#[test]
fn compilations_have_times_names_and_reasons() {
    let probe = emitted(log().as_bytes()).unwrap();
    let unix_ns = probe.epoch.and_then(|epoch| epoch.unix_ns);
    assert_eq!(unix_ns, i64::try_from(START_US * 1_000).ok());
    let slices = compilations(&probe);
    let shown: Vec<_> = slices
        .iter()
        .map(|slice| (&*slice.name, slice.start_ps, slice.dur_ps, slice.flags))
        .collect();
    let unfinished = SliceFlags::UNFINISHED.0;
    assert_eq!(
        shown,
        [
            ("step", 1_000_000, 8_000_000, 0),
            ("step (backward)", 20_000_000, 4_000_000, 0),
            ("step", 30_000_000, 8_000_000, 0),
            ("other", 50_000_000, 10_500_000, unfinished),
        ]
    );
    let of = |at: usize, key: &str| arg(&probe, slices[at], key);
    let ids = [0, 1, 2, 3].map(|at| of(at, "compile_id"));
    assert_eq!(ids, ["0/0", "0/0", "0/1", "1/0"]);
    let statuses = [0, 1, 2, 3].map(|at| of(at, "status"));
    assert_eq!(statuses, ["ok", "ok", "restarted", "unfinished"]);
    assert_eq!(of(0, "fx_graph_cache"), "miss");
    assert_eq!(
        (of(0, "guard_count"), of(0, "attempt")),
        ("7".into(), "0".into())
    );
    assert_eq!(of(0, "inductor_config"), "");
    assert_eq!(of(1, "co_firstlineno"), "5");
    assert_eq!(of(2, "recompile_reason"), "0/0: size mismatch");
    assert_eq!(
        of(2, "recompile_reasons"),
        "0/0: size mismatch\\n0/0: other"
    );
    assert_eq!(of(2, "restart_reasons"), "a\\nb\\nc");
    assert_eq!(of(3, "co_filename"), "/tmp/a \\\"b\\\".py");
    let fact = |key: &str| {
        let found = probe.facts.iter().find(|fact| fact.0 == key);
        found.map_or("", |fact| &*fact.1)
    };
    assert_eq!((fact("pid"), fact("rank")), ("Int(77)", "Int(3)"));
    assert_eq!(fact("skipped_entries.describe_tensor"), "Int(1)");
    assert_eq!(fact("compilations"), "Int(4)");
}

#[test]
fn phases_nest_and_those_without_an_end_are_unfinished() {
    let probe = emitted(log().as_bytes()).unwrap();
    let phases = probe
        .slices
        .iter()
        .filter(|slice| slice.category == "dynamo_timed");
    let phases: Vec<_> = phases
        .map(|slice| (&*slice.name, slice.start_ps, slice.dur_ps, slice.flags))
        .collect();
    let unfinished = SliceFlags::UNFINISHED.0;
    assert_eq!(
        phases,
        [
            ("dynamo", 0, 10_000_000, 0),
            ("inner", 2_500_000, 7_500_000, unfinished),
            ("dynamo", 50_000_000, 10_500_000, unfinished),
            ("inner", 60_500_000, 0, unfinished),
        ]
    );
    assert_eq!(probe.instants.len(), 1);
    assert_eq!(
        (&*probe.instants[0].name, probe.instants[0].at_ps),
        ("lookup", 3_000_000)
    );
    assert_eq!(arg(&probe, &probe.slices[0], "n"), "3");
    // Three phases and one compilation.
    assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 4);
    assert_eq!(probe.diagnostics.len(), 1);
    let names: Vec<_> = probe.tracks.iter().map(|track| &*track.name).collect();
    let process = "torch.compile (process 77)";
    assert_eq!(names, [process, "phases", "compilations"]);
}

/// The compilations of `tests/peers/torch_compile_log.py`: id, function, status, and a part of the reason.
const CAUSES: [(&str, &str, &str, &str); 12] = [
    ("0/0", "scale", "ok", ""),
    (
        "0/1",
        "scale",
        "ok",
        "size mismatch at index 0. expected 4, actual 5",
    ),
    (
        "0/2",
        "scale",
        "ok",
        "dtype mismatch. expected Float, actual Double",
    ),
    ("1/0", "add_constant", "ok", ""),
    ("1/1", "add_constant", "ok", "count == 1"),
    ("2/0", "with_break", "restarted", ""),
    ("3/0", "torch_dynamo_resume_in_with_break_at_", "ok", ""),
    ("4/0", "never_compiled", "failed", ""),
    ("5/0", "empty", "empty", ""),
    ("6/0", "loss", "ok", ""),
    ("6/0", "loss (backward)", "ok", ""),
    ("7/0", "product", "ok", ""),
];

fn committed() -> Vec<u8> {
    let name = "torch_compile/dedicated_log_torch_trace_causes.log.gz";
    let packed = traces::bytes(&Corpus::committed().path(name));
    gzip::inflate_prefix(&packed, 16 << 20)
}

#[test]
fn committed_log_shows_what_its_program_does() {
    let probe = emitted(&committed()).unwrap();
    assert_eq!(probe.diagnostics, []);
    let slices = compilations(&probe);
    assert_eq!(slices.len(), CAUSES.len());
    for (slice, (id, name, status, reason)) in slices.iter().zip(CAUSES) {
        assert_eq!(arg(&probe, slice, "compile_id"), id);
        assert_eq!(arg(&probe, slice, "status"), status, "{id}");
        assert!(slice.name.starts_with(name), "{id}: {}", slice.name);
        let found = arg(&probe, slice, "recompile_reason");
        assert!(found.contains(reason), "{id}: {found}");
        assert_eq!(found.is_empty(), reason.is_empty(), "{id}: {found}");
        let file = arg(&probe, slice, "co_filename");
        assert_eq!(file, "/tmp/example/causes.py", "{id}");
    }
    let of = |at: usize, key: &str| arg(&probe, slices[at], key);
    assert!(of(5, "restart_reasons").contains("graph_break()"));
    assert!(of(5, "graph_break_reason").contains("User-inserted graph break"));
    assert_eq!(of(5, "attempt"), "1");
    assert_eq!(of(7, "fail_type"), "BackendCompilerFailed");
    assert!(of(7, "fail_reason").contains("this backend compiles nothing"));
    let caches = slices
        .iter()
        .map(|slice| arg(&probe, slice, "fx_graph_cache"));
    let with_cache: Vec<String> = caches.filter(|result| !result.is_empty()).collect();
    assert_eq!(with_cache, ["miss"], "only Inductor has this cache");
}

#[test]
fn figures_of_committed_log_equal_those_of_tlparse() {
    let truth = traces::bytes(&Corpus::committed().path("torch_compile/causes.truth/tlparse.json"));
    let truth: serde_json::Value = serde_json::from_slice(&truth).unwrap();
    let probe = emitted(&committed()).unwrap();
    let slices = compilations(&probe);
    let theirs = truth["compilations"].as_array().unwrap();
    assert_eq!(slices.len(), theirs.len());
    for (slice, truth) in slices.iter().zip(theirs) {
        let id = arg(&probe, slice, "compile_id");
        assert_eq!(truth["compile_id"], *id);
        let number = |key: &str| arg(&probe, slice, key).parse::<f64>().ok();
        assert_eq!(truth["attempt"].as_f64(), number("attempt"), "{id}");
        let is_backward = slice.name.ends_with(" (backward)");
        assert_eq!(truth["is_backward"], is_backward, "{id}");
        if is_backward {
            continue;
        }
        let status = match truth["status"].as_str().unwrap() {
            "error" => "failed",
            "break" => "restarted",
            other => other,
        };
        assert_eq!(arg(&probe, slice, "status"), status, "{id}");
        let function = ["co_filename", "co_firstlineno", "co_name"];
        for (place, key) in function.into_iter().enumerate() {
            assert_eq!(truth["function"][place], arg(&probe, slice, key), "{id}");
        }
        let seconds = truth["entire_frame_s"].as_f64().unwrap();
        let differs_s = slice.dur_ps as f64 / 1e12 - seconds;
        assert!(differs_s.abs() < 1e-12, "{id}: {differs_s}");
        for (theirs, ours) in [
            ("entire_frame_s", "entire_frame_compile_time_s"),
            ("backend_s", "backend_compile_time_s"),
            ("inductor_s", "inductor_compile_time_s"),
            ("guards", "guard_count"),
            ("graph_ops", "graph_op_count"),
        ] {
            assert_eq!(truth[theirs].as_f64(), number(ours), "{id} {ours}");
        }
        let failure = truth["failure"].as_str().unwrap_or_default();
        assert_eq!(arg(&probe, slice, "fail_type"), failure, "{id}");
    }
    // tlparse writes all events into one file.
    let phases = probe.slices.len() - slices.len();
    assert_eq!(truth["phases"], phases);
    let events = 2 * phases + probe.instants.len();
    assert_eq!(truth["events"], events);
}

#[test]
fn content_decides_the_format() {
    for name in ["dedicated_log_torch_trace_x.log", "x", "a.txt", "a.folded"] {
        let found = detect(log().as_bytes(), name).unwrap();
        let expected = (Format::TorchCompileLog, Evidence::Content);
        assert_eq!((found.format, found.evidence), expected, "{name}");
    }
    let damaged = detect(b"x\n", "dedicated_log_torch_trace_x.log").unwrap();
    let expected = (Format::TorchCompileLog, Evidence::Extension);
    assert_eq!((damaged.format, damaged.evidence), expected);
    // The text of TORCH_LOGS=recompiles has no times of compilations.
    let text = "V1127 21:26:05.551000 77 torch/a.py:9] [0/1] [__recompiles] Recompiling\n";
    assert!(detect(text.as_bytes(), "x").is_err());
}

#[test]
fn compile_ids_may_begin_again() {
    // `torch._dynamo.reset()` does so.
    let whole = log();
    let probe = emitted([&*whole, &*whole].concat().as_bytes()).unwrap();
    assert_eq!(compilations(&probe).len(), 7);
}

#[test]
fn lines_that_are_no_entry_are_counted() {
    let text = log().replace("\"describe_tensor\": {", "\"describe_tensor\" {");
    let probe = emitted(format!("hello\n\n{text}").as_bytes()).unwrap();
    assert_eq!(probe.count(Diagnostic::Unreadable), 2);
    assert_eq!(compilations(&probe).len(), 4);
    for text in ["", "hello", "\tpayload\n", "{}"] {
        let refused = emitted(text.as_bytes()).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, FormatError::Malformed { .. }),
            "{refused}"
        );
    }
}

#[test]
fn hostile_values_are_bounded() {
    let mut text = String::new();
    let place = ", \"frame_id\": 18446744073709551615, \"frame_compile_id\": 7";
    let deep = format!("{}1{}", "[".repeat(9_000), "]".repeat(9_000));
    let long = "x".repeat(100_000);
    // The first metrics set the epoch; those years away have no time.
    for at in ["1000000", "9223372036854775807", "-1e300", "1e18", "\"\""] {
        let metrics = format!(
            "\"compilation_metrics\": {{\"co_name\": \"{long}\", \"restart_reasons\": {deep}, \"fail_reason\": \
             \"{long}\", \"start_time_us\": {at}, \"duration_us\": -5}}"
        );
        put(&mut text, &metrics, place, "");
    }
    let opposite = "\"compilation_metrics\": {\"start_time_us\": -1.6e32, \"end_time_us\": 1.6e32}";
    put(&mut text, opposite, place, "");
    for kind in ["B", "E", "X", "Q"] {
        phase(&mut text, &long, kind, 0.0, "None");
    }
    put(&mut text, "\"str\": 7", "", "");
    put(&mut text, "\"dynamo_start\": {\"stack\": [7]}", place, "");
    put(&mut text, "\"chromium_event\": {}", "", "[1, 2]");
    let probe = emitted(text.as_bytes()).unwrap();
    assert!(probe.count(Diagnostic::BadTime) >= 4);
    assert_eq!(probe.count(Diagnostic::NegativeDuration), 1);
    for slice in &probe.slices {
        assert!(slice.dur_ps >= 0 && slice.name.len() <= 4_096);
        for (key, value) in probe.args(slice.args) {
            assert!(value.len() < 3 * 4_096, "{key}: {} bytes", value.len());
        }
    }
}

#[test]
fn log_cut_anywhere_gives_what_came_before() {
    let whole = log();
    let all = emitted(whole.as_bytes()).unwrap();
    let mut most = 0;
    for at in 0..whole.len() {
        match emitted(&whole.as_bytes()[..at]) {
            Ok(probe) => {
                assert!(probe.slices.len() <= all.slices.len() + 1, "at {at}");
                assert!(probe.count(Diagnostic::Unreadable) == 0, "at {at}");
                most = most.max(compilations(&probe).len());
            }
            Err(FormatError::Malformed { .. }) => {}
            Err(other) => panic!("{other} at {at}"),
        }
        let _ = detect(&whole.as_bytes()[..at], "x");
    }
    assert_eq!(most, 4);
}

#[test]
fn flipped_bits_are_survived() {
    let whole = log();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.as_bytes().to_vec();
            damaged[at] ^= 1 << bit;
            if let Ok(probe) = emitted(&damaged) {
                assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
                for slice in &probe.slices {
                    let _ = probe.args(slice.args);
                }
            }
        }
    }
}
