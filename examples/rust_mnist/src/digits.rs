//! Digits that the example draws, so that it downloads nothing.

use anyhow::Result;
use candle_core::{Device, Tensor};

use crate::random::Random;

/// Side of an image, pixels.
pub(crate) const SIDE: usize = 16;

/// Five by seven pixels each, a row per five bits, most significant bit left.
const GLYPHS: [[u8; 7]; 10] = [
    [
        0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110,
    ],
    [
        0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110,
    ],
    [
        0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111,
    ],
    [
        0b11110, 0b00001, 0b00001, 0b01110, 0b00001, 0b00001, 0b11110,
    ],
    [
        0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010,
    ],
    [
        0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110,
    ],
    [
        0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110,
    ],
    [
        0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000,
    ],
    [
        0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110,
    ],
    [
        0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100,
    ],
];

/// An infinite sequence of noisy, shifted digits; equal seeds give equal digits.
pub(crate) struct Digits {
    random: Random,
}

/// A batch of digits with their labels.
pub(crate) struct Batch {
    pixels: Vec<f32>,
    labels: Vec<u32>,
}

impl Digits {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
        }
    }

    /// Draws `size` digits.
    pub(crate) fn batch(&mut self, size: usize) -> Batch {
        let mut batch = Batch {
            pixels: Vec::with_capacity(size * SIDE * SIDE),
            labels: Vec::with_capacity(size),
        };
        for _ in 0..size {
            let digit = self.random.below(10);
            self.draw(digit, &mut batch.pixels);
            #[allow(clippy::cast_possible_truncation, reason = "a digit")]
            batch.labels.push(digit as u32);
        }
        batch
    }

    /// Draws one digit at up to twice its glyph's height, at a random position, with noise.
    fn draw(&mut self, digit: usize, pixels: &mut Vec<f32>) {
        let scale = 1 + self.random.below(2);
        let left = self.random.below(SIDE - 5 * scale + 1);
        let top = self.random.below(SIDE - 7 * scale + 1);
        for y in 0..SIDE {
            for x in 0..SIDE {
                let inside =
                    (top..top + 7 * scale).contains(&y) && (left..left + 5 * scale).contains(&x);
                let ink = inside && {
                    let row = GLYPHS[digit][(y - top) / scale];
                    row >> (4 - (x - left) / scale) & 1 == 1
                };
                let noise = 0.25 * self.random.unit();
                pixels.push(if ink { 1.0 - noise } else { noise });
            }
        }
    }
}

impl Batch {
    /// Converts the images to `[batch, 1, SIDE, SIDE]`, 0 (paper) to 1 (ink).
    pub(crate) fn images(&self, device: &Device) -> Result<Tensor> {
        let shape = (self.labels.len(), 1, SIDE, SIDE);
        Ok(Tensor::from_slice(&self.pixels, shape, device)?)
    }

    /// Converts the labels to `[batch]`, the digits.
    pub(crate) fn labels(&self, device: &Device) -> Result<Tensor> {
        Ok(Tensor::from_slice(&self.labels, self.labels.len(), device)?)
    }
}
