//! The SQL engine: another program, `stepscope-sql`, which this one finds, starts and asks over pipes.
//!
//! A query engine of two hundred crates stays out of this program, and a query that needs too much memory or time ends
//! that process alone. Messages: `u32 length | u8 kind | bytes`; `sql/src/protocol.rs` describes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

mod time_limit;

pub use time_limit::TimeLimit;

/// The environment variable that names the program.
const VARIABLE: &str = "STEPSCOPE_SQL";
/// Its file name.
const PROGRAM: &str = "stepscope-sql";
/// Version of the protocol.
const PROTOCOL: u32 = 4;
/// How to get it.
const HOW_TO_GET: &str = "build it with 'cargo build --release --manifest-path sql/Cargo.toml' and put stepscope-sql \
                          next to stepscope or on PATH, or name it in STEPSCOPE_SQL";
/// Time that the program has to end a query itself, after the query's limit.
const GRACE: Duration = Duration::from_secs(5);
/// Shortest time between two looks at a limit that is not reached: its query may pause.
const LOOK: Duration = Duration::from_millis(100);
/// Time that the program has to start.
const START: Duration = Duration::from_secs(30);
/// Longest accepted message, bytes.
const LONGEST: u32 = 16 << 20;
/// Bytes of the program's error output that are stored.
const STDERR_BYTES: u64 = 64 << 10;

const QUERY: u8 = 1;
const TABLES: u8 = 3;
const TABLES_OF: u8 = 4;
const HELLO: u8 = 16;
const STARTED: u8 = 17;
const DATA: u8 = 18;
const END: u8 = 19;
const ERROR: u8 = 20;

/// Why a query has no answer. Each message is `cannot DO X: CAUSE`, and on its own line `help: WHAT TO DO`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The program is not installed.
    #[error("cannot run SQL: the SQL engine is not installed\nhelp: {HOW_TO_GET}")]
    NotFound,
    /// The program does not start, or does not answer.
    #[error("cannot start the SQL engine {}: {reason}\nhelp: {HOW_TO_GET}", path.display())]
    NotStarted {
        /// Path of the program.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// The program is of another version.
    #[error(
        "cannot use the SQL engine {}: it is of another version of stepscope\nhelp: {HOW_TO_GET}",
        path.display()
    )]
    OtherVersion {
        /// Path of the program.
        path: PathBuf,
    },
    /// The query is wrong, or reached a limit.
    #[error("cannot run the query: {message}{}", help(hint.as_deref()))]
    Query {
        /// Cause.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The program ended during the query.
    #[error("cannot run the query: {0}\nhelp: let the query read less, or allow it more memory")]
    Ended(String),
    /// The answer could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

fn help(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!("\nhelp: {hint}"))
}

/// What a query reads, as the messages to the program have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SqlRun {
    /// Every run at a path.
    Path(PathBuf),
    /// One run of a list ([`Engine::sql_run`](crate::Engine::sql_run)). A query fails if it cannot be opened.
    Listed {
        /// The path that the run was found at.
        path: PathBuf,
        /// Its first file.
        first_file: PathBuf,
        /// The value of the columns `run`.
        name: String,
        /// A hash that changes when a file of the run does: the program then opens it again.
        fingerprint: u64,
        /// Where it was fetched from; `None` for a run of this machine.
        origin: Option<RunOrigin>,
    },
}

/// What the tables say about a run in an object store instead of where its copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrigin {
    /// The URL that the run was found at.
    pub url: String,
    /// Its name there.
    pub name: String,
}

impl SqlRun {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let (path, file) = match self {
            Self::Path(path) => (path, None),
            Self::Listed {
                path, first_file, ..
            } => (path, Some(first_file)),
        };
        std::iter::once(path).chain(file).map(PathBuf::as_path)
    }
}

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct SqlQuery<'a> {
    /// The runs.
    pub runs: &'a [SqlRun],
    /// One statement.
    pub sql: &'a str,
    /// `table`, `csv`, `json`, `arrow`, or `http-json`: JSON whose whole numbers of 2^53 or more are strings.
    pub format: &'a str,
    /// Most rows of the answer.
    pub rows: usize,
    /// Size after which no further rows follow, bytes.
    pub bytes: u64,
    /// Longest time, from when the runs are open, without the time that `out` of [`SqlEngine::query`] takes.
    pub timeout: Duration,
    /// Width of the terminal, for tables.
    pub width: Option<usize>,
    /// Whether the import cache is used.
    pub use_cache: bool,
    /// Address of the cluster that runs it, `df://HOST:PORT`: the run is a dataset then.
    pub cluster: Option<&'a str>,
}

