//! State of the reading of an export, which its tables share.

use rustc_hash::FxHashSet;
use stepscope_model::{ReadContext, SourceId, Time};

use super::export::Export;
use super::part::{Correlations, Counts};
use super::rows::{RowKey, RowNames};
use super::sqlite::{Losses, Pages};
use super::strings::Strings;
use super::target::Target;

/// A reading in progress.
pub(super) struct Reading<'c, 'a> {
    pub(super) export: &'c Export<'a>,
    pub(super) context: &'c ReadContext,
    pub(super) source: SourceId,
    pub(super) strings: &'c Strings,
    pub(super) target: &'c Target,
    pub(super) origin_ns: i64,
    pub(super) has_calls: bool,
    pub(super) work: Correlations,
    pub(super) rows: FxHashSet<RowKey>,
    pub(super) counts: Counts,
    /// Pages of the tables of events that were read: a page of a damaged file counts in one table only.
    pub(super) pages: Pages,
    pub(super) losses: Losses,
    pub(super) last: Time,
}

impl Reading<'_, '_> {
    /// Returns what names rows.
    pub(super) fn row_names(&self) -> RowNames<'_> {
        RowNames {
            target: self.target,
            strings: self.strings,
            known: &self.rows,
            max_rows: self.context.limits.max_tracks as usize,
        }
    }
}
