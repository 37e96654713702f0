//! The files of a recording in progress: blocks, appended or circular, and their readers.

pub(crate) mod append;
pub(crate) mod block;
pub(crate) mod circular;
pub(crate) mod disk_limit;
pub(crate) mod files;
pub(crate) mod index;
pub(crate) mod lease;
pub(crate) mod leased_file;
pub(crate) mod mapped_file;
pub(crate) mod prelude;
pub(crate) mod record_iter;
pub(crate) mod retained_args;
pub(crate) mod segment;
