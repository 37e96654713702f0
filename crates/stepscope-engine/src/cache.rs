//! Import cache: finished traces on disk, so that a large run opens quickly the second time.
//!
//! ```text
//! CACHE/imports/KEY.ssc:  "STEPSCI2" | u64 length of the note | u64 × 2 hash of the note | note
//!                         (JSON) | zeros to a multiple of 4096 | store image
//! ```
//! The key is a hash of every file's path, length, modification time and inode, of the limits, and
//! of [`VERSION`]. A file whose key, version or image does not match is deleted and the run is read
//! again. The folder belongs to stepscope and is safe to delete at any time.
//!
//! Only runs that took more than [`MIN_BYTES`] to read are cached. The folder is kept below a limit
//! (10 GB, or `STEPSCOPE_CACHE_BYTES`); the least recently used entries are removed first. A named
//! thread writes an entry after the run is already open, into a temporary file that is renamed. A
//! reader therefore never sees half an image, and two programs can write the same entry. Writing
//! begins [`PAUSE`] after the run was opened, so that it does not compete with the first queries. A
//! program that makes one query writes [immediately](Cache::without_pause), in parallel with the
//! query, and calls [`Cache::wait`] before it ends. An entry that cannot be written is dropped
//! without a message.
//!
//! An image up to [`WHOLE_BYTES`] is verified as a whole when it is opened. For a larger image,
//! only the header and the table of contents are verified then, and each column when it is first
//! used. A damaged column is replaced from a trace that is rebuilt from the run's files, and the
//! cache's file is removed. Images are written without fsync: if the machine crashes before the
//! data is on disk, the checksums do not match.

use std::fs::{FileTimes, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stepscope_formats::Format;
use stepscope_model::{ArgSource, Limits, ReadContext, SharedBytes};
use stepscope_store::{Rebuild, Trace};
use tempfile::NamedTempFile;

use crate::atomic_file;
use crate::error::RunProblem;
use crate::files::private::{create_private_folder, is_own_file, is_own_folder};
use crate::files::{Stamp, TraceFile};
use crate::found_run::FoundRun;
use crate::open::{self, Imported, ImportedFile};
use crate::source::{LazySource, NoSource, SourceSpec};

/// Version of the cache: a hash of the sources of the readers, the store and the image, computed by
/// `build.rs`. It changes whenever the same file may give other results.
pub(crate) const VERSION: &str = env!("STEPSCOPE_READERS");
/// Runs that require reading fewer bytes are not cached.
pub(crate) const MIN_BYTES: u64 = 8 << 20;
/// Default size limit of the folder.
const DEFAULT_CAP_BYTES: u64 = 10_000_000_000;
const MAGIC: &[u8; 8] = b"STEPSCI2";
/// Number of bytes before the note.
const HEAD_BYTES: u64 = 32;
/// Images up to this size are verified as a whole.
const WHOLE_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4_096;
/// Delay between opening a run and writing it to the cache.
const PAUSE: Duration = Duration::from_millis(500);
/// Older temporary files belong to a writer that died.
const STALE: Duration = Duration::from_hours(1);

/// Returns the user's cache directory for stepscope.
pub(crate) fn default_dir() -> Option<PathBuf> {
    user_dir("XDG_CACHE_HOME", ".cache")
}

/// Returns the user's data directory for stepscope (notes).
pub(crate) fn default_data_dir() -> Option<PathBuf> {
    user_dir("XDG_DATA_HOME", ".local/share")
}

fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let base = std::env::var_os(variable)
        .map(PathBuf::from)
        .and_then(absolute)
        .or_else(|| {
            let home = std::env::var_os("HOME")
                .map(PathBuf::from)
                .and_then(absolute)?;
            Some(home.join(below_home))
        })?;
    Some(base.join("stepscope"))
}

/// Metadata that is stored with the image.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: String,
    /// Length of the image, to detect truncation.
    image_bytes: u64,
    /// Hash of the image, to detect damage. For a large image, whose columns have their own
    /// checksums, the hash of an empty input.
    image_hash: String,
    content_hash: String,
    problems: Vec<RunProblem>,
    /// Formats of the files in the run's order; empty for an unreadable file.
    formats: Vec<String>,
    stamps: Vec<Stamp>,
}

/// The import cache.
pub(crate) struct Cache {
    dir: PathBuf,
    cap_bytes: u64,
    /// Larger images are verified column by column.
    whole_bytes: u64,
    writing: Arc<Writing>,
}

