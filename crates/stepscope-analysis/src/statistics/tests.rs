//! Known answers, and the rate of false claims over samples of one distribution.

#![allow(clippy::float_cmp, reason = "the same numbers in another order")]

use proptest::prelude::*;

use super::*;

const BASE: [f64; 6] = [878.0, 881.0, 876.0, 883.0, 874.0, 879.0];

fn is_near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-12 * expected.abs().max(1.0),
        "{found} {expected}"
    );
}

#[test]
fn slower_steps_have_a_ratio_with_an_exact_interval() {
    let new = BASE.map(|length| length + 170.0);
    let found = compare_samples(&BASE, &new, 0.95).unwrap();
    is_near(found.ratio, 1.193_511_725_218_511);
    let (low, high) = found.interval.unwrap();
    is_near(low, 1.187_713_310_580_204_5);
    is_near(high, 1.199_316_628_701_594_2);
    is_near(found.level, 0.958_874_458_874_458_9);
    is_near(found.p.unwrap(), 2.0 / 924.0);
    assert_eq!(
        Verdict::from_interval((low, high), 0.01),
        Verdict::Regressed
    );
    let back = compare_samples(&new, &BASE, 0.95).unwrap();
    let verdict = Verdict::from_interval(back.interval.unwrap(), 0.01);
    assert_eq!(verdict, Verdict::Improved);
}

#[test]
fn tolerance_decides_between_same_and_no_difference_shown() {
    let new = [880.0, 875.0, 882.0, 877.0, 884.0, 873.0];
    let found = compare_samples(&BASE, &new, 0.95).unwrap();
    is_near(found.ratio, 0.999_999_358_718_463_2);
    let (low, high) = found.interval.unwrap();
    is_near(low, 0.993_204_983_012_457_9);
    is_near(high, 1.006_833_712_984_054_3);
    is_near(found.p.unwrap(), 1.0);
    for (tolerance, expected) in [(0.005, Verdict::NoDifferenceShown), (0.01, Verdict::Same)] {
        assert_eq!(Verdict::from_interval((low, high), tolerance), expected);
    }
}

#[test]
fn too_few_samples_have_no_interval() {
    let found = compare_samples(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.95).unwrap();
    assert_eq!((found.interval, found.detectable_share), (None, None));
    is_near(found.p.unwrap(), 0.1);
    assert_eq!(compare_samples(&[], &[1.0], 0.95), None);
    assert_eq!(compare_samples(&[0.0], &[1.0], 0.95), None);
    assert_eq!(compare_samples(&[f64::NAN], &[1.0], 0.95), None);
    assert_eq!(compare_runs(&[1.0], &[1.0, 2.0], 0.95), None);
    assert_eq!(compare_quantiles(&[1.0], &[-1.0], 0.9, 0.95), None);
}

#[test]
fn samples_with_zeros_have_a_difference() {
    let base = [0.0, 5.0, 0.0, 3.0, 0.0, 4.0];
    assert_eq!(compare_samples(&base, &BASE, 0.95), None);
    let found = shift_of_samples(&base, &base.map(|ns| ns + 20.0), 0.95).unwrap();
    is_near(found.shift, 20.0);
    let (low, high) = found.interval.unwrap();
    assert!(low > 14.0 && high < 26.0, "{low} {high}");
    is_near(found.level, 0.958_874_458_874_458_9);
    assert!(found.p.unwrap() < 0.01);
    assert_eq!(Verdict::from_shift((low, high), 10.0), Verdict::Regressed);
    assert_eq!(Verdict::from_shift((-high, -low), 10.0), Verdict::Improved);
    assert_eq!(Verdict::from_shift((low, high), 30.0), Verdict::Same);
    let unclear = Verdict::from_shift((low, high), 20.0);
    assert_eq!(unclear, Verdict::NoDifferenceShown);
    let nothing = shift_of_samples(&[0.0; 6], &[0.0; 6], 0.95).unwrap();
    assert_eq!((nothing.shift, nothing.interval), (0.0, Some((0.0, 0.0))));
    assert_eq!(shift_of_samples(&[], &[1.0], 0.95), None);
    assert_eq!(shift_of_samples(&[f64::NAN], &[1.0], 0.95), None);
}

