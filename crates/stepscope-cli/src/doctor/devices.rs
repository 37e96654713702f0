//! Accelerators, and the libraries that record what they do.

use std::ffi::OsStr;
use std::path::PathBuf;

use stepscope_model::vocabulary::cupti::{OLDEST_VERSION, version_text};

use super::cupti_version::cupti_version;
use super::machine::Machine;
use super::python::Python;
use super::{Check, rocm};
use crate::run::gpu;

/// Allows every user to read the GPU's counters.
const UNRESTRICT: &str = "echo 'options nvidia \"NVreg_RestrictProfilingToAdminUsers=0\"' | sudo tee -a \
    /etc/modprobe.d/nvidia-kernel-common.conf && sudo update-initramfs -u && sudo reboot";

/// Checks NVIDIA, AMD, TPU and Neuron devices.
pub(super) fn checks(machine: &Machine, python: Option<&Python>) -> Vec<Check> {
    let mut found = nvidia(machine, python);
    found.extend(rocm::checks(machine));
    found.push(tpu(machine, python));
    found.push(neuron(machine, python));
    found
}

fn nvidia(machine: &Machine, python: Option<&Python>) -> Vec<Check> {
    let Some(driver) = machine.read("/proc/driver/nvidia/version") else {
        return vec![Check::absent("nvidia", "NVIDIA GPU", "no driver is loaded")];
    };
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    let version = driver
        .split_whitespace()
        .find(is_version)
        .unwrap_or("of unknown version");
    let mut found = vec![Check::ok(
        "nvidia",
        "NVIDIA GPU",
        format!("driver {version}"),
    )];
    found.push(cupti(machine, python));
    found.push(privileges(machine));
    found.push(collector(gpu::CUDA.find()));
    found.extend(injection(machine));
    found
}

fn cupti(machine: &Machine, python: Option<&Python>) -> Check {
    const ID: &str = "cupti";
    const TITLE: &str = "CUPTI";
    let of_python = python
        .into_iter()
        .flat_map(|python| python.cupti.iter().cloned());
    let folders = machine
        .variable("LD_LIBRARY_PATH")
        .map(std::env::split_paths);
    let named = folders
        .into_iter()
        .flatten()
        .map(|folder| folder.join("libcupti.so"));
    let of_system = gpu::CUPTI_FOLDERS
        .iter()
        .flat_map(|folder| machine.starting_with(folder, "libcupti.so"));
    let first: Option<PathBuf> = of_python
        .chain(named.filter(|file| file.exists()))
        .chain(of_system)
        .next();
    let install = python.map_or_else(
        || "pip install nvidia-cuda-cupti-cu12, or install the CUDA toolkit".to_owned(),
        |python| python.pip("install nvidia-cuda-cupti-cu12"),
    );
    let Some(file) = first else {
        let found = "libcupti.so was not found: kernels cannot be recorded";
        return Check::problem(ID, TITLE, found, install);
    };
    let path = file.display();
    match cupti_version(&file) {
        Some(version) if version < OLDEST_VERSION => {
            let found = format!(
                "{path}, version {}: too old for the CUDA collector, which needs that of CUDA 11.8",
                version_text(version)
            );
            Check::problem(ID, TITLE, found, install)
        }
        Some(version) => Check::ok(
            ID,
            TITLE,
            format!("{path}, version {}", version_text(version)),
        ),
        None => Check::ok(ID, TITLE, path.to_string()),
    }
}

fn privileges(machine: &Machine) -> Check {
    const ID: &str = "gpu_privileges";
    const TITLE: &str = "GPU privileges";
    let parameters = machine
        .read("/proc/driver/nvidia/params")
        .unwrap_or_default();
    let mut lines = parameters.lines();
    let restricted = lines.any(|line| line.replace(' ', "") == "RmProfilingAdminOnly:1");
    if !restricted {
        return Check::ok(ID, TITLE, "every user may read the counters of the GPU");
    }
    if machine.is_administrator() {
        return Check::ok(ID, TITLE, "this process may read the counters of the GPU");
    }
    Check::problem(
        ID,
        TITLE,
        "only administrators may read the counters of the GPU; CUPTI then fails with \
        CUPTI_ERROR_INSUFFICIENT_PRIVILEGES where it needs them",
        UNRESTRICT,
    )
}

