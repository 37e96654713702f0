//! `instructions`: the instructions of compiled programs, run or not.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(super) const INSTRUCTIONS: Table = Table {
    name: "instructions",
    row: "an instruction of a compiled program",
    columns: &[
        common::RUN,
        common::HOST,
        column("module", Type::Text, "The compiled program"),
        column("program_id", Type::BigInt, "Its id in the file"),
        column("computation", Type::Text, "The computation that holds it"),
        column("entry", Type::Bool, "Whether that is the program's entry"),
        column("name", Type::Text, "Name, unique within the program"),
        column("opcode", Type::Text, "Operation code, such as 'fusion'"),
        column(
            "detail",
            Type::Text,
            "Type of a fusion, or target of a custom call",
        ),
        column("op_name", Type::Text, "Path of the framework operation"),
        column("op_type", Type::Text, "Type of that operation"),
        column("source", Type::Text, "Line of the program"),
        column("shape", Type::Text, "Shape of the result"),
        column(
            "calls",
            Type::Text,
            "The computation that a fusion, call or loop runs",
        ),
    ],
    list: |data| Ok(Arc::new(instructions(data)?)),
};

fn instructions(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let mut rows = Rows::new(INSTRUCTIONS.columns);
    for (file, facts) in trace.files().iter().enumerate() {
        data.cancel().check().map_err(stopped)?;
        let visited = trace.instructions(file, &mut |instruction| {
            let source = match (instruction.source_file, instruction.source_line) {
                ("", _) => None,
                (path, 0) => Some(path.to_owned()),
                (path, line) => Some(format!("{path}:{line}")),
            };
            rows.push([
                (&data.key).into(),
                (&facts.spec.host).into(),
                instruction.program.into(),
                instruction.program_id.into(),
                instruction.computation.into(),
                instruction.entry.into(),
                instruction.name.into(),
                instruction.opcode.into(),
                some(instruction.detail).into(),
                some(instruction.op_name).into(),
                some(instruction.op_type).into(),
                source.into(),
                some(instruction.shape).into(),
                some(instruction.calls).into(),
            ]);
        });
        visited.map_err(|error| {
            DataFusionError::Execution(format!(
                "cannot read the programs of {}: {error}",
                facts.spec.path
            ))
        })?;
    }
    rows.finish()
}

/// Returns a text unless it is empty.
fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
