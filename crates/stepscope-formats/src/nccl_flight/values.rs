//! A dump as plain values, from a pickle or from JSON text.

use rustc_hash::FxHashMap;
use stepscope_model::{ArgValue, Diagnostic};

use super::Loss;
use crate::FormatError;
use crate::json::scan::{self, JsonType, skip_space};
use crate::json::value::{key_of, scalar};
use crate::json::walk::{self, Fault};
use crate::pickle::{self, Pickle, PickleFault, Value};

/// Maximum nesting of JSON values; deeper ones are left out.
const MAX_DEPTH: usize = 32;

/// The values of a file.
pub(super) struct Dump<'a> {
    pub(super) values: Pickle<'a>,
    pub(super) root: Value,
    /// What the file says about each process group, by name.
    groups: FxHashMap<String, Value>,
}

impl<'a> Dump<'a> {
    /// Reads a file; keeps what comes before a fault.
    pub(super) fn read(file: &'a [u8]) -> Result<(Self, Loss), FormatError> {
        let text = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        let is_json = text.trim_ascii_start().starts_with(b"{");
        let (values, root, loss, at) = if is_json {
            from_json(text)
        } else {
            from_pickle(file)?
        };
        let mut dump = Self {
            values,
            root,
            groups: FxHashMap::default(),
        };
        let configs = dump.values.pairs(dump.values.get(root, "pg_config"));
        let groups = configs.map(|(name, config)| (dump.shown(name), config));
        dump.groups = groups.collect();
        if dump.entries().is_empty() {
            return Err(FormatError::Malformed {
                reason: "no entries of a flight recorder are in the file".to_owned(),
                offset: at as u64,
            });
        }
        Ok((dump, loss))
    }

    /// Copies what borrows from the file.
    pub(super) fn into_owned(self) -> Dump<'static> {
        Dump {
            values: self.values.into_owned(),
            root: self.root,
            groups: self.groups,
        }
    }

    /// Returns what the file says about a process group.
    pub(super) fn group_config(&self, group: &str) -> Value {
        self.groups.get(group).copied().unwrap_or(Value::None)
    }

    /// Returns the recorded collectives.
    pub(super) fn entries(&self) -> &[Value] {
        self.values.list(self.values.get(self.root, "entries"))
    }

    /// Returns the name and the description of the process group of an entry.
    pub(super) fn group(&self, entry: Value) -> (String, String) {
        let pair = self.values.list(self.values.get(entry, "process_group"));
        let text = |at: usize| {
            let value = pair.get(at).copied().unwrap_or(Value::None);
            self.shown(value)
        };
        let name = match text(0) {
            name if name.is_empty() => self.shown(self.values.get(entry, "pg_id")),
            name => name,
        };
        (name, text(1))
    }

    /// Returns a text or a number as text; empty for other values.
    pub(super) fn shown(&self, value: Value) -> String {
        match value {
            Value::Text(_) => crate::cprofile::truncated(&self.values.text(value)),
            Value::Int(number) => number.to_string(),
            Value::Uint(number) => number.to_string(),
            _ => String::new(),
        }
    }
}

/// Values of a file: all, the outermost one, what the file lacks, and where reading ended.
type Read<'a> = (Pickle<'a>, Value, Loss, usize);

fn from_pickle(file: &[u8]) -> Result<Read<'_>, FormatError> {
    let (values, root, fault, at) = pickle::decode(file);
    let loss = match fault {
        Some(PickleFault::RunsCode(opcode)) => {
            return Err(FormatError::NotATrace {
                reason: format!(
                    "the pickle asks to run code (opcode {opcode} before byte {at}); a dump of the flight \
                     recorder holds plain values only"
                ),
            });
        }
        Some(PickleFault::Truncated) => {
            Some((Diagnostic::Truncated, "the pickle has no end".to_owned()))
        }
        Some(PickleFault::Damaged) => {
            let detail = format!("reading ended before byte {at}");
            Some((Diagnostic::Unreadable, detail))
        }
        None => None,
    };
    Ok((values, root, loss, at))
}

fn from_json(text: &[u8]) -> Read<'_> {
    let mut values = Pickle::default();
    let mut members: Vec<Value> = Vec::new();
    let mut entries: Vec<Value> = Vec::new();
    let walked = walk::object(text, skip_space(text, 0), &mut |key, at| {
        if key == b"entries" {
            return walk::list(text, at, &mut |at| {
                let (value, end) = walk::value(text, at)?;
                entries.push(json_value(text, &value, MAX_DEPTH, &mut values));
                Ok(end)
            });
        }
        let (value, end) = walk::value(text, at)?;
        let key = values.add_text(key_of(key).into_owned().into_bytes());
        let value = json_value(text, &value, MAX_DEPTH, &mut values);
        members.extend([key, value]);
        Ok(end)
    });
    let key = values.add_text(&b"entries"[..]);
    let entries = values.add_list(entries);
    members.extend([key, entries]);
    let root = values.add_dict(members);
    let (loss, at) = match walked {
        Ok(end) => (None, end),
        Err(Fault::Cancelled) => (None, 0),
        Err(Fault::ScanError(stop)) => {
            let at = walk::place(Some(stop), text);
            let loss = Some(walk::loss(stop, text));
            (loss, usize::try_from(at).unwrap_or(usize::MAX))
        }
    };
    (values, root, loss, at)
}

/// Adds a JSON value, which was scanned completely before.
fn json_value<'a>(
    text: &'a [u8],
    value: &scan::Value,
    depth: usize,
    values: &mut Pickle<'a>,
) -> Value {
    let raw = value.span.slice(text);
    match value.json_type {
        JsonType::Missing => Value::None,
        JsonType::Array | JsonType::Object if depth == 0 => Value::None,
        JsonType::Str { .. } => {
            let decoded = walk::text(text, value).unwrap_or_default();
            values.add_text(decoded.into_bytes())
        }
        JsonType::Scalar => {
            let raw = std::str::from_utf8(raw).unwrap_or_default();
            match scalar(raw) {
                ArgValue::Int(number) => Value::Int(number),
                ArgValue::Uint(number) => Value::Uint(number),
                ArgValue::Double(number) => Value::Float(number),
                ArgValue::Bool(is) => Value::Bool(is),
                _ => Value::None,
            }
        }
        JsonType::Array => {
            let mut elements = Vec::new();
            crate::json::members::elements(text, value, |element| {
                elements.push(json_value(text, element, depth - 1, values));
            });
            values.add_list(elements)
        }
        JsonType::Object => {
            let mut pairs = Vec::new();
            let _ = walk::members(text, value.span.start, &mut |key, value| {
                let key = values.add_text(key_of(key).into_owned().into_bytes());
                let value = json_value(text, value, depth - 1, values);
                pairs.extend([key, value]);
            });
            values.add_dict(pairs)
        }
    }
}
