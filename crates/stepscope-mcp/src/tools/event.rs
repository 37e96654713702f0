//! The tool `event`.

use stepscope_analysis::event_context::EventContext;
use stepscope_analysis::execution_trace;
use stepscope_analysis::names::{NameSet, json_on_one_line};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::timeline_query::histogram;
use stepscope_model::{ArgValue, Cancelled, SliceFlags, Time};
use stepscope_report::demangle::demangled;
use stepscope_report::report::number_format::{duration, in_sentence, with_thousands};
use stepscope_report::report::{Cell, Column, Report, Table, Unit, run_start, since_start_ns};
use stepscope_store::{Event, EventId, Trace};

use super::{Call, RUN};
use crate::answer::Answer;
use crate::args::{Argument, Values};
use crate::error::ToolError;

pub(super) const ARGUMENTS: &[Argument] = &[
    RUN,
    Argument::required(
        "id",
        Values::Whole(0, u32::MAX as u64),
        "id of the event, from 'find' or a column with unit 'event'",
    ),
];

/// Maximum length of a name and of the text of an argument, characters.
const LONGEST_TEXT: usize = 4_000;
/// Maximum number of arguments, enclosing slices, inner slices, and links each.
const MAX_ROWS: usize = 1_000;
/// Maximum number of slices to search for inner ones.
const MAX_SEARCHED: usize = 1 << 18;
/// Maximum number of bytes of a binary argument.
const MAX_BYTES: usize = 32;

/// Shows an event.
pub(super) fn event(call: &Call<'_>) -> Result<Answer, ToolError> {
    let run = call.open("run")?;
    let trace = &*run.trace;
    let id = call.args.whole("id").and_then(|id| u32::try_from(id).ok());
    let found = id.and_then(|id| trace.event(EventId(id)));
    let Some(event) = found else {
        return Err(ToolError::new(
            "cannot show the event: the run has no event of this id",
            format!(
                "event ids are 0 to {}; 'find' returns them",
                trace.event_count().saturating_sub(1)
            ),
        ));
    };
    let report = describe(trace, &event, call.stop.cancel())?;
    let mut answer = Answer::new(Some(run.id.clone()), report);
    answer.longest_text = LONGEST_TEXT;
    Ok(answer)
}

fn describe(trace: &Trace, event: &Event, cancel: &Cancel) -> Result<Report, Cancelled> {
    let name = trace.name(event.name);
    let track = trace.tracks().get(event.track.index());
    let file = track.and_then(|track| trace.files().get(track.file));
    let start = run_start(trace);
    let mut report = Report::new("event");
    report.scalar("event", "Event", Unit::Event, event.id);
    report.scalar("name", "Name", Unit::Text, name);
    report.scalar("demangled", "Demangled", Unit::Text, demangled(name));
    report.scalar("kind", "Kind", Unit::Text, event.kind.label());
    let category = trace.name(event.category);
    report.scalar("category", "Category", Unit::Text, some(category));
    report.scalar(
        "track",
        "Track",
        Unit::Text,
        track.map(|track| track.name.clone()),
    );
    report.scalar("track_id", "Track id", Unit::Number, event.track.0);
    report.scalar(
        "host",
        "Host",
        Unit::Text,
        file.and_then(|file| some(&file.spec.host)),
    );
    report.scalar(
        "rank",
        "Rank",
        Unit::Number,
        file.and_then(|file| file.spec.rank),
    );
    report.scalar(
        "start_ns",
        "Start",
        Unit::Ns,
        since_start_ns(start, event.start),
    );
    let is_unfinished = event.flags.contains(SliceFlags::UNFINISHED);
    report.scalar(
        "unfinished",
        "Unfinished",
        Unit::Flag,
        is_unfinished.then_some(true),
    );
    report.scalar("step", "Step", Unit::Number, event.step);
    let place = if event.instant {
        None
    } else {
        report.scalar("duration_ns", "Duration", Unit::Ns, event.dur);
        report.scalar("self_ns", "Self", Unit::Ns, event.self_time);
        report.scalar("depth", "Depth", Unit::Number, u32::from(event.depth));
        among(trace, event, &mut report, cancel)?
    };
    report.sentence = match place {
        Some((rank, count)) => format!(
            "{} takes {}: rank {} by duration among the {} slices of its name.",
            in_sentence(name),
            duration(event.dur.as_ns_f64()),
            with_thousands(rank as u64),
            with_thousands(count as u64)
        ),
        None => format!("{} is a point in time.", in_sentence(name)),
    }
    .into();
    match arguments(trace, event.id) {
        Ok(table) => report.table = table,
        Err(error) => report.note(format!("The arguments cannot be read: {error}")),
    }
    let around = EventContext::compute(trace, event);
    let shapes = around
        .shapes
        .as_deref()
        .map(|shapes| json_on_one_line(shapes).into_owned());
    report.scalar("shapes", "Input shapes", Unit::Text, shapes);
    report.section("context", "Context", context(trace, &around));
    report.section("children", "Inner slices", children(trace, event));
    report.section("links", "Links", links(trace, event.id));
    Ok(report)
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Adds the distribution of the durations of the event's name; returns its rank and their number.
fn among(
    trace: &Trace,
    event: &Event,
    report: &mut Report,
    cancel: &Cancel,
) -> Result<Option<(usize, usize)>, Cancelled> {
    let names = NameSet::from_ids(trace, &[event.name]);
    let tracks: Vec<_> = trace.tracks().iter().map(|track| track.id).collect();
    let all = histogram::durations(trace, &names, &tracks, &(Time::MIN..Time::MAX), cancel)?;
    for (key, title, share) in [
        ("name_min_ns", "Min of the name", 0.0),
        ("name_p50_ns", "p50 of the name", 0.5),
        ("name_p90_ns", "p90 of the name", 0.9),
        ("name_max_ns", "Max of the name", 1.0),
    ] {
        report.scalar(key, title, Unit::Ns, all.quantile(share));
    }
    report.scalar(
        "name_total_ns",
        "Total of the name",
        Unit::Ns,
        all.total_ps() as f64 / 1e3,
    );
    Ok((all.count() > 0).then(|| (all.longer_than(event.dur) + 1, all.count())))
}

/// Returns the arguments in the file's order.
fn arguments(trace: &Trace, id: EventId) -> Result<Table, String> {
    let mut table = Table::new(vec![
        Column::new("key", "Argument", Unit::Text),
        Column::new("type", "Type", Unit::Text),
        Column::new("value", "Value", Unit::Text),
    ]);
    let mut add = |key: &str, value: ArgValue<'_>| {
        if table.rows.len() >= MAX_ROWS {
            table.left_out += 1;
            return;
        }
        let (kind, value) = argument(value);
        table.push([key.into(), kind.into(), value]);
    };
    let read = trace
        .args(id, &mut add)
        .and_then(|()| execution_trace::facts(trace, id, &mut add));
    read.map_err(|error| error.to_string())?;
    Ok(table)
}

