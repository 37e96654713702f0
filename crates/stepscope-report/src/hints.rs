//! Lines of code that would record what a run lacks, each in the framework that wrote the run.
//!
//! A run of a framework without such a line, and a run whose writer is unknown, gets none: a line of
//! another framework would be wrong advice.

use stepscope_store::Trace;

use stepscope_analysis::producer::is_of;

/// What a run can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Events with times.
    Times,
    /// Work of an accelerator.
    Kernels,
    /// Allocations.
    Memory,
    /// More than one rank.
    Ranks,
    /// Collectives among ranks or devices.
    Collectives,
    /// Shapes or counts of floating-point operations.
    Flops,
    /// Operators of the framework.
    FrameworkOps,
    /// Operations of compiled programs.
    HloOps,
    /// Modules of the network.
    Modules,
    /// Calls of Python functions.
    PythonFunctions,
    /// Labels of the program.
    Labels,
    /// Actions of a Lightning trainer.
    Actions,
    /// Stages that fetch input.
    Input,
    /// Marks of steps.
    Steps,
}

const NEURON: &str = "NEURON";
const XLA: &str = "XLA";
const JAX: &str = "JAX";
const LIGHTNING: &str = "Lightning";
const TORCH: &str = "PyTorch";
const TENSORFLOW: &str = "TensorFlow";
const RUST: &str = "Rust";
const PYTHON: &str = "Python";

/// Frameworks in the order in which they are looked for: one that builds on another comes first.
const FRAMEWORKS: &[&str] = &[NEURON, XLA, JAX, LIGHTNING, TORCH, TENSORFLOW, RUST, PYTHON];

/// Returns the line that records what is lacking, in the framework that wrote the run; empty when
/// there is none.
pub fn hint(trace: &Trace, lack: Lack) -> &'static str {
    let lines = lines(lack);
    FRAMEWORKS
        .iter()
        .filter(|framework| is_of(trace, framework))
        .find_map(|framework| line_of(lines, framework))
        .unwrap_or_default()
}

/// Returns the frameworks that wrote the run, each with its line; the line of a framework that
/// builds on another stands for both.
pub(crate) fn hints(trace: &Trace, lack: Lack) -> Vec<(&'static str, &'static str)> {
    let lines = lines(lack);
    FRAMEWORKS
        .iter()
        .filter(|framework| is_of(trace, framework))
        .filter_map(|framework| Some((*framework, line_of(lines, framework)?)))
        .take(1)
        .collect()
}

