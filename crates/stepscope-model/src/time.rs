//! Points and lengths of time.
//!
//! Whole picoseconds in `i64` (ADR-0001): XSpace offsets survive unchanged, sums are exact, and
//! the range of ±106 days around a run's epoch is far longer than any capture.

/// A point on the run's clock: whole picoseconds since the run's [`Epoch`].
///
/// Not comparable across runs. Negative for events recorded before the first timestamp that the
/// reader saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Time {
    ps: i64,
}

impl Time {
    /// The run's epoch.
    pub const ZERO: Self = Self { ps: 0 };
    /// The earliest representable point.
    pub const MIN: Self = Self { ps: i64::MIN };
    /// The latest representable point.
    pub const MAX: Self = Self { ps: i64::MAX };

    /// Creates a time from picoseconds since the epoch.
    pub const fn from_ps(ps: i64) -> Self {
        Self { ps }
    }

    /// Converts nanoseconds since the epoch. Exact; `None` outside the representable range.
    pub fn from_ns(ns: i64) -> Option<Self> {
        ns.checked_mul(1_000).map(Self::from_ps)
    }

    /// Returns picoseconds since the epoch.
    pub const fn ps(self) -> i64 {
        self.ps
    }

    /// Returns whole nanoseconds since the epoch, rounded toward negative infinity.
    pub const fn floor_ns(self) -> i64 {
        self.ps.div_euclid(1_000)
    }

    /// Returns the point `dur` later, saturating at the ends of the range.
    #[must_use]
    pub const fn saturating_add(self, dur: Dur) -> Self {
        Self {
            ps: self.ps.saturating_add(dur.ps),
        }
    }

    /// Returns the point `dur` earlier, saturating at the ends of the range.
    #[must_use]
    pub const fn saturating_sub(self, dur: Dur) -> Self {
        Self {
            ps: self.ps.saturating_sub(dur.ps),
        }
    }

    /// Returns the time from `earlier` to `self` (negative if `self` is earlier), saturating at the
    /// ends of the range.
    pub const fn since(self, earlier: Self) -> Dur {
        Dur {
            ps: self.ps.saturating_sub(earlier.ps),
        }
    }
}

/// A length of time in whole picoseconds.
///
/// A slice's duration is never negative; a difference of two [`Time`]s may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Dur {
    ps: i64,
}

impl Dur {
    /// A duration of zero.
    pub const ZERO: Self = Self { ps: 0 };

    /// Creates a duration from picoseconds.
    pub const fn from_ps(ps: i64) -> Self {
        Self { ps }
    }

    /// Converts nanoseconds. Exact; `None` outside the representable range.
    pub fn from_ns(ns: i64) -> Option<Self> {
        ns.checked_mul(1_000).map(Self::from_ps)
    }

    /// Returns picoseconds.
    pub const fn ps(self) -> i64 {
        self.ps
    }

    /// Returns nanoseconds as a float, for shares and for display; exact below 2^53 ps.
    pub fn as_ns_f64(self) -> f64 {
        self.ps as f64 / 1_000.0
    }

    /// Returns the sum, saturating at the ends of the range.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self {
            ps: self.ps.saturating_add(other.ps),
        }
    }
}

/// Saturates at the ends of the range, since damaged files may hold impossible durations.
impl std::iter::Sum for Dur {
    fn sum<I: Iterator<Item = Self>>(durs: I) -> Self {
        durs.fold(Self::ZERO, Self::saturating_add)
    }
}

/// The meaning of a run's [`Time::ZERO`] on the file's own clock and as Unix time.
///
/// `origin_ns` converts to the times in the file (`file time = origin_ns + time`); `unix_ns` puts
/// hosts on one time axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// The file's own clock at [`Time::ZERO`], nanoseconds.
    pub origin_ns: i64,
    /// Unix time at [`Time::ZERO`], nanoseconds; `None` if the file does not hold it.
    pub unix_ns: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_exact_or_refused() {
        assert_eq!(Time::from_ns(-3).map(Time::ps), Some(-3_000));
        assert_eq!(Time::from_ns(i64::MAX), None);
        assert_eq!(Time::from_ps(-1).floor_ns(), -1);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX.saturating_add(Dur::from_ps(1)), Time::MAX);
        assert_eq!(Time::MIN.since(Time::MAX), Dur::from_ps(i64::MIN));
        let two = [Dur::from_ps(i64::MAX), Dur::from_ps(1)];
        assert_eq!(two.into_iter().sum::<Dur>(), Dur::from_ps(i64::MAX));
    }
}
