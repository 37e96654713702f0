//! Records: the values of a row.

use super::varint;

/// Maximum number of columns of a table that are read; a table of Nsight Systems has about forty.
const MAX_COLUMNS: usize = 64;

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// No value.
    Null,
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Real(f64),
    /// Text, in UTF-8 unless the file is damaged.
    Text(&'a [u8]),
    /// Binary data.
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns a whole number.
    pub(crate) fn int(self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a number, whole or not.
    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(number as f64),
            Self::Real(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a text that is not empty.
    pub(crate) fn text(self) -> Option<std::borrow::Cow<'a, str>> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }
}

/// The values of one row, decoded when they are asked for.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    payload: &'a [u8],
    /// Serial type and offset of each column.
    columns: [(u64, usize); MAX_COLUMNS],
    count: usize,
}

impl<'a> Record<'a> {
    /// Reads the header of a record; `None` if it is damaged. Columns beyond the end of a truncated payload have no
    /// value.
    pub(crate) fn new(payload: &'a [u8]) -> Option<Self> {
        let (header_bytes, mut at) = varint(payload, 0)?;
        let header_end = usize::try_from(header_bytes).ok()?;
        if header_end < at || header_end > payload.len() {
            return None;
        }
        let mut record = Self {
            payload,
            columns: [(0, 0); MAX_COLUMNS],
            count: 0,
        };
        let header = payload.get(..header_end)?;
        let mut offset = header_end;
        while at < header_end && record.count < MAX_COLUMNS {
            let (serial, next) = varint(header, at)?;
            at = next;
            record.columns[record.count] = (serial, offset);
            record.count += 1;
            offset = offset.checked_add(content_bytes(serial)?)?;
        }
        Some(record)
    }

    /// Returns the value of a column, by its position in the table; [`Value::Null`] if the row has no such column.
    #[inline]
    pub(crate) fn get(&self, column: usize) -> Value<'a> {
        if column >= self.count {
            return Value::Null;
        }
        let (serial, at) = self.columns[column];
        match serial {
            8 => return Value::Int(0),
            9 => return Value::Int(1),
            _ => {}
        }
        let Some(bytes) = content_bytes(serial).and_then(|length| {
            let end = at.checked_add(length)?;
            // What a truncated payload still holds of a text is shown.
            let is_text = serial >= 12;
            let end = if is_text {
                end.min(self.payload.len())
            } else {
                end
            };
            self.payload.get(at..end)
        }) else {
            return Value::Null;
        };
        match serial {
            1..=6 => {
                // Two's complement, most significant byte first.
                let first = bytes.first().copied().unwrap_or(0).cast_signed();
                let rest = bytes.get(1..).unwrap_or_default();
                let number = rest.iter().fold(i64::from(first), |number, byte| {
                    number << 8 | i64::from(*byte)
                });
                Value::Int(number)
            }
            7 => Value::Real(
                bytes
                    .try_into()
                    .map_or(f64::NAN, |bytes| f64::from_bits(u64::from_be_bytes(bytes))),
            ),
            12.. if serial % 2 == 0 => Value::Blob(bytes),
            12.. => Value::Text(bytes),
            _ => Value::Null,
        }
    }
}

/// Returns the number of bytes of a value of a serial type.
#[inline]
fn content_bytes(serial: u64) -> Option<usize> {
    const FIXED: [usize; 12] = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0];
    match usize::try_from(serial).ok()? {
        serial if serial < FIXED.len() => Some(FIXED[serial]),
        serial => Some((serial - FIXED.len()) / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_each_serial_type_are_read() {
        let mut payload = vec![12, 0, 1, 2, 3, 5, 6, 7, 8, 9, 15, 14];
        payload.extend([0xff]);
        payload.extend([0x01, 0x00]);
        payload.extend([0xff, 0xff, 0xfe]);
        payload.extend([0, 0, 0, 1, 0, 0]);
        payload.extend(i64::MIN.to_be_bytes());
        payload.extend(1.5_f64.to_be_bytes());
        payload.extend(b"a\0");
        payload.truncate(payload.len() - 1);
        payload.extend([7]);
        let record = Record::new(&payload).unwrap();
        let values: Vec<_> = (0..12).map(|column| record.get(column)).collect();
        assert_eq!(
            values,
            [
                Value::Null,
                Value::Int(-1),
                Value::Int(256),
                Value::Int(-2),
                Value::Int(65_536),
                Value::Int(i64::MIN),
                Value::Real(1.5),
                Value::Int(0),
                Value::Int(1),
                Value::Text(b"a"),
                Value::Blob(&[7]),
                Value::Null,
            ]
        );
    }

    #[test]
    fn damaged_headers_are_refused_and_short_payloads_lack_values() {
        assert!(Record::new(&[]).is_none());
        assert!(Record::new(&[9, 1]).is_none());
        assert!(Record::new(&[0]).is_none());
        let short = Record::new(&[3, 1, 23, 5, b'a', b'b']).unwrap();
        assert_eq!(short.get(0), Value::Int(5));
        assert_eq!(short.get(1), Value::Text(b"ab"));
        let shorter = Record::new(&[3, 6, 6, 0]).unwrap();
        assert_eq!(shorter.get(0), Value::Null);
        // A length that no file has.
        let huge = [10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert!(Record::new(&huge).is_none_or(|record| record.get(0) != Value::Int(0)));
    }
}
