//! Complete recordings: export from the journal to a file or to a caller.
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::collector::Collected;
use super::error::SessionError;
use super::options::StopReport;
use super::worker_journals;
use crate::drain::thread::Drain;
use crate::export::file;
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::export::metadata::{limit_warning, loss_warnings, stats};
use crate::export::xspace::{self, FileMetadata, Names};
use crate::journal::files::{self, JournalFiles, mark_written};
use crate::journal::index::Index;
use crate::journal::mapped_file::MappedFile;

/// Owner of a recording.
pub(super) enum Owner {
    /// The program; the recording becomes a file.
    Program {
        /// The session's folder.
        folder: PathBuf,
        #[cfg_attr(
            not(feature = "chrome"),
            allow(dead_code, reason = "used by an option")
        )]
        trace_json: bool,
    },
    /// The run of which this process is a worker; the recording becomes a file of that run.
    Worker {
        /// The session's folder.
        folder: PathBuf,
    },
    /// The holder of the [`Capture`](super::Capture).
    Capture,
    /// The flight recorder.
    Flight {
        /// The folder with the journal, if there is one.
        folder: Option<PathBuf>,
    },
}

/// A complete recording that is not exported yet.
pub(super) struct Finished {
    pub(super) owner: Owner,
    pub(super) host: String,
    pub(super) files: Option<JournalFiles>,
    pub(super) warnings: Vec<String>,
    pub(super) drain: Drain,
    /// Records lost without a ring to count them.
    pub(super) lost: u64,
    /// `errno` of a ring that could not be mapped from a file, or 0.
    pub(super) failed: u32,
    /// Events of CUDA and AMD devices.
    pub(super) collected: Vec<Collected>,
}

impl Finished {
    fn folder(&self) -> &Path {
        match &self.owner {
            Owner::Program { folder, .. } | Owner::Worker { folder } => folder,
            Owner::Flight { folder } => folder.as_deref().unwrap_or(Path::new("")),
            Owner::Capture => Path::new(""),
        }
    }

    /// Returns the destination file.
    pub(super) fn path(&self) -> PathBuf {
        self.folder().join(format!("{}.xplane.pb", self.host))
    }

    /// Writes the session's file.
    pub(super) fn write(
        &mut self,
        external: &ExternalProfiles,
    ) -> Result<StopReport, SessionError> {
        let mut with_devices;
        let external = if self.collected.is_empty() {
            external
        } else {
            with_devices = external.clone();
            for collected in &self.collected {
                collected.add_to(&mut with_devices);
            }
            &with_devices
        };
        let path = self.path();
        let not_written = |cause| SessionError::NotWritten {
            path: path.clone(),
            cause,
        };
        // The log directory may have been emptied meanwhile.
        std::fs::create_dir_all(self.folder()).map_err(not_written)?;
        let mut missing = 0;
        let events = match &self.files {
            Some(files) => {
                // A process that truncated the file despite the lease has removed events, but does
                // not end the program.
                let there = files.events.metadata().map_err(not_written)?.len();
                let bytes = self.drain.journal.file_bytes().min(there);
                missing = self.drain.journal.file_bytes() - bytes;
                Some(
                    MappedFile::map(&files.events, self.drain.journal.live_from(), bytes)
                        .map_err(not_written)?,
                )
            }
            None => None,
        };
        let index = self.index(events.as_ref().map(MappedFile::bytes));
        let mut report = self.report();
        let damaged = self.drain.journal.removed_bytes() + missing + index.garbage;
        if damaged > 0 {
            report.warnings.push(format!(
                "{damaged} bytes of the journal were removed or overwritten by another program; the events in them are lost"
            ));
        }
        let facts = self.facts(&index, &report);
        let mut marker = self
            .files
            .as_ref()
            .and_then(|files| files.events.try_clone().ok());
        let mut before = |bytes: u64, path: &Path| {
            if let Some(events) = &mut marker {
                mark_written(events, bytes, path);
            }
        };
        let cut = ExportLimits::default();
        // The folder may have been removed; our files in it are still open.
        std::fs::create_dir_all(self.folder()).map_err(not_written)?;
        let (path, written) = file::write_file(
            &path,
            &index,
            &Names::ThisProcess,
            &facts,
            &cut,
            external,
            &mut before,
        )
        .map_err(not_written)?;
        report.add_written(&written, &cut);
        report.path = path;
        #[cfg(feature = "chrome")]
        if let Owner::Program {
            trace_json: true, ..
        } = self.owner
        {
            match crate::export::chrome_json::write_next_to(&report.path) {
                Ok(path) => report.trace_json = Some(path),
                Err(error) => report
                    .warnings
                    .push(format!("the trace.json.gz could not be written: {error}")),
            }
        }
        Ok(report)
    }

