//! Trees of events by torch's rules.

use rustc_hash::FxHashMap;

use super::events::{Device, FunctionEvent, NO_EVENT};
use super::texts::Texts;

/// A kernel and the event that it belongs to.
pub(super) struct Link {
    at: usize,
    above: bool,
    length_us: f64,
}

impl Link {
    /// To the operator at this position.
    pub(super) fn to(at: usize, length_us: f64) -> Self {
        Self {
            at,
            above: false,
            length_us,
        }
    }

    /// To the operator around the call at this position.
    pub(super) fn above(at: usize, length_us: f64) -> Self {
        Self {
            at,
            above: true,
            length_us,
        }
    }
}

/// Gives each event of the host its parent: the innermost event of its thread that contains it. A
/// partial overlap is no containment, and it closes the event that is overlapped.
pub(super) fn nest(events: &mut [FunctionEvent]) {
    let mut open: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for index in 0..events.len() {
        let event = &events[index];
        if event.is_async || event.device != Device::Cpu {
            continue;
        }
        let (start, end) = (event.start_us, event.end_us);
        let number = u32::try_from(index).unwrap_or(NO_EVENT);
        let stack = open.entry(event.thread).or_default();
        while let Some(top) = stack.last() {
            let parent = &mut events[*top as usize];
            if start >= parent.end_us || end > parent.end_us {
                stack.pop();
                continue;
            }
            let before = std::mem::replace(&mut parent.last_child, number);
            if before == 0 {
                parent.first_child = number;
            } else {
                events[before as usize].next = number;
            }
            events[index].parent = *top;
            break;
        }
        stack.push(number);
    }
}

/// Adds a kernel to its operator. Async events launch nothing.
pub(super) fn link(events: &mut [FunctionEvent], link: &Link) {
    let at = if link.above {
        let mut at = link.at;
        while let Some(event) = events.get(at).filter(|event| !event.is_frontend) {
            at = event.parent as usize;
        }
        at
    } else {
        link.at
    };
    if let Some(event) = events.get_mut(at)
        && event.device == Device::Cpu
        && !event.is_async
    {
        event.kernels_us += link.length_us;
    }
}

/// Merges only children that bear their parent's name into the parent, until there are none.
///
/// As in torch, all such children of one pass are found before any is taken out, and the parent
/// takes over the child's kernels in place of its own.
pub(super) fn without_repetitions(mut events: Vec<FunctionEvent>) -> Vec<FunctionEvent> {
    let mut gone = vec![false; events.len()];
    loop {
        let mut found = false;
        for index in 0..events.len() {
            let parent = events[index].parent;
            if gone[index] || parent == NO_EVENT {
                continue;
            }
            let above = &events[parent as usize];
            if above.name != events[index].name || above.first_child != above.last_child {
                continue;
            }
            let only = &mut events[index];
            let (first, last) = (only.first_child, only.last_child);
            (only.first_child, only.last_child) = (0, 0);
            let kernels_us = std::mem::take(&mut only.kernels_us);
            let mut child = first;
            while child != 0 {
                events[child as usize].parent = parent;
                child = events[child as usize].next;
            }
            let above = &mut events[parent as usize];
            (above.first_child, above.last_child) = (first, last);
            above.kernels_us = kernels_us;
            gone[index] = true;
            found = true;
        }
        if !found {
            break;
        }
    }
    let mut moved = vec![NO_EVENT; events.len()];
    let mut next = 0;
    for (index, gone) in gone.iter().enumerate() {
        if !gone {
            moved[index] = next;
            next += 1;
        }
    }
    let at = |old: u32| moved.get(old as usize).copied().unwrap_or(NO_EVENT);
    // The first event lies in no other: it stays, and stands for none.
    let beside = |old: u32| if old == 0 { 0 } else { at(old) };
    let mut gone = gone.into_iter();
    events.retain_mut(|event| {
        event.parent = at(event.parent);
        event.first_child = beside(event.first_child);
        event.last_child = beside(event.last_child);
        event.next = beside(event.next);
        !gone.next().unwrap_or(false)
    });
    events
}

