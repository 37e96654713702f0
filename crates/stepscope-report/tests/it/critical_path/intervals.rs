//! Intervals of predictions over steps.

use super::kineto::Kineto;
use super::{report, run_of, scenarios};

/// Steps with an operation of these lengths, in microseconds, and 100 us after it.
fn steps(lengths: &[i64]) -> Kineto {
    let mut file = Kineto::new(None);
    let mut start = 0;
    for (number, length) in (0..).zip(lengths) {
        file.step(number, (start, start + length + 100));
        file.op("aten::a", (start, start + length), 1);
        start += length + 100;
    }
    file
}

/// The saved time of a scenario with its interval, microseconds.
fn saved(file: &Kineto, what_if: &str) -> [Option<f64>; 3] {
    let (_folder, run) = run_of(file);
    let found = report(&run.trace, "op", &[what_if]);
    let row = &scenarios(&found)[0];
    ["saved_low_ns", "saved_ns", "saved_high_ns"].map(|key| row[key].as_f64().map(|ns| ns / 1e3))
}

#[test]
fn equal_steps_save_equal_times() {
    let file = steps(&[100; 6]);
    assert_eq!(saved(&file, "host:aten::a=0"), [Some(600.0); 3]);
    assert_eq!(saved(&file, "host:aten::a=x0.5"), [Some(300.0); 3]);
    assert_eq!(saved(&file, "host:aten::a=x1"), [Some(0.0); 3]);
}

#[test]
fn steps_that_save_different_times_widen_the_interval() {
    let lengths = [100, 140, 100, 180, 120, 160, 110, 150];
    let [low, middle, high] = saved(&steps(&lengths), "host:aten::a=0").map(Option::unwrap);
    assert_eq!(middle, 1_060.0);
    assert!((800.0..1_060.0).contains(&low), "{low}");
    assert!((1_060.1..1_440.0).contains(&high), "{high}");
}

#[test]
fn four_steps_have_no_interval() {
    let found = saved(&steps(&[100; 4]), "host:aten::a=0");
    assert_eq!(found, [None, Some(400.0), None]);
}

#[test]
fn starts_of_steps_that_run_ahead_of_the_device_give_no_interval() {
    let mut file = Kineto::new(None);
    for number in 0..6 {
        let start = number * 100;
        file.step(
            number,
            (start, if number < 5 { start + 100 } else { 2_000 }),
        );
        let call = file.call("cudaLaunchKernel", (start, start + 20));
        file.kernel("k", (30 + number * 320, 350 + number * 320), 7, call);
    }
    let wait = file.call("cudaStreamSynchronize", (550, 1_960));
    file.sync("Stream Sync", (550, 1_960), wait, 7, None);
    let [low, middle, high] = saved(&file, "kernel:k=x0.5");
    assert!(middle.is_some_and(|saved| saved > 500.0), "{middle:?}");
    assert_eq!([low, high], [None, None]);
}
