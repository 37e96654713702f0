//! Virtual environments for the peers that tests compare with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell;

/// What an environment consists of; it is made again when any of it changes.
pub(crate) struct Environment {
    /// Its folder's name below the target folder.
    pub(crate) name: &'static str,
    /// Pinned, one package per entry.
    pub(crate) requirements: &'static [&'static str],
    /// Installed after the requirements, without what they ask for themselves.
    pub(crate) alone: &'static [&'static str],
    /// A script of the checkout that the environment's Python runs once, after pip.
    pub(crate) afterwards: Option<&'static str>,
}

impl Environment {
    /// One that pip makes from its requirements alone.
    pub(crate) const fn of(name: &'static str, requirements: &'static [&'static str]) -> Self {
        Self {
            name,
            requirements,
            alone: &[],
            afterwards: None,
        }
    }

    /// The environment's Python, installed when it is not there yet; `None` when this machine has no
    /// Python 3.10 or newer.
    pub(crate) fn python(&self) -> Result<Option<PathBuf>> {
        let Some(base) = interpreter() else {
            return Ok(None);
        };
        let folder = shell::target_dir().join("venv").join(self.name);
        let python = folder.join("bin/python");
        let stamp = folder.join("requirements.txt");
        let wanted = self.description()?;
        if python.exists() && std::fs::read_to_string(&stamp).unwrap_or_default() == wanted {
            return Ok(Some(python));
        }
        shell::run(
            shell::program(base)
                .args(["-m", "venv", "--clear"])
                .arg(&folder),
        )?;
        let install = |more: &[&str], packages: &[&str]| {
            let mut pip = shell::program(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--no-compile"])
                .args(["--disable-pip-version-check"])
                .args(more)
                .args(packages);
            shell::run(&mut pip)
        };
        install(&[], self.requirements)?;
        if !self.alone.is_empty() {
            install(&["--no-deps"], self.alone)?;
        }
        if let Some(script) = self.afterwards {
            shell::run(shell::program(&python).arg(script))?;
        }
        std::fs::write(&stamp, wanted)
            .with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(Some(python))
    }

    /// Everything that went into the environment, for "has it changed?".
    fn description(&self) -> Result<String> {
        let mut text = [self.requirements, self.alone].concat().join("\n");
        if let Some(script) = self.afterwards {
            text.push('\n');
            text.push_str(&String::from_utf8_lossy(&shell::read(
                &shell::root().join(script),
            )?));
        }
        Ok(text)
    }
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
