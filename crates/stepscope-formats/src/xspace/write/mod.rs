//! Sink that writes an `XSpace`: `stepscope convert` emits into it.
//!
//! Emitted events are stored as rows until the end, because a track can be described after its
//! events. Forks share the tables of texts, tracks and argument sources behind one lock, so their
//! ids mean the same everywhere; each fork has its own rows. The numbering of texts and tracks
//! therefore depends on timing, but the output is deterministic: planes and lines are sorted and
//! names renumbered during the write.

mod assemble;
mod rows;
pub(crate) mod writer;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use stepscope_model::{
    ArgRef, ArgSource, ArgValue, Diagnostic, Epoch, EventSink, FlowBind, InstantIn, NameId,
    Severity, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackInfo, TrackPatch,
};

use crate::xspace::well_known_stats::EventKind;
use rows::{Row, RowFlow, RowKind, RowValue, Rows, put_arg};

/// Maximum length of interned argument texts; longer ones rarely repeat.
const MAX_INTERNED_BYTES: usize = 128;

/// State that forks share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) texts: Vec<Arc<str>>,
    /// Number of arguments with each text as their value.
    pub(crate) uses: Vec<u32>,
    text_numbers: HashMap<Arc<str>, u32, FxBuildHasher>,
    pub(crate) keys: Vec<Arc<str>>,
    key_numbers: HashMap<Arc<str>, u32, FxBuildHasher>,
    sources: Vec<Arc<dyn ArgSource>>,
}

impl Shared {
    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.text_numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.uses.push(0);
        self.text_numbers.insert(text, number);
        number
    }

    fn key(&mut self, key: &str) -> u32 {
        if let Some(number) = self.key_numbers.get(key) {
            return *number;
        }
        let number = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let key: Arc<str> = key.into();
        self.keys.push(Arc::clone(&key));
        self.key_numbers.insert(key, number);
        number
    }
}

/// A fact's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FactValue {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(String),
}

/// Collects one trace and writes it as an `XSpace`.
///
/// ```text
/// let mut sink = XSpaceSink::new();
/// read(format, &bytes, &context, &mut sink)?;
/// sink.finish(BufWriter::new(file))?;
/// ```
///
/// Memory is about 20 bytes per event plus the bytes of its arguments.
pub struct XSpaceSink {
    shared: Arc<Mutex<Shared>>,
    pub(crate) epoch: Option<Epoch>,
    /// Track descriptions, in the order of emission.
    pub(crate) patches: Vec<(TrackId, TrackInfo)>,
    /// Rows by track.
    pub(crate) rows: Vec<Rows>,
    pub(crate) modules: Vec<(String, Option<u64>)>,
    pub(crate) facts: Vec<(String, FactValue)>,
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
    args: Vec<u8>,
}

impl Default for XSpaceSink {
    fn default() -> Self {
        Self::new()
    }
}

impl XSpaceSink {
    /// Creates an empty trace.
    pub fn new() -> Self {
        let mut shared = Shared::default();
        shared.text("");
        Self::with(Arc::new(Mutex::new(shared)))
    }

