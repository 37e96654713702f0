//! Tests beside the peers: their readers, their capture clients, their profiler servers.
//!
//! What is installed, how large it is and how long it takes: docs/reference/peers.md.

use std::path::PathBuf;

use anyhow::Result;

use crate::part::Outcome;
use crate::python::Environment;
use crate::{demo, shell};

/// The peers' own readers and clients. jax pins jaxlib; xprof brings its own protobuf.
pub(crate) const PEERS: Environment =
    Environment::of("peers", &["jax==0.10.2", "xprof==2.24.2", "grpcio==1.85.1"]);

/// PyTorch/XLA on the CPU. The wheel of torch asks for 2.8 GB of CUDA libraries that are never
/// called there: three small ones are installed, stand-ins are made for the others.
const TORCH_XLA: Environment = Environment {
    name: "torch-xla",
    requirements: &[
        "torch==2.9.0",
        "torch_xla==2.9.0",
        "nvidia-cuda-cupti-cu12==12.8.90",
        "nvidia-cuda-runtime-cu12==12.8.90",
        "nvidia-cufile-cu12==1.13.1.3",
        "certifi==2025.10.5",
        "charset-normalizer==3.5.2",
        "filelock==3.20.0",
        "idna==3.11",
        "mpmath==1.3.0",
        "networkx==3.4.2",
        "numpy==2.2.6",
        "pyyaml==6.0.3",
        "requests==2.32.5",
        "sympy==1.14.0",
        "typing-extensions==4.15.0",
        "urllib3==2.5.0",
    ],
    options: &["--no-deps", "--no-compile"],
    afterwards: Some("tests/remote/cuda_stand_ins.py"),
};

/// A file of `tests/remote`: its part of `cargo xtask test`.
pub(crate) struct CaptureTest {
    /// The part's name.
    pub(crate) name: &'static str,
    script: &'static str,
    torch_xla: bool,
}

/// The captures against the real things, in the order in which they run.
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
];

/// A Python with JAX, XProf and gRPC; `None` when this machine has no Python that is new enough.
pub(crate) fn python() -> Result<Option<PathBuf>> {
    PEERS.python()
}

/// JAX's `ProfileData` and XProf's converters open what our recorder and converters write.
pub(crate) fn read_our_files() -> Result<Outcome> {
    let Some(python) = PEERS.python()? else {
        return Ok(no_python());
    };
    let log_directory = demo::log_directory("peers");
    if log_directory.exists() {
        std::fs::remove_dir_all(&log_directory)?;
    }
    shell::run(
        shell::cargo()
            .args([
                "run",
                "--quiet",
                "--package",
                "stepscope",
                "--example",
                "record",
                "--",
            ])
            .arg(&log_directory),
    )?;
    shell::run(
        shell::program(python)
            .arg("tests/peers/read_recording.py")
            .arg(&log_directory),
    )?;
    Ok(Outcome::Ok)
}

/// Captures over the network, with the peers at the other end.
pub(crate) fn capture(test: &CaptureTest) -> Result<Outcome> {
    let Some(python) = PEERS.python()? else {
        return Ok(no_python());
    };
    let mut command = shell::program(python);
    if test.torch_xla {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Ok(Outcome::NotRun(
                "PyTorch/XLA has wheels for Linux on x86-64 only".to_owned(),
            ));
        }
        let Some(torch_xla) = TORCH_XLA.python()? else {
            return Ok(no_python());
        };
        command.env("STEPSCOPE_TORCH_XLA_PYTHON", torch_xla);
    }
    command
        .arg(test.script)
        .env("STEPSCOPE_BIN", demo::release_binary()?)
        .env("STEPSCOPE_SERVE", serve_program()?);
    // What was built and installed is on the disk before programs wait for theirs to be.
    if shell::exists("sync") {
        shell::run(&mut shell::program("sync"))?;
    }
    shell::run(&mut command)?;
    Ok(Outcome::Ok)
}

/// Builds the program that the peers capture and tells where it is.
pub(crate) fn serve_program() -> Result<PathBuf> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "stepscope-remote",
        "--example",
        "serve",
    ]))?;
    Ok(shell::target_dir().join("release/examples/serve"))
}

/// Why a part with Python did not run.
pub(crate) fn no_python() -> Outcome {
    Outcome::NotRun("no Python 3.10 or newer with the venv module".to_owned())
}
