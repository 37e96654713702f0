//! Files as bytes: mapped if possible, otherwise read.
//!
//! Three changes of a trace file after it was opened must not crash the program:
//!
//! * it shrinks: touching a mapped page past the new end raises SIGBUS. [`guard`] maps zeros there
//!   and marks the file [`damaged`](TraceFile::damaged);
//! * it is replaced (usually by a rename): the mapping still holds the old content, and stays
//!   valid;
//! * it is written to in place: [`TraceFile::check`] detects another size or time.
//!
//! Only regular files are opened. Opening a named pipe would wait for a writer, a device has side
//! effects, and a directory has no bytes: each is refused with a one-sentence error.

#[cfg(unix)]
pub(crate) mod beneath;
#[cfg(unix)]
mod guard;
pub(crate) mod head;
pub(crate) mod inflated;
#[cfg(feature = "object-storage")]
mod object_file;
#[cfg(not(feature = "object-storage"))]
#[path = "no_object_file.rs"]
mod object_file;
pub(crate) mod private;

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use stepscope_model::ArgError;

#[cfg(unix)]
pub(crate) use beneath::ServedLocation;
pub(crate) use object_file::ObjectFile;

/// Paths are walked from a served directory on Unix only.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServedLocation {}

/// Where a listed file is, if its path alone does not tell.
#[derive(Clone, Debug)]
pub(crate) enum FileLocation {
    /// Below a served directory: no link on the way is followed.
    Beneath(ServedLocation),
    /// In an object store, or on a web server.
    Object(ObjectFile),
}

/// Smaller files are read instead of mapped: a read costs less than the page faults, and other
/// programs cannot change a copy.
const MAP_FROM_BYTES: u64 = 256 << 10;

/// Identifies one state of a file. Equal stamps are taken to mean equal content, without reading
/// it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Stamp {
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// Last modification, Unix time in nanoseconds.
    pub(crate) modified_ns: i64,
    /// Inode number; 0 if the system has none.
    pub(crate) inode: u64,
    /// Device number; 0 if the system has none.
    pub(crate) device: u64,
}

impl Stamp {
    /// Returns the current state of a path; `None` if it does not exist.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path)
            .ok()
            .map(|found| Self::from_metadata(&found))
    }

    /// Returns the state in the metadata of a file.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        let modified_ns = metadata
            .modified()
            .map_or(0, |at| match at.duration_since(UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
                Err(before) => {
                    i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, std::ops::Neg::neg)
                }
            });
        #[cfg(unix)]
        let (inode, device) = {
            use std::os::unix::fs::MetadataExt;
            (metadata.ino(), metadata.dev())
        };
        #[cfg(not(unix))]
        let (inode, device) = (0, 0);
        Self {
            bytes: metadata.len(),
            modified_ns,
            inode,
            device,
        }
    }
}

/// The bytes of one regular file.
pub(crate) struct TraceFile {
    path: PathBuf,
    stamp: Stamp,
    /// State of the object whose copy the file is.
    object_stamp: Option<Stamp>,
    bytes: Bytes,
}

enum Bytes {
    #[cfg(unix)]
    Mapped(guard::Mapping),
    Copied(Vec<u8>),
}

