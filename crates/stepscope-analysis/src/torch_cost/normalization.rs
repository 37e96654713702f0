//! Normalisations, forward and backward.
//!
//! With `e` the elements of the input:
//!
//! ```text
//! forward, statistics of the input   4 e: sum; subtract, square, sum           (RMS: 2 e: square, sum)
//!          scaling                   2 e: subtract the mean, times 1/deviation (RMS: 1 e)
//!          weight, bias              1 e each, where the call has them
//! backward, of the input             9 e: normalised input 2, sums 3, result 4 (RMS: 6 e: 1, 2, 3)
//!                                    and 1 e with a weight; 2 e in all with running statistics
//!           of the weight            2 e; with running statistics and without the gradient of the input 4 e
//!           of the bias              1 e
//! ```
//! The few operations of each group (divide, root) are left out. Bytes are those of the input, the result, the
//! parameters, and the statistics that the operator returns or updates.

use super::inputs::{Inputs, Tensor, product, sum};

/// Method of a normalisation, and the layout of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norm {
    /// `(input, normalized_shape, weight, bias)`.
    Layer,
    /// `(gradient, input, normalized_shape, mean, rstd, weight, bias, mask)`.
    LayerBackward,
    /// `(input, weight, bias, running_mean, running_var, training)`, also of `instance_norm`.
    Batch,
    /// `(gradient, input, weight, running_mean, running_var, mean, rstd, train, eps, mask)`.
    BatchBackward,
    /// `(input, gradient, weight, running_mean, running_var, mean, rstd)`: always all gradients.
    LibraryBatchBackward,
    /// `(input, weight, bias, N, C, HxW, groups)`.
    NativeGroup,
    /// `(input, groups, weight, bias)`.
    Group,
    /// `(gradient, input, mean, rstd, weight, N, C, HxW, groups, mask)`.
    GroupBackward,
    /// `(input, normalized_shape, weight)`.
    Rms,
    /// `(gradient, input, normalized_shape, rstd, weight, mask)`.
    RmsBackward,
    /// `(input, weight)`, which returns the result only.
    PlainRms,
    /// `(result, input, weight)`.
    RmsInto,
    /// `(result, input, residual, new residual, weight)`: adds the residual first.
    AddRms,
}

const NORMS: &[(&str, Norm)] = &[
    ("aten::native_layer_norm", Norm::Layer),
    ("aten::native_layer_norm_backward", Norm::LayerBackward),
    ("aten::native_batch_norm", Norm::Batch),
    ("aten::cudnn_batch_norm", Norm::Batch),
    ("aten::miopen_batch_norm", Norm::Batch),
    ("aten::native_batch_norm_backward", Norm::BatchBackward),
    (
        "aten::cudnn_batch_norm_backward",
        Norm::LibraryBatchBackward,
    ),
    (
        "aten::miopen_batch_norm_backward",
        Norm::LibraryBatchBackward,
    ),
    ("aten::native_group_norm", Norm::NativeGroup),
    ("aten::native_group_norm_backward", Norm::GroupBackward),
    ("aten::_fused_rms_norm", Norm::Rms),
    ("aten::_fused_rms_norm_backward", Norm::RmsBackward),
    ("aiter::rms_norm", Norm::PlainRms),
    ("aiter::rmsnorm", Norm::RmsInto),
    ("aiter::rmsnorm2d_fwd_with_add_ck", Norm::AddRms),
    ("aiter::add_rmsnorm", Norm::AddRms),
];

/// Operators that mostly call one of [`NORMS`].
const COMPOSITE: &[(&str, Norm)] = &[
    ("aten::layer_norm", Norm::Layer),
    ("aten::batch_norm", Norm::Batch),
    ("aten::_batch_norm_impl_index", Norm::Batch),
    ("aten::instance_norm", Norm::Batch),
    ("aten::group_norm", Norm::Group),
    ("aten::rms_norm", Norm::Rms),
];

pub(super) fn norm(name: &str) -> Option<Norm> {
    super::find(NORMS, name)
}

pub(super) fn composite(name: &str) -> Option<Norm> {
    super::find(COMPOSITE, name)
}

