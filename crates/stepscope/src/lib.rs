//! Records spans, steps and counters of a program, at nanosecond cost, into files that stepscope,
//! XProf, TensorBoard and `jax.profiler.ProfileData` open.
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
//!   time-stamp counter and a 24-byte record in the thread's ring: no lock, no allocation and no
//!   system call once a thread has its ring (except one that wakes the drain thread after
//!   idleness).
//! * **A killed program loses at most its last instant**: the rings are in files of the session's
//!   folder, and [`recover`] turns them into an ordinary run.
//! * **The last seconds are always available** with the flight recorder ([`start_flight`]).
//! * **The program survives the recorder**: no panic, signal or lock of the recorder reaches it; a full
//!   disk, a fork, a second start or stop are error values or warnings.
//!
//! # Features
//!
//! | Feature | Adds |
//! |---|---|
//! | `tracing` (default) | a subscriber and a layer for the `tracing` crate |
//! | `chrome` (default) | writes `HOST.trace.json.gz` too, on request |
//!
//! # From a span to a file
//!
//! ```text
//! span!() ─► ring of the thread ─► drain thread ─► journal ─────► XSpace file
//! api/       ring/writer.rs        drain/          journal/       export/
//! span.rs    ring/layout.rs        thread.rs       block.rs       decode.rs
//!            ring/chunk.rs         region.rs       append.rs      xspace.rs
//!            ring/memory.rs        requests.rs     circular.rs    metadata.rs
//!            ring/names.rs         triggers.rs     segment.rs     file.rs
//!            ring/steps.rs                         index.rs       chrome_json.rs
//!            (mapped from a file)                  files.rs
//!                    │                                │
//!                    └──── recover.rs: a killed program's rings and journal ──► XSpace file
//! ```
//!
//! [`session`] starts and stops recordings. [`manual_span`], [`calls`] and [`virtual_track`] are
//! for other languages, their call tracers and their samplers; `bridge/` connects the `tracing`
//! crate; `mirror/` sends spans to NVTX and ITT; `platform/` has the operating system and its
//! clocks.
//!
//! Each folder imports only folders before it: `platform`, `ring`, `journal`, `mirror`, `drain`,
//! `export`, `recover`, `api`, `bridge`, `session`.

mod api;
mod bridge;
mod drain;
mod export;
mod journal;
mod mirror;
mod platform;
pub mod recover;
mod ring;
pub mod session;

pub use api::{calls, manual_span, span, virtual_track};
#[cfg(feature = "tracing")]
pub use bridge::tracing;

#[doc(hidden)]
pub use export::collector_file::CollectorFile;
pub use export::limits::ExportLimits;
pub use export::merge_external::{
    ExternalContent, ExternalProfile, ExternalProfiles, MergedProfile, advice,
};
pub use mirror::{MirrorError, Mirrors};
pub use platform::processor::processor_model;
pub use ring::names::StaticName;
pub use ring::steps::{StepTimes, StepWatch};
pub use session::mirrors::set_mirrors;
pub use session::{
    AtLimit, Capture, CaptureProgress, EnvironmentTrace, FlightOptions, FlightStatus,
    HostTracerLevel, SessionError, SessionOptions, SlowStep, StopReport, WorkerRun, discard_trace,
    end_trace, end_worker, flight_status, flush_trace, is_recording, save_last, start_capture,
    start_flight, start_trace, start_trace_with, start_worker, stop_flight, stop_trace,
    stop_trace_with, trace, trace_from_environment, worker_run, write_last,
};
#[doc(hidden)]
pub use session::{LauncherRank, ProcessReport, collector_file};
pub use span::{Span, SpanArgValue, SpanGuard, counter, instant, step, step_named};

/// Records the enclosing block as one slice on this thread's track, until the guard is dropped.
///
/// ```
/// let rows = 3_u64;
/// let _span = stepscope::span!("load");
/// let _span = stepscope::span!("decode", rows = rows, path = "a.csv");
/// ```
///
/// The name is a literal; for names created at run time use [`Span::enter`](crate::Span::enter).
/// Arguments are numbers, booleans and texts; they are evaluated only while recording.
#[macro_export]
macro_rules! span {
    ($name:literal $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        $crate::SpanGuard::enter_static(&NAME)
    }};
    ($name:literal, $($key:ident = $value:expr),+ $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        if $crate::span::is_enabled() {
            $crate::SpanGuard::enter_static_with(&NAME, &[$({
                static KEY: $crate::StaticName = $crate::StaticName::new(stringify!($key));
                (&KEY, $crate::SpanArgValue::from($value))
            }),+])
        } else {
            $crate::SpanGuard::off()
        }
    }};
}

/// Records one sample of a counter whose name is a literal; it saves [`counter()`]'s look-up of the
/// name.
#[macro_export]
macro_rules! counter {
    ($name:literal, $value:expr $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        $crate::span::counter_static(&NAME, $value)
    }};
}

/// Records a point in time on this thread's track, with optional arguments.
#[macro_export]
macro_rules! instant {
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {{
        static NAME: $crate::StaticName = $crate::StaticName::new($name);
        if $crate::span::is_enabled() {
            $crate::span::instant_static(&NAME, &[$({
                static KEY: $crate::StaticName = $crate::StaticName::new(stringify!($key));
                (&KEY, $crate::SpanArgValue::from($value))
            }),*])
        }
    }};
}
