//! Time of reports, compared with other tools, and over a trace of 20 million slices.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::open::{TRACELENS_IMPORTS, no_python, no_traces, traces_folder};
use super::processor::children_s;
use super::results::{Results, ratio};
use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::shell;

/// Runs of each program; the fastest is reported.
const ROUNDS: usize = 5;
/// Runs of another tool, which is slower.
const PEER_ROUNDS: usize = 2;
/// Holistic Trace Analysis with the packages that it imports; its package also requires Jupyter.
const HTA: Environment = Environment {
    name: "hta",
    requirements: &[
        "numpy==2.2.6",
        "pandas==2.3.3",
        "networkx==3.6.1",
        "plotly==7.1.0",
        "psutil==7.2.2",
        "pydot==4.0.1",
        "pyyaml==6.0.3",
    ],
    without_dependencies: &["HolisticTraceAnalysis==0.5.0"],
    post_install_script: None,
};

/// The largest real traces of GPUs, and the largest run of several ranks.
const RUNS: &[&str] = &[
    "torch_gpu/mi300_xdit_sd35.json.gz",
    "torch_gpu/h100_owlv2.json.gz",
    "torch_gpu/v100_diff_test_rank1of2.json.gz",
    "torch_multirank/dlrm8",
];

/// A report of another tool, and stepscope's reports with the same content.
const PAIRS: &[(&str, &str, &[&str])] = &[
    ("hta", "temporal_breakdown", &["overlap", "--compat", "hta"]),
    ("hta", "comm_comp_overlap", &["overlap", "--compat", "hta"]),
    ("hta", "gpu_kernel_breakdown", &["kernels"]),
    ("hta", "idle_time_breakdown", &["idle", "--compat", "hta"]),
    (
        "hta",
        "kernel_launch_stats",
        &["kernels", "--by", "operation"],
    ),
    ("hta", "queue_length_summary", &["kernels"]),
    ("tracelens", "gpu_timeline", &["overlap"]),
    (
        "tracelens",
        "kernel_launchers",
        &["kernels", "--by", "operation"],
    ),
    ("tracelens", "ops_summary", &["ops"]),
];

/// Wall-clock and processor time, seconds; the minimum of each over several runs.
#[derive(Clone, Copy)]
struct Times {
    wall: f64,
    processor: f64,
}

impl Times {
    const NONE: Self = Self {
        wall: f64::INFINITY,
        processor: f64::INFINITY,
    };

    /// Parses `[seconds, processor seconds]`.
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            wall: value[0].as_f64()?,
            processor: value[1].as_f64()?,
        })
    }

    fn least(self, other: Self) -> Self {
        Self {
            wall: self.wall.min(other.wall),
            processor: self.processor.min(other.processor),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            wall: self.wall + other.wall,
            processor: self.processor + other.processor,
        }
    }

    fn shown(self) -> String {
        format!("{:.2} ({:.2})", self.wall, self.processor)
    }
}

/// Times of one report of stepscope.
struct ReportTimes {
    asked: &'static [&'static str],
    cold: Times,
    reopened: Times,
}

/// Compares whole processes of stepscope with the load and report times of other tools.
pub(super) fn peers(results: &mut Results) -> Result<Outcome> {
    let traces = traces_folder();
    if !traces.join("torch_gpu").exists() {
        return Ok(no_traces());
    }
    let Some(hta) = HTA.python()? else {
        return Ok(no_python());
    };
    let tracelens = match std::env::var_os("STEPSCOPE_TRACELENS") {
        Some(_) => TRACELENS_IMPORTS.python()?,
        None => None,
    };
    let binary = Build::Release.command()?;
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    if tracelens.is_none() {
        missing.push("tracelens (name a checkout in STEPSCOPE_TRACELENS)".to_owned());
    }
    for run in RUNS {
        let path = traces.join(run);
        let ours = ours(&binary, &path)?;
        for (peer, python) in [("hta", Some(&hta)), ("tracelens", tracelens.as_ref())] {
            let Some(python) = python else { continue };
            if peer == "tracelens" && path.is_dir() {
                continue; // one trace at a time
            }
            compare(run, &path, peer, python, &ours, &mut rows, &mut missing)?;
        }
    }
    let mut about = format!(
        "Ours: `stepscope report RUN REPORT`, the whole process, the fastest of {ROUNDS}; *cold*: nothing in our cache, which is written \
         before the process ends; *reopened*: from the cache. Theirs: loading and one report in a process that is running, imports \
         left out, the fastest of {PEER_ROUNDS}; *again*: the report alone, a second time. In brackets: time of the processors, which other work on the \
         machine stretches less; the least of each."
    );
    if !missing.is_empty() {
        about.push_str("\n\nNot run: ");
        about.push_str(&missing.join("; "));
        about.push('.');
    }
    results.table(
        "Reports compared with HTA's and TraceLens's",
        &about,
        &[
            "run",
            "their report",
            "theirs, s",
            "again, s",
            "ours",
            "cold, s",
            "reopened, s",
            "theirs / cold",
            "of processor time",
            "theirs / reopened",
        ],
        &rows,
    );
    Ok(Outcome::Ok)
}

