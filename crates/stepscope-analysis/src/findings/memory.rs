//! Memory that is nearly full, or held without being used.

use stepscope_model::Dur;

use super::{Confidence, Finding};
use crate::memory::{Memory, Usage};
use crate::report::{bytes, share};

/// Part of an allocator's capacity from which on it is nearly full.
const FULL: f64 = 0.9;
/// Part of what is reserved that is not used, from which on that is worth a word.
const UNUSED: f64 = 0.3;
/// Less than this does not matter.
const LEAST_BYTES: i64 = 64 << 20;

/// Looks at every allocator; the fullest one speaks.
pub(super) fn judged(memory: &Memory) -> Option<Finding> {
    let found = memory.allocators.iter().filter_map(|allocator| {
        let usage = memory.usage(allocator, None)?;
        judge(&allocator.name, &usage, allocator.capacity)
    });
    found.min_by_key(|finding| finding.name)
}

fn judge(name: &str, usage: &Usage, capacity: Option<i64>) -> Option<Finding> {
    let reserved = usage.peak_reserved.unwrap_or(0).max(usage.peak);
    let finding = |word, title, advice: &str| {
        Some(Finding {
            name: word,
            title,
            stake: Dur::ZERO,
            evidence: vec![usage.peak_event],
            advice: advice.to_owned(),
            confidence: Confidence::Medium,
            page: "memory",
        })
    };
    if let Some(capacity) = capacity.filter(|capacity| *capacity > 0) {
        let part = reserved as f64 / capacity as f64;
        if part >= FULL {
            return finding(
                "memory",
                format!(
                    "Memory of {name} is nearly full: {} of {} ({})",
                    bytes(reserved as f64),
                    bytes(capacity as f64),
                    share(part)
                ),
                "A little more runs out of memory: recompute activations (checkpointing), shard the \
                 optimizer, or use a smaller batch.",
            );
        }
    }
    let unused = reserved - usage.peak;
    if unused >= LEAST_BYTES && unused as f64 >= UNUSED * reserved as f64 {
        return finding(
            "memory-unused",
            format!(
                "Memory of {name} that is reserved and never used: {} ({} of what is reserved)",
                bytes(unused as f64),
                share(unused as f64 / reserved as f64)
            ),
            "Fragmentation: keep shapes from changing, and let segments grow \
             (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_allocator_and_an_unused_reserve_are_found() {
        let usage = |peak: i64, reserved: i64| Usage {
            peak: peak << 20,
            peak_reserved: Some(reserved << 20),
            ..Usage::default()
        };
        let name = |usage: &Usage, capacity: Option<i64>| {
            judge("CUDA 0", usage, capacity.map(|mib| mib << 20)).map(|found| found.name)
        };
        assert_eq!(name(&usage(900, 950), Some(1_000)), Some("memory"));
        assert_eq!(name(&usage(500, 800), Some(1_000)), Some("memory-unused"));
        assert_eq!(name(&usage(700, 800), Some(1_000)), None);
        assert_eq!(name(&usage(10, 40), None), None);
        assert_eq!(name(&Usage::default(), Some(0)), None);
    }
}
