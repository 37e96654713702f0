//! Owner of an allocation: the layer and the source line that requested it, and its estimated purpose.
//!
//! The purpose is derived from the times of the allocation and of its free. Backward passes reach from the first
//! to the last `autograd::engine::evaluate_function` between two optimiser steps or step markers; optimiser steps
//! are `Optimizer.step…` (`TrainingPhase::from_torch_slice`):
//!
//! ```text
//! allocated in an optimiser step   freed within it: temporary      else: optimiser state
//! allocated in a backward pass     freed within it: temporary      else: gradient
//! allocated elsewhere              never freed:     kept           (weights, buffers, input)
//!                                  freed in or after a backward pass that started after it: activation
//!                                  else:            temporary
//! ```
//!
//! A run without a backward pass has no activations or gradients. All of it is an estimate: the file contains no
//! tensors.

use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_model::{NameId, Time};
use stepscope_store::{FactValue, FileFacts, Trace};

use super::{Memory, Record};
use crate::names::NameSet;
use crate::training_phase::TrainingPhase;

/// Estimated purpose of memory, from its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllocationCategory {
    /// Allocated by the forward pass for the backward pass.
    Activation,
    /// Allocated by the backward pass and alive after it.
    Gradient,
    /// Allocated by the optimiser and alive after its step.
    OptimizerState,
    /// Freed before a later phase could use it.
    Temporary,
    /// Allocated outside of backward passes and optimiser steps, and never freed.
    Kept,
}

impl AllocationCategory {
    /// All categories, in the order in which lists show them.
    pub const ALL: [Self; 5] = [
        Self::Activation,
        Self::Gradient,
        Self::OptimizerState,
        Self::Temporary,
        Self::Kept,
    ];

    /// Returns the title that lists show.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Activation => "activations",
            Self::Gradient => "gradients",
            Self::OptimizerState => "optimiser state",
            Self::Temporary => "temporary",
            Self::Kept => "weights, buffers, input",
        }
    }
}

type Spans = Vec<(Time, Time)>;

/// Times of the training phases.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// Backward passes by file: ranks do not share their passes.
    backward: Vec<Spans>,
    optimizer: Vec<Spans>,
}

impl Owners {
    /// Searches for backward passes and optimiser steps.
    pub fn from_trace(trace: &Trace) -> Self {
        let files = trace.files().len().max(1);
        // Labels of the program do not count here: one that reaches beyond the work of its phase would make gradients
        // and optimiser state of other memory.
        let slices_of = |phase: TrainingPhase| {
            NameSet::matching(trace, |name| {
                TrainingPhase::from_torch_slice(name) == Some(phase)
            })
        };
        let backward = slices_of(TrainingPhase::Backward);
        let optimizer = slices_of(TrainingPhase::Optimizer);
        let mut found = Self {
            backward: vec![Spans::new(); files],
            optimizer: vec![Spans::new(); files],
        };
        if backward.is_empty() && optimizer.is_empty() {
            return found;
        }
        let mut boundaries: Vec<Vec<Time>> = vec![Vec::new(); files];
        for track in trace.tracks().iter().filter(|track| !track.derived) {
            let slices = trace.slices(track.id);
            for index in 0..slices.len() {
                let span = || (slices.start[index], slices.end(index));
                if backward.contains(slices.name[index]) {
                    found.backward[track.file].push(span());
                } else if optimizer.contains(slices.name[index]) {
                    found.optimizer[track.file].push(span());
                    boundaries[track.file].push(slices.start[index]);
                }
            }
        }
        for mark in trace.step_marks() {
            if let Some((track, index)) = trace.place_of_slice(mark.event)
                && let Some(start) = trace.slices(track).start.get(index)
                && let Some(track) = trace.tracks().get(track.index())
            {
                boundaries[track.file].push(*start);
            }
        }
        for (file, boundaries) in boundaries.iter_mut().enumerate() {
            boundaries.sort_unstable();
            found.optimizer[file].sort_unstable();
            found.backward[file].sort_unstable();
            found.backward[file] = passes(&found.backward[file], boundaries);
        }
        found
    }

    /// Returns whether any training phase was found.
    pub fn knows_training(&self) -> bool {
        let any = |spans: &[Spans]| spans.iter().any(|spans| !spans.is_empty());
        any(&self.backward) || any(&self.optimizer)
    }

    /// Returns the phase of the process of a record at a timestamp: a backward pass, an optimiser step or neither.
    pub fn phase(&self, file: usize, at: Time) -> Option<TrainingPhase> {
        let within = |spans: &[Spans]| {
            spans
                .get(file)
                .is_some_and(|spans| span_at(spans, at).is_some())
        };
        if within(&self.optimizer) {
            Some(TrainingPhase::Optimizer)
        } else if within(&self.backward) {
            Some(TrainingPhase::Backward)
        } else {
            None
        }
    }

