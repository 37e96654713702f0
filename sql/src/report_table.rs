//! `report(kind, by, from, to)`: a report as a table.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions,
    StringViewArray,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use stepscope_engine::report::report::{Cell, Report, Section, Table, Unit, run_start};
use stepscope_engine::report::reports::{self, Options, ReportError};
use stepscope_model::Dur;

use crate::run_data::RunData;
use crate::schema::with_unit;

/// The table function `report`.
#[derive(Debug)]
pub(crate) struct ReportFunction {
    /// The runs of the session.
    pub(crate) runs: Arc<[Arc<RunData>]>,
}

/// The report that the arguments name.
struct Request {
    kind: String,
    section: Option<String>,
    by: Option<String>,
    from_ns: Option<f64>,
    to_ns: Option<f64>,
}

impl TableFunctionImpl for ReportFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let request = Request::from_args(args.exprs())?;
        let mut batches = Vec::new();
        for run in self.runs.iter() {
            let report = request.make(run)?;
            batches.extend(request.rows(run, &report)?);
        }
        let schema = united(&batches);
        let batches = batches.into_iter().map(|batch| fit(&batch, &schema));
        let batches = batches.collect::<Result<Vec<_>>>()?;
        let all = concat_batches(&schema, &batches)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![all]])?))
    }
}

fn usage(text: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!(
        "{text}\nhelp: report('KIND'), report('KIND', 'BY'), report('KIND', 'BY', FROM_NS, TO_NS); 'KIND:SECTION' \
         names a section, 'KIND:summary' the figures"
    ))
}

/// Returns the error of a report with its own advice; without one, with that of [`usage`].
fn refused(error: &ReportError) -> DataFusionError {
    match error.help() {
        Some(_) => DataFusionError::Plan(error.to_string()),
        None => usage(error.cause()),
    }
}

impl Request {
    fn from_args(args: &[Expr]) -> Result<Self> {
        let mut values = Vec::new();
        for arg in args {
            match arg {
                Expr::Literal(value, _) => values.push(value.clone()),
                Expr::Negative(_) => return Err(usage("cannot make a report of a negative time")),
                _ => return Err(usage("cannot make a report: its arguments are literals")),
            }
        }
        let text = |at: usize| -> Result<Option<String>> {
            match values.get(at) {
                None => Ok(None),
                Some(value) if value.is_null() => Ok(None),
                Some(
                    ScalarValue::Utf8(Some(text))
                    | ScalarValue::LargeUtf8(Some(text))
                    | ScalarValue::Utf8View(Some(text)),
                ) => Ok(Some(text.clone())),
                Some(_) => Err(usage("cannot make a report: its first arguments are text")),
            }
        };
        let number = |at: usize| -> Result<Option<f64>> {
            match values.get(at) {
                None => Ok(None),
                Some(value) if value.is_null() => Ok(None),
                Some(value) => match value.cast_to(&DataType::Float64) {
                    Ok(ScalarValue::Float64(Some(number))) if number.is_finite() => {
                        Ok(Some(number))
                    }
                    _ => Err(usage("cannot make a report: FROM_NS and TO_NS are numbers")),
                },
            }
        };
        if values.len() > 4 {
            return Err(usage("cannot make a report: too many arguments"));
        }
        let name = text(0)?.ok_or_else(|| usage("cannot make a report without its kind"))?;
        let (kind, section) = match name.split_once(':') {
            Some((kind, section)) => (kind.to_owned(), Some(section.to_owned())),
            None => (name, None),
        };
        reports::kind(&kind).map_err(|error| refused(&error))?;
        Ok(Self {
            kind,
            section,
            by: text(1)?.filter(|by| !by.is_empty()),
            from_ns: number(2)?,
            to_ns: number(3)?,
        })
    }

    fn make(&self, run: &RunData) -> Result<Arc<Report>> {
        let span = run.trace().span();
        let start = run_start(run.trace());
        #[allow(clippy::cast_possible_truncation, reason = "saturates beyond 106 days")]
        let at = |ns: f64| start.saturating_add(Dur::from_ps((ns * 1e3).round() as i64));
        let limited = self.from_ns.is_some() || self.to_ns.is_some();
        let from = self.from_ns.map_or(span.start, at);
        let to = self
            .to_ns
            .map_or(span.end.saturating_add(Dur::from_ps(1)), at);
        if limited && from >= to {
            return Err(usage("cannot make a report of an empty range"));
        }
        let options = Options {
            by: self.by.clone(),
            range: limited.then_some(from..to),
            ..Options::default()
        };
        let made = run.run.report(&self.kind, &options, run.cancel());
        made.map_err(|error| refused(&error))
    }

    /// Returns the rows of the report; nothing for a run without the section.
    fn rows(&self, run: &RunData, report: &Report) -> Result<Option<RecordBatch>> {
        match self.section.as_deref() {
            None => rows(run, &report.table).map(Some),
            Some("summary") => summary(run, report).map(Some),
            Some(name) => match report.sections.iter().find(|section| section.name == name) {
                Some(Section { table, .. }) => rows(run, table).map(Some),
                None if report.missing.is_none() && !report.sections.is_empty() => {
                    let names: Vec<&str> = report.sections.iter().map(|one| &*one.name).collect();
                    Err(usage(format!(
                        "cannot show section '{name}' of report '{}': it has {}",
                        self.kind,
                        names.join(", ")
                    )))
                }
                None => Ok(None),
            },
        }
    }
}

fn unit_of(unit: Unit) -> &'static str {
    match unit {
        Unit::Text | Unit::Number | Unit::Flag | Unit::Sentence => "",
        other => other.as_str(),
    }
}

