//! Reader of a whole file.
//!
//! ```text
//! head (keys before the list) ─ epoch ─ parts of the list, in parallel ─ tail (keys behind it)
//!                                         └ begins and ends paired, tracks described, issues counted
//! ```

mod emitted;
mod events;
mod flows;
mod lists;
mod metadata;
mod names;
mod outline;
mod pairing;
mod read_issues;
mod tracks;

use stepscope_model::{ArgValue, EventSink, ReadContext, SharedBytes, SourceId};

use crate::FormatError;
use crate::chrome_json::args::Source;
use crate::chrome_json::dialect::stepscope;
use crate::chrome_json::dialect::torch;
use crate::json::value::TopLevel;
use crate::null_sink::NullSink;
use emitted::{Emitted, Plan, Steps};
use lists::read_list;
use metadata::Metadata;
use outline::{Origin, Outline};
use pairing::Pairing;
use read_issues::ReadIssue;

/// Reads a whole file. See [`super::read`].
pub(crate) fn read<S: EventSink>(
    shared: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let bytes: &[u8] = (**shared).as_ref();
    let mut outline = Outline::open(bytes)?;
    let origin = Origin::find(bytes, &outline);
    let source = Source::new(shared, find_ends);
    let mut plan = Plan {
        bytes,
        context,
        origin_ps: origin.ps(),
        source: sink.source(source.clone()),
        steps: steps_of(bytes, &outline.top),
        splits_rows: false,
    };
    let first_list = outline.list;
    sink.epoch(origin.epoch);
    context.advance(first_list.min(bytes.len()) as u64)?;

    let mut emitted = Emitted::default();
    let mut list = Some(first_list);
    while let Some(at) = list {
        let (part, ended) = read_list(&mut plan, sink, at)?;
        emitted.append(sink, part);
        list = outline.go_on(bytes, ended, &mut emitted);
    }
    if emitted.entries == 0 && emitted.issues.unreadable() > 0 {
        return Err(FormatError::Malformed {
            reason: "no trace events in the list".to_owned(),
            offset: first_list as u64,
        });
    }
    if emitted.entries == 0 && outline.is_bare && first_list >= bytes.len() {
        return Err(FormatError::Malformed {
            reason: "the text ends before the first entry".to_owned(),
            offset: first_list as u64,
        });
    }
    finish(plan, sink, &outline, &origin, emitted, &source);
    Ok(())
}

fn steps_of(bytes: &[u8], top: &TopLevel) -> Steps {
    if stepscope::is_ours(bytes, top) {
        Steps::ExtensionOnly
    } else if torch::is_torch(bytes, top) {
        Steps::Names
    } else {
        Steps::NamesAndArgs
    }
}

/// Finds the begin and end offsets of the pairs whose ends have arguments.
pub(crate) fn find_ends(shared: &SharedBytes) -> Vec<(u64, u64)> {
    read_ends(shared).unwrap_or_default()
}

fn read_ends(shared: &SharedBytes) -> Result<Vec<(u64, u64)>, FormatError> {
    let bytes: &[u8] = (**shared).as_ref();
    let context = ReadContext::default();
    let mut outline = Outline::open(bytes)?;
    let mut plan = Plan {
        bytes,
        context: &context,
        origin_ps: Origin::find(bytes, &outline).ps(),
        source: SourceId(0),
        steps: Steps::ExtensionOnly,
        splits_rows: false,
    };
    let mut sink = NullSink::default();
    let mut emitted = Emitted::default();
    let mut list = Some(outline.list);
    while let Some(at) = list {
        let (part, ended) = read_list(&mut plan, &mut sink, at)?;
        emitted.append(&mut sink, part);
        list = outline.go_on(bytes, ended, &mut emitted);
    }
    Ok(emit_pairs(plan, &mut sink, &mut emitted))
}

/// Emits the events that need the whole list; returns the begin and end offsets of pairs whose end
/// has arguments.
fn emit_pairs<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    emitted: &mut Emitted,
) -> Vec<(u64, u64)> {
    let mut pairing = Pairing {
        bytes: plan.bytes,
        source: plan.source,
        last_ps: emitted.last_ps.unwrap_or(0),
        max_tracks: plan.context.limits.max_tracks,
        steps: plan.steps,
        ends: Vec::new(),
    };
    let threads = std::mem::take(&mut emitted.begins_and_ends);
    pairing.emit_threads(sink, &emitted.rows, threads, &mut emitted.issues);
    let asyncs = std::mem::take(&mut emitted.asyncs);
    pairing.emit_asyncs(sink, &mut emitted.rows, asyncs, &mut emitted.issues);
    pairing.ends
}

fn finish<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    outline: &Outline,
    origin: &Origin,
    mut emitted: Emitted,
    source: &Source,
) {
    let bytes = plan.bytes;
    let ends = emit_pairs(plan, sink, &mut emitted);
    source.set_ends(ends);
    flows::emit_waiting(bytes, &mut emitted, sink);
    let metadata = Metadata::read(bytes, &emitted.metadata, sink);
    metadata.describe(bytes, &emitted.rows, sink);

    let is_ours = stepscope::is_ours(bytes, &outline.top);
    if is_ours {
        stepscope::emit_end(bytes, &outline.top, sink);
    } else {
        torch::emit_facts(bytes, &outline.top, sink);
        let is_xla = metadata
            .any_process_named(|name| name.starts_with("/host:") || name.starts_with("/device:"));
        torch::emit_badges(bytes, &outline.top, emitted.hints, is_xla, sink);
        if let Some(pid) = metadata.host_pid(&emitted.rows) {
            sink.fact("pid", ArgValue::Int(pid));
        }
        if let Some(unix_ns) = origin.epoch.unix_ns {
            sink.fact("unix_start_ns", ArgValue::Int(unix_ns));
        }
    }

    if let Some(at) = outline.damaged_head {
        emitted.issues.note(ReadIssue::DamagedHead, at);
    }
    if let Some((cut, at)) = outline.cut {
        emitted.issues.note(ReadIssue::Top(cut), at);
    }
    let whole = emitted.entries;
    let missing = outline
        .cut
        .map_or(0, |(_, at)| bytes.len() - at.min(bytes.len()));
    let tail = format!(
        "{whole} whole entries came before, {missing} bytes behind them were left out, and what was never written is missing"
    );
    emitted.issues.emit(sink, &tail);
    if emitted.rows.len() == 0 {
        let detail = format!("{whole} entries, none of them an event");
        sink.diagnose(stepscope_model::Diagnostic::EmptyTrace, 1, &detail);
    }
}
