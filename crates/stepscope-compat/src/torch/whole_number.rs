//! Whole numbers in the arguments of events.

use stepscope_model::ArgValue;

/// Returns the whole number that an argument is, or that its text spells.
pub(super) fn whole(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::Int(value) => Some(value),
        ArgValue::Uint(value) => i64::try_from(value).ok(),
        ArgValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}
