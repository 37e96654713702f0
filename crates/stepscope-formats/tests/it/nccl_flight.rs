//! Dumps of PyTorch's flight recorder: as pickle and as JSON, damaged and hostile ones.

use std::fmt::Write as _;
use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, ReadContext, SharedBytes, SliceFlags};

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::NcclFlightRecorder, &bytes, &context, &mut probe)?;
    assert!(arg_source(Format::NcclFlightRecorder, &bytes, &context).is_ok());
    Ok(probe)
}

/// Two collectives of the default group, and one of another that did not end.
const JSON: &str = r#"{"version":"2.9","comm_lib_version":"2.26.2","pg_config":{"0":{"name":"0","desc":"default_pg",
    "ranks":"[0, 1]"},"3":{"name":"3","desc":"tp","ranks":"[1]"}},"pg_status":{"0":{"last_enqueued_collective":"2",
    "last_started_collective":-1,"last_completed_collective":2}},"entries":[
    {"frames":[{"name":"step","filename":"a \"b\".py","line":7},{"name":"main","filename":"a.py","line":9}],
    "record_id":0,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":1,"p2p_seq_id":0,"op_id":1,
    "profiling_name":"nccl:all_reduce","time_created_ns":1724779239936775119,"input_sizes":[[3,4],[5]],
    "input_dtypes":["Float"],"output_sizes":[[3,4],[5]],"output_dtypes":["Float"],"state":"completed",
    "time_discovered_started_ns":null,"time_discovered_completed_ns":1724779239975811724,"retired":true,
    "timeout_ms":600000,"is_p2p":false,"duration_ms":0.25},
    {"pg_id":1,"process_group":["3","tp"],"collective_seq_id":1,"profiling_name":"nccl:broadcast",
    "time_created_ns":1724779239936776119,"state":"scheduled","time_discovered_completed_ns":null},
    {"pg_id":0,"process_group":["0","default_pg"],"profiling_name":"nccl:all_gather",
    "time_created_ns":1724779239936777119,"time_discovered_completed_ns":1724779239936777118}]}"#;

/// Pickles a JSON value as torch does, in protocol 2; sizes become tuples.
fn pickle(value: &serde_json::Value, out: &mut Vec<u8>) {
    use serde_json::Value as Json;
    match value {
        Json::Null => out.push(b'N'),
        Json::Bool(is) => out.push(if *is { 0x88 } else { 0x89 }),
        Json::Number(number) => {
            if let Some(whole) = number.as_i64() {
                out.extend([0x8a, 8]);
                out.extend(whole.to_le_bytes());
            } else {
                out.push(b'G');
                out.extend(number.as_f64().unwrap().to_be_bytes());
            }
        }
        Json::String(text) => {
            out.push(b'X');
            out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            out.extend(text.as_bytes());
        }
        Json::Array(elements) => {
            out.push(b'(');
            for element in elements {
                pickle(element, out);
            }
            out.push(b't');
        }
        Json::Object(members) => {
            out.extend(b"}(");
            for (key, value) in members {
                pickle(&key.as_str().into(), out);
                pickle(value, out);
            }
            out.push(b'u');
        }
    }
}

fn pickled(json: &str) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let mut out = vec![0x80, 2];
    // `version` and `pg_config` come first in torch's dumps.
    out.extend(b"}(");
    let members = value.as_object().unwrap();
    for key in [
        "version",
        "comm_lib_version",
        "pg_config",
        "pg_status",
        "entries",
    ] {
        pickle(&key.into(), &mut out);
        pickle(&members[key], &mut out);
    }
    out.extend(b"u.");
    out
}

