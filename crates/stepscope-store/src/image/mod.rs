//! The cache image of a trace: `cache` writes and opens it, `contents` encodes numbers, texts and
//! offsets of columns, `trace_contents` with `profiles` writes and reads a trace in that encoding,
//! `rebuild` replaces damaged columns, `error` describes why an image cannot be used.

pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod error;
pub(crate) mod profiles;
pub(crate) mod rebuild;
pub(crate) mod trace_contents;
