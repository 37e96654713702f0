//! Facts about compilations, collected from the entries of a log.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;

use super::entries::{Entries, Entry, Line};
use crate::cprofile::truncated;
use crate::json::members::{elements, members};
use crate::json::scan::{ByteRange, ScanError, Value};
use crate::json::walk;

/// `max_compilations`: maximum number of compilations of a file.
pub(super) const MAX_COMPILATIONS: usize = 1 << 18;
/// Maximum number of different kinds of entries that are counted by name.
const MAX_ENTRY_KINDS: usize = 256;

/// Id of a compilation as torch prints it: `0/1` is the second compilation of the first frame, `!2/0/1` one for
/// compiled autograd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CompileId {
    pub(super) compiled_autograd: Option<u64>,
    pub(super) frame: Option<u64>,
    pub(super) frame_compile: Option<u64>,
}

impl CompileId {
    /// Parses torch's text of an id; `None` for `None`, which torch writes outside of compilations.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (compiled_autograd, frames) = match text.strip_prefix('!') {
            Some(rest) => {
                let (number, frames) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(number.parse().ok()?), frames)
            }
            None => (None, text),
        };
        let (frame, frame_compile) = match frames.split_once('/') {
            Some((frame, compile)) => (Some(frame.parse().ok()?), Some(compile.parse().ok()?)),
            None if frames.is_empty() => (None, None),
            None => return None,
        };
        let id = Self {
            compiled_autograd,
            frame,
            frame_compile,
        };
        (id != Self::default()).then_some(id)
    }
}

impl fmt::Display for CompileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.compiled_autograd {
            write!(f, "!{number}")?;
            if self.frame.is_none() {
                return Ok(());
            }
            f.write_str("/")?;
        }
        let or_dash = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        write!(f, "{}/{}", or_dash(self.frame), or_dash(self.frame_compile))
    }
}

/// Results of lookups in a cache of compiled graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheLookups {
    pub(super) hits: u32,
    pub(super) misses: u32,
    pub(super) bypasses: u32,
}

impl CacheLookups {
    fn add(&mut self, result: &str) {
        let count = match result {
            "hit" => &mut self.hits,
            "miss" => &mut self.misses,
            "bypass" => &mut self.bypasses,
            _ => return,
        };
        *count = count.saturating_add(1);
    }

    /// Returns the result in one word, the worst of several; `None` without a lookup.
    pub(super) fn result(self) -> Option<&'static str> {
        match self {
            Self { misses: 1.., .. } => Some("miss"),
            Self { bypasses: 1.., .. } => Some("bypass"),
            Self { hits: 1.., .. } => Some("hit"),
            _ => None,
        }
    }
}

/// Facts about one compilation: positions in the file, decoded on request.
#[derive(Clone, Debug, Default)]
pub(super) struct Compilation {
    pub(super) id: CompileId,
    /// Whether this is the backward graph alone, which is compiled when the first gradient is computed.
    pub(super) is_backward: bool,
    /// Number of restarts of the analysis so far.
    pub(super) attempt: u64,
    /// Object of `dynamo_start`.
    pub(super) start: Option<Value>,
    /// Object of `compilation_metrics` or of a `…_compilation_metrics`.
    pub(super) metrics: Option<Value>,
    /// Payload of the artifact `recompile_reasons`: a JSON list of texts.
    pub(super) recompile_reasons: Option<ByteRange>,
    /// Payload of the first artifact `dynamo_graph_break_reason`: text.
    pub(super) graph_break: Option<ByteRange>,
    /// Lookups in Inductor's cache of FX graphs.
    pub(super) fx_graph_cache: CacheLookups,
    /// Lookups in the cache of `AOTAutograd`.
    pub(super) aotautograd_cache: CacheLookups,
    /// Number of the forward compilation of a backward graph.
    pub(super) forward: Option<usize>,
}

/// Fields of an entry that say where it belongs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    pub(super) id: Option<CompileId>,
    attempt: Option<u64>,
    pub(super) rank: Option<u64>,
}

/// What remains to be done with an entry after its facts are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing.
    Collected,
    /// The entry completes a compilation: its number.
    Metrics(usize),
    /// The payload is a Chrome trace event.
    Phase,
}

/// All compilations of a file, in the order of their first entry.
#[derive(Default)]
pub(super) struct CompileLog {
    pub(super) compilations: Vec<Compilation>,
    /// The table of interned texts, by number.
    texts: FxHashMap<u64, Value>,
    /// The newest compilation of each id: forward (or both), and backward alone.
    newest: FxHashMap<(CompileId, bool), usize>,
    /// First and last time of the phases of each id since its last metrics, picoseconds of Unix time.
    phases: FxHashMap<CompileId, (i128, i128)>,
    /// Number of entries that are not decoded, by name.
    pub(super) skipped: BTreeMap<String, u64>,
    /// Number of compilations beyond the limit.
    pub(super) beyond_limit: u64,
}

