//! Every number that XProf gives for the XSpace files of the folder of real traces, and for two additional
//! synthetic ones, compared with ours.

#![allow(
    clippy::float_cmp,
    reason = "counts are whole numbers, in XProf's tables too"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stepscope_test_data::{Corpus, corpus_tests};

use serde_json::Value;
use stepscope_engine::Run;
use stepscope_engine::report::peer_profiler::PeerProfiler;

use stepscope_test_data::below;
use stepscope_test_data::runs::open;
use stepscope_test_data::runs::{figures, number, report, report_with, spaces, table};

/// A run, and the location of the figures of XProf's tools.
struct Pair {
    run: Run,
    context: String,
    truth: PathBuf,
    prefix: &'static str,
}

impl Pair {
    fn tool(&self, name: &str) -> Option<Value> {
        ["json", "json.gz"]
            .iter()
            .map(|end| self.truth.join(format!("{}{name}.{end}", self.prefix)))
            .find(|path| path.is_file())
            .map(|path| figures(&path))
    }

    /// Returns the rows of the tool's last table: the one without idle time where there are two.
    fn rows(&self, name: &str) -> Vec<BTreeMap<String, Value>> {
        match self.tool(name) {
            Some(Value::Array(tables)) => tables.last().map(table).unwrap_or_default(),
            Some(single) => table(&single),
            None => Vec::new(),
        }
    }
}

/// Lists all runs with figures of XProf, of one file each.
fn pairs(folder: &Path) -> Vec<Pair> {
    let mut found = Vec::new();
    for truth in below(folder, |path| path.to_string_lossy().ends_with(".truth")) {
        let path = PathBuf::from(truth.to_string_lossy().trim_end_matches(".truth"));
        if !path.is_dir() || !truth.join("tools.json").is_file() {
            continue;
        }
        let mut runs = spaces(&path);
        if runs.len() == 1 {
            found.push(Pair {
                run: runs.remove(0),
                context: path.display().to_string(),
                truth,
                prefix: "xprof_",
            });
        }
    }
    // Synthetic files, next to the folder.
    let synthetic = folder.join("../reference/xprof_ref");
    for name in ["syn_tpu", "syn_gpu"] {
        let truth = synthetic.join(name);
        if let Some(run) = open(&truth.join("syn.xplane.pb")).pop() {
            found.push(Pair {
                run,
                context: name.to_owned(),
                truth,
                prefix: "",
            });
        }
    }
    found
}

fn rows(report: &Value) -> Vec<&Value> {
    report["rows"].as_array().into_iter().flatten().collect()
}

/// Compares times. XProf's are microseconds with three digits; ours are by the device's clock, where it has one.
fn close(ours_ns: f64, expected_us: f64, context: &str) {
    let expected = expected_us * 1e3;
    assert!(
        (ours_ns - expected).abs() <= 1.0 + 1e-6 * expected,
        "{context}: {ours_ns} ns, {expected} ns"
    );
}

/// Compares total and self time of an operation with XProf's.
fn same_times(actual: &Value, row: &BTreeMap<String, Value>, context: &str) {
    for (ours, expected) in [("total_ns", "total_time"), ("self_ns", "total_self_time")] {
        close(
            on_device_clock(actual, ours),
            number(&row[expected]),
            context,
        );
    }
}

