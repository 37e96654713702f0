//! Lengths by the device's own clock.
//!
//! A TPU's operations are placed on the timeline by its clock put onto the host's, which stretches
//! them a little; how long they took by their own clock is their argument `device_duration_ps`.

use stepscope_model::{ArgKeys, ArgValue, Dur, TrackId};
use stepscope_store::{EventId, Trace};

const CLOCK: ArgKeys = ArgKeys::new(&["device_duration_ps"]);
/// Slices of a track whose arguments are read one by one for the device's own clock, at most.
const MOST_CLOCKED: usize = 1_000_000;

/// Whether the slices of a queue say how long they took by the device's own clock: its first does.
pub(crate) fn is_clocked(trace: &Trace, queue: TrackId) -> bool {
    let slices = trace.slices(queue);
    (1..=MOST_CLOCKED).contains(&slices.len()) && clock(trace, slices.id(0)).is_some()
}

/// A slice's length by the device's own clock.
pub(crate) fn clock(trace: &Trace, event: EventId) -> Option<Dur> {
    let mut found = None;
    let read = trace.args_of(event, CLOCK, &mut |_, value| {
        if let ArgValue::Int(ps) = value {
            found = Some(Dur::from_ps(ps));
        }
    });
    read.ok().and(found)
}

/// The part of `clock` that lies in a range which cuts a slice of length `whole` to `clipped`.
pub(crate) fn clip_clock(clock: Dur, whole: Dur, clipped: Dur) -> Dur {
    if clipped == whole || whole.ps() == 0 {
        return clock;
    }
    let ps = i128::from(clock.ps()) * i128::from(clipped.ps()) / i128::from(whole.ps());
    Dur::from_ps(i64::try_from(ps).unwrap_or(i64::MAX))
}
