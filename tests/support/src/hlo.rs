//! A synthetic compiled program of any size: a training step as XLA writes it, with schedule, buffer
//! assignment and heap trace.
//!
//! The program has blocks. Forward, a block is a fusion, a product with its weights and a second fusion;
//! backward, it is a fusion, two products and a fusion that writes the new weights into the memory of the
//! donated old ones. The activations of all blocks are alive between the two passes. A loop of 10 trips runs
//! between them.

mod buffers;

use crate::wire::{field, number, packed};
use buffers::Buffers;

/// Extent of both dimensions of every matrix.
const EXTENT: u64 = 256;
/// Size of every matrix, bytes.
const MATRIX_BYTES: u64 = EXTENT * EXTENT * 4;
/// Instructions of a block: eight of the entry computation, and those of its four fusions.
const BLOCK: usize = 8 + 4 * FUSED;
/// Instructions of a fused computation.
const FUSED: usize = 6;
/// Instructions of the program without blocks.
const AROUND: usize = 17;
/// Number of times that the loop runs.
const TRIPS: u64 = 10;

/// Name of the program.
pub const NAME: &str = "jit_train_step";
/// Number of the program.
pub const PROGRAM_ID: u64 = 7;

/// A program, serialized.
#[derive(Debug)]
pub struct Program {
    /// An `xla.HloProto`.
    pub proto: Vec<u8>,
    /// Names of the instructions of the entry computation that take time, in the order in which they run.
    pub executed: Vec<String>,
}

/// Makes a program with this number of instructions; at least 49.
pub fn program(instructions: usize) -> Program {
    let blocks = (instructions.saturating_sub(AROUND) / BLOCK).max(1);
    let filling = instructions.saturating_sub(AROUND + blocks * BLOCK);
    Writer::default().write(blocks, filling)
}

/// Makes an `XSpace` that contains the program and one execution of it on a thread of the host.
pub fn xspace(program: &Program) -> Vec<u8> {
    let metadata = |id: u64, name: &str| {
        let value = [number(1, id), field(2, name.as_bytes())].concat();
        field(5, &[number(1, id), field(2, &value)].concat())
    };
    let proto = field(5, &[number(1, 1), field(6, &program.proto)].concat());
    let module = format!("{NAME}({PROGRAM_ID})");
    let id = field(5, &[number(1, 2), number(3, PROGRAM_ID)].concat());
    let module = [number(1, 1), field(2, module.as_bytes()), proto, id].concat();
    let programs = [
        field(2, b"/host:metadata"),
        field(4, &[number(1, 1), field(2, &module)].concat()),
        metadata(1, "Hlo Proto"),
        metadata(2, "program_id"),
    ]
    .concat();

    let mut line = [
        number(1, 1),
        field(2, b"tf_XLAEigen/1"),
        number(3, 1_000_000),
    ]
    .concat();
    let mut names = Vec::new();
    let mut begin_ps = 0;
    for (at, name) in (1..).zip(&program.executed) {
        let value = [number(1, at), field(2, name.as_bytes())].concat();
        names.extend(field(4, &[number(1, at), field(2, &value)].concat()));
        let duration_ps = if name.starts_with("dot") {
            40_000_000
        } else {
            9_000_000
        };
        let stats = [
            field(4, &[number(1, 1), field(5, name.as_bytes())].concat()),
            field(4, &[number(1, 2), field(5, NAME.as_bytes())].concat()),
            field(4, &[number(1, 3), number(3, PROGRAM_ID)].concat()),
        ]
        .concat();
        let event = [number(1, at), number(2, begin_ps), number(3, duration_ps)].concat();
        line.extend(field(4, &[event, stats].concat()));
        begin_ps += duration_ps + 1_000_000;
    }
    let threads = [
        field(2, b"/host:CPU"),
        field(3, &line),
        names,
        metadata(1, "hlo_op"),
        metadata(2, "hlo_module"),
        metadata(3, "program_id"),
    ]
    .concat();
    [field(1, &programs), field(1, &threads)].concat()
}

/// An instruction that is about to be written.
#[derive(Default)]
struct Instruction<'a> {
    opcode: &'a str,
    shape: Vec<u8>,
    operands: &'a [u64],
    op_name: &'a str,
    /// Further fields.
    more: Vec<u8>,
}

