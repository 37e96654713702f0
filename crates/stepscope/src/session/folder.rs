//! The session's folder, and the journal in it, private to the user.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use stepscope_model::clock::unix_now_ns;

use super::SessionError;
use crate::export::file;
use crate::journal::lease::Lease;
use crate::journal::leased_file::LeasedFile;
use crate::platform::os;
use crate::ring::layout::NAMES_BYTES;

/// Prefix of the names of journals. Trace readers skip hidden entries.
pub(crate) const JOURNAL_PREFIX: &str = ".stepscope-journal-";
/// The file whose lock marks the journal as in use.
pub(crate) const LOCK_FILE: &str = "lock";
/// The file whose lock marks the program as recording.
pub(super) const WORKERS_FILE: &str = "workers";
/// The blocks.
pub(crate) const EVENTS_FILE: &str = "events";
/// Names, followed by the threads' regions.
pub(crate) const RINGS_FILE: &str = "rings";

/// Creates `LOG_DIR/plugins/profile/SESSION` and checks that it is writable. The default name is
/// the local time and the suffix.
pub(super) fn create(
    log_dir: &Path,
    session: Option<&str>,
    suffix: &str,
) -> Result<PathBuf, SessionError> {
    if let Some(name) = session {
        plain_name(name)?;
    }
    let parent = log_dir.join("plugins").join("profile");
    fs::create_dir_all(&parent).map_err(|source| refusal(&parent, source))?;
    let folder = match session {
        Some(name) => {
            let folder = parent.join(name);
            fs::create_dir_all(&folder).map_err(|source| refusal(&folder, source))?;
            folder
        }
        None => create_unique(&parent, suffix)?,
    };
    file::remove_orphans(&folder);
    if let Err(source) = prove(&folder) {
        let _ = fs::remove_dir(&folder);
        return Err(refusal(&folder, source));
    }
    Ok(folder)
}

/// Creates a folder with a name that no other session has.
fn create_unique(parent: &Path, suffix: &str) -> Result<PathBuf, SessionError> {
    let time = os::local_time_text(unix_now_ns() / 1_000_000_000);
    let mut number = 1;
    loop {
        let folder = match number {
            1 => parent.join(format!("{time}{suffix}")),
            _ => parent.join(format!("{time}{suffix}_{number}")),
        };
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => {
                number += 1;
            }
            Err(source) => return Err(refusal(&folder, source)),
        }
    }
}

/// Writes and removes a small file, so that a read-only or full disk is found at the start instead
/// of the end.
fn prove(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".stepscope-probe-{}", std::process::id()));
    let result = os::without_size_signal(|| {
        // A killed program with the same process id may have left one.
        let _ = fs::remove_file(&path);
        let mut file = File::create_new(&path)?;
        file.write_all(&[0; 4096])?;
        file.sync_data()
    });
    let removed = fs::remove_file(&path);
    result.and(removed)
}

/// Converts a failure to create or write a path below the log directory to its error.
fn refusal(path: &Path, source: io::Error) -> SessionError {
    if let Some(file) = path.ancestors().find(|above| above.is_file()) {
        return SessionError::NotADirectory {
            path: file.to_owned(),
        };
    }
    if matches!(
        source.raw_os_error(),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    ) {
        return SessionError::NoSpace {
            path: path.to_owned(),
        };
    }
    SessionError::NotWritable {
        path: path.to_owned(),
        source,
    }
}

