//! The recorder's clock: raw ticks on the hot path, nanoseconds only when a recording is exported.
//!
//! On x86-64 a tick is one count of the time-stamp counter, where that counter is invariant and the
//! kernel itself uses it; on `AArch64` one count of the virtual counter; elsewhere a nanosecond of
//! `CLOCK_MONOTONIC`. Ticks become nanoseconds by linear interpolation between pairs of readings
//! ([`Pair`]) that the drain thread takes about once a second. The result therefore follows the
//! kernel's disciplined clock instead of the counter's nominal rate.
#![allow(unsafe_code, reason = "reading the counters needs intrinsics")]

use crate::platform::os;

/// Bit of the recorder's state: the counter is not usable; the clock is read from the kernel.
pub(crate) const SLOW_CLOCK: u32 = 4;

/// Returns the current time in ticks of the clock that `state` selects.
#[inline]
pub(crate) fn ticks(state: u32) -> u64 {
    if state & SLOW_CLOCK == 0 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has the instruction; `choose` does not select it on a system that
        // forbids it.
        return unsafe { core::arch::x86_64::_rdtsc() };
        #[cfg(target_arch = "aarch64")]
        {
            let count: u64;
            // SAFETY: reads a counter that user space may read; no memory, no flags.
            unsafe {
                core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
            }
            return count;
        }
    }
    kernel_ticks()
}

#[cold]
fn kernel_ticks() -> u64 {
    os::clock_ns(libc::CLOCK_MONOTONIC) as u64
}

/// Returns [`SLOW_CLOCK`] if the counter cannot be used on this machine, otherwise 0.
pub(crate) fn choose() -> u32 {
    if counter_usable() { 0 } else { SLOW_CLOCK }
}

#[cfg(target_arch = "x86_64")]
fn counter_usable() -> bool {
    use core::arch::x86_64::__cpuid;
    let invariant =
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
    if !invariant {
        return false;
    }
    // A kernel that has found the cores' counters out of step uses another source.
    let source =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    source.is_ok_and(|name| {
        let name = name.trim();
        name == "tsc" || name == "kvm-clock" || name.starts_with("hyperv")
    })
}

#[cfg(target_arch = "aarch64")]
fn counter_usable() -> bool {
    true
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter_usable() -> bool {
    false
}

/// Readings of three clocks at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The recorder's clock, ticks.
    pub(crate) ticks: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) mono_ns: i64,
    /// Unix time, nanoseconds.
    pub(crate) unix_ns: i64,
}

impl Pair {
    /// Reads the clocks several times; returns the reading with the shortest interval.
    pub(crate) fn read(state: u32) -> Self {
        let mut best = (u64::MAX, Self::default());
        for _ in 0..5 {
            let before = ticks(state);
            let mono_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
            let unix_ns = os::clock_ns(libc::CLOCK_REALTIME);
            // An interruption between any two readings lengthens the interval.
            let after = ticks(state);
            let width = after.saturating_sub(before);
            if width < best.0 {
                let ticks = before + width / 2;
                best = (
                    width,
                    Self {
                        ticks,
                        mono_ns,
                        unix_ns,
                    },
                );
            }
        }
        best.1
    }

    /// Encodes the content of a journal block.
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.ticks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.mono_ns.to_le_bytes());
        bytes[16..].copy_from_slice(&self.unix_ns.to_le_bytes());
        bytes
    }

    /// Decodes what [`Pair::encode`] wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            ticks: word(0)?,
            mono_ns: word(8)? as i64,
            unix_ns: word(16)? as i64,
        })
    }
}

/// One linear segment of a [`Timeline`].
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// First ticks of the segment.
    ticks: u64,
    /// Picoseconds from the first pair to the first ticks.
    ps: i64,
    /// Picoseconds per tick, times 2^[`RATE_BITS`].
    rate: u64,
}

/// Fractional bits of [`Line::rate`]: the error is a hundredth of a picosecond after a second of
/// ticks.
const RATE_BITS: u32 = 40;

/// Converts ticks to picoseconds since the first pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    lines: Vec<Line>,
    unix_ns: i64,
}

