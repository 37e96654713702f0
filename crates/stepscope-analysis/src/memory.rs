//! Memory over time: allocations and frees that the program's allocators recorded.
//!
//! Sources: `[memory]` instants of torch (`profile_memory=True`) and `MemoryAllocation` and
//! `MemoryDeallocation` events of XLA's and TensorFlow's allocators. For one allocator:
//!
//! ```text
//! in_use(t)  = the value that the allocator recorded with its last event up to t; where the file has
//!              none (torch before 2022), the sum of all sizes so far, and a minimum of the earlier memory
//! peak       = max over t of in_use(t) + stack(t)     (stack: only XLA's, where programs reserve it);
//!              for a range over its timestamps, its start included
//! churn      = sum of the sizes of all allocations
//! alive(t)   = allocations up to t whose address was not freed up to t
//! in_use(t)  = sum of alive(t) + memory that was allocated before the recording and is still alive
//! ```

pub mod fragmentation;
pub mod history;
pub mod owners;
mod read;
mod shared;
pub mod snapshot;

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Time, TrackId};
use stepscope_store::{EventId, Overlapping, Trace};

/// One allocation or free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Time of the event.
    pub at: Time,
    /// The event.
    pub event: EventId,
    /// Index into [`Memory::allocators`].
    pub allocator: usize,
    /// Allocated bytes; negative for a free.
    pub bytes: i64,
    /// Bytes in use afterwards, as recorded by the allocator, or summed up.
    pub in_use: i64,
    /// Bytes reserved from the system or the device afterwards (torch's caching allocators).
    pub reserved: Option<i64>,
    /// Fraction of its free memory outside the largest free block, as recorded by the allocator (XLA's).
    pub fragmentation: Option<f32>,
    /// Bytes reserved for running programs (XLA's), in addition to those in use.
    pub stack: i64,
    /// Index into [`Memory::ops`].
    pub op: u32,
    /// Time when an allocation was freed; `None` if it never was, or if the record is a free itself.
    pub freed: Option<Time>,
    /// Whether the lifetime is known: a free whose allocation was recorded, or an allocation whose address is
    /// known.
    pub tracked: bool,
}

impl Record {
    /// Returns the bytes in use, including those that programs reserve.
    pub const fn used(&self) -> i64 {
        self.in_use.saturating_add(self.stack)
    }
}

/// One allocator of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocator {
    /// `CPU`, `CUDA 0`, `GPU_0_bfc`, `TPU 0`.
    pub name: String,
    /// Host of the file.
    pub host: String,
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Rank of the file.
    pub rank: Option<u32>,
    /// The device that it serves; `None` for the host.
    pub device: Option<u32>,
    /// Whether the file has the bytes in use; otherwise sizes are summed up.
    pub absolute: bool,
    /// Whether the file has addresses, so that frees find their allocations.
    pub addressed: bool,
    /// Bytes that it manages, if it records them; for torch's allocators, all memory of the device.
    pub capacity: Option<i64>,
    /// Lifetime peak, which may lie before the recording.
    pub lifetime_peak: Option<i64>,
    /// Indexes of its records in [`Memory::records`].
    pub records: Vec<u32>,
}

/// Memory records of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Allocators in the order of files, then of first use.
    pub allocators: Vec<Allocator>,
    /// Records by time.
    pub records: Vec<Record>,
    /// Names of operators that allocated; index 0 is no operator.
    pub ops: Vec<String>,
    /// Categories that the file has for its records (snapshots of PyTorch); index 0 is unknown.
    pub categories: Vec<String>,
    /// Index into [`Memory::categories`] by record; records beyond its end have none.
    pub category_of: Vec<u32>,
    /// Whether the file has the stack of any record as text.
    pub spells_stacks: bool,
    /// Overlapping slices of the tracks with records, for [`Trace::around_near`].
    pub overlapping: FxHashMap<TrackId, Overlapping>,
}

