//! Why a cache image cannot be used.

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
