//! Work and device time of each operator and its inputs, compared with `TraceLens`'s performance models.

#![allow(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "operations and bytes of one call are whole numbers below 2^53"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stepscope_analysis::torch_cost::{CallArgs, DataType, Model};
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

    fn is_normalization(&self) -> bool {
        self.columns.contains_key("param: is_affine")
    }

    /// Returns the shapes of the inputs; of lists of tensors none.
    fn shapes(&self) -> Vec<Vec<f64>> {
        let inner = self
            .dims
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let shapes = inner.unwrap_or("").split("], ");
        let numbers = |text: &str| -> Vec<f64> {
            let sizes = text.trim_matches(['[', ']']).split(',');
            sizes.filter_map(|size| size.trim().parse().ok()).collect()
        };
        shapes.map(numbers).collect()
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inputs = [&self.dims, &self.types, &self.strides, &self.concrete];
        write!(f, "{} {inputs:?}", self.name)
    }
}

fn rows(folder: &Path) -> Vec<(PathBuf, Row)> {
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

/// Names the definition by which the operations of a row differ from `TraceLens`'s; `None` if nothing explains it.
fn flops_definition(row: &Row, ours: f64, theirs: f64) -> Option<&'static str> {
    let dims = row.shapes();
    let elements =
        |index: usize| -> f64 { dims.get(index).map_or(1.0, |sizes| sizes.iter().product()) };
    if near(ours, theirs) {
        return Some("equal");
    }
    let batch = row.number("param: B").unwrap_or(1.0);
    let result = || batch * row.number("param: M").unwrap() * row.number("param: N").unwrap();
    let explained = [
        (
            "an operation for each element to which a bias is added",
            row.param("bias") == "True"
                && !row.param("M").is_empty()
                && near(ours + result(), theirs),
        ),
        (
            "both gradients of a convolution, whatever the mask",
            row.is(&["aten::convolution_backward"]) && near(ours * 2.0, theirs),
        ),
        (
            "an operation for each element that is copied",
            ours == 0.0
                && (row.is(&["aten::copy_"]) && near(elements(0), theirs)
                    || near(row.elements("op_shape"), theirs)),
        ),
        (
            "one operation for each element of a norm",
            row.is(&["aten::linalg_norm"]) && near(theirs * 2.0, ours),
        ),
        (
            "five operations for a gated SiLU",
            row.is(&["sgl_kernel::silu_and_mul"]) && near(theirs / 5.0 * 2.0, ours),
        ),
        (
            "operations of a normalization",
            row.is_normalization() && (0.3..4.0).contains(&(ours / theirs)),
        ),
    ];
    explained.into_iter().find(|one| one.1).map(|one| one.0)
}

