//! Content hashes: 128-bit XXH3, which is fast and stable across machines and versions. Not
//! cryptographic.
//!
//! Notes and immutable HTTP responses are stored under a run's content hash, so the functions below
//! must never change their results.

use twox_hash::XxHash3_128;

/// Maximum size of a file that is hashed completely.
const WHOLE_BYTES: usize = 64 << 20;
/// Hashed length at each end of a larger file.
const END_BYTES: usize = 1 << 20;
/// Number of evenly spaced samples between the ends.
const SAMPLES: usize = 256;
/// Length of a sample.
const SAMPLE_BYTES: usize = 4 << 10;

/// A 128-bit hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u128);

impl Hash {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Returns the upper half.
    pub(crate) fn to_u64(self) -> u64 {
        u64::try_from(self.0 >> 64).unwrap_or_default()
    }

    /// Returns 32 hexadecimal digits.
    pub(crate) fn hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// Hashes a short input.
pub(crate) fn bytes(bytes: &[u8]) -> Hash {
    Hash(XxHash3_128::oneshot(bytes))
}

/// Hashes one file's content: all of a small file; length, head, tail and evenly spaced samples of
/// a large one.
pub(crate) fn content(file: &[u8]) -> Hash {
    if file.len() <= WHOLE_BYTES {
        return bytes(file);
    }
    let mut hash = XxHash3_128::new();
    hash.write(&(file.len() as u64).to_le_bytes());
    hash.write(&file[..END_BYTES]);
    hash.write(&file[file.len() - END_BYTES..]);
    let stride = (file.len() - 2 * END_BYTES) / SAMPLES;
    for sample in 0..SAMPLES {
        let from = END_BYTES + sample * stride;
        hash.write(&file[from..from + SAMPLE_BYTES.min(stride)]);
    }
    Hash(hash.finish_128())
}

/// Combines the hashes of a run's files, in order.
pub(crate) fn combine(files: &[Hash]) -> Hash {
    let joined: Vec<u8> = files.iter().flat_map(|hash| hash.to_bytes()).collect();
    bytes(&joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_xxh3() {
        assert_eq!(bytes(b"").hex(), "99aa06d3014798d86001c324468d497f");
        assert_eq!(content(b"").hex(), bytes(b"").hex());
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
