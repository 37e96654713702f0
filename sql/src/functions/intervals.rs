//! Sets of intervals as values: sorted lists of half-open intervals that neither overlap nor touch.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;

use super::arrays;

/// Start and end.
pub(super) type Interval = (i64, i64);
/// An operation on two sets.
type Combine = fn(&[Interval], &[Interval]) -> Vec<Interval>;
/// An operation on a set and a range.
type Cut = fn(&[Interval], Interval) -> Vec<Interval>;
/// A figure of a set.
type Figure = fn(&[Interval]) -> i64;

fn fields() -> Fields {
    Fields::from(vec![
        Field::new("start_ps", DataType::Int64, true),
        Field::new("end_ps", DataType::Int64, true),
    ])
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Struct(fields()), true))
}

pub(super) fn set_type() -> DataType {
    DataType::List(item())
}

pub(super) fn register(context: &SessionContext) {
    let pairs: [(&str, Combine); 3] = [
        ("intervals_and", and),
        ("intervals_or", |a, b| merged([a, b].concat())),
        ("intervals_minus", minus),
    ];
    for (name, combine) in pairs {
        let function = move |args: &[ColumnarValue]| {
            let arrays = arrays(args)?;
            let rows = (0..arrays[0].len()).map(|row| {
                Ok(Some(combine(
                    &set_at(&arrays[0], row)?,
                    &set_at(&arrays[1], row)?,
                )))
            });
            lists(rows)
        };
        context.register_udf(create_udf(
            name,
            vec![set_type(), set_type()],
            set_type(),
            Volatility::Immutable,
            Arc::new(function),
        ));
    }
    let ranges: [(&str, Cut); 2] = [
        ("intervals_clip", |a, range| and(a, &[range])),
        ("intervals_gaps", |a, range| minus(&[range], a)),
    ];
    for (name, cut) in ranges {
        let function = move |args: &[ColumnarValue]| {
            let arrays = arrays(args)?;
            let (from, to) = (
                arrays[1].as_primitive::<Int64Type>(),
                arrays[2].as_primitive::<Int64Type>(),
            );
            let rows = (0..arrays[0].len()).map(|row| {
                if from.is_null(row) || to.is_null(row) {
                    return Ok(None);
                }
                let range = (from.value(row), to.value(row).max(from.value(row)));
                Ok(Some(cut(&set_at(&arrays[0], row)?, range)))
            });
            lists(rows)
        };
        context.register_udf(create_udf(
            name,
            vec![set_type(), DataType::Int64, DataType::Int64],
            set_type(),
            Volatility::Immutable,
            Arc::new(function),
        ));
    }
    let figures: [(&str, Figure); 2] = [
        ("intervals_length", length),
        ("intervals_longest", |set| {
            set.iter()
                .map(|one| one.1.saturating_sub(one.0))
                .max()
                .unwrap_or(0)
        }),
    ];
    for (name, figure) in figures {
        let function = move |args: &[ColumnarValue]| {
            let arrays = arrays(args)?;
            let rows = (0..arrays[0].len()).map(|row| Ok(Some(figure(&set_at(&arrays[0], row)?))));
            let rows = rows.collect::<Result<Int64Array>>()?;
            Ok(ColumnarValue::Array(Arc::new(rows)))
        };
        context.register_udf(create_udf(
            name,
            vec![set_type()],
            DataType::Int64,
            Volatility::Immutable,
            Arc::new(function),
        ));
    }
}

/// Returns the set in a row; a null is the empty set, so that a group without intervals needs no case.
pub(super) fn set_at(array: &ArrayRef, row: usize) -> Result<Vec<Interval>> {
    let lists = array.as_list_opt::<i32>();
    let lists =
        lists.ok_or_else(|| DataFusionError::Execution("no set of intervals".to_owned()))?;
    if lists.is_null(row) {
        return Ok(Vec::new());
    }
    intervals_of(&lists.value(row))
}

