//! Matrix products that keep the processor's multipliers busy: `C += A * B` of blocks that fit its caches.
//!
//! `A` is stored in panels of a few rows, `B` in panels of a few vectors, as libraries for products do it; the
//! innermost function multiplies two panels and holds its part of `C` in registers.

#![allow(
    unsafe_code,
    reason = "instructions of processors, behind checks that the processor has them"
)]

use std::hint::black_box;

/// Rows and columns of the result, and the length of the sums.
const ROWS: usize = 144;
const COLUMNS: usize = 256;
const DEPTH: usize = 256;

/// Set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// 512 bits, multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 256 bits, multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every processor of the architecture has.
    Baseline,
}

impl Kernel {
    /// Returns the widest set that this processor has.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }

    /// Returns its name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "AVX2",
            Self::Baseline => "baseline instructions",
        }
    }
}

/// Whether products in `bf16` can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bf16 {
    /// The processor multiplies pairs with AVX-512.
    Instructions,
    /// The processor has a matrix unit, which this program cannot use.
    Matrix,
    /// Nothing that this program can use.
    Missing,
}

impl Bf16 {
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if has_matrix_unit() {
                return Self::Matrix;
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16") {
                return Self::Instructions;
            }
        }
        Self::Missing
    }

    /// Returns the instructions, or why there is no figure.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Instructions => "AVX-512 BF16",
            Self::Matrix => "the processor's matrix unit (AMX) is not used by this program",
            Self::Missing => "this program has no bf16 instructions for the processor",
        }
    }
}

/// Returns whether the processor reports AMX for `bf16`.
#[cfg(target_arch = "x86_64")]
#[allow(
    unused_unsafe,
    reason = "safe in newer versions of the standard library"
)]
fn has_matrix_unit() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const AMX_BF16: u32 = 1 << 22;
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & AMX_BF16 != 0 }
}

/// The element type of a product.
pub(super) trait Float: Copy + From<f32> {
    /// Returns rows and columns of the part of the result that a kernel holds in registers.
    fn tile(kernel: Kernel) -> (usize, usize);

    /// Adds the product of two panels to a part of the result. The processor has the kernel's instructions.
    fn multiply(kernel: Kernel, a: &[Self], b: &[Self], tile: &mut [Self]);
}

macro_rules! float {
    ($float:ident, $avx512:ident, $avx512_columns:literal, $avx2:ident, $avx2_columns:literal) => {
        impl Float for $float {
            fn tile(kernel: Kernel) -> (usize, usize) {
                match kernel {
                    #[cfg(target_arch = "x86_64")]
                    Kernel::Avx512 => (12, $avx512_columns),
                    #[cfg(target_arch = "x86_64")]
                    Kernel::Avx2 => (6, $avx2_columns),
                    Kernel::Baseline => (8, 8),
                }
            }

            fn multiply(kernel: Kernel, a: &[Self], b: &[Self], tile: &mut [Self]) {
                match kernel {
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: `detect` found the instructions on this processor.
                    Kernel::Avx512 => unsafe { x86::$avx512(a, b, tile) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: `detect` found the instructions on this processor.
                    Kernel::Avx2 => unsafe { x86::$avx2(a, b, tile) },
                    Kernel::Baseline => baseline::$float(a, b, tile),
                }
            }
        }
    };
}

float!(f32, avx512_f32, 32, avx2_f32, 16);
float!(f64, avx512_f64, 16, avx2_f64, 8);

/// A product of matrices.
pub(super) struct Product<T> {
    kernel: Kernel,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
}

/// Operations of one product.
pub(super) const FLOPS: f64 = 2.0 * (ROWS * COLUMNS * DEPTH) as f64;

impl<T: Float> Product<T> {
    pub(super) fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            a: vec![(1.0 / DEPTH as f32).into(); ROWS * DEPTH],
            b: vec![1.0.into(); COLUMNS * DEPTH],
            c: vec![0.0.into(); ROWS * COLUMNS],
        }
    }

    /// Adds the product to the result.
    pub(super) fn run(&mut self) {
        let (rows, columns) = T::tile(self.kernel);
        let (a, b) = (black_box(&self.a), black_box(&self.b));
        let mut tiles = self.c.chunks_exact_mut(rows * columns);
        for b in b.chunks_exact(columns * DEPTH) {
            for (a, tile) in a.chunks_exact(rows * DEPTH).zip(&mut tiles) {
                T::multiply(self.kernel, a, b, tile);
            }
        }
        black_box(&mut self.c);
    }
}

