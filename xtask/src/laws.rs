//! Repository rules, as checks whose messages describe the fix.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::part::Outcome;
use crate::shell;

/// Crate and floor; a crate may depend on strictly lower floors only. ARCHITECTURE.md, "Floors".
const FLOORS: &[(&str, u8)] = &[
    ("stepscope-model", 0),
    ("stepscope-formats", 1),
    ("stepscope-objects", 1),
    ("stepscope-store", 1),
    ("stepscope", 2),
    ("stepscope-hlo", 2),
    ("stepscope-collector", 3),
    ("stepscope-analysis", 3),
    ("stepscope-cupti", 4),
    ("stepscope-rocm", 4),
    ("stepscope-compat", 4),
    ("stepscope-report", 5),
    ("stepscope-remote", 6),
    ("stepscope-engine", 6),
    ("stepscope-mcp", 7),
    ("stepscope-server", 8),
    ("stepscope-cli", 9),
    ("stepscope-py", 10),
];

/// Heavy dependencies and the crates that fence them.
const FENCED: &[(&str, &[&str])] = &[
    (
        "tokio",
        &[
            "stepscope-objects",
            "stepscope-remote",
            "stepscope-server",
            "stepscope-cli",
        ],
    ),
    ("object_store", &["stepscope-objects"]),
    ("reqwest", &["stepscope-objects"]),
    ("axum", &["stepscope-server"]),
    ("tonic", &["stepscope-remote"]),
    ("clap", &["stepscope-cli"]),
    ("indicatif", &["stepscope-cli"]),
    // `stepscope-sql` has a workspace of its own, in `sql/` (ADR 0020).
    ("datafusion", &[]),
    ("arrow", &[]),
    ("rust-embed", &["stepscope-server"]),
    ("pyo3", &["stepscope-py"]),
    (
        "serde",
        &[
            // For `report/wire.rs` and `compare/wire.rs` alone: part "words", ADR 0017.
            "stepscope-report",
            "stepscope-engine",
            "stepscope-server",
            "stepscope-cli",
            "stepscope-remote",
        ],
    ),
];

/// Crates without any dependency outside the workspace.
const BARE: &[&str] = &["stepscope-model"];

/// Checks that no crate imports one of a higher or the same floor.
pub(crate) fn layers() -> Result<Outcome> {
    let text = shell::output(shell::cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let in_house = package["manifest_path"]
            .as_str()
            .is_some_and(|path| path.contains("/crates/"));
        if !in_house {
            continue;
        }
        let Some(floor) = floors.get(name) else {
            faults.push(format!(
                "{name} has no floor\n    Give it one in xtask/src/laws.rs and in ARCHITECTURE.md, with an ADR."
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Tests may import any crate.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let other = dependency["name"].as_str().unwrap_or_default();
            if let Some(other_floor) = floors.get(other)
                && other_floor >= floor
            {
                faults.push(format!(
                    "{name} (floor {floor}) imports {other} (floor {other_floor})\n    \
                     Pass what you need from above, or move the word one floor down. See ARCHITECTURE.md, \"Floors\"."
                ));
            }
            if let Some((_, allowed)) = FENCED.iter().find(|(fenced, _)| *fenced == other)
                && !allowed.contains(&name)
            {
                faults.push(format!(
                    "{name} depends on {other}, which only {} may\n    Keep it behind that crate, or open an ADR.",
                    allowed.join(", ")
                ));
            }
            if BARE.contains(&name) && !floors.contains_key(other) {
                faults.push(format!(
                    "{name} depends on {other}; it has no dependencies by decision"
                ));
            }
        }
    }
    report(faults)
}

/// Checks sources for forbidden words and misplaced code.
pub(crate) fn words() -> Result<Outcome> {
    let mut faults = Vec::new();
    let root = shell::root();
    for file in sources()? {
        let shown = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .display()
            .to_string();
        let Ok(text) = String::from_utf8(shell::read(&file)?) else {
            continue;
        };
        let is_rust = has_extension(&file, &["rs"]);
        // This file contains the forbidden words; generated code names its generator.
        if shown == "xtask/src/laws.rs" || text.starts_with("// This file is @generated") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let at = || format!("{shown}:{}", number + 1);
            if is_rust
                && [
                    "todo!(",
                    "unimplemented!(",
                    "// TODO",
                    "// FIXME",
                    "// HACK",
                ]
                .iter()
                .any(|mark| line.contains(mark))
            {
                faults.push(format!(
                    "{} is left open: finish it, or say it in an issue",
                    at()
                ));
            }
            let fenced = shown.starts_with("crates/stepscope-store/src")
                || shown.starts_with("crates/stepscope-model/src")
                || shown.starts_with("crates/stepscope-analysis/src")
                || shown.starts_with("crates/stepscope-compat/src")
                || (shown.starts_with("crates/stepscope-report/src")
                    && shown != "crates/stepscope-report/src/compare/wire.rs"
                    && shown != "crates/stepscope-report/src/report/wire.rs");
            if fenced && line.contains("Serialize") && !line.trim_start().starts_with("//") {
                faults.push(format!(
                    "{}: wire types live in server::wire, in the command line, and in stepscope_report::report::wire",
                    at()
                ));
            }
        }
        let stem = file
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        if ["utils", "util", "common", "helpers", "misc"].contains(&stem.as_str()) {
            faults.push(format!(
                "{shown}: there is no {stem}; name the file after what it holds"
            ));
        }
        if is_rust && shown.contains("/src/") && !text.trim_start().starts_with("//!") {
            faults.push(format!("{shown} has no description: start with a //! line"));
        }
        let lines = text.lines().count();
        let is_test = stem == "tests" || stem.contains(".test") || shown.contains("/tests/");
        let most_lines = if is_test { 1_000 } else { 700 };
        if has_extension(&file, &["rs", "ts", "tsx"])
            && shown.contains("/src/")
            && lines > most_lines
            && !text.contains("Why one file:")
        {
            faults.push(format!("{shown} has {lines} lines: look for the seam, or say in its doc \"Why one file: ...\""));
        }
    }
    report(faults)
}

/// All pages of documentation, sorted.
pub(crate) fn pages() -> Result<Vec<std::path::PathBuf>> {
    let root = shell::root();
    let mut pages = Vec::new();
    for place in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs",
        "crates",
        "ui",
        "fuzz",
        "sanitize",
        "examples",
        "benches",
        "tests",
    ] {
        shell::collect(
            &root.join(place),
            // `embedded` links to pages that are here already.
            &["node_modules", "dist", "target", "embedded"],
            &mut pages,
        )?;
    }
    pages.retain(|page| has_extension(page, &["md"]));
    pages.sort();
    Ok(pages)
}

