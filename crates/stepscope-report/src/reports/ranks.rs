//! [`ranks`](stepscope_analysis::ranks) as a report.

use std::collections::BTreeMap;

use stepscope_model::{Cancelled, Dur};
use stepscope_store::Trace;

use crate::hints::{Lack, hint};
use crate::peer_profiler::PeerProfiler;
use crate::report::{
    Column, Link, Report, Sentence, SentencePart, Table, Unit, count, duration, in_sentence,
    run_start, sentence, since_start_ns,
};
use crate::reports::Options;
use crate::reports::kernels::range_of;
use stepscope_analysis::device::Devices;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::ranks::{Rank, RankMeasure, RankSummary, Ranks, median, ranks};
use stepscope_analysis::steps::steps_of;
use stepscope_compat::hta::{Stragglers, stragglers};

const KIND: &str = "ranks";
/// Row types.
pub(super) const BY: &[&str] = &["step", "rank", "measure"];

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    let steps = steps_of(trace, options.marked_only);
    let found = ranks(
        trace,
        &devices,
        &steps.steps,
        &range_of(trace, options),
        cancel,
    )?;
    if found.ranks.is_empty() {
        return Ok(Report::missing(
            KIND,
            "nothing that a rank does is in this run",
        ));
    }
    if found.ranks.len() < 2 {
        return Ok(Report::missing(KIND, "only one rank is in this run"));
    }
    let mut report = Report::new(KIND);
    let summaries = found.summaries();
    report.sentence = sentence_of(trace, &found, &summaries);
    report.scalar("ranks", "Ranks", Unit::Count, found.ranks.len());
    let steps = summaries.iter().map(|rank| rank.steps).max();
    report.scalar("steps", "Steps per rank", Unit::Count, steps);
    let cells = by_step(trace, &found);
    let each = by_rank(&found, &summaries);
    let measures = by_measure(&found, &summaries);
    let (rows, others) = match options.by.as_deref() {
        Some("rank") => (each, vec![("measures", "Measures", measures)]),
        Some("measure") => (measures, vec![("ranks", "Medians by rank", each)]),
        _ => (
            cells,
            vec![
                ("ranks", "Medians by rank", each),
                ("measures", "Measures", measures),
            ],
        ),
    };
    report.table = rows;
    report.table.cut(options.top);
    for (name, title, table) in others {
        report.section(name, title, table);
    }
    if options.compat == Some(PeerProfiler::Hta)
        && let Some(stragglers) = stragglers(trace, &devices, cancel)?
    {
        report.section(
            "hta_stragglers",
            "HTA's potential stragglers",
            by_hta(&found, &stragglers),
        );
        report.note(sentence!(
            "{} names the two ranks at which {} on stream {} begins last most often, in {} of the steps. It \
             knows only kernels of NCCL before 2.19, and of several steps leaves out the last.",
            SentencePart::text("HTA").link(Link::section("hta_stragglers")),
            in_sentence(trace.name(stragglers.kernel)),
            stragglers.stream.to_string(),
            count(stragglers.steps.len())
        ));
    }
    if found.every > 1 {
        report.note(sentence!(
            "Steps times ranks are far more than what was recorded: of the steps of each rank, one in {} is measured.",
            count(found.every)
        ));
    }
    if found.cells.iter().any(|cell| cell.step.is_none()) {
        report.note("Ranks without marked steps are measured over their whole recording.");
    }
    if found.cells.iter().all(|cell| cell.peak_bytes.is_none()) {
        report.note(match hint(trace, Lack::Memory) {
            "" => "No allocations are in this run.".into(),
            line => sentence!(
                "No allocations are in this run; this records them: {}",
                SentencePart::code(line)
            ),
        });
    }
    report.note(
        "A value is an outlier when it is farther from the median of the ranks at this step than \
         three scaled median deviations and 5 % of the step.",
    );
    Ok(report)
}