#[test]
fn one_run_is_held_against_several_by_their_variation() {
    let base = [100.0, 102.0, 98.0, 101.0, 99.0];
    for (new, expected) in [
        (103.0, Verdict::NoDifferenceShown),
        (120.0, Verdict::Regressed),
        (80.0, Verdict::Improved),
    ] {
        let found = compare_runs(&base, &[new], 0.95).unwrap();
        let verdict = Verdict::from_interval(found.interval.unwrap(), 0.01);
        assert_eq!(verdict, expected, "{new}: {found:?}");
    }
    // Half the width is t(0.975, 4) s sqrt(1 + 1/5), with s² = 2.5.
    let found = shift_of_runs(&base, &[103.0], 0.95).unwrap();
    let (low, high) = found.interval.unwrap();
    assert!(((high - low) / 2.0 - 2.776_445 * 3.0_f64.sqrt()).abs() < 1e-4);
    is_near(found.shift, 3.0);
    assert_eq!(shift_of_runs(&base[..2], &[103.0], 0.95), None);
    assert_eq!(shift_of_runs(&base, &[], 0.95), None);
}

#[test]
fn equal_samples_are_the_same() {
    for count in [5, 30] {
        let found = compare_samples(&vec![7.0; count], &vec![7.0; count], 0.95).unwrap();
        is_near(found.ratio, 1.0);
        is_near(found.p.unwrap(), 1.0);
        let interval = found.interval.unwrap();
        assert_eq!(Verdict::from_interval(interval, 0.0), Verdict::Same);
    }
    let runs = compare_runs(&[7.0; 3], &[7.0; 3], 0.95).unwrap();
    assert_eq!(runs.p, Some(1.0));
}

#[test]
fn corrections_for_many_tests_are_those_of_the_textbook() {
    let qs = false_discovery_rates(&[0.01, 0.04, 0.03, 0.005]);
    for (q, expected) in qs.into_iter().zip([0.02, 0.04, 0.04, 0.02]) {
        is_near(q, expected);
    }
    let ps = family_wise(&[0.01, 0.04, 0.03, 0.005]);
    for (p, expected) in ps.into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
        is_near(p, expected);
    }
    assert!(false_discovery_rates(&[]).is_empty() && family_wise(&[]).is_empty());
}

#[test]
fn p_with_ties_is_that_of_the_normal_approximation() {
    // scipy.stats.mannwhitneyu([1, 2, 2, 3], [2, 3, 4, 5], method="asymptotic").pvalue
    let p = mann_whitney(&[1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 4.0, 5.0], 1.0).unwrap();
    assert!((p - 0.136_668).abs() < 1e-4, "{p}");
}

/// Draws from one of several distributions; times of steps in microseconds.
fn sample(random: &mut Random, shape: usize, count: usize) -> Vec<f64> {
    let mut unit = || (random.below(1 << 30) as f64 + 0.5) / f64::from(1 << 30);
    let mut before = 0.0;
    (0..count)
        .map(|_| {
            let sum: f64 = (0..12).map(|_| unit()).sum();
            let normal = sum - 6.0;
            match shape {
                0 => 1_000.0 + 20.0 * normal,
                // Long tail.
                1 => 1_000.0 * (0.1 * normal).exp() * if unit() < 0.05 { 2.0 } else { 1.0 },
                // Whole milliseconds: many ties.
                2 => 10.0 + (2.0 * normal).round().clamp(-8.0, 8.0),
                // Each step resembles the one before it.
                _ => {
                    before = 0.6 * before + 0.8 * normal;
                    1_000.0 + 20.0 * before
                }
            }
        })
        .collect()
}

#[test]
fn at_most_five_per_cent_of_equal_samples_claim_a_difference() {
    const ROUNDS: usize = 2_000;
    // The correlation of neighbours is not known from few steps: those of the last shape need more, and claim more.
    let shapes: [(usize, f64, &[usize]); 4] = [
        (0, 0.05, &[6, 12, 20, 40, 100]),
        (1, 0.05, &[6, 12, 20, 40, 100]),
        (2, 0.05, &[6, 12, 20, 40, 100]),
        (3, 0.10, &[40, 100, 200]),
    ];
    for (shape, most, counts) in shapes {
        for &count in counts {
            let mut random = Random(42 + count as u64);
            let claimed = (0..ROUNDS).filter(|_| {
                let base = sample(&mut random, shape, count);
                let new = sample(&mut random, shape, count);
                let found = compare_samples(&base, &new, 0.95).unwrap();
                let verdict = Verdict::from_interval(found.interval.unwrap(), 0.0);
                matches!(verdict, Verdict::Regressed | Verdict::Improved)
            });
            let share = claimed.count() as f64 / ROUNDS as f64;
            // Two standard errors of the share itself.
            let error = 2.0 * (most * (1.0 - most) / ROUNDS as f64).sqrt();
            assert!(
                share <= most + error,
                "shape {shape}, {count} steps: {share}"
            );
        }
    }
}

