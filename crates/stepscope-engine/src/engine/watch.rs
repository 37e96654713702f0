//! Detects runs that appear, change and disappear.
//!
//! A named thread keeps one notification of the file system (inotify) on each folder that the last
//! scan listed, so the scan's own rules (hidden names, depth, links) decide what is watched. After
//! a notification it waits until the folder is quiet for [`QUIET`], at most [`MAX_QUIET`], and
//! scans again. While nothing happens it sleeps.
//!
//! Polling is used where notifications are insufficient: for file systems that other machines or
//! programs may change without a notification (network file systems, FUSE), for everything once the
//! system gives no more watches or there are more folders than
//! [`max_watches`](crate::EngineOptions::max_watches), and on systems other than Linux. Links to
//! files, files named by the user, and journals, whose writer may die without a change of any file,
//! are always polled. A poll compares modification times. It runs after the poll interval, or after
//! fifty times its own duration if that is longer, so a directory with a hundred thousand files
//! costs at most two per cent of a core. As a safeguard, everything is compared once in
//! [`FULL_EVERY`] poll intervals.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use super::Engine;
use crate::files::Stamp;

#[cfg(target_os = "linux")]
mod notifier;

/// Time without notifications from a folder before it is scanned.
const QUIET: Duration = Duration::from_millis(100);
/// Maximum time between a notification and the scan while notifications continue.
const MAX_QUIET: Duration = Duration::from_secs(1);
/// Minimum time between the end of a scan and the start of the next one after a notification.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time before a scan or poll is repeated, as a multiple of its own duration.
const REST_FACTOR: u32 = 50;
/// Number of poll intervals between two comparisons of everything while notifications work.
const FULL_EVERY: u32 = 60;
/// Maximum number of consecutive scans that add folders to watch.
const MAX_ROUNDS: usize = 8;

/// The state of files and folders at the last scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Folders that were listed.
    pub(crate) folders: Vec<(PathBuf, Stamp)>,
    /// Files of runs.
    pub(crate) files: Vec<(PathBuf, Stamp)>,
    /// Links to files that the scan followed.
    pub(crate) linked: FxHashSet<PathBuf>,
    /// Paths given by the user that did not exist.
    pub(crate) missing: Vec<PathBuf>,
    /// Folders with the journal of a program that was recording.
    pub(crate) journals: Vec<PathBuf>,
}

impl Seen {
    /// Returns whether the current state differs.
    pub(crate) fn has_changed(&self) -> bool {
        let differs = |(path, stamp): &(PathBuf, Stamp)| Stamp::at(path) != Some(*stamp);
        let died = |session: &PathBuf| !stepscope::recover::pending(session).is_empty();
        self.folders.iter().any(differs)
            || self.files.iter().any(differs)
            || self.missing.iter().any(|path| path.exists())
            || self.journals.iter().any(died)
    }

    fn is_empty(&self) -> bool {
        self.folders.is_empty()
            && self.files.is_empty()
            && self.missing.is_empty()
            && self.journals.is_empty()
    }

    /// Removes folders and files whose changes cause notifications.
    #[cfg(target_os = "linux")]
    fn without(mut self, notified: &notifier::Notifier) -> Self {
        self.folders.retain(|(folder, _)| !notified.watches(folder));
        let linked = &self.linked;
        self.files.retain(|(file, _)| {
            linked.contains(file) || file.parent().is_none_or(|folder| !notified.watches(folder))
        });
        self
    }
}

/// Wakes the watching thread: something may have changed, or the engine was dropped. Wakes are
/// coalesced while one is pending.
#[derive(Clone, Debug)]
pub(crate) struct Waker(SyncSender<()>);

impl Waker {
    pub(crate) fn new() -> (Self, Receiver<()>) {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        (Self(sender), receiver)
    }

    pub(crate) fn wake(&self) {
        // Full: the thread is already awake. Disconnected: there is no thread.
        let _ = self.0.try_send(());
    }
}

