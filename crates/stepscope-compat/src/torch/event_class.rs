//! Classes of slices in torch's terms, by their names and categories.

use stepscope_model::NameId;
use stepscope_model::vocabulary::collective::is_process_group_call;
use stepscope_model::vocabulary::kineto::{Category, MEMORY, is_step};
use stepscope_store::Trace;

use super::device::TorchDevice;

pub(super) const OUT_OF_MEMORY: &str = "[OutOfMemory]";

/// Utility operators that torch leaves out of its tables.
const FILTERED: [&str; 8] = [
    MEMORY,
    OUT_OF_MEMORY,
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

/// Class of an event, in a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventClass(u8);

impl EventClass {
    /// No event of torch.
    pub(super) const NONE: Self = Self(0);
    /// An operator, which kernels are attributed to.
    const OPERATOR: Self = Self(1);
    /// A call of the device's runtime, or profiler overhead.
    const HOST: Self = Self(2);
    const CUDA: Self = Self(3);
    const MTIA: Self = Self(4);
    /// A memory record that is its own event.
    pub(super) const MEMORY: Self = Self(5);
    /// A Python function: a frame of stacks.
    pub(super) const PYTHON: Self = Self(6);
    /// A label of the program, on the host or mirrored on a device.
    const LABEL: u8 = 0x10;
    /// Started and ended on different threads: no children, no self time.
    const ASYNC: u8 = 0x20;
    /// Merged into its parent.
    const MERGED: u8 = 0x40;

    fn from_category(category: &str) -> Self {
        match Category::from_name(category) {
            Some(Category::Operator) => Self::OPERATOR,
            Some(Category::Annotation) => Self(Self::OPERATOR.0 | Self::LABEL),
            Some(
                Category::Kernel
                | Category::Memcpy
                | Category::Memset
                | Category::DeviceSync
                | Category::CounterRange,
            ) => Self::CUDA,
            Some(Category::DeviceAnnotation) => Self(Self::CUDA.0 | Self::LABEL),
            Some(Category::Mtia | Category::MtiaWorkload) => Self::MTIA,
            Some(Category::PythonFunction) => Self::PYTHON,
            Some(Category::RuntimeCall | Category::Overhead) => Self::HOST,
            _ => Self::NONE,
        }
    }

    const fn kind(self) -> u8 {
        self.0 & 0x0f
    }

    /// Returns whether it is an operator or a label of the host, and no call of a runtime.
    pub(super) const fn is_frontend(self) -> bool {
        self.kind() == Self::OPERATOR.0
    }

    /// Returns whether it is a call of the runtime or profiler overhead.
    pub(super) const fn is_call(self) -> bool {
        self.kind() == Self::HOST.0
    }

    pub(super) const fn is_memory(self) -> bool {
        self.kind() == Self::MEMORY.0
    }

    pub(super) const fn is_label(self) -> bool {
        self.0 & Self::LABEL != 0
    }

    pub(super) const fn is_async(self) -> bool {
        self.0 & Self::ASYNC != 0
    }

    pub(super) const fn is_merged(self) -> bool {
        self.0 & Self::MERGED != 0
    }

    #[must_use]
    pub(super) const fn merged_into_parent(self) -> Self {
        Self(self.0 | Self::MERGED)
    }

    pub(super) const fn on_device(self) -> bool {
        matches!(self.device(), TorchDevice::Cuda | TorchDevice::Mtia)
    }

    /// Returns whether it may be a child or a parent.
    pub(super) const fn nests(self) -> bool {
        !self.on_device() && !self.is_async()
    }

    pub(super) const fn device(self) -> TorchDevice {
        match Self(self.kind()) {
            Self::CUDA => TorchDevice::Cuda,
            Self::MTIA => TorchDevice::Mtia,
            _ => TorchDevice::Cpu,
        }
    }

    /// Returns a number below [`EventClass::GROUPS`] for the properties that separate rows besides names.
    pub(super) const fn group(self) -> usize {
        let device = match Self(self.kind()) {
            Self::CUDA => 1,
            Self::MTIA => 2,
            _ => 0,
        };
        device * 2 + self.is_label() as usize
    }

    pub(super) const GROUPS: usize = 6;
}

/// Names of a trace in torch's terms.
pub(super) struct Words {
    names: Vec<u8>,
    categories: Vec<EventClass>,
    step: u32,
}

const LEFT_OUT: u8 = 1;
const STEP: u8 = 2;
const WORK: u8 = 4;
const MEMORY_RECORD: u8 = 8;
const OUT_OF_MEMORY_RECORD: u8 = 16;
const PROFILER_START: u8 = 32;

/// Name that all steps share.
const STEPS: &str = "ProfilerStep*";

impl Words {
    pub(super) fn from_trace(trace: &Trace) -> Self {
        let count = u32::try_from(trace.name_count()).unwrap_or(u32::MAX);
        let mut words = Self {
            names: Vec::with_capacity(trace.name_count()),
            categories: Vec::with_capacity(trace.name_count()),
            step: count,
        };
        for id in 0..count {
            let text = trace.name(NameId(id));
            let mut flags = 0;
            if FILTERED.contains(&text) {
                flags |= LEFT_OUT;
            }
            match text {
                STEPS => words.step = id,
                MEMORY => flags |= MEMORY_RECORD,
                OUT_OF_MEMORY => flags |= OUT_OF_MEMORY_RECORD,
                "Iteration Start: PyTorch Profiler" => flags |= PROFILER_START,
                _ if is_step(text) => flags |= STEP,
                // It starts on the thread that requests it and ends on another.
                _ if is_process_group_call(text) => flags |= WORK,
                _ => {}
            }
            words.names.push(flags);
            words.categories.push(EventClass::from_category(text));
        }
        words
    }

    fn flags(&self, name: NameId) -> u8 {
        self.names.get(name.index()).copied().unwrap_or(0)
    }

    /// Returns the class of a slice.
    #[inline]
    pub(super) fn class(&self, name: NameId, category: NameId) -> EventClass {
        let class = self.categories.get(category.index());
        let class = class.copied().unwrap_or(EventClass::NONE);
        if class == EventClass::NONE || class == EventClass::PYTHON {
            return class;
        }
        let flags = self.flags(name);
        if flags & LEFT_OUT != 0 {
            EventClass::NONE
        } else if flags & WORK != 0 && class.is_frontend() && class.is_label() {
            EventClass(class.0 | EventClass::ASYNC)
        } else {
            class
        }
    }

    /// Returns a number of the name that tables print.
    #[inline]
    pub(super) fn shown(&self, name: NameId) -> u32 {
        if self.flags(name) & STEP == 0 {
            name.0
        } else {
            self.step
        }
    }

    /// Returns the upper bound of the numbers of names.
    pub(super) fn len(&self) -> usize {
        self.names.len() + 1
    }

    /// Returns the name of a number.
    pub(super) fn text<'a>(&self, trace: &'a Trace, number: u32) -> &'a str {
        if number == self.step {
            STEPS
        } else {
            trace.name(NameId(number))
        }
    }

    /// Returns whether an instant of this name is a memory record: `true` for a failed allocation, `false` for
    /// others.
    pub(super) fn memory(&self, name: NameId) -> Option<bool> {
        let flags = self.flags(name);
        (flags & (MEMORY_RECORD | OUT_OF_MEMORY_RECORD) != 0)
            .then_some(flags & OUT_OF_MEMORY_RECORD != 0)
    }

    /// Returns whether an instant of this name is the profiler's start.
    pub(super) fn is_profiler_start(&self, name: NameId) -> bool {
        self.flags(name) & PROFILER_START != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_determine_the_event_class() {
        for (category, on, frontend, label) in [
            ("cpu_op", TorchDevice::Cpu, true, false),
            ("User_Annotation", TorchDevice::Cpu, true, true),
            ("cuda_runtime", TorchDevice::Cpu, false, false),
            ("Kernel", TorchDevice::Cuda, false, false),
            ("gpu_user_annotation", TorchDevice::Cuda, false, true),
            ("mtia_ccp_events", TorchDevice::Mtia, false, false),
        ] {
            let class = EventClass::from_category(category);
            let seen = (class.device(), class.is_frontend(), class.is_label());
            assert_eq!(seen, (on, frontend, label), "{category}");
            assert_eq!(class.merged_into_parent().device(), on, "{category}");
        }
        assert_eq!(EventClass::from_category("Trace"), EventClass::NONE);
        assert!(EventClass::from_category("hip_driver").is_call());
        assert!(!EventClass::from_category("user_annotation").is_call());
    }
}
