//! Fuzzes inflating: output is bounded, damage is reported, and a limited read is a prefix of the
//! full one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::gzip::{inflate, inflate_prefix};
use stepscope_model::{Limits, ReadContext};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        max_inflated_bytes: 1 << 20,
        ..Limits::default()
    };
    let found = inflate(bytes, &limits, &ReadContext::new(limits));
    assert!(found.bytes.len() <= 1 << 20);
    assert!(found.bytes.capacity() <= 4 << 20);
    if let Some(problem) = found.problem {
        assert!(problem.offset <= bytes.len() as u64);
        assert!(problem.inflated_bytes <= found.bytes.len() as u64);
        assert!(!problem.to_string().is_empty());
    }
    for most in [0, 1, 100, 70_000] {
        let prefix = inflate_prefix(bytes, most);
        assert!(prefix.len() <= most && found.bytes.starts_with(&prefix));
    }
});
