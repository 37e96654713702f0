//! Links of the values in sentences, notes and titles.

use stepscope_analysis::parallel::Cancel;
use stepscope_report::report::{Cell, Link, Report, Sentence};
use stepscope_report::reports::{self, KINDS, Options};
use stepscope_store::{Trace, ascii_trace};

use crate::collectives::run;

const STEPS: &str = "
    main            | step0---------  step1----  step2---------  step3-------------------
                    | data---  fwd--  fwd------  data  fwd-----  fwd----------  opt------
    gpu #device=0   |          mm---    mm-----        mm------    mm-------
";

fn report(trace: &Trace, kind: &str, by: Option<&str>) -> Report {
    let options = Options {
        by: by.map(str::to_owned),
        ..Options::default()
    };
    reports::make(trace, kind, &options, &Cancel::default()).unwrap()
}

/// The sentence, the notes and the sentences in cells.
fn sentences(report: &Report) -> Vec<&Sentence> {
    let cells = report.table.rows.iter().flatten();
    let in_cells = cells.filter_map(|cell| match cell {
        Cell::Sentence(sentence) => Some(sentence),
        _ => None,
    });
    let own = std::iter::once(&report.sentence).chain(&report.notes);
    own.chain(in_cells).collect()
}

/// Whether the target of a link is in the report or in its trace.
fn exists(link: &Link, report: &Report, trace: &Trace) -> bool {
    match link {
        Link::Event(event) => event.0 < trace.event_count(),
        Link::Range {
            start_ns, end_ns, ..
        } => start_ns < end_ns,
        Link::Step(number) => trace.step_marks().iter().any(|mark| mark.number == *number),
        Link::Rank(rank) => {
            let mut files = trace.files().iter();
            files.any(|file| file.spec.rank == Some(*rank))
        }
        Link::Row { column, name } => {
            let columns = &report.table.columns;
            let at = columns.iter().position(|known| known.key == *column);
            let text = Cell::Text(name.clone());
            at.is_some_and(|at| report.table.rows.iter().any(|row| row[at] == text))
        }
        Link::Scalar(key) => report.summary.iter().any(|one| one.column.key == *key),
        Link::Section(name) => report.sections.iter().any(|one| one.name == *name),
        Link::Page(id) => {
            ["input", "kernels", "memory", "ops", "ranks", "steps"].contains(&id.as_ref())
        }
    }
}

/// The link of the value with this text.
fn link_of(sentence: &Sentence, text: &str) -> Option<Link> {
    let part = sentence.parts().iter().find(|part| part.text == text);
    part.unwrap_or_else(|| panic!("{text} is not a part of: {sentence}"))
        .link
        .clone()
}

#[test]
fn every_link_of_a_value_leads_to_something_that_exists() {
    let mut links = 0;
    for trace in [
        ascii_trace::trace(STEPS),
        ascii_trace::trace("main | load-----  fwd---  load--"),
        run(&[&[(0, 10), (100, 110)], &[(2, 10), (102, 110)]]),
    ] {
        for kind in KINDS {
            for by in std::iter::once(None).chain(kind.by.iter().copied().map(Some)) {
                let report = report(&trace, kind.name, by);
                for sentence in sentences(&report) {
                    let values = sentence.parts().iter().filter(|part| part.value.is_some());
                    for link in values.filter_map(|part| part.link.as_ref()) {
                        links += 1;
                        assert!(
                            exists(link, &report, &trace),
                            "{} by {by:?}: {sentence}: {link:?}",
                            kind.name
                        );
                    }
                }
            }
        }
    }
    assert!(links > 50, "only {links} links");
}

