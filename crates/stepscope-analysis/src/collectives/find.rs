//! Search for collectives in a trace, and their arguments.

use rustc_hash::FxHashSet;
use stepscope_model::vocabulary::collective::{communicates, is_process_group_call};
use stepscope_model::vocabulary::kineto::PARAM_COMMS;
use stepscope_model::vocabulary::xla::{is_collective, is_jax_collective};
use stepscope_model::{ArgKeys, ArgValue, Cancelled, Dur, NameId, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace};

use super::{CollectiveCall, CollectiveOp, Participant};
use crate::device::{Devices, Work};
use crate::launch::Launches;
use crate::ops::hlo::{Catalogue, HloInstructionFacts};
use crate::parallel::{self, Cancel};
use crate::torch_args::{DIMS, is_dims};

/// Arguments of a collective, as torch writes them.
#[derive(Clone, Debug, Default, PartialEq)]
struct CollectiveArgs {
    name: String,
    group: String,
    group_size: Option<u32>,
    in_elements: Option<u64>,
    out_elements: Option<u64>,
    dtype: String,
    dims: Option<u64>,
    /// Bytes, from the compiled program or as the file has them.
    result_bytes: Option<u64>,
    device: Option<u32>,
}

/// Arguments that [`CollectiveArgs`] reads.
const COLLECTIVE_ARGS: ArgKeys = ArgKeys::new(&[
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "Group size",
    "dtype",
    "Process Group Ranks",
    "Process Group Name",
    DIMS[0],
    DIMS[1],
    "Input type",
    "device_ordinal",
    "comm_size",
]);

impl CollectiveArgs {
    fn read(trace: &Trace, id: EventId) -> Self {
        let mut args = Self::default();
        if trace
            .args_of(id, COLLECTIVE_ARGS, &mut |key, value| args.take(key, value))
            .is_err()
        {
            return Self::default();
        }
        args
    }

    fn take(&mut self, key: &str, value: ArgValue<'_>) {
        let whole = || match value {
            ArgValue::Int(number) => u64::try_from(number).ok(),
            ArgValue::Uint(number) => Some(number),
            _ => None,
        };
        let text = || match value {
            ArgValue::Str(text) | ArgValue::Json(text) => text.to_owned(),
            ArgValue::Int(number) => number.to_string(),
            _ => String::new(),
        };
        match key {
            "Collective name" => self.name = text(),
            "In msg nelems" => self.in_elements = whole(),
            "Out msg nelems" => self.out_elements = whole(),
            "Group size" => self.group_size = whole().and_then(|size| u32::try_from(size).ok()),
            "dtype" => self.dtype = text(),
            "Process Group Ranks" => self.group = text(),
            "Process Group Name" if self.group.is_empty() => self.group = text(),
            key if is_dims(key) => self.dims = elements(&text()),
            "Input type" if self.dtype.is_empty() => self.dtype = first_type(&text()),
            "device_ordinal" => self.device = whole().and_then(|device| u32::try_from(device).ok()),
            // Chakra's execution traces have bytes instead of elements.
            "comm_size" => self.result_bytes = whole(),
            _ => {}
        }
    }

    /// Fills missing values from `other`.
    fn or(mut self, other: Self) -> Self {
        if self.name.is_empty() {
            self.name = other.name;
        }
        if self.group.is_empty() {
            self.group = other.group;
        }
        if self.dtype.is_empty() {
            self.dtype = other.dtype;
        }
        self.group_size = self.group_size.or(other.group_size);
        self.in_elements = self.in_elements.or(other.in_elements);
        self.out_elements = self.out_elements.or(other.out_elements);
        self.dims = self.dims.or(other.dims);
        self.result_bytes = self.result_bytes.or(other.result_bytes);
        self
    }

    fn bytes(&self, kind: CollectiveOp) -> Option<u64> {
        if self.result_bytes.is_some() {
            return self.result_bytes;
        }
        let size = element_bytes(&self.dtype)?;
        let inside = self.in_elements.or(self.dims)?;
        let outside = self.out_elements.unwrap_or(inside);
        kind.size(inside, outside).checked_mul(size)
    }
}

