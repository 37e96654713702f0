//! A session: the open runs, and queries over them within limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SQLOptions;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt as _;
use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::{EngineError, Run, RunOrigin, SqlRun, TimeLimit, open_each, open_listed};
use stepscope_model::ReadContext;
use tokio::sync::mpsc;

use crate::args_table::ArgsTable;
use crate::dataset::{self, Dataset, DatasetError};
use crate::events::{EventTable, Events};
use crate::functions;
use crate::locked::{self, MemoryLimits, Reach};
use crate::run_data::RunData;
use crate::schema_table;
use crate::tables::{RunTable, TABLES};
use crate::views;

/// Longest accepted query, bytes.
pub const LONGEST_QUERY: usize = 64 << 10;

/// Number of batches that are read before they are used.
const BATCHES_AHEAD: usize = 16;

/// Rows that are written before the size of the answer is looked at.
const ROWS_AT_ONCE: usize = 256;

/// Limits of one query.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows of the answer.
    pub rows: usize,
    /// Size of the answer after which no further rows follow, bytes.
    pub bytes: u64,
}

/// Runs the queries of a session on other machines.
#[async_trait]
pub trait QueryRunner: fmt::Debug + Send + Sync {
    /// Returns the settings of plans for it.
    fn config(&self) -> SessionConfig;

    /// Runs a plan and returns its rows.
    async fn run(&self, plan: Arc<dyn ExecutionPlan>) -> Result<SendableRecordBatchStream>;
}

/// Why a session cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A run cannot be opened.
    Run(EngineError),
    /// A dataset cannot be read.
    Dataset(DatasetError),
    /// A dataset and something else are named.
    Several(PathBuf),
    /// A cluster is asked about something else than a dataset.
    NoDataset,
    /// The tables cannot be created.
    Tables(Box<DataFusionError>),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => write!(f, "{error}"),
            Self::Dataset(error) => write!(f, "{error}"),
            Self::Several(path) => {
                write!(f, "cannot query the dataset {} with others", path.display())
            }
            Self::NoDataset => f.write_str("cannot query traces on a cluster: it reads datasets"),
            Self::Tables(error) => write!(f, "cannot read the tables: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// Returns what to do.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Run(error) => error.hint(),
            Self::Several(_) => Some("name it alone, or export the other runs into it"),
            Self::NoDataset => {
                Some("'stepscope export' makes a dataset of them, on the cluster too")
            }
            Self::Dataset(_) | Self::Tables(_) => None,
        }
    }
}

/// Open runs with their tables, or the tables of a dataset.
pub struct Session {
    context: SessionContext,
    runs: Arc<[Arc<RunData>]>,
    cancel: Arc<Cancel>,
    /// Runs the queries, if they are not run here.
    runner: Option<Arc<dyn QueryRunner>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

/// A run that is open, on its way into a session.
struct OpenedRun {
    /// Path that it was opened from.
    path: PathBuf,
    run: Run,
    /// Its name in the list that it comes from.
    listed: Option<String>,
}

/// Gives the copy of a run the path and the name that it has in its object store.
pub(crate) fn as_found(path: &Path, mut run: Run, origin: Option<&RunOrigin>) -> (PathBuf, Run) {
    let Some(origin) = origin else {
        return (path.to_owned(), run);
    };
    run.name.clone_from(&origin.name);
    (PathBuf::from(&origin.url), run)
}

impl OpenedRun {
    fn name(&self) -> &str {
        self.listed.as_deref().unwrap_or(&self.run.name)
    }
}

/// Size and completeness of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Rows that were passed on.
    pub rows: usize,
    /// Whether there are more.
    pub truncated: bool,
}

impl Session {
    /// Opens runs, or one dataset, whose queries `runner` runs if there is one.
    ///
    /// Fails if a path has no run, or if a listed run cannot be opened. A run at a path that cannot be opened is left
    /// out and named in the second result.
    pub fn open(
        sources: &[SqlRun],
        use_cache: bool,
        memory: MemoryLimits,
        runner: Option<Arc<dyn QueryRunner>>,
    ) -> std::result::Result<(Self, Vec<String>), OpenError> {
        for source in sources {
            let SqlRun::Path(path) = source else { continue };
            if let Some(dataset) = Dataset::at(path).map_err(OpenError::Dataset)? {
                if sources.len() > 1 {
                    return Err(OpenError::Several(path.clone()));
                }
                let session = Self::of_dataset(&dataset, memory, runner);
                return Ok((
                    session.map_err(|error| OpenError::Tables(Box::new(error)))?,
                    Vec::new(),
                ));
            }
        }
        if runner.is_some() {
            return Err(OpenError::NoDataset);
        }
        Self::open_runs(sources, use_cache, memory).map_err(OpenError::Run)
    }

