//! Outcomes of rules over made-up measures.

use stepscope_analysis::compare::result::{CompareOptions, Mismatch};
use stepscope_analysis::compare::run::{ComparedRun, ComparedStep};
use stepscope_analysis::steps::bucket::StepBucket;
use stepscope_model::Diagnostic;

use super::*;

fn run(lengths_us: &[f64], peak_bytes: Option<f64>) -> ComparedRun {
    let steps = (0..).zip(lengths_us).map(|(number, us)| ComparedStep {
        number,
        length_ns: us * 1e3,
        buckets_ns: [us * 1e3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        left_out: None,
        is_outlier: false,
    });
    ComparedRun {
        steps: steps.collect(),
        peak_memory_bytes: peak_bytes,
        ..ComparedRun::default()
    }
}

fn steps(base: f64) -> Vec<f64> {
    (0..12).map(|number| base + f64::from(number % 5)).collect()
}

fn outcome(base: &ComparedRun, new: &ComparedRun, gate: &str) -> GateOutcome {
    let (base, new) = (std::slice::from_ref(base), std::slice::from_ref(new));
    let comparison = Comparison::new(base, new, &CompareOptions::default());
    Gate::read(gate)
        .unwrap()
        .evaluate(&comparison, "2026-12-01")
}

const STEP: &str = "[[rule]]\nname = \"step\"\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n";

#[test]
fn a_rule_fails_when_the_whole_interval_lies_beyond_it() {
    let base = run(&steps(1_000.0), None);
    for (new, expected, code) in [
        (1_000.0, GateResult::Pass, 0),
        (1_020.0, GateResult::Pass, 0),
        (1_100.0, GateResult::Fail, 3),
        (900.0, GateResult::Pass, 0),
    ] {
        let found = outcome(&base, &run(&steps(new), None), STEP);
        assert_eq!(
            (found.result(), found.result().exit_code()),
            (expected, code),
            "{new}: {found:?}"
        );
    }
}

#[test]
fn too_few_steps_and_other_devices_do_not_decide() {
    let base = run(&steps(1_000.0), None);
    let few = run(&[1_500.0; 6], None);
    assert_eq!(outcome(&base, &few, STEP).result().exit_code(), 4);
    let gate = format!("[defaults]\nmin_steps = 5\n{STEP}");
    assert_eq!(outcome(&base, &few, &gate).result(), GateResult::Fail);
    let other = ComparedRun {
        devices: vec!["other".to_owned()],
        ..run(&steps(1_500.0), None)
    };
    let found = outcome(&base, &other, STEP);
    assert_eq!(found.result(), GateResult::CannotDecide);
    assert!(found.reasons[0].contains("the devices differ"), "{found:?}");
    let gate = format!("[compare]\nrequire_same = []\n{STEP}");
    assert_eq!(outcome(&base, &other, &gate).result(), GateResult::Fail);
    assert_eq!(Mismatch::WorldSize([1, 2]).as_str(), "world_size");
    let empty = ComparedRun::default();
    assert_eq!(
        outcome(&base, &empty, STEP).result(),
        GateResult::CannotDecide
    );
}

#[test]
fn scattered_steps_are_unclear() {
    let scattered = |shift: f64| -> Vec<f64> {
        (0..12)
            .map(|number| shift + 1_000.0 + 100.0 * f64::from(number * 7 % 12))
            .collect()
    };
    let base = run(&scattered(0.0), None);
    let new = run(&scattered(10.0), None);
    for (policy, expected) in [
        ("pass", GateResult::Pass),
        ("warn", GateResult::Warn),
        ("fail", GateResult::CannotDecide),
    ] {
        let found = outcome(
            &base,
            &new,
            &format!("[defaults]\nunclear = \"{policy}\"\n{STEP}"),
        );
        assert_eq!(found.result(), expected, "{found:?}");
    }
}

#[test]
fn allowances_end_and_warnings_do_not_fail() {
    let (base, new) = (run(&steps(1_000.0), None), run(&steps(1_060.0), None));
    let allow = |until: &str| {
        format!("{STEP}[[allow]]\nrule = \"step\"\nmax_increase = \"8%\"\nuntil = \"{until}\"\n")
    };
    assert_eq!(
        outcome(&base, &new, &allow("2026-12-31")).result(),
        GateResult::Pass
    );
    assert_eq!(
        outcome(&base, &new, &allow("2026-11-30")).result(),
        GateResult::Fail
    );
    let warn = format!("{STEP}level = \"warn\"\n");
    assert_eq!(outcome(&base, &new, &warn).result(), GateResult::Warn);
}

#[test]
fn exact_measures_need_no_samples() {
    let gate =
        "[[rule]]\nmeasure = \"peak_memory_bytes\"\nmax_increase = \"0\"\nlimit = \"1KiB\"\n";
    for (base, new, expected) in [
        (Some(900.0), Some(900.0), GateResult::Pass),
        (Some(900.0), Some(901.0), GateResult::Fail),
        (Some(2_000.0), Some(1_500.0), GateResult::Fail),
        (None, Some(1.0), GateResult::CannotDecide),
    ] {
        let found = outcome(
            &run(&steps(1_000.0), base),
            &run(&steps(1_000.0), new),
            gate,
        );
        assert_eq!(found.result(), expected, "{base:?} {new:?}");
    }
}

#[test]
fn times_that_were_zero_can_fail() {
    let with_input = |input: &[f64]| {
        let mut run = run(&steps(1_000.0), None);
        for (step, us) in run.steps.iter_mut().zip(input.iter().cycle()) {
            step.buckets_ns[3] = us * 1e3;
        }
        run
    };
    let gate = "[[rule]]\nmeasure = \"input_ns\"\nmax_increase = \"50us\"\n";
    assert_eq!(StepBucket::ALL[3], StepBucket::Input);
    for (base, new, expected) in [
        (&[0.0][..], &[200.0][..], GateResult::Fail),
        (&[0.0], &[20.0], GateResult::Pass),
        (&[0.0, 3.0], &[200.0, 203.0], GateResult::Fail),
        (&[0.0, 3.0], &[2.0, 0.0], GateResult::Pass),
        (&[200.0], &[0.0], GateResult::Pass),
        (&[0.0], &[0.0], GateResult::Pass),
    ] {
        let found = outcome(&with_input(base), &with_input(new), gate);
        assert_eq!(found.result(), expected, "{base:?} {new:?} {found:?}");
    }
    let decrease = "[[rule]]\nmeasure = \"input_ns\"\nmax_decrease = \"10%\"\n";
    let found = outcome(&with_input(&[200.0, 210.0]), &with_input(&[0.0]), decrease);
    assert_eq!(found.result(), GateResult::Fail, "{found:?}");
}

#[test]
fn limits_need_the_new_side_only() {
    let limit = "[[rule]]\nmeasure = \"peak_memory_bytes\"\nlimit = \"1KiB\"\n";
    for (new, expected) in [
        (Some(900.0), GateResult::Pass),
        (Some(1_100.0), GateResult::Fail),
        (None, GateResult::CannotDecide),
    ] {
        let found = outcome(
            &run(&steps(1_000.0), None),
            &run(&steps(1_000.0), new),
            limit,
        );
        assert_eq!(found.result(), expected, "{new:?} {found:?}");
    }
    let share = "[[rule]]\nmeasure = \"step_ns\"\nlimit = \"1ms\"\n";
    let found = outcome(&ComparedRun::default(), &run(&steps(1_000.0), None), share);
    assert_eq!(found.result(), GateResult::Fail, "{found:?}");
    assert_eq!(found.rules[0].values[0], None);
}

#[test]
fn an_accepted_series_is_judged_by_its_variation() {
    let runs = [1_000.0, 1_040.0, 960.0, 1_020.0, 980.0].map(|us| run(&steps(us), None));
    let judged = |new: f64| {
        let new = run(&steps(new), None);
        let comparison = Comparison::new(
            &runs,
            std::slice::from_ref(&new),
            &CompareOptions::default(),
        );
        assert!(comparison.sampling.by_run);
        Gate::read(STEP)
            .unwrap()
            .evaluate(&comparison, "2026-12-01")
            .result()
    };
    // The steps of one run differ little, its level as the accepted ones do.
    assert_eq!(judged(1_050.0), GateResult::Warn);
    assert_eq!(judged(1_300.0), GateResult::Fail);
    assert_eq!(judged(1_000.0), GateResult::Warn, "3 % more are possible");
}

#[test]
fn a_failure_outweighs_what_cannot_be_decided() {
    use GateResult::{CannotDecide, Fail, Pass, Warn};
    for (results, expected) in [
        (&[Pass, CannotDecide, Fail][..], Some(Fail)),
        (&[CannotDecide, Warn], Some(CannotDecide)),
        (&[Pass, Warn], Some(Warn)),
        (&[], None),
    ] {
        assert_eq!(GateResult::of_all(results.iter().copied()), expected);
    }
}

#[test]
fn explanations_say_what_a_rule_does_and_what_shows() {
    let base = run(&steps(1_000.0), Some(1e9));
    let gate = "[[baseline]]\nname = \"release\"\npath = \"release.json\"\nrules = [\"step\"]\n\
        [[rule]]\nname = \"step\"\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\nunclear = \"fail\"\n\
        [[rule]]\nname = \"memory\"\nmeasure = \"peak_memory_bytes\"\nlimit = \"2GB\"\nlevel = \"warn\"\n\
        [[rule]]\nname = \"products\"\nmeasure = \"device_ns\"\nwhere = { class = \"matmul\" }\nmax_decrease = \"1ms\"\n\
        [[allow]]\nrule = \"step\"\nmax_increase = \"8%\"\nuntil = \"2026-12-31\"\n";
    let gate = Gate::read(gate).unwrap();
    let sides = (std::slice::from_ref(&base), std::slice::from_ref(&base));
    let comparison = Comparison::new(sides.0, sides.1, &CompareOptions::default());
    let text = gate.explain(Some(&comparison), "2026-12-01");
    for expected in [
        "Baseline release (release.json): the rules step.",
        "Fails when step_ns rises by more than 8",
        "% (allowance); cannot decide where no difference is shown.",
        "(12 and 12 samples)",
        "Warns when peak_memory_bytes exceeds ",
        "The figure is exact: any change shows.",
        "Fails when device_ns of class matmul falls by more than ",
        "device_ns is not known of both sides.",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(
        gate.explain(None, "2027-01-01")
            .contains("rises by more than 3")
    );
}

#[test]
fn lost_events_decide_no_count() {
    let gate = "[[rule]]\nmeasure = \"peak_memory_bytes\"\nmax_increase = \"0\"\n";
    let base = run(&steps(1_000.0), Some(1e9));
    let with_losses = |peak: f64| ComparedRun {
        losses: vec![(Diagnostic::DroppedByWriter, 2)],
        ..run(&steps(1_000.0), Some(peak))
    };
    for (peak, expected) in [(1e9, GateResult::Warn), (2e9, GateResult::CannotDecide)] {
        let found = outcome(&base, &with_losses(peak), gate);
        assert_eq!(found.result(), expected, "{found:?}");
    }
    let step = outcome(&base, &with_losses(1e9), STEP);
    assert_eq!(step.result(), GateResult::Pass);
}

#[test]
fn baselines_have_paths_and_rules_of_their_own() {
    let rules = "[[rule]]\nname = \"a\"\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n\
        [[rule]]\nname = \"b\"\nmeasure = \"step_p99_ns\"\nmax_increase = \"3%\"\n";
    let read = |baselines: &str| Gate::read(&format!("{baselines}{rules}"));
    let gate = read(
        "[[baseline]]\npath = \"accepted\"\nlast = 9\n[[baseline]]\nname = \"pinned\"\npath = \"v1.json\"\nrules = [\"b\"]\n",
    )
    .unwrap();
    let [rolling, pinned] = &gate.baselines[..] else {
        panic!("{gate:?}");
    };
    assert_eq!((rolling.name.as_str(), rolling.last), ("accepted", 9));
    assert_eq!(gate.of_baseline(rolling).rules.len(), 2);
    assert_eq!(gate.of_baseline(pinned).rules.len(), 1);
    assert_eq!(gate.of_baseline(pinned).rules[0].name, "b");
    for (wrong, cause) in [
        (
            "[[baseline]]\nname = \"x\"\n",
            "line 2: a [[baseline]] needs a path",
        ),
        (
            "[[baseline]]\npath = \"x\"\nrules = [\"c\"]\n",
            "unknown rule 'c'",
        ),
        (
            "[[baseline]]\npath = \"x\"\nlast = 0\n",
            "line 3: last is a number of runs",
        ),
        ("[[baseline]]\npat = \"x\"\n", "did you mean 'path'?"),
    ] {
        let error = read(wrong).unwrap_err();
        assert!(error.contains(cause), "{error}");
    }
}
