//! Export on a cluster: an operator whose input names runs, and whose output says what was done with them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::cast::as_string_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, PhysicalExpr,
    PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use stepscope_engine::{RunChoice, SqlRun, list_chosen, list_files};

use super::{Cluster, Tasks};
use crate::dataset::Dataset;
use crate::export::{self as one_machine, ArgsChoice, ExportError, ExportUnit, Options, Progress};

/// Most tasks of an export. Of more runs, some share a task, which looks for them in their folder once.
const MOST_TASKS: usize = 1_000;
/// Time between two looks at how many runs are done.
const LOOK: Duration = Duration::from_secs(1);

/// What all tasks of an export have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    dataset: PathBuf,
    args: ArgsChoice,
    use_cache: bool,
    unit: ExportUnit,
}

/// Runs of one task, or files of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Task {
    source: SqlRun,
    /// The ids of the runs at a path; none for a listed run.
    runs: Vec<String>,
    /// The numbers of the run's files; none for whole runs.
    files: Vec<u32>,
}

impl Task {
    /// Returns whether one task does both: whole runs of one path, or files of one run.
    fn takes(&self, other: &Self) -> bool {
        self.source == other.source
            && self.files.is_empty() == other.files.is_empty()
            && (self.files.is_empty() || self.runs == other.runs)
    }

    /// Returns what it is called in messages: its run, or its path if it has several.
    fn name(&self) -> String {
        match (&self.source, self.runs.as_slice()) {
            (_, [run]) => run.clone(),
            (SqlRun::Listed { name, .. }, _) => name.clone(),
            (SqlRun::Path(path), _) => path.display().to_string(),
        }
    }

    /// Returns the number of runs or files.
    fn len(&self) -> usize {
        self.runs.len().max(self.files.len()).max(1)
    }
}

impl Job {
    /// Exports the runs of one task. Whatever fails is part of the result: an error would end the other tasks, too.
    fn run(&self, task: &Task) -> Vec<Progress> {
        let options = Options {
            unit: self.unit,
            args: self.args.clone(),
            use_cache: self.use_cache,
            choice: RunChoice {
                runs: task.runs.clone(),
                files: task.files.clone(),
                ..RunChoice::default()
            },
            copied: Vec::new(),
        };
        let mut done = Vec::new();
        let sources = std::slice::from_ref(&task.source);
        let result = one_machine::export(sources, &self.dataset, &options, &mut |progress| {
            done.push(progress);
        });
        if let Err(error) = result {
            done.push(Progress::Failed {
                run: task.name(),
                cause: error.to_string(),
            });
        }
        done
    }
}

/// Runs tasks of an export. Input and output have one column, of JSON: [`Task`] and [`Progress`].
#[derive(Debug)]
pub(super) struct ExportExec {
    input: Arc<dyn ExecutionPlan>,
    job: Arc<Job>,
    properties: Arc<PlanProperties>,
}

impl ExportExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, job: Job) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(column("progress")),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            input,
            job: Arc::new(job),
            properties: Arc::new(properties),
        }
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }
}

impl DisplayAs for ExportExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExportExec: dataset={}", self.job.dataset.display())
    }
}

impl ExecutionPlan for ExportExec {
    fn name(&self) -> &'static str {
        "ExportExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self::new(input, Job::clone(&self.job))))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let job = Arc::clone(&self.job);
        let input = self.input.execute(partition, context)?;
        let rows = input.and_then(move |batch| {
            let job = Arc::clone(&job);
            async move {
                let tasks: Vec<Task> = read(&batch)?;
                let names: Vec<String> = tasks.iter().map(Task::name).collect();
                let work = tokio::task::spawn_blocking(move || {
                    let done: Vec<Progress> = tasks.iter().flat_map(|task| job.run(task)).collect();
                    write("progress", &done)
                });
                work.await.unwrap_or_else(|panic| {
                    let failed = Progress::Failed {
                        run: names.join(", "),
                        cause: format!("an export has a defect: {panic}"),
                    };
                    write("progress", &[failed])
                })
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

fn column(name: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8, false)]))
}

