//! Where the time went: pure functions from a trace to plain data.
//!
//! Reading order: [`steps`] and [`ops`], [`run_profile`] and [`findings`] above them, then [`names`] and
//! [`parallel`] (what scans of a range share), [`aggregate`], [`histogram`], [`search`], [`flame`]; [`report`] is the shape in which analyses
//! are shown, [`reports`] the list of them by name.
//!
//! **Invariant:** nothing here does I/O or knows a file format; units stand in field names or
//! types, formatting is the caller's.

pub mod actions;
pub mod aggregate;
pub mod calls;
pub mod collectives;
pub mod demangle;
pub mod device;
pub mod findings;
pub mod flame;
pub mod hints;
pub mod histogram;
pub mod hta;
pub mod idle;
pub mod input;
mod intervals;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod mfu;
pub mod names;
pub mod ops;
pub mod parallel;
mod producer;
pub mod profile_text;
pub mod ranks;
pub mod report;
pub mod reports;
pub mod run_profile;
pub mod search;
pub mod steps;
pub mod torch;
