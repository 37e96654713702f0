//! SQL over stepscope's runs: the tables, the functions and the limits.
//!
//! This program is a companion of `stepscope`, which finds and starts it and links none of it. Reading order:
//! [`session`] (open runs, run a query), [`schema`] and [`tables`] (what a query sees), [`events`] (the large tables,
//! scanned in the store's layout), [`locked`] (what a query cannot reach), [`serve`] and [`protocol`] (the pipe),
//! [`shell`] (the prompt), [`dataset`] and [`export`] (the tables as Parquet files).
//!
//! **Invariant:** a query reads the open runs, or the files of one dataset, and nothing else.

#![allow(
    clippy::similar_names,
    reason = "traces have tracks, and runs have rows"
)]

pub mod args_table;
mod arrays;
pub mod cluster;
pub mod dataset;
pub mod events;
pub mod export;
mod filter;
pub mod functions;
mod json_args;
pub mod locked;
pub mod output;
mod parquet_file;
pub mod protocol;
mod report_table;
pub mod rows;
pub mod run_data;
pub mod runtime;
pub mod schema;
pub mod schema_table;
pub mod serve;
pub mod session;
pub mod shell;
pub mod tables;
mod view;
pub mod views;