fn line_of(lines: &[(&str, &'static str)], framework: &str) -> Option<&'static str> {
    let found = lines.iter().find(|(known, _)| *known == framework);
    found.map(|(_, line)| *line)
}

const TORCH_TRACE: &str =
    "with torch.profiler.profile() as prof: train_step()\nprof.export_chrome_trace(\"trace.json\")";
const XLA_TRACE: &str = "xp.start_trace(\"logs\")  # before the loop, and xp.stop_trace() after it";
const JAX_TRACE: &str =
    "jax.profiler.start_trace(\"logs\")  # before the loop, and jax.profiler.stop_trace() after it";
const TENSORFLOW_TRACE: &str = "tf.profiler.experimental.start(\"logs\")  # before the loop, and tf.profiler.experimental.stop() after it";
const RUST_TRACE: &str = "stepscope::start_trace(\"logs\")?;  // before the loop, and stepscope::stop_trace()?; after it";
const PYTHON_TRACE: &str =
    "stepscope.start_trace(\"logs\")  # before the program, and stepscope.stop_trace() after it";
const LIGHTNING_TRACE: &str =
    "Trainer(profiler=stepscope.lightning.SimpleProfiler(dirpath=\"reports\", log_dir=\"logs\"))";
const XLA_LABEL: &str = "with xp.Trace(\"forward\"):  # around a part of the program";

const TIMES: &[(&str, &str)] = &[
    (NEURON, XLA_TRACE),
    (XLA, XLA_TRACE),
    (JAX, JAX_TRACE),
    (LIGHTNING, LIGHTNING_TRACE),
    (TORCH, TORCH_TRACE),
    (TENSORFLOW, TENSORFLOW_TRACE),
    (RUST, RUST_TRACE),
    (PYTHON, PYTHON_TRACE),
];
const KERNELS: &[(&str, &str)] = &[
    (
        NEURON,
        "xp.start_trace(\"logs\")  # with NEURON_PROFILE set, on a Neuron device",
    ),
    (
        XLA,
        "xp.start_trace(\"logs\")  # with PJRT_DEVICE=CUDA, TPU or NEURON",
    ),
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # with JAX_PLATFORMS=cuda, rocm or tpu",
    ),
    (
        TORCH,
        "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
    ),
    (
        TENSORFLOW,
        "tf.profiler.experimental.start(\"logs\")  # on a machine with a GPU or TPU",
    ),
];
const MEMORY: &[(&str, &str)] = &[
    (
        XLA,
        "xp.start_trace(\"logs\")  # on a GPU or TPU, whose allocators XLA records by itself",
    ),
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # on a GPU or TPU, whose allocators XLA records by itself",
    ),
    (TORCH, "torch.profiler.profile(profile_memory=True)"),
    (
        TENSORFLOW,
        "tf.profiler.experimental.start(\"logs\")  # on a GPU or TPU",
    ),
];
const RANKS: &[(&str, &str)] = &[
    (
        NEURON,
        "xp.start_trace(\"logs\")  # in every process, into one shared folder",
    ),
    (
        XLA,
        "xp.start_trace(\"logs\")  # in every process, into one shared folder",
    ),
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # in every process, into one shared folder",
    ),
    (
        TORCH,
        "on_trace_ready=torch.profiler.tensorboard_trace_handler(\"logs\")  # in every rank, into one folder",
    ),
    (
        TENSORFLOW,
        "tf.profiler.experimental.start(\"logs\")  # in every worker, into one shared folder",
    ),
    (
        RUST,
        "stepscope::start_trace(\"logs\")?;  // in every process, into one shared folder",
    ),
];
const COLLECTIVES: &[(&str, &str)] = &[
    (XLA, "xp.start_trace(\"logs\")  # in every process"),
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # in every process of jax.distributed",
    ),
    (
        TORCH,
        "torch.profiler.profile(record_shapes=True)  # in every rank, for NCCL with TORCH_NCCL_ENABLE_TIMING=1",
    ),
];
const FLOPS: &[(&str, &str)] = &[
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # on a TPU, where XLA counts them by itself",
    ),
    (TORCH, "torch.profiler.profile(record_shapes=True)"),
];
const FRAMEWORK_OPS: &[(&str, &str)] = &[
    (
        TORCH,
        "with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:",
    ),
    (TENSORFLOW, TENSORFLOW_TRACE),
];
const HLO_OPS: &[(&str, &str)] = &[
    (XLA, XLA_TRACE),
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # with host_tracer_level=2 or more on CPU",
    ),
];
const MODULES: &[(&str, &str)] = &[(
    TORCH,
    "torch.profiler.profile(with_modules=True, with_stack=True)",
)];
const PYTHON_FUNCTIONS: &[(&str, &str)] = &[
    (
        JAX,
        "jax.profiler.start_trace(\"logs\")  # with options.python_tracer_level = 1",
    ),
    (TORCH, "torch.profiler.profile(with_stack=True)"),
    (
        PYTHON,
        "stepscope.start_trace(\"logs\", options=stepscope.ProfileOptions(python_tracer_level=1))",
    ),
];
const LABELS: &[(&str, &str)] = &[
    (NEURON, XLA_LABEL),
    (XLA, XLA_LABEL),
    (
        JAX,
        "with jax.profiler.TraceAnnotation(\"forward\"):  # around a part of the program",
    ),
    (
        TORCH,
        "with torch.profiler.record_function(\"forward\"):  # around a part of the program",
    ),
    (
        TENSORFLOW,
        "with tf.profiler.experimental.Trace(\"forward\"):  # around a part of the program",
    ),
    (
        RUST,
        "let _span = stepscope::span!(\"forward\");  // at the start of a part of the program",
    ),
    (
        PYTHON,
        "with stepscope.Trace(\"forward\"):  # around a part of the program",
    ),
];
const ACTIONS: &[(&str, &str)] = &[
    (LIGHTNING, LIGHTNING_TRACE),
    (TORCH, LIGHTNING_TRACE),
    (PYTHON, LIGHTNING_TRACE),
];
const INPUT: &[(&str, &str)] = &[
    (
        NEURON,
        "with xp.Trace(\"data\"):  # around what fetches the next batch",
    ),
    (
        XLA,
        "with xp.Trace(\"data\"):  # around what fetches the next batch",
    ),
    (
        JAX,
        "with jax.profiler.TraceAnnotation(\"data\"):  # around what fetches the next batch",
    ),
    (
        TORCH,
        "with torch.profiler.record_function(\"data\"):  # around what fetches the next batch",
    ),
    (
        RUST,
        "let _span = stepscope::span!(\"data\");  // around what fetches the next batch",
    ),
    (
        PYTHON,
        "with stepscope.Trace(\"data\"):  # around what fetches the next batch",
    ),
];
const STEPS: &[(&str, &str)] = &[
    (NEURON, "with xp.StepTrace(\"train\", step_num=n):"),
    (XLA, "with xp.StepTrace(\"train\", step_num=n):"),
    (
        JAX,
        "with jax.profiler.StepTraceAnnotation(\"train\", step_num=n):",
    ),
    (
        TORCH,
        "profiler.step()  # at the end of each iteration, with torch.profiler.profile(...) as profiler",
    ),
    (
        TENSORFLOW,
        "with tf.profiler.experimental.Trace(\"train\", step_num=n, _r=1):",
    ),
    (RUST, "let _step = stepscope::step(n);"),
    (PYTHON, "with stepscope.StepTrace(\"train\", step_num=n):"),
];

