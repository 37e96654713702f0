//! Demangled names of C++ kernels and functions: `_ZN2ck4gemmIfEEvPT_` is
//! `void ck::gemm<float>(float*)`.
//!
//! AMD's runtimes record mangled names; NVIDIA's mostly record demangled ones. A name that is not
//! mangled or cannot be parsed stays unchanged. Names come from untrusted files, and a short
//! mangled name can repeat its parts many times. Therefore nesting depth and output length are
//! limited.

use std::fmt;

use cpp_demangle::{DemangleOptions, DemangleWrite, ParseOptions, Symbol};

/// Longest accepted mangled name, bytes.
const MAX_IN: usize = 64 << 10;
/// Longest demangled name, bytes; a name whose output would exceed it stays mangled.
const MAX_OUT: usize = 64 << 10;
/// Deepest nesting of a name's parts.
const MAX_DEPTH: u32 = 96;

/// Returns the demangled name, or `None` if the name is not a C++ mangled name.
///
/// Drops the suffix `.kd` (kernel descriptor) that AMD's runtimes append to some names.
pub fn demangled(name: &str) -> Option<String> {
    if !name.starts_with("_Z") || name.len() > MAX_IN {
        return None;
    }
    let mangled = name.strip_suffix(".kd").unwrap_or(name);
    let parse = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = Symbol::new_with_options(mangled, &parse).ok()?;
    let mut text = Bounded(String::new());
    let options = DemangleOptions::default().recursion_limit(MAX_DEPTH);
    symbol.structured_demangle(&mut text, &options).ok()?;
    (!text.0.is_empty()).then_some(text.0)
}

/// Text with a maximum length.
struct Bounded(String);

impl DemangleWrite for Bounded {
    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_OUT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn names_of_compilers_are_read() {
        for (mangled, expected) in [
            ("_ZN2ck4gemmIfEEvPT_", Some("void ck::gemm<float>(float*)")),
            ("_Z3addPfS_i", Some("add(float*, float*, int)")),
            ("_Z3addPfS_i.kd", Some("add(float*, float*, int)")),
            (
                "_ZN12_GLOBAL__N_16kernelILi4EEEvv",
                Some("void (anonymous namespace)::kernel<4>()"),
            ),
            (
                "_Z6kernelIDF16bEvT_",
                Some("void kernel<std::bfloat16_t>(std::bfloat16_t)"),
            ),
            ("volta_sgemm_64x64_nt", None),
            ("_matmul_ogs_NNT", None),
            ("__amd_rocclr_copyBuffer.kd", None),
            ("_Z", None),
            ("", None),
        ] {
            assert_eq!(demangled(mangled).as_deref(), expected, "{mangled}");
        }
    }

    #[test]
    fn hostile_names_end_soon() {
        // Each substitution doubles the one before it.
        let mut doubling = "_Z1fN1aIiEE".to_owned();
        for part in 0..60_u8 {
            let digit = char::from(if part < 10 {
                b'0' + part
            } else {
                b'A' + part % 26
            });
            let _ = write!(doubling, "1bIS{digit}_S{digit}_E");
        }
        let deep = format!("_Z1f{}i", "P".repeat(50_000));
        for name in [doubling.as_str(), &deep, &"_ZN".repeat(9_000)] {
            if let Some(text) = demangled(name) {
                assert!(text.len() <= MAX_OUT);
            }
        }
    }

    #[test]
    fn cut_and_changed_names_are_survived() {
        let whole =
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8sequenceIJLi1ELi3072EEEEEEJPKvEEEvDpT1_";
        assert!(demangled(whole).is_some());
        for end in 0..whole.len() {
            let _ = demangled(&whole[..end]);
        }
        for at in 2..whole.len() {
            for letter in ['S', 'E', '9', 'I', 'T', '_'] {
                let mut changed = whole.to_owned();
                changed.replace_range(at..=at, &letter.to_string());
                let _ = demangled(&changed);
            }
        }
    }
}
