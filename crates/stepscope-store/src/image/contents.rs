//! Writer and reader of a cache image's table of contents.
//!
//! Small numbers take one byte, texts are length-prefixed, columns are given by their offset. The
//! reader does not trust its input: every length is checked against the remaining bytes, and a
//! column outside the image is an error.

use std::sync::Arc;

use stepscope_model::SharedBytes;

use crate::columns::column::Column;
use crate::columns::mapped::Mapped;
use crate::columns::plain::{Plain, bytes_of};
use crate::columns::sections::{SectionRef, Sections, checksum};
use crate::image::error::CacheError;

/// Columns begin at multiples of this.
pub(crate) const ALIGN: usize = 8;

/// Collects the table of contents and remembers the columns that follow it.
#[derive(Default)]
pub(crate) struct Contents<'t> {
    pub(crate) meta: Vec<u8>,
    pub(crate) columns: Vec<&'t [u8]>,
    /// Offset of the next column, relative to the first one.
    next: usize,
}

impl<'t> Contents<'t> {
    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.meta.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.meta.push(value.to_le_bytes()[0]);
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.number(value as u64);
    }

    /// Writes a signed number; small negative numbers take few bytes as well.
    pub(crate) fn signed(&mut self, value: i64) {
        self.number((value.wrapping_shl(1) ^ (value >> 63)).cast_unsigned());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.meta.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.number(0),
            Some(value) => {
                self.number(1);
                put(self, value);
            }
        }
    }

    pub(crate) fn column<T: Plain>(&mut self, column: &'t Column<T>) {
        self.count(column.len());
        if column.is_empty() {
            return;
        }
        self.count(self.next / ALIGN);
        let bytes = bytes_of::<T>(column);
        self.meta.extend_from_slice(&checksum(bytes).to_ne_bytes());
        self.next += bytes.len().next_multiple_of(ALIGN);
        self.columns.push(bytes);
    }
}

/// Reader of the table of contents that [`Contents`] writes.
pub(crate) struct ContentsReader<'i> {
    pub(crate) image: &'i SharedBytes,
    pub(crate) meta: &'i [u8],
    /// Offset of the first column.
    pub(crate) base: usize,
    /// Verifies the columns; `None` when the image was verified as a whole.
    pub(crate) sections: Option<Arc<Sections>>,
    /// Checksums of the columns read so far.
    pub(crate) checksums: Vec<u64>,
}

const CUT: CacheError = CacheError::Damaged {
    what: "its table of contents ends early",
};

impl ContentsReader<'_> {
    pub(crate) fn number(&mut self) -> Result<u64, CacheError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.meta.split_first().ok_or(CUT)?;
            self.meta = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CUT)
    }

    pub(crate) fn count(&mut self) -> Result<usize, CacheError> {
        usize::try_from(self.number()?).map_err(|_range| CUT)
    }

    /// Reads a number of entries. Each takes at least one byte, so the number is safe to reserve.
    pub(crate) fn entries(&mut self) -> Result<usize, CacheError> {
        let count = self.count()?;
        if count > self.meta.len() {
            return Err(CUT);
        }
        Ok(count)
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, CacheError> {
        T::try_from(self.number()?).map_err(|_range| CUT)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, CacheError> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub(crate) fn text(&mut self) -> Result<String, CacheError> {
        let length = self.entries()?;
        let (text, rest) = self.meta.split_at(length);
        self.meta = rest;
        String::from_utf8(text.to_vec()).map_err(|_encoding| CUT)
    }

    pub(crate) fn optional<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, CacheError>,
    ) -> Result<Option<T>, CacheError> {
        match self.number()? {
            0 => Ok(None),
            _ => take(self).map(Some),
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut take: impl FnMut(&mut Self) -> Result<T, CacheError>,
    ) -> Result<Vec<T>, CacheError> {
        let count = self.entries()?;
        (0..count).map(|_| take(self)).collect()
    }

    pub(crate) fn column<T: Plain>(&mut self) -> Result<Column<T>, CacheError> {
        let count = self.count()?;
        if count == 0 {
            return Ok(Column::default());
        }
        let offset = self.count()?;
        let (checksum, rest) = self.meta.split_first_chunk().ok_or(CUT)?;
        self.meta = rest;
        let section = self.sections.as_ref().map(|sections| SectionRef {
            sections: Arc::clone(sections),
            number: self.checksums.len(),
        });
        self.checksums.push(u64::from_ne_bytes(*checksum));
        offset
            .checked_mul(ALIGN)
            .and_then(|offset| offset.checked_add(self.base))
            .and_then(|offset| Mapped::new(self.image, offset, count, section))
            .map(Column::Mapped)
            .ok_or(CacheError::Damaged {
                what: "a column lies outside it",
            })
    }

    /// Reads a column that must have this length.
    pub(crate) fn column_of<T: Plain>(&mut self, count: usize) -> Result<Column<T>, CacheError> {
        let column = self.column()?;
        if column.len() == count {
            Ok(column)
        } else {
            Err(CacheError::Damaged {
                what: "columns of one table differ in length",
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_contents_are_read_back() {
        let mut contents = Contents::default();
        let numbers = [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN];
        for number in numbers {
            contents.signed(number);
        }
        contents.number(u64::MAX);
        contents.text("Ärger");
        contents.optional(None, Contents::number);
        contents.optional(Some(9), Contents::number);
        let image: SharedBytes = Arc::new(Vec::new());
        let mut reader = ContentsReader {
            image: &image,
            meta: &contents.meta,
            base: 0,
            sections: None,
            checksums: Vec::new(),
        };
        for number in numbers {
            assert_eq!(reader.signed().unwrap(), number);
        }
        assert_eq!(reader.number().unwrap(), u64::MAX);
        assert_eq!(reader.text().unwrap(), "Ärger");
        assert_eq!(reader.optional(ContentsReader::number).unwrap(), None);
        assert_eq!(reader.optional(ContentsReader::number).unwrap(), Some(9));
        assert!(reader.number().is_err());
        reader.meta = &[0xff; 11];
        assert!(reader.number().is_err());
    }
}
