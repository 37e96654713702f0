//! Lines of code that record the data a run lacks, for the framework that wrote the run.
//!
//! The hint is empty if the framework has no such line or the run's framework is unknown: the line
//! of another framework would be wrong advice.

use stepscope_model::vocabulary::producer::Producer::{
    self, Jax, Lightning, Neuron, PyTorch, Python, Rust, TensorFlow, Xla,
};
use stepscope_store::Trace;

use stepscope_analysis::producer::is_of;

/// Data that a run can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Events with timestamps.
    Times,
    /// Accelerator activity.
    Kernels,
    /// Calls that launched accelerator activity.
    Launches,
    /// Allocations.
    Memory,
    /// Memory that allocators of devices reserve.
    ReservedMemory,
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
    /// Compiled programs.
    Programs,
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
    /// Samples with stacks.
    StackSamples,
    /// A log of `torch.compile`.
    CompileLog,
}

/// Frameworks in the order of the search: a framework comes before the one that it builds on.
const FRAMEWORKS: &[Producer] = &[
    Neuron, Xla, Jax, Lightning, PyTorch, TensorFlow, Rust, Python,
];

/// Returns the line of code that records the missing data in the framework that wrote the run;
/// empty if there is none.
pub fn hint(trace: &Trace, lack: Lack) -> &'static str {
    let lines = lines(lack);
    FRAMEWORKS
        .iter()
        .filter(|framework| is_of(trace, **framework))
        .find_map(|framework| line_of(lines, *framework))
        .unwrap_or_default()
}

/// Returns the frameworks that wrote the run, each with its line of code. A framework that builds
/// on another replaces it in the list.
pub(crate) fn hints(trace: &Trace, lack: Lack) -> Vec<(&'static str, &'static str)> {
    let lines = lines(lack);
    FRAMEWORKS
        .iter()
        .filter(|framework| is_of(trace, **framework))
        .filter_map(|framework| Some((framework.name(), line_of(lines, *framework)?)))
        .take(1)
        .collect()
}

/// Returns the lines of code that record this data, each with its framework, in the order of the search.
pub fn framework_hints(lack: Lack) -> Vec<(&'static str, &'static str)> {
    let lines = lines(lack);
    FRAMEWORKS
        .iter()
        .filter_map(|framework| Some((framework.name(), line_of(lines, *framework)?)))
        .collect()
}

