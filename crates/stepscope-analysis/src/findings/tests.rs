//! Diagnoses of small programs that are drawn as text.

use stepscope_model::{Dur, EventSink, SliceIn, Time};
use stepscope_store::{FileSpec, Trace, TraceBuilder, ascii_trace};

use super::host::Host;
use super::windows::{IterationRole, Windows};
use super::*;
use crate::run_profile::AnalysisScope;

fn diagnosed(trace: &Trace) -> Diagnosis {
    let cancel = Cancel::default();
    let run_profile = RunProfile::compute(trace, &AnalysisScope::default(), &cancel).unwrap();
    let memory = Memory::read(trace, &cancel).unwrap();
    diagnose(&run_profile, &memory, &cancel).unwrap()
}

fn kinds(trace: &Trace) -> Vec<FindingCause> {
    diagnosed(trace)
        .findings
        .iter()
        .map(|finding| finding.cause)
        .collect()
}

/// Builds steps of these lengths in microseconds, without pauses, each with one slice.
fn steps(lengths: &[i64]) -> Trace {
    steps_with(lengths, &[])
}

/// The same, with slices of another thread: name, start and length in microseconds.
fn steps_with(lengths: &[i64], others: &[(&str, i64, i64)]) -> Trace {
    const US: i64 = 1_000_000;
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(stepscope_model::Epoch::default());
    let track = sink.track("main");
    let (step, work) = (sink.name("step"), sink.name("work"));
    let mut at = 0;
    for (number, length) in (0..).zip(lengths) {
        for (name, step) in [(step, Some(number)), (work, None)] {
            sink.slice(
                track,
                SliceIn {
                    start: Time::from_ps(at * US),
                    dur: Dur::from_ps(length * US),
                    name,
                    step,
                    ..SliceIn::default()
                },
            );
        }
        at += length;
    }
    let other = sink.track("other");
    for (name, start, length) in others {
        let name = sink.name(name);
        sink.slice(
            other,
            SliceIn {
                start: Time::from_ps(start * US),
                dur: Dur::from_ps(length * US),
                name,
                ..SliceIn::default()
            },
        );
    }
    builder.add(sink);
    builder.finish()
}

fn roles(lengths: &[i64]) -> Vec<IterationRole> {
    roles_in(&steps(lengths))
}

