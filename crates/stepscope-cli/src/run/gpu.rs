//! The collector of CUDA devices, for programs without a profiler of their own: the driver loads it into every program
//! that it starts with `CUDA_INJECTION64_PATH` set (`crates/stepscope-cupti`).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::args::{Gpu, Run};

/// The variable in which the driver looks for a library.
pub(crate) const INJECTION: &str = "CUDA_INJECTION64_PATH";
/// File name of the collector.
pub(crate) const LIBRARY: &str = "libstepscope_cupti.so";

/// Returns the variables of the program, by name; or a line for the user why the collector cannot be used.
pub(super) fn variables(
    asked: &Run,
    folder: &Path,
) -> Result<Vec<(&'static str, OsString)>, String> {
    if asked.gpu == Gpu::None {
        return Ok(Vec::new());
    }
    if let Some(other) = env::var_os(INJECTION).filter(|other| !other.is_empty()) {
        return Err(format!(
            "the collector of CUDA devices is left out: {INJECTION} names another profiler, {}\nhelp: unset \
            {INJECTION}, or give --gpu none",
            other.display()
        ));
    }
    let Some(library) = library() else {
        return match asked.gpu {
            Gpu::Collector => Err(format!(
                "cannot record CUDA devices with the collector: {LIBRARY} is not next to this program\nhelp: copy it \
                there, or install the package: pip install stepscope"
            )),
            _ => Ok(Vec::new()),
        };
    };
    let mut set = vec![
        (INJECTION, library.into_os_string()),
        (
            "STEPSCOPE_REPORTS",
            folder.join(super::summary::REPORTS).into(),
        ),
    ];
    if asked.gpu == Gpu::Collector {
        set.push(("STEPSCOPE_SOURCES", "none".into()));
    }
    Ok(set)
}

/// Finds the collector: in the Python package that this command belongs to, or next to the executable.
pub(crate) fn library() -> Option<PathBuf> {
    let package = env::var_os("STEPSCOPE_PACKAGE").map(PathBuf::from);
    let executable = env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent);
    let folders = package.iter().map(PathBuf::as_path).chain(beside);
    folders
        .map(|folder| folder.join(LIBRARY))
        .find(|library| library.is_file())
}
