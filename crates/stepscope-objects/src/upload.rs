//! Copies files of this machine to a bucket.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::address::Address;
use crate::credentials::Environment;
use crate::error::{ObjectError, ObjectErrorKind};
use crate::runtime;
use crate::store::Store;

/// Files that are sent at once.
const FILES_AT_ONCE: usize = 4;

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The file.
    pub file: PathBuf,
    /// Name of the object below the URL, with slashes.
    pub name: String,
}

/// Copies files to objects below a URL; objects of these names are replaced. An object appears when it is complete.
///
/// `advance` is called with the number of bytes that were sent since the last call; the copy ends when it returns false.
pub fn upload(
    url: &Path,
    files: Vec<Upload>,
    environment: &Environment,
    advance: &dyn Fn(u64) -> bool,
) -> Result<(), ObjectError> {
    let address = Address::parse(url)?;
    let shown = address.url();
    let (sent, is_cancelled) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    let count = Arc::clone(&sent);
    let environment = environment.clone();
    let ends = || {
        if !advance(count.swap(0, Ordering::Relaxed)) {
            is_cancelled.store(true, Ordering::Relaxed);
        }
        is_cancelled.load(Ordering::Relaxed)
    };
    runtime::wait(&shown, &ends, async move {
        let store = Store::connect(&address, &environment).await?;
        let (store, address, sent) = (&store, &address, &*sent);
        let each = files.into_iter().map(|upload| async move {
            let key = match address.key.as_str() {
                "" => upload.name,
                folder => format!("{folder}/{}", upload.name),
            };
            send(store, &key, &upload.file, sent).await
        });
        stream::iter(each)
            .buffer_unordered(FILES_AT_ONCE)
            .try_collect::<()>()
            .await
    })?;
    let _ = ends();
    Ok(())
}

async fn send(store: &Store, key: &str, path: &Path, sent: &AtomicU64) -> Result<(), ObjectError> {
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
    store.put(key, &mut next, sent).await
}