/// Memory of an allocator over time, as a curve: columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Timestamps, ascending.
    pub at: Vec<Time>,
    /// Bytes in use from that time on, including those that programs reserve.
    pub in_use: Vec<i64>,
    /// Bytes reserved from the system or the device; empty if not recorded.
    pub reserved: Vec<i64>,
}

/// Sums over the requests to an allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Peak bytes in use.
    pub peak: i64,
    /// First time of the peak; the start of the range if as much was already in use then.
    pub peak_at: Time,
    /// The record that reached the peak, at that time or before the range.
    pub peak_event: EventId,
    /// Peak bytes reserved from the system or the device.
    pub peak_reserved: Option<i64>,
    /// Bytes in use at the end.
    pub end: i64,
    /// Number of allocations.
    pub allocations: u64,
    /// Sum of the sizes of the allocations.
    pub allocated: i64,
    /// Number of frees.
    pub frees: u64,
    /// Sum of the sizes of the frees.
    pub freed: i64,
    /// Number of allocations that were not freed during the recording.
    pub never_freed: u64,
    /// Sum of their sizes.
    pub never_freed_bytes: i64,
}

impl Memory {
    /// Lists the open slices at a record on its track, innermost first.
    pub(crate) fn around<'a>(
        &'a self,
        trace: &'a Trace,
        on: TrackId,
        at: Time,
    ) -> impl Iterator<Item = usize> + 'a {
        trace.around(on, at, self.overlapping.get(&on))
    }

    fn category_number(&mut self, category: &str) -> u32 {
        if self.categories.is_empty() {
            self.categories.push(String::new());
        }
        // torch has eight categories.
        let known = self.categories.iter().position(|known| known == category);
        let at = known.unwrap_or_else(|| {
            self.categories.push(category.to_owned());
            self.categories.len() - 1
        });
        u32::try_from(at).unwrap_or(0)
    }

    /// Returns the name of the operator that a record belongs to; empty without one.
    pub fn op(&self, record: &Record) -> &str {
        self.ops.get(record.op as usize).map_or("", String::as_str)
    }

    /// Returns the records of one allocator, by time.
    pub fn records_of<'a>(&'a self, allocator: &'a Allocator) -> impl Iterator<Item = &'a Record> {
        allocator
            .records
            .iter()
            .filter_map(|at| self.records.get(*at as usize))
    }

    /// Sums up the requests to one allocator in `range` (in the whole run, without one), and the memory it held
    /// at any time in it; memory in use when the range started counts. `None` if nothing was recorded up to its
    /// end.
    pub fn usage(&self, allocator: &Allocator, range: Option<&Range<Time>>) -> Option<Usage> {
        let levels = self.levels(allocator, range).iter();
        let records = levels.filter_map(|at| self.records.get(*at as usize));
        let range_start = range.map(|range| range.start);
        let mut usage: Option<Usage> = None;
        for record in records {
            let before = range_start.filter(|range_start| record.at < *range_start);
            let usage = usage.get_or_insert(Usage {
                peak: i64::MIN,
                ..Usage::default()
            });
            if record.used() > usage.peak {
                usage.peak = record.used();
                usage.peak_at = before.unwrap_or(record.at);
                usage.peak_event = record.event;
            }
            usage.peak_reserved = usage.peak_reserved.max(record.reserved);
            usage.end = record.used();
            if before.is_some() {
                continue;
            }
            if record.bytes >= 0 {
                usage.allocations += 1;
                usage.allocated = usage.allocated.saturating_add(record.bytes);
                if record.tracked && record.freed.is_none() {
                    usage.never_freed += 1;
                    usage.never_freed_bytes = usage.never_freed_bytes.saturating_add(record.bytes);
                }
            } else {
                usage.frees += 1;
                usage.freed = usage.freed.saturating_sub(record.bytes);
            }
        }
        usage
    }

    /// Returns the peak bytes in use within `range`, including those that programs reserve; memory in use at its
    /// start counts. `None` if nothing was recorded up to its end.
    pub fn peak_in(&self, allocator: &Allocator, range: &Range<Time>) -> Option<i64> {
        let levels = self.levels(allocator, Some(range)).iter();
        let records = levels.filter_map(|at| self.records.get(*at as usize));
        records.map(Record::used).max()
    }

    /// Returns the indexes of the records that determine the memory of one allocator in `range`: those in it, and
    /// the last one before it if none lies at its start.
    fn levels<'a>(&self, allocator: &'a Allocator, range: Option<&Range<Time>>) -> &'a [u32] {
        let Some(range) = range else {
            return &allocator.records;
        };
        let when = |at: &u32| self.records.get(*at as usize).map(|record| record.at);
        let before = |time: Time| {
            let earlier = |at: &u32| when(at).is_some_and(|at| at < time);
            allocator.records.partition_point(earlier)
        };
        let (mut from, to) = (before(range.start), before(range.end));
        if allocator.records.get(from).and_then(when) != Some(range.start) {
            from = from.saturating_sub(1);
        }
        allocator.records.get(from..to).unwrap_or_default()
    }

    /// Returns the bytes that an allocator had reserved for running programs at `at`.
    pub fn stack_at(&self, allocator: &Allocator, at: Time) -> i64 {
        let records = self
            .records_of(allocator)
            .take_while(|record| record.at <= at);
        records.last().map_or(0, |record| record.stack)
    }

    /// Returns the allocations of one allocator that were alive at `at`, the largest first, and the bytes in use
    /// then that no record explains (allocated before the recording started).
    pub fn alive<'a>(&'a self, allocator: &'a Allocator, at: Time) -> (Vec<&'a Record>, i64) {
        let mut alive = Vec::new();
        let (mut in_use, mut before) = (None, 0_i64);
        for record in self.records_of(allocator) {
            if record.at > at {
                // The value before the first record.
                in_use.get_or_insert(record.in_use.saturating_sub(record.bytes));
                break;
            }
            in_use = Some(record.in_use);
            let still = record.freed.is_none_or(|freed| freed > at);
            if record.bytes > 0 && record.tracked && still {
                alive.push(record);
                before = before.saturating_add(record.bytes);
            }
        }
        alive.sort_by_key(|record| (std::cmp::Reverse(record.bytes), record.at, record.event));
        (alive, in_use.unwrap_or(0).saturating_sub(before))
    }

    /// Computes the memory of one allocator within `range`, in at most `2 * bins` points: the last and the
    /// highest record of each bin, so that no peak is lost.
    pub fn curve(&self, allocator: &Allocator, range: &Range<Time>, bins: usize) -> Curve {
        let mut curve = Curve::default();
        let length = i128::from(range.end.since(range.start).ps().max(1));
        let bin_of =
            |at: Time| i128::from(at.since(range.start).ps()) * bins.max(1) as i128 / length;
        let mut push = |record: &Record, at: Time| {
            curve.at.push(at);
            curve.in_use.push(record.used());
            curve.reserved.extend(record.reserved);
        };
        let mut before: Option<&Record> = None;
        // State of the current bin: its number, the highest record, the last one.
        let mut open: Option<(i128, &Record, &Record)> = None;
        let mut began = false;
        for record in self.records_of(allocator) {
            if record.at < range.start {
                before = Some(record);
                continue;
            }
            if record.at >= range.end {
                break;
            }
            if let Some(before) = before.filter(|_| !began) {
                push(before, range.start);
            }
            began = true;
            let bin = bin_of(record.at);
            open = Some(match open {
                Some((number, high, _)) if number == bin => {
                    let high = if record.used() > high.used() {
                        record
                    } else {
                        high
                    };
                    (bin, high, record)
                }
                other => {
                    flush(other, &mut push);
                    (bin, record, record)
                }
            });
        }
        flush(open, &mut push);
        if let Some(before) = before.filter(|_| !began) {
            push(before, range.start);
        }
        if curve.reserved.len() != curve.at.len() {
            curve.reserved.clear();
        }
        curve
    }
}

fn flush(open: Option<(i128, &Record, &Record)>, push: &mut impl FnMut(&Record, Time)) {
    if let Some((_, high, last)) = open {
        if high.event != last.event {
            push(high, high.at);
        }
        push(last, last.at);
    }
}
