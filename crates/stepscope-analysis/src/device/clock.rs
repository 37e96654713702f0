//! Durations by the device's own clock.
//!
//! The timeline shows a TPU's operations after a conversion from its clock to the host's, which stretches them a
//! little; their argument `device_duration_ps` has the duration by their own clock.

use stepscope_model::{ArgKeys, ArgValue, Dur, TrackId};
use stepscope_store::{EventId, Trace};

const CLOCK: ArgKeys = ArgKeys::new(&["device_duration_ps"]);
/// Maximum number of slices of a track whose arguments are read for the device's own clock.
const MOST_CLOCKED: usize = 1_000_000;

/// Returns whether the slices of a queue have durations by the device's own clock: its first one decides.
pub(crate) fn is_clocked(trace: &Trace, queue: TrackId) -> bool {
    let slices = trace.slices(queue);
    (1..=MOST_CLOCKED).contains(&slices.len()) && clock(trace, slices.id(0)).is_some()
}

/// Returns the duration of a slice by the device's own clock.
pub(crate) fn clock(trace: &Trace, event: EventId) -> Option<Dur> {
    let mut found = None;
    let read = trace.args_of(event, CLOCK, &mut |_, value| {
        if let ArgValue::Int(ps) = value {
            found = Some(Dur::from_ps(ps));
        }
    });
    read.ok().and(found)
}

/// Returns the part of `clock` that lies in a range which clips a slice of length `whole` to `clipped`.
pub(crate) fn clip_clock(clock: Dur, whole: Dur, clipped: Dur) -> Dur {
    if clipped == whole || whole.ps() == 0 {
        return clock;
    }
    let ps = i128::from(clock.ps()) * i128::from(clipped.ps()) / i128::from(whole.ps());
    Dur::from_ps(i64::try_from(ps).unwrap_or(i64::MAX))
}
