//! [`critical_path`](stepscope_analysis::critical_path) as a report.

mod off_path;
mod selector;

use stepscope_model::{Cancelled, Time};
use stepscope_store::Trace;

use crate::report::visible_text::short_within;
use crate::report::{
    Cell, Column, Link, Report, SentencePart, Table, Unit, count, duration, in_sentence,
    number_format, run_start, sentence, share, short_symbol_name, since_start_ns,
};
use crate::reports::{Options, ReportError};
use stepscope_analysis::critical_path::graph::{EdgeConfidence, LagKind};
use stepscope_analysis::critical_path::groups::{PathGroup, PathGrouping, PathKey, segments_named};
use stepscope_analysis::critical_path::path::PathKind;
use stepscope_analysis::critical_path::prediction::PathShare;
use stepscope_analysis::critical_path::spec::{
    PRESETS, Scenario, SpecCause, SpecError, parse, preset,
};
use stepscope_analysis::critical_path::totals::PathTotals;
use stepscope_analysis::critical_path::{CriticalPath, MAX_SLICES, PathScope, critical_path};
use stepscope_analysis::op_class::OpClass;
use stepscope_analysis::parallel::{self, Cancel};

const KIND: &str = "critical-path";

/// Row types.
pub(super) const BY: &[&str] = &[
    "op", "kind", "kernel", "module", "class", "rank", "thread", "segment", "step",
];

/// Number of operations whose possible savings are computed.
const SAVINGS: usize = 10;
/// Maximum number of segments of a graph for which the savings of operations and the slack of what is off the path are
/// computed without a request, and the unchanged replay is checked.
const MAX_SAVINGS_SEGMENTS: usize = 1_000_000;
/// Error of the structural replay above which predictions, and the savings of rows, need `force`.
const MAX_ERROR: f64 = 0.15;
/// Error of the structural replay above which predictions are rough.
const ROUGH_ERROR: f64 = 0.05;
/// Text of the time of the steps' thread without a slice.
const NOTHING: &str = "(nothing recorded)";

/// Reads the scenarios of a request: those of `what_if`, then the presets.
pub(super) fn scenarios(options: &Options) -> Result<Vec<Scenario>, (String, SpecError)> {
    let mut found = Vec::new();
    for text in &options.what_if {
        found.push(parse(text).map_err(|error| (text.clone(), error))?);
    }
    for name in &options.presets {
        found.extend(preset(name).map_err(|error| (name.clone(), error))?);
    }
    Ok(found)
}

/// Describes a mistake in a scenario.
pub(super) fn mistake(text: &str, error: &SpecError) -> ReportError {
    let what_if = |cause: &str, help: String| ReportError::WhatIf {
        cause: format!(
            "cannot read what-if '{text}' at position {}: {cause}",
            error.position
        ),
        help,
    };
    let (cause, help) = match error.cause {
        SpecCause::NoChange => (
            "no change follows",
            "write SELECTOR=CHANGE with one of x0.5, 0, 120us, median, mean, fastest",
        ),
        SpecCause::Selector => (
            "the selector is unknown",
            "use op:, host:, kernel:, class:, module:, rank:N, ranks, device, host, communication, copy, input, \
             compile, launch, launch_latency, kernel_gap, event_wait, handover, sync or sync_return",
        ),
        SpecCause::Number => (
            "the number cannot be read",
            "write a whole number, such as rank:3",
        ),
        SpecCause::Phase => (
            "the phase is unknown",
            "use forward, backward, optimizer, input or other",
        ),
        SpecCause::Class => {
            let names = OpClass::ALL.map(OpClass::as_str);
            let names: Vec<&str> = names
                .iter()
                .map(|name| name.split(',').next().unwrap_or(name))
                .collect();
            let help = format!("use one of {}", names.join(", "));
            return what_if("the class is unknown", help);
        }
        SpecCause::Unsupported => (
            "the selector does not support this change",
            "lags take xFACTOR, 0 or a time; sync takes 0",
        ),
        SpecCause::Preset => {
            let names = PRESETS.map(|preset| preset.name).join(", ");
            return ReportError::WhatIf {
                cause: format!("cannot apply preset '{text}': it is unknown"),
                help: format!("use one of {names}"),
            };
        }
    };
    what_if(cause, help.to_owned())
}

