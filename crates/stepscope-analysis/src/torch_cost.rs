//! Work of one call of a PyTorch operator, from the inputs that kineto records: floating-point operations and the
//! bytes that it moves at least.
//!
//! ```text
//! bytes = every tensor that the operator reads, once, and every one that it writes, once
//! ```
//! Elements that an expanded or overlapping tensor repeats are read once. The formulas of each class of operators
//! are in its module; `mfu` counts the same operations of matrix products, convolutions and attention. What no
//! formula knows, and what the file does not have, is unknown, never 0: lists of tensors (`cat`, `_foreach_add_`) have
//! no types in the file, and results whose shape depends on values (`nonzero`) none either.
//!
//! Operators call each other. A [`Model`] is of the operator that states the work best; *composite* operators
//! (`linear`, `layer_norm`) mostly leave the work to one of them, and count only where they launch it themselves.

mod attention;
mod convolution;
mod elementwise;
mod indexing;
mod inputs;
mod matmul;
mod normalization;
mod reduction;
#[cfg(test)]
mod tests;
pub mod with_flops;

use attention::Pairs;
use inputs::Inputs;
pub use inputs::{CallArgs, DataType};

/// Class of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TorchOpClass {
    /// Matrix products.
    MatMul,
    /// Convolutions.
    Convolution,
    /// Attention.
    Attention,
    /// Normalisations.
    Normalization,
    /// Softmax and its logarithm.
    Softmax,
    /// Reductions.
    Reduction,
    /// Element-wise operators.
    ElementWise,
    /// Copies, casts and fills.
    Copy,
    /// Embeddings, gathers and pooling windows.
    Indexing,
}

impl TorchOpClass {
    /// All classes, in the order of lists.
    pub const ALL: [Self; 9] = [
        Self::MatMul,
        Self::Convolution,
        Self::Attention,
        Self::Normalization,
        Self::Softmax,
        Self::Reduction,
        Self::ElementWise,
        Self::Copy,
        Self::Indexing,
    ];

    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MatMul => "matmul",
            Self::Convolution => "convolution",
            Self::Attention => "attention",
            Self::Normalization => "normalization",
            Self::Softmax => "softmax",
            Self::Reduction => "reduction",
            Self::ElementWise => "element-wise",
            Self::Copy => "copy",
            Self::Indexing => "indexing",
        }
    }

    /// Returns whether `mfu` counts the operations of the class.
    pub const fn is_product(self) -> bool {
        matches!(self, Self::MatMul | Self::Convolution | Self::Attention)
    }
}

/// Work of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpCost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that it moves at least.
    pub bytes: u64,
    /// Type of the elements that it computes with.
    pub data_type: DataType,
}

/// Formulas of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formula {
    MatMul(matmul::Form),
    Convolution(convolution::Direction),
    Attention(attention::Attention),
    Norm(normalization::Norm),
    Reduction(reduction::Reduction),
    ElementWise(elementwise::ElementWise),
    Movement(elementwise::Movement),
    Indexing(indexing::Indexing),
}

/// How the work of calls of one name is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    formula: Formula,
    /// Whether the operator mostly leaves its work to another one that has a model.
    pub is_composite: bool,
}

/// Returns the entry of a table by operator name.
fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let entry = table.iter().find(|(known, _)| *known == name);
    entry.map(|(_, value)| *value)
}

impl Model {
    /// Returns the model of operators of this name: `aten::addmm`.
    pub fn from_name(name: &str) -> Option<Self> {
        if !name.contains("::") {
            return None;
        }
        let own = matmul::form(name)
            .map(Formula::MatMul)
            .or_else(|| convolution::direction(name).map(Formula::Convolution))
            .or_else(|| attention::layout(name).map(Formula::Attention))
            .or_else(|| normalization::norm(name).map(Formula::Norm))
            .or_else(|| reduction::reduction(name).map(Formula::Reduction))
            .or_else(|| elementwise::movement(name).map(Formula::Movement))
            .or_else(|| elementwise::element_wise(name).map(Formula::ElementWise))
            .or_else(|| indexing::indexing(name).map(Formula::Indexing));
        if let Some(formula) = own {
            return Some(Self {
                formula,
                is_composite: false,
            });
        }
        let composite = matmul::composite(name)
            .map(Formula::MatMul)
            .or_else(|| normalization::composite(name).map(Formula::Norm));
        composite.map(|formula| Self {
            formula,
            is_composite: true,
        })
    }

