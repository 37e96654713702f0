//! Rules for `Cargo.toml` and `pyproject.toml` of what is published.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{laws, shell};

/// A package of the workspace, as `cargo metadata` describes it.
struct Package(Value);

impl Package {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn list(&self, key: &str) -> &[Value] {
        self.0[key].as_array().map_or(&[], Vec::as_slice)
    }

    fn is_published(&self) -> bool {
        // An empty list of registries is `publish = false`.
        self.0["publish"].is_null()
    }
}

fn packages() -> Result<Vec<Package>> {
    let text = shell::output(shell::cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let mut metadata: Value = serde_json::from_str(&text)?;
    let Value::Array(packages) = metadata["packages"].take() else {
        bail!("cargo metadata lists no packages");
    };
    Ok(packages.into_iter().map(Package).collect())
}

/// Returns the names of the crates that are published.
pub(super) fn published() -> Result<Vec<String>> {
    let packages = packages()?;
    let published = packages.iter().filter(|package| package.is_published());
    Ok(published
        .map(|package| package.text("name").to_owned())
        .collect())
}

/// Returns the version that all crates share.
pub(super) fn version() -> Result<String> {
    let packages = packages()?;
    let command = packages
        .iter()
        .find(|package| package.text("name") == "stepscope-cli");
    Ok(command
        .context("there is no stepscope-cli")?
        .text("version")
        .to_owned())
}

/// Checks that a tag names the version, and that the changelog has a section of it.
pub(super) fn check_tag(tag: &str) -> Result<()> {
    let version = version()?;
    ensure!(
        tag.strip_prefix('v') == Some(version.as_str()),
        "the tag {tag} does not name the version: v{version}"
    );
    let changelog = shell::read(&shell::root().join("CHANGELOG.md"))?;
    let heading = format!("\n## {version}\n");
    ensure!(
        String::from_utf8_lossy(&changelog).contains(&heading),
        "CHANGELOG.md has no section '## {version}'"
    );
    Ok(())
}

/// Checks all manifests.
pub(super) fn check() -> Result<()> {
    let packages = packages()?;
    let published: BTreeSet<&str> = packages
        .iter()
        .filter(|package| package.is_published())
        .map(|package| package.text("name"))
        .collect();
    let mut faults = Vec::new();
    for package in &packages {
        let manifest = package.text("manifest_path");
        if !package.is_published() {
            continue;
        }
        if manifest.contains("/crates/") {
            check_published(package, &published, &mut faults)?;
        } else {
            faults.push(format!(
                "{manifest}: set publish = false: only crates/ is published"
            ));
        }
    }
    check_python(&version()?, &mut faults)?;
    laws::report(faults).map(|_ok| ())
}

/// Adds what a published crate lacks.
fn check_published(
    package: &Package,
    published: &BTreeSet<&str>,
    faults: &mut Vec<String>,
) -> Result<()> {
    let name = package.text("name");
    let mut add = |fault: String| faults.push(format!("{name}: {fault}"));
    for key in [
        "description",
        "license",
        "repository",
        "readme",
        "rust_version",
    ] {
        if package.text(key).is_empty() {
            add(format!("Cargo.toml has no {key}"));
        }
    }
    // Limits of crates.io.
    let keywords = package.list("keywords");
    if keywords.is_empty() || keywords.len() > 5 {
        add(format!("{} keywords; give one to five", keywords.len()));
    }
    if package.list("categories").is_empty() {
        add("Cargo.toml has no categories".to_owned());
    }
    for dependency in package.list("dependencies") {
        if dependency["path"].is_null() {
            continue;
        }
        let other = dependency["name"].as_str().unwrap_or_default();
        let has_version = dependency["req"] != "*";
        // Dev-dependencies point up: with a version, no order of publishing would be possible. Cargo leaves
        // those without a version out of the package.
        if dependency["kind"] == "dev" {
            if has_version {
                add(format!(
                    "name the dev-dependency {other} by its path, without a version"
                ));
            }
        } else if !has_version || !published.contains(other) {
            add(format!("{other} is no published dependency with a version"));
        }
    }
    let features = package.0["features"].as_object().context("no features")?;
    let features: Vec<&str> = features
        .keys()
        .map(String::as_str)
        .filter(|feature| *feature != "default")
        .collect();
    if features.is_empty() {
        return Ok(());
    }
    if package.0["metadata"]["docs"]["rs"]["all-features"] != true {
        add(
            "docs.rs would leave features out: set all-features in [package.metadata.docs.rs]"
                .to_owned(),
        );
    }
    let library = std::path::Path::new(package.text("manifest_path")).with_file_name("src/lib.rs");
    let library = String::from_utf8(shell::read(&library)?)?;
    let docs: Vec<&str> = library
        .lines()
        .filter(|line| line.starts_with("//!"))
        .collect();
    let docs = docs.join("\n");
    for feature in features {
        if !docs.contains(&format!("`{feature}`")) {
            add(format!(
                "the documentation of src/lib.rs does not describe the feature '{feature}'"
            ));
        }
    }
    Ok(())
}

/// Adds where the Python packages and the SQL engine name another version.
fn check_python(version: &str, faults: &mut Vec<String>) -> Result<()> {
    for (file, line) in [
        ("pyproject.toml", format!("\"stepscope-sql=={version}\"")),
        ("sql/Cargo.toml", format!("\nversion = \"{version}\"\n")),
    ] {
        let text = shell::read(&shell::root().join(file))?;
        if !String::from_utf8_lossy(&text).contains(&line) {
            faults.push(format!(
                "{file} does not name the version {version}: {}",
                line.trim()
            ));
        }
    }
    Ok(())
}
