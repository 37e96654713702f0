//! What filled the memory, and when: allocations and frees that the program's allocators recorded.
//!
//! Sources: `[memory]` instants of torch (`profile_memory=True`) and `MemoryAllocation` and
//! `MemoryDeallocation` events of XLA's and TensorFlow's allocators. For one allocator:
//!
//! ```text
//! in_use(t)  = what the allocator said after its last event up to t; where the file does not say
//!              (torch before 2022), the sum of all sizes so far, counted from the recording's begin
//! peak       = max over t of in_use(t) + stack(t)     (stack: only XLA's, where programs reserve it)
//! churn      = sum of the sizes of all allocations
//! alive(t)   = allocations up to t whose address was not freed up to t
//! in_use(t)  = sum of alive(t) + what was allocated before the recording and is still there
//! ```

pub mod fragmentation;
pub mod owners;

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::names::NameSet;
use crate::parallel::{self, Cancel};

/// One allocation or free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// The event that says so.
    pub event: EventId,
    /// Index into [`Memory::allocators`].
    pub allocator: usize,
    /// Allocated, or, when negative, freed.
    pub bytes: i64,
    /// In use afterwards, as the allocator says, or summed up.
    pub in_use: i64,
    /// Taken from the system or the device afterwards (torch's caching allocators).
    pub reserved: Option<i64>,
    /// Part of its free memory that is not in the largest free piece, as the allocator says (XLA's).
    pub fragmentation: Option<f32>,
    /// Set aside for running programs (XLA's), beside what is in use.
    pub stack: i64,
    /// Index into [`Memory::ops`].
    pub op: u32,
    /// When an allocation was freed; `None` when it never was, or when it is a free itself.
    pub freed: Option<Time>,
    /// A free whose allocation was recorded, or an allocation whose address is known: it can be told
    /// how long it lived.
    pub tracked: bool,
}

impl Record {
    /// In use, with what programs reserve.
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
    /// Whether the file says what is in use; otherwise sizes are summed up from zero.
    pub absolute: bool,
    /// Whether the file gives addresses, so that frees find their allocations.
    pub addressed: bool,
    /// All that it manages, when it says so; of torch's, all that the device has.
    pub capacity: Option<i64>,
    /// Its own highest mark, which may lie before the recording.
    pub lifetime_peak: Option<i64>,
    /// Positions of its records in [`Memory::records`].
    pub records: Vec<u32>,
}

/// All that was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// In the order of files, then of first use.
    pub allocators: Vec<Allocator>,
    /// By time.
    pub records: Vec<Record>,
    /// Operators that allocated; 0 is none.
    pub ops: Vec<String>,
    /// Whether the file spells out the stack of any record.
    pub spells_stacks: bool,
}

/// What an allocator held at one moment, as a curve: columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// When, ascending.
    pub at: Vec<Time>,
    /// In use from then on, bytes, with what programs reserve.
    pub in_use: Vec<i64>,
    /// Taken from the system or the device; empty when not recorded.
    pub reserved: Vec<i64>,
}

/// What was asked of an allocator, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Most in use at once, bytes.
    pub peak: i64,
    /// When that was, first.
    pub peak_at: Time,
    /// The record that reached it.
    pub peak_event: EventId,
    /// Most taken from the system or the device.
    pub peak_reserved: Option<i64>,
    /// In use at the end.
    pub end: i64,
    /// How many allocations.
    pub allocations: u64,
    /// Their sizes.
    pub allocated: i64,
    /// How many frees.
    pub frees: u64,
    /// Their sizes.
    pub freed: i64,
    /// Allocations that nothing freed while recording.
    pub never_freed: u64,
    /// Their sizes.
    pub never_freed_bytes: i64,
}

/// What one event says.
#[derive(Default)]
struct Said {
    bytes: Option<i64>,
    requested: Option<i64>,
    address: Option<u64>,
    allocated: Option<i64>,
    reserved: Option<i64>,
    fragmentation: Option<f32>,
    stack: Option<i64>,
    available: Option<i64>,
    peak: Option<i64>,
    device_type: Option<i64>,
    device: Option<i64>,
    name: Option<String>,
    op: Option<String>,
    /// Whether the Python stack is spelled out.
    spells: bool,
}

