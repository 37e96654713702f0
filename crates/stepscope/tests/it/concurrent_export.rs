//! Tests of exports while threads continue to record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stepscope::{
    ExportLimits, FlightOptions, SessionOptions, span, start_capture, start_flight, stop_flight,
    write_last,
};
use stepscope_formats::probe::Probe;
use stepscope_formats::xspace;
use stepscope_model::{ReadContext, SliceFlags};

use crate::{exclusive, flush};

fn parse(bytes: Vec<u8>) -> Probe {
    let mut probe = Probe::new();
    let bytes: stepscope_model::SharedBytes = Arc::new(bytes);
    xspace::read(&bytes, &ReadContext::default(), &mut probe).unwrap();
    probe
}

/// Ends the threads, even when a check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `f` while threads record steps with a span inside.
fn during_steps(f: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let _step = stepscope::step(number);
                    let _inner = span!("inner", n = number);
                    if number % 4 == 0 {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
        let _stop = Stop(&stop);
        f();
    });
}

/// Checks that every step has its number, that each number occurs once, and that only the last step
/// may be unfinished.
fn check(bytes: Vec<u8>) {
    let probe = parse(bytes);
    let mut steps: BTreeMap<&str, Vec<(i64, i64, bool)>> = BTreeMap::new();
    for slice in &probe.slices {
        let args = probe.args(slice.args);
        let number = args
            .iter()
            .find(|arg| matches!(arg.0.as_str(), "step_num" | "n"));
        assert!(number.is_some(), "{slice:?}: {args:?}");
        let unfinished = slice.flags & SliceFlags::UNFINISHED.0 != 0;
        if slice.name == "train" {
            let number = slice.step.unwrap();
            let steps = steps.entry(&slice.track).or_default();
            steps.push((number, slice.start_ps, unfinished));
        }
    }
    for mut steps in steps.into_values() {
        steps.sort_unstable();
        for pair in steps.windows(2) {
            assert_eq!(pair[0].0 + 1, pair[1].0, "a step is missing or there twice");
            assert!(pair[0].1 <= pair[1].1 && !pair[0].2);
        }
    }
}

#[test]
fn unfinished_steps_have_their_numbers_in_flight_recorder_output() {
    let _exclusive = exclusive();
    start_flight(&FlightOptions::default()).unwrap();
    during_steps(|| {
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(1));
            let mut bytes = Vec::new();
            let last = Duration::from_micros(300);
            let report = write_last(last, &mut bytes, &ExportLimits::default()).unwrap();
            assert_eq!(report.dropped, 0);
            check(bytes);
        }
    });
    stop_flight().unwrap();
}

#[test]
fn unfinished_steps_have_their_numbers_in_captures() {
    let _exclusive = exclusive();
    for on_flight_recorder in [false, true] {
        if on_flight_recorder {
            start_flight(&FlightOptions::default()).unwrap();
        }
        during_steps(|| {
            for _ in 0..40 {
                let capture = start_capture(&SessionOptions::default()).unwrap();
                std::thread::sleep(Duration::from_micros(300));
                let mut bytes = Vec::new();
                let report = capture
                    .finish(&mut bytes, &ExportLimits::default())
                    .unwrap();
                assert_eq!(report.dropped, 0);
                check(bytes);
            }
        });
    }
    stop_flight().unwrap();
}

#[test]
fn capture_on_flight_recorder_has_arguments_of_spans_open_before_it() {
    let _exclusive = exclusive();
    start_flight(&FlightOptions::default()).unwrap();
    let write = || {
        for n in 0..100_000_i64 {
            let _span = span!("work", n = n);
            if n % 20_000 == 0 {
                flush();
            }
        }
    };
    let open = span!("open", epoch = 3);
    let ends = span!("ends meanwhile", epoch = 4);
    write();
    let capture = start_capture(&SessionOptions::default()).unwrap();
    drop(ends);
    write();
    let mut bytes = Vec::new();
    let report = capture
        .finish(&mut bytes, &ExportLimits::default())
        .unwrap();
    let probe = parse(bytes);
    for (name, value) in [("open", "Int(3)"), ("ends meanwhile", "Int(4)")] {
        let found = probe.slices.iter().find(|slice| slice.name == name);
        let args = probe.args(found.unwrap().args);
        assert_eq!(args, [("epoch".to_owned(), value.to_owned())], "{name}");
    }
    assert_eq!(report.warnings, Vec::<String>::new());
    drop(open);
    stop_flight().unwrap();
}
