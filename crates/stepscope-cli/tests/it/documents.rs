//! The commands in the documentation: each is one that this version takes.

use std::path::{Path, PathBuf};

use stepscope_engine::report::reports;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files below a folder.
pub(crate) fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The words of the commands in a page's shell blocks. A command ends with its line, unless a quote is open or a
/// backslash continues it, or at what connects it to another one.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut blocks = page.split("```").skip(1).step_by(2);
    let shell = blocks.by_ref().filter_map(|block| {
        let (language, text) = block.split_once('\n')?;
        ["sh", "console"].contains(&language.trim()).then_some(text)
    });
    shell.flat_map(split).collect()
}

fn split(block: &str) -> Vec<Vec<String>> {
    let block = block.replace("\\\n", " ");
    let mut found = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = block.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => {
                while letters.next_if(|next| *next != '\n').is_some() {}
            }
            (' ' | '\n' | '|' | ';' | '&' | '>' | '<', None) => {
                found.last_mut().unwrap().extend(word.take());
                if letter != ' ' {
                    found.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    found.last_mut().unwrap().extend(word);
    for words in &mut found {
        if words.first().is_some_and(|word| word == "$") {
            words.remove(0);
        }
    }
    found.retain(|words| words.first().is_some_and(|word| word == "stepscope"));
    found
}

#[test]
fn commands_of_a_page_are_found() {
    let page = "`stepscope no`\n```sh\nstepscope a 'b c' --d  # e\nX=1 stepscope f\n```\n```python\nstepscope g\n```\n\
        ```console\n$ stepscope h \"\n i\" \\\n  j | stepscope k\n```\n";
    let expected = [
        &["stepscope", "a", "b c", "--d"][..],
        &["stepscope", "h", "\n i", "j"],
        &["stepscope", "k"],
    ];
    assert_eq!(commands(page), expected);
}

/// Checks the commands of a page, with the kinds of reports that they name; returns their number.
pub(crate) fn check_commands(path: &Path) -> usize {
    let page = std::fs::read_to_string(path).unwrap();
    let mut count = 0;
    for words in commands(&page) {
        // Numbers that a scheduler sets.
        let set = |word: String| {
            word.replace("$SLURM_ARRAY_TASK_ID", "3")
                .replace("$SLURM_ARRAY_TASK_COUNT", "64")
        };
        let words: Vec<String> = words.into_iter().map(set).collect();
        let shown = format!("{}: {}", path.display(), words.join(" "));
        let matches = stepscope_cli::args::definition()
            .try_get_matches_from(&words)
            .unwrap_or_else(|error| panic!("{shown}\n{error}"));
        if let Some(("report", report)) = matches.subcommand() {
            let kind = report.get_one::<String>("kind").unwrap();
            match reports::kind(kind) {
                Ok(kind) => {
                    let by = report.get_one::<String>("by").map(String::as_str);
                    let is_known = |by: &str| by == "list" || kind.by.contains(&by);
                    assert!(by.is_none_or(is_known), "{shown}");
                }
                Err(_) => assert!(["all", "list"].contains(&kind.as_str()), "{shown}"),
            }
        }
        count += 1;
    }
    count
}

#[test]
fn every_command_in_the_documentation_is_accepted() {
    let mut pages = markdown_files(&root().join("docs"));
    pages.push(root().join("README.md"));
    let count: usize = pages.iter().map(|page| check_commands(page)).sum();
    assert!(count > 30, "{count} commands");
}
