//! Limits on the disk space of a journal.

use std::fmt;
use std::os::fd::RawFd;

use crate::platform::os::{self, DiskSpace};

/// Behaviour of a recording that has reached its disk limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtLimit {
    /// The oldest part is removed repeatedly: the recording retains its latest part.
    #[default]
    KeepLatest,
    /// Recording stops; `stop_trace` writes what was recorded.
    Stop,
}

/// Queries the file system of an open file.
pub(crate) type SpaceQuery = fn(RawFd) -> Option<DiskSpace>;

/// Default percentage of a file system that stays free.
const FREE_PERCENT: u64 = 5;
/// Default minimum of free bytes.
const MIN_FREE: u64 = 1 << 30;
/// Minimum limit on a journal, bytes.
pub(crate) const MIN_BYTES: u64 = 1 << 20;
/// Parts per limit: one part is removed at once.
const PARTS: u64 = 16;
const MIN_PART: u64 = 64 << 10;
const MAX_PART: u64 = 64 << 20;

/// Returns the bytes that stay free by default on a file system of this size.
pub(crate) fn default_keep_free_bytes(total_bytes: u64) -> u64 {
    (total_bytes / 100 * FREE_PERCENT).max(MIN_FREE)
}

/// Limits of a journal's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskLimit {
    /// Maximum bytes of the journal.
    pub(crate) max_bytes: u64,
    /// Bytes of the file system that stay free; `None`: 5 %, at least 1 GiB.
    pub(crate) keep_free_bytes: Option<u64>,
    pub(crate) at_limit: AtLimit,
    pub(crate) query_space: SpaceQuery,
}

impl DiskLimit {
    pub(crate) fn new(max_bytes: u64, keep_free_bytes: Option<u64>, at_limit: AtLimit) -> Self {
        Self {
            max_bytes: max_bytes.max(MIN_BYTES),
            keep_free_bytes,
            at_limit,
            query_space: os::disk_space,
        }
    }

    /// Returns the size of a part, bytes.
    pub(crate) fn part_bytes(&self) -> u64 {
        (self.max_bytes / PARTS).clamp(MIN_PART, MAX_PART)
    }

    /// Returns the limit that prevents one more part, if any; `held` bytes are in the file.
    pub(crate) fn reached(&self, held: u64, fd: RawFd) -> Option<LimitReached> {
        let part = self.part_bytes();
        if held + part > self.max_bytes {
            return Some(LimitReached::Size(self.max_bytes));
        }
        // A file system that reports no space has no limit on free space.
        let space = (self.query_space)(fd)?;
        let default = || default_keep_free_bytes(space.total);
        let floor = self.keep_free_bytes.unwrap_or_else(default);
        (space.free < floor.saturating_add(part)).then_some(LimitReached::Free(floor))
    }
}

/// The limit that was reached, with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Size(u64),
    Free(u64),
}

impl fmt::Display for LimitReached {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match *self {
            Self::Size(bytes) => write!(
                out,
                "the recording reached its limit of {:.0} MiB (max_bytes)",
                mib(bytes)
            ),
            Self::Free(bytes) => write!(
                out,
                "less than {:.0} MiB of the disk are free (keep_free_bytes)",
                mib(bytes)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(keep_free_bytes: Option<u64>, query_space: SpaceQuery) -> DiskLimit {
        DiskLimit {
            query_space,
            ..DiskLimit::new(16 << 30, keep_free_bytes, AtLimit::KeepLatest)
        }
    }

    #[test]
    fn five_percent_and_at_least_one_gibibyte_stay_free() {
        let small = limit(None, |_| {
            Some(DiskSpace {
                free: 1 << 30,
                total: 8 << 30,
            })
        });
        assert_eq!(small.reached(0, 0), Some(LimitReached::Free(1 << 30)));
        let large = limit(None, |_| {
            Some(DiskSpace {
                free: 40 << 30,
                total: 1_000 << 30,
            })
        });
        assert!(matches!(large.reached(0, 0), Some(LimitReached::Free(bytes)) if bytes > 49 << 30));
        let roomy = limit(None, |_| {
            Some(DiskSpace {
                free: 60 << 30,
                total: 1_000 << 30,
            })
        });
        assert_eq!(roomy.reached(0, 0), None);
        let limit_with_query = limit(Some(100), |_| {
            Some(DiskSpace {
                free: 1 << 30,
                total: 8 << 30,
            })
        });
        assert_eq!(limit_with_query.reached(0, 0), None);
        assert_eq!(
            limit_with_query.reached(16 << 30, 0),
            Some(LimitReached::Size(16 << 30))
        );
        assert_eq!(limit(None, |_| None).reached(0, 0), None);
    }
}