fn roles_in(trace: &Trace) -> Vec<IterationRole> {
    let run_profile =
        RunProfile::compute(trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
    Windows::new(&run_profile)
        .list
        .iter()
        .map(|window| window.role)
        .collect()
}

#[test]
fn first_long_steps_are_warm_up_and_later_ones_outliers() {
    use IterationRole::{Outlier, Steady, WarmUp};
    assert_eq!(
        roles(&[90, 40, 10, 10, 10, 10, 50, 10, 10, 10]),
        [
            WarmUp, WarmUp, Steady, Steady, Steady, Steady, Outlier, Steady, Steady, Steady
        ]
    );
    // The host ran ahead in the first step.
    assert_eq!(roles(&[5, 40, 10, 10, 10, 10, 10])[..2], [WarmUp, WarmUp]);
    assert_eq!(roles(&[10, 30]), [Steady, Steady]);
    // A length that half of the steps have is usual.
    assert!(!roles(&[10, 30, 10, 30, 10, 30, 10, 30]).contains(&Outlier));
}

#[test]
fn steps_that_run_ahead_are_steady_with_those_that_wait_for_all() {
    use IterationRole::{Outlier, Steady, WarmUp};
    let lengths = [3, 1, 1, 1, 200, 1, 1, 1, 1, 210, 1, 1, 1, 1, 190];
    assert_eq!(roles(&lengths), [Steady; 15]);
    let mut compiled = lengths;
    compiled[0] = 900;
    let found = roles(&compiled);
    assert_eq!((found[0], &found[1..]), (WarmUp, &[Steady; 14][..]));
    // Two steps that compile say nothing about the pace, and neither do three at any distance.
    for long in [&[5, 8][..], &[4, 8, 13]] {
        let mut lengths = [1; 16];
        for at in long {
            lengths[*at] = 200;
        }
        let found = roles(&lengths);
        assert!(long.iter().all(|at| found[*at] == Outlier), "{found:?}");
    }
}

#[test]
fn steps_outside_of_the_time_of_the_profilers_do_not_count() {
    use IterationRole::{Outlier, Steady, Unprofiled};
    use stepscope_model::vocabulary::profilers::{START, STOP};
    // The profilers stop in the sixth step, which therefore is long.
    let lengths = [20, 20, 21, 20, 20, 500, 10, 10, 11, 10];
    let trace = steps_with(&lengths, &[(START, 15, 3), (STOP, 110, 480)]);
    let mut expected = [Unprofiled; 10];
    expected[1..5].fill(Steady);
    assert_eq!(roles_in(&trace), expected);
    let found = diagnosed(&trace);
    assert!((found.steps - 4.0).abs() < 1e-9, "{found:?}");
    assert!(
        found
            .findings
            .iter()
            .all(|one| one.cause != FindingCause::OutlierSteps)
    );
    // Without a whole step in that time, all count.
    let trace = steps_with(&lengths, &[(START, 1, 1), (STOP, 10, 1)]);
    assert_eq!(roles_in(&trace)[5], Outlier);
}

#[test]
fn a_single_long_step_is_spread_over_all() {
    let trace = steps(&[10, 10, 10, 10, 10, 10, 110, 10, 10, 10]);
    let found = diagnosed(&trace);
    let first = &found.findings[0];
    assert_eq!(first.cause, FindingCause::OutlierSteps);
    assert!(
        (first.saving_ns.unwrap() / found.steps - 10_000.0).abs() < 1.0,
        "{first:?}"
    );
    assert!(first.subjects.contains(&"step 6".to_owned()), "{first:?}");
}

#[test]
fn idle_without_host_events_is_unknown() {
    let trace = ascii_trace::trace("gpu/7 #device | a--        b--        c--");
    assert_eq!(kinds(&trace), [FindingCause::IdleUnknown]);
}

#[test]
fn kernels_without_a_recorded_launch_are_backlog() {
    let trace = ascii_trace::trace(
        "host          | step0- step1-
         gpu/7 #device |                     a--------------",
    );
    assert!(
        !kinds(&trace).contains(&FindingCause::HostBound),
        "{:?}",
        kinds(&trace)
    );
}

#[test]
fn nothing_recorded_gives_no_finding() {
    let mut builder = TraceBuilder::new();
    let sink = builder.file(FileSpec::default());
    builder.add(sink);
    assert_eq!(kinds(&builder.finish()), []);
}

fn first(trace: &Trace) -> Finding {
    diagnosed(trace).findings.swap_remove(0)
}

#[test]
fn slices_around_the_steps_are_no_location() {
    let trace = ascii_trace::trace(
        "
        main | train--------------------------------
             |  step0----- step1----- step2-----
             |   data_load  data_load  data_load
        ",
    );
    let found = first(&trace);
    assert_eq!(found.cause, FindingCause::InputBound);
    assert_eq!(found.subjects, ["data_load"]);
}

#[test]
fn waits_for_input_in_every_second_step_are_input_and_no_outliers() {
    let trace = ascii_trace::trace(
        "
        main | step0-step1-step2----------------step3-step4----------------step5-step6----------------step7-
             |                  data_load-----              data_load-----              data_load-----
        ",
    );
    assert_eq!(kinds(&trace), [FindingCause::InputBound]);
}

#[test]
fn computing_operations_are_named_instead_of_waits() {
    let trace = ascii_trace::trace(
        "
        main   | step0------------ step1------------ step2------------
               |  wait_for_it----   wait_for_it----   wait_for_it----
        worker |   dot.1---------    dot.1---------    dot.1---------
        ",
    );
    let found = first(&trace);
    assert_eq!(found.cause, FindingCause::DeviceBound);
    assert_eq!(found.subjects, ["dot.1"]);
}

#[test]
fn waits_of_a_program_without_a_device_are_no_work() {
    let trace = ascii_trace::trace(
        "
        main   | step0------------------- step1------------------- step2-------------------
               |  work------- sleep-----   work------- sleep-----   work------- sleep-----
        ",
    );
    let found = diagnosed(&trace).findings;
    let causes: Vec<_> = found.iter().map(|one| (one.cause, &one.detail)).collect();
    assert_eq!(causes[0], (FindingCause::HostBound, &Detail::Waits));
    assert_eq!(found[0].subjects, ["sleep"]);
    assert!((found[0].share - 30.0 / 74.0).abs() < 0.01, "{found:?}");
    let busy = &found[1];
    assert_eq!(
        (busy.cause, &busy.subjects[..]),
        (FindingCause::DeviceBound, &["work".to_owned()][..])
    );
    assert!((busy.share - 33.0 / 74.0).abs() < 0.01, "{busy:?}");
}

#[test]
fn a_function_called_wait_that_computes_does_not_wait() {
    let trace = ascii_trace::trace(
        "
        main   | step0------------ step1------------ step2------------
               |  wait_for_it----   wait_for_it----   wait_for_it----
               |  compute_-------   compute_-------   compute_-------
        ",
    );
    assert_eq!(kinds(&trace), [FindingCause::DeviceBound]);
}

#[test]
fn warm_up_reports_compile_time() {
    let trace = ascii_trace::trace(
        "
        main | step0------------------------- step1--- step2--- step3--- step4---
             |  XlaCompile-------------------  work---  work---  work---  work---
        ",
    );
    let found = diagnosed(&trace).findings;
    let warm_up = found
        .iter()
        .find(|one| one.cause == FindingCause::WarmUpOnly);
    let Detail::WarmUp {
        numbers,
        compile_ns,
        ..
    } = &warm_up.unwrap().detail
    else {
        panic!("{warm_up:?}");
    };
    assert_eq!((&numbers[..], *compile_ns), (&[0][..], 29_000.0));
}

#[test]
fn a_first_step_marker_compiles_and_loads() {
    let trace = ascii_trace::trace(
        "
        main | build--StepMarker------------------build--StepMarker--build--StepMarker--build--StepMarker--
        ",
    );
    let found = diagnosed(&trace).findings;
    let warm_up = found
        .iter()
        .find(|one| one.cause == FindingCause::WarmUpOnly);
    let Detail::WarmUp { loading_ns, .. } = warm_up.unwrap().detail else {
        panic!("{warm_up:?}");
    };
    assert!((loading_ns - 16_000.0).abs() < 1e-6, "{loading_ns}");
}

#[test]
fn actions_of_trainers_are_no_operations_where_operators_are() {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    let track = sink.track("main");
    let category = sink.name("cpu_op");
    for name in ["[pl][profile]run_training_batch", "aten::mm"] {
        let name = sink.name(name);
        sink.slice(
            track,
            SliceIn {
                dur: Dur::from_ps(10),
                name,
                category,
                ..SliceIn::default()
            },
        );
    }
    builder.add(sink);
    let recorded = builder.finish();
    let mut host = Host::new(&recorded);
    let track = recorded.tracks()[0].id;
    assert_eq!(
        [0, 1].map(|index| host.computes(track, index)),
        [false, true]
    );
}
