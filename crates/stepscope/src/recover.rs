//! Recovery: converts the journals of killed programs to ordinary runs.
//!
//! A crash-safe session has a journal in its folder (`docs/reference/journal.md`). Its writer holds
//! a lock as long as it lives, so recovery never touches a live recording, and two recoveries
//! exclude each other. The journal's content becomes `HOST.xplane.pb` next to it, marked as
//! recovered; only then is the journal removed. When the folder cannot be written, the file goes to
//! another directory, and the journal stays.
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::export::metadata::{limit_warning, stats};
use crate::export::xspace::{FileMetadata, Names};
use crate::export::{collector_file, file};
use crate::journal::files::{
    EVENTS_FILE, JOURNAL_PREFIX, LOCK_FILE, RINGS_FILE, is_worker_journal, mark_written,
    remove_journal,
};
use crate::journal::index::{Index, Leftover, Thread};
use crate::journal::mapped_file::MappedFile;
use crate::journal::segment;
use crate::platform::os;
use crate::ring::chunk::ChunkHead;
use crate::ring::layout::{
    CHUNK_BYTES, CHUNK_USABLE, CHUNKS_OFFSET, Extent, KNOWN_VERSIONS, MAX_CHUNKS, MAX_EXTENTS,
    NAMES_BYTES, OPEN_OFFSET, OPEN_SPANS, RECORD_BYTES, RegionHead, THREAD_NAME_BYTES,
};
use crate::ring::names;

/// Maximum depth of searched folders below a log directory.
const MAX_DEPTH: usize = 8;
/// An incompletely created journal older than this is removed.
const ABANDONED_AFTER: Duration = Duration::from_mins(10);

/// Result of the recovery of one journal.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecoveredRun {
    /// The session's folder.
    pub session: PathBuf,
    /// The journal; removed unless the recovery had to leave it. The session's folder, of a collector's file.
    pub journal: PathBuf,
    /// The recording's file, or the error.
    pub file: Result<PathBuf, RecoverError>,
    /// Whether the file is in the cache directory, because the session's folder cannot be written.
    pub in_cache: bool,
    /// Spans and steps, including open ones; of a collector's file, all its events.
    pub spans: u64,
    /// Spans and steps that were open when the program ended.
    pub unfinished: u64,
    /// Records that the program itself dropped.
    pub dropped: u64,
    /// Whether the recording is incomplete because it reached a disk limit.
    pub cut_at_limit: bool,
}

impl RecoveredRun {
    fn new(session: &Path, journal: &Path) -> Self {
        Self {
            session: session.to_owned(),
            journal: journal.to_owned(),
            file: Ok(PathBuf::new()),
            in_cache: false,
            spans: 0,
            unfinished: 0,
            dropped: 0,
            cut_at_limit: false,
        }
    }
}

/// Error that prevented the recovery of a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// A file of the journal cannot be read, or the result cannot be written.
    #[error("cannot recover a recording: {}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Another version of stepscope wrote the journal.
    #[error("cannot recover {}: the journal has version {found}, this program reads version {known}\nhelp: recover it with the version of stepscope that recorded it", path.display())]
    OtherVersion {
        /// The journal.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The version of this build.
        known: u32,
    },
}

/// Finds the journals below a log directory (or a session's folder) whose writer no longer lives.
/// It walks the directories, and opens one file for each journal found.
pub fn pending(log_dir: &Path) -> Vec<PathBuf> {
    find(log_dir, &mut |_| {})
        .into_iter()
        .filter(|journal| matches!(lock(journal), Ok(Some(_))))
        .collect()
}

