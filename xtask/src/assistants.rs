//! Tests of the assistants' protocol, with its official client, and of the skill.

use anyhow::Result;

use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::{peers, shell, skipped, sql};

/// The client of the Model Context Protocol.
const CLIENT: Environment = Environment::from_requirements("mcp", &["mcp==2.3.0"]);

/// Runs the tests of the server on both transports, and the commands of the skill.
pub(crate) fn test() -> Result<Outcome> {
    let python = match CLIENT.python() {
        Ok(Some(python)) => python,
        Ok(None) => return Ok(peers::no_python()),
        Err(error) => {
            return Ok(Outcome::NotRun(format!(
                "pip could not install the protocol's client ({error:#}); make its index reachable and run it again: {}",
                CLIENT.requirements.join(" ")
            )));
        }
    };
    let command = Build::Dev.command()?;
    let served = peers::serve_program(Build::Dev)?;
    let scripts = ["test_mcp", "test_skill"];
    for script in scripts {
        let mut tests = skipped::unit_tests(&python, script, &[script])?;
        tests
            .current_dir(shell::root().join("tests/assistants"))
            .env("STEPSCOPE_BIN", &command)
            .env("STEPSCOPE_SERVE", &served);
        // The part "SQL engine" builds it.
        if sql::engine().is_file() {
            tests.env("STEPSCOPE_SQL", sql::engine());
        }
        shell::run(&mut tests)?;
    }
    skipped::outcome(&scripts, &["no SQL engine"])
}
