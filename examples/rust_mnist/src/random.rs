//! Reproducible pseudo-random numbers.

/// An xorshift64* generator, sufficient for drawing digits and for initial weights.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    /// Returns a number in `0..bound`.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "less than the bound, which is a `usize`"
    )]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns a number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 39) as f32 / (1_u64 << 24) as f32
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 1
    }
}
