//! `cargo xtask dist`: makes what a release uploads, and checks it.
//!
//! Everything is in `target/dist`: crates, Python packages, and a tarball with the programs. Each file has
//! a `.sha256` next to it. `--check` checks what needs no release build; `cargo xtask test` includes it.

mod archive;
mod crates;
mod manifests;
mod python_packages;
mod tarball;
mod workflow;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::part::{Outcome, Parts};
use crate::python::Environment;
use crate::{shell, ui};

/// Tools that make and read packages.
const TOOLS: Environment =
    Environment::from_requirements("dist", &["maturin==1.16.0", "PyYAML==6.0.3"]);

/// The parts, by the order in which they run.
const PARTS: [&str; 4] = ["crates", "source", "wheel", "tarball"];

/// What was asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    check: bool,
    sql: bool,
    manylinux: Option<String>,
    tag: Option<String>,
    parts: Vec<String>,
}

impl Request {
    fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut request = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word {
                "--check" => request.check = true,
                "--sql" => request.sql = true,
                "--manylinux" => {
                    let version = words.next().context("--manylinux needs a version: 2_28")?;
                    request.manylinux = Some(version.to_owned());
                }
                "--tag" => {
                    let tag = words.next().context("--tag needs a tag: v1.2.3")?;
                    request.tag = Some(tag.to_owned());
                }
                part if PARTS.contains(&part) => request.parts.push(part.to_owned()),
                other => bail!("cannot make '{other}': the parts are {}", PARTS.join(", ")),
            }
        }
        Ok(request)
    }
}

/// `cargo xtask dist [--check] [--sql] [--manylinux VERSION] [--tag TAG] [PART]…`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let request = Request::parse(arguments.iter().map(String::as_str))?;
    if let Some(tag) = &request.tag {
        manifests::check_tag(tag)?;
    }
    let mut parts = Parts::only(Vec::new());
    if request.check {
        parts.run("release files", check);
        return parts.finish();
    }
    let is_wanted =
        |part: &str| request.parts.is_empty() || request.parts.iter().any(|one| one == part);
    if let Outcome::NotRun(why) = ui::build(false)? {
        bail!("cannot build the viewer, which every package carries: {why}");
    }
    for part in PARTS.into_iter().filter(|part| is_wanted(part)) {
        parts.run(part, || match part {
            "crates" => crates::make(),
            "source" => python_packages::make_source(),
            "wheel" => python_packages::make_wheels(request.manylinux.as_deref(), request.sql),
            _ => tarball::make(request.sql),
        });
    }
    parts.finish()
}

/// Checks manifests, the release workflow, and the contents of crates and of the source distribution.
pub(crate) fn check() -> Result<Outcome> {
    manifests::check()?;
    let Some(tools) = TOOLS.python()? else {
        return Ok(Outcome::NotRun(
            "no Python 3.10 or newer with the venv module".to_owned(),
        ));
    };
    workflow::check(&tools)?;
    if let Outcome::NotRun(why) = ui::build(false)? {
        return Ok(Outcome::NotRun(why));
    }
    crates::check()?;
    python_packages::check_source(&tools)?;
    Ok(Outcome::Ok)
}

/// Returns the Python with the tools.
fn tools() -> Result<PathBuf> {
    TOOLS
        .python()?
        .context("cannot make packages: no Python 3.10 or newer with the venv module")
}

/// Creates an empty folder in `target/dist` and returns it.
fn empty_folder(name: &str) -> Result<PathBuf> {
    let folder = shell::target_dir().join("dist").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Runs something in an empty folder outside of the checkout, whose workspace cargo would find.
fn in_temporary_folder(name: &str, run: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("stepscope-{name}-{}", std::process::id()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let result = run(&folder);
    std::fs::remove_dir_all(&folder)
        .with_context(|| format!("cannot remove {}", folder.display()))?;
    result
}

/// Returns the time of all files in archives, seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the commit.
fn source_date() -> Result<String> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let date = shell::output(shell::program("git").args(["log", "-1", "--format=%ct"]))
        .context("cannot date the archives: set SOURCE_DATE_EPOCH, seconds since 1970")?;
    Ok(date.trim().to_owned())
}

/// Checks that the built viewer is in a program or a library.
fn carries_viewer(file: &Path) -> Result<()> {
    let page = shell::read(&ui::folder().join("dist/index.html"))?;
    let page = String::from_utf8_lossy(&page).into_owned();
    // Its name contains a hash of its content.
    let script = page
        .split(['"', '\''])
        .find(|text| {
            let is_script = Path::new(text).extension().is_some_and(|end| end == "js");
            is_script && text.contains("assets/index-")
        })
        .and_then(|text| text.rsplit('/').next())
        .context("ui/dist/index.html names no script")?;
    let bytes = shell::read(file)?;
    ensure!(
        bytes
            .windows(script.len())
            .any(|window| window == script.as_bytes()),
        "{} does not carry the viewer: it has no {script}",
        file.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_parts_are_parsed() {
        let parsed = Request::parse(["--sql", "--manylinux", "2_28", "wheel", "tarball"]);
        let expected = Request {
            sql: true,
            manylinux: Some("2_28".to_owned()),
            parts: vec!["wheel".to_owned(), "tarball".to_owned()],
            ..Request::default()
        };
        assert_eq!(parsed.unwrap(), expected);
        for wrong in [&["--manylinux"][..], &["--tag"], &["whel"]] {
            assert!(Request::parse(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
    }
}
