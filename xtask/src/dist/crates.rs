//! The crates that go to crates.io.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{archive, carries_viewer, empty_folder, in_temporary_folder, manifests};
use crate::part::Outcome;
use crate::shell;

/// Limit of crates.io, bytes.
const CRATE_LIMIT: u64 = 10 << 20;

/// What a user of the packages writes: records with one, and reads with the other.
const PROGRAM: &str = r#"
fn main() -> Result<(), stepscope::SessionError> {
    stepscope::start_trace("logs")?;
    for n in 0..3 {
        let _step = stepscope::step(n);
        let _span = stepscope::span!("forward");
    }
    stepscope::stop_trace()?;
    Ok(())
}
"#;

/// Makes the crates from a clean checkout, and builds from them alone.
pub(super) fn make() -> Result<Outcome> {
    let made = package(&[])?;
    check_contents(&made)?;
    let folder = empty_folder("crates")?;
    for (_name, file) in &made {
        let copy = folder.join(file.file_name().context("a package without a name")?);
        std::fs::copy(file, &copy)?;
        archive::write_checksum(&copy)?;
    }
    in_temporary_folder("packages", |home| build_from(home, &made))?;
    Ok(Outcome::Ok)
}

/// Makes the crates from the checkout as it is, and checks their contents.
pub(super) fn check() -> Result<()> {
    check_contents(&package(&["--allow-dirty"])?)
}

/// Runs `cargo package`, which orders the crates and lets them depend on each other before they are published.
/// Returns name and file of each.
fn package(more: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let names = manifests::published()?;
    let version = manifests::version()?;
    let mut cargo = shell::cargo();
    cargo
        .args(["package", "--quiet", "--locked", "--no-verify"])
        .args(more);
    for name in &names {
        cargo.args(["--package", name]);
    }
    shell::run(&mut cargo)?;
    let folder = shell::target_dir().join("package");
    let made = names.into_iter().map(|name| {
        let file = folder.join(format!("{name}-{version}.crate"));
        (name, file)
    });
    Ok(made.collect())
}

fn check_contents(made: &[(String, PathBuf)]) -> Result<()> {
    for (name, file) in made {
        archive::check_size(file, CRATE_LIMIT)?;
        check_files(name, &archive::files(file)?)?;
    }
    Ok(())
}

/// Checks which files a crate contains.
fn check_files(name: &str, files: &BTreeSet<String>) -> Result<()> {
    let mut needed = vec![
        "Cargo.toml",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "src/lib.rs",
    ];
    if name == "stepscope-server" {
        needed.push("build.rs");
        needed.push("embedded/viewer/index.html");
        ensure!(
            files
                .iter()
                .any(|file| file.starts_with("embedded/example/") && file.ends_with(".xplane.pb")),
            "{name} carries no example recording"
        );
    }
    if name == "stepscope-mcp" {
        needed.push("embedded/definitions.md");
        needed.push("embedded/sql.md");
    }
    for file in needed {
        ensure!(files.contains(file), "{name} does not contain {file}");
    }
    let unneeded = ["tests/", "benches/", "examples/"];
    let unneeded = files
        .iter()
        .find(|file| unneeded.iter().any(|folder| file.starts_with(folder)));
    ensure!(
        unneeded.is_none(),
        "{name} contains {}",
        unneeded.map_or("", String::as_str)
    );
    Ok(())
}

/// Builds the command and a program that records, in an empty folder outside of the checkout where the packages
/// stand in for crates.io. Then the command reads what the program recorded.
fn build_from(home: &Path, made: &[(String, PathBuf)]) -> Result<()> {
    let packages = home.join("packages");
    let mut patch = "[patch.crates-io]\n".to_owned();
    for (name, file) in made {
        archive::unpack(file, &packages.join(name))?;
        writeln!(patch, "{name} = {{ path = \"packages/{name}\" }}")?;
    }
    std::fs::create_dir(home.join(".cargo"))?;
    std::fs::write(home.join(".cargo/config.toml"), patch)?;
    let program = home.join("program");
    std::fs::create_dir_all(program.join("src"))?;
    let version = manifests::version()?;
    let manifest = format!(
        "[package]\nname = \"program\"\nedition = \"2024\"\n\n[dependencies]\nstepscope = \"{version}\"\n"
    );
    std::fs::write(program.join("Cargo.toml"), manifest)?;
    std::fs::write(program.join("src/main.rs"), PROGRAM)?;
    let target = shell::target_dir().join("from-packages");
    let cargo = |folder: &Path, command: &str| {
        let mut cargo = shell::cargo();
        cargo
            .arg(command)
            .arg("--quiet")
            .current_dir(folder)
            .env("CARGO_TARGET_DIR", &target);
        cargo
    };
    shell::run(&mut cargo(&packages.join("stepscope-cli"), "build"))?;
    shell::run(&mut cargo(&program, "run"))?;
    let command = target.join("debug/stepscope");
    carries_viewer(&command)?;
    let read = shell::output(
        shell::program(&command)
            .args(["report", "logs", "steps", "--no-cache"])
            .current_dir(&program),
    )?;
    ensure!(read.contains("3 steps"), "unexpected report: {read}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_unneeded_files_are_named() {
        let set = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
        let complete = [
            "Cargo.toml",
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "README.md",
            "src/lib.rs",
        ];
        assert!(check_files("stepscope-model", &set(&complete)).is_ok());
        let fault = |name: &str, files: &[&str]| {
            let error = check_files(name, &set(files)).unwrap_err();
            error.to_string()
        };
        assert!(fault("stepscope-model", &complete[1..]).contains("Cargo.toml"));
        let more = [&complete[..], &["tests/it/main.rs"]].concat();
        assert!(fault("stepscope-model", &more).contains("tests/it/main.rs"));
        assert!(fault("stepscope-mcp", &complete).contains("embedded/definitions.md"));
        assert!(fault("stepscope-server", &complete).contains("example recording"));
        let example = "embedded/example/a.xplane.pb";
        let more = [&complete[..], &[example, "build.rs"]].concat();
        assert!(fault("stepscope-server", &more).contains("embedded/viewer/index.html"));
    }
}
