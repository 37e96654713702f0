//! Compilations by `torch.compile`, from its structured trace log: which functions, for how long, and why again.
//!
//! A compilation is a slice of category [`torch_compile::CATEGORY`]; torch's own fields are its arguments. Its
//! duration is the time of the entire frame as `tlparse` shows it, on the thread that called the function. A
//! function that torch splits at a graph break has one compilation for each part, and functions that are compiled
//! inside of another compilation have their own: durations may overlap.
//!
//! ```text
//! recompilation = compilation of the forward graph for which torch gives the guards that failed
//! ```

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::torch_compile;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, Dur, NameId, Time};
use stepscope_store::{EventId, FileFacts, Trace, Track};

use crate::parallel::Cancel;

/// Names of the arguments that are read.
const KEYS: ArgKeys = ArgKeys::new(&[
    "compile_id",
    "status",
    "co_name",
    "co_filename",
    "co_firstlineno",
    "recompile_reason",
    "restart_reasons",
    "fx_graph_cache",
    "aotautograd_cache",
    "graph_op_count",
    "guard_count",
    "fail_type",
    "fail_reason",
]);

/// One compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilationRecord {
    /// Its slice.
    pub event: EventId,
    /// Index of its file.
    pub file: usize,
    /// Start.
    pub start: Time,
    /// Duration of the entire frame.
    pub dur: Dur,
    /// `0/1` is the second compilation of the first frame.
    pub id: String,
    /// Name of the function as its code object gives it.
    pub function: String,
    /// Path of the source file; empty if unknown.
    pub source_file: String,
    /// Line of the definition.
    pub line: Option<u64>,
    /// Whether this is the backward graph alone.
    pub is_backward: bool,
    /// `ok`, `restarted`, `empty`, `failed` or `unfinished`.
    pub status: String,
    /// Why the function was compiled again, in torch's words; empty for the first compilation.
    pub recompile_reason: String,
    /// Why the analysis was restarted, one reason after the other; empty if it was not.
    pub restart_reasons: String,
    /// Operations of the graph.
    pub graph_ops: Option<u64>,
    /// Guards of the compiled code.
    pub guards: Option<u64>,
    /// Result of the lookup in Inductor's cache of graphs, or else in that of `AOTAutograd`: `hit`, `miss` or
    /// `bypass`; empty without a lookup.
    pub cache: String,
    /// Exception of a failed compilation and its text; empty if it did not fail.
    pub failure: String,
}

impl CompilationRecord {
    /// Returns whether the function had been compiled before, and a guard failed.
    pub fn is_recompilation(&self) -> bool {
        !self.recompile_reason.is_empty()
    }

    /// Returns the guard that failed: the reason without the id before it and the line of source code after it.
    pub fn failed_guard(&self) -> &str {
        let reason = self.recompile_reason.trim();
        let guard = match reason.split_once(": ") {
            Some((id, guard)) if is_compile_id(id) => guard,
            _ => reason,
        };
        guard.split("  #").next().unwrap_or(guard).trim_end()
    }

    /// Returns `FILE:LINE`; `None` if the file is unknown.
    pub fn source(&self) -> Option<String> {
        match self.line {
            _ if self.source_file.is_empty() => None,
            Some(line) => Some(format!("{}:{line}", self.source_file)),
            None => Some(self.source_file.clone()),
        }
    }
}

/// Returns whether a text is an id such as `0/1` or `!2/0/1`.
fn is_compile_id(text: &str) -> bool {
    text.contains('/')
        && text
            .chars()
            .all(|letter| letter.is_ascii_digit() || "!/".contains(letter))
}

/// Compilations of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledFunction<'a> {
    /// Its first compilation, which has its name, file and line.
    pub first: &'a CompilationRecord,
    /// Number of compilations, backward graphs included.
    pub count: u64,
    /// Number of recompilations.
    pub recompilations: u64,
    /// Number of failed ones.
    pub failures: u64,
    /// Sum of the durations.
    pub total: Dur,
    /// The longest compilation.
    pub longest: &'a CompilationRecord,
    /// Guards that failed, each once, in the order of the first failure.
    pub failed_guards: Vec<&'a str>,
}

/// Time of one phase of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerPhase {
    /// Name of its slices.
    pub name: String,
    /// Number of slices.
    pub count: u64,
    /// Sum of their durations without those of phases inside of them.
    pub self_time: Dur,
    /// Sum of their durations; a phase inside of one with the same name counts once.
    pub total: Dur,
    /// The longest slice.
    pub longest: EventId,
}

/// Returns whether the run has a log of compilations, from the formats of its files alone.
pub fn has_compile_log(trace: &Trace) -> bool {
    trace.files().iter().any(FileFacts::is_compile_log)
}

