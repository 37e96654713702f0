//! Fragmentation of allocators: memory that is reserved but not in use, and free memory that does not fit a
//! request.
//!
//! Different allocators record two measures. Torch's caching allocators (GPUs) record the bytes reserved from the
//! device:
//!
//! ```text
//! unused(t)       = reserved(t) - in_use(t)
//! unused_share(t) = unused(t) / reserved(t)
//! mean            = sum of unused_share * the time until the next record / from the first to the last
//! ```
//!
//! A **growth** is an event at which such an allocator reserved more memory from the device although at least as
//! many bytes as requested were unused: no free block was large enough, or in the right pool. XLA's and
//! TensorFlow's allocators record the measure themselves (argument `fragmentation`)
//!
//! ```text
//! fragmentation(t) = fraction of the free memory outside its largest free block
//! ```

use std::ops::Range;

use stepscope_model::Time;
use stepscope_store::EventId;

use super::{Allocator, Memory, Record};

/// Memory reserved from the device and not in use (torch).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unused {
    /// Maximum, bytes.
    pub most: i64,
    /// First time of the maximum.
    pub at: Time,
    /// The record that reached the maximum.
    pub event: EventId,
    /// Reserved bytes at that time.
    pub reserved: i64,
    /// Unused bytes at the first time of the peak of bytes in use.
    pub at_peak: i64,
    /// Time-weighted mean fraction of the reserved bytes; `None` with only one timestamp.
    pub mean_share: Option<f64>,
    /// Number of times that the allocator reserved more from the device.
    pub segment_allocs: u64,
    /// Allocations of those for which enough memory was free.
    pub fragmentation_growths: u64,
}

/// Fragmentation of free memory as recorded by the allocator (XLA).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedFragmentation {
    /// Maximum.
    pub most: f64,
    /// First time of the maximum.
    pub at: Time,
    /// The record with the maximum.
    pub event: EventId,
    /// Time-weighted mean; `None` with only one timestamp.
    pub mean: Option<f64>,
    /// Value after the last record.
    pub end: f64,
}

/// A growth of the reserved memory although enough bytes were free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FragmentationGrowth {
    /// Index into [`Memory::allocators`].
    pub allocator: usize,
    /// The allocation.
    pub record: Record,
    /// Unused bytes before it.
    pub unused: i64,
    /// Bytes reserved from the device for it.
    pub grown: i64,
}

/// Fragmentation of one allocator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fragmentation {
    /// Unused memory, where the file has the reserved bytes.
    pub unused: Option<Unused>,
    /// Fragmentation, where the allocator records it.
    pub recorded: Option<RecordedFragmentation>,
    /// Growths in spite of free memory, in order of time.
    pub fragmentation_growths: Vec<FragmentationGrowth>,
}

/// Accumulator of a time-weighted mean.
#[derive(Default)]
struct Mean {
    first: Option<Time>,
    last: Option<(Time, f64)>,
    sum: f64,
}

impl Mean {
    fn see(&mut self, at: Time, value: f64) {
        if let Some((before, held)) = self.last {
            self.sum += held * at.since(before).as_ns_f64();
        }
        self.first.get_or_insert(at);
        self.last = Some((at, value));
    }

    fn value(&self) -> Option<f64> {
        let length = self.last?.0.since(self.first?).as_ns_f64();
        (length > 0.0).then(|| self.sum / length)
    }
}

