//! The SQL engine, in a workspace of its own: its checks and tests.
//!
//! Lints and tests share one build of the dependencies, a large part of the cost: the lints run while cargo *builds*
//! the tests, instead of in a second build of `cargo check`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::{demo, lints, peers, shell};

/// Readers of Parquet files.
const READERS: Environment = Environment::from_requirements(
    "dataset",
    &["pyarrow==26.0.1", "duckdb==2.0.1", "polars==2.1.0"],
);

/// Returns a cargo command in the workspace.
fn cargo(command: &str) -> Command {
    let mut cargo = shell::cargo();
    cargo.current_dir(shell::root().join("sql")).arg(command);
    cargo
}

/// Returns a cargo command in the workspace that lints what it builds, and treats warnings as errors.
fn linting_cargo(command: &str) -> Result<Command> {
    let mut cargo = cargo(command);
    lints::add(&mut cargo)?;
    Ok(cargo)
}

/// Checks formatting and lints, and that nothing of the engine is a dependency of the main workspace.
pub(crate) fn check() -> Result<Outcome> {
    let lock = String::from_utf8(shell::read(&shell::root().join("Cargo.lock"))?)?;
    let engine = ["datafusion", "arrow", "parquet", "ballista", "sqlparser"];
    let names = lock
        .lines()
        .filter_map(|line| line.strip_prefix("name = \""));
    let found = names.filter(|name| engine.iter().any(|part| name.starts_with(part)));
    let faults = found.map(|name| {
        let name = name.trim_end_matches('"');
        format!("Cargo.lock holds {name}: only the workspace in sql/ may depend on it (ADR 0020)")
    });
    let faults: Vec<String> = faults.collect();
    if !faults.is_empty() {
        return crate::laws::report(faults);
    }
    shell::run(cargo("fmt").arg("--check"))?;
    let mut build = cargo("build");
    build.args(["--quiet", "--locked", "--tests"]);
    lints::run(&mut build)
}

/// Builds the program in its development profile and runs its tests, one binary; then asks it through the command.
pub(crate) fn test() -> Result<Outcome> {
    shell::run(linting_cargo("test")?.args(["--quiet", "--locked", "--no-fail-fast"]))?;
    // The command and the engine together.
    let answer = shell::output(
        shell::program(Build::Dev.command()?)
            .args(["query", "--no-cache", "--format", "json"])
            .args([
                "tests/data/traces/torch_cpu",
                "SELECT count(*) AS runs FROM runs",
            ])
            .env("STEPSCOPE_SQL", engine()),
    )?;
    ensure!(
        answer.contains("{\"runs\": 7}"),
        "unexpected answer: {answer}"
    );
    // The server and the engine together.
    shell::run(
        shell::cargo()
            .args(["test", "--quiet"])
            .args(["--test", "it", "--", "--ignored", "sql::"])
            .env("STEPSCOPE_SQL", engine()),
    )?;
    Ok(Outcome::Ok)
}

/// Runs the tests on collected traces, when asked: the engine's kernels are not optimised.
pub(crate) fn collected() -> Result<Outcome> {
    const ASK: &str = "STEPSCOPE_SQL_COLLECTED";
    if std::env::var_os(ASK).is_none() {
        return Ok(Outcome::NotRun(format!(
            "it may take ten minutes; {ASK}=1 runs it"
        )));
    }
    let folder = shell::collected_traces();
    if !folder.is_dir() {
        return Ok(Outcome::NotRun(format!(
            "there are no collected traces in {}",
            folder.display()
        )));
    }
    shell::run(
        linting_cargo("test")?
            .args(["--quiet", "--locked", "--no-fail-fast", "--test", "it"])
            .args(["--", "--ignored"])
            .env("STEPSCOPE_TRACES", folder),
    )?;
    Ok(Outcome::Ok)
}

/// Exports runs, and compares what pyarrow, `DuckDB` and Polars read with the tables.
pub(crate) fn read_by_others() -> Result<Outcome> {
    let Some(python) = READERS.python()? else {
        return Ok(peers::no_python());
    };
    let folder = demo::log_directory("dataset");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    shell::run(linting_cargo("build")?.args(["--quiet", "--locked", "--tests"]))?;
    shell::run(
        shell::program(python)
            .arg("tests/peers/read_dataset.py")
            .arg(Build::Dev.command()?)
            .arg("tests/data/traces/torch_cpu")
            .arg(folder)
            .env("STEPSCOPE_SQL", engine()),
    )?;
    Ok(Outcome::Ok)
}

/// Returns the path of the program that the tests build.
pub(crate) fn engine() -> PathBuf {
    built("debug")
}

/// Builds the program in release mode and returns its path.
pub(crate) fn release_engine() -> Result<PathBuf> {
    shell::run(cargo("build").args(["--release", "--locked"]))?;
    Ok(built("release"))
}

fn built(profile: &str) -> PathBuf {
    let folder = shell::root().join("sql");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| folder.join("target"), |target| folder.join(target));
    let file = format!("stepscope-sql{}", std::env::consts::EXE_SUFFIX);
    target.join(profile).join(file)
}
