//! Copies files of this machine to a bucket.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};

use crate::address::Address;
use crate::credentials::Environment;
use crate::error::{ObjectError, ObjectErrorKind};
use crate::runtime;
use crate::stop::Stop;
use crate::store::Store;

/// Files that are sent at once, and objects that are removed at once.
const FILES_AT_ONCE: usize = 4;
/// Time that a cancelled copy has to remove what it sent.
const CLEAN: Duration = Duration::from_secs(20);

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The file.
    pub file: PathBuf,
    /// Name of the object below the URL, with slashes.
    pub name: String,
    /// Whether the object stays when another file cannot be copied.
    pub stays: bool,
}

/// Copies groups of files, one group after the other, to objects below a URL; objects of these names are replaced. An
/// object appears when it is complete. When a file cannot be copied, or the copy is cancelled, the objects that were
/// sent are removed.
///
/// `advance` is called with the number of bytes that were sent since the last call; the copy ends when it returns false.
pub fn upload(
    url: &Path,
    groups: Vec<Vec<Upload>>,
    environment: &Environment,
    advance: &dyn Fn(u64) -> bool,
) -> Result<(), ObjectError> {
    let address = Address::parse(url)?;
    let shown = address.url();
    let (sent, stop) = (Arc::new(AtomicU64::new(0)), Stop::default());
    let (count, stopped) = (Arc::clone(&sent), stop.clone());
    let environment = environment.clone();
    let stopped_at = std::cell::Cell::new(None);
    let ends = || {
        if !advance(count.swap(0, Ordering::Relaxed)) {
            stopped.set();
            stopped_at.set(stopped_at.get().or_else(|| Some(Instant::now())));
        }
        // The copy ends itself, unless its server does not answer.
        stopped_at
            .get()
            .is_some_and(|at: Instant| at.elapsed() >= CLEAN)
    };
    runtime::wait(&shown, &ends, async move {
        let store = Store::connect(&address, &environment).await?;
        let mut done = Vec::new();
        for group in groups {
            if let Err(error) = send_group(&store, group, &sent, &stop, &mut done).await {
                return Err(remove(&store, done, error).await);
            }
        }
        Ok(())
    })?;
    let _ = ends();
    Ok(())
}

/// Sends files, and adds the keys of those that are objects now and are removed after an error.
async fn send_group(
    store: &Store,
    files: Vec<Upload>,
    sent: &AtomicU64,
    stop: &Stop,
    done: &mut Vec<String>,
) -> Result<(), ObjectError> {
    let each = files.into_iter().map(|upload| async move {
        let key = match store.address.key.as_str() {
            "" => upload.name,
            folder => format!("{folder}/{}", upload.name),
        };
        let outcome = send(store, &key, &upload.file, sent, stop).await;
        if outcome.is_err() {
            // The other files are of no use.
            stop.set();
        }
        outcome.map(|()| (!upload.stays).then_some(key))
    });
    let outcomes: Vec<_> = stream::iter(each)
        .buffer_unordered(FILES_AT_ONCE)
        .collect()
        .await;
    let mut first: Option<ObjectError> = None;
    for outcome in outcomes {
        match outcome {
            Ok(key) => done.extend(key),
            // Those that end because of the first one are cancelled.
            Err(error)
                if first
                    .as_ref()
                    .is_none_or(|first| first.kind == ObjectErrorKind::Cancelled) =>
            {
                first = Some(error);
            }
            Err(_) => {}
        }
    }
    first.map_or(Ok(()), Err)
}

async fn send(
    store: &Store,
    key: &str,
    path: &Path,
    sent: &AtomicU64,
    stop: &Stop,
) -> Result<(), ObjectError> {
    if stop.is_set() {
        return Err(ObjectError::cancelled(store.address.url_of(key)));
    }
    let unreadable = |error: &std::io::Error| {
        let reason = format!("{} cannot be read: {error}", path.display());
        ObjectError::new(ObjectErrorKind::Other, store.address.url_of(key), reason)
    };
    let mut file = File::open(path).map_err(|error| unreadable(&error))?;
    let mut next = |most: usize| {
        let mut part = Vec::new();
        let read = (&mut file).take(most as u64).read_to_end(&mut part);
        read.map(|_| part).map_err(|error| unreadable(&error))
    };
    store.put(key, &mut next, sent, stop).await
}

/// Removes objects after an error, and returns the error, with the number of those that are still there.
async fn remove(store: &Store, keys: Vec<String>, error: ObjectError) -> ObjectError {
    let each = keys
        .into_iter()
        .map(|key| async move { store.remove(&key).await });
    let outcomes: Vec<_> = stream::iter(each)
        .buffer_unordered(FILES_AT_ONCE)
        .collect()
        .await;
    match outcomes.iter().filter(|outcome| outcome.is_err()).count() {
        0 => error,
        left => ObjectError {
            reason: format!(
                "{}; {left} objects that were sent cannot be removed",
                error.reason
            ),
            ..error
        },
    }
}
