//! Builds the viewer.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::part::Outcome;
use crate::shell;

/// `cargo xtask ui [--force]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let force = match arguments {
        [] => false,
        [force] if force == "--force" => true,
        _ => bail!("'cargo xtask ui' takes --force or nothing"),
    };
    match build(force)? {
        Outcome::NotRun(why) => bail!(why),
        Outcome::Ok | Outcome::OkExcept(_) => Ok(()),
    }
}

/// Builds `ui/dist` when the sources have changed since it was built.
pub(crate) fn build(force: bool) -> Result<Outcome> {
    if let Some(missing) = missing_npm() {
        return Ok(missing);
    }
    let stamp = folder().join("dist/.source-hash");
    let hash = source_hash()?;
    let built = std::fs::read_to_string(&stamp).unwrap_or_default();
    if !force && built.trim() == hash {
        println!("the viewer is up to date");
        return Ok(Outcome::Ok);
    }
    install()?;
    shell::run(npm().args(["run", "build"]))?;
    std::fs::write(&stamp, hash).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Outcome::Ok)
}

/// Runs `npm ci` when the lock file has changed since the last run.
pub(crate) fn install() -> Result<()> {
    let stamp = folder().join("node_modules/.lock-hash");
    let hash = shell::hash_files(&[folder().join("package-lock.json")], &[])?;
    if std::fs::read_to_string(&stamp).unwrap_or_default().trim() == hash {
        return Ok(());
    }
    shell::run(npm().args(["ci", "--no-audit", "--no-fund"]))?;
    std::fs::write(&stamp, hash).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(())
}

/// Returns why a part is not run, if npm is missing.
pub(crate) fn missing_npm() -> Option<Outcome> {
    let why = "npm is missing: install Node.js 20.19 or newer";
    (!shell::exists("npm")).then(|| Outcome::NotRun(why.to_owned()))
}

/// Creates an npm command in the viewer's folder.
pub(crate) fn npm() -> std::process::Command {
    let mut command = shell::program("npm");
    command.current_dir(folder());
    command
}

/// Returns the viewer's folder.
pub(crate) fn folder() -> PathBuf {
    shell::root().join("ui")
}

fn source_hash() -> Result<String> {
    shell::hash_files(
        &[folder()],
        &["node_modules", "dist", "tests-browser", "coverage"],
    )
}