impl CompileLog {
    /// Collects the compilations of a file, for their arguments.
    pub(super) fn collect(file: &[u8]) -> Self {
        let mut log = Self::default();
        for line in Entries::new(file) {
            if let Line::Entry(entry) = line {
                // A damaged entry has no facts; the reader has reported it.
                let _ = log.add(file, &entry);
            }
        }
        log
    }

    /// Adds the facts of one entry.
    ///
    /// # Errors
    ///
    /// Fails if the entry's JSON is damaged, or if the file ends before its payload.
    pub(super) fn add(
        &mut self,
        file: &[u8],
        entry: &Entry,
    ) -> Result<(Context, Content), ScanError> {
        // Values are ranges of the file: the line is cut at its end only.
        let line = file.get(..entry.json.end).unwrap_or_default();
        let mut context = Context::default();
        let mut id = CompileId::default();
        let mut fact = None;
        let mut has_payload = false;
        members(line, entry.json.start, |key, value| {
            let number = || walk::whole(line, &value);
            match key {
                b"frame_id" => id.frame = number(),
                b"frame_compile_id" => id.frame_compile = number(),
                b"compiled_autograd_id" => id.compiled_autograd = number(),
                b"attempt" => context.attempt = number(),
                b"rank" => context.rank = number(),
                b"has_payload" => has_payload = true,
                // The call stack of an entry outside of a compilation.
                b"stack" => {}
                _ => fact = fact.or(Some((key, value))),
            }
        })?;
        context.id = (id != CompileId::default()).then_some(id);
        if has_payload && entry.payload.start >= file.len() {
            return Err(ScanError::End);
        }
        let found = match fact {
            Some((kind, value)) => self.add_fact(line, entry, context, kind, value),
            None => Content::Collected,
        };
        Ok((context, found))
    }

    fn add_fact(
        &mut self,
        line: &[u8],
        entry: &Entry,
        context: Context,
        kind: &[u8],
        value: Value,
    ) -> Content {
        match kind {
            b"str" => self.add_text(line, &value),
            b"chromium_event" => return Content::Phase,
            b"dynamo_start" => {
                if let Some(compilation) = self.begin(context) {
                    compilation.start = Some(value);
                }
            }
            b"compilation_metrics" => return self.add_metrics(context, value, false),
            b"bwd_compilation_metrics" | b"aot_autograd_backward_compilation_metrics" => {
                return self.add_metrics(context, value, true);
            }
            b"artifact" => {
                let mut name = String::new();
                // The value was scanned completely before.
                let _ = members(line, value.span.start, |key, value| {
                    if key == b"name" {
                        name = walk::text(line, &value).unwrap_or_default();
                    }
                });
                self.add_artifact(entry, context, &name);
            }
            other => self.skip(&String::from_utf8_lossy(other)),
        }
        Content::Collected
    }

    /// Adds `[text, number]` to the table of interned texts.
    fn add_text(&mut self, line: &[u8], pair: &Value) {
        let mut parts = [Value::default(); 2];
        let mut count = 0;
        elements(line, pair, |part| {
            if let Some(slot) = parts.get_mut(count) {
                *slot = *part;
            }
            count += 1;
        });
        if let Some(number) = walk::whole(line, &parts[1]) {
            self.texts.insert(number, parts[0]);
        }
    }

    fn add_artifact(&mut self, entry: &Entry, context: Context, name: &str) {
        if name == "recompile_reasons" {
            if let Some(compilation) = self.begin(context) {
                compilation.recompile_reasons = Some(entry.payload);
            }
        } else if name == "dynamo_graph_break_reason" {
            if let Some(compilation) = self.begin(context) {
                compilation.graph_break = compilation.graph_break.or(Some(entry.payload));
            }
        } else if let Some(result) = name.strip_prefix("fx_graph_cache_") {
            if let Some(compilation) = self.compiling(context) {
                compilation.fx_graph_cache.add(result);
            }
        } else if let Some(result) = name.strip_prefix("aotautograd_cache_") {
            if let Some(compilation) = self.compiling(context) {
                compilation.aotautograd_cache.add(result);
            }
        } else {
            self.skip(&format!("artifact.{name}"));
        }
    }

