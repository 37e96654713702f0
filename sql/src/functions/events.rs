//! Questions about single events of the open runs.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array, Int64Array, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use regex::Regex;
use stepscope_model::{ArgValue, Time};
use stepscope_store::EventId;

use super::arrays;
use crate::json_args::text_of;
use crate::run_data::RunData;

pub(super) type Runs = Arc<[Arc<RunData>]>;

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
    context.register_udf(ancestor_function(runs));
    let own = Arc::clone(runs);
    let root = move |args: &[ColumnarValue]| {
        let arrays = arrays(args)?;
        let ids = arrays[0].as_primitive::<Int64Type>().iter();
        let found = ids.map(|id| ancestor(&own, id?, 0));
        Ok(ColumnarValue::Array(Arc::new(
            found.collect::<Int64Array>(),
        )))
    };
    context.register_udf(create_udf(
        "root",
        vec![DataType::Int64],
        DataType::Int64,
        stable,
        Arc::new(root),
    ));
    let own = Arc::clone(runs);
    let named = move |args: &[ColumnarValue]| {
        let arrays = arrays(args)?;
        let ids = arrays[0].as_primitive::<Int64Type>().iter();
        let mut last: Option<(&str, Regex)> = None;
        let mut found = Vec::with_capacity(arrays[0].len());
        for (id, pattern) in ids.zip(arrays[1].as_string_view()) {
            let (Some(id), Some(pattern)) = (id, pattern) else {
                found.push(None);
                continue;
            };
            let regex = match last.take() {
                Some((known, regex)) if known == pattern => regex,
                _ => expression(pattern)?,
            };
            found.push(ancestor_named(&own, id, &regex));
            last = Some((pattern, regex));
        }
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(found))))
    };
    context.register_udf(create_udf(
        "ancestor_named",
        vec![DataType::Int64, DataType::Utf8View],
        DataType::Int64,
        stable,
        Arc::new(named),
    ));
    let own = Arc::clone(runs);
    let step = move |args: &[ColumnarValue]| {
        let arrays = arrays(args)?;
        let hosts = arrays[0].as_string_view().iter();
        let times = arrays[1].as_primitive::<Int64Type>().iter();
        let found = hosts.zip(times).map(|(host, at)| {
            let (host, at) = (host?, Time::from_ps(at?));
            own.iter().find_map(|run| run.step_of_host(host, at))
        });
        Ok(ColumnarValue::Array(Arc::new(
            found.collect::<Int64Array>(),
        )))
    };
    context.register_udf(create_udf(
        "step_at",
        vec![DataType::Utf8View, DataType::Int64],
        DataType::Int64,
        stable,
        Arc::new(step),
    ));
}

/// Returns the function `ancestor`.
pub(super) fn ancestor_function(runs: &Runs) -> ScalarUDF {
    let own = Arc::clone(runs);
    let function = move |args: &[ColumnarValue]| {
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
    create_udf(
        "ancestor",
        vec![DataType::Int64, DataType::Int64],
        DataType::Int64,
        Volatility::Stable,
        Arc::new(function),
    )
}

fn expression(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        let cause = format!("cannot read the regular expression '{pattern}': {error}");
        DataFusionError::Execution(cause)
    })
}

/// Returns the run and the event of an id.
pub(super) fn event(runs: &Runs, id: i64) -> Option<(&RunData, EventId)> {
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
pub(super) fn chain(run: &RunData, id: EventId) -> Option<Vec<(EventId, &str, u16)>> {
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

fn ancestor_named(runs: &Runs, id: i64, regex: &Regex) -> Option<i64> {
    let (run, id) = event(runs, id)?;
    let chain = chain(run, id)?;
    let found = chain.iter().skip(1).find(|slice| regex.is_match(slice.1))?;
    Some(run.id(found.0))
}
