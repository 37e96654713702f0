//! Trees of events by torch's rules, one thread at a time.

use stepscope_model::Time;

use super::event_class::Words;
use super::thread_events::{NO_EVENT, ThreadEvents};

/// Result of [`nest`].
pub(super) struct Nested {
    /// Position of the event around each.
    pub(super) parent: Vec<u32>,
    /// Calls of the runtime without an enclosing operator.
    pub(super) unlinked: Vec<u32>,
}

/// Gives each event of the host its parent: the innermost event of its thread that contains it. A partial overlap
/// is no containment, and it closes the overlapped event.
pub(super) fn nest(thread_events: &ThreadEvents<'_>) -> Nested {
    struct Open {
        at: u32,
        end: Time,
        in_operator: bool,
    }
    let mut nested = Nested {
        parent: vec![NO_EVENT; thread_events.len()],
        unlinked: Vec::new(),
    };
    let mut open: Vec<Open> = Vec::new();
    for (at, class) in thread_events.class.iter().enumerate() {
        if !class.nests() {
            continue;
        }
        let (start, end) = thread_events.times(at);
        while open
            .last()
            .is_some_and(|top| start >= top.end || end > top.end)
        {
            open.pop();
        }
        let number = u32::try_from(at).unwrap_or(NO_EVENT);
        let mut in_operator = false;
        if let Some(top) = open.last() {
            nested.parent[at] = top.at;
            in_operator = top.in_operator;
        }
        if class.is_call() && !in_operator {
            nested.unlinked.push(number);
        }
        open.push(Open {
            at: number,
            end,
            in_operator: in_operator || (class.is_frontend() && !class.is_label()),
        });
    }
    nested
}

/// Figures of one thread: see the columns of [`ThreadEvents`].
#[derive(Default)]
pub(super) struct Figures {
    pub(super) device_us: Vec<f64>,
    pub(super) self_cpu_us: Vec<f64>,
    pub(super) self_device_us: Vec<f64>,
    pub(super) self_memory: Vec<[i64; 2]>,
    /// Positions of events that were merged into their parents.
    pub(super) merged_into_parent: Vec<u32>,
}

/// Sums over the children of an event so far, or the figures of its only child.
#[derive(Clone, Copy, Default)]
struct Below {
    cpu_us: f64,
    device_us: f64,
    memory: [i64; 2],
}

/// An only child that may be merged into its parent.
#[derive(Clone, Copy)]
struct Child {
    at: u32,
    name: u32,
    kernels_us: f64,
    below: Below,
}

struct Open {
    at: u32,
    name: u32,
    cpu_us: f64,
    children: u32,
    below: Below,
    last: Child,
}

/// Computes the figures of each event of the host and of all events below it, children in their order.
///
/// An only child is merged into its parent if both have the same name, repeatedly. As in torch, the child's
/// kernels replace those of the parent.
pub(super) fn figures(
    thread_events: &ThreadEvents<'_>,
    kernels_us: Vec<f64>,
    words: &Words,
    microseconds: impl Fn(Time) -> f64,
) -> Figures {
    let count = thread_events.len();
    let with_device = !kernels_us.is_empty();
    let of_memory = if thread_events.memory.is_empty() {
        0
    } else {
        count
    };
    let mut found = Figures {
        device_us: kernels_us,
        self_cpu_us: vec![0.0; count],
        self_device_us: vec![0.0; if with_device { count } else { 0 }],
        self_memory: vec![[0; 2]; of_memory],
        merged_into_parent: Vec::new(),
    };
    let mut open: Vec<Open> = Vec::new();
    let close = |open: &mut Vec<Open>, found: &mut Figures| {
        let Some(mut top) = open.pop() else { return };
        let at = top.at as usize;
        let mut kernels_us = found.device_us.get(at).copied().unwrap_or(0.0);
        if top.children == 1 && top.last.name == top.name {
            found.merged_into_parent.push(top.last.at);
            top.below = top.last.below;
            kernels_us = top.last.kernels_us;
        }
        let device_us = kernels_us + top.below.device_us;
        found.self_cpu_us[at] = top.cpu_us - top.below.cpu_us;
        if with_device {
            found.device_us[at] = device_us;
            found.self_device_us[at] = device_us - top.below.device_us;
        }
        let mut memory = [0; 2];
        if let Some(own) = found.self_memory.get_mut(at) {
            memory = thread_events.memory[at];
            *own = [
                memory[0].saturating_sub(top.below.memory[0]),
                memory[1].saturating_sub(top.below.memory[1]),
            ];
        }
        if let Some(parent) = open.last_mut() {
            parent.children += 1;
            parent.below.cpu_us += top.cpu_us;
            parent.below.device_us += device_us;
            for (sum, bytes) in parent.below.memory.iter_mut().zip(memory) {
                *sum = sum.saturating_add(bytes);
            }
            parent.last = Child {
                at: top.at,
                name: top.name,
                kernels_us,
                below: top.below,
            };
        }
    };
    for (at, class) in thread_events.class.iter().enumerate() {
        if !class.nests() {
            continue;
        }
        let parent = thread_events.parent[at];
        while open.last().is_some_and(|top| top.at != parent) {
            close(&mut open, &mut found);
        }
        let (start, end) = thread_events.times(at);
        let name = words.shown(thread_events.name(at));
        open.push(Open {
            at: u32::try_from(at).unwrap_or(NO_EVENT),
            name,
            cpu_us: microseconds(end) - microseconds(start),
            children: 0,
            below: Below::default(),
            last: Child {
                at: NO_EVENT,
                name: NO_EVENT,
                kernels_us: 0.0,
                below: Below::default(),
            },
        });
    }
    while !open.is_empty() {
        close(&mut open, &mut found);
    }
    found
}
