//! `cargo xtask site`: the documentation as a web site with search, made by mdBook from `docs/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::part::Outcome;
use crate::{laws, shell};

/// Where files of the repository that the site does not contain are.
const REPOSITORY: &str = "https://github.com/stepscope/stepscope";
/// The table of contents, in `docs/`.
const SUMMARY: &str = "SUMMARY.md";

/// `cargo xtask site`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(other) = arguments.first() {
        bail!("'cargo xtask site' takes no arguments, and got '{other}'");
    }
    check()?;
    if !shell::exists("mdbook") {
        bail!("cannot make the site: mdbook is missing; install it: cargo install --locked mdbook");
    }
    let folder = shell::target_dir().join("site");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    copy_pages(&folder.join("src"))?;
    std::fs::copy(docs().join("book.toml"), folder.join("book.toml"))?;
    shell::run(shell::program("mdbook").arg("build").arg(&folder))?;
    println!("the site: {}", folder.join("book/index.html").display());
    Ok(())
}

/// Checks that the table of contents lists every page of `docs/` once. Links are checked by the part *docs*.
pub(crate) fn check() -> Result<Outcome> {
    let summary = String::from_utf8(shell::read(&docs().join(SUMMARY))?)?;
    let pages = files()?
        .into_iter()
        .filter(|page| page.extension().is_some_and(|extension| extension == "md"))
        .map(|page| page.to_string_lossy().into_owned())
        .filter(|page| page != SUMMARY);
    laws::report(contents_faults(&summary, &pages.collect()))
}

fn contents_faults(summary: &str, pages: &BTreeSet<String>) -> Vec<String> {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for link in laws::links(summary) {
        *listed.entry(link.path).or_default() += 1;
    }
    let mut faults = Vec::new();
    for (page, count) in &listed {
        if *count > 1 {
            faults.push(format!("docs/{SUMMARY} lists {page} {count} times"));
        }
        if !pages.contains(page) {
            faults.push(format!(
                "docs/{SUMMARY} lists {page}, which is no page of docs/"
            ));
        }
    }
    let missing = pages.iter().filter(|page| !listed.contains_key(*page));
    faults.extend(missing.map(|page| format!("docs/{SUMMARY} does not list {page}")));
    faults
}

fn docs() -> PathBuf {
    shell::root().join("docs")
}

/// Lists the files of `docs/`, relative to it.
fn files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    shell::collect(&docs(), &[], &mut files)?;
    files.sort();
    let relative = files.iter().map(|file| file.strip_prefix(docs()));
    relative
        .map(|file| Ok(file.context("a file outside of docs/")?.to_path_buf()))
        .collect()
}

/// Copies `docs/`, with links that leave it turned into links to the repository.
fn copy_pages(to: &Path) -> Result<()> {
    for file in files()? {
        let target = to.join(&file);
        std::fs::create_dir_all(target.parent().unwrap_or(to))?;
        let from = docs().join(&file);
        if file.extension().is_some_and(|extension| extension == "md") {
            let text = String::from_utf8(shell::read(&from)?)?;
            std::fs::write(&target, with_repository_links(&text, &file))?;
        } else {
            std::fs::copy(&from, &target)?;
        }
    }
    Ok(())
}

/// Replaces the links of a page that leave `docs/`; `page` is relative to `docs/`.
fn with_repository_links(text: &str, page: &Path) -> String {
    let mut out = text.to_owned();
    let leaving: BTreeSet<String> = laws::links(text)
        .into_iter()
        .filter(|link| !link.path.is_empty())
        .filter_map(|link| {
            let folder = Path::new("docs").join(page.parent().unwrap_or(Path::new("")));
            let path = normalize(&folder.join(&link.path))?;
            (!path.starts_with("docs")).then_some(link.path)
        })
        .collect();
    for link in leaving {
        let folder = Path::new("docs").join(page.parent().unwrap_or(Path::new("")));
        let Some(path) = normalize(&folder.join(&link)) else {
            continue;
        };
        let kind = if shell::root().join(&path).is_dir() {
            "tree"
        } else {
            "blob"
        };
        let address = format!("{REPOSITORY}/{kind}/main/{}", path.display());
        for end in [")", "#"] {
            out = out.replace(&format!("]({link}{end}"), &format!("]({address}{end}"));
        }
    }
    out
}

/// Resolves `..` in a path below the root of the checkout; `None` above it.
fn normalize(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => out.pop().then_some(())?,
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_documents_go_to_the_repository() {
        let text =
            "[a](../../README.md#install) [b](run.md) [c](../../examples) [d](../formats/pprof.md)";
        assert_eq!(
            with_repository_links(text, Path::new("guide/sql.md")),
            "[a](https://github.com/stepscope/stepscope/blob/main/README.md#install) [b](run.md) \
             [c](https://github.com/stepscope/stepscope/tree/main/examples) [d](../formats/pprof.md)"
        );
    }

    #[test]
    fn missing_unknown_and_repeated_pages_are_faults() {
        let pages = ["a.md", "b.md"].map(str::to_owned).into();
        assert_eq!(
            contents_faults("- [A](a.md)\n- [B](b.md)\n", &pages),
            Vec::<String>::new()
        );
        let faults = contents_faults("- [A](a.md)\n- [A](a.md)\n- [C](c.md)\n", &pages);
        assert_eq!(
            faults,
            [
                "docs/SUMMARY.md lists a.md 2 times",
                "docs/SUMMARY.md lists c.md, which is no page of docs/",
                "docs/SUMMARY.md does not list b.md",
            ]
        );
    }
}
