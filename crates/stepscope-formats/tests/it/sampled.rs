//! Sampled stacks of other profilers: speedscope, collapsed stacks, perf script; whole and damaged
//! files.

use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, Profile, ProfileKind, ReadContext, SharedBytes};

fn emitted(format: Format, bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(format, &bytes, &context, &mut probe)?;
    assert!(arg_source(format, &bytes, &context).is_ok());
    Ok(probe)
}

/// Returns each stack of a profile, outermost function first, with its values and labels.
fn stacks(profile: &Profile) -> Vec<String> {
    assert_eq!(profile.kind, ProfileKind::Samples);
    let samples = &profile.samples;
    let lines = samples.samples.iter().map(|sample| {
        let mut names: Vec<String> = samples
            .frames(sample)
            .map(|frame| {
                let row = &profile.rows[frame.row as usize];
                match (&*row.file, frame.line) {
                    ("", _) => row.name.to_string(),
                    (file, 0) => format!("{} ({file})", row.name),
                    (file, line) => format!("{} ({file}:{line})", row.name),
                }
            })
            .collect();
        names.reverse();
        let labels = samples.label_sets[sample.labels as usize].iter();
        let labels: Vec<String> = labels
            .map(|label| format!(" {}={}", label.key, label.value))
            .collect();
        let stack = names.join(";");
        format!("{stack} {:?}{}", sample.values, labels.concat())
    });
    lines.collect()
}

fn types(profile: &Profile) -> Vec<(&str, &str)> {
    let types = profile.samples.types.iter();
    types.map(|one| (&*one.name, &*one.unit)).collect()
}

/// Returns track, name, start and length of each slice, in order.
fn slices(probe: &Probe) -> Vec<(&str, &str, i64, i64)> {
    let mut slices: Vec<_> = probe
        .slices
        .iter()
        .map(|one| {
            let track = probe.tracks.iter().find(|track| track.key == one.track);
            let track = track.map_or("", |track| &*track.name);
            (track, &*one.name, one.start_ps, one.dur_ps)
        })
        .collect();
    slices.sort_by_key(|(track, _, start, dur)| (*track, *start, -*dur));
    slices
}

/// As py-spy writes it: two threads, seconds.
const SAMPLED: &str = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[
    {"type":"sampled","name":"Thread 1","unit":"seconds","startValue":0.0,"endValue":0.03,
     "samples":[[0,1],[0,1,2],[0]],"weights":[0.01,0.02,0.01]},
    {"type":"sampled","name":"Thread 2","unit":"seconds","startValue":0.5,"endValue":0.51,
     "samples":[[0]],"weights":[0.01]}],
    "shared":{"frames":[{"name":"<module>","file":"a.py","line":9},{"name":"load","file":"a.py","line":2},
    {"name":"re\"ad","file":"b.py","line":3}]},"activeProfileIndex":null,"exporter":"py-spy@0.4.0","name":"a"}"#;

const EVENTED: &str = r#"{"exporter":"speedscope@0.6.0","name":"b","profiles":[
    {"type":"evented","name":"one","unit":"microseconds","startValue":100,"endValue":120,"events":[
     {"type":"O","frame":0,"at":100},{"type":"O","frame":1,"at":101.5},{"type":"C","frame":1,"at":103},
     {"type":"O","frame":1,"at":110}]},
    {"type":"evented","name":"two","unit":"bytes","startValue":0,"endValue":14,"events":[
     {"type":"O","frame":0,"at":0},{"type":"O","frame":1,"at":2},{"type":"C","frame":1,"at":7},
     {"type":"O","frame":1,"at":7},{"type":"C","frame":1,"at":8},{"type":"C","frame":0,"at":14}]},
    {"type":"sampled","name":"three","unit":"none","startValue":0,"endValue":3,
     "samples":[[0,1],[0,1],[7]],"weights":[2,1.5,1]}],
    "shared":{"frames":[{"name":"a"},{"name":"b"}]},"$schema":"https://www.speedscope.app/file-format-schema.json"}"#;

