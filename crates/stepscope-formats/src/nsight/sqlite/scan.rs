//! Scans of tables: the leaves of a b-tree, and the rows of a leaf.

use super::table::Table;
use super::{Database, HEADER_BYTES, big_endian_16, big_endian_32, varint};

/// Maximum depth of a b-tree; SQLite's own limit is 20.
const MAX_DEPTH: usize = 24;
/// Maximum number of bytes of a row that are read; the rest of a longer one is left out.
const MAX_ROW_BYTES: usize = 1 << 20;
/// Maximum number of bytes of overflow pages that a reader copies, per byte of the file: several rows of a damaged
/// file can refer to one chain of pages.
const OVERFLOW_PER_BYTE: u64 = 2;

/// Type of an interior page of a table.
const INTERIOR: u8 = 5;
/// Type of a leaf of a table.
const LEAF: u8 = 13;

/// What a scan could not read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses {
    /// Pages that are no pages of a table.
    pub(crate) pages: u64,
    /// The first of them: table, page and reason.
    pub(crate) first_page: Option<String>,
    /// Rows whose record is damaged.
    pub(crate) rows: u64,
    /// The first of them: table and page.
    pub(crate) first_row: Option<String>,
    /// Rows that were cut at [`MAX_ROW_BYTES`], or at the limit on overflow pages.
    pub(crate) cut_rows: u64,
}

impl Losses {
    fn page(&mut self, table: &str, page: u32, reason: &str) {
        self.pages += 1;
        self.first_page
            .get_or_insert_with(|| format!("table {table}, page {page}: {reason}"));
    }

    /// Counts a damaged row.
    pub(crate) fn row(&mut self, table: &str, page: u32) {
        self.rows += 1;
        self.first_row
            .get_or_insert_with(|| format!("table {table}, page {page}"));
    }

    /// Adds the losses of a later scan.
    pub(crate) fn add(&mut self, later: Self) {
        self.pages += later.pages;
        self.rows += later.rows;
        self.cut_rows += later.cut_rows;
        self.first_page = self.first_page.take().or(later.first_page);
        self.first_row = self.first_row.take().or(later.first_row);
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// Number of the row.
    pub(crate) id: i64,
    /// Offset of its cell in the file.
    pub(crate) offset: usize,
    /// Its record.
    pub(crate) payload: &'a [u8],
}

/// A set of pages of a database.
pub(crate) struct Pages(Vec<u64>);

impl Pages {
    pub(crate) fn new(database: &Database<'_>) -> Self {
        Self(vec![0; database.page_count() as usize / 64 + 1])
    }

