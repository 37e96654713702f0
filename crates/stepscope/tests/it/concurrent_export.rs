//! Tests of exports while threads continue to record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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

/// Number of steps that each thread may take.
///
/// A limit, since threads that record as fast as they can lose events when the reader of their rings is slower.
#[derive(Default)]
struct Limit {
    steps: AtomicI64,
    /// Number of steps that the threads have begun.
    begun: AtomicI64,
}

impl Limit {
    /// Steps by which the limit rises: a part of what a ring holds.
    const RISE: i64 = 200;

    /// Lets the threads go on, so that they record during what follows; waits until one of them does.
    fn rise(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.steps.fetch_add(Self::RISE, Ordering::Relaxed);
        while self.begun.load(Ordering::Relaxed) == begun {
            std::thread::yield_now();
        }
    }

    /// Waits until the limit is at least `number`, a step that has begun; false when the threads must end.
    fn wait(&self, number: i64) -> bool {
        self.begun.fetch_add(1, Ordering::Relaxed);
        loop {
            match self.steps.load(Ordering::Relaxed) {
                i64::MIN..0 => return false,
                limit if limit >= number => return true,
                _ => std::thread::yield_now(),
            }
        }
    }
}

/// Ends the threads, even when a check fails.
struct End<'a>(&'a Limit);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.steps.store(i64::MIN, Ordering::Relaxed);
    }
}

/// Runs `f` while threads record steps with a span inside.
fn during_steps(f: impl FnOnce(&Limit)) {
    let limit = Limit::default();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut is_on = true;
                let mut number = 0;
                while is_on {
                    number += 1;
                    let _step = stepscope::step(number);
                    let _inner = span!("inner", n = number);
                    is_on = limit.wait(number);
                }
            });
        }
        let _end = End(&limit);
        f(&limit);
    });
}

/// Checks that every step has its number, that each number occurs once, and that only the last step
/// may be unfinished; returns the number of steps.
fn check(bytes: Vec<u8>) -> usize {
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
    let count = steps.values().map(Vec::len).sum();
    for mut steps in steps.into_values() {
        steps.sort_unstable();
        for pair in steps.windows(2) {
            assert_eq!(pair[0].0 + 1, pair[1].0, "a step is missing or there twice");
            assert!(
                pair[0].1 <= pair[1].1 && !pair[0].2,
                "number, start, unfinished: {pair:?}"
            );
        }
    }
    count
}

#[test]
fn unfinished_steps_have_their_numbers_in_flight_recorder_output() {
    let _exclusive = exclusive();
    start_flight(&FlightOptions::default()).unwrap();
    during_steps(|limit| {
        let mut steps = 0;
        for _ in 0..60 {
            limit.rise();
            let mut bytes = Vec::new();
            let last = Duration::from_micros(300);
            let report = write_last(last, &mut bytes, &ExportLimits::default()).unwrap();
            assert_eq!(report.dropped, 0);
            steps += check(bytes);
        }
        assert!(steps > 0);
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
        during_steps(|limit| {
            let mut steps = 0;
            for _ in 0..40 {
                limit.rise();
                let capture = start_capture(&SessionOptions::default()).unwrap();
                limit.rise();
                let mut bytes = Vec::new();
                let report = capture
                    .finish(&mut bytes, &ExportLimits::default())
                    .unwrap();
                assert_eq!(report.dropped, 0);
                steps += check(bytes);
            }
            assert!(steps > 0);
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