/// Returns the name of a rank as part of a sentence, with a link to it.
fn named(trace: &Trace, rank: &Rank) -> SentencePart {
    let file = trace.files().get(rank.file);
    // A process or a single device of a rank gets no link to the rank.
    let number = file
        .and_then(|file| file.spec.rank)
        .filter(|number| rank.name == format!("rank {number}"));
    match number {
        Some(number) => {
            SentencePart::value(&*rank.name, number.into(), Unit::Number).link(Link::Rank(number))
        }
        None => SentencePart::text(&*rank.name),
    }
}

/// Returns a link to the step of a rank in which a measure is closest to a value.
fn step_with(
    trace: &Trace,
    found: &Ranks,
    rank: usize,
    measure: RankMeasure,
    value: Dur,
) -> Option<Link> {
    let of_rank = found.cells.iter().filter(|cell| cell.rank == rank);
    let cell =
        of_rank.min_by_key(|cell| cell.values[measure as usize].ps().abs_diff(value.ps()))?;
    let end = cell
        .start
        .saturating_add(cell.values[RankMeasure::Step as usize]);
    let file = trace.files().get(found.ranks[rank].file)?;
    Some(Link::range(trace, cell.start, end, &file.spec.host))
}

fn sentence_of(trace: &Trace, found: &Ranks, summaries: &[RankSummary]) -> Sentence {
    // The slowest rank makes the others wait: it computes longest, or communicates least.
    let extremes = |measure: RankMeasure| {
        let medians = medians(summaries, measure);
        let low = medians.iter().min().copied();
        low.zip(medians.iter().max().copied())
    };
    let step = extremes(RankMeasure::Step).map_or(0.0, |(_, (dur, _))| dur.as_ns_f64());
    let Some(((low, least), (high, most))) = extremes(RankMeasure::ExposedCommunication) else {
        return "Nothing was measured.".into();
    };
    let apart = high.as_ns_f64() - low.as_ns_f64();
    if apart > step * 0.05 {
        let text = sentence!(
            "{} is probably the straggler: {} waits {} per step longer in collectives.",
            named(trace, &found.ranks[least]),
            named(trace, &found.ranks[most]),
            duration(apart).link(step_with(
                trace,
                found,
                most,
                RankMeasure::ExposedCommunication,
                high
            ))
        );
        // A host name keeps its spelling.
        return if found.ranks[least].name.starts_with("rank ") {
            text.capitalised()
        } else {
            text
        };
    }
    match extremes(RankMeasure::Step) {
        Some(((low, fastest), (high, slowest))) if high.ps() - low.ps() > low.ps() / 20 => {
            let of_rank = |rank, time: Dur| {
                duration(time.as_ns_f64()).link(step_with(trace, found, rank, RankMeasure::Step, time))
            };
            sentence!(
                "The slowest is {} with {} per step; the fastest takes {}.",
                named(trace, &found.ranks[slowest]),
                of_rank(slowest, high),
                of_rank(fastest, low)
            )
        }
        _ => {
            "The ranks are balanced: median step time and communication differ by less than 5 % of a step."
                .into()
        }
    }
}

/// Returns the median of a measure with its rank, for each rank that has one.
fn medians(summaries: &[RankSummary], measure: RankMeasure) -> Vec<(Dur, usize)> {
    let ranks = summaries.iter().enumerate();
    ranks
        .filter_map(|(rank, summary)| Some((summary.medians[measure as usize]?, rank)))
        .collect()
}

/// Peak memory of a rank.
const PEAK: Column = Column::new("peak_memory_bytes", "Peak memory", Unit::Bytes);

/// Returns the title of the column of a measure.
const fn title(measure: RankMeasure) -> &'static str {
    match measure {
        RankMeasure::Step => "Step time",
        RankMeasure::Compute => "Compute",
        RankMeasure::Communication => "Communication",
        RankMeasure::ExposedCommunication => "Exposed communication",
        RankMeasure::Idle => "Idle",
        RankMeasure::Input => "Input",
    }
}

