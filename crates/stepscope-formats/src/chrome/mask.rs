//! Bit masks of interesting bytes: AVX-512 or AVX2 where the processor has it, SSE2 on every other
//! x86-64, plain words elsewhere.

#![allow(
    unsafe_code,
    reason = "calling SSE2 functions, which are part of every x86-64 processor, and wider ones where asked"
)]

/// One bit a byte of a 64-byte block.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Masks {
    pub(super) quote: u64,
    pub(super) backslash: u64,
    pub(super) open: u64,
    pub(super) close: u64,
    /// ASCII letters.
    pub(super) letter: u64,
    /// Bytes above 127.
    pub(super) high: u64,
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set_epi64x, _mm_set1_epi8,
    };

    #[target_feature(enable = "sse2")]
    fn load(part: [u8; 16]) -> __m128i {
        let whole = u128::from_le_bytes(part);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the two halves of sixteen bytes"
        )]
        _mm_set_epi64x((whole >> 64) as i64, whole as i64)
    }

    #[target_feature(enable = "sse2")]
    fn bits(lanes: __m128i) -> u64 {
        u64::from(_mm_movemask_epi8(lanes) as u32)
    }

    #[target_feature(enable = "sse2")]
    fn equal(lanes: __m128i, byte: u8) -> __m128i {
        _mm_cmpeq_epi8(lanes, _mm_set1_epi8(byte.cast_signed()))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn quote_or_backslash(block: &[u8; 16]) -> u32 {
        let lanes = load(*block);
        _mm_movemask_epi8(_mm_or_si128(equal(lanes, b'"'), equal(lanes, b'\\'))) as u32
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn places<const N: usize>(block: &[u8; 64], wanted: [u8; N]) -> [u64; N] {
        let mut found = [0; N];
        let (parts, _) = block.as_chunks::<16>();
        for (index, part) in parts.iter().enumerate() {
            let lanes = load(*part);
            for (found, byte) in found.iter_mut().zip(wanted) {
                *found |= bits(equal(lanes, byte)) << (index * 16);
            }
        }
        found
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn masks(block: &[u8; 64]) -> super::Masks {
        let mut found = super::Masks::default();
        let (parts, _) = block.as_chunks::<16>();
        for (index, part) in parts.iter().enumerate() {
            let at = index * 16;
            let lanes = load(*part);
            // `[` and `]` differ from `{` and `}` by one bit, lower case from upper case too.
            let folded = _mm_or_si128(lanes, _mm_set1_epi8(0x20));
            found.quote |= bits(equal(lanes, b'"')) << at;
            found.backslash |= bits(equal(lanes, b'\\')) << at;
            found.open |= bits(equal(folded, b'{')) << at;
            found.close |= bits(equal(folded, b'}')) << at;
            // 'a'..='z' moved down to -128..=-103: a signed comparison finds them.
            let moved = _mm_add_epi8(folded, _mm_set1_epi8((0x80_u8 - b'a').cast_signed()));
            found.letter |= bits(_mm_cmplt_epi8(moved, _mm_set1_epi8(-128 + 26))) << at;
            found.high |= bits(lanes) << at;
        }
        found
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
        _mm_loadu_si128, _mm_set1_epi8, _mm256_add_epi8, _mm256_and_si256,
        _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256,
        _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256,
        _mm256_shuffle_epi8, _mm256_srli_epi16,
    };

    use stepscope_model::ArgKeys;

    /// Whether this processor has what the functions here, and those around them, are made for.
    #[inline]
    pub(in super::super) fn is_here() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("pclmulqdq")
    }

    /// As [`prefix_xor`](super::prefix_xor): a product without carries of the bits and all ones.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    pub(in super::super) fn prefix_xor(bits: u64) -> u64 {
        let bits = _mm_cvtsi64_si128(bits.cast_signed());
        _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(bits, _mm_set1_epi8(-1))).cast_unsigned()
    }

    #[target_feature(enable = "sse2")]
    pub(super) fn load_table(table: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes, of any alignment.
        unsafe { _mm_loadu_si128(table.as_ptr().cast()) }
    }

    /// As [`super::avx512::ends`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) fn ends(block: &[u8; 64], keys: ArgKeys) -> u64 {
        let (low, high) = keys.end_tables();
        let low = _mm256_broadcastsi128_si256(load_table(low));
        let high = _mm256_broadcastsi128_si256(load_table(high));
        let nibble = _mm256_set1_epi8(0x0f);
        let mut found = 0;
        let (parts, _) = block.as_chunks::<32>();
        for (index, part) in parts.iter().enumerate() {
            let lanes = load(part);
            let by_low = _mm256_shuffle_epi8(low, _mm256_and_si256(lanes, nibble));
            let shifted = _mm256_and_si256(_mm256_srli_epi16::<4>(lanes), nibble);
            let both = _mm256_and_si256(by_low, _mm256_shuffle_epi8(high, shifted));
            let none = bits(_mm256_cmpeq_epi8(both, _mm256_setzero_si256()));
            found |= (none ^ 0xffff_ffff) << (index * 32);
        }
        found
    }

    #[target_feature(enable = "avx2")]
    fn load(part: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes, of any alignment.
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

    /// As [`super::places`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) fn places<const N: usize>(block: &[u8; 64], wanted: [u8; N]) -> [u64; N] {
        let mut found = [0; N];
        let (parts, _) = block.as_chunks::<32>();
        for (index, part) in parts.iter().enumerate() {
            let lanes = load(part);
            for (found, byte) in found.iter_mut().zip(wanted) {
                *found |= bits(equal(lanes, byte)) << (index * 32);
            }
        }
        found
    }

    /// As [`super::sse2::masks`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) fn masks(block: &[u8; 64]) -> super::Masks {
        let mut found = super::Masks::default();
        let (parts, _) = block.as_chunks::<32>();
        for (index, part) in parts.iter().enumerate() {
            let at = index * 32;
            let lanes = load(part);
            let folded = _mm256_or_si256(lanes, _mm256_set1_epi8(0x20));
            found.quote |= bits(equal(lanes, b'"')) << at;
            found.backslash |= bits(equal(lanes, b'\\')) << at;
            found.open |= bits(equal(folded, b'{')) << at;
            found.close |= bits(equal(folded, b'}')) << at;
            let moved = _mm256_add_epi8(folded, _mm256_set1_epi8((0x80_u8 - b'a').cast_signed()));
            let below = _mm256_cmpgt_epi8(_mm256_set1_epi8(-128 + 26), moved);
            found.letter |= bits(below) << at;
            found.high |= bits(lanes) << at;
        }
        found
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi8, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_cmpeq_epi8_mask,
        _mm512_cmplt_epi8_mask, _mm512_loadu_si512, _mm512_movepi8_mask, _mm512_or_si512,
        _mm512_set1_epi8, _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_test_epi8_mask,
    };

    use stepscope_model::ArgKeys;

    use super::avx2::load_table;

    /// Whether this processor has what the functions here, and those around them, are made for.
    #[inline]
    pub(in super::super) fn is_here() -> bool {
        is_x86_feature_detected!("avx512bw") && super::avx2::is_here()
    }

    #[target_feature(enable = "avx512f")]
    fn load(block: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes, of any alignment.
        unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512bw")]
    fn equal(lanes: __m512i, byte: u8) -> u64 {
        _mm512_cmpeq_epi8_mask(lanes, _mm512_set1_epi8(byte.cast_signed()))
    }

    /// As [`super::places`].
    #[inline]
    #[target_feature(enable = "avx512bw")]
    pub(in super::super) fn places<const N: usize>(block: &[u8; 64], wanted: [u8; N]) -> [u64; N] {
        let lanes = load(block);
        let mut found = [0; N];
        for (found, byte) in found.iter_mut().zip(wanted) {
            *found = equal(lanes, byte);
        }
        found
    }

    /// Where in a block each byte is that a wanted name may end with: all of them, and few others.
    #[inline]
    #[target_feature(enable = "avx512bw")]
    pub(in super::super) fn ends(block: &[u8; 64], keys: ArgKeys) -> u64 {
        let (low, high) = keys.end_tables();
        let low = _mm512_broadcast_i32x4(load_table(low));
        let high = _mm512_broadcast_i32x4(load_table(high));
        let nibble = _mm512_set1_epi8(0x0f);
        let lanes = load(block);
        let by_low = _mm512_shuffle_epi8(low, _mm512_and_si512(lanes, nibble));
        let shifted = _mm512_and_si512(_mm512_srli_epi16::<4>(lanes), nibble);
        _mm512_test_epi8_mask(by_low, _mm512_shuffle_epi8(high, shifted))
    }

    /// As [`super::sse2::masks`].
    #[inline]
    #[target_feature(enable = "avx512bw")]
    pub(in super::super) fn masks(block: &[u8; 64]) -> super::Masks {
        let lanes = load(block);
        let folded = _mm512_or_si512(lanes, _mm512_set1_epi8(0x20));
        let moved = _mm512_add_epi8(folded, _mm512_set1_epi8((0x80_u8 - b'a').cast_signed()));
        super::Masks {
            quote: equal(lanes, b'"'),
            backslash: equal(lanes, b'\\'),
            open: equal(folded, b'{'),
            close: equal(folded, b'}'),
            letter: _mm512_cmplt_epi8_mask(moved, _mm512_set1_epi8(-128 + 26)),
            high: _mm512_movepi8_mask(lanes),
        }
    }
}