#[test]
fn speedscope_samples_become_stacks_and_a_timeline() {
    let probe = emitted(Format::Speedscope, SAMPLED.as_bytes()).unwrap();
    assert_eq!(probe.diagnostics, []);
    let [profile] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    assert_eq!(
        types(profile),
        [("samples", "count"), ("time", "nanoseconds")]
    );
    assert_eq!(profile.samples.default_type, 1);
    assert_eq!(
        stacks(profile),
        [
            "<module> (a.py:9);load (a.py:2) [1, 10000000] profile=Thread 1",
            "<module> (a.py:9);load (a.py:2);re\"ad (b.py:3) [1, 20000000] profile=Thread 1",
            "<module> (a.py:9) [1, 10000000] profile=Thread 1",
            "<module> (a.py:9) [1, 10000000] profile=Thread 2",
        ]
    );
    let ms = 1_000_000_000;
    assert_eq!(
        slices(&probe),
        [
            ("Thread 1 (sampled)", "<module>", 0, 40 * ms),
            ("Thread 1 (sampled)", "load", 0, 30 * ms),
            ("Thread 1 (sampled)", "re\"ad", 10 * ms, 20 * ms),
            ("Thread 2 (sampled)", "<module>", 500 * ms, 10 * ms),
        ]
    );
    let facts: Vec<&str> = probe.facts.iter().map(|fact| &*fact.0).collect();
    assert_eq!(facts, ["profile_name", "exporter"]);
}

#[test]
fn speedscope_events_become_slices_or_stacks() {
    let probe = emitted(Format::Speedscope, EVENTED.as_bytes()).unwrap();
    let us = 1_000_000;
    assert_eq!(
        slices(&probe),
        [
            ("one", "a", 0, 20 * us),
            ("one", "b", 1_500_000, 1_500_000),
            ("one", "b", 10 * us, 10 * us),
        ]
    );
    assert_eq!(probe.epoch.map(|epoch| epoch.origin_ns), Some(100_000));
    let [bytes, counts] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    assert_eq!(types(bytes), [("samples", "count"), ("memory", "bytes")]);
    assert_eq!(
        stacks(bytes),
        ["a [2, 8] profile=two", "a;b [2, 6] profile=two"]
    );
    assert_eq!(types(counts), [("samples", "count")]);
    assert_eq!(
        stacks(counts),
        ["a;b [4] profile=three", "frame 7 [1] profile=three"]
    );
    assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 2);
    assert_eq!(probe.count(Diagnostic::MissingMetadata), 1);
    assert_eq!(probe.count(Diagnostic::Unreadable), 1, "the weight of 1.5");
}

#[test]
fn hostile_speedscope_files_are_counted() {
    let profile = |rest: &str| {
        let text = format!(
            r#"{{"shared":{{"frames":[{{"name":"a"}},{{"name":"b"}}]}},"profiles":[{{{rest}}}]}}"#
        );
        emitted(Format::Speedscope, text.as_bytes()).unwrap()
    };
    let probe = profile(
        r#""unit":"seconds","startValue":"x","events":[{"type":"C","frame":0,"at":1},
        {"type":"O","frame":0,"at":2},{"type":"O","frame":1,"at":1},{"type":"C","frame":0,"at":3},
        {"type":"O","at":1},7,{"type":"O","frame":1,"at":1e40}]"#,
    );
    assert_eq!(probe.slices.len(), 2);
    assert_eq!(probe.count(Diagnostic::UnmatchedEnd), 2);
    assert_eq!(probe.count(Diagnostic::NegativeDuration), 1);
    assert_eq!(probe.count(Diagnostic::Unreadable), 2);
    assert_eq!(probe.count(Diagnostic::BadTime), 1);
    let probe = profile(
        r#""unit":"milliseconds","samples":[[0],[1],0,["x"],[0,1]],"weights":[-1,"1e999",1,2]"#,
    );
    assert_eq!(probe.count(Diagnostic::BadTime), 2);
    assert_eq!(probe.count(Diagnostic::Unreadable), 3);
    assert!(probe.slices.is_empty());
    // Without weights, nothing tells how long a sample is.
    let probe = profile(r#""unit":"milliseconds","samples":[[0],[0]]"#);
    assert_eq!(stacks(&probe.profiles[0]), ["a [2]"]);
    assert!(probe.slices.is_empty());
    for text in ["{\"shared\":{}}", "{\"profiles\":[]}", "{", ""] {
        let refused = emitted(Format::Speedscope, text.as_bytes()).map(|_| ());
        assert!(
            matches!(refused, Err(FormatError::Malformed { .. })),
            "{text}"
        );
    }
}