/// Measures every report of stepscope that has a counterpart.
fn ours(binary: &Path, run: &Path) -> Result<Vec<ReportTimes>> {
    let cache = shell::target_dir().join("bench/reports-cache");
    let once = |asked: &[&str]| -> Result<Times> {
        let (began, used) = (Instant::now(), children_s());
        let status = shell::program(binary)
            .arg("report")
            .arg(run)
            .args(asked)
            .env("XDG_CACHE_HOME", &cache)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            bail!(
                "stepscope report {} {} failed",
                run.display(),
                asked.join(" ")
            );
        }
        Ok(Times {
            wall: began.elapsed().as_secs_f64(),
            processor: children_s() - used,
        })
    };
    let mut found: Vec<ReportTimes> = Vec::new();
    for (_, _, asked) in PAIRS {
        if found.iter().any(|known| known.asked == *asked) {
            continue;
        }
        let (mut cold, mut reopened) = (Times::NONE, Times::NONE);
        for _ in 0..ROUNDS {
            if cache.exists() {
                std::fs::remove_dir_all(&cache)?;
            }
            cold = cold.least(once(asked)?);
            reopened = reopened.least(once(asked)?);
        }
        found.push(ReportTimes {
            asked,
            cold,
            reopened,
        });
    }
    Ok(found)
}

fn compare(
    run: &str,
    path: &Path,
    peer: &str,
    python: &Path,
    ours: &[ReportTimes],
    rows: &mut Vec<Vec<String>>,
    missing: &mut Vec<String>,
) -> Result<()> {
    let mut files = Vec::new();
    shell::collect(path, &[], &mut files)?;
    files.retain(|file| file.to_string_lossy().ends_with(".json.gz"));
    files.sort();
    let mut answers = Vec::new();
    for _ in 0..PEER_ROUNDS {
        let output = shell::output(
            shell::program(python)
                .arg("benches/peers/reports.py")
                .arg(peer)
                .args(&files),
        )?;
        let answer: Value = serde_json::from_str(output.lines().last().unwrap_or("null"))?;
        if let Some(why) = answer["why"].as_str() {
            missing.push(format!("{peer} on {run} ({why})"));
            return Ok(());
        }
        answers.push(answer);
    }
    let least = |read: &dyn Fn(&Value) -> Option<Times>| {
        let found = answers.iter().filter_map(read).reduce(Times::least);
        found.unwrap_or(Times::NONE)
    };
    let load = least(&|answer| Times::from_json(&answer["load"]));
    for (_, report, asked) in PAIRS.iter().filter(|pair| pair.0 == peer) {
        let first = least(&|answer| Times::from_json(&answer["reports"][report][0]));
        let again = least(&|answer| Times::from_json(&answer["reports"][report][1]));
        if !first.wall.is_finite() {
            let why = answers[0]["reports"][report].as_str();
            let why = why.unwrap_or("it failed");
            missing.push(format!("{peer} {report} on {run} ({why})"));
            continue;
        }
        let ours = ours
            .iter()
            .find(|ours| ours.asked == *asked)
            .context("a report that was not timed")?;
        let whole = load.and(first);
        rows.push(vec![
            run.rsplit('/').next().unwrap_or(run).to_owned(),
            format!("{peer} {report}"),
            whole.shown(),
            again.shown(),
            ours.asked.join(" "),
            ours.cold.shown(),
            ours.reopened.shown(),
            ratio(whole.wall, ours.cold.wall),
            ratio(whole.processor, ours.cold.processor),
            ratio(whole.wall, ours.reopened.wall),
        ]);
    }
    Ok(())
}

/// Processes that measure a part. The first use of a GiB of memory took 0.6 to 3 s on a virtual machine, which is as
/// long as a path.
const PART_PROCESSES: usize = 3;

/// Shapes of large traces: a description, and the files they are generated from.
const SHAPES: &[(&str, &str)] = &[
    (
        "JAX on a CPU, with Python functions",
        "jax_cpu/train_h2_p1/plugins/profile",
    ),
    (
        "PyTorch on a GPU, with NCCL",
        "torch_gpu/a100_nccl_meta_rank0of2.json.gz",
    ),
    (
        "PyTorch on a GPU, with Python functions",
        "torch_gpu/h100_owlv2.json.gz",
    ),
    ("PyTorch, eight ranks", "torch_multirank/dlrm8"),
];

/// Reports that are computed over 20 million slices.
const KINDS: &[&str] = &[
    "overview",
    "findings",
    "steps",
    "input",
    "ops",
    "kernels",
    "idle",
    "overlap",
    "collectives",
    "ranks",
    "memory",
    "torch-table",
];

