//! Sibling modules do not import each other in a circle.
//!
//! Rust compiles such circles, and a reader then finds no module to begin with. The check reads the
//! `crate::`, `super::` and `self::` paths of every crate outside of tests and comments. In each
//! folder of modules, an import is an edge between two children of that folder; a parent and its
//! children may import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::part::Outcome;
use crate::shell;

/// The names from the root of the crate to a module or to an item.
type ModulePath = Vec<String>;

/// Which children of one folder import which.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Fails where siblings import each other in a circle.
pub(crate) fn check() -> Result<Outcome> {
    let mut faults = Vec::new();
    let crates = std::fs::read_dir(shell::root().join("crates")).context("cannot list crates")?;
    let mut folders = vec![shell::root().join("sql")];
    for entry in crates {
        folders.push(entry?.path());
    }
    for source in folders.iter().map(|folder| folder.join("src")) {
        let mut files = Vec::new();
        shell::collect(&source, &["bin", "tests"], &mut files)?;
        let mut modules = Vec::new();
        for file in files {
            if let Some(path) = module_path(file.strip_prefix(&source)?) {
                let text = String::from_utf8_lossy(&shell::read(&file)?).into_owned();
                let imports = imports(&without_tests(&text), &path);
                modules.push((path, imports));
            }
        }
        for (folder, imports) in edges(&modules) {
            let folder = folder
                .iter()
                .fold(source.clone(), |path, name| path.join(name));
            for circle in circles(&imports) {
                faults.push(format!(
                    "{}: {} import each other in a circle\n    Move what both sides need to a module that imports neither.",
                    folder.strip_prefix(shell::root())?.display(),
                    circle.join(", ")
                ));
            }
        }
    }
    crate::laws::report(faults)
}

/// Returns the module of a file by its path below `src`: none for tests and other files.
fn module_path(file: &Path) -> Option<ModulePath> {
    let stem = file.file_stem()?.to_str()?;
    if file.extension()? != "rs" || stem.ends_with("tests") {
        return None;
    }
    let names = file.with_extension("");
    let mut path: ModulePath = names
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if ["lib", "mod", "main"].contains(&stem) {
        path.pop();
    }
    Some(path)
}

/// Returns the text without comments and without the tests at its end.
fn without_tests(text: &str) -> String {
    let end = text.match_indices("#[cfg(test)]\nmod ").find(|(at, _)| {
        let line = text.get(*at..).and_then(|rest| rest.lines().nth(1));
        line.is_some_and(|line| line.ends_with('{'))
    });
    let code = end.and_then(|(at, _)| text.get(..at)).unwrap_or(text);
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paths that the code of `module` names, from the root of the crate.
fn imports(code: &str, module: &[String]) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for keyword in ["crate", "self", "super"] {
        for (at, _) in code.match_indices(&format!("{keyword}::")) {
            let before = code.get(..at).unwrap_or_default();
            // Not the end of another path or word: `super::super::name`, `$crate::name`.
            if before.ends_with(|letter: char| {
                letter == ':' || letter == '_' || letter.is_alphanumeric()
            }) {
                continue;
            }
            let mut written = Vec::new();
            leaves(code.get(at..).unwrap_or_default(), &[], &mut written);
            found.extend(written.iter().map(|path| absolute(path, module)));
        }
    }
    found
}