pub(super) fn json_error(error: serde_json::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn write<T: Serialize>(name: &str, values: &[T]) -> Result<RecordBatch> {
    let texts = values.iter().map(serde_json::to_string);
    let texts = texts.collect::<std::result::Result<Vec<String>, _>>();
    let array: ArrayRef = Arc::new(StringArray::from(texts.map_err(json_error)?));
    Ok(RecordBatch::try_new(column(name), vec![array])?)
}

fn read<T: for<'de> Deserialize<'de>>(batch: &RecordBatch) -> Result<Vec<T>> {
    let texts = as_string_array(batch.column(0))?;
    let values = texts.iter().flatten().map(serde_json::from_str);
    values
        .collect::<std::result::Result<_, _>>()
        .map_err(json_error)
}

/// Exports runs on a cluster, as [`export`](one_machine::export) does here; divided runs are joined by the caller.
/// `waiting` is called with the number of runs, or files, that are done and of all, about once a second.
pub async fn export(
    cluster: &Cluster,
    sources: &[SqlRun],
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
    waiting: &mut dyn FnMut(usize, usize),
) -> std::result::Result<(), ExportError> {
    let file = |error| ExportError::File(dataset.into(), error);
    let dataset = std::path::absolute(dataset).map_err(file)?;
    one_machine::prepare(&dataset)?;
    let tasks = tasks(sources, options)?;
    let all: usize = tasks.iter().map(Task::len).sum();
    if all == 0 {
        let named = options.choice.runs.first();
        return named.map_or(Ok(()), |run| Err(ExportError::NoSuchRun(run.clone())));
    }
    let failed = |error| ExportError::Cluster(Box::new(error));
    let job = Job {
        dataset: dataset.clone(),
        args: options.args.clone(),
        use_cache: options.use_cache,
        unit: options.unit,
    };
    let plan = plan(&tasks, job).map_err(failed)?;
    let present = || match options.unit {
        ExportUnit::File => one_machine::files_done(&dataset),
        ExportUnit::Run | ExportUnit::Join => {
            Dataset::at(&dataset).map_or(0, |found| found.map_or(0, |found| found.runs()))
        }
    };
    let before = present();
    let work = async {
        let mut rows = cluster.run_as(plan, Tasks::ByPartition).await?;
        let mut done: Vec<Progress> = Vec::new();
        while let Some(batch) = rows.next().await {
            done.extend(read(&batch?)?);
        }
        Ok(done)
    };
    tokio::pin!(work);
    let mut look = tokio::time::interval(LOOK);
    let done = loop {
        tokio::select! {
            done = &mut work => break done.map_err(failed)?,
            _ = look.tick() => waiting(present().saturating_sub(before), all),
        }
    };
    done.into_iter().for_each(report);
    Ok(())
}

/// Divides the chosen runs or files, the largest first.
fn tasks(sources: &[SqlRun], options: &Options) -> std::result::Result<Vec<Task>, ExportError> {
    let mut listed = Vec::new();
    let mut all: Vec<(Task, u64)> = Vec::new();
    for source in sources {
        let SqlRun::Path(path) = source else {
            listed.push(Task {
                source: source.clone(),
                runs: Vec::new(),
                files: Vec::new(),
            });
            continue;
        };
        let open_failed = |error| ExportError::Open(Box::new(error));
        let file = |error| ExportError::File(path.clone(), error);
        let path = std::path::absolute(path).map_err(file)?;
        let task = |run: String, files: Vec<u32>| Task {
            source: SqlRun::Path(path.clone()),
            runs: vec![run],
            files,
        };
        if options.unit == ExportUnit::File {
            let found = list_files(&path, &options.choice).map_err(open_failed)?;
            let found = found.into_iter();
            all.extend(found.map(|file| (task(file.run_id, vec![file.number]), file.bytes)));
        } else {
            let found = list_chosen(&path, &options.choice).map_err(open_failed)?;
            let found = found.into_iter();
            all.extend(found.map(|(run, bytes)| (task(run, Vec::new()), bytes)));
        }
    }
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut tasks: Vec<Task> = Vec::new();
    for (number, (next, _)) in all.into_iter().enumerate() {
        // Large ones and small ones are dealt out in turn.
        match tasks.get_mut(number % MOST_TASKS) {
            Some(task) if number >= MOST_TASKS && task.takes(&next) => {
                if next.files.is_empty() {
                    task.runs.extend(next.runs);
                }
                task.files.extend(next.files);
            }
            _ => tasks.push(next),
        }
    }
    tasks.extend(listed);
    Ok(tasks)
}

/// Returns the plan with a partition for each task.
fn plan(tasks: &[Task], job: Job) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = tasks
        .iter()
        .map(|task| Ok(vec![write("task", std::slice::from_ref(task))?]))
        .collect::<Result<Vec<_>>>()?;
    let input = MemorySourceConfig::try_new_exec(&partitions, column("task"), None)?;
    Ok(Arc::new(ExportExec::new(input, job)))
}
