//! `cargo xtask bench`: ratios to other tools, measured in one run of this program.
//!
//! Absolute times of a shared machine are not comparable, so every figure is shown with the same
//! work of other tools, or with a floor, of the same run. No test depends on these figures.

mod capture;
mod clients;
mod open;
mod python;
mod reports;
mod results;
mod server;
mod spans;
mod windows;

use anyhow::{Result, bail};

use crate::part::Parts;
use results::Results;

/// All benchmarks.
const ALL: [&str; 7] = [
    "spans", "open", "windows", "reports", "large", "capture", "python",
];

/// `cargo xtask bench [spans|open|windows|reports|large|capture|python]…`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    for argument in arguments {
        if !ALL.contains(&argument.as_str()) {
            bail!("no benchmark '{argument}'; there are {}", ALL.join(", "));
        }
    }
    let wanted =
        |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    let mut results = Results::new();
    let mut parts = Parts::default();
    if wanted("spans") {
        parts.run("spans", || spans::measure(&mut results));
    }
    if wanted("open") {
        parts.run("open XSpace", || open::xspace(&mut results));
        parts.run("open JSON", || open::json(&mut results));
    }
    if wanted("windows") {
        parts.run("windows", || windows::measure(&mut results));
    }
    if wanted("reports") {
        parts.run("reports", || reports::peers(&mut results));
    }
    if wanted("large") {
        parts.run("large", || reports::large(&mut results));
    }
    if wanted("capture") {
        parts.run("capture", || capture::measure(&mut results));
        parts.run("capture clients", || clients::measure(&mut results));
    }
    if wanted("python") {
        parts.run("python", || python::measure(&mut results));
    }
    results.print();
    results.write()?;
    parts.finish()
}