/// Recovers every journal below a log directory (or a session's folder) whose writer no longer
/// lives, and the files of collectors that no recording took. When the session's folder cannot be written, the file goes below `cache_out`, if given,
/// and is rewritten only when the journal has changed. Also removes unfinished files of killed
/// programs.
pub fn recover_dir(log_dir: &Path, cache_out: Option<&Path>) -> Vec<RecoveredRun> {
    let mut runs = Vec::new();
    let journals = find(log_dir, &mut |session| {
        file::remove_orphans(session);
        let files = collector_file::recover_all(session);
        runs.extend(files.into_iter().map(|(file, events)| RecoveredRun {
            file: Ok(file),
            spans: events,
            ..RecoveredRun::new(session, session)
        }));
    });
    let recovered = journals
        .iter()
        .filter_map(|journal| recover(journal, cache_out));
    runs.extend(recovered);
    runs
}

/// Finds the journals below a directory. Calls `visit` with every folder on the way.
fn find(log_dir: &Path, visit: &mut dyn FnMut(&Path)) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![(log_dir.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        visit(&folder);
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // The type of the entry itself: symbolic links are not followed.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(JOURNAL_PREFIX) {
                if name.ends_with(".new") {
                    remove_abandoned(&entry);
                } else {
                    found.push(entry.path());
                }
            } else if !name.starts_with('.') && depth < MAX_DEPTH {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort();
    found
}

/// Removes an empty journal whose writer was killed while it created it.
fn remove_abandoned(entry: &fs::DirEntry) {
    let age = entry
        .metadata()
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|modified| modified.elapsed().ok());
    if age.is_some_and(|age| age > ABANDONED_AFTER) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Takes the journal's lock; `None` when another process holds it, or has just recovered the
/// journal.
///
/// Writers create no journal on a network file system, so a journal that appears on one was written
/// through another mount, whose locks may be invisible. A live writer adds to its journal every
/// second.
pub(crate) fn lock(journal: &Path) -> io::Result<Option<File>> {
    if os::network_file_system(journal).is_some() && !is_quiet(journal) {
        return Ok(None);
    }
    let file = File::open(journal.join(LOCK_FILE))?;
    let locked = os::try_lock(file.as_fd())? && file.metadata()?.nlink() > 0;
    Ok((locked && journal.exists()).then_some(file))
}

/// Whether the journal has not been written for some time.
fn is_quiet(journal: &Path) -> bool {
    fs::metadata(journal.join(EVENTS_FILE))
        .and_then(|meta| meta.modified())
        .is_ok_and(|last| last.elapsed().is_ok_and(|age| age > ABANDONED_AFTER))
}

/// Recovers a journal. Returns `None` when the writer lives, when another process has just
/// recovered it, or when a worker recorded nothing.
pub(crate) fn recover(journal: &Path, cache_out: Option<&Path>) -> Option<RecoveredRun> {
    let mut run = RecoveredRun::new(journal.parent().unwrap_or(journal), journal);
    let result = match lock(journal) {
        Ok(Some(_lock)) => os::without_size_signal(|| recover_locked(journal, cache_out, &mut run)),
        Ok(None) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !journal.exists() => return None,
        Err(cause) => Err(RecoverError::Io {
            path: journal.to_owned(),
            cause,
        }),
    };
    if matches!(&result, Ok(path) if path.as_os_str().is_empty()) {
        return None;
    }
    run.file = result;
    Some(run)
}

fn recover_locked(
    journal: &Path,
    cache_out: Option<&Path>,
    run: &mut RecoveredRun,
) -> Result<PathBuf, RecoverError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| RecoverError::Io { path, cause }
    };
    let events_path = journal.join(EVENTS_FILE);
    let (mut marker, events) = map(&events_path).map_err(failed(&events_path))?;
    // Without the rings, the drained records remain.
    let rings = map(&journal.join(RINGS_FILE)).ok();
    let rings = rings
        .as_ref()
        .map(|(_, rings)| rings.bytes())
        .unwrap_or_default();
    let mut index = Index::default();
    if segment::is_file_of_segments(events.bytes()) {
        for blocks in segment::read_all(events.bytes()) {
            index.add(blocks);
        }
    } else {
        index.add(events.bytes());
    }
    if let Some(found) = index.facts.get("version")
        && !KNOWN_VERSIONS
            .iter()
            .any(|known| *found == known.to_string())
    {
        return Err(RecoverError::OtherVersion {
            path: journal.to_owned(),
            found: found.clone(),
            known: crate::ring::layout::VERSION,
        });
    }
    if let Some((bytes, name)) = &index.written {
        // The journal is untrusted: only a name in its folder is valid.
        let name = Path::new(name).file_name().unwrap_or_default();
        let path = run.session.join(name);
        if fs::metadata(&path).is_ok_and(|meta| meta.len() == *bytes) {
            let _ = remove_journal(journal);
            return Ok(path);
        }
    }
    index.add_leftovers(leftovers(rings));
    let mut table = HashMap::new();
    names::read_table(rings.get(..NAMES_BYTES).unwrap_or_default(), |id, text| {
        table.insert(id, text);
    });
    index.keep_last();
    let is_worker = is_worker_journal(journal);
    if is_worker && index.threads.is_empty() {
        // The journal of a worker that was killed before it recorded anything.
        let _ = remove_journal(journal);
        return Ok(PathBuf::new());
    }
    index.first_ticks = index.number("first_ticks");
    run.dropped = index.threads.values().map(|thread| thread.dropped).sum();
    run.cut_at_limit = limit_warning_of(&index).is_some();
    let facts = facts(&index, run.dropped, is_worker);
    let names = Names::Table(table);
    let name = format!("{}.xplane.pb", facts.host);
    let output = run.session.join(&name);
    // Does nothing when the file is read-only.
    let mut before = |bytes: u64, path: &Path| mark_written(&mut marker, bytes, path);
    let (path, written) = match file::write_recovered(&output, &index, &names, &facts, &mut before)
    {
        Ok(done) => {
            remove_journal(journal).map_err(failed(journal))?;
            done
        }
        Err(error) => {
            let Some(cache) = cache_out else {
                return Err(failed(&output)(error));
            };
            run.in_cache = true;
            let path = cache.join(cache_name(journal)).join(&name);
            if is_newer(&path, &events_path) {
                return Ok(path);
            }
            let folder = path.parent().unwrap_or(cache);
            fs::create_dir_all(folder).map_err(failed(folder))?;
            let _ = fs::remove_file(&path);
            file::write_recovered(&path, &index, &names, &facts, &mut |_, _| {})
                .map_err(failed(&path))?
        }
    };
    run.spans = written.spans;
    run.unfinished = written.unfinished;
    Ok(path)
}

