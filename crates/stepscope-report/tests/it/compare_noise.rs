//! Comparisons of simulated runs with noise: equal programs show no difference, and a slower operation is found.

use stepscope_analysis::compare::result::{CompareOptions, Comparison};
use stepscope_analysis::compare::run::{ComparedRun, OwnerDetail};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_analysis::statistics::Verdict;
use stepscope_test_data::runs;

use crate::simulated::noise::{Noise, Random};
use crate::simulated::{Action, Program};

/// Steps of a run of equal programs, with two of warm-up.
const STEPS: usize = 42;
/// Steps of a run with a slower operation: 5 % of one operation are about 2 % of the step.
const MORE_STEPS: usize = 122;
/// Runs of one program.
const RUNS: u64 = 10;

/// Operators, kernels, and their times on host and device, nanoseconds.
const OPS: [(&str, &str, i64, i64); 8] = [
    ("aten::addmm", "ampere_sgemm_128x64_tn", 12_000, 310_000),
    ("aten::bmm", "ampere_sgemm_64x64_nn", 12_000, 90_000),
    (
        "aten::gelu",
        "vectorized_elementwise_kernel",
        11_000,
        45_000,
    ),
    (
        "aten::layer_norm",
        "vectorized_layer_norm_kernel",
        13_000,
        30_000,
    ),
    ("aten::_softmax", "softmax_warp_forward", 11_000, 38_000),
    ("aten::copy_", "unrolled_elementwise_kernel", 9_000, 25_000),
    ("aten::nll_loss", "nll_loss_forward", 10_000, 8_000),
    (
        "aten::_foreach_add_",
        "multi_tensor_apply_kernel",
        15_000,
        60_000,
    ),
];

/// Simulates a run in which one operator takes a share longer on the device.
fn run(noise: Noise, steps: usize, slower: Option<(usize, f64)>) -> ComparedRun {
    let mut actions = vec![Action::NextBatch(40_000)];
    for (index, (op, kernel, host, device)) in OPS.into_iter().enumerate() {
        let factor = slower
            .filter(|(slow, _)| *slow == index)
            .map_or(1.0, |(_, share)| 1.0 + share);
        #[allow(clippy::cast_possible_truncation, reason = "far below the limits")]
        let device = (device as f64 * factor) as i64;
        actions.push(Action::Launch {
            op: op.to_owned(),
            kernel,
            host,
            device,
        });
    }
    actions.push(Action::Synchronize);
    let program = Program {
        ranks: vec![actions],
        last: Vec::new(),
        steps,
    };
    let folder = tempfile::tempdir().unwrap();
    program.write(&noise, folder.path());
    let mut found = runs::open(folder.path());
    assert_eq!(found.len(), 1);
    let opened = found.remove(0);
    let scope = AnalysisScope::default();
    let run =
        ComparedRun::compute(&opened.trace, &scope, OwnerDetail::Name, &Cancel::default()).unwrap();
    assert!(
        run.samples().count() + 4 >= steps,
        "{}",
        run.samples().count()
    );
    run
}

fn verdict(comparison: &Comparison) -> Verdict {
    comparison.step().unwrap().verdict.unwrap()
}

fn claims_a_difference(comparison: &Comparison) -> bool {
    matches!(verdict(comparison), Verdict::Regressed | Verdict::Improved)
}

/// Noise of different machines: quiet, usual, and shared with others.
fn machines() -> [Noise; 3] {
    let usual = Noise::usual(0);
    let quiet = Noise {
        run_share: 0.0005,
        step_share: 0.002,
        length_share: 0.005,
        outlier_fraction: 0.0,
        ..usual
    };
    let shared = Noise {
        run_share: 0.004,
        step_share: 0.02,
        length_share: 0.05,
        outlier_fraction: 0.08,
        ..usual
    };
    [quiet, usual, shared]
}

