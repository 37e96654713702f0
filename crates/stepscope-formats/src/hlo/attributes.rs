//! Fields of instructions that few opcodes have.

use super::message::{Messages, int};
use crate::protobuf::wire::Value;

/// Fields of an instruction that few opcodes have.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Window of a convolution or a reduction over windows, one entry for each dimension.
    pub window: Vec<WindowDimension>,
    /// Dimensions of a convolution.
    pub convolution: Option<ConvolutionDimensions>,
    /// Dimensions of a matrix product.
    pub dot: Option<DotDimensions>,
    /// Number of group dimensions of a ragged matrix product.
    pub ragged_groups: usize,
    /// Lengths of a Fourier transform.
    pub fft_length: Vec<i64>,
    /// Groups of features of a convolution; 0 in old files means 1.
    pub feature_group_count: i64,
    /// Groups of batches of a convolution; 0 in old files means 1.
    pub batch_group_count: i64,
    /// Ranks that a collective joins, group by group; empty if all join.
    pub replica_groups: Vec<Vec<i64>>,
    /// The value of a constant with one element.
    pub literal: Option<Box<str>>,
}

/// A dimension of a window (`xla.WindowDimension`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowDimension {
    /// Elements of the window.
    pub size: i64,
    /// Distance between windows.
    pub stride: i64,
    /// Padding before the first element.
    pub padding_low: i64,
    /// Padding behind the last element.
    pub padding_high: i64,
    /// Distance between the window's elements.
    pub window_dilation: i64,
    /// Distance between the elements of the base.
    pub base_dilation: i64,
}

/// Roles of the dimensions of a convolution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvolutionDimensions {
    /// Batch dimension of the input.
    pub input_batch: i64,
    /// Feature dimension of the input.
    pub input_feature: i64,
    /// Spatial dimensions of the input.
    pub input_spatial: Vec<i64>,
    /// Spatial dimensions of the kernel.
    pub kernel_spatial: Vec<i64>,
    /// Feature dimension of the output.
    pub output_feature: i64,
    /// Spatial dimensions of the output.
    pub output_spatial: Vec<i64>,
}

/// Roles of the dimensions of a matrix product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DotDimensions {
    /// Dimensions of the left operand that are summed over.
    pub lhs_contracting: Vec<i64>,
    /// Dimensions of the right operand that are summed over.
    pub rhs_contracting: Vec<i64>,
    /// Batch dimensions of the left operand.
    pub lhs_batch: Vec<i64>,
    /// Batch dimensions of the right operand.
    pub rhs_batch: Vec<i64>,
}

impl WindowDimension {
    pub(super) fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |_messages, number, value| match number {
            1 => found.size = int(value),
            2 => found.stride = int(value),
            3 => found.padding_low = int(value),
            4 => found.padding_high = int(value),
            5 => found.window_dilation = int(value),
            6 => found.base_dilation = int(value),
            _ => {}
        });
        found
    }
}

impl ConvolutionDimensions {
    pub(super) fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |messages, number, value| match number {
            7 => found.input_batch = int(value),
            8 => found.input_feature = int(value),
            11 => messages.numbers(value, &mut found.input_spatial),
            6 => messages.numbers(value, &mut found.kernel_spatial),
            10 => found.output_feature = int(value),
            12 => messages.numbers(value, &mut found.output_spatial),
            _ => {}
        });
        found
    }
}

impl DotDimensions {
    pub(super) fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |messages, number, value| match number {
            1 => messages.numbers(value, &mut found.lhs_contracting),
            2 => messages.numbers(value, &mut found.rhs_contracting),
            3 => messages.numbers(value, &mut found.lhs_batch),
            4 => messages.numbers(value, &mut found.rhs_batch),
            _ => {}
        });
        found
    }
}

impl Attributes {
    /// Reads `xla.RaggedDotDimensionNumbers`.
    pub(super) fn read_ragged(&mut self, messages: &mut Messages<'_>, message: &[u8]) {
        messages.each(message, |messages, number, value| match (number, value) {
            (1, Value::Bytes(dot)) => self.dot = Some(DotDimensions::read(messages, dot)),
            (3, value) => {
                let mut groups = Vec::new();
                messages.numbers(value, &mut groups);
                self.ragged_groups += groups.len();
            }
            _ => {}
        });
    }

    /// Reads one `xla.ReplicaGroup`.
    pub(super) fn read_replica_group(&mut self, messages: &mut Messages<'_>, message: &[u8]) {
        let mut ranks = Vec::new();
        messages.each(message, |messages, number, value| {
            if number == 1 {
                messages.numbers(value, &mut ranks);
            }
        });
        self.replica_groups.push(ranks);
    }
}
