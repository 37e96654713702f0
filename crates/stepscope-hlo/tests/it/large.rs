//! Large modules, and modules that no compiler writes.

use stepscope_formats::hlo::{Losses, Module};
use stepscope_hlo::cost::Analysis;
use stepscope_hlo::memory::{Class, Plan};
use stepscope_test_data::hlo;
use stepscope_test_data::wire::{field, number, packed, varint};

/// `f32[256]{0}`: 1 KiB.
fn vector() -> Vec<u8> {
    let layout = field(5, &field(1, &[0]));
    [number(2, 11), field(3, &varint(256)), layout].concat()
}

fn instruction(id: u64, opcode: &str, shape: &[u8], operands: &[u64]) -> Vec<u8> {
    let message = [
        field(1, format!("{opcode}.{id}").as_bytes()),
        field(2, opcode.as_bytes()),
        field(3, shape),
        number(35, id),
        packed(36, operands),
    ]
    .concat();
    field(2, &message)
}

/// A module whose entry computation has these instructions; the last id is the root.
fn module(instructions: &[u8], root: u64, buffers: &[u8]) -> Vec<u8> {
    let computation = [
        field(1, b"main"),
        instructions.to_vec(),
        number(5, 1),
        number(6, root),
    ]
    .concat();
    let module = [field(1, b"large"), field(3, &computation), number(6, 1)].concat();
    [field(1, &module), field(3, buffers)].concat()
}

fn buffer(id: u64, instruction: u64) -> Vec<u8> {
    let location = number(4, instruction);
    let message = [number(1, id), number(2, 1024), field(3, &location)].concat();
    field(1, &message)
}

fn event(kind: u64, buffer: u64) -> Vec<u8> {
    field(1, &[number(1, kind), number(2, buffer)].concat())
}

/// `count` sums of one argument, all alive until a last sum of them: every taking is a new peak, and all are
/// released at once.
#[test]
fn many_values_alive_at_once_are_counted() {
    let count = 20_000;
    let mut instructions = instruction(1, "parameter", &vector(), &[]);
    let mut buffers = Vec::new();
    let mut events = Vec::new();
    let mut temporary = vec![number(1, 0), number(2, 1024 * count)];
    for at in 0..count {
        let id = at + 2;
        instructions.extend(instruction(id, "add", &vector(), &[1, 1]));
        buffers.extend(buffer(id, id));
        events.extend(event(0, id));
        let place = [number(1, id), number(2, 1024 * at), number(3, 1024)].concat();
        temporary.push(field(9, &place));
    }
    let all: Vec<u64> = (2..count + 2).collect();
    let root = count + 2;
    instructions.extend(instruction(root, "concatenate", &vector(), &all));
    for id in &all {
        events.extend(event(1, *id));
    }
    buffers.extend(field(3, &temporary.concat()));
    buffers.extend(field(4, &events));

    let module = Module::read(&module(&instructions, root, &buffers)).unwrap();
    let analysis = Analysis::new(&module);
    assert_eq!(analysis.total.flops, 256.0 * count as f32);
    let plan = Plan::new(&module).unwrap();
    let space = &plan.spaces[0];
    assert_eq!(space.xprof.peak(), 1024 * count);
    assert_eq!(space.xprof.alive.len() as u64, count);
    assert_eq!(space.live.peak, 1024 * count);
    let alive = space.live.alive_at(space.live.peak_position);
    assert_eq!(
        alive.filter(|one| one.class == Class::Temporary).count() as u64,
        count
    );
}

/// A wide tuple whose parts are taken one by one, and that passes through many barriers.
#[test]
fn wide_tuples_are_followed_part_by_part() {
    let width = 2_000;
    let mut instructions = Vec::new();
    let mut buffers = Vec::new();
    let mut places = vec![number(1, 0), number(2, 1024 * width), number(7, 1)];
    for at in 0..width {
        let id = at + 1;
        instructions.extend(instruction(id, "broadcast", &vector(), &[]));
        buffers.extend(buffer(id, id));
        let place = [number(1, id), number(2, 1024 * at), number(3, 1024)].concat();
        places.push(field(9, &place));
    }
    let parts = field(4, &vector()).repeat(width as usize);
    let tuple = [number(2, 13), parts].concat();
    let all: Vec<u64> = (1..=width).collect();
    let mut last = width + 1;
    instructions.extend(instruction(last, "tuple", &tuple, &all));
    for _ in 0..20 {
        instructions.extend(instruction(
            last + 1,
            "optimization-barrier",
            &tuple,
            &[last],
        ));
        last += 1;
    }
    buffers.extend(field(3, &places.concat()));
    let module = Module::read(&module(&instructions, last, &buffers)).unwrap();
    let plan = Plan::new(&module).unwrap();
    assert_eq!(plan.spaces[0].live.peak, 1024 * width);
    crate::hostile::ask_everything(&module);
}

/// A fusion whose computation is that of the fusion itself, and calls in a circle.
#[test]
fn circles_end() {
    let calls = |id: u64, opcode: &str, computation: u64| {
        let message = [
            field(1, opcode.as_bytes()),
            field(2, opcode.as_bytes()),
            field(3, &vector()),
            number(35, id),
            field(36, &[1, 1, 1, 1, 1, 1, 1, 1]),
            number(38, computation),
        ]
        .concat();
        field(2, &message)
    };
    let instructions: Vec<u8> = [
        instruction(1, "parameter", &vector(), &[]),
        calls(2, "fusion", 1),
        calls(3, "fusion", 1),
        calls(4, "while", 1),
        calls(5, "call", 1),
    ]
    .concat();
    let module = Module::read(&module(&instructions, 5, &[])).unwrap();
    assert_eq!(Analysis::new(&module).instructions.len(), 5);
    crate::hostile::ask_everything(&module);
    assert!(Plan::new(&module).is_some_and(|plan| plan.spaces.len() == 1));
}

/// The synthetic program that the benchmarks use: whole, and with the plan that its equations give.
#[test]
fn synthetic_programs_have_the_size_that_is_asked_for() {
    let matrix = 256 * 256 * 4;
    for (count, blocks, alive) in [(49, 1, 3), (1_000, 30, 62), (20_000, 624, 1_250)] {
        let program = hlo::program(count);
        let module = Module::read(&program.proto).unwrap();
        assert_eq!(module.instructions.len(), count);
        assert_eq!(module.losses, Losses::default());
        let plan = Plan::new(&module).unwrap();
        let sizes = &plan.spaces[0].sizes;
        assert_eq!(sizes.argument, (blocks + 1) * matrix);
        assert_eq!(sizes.alias, blocks * matrix);
        // Two activations of each block, and two values.
        assert_eq!(plan.spaces[0].xprof.heap_peak, alive * matrix);
        let analysis = Analysis::new(&module);
        // Three products a block, and the state of the loop.
        let products = 3 * blocks * 2 * 256_u64.pow(3);
        assert!(analysis.total.flops > products as f32);
        assert_eq!(analysis.loops.len(), 1);
        assert_eq!(analysis.loops[0].trip_count, Some(10));
    }
}
