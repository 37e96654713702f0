//! The sections about reserved but unused memory of allocators.

use stepscope_model::Time;
use stepscope_store::Trace;

use super::named;
use crate::report::{Column, Report, Table, Unit, run_start, since_start_ns};
use crate::reports::Options;
use stepscope_analysis::memory::Memory;
use stepscope_analysis::memory::fragmentation::{
    Fragmentation, FragmentationGrowth, fragmentation,
};

/// Adds the sections for which the run's allocators have data.
pub(super) fn add(
    report: &mut Report,
    trace: &Trace,
    memory: &Memory,
    options: &Options,
    most: usize,
) {
    let range = options.range.as_ref();
    let all: Vec<Fragmentation> = memory
        .allocators
        .iter()
        .enumerate()
        .map(|(at, allocator)| fragmentation(memory, at, allocator, range))
        .collect();
    let said = |one: &Fragmentation| one.unused.is_some() || one.recorded.is_some();
    if !all.iter().any(said) {
        return;
    }
    let start = run_start(trace);
    report.section(
        "fragmentation",
        "Fragmentation",
        allocators(memory, &all, start),
    );
    let mut fragmentation_growths: Vec<FragmentationGrowth> = all
        .into_iter()
        .flat_map(|one| one.fragmentation_growths)
        .collect();
    if fragmentation_growths.is_empty() {
        return;
    }
    fragmentation_growths.sort_by_key(|one| {
        (
            std::cmp::Reverse(one.grown),
            one.record.at,
            one.record.event,
        )
    });
    let mut table = Table::new(vec![
        Column::new("op", "Operator", Unit::Text),
        Column::new("size_bytes", "Requested", Unit::Bytes),
        Column::new("unused_bytes", "Unused", Unit::Bytes),
        Column::new("grown_bytes", "Segment allocations", Unit::Bytes),
        Column::new("allocator", "Allocator", Unit::Text),
        Column::new("at_ns", "At", Unit::Ns),
        Column::new("event", "Event", Unit::Event),
    ]);
    for one in &fragmentation_growths {
        table.push([
            memory.op(&one.record).into(),
            one.record.bytes.into(),
            one.unused.into(),
            one.grown.into(),
            named(memory, one.allocator).into(),
            since_start_ns(start, one.record.at).into(),
            one.record.event.into(),
        ]);
    }
    table.cut(most);
    report.section(
        "fragmentation_growths",
        "Segments allocated despite enough free memory",
        table,
    );
}

fn allocators(memory: &Memory, all: &[Fragmentation], start: Time) -> Table {
    let mut table = Table::new(vec![
        Column::new("allocator", "Allocator", Unit::Text),
        Column::new("most_unused_bytes", "Most unused", Unit::Bytes),
        Column::new("most_unused_share", "Of reserved", Unit::Share),
        Column::new("most_unused_at_ns", "When", Unit::Ns),
        Column::new("unused_at_peak_bytes", "Unused at the peak", Unit::Bytes),
        Column::new("mean_unused_share", "Unused over time", Unit::Share),
        Column::new("segment_allocs", "Segment allocations", Unit::Count),
        Column::new(
            "fragmentation_growths",
            "Despite enough free memory",
            Unit::Count,
        ),
        Column::new(
            "peak_fragmentation_share",
            "Peak fragmentation",
            Unit::Share,
        ),
        Column::new("peak_fragmentation_at_ns", "At", Unit::Ns),
        Column::new(
            "mean_fragmentation_share",
            "Mean fragmentation",
            Unit::Share,
        ),
        Column::new(
            "end_fragmentation_share",
            "Fragmentation at the end",
            Unit::Share,
        ),
        Column::new("event", "Event", Unit::Event),
    ]);
    for (at, one) in all.iter().enumerate() {
        let (unused, recorded) = (one.unused.as_ref(), one.recorded.as_ref());
        let event = unused
            .map(|one| one.event)
            .or_else(|| recorded.map(|one| one.event));
        if event.is_none() {
            continue;
        }
        table.push([
            named(memory, at).into(),
            unused.map(|one| one.most).into(),
            unused
                .map(|one| one.most as f64 / one.reserved.max(1) as f64)
                .into(),
            unused.map(|one| since_start_ns(start, one.at)).into(),
            unused.map(|one| one.at_peak).into(),
            unused.and_then(|one| one.mean_share).into(),
            unused.map(|one| one.segment_allocs).into(),
            unused.map(|one| one.fragmentation_growths).into(),
            recorded.map(|one| one.most).into(),
            recorded.map(|one| since_start_ns(start, one.at)).into(),
            recorded.and_then(|one| one.mean).into(),
            recorded.map(|one| one.end).into(),
            event.into(),
        ]);
    }
    table
}
