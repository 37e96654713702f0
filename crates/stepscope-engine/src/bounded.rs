//! A bound on how large an export may become.
//!
//! Formats that repeat texts at each event make hundreds of megabytes of a file that holds them once: a
//! file of 285 KB has become 833 MB. Nobody expects that of a small file, so it has to be asked for.

use std::io::{self, Write};

/// An export that is smaller than this is never refused.
const SMALL_BYTES: u64 = 256 << 20;
/// How many times as large as what was read an export may become.
const RATIO: u64 = 200;

/// Most bytes of an export of files of this size together, unless more is asked for.
pub fn most_exported_bytes(input_bytes: u64) -> u64 {
    input_bytes.saturating_mul(RATIO).max(SMALL_BYTES)
}

/// Passes bytes on until there are too many.
pub struct BoundedWriter<W> {
    into: W,
    left: u64,
    most: u64,
}

impl<W: Write> BoundedWriter<W> {
    /// At most `most` bytes.
    pub fn new(into: W, most: u64) -> Self {
        Self {
            into,
            left: most,
            most,
        }
    }

    /// What was written into.
    pub fn into_inner(self) -> W {
        self.into
    }
}

impl<W: Write> Write for BoundedWriter<W> {
    /// Fails with [`io::ErrorKind::FileTooLarge`] when the bytes are more than there may be.
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
    fn what_is_too_much_is_refused_whole() {
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