#[test]
fn median_step_time_leads_to_the_step_nearest_to_it() {
    let trace = ascii_trace::trace(
        "
        main | step0---------  step1----  step2---------
        ",
    );
    for kind in ["overview", "steps"] {
        let found = report(&trace, kind, None);
        let Some(Link::Range {
            start_ns, end_ns, ..
        }) = link_of(&found.sentence, "14.0 µs")
        else {
            panic!("{:?}", found.sentence)
        };
        assert_eq!((start_ns, end_ns), (0.0, 14_000.0), "{kind}");
    }
}

#[test]
fn share_of_the_largest_operation_leads_to_its_row() {
    let trace = ascii_trace::trace("main | load-----  fwd---  load--");
    let found = report(&trace, "ops", None);
    let links: Vec<_> = found.sentence.parts().iter().collect();
    let row = links.iter().rev().find_map(|part| part.link.clone());
    assert_eq!(row, Some(Link::row("name", "load")), "{}", found.sentence);
    assert_eq!(
        link_of(&found.sentence, "2"),
        Some(Link::scalar("ops")),
        "{}",
        found.sentence
    );
}

#[test]
fn straggler_leads_to_its_rank_and_its_latest_arrival() {
    let trace = run(&[
        &[(0, 110), (200, 310), (400, 510)],
        &[(100, 110), (290, 310), (495, 510)],
    ]);
    let found = report(&trace, "collectives", None);
    assert_eq!(
        link_of(&found.sentence, "rank 1"),
        Some(Link::Rank(1)),
        "{}",
        found.sentence
    );
    let events = found
        .sentence
        .parts()
        .iter()
        .filter_map(|part| match part.link {
            Some(Link::Event(event)) => Some(event),
            _ => None,
        });
    let starts: Vec<_> = events
        .map(|event| {
            let (track, index) = trace.place_of_slice(event).unwrap();
            trace.slices(track).start[index].ps()
        })
        .collect();
    // The first is 100 us late, the others less.
    assert_eq!(starts, [100_000_000], "{}", found.sentence);
}

#[test]
fn titles_of_findings_lead_to_the_strongest_event() {
    let trace = ascii_trace::trace(STEPS);
    let found = report(&trace, "findings", None);
    let column = |key: &str| found.table.columns.iter().position(|one| one.key == key);
    let (title, evidence) = (column("title").unwrap(), column("evidence").unwrap());
    let mut linked = 0;
    for row in &found.table.rows {
        let (Cell::Sentence(title), Cell::List(events)) = (&row[title], &row[evidence]) else {
            panic!("{row:?}")
        };
        let Some(Cell::Int(first)) = events.first() else {
            continue;
        };
        let values = title.parts().iter().filter(|part| part.value.is_some());
        let mut links = values.filter_map(|part| part.link.as_ref());
        let is_first =
            |link: &Link| matches!(link, Link::Event(event) if i64::from(event.0) == *first);
        assert!(links.any(is_first), "{title:?}");
        linked += 1;
    }
    assert!(linked > 0, "{:?}", found.table.rows);
}

#[test]
fn lines_of_code_in_notes_are_marked() {
    use stepscope_model::{ArgValue, EventSink as _, SliceIn, Time};
    use stepscope_store::{FileSpec, TraceBuilder};
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.fact("kind.PyTorch", ArgValue::Bool(true));
    let track = sink.track("main");
    let name = sink.name("forward");
    let slice = SliceIn {
        start: Time::ZERO,
        dur: stepscope_model::Dur::from_ps(1_000_000),
        name,
        ..SliceIn::default()
    };
    sink.slice(track, slice);
    builder.add(sink);
    let trace = builder.finish();
    let found = report(&trace, "overview", None);
    let codes: Vec<_> = sentences(&found)
        .into_iter()
        .flat_map(Sentence::parts)
        .filter(|part| part.is_code)
        .map(|part| part.text.as_str())
        .collect();
    assert!(codes[0].starts_with("profiler.step()"), "{codes:?}");
    let about = found.notes[0].parts()[0].link.clone();
    assert_eq!(about, Some(Link::scalar("steps")), "{:?}", found.notes);
}
