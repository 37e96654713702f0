//! `cargo xtask gen`: files that are generated from other files and committed.
//!
//! The messages of `proto/`, so that building stepscope needs no protobuf compiler; and the reports,
//! pages, endpoints and profiler options that the viewer and the Python package know, from the
//! registries in Rust.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::part::Outcome;
use crate::programs::Build;
use crate::shell;

/// Name of each file and its folder in the checkout.
const MADE: [(&str, &str); 5] = [
    ("tensorflow.rs", "crates/stepscope-remote/src/proto"),
    ("descriptor.bin", "crates/stepscope-remote/src/proto"),
    ("generated.ts", "ui/src/model"),
    ("_generated.py", "python/src/stepscope"),
    ("report-columns.md", "docs/reference"),
];

/// `cargo xtask gen [--check]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            let folder = made()?;
            for (name, home) in MADE {
                let home = shell::root().join(home).join(name);
                std::fs::copy(folder.join(name), &home)?;
                println!("written: {}", home.display());
            }
            Ok(())
        }
        [check] if check == "--check" => is_fresh().map(|_ok| ()),
        _ => bail!("'cargo xtask gen' takes --check or nothing"),
    }
}

/// Generates all files again into another folder and compares.
pub(crate) fn is_fresh() -> Result<Outcome> {
    let folder = made()?;
    for (name, home) in MADE {
        let committed = shell::read(&shell::root().join(home).join(name))?;
        if committed != shell::read(&folder.join(name))? {
            bail!("{home}/{name} is stale: run 'cargo xtask gen' and commit the result");
        }
    }
    Ok(Outcome::Ok)
}

/// Makes all files; returns their folder.
fn made() -> Result<PathBuf> {
    let folder = shell::target_dir().join("generated");
    std::fs::create_dir_all(&folder)?;
    messages(&folder)?;
    shell::run(shell::program(Build::Dev.example("stepscope-server", "registry")?).arg(&folder))?;
    Ok(folder)
}

fn messages(folder: &Path) -> Result<()> {
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
