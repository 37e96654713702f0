//! Functions that run programs and find files of the checkout.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

/// Returns the root of the checkout.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Returns cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns the folder of the traces that are not in the repository; it may be missing.
pub(crate) fn collected_traces() -> PathBuf {
    std::env::var_os("STEPSCOPE_TRACES")
        .map_or_else(|| root().join("../shared/traces"), PathBuf::from)
}

/// Creates a command that runs in the root of the checkout, without the variables in which `cargo run`
/// describes the package of this program: the build script of `ring` reads them, so that a cargo with them and
/// a cargo without them would each compile it and all crates above it again.
///
/// Python keeps its compiled modules in the target folder, also where the environment says not to write any:
/// importing the frameworks takes half the time with them, and a test run does it a hundred times.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command
        .current_dir(root())
        .env("PYTHONPYCACHEPREFIX", target_dir().join("pycache"))
        .env_remove("PYTHONDONTWRITEBYTECODE");
    for (key, _) in std::env::vars_os() {
        let text = key.to_string_lossy();
        if ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(&key);
        }
    }
    command
}

/// Creates a command for the cargo that started this process.
pub(crate) fn cargo() -> Command {
    program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

thread_local! {
    static PRINTS_AT_END: Cell<bool> = const { Cell::new(false) };
}

/// Lets [`run`] print the output of this thread's commands in one piece, below the command again, when they have
/// ended: another thread prints too.
pub(crate) fn print_at_end() {
    PRINTS_AT_END.set(true);
}

/// Prints the command and runs it; returns an error when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    println!("$ {shown}");
    if PRINTS_AT_END.get() {
        if !run_and_print(command) {
            bail!("failed: {shown}");
        }
        return Ok(());
    }
    let status = command
        .status()
        .with_context(|| format!("cannot start: {shown}"))?;
    if !status.success() {
        bail!("failed ({status}): {shown}");
    }
    Ok(())
}

/// Runs a command, prints its output in one piece, and returns whether it succeeded.
fn run_and_print(command: &mut Command) -> bool {
    let mut text = format!("$ {}\n", show(command));
    let output = command.stdin(Stdio::null()).output();
    let succeeded = match &output {
        Ok(output) => {
            text += &String::from_utf8_lossy(&output.stdout);
            text += &String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                let _ = writeln!(text, "failed: {}", output.status);
            }
            output.status.success()
        }
        Err(error) => {
            let _ = writeln!(text, "cannot start: {error}");
            false
        }
    };
    // One call: another thread prints too.
    print!("{text}");
    succeeded
}

/// Runs commands two at a time, prints the output of each when it has ended, and returns the names
/// of those that failed, in their order.
pub(crate) fn run_in_pairs(commands: Vec<(&str, Command)>) -> Vec<&str> {
    let waiting = Mutex::new(commands.into_iter().enumerate());
    let next = || waiting.lock().ok()?.next();
    let failed = Mutex::new(Vec::new());
    let worker = || {
        while let Some((at, (name, mut command))) = next() {
            if !run_and_print(&mut command)
                && let Ok(mut failed) = failed.lock()
            {
                failed.push((at, name));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_unstable();
    failed.into_iter().map(|(_at, name)| name).collect()
}

/// Runs the command and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start: {shown}"))?;
    if !output.status.success() {
        bail!("failed ({}): {shown}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the program can be started.
pub(crate) fn exists(name: &str) -> bool {
    Command::new(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Waits until built and installed files are on the disk, before programs call fsync.
pub(crate) fn sync() -> Result<()> {
    if exists("sync") {
        run(&mut program("sync"))?;
    }
    Ok(())
}

/// Computes a stable hash of the content of files and folders, to detect changes.
pub(crate) fn hash_files(paths: &[PathBuf], skip: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, skip, &mut files)?;
    }
    files.sort();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in &files {
        feed(file.to_string_lossy().as_bytes());
        feed(&read(file)?);
    }
    Ok(format!("{hash:016x}"))
}

/// Reads a file.
#[allow(
    clippy::disallowed_methods,
    reason = "xtask is no library; it may open files"
)]
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Lists every file below `path`, except folders and files named in `skip`.
pub(crate) fn collect(path: &Path, skip: &[&str], into: &mut Vec<PathBuf>) -> Result<()> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    if name.is_some_and(|name| skip.contains(&name.as_str())) || !path.exists() {
        return Ok(());
    }
    if path.is_dir() {
        let entries =
            std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries {
            collect(&entry?.path(), skip, into)?;
        }
    } else {
        into.push(path.to_path_buf());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_fail_are_named_in_their_order() {
        let commands = ["false", "true", "no such program", "false"];
        let commands = commands.map(|name| (name, Command::new(name)));
        let failed = run_in_pairs(commands.into());
        assert_eq!(failed, ["false", "no such program", "false"]);
    }
}
