//! The cache image of a trace: `cache` writes and opens it, `contents` encodes what is no column,
//! `sections` verifies large columns at their first use.

pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod profiles;
pub(crate) mod sections;
