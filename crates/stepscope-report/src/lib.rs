//! The reports of a run: their registry, every sentence, number formatting, HTML and JSON.
//!
//! Analyses return types of their own (`stepscope-analysis`, `stepscope-compat`). [`reports`] lists
//! the reports by name and converts each analysis to the common [`report`] type. [`hints`] has the
//! lines of code that record missing data. [`tools`] lists the pages of the viewer.
//! [`availability`] computes which pages and reports have data in a run. [`name_search`] finds names as users search
//! for them. [`peer_profiler`] names the profilers whose own figures some reports add on request.
//! [`step_selection`] has the error text of steps that a run does not have.
//!
//! **Invariant:** the command line, the HTTP interface and Python print these reports and add
//! nothing of their own.

pub mod availability;
pub mod compare;
pub mod demangle;
pub mod hints;
pub mod name_search;
pub mod peak_options;
pub mod peer_profiler;
pub mod report;
pub mod reports;
pub mod slow_steps;
mod step_notes;
pub mod step_selection;
pub mod tools;
