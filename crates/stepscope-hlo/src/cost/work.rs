//! An amount of work, by memory level and by precision.

use stepscope_formats::hlo::{ElementType, Instruction, Module, Shape};

use super::{Properties, Rules, size, size_of_leaves};

/// A memory with a peak rate of its own: the main memory, or one direction of a memory on the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Main memory of the device, such as HBM; read and written.
    Main,
    /// Reads of the common memory of a TPU's cores (CMEM).
    CmemRead,
    /// Writes to it.
    CmemWrite,
    /// Reads of the vector memory of a TPU's core (VMEM).
    VmemRead,
    /// Writes to it.
    VmemWrite,
}

impl Level {
    /// All levels, the main memory first.
    pub const ALL: [Self; 5] = [
        Self::Main,
        Self::CmemRead,
        Self::CmemWrite,
        Self::VmemRead,
        Self::VmemWrite,
    ];

    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main memory",
            Self::CmemRead => "CMEM read",
            Self::CmemWrite => "CMEM write",
            Self::VmemRead => "VMEM read",
            Self::VmemWrite => "VMEM write",
        }
    }

    /// Returns the level of an access to a memory space of XLA's layouts: on GPUs, space 1 is main memory that
    /// collectives use.
    const fn from_space(space: i64, access: Access, rules: Rules) -> Option<Self> {
        match (space, access) {
            (0, _) => Some(Self::Main),
            (1, _) if matches!(rules, Rules::Gpu) => Some(Self::Main),
            (1, Access::Read) => Some(Self::VmemRead),
            (1, Access::Write) => Some(Self::VmemWrite),
            (3, Access::Read) => Some(Self::CmemRead),
            (3, Access::Write) => Some(Self::CmemWrite),
            _ => None,
        }
    }
}

/// Direction of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Bytes by memory level. Bytes of other memories, such as the host's, are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelBytes([f64; Level::ALL.len()]);

impl LevelBytes {
    /// Returns bytes of the main memory alone.
    pub fn main_only(bytes: f64) -> Self {
        let mut found = Self::default();
        found.add_at(Level::Main, bytes);
        found
    }

    /// Returns the bytes of a level.
    pub const fn at(&self, level: Level) -> f64 {
        self.0[level as usize]
    }

    /// Adds bytes to a level.
    pub fn add_at(&mut self, level: Level, bytes: f64) {
        self.0[level as usize] += bytes;
    }

    /// Adds other bytes, `times` as many.
    pub fn add(&mut self, other: &Self, times: f64) {
        for (own, others) in self.0.iter_mut().zip(other.0) {
            *own += others * times;
        }
    }
}

/// Class of element types that share a peak rate of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// Double precision, `c128` too.
    F64,
    /// Single precision, which hardware may compute as TF32; `c64` and whole numbers of 16 and more bits too.
    F32,
    /// `f16` and `bf16`.
    F16,
    /// The types of 6 and 8 bits, whole numbers too.
    F8,
    /// The types of 4 bits and fewer.
    F4,
}

impl Precision {
    /// All classes, the widest first.
    pub const ALL: [Self; 5] = [Self::F64, Self::F32, Self::F16, Self::F8, Self::F4];

    /// Returns the name used in options and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::F8 => "f8",
            Self::F4 => "f4",
        }
    }

    /// Returns the class that a name of a type selects: `bf16` is of the class `f16`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "f64" | "fp64" => Some(Self::F64),
            "f32" | "fp32" | "tf32" => Some(Self::F32),
            "f16" | "fp16" | "bf16" => Some(Self::F16),
            "f8" | "fp8" | "int8" | "s8" => Some(Self::F8),
            "f4" | "fp4" | "int4" | "s4" => Some(Self::F4),
            _ => None,
        }
    }

    /// Returns the class of an element type; `None` for types without arithmetic.
    pub fn from_element(element: ElementType) -> Option<Self> {
        let is_floating = element.name().starts_with(['f', 'b']);
        match (element.name(), element.bits()) {
            (_, 0) => None,
            ("pred", _) => Some(Self::F8),
            ("c64", _) => Some(Self::F32),
            ("c128", _) => Some(Self::F64),
            (_, ..=4) => Some(Self::F4),
            (_, ..=8) => Some(Self::F8),
            (_, 16) if is_floating => Some(Self::F16),
            (_, 64) if is_floating => Some(Self::F64),
            _ => Some(Self::F32),
        }
    }
}

/// Floating-point operations by precision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrecisionFlops([f64; Precision::ALL.len()]);

