//! What a server says about an object.

/// What a server says about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectState {
    pub(crate) key: String,
    pub(crate) bytes: u64,
    /// Unix time, nanoseconds.
    pub(crate) modified_ns: i64,
    /// Names the content: the `ETag`, else the version or the time; `None` if the server tells nothing.
    pub(crate) state: Option<String>,
    /// The `ETag` for conditions in requests; `None` if it is weak or missing.
    pub(crate) etag: Option<String>,
    /// Whether the server sends ranges.
    pub(crate) has_ranges: bool,
}
