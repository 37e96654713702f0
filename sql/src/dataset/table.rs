//! Tables of a dataset: the Parquet files of its complete runs, read by the query engine.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::compute::kernels::cast_utils::Parser as _;
use datafusion::arrow::datatypes::{DataType, Date32Type, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{ScalarValue, Statistics};
use datafusion::datasource::file_format::FileFormat as _;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType, col};
use datafusion::object_store::path::Path as ObjectPath;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::SessionContext;
use futures::{StreamExt as _, TryStreamExt as _};

use super::{DATE, Dataset, DatasetFile, TABLE_COLUMNS, date_folder};
use crate::events::SAMPLES;
use crate::schema::{Column, with_unit};
use crate::schema_table;

/// Footers of files that are read at once.
const FOOTERS_AT_ONCE: usize = 32;

/// Registers all tables of a dataset. The context reaches its files.
pub(crate) fn register(context: &SessionContext, dataset: &Dataset) -> Result<()> {
    for (name, _, columns) in schema_table::all() {
        if name == TABLE_COLUMNS {
            continue;
        }
        // Samples are stored once, with the columns of their tracks.
        let stored_in = if name == SAMPLES { "counters" } else { name };
        let table = DatasetTable::new(dataset.clone(), stored_in, columns);
        let stored = context.read_table(Arc::new(table))?;
        let mut shown = Vec::with_capacity(columns.len() + 1);
        for column in columns {
            match column.name {
                _ if column.stored => shown.push(col(column.name)),
                "end_ps" => shown.push((col("start_ps") + col("dur_ps")).alias(column.name)),
                "short_name" => {
                    let short = context.udf("short")?;
                    shown.push(short.call(vec![col("name")]).alias(column.name));
                }
                // Decoded from the trace, which is not here: the table `args` has those that were exported.
                _ => {}
            }
        }
        if !columns.iter().any(|column| column.name == DATE) {
            shown.push(col(DATE));
        }
        context.register_table(name, stored.select(shown)?.into_view())?;
    }
    Ok(())
}

/// The stored columns of one table, and the day.
#[derive(Debug)]
struct DatasetTable {
    dataset: Dataset,
    name: &'static str,
    schema: TableSchema,
}

impl DatasetTable {
    fn new(dataset: Dataset, name: &'static str, columns: &[Column]) -> Self {
        let stored = columns
            .iter()
            .filter(|column| column.stored && column.name != DATE);
        let fields = stored.map(|column| {
            let field = Field::new(column.name, column.kind.arrow(), true);
            with_unit(field, column.unit)
        });
        let file_schema = Schema::new(fields.collect::<Vec<_>>());
        let date = Arc::new(Field::new(DATE, DataType::Date32, true));
        let schema = TableSchema::builder(Arc::new(file_schema))
            .with_table_partition_cols(vec![date])
            .build();
        Self {
            dataset,
            name,
            schema,
        }
    }

    /// Describes a file to the engine.
    fn file(&self, file: &DatasetFile) -> Result<PartitionedFile> {
        let folder = date_folder(&file.date);
        let path = self
            .dataset
            .folder()
            .join(self.name)
            .join(&folder)
            .join(&file.name);
        let metadata = std::fs::metadata(&path)?;
        let object = ObjectMeta {
            location: ObjectPath::parse(format!("{}/{folder}/{}", self.name, file.name))?,
            last_modified: metadata.modified()?.into(),
            size: metadata.len(),
            e_tag: None,
            version: None,
        };
        let date = ScalarValue::Date32(Date32Type::parse(&file.date));
        Ok(PartitionedFile::from(object).with_partition_values(vec![date]))
    }

    /// Adds what the footers of the files say about their rows; files are left out by it, and joins are ordered.
    async fn with_statistics(
        &self,
        files: Vec<PartitionedFile>,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
    ) -> Result<(Vec<PartitionedFile>, Statistics)> {
        let format = ParquetFormat::default();
        let format = &format;
        let files: Vec<PartitionedFile> = futures::stream::iter(files)
            .map(|file| async move {
                let schema = Arc::clone(self.schema.file_schema());
                let found = format.infer_stats(state, store, schema, &file.object_meta);
                let found = found.await?;
                Ok::<_, DataFusionError>(file.with_statistics(Arc::new(found)))
            })
            .buffered(FOOTERS_AT_ONCE)
            .try_collect()
            .await?;
        let all = files.iter().filter_map(|file| file.statistics.as_deref());
        let all = Statistics::try_merge_iter(all, self.schema.table_schema())?;
        Ok((files, all))
    }
}

#[async_trait]
impl TableProvider for DatasetTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Files, row groups and pages are left out by their statistics; what they hold is still filtered.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let files = self.dataset.files(self.name);
        let files = files.map_err(|error| DataFusionError::Execution(error.to_string()))?;
        let files = files
            .iter()
            .map(|file| self.file(file))
            .collect::<Result<Vec<_>>>()?;
        if files.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema.table_schema().project(columns)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let url = self.dataset.url()?;
        let store = state.runtime_env().object_store(&url)?;
        let (files, statistics) = self.with_statistics(files, state, &store).await?;
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let source = Arc::new(ParquetSource::new(self.schema.clone()));
        let config = FileScanConfigBuilder::new(url, source)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        ParquetFormat::default()
            .create_physical_plan(state, config)
            .await
    }
}
