//! A read-only scanner of SQLite's file format: whole scans of tables, nothing else.
//!
//! The format is defined by <https://www.sqlite.org/fileformat.html>. A database is a sequence of pages. The
//! table `sqlite_schema`, whose root is page 1, lists the other tables with the page of their root and
//! the `CREATE TABLE` statement, which names the columns. A table is a b-tree of pages, its rows are
//! records in the leaves, and what a leaf has no room for is in a chain of overflow pages.
//!
//! Damage is bounded: a page counts once in a scan of a table, so circles end; a page that is no page of
//! a table is counted with its reason, and its neighbours are read.
//!
//! Reading order: [`Database`] (pages), `schema` (tables and columns), `scan` (b-trees), `record` (values).

mod record;
mod scan;
mod schema;
mod table;

pub(super) use record::{Record, Value};
pub(super) use scan::{Losses, Pages, Row, RowReader};
pub(super) use schema::Schema;
pub(super) use table::Table;

/// First bytes of a database.
pub(super) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Length of the header of a database.
const HEADER_BYTES: usize = 100;
/// Smallest number of bytes of a page that SQLite uses for content.
const MIN_USABLE_BYTES: usize = 480;

/// Reason why a file is no readable database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoDatabase {
    /// Another file.
    NoMagic,
    /// The file ends within the header, or the header contradicts itself.
    BadHeader,
    /// Texts are stored as UTF-16.
    Utf16,
}

/// The pages of a database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Database<'a> {
    bytes: &'a [u8],
    page_bytes: usize,
    /// Bytes of a page without those reserved for extensions.
    usable_bytes: usize,
    /// Number of pages that the header states; 0 if it states none.
    stated_pages: u32,
    /// Whether the database was last written in write-ahead mode.
    pub(super) has_write_ahead_log: bool,
}

impl<'a> Database<'a> {
    /// Reads the header of a file, or of its first bytes.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, NoDatabase> {
        if !bytes.starts_with(MAGIC) {
            return Err(NoDatabase::NoMagic);
        }
        let header = bytes.get(..HEADER_BYTES).ok_or(NoDatabase::BadHeader)?;
        let page_bytes = match big_endian_16(header, 16) {
            Some(1) => 65_536,
            Some(size) if size.is_power_of_two() && size >= 512 => usize::from(size),
            _ => return Err(NoDatabase::BadHeader),
        };
        let reserved = header.get(20).copied().unwrap_or(0);
        let usable_bytes = page_bytes - usize::from(reserved).min(page_bytes);
        if usable_bytes < MIN_USABLE_BYTES {
            return Err(NoDatabase::BadHeader);
        }
        // 0 is an empty database, whose encoding is undecided.
        match big_endian_32(header, 56) {
            Some(0 | 1) => {}
            Some(2 | 3) => return Err(NoDatabase::Utf16),
            _ => return Err(NoDatabase::BadHeader),
        }
        // The number of pages counts only if the program that changed the file last knew of it.
        let is_stated = big_endian_32(header, 24) == big_endian_32(header, 92);
        let stated = big_endian_32(header, 28).filter(|_| is_stated);
        Ok(Self {
            bytes,
            page_bytes,
            usable_bytes,
            stated_pages: stated.unwrap_or(0),
            has_write_ahead_log: header.get(19) == Some(&2),
        })
    }

    /// Returns the number of whole pages in the file.
    pub(super) fn page_count(&self) -> u32 {
        u32::try_from(self.bytes.len() / self.page_bytes).unwrap_or(u32::MAX)
    }

    /// Returns the number of pages that the header states and the file lacks.
    pub(super) fn missing_pages(&self) -> u32 {
        self.stated_pages.saturating_sub(self.page_count())
    }

    /// Returns the size of a page.
    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes as u64
    }

    /// Returns the size of the file.
    pub(super) fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the offset of a page, numbered from 1.
    fn page_offset(&self, page: u32) -> Option<usize> {
        (page.checked_sub(1)? as usize).checked_mul(self.page_bytes)
    }

    /// Returns the used bytes of a page; `None` if the file ends before its end.
    fn page(&self, page: u32) -> Option<&'a [u8]> {
        let start = self.page_offset(page)?;
        self.bytes.get(start..start.checked_add(self.page_bytes)?)?;
        self.bytes.get(start..start + self.usable_bytes)
    }
}

fn big_endian_16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn big_endian_32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Reads a varint: up to eight bytes with seven bits each, most significant first, and a ninth with eight bits.
/// Returns it with the offset after it.
#[inline]
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((u64::from(first), at + 1));
    }
    let mut number = u64::from(first & 0x7f);
    for index in 1..8 {
        let byte = *bytes.get(at + index)?;
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((number, at + index + 1));
        }
    }
    let last = *bytes.get(at + 8)?;
    Some((number << 8 | u64::from(last), at + 9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_up_to_nine_bytes() {
        assert_eq!(varint(&[0x7f], 0), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0x00], 0), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9], 0), Some((u64::MAX, 9)));
        assert_eq!(varint(&[9, 0x81, 0x01], 1), Some((129, 3)));
        assert_eq!(varint(&[0xff; 8], 0), None);
        assert_eq!(varint(&[], 0), None);
    }

    #[test]
    fn headers_that_contradict_themselves_are_refused() {
        let header = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut header = vec![0; HEADER_BYTES];
            header[..16].copy_from_slice(MAGIC);
            header[16] = 0x10;
            header[59] = 1;
            change(&mut header);
            Database::new(&header).map(|database| (database.page_bytes, database.usable_bytes))
        };
        assert_eq!(header(&|_| {}), Ok((4_096, 4_096)));
        let large = |header: &mut Vec<u8>| header[16..18].copy_from_slice(&[0, 1]);
        assert_eq!(header(&large), Ok((65_536, 65_536)));
        assert_eq!(header(&|header| header[20] = 8), Ok((4_096, 4_088)));
        assert_eq!(header(&|header| header[17] = 1), Err(NoDatabase::BadHeader));
        assert_eq!(header(&|header| header[59] = 2), Err(NoDatabase::Utf16));
        assert_eq!(
            header(&|header| header.truncate(99)),
            Err(NoDatabase::BadHeader)
        );
        assert_eq!(header(&|header| header[0] = 0), Err(NoDatabase::NoMagic));
        let tiny = |header: &mut Vec<u8>| {
            header[16] = 2;
            header[20] = 40;
        };
        assert_eq!(header(&tiny), Err(NoDatabase::BadHeader));
    }
}
