//! What the arguments of operators say, read on several threads.

use rustc_hash::FxHashMap;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId};
use stepscope_store::Trace;

use super::links::NO_ID;
use super::{Shared, whole};
use crate::parallel::{self, Cancel};
use crate::torch::averages::Grouping;
use crate::torch::flops;
use crate::torch::lane::{self, Lane};
use crate::torch::texts::Texts;

const SHAPES: ArgKeys = ArgKeys::new(&["External id", "external id", "Input Dims", "Input dims"]);
const WITH_FLOPS: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Input Dims",
    "Input dims",
    "Concrete Inputs",
]);
const OVERLOAD: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Overload name",
    "Overload Name",
]);
const STACK: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Sequence number",
    "Fwd thread id",
    "Call stack",
    "Call Stack",
]);
const ALL: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Sequence number",
    "Fwd thread id",
    "Input Dims",
    "Input dims",
    "Concrete Inputs",
    "Overload name",
    "Overload Name",
    "Call stack",
    "Call Stack",
]);

/// In place of a stack that is not spelled out.
pub(super) const NO_STACK: u32 = u32::MAX;

/// In place of the sequence number of an operator that no gradient is for: torch's -1.
pub(super) const NO_SEQUENCE: u32 = u32::MAX;

/// The lower half of a number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within one recording, numbers that count are told apart by it"
)]
fn low(number: i64) -> u32 {
    number as u32
}

/// What the arguments of one event say. Texts are numbers of [`Texts`], 0 for the empty one.
#[derive(Clone, Copy)]
struct Args {
    dims: u32,
    overload: u32,
    /// [`NO_STACK`] when it is not spelled out.
    stack: u32,
    sequence: (u32, u32),
    external: i64,
}

const NOTHING: Args = Args {
    dims: 0,
    overload: 0,
    stack: NO_STACK,
    sequence: (NO_SEQUENCE, 0),
    external: NO_ID,
};

/// What one thread has read: of pieces of lanes.
#[derive(Default)]
struct Reading {
    texts: Texts,
    parts: Vec<Part>,
    concrete: String,
    /// Operations by name and shapes, where nothing else decides.
    flops: FxHashMap<(NameId, u32), u64>,
}

/// The columns of a piece; those that are not wanted are empty.
#[derive(Default)]
struct Part {
    lane: usize,
    from: usize,
    dims: Vec<u32>,
    overload: Vec<u32>,
    stack: Vec<u32>,
    sequence: Vec<(u32, u32)>,
    external: Vec<i64>,
    flops: Vec<(u32, u64)>,
}

