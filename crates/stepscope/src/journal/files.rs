//! The files of a journal in the session's folder, private to the user.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::journal::block::put_block;
use crate::journal::lease::Lease;
use crate::journal::leased_file::LeasedFile;
use crate::platform::os;
use crate::ring::layout::{BLOCK_WRITTEN, BlockHead, NAMES_BYTES};

/// Prefix of the names of journals. Trace readers skip hidden entries.
pub(crate) const JOURNAL_PREFIX: &str = ".stepscope-journal-";
/// Separates the name of a program's journal from the rest of its worker's.
const WORKER_SEPARATOR: &str = ".worker-";
/// The file whose lock marks the journal as in use.
pub(crate) const LOCK_FILE: &str = "lock";
/// The file whose lock marks the program as recording.
pub(crate) const WORKERS_FILE: &str = "workers";
/// The blocks.
pub(crate) const EVENTS_FILE: &str = "events";
/// Names, followed by the threads' regions.
pub(crate) const RINGS_FILE: &str = "rings";

/// Whether a worker process wrote this journal, even if it was killed before its first block.
pub(crate) fn is_worker_journal(journal: &Path) -> bool {
    let name = journal.file_name().unwrap_or_default();
    name.to_string_lossy().contains(WORKER_SEPARATOR)
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
    pub(crate) fn stem(number: u32) -> String {
        format!("{JOURNAL_PREFIX}{}-{number}", std::process::id())
    }

    /// Returns the name prefix of the journals of workers of the program with this journal.
    pub(crate) fn worker_stem(program: &str) -> String {
        format!("{program}{WORKER_SEPARATOR}")
    }

    /// Creates a journal whose lock is held before it becomes visible, with space for the names.
    /// `is_circular`: the blocks will also be written through mappings.
    pub(crate) fn create(session: &Path, stem: &str, is_circular: bool) -> io::Result<Self> {
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
    pub(crate) fn take_leased(&mut self) -> Option<LeasedFiles> {
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
pub(crate) static DESCRIPTORS: [AtomicI32; 8] = [const { AtomicI32::new(-1) }; 8];

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

/// Records in the journal that it has been exported, so that a kill before the journal's removal
/// does not export it twice.
pub(crate) fn mark_written(events: &mut File, bytes: u64, path: &Path) {
    let mut content = bytes.to_le_bytes().to_vec();
    content.extend_from_slice(path.file_name().unwrap_or_default().as_bytes());
    let head = BlockHead {
        kind: BLOCK_WRITTEN,
        ..BlockHead::default()
    };
    let mut block = Vec::new();
    put_block(head, &content, &mut block);
    let _ = events
        .seek(SeekFrom::End(0))
        .and_then(|_| events.write_all(&block));
}
