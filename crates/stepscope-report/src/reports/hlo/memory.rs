//! The memory plans of the compiled programs of a run.

mod advice;
mod values;

use stepscope_formats::hlo::Instruction;
use stepscope_hlo::memory::{HOST_SPACE, MAIN_SPACE, Space, program_order};
use stepscope_model::{Cancelled, TrackKind};
use stepscope_store::{FactValue, FileFacts, Trace, Track};

use super::{NO_PROGRAMS, RunProgram, chosen, note_losses};
use crate::peer_profiler::PeerProfiler;
use crate::report::Cell;
use crate::report::{Column, Link, Report, Table, Unit, bytes, count, sentence};
use crate::reports::Options;
use stepscope_analysis::memory::Memory;
use stepscope_analysis::parallel::Cancel;

const KIND: &str = "hlo-memory";

/// Key of the fact with the size of a host's memory.
const HOST_MEMORY: &str = "host.memory_bytes";

const NO_PLAN: &str = "the compiled programs of this run hold no memory plan (buffer assignment)";

pub(in crate::reports) const BY: &[&str] = &[
    "module", "buffer", "class", "shape", "opcode", "scope", "source", "lifetime", "position",
    "advice",
];

/// Returns the name of a memory space on devices of XLA.
fn space_name(number: i64) -> &'static str {
    match number {
        MAIN_SPACE => "device memory",
        HOST_SPACE => "host memory",
        _ => "on-chip memory",
    }
}

pub(in crate::reports) fn make(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, Cancelled> {
    let programs = chosen(trace, options, cancel)?;
    let mut rows: Vec<(&RunProgram, &Space)> = Vec::new();
    for program in &programs {
        cancel.check()?;
        let program: &RunProgram = program;
        rows.extend(
            program
                .plan()
                .into_iter()
                .flat_map(|plan| &plan.spaces)
                .filter(|space| options.space.is_none_or(|number| space.number == number))
                .map(|space| (program, space)),
        );
    }
    if programs.is_empty() {
        return Ok(Report::missing(KIND, NO_PROGRAMS));
    }
    let without_plan = programs
        .iter()
        .filter(|program| program.module.buffers.is_none());
    let without_plan = without_plan.count();
    if rows.is_empty() {
        let reason = match options.space {
            Some(space) if without_plan < programs.len() => {
                format!("the compiled programs of this run use no memory of space {space}")
            }
            _ => NO_PLAN.to_owned(),
        };
        return Ok(Report::missing(KIND, reason));
    }
    rows.sort_by(|(a, left), (b, right)| {
        let peaks = right.live.peak.cmp(&left.live.peak);
        peaks.then_with(|| (&a.key, left.number).cmp(&(&b.key, right.number)))
    });
    let mut table = match options.by.as_deref() {
        None | Some("module") => {
            let mut modules = memory_of_modules(&rows, capacity(trace, cancel)?);
            if options.compat == Some(PeerProfiler::XProf) {
                let peaks = rows.iter();
                let peaks = peaks.map(|(_, space)| Cell::from(space.xprof.peak()));
                let column = Column::new("xprof_peak_bytes", "Peak in XProf", Unit::Bytes);
                modules.insert_column("peak_bytes", column, peaks);
            }
            modules
        }
        Some("position") => positions(&rows),
        Some("advice") => advice::table(&rows, cancel)?,
        Some("lifetime") => values::table(values::all(&rows)),
        Some("buffer") => values::table(values::alive(&rows, options.position)),
        Some(by) => values::groups(&rows, by, options.position),
    };
    table.cut(options.top);
    let mut report = Report::new(KIND);
    report.table = table;
    if let Some((program, space)) = rows.first() {
        report.scalar("peak_bytes", "Largest peak", Unit::Bytes, space.live.peak);
        report.sentence = sentence!(
            "Program {} needs most: {} of {} at its peak, of them {} arguments and {} temporary memory, as the compiler \
             planned it.",
            program.module.name.to_string(),
            bytes(space.live.peak as f64).link(Link::scalar("peak_bytes")),
            space_name(space.number),
            bytes(space.sizes.argument as f64),
            bytes(space.sizes.temp as f64)
        );
    }
    report.scalar("modules", "Modules", Unit::Count, programs.len());
    report.note(
        "The peak counts outputs from their first write, and donated arguments until their last use. XProf takes both as \
         alive from start to end. Order is program order, not time.",
    );
    if without_plan > 0 {
        report.note(sentence!(
            "{} of {} modules hold no memory plan.",
            count(without_plan),
            count(programs.len())
        ));
    }
    note_losses(&mut report, &programs);
    Ok(report)
}

/// Returns the memory of the devices, if all have as much: as the files state it, else as their allocators do (TPUs). A
/// run without devices has that of the host, which recordings of stepscope name.
fn capacity(trace: &Trace, cancel: &Cancel) -> Result<Option<i64>, Cancelled> {
    let common = |is_wanted: &dyn Fn(&str) -> bool| {
        let facts = trace.files().iter().flat_map(|file| &file.facts);
        let facts = facts.filter(|(key, _)| is_wanted(key));
        let mut sizes = facts.filter_map(|(_, value)| match value {
            FactValue::Int(bytes) => Some(*bytes),
            FactValue::Uint(bytes) => i64::try_from(*bytes).ok(),
            FactValue::Text(text) => text.parse().ok(),
            FactValue::Double(_) | FactValue::Bool(_) => None,
        });
        let first = sizes.next().filter(|bytes| *bytes > 0)?;
        sizes.all(|size| size == first).then_some(first)
    };
    let is_device = |key: &str| key.starts_with("device.");
    let has_devices = trace
        .files()
        .iter()
        .any(|file| file.facts.iter().any(|(key, _)| is_device(key)));
    let is_queue = |track: &Track| track.kind == TrackKind::DeviceQueue;
    if !has_devices && !trace.tracks().iter().any(is_queue) {
        return Ok(common(&|key| key == HOST_MEMORY));
    }
    let is_stated = |key: &str| is_device(key) && key.ends_with(".memory_bytes");
    let stated = |file: &FileFacts| file.facts.iter().any(|(key, _)| is_stated(key));
    if trace.files().iter().any(stated) {
        return Ok(common(&is_stated));
    }
    let memory = Memory::read(trace, cancel)?;
    let of_devices = memory.allocators.iter().filter(|one| one.device.is_some());
    let mut sizes = of_devices.map(|allocator| allocator.capacity);
    let first = sizes.next().flatten();
    Ok(first.filter(|first| sizes.all(|size| size == Some(*first))))
}

fn memory_of_modules(rows: &[(&RunProgram, &Space)], capacity: Option<i64>) -> Table {
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("space", "Space", Unit::Number),
        Column::new("space_name", "Memory", Unit::Text),
        Column::new("peak_bytes", "Peak", Unit::Bytes),
        Column::new("argument_bytes", "Arguments", Unit::Bytes),
        Column::new("output_bytes", "Outputs", Unit::Bytes),
        Column::new("alias_bytes", "Outputs in arguments", Unit::Bytes),
        Column::new("temp_bytes", "Temporary", Unit::Bytes),
        Column::new("constant_bytes", "Constants", Unit::Bytes),
        Column::new("padding_bytes", "Padding at the peak", Unit::Bytes),
        Column::new("fragmentation_bytes", "Fragmentation", Unit::Bytes),
        Column::new("temp_values_bytes", "Temporary values", Unit::Bytes),
        Column::new("capacity_bytes", "Capacity", Unit::Bytes),
        Column::new("peak_op", "Operation at the peak", Unit::Text),
        Column::new("peak_op_name", "Its name in the program", Unit::Text),
    ]);
    for (program, space) in rows {
        let live = &space.live;
        let at_peak: Option<&Instruction> = live
            .peak_instruction
            .map(|at| program.module.instruction(at));
        let alive = live.alive_at(live.peak_position);
        let padding = alive.fold(0_u64, |sum, value| sum.saturating_add(value.padding));
        let fragmentation = space
            .xprof
            .has_trace
            .then(|| space.sizes.temp.saturating_sub(space.xprof.heap_peak));
        table.push([
            (&*program.module.name).into(),
            program.key.id.to_string().into(),
            space.number.into(),
            space_name(space.number).into(),
            live.peak.into(),
            space.sizes.argument.into(),
            space.sizes.output.into(),
            space.sizes.alias.into(),
            space.sizes.temp.into(),
            space.sizes.constant.into(),
            padding.into(),
            fragmentation.map_or(Cell::Empty, Cell::from),
            live.temporary_values().into(),
            capacity.filter(|_| space.number == MAIN_SPACE).into(),
            at_peak.map(|instruction| &*instruction.name).into(),
            at_peak
                .map(|instruction| &*instruction.origin.op_name)
                .into(),
        ]);
    }
    table
}

