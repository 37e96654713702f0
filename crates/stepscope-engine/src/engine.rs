//! The façade over many runs: lists them, opens each once, closes the least recently used.

mod found;
mod list;
mod opening;
mod scanning;
mod watch;
mod watch_urls;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use stepscope_model::{Diagnostic, Limits};

use crate::cache::{self, Cache};
use crate::error::{EngineError, RunProblem};
use crate::found_run::FoundRun;
use crate::objects::{self, shown_path};
use crate::recover;
use crate::run::RunSummary;
use crate::scan::Sniffed;
use crate::sql::{RunOrigin, SqlRun};

pub(crate) use found::open_found;
use opening::Slot;

/// Maximum number of queued events per subscriber. Further events are dropped; the subscriber
/// should then list the runs again.
const EVENTS: usize = 1_024;

/// Paths to open, and options.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Log directories and single files.
    pub paths: Vec<PathBuf>,
    /// Cache directory; `None` for the user's (`$XDG_CACHE_HOME/stepscope`, `~/.cache/stepscope`).
    pub cache_dir: Option<PathBuf>,
    /// Whether imports are cached on disk and loaded from there.
    pub use_cache: bool,
    /// Whether imports are written to the disk immediately, in parallel with the first query.
    /// Otherwise they are written half a second later, so that the first queries of a viewer run
    /// undisturbed.
    pub keep_at_once: bool,
    /// Maximum depth of the search for traces below each path.
    pub max_depth: usize,
    /// Limits on the cost of reading one file.
    pub limits: Limits,
    /// Rescan in the background (named thread) and publish `RunAdded`, `RunChanged`, `RunRemoved`.
    pub watch: bool,
    /// Maximum number of folders with a watch. If there are more folders, or if the system allows
    /// fewer watches, everything is polled. 0 always polls.
    pub max_watches: usize,
    /// Time between two polls of folders and files without change notifications.
    pub poll_interval: Duration,
}

impl EngineOptions {
    /// Maximum search depth of a directory that the user named.
    pub const MAX_DEPTH: usize = 256;
    /// Default of [`max_watches`](Self::max_watches): a watch takes about a kilobyte of kernel
    /// memory, and all programs of a user share the system's limit.
    pub const MAX_WATCHES: usize = 32_768;
    /// Default of [`poll_interval`](Self::poll_interval).
    pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

    /// Creates options for all traces below these paths, with the cache and the watcher.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            cache_dir: None,
            use_cache: true,
            keep_at_once: false,
            max_depth: Self::MAX_DEPTH,
            limits: Limits::default(),
            watch: true,
            max_watches: Self::MAX_WATCHES,
            poll_interval: Self::POLL_INTERVAL,
        }
    }
}

/// Changes of runs, for live views.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineEvent {
    /// A run appeared. Holds its id.
    RunAdded(String),
    /// Files of a run changed, or it was opened and its summary was completed. Holds its id.
    RunChanged(String),
    /// A run disappeared. Holds its id.
    RunRemoved(String),
    /// Progress of an import.
    Progress {
        /// Id of the run.
        run: String,
        /// `Reading` (inflating and parsing), `Indexing` or `Ready`.
        phase: &'static str,
        /// 0 to 1.
        done: f64,
    },
    /// A diagnostic in the trace of a run that was just opened.
    Warning {
        /// Id of the run.
        run: String,
        /// The diagnostic.
        what: Diagnostic,
        /// The first detail; may be empty.
        detail: String,
    },
}

/// Lists and opens runs. Shared by all threads of a server.
pub struct Engine {
    options: EngineOptions,
    cache: Option<Cache>,
    cache_dir: Option<PathBuf>,
    state: Mutex<State>,
    sniffed: Mutex<Sniffed>,
    subscribers: Mutex<Vec<SyncSender<EngineEvent>>>,
    /// Locked during a scan, so that scans do not run concurrently.
    scanning: Mutex<()>,
    /// Wakes the watching thread.
    waker: watch::Waker,
    /// Ends the thread that watches URLs, when it is dropped.
    url_watch: Mutex<Option<SyncSender<()>>>,
}