/// Names the definition by which the bytes of a row differ. `whole` are ours if every tensor were contiguous.
fn bytes_definition(row: &Row, ours: f64, whole: f64, theirs: f64) -> Option<&'static str> {
    if near(ours, theirs) {
        return Some("equal");
    }
    let dims = row.shapes();
    let elements =
        |index: usize| -> f64 { dims.get(index).map_or(1.0, |sizes| sizes.iter().product()) };
    let types: Vec<&str> = row
        .types
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|text| text.trim_matches('"'))
        .collect();
    let size = |index: usize| -> f64 {
        let known = types
            .get(index)
            .and_then(|name| DataType::from_kineto(name));
        known.map_or(0.0, |known| known.bytes as f64)
    };
    let numbers = types
        .iter()
        .take(2)
        .filter(|name| **name == "Scalar")
        .count();
    let is_sum = row.columns.contains_key("param: shape_in1");
    let with_numbers = whole + if is_sum { 4.0 * numbers as f64 } else { 0.0 };
    let reduced = row
        .number("param: num_input_elems")
        .zip(row.number("param: num_output_elems"));
    let explained = [
        ("repeated elements are read again", near(whole, theirs)),
        (
            "numbers of the host take four bytes",
            near(with_numbers, theirs),
        ),
        (
            "the bias of a convolution is not read",
            row.is(&["aten::convolution"]) && near(ours - elements(2) * size(2), theirs),
        ),
        (
            "the gradient of the result is read twice, for both gradients",
            row.is(&["aten::convolution_backward"])
                && near(
                    2.0 * (0..3)
                        .map(|index| elements(index) * size(index))
                        .sum::<f64>(),
                    theirs,
                ),
        ),
        (
            "the result of a reduction has one element, of the type of the input",
            reduced.is_some_and(|(input, output)| near((input + output) * size(0), theirs)),
        ),
        (
            "the result has the widest type, or that of the first operand",
            is_sum && theirs > whole && size(0) != size(1) && {
                let more = (theirs - with_numbers) / elements(0).max(elements(1));
                [1.0, 2.0, 3.0, 4.0].iter().any(|bytes| near(more, *bytes))
            },
        ),
        (
            "the second type of tensors without dimensions is that of the first",
            row.is(&["aten::copy_"]) && elements(0) == 1.0 && near(2.0 * size(0), theirs),
        ),
        (
            "bytes of the parameters of a normalization",
            row.is_normalization() && (0.5..1.7).contains(&(ours / theirs)),
        ),
    ];
    explained.into_iter().find(|one| one.1).map(|one| one.0)
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn work_of_each_operator_is_that_of_tracelens_or_differs_by_definition() {
    let corpus = Corpus::collected();
    let (mut flops, mut bytes) = (BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
    let (mut unknown, mut unexplained) = (BTreeMap::<String, u64>::new(), Vec::new());
    for (path, row) in rows(corpus.folder()) {
        let args = CallArgs {
            dims: &row.dims,
            types: &row.types,
            strides: &row.strides,
            concrete: &row.concrete,
        };
        let cost = |args| Model::from_name(&row.name).and_then(|model| model.cost(&row.name, args));
        let (Some(ours), Some(whole)) = (
            cost(args),
            cost(CallArgs {
                strides: "",
                ..args
            }),
        ) else {
            *unknown.entry(row.name.clone()).or_default() += 1;
            continue;
        };
        let giga = row.number("GFLOPS_first").unwrap();
        match flops_definition(&row, ours.flops as f64, giga * 1e9) {
            Some(definition) => *flops.entry(definition).or_default() += 1,
            None => unexplained.push(format!("{} {row} {ours:?} GFLOP {giga}", path.display())),
        }
        let Some(mega) = row
            .number("Data Moved (MB)_first")
            .filter(|mega| !mega.is_nan())
        else {
            *bytes
                .entry("unknown there: truth values have no size")
                .or_default() += 1;
            continue;
        };
        let theirs = mega * 1_048_576.0;
        match bytes_definition(&row, ours.bytes as f64, whole.bytes as f64, theirs) {
            Some(definition) => *bytes.entry(definition).or_default() += 1,
            None => unexplained.push(format!("{} {row} {ours:?} bytes {theirs}", path.display())),
        }
    }
    println!("operations: {flops:#?}\nbytes: {bytes:#?}\nunknown here: {unknown:?}");
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    assert!(flops["equal"] >= 296, "{flops:?}");
    assert!(bytes["equal"] >= 436, "{bytes:?}");
    // `max` along a dimension whose number the file does not have.
    unknown.remove("aten::max");
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Traces whose kernels have no launch for `TraceLens`, or not all of them have.
const NOT_ALL_LINKED: &[&str] = &["v100_diff_test", "mi300_resnet_act_ckpt"];
/// The tables that `TraceLens` publishes for it are of another recording of the same program.
const OTHER_RECORDING: &str = "mi300_normalization";

/// Calls and microseconds by operator, shapes and types.
type Times = BTreeMap<[String; 3], (f64, f64)>;

fn add(times: &mut Times, key: [&str; 3], calls: f64, micros: f64) {
    let sum = times
        .entry(key.map(|text| text.replace(' ', "")))
        .or_default();
    *sum = (sum.0 + calls, sum.1 + micros);
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn device_time_of_each_operator_is_that_of_tracelens() {
    let corpus = Corpus::collected();
    let mut by_folder: BTreeMap<PathBuf, Vec<Row>> = BTreeMap::new();
    for (path, row) in rows(corpus.folder()) {
        let truth = path.parent().and_then(Path::parent).unwrap();
        by_folder.entry(truth.to_owned()).or_default().push(row);
    }
    let (mut equal, mut inside, mut grouped, mut off) = (0, 0, 0, Vec::new());
    for (truth, rows) in by_folder {
        let path = runs::trace_of(&truth).unwrap();
        let opened = runs::open(&path);
        let run = &opened[0];
        let query = TorchOpQuery::default();
        let profile = torch_op_profile(&run.trace, &query, &Cancel::default()).unwrap();
        let (mut ours, mut theirs) = (Times::new(), Times::new());
        for op in &profile.ops {
            let micros = op.time_ps as f64 / 1e6;
            add(
                &mut ours,
                [&op.name, &op.shapes, &op.types],
                op.calls as f64,
                micros,
            );
        }
        for row in &rows {
            let micros = row.number("Kernel Time (µs)_sum").unwrap_or(0.0);
            let calls = row.number("name_count").unwrap_or(0.0);
            add(
                &mut theirs,
                [&row.name, &row.dims, &row.types],
                calls,
                micros,
            );
        }
        let trace = path.file_name().unwrap().to_string_lossy();
        for (key, theirs) in &theirs {
            let Some(ours) = ours.get(key) else {
                // An operator around it owns the time, or no call launched anything.
                inside += 1;
                continue;
            };
            let differs = (ours.1 - theirs.1).abs();
            // Times there are differences of numbers near 10^13.
            if (ours.0 - theirs.0).abs() < 0.5 && differs <= 1e-3 * theirs.1 + 0.01 * theirs.0 {
                equal += 1;
            } else if (ours.0 - theirs.0).abs() >= 0.5 {
                // Rows there combine different shapes, or have calls inside other operators.
                grouped += 1;
            } else if !(trace.contains(OTHER_RECORDING)
                || NOT_ALL_LINKED.iter().any(|name| trace.contains(name)) && ours.1 > theirs.1)
            {
                off.push(format!("{trace} {key:?}: {ours:?}, TraceLens {theirs:?}"));
            }
        }
    }
    println!("equal {equal}, inside others {inside}, grouped otherwise {grouped}");
    assert!(off.is_empty(), "{off:#?}");
    assert!(equal >= 390, "{equal}");
}

/// torch counts products and convolutions with `with_flops=True`, and sums and products of elements.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn operations_on_a_cpu_equal_those_of_torch() {
    let corpus = Corpus::collected();
    let folder = corpus.folder().join("torch_cpu");
    let opened = runs::open(&folder.join("cpu_flops.pt.trace.json.gz"));
    let run = &opened[0];
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
