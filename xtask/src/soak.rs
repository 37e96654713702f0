//! `cargo xtask soak`: recorder, captures, server and browser for an hour, with faults injected.

use anyhow::{Context as _, Result, bail};

use crate::part::Outcome;
use crate::programs::Build;
use crate::{browser, package, peers, python, shell, ui};

/// `cargo xtask soak [--minutes N] [--seed N]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut options = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--minutes" | "--seed" => {
                let number = rest
                    .next()
                    .filter(|text| text.parse::<f64>().is_ok())
                    .with_context(|| format!("{argument} needs a number"))?;
                options.extend([argument, number]);
            }
            other => bail!(
                "cannot use '{other}': there is no such option\nhelp: 'cargo xtask help' lists the options"
            ),
        }
    }
    if !cfg!(target_os = "linux") {
        bail!("cannot run the soak: it reads /proc, which only Linux has");
    }
    let interpreters = python::interpreters();
    let interpreter = interpreters.last().context("no Python 3.10 or newer")?;
    // Before the release binary, which embeds it.
    let chromium = match ui::build(false)? {
        Outcome::NotRun(why) => Err(why),
        Outcome::Ok | Outcome::OkExcept(_) => browser::chromium(),
    };
    let mut soak = shell::program(&interpreter.path);
    soak.arg("tests/remote/soak.py")
        .args(options)
        .env("STEPSCOPE_BIN", Build::Release.command()?)
        .env("STEPSCOPE_SERVE", peers::serve_program(Build::Release)?);
    match chromium {
        Ok(chromium) => soak.env("STEPSCOPE_CHROMIUM", chromium),
        Err(why) => soak.env("STEPSCOPE_NO_CHROMIUM", why),
    };
    match package::python(Build::Release) {
        Ok(Ok(python)) => soak.env("STEPSCOPE_PACKAGE_PYTHON", python),
        Ok(Err(Outcome::NotRun(why))) => soak.env("STEPSCOPE_NO_PACKAGE", why),
        Ok(Err(_)) => &mut soak,
        Err(error) => soak.env("STEPSCOPE_NO_PACKAGE", format!("{error:#}")),
    };
    shell::run(&mut soak)
}
