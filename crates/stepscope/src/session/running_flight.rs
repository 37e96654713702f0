//! The running flight recorder: requests to its drain thread, and exports of its content.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::SessionError;
use super::flight_options::FlightOptions;
use super::options::StopReport;
use super::process_report::note_session;
use super::{folder, guarded};
use crate::drain::requests::{Control, DrainProgress, DrainRequest};
use crate::drain::triggers::SaveTrigger;
use crate::export::file;
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::export::metadata::{loss_warnings, stats};
use crate::export::xspace::{self, FileMetadata, Names};
use crate::journal::circular::Snapshot;
use crate::journal::index::Index;
use crate::platform::os;

/// Timeout for a reply of the drain thread. A thread that has ended is detected at once; on a busy
/// machine it may take seconds until it runs and has copied the pending records.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The flight recorder of this process, also while it pauses.
pub(super) struct Flight {
    pub(super) options: FlightOptions,
    /// Number of saved files.
    pub(super) saves: AtomicU64,
    /// Serializes saves.
    saving: Mutex<()>,
}

impl Flight {
    /// Creates a flight recorder that has not saved anything.
    pub(super) fn new(options: FlightOptions) -> Self {
        Self {
            options,
            saves: AtomicU64::new(0),
            saving: Mutex::new(()),
        }
    }
}

/// A running flight recorder.
pub(super) struct Running {
    pub(super) flight: Arc<Flight>,
    pub(super) control: Arc<Control>,
    pub(super) host: String,
    pub(super) warnings: Vec<String>,
}

/// The thread that saves after triggers.
pub(super) struct Saver {
    thread: JoinHandle<()>,
}

impl Saver {
    /// Waits for the thread. Requires that the drain thread has ended.
    pub(super) fn join(self) {
        let _ = self.thread.join();
    }
}

