//! The source distribution and the wheels.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    archive, carries_viewer, empty_folder, in_temporary_folder, manifests, source_date, tools,
};
use crate::part::Outcome;
use crate::programs::Build;
use crate::{laws, shell};

/// Limit of our wheel, bytes.
const WHEEL_LIMIT: u64 = 15_000_000;
/// The pages of the repository.
const REPOSITORY: &str = "https://github.com/stepscope/stepscope";
/// Limit of PyPI, bytes.
const FILE_LIMIT: u64 = 100 << 20;

/// Makes the source distribution.
pub(super) fn make_source() -> Result<Outcome> {
    let folder = empty_folder("source")?;
    let source = pack_source(&tools()?, &folder)?;
    check_source_files(&archive::files(&source)?)?;
    archive::write_checksum(&source)?;
    Ok(Outcome::Ok)
}

/// Makes the source distribution and checks what it contains.
pub(super) fn check_source(tools: &Path) -> Result<()> {
    let source = pack_source(tools, &empty_folder("source-check")?)?;
    check_source_files(&archive::files(&source)?)?;
    in_temporary_folder("source", |home| {
        archive::unpack(&source, home)?;
        check_versions(home)
    })
}

/// Checks that an unpacked source distribution is built with the versions of the checkout's lock file.
fn check_versions(folder: &Path) -> Result<()> {
    let lock = || -> Result<Vec<String>> {
        let text = String::from_utf8(shell::read(&folder.join("Cargo.lock"))?)?;
        Ok(locked_packages(&text))
    };
    let given = lock()?;
    // Cargo shortens the file here as it does in a build.
    shell::output(
        shell::cargo()
            .args(["metadata", "--format-version=1"])
            .current_dir(folder),
    )?;
    let used = lock()?;
    let changed = used.iter().find(|package| !given.contains(package));
    ensure!(
        changed.is_none(),
        "the source distribution is built with other versions than the checkout: {}",
        changed.map_or("", String::as_str)
    );
    Ok(())
}

/// Lists name and version of the packages of a lock file.
fn locked_packages(lock: &str) -> Vec<String> {
    let packages = lock.split("[[package]]\n").skip(1);
    let packages = packages.map(|package| package.lines().take(2).collect::<Vec<_>>().join(" "));
    packages.collect()
}

fn maturin(tools: &Path, command: &str) -> Result<Command> {
    let mut maturin = shell::program(tools);
    maturin
        .args(["-m", "maturin", command])
        .env("SOURCE_DATE_EPOCH", source_date()?);
    Ok(maturin)
}

fn pack_source(tools: &Path, folder: &Path) -> Result<PathBuf> {
    shell::run(maturin(tools, "sdist")?.arg("--out").arg(folder))?;
    let source = folder.join(format!("stepscope-{}.tar.gz", manifests::version()?));
    ensure!(source.is_file(), "maturin wrote no {}", source.display());
    archive::check_size(&source, FILE_LIMIT)?;
    Ok(source)
}

/// What the source distribution contains at least.
const SOURCE_FILES: [&str; 13] = [
    "PKG-INFO",
    "pyproject.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "README.md",
    "crates/stepscope-py/Cargo.toml",
    "crates/stepscope-mcp/embedded/sql.md",
    "crates/stepscope-server/embedded/viewer/index.html",
    "crates/stepscope-server/embedded/example/rust_mnist.xplane.pb",
    "python/build/stepscope_build.py",
    "python/src/stepscope/py.typed",
];

/// The source distribution carries the built viewer and not its sources: it is built without Node.js.
fn check_source_files(files: &BTreeSet<String>) -> Result<()> {
    for file in SOURCE_FILES {
        ensure!(
            files.contains(file),
            "the source distribution does not contain {file}"
        );
    }
    ensure!(
        !files.contains("ui/package.json"),
        "the source distribution contains ui/package.json: its build would run npm"
    );
    Ok(())
}

