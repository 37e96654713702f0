//! Clocks: each packet can use its own clock; all times are converted to the trace's primary clock.
//!
//! A snapshot reads several clocks at the same time. A time of another clock is shifted by the
//! difference in the last snapshot before it. Clocks 64 to 127 are local to one sequence.
//! Incremental clocks count from the previous packet and restart at every snapshot.

use rustc_hash::FxHashMap;

use crate::perfetto::schema::clock;
use crate::protobuf::wire::Fields;

/// A clock: sequence (0 for clocks that all sequences share) and number.
pub(crate) type ClockKey = (u32, u64);

#[derive(Clone, Copy, Debug)]
struct Unit {
    multiplier_ns: u64,
    incremental: bool,
    /// The last value, in the clock's own unit.
    last: u64,
}

/// State of the clocks at the current packet.
pub(crate) struct Clocks {
    primary: u64,
    units: FxHashMap<ClockKey, Unit>,
    /// Readings: the clock in nanoseconds, the primary clock in nanoseconds.
    readings: FxHashMap<ClockKey, Vec<(i64, i64)>>,
}

/// A timestamp, converted as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockTime {
    /// On the primary clock, nanoseconds.
    Primary(i64),
    /// On a clock that no snapshot has read yet, nanoseconds.
    Other(ClockKey, i64),
    /// Past what fits.
    Bad,
}

impl Clocks {
    pub(crate) fn new() -> Self {
        Self {
            primary: clock::BOOTTIME,
            units: FxHashMap::default(),
            readings: FxHashMap::default(),
        }
    }

    /// Stores the readings of a `ClockSnapshot`.
    pub(crate) fn snapshot(&mut self, sequence: u32, message: &[u8]) {
        let mut seen: Vec<(ClockKey, i64)> = Vec::new();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value.bytes()) {
                (clock::CLOCKS, Some(reading)) => {
                    if let Some(reading) = self.reading(sequence, reading) {
                        seen.push(reading);
                    }
                }
                (clock::PRIMARY, _) => {
                    if let Some(primary @ 1..) = field.value.uint()
                        && self.readings.is_empty()
                    {
                        self.primary = primary;
                    }
                }
                _ => {}
            }
        }
        let now = seen
            .iter()
            .find(|((_, id), _)| *id == self.primary)
            .map(|(_, ns)| *ns)
            .or_else(|| seen.iter().find_map(|(key, ns)| self.on_primary(*key, *ns)));
        let Some(now) = now else { return };
        for (key, ns) in seen {
            if key.1 != self.primary {
                self.readings.entry(key).or_default().push((ns, now));
            }
        }
    }

    fn reading(&mut self, sequence: u32, message: &[u8]) -> Option<(ClockKey, i64)> {
        let (mut id, mut value, mut multiplier_ns, mut incremental) = (0, None, 1, false);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let Some(number) = field.value.uint() else {
                continue;
            };
            match field.number {
                clock::ID => id = number,
                clock::TIMESTAMP => value = Some(number),
                clock::IS_INCREMENTAL => incremental = number != 0,
                clock::UNIT_MULTIPLIER_NS => multiplier_ns = number.max(1),
                _ => {}
            }
        }
        let value = value?;
        let key = key(sequence, id);
        if multiplier_ns != 1 || incremental {
            self.units.insert(
                key,
                Unit {
                    multiplier_ns,
                    incremental,
                    last: value,
                },
            );
        }
        let ns = i64::try_from(value.checked_mul(multiplier_ns)?).ok()?;
        Some((key, ns))
    }

    /// Converts a packet's timestamp to the primary clock; `clock_id` `None` means the primary
    /// clock.
    pub(crate) fn moment(&mut self, sequence: u32, clock_id: Option<u64>, value: u64) -> ClockTime {
        let id = clock_id.unwrap_or(self.primary);
        let key = key(sequence, id);
        let mut value = value;
        if let Some(unit) = self.units.get_mut(&key) {
            if unit.incremental {
                unit.last = unit.last.saturating_add(value);
                value = unit.last;
            }
            value = value.saturating_mul(unit.multiplier_ns);
        }
        let Ok(ns) = i64::try_from(value) else {
            return ClockTime::Bad;
        };
        if id == self.primary {
            return ClockTime::Primary(ns);
        }
        self.on_primary(key, ns)
            .map_or(ClockTime::Other(key, ns), ClockTime::Primary)
    }

    /// Converts a time of another clock to the primary clock; `None` if no snapshot reads that
    /// clock.
    pub(crate) fn on_primary(&self, key: ClockKey, ns: i64) -> Option<i64> {
        let readings = self.readings.get(&key)?;
        let at = readings.partition_point(|reading| reading.0 <= ns);
        let (clock_ns, primary_ns) = readings.get(at.saturating_sub(1))?;
        primary_ns.checked_add(ns.checked_sub(*clock_ns)?)
    }

    /// Returns the Unix time at a time of the primary clock; `None` if no snapshot reads both.
    pub(crate) fn unix_ns(&self, primary_ns: i64) -> Option<i64> {
        if self.primary == clock::REALTIME {
            return Some(primary_ns);
        }
        let (unix_ns, at_ns) = self.readings.get(&(0, clock::REALTIME))?.first()?;
        unix_ns.checked_add(primary_ns.checked_sub(*at_ns)?)
    }
}

