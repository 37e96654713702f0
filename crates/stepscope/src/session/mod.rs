//! Sessions: from `start_trace` to the file in the log directory.
//!
//! One session at a time. A session owns the drain thread and, when it is crash safe, the journal's
//! files. Everything that can be known to go wrong is found out at the start; a recording whose file
//! cannot be written at the end is kept, so that the stop can be tried again.
#![allow(
    unsafe_code,
    reason = "maps the name table, and registers handlers for fork and exit"
)]

mod error;
pub(crate) mod folder;
mod options;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use error::SessionError;
pub use options::{HostTracerLevel, SessionOptions, StopReport};

use crate::clock::{self, Pair};
use crate::decode::Index;
use crate::drain::{Control, Drain};
use crate::export::{self, Facts, Names};
use crate::journal::Journal;
use crate::layout::{
    BLOCK_CLOCK, BLOCK_META, BLOCK_WRITTEN, BlockHead, CHUNK_BYTES, NAMES_BYTES, VERSION,
};
use crate::region::ATTACH;
use crate::ring::{ATTACHING, LOST, SESSION_UNIT, STATE, exit};
use crate::{names, os};
use folder::{DESCRIPTORS, JournalFiles};

/// What this process is doing.
#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    Recording(Box<Session>),
    /// Stopped, not written.
    Kept(Box<Finished>),
}

struct Session {
    folder: PathBuf,
    host: String,
    #[cfg(feature = "chrome")]
    trace_json: bool,
    files: Option<JournalFiles>,
    warnings: Vec<String>,
    control: Arc<Control>,
    drain: JoinHandle<Drain>,
}

/// A recording that is complete, but not written yet.
struct Finished {
    folder: PathBuf,
    host: String,
    #[cfg(feature = "chrome")]
    trace_json: bool,
    files: Option<JournalFiles>,
    warnings: Vec<String>,
    drain: Drain,
    lost: u64,
}

static PHASE: AtomicPtr<Mutex<Phase>> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_SESSION: AtomicU32 = AtomicU32::new(1);
/// Address space of the name table, reserved once.
static NAME_TABLE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

fn phase() -> Result<MutexGuard<'static, Phase>, SessionError> {
    let mut at = PHASE.load(Ordering::Acquire);
    if at.is_null() {
        let made = Box::into_raw(Box::new(Mutex::new(Phase::Idle)));
        at = match PHASE.compare_exchange(
            std::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => made,
            Err(other) => other,
        };
    }
    // SAFETY: made above by somebody, and never freed (a fork's child lets go of the parent's).
    match unsafe { &*at }.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(SessionError::Busy),
    }
}

/// No panic of ours crosses into the program.
fn guarded<T>(work: impl FnOnce() -> Result<T, SessionError>) -> Result<T, SessionError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Err(SessionError::Internal { reason })
    })
}

/// Starts recording into `LOG_DIR/plugins/profile/SESSION/` with the default options.
///
/// # Errors
/// See [`SessionError`]: already recording, or the log directory cannot be used.
pub fn start_trace(log_dir: impl AsRef<Path>) -> Result<(), SessionError> {
    start_trace_with(log_dir, &SessionOptions::default())
}

/// Starts recording into `LOG_DIR/plugins/profile/SESSION/`.
///
/// # Errors
/// See [`SessionError`]: already recording, or the log directory cannot be used.
pub fn start_trace_with(
    log_dir: impl AsRef<Path>,
    options: &SessionOptions,
) -> Result<(), SessionError> {
    let log_dir = log_dir.as_ref();
    guarded(|| {
        let mut phase = phase()?;
        match &*phase {
            Phase::Idle => {}
            Phase::Recording(session) => {
                return Err(SessionError::AlreadyRecording {
                    path: session.folder.clone(),
                });
            }
            Phase::Kept(kept) => return Err(SessionError::Unwritten { path: kept.path() }),
        }
        *phase = Phase::Recording(Box::new(start(log_dir, options)?));
        drop(phase);
        crate::levels_changed();
        Ok(())
    })
}

