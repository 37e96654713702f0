//! Bit masks of the bytes that end strings and nest values: AVX2 where the processor has it, plain
//! 64-bit words elsewhere.
#![allow(
    unsafe_code,
    reason = "loads of whole registers, in functions that are called where AVX2 was detected"
)]

/// Bit masks of a 64-byte block, one bit per byte.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Masks {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    pub(crate) open: u64,
    pub(crate) close: u64,
    /// ASCII letters.
    pub(crate) letter: u64,
    /// Bytes above 127.
    pub(crate) high: u64,
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_set1_epi8,
        _mm256_add_epi8, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256,
        _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    };

    /// Returns whether this processor supports the functions of this module and their callers.
    #[inline]
    pub(crate) fn is_here() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("pclmulqdq")
    }

    /// Computes [`prefix_xor`](super::prefix_xor) as the carry-less product of the bits and all ones.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    pub(crate) fn prefix_xor(bits: u64) -> u64 {
        let bits = _mm_cvtsi64_si128(bits.cast_signed());
        _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(bits, _mm_set1_epi8(-1))).cast_unsigned()
    }

    #[target_feature(enable = "avx2")]
    fn load(part: &[u8; 32]) -> __m256i {
        // SAFETY: the reference covers 32 readable bytes; the load accepts any alignment.
        unsafe { _mm256_loadu_si256(part.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    fn bits(lanes: __m256i) -> u64 {
        u64::from(_mm256_movemask_epi8(lanes) as u32)
    }

    #[target_feature(enable = "avx2")]
    fn equal(lanes: __m256i, byte: u8) -> __m256i {
        _mm256_cmpeq_epi8(lanes, _mm256_set1_epi8(byte.cast_signed()))
    }

    /// Computes [`Masks::from_block`](super::Masks::from_block), 32 bytes at a time.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn masks(block: &[u8; 64]) -> super::Masks {
        let mut found = super::Masks::default();
        let (parts, _) = block.as_chunks::<32>();
        for (index, part) in parts.iter().enumerate() {
            let at = index * 32;
            let lanes = load(part);
            // `[` and `]` differ from `{` and `}` by one bit; so do lower case and upper case
            // letters.
            let folded = _mm256_or_si256(lanes, _mm256_set1_epi8(0x20));
            found.quote |= bits(equal(lanes, b'"')) << at;
            found.backslash |= bits(equal(lanes, b'\\')) << at;
            found.open |= bits(equal(folded, b'{')) << at;
            found.close |= bits(equal(folded, b'}')) << at;
            // 'a'..='z' is shifted down to -128..=-103, where a signed comparison finds the
            // letters.
            let moved = _mm256_add_epi8(folded, _mm256_set1_epi8((0x80_u8 - b'a').cast_signed()));
            let below = _mm256_cmpgt_epi8(_mm256_set1_epi8(-128 + 26), moved);
            found.letter |= bits(below) << at;
            found.high |= bits(lanes) << at;
        }
        found
    }
}

/// Computes the prefix XOR: bit i of the result is the parity of bits 0..=i.
#[inline]
pub(crate) fn prefix_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    bits
}

const ONES: u64 = 0x0101_0101_0101_0101;
const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Returns a mask with the high bit set in each byte that is zero.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    !(((word & LOW) + LOW) | word | LOW)
}

#[inline]
const fn equal(word: u64, byte: u8) -> u64 {
    zero_bytes(word ^ (ONES * byte as u64))
}

/// Packs the high bits of eight bytes into the low eight bits.
const fn pack(high: u64) -> u64 {
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080)) >> 56
}

const fn letters(folded: u64) -> u64 {
    let seven = folded & LOW;
    let from_a = seven + ONES * (0x80 - b'a') as u64;
    let past_z = seven + ONES * (0x7f - b'z') as u64;
    from_a & !past_z & !folded & HIGH
}

/// Returns the index of the first quote or backslash in eight bytes.
#[inline]
pub(crate) fn quote_or_backslash(bytes: [u8; 8]) -> Option<usize> {
    let word = u64::from_le_bytes(bytes);
    let found = equal(word, b'"') | equal(word, b'\\');
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

impl Masks {
    /// Computes the masks eight bytes at a time in a general-purpose register.
    pub(crate) fn from_block(block: &[u8; 64]) -> Self {
        let mut found = Self::default();
        let (parts, _) = block.as_chunks::<8>();
        for (index, part) in parts.iter().enumerate() {
            let word = u64::from_le_bytes(*part);
            let folded = word | (ONES * 0x20);
            let at = index * 8;
            found.quote |= pack(equal(word, b'"')) << at;
            found.backslash |= pack(equal(word, b'\\')) << at;
            found.open |= pack(equal(folded, b'{')) << at;
            found.close |= pack(equal(folded, b'}')) << at;
            found.letter |= pack(letters(folded)) << at;
            found.high |= pack(word & HIGH) << at;
        }
        found
    }
}
