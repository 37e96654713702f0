//! Classification of slices as operations, by name, category and track.

use crate::hlo_text::name_and_opcode;
use crate::slice_class::{called_module, is_label, is_operator};
use stepscope_model::vocabulary::kineto::{Category, Executor, is_python_function};
use stepscope_model::vocabulary::lightning;
use stepscope_model::vocabulary::xla::{self, DeviceLine};
use stepscope_model::{SliceKind, TrackKind};
use stepscope_store::Track;

use super::OpGrouping;

/// Verdict on a name on a track for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No operation of the class.
    No,
    /// An operation, whatever its arguments.
    Yes,
    /// An operation, unless a compiler runs it: its passes have names like labels.
    OutsideCompiler,
    /// An operation if its arguments contain an HLO operation.
    IfHlo,
    /// An operation if its whole name, in the arguments, is that of an operation of TensorFlow, whose type is
    /// shown; otherwise see [`Verdict::IfHlo`].
    IfLong,
}

/// Returns whether a category is that of program labels in torch's profiler.
pub(super) fn is_annotation(category: &str) -> bool {
    Category::from_name(category) == Some(Category::Annotation)
}

/// Returns whether a category is that of device work in torch's profiler.
fn is_kineto_work(category: &str) -> bool {
    Executor::of_category(category) == Executor::Device
}

/// Splits a slice of TensorFlow's executor, named `dense/MatMul:MatMul`, into operation and type; a stage of
/// `tf.data` is its own name, of type `Dataset`.
pub(super) fn tensorflow<'a>(name: &'a str, category: &str) -> Option<(&'a str, &'a str)> {
    if !category.is_empty() {
        return None;
    }
    if name.starts_with("Iterator::") {
        return Some((name, "Dataset"));
    }
    let (op, kind) = name.split_once(':')?;
    let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let typed = kind.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
        && kind.chars().all(word);
    let named = op
        .starts_with(|first: char| first.is_ascii_alphanumeric() || first == '.' || first == '_')
        && op
            .chars()
            .all(|letter| word(letter) || "./>-".contains(letter));
    (typed && named).then_some((op, kind))
}

