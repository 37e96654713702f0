//! JAX's device memory profiles: live arrays and executables by the function that made them.

use std::collections::BTreeMap;

use stepscope_store::Trace;

use super::KIND;
use crate::report::{Column, Link, Report, Table, Unit, bytes, sentence, with_thousands};
use crate::reports::Options;
use crate::reports::pprof::{frame_text, stack_text};
use stepscope_analysis::stack_samples::{LiveMemory, live_memory};

/// Name of a group of live arrays that were made without a Python function.
const NO_STACK: &str = "no stack";

/// Returns the report of the live memory in a run; `None` if the run has none.
pub(super) fn report(trace: &Trace, options: &Options) -> Option<Report> {
    let live = live_memory(trace);
    if live.is_empty() {
        return None;
    }
    let mut report = Report::new(KIND);
    let devices = by_device(&live);
    let mut device_table = Table::new(vec![
        Column::new("device", "Device", Unit::Text),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("size_bytes", "Size", Unit::Bytes),
    ]);
    for ((device, kind), sums) in &devices {
        device_table.push([
            (*device).into(),
            (*kind).into(),
            sums.count.into(),
            sums.bytes.into(),
        ]);
    }
    report.table = match options.by.as_deref() {
        Some("allocator" | "category") => device_table.clone(),
        Some("stack") => group_table(&live, ("stack", "Stack"), |one| {
            stack_text(one.profile, one.user_frames())
        }),
        _ => group_table(&live, ("function", "Function"), |one| {
            let innermost = one.user_frames().first().copied();
            innermost.map_or_else(String::new, |frame| frame_text(one.profile, frame))
        }),
    };
    report.table.cut(options.top);
    let sum = |kind: &str| {
        let all = devices.iter().filter(|((_, known), _)| *known == kind);
        all.fold(Sums::default(), |sum, (_, one)| sum.plus(*one))
    };
    let (buffers, executables) = (sum("buffer"), sum("executable"));
    report.scalar("buffers", "Live arrays", Unit::Count, buffers.count);
    report.scalar("buffer_bytes", "Their size", Unit::Bytes, buffers.bytes);
    report.scalar("executables", "Executables", Unit::Count, executables.count);
    report.scalar(
        "executable_bytes",
        "Their code",
        Unit::Bytes,
        executables.bytes,
    );
    let of_buffers = devices.iter().filter(|((_, kind), _)| *kind == "buffer");
    let fullest =
        of_buffers.max_by_key(|((device, _), sums)| (sums.bytes, std::cmp::Reverse(*device)));
    let on_fullest = fullest.map(|((device, _), sums)| {
        sentence!(
            "; {} holds most, {}",
            *device,
            bytes(sums.bytes as f64).link(Link::section("devices"))
        )
    });
    report.sentence = sentence!(
        "{} live arrays take {}{}.",
        with_thousands(buffers.count).link(Link::scalar("buffers")),
        bytes(buffers.bytes as f64).link(Link::scalar("buffer_bytes")),
        on_fullest
    );
    report.section("devices", "Live memory by device", device_table);
    report.note(
        "The profile shows one instant: arrays that were alive then, and the code of compiled programs. Memory inside a \
         running program is in report 'hlo-memory' of its trace.",
    );
    report.note("Functions inside JAX are left out of the stacks; report 'pprof' with rows 'stack' shows them.");
    if options.range.is_some() {
        report.note("The profile has no times: the range has no effect.");
    }
    Some(report)
}

/// Counts and bytes of one group.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: i64,
    bytes: i64,
}

impl Sums {
    const fn plus(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    const fn from_sample(one: &LiveMemory<'_>) -> Self {
        Self {
            count: one.count,
            bytes: one.bytes,
        }
    }
}

/// Sums by device and kind.
fn by_device<'a>(live: &[LiveMemory<'a>]) -> BTreeMap<(&'a str, &'a str), Sums> {
    let mut found: BTreeMap<(&str, &str), Sums> = BTreeMap::new();
    for one in live {
        let sums = found.entry((one.device, one.kind)).or_default();
        *sums = sums.plus(Sums::from_sample(one));
    }
    found
}

/// Sums by a text, kind and device, the largest first.
fn group_table(
    live: &[LiveMemory<'_>],
    (key, title): (&'static str, &'static str),
    text: impl Fn(&LiveMemory<'_>) -> String,
) -> Table {
    let mut found: BTreeMap<(String, &str, &str), Sums> = BTreeMap::new();
    for one in live {
        let mut text = text(one);
        if text.is_empty() {
            NO_STACK.clone_into(&mut text);
        }
        let sums = found.entry((text, one.device, one.kind)).or_default();
        *sums = sums.plus(Sums::from_sample(one));
    }
    let mut rows: Vec<_> = found.into_iter().collect();
    rows.sort_by_key(|(_, sums)| std::cmp::Reverse((sums.bytes, sums.count)));
    let mut table = Table::new(vec![
        Column::new(key, title, Unit::Text),
        Column::new("device", "Device", Unit::Text),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("size_bytes", "Size", Unit::Bytes),
    ]);
    for ((text, device, kind), sums) in rows {
        table.push([
            text.into(),
            device.into(),
            kind.into(),
            sums.count.into(),
            sums.bytes.into(),
        ]);
    }
    table
}