impl TraceFile {
    /// Opens a regular file. The error is one sentence without the path.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::open_place(path, None)
    }

    /// Opens a listed file. Follows no link that was created after it was listed, and fetches an object that is not on
    /// this machine.
    pub(crate) fn open_place(path: &Path, place: Option<&FileLocation>) -> Result<Self, String> {
        if let Some(FileLocation::Object(object)) = place {
            return Ok(Self {
                object_stamp: Some(object.stamp()),
                ..Self::open(&object.fetch()?)?
            });
        }
        // Check before opening: opening a device can have side effects.
        refuse_special(&std::fs::metadata(path).map_err(|error| reason(&error))?)?;
        let mut file = open_to_read(path, place).map_err(|error| reason(&error))?;
        let metadata = file.metadata().map_err(|error| reason(&error))?;
        refuse_special(&metadata)?;
        let stamp = Stamp::from_metadata(&metadata);
        #[cfg(unix)]
        if stamp.bytes >= MAP_FROM_BYTES
            && let Some(mapping) = guard::Mapping::new(&file)
        {
            return Ok(Self {
                path: path.to_owned(),
                stamp,
                object_stamp: None,
                bytes: Bytes::Mapped(mapping),
            });
        }
        let mut copy = Vec::new();
        let wanted = usize::try_from(stamp.bytes).unwrap_or(usize::MAX);
        copy.try_reserve_exact(wanted)
            .map_err(|_full| format!("not enough memory for {} bytes", stamp.bytes))?;
        // Do not read past the length in the stamp: the file may be growing.
        (&mut file)
            .take(stamp.bytes)
            .read_to_end(&mut copy)
            .map_err(|error| reason(&error))?;
        Ok(Self {
            path: path.to_owned(),
            stamp,
            object_stamp: None,
            bytes: Bytes::Copied(copy),
        })
    }

    /// Returns the state of the file when it was opened; of an object, its state in the store.
    pub(crate) fn stamp(&self) -> Stamp {
        self.object_stamp.unwrap_or(self.stamp)
    }

    /// Returns whether content disappeared while it was being read. The missing bytes read as
    /// zeros.
    pub(crate) fn damaged(&self) -> bool {
        match &self.bytes {
            #[cfg(unix)]
            Bytes::Mapped(mapping) => mapping.damaged(),
            Bytes::Copied(_) => false,
        }
    }

    /// Hints that most of the bytes are not needed soon. A mapped file's pages return to the system
    /// and are loaded again on access; the content does not change.
    pub(crate) fn release(&self) {
        #[cfg(unix)]
        if let Bytes::Mapped(mapping) = &self.bytes {
            mapping.release();
        }
    }

    /// Checks that the bytes are still those that were opened.
    ///
    /// A removed or replaced file keeps its old bytes as long as it is open; a file that was
    /// written to in place does not. Costs one system call for a mapped file, nothing for a copied
    /// one.
    pub(crate) fn check(&self) -> Result<(), ArgError> {
        match &self.bytes {
            Bytes::Copied(_) => Ok(()),
            #[cfg(unix)]
            Bytes::Mapped(mapping) => {
                if mapping.damaged() {
                    return Err(ArgError::SourceChanged);
                }
                let Ok(metadata) = std::fs::metadata(&self.path) else {
                    return Ok(());
                };
                let now = Stamp::from_metadata(&metadata);
                let same_file = (now.inode, now.device) == (self.stamp.inode, self.stamp.device);
                if same_file && now != self.stamp {
                    return Err(ArgError::SourceChanged);
                }
                Ok(())
            }
        }
    }
}

impl AsRef<[u8]> for TraceFile {
    fn as_ref(&self) -> &[u8] {
        match &self.bytes {
            #[cfg(unix)]
            Bytes::Mapped(mapping) => mapping.as_ref(),
            Bytes::Copied(copy) => copy,
        }
    }
}

impl std::fmt::Debug for TraceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceFile")
            .field("path", &self.path)
            .field("stamp", &self.stamp)
            .field("damaged", &self.damaged())
            .finish_non_exhaustive()
    }
}

/// Opens a file for reading: by its location in a served directory if known, otherwise by its path.
/// Does not block if a pipe replaced the file.
pub(crate) fn open_to_read(path: &Path, place: Option<&FileLocation>) -> std::io::Result<File> {
    #[cfg(unix)]
    if let Some(FileLocation::Beneath(place)) = place {
        return place.open();
    }
    #[cfg(not(unix))]
    let _ = place;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    options.open(path)
}

