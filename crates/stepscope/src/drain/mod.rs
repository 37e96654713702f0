//! The drain thread: carries records from the threads' rings into the journal.

pub(crate) mod requests;
pub(crate) mod thread;
pub(crate) mod triggers;
pub(crate) mod wakeup;
