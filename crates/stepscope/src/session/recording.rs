//! An active recording: from the first clock reading to the drain thread's final pass.

use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::SessionError;
use super::finished::{Finished, Owner};
use super::options::{HostTracerLevel, SessionOptions};
use super::process_report::note_session;
use super::running_flight::{Running, Saver};
use super::{folder, handlers};
use crate::drain::requests::Control;
use crate::drain::thread::Drain;
use crate::drain::triggers::Triggers;
use crate::journal::append::Journal;
use crate::journal::circular::{Bounds, CircularJournal};
use crate::journal::disk_limit::DiskLimit;
use crate::journal::files::{JournalFiles, remove_journal};
use crate::mirror::{self, Mirrors};
use crate::platform::clock::{self, Pair};
use crate::platform::memory::memory_bytes;
use crate::platform::os;
use crate::platform::processor::processor_model;
use crate::ring::layout::{BLOCK_CLOCK, BLOCK_META, BlockHead, CHUNK_BYTES, NAMES_BYTES, VERSION};
use crate::ring::memory::ATTACH;
use crate::ring::name_table;
use crate::ring::session_state::{SESSION_UNIT, WATCHED, set_state};
use crate::ring::writer::{ATTACHING, LOST};

/// The circular journal of a flight recorder, and its triggers.
pub(super) struct Circular<'t> {
    pub(super) bounds: Bounds,
    /// Creates the triggers when the session's state is known.
    pub(super) triggers: &'t dyn Fn(u32) -> Option<Triggers>,
}

pub(super) struct Session {
    /// Number of the session in the process.
    pub(super) number: u32,
    pub(super) owner: Owner,
    pub(super) host: String,
    pub(super) files: Option<JournalFiles>,
    pub(super) warnings: Vec<String>,
    pub(super) control: Arc<Control>,
    /// The flight recorder, if this is its recording.
    pub(super) running: Option<Arc<Running>>,
    /// The thread that saves after the flight recorder's triggers.
    pub(super) saver: Option<Saver>,
    drain: JoinHandle<Drain>,
}

static NEXT_SESSION: AtomicU32 = AtomicU32::new(1);

/// Starts the program's own recording.
pub(super) fn start_program(
    log_dir: &Path,
    options: &SessionOptions,
) -> Result<Session, SessionError> {
    let host = host(options)?;
    if options.trace_json && !cfg!(feature = "chrome") {
        return Err(SessionError::NotBuilt {
            what: "trace.json.gz",
            feature: "chrome",
        });
    }
    let folder = folder::create(log_dir, options.session_name.as_deref(), "")?;
    let number = next_number();
    let mut warnings = Vec::new();
    let files = open_journal(&folder, number, options, false, &mut warnings);
    let owner = Owner::Program {
        folder: folder.clone(),
        trace_json: options.trace_json,
    };
    let result = start(number, owner, host, files, options, None);
    if result.is_err() {
        let _ = std::fs::remove_dir(&folder);
    }
    let mut session = result?;
    session.warnings.extend(warnings);
    note_session(&folder);
    Ok(session)
}

/// Starts the flight recorder.
pub(super) fn start_flight(
    log_dir: Option<&Path>,
    options: &SessionOptions,
    circular: &Circular<'_>,
) -> Result<Session, SessionError> {
    let host = host(options)?;
    let number = next_number();
    let mut warnings = Vec::new();
    let folder = log_dir
        .map(|log_dir| folder::create(log_dir, None, "_flight"))
        .transpose()?;
    let files = folder
        .as_ref()
        .and_then(|folder| open_journal(folder, number, options, true, &mut warnings));
    let owner = Owner::Flight {
        folder: folder.clone(),
    };
    let result = start(number, owner, host, files, options, Some(circular));
    if let Some(folder) = folder {
        if result.is_ok() {
            note_session(&folder);
        } else {
            let _ = std::fs::remove_dir(folder);
        }
    }
    let mut session = result?;
    session.warnings = warnings;
    Ok(session)
}

/// Starts a recording in memory.
pub(super) fn start_in_memory(
    owner: Owner,
    options: &SessionOptions,
) -> Result<Session, SessionError> {
    start(next_number(), owner, host(options)?, None, options, None)
}

