//! Properties over made-up texts: the same as a strict parser, cut anywhere, damaged anywhere.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stepscope_formats::probe::Probe;
use stepscope_model::Diagnostic;

use super::{content, read, read_with, shared};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\\\\"{}\\[\\],:a ]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"\\\\]{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

fn entry() -> impl Strategy<Value = Value> {
    (
        prop_oneof![Just("X"), Just("i"), Just("B"), Just("s")],
        any::<String>(),
        0..4_u8,
        0..1_000_000_u32,
        0..1_000_u16,
        prop::collection::btree_map(any::<String>(), value(), 0..5),
        prop::collection::btree_map("[g-m]{2}", value(), 0..2),
    )
        .prop_map(|(phase, name, tid, ts, dur, args, extra)| {
            let mut entry = json!({
                "ph": phase, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur,
                "args": Map::from_iter(args),
            });
            entry.as_object_mut().unwrap().extend(extra);
            entry
        })
}

/// A value as the reader gives it, told by a strict parser.
fn description(value: &Value) -> String {
    match value {
        Value::Bool(is) => format!("Bool({is})"),
        Value::String(text) => format!("Str({text:?})"),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => format!("Int({whole})"),
            (_, Some(whole)) => format!("Uint({whole})"),
            _ => format!("Double({:?})", number.as_f64().unwrap()),
        },
        nested => format!("Json({:?})", nested.to_string()),
    }
}

fn check_against_strict_parser(entries: &[Value]) -> Result<(), TestCaseError> {
    let text = json!({ "traceEvents": entries, "other": [1, "]}"] }).to_string();
    let probe = read(text);
    let wanted: Vec<&Value> = entries.iter().filter(|entry| entry["ph"] == "X").collect();
    let complete: Vec<_> = probe
        .slices
        .iter()
        .filter(|slice| slice.flags == 0)
        .collect();
    prop_assert_eq!(complete.len(), wanted.len());
    let origin_ps = probe.epoch.unwrap().origin_ns * 1_000;
    for (slice, entry) in complete.iter().zip(wanted) {
        prop_assert_eq!(&slice.name, entry["name"].as_str().unwrap());
        prop_assert_eq!(&slice.track, &format!("7/{}", entry["tid"]));
        let start_ps = entry["ts"].as_i64().unwrap() * 1_000_000;
        prop_assert_eq!(slice.start_ps + origin_ps, start_ps);
        prop_assert_eq!(slice.dur_ps, entry["dur"].as_i64().unwrap() * 1_000_000);
        let standard = ["ph", "name", "pid", "tid", "ts", "dur", "args", "cat"];
        let extra = entry
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| !standard.contains(&key.as_str()));
        let args: Vec<_> = entry["args"]
            .as_object()
            .unwrap()
            .iter()
            .chain(extra)
            .map(|(key, value)| (key.clone(), description(value)))
            .collect();
        prop_assert_eq!(probe.args(slice.args), args);
    }
    let count = |phase: &str| entries.iter().filter(|entry| entry["ph"] == phase).count();
    prop_assert_eq!(probe.instants.len(), count("i"));
    prop_assert_eq!(probe.flows.len(), count("s"));
    prop_assert_eq!(probe.count(Diagnostic::UnfinishedSlice), count("B") as u64);
    prop_assert_eq!(probe.count(Diagnostic::Unreadable), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn says_what_a_strict_parser_says(entries in prop::collection::vec(entry(), 1..20)) {
        check_against_strict_parser(&entries)?;
    }
}

