//! The tables of a pprof profile: texts, functions and locations, which refer to each other by number.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{ProfileRow, SampleFrame};

use super::Losses;
use crate::cprofile::truncated;
use crate::protobuf::wire::{Fault, Fields, Value, varint};

/// `Mapping`.
mod mapping {
    pub(super) const ID: u32 = 1;
    pub(super) const FILE_NAME: u32 = 5;
}
/// `Location`.
mod location {
    pub(super) const ID: u32 = 1;
    pub(super) const MAPPING_ID: u32 = 2;
    pub(super) const ADDRESS: u32 = 3;
    pub(super) const LINE: u32 = 4;
}
/// `Line`.
mod line {
    pub(super) const FUNCTION_ID: u32 = 1;
    pub(super) const NUMBER: u32 = 2;
}
/// `Function`.
mod function {
    pub(super) const ID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const SYSTEM_NAME: u32 = 3;
    pub(super) const FILE_NAME: u32 = 4;
    pub(super) const START_LINE: u32 = 5;
}

/// Maximum number of functions inlined at one address. A file could refer to one long list many times.
const MAX_INLINED: usize = 256;

/// Calls `visit` with the readable fields of a message, and counts a message that ends in unreadable bytes.
pub(super) fn each<'a>(
    message: &'a [u8],
    losses: &mut Losses,
    mut visit: impl FnMut(&mut Losses, u32, Value<'a>),
) {
    let mut fields = Fields::new(message);
    loop {
        match fields.next() {
            Ok(Some(field)) => visit(losses, field.number, field.value),
            Ok(None) => return,
            Err(fault) => {
                losses.damaged += 1;
                if let Fault::Cut { number, .. } = fault {
                    visit(losses, number, Value::Bytes(fields.rest()));
                }
                return;
            }
        }
    }
}

/// Appends a repeated number: packed, or one by one.
pub(super) fn numbers(value: Value<'_>, into: &mut Vec<i64>, losses: &mut Losses) {
    match value {
        Value::Varint(number) => into.push(number as i64),
        Value::Bytes(packed) => {
            let mut at = 0;
            while at < packed.len() {
                let Ok((number, next)) = varint(packed, at) else {
                    losses.damaged += 1;
                    return;
                };
                into.push(number as i64);
                at = next;
            }
        }
        Value::Fixed64(_) | Value::Fixed32(_) => losses.damaged += 1,
    }
}

/// Returns the index of a text; that of the empty text for other wire types.
pub(super) fn text_index(value: Value<'_>) -> u64 {
    value.uint().unwrap_or(0)
}

