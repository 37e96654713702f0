//! Tests of the SQL engine on traces, and of its program as another process.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where"
)]

mod cluster;
mod dataset;
mod divided;
mod every_run;
mod filters;
mod functions;
mod hostile;
mod questions;
mod shell;
mod support;
mod tables;
mod views;
mod windows;
