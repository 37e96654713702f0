//! Tests that the file contains the recorded events.

use stepscope::{SessionOptions, span, start_trace, start_trace_with, stop_trace};
use stepscope_model::SliceFlags;

use crate::{exclusive, files, flush, names, read};

#[test]
fn spans_steps_counters_and_instants_come_back() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let before = stepscope_model::clock::unix_now_ns();
    start_trace(dir.path()).unwrap();
    for n in 0..3 {
        let _step = stepscope::step(n);
        {
            let _forward = span!(
                "forward",
                batch = 32_u32,
                rate = 0.5,
                path = "a/b",
                cold = true
            );
            let _inner = stepscope::Span::enter(&format!("layer {n}"));
        }
        stepscope::counter("loss", 2.0 - n as f64);
        stepscope::counter!("loss", f64::NAN);
        stepscope::instant("mark");
        stepscope::instant!("mark", at = n);
    }
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.instants, report.samples), (9, 6, 3));
    assert_eq!(
        (report.dropped, report.unfinished, report.threads),
        (0, 0, 1)
    );
    assert!(report.crash_safe, "{:?}", report.warnings);
    assert_eq!(files(dir.path()), std::slice::from_ref(&report.path));
    let session = report.path.parent().unwrap();
    assert_eq!(
        std::fs::read_dir(session).unwrap().count(),
        1,
        "the journal is gone"
    );

    let probe = read(&report.path);
    let mut expected = vec!["forward"; 3];
    expected.extend(["layer 0", "layer 1", "layer 2"]);
    expected.extend(["train"; 3]);
    assert_eq!(names(&probe), expected);
    let steps: Vec<_> = probe.slices.iter().filter_map(|slice| slice.step).collect();
    assert_eq!(steps, [0, 1, 2]);
    let forward = probe
        .slices
        .iter()
        .find(|slice| slice.name == "forward")
        .unwrap();
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        probe.args(forward.args),
        [
            text("batch", "Int(32)"),
            text("rate", "Double(0.5)"),
            text("path", "Str(\"a/b\")"),
            text("cold", "Bool(true)"),
        ]
    );
    let losses: Vec<_> = probe.samples.iter().map(|sample| sample.2).collect();
    assert_eq!(losses, [2.0, 1.0, 0.0]);
    assert_eq!(probe.instants.len(), 6);
    assert!(probe.instants.iter().all(|instant| instant.name == "mark"));
    // Children are within their parents, and steps follow one another.
    for step in probe.slices.iter().filter(|slice| slice.step.is_some()) {
        let end = step.start_ps + step.dur_ps;
        let inside = probe
            .slices
            .iter()
            .filter(|slice| slice.start_ps >= step.start_ps && slice.start_ps < end)
            .filter(|slice| slice.start_ps + slice.dur_ps <= end);
        assert_eq!(inside.count(), 3);
    }
    let fact = |key: &str| {
        probe
            .facts
            .iter()
            .find(|fact| fact.0 == key)
            .map(|fact| fact.1.clone())
    };
    assert!(fact("writer").unwrap().contains("stepscope"));
    assert_eq!(fact("pid").unwrap(), format!("Int({})", std::process::id()));
    let epoch = probe.epoch.unwrap();
    let now = stepscope_model::clock::unix_now_ns();
    let began = epoch.unix_ns.unwrap();
    // The system may adjust the clock by a little meanwhile.
    assert!(
        began <= now && began >= before - 1_000_000_000,
        "{before} {began} {now}"
    );
}

#[test]
fn durations_match_the_wall_clock() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    stepscope::counter("first use", 1.0);
    let before = std::time::Instant::now();
    let inside = {
        let _span = span!("wait");
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 30 {
            std::hint::spin_loop();
        }
        start.elapsed()
    };
    let around = before.elapsed();
    let report = stop_trace().unwrap();
    let length_ns = read(&report.path).slices[0].dur_ps / 1_000;
    let ns = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap();
    // The clocks agree to a thousandth.
    assert!(
        length_ns >= ns(inside) / 1_000 * 999 && length_ns <= ns(around) / 1_000 * 1_001 + 1_000,
        "{inside:?} <= {length_ns} ns <= {around:?}"
    );
}

#[test]
fn threads_appear_by_their_names_and_200_of_them_fit() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..200 {
            std::thread::Builder::new()
                .name(format!("a worker of the pool {n}"))
                .spawn_scoped(scope, move || {
                    for _ in 0..50 {
                        let _span = span!("work", n = n);
                    }
                })
                .unwrap();
        }
    });
    let report = stop_trace().unwrap();
    assert_eq!(
        (report.spans, report.threads, report.dropped),
        (10_000, 200, 0)
    );
    let probe = read(&report.path);
    for n in [0, 7, 199] {
        let name = format!("a worker of the pool {n}");
        let track = probe
            .tracks
            .iter()
            .find(|track| track.name == name)
            .unwrap();
        let mine = probe.slices.iter().filter(|slice| slice.track == track.key);
        assert_eq!(mine.count(), 50);
    }
}

