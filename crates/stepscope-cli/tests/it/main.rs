//! The command, from outside: its contract, and every trace of the traces folder against the
//! figures that others computed.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test that cannot go on should say where; the names are ours"
)]

mod capture;
mod cli;
mod compare;
mod completions;
mod documents;
mod fleet;
mod formats;
mod objects;
mod overlay;
mod query;
mod report;
mod run;
mod skill;
mod traces;