/// Stops recording and writes `HOST.xplane.pb`.
///
/// Spans that are open are written as unfinished, up to this moment.
///
/// # Errors
/// [`SessionError::NotRecording`] when nothing is being recorded, so that a second call is an error
/// value and nothing worse. [`SessionError::NotWritten`] when the file could not be written: the
/// recording is kept for another call.
pub fn stop_trace() -> Result<StopReport, SessionError> {
    guarded(|| {
        let mut phase = phase()?;
        let finished = match std::mem::take(&mut *phase) {
            Phase::Idle => return Err(SessionError::NotRecording),
            Phase::Recording(session) => Box::new(session.finish()?),
            Phase::Kept(kept) => kept,
        };
        let result = finish_writing(&mut phase, finished);
        drop(phase);
        crate::levels_changed();
        result
    })
}

fn finish_writing(
    phase: &mut Phase,
    mut finished: Box<Finished>,
) -> Result<StopReport, SessionError> {
    match os::without_size_signal(|| finished.write()) {
        Ok(report) => {
            finished.remove_journal();
            Ok(report)
        }
        Err(error) => {
            *phase = Phase::Kept(finished);
            Err(error)
        }
    }
}

/// Throws away a recording: the one that is running, or one whose file could not be written.
///
/// # Errors
/// [`SessionError::NotRecording`] when there is none.
pub fn discard_trace() -> Result<(), SessionError> {
    guarded(|| {
        let mut phase = phase()?;
        let finished = match std::mem::take(&mut *phase) {
            Phase::Idle => return Err(SessionError::NotRecording),
            Phase::Recording(session) => session.finish()?,
            Phase::Kept(kept) => *kept,
        };
        finished.remove_journal();
        let _ = std::fs::remove_dir(&finished.folder);
        drop(phase);
        crate::levels_changed();
        Ok(())
    })
}

/// Waits until everything recorded so far (by this thread, and by others before this call) is in
/// the journal. A crash-safe session needs no such call to survive a kill of the process; it is for
/// what must survive the machine, and for tests. `false` when nothing is being recorded, or the
/// journal does not take it within a second.
pub fn flush_trace() -> bool {
    let control = match phase() {
        Ok(phase) => match &*phase {
            Phase::Recording(session) => Arc::clone(&session.control),
            _ => return false,
        },
        Err(_) => return false,
    };
    control.flush(Duration::from_secs(1))
}

/// Whether a session is recording in this process.
pub fn is_recording() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

/// Records while `work` runs, also when it panics.
///
/// # Errors
/// As [`start_trace`] (then `work` does not run) and [`stop_trace`].
pub fn trace<T>(
    log_dir: impl AsRef<Path>,
    work: impl FnOnce() -> T,
) -> Result<(T, StopReport), SessionError> {
    struct StopOnPanic;
    impl Drop for StopOnPanic {
        fn drop(&mut self) {
            let _ = stop_trace();
        }
    }
    start_trace(log_dir)?;
    let stop = StopOnPanic;
    let result = work();
    std::mem::forget(stop);
    stop_trace().map(|report| (result, report))
}

