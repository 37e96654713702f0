//! Step times, also while nothing is recorded: for servers that report step times, and for the
//! flight recorder's slow steps. And the number of the program's step, for recordings of some steps.
//!
//! Steps load one word ([`STEP_STATE`]): the recorder's state and one more bit, which is set while
//! a listener measures steps. Only then does a step store its start when nothing is recorded, and
//! take the cold path when it ends. Spans are not affected.
//!
//! Nothing here allocates or locks where a step starts or ends. Watches stay in a list for ever and
//! are reused.
#![allow(unsafe_code, reason = "a list that is read without a lock")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::clock::{self, Pair};
use crate::ring::session_state::{STEP_STATE, WATCHED};

/// A measurement of the steps that end while it lives, on any thread; [`step`](crate::step) and
/// [`step_named`](crate::step_named) create steps. It works whether or not anything is recorded.
///
/// ```
/// let watch = stepscope::StepWatch::start();
/// drop(stepscope::step(1));
/// assert_eq!(watch.times().count, 1);
/// ```
///
/// While at least one exists, a step costs about 50 ns more; spans cost nothing more.
#[derive(Debug)]
pub struct StepWatch {
    totals: &'static Totals,
    first: Pair,
}

/// Durations of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepTimes {
    /// Number of steps that ended since the watch started.
    pub count: u64,
    /// Minimum; zero when no step ended, like all values below.
    pub min: Duration,
    /// Mean.
    pub mean: Duration,
    /// Maximum.
    pub max: Duration,
    /// Duration of the step that ended last.
    pub last: Duration,
}

/// Sums of a watch, in ticks.
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
/// Number of watches and [`Listener`]s.
static USERS: AtomicU32 = AtomicU32::new(0);
/// The clock's bit of the state, for steps that are not recorded.
static CLOCK: AtomicU32 = AtomicU32::new(0);

fn watches() -> impl Iterator<Item = &'static Totals> {
    let mut at = WATCHES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: the list's members are leaked, and initialized before they are inserted.
        let totals: &'static Totals = unsafe { at.as_ref() }?;
        at = totals.next.load(Ordering::Acquire);
        Some(totals)
    })
}

/// Makes steps report their ends.
pub(crate) fn add_user() {
    CLOCK.store(clock::choose(), Ordering::Relaxed);
    if USERS.fetch_add(1, Ordering::SeqCst) == 0 {
        STEP_STATE.fetch_or(WATCHED, Ordering::SeqCst);
    }
}

/// Ends a [`add_user`].
pub(crate) fn remove_user() {
    if USERS.fetch_sub(1, Ordering::SeqCst) == 1 {
        STEP_STATE.fetch_and(!WATCHED, Ordering::SeqCst);
        // Another user may have started in between.
        if USERS.load(Ordering::SeqCst) > 0 {
            STEP_STATE.fetch_or(WATCHED, Ordering::SeqCst);
        }
    }
}

impl StepWatch {
    /// Starts a watch.
    #[allow(clippy::new_without_default, reason = "starting one has an effect")]
    pub fn start() -> Self {
        let claim = |totals: &&Totals| {
            totals
                .used
                .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let totals = watches().find(claim).unwrap_or_else(Totals::create);
        add_user();
        // Steps that ended in another thread between the claim and now do not count.
        totals.reset();
        Self {
            totals,
            first: Pair::read(CLOCK.load(Ordering::Relaxed)),
        }
    }

    /// Returns the times of the steps that have ended since the start. In the first millisecond of
    /// a watch it waits, until the clock can be converted.
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
        remove_user();
        self.totals.used.store(false, Ordering::Release);
    }
}

