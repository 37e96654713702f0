//! [`stepscope_analysis::slow_steps`] as a report.

use stepscope_analysis::compare::owner::Owner;
use stepscope_analysis::compare::run::LeftOut;
use stepscope_analysis::slow_steps::{SlowStepRow, SlowSteps};
use stepscope_analysis::steps::bucket::StepBucket;
use stepscope_analysis::steps::{StepReport, StepRow};
use stepscope_store::Trace;

use crate::report::{
    Cell, Column, Link, Report, Sentence, Table, Unit, count, duration, run_start, sentence,
    since_start_ns,
};

/// Name of the report.
const KIND: &str = "slow-steps";

/// Returns the slowest steps as a report: one row per step, and a section with what takes longer in each.
/// `steps` are the run's steps, which give the events.
pub fn report(trace: &Trace, steps: &StepReport, found: &SlowSteps) -> Report {
    let Some(typical_ns) = found.typical_ns else {
        return Report::missing(
            KIND,
            "no finished steps are marked in this run, and none can be derived",
        );
    };
    let mut report = Report::new(KIND);
    report.sentence = sentence_of(found, typical_ns);
    report.scalar("samples", "Compared steps", Unit::Count, found.samples);
    report.scalar("typical_ns", "Typical step", Unit::Ns, typical_ns);
    report.table = rows(trace, steps, found, typical_ns);
    report.section("owners", "What takes longer", owners(found));
    if steps.of_each.len() > 1 {
        report.note("Of several ranks, the longest step of a number counts.");
    }
    if found.steps.iter().any(|step| step.left_out.is_some()) {
        report.note(
            "Steps that compile, warm up or follow a gap are no part of the typical step; only their buckets are known.",
        );
    }
    report
}

fn sentence_of(found: &SlowSteps, typical_ns: f64) -> Sentence {
    let Some(slowest) = found.steps.first() else {
        return Sentence::default();
    };
    let steps = found.steps.len() + found.further_steps;
    if steps == 1 {
        return sentence!(
            "The run has one step, {}, with {}: there is none to compare it with.",
            slowest.number.to_string(),
            duration(slowest.length_ns).link(Link::Step(slowest.number))
        );
    }
    let excess = slowest.length_ns - typical_ns;
    let most = slowest.owners.first().map(|owner| {
        sentence!(
            ", most of it in {} ({} more)",
            crate::report::in_sentence(&label(&owner.owner)),
            duration(owner.excess_ns()).link(Link::section("owners"))
        )
    });
    let bucket = largest_bucket(found, slowest).filter(|_| most.is_none());
    let bucket = bucket.map(|(bucket, ns)| {
        sentence!(", most of it in {} ({} more)", bucket.label(), duration(ns))
    });
    sentence!(
        "The slowest of {} steps is step {} with {}, {} more than a typical one{}{}.",
        count(steps),
        slowest.number.to_string(),
        duration(slowest.length_ns).link(Link::Step(slowest.number)),
        duration(excess),
        most,
        bucket
    )
}

fn largest_bucket(found: &SlowSteps, step: &SlowStepRow) -> Option<(StepBucket, f64)> {
    let excesses = step.buckets_ns.iter().zip(found.typical_buckets_ns);
    let excesses = StepBucket::ALL.into_iter().zip(excesses);
    excesses
        .map(|(bucket, (ns, typical))| (bucket, ns - typical))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, excess)| *excess > 0.0)
}

fn rows(trace: &Trace, steps: &StepReport, found: &SlowSteps, typical_ns: f64) -> Table {
    let mut columns = vec![
        Column::new("step", "Step", Unit::Number),
        Column::new("host", "Host", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
        Column::new("excess_ns", "Beyond typical", Unit::Ns),
    ];
    let excesses = StepBucket::ALL
        .map(|bucket| Column::new(bucket.excess_ns_key(), bucket.excess_title(), Unit::Ns));
    columns.extend(excesses);
    columns.extend([
        Column::new("outlier", "Outlier", Unit::Flag),
        Column::new("left_out", "Not typical", Unit::Text),
        Column::new("event", "Marker", Unit::Event),
    ]);
    let mut table = Table::new(columns);
    let start = run_start(trace);
    for step in &found.steps {
        let marker = marker(steps, step);
        let mut row: Vec<Cell> = vec![
            step.number.into(),
            marker.map(|marker| marker.host.clone()).into(),
            marker
                .map(|marker| since_start_ns(start, marker.start))
                .into(),
            step.length_ns.into(),
            (step.length_ns - typical_ns).into(),
        ];
        let excesses = step.buckets_ns.iter().zip(found.typical_buckets_ns);
        row.extend(excesses.map(|(ns, typical)| Cell::from(ns - typical)));
        row.extend([
            step.is_outlier.into(),
            step.left_out.map(reason).into(),
            marker.map(|marker| marker.event).into(),
        ]);
        table.rows.push(row);
    }
    table.left_out = found.further_steps as u64;
    table
}

/// Returns the marker of a step: of those with its number, the one whose length is closest.
fn marker<'a>(steps: &'a StepReport, step: &SlowStepRow) -> Option<&'a StepRow> {
    let away = |marker: &&StepRow| (marker.dur.as_ns_f64() - step.length_ns).abs();
    let same = steps.steps.iter();
    let same = same.filter(|marker| marker.number == step.number && !marker.unfinished);
    same.min_by(|a, b| away(a).total_cmp(&away(b)))
}

