//! Time from a file to the first timeline response, for stepscope and other tools.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::results::{Results, median, ratio};
use super::server::Server;
use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::shell;

const ROUNDS: usize = 5;
const MIB: f64 = (1 << 20) as f64;
/// Readers that come from PyPI.
const PEERS: Environment =
    Environment::from_requirements("bench", &["jax==0.10.2", "xprof==2.24.2", "orjson==3.13.0"]);
/// Packages that a checkout of `TraceLens` imports to load a trace; a separate environment, so that
/// a change of it does not recreate the other one.
pub(super) const TRACELENS_IMPORTS: Environment = Environment::from_requirements(
    "tracelens",
    &["orjson==3.13.0", "pandas==3.1.1", "tqdm==4.70.1"],
);

/// A large trace, made of copies of a real one.
pub(super) struct LargeTrace {
    /// What `make_large.py` calls the format.
    kind: &'static str,
    /// Folder and name of the real trace.
    source: (&'static str, &'static str),
    size: &'static str,
    name: &'static str,
}

/// A JAX capture on a CPU.
pub(super) const LARGE_XSPACE: LargeTrace = LargeTrace {
    kind: "xspace",
    source: ("jax_cpu/train_h2_p1/plugins/profile", "vm.xplane.pb"),
    size: "100M",
    name: "large.xplane.pb",
};

/// A PyTorch capture on an H100.
const LARGE_JSON: LargeTrace = LargeTrace {
    kind: "json",
    source: ("torch_gpu", "h100_owlv2.json.gz"),
    size: "300M",
    name: "large.pt.trace.json",
};

impl LargeTrace {
    /// Makes the trace and returns its path, or nothing without the folder of real traces.
    pub(super) fn make(&self, python: &Path) -> Result<Option<PathBuf>> {
        let traces = traces_folder();
        let maker = traces.join("make_large.py");
        if !maker.exists() {
            return Ok(None);
        }
        let scratch = shell::target_dir().join("bench");
        std::fs::create_dir_all(&scratch)?;
        let input = scratch.join(self.name);
        if !input.exists() {
            let (folder, source) = self.source;
            let mut candidates = Vec::new();
            shell::collect(&traces.join(folder), &[], &mut candidates)?;
            let from = candidates
                .iter()
                .find(|path| path.ends_with(source))
                .with_context(|| format!("no {source} below {folder}"))?;
            let made = scratch.join(format!("making-{}", self.name));
            shell::run(
                shell::program(python)
                    .arg(&maker)
                    .arg(self.kind)
                    .arg(from)
                    .arg(&made)
                    .args(["--size", self.size]),
            )?;
            std::fs::rename(&made, &input)?;
        }
        Ok(Some(input))
    }
}

/// Measures 100 MB of XSpace.
pub(super) fn xspace(results: &mut Results) -> Result<Outcome> {
    compare(
        results,
        "Opening a 100 MB XSpace",
        &LARGE_XSPACE,
        &["xprof-stream", "jax-profile-data"],
    )
}

/// Measures 300 MB of PyTorch JSON.
pub(super) fn json(results: &mut Results) -> Result<Outcome> {
    compare(
        results,
        "Opening a 300 MB PyTorch JSON",
        &LARGE_JSON,
        &["json", "orjson", "tracelens"],
    )
}

