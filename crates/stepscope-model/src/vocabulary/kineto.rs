//! Categories and names of torch's profiler (kineto) and of programs that write its format.
//!
//! Source: `libkineto/src/ActivityType.cpp` and `output_json.cpp`; before 2022 the names were
//! capitalised (`Kernel`, `Operator`, `Memcpy`). Upper and lower case are equal here.

/// Category of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Category {
    /// An operator of the framework.
    Operator,
    /// An instant of a host thread, such as `[memory]`.
    HostInstant,
    /// An annotation by the program, `record_function`.
    Annotation,
    /// An annotation, drawn over the kernels that were launched within it.
    DeviceAnnotation,
    /// A function of Python.
    PythonFunction,
    /// A call of the runtime or the driver of a device.
    RuntimeCall,
    /// Time that the profiler itself took.
    Overhead,
    /// A kernel.
    Kernel,
    /// A copy that involves a device.
    Memcpy,
    /// A fill of device memory.
    Memset,
    /// A wait of a device or for a device.
    DeviceSync,
    /// An event that was recorded on a stream.
    DeviceEvent,
    /// A range in which the profiler read hardware counters.
    CounterRange,
    /// A sample of hardware counters.
    Counter,
    /// An operation of Meta's accelerator.
    Mtia,
    /// A workload descriptor of Meta's accelerator.
    MtiaWorkload,
    /// An instruction trace of Meta's accelerator.
    MtiaInsight,
}

/// Names of [`Category::Annotation`] and [`Category::DeviceAnnotation`].
pub const ANNOTATIONS: [&str; 2] = ["user_annotation", "gpu_user_annotation"];

const NAMES: &[(&str, Category)] = &[
    ("cpu_op", Category::Operator),
    ("operator", Category::Operator),
    ("cpu_instant_event", Category::HostInstant),
    (ANNOTATIONS[0], Category::Annotation),
    (ANNOTATIONS[1], Category::DeviceAnnotation),
    ("python_function", Category::PythonFunction),
    ("python", Category::PythonFunction),
    // viztracer: function entry and exit.
    ("fee", Category::PythonFunction),
    ("runtime", Category::RuntimeCall),
    ("hip_api", Category::RuntimeCall),
    ("hsa_api", Category::RuntimeCall),
    ("overhead", Category::Overhead),
    ("kernel", Category::Kernel),
    ("concurrent_kernel", Category::Kernel),
    ("xpu_kernel", Category::Kernel),
    ("gpu_memcpy", Category::Memcpy),
    ("memcpy", Category::Memcpy),
    ("hip_memcpy", Category::Memcpy),
    ("gpu_memset", Category::Memset),
    ("memset", Category::Memset),
    ("cuda_sync", Category::DeviceSync),
    ("hip_sync", Category::DeviceSync),
    ("xpu_sync", Category::DeviceSync),
    ("cuda_event", Category::DeviceEvent),
    ("cuda_profiler_range", Category::CounterRange),
    ("gpu_pm_counter", Category::Counter),
    ("mtia_ccp_events", Category::Mtia),
    ("mtia_workloadd", Category::MtiaWorkload),
    ("mtia_insight", Category::MtiaInsight),
];

/// Ends of the names of [`Category::RuntimeCall`]: `cuda_runtime`, `privateuse1_driver`.
const RUNTIMES: &[&str] = &["_runtime", "_driver"];

impl Category {
    /// Returns the category of this name, in any version's spelling.
    ///
    /// ```
    /// use stepscope_model::vocabulary::kineto::Category;
    /// assert_eq!(Category::from_name("Kernel"), Some(Category::Kernel));
    /// assert_eq!(Category::from_name("xpu_runtime"), Some(Category::RuntimeCall));
    /// assert_eq!(Category::from_name("my_category"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        let is_runtime = || {
            RUNTIMES.iter().any(|end| {
                let from = name.len().checked_sub(end.len());
                let last = from.and_then(|from| name.get(from..));
                last.is_some_and(|last| last.eq_ignore_ascii_case(end))
            })
        };
        NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, category)| *category)
            .or_else(|| is_runtime().then_some(Self::RuntimeCall))
    }

    /// Returns who executes events of this category.
    ///
    /// Ids of processes and threads do not show it: kineto numbers devices from 0 and names
    /// processes 0 to 15 "GPU N", and a program in a container is process 1.
    pub const fn executor(self) -> Executor {
        match self {
            Self::Operator
            | Self::HostInstant
            | Self::Annotation
            | Self::PythonFunction
            | Self::RuntimeCall => Executor::Host,
            Self::DeviceAnnotation
            | Self::Kernel
            | Self::Memcpy
            | Self::Memset
            | Self::DeviceSync
            | Self::DeviceEvent
            | Self::CounterRange
            | Self::Counter
            | Self::Mtia
            | Self::MtiaWorkload
            | Self::MtiaInsight => Executor::Device,
            Self::Overhead => Executor::Unknown,
        }
    }

    /// Returns whether a `ProfilerStep#N` of this category is the step itself. The alternative is
    /// its copy on a GPU.
    pub const fn may_mark_steps(self) -> bool {
        matches!(self, Self::Annotation | Self::Operator)
    }
}