/// Collects the paths of a use tree: `a::{b::c, d}` names `a::b::c` and `a::d`.
fn leaves(text: &str, prefix: &[String], found: &mut Vec<ModulePath>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let mut depth = 0_usize;
        let mut from = 0;
        for (at, letter) in group.char_indices() {
            let ends = depth == 0 && (letter == ',' || letter == '}');
            if ends {
                leaves(group.get(from..at).unwrap_or_default(), prefix, found);
                from = at + 1;
            }
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => return,
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let end = text
        .find(|letter: char| letter != '_' && !letter.is_alphanumeric())
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut path = prefix.to_vec();
    if !name.is_empty() {
        path.push(name.to_owned());
    }
    match rest.strip_prefix("::") {
        Some(rest) => leaves(rest, &path, found),
        None => found.push(path),
    }
}

/// Resolves a path that begins with `crate`, `self` or `super` in `module`.
fn absolute(path: &[String], module: &[String]) -> ModulePath {
    let mut resolved = module.to_vec();
    for name in path {
        match name.as_str() {
            "crate" => resolved.clear(),
            "self" => {}
            "super" => drop(resolved.pop()),
            _ => resolved.push(name.clone()),
        }
    }
    resolved
}

/// Returns, for each folder of modules, which of its children import which.
fn edges(modules: &[(ModulePath, Vec<ModulePath>)]) -> BTreeMap<ModulePath, Imports> {
    let known: BTreeSet<&[String]> = modules
        .iter()
        .flat_map(|(path, _)| (1..=path.len()).filter_map(|length| path.get(..length)))
        .collect();
    let mut folders: BTreeMap<ModulePath, Imports> = BTreeMap::new();
    for (module, imports) in modules {
        for import in imports {
            let common = module
                .iter()
                .zip(import)
                .take_while(|(a, b)| a == b)
                .count();
            let (Some(sibling), Some(imported)) = (module.get(common), import.get(common)) else {
                continue;
            };
            if import
                .get(..=common)
                .is_some_and(|path| known.contains(path))
            {
                let folder = module.get(..common).unwrap_or_default().to_vec();
                let of_folder = folders.entry(folder).or_default();
                let used = of_folder.entry(sibling.clone()).or_default();
                used.insert(imported.clone());
            }
        }
    }
    folders
}

/// Returns the modules that reach each other, in groups of two or more.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.to_owned()];
        while let Some(module) = open.pop() {
            for next in imports.get(&module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let all: Imports = imports
        .keys()
        .map(|module| (module.clone(), reached(module)))
        .collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, from) in &all {
        if from.contains(module) {
            let group = from
                .iter()
                .filter(|other| all.get(*other).is_some_and(|back| back.contains(module)));
            groups.insert(group.cloned().collect());
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ModulePath {
        text.split("::").map(str::to_owned).collect()
    }

    fn imports_of(code: &str, module: &str) -> Vec<String> {
        let found = imports(&without_tests(code), &path(module));
        found.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn modules_that_reach_each_other_are_one_circle() {
        let imports: Imports = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
            .into_iter()
            .map(|(module, used)| (module.to_owned(), BTreeSet::from([used.to_owned()])))
            .collect();
        assert_eq!(circles(&imports), [["a", "b", "c"]]);
    }

    #[test]
    fn imports_resolve_groups_and_parents() {
        let code = "use crate::{steps::{self, StepRow}, ops};\nuse super::super::lines::Line;";
        assert_eq!(
            imports_of(code, "read::index::rows"),
            ["steps", "steps::StepRow", "ops", "read::lines::Line"]
        );
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let code = "// crate::a\n#[cfg(test)]\nmod cases;\nuse crate::b;\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n";
        assert_eq!(imports_of(code, "m"), ["b"]);
    }

    #[test]
    fn siblings_of_an_inner_folder_are_edges_of_that_folder() {
        let modules = [
            (path("read::a"), vec![path("read::b::Item"), path("write")]),
            (
                path("read::b"),
                vec![path("read::a::other"), path("read::Shared")],
            ),
            (path("write"), vec![path("Error")]),
        ];
        let folders = edges(&modules);
        let names: Vec<String> = folders.keys().map(|folder| folder.join("::")).collect();
        assert_eq!(names, ["", "read"]);
        assert_eq!(circles(&folders[&path("read")]), [["a", "b"]]);
        assert!(circles(&folders[&Vec::new()]).is_empty());
    }
}