fn start(log_dir: &Path, options: &SessionOptions) -> Result<Session, SessionError> {
    let host = options.host_name.clone().unwrap_or_else(os::host_name);
    let host = host.replace([':', '/'], "_");
    folder::plain_name(&host)?;
    if options.trace_json && !cfg!(feature = "chrome") {
        return Err(SessionError::NotBuilt {
            what: "trace.json.gz",
            feature: "chrome",
        });
    }
    let folder = folder::make(log_dir, options.session_name.as_deref())?;
    install_handlers();
    let number = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
    let state =
        number.wrapping_mul(SESSION_UNIT) | clock::choose() | options.host_tracer_level as u32;
    let first_pair = Pair::read(state);
    let begun = Instant::now();
    let mut warnings = Vec::new();
    let files = open_journal(&folder, number, options, &mut warnings);
    let mut journal = match files.as_ref().map(|files| files.events.try_clone()) {
        Some(Ok(events)) => Journal::in_file(events, options.memory_limit_bytes),
        _ => Journal::in_memory(options.memory_limit_bytes),
    };
    let put = |journal: &mut Journal, kind, content: &[u8]| {
        let head = BlockHead {
            kind,
            ..BlockHead::default()
        };
        journal.put(head, content);
    };
    put(&mut journal, BLOCK_META, meta(&host, options).as_bytes());
    put(&mut journal, BLOCK_CLOCK, &first_pair.encode());
    prepare_attaching(files.as_ref(), options, first_pair);
    // Two readings far enough apart: a program that is killed at once still has a clock.
    while begun.elapsed() < Duration::from_micros(600) {
        std::hint::spin_loop();
    }
    put(&mut journal, BLOCK_CLOCK, &Pair::read(state).encode());
    let control = Arc::new(Control::default());
    let drain = Drain::new(state, journal);
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
                let _ = folder::remove_journal(&files.folder);
            }
            let _ = std::fs::remove_dir(&folder);
            return Err(SessionError::NoThread { source });
        }
    };
    if options.host_tracer_level != HostTracerLevel::Off {
        STATE.store(state, Ordering::SeqCst);
    }
    Ok(Session {
        folder,
        host,
        #[cfg(feature = "chrome")]
        trace_json: options.trace_json,
        files,
        warnings,
        control,
        drain,
    })
}

/// The journal's files, or `None` and a warning that says why memory is used.
fn open_journal(
    folder: &Path,
    number: u32,
    options: &SessionOptions,
    warnings: &mut Vec<String>,
) -> Option<JournalFiles> {
    if !options.crash_safe {
        return None;
    }
    let reason = match os::network_file_system(folder) {
        Some(kind) => format!("the log directory is on a network file system ({kind})"),
        None => match JournalFiles::make(folder, number) {
            Ok(files) => return Some(files),
            Err(error) => format!("its files could not be made ({error})"),
        },
    };
    let warning = format!(
        "recording in memory, not crash safe: {reason}; a killed program would lose this recording"
    );
    warn_once(&warning);
    warnings.push(warning);
    None
}

/// One line on stderr, once per process.
fn warn_once(warning: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[allow(
            clippy::print_stderr,
            reason = "the user must hear of it before the program is killed"
        )]
        {
            eprintln!("stepscope: {warning}");
        }
    });
}

fn meta(host: &str, options: &SessionOptions) -> String {
    let mut lines = vec![
        format!("version={VERSION}"),
        format!("writer=stepscope {}", env!("CARGO_PKG_VERSION")),
        format!("process_id={}", std::process::id()),
        format!("host={host}"),
        format!("host_tracer_level={}", options.host_tracer_level as u32),
    ];
    for (key, value) in &options.facts {
        let clean = |text: &str| text.replace(['\n', '='], " ");
        lines.push(format!("fact.{}={}", clean(key), clean(value)));
    }
    lines.join("\n")
}

fn prepare_attaching(files: Option<&JournalFiles>, options: &SessionOptions, now: Pair) {
    let chunks = options.buffer_bytes.div_ceil(CHUNK_BYTES);
    let chunks = u32::try_from(chunks.clamp(1, crate::layout::MAX_CHUNKS)).unwrap_or(1);
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
    let mut table = NAME_TABLE.load(Ordering::Acquire);
    if table.is_null() {
        table = os::reserve(NAMES_BYTES).unwrap_or(std::ptr::null_mut());
        NAME_TABLE.store(table, Ordering::Release);
    }
    let rings = files.rings.as_raw_fd();
    // SAFETY: reserved above and never given back; the file's space has been allotted.
    if !table.is_null() && unsafe { os::map_file(table, NAMES_BYTES, rings, 0) } {
        // SAFETY: mapped; the first word is the nonce.
        unsafe { table.copy_from_nonoverlapping(nonce.to_le_bytes().as_ptr(), 8) };
        // SAFETY: stays mapped for ever.
        unsafe { names::publish_all(table) };
    }
    ATTACH.rings.store(rings.cast_unsigned(), Ordering::SeqCst);
}

