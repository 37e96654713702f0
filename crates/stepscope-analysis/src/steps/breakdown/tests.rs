//! Where steps' time goes, in drawn traces.

use stepscope_store::drawing;

use super::*;
use crate::steps::steps;

fn shown(drawing: &str) -> Vec<String> {
    let trace = drawing::trace(drawing);
    let devices = Devices::of(&trace, &Cancel::default()).unwrap();
    let found = steps(&trace);
    let stretches: Vec<Stretch> = found
        .steps
        .iter()
        .map(|step| Stretch::of_step(&trace, step))
        .collect();
    let parts = breakdown(&trace, &devices, &stretches, &Cancel::default()).unwrap();
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
                .map(|(name, dur)| format!("{name} {}", dur.ps() / 1_000_000))
                .collect();
            let length = step.dur.ps() / 1_000_000;
            format!("step{} {length}us = {}", step.number, buckets.join(" + "))
        })
        .collect()
}

#[test]
fn a_moment_is_charged_to_the_first_bucket_that_applies() {
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