impl Memory {
    /// Reads every allocation and free of the run.
    pub fn read(trace: &Trace, cancel: &Cancel) -> Result<Self, Cancelled> {
        let mut reader = Reader::new(trace);
        let mut found = Vec::new();
        for (at, track) in trace.tracks().iter().enumerate() {
            if track.derived {
                continue;
            }
            cancel.check()?;
            let on = TrackId(u32::try_from(at).unwrap_or(u32::MAX));
            reader.find(on, track.file, &mut found);
        }
        // What events say is read in parallel, put together in their order, a part at a time.
        for part in found.chunks(AT_ONCE) {
            let jobs: Vec<(usize, &[Place])> = part.chunks(1 << 10).enumerate().collect();
            let said = parallel::scan_items(
                &jobs,
                part.len().saturating_mul(16),
                cancel,
                Vec::new,
                |out, (number, places)| {
                    let said: Vec<_> = places.iter().map(|place| reader.ask(place)).collect();
                    out.push((*number, said));
                },
            )?;
            let mut said: Vec<_> = said.into_iter().flatten().collect();
            said.sort_unstable_by_key(|(number, _)| *number);
            let said = said.into_iter().flat_map(|(_, said)| said);
            for (place, (said, around)) in part.iter().zip(said) {
                reader.record(place, &said, around);
            }
        }
        Ok(reader.finish())
    }

    /// Name of the operator that a record belongs to; empty without one.
    pub fn op(&self, record: &Record) -> &str {
        self.ops.get(record.op as usize).map_or("", String::as_str)
    }

    /// Records of one allocator, by time.
    pub fn of<'a>(&'a self, allocator: &'a Allocator) -> impl Iterator<Item = &'a Record> {
        allocator
            .records
            .iter()
            .filter_map(|at| self.records.get(*at as usize))
    }

    /// Sums over one allocator, of the records in `range` (all without one).
    pub fn usage(&self, allocator: &Allocator, range: Option<&Range<Time>>) -> Usage {
        let mut usage = Usage::default();
        let mut first = true;
        for record in self.of(allocator) {
            if range.is_some_and(|range| !range.contains(&record.at)) {
                continue;
            }
            if first || record.used() > usage.peak {
                first = false;
                usage.peak = record.used();
                usage.peak_at = record.at;
                usage.peak_event = record.event;
            }
            usage.peak_reserved = usage.peak_reserved.max(record.reserved);
            usage.end = record.used();
            if record.bytes >= 0 {
                usage.allocations += 1;
                usage.allocated += record.bytes;
                if record.tracked && record.freed.is_none() {
                    usage.never_freed += 1;
                    usage.never_freed_bytes += record.bytes;
                }
            } else {
                usage.frees += 1;
                usage.freed -= record.bytes;
            }
        }
        usage
    }

    /// Most in use at once within `range`, with what programs reserve; what was in use when it began
    /// counts. `None` when nothing was recorded up to its end.
    pub fn peak_in(&self, allocator: &Allocator, range: &Range<Time>) -> Option<i64> {
        let at = |number: &u32| self.records.get(*number as usize);
        let before = |time: Time| {
            let earlier = |number: &u32| at(number).is_some_and(|record| record.at < time);
            allocator.records.partition_point(earlier)
        };
        let (from, to) = (before(range.start), before(range.end));
        let from = from.saturating_sub(1);
        let within = allocator.records.get(from..to.max(from))?;
        within.iter().filter_map(at).map(Record::used).max()
    }

    /// What an allocator had set aside for running programs at `at`, bytes.
    pub fn stack_at(&self, allocator: &Allocator, at: Time) -> i64 {
        let records = self.of(allocator).take_while(|record| record.at <= at);
        records.last().map_or(0, |record| record.stack)
    }

