//! `cargo xtask bench`: ratios to other tools, measured in one run of this program.
//!
//! Absolute times of a shared machine are not comparable, so every figure is shown with the same
//! work of other tools, or with a floor, of the same run. No test depends on these figures.

mod capture;
mod clients;
mod open;
mod processor;
mod python;
mod reports;
mod results;
mod server;
mod spans;
mod sql;
mod windows;

use anyhow::{Result, bail};

use crate::part::{Outcome, Parts};
use results::Results;

/// A benchmark: the argument that asks for it, its name, and the measurement.
type Benchmark = (
    &'static str,
    &'static str,
    fn(&mut Results) -> Result<Outcome>,
);

/// All benchmarks.
const ALL: [Benchmark; 10] = [
    ("spans", "spans", spans::measure),
    ("open", "open XSpace", open::xspace),
    ("open", "open JSON", open::json),
    ("windows", "windows", windows::measure),
    ("reports", "reports", reports::peers),
    ("large", "large", reports::large),
    ("sql", "SQL", sql::measure),
    ("capture", "capture", capture::measure),
    ("capture", "capture clients", clients::measure),
    ("python", "python", python::measure),
];

/// `cargo xtask bench [spans|open|windows|reports|large|sql|capture|python]…`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    for argument in arguments {
        if !ALL.iter().any(|(name, ..)| name == argument) {
            let mut names: Vec<&str> = ALL.iter().map(|(name, ..)| *name).collect();
            names.dedup();
            bail!(
                "cannot run '{argument}': there is no such benchmark\nhelp: use one of {}",
                names.join(", ")
            );
        }
    }
    let mut results = Results::new();
    let mut parts = Parts::default();
    for (argument, name, measure) in ALL {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == argument) {
            parts.run(name, || {
                let outcome = measure(&mut results)?;
                // What was measured stays if a later benchmark is interrupted.
                results.write()?;
                Ok(outcome)
            });
        }
    }
    results.print();
    parts.finish()
}
