//! Labels for a profile of torch's: kept in memory while it records, independently of any recording.
//!
//! A recording of ours would stand in the way of the program's own, of which there is one at a time. All
//! state is guarded by the interpreter's lock. Nothing here is touched while no profile is running but
//! one word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stepscope::SpanArgValue;
use stepscope_model::clock::unix_now_ns;

use crate::calls::Locked;

/// Number of the log that is on; 0 for none.
static ON: AtomicU32 = AtomicU32::new(0);
static LOG: Locked<Option<Log>> = Locked::new(None);

/// Most labels of one log.
const MAX_LABELS: usize = 1 << 20;

struct Log {
    number: u32,
    begun: Instant,
    begun_unix_ns: u64,
    labels: Vec<Label>,
    /// Labels that found no room.
    dropped: u64,
}

struct Label {
    name: String,
    thread: i32,
    begin_ns: u64,
    /// None while it is open.
    end_ns: Option<u64>,
    args: Vec<(String, Arg)>,
}

enum Arg {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(String),
}

/// A label that has begun: the number of its log, and its place there.
#[derive(Clone, Copy)]
pub(crate) struct OpenLabel(u32, usize);

impl Log {
    /// Now, as nanoseconds since 1970; setting the clock does not change it.
    fn now_unix_ns(&self) -> u64 {
        let since = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.begun_unix_ns.saturating_add(since)
    }

    fn find(&mut self, begun: OpenLabel) -> Option<&mut Label> {
        if self.number == begun.0 {
            self.labels.get_mut(begun.1)
        } else {
            None
        }
    }
}

/// Whether labels are kept.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// Begins a label, if they are kept.
#[cold]
pub(crate) fn begin(
    py: Python<'_>,
    name: &str,
    args: &[(&str, SpanArgValue<'_>)],
) -> Option<OpenLabel> {
    let args = args.iter().map(owned).collect();
    LOG.with(py, |log| {
        let log = log.as_mut()?;
        if log.labels.len() == MAX_LABELS {
            log.dropped += 1;
            return None;
        }
        log.labels.push(Label {
            name: name.to_owned(),
            thread: thread_id(),
            begin_ns: log.now_unix_ns(),
            end_ns: None,
            args,
        });
        Some(OpenLabel(log.number, log.labels.len() - 1))
    })
}

/// Adds arguments to a label that has begun.
#[cold]
pub(crate) fn add(py: Python<'_>, begun: OpenLabel, args: &[(&str, SpanArgValue<'_>)]) {
    let args: Vec<_> = args.iter().map(owned).collect();
    LOG.with(py, |log| {
        if let Some(label) = log.as_mut().and_then(|log| log.find(begun)) {
            label.args.extend(args);
        }
    });
}

/// Ends a label.
#[cold]
pub(crate) fn end(py: Python<'_>, begun: OpenLabel) {
    LOG.with(py, |log| {
        if let Some(log) = log {
            let now = log.now_unix_ns();
            if let Some(label) = log.find(begun) {
                label.end_ns = Some(now);
            }
        }
    });
}

fn owned((name, value): &(&str, SpanArgValue<'_>)) -> (String, Arg) {
    let value = match *value {
        SpanArgValue::Int(number) => Arg::Int(number),
        SpanArgValue::Uint(number) => Arg::Uint(number),
        SpanArgValue::Double(number) => Arg::Double(number),
        SpanArgValue::Bool(truth) => Arg::Bool(truth),
        SpanArgValue::Str(text) => Arg::Text(text.to_owned()),
    };
    ((*name).to_owned(), value)
}

#[allow(unsafe_code, reason = "a system call without arguments")]
fn thread_id() -> i32 {
    // SAFETY: it cannot fail.
    unsafe { libc::gettid() }
}

/// Keeps labels from now on; false when that is so already.
#[pyfunction]
pub(crate) fn start_label_log(py: Python<'_>) -> bool {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    LOG.with(py, |log| {
        if log.is_some() {
            return false;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
        *log = Some(Log {
            number,
            begun: Instant::now(),
            begun_unix_ns: u64::try_from(unix_now_ns()).unwrap_or(0),
            labels: Vec::new(),
            dropped: 0,
        });
        ON.store(number, Ordering::Relaxed);
        true
    })
}

/// A label: name, thread, begin and end as nanoseconds since 1970, and arguments.
type Taken<'py> = (String, i32, u64, u64, Bound<'py, PyDict>);

/// Ends that. The labels, those that are open up to now, and how many found no room.
#[pyfunction]
pub(crate) fn stop_label_log(py: Python<'_>) -> PyResult<(Vec<Taken<'_>>, u64)> {
    ON.store(0, Ordering::Relaxed);
    let Some(log) = LOG.with(py, Option::take) else {
        return Ok((Vec::new(), 0));
    };
    let now = log.now_unix_ns();
    let mut taken = Vec::with_capacity(log.labels.len());
    for label in log.labels {
        let args = PyDict::new(py);
        for (name, value) in label.args {
            match value {
                Arg::Int(number) => args.set_item(name, number)?,
                Arg::Uint(number) => args.set_item(name, number)?,
                Arg::Double(number) => args.set_item(name, number)?,
                Arg::Bool(truth) => args.set_item(name, truth)?,
                Arg::Text(text) => args.set_item(name, text)?,
            }
        }
        let end = label.end_ns.unwrap_or(now);
        taken.push((label.name, label.thread, label.begin_ns, end, args));
    }
    Ok((taken, log.dropped))
}

/// In a fork's child: the profile is the parent's.
#[pyfunction]
pub(crate) fn forget_label_log(py: Python<'_>) {
    ON.store(0, Ordering::Relaxed);
    drop(LOG.with(py, Option::take));
}
