//! Tests with other tools: their readers, their capture clients, their profiler servers.
//!
//! `docs/reference/peers.md` lists the installed packages, their sizes and the duration.

use std::path::PathBuf;

use anyhow::Result;

use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::{demo, shell};

/// Other tools' readers and clients. jax pins jaxlib; xprof pins its own protobuf.
const PEERS: Environment =
    Environment::from_requirements("peers", &["jax==0.10.2", "xprof==2.24.2", "grpcio==1.85.1"]);

/// Other tools and the frameworks in one folder of 3 GB. The wheel of torch requires 2.8 GB more,
/// CUDA libraries that are never called on the CPU: three small ones are installed, stubs are
/// created for the others.
const FRAMEWORKS: Environment = Environment {
    name: "frameworks",
    requirements: &[
        "jax==0.10.2",
        "xprof==2.24.2",
        "grpcio==1.85.1",
        "tensorboard==2.21.0",
        "numpy==2.2.6",
        "pyarrow==26.0.1",
        "pyyaml==6.0.3",
        "requests==2.34.2",
        "typing-extensions==4.16.0",
    ],
    without_dependencies: &[
        "torch==2.9.0",
        "torch_xla==2.9.0",
        "nvidia-cuda-cupti-cu12==12.8.90",
        "nvidia-cuda-runtime-cu12==12.8.90",
        "nvidia-cufile-cu12==1.13.1.3",
        "filelock==3.20.0",
        "jinja2==3.1.6",
        "lightning==2.6.6",
        "lightning-utilities==0.15.3",
        "mpmath==1.3.0",
        "networkx==3.4.2",
        "pytorch-lightning==2.6.6",
        "sympy==1.14.0",
        "torchmetrics==1.9.0",
        "tqdm==4.70.1",
    ],
    post_install_script: Some("tests/remote/cuda_stand_ins.py"),
};

/// Whether PyTorch/XLA has wheels for this machine.
const TORCH_XLA: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// A file of `tests/remote`, which is one part of `cargo xtask test`.
pub(crate) struct CaptureTest {
    /// The part's name.
    pub(crate) name: &'static str,
    script: &'static str,
    torch_xla: bool,
}

/// The capture tests with other tools, in the order in which they run.
pub(crate) const CAPTURE_TESTS: &[CaptureTest] = &[
    CaptureTest {
        name: "capture of JAX",
        script: "tests/remote/capture_jax.py",
        torch_xla: false,
    },
    CaptureTest {
        name: "capture by JAX, XProf",
        script: "tests/remote/captured_by_clients.py",
        torch_xla: false,
    },
    CaptureTest {
        name: "capture, PyTorch/XLA",
        script: "tests/remote/torch_xla_both_ways.py",
        torch_xla: true,
    },
    CaptureTest {
        name: "faults on the port",
        script: "tests/remote/faults.py",
        torch_xla: false,
    },
    CaptureTest {
        name: "flight recorder",
        script: "tests/remote/flight_recorder.py",
        torch_xla: false,
    },
    CaptureTest {
        name: "rules of the soak",
        script: "tests/remote/soak_rules.py",
        torch_xla: false,
    },
];

/// Returns a Python with JAX, XProf and gRPC, and with the frameworks where they have wheels;
/// `None` when this machine's Python is too old.
pub(crate) fn python() -> Result<Option<PathBuf>> {
    if TORCH_XLA {
        FRAMEWORKS.python()
    } else {
        PEERS.python()
    }
}

/// Returns a Python with every framework, or the reason why there is none.
pub(crate) fn frameworks() -> Result<Result<PathBuf, Outcome>> {
    if !TORCH_XLA {
        return Ok(Err(Outcome::NotRun(
            "PyTorch/XLA has wheels for Linux on x86-64 only".to_owned(),
        )));
    }
    Ok(FRAMEWORKS.python()?.ok_or_else(no_python))
}

/// Checks that JAX's `ProfileData` and XProf's converters open the files of stepscope's recorder
/// and converters.
pub(crate) fn read_our_files() -> Result<Outcome> {
    let Some(python) = python()? else {
        return Ok(no_python());
    };
    let log_directory = demo::log_directory("peers");
    if log_directory.exists() {
        std::fs::remove_dir_all(&log_directory)?;
    }
    let record = Build::Dev.example("stepscope", "record")?;
    shell::run(shell::program(record).arg(&log_directory))?;
    shell::run(
        shell::program(python)
            .arg("tests/peers/read_recording.py")
            .arg(&log_directory),
    )?;
    Ok(Outcome::Ok)
}

/// Runs a test of captures over the network between stepscope and another tool.
pub(crate) fn capture(test: &CaptureTest) -> Result<Outcome> {
    let Some(python) = python()? else {
        return Ok(no_python());
    };
    let mut command = shell::program(python);
    if test.torch_xla {
        let torch_xla = match frameworks()? {
            Ok(python) => python,
            Err(outcome) => return Ok(outcome),
        };
        command.env("STEPSCOPE_TORCH_XLA_PYTHON", torch_xla);
    }
    command
        .arg(test.script)
        .env("STEPSCOPE_BIN", Build::Dev.command()?)
        .env("STEPSCOPE_SERVE", serve_program(Build::Dev)?);
    shell::sync()?;
    shell::run(&mut command)?;
    Ok(Outcome::Ok)
}

/// Builds the program to capture and returns its path.
pub(crate) fn serve_program(build: Build) -> Result<PathBuf> {
    build.example("stepscope-remote", "serve")
}

/// Returns the reason why a part with Python did not run.
pub(crate) fn no_python() -> Outcome {
    Outcome::NotRun("no Python 3.10 or newer with the venv module".to_owned())
}