impl Timeline {
    /// Builds the timeline from the readings of a recording, in any order. Readings that go
    /// backwards are ignored.
    pub(crate) fn new(mut pairs: Vec<Pair>) -> Self {
        pairs.sort_unstable_by_key(|pair| pair.ticks);
        pairs.dedup_by(|later, earlier| {
            later.ticks == earlier.ticks || later.mono_ns <= earlier.mono_ns
        });
        let Some(first) = pairs.first().copied() else {
            return Self::default();
        };
        let mut lines: Vec<_> = pairs
            .windows(2)
            .map(|pair| {
                let ticks = (pair[1].ticks - pair[0].ticks) as f64;
                let ps = pair[1].mono_ns.saturating_sub(pair[0].mono_ns) as f64 * 1_000.0;
                let since = pair[0].mono_ns.saturating_sub(first.mono_ns);
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "float to int conversion saturates"
                )]
                let rate = (ps / ticks * (1_u64 << RATE_BITS) as f64).round() as u64;
                Line {
                    ticks: pair[0].ticks,
                    ps: since.saturating_mul(1_000),
                    rate,
                }
            })
            .collect();
        if lines.is_empty() {
            lines.push(Line {
                ticks: first.ticks,
                ps: 0,
                rate: 1_000 << RATE_BITS,
            });
        }
        Self {
            lines,
            unix_ns: first.unix_ns,
        }
    }

    /// Returns the Unix time of the first pair, nanoseconds: picosecond 0.
    pub(crate) fn unix_ns(&self) -> i64 {
        self.unix_ns
    }

    /// Returns picoseconds since the first pair; negative before it.
    pub(crate) fn ps(&self, ticks: u64) -> i64 {
        self.cursor().ps(ticks)
    }

    /// Returns Unix time in nanoseconds.
    pub(crate) fn unix_of(&self, ticks: u64) -> i64 {
        self.unix_ns
            .saturating_add(self.ps(ticks).div_euclid(1_000))
    }

    /// Returns the same timeline with picosecond 0 at these ticks.
    pub(crate) fn from(mut self, ticks: u64) -> Self {
        let ns = self.ps(ticks).div_euclid(1_000);
        for line in &mut self.lines {
            line.ps = line.ps.saturating_sub(ns.saturating_mul(1_000));
        }
        self.unix_ns = self.unix_ns.saturating_add(ns);
        self
    }

    /// Returns the ticks of a Unix time in nanoseconds, 0 before the clock's zero.
    pub(crate) fn ticks(&self, unix_ns: i64) -> u64 {
        let ps = i128::from(unix_ns).saturating_sub(i128::from(self.unix_ns)) * 1_000;
        let at = self.lines.partition_point(|line| i128::from(line.ps) <= ps);
        let Some(line) = self.lines.get(at.saturating_sub(1)) else {
            return 0;
        };
        let since = ps - i128::from(line.ps);
        let ticks = (since << RATE_BITS) / i128::from(line.rate.max(1));
        let ticks = ticks.saturating_add(i128::from(line.ticks));
        u64::try_from(ticks.max(0)).unwrap_or(u64::MAX)
    }

    /// Returns a cursor for many conversions of times that are near to each other.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            timeline: self,
            line: Line::default(),
            until: 0,
        }
    }
}

/// A [`Timeline`] that caches its last line.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'t> {
    timeline: &'t Timeline,
    line: Line,
    /// First ticks of the next line.
    until: u64,
}

impl Cursor<'_> {
    /// Returns picoseconds since the first pair; negative before it.
    #[inline]
    pub(crate) fn ps(&mut self, ticks: u64) -> i64 {
        if ticks < self.line.ticks || ticks >= self.until {
            self.seek(ticks);
        }
        let delta = ticks.wrapping_sub(self.line.ticks) as i64;
        let ps = i128::from(delta) * i128::from(self.line.rate) + (1 << (RATE_BITS - 1));
        let ps =
            i64::try_from(ps >> RATE_BITS).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX });
        self.line.ps.saturating_add(ps)
    }

    #[cold]
    fn seek(&mut self, ticks: u64) {
        let lines = &self.timeline.lines;
        let after = lines.partition_point(|line| line.ticks <= ticks);
        self.line = lines
            .get(after.saturating_sub(1))
            .copied()
            .unwrap_or_default();
        self.until = lines.get(after).map_or(u64::MAX, |line| line.ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ticks: u64, mono_ns: i64) -> Pair {
        Pair {
            ticks,
            mono_ns,
            unix_ns: 1_000_000 + mono_ns,
        }
    }

    #[test]
    fn lines_join_and_reach_beyond_both_ends() {
        let line = Timeline::new(vec![
            pair(1_000, 10),
            pair(3_000, 1_010),
            pair(5_000, 3_010),
        ]);
        assert_eq!(line.ps(1_000), 0);
        assert_eq!(line.ps(2_000), 500_000);
        assert_eq!(line.ps(3_000), 1_000_000);
        assert_eq!(line.ps(4_000), 2_000_000);
        assert_eq!(line.ps(6_000), 4_000_000);
        assert_eq!(line.ps(0), -500_000);
        assert_eq!(line.unix_ns(), 1_000_010);
        for (unix_ns, ticks) in [(1_000_010, 1_000), (1_000_510, 2_000), (1_002_010, 4_000)] {
            assert_eq!(line.ticks(unix_ns), ticks);
        }
        assert_eq!(line.ticks(999_510), 0);
        assert_eq!(
            (line.ticks(i64::MIN), line.ticks(i64::MAX) > 1 << 60),
            (0, true)
        );
    }

    #[test]
    fn single_reading_or_stopped_clock_does_not_divide_by_zero() {
        assert_eq!(Timeline::new(vec![pair(5, 5)]).ps(7), 2_000);
        assert_eq!(
            Timeline::new(vec![pair(5, 5), pair(5, 6), pair(9, 5)]).ps(6),
            1_000
        );
        assert_eq!(Timeline::new(Vec::new()).ps(7), 0);
        // Possible content of a damaged journal.
        let at = |ticks, mono_ns| Pair {
            ticks,
            mono_ns,
            unix_ns: 0,
        };
        let wide = Timeline::new(vec![
            at(0, i64::MIN),
            at(9, i64::MAX),
            at(u64::MAX, i64::MAX),
        ]);
        assert_eq!(wide.ps(0), 0);
    }

    #[test]
    fn clock_advances() {
        let state = choose();
        let first = Pair::read(state);
        let second = Pair::read(state);
        assert!(second.ticks > first.ticks && second.mono_ns >= first.mono_ns);
        assert_eq!(Pair::decode(&first.encode()), Some(first));
    }
}