/// After the last thread has let go: nobody maps the rings file or writes names to it any more.
fn end_attaching() {
    ATTACH.rings.store(u32::MAX, Ordering::SeqCst);
    names::unpublish();
    let table = NAME_TABLE.load(Ordering::Acquire);
    if !table.is_null() {
        // SAFETY: reserved once, never given back.
        unsafe { os::map_memory(table, NAMES_BYTES) };
    }
}

impl Session {
    fn finish(self) -> Result<Finished, SessionError> {
        STATE.store(0, Ordering::SeqCst);
        // Attaching takes microseconds. A thread that a debugger stopped right there keeps the
        // rings file open, and mapped, and harms nobody.
        let begun = Instant::now();
        while ATTACHING.load(Ordering::SeqCst) > 0 && begun.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        let stuck = ATTACHING.load(Ordering::SeqCst) > 0;
        self.control.stop();
        let drained = self.drain.join();
        end_attaching();
        let mut files = self.files;
        if stuck && let Some(files) = &mut files {
            // Never closed, so that its number is not used for another file.
            if let Ok(kept) = files.rings.try_clone() {
                std::mem::forget(std::mem::replace(&mut files.rings, kept));
            }
        }
        let drain = drained.map_err(|_panic| SessionError::Internal {
            reason: "the drain thread ended early; what it wrote can be recovered".to_owned(),
        })?;
        Ok(Finished {
            folder: self.folder,
            host: self.host,
            #[cfg(feature = "chrome")]
            trace_json: self.trace_json,
            files,
            warnings: self.warnings,
            drain,
            lost: LOST.swap(0, Ordering::Relaxed),
        })
    }
}

impl Finished {
    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.xplane.pb", self.host))
    }

    fn write(&mut self) -> Result<StopReport, SessionError> {
        let path = self.path();
        let not_written = |source| SessionError::NotWritten {
            path: path.clone(),
            source,
        };
        let events = match &self.files {
            Some(files) => {
                // Who shortened it nevertheless has taken events, not our life.
                let there = files.events.metadata().map_err(not_written)?.len();
                let bytes = self.drain.journal.file_bytes().min(there);
                // SAFETY: this process holds the journal's lock, and nobody shortens the file.
                let mapped = unsafe { os::MappedFile::map(files.events.as_fd(), bytes) };
                Some(mapped.map_err(not_written)?)
            }
            None => None,
        };
        let mut index = Index::default();
        if let Some(events) = &events {
            index.add(events.bytes());
        }
        for segment in self.drain.journal.memory() {
            index.add(segment);
        }
        let mut report = self.report(&index);
        let facts = Facts {
            host: self.host.clone(),
            stats: stats(&index, report.dropped),
            warnings: report.warnings.clone(),
            recovered: false,
        };
        let mut marker = self
            .files
            .as_ref()
            .and_then(|files| files.events.try_clone().ok());
        let mut before = |bytes: u64, path: &Path| {
            if let Some(events) = &mut marker {
                mark_written(events, bytes, path);
            }
        };
        let (path, written) = export::write_file(&path, &index, &Names::Own, &facts, &mut before)
            .map_err(not_written)?;
        report.spans = written.spans;
        report.unfinished = written.unfinished;
        report.instants = written.instants;
        report.samples = written.samples;
        report.path = path;
        #[cfg(feature = "chrome")]
        if self.trace_json {
            match crate::trace_json::write_beside(&report.path) {
                Ok(path) => report.trace_json = Some(path),
                Err(error) => report
                    .warnings
                    .push(format!("the trace.json.gz could not be written: {error}")),
            }
        }
        Ok(report)
    }

    fn report(&self, index: &Index<'_>) -> StopReport {
        let journal = &self.drain.journal;
        let in_rings: u64 = index.threads.values().map(|thread| thread.dropped).sum();
        let cut_texts = index.threads.values().map(|thread| thread.cut).sum();
        let dropped = in_rings + journal.lost + self.lost;
        let mut warnings = self.warnings.clone();
        if let Some(error) = &journal.file_error {
            warnings.push(format!(
                "the journal could not grow any more ({error}); the rest was kept in memory"
            ));
        }
        let failed = ATTACH.failed.load(Ordering::Relaxed);
        if failed != 0 {
            let error = std::io::Error::from_raw_os_error(failed.cast_signed());
            warnings.push(format!(
                "some threads' buffers were kept in memory, not in files ({error})"
            ));
        }
        if dropped > 0 {
            warnings.push(format!(
                "{dropped} records were dropped: buffers were full; raise buffer_bytes or lower the trace level"
            ));
        }
        if cut_texts > 0 {
            warnings.push(format!("{cut_texts} texts longer than 16 KiB were cut"));
        }
        StopReport {
            threads: self.drain.threads,
            dropped,
            cut_texts,
            crash_safe: self.files.is_some() && journal.file_error.is_none() && failed == 0,
            warnings,
            ..StopReport::default()
        }
    }

    fn remove_journal(&self) {
        if let Some(files) = &self.files {
            let _ = folder::remove_journal(&files.folder);
        }
    }
}

