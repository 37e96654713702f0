//! Each finder, on a trace that it should and one that it should not find.

use stepscope_model::{ArgValue, EventSink as _};
use stepscope_store::{FileSpec, Trace, TraceBuilder, drawing};

use super::*;
use crate::reports::Options;

fn found(drawing: &str) -> Vec<(&'static str, i64)> {
    found_in(&drawing::trace(drawing))
}

fn found_in(trace: &Trace) -> Vec<(&'static str, i64)> {
    let survey = Survey::of(trace, &Options::default(), &Cancel::default()).unwrap();
    findings(&survey, &Memory::default(), &Cancel::default())
        .unwrap()
        .into_iter()
        .inspect(|finding| {
            for said in [&finding.title, &finding.advice] {
                let first = said.chars().next();
                assert!(first.is_some_and(|letter| !letter.is_lowercase()), "{said}");
            }
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
fn advice_is_for_the_kind_of_program_that_ran() {
    let drawing = "
        main          | step0-----------------------------
                      |  Prepare-------------   Finish----
        gpu/7 #device |                      matmul
        ";
    let advice = |kind: &str| {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.fact(&format!("kind.{kind}"), ArgValue::Bool(true));
        drawing::pour(drawing, &mut sink);
        builder.add(sink);
        let trace = builder.finish();
        let survey = Survey::of(&trace, &Options::default(), &Cancel::default()).unwrap();
        let found = findings(&survey, &Memory::default(), &Cancel::default()).unwrap();
        found[0].advice.clone()
    };
    let (launched, compiled) = (advice("PyTorch"), advice("JAX"));
    assert!(
        launched.contains("torch.compile") && !launched.contains("jit"),
        "{launched}"
    );
    assert!(
        compiled.contains("jit") && !compiled.contains("CUDA graph"),
        "{compiled}"
    );
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
fn a_rank_that_is_slower_for_good_has_no_outliers() {
    let quick = "main | step0-step1-step2-step3-step4-step5-step6-";
    let slow = "main | step0-------step1-------step2-------step3-------step4-------";
    let spiked =
        "main | step0-------step1-------step2-------step3---------------------------step4-------";
    let uneven = |drawings: [&str; 4]| {
        let mut builder = TraceBuilder::new();
        for (rank, drawing) in (0..).zip(drawings) {
            let mut sink = builder.file(FileSpec {
                rank: Some(rank),
                ..FileSpec::default()
            });
            drawing::pour(drawing, &mut sink);
            builder.add(sink);
        }
        let trace = builder.finish();
        let found = found_in(&trace);
        found.into_iter().find(|(name, _)| *name == "uneven")
    };
    assert_eq!(uneven([quick, quick, quick, slow]), None);
    // One step of 32 us where that rank's take 12 us.
    assert_eq!(uneven([quick, quick, quick, spiked]), Some(("uneven", 20)));
}

#[test]
fn what_makes_a_step_long_is_named() {
    let titled = |drawing: &str| {
        let trace = drawing::trace(drawing);
        let survey = Survey::of(&trace, &Options::default(), &Cancel::default()).unwrap();
        let found = findings(&survey, &Memory::default(), &Cancel::default()).unwrap();
        let uneven = found.into_iter().find(|finding| finding.name == "uneven");
        uneven.map_or_else(String::new, |finding| finding.title)
    };
    let compiles = titled(
        "
        main | step0-step1-step2-step3-------------------step4-step5-step6-
             | dot---dot---dot---compile-----------------dot---dot---dot---
        ",
    );
    assert!(compiles.ends_with("most of it compile"), "{compiles}");
    let both = titled(
        "
        main | step0-step1-step2-step3-------------------step4-step5-step6-
             | dot---dot---dot---compile----dataloader---dot---dot---dot---
        ",
    );
    assert!(both.ends_with("lost"), "{both}");
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

#[test]
fn copies_in_the_open_are_found() {
    // The copy goes from 6 to 22; the computation ends at 10, the step at 21.
    let drawing = "
        main          | step0----------------
                      | Run
        gpu/7 #device | matmul----
        gpu/8 #device |       MemcpyDtoH------
        ";
    assert_eq!(found(drawing), [("copies", 11)]);
    // Behind computation it costs nothing.
    let hidden = "
        main          | step0----------------
                      | Run
        gpu/7 #device | matmul---------------
        gpu/8 #device |       MemcpyDtoH-----
        ";
    assert_eq!(found(hidden), []);
}

#[test]
fn many_small_kernels_are_found() {
    // 20 kernels of 3 us, 2 us apart: 19 gaps.
    let kernels = ["k--"; 20].join("  ");
    let step = format!("step0{}", "-".repeat(95));
    let drawing = format!("\n main | {step}\n | Run\n gpu/7 #device | {kernels}\n");
    let all = found(&drawing);
    assert!(all.contains(&("kernels", 38)), "{all:?}");
    // Nineteen are no pattern, and large ones are not small.
    for kernels in [["k--"; 19].join("  "), ["k-----"; 20].join("  ")] {
        let drawing = format!("\n main | {step}\n | Run\n gpu/7 #device | {kernels}\n");
        let all = found(&drawing);
        assert!(all.iter().all(|(name, _)| *name != "kernels"), "{all:?}");
    }
}

#[test]
fn garbage_collection_is_found() {
    let drawing = "
        main | step0--------------------
             | dot--------gc--------
        ";
    assert_eq!(found(drawing), [("gc", 10)]);
    let rare = format!(
        "\n main | step0{}\n | dot{}gc\n",
        "-".repeat(295),
        "-".repeat(290)
    );
    assert_eq!(found(&rare), [], "below a hundredth of the steps");
}

/// Two ranks with two steps of 100 us, in which they compute for so long.
fn two_ranks(work: [i64; 2]) -> stepscope_store::Trace {
    use stepscope_model::{Epoch, EventSink as _, SliceIn, Time};
    use stepscope_store::{FileSpec, TraceBuilder};
    let mut builder = TraceBuilder::new();
    for (rank, work) in (0_u32..).zip(work) {
        let mut sink = builder.file(FileSpec {
            host: format!("host{rank}"),
            rank: Some(rank),
            ..FileSpec::default()
        });
        sink.epoch(Epoch::default());
        let track = sink.track("main");
        for step in 0..2 {
            for (text, us, number) in [("step", 100, Some(step)), ("dot", work, None)] {
                let name = sink.name(text);
                sink.slice(
                    track,
                    SliceIn {
                        start: Time::from_ps(step * 100_000_000),
                        dur: Dur::from_ps(us * 1_000_000),
                        name,
                        step: number,
                        ..SliceIn::default()
                    },
                );
            }
        }
        builder.add(sink);
    }
    builder.finish()
}

#[test]
fn a_slow_rank_is_found() {
    let found = |work| {
        let trace = two_ranks(work);
        let survey = Survey::of(&trace, &Options::default(), &Cancel::default()).unwrap();
        findings(&survey, &Memory::default(), &Cancel::default()).unwrap()
    };
    // 50 us of work where the median (of two, the lower one) is 30: twice 20 us.
    let slow = found([30, 50]);
    let [ranks] = slow.as_slice() else {
        panic!("{slow:?}")
    };
    assert_eq!((ranks.name, ranks.stake.ps()), ("ranks", 40_000_000));
    assert_eq!(
        ranks.title,
        "Rank 1 works 20.0 µs longer per step than the median rank"
    );
    assert_eq!(ranks.evidence.len(), 2, "its two steps");
    assert_eq!(found([30, 34]), [], "below a twentieth of a step");
}

/// An operation that took so many microseconds on a device.
fn operation(name: &str, us: i64, kind: stepscope_model::SliceKind) -> crate::ops::OpRow {
    let ps = i128::from(us) * 1_000_000;
    crate::ops::OpRow {
        name: name.to_owned(),
        program: None,
        category: String::new(),
        on_device: true,
        count: 1,
        total_ps: ps,
        self_ps: ps,
        device_ps: None,
        is_async: false,
        outermost_ps: 0,
        device_share: None,
        xprof_count: None,
        launched_ps: None,
        launched_self_ps: None,
        rates: None,
        wasted_ps: None,
        p95_ns: 0.0,
        max_ns: 0.0,
        share: 0.0,
        longest: stepscope_store::EventId(0),
        shapes: None,
        stack: Vec::new(),
        holds: None,
        event_names: Vec::new(),
        source: None,
        kind,
    }
}

#[test]
fn little_that_stands_out_is_filled_up_with_the_heaviest_operations() {
    use stepscope_model::SliceKind;
    let drawing = "
        main          | step0-----------------------------
        gpu/7 #device | matmul----------------------------
        ";
    let trace = drawing::trace(drawing);
    let survey = Survey::of(&trace, &Options::default(), &Cancel::default()).unwrap();
    let operations = crate::ops::OpReport {
        rows: vec![
            operation("wait", 30, SliceKind::Wait),
            operation("add", 4, SliceKind::Elementwise),
            operation("dot", 17, SliceKind::MatMul),
            operation("max", 3, SliceKind::Elementwise),
        ],
        ..crate::ops::OpReport::default()
    };
    let mut found = Vec::new();
    fill(&survey, &mut found, &operations);
    let titles: Vec<_> = found.iter().map(|one| one.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Most device time in one operation: dot, 17.0 µs per step (50.0 %)",
            "Next: device time of add, 4.00 µs per step (11.8 %)",
        ]
    );
    // What stands out comes first, and two of it are enough.
    let input = Finding {
        name: "input",
        ..found[0].clone()
    };
    let mut one = vec![input.clone()];
    fill(&survey, &mut one, &operations);
    assert_eq!(
        (one.len(), one[0].name, one[1].name),
        (2, "input", "operation")
    );
    let mut two = vec![input.clone(), input];
    fill(&survey, &mut two, &operations);
    assert_eq!(two.len(), 2);
}