/// Compares operations and bytes per second, if both have them; returns whether both have.
fn same_rates(actual: &Value, row: &BTreeMap<String, Value>, context: &str) -> bool {
    let (Some(bytes), Some(gflops)) = (
        actual["bytes_per_second"].as_f64(),
        actual["gflops_per_second"].as_f64(),
    ) else {
        return false;
    };
    let near = |ours: f64, expected: f64| {
        assert!(
            (ours - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
            "{context}: {ours}, {expected}"
        );
    };
    near(gflops, number(&row["model_flop_rate"]));
    near(
        bytes / f64::from(1 << 30),
        number(&row["measured_memory_bw"]),
    );
    // Wasted time, by the equation of the definitions.
    if let Some(used) = actual["utilisation_share"].as_f64() {
        let left = number(&actual["self_ns"]) * (1.0 - used);
        near(number(&actual["wasted_ns"]), left);
        let bound = if row["bound_by"] == "Compute" {
            "compute"
        } else {
            "memory"
        };
        assert_eq!(actual["bound_by"], bound, "{context}");
    }
    true
}

/// XProf sums the device's own clock where there is one; nothing nests there.
fn on_device_clock(row: &Value, key: &str) -> f64 {
    match &row["device_clock_ns"] {
        Value::Null => number(&row[key]),
        clock => number(clock),
    }
}

fn share(row: &Value) -> f64 {
    match &row["device_clock_share"] {
        Value::Null => number(&row["share"]),
        clock => number(clock),
    }
}

/// Compares the length of every step of XProf's with our column for it.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn every_step_length_equals_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = BTreeMap::new();
    for pair in pairs(folder) {
        let Some(Value::Array(tables)) = pair.tool("input_pipeline_analyzer") else {
            continue;
        };
        // CPU and GPU runs have the step's time, TPU runs its parts.
        let overview = match pair.tool("overview_page") {
            Some(Value::Array(tables)) => tables,
            _ => Vec::new(),
        };
        let mut expected: Vec<(i64, f64)> = Vec::new();
        for row in tables
            .get(1)
            .into_iter()
            .chain(overview.get(1))
            .flat_map(table)
        {
            let label = row.get("stepnum").and_then(Value::as_str).unwrap_or("");
            let Some(step) = label.rsplit(' ').next().and_then(|step| step.parse().ok()) else {
                continue;
            };
            if let Some(ms) = row.get("stepTimeMs") {
                expected.push((step, number(ms)));
            } else if row.contains_key("tcComputeTimeMs") {
                let parts = [
                    "tcComputeTimeMs",
                    "tcInfeedTimeMs",
                    "tcOutfeedTimeMs",
                    "tcIdleTimeMs",
                ];
                expected.push((step, parts.iter().map(|part| number(&row[*part])).sum()));
            }
        }
        let xprof = Some(PeerProfiler::XProf);
        let ours = report_with(&pair.run, "steps", Some("step"), xprof);
        for (step, ms) in expected {
            let context = format!("step {step} of {}", pair.context);
            let actual = rows(&ours).into_iter().find(|row| row["step"] == step);
            let actual = actual.unwrap_or_else(|| panic!("no {context}"));
            close(number(&actual["xprof_step_ns"]), ms * 1e3, &context);
            *compared.entry(pair.context.clone()).or_insert(0) += 1;
        }
    }
    let steps: i32 = compared.values().sum();
    assert!(steps > 50, "{compared:?}");
    for must in ["syn_tpu", "syn_gpu", "gpu_v100_tf_multi_worker"] {
        assert!(
            compared.keys().any(|context| context.contains(must)),
            "{must}: {compared:?}"
        );
    }
}

/// Compares `hlo_stats`: occurrences, total, self time and share of every operation.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn every_hlo_operation_equals_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut compared, mut rates) = (0, 0);
    for pair in pairs(folder) {
        let expected: Vec<_> = pair
            .rows("hlo_stats")
            .into_iter()
            .filter(|row| row["hlo_op_name"] != "IDLE")
            .collect();
        if expected.is_empty() {
            continue;
        }
        // XProf's shares include idle time; compute them without it:
        let all: f64 = expected
            .iter()
            .map(|row| number(&row["total_self_time"]))
            .sum();
        let ours = report(&pair.run, "ops", Some("hlo"));
        let own: f64 = rows(&ours)
            .iter()
            .map(|row| on_device_clock(row, "self_ns"))
            .sum();
        close(own, all, &format!("all of {}", pair.context));
        for row in &expected {
            let name = row["hlo_op_name"].as_str().unwrap();
            let id = row["program_id"].as_str().unwrap();
            let context = format!("{name} of {id} in {}", pair.context);
            let actual = rows(&ours).into_iter().find(|actual| {
                let program = actual["program"].as_str().unwrap_or_default();
                actual["name"] == name && program.ends_with(&format!("({id})"))
            });
            let actual = actual.unwrap_or_else(|| panic!("no {context}"));
            assert_eq!(
                number(&actual["count"]),
                number(&row["occurrences"]),
                "{context}"
            );
            same_times(actual, row, &context);
            let expected = number(&row["total_self_time"]) / all;
            assert!((share(actual) - expected).abs() < 1e-5, "{context}");
            assert_eq!(actual["category"], row["category"], "{context}");
            rates += usize::from(same_rates(actual, row, &context));
            compared += 1;
        }
    }
    assert!(
        compared > corpus.either(0, 35),
        "only {compared} operations were compared"
    );
    assert!(
        rates >= corpus.either(0, 6),
        "only {rates} rates were compared"
    );
}

