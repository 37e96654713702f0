//! What makes the flight recorder save by itself: a signal, and steps that took too long.
//!
//! Both are only noticed here, by the drain thread; the saving is done by a thread of its own, so that
//! neither the program nor the draining waits for a disk.
#![allow(unsafe_code, reason = "installs a signal handler")]

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::api::names;
use crate::api::steps::{EndedStep, Listener};
use crate::drain::wakeup;
use crate::platform::clock::Pair;

/// Why something is to be saved, and how much of the past.
#[derive(Debug)]
pub(crate) struct Occasion {
    pub(crate) last: Duration,
    pub(crate) because: String,
}

/// When a step is slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowRule {
    pub(crate) times_median: f64,
    pub(crate) last: Duration,
    pub(crate) after_steps: usize,
    pub(crate) at_most_every: Duration,
}

/// Looks for occasions, in the drain thread.
pub(crate) struct Triggers {
    to: SyncSender<Occasion>,
    /// What a signal saves, and how often at most.
    on_signal: Option<(Duration, Duration)>,
    last_signal: Option<Instant>,
    slow: Option<SlowSteps>,
}

struct SlowSteps {
    rule: SlowRule,
    listener: Listener,
    /// By number of the steps' name: training and test steps have nothing in common.
    histories: HashMap<u32, History>,
    first: Pair,
    state: u32,
    last_save: Option<Instant>,
}

/// Steps whose median is taken.
const WINDOW: usize = 64;

/// The last steps of one name, in ticks.
#[derive(Default)]
struct History {
    recent: Vec<u64>,
    count: usize,
}

impl History {
    /// Adds a step; the median of those before it.
    fn add(&mut self, took: u64) -> Option<u64> {
        let mut sorted = self.recent.clone();
        let median = match sorted.len() {
            0 => None,
            len => Some(*sorted.select_nth_unstable(len / 2).1),
        };
        if self.recent.len() < WINDOW {
            self.recent.push(took);
        } else {
            self.recent[self.count % WINDOW] = took;
        }
        self.count += 1;
        median
    }
}

impl SlowRule {
    /// How many times the median a step took, if that is too long.
    fn judge(&self, history: &mut History, took: u64) -> Option<f64> {
        let before = history.count;
        let median = history.add(took)?;
        let times = took as f64 / median.max(1) as f64;
        (before >= self.after_steps && times > self.times_median).then_some(times)
    }
}

impl Triggers {
    pub(crate) fn new(
        state: u32,
        to: SyncSender<Occasion>,
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

    /// Looks for what has happened since the last time.
    pub(crate) fn look(&mut self) {
        if let Some((last, at_most_every)) = self.on_signal
            && SIGNALLED.swap(false, Ordering::SeqCst)
            && is_due(self.last_signal, at_most_every)
        {
            let because = "a signal".to_owned();
            // A save that is under way is as good.
            if self.to.try_send(Occasion { last, because }).is_ok() {
                self.last_signal = Some(Instant::now());
            }
        }
        if let Some(slow) = &mut self.slow {
            slow.look(&self.to);
        }
    }
}

fn is_due(last: Option<Instant>, at_most_every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= at_most_every)
}

impl SlowSteps {
    fn look(&mut self, to: &SyncSender<Occasion>) {
        while let Some(step) = self.listener.next() {
            let history = self.histories.entry(step.name).or_default();
            let Some(times) = self.rule.judge(history, step.took) else {
                continue;
            };
            if !is_due(self.last_save, self.rule.at_most_every) {
                continue;
            }
            let occasion = Occasion {
                // All of the step, however long it took.
                last: self.rule.last.max(self.duration(step.took)),
                because: reason(&step, times),
            };
            if to.try_send(occasion).is_ok() {
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

/// A signal has come.
static SIGNALLED: AtomicBool = AtomicBool::new(false);
/// The signal that the handler is installed for, 0 for none.
static INSTALLED: AtomicI32 = AtomicI32::new(0);
/// What handled it before; leaked, since a handler may be reading it.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// From now on this signal makes the flight recorder save; a handler that was there is still called.
/// One at a time, as [`release_signal`].
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
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::SeqCst);
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

/// Puts back what was there before [`catch_signal`], unless somebody has replaced ours.
pub(crate) fn release_signal() {
    let signal = INSTALLED.swap(0, Ordering::SeqCst);
    let before = BEFORE.load(Ordering::SeqCst);
    if signal == 0 || before.is_null() {
        return;
    }
    // SAFETY: `before` is leaked, and was filled by the system.
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
    // SAFETY: the calling thread's own errno, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    SIGNALLED.store(true, Ordering::SeqCst);
    wakeup::ring();
    // SAFETY: leaked; filled before this handler was installed.
    if let Some(before) = unsafe { BEFORE.load(Ordering::SeqCst).as_ref() } {
        let handler = before.sa_sigaction;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            // SAFETY: the system knew this as a handler of the kind that the flag says.
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
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_slow_beside_those_before_it() {
        let rule = SlowRule {
            times_median: 2.0,
            last: Duration::from_secs(5),
            after_steps: 10,
            at_most_every: Duration::ZERO,
        };
        let mut history = History::default();
        assert_eq!(rule.judge(&mut history, 1_000), None);
        for n in 0..9 {
            assert_eq!(rule.judge(&mut history, 90 + n), None, "too early");
        }
        assert_eq!(rule.judge(&mut history, 150), None);
        let times = rule.judge(&mut history, 300).unwrap();
        assert!((3.0..3.4).contains(&times), "{times}");
        for _ in 0..WINDOW {
            let _ = rule.judge(&mut history, 1_000);
        }
        assert_eq!(
            rule.judge(&mut history, 1_500),
            None,
            "the median has moved"
        );
    }

    #[test]
    fn a_reason_names_the_step() {
        let step = EndedStep {
            took: 5,
            name: 0,
            number: Some(812),
        };
        assert_eq!(reason(&step, 3.12), "step 812 took 3.1 × the median");
    }
}
