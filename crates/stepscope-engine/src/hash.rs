//! Hashes of content: cheap, stable across machines and versions, not cryptographic.
//!
//! Notes and immutable HTTP answers are kept under a run's content hash, so the function below
//! must never change its results.

/// Files up to this size are hashed whole.
const WHOLE_BYTES: usize = 64 << 20;
/// Of a larger file: this much of its head and as much of its tail ...
const END_BYTES: usize = 1 << 20;
/// ... and this many pieces evenly spread between them ...
const PIECES: usize = 256;
/// ... of this length.
const PIECE_BYTES: usize = 4 << 10;

/// Two lanes of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) u64, pub(crate) u64);

impl Hash {
    const START: Self = Self(0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

    /// Mixes eight bytes in.
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(31);
        self.1 = (self.1.rotate_left(27) ^ word).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    }

    fn piece(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    fn finish(mut self) -> Self {
        for _ in 0..3 {
            let (a, b) = (self.0, self.1);
            self.word(a ^ (b >> 29));
            self.word(b ^ (a >> 31));
        }
        self
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0) | u128::from(self.1) << 64).to_le_bytes()
    }

    /// 32 hexadecimal digits.
    pub(crate) fn hex(self) -> String {
        format!("{:016x}{:016x}", self.0, self.1)
    }
}

/// Hash of a few bytes.
pub(crate) fn bytes(bytes: &[u8]) -> Hash {
    let mut hash = Hash::START;
    hash.piece(bytes);
    hash.finish()
}

/// Hash of one file's content: the whole of a small file; length, head, tail and evenly spread
/// pieces of a large one.
pub(crate) fn content(file: &[u8]) -> Hash {
    let mut hash = Hash::START;
    hash.word(file.len() as u64);
    if file.len() <= WHOLE_BYTES {
        hash.piece(file);
        return hash.finish();
    }
    hash.piece(&file[..END_BYTES]);
    hash.piece(&file[file.len() - END_BYTES..]);
    let stride = (file.len() - 2 * END_BYTES) / PIECES;
    for piece in 0..PIECES {
        let from = END_BYTES + piece * stride;
        hash.piece(&file[from..from + PIECE_BYTES.min(stride)]);
    }
    hash.finish()
}

/// Hash of a run: its files' hashes in order.
pub(crate) fn combine(parts: &[Hash]) -> Hash {
    let mut hash = Hash::START;
    for part in parts {
        hash.word(part.0);
        hash.word(part.1);
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_never_change() {
        assert_eq!(bytes(b"").hex(), "f20087e89db3826407204b47d0ea3835");
        assert_eq!(
            content(b"stepscope").hex(),
            "019078bc6cec6d46379cd70b1b173d22"
        );
    }

    #[test]
    fn every_byte_length_and_place_counts() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..40 {
            let mut data = vec![0_u8; len];
            assert!(seen.insert(content(&data).hex()));
            for at in 0..len {
                data[at] = 1;
                assert!(seen.insert(content(&data).hex()));
                data[at] = 0;
            }
        }
    }

    #[test]
    fn a_large_file_is_sampled_at_both_ends() {
        let mut data = vec![0_u8; WHOLE_BYTES + 1];
        let before = content(&data);
        data[WHOLE_BYTES] = 1;
        assert_ne!(content(&data), before);
        data[WHOLE_BYTES] = 0;
        data[0] = 1;
        assert_ne!(content(&data), before);
    }
}