#[derive(Default)]
struct Writing {
    count: Mutex<usize>,
    /// Set when a thread waits in [`Cache::wait`], or after [`Cache::without_pause`]: skip pauses.
    hurry: AtomicBool,
    /// Notifies threads that wait for `count` or `hurry`.
    changed: Condvar,
}

impl Writing {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for [`PAUSE`], so that the first queries run undisturbed.
    fn pause(&self) {
        let calm = |_: &mut usize| !self.hurry.load(Ordering::Relaxed);
        let waited = self.changed.wait_timeout_while(self.count(), PAUSE, calm);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Cache {
    pub(crate) fn new(dir: PathBuf) -> Self {
        let cap_bytes = std::env::var("STEPSCOPE_CACHE_BYTES")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(DEFAULT_CAP_BYTES);
        Self {
            dir,
            cap_bytes,
            whole_bytes: WHOLE_BYTES,
            writing: Arc::default(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.dir.join("imports")
    }

    fn path_of(&self, run: &FoundRun, limits: &Limits) -> PathBuf {
        self.folder().join(format!("{}.ssc", key(run, limits)))
    }

    /// Disables the delay before writing.
    pub(crate) fn without_pause(self) -> Self {
        self.writing.hurry.store(true, Ordering::Relaxed);
        self
    }

    /// Returns the cached run, or `None` if there is no entry or it no longer matches. Does not
    /// read the trace's files.
    pub(crate) fn load(&self, run: &FoundRun, limits: &Limits) -> Option<Imported> {
        let path = self.path_of(run, limits);
        if !is_own_entry(&path) {
            return None;
        }
        let file = Arc::new(TraceFile::open(&path).ok()?);
        let Some(imported) = load(&file, &path, run, limits, self.whole_bytes) else {
            // The entry is useless from now on.
            let _ = std::fs::remove_file(&path);
            return None;
        };
        touch(&path);
        Some(imported)
    }

    /// Caches a run, on a separate thread.
    pub(crate) fn store(&self, run: &FoundRun, limits: &Limits, kept: CacheEntry) {
        let path = self.path_of(run, limits);
        let folder = self.folder();
        let (cap_bytes, whole_bytes) = (self.cap_bytes, self.whole_bytes);
        *self.writing.count() += 1;
        let writing = Arc::clone(&self.writing);
        let work = move || {
            writing.pause();
            if write(&path, &kept, whole_bytes).is_ok() {
                evict(&folder, cap_bytes, &path);
            }
            drop(kept);
            *writing.count() -= 1;
            writing.changed.notify_all();
        };
        let started = std::thread::Builder::new()
            .name("stepscope-cache".to_owned())
            .spawn(work);
        if started.is_err() {
            *self.writing.count() -= 1;
        }
    }

    /// Waits until all entries are written.
    pub(crate) fn wait(&self) {
        let mut count = self.writing.count();
        self.writing.hurry.store(true, Ordering::Relaxed);
        self.writing.changed.notify_all();
        while *count > 0 {
            count = self
                .writing
                .changed
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The data that [`Cache::store`] writes.
pub(crate) struct CacheEntry {
    pub(crate) trace: Arc<Trace>,
    pub(crate) content_hash: String,
    pub(crate) problems: Vec<RunProblem>,
    pub(crate) files: Vec<ImportedFile>,
}

pub(crate) fn key(run: &FoundRun, limits: &Limits) -> String {
    let mut text = Vec::new();
    text.extend_from_slice(VERSION.as_bytes());
    for limit in [
        limits.max_inflated_bytes,
        limits.max_inflate_ratio,
        u64::from(limits.max_tracks),
        u64::from(limits.max_json_depth),
    ] {
        text.extend_from_slice(&limit.to_le_bytes());
    }
    for file in &run.files {
        // Two paths to the same file give one entry; a path that cannot be resolved is used as it
        // is.
        let path = std::fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        text.extend_from_slice(path.as_os_str().as_encoded_bytes());
        text.push(0);
        for number in [
            file.stamp.bytes,
            file.stamp.modified_ns.cast_unsigned(),
            file.stamp.inode,
            file.stamp.device,
            u64::from(file.rank.map_or(u32::MAX, |rank| rank)),
        ] {
            text.extend_from_slice(&number.to_le_bytes());
        }
    }
    crate::hash::bytes(&text).hex()
}

/// A range of a mapped file.
struct Image {
    file: Arc<TraceFile>,
    from: usize,
    to: usize,
}

impl AsRef<[u8]> for Image {
    fn as_ref(&self) -> &[u8] {
        &(*self.file).as_ref()[self.from..self.to]
    }
}

fn load(
    file: &Arc<TraceFile>,
    path: &Path,
    run: &FoundRun,
    limits: &Limits,
    whole_bytes: u64,
) -> Option<Imported> {
    let bytes = (**file).as_ref();
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<16>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let note = rest.get(..length)?;
    if *hash != crate::hash::bytes(note).to_bytes() {
        return None;
    }
    let note: Note = serde_json::from_slice(note).ok()?;
    let from = usize::try_from(image_offset(length as u64)).ok()?;
    let to = from.checked_add(usize::try_from(note.image_bytes).ok()?)?;
    let stamps: Vec<_> = run.files.iter().map(|file| file.stamp).collect();
    let fits = magic == MAGIC
        && note.version == VERSION
        && to == bytes.len()
        && note.formats.len() == run.files.len()
        && note.stamps == stamps;
    let is_whole = note.image_bytes <= whole_bytes;
    if !fits || is_whole && note.image_hash != crate::hash::content(bytes.get(from..to)?).hex() {
        return None;
    }
    let mut sources: Vec<Arc<dyn ArgSource>> = Vec::new();
    let mut files = Vec::new();
    for (file, code) in run.files.iter().zip(&note.formats) {
        let format = format_of(code);
        sources.push(match format {
            Some(format) => Arc::new(LazySource::new(SourceSpec {
                path: file.path.clone(),
                place: file.place.clone(),
                stamp: file.stamp,
                format,
                limits: *limits,
            })),
            None => Arc::new(NoSource),
        });
        files.push(ImportedFile {
            stamp: file.stamp,
            format,
        });
    }
    let image: SharedBytes = Arc::new(Image {
        file: Arc::clone(file),
        from,
        to,
    });
    let trace = if is_whole {
        Trace::load(image, sources)
    } else {
        Trace::load_sections(image, sources, rebuild(path, run, limits))
    };
    Some(Imported {
        trace: trace.ok()?,
        problems: note.problems,
        content_hash: note.content_hash,
        files,
    })
}

/// Returns a function that reads the run's files again to repair a damaged image, and removes the
/// cache file.
fn rebuild(path: &Path, run: &FoundRun, limits: &Limits) -> Rebuild {
    let (path, run, limits) = (path.to_owned(), run.clone(), *limits);
    Box::new(move || {
        let _ = std::fs::remove_file(&path);
        let context = Arc::new(ReadContext::new(limits));
        Some(open::import(&run, &context).ok()?.trace)
    })
}

fn format_of(code: &str) -> Option<Format> {
    [
        Format::XSpace,
        Format::ChromeJson,
        Format::Perfetto,
        Format::RocprofJson,
        Format::NsightSystems,
        Format::Measureme,
        Format::Pprof,
        Format::Speedscope,
        Format::ExecutionTraceJson,
        Format::ChakraTrace,
        Format::CollapsedStacks,
        Format::PerfScript,
        Format::FirefoxProfile,
        Format::Pstats,
        Format::LightningReport,
        Format::Hlo,
        Format::TorchSnapshot,
        Format::NcclFlightRecorder,
        Format::TorchCompileLog,
    ]
    .into_iter()
    .find(|format| format.code() == code)
}

/// Returns the offset of the image: it begins on a page, so that its columns are aligned.
fn image_offset(note_bytes: u64) -> u64 {
    (HEAD_BYTES + note_bytes).next_multiple_of(PAGE)
}

/// Writes an entry. Fails if other users can write into the folder.
fn write(path: &Path, kept: &CacheEntry, whole_bytes: u64) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_private_folder(folder)?;
    if !is_own_folder(folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    atomic_file::replace(path, |file| write_to(file, kept, whole_bytes))
}

/// Returns whether an entry exists and only this user can have written it.
fn is_own_entry(path: &Path) -> bool {
    path.parent().is_some_and(is_own_folder) && is_own_file(path)
}

fn write_to(file: &mut NamedTempFile, kept: &CacheEntry, whole_bytes: u64) -> io::Result<()> {
    let mut note = Note {
        version: VERSION.to_owned(),
        // The actual value has at most as many digits; the note is padded to this length.
        image_bytes: u64::MAX,
        image_hash: crate::hash::bytes(&[]).hex(),
        content_hash: kept.content_hash.clone(),
        problems: kept.problems.clone(),
        formats: kept
            .files
            .iter()
            .map(|file| file.format.map_or("", Format::code).to_owned())
            .collect(),
        stamps: kept.files.iter().map(|file| file.stamp).collect(),
    };
    let length = serde_json::to_vec(&note)?.len();
    let from = image_offset(length as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut out = BufWriter::with_capacity(1 << 20, &mut *file);
    kept.trace.save(&mut out)?;
    out.flush()?;
    drop(out);
    note.image_bytes = file.stream_position()? - from;
    file.flush()?;
    if note.image_bytes <= whole_bytes {
        let written = TraceFile::open(file.path()).map_err(io::Error::other)?;
        let image = usize::try_from(from)
            .ok()
            .and_then(|from| written.as_ref().get(from..))
            .unwrap_or_default();
        note.image_hash = crate::hash::content(image).hex();
    }
    let mut text = serde_json::to_vec(&note)?;
    text.resize(length, b' ');
    file.seek(SeekFrom::Start(0))?;
    file.write_all(MAGIC)?;
    file.write_all(&(length as u64).to_le_bytes())?;
    file.write_all(&crate::hash::bytes(&text).to_bytes())?;
    file.write_all(&text)
}

/// Updates the time of last use of an entry.
fn touch(path: &Path) {
    let now = u64::try_from(stepscope_model::clock::unix_now_ns()).unwrap_or(0);
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_nanos(now));
    if let Ok(file) = OpenOptions::new().write(true).open(path) {
        let _ = file.set_times(times);
    }
}

/// Removes the least recently used entries until the folder is below its limit. The entry just
/// written stays.
fn evict(folder: &Path, cap_bytes: u64, newest: &Path) {
    let Ok(listing) = std::fs::read_dir(folder) else {
        return;
    };
    let now_ns = stepscope_model::clock::unix_now_ns();
    let mut entries = Vec::new();
    for entry in listing.filter_map(Result::ok) {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let (path, stamp) = (entry.path(), Stamp::from_metadata(&metadata));
        if path.extension().is_some_and(|extension| extension == "tmp") {
            let age_ns = now_ns.saturating_sub(stamp.modified_ns);
            if u128::from(age_ns.unsigned_abs()) > STALE.as_nanos() {
                let _ = std::fs::remove_file(&path);
            }
        } else {
            entries.push((stamp.modified_ns, stamp.bytes, path));
        }
    }
    entries.sort();
    let mut total: u64 = entries.iter().map(|entry| entry.1).sum();
    for (_, bytes, path) in entries {
        if total <= cap_bytes {
            return;
        }
        if path != newest && std::fs::remove_file(&path).is_ok() {
            total -= bytes;
        }
    }
}

/// Stores an uploaded file below the cache directory under a unique name; returns its path.
pub(crate) fn keep_upload(
    dir: &Path,
    file_name: &str,
    max_bytes: u64,
    body: &mut dyn Read,
) -> io::Result<PathBuf> {
    let folder = dir.join("uploads");
    create_private_folder(&folder)?;
    let name = safe_name(file_name);
    for attempt in 0..10_000_u32 {
        let sub = if attempt == 0 {
            folder.clone()
        } else {
            folder.join(attempt.to_string())
        };
        let path = sub.join(&name);
        if path.exists() {
            continue;
        }
        create_private_folder(&sub)?;
        atomic_file::replace(&path, |out| {
            let bytes = io::copy(&mut body.take(max_bytes.saturating_add(1)), out)?;
            if bytes > max_bytes {
                return Err(io::Error::other(format!(
                    "it is larger than {max_bytes} bytes"
                )));
            }
            out.as_file().sync_all()
        })?;
        return Ok(path);
    }
    Err(io::Error::other("too many uploads of this name"))
}

/// Returns the last component of a name from a client, without characters that could change the
/// directory.
fn safe_name(sent: &str) -> String {
    let last = sent.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = last
        .chars()
        .filter(|letter| !letter.is_control() && !"<>:\"|?*".contains(*letter))
        .collect();
    let dots = name.len() - name.trim_start_matches('.').len();
    name.drain(..dots);
    // Long names are truncated at the front, because the extension matters.
    while name.len() > 150 {
        name.remove(0);
    }
    if name.is_empty() {
        "trace".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests;