/// Checks that a name neither leads out of the folder nor is hidden.
pub(super) fn plain_name(name: &str) -> Result<(), SessionError> {
    let bad = name.is_empty()
        || name.starts_with('.')
        || name.len() > 200
        || name.contains(['/', '\\', '\0']);
    if bad {
        return Err(SessionError::BadName {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// The files of a journal that this process writes.
#[derive(Debug)]
pub(crate) struct JournalFiles {
    /// The folder that contains them.
    pub(crate) folder: PathBuf,
    /// Open for its lock.
    pub(crate) lock: File,
    /// Open for its lock while the program records: its workers wait for it.
    pub(crate) workers: File,
    /// Names and regions.
    pub(crate) rings: File,
    /// The blocks.
    pub(crate) events: File,
    /// Leases on the files that will be mapped while they are written, until the drain thread takes
    /// them over.
    leases: Option<(Lease, Option<Lease>)>,
}

/// The files of a journal whose leases the drain thread polls.
#[derive(Debug)]
pub(crate) struct LeasedFiles {
    pub(crate) rings: LeasedFile,
    /// The events file of a flight recorder.
    pub(crate) events: Option<LeasedFile>,
}

impl JournalFiles {
    /// Returns the name prefix of this process's journal with this number.
    pub(super) fn stem(number: u32) -> String {
        format!("{JOURNAL_PREFIX}{}-{number}", std::process::id())
    }

    /// Creates a journal whose lock is held before it becomes visible, with space for the names.
    /// `is_circular`: the blocks will also be written through mappings.
    pub(super) fn create(session: &Path, stem: &str, is_circular: bool) -> io::Result<Self> {
        let (name, hidden) = Self::free_name(session, stem)?;
        let result = Self::fill(&hidden, is_circular).and_then(|mut files| {
            fs::rename(&hidden, &name)?;
            files.folder = name;
            Ok(files)
        });
        if result.is_err() {
            let _ = fs::remove_dir_all(&hidden);
        }
        result
    }

    /// Finds a name that no other journal has, and creates its hidden folder. Programs in
    /// containers often have the same process id, and may use the same session's folder.
    fn free_name(session: &Path, stem: &str) -> io::Result<(PathBuf, PathBuf)> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        for attempt in 0..1_000 {
            let name = match attempt {
                0 => stem.to_owned(),
                _ => format!("{stem}-{attempt}"),
            };
            let hidden = session.join(format!("{name}.new"));
            let name = session.join(name);
            if name.exists() {
                continue;
            }
            match builder.create(&hidden) {
                Ok(()) => return Ok((name, hidden)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns the files whose leases the drain thread polls, at the first call.
    pub(super) fn take_leased(&mut self) -> Option<LeasedFiles> {
        let (rings, events) = self.leases.take()?;
        let leased =
            |name, file: &File, lease| LeasedFile::new(&self.folder, name, file.as_raw_fd(), lease);
        Some(LeasedFiles {
            rings: leased(RINGS_FILE, &self.rings, rings),
            events: events.map(|lease| leased(EVENTS_FILE, &self.events, lease)),
        })
    }

    fn fill(folder: &Path, is_circular: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let mut files = Self {
            folder: folder.to_owned(),
            lock: inherited(options.open(folder.join(LOCK_FILE))?),
            workers: inherited(options.open(folder.join(WORKERS_FILE))?),
            rings: inherited(options.open(folder.join(RINGS_FILE))?),
            events: inherited(options.open(folder.join(EVENTS_FILE))?),
            leases: None,
        };
        if !os::try_lock(files.lock.as_fd())? || !os::try_lock(files.workers.as_fd())? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        os::allocate(files.rings.as_raw_fd(), 0, NAMES_BYTES as u64)
            .map_err(io::Error::from_raw_os_error)?;
        let events = is_circular.then(|| lease(&files.events)).transpose()?;
        files.leases = Some((lease(&files.rings)?, events));
        Ok(files)
    }
}

/// Without a lease, a process that truncated the file would end the program.
fn lease(file: &File) -> io::Result<Lease> {
    Lease::take(file.as_fd()).map_err(|error| {
        let text = format!("the file system gives no lease on them: {error}");
        io::Error::new(error.kind(), text)
    })
}

impl Drop for JournalFiles {
    fn drop(&mut self) {
        for file in [&self.lock, &self.workers, &self.rings, &self.events] {
            forget_inherited(file.as_raw_fd());
        }
    }
}

fn forget_inherited(fd: i32) {
    for slot in &DESCRIPTORS {
        let _ = slot.compare_exchange(fd, -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Descriptors that a fork's child closes, as long as there are [`JournalFiles`] (a process has at
/// most two at a time, one of them stopped): the child does not own the journal, and an inherited
/// lock would prevent its recovery.
pub(super) static DESCRIPTORS: [AtomicI32; 8] = [const { AtomicI32::new(-1) }; 8];

fn inherited(file: File) -> File {
    let fd = file.as_raw_fd();
    for slot in &DESCRIPTORS {
        let taken = slot.compare_exchange(-1, fd, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            break;
        }
    }
    file
}

/// Removes a journal. Other processes see the removal at once: a journal without its lock file is
/// not a journal.
pub(crate) fn remove_journal(journal: &Path) -> io::Result<()> {
    let mut hidden = journal.as_os_str().to_owned();
    hidden.push(".new");
    let hidden = PathBuf::from(hidden);
    match fs::rename(journal, &hidden) {
        Ok(()) => fs::remove_dir_all(hidden),
        Err(_) => fs::remove_dir_all(journal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_climb_or_hide() {
        for bad in ["", ".", "..", "../x", "a/b", ".hidden", "a\0b", "a\\b"] {
            assert!(plain_name(bad).is_err(), "{bad:?}");
        }
        assert!(plain_name("run 1 über").is_ok());
    }
}
