//! The roofline model: which resource of its device limits an operation.
//!
//! ```text
//! intensity    = floating-point operations / bytes
//! flop rate    = floating-point operations / time
//! byte rate    = bytes / time
//! utilisation  of arithmetic = sum over precisions of (operations / peak of the precision) / time
//!              of a memory level = bytes of the level / time / peak of the level
//! efficiency   = largest utilisation
//! bound by     = the resource with that utilisation
//! ```
//!
//! The source is S. Williams, A. Waterman, D. Patterson: Roofline, Communications of the ACM 52 (2009). Work and
//! time are those of [`op_profile`](crate::op_profile); operations whose work is unknown have no point, and their
//! time is left out of the rates of groups. Bytes of the main memory and of the memories on the chip ([`Level`])
//! have roofs of their own, and so have the classes of element types ([`Precision`]). The peaks: [`peaks`](crate::peaks).

use std::collections::BTreeMap;

use stepscope_hlo::cost::{InstructionWork, Level, Precision};
use stepscope_store::{EventId, Trace};

use crate::ops::rates::Bound;
use crate::peaks::{DevicePeaks, PeakOverrides};

/// A line that no operation is above: the peak of arithmetic, or of a level of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roof {
    /// Arithmetic.
    Compute,
    /// A level of memory.
    Memory(Level),
}

impl Roof {
    /// Returns the kind of resource.
    pub const fn bound(self) -> Bound {
        match self {
            Self::Compute => Bound::Compute,
            Self::Memory(_) => Bound::Memory,
        }
    }

    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory(level) => level.as_str(),
        }
    }
}

/// The place of an operation or a group under the roofs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Floating-point operations per byte of all memories; `None` if it moves nothing.
    pub intensity: Option<f64>,
    /// Floating-point operations per second.
    pub flops_per_second: f64,
    /// Bytes of all memories per second.
    pub bytes_per_second: f64,
    /// Peak of arithmetic, operations per second: of several precisions, the rate that their mixture reaches.
    pub peak_flops_per_second: Option<f64>,
    /// Fraction of the arithmetic peak, where that is known.
    pub compute: Option<f64>,
    /// Where it is under the roofs of the memories: [`Level::ALL`].
    pub levels: [LevelPoint; Level::ALL.len()],
}

/// The place of an operation or a group under the roof of a level of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelPoint {
    /// Bytes that it reads or writes there.
    pub bytes: f64,
    /// Floating-point operations per byte; `None` if it moves nothing there.
    pub intensity: Option<f64>,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Fraction of the level's peak, where that is known.
    pub utilisation: Option<f64>,
}

impl Point {
    /// Returns the place of some work in some time; `None` without time.
    pub fn new(work: &InstructionWork, time_ps: i128, peaks: Option<&DevicePeaks>) -> Option<Self> {
        if time_ps <= 0 {
            return None;
        }
        let seconds = time_ps as f64 * 1e-12;
        let shortest = peaks.and_then(|peaks| shortest_seconds(work, peaks));
        let peak = shortest
            .filter(|shortest| *shortest > 0.0)
            .map(|shortest| work.flops / shortest);
        let levels = Level::ALL.map(|level| {
            let bytes = work.levels.at(level);
            let peak = peaks.and_then(|peaks| peaks.bytes(level));
            LevelPoint {
                bytes,
                intensity: (bytes > 0.0).then(|| work.flops / bytes),
                bytes_per_second: bytes / seconds,
                utilisation: peak.map(|peak| bytes / seconds / peak.per_second),
            }
        });
        Some(Self {
            intensity: (work.bytes > 0.0).then(|| work.flops / work.bytes),
            flops_per_second: work.flops / seconds,
            bytes_per_second: work.bytes / seconds,
            peak_flops_per_second: peak,
            compute: shortest.map(|shortest| shortest / seconds),
            levels,
        })
    }

