//! The file into which a collector outside the recorder writes a device's events while the program runs.
//!
//! The collectors of CUDA and AMD devices are libraries of their own (`crates/stepscope-cupti`,
//! `crates/stepscope-rocm`). A file is an `XSpace` at every moment, under a name that listings skip, with a lock as long
//! as its program lives. A recording of the program takes the file over when it stops; otherwise the file becomes the
//! program's run when the program ends, and [`recover_all`] publishes those of killed programs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use stepscope_formats::xspace::count_events;

use crate::export::file;
use crate::journal::disk_limit::{AtLimit, DiskLimit};
use crate::journal::mapped_file::MappedFile;
use crate::platform::os;

/// Prefix of the names of these files.
const PREFIX: &str = ".stepscope-collector-";

/// A file that a collector writes.
#[derive(Debug)]
pub struct CollectorFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    limit: DiskLimit,
    reached: Option<String>,
}

impl CollectorFile {
    /// Creates the file in a session's folder.
    pub(crate) fn create(session: &Path, max_bytes: u64) -> io::Result<Self> {
        let path = session.join(format!("{PREFIX}{}", std::process::id()));
        let file = create_locked(&path)?;
        Ok(Self {
            path,
            file,
            bytes: 0,
            limit: DiskLimit::new(max_bytes, None, AtLimit::Stop),
            reached: None,
        })
    }

    /// Appends complete messages. Returns `false`, and writes nothing from then on, once the file has reached its
    /// limit or the disk has too little space.
    ///
    /// # Errors
    /// Those of the file; a part of a message may have been written then, which readers skip.
    pub fn append(&mut self, messages: &[u8]) -> io::Result<bool> {
        if self.reached.is_none() {
            let reached = self.limit.reached(self.bytes, self.file.as_raw_fd());
            self.reached = reached.map(|reached| reached.to_string());
        }
        if self.reached.is_some() {
            return Ok(false);
        }
        os::without_size_signal(|| self.file.write_all(messages))?;
        self.bytes += messages.len() as u64;
        Ok(true)
    }

    /// Appends a last message, whatever the limit.
    ///
    /// # Errors
    /// Those of the file.
    pub fn append_last(&mut self, message: &[u8]) -> io::Result<()> {
        os::without_size_signal(|| self.file.write_all(message))
    }

    /// Returns the limit that the file has reached, as a sentence.
    pub fn limit_reached(&self) -> Option<&str> {
        self.reached.as_deref()
    }

    /// Returns where the file is now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file a run: `HOST.xplane.pb`. Returns the path.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn publish(self) -> io::Result<PathBuf> {
        publish(&self.path, std::process::id())
    }

    /// Removes the file, and its folder if that is empty.
    pub fn discard(self) {
        discard(&self.path);
    }
}

/// Removes a collector's file, and its folder if that is empty.
pub(crate) fn discard(path: &Path) {
    let _ = fs::remove_file(path);
    if let Some(session) = path.parent() {
        let _ = fs::remove_dir(session);
    }
}

fn create_locked(path: &Path) -> io::Result<File> {
    // A killed program with the same process id may have left one.
    if path.exists() {
        recover_one(path);
    }
    let file = File::create_new(path)?;
    if !os::try_lock(file.as_fd())? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(file)
}

fn publish(path: &Path, process: u32) -> io::Result<PathBuf> {
    let name = format!("{}.xplane.pb", os::host_name());
    let published = file::publish(path, &path.with_file_name(name), process, &mut |_| {})?;
    let _ = fs::remove_file(path);
    file::sync_folder(&published);
    Ok(published)
}

/// Publishes the files of killed programs in a session's folder. Returns their paths and numbers of events.
pub(crate) fn recover_all(session: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    let found = entries.filter(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_file())
            && entry.file_name().to_string_lossy().starts_with(PREFIX)
    });
    found
        .filter_map(|entry| recover_one(&entry.path()))
        .collect()
}

