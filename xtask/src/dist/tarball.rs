//! The tarball: the programs, completion scripts, man pages, licences.

use anyhow::{Context as _, Result, ensure};

use super::{archive, carries_viewer, empty_folder, manifests, source_date};
use crate::part::Outcome;
use crate::programs::Build;
use crate::{shell, sql};

/// Documents of the checkout in the tarball.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Shells, and the name of the script that each looks for.
const SCRIPTS: [(&str, &str); 4] = [
    ("bash", "stepscope.bash"),
    ("zsh", "_stepscope"),
    ("fish", "stepscope.fish"),
    ("powershell", "_stepscope.ps1"),
];

/// Builds the programs and packs them.
pub(super) fn make(with_sql: bool) -> Result<Outcome> {
    let program = Build::Packaged.command()?;
    carries_viewer(&program)?;
    let version = manifests::version()?;
    let printed = shell::output(shell::program(&program).arg("--version"))?;
    ensure!(
        printed.trim() == format!("stepscope {version}"),
        "unexpected version: {printed}"
    );
    let out = empty_folder("tarball")?;
    let name = format!("stepscope-{version}-{}", host()?);
    let top = out.join(&name);
    std::fs::create_dir(&top)?;
    copy(&program, &top.join("stepscope"))?;
    for library in Build::Packaged.collectors()? {
        let file = library.file_name().context("a library without a name")?;
        copy(&library, &top.join(file))?;
    }
    if with_sql {
        copy(&sql::release_engine()?, &top.join("stepscope-sql"))?;
    }
    for document in DOCUMENTS {
        copy(&shell::root().join(document), &top.join(document))?;
    }
    let completions = top.join("completions");
    std::fs::create_dir(&completions)?;
    for (shell_name, script) in SCRIPTS {
        let text = shell::output(shell::program(&program).args(["completions", shell_name]))?;
        std::fs::write(completions.join(script), text)?;
    }
    shell::run(
        shell::program(&program)
            .arg("man-pages")
            .arg(top.join("man/man1")),
    )?;
    let archive = out.join(format!("{name}.tar.gz"));
    archive::pack(&top, &source_date()?, &archive)?;
    archive::write_checksum(&archive)?;
    std::fs::remove_dir_all(&top)?;
    println!(
        "{}: {} bytes",
        archive.display(),
        std::fs::metadata(&archive)?.len()
    );
    Ok(Outcome::Ok)
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Returns the target that rustc builds for.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = shell::output(shell::program(rustc).args(["--print", "host-tuple"]))?;
    Ok(printed.trim().to_owned())
}
