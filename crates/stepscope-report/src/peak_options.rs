//! Peak rates as users type them: `989e12`, `989e12:f32=67e12,f64=34e12`.

use std::fmt;

use stepscope_analysis::peaks::PeakRates;
use stepscope_hlo::cost::Precision;

/// Largest rate that is accepted, per second: a thousand times the fastest computer of today.
const MAX_RATE: f64 = 1e19;

/// Why a text is no peak rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPeak {
    what: &'static str,
    text: String,
    cause: &'static str,
    help: &'static str,
}

impl fmt::Display for BadPeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot use '{}' as {}: {}\nhelp: {}",
            self.text, self.what, self.cause, self.help
        )
    }
}

impl std::error::Error for BadPeak {}

const FLOPS_HELP: &str =
    "give FLOP/s, such as 989e12, or one for each type: 989e12:f32=67e12,f8=1979e12";
const BYTES_HELP: &str = "give bytes per second, such as 3.35e12";

/// Reads the peaks of arithmetic, operations per second: one for all types, types with their own, or both.
///
/// # Errors
///
/// [`BadPeak`] if a number is not positive, a type is unknown, or a type has two rates.
pub fn peak_flops(text: &str) -> Result<PeakRates, BadPeak> {
    let bad = |cause| BadPeak {
        what: "peak FLOP/s",
        text: text.to_owned(),
        cause,
        help: FLOPS_HELP,
    };
    let mut found = PeakRates::default();
    for part in text.split([':', ',']) {
        let is_second = if let Some((name, value)) = part.split_once('=') {
            let precision = Precision::from_name(name.trim()).ok_or_else(|| {
                bad("the types are f64, f32 (also tf32), f16 (also bf16), f8 (also int8) and f4 (also int4)")
            })?;
            let value = rate(value).map_err(bad)?;
            found.flops.insert(precision, value).is_some()
        } else {
            let value = rate(part).map_err(bad)?;
            found.other_flops.replace(value).is_some()
        };
        if is_second {
            return Err(bad("a type has two rates"));
        }
    }
    Ok(found)
}

/// Reads the peak of the main memory, bytes per second.
///
/// # Errors
///
/// [`BadPeak`] if it is not a positive number.
pub fn peak_bandwidth(text: &str) -> Result<u64, BadPeak> {
    rate(text).map_err(|cause| BadPeak {
        what: "peak bandwidth",
        text: text.to_owned(),
        cause,
        help: BYTES_HELP,
    })
}

/// Combines what the options say.
///
/// # Errors
///
/// [`BadPeak`] as the functions for each option.
pub fn given_peaks(flops: Option<&str>, bandwidth: Option<&str>) -> Result<PeakRates, BadPeak> {
    let mut found = flops.map(peak_flops).transpose()?.unwrap_or_default();
    found.bytes = bandwidth.map(peak_bandwidth).transpose()?;
    Ok(found)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 1 and 1e19, to the whole operation"
)]
fn rate(text: &str) -> Result<u64, &'static str> {
    let number: f64 = text.trim().parse().ok().ok_or("it is not a number")?;
    if (1.0..=MAX_RATE).contains(&number) {
        Ok(number as u64)
    } else {
        Err("a rate lies between 1 and 1e19 per second")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_by_type() {
        let found = peak_flops("989e12:f32=67e12,bf16=9.5e14").unwrap();
        assert_eq!(found.flops_of(Precision::F32), Some(67_000_000_000_000));
        assert_eq!(found.flops_of(Precision::F16), Some(950_000_000_000_000));
        assert_eq!(found.flops_of(Precision::F8), Some(989_000_000_000_000));
        let found = peak_flops("tf32=1e12").unwrap();
        assert_eq!(found.flops_of(Precision::F32), Some(1_000_000_000_000));
        assert_eq!(found.flops_of(Precision::F64), None);
        let found = given_peaks(None, Some("3.35e12")).unwrap();
        assert_eq!(
            (found.bytes, found.other_flops),
            (Some(3_350_000_000_000), None)
        );
        assert!(given_peaks(None, None).unwrap().is_empty());
    }

    #[test]
    fn wrong_rates_name_the_cause() {
        for (text, cause) in [
            ("", "not a number"),
            ("fast", "not a number"),
            ("-1", "between 1 and 1e19"),
            ("NaN", "between 1 and 1e19"),
            ("1e12:f99=1", "the types are"),
            ("1e12,2e12", "two rates"),
            ("f32=1,tf32=2", "two rates"),
        ] {
            let error = peak_flops(text).unwrap_err().to_string();
            assert!(
                error.contains(cause) && error.contains("\nhelp: "),
                "{text}: {error}"
            );
        }
        assert!(peak_bandwidth("0").is_err());
    }
}