fn lines(lack: Lack) -> &'static [(&'static str, &'static str)] {
    match lack {
        Lack::Times => TIMES,
        Lack::Kernels => KERNELS,
        Lack::Memory => MEMORY,
        Lack::Ranks => RANKS,
        Lack::Collectives => COLLECTIVES,
        Lack::Flops => FLOPS,
        Lack::FrameworkOps => FRAMEWORK_OPS,
        Lack::HloOps => HLO_OPS,
        Lack::Modules => MODULES,
        Lack::PythonFunctions => PYTHON_FUNCTIONS,
        Lack::Labels => LABELS,
        Lack::Actions => ACTIONS,
        Lack::Input => INPUT,
        Lack::Steps => STEPS,
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgValue, EventSink};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    const ALL: &[Lack] = &[
        Lack::Times,
        Lack::Kernels,
        Lack::Memory,
        Lack::Ranks,
        Lack::Collectives,
        Lack::Flops,
        Lack::FrameworkOps,
        Lack::HloOps,
        Lack::Modules,
        Lack::PythonFunctions,
        Lack::Labels,
        Lack::Actions,
        Lack::Input,
        Lack::Steps,
    ];

    fn trace_of(kinds: &[&str]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        for kind in kinds {
            sink.fact(&format!("kind.{kind}"), ArgValue::Bool(true));
        }
        builder.add(sink);
        builder.finish()
    }

    #[test]
    fn an_unknown_framework_gets_no_line_of_another() {
        let trace = trace_of(&["rocprofv3"]);
        assert!(ALL.iter().all(|lack| hint(&trace, *lack).is_empty()));
    }

    #[test]
    fn a_run_gets_lines_of_its_own_framework() {
        let foreign = |kind: &str| match kind {
            RUST => ["torch.", "jax.", "tf.profiler"],
            JAX => ["torch.", "stepscope::", "tf.profiler"],
            NEURON => ["torch.profiler", "jax.", "stepscope::"],
            _ => ["jax.", "stepscope::", "tf.profiler"],
        };
        for kind in [RUST, JAX, NEURON, TORCH] {
            let trace = trace_of(&[kind]);
            for lack in ALL {
                let line = hint(&trace, *lack);
                let other = foreign(kind).into_iter().find(|word| line.contains(word));
                assert_eq!(other, None, "{kind}, {lack:?}: {line}");
            }
            assert!(!hint(&trace, Lack::Steps).is_empty(), "{kind}");
        }
    }

    #[test]
    fn the_framework_that_builds_on_another_comes_first() {
        let trace = trace_of(&[TORCH, XLA]);
        assert_eq!(
            hints(&trace, Lack::Steps),
            [(XLA, "with xp.StepTrace(\"train\", step_num=n):")]
        );
    }
}
