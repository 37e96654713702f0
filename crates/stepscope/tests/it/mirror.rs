//! Tests of mirroring: a small tool in C that implements both protocols prints the calls it
//! receives.
//!
//! A process can load only one tool, so each case runs this test binary again as a child.

use std::path::{Path, PathBuf};
use std::process::Command;

use stepscope::manual_span::{ManualSpan, NameNumber, SpanKind, instant_with};
use stepscope::{
    Mirrors, SessionOptions, SpanArgValue, counter, instant, set_mirrors, span, start_trace_with,
    step, stop_trace,
};

use crate::{exclusive, names, read};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mirrors/tool.c");

/// Compiles the tool with the C compiler that also links this test.
fn tool(dir: &Path, more: &[&str]) -> PathBuf {
    let path = dir.join("libtool.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&path)
        .arg(SOURCE)
        .args(more)
        .arg("-ldl")
        .status();
    let status = compiled.expect("cannot start the C compiler cc");
    assert!(status.success(), "the tool does not compile");
    path
}

/// Returns the tool's log of a case, one line per call.
fn tool_log(case: &str, variable: &str, tool: &Path, more: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "mirror::child", "--nocapture"])
        .env("STEPSCOPE_MIRROR_CASE", case)
        .env("STEPSCOPE_TEST_DIR", dir.path())
        .env("MIRROR_TOOL_LOG", &log)
        .env(variable, tool)
        .envs(more.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {text}");
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

/// Removes the lines that only register texts.
fn events(log: &[String]) -> Vec<String> {
    let first = |line: &String| !line.contains("register") && !line.starts_with("itt string");
    let of_thread = |line: &String| {
        let (event, _thread) = line.rsplit_once('|').unwrap();
        event.to_owned()
    };
    log.iter()
        .filter(|line| first(line))
        .map(of_thread)
        .collect()
}

fn both() -> Mirrors {
    "nvtx, itt".parse().unwrap()
}

/// Runs the child's case. Does nothing without one.
#[test]
#[ignore = "the program of the other tests"]
fn child() {
    let Ok(case) = std::env::var("STEPSCOPE_MIRROR_CASE") else {
        return;
    };
    let _exclusive = exclusive();
    let dir = std::env::var("STEPSCOPE_TEST_DIR").unwrap();
    match case.as_str() {
        "no session" => {
            // One of the two tools is absent.
            let missing = set_mirrors(both());
            assert_eq!(missing.len(), 1, "{missing:?}");
            assert!(!stepscope::is_recording());
            verbs();
            set_mirrors(Mirrors::default());
            verbs();
        }
        "session" => {
            let options = SessionOptions {
                mirrors: both(),
                ..SessionOptions::default()
            };
            verbs();
            start_trace_with(&dir, &options).unwrap();
            verbs();
            let report = stop_trace().unwrap();
            assert_eq!((report.spans, report.unfinished), (5, 0));
            assert_eq!((report.instants, report.samples), (2, 2));
            assert!(
                report.warnings[0].starts_with("spans are not mirrored: no tool takes"),
                "{:?}",
                report.warnings
            );
            let probe = read(&report.path);
            assert_eq!(names(&probe), ["inner", "known", "open", "outer", "train"]);
            verbs();
        }
        "order" => {
            set_mirrors(both());
            let first = ManualSpan::begin("first", SpanKind::Span, &[]);
            let second = ManualSpan::begin("second", SpanKind::Span, &[]);
            first.end().unwrap();
            instant("first has ended");
            second.end().unwrap();
            let moved = ManualSpan::begin("moved", SpanKind::Span, &[]);
            std::thread::spawn(move || {
                if let Err(span) = moved.end() {
                    span.end_elsewhere("moved", &[]);
                }
                let _there = span!("there");
            })
            .join()
            .unwrap();
            let _after = span!("after");
            set_mirrors(Mirrors::default());
            // Still ends on the thread it started on.
        }
        #[cfg(feature = "tracing")]
        "tracing" | "tracing layer" => {
            use tracing_subscriber::layer::SubscriberExt as _;
            use tracing_subscriber::util::SubscriberInitExt as _;
            let _guard = if case == "tracing" {
                tracing::subscriber::set_default(stepscope::tracing::Recorder::new())
            } else {
                let layer = stepscope::tracing::RecorderLayer::new();
                tracing_subscriber::registry().with(layer).set_default()
            };
            set_mirrors(both());
            {
                let _outer = tracing::info_span!("request", id = 7).entered();
                let _inner = tracing::info_span!("query").entered();
                tracing::debug_span!("too detailed").in_scope(|| {});
            }
            let _left_open = tracing::info_span!("left open").entered();
            set_mirrors(Mirrors::default());
            set_mirrors(both());
            let _next = tracing::info_span!("next").entered();
        }
        "dead tool" => {
            let missing = set_mirrors(both());
            assert_eq!(missing.len(), 2, "{missing:?}");
            assert!(missing[0].contains("NVTX_INJECTION64_PATH"), "{missing:?}");
            assert!(missing[1].contains("INTEL_LIBITTNOTIFY64"), "{missing:?}");
            verbs();
        }
        other => panic!("no case {other}"),
    }
}

fn verbs() {
    let _outer = span!("outer", rows = 3);
    {
        let _inner = stepscope::Span::enter("inner");
        instant("at");
        counter("loss", 0.5);
        counter("not a number", f64::NAN);
        stepscope::counter!("rows", 7.0);
    }
    {
        let _step = step(41);
        instant_with("point", &[("a", SpanArgValue::Int(1))]);
    }
    let _ = ManualSpan::begin("open", SpanKind::Span, &[]).end();
    // Spans of call tracers are not mirrored.
    let _ = ManualSpan::begin_known(NameNumber::intern("known").unwrap()).end();
}

/// Calls that a tool receives from [`verbs`].
const NVTX: [&str; 13] = [
    "nvtx push|stepscope|outer|",
    "nvtx push|stepscope|inner|",
    "nvtx mark|stepscope|at|",
    "nvtx mark|stepscope|loss|0.5",
    "nvtx mark|stepscope|rows|7",
    "nvtx pop|stepscope||",
    "nvtx push|stepscope|train|41",
    "nvtx mark|stepscope|point|",
    "nvtx pop|stepscope||",
    "nvtx push|stepscope|open|",
    "nvtx pop|stepscope||",
    "nvtx pop|stepscope||",
    "",
];
const ITT: [&str; 13] = [
    "itt begin|stepscope|outer|",
    "itt begin|stepscope|inner|",
    "itt mark|stepscope|at|",
    "itt counter||loss|0.5",
    "itt counter||rows|7",
    "itt end|stepscope||",
    "itt begin|stepscope|train|",
    "itt metadata|stepscope|step_num|41",
    "itt mark|stepscope|point|",
    "itt end|stepscope||",
    "itt begin|stepscope|open|",
    "itt end|stepscope||",
    "itt end|stepscope||",
];

#[test]
fn nvtx_with_and_without_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(dir.path(), &[]);
    for case in ["no session", "session"] {
        let log = tool_log(case, "NVTX_INJECTION64_PATH", &tool, &[]);
        assert_eq!(events(&log), NVTX[..12], "{case}");
        // Each text is registered once.
        let registered = log.iter().filter(|line| line.contains("register")).count();
        assert_eq!(registered, 8, "{log:?}");
    }
    let plain = [("MIRROR_TOOL_PLAIN", "1")];
    let log = tool_log("no session", "NVTX_INJECTION64_PATH", &tool, &plain);
    let in_no_domain: Vec<String> = NVTX[..12]
        .iter()
        .map(|line| line.replace("|stepscope|", "||"))
        .collect();
    assert_eq!(events(&log), in_no_domain);
}

