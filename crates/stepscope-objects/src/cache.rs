//! Objects as files on this machine.
//!
//! ```text
//! CACHE/objects/s3/BUCKET/FOLDER/NAME            the object
//! CACHE/objects/s3/BUCKET/FOLDER/.NAME.object    its state, size and URL; modification time: last use
//! CACHE/objects/s3/BUCKET/FOLDER/.NAME.STATE.partial    an object that is being fetched
//! ```
//! Names are those of the objects, with what no file name may hold as `%XX`, so the folders can be read like a copy of
//! the bucket. A file without a note, or with one of another state, is fetched again. The folder is kept below a limit
//! (20 GB, or `STEPSCOPE_OBJECTS_BYTES`): the least recently used objects are removed first. Everything in it is safe to
//! delete at any time. A file is replaced, never written to, so who has it open keeps its bytes.

use std::fmt::Write as _;
use std::fs::{self, File, FileTimes};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::address::Address;

/// Default size limit of the folder, bytes.
const DEFAULT_CAP_BYTES: u64 = 20_000_000_000;
/// Environment variable with the limit in bytes.
const CAP_VARIABLE: &str = "STEPSCOPE_OBJECTS_BYTES";
/// Longest file name; the note and the partial file need a longer one.
const MAX_NAME_BYTES: usize = 180;
/// Longest path below the folder.
const MAX_PATH_BYTES: usize = 3_000;
/// Partial files that nobody has written to for this long are removed.
const STALE: Duration = Duration::from_hours(24);
/// Maximum number of files that one look for old ones visits.
const MAX_FILES: usize = 1_000_000;
const MAGIC: &str = "stepscope object 1";
const NOTE: &str = ".object";
const PARTIAL: &str = ".partial";

/// The folder with fetched objects.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    pub(crate) cap_bytes: u64,
}

impl Cache {
    /// Creates a cache in a folder that only its owner can read.
    pub(crate) fn new(folder: PathBuf) -> Self {
        let cap = std::env::var(CAP_VARIABLE).ok();
        let cap_bytes = cap
            .and_then(|text| text.parse().ok())
            .unwrap_or(DEFAULT_CAP_BYTES);
        Self { folder, cap_bytes }
    }