/// Returns type and value of an argument.
fn argument(value: ArgValue<'_>) -> (&'static str, Cell) {
    match value {
        ArgValue::Int(value) => ("int", value.to_string().into()),
        ArgValue::Uint(value) => ("uint", value.to_string().into()),
        ArgValue::Double(value) => ("double", value.to_string().into()),
        ArgValue::Bool(value) => ("bool", value.into()),
        ArgValue::Str(text) => ("text", beginning(text).into()),
        ArgValue::Json(text) => (
            "json",
            json_on_one_line(beginning(text)).into_owned().into(),
        ),
        ArgValue::Bytes(bytes) => {
            let shown: Vec<String> = bytes
                .iter()
                .take(MAX_BYTES)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let more = if bytes.len() > MAX_BYTES { "…" } else { "" };
            let text = format!("{} bytes: {}{more}", bytes.len(), shown.join(""));
            ("bytes", text.into())
        }
    }
}

/// Returns the beginning of a text: one character more than is shown, so that the cut is visible.
fn beginning(text: &str) -> &str {
    let end = text.char_indices().nth(LONGEST_TEXT + 1);
    end.map_or(text, |(at, _)| &text[..at])
}

/// Returns the slices that explain the event, and those around it.
fn context(trace: &Trace, around: &EventContext) -> Table {
    let mut table = slices();
    for (role, id) in [
        ("launched by", around.launch),
        ("operator", around.operator),
        ("forward operator", around.forward),
        ("module", around.module),
        ("line", around.line),
    ] {
        if let Some(id) = id {
            push(trace, &mut table, role, id);
        }
    }
    for id in around.frames.iter().take(MAX_ROWS) {
        push(trace, &mut table, "inside", *id);
    }
    table
}

/// Returns the slices directly inside a slice, in the order of their start.
fn children(trace: &Trace, event: &Event) -> Table {
    let mut table = slices();
    if event.instant {
        return table;
    }
    let slices = trace.slices(event.track);
    let end = event.start.saturating_add(event.dur);
    let further = event.index.saturating_add(1)..slices.len();
    for at in further.take(MAX_SEARCHED) {
        if slices.start[at] > end {
            break;
        }
        if slices.parent[at] as usize != event.index {
            continue;
        }
        if table.rows.len() >= MAX_ROWS {
            table.left_out += 1;
        } else {
            push(trace, &mut table, "inner", slices.id(at));
        }
    }
    table
}

/// Returns the events at the other ends of the event's flows.
fn links(trace: &Trace, id: EventId) -> Table {
    let mut table = slices();
    let (into, out) = (trace.flows_in(id), trace.flows_out(id));
    let before = into.iter().map(|link| ("from", link.from));
    let after = out.iter().map(|link| ("to", link.to));
    for (role, other) in before.chain(after) {
        if table.rows.len() >= MAX_ROWS {
            table.left_out += 1;
        } else {
            push(trace, &mut table, role, other);
        }
    }
    table
}

/// Returns a table of slices without rows.
fn slices() -> Table {
    Table::new(vec![
        Column::new("role", "Role", Unit::Text),
        Column::new("event", "Event", Unit::Event),
        Column::new("name", "Name", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
    ])
}

fn push(trace: &Trace, table: &mut Table, role: &'static str, id: EventId) {
    if let Some(event) = trace.event(id) {
        table.push([
            role.into(),
            id.into(),
            beginning(trace.name(event.name)).into(),
            since_start_ns(run_start(trace), event.start).into(),
            event.dur.into(),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_type_and_exact_value() {
        for (value, expected) in [
            (ArgValue::Int(i64::MIN), ("int", "-9223372036854775808")),
            (ArgValue::Uint(u64::MAX), ("uint", "18446744073709551615")),
            (ArgValue::Double(f64::NAN), ("double", "NaN")),
            (ArgValue::Json("[\n 1,\n 2]"), ("json", "[1, 2]")),
            (ArgValue::Bytes(&[0, 255]), ("bytes", "2 bytes: 00ff")),
        ] {
            assert_eq!(argument(value), (expected.0, expected.1.into()));
        }
        let (_, long) = argument(ArgValue::Str(&"é".repeat(1 << 20)));
        assert_eq!(long, "é".repeat(LONGEST_TEXT + 1).into());
    }
}