/// Lists the compilations that overlap the range, by their start; all without a range.
///
/// # Errors
///
/// Fails if the work is cancelled.
pub fn compilations(
    trace: &Trace,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<Vec<CompilationRecord>, Cancelled> {
    let mut found = Vec::new();
    for (track, index) in slices_of(trace, torch_compile::CATEGORY, range, cancel)? {
        found.push(record(trace, track, index));
        if found.len().is_multiple_of(1_024) {
            cancel.check()?;
        }
    }
    found.sort_by_key(|record| (record.start, Reverse(record.dur), record.event));
    Ok(found)
}

/// Lists the slices of a category on the tracks of compile logs.
fn slices_of<'a>(
    trace: &'a Trace,
    category: &str,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<Vec<(&'a Track, usize)>, Cancelled> {
    let mut found = Vec::new();
    for track in trace.tracks() {
        let file = trace.files().get(track.file);
        if track.slices == 0 || !file.is_some_and(FileFacts::is_compile_log) {
            continue;
        }
        cancel.check()?;
        let slices = trace.slices(track.id);
        let is_inside = |index: usize| {
            range.is_none_or(|range| {
                slices.start[index] < range.end && slices.end(index) > range.start
            })
        };
        found.extend((0..slices.len()).filter_map(|index| {
            let is_wanted = trace.name(slices.category.get(index)) == category && is_inside(index);
            is_wanted.then_some((track, index))
        }));
    }
    Ok(found)
}

fn record(trace: &Trace, track: &Track, index: usize) -> CompilationRecord {
    let slices = trace.slices(track.id);
    let mut record = CompilationRecord {
        event: slices.id(index),
        file: track.file,
        start: slices.start[index],
        dur: slices.end(index).since(slices.start[index]),
        id: String::new(),
        function: String::new(),
        source_file: String::new(),
        line: None,
        is_backward: trace.name(slices.name[index]).ends_with(" (backward)"),
        status: String::new(),
        recompile_reason: String::new(),
        restart_reasons: String::new(),
        graph_ops: None,
        guards: None,
        cache: String::new(),
        failure: String::new(),
    };
    let mut autograd_cache = String::new();
    let mut fail_reason = String::new();
    // Without arguments, as when the file has changed, the name and the times remain.
    let _ = trace.args_of_slice(track.id, index, KEYS, &mut |key, value| {
        let text = || match value {
            ArgValue::Str(text) => text.to_owned(),
            _ => String::new(),
        };
        let number = || match value {
            ArgValue::Int(number) => u64::try_from(number).ok(),
            ArgValue::Uint(number) => Some(number),
            _ => None,
        };
        match key {
            "compile_id" => record.id = text(),
            "status" => record.status = text(),
            "co_name" => record.function = text(),
            "co_filename" => record.source_file = text(),
            "co_firstlineno" => record.line = number(),
            "recompile_reason" => record.recompile_reason = text(),
            "restart_reasons" => record.restart_reasons = text(),
            "graph_op_count" => record.graph_ops = number(),
            "guard_count" => record.guards = number(),
            "fx_graph_cache" => record.cache = text(),
            "aotautograd_cache" => autograd_cache = text(),
            "fail_type" => record.failure = text(),
            "fail_reason" => fail_reason = text(),
            _ => {}
        }
    });
    if record.function.is_empty() {
        trace
            .name(slices.name[index])
            .trim_end_matches(" (backward)")
            .clone_into(&mut record.function);
    }
    if record.cache.is_empty() {
        record.cache = autograd_cache;
    }
    if !record.failure.is_empty() && !fail_reason.is_empty() {
        record.failure = format!("{}: {fail_reason}", record.failure);
    }
    record
}

/// Groups compilations by function, the one with the longest total first.
pub fn by_function(records: &[CompilationRecord]) -> Vec<CompiledFunction<'_>> {
    type Key<'a> = (usize, &'a str, &'a str, Option<u64>);
    let mut index: FxHashMap<Key<'_>, usize> = FxHashMap::default();
    let mut found: Vec<CompiledFunction<'_>> = Vec::new();
    for record in records {
        let key = (
            record.file,
            record.function.as_str(),
            record.source_file.as_str(),
            record.line,
        );
        let at = *index.entry(key).or_insert_with(|| {
            found.push(CompiledFunction {
                first: record,
                count: 0,
                recompilations: 0,
                failures: 0,
                total: Dur::ZERO,
                longest: record,
                failed_guards: Vec::new(),
            });
            found.len() - 1
        });
        let Some(function) = found.get_mut(at) else {
            continue;
        };
        function.count += 1;
        function.failures += u64::from(!record.failure.is_empty());
        function.total = function.total.saturating_add(record.dur);
        if record.dur > function.longest.dur {
            function.longest = record;
        }
        if record.is_recompilation() {
            function.recompilations += 1;
            let guard = record.failed_guard();
            if !function.failed_guards.contains(&guard) {
                function.failed_guards.push(guard);
            }
        }
    }
    found.sort_by_key(|function| (Reverse(function.total), function.first.start));
    found
}

