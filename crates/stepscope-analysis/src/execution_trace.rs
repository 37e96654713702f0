//! Operators of execution traces joined to their slices.
//!
//! PyTorch numbers the calls of its operators. An execution trace has the number as `rf_id`, the timeline of the same
//! process as the argument *Record function id*; files of PyTorch 2.1 and older have only *External id*, which equals
//! it if both recordings began together. For the operator `o` of an execution trace and the file that it belongs to
//!
//! ```text
//! slice(o)  = the operator or annotation of the file with the number of o and its name
//! host time = sum of the durations of the slices, the operators inside included
//! device time = sum of the device slices that were launched inside
//! ```
//!
//! If most slices with the numbers of a trace have other names, the numbers are those of another recording, and no
//! operator is joined. HTA and Chakra compare no names.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{ArgError, ArgKeys, ArgValue, Cancelled, TrackId, TrackKind};
use stepscope_store::{EventId, FactValue, Trace};

use crate::ops::launched;
use crate::parallel::{self, Cancel};

/// Arguments with the number of a call, the exact one first.
const NUMBERS: ArgKeys = ArgKeys::new(&["Record function id", "External id", "external id"]);
/// Fact with the process of an execution trace.
const PID: &str = "execution_trace.pid";
/// Number of operators between two checks for cancellation.
const LOOK_EVERY: usize = 4_096;

/// Argument by which operators were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKey {
    /// *Record function id*.
    RecordFunction,
    /// *External id*.
    External,
}

impl JoinKey {
    /// Returns the name of the argument.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RecordFunction => "Record function id",
            Self::External => "External id",
        }
    }
}

/// Reason why no operator of an execution trace is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJoined {
    /// Several files may be of its process.
    SeveralFiles,
    /// It is of another process than the timeline.
    OtherProcess,
    /// Its operators have no number.
    NoNumbers,
    /// No slice has the number of one of its operators.
    NoSlices,
    /// Most slices with the numbers of its operators have other names.
    OtherNames {
        /// Operators whose number a slice has.
        found: u64,
        /// Those whose name the slice has too.
        same_name: u64,
    },
    /// The execution trace cannot be read again.
    Unreadable(ArgError),
}

/// Join of one execution trace.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinedTrace {
    /// Index into [`Trace::attached`].
    pub attached: usize,
    /// Index into [`Trace::files`] of the file with its slices, if it is known.
    pub file: Option<usize>,
    /// Operators that have a number.
    pub operators: u64,
    /// Operators that have a slice.
    pub joined: u64,
    /// The argument, or the reason why none is joined.
    pub outcome: Result<JoinKey, NotJoined>,
}

/// An operator with its slice.
#[derive(Clone, Copy, Debug)]
struct Link {
    track: TrackId,
    index: u32,
    /// Index into [`ExecutionTraceJoin::names`].
    name: u32,
}

/// Operators of all execution traces of a run, with their slices.
#[derive(Debug, Default)]
pub struct ExecutionTraceJoin {
    /// The execution traces, in the order of [`Trace::attached`].
    pub traces: Vec<JoinedTrace>,
    names: Vec<Box<str>>,
    links: Vec<Link>,
    /// Attached trace and token of the operator of a slice.
    operator_of: FxHashMap<EventId, (u32, u64)>,
}

/// Times of the joined slices of one operator name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorTimes {
    /// Number of slices.
    pub joined: u64,
    /// Sum of their durations, picoseconds.
    pub host_ps: i128,
    /// Device time launched inside them, picoseconds; `None` in runs without work of devices.
    pub device_ps: Option<i128>,
}

/// The join of a trace, computed on first use.
#[derive(Default)]
struct KnownJoin(Mutex<Option<Arc<ExecutionTraceJoin>>>);

/// The operators of one execution trace that have a number.
#[derive(Default)]
struct Operators {
    /// Number, name, token.
    list: Vec<(u64, u32, u64)>,
}

/// A slice with the number of a call.
#[derive(Clone, Copy)]
struct NumberedSlice {
    number: u64,
    key: JoinKey,
    track: TrackId,
    index: u32,
}

impl ExecutionTraceJoin {
    /// Returns the join of a trace and the execution traces attached to it. It is computed once, and stays with the
    /// trace.
    pub fn from_trace(trace: &Trace, cancel: &Cancel) -> Result<Arc<Self>, Cancelled> {
        let known = trace.derived::<KnownJoin>();
        let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(join) = &*known {
            return Ok(Arc::clone(join));
        }
        let found = Arc::new(Self::find(trace, cancel)?);
        *known = Some(Arc::clone(&found));
        Ok(found)
    }

    fn find(trace: &Trace, cancel: &Cancel) -> Result<Self, Cancelled> {
        let mut join = Self::default();
        let mut name_ids = FxHashMap::default();
        for attached in 0..trace.attached().len() {
            cancel.check()?;
            let joined = join.add(trace, attached, &mut name_ids, cancel)?;
            join.traces.extend(joined);
        }
        Ok(join)
    }