    fn open_runs(
        sources: &[SqlRun],
        use_cache: bool,
        memory: MemoryLimits,
    ) -> std::result::Result<(Self, Vec<String>), EngineError> {
        let cancel = Arc::new(Cancel::default());
        let context = Arc::new(ReadContext::default());
        let mut opened: Vec<OpenedRun> = Vec::new();
        let mut problems = Vec::new();
        let mut first_error = None;
        for source in sources {
            let path = match source {
                SqlRun::Path(path) => path,
                SqlRun::Listed {
                    path,
                    first_file,
                    name,
                    origin,
                    ..
                } => {
                    let run = open_listed(path, first_file, &context, use_cache)?;
                    let (path, run) = as_found(path, run, origin.as_ref());
                    opened.push(OpenedRun {
                        path,
                        run,
                        listed: Some(name.clone()),
                    });
                    continue;
                }
            };
            let report = open_each(path, &context, use_cache, &mut |run| {
                match run {
                    Ok(run) => opened.push(OpenedRun {
                        path: path.clone(),
                        run,
                        listed: None,
                    }),
                    Err((id, error)) => {
                        problems.push(format!("{id}: {error}"));
                        first_error = first_error.take().or(Some(error));
                    }
                }
                Ok(())
            })?;
            report.flush_cache();
        }
        if let Some(error) = first_error.filter(|_| opened.is_empty()) {
            return Err(error);
        }
        for one in &opened {
            problems.extend(
                one.run
                    .problems
                    .iter()
                    .map(|problem| format!("{}: {}", problem.file, problem.reason)),
            );
        }
        Ok((Self::of_opened(opened, cancel, memory), problems))
    }

    /// Wraps runs that are open already.
    pub fn of_runs(runs: Vec<Run>, memory: MemoryLimits) -> Self {
        let opened = runs.into_iter().map(|run| OpenedRun {
            path: PathBuf::new(),
            run,
            listed: None,
        });
        Self::of_opened(opened.collect(), Arc::default(), memory)
    }

    fn of_opened(opened: Vec<OpenedRun>, cancel: Arc<Cancel>, memory: MemoryLimits) -> Self {
        let keys = keys(&opened);
        let runs = opened.into_iter().zip(keys).zip(0..);
        let runs = runs.map(|((one, key), number)| {
            let path = one.path.display().to_string();
            Arc::new(RunData::new(
                number,
                key,
                path,
                one.run,
                Arc::clone(&cancel),
            ))
        });
        Self::new(runs.collect(), cancel, memory)
    }

    /// Wraps one run, with its number in the ids of events and the value of the columns `run`.
    pub fn of_run(number: u32, key: String, path: String, run: Run, memory: MemoryLimits) -> Self {
        let cancel = Arc::new(Cancel::default());
        let run = RunData::new(number, key, path, run, Arc::clone(&cancel));
        Self::new(vec![Arc::new(run)], cancel, memory)
    }

    fn of_dataset(
        dataset: &Dataset,
        memory: MemoryLimits,
        runner: Option<Arc<dyn QueryRunner>>,
    ) -> Result<Self> {
        let config = runner.as_ref().map(|runner| runner.config());
        let config = config.unwrap_or_else(locked::config);
        let context = locked::context(config, memory, Reach::Dataset(dataset.clone()));
        functions::register(&context);
        dataset::register(&context, dataset)?;
        context.register_table("table_columns", Arc::new(schema_table::table()?))?;
        views::register(&context)?;
        Ok(Self {
            context,
            runs: Arc::new([]),
            cancel: Arc::default(),
            runner,
        })
    }

    fn new(runs: Vec<Arc<RunData>>, cancel: Arc<Cancel>, memory: MemoryLimits) -> Self {
        let context = locked::context(locked::config(), memory, Reach::Nothing);
        let runs: Arc<[Arc<RunData>]> = runs.into();
        let register = |name: &str, table| {
            // The names are ours and distinct.
            let _ = context.register_table(name, table);
        };
        for events in [
            Events::Slices,
            Events::Instants,
            Events::Counters,
            Events::Samples,
        ] {
            let table = EventTable::new(events, Arc::clone(&runs));
            register(events.table(), Arc::new(table));
        }
        for table in TABLES {
            register(table.name, Arc::new(RunTable::new(table, &runs)));
        }
        register("args", Arc::new(ArgsTable::new(Arc::clone(&runs))));
        if let Ok(table) = schema_table::table() {
            register("table_columns", Arc::new(table));
        }
        functions::register(&context);
        functions::register_of_runs(&context, &runs);
        // The catalog is ours and takes any schema.
        let _ = views::register(&context);
        Self {
            context,
            runs,
            cancel,
            runner: None,
        }
    }

    /// Returns the open runs.
    pub fn runs(&self) -> &[Arc<RunData>] {
        &self.runs
    }

    /// Stops the analyses that queries of this session wait for. The session is of no further use.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Plans a query: one statement that reads.
    pub async fn plan(&self, sql: &str) -> Result<SendableRecordBatchStream> {
        if sql.len() > LONGEST_QUERY {
            return Err(DataFusionError::Plan(format!(
                "the query has {} bytes, at most {LONGEST_QUERY} are accepted",
                sql.len()
            )));
        }
        let options = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let frame = self.context.sql_with_options(sql, options).await?;
        match &self.runner {
            Some(runner) => runner.run(frame.create_physical_plan().await?).await,
            None => frame.execute_stream().await,
        }
    }

