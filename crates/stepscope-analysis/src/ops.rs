//! Operations of a run by cost.
//!
//! An **operation** is a slice of one class: an operator that a framework dispatched, an instruction that a
//! compiled program ran, a label, a Python function, ... ([`OpGrouping`]). Operations of one class nest only in each
//! other; slices of another class are skipped. For the rows of one class
//!
//! ```text
//! count = slices that overlap the range
//! total = sum of their times, clipped to the range (one that calls itself counts each time)
//! self  = total - the clipped time of the operations of the class directly inside
//! share = self / sum of self over all rows
//! ```
//!
//! For every track on which the slices of the class nest, it follows
//!
//! ```text
//! sum of self over all rows = union of the class's slices on the track
//! ```
//!
//! `mean = total / count`; `p95` interpolates as [`percentile`](crate::steps::percentile) does, over durations
//! that are stored with seven digits.
//!
//! Rows differ in name, program and (if requested) shapes or stack. An HLO operation's name, program, category
//! and origin come from the event's own arguments and from the compiled programs in the file ([`hlo`]); its
//! **framework operation** is the `op_name` of the instruction, as in XProf, else the instruction itself.
//!
//! Cost: one pass over the slices of the tracks that can contain the class, in parallel over tracks. Arguments
//! are read once per name and track, and for each slice only where its name is not sufficient (kernels with an
//! HLO operation, instruction names that several programs share, shapes).

pub mod available;
mod class;
mod collect;
pub mod hlo;
pub mod inside;
pub(crate) mod launched;
pub mod occurrences;
pub mod rates;
mod rows;
pub mod trend;

use std::ops::Range;

use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{Cancelled, SliceKind, Time, TrackKind};
use stepscope_store::{EventId, Trace, Track};

use crate::parallel::Cancel;

use crate::slice_class::is_operator;
pub use rows::framework_op_of;
pub(crate) use rows::percentile;

/// Class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpGrouping {
    /// Operators that a framework dispatched: `aten::mm`, `jit(step)/dot_general`.
    Framework,
    /// Instructions that compiled programs ran: `fusion.12`.
    Hlo,
    /// Modules of a model: `nn.Module` calls, scopes of compiled operations.
    Module,
    /// Actions of Lightning's trainer.
    Action,
    /// Labels of the program.
    Label,
    /// Python functions.
    Python,
    /// Framework operations on Neuron devices.
    NeuronFramework,
    /// HLO operations on Neuron devices.
    NeuronHlo,
}

impl OpGrouping {
    /// All classes, in the order in which they are offered.
    pub const ALL: [Self; 8] = [
        Self::Framework,
        Self::Hlo,
        Self::Module,
        Self::Action,
        Self::Label,
        Self::Python,
        Self::NeuronFramework,
        Self::NeuronHlo,
    ];

    /// Returns the word that selects the class.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Framework => "framework",
            Self::Hlo => "hlo",
            Self::Module => "module",
            Self::Action => "action",
            Self::Label => "label",
            Self::Python => "python",
            Self::NeuronFramework => "neuron-framework",
            Self::NeuronHlo => "neuron-hlo",
        }
    }

    /// Returns the class that this word selects.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }

    /// Returns whether its slices are those of compiled programs.
    const fn is_compiled(self) -> bool {
        matches!(
            self,
            Self::Framework | Self::Hlo | Self::Module | Self::NeuronFramework | Self::NeuronHlo
        )
    }

    const fn on_neuron(self) -> bool {
        matches!(self, Self::NeuronFramework | Self::NeuronHlo)
    }
}

/// Property that separates rows of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Split {
    /// No property.
    #[default]
    None,
    /// Shapes of the inputs.
    Shapes,
    /// The enclosing Python functions.
    Stack,
}

/// Query of [`ops`].
#[derive(Clone, Debug)]
pub struct OpsQuery {
    /// See [`OpGrouping`].
    pub by: OpGrouping,
    /// See [`Split`].
    pub split: Split,
    /// Range of the query; `None`: the whole run.
    pub range: Option<Range<Time>>,
}

