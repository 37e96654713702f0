//! `cargo xtask gen`: generates Rust from `proto/`. The result is committed, so building stepscope
//! needs no protobuf compiler.

use std::path::Path;

use anyhow::{Result, bail};

use crate::part::Outcome;
use crate::shell;

const MADE: [&str; 2] = ["tensorflow.rs", "descriptor.bin"];

/// `cargo xtask gen [--check]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            into(&home())?;
            println!("written: {}", home().display());
            Ok(())
        }
        [check] if check == "--check" => is_fresh().map(|_ok| ()),
        _ => bail!("'cargo xtask gen' takes --check or nothing"),
    }
}

/// Generates again into another folder and compares.
pub(crate) fn is_fresh() -> Result<Outcome> {
    let again = shell::target_dir().join("generated");
    std::fs::create_dir_all(&again)?;
    into(&again)?;
    for name in MADE {
        let committed = shell::read(&home().join(name))?;
        if committed != shell::read(&again.join(name))? {
            bail!("{name} does not match proto/: run 'cargo xtask gen' and commit the result");
        }
    }
    Ok(Outcome::Ok)
}

fn home() -> std::path::PathBuf {
    shell::root().join("crates/stepscope-remote/src/proto")
}

fn into(folder: &Path) -> Result<()> {
    let protos = shell::root().join("proto");
    shell::run(
        shell::cargo()
            .args(["run", "--quiet", "--locked", "--manifest-path"])
            .arg(protos.join("generator/Cargo.toml"))
            .arg("--target-dir")
            .arg(shell::target_dir().join("generator"))
            .arg("--")
            .arg(&protos)
            .arg(folder),
    )
}
