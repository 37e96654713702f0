//! Public types have a name of their own in the workspace: a reader finds the type that a name means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::part::Outcome;
use crate::{laws, shell};

/// Names that several public types have, with their number and the reason. No new one belongs here.
const SHARED: &[(&str, usize, &str)] = &[
    (
        "Allocation",
        2,
        "of a compiled program, and of a recorded program",
    ),
    ("ArgValue", 2, "what programs pass, and what traces hold"),
    ("AtLimit", 2, "the recorder's option, and the command's"),
    ("By", 2, "groupings: ops::By, kernels::By"),
    (
        "Category",
        2,
        "kineto's of events, and torch's of allocations",
    ),
    ("Cause", 2, "of idle time, and of a finding"),
    ("Cell", 2, "of the ranks' matrix, and of a report's table"),
    ("Change", 2, "of a memory plan, and of a what-if question"),
    ("Confidence", 2, "of an edge of the graph, and of a finding"),
    ("Device", 2, "torch's of a row, and one of a trace"),
    ("Engine", 2, "opens runs; a unit of a device"),
    ("Format", 2, "of a file, and of the command's output"),
    ("Graph", 2, "of kernels, and of the critical path"),
    ("Grouping", 2, "torch's of averages, and of an op profile"),
    ("Instruction", 3, "as read, as kept, and as counted"),
    ("Measure", 2, "of ranks, and of a comparison"),
    ("NodeKind", 2, "of a drawn graph, and of an op profile"),
    ("Occurrence", 2, "of an operation, and of a kernel"),
    ("OpClass", 3, "for colours, for shares, and for costs"),
    ("Phase", 3, "of a step, of an owner, and of memory"),
    ("Program", 2, "as kept, and as analysed"),
    ("Role", 2, "of an execution, and of an iteration"),
    ("Run", 2, "an opened one, and the arguments of `run`"),
    (
        "ServerError",
        2,
        "of the profiler server, and of the viewer",
    ),
    (
        "ServerOptions",
        2,
        "of the profiler server, and of the viewer",
    ),
    ("Shape", 2, "of an array, and of a launch"),
    ("SlowStep", 2, "the recorder's option, and a found step"),
    ("Stage", 2, "of a capture, and of an input pipeline"),
    ("StepTimes", 2, "of the program itself, and of a trace"),
    ("Verdict", 2, "on the input, and on a comparison"),
    ("Work", 2, "of an instruction, and on a device"),
];

/// Fails where two public types have one name that [`SHARED`] does not list, and where its entry is stale.
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
        let shared = SHARED.iter().find(|(shared, ..)| shared == name);
        let allowed = shared.map_or(1, |(_, number, _)| *number);
        if places.len() > allowed {
            faults.push(format!(
                "{} types are called {name}: {}\n    Name each after what it holds.",
                places.len(),
                places.join(", ")
            ));
        }
    }
    for (name, number, _) in SHARED {
        let present = found.get(*name).map_or(0, Vec::len);
        if present < *number {
            faults.push(format!(
                "{present} types are called {name}: correct its entry in xtask/src/type_names.rs"
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
