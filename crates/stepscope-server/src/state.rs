//! State shared by all requests.

use std::hash::{BuildHasher, Hash, Hasher};
use std::io::Read;
use std::sync::{Arc, Mutex};

use stepscope_engine::Engine;
use stepscope_mcp::McpServer;
use tokio::sync::{Semaphore, broadcast, watch};

use crate::capture::Captures;
use crate::live::{self, LiveEvent};
use crate::op_times::OpTimesCache;
use crate::opening::Runs;
use crate::options::ViewerOptions;
use crate::path_cache::PathCache;
use crate::side_cache::SideCache;
use crate::snapshots::SnapshotCache;
use crate::sql_engines::SqlEngines;
use crate::viewer::Viewer;

/// Number of events that a slow listener may lag behind before it loses events.
const EVENT_BACKLOG: usize = 256;

/// State shared by all requests.
pub(crate) struct State {
    pub(crate) options: ViewerOptions,
    pub(crate) runs: Arc<Runs>,
    pub(crate) op_times: Arc<OpTimesCache>,
    pub(crate) snapshots: Arc<SnapshotCache>,
    pub(crate) paths: Arc<PathCache>,
    /// Runs as sides of comparisons.
    pub(crate) sides: Arc<SideCache>,
    pub(crate) sql: Arc<SqlEngines>,
    /// Answers assistants, if they may ask.
    pub(crate) mcp: Option<Arc<McpServer>>,
    pub(crate) viewer: Viewer,
    pub(crate) session_token: String,
    pub(crate) captures: Captures,
    pub(crate) events: broadcast::Sender<LiveEvent>,
    /// Limits the number of simultaneous queries.
    pub(crate) permits: Arc<Semaphore>,
    /// Serialises writers of notes.
    pub(crate) notes: Mutex<()>,
    /// Id of the example run, once imported.
    pub(crate) example: Mutex<Option<String>>,
    pub(crate) stopping: watch::Sender<bool>,
}

impl State {
    pub(crate) fn new(options: ViewerOptions, engine: Arc<Engine>, viewer: Viewer) -> Arc<Self> {
        let (events, _) = broadcast::channel(EVENT_BACKLOG);
        let (stopping, _) = watch::channel(false);
        let session_token = match &options.session_token {
            Some(token) => token.clone(),
            None => random_token(),
        };
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let runs = Arc::new(Runs::new(engine, build_tag()));
        live::forward(&runs, events.clone());
        let mut hasher = rustc_hash::FxHasher::default();
        session_token.hash(&mut hasher);
        let of_this_server = format!("{:08x}", hasher.finish() >> 32);
        Arc::new(Self {
            captures: Captures::new(&options.capture_to, of_this_server),
            sql: Arc::new(SqlEngines::new(&options)),
            mcp: options.mcp.then(|| {
                let capture_from = options.mcp_capture.clone();
                Arc::new(McpServer::new(Arc::clone(runs.engine()), capture_from))
            }),
            options,
            runs,
            op_times: Arc::default(),
            snapshots: Arc::default(),
            paths: Arc::default(),
            sides: Arc::default(),
            viewer,
            session_token,
            events,
            permits: Arc::new(Semaphore::new(threads.max(2))),
            notes: Mutex::new(()),
            example: Mutex::default(),
            stopping,
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.runs.engine()
    }

    /// Returns whether to compress responses: not on loopback.
    pub(crate) fn compress(&self) -> bool {
        !self.options.address.is_loopback()
    }
}

/// Returns 128 random bits in hexadecimal.
pub(crate) fn random_token() -> String {
    let mut bytes = [0_u8; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        // The standard library seeds its hasher from the system's random source.
        let seed = std::collections::hash_map::RandomState::new();
        for (index, half) in bytes.chunks_mut(8).enumerate() {
            half.copy_from_slice(&seed.hash_one((index, std::process::id())).to_le_bytes());
        }
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Returns a tag that differs between builds of the program, so that browser caches never mix their
/// responses.
fn build_tag() -> String {
    let mut hasher = rustc_hash::FxHasher::default();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    if let Ok(program) = std::env::current_exe().and_then(std::fs::metadata) {
        program.len().hash(&mut hasher);
        program.modified().ok().hash(&mut hasher);
    }
    format!("{:08x}", hasher.finish() >> 32)
}
