//! Shapes with layouts: their sizes and their text.

use std::fmt::{self, Write as _};

/// Size of a pointer in a tuple, bytes.
const POINTER_BYTES: u64 = 8;

/// `xla.PrimitiveType`: number, spelling of HLO text, bits of an element (0 if it has no size).
const TYPES: [(&str, u32); 37] = [
    ("?", 0),
    ("pred", 8),
    ("s8", 8),
    ("s16", 16),
    ("s32", 32),
    ("s64", 64),
    ("u8", 8),
    ("u16", 16),
    ("u32", 32),
    ("u64", 64),
    ("f16", 16),
    ("f32", 32),
    ("f64", 64),
    ("tuple", 0),
    ("opaque", 0),
    ("c64", 64),
    ("bf16", 16),
    ("token", 0),
    ("c128", 128),
    ("f8e5m2", 8),
    ("f8e4m3fn", 8),
    ("s4", 4),
    ("u4", 4),
    ("f8e4m3b11fnuz", 8),
    ("f8e5m2fnuz", 8),
    ("f8e4m3fnuz", 8),
    ("s2", 2),
    ("u2", 2),
    ("f8e4m3", 8),
    ("f8e3m4", 8),
    ("s1", 1),
    ("u1", 1),
    ("f4e2m1fn", 4),
    ("f8e8m0fnu", 8),
    ("buffer", 0),
    ("f6e2m3fn", 6),
    ("f6e3m2fn", 6),
];

/// Type of the elements of an array, or what else a shape stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ElementType(u8);

impl ElementType {
    /// True or false, a byte each.
    pub const PRED: Self = Self(1);
    /// Brain floating point.
    pub const BF16: Self = Self(16);
    /// A tuple: the shape has parts and no dimensions.
    pub const TUPLE: Self = Self(13);
    /// A value that the program only hands on.
    pub const OPAQUE: Self = Self(14);
    /// An order between instructions, without data.
    pub const TOKEN: Self = Self(17);

    /// Returns the type of a `xla.PrimitiveType` number; unknown numbers give `?`.
    pub fn from_number(number: u64) -> Self {
        let known = |number: &u8| usize::from(*number) < TYPES.len();
        Self(u8::try_from(number).ok().filter(known).unwrap_or(0))
    }

    /// Returns the spelling of HLO text, e.g. `bf16`.
    pub fn name(self) -> &'static str {
        TYPES[usize::from(self.0)].0
    }

    /// Returns the bits of an element, 0 if the type has no elements.
    pub fn bits(self) -> u32 {
        TYPES[usize::from(self.0)].1
    }
}

/// How an array lies in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Dimensions from the fastest to the slowest.
    pub minor_to_major: Box<[i64]>,
    /// Sizes of each level of tiles.
    pub tiles: Box<[Box<[i64]>]>,
    /// Bits of an element in packed arrays of small elements; 0 if each element takes whole bytes.
    pub element_bits: u32,
    /// Memory space (color): 0 is the device's main memory.
    pub memory_space: i64,
    /// The buffer's length is a multiple of so many elements.
    pub tail_padding: i64,
}

/// Shape of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Type of the elements.
    pub element: ElementType,
    /// Sizes of the dimensions; of a dynamic one the largest size.
    pub dimensions: Box<[i64]>,
    /// Whether each dimension is dynamic; empty if none is.
    pub dynamic: Box<[bool]>,
    /// Parts of a tuple.
    pub parts: Box<[Shape]>,
    /// The layout, if the file has one.
    pub layout: Option<Box<Layout>>,
}

impl Shape {
    /// Returns whether this is a tuple.
    pub fn is_tuple(&self) -> bool {
        self.element == ElementType::TUPLE
    }

    /// Returns the number of elements of an array; 0 for a tuple, a token and an opaque value. Negative
    /// dimensions, which only damaged files have, count as 0.
    pub fn elements(&self) -> u64 {
        if self.element.bits() == 0 {
            return 0;
        }
        self.dimensions.iter().fold(1, |product: u64, size| {
            product.saturating_mul(u64::try_from(*size).unwrap_or(0))
        })
    }

    /// Returns the elements of all arrays of a tuple, or of the array.
    pub fn elements_of_leaves(&self) -> u64 {
        let mut sum = 0_u64;
        self.leaves(&mut |leaf| sum = sum.saturating_add(leaf.elements()));
        sum
    }

    /// Returns the size without padding by tiles, bytes: a tuple counts its pointers.
    pub fn bytes(&self) -> u64 {
        match self.element {
            ElementType::TUPLE => POINTER_BYTES.saturating_mul(self.parts.len() as u64),
            ElementType::OPAQUE => POINTER_BYTES,
            _ => self.array_bytes(self.layout.as_ref().map_or(0, |layout| layout.element_bits)),
        }
    }

    /// Returns the size with a default layout (each element in whole bytes), bytes.
    pub fn unpadded_bytes(&self) -> u64 {
        match self.element {
            ElementType::TUPLE | ElementType::OPAQUE => self.bytes(),
            _ => self.array_bytes(0),
        }
    }

