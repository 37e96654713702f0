//! A small table of all runs of a session.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use super::Table;
use crate::run_data::RunData;
use crate::schema::schema_of;

/// A table with the rows of every run.
#[derive(Debug)]
pub struct RunTable {
    table: &'static Table,
    runs: Arc<[Arc<RunData>]>,
    schema: SchemaRef,
}

impl RunTable {
    /// Creates the table.
    pub fn new(table: &'static Table, runs: Arc<[Arc<RunData>]>) -> Self {
        Self {
            table,
            runs,
            schema: schema_of(table.columns),
        }
    }
}

#[async_trait]
impl TableProvider for RunTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parts = self.runs.iter().map(|run| -> Arc<dyn PartitionStream> {
            Arc::new(Rows {
                table: self.table,
                run: Arc::clone(run),
                schema: Arc::clone(&self.schema),
            })
        });
        let plan = StreamingTableExec::try_new(
            Arc::clone(&self.schema),
            parts.collect(),
            projection,
            None,
            false,
            limit,
        )?;
        Ok(Arc::new(plan))
    }
}

/// The rows of one run, computed when the query reads them.
#[derive(Debug)]
struct Rows {
    table: &'static Table,
    run: Arc<RunData>,
    schema: SchemaRef,
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (table, run) = (self.table, Arc::clone(&self.run));
        let size = context.session_config().batch_size().max(1);
        let batches = std::iter::once_with(move || run.rows_of(table.name, table.build)).flat_map(
            move |rows| {
                let (rows, error) = match rows {
                    Ok(rows) => (Some(rows), None),
                    Err(error) => (None, Some(Err(error))),
                };
                let parts = rows.into_iter().flat_map(move |rows| {
                    let starts = (0..rows.num_rows()).step_by(size);
                    starts
                        .map(move |start| Ok(rows.slice(start, size.min(rows.num_rows() - start))))
                });
                parts.chain(error)
            },
        );
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}
