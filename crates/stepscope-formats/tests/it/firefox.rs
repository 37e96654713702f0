//! Profiles of the Firefox Profiler: tables of threads and shared ones, markers, damaged files.

use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, ReadContext, SharedBytes, SliceFlags};

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::FirefoxProfile, &bytes, &context, &mut probe)?;
    assert!(arg_source(Format::FirefoxProfile, &bytes, &context).is_ok());
    Ok(probe)
}

/// As samply writes it (version 49): the tables belong to the thread, and equal samples that follow
/// each other are one.
const SAMPLY: &str = r#"{"meta":{"interval":1.0,"startTime":1700000000000.25,"product":"train","preprocessedProfileVersion":49,
    "sampleUnits":{"time":"ms","eventDelay":"ms","threadCPUDelta":"µs"},
    "categories":[{"name":"Other","color":"grey","subcategories":["Other"]},{"name":"User","color":"yellow"}]},
    "libs":[],"threads":[{"name":"main","pid":"56","tid":57,"processName":"train","isMainThread":true,
    "stringArray":["main","load","libc.so","0x1234","data.rs","batch","done"],
    "funcTable":{"length":3,"name":[0,1,3],"resource":[-1,-1,0],"fileName":[null,4,null],"lineNumber":[null,10,null]},
    "resourceTable":{"length":1,"name":[2],"lib":[0],"type":[1]},
    "frameTable":{"length":3,"func":[0,1,2],"line":[null,12,null],"category":[1,1,0]},
    "stackTable":{"length":3,"frame":[0,1,2],"prefix":[null,0,1]},
    "samples":{"length":5,"stack":[1,2,2,null,0],"time":[10,11,14,15.5,40],"weight":[1,1,3,1,1],"weightType":"samples",
    "threadCPUDelta":[0,900,2000,null,10]},
    "markers":{"length":5,"name":[5,6,5,5,6],"startTime":[10.5,12,20,0,30],"endTime":[12,null,null,25,null],
    "phase":[1,0,2,3,2],"category":[1,0,0,0,0],"data":[{"type":"Text","name":"a\"b"},null,null,null,null]}}]}"#;

/// Version 66 and later: shared tables, and distances to the parent.
const SHARED: &str = r#"{"meta":{"interval":0.5,"preprocessedProfileVersion":66},
    "shared":{"stringArray":["f","g","a.js"],"funcTable":{"name":[0,1],"source":[0,null]},
    "sources":{"length":1,"filename":[2]},"frameTable":{"func":[0,1],"line":[3,4]},
    "stackTable":{"frame":[0,1,1],"prefixOffset":[0,1,1]}},
    "threads":[{"name":"A","pid":"1","tid":"1","samples":{"stack":[1,2],"timeDeltas":[2,0.5],"weight":null}},
    {"name":"B","pid":"1","tid":"x-2","samples":{"stack":[0],"time":[7],"weight":[1.5],"weightType":"tracing-ms"}}]}"#;

fn slices(probe: &Probe) -> Vec<(&str, &str, &str, i64, i64)> {
    let mut slices: Vec<_> = probe
        .slices
        .iter()
        .map(|one| {
            let track = probe.tracks.iter().find(|track| track.key == one.track);
            let track = track.map_or("", |track| &*track.name);
            let (start, dur) = (one.start_ps / 1_000_000, one.dur_ps / 1_000_000);
            (track, &*one.name, &*one.category, start, dur)
        })
        .collect();
    slices.sort_by_key(|(track, _, _, start, dur)| (*track, *start, -*dur));
    slices
}

fn stacks(probe: &Probe) -> Vec<String> {
    let [profile] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    let samples = &profile.samples;
    let lines = samples.samples.iter().map(|sample| {
        let names = samples.frames(sample).map(|frame| {
            let row = &profile.rows[frame.row as usize];
            format!("{}@{}:{}", row.name, row.file, frame.line)
        });
        let names: Vec<String> = names.collect();
        let thread = samples.label(sample, "thread").unwrap_or_default();
        format!("{thread}: {} {:?}", names.join("<"), sample.values)
    });
    lines.collect()
}