/// Builds the wheel from the source distribution, in a folder outside of the checkout, and installs it into an
/// empty environment; with SQL also the wheel of the SQL engine.
pub(super) fn make_wheels(manylinux: Option<&str>, with_sql: bool) -> Result<Outcome> {
    let tools = tools()?;
    let out = empty_folder("wheel")?;
    let source = pack_source(&tools, &empty_folder("wheel-source")?)?;
    in_temporary_folder("wheel", |home| {
        archive::unpack(&source, home)?;
        // The description of the package on PyPI, which knows no other file.
        let readme = home.join("README.md");
        let text = String::from_utf8(shell::read(&readme)?)?;
        std::fs::write(&readme, with_absolute_links(&text))?;
        // Libraries of their own, whose sources the source distribution lacks.
        for library in Build::Packaged.collectors()? {
            let name = library.file_name().context("a library without a name")?;
            std::fs::copy(&library, home.join("python/src/stepscope").join(name))?;
        }
        let mut build = build(&tools, home, Build::Packaged, manylinux, &out)?;
        // Shares the dependencies with the tarball's build.
        shell::run(build.env("CARGO_TARGET_DIR", shell::target_dir()))
    })?;
    if with_sql {
        let folder = shell::root().join("sql");
        let mut build = build(&tools, &folder, Build::Release, manylinux, &out)?;
        shell::run(build.arg("--locked"))?;
    }
    let mut wheels = Vec::new();
    shell::collect(&out, &[], &mut wheels)?;
    wheels.sort();
    for wheel in &wheels {
        check_wheel(&tools, wheel, manylinux)?;
        archive::write_checksum(wheel)?;
    }
    try_wheels(&tools, &wheels, with_sql)?;
    Ok(Outcome::Ok)
}

/// Replaces links to files of the repository by links to its pages.
fn with_absolute_links(text: &str) -> String {
    let mut text = text.to_owned();
    for link in laws::links(&text.clone()) {
        // `?raw=true` gives a picture itself, and leaves a page as it is.
        let raw = if Path::new(&link.path)
            .extension()
            .is_some_and(|end| end == "png")
        {
            "?raw=true"
        } else {
            ""
        };
        let anchor = if link.heading.is_empty() {
            String::new()
        } else {
            format!("#{}", link.heading)
        };
        let relative = format!("]({}{anchor})", link.path);
        let page = if link.path.is_empty() {
            "README.md"
        } else {
            &link.path
        };
        let absolute = format!("]({REPOSITORY}/blob/main/{page}{raw}{anchor})");
        text = text.replace(&relative, &absolute);
    }
    text
}

/// Returns the command that builds the package of a folder.
fn build(
    tools: &Path,
    folder: &Path,
    as_built: Build,
    manylinux: Option<&str>,
    out: &Path,
) -> Result<Command> {
    let mut build = maturin(tools, "build")?;
    build
        .args(["--profile", as_built.profile(), "--out"])
        .arg(out)
        .current_dir(folder);
    // Without an agreed oldest glibc, maturin names that of this machine in the tag.
    if let Some(version) = manylinux {
        build.arg(format!("--compatibility=manylinux_{version}"));
    }
    Ok(build)
}

fn check_wheel(tools: &Path, wheel: &Path, manylinux: Option<&str>) -> Result<()> {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let is_ours = name.starts_with("stepscope-");
    let size = archive::check_size(wheel, if is_ours { WHEEL_LIMIT } else { FILE_LIMIT })?;
    println!("{name}: {size} bytes");
    let tag = manylinux.map_or("linux".to_owned(), |version| format!("manylinux_{version}"));
    ensure!(name.contains(&tag), "{name} has another tag than {tag}");
    let folder = empty_folder("wheel-check")?;
    shell::run(
        shell::program(tools)
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(&folder),
    )?;
    let mut files = Vec::new();
    shell::collect(&folder, &[], &mut files)?;
    let find = |ending: &str| {
        let found = files
            .iter()
            .find(|file| file.to_string_lossy().ends_with(ending));
        found.with_context(|| format!("{name} contains no {ending}"))
    };
    find(".dist-info/licenses/LICENSE-MIT")?;
    find(".dist-info/licenses/LICENSE-APACHE")?;
    if !is_ours {
        find(".data/scripts/stepscope-sql")?;
        return Ok(());
    }
    ensure!(name.contains("-cp310-abi3-"), "{name} is no abi3 wheel");
    find("stepscope/py.typed")?;
    find("stepscope/libstepscope_cupti.so")?;
    find("stepscope/libstepscope_rocm.so")?;
    carries_viewer(find("_core.abi3.so")?)?;
    let contains = |file: &Path, line: &str| -> Result<()> {
        let text = shell::read(file)?;
        ensure!(
            String::from_utf8_lossy(&text)
                .lines()
                .any(|one| one == line),
            "{} has no line '{line}'",
            file.display()
        );
        Ok(())
    };
    contains(
        find(".dist-info/entry_points.txt")?,
        "stepscope=stepscope._command:main",
    )?;
    let metadata = find(".dist-info/METADATA")?;
    let text = String::from_utf8(shell::read(metadata)?)?;
    if let Some(link) = laws::links(&text).first() {
        bail!(
            "the description has a link that leads nowhere on PyPI: {}",
            link.path
        );
    }
    for line in [
        "Requires-Python: >=3.10",
        "License-Expression: MIT OR Apache-2.0",
        "Description-Content-Type: text/markdown; charset=UTF-8; variant=GFM",
        "Provides-Extra: sql",
        "Provides-Extra: jax",
        "Provides-Extra: torch",
    ] {
        contains(metadata, line)?;
    }
    Ok(())
}

