//! Work and device time of each operator and its inputs, compared with `TraceLens`'s performance models.

#![allow(
    clippy::cast_precision_loss,
    reason = "operations and bytes of one call are below 2^53"
)]

use std::collections::BTreeMap;
use std::path::Path;

use stepscope_analysis::torch_cost::{CallArgs, Model};
use stepscope_analysis::torch_op_profile::{TorchOpQuery, torch_op_profile};
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_test_data::Corpus;
use stepscope_test_data::runs;

/// Tables of performance models.
const TABLES: &[&str] = &[
    "GEMM.csv",
    "CONV_fwd.csv",
    "CONV_bwd.csv",
    "SDPA_fwd.csv",
    "Normalization.csv",
    "RMSNorm_fwd.csv",
    "Reduce_fwd.csv",
    "UnaryElementwise.csv",
    "BinaryElementwise.csv",
];

/// One row of a table: an operator with its inputs.
struct Row {
    columns: BTreeMap<String, String>,
    name: String,
    dims: String,
    types: String,
    strides: String,
    concrete: String,
}

impl Row {
    fn new(columns: BTreeMap<String, String>) -> Self {
        // Python's format of lists.
        let json = |key: &str| {
            let text = columns.get(key).map_or("", String::as_str);
            text.replace('(', "[").replace(')', "]").replace('\'', "\"")
        };
        Self {
            name: columns["name"].clone(),
            dims: json("Input Dims_first"),
            types: json("Input type_first"),
            strides: json("Input Strides_first"),
            concrete: json("Concrete Inputs_first"),
            columns,
        }
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.columns.get(key)?.parse().ok()
    }

    fn param(&self, key: &str) -> &str {
        let key = format!("param: {key}");
        self.columns.get(&key).map_or("", String::as_str)
    }

    /// Returns the product of a shape among the parameters: `(1, 2)`.
    fn elements(&self, key: &str) -> f64 {
        let inner = self.param(key).trim_matches(['(', ')']);
        let sizes = inner
            .split(',')
            .filter_map(|size| size.trim().parse::<f64>().ok());
        sizes.product()
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&&*self.name)
    }
}