    /// Joins one attached trace; `None` if it is no execution trace.
    fn add(
        &mut self,
        trace: &Trace,
        attached: usize,
        name_ids: &mut FxHashMap<Box<str>, u32>,
        cancel: &Cancel,
    ) -> Result<Option<JoinedTrace>, Cancelled> {
        let Some(execution_trace) = trace.attached().get(attached) else {
            return Ok(None);
        };
        let mut operators = Operators::default();
        let mut any = false;
        let read = execution_trace.operators(&mut |operator| {
            any = true;
            if let Some(number) = operator.record_function {
                let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                let name = if let Some(known) = name_ids.get(operator.name) {
                    *known
                } else {
                    self.names.push(operator.name.into());
                    name_ids.insert(operator.name.into(), next);
                    next
                };
                operators.list.push((number, name, operator.token));
            }
        });
        if !any && read.is_ok() {
            return Ok(None);
        }
        let mut joined = JoinedTrace {
            attached,
            file: None,
            operators: operators.list.len() as u64,
            joined: 0,
            outcome: Err(NotJoined::NoNumbers),
        };
        if let Err(error) = read {
            joined.outcome = Err(NotJoined::Unreadable(error));
            return Ok(Some(joined));
        }
        if operators.list.is_empty() {
            return Ok(Some(joined));
        }
        match file_of(trace, attached) {
            Ok(file) => {
                joined.file = Some(file);
                self.link(trace, file, &operators, &mut joined, cancel)?;
            }
            Err(reason) => joined.outcome = Err(reason),
        }
        Ok(Some(joined))
    }

