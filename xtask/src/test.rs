//! `cargo xtask test`: runs all tests.

use anyhow::{Result, bail};

use crate::part::{Outcome, Parts};
use crate::programs::Build;
use crate::{
    assistants, browser, conformance, demo, dist, generate, objects, package, peers, shell, sql, ui,
};

/// `cargo xtask test [--quick] [PART]…`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (options, names): (Vec<_>, Vec<_>) = arguments
        .iter()
        .cloned()
        .partition(|argument| argument.starts_with('-'));
    if let Some(other) = options.iter().find(|option| *option != "--quick") {
        bail!("no option '{other}'; 'cargo xtask help' lists them");
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
    if quick {
        let first = [
            "SQL engine",
            "SQL engine, collected traces",
            "readers of datasets",
            "generated code",
            "release files",
            "viewer in a browser",
            "python package",
            "python package, other versions",
            "python frameworks",
            "upstream's own tests",
            "example",
            "peers read our files",
            "assistants",
            "assistants, conformance",
            "object storage",
            "object storage, Azure",
        ];
        let captures = peers::CAPTURE_TESTS.iter().map(|test| test.name);
        for left_out in first.into_iter().chain(captures) {
            parts.run(left_out, || {
                Ok(Outcome::NotRun("left out by --quick".to_owned()))
            });
        }
        return parts.finish();
    }
    parts.run("SQL engine", sql::test);
    parts.run("SQL engine, collected traces", sql::collected);
    parts.run("readers of datasets", sql::read_by_others);
    parts.run("generated code", generate::is_fresh);
    parts.run("release files", dist::check);
    parts.run("viewer in a browser", in_a_browser);
    parts.run("python package", package::test);
    parts.run(
        "python package, other versions",
        package::test_other_versions,
    );
    parts.run("python frameworks", package::test_with_frameworks);
    parts.run("upstream's own tests", package::test_upstream);
    parts.run("example", || {
        demo::train(Build::Dev, &demo::log_directory("test"))?;
        Ok(Outcome::Ok)
    });
    parts.run("peers read our files", peers::read_our_files);
    parts.run("assistants", assistants::test);
    parts.run("assistants, conformance", conformance::test);
    parts.run("object storage", objects::test);
    parts.run("object storage, Azure", objects::test_azure);
    for test in peers::CAPTURE_TESTS {
        parts.run(test.name, || peers::capture(test));
    }
    parts.finish()
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
    shell::run(
        ui::npm()
            .args(["run", "test:browser"])
            .env("STEPSCOPE_BIN", binary)
            .env("STEPSCOPE_SERVE", served)
            .env("STEPSCOPE_HLO_PROGRAM", hlo_program)
            .env("STEPSCOPE_SQL", sql::engine())
            .env("STEPSCOPE_CHROMIUM", chromium),
    )?;
    Ok(Outcome::Ok)
}
