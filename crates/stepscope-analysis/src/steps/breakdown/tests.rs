//! Breakdown of steps in traces that are drawn as text.

use stepscope_store::ascii_trace;

use super::*;
use crate::steps::steps;

fn shown(drawing: &str) -> Vec<String> {
    let trace = ascii_trace::trace(drawing);
    let devices = Devices::from_trace(&trace, &Cancel::default()).unwrap();
    let found = steps(&trace);
    let analysis_windows: Vec<AnalysisWindow> = found
        .steps
        .iter()
        .map(|step| AnalysisWindow::from_step(&trace, step))
        .collect();
    let parts = breakdown(&trace, &devices, &analysis_windows, &Cancel::default()).unwrap();
    found
        .steps
        .iter()
        .zip(&parts.parts)
        .map(|(step, parts)| {
            assert_eq!(parts.sum(), step.dur);
            let buckets: Vec<String> = parts
                .buckets()
                .into_iter()
                .filter(|(_, dur)| *dur > Dur::ZERO)
                .map(|(bucket, dur)| format!("{} {}", bucket.as_str(), dur.ps() / 1_000_000))
                .collect();
            let length = step.dur.ps() / 1_000_000;
            format!("step{} {length}us = {}", step.number, buckets.join(" + "))
        })
        .collect()
}

#[test]
fn time_is_charged_to_the_first_bucket_that_applies() {
    assert_eq!(
        shown(
            "
            main                | step0------------------------------step1------
                                |  dataloader--  Launch----               Run--
            gpu/compute #device |                  matmul-----
            gpu/comm #device    |                       ncclAllReduce--
            gpu/copy #device    |          MemcpyH2D
            "
        ),
        [
            "step0 35us = compute 11 + exposed_communication 7 + exposed_copy 8 + input 8 + idle 1",
            "step1 11us = exposed_communication 2 + host 5 + idle 4",
        ]
    );
}

#[test]
fn without_a_device_the_host_computes() {
    assert_eq!(
        shown(
            "
            main   | step0---------------------
                   |  dataloader--  Call
                   |    matmul-
            worker |                 dot.1---
            "
        ),
        ["step0 26us = compute 8 + input 12 + host 1 + idle 5"]
    );
}

#[test]
fn a_marker_alone_is_idle() {
    assert_eq!(shown("main | step0-----"), ["step0 10us = idle 10"]);
}

#[test]
fn a_loop_computes_where_nothing_inside_it_is_recorded() {
    assert_eq!(
        shown(
            "
            main                | step0--------------------
                                |   call
            gpu/compute #device |   while----------
                                |     dot--
            gpu/copy #device    |            MemcpyD2H
            "
        ),
        ["step0 25us = compute 9 + exposed_copy 9 + idle 7"]
    );
}

#[test]
fn each_device_is_charged_separately_and_the_step_is_the_mean() {
    assert_eq!(
        shown(
            "
            main              | step0--------------------
                              |   call-
            gpu0/s #device=0  | matmul----
            gpu1/s #device=1  |               matmul----
            "
        ),
        // The rest, 2.5 and 12.5 us, is shown in whole microseconds.
        ["step0 25us = compute 10 + host 2 + idle 12"]
    );
}

#[test]
fn a_process_that_is_a_rank_has_the_devices_it_launches_work_on() {
    assert_eq!(
        shown(
            "
            a #pid=1     | step0-----
                         |  run>1
            b #pid=2     | step0-----
                         |  run>2
            s0 #device=0 |     dot<1
            s1 #device=1 |     dot<2---
            "
        ),
        [
            "step0 10us = compute 5 + host 3 + idle 2",
            "step0 10us = compute 6 + host 3 + idle 1",
        ]
    );
}

#[test]
fn buckets_of_three_devices_add_up_to_the_picosecond() {
    let parts = |compute: i64, idle: i64| DeviceStep {
        device: 0,
        parts: StepParts {
            compute: Dur::from_ps(compute),
            idle: Dur::from_ps(idle),
            ..StepParts::default()
        },
    };
    let found = mean(&[parts(10, 0), parts(1, 9), parts(0, 10)]);
    assert_eq!(found.sum(), Dur::from_ps(10));
    assert_eq!(
        (found.compute, found.idle),
        (Dur::from_ps(3), Dur::from_ps(7))
    );
}