#[derive(Default)]
struct State {
    roots: Vec<PathBuf>,
    /// Newest first.
    runs: Vec<Entry>,
    problems: Vec<RunProblem>,
    not_readable: Vec<PathBuf>,
    seen: watch::Seen,
    /// Counter of uses, for the LRU.
    clock: u64,
}

struct Entry {
    found: Arc<FoundRun>,
    fingerprint: u64,
    summary: RunSummary,
    slot: Arc<Slot>,
    used: u64,
    /// Whether [`Engine::fill_list`] has already processed it.
    looked_into: bool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Scans the paths (names only) and starts the watcher if requested.
    pub fn new(options: EngineOptions) -> Result<Arc<Self>, EngineError> {
        let cache_dir = options.cache_dir.clone().or_else(cache::default_dir);
        for path in &options.paths {
            if objects::is_url(path) {
                objects::list_now(path, cache_dir.as_deref())?;
            } else if let Err(error) = std::fs::metadata(path) {
                return Err(match error.kind() {
                    std::io::ErrorKind::NotFound => {
                        EngineError::NoSuchPath(path.display().to_string())
                    }
                    _ => EngineError::unreadable(path, crate::files::reason(&error)),
                });
            }
        }
        let cache = cache_dir.clone().filter(|_| options.use_cache).map(|dir| {
            let cache = Cache::new(dir);
            if options.keep_at_once {
                cache.without_pause()
            } else {
                cache
            }
        });
        let (waker, signals) = watch::Waker::new();
        let engine = Arc::new(Self {
            state: Mutex::new(State {
                roots: options.paths.clone(),
                ..State::default()
            }),
            cache,
            cache_dir,
            sniffed: Mutex::default(),
            subscribers: Mutex::default(),
            scanning: Mutex::default(),
            waker: waker.clone(),
            url_watch: Mutex::default(),
            options,
        });
        engine.scan_paths();
        if engine.options.watch {
            let weak: Weak<Self> = Arc::downgrade(&engine);
            // If the thread cannot start, new runs appear only after a rescan.
            let _ = std::thread::Builder::new()
                .name("stepscope-watch".to_owned())
                .spawn(move || watch::run(&weak, waker, &signals));
            engine.watch_urls();
        }
        Ok(engine)
    }

    /// Returns the options given to [`Engine::new`].
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub(crate) fn seen(&self) -> watch::Seen {
        held(&self.state).seen.clone()
    }

    /// Returns all runs, newest first.
    pub fn runs(&self) -> Vec<RunSummary> {
        let state = held(&self.state);
        state.runs.iter().map(Entry::summary).collect()
    }

    /// Returns the summary of one run.
    pub fn summary(&self, id: &str) -> Option<RunSummary> {
        let state = held(&self.state);
        let entry = state.runs.iter().find(|entry| entry.found.id == id)?;
        Some(entry.summary())
    }

    /// Returns whether there is a run with this id.
    pub fn has_run(&self, id: &str) -> bool {
        self.use_run(id).is_some()
    }

    /// Returns the run for the SQL engine, where the columns `run` have this name. Fetches the objects of a run that is
    /// in an object store.
    pub fn sql_run(&self, id: &str, name: &str) -> Result<SqlRun, EngineError> {
        let gone = || EngineError::NoSuchRun(id.to_owned());
        let (_, found) = self.use_run(id).ok_or_else(gone)?;
        let first = found.files.first().ok_or_else(gone)?;
        if first.object().is_some() {
            let roots = self.options.paths.iter().map(|path| shown_path(path));
            let file = shown_path(&first.path);
            // The longest one, as below.
            let url = roots
                .filter(|root| file.starts_with(root))
                .max_by_key(String::len);
            let origin = RunOrigin {
                url: url.unwrap_or(file),
                name: found.name.clone(),
            };
            return objects::sql_run(&found, name, origin, self.options.limits);
        }
        let first_file = first.path.clone();
        let state = held(&self.state);
        // The longest one: a directory and a file in it may both have been named.
        let roots = state.roots.iter();
        let path = roots
            .filter(|root| first_file.starts_with(root))
            .max_by_key(|root| root.as_os_str().len());
        Ok(SqlRun::Listed {
            // A run recovered into the cache lies outside of them.
            path: path.unwrap_or(&first_file).clone(),
            first_file,
            name: name.to_owned(),
            fingerprint: found.fingerprint(),
            origin: None,
        })
    }

