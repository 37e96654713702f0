//! Export of a journal to the file that viewers read.

#[cfg(feature = "chrome")]
pub(crate) mod chrome_json;
pub(crate) mod collector_file;
pub(crate) mod decode;
pub(crate) mod file;
pub(crate) mod limits;
pub(crate) mod merge_external;
pub(crate) mod metadata;
pub(crate) mod xspace;
