//! Every report of every trace, in every format, of the whole and of a part: printed, and without numbers that are none.

use std::path::Path;

use stepscope_cli::args::Format;
use stepscope_engine::Run;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::report::Report;
use stepscope_engine::analysis::reports::{self, KINDS, Options};
use stepscope_model::Dur;

use crate::traces::{files_below, folder, open_one};

/// What is no number, or zero with a sign. Names of functions and operations are the program's own, so only what
/// stands alone, as a cell or a word does, is looked at.
fn odd(text: &str) -> Option<&str> {
    let between = |letter: char| {
        letter.is_whitespace()
            || matches!(
                letter,
                ',' | '|' | '"' | '[' | ']' | '{' | '}' | ':' | '>' | '<' | '%'
            )
    };
    text.lines().find(|line| {
        line.split(between).any(|word| {
            matches!(
                word,
                "NaN" | "nan" | "inf" | "-inf" | "Infinity" | "-Infinity" | "-0" | "-0.0" | "-0.00"
            )
        })
    })
}

fn printed(report: &Report, options: &Options, what: &str, numbers: bool) {
    for format in [Format::Table, Format::Csv, Format::Md, Format::Json] {
        let mut out = Vec::new();
        stepscope_cli::report::write("run", report, options, format, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        // What was not recorded has neither rows nor figures.
        let nothing = report.summary.is_empty() && report.table.columns.is_empty();
        let nothing = nothing && format == Format::Csv;
        assert!(nothing || !text.trim().is_empty(), "{what} as {format:?}");
        if numbers {
            let odd = odd(&text);
            assert!(odd.is_none(), "{what} as {format:?}: {odd:?}");
        }
    }
}

fn all_of(run: &Run, path: &Path, range: Option<&std::ops::Range<stepscope_model::Time>>) -> usize {
    // One has an operation of that name.
    let numbers = !path.ends_with("nan_infinity.json");
    let mut made = 0;
    for kind in KINDS {
        for by in std::iter::once(None).chain(kind.by.iter().copied().map(Some)) {
            let options = Options {
                by: by.map(str::to_owned),
                range: range.cloned(),
                ..Options::default()
            };
            let what = format!("{} of {} by {by:?} in {range:?}", kind.name, path.display());
            let report =
                reports::make(&run.trace, kind.name, &options, &Cancel::default()).unwrap();
            // torch itself prints the share of nothing as NaN, and its text is printed to the character.
            printed(
                &report,
                &options,
                &what,
                numbers && kind.name != "torch-table",
            );
            made += 1;
        }
    }
    let options = Options {
        range: range.cloned(),
        ..Options::default()
    };
    let page = run.page(&[], &options, &Cancel::default()).unwrap();
    // Its style and its script, and names that are the program's own.
    let body = page.split_once("<body").map_or("", |(_, body)| body);
    let body = body.split_once("<script").map_or(body, |(body, _)| body);
    assert!(body.contains("</h1>"), "{}", path.display());
    let odd = odd(body).filter(|line| numbers && !line.contains("  NaN  "));
    assert!(odd.is_none(), "{}: {odd:?}", path.display());
    made
}

#[test]
fn every_report_prints_in_every_format() {
    let Some(folder) = folder() else {
        println!("not run: no traces folder");
        return;
    };
    let mut files = Vec::new();
    files_below(&folder, &mut files);
    let (mut whole, mut parts) = (0, 0);
    for path in files {
        // Of the large ones others of the same writer stand for all.
        let large = std::fs::metadata(&path).unwrap().len() > 300_000;
        let Some(run) = open_one(&path).ok().filter(|_| !large) else {
            continue;
        };
        whole += all_of(&run, &path, None);
        let span = run.trace.span();
        let eighth = Dur::from_ps(span.end.since(span.start).ps() / 8);
        let from = span.start.saturating_add(eighth);
        parts += all_of(&run, &path, Some(&(from..from.saturating_add(eighth))));
    }
    assert!(
        whole > 4_000 && parts == whole,
        "{whole} reports, {parts} of a part"
    );
}

#[test]
fn what_is_no_number_is_found() {
    assert_eq!(odd("a,NaN,3"), Some("a,NaN,3"));
    assert_eq!(odd("a\n| -0 | x |"), Some("| -0 | x |"));
    assert_eq!(odd("{\"x\":-0.0}"), Some("{\"x\":-0.0}"));
    assert_eq!(odd("aten::isnan info -0.5 10 %"), None);
}