    fn add_metrics(&mut self, context: Context, metrics: Value, is_backward: bool) -> Content {
        let id = context.id.unwrap_or_default();
        let newest = self.newest.get(&(id, is_backward)).copied();
        let waiting = newest.filter(|number| {
            let known = self.compilations.get(*number);
            known.is_some_and(|known| known.metrics.is_none())
        });
        let Some(number) = waiting.or_else(|| self.create(context, is_backward)) else {
            return Content::Collected;
        };
        if let Some(compilation) = self.compilations.get_mut(number) {
            compilation.metrics = Some(metrics);
            compilation.attempt = compilation.attempt.max(context.attempt.unwrap_or(0));
        }
        self.phases.remove(&id);
        Content::Metrics(number)
    }

    /// Returns the compilation that an entry of the frontend belongs to. Ids begin again after
    /// `torch._dynamo.reset()`, so one with metrics is complete.
    fn begin(&mut self, context: Context) -> Option<&mut Compilation> {
        let newest = self.newest.get(&(context.id?, false)).copied();
        let open = newest.filter(|number| {
            let known = self.compilations.get(*number);
            known.is_some_and(|known| known.metrics.is_none())
        });
        let number = match open {
            Some(number) => number,
            None => self.create(context, false)?,
        };
        let compilation = self.compilations.get_mut(number)?;
        compilation.attempt = compilation.attempt.max(context.attempt.unwrap_or(0));
        Some(compilation)
    }

    /// Returns the compilation that an entry of the backend belongs to: that of the backward graph once the
    /// forward graph is complete.
    fn compiling(&mut self, context: Context) -> Option<&mut Compilation> {
        let id = context.id?;
        let newest = self.newest.get(&(id, false)).copied();
        let is_complete = newest
            .and_then(|number| self.compilations.get(number))
            .is_some_and(|known| known.metrics.is_some());
        if !is_complete {
            return self.begin(context);
        }
        let number = match self.newest.get(&(id, true)) {
            Some(number) => *number,
            None => self.create(context, true)?,
        };
        self.compilations.get_mut(number)
    }

    /// Notes the time of a phase of a compilation, picoseconds of Unix time. The end of a phase counts only if
    /// an earlier one began since the last metrics.
    pub(super) fn add_phase_time(&mut self, id: CompileId, unix_ps: i128, is_begin: bool) {
        if let Some((first, last)) = self.phases.get_mut(&id) {
            *first = unix_ps.min(*first);
            *last = unix_ps.max(*last);
        } else if is_begin {
            self.phases.insert(id, (unix_ps, unix_ps));
        }
    }

    /// Returns the first and the last time of the phases of a compilation without metrics.
    pub(super) fn phase_times(&self, compilation: &Compilation) -> Option<(i128, i128)> {
        let newest = self
            .newest
            .get(&(compilation.id, compilation.is_backward))?;
        let is_newest = std::ptr::eq(self.compilations.get(*newest)?, compilation);
        self.phases
            .get(&compilation.id)
            .copied()
            .filter(|_| is_newest)
    }

    fn create(&mut self, context: Context, is_backward: bool) -> Option<usize> {
        let number = self.compilations.len();
        if number >= MAX_COMPILATIONS {
            self.beyond_limit += 1;
            return None;
        }
        let id = context.id.unwrap_or_default();
        let forward = self.newest.get(&(id, false)).copied();
        self.compilations.push(Compilation {
            id,
            is_backward,
            attempt: context.attempt.unwrap_or(0),
            forward: forward.filter(|_| is_backward),
            ..Compilation::default()
        });
        self.newest.insert((id, is_backward), number);
        Some(number)
    }

    fn skip(&mut self, name: &str) {
        let name = truncated(name);
        if let Some(count) = self.skipped.get_mut(&name) {
            *count += 1;
        } else if self.skipped.len() < MAX_ENTRY_KINDS {
            self.skipped.insert(name, 1);
        }
    }

    /// Returns the text of a number in the table of interned texts.
    pub(super) fn text(&self, file: &[u8], number: u64) -> Option<String> {
        walk::text(file, self.texts.get(&number)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_torch_prints_them() {
        for text in ["0/1", "!2/0/1", "!3"] {
            let id = CompileId::parse(text).unwrap_or_default();
            assert_eq!(id.to_string(), text);
        }
        for text in ["None", "", "1", "!", "a/b", "1/", "!x/0/1"] {
            assert_eq!(CompileId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn worst_lookup_decides() {
        let lookups = |results: &[&str]| {
            let mut lookups = CacheLookups::default();
            for result in results {
                lookups.add(result);
            }
            lookups.result()
        };
        assert_eq!(lookups(&[]), None);
        assert_eq!(lookups(&["hit", "hit"]), Some("hit"));
        assert_eq!(lookups(&["hit", "bypass"]), Some("bypass"));
        assert_eq!(lookups(&["miss", "hit", "bypass"]), Some("miss"));
        assert_eq!(lookups(&["other"]), None);
    }
}
