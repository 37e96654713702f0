//! The client: captures from running programs.
//!
//! ```text
//! request -> hosts -> connect (all at once) -> one start time -> ask (all at once) -> keep
//! ```
//!
//! A host that fails does not affect the others; received data is kept. The client does not detect
//! the kind of server: one request serves all kinds, and the response shows where the data is.
//!
//! The work runs on a named thread, so that [`capture`] may be called from anywhere. The call
//! blocks until all its work has ended, except for a name lookup that the system does not cancel.
//! Reading order: [`request`], [`report`], [`control`], then `run` (the sequence of steps),
//! `connect`, `ask` (the protocol), `keep` (from a response to a file), `session` (folders and
//! files), `log_dir` (where sessions can be written), `clock` (clocks of other hosts).

pub mod control;
pub mod report;
pub mod request;

mod ask;
mod clock;
mod connect;
mod keep;
mod log_dir;
mod run;
mod session;

pub use clock::{HostClock, read_clock};
pub use control::CaptureControl;
pub use log_dir::writable_log_dir;
pub use report::{CaptureEvent, CaptureFailure, CaptureReport, CaptureStage, Captured, HostReport};
pub use request::{CaptureError, CaptureRequest, Interval, OptionValue};

/// Captures from the programs of `request` into one run. Blocks until every host has delivered its
/// data or has failed.
///
/// ```no_run
/// use std::time::Duration;
/// use stepscope_remote::{CaptureRequest, Interval, capture};
///
/// let report = capture(&CaptureRequest {
///     addresses: vec!["localhost:9012".to_owned()],
///     interval: Interval::For(Duration::from_secs(2)),
///     log_dir: "logs".into(),
///     ..CaptureRequest::default()
/// })?;
/// for host in &report.hosts {
///     match &host.result {
///         Ok(captured) => println!("{}: {} events", host.address, captured.events),
///         Err(failure) => println!("{}: {failure}", host.address),
///     }
/// }
/// # Ok::<(), stepscope_remote::CaptureError>(())
/// ```
///
/// # Errors
/// Causes that affect every host. A host that fails is part of the report.
pub fn capture(request: &CaptureRequest) -> Result<CaptureReport, CaptureError> {
    capture_with(request, &CaptureControl::new(), &|_event| {})
}

/// Like [`capture`]; `control` ends it early from another thread. `on_event` receives the events in
/// order and from one thread. It should return quickly, because the capture waits for it.
pub fn capture_with(
    request: &CaptureRequest,
    control: &CaptureControl,
    on_event: &(dyn Fn(CaptureEvent) + Send + Sync),
) -> Result<CaptureReport, CaptureError> {
    request.check()?;
    let asked = request.hosts()?;
    let folder = session::SessionFolder::make(&request.log_dir, request.session.as_deref())?;
    let plan = run::Plan::new(request.clone(), asked, folder);
    // The caller may be inside another runtime: a runtime can only be entered on a new thread.
    let outcome = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("stepscope-capture".to_owned())
            .spawn_scoped(scope, || run::run(&plan, control, on_event))
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
    });
    let outcome = match outcome {
        Ok(Ok(hosts)) => Ok(hosts),
        Ok(Err(cause)) | Err(cause) => Err(CaptureError::System { cause }),
    };
    plan.folder.remove_unused();
    Ok(CaptureReport {
        session: plan.folder.name().to_owned(),
        folder: plan.folder.path().to_owned(),
        hosts: outcome?,
    })
}