    /// Finds the slices of the operators in a file.
    fn link(
        &mut self,
        trace: &Trace,
        file: usize,
        operators: &Operators,
        joined: &mut JoinedTrace,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let slices = numbered_slices(trace, file, operators, cancel)?;
        let has_exact = slices.iter().any(|one| one.key == JoinKey::RecordFunction);
        let key = if has_exact {
            JoinKey::RecordFunction
        } else {
            JoinKey::External
        };
        let mut by_number: FxHashMap<u64, Vec<(TrackId, u32)>> = FxHashMap::default();
        for slice in slices.iter().filter(|slice| slice.key == key) {
            let at = (slice.track, slice.index);
            by_number.entry(slice.number).or_default().push(at);
        }
        let (mut found, mut links) = (0, Vec::new());
        for (at, (number, name, token)) in operators.list.iter().enumerate() {
            if at % LOOK_EVERY == 0 {
                cancel.check()?;
            }
            let Some(places) = by_number.get(number) else {
                continue;
            };
            found += 1;
            let wanted = self.names.get(*name as usize).map_or("", |name| &**name);
            let is_same = |(track, index): &&(TrackId, u32)| {
                let own = trace.slices(*track).name.get(*index as usize);
                own.is_some_and(|own| trace.name(*own) == wanted)
            };
            if let Some((track, index)) = places.iter().find(is_same) {
                let link = Link {
                    track: *track,
                    index: *index,
                    name: *name,
                };
                links.push((link, *token));
            }
        }
        let same_name = links.len() as u64;
        if found == 0 {
            joined.outcome = Err(NotJoined::NoSlices);
        } else if same_name * 2 <= found {
            joined.outcome = Err(NotJoined::OtherNames { found, same_name });
        } else {
            joined.outcome = Ok(key);
            joined.joined = same_name;
            let attached = u32::try_from(joined.attached).unwrap_or(u32::MAX);
            for (link, token) in links {
                let slices = trace.slices(link.track);
                let id = slices.id(link.index as usize);
                self.operator_of.entry(id).or_insert((attached, token));
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Sums the times of the joined slices by the name of the operator.
    pub fn times(
        &self,
        trace: &Trace,
        cancel: &Cancel,
    ) -> Result<FxHashMap<&str, OperatorTimes>, Cancelled> {
        let mut sums: FxHashMap<&str, OperatorTimes> = FxHashMap::default();
        if self.links.is_empty() {
            return Ok(sums);
        }
        let on_device = launched::by_slice(trace, is_numbered, cancel)?;
        let has_devices = !on_device.is_empty();
        for (at, link) in self.links.iter().enumerate() {
            if at % LOOK_EVERY == 0 {
                cancel.check()?;
            }
            let index = link.index as usize;
            let name = self
                .names
                .get(link.name as usize)
                .map_or("", |name| &**name);
            let sum = sums.entry(name).or_default();
            sum.joined += 1;
            let dur = trace.slices(link.track).dur.get(index);
            sum.host_ps += dur.map_or(0, |dur| i128::from(dur.ps()));
            if has_devices {
                let own = on_device.get(link.track, index).total_ps;
                *sum.device_ps.get_or_insert(0) += own;
            }
        }
        Ok(sums)
    }
}

/// Calls `visit` for each fact that only the execution trace of a run has about a slice: `op_schema`, `seq_id`, the
/// tensors. Keys begin with `execution_trace.`. Visits nothing for other events.
pub fn facts(
    trace: &Trace,
    event: EventId,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<(), ArgError> {
    /// What the slice itself has.
    const ON_SLICE: [&str; 5] = [
        "rf_id",
        "input_shapes",
        "input_types",
        "input_strides",
        "tid",
    ];
    if trace.attached().is_empty() {
        return Ok(());
    }
    let Ok(join) = ExecutionTraceJoin::from_trace(trace, &Cancel::default()) else {
        return Ok(());
    };
    let Some((attached, token)) = join.operator_of.get(&event) else {
        return Ok(());
    };
    let attached = trace.attached().get(*attached as usize);
    let attached = attached.ok_or(ArgError::BadToken)?;
    attached.operator_facts(*token, &mut |key, value| {
        if !ON_SLICE.contains(&key) {
            visit(&format!("execution_trace.{key}"), value);
        }
    })
}

/// Returns whether slices of a category have a number.
fn is_numbered(category: &str) -> bool {
    matches!(
        Category::from_name(category),
        Some(Category::Operator | Category::Annotation)
    )
}

/// Returns the file that an attached trace belongs to: that of its rank, else that of its process, else the only one.
fn file_of(trace: &Trace, attached: usize) -> Result<usize, NotJoined> {
    let execution_trace = trace.attached().get(attached);
    let own = execution_trace.and_then(|trace| trace.files().first());
    let pid = own.and_then(|own| match own.fact(PID) {
        Some(FactValue::Int(pid)) => Some(*pid),
        _ => None,
    });
    let rank = own.and_then(|own| own.spec.rank);
    let files = trace.files();
    let pids: Vec<FxHashSet<i64>> = (0..files.len())
        .map(|file| {
            let tracks = trace.tracks().iter();
            let host = tracks.filter(|track| track.file == file && is_host(track.kind));
            host.filter_map(|track| track.pid).collect()
        })
        .collect();
    let may_be =
        |file: usize| pid.is_none_or(|pid| pids[file].is_empty() || pids[file].contains(&pid));
    let only = |files: &mut dyn Iterator<Item = usize>| match (files.next(), files.next()) {
        (Some(file), None) => Some(file),
        _ => None,
    };
    let all = 0..files.len();
    if rank.is_some() && files.len() > 1 {
        let of_rank = only(&mut all.clone().filter(|file| files[*file].spec.rank == rank));
        if let Some(file) = of_rank.filter(|file| may_be(*file)) {
            return Ok(file);
        }
    }
    let of_process = |file: &usize| pid.is_some_and(|pid| pids[*file].contains(&pid));
    if let Some(file) = only(&mut all.clone().filter(of_process)) {
        return Ok(file);
    }
    let mut possible = all.filter(|file| may_be(*file));
    match (possible.next(), possible.next()) {
        (None, _) => Err(NotJoined::OtherProcess),
        (Some(file), None) => Ok(file),
        (Some(_), Some(_)) => Err(NotJoined::SeveralFiles),
    }
}

const fn is_host(kind: TrackKind) -> bool {
    matches!(kind, TrackKind::Thread)
}

/// Returns the slices of a file with the numbers of these operators, in the order of tracks.
fn numbered_slices(
    trace: &Trace,
    file: usize,
    operators: &Operators,
    cancel: &Cancel,
) -> Result<Vec<NumberedSlice>, Cancelled> {
    let wanted: FxHashSet<u64> = operators.list.iter().map(|(number, ..)| *number).collect();
    let mut is_class = vec![false; trace.name_count()];
    for (category, _) in trace.by_category() {
        if let Some(slot) = is_class.get_mut(category.index()) {
            *slot = is_numbered(trace.name(category));
        }
    }
    let tracks = trace.tracks().iter();
    let tracks = tracks.filter(|track| track.file == file && is_host(track.kind) && !track.derived);
    let chunks =
        parallel::track_chunks(tracks.map(|track| (track.id, 0..trace.slices(track.id).len())));
    let parts = parallel::scan(&chunks, cancel, Vec::new, |found, chunk| {
        let slices = trace.slices(chunk.track);
        for index in chunk.indexes.clone() {
            if is_class.get(slices.category.get(index).index()) != Some(&true) {
                continue;
            }
            // A file that changed has no arguments any more: its slices have no numbers.
            let _ = trace.args_of_slice(chunk.track, index, NUMBERS, &mut |key, value| {
                let number = match value {
                    ArgValue::Int(number) => u64::try_from(number).ok(),
                    ArgValue::Uint(number) => Some(number),
                    ArgValue::Str(text) => text.parse().ok(),
                    _ => None,
                };
                if let Some(number) = number.filter(|number| wanted.contains(number)) {
                    found.push(NumberedSlice {
                        number,
                        key: if key == NUMBERS.get(0) {
                            JoinKey::RecordFunction
                        } else {
                            JoinKey::External
                        },
                        track: chunk.track,
                        index: u32::try_from(index).unwrap_or(u32::MAX),
                    });
                }
            });
        }
    })?;
    let mut found: Vec<NumberedSlice> = parts.into_iter().flatten().collect();
    found.sort_unstable_by_key(|slice| (slice.track, slice.index, slice.number));
    Ok(found)
}
