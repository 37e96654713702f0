//! The roofline model: which resource of its device limits an operation.
//!
//! ```text
//! intensity    = floating-point operations / bytes
//! flop rate    = floating-point operations / time
//! byte rate    = bytes / time
//! efficiency   = max(flop rate / peak of the device, byte rate / peak of its memory)
//! bound by     = compute where the first is larger, else memory
//! ```
//!
//! The source is S. Williams, A. Waterman, D. Patterson: Roofline, Communications of the ACM 52 (2009). Work and
//! time are those of [`op_profile`](crate::op_profile); operations whose work is unknown have no point, and their
//! time is left out of the rates of groups. The arithmetic peak is that of products in 16 bits ([`peaks`]): work
//! in other types cannot reach it.

use std::collections::BTreeMap;

use stepscope_hlo::cost::Work;
use stepscope_store::{EventId, Trace};

use crate::ops::rates::Bound;
use crate::peaks::{self, PeakSource};

/// Peaks of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roofs {
    /// Name of the device; empty for the processor of the host.
    pub device: String,
    /// Floating-point operations per second, and where the figure is from.
    pub compute: Option<(f64, PeakSource)>,
    /// Bytes per second of the main memory, which only files state.
    pub memory: Option<f64>,
}

/// The place of an operation or a group under the roofs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Floating-point operations per byte; `None` if it moves nothing.
    pub intensity: Option<f64>,
    /// Floating-point operations per second.
    pub flops_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Fraction of the arithmetic peak, where that is known.
    pub compute: Option<f64>,
    /// Fraction of the memory's peak, where that is known.
    pub memory: Option<f64>,
}

impl Point {
    /// Returns the place of some work in some time; `None` without time.
    pub fn new(work: Work, time_ps: i128, roofs: Option<&Roofs>) -> Option<Self> {
        if time_ps <= 0 {
            return None;
        }
        let seconds = time_ps as f64 * 1e-12;
        let (flops, bytes) = (work.flops / seconds, work.bytes / seconds);
        let compute = roofs.and_then(|roofs| roofs.compute);
        Some(Self {
            intensity: (work.bytes > 0.0).then(|| work.flops / work.bytes),
            flops_per_second: flops,
            bytes_per_second: bytes,
            compute: compute.map(|(peak, _)| flops / peak),
            memory: roofs.and_then(|roofs| Some(bytes / roofs.memory?)),
        })
    }

    /// Returns the larger one of the known fractions of the peaks.
    pub fn efficiency(&self) -> Option<f64> {
        match (self.compute, self.memory) {
            (Some(compute), Some(memory)) => Some(compute.max(memory)),
            (compute, memory) => compute.or(memory),
        }
    }

    /// Returns the resource that limits it; `None` unless both peaks are known and it does anything.
    pub fn bound(&self) -> Option<Bound> {
        let (compute, memory) = self.compute.zip(self.memory)?;
        (compute.max(memory) > 0.0).then_some(if compute >= memory {
            Bound::Compute
        } else {
            Bound::Memory
        })
    }
}

/// The peaks of the devices of a run, read once for each.
#[derive(Debug, Default)]
pub struct DeviceRoofs {
    found: BTreeMap<(usize, u32), Roofs>,
}

impl DeviceRoofs {
    /// Returns the peaks of the device that ran a slice; `None` if no device did.
    pub fn device(&mut self, trace: &Trace, event: EventId) -> Option<&Roofs> {
        let (line, _) = trace.place_of_slice(event)?;
        let line = trace.tracks().get(line.index())?;
        let key = (line.file, line.device?);
        let roofs = self.found.entry(key);
        Some(roofs.or_insert_with(|| roofs_of(trace, key.0, key.1)))
    }

    /// Lists the different peaks, by device name.
    pub fn list(&self) -> Vec<&Roofs> {
        let mut list: Vec<&Roofs> = Vec::new();
        for roofs in self.found.values() {
            if !list.contains(&roofs) {
                list.push(roofs);
            }
        }
        list.sort_by(|a, b| a.device.cmp(&b.device));
        list
    }
}

fn roofs_of(trace: &Trace, file: usize, ordinal: u32) -> Roofs {
    let compute = peaks::compute(trace, file, ordinal);
    let name = trace.files().get(file);
    let name = name.and_then(|file| file.fact(&format!("device.{ordinal}.name")));
    Roofs {
        device: name.map(ToString::to_string).unwrap_or_default(),
        compute: compute.map(|peak| (peak.flops_per_second, peak.source)),
        memory: peaks::memory(trace, file, ordinal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work {
        flops: 4e9,
        transcendentals: 0.0,
        bytes: 1e9,
    };
    const SECOND: i128 = 1_000_000_000_000;

    fn roofs(compute: f64, memory: Option<f64>) -> Roofs {
        Roofs {
            device: "test".to_owned(),
            compute: Some((compute, PeakSource::File)),
            memory,
        }
    }

    #[test]
    fn the_resource_nearest_to_its_peak_limits() {
        let point = Point::new(WORK, SECOND, Some(&roofs(8e9, Some(4e9)))).unwrap();
        assert_eq!(point.intensity, Some(4.0));
        assert_eq!((point.compute, point.memory), (Some(0.5), Some(0.25)));
        assert_eq!(point.bound(), Some(Bound::Compute));
        assert_eq!(point.efficiency(), Some(0.5));
        let point = Point::new(WORK, SECOND, Some(&roofs(80e9, Some(4e9)))).unwrap();
        assert_eq!(point.bound(), Some(Bound::Memory));
    }

    #[test]
    fn unknown_peaks_leave_the_bound_unknown() {
        let point = Point::new(WORK, SECOND, Some(&roofs(8e9, None))).unwrap();
        assert_eq!((point.bound(), point.efficiency()), (None, Some(0.5)));
        let point = Point::new(WORK, SECOND, None).unwrap();
        assert_eq!((point.bound(), point.efficiency()), (None, None));
        assert_eq!(Point::new(WORK, 0, None), None);
    }
}
