//! Reader of allocations and frees: the arguments of events, the operator around each, the allocation of each
//! free.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, Time, TrackId};
use stepscope_store::{EventId, Trace};

use super::shared::{self, Extra};
use super::{Allocator, Memory, Record, owners};
use crate::names::{NameSet, by_text};
use crate::parallel::{self, Cancel};

/// Arguments of one event.
#[derive(Default)]
struct MemoryArgs {
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
    category: Option<String>,
    /// Whether the file has the Python stack as text.
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
            let before = found.len();
            reader.find(on, track.file, &mut found);
            if found.len() > before
                && let Some(others) = trace.overlapping(on)
            {
                reader.found.overlapping.insert(on, others);
            }
        }
        found.sort_by_key(|location| (location.at, location.event));
        reader.found.records.reserve_exact(found.len());
        reader.extras.reserve_exact(found.len());
        // Arguments are read in parallel and processed in order, one batch at a time.
        for batch in found.chunks(BATCH_LEN) {
            let jobs: Vec<(usize, &[RecordEvent])> = batch.chunks(1 << 10).enumerate().collect();
            let args = parallel::scan_items(
                &jobs,
                batch.len().saturating_mul(16),
                cancel,
                || (FxHashMap::default(), Vec::new()),
                |(near, out), (number, locations)| {
                    let args: Vec<_> = locations
                        .iter()
                        .map(|location| reader.read_args(location, near))
                        .collect();
                    out.push((*number, args));
                },
            )?;
            let mut args: Vec<_> = args.into_iter().flat_map(|(_, args)| args).collect();
            args.sort_unstable_by_key(|(number, _)| *number);
            let args = args.into_iter().flat_map(|(_, args)| args);
            for (location, (args, around)) in batch.iter().zip(args) {
                reader.record(location, &args, around);
            }
        }
        Ok(reader.finish())
    }
}

/// Number of events that are read in one batch.
const BATCH_LEN: usize = 1 << 18;

/// Location of a record.
struct RecordEvent {
    track: TrackId,
    file: usize,
    event: EventId,
    at: Time,
    kind: RecordKind,
}

struct Reader<'a> {
    trace: &'a Trace,
    found: Memory,
    op_ids: FxHashMap<String, u32>,
    /// Operators by the name of their slices.
    ops_by_name: FxHashMap<NameId, u32>,
    /// Allocators by file and name.
    by_name: FxHashMap<(usize, String), usize>,
    /// Allocators by file and torch's type and number of the device.
    by_device: FxHashMap<(usize, Option<i64>, Option<i64>), usize>,
    /// Additional facts of each record.
    extras: Vec<Extra>,
    /// Names of records.
    record_names: NameSet,
    /// By the number of a text: whether slices of this name, or of this category, are never the operator.
    no_op: (Vec<bool>, Vec<bool>),
}