pub(super) fn next_number() -> u32 {
    NEXT_SESSION.fetch_add(1, Ordering::Relaxed)
}

/// Returns the host name, as part of a file's name.
pub(super) fn host(options: &SessionOptions) -> Result<String, SessionError> {
    let host = options.host_name.clone().unwrap_or_else(os::host_name);
    let host = host.replace([':', '/'], "_");
    folder::plain_name(&host)?;
    Ok(host)
}

pub(super) fn start(
    number: u32,
    owner: Owner,
    host: String,
    mut files: Option<JournalFiles>,
    options: &SessionOptions,
    circular: Option<&Circular<'_>>,
) -> Result<Session, SessionError> {
    handlers::install();
    let state = number.wrapping_mul(SESSION_UNIT) & !WATCHED
        | clock::choose()
        | options.host_tracer_level as u32;
    let first_pair = Pair::read(state);
    let start = Instant::now();
    let events = files
        .as_ref()
        .and_then(|files| files.events.try_clone().ok());
    let mut journal = match (circular, events) {
        (Some(circular), events) => {
            Journal::in_circular(CircularJournal::new(state, circular.bounds, events))
        }
        (None, Some(events)) => {
            let disk = DiskLimit::new(options.max_bytes, options.keep_free_bytes, options.at_limit);
            Journal::in_file(state, events, disk, options.memory_limit_bytes)
        }
        (None, None) => Journal::in_memory(options.memory_limit_bytes),
    };
    let put = |journal: &mut Journal, kind, content: &[u8]| {
        let head = BlockHead {
            kind,
            ..BlockHead::default()
        };
        journal.put(head, content);
    };
    let mut meta = meta(&host, options);
    if let Some(circular) = circular {
        let keep = circular.bounds.keep.as_secs_f64();
        let _ = write!(meta, "\nrecording=flight recorder\nkeep_last_s={keep}");
    }
    put(&mut journal, BLOCK_META, meta.as_bytes());
    put(&mut journal, BLOCK_CLOCK, &first_pair.encode());
    prepare_attaching(files.as_ref(), options, first_pair);
    // Takes two clock readings far enough apart, so that a program that is killed at once still has
    // a clock.
    while start.elapsed() < Duration::from_micros(600) {
        std::hint::spin_loop();
    }
    put(&mut journal, BLOCK_CLOCK, &Pair::read(state).encode());
    let control = Arc::new(Control::new(state));
    let triggers = circular.and_then(|circular| (circular.triggers)(state));
    let leased = files.as_mut().and_then(JournalFiles::take_leased);
    let drain = Drain::new(state, journal, leased)
        .with_triggers(triggers)
        .quiet(matches!(owner, Owner::Worker { .. }));
    let spawned = {
        let control = Arc::clone(&control);
        std::thread::Builder::new()
            .name("stepscope-drain".to_owned())
            .spawn(move || drain.run(&control))
    };
    let drain = match spawned {
        Ok(drain) => drain,
        Err(source) => {
            end_attaching();
            if let Some(files) = files {
                let _ = remove_journal(&files.folder);
            }
            return Err(SessionError::NoThread { cause: source });
        }
    };
    let mut warnings = options.warnings.clone();
    warnings.extend(mirror::set_for_session(options.mirrors));
    if options.host_tracer_level != HostTracerLevel::Off {
        set_state(state);
    }
    Ok(Session {
        number,
        owner,
        host,
        files,
        warnings,
        control,
        running: None,
        saver: None,
        drain,
    })
}

impl Session {
    /// Whether this is the flight recorder's recording.
    pub(super) fn is_flight(&self) -> bool {
        matches!(self.owner, Owner::Flight { .. })
    }

