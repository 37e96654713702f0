//! `steps`: the steps of each rank, and where their time went.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use stepscope_analysis::run_profile::{AnalysisScope, RunProfile};
use stepscope_model::Dur;

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(crate) const STEPS: Table = Table {
    name: "steps",
    row: "a step of a rank",
    columns: &[
        common::RUN,
        column("step", Type::BigInt, "Number given by the program"),
        common::HOST,
        common::RANK,
        column(
            "pid",
            Type::BigInt,
            "Process, where a file holds several ranks",
        ),
        column("id", Type::BigInt, "The slice that marks it").unit("event"),
        common::TRACK_ID,
        common::START_PS,
        common::DUR_PS,
        column("compute_ps", Type::BigInt, "Computation on the device").unit("ps"),
        column(
            "exposed_communication_ps",
            Type::BigInt,
            "Communication that computation does not hide",
        )
        .unit("ps"),
        column("exposed_copy_ps", Type::BigInt, "Copies that nothing hides").unit("ps"),
        column(
            "input_ps",
            Type::BigInt,
            "The step's thread fetches its input",
        )
        .unit("ps"),
        column("compile_ps", Type::BigInt, "Compilation").unit("ps"),
        column(
            "host_ps",
            Type::BigInt,
            "Other activity of the step's thread",
        )
        .unit("ps"),
        column("idle_ps", Type::BigInt, "Time without an event").unit("ps"),
        column(
            "communication_ps",
            Type::BigInt,
            "All communication, hidden or not",
        )
        .unit("ps"),
        column("copy_ps", Type::BigInt, "All copies, hidden or not").unit("ps"),
        column(
            "device_step_ps",
            Type::BigInt,
            "The step on the device's own line",
        )
        .unit("ps"),
        column(
            "outlier",
            Type::Bool,
            "Much longer than the steps of its rank",
        ),
        column(
            "unfinished",
            Type::Bool,
            "Open when the recording ended: no time is known",
        ),
        column(
            "derived_from",
            Type::Text,
            "The repeating name, where no steps are marked",
        ),
    ],
    list: |data| Ok(Arc::new(steps(data)?)),
};

fn steps(data: &RunData) -> Result<RecordBatch> {
    let mut rows = Rows::new(STEPS.columns);
    let trace = data.trace();
    let profile = RunProfile::compute(trace, &AnalysisScope::default(), data.cancel());
    let profile = profile.map_err(stopped)?;
    let found = &profile.steps;
    let mut parts = profile.breakdown.parts.iter();
    for step in &found.steps {
        // Unfinished steps have no parts.
        let parts = if step.unfinished { None } else { parts.next() };
        let buckets = parts.map(|parts| parts.buckets().map(|(_, dur)| dur));
        let [compute, communication, copy, input, compile, host, idle] =
            buckets.map_or([None::<Dur>; 7], |buckets| buckets.map(Some));
        rows.push([
            (&data.key).into(),
            step.number.into(),
            (&step.host).into(),
            data.rank(step.file).into(),
            step.process.into(),
            data.id(step.event).into(),
            trace.track_of(step.event).map(|track| track.0).into(),
            step.start.into(),
            step.dur.into(),
            compute.into(),
            communication.into(),
            copy.into(),
            input.into(),
            compile.into(),
            host.into(),
            idle.into(),
            parts.map(|parts| parts.communication).into(),
            parts.map(|parts| parts.copy).into(),
            step.device.into(),
            found.is_outlier(step).into(),
            step.unfinished.into(),
            found.derived.as_ref().into(),
        ]);
    }
    rows.finish()
}