/// Returns whether events of this name are records, and whether they free.
fn record_name(name: &str) -> Option<RecordKind> {
    match name {
        kineto::MEMORY => Some(RecordKind::Torch),
        "MemoryAllocation" => Some(RecordKind::Allocation),
        "MemoryDeallocation" => Some(RecordKind::Free),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordKind {
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
            extras: Vec::new(),
            no_op: (
                by_text(trace, |name| {
                    name.starts_with('$') || record_name(name).is_some()
                }),
                by_text(trace, kineto::is_python_function),
            ),
            record_names: NameSet::matching(trace, |name| record_name(name).is_some()),
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
    fn find(&self, on: TrackId, file: usize, found: &mut Vec<RecordEvent>) {
        let trace = self.trace;
        let mut add = |event, at, kind| {
            found.push(RecordEvent {
                track: on,
                file,
                event,
                at,
                kind,
            });
        };
        if self.record_names.is_empty() {
            return;
        }
        let instants = trace.instants(on);
        for (index, at) in instants.at.iter().enumerate() {
            if self.record_names.contains(instants.name[index])
                && let Some(kind) = record_name(trace.name(instants.name[index]))
            {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                let event = EventId(instants.first_id.0.saturating_add(number));
                add(event, *at, kind);
            }
        }
        let slices = trace.slices(on);
        for index in 0..slices.len() {
            if self.record_names.contains(slices.name[index])
                && let Some(kind) = record_name(trace.name(slices.name[index]))
            {
                add(slices.id(index), slices.start[index], kind);
            }
        }
    }

    /// Reads the arguments of an event, and the operator around it where it names none. `near`: where operators
    /// were found last, by track.
    fn read_args(
        &self,
        location: &RecordEvent,
        near: &mut FxHashMap<TrackId, usize>,
    ) -> (MemoryArgs, Option<NameId>) {
        let mut args = MemoryArgs::default();
        // Unreadable values stay unknown.
        let _ = self
            .trace
            .args_of(location.event, location.kind.keys(), &mut |key, value| {
                args.take(key, value);
            });
        let around = match args.op.as_deref() {
            Some("" | "(null)") | None => {
                self.op_around(location, near.entry(location.track).or_default())
            }
            Some(_) => None,
        };
        (args, around)
    }

    fn record(&mut self, location: &RecordEvent, args: &MemoryArgs, around: Option<NameId>) {
        let bytes = match location.kind {
            RecordKind::Torch => args.bytes,
            RecordKind::Allocation => args.bytes.or(args.requested),
            RecordKind::Free => args.bytes.or(args.requested).map(|bytes| -bytes),
        };
        let allocator = self.allocator(location, args);
        self.found.spells_stacks |= args.spells;
        let of = &mut self.found.allocators[allocator];
        of.absolute &= args.allocated.is_some();
        of.addressed &= args.address.is_some();
        of.lifetime_peak = of.lifetime_peak.max(args.peak);
        if let (Some(in_use), Some(available)) = (args.allocated, args.available) {
            let all = in_use
                .saturating_add(available)
                .saturating_add(args.stack.unwrap_or(0));
            of.capacity = of.capacity.max(Some(all));
        }
        if let Some(category) = &args.category {
            let position = self.found.records.len();
            let number = self.found.category_number(category);
            self.found.category_of.resize(position, 0);
            self.found.category_of.push(number);
        }
        let op = match (args.op.as_deref(), around) {
            (Some("" | "(null)") | None, None) => 0,
            (Some("" | "(null)") | None, Some(name)) => self.op_named(name),
            (Some(op), _) => self.op_id(op),
        };
        let of_cpu =
            location.kind == RecordKind::Torch && matches!(args.device_type, Some(0) | None);
        self.extras.push(Extra {
            address: args.address,
            empty: of_cpu && args.allocated == Some(0),
        });
        self.found.records.push(Record {
            at: location.at,
            event: location.event,
            allocator,
            bytes: bytes.unwrap_or(0),
            in_use: args.allocated.unwrap_or(0),
            reserved: args.reserved,
            fragmentation: args.fragmentation,
            stack: args.stack.unwrap_or(0),
            op,
            freed: None,
            tracked: false,
        });
    }

    /// Returns the index of the allocator of a record.
    fn allocator(&mut self, location: &RecordEvent, args: &MemoryArgs) -> usize {
        let of_torch = location.kind == RecordKind::Torch;
        let device = (location.file, args.device_type, args.device);
        if of_torch && let Some(known) = self.by_device.get(&device) {
            return *known;
        }
        let name = args.allocator(location.kind);
        let next = self.found.allocators.len();
        let allocator = *self
            .by_name
            .entry((location.file, name.clone()))
            .or_insert(next);
        if allocator == next {
            let file = self.trace.files().get(location.file);
            let facts = file.map(|file| &file.spec);
            let device = device_of(&name);
            let limit = of_torch.then_some(device).flatten();
            self.found.allocators.push(Allocator {
                device,
                name,
                capacity: file
                    .zip(limit)
                    .and_then(|(file, of)| owners::device_bytes(file, of)),
                file: location.file,
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

    /// Returns the number of the operator whose slices have this name.
    fn op_named(&mut self, name: NameId) -> u32 {
        if let Some(id) = self.ops_by_name.get(&name) {
            return *id;
        }
        let id = self.op_id(self.trace.name(name));
        self.ops_by_name.insert(name, id);
        id
    }

    /// Returns the innermost slice of the thread around a timestamp that is no Python function and no record.
    fn op_around(&self, location: &RecordEvent, near: &mut usize) -> Option<NameId> {
        let slices = self.trace.slices(location.track);
        let none = |flags: &[bool], name: NameId| flags.get(name.index()) == Some(&true);
        let others = self.found.overlapping.get(&location.track);
        self.trace
            .around_near(location.track, location.at, others, near)
            .find(|index| {
                !none(&self.no_op.1, slices.category.get(*index))
                    && !none(&self.no_op.0, slices.name[*index])
            })
            .map(|index| slices.name[index])
    }

    /// Computes the memory that must have been in use before the first record, by allocator, so that sums of
    /// sizes never fall below zero.
    fn at_start(&self) -> Vec<i64> {
        let mut sums = vec![(0_i64, 0_i64); self.found.allocators.len()];
        for record in &self.found.records {
            let (sum, lowest) = &mut sums[record.allocator];
            *sum = sum.saturating_add(record.bytes);
            *lowest = (*lowest).min(*sum);
        }
        sums.into_iter()
            .map(|(_, lowest)| lowest.saturating_neg())
            .collect()
    }

    /// Finds the allocation of each free.
    fn pair(&mut self) {
        let records = &mut self.found.records;
        let mut alive: FxHashMap<(usize, u64), usize> = FxHashMap::default();
        for (position, extra) in self.extras.iter().enumerate() {
            let record = &mut records[position];
            let (at, allocator, bytes) = (record.at, record.allocator, record.bytes);
            let number = u32::try_from(position).unwrap_or(u32::MAX);
            self.found.allocators[allocator].records.push(number);
            let Some(address) = extra.address else {
                continue;
            };
            let key = (allocator, address);
            if bytes > 0 {
                record.tracked = true;
                alive.insert(key, position);
            } else if let Some(allocation) = alive.remove(&key) {
                record.tracked = true;
                let allocation = &mut records[allocation];
                allocation.freed = Some(at);
                let size = allocation.bytes;
                // Some frees have no size.
                if bytes == 0 {
                    records[position].bytes = -size;
                }
            }
        }
    }

    /// Separates allocators, finds the allocation of each free, and sums up the bytes in use where the file has
    /// none.
    fn finish(mut self) -> Memory {
        shared::set_apart(&mut self.found, &self.extras);
        self.pair();
        let mut sums = self.at_start();
        for record in &mut self.found.records {
            let sum = &mut sums[record.allocator];
            *sum = sum.saturating_add(record.bytes);
            if !self.found.allocators[record.allocator].absolute {
                record.in_use = *sum;
            }
        }
        self.found
    }
}

impl RecordKind {
    /// Returns the arguments that [`MemoryArgs`] reads.
    const fn keys(self) -> ArgKeys {
        const TORCH: ArgKeys = ArgKeys::new(&[
            "Bytes",
            "Addr",
            "addr",
            "Total Allocated",
            "Total Reserved",
            "Device Type",
            "Device Id",
            "allocator_name",
            "Category",
            "Call stack",
            "Call Stack",
        ]);
        const XLA: ArgKeys = ArgKeys::new(&[
            "allocation_bytes",
            "requested_bytes",
            "Addr",
            "addr",
            "bytes_allocated",
            "bytes_reserved",
            "fragmentation",
            "bytes_available",
            "peak_bytes_in_use",
            "Device Type",
            "Device Id",
            "index_on_host",
            "allocator_name",
            "tf_op",
        ]);
        match self {
            Self::Torch => TORCH,
            Self::Allocation | Self::Free => XLA,
        }
    }
}

impl MemoryArgs {
    fn take(&mut self, key: &str, value: ArgValue<'_>) {
        if matches!(key, "Addr" | "addr") {
            // An address is a pattern of bits: those in the upper half may be written as negative.
            self.address = match value {
                ArgValue::Int(value) => Some(value.cast_unsigned()),
                ArgValue::Uint(value) => Some(value),
                ArgValue::Str(text) => text.parse().ok(),
                _ => None,
            };
            return;
        }
        let number = match value {
            ArgValue::Int(value) => Some(value),
            ArgValue::Uint(value) => Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ArgValue::Str(text) => text.parse().ok(),
            _ => None,
        };
        // Frees are negative sizes: exclude the one number that has no negative.
        let number = number.map(|number| number.max(-i64::MAX));
        let text = || match value {
            ArgValue::Str(text) => Some(text.to_owned()),
            _ => None,
        };
        match key {
            "Bytes" | "allocation_bytes" => self.bytes = number,
            "requested_bytes" => self.requested = number,
            "Total Allocated" | "bytes_allocated" => self.allocated = number,
            "Total Reserved" => self.reserved = number.filter(|reserved| *reserved > 0),
            "bytes_reserved" => self.stack = number,
            "fragmentation" => {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "a fraction of one needs no more than seven digits"
                )]
                let fraction = match value {
                    ArgValue::Double(fraction) => Some(fraction as f32),
                    _ => number.map(|fraction| fraction as f32),
                };
                self.fragmentation = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
            }
            "bytes_available" => self.available = number,
            "peak_bytes_in_use" => self.peak = number,
            "Device Type" => self.device_type = number,
            "Device Id" | "index_on_host" => self.device = number,
            "allocator_name" => self.name = text(),
            "tf_op" => self.op = text(),
            "Category" => self.category = text(),
            "Call stack" | "Call Stack" => self.spells = true,
            _ => {}
        }
    }

    /// Returns the name of the allocator.
    fn allocator(&self, kind: RecordKind) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let device = match (kind, self.device_type) {
            (RecordKind::Torch, Some(0) | None) => return "CPU".to_owned(),
            (RecordKind::Torch, Some(1)) => "CUDA",
            (RecordKind::Torch, Some(6)) => "HIP",
            (RecordKind::Torch, Some(12)) => "XPU",
            (RecordKind::Torch, Some(19)) => "MTIA",
            (RecordKind::Torch, Some(20)) => "PrivateUse1",
            _ => "device",
        };
        format!("{device} {}", self.device.unwrap_or(0).max(0))
    }
}

/// Returns the ordinal in `CUDA 0` or `GPU_0_bfc`; host allocators have none.
fn device_of(name: &str) -> Option<u32> {
    if name.contains("host") || name.contains("CPU") || name.contains("cpu") {
        return None;
    }
    let digits = name.split(|letter: char| !letter.is_ascii_digit());
    digits
        .filter(|part| !part.is_empty())
        .find_map(|part| part.parse().ok())
}
