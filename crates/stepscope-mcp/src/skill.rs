//! The skill: instructions for assistants that run commands, as files in the Agent Skills format.
//!
//! `SKILL.md` is read first; it names the files of `references/`. Each fact has one source: the rules are those of the
//! server's instructions, the kinds of reports come from their registry, and references are pages of the documentation.

use std::fmt::Write as _;

use stepscope_report::reports::KINDS;

use crate::documents;
use crate::instructions::RULES;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const SKILL: &str = include_str!("skill/SKILL.md");
const EXAMPLES: &str = include_str!("skill/examples.md");
/// Separates a file's text from the seal that follows it.
const SEAL: &str = "\n\n<!-- Written by stepscope ";

/// A page of the documentation that is a reference of the skill.
struct Reference {
    /// Path within the skill.
    path: &'static str,
    /// Path within the repository.
    page: &'static str,
    text: &'static str,
}

const REFERENCES: [Reference; 5] = [
    Reference {
        path: "references/definitions.md",
        page: "docs/reference/definitions.md",
        text: documents::DEFINITIONS,
    },
    Reference {
        path: "references/findings.md",
        page: "docs/reference/findings.md",
        text: documents::FINDINGS,
    },
    Reference {
        path: "references/reports.md",
        page: "docs/reference/reports.md",
        text: documents::REPORTS,
    },
    Reference {
        path: "references/sql.md",
        page: "docs/reference/sql.md",
        text: documents::SQL,
    },
    Reference {
        path: "references/sql_examples.md",
        page: "docs/guide/sql.md",
        text: documents::SQL_GUIDE,
    },
];

/// A file of the skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// Path in the skill's folder, which must be called `stepscope`: the format asks for the skill's name.
    pub path: &'static str,
    /// Markdown; the last line is a seal, see [`is_as_written`].
    pub text: String,
}

/// Returns the files of the skill, `SKILL.md` first.
pub fn skill_files() -> Vec<SkillFile> {
    let skill = SKILL
        .replace("{version}", VERSION)
        .replace("{rules}", &rules())
        .replace("{reports}", &reports());
    let file = |path, text: &str| SkillFile {
        path,
        text: sealed(text),
    };
    let references = REFERENCES.iter();
    let references = references.map(|one| file(one.path, &with_links(one.page, one.text)));
    [
        file("SKILL.md", &skill),
        file("references/examples.md", EXAMPLES),
    ]
    .into_iter()
    .chain(references)
    .collect()
}

/// Returns whether a file has the text that this or another version of [`skill_files`] gave it: nobody has changed it.
pub fn is_as_written(text: &str) -> bool {
    let Some((body, seal)) = text.rsplit_once(SEAL) else {
        return false;
    };
    let written = seal
        .trim_end()
        .strip_suffix(" -->")
        .and_then(|seal| seal.rsplit_once(", checksum "));
    written.is_some_and(|(_version, written)| written == checksum(body))
}

/// Adds the seal to a text.
fn sealed(text: &str) -> String {
    let body = text.trim_end();
    format!("{body}{SEAL}{VERSION}, checksum {} -->\n", checksum(body))
}

fn checksum(body: &str) -> String {
    format!("{:08x}", crc32fast::hash(body.as_bytes()))
}

/// Returns the rules as a list.
fn rules() -> String {
    let rules = RULES.map(|rule| format!("* {rule}"));
    rules.join("\n")
}

/// Returns the kinds of reports as a table.
fn reports() -> String {
    let mut table = String::from("| kind | question | `--by` |\n|---|---|---|");
    for kind in KINDS {
        let by = kind.by.join(", ");
        let _ = write!(table, "\n| `{}` | {} | {by} |", kind.name, kind.question);
    }
    table
}

/// Leads the relative links of a page of the documentation to the files of the skill, and others to the repository.
fn with_links(page: &str, text: &str) -> String {
    let parts = text.split("```").enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => relinked(page, part),
        // A block of code.
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("```")
}

/// Does so for a text without blocks of code.
fn relinked(page: &str, prose: &str) -> String {
    let mut relinked = String::new();
    let mut rest = prose;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, tail)) = after.split_once(')') else {
            break;
        };
        let _ = write!(relinked, "{before}]({})", link(page, target));
        rest = tail;
    }
    relinked + rest
}