fn key(sequence: u32, id: u64) -> ClockKey {
    if (64..128).contains(&id) {
        (sequence, id)
    } else {
        (0, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::wire::{put_message, put_uint};

    fn snapshot(clocks: &[(u64, u64, u64, bool)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, value, multiplier, incremental) in clocks {
            put_message(&mut out, clock::CLOCKS, |out| {
                put_uint(out, clock::ID, *id);
                put_uint(out, clock::TIMESTAMP, *value);
                put_uint(out, clock::UNIT_MULTIPLIER_NS, *multiplier);
                put_uint(out, clock::IS_INCREMENTAL, u64::from(*incremental));
            });
        }
        out
    }

    #[test]
    fn clocks_meet_at_snapshots() {
        let mut clocks = Clocks::new();
        assert_eq!(clocks.moment(1, Some(3), 5), ClockTime::Other((0, 3), 5));
        clocks.snapshot(
            1,
            &snapshot(&[
                (6, 1_000, 1, false),
                (3, 400, 1, false),
                (1, 9_000, 1, false),
            ]),
        );
        clocks.snapshot(1, &snapshot(&[(6, 2_010, 1, false), (3, 1_400, 1, false)]));
        assert_eq!(clocks.moment(1, Some(3), 500), ClockTime::Primary(1_100));
        assert_eq!(clocks.moment(1, Some(3), 1_500), ClockTime::Primary(2_110));
        assert_eq!(clocks.moment(1, None, 7), ClockTime::Primary(7));
        assert_eq!(clocks.unix_ns(1_001), Some(9_001));
        assert_eq!(clocks.moment(1, None, u64::MAX), ClockTime::Bad);
    }

    #[test]
    fn incremental_clocks_of_a_sequence_add_up() {
        let mut clocks = Clocks::new();
        clocks.snapshot(7, &snapshot(&[(64, 0, 1_000, true), (6, 5_000, 1, false)]));
        assert_eq!(clocks.moment(7, Some(64), 2), ClockTime::Primary(7_000));
        assert_eq!(clocks.moment(7, Some(64), 3), ClockTime::Primary(10_000));
        assert_eq!(clocks.moment(8, Some(64), 3), ClockTime::Other((8, 64), 3));
    }

    #[test]
    fn absurd_readings_do_no_harm() {
        let mut clocks = Clocks::new();
        clocks.snapshot(
            1,
            &snapshot(&[
                (6, u64::MAX, u64::MAX, true),
                (3, i64::MAX as u64, 1, false),
            ]),
        );
        clocks.snapshot(1, &[0xff; 30]);
        let _ = clocks.moment(1, Some(3), 0);
        let _ = clocks.moment(1, Some(6), u64::MAX);
    }
}
