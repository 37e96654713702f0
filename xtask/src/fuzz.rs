//! `cargo xtask fuzz`: every reader and the analyses, ten minutes each, and new cases of the property tests.

use anyhow::{Context as _, Result, bail};

use crate::part::{Outcome, Parts};
use crate::shell;

/// The name of the part that runs the property tests.
const PROPERTIES: &str = "properties";

/// `cargo xtask fuzz [TARGET] [--seconds N]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut seconds = "600".to_owned();
    let mut wanted = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => seconds.clone_from(rest.next().context("--seconds needs a number")?),
            name if !name.starts_with('-') => wanted = Some(name.to_owned()),
            other => bail!(
                "cannot use '{other}': there is no such option\nhelp: 'cargo xtask help' lists the options"
            ),
        }
    }
    let mut parts = Parts::default();
    if wanted.as_deref().is_none_or(|wanted| wanted == PROPERTIES) {
        parts.run(PROPERTIES, property_tests);
    }
    if wanted.as_deref() == Some(PROPERTIES) {
        return parts.finish();
    }
    if !shell::output(shell::cargo().arg("--list"))?.contains("    fuzz") {
        shell::run(shell::cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    }
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

/// Runs the property tests with many cases of a new seed: `cargo test` always runs the same few.
fn property_tests() -> Result<Outcome> {
    // Another one in each run.
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0).to_string();
    println!("PROPTEST_RNG_SEED={seed}");
    shell::run(
        shell::cargo()
            .args(["test", "--quiet", "--tests"])
            .env("PROPTEST_RNG_SEED", &seed)
            .env("PROPTEST_CASES", "5000"),
    )?;
    Ok(Outcome::Ok)
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
