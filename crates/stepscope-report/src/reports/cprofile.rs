//! Python function calls in the format of `pstats`: from `cProfile` statistics, from reports of
//! Lightning's `AdvancedProfiler`, or from the calls in a trace.

use std::fmt::Write as _;

use stepscope_model::{Cancelled, Profile, ProfileKind, ProfileRow};
use stepscope_store::Trace;

use crate::report::{Cell, Column, Link, Report, Table, Unit, duration, sentence, with_thousands};
use crate::reports::Options;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::timeline_query::statistics_tree::distinct_names;
use stepscope_compat::profile_text;
use stepscope_compat::python_profile;

const KIND: &str = "cprofile";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    cancel.check()?;
    let from_files: Vec<&Profile> = trace
        .profiles()
        .map(|(_, profile)| profile)
        .filter(|profile| profile.kind == ProfileKind::Functions)
        .collect();
    if !from_files.is_empty() {
        let mut report = report_of(&from_files, options);
        if options.range.is_some() {
            let note = "The file has aggregates of the whole run only: the range has no effect.";
            report.note(note);
        }
        return Ok(report);
    }
    match python_profile::profile(trace, options.range.as_ref(), cancel)? {
        Some(profile) => {
            let mut report = report_of(&[&profile], options);
            report.note(
                "Made from the calls in the trace: what was running before the recording began is left out, and \
                 the tracer's own cost is in the times.",
            );
            Ok(report)
        }
        None => Ok(Report::missing(
            KIND,
            "no calls of Python functions are in this run",
        )),
    }
}

fn report_of(profiles: &[&Profile], options: &Options) -> Report {
    let mut report = Report::new(KIND);
    let by_caller = options.by.as_deref() == Some("caller");
    report.table = if by_caller {
        callers(profiles)
    } else {
        functions(profiles)
    };
    let mut text = String::new();
    for profile in profiles {
        if !profile.name.is_empty() {
            let _ = writeln!(text, "Profile stats for: {}", profile.name);
        }
        text.push_str(&profile_text::functions(profile, options.top));
    }
    report.text = (!by_caller).then_some(text);
    let sum = |value: fn(&Profile) -> Option<u64>| -> u64 {
        let values = profiles.iter().filter_map(|profile| value(profile));
        values.fold(0, u64::saturating_add)
    };
    let calls = sum(|profile| profile.calls);
    let total_s: f64 = profiles.iter().filter_map(|profile| profile.total_s).sum();
    report.scalar("calls", "Calls", Unit::Count, calls);
    report.scalar(
        "primitive_calls",
        "Primitive",
        Unit::Count,
        sum(|profile| profile.primitive_calls),
    );
    report.scalar("total_ns", "Total", Unit::Ns, ns(total_s));
    report.sentence = sentence!(
        "{} function calls in {}.",
        with_thousands(calls).link(Link::scalar("calls")),
        duration(ns(total_s)).link(Link::scalar("total_ns"))
    );
    if profiles.len() > 1 {
        report.note(
            "Several profiles: of actions that nest, the calls of the inner one are in the outer one, too.",
        );
    }
    if let Some(rounded) = profiles.iter().find_map(|profile| profile.rounded_to_s) {
        report.scalar("rounded_to_ns", "Rounded to", Unit::Ns, ns(rounded));
        report.note(sentence!(
            "The file's times are rounded to {}: sums of them are no better than that.",
            duration(ns(rounded)).link(Link::scalar("rounded_to_ns"))
        ));
    }
    report.table.cut(options.top);
    report
}

fn functions(profiles: &[&Profile]) -> Table {
    let mut table = Table::new(vec![
        Column::new("function", "Function", Unit::Text),
        Column::new("profile", "Profile", Unit::Text),
        Column::new("count", "Calls", Unit::Count),
        Column::new("primitive_count", "Primitive", Unit::Count),
        Column::new("self_ns", "Self time", Unit::Ns),
        Column::new("self_per_call_ns", "Self per call", Unit::Ns),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("total_per_call_ns", "Total per call", Unit::Ns),
    ]);
    for profile in profiles {
        let names = distinct_names(profile);
        let mut rows: Vec<_> = profile.rows.iter().zip(names).collect();
        let total = |row: &ProfileRow| row.total_s.unwrap_or(0.0);
        rows.sort_by(|(a, _), (b, _)| total(b).total_cmp(&total(a)));
        for (row, name) in rows {
            let calls = row.calls.unwrap_or(0);
            let primitive = row.primitive_calls.unwrap_or(calls);
            let (self_s, total_s) = (row.self_s.unwrap_or(0.0), total(row));
            table.push([
                name.into(),
                profile.name.as_str().into(),
                calls.into(),
                primitive.into(),
                ns(self_s).into(),
                per(self_s, calls),
                ns(total_s).into(),
                per(total_s, primitive),
            ]);
        }
    }
    table
}

fn callers(profiles: &[&Profile]) -> Table {
    let mut table = Table::new(vec![
        Column::new("function", "Function", Unit::Text),
        Column::new("caller", "Called by", Unit::Text),
        Column::new("profile", "Profile", Unit::Text),
        Column::new("count", "Calls", Unit::Count),
        Column::new("primitive_count", "Primitive", Unit::Count),
        Column::new("self_ns", "Self time", Unit::Ns),
        Column::new("total_ns", "Total", Unit::Ns),
    ]);
    let names: Vec<Vec<String>> = profiles
        .iter()
        .map(|profile| distinct_names(profile))
        .collect();
    let mut rows = Vec::new();
    for (profile, names) in profiles.iter().zip(&names) {
        for (row, name) in profile.rows.iter().zip(names) {
            for by in &row.callers {
                rows.push((name, names.get(by.row as usize), by, profile));
            }
        }
    }
    rows.sort_by(|a, b| b.2.total_s.total_cmp(&a.2.total_s));
    for (name, caller, by, profile) in rows {
        table.push([
            name.as_str().into(),
            caller.map(String::as_str).into(),
            profile.name.as_str().into(),
            by.calls.into(),
            by.primitive_calls.into(),
            ns(by.self_s).into(),
            ns(by.total_s).into(),
        ]);
    }
    table
}

fn per(seconds: f64, count: u64) -> Cell {
    match count {
        0 => Cell::Empty,
        _ => ns(seconds / count as f64).into(),
    }
}

fn ns(seconds: f64) -> f64 {
    seconds * 1e9
}
