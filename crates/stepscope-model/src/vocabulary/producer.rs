//! Programs that record files.

use crate::{ArgValue, EventSink};

/// Framework, language or tool that recorded a file, in display order.
///
/// Readers emit it as the facts `kind` (its name) and `kind.NAME` (true).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Producer {
    /// JAX.
    Jax,
    /// torch's profiler.
    PyTorch,
    /// An XLA compiler, used by any framework.
    Xla,
    /// AWS Neuron.
    Neuron,
    /// stepscope's collector of CUDA devices.
    Cuda,
    /// stepscope's collector of AMD devices.
    Rocm,
    /// TensorFlow.
    TensorFlow,
    /// Lightning.
    Lightning,
    /// A Rust program.
    Rust,
    /// A Python program.
    Python,
    /// Nsight Systems.
    Nsight,
    /// AMD's rocprofv3.
    Rocprof,
    /// Unknown writer of Chrome JSON.
    Chrome,
    /// Unknown writer of Perfetto's format.
    Perfetto,
}

impl Producer {
    /// All producers, in the order in which a run shows them.
    pub const ALL: &'static [Self] = &[
        Self::Jax,
        Self::PyTorch,
        Self::Xla,
        Self::Neuron,
        Self::Cuda,
        Self::Rocm,
        Self::TensorFlow,
        Self::Lightning,
        Self::Rust,
        Self::Python,
        Self::Nsight,
        Self::Rocprof,
        Self::Chrome,
        Self::Perfetto,
    ];

    /// Returns the name on the badge of a run.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jax => "JAX",
            Self::PyTorch => "PyTorch",
            Self::Xla => "XLA",
            Self::Neuron => "NEURON",
            Self::Cuda => "CUDA",
            Self::Rocm => "ROCm",
            Self::TensorFlow => "TensorFlow",
            Self::Lightning => "Lightning",
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::Nsight => "Nsight",
            Self::Rocprof => "rocprofv3",
            Self::Chrome => "Chrome",
            Self::Perfetto => "Perfetto",
        }
    }

    /// Returns the producer of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|producer| producer.name() == name)
    }

    /// Emits the facts that this producer took part in the recording of the file.
    pub fn emit<S: EventSink>(self, sink: &mut S) {
        sink.fact(&format!("kind.{}", self.name()), ArgValue::Bool(true));
    }

    /// Returns the producer of a fact that [`Producer::emit`] wrote.
    pub fn from_fact(key: &str) -> Option<Self> {
        Self::from_name(key.strip_prefix("kind.")?)
    }

    /// Returns whether only the file's format is known, and its writer is unknown.
    pub const fn is_format(self) -> bool {
        matches!(self, Self::Chrome | Self::Perfetto)
    }
}