/// A comparison, the critical path and a prediction, of which the example prints the parts.
const PARTS: &[&str] = &["compare", "what-if=host=x0.5"];

/// A table of figures: a row for each name, a column for each of [`SHAPES`].
#[derive(Default)]
struct ByShape(Vec<Vec<String>>);

impl ByShape {
    fn set(&mut self, name: &str, shape: usize, cell: String) {
        let rows = &mut self.0;
        let at = rows
            .iter()
            .position(|row| row[0] == name)
            .unwrap_or_else(|| {
                let mut row = vec!["–".to_owned(); 1 + SHAPES.len()];
                name.clone_into(&mut row[0]);
                rows.push(row);
                rows.len() - 1
            });
        rows[at][shape + 1] = cell;
    }

    fn write(&self, results: &mut Results, title: &str, about: &str, name: &str) {
        let mut heading = vec![name];
        heading.extend(SHAPES.iter().map(|(title, _)| *title));
        results.table(title, about, &heading, &self.0);
    }
}

/// Measures every report, a comparison and the critical path over 20 million slices.
pub(super) fn large(results: &mut Results) -> Result<Outcome> {
    let traces = traces_folder();
    if !traces.join("torch_gpu").exists() {
        return Ok(no_traces());
    }
    let (mut reports, mut parts) = (ByShape::default(), ByShape::default());
    let mut stores = Vec::new();
    for (shape, (title, folder)) in SHAPES.iter().enumerate() {
        let mut files = Vec::new();
        shell::collect(&traces.join(folder), &[], &mut files)?;
        files.retain(|file| is_trace(file));
        files.sort();
        let measure = |words: &[&str]| -> Result<Vec<Value>> {
            let text = shell::output(
                shell::cargo()
                    .args(["run", "--release", "--quiet", "--package"])
                    .args(["stepscope-engine", "--example", "reports", "--", "20"])
                    .args(words)
                    .args(&files),
            )?;
            let lines = text.lines().map(serde_json::from_str);
            Ok(lines.collect::<Result<_, _>>()?)
        };
        let mut store_mib = f64::NAN;
        for line in measure(KINDS)? {
            if let Some(mib) = line["store_mib"].as_f64() {
                store_mib = mib;
                stores.push(format!(
                    "{title}: {} slices, {} links, {} steps, {mib:.0} MiB",
                    line["slices"], line["links"], line["steps"]
                ));
            }
            let Some(name) = line["report"].as_str() else {
                continue;
            };
            let figure = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
            let cell = if line["missing"] == Value::Bool(true) {
                "–".to_owned()
            } else {
                format!(
                    "{:.2} / {:.2}, {:.2}x, {}",
                    figure("wall_s"),
                    figure("processor_s"),
                    1.0 + figure("peak_mib") / store_mib,
                    milliseconds(figure("again_s")),
                )
            };
            reports.set(name, shape, cell);
        }
        let mut times: Vec<(String, Times)> = Vec::new();
        for _ in 0..PART_PROCESSES {
            // Not the process of the reports: they may keep what a part computes.
            for line in measure(PARTS)? {
                let Some(name) = line["part"].as_str() else {
                    continue;
                };
                let figure = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
                let found = Times {
                    wall: figure("wall_s"),
                    processor: figure("processor_s"),
                };
                match times.iter_mut().find(|(known, _)| known == name) {
                    Some((_, least)) => *least = least.least(found),
                    None => times.push((name.to_owned(), found)),
                }
            }
        }
        for (name, times) in times {
            let cell = format!("{:.2} / {:.2}", times.wall, times.processor);
            parts.set(&name, shape, cell);
        }
    }
    let stores = stores.join("; ");
    reports.write(
        results,
        "Every report over 20 million slices",
        &format!(
            "Real traces, repeated in the store. Each cell: seconds until the report is made for the first time / processor time of all \
             threads, the memory at its peak over that of the store, and milliseconds until the same process has it again. Asked: below 2 s, \
             below 2x and below 200 ms. A run keeps its reports in memory. A dash: the run has nothing to report.\n\n{stores}."
        ),
        "report",
    );
    parts.write(
        results,
        "A comparison and the critical path over 20 million slices",
        &format!(
            "The same traces. Each cell: seconds / processor time of all threads, of the first time in a process, the least of \
             {PART_PROCESSES} processes. *A side* reads a run for a comparison, which has two of them. Asked: a comparison below 3 s, the \
             path below 2 s, a scenario below 0.3 s."
        ),
        "part",
    );
    Ok(Outcome::Ok)
}

fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 1.0 {
        "<1".to_owned()
    } else {
        format!("{ms:.0}")
    }
}

fn is_trace(file: &Path) -> bool {
    let name = file.to_string_lossy();
    let truth = name.contains(".truth");
    !truth
        && (name.ends_with(".xplane.pb")
            || name.ends_with(".pt.trace.json.gz")
            || name.contains("torch_gpu"))
}
