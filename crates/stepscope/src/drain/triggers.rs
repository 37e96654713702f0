//! Triggers that make the flight recorder save: a signal, and slow steps.
//!
//! The drain thread detects both here; a separate thread saves, so that neither the program nor the
//! drain thread waits for a disk.
#![allow(unsafe_code, reason = "installs a signal handler")]

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::platform::clock::Pair;
use crate::ring::names;
use crate::ring::steps::{EndedStep, Listener};
use crate::ring::wakeup;

/// A save to perform: its reason, and how much of the past it covers.
#[derive(Debug)]
pub(crate) struct SaveTrigger {
    pub(crate) last: Duration,
    pub(crate) because: String,
}

/// The rule that classifies a step as slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowRule {
    pub(crate) times_median: f64,
    pub(crate) last: Duration,
    pub(crate) after_steps: usize,
    pub(crate) at_most_every: Duration,
}

/// The triggers that the drain thread polls.
pub(crate) struct Triggers {
    to: SyncSender<SaveTrigger>,
    /// Time that a signal saves, and the minimum interval between two saves.
    on_signal: Option<(Duration, Duration)>,
    last_signal: Option<Instant>,
    slow: Option<SlowSteps>,
}

struct SlowSteps {
    rule: SlowRule,
    listener: Listener,
    /// By name id of the steps: training and test steps are unrelated.
    histories: HashMap<u32, History>,
    first: Pair,
    state: u32,
    last_save: Option<Instant>,
}

/// Number of steps in the median.
const WINDOW: usize = 64;

/// The last steps of one name, in ticks.
#[derive(Default)]
struct History {
    recent: Vec<u64>,
    count: usize,
}

impl History {
    /// Adds a step; returns the median of the steps before it.
    fn add(&mut self, duration: u64) -> Option<u64> {
        let mut sorted = self.recent.clone();
        let median = match sorted.len() {
            0 => None,
            len => Some(*sorted.select_nth_unstable(len / 2).1),
        };
        if self.recent.len() < WINDOW {
            self.recent.push(duration);
        } else {
            self.recent[self.count % WINDOW] = duration;
        }
        self.count += 1;
        median
    }
}

impl SlowRule {
    /// Returns the step's duration as a multiple of the median, when the step is slow.
    fn slowdown(&self, history: &mut History, duration: u64) -> Option<f64> {
        let before = history.count;
        let median = history.add(duration)?;
        let times = duration as f64 / median.max(1) as f64;
        (before >= self.after_steps && times > self.times_median).then_some(times)
    }
}

impl Triggers {
    pub(crate) fn new(
        state: u32,
        to: SyncSender<SaveTrigger>,
        on_signal: Option<(Duration, Duration)>,
        slow: Option<SlowRule>,
    ) -> Self {
        SIGNALLED.store(false, Ordering::SeqCst);
        Self {
            to,
            on_signal,
            last_signal: None,
            slow: slow.map(|rule| SlowSteps {
                rule,
                listener: Listener::start(),
                histories: HashMap::new(),
                first: Pair::read(state),
                state,
                last_save: None,
            }),
        }
    }

    /// Checks for triggers since the last call.
    pub(crate) fn poll(&mut self) {
        if let Some((last, at_most_every)) = self.on_signal
            && SIGNALLED.swap(false, Ordering::SeqCst)
            && is_due(self.last_signal, at_most_every)
        {
            let because = "a signal".to_owned();
            // A save in progress serves the same purpose.
            if self.to.try_send(SaveTrigger { last, because }).is_ok() {
                self.last_signal = Some(Instant::now());
            }
        }
        if let Some(slow) = &mut self.slow {
            slow.poll(&self.to);
        }
    }
}

fn is_due(last: Option<Instant>, at_most_every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= at_most_every)
}

impl SlowSteps {
    fn poll(&mut self, to: &SyncSender<SaveTrigger>) {
        while let Some(step) = self.listener.next() {
            let history = self.histories.entry(step.name).or_default();
            let Some(times) = self.rule.slowdown(history, step.ticks) else {
                continue;
            };
            if !is_due(self.last_save, self.rule.at_most_every) {
                continue;
            }
            let trigger = SaveTrigger {
                // The whole step, whatever its duration.
                last: self.rule.last.max(self.duration(step.ticks)),
                because: reason(&step, times),
            };
            if to.try_send(trigger).is_ok() {
                self.last_save = Some(Instant::now());
            }
        }
    }

    fn duration(&self, ticks: u64) -> Duration {
        let now = Pair::read(self.state);
        let ns = (now.mono_ns - self.first.mono_ns).max(0) as f64;
        let rate = ns / now.ticks.saturating_sub(self.first.ticks).max(1) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "float to int conversion saturates"
        )]
        Duration::from_nanos((ticks as f64 * rate) as u64)
    }
}