    /// Returns the size with the last dimensions rounded up to whole tiles of the layout, bytes. Tiles of tiles
    /// add no padding.
    pub fn tiled_bytes(&self) -> u64 {
        let Some(layout) = self.layout.as_deref() else {
            return self.bytes();
        };
        let (Some(tile), false) = (layout.tiles.first(), self.is_tuple()) else {
            return self.bytes();
        };
        let size_of = |dimension: &i64| {
            let size = usize::try_from(*dimension).ok();
            let size = size.and_then(|at| self.dimensions.get(at));
            size.map_or(1, |size| u64::try_from(*size).unwrap_or(0))
        };
        let sizes = layout.minor_to_major.iter().map(size_of);
        let tiles = tile
            .iter()
            .rev()
            .map(|tile| u64::try_from(*tile).unwrap_or(1).max(1));
        let count = self.dimensions.len().max(tile.len());
        let padded = sizes
            .chain(std::iter::repeat(1))
            .zip(tiles.chain(std::iter::repeat(1)));
        let elements = padded.take(count).fold(1_u64, |product, (size, tile)| {
            product.saturating_mul(size.div_ceil(tile).saturating_mul(tile))
        });
        let bits = match layout.element_bits {
            0 => u64::from(self.element.bits().div_ceil(8)) * 8,
            bits => u64::from(bits),
        };
        elements.saturating_mul(bits).div_ceil(8)
    }

    fn array_bytes(&self, packed_bits: u32) -> u64 {
        let elements = self.elements();
        if packed_bits == 0 {
            return elements.saturating_mul(u64::from(self.element.bits().div_ceil(8)));
        }
        elements.saturating_mul(u64::from(packed_bits)).div_ceil(8)
    }

    /// Returns whether a dimension is dynamic.
    pub fn is_dynamic(&self) -> bool {
        self.dynamic.contains(&true)
    }

    /// Returns the memory space of the layout; 0 without a layout.
    pub fn memory_space(&self) -> i64 {
        self.layout.as_ref().map_or(0, |layout| layout.memory_space)
    }

    /// Calls `visit` with the arrays, tokens and opaque values of a tuple in order, or with the shape
    /// itself.
    pub fn leaves<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        if self.is_tuple() {
            for part in &self.parts {
                part.leaves(visit);
            }
        } else {
            visit(self);
        }
    }

    /// Returns the part that an index of tuple positions leads to.
    pub fn part(&self, index: &[i64]) -> Option<&Self> {
        index.iter().try_fold(self, |shape, position| {
            shape.parts.get(usize::try_from(*position).ok()?)
        })
    }

    /// Returns the text of HLO without layouts, e.g. `(f32[8,4], s32[])`.
    pub fn without_layout(&self) -> Text<'_> {
        Text {
            shape: self,
            layouts: false,
        }
    }
}

/// The text of HLO with layouts, e.g. `f32[8,4]{1,0:T(8,128)S(1)}`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text {
            shape: self,
            layouts: true,
        }
        .fmt(f)
    }
}

/// A shape to be printed.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    shape: &'a Shape,
    layouts: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = self.shape;
        if shape.is_tuple() {
            f.write_char('(')?;
            for (index, part) in shape.parts.iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                let part = Text {
                    shape: part,
                    layouts: self.layouts,
                };
                part.fmt(f)?;
            }
            return f.write_char(')');
        }
        f.write_str(shape.element.name())?;
        f.write_char('[')?;
        for (index, size) in shape.dimensions.iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            if shape.dynamic.get(index) == Some(&true) {
                f.write_str("<=")?;
            }
            write!(f, "{size}")?;
        }
        f.write_char(']')?;
        match &shape.layout {
            Some(layout) if self.layouts && shape.element.bits() > 0 => {
                layout.write(shape.dimensions.is_empty(), f)
            }
            _ => Ok(()),
        }
    }
}

impl Layout {
    /// Writes the layout in braces; that of a scalar only if it says more than the order.
    fn write(&self, is_scalar: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut more = String::new();
        if !self.tiles.is_empty() {
            more.push('T');
            for tile in &self.tiles {
                more.push('(');
                // A combined dimension of a tile has the smallest number.
                let sizes = tile.iter().map(|size| match *size {
                    i64::MIN => "*".to_owned(),
                    size => size.to_string(),
                });
                more.push_str(&sizes.collect::<Vec<_>>().join(","));
                more.push(')');
            }
        }
        if self.tail_padding > 1 {
            write!(more, "L({})", self.tail_padding)?;
        }
        if self.element_bits != 0 {
            write!(more, "E({})", self.element_bits)?;
        }
        if self.memory_space != 0 {
            write!(more, "S({})", self.memory_space)?;
        }
        if is_scalar && more.is_empty() {
            return Ok(());
        }
        f.write_char('{')?;
        for (index, dimension) in self.minor_to_major.iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            write!(f, "{dimension}")?;
        }
        if !more.is_empty() {
            write!(f, ":{more}")?;
        }
        f.write_char('}')
    }
}