/// Links between our pages lead somewhere, and the architecture page knows every crate.
pub(crate) fn docs() -> Result<Outcome> {
    let root = shell::root();
    let mut faults = Vec::new();
    for page in &pages()? {
        let text = String::from_utf8_lossy(&shell::read(page)?).into_owned();
        let folder = page.parent().unwrap_or(&root);
        for Link { path, heading } in links(&text) {
            let target = if path.is_empty() {
                page.clone()
            } else {
                folder.join(&path)
            };
            let shown = page.strip_prefix(&root).unwrap_or(page).display();
            if !target.exists() {
                faults.push(format!("{shown}: the link to {path} leads nowhere"));
            } else if !heading.is_empty() && has_extension(&target, &["md"]) {
                let target = String::from_utf8_lossy(&shell::read(&target)?).into_owned();
                if !anchors(&target).contains(&heading) {
                    faults.push(format!("{shown}: {path} has no heading #{heading}"));
                }
            }
        }
    }
    let architecture =
        String::from_utf8_lossy(&shell::read(&root.join("ARCHITECTURE.md"))?).into_owned();
    for (name, _) in FLOORS {
        if root.join("crates").join(name).exists() && !architecture.contains(&format!("`{name}`")) {
            faults.push(format!("ARCHITECTURE.md does not mention `{name}`"));
        }
    }
    report(faults)
}

/// Checks that the recorder and the Python package read the rank of a process and the number of ranks from the same
/// variables, in the same order.
pub(crate) fn launchers() -> Result<Outcome> {
    let recorder = "crates/stepscope/src/session/launcher_rank.rs";
    let package = "python/src/stepscope/recording/_ranks.py";
    let of_recorder = launcher_table(recorder, "const RANKS")?;
    let of_package = launcher_table(package, "_VARIABLES")?;
    let mut faults = Vec::new();
    if of_recorder != of_package {
        faults.push(format!(
            "{recorder} reads {of_recorder:?}, and {package} reads {of_package:?}\n    \
             Give both the same variables in the same order."
        ));
    }
    report(faults)
}

