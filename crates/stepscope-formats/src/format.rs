//! The formats of traces.

use stepscope_model::vocabulary::torch_compile;

/// A trace format that stepscope recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    /// `XSpace` protobuf, `*.xplane.pb`.
    XSpace,
    /// Chrome JSON: an object with `traceEvents`, or a bare array; also PyTorch's and JAX's.
    ChromeJson,
    /// Perfetto protobuf, `*.pftrace`, `*.perfetto-trace`.
    Perfetto,
    /// rocprofv3's native JSON.
    RocprofJson,
    /// PyTorch execution trace (JSON).
    ExecutionTraceJson,
    /// Chakra execution trace (protobuf).
    ChakraTrace,
    /// rustc's self-profile (`*.mm_profdata`).
    Measureme,
    /// pprof's samples with stacks (protobuf): of Go, of JAX's device memory, of other programs.
    Pprof,
    /// speedscope's own JSON, as py-spy writes it (`*.speedscope.json`).
    Speedscope,
    /// Collapsed stacks (text): `main;load 12`.
    CollapsedStacks,
    /// A profile of the Firefox Profiler in its processed format, as samply writes it (JSON).
    FirefoxProfile,
    /// Text that `perf script` prints.
    PerfScript,
    /// Python's `cProfile` statistics (`*.prof`).
    Pstats,
    /// Lightning's profiler report (text).
    LightningReport,
    /// A compiled program: a serialized `xla.HloProto` or `xla.HloModuleProto`, `*.hlo_proto.pb`, `*.hlo.pb`.
    Hlo,
    /// A snapshot of PyTorch's caching allocator (pickle).
    TorchSnapshot,
    /// A dump of PyTorch's flight recorder for collectives (pickle or JSON).
    NcclFlightRecorder,
    /// A structured trace log of `torch.compile` (`TORCH_TRACE`, text with JSON objects).
    TorchCompileLog,
    /// Neuron's native system profile (JSON).
    NeuronSystemProfile,
    /// The SQLite export of NVIDIA Nsight Systems.
    NsightSystems,
}

impl Format {
    /// Returns the stable name for use in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::XSpace => "xspace",
            Self::ChromeJson => "chrome-json",
            Self::Perfetto => "perfetto",
            Self::RocprofJson => "rocprofv3-json",
            Self::ExecutionTraceJson => "execution-trace-json",
            Self::ChakraTrace => "chakra-trace",
            Self::Measureme => "measureme",
            Self::Pprof => "pprof",
            Self::Speedscope => "speedscope",
            Self::CollapsedStacks => "collapsed-stacks",
            Self::FirefoxProfile => "firefox-profile",
            Self::PerfScript => "perf-script",
            Self::Pstats => "pstats",
            Self::LightningReport => "lightning-report",
            Self::Hlo => "hlo",
            Self::TorchSnapshot => "torch-memory-snapshot",
            Self::NcclFlightRecorder => "nccl-flight-recorder",
            Self::TorchCompileLog => torch_compile::FORMAT,
            Self::NeuronSystemProfile => "neuron-system-profile",
            Self::NsightSystems => "nsight-systems",
        }
    }

    /// Returns the display name.
    pub const fn title(self) -> &'static str {
        match self {
            Self::XSpace => "XSpace",
            Self::ChromeJson => "Chrome JSON",
            Self::Perfetto => "Perfetto trace",
            Self::RocprofJson => "rocprofv3 JSON",
            Self::ExecutionTraceJson => "PyTorch execution trace",
            Self::ChakraTrace => "Chakra execution trace",
            Self::Measureme => "rustc self-profile",
            Self::Pprof => "pprof profile",
            Self::Speedscope => "speedscope profile",
            Self::CollapsedStacks => "collapsed stacks",
            Self::FirefoxProfile => "Firefox profile",
            Self::PerfScript => "perf script output",
            Self::Pstats => "cProfile statistics",
            Self::LightningReport => "Lightning profiler report",
            Self::Hlo => "HLO module",
            Self::TorchSnapshot => "PyTorch memory snapshot",
            Self::NcclFlightRecorder => "NCCL flight recorder dump",
            Self::TorchCompileLog => "torch.compile log",
            Self::NeuronSystemProfile => "Neuron system profile",
            Self::NsightSystems => "Nsight Systems export",
        }
    }
}