/// Starts the thread that saves after triggers.
pub(super) fn start_saver(
    running: Arc<Running>,
    from: Receiver<SaveTrigger>,
) -> Result<Saver, SessionError> {
    let body = move || {
        os::block_all_signals();
        // The loop ends when the drain thread has ended.
        for trigger in from {
            let result = guarded(|| running.save(trigger.last, &trigger.because));
            if let Err(error) = result {
                os::warn_once(&format!("the flight recorder could not save: {error}"));
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("stepscope-save".to_owned())
        .spawn(body)
        .map_err(|cause| SessionError::NoThread { cause })?;
    Ok(Saver { thread })
}

impl Running {
    pub(super) fn progress(&self) -> &Arc<DrainProgress> {
        &self.control.progress
    }

    /// Takes a snapshot of the content, optionally only since the start of a capture.
    pub(super) fn snapshot(&self, since_pin: Option<u32>) -> Result<Snapshot, SessionError> {
        let (reply, from) = sync_channel(1);
        if !self
            .control
            .send(DrainRequest::Snapshot { since_pin, reply })
        {
            return Err(SessionError::FlightPaused);
        }
        from.recv_timeout(REPLY_TIMEOUT).map_err(no_reply)
    }

    /// Prevents overwriting until the pin is released. Returns the start of the pin in ticks.
    pub(super) fn pin(&self, number: u32, bytes: usize) -> Result<u64, SessionError> {
        let (reply, from) = sync_channel(1);
        let request = DrainRequest::Pin {
            number,
            bytes,
            reply,
        };
        if !self.control.send(request) {
            return Err(SessionError::FlightPaused);
        }
        from.recv_timeout(REPLY_TIMEOUT).map_err(no_reply)
    }

    pub(super) fn release(&self, number: u32) {
        self.control.send(DrainRequest::Release { number });
    }

    /// Saves the last part of the content as a run in the log directory.
    pub(super) fn save(&self, last: Duration, because: &str) -> Result<StopReport, SessionError> {
        let Some(log_dir) = &self.flight.options.log_dir else {
            return Err(SessionError::BadFlight {
                reason: "it has no log_dir to save into\nhelp: use write_last".to_owned(),
            });
        };
        let saving = self.flight.saving.lock();
        let _one = saving.unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot(None)?;
        os::without_size_signal(|| self.save_snapshot(log_dir, &snapshot, last, because))
    }

    fn save_snapshot(
        &self,
        log_dir: &Path,
        snapshot: &Snapshot,
        last: Duration,
        because: &str,
    ) -> Result<StopReport, SessionError> {
        let folder = folder::create(log_dir, None, "")?;
        let path = folder.join(format!("{}.xplane.pb", self.host));
        let cut = ExportLimits::default();
        let mut export = FlightExport::new(self, snapshot, &cut);
        export.limit_to_last(last);
        export.fact("saved_because", because);
        match export.save(&path) {
            Ok(report) => {
                self.flight.saves.fetch_add(1, Ordering::Relaxed);
                note_session(&folder);
                Ok(report)
            }
            Err(cause) => {
                let _ = std::fs::remove_dir(&folder);
                Err(SessionError::NotSaved { path, cause })
            }
        }
    }
}

fn no_reply(error: RecvTimeoutError) -> SessionError {
    match error {
        // The flight recorder stopped in the meantime.
        RecvTimeoutError::Disconnected => SessionError::FlightPaused,
        RecvTimeoutError::Timeout => SessionError::Internal {
            reason: "the drain thread does not answer".to_owned(),
        },
    }
}

/// An export of a part of the flight recorder's content.
pub(super) struct FlightExport<'s> {
    index: Index<'s>,
    facts: FileMetadata,
    dropped: u64,
    crash_safe: bool,
    cut: ExportLimits,
    snapshot: &'s Snapshot,
}

impl<'s> FlightExport<'s> {
    pub(super) fn new(running: &Running, snapshot: &'s Snapshot, cut: &ExportLimits) -> Self {
        let mut index = Index::default();
        index.nothing_shared = super::nothing_shared();
        index.first_ticks = snapshot.first_ticks;
        for segment in &snapshot.segments {
            index.add(segment.blocks());
        }
        index.add(&snapshot.extra_blocks);
        let mut warnings = running.warnings.clone();
        if let Some(error) = &snapshot.file_error {
            warnings.push(format!(
                "the flight recorder's file could not grow ({error}): a killed program would lose a part"
            ));
        }
        Self {
            dropped: snapshot.dropped,
            crash_safe: running.flight.options.log_dir.is_some() && warnings.is_empty(),
            facts: FileMetadata {
                host: running.host.clone(),
                warnings,
                ..FileMetadata::default()
            },
            index,
            cut: cut.clone(),
            snapshot,
        }
    }

    /// Limits the export to the last `last`, and adds a warning when less is covered.
    pub(super) fn limit_to_last(&mut self, last: Duration) {
        let timeline = self.index.timeline();
        let now = timeline.unix_of(self.index.last_reading());
        let last_ns = i64::try_from(last.as_nanos()).unwrap_or(i64::MAX);
        let from = now.saturating_sub(last_ns);
        self.cut.from_unix_ns = Some(self.cut.from_unix_ns.map_or(from, |other| other.max(from)));
        let covered = self.snapshot.covered;
        if self.snapshot.short && covered < last {
            self.facts.warnings.push(format!(
                "covers {:.1} s of the {:.1} s asked for: raise max_bytes, or lower the trace level",
                covered.as_secs_f64(),
                last.as_secs_f64(),
            ));
        }
    }

    /// Limits the export to events after these ticks; `dropped_before` is the count of dropped
    /// records at that time.
    pub(super) fn limit_to_since(&mut self, ticks: u64, dropped_before: u64) {
        self.index.floor = ticks;
        self.dropped = self.snapshot.dropped_in_all.saturating_sub(dropped_before);
    }

    /// Excludes all events.
    pub(super) fn exclude_events(&mut self) {
        self.index.forget_events();
    }

    /// Adds a warning to the file and the report.
    pub(super) fn warn(&mut self, warning: String) {
        self.facts.warnings.push(warning);
    }

    /// Adds a metadata value of the run.
    fn fact(&mut self, key: &str, value: &str) {
        self.facts.stats.push((key.to_owned(), value.to_owned()));
    }

    fn complete(&mut self) -> StopReport {
        let cut_texts = self.index.threads.values().map(|thread| thread.cut).sum();
        self.facts
            .warnings
            .extend(loss_warnings(self.dropped, cut_texts));
        self.facts.stats.extend(stats(&self.index, self.dropped));
        StopReport {
            threads: self.index.threads.len() as u64,
            dropped: self.dropped,
            cut_texts,
            crash_safe: self.crash_safe,
            warnings: self.facts.warnings.clone(),
            ..StopReport::default()
        }
    }

    pub(super) fn write(
        mut self,
        out: &mut dyn Write,
        external: &ExternalProfiles,
    ) -> std::io::Result<StopReport> {
        let mut report = self.complete();
        let written = xspace::write(
            out,
            &self.index,
            &Names::ThisProcess,
            &self.facts,
            &self.cut,
            external,
        )?;
        report.add_written(&written, &self.cut);
        Ok(report)
    }

    fn save(mut self, path: &Path) -> std::io::Result<StopReport> {
        let mut report = self.complete();
        let (path, written) = file::write_file(
            path,
            &self.index,
            &Names::ThisProcess,
            &self.facts,
            &self.cut,
            &ExternalProfiles::default(),
            &mut |_, _| {},
        )?;
        report.add_written(&written, &self.cut);
        report.path = path;
        Ok(report)
    }
}