/// Computes the fragmentation of one allocator from its records in `range` (all without one). `at` is its index.
pub fn fragmentation(
    memory: &Memory,
    at: usize,
    allocator: &Allocator,
    range: Option<&Range<Time>>,
) -> Fragmentation {
    let mut found = Fragmentation::default();
    let (mut shares, mut recorded_means) = (Mean::default(), Mean::default());
    // Bytes reserved and in use after the previous record, including one before the range.
    let mut before: Option<(i64, i64)> = None;
    let mut peak = i64::MIN;
    for record in memory.records_of(allocator) {
        let inside = range.is_none_or(|range| range.contains(&record.at));
        if let Some(reserved) = record.reserved {
            let now = (reserved, record.in_use);
            if inside {
                let unused = reserved.saturating_sub(record.in_use);
                let all = found.unused.get_or_insert(Unused {
                    most: unused,
                    at: record.at,
                    event: record.event,
                    reserved,
                    at_peak: unused,
                    mean_share: None,
                    segment_allocs: 0,
                    fragmentation_growths: 0,
                });
                if unused > all.most {
                    (all.most, all.at, all.event, all.reserved) =
                        (unused, record.at, record.event, reserved);
                }
                if record.in_use > peak {
                    peak = record.in_use;
                    all.at_peak = unused;
                }
                shares.see(record.at, unused as f64 / reserved.max(1) as f64);
                if let Some((held, used)) = before
                    && reserved > held
                    && record.bytes > 0
                {
                    all.segment_allocs += 1;
                    if held.saturating_sub(used) >= record.bytes {
                        all.fragmentation_growths += 1;
                        found.fragmentation_growths.push(FragmentationGrowth {
                            allocator: at,
                            record: *record,
                            unused: held.saturating_sub(used),
                            grown: reserved.saturating_sub(held),
                        });
                    }
                }
            }
            before = Some(now);
        }
        if let Some(part) = record.fragmentation.filter(|_| inside).map(f64::from) {
            let all = found.recorded.get_or_insert(RecordedFragmentation {
                most: part,
                at: record.at,
                event: record.event,
                mean: None,
                end: part,
            });
            if part > all.most {
                (all.most, all.at, all.event) = (part, record.at, record.event);
            }
            all.end = part;
            recorded_means.see(record.at, part);
        }
    }
    if let Some(unused) = &mut found.unused {
        unused.mean_share = shares.value();
    }
    if let Some(all) = &mut found.recorded {
        all.mean = recorded_means.value();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a record at a microsecond: bytes, in use, reserved, fragmentation.
    fn record(us: i64, bytes: i64, in_use: i64, reserved: i64, part: f32) -> Record {
        Record {
            at: Time::from_ps(us * 1_000_000),
            event: EventId(u32::try_from(us).unwrap()),
            allocator: 0,
            bytes,
            in_use,
            reserved: (reserved > 0).then_some(reserved),
            fragmentation: (part >= 0.0).then_some(part),
            stack: 0,
            op: 0,
            freed: None,
            tracked: false,
        }
    }

    fn computed(records: Vec<Record>, range: Option<&Range<Time>>) -> Fragmentation {
        let memory = Memory {
            allocators: vec![Allocator {
                records: (0..u32::try_from(records.len()).unwrap()).collect(),
                ..Allocator::default()
            }],
            records,
            ops: vec![String::new()],
            ..Memory::default()
        };
        fragmentation(&memory, 0, &memory.allocators[0], range)
    }

    #[test]
    fn unused_share_is_weighted_by_time() {
        let found = computed(
            vec![
                record(0, 80, 80, 100, -1.0),
                // Frees: 70 of 100 are unused for a long time.
                record(10, -50, 30, 100, -1.0),
                // 60 would fit into 70, but no block was large enough.
                record(40, 60, 90, 160, -1.0),
                // 100 would not fit: not a growth.
                record(50, 100, 190, 260, -1.0),
            ],
            None,
        );
        let unused = found.unused.unwrap();
        assert_eq!(
            (unused.most, unused.reserved, unused.at_peak),
            (70, 100, 70)
        );
        assert_eq!(unused.event, EventId(10));
        assert_eq!(
            (unused.segment_allocs, unused.fragmentation_growths),
            (2, 1)
        );
        // 10 us of 0.2, 30 us of 0.7, 10 us of 70/160.
        let mean = unused.mean_share.unwrap();
        assert!((mean - (2.0 + 21.0 + 4.375) / 50.0).abs() < 1e-9, "{mean}");
        let growth = found.fragmentation_growths[0];
        assert_eq!((growth.unused, growth.grown), (70, 60));
        assert_eq!(found.recorded, None);
    }

    #[test]
    fn recorded_fragmentation_covers_only_the_range() {
        let records = vec![
            record(0, 1, 1, 0, 0.9),
            record(10, 1, 2, 0, 0.1),
            record(20, 1, 3, 0, 0.3),
            record(40, 1, 4, 0, 0.2),
        ];
        let range = Time::from_ps(5_000_000)..Time::from_ps(100_000_000);
        let found = computed(records, Some(&range)).recorded.unwrap();
        assert!((found.most - 0.3).abs() < 1e-6 && found.event == EventId(20));
        let mean = found.mean.unwrap();
        assert!(
            (mean - (0.1 * 10.0 + 0.3 * 20.0) / 30.0).abs() < 1e-6,
            "{mean}"
        );
        assert!((found.end - 0.2).abs() < 1e-6);
    }

    #[test]
    fn no_records_give_no_fragmentation() {
        assert_eq!(
            computed(vec![record(0, 1, 1, 0, -1.0)], None),
            Fragmentation::default()
        );
        let one = computed(vec![record(0, 1, 1, 2, 0.5)], None);
        assert_eq!(one.unused.unwrap().mean_share, None);
        assert_eq!(one.recorded.unwrap().mean, None);
    }
}
