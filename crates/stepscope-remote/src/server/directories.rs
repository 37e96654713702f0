//! The directories where clients may have files written, and the writes.
//!
//! A client chooses `repository_root`, as with stock servers. This server uses it only if it lies
//! below an allowed directory. It checks the path's names first. After it has created the folder,
//! it checks the canonical path with symbolic links resolved.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use super::ServerError;
use crate::atomic_file;

/// Canonical paths of the allowed directories.
#[derive(Clone, Debug, Default)]
pub(super) struct Directories {
    allowed: Vec<PathBuf>,
}

impl Directories {
    /// Creates missing directories.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Self, ServerError> {
        let allowed = paths.iter().map(|path| {
            fs::create_dir_all(path)
                .and_then(|()| fs::canonicalize(path))
                .map_err(|cause| ServerError::Directory {
                    path: path.clone(),
                    cause,
                })
        });
        Ok(Self {
            allowed: allowed.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the folder that a client named if writes to it are allowed: the path is absolute,
    /// has no `..`, and its existing part lies below an allowed directory. Creates nothing.
    pub(super) fn permit(&self, wanted: &str) -> Option<PathBuf> {
        let wanted = Path::new(wanted);
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::RootDir);
        if !wanted.is_absolute()
            || wanted.as_os_str().len() > 4_000
            || !wanted.components().all(plain)
        {
            return None;
        }
        let there = wanted
            .ancestors()
            .find(|path| path.symlink_metadata().is_ok())?;
        let really = fs::canonicalize(there).ok()?;
        let rest = wanted.strip_prefix(there).ok()?;
        let whole = really.join(rest);
        let within = self
            .allowed
            .iter()
            .any(|allowed| whole.starts_with(allowed));
        // Missing parts of the allowed directory itself were created when it was allowed.
        (within && really.is_dir()).then_some(whole)
    }

    /// Creates a folder that [`permit`](Self::permit) returned, and checks its canonical path.
    pub(super) fn make(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let really = fs::canonicalize(folder)?;
        if self
            .allowed
            .iter()
            .any(|allowed| really.starts_with(allowed))
        {
            return Ok(really);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a link leads out of the allowed directory",
        ))
    }
}

/// Returns whether a name is a single file name that is not hidden.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.len() <= 200
        && !name.contains(|letter: char| matches!(letter, '/' | '\\') || letter.is_control())
}

/// Writes `FOLDER/HOST.xplane.pb`, or a numbered name if that file exists: temporary file, fsync,
/// rename.
pub(super) fn write(folder: &Path, host: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let places = (1..1_000).map(|attempt| {
        folder.join(match attempt {
            1 => format!("{host}.xplane.pb"),
            _ => format!("{host}_{attempt}.xplane.pb"),
        })
    });
    let fill = |mut file: &File| file.write_all(bytes);
    atomic_file::write_first_free(places, fill).map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_allowed_directories_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let allowed = home.path().join("logs");
        let directories = Directories::new(std::slice::from_ref(&allowed)).unwrap();
        let really = fs::canonicalize(&allowed).unwrap();
        let permit = |text: &Path| directories.permit(text.to_str().unwrap());
        assert_eq!(permit(&allowed), Some(really.clone()));
        assert_eq!(
            permit(&allowed.join("plugins/profile")),
            Some(really.join("plugins/profile"))
        );
        assert_eq!(permit(home.path()), None);
        assert_eq!(permit(&allowed.join("../other")), None);
        assert_eq!(permit(&home.path().join("logs2")), None);
        assert_eq!(permit(Path::new("/")), None);
        for text in ["", "logs", "gs://bucket/logs", "s3://x", "/nowhere/at/all"] {
            assert_eq!(directories.permit(text), None, "{text}");
        }
        assert_eq!(
            directories.permit(&format!("{}\0x", allowed.display())),
            None
        );
        assert_eq!(
            directories.permit(&format!("/{}", "x/".repeat(100_000))),
            None
        );
        assert_eq!(
            Directories::default().permit(allowed.to_str().unwrap()),
            None
        );
    }

    #[test]
    fn links_do_not_lead_out() {
        let home = tempfile::tempdir().unwrap();
        let allowed = home.path().join("logs");
        let outside = home.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let directories = Directories::new(std::slice::from_ref(&allowed)).unwrap();
        std::os::unix::fs::symlink(&outside, allowed.join("out")).unwrap();
        std::os::unix::fs::symlink(home.path().join("gone"), allowed.join("dangling")).unwrap();
        let permit = |text: PathBuf| directories.permit(text.to_str().unwrap());
        assert_eq!(permit(allowed.join("out")), None);
        assert_eq!(permit(allowed.join("out/deeper")), None);
        assert_eq!(permit(allowed.join("dangling/deeper")), None);
        // A link that appears between the look and the making.
        let folder = permit(allowed.join("run")).unwrap();
        std::os::unix::fs::symlink(&outside, &folder).unwrap();
        assert!(directories.make(&folder).is_err());
        // A link into an allowed directory is fine.
        std::os::unix::fs::symlink(&allowed, home.path().join("in")).unwrap();
        assert!(permit(home.path().join("in/x")).is_some());
    }

    #[test]
    fn a_file_is_never_replaced() {
        let home = tempfile::tempdir().unwrap();
        let first = write(home.path(), "host", b"one").unwrap();
        let second = write(home.path(), "host", b"two").unwrap();
        assert_eq!(first, home.path().join("host.xplane.pb"));
        assert_eq!(second, home.path().join("host_2.xplane.pb"));
        assert_eq!(fs::read_to_string(first).unwrap(), "one");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
        assert!(write(&home.path().join("missing"), "host", b"x").is_err());
    }

    #[test]
    fn plain_names() {
        assert!(is_plain("127.0.0.1_9012") && is_plain("2026_01_01"));
        for name in [
            "",
            ".",
            "..",
            ".x",
            "a/b",
            "a\\b",
            "a\0",
            "a\nb",
            &"x".repeat(201),
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
    }
}
