//! Files that appear whole or not at all, and that replace nothing.
//!
//! A file is written beside its place under a hidden name, flushed to the disk, and linked to its
//! name, which fails where a file of that name stands.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of the name that the hidden one repeats.
const MAX_REPEATED_CHARS: usize = 60;

/// Writes `place`, whose content `fill` writes. Gives its length.
pub(crate) fn write(place: &Path, fill: impl FnOnce(File) -> io::Result<File>) -> io::Result<u64> {
    write_first_free(std::iter::once(place.to_owned()), fill).map(|(_, length)| length)
}

/// Writes the first of `places` that is not taken; all lie in one folder. Gives it and its length.
pub(crate) fn write_first_free(
    places: impl IntoIterator<Item = PathBuf>,
    fill: impl FnOnce(File) -> io::Result<File>,
) -> io::Result<(PathBuf, u64)> {
    let mut places = places.into_iter().peekable();
    let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
    let temporary = hidden_beside(places.peek().ok_or_else(taken)?);
    let written = create_new(&temporary).and_then(fill).and_then(|file| {
        file.sync_all()?;
        Ok(file.metadata()?.len())
    });
    let done = written.and_then(|length| {
        for place in places {
            match put_in_place(&temporary, &place) {
                Ok(()) => return Ok((place, length)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(taken())
    });
    let _ = fs::remove_file(&temporary);
    // The name itself is to outlive a power cut, too; where folders cannot be flushed, it may not.
    if let Ok((place, _)) = &done
        && let Some(folder) = place.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
    done
}

/// Writes a little beside `place` and removes it: what cannot be written is known before.
pub(crate) fn prove(place: &Path) -> io::Result<()> {
    use std::io::Write as _;
    let path = hidden_beside(place);
    let written = create_new(&path).and_then(|mut file| {
        file.write_all(&[0; 4096])?;
        file.sync_data()
    });
    let removed = fs::remove_file(&path);
    written.and(removed)
}

/// A hidden name that no other writer uses.
fn hidden_beside(place: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = place
        .file_name()
        .unwrap_or(OsStr::new("file"))
        .to_string_lossy();
    let head: String = name.chars().take(MAX_REPEATED_CHARS).collect();
    let process = std::process::id();
    place.with_file_name(format!(".{head}.{process}-{number}.tmp"))
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Gives a file its name, unless that name is taken.
fn put_in_place(temporary: &Path, place: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, place) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // File systems without links: look, then rename.
        Err(_) if place.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(temporary, place),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_file_is_whole_or_absent_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a.pb");
        let text = |text: &'static [u8]| move |mut file: File| file.write_all(text).map(|()| file);
        let failed = write(&place, |mut file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(dir.path()), [""; 0]);
        assert_eq!(write(&place, text(b"first")).unwrap(), 5);
        let again = write(&place, text(b"second")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&place).unwrap(), "first");
        let other = dir.path().join("a_2.pb");
        let (written, length) =
            write_first_free([place.clone(), other.clone()], text(b"second")).unwrap();
        assert_eq!((written, length), (other.clone(), 6));
        fs::remove_file(other).unwrap();
        prove(&place).unwrap();
        assert_eq!(names(dir.path()), ["a.pb"]);
    }
}
