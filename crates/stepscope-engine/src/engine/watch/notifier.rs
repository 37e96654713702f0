//! Watches on folders by inotify.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Config, Event, INotifyWatcher, RecursiveMode, Watcher};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Waker;
use crate::files::Stamp;
use crate::names;
use crate::scan::is_ignored;

/// Local file systems by their magic number in `statfs`: ext, XFS, Btrfs, tmpfs, ramfs, overlay,
/// F2FS, ZFS, bcachefs. The kernel notifies all changes of these. All others are polled.
const LOCAL: &[u64] = &[
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

/// The system or `max_watches` allows no more watches.
pub(super) struct NoWatches;

/// A set of watched folders, without recursion: the scan decides which ones.
pub(super) struct Notifier {
    watcher: INotifyWatcher,
    max_watches: usize,
    /// Device and inode of each watched folder.
    watched: FxHashMap<PathBuf, (u64, u64)>,
    /// Folders that were removed or renamed, which invalidates their watches.
    gone: Arc<Mutex<FxHashSet<PathBuf>>>,
    /// Whether a device holds a local file system.
    local: FxHashMap<u64, bool>,
}

impl Notifier {
    /// Creates a notifier, or returns `None` if the system has no notifications.
    pub(super) fn new(waker: Waker, max_watches: usize) -> Option<Self> {
        let gone: Arc<Mutex<FxHashSet<PathBuf>>> = Arc::default();
        let moved = Arc::clone(&gone);
        let on_event = move |event: notify::Result<Event>| {
            let Ok(event) = event else {
                return waker.wake();
            };
            if matters(&event) {
                if let EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) = event.kind {
                    let mut moved = moved.lock().unwrap_or_else(PoisonError::into_inner);
                    moved.extend(event.paths);
                }
                waker.wake();
            }
        };
        let config = Config::default().with_follow_symlinks(false);
        Some(Self {
            watcher: INotifyWatcher::new(on_event, config).ok()?,
            max_watches,
            watched: FxHashMap::default(),
            gone,
            local: FxHashMap::default(),
        })
    }

    pub(super) fn watches(&self, folder: &Path) -> bool {
        self.watched.contains_key(folder)
    }

    /// Watches exactly these folders; returns `true` if some of them were not watched before.
    pub(super) fn adopt(&mut self, folders: &[(PathBuf, Stamp)]) -> Result<bool, NoWatches> {
        let mut wanted: FxHashMap<&Path, (u64, u64)> = FxHashMap::default();
        for (folder, stamp) in folders {
            let device = stamp.device;
            if *self.local.entry(device).or_insert_with(|| is_local(folder)) {
                wanted.insert(folder, (device, stamp.inode));
            }
        }
        if wanted.len() > self.max_watches {
            return Err(NoWatches);
        }
        let gone = std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner));
        let is_stale = |(path, number): (&PathBuf, &(u64, u64))| {
            gone.contains(path) || wanted.get(path.as_path()) != Some(number)
        };
        let stale = self
            .watched
            .iter()
            .filter(|&(path, number)| is_stale((path, number)));
        let stale: Vec<PathBuf> = stale.map(|(path, _)| path.clone()).collect();
        for path in stale {
            // The kernel has already dropped the watch if the folder was removed.
            let _ = self.watcher.unwatch(&path);
            self.watched.remove(&path);
        }
        let mut added = false;
        for (folder, stamp) in folders {
            let Some(number) = wanted.get(folder.as_path()) else {
                continue;
            };
            if self.watched.contains_key(folder) {
                continue;
            }
            match self.watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder.clone(), *number);
                    added = true;
                }
                // The folder disappeared or is unreadable: its parent notifies, or it is polled.
                Err(_) if Stamp::at(folder) != Some(*stamp) => added = true,
                Err(_) => return Err(NoWatches),
            }
        }
        Ok(added)
    }
}

/// Returns whether an event can change the list of runs. Reading a file cannot, and writing to a
/// file can only if it has a trace's name. Removing and renaming always can: the event may concern
/// the watched folder itself, whose name is irrelevant.
fn matters(event: &Event) -> bool {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_owned();
    let is_listed = |path: &PathBuf| !is_ignored(&name(path));
    let is_trace = |path: &PathBuf| {
        is_listed(path) && names::classify(&name(path).to_string_lossy()).is_some()
    };
    if event.need_rescan() {
        return true;
    }
    match event.kind {
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => true,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_)) => event.paths.iter().any(is_trace),
        EventKind::Access(_) => false,
        _ => event.paths.iter().any(is_listed),
    }
}

fn is_local(folder: &Path) -> bool {
    rustix::fs::statfs(folder)
        .is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|kind| LOCAL.contains(&kind)))
}
