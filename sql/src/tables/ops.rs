//! `ops`: every occurrence of an operation of the classes that the report `ops` offers.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray, UInt32Array};
use datafusion::error::{DataFusionError, Result};
use stepscope_analysis::names::NameSet;
use stepscope_analysis::ops::occurrences::{LaunchedTime, Occurrences, OpOccurrence, occurrences};
use stepscope_analysis::ops::rates::Done;
use stepscope_analysis::ops::{OpGrouping, OpRow};
use stepscope_analysis::torch_args::input_shapes;
use stepscope_model::Dur;
use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_store::{Slices, Track};

use super::kernels::{layer_of, whole};
use super::{Listing, Table, stopped};
use crate::arrays;
use crate::run_data::RunData;
use crate::schema::{Column, Type, column, common};

pub(super) const OPS: Table = Table {
    name: "ops",
    row: "an occurrence of an operation",
    columns: &[
        common::RUN,
        common::ID,
        column(
            "class",
            Type::Text,
            "'framework', 'hlo', 'module', 'action', 'label', 'python', 'neuron-framework' or 'neuron-hlo'",
        ),
        column("name", Type::Text, "Name of the operation"),
        column("program", Type::Text, "The compiled program that ran it"),
        column(
            "category",
            Type::Text,
            "XProf's category of compiled operations, else the kind",
        ),
        common::TRACK_ID,
        common::HOST,
        common::RANK,
        common::DEVICE,
        common::STEP,
        common::START_PS,
        common::DUR_PS,
        column(
            "self_ps",
            Type::BigInt,
            "Duration without operations of the class directly inside",
        )
        .unit("ps"),
        column("source", Type::Text, "Line of the program"),
        column(
            "device_total_ps",
            Type::BigInt,
            "Device time of the work that a framework operation or label launched",
        )
        .unit("ps"),
        column(
            "device_self_ps",
            Type::BigInt,
            "The same without operations of the class inside",
        )
        .unit("ps"),
        column(
            "layer",
            Type::Text,
            "The module of the model around it; of a module the one around that",
        ),
        column(
            "shapes",
            Type::Text,
            "Shapes of the inputs of an operator of torch, as JSON",
        ),
        column(
            "flops",
            Type::BigInt,
            "Floating-point operations of a compiled operation, where the file counts them",
        )
        .unit("count"),
        column(
            "bytes_accessed",
            Type::BigInt,
            "Bytes that a compiled operation reads and writes, where the file counts them",
        )
        .unit("bytes"),
    ],
    list: ops,
};

/// The operations of one class.
#[derive(Debug)]
struct Class {
    by: OpGrouping,
    found: Occurrences,
    rows: RowTexts,
}

/// Texts and counts of the rows of a class.
#[derive(Debug)]
struct RowTexts {
    names: StringViewArray,
    programs: StringViewArray,
    categories: StringViewArray,
    sources: StringViewArray,
    flops: Vec<Option<i64>>,
    bytes: Vec<Option<i64>>,
}

impl RowTexts {
    fn new(rows: &[OpRow]) -> Self {
        Self {
            names: rows.iter().map(|row| Some(&row.name)).collect(),
            programs: rows.iter().map(|row| row.program.as_ref()).collect(),
            categories: rows.iter().map(|row| Some(&row.category)).collect(),
            sources: rows.iter().map(|row| row.source.as_ref()).collect(),
            flops: rows
                .iter()
                .map(|row| once(row, |done| done.flops))
                .collect(),
            bytes: rows
                .iter()
                .map(|row| once(row, |done| done.bytes))
                .collect(),
        }
    }
}

/// Operations of one class on one track.
#[derive(Debug)]
struct OpsOfTrack {
    /// Index of the class.
    class: usize,
    /// Index among the tracks of the class.
    track: usize,
    /// Number of the first row.
    first: usize,
}

#[derive(Debug)]
struct OpListing {
    classes: Vec<Class>,
    tracks: Vec<OpsOfTrack>,
    len: usize,
    /// Names of calls of the model's modules.
    modules: NameSet,
}

fn ops(data: &RunData) -> Result<Arc<dyn Listing>> {
    let trace = data.trace();
    let mut all = OpListing {
        classes: Vec::new(),
        tracks: Vec::new(),
        len: 0,
        modules: NameSet::matching(trace, |name| name.starts_with(MODULE_CALL)),
    };
    for by in OpGrouping::ALL {
        let found = occurrences(trace, by, data.cancel()).map_err(stopped)?;
        for (track, of_track) in found.tracks.iter().enumerate() {
            all.tracks.push(OpsOfTrack {
                class: all.classes.len(),
                track,
                first: all.len,
            });
            all.len += of_track.list.len();
        }
        all.classes.push(Class {
            by,
            rows: RowTexts::new(&found.rows),
            found,
        });
    }
    Ok(Arc::new(all))
}

impl OpListing {
    /// Returns the operations that rows of one track are; `None` if they are of several tracks.
    fn batch<'a>(&'a self, data: &'a RunData, rows: &Range<usize>) -> Option<OpBatch<'a>> {
        let begun = self
            .tracks
            .partition_point(|track| track.first <= rows.start);
        let found = self.tracks.get(begun.checked_sub(1)?)?;
        let class = self.classes.get(found.class)?;
        let of_track = class.found.tracks.get(found.track)?;
        let range = rows.start.checked_sub(found.first)?..rows.end.checked_sub(found.first)?;
        Some(OpBatch {
            data,
            class,
            track: data.track(of_track.track)?,
            slices: data.trace().slices(of_track.track),
            list: of_track.list.get(range)?,
            modules: &self.modules,
        })
    }
}

