//! `args`: one row per argument. Arguments are decoded from the files while the query reads them.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use stepscope_model::ArgValue;
use stepscope_store::EventId;

use crate::json_args::{text_of, type_of};
use crate::rows::{Rows, Value};
use crate::run_data::RunData;
use crate::schema::{Column, Type, column, common, schema_of};

/// Columns of the table.
pub const COLUMNS: &[Column] = &[
    common::RUN,
    common::ID,
    column(
        "position",
        Type::Int,
        "Position among the arguments of the event",
    ),
    column("key", Type::Text, "Key"),
    column(
        "type",
        Type::Text,
        "'int', 'uint', 'double', 'bool', 'text', 'json' or 'bytes'",
    ),
    column("int_value", Type::BigInt, "Value, if it is a whole number"),
    column("double_value", Type::Double, "Value, if it is a number"),
    column("text_value", Type::Text, "Value as text"),
];

/// Number of events that one batch reads.
const EVENTS: u32 = 2_048;

/// The table of all runs of a session.
#[derive(Debug)]
pub struct ArgsTable {
    runs: Arc<[Arc<RunData>]>,
    schema: SchemaRef,
}

impl ArgsTable {
    /// Creates the table.
    pub fn new(runs: Arc<[Arc<RunData>]>) -> Self {
        Self {
            runs,
            schema: schema_of(COLUMNS),
        }
    }
}

/// The equality that a filter asks for.
enum Equality {
    Id(i64),
    Key(String),
}

fn equality(filter: &Expr) -> Option<Equality> {
    let Expr::BinaryExpr(binary) = filter else {
        return None;
    };
    let (Expr::Column(column), Expr::Literal(value, _)) = (&*binary.left, &*binary.right) else {
        return None;
    };
    if binary.op != Operator::Eq {
        return None;
    }
    match (column.name.as_str(), value) {
        ("id", ScalarValue::Int64(Some(id))) => Some(Equality::Id(*id)),
        ("key", ScalarValue::Utf8View(Some(key)) | ScalarValue::Utf8(Some(key))) => {
            Some(Equality::Key(key.clone()))
        }
        _ => None,
    }
}

#[async_trait]
impl TableProvider for ArgsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let supported = filters.iter().map(|filter| match equality(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        });
        Ok(supported.collect())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut ids = i64::MIN..i64::MAX;
        let mut keys: Vec<String> = Vec::new();
        for filter in filters {
            match equality(filter) {
                Some(Equality::Id(id)) => {
                    ids = ids.start.max(id)..ids.end.min(id.saturating_add(1));
                }
                Some(Equality::Key(key)) => keys.push(key),
                None => {}
            }
        }
        let parts = self.runs.iter().map(|run| -> Arc<dyn PartitionStream> {
            let first = run.first_id();
            let local = |id: i64| {
                let id = id
                    .saturating_sub(first)
                    .clamp(0, i64::from(run.trace().event_count()));
                u32::try_from(id).unwrap_or(0)
            };
            Arc::new(ArgsPartition {
                run: Arc::clone(run),
                schema: Arc::clone(&self.schema),
                events: local(ids.start)..local(ids.end),
                keys: keys.clone(),
            })
        });
        let schema = Arc::clone(&self.schema);
        let plan =
            StreamingTableExec::try_new(schema, parts.collect(), projection, None, false, limit)?;
        Ok(Arc::new(plan))
    }
}

#[derive(Debug)]
struct ArgsPartition {
    run: Arc<RunData>,
    schema: SchemaRef,
    events: std::ops::Range<u32>,
    /// Keys that must all be equal to an argument's; empty: any.
    keys: Vec<String>,
}

impl PartitionStream for ArgsPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (run, keys) = (Arc::clone(&self.run), self.keys.clone());
        let (start, end) = (self.events.start, self.events.end);
        let batches = (start..end)
            .step_by(EVENTS as usize)
            .map(move |from| read(&run, from..end.min(from.saturating_add(EVENTS)), &keys));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}

fn read(run: &RunData, events: std::ops::Range<u32>, keys: &[String]) -> Result<RecordBatch> {
    let mut rows = Rows::new(COLUMNS);
    for event in events {
        let id = EventId(event);
        let mut position = 0_u32;
        let visit = &mut |key: &str, value: ArgValue<'_>| {
            position += 1;
            if keys.iter().any(|own| own != key) {
                return;
            }
            let (int, double) = match value {
                ArgValue::Int(value) => (Some(value), Some(value as f64)),
                ArgValue::Uint(value) => (i64::try_from(value).ok(), Some(value as f64)),
                ArgValue::Double(value) => (None, Some(value)),
                ArgValue::Bool(value) => (Some(value.into()), None),
                _ => (None, None),
            };
            let row: [Value<'_>; 8] = [
                run.key.clone().into(),
                run.id(id).into(),
                (position - 1).into(),
                key.to_owned().into(),
                type_of(&value).into(),
                int.into(),
                double.into(),
                text_of(&value).into(),
            ];
            rows.push(row);
        };
        // Arguments that cannot be read have no rows; diagnostics count them.
        let _ = run.trace().args(id, visit);
    }
    rows.finish()
}
