//! Clippy as the compiler of a cargo command, so that lints share what other commands compile: `cargo clippy` would
//! let `cargo doc` check the workspace a second time.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::part::Outcome;
use crate::shell;

/// Lets a cargo command lint the crates of its workspace that it compiles, and treat warnings as errors; returns
/// whether clippy is installed.
pub(crate) fn add(command: &mut Command) -> Result<bool> {
    let driver = driver()?;
    let is_installed = driver.is_file();
    if is_installed {
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env(
            "CLIPPY_ARGS",
            // As `cargo clippy -- -D warnings` passes it.
            "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
        );
    }
    Ok(is_installed)
}

/// Runs a cargo command that lints what it compiles.
pub(crate) fn run(command: &mut Command) -> Result<Outcome> {
    if !add(command)? {
        return Ok(Outcome::NotRun(
            "clippy is missing: rustup component add clippy".to_owned(),
        ));
    }
    shell::run(command)?;
    Ok(Outcome::Ok)
}

/// Returns the path of clippy's compiler, next to the one that cargo uses.
fn driver() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let root = shell::output(Command::new(rustc).args(["--print", "sysroot"]))?;
    let root = root.lines().next().context("rustc names no sysroot")?;
    let file = format!("clippy-driver{}", std::env::consts::EXE_SUFFIX);
    Ok(PathBuf::from(root).join("bin").join(file))
}
