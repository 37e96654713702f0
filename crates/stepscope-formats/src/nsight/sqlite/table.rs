//! A table of a database.

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Page of the root of its b-tree.
    pub(crate) root: u32,
    /// Names of the columns, in the order of the records.
    pub(crate) columns: Vec<String>,
    /// Position of the column whose value is the row's number and which records do not hold.
    pub(crate) row_id: Option<usize>,
    /// Whether it is a table `WITHOUT ROWID`, which is stored as an index.
    pub(crate) is_index: bool,
}

impl Table {
    /// Returns the position of a column, without regard to case.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        let mut columns = self.columns.iter();
        columns.position(|column| column.eq_ignore_ascii_case(name))
    }
}