fn grouping(by: Option<&str>) -> Option<PathGrouping> {
    Some(match by {
        None | Some("op") => PathGrouping::Op,
        Some("kind") => PathGrouping::Kind,
        Some("kernel") => PathGrouping::Kernel,
        Some("module") => PathGrouping::Module,
        Some("class") => PathGrouping::Class,
        Some("rank") => PathGrouping::Rank,
        Some("thread") => PathGrouping::Thread,
        Some("step") => PathGrouping::Step,
        Some(_) => return None,
    })
}

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let scope = PathScope {
        steps: options.scope(),
        end: options.until,
    };
    let found = critical_path(trace, &scope, cancel)?;
    let Some(path) = found else {
        return Ok(Report::missing(
            KIND,
            "no thread or device with events is in this run",
        ));
    };
    cancel.check()?;
    let mut report = Report::new(KIND);
    let checks_replay = path.graph().len() <= MAX_SAVINGS_SEGMENTS;
    let exact = checks_replay.then(|| path.exact_replay());
    // The error needs a replay of one thread; the sums use what is left of the processors.
    let sums = || Ok((path.totals(), path.groups(PathGrouping::Op)));
    let (replay_error, (totals, operations)) = parallel::both(|| Ok(error_share(&path)), sums)?;
    cancel.check()?;
    let shows_predictions = replay_error.abs() <= MAX_ERROR || options.force;
    summary(&mut report, &path, replay_error);
    report.sentence = sentence_of(&path, totals, operations);
    let title_rows = match grouping(options.by.as_deref()) {
        None => segments(&path, options.top),
        Some(by) => groups(&path, by, path.groups(by), shows_predictions, cancel)?,
    };
    report.table = title_rows;
    report.table.cut(options.top);
    report.section("edges", "Edges", edges(&path));
    if checks_replay {
        let mut table = off_path::off_path(&path);
        table.cut(options.top);
        if !table.rows.is_empty() {
            report.section("off_path", "Off the path", table);
        }
    }
    let wants_faster = options.presets.iter().any(|name| name == "faster-ops");
    // The check of the options has read them before.
    let scenarios = scenarios(options).unwrap_or_default();
    let predicts = !scenarios.is_empty() || wants_faster;
    if predicts {
        let faster = wants_faster.then_some(operations);
        what_if(
            &mut report,
            &path,
            &scenarios,
            faster,
            (shows_predictions, replay_error),
            cancel,
        )?;
    }
    notes(&mut report, &path, exact);
    // Predictions have a note of their own.
    if replay_error.abs() > MAX_ERROR && !predicts {
        report.note(sentence!(
            "With the smallest lags of its devices, the window would differ by {}: lags decide much of it.{}",
            share(replay_error.abs()).link(Link::scalar("replay_error_share")),
            if shows_predictions {
                ""
            } else {
                " The savings of rows are not shown. Option --force shows them."
            }
        ));
    }
    Ok(report)
}

/// Returns the relative error of the structural replay.
fn error_share(path: &CriticalPath<'_>) -> f64 {
    let length = path.length();
    if length == 0 {
        return 0.0;
    }
    path.structural_replay().saturating_sub(length) as f64 / length as f64
}

fn ns(ps: i64) -> f64 {
    ps as f64 / 1_000.0
}