#[test]
fn runs_that_differ_by_chance_claim_no_difference() {
    const ROUNDS: usize = 2_000;
    for count in [3, 5, 10] {
        let mut random = Random(7);
        let claimed = (0..ROUNDS).filter(|_| {
            let base = sample(&mut random, 0, count);
            let new = sample(&mut random, 0, count);
            let found = compare_runs(&base, &new, 0.95).unwrap();
            let verdict = Verdict::from_interval(found.interval.unwrap(), 0.0);
            matches!(verdict, Verdict::Regressed | Verdict::Improved)
        });
        let share = claimed.count() as f64 / ROUNDS as f64;
        assert!(share <= 0.06, "{count} runs: {share}");
    }
}

#[test]
fn the_smallest_detectable_change_is_detected() {
    const ROUNDS: usize = 400;
    let mut random = Random(3);
    let (mut promised, mut found) = (0.0, 0);
    for _ in 0..ROUNDS {
        let base = sample(&mut random, 0, 30);
        let estimate = compare_samples(&base, &sample(&mut random, 0, 30), 0.95).unwrap();
        promised += estimate.detectable_share.unwrap() / ROUNDS as f64;
    }
    for _ in 0..ROUNDS {
        let base = sample(&mut random, 0, 30);
        let slower: Vec<f64> = sample(&mut random, 0, 30)
            .iter()
            .map(|length| length * (1.0 + promised))
            .collect();
        let estimate = compare_samples(&base, &slower, 0.95).unwrap();
        let verdict = Verdict::from_interval(estimate.interval.unwrap(), 0.0);
        found += usize::from(verdict == Verdict::Regressed);
    }
    let share = found as f64 / ROUNDS as f64;
    assert!((0.7..=0.95).contains(&share), "{promised} {share}");
}

#[test]
fn quantiles_are_compared_by_resampling_with_a_fixed_start() {
    let mut random = Random(5);
    let base = sample(&mut random, 0, 100);
    let new: Vec<f64> = base.iter().map(|length| length * 1.5).collect();
    let found = compare_quantiles(&base, &new, 0.99, 0.95).unwrap();
    is_near(found.ratio, 1.5);
    let (low, high) = found.interval.unwrap();
    assert!(low > 1.3 && high < 1.7, "{low} {high}");
    assert_eq!(compare_quantiles(&base, &new, 0.99, 0.95), Some(found));
}

#[test]
fn the_interval_of_a_mean_covers_it() {
    const ROUNDS: u64 = 300;
    let mut covered = 0;
    for round in 0..ROUNDS {
        let mut random = Random(round);
        let samples: Vec<f64> = (0..40).map(|_| random.below(1_000) as f64).collect();
        let (low, high) = interval_of_mean(&samples, 0.95).unwrap();
        assert!(low < high, "{low} {high}");
        covered += u64::from((low..=high).contains(&499.5));
    }
    // Blocks and percentiles are narrower than the promise in short series.
    assert!((ROUNDS * 86 / 100..ROUNDS).contains(&covered), "{covered}");
    assert_eq!(interval_of_mean(&[3.0; 8], 0.95), Some((3.0, 3.0)));
    assert_eq!(interval_of_mean(&[3.0; 4], 0.95), None);
    assert_eq!(interval_of_mean(&[f64::NAN; 8], 0.95), None);
}

proptest! {
    /// The rank among the pairs equals that in a list of all pairs.
    #[test]
    fn ranks_equal_those_of_a_list(
        base in prop::collection::vec(1_u32..50, 1..12),
        new in prop::collection::vec(1_u32..50, 1..12),
    ) {
        let [base, new] = [base, new].map(|side| side.into_iter().map(f64::from).collect::<Vec<_>>());
        let mut list: Vec<f64> = new
            .iter()
            .flat_map(|new| base.iter().map(move |base| new - base))
            .collect();
        let pairs = PairDifferences::new(base, new);
        list.sort_unstable_by(f64::total_cmp);
        for (k, expected) in (1..).zip(&list) {
            prop_assert_eq!(pairs.kth(k), *expected);
        }
        // The mean of the two middle ones may round differently.
        prop_assert!((pairs.median() - median(&list).unwrap()).abs() < 1e-12);
    }
}