/// Publishes a file whose program no longer lives.
fn recover_one(path: &Path) -> Option<(PathBuf, u64)> {
    let file = File::open(path).ok()?;
    // On a network file system, the lock of another machine may be invisible.
    if os::network_file_system(path).is_some() || !os::try_lock(file.as_fd()).ok()? {
        return None;
    }
    let bytes = file.metadata().ok()?.len();
    let events = count_events(MappedFile::map(&file, 0, bytes).ok()?.bytes()).events;
    if events == 0 {
        discard(path);
        return None;
    }
    let name = path.file_name()?.to_string_lossy().into_owned();
    let process = name.strip_prefix(PREFIX)?.parse().ok()?;
    Some((publish(path, process).ok()?, events))
}

#[cfg(test)]
mod tests {
    use stepscope_formats::xspace::{LineWriter, PlaneWriter, XSpaceWriter};

    use super::*;

    #[allow(clippy::disallowed_methods, reason = "the recorder makes files")]
    fn content(path: &Path) -> Vec<u8> {
        fs::read(path).unwrap()
    }

    fn create(session: &Path, max_bytes: u64) -> CollectorFile {
        fs::create_dir_all(session).unwrap();
        CollectorFile::create(session, max_bytes).unwrap()
    }

    fn names(session: &Path) -> Vec<String> {
        let entries = fs::read_dir(session).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    /// Releases the lock as the death of the process does. Children of other tests may have inherited the descriptor.
    fn kill(file: &CollectorFile) {
        os::unlock(file.file.as_fd());
    }

    /// Encodes a plane with one event.
    fn event() -> Vec<u8> {
        let mut plane = PlaneWriter::new("/device:GPU:0");
        let name = plane.event("kernel");
        let mut line = LineWriter::new(7, "stream 7", 0);
        line.span(name, 0, 1, &[]);
        plane.add_line(line);
        let mut space = XSpaceWriter::new(Vec::new());
        space.plane(&plane).unwrap();
        space.finish().unwrap()
    }

    #[test]
    fn published_files_have_the_name_of_the_host() {
        let log_dir = tempfile::tempdir().unwrap();
        let session = log_dir.path().join("run");
        let mut file = create(&session, u64::MAX);
        assert!(file.append(&event()).unwrap());
        let path = file.publish().unwrap();
        assert_eq!(content(&path), event());
        assert_eq!(names(&session), [format!("{}.xplane.pb", os::host_name())]);
    }

    #[test]
    fn files_of_living_programs_are_left_alone() {
        let log_dir = tempfile::tempdir().unwrap();
        let session = log_dir.path().join("run");
        let mut file = create(&session, u64::MAX);
        file.append(&event()).unwrap();
        assert!(recover_all(&session).is_empty());
        // As a kill: the lock goes, the file stays.
        kill(&file);
        let recovered = recover_all(&session);
        assert_eq!(recovered.len(), 1);
        assert_eq!(recovered[0].1, 1);
        assert_eq!(content(&recovered[0].0), event());
        assert!(recover_all(&session).is_empty());
    }

    #[test]
    fn files_without_events_leave_no_run() {
        let log_dir = tempfile::tempdir().unwrap();
        let session = log_dir.path().join("run");
        for content in [Vec::new(), event()[..20].to_vec()] {
            let mut file = create(&session, u64::MAX);
            file.append(&content).unwrap();
            kill(&file);
            assert!(recover_all(&session).is_empty());
            assert!(!session.exists());
        }
        create(&session, u64::MAX).discard();
        assert!(!session.exists());
    }

    #[test]
    fn the_limit_ends_the_file_and_is_named() {
        let log_dir = tempfile::tempdir().unwrap();
        let session = log_dir.path().join("run");
        let mut file = create(&session, 1 << 20);
        let part = vec![0; 1 << 20];
        assert!(file.append(&part).unwrap());
        assert!(!file.append(&part).unwrap());
        assert!(file.limit_reached().unwrap().contains("1 MiB"));
        file.append_last(b"end").unwrap();
        let path = file.publish().unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), (1 << 20) + 3);
    }
}
