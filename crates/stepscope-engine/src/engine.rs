//! The façade over many runs: lists them, opens each once, closes the least recently used.

mod found;
mod list;
mod watch;
mod watch_urls;

use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Diagnostic, Limits, ReadContext};

use crate::cache::{self, Cache};
use crate::error::{EngineError, RunProblem};
use crate::found_run::FoundRun;
use crate::objects;
use crate::open;
use crate::recover;
use crate::run::{self, Run, RunState, RunSummary};
use crate::scan::{self, ScanResult, Sniffed};
use crate::sql::SqlRun;

pub(crate) use found::open_found;

/// Memory limit for the columns of opened runs; the run just opened always stays open.
const OPENED_BYTES: usize = 4 << 30;
/// Maximum number of opened runs.
const OPENED_RUNS: usize = 32;
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

/// State of one run between listed and open; shared by all threads that wait for it.
#[derive(Default)]
struct Slot {
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Default)]
enum Phase {
    #[default]
    Listed,
    Importing(Arc<Import>),
    Ready(Arc<Run>),
    Failed(EngineError),
}

/// A running import.
struct Import {
    context: Arc<ReadContext>,
    expected_bytes: u64,
}

impl Import {
    fn done(&self) -> f64 {
        let read = self.context.read_bytes() as f64 / self.expected_bytes.max(1) as f64;
        // The remaining share is for indexing. An estimate that was too low must not exceed 0.9.
        read.min(1.0) * 0.9
    }
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

    /// Scans the directories again; parses no file.
    pub fn rescan(&self) {
        for url in self.urls() {
            // The scan reports the error.
            let _ = objects::list_now(&url, self.cache_dir.as_deref());
        }
        self.scan_paths();
        // The watching thread must watch new folders.
        self.waker.wake();
    }

    /// Scans without waking the watching thread, which calls this method itself.
    pub(crate) fn scan_paths(&self) {
        let _scanning = held(&self.scanning);
        let roots = held(&self.state).roots.clone();
        let mut found = ScanResult::default();
        for root in &roots {
            let cache_dir = self.cache_dir.as_deref();
            let depth = self.options.max_depth;
            match recover::scan(root, depth, &mut held(&self.sniffed), cache_dir) {
                Ok(mut more) => {
                    name_root(&mut more.runs, root, &roots);
                    found.runs.append(&mut more.runs);
                    found.problems.append(&mut more.problems);
                    found.not_readable.append(&mut more.not_readable);
                    found.folders.append(&mut more.folders);
                    found.linked.append(&mut more.linked);
                    found.journals.append(&mut more.journals);
                }
                Err(error) => {
                    found.problems.push(RunProblem::new(root, short(&error)));
                    found.missing.push(root.clone());
                }
            }
        }
        let named = roots.iter().map(PathBuf::as_path);
        let named: Vec<&Path> = named
            .filter(|root| !root.is_dir() && !objects::is_url(root))
            .collect();
        scan::attach_named(&mut found.runs, &named);
        let events = self.adopt(found);
        for event in events {
            self.publish(&event);
        }
    }

