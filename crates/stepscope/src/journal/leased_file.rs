//! Moves what is mapped of a journal into other files, when somebody wants to open or shorten these.
//!
//! The drain thread asks the leases ([`crate::journal::lease`]) in each pass. A file that is wanted gets a
//! successor of the same layout, which takes its name and its descriptor; the mappings change over
//! page for page, and the lease is released last. So who truncates a file of a journal truncates one
//! that the recording has left.
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

/// A file of a journal that is mapped, and the lease on it.
#[derive(Debug)]
pub(crate) struct LeasedFile {
    folder: PathBuf,
    name: &'static str,
    fd: RawFd,
    /// `None` for a file that nobody else can reach.
    lease: Option<Lease>,
}

impl LeasedFile {
    /// The lease must be on the file that `fd` refers to, and `fd` stay open as long as this lives.
    pub(crate) fn new(folder: &Path, name: &'static str, fd: RawFd, lease: Lease) -> Self {
        Self {
            folder: folder.to_owned(),
            name,
            fd,
            lease: Some(lease),
        }
    }

    /// The descriptor, the same for all successors.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether somebody waits for the file.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lease.is_some_and(|lease| lease.is_breaking(self.fd))
    }

    /// A file to move into: beside this one, or a sealed one in memory when that cannot be made or has no
    /// room, with the reason. `prepare` allots its space.
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

    /// The successor takes the name and the descriptors, once nothing of this file is mapped any more; who
    /// waits for this file goes on.
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

    /// At the end, when nothing of it is mapped any more.
    pub(crate) fn release(&self) {
        if self.lease.is_some() {
            lease::release(self.fd);
        }
    }
}

/// What takes the place of a file.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) file: File,
    path: Option<PathBuf>,
    lease: Option<Lease>,
    /// Why it is in memory, and no file of the journal.
    pub(crate) reason: Option<io::Error>,
}
