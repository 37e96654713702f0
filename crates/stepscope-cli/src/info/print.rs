//! How `info` is shown on a terminal.

use std::io::Write;

use stepscope_model::Severity;

use super::{InfoReport, RunInfo, TrackInfo, WarningInfo};
use crate::error::CliError;
use crate::text::{self, Align, Grid, clean, short};

/// Runs up to this many are printed in full; of more, one line each.
const IN_FULL: usize = 2;
/// Tracks of one run that are printed.
const TRACKS: usize = 15;

pub(super) fn print(report: &InfoReport, out: &mut dyn Write) -> Result<(), CliError> {
    if report.runs.len() > IN_FULL {
        print_list(report, out)?;
    } else {
        for (at, run) in report.runs.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            print_run(run, out)?;
        }
    }
    if !report.errors.is_empty() || !report.problems.is_empty() {
        writeln!(out, "\nNot shown")?;
        for problem in report.errors.iter().chain(&report.problems) {
            writeln!(
                out,
                "  {}: {}",
                clean(&problem.file),
                clean(&problem.reason)
            )?;
        }
    }
    if !report.not_readable.is_empty() {
        let names: Vec<_> = report
            .not_readable
            .iter()
            .take(3)
            .map(|path| short(path.rsplit('/').next().unwrap_or(path), 60))
            .collect();
        let more = report.not_readable.len() - names.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        writeln!(
            out,
            "\nRecognised, not yet readable: {}{more}",
            names.join(", ")
        )?;
    }
    Ok(())
}

fn print_list(report: &InfoReport, out: &mut dyn Write) -> Result<(), CliError> {
    use Align::{Left, Right};
    let mut grid = Grid::new(&[
        ("Run", Left),
        ("Kind", Left),
        ("Hosts", Right),
        ("Devices", Right),
        ("Steps", Right),
        ("Slices", Right),
        ("Length", Right),
        ("Size", Right),
        ("Warnings", Right),
    ]);
    for run in &report.runs {
        let lost = run
            .warnings
            .iter()
            .filter(|w| w.severity != Severity::Notice.as_str())
            .count();
        let bytes = run.files.iter().map(|file| file.bytes).sum();
        grid.push([
            short(&run.name, 60),
            run.kinds.join(" "),
            run.hosts.len().to_string(),
            dash_if_zero(run.devices.len() as u64),
            dash_if_zero(run.steps),
            text::count(run.slices),
            if run.timeline {
                text::duration(run.duration_ns.ps() as f64 / 1e3)
            } else {
                "no timeline".to_owned()
            },
            text::bytes(bytes),
            dash_if_zero(lost as u64),
        ]);
    }
    writeln!(out, "{}: {} runs\n", clean(&report.path), report.runs.len())?;
    grid.print(out)?;
    Ok(())
}

fn dash_if_zero(number: u64) -> String {
    if number == 0 {
        "-".to_owned()
    } else {
        text::count(number)
    }
}

fn print_run(run: &RunInfo, out: &mut dyn Write) -> Result<(), CliError> {
    let bytes: u64 = run.files.iter().map(|file| file.bytes).sum();
    let mut formats: Vec<&str> = run.files.iter().map(|file| file.format.as_str()).collect();
    formats.dedup();
    let mut badge = run.kinds.clone();
    badge.push(formats.join("+"));
    badge.push(text::bytes(bytes));
    writeln!(
        out,
        "{}   {}",
        short(&run.name, 100),
        clean(&badge.join(" · "))
    )?;

    let mut facts: Vec<(&str, String)> = Vec::new();
    let recorded = run
        .start_unix_ns
        .map_or("not told".to_owned(), text::moment);
    facts.push(("recorded", recorded));
    if run.timeline {
        facts.push(("length", text::duration(run.duration_ns.ps() as f64 / 1e3)));
    } else {
        let none = "not recorded: the file holds sums, which have no place in time";
        facts.push(("timeline", none.to_owned()));
    }
    if run.steps > 0 {
        facts.push(("steps", text::count(run.steps)));
    }
    facts.push(("hosts", listed(&run.hosts)));
    if !run.ranks.is_empty() {
        let ranks: Vec<_> = run.ranks.iter().map(u32::to_string).collect();
        facts.push(("ranks", listed(&ranks)));
    }
    if !run.devices.is_empty() {
        facts.push(("devices", counted(&run.devices)));
    }
    if !run.profiles.is_empty() {
        facts.push(("profiles", text::count(run.profiles.len() as u64)));
    }
    let mut events = vec![format!("{} slices", text::count(run.slices))];
    for (count, what) in [
        (run.async_slices, "async"),
        (run.derived_slices, "derived"),
        (run.instants, "instants"),
        (run.counters, "counter samples"),
        (run.flows, "flows"),
    ] {
        if count > 0 {
            events.push(format!("{} {what}", text::count(count)));
        }
    }
    if run.timeline {
        facts.push(("events", events.join(" · ")));
    }
    if !run.hlo_modules.is_empty() {
        facts.push(("modules", listed(&run.hlo_modules)));
    }
    if let Some(writer) = run.files.iter().find_map(|file| file.facts.get("writer")) {
        facts.push(("written by", writer.as_str().unwrap_or_default().to_owned()));
    }
    for (label, value) in facts {
        writeln!(out, "  {label:<11}{}", short(&value, 110))?;
    }
    print_tracks(run, out)?;
    print_profiles(run, out)?;
    print_warnings(run, out)
}