/// Programs without a profiler of their own need it.
fn collector(library: Option<PathBuf>) -> Check {
    const ID: &str = "cuda_collector";
    const TITLE: &str = "CUDA collector";
    match library {
        Some(library) => Check::ok(ID, TITLE, library.display().to_string()),
        None => Check::problem(
            ID,
            TITLE,
            format!(
                "{} is not next to this program: of programs without PyTorch and JAX, no kernels are recorded",
                gpu::CUDA.library
            ),
            "copy it there from the release, or: pip install stepscope",
        ),
    }
}

/// A process has room for one user of CUPTI.
fn injection(machine: &Machine) -> Option<Check> {
    let variable = |name: &str| machine.variable(name).map(OsStr::to_owned);
    let (name, library) = gpu::CUDA.other_profiler(variable)?;
    Some(Check::problem(
        "cuda_injection",
        "Other GPU profiler",
        format!("{name} loads {} into every CUDA program", library.display()),
        format!("unset {name}"),
    ))
}

fn tpu(machine: &Machine, python: Option<&Python>) -> Check {
    const ID: &str = "tpu";
    const TITLE: &str = "TPU";
    let chips = machine.starting_with("/dev", "accel").len();
    let libtpu = python.and_then(|python| python.package("libtpu"));
    match (chips, libtpu) {
        (0, _) => Check::absent(ID, TITLE, "no /dev/accel*"),
        (chips, Some(version)) => Check::ok(ID, TITLE, format!("{chips} chips, libtpu {version}")),
        (chips, None) => Check::problem(
            ID,
            TITLE,
            format!("{chips} chips, and no libtpu in this Python"),
            python.map_or_else(
                || "pip install 'jax[tpu]'".to_owned(),
                |python| python.pip("install 'jax[tpu]'"),
            ),
        ),
    }
}

