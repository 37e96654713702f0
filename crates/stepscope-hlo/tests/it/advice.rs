//! Advice on programs whose wasted memory is known by construction.

use stepscope_formats::hlo::{
    Alias, Assigned, BufferAllocation, BufferAssignment, Computation, ElementType, HeapEvent,
    HeapEventKind, HeapTrace, Instruction, Layout, LogicalBuffer, Module, Shape,
};
use stepscope_hlo::memory::{Advice, MemoryAdvice, Plan, advice};

const KIB: u64 = 1024;

/// A program whose instructions run in the order in which they are added. Sizes are KiB.
#[derive(Default)]
struct Builder {
    instructions: Vec<Instruction>,
    plan: BufferAssignment,
    /// Size of each instruction's value, and whether it is in the heap.
    heap: Vec<Option<u64>>,
}

fn vector(kib: u64) -> Shape {
    Shape {
        element: ElementType::from_number(2), // s8
        dimensions: [i64::try_from(kib * KIB).unwrap()].into(),
        layout: Some(Box::default()),
        ..Shape::default()
    }
}

impl Builder {
    fn add(&mut self, opcode: &str, kib: u64, operands: &[u32]) -> u32 {
        let at = u32::try_from(self.instructions.len()).unwrap();
        self.instructions.push(Instruction {
            name: format!("{opcode}.{at}").into(),
            id: u64::from(at) + 1,
            opcode: opcode.into(),
            shape: vector(kib).into(),
            operands: operands.into(),
            ..Instruction::default()
        });
        self.plan.buffers.push(LogicalBuffer {
            id: i64::from(at),
            size: kib * KIB,
            instruction_id: Some(u64::from(at) + 1),
            ..LogicalBuffer::default()
        });
        self.heap.push(None);
        at
    }

    fn allocate(&mut self, at: u32, mut allocation: BufferAllocation) {
        let size = self.plan.buffers[at as usize].size;
        allocation.size = size;
        allocation.assigned.push(Assigned {
            buffer_id: i64::from(at),
            offset: 0,
            size,
        });
        self.plan.allocations.push(allocation);
    }

    fn argument(&mut self, kib: u64) -> u32 {
        let at = self.add("parameter", kib, &[]);
        self.instructions[at as usize].parameter_number = i64::from(at);
        let argument = BufferAllocation {
            is_parameter: true,
            ..BufferAllocation::default()
        };
        self.allocate(at, argument);
        at
    }

    fn temporary(&mut self, opcode: &str, kib: u64, operands: &[u32]) -> u32 {
        let at = self.add(opcode, kib, operands);
        self.heap[at as usize] = Some(kib * KIB);
        at
    }

    fn result(&mut self, opcode: &str, kib: u64, operands: &[u32]) -> u32 {
        let at = self.add(opcode, kib, operands);
        let output = BufferAllocation {
            may_be_output: true,
            ..BufferAllocation::default()
        };
        self.allocate(at, output);
        at
    }

    /// Returns the module with its last instruction as result, and with a heap that takes values when they are
    /// defined and releases them after their last use.
    fn module(mut self) -> Module {
        let count = u32::try_from(self.instructions.len()).unwrap();
        let mut events = Vec::new();
        let mut heap = BufferAllocation::default();
        let mut event = |kind, at: u32| {
            events.push(HeapEvent {
                kind,
                buffer_id: i64::from(at),
                ..HeapEvent::default()
            });
        };
        for at in 0..count {
            if let Some(size) = self.heap[at as usize] {
                event(HeapEventKind::Alloc, at);
                heap.assigned.push(Assigned {
                    buffer_id: i64::from(at),
                    offset: heap.size,
                    size,
                });
                heap.size += size;
            }
            for operand in self.instructions[at as usize].operands.iter().copied() {
                let rest = &self.instructions[at as usize + 1..];
                let is_used = rest.iter().any(|later| later.operands.contains(&operand));
                if self.heap[operand as usize].is_some() && !is_used {
                    event(HeapEventKind::Free, operand);
                }
            }
        }
        self.plan.allocations.push(heap);
        self.plan.traces.push(HeapTrace { events });
        Module {
            name: "built".into(),
            computations: vec![Computation {
                name: "main".into(),
                instructions: 0..count,
                root: count.checked_sub(1),
                ..Computation::default()
            }],
            instructions: self.instructions,
            entry: Some(0),
            buffers: Some(self.plan),
            ..Module::default()
        }
    }
}

fn advice_on(module: &Module) -> (u64, Vec<Advice>) {
    let plan = Plan::new(module).unwrap();
    let live = &plan.spaces[0].live;
    (live.peak / KIB, advice(module, live))
}

fn changes(advice: &[Advice]) -> Vec<(MemoryAdvice, u64, u64)> {
    let line = |advice: &Advice| (advice.change, advice.freed / KIB, advice.saved / KIB);
    advice.iter().map(line).collect()
}

/// `new = old - gradient`: the memory of `old` can hold `new`.
#[test]
fn a_result_fits_into_an_argument_that_is_not_donated() {
    let built = |reads_old_later: bool, donates: bool| {
        let mut program = Builder::default();
        let old = program.argument(64);
        let gradient = program.argument(32);
        let new = program.result("subtract", 64, &[old, gradient]);
        if reads_old_later {
            program.result("reduce", 1, &[old]);
        }
        program.result("tuple", 0, &[new]);
        let mut module = program.module();
        if donates {
            let plan = module.buffers.as_mut().unwrap();
            plan.allocations[0].is_aliased_with_output = true;
            module.aliases.push(Alias::default());
        }
        module
    };
    let (peak, found) = advice_on(&built(false, false));
    assert_eq!(peak, 160);
    assert_eq!(
        changes(&found),
        [(MemoryAdvice::Donate { argument: 0 }, 64, 64)],
        "{found:?}"
    );
    for (reads_old_later, donates) in [(true, false), (false, true)] {
        let (_, found) = advice_on(&built(reads_old_later, donates));
        assert_eq!(changes(&found), [], "{reads_old_later} {donates}");
    }
}

