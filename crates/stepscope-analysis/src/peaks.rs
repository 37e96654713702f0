//! Peak rates of devices: given by the user, stated by the trace file or by the maker's data sheet, computed from
//! cores and clock, or measured.
//!
//! Arithmetic has one peak for each class of element types ([`Precision`]), the rate of dense matrix products;
//! each level of memory ([`Level`]) has its own. What nothing states is unknown.

mod data_sheets;
mod per_clock;

use std::collections::BTreeMap;

pub use stepscope_hlo::cost::{Level, Precision};
use stepscope_store::{FactValue, Trace};

/// Source of a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeakSource {
    /// The user gave it.
    Given,
    /// The trace file states it.
    File,
    /// The maker's data sheet, for dense products: `docs/reference/peaks.md`.
    DataSheet,
    /// Cores times clock times the operations of a core and cycle.
    CoresAndClock,
    /// Measured by `stepscope peaks` on a processor of the same model.
    Measured,
}

impl PeakSource {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::File => "trace file",
            Self::DataSheet => "data sheet",
            Self::CoresAndClock => "cores and clock",
            Self::Measured => "measured",
        }
    }
}

/// A peak rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Floating-point operations or bytes per second.
    pub per_second: f64,
    /// See [`PeakSource`].
    pub source: PeakSource,
}

/// Peak rates from outside the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeakRates {
    /// Floating-point operations per second, by class.
    pub flops: BTreeMap<Precision, u64>,
    /// Floating-point operations per second of the classes without an entry in `flops`.
    pub other_flops: Option<u64>,
    /// Bytes per second of the main memory.
    pub bytes: Option<u64>,
}

impl PeakRates {
    /// Returns the peak of a class.
    pub fn flops_of(&self, precision: Precision) -> Option<u64> {
        self.flops.get(&precision).copied().or(self.other_flops)
    }

    /// Returns whether it has no peak.
    pub fn is_empty(&self) -> bool {
        self.flops.is_empty() && self.other_flops.is_none() && self.bytes.is_none()
    }
}

/// Peak rates that complete or replace those of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeakOverrides {
    /// Given by the user: they count before all others, for every device.
    pub given: PeakRates,
    /// Measured on the processor of the hosts: for operations that no device ran.
    pub measured: PeakRates,
}

/// The peak rates of a device, or of the processor of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DevicePeaks {
    /// Name of the device, or model of the processor; empty if unknown.
    pub device: String,
    flops: BTreeMap<Precision, Peak>,
    bytes: BTreeMap<Level, Peak>,
}

impl DevicePeaks {
    /// Finds the peaks of a device of a file; of the host's processor without an ordinal.
    pub fn new(
        trace: &Trace,
        file: usize,
        ordinal: Option<u32>,
        overrides: &PeakOverrides,
    ) -> Self {
        let mut found = match ordinal {
            Some(ordinal) => Self::from_plane(trace, file, ordinal),
            None => Self {
                device: text(trace, file, PROCESSOR),
                ..Self::default()
            },
        };
        if ordinal.is_none() {
            found.replace(&overrides.measured, PeakSource::Measured);
        }
        found.replace(&overrides.given, PeakSource::Given);
        found
    }

    /// Returns the peaks that a user gives.
    pub fn given(rates: &PeakRates) -> Self {
        let mut found = Self::default();
        found.replace(rates, PeakSource::Given);
        found
    }

