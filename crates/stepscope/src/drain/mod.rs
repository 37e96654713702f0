//! The drain thread: copies records from the threads' rings to the journal.

mod region;
pub(crate) mod requests;
pub(crate) mod thread;
pub(crate) mod triggers;
