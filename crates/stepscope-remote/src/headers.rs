//! gRPC metadata keys of our own client and server; other programs ignore them.

/// Duration of a requested snapshot, milliseconds.
pub(crate) const LAST_MS: &str = "stepscope-last-ms";
/// Version of our server, in each of its responses.
pub(crate) const SERVER_VERSION: &str = "stepscope-version";
/// Time of our server when it sends a response: Unix time, nanoseconds.
pub(crate) const SERVER_TIME: &str = "stepscope-time-ns";