/// The executor of an event, inferred from its category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executor {
    /// The category does not determine the executor.
    #[default]
    Unknown,
    /// A thread of the program.
    Host,
    /// A device.
    Device,
}

impl Executor {
    /// Returns the executor of events of the category of this name.
    pub fn of_category(name: &str) -> Self {
        Category::from_name(name).map_or(Self::Unknown, Category::executor)
    }
}

/// Returns whether a category is that of Python functions.
pub fn is_python_function(category: &str) -> bool {
    Category::from_name(category) == Some(Category::PythonFunction)
}

/// Prefix of the names of torch's step labels.
const STEP: &str = "ProfilerStep#";

/// Returns whether a name is that of a step of torch's profiler.
pub fn is_step(name: &str) -> bool {
    name.starts_with(STEP)
}

/// Returns the number in `ProfilerStep#7`.
pub fn step_number(name: &str) -> Option<i64> {
    name.strip_prefix(STEP)?.parse().ok()
}

/// Operator that encloses the launch of each collective and holds its arguments.
pub const PARAM_COMMS: &str = "record_param_comms";

/// Prefix of the slices of the calls of a `torch.nn.Module`: `nn.Module: Linear_0`.
pub const MODULE_CALL: &str = "nn.Module: ";

/// Prefix of the labels that torch puts around methods of optimizers: `Optimizer.step#SGD.step`,
/// `Optimizer.zero_grad#SGD.zero_grad`.
pub const OPTIMIZER_CALL: &str = "Optimizer.";

/// Prefix of the labels around the method of an optimizer that updates the parameters.
pub const OPTIMIZER_STEP_CALL: &str = "Optimizer.step";

/// Prefix of the slices that torch's autograd engine records.
pub const AUTOGRAD_ENGINE: &str = "autograd::engine::";

/// Prefix of the evaluation of a node of the autograd graph; `: ` and the name of the node follow:
/// `autograd::engine::evaluate_function: AddmmBackward0`.
pub const EVALUATE_FUNCTION: &str = "autograd::engine::evaluate_function";

/// Returns whether a name is that of a node of the autograd graph: `AddmmBackward0`.
pub fn is_autograd_node(name: &str) -> bool {
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    name.ends_with("Backward") && !name.contains("::") && !name.contains(' ')
}

/// Name of the instants of allocations, recorded with `profile_memory=True`.
pub const MEMORY: &str = "[memory]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_tell_host_from_device() {
        for (name, executor) in [
            ("Kernel", Executor::Device),
            ("gpu_memcpy", Executor::Device),
            ("gpu_user_annotation", Executor::Device),
            ("cpu_op", Executor::Host),
            ("Operator", Executor::Host),
            ("python_function", Executor::Host),
            ("cuda_driver", Executor::Host),
            ("overhead", Executor::Unknown),
            ("Trace", Executor::Unknown),
        ] {
            assert_eq!(Executor::of_category(name), executor, "{name}");
        }
    }

    #[test]
    fn names_are_written_once() {
        for (index, (name, _)) in NAMES.iter().enumerate() {
            let first = NAMES.iter().position(|(other, _)| other == name);
            assert_eq!(first, Some(index), "{name}");
        }
    }

    #[test]
    fn nodes_of_the_autograd_graph_are_recognized() {
        for (name, expected) in [
            ("AddmmBackward0", true),
            ("AddmmBackward", true),
            ("aten::threshold_backward", false),
            ("torch::autograd::CopyBackwards", false),
            ("autograd::engine::evaluate_function: AddmmBackward0", false),
        ] {
            assert_eq!(is_autograd_node(name), expected, "{name}");
        }
    }

    #[test]
    fn steps_have_numbers() {
        assert_eq!(step_number("ProfilerStep#12"), Some(12));
        assert_eq!(step_number("ProfilerStep*"), None);
        assert!(Category::Operator.may_mark_steps());
        assert!(!Category::DeviceAnnotation.may_mark_steps());
        assert!(is_step("ProfilerStep#1") && !is_step("ProfilerStep*"));
    }
}