    /// Returns the purpose of an allocation; `None` if its end is unknown, as in a file without addresses.
    pub fn category(&self, file: usize, record: &Record) -> Option<AllocationCategory> {
        if !record.tracked || record.bytes <= 0 {
            return None;
        }
        let goes_within = |(_, end): (Time, Time)| record.freed.is_some_and(|freed| freed <= end);
        let none = Spans::new();
        let optimizer = self.optimizer.get(file).unwrap_or(&none);
        let backward = self.backward.get(file).unwrap_or(&none);
        if let Some(step) = span_at(optimizer, record.at) {
            return Some(if goes_within(step) {
                AllocationCategory::Temporary
            } else {
                AllocationCategory::OptimizerState
            });
        }
        if let Some(pass) = span_at(backward, record.at) {
            return Some(if goes_within(pass) {
                AllocationCategory::Temporary
            } else {
                AllocationCategory::Gradient
            });
        }
        let Some(freed) = record.freed else {
            return Some(AllocationCategory::Kept);
        };
        let next = backward.partition_point(|pass| pass.0 < record.at);
        let served = backward.get(next).is_some_and(|pass| pass.0 <= freed);
        Some(if served {
            AllocationCategory::Activation
        } else {
            AllocationCategory::Temporary
        })
    }
}

/// Returns the span that contains a timestamp.
fn span_at(spans: &[(Time, Time)], at: Time) -> Option<(Time, Time)> {
    let begun = spans.partition_point(|span| span.0 <= at);
    spans
        .get(begun.checked_sub(1)?)
        .copied()
        .filter(|span| at <= span.1)
}

/// Merges the spans between two boundaries into one pass.
fn passes(intervals: &[(Time, Time)], boundaries: &[Time]) -> Spans {
    let mut passes = Spans::new();
    let mut of_last = usize::MAX;
    for &(start, end) in intervals {
        let cut = boundaries.partition_point(|cut| *cut <= start);
        match passes.last_mut() {
            Some(last) if cut == of_last => last.1 = last.1.max(end),
            _ => passes.push((start, end)),
        }
        of_last = cut;
    }
    passes
}

/// Returns the bytes of a device, from the file's list of devices.
pub fn device_bytes(file: &FileFacts, device: u32) -> Option<i64> {
    match file.fact(&format!("device.{device}.memory_bytes"))? {
        FactValue::Int(bytes) => Some(*bytes),
        FactValue::Uint(bytes) => i64::try_from(*bytes).ok(),
        _ => None,
    }
    .filter(|bytes| *bytes > 0)
}

/// Returns the scope that TensorFlow and JAX write before an operation's name, `model/layer_2/dropout` of
/// `model/layer_2/dropout/Mul`: the layer where no module was recorded.
pub fn scope(op: &str) -> Option<&str> {
    let (scope, _) = op.rsplit_once('/')?;
    (!scope.is_empty() && !scope.starts_with('/') && !op.contains(' ')).then_some(scope)
}

/// Code that requested memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The innermost `nn.Module`; empty where none was recorded.
    pub layer: String,
    /// The innermost Python function outside torch: `train.py(31): step`.
    pub line: String,
}

impl Memory {
    /// Returns the index of the file that a record comes from.
    pub fn file_of(&self, trace: &Trace, record: &Record) -> usize {
        let on = trace.track_of(record.event);
        on.and_then(|on| trace.tracks().get(on.index()))
            .map_or(0, |track| track.file)
    }

    /// Returns the innermost `nn.Module` around an allocation: the name of the slice, including the prefix before
    /// [`Caller::layer`].
    pub fn module(&self, trace: &Trace, record: &Record) -> Option<NameId> {
        let on = trace.track_of(record.event)?;
        let names = trace.slices(on).name;
        let around = self.around(trace, on, record.at);
        let mut around = around.map(|index| names[index]);
        around.find(|name| trace.name(*name).starts_with(MODULE_CALL))
    }

    /// Returns the module and the source line around an allocation, on the thread that made it.
    pub fn caller(&self, trace: &Trace, record: &Record) -> Caller {
        let mut caller = Caller::default();
        let Some(on) = trace.track_of(record.event) else {
            return caller;
        };
        let names = trace.slices(on).name;
        for index in self.around(trace, on, record.at) {
            let name = trace.name(names[index]);
            if let Some(module) = name.strip_prefix(MODULE_CALL) {
                if caller.layer.is_empty() {
                    module.clone_into(&mut caller.layer);
                }
            } else if caller.line.is_empty() && is_own_line(name) {
                name.clone_into(&mut caller.line);
            }
            if !caller.layer.is_empty() && !caller.line.is_empty() {
                break;
            }
        }
        caller
    }
}

