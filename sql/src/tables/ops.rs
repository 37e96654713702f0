//! `ops`: every occurrence of an operation of the classes that the report `ops` offers.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use stepscope_analysis::ops::occurrences::occurrences;
use stepscope_analysis::ops::rates::Done;
use stepscope_analysis::ops::{OpGrouping, OpRow};
use stepscope_analysis::torch_args::input_shapes;

use super::kernels::{layer_of, whole};
use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

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
    build: ops,
};

fn ops(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let mut rows = Rows::new(OPS.columns);
    for by in OpGrouping::ALL {
        let found = occurrences(trace, by, data.cancel()).map_err(stopped)?;
        for (number, op) in found.list.iter().enumerate() {
            if number % 4_096 == 0 {
                data.cancel().check().map_err(stopped)?;
            }
            let Some(row) = found.rows.get(op.row as usize) else {
                continue;
            };
            let Some(track) = data.track(op.track) else {
                continue;
            };
            let slices = trace.slices(op.track);
            let around = slices.parent.get(op.index).map(|around| *around as usize);
            rows.push([
                (&data.key).into(),
                data.id(op.event).into(),
                by.as_str().into(),
                (&row.name).into(),
                row.program.as_ref().into(),
                (&row.category).into(),
                op.track.0.into(),
                data.host(track.file).into(),
                data.rank(track.file).into(),
                track.device.into(),
                data.step(track, op.index).into(),
                slices.start.get(op.index).copied().into(),
                op.dur.into(),
                op.self_time.into(),
                row.source.as_ref().into(),
                op.launched.map(|launched| launched.total).into(),
                op.launched.map(|launched| launched.own).into(),
                around
                    .and_then(|around| layer_of(trace, op.track, around))
                    .into(),
                (by == OpGrouping::Framework)
                    .then(|| input_shapes(trace, op.event))
                    .flatten()
                    .into(),
                once(row, |done| done.flops).into(),
                once(row, |done| done.bytes).into(),
            ]);
        }
    }
    rows.finish()
}

/// Returns a count of one execution: the file has one for all executions of an instruction.
fn once(row: &OpRow, count: impl Fn(&Done) -> f64) -> Option<i64> {
    let done = row.recorded.as_ref()?;
    whole(count(done) / row.count.max(1) as f64)
}