impl Listing for OpListing {
    fn row_count(&self) -> usize {
        self.len
    }

    /// The operations of a batch are of one class and track.
    fn first_batch(&self, rows: Range<usize>) -> Range<usize> {
        let next = self
            .tracks
            .partition_point(|track| track.first <= rows.start);
        let end = self.tracks.get(next).map_or(self.len, |track| track.first);
        rows.start..rows.end.min(end)
    }

    fn read(
        &self,
        data: &RunData,
        rows: Range<usize>,
        columns: &[&'static Column],
    ) -> Result<Vec<ArrayRef>> {
        let batch = self.batch(data, &rows).ok_or_else(|| {
            let cause = format!("the rows {rows:?} of ops are not of one track");
            DataFusionError::Internal(cause)
        })?;
        columns
            .iter()
            .map(|column| batch.column(column.name))
            .collect()
    }
}

/// Operations of one class on one track.
struct OpBatch<'a> {
    data: &'a RunData,
    class: &'a Class,
    track: &'a Track,
    slices: Slices<'a>,
    list: &'a [OpOccurrence],
    modules: &'a NameSet,
}

impl OpBatch<'_> {
    fn column(&self, name: &str) -> Result<ArrayRef> {
        let rows = self.list.len();
        let (data, track, texts) = (self.data, self.track, &self.class.rows);
        Ok(match name {
            "run" => arrays::text(Some(&data.key), rows)?,
            "id" => self.big_ints(|op| Some(data.id(self.slices.id(op.index as usize)))),
            "class" => arrays::text(Some(self.class.by.as_str()), rows)?,
            "name" => self.text_column(&texts.names)?,
            "program" => self.text_column(&texts.programs)?,
            "category" => self.text_column(&texts.categories)?,
            "track_id" => arrays::int(track.id.0, rows),
            "host" => arrays::text(Some(data.host(track.file)), rows)?,
            "rank" => arrays::optional_int(data.rank(track.file), rows),
            "device" => arrays::optional_int(track.device, rows),
            "step" => {
                let mut steps = data.steps_of_slices(track);
                self.big_ints(|op| steps.step(op.index as usize))
            }
            "start_ps" => self.big_ints(|op| Some(self.slices.start.get(op.index as usize)?.ps())),
            "dur_ps" => self.big_ints(|op| Some(op.dur.ps())),
            "self_ps" => self.big_ints(|op| Some(op.self_time.ps())),
            "source" => self.text_column(&texts.sources)?,
            "device_total_ps" => self.launched(|launched| launched.total),
            "device_self_ps" => self.launched(|launched| launched.own),
            "layer" => self.layers()?,
            "shapes" => self.shapes()?,
            "flops" => self.counts(&texts.flops),
            "bytes_accessed" => self.counts(&texts.bytes),
            other => {
                let cause = format!("the table ops has no column {other}");
                return Err(DataFusionError::Internal(cause));
            }
        })
    }

    fn big_ints(&self, value: impl FnMut(&OpOccurrence) -> Option<i64>) -> ArrayRef {
        Arc::new(self.list.iter().map(value).collect::<Int64Array>())
    }

    fn text_column(&self, of_rows: &StringViewArray) -> Result<ArrayRef> {
        let rows = self.list.iter().map(|op| op.row);
        arrays::take_texts(of_rows, &UInt32Array::from_iter_values(rows))
    }

    fn counts(&self, of_rows: &[Option<i64>]) -> ArrayRef {
        self.big_ints(|op| of_rows.get(op.row as usize).copied().flatten())
    }

    fn launched(&self, time: impl Fn(LaunchedTime) -> Dur) -> ArrayRef {
        self.big_ints(|op| {
            let launched = self
                .class
                .found
                .launched(self.track.id, op.index as usize)?;
            Some(time(launched).ps())
        })
    }

    fn layers(&self) -> Result<ArrayRef> {
        if self.modules.is_empty() {
            return arrays::text(None, self.list.len());
        }
        let layers = self.list.iter().map(|op| {
            let around = *self.slices.parent.get(op.index as usize)?;
            layer_of(
                self.data.trace(),
                &self.slices,
                self.modules,
                around as usize,
            )
        });
        Ok(Arc::new(layers.collect::<StringViewArray>()))
    }

    fn shapes(&self) -> Result<ArrayRef> {
        if self.class.by != OpGrouping::Framework {
            return arrays::text(None, self.list.len());
        }
        let trace = self.data.trace();
        let shapes = self
            .list
            .iter()
            .map(|op| input_shapes(trace, self.slices.id(op.index as usize)));
        Ok(Arc::new(shapes.collect::<StringViewArray>()))
    }
}

/// Returns a count of one execution: the file has one for all executions of an instruction.
fn once(row: &OpRow, count: impl Fn(&Done) -> f64) -> Option<i64> {
    let done = row.recorded.as_ref()?;
    whole(count(done) / row.count.max(1) as f64)
}
