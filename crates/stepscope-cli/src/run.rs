//! `stepscope run`: records a program without changing it.
//!
//! The command starts the program with variables (`environment`) and with a folder in front of `PYTHONPATH` whose
//! `sitecustomize` has each Python interpreter record itself. Every recorded process leaves a report in that
//! folder; `summary` prints them when the program has ended.
//!
//! **Invariant:** the program runs as without this command, whatever fails here. (`tests/it/run`)

mod environment;
pub(crate) mod gpu;
mod program;
mod summary;
mod toggle;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args;
use crate::error::CliError;
use crate::text::clean;

/// The file that Python interpreters import when they start.
const SITECUSTOMIZE: &str = include_str!("run/sitecustomize.py");

/// Runs the command.
pub fn run(asked: &args::RunArgs) -> Result<(), CliError> {
    let Some((name, arguments)) = asked.command.split_first() else {
        return Err(CliError::usage("cannot run a program: none is named"));
    };
    let mut command = Command::new(name);
    command.args(arguments);
    program::survive_size_limit();
    let folder = match prepare(asked, &mut command) {
        Ok(folder) => Some(folder),
        Err(cause) => {
            note(&cause);
            None
        }
    };
    // Without a recording, the signal is the program's.
    let toggle = folder.as_ref().and(asked.signal);
    if let (Some(signal), Some(folder)) = (toggle, &folder)
        && let Err(error) = toggle::hand_on(signal.number(), folder.path.clone())
    {
        note(&format!(
            "cannot hand on SIG{}: {error}\nhelp: send it to the program itself",
            signal.as_str()
        ));
    }
    let began_ns = stepscope_model::clock::unix_now_ns();
    let used = toggle.map(args::ToggleSignal::number);
    let ended = program::run(&mut command, used).map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        };
        CliError::NotStarted {
            text: format!(
                "cannot run {}: {error}\nhelp: name a program as in a shell: stepscope run -- python train.py",
                name.to_string_lossy()
            ),
            code,
        }
    })?;
    if let Some(folder) = folder {
        for line in summary::lines(&folder.path, asked, began_ns) {
            note(&line);
        }
    }
    match program::end_as(ended) {
        0 => Ok(()),
        code => Err(CliError::ProgramEnded { code }),
    }
}

/// Notes which signals this process was started with ignored: the program starts with the same. The executable calls it
/// before Rust's runtime starts, which ignores `SIGPIPE`.
#[doc(hidden)]
pub extern "C" fn note_inherited_signals() {
    program::note_inherited();
}

/// Prints a line to stderr. Ignores write errors.
fn note(line: &str) {
    let mut stderr = io::stderr().lock();
    let mut lines = line.lines();
    if let Some(first) = lines.next() {
        let _ = writeln!(stderr, "stepscope: {}", clean(first));
    }
    for line in lines {
        let _ = writeln!(stderr, "{}", clean(line));
    }
}

/// Creates the folder of this command and sets the variables of the program. The error is a line for the user.
fn prepare(asked: &args::RunArgs, command: &mut Command) -> Result<RunFolder, String> {
    let logdir = std::path::absolute(&asked.logdir)
        .and_then(|logdir| check_writable(&logdir).map(|()| logdir))
        .map_err(|error| {
            format!(
                "cannot record this program: {}: {error}\nhelp: name a directory that can be written with --logdir",
                asked.logdir.display()
            )
        })?;
    let folder = RunFolder::create().map_err(|error| {
        let parent = std::env::temp_dir();
        format!(
            "cannot record this program: {}: {error}\nhelp: set TMPDIR to a directory that can be written",
            parent.display()
        )
    })?;
    command.envs(environment::variables(asked, &logdir, &folder.path));
    let gpu = gpu::prepare(asked);
    command.envs(gpu.variables);
    for line in gpu.notes {
        note(&line);
    }
    Ok(folder)
}

/// Creates the directory, and a file in it for a moment.
pub(crate) fn check_writable(logdir: &Path) -> io::Result<()> {
    fs::create_dir_all(logdir)?;
    let probe = logdir.join(format!(".stepscope-probe-{}", std::process::id()));
    fs::write(&probe, b"stepscope")?;
    fs::remove_file(&probe)
}

/// The private folder of this command; removed at the end.
struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    fn create() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        let process = std::process::id();
        let mut number = 0;
        let path = loop {
            let path = std::env::temp_dir().join(format!("stepscope-run-{process}-{number}"));
            // A folder that exists may be another user's.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let folder = Self { path };
        fs::create_dir(folder.path.join(summary::REPORTS))?;
        fs::write(folder.path.join("sitecustomize.py"), SITECUSTOMIZE)?;
        Ok(folder)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
