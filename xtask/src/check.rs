//! `cargo xtask check`: all checks that do not run a test.

use anyhow::Result;

use crate::part::{Outcome, Parts};
use crate::{cycles, laws, licences, lints, package, shell, site, sql, type_names, ui, vocabulary};

/// All crates but the example, which brings a library for neural networks.
const WORKSPACE: [&str; 3] = ["--workspace", "--exclude=rust_mnist", "--all-features"];

/// `cargo xtask check [PART]…`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut parts = Parts::only(arguments.to_vec());
    parts.run("fmt", || {
        shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
        Ok(Outcome::Ok)
    });
    parts.run("clippy", || {
        lints::run(
            shell::cargo()
                .args(["check", "--quiet", "--all-targets"])
                .args(WORKSPACE),
        )
    });
    parts.run("doc", || {
        let mut doc = shell::cargo();
        doc.args(["doc", "--quiet", "--no-deps"]).args(WORKSPACE);
        // What clippy has checked is not checked again.
        lints::add(&mut doc)?;
        shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
        Ok(Outcome::Ok)
    });
    parts.run("fuzz targets", || {
        // Nothing is linked: libFuzzer, a library in C++, is not compiled.
        shell::run(
            shell::cargo()
                .args(["check", "--quiet", "--all-targets"])
                .args(["--manifest-path", "fuzz/Cargo.toml"])
                .env("CUSTOM_LIBFUZZER_PATH", "/not/linked/libfuzzer.a"),
        )?;
        Ok(Outcome::Ok)
    });
    parts.run("SQL engine", sql::check);
    parts.run("licences", licences::check);
    parts.run("layers", laws::layers);
    parts.run("features", package::features);
    parts.run("words", laws::words);
    parts.run("vocabulary", vocabulary::check);
    parts.run("type names", type_names::check);
    parts.run("import circles", cycles::check);
    parts.run("launchers", laws::launchers);
    parts.run("docs", laws::docs);
    parts.run("site", site::check);
    parts.run("typos", package::typos);
    parts.run("python", package::check);
    parts.run("ui", || {
        if let Some(missing) = ui::missing_npm() {
            return Ok(missing);
        }
        ui::install()?;
        shell::run(ui::npm().args(["run", "check"]))?;
        Ok(Outcome::Ok)
    });
    parts.finish()
}
