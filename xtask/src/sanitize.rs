//! `cargo xtask sanitize`: runs the recorder's unsafe and lock-free code with tools that detect
//! undefined behaviour and races.
//!
//! None of these tools belongs to the toolchain that builds stepscope. A part whose tool is missing
//! is *not run*, with the remedy.

use anyhow::Result;

use crate::part::{Outcome, Parts};
use crate::shell;

/// Unit tests of the recorder that Miri can run: those without mappings, files or processes.
const MIRI_TESTS: &[&str] = &[
    "circular::",
    "decode::",
    "index::",
    "layout::",
    "record_iter::",
];

/// `cargo xtask sanitize [PART]...`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut parts = Parts::only(arguments.to_vec());
    parts.run("loom", loom);
    parts.run("thread sanitizer", thread_sanitizer);
    parts.run("miri", miri);
    parts.finish()
}

/// Explores every order of a ring's owner and the drain thread with loom.
fn loom() -> Result<Outcome> {
    let folder = shell::root().join("sanitize");
    shell::run(
        shell::cargo()
            .current_dir(folder)
            .args(["test", "--release"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", shell::target_dir().join("sanitize")),
    )?;
    Ok(Outcome::Ok)
}

/// Runs a recording of eight threads under `ThreadSanitizer`.
fn thread_sanitizer() -> Result<Outcome> {
    let sysroot = shell::output(shell::program("rustc").args(["--print", "sysroot"]))?;
    let sysroot = std::path::Path::new(sysroot.trim());
    let target = shell::output(shell::program("rustc").args(["--print", "host-tuple"]))?;
    let target = target.trim();
    let libraries = sysroot.join("lib/rustlib").join(target).join("lib");
    let has_runtime = std::fs::read_dir(&libraries)
        .is_ok_and(|mut files| files.any(|file| is_runtime(file.as_ref().ok())));
    if !has_runtime {
        return Ok(Outcome::NotRun(format!(
            "this toolchain has no ThreadSanitizer for {target}"
        )));
    }
    let has_sources = sysroot.join("lib/rustlib/src/rust/library").is_dir();
    let log_dir = shell::target_dir().join("sanitize/recordings");
    let suppressions = shell::root().join("sanitize/tsan.txt");
    let mut command = shell::cargo();
    // Sanitizers are unstable options of the compiler.
    command
        .args(["run", "-p", "stepscope", "--example", "eight_threads"])
        .args(["--target", target])
        .env("RUSTC_BOOTSTRAP", "1")
        .env(
            "RUSTFLAGS",
            "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        )
        .env("CARGO_TARGET_DIR", shell::target_dir().join("sanitize"));
    if has_sources {
        command.arg("-Zbuild-std");
    } else {
        // `ThreadSanitizer` does not detect the synchronisation of a standard library that was
        // built without it.
        println!("without rust-src: what std's locks guard is left out (sanitize/tsan.txt)");
        command.env(
            "TSAN_OPTIONS",
            format!("suppressions={}", suppressions.display()),
        );
    }
    shell::run(command.arg("--").arg(log_dir))?;
    Ok(Outcome::Ok)
}

fn is_runtime(file: Option<&std::fs::DirEntry>) -> bool {
    file.is_some_and(|file| file.file_name().to_string_lossy().contains("_rt.tsan"))
}

/// Runs unit tests of the ring layout and of the decoding of journals under Miri.
fn miri() -> Result<Outcome> {
    let mut command = shell::program("cargo");
    let version = command.args(["+nightly", "miri", "--version"]).output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Ok(Outcome::NotRun(
            "Miri is not installed: rustup +nightly component add miri rust-src".to_owned(),
        ));
    }
    shell::run(
        shell::program("cargo")
            .args(["+nightly", "miri", "test", "-p", "stepscope", "--lib", "--"])
            .args(MIRI_TESTS)
            .env("CARGO_TARGET_DIR", shell::target_dir().join("sanitize")),
    )?;
    Ok(Outcome::Ok)
}
