//! Queries of a finished trace: `event` (single events), `trace` (tracks and their columns),
//! `query` (ranges), `args`, `flow_table` (links), `kinds`, `facts`, `replay` (into another sink) and
//! `validate`.

pub(crate) mod args;
pub(crate) mod derived;
pub(crate) mod event;
pub(crate) mod facts;
pub(crate) mod flow_table;
pub(crate) mod galloping_search;
pub(crate) mod kinds;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod trace;
pub(crate) mod validate;
