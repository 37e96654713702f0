//! Function, times and outcome of a compilation, from its metrics or its first entry.

use super::compilations::{Compilation, CompileLog};
use crate::cprofile::truncated;
use crate::json::members::{elements, members};
use crate::json::number::{ps_from_text, ps_from_us_text};
use crate::json::scan::{JsonType, Value};
use crate::json::walk;

/// Power of ten that converts seconds to picoseconds.
const SECONDS: i64 = 12;

/// The function that was compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    /// `co_name` of its code object; empty if unknown.
    pub(super) name: String,
    /// Path of its source file; empty if unknown.
    pub(super) file: String,
    /// Line of its definition.
    pub(super) line: Option<u64>,
}

/// Outcome of a compilation. The first four are the colours of `tlparse`'s list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Compiled.
    Ok,
    /// Compiled after the analysis was restarted, as a graph break does.
    Restarted,
    /// The function has no operation to compile.
    Empty,
    /// The compiler raised an exception.
    Failed,
    /// The log has no metrics: the program ended first.
    Unfinished,
}

impl Status {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Restarted => "restarted",
            Self::Empty => "empty",
            Self::Failed => "failed",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Calls `visit` for each member of the metrics that is not `null`.
pub(super) fn visit_metrics(
    file: &[u8],
    compilation: &Compilation,
    mut visit: impl FnMut(&[u8], &Value),
) {
    if let Some(metrics) = compilation.metrics {
        // The value was scanned completely before; a file that has changed gives fewer members.
        let _ = members(file, metrics.span.start, |key, value| {
            if !value.is_null(file) {
                visit(key, &value);
            }
        });
    }
}

/// Returns the function of a compilation; that of the forward compilation for a backward graph.
pub(super) fn function(file: &[u8], log: &CompileLog, compilation: &Compilation) -> Function {
    let mut found = Function::default();
    visit_metrics(file, compilation, |key, value| match key {
        b"co_name" => found.name = walk::text(file, value).unwrap_or_default(),
        b"co_filename" => found.file = walk::text(file, value).unwrap_or_default(),
        b"co_firstlineno" => found.line = walk::whole(file, value),
        _ => {}
    });
    if found.name.is_empty()
        && let Some(start) = compilation.start
    {
        found = innermost_frame(file, log, &start);
    }
    if found.name.is_empty()
        && let Some(forward) = compilation.forward.and_then(|at| log.compilations.get(at))
    {
        // A forward compilation has no forward compilation of its own.
        return function(file, log, forward);
    }
    found.name = truncated(&found.name);
    found.file = truncated(&found.file);
    found
}

/// Returns the last frame of the stack of `dynamo_start`: the function itself.
fn innermost_frame(file: &[u8], log: &CompileLog, start: &Value) -> Function {
    let mut last = None;
    let _ = members(file, start.span.start, |key, value| {
        if key == b"stack" {
            elements(file, &value, |frame| last = Some(*frame));
        }
    });
    let mut found = Function::default();
    let Some(frame) = last.filter(|frame| frame.json_type == JsonType::Object) else {
        return found;
    };
    let _ = members(file, frame.span.start, |key, value| match key {
        b"name" => found.name = walk::text(file, &value).unwrap_or_default(),
        b"line" => found.line = walk::whole(file, &value),
        b"filename" => {
            let interned = walk::whole(file, &value).and_then(|number| log.text(file, number));
            found.file = interned.unwrap_or_default();
        }
        b"uninterned_filename" => found.file = walk::text(file, &value).unwrap_or_default(),
        _ => {}
    });
    found
}

/// Start and duration of a compilation in picoseconds, the start of Unix time; `None` where the metrics have
/// neither.
///
/// The duration is `duration_us`, which `tlparse` shows in seconds as the time of the entire frame.
pub(super) fn times(file: &[u8], compilation: &Compilation) -> (Option<i128>, Option<i128>) {
    let (mut start_us, mut coarse_start, mut end_us) = (None, None, None);
    let (mut duration_us, mut frame_s, mut elapsed_s, mut inductor_s) = (None, None, None, None);
    visit_metrics(file, compilation, |key, value| {
        let raw = || value.raw(file).unwrap_or_default();
        let us = || ps_from_us_text(raw()).ok();
        let seconds = || ps_from_text(raw(), SECONDS).ok();
        match key {
            b"start_time_us" => start_us = us(),
            b"end_time_us" => end_us = us(),
            b"duration_us" => duration_us = us(),
            b"start_time" => coarse_start = seconds(),
            b"entire_frame_compile_time_s" => frame_s = seconds(),
            b"elapsed_time" => elapsed_s = seconds(),
            b"inductor_compile_time_s" => inductor_s = seconds(),
            _ => {}
        }
    });
    let start = start_us.or(coarse_start);
    let between = start.zip(end_us);
    let between = between.and_then(|(start, end): (i128, i128)| end.checked_sub(start));
    let dur = duration_us.or(frame_s).or(elapsed_s).or(between);
    (start, dur.or(inductor_s))
}

/// Returns the outcome of a compilation.
pub(super) fn status(file: &[u8], compilation: &Compilation) -> Status {
    if compilation.metrics.is_none() {
        return Status::Unfinished;
    }
    let (mut has_failed, mut has_restarted, mut operations) = (false, false, 0);
    visit_metrics(file, compilation, |key, value| match key {
        b"fail_type" => has_failed = true,
        b"restart_reasons" => {
            has_restarted = value.json_type == JsonType::Array && !value.is_empty_container(file);
        }
        b"graph_op_count" => operations = walk::whole(file, value).unwrap_or(0),
        _ => {}
    });
    match (has_failed, has_restarted) {
        (true, _) => Status::Failed,
        // Metrics of a backward graph do not count its operations.
        (false, _) if operations == 0 && !compilation.is_backward => Status::Empty,
        (false, true) => Status::Restarted,
        (false, false) => Status::Ok,
    }
}