/// What a forward pass does besides scaling.
struct Forward {
    /// Whether it computes the statistics.
    has_statistics: bool,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    /// Elements of the statistics that it returns or updates, in the type of statistics.
    saved: u64,
    /// Elements of the running statistics, which it reads, and writes where it computes statistics.
    running: Option<[Tensor; 2]>,
}

/// What a backward pass computes.
struct Backward {
    gradient: Tensor,
    weight: Option<Tensor>,
    /// Gradients of input, weight and bias.
    mask: [bool; 3],
    has_batch_statistics: bool,
    /// Elements of mean and deviation, which it reads.
    saved: u64,
    /// Elements of the gradient of the weight.
    parameters: u64,
}

impl Norm {
    const fn is_rms(self) -> bool {
        matches!(
            self,
            Self::Rms | Self::RmsBackward | Self::PlainRms | Self::RmsInto | Self::AddRms
        )
    }

    const fn is_backward(self) -> bool {
        matches!(
            self,
            Self::LayerBackward
                | Self::BatchBackward
                | Self::LibraryBatchBackward
                | Self::GroupBackward
                | Self::RmsBackward
        )
    }

    /// Returns the index of the input that is normalised.
    pub(super) const fn first(self) -> usize {
        match self {
            Self::LayerBackward
            | Self::BatchBackward
            | Self::GroupBackward
            | Self::RmsBackward
            | Self::RmsInto
            | Self::AddRms => 1,
            _ => 0,
        }
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        let elements = inputs.tensor(self.first())?.elements()?;
        let for_each = if self.is_backward() {
            let Backward {
                weight,
                mask: [of_input, of_weight, of_bias],
                has_batch_statistics,
                ..
            } = self.backward(inputs)?;
            let of_input = match (of_input, has_batch_statistics) {
                (false, _) => 0,
                (true, false) => 1 + u64::from(weight.is_some()),
                (true, true) => (if self.is_rms() { 6 } else { 9 }) + u64::from(weight.is_some()),
            };
            // The normalised input is shared with the gradient of the input.
            let normalised = if self.is_rms() { 1 } else { 2 };
            let of_weight = match (of_weight, of_input > 2) {
                (false, _) => 0,
                (true, true) => 2,
                (true, false) => 2 + normalised,
            };
            of_input + of_weight + u64::from(of_bias)
        } else {
            let Forward {
                has_statistics,
                weight,
                bias,
                ..
            } = self.forward(inputs)?;
            let (statistics, scaling) = if self.is_rms() { (2, 1) } else { (4, 2) };
            (if has_statistics { statistics } else { 0 })
                + scaling
                + u64::from(weight.is_some())
                + u64::from(bias.is_some())
                + u64::from(self == Self::AddRms)
        };
        elements.checked_mul(for_each)
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        let input = inputs.tensor(self.first())?;
        let statistics = input.data_type.of_statistics().bytes;
        let read = |tensor: Option<Tensor>| tensor.map_or(Some(0), |tensor| tensor.read());
        if self.is_backward() {
            let Backward {
                gradient,
                weight,
                mask: [of_input, of_weight, of_bias],
                saved,
                parameters,
                ..
            } = self.backward(inputs)?;
            let size = weight
                .as_ref()
                .map_or(statistics, |weight| weight.data_type.bytes);
            let written = parameters
                .checked_mul(u64::from(of_weight) + u64::from(of_bias))?
                .checked_mul(size);
            return sum([
                gradient.read(),
                input.read(),
                saved.checked_mul(statistics),
                read(weight),
                if of_input { input.written() } else { Some(0) },
                written,
            ]);
        }
        let forward = self.forward(inputs)?;
        let residual = match self {
            // Reads the residual and writes the new one.
            Self::AddRms => input.written()?.checked_mul(2),
            _ => Some(0),
        };
        let running = match &forward.running {
            Some([mean, variance]) => {
                let times = if forward.has_statistics { 2 } else { 1 };
                sum([mean.read(), variance.read()])?.checked_mul(times)
            }
            None => Some(0),
        };
        sum([
            input.read(),
            input.written(),
            read(forward.weight),
            read(forward.bias),
            forward.saved.checked_mul(statistics),
            running,
            residual,
        ])
    }