/// Returns the elements of the first tensor in `[[394241]]` or `[[[2873320]], [], []]`.
fn elements(dims: &str) -> Option<u64> {
    let first = dims.trim_start_matches(['[', ' ']);
    let inner = first.split(']').next()?;
    let mut product = 1_u64;
    let mut any = false;
    for number in inner.split(',') {
        product = product.checked_mul(number.trim().parse().ok()?)?;
        any = true;
    }
    any.then_some(product)
}

/// Returns `float` of `["float", ""]`.
fn first_type(types: &str) -> String {
    types
        .split('"')
        .nth(1)
        .map(|text| text.trim_start_matches("c10::").to_owned())
        .unwrap_or_default()
}

/// Returns the bytes of an element of a type, in the names of torch and XLA.
fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype.to_ascii_lowercase().as_str() {
        "float" | "float32" | "int" | "int32" | "uint32" | "f32" | "s32" | "u32" => 4,
        "double" | "float64" | "long" | "long int" | "int64" | "uint64" | "complexfloat"
        | "f64" | "s64" | "u64" | "c64" => 8,
        "half" | "bfloat16" | "float16" | "short" | "int16" | "uint16" | "bf16" | "f16" | "s16"
        | "u16" => 2,
        "byte" | "char" | "signed char" | "unsigned char" | "bool" | "int8" | "uint8" | "s8"
        | "u8" | "pred" | "float8_e4m3fn" | "float8_e5m2" | "float8_e4m3fnuz"
        | "float8_e5m2fnuz" => 1,
        "complexdouble" => 16,
        _ => return None,
    })
}

/// Finds slices of communication on devices.
pub(super) fn on_devices(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    cancel: &Cancel,
) -> Result<Vec<CollectiveCall>, Cancelled> {
    let mut parts = Vec::new();
    for device in &devices.list {
        if device.counts[Work::Communication as usize] == 0 {
            continue;
        }
        let who = Participant {
            file: device.file,
            device: device.ordinal,
        };
        let first = parts.len();
        for queue in &device.queues {
            if queue.counts[Work::Communication as usize] == 0 {
                continue;
            }
            let slices = trace.slices(queue.track);
            for index in 0..slices.len() {
                if devices.work(queue.track, index) != Some(Work::Communication) {
                    continue;
                }
                let launch = launches.get(queue.track, index);
                let position = (queue.track, index);
                parts.push(call(trace, who, position, around(trace, launch)));
            }
            cancel.check()?;
        }
        let ranges: Vec<_> = parts[first..]
            .iter()
            .map(|call| call.start..call.end)
            .collect();
        let times = devices.times(device, &ranges, cancel)?;
        for (call, times) in parts[first..].iter_mut().zip(times) {
            call.hidden = Some(times.compute());
        }
    }
    Ok(parts)
}

fn call(
    trace: &Trace,
    who: Participant,
    (track, index): (TrackId, usize),
    around: CollectiveArgs,
) -> CollectiveCall {
    let slices = trace.slices(track);
    let event = slices.id(index);
    let name = slices.name.get(index).map_or("", |name| trace.name(*name));
    let args = CollectiveArgs::read(trace, event).or(around);
    let kind = match CollectiveOp::from_name(&args.name) {
        CollectiveOp::Other => CollectiveOp::from_name(name),
        kind => kind,
    };
    CollectiveCall {
        who: Participant {
            device: args.device.unwrap_or(who.device),
            ..who
        },
        event,
        start: slices.start.get(index).copied().unwrap_or(Time::ZERO),
        end: slices.end(index),
        kind,
        bytes: args.bytes(kind),
        group: args.group,
        operation: String::new(),
        group_size: args.group_size,
        dtype: args.dtype,
        hidden: None,
    }
}

/// Reads the slices around the launch: `nccl:all_reduce`, `record_param_comms`.
fn around(trace: &Trace, launch: Option<EventId>) -> CollectiveArgs {
    let mut args = CollectiveArgs::default();
    let mut at = launch.and_then(|launch| trace.place_of_slice(launch));
    for _ in 0..4 {
        let Some((track, index)) = at else {
            break;
        };
        let slices = trace.slices(track);
        let name = slices.name.get(index).map_or("", |name| trace.name(*name));
        if name == PARAM_COMMS || is_process_group_call(name) {
            let mut more = CollectiveArgs::read(trace, slices.id(index));
            if more.name.is_empty() && CollectiveOp::from_name(name) != CollectiveOp::Other {
                name.clone_into(&mut more.name);
            }
            args = args.or(more);
        }
        at = slices
            .parent
            .get(index)
            .map(|parent| *parent as usize)
            .filter(|parent| *parent < slices.len())
            .map(|parent| (track, parent));
    }
    args
}