/// Says in the journal that it has become a file, so that a kill before the journal is removed does
/// not make it a second one.
pub(crate) fn mark_written(events: &mut File, bytes: u64, path: &Path) {
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::ffi::OsStrExt;
    let mut content = bytes.to_le_bytes().to_vec();
    content.extend_from_slice(path.file_name().unwrap_or_default().as_bytes());
    let head = BlockHead {
        kind: BLOCK_WRITTEN,
        len: u32::try_from(content.len()).unwrap_or(0),
        ..BlockHead::default()
    };
    let mut block = head.encode().to_vec();
    block.extend_from_slice(&content);
    let _ = events
        .seek(SeekFrom::End(0))
        .and_then(|_| events.write_all(&block));
}

/// Plane stats of a recording.
pub(crate) fn stats(index: &Index<'_>, dropped: u64) -> Vec<(String, String)> {
    let mut stats: Vec<_> = index
        .facts
        .iter()
        .filter(|(key, _)| *key != "host" && *key != "version")
        .map(|(key, value)| {
            let key = key.strip_prefix("fact.").unwrap_or(key);
            (key.to_owned(), value.clone())
        })
        .collect();
    if dropped > 0 {
        stats.push(("stepscope.dropped".to_owned(), dropped.to_string()));
    }
    stats
}

/// Handlers for fork, exit and ends of threads; once per process.
fn install_handlers() {
    static ONCE: Once = Once::new();
    exit::prepare();
    ONCE.call_once(|| {
        // SAFETY: functions without captured state, for the life of the process.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork_in_child));
            libc::atexit(at_exit);
        }
    });
}

/// The child does not own the session: it begins with nothing, and may start its own.
extern "C" fn after_fork_in_child() {
    crate::ring::after_fork_in_child();
    names::after_fork_in_child();
    let table = NAME_TABLE.load(Ordering::Acquire);
    if !table.is_null() {
        // SAFETY: reserved once, never given back.
        unsafe { os::map_memory(table, NAMES_BYTES) };
    }
    for place in &DESCRIPTORS {
        let fd = place.swap(-1, Ordering::SeqCst);
        if fd >= 0 {
            // SAFETY: the child's own copy; the value that owns it is never dropped here.
            unsafe { libc::close(fd) };
        }
    }
    // The parent's session and its lock may be in any state: left alone, for ever.
    PHASE.store(std::ptr::null_mut(), Ordering::SeqCst);
}

/// A program that ends without a stop: its recording is finished, if that can be done safely. If not
/// (a stop is under way elsewhere), the journal is there to be recovered.
extern "C" fn at_exit() {
    if PHASE.load(Ordering::Acquire).is_null() {
        return;
    }
    let _ = stop_trace();
}