/// Reads the table with this beginning from a file of the checkout.
fn launcher_table(file: &str, beginning: &str) -> Result<Vec<[String; 2]>> {
    let text = String::from_utf8_lossy(&shell::read(&shell::root().join(file))?).into_owned();
    let variables = launcher_variables(&text, beginning);
    if variables.is_empty() {
        bail!("cannot compare the variables of launchers: {file} has no table '{beginning}'");
    }
    Ok(variables)
}

/// Returns the first two quoted words of each row of the table that begins with such a line.
fn launcher_variables(text: &str, beginning: &str) -> Vec<[String; 2]> {
    let table = text.lines().skip_while(|line| !line.starts_with(beginning));
    let rows = table.skip(1).take_while(|line| line.starts_with(' '));
    let variables = rows.filter_map(|row| {
        let mut words = row.split('"').skip(1).step_by(2);
        Some([words.next()?.to_owned(), words.next()?.to_owned()])
    });
    variables.collect()
}

/// A relative link: the path of a file, empty for the page itself, and the anchor of a heading or nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) path: String,
    pub(crate) heading: String,
}

/// Lists the relative Markdown links outside code fences.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let parts = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = parts.filter_map(|after| Some(after.split_once(')')?.0));
    let relative = targets.filter(|target| {
        !target.is_empty()
            && !target.contains("://")
            && !target.starts_with("mailto:")
            && !target.contains(' ')
    });
    let links = relative.map(|target| {
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        Link {
            path: path.to_owned(),
            heading: heading.to_owned(),
        }
    });
    links.collect()
}

/// Gives the lines outside code fences.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Lists the anchors of a page's headings, as GitHub and mdBook name them.
fn anchors(text: &str) -> std::collections::BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.trim())
    });
    let anchors = headings.map(|title| {
        let anchor: String = title
            .to_lowercase()
            .chars()
            .filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'))
            .map(|one| if one == ' ' { '-' } else { one })
            .collect();
        let count = counts.entry(anchor.clone()).or_default();
        *count += 1;
        match *count {
            1 => anchor,
            many => format!("{anchor}-{}", many - 1),
        }
    });
    anchors.collect()
}

pub(crate) fn sources() -> Result<Vec<std::path::PathBuf>> {
    let root = shell::root();
    let mut files = Vec::new();
    for place in [
        "crates",
        "sql",
        "xtask",
        "examples",
        "fuzz",
        "sanitize",
        "ui/src",
        "ui/scripts",
        "ui/tests-browser",
        "benches",
        "python",
        "tests/assistants",
        "tests/objects",
        "tests/peers",
        "tests/remote",
        "tests/support",
    ] {
        shell::collect(
            &root.join(place),
            &["node_modules", "dist", "target", "corpus"],
            &mut files,
        )?;
    }
    files.retain(|path| has_extension(path, &["rs", "ts", "tsx", "py", "mjs"]));
    files.sort();
    if files.is_empty() {
        bail!("no sources found below {}", root.display());
    }
    Ok(files)
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    path.extension()
        .is_some_and(|extension| known.iter().any(|one| extension == *one))
}

pub(crate) fn report(faults: Vec<String>) -> Result<Outcome> {
    if faults.is_empty() {
        return Ok(Outcome::Ok);
    }
    for fault in &faults {
        println!("  {fault}");
    }
    Err(anyhow::anyhow!("{} to fix", faults.len()))
        .context(faults.into_iter().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_outside_of_code_are_found() {
        let text =
            "[a](b.md#c) [d](#e) [f](https://g) [h](mailto:i)\n```\n[j](k.md)\n```\n![l](m.png)\n";
        let found: Vec<(String, String)> = links(text)
            .into_iter()
            .map(|link| (link.path, link.heading))
            .collect();
        let expected = [("b.md", "c"), ("", "e"), ("m.png", "")];
        let expected = expected.map(|(path, heading)| (path.to_owned(), heading.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn variables_of_launchers_are_read_from_their_tables() {
        let text = "TABLES = 1\nTABLE = (\n    (\"A\", \"B\", \"C\"),\n    (\"D\", \"E\"),\n)\n    (\"F\", \"G\"),\n";
        assert_eq!(
            launcher_variables(text, "TABLE ="),
            [["A", "B"], ["D", "E"]]
        );
        assert!(launcher_variables(text, "OTHER").is_empty());
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let text = "# A `--last`: b_c\n## Two\n```\n# no\n```\n## Two\n";
        let found: Vec<String> = anchors(text).into_iter().collect();
        assert_eq!(found, ["a---last-b_c", "two", "two-1"]);
    }
}