fn intervals_of(values: &ArrayRef) -> Result<Vec<Interval>> {
    let wrong = || DataFusionError::Execution("no set of intervals".to_owned());
    let parts = values.as_struct_opt().ok_or_else(wrong)?;
    let column = |at: usize| {
        let column = parts.columns().get(at)?;
        column.as_primitive_opt::<Int64Type>()
    };
    let (start, end) = (column(0).ok_or_else(wrong)?, column(1).ok_or_else(wrong)?);
    let all = start.iter().zip(end);
    Ok(all
        .filter_map(|(start, end)| Some((start?, end?)))
        .collect())
}

/// Returns the union, sorted and merged; empty intervals are left out.
pub(super) fn merged(mut all: Vec<Interval>) -> Vec<Interval> {
    all.retain(|one| one.0 < one.1);
    all.sort_unstable();
    let mut set: Vec<Interval> = Vec::new();
    for one in all {
        match set.last_mut() {
            Some(last) if one.0 <= last.1 => last.1 = last.1.max(one.1),
            _ => set.push(one),
        }
    }
    set
}

fn and(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut at_a, mut at_b) = (0, 0);
    let mut set = Vec::new();
    while let (Some(one), Some(other)) = (a.get(at_a), b.get(at_b)) {
        let common = (one.0.max(other.0), one.1.min(other.1));
        if common.0 < common.1 {
            set.push(common);
        }
        if one.1 <= other.1 {
            at_a += 1;
        } else {
            at_b += 1;
        }
    }
    set
}

fn minus(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut set = Vec::new();
    let mut first = 0;
    for (start, end) in a.iter().copied() {
        let mut from = start;
        while b.get(first).is_some_and(|cut| cut.1 <= from) {
            first += 1;
        }
        let mut at = first;
        while let Some(cut) = b.get(at).filter(|cut| cut.0 < end) {
            if cut.0 > from {
                set.push((from, cut.0));
            }
            from = from.max(cut.1);
            at += 1;
        }
        if from < end {
            set.push((from, end));
        }
    }
    set
}

pub(super) fn length(set: &[Interval]) -> i64 {
    let lengths = set.iter().map(|one| one.1.saturating_sub(one.0));
    lengths.fold(0, i64::saturating_add)
}

/// Returns the most intervals open at once; one that ends where another begins is closed.
pub(super) fn open_most(all: &[Interval]) -> i64 {
    let starts = all.iter().filter(|one| one.0 < one.1).map(|one| (one.0, 1));
    let ends = all
        .iter()
        .filter(|one| one.0 < one.1)
        .map(|one| (one.1, -1));
    let mut changes: Vec<(i64, i64)> = starts.chain(ends).collect();
    changes.sort_unstable();
    let mut open = 0;
    changes.iter().fold(0, |most, (_, change)| {
        open += change;
        most.max(open)
    })
}

pub(super) fn list(rows: &[Option<Vec<Interval>>]) -> Result<ListArray> {
    let offsets =
        OffsetBuffer::from_lengths(rows.iter().map(|row| row.as_ref().map_or(0, Vec::len)));
    let valid = rows.iter().map(Option::is_some).collect::<Vec<_>>();
    let all = || rows.iter().flatten().flatten();
    let starts = Int64Array::from_iter_values(all().map(|one| one.0));
    let ends = Int64Array::from_iter_values(all().map(|one| one.1));
    let values = StructArray::try_new(fields(), vec![Arc::new(starts), Arc::new(ends)], None)?;
    Ok(ListArray::try_new(
        item(),
        offsets,
        Arc::new(values),
        Some(valid.into()),
    )?)
}

fn lists(rows: impl Iterator<Item = Result<Option<Vec<Interval>>>>) -> Result<ColumnarValue> {
    let rows = rows.collect::<Result<Vec<_>>>()?;
    Ok(ColumnarValue::Array(Arc::new(list(&rows)?)))
}