/// The functions, locations and texts of a file.
pub(super) struct Tables<'a> {
    texts: &'a [&'a [u8]],
    /// Texts that were asked for.
    decoded: Vec<Option<Arc<str>>>,
    rows: Vec<ProfileRow>,
    row_of_function: FxHashMap<u64, u32>,
    locations: Vec<Box<[SampleFrame]>>,
    location_of_id: FxHashMap<u64, u32>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(texts: &'a [&'a [u8]]) -> Self {
        Self {
            texts,
            decoded: vec![None; texts.len()],
            rows: Vec::new(),
            row_of_function: FxHashMap::default(),
            locations: Vec::new(),
            location_of_id: FxHashMap::default(),
        }
    }

    /// Returns the rows of the functions, and the locations.
    pub(super) fn finish(self) -> (Vec<ProfileRow>, Vec<Box<[SampleFrame]>>) {
        (self.rows, self.locations)
    }

    /// Returns the text at an index; an empty one if the file does not have it.
    pub(super) fn text(&mut self, index: u64, losses: &mut Losses) -> Arc<str> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let (Some(bytes), Some(decoded)) = (self.texts.get(index), self.decoded.get_mut(index))
        else {
            // Index 0 is the empty text, also in a file that was cut before its texts.
            losses.unknown += u64::from(index != 0);
            return Arc::from("");
        };
        let decode = || {
            let text = String::from_utf8_lossy(bytes);
            losses.bad_texts += u64::from(matches!(text, std::borrow::Cow::Owned(_)));
            truncated(&text).into()
        };
        Arc::clone(decoded.get_or_insert_with(decode))
    }

    /// Returns the index of the location of this id.
    pub(super) fn location(&self, id: u64) -> Option<u32> {
        self.location_of_id.get(&id).copied()
    }

    /// Adds the functions as rows.
    pub(super) fn add_functions(&mut self, messages: &[&[u8]], losses: &mut Losses) {
        for message in messages {
            let mut id = 0;
            let (mut name, mut system_name, mut file, mut start_line) = (0, 0, 0, 0);
            each(message, losses, |_, number, value| match number {
                function::ID => id = value.uint().unwrap_or(0),
                function::NAME => name = text_index(value),
                function::SYSTEM_NAME => system_name = text_index(value),
                function::FILE_NAME => file = text_index(value),
                function::START_LINE => start_line = line_number(value),
                _ => {}
            });
            let mut text = self.text(name, losses);
            if text.is_empty() {
                text = self.text(system_name, losses);
            }
            if text.is_empty() {
                text = format!("function {id}").into();
            }
            let file = self.text(file, losses);
            let row = self.add_row(text, file, start_line);
            self.row_of_function.entry(id).or_insert(row);
        }
    }

    fn add_row(&mut self, name: Arc<str>, file: Arc<str>, line: u32) -> u32 {
        self.rows.push(ProfileRow {
            name,
            file,
            line,
            ..ProfileRow::default()
        });
        u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds the locations. One without functions becomes a row that is named after its address.
    pub(super) fn add_locations(
        &mut self,
        mappings: &[&[u8]],
        messages: &[&[u8]],
        losses: &mut Losses,
    ) {
        let mut file_of_mapping = FxHashMap::default();
        for message in mappings {
            let (mut id, mut file) = (0, 0);
            each(message, losses, |_, number, value| match number {
                mapping::ID => id = value.uint().unwrap_or(0),
                mapping::FILE_NAME => file = text_index(value),
                _ => {}
            });
            file_of_mapping.entry(id).or_insert(file);
        }
        for message in messages {
            let (mut id, mut mapping, mut address) = (0, 0, 0);
            let mut lines = Vec::new();
            each(message, losses, |_, number, value| match (number, value) {
                (location::ID, value) => id = value.uint().unwrap_or(0),
                (location::MAPPING_ID, value) => mapping = value.uint().unwrap_or(0),
                (location::ADDRESS, value) => address = value.uint().unwrap_or(0),
                (location::LINE, Value::Bytes(line)) => lines.push(line),
                _ => {}
            });
            losses.too_deep += lines.len().saturating_sub(MAX_INLINED) as u64;
            let mut frames = Vec::new();
            for message in lines.into_iter().take(MAX_INLINED) {
                frames.extend(self.frame(message, losses));
            }
            if frames.is_empty() {
                let file = file_of_mapping.get(&mapping).copied().unwrap_or(0);
                let file = self.text(file, losses);
                let row = self.add_row(format!("{address:#x}").into(), file, 0);
                frames.push(SampleFrame { row, line: 0 });
            }
            let at = u32::try_from(self.locations.len()).unwrap_or(u32::MAX);
            self.locations.push(frames.into());
            self.location_of_id.entry(id).or_insert(at);
        }
    }

    fn frame(&self, message: &[u8], losses: &mut Losses) -> Option<SampleFrame> {
        let (mut function, mut number) = (0, 0);
        each(message, losses, |_, field, value| match field {
            line::FUNCTION_ID => function = value.uint().unwrap_or(0),
            line::NUMBER => number = line_number(value),
            _ => {}
        });
        let row = self.row_of_function.get(&function).copied();
        losses.unknown += u64::from(row.is_none());
        Some(SampleFrame {
            row: row?,
            line: number,
        })
    }
}

/// Returns a line number; 0 for one that cannot be.
fn line_number(value: Value<'_>) -> u32 {
    let line = value.int().unwrap_or(0);
    u32::try_from(line).unwrap_or(0)
}
