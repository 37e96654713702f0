//! Classes of operations, for colours.

use stepscope_formats::hlo::Instruction;
use stepscope_model::vocabulary::xla::{is_collective, is_transfer};

/// What an operation does, as far as its colour says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeClass {
    /// An argument or a constant.
    Input,
    /// A matrix product, a convolution, a Fourier transform or a solver.
    Matrix,
    /// Moves or rearranges data.
    Movement,
    /// A reduction, a gather, a scatter or a sort.
    Reduction,
    /// Talks to other devices or to the host.
    Communication,
    /// Runs other computations: loops, branches, calls.
    Control,
    /// A fusion.
    Fusion,
    /// Computes each element alone.
    Elementwise,
}

impl NodeClass {
    /// Returns the class of an instruction; everything unknown computes each element alone.
    pub fn new(instruction: &Instruction) -> Self {
        match &*instruction.opcode {
            "parameter" | "constant" | "iota" => Self::Input,
            "dot" | "scaled-dot" | "ragged-dot" | "convolution" | "fft" | "cholesky"
            | "triangular-solve" => Self::Matrix,
            "copy"
            | "copy-start"
            | "copy-done"
            | "transpose"
            | "reshape"
            | "bitcast"
            | "concatenate"
            | "slice"
            | "dynamic-slice"
            | "dynamic-update-slice"
            | "pad"
            | "reverse"
            | "broadcast"
            | "tuple"
            | "get-tuple-element" => Self::Movement,
            "reduce" | "reduce-window" | "select-and-scatter" | "scatter" | "gather" | "sort"
            | "top-k" | "scan" => Self::Reduction,
            "infeed" | "outfeed" => Self::Communication,
            opcode if is_collective(opcode) || is_transfer(opcode) => Self::Communication,
            "while" | "conditional" | "call" | "custom-call" | "async-start" | "async-update"
            | "async-done" => Self::Control,
            "fusion" => Self::Fusion,
            _ => Self::Elementwise,
        }
    }

    /// Returns the name for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Matrix => "matrix",
            Self::Movement => "movement",
            Self::Reduction => "reduction",
            Self::Communication => "communication",
            Self::Control => "control",
            Self::Fusion => "fusion",
            Self::Elementwise => "elementwise",
        }
    }

    /// Returns a light colour that dark text is readable on.
    pub const fn fill(self) -> &'static str {
        match self {
            Self::Input => "#ffd9a0",
            Self::Matrix => "#b3cdf5",
            Self::Movement => "#c2e5c0",
            Self::Reduction => "#dcc6f0",
            Self::Communication => "#e3cdb8",
            Self::Control => "#b5ddd6",
            Self::Fusion => "#dddddd",
            Self::Elementwise => "#f7f7f7",
        }
    }
}
