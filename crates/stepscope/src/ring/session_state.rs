//! The words that say which session records, and what else spans and steps have to do.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of [`STATE`] that hold the level.
pub(crate) const LEVEL_MASK: u32 = 3;
/// Bit of [`STATE`]: spans are also sent to other tools (see [`crate::mirror`]), with or
/// without a session.
pub(crate) const MIRRORED: u32 = 8;
/// Bit of a span's state, never of [`STATE`]: the span started in other tools, so it must end
/// there.
pub(crate) const PUSHED: u32 = 16;
/// Bits of [`STATE`]: when at least one is set, a span has something to do.
pub(crate) const ACTIVE_BITS: u32 = LEVEL_MASK | MIRRORED;
/// Lowest bit of the session number in [`STATE`].
pub(crate) const SESSION_UNIT: u32 = 32;

/// The session that records, 0 for none: level (2 bits), slow clock (1 bit), session number. And
/// [`MIRRORED`], which belongs to no session.
pub(crate) static STATE: AtomicU32 = AtomicU32::new(0);

/// State for steps: [`STATE`], and [`WATCHED`] while a listener measures steps.
pub(crate) static STEP_STATE: AtomicU32 = AtomicU32::new(0);
/// See [`STEP_STATE`]; no session's number reaches this bit.
pub(crate) const WATCHED: u32 = 1 << 31;

/// Sets the session in [`STATE`] and in [`STEP_STATE`].
///
/// Steps begin by [`STEP_STATE`] and end by [`STATE`]. So recording ends in [`STEP_STATE`] first: else a thread could
/// lose the end of one step and begin the next one in between.
pub(crate) fn set_state(state: u32) {
    let is_off = state & LEVEL_MASK == 0;
    let both = [(&STATE, MIRRORED), (&STEP_STATE, MIRRORED | WATCHED)];
    let [first, second] = if is_off { [both[1], both[0]] } else { both };
    for (word, mask) in [first, second] {
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            Some(old & mask | state)
        });
    }
}

/// Turns the mirroring of spans on or off.
pub(crate) fn set_mirrored(on: bool) {
    for word in [&STATE, &STEP_STATE] {
        if on {
            word.fetch_or(MIRRORED, Ordering::SeqCst);
        } else {
            word.fetch_and(!MIRRORED, Ordering::SeqCst);
        }
    }
}

/// Returns the recording session as threads compare it.
#[inline]
pub(crate) fn session() -> u32 {
    STATE.load(Ordering::Relaxed) & !MIRRORED
}
