//! Atomic creation and replacement of files.
//!
//! The content goes to a hidden temporary file in the same folder, which is then renamed. Readers
//! see the old content or the new one, never a mixture. Only the owner can read the file (mode
//! 0600), because traces may hold confidential data. A process that dies leaves at most a `.tmp`
//! file, which scans skip.

use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// Creates the temporary file for `path`. [`NamedTempFile::persist`] renames it to `path`; dropping
/// it removes it.
///
/// Fails when the folder does not exist or is not writable.
pub fn create(path: &Path) -> io::Result<NamedTempFile> {
    let parent = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = parent.unwrap_or(Path::new("."));
    Builder::new()
        .prefix(".")
        .suffix(".tmp")
        .tempfile_in(folder)
}

/// Creates or replaces `path` with the content that `fill` writes.
///
/// A `fill` that calls `sync_all` makes the content survive a power failure.
pub fn replace(
    path: &Path,
    fill: impl FnOnce(&mut NamedTempFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut temporary = create(path)?;
    fill(&mut temporary)?;
    temporary.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn failed_write_keeps_old_content_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.json");
        replace(&path, |file| file.write_all(b"first")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        replace(&path, |file| file.write_all(b"second")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
    }
}