#[test]
fn samples_and_markers_of_samply() {
    let probe = emitted(SAMPLY.as_bytes()).unwrap();
    assert_eq!(
        stacks(&probe),
        [
            "main: load@data.rs:12<main@:0 [1, 1000000, 0]",
            "main: 0x1234@libc.so:0<load@data.rs:12<main@:0 [4, 4000000, 2900000]",
            "main:  [1, 1000000, 0]",
            "main: main@:0 [1, 1000000, 10000]",
        ]
    );
    assert_eq!(
        slices(&probe),
        [
            ("main", "batch", "User", 10_500, 1_500),
            ("main", "batch", "Other", 20_000, 5_000),
            ("main", "done", "Other", 30_000, 0),
            ("main (sampled)", "main", "User", 10_000, 5_500),
            ("main (sampled)", "load", "User", 10_000, 5_500),
            ("main (sampled)", "0x1234", "Other", 11_000, 4_500),
            ("main (sampled)", "main", "User", 40_000, 1_000),
        ]
    );
    let [done] = &probe.instants[..] else {
        panic!("{} instants", probe.instants.len());
    };
    assert_eq!((&*done.name, done.at_ps), ("done", 12_000_000_000));
    let open = probe.slices.iter().find(|slice| slice.name == "done");
    assert_eq!(
        open.map(|slice| slice.flags),
        Some(SliceFlags::UNFINISHED.0)
    );
    let batch = probe.slices.iter().find(|slice| slice.name == "batch");
    let args = probe.args(batch.unwrap().args);
    assert_eq!(args.len(), 2);
    assert_eq!((&*args[1].0, &*args[1].1), ("name", r#"Str("a\"b")"#));
    let epoch = probe.epoch.unwrap();
    assert_eq!(epoch.unix_ns, Some(1_700_000_000_000_250_000));
    let group = &probe.tracks[0];
    assert_eq!((&*group.name, group.pid), ("train 56", Some(56)));
    assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 1);
    assert_eq!(probe.diagnostics.len(), 1);
}

#[test]
fn shared_tables_and_distances_to_the_parent() {
    let probe = emitted(SHARED.as_bytes()).unwrap();
    assert_eq!(
        stacks(&probe),
        [
            "A: g@:4<f@a.js:3 [1, 500000]",
            "A: g@:4<g@:4<f@a.js:3 [1, 500000]",
            "B: f@a.js:3 [1, 1500000]",
        ]
    );
    assert_eq!(
        slices(&probe),
        [
            ("A (sampled)", "f", "", 2_000, 1_000),
            ("A (sampled)", "g", "", 2_000, 1_000),
            ("A (sampled)", "g", "", 2_500, 500),
            ("B (sampled)", "f", "", 7_000, 500),
        ]
    );
    assert_eq!(probe.diagnostics, []);
}

#[test]
fn content_decides_the_format() {
    for text in [SAMPLY, SHARED] {
        for name in ["x", "profile.json", "a.trace.json"] {
            let found = detect(text.as_bytes(), name).unwrap();
            let expected = (Format::FirefoxProfile, Evidence::Content);
            assert_eq!((found.format, found.evidence), expected, "{name}");
        }
    }
}

#[test]
fn other_formats_and_empty_profiles_are_refused() {
    let raw = r#"{"meta":{"version":30},"threads":[{"name":"A","samples":{"schema":{"stack":0},"data":[]}}]}"#;
    let refused = emitted(raw.as_bytes()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("profiler.firefox.com"), "{refused}");
    for text in ["{\"meta\":{},\"threads\":[]}", "{\"threads\":[7]}", "{", ""] {
        let refused = emitted(text.as_bytes()).map(|_| ());
        assert!(
            matches!(refused, Err(FormatError::Malformed { .. })),
            "{text}"
        );
    }
}

#[test]
fn hostile_tables_end_and_are_counted() {
    // A stack whose parent follows it, one that is its own parent, indexes outside, and no names.
    let text = r#"{"meta":{},"threads":[{"stackTable":{"frame":[0,7,0],"prefix":[1,1,99]},"frameTable":{"func":[5]},
        "samples":{"stack":[0,1,2,88,-7,"x"],"time":[1,2,3,4,"z"],"weight":[1,-1,1,1,1,1]},
        "markers":{"name":[9,1,2],"startTime":[1,null,1e30],"endTime":[0,2,3],"phase":[1,3,0]}}]}"#;
    let probe = emitted(text.as_bytes()).unwrap();
    assert_eq!(probe.count(Diagnostic::Unreadable), 4);
    assert_eq!(probe.count(Diagnostic::NegativeDuration), 1);
    assert_eq!(probe.count(Diagnostic::UnmatchedEnd), 1);
    assert_eq!(probe.count(Diagnostic::BadTime), 3);
    assert!(probe.count(Diagnostic::MissingMetadata) > 0);
}

#[test]
fn one_deep_stack_is_not_repeated_without_end() {
    let depth = 4_000;
    let prefix: Vec<String> = (0..depth)
        .map(|at: u32| {
            at.checked_sub(1)
                .map_or("null".to_owned(), |at| at.to_string())
        })
        .collect();
    let zeros = vec!["0"; depth as usize].join(",");
    let stacks: Vec<String> = (0..depth).map(|at| at.to_string()).collect();
    let text = format!(
        r#"{{"meta":{{}},"threads":[{{"name":"a","stringArray":["f"],"funcTable":{{"name":[0]}},"frameTable":{{"func":[0]}},
        "stackTable":{{"frame":[{zeros}],"prefix":[{}]}},"samples":{{"stack":[{}],"time":[{}]}}}}]}}"#,
        prefix.join(","),
        stacks.join(","),
        stacks.join(","),
    );
    let probe = emitted(text.as_bytes()).unwrap();
    assert!(probe.slices.len() <= text.len() + 512);
    let frames: usize = probe.profiles[0]
        .samples
        .samples
        .iter()
        .map(|sample| sample.stack.len())
        .sum();
    assert!(frames <= 4 * text.len() + (1 << 16), "{frames}");
    assert!(probe.count(Diagnostic::LimitReached) > 0);
}

#[test]
fn files_cut_anywhere_give_what_came_before() {
    let mut most = 0;
    for at in 0..SAMPLY.len() {
        let bytes = &SAMPLY.as_bytes()[..at];
        let _ = detect(bytes, "x");
        match emitted(bytes) {
            Ok(probe) => most = most.max(probe.slices.len()),
            Err(FormatError::Malformed { .. }) => {}
            Err(other) => panic!("{other} at {at}"),
        }
    }
    assert_eq!(most, 7);
}

#[test]
fn flipped_bits_are_survived() {
    for text in [SAMPLY, SHARED] {
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut damaged = text.as_bytes().to_vec();
                damaged[at] ^= 1 << bit;
                let Ok(probe) = emitted(&damaged) else {
                    continue;
                };
                assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
            }
        }
    }
}