const fn type_of(unit: Unit) -> DataType {
    match unit {
        Unit::Count | Unit::Event => DataType::Int64,
        Unit::Flag => DataType::Boolean,
        Unit::Text | Unit::Sentence => DataType::Utf8View,
        Unit::Number | Unit::Ns | Unit::Us | Unit::Bytes | Unit::BytesPerSecond | Unit::Share => {
            DataType::Float64
        }
    }
}

/// Returns a table of a report, with the run in front.
fn rows(run: &RunData, table: &Table) -> Result<RecordBatch> {
    let count = table.rows.len();
    let mut fields = vec![Field::new("run", DataType::Utf8View, true)];
    let mut arrays: Vec<ArrayRef> = vec![repeated(&run.key, count)];
    for (at, column) in table.columns.iter().enumerate() {
        let cells = || {
            table
                .rows
                .iter()
                .map(move |row| row.get(at).unwrap_or(&Cell::Empty))
        };
        // A list stays readable as JSON.
        let lists = cells().any(|cell| matches!(cell, Cell::List(_)));
        let kind = if lists {
            DataType::Utf8View
        } else {
            type_of(column.unit)
        };
        let array: ArrayRef = match kind {
            DataType::Int64 => Arc::new(
                cells()
                    .map(|cell| whole(run, cell, column.unit))
                    .collect::<Int64Array>(),
            ),
            DataType::Boolean => Arc::new(cells().map(flag).collect::<BooleanArray>()),
            DataType::Float64 => Arc::new(cells().map(number).collect::<Float64Array>()),
            _ => Arc::new(cells().map(text).collect::<StringViewArray>()),
        };
        fields.push(with_unit(
            Field::new(&*column.key, kind, true),
            unit_of(column.unit),
        ));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let schema = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

/// Returns the figures of a report: key, value as number and as text, unit.
fn summary(run: &RunData, report: &Report) -> Result<RecordBatch> {
    let figures = || report.summary.iter();
    let schema = Schema::new(vec![
        Field::new("run", DataType::Utf8View, true),
        Field::new("key", DataType::Utf8View, true),
        Field::new("title", DataType::Utf8View, true),
        Field::new("value", DataType::Float64, true),
        Field::new("text", DataType::Utf8View, true),
        Field::new("unit", DataType::Utf8View, true),
    ]);
    let texts = |of: fn(&stepscope_engine::report::report::Scalar) -> String| -> ArrayRef {
        Arc::new(
            figures()
                .map(|figure| Some(of(figure)))
                .collect::<StringViewArray>(),
        )
    };
    let arrays: Vec<ArrayRef> = vec![
        repeated(&run.key, report.summary.len()),
        texts(|figure| figure.column.key.to_string()),
        texts(|figure| figure.column.title.to_string()),
        Arc::new(
            figures()
                .map(|figure| number(&figure.value))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            figures()
                .map(|figure| text(&figure.value))
                .collect::<StringViewArray>(),
        ),
        texts(|figure| figure.column.unit.as_str().to_owned()),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema), arrays)?)
}

fn repeated(value: &str, count: usize) -> ArrayRef {
    Arc::new((0..count).map(|_| Some(value)).collect::<StringViewArray>())
}

#[allow(clippy::cast_possible_truncation, reason = "counts are whole")]
fn whole(run: &RunData, cell: &Cell, unit: Unit) -> Option<i64> {
    let value = match cell {
        Cell::Int(value) => *value,
        Cell::Number(value) => value.round() as i64,
        _ => return None,
    };
    Some(if unit == Unit::Event {
        run.first_id() | value
    } else {
        value
    })
}

fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Int(value) => Some(*value as f64),
        Cell::Number(value) => Some(*value),
        _ => None,
    }
}

fn flag(cell: &Cell) -> Option<bool> {
    match cell {
        Cell::Flag(value) => Some(*value),
        _ => None,
    }
}

fn text(cell: &Cell) -> Option<String> {
    Some(match cell {
        Cell::Empty => return None,
        Cell::Text(text) => text.clone(),
        Cell::Int(value) => value.to_string(),
        Cell::Number(value) => value.to_string(),
        Cell::Flag(value) => value.to_string(),
        Cell::List(_) => json(cell).to_string(),
        Cell::Sentence(sentence) => sentence.to_string(),
    })
}

fn json(cell: &Cell) -> serde_json::Value {
    match cell {
        Cell::Empty => serde_json::Value::Null,
        Cell::Text(text) => text.as_str().into(),
        Cell::Int(value) => (*value).into(),
        Cell::Number(value) => (*value).into(),
        Cell::Flag(value) => (*value).into(),
        Cell::List(cells) => cells.iter().map(json).collect(),
        Cell::Sentence(sentence) => sentence.to_string().into(),
    }
}

/// Returns the columns of all batches, in the order of their first mention. A column that has text anywhere is text.
fn united(batches: &[RecordBatch]) -> SchemaRef {
    let mut fields = vec![Field::new("run", DataType::Utf8View, true)];
    for field in batches
        .iter()
        .flat_map(|batch| batch.schema().fields().to_vec())
    {
        match fields.iter_mut().find(|known| known.name() == field.name()) {
            None => fields.push(Field::clone(&field)),
            Some(known) if known.data_type() != field.data_type() => {
                *known = Field::new(field.name(), DataType::Utf8View, true);
            }
            Some(_) => {}
        }
    }
    Arc::new(Schema::new(fields))
}

fn fit(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let arrays = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(array) => datafusion::arrow::compute::cast(array, field.data_type()),
            None => Ok(datafusion::arrow::array::new_null_array(
                field.data_type(),
                batch.num_rows(),
            )),
        });
    let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        arrays,
        &options,
    )?)
}
