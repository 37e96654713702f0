//! The Python package: built as users build it, tested, and looked at by linters.

use std::path::PathBuf;

use anyhow::Result;

use crate::part::Outcome;
use crate::python::Environment;
use crate::{demo, peers, shell};

/// The package is installed into it.
const PACKAGE: Environment = Environment::of("package", &["typing-extensions==4.16.0"]);
/// What looks at the package's sources.
const LINTERS: Environment = Environment::of(
    "lint",
    &["mypy==2.4.1", "ruff==0.17.5", "typing-extensions==4.16.0"],
);

fn no_python() -> Outcome {
    Outcome::NotRun("no Python 3.10 or newer with the venv module".to_owned())
}

/// The package as `pip install .` gives it, with its own tests.
pub(crate) fn test() -> Result<Outcome> {
    let Some(python) = PACKAGE.python()? else {
        return Ok(no_python());
    };
    shell::run(
        shell::program(&python)
            .args(["-m", "pip", "install", "--quiet"])
            .args(["--disable-pip-version-check", "."])
            // What the command's own build has made is not made again.
            .env("CARGO_TARGET_DIR", shell::target_dir()),
    )?;
    let mut tests = shell::program(&python);
    tests
        .args(["-B", "-m", "unittest", "discover", "--start-directory"])
        .arg("python/tests");
    if let Some(peers) = peers::python()? {
        tests.env("STEPSCOPE_PEERS_PYTHON", peers);
    }
    shell::run(&mut tests)?;
    Ok(Outcome::Ok)
}

/// Puts the package into the environment with all frameworks: its Python; why there is none, if not.
pub(crate) fn install_beside_frameworks() -> Result<Result<PathBuf, Outcome>> {
    let python = match peers::frameworks()? {
        Ok(python) => python,
        Err(outcome) => return Ok(Err(outcome)),
    };
    shell::run(
        shell::program(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "."])
            .env("CARGO_TARGET_DIR", shell::target_dir()),
    )?;
    Ok(Ok(python))
}

/// The package beside the frameworks that it stands in for.
pub(crate) fn test_with_frameworks() -> Result<Outcome> {
    let python = match install_beside_frameworks()? {
        Ok(python) => python,
        Err(outcome) => return Ok(outcome),
    };
    shell::run(
        shell::program(&python)
            .args(["-B", "-m", "unittest", "discover", "--start-directory"])
            .arg("python/framework_tests")
            .env("PJRT_DEVICE", "CPU")
            .env("STEPSCOPE_BIN", demo::release_binary()?),
    )?;
    Ok(Outcome::Ok)
}

/// Style and types.
pub(crate) fn check() -> Result<Outcome> {
    let Some(python) = LINTERS.python()? else {
        return Ok(no_python());
    };
    let tool = |arguments: &[&str]| shell::run(shell::program(&python).arg("-m").args(arguments));
    tool(&["ruff", "check", "--quiet", "--no-cache", "python"])?;
    tool(&[
        "ruff",
        "format",
        "--quiet",
        "--no-cache",
        "--check",
        "python",
    ])?;
    tool(&["mypy", "--cache-dir", "/dev/null", "python/src"])?;
    Ok(Outcome::Ok)
}
