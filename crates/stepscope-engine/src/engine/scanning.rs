//! Scans the paths, and compares the runs found with the listed ones.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, EngineEvent, Entry, held, watch};
use crate::error::{EngineError, RunProblem};
use crate::found_run::FoundRun;
use crate::objects;
use crate::recover;
use crate::run;
use crate::scan::{self, ScanResult};

impl Engine {
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
