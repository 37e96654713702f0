//! Tables whose rows the first query lists: columns of small tables are computed with them, those of large ones in
//! batches while a query reads them.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt as _;
use tokio::sync::OnceCell;

use super::stopped;
use crate::run_data::RunData;
use crate::schema::{Column, schema_of};

/// Number of partitions of all runs, unless there are more runs: each partition is a task, also if it has no rows.
const MAX_PARTITIONS: usize = 1 << 10;

/// The rows of a table of one run, whose columns are made when a query reads them.
pub trait Listing: Debug + Send + Sync {
    /// Returns the number of rows.
    fn row_count(&self) -> usize;

    /// Returns the first of these rows that one call of [`read`](Self::read) can return: at least one, if there are
    /// any.
    fn first_batch(&self, rows: Range<usize>) -> Range<usize> {
        rows
    }

    /// Returns columns of the rows of one batch. `data` is the run whose rows were listed.
    fn read(
        &self,
        data: &RunData,
        rows: Range<usize>,
        columns: &[&'static Column],
    ) -> Result<Vec<ArrayRef>>;
}

/// The rows of a small table, with all columns.
impl Listing for RecordBatch {
    fn row_count(&self) -> usize {
        self.num_rows()
    }

    fn read(
        &self,
        _data: &RunData,
        rows: Range<usize>,
        columns: &[&'static Column],
    ) -> Result<Vec<ArrayRef>> {
        let read = |column: &&Column| {
            let index = self.schema_ref().index_of(column.name)?;
            Ok(self.column(index).slice(rows.start, rows.len()))
        };
        columns.iter().map(read).collect()
    }
}

/// A table of a run.
#[derive(Debug)]
pub struct Table {
    /// Name.
    pub name: &'static str,
    /// One row is this.
    pub row: &'static str,
    /// Columns.
    pub columns: &'static [Column],
    /// Finds the rows.
    pub list: fn(&RunData) -> Result<Arc<dyn Listing>>,
}

/// A run, and its rows from the first query on.
#[derive(Debug)]
struct ListedRun {
    data: Arc<RunData>,
    found: OnceCell<std::result::Result<Arc<dyn Listing>, String>>,
}

impl ListedRun {
    /// Returns the rows, which the first call finds. Calls meanwhile occupy no thread: with a partition for each
    /// processor, they would occupy all of them, and timers need one.
    async fn listing(&self, table: &Table) -> Result<Arc<dyn Listing>> {
        let list = async { (table.list)(&self.data).map_err(|error| error.to_string()) };
        let found = self.found.get_or_init(|| list).await;
        found.clone().map_err(DataFusionError::Execution)
    }
}

/// A table with the rows of every run.
#[derive(Debug)]
pub struct RunTable {
    table: &'static Table,
    runs: Vec<Arc<ListedRun>>,
    schema: SchemaRef,
}

impl RunTable {
    /// Creates the table.
    pub fn new(table: &'static Table, runs: &[Arc<RunData>]) -> Self {
        let listed = |run: &Arc<RunData>| {
            Arc::new(ListedRun {
                data: Arc::clone(run),
                found: OnceCell::new(),
            })
        };
        Self {
            table,
            runs: runs.iter().map(listed).collect(),
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
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let indexes = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.table.columns.len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&indexes)?);
        let columns: Vec<&'static Column> = indexes
            .iter()
            .filter_map(|index| self.table.columns.get(*index))
            .collect();
        let most = (MAX_PARTITIONS / self.runs.len().max(1)).max(1);
        let wanted = state.config_options().execution.target_partitions;
        let count = wanted.clamp(1, most);
        let partitions = self.runs.iter().flat_map(|run| {
            let (columns, schema) = (&columns, &schema);
            (0..count).map(move |number| -> Arc<dyn PartitionStream> {
                Arc::new(ListedPartition {
                    table: self.table,
                    run: Arc::clone(run),
                    number,
                    count,
                    columns: columns.clone(),
                    schema: Arc::clone(schema),
                })
            })
        });
        let (partitions, schema) = (partitions.collect(), Arc::clone(&schema));
        let plan = StreamingTableExec::try_new(schema, partitions, None, None, false, limit)?;
        Ok(Arc::new(plan))
    }
}

/// A partition of the rows of a run.
#[derive(Debug)]
struct ListedPartition {
    table: &'static Table,
    run: Arc<ListedRun>,
    /// Position among the partitions of the run.
    number: usize,
    /// Number of partitions of the run.
    count: usize,
    columns: Vec<&'static Column>,
    schema: SchemaRef,
}

impl PartitionStream for ListedPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let size = context.session_config().batch_size().max(1);
        let (table, run) = (self.table, Arc::clone(&self.run));
        let (number, count) = (self.number, self.count);
        let (columns, schema) = (self.columns.clone(), Arc::clone(&self.schema));
        let batches = async move {
            let listing = run.listing(table).await?;
            let rows = listing.row_count();
            let share = rows.div_ceil(count).next_multiple_of(size);
            let end = rows.min(share.saturating_mul(number + 1));
            let batches = Batches {
                rows: share.saturating_mul(number).min(end)..end,
                listing,
                run,
                columns,
                schema,
                size,
            };
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::once(batches).try_flatten(),
        ))
    }
}

/// The rows of a partition that are left.
struct Batches {
    rows: Range<usize>,
    listing: Arc<dyn Listing>,
    run: Arc<ListedRun>,
    columns: Vec<&'static Column>,
    schema: SchemaRef,
    size: usize,
}

impl Batches {
    fn read(&self, rows: Range<usize>) -> Result<RecordBatch> {
        self.run.data.cancel().check().map_err(stopped)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let arrays = self.listing.read(&self.run.data, rows, &self.columns)?;
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let most = self.rows.end.min(self.rows.start.saturating_add(self.size));
        let batch = self.listing.first_batch(self.rows.start..most);
        if batch.is_empty() {
            debug_assert!(self.rows.is_empty(), "rows would be lost");
            return None;
        }
        self.rows.start = batch.end;
        Some(self.read(batch))
    }
}
