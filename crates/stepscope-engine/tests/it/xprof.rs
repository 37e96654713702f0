//! Every number that XProf gives for the XSpace files of the folder of real traces, and for two
//! synthetic ones beside it, against ours.

#![allow(
    clippy::float_cmp,
    reason = "counts are whole numbers, in XProf's tables too"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_engine::Run;

use crate::reports::{figures, number, report, spaces, table};
use crate::traces::{below, folder, open};

/// A run, and where the figures of XProf's tools are.
struct Pair {
    run: Run,
    what: String,
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

    /// Rows of the tool's last table: the one without idle time where there are two.
    fn rows(&self, name: &str) -> Vec<BTreeMap<String, Value>> {
        match self.tool(name) {
            Some(Value::Array(tables)) => tables.last().map(table).unwrap_or_default(),
            Some(single) => table(&single),
            None => Vec::new(),
        }
    }
}

/// All runs that XProf looked at, of one file each.
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
                what: path.display().to_string(),
                truth,
                prefix: "xprof_",
            });
        }
    }
    // Made by hand, beside the folder.
    let synthetic = folder.join("../reference/xprof_ref");
    for name in ["syn_tpu", "syn_gpu"] {
        let truth = synthetic.join(name);
        if let Some(run) = open(&truth.join("syn.xplane.pb")).pop() {
            found.push(Pair {
                run,
                what: name.to_owned(),
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

/// Times of XProf are microseconds of three digits; ours by the device's clock, where it has one.
fn close(ours_ns: f64, theirs_us: f64, what: &str) {
    let theirs = theirs_us * 1e3;
    assert!(
        (ours_ns - theirs).abs() <= 1.0 + 1e-6 * theirs,
        "{what}: {ours_ns} ns, {theirs} ns"
    );
}

/// Total and self time of an operation, as XProf has them.
fn same_times(mine: &Value, row: &BTreeMap<String, Value>, what: &str) {
    for (ours, theirs) in [("total_ns", "total_time"), ("self_ns", "total_self_time")] {
        close(on_device_clock(mine, ours), number(&row[theirs]), what);
    }
}

/// Operations and bytes per second, where both of us have them; whether that is so.
fn same_rates(mine: &Value, row: &BTreeMap<String, Value>, what: &str) -> bool {
    let (Some(bytes), Some(gflops)) = (
        mine["bytes_per_second"].as_f64(),
        mine["gflops_per_second"].as_f64(),
    ) else {
        return false;
    };
    let near = |ours: f64, theirs: f64| {
        assert!(
            (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1e-3),
            "{what}: {ours}, {theirs}"
        );
    };
    near(gflops, number(&row["model_flop_rate"]));
    near(
        bytes / f64::from(1 << 30),
        number(&row["measured_memory_bw"]),
    );
    // What it leaves over, by the equation of the definitions.
    if let Some(used) = mine["utilisation_share"].as_f64() {
        let left = number(&mine["self_ns"]) * (1.0 - used);
        near(number(&mine["wasted_ns"]), left);
        let bound = if row["bound_by"] == "Compute" {
            "compute"
        } else {
            "memory"
        };
        assert_eq!(mine["bound_by"], bound, "{what}");
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

/// Steps: every step of XProf's, at the length that it has there, in our column for it.
#[test]
fn every_step_is_as_long_as_in_xprof() {
    let Some(folder) = folder() else { return };
    let mut compared = BTreeMap::new();
    for pair in pairs(&folder) {
        let Some(Value::Array(tables)) = pair.tool("input_pipeline_analyzer") else {
            continue;
        };
        // CPU and GPU runs say the step's time, TPU runs its parts.
        let overview = match pair.tool("overview_page") {
            Some(Value::Array(tables)) => tables,
            _ => Vec::new(),
        };
        let mut theirs: Vec<(i64, f64)> = Vec::new();
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
                theirs.push((step, number(ms)));
            } else if row.contains_key("tcComputeTimeMs") {
                let parts = [
                    "tcComputeTimeMs",
                    "tcInfeedTimeMs",
                    "tcOutfeedTimeMs",
                    "tcIdleTimeMs",
                ];
                theirs.push((step, parts.iter().map(|part| number(&row[*part])).sum()));
            }
        }
        let ours = report(&pair.run, "steps", Some("step"));
        for (step, ms) in theirs {
            let what = format!("step {step} of {}", pair.what);
            let mine = rows(&ours).into_iter().find(|row| row["step"] == step);
            let mine = mine.unwrap_or_else(|| panic!("no {what}"));
            close(number(&mine["xprof_step_ns"]), ms * 1e3, &what);
            *compared.entry(pair.what.clone()).or_insert(0) += 1;
        }
    }
    let steps: i32 = compared.values().sum();
    assert!(steps > 50, "{compared:?}");
    for must in ["syn_tpu", "syn_gpu", "gpu_v100_tf_multi_worker"] {
        assert!(
            compared.keys().any(|what| what.contains(must)),
            "{must}: {compared:?}"
        );
    }
}

/// `hlo_stats`: occurrences, total, self time and share of every operation.
#[test]
fn every_hlo_operation_is_that_of_xprof() {
    let Some(folder) = folder() else { return };
    let (mut compared, mut rates) = (0, 0);
    for pair in pairs(&folder) {
        let theirs: Vec<_> = pair
            .rows("hlo_stats")
            .into_iter()
            .filter(|row| row["hlo_op_name"] != "IDLE")
            .collect();
        if theirs.is_empty() {
            continue;
        }
        // Its shares count idle time; without it:
        let all: f64 = theirs
            .iter()
            .map(|row| number(&row["total_self_time"]))
            .sum();
        let ours = report(&pair.run, "ops", Some("hlo"));
        let own: f64 = rows(&ours)
            .iter()
            .map(|row| on_device_clock(row, "self_ns"))
            .sum();
        close(own, all, &format!("all of {}", pair.what));
        for row in &theirs {
            let name = row["hlo_op_name"].as_str().unwrap();
            let id = row["program_id"].as_str().unwrap();
            let what = format!("{name} of {id} in {}", pair.what);
            let mine = rows(&ours).into_iter().find(|mine| {
                let program = mine["program"].as_str().unwrap_or_default();
                mine["name"] == name && program.ends_with(&format!("({id})"))
            });
            let mine = mine.unwrap_or_else(|| panic!("no {what}"));
            assert_eq!(
                number(&mine["count"]),
                number(&row["occurrences"]),
                "{what}"
            );
            same_times(mine, row, &what);
            let theirs = number(&row["total_self_time"]) / all;
            assert!((share(mine) - theirs).abs() < 1e-5, "{what}");
            assert_eq!(mine["category"], row["category"], "{what}");
            rates += usize::from(same_rates(mine, row, &what));
            compared += 1;
        }
    }
    assert!(compared > 35, "only {compared} operations were compared");
    assert!(rates > 5, "only {rates} rates were compared");
}

/// `framework_op_stats`: occurrences, total, self time and share, of the device and of the host.
#[test]
fn every_framework_operation_is_that_of_xprof() {
    let Some(folder) = folder() else { return };
    let (mut on_device, mut on_host) = (0, 0);
    for pair in pairs(&folder) {
        let theirs: Vec<_> = pair
            .rows("framework_op_stats")
            .into_iter()
            .filter(|row| row["type"] != "IDLE")
            .collect();
        if theirs.is_empty() {
            continue;
        }
        let ours = report(&pair.run, "ops", Some("framework"));
        for row in &theirs {
            let name = row["operation"].as_str().unwrap();
            let device = row["host_or_device"] == "Device";
            let place = if device { "device" } else { "host" };
            // No operations, but calls that launch them, all under the name of their annotation; and
            // events without a name.
            if !device && ["XlaModule", "(null)", "dummy"].contains(&name) {
                if name == "XlaModule" {
                    calls_of_modules(&pair, row);
                }
                continue;
            }
            let what = format!("{name} on the {place} in {}", pair.what);
            let mine = rows(&ours)
                .into_iter()
                .find(|mine| mine["name"] == name && mine["place"] == place);
            let mine = mine.unwrap_or_else(|| panic!("no {what}"));
            // Of a device it counts the most frequent of the HLO operations.
            // Of TensorFlow's executor it counts some single events twice, but not their time.
            let (count, theirs) = if device {
                (number(&mine["xprof_count"]), number(&row["occurrences"]))
            } else {
                let count = number(&mine["count"]);
                (count, number(&row["occurrences"]).min(count))
            };
            assert_eq!(count, theirs, "{what}");
            assert!(count * 2.0 >= number(&row["occurrences"]), "{what}");
            same_times(mine, row, &what);
            // It knows no type where the colon behind the operation is missing.
            assert!(
                mine["category"] == row["type"] || row["type"] == "Unknown",
                "{what}"
            );
            let theirs = if device {
                on_device += 1;
                number(&row["device_total_self_time_percent"])
            } else {
                on_host += 1;
                number(&row["host_total_self_time_percent"])
            };
            // On the host of the TensorFlow trace XProf divides by 0.3 % less than its events sum to.
            let off = (share(mine) - theirs).abs();
            assert!(off <= 1e-5 + 0.005 * theirs, "{what}: {off} of {theirs}");
        }
    }
    assert!(
        on_device > 25 && on_host == 499,
        "{on_device} on devices, {on_host} on hosts"
    );
}

/// What XProf shows as an operation `XlaModule` of the host: calls with that annotation.
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
        pair.what
    );
    close(total, number(&row["total_time"]), &pair.what);
}

/// `kernel_stats`: name, launch configuration, operation, occurrences and times of every row.
#[test]
fn every_kernel_is_that_of_xprof() {
    let Some(folder) = folder() else { return };
    let mut compared = BTreeMap::new();
    for pair in pairs(&folder) {
        let theirs = pair.rows("kernel_stats");
        if theirs.is_empty() {
            continue;
        }
        let ours = report(&pair.run, "kernels", Some("shape"));
        // It tells rows apart by the operation, too.
        let mut sums: BTreeMap<[String; 5], [f64; 4]> = BTreeMap::new();
        let mut ops: BTreeMap<[String; 5], Vec<String>> = BTreeMap::new();
        for row in &theirs {
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
        // What it does not read of a file (AMD's registers and shared memory) does not tell its rows apart.
        let reads = |at: usize| sums.keys().any(|key| key[at] != "0");
        let read = [true, true, true, reads(3), reads(4)];
        for (key, [count, total, least, most]) in &sums {
            let what = format!("{key:?} in {}", pair.what);
            let mine: Vec<&Value> = rows(&ours)
                .into_iter()
                .filter(|mine| {
                    let text = |key: &str| mine[key].as_str().unwrap_or_default().to_owned();
                    let whole = |key: &str| number(&mine[key]).to_string();
                    let own = [
                        text("name"),
                        text("grid"),
                        text("block"),
                        whole("registers"),
                        whole("shared_bytes"),
                    ];
                    let same = own.iter().zip(key).zip(read);
                    same.into_iter()
                        .all(|((own, theirs), read)| !read || own == theirs)
                })
                .collect();
            assert!(!mine.is_empty(), "no {what}");
            let sum = |key: &str| mine.iter().map(|mine| number(&mine[key])).sum::<f64>();
            let each = |key: &str| {
                mine.iter()
                    .map(|mine| number(&mine[key]))
                    .collect::<Vec<_>>()
            };
            assert_eq!(sum("count"), *count, "{what}");
            // It cuts each kernel to whole nanoseconds.
            let off = (sum("total_ns") - total * 1e3).abs();
            assert!(off <= count + 1e-6 * total * 1e3, "{what}: {mine:?}");
            let shortest = each("min_ns").into_iter().fold(f64::INFINITY, f64::min);
            let longest = each("max_ns").into_iter().fold(0.0, f64::max);
            for (own, theirs) in [(shortest, least), (longest, most)] {
                assert!((own - theirs * 1e3).abs() <= 1.0, "{what}: {own} {theirs}");
            }
            let named: Vec<_> = ops[key].iter().filter(|op| !op.is_empty()).collect();
            for mine in mine.iter().filter(|_| !named.is_empty()) {
                let op = mine["framework_op"].as_str().unwrap_or_default().to_owned();
                assert!(named.contains(&&op), "{what}: {op} {named:?}");
            }
            *compared.entry(pair.what.clone()).or_insert(0) += 1;
        }
    }
    let kernels: i32 = compared.values().sum();
    assert!(compared.len() >= 5 && kernels > 40, "{compared:?}");
}

/// Where XProf's tools are empty, ours are not, and their sums are those of the events.
#[test]
fn where_xprof_is_empty_ours_are_not() {
    let Some(folder) = folder() else { return };
    let mut filled = 0;
    for pair in pairs(&folder) {
        let theirs = pair.rows("hlo_stats");
        let idle = |row: &BTreeMap<String, Value>| row["hlo_op_name"] == "IDLE";
        if !theirs.iter().all(idle) {
            continue;
        }
        let ours = report(&pair.run, "ops", Some("hlo"));
        if !ours["missing"].is_null() {
            continue;
        }
        // The independent count: slices of host threads that bear the name of their HLO operation.
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
        assert_eq!(sum("count"), count as f64, "{}", pair.what);
        assert!(count > 0 && sum("total_ns") > 0.0, "{}", pair.what);
        let off = (sum("total_ns") - total as f64 / 1e3).abs();
        assert!(off <= 1e-6 * total as f64, "{}", pair.what);
        filled += 1;
    }
    assert!(filled >= 8, "only {filled} runs");
}
