//! Interned texts: each is written once and referenced by number.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use stepscope_model::{ArgValue, NameId};

use crate::perfetto::extension;
use crate::perfetto::schema::{annotation, interned};
use crate::protobuf::wire::{put_bytes, put_double, put_int, put_message, put_uint};

/// Maximum size of an interned text; longer texts are written inline.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Maximum total size of the texts in one table.
const MAX_TABLE_BYTES: usize = 64 << 20;
/// Maximum number of texts in one table; further ones are written inline.
const MAX_TEXTS: usize = 1 << 20;

/// Interning tables of one sequence.
#[derive(Default)]
pub(crate) struct Interner {
    /// New entries, which the next packet must contain.
    pub(crate) fresh: Vec<u8>,
    names: FxHashMap<NameId, u64>,
    categories: FxHashMap<NameId, u64>,
    keys: FxHashMap<Arc<str>, u64>,
    /// Names of values that are JSON text.
    json_keys: FxHashMap<Arc<str>, u64>,
    last_key: u64,
    strings: FxHashMap<Arc<str>, u64>,
    string_bytes: usize,
    /// Hashes of strings seen once: a text that occurs only once is smaller inline.
    seen: FxHashSet<u64>,
}

impl Interner {
    /// Returns the number of an event's name; `None` if it must be written inline.
    pub(crate) fn name(&mut self, name: NameId, text: &str) -> Option<u64> {
        entry(
            &mut self.names,
            name,
            text,
            interned::EVENT_NAMES,
            &mut self.fresh,
        )
    }

    /// Returns the number of a category.
    pub(crate) fn category(&mut self, name: NameId, text: &str) -> Option<u64> {
        entry(
            &mut self.categories,
            name,
            text,
            interned::EVENT_CATEGORIES,
            &mut self.fresh,
        )
    }

    /// Appends one argument as a `DebugAnnotation`.
    ///
    /// JSON texts often repeat (shapes, types), so they are interned like other texts; the interned
    /// key carries the mark that its values are JSON.
    pub(crate) fn annotation(&mut self, out: &mut Vec<u8>, key: &str, value: ArgValue<'_>) {
        let json = matches!(value, ArgValue::Json(_));
        let iid = self.key(key, json);
        match iid {
            Some(iid) => put_uint(out, annotation::NAME_IID, iid),
            None => put_bytes(out, annotation::NAME, key.as_bytes()),
        }
        match (value, iid) {
            (ArgValue::Str(text), _) | (ArgValue::Json(text), Some(_)) => match self.string(text) {
                Some(iid) => put_uint(out, annotation::STRING_IID, iid),
                None => put_bytes(out, annotation::STRING, text.as_bytes()),
            },
            (value, _) => put_value(out, value),
        }
    }

    fn key(&mut self, key: &str, json: bool) -> Option<u64> {
        let table = if json {
            &mut self.json_keys
        } else {
            &mut self.keys
        };
        if let Some(iid) = table.get(key) {
            return Some(*iid);
        }
        if key.len() > MAX_TEXT_BYTES || table.len() >= MAX_TEXTS {
            return None;
        }
        self.last_key += 1;
        let iid = self.last_key;
        table.insert(Arc::from(key), iid);
        put_message(&mut self.fresh, interned::ANNOTATION_NAMES, |entry| {
            put_uint(entry, interned::IID, iid);
            put_bytes(entry, interned::TEXT, key.as_bytes());
            if json {
                put_uint(entry, extension::FIELD, 1);
            }
        });
        Some(iid)
    }

    fn string(&mut self, text: &str) -> Option<u64> {
        if let Some(iid) = self.strings.get(text) {
            return Some(*iid);
        }
        if text.len() < 4 || self.seen.len() >= MAX_TEXTS {
            return None;
        }
        if self.seen.insert(hash(text)) || self.string_bytes > MAX_TABLE_BYTES {
            return None;
        }
        self.string_bytes += text.len();
        entry(
            &mut self.strings,
            Arc::from(text),
            text,
            interned::ANNOTATION_STRINGS,
            &mut self.fresh,
        )
    }
}

fn hash(text: &str) -> u64 {
    FxBuildHasher.hash_one(text)
}

/// Returns the number of a text in a table; adds the text if there is room.
fn entry<K: Eq + Hash>(
    table: &mut FxHashMap<K, u64>,
    key: K,
    text: &str,
    field: u32,
    fresh: &mut Vec<u8>,
) -> Option<u64> {
    if let Some(iid) = table.get(&key) {
        return Some(*iid);
    }
    if text.len() > MAX_TEXT_BYTES || table.len() >= MAX_TEXTS {
        return None;
    }
    let iid = table.len() as u64 + 1;
    table.insert(key, iid);
    put_message(fresh, field, |entry| {
        put_uint(entry, interned::IID, iid);
        put_bytes(entry, interned::TEXT, text.as_bytes());
    });
    Some(iid)
}

/// Appends a `DebugAnnotation` with inline texts.
pub(crate) fn plain_annotation(out: &mut Vec<u8>, key: &str, value: ArgValue<'_>) {
    put_bytes(out, annotation::NAME, key.as_bytes());
    put_value(out, value);
}

fn put_value(out: &mut Vec<u8>, value: ArgValue<'_>) {
    match value {
        ArgValue::Int(number) => put_int(out, annotation::INT, number),
        ArgValue::Uint(number) => put_uint(out, annotation::UINT, number),
        ArgValue::Double(number) => put_double(out, annotation::DOUBLE, number),
        ArgValue::Bool(flag) => put_uint(out, annotation::BOOL, u64::from(flag)),
        ArgValue::Str(text) => put_bytes(out, annotation::STRING, text.as_bytes()),
        ArgValue::Json(text) => put_bytes(out, annotation::LEGACY_JSON, text.as_bytes()),
        ArgValue::Bytes(bytes) => {
            let shown = format!("{} bytes", bytes.len());
            put_bytes(out, annotation::STRING, shown.as_bytes());
            put_bytes(out, extension::FIELD, bytes);
        }
    }
}
