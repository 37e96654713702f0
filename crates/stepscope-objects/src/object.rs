//! One object of a listing.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::{self, Cache};
use crate::error::ObjectError;
use crate::runtime;
use crate::store::{ObjectState, Store};

/// An object in one state, which its `ETag` names. Nothing of it has been fetched.
#[derive(Debug)]
pub struct Object {
    pub(crate) store: Arc<Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) state: ObjectState,
    /// Name below the URL that was listed; the last part of it if the URL names the object itself.
    pub(crate) relative: String,
    head: Mutex<Vec<u8>>,
}

impl Object {
    pub(crate) fn new(
        store: Arc<Store>,
        cache: Arc<Cache>,
        state: ObjectState,
        relative: String,
    ) -> Self {
        Self {
            store,
            cache,
            state,
            relative,
            head: Mutex::default(),
        }
    }

    /// Returns the URL without secrets.
    pub fn url(&self) -> String {
        self.store.address.url_of(&self.state.key)
    }

    /// Returns the name below the URL that was listed, with slashes.
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.state.bytes
    }

    /// Returns when the object was written: Unix time in nanoseconds, 0 if unknown.
    pub fn modified_ns(&self) -> i64 {
        self.state.modified_ns
    }

    /// Returns a number that changes with the content: a hash of the `ETag`, or of what stands in for it.
    pub fn state_hash(&self) -> u64 {
        cache::hash(self.state_name().as_bytes())
    }

    pub(crate) fn state_name(&self) -> String {
        self.state
            .state
            .clone()
            .unwrap_or_else(runtime::process_state)
    }

    pub(crate) fn file(&self) -> Result<PathBuf, ObjectError> {
        let path = self.cache.path_of(&self.store.address, &self.state.key);
        path.map_err(|error| ObjectError::cache(self.url(), &error))
    }

    /// Returns the file with the object's content, if it has been fetched.
    pub fn local(&self) -> Option<PathBuf> {
        let file = self.file().ok()?;
        Cache::is_current(&file, &self.state_name(), self.bytes()).then_some(file)
    }

    /// Returns the first bytes, at most `most`: from the cache, or by a request for this range alone.
    pub fn head(self: &Arc<Self>, most: usize) -> Result<Vec<u8>, ObjectError> {
        use std::io::Read as _;
        let most = most.min(usize::try_from(self.bytes()).unwrap_or(usize::MAX));
        let url = self.url();
        if let Some(file) = self.local() {
            let mut head = Vec::new();
            let read = std::fs::File::open(file)
                .and_then(|file| file.take(most as u64).read_to_end(&mut head));
            return match read {
                Ok(_) => Ok(head),
                Err(error) => Err(ObjectError::cache(url, &error)),
            };
        }
        let known = |head: &Vec<u8>| (head.len() >= most).then(|| head[..most].to_vec());
        if let Some(head) = known(&self.head.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(head);
        }
        let object = Arc::clone(self);
        let fetched = runtime::wait(&url, &|| false, async move {
            object.store.range(&object.state, 0, most as u64).await
        })?;
        self.head
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&fetched);
        Ok(fetched)
    }
}