/// Compares `framework_op_stats`: occurrences, total, self time and share, of the device and of the host.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn every_framework_operation_equals_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut on_device, mut on_host) = (0, 0);
    for pair in pairs(folder) {
        let expected: Vec<_> = pair
            .rows("framework_op_stats")
            .into_iter()
            .filter(|row| row["type"] != "IDLE")
            .collect();
        if expected.is_empty() {
            continue;
        }
        let xprof = Some(PeerProfiler::XProf);
        let ours = report_with(&pair.run, "ops", Some("framework"), xprof);
        for row in &expected {
            let name = row["operation"].as_str().unwrap();
            let device = row["host_or_device"] == "Device";
            let location = if device { "device" } else { "host" };
            // These are no operations, but calls that launch them, all under the name of their annotation; and
            // events without a name.
            if !device && ["XlaModule", "(null)", "dummy"].contains(&name) {
                if name == "XlaModule" {
                    calls_of_modules(&pair, row);
                }
                continue;
            }
            let context = format!("{name} on the {location} in {}", pair.context);
            let actual = rows(&ours)
                .into_iter()
                .find(|actual| actual["name"] == name && actual["place"] == location);
            let actual = actual.unwrap_or_else(|| panic!("no {context}"));
            // For a device XProf counts the most frequent of the HLO operations. For TensorFlow's executor it
            // counts some single events twice, but not their time.
            let (count, expected) = if device {
                (number(&actual["xprof_count"]), number(&row["occurrences"]))
            } else {
                let count = number(&actual["count"]);
                (count, number(&row["occurrences"]).min(count))
            };
            assert_eq!(count, expected, "{context}");
            assert!(count * 2.0 >= number(&row["occurrences"]), "{context}");
            same_times(actual, row, &context);
            // XProf has no type where the colon after the operation is missing: on hosts, and in the synthetic files.
            let is_untyped = row["type"] == "Unknown" && (!device || pair.prefix.is_empty());
            assert!(actual["category"] == row["type"] || is_untyped, "{context}");
            let expected = if device {
                on_device += 1;
                number(&row["device_total_self_time_percent"])
            } else {
                on_host += 1;
                number(&row["host_total_self_time_percent"])
            };
            // On the host of the TensorFlow trace XProf divides by 0.3 % less than its events sum to.
            let off = (share(actual) - expected).abs();
            assert!(
                off <= 1e-5 + 0.005 * expected,
                "{context}: {off} of {expected}"
            );
        }
    }
    assert!(
        on_device > 25 && on_host == 499,
        "{on_device} on devices, {on_host} on hosts"
    );
}

/// Computes the row that XProf shows as an operation `XlaModule` of the host: calls with that annotation.
fn calls_of_modules(pair: &Pair, row: &BTreeMap<String, Value>) {
    let trace = &pair.run.trace;
    let (mut count, mut total) = (0, 0.0);
    for track in trace.tracks() {
        if track.kind != stepscope_model::TrackKind::Thread {
            continue;
        }
        let slices = trace.slices(track.id);
        for index in 0..slices.len() {
            let mut annotated = false;
            let _ = trace.args(slices.id(index), &mut |key, value| {
                annotated |= key == "tf_op"
                    && matches!(value, stepscope_model::ArgValue::Str(op) if op.starts_with("XlaModule:"));
            });
            if annotated {
                count += 1;
                total += slices.dur[index].as_ns_f64();
            }
        }
    }
    assert_eq!(
        f64::from(count),
        number(&row["occurrences"]),
        "{}",
        pair.context
    );
    close(total, number(&row["total_time"]), &pair.context);
}