    /// Returns its place under the roof of a level.
    pub const fn level(&self, level: Level) -> &LevelPoint {
        &self.levels[level as usize]
    }

    /// Returns the fraction of the peak of the main memory, where that is known.
    pub const fn memory(&self) -> Option<f64> {
        self.level(Level::Main).utilisation
    }

    /// Returns the nearest roof of the known ones, with the fraction of that peak. Of several, arithmetic and the
    /// main memory come first.
    fn nearest(&self) -> Option<(Roof, f64)> {
        let memories = Level::ALL.into_iter().map(|level| {
            let utilisation = self.level(level).utilisation;
            (Roof::Memory(level), utilisation)
        });
        let known = std::iter::once((Roof::Compute, self.compute))
            .chain(memories)
            .filter_map(|(roof, share)| Some((roof, share?)));
        known.reduce(|most, one| if one.1 > most.1 { one } else { most })
    }

    /// Returns the largest one of the known fractions of the peaks.
    pub fn efficiency(&self) -> Option<f64> {
        self.nearest().map(|(_, share)| share)
    }

    /// Returns the roof that limits it; `None` unless the peaks of arithmetic and the main memory are known and it
    /// does anything.
    pub fn bound(&self) -> Option<Roof> {
        self.compute.zip(self.memory())?;
        let (roof, share) = self.nearest()?;
        (share > 0.0).then_some(roof)
    }
}

/// Returns the time that the operations take at the peaks, seconds; `None` if one of these peaks is unknown.
fn shortest_seconds(work: &InstructionWork, peaks: &DevicePeaks) -> Option<f64> {
    if work.precisions.most().is_none() {
        let has_peak = Precision::ALL
            .into_iter()
            .any(|precision| peaks.flops(precision).is_some());
        return has_peak.then_some(0.0);
    }
    let mut seconds = 0.0;
    for precision in Precision::ALL {
        let flops = work.precisions.at(precision);
        if flops > 0.0 {
            seconds += flops / peaks.flops(precision)?.per_second;
        }
    }
    Some(seconds)
}

/// The peaks of the devices and hosts of a run, found once for each.
#[derive(Debug, Default)]
pub struct DeviceRoofs {
    overrides: PeakOverrides,
    found: BTreeMap<(usize, Option<u32>), DevicePeaks>,
}

impl DeviceRoofs {
    /// Returns none yet.
    pub fn new(overrides: PeakOverrides) -> Self {
        Self {
            overrides,
            found: BTreeMap::new(),
        }
    }

    /// Returns the peaks of the device that ran a slice, or of the processor of the host if none did.
    pub fn device(&mut self, trace: &Trace, event: EventId) -> Option<&DevicePeaks> {
        let (line, _) = trace.place_of_slice(event)?;
        let line = trace.tracks().get(line.index())?;
        let key = (line.file, line.device);
        let overrides = &self.overrides;
        let found = self.found.entry(key);
        Some(found.or_insert_with(|| DevicePeaks::new(trace, key.0, key.1, overrides)))
    }

    /// Lists the different peaks, by device name.
    pub fn list(&self) -> Vec<&DevicePeaks> {
        let mut list: Vec<&DevicePeaks> = Vec::new();
        for peaks in self.found.values() {
            if !list.contains(&peaks) {
                list.push(peaks);
            }
        }
        list.sort_by(|a, b| a.device.cmp(&b.device));
        list
    }
}

#[cfg(test)]
mod tests {
    use stepscope_hlo::cost::{LevelBytes, PrecisionFlops};

    use super::*;
    use crate::peaks::PeakRates;

    const SECOND: i128 = 1_000_000_000_000;

    fn work(precisions: &[(Precision, f64)]) -> InstructionWork {
        let mut work = InstructionWork {
            bytes: 1e9,
            levels: LevelBytes::main_only(1e9),
            ..InstructionWork::default()
        };
        for (precision, flops) in precisions {
            work.add(
                &InstructionWork {
                    flops: *flops,
                    precisions: PrecisionFlops::only(*precision, *flops),
                    ..InstructionWork::default()
                },
                1.0,
            );
        }
        work
    }