fn by_step(trace: &Trace, found: &Ranks) -> Table {
    let start = run_start(trace);
    let mut columns = vec![
        Column::new("rank", "Rank", Unit::Text),
        Column::new("step", "Step", Unit::Number),
        Column::new("start_ns", "Start", Unit::Ns),
    ];
    columns.extend(
        RankMeasure::ALL.map(|measure| Column::new(measure.key(), title(measure), Unit::Ns)),
    );
    columns.push(PEAK);
    columns.push(Column::new("outlier", "Outlier in", Unit::Text));
    let mut table = Table::new(columns);
    for cell in &found.cells {
        let [step, compute, communication, exposed, idle, input] = cell.values;
        let outlier: Vec<&str> = RankMeasure::ALL
            .into_iter()
            .zip(cell.outliers)
            .filter(|(_, outlier)| *outlier)
            .map(|(measure, _)| title(measure))
            .collect();
        table.push([
            found.ranks[cell.rank].name.as_str().into(),
            cell.step.into(),
            since_start_ns(start, cell.start).into(),
            step.into(),
            compute.into(),
            communication.into(),
            exposed.into(),
            idle.into(),
            input.into(),
            cell.peak_bytes.into(),
            (!outlier.is_empty()).then(|| outlier.join(", ")).into(),
        ]);
    }
    table
}

fn by_rank(found: &Ranks, summaries: &[RankSummary]) -> Table {
    let mut columns = vec![
        Column::new("rank", "Rank", Unit::Text),
        Column::new("steps", "Steps", Unit::Count),
    ];
    columns.extend(
        RankMeasure::ALL.map(|measure| Column::new(measure.key(), title(measure), Unit::Ns)),
    );
    columns.push(PEAK);
    columns.push(Column::new("outliers", "Outliers", Unit::Count));
    let mut table = Table::new(columns);
    for (facts, summary) in found.ranks.iter().zip(summaries) {
        let median = |measure| summary.medians[measure as usize].into();
        table.push([
            facts.name.as_str().into(),
            summary.steps.into(),
            median(RankMeasure::Step),
            median(RankMeasure::Compute),
            median(RankMeasure::Communication),
            median(RankMeasure::ExposedCommunication),
            median(RankMeasure::Idle),
            median(RankMeasure::Input),
            summary.peak_bytes.into(),
            summary.outliers.into(),
        ]);
    }
    table
}

fn by_hta(found: &Ranks, stragglers: &Stragglers) -> Table {
    let mut table = Table::new(vec![
        Column::new("rank", "Rank", Unit::Text),
        Column::new("steps", "Steps among the last", Unit::Count),
        Column::new("named", "Named", Unit::Flag),
    ]);
    let mut first: BTreeMap<usize, &Rank> = BTreeMap::new();
    for rank in &found.ranks {
        first.entry(rank.file).or_insert(rank);
    }
    for (file, steps) in &stragglers.counts {
        let rank = first.get(file);
        table.push([
            rank.map(|rank| rank.name.as_str()).into(),
            (*steps).into(),
            stragglers.named.contains(file).into(),
        ]);
    }
    table
}

fn by_measure(found: &Ranks, summaries: &[RankSummary]) -> Table {
    let mut table = Table::new(vec![
        Column::new("measure", "Measure", Unit::Text),
        Column::new("median_ns", "Median", Unit::Ns),
        Column::new("lowest", "Lowest", Unit::Text),
        Column::new("lowest_ns", "Lowest value", Unit::Ns),
        Column::new("highest", "Highest", Unit::Text),
        Column::new("highest_ns", "Highest value", Unit::Ns),
    ]);
    for measure in RankMeasure::ALL {
        let mut medians = medians(summaries, measure);
        medians.sort_unstable();
        let (Some(low), Some(high)) = (medians.first(), medians.last()) else {
            continue;
        };
        let middle = median(medians.iter().map(|(dur, _)| *dur));
        table.push([
            title(measure).into(),
            middle.into(),
            found.ranks[low.1].name.as_str().into(),
            low.0.into(),
            found.ranks[high.1].name.as_str().into(),
            high.0.into(),
        ]);
    }
    table
}
