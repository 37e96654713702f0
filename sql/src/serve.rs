//! Answers queries that come over a pipe.

use std::collections::HashMap;
use std::io::{self, Stdin, Stdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::cluster::Cluster;
use crate::dataset;
use crate::locked::{self, MemoryLimits};
use crate::output::{Format, Writer, describe};
use crate::protocol::{
    self, CANCEL, DATA, END, ERROR, HELLO, PROTOCOL, QUERY, STARTED, TABLES, TABLES_OF,
};
use crate::runtime::runtime;
use crate::schema_table;
use crate::session::{Limits, OpenError, Session, timed_out};
use stepscope_engine::{SqlRun, TimeLimit};

/// Bytes of an answer per message.
const CHUNK: usize = 64 << 10;
/// Sessions that stay open.
const SESSIONS: usize = 8;
/// Time that a query has to end after its limit, before the process ends.
const GRACE: Duration = Duration::from_secs(1);
/// Shortest time between two looks at the limits.
const LOOK: Duration = Duration::from_millis(50);

/// A query.
#[derive(Debug, Deserialize)]
struct Query {
    id: u32,
    runs: Vec<SqlRun>,
    sql: String,
    format: String,
    rows: usize,
    bytes: u64,
    timeout_ms: u64,
    width: Option<usize>,
    cache: bool,
    /// Address of the cluster that runs it.
    cluster: Option<String>,
}

#[derive(Debug, Deserialize)]
struct QueryId {
    id: u32,
}

#[derive(Debug, Deserialize)]
struct TablesOf {
    id: u32,
    sql: Option<String>,
}

/// What a session is of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SessionKey {
    runs: Vec<SqlRun>,
    use_cache: bool,
    cluster: Option<Cluster>,
}

struct Server {
    memory: MemoryLimits,
    stdout: Mutex<Stdout>,
    /// Least recently used first.
    sessions: Mutex<Vec<(SessionKey, Arc<Session>)>>,
    running: Mutex<HashMap<u32, Running>>,
    /// Told when a query starts, for the watchdog.
    started: Condvar,
}

