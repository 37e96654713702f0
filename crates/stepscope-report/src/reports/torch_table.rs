//! [`torch`](stepscope_compat::torch) as a report: `key_averages().table()` from files alone.

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use crate::report::{
    Cell, Column, Link, Report, Sentence, SentencePart, Table, Unit, count, duration, in_sentence,
    sentence, with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::parallel::Cancel;
use stepscope_compat::torch::{self, KeyAverage, KeyAverages, SortBy, TableOptions, TorchGrouping};

const KIND: &str = "torch-table";

/// Number of innermost frames that distinguish stacks.
const FRAMES: usize = 5;

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let by = options.by.as_deref();
    let grouping = TorchGrouping {
        input_shape: by == Some("shape"),
        stack: if by == Some("stack") { FRAMES } else { 0 },
        overload_name: by == Some("overload"),
    };
    let range = options.range.as_ref();
    let mut averages = torch::averages(trace, grouping, range, cancel)?;
    cancel.check()?;
    if averages.rows.is_empty() {
        return Ok(Report::missing(
            KIND,
            "no operators of PyTorch lie in this run",
        ));
    }
    averages.sort(if averages.has_device_time() {
        SortBy::SelfDeviceTimeTotal
    } else {
        SortBy::SelfCpuTimeTotal
    });
    let mut report = Report::new(KIND);
    describe(&mut report, &averages);
    report.text = Some(averages.table(&TableOptions {
        row_limit: Some(options.top),
        ..TableOptions::default()
    }));
    report.table = rows(&averages, grouping);
    report.table.cut(options.top);
    notes(&mut report, &averages, grouping);
    Ok(report)
}

fn describe(report: &mut Report, averages: &KeyAverages) {
    let on_cpu = averages.self_cpu_time_total();
    let on_device = averages.self_device_time_total();
    let first = averages.rows.first();
    report.sentence = match (first, averages.has_device_time()) {
        (Some(row), true) => sentence!(
            "On the device, {} took {} of {}.",
            in_sentence(&row.key),
            duration(row.self_device_time_total * 1e3).link(Link::row("key", &*row.key)),
            duration(on_device * 1e3).link(Link::scalar("self_device_time_total_us"))
        ),
        (Some(row), false) => sentence!(
            "On the host, {} took {} of {}.",
            in_sentence(&row.key),
            duration(row.self_cpu_time_total * 1e3).link(Link::row("key", &*row.key)),
            duration(on_cpu * 1e3).link(Link::scalar("self_cpu_time_total_us"))
        ),
        (None, _) => Sentence::default(),
    };
    report.scalar(
        "self_cpu_time_total_us",
        "Self CPU time total",
        Unit::Us,
        on_cpu,
    );
    if averages.has_device_time() {
        report.scalar(
            "self_device_time_total_us",
            "Self device time total",
            Unit::Us,
            on_device,
        );
    }
    let calls: u64 = averages.rows.iter().map(|row| row.count).sum();
    report.scalar("calls", "Calls", Unit::Count, calls);
}

/// Returns the note on device events that no operator has; `None` without any.
pub fn unlinked_device_events(events: &KeyAverages) -> Option<Sentence> {
    (events.unlinked > 0).then(|| {
        sentence!(
            "{} device events name no operator and no call that launched them; they count in their own rows only",
            with_thousands(events.unlinked)
        )
    })
}

fn notes(report: &mut Report, events: &KeyAverages, grouping: TorchGrouping) {
    report.notes.extend(unlinked_device_events(events));
    if events.files.len() > 1 {
        report.note(sentence!(
            "{} files of the run are summed up",
            count(events.files.len())
        ));
    }
    if events.with_flops {
        report.note(
            "FLOPs are counted here from input shapes, by torch's formulas; they are not in the file",
        );
    }
    let rows = &report.table;
    let empty = |key: &str| {
        let column = rows.columns.iter().position(|column| column.key == key);
        column.is_none_or(|at| {
            rows.rows.iter().all(|row| match row.get(at) {
                Some(Cell::Text(text)) => text.is_empty() || text == "[]",
                Some(Cell::List(list)) => list.is_empty(),
                _ => true,
            })
        })
    };
    for (wanted, key, what, fix) in [
        (
            grouping.input_shape,
            "input_shapes",
            "Input shapes",
            "record_shapes=True",
        ),
        (grouping.stack > 0, "stack", "Stacks", "with_stack=True"),
    ] {
        if wanted && empty(key) {
            report.notes.push(sentence!(
                "{} were not recorded: {}",
                what,
                SentencePart::code(format!("torch.profiler.profile({fix})"))
            ));
        }
    }
}

