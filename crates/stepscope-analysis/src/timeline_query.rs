//! Queries of the timeline for any range: sums by name, histograms, search, flame graphs.

pub mod aggregate;
pub mod flame;
pub mod histogram;
pub mod samples_tree;
pub mod search;
pub mod statistics_tree;
