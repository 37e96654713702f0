//! The framework and the devices of a run, as far as advice depends on them.

use stepscope_model::NameId;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_store::Trace;

use stepscope_analysis::launch::launches_graph;
use stepscope_analysis::producer::is_of;

/// The framework of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    PyTorch,
    Jax,
    TorchXla,
    TensorFlow,
    Neuron,
    Other,
}

/// The properties of a run on which advice depends.
pub(super) struct Platform {
    pub(super) framework: Framework,
    /// The run uses AMD's runtime.
    pub(super) is_rocm: bool,
    /// The program marked its steps.
    pub(super) has_step_marks: bool,
    /// Captured graphs launch the kernels.
    pub(super) replays_graphs: bool,
}

/// Returns whether a name is a call of AMD's runtime: `hipLaunchKernel` but not `hippo`.
fn is_hip_call(name: &str) -> bool {
    let call = name
        .strip_prefix("hip")
        .and_then(|call| call.chars().next());
    call.is_some_and(|letter| letter.is_ascii_uppercase())
}

impl Platform {
    pub(super) fn new(trace: &Trace) -> Self {
        let is = |kind| is_of(trace, kind);
        let framework = if is(Producer::Neuron) {
            Framework::Neuron
        } else if is(Producer::Jax) {
            Framework::Jax
        } else if is(Producer::TensorFlow) {
            Framework::TensorFlow
        } else if is(Producer::Xla) {
            Framework::TorchXla
        } else if is(Producer::PyTorch) {
            Framework::PyTorch
        } else {
            Framework::Other
        };
        let names = || {
            (0..trace.name_count())
                .map(|name| trace.name(NameId(u32::try_from(name).unwrap_or(u32::MAX))))
        };
        Self {
            framework,
            is_rocm: names().any(is_hip_call),
            has_step_marks: !trace.step_marks().is_empty(),
            replays_graphs: names().any(launches_graph),
        }
    }

    /// Returns whether a compiler makes one program of a step.
    pub(super) const fn is_compiled(&self) -> bool {
        !matches!(self.framework, Framework::PyTorch | Framework::Other)
    }

    /// Returns the vendor's name for captured launches.
    pub(super) const fn graphs(&self) -> &'static str {
        if self.is_rocm {
            "HIP graphs"
        } else {
            "CUDA graphs"
        }
    }

    /// Returns the environment variable that configures torch's caching allocator.
    pub(super) const fn allocator_variable(&self) -> &'static str {
        if self.is_rocm {
            "PYTORCH_HIP_ALLOC_CONF"
        } else {
            "PYTORCH_CUDA_ALLOC_CONF"
        }
    }
}