fn print_profiles(run: &RunInfo, out: &mut dyn Write) -> Result<(), CliError> {
    use Align::{Left, Right};
    if run.profiles.is_empty() {
        return Ok(());
    }
    let mut grid = Grid::new(&[
        ("Profile", Left),
        ("Stage", Left),
        ("Rows", Right),
        ("Of", Left),
        ("Calls", Right),
        ("Total", Right),
    ]);
    for profile in run.profiles.iter().take(TRACKS) {
        grid.push([
            short(
                if profile.name.is_empty() {
                    "(whole)"
                } else {
                    &profile.name
                },
                60,
            ),
            short(
                if profile.stage.is_empty() {
                    "-"
                } else {
                    &profile.stage
                },
                12,
            ),
            text::count(profile.rows as u64),
            profile.kind.to_owned(),
            profile.calls.map_or("-".to_owned(), text::count),
            profile
                .total_s
                .map_or("-".to_owned(), |total| text::duration(total * 1e9)),
        ]);
    }
    writeln!(out)?;
    grid.print(out)?;
    let more = run.profiles.len().saturating_sub(TRACKS);
    if more > 0 {
        writeln!(out, "  and {more} more")?;
    }
    Ok(())
}

fn print_tracks(run: &RunInfo, out: &mut dyn Write) -> Result<(), CliError> {
    use Align::{Left, Right};
    if run.track_list.is_empty() {
        return Ok(());
    }
    let mut busiest: Vec<&TrackInfo> = run.track_list.iter().collect();
    busiest.sort_by_key(|track| std::cmp::Reverse((track.busy_ns, track.events, track.samples)));
    let mut grid = Grid::new(&[
        ("Track", Left),
        ("Kind", Left),
        ("Events", Right),
        ("Busy", Right),
        ("Of run", Right),
    ]);
    let length_ps = (run.duration_ns.ps() as f64).max(1.0);
    for track in busiest.iter().take(TRACKS) {
        let events = track.events + track.instants + track.samples;
        let counter = track.kind == "counter";
        grid.push([
            shown_track(track),
            track.kind.to_owned(),
            text::count(events),
            if counter {
                "-".to_owned()
            } else {
                text::duration(track.busy_ns.ps() as f64 / 1e3)
            },
            if counter {
                "-".to_owned()
            } else {
                text::share(track.busy_ns.ps() as f64 / length_ps)
            },
        ]);
    }
    writeln!(out)?;
    grid.print(out)?;
    let more = run.track_list.len().saturating_sub(TRACKS);
    if more > 0 {
        writeln!(out, "  … and {more} more tracks (--json lists all)")?;
    }
    Ok(())
}

/// The group's name in front of a name that says little without it.
fn shown_track(track: &TrackInfo) -> String {
    match &track.parent_name {
        Some(parent) if !track.name.contains(parent.as_str()) => {
            format!("{} / {}", short(parent, 32), short(&track.name, 48))
        }
        _ => short(&track.name, 64),
    }
}

fn print_warnings(run: &RunInfo, out: &mut dyn Write) -> Result<(), CliError> {
    if run.warnings.is_empty() && run.problems.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  Warnings")?;
    for problem in &run.problems {
        writeln!(
            out,
            "  !  {}: {}",
            clean(&problem.file),
            short(&problem.reason, 160)
        )?;
    }
    // One line for a code, whichever files it comes from.
    let mut codes: Vec<(&WarningInfo, u64)> = Vec::new();
    for warning in &run.warnings {
        match codes.iter_mut().find(|known| known.0.code == warning.code) {
            Some(known) => known.1 += warning.count,
            None => codes.push((warning, warning.count)),
        }
    }
    for (warning, count) in codes {
        let mark = if warning.severity == Severity::Notice.as_str() {
            "·"
        } else {
            "!"
        };
        let times = text::count(count);
        writeln!(
            out,
            "  {mark}  {times} x {} [{}]",
            warning.title, warning.code
        )?;
        if !warning.detail.is_empty() {
            writeln!(out, "       {}", short(&warning.detail, 140))?;
        }
    }
    Ok(())
}

/// A few of them and how many more.
fn listed(texts: &[String]) -> String {
    let shown: Vec<_> = texts.iter().take(4).map(|text| short(text, 48)).collect();
    let more = texts.len() - shown.len();
    if more > 0 {
        format!("{} and {more} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}

/// Equal ones together: `8 x NVIDIA H100`.
fn counted(names: &[String]) -> String {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match groups.iter_mut().find(|group| group.0 == name) {
            Some(group) => group.1 += 1,
            None => groups.push((name, 1)),
        }
    }
    let shown: Vec<_> = groups
        .iter()
        .map(|(name, count)| {
            if *count > 1 {
                format!("{count} x {name}")
            } else {
                (*name).to_owned()
            }
        })
        .collect();
    listed(&shown)
}