    /// Returns the files of a run.
    pub(crate) fn found_run(&self, id: &str) -> Option<Arc<FoundRun>> {
        self.use_run(id).map(|(_, found)| found)
    }

    /// Returns problems of the last scan: folders without permission, links out of the directory,
    /// ...
    pub fn problems(&self) -> Vec<RunProblem> {
        held(&self.state).problems.clone()
    }

    /// Returns files that the last scan recognised but that no reader of this version supports.
    pub fn not_readable(&self) -> Vec<PathBuf> {
        held(&self.state).not_readable.clone()
    }

    /// Returns the run's slot and files. Lock order: the state before the slot.
    fn use_run(&self, id: &str) -> Option<(Arc<Slot>, Arc<FoundRun>)> {
        let mut state = held(&self.state);
        state.clock += 1;
        let now = state.clock;
        let entry = state.runs.iter_mut().find(|entry| entry.found.id == id)?;
        entry.used = now;
        Some((Arc::clone(&entry.slot), Arc::clone(&entry.found)))
    }

    /// Adds a file or directory outside the watched ones for this session; returns the ids of its
    /// runs.
    pub fn add_path(&self, path: &Path) -> Result<Vec<String>, EngineError> {
        let cache_dir = self.cache_dir.as_deref();
        if objects::is_url(path) {
            objects::list_now(path, cache_dir)?;
        }
        let depth = self.options.max_depth;
        let found = recover::scan(path, depth, &mut held(&self.sniffed), cache_dir)?;
        if found.runs.is_empty() {
            return Err(EngineError::NoTraces(path.display().to_string()));
        }
        {
            let mut state = held(&self.state);
            if !state.roots.iter().any(|root| root == path) {
                state.roots.push(path.to_owned());
            }
        }
        self.rescan();
        let state = held(&self.state);
        let belongs = |entry: &&Entry| {
            let first = &entry.found.files[0].path;
            found.runs.iter().any(|run| run.files[0].path == *first)
        };
        Ok(state
            .runs
            .iter()
            .filter(belongs)
            .map(|entry| entry.found.id.clone())
            .collect())
    }

    /// Stores an uploaded file in the cache directory and adds it; returns the id of its run. Only
    /// the last component of `file_name` is used.
    pub fn import_upload(
        &self,
        file_name: &str,
        body: &mut dyn std::io::Read,
    ) -> Result<String, EngineError> {
        let dir = self
            .cache_dir
            .as_deref()
            .ok_or_else(|| EngineError::Unwritable {
                path: file_name.to_owned(),
                reason: "there is no cache directory".to_owned(),
                hint: Some("set XDG_CACHE_HOME or HOME".to_owned()),
            })?;
        let limit = self.options.limits.max_inflated_bytes;
        let path = cache::keep_upload(dir, file_name, limit, body)
            .map_err(|error| EngineError::unwritable(dir, &error))?;
        let ids = self.add_path(&path)?;
        ids.into_iter()
            .next()
            .ok_or_else(|| EngineError::NoTraces(path.display().to_string()))
    }

    /// Subscribes to events. The queue holds at most 1,024; a slower subscriber misses some and
    /// should list the runs again.
    pub fn subscribe(&self) -> Receiver<EngineEvent> {
        let (sender, receiver) = sync_channel(EVENTS);
        held(&self.subscribers).push(sender);
        receiver
    }

    fn publish(&self, event: &EngineEvent) {
        held(&self.subscribers).retain(|subscriber| {
            !matches!(
                subscriber.try_send(event.clone()),
                Err(TrySendError::Disconnected(_))
            )
        });
    }

    /// Returns the user's data directory for notes (`$XDG_DATA_HOME/stepscope`,
    /// `~/.local/share/stepscope`; the cache directory if the user has no home directory).
    pub fn data_dir(&self) -> PathBuf {
        cache::default_data_dir()
            .or_else(|| self.cache_dir.clone())
            .unwrap_or_else(std::env::temp_dir)
    }

    /// Waits until all imports in the cache queue are on disk.
    pub fn flush_cache(&self) {
        if let Some(cache) = &self.cache {
            cache.wait();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // This ends the watching thread.
        self.waker.wake();
    }
}