/// Watches until the engine is dropped.
pub(crate) fn run(engine: &Weak<Engine>, waker: Waker, signals: &Receiver<()>) {
    let Some(mut watch) = engine.upgrade().map(|engine| Watch::new(&engine, waker)) else {
        return;
    };
    loop {
        let woken = match signals.recv_timeout(watch.rest()) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if woken && !watch.settle(engine, signals) {
            return;
        }
        let Some(engine) = engine.upgrade() else {
            return;
        };
        if woken || watch.poll_finds_change(&engine) {
            watch.scan(&engine);
        }
    }
}

struct Watch {
    #[cfg(target_os = "linux")]
    notifier: Option<notifier::Notifier>,
    poll_interval: Duration,
    /// Folders and files without notifications.
    polled: Arc<Seen>,
    polled_at: Instant,
    /// Duration of the last poll or scan.
    cost: Duration,
    full_at: Instant,
    scanned_at: Option<Instant>,
}

impl Watch {
    fn new(engine: &Engine, waker: Waker) -> Self {
        let now = Instant::now();
        let options = engine.options();
        #[cfg(not(target_os = "linux"))]
        let _ = waker;
        let mut watch = Self {
            #[cfg(target_os = "linux")]
            notifier: (options.max_watches > 0)
                .then(|| notifier::Notifier::new(waker, options.max_watches))
                .flatten(),
            poll_interval: options.poll_interval,
            polled: Arc::default(),
            polled_at: now,
            cost: Duration::ZERO,
            full_at: now,
            scanned_at: None,
        };
        if watch.adopt(engine) {
            watch.scan(engine);
            // Do not delay the first change after the start.
            watch.scanned_at = None;
        }
        watch
    }

    fn full_interval(&self) -> Duration {
        self.poll_interval.saturating_mul(FULL_EVERY)
    }

    /// Returns how long to sleep unless a signal wakes the thread.
    fn rest(&self) -> Duration {
        let until_full = self.full_interval().saturating_sub(self.full_at.elapsed());
        if self.polled.is_empty() {
            return until_full;
        }
        let pause = self.poll_interval.max(self.cost * REST_FACTOR);
        pause
            .saturating_sub(self.polled_at.elapsed())
            .min(until_full)
    }

    /// Waits until notifications pause and the last scan is long enough ago; returns `false` if the
    /// engine was dropped.
    fn settle(&self, engine: &Weak<Engine>, signals: &Receiver<()>) -> bool {
        let begun = Instant::now();
        let rested = self
            .scanned_at
            .map_or(begun, |at| at + SCAN_INTERVAL.max(self.cost * REST_FACTOR));
        let latest = rested.max(begun + MAX_QUIET);
        let mut quiet_at = rested.max(begun + QUIET);
        loop {
            if engine.strong_count() == 0 {
                return false;
            }
            let left = quiet_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            match signals.recv_timeout(left) {
                Ok(()) => quiet_at = latest.min(quiet_at.max(Instant::now() + QUIET)),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn poll_finds_change(&mut self, engine: &Engine) -> bool {
        let begun = Instant::now();
        let is_full = self.full_at.elapsed() >= self.full_interval();
        let changed = if is_full {
            self.full_at = begun;
            engine.seen().has_changed()
        } else {
            self.polled.has_changed()
        };
        self.polled_at = Instant::now();
        self.cost = begun.elapsed();
        changed
    }

    /// Scans, and scans again after adding folders to the watches, because earlier changes in them
    /// cause no notification.
    fn scan(&mut self, engine: &Engine) {
        let begun = Instant::now();
        for _ in 0..MAX_ROUNDS {
            engine.scan_paths();
            if !self.adopt(engine) {
                break;
            }
        }
        let now = Instant::now();
        self.cost = begun.elapsed();
        (self.polled_at, self.full_at, self.scanned_at) = (now, now, Some(now));
    }

    /// Watches the folders of the last scan; returns `true` if folders were added.
    fn adopt(&mut self, engine: &Engine) -> bool {
        let seen = engine.seen();
        #[cfg(target_os = "linux")]
        if let Some(notifier) = &mut self.notifier {
            match notifier.adopt(&seen.folders) {
                Ok(added) => {
                    self.polled = Arc::new(seen.without(notifier));
                    return added;
                }
                // Without enough watches everything is polled, and the watches are released.
                Err(notifier::NoWatches) => self.notifier = None,
            }
        }
        self.polled = Arc::new(seen);
        false
    }
}