/// Bit i of the result is the parity of bits 0..=i.
#[inline]
pub(super) fn prefix_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    bits
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn quote_or_backslash(block: &[u8; 16]) -> u32 {
    // SAFETY: every x86-64 processor has SSE2; the target's baseline includes it.
    unsafe { sse2::quote_or_backslash(block) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn quote_or_backslash(block: &[u8; 16]) -> u32 {
    words::quote_or_backslash(block)
}

/// Where in a block each of these bytes is.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn places<const N: usize>(block: &[u8; 64], wanted: [u8; N]) -> [u64; N] {
    // SAFETY: as above.
    unsafe { sse2::places(block, wanted) }
}

/// Where in a block each of these bytes is.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn places<const N: usize>(block: &[u8; 64], wanted: [u8; N]) -> [u64; N] {
    words::places(block, wanted)
}

impl Masks {
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn of(block: &[u8; 64]) -> Self {
        // SAFETY: as above.
        unsafe { sse2::masks(block) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub(super) fn of(block: &[u8; 64]) -> Self {
        words::masks(block)
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) mod words {
    //! The same with eight bytes at a time in an ordinary register.

    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const HIGH: u64 = 0x8080_8080_8080_8080;

    /// The high bit of each byte that is zero.
    fn zero_bytes(word: u64) -> u64 {
        !(((word & LOW) + LOW) | word | LOW)
    }

    fn equal(word: u64, byte: u8) -> u64 {
        zero_bytes(word ^ (ONES * u64::from(byte)))
    }

    /// The high bits of eight bytes, side by side.
    fn gather(high: u64) -> u64 {
        ((high >> 7).wrapping_mul(0x0102_0408_1020_4080)) >> 56
    }

    fn letters(folded: u64) -> u64 {
        let seven = folded & LOW;
        let from_a = seven + ONES * u64::from(0x80 - b'a');
        let past_z = seven + ONES * u64::from(0x7f - b'z');
        from_a & !past_z & !folded & HIGH
    }

    pub(in super::super) fn places<const N: usize>(block: &[u8; 64], wanted: [u8; N]) -> [u64; N] {
        let mut found = [0; N];
        let (parts, _) = block.as_chunks::<8>();
        for (index, part) in parts.iter().enumerate() {
            let word = u64::from_le_bytes(*part);
            for (found, byte) in found.iter_mut().zip(wanted) {
                *found |= gather(equal(word, byte)) << (index * 8);
            }
        }
        found
    }

    pub(in super::super) fn masks(block: &[u8; 64]) -> super::Masks {
        let mut found = super::Masks::default();
        let (parts, _) = block.as_chunks::<8>();
        for (index, part) in parts.iter().enumerate() {
            let word = u64::from_le_bytes(*part);
            let folded = word | (ONES * 0x20);
            let at = index * 8;
            found.quote |= gather(equal(word, b'"')) << at;
            found.backslash |= gather(equal(word, b'\\')) << at;
            found.open |= gather(equal(folded, b'{')) << at;
            found.close |= gather(equal(folded, b'}')) << at;
            found.letter |= gather(letters(folded)) << at;
            found.high |= gather(word & HIGH) << at;
        }
        found
    }

    pub(in super::super) fn quote_or_backslash(block: &[u8; 16]) -> u32 {
        let (parts, _) = block.as_chunks::<8>();
        let mut found = 0;
        for (index, part) in parts.iter().enumerate() {
            let word = u64::from_le_bytes(*part);
            let bits = gather(equal(word, b'"') | equal(word, b'\\'));
            found |= u32::try_from(bits).unwrap_or_default() << (index * 8);
        }
        found
    }
}
