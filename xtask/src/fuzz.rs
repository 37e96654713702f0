//! `cargo xtask fuzz`: every reader and the analyses, ten minutes each.

use anyhow::{Context as _, Result, bail};

use crate::part::{Outcome, Parts};
use crate::shell;

/// `cargo xtask fuzz [TARGET] [--seconds N]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut seconds = "600".to_owned();
    let mut wanted = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => seconds.clone_from(rest.next().context("--seconds needs a number")?),
            name if !name.starts_with('-') => wanted = Some(name.to_owned()),
            other => bail!("no option '{other}'; 'cargo xtask help' lists them"),
        }
    }
    if !shell::output(shell::cargo().arg("--list"))?.contains("    fuzz") {
        shell::run(shell::cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    }
    let mut parts = Parts::default();
    parts.run("seeds", || {
        shell::run(shell::cargo().args([
            "run",
            "--quiet",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--example",
            "seeds",
        ]))?;
        Ok(Outcome::Ok)
    });
    for target in targets()? {
        if wanted.as_ref().is_some_and(|wanted| *wanted != target) {
            continue;
        }
        let limit = format!("-max_total_time={seconds}");
        parts.run(&format!("fuzz {target}"), || {
            // The instrumentation needs unstable compiler flags; the address sanitizer would need a
            // nightly toolchain, and the readers' only unsafe code calls functions that are
            // compiled for wider processors.
            shell::run(
                shell::cargo()
                    .args(["fuzz", "run", "--sanitizer", "none", &target, "--"])
                    .args([limit.as_str(), "-rss_limit_mb=2048", "-timeout=10"])
                    .env("RUSTC_BOOTSTRAP", "1"),
            )?;
            Ok(Outcome::Ok)
        });
    }
    parts.finish()
}

fn targets() -> Result<Vec<String>> {
    let folder = shell::root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in
        std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
