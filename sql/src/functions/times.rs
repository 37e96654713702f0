//! Times for people, and names.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array, Int64Array, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use stepscope_engine::report::demangle::demangled;
use stepscope_engine::report::report::number_format::duration;
use stepscope_engine::report::report::short_symbol_name;
use stepscope_model::{SliceKind, TrackKind};

use super::arrays;

/// A function of a text.
type Convert = fn(&str) -> String;

pub(super) fn register(context: &SessionContext) {
    for (name, ps) in [("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)] {
        let convert = move |args: &[ColumnarValue]| {
            let arrays = arrays(args)?;
            let values = arrays[0].as_primitive::<Float64Type>();
            let values: Float64Array = values.unary(|value| value / ps);
            Ok(ColumnarValue::Array(Arc::new(values)))
        };
        context.register_udf(create_udf(
            name,
            vec![DataType::Float64],
            DataType::Float64,
            Volatility::Immutable,
            Arc::new(convert),
        ));
    }
    context.register_udf(create_udf(
        "human",
        vec![DataType::Float64],
        DataType::Utf8View,
        Volatility::Immutable,
        Arc::new(human),
    ));
    context.register_udf(create_udf(
        "ps",
        vec![DataType::Utf8View],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(ps),
    ));
    context.register_udf(create_udf(
        "overlap",
        vec![DataType::Int64; 4],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(overlap),
    ));
    context.register_udf(create_udf(
        "kind_of",
        vec![DataType::Utf8View; 2],
        DataType::Utf8View,
        Volatility::Immutable,
        Arc::new(kind_of),
    ));
    let texts: [(&str, Convert); 2] = [
        ("short", |name| short_symbol_name(name).into_owned()),
        ("demangle", |name| {
            demangled(name).unwrap_or_else(|| name.to_owned())
        }),
    ];
    for (name, convert) in texts {
        let convert = move |args: &[ColumnarValue]| {
            let arrays = arrays(args)?;
            let names = arrays[0].as_string_view().iter();
            let names = names.map(|name| name.map(convert));
            Ok(ColumnarValue::Array(Arc::new(
                names.collect::<StringViewArray>(),
            )))
        };
        context.register_udf(create_udf(
            name,
            vec![DataType::Utf8View],
            DataType::Utf8View,
            Volatility::Immutable,
            Arc::new(convert),
        ));
    }
}

/// Returns the kinds of names and categories of slices of threads.
fn kind_of(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = arrays(args)?;
    let names = arrays[0].as_string_view().iter();
    let categories = arrays[1].as_string_view().iter();
    let kinds = names.zip(categories).map(|(name, category)| {
        let kind = SliceKind::from_name(name?, category.unwrap_or_default(), TrackKind::Thread);
        Some(kind.label())
    });
    Ok(ColumnarValue::Array(Arc::new(
        kinds.collect::<StringViewArray>(),
    )))
}

fn human(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = arrays(args)?;
    let values = arrays[0].as_primitive::<Float64Type>().iter();
    let texts = values.map(|value| value.map(|ps| duration(ps / 1e3)));
    Ok(ColumnarValue::Array(Arc::new(
        texts.collect::<StringViewArray>(),
    )))
}

fn ps(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = arrays(args)?;
    let texts = arrays[0].as_string_view().iter();
    let values = texts.map(|text| text.map(picoseconds).transpose());
    let values = values.collect::<Result<Int64Array>>()?;
    Ok(ColumnarValue::Array(Arc::new(values)))
}

/// Reads a time such as `1.5 ms`.
fn picoseconds(text: &str) -> Result<i64> {
    let text = text.trim();
    let digits = text
        .find(|letter: char| !(letter.is_ascii_digit() || ".+-".contains(letter)))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let ps = match unit.trim() {
        "ps" => 1.0,
        "ns" => 1e3,
        "us" | "µs" => 1e6,
        "ms" => 1e9,
        "s" => 1e12,
        "min" => 60e12,
        _ => 0.0,
    };
    let number: Option<f64> = number.parse().ok();
    #[allow(clippy::cast_possible_truncation, reason = "saturates beyond 106 days")]
    match number.filter(|_| ps > 0.0) {
        Some(number) => Ok((number * ps).round() as i64),
        None => Err(DataFusionError::Execution(format!(
            "cannot read the time '{text}': it is a number and a unit\nhelp: write '1.5 ms'; units are ps, ns, us, ms, s, min"
        ))),
    }
}

fn overlap(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = arrays(args)?;
    let [a, a_len, b, b_len] = [0, 1, 2, 3].map(|at| arrays[at].as_primitive::<Int64Type>());
    let rows = (0..a.len()).map(|row| {
        let all = [a, a_len, b, b_len];
        if all.iter().any(|array| array.is_null(row)) {
            return None;
        }
        let [a, a_len, b, b_len] = all.map(|array| array.value(row));
        let end = a.saturating_add(a_len).min(b.saturating_add(b_len));
        Some(end.saturating_sub(a.max(b)).max(0))
    });
    Ok(ColumnarValue::Array(Arc::new(rows.collect::<Int64Array>())))
}