    /// Returns the path of an object's file.
    pub(crate) fn path_of(&self, address: &Address, key: &str) -> io::Result<PathBuf> {
        let mut path = PathBuf::new();
        for name in address.bucket_names() {
            path.push(safe_name(&name));
        }
        let mut names: Vec<&str> = key.split('/').collect();
        let file = names.pop().unwrap_or_default();
        path.extend(names.into_iter().map(safe_name));
        if !address.query.is_empty() {
            path.push(format!("query-{:016x}", hash(address.query.as_bytes())));
        }
        path.push(safe_name(file));
        if path.as_os_str().len() > MAX_PATH_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidFilename,
                "its name is too long for a file",
            ));
        }
        Ok(self.folder.join(path))
    }

    /// Returns whether the file holds this state of the object.
    pub(crate) fn is_current(path: &Path, state: &str, bytes: u64) -> bool {
        let length = fs::symlink_metadata(path).map(|found| (found.is_file(), found.len()));
        length.is_ok_and(|length| length == (true, bytes))
            && fs::read_to_string(hidden_sibling(path, NOTE))
                .is_ok_and(|note| note.starts_with(&head_of_note(state, bytes)))
    }

    /// Marks an object as used now.
    pub(crate) fn touch(path: &Path) {
        if let Ok(note) = File::options().write(true).open(hidden_sibling(path, NOTE)) {
            // Without the time, the object is removed earlier than it should be.
            let _ = note.set_times(FileTimes::new().set_modified(now()));
        }
    }

    /// Opens the partial file of an object, creates its folders, and locks it; `None` if another process fetches the
    /// object.
    pub(crate) fn open_partial(path: &Path, state: &str) -> io::Result<Option<Partial>> {
        let folder = path.parent().unwrap_or(Path::new("."));
        create_private(folder)?;
        let suffix = format!(".{:016x}{PARTIAL}", hash(state.as_bytes()));
        let partial = hidden_sibling(path, &suffix);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&partial)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Partial {
                file,
                path: partial,
            })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Makes a complete partial file the object's file.
    pub(crate) fn keep(
        partial: Partial,
        path: &Path,
        state: &str,
        bytes: u64,
        modified_ns: i64,
        url: &str,
    ) -> io::Result<()> {
        let modified = UNIX_EPOCH + Duration::from_nanos(modified_ns.max(0).unsigned_abs());
        partial
            .file
            .set_times(FileTimes::new().set_modified(modified))?;
        // Its size alone would not show that content is missing after a power failure.
        partial.file.sync_data()?;
        // Never a note that belongs to another file, whenever the machine stops.
        match fs::remove_file(hidden_sibling(path, NOTE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(&partial.path, path)?;
        let mut note = File::create(hidden_sibling(path, NOTE))?;
        writeln!(note, "{}{url}", head_of_note(state, bytes))?;
        // The lock ends here, so that the next process that gets it finds the note.
        drop(partial);
        Ok(())
    }

    /// Removes the least recently used objects until the folder fits its limit. `keep` stays.
    pub(crate) fn evict(&self, keep: &[PathBuf]) {
        let mut notes: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let mut total: u64 = 0;
        let mut open = vec![self.folder.clone()];
        let mut visited = 0;
        while let Some(folder) = open.pop() {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.filter_map(Result::ok) {
                visited += 1;
                if visited > MAX_FILES {
                    break;
                }
                let Ok(metadata) = entry.path().symlink_metadata() else {
                    continue;
                };
                let path = entry.path();
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if metadata.is_dir() {
                    open.push(path);
                    continue;
                }
                let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
                if name.starts_with('.') && name.ends_with(NOTE) {
                    let object = folder.join(&name[1..name.len() - NOTE.len()]);
                    let bytes = object.symlink_metadata().map_or(0, |found| found.len());
                    notes.push((modified, bytes, object));
                    continue;
                }
                let age = now().duration_since(modified).unwrap_or_default();
                if name.ends_with(PARTIAL) && age > STALE {
                    let _ = fs::remove_file(&path);
                    continue;
                }
                total = total.saturating_add(metadata.len());
            }
        }
        notes.sort();
        for (_, bytes, object) in notes {
            if total <= self.cap_bytes {
                return;
            }
            if keep.contains(&object) {
                continue;
            }
            let _ = fs::remove_file(hidden_sibling(&object, NOTE));
            if fs::remove_file(&object).is_ok() {
                total = total.saturating_sub(bytes);
            }
        }
    }
}

/// A file that is being fetched. The lock ends with it.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) file: File,
    path: PathBuf,
}

impl Partial {
    /// Removes the file: what it holds is useless.
    pub(crate) fn discard(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn now() -> SystemTime {
    #[allow(
        clippy::disallowed_methods,
        reason = "compared with times of files, which the system's clock sets"
    )]
    SystemTime::now()
}

/// Hashes text. The same on every machine and in every version: file names depend on it.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    u64::try_from(twox_hash::XxHash3_128::oneshot(bytes) >> 64).unwrap_or_default()
}

fn head_of_note(state: &str, bytes: u64) -> String {
    // A state of several lines would end early.
    let state: String = state
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    format!("{MAGIC}\n{state}\n{bytes}\n")
}

/// Returns the path of a hidden file next to an object's file.
fn hidden_sibling(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{suffix}"))
}

/// Makes a file name of one part of an object's name: no separator, no control character, not hidden, never `.` or
/// `..`, and of bounded length.
fn safe_name(part: &str) -> String {
    let mut name = String::with_capacity(part.len());
    for (at, letter) in part.char_indices() {
        let is_hidden = at == 0 && letter == '.';
        if is_hidden || letter.is_control() || matches!(letter, '/' | '\\' | '%' | ':') {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                let _ = write!(name, "%{byte:02X}");
            }
        } else {
            name.push(letter);
        }
    }
    if name.is_empty() {
        "%".clone_into(&mut name);
    }
    if name.len() > MAX_NAME_BYTES {
        // The end stays: readers look at the extension.
        let end = name.len() - MAX_NAME_BYTES / 2;
        let end = (end..name.len()).find(|at| name.is_char_boundary(*at));
        let tail = name[end.unwrap_or(name.len())..].to_owned();
        name = format!("{:016x}-{tail}", hash(part.as_bytes()));
    }
    name
}

fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn address(url: &str) -> Address {
        Address::parse(Path::new(url)).unwrap()
    }

    fn keep(cache: &Cache, key: &str, bytes: usize) -> PathBuf {
        let path = cache.path_of(&address("s3://b"), key).unwrap();
        let partial = Cache::open_partial(&path, "v1").unwrap().unwrap();
        (&partial.file).write_all(&vec![7; bytes]).unwrap();
        Cache::keep(partial, &path, "v1", bytes as u64, 5_000_000_000, "s3://b").unwrap();
        path
    }

    #[test]
    fn no_name_of_an_object_leads_out_of_the_folder() {
        let cache = Cache::new(PathBuf::from("/cache/objects"));
        let bucket = Path::new("/cache/objects/s3/b");
        for key in [
            "../../../etc/passwd",
            "/etc/passwd",
            "a/../../b",
            "a/./b",
            "..",
            ".",
            "",
            "a//b",
            "..\\..\\x",
            "C:\\x",
            ".ssh/authorized_keys",
            "a\0b",
            "a\nb",
            "%2E%2E/x",
            "\u{202e}/..",
        ] {
            let path = cache.path_of(&address("s3://b"), key).unwrap();
            assert!(path.starts_with(bucket), "{key:?}: {}", path.display());
            let below = path.strip_prefix(bucket).unwrap();
            assert!(below.components().count() > 0, "{key:?}");
            for part in below.components() {
                let std::path::Component::Normal(name) = part else {
                    panic!("{key:?}: {}", path.display());
                };
                let name = name.to_str().unwrap();
                assert!(
                    !name.starts_with('.') && !name.contains(['\0', '\n']),
                    "{key:?}"
                );
            }
        }
        let names = ["a/../b", "a/%2E%2E/b", "a/%2E./b", "a/b", "a//b", "a/%/b"];
        let paths = names.map(|key| cache.path_of(&address("s3://b"), key).unwrap());
        for (at, path) in paths.iter().enumerate() {
            assert!(!paths[..at].contains(path), "{}", names[at]);
        }
    }

    #[test]
    fn long_names_stay_apart_and_keep_their_extension() {
        let cache = Cache::new(PathBuf::from("/c"));
        let of = |key: &str| cache.path_of(&address("gs://b"), key);
        let [a, b] =
            ["a", "b"].map(|first| of(&format!("{first}{}.xplane.pb", "ü".repeat(400))).unwrap());
        assert_ne!(a, b);
        let name = a.file_name().unwrap().to_str().unwrap();
        assert!(
            name.ends_with(".xplane.pb") && name.len() <= MAX_NAME_BYTES,
            "{name}"
        );
        assert!(of(&"long-folder/".repeat(400)).is_err());
    }

    #[test]
    fn an_object_is_current_until_its_state_or_size_changes() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_owned());
        let path = keep(&cache, "a/x.pb", 10);
        assert!(Cache::is_current(&path, "v1", 10));
        assert!(!Cache::is_current(&path, "v2", 10));
        assert!(!Cache::is_current(&path, "v1", 11));
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(modified, UNIX_EPOCH + Duration::from_secs(5));
        // A file that something else shortened.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(3)
            .unwrap();
        assert!(!Cache::is_current(&path, "v1", 10));
    }

    #[test]
    fn one_process_fetches_an_object_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_owned());
        let path = cache.path_of(&address("s3://b"), "x").unwrap();
        let first = Cache::open_partial(&path, "v1").unwrap().unwrap();
        assert!(Cache::open_partial(&path, "v1").unwrap().is_none());
        assert!(Cache::open_partial(&path, "v2").unwrap().is_some());
        drop(first);
        // A program that another test starts holds the file, too, until it runs.
        let until = Instant::now() + Duration::from_mins(1);
        while Cache::open_partial(&path, "v1").unwrap().is_none() {
            assert!(Instant::now() < until, "the file stays locked");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_least_recently_used_objects_are_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut cache = Cache::new(dir.path().to_owned());
        cache.cap_bytes = 25;
        let paths = ["a", "b", "c"].map(|key| keep(&cache, key, 10));
        let at = |path: &Path, seconds: u64| {
            let note = File::options()
                .write(true)
                .open(hidden_sibling(path, NOTE))
                .unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            note.set_times(FileTimes::new().set_modified(time)).unwrap();
        };
        at(&paths[0], 300);
        at(&paths[1], 100);
        at(&paths[2], 200);
        cache.evict(&[]);
        assert_eq!(
            paths.each_ref().map(|path| path.exists()),
            [true, false, true]
        );
        cache.cap_bytes = 5;
        cache.evict(&[paths[2].clone()]);
        assert_eq!(
            paths.each_ref().map(|path| path.exists()),
            [false, false, true]
        );
        assert!(Cache::is_current(&paths[2], "v1", 10));
    }
}