/// Returns whether slices of this name may be collectives, on a device or on the host. Reads no arguments.
pub fn may_be_collective(name: &str) -> bool {
    let head = name.split('.').next().unwrap_or(name);
    communicates(name) || is_jax_collective(head) || is_process_group_call(name)
}

/// Returns whether this is the opcode of a collective, or the name of an instruction that XLA named after it.
fn is_instruction(name: &str) -> bool {
    is_collective(name.split('.').next().unwrap_or(name))
}

/// Finds the collective of this instruction in the compiled programs of a file: JAX names instructions after its
/// own functions (`psum`, `all_gather.3`), so the name alone is not sufficient.
fn instruction<'a>(
    catalogue: &'a Catalogue,
    file: usize,
    name: &str,
) -> Option<&'a HloInstructionFacts> {
    catalogue
        .find_by_name(file, name)
        .filter(|known| is_instruction(&known.category))
}

/// Reads an instruction that XLA's CPU threads run: its kind and its output bytes.
fn compiled(known: &HloInstructionFacts) -> CollectiveArgs {
    let (dtype, _) = known.shape.split_once('[').unwrap_or_default();
    CollectiveArgs {
        name: known.category.clone(),
        dtype: dtype.trim_start_matches('(').to_owned(),
        result_bytes: shape_bytes(&known.shape),
        ..CollectiveArgs::default()
    }
}

/// Returns the bytes of a result: `f32[32,8]`, or the sum over `(f32[8], s32[])`.
fn shape_bytes(shape: &str) -> Option<u64> {
    let mut sum = 0_u64;
    let mut any = false;
    let mut rest = shape.trim_start_matches('(');
    while let Some((dtype, after)) = rest.split_once('[') {
        let (dims, after) = after.split_once(']')?;
        let size = element_bytes(dtype.trim_start_matches([',', ' ', '(']))?;
        let mut product = size;
        for number in dims.split(',').filter(|number| !number.is_empty()) {
            product = product.checked_mul(number.trim().parse().ok()?)?;
        }
        sum = sum.checked_add(product)?;
        any = true;
        // A layout may follow.
        rest = match after.strip_prefix('{') {
            Some(layout) => layout.split_once('}')?.1,
            None => after,
        };
    }
    any.then_some(sum)
}

/// Finds collectives on threads, in files whose devices show none.
pub(super) fn on_hosts(
    trace: &Trace,
    devices: &Devices<'_>,
    cancel: &Cancel,
) -> Result<Vec<CollectiveCall>, Cancelled> {
    let shown: FxHashSet<usize> = devices
        .list
        .iter()
        .filter(|device| device.counts[Work::Communication as usize] > 0)
        .map(|device| device.file)
        .collect();
    let mut any = false;
    let catalogue = Catalogue::from_trace(trace);
    let files = 0..trace.files().len();
    let names: Vec<bool> = (0..trace.name_count())
        .map(|name| {
            let name = trace.name(NameId(u32::try_from(name).unwrap_or(u32::MAX)));
            let known = |file| instruction(&catalogue, file, name).is_some();
            let is_collective_name =
                is_process_group_call(name) || is_instruction(name) || files.clone().any(known);
            any |= is_collective_name;
            is_collective_name
        })
        .collect();
    if !any {
        return Ok(Vec::new());
    }
    let chunks = parallel::track_chunks(
        trace
            .tracks()
            .iter()
            .filter(|track| track.kind == TrackKind::Thread && !shown.contains(&track.file))
            .map(|track| (track.id, 0..track.slices as usize)),
    );
    let found = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
        let slices = trace.slices(chunk.track);
        let file = trace.tracks().get(chunk.track.index());
        let who = Participant {
            file: file.map_or(0, |track| track.file),
            device: 0,
        };
        for index in chunk.indexes.clone() {
            let name = slices.name.get(index).map(|name| names.get(name.index()));
            let length = slices.dur.get(index).copied().unwrap_or(Dur::ZERO);
            if name.flatten() == Some(&true) && length > Dur::ZERO {
                let name = slices.name.get(index).map_or("", |name| trace.name(*name));
                let known = instruction(&catalogue, who.file, name);
                if known.is_none() && !is_process_group_call(name) && !is_instruction(name) {
                    // Programs of another file use this name.
                    continue;
                }
                let args = known.map(compiled).unwrap_or_default();
                let mut call = call(trace, who, (chunk.track, index), args);
                if call.group.is_empty() {
                    name.clone_into(&mut call.operation);
                }
                out.push((call, known.is_some()));
            }
        }
    })?;
    let mut found: Vec<(CollectiveCall, bool)> = found.into_iter().flatten().collect();
    scattered(&mut found);
    Ok(found.into_iter().map(|(call, _)| call).collect())
}

