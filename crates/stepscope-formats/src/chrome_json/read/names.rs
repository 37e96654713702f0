//! Cache of interned names.
//!
//! Most names repeat. A table with one slot per hash stores the bytes and the id of the last text
//! with that hash. Comparing bytes is cheaper than decoding escapes, checking UTF-8 and interning
//! again. Properties of a name (a step number, a device's category) are computed once.

use stepscope_model::vocabulary::kineto::{self, Category, Executor};
use stepscope_model::{EventSink, NameId};

use crate::chrome_json::dialect::torch::Hints;
use crate::json::scan::{ByteRange, JsonType, Value};
use crate::json::text::unescape;

/// An interned text and the properties derived from it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Name {
    pub(crate) id: NameId,
    /// Whether the text was repaired.
    pub(crate) repaired: bool,
    /// The number in `ProfilerStep#7`.
    pub(crate) step: Option<i64>,
    /// The executor that this text means as a category.
    pub(crate) executor: Executor,
    /// Whether events of this category can be step markers.
    pub(crate) may_mark_steps: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    span: ByteRange,
    json_type: JsonType,
    name: Name,
}

/// Cache of interned names. See the module documentation.
pub(crate) struct Names<'a> {
    bytes: &'a [u8],
    shift: u32,
    places: Vec<Slot>,
}

impl<'a> Names<'a> {
    /// Creates a cache with `2^bits` slots.
    pub(crate) fn new(bytes: &'a [u8], bits: u32) -> Self {
        Self {
            bytes,
            shift: 64 - bits,
            places: vec![Slot::default(); 1 << bits],
        }
    }

    #[inline]
    pub(crate) fn get<S: EventSink>(
        &mut self,
        sink: &mut S,
        value: &Value,
        hints: &mut Hints,
    ) -> Name {
        let raw = value.span.slice(self.bytes);
        let slot = usize::try_from(fingerprint(raw) >> self.shift).unwrap_or_default();
        if let Some(place) = self.places.get(slot)
            && place.json_type == value.json_type
            && place.span.slice(self.bytes) == raw
        {
            return place.name;
        }
        let name = intern(sink, raw, value.json_type, hints);
        if let Some(place) = self.places.get_mut(slot) {
            *place = Slot {
                span: value.span,
                json_type: value.json_type,
                name,
            };
        }
        name
    }
}

fn intern<S: EventSink>(sink: &mut S, raw: &[u8], json_type: JsonType, hints: &mut Hints) -> Name {
    let text = unescape(raw, json_type == JsonType::Str { escaped: true });
    hints.look_at(&text.text);
    let category = Category::from_name(&text.text);
    Name {
        id: sink.name(&text.text),
        repaired: text.repaired,
        step: kineto::step_number(&text.text),
        executor: category.map_or(Executor::Unknown, Category::executor),
        may_mark_steps: category.is_some_and(Category::may_mark_steps),
    }
}

/// Computes a hash: mixes the length and the first, middle and last eight bytes into the high bits.
#[inline]
fn fingerprint(raw: &[u8]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |at: usize| -> u64 {
        raw.get(at..)
            .and_then(<[u8]>::first_chunk::<8>)
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    if raw.len() < 8 {
        let short = raw
            .iter()
            .fold(raw.len() as u64, |all, byte| all << 8 | u64::from(*byte));
        return short.wrapping_mul(MIX);
    }
    let last = raw.len() - 8;
    let mixed = word(0)
        .wrapping_mul(MIX)
        .rotate_left(23)
        .wrapping_add(word(last))
        .wrapping_mul(MIX)
        .rotate_left(23)
        .wrapping_add(word(last / 2) ^ raw.len() as u64);
    mixed.wrapping_mul(MIX)
}
