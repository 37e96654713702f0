//! Several machines that share the work on datasets, on [Ballista](https://datafusion.apache.org/ballista/).
//!
//! A scheduler divides a query, or an export of many runs, into tasks; executors run them. Both are this program, and
//! every machine sees the files below the same paths. [`Cluster`] is the address that clients ask.
//!
//! Ballista has no authentication: each client that reaches their ports may run work. The processes listen on the
//! loopback interface unless their user says that the network is trusted.

mod clients;
mod codec;
mod context;
pub mod executor;
mod export;
mod log_lines;
pub mod scheduler;
mod stages;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::config::{
    BALLISTA_ADAPTIVE_PLANNER_ENABLED, BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK, BallistaConfig,
};
use ballista_core::execution_plans::execute_physical_plan;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::PhysicalPlanNode;
use tokio::net::TcpStream;

use crate::session::QueryRunner;
use codec::Codec;
pub use export::export;
pub use log_lines::log_to_stderr;

/// Scheme of the addresses.
const SCHEME: &str = "df://";
/// Longest time to connect to a scheduler.
const CONNECT: Duration = Duration::from_secs(5);
/// Time between two signs of life of an executor.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Silence after which an executor counts as lost, and its tasks are given to others.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// Longest message between the processes, bytes. A plan names every file that it reads.
const LONGEST_MESSAGE: u32 = 256 << 20;

/// The address of a scheduler: `df://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    host: String,
    port: u16,
}

impl std::str::FromStr for Cluster {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "cannot use the cluster '{text}': its address is no df://HOST:PORT\n\
                 help: 'stepscope-sql scheduler' prints its address when it starts"
            )
        };
        let address = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (host, port) = address
            .trim_end_matches('/')
            .rsplit_once(':')
            .ok_or_else(wrong)?;
        let port = port.parse().map_err(|_no_number| wrong())?;
        if host.is_empty() || host.contains('/') {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}:{}", self.host, self.port)
    }
}

/// How a plan is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tasks {
    /// As many partitions together as an executor has free cores.
    ByCores,
    /// Each partition alone: a lost executor costs one.
    ByPartition,
}

impl Cluster {
    /// Runs a plan on the cluster, and returns its rows when it has ended.
    async fn run_as(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        tasks: Tasks,
    ) -> Result<SendableRecordBatchStream> {
        self.connect().await?;
        let config = session_config().set_usize(
            BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK,
            usize::from(tasks == Tasks::ByPartition),
        );
        let url = format!("http://{}:{}", self.host, self.port);
        let session = uuid::Uuid::now_v7().to_string();
        let settings = BallistaConfig::default();
        let run = execute_physical_plan::<PhysicalPlanNode>(
            url, &settings, plan, &Codec, session, config,
        );
        run.await.map_err(|error| self.explained(&error))
    }

    /// Fails if nothing listens at the address.
    async fn connect(&self) -> Result<()> {
        let address = format!("{}:{}", self.host, self.port);
        let cause = match tokio::time::timeout(CONNECT, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", CONNECT.as_secs()),
        };
        Err(DataFusionError::Execution(format!(
            "the cluster {self} cannot be reached: {cause}"
        )))
    }

    /// Returns the error in words of this program.
    fn explained(&self, error: &DataFusionError) -> DataFusionError {
        let text = error.to_string();
        let cause = if text.contains("Stream closed without job completing")
            || text.contains("transport error")
            || text.contains("BrokenPipe")
        {
            format!(
                "the scheduler {self} has ended; running work is lost, files that were written are not"
            )
        } else {
            text
        };
        DataFusionError::Execution(cause)
    }
}

#[async_trait]
impl QueryRunner for Cluster {
    fn config(&self) -> SessionConfig {
        session_config()
    }

    async fn run(&self, plan: Arc<dyn ExecutionPlan>) -> Result<SendableRecordBatchStream> {
        self.run_as(plan, Tasks::ByCores).await
    }
}

/// Returns the settings of plans for a cluster.
fn session_config() -> SessionConfig {
    use ballista_core::extension::SessionConfigExt as _;

    SessionConfig::new_with_ballista()
        .with_information_schema(false)
        .with_ballista_physical_extension_codec(Arc::new(Codec))
        // Plans come from the client, which knows the tables; the scheduler runs them as they are.
        .set_bool(BALLISTA_ADAPTIVE_PLANNER_ENABLED, false)
        // The footers have been read for the plan.
        .set_bool("datafusion.execution.collect_statistics", false)
}

/// Where a process of a cluster listens.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Address and port; port 0 is any free one.
    pub bind: SocketAddr,
    /// The name or address by which the other machines reach it; that of `bind` by default.
    pub advertise: Option<String>,
    /// Whether everybody who reaches the address may run work.
    pub trusted_network: bool,
}

impl Listen {
    /// Fails if others could run work here and the user has not said that they may.
    pub fn check(&self, process: &str) -> std::result::Result<(), String> {
        if self.trusted_network || self.bind.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "cannot start the {process} at {}: each client that reaches this address could run work as this user\n\
             help: --trusted-network, if only those reach it who may, or an address of the loopback interface",
            self.bind
        ))
    }

    /// Returns the name by which others reach this process.
    pub fn host(&self) -> std::result::Result<String, String> {
        match (&self.advertise, self.bind.ip()) {
            (Some(host), _) => Ok(host.clone()),
            (None, ip) if ip.is_unspecified() => Err(format!(
                "cannot listen at {}: other machines need one name for all its addresses\n\
                 help: --advertise HOST",
                self.bind
            )),
            (None, ip) => Ok(host_of(ip)),
        }
    }
}

/// Writes an address as it stands in front of a port.
fn host_of(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
