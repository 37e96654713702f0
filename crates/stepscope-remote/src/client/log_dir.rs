//! The log directory of captures that are asked for without one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Returns the first of `paths` that is a directory in which captured runs can be written.
///
/// # Errors
///
/// Why not, one text for each directory; empty if no path is a directory.
pub fn writable_log_dir(paths: &[PathBuf]) -> Result<PathBuf, Vec<String>> {
    let mut reasons = Vec::new();
    for path in paths {
        if !path.is_dir() {
            continue;
        }
        match check(path) {
            Ok(()) => return Ok(path.clone()),
            Err(reason) => reasons.push(format!("{}: {reason}", path.display())),
        }
    }
    Err(reasons)
}

/// Checks whether a session can be written below `folder`. The test creates an unnamed file, so it
/// leaves no trace and changes no modification time.
fn check(folder: &Path) -> Result<(), &'static str> {
    let real = folder.canonicalize();
    // The directories of sessions, as far as they exist.
    let below = ["plugins/profile", "plugins"].map(|below| folder.join(below));
    let target = below.iter().find(|path| path.exists());
    if let (Ok(real), Some(Ok(target))) = (&real, target.map(|path| path.canonicalize()))
        && !target.starts_with(real)
    {
        return Err("its folder plugins is a link that leads out of it");
    }
    let target = target.map_or(folder, PathBuf::as_path);
    if !target.is_dir() {
        return Err("its entry plugins is no folder");
    }
    match try_unnamed(target) {
        Err(error) => match error.kind() {
            ErrorKind::PermissionDenied => Err("no permission to write there"),
            ErrorKind::ReadOnlyFilesystem => Err("the file system is read-only"),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Err("the disk is full"),
            // Some file systems lack unnamed files; an unwritable directory then fails the capture
            // itself.
            _ => Ok(()),
        },
        Ok(()) => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn try_unnamed(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_TMPFILE);
    options.open(folder).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn try_unnamed(folder: &Path) -> std::io::Result<()> {
    let readonly = std::fs::metadata(folder)?.permissions().readonly();
    if readonly {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let before = std::fs::metadata(folder.path()).unwrap();
        assert_eq!(check(folder.path()), Ok(()));
        let after = std::fs::metadata(folder.path()).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn sessions_stay_in_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let (logs, other) = (folder.path().join("logs"), folder.path().join("other"));
        std::fs::create_dir(&logs).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, logs.join("plugins")).unwrap();
        assert!(check(&logs).unwrap_err().contains("link"));
        std::fs::remove_file(logs.join("plugins")).unwrap();
        std::fs::write(logs.join("plugins"), "").unwrap();
        assert!(check(&logs).unwrap_err().contains("no folder"));
        // Read-only for everybody, root included.
        if let Err(reason) = check(Path::new("/proc")) {
            assert!(!reason.is_empty());
        }
    }
}