/// One row. Times are clipped to the range.
#[derive(Clone, Debug, PartialEq)]
pub struct OpRow {
    /// Name of the operation.
    pub name: String,
    /// The compiled program that ran it, `jit_step(8)`.
    pub program: Option<String>,
    /// XProf's category of compiled operations (`loop fusion`), else the name of its kind.
    pub category: String,
    /// Whether it ran on a device.
    pub on_device: bool,
    /// Number of slices.
    pub count: u64,
    /// Sum of their durations, picoseconds: by the device's own clock where every slice has it, else as on the
    /// timeline.
    pub total_ps: i128,
    /// Sum without nested operations of the class, picoseconds, by the same clock.
    pub self_ps: i128,
    /// Sum of the durations of the slices that lie in no other slice of the same name, picoseconds: nested calls
    /// count once.
    pub outermost_ps: i128,
    /// Sum by the device's own clock (`device_duration_ps`), where every slice has it. The timeline shows device
    /// times converted to the host's clock, which stretches them a little.
    pub device_ps: Option<i128>,
    /// Fraction of the sum of [`OpRow::device_ps`] over the rows that have it.
    pub device_share: Option<f64>,
    /// Number of executions of the most frequent HLO operation of a framework operation that compiled programs
    /// ran. XProf calls it `#Occurrences`.
    pub xprof_count: Option<u64>,
    /// Device time of the work it launched, nested operators included; `None` where no device work is linked to
    /// operators.
    pub launched_ps: Option<i128>,
    /// Device time of the work it launched itself, without nested operators.
    pub launched_self_ps: Option<i128>,
    /// How often a compiled operation ran: the kernels of one operation of a device that run together count
    /// once. For other rows the number of slices.
    pub executions: u64,
    /// The work that the file has for its slices; `None` where it has none.
    pub recorded: Option<rates::Done>,
    /// Arithmetic and memory rates in the whole run, where the file has the counts.
    pub rates: Option<rates::Rates>,
    /// Self time times the unused fraction of its device's peak, picoseconds.
    pub wasted_ps: Option<i128>,
    /// 95th percentile of the durations, nanoseconds.
    pub p95_ns: f64,
    /// Maximum duration, nanoseconds.
    pub max_ns: f64,
    /// Fraction of the self time of all rows.
    pub share: f64,
    /// The longest occurrence (the first of several that are equally long).
    pub longest: EventId,
    /// Shapes of the inputs, or of the result of a compiled operation.
    pub shapes: Option<String>,
    /// Stack, innermost first, where rows are split by it.
    pub stack: Vec<String>,
    /// `file:line` of the user's program.
    pub source: Option<String>,
    /// Whether it starts or awaits an asynchronous operation (`copy-start`, `all-gather-done`): its time is
    /// waiting, and it has no rate of its own.
    pub is_async: bool,
    /// Number of instructions in the computation that it runs (a fusion, a loop, a call); `None` for one that
    /// runs none, and where the file does not contain its program. See [`inside`].
    pub holds: Option<u64>,
    /// Names of its slices, where they differ from the row's name: at most 32 of several.
    pub event_names: Vec<String>,
    /// Kind for colours.
    pub kind: SliceKind,
}

/// Result of [`ops`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpReport {
    /// Rows by self time, largest first, then by name.
    pub rows: Vec<OpRow>,
    /// Sum of their self times, picoseconds.
    pub self_ps: i128,
    /// Sum of their counts.
    pub count: u64,
    /// Whether arguments could not be read although the trace has them.
    pub arguments_lost: bool,
}

/// Sums up the operations of one class.
pub fn ops(trace: &Trace, query: &OpsQuery, cancel: &Cancel) -> Result<OpReport, Cancelled> {
    let catalogue = if query.by.is_compiled() {
        hlo::Catalogue::from_trace(trace)
    } else {
        hlo::Catalogue::default()
    };
    let mut report = compute_rows(trace, query, &catalogue, cancel)?;
    if launched_by_name(query) {
        launched::add(trace, &mut report, cancel)?;
    }
    Ok(report)
}

/// Returns whether the device time that operators launched is found by their names alone.
fn launched_by_name(query: &OpsQuery) -> bool {
    query.by == OpGrouping::Framework && query.split == Split::None && query.range.is_none()
}

