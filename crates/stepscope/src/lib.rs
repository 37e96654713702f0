//! Records spans, steps and counters of a program, at nanosecond cost, into files that stepscope,
//! XProf, TensorBoard and `jax.profiler.ProfileData` read.
//!
//! ```no_run
//! # fn main() -> Result<(), stepscope::SessionError> {
//! stepscope::start_trace("logs")?;
//! for n in 0..10 {
//!     let _step = stepscope::step(n);
//!     let _forward = stepscope::span!("forward", batch = 32);
//!     stepscope::counter("loss", 1.0 / (n + 1) as f64);
//! }
//! let report = stepscope::stop_trace()?;
//! println!("{}", report.path.display());
//! # Ok(())
//! # }
//! ```
//!
//! * **Off**, a span costs one relaxed load and a branch. **On**, it costs two reads of the
//!   time-stamp counter and a 24-byte record in the thread's own ring: no lock, no allocation and no
//!   system call once a thread has its ring (but for one that wakes the recorder after idleness).
//! * **A killed program loses nothing but the last moment**: the rings lie in files of the session's
//!   folder, and [`recover`] turns them into an ordinary run.
//! * **The last seconds are always there**, with the flight recorder ([`start_flight`]).
//! * **The program survives us**: no panic, signal or lock of ours reaches it; a full disk, a fork,
//!   a second start or stop are error values or warnings.
//!
//! Reading order: [`mod@span`] (the verbs; [`open`] for other languages, [`calls`] and [`beside`]
//! for their tracers and samplers), [`session`] (start and stop), `ring`,
//! `region` and `layout` (the hot path and its bytes), `drain`, `journal`, `circle`, `segment`, `kept` (where records go), `index`, `decode`, `xspace`, `added` (what other profilers recorded), `export`
//! (the way to the file), `mirror` (into other tools' files), [`recover`], `steps`, `triggers` (how long steps take, and what makes the flight
//! recorder save).

pub mod beside;
pub mod calls;
pub mod open;
pub mod recover;
pub mod session;
pub mod span;
#[cfg(feature = "tracing")]
pub mod tracing;

mod added;
mod alarm;
mod chunk;
#[cfg(test)]
mod chunk_tests;
mod circle;
mod clock;
mod control;
mod cut;
mod decode;
mod disk_limit;
mod drain;
mod export;
mod index;
mod journal;
mod kept;
mod layout;
mod lease;
mod mapped_file;
mod mirror;
mod names;
mod os;
mod prelude;
mod region;
mod relocate;
mod ring;
mod segment;
mod steps;
mod sync;
#[cfg(feature = "chrome")]
mod trace_json;
mod triggers;
mod walk;
mod xspace;

pub use added::{Added, AddedContent, Addition, Additions, advice};
pub use cut::Cut;
pub use mirror::{MirrorError, Mirrors, set_mirrors};
pub use names::StaticName;
pub use session::{
    AtLimit, Capture, CaptureProgress, FlightOptions, FlightStatus, HostTracerLevel, SessionError,
    SessionOptions, SlowStep, StopReport, WorkerRun, discard_trace, end_trace, end_worker,
    flight_status, flush_trace, is_recording, save_last, start_capture, start_flight, start_trace,
    start_trace_with, start_worker, stop_flight, stop_trace, stop_trace_with, trace, worker_run,
    write_last,
};
pub use span::{ArgValue, Span, SpanGuard, counter, instant, step, step_named};
pub use steps::{StepTimes, StepWatch};

/// Called when a session has started or stopped.
fn levels_changed() {
    #[cfg(feature = "tracing")]
    tracing::levels_changed();
}

/// Records the enclosing block as one slice on this thread's track, until the guard is dropped.
///
/// ```
/// let rows = 3_u64;
/// let _span = stepscope::span!("load");
/// let _span = stepscope::span!("decode", rows = rows, path = "a.csv");
/// ```
///
/// The name is a literal; for names made at run time use [`Span::enter`](crate::Span::enter).
/// Arguments are numbers, booleans and texts; they are evaluated only while recording.
#[macro_export]
macro_rules! span {
    ($name:literal $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        $crate::SpanGuard::enter_static(&NAME)
    }};
    ($name:literal, $($key:ident = $value:expr),+ $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        if $crate::span::is_wanted() {
            $crate::SpanGuard::enter_static_with(&NAME, &[$({
                static KEY: $crate::StaticName = $crate::StaticName::new(stringify!($key));
                (&KEY, $crate::ArgValue::from($value))
            }),+])
        } else {
            $crate::SpanGuard::off()
        }
    }};
}

/// Records one sample of a counter whose name is a literal; cheaper than [`counter()`] by the
/// look-up of the name.
#[macro_export]
macro_rules! counter {
    ($name:literal, $value:expr $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        $crate::span::counter_static(&NAME, $value)
    }};
}

/// Records a point in time on this thread's track, with arguments if there are any.
#[macro_export]
macro_rules! instant {
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        if $crate::span::is_wanted() {
            $crate::span::instant_static(&NAME, &[$({
                static KEY: $crate::StaticName = $crate::StaticName::new(stringify!($key));
                (&KEY, $crate::ArgValue::from($value))
            }),*])
        }
    }};
}
