//! The reports of compiled programs, compared with what XLA said of the same programs.

use std::collections::BTreeMap;

use serde_json::Value;
use stepscope_engine::Run;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::peaks::PeakOverrides;
use stepscope_engine::report::peak_options::given_peaks;
use stepscope_engine::report::peer_profiler::PeerProfiler;
use stepscope_engine::report::reports::Options;
use stepscope_test_data::{Corpus, corpus_tests, runs};

/// A convolution call of `gpu_mi300_jax_conv_legacy`: a tuple of the result and of scratch memory. XLA notes the bytes of
/// the result for the tuple as a whole. XProf's bytes by memory add up the parts of the tuple, and so leave the result
/// out; its `bytes_accessed` has it.
const CONVOLUTION: &str = "cudnn-conv.1.0";
/// `bf16[1,5120,34,31,53]`, bytes.
const CONVOLUTION_RESULT: f64 = 572_026_880.0;

/// The rows of a report, by the names of its columns.
fn rows(corpus: &Corpus, set: &str, kind: &str) -> Vec<BTreeMap<String, Value>> {
    let opened = runs::open(&corpus.path(&format!("hlo/{set}")));
    let compat = PeerProfiler::of_report(kind);
    let report = runs::report_with(&opened[0], kind, Some("module"), compat);
    let rows = report["rows"].as_array().unwrap().iter();
    rows.map(|row| row.as_object().unwrap().clone().into_iter().collect())
        .collect()
}

