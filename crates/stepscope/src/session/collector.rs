//! The collectors of CUDA devices (`crates/stepscope-cupti`) and of AMD devices (`crates/stepscope-rocm`), which the
//! vendor's libraries load into this process if a variable names them: a recording of the program takes their events.
#![allow(
    unsafe_code,
    reason = "calls functions of a library; SAFETY comments explain each block"
)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::SessionError;
use super::folder;
use super::process_report::note_session;
use crate::export::collector_file::{self, CollectorFile};
use crate::export::merge_external::{ExternalContent, ExternalProfile, ExternalProfiles};
use crate::journal::mapped_file::MappedFile;

/// A collector.
struct Collector {
    /// Name in reports and warnings.
    name: &'static str,
    /// File name of the library.
    library: &'static str,
    /// Variables in which the vendor's libraries find it, as a path or a list of paths.
    variables: &'static [&'static str],
    /// Functions of the library.
    begin: &'static CStr,
    end: &'static CStr,
}

const COLLECTORS: [Collector; 2] = [
    Collector {
        name: "cupti",
        library: "libstepscope_cupti.so",
        variables: &["CUDA_INJECTION64_PATH"],
        begin: c"stepscope_cupti_begin_v1",
        end: c"stepscope_cupti_end_v1",
    },
    Collector {
        name: "rocm",
        library: "libstepscope_rocm.so",
        variables: &["ROCPROFILER_REGISTER_LIBRARY", "ROCP_TOOL_LIBRARIES"],
        begin: c"stepscope_rocm_begin_v1",
        end: c"stepscope_rocm_end_v1",
    },
];

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
    match CollectorFile::create(&session, max_bytes) {
        Ok(file) => {
            note_session(&session);
            Ok(file)
        }
        Err(cause) => {
            let _ = std::fs::remove_dir(&session);
            Err(SessionError::NotWritable {
                path: session,
                cause,
            })
        }
    }
}

/// Drops what the collectors have recorded so far: the program's recording begins now.
pub(super) fn begin() {
    for collector in &COLLECTORS {
        if let Some(begin) = collector.function(collector.begin) {
            // SAFETY: the library exports a function of this type under this name.
            let begin: Begin = unsafe { std::mem::transmute::<*mut c_void, Begin>(begin) };
            // SAFETY: it takes no arguments, and may be called at any time.
            unsafe { begin() };
        }
    }
}

/// A collector's file; it is removed with this value.
pub(super) struct Collected {
    /// Name of the collector.
    name: &'static str,
    path: PathBuf,
}

impl Drop for Collected {
    fn drop(&mut self) {
        collector_file::discard(&self.path);
    }
}

/// Ends the collectors' recordings and takes their files, of those that have recorded something.
pub(super) fn end() -> Vec<Collected> {
    COLLECTORS.iter().filter_map(Collector::end).collect()
}

impl Collected {
    /// Adds this profile.
    pub(super) fn add_to(&self, all: &mut ExternalProfiles) {
        let mapped = File::open(&self.path).and_then(|file| {
            let bytes = file.metadata()?.len();
            MappedFile::map(&file, 0, bytes)
        });
        match mapped {
            Ok(mapped) => all.profiles.push(ExternalProfile {
                name: self.name.to_owned(),
                content: ExternalContent::XSpace(Arc::new(mapped)),
            }),
            Err(error) => all.warnings.push(format!(
                "{}: cannot read its recording: {}: {error}",
                self.name,
                self.path.display()
            )),
        }
    }
}

impl Collector {
    fn end(&self) -> Option<Collected> {
        let end = self.function(self.end)?;
        // SAFETY: the library exports a function of this type under this name.
        let end: End = unsafe { std::mem::transmute::<*mut c_void, End>(end) };
        let mut path = vec![0_u8; PATH_BYTES];
        // SAFETY: it writes at most that many bytes, and returns their number, or 0.
        let length = unsafe { end(path.as_mut_ptr().cast(), path.len()) };
        path.truncate(usize::try_from(length).ok().filter(|length| *length > 0)?);
        Some(Collected {
            name: self.name,
            path: std::ffi::OsString::from_vec(path).into(),
        })
    }

    /// Finds a function of the library if a vendor's library has loaded it.
    fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let lists = self.variables.iter().filter_map(std::env::var_os);
        let path = lists
            .flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>())
            .find(|path| path.file_name() == Some(OsStr::new(self.library)))?;
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
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
}
