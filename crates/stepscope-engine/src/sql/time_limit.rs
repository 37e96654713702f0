//! The time limit of a query: it counts the time of the work, not the time in which the reader of the answer pauses.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tells the time.
type Clock = dyn Fn() -> Instant + Send + Sync;

/// How long a query has worked, and may work.
pub struct TimeLimit {
    limit: Duration,
    clock: Box<Clock>,
    work: Mutex<Work>,
}

/// The time of the work so far.
#[derive(Clone, Copy)]
struct Work {
    /// Before `since`.
    before: Duration,
    /// Since when it works; `None` while its reader pauses.
    since: Option<Instant>,
}

impl fmt::Debug for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeLimit")
            .field("limit", &self.limit)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl TimeLimit {
    /// Begins to count.
    pub fn new(limit: Duration) -> Self {
        Self::with_clock(limit, Instant::now)
    }

    /// Begins to count by another clock.
    pub fn with_clock(
        limit: Duration,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Self {
        let since = Some(clock());
        Self {
            limit,
            clock: Box::new(clock),
            work: Mutex::new(Work {
                before: Duration::ZERO,
                since,
            }),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the time that counts so far.
    pub fn used(&self) -> Duration {
        let Work { before, since } = *self.work();
        let now = since.map(|since| (self.clock)().saturating_duration_since(since));
        before.saturating_add(now.unwrap_or_default())
    }

    /// Returns the time that is left.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.used())
    }

    /// Passes output to its reader with `write`, whose time does not count. Not to be called within itself.
    pub fn pause<T>(&self, write: impl FnOnce() -> T) -> T {
        let before = self.used();
        *self.work() = Work {
            before,
            since: None,
        };
        let result = write();
        self.work().since = Some((self.clock)());
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn time_of_the_reader_does_not_count() {
        let begin = Instant::now();
        let seconds = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&seconds);
        let clock = move || begin + Duration::from_secs(read.load(Ordering::Relaxed));
        let time = TimeLimit::with_clock(Duration::from_secs(10), clock);
        let pass = |count: u64| seconds.fetch_add(count, Ordering::Relaxed);
        pass(3);
        assert_eq!(time.left(), Duration::from_secs(7));
        let during = time.pause(|| {
            pass(1_000);
            time.left()
        });
        assert_eq!(during, Duration::from_secs(7));
        assert_eq!(time.left(), Duration::from_secs(7));
        pass(9);
        assert_eq!(time.left(), Duration::ZERO);
        assert_eq!(time.used(), Duration::from_secs(12));
    }
}
