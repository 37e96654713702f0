//! Arguments of an event, decoded on request.
//!
//! A token is the byte offset of the event's opening brace. The members of `args` come first, then
//! the event's non-standard fields. A slice made of a begin and an end has the token of its begin;
//! the end's arguments follow the begin's arguments. The source stores the pairing only for ends
//! that have arguments (16 bytes each). A source created without reading the file computes the
//! pairs at the first request for a begin.

mod select;

use std::sync::{Arc, OnceLock};

use stepscope_model::{ArgError, ArgKeys, ArgSource, ArgValue, SharedBytes};

use crate::chrome_json::dialect::stepscope::{self, undisguised};
use crate::chrome_json::entry::{entry, is_standard};
use crate::json::members::members;
use crate::json::scan::JsonType;
use crate::json::value::{key_of, visit_members, with_value};

/// Argument source of one file. See the module documentation.
pub(crate) struct Source {
    bytes: SharedBytes,
    /// Begin and end offsets of pairs whose end has arguments, sorted by begin.
    ends: OnceLock<Vec<(u64, u64)>>,
    /// Reads the file to find these pairs.
    find_ends: FindEnds,
}

/// Function that finds the begin and end offsets of pairs whose end has arguments.
pub(crate) type FindEnds = fn(&SharedBytes) -> Vec<(u64, u64)>;

impl Source {
    pub(crate) fn new(bytes: &SharedBytes, find_ends: FindEnds) -> Arc<Self> {
        Arc::new(Self {
            bytes: Arc::clone(bytes),
            ends: OnceLock::new(),
            find_ends,
        })
    }

    /// Stores the pairs that the reader found.
    pub(crate) fn set_ends(&self, mut ends: Vec<(u64, u64)>) {
        ends.sort_unstable();
        let _ = self.ends.set(ends);
    }

    fn end_of(&self, begin: u64) -> Option<u64> {
        let ends = self.ends.get_or_init(|| {
            let mut ends = (self.find_ends)(&self.bytes);
            ends.sort_unstable();
            ends
        });
        let place = ends.binary_search_by_key(&begin, |pair| pair.0).ok()?;
        ends.get(place).map(|pair| pair.1)
    }
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let bytes: &[u8] = (*self.bytes).as_ref();
        let phase = visit_event(bytes, token, visit)?;
        if matches!(phase, b'B' | b'b' | b'S')
            && let Some(end) = self.end_of(token)
        {
            visit_event(bytes, end, visit)?;
        }
        Ok(())
    }

    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let bytes: &[u8] = (*self.bytes).as_ref();
        let phase = visit_some_of_event(bytes, token, keys, visit)?;
        if matches!(phase, b'B' | b'b' | b'S')
            && let Some(end) = self.end_of(token)
        {
            visit_some_of_event(bytes, end, keys, visit)?;
        }
        Ok(())
    }
}

/// Visits the arguments with these names; otherwise like [`visit_event`].
pub(crate) fn visit_some_of_event(
    bytes: &[u8],
    token: u64,
    keys: ArgKeys,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<u8, ArgError> {
    let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
    let mut wanted = select::SelectedArgs::new();
    if select::find(bytes, at, keys, &mut wanted) == Ok(true) {
        for (key, value) in wanted.iter() {
            with_value(bytes, &value, |value| visit(keys.get(key), value));
        }
        return Ok(wanted.phase);
    }
    visit_event(bytes, token, &mut |key, value| {
        if keys.find(key.as_bytes()).is_some() {
            visit(key, value);
        }
    })
}

/// Visits the arguments of the event at `token`; returns its phase.
pub(crate) fn visit_event(
    bytes: &[u8],
    token: u64,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<u8, ArgError> {
    let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
    if bytes.get(at) != Some(&b'{') {
        return Err(ArgError::Damaged);
    }
    let found = entry(bytes, at).map_err(|_stop| ArgError::Damaged)?;
    let types = if found.extension.json_type == JsonType::Object {
        stepscope::disguises_of_event(bytes, found.extension.span.start)
    } else {
        Vec::new()
    };
    match found.args.json_type {
        JsonType::Object => {
            visit_members(bytes, found.args.span.start, &mut |key, value| {
                undisguised(&types, key, value, visit);
            })
            .map_err(|_stop| ArgError::Damaged)?;
        }
        _ if found.args.is_null(bytes) => {}
        _ => with_value(bytes, &found.args, |value| visit("args", value)),
    }
    if found.extra {
        let _ = members(bytes, at, |key, value| {
            if !is_standard(key) {
                with_value(bytes, &value, |value| visit(&key_of(key), value));
            }
        });
    }
    Ok(found.phase)
}
