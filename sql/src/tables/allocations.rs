//! `allocations`: what allocators handed out.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use stepscope_analysis::memory::Memory;
use stepscope_analysis::memory::owners::{AllocationCategory, Owners};
use stepscope_model::vocabulary::kineto::MODULE_CALL;

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(super) const ALLOCATIONS: Table = Table {
    name: "allocations",
    row: "an allocation",
    columns: &[
        common::RUN,
        common::ID,
        common::HOST,
        common::RANK,
        column("allocator", Type::Text, "Allocator, such as 'CUDA 0'"),
        column("at_ps", Type::BigInt, "Time on the run's clock").unit("ps"),
        column(
            "freed_at_ps",
            Type::BigInt,
            "When it was freed; null if it never was",
        )
        .unit("ps"),
        column("bytes", Type::BigInt, "Size").unit("bytes"),
        column("in_use_bytes", Type::BigInt, "In use after it").unit("bytes"),
        column(
            "reserved_bytes",
            Type::BigInt,
            "Reserved from the device after it",
        )
        .unit("bytes"),
        column("op_name", Type::Text, "Operator that allocated"),
        column(
            "category",
            Type::Text,
            "Purpose: as recorded, else estimated from its lifetime",
        ),
        column("layer", Type::Text, "The module of the model around it"),
    ],
    list: |data| Ok(Arc::new(allocations(data)?)),
};

fn allocations(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let memory = Memory::read(trace, data.cancel()).map_err(stopped)?;
    let owners = Owners::from_trace(trace);
    let mut rows = Rows::new(ALLOCATIONS.columns);
    for (at, record) in memory.records.iter().enumerate() {
        let Some(allocator) = memory.allocators.get(record.allocator) else {
            continue;
        };
        if record.bytes < 0 {
            continue;
        }
        let recorded = memory.category_of.get(at);
        let recorded = recorded.and_then(|of| memory.categories.get(*of as usize));
        let category = match recorded.filter(|name| !name.is_empty()) {
            Some(name) => Some(name.as_str()),
            None => owners
                .category(allocator.file, record)
                .map(AllocationCategory::title),
        };
        let layer = memory.module(trace, record).map(|name| trace.name(name));
        let op = memory.op(record);
        rows.push([
            (&data.key).into(),
            data.id(record.event).into(),
            (&allocator.host).into(),
            allocator.rank.into(),
            (&allocator.name).into(),
            record.at.into(),
            record.freed.into(),
            record.bytes.into(),
            record.used().into(),
            record.reserved.into(),
            Some(op).filter(|op| !op.is_empty()).into(),
            category.into(),
            layer
                .map(|layer| layer.trim_start_matches(MODULE_CALL))
                .into(),
        ]);
    }
    rows.finish()
}