fn compare(
    results: &mut Results,
    title: &str,
    trace: &LargeTrace,
    readers: &[&str],
) -> Result<Outcome> {
    let Some(python) = PEERS.python()? else {
        return Ok(no_python());
    };
    let Some(input) = trace.make(&python)? else {
        return Ok(no_traces());
    };
    let scratch = shell::target_dir().join("bench");
    let bytes = input.metadata()?.len() as f64;
    let binary = Build::Release.command()?;

    let mut cold = Vec::new();
    let mut warm = Vec::new();
    let mut peak: f64 = 0.0;
    for _ in 0..ROUNDS {
        let cache = scratch.join("cache");
        if cache.exists() {
            std::fs::remove_dir_all(&cache)?;
        }
        let server = Server::start(&binary, &input, &cache)?;
        let before = server.resident_bytes()?;
        cold.push(server.first_timeline()?);
        peak = peak.max(server.peak_bytes()?.saturating_sub(before) as f64);
        wait_for_cache(&cache);
        drop(server);
        let server = Server::start(&binary, &input, &cache)?;
        warm.push(server.first_timeline()?);
    }
    let ours = median(cold);
    let row = |who: &str, seconds: f64, peak_mib: Option<f64>| {
        vec![
            who.to_owned(),
            format!("{seconds:.3}"),
            format!("{:.0}", bytes / 1e6 / seconds),
            peak_mib.map_or("–".to_owned(), |mib| format!("{mib:.0}")),
            ratio(seconds, ours),
            peak_mib.map_or("–".to_owned(), |mib| ratio(mib, peak / MIB)),
        ]
    };
    let mut rows = vec![
        row("stepscope, first timeline", ours, Some(peak / MIB)),
        row("stepscope, reopened from the cache", median(warm), None),
    ];
    let mut missing = Vec::new();
    for reader in readers {
        let python = match *reader {
            "tracelens" if std::env::var_os("STEPSCOPE_TRACELENS").is_some() => TRACELENS_IMPORTS
                .python()?
                .unwrap_or_else(|| python.clone()),
            _ => python.clone(),
        };
        let output = shell::output(
            shell::program(&python)
                .arg("benches/peers/load.py")
                .arg(reader)
                .arg(&input)
                .env("TF_CPP_MIN_LOG_LEVEL", "3"),
        )?;
        let answer: serde_json::Value =
            serde_json::from_str(output.lines().last().unwrap_or("null"))?;
        if let (Some(seconds), Some(mib)) = (answer["wall_s"].as_f64(), answer["peak_mib"].as_f64())
        {
            rows.push(row(reader, seconds, Some(mib)));
        } else {
            missing.push(format!(
                "{reader} ({})",
                answer["why"].as_str().unwrap_or("it failed")
            ));
        }
    }
    if trace.kind == "xspace" {
        match super::server::xprof_rs(&input, &scratch) {
            Ok((seconds, mib)) => rows.push(row("xprof-rs 0.1.3", seconds, Some(mib))),
            Err(error) => missing.push(format!("xprof-rs ({error:#})")),
        }
    }
    let mut about = format!(
        "{:.0} MB. Ours: from the request for the tracks to the last byte of the whole timeline at 1,600 bins, over HTTP, nothing in any cache; median of {ROUNDS}. \
         Peak: resident memory above what the process held when it was asked. Peers: from the call to its result, imports left out, once.",
        bytes / 1e6
    );
    if !missing.is_empty() {
        about.push_str("\n\nNot run: ");
        about.push_str(&missing.join("; "));
        about.push('.');
    }
    results.table(
        title,
        &about,
        &[
            "reader",
            "seconds",
            "MB/s",
            "peak, MiB",
            "time / ours",
            "memory / ours",
        ],
        &rows,
    );
    Ok(Outcome::Ok)
}

/// Waits for the import cache, which is written after the response; the benchmark of reopening
/// needs it.
fn wait_for_cache(cache: &Path) {
    let finished = |folder: &Path| {
        let mut files = Vec::new();
        let listed = shell::collect(folder, &[], &mut files).is_ok();
        listed
            && !files.is_empty()
            && files
                .iter()
                .all(|file| file.extension().is_none_or(|extension| extension != "tmp"))
    };
    for _ in 0..200 {
        if finished(cache) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

pub(super) fn no_traces() -> Outcome {
    Outcome::NotRun("no folder of real traces: name it in STEPSCOPE_TRACES".to_owned())
}

pub(super) fn no_python() -> Outcome {
    Outcome::NotRun("no Python 3.10 or newer with the venv module".to_owned())
}

pub(super) fn traces_folder() -> PathBuf {
    std::env::var_os("STEPSCOPE_TRACES")
        .map_or_else(|| shell::root().join("../shared/traces"), PathBuf::from)
}