#[test]
fn spans_open_at_the_stop_are_unfinished_and_end_later_harmlessly() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    let open = span!("open", depth = 1);
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (1, 1));
    let probe = read(&report.path);
    assert_ne!(probe.slices[0].flags & SliceFlags::UNFINISHED.0, 0);
    assert_eq!(probe.args(probe.slices[0].args)[0].0, "depth");
    start_trace(dir.path()).unwrap();
    let second = span!("second");
    drop(open);
    drop(second);
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (1, 0));
    assert_eq!(names(&read(&report.path)), ["second"]);
}

#[test]
fn guards_may_end_out_of_order_and_nest_deeper_than_the_slots() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    let first = span!("first");
    let second = span!("second");
    drop(first);
    drop(second);
    let mut deep: Vec<_> = (0..2_000).map(|_| span!("deep")).collect();
    deep.swap(3, 1_500);
    drop(deep);
    std::mem::forget(span!("leaked"));
    let report = stop_trace().unwrap();
    assert_eq!(
        (report.spans, report.unfinished, report.dropped),
        (2_003, 1, 0)
    );
}

#[test]
fn off_records_nothing_and_level_0_too() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let off = span!("off");
    assert!(!off.is_recording());
    drop(off);
    let options = SessionOptions {
        host_tracer_level: stepscope::HostTracerLevel::Off,
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    let _span = span!("none");
    stepscope::counter("none", 1.0);
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.samples), (0, 0));
    assert!(read(&report.path).slices.is_empty());
}

#[test]
fn a_million_and_a_half_spans_are_all_there() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    for _ in 0..300 {
        for _ in 0..5_000 {
            let _span = span!("many");
        }
        flush();
    }
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.dropped), (1_500_000, 0));
    assert_eq!(read(&report.path).slices.len(), 1_500_000);
}

#[test]
fn a_full_ring_drops_and_counts() {
    let _exclusive = exclusive();
    // With the second limit even the journal's own blocks do not fit.
    for memory_limit_bytes in [200_000, 1] {
        let dir = tempfile::tempdir().unwrap();
        let options = SessionOptions {
            buffer_bytes: 1,
            memory_limit_bytes,
            crash_safe: false,
            ..SessionOptions::default()
        };
        start_trace_with(dir.path(), &options).unwrap();
        let total = 400_000;
        for _ in 0..total {
            let _span = span!("flood");
        }
        let report = stop_trace().unwrap();
        assert!(report.dropped > 0);
        assert!(!report.crash_safe);
        assert_eq!(report.spans + report.dropped, total, "{memory_limit_bytes}");
        assert!(report.warnings.iter().any(|text| text.contains("dropped")));
    }
}

#[test]
fn long_and_odd_texts_come_back() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    let long = "ü".repeat(20_000);
    let odd = "a#b=c,d\0\u{7}<script>\n";
    {
        let _span = stepscope::Span::enter(odd);
        let _span = stepscope::Span::enter(&long);
        let _span = span!("args", text = odd, long = &long, empty = "");
    }
    let report = stop_trace().unwrap();
    assert_eq!(report.cut_texts, 2);
    let probe = read(&report.path);
    let args = probe
        .slices
        .iter()
        .find(|slice| slice.name == "args")
        .unwrap();
    let values = probe.args(args.args);
    assert_eq!(values[0].1, format!("Str({odd:?})"));
    assert_eq!(values[2].1, "Str(\"\")");
    assert!(names(&probe).contains(&odd));
    assert!(
        probe
            .slices
            .iter()
            .any(|slice| slice.name == long[..16 << 10])
    );
}

#[test]
fn two_threads_at_full_speed_lose_only_what_is_counted() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        buffer_bytes: 128 << 10,
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    let each = 600_000_u64;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..each {
                    let _outer = span!("outer", n = n);
                    let _inner = span!("inner");
                }
            });
        }
    });
    let report = stop_trace().unwrap();
    let probe = read(&report.path);
    let mut last = std::collections::HashMap::new();
    let mut seen = 0;
    for slice in &probe.slices {
        if slice.name == "outer" {
            seen += 1;
            // Every recorded outer span has a unique number, and the numbers increase on each
            // thread.
            let args = probe.args(slice.args);
            if let Some((_, value)) = args.first() {
                let n: i64 = value[4..value.len() - 1].parse().unwrap();
                let before = last.insert(slice.track.clone(), n).unwrap_or(-1);
                assert!(n > before, "{n} after {before}");
            }
        }
    }
    assert!(seen > 0);
    assert!(report.spans + report.dropped >= 4 * each);
    // A dropped record is a span or an argument.
    assert!(report.spans <= 4 * each && report.spans + report.dropped <= 6 * each);
}

#[test]
fn step_has_its_number_after_other_uses_of_its_key() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    drop(span!("load", step_num = 7));
    drop(stepscope::step(3));
    drop(span!("load", step_num = 8));
    let probe = read(&stop_trace().unwrap().path);
    let step_numbers = |name: &str| {
        let slices = probe.slices.iter().filter(|slice| slice.name == name);
        slices.map(|slice| slice.step).collect::<Vec<_>>()
    };
    assert_eq!(
        (step_numbers("train"), step_numbers("load")),
        (vec![Some(3)], vec![None; 2])
    );
}
