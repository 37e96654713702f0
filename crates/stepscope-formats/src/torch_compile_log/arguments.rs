//! Arguments of compilations, in torch's own names, and of phases.

use stepscope_model::{ArgError, ArgValue};

use super::compilations::{Compilation, CompileLog};
use super::metrics::{function, status, visit_metrics};
use crate::cprofile::truncated;
use crate::json::members::{elements, members};
use crate::json::scan::{self, ByteRange, JsonType, Value, skip_space};
use crate::json::value::{key_of, with_value};
use crate::json::walk;

/// Maximum length of a JSON value among the arguments; longer ones are left out.
const MAX_JSON_BYTES: usize = 4_096;
/// Members of the metrics that are left out: those that other arguments repeat, and the settings of the
/// compiler, thousands of bytes for each compilation.
const LEFT_OUT: &[&[u8]] = &[
    b"compile_id",
    b"co_name",
    b"co_filename",
    b"co_firstlineno",
    b"recompile_reason",
    b"restart_reasons",
    b"start_time",
    b"dynamo_config",
    b"inductor_config",
    b"python_version",
    b"log_format_version",
];

/// Calls `visit` for each argument of a compilation.
pub(super) fn visit_compilation(
    file: &[u8],
    log: &CompileLog,
    number: usize,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<(), ArgError> {
    let compilation = log.compilations.get(number).ok_or(ArgError::BadToken)?;
    visit("compile_id", ArgValue::Str(&compilation.id.to_string()));
    visit("status", ArgValue::Str(status(file, compilation).code()));
    visit("attempt", whole(compilation.attempt));
    let function = function(file, log, compilation);
    visit("co_name", ArgValue::Str(&function.name));
    if !function.file.is_empty() {
        visit("co_filename", ArgValue::Str(&function.file));
    }
    if let Some(line) = function.line {
        visit("co_firstlineno", whole(line));
    }
    visit_reasons(file, compilation, visit);
    for (key, lookups) in [
        ("fx_graph_cache", compilation.fx_graph_cache),
        ("aotautograd_cache", compilation.aotautograd_cache),
    ] {
        if let Some(result) = lookups.result() {
            visit(key, ArgValue::Str(result));
        }
    }
    if let Some(payload) = compilation.graph_break {
        let text = payload_text(file, payload);
        // The rest is the stack inside the compiler.
        let (text, _) = text
            .split_once("\nTraceback (most recent call last)")
            .unwrap_or((&text, ""));
        visit("graph_break_reason", ArgValue::Str(&truncated(text.trim())));
    }
    visit_metrics(file, compilation, |key, value| {
        if !LEFT_OUT.contains(&key) && !value.is_empty_container(file) {
            bounded(file, value, |value| visit(&key_of(key), value));
        }
    });
    Ok(())
}

/// Visits why the function was compiled again, and why its analysis was restarted.
fn visit_reasons(
    file: &[u8],
    compilation: &Compilation,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) {
    let mut reasons = Vec::new();
    if let Some(payload) = compilation.recompile_reasons {
        let text = file.get(..payload.end).unwrap_or_default();
        let at = skip_space(text, payload.start);
        if let Ok((list, _)) = scan::value(text, at) {
            elements(text, &list, |reason| {
                reasons.extend(walk::text(text, reason));
            });
        }
    }
    let mut reason = None;
    let mut restarts = Vec::new();
    visit_metrics(file, compilation, |key, value| match key {
        b"recompile_reason" => reason = walk::text(file, value),
        b"restart_reasons" => {
            elements(file, value, |reason| {
                restarts.extend(walk::text(file, reason));
            });
        }
        _ => {}
    });
    if let Some(reason) = reason.as_ref().or(reasons.first()) {
        visit("recompile_reason", ArgValue::Str(&truncated(reason)));
    }
    for (key, reasons) in [
        ("recompile_reasons", &reasons),
        ("restart_reasons", &restarts),
    ] {
        // One reason for recompilation is the argument above.
        if reasons.len() > usize::from(key == "recompile_reasons") {
            visit(key, ArgValue::Str(&truncated(&reasons.join("\n"))));
        }
    }
}

/// Calls `visit` for each argument of a phase: the members of `args` of the Chrome trace event.
pub(super) fn visit_phase(
    file: &[u8],
    offset: usize,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<(), ArgError> {
    if file.get(offset) != Some(&b'{') {
        return Err(ArgError::Damaged);
    }
    let mut args = None;
    members(file, offset, |key, value| {
        if key == b"args" && value.json_type == JsonType::Object {
            args = Some(value);
        }
    })
    .map_err(|_stopped| ArgError::Damaged)?;
    if let Some(args) = args {
        members(file, args.span.start, |key, value| {
            if !value.is_null(file) && !value.is_empty_container(file) {
                bounded(file, &value, |value| visit(&key_of(key), value));
            }
        })
        .map_err(|_stopped| ArgError::Damaged)?;
    }
    Ok(())
}

/// Passes a value on with its text truncated. Settings and lists of the cache's keys can be long.
fn bounded(file: &[u8], value: &Value, then: impl FnOnce(ArgValue<'_>)) {
    with_value(file, value, |value| match value {
        ArgValue::Str(text) => then(ArgValue::Str(&truncated(text))),
        ArgValue::Json(text) if text.len() > MAX_JSON_BYTES => {}
        other => then(other),
    });
}

/// Returns the text of a payload, without the tabs before its lines; at most some KiB of it.
fn payload_text(file: &[u8], payload: ByteRange) -> String {
    const MAX_BYTES: usize = 16 << 10;
    let raw = payload.slice(file);
    let raw = raw.get(..raw.len().min(MAX_BYTES)).unwrap_or_default();
    let lines = raw.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| String::from_utf8_lossy(line.strip_prefix(b"\t").unwrap_or(line)));
    lines.collect::<Vec<_>>().join("\n")
}

fn whole(number: u64) -> ArgValue<'static> {
    i64::try_from(number).map_or(ArgValue::Uint(number), ArgValue::Int)
}
