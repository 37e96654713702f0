//! A process that runs tasks.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};

use super::codec::Codec;
use super::context;
use super::stages::Engine;
use super::{Cluster, HEARTBEAT, LONGEST_MESSAGE, Listen, host_of, session_config};
use crate::locked::MemoryLimits;
use crate::runtime::runtime;

/// Age of the results of a job that nobody asked for any more, seconds.
const FORGOTTEN: u64 = 3_600;
/// Time between two searches for such results, seconds.
const CLEAN: u64 = 300;
/// Time between two looks at whether the scheduler knows this executor.
const LOOK: Duration = Duration::from_millis(50);

/// What an executor offers.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Where it listens: on this port, and on a further one for tasks.
    pub listen: Listen,
    /// Tasks at the same time.
    pub cores: usize,
    /// Memory of the operators of all tasks. Opened runs come in addition.
    pub memory: MemoryLimits,
    /// Folder of intermediate results; a temporary one by default.
    pub work_dir: Option<PathBuf>,
}

/// Runs an executor until the process gets a signal to end. `started` is called once the scheduler knows it.
pub fn serve(
    cluster: &Cluster,
    offer: &Offer,
    started: impl FnOnce(SocketAddr) + Send + 'static,
) -> Result<(), String> {
    offer.listen.check("executor")?;
    let (bind, memory) = (offer.listen.bind, offer.memory);
    let failed = |error: &dyn std::error::Error| {
        format!("cannot run the executor at {bind} for {cluster}: {error}")
    };
    let temporary = tempfile::Builder::new().prefix("stepscope-sql-").tempdir();
    let temporary = temporary.map_err(|error| failed(&error))?;
    let work_dir = offer.work_dir.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(work_dir).map_err(|error| failed(&error))?;
    let [port, grpc_port] = ports(bind).map_err(|error| failed(&error))?;
    let config = ExecutorProcessConfig {
        bind_host: host_of(bind.ip()),
        external_host: Some(offer.listen.host()?),
        port,
        grpc_port,
        scheduler_host: cluster.host.clone(),
        scheduler_port: cluster.port,
        vcores: offer.cores,
        work_dir: Some(work_dir.display().to_string()),
        job_data_ttl_seconds: FORGOTTEN,
        job_data_clean_up_interval_seconds: CLEAN,
        grpc_max_decoding_message_size: LONGEST_MESSAGE,
        grpc_max_encoding_message_size: LONGEST_MESSAGE,
        executor_heartbeat_interval_seconds: HEARTBEAT.as_secs(),
        memory_pool_size: Some(offer.memory.pool_bytes as u64),
        override_execution_engine: Some(Arc::new(Engine::default())),
        override_function_registry: Some(Arc::new(context::registry())),
        override_runtime_producer: Some(Arc::new(move |_| Ok(context::runtime(memory)))),
        override_config_producer: Some(Arc::new(session_config)),
        override_physical_codec: Some(Arc::new(Codec)),
        ..ExecutorProcessConfig::default()
    };
    let health = config.health.clone();
    let threads = runtime().map_err(|error| failed(&error))?;
    threads.block_on(async {
        tokio::spawn(async move {
            while !health.is_ready() {
                tokio::time::sleep(LOOK).await;
            }
            started(SocketAddr::new(bind.ip(), port));
        });
        let ended = start_executor_process(Arc::new(config)).await;
        ended.map_err(|error| failed(&error))
    })
}

/// Returns the ports for results and for tasks: that of the address and the next one, or two free ones.
fn ports(bind: SocketAddr) -> std::io::Result<[u16; 2]> {
    if bind.port() != 0 {
        let next = bind.port().checked_add(1);
        let next = next.ok_or_else(|| std::io::Error::other("there is no port after this one"))?;
        return Ok([bind.port(), next]);
    }
    // Both are held at the same time, so that they differ.
    let held = [TcpListener::bind(bind)?, TcpListener::bind(bind)?];
    Ok([held[0].local_addr()?.port(), held[1].local_addr()?.port()])
}
