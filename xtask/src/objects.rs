//! Tests of object storage, with emulators of the stores.

use anyhow::Result;

use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::{peers, shell, sql};

/// The emulator of S3, and with a proxy of Google Cloud Storage.
const EMULATOR: Environment = Environment::from_requirements("objects", &["moto[server]==5.2.5"]);

/// Runs the tests on S3 and Google Cloud Storage.
pub(crate) fn test() -> Result<Outcome> {
    run(&["S3", "Google"])
}

/// Runs the tests on Azure, whose emulator is installed by hand: it has 450 packages.
pub(crate) fn test_azure() -> Result<Outcome> {
    if std::env::var_os("STEPSCOPE_AZURITE").is_none() {
        return Ok(Outcome::NotRun(
            "no emulator of Azure: npm install azurite@3.37.0, and name node_modules/.bin/azurite-blob in \
             STEPSCOPE_AZURITE"
                .to_owned(),
        ));
    }
    run(&["Azure"])
}

fn run(stores: &[&str]) -> Result<Outcome> {
    let python = match EMULATOR.python() {
        Ok(Some(python)) => python,
        Ok(None) => return Ok(peers::no_python()),
        Err(error) => {
            return Ok(Outcome::NotRun(format!(
                "pip could not install the emulator ({error:#}); make its index reachable and run it again: {}",
                EMULATOR.requirements.join(" ")
            )));
        }
    };
    shell::run(
        shell::program(python)
            .arg("tests/objects/test_stores.py")
            .args(stores)
            .env("STEPSCOPE_BIN", Build::Dev.command()?)
            .env("STEPSCOPE_SERVE", peers::serve_program(Build::Dev)?)
            .env("STEPSCOPE_SQL", sql::engine()),
    )?;
    Ok(Outcome::Ok)
}
