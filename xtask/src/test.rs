//! `cargo xtask test`: the one test command.

use anyhow::Result;

use crate::part::{Outcome, Parts};
use crate::{browser, demo, generate, python, shell, ui};

/// What the peers' own readers are checked with. jax pins jaxlib; xprof brings its own protobuf.
const PEERS: &[&str] = &["jax==0.10.2", "xprof==2.24.2"];

/// `cargo xtask test [--quick]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let mut parts = Parts::default();
    parts.run("viewer build", || ui::build(false));
    parts.run("rust", || {
        shell::run(shell::cargo().args(["test", "--quiet", "--no-fail-fast"]))?;
        Ok(Outcome::Ok)
    });
    parts.run("viewer unit tests", || {
        if !shell::exists("npm") {
            return Ok(Outcome::NotRun(
                "npm is missing: install Node.js 20 or newer".to_owned(),
            ));
        }
        ui::install()?;
        shell::run(ui::npm().args(["test"]))?;
        Ok(Outcome::Ok)
    });
    if quick {
        for left_out in [
            "generated code",
            "viewer in a browser",
            "peers read our files",
            "example",
        ] {
            parts.run(left_out, || {
                Ok(Outcome::NotRun("left out by --quick".to_owned()))
            });
        }
        return parts.finish();
    }
    parts.run("generated code", generate::is_fresh);
    parts.run("viewer in a browser", in_a_browser);
    parts.run("peers read our files", read_by_peers);
    parts.run("example", || {
        demo::train(&demo::log_directory("test"))?;
        Ok(Outcome::Ok)
    });
    parts.finish()
}

/// The probes of the viewer, in a real Chromium against the real binary.
fn in_a_browser() -> Result<Outcome> {
    if !shell::exists("npm") {
        return Ok(Outcome::NotRun(
            "npm is missing: install Node.js 20 or newer".to_owned(),
        ));
    }
    let chromium = match browser::chromium() {
        Ok(path) => path,
        Err(why) => return Ok(Outcome::NotRun(why)),
    };
    let binary = demo::release_binary()?;
    ui::install()?;
    shell::run(
        ui::npm()
            .args(["run", "test:browser"])
            .env("STEPSCOPE_BIN", binary)
            .env("STEPSCOPE_CHROMIUM", chromium),
    )?;
    Ok(Outcome::Ok)
}

/// JAX's `ProfileData` and XProf's converters open what our recorder and converters write.
fn read_by_peers() -> Result<Outcome> {
    let Some(python) = python::environment("peers", PEERS)? else {
        return Ok(Outcome::NotRun(
            "no Python 3.10 or newer with the venv module".to_owned(),
        ));
    };
    let log_directory = demo::log_directory("peers");
    if log_directory.exists() {
        std::fs::remove_dir_all(&log_directory)?;
    }
    shell::run(
        shell::cargo()
            .args([
                "run",
                "--quiet",
                "--package",
                "stepscope",
                "--example",
                "record",
                "--",
            ])
            .arg(&log_directory),
    )?;
    shell::run(
        shell::program(python)
            .arg("tests/peers/read_recording.py")
            .arg(&log_directory),
    )?;
    Ok(Outcome::Ok)
}