    fn with(shared: Arc<Mutex<Shared>>) -> Self {
        Self {
            shared,
            epoch: None,
            patches: Vec::new(),
            rows: Vec::new(),
            modules: Vec::new(),
            facts: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Writes the trace; returns the flushed writer.
    pub fn finish<W: Write>(self, out: W) -> io::Result<W> {
        let shared = std::mem::take(&mut *self.shared());
        assemble::write(&self, &shared, out)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&mut self, track: TrackId, row: &Row<'_>, args: ArgRef) {
        let mut encoded = std::mem::take(&mut self.args);
        encoded.clear();
        self.encode_args(args, &mut encoded);
        if self.rows.len() <= track.index() {
            self.rows.resize_with(track.index() + 1, Rows::default);
        }
        if let Some(rows) = self.rows.get_mut(track.index()) {
            rows.push(row, &encoded);
        }
        self.args = encoded;
    }

    /// Encodes the arguments immediately: the source can be gone when the file is written.
    fn encode_args(&mut self, args: ArgRef, out: &mut Vec<u8>) {
        let Some((source, token)) = args.get() else {
            return;
        };
        let Some(source) = self
            .shared()
            .sources
            .get(usize::from(source.0))
            .map(Arc::clone)
        else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let fetched = source.visit(token, &mut |key, value| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let key = shared.text(key);
            let value = match value {
                ArgValue::Str(text) if text.len() <= MAX_INTERNED_BYTES => {
                    let number = shared.text(text);
                    if let Some(uses) = shared.uses.get_mut(number as usize) {
                        *uses = uses.saturating_add(1);
                    }
                    RowValue::Text(number)
                }
                other => RowValue::Inline(other),
            };
            put_arg(out, key, value);
        });
        if let Err(error) = fetched {
            self.warnings
                .push(format!("arguments were lost in conversion: {error}"));
        }
    }
}

fn row_flow(flow: &SliceFlow) -> RowFlow {
    RowFlow {
        category: flow.key.category.0,
        id: flow.key.id,
        direction: flow.direction,
    }
}

impl EventSink for XSpaceSink {
    fn epoch(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    fn name(&mut self, text: &str) -> NameId {
        NameId(self.shared().text(text))
    }

    fn track(&mut self, key: &str) -> TrackId {
        TrackId(self.shared().key(key))
    }

    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        self.patches.push((track, patch.into()));
    }

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        let mut shared = self.shared();
        shared.sources.push(source);
        SourceId(u16::try_from(shared.sources.len() - 1).unwrap_or(u16::MAX))
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        let row = Row {
            kind: Some(RowKind::Event(EventKind::Slice)),
            name: slice.name.0,
            category: slice.category.0,
            start_ps: slice.start.ps(),
            dur_ps: slice.dur.ps().max(0),
            step: slice.step,
            flags: slice.flags.0,
            flows: slice.flows.iter().map(row_flow).collect(),
            ..Row::default()
        };
        self.push(track, &row, slice.args);
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        let row = Row {
            kind: Some(RowKind::Event(EventKind::Instant)),
            name: instant.name.0,
            category: instant.category.0,
            start_ps: instant.at.ps(),
            ..Row::default()
        };
        self.push(track, &row, instant.args);
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        let row = Row {
            kind: Some(RowKind::Sample),
            start_ps: at.ps(),
            value,
            ..Row::default()
        };
        self.push(track, &row, ArgRef::NONE);
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        let kind = match bind {
            FlowBind::Enclosing => EventKind::FlowEnclosing,
            FlowBind::Next => EventKind::FlowNext,
        };
        let row = Row {
            kind: Some(RowKind::Event(kind)),
            start_ps: at.ps(),
            flows: vec![row_flow(&flow)],
            ..Row::default()
        };
        self.push(track, &row, ArgRef::NONE);
    }

    fn module(&mut self, name: &str, program_id: Option<u64>) {
        self.modules.push((name.to_owned(), program_id));
    }

    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        let value = match value {
            ArgValue::Int(value) => FactValue::Int(value),
            ArgValue::Uint(value) => FactValue::Uint(value),
            ArgValue::Double(value) => FactValue::Double(value),
            ArgValue::Bool(value) => FactValue::Bool(value),
            ArgValue::Str(text) | ArgValue::Json(text) => FactValue::Text(text.to_owned()),
            ArgValue::Bytes(_) => return,
        };
        self.facts.push((key.to_owned(), value));
    }

    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        if what == Diagnostic::WriterError {
            if let Some(text) = detail.strip_prefix("error: ") {
                self.errors.push(text.to_owned());
            } else {
                let text = detail.strip_prefix("warning: ").unwrap_or(detail);
                self.warnings.push(text.to_owned());
            }
        } else if what.severity() >= Severity::DataLoss {
            self.warnings
                .push(format!("{} ({count}): {detail}", what.title()));
        }
    }

    fn fork(&self) -> Self {
        Self {
            epoch: self.epoch,
            ..Self::with(Arc::clone(&self.shared))
        }
    }

    fn merge(&mut self, fork: Self) {
        self.epoch = self.epoch.or(fork.epoch);
        self.patches.extend(fork.patches);
        self.modules.extend(fork.modules);
        self.facts.extend(fork.facts);
        self.errors.extend(fork.errors);
        self.warnings.extend(fork.warnings);
        if self.rows.len() < fork.rows.len() {
            self.rows.resize_with(fork.rows.len(), Rows::default);
        }
        for (mine, theirs) in self.rows.iter_mut().zip(fork.rows) {
            if mine.is_empty() {
                *mine = theirs;
            } else {
                mine.append(&theirs);
            }
        }
    }
}
