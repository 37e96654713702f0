//! Every report of every trace, in every format, of the whole and of a part: printed, and without numbers that are none.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stepscope_cli::args::ReportFormat;
use stepscope_engine::Run;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::report::Report;
use stepscope_engine::report::reports::{KINDS, Kind, Options};
use stepscope_model::{Dur, Time};

use stepscope_test_data::{Corpus, corpus_tests, files};

use crate::traces::open_one;

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
    // Nearly all lines have none of these letters in a row, and there are millions of lines.
    let may = |line: &&str| PARTS.iter().any(|part| line.contains(part));
    text.lines().filter(may).find(|line| {
        line.split(between).any(|word| {
            matches!(
                word,
                "NaN" | "nan" | "inf" | "-inf" | "Infinity" | "-Infinity" | "-0" | "-0.0" | "-0.00"
            )
        })
    })
}

/// Every word that is no number has one of these in it.
const PARTS: [&str; 5] = ["NaN", "nan", "inf", "Inf", "-0"];

fn printed(report: &Report, options: &Options, what: &str, numbers: bool) {
    for format in [
        ReportFormat::Table,
        ReportFormat::Csv,
        ReportFormat::Md,
        ReportFormat::Json,
    ] {
        let mut out = Vec::new();
        stepscope_cli::report::write("run", report, options, format, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        // What was not recorded has neither rows nor figures.
        let nothing = report.summary.is_empty() && report.table.columns.is_empty();
        let nothing = nothing && format == ReportFormat::Csv;
        assert!(nothing || !text.trim().is_empty(), "{what} as {format:?}");
        if numbers {
            let odd = odd(&text);
            assert!(odd.is_none(), "{what} as {format:?}: {odd:?}");
        }
    }
}

/// `known`: what was printed of this run; what says the same is not printed again, as are reports by what is
/// their default, and those on which a range has no effect.
fn all_of(
    run: &Run,
    path: &Path,
    range: Option<&Range<Time>>,
    known: &mut Vec<Arc<Report>>,
) -> usize {
    // One has an operation of that name.
    let numbers = !path.ends_with("nan_infinity.json");
    let options = |by: Option<&str>| Options {
        by: by.map(str::to_owned),
        range: range.cloned(),
        ..Options::default()
    };
    let mut one = |kind: &Kind, by: Option<&str>| {
        let what = format!("{} of {} by {by:?} in {range:?}", kind.name, path.display());
        let options = options(by);
        let report = run.report(kind.name, &options, &Cancel::default()).unwrap();
        if known.contains(&report) {
            return;
        }
        // torch itself prints the share of nothing as NaN, and its text is printed to the character.
        let numbers = numbers && kind.name != "torch-table";
        printed(&report, &options, &what, numbers);
        known.push(report);
    };
    for kind in KINDS {
        one(kind, None);
    }
    // The run remembers those: the page does not make them again.
    let page = run.page(&[], &options(None), &Cancel::default()).unwrap();
    // Its style and its script, and names that are the program's own.
    let body = page.split_once("<body").map_or("", |(_, body)| body);
    let body = body.split_once("<script").map_or(body, |(body, _)| body);
    assert!(body.contains("</h1>"), "{}", path.display());
    let odd = odd(body).filter(|line| numbers && !line.contains("  NaN  "));
    assert!(odd.is_none(), "{}: {odd:?}", path.display());
    for kind in KINDS {
        for by in kind.by {
            one(kind, Some(by));
        }
    }
    KINDS.iter().map(|kind| 1 + kind.by.len()).sum()
}

/// Reports of the whole run at this path and of a part of it; none where it is none.
fn reports_of(path: &Path) -> (usize, usize) {
    // Of the large ones others of the same writer stand for all.
    let large = std::fs::metadata(path).unwrap().len() > 300_000;
    let Some(run) = (!large).then(|| open_one(path).ok()).flatten() else {
        return (0, 0);
    };
    let span = run.trace.span();
    let eighth = Dur::from_ps(span.end.since(span.start).ps() / 8);
    let from = span.start.saturating_add(eighth);
    let part = from..from.saturating_add(eighth);
    let mut known = Vec::new();
    (
        all_of(&run, path, None, &mut known),
        all_of(&run, path, Some(&part), &mut known),
    )
}

corpus_tests!(every_report_prints_in_every_format);

fn every_report_prints_in_every_format(corpus: &Corpus) {
    let files = files(corpus.folder());
    let next = AtomicUsize::new(0);
    let walk = || {
        let mut made = (0, 0);
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (whole, parts) = reports_of(path);
            made = (made.0 + whole, made.1 + parts);
        }
        made
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (whole, parts) = std::thread::scope(|scope| {
        let walks: Vec<_> = (0..threads).map(|_| scope.spawn(walk)).collect();
        walks.into_iter().fold((0, 0), |sum, walk| {
            let (whole, parts) = walk.join().unwrap();
            (sum.0 + whole, sum.1 + parts)
        })
    });
    assert!(
        whole > corpus.either(700, 4_000) && parts == whole,
        "{whole} reports, {parts} of a part"
    );
}

#[test]
fn nan_and_negative_zero_are_found_in_output() {
    assert_eq!(odd("a,NaN,3"), Some("a,NaN,3"));
    assert_eq!(odd("a\n| -0 | x |"), Some("| -0 | x |"));
    assert_eq!(odd("{\"x\":-0.0}"), Some("{\"x\":-0.0}"));
    assert_eq!(odd("aten::isnan info -0.5 10 %"), None);
}