/// What every processor of the architecture has.
mod baseline {
    macro_rules! baseline {
        ($float:ident) => {
            /// Multiplies two panels, 8 by 8, with what the compiler makes of it.
            pub(super) fn $float(a: &[$float], b: &[$float], tile: &mut [$float]) {
                let mut sums: [[$float; 8]; 8] = [[0.0; 8]; 8];
                for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
                    for (sums, a) in sums.iter_mut().zip(a) {
                        for (sum, b) in sums.iter_mut().zip(b) {
                            *sum = if cfg!(target_feature = "fma") || cfg!(target_arch = "aarch64")
                            {
                                a.mul_add(*b, *sum)
                            } else {
                                *sum + a * b
                            };
                        }
                    }
                }
                for (into, sum) in tile.iter_mut().zip(sums.as_flattened()) {
                    *into += sum;
                }
            }
        };
    }
    baseline!(f32);
    baseline!(f64);
}

/// A product of matrices in `bf16`, added in `f32`.
pub(super) struct Bf16Product {
    /// Pairs of neighbours along the sums.
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<f32>,
}

impl Bf16Product {
    pub(super) fn new() -> Self {
        // Upper halves of the f32 values 1/256 and 1.
        let pair = |upper: u32| upper << 16 | upper;
        Self {
            a: vec![pair((1.0_f32 / DEPTH as f32).to_bits() >> 16); ROWS * DEPTH / 2],
            b: vec![pair(1.0_f32.to_bits() >> 16); COLUMNS * DEPTH / 2],
            c: vec![0.0; ROWS * COLUMNS],
        }
    }

    /// Adds the product to the result. Does nothing on processors without the instructions.
    pub(super) fn run(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16") {
            let (a, b) = (black_box(&self.a), black_box(&self.b));
            let mut tiles = self.c.chunks_exact_mut(12 * 32);
            for b in b.chunks_exact(32 * DEPTH / 2) {
                for (a, tile) in a.chunks_exact(12 * DEPTH / 2).zip(&mut tiles) {
                    // SAFETY: the processor has the instructions, as the condition says.
                    unsafe { x86::bf16(a, b, tile) };
                }
            }
        }
        black_box((&self.a, &self.b, &mut self.c));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m256d, __m512, __m512bh, __m512d, __m512i, _mm256_add_pd, _mm256_add_ps,
        _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_set1_pd,
        _mm256_set1_ps, _mm256_setzero_pd, _mm256_setzero_ps, _mm256_storeu_pd, _mm256_storeu_ps,
        _mm512_add_pd, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_fmadd_pd, _mm512_fmadd_ps,
        _mm512_loadu_pd, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_pd,
        _mm512_set1_ps, _mm512_setzero_pd, _mm512_setzero_ps, _mm512_storeu_pd, _mm512_storeu_ps,
    };

    macro_rules! kernel {
        (
            $name:ident, $features:literal, $float:ident, $vector:ident, $lanes:literal, $rows:literal,
            $zero:ident, $all:ident, $load:ident, $store:ident, $add:ident, $fma:ident
        ) => {
            /// Multiplies a panel of a few rows and one of two vectors.
            #[target_feature(enable = $features)]
            pub(super) fn $name(a: &[$float], b: &[$float], tile: &mut [$float]) {
                let mut sums: [[$vector; 2]; $rows] = [[$zero(); 2]; $rows];
                let columns = b.as_chunks::<{ 2 * $lanes }>().0;
                for (a, b) in a.as_chunks::<$rows>().0.iter().zip(columns) {
                    // SAFETY: `b` has the values of two vectors.
                    let (left, right) = unsafe {
                        let left = b.as_ptr();
                        ($load(left), $load(left.add($lanes)))
                    };
                    for (sum, a) in sums.iter_mut().zip(a) {
                        let a = $all(*a);
                        sum[0] = $fma(a, left, sum[0]);
                        sum[1] = $fma(a, right, sum[1]);
                    }
                }
                let halves = tile.as_chunks_mut::<$lanes>().0.iter_mut();
                for (half, sum) in halves.zip(sums.as_flattened()) {
                    // SAFETY: a half has the values of a vector.
                    unsafe {
                        let before = $load(half.as_ptr());
                        $store(half.as_mut_ptr(), $add(before, *sum));
                    }
                }
            }
        };
    }

    #[rustfmt::skip]
    kernel!(
        avx512_f32, "avx512f", f32, __m512, 16, 12, _mm512_setzero_ps, _mm512_set1_ps, _mm512_loadu_ps,
        _mm512_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps
    );
    #[rustfmt::skip]
    kernel!(
        avx512_f64, "avx512f", f64, __m512d, 8, 12, _mm512_setzero_pd, _mm512_set1_pd, _mm512_loadu_pd,
        _mm512_storeu_pd, _mm512_add_pd, _mm512_fmadd_pd
    );
    #[rustfmt::skip]
    kernel!(
        avx2_f32, "avx2,fma", f32, __m256, 8, 6, _mm256_setzero_ps, _mm256_set1_ps, _mm256_loadu_ps,
        _mm256_storeu_ps, _mm256_add_ps, _mm256_fmadd_ps
    );
    #[rustfmt::skip]
    kernel!(
        avx2_f64, "avx2,fma", f64, __m256d, 4, 6, _mm256_setzero_pd, _mm256_set1_pd, _mm256_loadu_pd,
        _mm256_storeu_pd, _mm256_add_pd, _mm256_fmadd_pd
    );

    /// Multiplies pairs of `bf16`: a panel of 12 rows and one of 32 columns.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16(a: &[u32], b: &[u32], tile: &mut [f32]) {
        let pairs = |vector: __m512i| -> __m512bh {
            // SAFETY: both types are 512 bits without a meaning of their own.
            unsafe { std::mem::transmute::<__m512i, __m512bh>(vector) }
        };
        let mut sums = [[_mm512_setzero_ps(); 2]; 12];
        for (a, b) in a.as_chunks::<12>().0.iter().zip(b.as_chunks::<32>().0) {
            // SAFETY: `b` has the 32 pairs of two vectors.
            let (left, right) = unsafe {
                let left = b.as_ptr();
                (
                    _mm512_loadu_si512(left.cast()),
                    _mm512_loadu_si512(left.add(16).cast()),
                )
            };
            let (left, right) = (pairs(left), pairs(right));
            for (sum, a) in sums.iter_mut().zip(a) {
                let a = pairs(_mm512_set1_epi32(a.cast_signed()));
                sum[0] = _mm512_dpbf16_ps(sum[0], a, left);
                sum[1] = _mm512_dpbf16_ps(sum[1], a, right);
            }
        }
        let halves = tile.as_chunks_mut::<16>().0.iter_mut();
        for (half, sum) in halves.zip(sums.as_flattened()) {
            // SAFETY: a half has the 16 values of a vector.
            unsafe {
                let before = _mm512_loadu_ps(half.as_ptr());
                _mm512_storeu_ps(half.as_mut_ptr(), _mm512_add_ps(before, *sum));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "sums of small whole numbers are exact")]
