//! Serialized types: only this module depends on JSON and the column format.
//!
//! Reading order: [`columns`], `run_list`, `run`, `track`, `event`, `context`, `stats`, `capture`.
//! `docs/reference/http.md` shows each type in an example.

pub(crate) mod capture;
pub mod columns;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod run;
pub(crate) mod run_list;
pub(crate) mod stats;
pub(crate) mod track;