    /// Writes a limited part of a recording in memory to a caller.
    pub(super) fn write_to(
        &self,
        out: &mut dyn Write,
        cut: &ExportLimits,
        external: &ExternalProfiles,
    ) -> io::Result<StopReport> {
        let index = self.index(None);
        let mut report = self.report();
        let facts = self.facts(&index, &report);
        let written = xspace::write(out, &index, &Names::ThisProcess, &facts, cut, external)?;
        report.add_written(&written, cut);
        Ok(report)
    }

    fn index<'a>(&'a self, events: Option<&'a [u8]>) -> Index<'a> {
        let mut index = Index::default();
        index.nothing_shared = super::nothing_shared();
        index.first_ticks = self.drain.journal.first_ticks();
        if let Some(events) = events {
            index.add(events);
        }
        for segment in self.drain.journal.memory() {
            index.add(segment);
        }
        index
    }

    fn facts(&self, index: &Index<'_>, report: &StopReport) -> FileMetadata {
        FileMetadata {
            host: self.host.clone(),
            stats: stats(index, report.dropped),
            warnings: report.warnings.clone(),
            recovered: false,
        }
    }

    fn report(&self) -> StopReport {
        let journal = &self.drain.journal;
        let cut_texts = self.drain.cut_texts;
        let dropped = self.drain.dropped + journal.lost() + self.lost;
        let mut warnings = self.warnings.clone();
        if let Some(error) = &journal.file_error {
            warnings.push(format!(
                "the journal could not grow any more ({error}); the rest was kept in memory"
            ));
        }
        if self.failed != 0 {
            let error = std::io::Error::from_raw_os_error(self.failed.cast_signed());
            warnings.push(format!(
                "some threads' buffers were kept in memory, not in files ({error})"
            ));
        }
        let reached = journal.limit_reached().map(|reached| reached.to_string());
        warnings.extend(limit_warning(
            reached.as_deref(),
            journal.removed_events(),
            journal.is_stopped(),
        ));
        warnings.extend(loss_warnings(dropped, cut_texts));
        StopReport {
            removed_events: journal.removed_events(),
            threads: self.drain.threads,
            dropped,
            cut_texts,
            crash_safe: self.files.is_some() && journal.file_error.is_none() && self.failed == 0,
            warnings,
            ..StopReport::default()
        }
    }

    /// Converts the journals of worker processes to files next to this one's, or removes them;
    /// returns warnings for the user.
    pub(super) fn collect_workers(&self, keep: bool) -> Vec<String> {
        let Owner::Program { folder, .. } = &self.owner else {
            return Vec::new();
        };
        let name = self
            .files
            .as_ref()
            .and_then(|files| files.folder.file_name());
        name.and_then(|name| name.to_str())
            .map_or_else(Vec::new, |name| {
                worker_journals::collect(folder, name, keep)
            })
    }

    /// Discards the recording, and its folder if that is empty.
    pub(super) fn discard(&self) {
        self.collect_workers(false);
        self.remove_journal();
        if !self.folder().as_os_str().is_empty() {
            let _ = std::fs::remove_dir(self.folder());
        }
    }

    pub(super) fn remove_journal(&self) {
        if let Some(files) = &self.files {
            let _ = files::remove_journal(&files.folder);
        }
    }
}