    /// Returns the class of the operator.
    pub const fn class(self) -> TorchOpClass {
        match self.formula {
            Formula::MatMul(_) => TorchOpClass::MatMul,
            Formula::Convolution(_) => TorchOpClass::Convolution,
            Formula::Attention(_) => TorchOpClass::Attention,
            Formula::Norm(_) => TorchOpClass::Normalization,
            Formula::Reduction(reduction) if reduction.is_softmax() => TorchOpClass::Softmax,
            Formula::Reduction(_) => TorchOpClass::Reduction,
            Formula::Movement(movement) if movement.is_copy() => TorchOpClass::Copy,
            Formula::ElementWise(_) | Formula::Movement(_) => TorchOpClass::ElementWise,
            Formula::Indexing(_) => TorchOpClass::Indexing,
        }
    }

    fn flops(self, inputs: &Inputs<'_>, pairs: Pairs) -> Option<u64> {
        match self.formula {
            Formula::MatMul(form) => form.flops(inputs),
            Formula::Convolution(direction) => direction.flops(inputs),
            Formula::Attention(attention) => attention.flops(inputs, pairs),
            Formula::Norm(norm) => norm.flops(inputs),
            Formula::Reduction(reduction) => reduction.flops(inputs),
            Formula::ElementWise(op) => op.flops(inputs),
            Formula::Movement(movement) => movement.flops(inputs),
            Formula::Indexing(indexing) => indexing.flops(inputs),
        }
    }

    fn bytes(self, name: &str, inputs: &Inputs<'_>) -> Option<u64> {
        match self.formula {
            Formula::MatMul(form) => form.bytes(inputs),
            Formula::Convolution(direction) => direction.bytes(inputs),
            Formula::Attention(attention) => attention.bytes(inputs),
            Formula::Norm(norm) => norm.bytes(inputs),
            Formula::Reduction(reduction) => reduction.bytes(inputs),
            Formula::ElementWise(op) => op.bytes(inputs, name),
            Formula::Movement(movement) => movement.bytes(inputs),
            Formula::Indexing(indexing) => indexing.bytes(inputs),
        }
    }

    /// Returns the index of the input whose type is the precision.
    const fn first(self) -> usize {
        match self.formula {
            Formula::MatMul(form) => form.first(),
            Formula::Convolution(direction) => direction.first(),
            Formula::Attention(attention) => attention.first(),
            Formula::Norm(norm) => norm.first(),
            Formula::Movement(movement) => movement.first(),
            Formula::Reduction(_) | Formula::ElementWise(_) | Formula::Indexing(_) => 0,
        }
    }

    /// Computes the work of a call of the operator `name`; `None` where the file does not have what the formula
    /// needs, or the figures exceed 2^64.
    pub fn cost(self, name: &str, args: CallArgs<'_>) -> Option<OpCost> {
        let inputs = Inputs::new(args);
        Some(OpCost {
            flops: self.flops(&inputs, Pairs::Unmasked)?,
            bytes: self.bytes(name, &inputs)?,
            data_type: inputs.tensor(self.first())?.data_type,
        })
    }
}

/// Operations of a call that `mfu` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductFlops {
    /// This many; causal attention counts as if it had no mask.
    Counted(u64),
    /// An input has no element: the call does nothing.
    Empty,
    /// The shapes or values are not in the file, or do not fit.
    Unknown,
}

/// Returns whether `mfu` counts calls of this name: matrix products, convolutions and attention.
pub fn is_product(name: &str) -> bool {
    let model = Model::from_name(name);
    model.is_some_and(|model| !model.is_composite && model.class().is_product())
}

/// Computes the operations of a call of a product from the arguments `Input Dims` and `Concrete Inputs`.
pub fn product_flops(name: &str, dims: &str, concrete: &str) -> ProductFlops {
    let inputs = Inputs::new(CallArgs {
        dims,
        concrete,
        ..CallArgs::default()
    });
    let model = Model::from_name(name).filter(|_| is_product(name));
    if inputs.has_empty() {
        return ProductFlops::Empty;
    }
    match model.and_then(|model| model.flops(&inputs, Pairs::All)) {
        Some(flops) => ProductFlops::Counted(flops),
        None => ProductFlops::Unknown,
    }
}
