//! The tables with one row per event: `slices`, `instants`, `counters`, `samples`. They are scanned in the store's own order
//! and layout; times are views of its columns.

mod columns;
mod partition;
mod scan;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use self::partition::Partition;
use self::scan::{Scan, TrackRange};
use crate::filter::{Filters, level};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Column, Type, column, common, schema_of};

/// Which events a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Slices.
    Slices,
    /// Instants.
    Instants,
    /// Samples of counters, with the columns of their tracks.
    Counters,
    /// Samples alone.
    Samples,
}

/// Columns that are the same for all events of a track.
const TRACK_COLUMNS: &[&str] = &["run", "track_id", "host", "rank", "device", "stream"];
/// The same, of samples: the name and the unit are those of the track.
const COUNTER_COLUMNS: &[&str] = &["run", "track_id", "host", "rank", "device", "name", "unit"];

/// The same, of the table of samples alone.
const SAMPLE_COLUMNS: &[&str] = &["run", "track_id"];

/// The table of samples alone. Datasets do not store it: it is a part of `counters`.
pub(crate) const SAMPLES: &str = "samples";

/// Columns of one row per track, which filters of [`TRACK_COLUMNS`] are evaluated on.
const TRACKS: &[Column] = &[
    common::RUN,
    common::TRACK_ID,
    common::HOST,
    common::RANK,
    common::DEVICE,
    common::STREAM,
    column("name", Type::Text, "Name"),
    column("unit", Type::Text, "Unit"),
];

impl Events {
    /// Returns the name of the table.
    pub const fn table(self) -> &'static str {
        match self {
            Self::Slices => "slices",
            Self::Instants => "instants",
            Self::Counters => "counters",
            Self::Samples => SAMPLES,
        }
    }

    /// Returns its columns.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Slices => columns::SLICES,
            Self::Instants => columns::INSTANTS,
            Self::Counters => columns::COUNTERS,
            Self::Samples => columns::SAMPLES,
        }
    }

    const fn track_columns(self) -> &'static [&'static str] {
        match self {
            Self::Counters => COUNTER_COLUMNS,
            Self::Samples => SAMPLE_COLUMNS,
            Self::Slices | Self::Instants => TRACK_COLUMNS,
        }
    }

    const fn time(self) -> &'static str {
        match self {
            Self::Slices => "start_ps",
            _ => "at_ps",
        }
    }
}

/// A table of events of all runs of a session.
#[derive(Debug)]
pub struct EventTable {
    events: Events,
    runs: Arc<[Arc<RunData>]>,
    schema: SchemaRef,
}

impl EventTable {
    /// Creates the table.
    pub fn new(events: Events, runs: Arc<[Arc<RunData>]>) -> Self {
        Self {
            events,
            runs,
            schema: schema_of(events.columns()),
        }
    }

    /// Lists the events that the filters leave, by track.
    fn work(&self, state: &dyn Session, filters: &Filters) -> Result<Vec<TrackRange>> {
        let mut work = Vec::new();
        for run in self.runs.iter() {
            let mut rows = Rows::new(TRACKS);
            for track in run.trace().tracks() {
                rows.push([
                    (&run.key).into(),
                    track.id.0.into(),
                    run.host(track.file).into(),
                    run.rank(track.file).into(),
                    track.device.into(),
                    track.stream.into(),
                    (&track.name).into(),
                    track.unit.as_ref().into(),
                ]);
            }
            let pass = filters.tracks(state, &rows.finish()?)?;
            let tracks = run.trace().tracks().iter().zip(&pass);
            let tracks = tracks.filter(|(_, pass)| *pass == Some(true));
            let before = work.len();
            for (track, _) in tracks {
                let range = self.events.range(run, track.id, filters);
                if !range.is_empty() {
                    work.push(TrackRange {
                        run: Arc::clone(run),
                        track: track.id,
                        range,
                        names: None,
                    });
                }
            }
            if work.len() > before && !matches!(self.events, Events::Counters | Events::Samples) {
                let names = filters.names(state, run)?.map(Arc::new);
                for work in work.iter_mut().skip(before) {
                    work.names.clone_from(&names);
                }
            }
        }
        Ok(work)
    }
}

/// Splits work into partitions of about equal numbers of events, in order.
fn partitions(work: Vec<TrackRange>, count: usize, batch: usize) -> Vec<Vec<TrackRange>> {
    let total: usize = work.iter().map(|work| work.range.len()).sum();
    let size = total.div_ceil(count.max(1)).next_multiple_of(batch.max(1));
    let mut all = vec![Vec::new()];
    let mut left = size;
    for mut work in work {
        while work.range.len() > left {
            let (head, rest) = work.split(left);
            if let Some(last) = all.last_mut() {
                last.push(head);
            }
            all.push(Vec::new());
            left = size;
            work = rest;
        }
        left -= work.range.len();
        if let Some(last) = all.last_mut() {
            last.push(work);
        }
    }
    all
}

#[async_trait]
impl TableProvider for EventTable {
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
        let supported =
            filters
                .iter()
                .map(|filter| match level(filter, self.events.track_columns()) {
                    Some(_) => TableProviderFilterPushDown::Exact,
                    None => TableProviderFilterPushDown::Unsupported,
                });
        Ok(supported.collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let filters = Filters::new(filters, self.events.track_columns());
        let work = self.work(state, &filters)?;
        let options = &state.config_options().execution;
        let indexes = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&indexes)?);
        let names = indexes
            .iter()
            .filter_map(|index| self.events.columns().get(*index));
        let scan = Arc::new(Scan::new(
            self.events,
            names.map(|column| column.name).collect(),
            Arc::clone(&schema),
            &work,
        ));
        let parts = partitions(work, options.target_partitions, options.batch_size.get());
        let parts = parts.into_iter().map(|work| -> Arc<dyn PartitionStream> {
            Arc::new(Partition::new(Arc::clone(&scan), work))
        });
        // Tracks of one run follow each other, and their events are sorted.
        let order = ["track_id", self.events.time()].map(|name| {
            let column = col(name, &schema).ok()?;
            Some(PhysicalSortExpr::new(
                column,
                SortOptions::new(false, false),
            ))
        });
        let order = order.into_iter().collect::<Option<Vec<_>>>();
        let order = order.filter(|_| self.runs.len() == 1);
        let plan = StreamingTableExec::try_new(
            schema,
            parts.collect(),
            None,
            order.and_then(LexOrdering::new),
            false,
            limit,
        )?;
        Ok(Arc::new(plan))
    }
}

/// Returns a batch of columns, or of a number of rows without columns.
fn batch(
    schema: &SchemaRef,
    columns: Vec<datafusion::arrow::array::ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