/// Fills what is grouped by, and operations where they are counted. The column of stacks gets those
/// that the file spells out.
pub(super) fn fill(
    trace: &Trace,
    wanted: Grouping,
    with_flops: bool,
    lanes: &mut [Lane<'_>],
    shared: &mut Shared,
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    if !(wanted.needs_args() || with_flops) {
        return Ok(());
    }
    let read = &*lanes;
    // Asked for when work of devices is linked, of many operators more than once.
    let with_external = wanted.needs_args() && read.iter().any(|lane| lane.has_device);
    let pieces = lane::pieces(read, |lane| lane.has_host);
    let found = parallel::scan(&pieces, cancel, Reading::default, |reading, piece| {
        let lane = &read[piece.track.index()];
        let mut part = Part {
            lane: piece.track.index(),
            from: piece.indexes.start,
            ..Part::default()
        };
        for at in piece.indexes.clone() {
            let what = lane.what[at];
            let name = lane.name(at);
            let counted = with_flops && what.is_frontend() && flops::counts(trace.name(name));
            let concrete = counted && flops::needs_values(trace.name(name));
            let args = if what.is_frontend() && (wanted.needs_args() || counted) {
                args(trace, lane, at, wanted, (counted, concrete), reading)
            } else {
                NOTHING
            };
            if wanted.input_shape {
                part.dims.push(args.dims);
            }
            if wanted.overload_name {
                part.overload.push(args.overload);
            }
            if wanted.stack > 0 {
                part.stack.push(args.stack);
                part.sequence.push(args.sequence);
            }
            if with_external {
                part.external.push(args.external);
            }
            if counted && args.dims != 0 {
                let dims = reading.texts.get(args.dims);
                let count = || flops::of(trace.name(name), dims, &reading.concrete);
                let flops = if concrete {
                    count()
                } else {
                    *reading.flops.entry((name, args.dims)).or_insert_with(count)
                };
                if flops > 0 {
                    part.flops
                        .push((u32::try_from(at).unwrap_or(u32::MAX), flops));
                }
            }
        }
        reading.parts.push(part);
    })?;
    let mut parts = Vec::new();
    // By the shapes as the file spells them.
    let mut shapes: FxHashMap<Box<str>, u32> = FxHashMap::default();
    for reading in found {
        let own: Vec<u32> = reading
            .texts
            .all()
            .map(|text| shared.texts.id(text))
            .collect();
        let shown: Vec<u32> = if wanted.input_shape {
            let mut shown = |dims: &str| {
                if let Some(shapes) = shapes.get(dims) {
                    return *shapes;
                }
                let text = super::as_python(dims);
                let number = match text.as_str() {
                    "[]" => 0,
                    shapes => shared.shapes.id(shapes),
                };
                shapes.insert(dims.into(), number);
                number
            };
            reading.texts.all().map(&mut shown).collect()
        } else {
            Vec::new()
        };
        for mut part in reading.parts {
            for (column, numbers) in [
                (&mut part.dims, &shown),
                (&mut part.overload, &own),
                (&mut part.stack, &own),
            ] {
                for text in column {
                    *text = numbers.get(*text as usize).copied().unwrap_or(*text);
                }
            }
            parts.push(part);
        }
    }
    parts.sort_unstable_by_key(|part| (part.lane, part.from));
    for part in parts {
        let lane = &mut lanes[part.lane];
        lane.shapes.extend(part.dims);
        lane.overload.extend(part.overload);
        lane.stack.extend(part.stack);
        lane.sequence.extend(part.sequence);
        lane.external.extend(part.external);
        lane.flops.extend(part.flops);
    }
    Ok(())
}

fn args(
    trace: &Trace,
    lane: &Lane<'_>,
    at: usize,
    wanted: Grouping,
    (flops, concrete): (bool, bool),
    reading: &mut Reading,
) -> Args {
    let mut args = NOTHING;
    let keys = match (
        wanted.input_shape || flops,
        wanted.overload_name,
        wanted.stack > 0,
    ) {
        (true, false, false) if concrete => WITH_FLOPS,
        (true, false, false) => SHAPES,
        (false, true, false) => OVERLOAD,
        (false, false, true) => STACK,
        _ => ALL,
    };
    let Reading {
        texts,
        concrete: values,
        ..
    } = reading;
    values.clear();
    lane.args(trace, at, keys, &mut |key, value| match key {
        "External id" | "external id" => args.external = whole(value).unwrap_or(NO_ID),
        "Sequence number" => args.sequence.0 = whole(value).map_or(NO_SEQUENCE, low),
        "Fwd thread id" => args.sequence.1 = whole(value).map_or(0, low),
        "Input Dims" | "Input dims" => args.dims = json(value).map_or(0, |dims| texts.id(dims)),
        "Concrete Inputs" => {
            values.clear();
            values.push_str(json(value).unwrap_or_default());
        }
        "Overload name" | "Overload Name" => {
            args.overload = text(value).map_or(0, |text| texts.id(text));
        }
        "Call stack" | "Call Stack" => args.stack = text(value).map_or(0, |text| texts.id(text)),
        _ => {}
    });
    args
}

fn text(value: ArgValue<'_>) -> Option<&str> {
    match value {
        ArgValue::Str(text) => Some(text),
        _ => None,
    }
}

fn json(value: ArgValue<'_>) -> Option<&str> {
    match value {
        ArgValue::Json(text) | ArgValue::Str(text) => Some(text),
        _ => None,
    }
}
