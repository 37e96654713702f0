//! What queries can reach: the tables of the session, and nothing else.
//!
//! No statement changes anything ([`Session::plan`](crate::session::Session::plan)), no path is a table, the only
//! files in reach are those of the session's dataset, and operators share a bounded pool of memory; what exceeds it
//! goes to a bounded spill folder, or ends the query. The process has a limit of its own for what no pool counts.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::prelude::{SessionConfig, SessionContext};
use url::Url;

use crate::dataset::Dataset;

/// Limits of a process.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Bytes that the operators of all queries may hold together.
    pub pool_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            pool_bytes: 2 << 30,
        }
    }
}

/// Most bytes in the spill folder.
const SPILL_BYTES: u64 = 10 << 30;
/// What a process may hold in addition to the pool of its operators.
const RESERVE_BYTES: u64 = 1 << 30;

/// Returns the settings of queries that run in this process.
pub(crate) fn config() -> SessionConfig {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    SessionConfig::new()
        .with_target_partitions(threads)
        .with_information_schema(false)
        // The events of a track are sorted: windows over tracks keep that order.
        .set_bool("datafusion.optimizer.prefer_existing_sort", true)
}

/// Creates the context of a session without tables.
pub(crate) fn context(config: SessionConfig, memory: MemoryLimits, reach: Reach) -> SessionContext {
    SessionContext::new_with_config_rt(config, runtime(memory, reach))
}

/// Creates what operators share: memory, spill folder, and the files in reach.
pub(crate) fn runtime(memory: MemoryLimits, reach: Reach) -> Arc<RuntimeEnv> {
    let stores = Arc::new(Stores(reach));
    let most_named = NonZeroUsize::MIN;
    let pool = TrackConsumersPool::new(FairSpillPool::new(memory.pool_bytes), most_named);
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::OsTmpDirectory)
        .with_max_temp_directory_size(SPILL_BYTES);
    let builder = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(disk)
        .with_object_store_registry(Arc::<Stores>::clone(&stores));
    // Without a spill folder, a query that needs one fails.
    builder.build_arc().unwrap_or_else(|_| {
        let pool = FairSpillPool::new(memory.pool_bytes);
        let builder = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(
                DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
            )
            .with_object_store_registry(stores);
        builder.build_arc().unwrap_or_default()
    })
}

/// Which files operators reach.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// None.
    Nothing,
    /// Those of one dataset.
    Dataset(Dataset),
    /// Those of every dataset of this machine: on a cluster, the plan names them.
    EveryDataset,
}

/// A registry of object stores that are datasets: even a hole in the planner reaches no other file.
#[derive(Debug)]
struct Stores(Reach);

impl ObjectStoreRegistry for Stores {
    fn register_store(
        &self,
        _url: &Url,
        _store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.get_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let refused = || DataFusionError::Plan("queries cannot reach files".to_owned());
        let dataset = match &self.0 {
            Reach::Nothing => None,
            Reach::Dataset(dataset) => Some(dataset.clone()).filter(|of| of.has_url(url)),
            Reach::EveryDataset => Dataset::of_url(url),
        };
        let folder = dataset.ok_or_else(refused)?;
        Ok(Arc::new(LocalFileSystem::new_with_prefix(folder.folder())?))
    }
}

/// Limits the memory of this process to what it holds now, the pool, and a reserve for what no pool counts (results
/// of functions, plans). An allocation beyond it ends the process, and the main program says so. Mapped traces do not
/// count.
#[cfg(target_os = "linux")]
pub fn limit_memory(memory: MemoryLimits) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let Some(now) = data_bytes() else { return };
    let mut limit = getrlimit(Resource::Data);
    let bytes = now + memory.pool_bytes as u64 + RESERVE_BYTES;
    limit.current = Some(limit.maximum.map_or(bytes, |maximum| bytes.min(maximum)));
    // A system without this limit relies on the pool.
    let _ = setrlimit(Resource::Data, limit);
}

/// Removes the limit of [`limit_memory`], to open runs.
#[cfg(target_os = "linux")]
pub fn unlimit_memory() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Data);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Data, limit);
}

/// Does nothing: the pool alone limits memory here.
#[cfg(not(target_os = "linux"))]
pub fn limit_memory(_memory: MemoryLimits) {}

/// Does nothing.
#[cfg(not(target_os = "linux"))]
pub fn unlimit_memory() {}

/// Returns the size of the process's private writable memory.
#[cfg(target_os = "linux")]
fn data_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}