    /// Runs a query and passes its batches on, the schema first. `each` returns the size of the answer so far; while
    /// it waits for a reader, it calls [`TimeLimit::pause`].
    pub async fn run(
        &self,
        sql: &str,
        limits: Limits,
        time: &TimeLimit,
        begin: &mut (dyn FnMut(&SchemaRef) -> Result<()> + Send),
        each: &mut (dyn FnMut(&RecordBatch) -> Result<u64> + Send),
    ) -> Result<Answer> {
        let work = async {
            let mut stream = self.plan(sql).await?;
            begin(&stream.schema())?;
            let mut bytes = 0;
            let mut answer = Answer {
                rows: 0,
                truncated: false,
            };
            while let Some(batch) = stream.next().await {
                let batch = batch?;
                let mut at = 0;
                while at < batch.num_rows() {
                    if answer.rows >= limits.rows || bytes >= limits.bytes {
                        answer.truncated = true;
                        return Ok(answer);
                    }
                    let most = (batch.num_rows() - at).min(ROWS_AT_ONCE);
                    let taken = most.min(limits.rows - answer.rows);
                    bytes = each(&batch.slice(at, taken))?;
                    answer.rows += taken;
                    at += taken;
                }
            }
            Ok(answer)
        };
        let mut work = pin!(work);
        loop {
            if let Ok(result) = tokio::time::timeout(time.left(), &mut work).await {
                return result;
            }
            if time.left().is_zero() {
                return Err(DataFusionError::Execution(timed_out(time.limit())));
            }
        }
    }

    /// Returns the tables, for queries without limits.
    pub(crate) fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Runs a query and returns its batches. For tests and small answers.
    pub async fn collect(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let limits = Limits {
            rows: usize::MAX,
            bytes: u64::MAX,
        };
        let time = TimeLimit::new(Duration::from_mins(10));
        let each = &mut |batch: &RecordBatch| {
            batches.push(batch.clone());
            Ok(0)
        };
        self.run(sql, limits, &time, &mut |_| Ok(()), each).await?;
        Ok(batches)
    }
}

/// Runs a query of one table without limits, in one partition: rows keep the order of the table.
///
/// With several, the planner deals the rows out below whatever it computes of them, and the order is lost.
pub(crate) async fn read_in_order(
    context: &SessionContext,
    sql: &str,
    begin: &mut (dyn FnMut(&SchemaRef) -> Result<()> + Send),
    each: &mut (dyn FnMut(&RecordBatch) -> Result<()> + Send),
) -> Result<()> {
    let mut state = context.state();
    state.config_mut().options_mut().execution.target_partitions = 1;
    let plan = state.create_logical_plan(sql).await?;
    let plan = state.create_physical_plan(&plan).await?;
    begin(&plan.schema())?;
    let mut batches = execute_stream(plan, state.task_ctx())?;
    // Another thread reads the next batches meanwhile.
    let (sender, mut receiver) = mpsc::channel(BATCHES_AHEAD);
    let reading = SpawnedTask::spawn(async move {
        while let Some(batch) = batches.next().await {
            if sender.send(batch).await.is_err() {
                return;
            }
        }
    });
    while let Some(batch) = receiver.recv().await {
        each(&batch?)?;
    }
    let read = reading.join_unwind().await;
    read.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))
}

/// Returns the cause of a query that took too long.
pub fn timed_out(timeout: Duration) -> String {
    format!("it took longer than {} s", timeout.as_secs_f64())
}

/// Returns the values of the columns `run`, which differ: the names of listed runs, and those of the others, with the
/// path in front where several have one name.
fn keys(opened: &[OpenedRun]) -> Vec<String> {
    let mut counts: FxHashMap<&str, usize> = FxHashMap::default();
    for one in opened {
        *counts.entry(one.name()).or_default() += 1;
    }
    let mut taken: FxHashSet<String> = FxHashSet::default();
    let mut keys = Vec::with_capacity(opened.len());
    for one in opened {
        let name = one.name();
        let is_unique = counts.get(name) == Some(&1);
        let key = match &one.listed {
            None if !is_unique => long_name(&one.path, &one.run),
            _ => name.to_owned(),
        };
        let numbered = (2..).map(|number| format!("{key} ({number})"));
        let mut free = std::iter::once(key.clone()).chain(numbered);
        // A name that is unique is never given to another run.
        let free = free.find(|key| {
            !taken.contains(key) && (key == name || !counts.contains_key(key.as_str()))
        });
        let key = free.unwrap_or(key);
        taken.insert(key.clone());
        keys.push(key);
    }
    keys
}

fn long_name(path: &Path, run: &Run) -> String {
    let path = path.display().to_string();
    if path.ends_with(&run.name) {
        path
    } else {
        format!("{path}/{}", run.name)
    }
}