#[test]
fn collapsed_stacks_are_read() {
    let text = "# made by hand\n\u{feff}a;b;c 1\r\na;b;d 4\r\n\na;b;c 3\nno number\na;b 5\nx 1.5\nz -1\n 2\n";
    let probe = emitted(Format::CollapsedStacks, text.as_bytes()).unwrap();
    let [profile] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    assert_eq!(types(profile), [("samples", "count")]);
    assert_eq!(
        stacks(profile),
        [
            "\u{feff}a;b;c [1]",
            "a;b;d [4]",
            "a;b;c [3]",
            "a;b [5]",
            " [2]"
        ]
    );
    assert_eq!(probe.count(Diagnostic::Unreadable), 3);
    let huge = format!("a;b {}\na;b {}\n", i64::MAX, i64::MAX);
    let probe = emitted(Format::CollapsedStacks, huge.as_bytes()).unwrap();
    let expected = format!("a;b [{}]", i64::MAX);
    assert_eq!(stacks(&probe.profiles[0]), [expected]);
    let spy = "python (1);<module> (a.py:3);load (b.py:7) 2\n";
    let probe = emitted(Format::CollapsedStacks, spy.as_bytes()).unwrap();
    assert_eq!(
        stacks(&probe.profiles[0]),
        ["python (1);<module> (a.py:3);load (b.py:7) [2]"]
    );
    assert!(emitted(Format::CollapsedStacks, b"no stack\n").is_err());
    let probe = emitted(Format::CollapsedStacks, b"a;\xff 1\n").unwrap();
    assert_eq!(probe.count(Diagnostic::BadText), 1);
}

const PERF: &str = "# ========\n# cmdline : perf record -g ./a\n# ========\n#\n\
    train 9/10 [001] 100.001000:     250000 task-clock:ppp: \n\
    \t 63c load+0x1c (/bin/train)\n\t 6f3 main (/bin/train)\n\n\
    train 9/10 [001] 100.001250:     250000 task-clock:ppp: \n\
    \t 641 load+0x21 (/bin/train)\n\t 6f3 main (/bin/train)\n\n\
    data loader 9/11 [000] 100.001300:  1 page-faults: \n\
    \tffffffff81 [unknown] ([kernel.kallsyms])\n\n\
    train 9/10 [001] 100.001500:     250000 task-clock:ppp: \n\t 6f4 main (/bin/train)\n\n\
    train 9/10 [001] 100.009000:     250000 task-clock:ppp: \n\t 6f4 main (/bin/train)\n";

#[test]
fn perf_samples_become_stacks_by_event_and_a_timeline() {
    let probe = emitted(Format::PerfScript, PERF.as_bytes()).unwrap();
    assert_eq!(probe.diagnostics, []);
    let [clock, faults] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    let of_clock = [("samples", "count"), ("task-clock:ppp", "nanoseconds")];
    assert_eq!(types(clock), of_clock);
    assert_eq!(
        stacks(clock),
        [
            "train;main (/bin/train);load (/bin/train) [2, 500000] process=9 thread=10",
            "train;main (/bin/train) [2, 500000] process=9 thread=10",
        ]
    );
    assert_eq!(
        types(faults),
        [("samples", "count"), ("page-faults", "count")]
    );
    assert_eq!(
        stacks(faults),
        ["data loader;[unknown] ([kernel.kallsyms]) [1, 1] process=9 thread=11"]
    );
    let us = 1_000_000;
    assert_eq!(
        slices(&probe),
        [
            ("data loader 11 (sampled)", "[unknown]", 300 * us, 250 * us),
            ("train 10 (sampled)", "main", 0, 750 * us),
            ("train 10 (sampled)", "load", 0, 500 * us),
            ("train 10 (sampled)", "main", 8_000 * us, 250 * us),
        ]
    );
    let epoch = probe.epoch.map(|epoch| epoch.origin_ns);
    assert_eq!(epoch, Some(100_001_000_000));
}

