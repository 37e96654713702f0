//! The scheduler's service, with one addition: work of a client that has gone ends.
//!
//! A client submits a plan and reads a stream with the states of its job. Ballista's scheduler goes on with a job whose
//! stream nobody reads. Here the end of the stream cancels the job, however the client ended: by a time limit, a signal
//! or a lost connection. Tasks that wait are dropped; an export of a run that has begun
//! is finished.

use std::time::Duration;

use async_trait::async_trait;
use ballista_core::config::BALLISTA_JOB_NAME;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::protobuf::{
    CancelJobParams, CancelJobResult, CleanJobDataParams, CleanJobDataResult,
    CreateUpdateSessionParams, CreateUpdateSessionResult, ExecuteQueryParams, ExecuteQueryResult,
    ExecutorStoppedParams, ExecutorStoppedResult, GetJobMetricsParams, GetJobMetricsResult,
    GetJobStatusParams, GetJobStatusResult, HeartBeatParams, HeartBeatResult, KeyValuePair,
    PollWorkParams, PollWorkResult, RegisterExecutorParams, RegisterExecutorResult,
    RemoveSessionParams, RemoveSessionResult, UpdateTaskStatusParams, UpdateTaskStatusResult,
    job_status,
};
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// States that wait for a client to read them.
const STATES: usize = 16;
/// Time between two looks for a job that is not planned yet.
const LOOK: Duration = Duration::from_millis(100);

pub(super) type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// A scheduler whose jobs end with their clients.
pub(super) struct ClientJobs(pub(super) Scheduler);

type JobState = Result<GetJobStatusResult, Status>;

impl ClientJobs {
    /// Passes the states of a job on; cancels the job if nobody reads them before it has ended.
    fn watch(
        &self,
        name: String,
        states: impl Stream<Item = JobState> + Send + 'static,
    ) -> BoxStream<'static, JobState> {
        let scheduler = self.0.clone();
        let (to_client, mut from_job) = mpsc::channel(STATES);
        let mut states = states.boxed();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = to_client.closed() => break,
                    state = states.next() => {
                        let Some(state) = state else {
                            return;
                        };
                        // The client may have gone, which the next turn finds.
                        let _ = to_client.send(state).await;
                    }
                }
            }
            cancel(&scheduler, &name, states).await;
        });
        stream::poll_fn(move |context| from_job.poll_recv(context)).boxed()
    }
}

/// Cancels the job of a name, once it is planned. Does nothing if it has ended, which ends its states.
async fn cancel(scheduler: &Scheduler, name: &str, mut states: BoxStream<'static, JobState>) {
    loop {
        // `get_running_jobs` of Ballista 55.0 lists those that have ended.
        let jobs = scheduler.state.task_manager.get_all_jobs().await;
        let jobs = jobs.unwrap_or_default();
        let job = jobs.iter().find(|job| {
            let status = job.status.status.as_ref();
            job.job_name == name
                && matches!(
                    status,
                    None | Some(job_status::Status::Queued(_) | job_status::Status::Running(_))
                )
        });
        if let Some(job) = job {
            log::info!("job {} is cancelled: its client has gone", job.job_id);
            if let Err(error) = scheduler.cancel_job(job.job_id.clone()).await {
                log::warn!("job {} cannot be cancelled: {error}", job.job_id);
            }
            return;
        }
        tokio::select! {
            state = states.next() => if state.is_none() {
                return;
            },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Gives the job of a request a name that no other job has.
fn rename(request: &mut ExecuteQueryParams) -> String {
    let name = uuid::Uuid::now_v7().to_string();
    let is_name = |setting: &KeyValuePair| setting.key == BALLISTA_JOB_NAME;
    request.settings.retain(|setting| !is_name(setting));
    request.settings.push(KeyValuePair {
        key: BALLISTA_JOB_NAME.to_owned(),
        value: Some(name.clone()),
    });
    name
}

/// Implements the service: all requests but one go to the scheduler as they are.
macro_rules! scheduler_grpc {
    ($($method:ident($request:ident) -> $result:ident;)*) => {
        #[async_trait]
        impl SchedulerGrpc for ClientJobs {
            type ExecuteQueryPushStream = BoxStream<'static, JobState>;

            async fn execute_query_push(
                &self,
                mut request: Request<ExecuteQueryParams>,
            ) -> Result<Response<Self::ExecuteQueryPushStream>, Status> {
                let name = rename(request.get_mut());
                let response = self.0.execute_query_push(request).await?;
                Ok(response.map(|states| self.watch(name, states)))
            }

            $(async fn $method(
                &self,
                request: Request<$request>,
            ) -> Result<Response<$result>, Status> {
                SchedulerGrpc::$method(&self.0, request).await
            })*
        }
    };
}

scheduler_grpc! {
    poll_work(PollWorkParams) -> PollWorkResult;
    register_executor(RegisterExecutorParams) -> RegisterExecutorResult;
    heart_beat_from_executor(HeartBeatParams) -> HeartBeatResult;
    update_task_status(UpdateTaskStatusParams) -> UpdateTaskStatusResult;
    create_update_session(CreateUpdateSessionParams) -> CreateUpdateSessionResult;
    remove_session(RemoveSessionParams) -> RemoveSessionResult;
    execute_query(ExecuteQueryParams) -> ExecuteQueryResult;
    get_job_status(GetJobStatusParams) -> GetJobStatusResult;
    get_job_metrics(GetJobMetricsParams) -> GetJobMetricsResult;
    executor_stopped(ExecutorStoppedParams) -> ExecutorStoppedResult;
    cancel_job(CancelJobParams) -> CancelJobResult;
    clean_job_data(CleanJobDataParams) -> CleanJobDataResult;
}