#[test]
fn runs_of_one_program_show_no_difference() {
    let options = CompareOptions::default();
    let (mut all, mut claims, mut rows, mut row_claims) = (0, 0, 0, 0);
    for (machine, noise) in machines().into_iter().enumerate() {
        let of_machine: Vec<ComparedRun> = (0..RUNS)
            .map(|number| {
                let seed = 1_000 * (machine as u64 + 1) + number;
                run(Noise { seed, ..noise }, STEPS, None)
            })
            .collect();
        for (index, base) in of_machine.iter().enumerate() {
            for new in &of_machine[index + 1..] {
                let found = Comparison::new(
                    std::slice::from_ref(base),
                    std::slice::from_ref(new),
                    &options,
                );
                all += 1;
                claims += u32::from(claims_a_difference(&found));
                let tested = found.rows.iter().filter_map(|row| row.q);
                rows += tested.clone().count();
                row_claims += tested.filter(|q| *q < 0.05).count();
            }
        }
        // The run as the sample: five runs a side, drawn in different ways.
        let mut random = Random::new(machine as u64, 77);
        for _ in 0..20 {
            let mut order: Vec<usize> = (0..of_machine.len()).collect();
            for at in (1..order.len()).rev() {
                order.swap(
                    at,
                    usize::try_from(random.next_bits() % (at as u64 + 1)).unwrap(),
                );
            }
            let sides = [&order[..5], &order[5..]];
            let [base, new] = sides.map(|side| {
                let runs = side.iter().map(|index| of_machine[*index].clone());
                runs.collect::<Vec<_>>()
            });
            let found = Comparison::new(&base, &new, &options);
            assert!(found.sampling.by_run);
            all += 1;
            claims += u32::from(claims_a_difference(&found));
        }
    }
    println!(
        "{claims} of {all} comparisons claim a difference; {row_claims} of {rows} rows have q below 5 %"
    );
    assert!(claims * 20 <= all, "{claims} of {all}");
}

#[test]
fn a_slower_operation_is_found_and_named() {
    let options = CompareOptions::default();
    let (mut all, mut steps_found, mut rows_found) = (0, 0, 0);
    let mut missed = Vec::new();
    for (machine, noise) in machines().into_iter().enumerate() {
        for number in 0..12_u64 {
            let seed = 10_000 * (machine as u64 + 1) + 2 * number;
            // A step that is 5 % longer by one operation, in turn.
            let op = usize::try_from(number).unwrap() % 3;
            let whole: i64 = OPS.iter().map(|(_, _, _, device)| device).sum();
            let share = 0.05 * whole as f64 / OPS[op].3 as f64;
            let base = run(Noise { seed, ..noise }, MORE_STEPS, None);
            let new = run(
                Noise {
                    seed: seed + 1,
                    ..noise
                },
                MORE_STEPS,
                Some((op, share)),
            );
            let found = Comparison::new(
                std::slice::from_ref(&base),
                std::slice::from_ref(&new),
                &options,
            );
            all += 1;
            let is_first = found.rows[0].key.operation.as_deref() == Some(OPS[op].0);
            let is_found = verdict(&found) == Verdict::Regressed && is_first;
            steps_found += u32::from(is_found);
            if !is_found {
                missed.push((machine, number, "step"));
            }
            // An operation that is 5 % longer.
            let new = run(
                Noise {
                    seed: seed + 1,
                    ..noise
                },
                MORE_STEPS,
                Some((0, 0.05)),
            );
            let found = Comparison::new(&[base], &[new], &options);
            let row = &found.rows[0];
            let is_first = row.key.operation.as_deref() == Some(OPS[0].0) && row.difference_ps > 0;
            let is_found = is_first && row.q.is_some_and(|q| q < 0.05);
            rows_found += u32::from(is_found);
            if !is_found {
                missed.push((machine, number, "operation"));
            }
        }
    }
    println!(
        "of {all}: {steps_found} slower steps, {rows_found} slower operations; missed {missed:?}"
    );
    assert!(steps_found * 20 >= all * 19, "{steps_found} of {all}");
    assert!(rows_found * 20 >= all * 19, "{rows_found} of {all}");
}
