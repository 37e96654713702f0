//! A file that is an object of an object store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use stepscope_objects::Object;

use super::Stamp;

/// An object that a scan listed.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFile(Arc<Object>);

impl ObjectFile {
    pub(crate) fn new(object: Arc<Object>) -> Self {
        Self(object)
    }

    pub(crate) fn object(&self) -> Arc<Object> {
        Arc::clone(&self.0)
    }

    /// Returns the state of the object: the hash of its `ETag` stands for the inode.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            bytes: self.0.bytes(),
            modified_ns: self.0.modified_ns(),
            inode: self.0.state_hash(),
            device: 0,
        }
    }

    /// Returns the file with its content, if it has been fetched.
    pub(crate) fn local(&self) -> Option<PathBuf> {
        self.0.local()
    }

    /// Fetches it unless it has been; the error is one sentence.
    pub(crate) fn fetch(&self) -> Result<PathBuf, String> {
        stepscope_objects::fetch(&self.0).map_err(|error| error.reason)
    }

    /// Returns its first bytes.
    pub(crate) fn head(&self, most: usize) -> io::Result<Vec<u8>> {
        self.0
            .head(most)
            .map_err(|error| io::Error::other(error.reason))
    }
}
