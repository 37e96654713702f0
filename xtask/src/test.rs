//! `cargo xtask test`: runs all tests.

use anyhow::{Result, bail};

use crate::part::{Outcome, PartFunction, Parts};
use crate::programs::Build;
use crate::{
    assistants, browser, conformance, demo, dist, generate, objects, package, peers, shell,
    skipped, sql, ui,
};

/// `cargo xtask test [--quick] [PART]…`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (options, names): (Vec<_>, Vec<_>) = arguments
        .iter()
        .cloned()
        .partition(|argument| argument.starts_with('-'));
    if let Some(other) = options.iter().find(|option| *option != "--quick") {
        bail!(
            "cannot use '{other}': there is no such option\nhelp: 'cargo xtask help' lists the options"
        );
    }
    let quick = !options.is_empty();
    let mut parts = Parts::only(names);
    parts.run("viewer build", || ui::build(false));
    parts.run("rust", || {
        shell::run(shell::cargo().args(["test", "--quiet", "--no-fail-fast"]))?;
        Ok(Outcome::Ok)
    });
    parts.run("rust, collected traces", on_collected_traces);
    parts.run("viewer unit tests", || {
        if let Some(missing) = ui::missing_npm() {
            return Ok(missing);
        }
        ui::install()?;
        shell::run(ui::npm().args(["test"]))?;
        Ok(Outcome::Ok)
    });
    let left_out: PartFunction = || Ok(Outcome::NotRun("left out by --quick".to_owned()));
    let slow = |part: PartFunction| if quick { left_out } else { part };
    parts.run("SQL engine", slow(sql::test));
    parts.run("SQL engine, collected traces", slow(sql::collected));
    parts.run("readers of datasets", slow(sql::read_by_others));
    parts.run("generated code", slow(generate::is_fresh));
    parts.run("release files", slow(dist::check));
    parts.run_side_by_side([
        &[("viewer in a browser", slow(in_a_browser))],
        &[
            ("python package", slow(package::test)),
            (
                "python package, other versions",
                slow(package::test_other_versions),
            ),
            ("assistants", slow(assistants::test)),
            ("assistants, conformance", slow(conformance::test)),
            ("object storage", slow(objects::test)),
            ("object storage, Azure", slow(objects::test_azure)),
        ],
    ]);
    // The frameworks' tests run in pairs, and one of them compares times: nothing else runs then.
    parts.run("python frameworks", slow(package::test_with_frameworks));
    parts.run("upstream's own tests", slow(package::test_upstream));
    parts.run("example", slow(example));
    parts.run("peers read our files", slow(peers::read_our_files));
    for test in peers::CAPTURE_TESTS {
        parts.run(test.name, || {
            if quick {
                left_out()
            } else {
                peers::capture(test)
            }
        });
    }
    parts.finish()
}

fn example() -> Result<Outcome> {
    demo::train(&mut Build::Dev.training(), &demo::log_directory("test"))?;
    Ok(Outcome::Ok)
}

/// The tests that the part *rust* ignores, since they read traces that are not in the repository.
fn on_collected_traces() -> Result<Outcome> {
    let folder = shell::collected_traces();
    if !folder.is_dir() {
        return Ok(Outcome::NotRun(
            "no collected traces: name their folder in STEPSCOPE_TRACES".to_owned(),
        ));
    }
    // Those of the SQL engine run in its part.
    let tests = ["--tests", "--", "--ignored", "--skip", "sql::"];
    shell::run(
        shell::cargo()
            .args(["test", "--quiet", "--no-fail-fast"])
            .args(tests)
            .env("STEPSCOPE_TRACES", folder),
    )?;
    Ok(Outcome::Ok)
}

/// Runs the viewer's browser tests, in Chromium with the command that `cargo test` builds.
fn in_a_browser() -> Result<Outcome> {
    if let Some(missing) = ui::missing_npm() {
        return Ok(missing);
    }
    let chromium = match browser::chromium() {
        Ok(path) => path,
        Err(why) => return Ok(Outcome::NotRun(why)),
    };
    let binary = Build::Dev.command()?;
    // A program to capture, and one that writes a large compiled program.
    let served = peers::serve_program(Build::Dev)?;
    let hlo_program = Build::Dev.example("stepscope-test-data", "hlo_program")?;
    shell::sync()?;
    ui::install()?;
    let mut probes = ui::npm();
    probes
        .args(["run", "test:browser"])
        .env("STEPSCOPE_BIN", binary)
        .env("STEPSCOPE_SERVE", served)
        .env("STEPSCOPE_HLO_PROGRAM", hlo_program)
        .env("STEPSCOPE_SQL", sql::engine())
        .env("STEPSCOPE_CHROMIUM", chromium);
    skipped::record(&mut probes, "viewer in a browser")?;
    shell::run(&mut probes)?;
    // The part "SQL engine" builds it.
    skipped::outcome(
        &["viewer in a browser"],
        &["STEPSCOPE_TRACES", "no SQL engine"],
    )
}
