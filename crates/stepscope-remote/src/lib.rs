//! Captures a running program over gRPC: the service inside the program, and the client.
//!
//! Both use `tensorflow.ProfilerService`, like the programs and clients of JAX, PyTorch/XLA and
//! TensorFlow. `docs/formats/capture-protocol.md` documents the observed messages.

pub mod address;
pub mod client;
pub mod proto;
pub mod server;

mod advanced_options;
mod atomic_file;
mod headers;
mod perfetto_file;

pub use address::Address;
pub use advanced_options::{ADVANCED_OPTIONS, AdvancedValues};
pub use client::{
    CaptureControl, CaptureError, CaptureEvent, CaptureFailure, CaptureReport, CaptureRequest,
    CaptureStage, Captured, HostClock, HostReport, Interval, OptionValue, capture, capture_with,
    read_clock, writable_log_dir,
};
pub use perfetto_file::{PerfettoFileError, perfetto_path, write_perfetto};
pub use server::{
    CompanionCallbacks, CompanionRequest, Log, ServerError, ServerHandle, ServerOptions,
    host_tracer_level, start_server, start_server_with, stop_server,
};