    /// Allocations of one allocator that were alive at `at`, the largest first, and the bytes in use
    /// then that nothing recorded explains (allocated before the recording began).
    pub fn alive<'a>(&'a self, allocator: &'a Allocator, at: Time) -> (Vec<&'a Record>, i64) {
        let mut alive = Vec::new();
        let (mut in_use, mut before) = (None, 0);
        for record in self.of(allocator) {
            if record.at > at {
                // What it was before the first record.
                in_use.get_or_insert(record.in_use.saturating_sub(record.bytes));
                break;
            }
            in_use = Some(record.in_use);
            let still = record.freed.is_none_or(|freed| freed > at);
            if record.bytes > 0 && record.tracked && still {
                alive.push(record);
                before += record.bytes;
            }
        }
        alive.sort_by_key(|record| (std::cmp::Reverse(record.bytes), record.at, record.event));
        (alive, in_use.unwrap_or(0).saturating_sub(before))
    }

    /// What one allocator held within `range`, in at most `2 * bins` points: of each bin the last
    /// record and the highest, so that no peak is lost.
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
        // Of the bin at hand: its number, the highest record, the last one.
        let mut open: Option<(i128, &Record, &Record)> = None;
        let mut began = false;
        for record in self.of(allocator) {
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

/// Events that are read before they are put together.
const AT_ONCE: usize = 1 << 18;

/// Where a record stands.
struct Place {
    track: TrackId,
    file: usize,
    event: EventId,
    at: Time,
    sort: Sort,
}

struct Reader<'a> {
    trace: &'a Trace,
    found: Memory,
    op_ids: FxHashMap<String, u32>,
    /// Operators by the name of their slices.
    ops_by_name: FxHashMap<NameId, u32>,
    /// Allocators by file and name.
    by_name: FxHashMap<(usize, String), usize>,
    /// Allocators by file and what torch says of them: type and number of the device.
    by_device: FxHashMap<(usize, Option<i64>, Option<i64>), usize>,
    /// Records as they were found, with their addresses.
    raw: Vec<(Record, Option<u64>)>,
    /// Names of records.
    wanted: NameSet,
    /// By the number of a text: no slice of this name, or of this category, stands for an operator.
    no_op: (Vec<bool>, Vec<bool>),
}

/// What holds of each text of the trace, by its number.
pub(crate) fn by_text(trace: &Trace, holds: impl Fn(&str) -> bool) -> Vec<bool> {
    (0..trace.name_count())
        .map(|name| holds(trace.name(NameId(u32::try_from(name).unwrap_or(u32::MAX)))))
        .collect()
}

