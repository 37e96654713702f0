//! Passes one trace to every report, every other analysis of the viewer, and every export.
//!
//! The fuzz target `structured` and the engine's tests share this file.

use std::ops::Range;
use std::sync::Arc;

use stepscope_analysis::memory::Memory;
use stepscope_analysis::names::NameSet;
use stepscope_analysis::ops::available::available;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::timeline_query::aggregate::{AggregateQuery, GroupBy, aggregate};
use stepscope_analysis::timeline_query::flame::{FlameBy, flame};
use stepscope_analysis::timeline_query::histogram;
use stepscope_analysis::timeline_query::search::{Page, SearchQuery, listing, search};
use stepscope_engine::{RowFormat, write_rows};
use stepscope_formats::chrome_json::ChromeSink;
use stepscope_formats::perfetto::PerfettoSink;
use stepscope_formats::xspace::XSpaceSink;
use stepscope_formats::{Format, read};
use stepscope_model::{Dur, Limits, ReadContext, SharedBytes, Time, TrackId};
use stepscope_report::peer_profiler::PeerProfiler;
use stepscope_report::report::html::{Head, HtmlReport, page};
use stepscope_report::report::{self, Report};
use stepscope_report::reports::{self, KINDS, Options};
use stepscope_store::{FileSpec, Trace, TraceBuilder};

/// A check of a trace, with its name.
pub(crate) type NamedCheck = (&'static str, fn(&Trace));

/// All checks of a trace.
pub(crate) const PARTS: &[NamedCheck] = &[
    ("reports", all_reports),
    ("reports of a range", reports_of_ranges),
    ("viewer", viewer),
    ("rows", rows),
    ("chrome", chrome),
    ("perfetto", perfetto),
    ("xspace", xspace),
];

/// Builds every report in every grouping, its JSON, and one page of all.
fn all_reports(trace: &Trace) {
    let mut built = Vec::new();
    for kind in KINDS {
        let by = kind.by.iter().copied().map(Some);
        for by in by.chain(kind.by.is_empty().then_some(None)) {
            let report = one(trace, kind.name, by, None, false);
            let json = serde_json::to_string(&report).expect("a report is JSON");
            assert!(json.len() < 64 << 20, "{}: {} bytes", kind.name, json.len());
            built.push((kind, report));
        }
    }
    let parts: Vec<_> = built
        .iter()
        .map(|(kind, report)| HtmlReport {
            title: kind.title,
            question: kind.question,
            report,
        })
        .collect();
    let head = Head {
        run: "run",
        facts: Vec::new(),
    };
    assert!(page(&head, &parts).ends_with("</html>\n"));
}

/// Builds every report of a part of the run, and of ranges outside any run.
fn reports_of_ranges(trace: &Trace) {
    let span = trace.span();
    let middle = Time::from_ps(span.start.ps().midpoint(span.end.ps()));
    for (range, marked_only) in [
        (span.start..middle, true),
        (Time::MIN..Time::MAX, false),
        (middle..middle, false),
    ] {
        for kind in KINDS {
            one(trace, kind.name, None, Some(range.clone()), marked_only);
        }
    }
}

fn one(
    trace: &Trace,
    kind: &str,
    by: Option<&str>,
    range: Option<Range<Time>>,
    marked_only: bool,
) -> Report {
    let options = Options {
        by: by.map(str::to_owned),
        range,
        marked_only,
        compat: PeerProfiler::of_report(kind),
        ..Options::default()
    };
    reports::make(trace, kind, &options, &Cancel::default()).expect("the kind is known")
}

/// Runs the queries of the viewer's pages besides the reports.
fn viewer(trace: &Trace) {
    let cancel = Cancel::default();
    let all = NameSet::matching(trace, |_| true);
    let tracks: Vec<TrackId> = trace.tracks().iter().map(|track| track.id).collect();
    let span = trace.span();
    let ranges = [span.clone(), Time::MIN..Time::MAX, span.end..span.start];
    for window in ranges {
        for by in [FlameBy::Stack].into_iter().chain(FlameBy::HOST_CODE) {
            flame(trace, &tracks, &window, by, 1_000, &cancel).expect("nobody cancels");
        }
        let query = AggregateQuery {
            window: window.clone(),
            tracks: &tracks,
            names: None,
            kinds: None,
            by: &[
                GroupBy::Name,
                GroupBy::Track,
                GroupBy::Kind,
                GroupBy::Category,
            ],
        };
        aggregate(trace, &query, &cancel).expect("nobody cancels");
        let query = SearchQuery {
            names: &all,
            tracks: &tracks,
            window: Some(window.clone()),
            min: Dur::ZERO,
            below: None,
            bins: 16,
            bin_range: window.clone(),
        };
        search(trace, &query, Page::Offset(0), 100, &cancel).expect("nobody cancels");
        listing::by_length(trace, &query, true, 0, 100, &cancel).expect("nobody cancels");
        listing::by_name(trace, &query, &cancel).expect("nobody cancels");
        let durations =
            histogram::durations(trace, &all, &tracks, &window, &cancel).expect("nobody cancels");
        durations.histogram(histogram::Scale::Linear, 16, [None, None]);
        durations.histogram(histogram::Scale::Log, 16, [None, None]);
        trace.busy_strip(&tracks, window.clone(), 64);
        for track in &tracks {
            trace.items(*track, window.clone(), 64);
            trace.instant_items(*track, window.clone(), 64);
            trace.counter_bins(*track, window.clone(), 64);
            trace.busy(*track, window.clone());
            trace.self_times(*track);
        }
    }
    available(trace, &cancel).expect("nobody cancels");
    report::run_start(trace);
    let memory = Memory::read(trace, &cancel).expect("nobody cancels");
    for allocator in &memory.allocators {
        memory.usage(allocator, None);
        memory.usage(allocator, Some(&span));
        memory.peak_in(allocator, &span);
        memory.stack_at(allocator, span.end);
        memory.alive(allocator, span.end);
        memory.curve(allocator, &span, 64);
        memory.curve(allocator, &(Time::MIN..Time::MAX), 64);
    }
}

fn rows(trace: &Trace) {
    for format in [RowFormat::Csv, RowFormat::Parquet] {
        write_rows(trace, None, format, Vec::new()).expect("memory is written");
        write_rows(trace, Some(&trace.span()), format, Vec::new()).expect("memory is written");
    }
}

fn chrome(trace: &Trace) {
    let mut sink = ChromeSink::new(Vec::new());
    trace.replay_into(&mut sink);
    again(
        Format::ChromeJson,
        sink.finish().expect("memory is written"),
    );
}

fn perfetto(trace: &Trace) {
    let mut sink = PerfettoSink::new(Vec::new());
    trace.replay_into(&mut sink);
    again(Format::Perfetto, sink.finish().expect("memory is written"));
}

fn xspace(trace: &Trace) {
    let mut sink = XSpaceSink::new();
    trace.replay_into(&mut sink);
    again(
        Format::XSpace,
        sink.finish(Vec::new()).expect("memory is written"),
    );
}

/// Reads the written file; builds every report of it.
fn again(format: Format, bytes: Vec<u8>) {
    let context = ReadContext::new(Limits::default());
    let shared: SharedBytes = Arc::new(bytes);
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    read(format, &shared, &context, &mut sink).expect("our own writer's file is read");
    builder.add(sink);
    all_reports(&builder.finish());
}
