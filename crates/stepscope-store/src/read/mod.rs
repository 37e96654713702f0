//! What a finished trace answers: `trace` (tracks and events), `query` (ranges), `kinds`, `facts`,
//! `replay` (into another sink) and `validate`.

pub(crate) mod facts;
pub(crate) mod galloping_search;
pub(crate) mod kinds;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod trace;
pub(crate) mod validate;
