//! The reports of a run: their registry, every sentence, number formatting, HTML and JSON.
//!
//! Analyses return types of their own (`stepscope-analysis`, `stepscope-compat`); [`reports`] lists
//! the reports by name and turns each analysis into the one shape of [`report`]; [`hints`] knows the
//! line of code that would record what a run lacks; [`tools`] lists the pages of the viewer; and
//! [`availability`] answers which pages and reports a run can fill.
//!
//! **Invariant:** command line, HTTP interface and Python print what is here, and nothing else.

pub mod availability;
pub mod demangle;
pub mod hints;
pub mod report;
pub mod reports;
mod step_notes;
pub mod tools;
