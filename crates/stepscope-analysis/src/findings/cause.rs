//! The causes that a finding can name, and how sure it is.

/// What makes a run slower than it could be, or puts it at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The device waits for batches.
    InputBound,
    /// One rank is later than the others, and they wait for it.
    Straggler,
    /// Work is shared unevenly between ranks, and the late rank changes.
    LoadImbalance,
    /// Transfers between ranks that computation does not hide.
    ExposedCommunication,
    /// Copies that computation does not hide.
    ExposedCopy,
    /// Kernels are shorter than the time that it takes to launch them.
    LaunchBound,
    /// One part of the program consists of very many tiny kernels.
    SmallKernels,
    /// The host keeps the launching thread busy or waiting.
    HostBound,
    /// The host waits for results of the device and cannot run ahead.
    Synchronization,
    /// An operator runs on the CPU in the middle of a device's program.
    MisplacedOp,
    /// Steps compile.
    Compilation,
    /// Memory is taken from the driver and given back within steps.
    AllocatorThrash,
    /// Enough memory is free, but no block is large enough.
    Fragmentation,
    /// More memory is held from step to step.
    MemoryGrowth,
    /// Nearly all of a device's memory is held.
    NearMemoryLimit,
    /// Single steps are long.
    OutlierSteps,
    /// Only the first steps are slow.
    WarmUpOnly,
    /// Devices of one job take turns.
    PipelineBubble,
    /// The device waits, and the trace does not tell for what.
    IdleUnknown,
    /// The clocks of the ranks disagree.
    ClockSkew,
    /// The profiler itself takes the time.
    ProfilerOverhead,
    /// Matrix products run in a precision for which the device has no fast units.
    LowPrecisionOpportunity,
    /// Kernels move memory that a fused kernel would not move.
    MemoryBoundKernels,
    /// The device computes nearly all the time.
    DeviceBound,
}

impl Cause {
    /// The word in reports; stable.
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

    /// Whether it threatens the run instead of costing time.
    pub const fn is_risk(self) -> bool {
        matches!(self, Self::MemoryGrowth | Self::NearMemoryLimit)
    }

    /// Page of the viewer that shows more.
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

/// How sure a finding is.
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
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}
