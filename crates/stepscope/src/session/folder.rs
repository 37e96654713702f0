//! The session's folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stepscope_model::clock::unix_now_ns;

use super::SessionError;
use crate::export::file;
use crate::platform::os;

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
fn refusal(path: &Path, cause: io::Error) -> SessionError {
    if let Some(file) = path.ancestors().find(|above| above.is_file()) {
        return SessionError::NotADirectory {
            path: file.to_owned(),
        };
    }
    if matches!(
        cause.raw_os_error(),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    ) {
        return SessionError::NoSpace {
            path: path.to_owned(),
        };
    }
    SessionError::NotWritable {
        path: path.to_owned(),
        cause,
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
