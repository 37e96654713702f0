//! `cargo xtask demo`: records an example and shows it in the viewer, from a clean clone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::part::Outcome;
use crate::programs::Build;
use crate::{shell, ui};

/// `cargo xtask demo [--no-serve] [--port N]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut serve = true;
    let mut port = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--no-serve" => serve = false,
            "--port" => port = Some(rest.next().context("--port needs a number")?),
            other => bail!(
                "cannot use '{other}': there is no such option\nhelp: 'cargo xtask help' lists the options"
            ),
        }
    }
    println!("1. building the viewer");
    if let Outcome::NotRun(why) = ui::build(false)? {
        bail!("the viewer cannot be built: {why}");
    }
    println!("\n2. building stepscope and the example");
    let (binary, example) = Build::Demo.command_and_example()?;
    println!("\n3. training the example");
    let log_directory = log_directory("demo");
    train(&mut shell::program(&example), &log_directory)?;
    println!("\n4. where the time went");
    shell::run(
        shell::program(&binary)
            .arg("report")
            .arg(&log_directory)
            .arg("steps"),
    )?;
    if !serve {
        println!(
            "\nView it with: {} {}",
            binary.display(),
            log_directory.display()
        );
        return Ok(());
    }
    println!("\n5. the viewer");
    let mut view = shell::program(&binary);
    view.arg("view").arg(&log_directory);
    if let Some(port) = port {
        view.args(["--port", port]);
    }
    shell::run(&mut view)
}

/// Runs the command that trains the example, which records into a log directory.
pub(crate) fn train(training: &mut Command, log_directory: &Path) -> Result<()> {
    if log_directory.exists() {
        std::fs::remove_dir_all(log_directory)
            .with_context(|| format!("cannot empty {}", log_directory.display()))?;
    }
    shell::run(training.arg(log_directory))
}

/// Returns the log directory of recordings by the demo and the tests.
pub(crate) fn log_directory(name: &str) -> PathBuf {
    shell::target_dir().join("recordings").join(name)
}