fn line_of(lines: &[(Producer, &'static str)], framework: Producer) -> Option<&'static str> {
    let found = lines.iter().find(|(known, _)| *known == framework);
    found.map(|(_, line)| *line)
}

const TORCH_TRACE: &str =
    "with torch.profiler.profile() as prof: train_step()\nprof.export_chrome_trace(\"trace.json\")";
const TORCH_ACTIVITIES: &str =
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])";
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

const TIMES: &[(Producer, &str)] = &[
    (Neuron, XLA_TRACE),
    (Xla, XLA_TRACE),
    (Jax, JAX_TRACE),
    (Lightning, LIGHTNING_TRACE),
    (PyTorch, TORCH_TRACE),
    (TensorFlow, TENSORFLOW_TRACE),
    (Rust, RUST_TRACE),
    (Python, PYTHON_TRACE),
];
const KERNELS: &[(Producer, &str)] = &[
    (
        Neuron,
        "xp.start_trace(\"logs\")  # with NEURON_PROFILE set, on a Neuron device",
    ),
    (
        Xla,
        "xp.start_trace(\"logs\")  # with PJRT_DEVICE=CUDA, TPU or NEURON",
    ),
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # with JAX_PLATFORMS=cuda, rocm or tpu",
    ),
    (PyTorch, TORCH_ACTIVITIES),
    (
        TensorFlow,
        "tf.profiler.experimental.start(\"logs\")  # on a machine with a GPU or TPU",
    ),
];
const LAUNCHES: &[(Producer, &str)] = &[(PyTorch, TORCH_ACTIVITIES)];
const MEMORY: &[(Producer, &str)] = &[
    (
        Xla,
        "xp.start_trace(\"logs\")  # on a GPU or TPU, whose allocators XLA records by itself",
    ),
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # on a GPU or TPU, whose allocators XLA records by itself",
    ),
    (PyTorch, "torch.profiler.profile(profile_memory=True)"),
    (
        TensorFlow,
        "tf.profiler.experimental.start(\"logs\")  # on a GPU or TPU",
    ),
];
/// XLA and TensorFlow always record it, for devices only.
const RESERVED_MEMORY: &[(Producer, &str)] = &[(
    PyTorch,
    "torch.profiler.profile(profile_memory=True)  # with tensors on a GPU",
)];
const RANKS: &[(Producer, &str)] = &[
    (
        Neuron,
        "xp.start_trace(\"logs\")  # in every process, into one shared folder",
    ),
    (
        Xla,
        "xp.start_trace(\"logs\")  # in every process, into one shared folder",
    ),
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # in every process, into one shared folder",
    ),
    (
        PyTorch,
        "on_trace_ready=torch.profiler.tensorboard_trace_handler(\"logs\")  # in every rank, into one folder",
    ),
    (
        TensorFlow,
        "tf.profiler.experimental.start(\"logs\")  # in every worker, into one shared folder",
    ),
    (
        Rust,
        "stepscope::start_trace(\"logs\")?;  // in every process, into one shared folder",
    ),
];
const COLLECTIVES: &[(Producer, &str)] = &[
    (Xla, "xp.start_trace(\"logs\")  # in every process"),
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # in every process of jax.distributed",
    ),
    (
        PyTorch,
        "torch.profiler.profile(record_shapes=True)  # in every rank, for NCCL with TORCH_NCCL_ENABLE_TIMING=1",
    ),
];
const FLOPS: &[(Producer, &str)] = &[
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # on a TPU, where XLA counts them by itself",
    ),
    (PyTorch, "torch.profiler.profile(record_shapes=True)"),
];
const FRAMEWORK_OPS: &[(Producer, &str)] = &[
    (
        PyTorch,
        "with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:",
    ),
    (TensorFlow, TENSORFLOW_TRACE),
];
const HLO_OPS: &[(Producer, &str)] = &[
    (Xla, XLA_TRACE),
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # with host_tracer_level=2 or more on CPU",
    ),
];
const PROGRAMS: &[(Producer, &str)] = &[(Xla, XLA_TRACE), (Jax, JAX_TRACE)];
const MODULES: &[(Producer, &str)] = &[(
    PyTorch,
    "torch.profiler.profile(with_modules=True, with_stack=True)",
)];
const PYTHON_FUNCTIONS: &[(Producer, &str)] = &[
    (
        Jax,
        "jax.profiler.start_trace(\"logs\")  # with options.python_tracer_level = 1",
    ),
    (PyTorch, "torch.profiler.profile(with_stack=True)"),
    (
        Python,
        "stepscope.start_trace(\"logs\", options=stepscope.ProfileOptions(python_tracer_level=1))",
    ),
];
const LABELS: &[(Producer, &str)] = &[
    (Neuron, XLA_LABEL),
    (Xla, XLA_LABEL),
    (
        Jax,
        "with jax.profiler.TraceAnnotation(\"forward\"):  # around a part of the program",
    ),
    (
        PyTorch,
        "with torch.profiler.record_function(\"forward\"):  # around a part of the program",
    ),
    (
        TensorFlow,
        "with tf.profiler.experimental.Trace(\"forward\"):  # around a part of the program",
    ),
    (
        Rust,
        "let _span = stepscope::span!(\"forward\");  // at the start of a part of the program",
    ),
    (
        Python,
        "with stepscope.Trace(\"forward\"):  # around a part of the program",
    ),
];
const ACTIONS: &[(Producer, &str)] = &[
    (Lightning, LIGHTNING_TRACE),
    (PyTorch, LIGHTNING_TRACE),
    (Python, LIGHTNING_TRACE),
];
const INPUT: &[(Producer, &str)] = &[
    (
        Neuron,
        "with xp.Trace(\"data\"):  # around what fetches the next batch",
    ),
    (
        Xla,
        "with xp.Trace(\"data\"):  # around what fetches the next batch",
    ),
    (
        Jax,
        "with jax.profiler.TraceAnnotation(\"data\"):  # around what fetches the next batch",
    ),
    (
        PyTorch,
        "with torch.profiler.record_function(\"data\"):  # around what fetches the next batch",
    ),
    (
        Rust,
        "let _span = stepscope::span!(\"data\");  // around what fetches the next batch",
    ),
    (
        Python,
        "with stepscope.Trace(\"data\"):  # around what fetches the next batch",
    ),
];
const STEPS: &[(Producer, &str)] = &[
    (Neuron, "with xp.StepTrace(\"train\", step_num=n):"),
    (Xla, "with xp.StepTrace(\"train\", step_num=n):"),
    (
        Jax,
        "with jax.profiler.StepTraceAnnotation(\"train\", step_num=n):",
    ),
    (
        PyTorch,
        "profiler.step()  # at the end of each iteration, with torch.profiler.profile(...) as profiler",
    ),
    (
        TensorFlow,
        "with tf.profiler.experimental.Trace(\"train\", step_num=n, _r=1):",
    ),
    (Rust, "let _step = stepscope::step(n);"),
    (Python, "with stepscope.StepTrace(\"train\", step_num=n):"),
];