/// The size of an answer, and what is not whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlAnswer {
    /// Number of rows.
    pub rows: u64,
    /// Whether there are more than the query asked for.
    pub truncated: bool,
    /// Files and runs that could not be read.
    pub problems: Vec<String>,
}

#[derive(Deserialize)]
struct Hello {
    protocol: u32,
    readers: String,
}

#[derive(Deserialize)]
struct Started {
    problems: Vec<String>,
}

#[derive(Deserialize)]
struct End {
    rows: u64,
    truncated: bool,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
    hint: Option<String>,
    #[serde(default)]
    ends: bool,
}

/// Finds the program: by the environment variable, next to this program, on `PATH`.
pub fn find_sql_engine() -> Result<PathBuf, SqlError> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let file = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let own_folder = std::env::current_exe().ok();
    let own_folder = own_folder.and_then(|own| Some(own.parent()?.to_path_buf()));
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    // A relative entry of PATH would find a file of the working directory.
    let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let folders = own_folder.into_iter().chain(on_path);
    let mut files = folders.map(|folder| folder.join(&file));
    files.find(|file| file.is_file()).ok_or(SqlError::NotFound)
}

/// Ends a running program from another thread: its query then fails.
#[derive(Clone)]
pub struct SqlStop(Arc<Mutex<Child>>);

impl SqlStop {
    /// Ends the program. Does nothing if it has ended.
    pub fn stop(&self) {
        let _ = lock(&self.0).kill();
    }
}

/// The running program.
pub struct SqlEngine {
    path: PathBuf,
    child: Arc<Mutex<Child>>,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Reads the program's error output.
    stderr: Option<JoinHandle<String>>,
    queries: u32,
    is_usable: bool,
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SqlEngine {
    /// Finds and starts the program. Its operators may hold `memory_bytes` together.
    pub fn start(memory_bytes: u64) -> Result<Self, SqlError> {
        Self::start_at(find_sql_engine()?, memory_bytes)
    }

    /// Starts the program at a path, as [`start`](Self::start) does.
    pub fn start_at(path: PathBuf, memory_bytes: u64) -> Result<Self, SqlError> {
        Self::start_within(START, path, memory_bytes)
    }

    fn start_within(limit: Duration, path: PathBuf, memory_bytes: u64) -> Result<Self, SqlError> {
        let failed = |reason: String| SqlError::NotStarted {
            path: path.clone(),
            reason,
        };
        let mut child = Command::new(&path)
            .args(["serve", "--memory", &memory_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(crate::files::reason(&error)))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("it has no pipes".to_owned()));
        };
        let stderr = std::thread::Builder::new()
            .name("sql-stderr".to_owned())
            .spawn(move || tail(stderr));
        let mut engine = Self {
            child: Arc::new(Mutex::new(child)),
            stdin,
            stdout: BufReader::new(stdout),
            stderr: stderr.ok(),
            queries: 0,
            is_usable: true,
            path,
        };
        let watchdog = Watchdog::start(&engine.child, limit);
        let hello = match engine.read() {
            Ok(Some((HELLO, content))) => serde_json::from_slice::<Hello>(&content).ok(),
            _ => None,
        };
        drop(watchdog);
        match hello {
            Some(hello)
                if hello.protocol == PROTOCOL && hello.readers == crate::readers_version() =>
            {
                Ok(engine)
            }
            Some(_) => Err(SqlError::OtherVersion {
                path: engine.path.clone(),
            }),
            None => Err(SqlError::NotStarted {
                path: engine.path.clone(),
                reason: "it does not answer as the SQL engine does".to_owned(),
            }),
        }
    }

    /// Returns what ends the program while a query runs.
    pub fn stopper(&self) -> SqlStop {
        SqlStop(Arc::clone(&self.child))
    }

    /// Returns whether the program can answer another query.
    pub fn is_usable(&self) -> bool {
        self.is_usable && matches!(lock(&self.child).try_wait(), Ok(None))
    }