const fn reason(left_out: LeftOut) -> &'static str {
    match left_out {
        LeftOut::Compiles => "compiles",
        LeftOut::WarmUp => "warm-up",
        LeftOut::AfterGap => "first after a gap",
        LeftOut::Unprofiled => "not profiled",
    }
}

fn owners(found: &SlowSteps) -> Table {
    let mut table = Table::new(vec![
        Column::new("step", "Step", Unit::Number),
        Column::new("name", "What", Unit::Text),
        Column::new("bucket", "Bucket", Unit::Text),
        Column::new("typical_ns", "Typical", Unit::Ns),
        Column::new("in_step_ns", "In this step", Unit::Ns),
        Column::new("excess_ns", "More", Unit::Ns),
    ]);
    for step in &found.steps {
        for owner in &step.owners {
            table.push([
                step.number.into(),
                label(&owner.owner).into(),
                owner.owner.bucket.as_str().into(),
                owner.typical_ns.into(),
                owner.in_step_ns.into(),
                owner.excess_ns().into(),
            ]);
        }
    }
    table
}

/// Returns the name of an owner: the operation, and the kernel where that has another name.
fn label(owner: &Owner) -> String {
    match (owner.operation.as_str(), owner.kernel.as_str()) {
        ("", "") => "nothing recorded".to_owned(),
        ("", kernel) => kernel.to_owned(),
        (operation, kernel) if kernel.is_empty() || kernel == operation => operation.to_owned(),
        (operation, kernel) => format!("{operation}: {kernel}"),
    }
}

#[cfg(test)]
mod tests {
    use stepscope_analysis::op_class::OpClass;
    use stepscope_analysis::slow_steps::SlowOwner;
    use stepscope_analysis::training_phase::TrainingPhase;
    use stepscope_store::TraceBuilder;

    use super::*;

    fn owner(operation: &str, kernel: &str) -> Owner {
        Owner {
            bucket: StepBucket::Compute,
            class: OpClass::Other,
            operation: operation.to_owned(),
            phase: TrainingPhase::Forward,
            kernel: kernel.to_owned(),
            module: String::new(),
            shapes: String::new(),
        }
    }

    #[test]
    fn the_sentence_names_the_slowest_step_and_its_largest_owner() {
        let trace = TraceBuilder::new().finish();
        let steps = stepscope_analysis::steps::steps(&trace);
        let mut found = SlowSteps {
            samples: 3,
            typical_ns: Some(1e6),
            steps: vec![SlowStepRow {
                number: 7,
                length_ns: 3e6,
                buckets_ns: [2.5e6, 0.0, 0.0, 0.5e6, 0.0, 0.0, 0.0],
                left_out: None,
                is_outlier: true,
                owners: vec![SlowOwner {
                    owner: owner("aten::mm", "gemm"),
                    typical_ns: 1e6,
                    in_step_ns: 2.5e6,
                }],
            }],
            further_steps: 2,
            ..SlowSteps::default()
        };
        let made = report(&trace, &steps, &found);
        assert_eq!(
            made.sentence,
            "The slowest of 3 steps is step 7 with 3.00 ms, 2.00 ms more than a typical one, most of it in aten::mm: \
             gemm (1.50 ms more)."
        );
        assert_eq!((made.table.rows.len(), made.table.left_out), (1, 2));
        assert_eq!(made.sections[0].table.rows.len(), 1);
        found.steps[0].owners.clear();
        let made = report(&trace, &steps, &found);
        assert!(
            made.sentence
                .to_string()
                .ends_with("most of it in compute (2.50 ms more)."),
            "{}",
            made.sentence
        );
        found.further_steps = 0;
        let made = report(&trace, &steps, &found);
        assert_eq!(
            made.sentence,
            "The run has one step, 7, with 3.00 ms: there is none to compare it with."
        );
    }

    #[test]
    fn owners_have_the_names_of_operation_and_kernel() {
        for (operation, kernel, expected) in [
            ("", "", "nothing recorded"),
            ("aten::mm", "", "aten::mm"),
            ("aten::mm", "aten::mm", "aten::mm"),
            ("", "gemm", "gemm"),
        ] {
            assert_eq!(label(&owner(operation, kernel)), expected);
        }
    }

    #[test]
    fn a_run_without_steps_says_what_is_missing() {
        let trace = TraceBuilder::new().finish();
        let steps = stepscope_analysis::steps::steps(&trace);
        let made = report(&trace, &steps, &SlowSteps::default());
        assert!(made.missing.is_some());
    }
}
