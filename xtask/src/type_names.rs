//! Public types have a name of their own in the workspace: a reader finds the type that a name means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::part::Outcome;
use crate::{laws, shell};

/// Fails where two public types have one name.
pub(crate) fn check() -> Result<Outcome> {
    let root = shell::root();
    let mut files = Vec::new();
    shell::collect(&root.join("crates"), &["target"], &mut files)?;
    files.sort();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_product_code(file)) {
        let text = String::from_utf8_lossy(&shell::read(file)?).into_owned();
        if text.starts_with("// This file is @generated") {
            continue;
        }
        let shown = file.strip_prefix(&root).unwrap_or(file).display();
        for name in public_types(&text) {
            found
                .entry(name.to_owned())
                .or_default()
                .push(shown.to_string());
        }
    }
    let mut faults = Vec::new();
    for (name, places) in &found {
        if places.len() > 1 {
            faults.push(format!(
                "{} types are called {name}: {}\n    Name each after what it holds.",
                places.len(),
                places.join(", ")
            ));
        }
    }
    laws::report(faults)
}

fn is_product_code(file: &Path) -> bool {
    let components: PathBuf = file
        .components()
        .skip_while(|one| one.as_os_str() != "src")
        .collect();
    let is_test = components
        .components()
        .any(|one| one.as_os_str().to_string_lossy().starts_with("tests"));
    !components.as_os_str().is_empty()
        && !is_test
        && file.extension().is_some_and(|extension| extension == "rs")
}

/// Lists the types that a file declares with `pub` outside of other items.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("pub ")?.split_whitespace();
        let keyword = words.find(|word| *word != "unsafe")?;
        let is_type = ["struct", "enum", "union", "trait", "type"].contains(&keyword);
        let name = words.next().filter(|_| is_type)?;
        name.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
            .next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_types_outside_of_items_are_found() {
        let text = "pub struct Row<'a> {\npub(crate) enum Cell {\n    pub struct Inner;\npub unsafe trait Share: Send {\npub fn f() {}\npub type Ticks = u64;\n";
        let found: Vec<&str> = public_types(text).collect();
        assert_eq!(found, ["Row", "Share", "Ticks"]);
    }

    #[test]
    fn tests_are_no_product_code() {
        for (path, expected) in [
            ("/r/crates/a/src/b.rs", true),
            ("/r/crates/a/src/b/tests.rs", false),
            ("/r/crates/a/tests/it/main.rs", false),
            ("/r/crates/a/src/c.md", false),
        ] {
            assert_eq!(is_product_code(Path::new(path)), expected, "{path}");
        }
    }
}
