//! Opens a file below a served directory without following links.
//!
//! A list of runs contains the regular files below a directory. Before one of them is opened, the
//! file or a folder on its path may be replaced by a symbolic link to a file that the server may
//! read and the directory's owner may not. The path is therefore opened folder by folder from the
//! served directory, and any link on it is an error.
#![allow(
    unsafe_code,
    reason = "the standard library has no openat; every block says why it holds"
)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The location of a file in a served directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedLocation {
    /// The directory, without links.
    pub(crate) root: Arc<Path>,
    /// Path relative to the directory, without links when the file was listed.
    pub(crate) inside: PathBuf,
}

impl ServedLocation {
    /// Opens the file for reading; never blocks on a pipe without a writer.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error if a link replaced the file or a folder on its path.
    pub(crate) fn open(&self) -> io::Result<File> {
        let mut names = Vec::new();
        for part in self.inside.components() {
            let Component::Normal(name) = part else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            names.push(CString::new(name.as_bytes())?);
        }
        let Some((file, folders)) = names.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut folder = File::open(&*self.root)?;
        for name in folders {
            folder = open_at(&folder, name, libc::O_DIRECTORY)?;
        }
        open_at(&folder, file, libc::O_NONBLOCK | libc::O_NOCTTY)
    }
}

fn open_at(folder: &File, name: &CString, flags: libc::c_int) -> io::Result<File> {
    let flags = flags | libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the descriptor belongs to `folder`, which outlives the call, and the name is a string
    // that ends in NUL and is only read.
    let descriptor = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags) };
    if descriptor < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            // With these flags, a link gives one of these errors.
            Some(libc::ELOOP | libc::ENOTDIR) => {
                io::Error::other("a link took its place since it was listed; it is not followed")
            }
            _ => error,
        });
    }
    // SAFETY: the call above created this descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_on_the_path_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("served");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("elsewhere/b")).unwrap();
        std::fs::write(root.join("a/b/run"), "ours").unwrap();
        std::fs::write(dir.path().join("elsewhere/b/run"), "theirs").unwrap();
        let of = |inside: &str| ServedLocation {
            root: root.as_path().into(),
            inside: inside.into(),
        };
        let read = |inside: &str| -> io::Result<String> {
            let mut text = String::new();
            of(inside).open()?.read_to_string(&mut text)?;
            Ok(text)
        };
        assert_eq!(read("a/b/run").unwrap(), "ours");
        assert!(read("a/../a/b/run").is_err());
        assert!(read("").is_err());
        std::fs::remove_file(root.join("a/b/run")).unwrap();
        symlink(dir.path().join("elsewhere/b/run"), root.join("a/b/run")).unwrap();
        assert!(read("a/b/run").unwrap_err().to_string().contains("a link"));
        std::fs::remove_dir_all(root.join("a")).unwrap();
        symlink(dir.path().join("elsewhere"), root.join("a")).unwrap();
        assert!(read("a/b/run").unwrap_err().to_string().contains("a link"));
    }
}
