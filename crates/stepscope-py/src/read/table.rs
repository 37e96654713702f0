//! Which columns a track has, and where they lie.
#![allow(unsafe_code, reason = "columns of the store seen as plain numbers")]

use std::ffi::CStr;
use std::sync::Arc;

use stepscope_engine::Run;
use stepscope_model::{Dur, NameId, Time, TrackId};
use stepscope_store::Categories;

use super::arrow::{Field, Keep, StringBuffer};
use super::column::{Kind, Memory};

/// Type of the events of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    Slices,
    Instants,
    Samples,
}

impl EventType {
    /// Returns the type that the package calls so.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "slices" => Some(Self::Slices),
            "instants" => Some(Self::Instants),
            "samples" => Some(Self::Samples),
            _ => None,
        }
    }

    /// Columns of its table: name, unit, and whether the numbers are those of texts.
    fn columns(self) -> &'static [(&'static CStr, Option<&'static str>, bool)] {
        match self {
            Self::Slices => &[
                (c"start_ps", Some("ps"), false),
                (c"duration_ps", Some("ps"), false),
                (c"name", None, true),
                (c"depth", None, false),
                (c"parent", None, false),
                (c"category", None, true),
            ],
            Self::Instants => &[
                (c"time_ps", Some("ps"), false),
                (c"name", None, true),
                (c"category", None, true),
            ],
            Self::Samples => &[(c"time_ps", Some("ps"), false), (c"value", None, false)],
        }
    }
}

/// Views of one track's columns.
pub(super) struct View<'a> {
    pub(super) run: &'a Arc<Run>,
    pub(super) track: TrackId,
    pub(super) event_type: EventType,
}

impl View<'_> {
    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        let trace = &self.run.trace;
        match self.event_type {
            EventType::Slices => trace.slices(self.track).len(),
            EventType::Instants => trace.instants(self.track).at.len(),
            EventType::Samples => trace.samples(self.track).at.len(),
        }
    }

    /// Id of the first row.
    pub(super) fn first_id(&self) -> u32 {
        let trace = &self.run.trace;
        match self.event_type {
            EventType::Slices => trace.slices(self.track).first_id.0,
            EventType::Instants => trace.instants(self.track).first_id.0,
            EventType::Samples => 0,
        }
    }

    /// The column with this name.
    pub(super) fn column(&self, name: &str) -> Option<Memory> {
        let trace = &self.run.trace;
        match self.event_type {
            EventType::Slices => {
                let slices = trace.slices(self.track);
                match name {
                    "start_ps" => Some(self.times(slices.start)),
                    "duration_ps" => Some(self.durs(slices.dur)),
                    "name" => Some(self.names(slices.name)),
                    "depth" => {
                        // SAFETY: see `times`.
                        Some(unsafe { Memory::part_of(slices.depth, Kind::Uint16, self.keep()) })
                    }
                    "parent" => {
                        // SAFETY: see `times`; `u32::MAX`, the mark of a slice without parent, is -1.
                        Some(unsafe { Memory::part_of(slices.parent, Kind::Int32, self.keep()) })
                    }
                    "category" => Some(self.categories(slices.category, slices.len())),
                    "start_ns" => Some(nanoseconds(slices.start.iter().map(|time| time.ps()))),
                    "duration_ns" => Some(nanoseconds(slices.dur.iter().map(|dur| dur.ps()))),
                    "self_ps" => {
                        let times = trace.self_times(self.track);
                        Some(Memory::int64(times.iter().map(|dur| dur.ps()).collect()))
                    }
                    _ => None,
                }
            }
            EventType::Instants => {
                let instants = trace.instants(self.track);
                match name {
                    "time_ps" => Some(self.times(instants.at)),
                    "name" => Some(self.names(instants.name)),
                    "category" => Some(self.categories(instants.category, instants.at.len())),
                    "time_ns" => Some(nanoseconds(instants.at.iter().map(|time| time.ps()))),
                    _ => None,
                }
            }
            EventType::Samples => {
                let samples = trace.samples(self.track);
                match name {
                    "time_ps" => Some(self.times(samples.at)),
                    "value" => {
                        // SAFETY: see `times`.
                        Some(unsafe { Memory::part_of(samples.value, Kind::Float64, self.keep()) })
                    }
                    "time_ns" => Some(nanoseconds(samples.at.iter().map(|time| time.ps()))),
                    _ => None,
                }
            }
        }
    }

    /// The table's columns for Arrow.
    pub(super) fn fields(&self, texts: &Arc<StringBuffer>) -> Vec<Field> {
        self.event_type
            .columns()
            .iter()
            .filter_map(|(name, unit, is_text)| {
                let memory = self.column(name.to_str().ok()?)?;
                let texts = is_text.then(|| Arc::clone(texts));
                Some(memory.field(name, *unit, texts))
            })
            .collect()
    }

    fn keep(&self) -> Keep {
        Arc::<Run>::clone(self.run)
    }

    fn times(&self, times: &[Time]) -> Memory {
        // SAFETY: a column of the trace, which is immutable and lives as long as the run that `keep`
        // holds; a `Time` is an `i64`.
        unsafe { Memory::part_of(times, Kind::Int64, self.keep()) }
    }

    fn durs(&self, durs: &[Dur]) -> Memory {
        // SAFETY: a column of the trace, which is immutable and lives as long as the run that `keep`
        // holds; a `Dur` is an `i64`.
        unsafe { Memory::part_of(durs, Kind::Int64, self.keep()) }
    }

    fn names(&self, names: &[NameId]) -> Memory {
        // SAFETY: a column of the trace, which is immutable and lives as long as the run that `keep`
        // holds; a `NameId` is a `u32`, and there are fewer than 2^31 names.
        unsafe { Memory::part_of(names, Kind::Int32, self.keep()) }
    }

    /// Where all have the same category the store keeps it once: then it is written out.
    fn categories(&self, categories: Categories<'_>, len: usize) -> Memory {
        match categories {
            Categories::One(category) => Memory::int32(vec![category.0 as i32; len]),
            Categories::Each(categories) => self.names(categories),
        }
    }
}

fn nanoseconds(ps: impl Iterator<Item = i64>) -> Memory {
    Memory::floats(ps.map(|ps| ps as f64 / 1_000.0).collect())
}
