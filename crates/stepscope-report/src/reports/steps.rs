//! [`steps`](stepscope_analysis::steps) as a report.

use stepscope_model::{Cancelled, Dur};
use stepscope_store::Trace;

use crate::peer_profiler::PeerProfiler;
use crate::report::{
    Cell, Column, Link, Report, Sentence, Table, Unit, duration, run_start, sentence, share,
    since_start_ns,
};
use crate::reports::Options;
use crate::step_notes::step_notes;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::run_profile::{IterationRole, RUNS_AHEAD, RunProfile};
use stepscope_analysis::steps::bucket::StepBucket;
use stepscope_analysis::steps::{StepNote, StepOptions, StepReport, StepRow, step_report};
use stepscope_compat::xprof_steps;

const KIND: &str = "steps";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    cancel.check()?;
    let run_profile = RunProfile::compute(trace, &options.scope(), cancel)?;
    let found = &run_profile.steps;
    if found.steps.is_empty() && found.outside > 0 {
        return Ok(Report::missing(
            KIND,
            "no whole step lies in this range, and parts of steps are not counted",
        ));
    }
    if found.steps.is_empty() {
        let mut report = Report::missing(
            KIND,
            "no steps are marked in this run, and nothing repeats regularly enough to stand in for them",
        );
        report.notes = step_notes(trace, &found.notes);
        return Ok(report);
    }
    let mut report = Report::new(KIND);
    let times = &found.times;
    report.sentence = match times.p50_ns {
        Some(p50) => {
            let sum = run_profile.sum();
            let most = sum.buckets().into_iter().max_by_key(|(_, dur)| *dur);
            let all = sum.sum().as_ns_f64();
            // Shares refer to all steps except warm-up and those that were not profiled, not to the median step.
            let whole = run_profile.iterations.iter();
            let counted = if whole
                .clone()
                .any(|step| step.role == IterationRole::Unprofiled)
            {
                "profiled steps"
            } else {
                "steps after warm-up"
            };
            let most = most.filter(|_| all > 0.0).map(|(bucket, dur)| {
                sentence!(
                    " Of the {}, {} is {}.",
                    counted,
                    share(dur.as_ns_f64() / all).link(Link::scalar(bucket.ns_key())),
                    bucket.label()
                )
            });
            sentence!("{}.{}", step_time(&run_profile, p50), most)
        }
        None => "No step was finished when the recording ended.".into(),
    };
    report.scalar("steps", "Steps", Unit::Count, found.count());
    report.scalar("ranks", "Ranks", Unit::Count, found.ranks());
    for (key, title, value) in [
        ("mean_ns", "Mean", times.mean_ns),
        ("p50_ns", "p50", times.p50_ns),
        ("p90_ns", "p90", times.p90_ns),
        ("p99_ns", "p99", times.p99_ns),
        ("min_ns", "Min", times.min_ns),
        ("max_ns", "Max", times.max_ns),
        ("deviation_ns", "Deviation", times.deviation_ns),
        ("outlier_ns", "Outliers from", times.outlier_ns),
    ] {
        report.scalar(key, title, Unit::Ns, value);
    }
    report.scalar("outliers", "Outliers", Unit::Count, outliers(found));
    report.scalar("trend_share", "Trend", Unit::Share, times.trend);
    for (bucket, dur) in run_profile.sum().buckets() {
        let per_step = dur.as_ns_f64() / run_profile.count();
        report.scalar(
            bucket.ns_key(),
            bucket.title(),
            Unit::Ns,
            run_profile.has_steps().then_some(per_step),
        );
    }
    report.scalar(
        "derived_from",
        "Derived from",
        Unit::Text,
        found.derived.clone(),
    );
    if options.by.as_deref() == Some("step") {
        report.table = by_step(&run_profile);
        report.table.cut(options.top);
        report.notes = step_notes(trace, &found.notes);
    } else {
        let labelled = step_report(
            trace,
            StepOptions {
                top: options.top,
                marked_only: options.marked_only,
                range: options.range.as_ref().map(|range| (range.start, range.end)),
            },
        );
        report.table = by_label(&labelled);
        let of_profile = found.notes.iter();
        let unprofiled = of_profile.filter(|note| matches!(note, StepNote::Unprofiled { .. }));
        let notes: Vec<StepNote> = labelled.notes.iter().chain(unprofiled).cloned().collect();
        report.notes = step_notes(trace, &notes);
        if labelled.labels.iter().any(|row| row.share > 1.0) {
            report.note(
                "A label's time is summed over all devices and threads: what ran side by side counts each time, so \
                 that its share of the steps may pass 100 %.",
            );
        }
    }
    if options.compat == Some(PeerProfiler::XProf) {
        add_xprof(&run_profile, options, &mut report, cancel)?;
    }
    if found.of_each.len() > 1 && (times.outlier_ns.is_some() || times.trend.is_some()) {
        report.note(
            "Outliers and the trend are judged within each rank: the lowest of the ranks' limits stands here, and the \
             median of their trends.",
        );
    }
    Ok(report)
}

