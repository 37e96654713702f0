//! Filters that a scan of events evaluates itself: on tracks, on distinct names, and on sorted columns.

use std::ops::Range;

use datafusion::arrow::array::{Array, BooleanArray, RecordBatch};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, ScalarValue, cast::as_boolean_array};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Operator};

use crate::run_data::RunData;

/// Columns by which the events of a track are sorted.
const SORTED_COLUMNS: &[&str] = &["start_ps", "at_ps", "id"];

/// How a scan evaluates a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Once per track.
    Track,
    /// Once per distinct name.
    Name,
    /// By a search in the sorted column.
    Sorted,
}

/// Returns how a scan evaluates a filter; `None` if it cannot. `track_columns` are the same for all events of a
/// track.
pub(crate) fn level(expr: &Expr, track_columns: &[&str]) -> Option<Level> {
    if expr.is_volatile() {
        return None;
    }
    let columns = expr.column_refs();
    let within = |known: &[&str]| columns.iter().all(|column| known.contains(&column.name()));
    if columns.is_empty() {
        None
    } else if within(track_columns) {
        Some(Level::Track)
    } else if within(&["name"]) {
        Some(Level::Name)
    } else {
        bounds(expr).map(|_| Level::Sorted)
    }
}

/// Returns the sorted column that a comparison limits, and the values that remain.
fn bounds(expr: &Expr) -> Option<(&str, Range<i128>)> {
    const ALL: Range<i128> = i128::MIN..i128::MAX;
    match expr {
        Expr::BinaryExpr(binary) => {
            let (column, value, flipped) = match (&*binary.left, &*binary.right) {
                (Expr::Column(column), Expr::Literal(value, _)) => (column, value, false),
                (Expr::Literal(value, _), Expr::Column(column)) => (column, value, true),
                _ => return None,
            };
            let value = whole(value)?;
            let operator = if flipped {
                binary.op.swap()?
            } else {
                binary.op
            };
            let range = match operator {
                Operator::Eq => value..value + 1,
                Operator::Lt => ALL.start..value,
                Operator::LtEq => ALL.start..value + 1,
                Operator::Gt => value + 1..ALL.end,
                Operator::GtEq => value..ALL.end,
                _ => return None,
            };
            sorted(&column.name).map(|column| (column, range))
        }
        Expr::Between(between) if !between.negated => {
            let Expr::Column(column) = &*between.expr else {
                return None;
            };
            let (Expr::Literal(low, _), Expr::Literal(high, _)) = (&*between.low, &*between.high)
            else {
                return None;
            };
            let range = whole(low)?..whole(high)? + 1;
            sorted(&column.name).map(|column| (column, range))
        }
        _ => None,
    }
}

fn sorted(column: &str) -> Option<&str> {
    SORTED_COLUMNS.contains(&column).then_some(column)
}

fn whole(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int64(Some(value)) => Some((*value).into()),
        ScalarValue::Int32(Some(value)) => Some((*value).into()),
        _ => None,
    }
}

/// The filters of one scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    by_track: Vec<Expr>,
    by_name: Vec<Expr>,
    ranges: Vec<(String, Range<i128>)>,
}

impl Filters {
    /// Sorts the filters of a scan by level.
    pub(crate) fn new(filters: &[Expr], track_columns: &[&str]) -> Self {
        let mut found = Self::default();
        for filter in filters {
            match level(filter, track_columns) {
                Some(Level::Track) => found.by_track.push(filter.clone()),
                Some(Level::Name) => found.by_name.push(filter.clone()),
                Some(Level::Sorted) => {
                    if let Some((column, range)) = bounds(filter) {
                        found.ranges.push((column.to_owned(), range));
                    }
                }
                None => {}
            }
        }
        found
    }

    /// Returns the rows of a batch, one per track, that pass.
    pub(crate) fn tracks(&self, state: &dyn Session, tracks: &RecordBatch) -> Result<BooleanArray> {
        evaluate(state, &self.by_track, tracks)
    }

    /// Returns which names pass, by their ids; `None` if all do.
    pub(crate) fn names(&self, state: &dyn Session, run: &RunData) -> Result<Option<BooleanArray>> {
        if self.by_name.is_empty() {
            return Ok(None);
        }
        let names =
            RecordBatch::try_from_iter([("name", std::sync::Arc::new(run.names().clone()) as _)])?;
        evaluate(state, &self.by_name, &names).map(Some)
    }

    /// Returns the indexes of a track's events that pass the limits of sorted columns.
    pub(crate) fn range(
        &self,
        first_id: i64,
        len: usize,
        at: impl Fn(usize) -> i64,
    ) -> Range<usize> {
        let mut all = 0..len;
        for (column, range) in &self.ranges {
            let value = |index: usize| -> i128 {
                if column == "id" {
                    i128::from(first_id) + index as i128
                } else {
                    at(index).into()
                }
            };
            let begin = partition_point(len, |index| value(index) < range.start);
            let end = partition_point(len, |index| value(index) < range.end);
            all = all.start.max(begin)..all.end.min(end);
        }
        all.start..all.end.max(all.start)
    }
}

/// Returns the first index for which `before` is false.
fn partition_point(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = usize::midpoint(low, high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Evaluates filters, all of which must be true, on a batch.
fn evaluate(state: &dyn Session, filters: &[Expr], batch: &RecordBatch) -> Result<BooleanArray> {
    let mut pass = vec![true; batch.num_rows()];
    let schema = DFSchema::try_from(batch.schema())?;
    for filter in filters {
        let filter = unqualified(filter.clone())?;
        let expr = state.create_physical_expr(filter, &schema)?;
        let result = expr.evaluate(batch)?.into_array(batch.num_rows())?;
        let result = as_boolean_array(&result)?;
        for (index, pass) in pass.iter_mut().enumerate() {
            *pass &= result.is_valid(index) && result.value(index);
        }
    }
    Ok(BooleanArray::from(pass))
}

/// Removes the table from the columns of a filter.
fn unqualified(expr: Expr) -> Result<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let transformed = expr.transform(|expr| {
        Ok(match expr {
            Expr::Column(column) if column.relation.is_some() => {
                Transformed::yes(Expr::Column(column.name.into()))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(transformed.data)
}
