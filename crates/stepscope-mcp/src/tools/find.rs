//! The tool `find`.

use stepscope_analysis::names::NameSet;
use stepscope_analysis::timeline_query::histogram;
use stepscope_analysis::timeline_query::search::{self, Hit, Page, SearchQuery, listing};
use stepscope_engine::Run;
use stepscope_model::{Dur, Time, TrackId};
use stepscope_report::name_search::NameSearch;
use stepscope_report::report::number_format::{in_sentence, with_thousands};
use stepscope_report::report::{Column, Report, Table, Unit, run_start, since_start_ns};
use stepscope_store::Trace;

use super::{Call, RUN};
use crate::answer::Answer;
use crate::args::{Argument, Values};
use crate::error::ToolError;

pub(super) const ARGUMENTS: &[Argument] = &[
    RUN,
    Argument::new(
        "text",
        Values::Text(400),
        "text that the name contains, in upper or lower case",
    ),
    Argument::new(
        "regex",
        Values::Text(400),
        "regular expression that the name matches, in place of 'text'",
    ),
    Argument::new(
        "track",
        Values::Text(400),
        "only tracks whose name contains this text, or the track of this id, with the tracks below",
    ),
    Argument::new("min_ns", Values::Number, "minimum duration, nanoseconds"),
    Argument::new(
        "max_ns",
        Values::Number,
        "duration from which events are left out, nanoseconds",
    ),
    Argument::new(
        "from_ns",
        Values::Number,
        "only events that end after this time, nanoseconds from the start of the run",
    ),
    Argument::new(
        "to_ns",
        Values::Number,
        "only events that start before this time, nanoseconds from the start of the run",
    ),
    Argument::new(
        "steps",
        Values::Text(50),
        "only events in these steps, by number: N or N-M",
    ),
    Argument::new(
        "order",
        Values::Words(&["longest", "start"]),
        "order of the events (default longest)",
    ),
];

/// Maximum number of names with a distribution.
const NAMES: usize = 20;

/// Finds events by name.
pub(super) fn find(call: &Call<'_>) -> Result<Answer, ToolError> {
    let search = match (call.args.text("text"), call.args.text("regex")) {
        (Some(text), None) => NameSearch::Text(text),
        (None, Some(regex)) => NameSearch::Regex(regex),
        _ => {
            return Err(ToolError::new(
                "cannot search: give either 'text' or 'regex'",
                "'text' is a part of the name, such as gemm; 'regex' is an expression, such as ^aten::",
            ));
        }
    };
    let run = call.open("run")?;
    let trace = &*run.trace;
    let names = search.find(trace).map_err(|error| {
        ToolError::new(
            format!("cannot use the regular expression: {error}"),
            "write it in the syntax of Rust's regex crate: without look-around and back references",
        )
    })?;
    let tracks = tracks(&run, call.args.text("track"))?;
    let span = trace.span();
    let window = call.range(&run)?;
    // The end is exclusive, and the last event of the run may have no duration.
    let window = window.unwrap_or(span.start..span.end.saturating_add(Dur::from_ps(1)));
    let dur = |name: &str| {
        call.args.number(name).map(|ns| {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a float saturates at the ends of i64"
            )]
            let ps = (ns * 1e3).round() as i64;
            Dur::from_ps(ps)
        })
    };
    let query = SearchQuery {
        names: &names,
        tracks: &tracks,
        window: Some(window.clone()),
        min: dur("min_ns").unwrap_or(Dur::ZERO),
        below: dur("max_ns"),
        bins: 0,
        bin_range: Time::ZERO..Time::ZERO,
    };
    let cancel = call.stop.cancel();
    let (offset, rows) = (call.page.offset as u64, call.page.rows);
    let (total, hits) = if call.args.text("order") == Some("start") {
        let found = search::search(trace, &query, Page::Offset(offset), rows, cancel)?;
        (found.total, found.hits)
    } else {
        let found = listing::by_length(trace, &query, true, offset, rows, cancel)?;
        (found.total, found.hits)
    };
    let by_name = listing::by_name(trace, &query, cancel)?;
    let mut report = Report::new("events");
    report.sentence = match by_name.first() {
        None => format!(
            "No event matches; the run has {} names.",
            with_thousands(trace.name_count() as u64)
        )
        .into(),
        Some(first) => format!(
            "{} events of {} names match; the most frequent name is {} ({} events).",
            with_thousands(total),
            with_thousands(by_name.len() as u64),
            in_sentence(trace.name(first.name)),
            with_thousands(first.count)
        )
        .into(),
    };
    report.scalar("events", "Events", Unit::Count, total);
    report.scalar("names", "Names", Unit::Count, by_name.len());
    report.table = events(trace, &hits);
    let after = total.saturating_sub(offset);
    report.table.left_out = after.saturating_sub(hits.len() as u64);

    let mut distribution = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("min_ns", "Min", Unit::Ns),
        Column::new("p50_ns", "p50", Unit::Ns),
        Column::new("p90_ns", "p90", Unit::Ns),
        Column::new("p99_ns", "p99", Unit::Ns),
        Column::new("max_ns", "Max", Unit::Ns),
    ]);
    for name in by_name.iter().take(NAMES) {
        let one = NameSet::from_ids(trace, &[name.name]);
        let all = histogram::durations(trace, &one, &tracks, &window, cancel)?;
        let quantile = |share| all.quantile(share).map(Dur::as_ns_f64);
        distribution.push([
            trace.name(name.name).into(),
            name.count.into(),
            (all.total_ps() as f64 / 1e3).into(),
            quantile(0.0).into(),
            quantile(0.5).into(),
            quantile(0.9).into(),
            quantile(0.99).into(),
            quantile(1.0).into(),
        ]);
    }
    distribution.left_out = by_name.len().saturating_sub(NAMES) as u64;
    distribution.add_short("name", "short_name", "Short name");
    report.section("names", "Durations by name", distribution);
    if query.min > Dur::ZERO || query.below.is_some() {
        report.note("The durations by name count events of every length that start in the range.");
    }
    let mut answer = Answer::new(Some(run.id.clone()), report);
    answer.first = call.page.offset;
    Ok(answer)
}

