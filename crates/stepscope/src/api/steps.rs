//! How long steps take, also while nothing is recorded: for servers that are asked for step times,
//! and for the flight recorder's slow steps.
//!
//! Steps look at one word ([`STEP_STATE`]), which is the recorder's state and one bit more: somebody
//! wants their times. Only then does a step keep its begin when nothing is recorded, and
//! go through the cold path when it ends. Spans know nothing of this.
//!
//! Nothing here allocates or locks where a step begins or ends. Watches are kept in a list for ever, and
//! used again.
#![allow(unsafe_code, reason = "a list that is read without a lock")]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::clock::{self, Pair};
use crate::ring::writer::{STEP_STATE, WATCHED};

/// Times of the steps that end while it lives, on any thread; [`step`](crate::step) and
/// [`step_named`](crate::step_named) make steps. Works whether or not anything is recorded.
///
/// ```
/// let watch = stepscope::StepWatch::start();
/// drop(stepscope::step(1));
/// assert_eq!(watch.times().count, 1);
/// ```
///
/// While there is one, a step costs about 50 ns more; spans cost nothing more.
#[derive(Debug)]
pub struct StepWatch {
    totals: &'static Totals,
    first: Pair,
}

/// Times of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepTimes {
    /// Steps that ended since the watch began.
    pub count: u64,
    /// The shortest; zero when there was none, as all below.
    pub min: Duration,
    /// The mean.
    pub mean: Duration,
    /// The longest.
    pub max: Duration,
    /// The one that ended last.
    pub last: Duration,
}

/// What a watch sums up, in ticks.
#[derive(Debug)]
struct Totals {
    next: AtomicPtr<Totals>,
    used: AtomicBool,
    count: AtomicU64,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    last: AtomicU64,
}

static WATCHES: AtomicPtr<Totals> = AtomicPtr::new(std::ptr::null_mut());
/// Watches, and users of [`next_ended`].
static USERS: AtomicU32 = AtomicU32::new(0);
/// The clock's bit of the state, for steps that are not recorded.
static CLOCK: AtomicU32 = AtomicU32::new(0);

fn watches() -> impl Iterator<Item = &'static Totals> {
    let mut at = WATCHES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: the list's members are leaked, and written before they are put in.
        let totals: &'static Totals = unsafe { at.as_ref() }?;
        at = totals.next.load(Ordering::Acquire);
        Some(totals)
    })
}

/// From now on steps tell when they end.
pub(crate) fn begin_use() {
    CLOCK.store(clock::choose(), Ordering::Relaxed);
    if USERS.fetch_add(1, Ordering::SeqCst) == 0 {
        STEP_STATE.fetch_or(WATCHED, Ordering::SeqCst);
    }
}

/// The reverse of [`begin_use`].
pub(crate) fn end_use() {
    if USERS.fetch_sub(1, Ordering::SeqCst) == 1 {
        STEP_STATE.fetch_and(!WATCHED, Ordering::SeqCst);
        // Somebody may have begun in between.
        if USERS.load(Ordering::SeqCst) > 0 {
            STEP_STATE.fetch_or(WATCHED, Ordering::SeqCst);
        }
    }
}

