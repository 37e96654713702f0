//! Moves the mappings of a journal's file to another file when a process wants to open or truncate
//! it.
//!
//! The drain thread polls the leases ([`crate::journal::lease`]) in each pass. For a file whose
//! lease is breaking it creates a successor of the same layout, which takes the file's name and
//! descriptor; the mappings are replaced page for page, and the lease is released last. A process
//! that truncates a file of a journal therefore truncates one that the recording no longer uses.
#![allow(unsafe_code, reason = "puts other pages behind mappings")]
#![allow(
    clippy::disallowed_methods,
    reason = "the recorder makes files in the session's folder"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::journal::lease::{self, Lease, replace_descriptor, sealed_file};

/// A mapped file of a journal, and the lease on it.
#[derive(Debug)]
pub(crate) struct LeasedFile {
    folder: PathBuf,
    name: &'static str,
    fd: RawFd,
    /// `None` for a file that no other process can reach.
    lease: Option<Lease>,
}

impl LeasedFile {
    /// Wraps a file. The lease must be on the file that `fd` refers to, and `fd` must stay open as
    /// long as this lives.
    pub(crate) fn new(folder: &Path, name: &'static str, fd: RawFd, lease: Lease) -> Self {
        Self {
            folder: folder.to_owned(),
            name,
            fd,
            lease: Some(lease),
        }
    }

    /// Returns the descriptor, which is the same for all successors.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether a process waits for the file.
    pub(crate) fn is_lease_breaking(&self) -> bool {
        self.lease.is_some_and(|lease| lease.is_breaking(self.fd))
    }

    /// Creates the file to move to: in the same folder, or a sealed one in memory, with the reason,
    /// when that file cannot be created or has no space. `prepare` allocates its space.
    pub(crate) fn successor(
        &self,
        prepare: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<Successor> {
        const TRIES: usize = 4;
        let path = self.folder.join(format!("{}.next", self.name));
        let mut reason = io::Error::from(io::ErrorKind::WouldBlock);
        for _ in 0..TRIES {
            match Self::file_at(&path, &prepare) {
                Ok((file, lease)) => {
                    return Ok(Successor {
                        file,
                        path: Some(path),
                        lease: Some(lease),
                        reason: None,
                    });
                }
                Err(error) => reason = error,
            }
            let _ = fs::remove_file(&path);
            if reason.kind() != io::ErrorKind::WouldBlock {
                break;
            }
        }
        let file = sealed_file()?;
        prepare(&file)?;
        Ok(Successor {
            file,
            path: None,
            lease: None,
            reason: Some(reason),
        })
    }

    fn file_at(
        path: &Path,
        prepare: &impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<(File, Lease)> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path)?;
        let lease = Lease::take(file.as_fd())?;
        prepare(&file)?;
        Ok((file, lease))
    }

    /// Gives the successor the name and the descriptors, once nothing of this file is mapped any
    /// more. A process that waits for this file continues.
    pub(crate) fn hand_over(&mut self, to: Successor, also: Option<&File>) -> io::Result<()> {
        let renamed = to
            .path
            .map_or(Ok(()), |path| fs::rename(path, self.folder.join(self.name)));
        self.release();
        replace_descriptor(self.fd, &to.file)?;
        if let Some(also) = also {
            replace_descriptor(also.as_raw_fd(), &to.file)?;
        }
        self.lease = to.lease;
        renamed
    }

    /// Releases the lease at the end, when nothing of the file is mapped any more.
    pub(crate) fn release(&self) {
        if self.lease.is_some() {
            lease::release(self.fd);
        }
    }
}

/// The file that replaces another.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) file: File,
    path: Option<PathBuf>,
    lease: Option<Lease>,
    /// The error because of which it is in memory instead of the journal's folder.
    pub(crate) reason: Option<io::Error>,
}