    /// Adds a page; returns whether it is new. A page beyond the count is never new.
    fn insert(&mut self, page: u32) -> bool {
        let Some(word) = self.0.get_mut(page as usize / 64) else {
            return false;
        };
        let bit = 1 << (page % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// A page of a b-tree.
#[derive(Clone, Copy)]
struct TreePage<'a> {
    bytes: &'a [u8],
    is_leaf: bool,
    /// Offset of the first cell pointer.
    pointers: usize,
    cells: usize,
    /// The last child of an interior page.
    last_child: u32,
}

impl<'a> TreePage<'a> {
    fn read(database: &Database<'a>, page: u32) -> Result<Self, &'static str> {
        let Some(bytes) = database.page(page) else {
            return Err("it is after the end of the file");
        };
        let start = if page == 1 { HEADER_BYTES } else { 0 };
        let is_leaf = match bytes.get(start) {
            Some(&LEAF) => true,
            Some(&INTERIOR) => false,
            _ => return Err("it is no page of a table"),
        };
        let header_bytes = if is_leaf { 8 } else { 12 };
        let cells = usize::from(big_endian_16(bytes, start + 3).unwrap_or(0));
        // A cell takes at least four bytes, and a pointer of two.
        if cells > (database.page_bytes - 8) / 6 {
            return Err("it has more rows than fit");
        }
        Ok(Self {
            bytes,
            is_leaf,
            pointers: start + header_bytes,
            cells,
            last_child: big_endian_32(bytes, start + 8).unwrap_or(0),
        })
    }

    /// Returns the offset of a cell in the page.
    fn cell(&self, index: usize) -> Option<usize> {
        big_endian_16(self.bytes, self.pointers + 2 * index).map(usize::from)
    }

    /// Returns a child of an interior page.
    fn child(&self, index: usize) -> Option<u32> {
        if index == self.cells {
            return Some(self.last_child);
        }
        big_endian_32(self.bytes, self.cell(index)?)
    }
}

/// Reader of the rows of a database; keeps the memory of a row that continues on other pages.
pub(crate) struct RowReader<'d, 'a> {
    database: &'d Database<'a>,
    assembled: Vec<u8>,
    overflow_bytes_left: u64,
}

impl<'d, 'a> RowReader<'d, 'a> {
    pub(crate) fn new(database: &'d Database<'a>) -> Self {
        let size = database.byte_count() as u64;
        Self {
            database,
            assembled: Vec::new(),
            overflow_bytes_left: size.saturating_mul(OVERFLOW_PER_BYTE),
        }
    }

    /// Returns the leaves of a table, in order of the rows.
    pub(crate) fn leaves(&self, table: &Table, losses: &mut Losses) -> Vec<u32> {
        self.new_leaves(table, &mut Pages::new(self.database), losses)
    }

    /// Returns the leaves of a table that are not in a set of pages, and adds its pages to the set.
    pub(crate) fn new_leaves(
        &self,
        table: &Table,
        seen: &mut Pages,
        losses: &mut Losses,
    ) -> Vec<u32> {
        let mut found = Vec::new();
        // Interior pages from the root down, each with the number of its next child.
        let mut path: Vec<(TreePage<'_>, usize)> = Vec::new();
        let mut next = Some(table.root);
        loop {
            if let Some(page) = next.take() {
                match TreePage::read(self.database, page) {
                    Err(reason) => losses.page(&table.name, page, reason),
                    Ok(_) if !seen.insert(page) => {
                        losses.page(&table.name, page, "it has been read already");
                    }
                    Ok(tree) if tree.is_leaf => found.push(page),
                    Ok(_) if path.len() >= MAX_DEPTH => {
                        losses.page(&table.name, page, "the table is deeper than 24 pages");
                    }
                    Ok(tree) => path.push((tree, 0)),
                }
            }
            let Some((tree, index)) = path.last_mut() else {
                break;
            };
            if *index > tree.cells {
                path.pop();
                continue;
            }
            next = Some(tree.child(*index).unwrap_or(0));
            *index += 1;
        }
        found
    }

    /// Returns the first leaf of a table; `None` if a page on the way is damaged.
    pub(crate) fn first_leaf(&self, table: &Table) -> Option<u32> {
        let mut page = table.root;
        for _ in 0..=MAX_DEPTH {
            let tree = TreePage::read(self.database, page).ok()?;
            if tree.is_leaf {
                return Some(page);
            }
            page = tree.child(0)?;
        }
        None
    }

    /// Calls `visit` for each row of a leaf.
    pub(crate) fn rows(
        &mut self,
        table: &Table,
        page: u32,
        losses: &mut Losses,
        mut visit: impl FnMut(Row<'_>),
    ) {
        let tree = match TreePage::read(self.database, page) {
            Ok(tree) if tree.is_leaf => tree,
            Ok(_) => return losses.page(&table.name, page, "it is no leaf"),
            Err(reason) => return losses.page(&table.name, page, reason),
        };
        let start = self.database.page_offset(page).unwrap_or(0);
        for index in 0..tree.cells {
            let cell = tree.cell(index);
            let Some((id, at)) = cell.and_then(|cell| Some((self.cell(tree.bytes, cell)?, cell)))
            else {
                losses.row(&table.name, page);
                continue;
            };
            let (id, payload) = id;
            let payload = match payload {
                Payload::Whole { start, end } => &tree.bytes[start..end],
                Payload::Assembled { is_cut } => {
                    losses.cut_rows += u64::from(is_cut);
                    &self.assembled
                }
            };
            visit(Row {
                id,
                offset: start + at,
                payload,
            });
        }
    }

    /// Reads the row whose cell is at this offset of the file.
    pub(crate) fn row_at(&mut self, offset: usize) -> Option<Row<'_>> {
        let page = u32::try_from(offset / self.database.page_bytes).ok()?;
        let page = page.checked_add(1)?;
        let tree = TreePage::read(self.database, page).ok()?;
        if !tree.is_leaf {
            return None;
        }
        let (id, payload) = self.cell(tree.bytes, offset % self.database.page_bytes)?;
        let payload = match payload {
            Payload::Whole { start, end } => &tree.bytes[start..end],
            Payload::Assembled { .. } => &self.assembled,
        };
        Some(Row {
            id,
            offset,
            payload,
        })
    }

    /// Reads the number and the record of a cell.
    fn cell(&mut self, page: &[u8], at: usize) -> Option<(i64, Payload)> {
        let (length, next) = varint(page, at)?;
        let (id, start) = varint(page, next)?;
        let id = id.cast_signed();
        let usable = self.database.usable_bytes;
        let length = usize::try_from(length).ok()?;
        if length <= usable - 35 {
            let end = start.checked_add(length)?;
            page.get(start..end)?;
            return Some((id, Payload::Whole { start, end }));
        }
        // The share of a long record that stays in the cell, as the format defines it.
        let least = (usable - 12) * 32 / 255 - 23;
        let most = least + (length - least) % (usable - 4);
        let local = if most <= usable - 35 { most } else { least };
        let local_end = start.checked_add(local)?;
        let local = page.get(start..local_end)?;
        let next = big_endian_32(page, local_end)?;
        self.assembled.clear();
        self.assembled.extend_from_slice(local);
        let is_cut = !self.follow(next, length);
        Some((id, Payload::Assembled { is_cut }))
    }

    /// Appends the overflow pages of a record of this length; returns whether all of it was read.
    fn follow(&mut self, mut next: u32, length: usize) -> bool {
        while self.assembled.len() < length {
            let Some(page) = self.database.page(next) else {
                return false;
            };
            let content = page.get(4..).unwrap_or_default();
            let content = &content[..content.len().min(length - self.assembled.len())];
            if self.assembled.len() + content.len() > MAX_ROW_BYTES
                || content.len() as u64 > self.overflow_bytes_left
            {
                return false;
            }
            self.overflow_bytes_left -= content.len() as u64;
            self.assembled.extend_from_slice(content);
            next = big_endian_32(page, 0).unwrap_or(0);
        }
        true
    }
}

/// Where a record is.
enum Payload {
    /// In the page.
    Whole { start: usize, end: usize },
    /// In the memory of the reader.
    Assembled { is_cut: bool },
}
