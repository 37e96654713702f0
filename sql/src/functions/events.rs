//! Questions about single events of the open runs.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array, Int64Array, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use stepscope_model::ArgValue;
use stepscope_store::EventId;

use super::arrays;
use crate::json_args::text_of;
use crate::run_data::RunData;

type Runs = Arc<[Arc<RunData>]>;

pub(super) fn register(context: &SessionContext, runs: &Runs) {
    let own = Arc::clone(runs);
    let text = move |args: &[ColumnarValue]| {
        let values: StringViewArray = each_arg(&own, args, |value| Some(text_of(&value)))?
            .into_iter()
            .collect();
        Ok(ColumnarValue::Array(Arc::new(values)))
    };
    let own = Arc::clone(runs);
    let int = move |args: &[ColumnarValue]| {
        let values: Int64Array = each_arg(&own, args, whole)?.into_iter().collect();
        Ok(ColumnarValue::Array(Arc::new(values)))
    };
    let own = Arc::clone(runs);
    let double = move |args: &[ColumnarValue]| {
        let values: Float64Array = each_arg(&own, args, number)?.into_iter().collect();
        Ok(ColumnarValue::Array(Arc::new(values)))
    };
    let id_and_key = || vec![DataType::Int64, DataType::Utf8View];
    // Stable: the same event has the same arguments for as long as the run is open.
    let stable = Volatility::Stable;
    context.register_udf(create_udf(
        "arg",
        id_and_key(),
        DataType::Utf8View,
        stable,
        Arc::new(text),
    ));
    context.register_udf(create_udf(
        "arg_int",
        id_and_key(),
        DataType::Int64,
        stable,
        Arc::new(int),
    ));
    context.register_udf(create_udf(
        "arg_double",
        id_and_key(),
        DataType::Float64,
        stable,
        Arc::new(double),
    ));
    let own = Arc::clone(runs);
    let stack = move |args: &[ColumnarValue]| {
        let arrays = arrays(args)?;
        let ids = arrays[0].as_primitive::<Int64Type>().iter();
        let texts = ids.map(|id| stack(&own, id?));
        Ok(ColumnarValue::Array(Arc::new(
            texts.collect::<StringViewArray>(),
        )))
    };
    context.register_udf(create_udf(
        "stack",
        vec![DataType::Int64],
        DataType::Utf8View,
        stable,
        Arc::new(stack),
    ));
    let own = Arc::clone(runs);
    let ancestor = move |args: &[ColumnarValue]| {
        let arrays = arrays(args)?;
        let ids = arrays[0].as_primitive::<Int64Type>().iter();
        let depths = arrays[1].as_primitive::<Int64Type>().iter();
        let found = ids
            .zip(depths)
            .map(|(id, depth)| ancestor(&own, id?, depth?));
        Ok(ColumnarValue::Array(Arc::new(
            found.collect::<Int64Array>(),
        )))
    };
    context.register_udf(create_udf(
        "ancestor",
        vec![DataType::Int64, DataType::Int64],
        DataType::Int64,
        stable,
        Arc::new(ancestor),
    ));
}

/// Returns the run and the event of an id.
fn event(runs: &Runs, id: i64) -> Option<(&RunData, EventId)> {
    let run = runs.get(usize::try_from(id >> 32).ok()?)?;
    Some((run, EventId(u32::try_from(id & 0xffff_ffff).ok()?)))
}

/// Reads an argument of each event; the first of several with the key.
fn each_arg<T>(
    runs: &Runs,
    args: &[ColumnarValue],
    read: impl Fn(ArgValue<'_>) -> Option<T>,
) -> Result<Vec<Option<T>>> {
    let arrays = arrays(args)?;
    let ids = arrays[0].as_primitive::<Int64Type>();
    let keys = arrays[1].as_string_view();
    let rows = (0..ids.len()).map(|row| {
        if ids.is_null(row) || keys.is_null(row) {
            return None;
        }
        let (run, id) = event(runs, ids.value(row))?;
        let name = keys.value(row);
        let mut found = None;
        let visit = &mut |key: &str, value: ArgValue<'_>| {
            if key == name && found.is_none() {
                found = read(value);
            }
        };
        // An argument that cannot be read is null.
        run.trace().args(id, visit).ok().and(found)
    });
    Ok(rows.collect())
}

fn whole(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::Int(value) => Some(value),
        ArgValue::Uint(value) => i64::try_from(value).ok(),
        ArgValue::Bool(value) => Some(value.into()),
        ArgValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn number(value: ArgValue<'_>) -> Option<f64> {
    match value {
        ArgValue::Double(value) => Some(value),
        ArgValue::Uint(value) => Some(value as f64),
        ArgValue::Str(text) => text.trim().parse().ok(),
        other => whole(other).map(|value| value as f64),
    }
}

/// Lists the slice and those around it, innermost first.
fn chain(run: &RunData, id: EventId) -> Option<Vec<(EventId, &str, u16)>> {
    let trace = run.trace();
    let (track, index) = trace.place_of_slice(id)?;
    let slices = trace.slices(track);
    let mut found = Vec::new();
    let mut at = index;
    // Slices nest less than 4,096 deep; the bound holds in a damaged image.
    while found.len() < 4_096 {
        let (Some(name), Some(depth)) = (slices.name.get(at), slices.depth.get(at)) else {
            break;
        };
        found.push((slices.id(at), trace.name(*name), *depth));
        at = slices
            .parent
            .get(at)
            .map_or(usize::MAX, |parent| *parent as usize);
    }
    Some(found)
}

fn stack(runs: &Runs, id: i64) -> Option<String> {
    let (run, id) = event(runs, id)?;
    let names = chain(run, id)?;
    let names: Vec<&str> = names.iter().rev().map(|slice| slice.1).collect();
    Some(names.join(" ; "))
}

fn ancestor(runs: &Runs, id: i64, depth: i64) -> Option<i64> {
    let (run, id) = event(runs, id)?;
    let chain = chain(run, id)?;
    let found = chain.iter().find(|slice| i64::from(slice.2) == depth)?;
    Some(run.id(found.0))
}