/// Sets the size of scatters to their input: the output times the number of participants.
fn scattered(parts: &mut [(CollectiveCall, bool)]) {
    let everybody: FxHashSet<Participant> = parts.iter().map(|(call, _)| call.who).collect();
    for (call, compiled) in parts {
        if *compiled && call.kind == CollectiveOp::ReduceScatter {
            let own = everybody.iter().filter(|who| who.file == call.who.file);
            let n = call.group_size.map_or(own.count() as u64, u64::from);
            call.bytes = call.bytes.and_then(|bytes| bytes.checked_mul(n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_multiplied() {
        for (dims, expected) in [
            ("[[394241]]", Some(394_241)),
            ("[[[2873320]], [], []]", Some(2_873_320)),
            ("[[16, 4], [3]]", Some(64)),
            ("[]", None),
            ("[[], []]", None),
        ] {
            assert_eq!(elements(dims), expected, "{dims}");
        }
        assert_eq!(first_type("[\"c10::BFloat16\"]"), "BFloat16");
        assert_eq!(element_bytes("BFloat16"), Some(2));
        assert_eq!(element_bytes(""), None);
    }

    #[test]
    fn results_of_instructions_have_sizes() {
        for (shape, expected) in [
            ("f32[32,8]", Some(1_024)),
            ("f32[]", Some(4)),
            ("(f32[8], s32[])", Some(36)),
            ("(bf16[2,2]{1,0}, u8[3]{0})", Some(11)),
            ("token", None),
            ("opaque[3]", None),
            ("f32[99999999999,99999999999]", None),
        ] {
            assert_eq!(shape_bytes(shape), expected, "{shape}");
        }
        let known = |category: &str| HloInstructionFacts {
            category: category.to_owned(),
            shape: "f32[4,2]{1,0}".to_owned(),
            ..HloInstructionFacts::default()
        };
        let args = compiled(&known("all-gather"));
        assert_eq!(
            (args.dtype.as_str(), args.bytes(CollectiveOp::AllGather)),
            ("f32", Some(32))
        );
    }

    #[test]
    fn scatters_are_counted_by_input_bytes() {
        let call = |device| CollectiveCall {
            who: Participant { file: 0, device },
            event: EventId(device),
            start: Time::ZERO,
            end: Time::ZERO,
            kind: CollectiveOp::ReduceScatter,
            group: String::new(),
            operation: String::new(),
            group_size: None,
            bytes: Some(100),
            dtype: String::new(),
            hidden: None,
        };
        let mut parts = vec![(call(0), true), (call(1), true), (call(2), false)];
        scattered(&mut parts);
        let bytes: Vec<_> = parts.iter().map(|(call, _)| call.bytes).collect();
        assert_eq!(bytes, [Some(300), Some(300), Some(100)]);
    }

    #[test]
    fn names_of_host_collectives() {
        assert!(is_instruction("all-reduce.12") && !is_instruction("all-reduce-simplifier"));
        assert!(is_process_group_call("gloo:all_reduce") && !is_process_group_call("aten::add"));
        for name in ["gloo:all_reduce", "psum.7", "all-gather.1", "ncclKernel_x"] {
            assert!(may_be_collective(name), "{name}");
        }
        assert!(!may_be_collective("aten::add") && !may_be_collective("psummary"));
    }

    #[test]
    fn shapes_are_read_in_both_spellings() {
        for key in ["Input Dims", "Input dims"] {
            assert_eq!(
                COLLECTIVE_ARGS.find(key.as_bytes()),
                Some(key),
                "is asked for"
            );
            let mut args = CollectiveArgs::default();
            args.take(key, ArgValue::Json("[[4, 8], []]"));
            assert_eq!(args.dims, Some(32), "{key}");
        }
    }
}