/// Returns a link to the finished step whose duration is closest to `ns`.
pub(super) fn nearest(run_profile: &RunProfile<'_>, ns: f64) -> Option<Link> {
    let steps = run_profile.steps.steps.iter();
    let finished = steps.filter(|step| !step.unfinished);
    let away = |step: &StepRow| (step.dur.as_ns_f64() - ns).abs();
    let step = finished.min_by(|a, b| away(a).total_cmp(&away(b)))?;
    let end = step.start.saturating_add(step.dur);
    Some(Link::range(run_profile.trace, step.start, end, &step.host))
}

/// Returns how long steps take: `Steps take 950 µs (mean 957 µs, p90 12.0 ms)`. The mean is that of the counted
/// iterations, to which shares refer; it leads where the median says little.
pub(super) fn step_time(run_profile: &RunProfile<'_>, p50: f64) -> Sentence {
    let times = &run_profile.steps.times;
    let mean = run_profile.mean_ns();
    let what = if run_profile.steps.derived.is_some() {
        "Derived steps"
    } else {
        "Steps"
    };
    let time = |ns| duration(ns).link(nearest(run_profile, ns));
    let has = |role| {
        run_profile
            .iterations
            .iter()
            .any(|whole| whole.role == role)
    };
    let after = if has(IterationRole::Unprofiled) {
        " while profiled"
    } else if has(IterationRole::WarmUp) {
        " after warm-up"
    } else {
        ""
    };
    let mut further = Vec::new();
    let leads = mean > RUNS_AHEAD * p50;
    if leads {
        further.push(sentence!("median {}", time(p50)));
    } else if (mean - p50).abs() > 0.05 * p50 {
        let pauses = run_profile
            .counted()
            .map(|place| run_profile.pauses[place].sum());
        let pause = pauses.map(Dur::as_ns_f64).sum::<f64>() / run_profile.count();
        further.push(if pause > 0.01 * mean {
            sentence!("one begins every {}{}", time(mean), after)
        } else {
            sentence!("mean{} {}", after, time(mean))
        });
    }
    further.extend(times.p90_ns.map(|p90| sentence!("p90 {}", time(p90))));
    let further = (!further.is_empty()).then(|| sentence!(" ({})", Sentence::join(further, ", ")));
    if leads {
        sentence!(
            "{} take {} on average{}{}",
            what,
            time(mean),
            after,
            further
        )
    } else {
        sentence!("{} take {}{}", what, time(p50), further)
    }
}

fn outliers(found: &StepReport) -> usize {
    let outliers = found.steps.iter().filter(|step| found.is_outlier(step));
    outliers.count()
}

