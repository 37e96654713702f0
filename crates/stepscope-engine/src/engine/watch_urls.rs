//! Detects runs that appear in object stores.
//!
//! Stores send no notifications, and each request has a price: a named thread asks at most once per folder and 30
//! seconds. A store that does not answer delays no local folder.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Engine, held};
use crate::objects;

/// How often the thread looks whether a folder is due.
const TICK: Duration = Duration::from_secs(10);

impl Engine {
    /// Returns the URLs among the paths.
    pub(super) fn urls(&self) -> Vec<PathBuf> {
        let roots = held(&self.state).roots.clone();
        let urls = roots.into_iter().filter(|root| objects::is_url(root));
        urls.collect()
    }

    /// Starts the watch of URLs, unless it runs or there is none.
    pub(super) fn watch_urls(self: &Arc<Self>) {
        let mut watch = held(&self.url_watch);
        if watch.is_some() || self.urls().is_empty() {
            return;
        }
        let (sender, ended) = sync_channel(0);
        *watch = Some(sender);
        let weak = Arc::downgrade(self);
        // If the thread cannot start, new runs appear only after a rescan.
        let _ = std::thread::Builder::new()
            .name("stepscope-urls".to_owned())
            .spawn(move || run(&weak, &ended));
    }
}

/// Watches until the engine is dropped.
fn run(engine: &Weak<Engine>, ended: &Receiver<()>) {
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let mut changed = false;
        for url in engine.urls() {
            changed |= objects::poll(&url, engine.cache_dir.as_deref());
        }
        if changed {
            engine.scan_paths();
        }
    }
}
