//! Compact encoding of events between emission and writing.
//!
//! A track's plane, and thus the ids of names and the time zero of its line, is known only after
//! everything has been emitted. Until then an event is a few bytes, all numbers varints:
//!
//! ```text
//! row  = kind  name  category  start(zigzag)  duration  step?  flags  flows  args
//! flow = direction  category  id          arg = key  form  value
//! ```

use stepscope_model::{ArgValue, FlowDirection, StepNumber};

use crate::protobuf::wire::{put_varint, varint};
use crate::xspace::well_known_stats::EventKind;

/// Type of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Event(EventKind),
    Sample,
}

/// Number of an interned text of the sink.
pub(crate) type TextNumber = u32;

/// One flow end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowFlow {
    pub(crate) category: TextNumber,
    pub(crate) id: u64,
    pub(crate) direction: FlowDirection,
}

/// Value of an argument: as emitted, or an interned text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RowValue<'a> {
    Inline(ArgValue<'a>),
    Text(TextNumber),
}

/// One event, decoded.
#[derive(Debug, Default)]
pub(crate) struct Row<'a> {
    pub(crate) kind: Option<RowKind>,
    pub(crate) name: TextNumber,
    pub(crate) category: TextNumber,
    pub(crate) start_ps: i64,
    pub(crate) dur_ps: i64,
    pub(crate) step: Option<StepNumber>,
    /// Bits of `SliceFlags`.
    pub(crate) flags: u8,
    pub(crate) flows: Vec<RowFlow>,
    /// Key and value.
    pub(crate) args: Vec<(TextNumber, RowValue<'a>)>,
    /// Value of a sample.
    pub(crate) value: f64,
}

/// The rows of one track.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    /// Whether there are rows other than samples.
    pub(crate) has_events: bool,
    /// Whether there are samples.
    pub(crate) has_samples: bool,
    /// Earliest start and latest end of all rows.
    pub(crate) span_ps: Option<(i64, i64)>,
}

const KINDS: [RowKind; 5] = [
    RowKind::Event(EventKind::Slice),
    RowKind::Event(EventKind::Instant),
    RowKind::Event(EventKind::FlowEnclosing),
    RowKind::Event(EventKind::FlowNext),
    RowKind::Sample,
];

const DIRECTIONS: [FlowDirection; 3] = [
    FlowDirection::Out,
    FlowDirection::Through,
    FlowDirection::In,
];

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl Rows {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds the rows of a fork.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.has_events |= other.has_events;
        self.has_samples |= other.has_samples;
        if let Some((first, last)) = other.span_ps {
            self.see(first, last);
        }
    }

    fn see(&mut self, first_ps: i64, last_ps: i64) {
        self.span_ps = Some(match self.span_ps {
            Some((first, last)) => (first.min(first_ps), last.max(last_ps)),
            None => (first_ps, last_ps),
        });
    }

    /// Adds a row; its arguments have been encoded by [`put_arg`].
    pub(crate) fn push(&mut self, row: &Row<'_>, args: &[u8]) {
        let Some(kind) = row.kind else { return };
        self.see(row.start_ps, row.start_ps.saturating_add(row.dur_ps));
        let index = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
        let out = &mut self.bytes;
        put_varint(out, index as u64);
        put_varint(out, u64::from(row.name));
        put_varint(out, u64::from(row.category));
        put_varint(out, zigzag(row.start_ps));
        if kind == RowKind::Sample {
            out.extend_from_slice(&row.value.to_le_bytes());
            self.has_samples = true;
            return;
        }
        self.has_events = true;
        put_varint(out, row.dur_ps as u64);
        put_varint(out, u64::from(row.step.is_some()));
        if let Some(step) = row.step {
            put_varint(out, zigzag(step));
        }
        put_varint(out, u64::from(row.flags));
        put_varint(out, row.flows.len() as u64);
        for flow in &row.flows {
            put_varint(out, flow.direction as u64);
            put_varint(out, u64::from(flow.category));
            put_varint(out, flow.id);
        }
        put_varint(out, args.len() as u64);
        out.extend_from_slice(args);
    }

    /// Returns all rows, in the order of emission.
    pub(crate) fn walk(&self) -> RowWalk<'_> {
        RowWalk {
            bytes: &self.bytes,
            at: 0,
        }
    }
}

/// Appends one argument.
pub(crate) fn put_arg(out: &mut Vec<u8>, key: TextNumber, value: RowValue<'_>) {
    let mut head = |form: u64, number: u64| {
        put_varint(out, u64::from(key));
        put_varint(out, form);
        put_varint(out, number);
    };
    match value {
        RowValue::Text(text) => head(0, u64::from(text)),
        RowValue::Inline(ArgValue::Int(value)) => head(1, zigzag(value)),
        RowValue::Inline(ArgValue::Uint(value)) => head(2, value),
        RowValue::Inline(ArgValue::Double(value)) => head(3, value.to_bits()),
        RowValue::Inline(ArgValue::Bool(value)) => head(4, u64::from(value)),
        RowValue::Inline(ArgValue::Str(text)) => {
            head(5, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        RowValue::Inline(ArgValue::Json(text)) => {
            head(6, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        RowValue::Inline(ArgValue::Bytes(bytes)) => {
            head(7, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Iterator over rows. See [`Rows::walk`].
#[derive(Clone, Debug, Default)]
pub(crate) struct RowWalk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RowWalk<'a> {
    fn number(&mut self) -> Option<u64> {
        let (value, next) = varint(self.bytes, self.at).ok()?;
        self.at = next;
        Some(value)
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn text(&mut self, length: u64) -> Option<&'a str> {
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn arg(&mut self) -> Option<(TextNumber, RowValue<'a>)> {
        let key = self.small()?;
        let form = self.number()?;
        let number = self.number()?;
        let inline = match form {
            0 => return Some((key, RowValue::Text(u32::try_from(number).ok()?))),
            1 => ArgValue::Int(unzigzag(number)),
            2 => ArgValue::Uint(number),
            3 => ArgValue::Double(f64::from_bits(number)),
            4 => ArgValue::Bool(number != 0),
            5 => ArgValue::Str(self.text(number)?),
            6 => ArgValue::Json(self.text(number)?),
            _ => ArgValue::Bytes(self.take(number)?),
        };
        Some((key, RowValue::Inline(inline)))
    }

    /// Decodes the next row into `row`; returns `None` at the end.
    pub(crate) fn read(&mut self, row: &mut Row<'a>) -> Option<()> {
        let kind = usize::try_from(self.number()?).ok()?;
        row.kind = KINDS.get(kind).copied();
        row.name = self.small()?;
        row.category = self.small()?;
        row.start_ps = unzigzag(self.number()?);
        row.flows.clear();
        row.args.clear();
        row.step = None;
        if row.kind == Some(RowKind::Sample) {
            let bits = self.take(8)?.first_chunk::<8>()?;
            row.value = f64::from_le_bytes(*bits);
            return Some(());
        }
        row.dur_ps = self.number()? as i64;
        if self.number()? != 0 {
            row.step = Some(unzigzag(self.number()?));
        }
        row.flags = u8::try_from(self.number()?).ok()?;
        for _ in 0..self.number()? {
            let direction = usize::try_from(self.number()?).ok()?;
            row.flows.push(RowFlow {
                direction: *DIRECTIONS.get(direction)?,
                category: self.small()?,
                id: self.number()?,
            });
        }
        let length = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(length)?;
        while self.at < end {
            let arg = self.arg()?;
            row.args.push(arg);
        }
        Some(())
    }
}
