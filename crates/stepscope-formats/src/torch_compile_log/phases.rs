//! Phases of the compiler: Chrome trace events, one in each payload of `chromium_event`.

use rustc_hash::FxHashMap;
use stepscope_model::NameId;

use super::compilations::CompileId;
use crate::json::members::members;
use crate::json::number::ps_from_us_text;
use crate::json::scan::{ByteRange, JsonType, ScanError, Value, skip_space};
use crate::json::walk;

/// How many open phases an end looks at. The compiler nests some tens.
const MAX_LOOK_BACK: usize = 64;

/// One Chrome trace event.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseEvent {
    /// Offset of the object.
    pub(super) offset: usize,
    pub(super) name: String,
    pub(super) category: String,
    /// `B`, `E`, `X` or `i`.
    pub(super) phase: u8,
    /// Picoseconds of Unix time; `None` if it is no time.
    pub(super) unix_ps: Option<i128>,
    /// Duration of a complete event, picoseconds.
    pub(super) dur_ps: Option<i128>,
    /// `compile_id` of its arguments.
    pub(super) id: Option<CompileId>,
}

impl PhaseEvent {
    /// Parses the payload of an entry.
    pub(super) fn parse(file: &[u8], payload: ByteRange) -> Result<Self, ScanError> {
        let text = file.get(..payload.end).unwrap_or_default();
        // Tabs before the lines and the ends of lines are white space of JSON.
        let offset = skip_space(text, payload.start);
        let mut event = Self {
            offset,
            ..Self::default()
        };
        let mut args = None;
        members(text, offset, |key, value: Value| match key {
            b"name" => event.name = walk::text(text, &value).unwrap_or_default(),
            b"cat" => event.category = walk::text(text, &value).unwrap_or_default(),
            b"ph" => {
                event.phase = value
                    .raw(text)
                    .and_then(|ph| ph.first().copied())
                    .unwrap_or(0);
            }
            b"ts" => event.unix_ps = value.raw(text).and_then(|us| ps_from_us_text(us).ok()),
            b"dur" => event.dur_ps = value.raw(text).and_then(|us| ps_from_us_text(us).ok()),
            b"args" if value.json_type == JsonType::Object => args = Some(value),
            _ => {}
        })?;
        if let Some(args) = args {
            members(text, args.span.start, |key, value| {
                if key == b"compile_id" {
                    let id = walk::text(text, &value).unwrap_or_default();
                    event.id = CompileId::parse(&id);
                }
            })?;
        }
        Ok(event)
    }
}

/// A phase that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPhase {
    pub(super) name: NameId,
    pub(super) category: NameId,
    pub(super) start_ps: i64,
    /// Offset of the event.
    pub(super) offset: usize,
}

/// Open phases by compilation. All events carry thread 0, whichever thread they are from, and phases of one
/// compilation nest.
#[derive(Default)]
pub(super) struct OpenPhases {
    open: FxHashMap<Option<CompileId>, Vec<OpenPhase>>,
}

impl OpenPhases {
    pub(super) fn push(&mut self, id: Option<CompileId>, phase: OpenPhase) {
        self.open.entry(id).or_default().push(phase);
    }

    /// Removes the innermost phase of this name, and those inside of it, which have no end: torch drops them
    /// too. The phase itself is the first; empty if none is open.
    pub(super) fn pop(&mut self, id: Option<CompileId>, name: NameId) -> Vec<OpenPhase> {
        let Some(open) = self.open.get_mut(&id) else {
            return Vec::new();
        };
        let from = open.len().saturating_sub(MAX_LOOK_BACK);
        let inner = open.get(from..).unwrap_or_default();
        match inner.iter().rposition(|phase| phase.name == name) {
            Some(at) => open.split_off(from + at),
            None => Vec::new(),
        }
    }

    /// Returns all phases that are still open, in the order of their position in the file.
    pub(super) fn finish(self) -> Vec<OpenPhase> {
        let mut left: Vec<OpenPhase> = self.open.into_values().flatten().collect();
        left.sort_unstable_by_key(|phase| phase.offset);
        left
    }
}
