//! What travels: the only types of the house that know JSON and column bytes.
//!
//! Reading order: [`columns`], `run`, `event`, `context`, `stats`, `capture`.
//! `docs/reference/http.md` shows each of them in a real exchange.

pub(crate) mod capture;
pub mod columns;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod run;
pub(crate) mod stats;
