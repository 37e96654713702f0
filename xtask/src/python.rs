//! A virtual environment for the peers that tests compare with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell;

/// The environment's Python with `requirements` (pinned, one per entry) installed; `None` when this
/// machine has no Python 3.10 or newer.
///
/// Lives in the target folder under `name` and is made again when the requirements change.
pub(crate) fn environment(name: &str, requirements: &[&str]) -> Result<Option<PathBuf>> {
    let Some(base) = interpreter() else {
        return Ok(None);
    };
    let folder = shell::target_dir().join("venv").join(name);
    let python = folder.join("bin/python");
    let stamp = folder.join("requirements.txt");
    let wanted = requirements.join("\n");
    if python.exists() && std::fs::read_to_string(&stamp).unwrap_or_default() == wanted {
        return Ok(Some(python));
    }
    shell::run(
        shell::program(base)
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    )?;
    shell::run(
        shell::program(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(requirements),
    )?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Some(python))
}

/// The first Python of this machine that is new enough.
fn interpreter() -> Option<&'static str> {
    ["python3", "python"].into_iter().find(|name| {
        Command::new(name)
            .args([
                "-c",
                "import sys, venv; sys.exit(sys.version_info < (3, 10))",
            ])
            .status()
            .is_ok_and(|status| status.success())
    })
}
