//! The Python package: builds it like users do, tests it and runs linters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use crate::part::Outcome;
use crate::programs::Build;
use crate::python::{self, Environment, Interpreter};
use crate::{peers, shell, skipped, ui};

/// The environment into which the package is installed.
const PACKAGE: Environment = Environment::from_requirements(
    "package",
    &[
        "numpy==2.2.6",
        "pyarrow==26.0.1",
        "typing-extensions==4.16.0",
    ],
);
/// Linters for the package's sources, and the spelling checker for all files.
const LINTERS: Environment = Environment::from_requirements(
    "lint",
    &[
        "mypy==2.4.1",
        "ruff==0.17.5",
        "typing-extensions==4.16.0",
        "typos==1.52.0",
    ],
);

fn no_python() -> Outcome {
    Outcome::NotRun("no Python 3.10 or newer with the venv module".to_owned())
}

/// Builds the package like `pip install .`, once for all parts of a run, in the profile of the first
/// call. It always uses the same interpreter: with another one, cargo would rebuild half of it.
fn wheel(python: &Path, build: Build) -> Result<PathBuf> {
    static WHEEL: OnceLock<PathBuf> = OnceLock::new();
    if let Some(wheel) = WHEEL.get() {
        return Ok(wheel.clone());
    }
    let folder = shell::target_dir().join("wheels/test");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    shell::run(
        shell::program(python)
            .args(["-m", "pip", "wheel", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--wheel-dir"])
            .arg(&folder)
            .arg(".")
            // Reuses the results of the command's build.
            .env("CARGO_TARGET_DIR", shell::target_dir())
            .env("MATURIN_PEP517_ARGS", maturin_arguments(build)),
    )?;
    let mut wheels = Vec::new();
    shell::collect(&folder, &[], &mut wheels)?;
    let wheel = wheels.into_iter().next().context("pip built no wheel")?;
    Ok(WHEEL.get_or_init(|| wheel).clone())
}

/// The feature of the extension that makes its build share the tests' one: see `crates/stepscope-py/Cargo.toml`.
const AS_IN_TESTS: &str = "as-in-tests";

fn maturin_arguments(build: Build) -> String {
    let profile = format!("--profile {}", build.profile());
    match build {
        Build::Dev => format!("{profile} --features {AS_IN_TESTS}"),
        _ => profile,
    }
}

/// Checks that the extension and the tests have the same features of all crates: with others, cargo would compile
/// most of the workspace a second time for the package.
pub(crate) fn features() -> Result<Outcome> {
    let of_package = features_by_crate(&["--package", "stepscope-py", "--features", AS_IN_TESTS])?;
    // The default members, as `cargo test` takes them.
    let of_tests = features_by_crate(&["--edges", "normal,build,dev"])?;
    let differing = of_package.iter().filter_map(|(name, features)| {
        let tested = of_tests.get(name)?;
        let is_same = features.iter().any(|one| tested.contains(one));
        (!is_same).then(|| {
            format!(
                "{name} has the features {features:?} in the package and {tested:?} in the tests: each test run \
                 compiles it twice\n    Complete the feature '{AS_IN_TESTS}' of crates/stepscope-py/Cargo.toml."
            )
        })
    });
    crate::laws::report(differing.collect())
}

/// Returns the features of each crate, by its name and version.
fn features_by_crate(selection: &[&str]) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut tree = shell::cargo();
    tree.args(["tree", "--quiet", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p} [{f}]"])
        .args(selection);
    let text = shell::output(&mut tree)?;
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let Some((package, features)) = line.split_once(" [") else {
            continue;
        };
        // Without the path of a member.
        let name = package.split(" (").next().unwrap_or(package);
        let features = features.split(']').next().unwrap_or_default();
        found
            .entry(name.to_owned())
            .or_default()
            .insert(features.to_owned());
    }
    Ok(found)
}

/// Replaces the installed wheel.
fn install(python: &Path, wheel: &Path) -> Result<()> {
    shell::run(
        shell::program(python)
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--force-reinstall", "--disable-pip-version-check"])
            .arg(wheel),
    )
}

/// Returns a Python with the package as `pip install .` installs it, or the reason why there is
/// none.
pub(crate) fn python(build: Build) -> Result<Result<PathBuf, Outcome>> {
    let Some(python) = PACKAGE.python()? else {
        return Ok(Err(no_python()));
    };
    install(&python, &wheel(&python, build)?)?;
    Ok(Ok(python))
}

/// Runs the package's tests.
pub(crate) fn test() -> Result<Outcome> {
    let python = match python(Build::Dev)? {
        Ok(python) => python,
        Err(outcome) => return Ok(outcome),
    };
    let mut tests = skipped::unit_tests(&python, "python package", &PACKAGE_TESTS)?;
    if let Some(peers) = peers::python()? {
        tests.env("STEPSCOPE_PEERS_PYTHON", peers);
    }
    shell::run(&mut tests)?;
    skipped::outcome(&["python package"], &MAY_LACK)
}

const PACKAGE_TESTS: [&str; 3] = ["discover", "--start-directory", "python/tests"];
/// What the package's tests may lack: other versions of Python, and the engine that the part *SQL engine* builds.
const MAY_LACK: [&str; 3] = ["sys.monitoring", "TaskGroup", "the SQL engine is "];
/// What tests lack with only an interpreter and the wheel.
const BARE_MAY_LACK: [&str; 2] = [" is not installed", "STEPSCOPE_PEERS_PYTHON"];

/// Tests the same wheel in the oldest and in the newest interpreter of this machine.
pub(crate) fn test_other_versions() -> Result<Outcome> {
    let Some(builder) = PACKAGE.python()? else {
        return Ok(no_python());
    };
    let tested = Interpreter::query(&builder).context("the environment's Python does not start")?;
    let found = python::interpreters();
    let others: Vec<&Interpreter> = ends(&found)
        .filter(|one| one.minor() != tested.minor())
        .collect();
    if others.is_empty() {
        return Ok(Outcome::NotRun(format!(
            "no CPython here but {}: looked on PATH and in pyenv's versions for 3.10 and newer",
            tested.minor()
        )));
    }
    let names: Vec<String> = others.iter().map(|one| one.minor()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wheel = wheel(&builder, Build::Dev)?;
    let mut commands = Vec::new();
    for (one, name) in others.into_iter().zip(&names) {
        let python = environment_with(one, &builder, &wheel)?;
        let tests = skipped::unit_tests(python, name, &PACKAGE_TESTS)?;
        commands.push((*name, tests));
    }
    // The tests mostly wait: running both concurrently takes little longer than one.
    let failed = shell::run_in_pairs(commands);
    anyhow::ensure!(failed.is_empty(), "failed on CPython {}", failed.join(", "));
    skipped::outcome(&names, &[&MAY_LACK[..], &BARE_MAY_LACK].concat())
}

/// Returns the first and the last.
fn ends(found: &[Interpreter]) -> impl Iterator<Item = &Interpreter> {
    let last = found.last().filter(|_| found.len() > 1);
    found.first().into_iter().chain(last)
}

/// Installs the package in every interpreter of this machine except the minor version of `but`:
/// returns the version and the Python of each.
pub(crate) fn in_other_versions(but: &Path, build: Build) -> Result<Vec<(String, PathBuf)>> {
    let Some(builder) = PACKAGE.python()? else {
        return Ok(Vec::new());
    };
    let but = Interpreter::query(but).map(|one| one.minor());
    let wheel = wheel(&builder, build)?;
    python::interpreters()
        .iter()
        .filter(|one| Some(one.minor()) != but)
        .map(|one| Ok((one.minor(), environment_with(one, &builder, &wheel)?)))
        .collect()
}

/// Creates an environment with only an interpreter and the wheel; returns its Python.
fn environment_with(one: &Interpreter, builder: &Path, wheel: &Path) -> Result<PathBuf> {
    let folder = shell::target_dir()
        .join("venv")
        .join(format!("package-{}", one.minor()));
    shell::run(
        shell::program(&one.path)
            .args(["-m", "venv", "--clear", "--without-pip"])
            .arg(&folder),
    )?;
    let python = folder.join("bin/python");
    // The builder's pip installs into both: creating one takes longer than the tests.
    shell::run(
        shell::program(builder)
            .args(["-m", "pip", "--python"])
            .arg(&python)
            .args([
                "install",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
            ])
            .arg(wheel),
    )?;
    Ok(python)
}

/// Installs the package into the environment with all frameworks: returns its Python, or the reason
/// why there is none.
pub(crate) fn install_with_frameworks(build: Build) -> Result<Result<PathBuf, Outcome>> {
    let python = match peers::frameworks()? {
        Ok(python) => python,
        Err(outcome) => return Ok(Err(outcome)),
    };
    let Some(builder) = PACKAGE.python()? else {
        return Ok(Err(no_python()));
    };
    install(&python, &wheel(&builder, build)?)?;
    Ok(Ok(python))
}

/// Tests of programs that are slow for a known cause: a program beside them would be another cause.
const COMPARES_TIMES: &str = "test_causes";
/// Why it skips a recording: the machine stalled in every attempt.
const STALLED: &str = "a step took longer than usual";

/// The tests that take longest begin first: at the end, a processor would wait for the last of them.
const LONGEST: [&str; 4] = [
    "test_torch_xla",
    "test_lightning",
    "test_run",
    "test_sources",
];

/// Tests the package together with the frameworks that it supports.
pub(crate) fn test_with_frameworks() -> Result<Outcome> {
    let python = match install_with_frameworks(Build::Dev)? {
        Ok(python) => python,
        Err(outcome) => return Ok(outcome),
    };
    let binary = Build::Dev.command()?;
    let folder = shell::root().join("python/framework_tests");
    let mut files = Vec::new();
    shell::collect(&folder, &["__pycache__"], &mut files)?;
    files.sort();
    let names = files
        .iter()
        .filter_map(|file| file.file_stem()?.to_str())
        .filter(|name| name.starts_with("test_"));
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|name| !LONGEST.contains(name));
    let (alone, paired): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| **name == COMPARES_TIMES);
    let mut failed = Vec::new();
    // A separate process each: frameworks change the environment of the importing process (JAX sets
    // variables for the TPU search), and not all of them work in one process without that.
    for group in [paired, alone] {
        let mut commands = Vec::new();
        for name in group {
            let mut command = skipped::unit_tests(&python, name, &[name])?;
            command
                .current_dir(&folder)
                .env("PJRT_DEVICE", "CPU")
                .env("STEPSCOPE_BIN", &binary);
            commands.push((name, command));
        }
        failed.extend(shell::run_in_pairs(commands));
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    let mut may_lack = vec!["no Chromium", "STEPSCOPE_TRACES", STALLED];
    if ui::missing_npm().is_some() {
        may_lack.push("the viewer is not built in");
    }
    skipped::outcome(&names, &may_lack)
}

/// Upstream's profiler tests, and the variables that name their source trees.
const UPSTREAM: [(&str, &str); 4] = [
    ("STEPSCOPE_JAX_TREE", "jax_profiler.py"),
    ("STEPSCOPE_TORCH_TREE", "torch_profiler.py"),
    ("STEPSCOPE_TORCH_XLA_TREE", "torch_xla_profiler.py"),
    ("STEPSCOPE_LIGHTNING_TREE", "lightning_profilers.py"),
];

/// Requirements of those tests besides the frameworks, in a separate folder, which other tests do
/// not need.
const UPSTREAM_REQUIREMENTS: [&str; 11] = [
    "absl-py==2.5.1",
    "attrs==26.1.0",
    "expecttest==0.3.0",
    "hypothesis==6.170.15",
    "iniconfig==2.3.1",
    "pluggy==1.7.0",
    "portpicker==1.6.0",
    "psutil==7.2.2",
    "pygments==2.21.0",
    "pytest==9.2.0",
    "sortedcontainers==2.4.0",
];

/// Returns their folder, and installs them first if necessary.
fn install_upstream_requirements(python: &Path) -> Result<PathBuf> {
    let folder = shell::target_dir().join("venv/of-upstream");
    let stamp = folder.join("requirements.txt");
    let wanted = UPSTREAM_REQUIREMENTS.join("\n");
    if std::fs::read_to_string(&stamp).unwrap_or_default() == wanted {
        return Ok(folder);
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    shell::run(
        shell::program(python)
            .args(["-m", "pip", "install", "--quiet", "--no-compile"])
            .args(["--disable-pip-version-check", "--no-deps", "--target"])
            .arg(&folder)
            .args(UPSTREAM_REQUIREMENTS),
    )?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(folder)
}

/// Runs the tests of the available trees, with stepscope's names in place of upstream's.
pub(crate) fn test_upstream() -> Result<Outcome> {
    let asked: Vec<&str> = UPSTREAM
        .iter()
        .filter(|(variable, _)| std::env::var_os(variable).is_some_and(|tree| !tree.is_empty()))
        .map(|(_, script)| *script)
        .collect();
    if asked.is_empty() {
        let variables = UPSTREAM.map(|(variable, _)| variable).join(", ");
        return Ok(Outcome::NotRun(format!(
            "no checkout is named by {variables}"
        )));
    }
    let python = match install_with_frameworks(Build::Dev)? {
        Ok(python) => python,
        Err(outcome) => return Ok(outcome),
    };
    let packages = match install_upstream_requirements(&python) {
        Ok(packages) => packages,
        Err(error) => {
            return Ok(Outcome::NotRun(format!(
                "pip could not install what upstream's tests need ({error:#}); make its index reachable and \
                 run it again: {}",
                UPSTREAM_REQUIREMENTS.join(" ")
            )));
        }
    };
    let folder = shell::root().join("tests/upstream");
    let mut failed = Vec::new();
    for script in asked {
        let run = shell::run(
            shell::program(&python)
                .arg(folder.join(script))
                .env("PYTHONPATH", &packages)
                .env("PJRT_DEVICE", "CPU")
                .env("JAX_PLATFORMS", "cpu"),
        );
        if run.is_err() {
            failed.push(script);
        }
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(Outcome::Ok)
}

/// Checks style and types.
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

/// Checks the spelling of every text file of the checkout; `_typos.toml` has the exceptions.
pub(crate) fn typos() -> Result<Outcome> {
    let Some(python) = LINTERS.python()? else {
        return Ok(no_python());
    };
    // The wheel has a program and no module.
    shell::run(shell::program(python.with_file_name("typos")).args(["--format", "brief"]))?;
    Ok(Outcome::Ok)
}
