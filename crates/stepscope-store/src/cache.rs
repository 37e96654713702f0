//! The cache image.

use std::sync::Arc;

use stepscope_model::{ArgSource, SharedBytes};

use crate::trace::Trace;

/// Why a cache image cannot be used. The remedy is always to build it again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Another version, or another machine's byte order.
    #[error("cache version {found}, this program writes {supported}; it will be rebuilt")]
    Version {
        /// The image's.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// The image is cut short or changed.
    #[error("cache image is damaged: {what}")]
    Damaged {
        /// Which part.
        what: &'static str,
    },
}

const VERSION: u32 = 0;

impl Trace {
    /// Writes the cache image. Not yet supported: always an error of kind `Unsupported`.
    pub fn save(&self, _out: &mut dyn std::io::Write) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Opens a cache image. Not yet supported: always [`CacheError::Version`].
    pub fn load(
        _image: SharedBytes,
        _sources: Vec<Arc<dyn ArgSource>>,
    ) -> Result<Self, CacheError> {
        Err(CacheError::Version {
            found: 0,
            supported: VERSION,
        })
    }
}