    /// Replaces the list of runs; opened runs that have not changed stay open.
    fn adopt(&self, found: ScanResult) -> Vec<EngineEvent> {
        let mut events = Vec::new();
        let mut state = held(&self.state);
        let mut before: FxHashMap<String, Entry> = std::mem::take(&mut state.runs)
            .into_iter()
            .map(|entry| (entry.found.id.clone(), entry))
            .collect();
        let mut ids = FxHashSet::default();
        let mut files = FxHashSet::default();
        for mut found in found.runs {
            // The same files given twice (a directory and a file in it) are one run.
            let first = found.files[0].path.clone();
            if !files.insert(std::fs::canonicalize(&first).unwrap_or(first.clone())) {
                continue;
            }
            if ids.contains(&found.id) {
                found.id = crate::names::with_hash(&found.id, &first);
            }
            ids.insert(found.id.clone());
            let fingerprint = found.fingerprint();
            match before.remove(&found.id) {
                Some(entry) if entry.fingerprint == fingerprint => state.runs.push(entry),
                known => {
                    let id = found.id.clone();
                    events.push(match known {
                        Some(old) => {
                            old.slot.cancel();
                            EngineEvent::RunChanged(id)
                        }
                        None => EngineEvent::RunAdded(id),
                    });
                    state.runs.push(Entry {
                        summary: run::listed(&found),
                        found: Arc::new(found),
                        fingerprint,
                        slot: Arc::default(),
                        used: 0,
                        looked_into: false,
                    });
                }
            }
        }
        let mut gone: Vec<_> = before.into_iter().collect();
        gone.sort_by(|a, b| a.0.cmp(&b.0));
        for (id, entry) in gone {
            entry.slot.cancel();
            events.push(EngineEvent::RunRemoved(id));
        }
        let newest = |entry: &Entry| std::cmp::Reverse(entry.summary.recorded_unix_ns);
        state.runs.sort_by(|a, b| {
            (newest(a), &a.found.name, &a.found.id).cmp(&(newest(b), &b.found.name, &b.found.id))
        });
        let files = state.runs.iter().flat_map(|entry| {
            let files = entry.found.files.iter();
            files.chain(&entry.found.execution_traces)
        });
        let files = files.filter(|file| file.object().is_none());
        state.seen = watch::Seen {
            files: files.map(|file| (file.path.clone(), file.stamp)).collect(),
            folders: found.folders,
            linked: found.linked.into_iter().collect(),
            missing: found.missing,
            journals: found.journals,
        };
        state.problems = found.problems;
        state.not_readable = found.not_readable;
        events
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
            return objects::sql_run(&found, name, self.options.limits);
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
        })
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

    /// Returns the run if it is already open.
    pub fn opened(&self, id: &str) -> Option<Arc<Run>> {
        let (slot, _) = self.use_run(id)?;
        match &*held(&slot.phase) {
            Phase::Ready(run) if !run.trace.is_damaged() => Some(Arc::clone(run)),
            _ => None,
        }
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

    /// Opens the run. Blocks; concurrent callers share one import. Opened runs are kept in an LRU.
    /// A failed run is tried again.
    pub fn open(&self, id: &str) -> Result<Arc<Run>, EngineError> {
        let (slot, found) = self
            .use_run(id)
            .ok_or_else(|| EngineError::NoSuchRun(id.to_owned()))?;
        let mut phase = held(&slot.phase);
        if let Phase::Importing(_) = &*phase {
            while let Phase::Importing(_) = &*phase {
                phase = slot
                    .changed
                    .wait(phase)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            return match &*phase {
                Phase::Ready(run) => Ok(Arc::clone(run)),
                Phase::Failed(error) => Err(error.clone()),
                // Another thread cancelled the import.
                _ => Err(EngineError::Cancelled),
            };
        }
        // A cached import that turned out to be damaged is replaced from the files.
        if let Phase::Ready(run) = &*phase
            && !run.trace.is_damaged()
        {
            return Ok(Arc::clone(run));
        }
        let import = Arc::new(Import {
            context: Arc::new(ReadContext::new(self.options.limits)),
            expected_bytes: open::expected_bytes(&found),
        });
        *phase = Phase::Importing(Arc::clone(&import));
        drop(phase);

        let outcome = self.import(&found, &import);
        *held(&slot.phase) = match &outcome {
            Ok(run) => Phase::Ready(Arc::clone(run)),
            Err(EngineError::Cancelled) => Phase::Listed,
            Err(error) => Phase::Failed(error.clone()),
        };
        slot.changed.notify_all();
        self.opened_now(&found, &slot, &outcome);
        outcome
    }

    fn import(&self, found: &FoundRun, import: &Import) -> Result<Arc<Run>, EngineError> {
        let (finish, finished) = sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let ticker = std::thread::Builder::new().name("stepscope-progress".to_owned());
            let _ = ticker.spawn_scoped(scope, move || {
                while finished.recv_timeout(Duration::from_millis(250))
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    let done = import.done();
                    self.publish(&EngineEvent::Progress {
                        run: found.id.clone(),
                        phase: if done < 0.9 { "Reading" } else { "Indexing" },
                        done,
                    });
                }
            });
            let run = open_found(found, &import.context, self.cache.as_ref()).map(Arc::new);
            drop(finish);
            run
        })
    }

    /// Completes the summary, notifies subscribers, and closes the least recently used runs.
    fn opened_now(
        &self,
        found: &FoundRun,
        slot: &Arc<Slot>,
        outcome: &Result<Arc<Run>, EngineError>,
    ) {
        if let Ok(opened) = outcome {
            let summary = run::summary_of(found, opened);
            let mut state = held(&self.state);
            // The run may have changed or disappeared meanwhile.
            let entry = state
                .runs
                .iter_mut()
                .find(|entry| Arc::ptr_eq(&entry.slot, slot));
            if let Some(entry) = entry {
                entry.summary = summary;
            }
            drop(state);
            self.publish(&EngineEvent::Progress {
                run: found.id.clone(),
                phase: "Ready",
                done: 1.0,
            });
            for warning in opened.trace.diagnostics() {
                self.publish(&EngineEvent::Warning {
                    run: found.id.clone(),
                    what: warning.what,
                    detail: warning.details.first().cloned().unwrap_or_default(),
                });
            }
        }
        self.publish(&EngineEvent::RunChanged(found.id.clone()));
        self.forget_oldest(slot);
    }

    fn forget_oldest(&self, newest: &Arc<Slot>) {
        let mut open: Vec<(u64, usize, Arc<Slot>)> = Vec::new();
        for entry in &held(&self.state).runs {
            if let Phase::Ready(run) = &*held(&entry.slot.phase) {
                open.push((entry.used, run.trace.heap_bytes(), Arc::clone(&entry.slot)));
            }
        }
        open.sort_by_key(|entry| entry.0);
        let mut bytes: usize = open.iter().map(|entry| entry.1).sum();
        let mut count = open.len();
        for (_, run_bytes, slot) in open {
            if bytes <= OPENED_BYTES && count <= OPENED_RUNS {
                return;
            }
            if Arc::ptr_eq(&slot, newest) {
                continue;
            }
            let mut phase = held(&slot.phase);
            if let Phase::Ready(_) = &*phase {
                *phase = Phase::Listed;
                bytes -= run_bytes;
                count -= 1;
            }
        }
    }

    /// Cancels the import of a run if one is in progress.
    pub fn cancel(&self, id: &str) {
        if let Some((slot, _)) = self.use_run(id) {
            slot.cancel();
        }
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

impl Slot {
    fn cancel(&self) {
        if let Phase::Importing(import) = &*held(&self.phase) {
            import.context.cancel();
        }
    }
}

impl Entry {
    fn summary(&self) -> RunSummary {
        let mut summary = self.summary.clone();
        match &*held(&self.slot.phase) {
            Phase::Listed => {
                summary.state = RunState::Listed;
                summary.progress = 0.0;
            }
            Phase::Importing(import) => {
                summary.state = RunState::Importing;
                summary.progress = import.done();
            }
            Phase::Ready(run) => {
                summary.state = run::state_of(run);
                summary.progress = 1.0;
            }
            Phase::Failed(error) => {
                summary.state = RunState::Error;
                summary.error = Some(run::problem_of(&self.found, error));
            }
        }
        summary
    }
}

/// Prefixes each run's name with its directory if several are watched.
fn name_root(runs: &mut [FoundRun], root: &Path, roots: &[PathBuf]) {
    if roots.len() < 2 || !(root.is_dir() || objects::is_url(root)) {
        return;
    }
    let folder = distinct_tail(root, roots);
    if folder.as_os_str().is_empty() {
        return;
    }
    for run in runs {
        run.name = format!("{}/{}", folder.display(), run.name);
    }
}

/// Returns the shortest suffix of `root` that no other root has: `b/logs` of `a/logs` and `b/logs`.
fn distinct_tail(root: &Path, roots: &[PathBuf]) -> PathBuf {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let parts: Vec<Component<'_>> = root.components().filter(is_name).collect();
    let tail = |length: usize| -> PathBuf { parts.iter().skip(parts.len() - length).collect() };
    (1..=parts.len())
        .map(tail)
        .find(|tail| {
            let others = roots.iter().filter(|other| other.as_path() != root);
            others.into_iter().all(|other| !other.ends_with(tail))
        })
        .unwrap_or_else(|| tail(parts.len()))
}

/// Returns the reason of an error without the path, which is shown separately.
fn short(error: &EngineError) -> String {
    match error {
        EngineError::Unreadable { reason, .. } => reason.clone(),
        EngineError::NoSuchPath(_) => "no such file or directory".to_owned(),
        other => other.to_string(),
    }
}
