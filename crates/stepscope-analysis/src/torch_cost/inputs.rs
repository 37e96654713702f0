//! The recorded inputs of a call: shapes, types, strides and values, as kineto writes them.

use stepscope_hlo::cost::Precision;

use crate::torch_args::{elements, integers, numbers};

/// The arguments of one call as they are in the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallArgs<'a> {
    /// `Input Dims`.
    pub dims: &'a str,
    /// `Input type`; files of 2021 write `Input type` too.
    pub types: &'a str,
    /// `Input Strides`; empty in files of torch before 2.2.
    pub strides: &'a str,
    /// `Concrete Inputs`; empty in files of torch before 2.0.
    pub concrete: &'a str,
}

/// Kind of the elements of a tensor: types promote from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bool,
    Integer,
    Float,
    Complex,
}

/// Type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    kind: Kind,
    /// Bytes of one element; types of four bits pack two in one element.
    pub bytes: u64,
    name: &'static str,
}

const fn data_type(kind: Kind, bytes: u64, name: &'static str) -> DataType {
    DataType { kind, bytes, name }
}

const BOOL: DataType = data_type(Kind::Bool, 1, "bool");
pub(super) const INT64: DataType = data_type(Kind::Integer, 8, "int64");
pub(super) const FLOAT: DataType = data_type(Kind::Float, 4, "fp32");
const DOUBLE: DataType = data_type(Kind::Float, 8, "fp64");
const HALF: DataType = data_type(Kind::Float, 2, "fp16");
const BFLOAT16: DataType = data_type(Kind::Float, 2, "bf16");

/// Names of C++ types, which depend on the compiler of torch, and torch's number of each (`c10::ScalarType`).
const TYPES: &[(&str, i64, DataType)] = &[
    ("float", 6, FLOAT),
    ("double", 7, DOUBLE),
    ("c10::Half", 5, HALF),
    ("c10::BFloat16", 15, BFLOAT16),
    ("c10::Float8_e5m2", 23, data_type(Kind::Float, 1, "fp8")),
    ("c10::Float8_e4m3fn", 24, data_type(Kind::Float, 1, "fp8")),
    ("c10::Float8_e5m2fnuz", 25, data_type(Kind::Float, 1, "fp8")),
    ("c10::Float8_e4m3fnuz", 26, data_type(Kind::Float, 1, "fp8")),
    ("c10::Float8_e8m0fnu", 44, data_type(Kind::Float, 1, "fp8")),
    (
        "c10::Float4_e2m1fn_x2",
        45,
        data_type(Kind::Float, 1, "fp4"),
    ),
    ("bool", 11, BOOL),
    ("unsigned char", 0, data_type(Kind::Integer, 1, "uint8")),
    ("signed char", 1, data_type(Kind::Integer, 1, "int8")),
    ("short", 2, data_type(Kind::Integer, 2, "int16")),
    ("int", 3, data_type(Kind::Integer, 4, "int32")),
    ("long int", 4, INT64),
    ("long", 4, INT64),
    ("long long", 4, INT64),
    ("__int64", 4, INT64),
    ("unsigned short", 27, data_type(Kind::Integer, 2, "uint16")),
    ("unsigned int", 28, data_type(Kind::Integer, 4, "uint32")),
    ("unsigned long", 29, data_type(Kind::Integer, 8, "uint64")),
    ("c10::qint8", 12, data_type(Kind::Integer, 1, "int8")),
    ("c10::quint8", 13, data_type(Kind::Integer, 1, "uint8")),
    ("c10::qint32", 14, data_type(Kind::Integer, 4, "int32")),
    (
        "c10::complex<c10::Half>",
        8,
        data_type(Kind::Complex, 4, "complex32"),
    ),
    (
        "c10::complex<float>",
        9,
        data_type(Kind::Complex, 8, "complex64"),
    ),
    (
        "c10::complex<double>",
        10,
        data_type(Kind::Complex, 16, "complex128"),
    ),
];

