//! `info` as text for a terminal.

use std::io::Write;

use stepscope_model::Severity;

use super::{InfoReport, RunInfo, TrackSummary, WarningInfo};
use crate::error::CliError;
use crate::text::{self, Align, Grid, clean, packed, say, short};

/// Up to this number of runs is printed in full; more runs get one line each.
const IN_FULL: usize = 2;
/// Minimum width of names on a narrow terminal, characters; then columns are omitted.
const NARROW_NAME: usize = 40;
/// Maximum number of printed tracks of one run.
const TRACKS: usize = 15;

/// Prints the report, wrapped and truncated to `width` characters if stdout is a terminal.
pub(super) fn print(
    report: &InfoReport,
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if report.runs.len() > IN_FULL {
        print_list(report, width, out)?;
    } else {
        for (at, run) in report.runs.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            print_run(run, width, out)?;
        }
    }
    if !report.errors.is_empty() || !report.problems.is_empty() {
        writeln!(out, "\nNot shown")?;
        for problem in report.errors.iter().chain(&report.problems) {
            say(
                "  ",
                &format!("{}: {}", problem.file, problem.reason),
                width,
                out,
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
        writeln!(out)?;
        let first = "Recognised, not yet readable: ";
        say(first, &format!("{}{more}", names.join(", ")), width, out)?;
    }
    Ok(())
}

fn print_list(
    report: &InfoReport,
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    use Align::{Left, Right};
    let mut grid = Grid::new(&[
        ("Run", Left),
        ("Kind", Left),
        ("Steps", Right),
        ("Length", Right),
        ("Warnings", Right),
        ("Size", Right),
        ("Hosts", Right),
        ("Devices", Right),
        ("Slices", Right),
    ]);
    for run in &report.runs {
        let lost = run
            .warnings
            .iter()
            .filter(|warning| !is_harmless(warning))
            .count();
        let bytes = run.files.iter().map(|file| file.bytes).sum();
        grid.push([
            short(&run.name, 60),
            run.kinds.join(" "),
            dash_if_zero(run.steps),
            if run.timeline {
                text::duration(run.duration_ns.ps() as f64 / 1e3)
            } else {
                "no timeline".to_owned()
            },
            dash_if_zero(lost as u64),
            text::bytes(bytes),
            run.hosts.len().to_string(),
            dash_if_zero(run.devices.len() as u64),
            text::count(run.slices),
        ]);
    }
    let runs = format!("{}: {} runs", report.path, report.runs.len());
    say("", &runs, width, out)?;
    writeln!(out)?;
    print_grid(grid, width, out)
}

/// Prints the table, truncated to the terminal's width.
fn print_grid(mut grid: Grid, width: Option<usize>, out: &mut dyn Write) -> Result<(), CliError> {
    let cut = width.map_or(Vec::new(), |width| {
        grid.narrow(width, NARROW_NAME, Vec::new())
    });
    grid.print(out)?;
    if !cut.is_empty() {
        let first = "  too wide for here, but in --json: ";
        say(first, &cut.join(", "), width, out)?;
    }
    Ok(())
}

fn dash_if_zero(number: u64) -> String {
    if number == 0 {
        "-".to_owned()
    } else {
        text::count(number)
    }
}

fn print_run(run: &RunInfo, width: Option<usize>, out: &mut dyn Write) -> Result<(), CliError> {
    let bytes: u64 = run.files.iter().map(|file| file.bytes).sum();
    let mut formats: Vec<&str> = run.files.iter().map(|file| file.format.as_str()).collect();
    formats.dedup();
    let mut badge = run.kinds.clone();
    badge.push(formats.join("+"));
    badge.push(text::bytes(bytes));
    let name = short(&run.name, width.unwrap_or(100).clamp(20, 100));
    let badge = clean(&badge.join(" · ")).into_owned();
    let room = width.unwrap_or(usize::MAX);
    let head = packed([name, badge].into_iter(), "   ", room);
    for (line, indent) in head.iter().zip(["", "  "]) {
        writeln!(out, "{indent}{line}")?;
    }

    let mut facts: Vec<(&str, String)> = Vec::new();
    let recorded = run.start_unix_ns.map_or("unknown".to_owned(), text::moment);
    facts.push(("recorded", recorded));
    if run.timeline {
        facts.push(("length", text::duration(run.duration_ns.ps() as f64 / 1e3)));
    } else {
        let none = "not recorded: aggregates only, the file has no timestamps";
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
        say(&format!("  {label:<11}"), &short(&value, 110), width, out)?;
    }
    print_tracks(run, width, out)?;
    print_profiles(run, width, out)?;
    print_warnings(run, width, out)
}

fn print_profiles(
    run: &RunInfo,
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
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
    print_grid(grid, width, out)?;
    let more = run.profiles.len().saturating_sub(TRACKS);
    if more > 0 {
        writeln!(out, "  and {more} more")?;
    }
    Ok(())
}

fn print_tracks(run: &RunInfo, width: Option<usize>, out: &mut dyn Write) -> Result<(), CliError> {
    use Align::{Left, Right};
    if run.track_list.is_empty() {
        return Ok(());
    }
    let mut busiest: Vec<&TrackSummary> = run.track_list.iter().collect();
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
    print_grid(grid, width, out)?;
    let more = run.track_list.len().saturating_sub(TRACKS);
    if more > 0 {
        writeln!(out, "  … and {more} more tracks (--json lists all)")?;
    }
    Ok(())
}

/// Returns the track's name, preceded by its group if the name is ambiguous, and by the file's
/// label if the run has several files.
fn shown_track(track: &TrackSummary) -> String {
    let name = match &track.parent_name {
        Some(parent) if !track.name.contains(parent.as_str()) => {
            format!("{} / {}", short(parent, 32), short(&track.name, 48))
        }
        _ => short(&track.name, 64),
    };
    match &track.host {
        Some(host) if track.parent_name.as_ref() != Some(host) => {
            format!("{} / {name}", short(host, 32))
        }
        _ => name,
    }
}

fn print_warnings(
    run: &RunInfo,
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if run.warnings.is_empty() && run.problems.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  Warnings")?;
    for problem in &run.problems {
        let told = format!("{}: {}", problem.file, short(&problem.reason, 160));
        say("  !  ", &told, width, out)?;
    }
    // Prints one line per code, for all files together.
    let mut codes: Vec<(&WarningInfo, u64)> = Vec::new();
    for warning in &run.warnings {
        match codes.iter_mut().find(|known| known.0.code == warning.code) {
            Some(known) => known.1 += warning.count,
            None => codes.push((warning, warning.count)),
        }
    }
    for (warning, count) in codes {
        let mark = if is_harmless(warning) { "·" } else { "!" };
        let times = text::count(count);
        let told = format!("{times} x {} [{}]", warning.title, warning.code);
        say(&format!("  {mark}  "), &told, width, out)?;
        if !warning.detail.is_empty() {
            say("       ", &short(&warning.detail, 140), width, out)?;
        }
    }
    Ok(())
}

/// Returns whether the warning reports no missing data.
fn is_harmless(warning: &WarningInfo) -> bool {
    let harmless = [Severity::Info, Severity::Notice];
    harmless.iter().any(|one| warning.severity == one.as_str())
}

/// Lists the first texts and the number of the others.
fn listed(texts: &[String]) -> String {
    let shown: Vec<_> = texts.iter().take(4).map(|text| short(text, 48)).collect();
    let more = texts.len() - shown.len();
    if more > 0 {
        format!("{} and {more} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}

/// Counts equal names: `8 x NVIDIA H100`.
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use stepscope_model::ReadContext;

    use super::*;
    use crate::info::collect;

    /// Two slices that overlap without nesting, which is a warning of many words.
    const TRACE: &str = r#"{"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"a","pid":"trainer","tid":1,"ts":0,"dur":10},
        {"ph":"X","cat":"cpu_op","name":"b","pid":"trainer","tid":1,"ts":5,"dur":10}]}"#;

    fn shown(path: &Path, width: Option<usize>) -> String {
        let context = Arc::new(ReadContext::default());
        let (report, ..) = collect(path, &context, false).unwrap();
        let mut out = Vec::new();
        print(&report, width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_narrow_terminal_gets_whole_words() {
        let dir = tempfile::tempdir().unwrap();
        let one = dir.path().join("t.trace.json");
        std::fs::write(&one, TRACE).unwrap();
        let (narrow, wide) = (shown(&one, Some(60)), shown(&one, None));
        assert!(wide.lines().any(|line| line.chars().count() > 60), "{wide}");
        for line in narrow.lines() {
            assert!(line.chars().count() <= 60, "{line}");
        }
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(words(&narrow), words(&wide));
    }

    #[test]
    fn a_list_of_runs_fits_and_names_what_it_leaves_out() {
        let dir = tempfile::tempdir().unwrap();
        for run in ["first", "second", "third"] {
            let name = format!("{run}-{}.trace.json", "long".repeat(12));
            std::fs::write(dir.path().join(name), TRACE).unwrap();
        }
        let narrow = shown(dir.path(), Some(80));
        let table: Vec<&str> = narrow.lines().skip_while(|line| !line.is_empty()).collect();
        for line in &table {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let left_out = table.last().unwrap();
        assert!(
            left_out.contains("in --json: ") && left_out.ends_with("Slices"),
            "{narrow}"
        );
        assert!(!shown(dir.path(), None).contains("in --json"));
    }
}