#[test]
fn perf_output_without_stacks_and_with_other_lines() {
    let text = "  a  9 1.5: cycles:  1f f+0x1 (/a)\n  a  9 1.6: cycles:  2f g (/a)\nWarning: lost\n\
        a 9 9999999999999999999999.5: cycles: 1f f (/a)\n";
    let probe = emitted(Format::PerfScript, text.as_bytes()).unwrap();
    assert_eq!(
        stacks(&probe.profiles[0]),
        ["a;f (/a) [2] thread=9", "a;g (/a) [1] thread=9"]
    );
    assert_eq!(probe.count(Diagnostic::Unreadable), 1);
    assert_eq!(probe.count(Diagnostic::BadTime), 1);
    assert_eq!(slices(&probe).len(), 2);
    assert!(emitted(Format::PerfScript, b"nothing\n").is_err());
    // One event per sample, without end.
    let lines: Vec<String> = (0..300).map(|n| format!("a 9 1.5: e{n}: 1f f\n")).collect();
    let many = lines.concat();
    let probe = emitted(Format::PerfScript, many.as_bytes()).unwrap();
    assert_eq!(probe.profiles.len(), 256);
    assert_eq!(probe.count(Diagnostic::LimitReached), 44);
}

#[test]
fn content_decides_the_format() {
    let cases = [
        (SAMPLED, Format::Speedscope),
        (EVENTED, Format::Speedscope),
        ("a;b 1\n", Format::CollapsedStacks),
        (PERF, Format::PerfScript),
    ];
    for (text, format) in cases {
        for name in ["x", "a.json", "a.txt", "a.folded", "a.pb.gz"] {
            let found = detect(text.as_bytes(), name).unwrap();
            let expected = (format, Evidence::Content);
            assert_eq!((found.format, found.evidence), expected, "{name}");
        }
    }
    // Only the name tells.
    for (text, name, format) in [
        ("{\"exporter\":", "a.speedscope.json", Format::Speedscope),
        ("no stack\n", "a.folded", Format::CollapsedStacks),
        ("no sample\n", "a.perf.txt", Format::PerfScript),
    ] {
        let found = detect(text.as_bytes(), name).unwrap();
        assert_eq!(
            (found.format, found.evidence),
            (format, Evidence::Extension)
        );
    }
    assert!(detect(b"no stack\n", "a.txt").is_err());
}

#[test]
fn files_cut_anywhere_give_what_came_before() {
    for (format, text, most) in [
        (Format::Speedscope, SAMPLED, 4),
        (Format::Speedscope, EVENTED, 4),
        (Format::CollapsedStacks, "a;b 12\na;c 34\n", 2),
        // A sample that is cut in its stack has a stack of its own.
        (Format::PerfScript, PERF, 4),
    ] {
        let mut found = 0;
        for at in 0..text.len() {
            let bytes = &text.as_bytes()[..at];
            let _ = detect(bytes, "x");
            match emitted(format, bytes) {
                Ok(probe) => {
                    let samples = probe.profiles.iter().map(|one| one.samples.samples.len());
                    found = found.max(samples.sum());
                }
                Err(FormatError::Malformed { .. }) => {}
                Err(other) => panic!("{format:?}: {other} at {at}"),
            }
        }
        assert_eq!(found, most, "{format:?}");
    }
}

#[test]
fn flipped_bits_are_survived() {
    for (format, text) in [
        (Format::Speedscope, SAMPLED),
        (Format::Speedscope, EVENTED),
        (Format::CollapsedStacks, "a;b 12\na;c 34\n"),
        (Format::PerfScript, PERF),
    ] {
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut damaged = text.as_bytes().to_vec();
                damaged[at] ^= 1 << bit;
                let Ok(probe) = emitted(format, &damaged) else {
                    continue;
                };
                assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
                for profile in &probe.profiles {
                    for sample in &profile.samples.samples {
                        assert_eq!(sample.values.len(), profile.samples.types.len());
                    }
                }
            }
        }
    }
}