fn neuron(machine: &Machine, python: Option<&Python>) -> Check {
    const ID: &str = "neuron";
    const TITLE: &str = "AWS Neuron";
    let devices = machine.starting_with("/dev", "neuron").len();
    if devices == 0 {
        return Check::absent(ID, TITLE, "no /dev/neuron*");
    }
    let mut facts = vec![format!("{devices} devices")];
    let driver = machine.read("/sys/module/neuron/version");
    facts.extend(driver.map(|version| format!("driver {}", version.trim())));
    for name in ["torch-neuronx", "libneuronxla", "neuronx-cc"] {
        let version = python.and_then(|python| python.package(name));
        facts.extend(version.map(|version| format!("{name} {version}")));
    }
    let names = ["neuron-explorer", "neuron-profile"];
    let installed = names.into_iter().find_map(|name| {
        let file = machine.path(&format!("/opt/aws/neuron/bin/{name}"));
        machine
            .program(name)
            .or_else(|| file.exists().then_some(file))
    });
    match installed {
        Some(tool) => {
            facts.push(tool.display().to_string());
            Check::ok(ID, TITLE, facts.join(", "))
        }
        None => Check::problem(
            ID,
            TITLE,
            format!(
                "{}, and neither neuron-explorer nor neuron-profile",
                facts.join(", ")
            ),
            "sudo apt-get install aws-neuronx-tools",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::fake::FakeMachine;
    use super::super::python::fake_python;
    use super::*;

    const DRIVER: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n";

    fn states(fake: &FakeMachine) -> Vec<(&'static str, State)> {
        let found = checks(&fake.machine, None).into_iter();
        found.map(|check| (check.id, check.state)).collect()
    }

    fn found(fake: &FakeMachine, id: &str) -> Check {
        let mut found = checks(&fake.machine, None).into_iter();
        found.find(|check| check.id == id).unwrap()
    }

    #[test]
    fn machine_without_accelerators_has_no_problem() {
        let names = ["nvidia", "rocm", "tpu", "neuron"];
        assert_eq!(
            states(&FakeMachine::new()),
            names.map(|name| (name, State::Absent))
        );
    }

    #[test]
    fn nvidia_needs_cupti_and_privileges() {
        let fake = FakeMachine::new()
            .file("/proc/driver/nvidia/version", DRIVER)
            .file(
                "/proc/driver/nvidia/params",
                "A: 0\nRmProfilingAdminOnly: 1\n",
            )
            .file("/proc/self/status", "CapEff:\t0000000000000000\n");
        assert_eq!(found(&fake, "nvidia").found, "driver 535.104.05");
        assert_eq!(found(&fake, "cupti").state, State::Problem);
        let privileges = found(&fake, "gpu_privileges");
        assert_eq!(privileges.state, State::Problem);
        assert!(
            privileges
                .help
                .unwrap()
                .contains("NVreg_RestrictProfilingToAdminUsers=0")
        );
        let fake = fake
            .file("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12", "")
            .file("/proc/self/status", "CapEff:\t000001ffffffffff\n")
            .variable("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so");
        assert!(found(&fake, "cupti").found.ends_with("libcupti.so.12"));
        assert_eq!(found(&fake, "gpu_privileges").state, State::Ok);
        assert_eq!(
            found(&fake, "cuda_injection").help.unwrap(),
            "unset CUDA_INJECTION64_PATH"
        );
    }

    /// Compiles a library with the function that tells this version.
    fn compile_cupti(folder: &std::path::Path, version: u32) {
        let source = folder.join("cupti.c");
        let text = format!(
            "int cuptiGetVersion(unsigned *version) {{ *version = {version}; return 0; }}\n"
        );
        std::fs::write(&source, text).unwrap();
        let compiled = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(folder.join("libcupti.so"))
            .arg(source)
            .status();
        assert!(compiled.unwrap().success());
    }

    #[test]
    fn version_of_cupti_is_that_of_the_library() {
        for (version, state, text) in [
            (26, State::Ok, ", version 26 (CUDA 12.8)"),
            (17, State::Problem, ", version 17 (CUDA 11.6): too old"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            compile_cupti(folder.path(), version);
            let fake = FakeMachine::new()
                .file("/proc/driver/nvidia/version", DRIVER)
                .variable("LD_LIBRARY_PATH", &folder.path().display().to_string());
            let cupti = found(&fake, "cupti");
            assert_eq!(cupti.state, state);
            assert!(cupti.found.contains(text), "{}", cupti.found);
        }
    }

    #[test]
    fn tpu_and_neuron_need_their_tools() {
        let fake = FakeMachine::new()
            .file("/dev/accel0", "")
            .file("/dev/accel1", "")
            .file("/dev/neuron0", "");
        assert_eq!(
            found(&fake, "tpu").found,
            "2 chips, and no libtpu in this Python"
        );
        assert_eq!(
            found(&fake, "neuron").help.unwrap(),
            "sudo apt-get install aws-neuronx-tools"
        );
        let fake = fake
            .program("neuron-profile", "#!/bin/sh\n")
            .file("/sys/module/neuron/version", "2.21.37.0\n");
        let packages = [
            ("torch-neuronx", "2.9.0.2.13"),
            ("neuronx-cc", "2.24.5133.0"),
        ];
        let python = fake_python(&[3, 12, 1], &packages);
        let checks = checks(&fake.machine, Some(&python));
        let neuron = checks.iter().find(|check| check.id == "neuron").unwrap();
        assert_eq!(neuron.state, State::Ok);
        let versions =
            "1 devices, driver 2.21.37.0, torch-neuronx 2.9.0.2.13, neuronx-cc 2.24.5133.0, ";
        assert!(neuron.found.starts_with(versions), "{}", neuron.found);
    }
}