fn facts(index: &Index<'_>, dropped: u64, is_worker: bool) -> FileMetadata {
    let mut warnings = match index.facts.get("keep_last_s") {
        // Journals of workers are always recovered.
        None if is_worker => Vec::new(),
        None => vec![
            "the program ended without stop_trace; this run was recovered from its journal"
                .to_owned(),
        ],
        Some(seconds) => vec![format!(
            "the program ended unexpectedly; these are its last seconds, at most {seconds}, from the flight recorder's journal"
        )],
    };
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} records were dropped: buffers were full; raise buffer_bytes or lower the trace level"
        ));
    }
    warnings.extend(limit_warning_of(index));
    let damaged = index.garbage + index.number("removed_bytes");
    if damaged > 0 {
        warnings.push(format!(
            "{damaged} bytes of the journal were damaged and passed over"
        ));
    }
    let host = index.facts.get("host").map_or("localhost", String::as_str);
    // The journal is untrusted: its host name must not lead out of the folder.
    let host = host.replace(['/', '\\', '\0'], "_");
    FileMetadata {
        host: host.trim_start_matches('.').to_owned(),
        stats: stats(index, dropped),
        warnings,
        recovered: !is_worker,
    }
}

fn limit_warning_of(index: &Index<'_>) -> Option<String> {
    limit_warning(
        index.facts.get("limit_reached").map(String::as_str),
        index.number("removed_events"),
        index.number("recording_stopped") == 1,
    )
}

