//! What the partitions of one scan share, and the events that each reads.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::datatypes::SchemaRef;
use rustc_hash::FxHashMap;
use stepscope_model::{Dur, TrackId};

use super::Events;
use crate::run_data::RunData;

/// Events of one track to scan.
#[derive(Clone, Debug)]
pub(super) struct TrackRange {
    pub(super) run: Arc<RunData>,
    pub(super) track: TrackId,
    pub(super) range: Range<usize>,
    /// The names that pass, by their ids; `None` if all do.
    pub(super) names: Option<Arc<BooleanArray>>,
}

impl TrackRange {
    /// Splits off the first `len` events.
    pub(super) fn split(self, len: usize) -> (Self, Self) {
        let middle = self.range.start + len;
        let head = Self {
            range: self.range.start..middle,
            ..self.clone()
        };
        let rest = Self {
            range: middle..self.range.end,
            ..self
        };
        (head, rest)
    }
}

/// What the partitions of one scan share.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) events: Events,
    pub(super) columns: Vec<&'static str>,
    pub(super) schema: SchemaRef,
    /// Self times of the tracks, computed where a column needs them.
    self_times: FxHashMap<(u32, TrackId), OnceLock<Vec<Dur>>>,
}

impl Scan {
    pub(super) fn new(
        events: Events,
        columns: Vec<&'static str>,
        schema: SchemaRef,
        work: &[TrackRange],
    ) -> Self {
        let needs_self = columns.contains(&"self_ps");
        let tracks = work.iter().filter(|_| needs_self);
        Self {
            events,
            columns,
            schema,
            self_times: tracks
                .map(|work| ((work.run.number, work.track), OnceLock::new()))
                .collect(),
        }
    }

    pub(super) fn self_times(&self, run: &RunData, track: TrackId) -> &[Dur] {
        let times = self.self_times.get(&(run.number, track));
        times.map_or(&[], |times| {
            times.get_or_init(|| run.trace().self_times(track))
        })
    }
}