/// A computation that is being written.
struct Computation {
    id: u64,
    name: String,
    is_fusion: bool,
    instructions: Vec<u8>,
    ids: Vec<u64>,
    names: Vec<String>,
    operands: Vec<Vec<u64>>,
}

impl Computation {
    /// Returns the opcode of an instruction, which begins its name.
    fn opcode(&self, at: usize) -> &str {
        self.names[at].split('.').next().unwrap_or_default()
    }

    /// Adds an instruction and returns its id, which contains that of the computation.
    fn add(&mut self, instruction: &Instruction<'_>) -> u64 {
        let id = self.id << 32 | self.ids.len() as u64;
        let name = format!("{}.{}.{}", instruction.opcode, self.id, self.ids.len());
        let metadata = [
            field(2, instruction.op_name.as_bytes()),
            number(15, self.ids.len() as u64 % 4 + 1),
        ]
        .concat();
        let message = [
            field(1, name.as_bytes()),
            field(2, instruction.opcode.as_bytes()),
            field(3, &instruction.shape),
            field(7, &metadata),
            number(35, id),
            packed(36, instruction.operands),
            instruction.more.clone(),
        ]
        .concat();
        self.instructions.extend(field(2, &message));
        self.ids.push(id);
        self.names.push(name);
        self.operands.push(instruction.operands.to_vec());
        id
    }
}

/// `f32[256,256]{1,0}`.
fn matrix() -> Vec<u8> {
    let layout = field(5, &packed(1, &[1, 0]));
    [number(2, 11), packed(3, &[EXTENT, EXTENT]), layout].concat()
}

/// A scalar of a type of `xla.PrimitiveType`.
fn scalar(element: u64) -> Vec<u8> {
    [number(2, element), field(5, &[])].concat()
}

const PRED: u64 = 1;
const S32: u64 = 4;

fn tuple(parts: &[Vec<u8>]) -> Vec<u8> {
    let parts: Vec<u8> = parts.iter().flat_map(|part| field(4, part)).collect();
    [number(2, 13), parts].concat()
}

/// `xla.ProgramShapeProto`.
fn program_shape(parameters: &[Vec<u8>], result: &[u8]) -> Vec<u8> {
    let names = (0..parameters.len()).flat_map(|at| field(3, format!("p{at}").as_bytes()));
    let shapes = parameters.iter().flat_map(|shape| field(1, shape));
    shapes.chain(field(2, result)).chain(names).collect()
}

/// Fields of a product: the dimension that is summed over, of both operands.
fn contracting(left: u64, right: u64) -> Vec<u8> {
    field(30, &[packed(1, &[left]), packed(2, &[right])].concat())
}

fn s32_constant(value: u64) -> Instruction<'static> {
    let literal = [field(1, &scalar(S32)), packed(4, &[value])].concat();
    Instruction {
        opcode: "constant",
        shape: scalar(S32),
        more: field(8, &literal),
        ..Instruction::default()
    }
}

fn parameter(index: u64, shape: Vec<u8>, op_name: &str) -> Instruction<'_> {
    Instruction {
        opcode: "parameter",
        shape,
        op_name,
        more: number(9, index),
        ..Instruction::default()
    }
}

fn part(of: &[u64], index: u64, shape: Vec<u8>) -> Instruction<'_> {
    Instruction {
        opcode: "get-tuple-element",
        shape,
        operands: of,
        more: number(13, index),
        ..Instruction::default()
    }
}

/// Writes the module.
#[derive(Default)]
struct Writer {
    /// Computations that are complete, serialized.
    computations: Vec<u8>,
    schedules: Vec<u8>,
    count: u64,
}

impl Writer {
    fn open(&mut self, name: &str, is_fusion: bool) -> Computation {
        self.count += 1;
        Computation {
            id: self.count,
            name: name.to_owned(),
            is_fusion,
            instructions: Vec::new(),
            ids: Vec::new(),
            names: Vec::new(),
            operands: Vec::new(),
        }
    }