/// Kernels of each event of the host and of all below it; the interval itself on a device.
pub(super) fn device_times(events: &mut [FunctionEvent]) {
    for index in (0..events.len()).rev() {
        let event = &events[index];
        let time = if event.is_async {
            0.0
        } else if event.device == Device::Cpu {
            let mut below = 0.0;
            let mut child = event.first_child;
            while child != 0 {
                let inside = &events[child as usize];
                below += inside.device_time_us;
                child = inside.next;
            }
            event.kernels_us + below
        } else {
            event.end_us - event.start_us
        };
        events[index].device_time_us = time;
    }
}

/// Whether the event is a backward function: the engine's evaluation of it bears its name, or it
/// knows the thread of its forward operator.
fn is_backward(events: &[FunctionEvent], event: &FunctionEvent, texts: &Texts) -> bool {
    const EVALUATION: &str = "autograd::engine::evaluate_function: ";
    let name = texts.get(event.name);
    if name.starts_with(EVALUATION) {
        return false;
    }
    if event.forward_thread > 0 {
        return true;
    }
    let parent = events.get(event.parent as usize);
    parent.is_some_and(|parent| {
        texts
            .get(parent.name)
            .strip_prefix(EVALUATION)
            .is_some_and(|evaluated| evaluated == name)
    })
}

/// Gives what runs in a backward function the stack of its forward operator, by sequence number
/// and thread.
///
/// torch numbers threads in its own way; the thread of the file that a number stands for is the one
/// with most forward operators of the sequence numbers that backward functions name with it.
pub(super) fn backward_stacks(events: &mut [FunctionEvent], texts: &Texts) {
    // Parents stand before their children.
    let mut function: Vec<u32> = vec![NO_EVENT; events.len()];
    for index in 0..events.len() {
        let event = &events[index];
        function[index] = if is_backward(events, event, texts) {
            u32::try_from(index).unwrap_or(NO_EVENT)
        } else if event.parent == NO_EVENT {
            NO_EVENT
        } else {
            function[event.parent as usize]
        };
    }
    let mut forward: FxHashMap<(i64, u32), u32> = FxHashMap::default();
    let mut candidates: FxHashMap<i64, Vec<u32>> = FxHashMap::default();
    for (event, function) in events.iter().zip(&function) {
        if *function != NO_EVENT || event.device != Device::Cpu {
            continue;
        }
        forward
            .entry((event.sequence, event.thread))
            .or_insert(event.stack);
        if event.sequence >= 0 && event.forward_thread == 0 {
            let threads = candidates.entry(event.sequence).or_default();
            if !threads.contains(&event.thread) {
                threads.push(event.thread);
            }
        }
    }
    let mut votes: FxHashMap<i64, FxHashMap<u32, u32>> = FxHashMap::default();
    for event in events.iter().filter(|event| event.forward_thread > 0) {
        for thread in candidates.get(&event.sequence).into_iter().flatten() {
            *votes
                .entry(event.forward_thread)
                .or_default()
                .entry(*thread)
                .or_default() += 1;
        }
    }
    let thread_of: FxHashMap<i64, u32> = votes
        .into_iter()
        .filter_map(|(number, votes)| {
            let best = votes
                .into_iter()
                .max_by_key(|(thread, votes)| (*votes, std::cmp::Reverse(*thread)))?;
            Some((number, best.0))
        })
        .collect();
    for (index, function) in function.into_iter().enumerate() {
        let Some(function) = events.get(function as usize) else {
            continue;
        };
        let stack = thread_of
            .get(&function.forward_thread)
            .and_then(|thread| forward.get(&(function.sequence, *thread)));
        events[index].stack = stack.copied().unwrap_or(0);
    }
}