fn summary(report: &mut Report, path: &CriticalPath<'_>, replay_error: f64) {
    let totals = path.totals();
    report.scalar("window_ns", "Window", Unit::Ns, ns(path.length()));
    report.scalar("steps", "Steps", Unit::Count, path.steps.len());
    report.scalar("path_ns", "Path", Unit::Ns, ns(totals.length()));
    let of = |kind: PathKind| ns(totals.by_kind[kind as usize]);
    let fine = totals.fine;
    let figures = [
        ("host_ns", "Host", ns(fine.host)),
        ("input_ns", "Input", ns(fine.input)),
        ("compile_ns", "Compilation", ns(fine.compile)),
        ("device_compute_ns", "Device computation", ns(fine.compute)),
        (
            "communication_ns",
            "Communication",
            of(PathKind::Communication),
        ),
        ("copy_ns", "Copies", ns(fine.copy)),
        (
            "launch_latency_ns",
            "Launch latency",
            of(PathKind::LaunchLatency),
        ),
        ("kernel_gap_ns", "Kernel gaps", of(PathKind::KernelGap)),
        ("event_wait_ns", "Event waits", of(PathKind::EventWait)),
        (
            "sync_return_ns",
            "Returns of waits",
            of(PathKind::SyncReturn),
        ),
        (
            "handover_ns",
            "Hand-overs between threads",
            of(PathKind::Handover),
        ),
        ("unknown_ns", "Unknown", of(PathKind::Unknown)),
    ];
    for (key, title, value) in figures {
        report.scalar(key, title, Unit::Ns, value);
    }
    let length = path.length();
    let part = (length > 0).then(|| totals.inferred as f64 / length as f64);
    report.scalar("inferred_share", "On inferred edges", Unit::Share, part);
    report.scalar(
        "replay_error_share",
        "Replay error",
        Unit::Share,
        replay_error,
    );
    let error = path.clock_error.map(stepscope_model::Dur::as_ns_f64);
    report.scalar("clock_error_ns", "Clock error", Unit::Ns, error);
    report.scalar(
        "contradictions",
        "Contradictions",
        Unit::Count,
        path.blocks.graph.contradictions,
    );
    report.scalar(
        "ranks_crossed",
        "Changes of rank",
        Unit::Count,
        path.changes_of_file(),
    );
    report.scalar("segments", "Segments", Unit::Count, path.graph().len());
}

fn sentence_of(
    path: &CriticalPath<'_>,
    totals: &PathTotals,
    operations: &[PathGroup],
) -> crate::report::Sentence {
    let of = |kind: PathKind| ns(totals.by_kind[kind as usize]);
    let (device, transfers) = (of(PathKind::Device), of(PathKind::Communication));
    let is_on_devices = device > 0.0 || transfers == 0.0;
    let window = duration(ns(path.length())).link(Link::scalar("window_ns"));
    let longest = operations
        .iter()
        .find(|row| row.kind.is_some_and(PathKind::is_segment));
    if let Some(row) = longest {
        sentence!(
            "Of {}, {} on the critical path are {} and {} on the host; the largest part is {} ({}).",
            window,
            duration(device + transfers),
            if is_on_devices {
                "on devices"
            } else {
                "in collectives"
            },
            duration(of(PathKind::Host)).link(Link::scalar("host_ns")),
            SentencePart::text(in_sentence(&key_text(path, row))).link(row.event.map(Link::Event)),
            duration(ns(row.path_ps))
        )
    } else {
        sentence!(
            "The window lasts {}, and none of its time is recorded.",
            window
        )
    }
}

/// Returns the text of a row's key.
fn key_text(path: &CriticalPath<'_>, row: &PathGroup) -> String {
    let trace = path.trace;
    match row.key {
        PathKey::Name(name) => trace.name(name).to_owned(),
        PathKey::NothingRecorded => NOTHING.to_owned(),
        PathKey::Kind(kind) if row.kind.is_some() => format!("({})", kind.label()),
        PathKey::Kind(kind) => kind.as_str().to_owned(),
        PathKey::Class(class) => class.as_str().to_owned(),
        PathKey::Rank(rank) => format!("rank {rank}"),
        PathKey::Queue(queue) => queue_name(path, queue),
        PathKey::Step(number) => format!("step {number}"),
        PathKey::None => "(none)".to_owned(),
    }
}

/// Number of shares that say what binds after a scenario.
const BINDING: usize = 3;
/// Longest name among them, characters.
const LONGEST_NAME: usize = 40;