/// Sums up the phases of the compiler that overlap the range, the one with the longest own time first. Durations
/// are those of whole phases.
///
/// # Errors
///
/// Fails if the work is cancelled.
pub fn by_phase(
    trace: &Trace,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<Vec<CompilerPhase>, Cancelled> {
    let mut index: FxHashMap<NameId, usize> = FxHashMap::default();
    let mut found: Vec<(CompilerPhase, Dur)> = Vec::new();
    let mut place = |name: NameId, event: EventId, found: &mut Vec<(CompilerPhase, Dur)>| {
        *index.entry(name).or_insert_with(|| {
            let phase = CompilerPhase {
                name: trace.name(name).to_owned(),
                count: 0,
                self_time: Dur::ZERO,
                total: Dur::ZERO,
                longest: event,
            };
            found.push((phase, Dur::ZERO));
            found.len() - 1
        })
    };
    for (track, at) in slices_of(trace, torch_compile::PHASE_CATEGORY, range, cancel)? {
        let slices = trace.slices(track.id);
        let (name, dur) = (slices.name[at], slices.end(at).since(slices.start[at]));
        let own = place(name, slices.id(at), &mut found);
        let (mut parent, mut is_nested) = (slices.parent[at] as usize, false);
        if parent < slices.len() {
            let outer = place(slices.name[parent], slices.id(parent), &mut found);
            if let Some((phase, _)) = found.get_mut(outer) {
                phase.self_time = Dur::from_ps(phase.self_time.ps().saturating_sub(dur.ps()));
            }
        }
        while parent < slices.len() {
            is_nested |= slices.name[parent] == name;
            parent = slices.parent[parent] as usize;
        }
        if let Some((phase, longest)) = found.get_mut(own) {
            phase.count += 1;
            phase.self_time = phase.self_time.saturating_add(dur);
            if !is_nested {
                phase.total = phase.total.saturating_add(dur);
            }
            if dur > *longest {
                (*longest, phase.longest) = (dur, slices.id(at));
            }
        }
    }
    let mut phases: Vec<CompilerPhase> = found.into_iter().map(|(phase, _)| phase).collect();
    // A phase outside of the range can have children inside of it.
    phases.retain(|phase| phase.count > 0);
    phases.sort_by(|a, b| (b.self_time, &a.name).cmp(&(a.self_time, &b.name)));
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(function: &str, dur_ps: i64, reason: &str) -> CompilationRecord {
        CompilationRecord {
            event: EventId::default(),
            file: 0,
            start: Time::ZERO,
            dur: Dur::from_ps(dur_ps),
            id: "0/0".to_owned(),
            function: function.to_owned(),
            source_file: "a.py".to_owned(),
            line: Some(3),
            is_backward: false,
            status: "ok".to_owned(),
            recompile_reason: reason.to_owned(),
            restart_reasons: String::new(),
            graph_ops: None,
            guards: None,
            cache: String::new(),
            failure: String::new(),
        }
    }

    #[test]
    fn guard_is_the_reason_without_id_and_source_line() {
        for (reason, guard) in [
            (
                "0/1: tensor 'x' dtype mismatch. expected Float",
                "tensor 'x' dtype mismatch. expected Float",
            ),
            (
                "!2/0/1: n == 1        # return x + n  # a.py:12 in f",
                "n == 1",
            ),
            ("len(L['a']) == 2: more", "len(L['a']) == 2: more"),
            ("", ""),
        ] {
            assert_eq!(record("f", 1, reason).failed_guard(), guard);
        }
        assert_eq!(record("f", 1, "").source().as_deref(), Some("a.py:3"));
    }

    #[test]
    fn compilations_of_one_function_are_added() {
        let all = [
            record("f", 5, ""),
            record("g", 20, ""),
            record("f", 7, "0/0: n == 1"),
            record("f", 6, "0/1: n == 1"),
        ];
        let found = by_function(&all);
        let names: Vec<_> = found.iter().map(|one| &*one.first.function).collect();
        assert_eq!(names, ["g", "f"]);
        let function = &found[1];
        assert_eq!((function.count, function.recompilations), (3, 2));
        assert_eq!((function.total.ps(), function.longest.dur.ps()), (18, 7));
        assert_eq!(function.failed_guards, ["n == 1"]);
    }
}
