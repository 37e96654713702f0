//! Readers and writers of trace files.
//!
//! A reader takes bytes and emits into an [`EventSink`]; a writer *is* an [`EventSink`]. Neither
//! opens a file: the engine maps, inflates and writes files. Each format has a folder and a cargo
//! feature.
//!
//! # Features
//!
//! All are on by default, except `neuron` and `probe`.
//!
//! | Feature | Adds |
//! |---|---|
//! | `xplane` | XSpace (`*.xplane.pb`), reader and writer; the recorder needs only this one |
//! | `chrome` | Chrome JSON, also that of PyTorch and JAX, reader and writer |
//! | `perfetto` | Perfetto protobuf, reader and writer |
//! | `rocprof` | JSON of rocprofv3, reader |
//! | `neuron` | unpacks what Neuron stores in an XSpace; the only part that needs a JSON library |
//! | `profiles` | statistics without a timeline: cProfile and Lightning's reports, readers |
//! | `rustc` | self-profiles of rustc, reader |
//! | `samples` | sampled stacks: speedscope, Firefox, collapsed stacks, `perf script`, execution traces of PyTorch and Chakra, readers |
//! | `snapshots` | memory snapshots of PyTorch, dumps of NCCL's flight recorder and logs of `torch.compile`, readers |
//! | `nsight` | SQLite exports of Nsight Systems, reader |
//! | `probe` | a sink that keeps all events, for tests and fuzz targets of other crates |
//!
//! Reading order: [`detect`] (format detection), [`gzip`], then one folder per format.

#[cfg(feature = "samples")]
pub mod chakra;
#[cfg(feature = "chrome")]
pub mod chrome_json;
#[cfg(feature = "samples")]
pub mod collapsed;
#[cfg(feature = "profiles")]
pub mod cprofile;
pub mod detect;
mod error;
#[cfg(feature = "samples")]
pub mod execution_trace;
#[cfg(feature = "samples")]
pub mod firefox;
mod format;
pub mod gzip;
#[cfg(feature = "xplane")]
pub mod hlo;
#[cfg(feature = "chrome")]
mod json;
#[cfg(feature = "profiles")]
pub mod lightning;
#[cfg(any(feature = "profiles", feature = "perfetto", feature = "rocprof"))]
mod losses;
#[cfg(feature = "rustc")]
pub mod measureme;
#[cfg(feature = "snapshots")]
pub mod nccl_flight;
#[cfg(feature = "nsight")]
pub mod nsight;
#[cfg(any(feature = "chrome", feature = "perfetto"))]
mod null_sink;
pub mod parquet;
#[cfg(feature = "samples")]
pub mod perf_script;
#[cfg(feature = "perfetto")]
pub mod perfetto;
#[cfg(feature = "snapshots")]
mod pickle;
#[cfg(feature = "profiles")]
pub mod pprof;
#[cfg(any(test, feature = "probe"))]
pub mod probe;
mod protobuf;
#[cfg(feature = "rocprof")]
pub mod rocprof;
#[cfg(feature = "samples")]
mod sampling;
#[cfg(feature = "samples")]
pub mod speedscope;
#[cfg(feature = "snapshots")]
pub mod torch_compile_log;
#[cfg(feature = "snapshots")]
pub mod torch_snapshot;
#[cfg(feature = "xplane")]
pub mod xspace;

use std::sync::Arc;

pub use detect::Detected;
pub use error::FormatError;
pub use format::Format;
use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};

