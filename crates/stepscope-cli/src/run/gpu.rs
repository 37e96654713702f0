//! The collectors of CUDA and AMD devices, for programs without a profiler of their own: libraries that the vendor's
//! libraries load into every program that starts with a variable set (`crates/stepscope-cupti`,
//! `crates/stepscope-rocm`).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::args::{Gpu, Run};

/// A collector.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Name of the devices.
    pub(crate) devices: &'static str,
    /// File name of the library.
    pub(crate) library: &'static str,
    /// Variables that load a profiler into every program; the first is set to the collector.
    pub(crate) variables: &'static [&'static str],
    /// A path that exists on machines with such devices; none if that is not looked at.
    device: Option<&'static str>,
    /// Whether it is used unless the user says otherwise: if it was tested on a device.
    by_default: bool,
}

/// The collector of CUDA devices.
pub(crate) const CUDA: Collector = Collector {
    devices: "CUDA devices",
    library: "libstepscope_cupti.so",
    variables: &["CUDA_INJECTION64_PATH"],
    device: None,
    by_default: true,
};

/// The collector of AMD devices.
pub(crate) const ROCM: Collector = Collector {
    devices: "AMD devices",
    library: "libstepscope_rocm.so",
    variables: &["ROCPROFILER_REGISTER_LIBRARY", "ROCP_TOOL_LIBRARIES"],
    device: Some("/dev/kfd"),
    by_default: false,
};

/// Folders with the CUDA toolkit's libraries.
pub(crate) const CUPTI_FOLDERS: [&str; 6] = [
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
];

/// Variables of the program by name, and lines for the user why a collector cannot be used.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) variables: Vec<(&'static str, OsString)>,
    pub(super) notes: Vec<String>,
}

/// Prepares the collectors for a program.
pub(super) fn prepare(asked: &Run, folder: &Path) -> Prepared {
    let mut prepared = Prepared::default();
    if asked.gpu == Gpu::None {
        return prepared;
    }
    let is_used = |collector: &Collector| collector.by_default || asked.gpu == Gpu::Collector;
    for collector in [CUDA, ROCM].into_iter().filter(is_used) {
        match collector.find_unless_used(asked.gpu) {
            Ok(Some(library)) => prepared
                .variables
                .push((collector.variables[0], library.into_os_string())),
            Ok(None) => {}
            Err(note) => prepared.notes.push(note),
        }
    }
    if !prepared.variables.is_empty() {
        let reports = folder.join(super::summary::REPORTS);
        prepared
            .variables
            .push(("STEPSCOPE_REPORTS", reports.into()));
        if asked.gpu == Gpu::Collector {
            prepared
                .variables
                .push(("STEPSCOPE_SOURCES", "none".into()));
        }
    }
    prepared
}

impl Collector {
    /// Returns the library, unless a variable names another profiler; the error is a line for the user.
    fn find_unless_used(&self, asked: Gpu) -> Result<Option<PathBuf>, String> {
        let (devices, library) = (self.devices, self.library);
        if let Some((variable, other)) = self.other_profiler(|name| env::var_os(name)) {
            return Err(format!(
                "the collector of {devices} is left out: {variable} names another profiler, {}\nhelp: unset \
                {variable}, or give --gpu none",
                other.display()
            ));
        }
        let found = self.find();
        let has_device = self.device.is_none_or(|device| Path::new(device).exists());
        if found.is_none() && asked == Gpu::Collector && has_device {
            return Err(format!(
                "cannot record {devices} with the collector: {library} is not next to this program\nhelp: copy it \
                there, or install the package: pip install stepscope"
            ));
        }
        Ok(found)
    }

    /// Returns the first variable that loads another profiler into every program, with its value.
    pub(crate) fn other_profiler(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Option<(&'static str, OsString)> {
        self.variables.iter().find_map(|name| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some((*name, value))
        })
    }

    /// Finds the library: in the Python package that this command belongs to, or next to the executable.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let package = env::var_os("STEPSCOPE_PACKAGE").map(PathBuf::from);
        let executable = env::current_exe().ok();
        let next_to_it = executable.as_deref().and_then(Path::parent);
        let folders = package.iter().map(PathBuf::as_path).chain(next_to_it);
        folders
            .map(|folder| folder.join(self.library))
            .find(|library| library.is_file())
    }
}