fn reason(step: &EndedStep, times: f64) -> String {
    let number = step
        .number
        .map_or(String::new(), |number| format!(" {number}"));
    let name = match names::text(step.name) {
        Some(name) if name != "train" => format!(" of {name}"),
        _ => String::new(),
    };
    format!("step{number}{name} took {times:.1} × the median")
}

/// Whether the signal has arrived.
static SIGNALLED: AtomicBool = AtomicBool::new(false);
/// The signal with an installed handler, 0 for none.
static INSTALLED: AtomicI32 = AtomicI32::new(0);
/// The previous action of the signal; leaked, since a handler may be reading it.
static PREVIOUS_ACTION: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Makes this signal trigger a save; a previous handler is still called. Calls of this and of
/// [`release_signal`] must not overlap.
pub(crate) fn catch_signal(signal: i32) -> std::io::Result<()> {
    if INSTALLED.load(Ordering::SeqCst) == signal {
        return Ok(());
    }
    // SAFETY: an action of zeros is a valid value; both are valid for the call. The handler only
    // stores, wakes by a system call, and calls the one before it.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut before) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        PREVIOUS_ACTION.store(Box::into_raw(Box::new(before)), Ordering::SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        action.sa_mask = before.sa_mask;
        if libc::sigaction(signal, &raw const action, ptr::null_mut()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    INSTALLED.store(signal, Ordering::SeqCst);
    Ok(())
}

/// Restores the action from before [`catch_signal`], unless another handler has replaced ours.
pub(crate) fn release_signal() {
    let signal = INSTALLED.swap(0, Ordering::SeqCst);
    let before = PREVIOUS_ACTION.load(Ordering::SeqCst);
    if signal == 0 || before.is_null() {
        return;
    }
    // SAFETY: `before` is leaked, and the system filled it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut now);
        if now.sa_sigaction == on_signal as *const () as libc::sighandler_t {
            libc::sigaction(signal, before, ptr::null_mut());
        }
    }
}

extern "C" fn on_signal(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the calling thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    SIGNALLED.store(true, Ordering::SeqCst);
    wakeup::wake();
    // SAFETY: leaked; filled before this handler was installed.
    if let Some(before) = unsafe { PREVIOUS_ACTION.load(Ordering::SeqCst).as_ref() } {
        let handler = before.sa_sigaction;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            // SAFETY: the system had this address as a handler of the type that the flag selects.
            unsafe {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    type Handler =
                        extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                    let handler: Handler = std::mem::transmute(handler);
                    handler(signal, information, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }
    // SAFETY: the calling thread's errno, which is valid for the thread's life.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_slow_relative_to_the_previous_median() {
        let rule = SlowRule {
            times_median: 2.0,
            last: Duration::from_secs(5),
            after_steps: 10,
            at_most_every: Duration::ZERO,
        };
        let mut history = History::default();
        assert_eq!(rule.slowdown(&mut history, 1_000), None);
        for n in 0..9 {
            assert_eq!(rule.slowdown(&mut history, 90 + n), None, "too early");
        }
        assert_eq!(rule.slowdown(&mut history, 150), None);
        let times = rule.slowdown(&mut history, 300).unwrap();
        assert!((3.0..3.4).contains(&times), "{times}");
        for _ in 0..WINDOW {
            let _ = rule.slowdown(&mut history, 1_000);
        }
        assert_eq!(
            rule.slowdown(&mut history, 1_500),
            None,
            "the median has moved"
        );
    }

    #[test]
    fn signals_trigger_no_more_often_than_allowed() {
        let (to, from) = std::sync::mpsc::sync_channel(8);
        for (at_most_every, expected) in [(Duration::from_hours(1), 1), (Duration::ZERO, 2)] {
            let on_signal = Some((Duration::from_secs(5), at_most_every));
            let mut triggers = Triggers::new(0, to.clone(), on_signal, None);
            triggers.poll();
            for _ in 0..2 {
                SIGNALLED.store(true, Ordering::SeqCst);
                triggers.poll();
                triggers.poll();
            }
            assert_eq!(from.try_iter().count(), expected, "{at_most_every:?}");
        }
    }

    #[test]
    fn slow_steps_trigger_no_more_often_than_allowed() {
        let hour = Duration::from_hours(1);
        assert!(is_due(None, hour));
        assert!(!is_due(Some(Instant::now()), hour));
        assert!(is_due(Some(Instant::now()), Duration::ZERO));
    }

    #[test]
    fn a_reason_names_the_step() {
        let step = EndedStep {
            ticks: 5,
            name: 0,
            number: Some(812),
        };
        assert_eq!(reason(&step, 3.12), "step 812 took 3.1 × the median");
    }
}