    fn forward(self, inputs: &Inputs<'_>) -> Option<Forward> {
        let input = inputs.tensor(self.first())?;
        let elements = input.elements()?;
        let mut forward = Forward {
            has_statistics: true,
            weight: None,
            bias: None,
            saved: 0,
            running: None,
        };
        let weight = match self {
            Self::Layer | Self::Rms | Self::Group | Self::RmsInto => 2,
            Self::AddRms => 4,
            _ => 1,
        };
        forward.weight = inputs.optional(weight).ok()?;
        if !self.is_rms() {
            forward.bias = inputs.optional(weight + 1).ok()?;
        }
        match self {
            Self::Layer | Self::Rms => {
                let normalised = normalised(inputs, 1, forward.weight.as_ref())?;
                let rows = elements.checked_div(normalised)?;
                forward.saved = if self.is_rms() {
                    rows
                } else {
                    rows.checked_mul(2)?
                };
            }
            Self::Batch => {
                let channels = *input.sizes.get(1)?;
                forward.has_statistics = inputs.flag(5)?;
                forward.running = inputs
                    .optional(3)
                    .ok()?
                    .zip(inputs.optional(4).ok()?)
                    .map(<[_; 2]>::from);
                if forward.has_statistics {
                    forward.saved = channels.checked_mul(2)?;
                }
            }
            Self::NativeGroup | Self::Group => {
                let groups = inputs.number(if self == Self::Group { 1 } else { 6 })?;
                let groups = u64::try_from(groups).ok()?;
                forward.saved = product(&[2, *input.sizes.first()?, groups])?;
            }
            _ => {}
        }
        Some(forward)
    }

    fn backward(self, inputs: &Inputs<'_>) -> Option<Backward> {
        let input = inputs.tensor(self.first())?;
        let elements = input.elements()?;
        let (gradient, weight, mask) = match self {
            Self::LayerBackward => (0, 5, inputs.mask(7)),
            Self::BatchBackward => (0, 2, inputs.mask(9)),
            Self::GroupBackward => (0, 4, inputs.mask(9)),
            Self::RmsBackward => (0, 4, inputs.mask(5)),
            _ => (1, 2, [true; 3]),
        };
        let weight = inputs.optional(weight).ok()?;
        let has_bias = !self.is_rms();
        let mut found = Backward {
            gradient: inputs.tensor(gradient)?,
            mask: [mask[0], mask[1], mask[2] && has_bias],
            weight,
            has_batch_statistics: true,
            saved: 0,
            parameters: 0,
        };
        (found.parameters, found.saved) = match self {
            Self::LayerBackward | Self::RmsBackward => {
                let normalised = normalised(inputs, 2, found.weight.as_ref())?;
                let rows = elements.checked_div(normalised)?;
                let statistics = if self.is_rms() { 1 } else { 2 };
                (normalised, rows.checked_mul(statistics)?)
            }
            Self::GroupBackward => {
                let groups = u64::try_from(inputs.number(8)?).ok()?;
                let saved = product(&[2, *input.sizes.first()?, groups])?;
                (*input.sizes.get(1)?, saved)
            }
            _ => {
                let channels = *input.sizes.get(1)?;
                (channels, channels.checked_mul(2)?)
            }
        };
        if self == Self::BatchBackward {
            found.has_batch_statistics = inputs.flag(7)?;
        }
        Some(found)
    }
}

/// Returns the elements over which a layer normalises: of the weight, else of the argument `normalized_shape`.
fn normalised(inputs: &Inputs<'_>, shape: usize, weight: Option<&Tensor>) -> Option<u64> {
    if let Some(weight) = weight {
        return weight.elements();
    }
    let sizes = inputs.list(shape)?;
    let sizes: Option<Vec<u64>> = sizes
        .into_iter()
        .map(|size| u64::try_from(size).ok())
        .collect();
    product(&sizes?)
}