impl DataType {
    /// Returns the type that kineto calls `name`: `c10::BFloat16`.
    pub fn from_kineto(name: &str) -> Option<Self> {
        let known = TYPES.iter().find(|(known, _, _)| *known == name);
        known.map(|(_, _, data_type)| *data_type)
    }

    /// Returns the type of this number of `c10::ScalarType`, as in the argument `dtype`.
    pub(super) fn from_number(number: i64) -> Option<Self> {
        let known = TYPES.iter().find(|(_, known, _)| *known == number);
        known.map(|(_, _, data_type)| *data_type)
    }

    /// Returns its short name: `bf16`, `fp32`, `int64`.
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// Returns the class of its peak rate.
    pub fn precision(self) -> Precision {
        match (self.kind, self.bytes) {
            // An element packs two numbers.
            _ if self.name == "fp4" => Precision::F4,
            (_, ..=1) => Precision::F8,
            (Kind::Float, 2) | (Kind::Complex, 4) => Precision::F16,
            (Kind::Float, 8) | (Kind::Complex, 16) => Precision::F64,
            _ => Precision::F32,
        }
    }

    /// Returns whether its elements are integers or truth values.
    pub(super) fn is_integral(self) -> bool {
        self.kind <= Kind::Integer
    }

    /// Returns the type of a result of two operands.
    pub(super) fn promoted(self, other: Self) -> Self {
        if self.kind == other.kind && self.bytes == other.bytes && self != other {
            // Neither FP16 nor BF16 holds the other.
            return if self.kind == Kind::Float {
                FLOAT
            } else {
                self
            };
        }
        if (self.kind, self.bytes) >= (other.kind, other.bytes) {
            self
        } else {
            other
        }
    }

    /// Returns the type in which statistics of its elements are kept: at least FP32.
    pub(super) fn of_statistics(self) -> Self {
        if self.bytes < FLOAT.bytes {
            FLOAT
        } else {
            self
        }
    }
}

/// A tensor among the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) sizes: Vec<u64>,
    strides: Option<Vec<i64>>,
    pub(super) data_type: DataType,
}

impl Tensor {
    /// Returns the number of its elements; `None` above 2^64.
    pub(super) fn elements(&self) -> Option<u64> {
        product(&self.sizes)
    }

    /// Returns the number of elements in memory: an expanded dimension, of stride 0, repeats its elements, and
    /// overlapping windows share them.
    fn stored(&self) -> Option<u64> {
        let all = self.elements()?;
        let Some(strides) = self.strides.as_ref().filter(|_| all > 0) else {
            return Some(all);
        };
        let mut distinct = 1_u64;
        let mut span = 1_u64;
        for (size, stride) in self.sizes.iter().zip(strides) {
            if *stride != 0 {
                distinct = distinct.saturating_mul(*size);
            }
            span = span.saturating_add((*size - 1).saturating_mul(stride.unsigned_abs()));
        }
        Some(distinct.min(span).min(all))
    }

    /// Returns the bytes that reading it once moves.
    pub(super) fn read(&self) -> Option<u64> {
        self.stored()?.checked_mul(self.data_type.bytes)
    }

    /// Returns the bytes that writing a tensor of its shape and type moves.
    pub(super) fn written(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.data_type.bytes)
    }
}

/// Returns the product of sizes; `None` above 2^64.
pub(super) fn product(sizes: &[u64]) -> Option<u64> {
    let mut sizes = sizes.iter();
    sizes.try_fold(1_u64, |product, size| product.checked_mul(*size))
}

/// Returns the sum of parts, each of which may be unknown; `None` above 2^64.
pub(super) fn sum<const N: usize>(parts: [Option<u64>; N]) -> Option<u64> {
    let mut parts = parts.into_iter();
    parts.try_fold(0_u64, |sum, part| sum.checked_add(part?))
}

/// The file does not say what an input is.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownInput;

