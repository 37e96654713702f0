//! A size limit for exports.
//!
//! Formats that repeat strings at each event can write hundreds of megabytes for a file that holds
//! each string once: a file of 285 KB became 833 MB. Users do not expect this from a small file, so
//! a larger export must be requested explicitly.

use std::io::{self, Write};

/// Exports below this size are always allowed.
const SMALL_BYTES: u64 = 256 << 20;
/// Maximum ratio of the size of an export to the size of its input.
const RATIO: u64 = 200;

/// Returns the default size limit of an export, given the total size of the input files.
pub fn most_exported_bytes(input_bytes: u64) -> u64 {
    input_bytes.saturating_mul(RATIO).max(SMALL_BYTES)
}

/// A writer that fails once a size limit is exceeded.
pub struct BoundedWriter<W> {
    into: W,
    left: u64,
    most: u64,
}

impl<W: Write> BoundedWriter<W> {
    /// Creates a writer that accepts at most `most` bytes.
    pub fn new(into: W, most: u64) -> Self {
        Self {
            into,
            left: most,
            most,
        }
    }

    /// Returns the wrapped writer.
    pub fn into_inner(self) -> W {
        self.into
    }
}

impl<W: Write> Write for BoundedWriter<W> {
    /// Fails with [`io::ErrorKind::FileTooLarge`] if the limit would be exceeded.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            let most = self.most;
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it would be larger than {most} bytes, far more than what was read"),
            ));
        }
        let written = self.into.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_beyond_the_limit_are_refused_whole() {
        assert_eq!(most_exported_bytes(285_000), SMALL_BYTES);
        assert_eq!(most_exported_bytes(1 << 30), RATIO << 30);
        assert_eq!(most_exported_bytes(u64::MAX), u64::MAX);
        let mut out = BoundedWriter::new(Vec::new(), 5);
        out.write_all(b"123").unwrap();
        let refused = out.write_all(b"456").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        out.write_all(b"45").unwrap();
        assert_eq!(out.into_inner(), b"12345");
    }
}
