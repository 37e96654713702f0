//! Stacks: from the text in the file, or from the Python functions that were open.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto::EVALUATE_FUNCTION;
use stepscope_model::{Cancelled, Time};
use stepscope_store::Trace;

use super::Shared;
use super::args::{NO_SEQUENCE, NO_STACK};
use super::links::{Links, Position};
use crate::torch::averages::TorchGrouping;
use crate::torch::event_class::{EventClass, Words};
use crate::torch::thread_events::{self, NO_EVENT, ThreadEvents};
use stepscope_analysis::parallel::Cancel;

/// Python functions that torch leaves out of stacks: substrings of an entry that occur together.
const FILTERED_FRAMES: [(&str, &str); 6] = [
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
];

fn is_shown(frame: &str) -> bool {
    FILTERED_FRAMES
        .iter()
        .all(|(file, function)| !(frame.contains(file) && frame.contains(function)))
}

/// Stacks of functions that were open on one thread, each with the one that remains without its innermost
/// function.
pub(super) struct Open {
    /// Stack of each event.
    of: Vec<u32>,
    /// Each stack: the enclosing stack, and its innermost function; 0 is the empty one.
    chains: Vec<(u32, u32)>,
}

fn open_functions(trace: &Trace, words: &Words, thread_events: &ThreadEvents<'_>) -> Open {
    let mut found = Open {
        of: vec![0; thread_events.len()],
        chains: vec![(0, 0)],
    };
    let mut numbers: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut shown: FxHashMap<u32, bool> = FxHashMap::default();
    let mut frames = thread_events
        .parts
        .iter()
        .flat_map(|(_, slices)| (0..slices.len()).map(move |index| (slices, index)))
        .filter(|(slices, index)| {
            words.class(slices.name[*index], slices.category.get(*index)) == EventClass::PYTHON
        })
        .peekable();
    let mut open: Vec<(Time, u32)> = Vec::new();
    for at in 0..thread_events.len() {
        let class = thread_events.class[at];
        if class.on_device() || class.is_memory() {
            continue;
        }
        let now = thread_events.start(at);
        while let Some((slices, index)) =
            frames.next_if(|(slices, index)| slices.start[*index] <= now)
        {
            let start = slices.start[index];
            while open.last().is_some_and(|(end, _)| *end <= start) {
                open.pop();
            }
            let around = open.last().map_or(0, |(_, chain)| *chain);
            let name = slices.name[index];
            let is_shown = shown
                .entry(name.0)
                .or_insert_with(|| is_shown(trace.name(name)));
            let chain = if *is_shown {
                *numbers.entry((around, name.0)).or_insert_with(|| {
                    found.chains.push((around, name.0));
                    u32::try_from(found.chains.len() - 1).unwrap_or(0)
                })
            } else {
                around
            };
            open.push((slices.end(index), chain));
        }
        found.of[at] = open.last().map_or(0, |(_, chain)| *chain);
    }
    found
}