/// Whether events of this name are records, and whether they free.
fn record_name(name: &str) -> Option<Sort> {
    match name {
        "[memory]" => Some(Sort::Torch),
        "MemoryAllocation" => Some(Sort::Allocation),
        "MemoryDeallocation" => Some(Sort::Free),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Torch,
    Allocation,
    Free,
}

impl<'a> Reader<'a> {
    fn new(trace: &'a Trace) -> Self {
        let mut reader = Self {
            trace,
            found: Memory::default(),
            op_ids: FxHashMap::default(),
            ops_by_name: FxHashMap::default(),
            by_name: FxHashMap::default(),
            by_device: FxHashMap::default(),
            raw: Vec::new(),
            no_op: (
                by_text(trace, |name| {
                    name.starts_with('$') || record_name(name).is_some()
                }),
                by_text(trace, |category| category == "python_function"),
            ),
            wanted: NameSet::matching(trace, |name| record_name(name).is_some()),
        };
        reader.op_id("");
        reader
    }

    fn op_id(&mut self, op: &str) -> u32 {
        if let Some(id) = self.op_ids.get(op) {
            return *id;
        }
        let id = u32::try_from(self.found.ops.len()).unwrap_or(u32::MAX);
        self.op_ids.insert(op.to_owned(), id);
        self.found.ops.push(op.to_owned());
        id
    }

    /// Finds the records of one track.
    fn find(&self, on: TrackId, file: usize, found: &mut Vec<Place>) {
        let trace = self.trace;
        let mut add = |event, at, sort| {
            found.push(Place {
                track: on,
                file,
                event,
                at,
                sort,
            });
        };
        let instants = trace.instants(on);
        for (index, at) in instants.at.iter().enumerate() {
            if let Some(sort) = record_name(trace.name(instants.name[index])) {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                let event = EventId(instants.first_id.0.saturating_add(number));
                add(event, *at, sort);
            }
        }
        if self.wanted.is_empty() {
            return;
        }
        let slices = trace.slices(on);
        for index in 0..slices.len() {
            if self.wanted.contains(slices.name[index])
                && let Some(sort) = record_name(trace.name(slices.name[index]))
            {
                add(slices.id(index), slices.start[index], sort);
            }
        }
    }

    /// What an event says, and the operator around it where it names none.
    fn ask(&self, place: &Place) -> (Said, Option<NameId>) {
        let mut said = Said::default();
        // What cannot be read is not known.
        let _ = self
            .trace
            .args_of(place.event, SAID, &mut |key, value| said.take(key, value));
        let around = match said.op.as_deref() {
            Some("" | "(null)") | None => self.op_around(place.track, place.at),
            Some(_) => None,
        };
        (said, around)
    }

    fn record(&mut self, place: &Place, said: &Said, around: Option<NameId>) {
        let bytes = match place.sort {
            Sort::Torch => said.bytes,
            Sort::Allocation => said.bytes.or(said.requested),
            Sort::Free => said.bytes.or(said.requested).map(|bytes| -bytes),
        };
        let allocator = self.allocator(place, said);
        self.found.spells_stacks |= said.spells;
        let of = &mut self.found.allocators[allocator];
        of.absolute &= said.allocated.is_some();
        of.addressed &= said.address.is_some();
        of.lifetime_peak = of.lifetime_peak.max(said.peak);
        if let (Some(in_use), Some(available)) = (said.allocated, said.available) {
            let all = in_use
                .saturating_add(available)
                .saturating_add(said.stack.unwrap_or(0));
            of.capacity = of.capacity.max(Some(all));
        }
        let op = match (said.op.as_deref(), around) {
            (Some("" | "(null)") | None, None) => 0,
            (Some("" | "(null)") | None, Some(name)) => self.op_named(name),
            (Some(op), _) => self.op_id(op),
        };
        self.raw.push((
            Record {
                at: place.at,
                event: place.event,
                allocator,
                bytes: bytes.unwrap_or(0),
                in_use: said.allocated.unwrap_or(0),
                reserved: said.reserved,
                fragmentation: said.fragmentation,
                stack: said.stack.unwrap_or(0),
                op,
                freed: None,
                tracked: false,
            },
            said.address,
        ));
    }

    /// Index of the allocator that a record is of.
    fn allocator(&mut self, place: &Place, said: &Said) -> usize {
        let of_torch = place.sort == Sort::Torch && said.name.is_none();
        let device = (place.file, said.device_type, said.device);
        if of_torch && let Some(known) = self.by_device.get(&device) {
            return *known;
        }
        let name = said.allocator(place.sort);
        let next = self.found.allocators.len();
        let allocator = *self
            .by_name
            .entry((place.file, name.clone()))
            .or_insert(next);
        if allocator == next {
            let file = self.trace.files().get(place.file);
            let facts = file.map(|file| &file.spec);
            let device = device_of(&name);
            let limit = of_torch.then_some(device).flatten();
            self.found.allocators.push(Allocator {
                device,
                name,
                capacity: file
                    .zip(limit)
                    .and_then(|(file, of)| owners::limit(file, of)),
                file: place.file,
                host: facts.map(|spec| spec.host.clone()).unwrap_or_default(),
                rank: facts.and_then(|spec| spec.rank),
                absolute: true,
                addressed: true,
                ..Allocator::default()
            });
        }
        if of_torch {
            self.by_device.insert(device, allocator);
        }
        allocator
    }

    /// Number of the operator whose slices bear this name.
    fn op_named(&mut self, name: NameId) -> u32 {
        if let Some(id) = self.ops_by_name.get(&name) {
            return *id;
        }
        let id = self.op_id(self.trace.name(name));
        self.ops_by_name.insert(name, id);
        id
    }

    /// The innermost slice of the thread around a moment that is no Python function and no record.
    fn op_around(&self, track: TrackId, at: Time) -> Option<NameId> {
        let slices = self.trace.slices(track);
        let begun = slices.start.partition_point(|start| *start <= at);
        let mut index = begun.checked_sub(1)?;
        let none = |flags: &[bool], name: NameId| flags.get(name.index()) == Some(&true);
        loop {
            let name = slices.name[index];
            let open = slices.end(index) >= at;
            if open
                && !none(&self.no_op.1, slices.category.get(index))
                && !none(&self.no_op.0, name)
            {
                return Some(name);
            }
            index = slices.parent[index] as usize;
            if index >= slices.len() {
                return None;
            }
        }
    }

    /// Sorts, sums up where the file does not, and finds the allocation of each free.
    fn finish(mut self) -> Memory {
        self.raw
            .sort_by_key(|(record, _)| (record.at, record.event));
        let mut alive: FxHashMap<(usize, u64), usize> = FxHashMap::default();
        let mut sums = vec![0_i64; self.found.allocators.len()];
        let mut records: Vec<Record> = Vec::with_capacity(self.raw.len());
        for (mut record, address) in std::mem::take(&mut self.raw) {
            let position = records.len();
            let allocator = &mut self.found.allocators[record.allocator];
            let sum = &mut sums[record.allocator];
            *sum = sum.saturating_add(record.bytes);
            if !allocator.absolute {
                record.in_use = *sum;
            }
            if let Some(address) = address {
                let key = (record.allocator, address);
                if record.bytes > 0 {
                    record.tracked = true;
                    alive.insert(key, position);
                } else if let Some(allocation) = alive.remove(&key) {
                    record.tracked = true;
                    let freed: &mut Record = &mut records[allocation];
                    freed.freed = Some(record.at);
                    if record.bytes == 0 {
                        // Some frees tell no size.
                        record.bytes = -freed.bytes;
                    }
                }
            }
            allocator
                .records
                .push(u32::try_from(position).unwrap_or(u32::MAX));
            records.push(record);
        }
        self.found.records = records;
        self.found
    }
}

/// What [`Said`] takes from the arguments.
const SAID: ArgKeys = ArgKeys::new(&[
    "Bytes",
    "allocation_bytes",
    "requested_bytes",
    "Addr",
    "addr",
    "Total Allocated",
    "bytes_allocated",
    "Total Reserved",
    "bytes_reserved",
    "bytes_available",
    "peak_bytes_in_use",
    "Device Type",
    "Device Id",
    "index_on_host",
    "allocator_name",
    "tf_op",
    "Call stack",
    "Call Stack",
]);

impl Said {
    fn take(&mut self, key: &str, value: ArgValue<'_>) {
        let number = match value {
            ArgValue::Int(value) => Some(value),
            ArgValue::Uint(value) => Some(value as i64),
            ArgValue::Str(text) => text.parse().ok(),
            _ => None,
        };
        let text = || match value {
            ArgValue::Str(text) => Some(text.to_owned()),
            _ => None,
        };
        match key {
            "Bytes" | "allocation_bytes" => self.bytes = number,
            "requested_bytes" => self.requested = number,
            "Addr" | "addr" => self.address = number.map(|number| number as u64),
            "Total Allocated" | "bytes_allocated" => self.allocated = number,
            "Total Reserved" => self.reserved = number.filter(|reserved| *reserved > 0),
            "bytes_reserved" => self.stack = number,
            "fragmentation" => {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "a part of one needs no more than seven digits"
                )]
                let part = match value {
                    ArgValue::Double(part) => Some(part as f32),
                    _ => number.map(|part| part as f32),
                };
                self.fragmentation = part.filter(|part| (0.0..=1.0).contains(part));
            }
            "bytes_available" => self.available = number,
            "peak_bytes_in_use" => self.peak = number,
            "Device Type" => self.device_type = number,
            "Device Id" | "index_on_host" => self.device = number,
            "allocator_name" => self.name = text(),
            "tf_op" => self.op = text(),
            "Call stack" | "Call Stack" => self.spells = true,
            _ => {}
        }
    }

    /// What to call the allocator.
    fn allocator(&self, sort: Sort) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let device = match (sort, self.device_type) {
            (Sort::Torch, Some(0) | None) => return "CPU".to_owned(),
            (Sort::Torch, Some(1)) => "CUDA",
            (Sort::Torch, Some(6)) => "HIP",
            (Sort::Torch, Some(12)) => "XPU",
            (Sort::Torch, Some(19)) => "MTIA",
            (Sort::Torch, Some(20)) => "PrivateUse1",
            _ => "device",
        };
        format!("{device} {}", self.device.unwrap_or(0).max(0))
    }
}

/// The ordinal in `CUDA 0` or `GPU_0_bfc`; host allocators have none.
fn device_of(name: &str) -> Option<u32> {
    if name.contains("host") || name.contains("CPU") || name.contains("cpu") {
        return None;
    }
    let digits = name.split(|letter: char| !letter.is_ascii_digit());
    digits
        .filter(|part| !part.is_empty())
        .find_map(|part| part.parse().ok())
}