/// Computes the device time that each operator or label launched, where names alone do not determine its row.
fn launched_by_slice(
    trace: &Trace,
    query: &OpsQuery,
    cancel: &Cancel,
) -> Result<launched::LaunchedBySlice, Cancelled> {
    if query.range.is_some() || launched_by_name(query) {
        return Ok(launched::LaunchedBySlice::default());
    }
    match query.by {
        OpGrouping::Framework => launched::by_slice(trace, is_operator, cancel),
        OpGrouping::Label => launched::by_slice(trace, class::is_annotation, cancel),
        _ => Ok(launched::LaunchedBySlice::default()),
    }
}

/// Computes the rows, given the compiled programs of the trace.
pub(crate) fn compute_rows(
    trace: &Trace,
    query: &OpsQuery,
    catalogue: &hlo::Catalogue,
    cancel: &Cancel,
) -> Result<OpReport, Cancelled> {
    let launched = launched_by_slice(trace, query, cancel)?;
    let known = (catalogue, &launched);
    let collected = collect::collect(trace, query, known, collect::CHUNK_SLICES, cancel)?;
    let has_launched = !launched.is_empty();
    Ok(rows::finish(
        trace,
        query,
        catalogue,
        collected,
        has_launched,
    ))
}

/// Returns the program and the HLO operation that a slice's arguments name.
pub(crate) fn operation_of_slice(trace: &Trace, event: EventId) -> Option<(String, String)> {
    let (tag, _) = collect::read_tag(trace, event);
    tag.program.zip(tag.hlo_op)
}

/// Returns whether this is a line of a device that does not run HLO operations one after the other, but kernels:
/// a stream of a GPU.
pub(crate) fn is_stream(track: &Track) -> bool {
    track.kind == TrackKind::DeviceQueue && !class::is_xla_ops(track) && !class::is_neuron(track)
}

/// Returns whether the trace has operators as torch's profiler categorizes them. Reads no slice.
pub fn has_torch_operators(trace: &Trace) -> bool {
    trace
        .by_category()
        .iter()
        .any(|(category, count)| *count > 0 && is_operator(trace.name(*category)))
}

/// Lists the classes that the trace probably has, judged only by categories, tracks and facts: a query for one
/// of them may still find nothing. The first is the best default.
pub fn likely(trace: &Trace) -> Vec<OpGrouping> {
    let operators = has_torch_operators(trace);
    let neuron = trace.tracks().iter().any(class::is_neuron);
    let compiled = trace.files().iter().any(|file| !file.modules.is_empty())
        || trace
            .tracks()
            .iter()
            .any(|track| track.kind == TrackKind::DeviceQueue && class::is_xla_ops(track));
    let tensorflow = crate::producer::is_of(trace, Producer::TensorFlow);
    let mut found = Vec::new();
    if operators || tensorflow {
        found.push(OpGrouping::Framework);
    }
    if compiled {
        found.extend([OpGrouping::Hlo, OpGrouping::Framework]);
    }
    if neuron {
        found.push(OpGrouping::NeuronHlo);
    }
    found.extend([
        OpGrouping::Hlo,
        OpGrouping::Action,
        OpGrouping::Label,
        OpGrouping::Python,
    ]);
    let mut seen = Vec::new();
    found.retain(|by| {
        let new = !seen.contains(by);
        seen.push(*by);
        new
    });
    found
}

/// Computes the rows of the first class that has any: the default view.
pub fn first_look(
    trace: &Trace,
    split: Split,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<(OpGrouping, OpReport), Cancelled> {
    let mut last = (OpGrouping::Framework, OpReport::default());
    for by in likely(trace) {
        let query = OpsQuery {
            by,
            split,
            range: range.cloned(),
        };
        last = (by, ops(trace, &query, cancel)?);
        let rows = &last.1.rows;
        // Programs of other frameworks may use the same names as labels.
        let is_other =
            by == OpGrouping::Action && !rows.iter().any(|row| class::is_lightnings(&row.name));
        if !rows.is_empty() && !is_other {
            break;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests;