/// Writes the largest shares of a path: `gemm 61.0 %, (launch latency) 20.0 %`.
fn largest(path: &CriticalPath<'_>, shares: &[PathShare], window_ps: i64) -> String {
    let shares = shares.iter().take(BINDING).map(|found| {
        let name = match (found.name, found.kind) {
            (Some(name), _) => {
                let name = short_symbol_name(path.trace.name(name));
                short_within(&name, LONGEST_NAME)
            }
            (None, PathKind::Host) => NOTHING.to_owned(),
            (None, kind) => format!("({})", kind.label()),
        };
        let part = found.ps as f64 / window_ps.max(1) as f64;
        format!("{name} {}", number_format::share(part))
    });
    shares.collect::<Vec<_>>().join(", ")
}

/// Returns the name of a thread or device queue with that of its group, and its host where there are several.
fn queue_name(path: &CriticalPath<'_>, queue: u32) -> String {
    let Some(queue) = path.segments.queues.get(queue as usize) else {
        return String::new();
    };
    let tracks = path.trace.tracks();
    let Some(track) = tracks.get(queue.track().index()) else {
        return String::new();
    };
    let mut name = track.name.clone();
    let group = track.parent.and_then(|group| tracks.get(group.index()));
    if let Some(group) = group.filter(|_| queue.device.is_some()) {
        name = format!("{} {name}", group.name);
    }
    match path.trace.files().get(queue.file) {
        Some(file) if path.trace.files().len() > 1 => format!("{}/{name}", file.spec.host),
        _ => name,
    }
}

fn groups(
    path: &CriticalPath<'_>,
    by: PathGrouping,
    rows: &[PathGroup],
    shows_predictions: bool,
    cancel: &Cancel,
) -> Result<Table, Cancelled> {
    let mut table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("duration_ns", "On the path", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("per_step_ns", "Per step", Unit::Ns),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "On and off the path", Unit::Ns),
        Column::new("inferred_ns", "On inferred edges", Unit::Ns),
        Column::new("saving_2x_ns", "Saving if 2x faster", Unit::Ns),
        Column::new("saving_all_ns", "Saving if free", Unit::Ns),
        Column::new("selector", "Selector", Unit::Text),
        Column::new("event", "Longest", Unit::Event),
    ]);
    let length = path.length();
    let steps = path.steps.len().max(1) as f64;
    let by_kind = by == PathGrouping::Kind;
    let with_savings = shows_predictions && path.graph().len() <= MAX_SAVINGS_SEGMENTS;
    let mut savings_left = if with_savings { SAVINGS } else { 0 };
    for row in rows {
        let kind = row.kind.filter(|kind| kind.is_segment());
        let savings = match (row.key, kind) {
            (PathKey::Name(name), Some(kind)) if savings_left > 0 => {
                cancel.check()?;
                savings_left -= 1;
                let selected = segments_named(path, name, kind);
                [0.5, 0.0].map(|factor| {
                    Some(ns(length.saturating_sub(
                        path.what_if_selected(selected.clone(), factor),
                    )))
                })
            }
            _ => [None, None],
        };
        let name = match row.key {
            PathKey::Kind(kind) if by_kind => kind.as_str().to_owned(),
            _ => key_text(path, row),
        };
        let has_total = row.kind.is_none_or(PathKind::is_segment);
        table.push([
            name.into(),
            row.kind.map(PathKind::as_str).into(),
            ns(row.path_ps).into(),
            (length > 0)
                .then(|| row.path_ps as f64 / length as f64)
                .into(),
            (ns(row.path_ps) / steps).into(),
            row.count.into(),
            (has_total && row.total_ps > 0)
                .then(|| ns(row.total_ps))
                .into(),
            ns(row.inferred_ps).into(),
            savings[0].into(),
            savings[1].into(),
            selector::selector(path, row, by).into(),
            row.event.into(),
        ]);
    }
    table.add_short("name", "short_name", "Name, short");
    Ok(table)
}