fn by_label(found: &StepReport) -> Table {
    let steps = found.times.count.max(1) as f64;
    let mut table = Table::new(vec![
        Column::new("label", "Label", Unit::Text),
        Column::new("place", "Where", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("mean_per_step_ns", "Per step", Unit::Ns),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("self_ns", "Self", Unit::Ns),
        Column::new("share", "Share of steps", Unit::Share),
    ]);
    for row in &found.labels {
        table.push([
            row.label.as_str().into(),
            row.place.as_str().into(),
            row.count.into(),
            (row.total.as_ns_f64() / steps).into(),
            row.total.into(),
            row.self_time.into(),
            row.share.into(),
        ]);
    }
    table.left_out = found.labels_left_out as u64;
    table.add_short("label", "short_label", "Short label");
    table
}

/// Returns one row per step with its buckets.
pub(super) fn by_step(run_profile: &RunProfile<'_>) -> Table {
    let found = &run_profile.steps;
    let start = run_start(run_profile.trace);
    let mut columns = vec![
        Column::new("step", "Step", Unit::Number),
        Column::new("host", "Host", Unit::Text),
        Column::new("track", "Track", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
    ];
    let buckets =
        StepBucket::ALL.map(|bucket| Column::new(bucket.ns_key(), bucket.title(), Unit::Ns));
    columns.extend(buckets);
    columns.extend([
        Column::new("communication_ns", "Communication", Unit::Ns),
        Column::new("copy_ns", "Copy", Unit::Ns),
        Column::new("device_step_ns", "Step on the device", Unit::Ns),
        Column::new("outlier", "Outlier", Unit::Flag),
        Column::new("unfinished", "Unfinished", Unit::Flag),
        Column::new("event", "Marker", Unit::Event),
    ]);
    let mut table = Table::new(columns);
    let mut parts = run_profile.breakdown.parts.iter();
    for step in &found.steps {
        // Unfinished steps have no buckets.
        let parts = if step.unfinished { None } else { parts.next() };
        let mut row: Vec<Cell> = vec![
            Cell::Int(step.number),
            step.host.as_str().into(),
            step.track.as_str().into(),
            since_start_ns(start, step.start).into(),
            step.dur.into(),
        ];
        let buckets = parts.map(|parts| parts.buckets().map(|(_, dur)| Cell::from(dur)));
        row.extend(buckets.unwrap_or_default());
        row.push(parts.map(|parts| parts.communication).into());
        row.push(parts.map(|parts| parts.copy).into());
        row.push(step.device.into());
        row.push(found.is_outlier(step).into());
        row.push(step.unfinished.into());
        row.push(step.event.into());
        table.rows.push(row);
    }
    table
}

/// Length of a step in XProf.
const XPROF_STEP: Column = Column::new("xprof_step_ns", "Step in XProf", Unit::Ns);

/// Adds the step lengths of XProf: to rows that are steps as a column, else as a section.
fn add_xprof(
    run_profile: &RunProfile<'_>,
    options: &Options,
    report: &mut Report,
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    let (trace, found) = (run_profile.trace, &run_profile.steps);
    let lengths = xprof_steps::lengths(trace, &run_profile.devices, found, cancel)?;
    if options.by.as_deref() == Some("step") {
        let cells = lengths.into_iter().map(Cell::from);
        report
            .table
            .insert_column("device_step_ns", XPROF_STEP, cells);
        return Ok(());
    }
    if lengths.iter().all(Option::is_none) {
        return Ok(());
    }
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("step", "Step", Unit::Number),
        Column::new("host", "Host", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
        XPROF_STEP,
    ]);
    for (step, length) in found.steps.iter().zip(lengths) {
        table.push([
            Cell::Int(step.number),
            step.host.as_str().into(),
            since_start_ns(start, step.start).into(),
            step.dur.into(),
            length.into(),
        ]);
    }
    table.cut(options.top);
    report.section("xprof_steps", "Steps in XProf", table);
    Ok(())
}