    /// Ends a computation whose last instruction is its root.
    fn close(&mut self, computation: &Computation, parameters: &[Vec<u8>], result: &[u8]) {
        let root = computation.ids.last().copied().unwrap_or(0);
        let message = [
            field(1, computation.name.as_bytes()),
            computation.instructions.clone(),
            field(4, &program_shape(parameters, result)),
            number(5, computation.id),
            number(6, root),
            number(7, computation.is_fusion.into()),
        ]
        .concat();
        self.computations.extend(field(3, &message));
        if !computation.is_fusion {
            let order = field(2, &packed(1, &computation.ids));
            let entry = [number(1, computation.id), order].concat();
            self.schedules.extend(field(1, &entry));
        }
    }

    /// Writes a fused computation of two matrices and returns the instruction that calls it.
    fn fusion<'a>(&mut self, operands: &'a [u64], op_name: &'a str) -> Instruction<'a> {
        let name = format!("fused_computation.{}", self.count);
        let mut fused = self.open(&name, true);
        let mut last = fused.add(&parameter(0, matrix(), op_name));
        let other = fused.add(&parameter(1, matrix(), op_name));
        let opcodes: &[(&str, bool)] = &[
            ("multiply", true),
            ("tanh", false),
            ("add", true),
            ("maximum", true),
        ];
        for (opcode, takes_two) in opcodes {
            let operands = [last, other];
            last = fused.add(&Instruction {
                opcode,
                shape: matrix(),
                operands: if *takes_two {
                    &operands
                } else {
                    &operands[..1]
                },
                op_name,
                ..Instruction::default()
            });
        }
        self.close(&fused, &[matrix(), matrix()], &matrix());
        Instruction {
            opcode: "fusion",
            shape: matrix(),
            operands,
            op_name,
            more: [
                field(11, b"kLoop"),
                packed(38, &[fused.id]),
                field(43, br#"{"outer_dimension_partitions":["2"]}"#),
            ]
            .concat(),
        }
    }

    /// Writes the loop's computations and returns the fields of the instruction that runs them. Its state is a
    /// counter and a matrix.
    fn whole_loop(&mut self) -> (Vec<u8>, u64) {
        let state = || tuple(&[scalar(S32), matrix()]);
        let mut body = self.open("body", false);
        let argument = [body.add(&parameter(0, state(), ""))];
        let counter = body.add(&part(&argument, 0, scalar(S32)));
        let value = body.add(&part(&argument, 1, matrix()));
        let one = body.add(&s32_constant(1));
        let next = body.add(&Instruction {
            opcode: "add",
            shape: scalar(S32),
            operands: &[counter, one],
            ..Instruction::default()
        });
        let doubled = body.add(&Instruction {
            opcode: "multiply",
            shape: matrix(),
            operands: &[value, value],
            op_name: "jit(train_step)/power/while/body/mul",
            ..Instruction::default()
        });
        body.add(&Instruction {
            opcode: "tuple",
            shape: state(),
            operands: &[next, doubled],
            ..Instruction::default()
        });
        self.close(&body, &[state()], &state());

        let mut condition = self.open("condition", false);
        let argument = [condition.add(&parameter(0, state(), ""))];
        let counter = condition.add(&part(&argument, 0, scalar(S32)));
        let trips = condition.add(&s32_constant(TRIPS));
        condition.add(&Instruction {
            opcode: "compare",
            shape: scalar(PRED),
            operands: &[counter, trips],
            more: field(63, b"LT"),
            ..Instruction::default()
        });
        self.close(&condition, &[state()], &scalar(PRED));
        let config = format!(r#"{{"known_trip_count":{{"n":"{TRIPS}"}}}}"#);
        let more = [
            packed(38, &[body.id, condition.id]),
            field(43, config.as_bytes()),
        ];
        (more.concat(), doubled)
    }

    fn write(mut self, blocks: usize, filling: usize) -> Program {
        let (loop_fields, loop_result) = self.whole_loop();
        let mut buffers = Buffers::default();
        let mut entry = self.open("main", false);
        let weights: Vec<u64> = (0..blocks)
            .map(|block| {
                let op_name = format!("params['layer_{block}']['w']");
                entry.add(&parameter(block as u64, matrix(), &op_name))
            })
            .collect();
        let input = entry.add(&parameter(blocks as u64, matrix(), "batch"));

        let mut value = input;
        let mut kept = Vec::new();
        for (block, weight) in weights.iter().enumerate() {
            let scope = format!("jit(train_step)/jvp(Model)/layer_{block}");
            let operands = [value, *weight];
            let norm = entry.add(&self.fusion(&operands, &format!("{scope}/norm/mul")));
            let product = entry.add(&Instruction {
                opcode: "dot",
                shape: matrix(),
                operands: &[norm, *weight],
                op_name: &format!("{scope}/mlp/dot_general"),
                more: contracting(1, 0),
            });
            let operands = [product, value];
            value = entry.add(&self.fusion(&operands, &format!("{scope}/mlp/tanh")));
            kept.push((norm, product));
        }

        let counter = entry.add(&s32_constant(0));
        let state = tuple(&[scalar(S32), matrix()]);
        let operands = [counter, value];
        let start = entry.add(&Instruction {
            opcode: "tuple",
            shape: state.clone(),
            operands: &operands,
            ..Instruction::default()
        });
        let run = [entry.add(&Instruction {
            opcode: "while",
            shape: state,
            operands: &[start],
            op_name: "jit(train_step)/power/while",
            more: loop_fields,
        })];
        buffers.carry(run[0], value, loop_result);
        let mut gradient = entry.add(&part(&run, 1, matrix()));
        buffers.pass_on(gradient, loop_result);
        for _ in 0..filling {
            gradient = entry.add(&Instruction {
                opcode: "negate",
                shape: matrix(),
                operands: &[gradient],
                op_name: "jit(train_step)/loss/neg",
                ..Instruction::default()
            });
        }

        let mut updated = vec![0; blocks];
        for (block, (norm, product)) in kept.into_iter().enumerate().rev() {
            let scope = format!("jit(train_step)/transpose(jvp(Model))/layer_{block}");
            let operands = [gradient, product];
            let inner = entry.add(&self.fusion(&operands, &format!("{scope}/mlp/tanh")));
            buffers.write_over(inner, gradient);
            let mut product_of = |operands: &[u64], dimensions: (u64, u64)| {
                entry.add(&Instruction {
                    opcode: "dot",
                    shape: matrix(),
                    operands,
                    op_name: &format!("{scope}/mlp/dot_general"),
                    more: contracting(dimensions.0, dimensions.1),
                })
            };
            let change = product_of(&[norm, inner], (0, 0));
            gradient = product_of(&[inner, weights[block]], (1, 1));
            let operands = [weights[block], change];
            let op_name = format!("jit(train_step)/update/layer_{block}/sub");
            updated[block] = entry.add(&self.fusion(&operands, &op_name));
        }
        let results = vec![matrix(); blocks];
        entry.add(&Instruction {
            opcode: "tuple",
            shape: tuple(&results),
            operands: &updated,
            ..Instruction::default()
        });
        let parameters = vec![matrix(); blocks + 1];
        self.close(&entry, &parameters, &tuple(&results));

        let buffers = buffers.write(&entry, &weights, input, &updated);
        let aliases = (0..blocks as u64).flat_map(|block| {
            field(
                1,
                &[packed(1, &[block]), number(2, block), number(4, 1)].concat(),
            )
        });
        let module = [
            field(1, NAME.as_bytes()),
            field(2, entry.name.as_bytes()),
            self.computations,
            field(4, &program_shape(&parameters, &tuple(&results))),
            number(5, PROGRAM_ID),
            number(6, entry.id),
            field(7, &self.schedules),
            field(8, &aliases.collect::<Vec<u8>>()),
            field(17, &frames()),
        ]
        .concat();
        let takes_time =
            |at: &usize| ["fusion", "dot", "while", "negate"].contains(&entry.opcode(*at));
        let executed = (0..entry.ids.len()).filter(takes_time);
        Program {
            proto: [field(1, &module), field(3, &buffers)].concat(),
            executed: executed.map(|at| entry.names[at].clone()).collect(),
        }
    }
}

/// Four places of the program, each called from the one before.
fn frames() -> Vec<u8> {
    let mut found = field(1, b"model.py");
    for function in ["train_step", "loss", "forward", "layer"] {
        found.extend(field(2, function.as_bytes()));
    }
    for at in 1..=4 {
        let location = [number(1, 1), number(2, at), number(3, at * 10)].concat();
        found.extend(field(3, &location));
        let frame = [number(1, at), number(2, at - 1)].concat();
        found.extend(field(4, &frame));
    }
    found
}