impl Totals {
    fn create() -> &'static Self {
        let totals: &'static Self = Box::leak(Box::new(Self {
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
            totals.next.store(first, Ordering::Relaxed);
            let new = std::ptr::from_ref(totals).cast_mut();
            match WATCHES.compare_exchange(first, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return totals,
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

/// Returns the start time of a step that is not recorded, and the state for its guard.
pub(crate) fn begin_unrecorded() -> (u64, u32) {
    let state = CLOCK.load(Ordering::Relaxed);
    (clock::ticks(state), state | WATCHED)
}

/// Reports the start of a step. `count` is that of [`count`].
pub(crate) fn began(begin: u64, number: i64, count: u64) {
    if count > 0 && BOUNDS.get().is_some_and(|bounds| bounds.last == count) {
        LAST_BEGIN.store(begin, Ordering::Relaxed);
    }
    if LISTENING.load(Ordering::Relaxed) {
        STARTED.put([begin, number.cast_unsigned(), 0]);
    }
}

/// Reports the end of a step; `name` is the id of its name.
pub(crate) fn ended(begin: u64, end: u64, name: u32) {
    let ticks = end.saturating_sub(begin);
    for totals in watches().filter(|totals| totals.used.load(Ordering::Relaxed)) {
        totals.add(ticks);
    }
    if LISTENING.load(Ordering::Relaxed) {
        ENDED.put([begin, ticks, u64::from(name)]);
    }
    if LAST_BEGIN.load(Ordering::Relaxed) == begin
        && let Some(bounds) = BOUNDS.get()
        && LAST_BEGIN.swap(0, Ordering::Relaxed) == begin
    {
        (bounds.after_last)();
    }
}

/// The steps at which a recording begins and ends, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepBounds {
    pub(crate) first: u64,
    /// `u64::MAX` for a recording without a last step.
    pub(crate) last: u64,
    /// Called before the first step begins, on its thread.
    pub(crate) before_first: fn(),
    /// Called after the last step has ended or, if another step begins earlier, before that one.
    pub(crate) after_last: fn(),
}

/// A process has at most one recording of some steps.
static BOUNDS: OnceLock<StepBounds> = OnceLock::new();
/// Number of steps that have begun since [`BOUNDS`] were set.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Start of the last step while it is open, in ticks; 0 otherwise.
static LAST_BEGIN: AtomicU64 = AtomicU64::new(0);

/// Counts steps from now on. Returns `false` if they are counted already. The caller ends it with [`remove_user`].
pub(crate) fn set_bounds(bounds: StepBounds) -> bool {
    let is_first = BOUNDS.set(bounds).is_ok();
    if is_first {
        add_user();
    }
    is_first
}

/// Returns the number of steps that have begun since [`set_bounds`].
pub(crate) fn counted() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Counts a step that is about to begin. Returns its number from 1, or 0 if steps are not counted. A recording may have
/// begun or ended when this returns.
pub(crate) fn count() -> u64 {
    let Some(bounds) = BOUNDS.get() else { return 0 };
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if number == bounds.first {
        (bounds.before_first)();
    } else if bounds.last.checked_add(1) == Some(number) {
        (bounds.after_last)();
    }
    number
}

/// Whether a [`Listener`] exists.
static LISTENING: AtomicBool = AtomicBool::new(false);
static STARTED: Recent = Recent::new();
static ENDED: Recent = Recent::new();

/// A step that has ended, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedStep {
    pub(crate) ticks: u64,
    /// Id of its name.
    pub(crate) name: u32,
    /// The number given by the program, while it is still stored.
    pub(crate) number: Option<i64>,
}

/// Reads ended steps in order. At most one exists.
#[derive(Debug)]
pub(crate) struct Listener {
    next: u64,
}

impl Listener {
    /// Starts to listen.
    pub(crate) fn start() -> Self {
        add_user();
        LISTENING.store(true, Ordering::SeqCst);
        Self {
            next: ENDED.count.load(Ordering::Acquire),
        }
    }

    /// Returns the next step. When more have ended than are stored, the oldest are skipped.
    pub(crate) fn next(&mut self) -> Option<EndedStep> {
        let count = ENDED.count.load(Ordering::Acquire);
        self.next = self.next.max(count.saturating_sub(RECENT as u64));
        while self.next < count {
            let found = ENDED.get(self.next);
            self.next += 1;
            if let Some([begin, ticks, name]) = found {
                let started = STARTED.count.load(Ordering::Acquire);
                let number = (started.saturating_sub(RECENT as u64)..started)
                    .rev()
                    .filter_map(|at| STARTED.get(at))
                    .find(|words| words[0] == begin)
                    .map(|words| words[1].cast_signed());
                return Some(EndedStep {
                    ticks,
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
        remove_user();
    }
}

/// Ends listening in a fork's child: the listener belongs to the parent.
pub(crate) fn after_fork_in_child() {
    if LISTENING.swap(false, Ordering::SeqCst) {
        remove_user();
    }
}

/// Number of stored entries.
const RECENT: usize = 256;

/// A lock-free ring of the latest entries of all threads.
struct Recent {
    count: AtomicU64,
    entries: [Entry; RECENT],
}

/// An entry. `sequence` is its number plus 1; 0 while it is being written.
struct Entry {
    sequence: AtomicU64,
    words: [AtomicU64; 3],
}

#[allow(clippy::cast_possible_truncation, reason = "less than RECENT")]
fn entry_index(number: u64) -> usize {
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
        let entry = &self.entries[entry_index(number)];
        entry.sequence.store(0, Ordering::SeqCst);
        for (slot, word) in entry.words.iter().zip(words) {
            slot.store(word, Ordering::SeqCst);
        }
        entry.sequence.store(number + 1, Ordering::SeqCst);
    }

    fn get(&self, number: u64) -> Option<[u64; 3]> {
        let entry = &self.entries[entry_index(number)];
        let is_complete = || entry.sequence.load(Ordering::SeqCst) == number + 1;
        if !is_complete() {
            return None;
        }
        let words = [0, 1, 2].map(|at: usize| entry.words[at].load(Ordering::SeqCst));
        is_complete().then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_entries_are_complete() {
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