fn segments(path: &CriticalPath<'_>, top: usize) -> Table {
    let mut table = Table::new(vec![
        Column::new("kind", "Kind", Unit::Text),
        Column::new("name", "Name", Unit::Text),
        Column::new("queue", "Thread or queue", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Length", Unit::Ns),
        Column::new("edge", "Edge", Unit::Text),
        Column::new("event", "Event", Unit::Event),
    ]);
    let start = run_start(path.trace);
    table.left_out = path.totals().rows.saturating_sub(top) as u64;
    for row in path.first_rows(top) {
        let segment = row.segment as usize;
        let queue = path.graph().queue[segment];
        let name = path
            .name(segment)
            .map_or(NOTHING, |name| path.trace.name(name));
        table.push([
            row.kind.as_str().into(),
            name.into(),
            queue_name(path, queue).into(),
            since_start_ns(start, Time::from_ps(row.begin)).into(),
            ns(row.length()).into(),
            row.edge.as_str().into(),
            path.event(segment).into(),
        ]);
    }
    table.add_short("name", "short_name", "Name, short");
    table
}

fn edges(path: &CriticalPath<'_>) -> Table {
    let mut table = Table::new(vec![
        Column::new("kind", "Kind", Unit::Text),
        Column::new("edge", "Confidence", Unit::Text),
        Column::new("count", "Edges", Unit::Count),
    ]);
    let counts = path.edge_counts();
    for kind in LagKind::ALL {
        for confidence in EdgeConfidence::ALL {
            let count = counts[kind as usize][confidence as usize];
            if count > 0 {
                table.push([
                    kind.as_str().into(),
                    confidence.as_str().into(),
                    count.into(),
                ]);
            }
        }
    }
    let ordered = path.graph().queues.iter().filter(|queue| queue.is_ordered);
    let ordered = ordered.map(|queue| (queue.end - queue.first).saturating_sub(1) as usize);
    table.push([
        "queue_order".into(),
        EdgeConfidence::Ordered.as_str().into(),
        ordered.sum::<usize>().into(),
    ]);
    let groups = path.blocks.graph.groups.len();
    if groups > 0 {
        table.push([
            "collective".into(),
            EdgeConfidence::Recorded.as_str().into(),
            groups.into(),
        ]);
    }
    table
}

/// What a scenario gives, picoseconds.
#[derive(Default)]
struct ScenarioRow {
    window: i64,
    /// Interval of the saved time over steps.
    saved: Option<(f64, f64)>,
    on_path: i64,
    selected: Option<u64>,
    binds: Option<String>,
}

fn what_if(
    report: &mut Report,
    path: &CriticalPath<'_>,
    scenarios: &[Scenario],
    faster: Option<&[PathGroup]>,
    (is_known, replay_error): (bool, f64),
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    let mut table = Table::new(vec![
        Column::new("what_if", "What if", Unit::Text),
        Column::new("step_ns", "Window", Unit::Ns),
        Column::new("saved_ns", "Saved", Unit::Ns),
        Column::new("saved_share", "Saved", Unit::Share),
        Column::new("saved_low_ns", "Saved at least", Unit::Ns),
        Column::new("saved_high_ns", "Saved at most", Unit::Ns),
        Column::new("on_path_ns", "Selected on the path", Unit::Ns),
        Column::new("selected", "Selected segments", Unit::Count),
        Column::new("replay_error_share", "Replay error", Unit::Share),
        Column::new("below_error", "Below the error", Unit::Flag),
        Column::new("binds_then", "Binds then", Unit::Text),
    ]);
    let length = path.length();
    let error_ps = replay_error.abs() * length as f64;
    let mut below_error = 0;
    let mut push = |text: &str, found: ScenarioRow| {
        let saved = length.saturating_sub(found.window);
        let shown = |value: f64| -> Cell { is_known.then_some(value).into() };
        let (low, high) = found.saved.filter(|_| is_known).unzip();
        let is_below_error = saved != 0 && (saved.saturating_abs() as f64) < error_ps;
        table.push([
            text.into(),
            shown(ns(found.window)),
            shown(ns(saved)),
            shown(if length > 0 {
                saved as f64 / length as f64
            } else {
                0.0
            }),
            low.map(|ps| ps / 1e3).into(),
            high.map(|ps| ps / 1e3).into(),
            ns(found.on_path).into(),
            found.selected.into(),
            replay_error.into(),
            is_known.then_some(is_below_error).into(),
            found.binds.filter(|_| is_known).into(),
        ]);
        below_error += usize::from(is_known && is_below_error);
    };
    for scenario in scenarios {
        let found = path.what_if(scenario, cancel)?;
        let window = found.window_ps();
        push(
            &scenario.text,
            ScenarioRow {
                window,
                saved: found.saved_interval(),
                on_path: found.on_path_ps(cancel)?,
                selected: Some(found.selected()),
                binds: Some(largest(path, &found.into_shares(), window)),
            },
        );
    }
    let segments = faster.unwrap_or_default().iter();
    let named = segments.filter(|row| row.kind.is_some_and(PathKind::is_segment));
    for row in named.take(SAVINGS) {
        let (PathKey::Name(name), Some(kind)) = (row.key, row.kind) else {
            continue;
        };
        let selected = segments_named(path, name, kind);
        for (change, factor) in [("x0.5", 0.5), ("0", 0.0)] {
            cancel.check()?;
            let text = format!("{}={change}", path.trace.name(name));
            push(
                &text,
                ScenarioRow {
                    window: path.what_if_selected(selected.clone(), factor),
                    on_path: row.path_ps,
                    ..ScenarioRow::default()
                },
            );
        }
    }
    report.section("what_if", "What if", table);
    if !is_known {
        report.note(sentence!(
            "The dependencies explain the run with an error of {} only, above {}: the predictions are not shown. \
             Option --force shows them.",
            share(replay_error.abs()).link(Link::scalar("replay_error_share")),
            share(MAX_ERROR)
        ));
    } else if replay_error.abs() > ROUGH_ERROR {
        report.note(sentence!(
            "The predictions are rough: the replay error is {}.",
            share(replay_error.abs()).link(Link::scalar("replay_error_share"))
        ));
    }
    if below_error > 0 {
        report.note(sentence!(
            "Predictions within the replay error of {}, which show neither gain nor loss: {}.",
            duration(error_ps / 1_000.0),
            count(below_error)
        ));
    }
    if path.has_unawaited_collectives() {
        report.note(
            "Collectives run on threads of the host, and no thread that marks steps is seen to wait for most of them: what \
             ranks do while they wait counts as their own work, so predictions over ranks (rank:N, ranks) are no guide here.",
        );
    }
    report.note(
        "Predictions keep the order of each queue. They leave out contention between kernels, the allocator, clock \
         frequencies and caches, and include the cost of recording.",
    );
    Ok(())
}

fn notes(report: &mut Report, path: &CriticalPath<'_>, exact: Option<i64>) {
    if path.steps.is_empty() {
        report.note("No steps are marked: the window is the whole recording.");
    }
    if path.left_out.ps > 0 {
        let most = count(MAX_SLICES);
        let (steps, length) = (path.steps.len(), path.length());
        report.note(if path.left_out.steps > 0 {
            sentence!(
                "The path covers the last {} of {} steps, because a path reads at most {} slices. Option --steps \
                 selects other steps.",
                count(steps).link(Link::scalar("steps")),
                count(steps + path.left_out.steps),
                most
            )
        } else {
            sentence!(
                "The path covers the last {} of {}, because a path reads at most {} slices.",
                duration(ns(length)).link(Link::scalar("window_ns")),
                duration(ns(length.saturating_add(path.left_out.ps))),
                most
            )
        });
    }
    if let Some(end) = path.device_end {
        report.note(sentence!(
            "Device work ends {} after the window, and nothing inside the window waits for it. Option --until device \
             includes the work that the steps launch.",
            duration(ns(end.saturating_sub(path.window.end)))
        ));
    }
    let contradictions = path.blocks.graph.contradictions;
    if contradictions > 0 {
        report.note(sentence!(
            "{} edges contradict the times in the files; they were shortened or left out.",
            count(usize::try_from(contradictions).unwrap_or(usize::MAX))
                .link(Link::scalar("contradictions"))
        ));
    }
    if !path.unmatched.is_empty() {
        report.note(sentence!(
            "These collectives have different numbers of calls in the ranks and were not matched: {}.",
            path.unmatched.join(", ")
        ));
    }
    if let Some(exact) = exact.filter(|exact| *exact != path.length()) {
        report.note(sentence!(
            "The unchanged replay differs from the measurement by {}.",
            duration(ns(exact.saturating_sub(path.length()).saturating_abs()))
        ));
    }
}
