//! Peaks from the makers' data sheets, by the name of the device.

use stepscope_hlo::cost::Precision;

use super::is_called;

/// Name, and the rates of dense matrix products by class: [`Precision::ALL`].
type Row = (&'static str, [f64; Precision::ALL.len()]);

/// Stands for a rate that no data sheet states, or none that we are certain of.
const UNKNOWN: f64 = 0.0;

/// 10^12 operations per second of one device; the first name that is part of the device's counts.
///
/// `docs/reference/peaks.md` has the source of each row. A figure is here if two independent sources have it, or one
/// that quotes the maker's table: of B200 and GB200 NVIDIA's table of HGX B200 and GB200 NVL72 by GPU; of MI350X and
/// MI355X AMD's compute units, clock and operations per clock, with which the published PFLOPS agree; of the L40
/// NVIDIA's table of L40 and L40S. Of devices without a figure, cores and clock count.
const PEAKS: &[Row] = &[
    ("H100 PCIe", [51.0, 378.0, 756.0, 1513.0, UNKNOWN]),
    ("H100 NVL", [60.0, 417.5, 835.0, 1670.5, UNKNOWN]),
    ("H100", [67.0, 494.5, 989.0, 1979.0, UNKNOWN]),
    ("H200 NVL", [60.0, 417.5, 835.0, 1670.5, UNKNOWN]),
    ("H200", [67.0, 494.5, 989.0, 1979.0, UNKNOWN]),
    ("GH200", [67.0, 494.5, 989.0, 1979.0, UNKNOWN]),
    ("H800 PCIe", [UNKNOWN; Precision::ALL.len()]),
    ("H800", [1.0, 494.5, 989.0, 1979.0, UNKNOWN]),
    ("H20", [1.0, 74.0, 148.0, 296.0, UNKNOWN]),
    ("B200", [37.0, 1125.0, 2250.0, 4500.0, 9000.0]),
    ("GB200", [40.0, 1250.0, 2500.0, 5000.0, 10000.0]),
    ("A100", [19.5, 156.0, 312.0, 624.0, 1248.0]),
    ("A800", [19.5, 156.0, 312.0, 624.0, 1248.0]),
    ("A10G", [UNKNOWN, UNKNOWN, 70.0, UNKNOWN, UNKNOWN]),
    ("A10", [UNKNOWN, 62.5, 125.0, 250.0, 500.0]),
    ("A40", [UNKNOWN, 74.8, 149.7, 299.3, 598.7]),
    ("L40S", [UNKNOWN, 183.0, 362.0, 733.0, UNKNOWN]),
    ("L40", [UNKNOWN, 90.5, 181.0, 362.0, 724.0]),
    ("L4", [UNKNOWN, 60.0, 121.0, 242.5, UNKNOWN]),
    ("V100S", [8.2, 16.4, 130.0, UNKNOWN, UNKNOWN]),
    ("V100 PCIE", [7.0, 14.0, 112.0, UNKNOWN, UNKNOWN]),
    ("V100", [7.8, 15.7, 125.0, UNKNOWN, UNKNOWN]),
    ("T4", [UNKNOWN, 8.1, 65.0, 130.0, 260.0]),
    ("MI355X", [78.6, 157.3, 2516.6, 5033.2, 10066.3]),
    ("MI350X", [72.1, 144.2, 2306.9, 4613.7, 9227.5]),
    ("MI325X", [163.4, 653.7, 1307.4, 2614.9, UNKNOWN]),
    ("MI300X", [163.4, 653.7, 1307.4, 2614.9, UNKNOWN]),
    ("MI300A", [122.6, 490.3, 980.6, 1961.2, UNKNOWN]),
    // One of the two dies of a card, which is one device to programs.
    ("MI250X", [47.9, 47.9, 191.5, 191.5, UNKNOWN]),
    ("MI250", [45.3, 45.3, 181.0, 181.0, UNKNOWN]),
    ("MI210", [45.3, 45.3, 181.0, 181.0, UNKNOWN]),
    ("MI100", [11.5, 46.1, 184.6, UNKNOWN, UNKNOWN]),
];

/// Returns the peaks of the device of this name, operations per second by class.
pub(super) fn find(device: &str) -> Option<[Option<f64>; Precision::ALL.len()]> {
    let (_, teraflops) = PEAKS.iter().find(|(known, _)| is_called(device, known))?;
    if teraflops.iter().all(|rate| *rate <= UNKNOWN) {
        return None;
    }
    Some(teraflops.map(|rate| (rate > UNKNOWN).then_some(rate * 1e12)))
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

    #[test]
    fn narrower_types_are_at_least_as_fast() {
        for (name, rates) in PEAKS {
            let known: Vec<f64> = rates
                .iter()
                .copied()
                .filter(|rate| *rate > UNKNOWN)
                .collect();
            assert!(known.is_sorted(), "{name}: {known:?}");
        }
        assert_eq!(
            find("NVIDIA H20"),
            Some([Some(1e12), Some(74e12), Some(148e12), Some(296e12), None])
        );
        assert_eq!(find("NVIDIA H800 PCIe"), None);
    }
}