/// Returns whether a name is a Python function of the program, `train.py(31): step`, and not of a library.
pub fn is_own_line(name: &str) -> bool {
    let Some((file, rest)) = name.split_once(".py(") else {
        return false;
    };
    let number = rest.split(')').next().unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && !is_library_file(file)
}

/// Returns whether a Python file belongs to a library, and not to the program.
pub fn is_library_file(file: &str) -> bool {
    let library = [
        "torch/",
        "/torch",
        "site-packages",
        "dist-packages",
        "contextlib",
        "threading",
    ];
    library.iter().any(|word| file.contains(word))
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgValue, EventSink as _};
    use stepscope_store::{EventId, FileSpec, TraceBuilder};

    use super::*;

    fn at(us: i64) -> Time {
        Time::from_ps(us * 1_000_000)
    }

    fn record(allocated: i64, freed: Option<i64>) -> Record {
        Record {
            at: at(allocated),
            event: EventId(0),
            allocator: 0,
            bytes: 8,
            in_use: 8,
            reserved: None,
            fragmentation: None,
            stack: 0,
            op: 0,
            freed: freed.map(at),
            tracked: true,
        }
    }

    #[test]
    fn device_capacity_comes_from_the_file() {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.fact("device.1.memory_bytes", ArgValue::Int(80));
        sink.fact("device.2.memory_bytes", ArgValue::Int(0));
        sink.fact("device.3.memory_bytes", ArgValue::Str("80"));
        builder.add(sink);
        let trace = builder.finish();
        let file = &trace.files()[0];
        let limits: Vec<_> = (0..4).map(|device| device_bytes(file, device)).collect();
        assert_eq!(limits, [None, Some(80), None, None]);
    }

    #[test]
    fn operation_names_contain_their_scope() {
        assert_eq!(
            scope("model/layer_2/dropout/Mul"),
            Some("model/layer_2/dropout")
        );
        for without in [
            "aten::empty",
            "/tmp/file",
            "Build buffer allocations",
            "read a/b",
        ] {
            assert_eq!(scope(without), None, "{without}");
        }
    }

    #[test]
    fn lifetime_determines_the_category() {
        // Forward 0 to 10, backward 10 to 20, the optimiser 20 to 30; the next step from 30.
        let owners = Owners {
            backward: vec![vec![(at(10), at(20)), (at(40), at(50))]],
            optimizer: vec![vec![(at(21), at(30)), (at(51), at(60))]],
        };
        for (allocated, freed, category) in [
            (5, Some(15), AllocationCategory::Activation),
            (5, Some(25), AllocationCategory::Activation),
            (5, Some(7), AllocationCategory::Temporary),
            (5, None, AllocationCategory::Kept),
            (12, Some(13), AllocationCategory::Temporary),
            (12, Some(31), AllocationCategory::Gradient),
            (12, None, AllocationCategory::Gradient),
            (22, Some(23), AllocationCategory::Temporary),
            (22, None, AllocationCategory::OptimizerState),
            (35, Some(45), AllocationCategory::Activation),
            (61, Some(62), AllocationCategory::Temporary),
        ] {
            assert_eq!(
                owners.category(0, &record(allocated, freed)),
                Some(category),
                "made at {allocated}, freed at {freed:?}"
            );
        }
        assert_eq!(owners.phase(0, at(15)), Some(TrainingPhase::Backward));
        assert_eq!(owners.phase(0, at(25)), Some(TrainingPhase::Optimizer));
        assert_eq!(owners.phase(0, at(5)), None);
        let untold = Record {
            tracked: false,
            ..record(5, None)
        };
        assert_eq!(owners.category(0, &untold), None);
    }

    #[test]
    fn spans_between_two_boundaries_are_one_pass() {
        let intervals = [
            (at(1), at(2)),
            (at(3), at(6)),
            (at(5), at(6)),
            (at(11), at(12)),
        ];
        assert_eq!(
            passes(&intervals, &[at(0), at(10)]),
            [(at(1), at(6)), (at(11), at(12))]
        );
        assert_eq!(passes(&intervals, &[]), [(at(1), at(12))]);
    }

    #[test]
    fn library_lines_are_not_program_lines() {
        assert!(is_own_line("train.py(31): step"));
        assert!(!is_own_line("torch/nn/modules/linear.py(130): forward"));
        assert!(!is_own_line("<built-in method linear>"));
        assert!(!is_own_line("aten::linear"));
    }
}
