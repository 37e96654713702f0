//! Atomic creation of files that never replaces an existing file.
//!
//! The content goes to a hidden temporary file in the same folder, followed by fsync. The file is
//! then renamed, unless another file has that name.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, PersistError};

/// Creates `path` with the content that `fill` writes. Returns its length in bytes.
pub(crate) fn write(path: &Path, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<u64> {
    write_first_free(std::iter::once(path.to_owned()), fill).map(|(_, length)| length)
}

/// Creates the first of `paths` that does not exist; all are in one folder. Returns the path and
/// its length in bytes.
pub(crate) fn write_first_free(
    paths: impl IntoIterator<Item = PathBuf>,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<(PathBuf, u64)> {
    let exists = || io::Error::from(io::ErrorKind::AlreadyExists);
    let mut paths = paths.into_iter().peekable();
    let mut temporary = create_temporary(paths.peek().ok_or_else(exists)?)?;
    fill(temporary.as_file())?;
    temporary.as_file().sync_all()?;
    let length = temporary.as_file().metadata()?.len();
    for path in paths {
        match persist_new(temporary, &path) {
            Ok(_) => {
                // Makes the rename durable, on file systems with fsync for folders.
                if let Some(folder) = path.parent()
                    && let Ok(folder) = File::open(folder)
                {
                    let _ = folder.sync_all();
                }
                return Ok((path, length));
            }
            Err(PersistError { error, file }) if error.kind() == io::ErrorKind::AlreadyExists => {
                temporary = file;
            }
            Err(failed) => return Err(failed.error),
        }
    }
    Err(exists())
}

/// Writes 4 KiB next to `path` and removes them: detects a full or read-only disk in advance.
pub(crate) fn prove(path: &Path) -> io::Result<()> {
    let mut file = create_temporary(path)?;
    file.write_all(&[0; 4096])?;
    file.as_file().sync_data()?;
    file.close()
}

fn create_temporary(path: &Path) -> io::Result<NamedTempFile> {
    Builder::new()
        .prefix(".")
        .suffix(".tmp")
        // Same permissions as other new files; the process's umask applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(path.parent().unwrap_or(Path::new(".")))
}

/// Renames a file, unless another file has that name.
fn persist_new(file: NamedTempFile, path: &Path) -> Result<File, PersistError> {
    file.persist_noclobber(path).or_else(|failed| {
        // File systems without hard links and without `RENAME_NOREPLACE`, such as FUSE mounts of
        // cloud storage: check, then rename.
        if path.symlink_metadata().is_ok() {
            let error = io::ErrorKind::AlreadyExists.into();
            return Err(PersistError { error, ..failed });
        }
        failed.file.persist(path)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }

    #[test]
    fn file_appears_whole_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pb");
        let text = |text: &'static [u8]| move |mut file: &File| file.write_all(text);
        let failed = write(&path, |mut file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(dir.path()), [""; 0]);
        assert_eq!(write(&path, text(b"first")).unwrap(), 5);
        let again = write(&path, text(b"second")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        let other = dir.path().join("a_2.pb");
        let (written, length) =
            write_first_free([path.clone(), other.clone()], text(b"second")).unwrap();
        assert_eq!((written, length), (other.clone(), 6));
        fs::remove_file(other).unwrap();
        prove(&path).unwrap();
        assert_eq!(names(dir.path()), ["a.pb"]);
    }
}
