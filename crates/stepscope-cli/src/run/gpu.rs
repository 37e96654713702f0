//! The collectors of CUDA and AMD devices, for programs without a profiler of their own: libraries that the vendor's
//! libraries load into every program that starts with a variable set (`crates/stepscope-cupti`,
//! `crates/stepscope-rocm`).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::args::{Gpu, RunArgs};

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
/// Folders below the packages of an environment of Python in which NVIDIA's packages have CUPTI.
const CUPTI_PACKAGES: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"];
/// The variable with the library that NVTX hands its calls to, and the one that names CUPTI.
const NVTX: &str = "NVTX_INJECTION64_PATH";
const CUPTI: &str = "STEPSCOPE_CUPTI";

/// Variables of the program by name, and lines for the user why a collector cannot be used.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) variables: Vec<(&'static str, OsString)>,
    pub(super) notes: Vec<String>,
}

/// Prepares the collectors for a program.
pub(super) fn prepare(asked: &RunArgs) -> Prepared {
    let mut prepared = Prepared::default();
    let is_used = |collector: &Collector| match asked.gpu {
        Gpu::Auto => collector.by_default,
        Gpu::Collector => true,
        Gpu::None => false,
    };
    for collector in [CUDA, ROCM].into_iter().filter(is_used) {
        match collector.find_unless_used(asked.gpu) {
            Ok(Some(library)) => prepared
                .variables
                .push((collector.variables[0], library.into_os_string())),
            Ok(None) => {}
            Err(note) => prepared.notes.push(note),
        }
    }
    if asked.nvtx {
        match nvtx(
            prepared
                .variables
                .iter()
                .any(|set| set.0 == CUDA.variables[0]),
        ) {
            Ok(cupti) => prepared
                .variables
                .extend([NVTX, CUPTI].map(|name| (name, cupti.clone().into_os_string()))),
            Err(note) => prepared.notes.push(note),
        }
    }
    if !prepared.variables.is_empty() && asked.gpu == Gpu::Collector {
        prepared
            .variables
            .push(("STEPSCOPE_SOURCES", "none".into()));
    }
    prepared
}

/// Returns the library that gets calls of NVTX: CUPTI, which delivers them to the collector. The error is a line for the
/// user.
fn nvtx(is_collected: bool) -> Result<PathBuf, String> {
    if !is_collected {
        return Err(format!(
            "cannot record NVTX: the collector of {} is left out\nhelp: leave out --nvtx, or put {} next to this program",
            CUDA.devices, CUDA.library
        ));
    }
    if let Some(other) = env::var_os(NVTX).filter(|other| !other.is_empty()) {
        return Err(format!(
            "cannot record NVTX: {NVTX} names another tool, {}\nhelp: unset {NVTX}, or leave out --nvtx",
            other.display()
        ));
    }
    find_cupti(|name| env::var_os(name)).ok_or_else(|| {
        "cannot record NVTX: libcupti.so was not found\nhelp: pip install nvidia-cuda-cupti, or name it: \
        STEPSCOPE_CUPTI=/path/libcupti.so"
            .to_owned()
    })
}

/// Finds CUPTI: where the variable names it, on the loader's path, next to the Python package that this command belongs
/// to, or in the CUDA toolkit.
fn find_cupti(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(named) = given(CUPTI) {
        return Some(named.into());
    }
    let on_path = given("LD_LIBRARY_PATH");
    let on_path = on_path.iter().flat_map(env::split_paths);
    let package = given("STEPSCOPE_PACKAGE").map(PathBuf::from);
    let packages = package.iter().filter_map(|package| package.parent());
    let of_packages =
        packages.flat_map(|packages| CUPTI_PACKAGES.map(|folder| packages.join(folder)));
    let mut folders = on_path
        .chain(of_packages)
        .chain(CUPTI_FOLDERS.iter().map(PathBuf::from));
    folders.find_map(|folder| {
        let entries = std::fs::read_dir(folder).ok()?.flatten();
        let is_cupti = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("libcupti.so") && path.is_file()
        };
        entries.map(|entry| entry.path()).filter(is_cupti).min()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cupti_is_found_where_the_program_finds_it() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let of_package = file("packages/nvidia/cu13/lib/libcupti.so.13");
        let on_path = file("toolkit/libcupti.so.12");
        let find = |set: &[(&str, &Path)]| {
            find_cupti(|name| {
                let found = set.iter().find(|(known, _)| *known == name)?;
                Some(found.1.as_os_str().to_owned())
            })
        };
        let package = home.path().join("packages/stepscope");
        let package = ("STEPSCOPE_PACKAGE", package.as_path());
        assert_eq!(find(&[package]), Some(of_package));
        let path = ("LD_LIBRARY_PATH", on_path.parent().unwrap());
        assert_eq!(find(&[package, path]), Some(on_path.clone()));
        let named = (CUPTI, Path::new("/a/libcupti.so"));
        assert_eq!(find(&[path, named]), Some("/a/libcupti.so".into()));
    }
}
