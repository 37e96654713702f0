//! Peak rates of devices: from the trace file, else from their makers' data sheets.

use stepscope_store::{FactValue, Trace};

/// Source of a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakSource {
    /// The trace file states it.
    File,
    /// The maker's data sheet, for dense products in 16 bits: `docs/reference/peaks.md`.
    DataSheet,
}

impl PeakSource {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "trace file",
            Self::DataSheet => "data sheet",
        }
    }
}

/// Peak arithmetic rate of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePeak {
    /// The device's name.
    pub device: String,
    /// Floating-point operations per second.
    pub flops_per_second: f64,
    /// See [`PeakSource`].
    pub source: PeakSource,
}

/// Dense matrix products in 16 bits, operations per second, from the makers' data sheets, which
/// `docs/reference/peaks.md` lists. The first name that is part of the device's counts.
const PEAKS: &[(&str, f64)] = &[
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("H200 NVL", 835e12),
    ("H200", 989e12),
    ("GH200", 989e12),
    ("H800", 989e12),
    ("H20", 148e12),
    ("B200", 2250e12),
    ("GB200", 2500e12),
    ("A100", 312e12),
    ("A800", 312e12),
    ("A10G", 70e12),
    ("A10", 125e12),
    ("A40", 149.7e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("L4", 121e12),
    ("V100S", 130e12),
    ("V100 PCIE", 112e12),
    ("V100", 125e12),
    ("T4", 65e12),
    ("MI355X", 2516.6e12),
    ("MI350X", 2306.9e12),
    ("MI325X", 1307.4e12),
    ("MI300X", 1307.4e12),
    ("MI300A", 980.6e12),
    // One of the two dies of a card, which is one device to programs.
    ("MI250X", 191.5e12),
    ("MI250", 181e12),
    ("MI210", 181e12),
    ("MI100", 184.6e12),
];

/// Returns the peak arithmetic rate of a device, from the file or from the table of data sheets.
pub fn compute(trace: &Trace, file: usize, ordinal: u32) -> Option<DevicePeak> {
    let name = trace.files().get(file)?;
    let name = name.fact(&format!("device.{ordinal}.name"));
    let device = name.map(ToString::to_string).unwrap_or_default();
    if let Some(teraflops) = recorded(trace, file, ordinal, "peak_teraflops_per_second") {
        return Some(DevicePeak {
            device,
            flops_per_second: teraflops * 1e12,
            source: PeakSource::File,
        });
    }
    let (_, peak) = PEAKS.iter().find(|(known, _)| is_called(&device, known))?;
    Some(DevicePeak {
        device,
        flops_per_second: *peak,
        source: PeakSource::DataSheet,
    })
}

/// Returns the peak rate of a device's main memory, bytes per second, which TPU and GPU planes state.
pub fn memory(trace: &Trace, file: usize, ordinal: u32) -> Option<f64> {
    let tpu = recorded(trace, file, ordinal, "peak_hbm_bw_gigabytes_per_second");
    tpu.map(|gigabytes| gigabytes * 1e9)
        .or_else(|| recorded(trace, file, ordinal, "memory_bandwidth"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_device_names_are_distinguished() {
        let first = |name: &str| {
            PEAKS
                .iter()
                .find(|(known, _)| is_called(name, known))
                .map(|(known, _)| *known)
        };
        assert_eq!(first("NVIDIA H100 80GB HBM3"), Some("H100"));
        assert_eq!(first("NVIDIA H100 PCIe"), Some("H100 PCIe"));
        assert_eq!(first("NVIDIA A100-SXM4-40GB"), Some("A100"));
        assert_eq!(first("AMD Instinct MI300X"), Some("MI300X"));
        assert_eq!(first("NVIDIA L40S"), Some("L40S"));
        assert_eq!(first("NVIDIA L4"), Some("L4"));
        assert_eq!(first("NVIDIA H200 NVL"), Some("H200 NVL"));
        assert_eq!(first("Tesla V100-PCIE-16GB"), Some("V100 PCIE"));
        assert_eq!(first("Tesla V100-SXM2-16GB"), Some("V100"));
        assert_eq!(first("NVIDIA GH200 480GB"), Some("GH200"));
        assert_eq!(first("NVIDIA GeForce RTX 4090"), None);
    }
}