#[test]
fn both_forms_hold_the_same() {
    for bytes in [JSON.as_bytes().to_vec(), pickled(JSON)] {
        let probe = emitted(&bytes).unwrap();
        let slices: Vec<_> = probe
            .slices
            .iter()
            .map(|one| (&*one.track, &*one.name, one.start_ps, one.dur_ps))
            .collect();
        assert_eq!(
            slices,
            [
                ("group/0", "nccl:all_reduce", 0, 39_036_605_000),
                ("group/3", "nccl:broadcast", 1_000_000, 39_035_605_000),
                ("group/0", "nccl:all_gather", 2_000_000, 0),
            ]
        );
        assert_eq!(probe.slices[1].flags, SliceFlags::UNFINISHED.0);
        let names: Vec<&str> = probe.tracks.iter().map(|track| &*track.name).collect();
        assert_eq!(
            names,
            ["process group 0 (default_pg)", "process group 3 (tp)"]
        );
        let args = probe.args(probe.slices[0].args);
        let arg = |key: &str| {
            let found = args.iter().find(|arg| arg.0 == key);
            found.map(|arg| &*arg.1)
        };
        assert_eq!(arg("Collective name"), Some("Str(\"all_reduce\")"));
        assert_eq!(arg("Process Group Ranks"), Some("Str(\"[0, 1]\")"));
        assert_eq!(arg("Group size"), Some("Int(2)"));
        assert_eq!(arg("In msg nelems"), Some("Int(17)"));
        assert_eq!(arg("dtype"), Some("Str(\"Float\")"));
        assert_eq!(arg("input_sizes"), Some("Json(\"[[3, 4], [5]]\")"));
        assert_eq!(arg("duration_ms"), Some("Double(0.25)"));
        let stack = arg("Call stack").unwrap_or_default();
        assert!(stack.contains("a.py(9): main"), "{stack}");
        let unix_ns = probe.epoch.and_then(|epoch| epoch.unix_ns);
        assert_eq!(unix_ns, Some(1_724_779_239_936_775_119));
        let facts = |key: &str| {
            let found = probe.facts.iter().find(|fact| fact.0 == key);
            found.map(|fact| &*fact.1)
        };
        assert_eq!(facts("nccl_version"), Some("Str(\"2.26.2\")"));
        let last = "process_group.0.last_enqueued_collective";
        assert_eq!(facts(last), Some("Int(2)"));
        assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 1);
        assert_eq!(probe.count(Diagnostic::NegativeDuration), 1);
    }
}

#[test]
fn content_decides_the_format() {
    for bytes in [JSON.as_bytes().to_vec(), pickled(JSON)] {
        for name in ["nccl_trace_rank_0", "a.json", "a.pkl", "x"] {
            let found = detect(&bytes, name).unwrap();
            let expected = (Format::NcclFlightRecorder, Evidence::Content);
            assert_eq!((found.format, found.evidence), expected, "{name}");
        }
    }
}

#[test]
fn files_without_collectives_and_pickles_that_run_code_are_refused() {
    let refused = |bytes: &[u8]| emitted(bytes).map(|_| ()).unwrap_err();
    let code = refused(b"\x80\x02}(X\x07\0\0\0entriescos\nsystem\n");
    assert!(matches!(code, FormatError::NotATrace { .. }), "{code}");
    for bytes in [
        &b""[..],
        b"\x80\x02}.",
        b"{\"entries\":[]}",
        b"{",
        b"\x80\x02N.",
    ] {
        assert!(matches!(refused(bytes), FormatError::Malformed { .. }));
    }
}

#[test]
fn hostile_values_are_bounded() {
    // Sizes with many tensors, entries that are no dictionaries, deep nesting, times that overflow.
    let tensors = vec!["[1,2,3]"; 20_000].join(",");
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let mut text = String::from("{\"pg_config\":[7],\"entries\":[5,null,\"x\",");
    write!(
        text,
        "{{\"time_created_ns\":18446744073709551615,\"input_sizes\":[{tensors}],\"output_sizes\":{deep}}},\
         {{\"time_created_ns\":1,\"time_discovered_completed_ns\":18446744073709551615}}]}}"
    )
    .unwrap();
    let probe = emitted(text.as_bytes()).unwrap();
    assert_eq!(probe.count(Diagnostic::BadTime), 4);
    let slice = &probe.slices[0];
    assert_eq!((&*slice.name, slice.dur_ps), ("(unknown)", 0));
    let alone = text.replace("18446744073709551615,\"input", "9,\"input");
    let probe = emitted(alone.as_bytes()).unwrap();
    let args = probe.args(probe.slices[0].args);
    let longest = args.iter().map(|arg| arg.1.len()).max();
    assert!(longest.is_some_and(|longest| longest < 3 * 4_096));
}

#[test]
fn files_cut_anywhere_give_what_came_before() {
    for bytes in [JSON.as_bytes().to_vec(), pickled(JSON)] {
        let mut most = 0;
        for at in 0..bytes.len() {
            match emitted(&bytes[..at]) {
                Ok(probe) => most = most.max(probe.slices.len()),
                Err(FormatError::Malformed { .. }) => {}
                Err(other) => panic!("{other} at {at}"),
            }
            let _ = detect(&bytes[..at], "x");
        }
        assert_eq!(most, 3);
    }
}

#[test]
fn flipped_bits_are_survived() {
    for bytes in [JSON.as_bytes().to_vec(), pickled(JSON)] {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
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
}
