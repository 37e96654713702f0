//! AMD devices, and the library that records what they do.

use std::path::{Path, PathBuf};

use super::Check;
use super::machine::Machine;
use crate::run::gpu;

const FOLDERS: [&str; 2] = ["/opt/rocm/lib", "/opt/rocm/lib64"];
/// Oldest version of rocprofiler-sdk that the collector reads: that of ROCm 6.2.
const OLDEST: (u32, u32) = (0, 4);

/// Checks the devices and, if they can be used, what records them.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    const ID: &str = "rocm";
    const TITLE: &str = "AMD GPU";
    let device = machine.path("/dev/kfd");
    if !device.exists() {
        return vec![Check::absent(ID, TITLE, "no /dev/kfd")];
    }
    let version = machine.read("/opt/rocm/.info/version").unwrap_or_default();
    let version = match version.trim() {
        "" => "ROCm of unknown version".to_owned(),
        version => format!("ROCm {version}"),
    };
    if let Err(error) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&device)
    {
        return vec![Check::problem(
            ID,
            TITLE,
            format!("{version}; /dev/kfd: {error}"),
            "sudo usermod -aG render,video $USER, and log in again",
        )];
    }
    let sdk = libraries(machine, "librocprofiler-sdk.so");
    if sdk.is_empty() && libraries(machine, "libroctracer64.so").is_empty() {
        return vec![Check::problem(
            ID,
            TITLE,
            format!("{version}; neither librocprofiler-sdk nor libroctracer64 is below /opt/rocm"),
            "sudo apt-get install rocprofiler-sdk",
        )];
    }
    vec![
        Check::ok(ID, TITLE, version),
        library(&sdk),
        collector(gpu::ROCM.find()),
    ]
}

/// Lists the files of a library in ROCm's folders and `LD_LIBRARY_PATH`.
fn libraries(machine: &Machine, name: &str) -> Vec<PathBuf> {
    let named = machine
        .variable("LD_LIBRARY_PATH")
        .into_iter()
        .flat_map(std::env::split_paths)
        .collect::<Vec<_>>();
    let rocm = machine
        .variable("ROCM_PATH")
        .map(|rocm| Path::new(rocm).join("lib"));
    let folders = named
        .into_iter()
        .chain(rocm)
        .chain(FOLDERS.iter().map(PathBuf::from));
    folders
        .flat_map(|folder| machine.starting_with(&folder.to_string_lossy(), name))
        .collect()
}

fn library(found: &[PathBuf]) -> Check {
    const ID: &str = "rocprofiler_sdk";
    const TITLE: &str = "rocprofiler-sdk";
    let Some(first) = found.first() else {
        return Check::absent(
            ID,
            TITLE,
            "librocprofiler-sdk.so was not found: --gpu collector needs it",
        )
        .with_help("sudo apt-get install rocprofiler-sdk");
    };
    let version = found.iter().find_map(|file| version(file));
    match version {
        Some((major, minor)) if (major, minor) < OLDEST => Check::problem(
            ID,
            TITLE,
            format!("{}: version {major}.{minor} is too old", first.display()),
            "install rocprofiler-sdk of ROCm 6.2 or newer",
        ),
        Some((major, minor)) => Check::ok(
            ID,
            TITLE,
            format!("version {major}.{minor}, {}", first.display()),
        ),
        None => Check::ok(ID, TITLE, first.display().to_string()),
    }
}

/// Returns the version in the name of a library's file, `librocprofiler-sdk.so.1.0.0`.
fn version(file: &Path) -> Option<(u32, u32)> {
    let name = file.file_name()?.to_str()?;
    let (_, numbers) = name.split_once(".so.")?;
    let mut numbers = numbers.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The collector is used with `--gpu collector` only: without it, nothing else is hindered.
fn collector(library: Option<PathBuf>) -> Check {
    const ID: &str = "rocm_collector";
    const TITLE: &str = "ROCm collector";
    match library {
        Some(library) => Check::ok(ID, TITLE, library.display().to_string()),
        None => Check::absent(
            ID,
            TITLE,
            format!("{} is not next to this program", gpu::ROCM.library),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::fake::FakeMachine;
    use super::*;

    fn found(fake: &FakeMachine, id: &str) -> Option<Check> {
        let mut found = checks(&fake.machine).into_iter();
        found.find(|check| check.id == id)
    }

    fn machine() -> FakeMachine {
        FakeMachine::new()
            .file("/dev/kfd", "")
            .file("/opt/rocm/.info/version", "6.4.0-66\n")
    }

    #[test]
    fn amd_needs_a_profiling_library() {
        let check = found(&machine(), "rocm").unwrap();
        assert_eq!(
            (check.state, check.found.starts_with("ROCm 6.4.0-66; ")),
            (State::Problem, true)
        );
        let fake = machine().file("/opt/rocm/lib/libroctracer64.so.4", "");
        assert_eq!(found(&fake, "rocm").unwrap().state, State::Ok);
        let check = found(&fake, "rocprofiler_sdk").unwrap();
        assert_eq!(
            (check.state, check.help.as_deref()),
            (State::Absent, Some("sudo apt-get install rocprofiler-sdk"))
        );
    }

    #[test]
    fn version_of_the_library_is_that_of_its_file() {
        for (name, state) in [("0.6.0", State::Ok), ("0.3.1", State::Problem)] {
            let fake = machine()
                .file("/opt/rocm/lib/librocprofiler-sdk.so", "")
                .file(&format!("/opt/rocm/lib/librocprofiler-sdk.so.{name}"), "");
            let check = found(&fake, "rocprofiler_sdk").unwrap();
            assert_eq!(check.state, state, "{}", check.found);
        }
    }
}
