//! Sibling modules do not import each other in a circle.
//!
//! Rust compiles such circles, and a reader then finds no module to begin with. The check reads
//! `crate::…` and `super::…` paths outside of tests and comments; a parent and its children may
//! import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::part::Outcome;
use crate::shell;

/// A folder of modules, and the path that its modules have in `use`.
const FOLDERS: &[(&str, &str)] = &[
    ("crates/stepscope-analysis/src", "crate"),
    ("crates/stepscope-compat/src", "crate"),
    ("crates/stepscope-report/src", "crate"),
    ("crates/stepscope-server/src", "crate"),
    ("crates/stepscope-remote/src", "crate"),
    ("crates/stepscope-formats/src", "crate"),
];

/// Fails where siblings import each other in a circle.
pub(crate) fn check() -> Result<Outcome> {
    let mut faults = Vec::new();
    for (folder, prefix) in FOLDERS {
        let modules = modules(&shell::root().join(folder))?;
        let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (module, files) in &modules {
            let used = imports.entry(module).or_default();
            for file in files {
                let text = String::from_utf8_lossy(&shell::read(file)?).into_owned();
                used.extend(used_siblings(&without_tests(&text), prefix));
            }
            used.retain(|other| other != module && modules.contains_key(other));
        }
        for circle in circles(&imports) {
            faults.push(format!(
                "{folder}: {} import each other in a circle\n    Move what both sides need to a module that imports neither.",
                circle.join(", ")
            ));
        }
    }
    crate::laws::report(faults)
}

/// The files of each module of a folder, by the module's name.
fn modules(folder: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut files = Vec::new();
    shell::collect(folder, &[], &mut files)?;
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        let is_test = file
            .file_stem()
            .is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        let Ok(below) = file.strip_prefix(folder) else {
            continue;
        };
        let Some(first) = below.iter().next() else {
            continue;
        };
        let name = first.to_string_lossy().trim_end_matches(".rs").to_owned();
        if is_rust && !is_test && !["lib", "mod", "main"].contains(&name.as_str()) {
            modules.entry(name).or_default().push(file);
        }
    }
    Ok(modules)
}

/// The text without comments and without the tests at its end.
fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The names behind `prefix::`, also within braces: `crate::{steps::StepRow, ops}` uses both.
fn used_siblings(code: &str, prefix: &str) -> BTreeSet<String> {
    let name = |text: &str| {
        let letters = text.trim_start().chars();
        letters
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect::<String>()
    };
    let mut found = BTreeSet::new();
    for after in code.split(&format!("{prefix}::")).skip(1) {
        let Some(group) = after.strip_prefix('{') else {
            found.insert(name(after));
            continue;
        };
        let mut depth = 0;
        let mut from = 0;
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    found.insert(name(&group[from..at]));
                    break;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.insert(name(&group[from..at]));
                    from = at + 1;
                }
                _ => {}
            }
        }
    }
    found
}

/// The modules that reach each other, in groups of two or more.
fn circles(imports: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.to_owned()];
        while let Some(module) = open.pop() {
            for next in imports.get(module.as_str()).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<String>> = imports
        .keys()
        .map(|module| (*module, reached(module)))
        .collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, from) in &all {
        if from.contains(*module) {
            let group = from.iter().filter(|other| {
                all.get(other.as_str())
                    .is_some_and(|back| back.contains(*module))
            });
            groups.insert(group.cloned().collect());
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_reach_each_other_are_one_circle() {
        let imports: BTreeMap<&str, BTreeSet<String>> = [
            ("a", vec!["b"]),
            ("b", vec!["c"]),
            ("c", vec!["a"]),
            ("d", vec!["a"]),
        ]
        .into_iter()
        .map(|(module, used)| (module, used.into_iter().map(str::to_owned).collect()))
        .collect();
        assert_eq!(circles(&imports), [["a", "b", "c"]]);
    }

    #[test]
    fn names_within_braces_are_uses() {
        let code = "use crate::{steps::{self, StepRow}, ops};\nlet x = crate::names::folded(y);";
        let used: Vec<String> = used_siblings(code, "crate").into_iter().collect();
        assert_eq!(used, ["names", "ops", "steps"]);
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let text = "// crate::a\nuse crate::b;\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n";
        let used: Vec<String> = used_siblings(&without_tests(text), "crate")
            .into_iter()
            .collect();
        assert_eq!(used, ["b"]);
    }
}
