//! Peaks of GPUs whose planes have the number of cores and the clock, but no name that is known.
//!
//! ```text
//! peak = cores * clock * operations of a core and cycle
//! ```
//!
//! A core is a multiprocessor (SM) or a compute unit. For 16 bits, the operations are those that XProf multiplies
//! by; the other classes follow from the makers' data sheets of chips of that generation.

use stepscope_hlo::cost::Precision;
use stepscope_store::Trace;

use super::recorded;

/// Operations of a core and cycle by class: [`Precision::ALL`]. 0 is unknown.
type Row = [f64; Precision::ALL.len()];

/// By compute capability of NVIDIA's devices, ascending; a capability between two has the row of the lower one.
const NVIDIA: &[((u32, u32), Row)] = &[
    ((2, 0), [0.0, 64.0, 64.0, 0.0, 0.0]),
    ((3, 0), [0.0, 384.0, 384.0, 0.0, 0.0]),
    ((5, 0), [0.0, 256.0, 256.0, 0.0, 0.0]),
    ((6, 0), [64.0, 128.0, 256.0, 0.0, 0.0]),
    ((6, 1), [0.0, 256.0, 256.0, 0.0, 0.0]),
    ((7, 0), [64.0, 128.0, 1024.0, 0.0, 0.0]),
    ((7, 5), [0.0, 128.0, 1024.0, 2048.0, 4096.0]),
    ((8, 0), [128.0, 1024.0, 2048.0, 4096.0, 8192.0]),
    ((8, 6), [0.0, 512.0, 1024.0, 2048.0, 4096.0]),
    ((8, 9), [0.0, 512.0, 1024.0, 2048.0, 0.0]),
    ((9, 0), [256.0, 2048.0, 4096.0, 8192.0, 0.0]),
    ((10, 0), [0.0, 4096.0, 8192.0, 16384.0, 32768.0]),
];

/// By architecture of AMD's devices.
const AMD: &[(&str, Row)] = &[
    ("gfx908", [64.0, 256.0, 1024.0, 0.0, 0.0]),
    ("gfx90a", [256.0, 256.0, 1024.0, 1024.0, 0.0]),
    ("gfx942", [256.0, 1024.0, 2048.0, 4096.0, 0.0]),
    ("gfx950", [128.0, 256.0, 4096.0, 8192.0, 16384.0]),
];

/// Returns the peaks of a GPU, operations per second by class.
pub(super) fn find(
    trace: &Trace,
    file: usize,
    ordinal: u32,
    name: &str,
) -> Option<[Option<f64>; Precision::ALL.len()]> {
    let fact = |key: &str| recorded(trace, file, ordinal, key);
    let cores = fact("core_count")?;
    let kilohertz = fact("clock_rate")?;
    let major = fact("compute_cap_major").unwrap_or(0.0);
    // A minor number of 0 is recorded too.
    let minor = fact("compute_cap_minor").unwrap_or(0.0);
    let vendor = super::text(trace, file, &format!("device.{ordinal}.device_vendor"));
    let row = per_cycle(&vendor, name, (whole(major), whole(minor)))?;
    Some(row.map(|flops| (flops > 0.0).then_some(cores * kilohertz * 1e3 * flops)))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and small numbers stay whole; others are no capability"
)]
const fn whole(number: f64) -> u32 {
    number as u32
}

fn per_cycle(vendor: &str, name: &str, capability: (u32, u32)) -> Option<Row> {
    if vendor.eq_ignore_ascii_case("AMD") {
        let architecture = match capability {
            _ if name.contains("gfx") => name,
            (9, 4) => "gfx942",
            (9, 5) => "gfx950",
            _ => return None,
        };
        let known = AMD.iter().find(|(known, _)| architecture.contains(known));
        return known.map(|(_, row)| *row);
    }
    let mut known = NVIDIA.iter().rev();
    let known = known.find(|(known, _)| *known <= capability);
    known.map(|(_, row)| *row)
}

#[cfg(test)]
#[allow(
    clippy::float_cmp,
    reason = "figures that both round to the same number"
)]
mod tests {
    use super::*;

    /// GFLOP/s that XProf 2.24.2 shows for planes of these figures.
    #[test]
    fn peaks_are_those_of_xprof() {
        let gigaflops = |vendor: &str, capability, cores: f64, kilohertz: f64| {
            let row = per_cycle(vendor, "", capability).unwrap();
            (cores * kilohertz * row[Precision::F16 as usize] / 1e6).round()
        };
        assert_eq!(gigaflops("Nvidia", (9, 0), 132.0, 1_755_000.0), 948_879.0);
        assert_eq!(gigaflops("AMD", (9, 4), 304.0, 2_100_000.0), 1_307_443.0);
        assert_eq!(gigaflops("AMD", (9, 5), 256.0, 2_400_000.0), 2_516_582.0);
    }

    #[test]
    fn unknown_generations_have_the_row_of_the_one_before() {
        let row = |capability| per_cycle("Nvidia", "", capability);
        assert_eq!(row((8, 7)), row((8, 6)));
        assert_eq!(row((12, 0)), row((10, 0)));
        assert_eq!(row((1, 3)), None);
        assert_eq!(per_cycle("AMD", "", (8, 0)), None);
        assert_eq!(
            per_cycle("AMD", "gfx90a:sramecc+:xnack-", (9, 0)).map(|row| row[2]),
            Some(1024.0)
        );
    }

    /// The rows agree with the data sheets of chips of these generations, in 10^12 operations per second.
    #[test]
    fn rows_agree_with_data_sheets() {
        for (vendor, capability, cores, gigahertz, device) in [
            ("Nvidia", (7, 0), 80.0, 1.53, "V100"),
            ("Nvidia", (8, 0), 108.0, 1.41, "A100"),
            ("Nvidia", (8, 6), 72.0, 1.695, "A10"),
            ("AMD", (9, 4), 304.0, 2.1, "MI300X"),
            ("AMD", (9, 5), 256.0, 2.4, "MI355X"),
        ] {
            let row = per_cycle(vendor, "", capability).unwrap();
            let stated = super::super::data_sheets::find(device).unwrap();
            for (flops, stated) in row.into_iter().zip(stated) {
                let Some(stated) = stated.filter(|_| flops > 0.0) else {
                    continue;
                };
                let computed = cores * gigahertz * 1e9 * flops;
                let difference = (computed - stated).abs() / stated;
                assert!(difference < 0.01, "{device}: {computed}, not {stated}");
            }
        }
    }
}
