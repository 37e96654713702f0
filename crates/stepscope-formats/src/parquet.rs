//! A writer of flat Parquet files: dictionary-encoded texts, plain numbers, no compression.
//!
//! The output uses only features that every Parquet reader supports: one data page for each column
//! of a row group, definition levels for optional columns. The bytes can be sent while they are
//! written; only one row group is in memory. Format: `docs/formats/parquet.md`.

#![allow(
    clippy::cast_possible_truncation,
    reason = "a row group has 131,072 rows, and single bytes are cut out of numbers on purpose"
)]

use std::io::{self, Write};

use rustc_hash::FxHashMap;

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// UTF-8 text, stored once per distinct value in a row group.
    Text,
    /// 32-bit signed integers.
    Int32,
    /// 64-bit signed integers.
    Int64,
    /// 64-bit floats.
    Double,
}

/// One value; `None` only in optional columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A missing value.
    None,
    /// A value of a [`ColumnType::Text`] column.
    Text(&'a str),
    /// A value of a [`ColumnType::Int32`] column.
    Int32(i32),
    /// A value of a [`ColumnType::Int64`] column.
    Int64(i64),
    /// A value of a [`ColumnType::Double`] column.
    Double(f64),
}

/// Definition of a column: its name, its type, and whether values can be missing.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the column.
    pub name: &'static str,
    /// Type of the values.
    pub kind: ColumnType,
    /// Whether [`Value::None`] is allowed.
    pub optional: bool,
}

const MAGIC: &[u8] = b"PAR1";
/// Number of rows in a row group.
const GROUP_ROWS: usize = 128 << 10;

const PLAIN: i64 = 0;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;
const UNCOMPRESSED: i64 = 0;

#[derive(Default)]
struct Column {
    /// Whether each row has a value; only for optional columns.
    present: Vec<bool>,
    /// Encoded numbers.
    plain: Vec<u8>,
    /// Indices in the dictionary.
    indices: Vec<u32>,
    words: FxHashMap<Box<str>, u32>,
    dictionary: Vec<u8>,
}

/// Position of a column of a finished row group.
struct Chunk {
    values: i64,
    bytes: i64,
    dictionary_at: Option<i64>,
    data_at: i64,
}

struct Group {
    rows: i64,
    chunks: Vec<Chunk>,
}

/// Writes rows into a Parquet file.
pub struct ParquetWriter<W: Write> {
    out: W,
    at: i64,
    fields: &'static [Field],
    columns: Vec<Column>,
    rows: usize,
    groups: Vec<Group>,
}

