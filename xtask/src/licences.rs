//! The licences and sources of the dependencies, of the main workspace and of the SQL engine's, by `deny.toml`.
//!
//! `cargo deny check` reads the same file, and compares with the advisory database too. It need not be installed for
//! this check, which reads what `cargo metadata` says.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::part::Outcome;
use crate::{laws, shell};

/// The only registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// What packages are made for.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Checks the licences and sources of all dependencies.
pub(crate) fn check() -> Result<Outcome> {
    let rules = Rules::read(&shell::root().join("deny.toml"))?;
    let mut faults = Vec::new();
    for manifest in ["Cargo.toml", "sql/Cargo.toml"] {
        let found = shell::output(
            shell::cargo()
                .args(["metadata", "--format-version", "1", "--locked"])
                .args(["--all-features", "--filter-platform", PLATFORM])
                .args(["--manifest-path", manifest]),
        )?;
        let found: Value = serde_json::from_str(&found).context("cargo metadata")?;
        let packages = found["packages"].as_array().into_iter().flatten();
        let fault = |package| {
            rules
                .fault(package)
                .map(|text| format!("{manifest}: {text}"))
        };
        faults.extend(packages.filter_map(fault));
    }
    laws::report(faults)
}

/// What `deny.toml` permits.
#[derive(Debug, Default)]
struct Rules {
    licences: Vec<String>,
    /// Licence and crate.
    exceptions: Vec<(String, String)>,
}

impl Rules {
    fn read(path: &Path) -> Result<Self> {
        let rules = Self::parse(&String::from_utf8(shell::read(path)?)?);
        anyhow::ensure!(!rules.licences.is_empty(), "deny.toml permits no licence");
        Ok(rules)
    }

    /// Reads the section `licenses`: a licence or an exception on each line.
    fn parse(text: &str) -> Self {
        let mut rules = Self::default();
        let section = text.split("\n[").find(|part| part.starts_with("licenses]"));
        for line in section.unwrap_or_default().lines() {
            let line = line.trim();
            let mut texts = line.split('"').skip(1).step_by(2);
            if line.starts_with('"') {
                rules.licences.extend(texts.next().map(str::to_owned));
            } else if line.starts_with("{ allow") {
                let named = texts.next().zip(texts.next());
                let named = named.map(|(licence, name)| (licence.to_owned(), name.to_owned()));
                rules.exceptions.extend(named);
            }
        }
        rules
    }

    /// Returns what is wrong with a package; nothing for one of ours.
    fn fault(&self, package: &Value) -> Option<String> {
        let source = package["source"].as_str()?;
        let name = package["name"].as_str().unwrap_or_default();
        if source != REGISTRY {
            return Some(format!(
                "{name} is from {source}: deny.toml permits crates.io only"
            ));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        let permits = |one: &str| {
            let excepted = |(licence, of): &(String, String)| licence == one && of == name;
            self.licences.iter().any(|known| known == one) || self.exceptions.iter().any(excepted)
        };
        (!is_met(licence, &permits))
            .then(|| format!("{name} has the licence '{licence}', which deny.toml does not permit"))
    }
}

/// Returns whether a licence expression, such as `MIT OR (Apache-2.0 AND ISC)`, is met by permitted licences.
fn is_met(expression: &str, permits: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = &words[..];
    let met = any(&mut words, permits);
    met && words.is_empty()
}

/// Alternatives.
fn any(words: &mut &[&str], permits: &dyn Fn(&str) -> bool) -> bool {
    let mut met = all(words, permits);
    while let ["OR", rest @ ..] = words {
        *words = rest;
        met |= all(words, permits);
    }
    met
}

/// Licences that hold together.
fn all(words: &mut &[&str], permits: &dyn Fn(&str) -> bool) -> bool {
    let mut met = one(words, permits);
    while let ["AND", rest @ ..] = words {
        *words = rest;
        met &= one(words, permits);
    }
    met
}

/// A licence, with an exception or without, or an expression in parentheses.
fn one(words: &mut &[&str], permits: &dyn Fn(&str) -> bool) -> bool {
    match words {
        ["(", rest @ ..] => {
            *words = rest;
            let met = any(words, permits);
            let [")", rest @ ..] = words else {
                return false;
            };
            *words = rest;
            met
        }
        [licence, "WITH", exception, rest @ ..] => {
            let met = permits(&format!("{licence} WITH {exception}"));
            *words = rest;
            met
        }
        [licence, rest @ ..] => {
            let met = permits(licence);
            *words = rest;
            met
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_permitted_licences() {
        let permits = |one: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&one);
        for (expression, met) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND ISC", true),
            ("(GPL-3.0 OR MIT) AND ISC", true),
            ("GPL-3.0 OR (MIT AND Zlib)", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("Apache-2.0", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(is_met(expression, &permits), met, "{expression}");
        }
    }

    #[test]
    fn rules_of_the_repository_are_read() {
        let rules = Rules::read(&shell::root().join("deny.toml")).unwrap();
        assert!(rules.licences.iter().any(|one| one == "MIT"), "{rules:?}");
        let notify = ("CC0-1.0".to_owned(), "notify".to_owned());
        assert!(rules.exceptions.contains(&notify), "{rules:?}");
        let package = |name: &str, licence: &str| serde_json::json!({"name": name, "license": licence, "source": REGISTRY});
        assert_eq!(rules.fault(&package("notify", "CC0-1.0")), None);
        assert!(rules.fault(&package("other", "CC0-1.0")).is_some());
        assert!(rules.fault(&package("other", "GPL-3.0-only")).is_some());
        let own = serde_json::json!({"name": "stepscope", "license": null, "source": null});
        assert_eq!(rules.fault(&own), None);
        let forked =
            serde_json::json!({"name": "x", "license": "MIT", "source": "git+https://host/x"});
        assert!(rules.fault(&forked).unwrap().contains("crates.io only"));
    }
}
