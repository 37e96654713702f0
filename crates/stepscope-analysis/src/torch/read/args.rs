//! Arguments of events, read on several threads.

use stepscope_model::{ArgKeys, ArgValue, Cancelled, TrackId};

use super::{Class, FileReader, Raw, by_place, whole};
use crate::parallel::{self, Cancel};
use crate::torch::flops;
use crate::torch::texts::Texts;

/// What [`Args`] takes from the arguments, shapes left out.
const PLAIN: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "correlation",
    "Ev Idx",
    "Sequence number",
    "Fwd thread id",
    "Overload name",
    "Overload Name",
    "Call stack",
    "Call Stack",
]);

/// The same with shapes.
const WITH_SHAPES: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "correlation",
    "Ev Idx",
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

/// What the arguments of one event say. Texts are numbers of [`Texts`], 0 for the empty one.
#[derive(Clone, Copy)]
pub(super) struct Args {
    /// [`NO_ID`] without one, as the next.
    pub(super) external: i64,
    pub(super) correlation: i64,
    pub(super) sequence: i64,
    pub(super) forward_thread: i64,
    pub(super) flops: u64,
    pub(super) order: u32,
    pub(super) dims: u32,
    pub(super) overload: u32,
    /// [`NO_STACK`] when it is not spelled out.
    pub(super) stack: u32,
}

pub(super) const NO_ID: i64 = i64::MIN;
pub(super) const NO_STACK: u32 = u32::MAX;

impl Default for Args {
    fn default() -> Self {
        Self {
            external: NO_ID,
            correlation: NO_ID,
            sequence: -1,
            forward_thread: 0,
            flops: 0,
            order: u32::MAX,
            dims: 0,
            overload: 0,
            stack: NO_STACK,
        }
    }
}

impl Args {
    pub(super) fn external(&self) -> Option<i64> {
        Some(self.external).filter(|id| *id != NO_ID)
    }

    pub(super) fn correlation(&self) -> Option<i64> {
        Some(self.correlation).filter(|id| *id != NO_ID)
    }
}

/// What one thread has read: arguments of events one after the other, by the place of the first.
#[derive(Default)]
struct Reading {
    texts: Texts,
    parts: Vec<(usize, Vec<Args>)>,
    concrete: String,
}

impl FileReader<'_> {
    /// Reads arguments: of all events, or only of those whose order they decide.
    pub(super) fn fill_args(
        &mut self,
        raw: &mut [Raw],
        all: bool,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let mut tied = Vec::new();
        if !all {
            let mut order: Vec<usize> = (0..raw.len()).collect();
            order.sort_by(|a, b| by_place(&raw[*a].event, &raw[*b].event));
            for pair in order.windows(2) {
                if raw[pair[0]].event.same_place(&raw[pair[1]].event) {
                    tied.extend_from_slice(pair);
                }
            }
            tied.dedup();
        }
        let count = if all { raw.len() } else { tied.len() };
        let place = |number: usize| if all { number } else { tied[number] };
        let (read, this) = (&*raw, &*self);
        let pieces = parallel::pieces(std::iter::once((TrackId(0), 0..count)));
        let found = parallel::scan(&pieces, cancel, Reading::default, |reading, piece| {
            let numbers = piece.indexes.clone();
            let args = numbers
                .map(|number| this.args(&read[place(number)], reading))
                .collect();
            reading.parts.push((piece.indexes.start, args));
        })?;
        for reading in found {
            let texts: Vec<u32> = reading
                .texts
                .all()
                .map(|text| self.out.texts.id(text))
                .collect();
            let own = |text: u32| texts.get(text as usize).copied().unwrap_or(text);
            for (from, args) in reading.parts {
                for (number, args) in (from..).zip(args) {
                    raw[place(number)].args = Args {
                        dims: own(args.dims),
                        overload: own(args.overload),
                        stack: own(args.stack),
                        ..args
                    };
                }
            }
        }
        Ok(())
    }

    fn args(&self, raw: &Raw, reading: &mut Reading) -> Args {
        let mut args = Args::default();
        let frontend = matches!(raw.class, Class::Frontend { .. });
        let shapes = frontend && (self.wanted.input_shape || self.flops);
        let keys = if shapes { WITH_SHAPES } else { PLAIN };
        let Reading {
            texts, concrete, ..
        } = reading;
        concrete.clear();
        let mut id_of = |text: Option<&str>| text.map_or(0, |text| texts.id(text));
        let _ = self
            .trace
            .args_of(raw.event.event, keys, &mut |key, value| match key {
                "External id" | "external id" => args.external = whole(value).unwrap_or(NO_ID),
                "correlation" => args.correlation = whole(value).unwrap_or(NO_ID),
                "Ev Idx" => {
                    let order = whole(value).and_then(|order| u32::try_from(order).ok());
                    args.order = order.unwrap_or(u32::MAX);
                }
                "Sequence number" => args.sequence = whole(value).unwrap_or(-1),
                "Fwd thread id" => args.forward_thread = whole(value).unwrap_or(0),
                "Input Dims" | "Input dims" => args.dims = id_of(json(value)),
                "Concrete Inputs" => {
                    concrete.clear();
                    concrete.push_str(json(value).unwrap_or_default());
                }
                "Overload name" | "Overload Name" => args.overload = id_of(text(value)),
                "Call stack" | "Call Stack" if frontend => args.stack = id_of(text(value)),
                _ => {}
            });
        if (self.flops || self.out.with_flops) && args.dims != 0 {
            let name = self.out.texts.get(raw.event.name);
            args.flops = flops::of(name, texts.get(args.dims), concrete);
        }
        args
    }
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