/// A column of some tables only: whether it is shown, the column, and its values.
type Optional = (bool, Column, fn(&KeyAverage) -> Cell);

fn rows(averages: &KeyAverages, grouping: TorchGrouping) -> Table {
    let on_cpu = averages.self_cpu_time_total();
    let on_device = averages.self_device_time_total();
    let device = averages.has_device_time();
    let memory = averages.profile_memory;
    let device_memory = memory && averages.has_device_memory();
    let share = |key, title| Column::new(key, title, Unit::Share);
    let us = |key, title| Column::new(key, title, Unit::Us);
    let bytes = |key, title| Column::new(key, title, Unit::Bytes);
    let plain: [Optional; 19] = [
        (true, Column::new("key", "Name", Unit::Text), |row| {
            row.key.as_str().into()
        }),
        (
            grouping.overload_name,
            Column::new("overload_name", "Overload", Unit::Text),
            |row| row.overload_name.as_str().into(),
        ),
        (
            grouping.input_shape,
            Column::new("input_shapes", "Input shapes", Unit::Text),
            |row| row.input_shapes.as_str().into(),
        ),
        (
            grouping.stack > 0,
            Column::new("stack", "Stack", Unit::Text),
            |row| row.stack.clone().into(),
        ),
        (
            true,
            Column::new("count", "# of Calls", Unit::Count),
            |row| row.count.into(),
        ),
        (true, us("self_cpu_time_total_us", "Self CPU"), |row| {
            row.self_cpu_time_total.into()
        }),
        (true, us("cpu_time_total_us", "CPU total"), |row| {
            row.cpu_time_total.into()
        }),
        (true, us("cpu_time_us", "CPU time avg"), |row| {
            row.cpu_time().into()
        }),
        (
            true,
            us("self_device_time_total_us", "Self device"),
            |row| row.self_device_time_total.into(),
        ),
        (true, us("device_time_total_us", "Device total"), |row| {
            row.device_time_total.into()
        }),
        (device, us("device_time_us", "Device time avg"), |row| {
            row.device_time().into()
        }),
        (memory, bytes("cpu_memory_usage_bytes", "CPU Mem"), |row| {
            row.cpu_memory_usage.into()
        }),
        (
            memory,
            bytes("self_cpu_memory_usage_bytes", "Self CPU Mem"),
            |row| row.self_cpu_memory_usage.into(),
        ),
        (
            device_memory,
            bytes("device_memory_usage_bytes", "Device Mem"),
            |row| row.device_memory_usage.into(),
        ),
        (
            device_memory,
            bytes("self_device_memory_usage_bytes", "Self device Mem"),
            |row| row.self_device_memory_usage.into(),
        ),
        (
            averages.with_flops,
            Column::new("flops", "FLOPs", Unit::Count),
            |row| row.flops.into(),
        ),
        (
            true,
            Column::new("device_type", "Where", Unit::Text),
            |row| row.device.as_str().into(),
        ),
        (
            true,
            Column::new("is_user_annotation", "Label", Unit::Flag),
            |row| row.is_user_annotation.into(),
        ),
        (true, Column::new("is_async", "Async", Unit::Flag), |row| {
            row.is_async.into()
        }),
    ];
    let shown: Vec<&Optional> = plain.iter().filter(|(shown, ..)| *shown).collect();
    let mut columns: Vec<Column> = shown.iter().map(|(_, column, _)| column.clone()).collect();
    columns.push(share("self_cpu_share", "Self CPU %"));
    columns.push(share("cpu_total_share", "CPU total %"));
    if device {
        columns.push(share("self_device_share", "Self device %"));
    }
    let mut table = Table::new(columns);
    for row in &averages.rows {
        let mut cells: Vec<Cell> = shown.iter().map(|(_, _, value)| value(row)).collect();
        // Division by zero gives a value that is not finite, which becomes an empty cell.
        cells.push((row.self_cpu_time_total / on_cpu).into());
        cells.push(if row.is_async {
            Cell::Number(0.0)
        } else {
            (row.cpu_time_total / on_cpu).into()
        });
        if device {
            cells.push((row.self_device_time_total / on_device).into());
        }
        table.rows.push(cells);
    }
    table
}