/// Returns the file name of a journal in the cache.
fn cache_name(journal: &Path) -> String {
    let path = fs::canonicalize(journal).unwrap_or_else(|_| journal.to_owned());
    let mut hasher = rustc_hash::FxHasher::default();
    path.hash(&mut hasher);
    format!("recovered-{:016x}", hasher.finish())
}

fn is_newer(path: &Path, than: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    matches!((time(path), time(than)), (Some(a), Some(b)) if a >= b)
}

/// Opens and maps a file of the journal, with append access if permitted.
fn map(path: &Path) -> io::Result<(File, MappedFile)> {
    let file = match File::options().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(_) => File::open(path)?,
    };
    let len = file.metadata()?.len();
    // The oldest part of a long recording may have been removed, which leaves a hole.
    let mapped = MappedFile::map(&file, os::first_data(file.as_raw_fd()), len)?;
    Ok((file, mapped))
}

/// Lists the content of the threads' rings.
fn leftovers(rings: &[u8]) -> Vec<Leftover<'_>> {
    let nonce = word(rings, 0);
    if nonce == 0 {
        return Vec::new();
    }
    (NAMES_BYTES..rings.len())
        .step_by(4096)
        .filter(|at| {
            word(rings, at + offset_of!(RegionHead, nonce)) == nonce
                && word(rings, at + offset_of!(RegionHead, file_offset)) == *at as u64
        })
        .filter_map(|at| leftover(rings, at))
        .collect()
}

fn leftover(rings: &[u8], at: usize) -> Option<Leftover<'_>> {
    let serial = half(rings, at + offset_of!(RegionHead, serial));
    if serial == 0 {
        return None;
    }
    let name_at = at + offset_of!(RegionHead, name);
    let name_len = half(rings, at + offset_of!(RegionHead, name_len)) as usize;
    let name = rings.get(name_at..name_at + name_len.min(THREAD_NAME_BYTES))?;
    let thread = Thread {
        tid: u64::from(half(rings, at + offset_of!(RegionHead, tid))),
        name: String::from_utf8_lossy(name).into_owned(),
        dropped: word(rings, at + offset_of!(RegionHead, dropped)),
        cut: word(rings, at + offset_of!(RegionHead, cut)),
    };
    let mut chunks = Vec::new();
    let mut number = 0;
    for extent in 0..MAX_EXTENTS {
        let entry = at + offset_of!(RegionHead, extents) + extent * size_of::<Extent>();
        let file_offset =
            usize::try_from(word(rings, entry + offset_of!(Extent, file_offset))).ok()?;
        let count = usize::try_from(word(rings, entry + offset_of!(Extent, chunks))).ok()?;
        let skip = if extent == 0 { CHUNKS_OFFSET } else { 0 };
        for chunk in 0..count.min(MAX_CHUNKS - number) {
            let from = file_offset
                .saturating_add(skip)
                .saturating_add(chunk * CHUNK_BYTES);
            let head =
                at + offset_of!(RegionHead, chunks) + (number + chunk) * size_of::<ChunkHead>();
            let state = half(rings, head + offset_of!(ChunkHead, state));
            let used = half(rings, head + offset_of!(ChunkHead, used)) as usize;
            let used = used.min(CHUNK_USABLE) / RECORD_BYTES * RECORD_BYTES;
            if state != 0
                && let Some(bytes) = rings.get(from..from.saturating_add(used))
            {
                chunks.push((state >> 1, bytes));
            }
        }
        number += count.min(MAX_CHUNKS - number);
    }
    let open_at = at + OPEN_OFFSET;
    let open = rings
        .get(open_at..open_at + OPEN_SPANS * RECORD_BYTES)
        .unwrap_or_default();
    Some(Leftover {
        serial,
        thread,
        chunks,
        open,
    })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at.saturating_add(8))
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at.saturating_add(4))
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}
