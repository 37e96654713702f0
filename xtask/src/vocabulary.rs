//! Names and words that `docs/glossary.md` retires do not come back.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::part::Outcome;
use crate::{laws, shell};

/// The lists of the glossary, by the heading above each.
struct Retired {
    /// Types, functions and modules of no code.
    names: BTreeSet<String>,
    /// Types that say nothing.
    types: BTreeSet<String>,
    /// Words that no document uses.
    words: BTreeSet<String>,
}

impl Retired {
    fn read() -> Result<Self> {
        let text = shell::read(&shell::root().join("docs/glossary.md"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let list = |heading: &str| -> Result<BTreeSet<String>> {
            let section = text.split(&format!("## {heading}\n")).nth(1);
            let section = section.and_then(|rest| rest.split("\n## ").next());
            // Every second part between backquotes is a name.
            let names = section.unwrap_or_default().split('`').skip(1).step_by(2);
            let names: BTreeSet<String> = names.map(str::to_owned).collect();
            if names.is_empty() {
                bail!("docs/glossary.md has no list below \"{heading}\"");
            }
            Ok(names)
        };
        Ok(Self {
            names: list("Retired names")?,
            types: list("Vague type names")?,
            words: list("Words that documents avoid")?,
        })
    }

    fn has_name(&self, name: &str) -> bool {
        is_listed(&self.names, name)
    }

    /// A function's name must be a listed one exactly: `moments` is a word of statistics, `Moments` a retired type.
    fn has_declaration(&self, what: Declaration, name: &str) -> bool {
        match what {
            Declaration::Type => self.has_name(name) || is_listed(&self.types, name),
            Declaration::Function => self.names.contains(name),
        }
    }
}

/// Returns whether a list has a name, in any case: `tally` retires the type `Tally` too.
fn is_listed(names: &BTreeSet<String>, name: &str) -> bool {
    names.iter().any(|listed| listed.eq_ignore_ascii_case(name))
}

/// Fails where a retired name, a vague type or a function called `of` is declared, and where a document,
/// the name of a function or a text of a program uses a word that documents avoid.
pub(crate) fn check() -> Result<Outcome> {
    let retired = Retired::read()?;
    let root = shell::root();
    let mut faults = Vec::new();
    for file in laws::sources()? {
        let shown = file.strip_prefix(&root).unwrap_or(&file);
        let shown = shown.display().to_string();
        // The tests of this file declare what it refuses.
        if shown == "xtask/src/vocabulary.rs" {
            continue;
        }
        let Ok(text) = String::from_utf8(shell::read(&file)?) else {
            continue;
        };
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        if retired.has_name(&stem) {
            faults.push(format!("{shown}: the name {stem} is retired"));
        }
        for (number, line) in text.lines().enumerate() {
            for word in words_of_texts(line) {
                if retired.words.contains(&word) {
                    faults.push(format!("{shown}:{}: texts avoid '{word}'", number + 1));
                }
            }
            for (what, name) in declared(line) {
                let mut words = name.split('_');
                if let Some(word) = words.find(|word| retired.words.contains(*word)) {
                    faults.push(format!(
                        "{shown}:{}: the name {name} has '{word}', which documents avoid",
                        number + 1
                    ));
                }
                if retired.has_declaration(what, name) {
                    faults.push(format!(
                        "{shown}:{}: the name {name} is retired; docs/glossary.md says why",
                        number + 1
                    ));
                }
                if what == Declaration::Function && name == "of" {
                    faults.push(format!(
                        "{shown}:{}: a function called of: name it new, from_… or compute_…",
                        number + 1
                    ));
                }
            }
        }
    }
    for page in laws::pages()? {
        let shown = page.strip_prefix(&root).unwrap_or(&page);
        let shown = shown.display().to_string();
        if shown == "docs/glossary.md" {
            continue;
        }
        let text = String::from_utf8_lossy(&shell::read(&page)?).into_owned();
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let prose = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
            let words = prose.split(|letter: char| !letter.is_alphabetic());
            for word in words.filter(|_| !fenced).map(str::to_lowercase) {
                if retired.words.contains(&word) {
                    faults.push(format!("{shown}:{}: documents avoid '{word}'", number + 1));
                }
            }
        }
    }
    laws::report(faults)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declaration {
    Type,
    Function,
}

/// The words, in lower case, of the texts between double quotes in a line of code, without what `{}` inserts.
fn words_of_texts(line: &str) -> impl Iterator<Item = String> {
    let is_comment = line.trim_start().starts_with(['/', '*', '#']);
    let texts = line
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(move |_| !is_comment);
    let plain = texts.flat_map(|text| {
        let inserted = text.split('{').skip(1);
        let after = inserted.filter_map(|rest| Some(rest.split_once('}')?.1));
        text.split('{').take(1).chain(after)
    });
    plain
        .flat_map(|text| text.split(|letter: char| !letter.is_alphabetic()))
        .map(str::to_lowercase)
}

/// The types and functions that a line of Rust, TypeScript or Python declares.
fn declared(line: &str) -> Vec<(Declaration, &str)> {
    let mut found = Vec::new();
    let mut words = line
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .filter(|word| !word.is_empty());
    if line.trim_start().starts_with(['/', '*', '#', '"']) {
        return found;
    }
    let mut is_import = false;
    while let Some(word) = words.next() {
        is_import |= word == "import";
        let what = match word {
            "struct" | "enum" | "trait" | "class" | "interface" | "type" if !is_import => {
                Declaration::Type
            }
            "fn" | "def" | "function" => Declaration::Function,
            _ => continue,
        };
        if let Some(name) = words.next() {
            found.push((what, name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_files_are_refused_in_any_case() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let retired = Retired {
            names: list(&["tally", "Admission", "Moments"]),
            types: list(&["Place"]),
            words: BTreeSet::new(),
        };
        assert!(retired.has_name("admission"));
        for (what, name, expected) in [
            (Declaration::Type, "Tally", true),
            (Declaration::Type, "place", true),
            (Declaration::Function, "tally", true),
            (Declaration::Function, "moments", false),
            (Declaration::Function, "place", false),
        ] {
            assert_eq!(retired.has_declaration(what, name), expected, "{name}");
        }
    }

    #[test]
    fn words_of_texts_are_found_without_inserted_names() {
        let words = |line| words_of_texts(line).collect::<Vec<_>>();
        assert_eq!(
            words("f(said, \"Not {told} at all\");"),
            ["not", "", "", "at", "all"]
        );
        assert!(words("// \"told\"").is_empty());
    }

    #[test]
    fn declarations_of_three_languages_are_found() {
        for (line, expected) in [
            (
                "pub(crate) struct Place<'a> {",
                vec![(Declaration::Type, "Place")],
            ),
            (
                "    pub fn of(x: u8) -> Self {",
                vec![(Declaration::Function, "of")],
            ),
            ("export interface Sort {", vec![(Declaration::Type, "Sort")]),
            ("import { type Sort, Table } from './t.ts';", vec![]),
            ("class Told:", vec![(Declaration::Type, "Told")]),
            ("/// struct Place", vec![]),
        ] {
            assert_eq!(declared(line), expected, "{line}");
        }
    }
}