/// Installs the wheels into an empty environment and runs what they bring.
fn try_wheels(tools: &Path, wheels: &[PathBuf], with_sql: bool) -> Result<()> {
    let folder = empty_folder("environment")?;
    shell::run(shell::program(tools).args(["-m", "venv"]).arg(&folder))?;
    let python = folder.join("bin/python");
    shell::run(
        shell::program(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"])
            .args(["--disable-pip-version-check"])
            .args(wheels),
    )?;
    let command = folder.join("bin/stepscope");
    let printed = shell::output(shell::program(&command).arg("--version"))?;
    let version = manifests::version()?;
    ensure!(
        printed.trim() == format!("stepscope {version}"),
        "unexpected version: {printed}"
    );
    let program = folder.join("program.py");
    std::fs::write(
        &program,
        "import stepscope\nwith stepscope.StepTrace('train', step_num=0):\n    sum(range(1000))\n",
    )?;
    // A program without a change, in an environment without anything else.
    shell::run(
        shell::program(&command)
            .args(["run", "--logdir", "logs", "--", "bin/python", "program.py"])
            .current_dir(&folder),
    )?;
    let read = shell::output(
        shell::program(&command)
            .args(["report", "logs", "steps", "--no-cache"])
            .current_dir(&folder),
    )?;
    ensure!(read.contains("Steps 1 "), "unexpected report: {read}");
    if with_sql {
        // The environment is not active: its programs are not on PATH.
        let answer = shell::output(
            shell::program(&command)
                .args(["query", "logs", "SELECT count(*) AS runs FROM runs"])
                .args(["--format", "json", "--no-cache"])
                .current_dir(&folder)
                .env_remove("STEPSCOPE_SQL"),
        )?;
        ensure!(
            answer.contains("{\"runs\": 1}"),
            "unexpected answer: {answer}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_distribution_with_sources_of_the_viewer_is_refused() {
        let set = |files: &[&str]| -> BTreeSet<String> {
            files.iter().map(|file| (*file).to_owned()).collect()
        };
        let error = check_source_files(&set(&["PKG-INFO"])).unwrap_err();
        assert!(error.to_string().contains("pyproject.toml"), "{error}");
        let files = [&SOURCE_FILES[..], &["ui/package.json"]].concat();
        let error = check_source_files(&set(&files)).unwrap_err();
        assert!(error.to_string().contains("npm"), "{error}");
        assert!(check_source_files(&set(&SOURCE_FILES)).is_ok());
    }

    #[test]
    fn links_of_the_description_are_absolute() {
        let text = "![a](docs/a.png), [b](docs/b.md#c) and [b](docs/b.md); [d](https://d.example) [e](#f)\n";
        let absolute = with_absolute_links(text);
        assert_eq!(laws::links(&absolute), []);
        assert!(
            absolute.starts_with(
                "![a](https://github.com/stepscope/stepscope/blob/main/docs/a.png?raw=true), \
                 [b](https://github.com/stepscope/stepscope/blob/main/docs/b.md#c) and"
            ),
            "{absolute}"
        );
        assert!(absolute.contains("[d](https://d.example)"), "{absolute}");
    }

    #[test]
    fn packages_of_a_lock_file_are_listed() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1\"\n\n[[package]]\nname = \"b\"\nversion = \"2\"\n";
        let expected = [
            "name = \"a\" version = \"1\"",
            "name = \"b\" version = \"2\"",
        ];
        assert_eq!(locked_packages(lock), expected);
    }
}
