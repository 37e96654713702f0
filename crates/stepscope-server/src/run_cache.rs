//! Computed values of open runs, kept for the next requests.

use std::sync::{Arc, Weak};

use stepscope_engine::Run;

/// A cached value and the run that it belongs to.
pub(crate) struct Cached<T> {
    run: Weak<Run>,
    pub(crate) value: Arc<T>,
}

impl<T> Cached<T> {
    /// Returns whether the value belongs to a run.
    pub(crate) fn is_of(&self, run: &Arc<Run>) -> bool {
        std::ptr::eq(self.run.as_ptr(), Arc::as_ptr(run))
    }

    /// Inserts a value as the newest one, and drops the oldest and those of closed runs.
    pub(crate) fn insert(cache: &mut Vec<Self>, run: &Arc<Run>, value: Arc<T>, most: usize) {
        cache.retain(|known| known.run.strong_count() > 0);
        let run = Arc::downgrade(run);
        cache.insert(0, Self { run, value });
        cache.truncate(most);
    }

    /// Drops the oldest values until all but the newest one take at most `most` bytes.
    pub(crate) fn limit_older(cache: &mut Vec<Self>, most: usize, bytes: impl Fn(&T) -> usize) {
        let older = cache.iter().skip(1);
        let sums = older.scan(0_usize, |sum, known| {
            *sum = sum.saturating_add(bytes(&known.value));
            Some(*sum)
        });
        let fitting = sums.take_while(|sum| *sum <= most).count();
        cache.truncate(fitting + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_stays_and_older_ones_up_to_a_bound() {
        let value = |bytes: usize| Cached {
            run: Weak::new(),
            value: Arc::new(bytes),
        };
        let left = |sizes: &[usize], most: usize| {
            let mut cache: Vec<Cached<usize>> = sizes.iter().map(|bytes| value(*bytes)).collect();
            Cached::limit_older(&mut cache, most, |bytes| *bytes);
            cache.len()
        };
        assert_eq!(left(&[100, 10, 10, 10], 20), 3);
        assert_eq!(left(&[100], 20), 1);
        assert_eq!(left(&[1, 100, 1], 20), 1);
        assert_eq!(left(&[], 20), 0);
    }
}