    /// Finds what the file and the tables know.
    fn from_plane(trace: &Trace, file: usize, ordinal: u32) -> Self {
        let mut found = Self {
            device: text(trace, file, &format!("device.{ordinal}.name")),
            ..Self::default()
        };
        let fact = |key: &str| recorded(trace, file, ordinal, key);
        if let Some(teraflops) = fact("peak_teraflops_per_second") {
            // XProf's rule: the peak is that of 16 bits, and wider types run as such. Work in 8 bits counts half,
            // in 4 bits a quarter.
            let scales = [1.0, 1.0, 1.0, 2.0, 4.0];
            let rates = scales.map(|scale| Some(teraflops * 1e12 * scale));
            found.set_flops(rates, PeakSource::File);
        } else if let Some(rates) = data_sheets::find(&found.device) {
            found.set_flops(rates, PeakSource::DataSheet);
        } else if let Some(rates) = per_clock::find(trace, file, ordinal, &found.device) {
            found.set_flops(rates, PeakSource::CoresAndClock);
        }
        let mut set = |level: Level, rate: Option<f64>| {
            if let Some(per_second) = rate {
                let source = PeakSource::File;
                found.bytes.insert(level, Peak { per_second, source });
            }
        };
        let gigabytes = |memory: &str| {
            let rate = fact(&format!("peak_{memory}_bw_gigabytes_per_second"));
            rate.map(|gigabytes| gigabytes * 1e9)
        };
        set(
            Level::Main,
            gigabytes("hbm").or_else(|| fact("memory_bandwidth")),
        );
        set(Level::CmemRead, gigabytes("cmem_rd"));
        set(Level::CmemWrite, gigabytes("cmem_wr"));
        // As in XProf: elsewhere the vector memory is no roof.
        if fact("has_merged_vmem").is_some() {
            set(Level::VmemRead, gigabytes("vmem_rd"));
            set(Level::VmemWrite, gigabytes("vmem_wr"));
        }
        found
    }

    fn set_flops(&mut self, rates: [Option<f64>; Precision::ALL.len()], source: PeakSource) {
        for (precision, rate) in Precision::ALL.into_iter().zip(rates) {
            if let Some(per_second) = rate {
                self.flops.insert(precision, Peak { per_second, source });
            }
        }
    }

    fn replace(&mut self, rates: &PeakRates, source: PeakSource) {
        for precision in Precision::ALL {
            if let Some(rate) = rates.flops_of(precision) {
                let per_second = rate as f64;
                self.flops.insert(precision, Peak { per_second, source });
            }
        }
        if let Some(rate) = rates.bytes {
            let per_second = rate as f64;
            self.bytes.insert(Level::Main, Peak { per_second, source });
        }
    }

    /// Returns the peak arithmetic rate of a class, operations per second.
    pub fn flops(&self, precision: Precision) -> Option<Peak> {
        self.flops.get(&precision).copied()
    }

    /// Returns the peak rate of a level of memory, bytes per second.
    pub fn bytes(&self, level: Level) -> Option<Peak> {
        self.bytes.get(&level).copied()
    }
}

/// Key of the fact that names the processor of a host.
pub const PROCESSOR: &str = "processor";
/// Key of the fact with the number of processors that the program could use.
pub const PROCESSORS: &str = "processors";

fn text(trace: &Trace, file: usize, key: &str) -> String {
    let value = trace.files().get(file).and_then(|file| file.fact(key));
    value.map(ToString::to_string).unwrap_or_default()
}

/// Returns a positive number that the file states of a device.
pub(crate) fn recorded(trace: &Trace, file: usize, ordinal: u32, what: &str) -> Option<f64> {
    let file = trace.files().get(file)?;
    let value = match file.fact(&format!("device.{ordinal}.{what}"))? {
        FactValue::Int(value) => *value as f64,
        FactValue::Uint(value) => *value as f64,
        FactValue::Double(value) => *value,
        FactValue::Text(text) => text.parse().ok()?,
        FactValue::Bool(_) => return None,
    };
    (value > 0.0).then_some(value)
}

/// Returns whether the name contains all words of `known`, in their order and whole: `L4` does not match `L40S`.
pub(crate) fn is_called(name: &str, known: &str) -> bool {
    let words: Vec<&str> = name.split([' ', '-', '_']).collect();
    let known: Vec<&str> = known.split(' ').collect();
    words.windows(known.len()).any(|window| window == known)
}