    fn peaks(flops: &[(Precision, u64)], bytes: Option<u64>) -> DevicePeaks {
        let given = PeakRates {
            flops: flops.iter().copied().collect(),
            other_flops: None,
            bytes,
        };
        DevicePeaks::given(&given)
    }

    #[test]
    fn the_resource_nearest_to_its_peak_limits() {
        let work = work(&[(Precision::F16, 4e9)]);
        let roofs = peaks(&[(Precision::F16, 8_000_000_000)], Some(4_000_000_000));
        let point = Point::new(&work, SECOND, Some(&roofs)).unwrap();
        assert_eq!(point.intensity, Some(4.0));
        assert_eq!((point.compute, point.memory()), (Some(0.5), Some(0.25)));
        assert_eq!(point.bound(), Some(Roof::Compute));
        assert_eq!(point.efficiency(), Some(0.5));
        let roofs = peaks(&[(Precision::F16, 80_000_000_000)], Some(4_000_000_000));
        let point = Point::new(&work, SECOND, Some(&roofs)).unwrap();
        assert_eq!(point.bound(), Some(Roof::Memory(Level::Main)));
    }

    #[test]
    fn each_precision_has_its_peak() {
        let roofs = peaks(
            &[
                (Precision::F32, 4_000_000_000),
                (Precision::F16, 16_000_000_000),
            ],
            None,
        );
        let mixed = work(&[(Precision::F32, 1e9), (Precision::F16, 8e9)]);
        let point = Point::new(&mixed, SECOND, Some(&roofs)).unwrap();
        assert_eq!(point.compute, Some(0.75));
        assert_eq!(point.peak_flops_per_second, Some(12e9));
        // The peak of a part is unknown.
        let mixed = work(&[(Precision::F64, 1.0), (Precision::F16, 8e9)]);
        let point = Point::new(&mixed, SECOND, Some(&roofs)).unwrap();
        assert_eq!((point.compute, point.peak_flops_per_second), (None, None));
        // Nothing to do needs no peak.
        let point = Point::new(&work(&[]), SECOND, Some(&roofs)).unwrap();
        assert_eq!(
            (point.compute, point.peak_flops_per_second),
            (Some(0.0), None)
        );
    }

    #[test]
    fn bytes_on_the_chip_do_not_load_the_main_memory() {
        let mut on_chip = InstructionWork {
            flops: 4e9,
            bytes: 3e9,
            precisions: PrecisionFlops::only(Precision::F16, 4e9),
            levels: LevelBytes::main_only(1e9),
            ..InstructionWork::default()
        };
        on_chip.levels.add_at(Level::VmemRead, 2e9);
        let roofs = peaks(&[(Precision::F16, 80_000_000_000)], Some(10_000_000_000));
        let point = Point::new(&on_chip, SECOND, Some(&roofs)).unwrap();
        assert_eq!(point.memory(), Some(0.1));
        assert_eq!(point.level(Level::VmemRead).intensity, Some(2.0));
        assert_eq!(point.level(Level::VmemRead).utilisation, None);
        assert_eq!(point.level(Level::VmemWrite).intensity, None);
        assert_eq!(point.bound(), Some(Roof::Memory(Level::Main)));
    }

    #[test]
    fn unknown_peaks_leave_the_bound_unknown() {
        let work = work(&[(Precision::F16, 4e9)]);
        let roofs = peaks(&[(Precision::F16, 8_000_000_000)], None);
        let point = Point::new(&work, SECOND, Some(&roofs)).unwrap();
        assert_eq!((point.bound(), point.efficiency()), (None, Some(0.5)));
        let point = Point::new(&work, SECOND, None).unwrap();
        assert_eq!((point.bound(), point.efficiency()), (None, None));
        assert_eq!(Point::new(&work, 0, None), None);
    }
}