/// Each argument holds one result: that with the earliest last use the first one.
#[test]
fn many_results_share_out_the_arguments() {
    let mut program = Builder::default();
    let arguments: Vec<u32> = (0..1000).map(|_| program.argument(1)).collect();
    let results: Vec<u32> = arguments
        .iter()
        .map(|argument| program.result("negate", 1, &[*argument]))
        .collect();
    program.result("tuple", 0, &results);
    let (peak, found) = advice_on(&program.module());
    assert_eq!(peak, 2000);
    let mut donated: Vec<u32> = found
        .iter()
        .map(|advice| match advice.change {
            MemoryAdvice::Donate { argument } => argument,
            other => panic!("{other:?}"),
        })
        .collect();
    donated.sort_unstable();
    assert_eq!(donated, arguments);
    assert!(found.iter().all(|advice| advice.saved == KIB));
}

#[test]
fn a_copy_of_an_argument_is_wanted() {
    let mut program = Builder::default();
    let x = program.argument(64);
    program.result("copy", 64, &[x]);
    let (peak, found) = advice_on(&program.module());
    assert_eq!(peak, 128);
    assert_eq!(changes(&found), []);
}

/// `early` is read before the peak of `wide` and after it.
fn activation(from_argument: bool, reads_at_peak: bool, also_wide_later: u64) -> Module {
    let mut program = Builder::default();
    let x = program.argument(10);
    let source = if from_argument {
        x
    } else {
        program.temporary("tanh", 5, &[x])
    };
    let early = program.temporary("exponential", 40, &[source]);
    let first = program.temporary("reduce", 1, &[early]);
    let operands: &[u32] = if reads_at_peak {
        &[x, first, early]
    } else {
        &[x, first]
    };
    let wide = program.temporary("broadcast", 100, operands);
    let narrow = program.temporary("reduce", 1, &[wide]);
    let late = program.temporary("reduce", 1, &[early, narrow]);
    let wide = program.temporary("broadcast", also_wide_later, &[late]);
    program.result("reduce", 1, &[wide]);
    program.module()
}

#[test]
fn a_value_that_nothing_reads_at_the_peak_can_be_computed_again() {
    let (peak, found) = advice_on(&activation(true, false, 1));
    // The argument, the early value, the first sum and the wide value.
    assert_eq!(peak, 10 + 40 + 1 + 100);
    let recompute = MemoryAdvice::Recompute {
        last_use_before: 2,
        next_use: 5,
    };
    assert_eq!(changes(&found), [(recompute, 40, 40)]);

    // Another moment needs 10 + 1 + 130 KiB: the peak falls to that alone.
    let (peak, found) = advice_on(&activation(true, false, 130));
    assert_eq!(peak, 151);
    assert_eq!(changes(&found), [(recompute, 40, 10)]);
}

#[test]
fn a_value_is_not_computed_again_from_values_that_are_gone() {
    let (_, found) = advice_on(&activation(false, false, 1));
    assert_eq!(changes(&found), []);
}

#[test]
fn a_value_that_is_read_at_the_peak_is_needed() {
    let (_, found) = advice_on(&activation(true, true, 1));
    assert_eq!(changes(&found), []);
}

#[test]
fn a_value_that_is_computed_too_early_can_wait() {
    let built = |must_run_first: bool| {
        let mut program = Builder::default();
        let x = program.argument(10);
        let early = program.temporary("iota", 40, &[]);
        let wide = program.temporary("broadcast", 100, &[x]);
        let narrow = program.temporary("reduce", 1, &[wide]);
        program.result("add", 1, &[early, narrow]);
        let mut module = program.module();
        if must_run_first {
            module.instructions[2].control_predecessors = [early].into();
        }
        module
    };
    let (peak, found) = advice_on(&built(false));
    // The wide value is released after its sum has taken memory.
    assert_eq!(peak, 10 + 40 + 100 + 1);
    assert_eq!(
        changes(&found),
        [(MemoryAdvice::Delay { first_use: 4 }, 40, 40)],
        "{found:?}"
    );
    let (_, found) = advice_on(&built(true));
    assert_eq!(changes(&found), []);
}

#[test]
fn values_that_fill_no_whole_tiles_waste_padding() {
    let mut program = Builder::default();
    let x = program.argument(1);
    let value = program.temporary("exponential", 1, &[x]);
    program.result("reduce", 0, &[value]);
    let mut module = program.module();
    // 100 rows of 3 bytes in tiles of 8 x 128 bytes: 104 x 128.
    module.instructions[1].shape = Shape {
        dimensions: [100, 3].into(),
        layout: Some(Box::new(Layout {
            minor_to_major: [1, 0].into(),
            tiles: [[8, 128].into()].into(),
            ..Layout::default()
        })),
        ..vector(1)
    }
    .into();
    let padded = 104 * 128;
    let plan = module.buffers.as_mut().unwrap();
    plan.buffers[1].size = padded;
    for allocation in &mut plan.allocations {
        for assigned in &mut allocation.assigned {
            if assigned.buffer_id == 1 {
                assigned.size = padded;
                allocation.size = padded;
            }
        }
    }
    let plan = Plan::new(&module).unwrap();
    let found = advice(&module, &plan.spaces[0].live);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].change, MemoryAdvice::FillTiles);
    assert_eq!(found[0].freed, padded - 300);
    assert_eq!(found[0].saved, padded - 300);
}
