//! Causes that a finding can name, and its confidence.

/// A cause that slows a run down or puts it at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingCause {
    /// The device waits for batches.
    InputBound,
    /// One rank is later than the others, which wait for it.
    Straggler,
    /// Work is shared unevenly between ranks, and the late rank changes.
    LoadImbalance,
    /// Transfers between ranks that computation does not hide.
    ExposedCommunication,
    /// Copies that computation does not hide.
    ExposedCopy,
    /// Kernels are shorter than their launches.
    LaunchBound,
    /// One label of the program consists of very many tiny kernels.
    SmallKernels,
    /// The host keeps the launching thread busy or waiting.
    HostBound,
    /// The host waits for results of the device and cannot run ahead.
    Synchronization,
    /// An operator runs on the CPU in the middle of a device's program.
    MisplacedOp,
    /// Steps compile.
    Compilation,
    /// Memory is allocated from the driver and freed within steps.
    AllocatorThrash,
    /// Enough memory is free, but no block is large enough.
    Fragmentation,
    /// Live memory grows from step to step.
    MemoryGrowth,
    /// Nearly all memory of a device is reserved.
    NearMemoryLimit,
    /// Single steps are long.
    OutlierSteps,
    /// Only the first steps are slow.
    WarmUpOnly,
    /// Devices of one job take turns.
    PipelineBubble,
    /// The device waits for an unknown reason.
    IdleUnknown,
    /// The clocks of the ranks disagree.
    ClockSkew,
    /// The profiler itself takes time.
    ProfilerOverhead,
    /// Matrix products run in a precision for which the device has no fast units.
    LowPrecisionOpportunity,
    /// Kernels move memory that a fused kernel would not move.
    MemoryBoundKernels,
    /// The device computes nearly all the time.
    DeviceBound,
}

impl FindingCause {
    /// Returns the stable identifier that reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InputBound => "input_bound",
            Self::Straggler => "straggler",
            Self::LoadImbalance => "load_imbalance",
            Self::ExposedCommunication => "exposed_communication",
            Self::ExposedCopy => "exposed_copy",
            Self::LaunchBound => "launch_bound",
            Self::SmallKernels => "small_kernels",
            Self::HostBound => "host_bound",
            Self::Synchronization => "synchronization",
            Self::MisplacedOp => "misplaced_op",
            Self::Compilation => "compilation",
            Self::AllocatorThrash => "allocator_thrash",
            Self::Fragmentation => "fragmentation",
            Self::MemoryGrowth => "memory_growth",
            Self::NearMemoryLimit => "near_memory_limit",
            Self::OutlierSteps => "outlier_steps",
            Self::WarmUpOnly => "warm_up_only",
            Self::PipelineBubble => "pipeline_bubble",
            Self::IdleUnknown => "idle_unknown",
            Self::ClockSkew => "clock_skew",
            Self::ProfilerOverhead => "profiler_overhead",
            Self::LowPrecisionOpportunity => "low_precision_opportunity",
            Self::MemoryBoundKernels => "memory_bound_kernels",
            Self::DeviceBound => "device_bound",
        }
    }

    /// Returns whether the cause threatens the run instead of costing time.
    pub const fn is_risk(self) -> bool {
        matches!(self, Self::MemoryGrowth | Self::NearMemoryLimit)
    }

    /// Returns the page of the viewer that shows details.
    pub const fn page(self) -> &'static str {
        match self {
            Self::InputBound => "input",
            Self::Straggler
            | Self::LoadImbalance
            | Self::ExposedCommunication
            | Self::ClockSkew => "ranks",
            Self::ExposedCopy
            | Self::LaunchBound
            | Self::SmallKernels
            | Self::Synchronization
            | Self::PipelineBubble
            | Self::IdleUnknown
            | Self::ProfilerOverhead => "kernels",
            Self::HostBound
            | Self::MisplacedOp
            | Self::LowPrecisionOpportunity
            | Self::MemoryBoundKernels
            | Self::DeviceBound => "ops",
            Self::Compilation | Self::OutlierSteps | Self::WarmUpOnly => "steps",
            Self::AllocatorThrash
            | Self::Fragmentation
            | Self::MemoryGrowth
            | Self::NearMemoryLimit => "memory",
        }
    }
}

/// Confidence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// A rule of thumb: the trace fits other causes too.
    Low,
    /// The time is measured, the cause is likely.
    Medium,
    /// The time is measured, and the trace excludes the alternatives.
    High,
}

impl Confidence {
    /// Returns the word that reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}
