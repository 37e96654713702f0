//! Python virtual environments with the tools that tests compare with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::shell;

/// Contents of an environment; a change recreates it.
pub(crate) struct Environment {
    /// Name of its folder below the target folder.
    pub(crate) name: &'static str,
    /// Pinned requirements, one package per entry.
    pub(crate) requirements: &'static [&'static str],
    /// Packages installed after the requirements, without their dependencies.
    pub(crate) without_dependencies: &'static [&'static str],
    /// A script of the checkout that the environment's Python runs once, after pip.
    pub(crate) post_install_script: Option<&'static str>,
}

impl Environment {
    /// Creates an environment from requirements only.
    pub(crate) const fn from_requirements(
        name: &'static str,
        requirements: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            requirements,
            without_dependencies: &[],
            post_install_script: None,
        }
    }

    /// Returns the environment's Python, and creates the environment first if necessary; `None`
    /// when this machine has no Python 3.10 or newer.
    pub(crate) fn python(&self) -> Result<Option<PathBuf>> {
        let Some(base) = interpreter() else {
            return Ok(None);
        };
        let folder = shell::target_dir().join("venv").join(self.name);
        let python = folder.join("bin/python");
        let stamp = folder.join("requirements.txt");
        let description = self.description()?;
        if python.exists() && std::fs::read_to_string(&stamp).unwrap_or_default() == description {
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
        if !self.without_dependencies.is_empty() {
            install(&["--no-deps"], self.without_dependencies)?;
        }
        if let Some(script) = self.post_install_script {
            shell::run(shell::program(&python).arg(script))?;
        }
        std::fs::write(&stamp, description)
            .with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(Some(python))
    }

    /// Returns all inputs of the environment as a text, to detect changes.
    fn description(&self) -> Result<String> {
        let mut text = [self.requirements, self.without_dependencies]
            .concat()
            .join("\n");
        if let Some(script) = self.post_install_script {
            text.push('\n');
            text.push_str(&String::from_utf8_lossy(&shell::read(
                &shell::root().join(script),
            )?));
        }
        Ok(text)
    }
}

/// A `CPython` of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// Major, minor and patch version.
    pub(crate) version: [u32; 3],
    /// Path of the executable.
    pub(crate) path: PathBuf,
}

impl Interpreter {
    /// Returns major and minor version, such as `3.10`.
    pub(crate) fn minor(&self) -> String {
        format!("{}.{}", self.version[0], self.version[1])
    }

    /// Queries an executable; `None` unless it is a `CPython` 3.10 or newer with `venv` and with
    /// the global interpreter lock (builds without it load no stable-ABI library).
    pub(crate) fn query(path: &Path) -> Option<Self> {
        let script = "import sys, sysconfig, venv, ensurepip; \
            ours = sys.implementation.name == 'cpython' and not sysconfig.get_config_var('Py_GIL_DISABLED'); \
            print(*sys.version_info[:3]) if ours and sys.version_info >= (3, 10) else sys.exit(1)";
        let mut python = Command::new(path);
        let output = python
            .args(["-I", "-c", script])
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            version: [next()?, next()?, next()?],
            path: path.to_path_buf(),
        })
    }
}

/// Finds the newest `CPython` of every minor version, oldest first.
pub(crate) fn interpreters() -> Vec<Interpreter> {
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let installed = pyenv
        .and_then(|root| std::fs::read_dir(root.join("versions")).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/python")));
    let on_path = (10..30)
        .map(|minor| format!("python3.{minor}"))
        .chain(["python3".to_owned()])
        .map(PathBuf::from);
    newest_of_each(
        installed
            .chain(on_path)
            .filter_map(|path| Interpreter::query(&path)),
    )
}

fn newest_of_each(found: impl Iterator<Item = Interpreter>) -> Vec<Interpreter> {
    let mut by_minor: BTreeMap<[u32; 2], Interpreter> = BTreeMap::new();
    for one in found {
        let minor = [one.version[0], one.version[1]];
        let known = by_minor.get(&minor);
        if known.is_none_or(|known| known.version < one.version) {
            by_minor.insert(minor, one);
        }
    }
    by_minor.into_values().collect()
}

/// Returns the first Python of this machine that is new enough.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_interpreter_of_each_minor_version_is_found() {
        let of = |version: [u32; 3], path: &str| Interpreter {
            version,
            path: path.into(),
        };
        let found = [
            of([3, 13, 0], "a"),
            of([3, 10, 2], "b"),
            of([3, 10, 13], "c"),
            of([3, 10, 13], "d"),
        ];
        let paths: Vec<PathBuf> = newest_of_each(found.into_iter())
            .into_iter()
            .map(|one| one.path)
            .collect();
        assert_eq!(paths, [PathBuf::from("c"), PathBuf::from("a")]);
    }

    #[test]
    fn other_executables_have_no_python_version() {
        assert_eq!(Interpreter::query(Path::new("/nothing/here")), None);
        assert_eq!(Interpreter::query(Path::new("true")), None);
    }
}
