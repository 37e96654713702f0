//! The session's folder, and atomic writes into it.
//!
//! ```text
//! LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb
//! ```
//!
//! The folder is created before the capture starts, so that an unwritable folder is detected before
//! a program is profiled. Files appear complete and replace nothing. A session without a file
//! leaves no folder.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::request::CaptureError;
use crate::atomic_file;

/// Suffix of file names.
const SUFFIX: &str = ".xplane.pb";
/// Maximum number of names to try for a session without a name.
const MAX_TRIES: u32 = 10_000;
/// Size of one write.
const CHUNK_BYTES: usize = 4 << 20;

/// The folder of a session, for one capture.
#[derive(Debug)]
pub(super) struct SessionFolder {
    /// `LOG_DIR`, absolute.
    log_dir: PathBuf,
    /// `LOG_DIR/plugins/profile/SESSION`, absolute.
    path: PathBuf,
    name: String,
    /// Files that existed before the capture, and files that belong to one of its hosts.
    taken: Mutex<BTreeSet<PathBuf>>,
    /// Folders that did not exist before, outermost first.
    made: Vec<PathBuf>,
}

impl SessionFolder {
    /// Creates the folder and checks that it is writable.
    pub(super) fn make(log_dir: &Path, session: Option<&str>) -> Result<Self, CaptureError> {
        let log_dir = std::path::absolute(log_dir).map_err(|error| refusal(log_dir, &error))?;
        let parent = log_dir.join("plugins").join("profile");
        let mut made: Vec<PathBuf> = parent
            .ancestors()
            .take_while(|folder| !folder.exists())
            .map(Path::to_owned)
            .collect();
        made.reverse();
        fs::create_dir_all(&parent).map_err(|error| refusal(&parent, &error))?;
        let name = match session {
            Some(name) => name.to_owned(),
            None => free_name(&parent)?,
        };
        let path = parent.join(&name);
        let mut taken = BTreeSet::new();
        if session.is_none() {
            made.push(path.clone());
        } else {
            match fs::create_dir(&path) {
                Ok(()) => made.push(path.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                    taken.extend(files_in(&path));
                }
                Err(error) => return Err(refusal(&path, &error)),
            }
        }
        let folder = Self {
            log_dir,
            path,
            name,
            taken: Mutex::new(taken),
            made,
        };
        if let Err(error) = atomic_file::prove(&folder.place("probe")) {
            folder.remove_unused();
            return Err(refusal(&folder.path, &error));
        }
        Ok(folder)
    }

    /// Returns the absolute path of `LOG_DIR`.
    pub(super) fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// Returns the absolute path of the session's folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of all sessions, called repository root in the protocol.
    pub(super) fn root(&self) -> &Path {
        self.path.parent().unwrap_or(&self.log_dir)
    }

    /// Returns the name of the session.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a host's file.
    pub(super) fn place(&self, stem: &str) -> PathBuf {
        self.path.join(format!("{stem}{SUFFIX}"))
    }

    /// Returns whether another file exists at the path of this host's file.
    pub(super) fn is_taken(&self, stem: &str) -> bool {
        self.lock().contains(&self.place(stem))
    }

    /// Reserves `path` for one host. Returns `false` if another host has it.
    pub(super) fn claim(&self, path: &Path) -> bool {
        self.lock().insert(path.to_owned())
    }

    /// Releases the path for another attempt.
    pub(super) fn release(&self, path: &Path) {
        self.lock().remove(path);
    }

    /// Returns the files that appeared during the capture and belong to no host yet, sorted by
    /// name.
    pub(super) fn appeared(&self) -> Vec<PathBuf> {
        let taken = self.lock();
        let mut found = files_in(&self.path);
        found.retain(|path| !taken.contains(path));
        found.sort();
        found
    }

    /// Writes the file of a host atomically. It replaces nothing.
    pub(super) fn save(&self, stem: &str, content: &[u8]) -> io::Result<PathBuf> {
        let place = self.place(stem);
        atomic_file::write(&place, |mut file| {
            let mut chunks = content.chunks(CHUNK_BYTES);
            chunks.try_for_each(|chunk| file.write_all(chunk))
        })?;
        Ok(place)
    }

    /// Removes the folders that this capture created, as far as they are empty.
    pub(super) fn remove_unused(&self) {
        for folder in self.made.iter().rev() {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        // A set of paths is consistent after every panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a folder with a name that no other session has.
fn free_name(parent: &Path) -> Result<String, CaptureError> {
    let time = stepscope::session::default_session_name();
    let mut number = 1;
    loop {
        let name = match number {
            1 => time.clone(),
            _ => format!("{time}_{number}"),
        };
        let folder = parent.join(&name);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_TRIES => {
                number += 1;
            }
            Err(error) => return Err(refusal(&folder, &error)),
        }
    }
}

/// Returns the traces in a folder; empty if the folder cannot be read.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.ends_with(SUFFIX) && !name.starts_with('.')) && path.is_file()
    };
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_trace)
        .collect()
}

/// Reads a file that a server wrote.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut content = Vec::with_capacity(length);
    file.read_to_end(&mut content)?;
    Ok(content)
}

fn refusal(path: &Path, error: &io::Error) -> CaptureError {
    if let Some(file) = path.ancestors().find(|above| above.is_file()) {
        return CaptureError::LogDir {
            reason: "it is a file".to_owned(),
            path: file.display().to_string(),
            fix: "name a directory",
        };
    }
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a directory that you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on the disk",
        _ => "name another directory",
    };
    CaptureError::LogDir {
        reason: format!("the session's folder cannot be made, {error}"),
        path: path.display().to_string(),
        fix,
    }
}