#[test]
fn itt_with_and_without_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let new = tool(dir.path(), &[]);
    for case in ["no session", "session"] {
        assert_eq!(
            events(&tool_log(case, "INTEL_LIBITTNOTIFY64", &new, &[])),
            ITT,
            "{case}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let old = tool(dir.path(), &["-DOTHER_COLLECTOR"]);
    assert_eq!(
        events(&tool_log("no session", "INTEL_LIBITTNOTIFY64", &old, &[])),
        ITT
    );
}

#[test]
fn mirrored_ranges_nest_even_if_spans_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(dir.path(), &[]);
    let log = tool_log("order", "NVTX_INJECTION64_PATH", &tool, &[]);
    let log: Vec<String> = log
        .iter()
        .filter(|line| !line.contains("register"))
        .map(|line| {
            let parts: Vec<&str> = line.split('|').collect();
            format!("{} {}", parts[0].trim_start_matches("nvtx "), parts[2])
        })
        .collect();
    assert_eq!(
        log,
        [
            "push first",
            "push second",
            "mark first has ended",
            "pop ",
            "pop ",
            "push moved",
            "push there",
            "pop ",
            // The end of the range whose span ended on the other thread.
            "pop ",
            "push after",
            "pop ",
        ]
    );
}

#[cfg(feature = "tracing")]
#[test]
fn tracing_spans_are_mirrored() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(dir.path(), &[]);
    let expected = [
        "nvtx push|stepscope|request|",
        "nvtx push|stepscope|query|",
        "nvtx pop|stepscope||",
        "nvtx pop|stepscope||",
        "nvtx push|stepscope|left open|",
        // Its span may have ended while nothing was mirrored.
        "nvtx pop|stepscope||",
        "nvtx push|stepscope|next|",
        "nvtx pop|stepscope||",
    ];
    for case in ["tracing", "tracing layer"] {
        let log = tool_log(case, "NVTX_INJECTION64_PATH", &tool, &[]);
        assert_eq!(events(&log), expected, "{case}");
    }
}

#[test]
fn tools_that_cannot_be_loaded_are_warnings() {
    let nowhere = Path::new("/nothing/here.so");
    let log = tool_log(
        "dead tool",
        "NVTX_INJECTION64_PATH",
        nowhere,
        &[("INTEL_LIBITTNOTIFY64", "/nothing/there.so")],
    );
    assert!(log.is_empty());
    assert!("nvtx,vtune".parse::<Mirrors>().is_err());
}
