//! `cargo xtask bench`: ratios against peers measured in one run.

use anyhow::Result;

/// `cargo xtask bench`
pub(crate) fn run(_arguments: &[String]) -> Result<()> {
    anyhow::bail!("no benchmark has been written yet")
}
