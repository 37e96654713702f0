//! Opens a file below a served directory without following links.
//!
//! A list of runs says which regular files lie below a directory. By the time one of them is opened,
//! it, or a folder on the way to it, may have been replaced by a symbolic link to a file that the
//! directory's owner may not read and the server may. So the path is walked folder by folder from the
//! served directory, and a link anywhere on it is an error.
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

/// Where a file lies in a served directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beneath {
    /// The directory, without links.
    pub(crate) root: Arc<Path>,
    /// The file's path from there, without links when it was listed.
    pub(crate) inside: PathBuf,
}

impl Beneath {
    /// Opens the file for reading; never waits for the writer of a pipe.
    ///
    /// # Errors
    /// What the system says, and when a link took the place of the file or of a folder on its path.
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
            // A link is not a directory either.
            Some(libc::ELOOP | libc::ENOTDIR) => {
                io::Error::other("a link took its place since it was listed; it is not followed")
            }
            _ => error,
        });
    }
    // SAFETY: the call above has just made this descriptor, and nobody else has it.
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
        let of = |inside: &str| Beneath {
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
