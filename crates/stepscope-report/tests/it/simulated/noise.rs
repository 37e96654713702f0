//! Noise of simulated programs: seeded, and equal on every machine.
//!
//! Normal deviates are sums of twelve uniform ones: no function of the platform's mathematics library is used.

/// Strength of the noise; shares are standard deviations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Seed of the run.
    pub seed: u64,
    /// What all times of a run have in common: clock frequency, placement.
    pub run_share: f64,
    /// What all times of a step have in common; it decays by half from step to step.
    pub step_share: f64,
    /// Each length by itself.
    pub length_share: f64,
    /// Fraction of the steps whose host times are 1.2 to 1.6 times as long.
    pub outlier_fraction: f64,
}

impl Noise {
    /// Returns noise as on a GPU server of its own.
    pub(crate) const fn usual(seed: u64) -> Self {
        Self {
            seed,
            run_share: 0.002,
            step_share: 0.008,
            length_share: 0.02,
            outlier_fraction: 0.03,
        }
    }

    /// Returns the noise of each step of a rank.
    pub(super) fn steps(&self, rank: usize, steps: usize) -> Vec<StepNoise<'_>> {
        let mut of_run = Random::new(self.seed, 0);
        let run = 1.0 + self.run_share * of_run.normal();
        let mut random = Random::new(self.seed, 1 + rank as u64);
        let mut common = random.normal();
        let steps = (0..steps).map(|step| {
            common = 0.5 * common + 0.866 * random.normal();
            let is_outlier = random.uniform() < self.outlier_fraction;
            let outlier = 1.2 + 0.4 * random.uniform();
            // Caches and allocators fill in the first steps.
            let warm_up = [2.5, 1.4].get(step).copied().unwrap_or(1.0);
            StepNoise {
                noise: self,
                random: Random::new(self.seed ^ 0x5bd1_e995, (rank as u64) << 32 | step as u64),
                device: run * (1.0 + self.step_share * common),
                host: run * warm_up * if is_outlier { outlier } else { 1.0 },
            }
        });
        steps.collect()
    }
}

/// Noise of one step of a rank.
pub(super) struct StepNoise<'a> {
    noise: &'a Noise,
    random: Random,
    device: f64,
    host: f64,
}

impl StepNoise<'_> {
    /// Returns a length on the device with noise, nanoseconds.
    pub(super) fn device(&mut self, length: i64) -> i64 {
        let factor = self.device;
        self.length(length, factor)
    }

    /// Returns a length on the host with noise, nanoseconds.
    pub(super) fn host(&mut self, length: i64) -> i64 {
        let factor = self.host * self.device;
        self.length(length, factor)
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "lengths are far below the limits"
    )]
    fn length(&mut self, length: i64, factor: f64) -> i64 {
        let own = 1.0 + self.noise.length_share * self.random.normal();
        (length as f64 * factor * own.max(0.2)) as i64
    }
}

/// Generator of pseudo-random numbers: `SplitMix64`.
pub(crate) struct Random(u64);

impl Random {
    /// Returns a generator; different streams of one seed are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03),
        );
        random.next_bits();
        random
    }

    /// Returns 64 random bits.
    pub(crate) fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// Returns a number from 0 to below 1.
    fn uniform(&mut self) -> f64 {
        (self.next_bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number with mean 0 and standard deviation 1, nearly normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