/// A small file with a bit of everything.
fn varied() -> (String, Vec<(usize, &'static str)>) {
    let events = [
        r#"{"ph":"M","name":"process_name","pid":1,"args":{"name":"py\"thon"}}"#,
        r#"{"ph":"X","name":"a\\","cat":"cpu_op","pid":1,"tid":2,"ts":10.125,"dur":3,"args":{"l":[[1,2],{"k":"}]"}],"s":"\u00e9\n"}}"#,
        r#"{"ph":"B","name":"b","pid":1,"tid":"x","ts":11}"#,
        r#"{"ph":"X","name":"kernel <1, 2>","cat":"kernel","pid":0,"tid":7,"ts":12,"dur":0.5,"args":{"device":0,"stream":7}}"#,
        r#"{"ph":"s","id":3,"cat":"ac2g","name":"ac2g","pid":1,"tid":2,"ts":11}"#,
        r#"{"ph":"C","name":"mem","pid":1,"ts":12,"args":{"v":1.5}}"#,
        r#"{"ph":"E","pid":1,"tid":"x","ts":13,"args":{"end":1}}"#,
        r#"{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":2,"ts":13,"args":{}}"#,
        r#"{"ph":"X","name":"é","pid":1,"tid":2,"ts":14,"dur":1e-3}"#,
    ];
    let mut text = String::from("{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n  ");
    let mut complete = Vec::new();
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            text.push_str(",\n  ");
        }
        text.push_str(event);
        if event.contains("\"ph\":\"X\"") {
            complete.push((text.len(), *event));
        }
    }
    text.push_str(
        "\n  ],\n  \"baseTimeNanoseconds\": 1700000000000000000,\n  \"z\": {\"a\": [1]}\n}\n",
    );
    (text, complete)
}

#[test]
fn every_whole_entry_before_a_cut_is_kept() {
    let (text, complete) = varied();
    let whole = read(text.clone());
    assert_eq!(whole.diagnostics, []);
    for cut in 0..text.len() {
        let Ok(probe) = read_with(&shared(&text.as_bytes()[..cut]), 1) else {
            assert!(
                complete.iter().all(|(end, _)| *end > cut),
                "nothing kept at {cut}"
            );
            continue;
        };
        let kept = complete.iter().filter(|(end, _)| *end <= cut).count();
        let slices = probe
            .slices
            .iter()
            .filter(|slice| slice.name != "b")
            .count();
        assert_eq!(slices, kept, "cut at {cut}");
        // A cut in the white space behind the last brace loses nothing.
        let closed = text.as_bytes()[..cut].trim_ascii_end().ends_with(b"}\n}");
        assert_eq!(
            probe.count(Diagnostic::Truncated),
            u64::from(!closed),
            "cut at {cut}"
        );
        touch(&probe);
    }
}

/// Fetches every argument.
fn touch(probe: &Probe) {
    for slice in &probe.slices {
        probe.args(slice.args);
    }
    for instant in &probe.instants {
        probe.args(instant.args);
    }
}

#[test]
fn no_flipped_bit_brings_it_down() {
    let (text, complete) = varied();
    let mut kept = 0;
    let mut cases = 0;
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            cases += 1;
            if let Ok(probe) = read_with(&shared(bytes), 1) {
                touch(&probe);
                kept += probe.slices.len();
            }
        }
    }
    // On the average far less than one entry is lost to a flipped bit.
    let all = cases * (complete.len() + 1);
    assert!(kept * 10 > all * 9, "{kept} of {all}");
}

#[test]
fn threads_do_not_change_the_result() {
    use std::fmt::Write as _;
    let mut text = String::from("{\"traceEvents\":[\n");
    for number in 0..60_000_u32 {
        let tid = number % 7;
        let odd = match number % 1_000 {
            // What looks like the beginning of an entry, inside a string and inside a list.
            1 => r#","args":{"s":"},\n {\"ph\":\"X\"","l":[{"ph":"X"},{"ph":"X","ts":1}]}"#,
            2 => r#","args":{"path":"C:\dir\","x":1}"#,
            3 => r#","args":{"x":"5" disk"}"#,
            _ => r#","args":{"External id":5,"Call stack":"a;b;c","Input Dims":[[1,2],[3]]}"#,
        };
        let phase = ["X", "X", "X", "i", "B", "E"][number as usize % 6];
        let _ = write!(
            text,
            "  {{\"ph\":\"{phase}\",\"name\":\"op{}\",\"cat\":\"c{tid}\",\"pid\":1,\"tid\":{tid},\"ts\":{number}.25,\"dur\":0.5{odd}}},\n{}",
            number % 500,
            " ".repeat(90),
        );
    }
    text.push_str("  {}\n]}");
    assert!(text.len() > 8 << 20);
    let bytes = shared(text);
    let one = content(&read_with(&bytes, 1).unwrap());
    for threads in [2, 3, 8] {
        let many = content(&read_with(&bytes, threads).unwrap());
        assert!(one == many, "{threads} threads");
    }
}
