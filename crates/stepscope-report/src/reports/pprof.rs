//! [`stack_samples`] as a report: samples with stacks of pprof files and of other sampling profilers.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Profile, SampleFrame, SampleType};
use stepscope_store::Trace;

use crate::report::number_format;
use crate::report::{
    Cell, Column, Link, Report, Section, Sentence, SentencePart, Table, Unit, sentence,
};
use crate::report::{share, with_thousands};
use crate::reports::Options;
use stepscope_analysis::execution_trace::{
    ExecutionTraceJoin, JoinedTrace, NotJoined, OperatorTimes,
};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::stack_samples::{
    self, FunctionSums, SampleGroup, SampleSums, SampleUnit, by_function, by_labels, by_stack,
    sample_types, sampled,
};

const KIND: &str = "pprof";

pub(super) const BY: &[&str] = &["function", "stack", "label"];

/// Longer stacks are cut: a file can refer to one long name any number of times.
const MAX_STACK_BYTES: usize = 16 << 10;

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let profiles = sampled(trace);
    let (types, first) = sample_types(&profiles);
    let Some(main) = types.get(first).copied() else {
        let reason = "no samples with stacks are in this run";
        return Ok(Report::missing(KIND, reason));
    };
    let mut report = Report::new(KIND);
    let scale = Scale::new(main);
    let all = stack_samples::sum(&profiles, main, cancel)?;
    let join = ExecutionTraceJoin::from_trace(trace, cancel)?;
    let times = join.times(trace, cancel)?;
    report.table = table_of(&profiles, main, options, cancel)?;
    if options.by.as_deref().is_none_or(|by| by == BY[0]) {
        add_times(&mut report.table, &times);
    }
    report.scalar("sample_type", "Type of sample", Unit::Text, &*main.name);
    report.scalar("unit", "Its unit", Unit::Text, &*main.unit);
    report.scalar("samples", "Samples", Unit::Count, all.samples);
    let total = scale.value(all.value);
    let (key, title) = scale.total_key();
    report.scalar(key, title, scale.unit, total);
    report.sentence = sentence!(
        "{} samples hold {} of {}{}.",
        with_thousands(all.samples).link(Link::scalar("samples")),
        scale.text(all.value).link(Link::scalar(key)),
        SentencePart::text(&*main.name),
        costliest(&profiles, main, all, options, cancel)?
    );
    for (at, other) in types.iter().enumerate().filter(|(at, _)| *at != first) {
        let mut table = table_of(&profiles, other, options, cancel)?;
        table.cut(options.top);
        report.sections.push(Section {
            name: Cow::Owned(format!("type_{}", at + 1)),
            title: Cow::Owned(format!("{} ({})", other.name, other.unit)),
            table,
        });
    }
    report.table.cut(options.top);
    for joined in &join.traces {
        report.note(join_note(trace, joined));
    }
    if options.range.is_some() {
        let note = "The file has aggregates of the whole run only: the range has no effect.";
        report.note(note);
    }
    Ok(report)
}

/// Returns the end of the sentence: the function with the largest value of its own.
fn costliest(
    profiles: &[&Profile],
    of: &SampleType,
    all: SampleSums,
    options: &Options,
    cancel: &Cancel,
) -> Result<Option<Sentence>, Cancelled> {
    let functions = by_function(profiles, of, cancel)?;
    let first = functions.first().filter(|one| one.own.value > 0);
    Ok(first.filter(|_| all.value > 0).map(|one| {
        let has_row = options.top > 0 && options.by.as_deref().is_none_or(|by| by == "function");
        let link = has_row.then(|| Link::row("function", one.name));
        sentence!(
            "; {} has most of its own, {}",
            SentencePart::text(number_format::in_sentence(one.name)),
            share(one.own.value as f64 / all.value as f64).link(link)
        )
    }))
}