/// Finds the functions that were open on each thread that has functions, where stacks are requested.
pub(super) fn open(
    trace: &Trace,
    words: &Words,
    threads: &[ThreadEvents<'_>],
    by: TorchGrouping,
    cancel: &Cancel,
) -> Result<Vec<Option<Open>>, Cancelled> {
    if by.stack == 0 {
        return Ok(Vec::new());
    }
    thread_events::each(threads, cancel, |_, thread_events| {
        thread_events
            .has_python
            .then(|| open_functions(trace, words, thread_events))
    })
}

/// Replaces the file's stack texts by lists, and adds lists for events without text.
pub(super) fn fill(
    trace: &Trace,
    open: Vec<Option<Open>>,
    threads: &mut [ThreadEvents<'_>],
    shared: &mut Shared,
) {
    let mut spelled: FxHashMap<u32, u32> = FxHashMap::default();
    for (thread_events, open) in threads.iter_mut().zip(open) {
        let lists: Vec<u32> = open
            .as_ref()
            .map(|open| {
                let mut list = Vec::new();
                (0..open.chains.len())
                    .map(|chain| {
                        list.clear();
                        let mut chain = chain;
                        while chain != 0 {
                            let (around, name) = open.chains[chain];
                            let text = trace.name(stepscope_model::NameId(name));
                            list.push(shared.texts.id(text));
                            chain = around as usize;
                        }
                        shared.lists.id(&list)
                    })
                    .collect()
            })
            .unwrap_or_default();
        thread_events.stack.resize(thread_events.len(), NO_STACK);
        for at in 0..thread_events.len() {
            let class = thread_events.class[at];
            let text = thread_events.stack[at];
            thread_events.stack[at] = if class.on_device() || class.is_memory() {
                0
            } else if text == NO_STACK {
                let chain = open.as_ref().map_or(0, |open| open.of[at]);
                lists.get(chain as usize).copied().unwrap_or(0)
            } else {
                *spelled.entry(text).or_insert_with(|| {
                    let stack = shared.texts.get(text - 1).to_owned();
                    let frames = stack.split(';').map(str::trim);
                    let list: Vec<u32> = frames
                        .filter(|frame| !frame.is_empty() && is_shown(frame))
                        .map(|frame| shared.texts.id(frame))
                        .collect();
                    shared.lists.id(&list)
                })
            };
        }
    }
}

/// Returns whether any event has a stack.
pub(super) fn any(threads: &[ThreadEvents<'_>]) -> bool {
    let mut stacks = threads
        .iter()
        .flat_map(|thread_events| &thread_events.stack);
    stacks.any(|stack| *stack != 0)
}

/// Gives calls the stacks of their operators, and device work those of its owner.
pub(super) fn add_operator_stacks(
    threads: &mut [ThreadEvents<'_>],
    calls: &[(Position, Position)],
    links: &Links,
) {
    let stack = |threads: &[ThreadEvents<'_>], of: Position| {
        let thread_events = threads.get(of.thread_events as usize);
        thread_events
            .and_then(|thread_events| thread_events.stack.get(of.at as usize).copied())
            .unwrap_or(0)
    };
    for (call, operator) in calls {
        let stack = stack(threads, *operator);
        threads[call.thread_events as usize].stack[call.at as usize] = stack;
    }
    for (number, from) in links.from.iter().enumerate() {
        for (at, from) in from.iter().enumerate() {
            if threads[number].class[at].on_device() && !threads[number].class[at].is_label() {
                let stack = stack(threads, *from);
                threads[number].stack[at] = stack;
            }
        }
    }
}

/// Backward functions, from the names of events.
struct Backward {
    /// For each name number: the number of the function that the engine's evaluation of this name evaluates,
    /// [`ITSELF`] for the name of no evaluation.
    evaluates: Vec<u32>,
}

/// Value of `evaluates` for a name that is no evaluation.
const ITSELF: u32 = u32::MAX;
/// Value of `evaluates` if no event has the name of the evaluated function.
const UNNAMED: u32 = u32::MAX - 1;

impl Backward {
    fn from_trace(trace: &Trace, words: &Words) -> Self {
        let numbers = || (0_u32..).take(words.len());
        let function = |number: u32| {
            let node = words.text(trace, number).strip_prefix(EVALUATE_FUNCTION)?;
            node.strip_prefix(": ")
        };
        let mut functions: FxHashMap<&str, u32> = numbers()
            .filter_map(function)
            .map(|function| (function, UNNAMED))
            .collect();
        for number in numbers() {
            if let Some(known) = functions.get_mut(words.text(trace, number)) {
                *known = number;
            }
        }
        let evaluates = numbers().map(|number| {
            let number = function(number).and_then(|function| functions.get(function));
            number.copied().unwrap_or(ITSELF)
        });
        Self {
            evaluates: evaluates.collect(),
        }
    }

    /// Returns whether the event is a backward function: the engine's evaluation has its name, or it has the
    /// thread of its forward operator.
    fn is_function(&self, words: &Words, thread_events: &ThreadEvents<'_>, at: usize) -> bool {
        let forward_thread = thread_events
            .sequence
            .get(at)
            .map_or(0, |sequence| sequence[1]);
        let parent = thread_events.parent[at];
        if forward_thread == 0 && parent == NO_EVENT {
            return false;
        }
        let name = words.shown(thread_events.name(at));
        let evaluates = |name: u32| self.evaluates.get(name as usize).copied();
        if evaluates(name) != Some(ITSELF) {
            return false;
        }
        forward_thread > 0
            || evaluates(words.shown(thread_events.name(parent as usize))) == Some(name)
    }
}

/// Gives events inside a backward function the stack of its forward operator, by sequence number and thread.
///
/// torch numbers threads itself; a number means the thread of the file with most forward operators of the
/// sequence numbers that backward functions use with it.
pub(super) fn add_backward_stacks(trace: &Trace, words: &Words, threads: &mut [ThreadEvents<'_>]) {
    let backward = Backward::from_trace(trace, words);
    // For each thread: the backward function around each event. Parents come before children.
    let functions: Vec<Vec<u32>> = threads
        .iter_mut()
        .map(|thread_events| {
            if !thread_events.has_host {
                return Vec::new();
            }
            let mut function = vec![NO_EVENT; thread_events.len()];
            for at in 0..thread_events.len() {
                if thread_events.class[at].on_device() {
                    continue;
                }
                // An event that was merged into its parent is replaced by the parent.
                let mut parent = thread_events.parent[at];
                while parent != NO_EVENT && thread_events.class[parent as usize].is_merged() {
                    parent = thread_events.parent[parent as usize];
                }
                thread_events.parent[at] = parent;
                function[at] = if backward.is_function(words, thread_events, at) {
                    u32::try_from(at).unwrap_or(NO_EVENT)
                } else if parent == NO_EVENT {
                    NO_EVENT
                } else {
                    function[parent as usize]
                };
            }
            function
        })
        .collect();
    if functions.iter().flatten().all(|at| *at == NO_EVENT) {
        return;
    }
    let sequence = |thread_events: &ThreadEvents<'_>, at: usize| {
        thread_events
            .sequence
            .get(at)
            .copied()
            .unwrap_or([NO_SEQUENCE, 0])
    };
    let mut forward: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut candidates: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (thread, (thread_events, functions)) in (0_u32..).zip(threads.iter().zip(&functions)) {
        for (at, function) in functions.iter().enumerate() {
            let class = thread_events.class[at];
            if *function != NO_EVENT || class.on_device() || class.is_merged() {
                continue;
            }
            let [number, forward_thread] = sequence(thread_events, at);
            forward
                .entry((number, thread))
                .or_insert(thread_events.stack[at]);
            if number != NO_SEQUENCE && forward_thread == 0 {
                let threads = candidates.entry(number).or_default();
                if !threads.contains(&thread) {
                    threads.push(thread);
                }
            }
        }
    }
    let mut votes: FxHashMap<u32, FxHashMap<u32, u32>> = FxHashMap::default();
    for thread_events in &*threads {
        for (at, [number, forward_thread]) in thread_events.sequence.iter().enumerate() {
            if *forward_thread == 0 || thread_events.class[at].is_merged() {
                continue;
            }
            for thread in candidates.get(number).into_iter().flatten() {
                *votes
                    .entry(*forward_thread)
                    .or_default()
                    .entry(*thread)
                    .or_default() += 1;
            }
        }
    }
    let thread_of: FxHashMap<u32, u32> = votes
        .into_iter()
        .filter_map(|(number, votes)| {
            let best = votes
                .into_iter()
                .max_by_key(|(thread, votes)| (*votes, std::cmp::Reverse(*thread)))?;
            Some((number, best.0))
        })
        .collect();
    for (thread_events, functions) in threads.iter_mut().zip(functions) {
        for (at, function) in functions.into_iter().enumerate() {
            if function == NO_EVENT {
                continue;
            }
            let [number, forward_thread] = sequence(thread_events, function as usize);
            let stack = thread_of
                .get(&forward_thread)
                .and_then(|thread| forward.get(&(number, *thread)));
            thread_events.stack[at] = stack.copied().unwrap_or(0);
        }
    }
}