/// Returns one row per event.
pub(super) fn events(trace: &Trace, hits: &[Hit]) -> Table {
    let mut table = Table::new(vec![
        Column::new("event", "Event", Unit::Event),
        Column::new("name", "Name", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("track", "Track", Unit::Text),
        Column::new("track_id", "Track id", Unit::Number),
        Column::new("host", "Host", Unit::Text),
    ]);
    let start = run_start(trace);
    for hit in hits {
        let Some(event) = trace.event(hit.id) else {
            continue;
        };
        let track = trace.tracks().get(event.track.index());
        let host = track.and_then(|track| trace.files().get(track.file));
        table.push([
            event.id.into(),
            trace.name(event.name).into(),
            since_start_ns(start, event.start).into(),
            Some(event.dur).filter(|_| !event.instant).into(),
            event.kind.label().into(),
            track.map(|track| track.name.clone()).into(),
            event.track.0.into(),
            host.map(|file| file.spec.host.clone())
                .filter(|host| !host.is_empty())
                .into(),
        ]);
    }
    table.add_short("name", "short_name", "Short name");
    table
}

/// Returns the tracks that a call names, with those below them; all tracks without a name.
pub(super) fn tracks(run: &Run, asked: Option<&str>) -> Result<Vec<TrackId>, ToolError> {
    let all = run.trace.tracks();
    let Some(asked) = asked else {
        return Ok(all.iter().map(|track| track.id).collect());
    };
    let by_id: Option<usize> = asked.parse().ok().filter(|id| *id < all.len());
    let text = asked.to_lowercase();
    let mut wanted: Vec<bool> = all
        .iter()
        .enumerate()
        .map(|(at, track)| match by_id {
            Some(id) => id == at,
            None => track.name.to_lowercase().contains(&text),
        })
        .collect();
    if !wanted.contains(&true) {
        let names = all.iter().map(|track| track.name.as_str());
        return Err(ToolError::unknown(
            "track",
            asked,
            names,
            "leave 'track' out: the answer names the track of each event",
        ));
    }
    // Until nothing changes: a parent may come after its children, and parents of damaged files form cycles.
    loop {
        let below: Vec<usize> = all
            .iter()
            .enumerate()
            .filter(|(at, track)| {
                let parent = track.parent.map(TrackId::index);
                !wanted[*at] && parent.is_some_and(|parent| wanted.get(parent) == Some(&true))
            })
            .map(|(at, _)| at)
            .collect();
        if below.is_empty() {
            break;
        }
        for at in below {
            wanted[at] = true;
        }
    }
    let chosen = all.iter().zip(wanted).filter(|(_, is)| *is);
    Ok(chosen.map(|(track, _)| track.id).collect())
}