impl<W: Write> ParquetWriter<W> {
    /// Starts the file.
    pub fn new(mut out: W, fields: &'static [Field]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self {
            out,
            at: 4,
            fields,
            columns: fields.iter().map(|_| Column::default()).collect(),
            rows: 0,
            groups: Vec::new(),
        })
    }

    /// Adds a row: a value for each field, of its type. A value of another type counts as missing,
    /// or as zero or the empty text in columns that are not optional.
    pub fn row(&mut self, values: &[Value<'_>]) -> io::Result<()> {
        for (at, (field, column)) in self.fields.iter().zip(&mut self.columns).enumerate() {
            column.push(*field, values.get(at).copied().unwrap_or(Value::None));
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS {
            self.flush_group()?;
        }
        Ok(())
    }

    /// Writes the remaining rows and the end of the file.
    pub fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.flush_group()?;
        }
        let mut footer = Thrift::default();
        footer.int(1, 1, I32);
        footer.list(2, self.fields.len() + 1, STRUCT);
        footer.open();
        footer.text(4, "events");
        footer.int(5, self.fields.len() as i64, I32);
        footer.close();
        for field in self.fields {
            footer.open();
            footer.int(1, field.kind.number(), I32);
            footer.int(3, i64::from(field.optional), I32);
            footer.text(4, field.name);
            if field.kind == ColumnType::Text {
                footer.int(6, 0, I32);
            }
            footer.close();
        }
        footer.int(3, self.groups.iter().map(|group| group.rows).sum(), I64);
        footer.list(4, self.groups.len(), STRUCT);
        for group in &self.groups {
            footer.open();
            footer.list(1, group.chunks.len(), STRUCT);
            for (field, chunk) in self.fields.iter().zip(&group.chunks) {
                footer.chunk(*field, chunk);
            }
            let bytes = group.chunks.iter().map(|chunk| chunk.bytes).sum();
            footer.int(2, bytes, I64);
            footer.int(3, group.rows, I64);
            footer.close();
        }
        footer.text(6, concat!("stepscope version ", env!("CARGO_PKG_VERSION")));
        footer.end();
        let length = u32::try_from(footer.out.len()).map_err(io::Error::other)?;
        self.out.write_all(&footer.out)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(MAGIC)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn flush_group(&mut self) -> io::Result<()> {
        let rows = self.rows;
        let mut chunks = Vec::with_capacity(self.fields.len());
        for at in 0..self.fields.len() {
            let column = std::mem::take(&mut self.columns[at]);
            chunks.push(self.write_chunk(self.fields[at], &column, rows)?);
        }
        self.groups.push(Group {
            rows: rows as i64,
            chunks,
        });
        self.rows = 0;
        Ok(())
    }

    fn write_chunk(&mut self, field: Field, column: &Column, rows: usize) -> io::Result<Chunk> {
        let begin = self.at;
        let mut dictionary_at = None;
        let mut data = Vec::with_capacity(column.plain.len() + rows / 8 + 16);
        if field.optional {
            let mut levels = Vec::with_capacity(rows / 8 + 8);
            let bits = column.present.iter().map(|present| u32::from(*present));
            pack(&mut levels, bits, rows, 1);
            data.extend_from_slice(&(levels.len() as u32).to_le_bytes());
            data.extend_from_slice(&levels);
        }
        let mut encoding = PLAIN;
        if field.kind == ColumnType::Text {
            encoding = RLE_DICTIONARY;
            dictionary_at = Some(self.at);
            let words = column.words.len();
            let mut head = Thrift::page(2, column.dictionary.len());
            head.open_field(7);
            head.int(1, words as i64, I32);
            head.int(2, PLAIN, I32);
            head.close();
            head.end();
            self.put(&head.out)?;
            self.put(&column.dictionary)?;
            let width = u32::BITS - (words.saturating_sub(1) as u32).leading_zeros();
            data.push(width.max(1) as u8);
            let indices = column.indices.iter().copied();
            pack(&mut data, indices, column.indices.len(), width.max(1));
        } else {
            data.extend_from_slice(&column.plain);
        }
        let data_at = self.at;
        let mut head = Thrift::page(0, data.len());
        head.open_field(5);
        head.int(1, rows as i64, I32);
        head.int(2, encoding, I32);
        head.int(3, RLE, I32);
        head.int(4, RLE, I32);
        head.close();
        head.end();
        self.put(&head.out)?;
        self.put(&data)?;
        Ok(Chunk {
            values: rows as i64,
            bytes: self.at - begin,
            dictionary_at,
            data_at,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as i64;
        self.out.write_all(bytes)
    }
}

impl Column {
    fn push(&mut self, field: Field, value: Value<'_>) {
        let fits = match value {
            Value::None => false,
            Value::Text(_) => field.kind == ColumnType::Text,
            Value::Int32(_) => field.kind == ColumnType::Int32,
            Value::Int64(_) => field.kind == ColumnType::Int64,
            Value::Double(_) => field.kind == ColumnType::Double,
        };
        if field.optional {
            self.present.push(fits);
        }
        match value {
            Value::Text(text) if fits => self.word(text),
            Value::Int32(number) if fits => self.plain.extend_from_slice(&number.to_le_bytes()),
            Value::Int64(number) if fits => self.plain.extend_from_slice(&number.to_le_bytes()),
            Value::Double(number) if fits => self.plain.extend_from_slice(&number.to_le_bytes()),
            _ if field.optional => {}
            _ => match field.kind {
                ColumnType::Text => self.word(""),
                ColumnType::Int32 => self.plain.extend_from_slice(&[0; 4]),
                ColumnType::Int64 | ColumnType::Double => self.plain.extend_from_slice(&[0; 8]),
            },
        }
    }

    fn word(&mut self, text: &str) {
        let index = if let Some(index) = self.words.get(text) {
            *index
        } else {
            let index = self.words.len() as u32;
            self.words.insert(text.into(), index);
            self.dictionary
                .extend_from_slice(&(text.len() as u32).to_le_bytes());
            self.dictionary.extend_from_slice(text.as_bytes());
            index
        };
        self.indices.push(index);
    }
}

/// Appends one bit-packed run of the hybrid encoding: values of `width` bits, the lowest bit first,
/// in groups of eight.
fn pack(out: &mut Vec<u8>, values: impl Iterator<Item = u32>, count: usize, width: u32) {
    let groups = count.div_ceil(8) as u64;
    varint(out, groups << 1 | 1);
    let end = out.len() + groups as usize * width as usize;
    let (mut held, mut bits) = (0_u64, 0);
    for value in values {
        held |= u64::from(value) << bits;
        bits += width;
        while bits >= 8 {
            out.push(held as u8);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(held as u8);
    }
    out.resize(end, 0);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl ColumnType {
    const fn number(self) -> i64 {
        match self {
            Self::Int32 => 1,
            Self::Int64 => 2,
            Self::Double => 5,
            Self::Text => 6,
        }
    }
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Writer of Thrift's compact protocol, limited to the features that the headers need.
#[derive(Default)]
struct Thrift {
    out: Vec<u8>,
    /// Id of the last field of each open struct.
    last: i16,
    outer: Vec<i16>,
}

impl Thrift {
    fn page(kind: i64, bytes: usize) -> Self {
        let mut head = Self::default();
        head.int(1, kind, I32);
        head.int(2, bytes as i64, I32);
        head.int(3, bytes as i64, I32);
        head
    }

    fn field(&mut self, id: i16, kind: u8) {
        // Field ids increase by less than 16 within each struct.
        self.out.push((((id - self.last) as u8) << 4) | kind);
        self.last = id;
    }

    fn int(&mut self, id: i16, value: i64, kind: u8) {
        self.field(id, kind);
        self.zigzag(value);
    }

    fn zigzag(&mut self, value: i64) {
        varint(&mut self.out, ((value << 1) ^ (value >> 63)) as u64);
    }

    fn text(&mut self, id: i16, text: &str) {
        self.field(id, BINARY);
        self.bytes(text);
    }

    fn bytes(&mut self, text: &str) {
        varint(&mut self.out, text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
    }

    fn list(&mut self, id: i16, count: usize, kind: u8) {
        self.field(id, LIST);
        if count < 15 {
            self.out.push(((count as u8) << 4) | kind);
        } else {
            self.out.push(0xf0 | kind);
            varint(&mut self.out, count as u64);
        }
    }

    /// Starts a struct inside a list.
    fn open(&mut self) {
        self.outer.push(self.last);
        self.last = 0;
    }

    fn open_field(&mut self, id: i16) {
        self.field(id, STRUCT);
        self.open();
    }

    fn close(&mut self) {
        self.end();
        self.last = self.outer.pop().unwrap_or(0);
    }

    fn end(&mut self) {
        self.out.push(0);
    }

    fn chunk(&mut self, field: Field, chunk: &Chunk) {
        self.open();
        self.int(2, chunk.dictionary_at.unwrap_or(chunk.data_at), I64);
        self.open_field(3);
        self.int(1, field.kind.number(), I32);
        let encodings: &[i64] = if field.kind == ColumnType::Text {
            &[PLAIN, RLE, RLE_DICTIONARY]
        } else {
            &[PLAIN, RLE]
        };
        self.list(2, encodings.len(), I32);
        for encoding in encodings {
            self.zigzag(*encoding);
        }
        self.list(3, 1, BINARY);
        self.bytes(field.name);
        self.int(4, UNCOMPRESSED, I32);
        self.int(5, chunk.values, I64);
        self.int(6, chunk.bytes, I64);
        self.int(7, chunk.bytes, I64);
        self.int(9, chunk.data_at, I64);
        if let Some(at) = chunk.dictionary_at {
            self.int(11, at, I64);
        }
        self.close();
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_packed_lowest_bit_first() {
        let mut out = Vec::new();
        // The example of the format's own description: 0 to 7 with three bits each.
        pack(&mut out, 0..8, 8, 3);
        assert_eq!(out, [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        out.clear();
        pack(&mut out, [1, 0, 1].into_iter(), 3, 1);
        assert_eq!(out, [0b11, 0b101]);
    }

    #[test]
    fn a_file_begins_and_ends_as_it_must() {
        const FIELDS: &[Field] = &[
            Field {
                name: "name",
                kind: ColumnType::Text,
                optional: false,
            },
            Field {
                name: "depth",
                kind: ColumnType::Int32,
                optional: true,
            },
        ];
        let mut writer = ParquetWriter::new(Vec::new(), FIELDS).unwrap();
        for (name, depth) in [
            ("a", Value::Int32(1)),
            ("b", Value::None),
            ("a", Value::Int32(3)),
        ] {
            writer.row(&[Value::Text(name), depth]).unwrap();
        }
        let file = writer.finish().unwrap();
        assert!(file.starts_with(MAGIC) && file.ends_with(MAGIC));
        let length = file.len();
        let footer = u32::from_le_bytes(file[length - 8..length - 4].try_into().unwrap());
        assert!((footer as usize) < length - 12);
        // Each word is kept once, the two depths lie side by side.
        assert_eq!(
            file.windows(5)
                .filter(|part| part == b"\x01\0\0\0a")
                .count(),
            1
        );
        assert_eq!(
            file.windows(8)
                .filter(|part| part == b"\x01\0\0\0\x03\0\0\0")
                .count(),
            1
        );
    }

    #[test]
    fn nothing_at_all_is_a_file_too() {
        const FIELDS: &[Field] = &[Field {
            name: "x",
            kind: ColumnType::Double,
            optional: true,
        }];
        let file = ParquetWriter::new(Vec::new(), FIELDS)
            .unwrap()
            .finish()
            .unwrap();
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
    }
}
