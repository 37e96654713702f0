//! Device utilisation of an operation, where the file has the counts of each execution.
//!
//! XLA writes the floating-point operations and the bytes of each instruction to the events of TPU lines
//! (arguments `model_flops`, else `flops`, `bytes_accessed`, and `memory_access_breakdown` with the bytes of each
//! memory), and the peaks of each device to its plane. With `time` by the device's own clock where that is recorded:
//!
//! ```text
//! flop rate   = sum over occurrences of their operations / time
//! byte rate   = sum over occurrences of their bytes / time
//! utilisation = max(flop rate / peak of the device, byte rate of its main memory / peak of that), at most 1
//! bound by    = compute when the first is larger, else memory
//! wasted      = self time * (1 - utilisation)
//! ```
//!
//! The counts of an instruction are read from its longest occurrence: the file stores them once for all. There
//! are no rates for a range, whose borders cut occurrences, nor for devices without peaks.

use stepscope_formats::xspace::{MemorySpace, memory_accesses};
use stepscope_hlo::cost::{Level, LevelBytes};
use stepscope_model::{ArgKeys, ArgValue};
use stepscope_store::{EventId, Trace};

/// Summed counts of the occurrences of some instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// The bytes by memory level: all in the main memory where the file does not say it.
    pub levels: LevelBytes,
}

impl Done {
    /// Returns its floating-point operations, if there are any.
    pub(crate) fn counted_flops(self) -> Option<f64> {
        (self.flops > 0.0).then_some(self.flops)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.flops += other.flops;
        self.bytes += other.bytes;
        self.levels.add(&other.levels, 1.0);
    }
}

const DONE: ArgKeys = ArgKeys::new(&[
    "model_flops",
    "flops",
    "bytes_accessed",
    "memory_access_breakdown",
]);

/// Returns the counts of `count` executions, from the arguments of one; `None` if it has none.
pub fn done(trace: &Trace, event: EventId, count: u64) -> Option<Done> {
    let (mut model, mut flops, mut bytes, mut levels) = (None, None, None, None);
    let number = |value: ArgValue<'_>| match value {
        ArgValue::Int(value) => Some(value as f64),
        ArgValue::Uint(value) => Some(value as f64),
        ArgValue::Double(value) => Some(value),
        _ => None,
    };
    // Unreadable values stay unknown.
    let _ = trace.args_of(event, DONE, &mut |key, value| match key {
        "model_flops" => model = number(value),
        "flops" => flops = number(value),
        "bytes_accessed" => bytes = number(value),
        "memory_access_breakdown" => levels = by_level(value),
        _ => {}
    });
    let flops = model.or(flops);
    let times = count as f64;
    (flops.is_some() || bytes.is_some()).then(|| {
        let bytes = bytes.unwrap_or(0.0);
        let mut found = Done {
            flops: flops.unwrap_or(0.0) * times,
            bytes: bytes * times,
            levels: LevelBytes::default(),
        };
        let once = levels.unwrap_or_else(|| LevelBytes::main_only(bytes));
        found.levels.add(&once, times);
        found
    })
}

/// Adds up the bytes of one execution by memory level.
fn by_level(value: ArgValue<'_>) -> Option<LevelBytes> {
    let ArgValue::Bytes(breakdown) = value else {
        return None;
    };
    let mut found = LevelBytes::default();
    memory_accesses(breakdown, &mut |access| {
        let level = match (access.memory, access.is_write) {
            (MemorySpace::Hbm, _) => Level::Main,
            (MemorySpace::Cmem, false) => Level::CmemRead,
            (MemorySpace::Cmem, true) => Level::CmemWrite,
            (MemorySpace::Vmem, false) => Level::VmemRead,
            (MemorySpace::Vmem, true) => Level::VmemWrite,
            (MemorySpace::Other, _) => return,
        };
        found.add_at(level, access.bytes as f64);
    });
    Some(found)
}

/// Resource that limits an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The device's arithmetic.
    Compute,
    /// The rate of its memory.
    Memory,
}

impl Bound {
    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
        }
    }
}

/// Arithmetic and memory rates of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Floating-point operations per second.
    pub flops_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Fraction of the device's peak; `None` where the file has no peaks.
    pub utilisation: Option<f64>,
    /// See [`Bound`]; `None` where the file has no peaks.
    pub bound: Option<Bound>,
    /// Whether a rate is above the device's peak: the time or the counts are wrong.
    pub exceeds_peak: bool,
}

/// Tolerance for rates above the peak that result from rounded times.
const ROUNDING: f64 = 1.01;

/// Computes the rates of the counts `done` in `ps` picoseconds on the device of `event`.
pub(super) fn rates(trace: &Trace, event: EventId, done: Done, ps: i128) -> Option<Rates> {
    let seconds = ps as f64 * 1e-12;
    if ps <= 0 {
        return None;
    }
    let (flops, bytes) = (done.flops / seconds, done.bytes / seconds);
    let main_bytes = done.levels.at(Level::Main) / seconds;
    let peaks = peaks(trace, event);
    let exceeds = |(most_flops, most_bytes): (f64, f64)| {
        flops > most_flops * ROUNDING || main_bytes > most_bytes * ROUNDING
    };
    let exceeds_peak = peaks.is_some_and(exceeds);
    let parts = peaks.map(|(most_flops, most_bytes)| {
        (
            (flops / most_flops).clamp(0.0, 1.0),
            (main_bytes / most_bytes).clamp(0.0, 1.0),
        )
    });
    let bound = |(compute, memory): (f64, f64)| {
        if compute > memory {
            Bound::Compute
        } else {
            Bound::Memory
        }
    };
    Some(Rates {
        flops_per_second: flops,
        bytes_per_second: bytes,
        utilisation: parts.map(|(compute, memory)| compute.max(memory)),
        bound: parts.filter(|(a, b)| a.max(*b) > 0.0).map(bound),
        exceeds_peak,
    })
}

/// Returns the peak operations and bytes per second of the device of an event, from its plane.
fn peaks(trace: &Trace, event: EventId) -> Option<(f64, f64)> {
    let (line, _) = trace.place_of_slice(event)?;
    let line = trace.tracks().get(line.index())?;
    let device = line.device?;
    let fact = |name: &str| crate::peaks::recorded(trace, line.file, device, name);
    let flops = fact("peak_teraflops_per_second")? * 1e12;
    let bytes = fact("peak_hbm_bw_gigabytes_per_second")? * 1e9;
    Some((flops, bytes))
}
