//! Metadata of a run: files, facts, modules, diagnostics.

use stepscope_model::vocabulary::torch_compile;
use stepscope_model::{ArgValue, Diagnostic, Dur, Epoch, Profile};

/// One file of a trace (one host or one rank).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSpec {
    /// Path as shown to users.
    pub path: String,
    /// Code of the file's format, e.g. `xplane`.
    pub format: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Host name, from the file's name or its content. It becomes a prefix of track keys when a run
    /// has several files.
    pub host: String,
    /// Global rank of the process that wrote the file.
    pub rank: Option<u32>,
}

/// Metadata of one file after building.
#[derive(Clone, Debug, PartialEq)]
pub struct FileFacts {
    /// The description given to the builder.
    pub spec: FileSpec,
    /// The epoch that the reader emitted.
    pub epoch: Epoch,
    /// This file's own `Time::ZERO` on the run's clock: the offset added to all of its times.
    pub shift: Dur,
    /// Facts in the order of their first mention.
    pub facts: Vec<(String, FactValue)>,
    /// Compiled programs.
    pub modules: Vec<(String, Option<u64>)>,
    /// Statistics without a timeline, in the file's order.
    pub profiles: Vec<Profile>,
    /// Slices that the file holds: neither async nor derived.
    pub slices: u64,
    /// Slices of async tracks that are not derived.
    pub async_slices: u64,
    /// Slices that a tool computed.
    pub derived_slices: u64,
    /// Number of [`ArgSource`](stepscope_model::ArgSource)s that its reader registered.
    pub sources: u16,
}

impl FileFacts {
    /// Returns whether this is a log of compilations. It accompanies the recording of a process, and is no rank.
    pub fn is_compile_log(&self) -> bool {
        self.spec.format == torch_compile::FORMAT
    }

    /// Returns the value of a fact.
    pub fn fact(&self, key: &str) -> Option<&FactValue> {
        self.facts
            .iter()
            .find(|fact| fact.0 == key)
            .map(|fact| &fact.1)
    }

    /// Returns the programs and frameworks that the file says it is of: the fact `kind`, and facts `kind.NAME` that are
    /// true.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.facts.iter().filter_map(|(key, value)| match value {
            FactValue::Text(kind) if key == "kind" => Some(kind.as_str()),
            FactValue::Bool(true) => key.strip_prefix("kind."),
            _ => None,
        })
    }

    /// Returns a fact about a device, such as its `name`. Where the file describes no device of this ordinal, that of
    /// all devices if they are equal: kernels of ROCm have the number of the agent, which counts processors too.
    pub fn device_fact(&self, ordinal: u32, key: &str) -> Option<&FactValue> {
        if let Some(found) = self.fact(&format!("device.{ordinal}.{key}")) {
            return Some(found);
        }
        let mut all = self.facts.iter().filter_map(|(known, value)| {
            let (number, name) = known.strip_prefix("device.")?.split_once('.')?;
            (name == key && number.parse::<u32>().is_ok()).then_some(value)
        });
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
}

/// Value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum FactValue {
    /// A whole number.
    Int(i64),
    /// A whole number above `i64::MAX`.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// Text; JSON text and bytes are stored as text too.
    Text(String),
}

impl From<ArgValue<'_>> for FactValue {
    fn from(value: ArgValue<'_>) -> Self {
        match value {
            ArgValue::Int(value) => Self::Int(value),
            ArgValue::Uint(value) => Self::Uint(value),
            ArgValue::Double(value) => Self::Double(value),
            ArgValue::Bool(value) => Self::Bool(value),
            ArgValue::Str(text) | ArgValue::Json(text) => Self::Text(text.to_owned()),
            ArgValue::Bytes(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
        }
    }
}

impl<'a> From<&'a FactValue> for ArgValue<'a> {
    fn from(value: &'a FactValue) -> Self {
        match value {
            FactValue::Int(value) => Self::Int(*value),
            FactValue::Uint(value) => Self::Uint(*value),
            FactValue::Double(value) => Self::Double(*value),
            FactValue::Bool(value) => Self::Bool(*value),
            FactValue::Text(text) => Self::Str(text),
        }
    }
}

impl std::fmt::Display for FactValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Uint(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A diagnostic and its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticCount {
    /// The diagnostic.
    pub what: Diagnostic,
    /// Number of occurrences.
    pub count: u64,
    /// The first few distinct details.
    pub details: Vec<String>,
    /// Index into [`Trace::files`](crate::Trace::files); `None` for the run as a whole.
    pub file: Option<usize>,
}
