//! Floating-point operations compared with `TraceLens`, for each shape, and with XProf, for the whole run.

#![allow(
    clippy::cast_precision_loss,
    reason = "operations of one call are below 2^53"
)]

use std::collections::BTreeMap;
use stepscope_test_data::Corpus;

use stepscope_analysis::mfu::mfu;
use stepscope_analysis::run_profile::RunProfile;
use stepscope_analysis::torch_cost::{ProductFlops, product_flops};
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::reports::Options;

use stepscope_test_data::runs;
use stepscope_test_data::runs::{figures, number};

fn value(row: &BTreeMap<String, String>, key: &str) -> f64 {
    row.get(key)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

/// Computes the operations that `TraceLens` counts in addition to the multiplications, or leaves out: an
/// operation for each element to which a bias is added, and half of causal attention.
fn expected(row: &BTreeMap<String, String>) -> f64 {
    let flops = value(row, "GFLOPS_first") * 1e9;
    let is = |key: &str| row.get(key).is_some_and(|text| text == "True");
    if is("param: causal") {
        return flops * 2.0;
    }
    // `TraceLens` assumes that both gradients are requested, whatever the call's arguments.
    if row["name"] == "aten::convolution_backward" {
        let mask = row["Concrete Inputs_first"]
            .rsplit('[')
            .next()
            .unwrap_or("");
        let requested = mask.split(',').take(2).filter(|one| one.contains("True"));
        return flops / 2.0 * requested.count() as f64;
    }
    if is("param: bias") && row.contains_key("param: M") {
        return flops - value(row, "param: M") * value(row, "param: N");
    }
    flops
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn operations_of_each_shape_equal_tracelens() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let tables = [
        "GEMM.csv",
        "CONV_fwd.csv",
        "CONV_bwd.csv",
        "CONV_bwd.csv.gz",
        "SDPA_fwd.csv",
    ];
    let found = stepscope_test_data::below(folder, |path| {
        path.to_string_lossy().contains("tracelens")
            && tables.iter().any(|table| path.ends_with(table))
    });
    let (mut compared, mut off) = (BTreeMap::<String, u64>::new(), Vec::new());
    for path in found {
        for row in runs::csv(&path) {
            // Python's format of lists.
            let dims = row["Input Dims_first"].replace('(', "[").replace(')', "]");
            let concrete = row["Concrete Inputs_first"].replace('\'', "\"");
            let ours = match product_flops(&row["name"], &dims, &concrete) {
                ProductFlops::Counted(flops) => flops as f64,
                ProductFlops::Empty | ProductFlops::Unknown => 0.0,
            };
            let expected = expected(&row);
            // Operators of other libraries, and of vLLM, are not counted.
            if ours == 0.0 {
                assert!(
                    !row["name"].starts_with("aten::"),
                    "{}: {row:?}",
                    path.display()
                );
                continue;
            }
            if (ours - expected).abs() > 1e-9 * expected {
                off.push((path.clone(), row["name"].clone(), dims, ours, expected));
            }
            *compared.entry(row["name"].clone()).or_default() += 1;
        }
    }
    assert!(off.is_empty(), "{off:#?}");
    for (name, least) in [
        ("aten::mm", 40),
        ("aten::addmm", 40),
        ("aten::bmm", 4),
        ("aten::convolution", 20),
        ("aten::convolution_backward", 12),
        ("aten::_scaled_dot_product_flash_attention", 6),
    ] {
        let count = compared.get(name).copied().unwrap_or(0);
        assert!(count >= least, "{name}: {count} of {compared:?}");
    }
}

/// XProf's program counts `rawFlops` over the whole recording; its peak is their divisor.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn operations_and_peak_of_a_tpu_equal_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let run = runs::open(&folder.join("xplane_real/tpu_v6e_inference"));
    let options = Options {
        // Steps are derived here: use the whole recording.
        marked_only: true,
        ..Options::default()
    };
    let cancel = Cancel::default();
    let run_profile = RunProfile::compute(&run[0].trace, &options.scope(), &cancel).unwrap();
    let ours = mfu(&run_profile, &cancel).unwrap();
    let expected =
        figures(&folder.join("xplane_real/tpu_v6e_inference.truth/xprof_op_profile.json"));
    let expected = &expected["byProgramExcludeIdle"]["metrics"];
    let raw = number(&expected["rawFlops"]);
    assert!(
        (ours.flops - raw).abs() < 1e-9 * raw,
        "{} {raw}",
        ours.flops
    );
    let busy = number(&expected["normalizedTimePs"]) * 1e-12;
    let peak = raw / busy / number(&expected["flops"]) / 1e12;
    let own = ours.possible.unwrap() / ours.device_seconds / 1e12;
    assert!((own - peak).abs() < 1e-4 * peak, "{own} {peak}");
}
