//! Tests of the assistants' protocol, with its official client.

use anyhow::Result;

use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::{peers, shell, sql};

/// The client of the Model Context Protocol.
const CLIENT: Environment = Environment::from_requirements("mcp", &["mcp==2.3.0"]);

/// Runs the tests on both transports.
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
    let mut tests = shell::program(python);
    tests
        .args(["-B", "tests/assistants/test_mcp.py"])
        .env("STEPSCOPE_BIN", Build::Dev.command()?)
        .env("STEPSCOPE_SERVE", peers::serve_program(Build::Dev)?);
    // The part "SQL engine" builds it.
    if sql::engine().is_file() {
        tests.env("STEPSCOPE_SQL", sql::engine());
    }
    shell::run(&mut tests)?;
    Ok(Outcome::Ok)
}