/// Reads a whole uncompressed file of a known format into `sink`.
///
/// Never panics and never stops at the first bad entry: readable entries are emitted, others are
/// counted as diagnostics. Returns an error if the whole file is unreadable, or if the read was
/// cancelled.
pub fn read<S: EventSink>(
    format: Format,
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    match format {
        #[cfg(feature = "xplane")]
        Format::XSpace => xspace::read(bytes, context, sink),
        #[cfg(feature = "xplane")]
        Format::Hlo => hlo::read(bytes, context, sink),
        #[cfg(feature = "chrome")]
        Format::ChromeJson => chrome_json::read(bytes, context, sink),
        #[cfg(feature = "perfetto")]
        Format::Perfetto => perfetto::read(bytes, context, sink),
        #[cfg(feature = "rocprof")]
        Format::RocprofJson => rocprof::read(bytes, context, sink),
        #[cfg(feature = "profiles")]
        Format::Pprof => pprof::read(bytes, context, sink),
        #[cfg(feature = "profiles")]
        Format::Pstats => cprofile::read(bytes, context, sink),
        #[cfg(feature = "profiles")]
        Format::LightningReport => lightning::read(bytes, context, sink),
        #[cfg(feature = "rustc")]
        Format::Measureme => measureme::read(bytes, context, sink),
        #[cfg(feature = "samples")]
        Format::Speedscope => speedscope::read(bytes, context, sink),
        #[cfg(feature = "samples")]
        Format::ExecutionTraceJson => execution_trace::read(bytes, context, sink),
        #[cfg(feature = "samples")]
        Format::ChakraTrace => chakra::read(bytes, context, sink),
        #[cfg(feature = "samples")]
        Format::FirefoxProfile => firefox::read(bytes, context, sink),
        #[cfg(feature = "samples")]
        Format::CollapsedStacks => collapsed::read(bytes, context, sink),
        #[cfg(feature = "samples")]
        Format::PerfScript => perf_script::read(bytes, context, sink),
        #[cfg(feature = "nsight")]
        Format::NsightSystems => nsight::read(bytes, context, sink),
        #[cfg(feature = "snapshots")]
        Format::NcclFlightRecorder => nccl_flight::read(bytes, context, sink),
        #[cfg(feature = "snapshots")]
        Format::TorchSnapshot => torch_snapshot::read(bytes, context, sink),
        #[cfg(feature = "snapshots")]
        Format::TorchCompileLog => torch_compile_log::read(bytes, context, sink),
        other => Err(FormatError::NotReadable { format: other }),
    }
}

/// Creates the argument source of a file that has already been read (an import from the cache):
/// tokens from [`read`] for the same bytes are valid in it.
pub fn arg_source(
    format: Format,
    bytes: &SharedBytes,
    context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    match format {
        #[cfg(feature = "xplane")]
        Format::XSpace => xspace::arg_source(bytes, context),
        #[cfg(feature = "xplane")]
        Format::Hlo => Ok(hlo::arg_source(bytes)),
        #[cfg(feature = "chrome")]
        Format::ChromeJson => chrome_json::arg_source(bytes, context),
        #[cfg(feature = "perfetto")]
        Format::Perfetto => perfetto::arg_source(bytes, context),
        #[cfg(feature = "rocprof")]
        Format::RocprofJson => Ok(rocprof::arg_source(bytes)),
        #[cfg(feature = "profiles")]
        Format::Pprof | Format::Pstats | Format::LightningReport => Ok(cprofile::arg_source()),
        #[cfg(feature = "rustc")]
        Format::Measureme => Ok(measureme::arg_source(bytes)),
        #[cfg(feature = "samples")]
        Format::ChakraTrace => Ok(chakra::arg_source(bytes)),
        #[cfg(feature = "samples")]
        Format::ExecutionTraceJson => Ok(execution_trace::arg_source(bytes)),
        #[cfg(feature = "samples")]
        Format::FirefoxProfile => Ok(firefox::arg_source(bytes)),
        #[cfg(feature = "samples")]
        Format::Speedscope | Format::CollapsedStacks | Format::PerfScript => {
            Ok(cprofile::arg_source())
        }
        #[cfg(feature = "nsight")]
        Format::NsightSystems => Ok(nsight::arg_source(bytes)),
        #[cfg(feature = "snapshots")]
        Format::NcclFlightRecorder => Ok(nccl_flight::arg_source(bytes)),
        #[cfg(feature = "snapshots")]
        Format::TorchSnapshot => Ok(torch_snapshot::arg_source(bytes)),
        #[cfg(feature = "snapshots")]
        Format::TorchCompileLog => Ok(torch_compile_log::arg_source(bytes)),
        other => Err(FormatError::NotReadable { format: other }),
    }
}