    /// Returns the tables and functions as JSON: `{"tables": [{"name", "row", "columns": [{"name", "type", "unit",
    /// "meaning"}]}], "functions": [{"call", "meaning"}]}`.
    pub fn schema(&mut self) -> Result<Vec<u8>, SqlError> {
        self.queries += 1;
        let content = json!({"id": self.queries}).to_string();
        let mut schema = Vec::new();
        self.ask(TABLES, content.as_bytes(), Duration::ZERO, &mut |bytes| {
            schema.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(schema)
    }

    /// Returns the tables of a dataset that a query reads; without a query, all of them.
    pub fn tables_of(&mut self, sql: Option<&str>) -> Result<BTreeSet<String>, SqlError> {
        self.queries += 1;
        let content = json!({"id": self.queries, "sql": sql}).to_string();
        let mut bytes = Vec::new();
        self.ask(TABLES_OF, content.as_bytes(), Duration::ZERO, &mut |more| {
            bytes.extend_from_slice(more);
            Ok(())
        })?;
        // An answer that cannot be read names no table: the query then finds none.
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Runs a query and passes the bytes of its answer to `out` as they come. After an error of `out`, the program is
    /// of no further use.
    pub fn query(
        &mut self,
        query: &SqlQuery<'_>,
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<SqlAnswer, SqlError> {
        let mut paths = query.runs.iter().flat_map(SqlRun::paths);
        if let Some(path) = paths.find(|path| path.to_str().is_none()) {
            return Err(SqlError::Query {
                message: format!("the path {} is not UTF-8", path.display()),
                hint: Some("rename the file or its folder".to_owned()),
            });
        }
        self.queries += 1;
        let content = json!({
            "id": self.queries,
            "runs": query.runs,
            "sql": query.sql,
            "format": query.format,
            "rows": query.rows,
            "bytes": query.bytes,
            "timeout_ms": u64::try_from(query.timeout.as_millis()).unwrap_or(u64::MAX),
            "width": query.width,
            "cache": query.use_cache,
            "cluster": query.cluster,
        });
        self.ask(QUERY, content.to_string().as_bytes(), query.timeout, out)
    }

    /// Runs a query and returns the bytes of its answer. More than `most_bytes` are an error, after which the program is
    /// of no further use.
    pub fn collect(
        &mut self,
        query: &SqlQuery<'_>,
        most_bytes: usize,
    ) -> Result<(Vec<u8>, SqlAnswer), SqlError> {
        let mut bytes = Vec::new();
        let answer = self.query(query, &mut |more| {
            if bytes.len().saturating_add(more.len()) > most_bytes {
                let cause = format!("the answer is larger than {most_bytes} bytes");
                return Err(io::Error::other(cause));
            }
            bytes.extend_from_slice(more);
            Ok(())
        })?;
        Ok((bytes, answer))
    }

    /// Sends a message and reads the answer to its end. `timeout` begins when the runs are open.
    fn ask(
        &mut self,
        kind: u8,
        content: &[u8],
        timeout: Duration,
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<SqlAnswer, SqlError> {
        if self.write(kind, content).is_err() {
            return Err(self.ended());
        }
        let mut answer = SqlAnswer::default();
        let mut watchdog = None;
        loop {
            // A message that cannot be read is as good as none: the program is of no further use.
            let Ok(Some((kind, content))) = self.read() else {
                return Err(self.ended());
            };
            match kind {
                STARTED => {
                    if let Ok(started) = serde_json::from_slice::<Started>(&content) {
                        answer.problems = started.problems;
                    }
                    watchdog = Some(Watchdog::start(&self.child, timeout.saturating_add(GRACE)));
                }
                DATA => {
                    let mut pass_on = || out(content.get(4..).unwrap_or_default());
                    let passed = match &watchdog {
                        Some(watchdog) => watchdog.time.pause(pass_on),
                        None => pass_on(),
                    };
                    passed.inspect_err(|_| self.is_usable = false)?;
                }
                END => {
                    if let Ok(end) = serde_json::from_slice::<End>(&content) {
                        (answer.rows, answer.truncated) = (end.rows, end.truncated);
                    }
                    drop(watchdog);
                    return Ok(answer);
                }
                ERROR => {
                    let failure: Failure = serde_json::from_slice(&content).unwrap_or(Failure {
                        message: "the SQL engine gives no reason".to_owned(),
                        hint: None,
                        ends: false,
                    });
                    self.is_usable &= !failure.ends;
                    return Err(SqlError::Query {
                        message: failure.message,
                        hint: failure.hint,
                    });
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        self.stdin.write_all(&length.to_ne_bytes())?;
        self.stdin.write_all(&[kind])?;
        self.stdin.write_all(content)?;
        self.stdin.flush()
    }

    /// Reads a message; `None` when the program has ended.
    fn read(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut head = [0; 5];
        match self.stdout.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let [a, b, c, d, kind] = head;
        let length = u32::from_ne_bytes([a, b, c, d]);
        if length > LONGEST {
            return Err(io::Error::other("the message is too long"));
        }
        let mut content = vec![0; length as usize];
        self.stdout.read_exact(&mut content)?;
        Ok(Some((kind, content)))
    }

    /// Explains why the program ended.
    fn ended(&mut self) -> SqlError {
        self.is_usable = false;
        let status = {
            let mut child = lock(&self.child);
            // It may still be there, with a broken pipe.
            let _ = child.kill();
            child.wait()
        };
        let stderr = self.stderr.take().and_then(|stderr| stderr.join().ok());
        let stderr = stderr.unwrap_or_default();
        SqlError::Ended(if stderr.contains("memory allocation") {
            "it needs more memory than it may use".to_owned()
        } else {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let last = stderr.lines().last().unwrap_or_default();
            format!("the SQL engine ended ({status}) {last}")
                .trim_end()
                .to_owned()
        })
    }
}

impl Drop for SqlEngine {
    fn drop(&mut self) {
        // The end of its input would end it too, but a running query might not notice.
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns the command that shows a prompt on this terminal. Its history is next to the import cache.
pub fn sql_shell(engine: &Path) -> Command {
    let mut command = Command::new(engine);
    command.arg("shell");
    if let Some(folder) = crate::cache::default_dir()
        && crate::files::private::create_private_folder(&folder).is_ok()
    {
        command.arg("--history").arg(folder.join("sql_history"));
    }
    command
}

/// Reads error output to its end and keeps the first part of it.
fn tail(mut stderr: impl Read) -> String {
    let mut stored = Vec::new();
    let _ = (&mut stderr).take(STDERR_BYTES).read_to_end(&mut stored);
    // The rest is read as well: a full pipe would block the program.
    let _ = io::copy(&mut stderr, &mut io::sink());
    String::from_utf8_lossy(&stored).into_owned()
}

/// Ends the program when its start or a query takes longer than the limit and the program does not notice.
struct Watchdog {
    time: Arc<TimeLimit>,
    _done: std::sync::mpsc::SyncSender<()>,
}

impl Watchdog {
    fn start(child: &Arc<Mutex<Child>>, limit: Duration) -> Self {
        let (done, wait) = sync_channel::<()>(1);
        let child = Arc::clone(child);
        let time = Arc::new(TimeLimit::new(limit));
        let watched = Arc::clone(&time);
        let watch = move || {
            loop {
                let left = watched.left();
                if left.is_zero() {
                    let _ = lock(&child).kill();
                    return;
                }
                // In time if the sender is dropped.
                if wait.recv_timeout(left.max(LOOK)) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        // Without a thread, the program's own limit holds.
        let _ = std::thread::Builder::new()
            .name("sql-watchdog".to_owned())
            .spawn(watch);
        Self { time, _done: done }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use stepscope_test_data::write_program;

    use super::*;

    /// Writes a script that stands in for the program.
    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join(PROGRAM);
        write_program(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    }

    #[test]
    fn other_programs_and_other_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |text: &str| {
            let path = script(folder.path(), text);
            SqlEngine::start_at(path, 1 << 30)
                .err()
                .unwrap()
                .to_string()
        };
        let silent = error("exit 0");
        assert!(
            silent.contains("does not answer as the SQL engine does"),
            "{silent}"
        );
        // 46 bytes of greeting from a program of another version, in either byte order of this machine.
        let greeting = r#"{"protocol":1,"version":"0.0.1","readers":"x"}"#;
        assert_eq!(greeting.len(), 46);
        let length = if cfg!(target_endian = "little") {
            r"\056\000\000\000"
        } else {
            r"\000\000\000\056"
        };
        let old = error(&format!(
            "printf '{length}\\020%s' '{greeting}'; cat > /dev/null"
        ));
        assert!(
            old.contains("it is of another version of stepscope"),
            "{old}"
        );
        assert!(old.contains("\nhelp: "), "{old}");
    }

    #[test]
    fn program_that_never_greets_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), "exec cat 4>&1 > /dev/null");
        let error = SqlEngine::start_within(Duration::from_millis(20), path, 1 << 30).err();
        assert!(matches!(error, Some(SqlError::NotStarted { .. })));
    }

    #[test]
    fn missing_program_says_how_to_get_it() {
        let missing = SqlEngine::start_at("/nowhere/stepscope-sql".into(), 1)
            .err()
            .unwrap();
        assert!(missing.to_string().contains("no such file"), "{missing}");
        assert!(
            SqlError::NotFound
                .to_string()
                .contains("\nhelp: build it with")
        );
    }
}
