//! Errors of opening a cache image.

/// The reason why a cache image cannot be used. The solution is always to rebuild it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Another version, or another machine's byte order.
    #[error("cache version {found}, this program writes {supported}; it will be rebuilt")]
    Version {
        /// The version of the image.
        found: u32,
        /// The version that this program supports.
        supported: u32,
    },
    /// The image is truncated or modified.
    #[error("cache image is damaged: {what}")]
    Damaged {
        /// The damaged part.
        what: &'static str,
    },
}
