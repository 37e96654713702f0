//! Actions of a Lightning trainer: from report files of its profilers, or from labels of a trace.

use std::fmt::Write as _;

use rustc_hash::FxHashSet;
use stepscope_model::{Cancelled, Profile, ProfileKind};
use stepscope_store::Trace;

use crate::report::{
    Cell, Column, Link, Report, Sentence, Table, Unit, count, duration, sentence, with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::parallel::Cancel;
use stepscope_compat::lightning_actions;
use stepscope_compat::profile_text;

const KIND: &str = "lightning";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    cancel.check()?;
    let from_files: Vec<&Profile> = trace
        .profiles()
        .filter(|(file, _)| file.spec.format == "lightning-report")
        .map(|(_, profile)| profile)
        .collect();
    if !from_files.is_empty() {
        let mut report = report_of(&from_files, options);
        if options.range.is_some() {
            let note = "The file has aggregates of the whole run only: the range has no effect.";
            report.note(note);
        }
        return Ok(report);
    }
    let Some(profile) = lightning_actions::profile(trace, options.range.as_ref(), cancel)? else {
        return Ok(Report::missing(
            KIND,
            "no action of a Lightning trainer is in this run",
        ));
    };
    let mut report = report_of(&[&profile], options);
    report.note(
        "Made from labels; the whole is the time from the run's first to its last moment, so shares differ \
         from those that SimpleProfiler prints, which counts from its own making.",
    );
    Ok(report)
}

fn report_of(profiles: &[&Profile], options: &Options) -> Report {
    let mut report = Report::new(KIND);
    let mut table = Table::new(vec![
        Column::new("action", "Action", Unit::Text),
        Column::new("stage", "Stage", Unit::Text),
        Column::new("rank", "Rank", Unit::Number),
        Column::new("count", "Calls", Unit::Count),
        Column::new("mean_ns", "Mean duration", Unit::Ns),
        Column::new("total_ns", "Total time", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
    ]);
    let mut text = String::new();
    // Each report starts with its stage, followed by its actions.
    let mut stage: Option<&str> = None;
    let mut names: FxHashSet<&str> = FxHashSet::default();
    for profile in profiles {
        match profile.kind {
            ProfileKind::Actions => {
                text.push_str(&profile_text::actions(profile, options.top));
                stage = None;
                push_rows(&mut table, profile);
            }
            ProfileKind::Functions | ProfileKind::Samples => {
                // An action occurs once in a report. A second occurrence starts another report in
                // the same file.
                let goes_on = stage == Some(&*profile.stage) && names.insert(&profile.name);
                if goes_on {
                    text.push('\n');
                } else {
                    let space = if profile.stage.is_empty() { "" } else { " " };
                    let _ = writeln!(text, "{}{space}Profiler Report", profile.stage);
                    stage = Some(&profile.stage);
                    names.clear();
                    names.insert(&profile.name);
                }
                let rank = profile
                    .rank
                    .map_or_else(String::new, |rank| format!(" rank: {rank}"));
                let _ = writeln!(text, "Profile stats for: {}{rank}", profile.name);
                text.push_str(&profile_text::functions(profile, options.top));
                table.push([
                    profile.name.as_str().into(),
                    profile.stage.as_str().into(),
                    profile.rank.into(),
                    Cell::Empty,
                    Cell::Empty,
                    profile.total_s.map(ns).into(),
                    Cell::Empty,
                ]);
            }
        }
    }
    let largest = table.rows.len();
    report.scalar("actions", "Rows", Unit::Count, largest);
    // The plain table lacks the total.
    let whole = profiles
        .iter()
        .filter_map(|profile| profile.total_s)
        .reduce(f64::max);
    report.scalar("whole_ns", "Whole", Unit::Ns, whole.map(ns));
    report.sentence = sentence_of(profiles, largest);
    if let Some(rounded) = profiles.iter().find_map(|profile| profile.rounded_to_s) {
        report.scalar("rounded_to_ns", "Rounded to", Unit::Ns, ns(rounded));
        report.note(sentence!(
            "The file's times are rounded to {}: sums of them are no better than that.",
            duration(ns(rounded)).link(Link::scalar("rounded_to_ns"))
        ));
    }
    report.text = (!text.is_empty()).then_some(text);
    table.cut(options.top);
    report.table = table;
    report
}

/// Adds one row per entry of the profile.
fn push_rows(table: &mut Table, profile: &Profile) {
    for row in &profile.rows {
        table.push([
            (&*row.name).into(),
            profile.stage.as_str().into(),
            profile.rank.into(),
            row.calls.into(),
            row.mean_s.map(ns).into(),
            row.total_s.map(ns).into(),
            row.percent.map(|percent| percent / 100.0).into(),
        ]);
    }
}

fn sentence_of(profiles: &[&Profile], rows: usize) -> Sentence {
    let longest_of = |kind| {
        let all = profiles.iter().filter(move |profile| profile.kind == kind);
        all.flat_map(|profile| &profile.rows).max_by(|a, b| {
            a.total_s
                .unwrap_or(0.0)
                .total_cmp(&b.total_s.unwrap_or(0.0))
        })
    };
    match longest_of(ProfileKind::Actions) {
        Some(row) => sentence!(
            "{} actions; the longest is {} with {}{}.",
            count(rows).link(Link::scalar("actions")),
            &*row.name,
            duration(ns(row.total_s.unwrap_or(0.0))).link(Link::row("action", &*row.name)),
            row.calls.map(|calls| sentence!(
                " in {} calls",
                with_thousands(calls).link(Link::row("action", &*row.name))
            )),
        ),
        None => of_functions(profiles, rows),
    }
}

/// Returns the sentence for reports with the functions of each action.
fn of_functions(profiles: &[&Profile], rows: usize) -> Sentence {
    let longest = profiles
        .iter()
        .filter(|profile| profile.kind == ProfileKind::Functions)
        .filter_map(|profile| Some((profile.total_s.filter(|total| *total > 0.0)?, profile)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let rows = count(rows).link(Link::scalar("actions"));
    let Some((total, profile)) = longest else {
        return sentence!("{} rows of {} profiles.", rows, count(profiles.len()));
    };
    sentence!(
        "{} actions; the longest is {} with {}.",
        rows,
        &profile.name,
        duration(ns(total)).link(Link::row("action", &*profile.name))
    )
}

fn ns(seconds: f64) -> f64 {
    seconds * 1e9
}
