//! Each finder, on a trace that it should and one that it should not find.

use stepscope_store::drawing;

use super::*;

fn found(drawing: &str) -> Vec<(&'static str, i64)> {
    let trace = drawing::trace(drawing);
    let survey = Survey::of(&trace, None, &Cancel::default()).unwrap();
    findings(&survey, &Memory::default(), &Cancel::default())
        .unwrap()
        .into_iter()
        .inspect(|finding| {
            assert!(!finding.advice.is_empty() && !finding.title.is_empty());
            assert!(finding.evidence.len() <= 5);
        })
        .map(|finding| (finding.name, finding.stake.ps() / 1_000_000))
        .collect()
}

#[test]
fn waiting_for_input_is_found() {
    let drawing = "
        main        | step0--------------------step1-------------------
                    |  dataloader--            dataloader---
        gpu/7 #device |              matmul-----             matmul-----
        ";
    assert_eq!(found(drawing)[0], ("input", 24));
}

#[test]
fn communication_in_the_open_is_found() {
    let drawing = "
        main          | step0-----------------------------
                      | Run
        gpu/7 #device | matmul--------------------
        gpu/8 #device |               ncclAllReduce-------
        ";
    assert_eq!(found(drawing), [("communication", 8)]);
}

#[test]
fn compiling_in_later_steps_is_found() {
    let drawing = "
        main | step0------------------step1------------------step2------------
             |  compile-------------  compile--   dot-----    dot------------
        ";
    let found = found(drawing);
    assert!(found.contains(&("compile", 9)), "{found:?}");
}

#[test]
fn a_slow_host_is_found() {
    let drawing = "
        main          | step0-----------------------------
                      |  Prepare-------------   Finish----
        gpu/7 #device |                      matmul
        ";
    assert_eq!(found(drawing), [("host", 28)]);
}

#[test]
fn a_wait_for_an_idle_device_is_found() {
    let drawing = "
        main          | step0-----------------------------
                      |       cudaStreamSynchronize-------
        gpu/7 #device | matmul-----------------
        ";
    let found = found(drawing);
    assert!(found.contains(&("syncs", 11)), "{found:?}");
}

#[test]
fn one_long_step_among_short_ones_is_found() {
    let drawing = "
        main | step0-step1-step2-step3-------------------step4-step5-step6-
             | dot---dot---dot---dot---------------------dot---dot---dot---
        ";
    assert_eq!(found(drawing), [("uneven", 18)]);
}

#[test]
fn a_healthy_run_has_no_findings() {
    let drawing = "
        main          | step0-------step1-------
                      | Run
        gpu/7 #device | matmul------matmul------
        ";
    assert_eq!(found(drawing), []);
    assert_eq!(found("main | a"), []);
}
