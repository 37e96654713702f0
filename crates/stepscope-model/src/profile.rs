//! Statistics without a timeline: the total time of functions or actions, or samples with stacks.
//!
//! `cProfile` statistics and the text reports of profilers hold sums that another program computed,
//! often already rounded. They are stored unchanged, in seconds and as floats. They have no
//! position on a clock and are never converted to [`Time`](crate::Time).

use std::sync::Arc;

/// What the rows of a profile stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProfileKind {
    /// Functions of a program, as `cProfile` counts them.
    #[default]
    Functions,
    /// Actions of a trainer.
    Actions,
    /// Functions in the stacks of [`Profile::samples`].
    Samples,
}

impl ProfileKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Functions, Self::Actions, Self::Samples];

    /// Returns the stable word used in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Actions => "actions",
            Self::Samples => "samples",
        }
    }
}

/// One profile: a table of sums. A file may hold several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What the rows stand for.
    pub kind: ProfileKind,
    /// The profiled action, if the profile covers the functions of one action; empty otherwise.
    pub name: String,
    /// The trainer's stage, as the report spells it (`FIT`); empty without one.
    pub stage: String,
    /// Rank of the process among those of its machine.
    pub rank: Option<u32>,
    /// Total seconds: of the whole program for actions, the sum of self times for functions.
    pub total_s: Option<f64>,
    /// Total number of calls.
    pub calls: Option<u64>,
    /// Number of calls that were not below another call of the same function.
    pub primitive_calls: Option<u64>,
    /// Number of rows before the writer omitted some; `None` if no row was omitted.
    pub rows_before: Option<u64>,
    /// The writer's rule for omitting rows, in its own spelling (`0.2`, `20`); empty if no row was
    /// omitted.
    pub restriction: String,
    /// The writer rounded times to multiples of this, in seconds. `None` if times have full float
    /// precision, or were rounded to a number of significant digits.
    pub rounded_to_s: Option<f64>,
    /// The rows, in the file's order.
    pub rows: Vec<ProfileRow>,
    /// Samples whose stacks are made of the rows; empty for other kinds.
    pub samples: StackSamples,
}

/// Samples with stacks, as pprof files hold them. Values may be times, bytes or counts: each has the unit of its
/// type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackSamples {
    /// What the values of a sample are, in their order.
    pub types: Vec<SampleType>,
    /// Index of the type that the writer shows first.
    pub default_type: u32,
    /// Locations that stacks refer to: frames of one address, the innermost (inlined) one first.
    pub locations: Vec<Box<[SampleFrame]>>,
    /// Sets of labels that samples refer to. Set 0 is empty.
    pub label_sets: Vec<Vec<SampleLabel>>,
    /// The samples, in the file's order.
    pub samples: Vec<StackSample>,
}

/// What one value of each sample measures, e.g. `cpu` in `nanoseconds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleType {
    /// Name, e.g. `cpu`, `alloc_space`.
    pub name: Arc<str>,
    /// Unit in the writer's words, e.g. `nanoseconds`, `bytes`, `count`.
    pub unit: Arc<str>,
}

/// A function in a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleFrame {
    /// Index of the function among the profile's rows.
    pub row: u32,
    /// Line that was executing; 0 if unknown.
    pub line: u32,
}

/// A label of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleLabel {
    /// Name of the label.
    pub key: Arc<str>,
    /// Its text, or its number with its unit.
    pub value: Arc<str>,
}

/// One sample: a stack with values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackSample {
    /// Indexes into [`StackSamples::locations`], innermost first. May be empty.
    pub stack: Box<[u32]>,
    /// One value per [`StackSamples::types`].
    pub values: Box<[i64]>,
    /// Index into [`StackSamples::label_sets`].
    pub labels: u32,
}

impl StackSamples {
    /// Returns the frames of a sample, innermost first.
    pub fn frames<'a>(&'a self, sample: &'a StackSample) -> impl Iterator<Item = SampleFrame> + 'a {
        let locations = sample.stack.iter();
        let locations = locations.filter_map(|at| self.locations.get(*at as usize));
        locations.flat_map(|frames| frames.iter().copied())
    }

    /// Returns the number of samples that an entry stands for: its value of the type `samples` in
    /// `count`, or 1 without such a type. A negative number is 0.
    pub fn count(&self, sample: &StackSample) -> u64 {
        let is_count = |one: &SampleType| &*one.name == "samples" && &*one.unit == "count";
        let Some(at) = self.types.iter().position(is_count) else {
            return 1;
        };
        let count = sample.values.get(at).copied().unwrap_or(0);
        u64::try_from(count).unwrap_or(0)
    }

    /// Returns whether these are the live arrays and executables of JAX's devices, as
    /// `jax.profiler.save_device_memory_profile` writes them: `allocations` (count) and `space` (bytes) by `kind`.
    pub fn is_jax_device_memory(&self) -> bool {
        let is = |at: usize, name: &str, unit: &str| {
            let one = self.types.get(at);
            one.is_some_and(|one| *one.name == *name && *one.unit == *unit)
        };
        let mut labels = self.label_sets.iter().flatten();
        self.types.len() == 2
            && is(0, "allocations", "count")
            && is(1, "space", "bytes")
            && labels.any(|label| {
                &*label.key == "kind" && matches!(&*label.value, "buffer" | "executable")
            })
    }

    /// Returns the value of a sample's label; `None` if it has no such label.
    pub fn label(&self, sample: &StackSample, key: &str) -> Option<&str> {
        let labels = self.label_sets.get(sample.labels as usize)?;
        let mut labels = labels.iter();
        labels
            .find(|label| &*label.key == key)
            .map(|label| &*label.value)
    }
}

/// One function, action or operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRow {
    /// Name. C functions have the text that `cProfile` gives them, in `<` and `>`.
    pub name: Arc<str>,
    /// The source file; `~` for C functions, empty for rows that are not functions.
    pub file: Arc<str>,
    /// Line in that file; 0 if unknown.
    pub line: u32,
    /// Number of calls; `None` if the file does not hold it.
    pub calls: Option<u64>,
    /// Number of calls that were not below another call of the same function.
    pub primitive_calls: Option<u64>,
    /// Seconds from start to end, summed over the outermost calls.
    pub total_s: Option<f64>,
    /// Seconds in the function itself.
    pub self_s: Option<f64>,
    /// Mean seconds per call, if the file holds it (for functions, per primitive call).
    pub mean_s: Option<f64>,
    /// Mean self seconds per call, if the file holds it.
    pub self_mean_s: Option<f64>,
    /// Share of the total in percent, if the file holds it.
    pub percent: Option<f64>,
    /// The callers.
    pub callers: Vec<ProfileCaller>,
}

/// Calls of one function by another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileCaller {
    /// Index of the caller among the profile's rows.
    pub row: u32,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that were not below another call of the same function by the same caller.
    pub primitive_calls: u64,
    /// Seconds from start to end.
    pub total_s: f64,
    /// Seconds in the called function itself.
    pub self_s: f64,
}
