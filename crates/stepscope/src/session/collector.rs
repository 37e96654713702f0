//! The collector of CUDA devices (`crates/stepscope-cupti`), which the driver loads into this process if
//! `CUDA_INJECTION64_PATH` names it: a recording of the program takes its events.
#![allow(
    unsafe_code,
    reason = "calls functions of a library; SAFETY comments explain each block"
)]

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::SessionError;
use super::folder;
use crate::export::collector_file::{self, CollectorFile};
use crate::export::merge_external::{ExternalContent, ExternalProfile, ExternalProfiles};
use crate::journal::mapped_file::MappedFile;

/// The variable in which the driver finds the library.
const VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// The library's name.
const LIBRARY: &str = "libstepscope_cupti.so";
/// Name of the collector in reports and warnings.
const NAME: &str = "cupti";
/// Maximum length of a path.
const PATH_BYTES: usize = 4_096;

type Begin = unsafe extern "C" fn() -> c_int;
type End = unsafe extern "C" fn(*mut c_char, usize) -> isize;

/// Creates a collector's file in `LOG_DIR/plugins/profile/SESSION`. The default session is the local time.
///
/// # Errors
/// The log directory is unusable.
#[doc(hidden)]
pub fn collector_file(
    log_dir: &Path,
    session: Option<&str>,
    max_bytes: u64,
) -> Result<CollectorFile, SessionError> {
    let session = folder::create(log_dir, session, "")?;
    CollectorFile::create(&session, max_bytes).map_err(|source| {
        let _ = std::fs::remove_dir(&session);
        SessionError::NotWritable {
            path: session,
            source,
        }
    })
}

/// Drops what the collector has recorded so far: the program's recording begins now.
pub(super) fn begin() {
    if let Some(begin) = function(c"stepscope_cupti_begin_v1") {
        // SAFETY: the library exports a function of this type under this name.
        let begin: Begin = unsafe { std::mem::transmute::<*mut c_void, Begin>(begin) };
        // SAFETY: it takes no arguments, and may be called at any time.
        unsafe { begin() };
    }
}

/// The collector's file; it is removed with this value.
pub(super) struct Collected {
    path: PathBuf,
}

impl Drop for Collected {
    fn drop(&mut self) {
        collector_file::discard(&self.path);
    }
}

/// Ends the collector's recording and takes its file, if it has recorded something.
pub(super) fn end() -> Option<Collected> {
    let end = function(c"stepscope_cupti_end_v1")?;
    // SAFETY: the library exports a function of this type under this name.
    let end: End = unsafe { std::mem::transmute::<*mut c_void, End>(end) };
    let mut path = vec![0_u8; PATH_BYTES];
    // SAFETY: it writes at most that many bytes, and returns their number, or 0.
    let length = unsafe { end(path.as_mut_ptr().cast(), path.len()) };
    path.truncate(usize::try_from(length).ok().filter(|length| *length > 0)?);
    Some(Collected {
        path: std::ffi::OsString::from_vec(path).into(),
    })
}

impl Collected {
    /// Returns the profiles with this one.
    pub(super) fn with(&self, given: &ExternalProfiles) -> ExternalProfiles {
        let mut all = given.clone();
        let mapped = File::open(&self.path).and_then(|file| {
            let bytes = file.metadata()?.len();
            MappedFile::map(&file, 0, bytes)
        });
        match mapped {
            Ok(mapped) => all.profiles.push(ExternalProfile {
                name: NAME.to_owned(),
                content: ExternalContent::XSpace(Arc::new(mapped)),
            }),
            Err(error) => all.warnings.push(format!(
                "{NAME}: cannot read its recording: {}: {error}",
                self.path.display()
            )),
        }
        all
    }
}

/// Finds a function of the library if the driver has loaded it.
fn function(name: &std::ffi::CStr) -> Option<*mut c_void> {
    let path = std::env::var_os(VARIABLE)?;
    if Path::new(&path).file_name() != Some(OsStr::new(LIBRARY)) {
        return None;
    }
    let path = CString::new(path.as_bytes()).ok()?;
    // SAFETY: a path and a name that end in zero; the library is not loaded, only looked for. The handle stays
    // open: the library is never unloaded.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = libc::dlsym(library, name.as_ptr());
        (!found.is_null()).then_some(found)
    }
}
