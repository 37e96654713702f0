//! The compiler's memory plan: what is alive at each point of a program, by memory space.
//!
//! Two rules count live bytes. XProf's ([`Space::xprof`]) takes arguments, results and constants as alive from start
//! to end. The true lifetimes ([`Space::live`]) count a result from its first write, a donated
//! argument until its last use, and what else a result's memory holds before.
//! `docs/reference/hlo.md` has both. All sizes are bytes; the axis is program order, not time.

mod advice;
mod heap;
mod lifetimes;
mod uses;

pub use crate::order::program_order;
pub use advice::{Advice, MemoryAdvice, advice};
pub use heap::HeapUse;
pub use lifetimes::{Class, Lifetime, LiveBytes};

use rustc_hash::FxHashMap;
use stepscope_formats::hlo::{BufferAllocation, BufferAssignment, InstructionAt, Module, Shape};

/// Memory space of the device's main memory.
pub const MAIN_SPACE: i64 = 0;
/// Memory space of the host, as TPU programs use it.
pub const HOST_SPACE: i64 = 5;

/// What XLA's `memory_analysis()` reports for a memory space: sums over whole allocations, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Arguments.
    pub argument: u64,
    /// Results, including those in the memory of donated arguments.
    pub output: u64,
    /// Results in the memory of donated arguments.
    pub alias: u64,
    /// Memory used only while the program runs.
    pub temp: u64,
    /// Constants.
    pub constant: u64,
}

/// The plan of one memory space.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Number of the memory space (color).
    pub number: i64,
    /// Sums over allocations.
    pub sizes: Sizes,
    /// Live bytes by XProf's rule.
    pub xprof: HeapUse,
    /// Live bytes by true lifetimes.
    pub live: LiveBytes,
}

/// The memory plan of a module.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The memory spaces in use, by number.
    pub spaces: Vec<Space>,
}

/// A buffer with what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Buffer<'a> {
    pub(crate) size: u64,
    pub(crate) space: i64,
    /// Position of its allocation in the plan of the file.
    pub(crate) allocation: usize,
    /// The instruction that defines it.
    pub(crate) instruction: Option<InstructionAt>,
    pub(crate) shape_index: &'a [i64],
}

/// The buffers of a module by their numbers.
pub(crate) struct Buffers<'a> {
    pub(crate) plan: &'a BufferAssignment,
    pub(crate) by_id: FxHashMap<i64, Buffer<'a>>,
}

impl<'a> Buffers<'a> {
    fn new(module: &Module, plan: &'a BufferAssignment) -> Self {
        let by_number: FxHashMap<u64, InstructionAt> = (0..)
            .zip(&module.instructions)
            .map(|(at, instruction)| (instruction.id, at))
            .collect();
        let mut by_name: FxHashMap<&str, InstructionAt> = FxHashMap::default();
        if plan.buffers.iter().any(|one| one.instruction_id.is_none()) {
            let names = module.instructions.iter().map(|one| &*one.name);
            by_name.extend(names.zip(0..));
        }
        let mut places = FxHashMap::default();
        for (at, allocation) in plan.allocations.iter().enumerate() {
            for assigned in &allocation.assigned {
                places.insert(assigned.buffer_id, at);
            }
        }
        let by_id = plan
            .buffers
            .iter()
            .filter_map(|buffer| {
                let allocation = *places.get(&buffer.id)?;
                let instruction = match buffer.instruction_id {
                    Some(id) => by_number.get(&id),
                    None => by_name.get(&*buffer.instruction_name),
                };
                let buffer_of = Buffer {
                    size: buffer.size,
                    space: buffer.space,
                    allocation,
                    instruction: instruction.copied(),
                    shape_index: &buffer.shape_index,
                };
                Some((buffer.id, buffer_of))
            })
            .collect();
        Self { plan, by_id }
    }

    /// Returns the shape of a buffer as XProf takes it: the part that the last number of the index names.
    pub(crate) fn xprof_shape<'m>(&self, module: &'m Module, id: i64) -> Option<&'m Shape> {
        let buffer = self.by_id.get(&id)?;
        let shape = &module.instruction(buffer.instruction?).shape;
        match buffer.shape_index.last() {
            Some(last) => shape.part(&[*last]),
            None => Some(shape),
        }
    }
}

impl Sizes {
    fn any(&self) -> bool {
        *self != Self::default()
    }

    fn add(&mut self, allocation: &BufferAllocation) {
        let size = |is: bool| if is { allocation.size } else { 0 };
        let add = |sum: &mut u64, is: bool| *sum = sum.saturating_add(size(is));
        add(&mut self.argument, allocation.is_parameter);
        add(&mut self.output, allocation.may_be_output);
        add(
            &mut self.alias,
            allocation.is_parameter && allocation.is_aliased_with_output,
        );
        add(&mut self.temp, allocation.is_temporary());
        add(&mut self.constant, allocation.is_constant);
    }
}

impl Plan {
    /// Reads the plan of a module; `None` if the file has none.
    pub fn new(module: &Module) -> Option<Self> {
        let plan = module.buffers.as_ref()?;
        let buffers = Buffers::new(module, plan);
        let mut numbers: Vec<i64> = plan.allocations.iter().map(|one| one.space).collect();
        numbers.push(MAIN_SPACE);
        numbers.sort_unstable();
        numbers.dedup();
        let lifetimes = lifetimes::Lifetimes::new(module, &buffers);
        let spaces = numbers.into_iter().map(|number| {
            let mut sizes = Sizes::default();
            for allocation in plan.allocations.iter().filter(|one| one.space == number) {
                sizes.add(allocation);
            }
            let xprof = HeapUse::new(module, &buffers, number);
            let live = lifetimes.live_bytes(&buffers, number, &xprof);
            Space {
                number,
                sizes,
                xprof,
                live,
            }
        });
        let is_used = |space: &Space| space.number == MAIN_SPACE || space.sizes.any();
        Some(Self {
            spaces: spaces.filter(is_used).collect(),
        })
    }
}
