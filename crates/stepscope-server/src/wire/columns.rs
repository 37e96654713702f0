//! Typed columns, little endian: the format of timeline data.
//!
//! ```text
//! "SSC1" | u32 header length | header JSON, space-padded to 8 | columns, each 8-aligned
//! header: {"rows":N, fields..., "strings":[...], "cols":[{"n":"t0","t":"f64","o":0}, ...]}
//! ```
//!
//! `o` is the byte offset from the first column byte. Dictionary columns are `u32` indexes into
//! `strings`, marked `"d":1`; `strings` holds only the strings of this response. Long names of C++
//! functions have a short form in `"short":{"INDEX":TEXT}`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stepscope_model::NameId;
use stepscope_report::report::shorter;

/// First four bytes.
pub const MAGIC: [u8; 4] = *b"SSC1";
/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.stepscope.columns";

/// Builder of columns of equal length.
#[derive(Debug)]
pub struct Columns {
    rows: usize,
    fields: Vec<(&'static str, Box<serde_json::value::RawValue>)>,
    strings: Vec<String>,
    cols: Vec<Value>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Creates a table with that many rows and no columns.
    pub fn new(rows: usize) -> Self {
        Self {
            rows,
            fields: Vec::new(),
            strings: Vec::new(),
            cols: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Adds a field to the header.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: &impl Serialize) -> Self {
        if let Ok(text) = serde_json::value::to_raw_value(value) {
            self.fields.push((name, text));
        }
        self
    }

    /// Sets the texts that dictionary columns refer to.
    #[must_use]
    pub fn strings(mut self, strings: Vec<String>) -> Self {
        self.strings = strings;
        self
    }

    /// Adds a column of floats.
    #[must_use]
    pub fn f64(self, name: &str, values: impl Iterator<Item = f64>) -> Self {
        self.add(name, "f64", false, values.map(f64::to_le_bytes))
    }

    /// Adds a column of unsigned 32-bit integers.
    #[must_use]
    pub fn u32(self, name: &str, values: impl Iterator<Item = u32>) -> Self {
        self.add(name, "u32", false, values.map(u32::to_le_bytes))
    }

    /// Adds a column of indexes into the strings.
    #[must_use]
    pub fn dictionary(self, name: &str, values: impl Iterator<Item = u32>) -> Self {
        self.add(name, "u32", true, values.map(u32::to_le_bytes))
    }

    /// Adds a column of signed 32-bit integers.
    #[must_use]
    pub fn i32(self, name: &str, values: impl Iterator<Item = i32>) -> Self {
        self.add(name, "i32", false, values.map(i32::to_le_bytes))
    }

    /// Adds a column of unsigned 16-bit integers.
    #[must_use]
    pub fn u16(self, name: &str, values: impl Iterator<Item = u16>) -> Self {
        self.add(name, "u16", false, values.map(u16::to_le_bytes))
    }

    /// Adds a column of bytes.
    #[must_use]
    pub fn u8(self, name: &str, values: impl Iterator<Item = u8>) -> Self {
        self.add(name, "u8", false, values.map(u8::to_le_bytes))
    }

    fn add<const WIDTH: usize>(
        mut self,
        name: &str,
        kind: &str,
        dictionary: bool,
        values: impl Iterator<Item = [u8; WIDTH]>,
    ) -> Self {
        let offset = self.bytes.len().next_multiple_of(8);
        let end = offset + self.rows * WIDTH;
        self.bytes.reserve(end - self.bytes.len());
        self.bytes.resize(offset, 0);
        // Writes at most `rows` values: readers rely on the count.
        for value in values.take(self.rows) {
            self.bytes.extend_from_slice(&value);
        }
        debug_assert_eq!(self.bytes.len(), end, "column {name} has another length");
        self.bytes.resize(end, 0);
        self.cols.push(if dictionary {
            json!({"n": name, "t": kind, "o": offset, "d": 1})
        } else {
            json!({"n": name, "t": kind, "o": offset})
        });
        self
    }

    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Tail<'a> {
            strings: &'a [String],
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            short: BTreeMap<usize, String>,
            cols: &'a [Value],
        }
        let mut header = format!("{{\"rows\":{}", self.rows);
        for (name, value) in &self.fields {
            for part in [",\"", name, "\":", value.get()] {
                header.push_str(part);
            }
        }
        let names = self.strings.iter().enumerate();
        let tail = Tail {
            strings: &self.strings,
            short: names
                .filter_map(|(at, name)| Some((at, shorter(name)?)))
                .collect(),
            cols: &self.cols,
        };
        let tail = serde_json::to_string(&tail).unwrap_or_else(|_| String::from("{}"));
        header.push(',');
        header.push_str(tail.trim_start_matches('{'));
        let length = header.len().next_multiple_of(8);
        let mut out = Vec::with_capacity(8 + length + self.bytes.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(header.as_bytes());
        out.resize(8 + length, b' ');
        out.extend_from_slice(&self.bytes);
        out
    }
}

/// Dictionary of the names in one response.
#[derive(Debug, Default)]
pub struct Strings {
    index: FxHashMap<NameId, u32>,
    ids: Vec<NameId>,
}

impl Strings {
    /// Returns the index of this name in the response.
    pub fn index(&mut self, name: NameId) -> u32 {
        *self.index.entry(name).or_insert_with(|| {
            self.ids.push(name);
            u32::try_from(self.ids.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Returns the names by index.
    pub fn ids(&self) -> &[NameId] {
        &self.ids
    }
}

/// One column of a [`Decoded`] answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// `f64`.
    F64(Vec<f64>),
    /// `u32`.
    U32(Vec<u32>),
    /// `u32` with `"d":1`, resolved to text.
    Text(Vec<String>),
    /// `i32`.
    I32(Vec<i32>),
    /// `u16`.
    U16(Vec<u16>),
    /// `u8`.
    U8(Vec<u8>),
}

/// A decoded response.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The header without `cols`.
    pub header: Map<String, Value>,
    /// Columns by name, in order.
    pub columns: Vec<(String, ColumnValues)>,
}

/// Why bytes are not a column response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are wrong.
    #[error("does not begin with SSC1")]
    Magic,
    /// The buffer is shorter than its header states.
    #[error("the buffer is too short")]
    Short,
    /// The header is invalid.
    #[error("the header is not valid: {0}")]
    Header(&'static str),
    /// A column lies outside the buffer or is not aligned.
    #[error("a column lies outside the buffer or is not aligned")]
    Offset,
}

/// Decodes a response; for tests, tools and other clients in Rust.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    if bytes.get(..4) != Some(MAGIC.as_slice()) {
        return Err(DecodeError::Magic);
    }
    let length = bytes.get(4..8).ok_or(DecodeError::Short)?;
    let length = length.try_into().map(u32::from_le_bytes);
    let length = length.ok().ok_or(DecodeError::Short)? as usize;
    if !length.is_multiple_of(8) {
        return Err(DecodeError::Header("length is no multiple of 8"));
    }
    let end = 8_usize.checked_add(length).ok_or(DecodeError::Short)?;
    let header = bytes.get(8..end).ok_or(DecodeError::Short)?;
    let body = &bytes[end..];
    let mut header: Map<String, Value> = serde_json::from_slice(header)
        .ok()
        .ok_or(DecodeError::Header("no JSON object"))?;
    let rows = header.get("rows").and_then(Value::as_u64);
    let rows = rows.ok_or(DecodeError::Header("no rows"))?;
    let rows = usize::try_from(rows).ok().ok_or(DecodeError::Short)?;
    let Some(Value::Array(cols)) = header.remove("cols") else {
        return Err(DecodeError::Header("no cols"));
    };
    let strings: Vec<String> = match header.get("strings") {
        Some(Value::Array(list)) => list
            .iter()
            .map(|text| text.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or(DecodeError::Header("a string is no text"))?,
        _ => return Err(DecodeError::Header("no strings")),
    };
    let mut columns = Vec::new();
    for col in cols {
        let name = col.get("n").and_then(Value::as_str);
        let name = name.ok_or(DecodeError::Header("a column without a name"))?;
        let kind = col.get("t").and_then(Value::as_str);
        let offset = col.get("o").and_then(Value::as_u64);
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.ok_or(DecodeError::Header("a column without an offset"))?;
        let dictionary = col.get("d").and_then(Value::as_u64) == Some(1);
        let column = match (kind, dictionary) {
            (Some("f64"), false) => {
                ColumnValues::F64(column(body, offset, rows, f64::from_le_bytes)?)
            }
            (Some("u32"), false) => {
                ColumnValues::U32(column(body, offset, rows, u32::from_le_bytes)?)
            }
            (Some("u32"), true) => ColumnValues::Text(
                column(body, offset, rows, u32::from_le_bytes)?
                    .into_iter()
                    .map(|index| strings.get(index as usize).cloned())
                    .collect::<Option<_>>()
                    .ok_or(DecodeError::Header("an index outside the strings"))?,
            ),
            (Some("i32"), false) => {
                ColumnValues::I32(column(body, offset, rows, i32::from_le_bytes)?)
            }
            (Some("u16"), false) => {
                ColumnValues::U16(column(body, offset, rows, u16::from_le_bytes)?)
            }
            (Some("u8"), false) => ColumnValues::U8(column(body, offset, rows, u8::from_le_bytes)?),
            _ => return Err(DecodeError::Header("a column of an unknown type")),
        };
        columns.push((name.to_owned(), column));
    }
    Ok(Decoded { header, columns })
}

fn column<const WIDTH: usize, T>(
    body: &[u8],
    offset: usize,
    rows: usize,
    read: impl Fn([u8; WIDTH]) -> T,
) -> Result<Vec<T>, DecodeError> {
    if !offset.is_multiple_of(8) {
        return Err(DecodeError::Offset);
    }
    let end = rows
        .checked_mul(WIDTH)
        .and_then(|length| length.checked_add(offset))
        .ok_or(DecodeError::Offset)?;
    let bytes = body.get(offset..end).ok_or(DecodeError::Offset)?;
    let (values, _) = bytes.as_chunks::<WIDTH>();
    Ok(values.iter().map(|&value| read(value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        Columns::new(3)
            .field("bin_ns", &0.5)
            .field("tracks", &[7, 8])
            .strings(vec!["a\"<b>".to_owned(), "é\u{2028}".to_owned()])
            .u8("busy", [1, 2, 3].into_iter())
            .f64("t0", [0.5, -1.0, 9e15].into_iter())
            .u16("row", [0, 1, 4_096].into_iter())
            .dictionary("name", [1, 0, 1].into_iter())
            .u32("id", [0, 1, u32::MAX].into_iter())
            .i32("parent", [-1, 0, 1].into_iter())
            .encode()
    }

    #[test]
    fn encoded_columns_decode_to_the_same_values() {
        let decoded = decode(&sample()).unwrap();
        assert_eq!(decoded.header["rows"], 3);
        assert_eq!(decoded.header["bin_ns"], 0.5);
        assert_eq!(decoded.header["tracks"], json!([7, 8]));
        assert!(!decoded.header.contains_key("short"), "nothing is long");
        let text = |text: &str| text.to_owned();
        assert_eq!(
            decoded.columns,
            [
                (text("busy"), ColumnValues::U8(vec![1, 2, 3])),
                (text("t0"), ColumnValues::F64(vec![0.5, -1.0, 9e15])),
                (text("row"), ColumnValues::U16(vec![0, 1, 4_096])),
                (
                    text("name"),
                    ColumnValues::Text(vec![text("é\u{2028}"), text("a\"<b>"), text("é\u{2028}")])
                ),
                (text("id"), ColumnValues::U32(vec![0, 1, u32::MAX])),
                (text("parent"), ColumnValues::I32(vec![-1, 0, 1])),
            ]
        );
    }

    #[test]
    fn long_names_come_with_short_ones() {
        let names = ["aten::add", "void a::add<int>(int)"].map(str::to_owned);
        let bytes = Columns::new(0).strings(names.to_vec()).encode();
        let header = decode(&bytes).unwrap().header;
        assert_eq!(header["strings"], json!(names));
        assert_eq!(header["short"], json!({"1": "add<int>"}));
    }

    #[test]
    fn columns_begin_at_multiples_of_eight() {
        let bytes = sample();
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        assert_eq!((8 + length) % 8, 0);
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        for col in header["cols"].as_array().unwrap() {
            assert_eq!(col["o"].as_u64().unwrap() % 8, 0, "{col}");
        }
    }

    #[test]
    fn no_rows_is_an_answer_too() {
        let bytes = Columns::new(0).f64("t0", std::iter::empty()).encode();
        let decoded = decode(&bytes).unwrap();
        assert_eq!(
            decoded.columns,
            [("t0".to_owned(), ColumnValues::F64(vec![]))]
        );
    }

    #[test]
    fn damaged_answers_are_refused() {
        let good = sample();
        for length in 0..good.len() {
            assert!(decode(&good[..length]).is_err(), "cut at {length}");
        }
        let mut magic = good.clone();
        magic[3] = b'2';
        assert_eq!(decode(&magic), Err(DecodeError::Magic));
        let mut long = good.clone();
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode(&long).is_err());
        let with = |header: &str| {
            let mut bytes = MAGIC.to_vec();
            let length = header.len().next_multiple_of(8);
            bytes.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            bytes.extend_from_slice(header.as_bytes());
            bytes.resize(8 + length, b' ');
            bytes.resize(8 + length + 64, 0);
            decode(&bytes).map(|_| ())
        };
        let one = |rows: u64, offset: u64| {
            with(&format!(
                r#"{{"rows":{rows},"strings":[],"cols":[{{"n":"a","t":"f64","o":{offset}}}]}}"#
            ))
        };
        assert_eq!(one(8, 0), Ok(()));
        assert_eq!(one(9, 0), Err(DecodeError::Offset));
        assert_eq!(one(1, 4), Err(DecodeError::Offset));
        assert_eq!(one(1, 64), Err(DecodeError::Offset));
        assert_eq!(one(u64::MAX, 0), Err(DecodeError::Offset));
        assert_eq!(one(1, u64::MAX - 7), Err(DecodeError::Offset));
        assert!(
            with(r#"{"rows":1,"strings":[],"cols":[{"n":"a","t":"u32","o":0,"d":1}]}"#).is_err()
        );
    }
}