impl StepWatch {
    /// Watches from now on.
    #[allow(clippy::new_without_default, reason = "starting one has an effect")]
    pub fn start() -> Self {
        let claim = |totals: &&Totals| {
            totals
                .used
                .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let totals = watches().find(claim).unwrap_or_else(Totals::make);
        begin_use();
        // What ended between the claim and now, in another thread, does not count.
        totals.reset();
        Self {
            totals,
            first: Pair::read(CLOCK.load(Ordering::Relaxed)),
        }
    }

    /// Of the steps that have ended since the start. Waits, for the first millisecond of a watch, until
    /// there is a clock to convert by.
    pub fn times(&self) -> StepTimes {
        let totals = self.totals;
        let count = totals.count.load(Ordering::Acquire);
        if count == 0 {
            return StepTimes::default();
        }
        let rate = self.ns_per_tick();
        #[allow(
            clippy::cast_possible_truncation,
            reason = "rounded; float to int conversion saturates"
        )]
        let duration = |ticks: f64| Duration::from_nanos((ticks * rate).round() as u64);
        let read = |ticks: &AtomicU64| ticks.load(Ordering::Relaxed) as f64;
        StepTimes {
            count,
            min: duration(read(&totals.min)),
            mean: duration(read(&totals.sum) / count as f64),
            max: duration(read(&totals.max)),
            last: duration(read(&totals.last)),
        }
    }

    fn ns_per_tick(&self) -> f64 {
        loop {
            let now = Pair::read(CLOCK.load(Ordering::Relaxed));
            let ns = now.mono_ns - self.first.mono_ns;
            if ns >= 1_000_000 {
                return ns as f64 / (now.ticks - self.first.ticks).max(1) as f64;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for StepWatch {
    fn drop(&mut self) {
        end_use();
        self.totals.used.store(false, Ordering::Release);
    }
}

impl Totals {
    fn make() -> &'static Self {
        let made: &'static Self = Box::leak(Box::new(Self {
            next: AtomicPtr::new(std::ptr::null_mut()),
            used: AtomicBool::new(true),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }));
        let mut first = WATCHES.load(Ordering::Relaxed);
        loop {
            made.next.store(first, Ordering::Relaxed);
            let new = std::ptr::from_ref(made).cast_mut();
            match WATCHES.compare_exchange(first, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return made,
                Err(now) => first = now,
            }
        }
    }

    fn reset(&self) {
        self.sum.store(0, Ordering::Relaxed);
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Release);
    }

    fn add(&self, ticks: u64) {
        self.sum.fetch_add(ticks, Ordering::Relaxed);
        self.min.fetch_min(ticks, Ordering::Relaxed);
        self.max.fetch_max(ticks, Ordering::Relaxed);
        self.last.store(ticks, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// The moment at which a step that is not recorded begins, and the state for its guard.
pub(crate) fn begin_unrecorded() -> (u64, u32) {
    let state = CLOCK.load(Ordering::Relaxed);
    (clock::ticks(state), state | WATCHED)
}

/// A step has begun.
pub(crate) fn began(begin: u64, number: i64) {
    if LISTENING.load(Ordering::Relaxed) {
        BEGUN.put([begin, number.cast_unsigned(), 0]);
    }
}

/// A step has ended; its name's number is `name`.
pub(crate) fn ended(begin: u64, end: u64, name: u32) {
    let ticks = end.saturating_sub(begin);
    for totals in watches().filter(|totals| totals.used.load(Ordering::Relaxed)) {
        totals.add(ticks);
    }
    if LISTENING.load(Ordering::Relaxed) {
        ENDED.put([begin, ticks, u64::from(name)]);
    }
}

/// Somebody reads [`next_ended`].
static LISTENING: AtomicBool = AtomicBool::new(false);
static BEGUN: Recent = Recent::new();
static ENDED: Recent = Recent::new();

/// A step that has ended, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedStep {
    pub(crate) took: u64,
    /// Number of its name.
    pub(crate) name: u32,
    /// The number that the program gave it, when it is still known.
    pub(crate) number: Option<i64>,
}

/// Reads the steps that end, one after the other. One at a time.
#[derive(Debug)]
pub(crate) struct Listener {
    next: u64,
}

impl Listener {
    /// From now on.
    pub(crate) fn start() -> Self {
        begin_use();
        LISTENING.store(true, Ordering::SeqCst);
        Self {
            next: ENDED.count.load(Ordering::Acquire),
        }
    }

    /// The next one. When more have ended than are kept, the oldest are passed over.
    pub(crate) fn next(&mut self) -> Option<EndedStep> {
        let count = ENDED.count.load(Ordering::Acquire);
        self.next = self.next.max(count.saturating_sub(RECENT as u64));
        while self.next < count {
            let found = ENDED.get(self.next);
            self.next += 1;
            if let Some([begin, took, name]) = found {
                let begun = BEGUN.count.load(Ordering::Acquire);
                let number = (begun.saturating_sub(RECENT as u64)..begun)
                    .rev()
                    .filter_map(|at| BEGUN.get(at))
                    .find(|words| words[0] == begin)
                    .map(|words| words[1].cast_signed());
                return Some(EndedStep {
                    took,
                    name: u32::try_from(name).unwrap_or(0),
                    number,
                });
            }
        }
        None
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.store(false, Ordering::SeqCst);
        end_use();
    }
}

/// In a child after a fork: the listener was the parent's.
pub(crate) fn after_fork_in_child() {
    if LISTENING.swap(false, Ordering::SeqCst) {
        end_use();
    }
}

/// Entries that are kept.
const RECENT: usize = 256;

/// The last few entries that any thread put.
struct Recent {
    count: AtomicU64,
    entries: [Entry; RECENT],
}

/// `sequence` is the number of the entry plus 1; 0 while it is being written.
struct Entry {
    sequence: AtomicU64,
    words: [AtomicU64; 3],
}

#[allow(clippy::cast_possible_truncation, reason = "less than RECENT")]
fn place(number: u64) -> usize {
    (number % RECENT as u64) as usize
}

impl Recent {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            entries: [const {
                Entry {
                    sequence: AtomicU64::new(0),
                    words: [const { AtomicU64::new(0) }; 3],
                }
            }; RECENT],
        }
    }

    fn put(&self, words: [u64; 3]) {
        let number = self.count.fetch_add(1, Ordering::AcqRel);
        let entry = &self.entries[place(number)];
        entry.sequence.store(0, Ordering::SeqCst);
        for (place, word) in entry.words.iter().zip(words) {
            place.store(word, Ordering::SeqCst);
        }
        entry.sequence.store(number + 1, Ordering::SeqCst);
    }

    fn get(&self, number: u64) -> Option<[u64; 3]> {
        let entry = &self.entries[place(number)];
        let whole = || entry.sequence.load(Ordering::SeqCst) == number + 1;
        if !whole() {
            return None;
        }
        let words = [0, 1, 2].map(|at: usize| entry.words[at].load(Ordering::SeqCst));
        whole().then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_kept_whole() {
        let recent = Recent::new();
        for n in 0..300 {
            recent.put([n, n + 1, n + 2]);
        }
        assert_eq!(recent.get(10), None);
        assert_eq!(recent.get(299), Some([299, 300, 301]));
        assert_eq!(recent.get(44), Some([44, 45, 46]));
        assert_eq!(recent.get(300), None);
    }
}