/// Programs of one name are told apart by their figures: one row has all of these.
fn module_rows_have_the_figures_of_xla(corpus: &Corpus) {
    let mut compared = 0;
    for set in ["mlp_train", "convnet", "sharded8", "zoo"] {
        let memory = rows(corpus, set, "hlo-memory");
        let cost = rows(corpus, set, "hlo-cost");
        let truth = corpus.path(&format!("hlo/{set}.truth/programs.json"));
        let truth: Value = serde_json::from_slice(&stepscope_test_data::bytes(&truth)).unwrap();
        for (function, truth) in truth.as_object().unwrap() {
            let planned = &truth["memory_analysis"];
            let is_planned = |row: &&BTreeMap<String, Value>| {
                row["module"] == truth["module_name"]
                    && row["space"] == 0
                    && row["argument_bytes"] == planned["argument_size_in_bytes"]
                    && row["output_bytes"] == planned["output_size_in_bytes"]
                    && row["alias_bytes"] == planned["alias_size_in_bytes"]
                    && row["temp_bytes"] == planned["temp_size_in_bytes"]
            };
            let found = memory.iter().find(is_planned);
            let found = found.unwrap_or_else(|| panic!("{set} {function}: no row has {planned}"));
            assert!(found["peak_bytes"].as_u64() <= found["xprof_peak_bytes"].as_u64());
            let counted = &truth["cost_analysis"];
            let figure = |key: &str| counted[key].as_f64().unwrap_or(0.0);
            let is_counted = |row: &BTreeMap<String, Value>| {
                row["module"] == truth["module_name"]
                    && row["flops"].as_f64() == Some(figure("flops"))
                    && row["transcendentals"].as_f64() == Some(figure("transcendentals"))
                    && row["bytes_accessed"].as_f64() == Some(figure("bytes accessed"))
            };
            assert!(
                cost.iter().any(is_counted),
                "{set} {function}: no row has {counted}"
            );
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}

corpus_tests!(module_rows_have_the_figures_of_xla);

/// The rows of each grouping add up to the figures of the module: XLA's sums, in `f32` and with -1 for each custom
/// call, and the sums with loops.
fn cost_groups_add_up_to_the_modules(corpus: &Corpus) {
    let mut compared = 0;
    for set in ["mlp_train", "convnet", "sharded8", "zoo"] {
        let opened = runs::open(&corpus.path(&format!("hlo/{set}")));
        let sums = |by: &str| {
            let report = runs::report(&opened[0], "hlo-cost", Some(by));
            let mut sums: BTreeMap<(String, String), [f64; 6]> = BTreeMap::new();
            for row in report["rows"].as_array().unwrap() {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                let figure = |key: &str| row[key].as_f64().unwrap_or(0.0);
                // A row of an operation is one execution.
                let counted = if by == "op" { figure("counted") } else { 1.0 };
                let is_counted = f64::from(u8::from(counted > 0.0));
                let is_unknown = by == "op" && row["flops"].is_null();
                let unknown = if is_unknown {
                    counted
                } else {
                    figure("unknown_calls")
                };
                let sum = sums
                    .entry((text("module"), text("program_id")))
                    .or_default();
                let figures = [
                    figure("flops") * counted,
                    figure("transcendentals") * counted,
                    figure("bytes_accessed") * counted,
                    figure("flops_with_loops") * is_counted,
                    figure("bytes_accessed_with_loops") * is_counted,
                    unknown,
                ];
                for (sum, figure) in sum.iter_mut().zip(figures) {
                    *sum += figure;
                }
            }
            sums
        };
        let modules = sums("module");
        for by in ["op", "computation", "scope", "category", "loop"] {
            let parts = sums(by);
            assert_eq!(parts.len(), modules.len(), "{set} by {by}");
            for (key, module) in &modules {
                let part = parts[key];
                assert!((part[5] - module[5]).abs() < 0.5, "{key:?} by {by}");
                for (at, (sum, figure)) in part.iter().zip(module).enumerate().take(5) {
                    let unknown = if at == 0 || at == 2 { module[5] } else { 0.0 };
                    let figure = figure + unknown;
                    let near = (sum - figure).abs() <= figure.abs() * 1e-5;
                    assert!(near, "{key:?} by {by}, figure {at}: {sum}, not {figure}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

corpus_tests!(cost_groups_add_up_to_the_modules);

/// A loop has its trips and its own work; the program around it a row without a name.
#[test]
fn loops_are_named_and_multiplied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.xplane.pb");
    let program = stepscope_test_data::hlo::program(1_000);
    std::fs::write(&path, stepscope_test_data::hlo::xspace(&program)).unwrap();
    let run = runs::open(&path).remove(0);
    let report = runs::report(&run, "hlo-cost", Some("loop"));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let inside = rows.iter().find(|row| row["loop"] != "").unwrap();
    assert!(inside["loop"].as_str().unwrap().starts_with("while."));
    assert_eq!(
        (&inside["trip_count"], &inside["outer_loop"]),
        (&Value::from(10), &Value::from(""))
    );
    // A product of each element, an addition and a comparison of the counter.
    assert_eq!(inside["flops"], 256 * 256 + 1 + 1);
    assert_eq!(inside["flops_with_loops"], 10 * (256 * 256 + 1) + 11);
    let report = runs::report(&run, "hlo-cost", Some("computation"));
    let roles: Vec<&str> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["entry", "loop body", "loop condition"]);
}

/// Operations of a processor have the work of the cost model, and MFU adds it up.
#[test]
fn operations_and_mfu_take_their_work_from_the_cost_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.xplane.pb");
    let program = stepscope_test_data::hlo::program(1_000);
    std::fs::write(&path, stepscope_test_data::hlo::xspace(&program)).unwrap();
    let run = runs::open(&path).remove(0);
    let report = runs::report(&run, "ops", Some("hlo"));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), program.executed.len());
    let product = rows.iter().find(|row| row["category"] == "dot").unwrap();
    let (flops, bytes) = (2_u64 * 256 * 256 * 256, 3_u64 * 256 * 256 * 4);
    assert_eq!(product["flops"], flops);
    assert_eq!(product["bytes_accessed"], bytes);
    assert_eq!(product["intensity"], flops as f64 / bytes as f64);
    assert_eq!(product["work_source"], "cost model");
    // No file states the peaks of processors.
    assert_eq!(
        (&product["efficiency"], &product["bound_by"]),
        (&Value::Null, &Value::Null)
    );
    let sum: f64 = rows.iter().map(|row| row["flops"].as_f64().unwrap()).sum();
    let mfu = runs::report(&run, "mfu", None);
    let figures = &mfu["summary"];
    let counted = "by the cost model of the compiled programs";
    assert_eq!(figures["counted"], counted, "{mfu}");
    assert_eq!(
        (&figures["covered_share"], &figures["mfu_share"]),
        (&Value::from(1.0), &Value::Null)
    );
    let span = run.trace.span();
    let seconds = span.end.since(span.start).as_ns_f64() * 1e-9;
    let rate = figures["teraflops_per_second"].as_f64().unwrap() * 1e12;
    assert!(
        (rate * seconds / sum - 1.0).abs() < 1e-6,
        "{rate} {seconds} {sum}"
    );
    assert!(mfu["notes"].to_string().contains("cost analysis"), "{mfu}");
}

/// Programs are chosen by name, by number, or by both; a wrong name is an error that names the nearest.
#[test]
fn reports_of_programs_are_limited_to_a_module_and_a_space() {
    let corpus = Corpus::committed();
    let run = runs::open(&corpus.path("hlo/mlp_train")).remove(0);
    let report = |kind: &str, module: Option<&str>, space: Option<i64>| {
        let options = Options {
            module: module.map(str::to_owned),
            space,
            ..Options::default()
        };
        run.report(kind, &options, &Cancel::default())
            .map(|report| serde_json::to_value(&*report).unwrap()["rows"].clone())
            .map_err(|error| error.to_string())
    };
    let all = report("hlo-cost", None, None).unwrap();
    let all = all.as_array().unwrap();
    assert!(all.len() > 3);
    for row in all {
        let (name, id) = (&row["module"], &row["program_id"]);
        let (name, id) = (name.as_str().unwrap(), id.as_str().unwrap());
        for asked in [id, &format!("{name}({id})")] {
            let found = report("hlo-cost", Some(asked), None).unwrap();
            assert_eq!(found, Value::from([row.clone()]), "{asked}");
        }
        let same_name = report("hlo-memory", Some(name), Some(0)).unwrap();
        let same_name = same_name.as_array().unwrap();
        assert!(!same_name.is_empty());
        assert!(same_name.iter().all(|row| row["module"] == name));
    }
    let nothing = report("hlo-memory", None, Some(77)).unwrap();
    assert_eq!(nothing, Value::Array(Vec::new()));
    assert_eq!(
        report("hlo-cost", Some("jit_train_stepp"), None).unwrap_err(),
        "cannot report on module 'jit_train_stepp': the run has no such compiled program\n\
         help: did you mean 'jit_train_step'?"
    );
    assert_eq!(
        report("steps", Some("jit_train_step"), None).unwrap_err(),
        "cannot limit report 'steps' by module: only these take it: hlo-memory, hlo-cost, op-profile, roofline"
    );
}

fn is_group(node: &Value) -> bool {
    let name = node["name"].as_str().unwrap_or_default();
    name.ends_with(" and its duplicate(s)")
}

/// Calls `visit` with the operations of XProf's profile, and with its groups of copies.
fn xprof_operations<'a>(node: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    let program = node["xla"]["programId"].as_str();
    if program.is_some_and(|program| !program.is_empty()) && node["metrics"]["rawTime"] != 0 {
        visit(node);
        if !is_group(node) {
            return;
        }
    }
    for child in node["children"].as_array().into_iter().flatten() {
        xprof_operations(child, visit);
    }
}

/// Time, operations and bytes of each operation that XProf shows. XProf counts the work of an operation again for
/// each of its kernels; where a kernel runs several times in one execution, the kernels of one execution are not
/// known, and so XProf's occurrences stand in for the executions.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn operations_are_those_of_xprof() {
    let corpus = Corpus::collected();
    let (mut compared, mut moving, mut wrong) = (0, 0, Vec::new());
    for set in [
        "gpu_amd_jax_te_attn",
        "gpu_mi300_jax_attention",
        "gpu_mi300_jax_conv_legacy",
        "tpu_v6e_inference",
    ] {
        let opened = runs::open(&corpus.path(&format!("xplane_real/{set}")));
        let report = runs::report(&opened[0], "op-profile", Some("program"));
        let rows = report["rows"].as_array().unwrap();
        let path =
            format!("../reference/xprof_hlo_ref/xplane_real.{set}/op_profile_by_program.json.gz");
        let expected = runs::figures(&corpus.path(&path));
        xprof_operations(&expected["byProgramExcludeIdle"], &mut |node| {
            let name = node["name"].as_str().unwrap();
            let id = format!("({})", node["xla"]["programId"].as_str().unwrap());
            // XProf calls a group after its first child, which is another one in each run.
            let is_same_time = |row: &Value| {
                let time_ps = row["time_ns"].as_f64().unwrap_or(0.0) * 1_000.0;
                (time_ps - node["metrics"]["rawTime"].as_f64().unwrap()).abs() < 1_000.0
            };
            if is_group(node) {
                compared += 1;
                let mut groups = rows.iter().filter(|row| row["node"] == "copies");
                if !groups.any(is_same_time) {
                    wrong.push(format!("{set} {name}{id}: no group"));
                }
                return;
            }
            let is_same = |row: &&Value| {
                row["node"] == "op"
                    && row["op"] == name
                    && row["program"].as_str().unwrap().ends_with(&id)
            };
            compared += 1;
            let Some(row) = rows.iter().find(is_same) else {
                wrong.push(format!("{set} {name}{id}: no row"));
                return;
            };
            let number = |value: &Value| value.as_f64().unwrap_or(0.0);
            let metrics = &node["metrics"];
            if !is_same_time(row) {
                let (own, expected) = (&row["time_ns"], &metrics["rawTime"]);
                wrong.push(format!("{set} {name}{id}: {own} ns, not {expected} ps"));
            }
            // Asynchronous pairs count once here; XProf has no figures of some library calls.
            let times = number(&metrics["occurrences"]) / number(&row["executions"]);
            let keys = ["main_bytes", "chip_read_bytes", "chip_write_bytes"];
            let is_pair = name.contains("-start") || name.contains("-done");
            let moved = metrics["rawBytesAccessedArray"].as_array();
            for (key, expected) in keys.iter().zip(moved.into_iter().flatten()) {
                let (found, mut expected) = (number(&row[key]) * times, number(expected));
                if expected > 0.0 && !is_pair && row["work_source"] != "unknown" {
                    moving += 1;
                    if name == CONVOLUTION {
                        expected += CONVOLUTION_RESULT * number(&metrics["occurrences"]);
                    }
                    if (found - expected).abs() > expected * 1e-6 {
                        wrong.push(format!("{set} {name}{id}: {key} {found}, not {expected}"));
                    }
                }
            }
            let flops = number(&metrics["rawFlops"]);
            if name.contains("-start") || name.contains("-done") || flops == 0.0 {
                return;
            }
            let found = number(&row["flops"]) * times;
            if (found - flops).abs() > flops * 1e-6 {
                wrong.push(format!("{set} {name}{id}: {found} operations, not {flops}"));
            }
        });
    }
    assert!(compared > 40 && moving > 20, "{compared} {moving}");
    assert!(
        wrong.is_empty(),
        "{} of {compared}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Every level of the operation profile adds up to the one above, and every grouping has the same root.
#[test]
fn operation_profiles_add_up() {
    let corpus = Corpus::committed();
    let opened = runs::open(&corpus.path("hlo/mlp_train"));
    let mut roots = Vec::new();
    for by in ["program", "category", "provenance"] {
        let report = runs::report(&opened[0], "op-profile", Some(by));
        let rows = report["rows"].as_array().unwrap();
        let depth = |row: &Value| row["depth"].as_u64().unwrap();
        for (at, row) in rows.iter().enumerate() {
            let below = rows[at + 1..].iter();
            let below = below.take_while(|other| depth(other) > depth(row));
            let children: Vec<&Value> = below
                .filter(|other| depth(other) == depth(row) + 1 && other["node"] != "instruction")
                .collect();
            if children.is_empty() {
                continue;
            }
            for key in ["time_ns", "executions"] {
                let sum: f64 = children.iter().filter_map(|row| row[key].as_f64()).sum();
                let own = row[key].as_f64().unwrap();
                assert!(
                    (sum - own).abs() < 1e-3,
                    "{by} {}: {sum}, not {own}",
                    row["name"]
                );
            }
        }
        let ops = rows.iter().filter(|row| row["node"] == "op");
        assert!(ops.clone().all(|row| row["work_source"] != "trace file"));
        assert!(ops.clone().any(|row| row["flops"].as_u64() > Some(0)));
        roots.push((
            rows[0]["time_ns"].clone(),
            rows[0]["flops"].clone(),
            ops.count(),
        ));
    }
    assert_eq!(roots[0], roots[1]);
    assert_eq!(roots[0], roots[2]);

    // The roofline has the same operations.
    let roofline = runs::report(&opened[0], "roofline", Some("op"));
    let rows = roofline["rows"].as_array().unwrap();
    assert_eq!(rows.len(), roots[0].2);
    let flops: f64 = rows.iter().filter_map(|row| row["flops"].as_f64()).sum();
    assert_eq!(Some(flops), roots[0].1.as_f64());
    // No file states the peaks of a processor.
    assert!(
        rows.iter()
            .all(|row| row["bound"] == "" && row["efficiency"].is_null())
    );
}

/// Every table of a memory plan tells the same story: the curve reaches the peak where the modules have it, what is
/// alive there adds up to it, and lifetimes cover it.
#[test]
fn tables_of_a_memory_plan_agree() {
    let corpus = Corpus::committed();
    let run = runs::open(&corpus.path("hlo/mlp_train")).remove(0);
    let rows = |by: &str, position: Option<u32>| -> Vec<Value> {
        let options = Options {
            by: Some(by.to_owned()),
            module: Some("jit_train_step".to_owned()),
            space: Some(0),
            position,
            ..Options::default()
        };
        let report = run.report("hlo-memory", &options, &Cancel::default());
        let rows = serde_json::to_value(&*report.unwrap()).unwrap()["rows"].take();
        rows.as_array().unwrap().clone()
    };
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let sum = |rows: &[Value], key: &str| rows.iter().map(|row| number(row, key)).sum::<u64>();
    let modules = rows("module", None);
    assert_eq!(modules.len(), 1);
    let peak = number(&modules[0], "peak_bytes");
    let curve = rows("position", None);
    let highest = curve.iter().max_by_key(|row| number(row, "live_bytes"));
    let highest = highest.unwrap();
    assert_eq!(number(highest, "live_bytes"), peak);
    let lifetimes = rows("lifetime", None);
    for point in curve.iter().step_by(7).chain([highest]) {
        let position = number(point, "position");
        let at = Some(u32::try_from(position).unwrap());
        let live = number(point, "live_bytes");
        let is_alive = |row: &&Value| {
            (number(row, "first_position")..=number(row, "last_position")).contains(&position)
        };
        let covering: Vec<Value> = lifetimes.iter().filter(is_alive).cloned().collect();
        assert_eq!(sum(&covering, "bytes"), live, "{position}");
        for by in ["buffer", "class", "shape", "opcode", "scope", "source"] {
            assert_eq!(sum(&rows(by, at), "bytes"), live, "{by} at {position}");
        }
    }
    for by in ["buffer", "class"] {
        assert_eq!(sum(&rows(by, None), "bytes"), peak, "{by}");
    }
    let modules = rows("module", None);
    assert_eq!(
        sum(&rows("buffer", None), "padding_bytes"),
        number(&modules[0], "padding_bytes")
    );
}

/// A program in a file of its own gives the same rows as inside a profile; a truncated one gives what is left.
#[test]
fn a_file_with_one_program_is_a_run() {
    let corpus = Corpus::committed();
    let opened = runs::open(&corpus.path("hlo/convnet"));
    let profile = &opened[0].trace;
    let mut bytes = Vec::new();
    profile
        .programs(0, &mut |program| {
            if program.name == Some("jit_train_step") {
                bytes = program.bytes.to_vec();
            }
        })
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| -> Run {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        runs::open(&path).remove(0)
    };
    let rows_of = |run: &Run, kind: &str, by: &str| -> Vec<Value> {
        let report = runs::report(run, kind, Some(by));
        let rows = report["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["module"] == "jit_train_step")
            .cloned()
            .collect()
    };
    let whole = open("jit_train_step.hlo_proto.pb", &bytes);
    for (kind, by) in [
        ("hlo-memory", "module"),
        ("hlo-memory", "buffer"),
        ("hlo-cost", "op"),
    ] {
        let found = rows_of(&whole, kind, by);
        assert!(!found.is_empty());
        assert_eq!(found, rows_of(&opened[0], kind, by), "{kind} by {by}");
    }
    let overview = runs::report(&whole, "overview", None);
    assert!(
        overview["notes"].to_string().contains("hlo-memory"),
        "{overview}"
    );

    let cut = open("cut.hlo_proto.pb", &bytes[..bytes.len() / 2]);
    let report = runs::report(&cut, "hlo-cost", Some("module"));
    assert!(report["notes"].to_string().contains("damaged"), "{report}");
}

/// The peaks that XProf shows for GPUs by cores and clock, and for a TPU by its file, and the fractions of them that
/// operations of 16 bits reach.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn roofs_are_those_of_xprof() {
    let corpus = Corpus::collected();
    let (mut compared, mut wrong) = (0, Vec::new());
    for set in [
        "gpu_amd_jax_te_attn",
        "gpu_mi300_jax_attention",
        "gpu_mi300_jax_conv_legacy",
        "tpu_v6e_inference",
    ] {
        let opened = runs::open(&corpus.path(&format!("xplane_real/{set}")));
        let report = runs::report(&opened[0], "roofline", Some("op"));
        let mut sections = report["sections"].as_array().unwrap().iter();
        let roofs = sections.find(|section| section["name"] == "roofs");
        let roofs = roofs.and_then(|roofs| roofs["rows"].as_array());
        let roofs = roofs.unwrap_or_else(|| panic!("{set}: {}", report["sections"]));
        let path = format!("../reference/xprof_hlo_ref/xplane_real.{set}/roofline_model.json.gz");
        let expected = runs::figures(&corpus.path(&path));
        let expected = &expected[0];
        let gibi = 1.073_741_824;
        for (key, column, kind, scale) in [
            (
                "peak_flop_rate",
                "peak_flops_per_second",
                ("precision", "f16"),
                1e9,
            ),
            (
                "peak_hbm_bw",
                "peak_bytes_per_second",
                ("level", "main memory"),
                1e9 * gibi,
            ),
            (
                "peak_vmem_read_bw",
                "peak_bytes_per_second",
                ("level", "VMEM read"),
                1e9 * gibi,
            ),
        ] {
            let Some(stated) = expected["p"][key].as_str() else {
                continue;
            };
            let stated = stated.parse::<f64>().unwrap() * scale;
            let own = roofs
                .iter()
                .find(|roof| roof[kind.0] == kind.1 && roof["source"] != "");
            let own = own.and_then(|roof| roof[column].as_f64()).unwrap_or(0.0);
            compared += 1;
            // XProf prints six digits.
            if (own - stated).abs() > stated * 1e-5 {
                wrong.push(format!("{set} {key}: {own}, not {stated}"));
            }
        }
        let columns = expected["cols"].as_array().unwrap();
        let at = |id: &str| {
            columns
                .iter()
                .position(|column| column["id"] == id)
                .unwrap()
        };
        let rows = report["rows"].as_array().unwrap();
        for theirs in expected["rows"].as_array().unwrap() {
            let cell = |id: &str| &theirs["c"][at(id)]["v"];
            let name = cell("operation").as_str().unwrap();
            let id = format!("({})", cell("hlo_module_id").as_str().unwrap_or("none"));
            let is_pair = name.contains("-start") || name.contains("-done");
            if cell("step") != "Total" || is_pair {
                continue;
            }
            let own = rows
                .iter()
                .find(|row| row["op"] == name && row["program"].as_str().unwrap().ends_with(&id));
            let Some(own) = own else { continue };
            let once = own["executions"].as_f64() == cell("occurrences").as_f64();
            let intensity = match name {
                CONVOLUTION => cell("operational_intensity"),
                _ => cell("hbm_operational_intensity"),
            };
            let intensity = intensity.as_f64().unwrap_or(0.0);
            if intensity > 0.0 && own["work_source"] != "unknown" {
                compared += 1;
                let found = own["main_intensity"].as_f64().unwrap_or(0.0);
                if (found - intensity).abs() > intensity * 1e-6 {
                    wrong.push(format!(
                        "{set} {name}{id}: intensity {found}, not {intensity}"
                    ));
                }
            }
            let share = cell("compute_efficiency").as_f64().unwrap_or(0.0);
            if share > 0.0 && once && own["precision"] == "f16" {
                compared += 1;
                let found = own["flops_utilisation"].as_f64().unwrap_or(0.0);
                if (found - share).abs() > share * 1e-4 {
                    wrong.push(format!(
                        "{set} {name}{id}: utilisation {found}, not {share}"
                    ));
                }
            }
        }
    }
    assert!(compared > 30, "{compared}");
    assert!(
        wrong.is_empty(),
        "{} of {compared}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Peaks that a user gives make the roofline of a processor, and its steps add up.
#[test]
fn given_peaks_bound_operations_of_processors() {
    let corpus = Corpus::committed();
    let run = runs::open(&corpus.path("hlo/mlp_train")).remove(0);
    let given = given_peaks(Some("1e12:f32=1e11"), Some("2e10")).unwrap();
    let report = |kind: &str, by: Option<&str>| {
        let options = Options {
            by: by.map(str::to_owned),
            peaks: PeakOverrides {
                given: given.clone(),
                ..PeakOverrides::default()
            },
            ..Options::default()
        };
        let report = run.report(kind, &options, &Cancel::default());
        report.map(|report| serde_json::to_value(&*report).unwrap())
    };
    let roofline = report("roofline", None).unwrap();
    let rows = roofline["rows"].as_array().unwrap();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or(0.0);
    let mut bound = 0;
    for row in rows.iter().filter(|row| row["precision"] == "f32") {
        assert_eq!(row["peak_flops_per_second"], 1e11, "{row}");
        let compute = number(row, "flops_per_second") / 1e11;
        let memory = number(row, "main_bytes_per_second") / 2e10;
        assert!(
            (number(row, "efficiency") - compute.max(memory)).abs() < 1e-9,
            "{row}"
        );
        let expected = if memory > compute {
            "memory"
        } else {
            "compute"
        };
        assert_eq!(row["bound"], expected, "{row}");
        bound += 1;
    }
    assert!(bound > 3, "{bound}");
    let sections = roofline["sections"].as_array().unwrap();
    let roofs = sections.iter().find(|section| section["name"] == "roofs");
    let roofs = roofs.unwrap()["rows"].as_array().unwrap();
    assert!(roofs.iter().all(|roof| roof["source"] == "given"));
    let of_kind = |kind: &str| roofs.iter().filter(|roof| roof["kind"] == kind).count();
    assert_eq!((of_kind("compute"), of_kind("memory")), (5, 1));
    let steps = report("roofline", Some("step")).unwrap();
    let steps = steps["rows"].as_array().unwrap();
    assert!(steps.len() > 1);
    let time = |rows: &[Value]| rows.iter().map(|row| number(row, "time_ns")).sum::<f64>();
    assert!(time(steps) > 0.0 && time(steps) <= time(rows) * 1.000_001);
    let numbers: Vec<f64> = steps.iter().map(|row| number(row, "step")).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!(
        report("steps", None).unwrap_err().to_string(),
        "cannot limit report 'steps' by peaks: only these take it: mfu, op-profile, roofline"
    );
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn capacity_of_devices_is_in_the_file_or_in_its_allocator_events() {
    let corpus = Corpus::collected();
    for (set, capacity) in [
        ("tpu_v6e_inference", 33_550_237_696_i64),
        ("gpu_mi300_jax_conv_legacy", 206_141_652_992),
    ] {
        let opened = runs::open(&corpus.path(&format!("xplane_real/{set}")));
        let report = runs::report(&opened[0], "hlo-memory", Some("module"));
        let rows = report["rows"].as_array().unwrap().iter();
        let main: Vec<&Value> = rows.filter(|row| row["space"] == 0).collect();
        assert!(!main.is_empty());
        for row in main {
            assert_eq!(row["capacity_bytes"], capacity, "{set} {row}");
        }
    }
}