    /// Stops recording.
    pub(super) fn finish(mut self) -> Result<Finished, SessionError> {
        set_state(0);
        mirror::set_for_session(Mirrors::default());
        // Attaching takes microseconds. A thread that a debugger stopped at that point keeps the
        // rings file open and mapped, which is harmless.
        let start = Instant::now();
        while ATTACHING.load(Ordering::SeqCst) > 0 && start.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        let stuck = ATTACHING.load(Ordering::SeqCst) > 0;
        if let Some(files) = &self.files {
            os::unlock(files.workers.as_fd());
        }
        self.control.stop();
        let drained = self.drain.join();
        end_attaching();
        drop(self.running.take());
        if let Some(saver) = self.saver.take() {
            saver.join();
        }
        let mut files = self.files;
        if stuck && let Some(files) = &mut files {
            // The duplicate stays open, so that its descriptor number is not reused.
            if let Ok(duplicate) = files.rings.try_clone() {
                std::mem::forget(std::mem::replace(&mut files.rings, duplicate));
            }
        }
        let drain = drained.map_err(|_panic| SessionError::Internal {
            reason: "the drain thread ended early\nhelp: recover what it wrote".to_owned(),
        })?;
        if !stuck {
            drain.release_files();
        }
        Ok(Finished {
            owner: self.owner,
            host: self.host,
            files,
            warnings: self.warnings,
            drain,
            lost: LOST.swap(0, Ordering::Relaxed),
            failed: ATTACH.failed.load(Ordering::Relaxed),
            collected: Vec::new(),
        })
    }
}

/// Opens the journal's files. Returns `None` and a warning with the cause when memory is used
/// instead.
fn open_journal(
    folder: &Path,
    number: u32,
    options: &SessionOptions,
    is_circular: bool,
    warnings: &mut Vec<String>,
) -> Option<JournalFiles> {
    if !options.crash_safe {
        return None;
    }
    let reason = match os::network_file_system(folder) {
        Some(kind) => format!("the log directory is on a network file system ({kind})"),
        None => match JournalFiles::create(folder, &JournalFiles::stem(number), is_circular) {
            Ok(files) => return Some(files),
            Err(error) => format!("its files could not be made ({error})"),
        },
    };
    let warning = format!(
        "recording in memory, not crash safe: {reason}; a killed program would lose this recording"
    );
    os::warn_once(&warning);
    warnings.push(warning);
    None
}

fn meta(host: &str, options: &SessionOptions) -> String {
    let mut lines = vec![
        format!("version={VERSION}"),
        format!("writer=stepscope {}", env!("CARGO_PKG_VERSION")),
        format!("process_id={}", std::process::id()),
        format!("host={host}"),
        format!("host_tracer_level={}", options.host_tracer_level as u32),
    ];
    let clean = |text: &str| text.replace(['\n', '='], " ");
    if let Some(model) = processor_model() {
        lines.push(format!("processor={}", clean(&model)));
    }
    if let Ok(processors) = std::thread::available_parallelism() {
        lines.push(format!("processors={processors}"));
    }
    if let Some(bytes) = memory_bytes() {
        lines.push(format!("host.memory_bytes={bytes}"));
    }
    for (key, value) in &options.facts {
        lines.push(format!("fact.{}={}", clean(key), clean(value)));
    }
    lines.join("\n")
}

fn prepare_attaching(files: Option<&JournalFiles>, options: &SessionOptions, now: Pair) {
    let chunks = options.buffer_bytes.div_ceil(CHUNK_BYTES);
    let chunks = u32::try_from(chunks.clamp(1, crate::ring::layout::MAX_CHUNKS)).unwrap_or(1);
    let nonce = (now.ticks ^ now.unix_ns.cast_unsigned().rotate_left(32)) | 1;
    ATTACH.nonce.store(nonce, Ordering::Relaxed);
    ATTACH.first_chunks.store(chunks, Ordering::Relaxed);
    ATTACH.next_serial.store(1, Ordering::Relaxed);
    ATTACH.failed.store(0, Ordering::Relaxed);
    LOST.store(0, Ordering::Relaxed);
    let Some(files) = files else { return };
    ATTACH
        .rings_len
        .store(NAMES_BYTES as u64, Ordering::Relaxed);
    name_table::map(&files.rings, nonce);
    let rings = files.rings.as_raw_fd();
    ATTACH.rings.store(rings.cast_unsigned(), Ordering::SeqCst);
}

/// Unmaps the rings file after the last thread has attached: no thread maps it or writes names to
/// it any more.
fn end_attaching() {
    ATTACH.rings.store(u32::MAX, Ordering::SeqCst);
    name_table::unmap();
}
