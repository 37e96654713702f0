//! Interned texts, remembered by where they were last seen.
//!
//! Most names repeat. A table with one place per hash keeps the bytes and the number of the last
//! text that fell into it; comparing bytes is cheaper than undoing escapes, checking UTF-8 and
//! asking the sink again. What a name means (a step, a device's category) is worked out once.

use stepscope_model::{EventSink, NameId};

use super::emit::Hints;
use super::scan::{ByteRange, JsonType, Value};
use super::text::unescape;
use super::torch::{self, Executor};

/// An interned text and what it says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Name {
    pub(super) id: NameId,
    /// Whether the text had to be repaired.
    pub(super) repaired: bool,
    /// The number in `ProfilerStep#7`.
    pub(super) step: Option<i64>,
    /// As a category: who did it.
    pub(super) executor: Executor,
    /// As a category: whether names of it may be step markers.
    pub(super) may_mark_steps: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    span: ByteRange,
    sort: JsonType,
    name: Name,
}

/// See the module's text.
pub(super) struct Names<'a> {
    bytes: &'a [u8],
    shift: u32,
    places: Vec<Place>,
}

impl<'a> Names<'a> {
    /// With `2^bits` places.
    pub(super) fn new(bytes: &'a [u8], bits: u32) -> Self {
        Self {
            bytes,
            shift: 64 - bits,
            places: vec![Place::default(); 1 << bits],
        }
    }

    #[inline]
    pub(super) fn get<S: EventSink>(
        &mut self,
        sink: &mut S,
        value: &Value,
        hints: &mut Hints,
    ) -> Name {
        let raw = value.span.of(self.bytes);
        let slot = usize::try_from(fingerprint(raw) >> self.shift).unwrap_or_default();
        if let Some(place) = self.places.get(slot)
            && place.sort == value.sort
            && place.span.of(self.bytes) == raw
        {
            return place.name;
        }
        let name = intern(sink, raw, value.sort, hints);
        if let Some(place) = self.places.get_mut(slot) {
            *place = Place {
                span: value.span,
                sort: value.sort,
                name,
            };
        }
        name
    }
}

fn intern<S: EventSink>(sink: &mut S, raw: &[u8], sort: JsonType, hints: &mut Hints) -> Name {
    let text = unescape(raw, sort == JsonType::Str { escaped: true });
    hints.look_at(&text.text);
    Name {
        id: sink.name(&text.text),
        repaired: text.repaired,
        step: torch::step_of_name(&text.text),
        executor: torch::executor_of_category(&text.text),
        may_mark_steps: torch::may_mark_steps(&text.text),
    }
}

impl Hints {
    /// Takes over what another part has seen.
    pub(super) fn add(&mut self, other: Self) {
        self.jax |= other.jax;
        self.torch_xla |= other.torch_xla;
        self.neuron |= other.neuron;
        self.chrome |= other.chrome;
    }

    fn look_at(&mut self, text: &str) {
        self.jax |= text.starts_with("PjitFunction(") || text.starts_with("jit_");
        self.torch_xla |= text == "StepMarker" || text.contains("SyncLiveTensorsGraph");
        self.neuron |= text.starts_with("nrt_");
        self.chrome |= text.starts_with("devtools.") || text.starts_with("disabled-by-default-");
    }
}

/// Length and the first, middle and last eight bytes, mixed into the high bits.
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
