//! Scans the events of one partition, batch by batch.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use stepscope_model::{NameId, TrackId};

use super::columns::{self, Selection};
use super::scan::{Scan, TrackRange};
use super::{Events, batch};
use crate::filter::Filters;
use crate::run_data::RunData;

impl Events {
    /// Returns the indexes of a track's events that the limits leave.
    pub(super) fn range(self, run: &RunData, track: TrackId, filters: &Filters) -> Range<usize> {
        let trace = run.trace();
        match self {
            Self::Slices => {
                let slices = trace.slices(track);
                let at = |index: usize| slices.start.get(index).map_or(i64::MAX, |at| at.ps());
                filters.range(run.id(slices.first_id), slices.len(), at)
            }
            Self::Instants => {
                let instants = trace.instants(track);
                let at = |index: usize| instants.at.get(index).map_or(i64::MAX, |at| at.ps());
                filters.range(run.id(instants.first_id), instants.at.len(), at)
            }
            Self::Counters | Self::Samples => {
                let samples = trace.samples(track);
                let at = |index: usize| samples.at.get(index).map_or(i64::MAX, |at| at.ps());
                filters.range(0, samples.at.len(), at)
            }
        }
    }

    fn names(self, run: &RunData, track: TrackId) -> &[NameId] {
        match self {
            Self::Slices => run.trace().slices(track).name,
            Self::Instants => run.trace().instants(track).name,
            Self::Counters | Self::Samples => &[],
        }
    }
}

/// Reads a batch; `None` if no event passes.
fn read(scan: &Scan, work: &TrackRange, range: Range<usize>) -> Result<Option<RecordBatch>> {
    let list: Vec<u32>;
    let selection = match &work.names {
        None => Selection::Range(range),
        Some(pass) => {
            let names = scan.events.names(&work.run, work.track);
            let passes = |index: &u32| {
                let name = names.get(*index as usize);
                name.is_some_and(|name| name.index() < pass.len() && pass.value(name.index()))
            };
            let first = u32::try_from(range.start).unwrap_or(u32::MAX);
            let end = u32::try_from(range.end).unwrap_or(u32::MAX);
            list = (first..end).filter(passes).collect();
            if list.is_empty() {
                return Ok(None);
            }
            Selection::List(&list)
        }
    };
    let rows = selection.len();
    let arrays = scan
        .columns
        .iter()
        .map(|column| columns::read(scan, work, column, &selection));
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    batch(&scan.schema, arrays, rows).map(Some)
}

/// One partition of a scan.
#[derive(Debug)]
pub(super) struct Partition {
    scan: Arc<Scan>,
    work: Vec<TrackRange>,
}

impl Partition {
    pub(super) fn new(scan: Arc<Scan>, work: Vec<TrackRange>) -> Self {
        Self { scan, work }
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.scan.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = Batches {
            scan: Arc::clone(&self.scan),
            work: self.work.clone().into_iter(),
            now: None,
            size: context.session_config().batch_size().max(1),
        };
        let schema = Arc::clone(&self.scan.schema);
        Box::pin(RecordBatchStreamAdapter::new(
            schema,
            futures::stream::iter(batches),
        ))
    }
}

struct Batches {
    scan: Arc<Scan>,
    work: std::vec::IntoIter<TrackRange>,
    now: Option<TrackRange>,
    size: usize,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.now.as_ref().is_none_or(|work| work.range.is_empty()) {
                self.now = Some(self.work.next()?);
            }
            let work = self.now.as_mut()?;
            let end = work.range.end.min(work.range.start + self.size);
            let range = work.range.start..end;
            work.range.start = end;
            match read(&self.scan, work, range) {
                Ok(None) => {
                    if work.run.cancel().check().is_err() {
                        return None;
                    }
                }
                Ok(Some(batch)) => return Some(Ok(batch)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
