//! Metadata of calls that only our own two sides know. Others pass over it.

/// In a request for a snapshot: how many milliseconds of the past it is to hold.
pub(crate) const LAST_MS: &str = "stepscope-last-ms";
/// In every answer of our servers: their version.
pub(crate) const SERVER_VERSION: &str = "stepscope-version";