/// Returns the link of the skill in place of that of a page.
fn link(page: &str, target: &str) -> String {
    if target.starts_with('#') || target.contains("://") {
        return target.to_owned();
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (target, String::new()),
    };
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let path = parts.join("/");
    let reference = REFERENCES.iter().find(|one| one.page == path);
    match reference.and_then(|one| one.path.rsplit_once('/')) {
        Some((_folder, name)) => format!("{name}{anchor}"),
        None => format!("{REPOSITORY}/blob/main/{path}{anchor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_has_the_keys_of_the_format_within_its_limits() {
        let files = skill_files();
        let skill = &files[0].text;
        let front = skill.strip_prefix("---\n").unwrap();
        let (front, body) = front.split_once("\n---\n").unwrap();
        let value = |key: &str| {
            let mut lines = front.lines();
            let value = lines.find_map(|line| line.strip_prefix(&format!("{key}: ")));
            value.unwrap_or_else(|| panic!("no {key}"))
        };
        assert_eq!(value("name"), "stepscope");
        assert!(value("description").len() <= 1024);
        assert!(value("compatibility").len() <= 500);
        assert_eq!(value("  version"), format!("\"{VERSION}\""));
        // A plain value of YAML has no key and no comment in it.
        for line in front.lines() {
            let (_key, value) = line.split_once(':').unwrap();
            assert!(!value.contains(": ") && !value.contains(" #"), "{line}");
        }
        assert!(body.lines().count() < 500, "the format asks for less");
        assert!(!skill.contains("{rules}") && !skill.contains("{reports}"));
    }

    #[test]
    fn skill_has_every_rule_and_report_and_names_every_reference() {
        let files = skill_files();
        let skill = &files[0].text;
        for rule in RULES {
            assert!(skill.contains(&format!("\n* {rule}\n")), "{rule}");
            assert!(crate::instructions::instructions().contains(rule));
        }
        for kind in KINDS {
            let row = format!("\n| `{}` | {} | ", kind.name, kind.question);
            assert!(skill.contains(&row), "{}", kind.name);
        }
        for file in &files[1..] {
            assert!(skill.contains(&format!("`{}`", file.path)), "{}", file.path);
        }
    }

    #[test]
    fn changed_files_differ_from_written_ones() {
        for file in skill_files() {
            assert!(is_as_written(&file.text), "{}", file.path);
            assert!(!is_as_written(&file.text.replacen('e', "E", 1)));
            assert!(!is_as_written(&format!("{}A note.\n", file.text)));
        }
        let earlier = sealed("# Earlier text\n").replace(VERSION, "0.0.1");
        assert!(is_as_written(&earlier), "{earlier}");
        for other in [
            "",
            "# A file of the user\n",
            "\n\n<!-- Written by stepscope ",
        ] {
            assert!(!is_as_written(other), "{other}");
        }
    }

    #[test]
    fn links_lead_to_files_of_the_skill() {
        let text = "[a](definitions.md#b) [c](../guide/sql.md), [d\ne](../formats/x.md#y) [f](#g) [h](https://i) [j](../../k)\n\
            ```\n[l](m.md)\n```\n[n](reports.md)";
        assert_eq!(
            with_links("docs/reference/sql.md", text),
            format!(
                "[a](definitions.md#b) [c](sql_examples.md), [d\ne]({REPOSITORY}/blob/main/docs/formats/x.md#y) [f](#g) \
                 [h](https://i) [j]({REPOSITORY}/blob/main/k)\n```\n[l](m.md)\n```\n[n](reports.md)"
            )
        );
        let files = skill_files();
        let names: Vec<&str> = files
            .iter()
            .filter_map(|file| file.path.rsplit('/').next())
            .collect();
        for file in &files {
            let links = file
                .text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'));
            for (link, _) in links {
                let path = link.split('#').next().unwrap();
                let is_known = path.is_empty() || path.contains("://") || names.contains(&path);
                assert!(is_known, "{}: {link}", file.path);
            }
        }
    }
}