/// The inputs of one call.
pub(super) struct Inputs<'a> {
    dims: Vec<&'a str>,
    types: Vec<&'a str>,
    strides: Vec<&'a str>,
    values: Vec<&'a str>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(args: CallArgs<'a>) -> Self {
        Self {
            dims: elements(args.dims),
            types: elements(args.types),
            strides: elements(args.strides),
            values: elements(args.concrete),
        }
    }

    /// Returns the shape of an input; `None` for a negative size and for lists of tensors. Inputs that are no
    /// tensors have the shape of a single number.
    pub(super) fn sizes(&self, index: usize) -> Option<Vec<u64>> {
        let sizes = numbers(self.dims.get(index)?)?;
        sizes
            .into_iter()
            .map(|size| u64::try_from(size).ok())
            .collect()
    }

    /// Returns whether some input has no element: the call then does nothing.
    pub(super) fn has_empty(&self) -> bool {
        (0..self.dims.len()).any(|index| {
            let sizes = self.sizes(index);
            sizes.is_some_and(|sizes| sizes.contains(&0))
        })
    }

    fn kineto_type(&self, index: usize) -> &'a str {
        self.types
            .get(index)
            .map_or("", |text| text.trim_matches('"'))
    }

    /// Returns a tensor of known type and shape.
    pub(super) fn tensor(&self, index: usize) -> Option<Tensor> {
        let data_type = DataType::from_kineto(self.kineto_type(index))?;
        let sizes = self.sizes(index)?;
        let strides = self.strides.get(index).and_then(|text| numbers(text));
        Some(Tensor {
            strides: strides.filter(|strides| strides.len() == sizes.len()),
            data_type,
            sizes,
        })
    }

    /// Returns the tensor of an optional input; `None` where the call has none.
    ///
    /// # Errors
    /// [`UnknownInput`] where the file does not say enough.
    pub(super) fn optional(&self, index: usize) -> Result<Option<Tensor>, UnknownInput> {
        match self.kineto_type(index) {
            // Files of 2021 name the kind of a value, such as `Int`.
            "" | "Scalar" | "ScalarList" | "None" | "Bool" | "Int" | "Double" | "String"
            | "GenericList" => Ok(None),
            _ => self.tensor(index).map(Some).ok_or(UnknownInput),
        }
    }

    /// Returns the bytes that reading an optional input moves.
    pub(super) fn read_optional(&self, index: usize) -> Option<u64> {
        match self.optional(index).ok()? {
            Some(tensor) => tensor.read(),
            None => Some(0),
        }
    }

    /// Returns the text of a value; `None` in files without values and for inputs beyond the last.
    pub(super) fn value(&self, index: usize) -> Option<&'a str> {
        self.values.get(index).map(|text| text.trim_matches('"'))
    }

    /// Returns a list of whole numbers among the values.
    pub(super) fn list(&self, index: usize) -> Option<Vec<i64>> {
        integers(self.values.get(index)?)
    }

    /// Returns one whole number among the values.
    pub(super) fn number(&self, index: usize) -> Option<i64> {
        self.value(index)?.parse().ok()
    }

    /// Returns one number for each of `dimensions` (a list of one number holds for all).
    pub(super) fn along(&self, index: usize, dimensions: usize) -> Option<Vec<i64>> {
        let list = self.list(index)?;
        match list.as_slice() {
            [all] => Some(vec![*all; dimensions]),
            list if list.len() == dimensions => Some(list.to_vec()),
            _ => None,
        }
    }

    /// Returns a truth value.
    pub(super) fn flag(&self, index: usize) -> Option<bool> {
        match self.value(index)? {
            "True" | "true" => Some(true),
            "False" | "false" => Some(false),
            _ => None,
        }
    }

    /// Returns a list of three truth values at most, such as the mask of gradients; true where the file has none.
    pub(super) fn mask(&self, index: usize) -> [bool; 3] {
        let mut mask = [true; 3];
        let text = self.value(index).unwrap_or("");
        if let Some(inner) = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
        {
            let parts = inner.split(',').map(str::trim);
            for (slot, part) in mask.iter_mut().zip(parts) {
                *slot = part.eq_ignore_ascii_case("true");
            }
        }
        mask
    }
}