fn table_of(
    profiles: &[&Profile],
    of: &SampleType,
    options: &Options,
    cancel: &Cancel,
) -> Result<Table, Cancelled> {
    let scale = Scale::new(of);
    let all = stack_samples::sum(profiles, of, cancel)?.value;
    Ok(match options.by.as_deref() {
        Some("stack") => {
            let groups = by_stack(profiles, of, cancel)?;
            let text = |group: &SampleGroup<'_>| {
                let profile = profiles[group.profile];
                stack_text(profile, profile.samples.frames(group.sample))
            };
            groups_table(&groups, ("stack", "Stack"), &scale, all, text)
        }
        Some("label") => {
            let groups = by_labels(profiles, of, cancel)?;
            let text = |group: &SampleGroup<'_>| {
                let labels = stack_samples::labels(profiles[group.profile], group.sample);
                let texts = labels
                    .iter()
                    .map(|label| format!("{}={}", label.key, label.value));
                texts.collect::<Vec<_>>().join(", ")
            };
            groups_table(&groups, ("label", "Labels"), &scale, all, text)
        }
        _ => functions_table(&by_function(profiles, of, cancel)?, &scale, all),
    })
}

fn functions_table(functions: &[FunctionSums<'_>], scale: &Scale, all: i64) -> Table {
    let mut table = Table::new(vec![
        Column::new("function", "Function", Unit::Text),
        Column::new("file", "File", Unit::Text),
        scale.own_column(),
        Column::new("self_share", "Self share", Unit::Share),
        scale.total_column(),
        Column::new("total_share", "Total share", Unit::Share),
        Column::new("samples", "Samples", Unit::Count),
    ]);
    for one in functions {
        table.push([
            one.name.into(),
            one.file.into(),
            scale.value(one.own.value),
            share_of(one.own.value, all),
            scale.value(one.total.value),
            share_of(one.total.value, all),
            one.total.samples.into(),
        ]);
    }
    table
}

/// Adds the times of the slices that operators of execution traces are joined to, as columns of the table of functions.
fn add_times(table: &mut Table, times: &FxHashMap<&str, OperatorTimes>) {
    if times.is_empty() {
        return;
    }
    let has_devices = times.values().any(|times| times.device_ps.is_some());
    table.columns.extend([
        Column::new("joined", "Joined", Unit::Count),
        Column::new("host_ns", "Host time", Unit::Ns),
    ]);
    if has_devices {
        table
            .columns
            .push(Column::new("device_ns", "Device time", Unit::Ns));
    }
    let ns = |ps: i128| Cell::from(ps as f64 / 1e3);
    for row in &mut table.rows {
        let name = match row.first() {
            Some(Cell::Text(name)) => &**name,
            _ => "",
        };
        let found = times.get(name);
        let mut cells = vec![
            found.map_or(Cell::Empty, |times| times.joined.into()),
            found.map_or(Cell::Empty, |times| ns(times.host_ps)),
        ];
        if has_devices {
            let device_ps = found.and_then(|times| times.device_ps);
            cells.push(device_ps.map_or(Cell::Empty, ns));
        }
        row.extend(cells);
    }
}

/// Returns how many operators of an execution trace have the times of their slices, or why none has.
fn join_note(trace: &Trace, joined: &JoinedTrace) -> Sentence {
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let execution_trace = trace.attached().get(joined.attached);
    let own = execution_trace.and_then(|trace| trace.files().first());
    let own = file_name(own.map_or("", |file| &file.spec.path));
    let file = joined.file.and_then(|file| trace.files().get(file));
    let file = file_name(file.map_or("", |file| &file.spec.path));
    let reason = match &joined.outcome {
        Ok(key) => {
            return sentence!(
                "{} of {} operators of '{}' have the times of their slices in '{}', by '{}'.",
                with_thousands(joined.joined),
                with_thousands(joined.operators),
                SentencePart::text(own),
                SentencePart::text(file),
                key.as_str()
            );
        }
        Err(NotJoined::SeveralFiles) => {
            "neither its rank nor its process shows which file of the run it belongs to".to_owned()
        }
        Err(NotJoined::OtherProcess) => "it is of another process than the timeline".to_owned(),
        Err(NotJoined::NoNumbers) => "its operators have no record function ids".to_owned(),
        Err(NotJoined::NoSlices) => {
            format!(
                "no slice in '{file}' has the id of one of its operators: record both at the same time"
            )
        }
        Err(NotJoined::OtherNames { found, same_name }) => format!(
            "of {} ids that slices in '{file}' have, {} belong to operators of the same name: the files are of \
             different recordings",
            number_format::with_thousands(*found),
            number_format::with_thousands(*same_name)
        ),
        Err(NotJoined::Unreadable(error)) => error.to_string(),
    };
    sentence!(
        "No operator of '{}' has the time of a slice: {}.",
        SentencePart::text(own),
        SentencePart::text(reason)
    )
}

fn groups_table(
    groups: &[SampleGroup<'_>],
    (key, title): (&'static str, &'static str),
    scale: &Scale,
    all: i64,
    text: impl Fn(&SampleGroup<'_>) -> String,
) -> Table {
    let mut table = Table::new(vec![
        Column::new(key, title, Unit::Text),
        scale.total_column(),
        Column::new("share", "Share", Unit::Share),
        Column::new("samples", "Samples", Unit::Count),
    ]);
    for group in groups {
        table.push([
            text(group).into(),
            scale.value(group.sums.value),
            share_of(group.sums.value, all),
            group.sums.samples.into(),
        ]);
    }
    table
}

fn share_of(value: i64, all: i64) -> Cell {
    if all == 0 {
        return Cell::Empty;
    }
    (value as f64 / all as f64).into()
}

/// Returns a stack as text, innermost function first.
pub(super) fn stack_text(
    profile: &Profile,
    frames: impl IntoIterator<Item = SampleFrame>,
) -> String {
    let mut text = String::new();
    for frame in frames {
        if text.len() > MAX_STACK_BYTES {
            text.push_str(" < …");
            break;
        }
        if !text.is_empty() {
            text.push_str(" < ");
        }
        text.push_str(&frame_text(profile, frame));
    }
    text
}

/// Returns a frame as text: `load (train.py:12)`.
pub(super) fn frame_text(profile: &Profile, frame: SampleFrame) -> String {
    let Some(row) = profile.rows.get(frame.row as usize) else {
        return String::new();
    };
    match (&*row.file, frame.line) {
        ("", _) => row.name.to_string(),
        (file, 0) => format!("{} ({file})", row.name),
        (file, line) => format!("{} ({file}:{line})", row.name),
    }
}

/// The unit of reports for a type of sample, and the factor to it.
struct Scale {
    unit: Unit,
    factor: f64,
}

impl Scale {
    /// Returns the scale of a type of sample.
    fn new(of: &SampleType) -> Self {
        let (unit, factor) = SampleUnit::from_type(of);
        let unit = match unit {
            SampleUnit::Ns => Unit::Ns,
            SampleUnit::Bytes => Unit::Bytes,
            SampleUnit::Count => Unit::Count,
            SampleUnit::Number => Unit::Number,
        };
        Self { unit, factor }
    }

    #[allow(
        clippy::float_cmp,
        reason = "a factor is exactly 1 or another constant"
    )]
    fn value(&self, value: i64) -> Cell {
        if self.factor == 1.0 {
            return value.into();
        }
        (value as f64 * self.factor).into()
    }

    fn text(&self, value: i64) -> SentencePart {
        let value = value as f64 * self.factor;
        match self.unit {
            Unit::Ns => crate::report::duration(value),
            Unit::Bytes => crate::report::bytes(value),
            unit => SentencePart::value(number_format::significant(value), value, unit),
        }
    }

    const fn total_key(&self) -> (&'static str, &'static str) {
        match self.unit {
            Unit::Ns => ("total_ns", "Total"),
            Unit::Bytes => ("total_bytes", "Total"),
            Unit::Count => ("total_count", "Total"),
            _ => ("total_value", "Total"),
        }
    }

    const fn total_column(&self) -> Column {
        let (key, title) = self.total_key();
        Column::new(key, title, self.unit)
    }

    const fn own_column(&self) -> Column {
        match self.unit {
            Unit::Ns => Column::new("self_ns", "Self", self.unit),
            Unit::Bytes => Column::new("self_bytes", "Self", self.unit),
            Unit::Count => Column::new("self_count", "Self", self.unit),
            _ => Column::new("self_value", "Self", self.unit),
        }
    }
}
