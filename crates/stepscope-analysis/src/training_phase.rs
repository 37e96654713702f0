//! Phases of a training step: which slices of host threads begin one, and which operations of compiled programs belong
//! to one.
//!
//! The rules read the names that frameworks and programs write. How far a phase reaches from the slice that begins it
//! is up to the caller: a comparison takes the outermost such slice around an operation, the critical path the
//! innermost, and the memory report joins slices to passes.

use stepscope_model::SliceKind;
use stepscope_model::vocabulary::kineto::{
    AUTOGRAD_ENGINE, EVALUATE_FUNCTION, OPTIMIZER_CALL, OPTIMIZER_STEP_CALL, is_autograd_node,
};
use stepscope_model::vocabulary::xla::{JAX_BACKWARD, JAX_TRANSPOSE};

use crate::slice_class::is_input;

/// Phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrainingPhase {
    /// The forward pass. No name identifies it: each caller decides which of the remaining time counts as forward.
    Forward,
    /// The backward pass.
    Backward,
    /// Update of the parameters, and other calls of the optimizer.
    Optimizer,
    /// Loading of data.
    Input,
}

impl TrainingPhase {
    /// All phases.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Optimizer, Self::Input];

    /// Returns the word used in reports and options.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Input => "input",
        }
    }

    /// Returns the phase of a word.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// Returns the phase that a slice of a host thread begins, if it begins one: labels of the program count as well as
    /// slices of frameworks.
    ///
    /// Slices inside of it need not belong to the same phase: an optimizer's step that is called with a closure, as
    /// Lightning calls it, encloses the forward and the backward pass.
    pub(crate) fn from_host_slice(name: &str, kind: SliceKind) -> Option<Self> {
        if name.starts_with(OPTIMIZER_CALL) || name.contains("optimizer_step") {
            Some(Self::Optimizer)
        } else if name.starts_with(AUTOGRAD_ENGINE)
            || name == "backward"
            || is_autograd_node(name)
            // A name of a host slice is any text: a transpose alone may be a call of the program.
            || name.contains(JAX_BACKWARD)
        {
            Some(Self::Backward)
        } else if is_input(kind, name) {
            Some(Self::Input)
        } else {
            None
        }
    }

    /// Returns the phase of a slice by which torch itself records when the phase works: the evaluation of a node of the
    /// autograd graph, or an update of the parameters.
    ///
    /// These are some of the slices of [`from_host_slice`](Self::from_host_slice), for callers that need the begin and
    /// the end of the work. Labels of programs are missing because they may enclose other work, and
    /// `Optimizer.zero_grad` because it frees gradients and updates nothing.
    pub(crate) fn from_torch_slice(name: &str) -> Option<Self> {
        if name.starts_with(EVALUATE_FUNCTION) {
            Some(Self::Backward)
        } else if name.starts_with(OPTIMIZER_STEP_CALL) {
            Some(Self::Optimizer)
        } else {
            None
        }
    }

    /// Returns the phase of an operation of a compiled program by its path, if the path shows one:
    /// `jit(f)/transpose(jvp(g))/mul`.
    pub(crate) fn from_op_path(path: &str) -> Option<Self> {
        const OPTIMIZERS: [&str; 3] = ["optax", "apply_updates", "optimizer"];
        if path.contains(JAX_TRANSPOSE) {
            Some(Self::Backward)
        } else if OPTIMIZERS.iter().any(|word| path.contains(word)) {
            Some(Self::Optimizer)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_words() {
        for phase in TrainingPhase::ALL {
            assert_eq!(TrainingPhase::from_name(phase.as_str()), Some(phase));
        }
        assert_eq!(TrainingPhase::from_name("other"), None);
    }

    #[test]
    fn slices_of_frameworks_and_labels_of_programs_begin_phases() {
        for (name, expected) in [
            (
                "autograd::engine::evaluate_function: MulBackward0",
                Some(TrainingPhase::Backward),
            ),
            ("AddmmBackward0", Some(TrainingPhase::Backward)),
            ("backward", Some(TrainingPhase::Backward)),
            (
                "jit(f)/transpose(jvp(g))/mul",
                Some(TrainingPhase::Backward),
            ),
            ("Optimizer.step#SGD.step", Some(TrainingPhase::Optimizer)),
            (
                "Optimizer.zero_grad#SGD.zero_grad",
                Some(TrainingPhase::Optimizer),
            ),
            ("optimizer_step", Some(TrainingPhase::Optimizer)),
            ("aten::mm", None),
            ("aten::threshold_backward", None),
            ("forward", None),
            ("x.transpose(0, 1)", None),
        ] {
            let found = TrainingPhase::from_host_slice(name, SliceKind::Other);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn slices_that_fetch_input_begin_the_input_phase() {
        let begun = |kind| TrainingPhase::from_host_slice("load_batch", kind);
        assert_eq!(begun(SliceKind::UserLabel), Some(TrainingPhase::Input));
        assert_eq!(begun(SliceKind::Other), None);
    }

    #[test]
    fn only_evaluations_and_updates_are_torch_slices_of_a_phase() {
        for (name, expected) in [
            (
                "autograd::engine::evaluate_function: MulBackward0",
                Some(TrainingPhase::Backward),
            ),
            ("Optimizer.step#SGD.step", Some(TrainingPhase::Optimizer)),
            ("Optimizer.zero_grad#SGD.zero_grad", None),
            ("MulBackward0", None),
            ("backward", None),
            ("optimizer_step", None),
        ] {
            assert_eq!(TrainingPhase::from_torch_slice(name), expected, "{name}");
        }
    }

    #[test]
    fn paths_of_compiled_operations_show_the_backward_pass_and_the_optimizer() {
        for (path, expected) in [
            (
                "jit(f)/transpose(jvp(g))/mul",
                Some(TrainingPhase::Backward),
            ),
            (
                "jit(f)/apply_updates/transpose",
                Some(TrainingPhase::Optimizer),
            ),
            ("jit(f)/jvp(g)/mul", None),
        ] {
            assert_eq!(TrainingPhase::from_op_path(path), expected, "{path}");
        }
    }
}