/// Compares `kernel_stats`: name, launch configuration, operation, occurrences and times of every row.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn every_kernel_equals_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = BTreeMap::new();
    for pair in pairs(folder) {
        let expected = pair.rows("kernel_stats");
        if expected.is_empty() {
            continue;
        }
        let ours = report(&pair.run, "kernels", Some("shape"));
        // XProf's rows differ in the operation, too.
        let mut sums: BTreeMap<[String; 5], [f64; 4]> = BTreeMap::new();
        let mut ops: BTreeMap<[String; 5], Vec<String>> = BTreeMap::new();
        for row in &expected {
            let text = |key: &str| match &row[key] {
                Value::String(text) => text.clone(),
                other => number(other).to_string(),
            };
            let key = [
                text("kernel_name"),
                text("grid_dim"),
                text("block_dim"),
                text("registers_per_thread"),
                text("shmem_bytes"),
            ];
            ops.entry(key.clone()).or_default().push(text("op_name"));
            let sum = sums.entry(key).or_insert([0.0, 0.0, f64::INFINITY, 0.0]);
            sum[0] += number(&row["occurrences"]);
            sum[1] += number(&row["total_duration_us"]);
            sum[2] = sum[2].min(number(&row["min_duration_us"]));
            sum[3] = sum[3].max(number(&row["max_duration_us"]));
        }
        // Facts that XProf does not read (AMD's registers and shared memory) do not separate its rows.
        let reads = |at: usize| sums.keys().any(|key| key[at] != "0");
        let read = [true, true, true, reads(3), reads(4)];
        for (key, [count, total, least, most]) in &sums {
            let context = format!("{key:?} in {}", pair.context);
            let actual: Vec<&Value> = rows(&ours)
                .into_iter()
                .filter(|actual| {
                    let text = |key: &str| actual[key].as_str().unwrap_or_default().to_owned();
                    let whole = |key: &str| number(&actual[key]).to_string();
                    let own = [
                        text("name"),
                        text("grid"),
                        text("block"),
                        whole("registers"),
                        whole("shared_bytes"),
                    ];
                    let same = own.iter().zip(key).zip(read);
                    same.into_iter()
                        .all(|((own, expected), read)| !read || own == expected)
                })
                .collect();
            assert!(!actual.is_empty(), "no {context}");
            let sum = |key: &str| {
                actual
                    .iter()
                    .map(|actual| number(&actual[key]))
                    .sum::<f64>()
            };
            let each = |key: &str| {
                actual
                    .iter()
                    .map(|actual| number(&actual[key]))
                    .collect::<Vec<_>>()
            };
            assert_eq!(sum("count"), *count, "{context}");
            // XProf rounds each kernel down to whole nanoseconds.
            let off = (sum("total_ns") - total * 1e3).abs();
            assert!(off <= count + 1e-6 * total * 1e3, "{context}: {actual:?}");
            let shortest = each("min_ns").into_iter().fold(f64::INFINITY, f64::min);
            let longest = each("max_ns").into_iter().fold(0.0, f64::max);
            for (own, expected) in [(shortest, least), (longest, most)] {
                assert!(
                    (own - expected * 1e3).abs() <= 1.0,
                    "{context}: {own} {expected}"
                );
            }
            let named: Vec<_> = ops[key].iter().filter(|op| !op.is_empty()).collect();
            for actual in actual.iter().filter(|_| !named.is_empty()) {
                let op = actual["framework_op"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                assert!(named.contains(&&op), "{context}: {op} {named:?}");
            }
            *compared.entry(pair.context.clone()).or_insert(0) += 1;
        }
    }
    let kernels: i32 = compared.values().sum();
    assert!(compared.len() >= 5 && kernels > 40, "{compared:?}");
}

corpus_tests!(reports_have_rows_where_xprof_has_none);

/// Where XProf's tools are empty, ours have rows, whose sums are those of the events.
fn reports_have_rows_where_xprof_has_none(corpus: &Corpus) {
    let folder = corpus.folder();
    let mut filled = 0;
    for pair in pairs(folder) {
        let expected = pair.rows("hlo_stats");
        let idle = |row: &BTreeMap<String, Value>| row["hlo_op_name"] == "IDLE";
        if !expected.iter().all(idle) {
            continue;
        }
        let ours = report(&pair.run, "ops", Some("hlo"));
        if !ours["missing"].is_null() {
            continue;
        }
        // The independent count: slices of host threads with the name of their HLO operation.
        let trace = &pair.run.trace;
        let (mut count, mut total) = (0_u64, 0_i128);
        for track in trace.tracks() {
            let slices = trace.slices(track.id);
            for index in 0..slices.len() {
                let name = trace.name(slices.name[index]);
                let mut own = false;
                let read = trace.args(slices.id(index), &mut |key, value| {
                    own |= key == "hlo_op"
                        && matches!(value, stepscope_model::ArgValue::Str(op) if op == name);
                });
                if read.is_ok() && own && !track.derived {
                    count += 1;
                    total += i128::from(slices.dur[index].ps());
                }
            }
        }
        let sum = |key: &str| rows(&ours).iter().map(|row| number(&row[key])).sum::<f64>();
        assert_eq!(sum("count"), count as f64, "{}", pair.context);
        assert!(count > 0 && sum("total_ns") > 0.0, "{}", pair.context);
        let off = (sum("total_ns") - total as f64 / 1e3).abs();
        assert!(off <= 1e-6 * total as f64, "{}", pair.context);
        filled += 1;
    }
    assert!(filled >= corpus.either(3, 8), "only {filled} runs");
}
