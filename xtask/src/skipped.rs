//! Tests that a part skips: they are listed as *not run* with their reason, and fail the part when it must not lack
//! what they need.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::part::Outcome;
use crate::shell;

fn file(name: &str) -> PathBuf {
    let folder = shell::target_dir().join("skipped");
    folder.join(format!("{name}.json"))
}

/// Lets a command that runs tests write the skipped ones below this name.
pub(crate) fn record(command: &mut Command, name: &str) -> Result<()> {
    let file = file(name);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if file.exists() {
        std::fs::remove_file(&file)?;
    }
    command.env("STEPSCOPE_SKIPPED", file);
    Ok(())
}

/// Creates a command that runs Python's unit tests with the arguments of `python -m unittest`, and records the
/// skipped ones below this name.
pub(crate) fn unit_tests(
    python: impl AsRef<OsStr>,
    name: &str,
    arguments: &[&str],
) -> Result<Command> {
    let mut command = shell::program(python);
    let script = shell::root().join("tests/run_unittests.py");
    command.arg(script).args(arguments);
    record(&mut command, name)?;
    Ok(command)
}

/// Returns the outcome of commands that succeeded. A reason to skip must contain one of the texts `may_lack`.
pub(crate) fn outcome(names: &[&str], may_lack: &[&str]) -> Result<Outcome> {
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    for name in names {
        let file = file(name);
        let found: BTreeMap<String, u64> = serde_json::from_slice(&shell::read(&file)?)
            .with_context(|| format!("cannot read {}", file.display()))?;
        for (reason, tests) in found {
            *skipped.entry(reason).or_default() += tests;
        }
    }
    checked(&skipped, may_lack)
}

fn checked(skipped: &BTreeMap<String, u64>, may_lack: &[&str]) -> Result<Outcome> {
    let is_allowed = |reason: &str| may_lack.iter().any(|text| reason.contains(text));
    if let Some(reason) = skipped.keys().find(|reason| !is_allowed(reason)) {
        bail!("tests that must run here were skipped: {reason}");
    }
    if skipped.is_empty() {
        return Ok(Outcome::Ok);
    }
    let lines = skipped
        .iter()
        .map(|(reason, tests)| format!("{tests} skipped: {reason}"));
    Ok(Outcome::OkExcept(lines.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_listed_or_fail_the_part() {
        let skipped = BTreeMap::from([("no Chromium".to_owned(), 2)]);
        let Ok(Outcome::OkExcept(lines)) = checked(&skipped, &["Chromium"]) else {
            panic!("not listed");
        };
        assert_eq!(lines, ["2 skipped: no Chromium"]);
        assert!(checked(&skipped, &["compiler"]).is_err());
        assert!(matches!(checked(&BTreeMap::new(), &[]), Ok(Outcome::Ok)));
    }
}
