//! Costs of GPU programs, compared with XProf's `op_profile`.

use serde_json::Value;
use stepscope_hlo::cost::{Analysis, Rules};
use stepscope_test_data::Corpus;

use crate::support::{json, programs};

/// Calls `visit` with the leaves of an operation profile.
fn leaves<'a>(node: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    match node["children"].as_array() {
        Some(children) if !children.is_empty() => {
            for child in children {
                leaves(child, visit);
            }
        }
        _ => visit(node),
    }
}

/// The operations and bytes of each operation that XProf shows: those of the model times the kernels.
///
/// XProf has nothing for products of `__cublas$gemm`, and leaves out the result of a library call that is part of a
/// tuple: it looks for the bytes of the part.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn gpu_costs_are_those_of_xprof() {
    let corpus = Corpus::collected();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for set in [
        "gpu_amd_jax_te_attn",
        "gpu_mi300_jax_attention",
        "gpu_mi300_jax_conv_legacy",
    ] {
        let programs = programs(&corpus.path(&format!("xplane_real/{set}")));
        let folder = corpus.path(&format!("../reference/xprof_hlo_ref/xplane_real.{set}"));
        let profile = json(&folder.join("op_profile_by_program.json.gz"));
        leaves(&profile["byProgramExcludeIdle"], &mut |leaf| {
            let id = leaf["xla"]["programId"].as_str().unwrap_or_default();
            let end = format!("({id})");
            let Some(program) = programs.iter().find(|one| one.key.ends_with(&end)) else {
                return;
            };
            let mut instructions = (0_usize..).zip(&program.module.instructions);
            let named = instructions.find(|(_, one)| leaf["name"] == *one.name);
            let Some((at, instruction)) = named else {
                return;
            };
            let costs = Analysis::with_rules(&program.module, Rules::Gpu);
            let properties = &costs.instructions[at].properties;
            let target = &*instruction.custom_call_target;
            let is_library = target.starts_with("__cublas$gemm") || target.starts_with("__cudnn");
            let metrics = &leaf["metrics"];
            let count = metrics["occurrences"].as_f64().unwrap();
            let flops = f64::from(properties.flops).max(0.0).trunc();
            let found = [
                flops * count,
                properties.exact_bytes(instruction.operands.len()).max(0.0) * count,
            ];
            let number = |value: &Value| value.as_f64().unwrap_or(0.0).round();
            let expected = [
                number(&metrics["rawFlops"]),
                number(&metrics["rawBytesAccessedArray"][0]),
            ];
            compared += 1;
            let is_equal = if is_library {
                expected[0] == 0.0 || found[0] == expected[0]
            } else {
                found == expected
            };
            if !is_equal {
                wrong.push(format!(
                    "{set} {}: {found:?}, not {expected:?}",
                    leaf["name"]
                ));
            }
        });
    }
    assert!(compared > 40, "{compared}");
    assert!(
        wrong.is_empty(),
        "{} of {compared}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