/// The curve: each position of program order at which the live bytes change.
fn positions(rows: &[(&RunProgram, &Space)]) -> Table {
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("space", "Space", Unit::Number),
        Column::new("position", "Position", Unit::Number),
        Column::new("live_bytes", "Live", Unit::Bytes),
        Column::new("op", "Operation", Unit::Text),
        Column::new("opcode", "Opcode", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
    ]);
    for (program, space) in rows {
        let order = program_order(&program.module);
        for (position, bytes) in space.live.curve.iter().copied() {
            let at = order.get(position as usize);
            let instruction = at.map(|at| program.module.instruction(*at));
            table.push([
                (&*program.module.name).into(),
                program.key.id.to_string().into(),
                space.number.into(),
                i64::from(position).into(),
                bytes.into(),
                instruction.map(|one| &*one.name).into(),
                instruction.map(|one| &*one.opcode).into(),
                instruction.map(|one| &*one.origin.op_name).into(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgValue, EventSink as _};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    fn capacity_with(hosts: &[&[(&str, ArgValue<'_>)]]) -> Option<i64> {
        let mut builder = TraceBuilder::new();
        for facts in hosts {
            let mut sink = builder.file(FileSpec::default());
            for (key, value) in *facts {
                sink.fact(key, *value);
            }
            builder.add(sink);
        }
        capacity(&builder.finish(), &Cancel::default()).unwrap()
    }

    #[test]
    fn capacity_is_that_of_the_devices_else_of_the_host() {
        let host = (HOST_MEMORY, ArgValue::Str("64"));
        let device = ("device.0.memory_bytes", ArgValue::Uint(80));
        assert_eq!(capacity_with(&[&[host]]), Some(64));
        assert_eq!(capacity_with(&[&[host, device]]), Some(80));
        let other = ("device.1.memory_bytes", ArgValue::Int(90));
        assert_eq!(capacity_with(&[&[device, other]]), None);
        // Devices of unknown size: the host's memory is not theirs.
        assert_eq!(
            capacity_with(&[&[host, ("device.0.name", ArgValue::Str("x"))]]),
            None
        );
        assert_eq!(
            capacity_with(&[&[host], &[(HOST_MEMORY, ArgValue::Str("32"))]]),
            None
        );
        assert_eq!(capacity_with(&[]), None);
    }
}