/// Returns whether a name may be the displayed type of an operation of TensorFlow (`MatMul`, `_Recv`), or the
/// last component of a stage of `tf.data`.
fn may_be_shown_type(name: &str) -> bool {
    name.starts_with("Iterator::")
        || name.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Returns whether this is the line of a device that runs HLO operations one after the other.
pub(super) fn is_xla_ops(track: &Track) -> bool {
    DeviceLine::from_name(&track.name) == DeviceLine::Ops
}

/// Returns whether this is the line of a device that shows the running program.
pub(super) fn is_xla_modules(track: &Track) -> bool {
    DeviceLine::from_name(&track.name) == DeviceLine::Modules
}

/// Returns whether an instruction starts or awaits an asynchronous operation: `copy-start.3`, `async-done`.
pub(super) fn is_async_end(instruction: &str) -> bool {
    let (name, opcode) = name_and_opcode(instruction);
    let base = name.split('.').next().unwrap_or(name);
    let ends = |word: &str| word.ends_with("-start") || word.ends_with("-done");
    ends(opcode) || ends(base)
}

/// Returns whether an instruction runs nested ones: a loop, a branch, a call.
pub(super) fn is_container(instruction: &str) -> bool {
    let (name, opcode) = name_and_opcode(instruction);
    let base = name.split('.').next().unwrap_or(name);
    xla::is_container(opcode) || xla::is_container(base)
}

/// Returns whether this is a track of a Neuron device or of its runtime.
pub(super) fn is_neuron(track: &Track) -> bool {
    let neuron = |text: &str| text.contains("Neuron") || text.contains("neuron");
    neuron(&track.key) || neuron(&track.name)
}

/// Returns whether the track can contain operations of the class at all.
pub(super) fn can_hold(by: OpGrouping, track: &Track) -> bool {
    if track.derived || track.slices == 0 {
        return false;
    }
    match track.kind {
        TrackKind::Thread => true,
        TrackKind::DeviceQueue => by.is_compiled() && !is_xla_modules(track),
        _ => false,
    }
}

/// Classifies a name, on a track that [`can_hold`] the class.
pub(super) fn verdict(
    by: OpGrouping,
    track: &Track,
    name: &str,
    category: &str,
    kind: SliceKind,
) -> Verdict {
    let compiled = || {
        if by.on_neuron() && !is_neuron(track) {
            return Verdict::No;
        }
        match track.kind {
            TrackKind::DeviceQueue => match DeviceLine::from_name(&track.name) {
                DeviceLine::Ops => Verdict::Yes,
                // Lines that repeat other lines, or run concurrently with them.
                DeviceLine::AsyncOps | DeviceLine::Summary => Verdict::No,
                // kineto records no HLO operation: skip the arguments of its kernels.
                _ if is_kineto_work(category) => Verdict::No,
                _ => Verdict::IfHlo,
            },
            _ if may_be_instruction(name, category) => Verdict::IfHlo,
            _ => Verdict::No,
        }
    };
    let yes = |is: bool| if is { Verdict::Yes } else { Verdict::No };
    match by {
        // In files of 2021, torch's own labels are operators, too.
        OpGrouping::Framework if is_operator(category) => yes(kind != SliceKind::UserLabel),
        OpGrouping::Framework
            if track.kind == TrackKind::Thread
                && category.is_empty()
                && may_be_shown_type(name) =>
        {
            Verdict::IfLong
        }
        OpGrouping::Framework
            if track.kind == TrackKind::Thread && tensorflow(name, category).is_some() =>
        {
            Verdict::Yes
        }
        OpGrouping::Framework
        | OpGrouping::Hlo
        | OpGrouping::NeuronFramework
        | OpGrouping::NeuronHlo => compiled(),
        OpGrouping::Module => match called_module(name) {
            Some(_) => Verdict::Yes,
            None => compiled(),
        },
        OpGrouping::Action => yes(action(name).is_some()),
        OpGrouping::Label if is_label(name, category, kind) => {
            if category.is_empty() {
                Verdict::OutsideCompiler
            } else {
                Verdict::Yes
            }
        }
        OpGrouping::Label => Verdict::No,
        OpGrouping::Python => yes(is_python(name, category)),
    }
}

/// Returns whether this may be an instruction that XLA's own threads run, named after it: no `::`, no blanks, no
/// `$`.
fn may_be_instruction(name: &str, category: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-%".contains(letter);
    category.is_empty() && !name.is_empty() && name.chars().all(plain)
}

/// Returns whether this is a Python function of torch's or JAX's tracer, or of ours.
pub(super) fn is_python(name: &str, category: &str) -> bool {
    is_python_function(category) || category.is_empty() && name.starts_with('$')
}

/// Returns whether a module's name is its whole path in the model.
pub(super) fn is_path(name: &str) -> bool {
    name.starts_with(lightning::MODULE)
}

/// Returns the action of Lightning's trainer that a slice is.
pub(super) fn action(name: &str) -> Option<&str> {
    const OWNERS: [&str; 6] = [
        "[Strategy]",
        "[LightningModule]",
        "[LightningDataModule]",
        "[Callback]",
        "[_EvaluationLoop]",
        "[_TrainingEpochLoop]",
    ];
    const PLAIN: [&str; 6] = [
        "run_training_epoch",
        "run_training_batch",
        "get_train_batch",
        "optimizer_step",
        "model_forward",
        "model_backward",
    ];
    if let Some(action) = name.strip_prefix(lightning::ACTION) {
        return Some(action);
    }
    (OWNERS.iter().any(|owner| name.starts_with(owner)) || PLAIN.contains(&name)).then_some(name)
}

/// Returns whether only Lightning's trainer uses this name for an action.
pub(super) fn is_lightnings(action: &str) -> bool {
    action.starts_with('[') || ["run_training_epoch", "run_training_batch"].contains(&action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_actions() {
        assert_eq!(
            action("[pl][profile][Strategy]Single.step"),
            Some("[Strategy]Single.step")
        );
        assert_eq!(action("run_training_epoch"), Some("run_training_epoch"));
        assert_eq!(action("data_prep"), None);
    }

    #[test]
    fn operations_of_tensorflow_have_a_type() {
        assert_eq!(
            tensorflow("dense/MatMul:MatMul", ""),
            Some(("dense/MatMul", "MatMul"))
        );
        assert_eq!(
            tensorflow("Iterator::Prefetch", ""),
            Some(("Iterator::Prefetch", "Dataset"))
        );
        for name in [
            "tpu::System::Execute",
            "$a.py:12 f",
            "step: 3",
            "ThunkExecutor::Execute",
        ] {
            assert_eq!(tensorflow(name, ""), None, "{name}");
        }
    }

    #[test]
    fn shown_operation_type_is_one_word() {
        for (name, expected) in [
            ("MatMul", true),
            ("_HostRecv", true),
            ("Iterator::Prefetch", true),
            ("wrapped_tanh", false),
            ("ExecutorState::Process", false),
            ("dense/MatMul:MatMul", false),
        ] {
            assert_eq!(may_be_shown_type(name), expected, "{name}");
        }
    }

    #[test]
    fn async_ends_are_recognized_by_opcode_or_name() {
        for (name, expected) in [
            ("copy-done.2", true),
            (
                "%copy-start.4 = (f32[5], f32[5]) copy-start(f32[5] %x)",
                true,
            ),
            ("all-gather-done", true),
            ("fusion.2", false),
            ("copy.2", false),
        ] {
            assert_eq!(is_async_end(name), expected, "{name}");
        }
    }

    #[test]
    fn labels_are_names_that_users_write() {
        let label = |name, category, kind| is_label(name, category, kind);
        assert!(label("data_prep", "", SliceKind::Input));
        assert!(label(
            "enumerate(DataLoader)#X",
            "user_annotation",
            SliceKind::Input
        ));
        assert!(!label("PjitFunction(stage)", "", SliceKind::Host));
        assert!(!label("$builtins len", "", SliceKind::Host));
        assert!(!label("dot_general", "cpu_op", SliceKind::MatMul));
        assert!(label("ProfilerStep#3", "Operator", SliceKind::UserLabel));
    }
}