/// Formats a system error for users, without the number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "no permission to read it".to_owned(),
        ErrorKind::StorageFull => "the disk is full".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        ErrorKind::InvalidFilename => "the name is too long".to_owned(),
        #[cfg(unix)]
        _ if error.raw_os_error() == Some(libc::ELOOP) => "its links form a ring".to_owned(),
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or(&text);
            let mut letters = text.chars();
            letters
                .next()
                .map(|first| first.to_lowercase().chain(letters).collect())
                .unwrap_or_default()
        }
    }
}

fn refuse_special(metadata: &Metadata) -> Result<(), String> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err("it is a directory, not a trace file".to_owned());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Err("it is a named pipe; write it to a file first".to_owned());
        }
        if kind.is_socket() {
            return Err("it is a socket, not a trace file".to_owned());
        }
    }
    Err("it is a device, not a trace file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_files_are_refused_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let refusal = TraceFile::open(dir.path()).unwrap_err();
        assert_eq!(refusal, "it is a directory, not a trace file");
        #[cfg(unix)]
        {
            let refusal = TraceFile::open(Path::new("/dev/null")).unwrap_err();
            assert_eq!(refusal, "it is a device, not a trace file");
            let socket = dir.path().join("socket");
            let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            let refusal = TraceFile::open(&socket).unwrap_err();
            assert_eq!(refusal, "it is a socket, not a trace file");
        }
        let missing = TraceFile::open(&dir.path().join("missing")).unwrap_err();
        assert_eq!(missing, "no such file or directory");
    }

    #[test]
    fn small_and_empty_files_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small");
        for content in [&b""[..], b"abc"] {
            std::fs::write(&path, content).unwrap();
            let file = TraceFile::open(&path).unwrap();
            assert_eq!(file.as_ref(), content);
            std::fs::write(&path, b"other").unwrap();
            assert_eq!(file.as_ref(), content);
            assert_eq!(file.check(), Ok(()));
        }
    }

    #[test]
    fn released_bytes_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let bytes = usize::try_from(MAP_FROM_BYTES * 2).unwrap();
        std::fs::write(&path, vec![7_u8; bytes]).unwrap();
        let file = TraceFile::open(&path).unwrap();
        for _ in 0..2 {
            assert!(file.as_ref().iter().all(|byte| *byte == 7));
            file.release();
        }
        #[cfg(unix)]
        {
            // What reads as zeros goes on doing so.
            let writer = OpenOptions::new().write(true).open(&path).unwrap();
            writer.set_len(10_000).unwrap();
            let sum: u64 = file.as_ref().iter().map(|byte| u64::from(*byte)).sum();
            file.release();
            let again: u64 = file.as_ref().iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!((sum, again), (70_000, 70_000));
            assert!(file.damaged());
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_shrinks_reads_as_zeros_and_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let bytes = usize::try_from(MAP_FROM_BYTES * 4).unwrap();
        std::fs::write(&path, vec![7_u8; bytes]).unwrap();
        let file = TraceFile::open(&path).unwrap();
        assert_eq!(file.as_ref()[0], 7);
        assert_eq!(file.check(), Ok(()));

        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.set_len(10_000).unwrap();
        assert_eq!(file.check(), Err(ArgError::SourceChanged));
        let sum: u64 = file.as_ref().iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, 70_000, "what is left is read, the rest is zeros");
        assert!(file.damaged());
        assert_eq!(file.check(), Err(ArgError::SourceChanged));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_replaced_or_removed_keeps_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let bytes = usize::try_from(MAP_FROM_BYTES).unwrap();
        std::fs::write(&path, vec![7_u8; bytes]).unwrap();
        let file = TraceFile::open(&path).unwrap();
        let other = dir.path().join("other");
        std::fs::write(&other, b"short").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(file.check(), Ok(()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.check(), Ok(()));
        assert!(file.as_ref().iter().all(|byte| *byte == 7));
        assert!(!file.damaged());
    }
}
