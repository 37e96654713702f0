//! Exact conversion of decimal text to whole picoseconds, without floating point.
//!
//! Chrome JSON gives times in microseconds with any number of decimals. Digits beyond the sixth
//! decimal (JAX prints doubles: `0.14999999999999999`) are rounded to the nearest picosecond, ties
//! to even.

/// Reason why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTime {
    /// The text is not a number.
    NotNumber,
    /// The number is infinite or outside the range of times.
    TooLarge,
}

#[cfg(any(feature = "samples", feature = "snapshots"))]
/// Converts a text in a unit of `10^power` picoseconds (9: milliseconds, 12: seconds) to
/// picoseconds.
pub(crate) fn ps_from_text(text: &[u8], power: i64) -> Result<i128, NotTime> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let magnitude = long(digits, power)?;
    Ok(if negative { -magnitude } else { magnitude })
}

/// Converts a text in microseconds to picoseconds.
pub(crate) fn ps_from_us_text(text: &[u8]) -> Result<i128, NotTime> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let magnitude = match short(digits) {
        Some(ps) => ps,
        None => long(digits, 6)?,
    };
    Ok(if negative { -magnitude } else { magnitude })
}

/// Converts the common forms: up to 18 digits, and up to six decimals.
#[inline]
fn short(digits: &[u8]) -> Option<i128> {
    let mut whole: u64 = 0;
    let mut at = 0;
    while let Some(digit) = digit_at(digits, at) {
        whole = whole.wrapping_mul(10).wrapping_add(digit);
        at += 1;
    }
    if at == 0 || at > 18 {
        return None;
    }
    let mut fraction: u64 = 0;
    if at < digits.len() {
        if digits.get(at) != Some(&b'.') {
            return None;
        }
        let first = at + 1;
        at = first;
        while let Some(digit) = digit_at(digits, at) {
            fraction = fraction.wrapping_mul(10).wrapping_add(digit);
            at += 1;
        }
        let decimals = at - first;
        if at < digits.len() || decimals > 6 {
            return None;
        }
        fraction *= [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1]
            .get(decimals)
            .copied()
            .unwrap_or(1);
    }
    Some(i128::from(whole) * 1_000_000 + i128::from(fraction))
}

#[inline]
fn digit_at(digits: &[u8], at: usize) -> Option<u64> {
    let digit = digits.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// Converts any decimal number: any count of digits, an exponent, infinity. `power` is that of
/// [`ps_from_text`].
fn long(text: &[u8], power: i64) -> Result<i128, NotTime> {
    if [&b"Infinity"[..], b"inf", b"Inf", b"infinity"].contains(&text) {
        return Err(NotTime::TooLarge);
    }
    let mut mantissa: u128 = 0;
    // Power of ten that converts the mantissa to picoseconds.
    let mut power = power;
    let mut inexact = false;
    let mut digits_seen = false;
    let mut in_fraction = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                digits_seen = true;
                if mantissa < u128::MAX / 16 {
                    mantissa = mantissa * 10 + u128::from(byte - b'0');
                    power -= i64::from(in_fraction);
                } else {
                    inexact |= *byte != b'0';
                    power += i64::from(!in_fraction);
                }
            }
            b'.' if !in_fraction => in_fraction = true,
            _ => break,
        }
        at += 1;
    }
    if !digits_seen {
        return Err(NotTime::NotNumber);
    }
    match text.get(at..).unwrap_or_default() {
        [] => {}
        [b'e' | b'E', exponent @ ..] => power = power.saturating_add(exponent_of(exponent)?),
        _ => return Err(NotTime::NotNumber),
    }
    if mantissa == 0 {
        return Ok(0);
    }
    if power >= 0 {
        let mut value = i128::try_from(mantissa).map_err(|_too_large| NotTime::TooLarge)?;
        for _ in 0..power {
            value = value.checked_mul(10).ok_or(NotTime::TooLarge)?;
        }
        return Ok(value);
    }
    Ok(divided(mantissa, power.unsigned_abs(), inexact))
}

/// Computes `mantissa / 10^places`, rounded to the nearest integer.
fn divided(mantissa: u128, places: u64, inexact: bool) -> i128 {
    let Some(divisor) = u32::try_from(places)
        .ok()
        .and_then(|places| 10_u128.checked_pow(places))
    else {
        return 0;
    };
    let (quotient, rest) = (mantissa / divisor, mantissa % divisor);
    let half = divisor / 2;
    let up = rest > half || (rest == half && (inexact || quotient % 2 == 1));
    i128::try_from(quotient + u128::from(up)).unwrap_or(i128::MAX)
}

fn exponent_of(text: &[u8]) -> Result<i64, NotTime> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return Err(NotTime::NotNumber);
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(NotTime::NotNumber);
        }
        value = (value * 10 + i64::from(digit)).min(1_000_000);
    }
    Ok(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ps(text: &str) -> Result<i128, NotTime> {
        ps_from_us_text(text.as_bytes())
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(ps("0"), Ok(0));
        assert_eq!(ps("1694128201435418"), Ok(1_694_128_201_435_418_000_000));
        assert_eq!(ps("4203669604595.407"), Ok(4_203_669_604_595_407_000));
        assert_eq!(ps("-7"), Ok(-7_000_000));
        assert_eq!(ps("0.000001"), Ok(1));
        assert_eq!(ps("12."), Ok(12_000_000));
    }

    #[cfg(feature = "samples")]
    #[test]
    fn other_units_are_exact() {
        let ps = |text: &str, power| ps_from_text(text.as_bytes(), power);
        assert_eq!(ps("0.1", 12), Ok(100_000_000_000));
        assert_eq!(ps("-198789.478194", 12), Ok(-198_789_478_194_000_000));
        assert_eq!(ps("1.5", 9), Ok(1_500_000_000));
        assert_eq!(ps("7", 3), Ok(7_000));
        assert_eq!(ps("x", 3), Err(NotTime::NotNumber));
    }

    #[test]
    fn printed_doubles_round_to_the_nearest_picosecond() {
        assert_eq!(ps("0.14999999999999999"), Ok(150_000));
        assert_eq!(ps("9.9999999999999995e-07"), Ok(1));
        assert_eq!(ps("364.05200000000002"), Ok(364_052_000));
        assert_eq!(ps("1.5e3"), Ok(1_500_000_000));
        assert_eq!(ps("1E-7"), Ok(0));
        assert_eq!(ps("0.0000005"), Ok(0));
        assert_eq!(ps("0.0000015"), Ok(2));
        assert_eq!(ps(&format!("0.0000005{}1", "0".repeat(60))), Ok(1));
    }

    #[test]
    fn texts_without_a_time_give_the_reason() {
        for text in ["", "-", "NaN", "abc", "1x", "1e", "1.2.3", "."] {
            assert_eq!(ps(text), Err(NotTime::NotNumber), "{text}");
        }
        for text in ["Infinity", "-Infinity", "1e400", &"9".repeat(400)] {
            assert_eq!(ps(text), Err(NotTime::TooLarge), "{text}");
        }
        assert_eq!(ps(&format!("0.{}", "0".repeat(400))), Ok(0));
        assert_eq!(ps("1e-400"), Ok(0));
    }
}