mod tests {
    use super::*;

    /// Every kernel that this processor has computes the product, and not just its speed: each value of the result is a
    /// sum over the depth.
    fn computes_the_product<T: Float + PartialOrd + std::fmt::Debug>() {
        let mut kernels = vec![Kernel::Baseline, Kernel::detect()];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            kernels.push(Kernel::Avx2);
        }
        for kernel in kernels {
            let mut product = Product::<T>::new(kernel);
            // Row 1 of the first panel is 2, column 3 of the first panel is 5.
            let (rows, columns) = T::tile(kernel);
            for step in 0..DEPTH {
                product.a[step * rows + 1] = (2.0 / DEPTH as f32).into();
                product.b[step * columns + 3] = 5.0.into();
            }
            product.run();
            product.run();
            let at = |row: usize, column: usize| product.c[row * columns + column];
            assert_eq!(
                [at(0, 0), at(1, 0), at(0, 3), at(1, 3)],
                [2.0, 4.0, 10.0, 20.0].map(T::from),
                "{kernel:?}"
            );
            assert!(
                product.c.iter().all(|value| *value >= T::from(2.0)),
                "{kernel:?}"
            );
        }
    }

    #[test]
    fn kernels_compute_products_in_f32_and_f64() {
        computes_the_product::<f32>();
        computes_the_product::<f64>();
    }

    #[test]
    fn pairs_of_bf16_are_multiplied() {
        let mut product = Bf16Product::new();
        product.run();
        let expected = if Bf16::detect() == Bf16::Instructions {
            1.0
        } else {
            product.c[0]
        };
        assert!(
            product
                .c
                .iter()
                .all(|value| (value - expected).abs() < 1e-6)
        );
    }
}
