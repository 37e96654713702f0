//! Samples and markers of one thread, as the file holds them.

use super::tables::{NONE, Tables, integers};
use crate::json::number::ps_from_text;
use crate::json::scan::{JsonType, Value};
use crate::json::value::whole;
use crate::json::walk::{self, End, Fault};

/// Power of ten that converts milliseconds to picoseconds.
const MS: i64 = 9;

/// What the weights of samples are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WeightType {
    /// Numbers of samples.
    #[default]
    Samples,
    /// Milliseconds.
    Time,
    Bytes,
}

/// The columns of the samples of a thread.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) stack: Vec<i64>,
    /// Picoseconds; `None` where the file has no number.
    pub(super) time: Vec<Option<i128>>,
    /// Texts of the weights; empty if each sample counts once.
    pub(super) weight: Vec<Value>,
    pub(super) weight_type: WeightType,
    /// CPU time since the last sample, in the unit of the file.
    pub(super) cpu: Vec<i64>,
}

/// The columns of the markers of a thread.
#[derive(Default)]
pub(super) struct Markers {
    /// Offset of the data of each marker; `None` for one without.
    pub(super) data: Vec<Option<usize>>,
    pub(super) name: Vec<i64>,
    pub(super) start: Vec<Option<i128>>,
    pub(super) end: Vec<Option<i128>>,
    pub(super) phase: Vec<i64>,
    pub(super) category: Vec<i64>,
    /// Number of markers in the form of versions before 24, with one time each.
    pub(super) of_old_form: u64,
}

/// A thread.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) process_name: String,
    pub(super) pid: String,
    pub(super) tid: String,
    pub(super) tables: Tables,
    pub(super) samples: Samples,
    pub(super) markers: Markers,
}

impl Thread {
    /// Reads the thread at an offset; keeps what comes before a fault.
    pub(super) fn read(bytes: &[u8], at: usize) -> (Self, Result<(), Fault>) {
        let mut thread = Self::default();
        let read = walk::object(bytes, at, &mut |key, at| {
            let is_object = bytes.get(at) == Some(&b'{');
            match key {
                b"samples" if is_object => walk::object(bytes, at, &mut |key, at| {
                    thread.samples.column(bytes, key, at)
                }),
                b"markers" if is_object => walk::object(bytes, at, &mut |key, at| {
                    thread.markers.column(bytes, key, at)
                }),
                b"name" | b"processName" | b"pid" | b"tid" => {
                    let (value, end) = walk::value(bytes, at)?;
                    let text = value.raw(bytes).map(String::from_utf8_lossy);
                    let text = walk::text(bytes, &value)
                        .or_else(|| text.map(std::borrow::Cow::into_owned))
                        .unwrap_or_default();
                    match key {
                        b"name" => thread.name = text,
                        b"processName" => thread.process_name = text,
                        b"pid" => thread.pid = text,
                        _ => thread.tid = text,
                    }
                    Ok(end)
                }
                _ => thread.tables.member(bytes, key, at),
            }
        });
        (thread, read.map(|_| ()))
    }
}

impl Samples {
    fn column(&mut self, bytes: &[u8], key: &[u8], at: usize) -> End {
        match key {
            b"stack" => integers(bytes, at, &mut self.stack),
            b"time" => times(bytes, at, &mut self.time),
            b"timeDeltas" => {
                let end = times(bytes, at, &mut self.time);
                let mut now = 0_i128;
                for time in self.time.iter_mut().flatten() {
                    now = now.saturating_add(*time);
                    *time = now;
                }
                end
            }
            b"weight" => walk::list(bytes, at, &mut |at| {
                let (value, end) = walk::value(bytes, at)?;
                self.weight.push(value);
                Ok(end)
            }),
            b"weightType" => {
                let (value, end) = walk::value(bytes, at)?;
                self.weight_type = match value.raw(bytes) {
                    Some(b"tracing-ms") => WeightType::Time,
                    Some(b"bytes") => WeightType::Bytes,
                    _ => WeightType::Samples,
                };
                Ok(end)
            }
            b"threadCPUDelta" => integers(bytes, at, &mut self.cpu),
            _ => walk::skip(bytes, at),
        }
    }

    /// Returns the weight of a sample: a number of samples, bytes, or nanoseconds. `None` for one
    /// that is no number or is negative.
    pub(super) fn weight(&self, bytes: &[u8], at: usize) -> Option<i64> {
        let Some(weight) = self.weight.get(at) else {
            return self.weight.is_empty().then_some(1);
        };
        let found = match self.weight_type {
            WeightType::Samples | WeightType::Bytes => whole(bytes, weight),
            WeightType::Time => {
                let ps = ps_from_text(weight.raw(bytes)?, MS).ok()?;
                i64::try_from(ps.div_euclid(1_000)).ok()
            }
        };
        found.filter(|found| *found >= 0)
    }
}

impl Markers {
    fn column(&mut self, bytes: &[u8], key: &[u8], at: usize) -> End {
        match key {
            b"data" => walk::list(bytes, at, &mut |at| {
                let (value, end) = walk::value(bytes, at)?;
                let is_object = value.json_type == JsonType::Object;
                self.data.push(is_object.then_some(at));
                Ok(end)
            }),
            b"name" => integers(bytes, at, &mut self.name),
            b"startTime" => times(bytes, at, &mut self.start),
            b"endTime" => times(bytes, at, &mut self.end),
            b"phase" => integers(bytes, at, &mut self.phase),
            b"category" => integers(bytes, at, &mut self.category),
            b"time" => walk::list(bytes, at, &mut |at| {
                self.of_old_form += 1;
                walk::skip(bytes, at)
            }),
            _ => walk::skip(bytes, at),
        }
    }

    /// Returns the entry of a column, or [`NONE`].
    pub(super) fn number(column: &[i64], at: usize) -> i64 {
        column.get(at).copied().unwrap_or(NONE)
    }
}

/// Appends the times of a list, in picoseconds.
fn times(bytes: &[u8], at: usize, into: &mut Vec<Option<i128>>) -> End {
    walk::list(bytes, at, &mut |at| {
        let (value, end) = walk::value(bytes, at)?;
        into.push(value.raw(bytes).and_then(|raw| ps_from_text(raw, MS).ok()));
        Ok(end)
    })
}
