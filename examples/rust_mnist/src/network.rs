//! A small convolutional network.

use candle_core::{Result, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module as _, VarBuilder, VarMap};

use crate::digits::SIDE;
use crate::random::Random;

const CHANNELS: usize = 12;

/// Two convolutions with pooling, two dense layers.
pub(crate) struct Network {
    first: Conv2d,
    second: Conv2d,
    hidden: Linear,
    output: Linear,
}

impl Network {
    pub(crate) fn new(variables: &VarBuilder<'_>) -> Result<Self> {
        let padded = Conv2dConfig {
            padding: 1,
            ..Conv2dConfig::default()
        };
        let pooled = SIDE / 4;
        Ok(Self {
            first: candle_nn::conv2d(1, CHANNELS, 3, padded, variables.pp("first"))?,
            second: candle_nn::conv2d(CHANNELS, 2 * CHANNELS, 3, padded, variables.pp("second"))?,
            hidden: candle_nn::linear(2 * CHANNELS * pooled * pooled, 64, variables.pp("hidden"))?,
            output: candle_nn::linear(64, 10, variables.pp("output"))?,
        })
    }

    /// Computes the logits: `[batch, 1, SIDE, SIDE]` to `[batch, 10]`.
    pub(crate) fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let images = {
            let _span = stepscope::span!("conv1");
            self.first.forward(images)?.relu()?.max_pool2d(2)?
        };
        let images = {
            let _span = stepscope::span!("conv2");
            self.second.forward(&images)?.relu()?.max_pool2d(2)?
        };
        let _span = stepscope::span!("dense");
        let features = self.hidden.forward(&images.flatten_from(1)?)?.relu()?;
        self.output.forward(&features)
    }
}

/// Initializes every weight with a small value that is the same in every run: candle's initial
/// values differ from run to run, and unlucky ones would make the example look as if it did not
/// learn.
pub(crate) fn initialize(variables: &mut VarMap, random: &mut Random) -> Result<()> {
    let mut settled = Vec::new();
    {
        let data = variables.data().lock().expect("not locked");
        let all = data.iter();
        settled.extend(all.map(|(name, variable)| (name.clone(), variable.as_tensor().clone())));
    }
    settled.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, before) in settled {
        let shape = before.shape();
        // He's bound for layers that end in a ReLU; biases start at zero.
        let inputs: usize = shape.dims().iter().skip(1).product();
        let bound = if shape.rank() > 1 {
            (6.0 / inputs as f32).sqrt()
        } else {
            0.0
        };
        let values: Vec<f32> = (0..shape.elem_count())
            .map(|_| bound * (2.0 * random.unit() - 1.0))
            .collect();
        variables.set_one(&name, Tensor::from_vec(values, shape, before.device())?)?;
    }
    Ok(())
}