struct Running {
    task: Option<AbortHandle>,
    session: Option<Arc<Session>>,
    /// Its time, once it runs.
    time: Option<Arc<TimeLimit>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves queries until the pipe ends. Returns the exit code.
pub fn serve(memory: MemoryLimits) -> io::Result<()> {
    let server = Arc::new(Server {
        memory,
        stdout: Mutex::new(io::stdout()),
        sessions: Mutex::new(Vec::new()),
        running: Mutex::new(HashMap::new()),
        started: Condvar::new(),
    });
    let runtime = runtime()?;
    let watched = Arc::clone(&server);
    std::thread::Builder::new()
        .name("sql-watchdog".to_owned())
        .spawn(move || watched.watch())?;
    server.send(HELLO, &hello().to_string().into_bytes());
    let result = server.read(&runtime, &mut io::stdin());
    // The main program has ended: nobody reads the answers of running queries.
    runtime.shutdown_background();
    result
}

/// Returns the versions of this program.
pub fn hello() -> serde_json::Value {
    json!({
        "protocol": PROTOCOL,
        "version": env!("CARGO_PKG_VERSION"),
        "readers": stepscope_engine::readers_version(),
    })
}

impl Server {
    fn read(self: &Arc<Self>, runtime: &Runtime, from: &mut Stdin) -> io::Result<()> {
        while let Some((kind, content)) = protocol::read(from)? {
            match kind {
                QUERY => match serde_json::from_slice::<Query>(&content) {
                    Ok(query) => self.start(runtime, query),
                    Err(error) => self.fail(0, &error.to_string(), None),
                },
                CANCEL => {
                    if let Ok(of) = serde_json::from_slice::<QueryId>(&content) {
                        self.cancel(of.id);
                    }
                }
                TABLES => {
                    if let Ok(of) = serde_json::from_slice::<QueryId>(&content) {
                        self.send_json(of.id, &schema_table::as_json());
                    }
                }
                TABLES_OF => {
                    if let Ok(of) = serde_json::from_slice::<TablesOf>(&content) {
                        match dataset::tables_of(of.sql.as_deref()) {
                            Ok(tables) => self.send_json(of.id, &json!(tables)),
                            Err(error) => self.report(of.id, &error),
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn send(&self, kind: u8, content: &[u8]) {
        if protocol::write(&mut *lock(&self.stdout), kind, content).is_err() {
            // Nobody reads: there is nothing left to do.
            std::process::exit(0);
        }
    }

    fn send_data(&self, id: u32, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK) {
            let mut content = id.to_ne_bytes().to_vec();
            content.extend(chunk);
            self.send(DATA, &content);
        }
    }

    /// Sends a whole answer.
    fn send_json(&self, id: u32, answer: &serde_json::Value) {
        self.send_data(id, answer.to_string().as_bytes());
        let end = json!({"id": id, "rows": 0, "truncated": false});
        self.send(END, end.to_string().as_bytes());
    }

    fn fail(&self, id: u32, message: &str, hint: Option<&str>) {
        let content = json!({"id": id, "message": message, "hint": hint});
        self.send(ERROR, &content.to_string().into_bytes());
    }

    fn start(self: &Arc<Self>, runtime: &Runtime, query: Query) {
        let id = query.id;
        let running = Running {
            task: None,
            session: None,
            time: None,
        };
        lock(&self.running).insert(id, running);
        let server = Arc::clone(self);
        let task = runtime.spawn(async move { server.answer(&query).await });
        if let Some(running) = lock(&self.running).get_mut(&id) {
            running.task = Some(task.abort_handle());
        }
        let server = Arc::clone(self);
        runtime.spawn(async move {
            let result = task.await;
            if result.is_err_and(|error| error.is_panic()) {
                server.fail(
                    id,
                    "the SQL engine has a defect that this query finds",
                    None,
                );
            }
            lock(&server.running).remove(&id);
        });
    }

    fn cancel(&self, id: u32) {
        let Some(running) = lock(&self.running).remove(&id) else {
            return;
        };
        if let Some(task) = running.task {
            task.abort();
        }
        if let Some(session) = running.session {
            // Its analyses end with an error, so the next query opens the runs again.
            session.cancel();
            lock(&self.sessions).retain(|(_, known)| !Arc::ptr_eq(known, &session));
        }
        self.fail(id, "the query was cancelled", None);
    }

    async fn answer(self: &Arc<Self>, query: &Query) {
        let id = query.id;
        let Some(format) = Format::from_name(&query.format) else {
            self.fail(id, &format!("there is no format '{}'", query.format), None);
            return;
        };
        let opener = Arc::clone(self);
        let cluster = match query
            .cluster
            .as_deref()
            .map(str::parse::<Cluster>)
            .transpose()
        {
            Ok(cluster) => cluster,
            Err(error) => {
                self.fail(id, &error, None);
                return;
            }
        };
        let key = SessionKey {
            runs: query.runs.clone(),
            use_cache: query.cache,
            cluster,
        };
        let opened = tokio::task::spawn_blocking(move || opener.open(key)).await;
        let (session, problems) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                self.fail(id, &error.to_string(), error.hint());
                return;
            }
            Err(_) => {
                self.fail(id, "opening the runs failed", None);
                return;
            }
        };
        let limits = Limits {
            rows: query.rows,
            bytes: query.bytes,
        };
        locked::limit_memory(self.memory);
        let time = Arc::new(TimeLimit::new(Duration::from_millis(query.timeout_ms)));
        if let Some(running) = lock(&self.running).get_mut(&id) {
            running.session = Some(Arc::clone(&session));
            running.time = Some(Arc::clone(&time));
        }
        self.started.notify_all();
        self.send(
            STARTED,
            &json!({"id": id, "problems": problems})
                .to_string()
                .into_bytes(),
        );
        let writer: Mutex<Option<Writer>> = Mutex::new(None);
        let begin = &mut |schema: &SchemaRef| {
            *lock(&writer) = Some(Writer::new(format, schema, query.width)?);
            Ok(())
        };
        let mut written = 0;
        let each = &mut |batch: &RecordBatch| {
            if let Some(writer) = &mut *lock(&writer) {
                writer.add(batch)?;
                if writer.len() >= CHUNK {
                    let bytes = writer.take();
                    written += bytes.len() as u64;
                    time.pause(|| self.send_data(id, &bytes));
                }
                return Ok(written + writer.len() as u64);
            }
            Ok(written)
        };
        let result = session.run(&query.sql, limits, &time, begin, each).await;
        let result = result.and_then(|answer| {
            if let Some(writer) = &mut *lock(&writer) {
                writer.finish(answer.truncated)?;
                time.pause(|| self.send_data(id, &writer.take()));
            }
            Ok(answer)
        });
        // Before the last message: the watchdog must not see the deadline of an answered query.
        lock(&self.running).remove(&id);
        match result {
            Ok(answer) => {
                let content = json!({"id": id, "rows": answer.rows, "truncated": answer.truncated});
                self.send(END, &content.to_string().into_bytes());
            }
            Err(error) => self.report(id, &error),
        }
    }

    fn report(&self, id: u32, error: &DataFusionError) {
        let (cause, hint) = describe(error);
        self.fail(id, &cause, hint.as_deref());
    }

    /// Returns the session of these runs, opened on first use. Limits of memory do not hold while runs are imported.
    fn open(&self, key: SessionKey) -> Result<(Arc<Session>, Vec<String>), OpenError> {
        {
            let mut sessions = lock(&self.sessions);
            if let Some(at) = sessions.iter().position(|(known, _)| *known == key) {
                let used = sessions.remove(at);
                let session = Arc::clone(&used.1);
                sessions.push(used);
                return Ok((session, Vec::new()));
            }
        }
        locked::unlimit_memory();
        let runner = key.cluster.clone().map(|cluster| Arc::new(cluster) as _);
        let opened = Session::open(&key.runs, key.use_cache, self.memory, runner);
        let (session, problems) = opened?;
        let session = Arc::new(session);
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS {
            sessions.remove(0);
        }
        sessions.push((key, Arc::clone(&session)));
        Ok((session, problems))
    }

    /// Ends the process when a query does not end in time: an operator that never yields cannot be stopped otherwise.
    fn watch(&self) {
        let mut running = lock(&self.running);
        loop {
            let working = running
                .iter()
                .filter_map(|(id, of)| Some((*id, of.time.as_deref()?)));
            let rest = |time: &TimeLimit| (time.limit() + GRACE).saturating_sub(time.used());
            let next = working.map(|(id, time)| (rest(time), id, time.limit()));
            let Some((rest, id, timeout)) = next.min() else {
                running = self
                    .started
                    .wait(running)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if rest.is_zero() {
                let content = json!({
                    "id": id,
                    "message": timed_out(timeout),
                    "hint": "let the query read less, or allow it more time",
                    "ends": true,
                });
                self.send(ERROR, &content.to_string().into_bytes());
                std::process::exit(3);
            }
            // The rest of a query whose reader pauses stays as it is.
            let rest = rest.max(LOOK);
            let waited = self.started.wait_timeout(running, rest);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