fn rows(folder: &Path) -> Vec<(std::path::PathBuf, Row)> {
    let found = stepscope_test_data::below(folder, |path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let name = name.trim_end_matches(".gz");
        path.to_string_lossy().contains("tracelens") && TABLES.contains(&name)
    });
    let mut rows = Vec::new();
    for path in found {
        rows.extend(
            runs::csv(&path)
                .into_iter()
                .map(|row| (path.clone(), Row::new(row))),
        );
    }
    rows
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn work_of_each_operator_is_that_of_tracelens_or_differs_by_definition() {
    let corpus = Corpus::collected();
    let (mut flops_by, mut bytes_by) = (
        BTreeMap::<String, u64>::new(),
        BTreeMap::<String, u64>::new(),
    );
    for (path, row) in rows(corpus.folder()) {
        let args = CallArgs {
            dims: &row.dims,
            types: &row.types,
            strides: &row.strides,
            concrete: &row.concrete,
        };
        let ours = Model::from_name(&row.name).and_then(|model| model.cost(&row.name, args));
        let theirs = (
            row.number("GFLOPS_first").map(|giga| giga * 1e9),
            row.number("Data Moved (MB)_first")
                .map(|mega| mega * 1_048_576.0),
        );
        println!(
            "{} {} {} {} {} {} ours {ours:?} theirs {theirs:?}",
            path.display(),
            row.name,
            row.dims,
            row.types,
            row.strides,
            row.concrete
        );
        let (Some(ours), Some(flops), Some(bytes)) = (ours, theirs.0, theirs.1) else {
            *flops_by.entry("unknown".to_owned()).or_default() += 1;
            continue;
        };
        *flops_by
            .entry(
                if near(ours.flops as f64, flops) {
                    "equal"
                } else {
                    "differs"
                }
                .to_owned(),
            )
            .or_default() += 1;
        *bytes_by
            .entry(
                if near(ours.bytes as f64, bytes) {
                    "equal"
                } else {
                    "differs"
                }
                .to_owned(),
            )
            .or_default() += 1;
        let _ = row.elements("op_shape");
        let _ = row.is(&[]);
    }
    println!("{flops_by:?} {bytes_by:?}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn device_time_of_each_operator_is_that_of_tracelens() {
    let corpus = Corpus::collected();
    let mut by_folder: BTreeMap<std::path::PathBuf, Vec<Row>> = BTreeMap::new();
    for (path, row) in rows(corpus.folder()) {
        by_folder
            .entry(path.parent().unwrap().parent().unwrap().to_owned())
            .or_default()
            .push(row);
    }
    for (truth, rows) in by_folder {
        let path = runs::trace_of(&truth).unwrap();
        let run = &runs::open(&path)[0];
        let query = TorchOpQuery::default();
        let profile = torch_op_profile(&run.trace, &query, &Cancel::default()).unwrap();
        let mut ours: BTreeMap<(String, String, String), (u64, f64)> = BTreeMap::new();
        for op in &profile.ops {
            let clean = |text: &str| text.replace(' ', "");
            let sum = ours
                .entry((op.name.clone(), clean(&op.shapes), clean(&op.types)))
                .or_default();
            sum.0 += op.calls;
            sum.1 += op.time_ps as f64 / 1e6;
        }
        let mut theirs: BTreeMap<(String, String, String), (f64, f64)> = BTreeMap::new();
        for row in &rows {
            let clean = |text: &str| text.replace(' ', "");
            let sum = theirs
                .entry((row.name.clone(), clean(&row.dims), clean(&row.types)))
                .or_default();
            sum.0 += row.number("name_count").unwrap_or(0.0);
            sum.1 += row.number("Kernel Time (µs)_sum").unwrap_or(0.0);
        }
        let (mut equal, mut missing, mut off) = (0, 0, 0);
        for (key, theirs) in &theirs {
            match ours.get(key) {
                None => {
                    missing += 1;
                    println!("missing {key:?} {theirs:?}");
                }
                Some(ours)
                    if ours.0 as f64 == theirs.0
                        && (ours.1 - theirs.1).abs() < 1e-3 * theirs.1 + 0.01 * theirs.0 =>
                {
                    equal += 1
                }
                Some(ours) => {
                    off += 1;
                    println!("off {key:?} ours {ours:?} theirs {theirs:?}");
                }
            }
        }
        println!(
            "{}: equal {equal} missing {missing} off {off}",
            path.display()
        );
    }
}

/// torch counts products and convolutions with `with_flops=True`, and sums and products of elements.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn operations_on_a_cpu_equal_those_of_torch() {
    let corpus = Corpus::collected();
    let folder = corpus.folder().join("torch_cpu");
    let run = &runs::open(&folder.join("cpu_flops.pt.trace.json.gz"))[0];
    let query = TorchOpQuery::default();
    let profile = torch_op_profile(&run.trace, &query, &Cancel::default()).unwrap();
    let mut ours: BTreeMap<&str, u64> = BTreeMap::new();
    for op in &profile.ops {
        let flops = op.cost.map_or(0, |cost| cost.flops * op.calls);
        *ours.entry(&op.name).or_default() += flops;
    }
    let figures = runs::figures(&folder.join("cpu_flops.truth/key_averages.json.gz"));
    let mut compared = 0;
    for row in figures["key_averages"].as_array().unwrap() {
        let flops = row["flops"].as_u64().unwrap();
        let name = match row["key"].as_str().unwrap() {
            // The operator around it counts in torch.
            "aten::conv2d" => "aten::convolution",
            name => name,
        };
        if flops > 0 {
            assert_eq!(ours.get(name), Some(&flops), "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared}");
}