impl PrecisionFlops {
    /// Returns operations of one class.
    pub fn only(precision: Precision, flops: f64) -> Self {
        let mut found = Self::default();
        found.0[precision as usize] = flops;
        found
    }

    /// Returns the operations of a class.
    pub const fn at(&self, precision: Precision) -> f64 {
        self.0[precision as usize]
    }

    /// Returns the class with the most operations, the widest of several; `None` without operations.
    pub fn most(&self) -> Option<Precision> {
        let mut most = None;
        for precision in Precision::ALL {
            let flops = self.at(precision);
            if flops > most.map_or(0.0, |most| self.at(most)) {
                most = Some(precision);
            }
        }
        most
    }
}

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstructionWork {
    /// Floating-point operations.
    pub flops: f64,
    /// Transcendental functions.
    pub transcendentals: f64,
    /// Bytes read and written, of all memories.
    pub bytes: f64,
    /// The bytes by memory level.
    pub levels: LevelBytes,
    /// The operations by precision.
    pub precisions: PrecisionFlops,
}

impl InstructionWork {
    /// Adds other work, `times` as much.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.flops += other.flops * times;
        self.transcendentals += other.transcendentals * times;
        self.bytes += other.bytes * times;
        self.levels.add(&other.levels, times);
        for (own, others) in self.precisions.0.iter_mut().zip(other.precisions.0) {
            *own += others * times;
        }
    }

    /// Returns `times` as much work.
    #[must_use]
    pub fn scaled(&self, times: f64) -> Self {
        let mut found = Self::default();
        found.add(self, times);
        found
    }

    /// Returns the work of one execution of an instruction.
    pub(super) fn from_properties(
        module: &Module,
        instruction: &Instruction,
        properties: &Properties,
        precision: Option<Precision>,
        rules: Rules,
    ) -> Self {
        let flops = f64::from(properties.flops);
        Self {
            flops,
            transcendentals: f64::from(properties.transcendentals),
            bytes: f64::from(properties.bytes),
            levels: levels(module, instruction, properties, rules),
            precisions: precision
                .map(|precision| PrecisionFlops::only(precision, flops))
                .unwrap_or_default(),
        }
    }
}

/// Splits the bytes of an instruction by the memory spaces of its result and its operands, in double precision.
fn levels(
    module: &Module,
    instruction: &Instruction,
    properties: &Properties,
    rules: Rules,
) -> LevelBytes {
    let mut found = LevelBytes::default();
    let mut add = |shape: &Shape, bytes: f32, access: Access| {
        let bytes = f64::from(bytes);
        let whole = size_of_leaves(shape);
        let mut at = |value: &Shape, bytes: f64| {
            if let Some(level) = Level::from_space(value.memory_space(), access, rules) {
                found.add_at(level, bytes);
            }
        };
        // The bytes of a tuple are split by the sizes of its arrays.
        if shape.is_tuple() && whole > 0 {
            shape.leaves(&mut |leaf| at(leaf, bytes * (size(leaf) as f64 / whole as f64)));
        } else {
            at(shape, bytes);
        }
    };
    add(&instruction.shape, properties.output_bytes, Access::Write);
    // Figures after those of the operands are sums over the instructions of a fusion.
    for (index, bytes) in properties.operand_bytes.iter().enumerate() {
        if let Some(operand) = module.operand(instruction, index) {
            add(&operand.shape, *bytes, Access::Read);
        }
    }
    found
}

/// Returns the class of an instruction: that of the widest factor of a product, of the widest operand of others.
pub(super) fn own_precision(module: &Module, instruction: &Instruction) -> Option<Precision> {
    let factors = match &*instruction.opcode {
        "dot" | "scaled-dot" | "ragged-dot" | "convolution" => 2,
        // A library's product: scales and summands of FP8 products are wide.
        "custom-call" => 1,
        _ => usize::MAX,
    };
    let operands = (0..instruction.operands.len().min(factors))
        .filter_map(|index| module.operand(instruction, index));
    operands
        .filter_map(|operand| widest(&operand.shape))
        .min()
        .or_else(|| widest(&instruction.shape))
}

/// Returns the widest class of the arrays of a value.
fn widest(shape: &Shape) -> Option<Precision> {
    let mut found: Option<Precision> = None;
    shape.leaves(&mut |leaf| {
        let class = Precision::from_element(leaf.element);
        found = match (found, class) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (found, class) => found.or(class),
        };
    });
    found
}
