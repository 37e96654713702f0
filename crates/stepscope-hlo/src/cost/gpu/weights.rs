//! What an element of an element-wise operation costs: XLA's table for `sm_86`, which XProf uses for every GPU.

/// Operations of an element that the table does not have.
const OTHER: u64 = 3;

/// Opcodes and their weights for an element type.
type Weights = &'static [(&'static str, u64)];

const F32: Weights = &[
    ("power", 925),
    ("cbrt", 867),
    ("cosine", 662),
    ("sine", 662),
    ("atan2", 486),
    ("exponential-minus-one", 381),
    ("log-plus-one", 262),
    ("log", 244),
    ("tanh", 190),
    ("logistic", 176),
    ("exponential", 86),
    ("rsqrt", 75),
    ("sqrt", 75),
];
const F16: Weights = &[
    ("power", 975),
    ("cbrt", 925),
    ("cosine", 691),
    ("atan2", 482),
    ("exponential-minus-one", 396),
    ("log-plus-one", 284),
    ("log", 266),
    ("logistic", 226),
    ("tanh", 212),
    ("exponential", 108),
    ("rsqrt", 97),
    ("sqrt", 97),
];
const F64: Weights = &[
    ("power", 5511),
    ("cbrt", 6339),
    ("atan2", 3747),
    ("logistic", 2412),
    ("log-plus-one", 2073),
    ("divide", 2016),
    ("exponential-minus-one", 1900),
    ("sine", 1789),
    ("cosine", 1717),
    ("exponential", 1652),
    ("tanh", 1609),
    ("sqrt", 986),
    ("rsqrt", 698),
    ("log", 608),
    ("add", 97),
    ("subtract", 97),
    ("multiply", 97),
];
const C64: Weights = &[
    ("power", 3351),
    ("divide", 687),
    ("exponential", 1360),
    ("exponential-minus-one", 1400),
    ("log", 950),
    ("log-plus-one", 842),
    ("rsqrt", 2383),
    ("sqrt", 3193),
    ("atan2", 5353),
];
const C128: Weights = &[
    ("power", 18_205),
    ("divide", 7941),
    ("cosine", 6613),
    ("sine", 5878),
    ("exponential", 4028),
    ("exponential-minus-one", 4161),
    ("log", 7599),
    ("log-plus-one", 6962),
    ("rsqrt", 11_318),
    ("sqrt", 15_606),
    ("tanh", 9939),
    ("atan2", 39_027),
    ("add", 97),
    ("subtract", 97),
    ("multiply", 270),
];
const WHOLE: &[(&str, Weights)] = &[
    ("s8", &[("divide", 370), ("power", 392)]),
    ("s16", &[("divide", 367), ("power", 396)]),
    ("s32", &[("divide", 306)]),
    ("s64", &[("divide", 918), ("power", 601)]),
    ("u8", &[("divide", 306), ("power", 388)]),
    ("u16", &[("divide", 302), ("power", 399)]),
    ("u32", &[("divide", 115)]),
    ("u64", &[("divide", 838), ("power", 604)]),
];

/// Returns the operations that an element of the result costs. `bf16` has no weights.
pub(super) fn flops_of_element(element: &str, opcode: &str) -> u64 {
    let weights = match element {
        "f32" => F32,
        "f16" => F16,
        "f64" => F64,
        "c64" => C64,
        "c128" => C128,
        whole => WHOLE
            .iter()
            .find(|(known, _)| *known == whole)
            .map_or(&[][..], |(_, weights)| weights),
    };
    let known = weights.iter().find(|(known, _)| *known == opcode);
    known.map_or(OTHER, |(_, weight)| *weight)
}