const STACK_SAMPLES: &[(Producer, &str)] = &[(
    Jax,
    "jax.profiler.save_device_memory_profile(\"memory.prof\")  # live arrays by stack",
)];

const COMPILE_LOG: &[(Producer, &str)] = &[(
    PyTorch,
    "TORCH_TRACE=logs python train.py  # logs: the folder of the trace",
)];

fn lines(lack: Lack) -> &'static [(Producer, &'static str)] {
    match lack {
        Lack::Times => TIMES,
        Lack::Kernels => KERNELS,
        Lack::Launches => LAUNCHES,
        Lack::Memory => MEMORY,
        Lack::ReservedMemory => RESERVED_MEMORY,
        Lack::Ranks => RANKS,
        Lack::Collectives => COLLECTIVES,
        Lack::Flops => FLOPS,
        Lack::FrameworkOps => FRAMEWORK_OPS,
        Lack::HloOps => HLO_OPS,
        Lack::Programs => PROGRAMS,
        Lack::Modules => MODULES,
        Lack::PythonFunctions => PYTHON_FUNCTIONS,
        Lack::Labels => LABELS,
        Lack::Actions => ACTIONS,
        Lack::Input => INPUT,
        Lack::Steps => STEPS,
        Lack::StackSamples => STACK_SAMPLES,
        Lack::CompileLog => COMPILE_LOG,
    }
}

#[cfg(test)]
mod tests {
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    const ALL: &[Lack] = &[
        Lack::Times,
        Lack::Kernels,
        Lack::Launches,
        Lack::Memory,
        Lack::ReservedMemory,
        Lack::Ranks,
        Lack::Collectives,
        Lack::Flops,
        Lack::FrameworkOps,
        Lack::HloOps,
        Lack::Programs,
        Lack::Modules,
        Lack::PythonFunctions,
        Lack::Labels,
        Lack::Actions,
        Lack::Input,
        Lack::Steps,
        Lack::StackSamples,
        Lack::CompileLog,
    ];

    fn trace_of(producers: &[Producer]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        for producer in producers {
            producer.emit(&mut sink);
        }
        builder.add(sink);
        builder.finish()
    }

    #[test]
    fn an_unknown_framework_gets_no_line_of_another() {
        let trace = trace_of(&[Producer::Rocprof]);
        assert!(ALL.iter().all(|lack| hint(&trace, *lack).is_empty()));
    }

    #[test]
    fn a_run_gets_lines_of_its_own_framework() {
        let foreign = |producer: Producer| match producer {
            Rust => ["torch.", "jax.", "tf.profiler"],
            Jax => ["torch.", "stepscope::", "tf.profiler"],
            Neuron => ["torch.profiler", "jax.", "stepscope::"],
            _ => ["jax.", "stepscope::", "tf.profiler"],
        };
        for producer in [Rust, Jax, Neuron, PyTorch] {
            let trace = trace_of(&[producer]);
            for lack in ALL {
                let line = hint(&trace, *lack);
                let other = foreign(producer)
                    .into_iter()
                    .find(|word| line.contains(word));
                assert_eq!(other, None, "{producer:?}, {lack:?}: {line}");
            }
            assert!(!hint(&trace, Lack::Steps).is_empty(), "{producer:?}");
        }
    }

    #[test]
    fn the_framework_that_builds_on_another_comes_first() {
        let trace = trace_of(&[PyTorch, Xla]);
        assert_eq!(
            hints(&trace, Lack::Steps),
            [("XLA", "with xp.StepTrace(\"train\", step_num=n):")]
        );
    }
}
