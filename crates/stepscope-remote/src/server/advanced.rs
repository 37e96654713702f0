//! `ProfileOptions.advanced_configuration`: known keys and their values.
//!
//! Stock servers on CPU accept any key, so they do not report a typo. This server knows the type
//! and range of each key ([`ADVANCED_OPTIONS`]). It also checks keys for absent devices and then
//! ignores them: one set of options works for programs on different devices.

use std::collections::BTreeMap;

use stepscope_model::spelling::nearest;

use crate::advanced_options::{ADVANCED_OPTIONS, AdvancedValues};
use crate::client::OptionValue;
use crate::proto::profile_options::AdvancedConfigValue;
use crate::proto::profile_options::advanced_config_value::Value;

/// Checks every key and value. The error names the key, the cause and the valid values.
pub(super) fn check(given: &BTreeMap<String, AdvancedConfigValue>) -> Result<(), String> {
    for (key, value) in given {
        let Some((_, takes)) = ADVANCED_OPTIONS.iter().find(|(known, _)| known == key) else {
            return Err(unknown(key));
        };
        let Some(value) = &value.value else {
            return Err(format!(
                "cannot use advanced_configuration {key}: it has no value\nhelp: give one, or remove the key"
            ));
        };
        if !accepts(*takes, value) {
            return Err(wrong_value(key, *takes, value));
        }
    }
    Ok(())
}

/// Returns every key and its value. Call [`check`] first.
pub(super) fn values(given: &BTreeMap<String, AdvancedConfigValue>) -> Vec<(String, OptionValue)> {
    let values = given.iter().filter_map(|(key, value)| {
        let is_flag = ADVANCED_OPTIONS
            .iter()
            .any(|(known, takes)| known == key && matches!(takes, AdvancedValues::Bool));
        let value = match value.value.as_ref()? {
            Value::StringValue(text) => OptionValue::Text(text.clone()),
            Value::BoolValue(truth) => OptionValue::Bool(*truth),
            Value::Int64Value(number) if is_flag => OptionValue::Bool(*number != 0),
            Value::Int64Value(number) => OptionValue::Int(*number),
        };
        Some((key.clone(), value))
    });
    values.collect()
}

/// Returns the number of a key, 0 if absent. Call [`check`] first.
pub(super) fn number(given: &BTreeMap<String, AdvancedConfigValue>, key: &str) -> u32 {
    match given.get(key).and_then(|value| value.value.as_ref()) {
        Some(Value::Int64Value(number)) => u32::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

fn unknown(key: &str) -> String {
    let nearest = nearest(key, ADVANCED_OPTIONS.iter().map(|(known, _)| *known));
    let key = cut(key);
    let help = nearest.map_or_else(
        || "remove the key".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    format!("cannot use advanced_configuration {key:?}: there is no such key\nhelp: {help}")
}

fn accepts(takes: AdvancedValues, value: &Value) -> bool {
    let within = |number: i64, least: i64, most: i64| (least..=most).contains(&number);
    match (takes, value) {
        (AdvancedValues::Bool, Value::BoolValue(_))
        | (AdvancedValues::Text, Value::StringValue(_)) => true,
        (AdvancedValues::Bool, Value::Int64Value(number)) => within(*number, 0, 1),
        (
            AdvancedValues::Int(least, most) | AdvancedValues::Ints(least, most),
            Value::Int64Value(number),
        ) => within(*number, least, most),
        (AdvancedValues::Ints(least, most), Value::StringValue(text)) => {
            text.split(',').all(|part| {
                part.trim()
                    .parse()
                    .is_ok_and(|number| within(number, least, most))
            })
        }
        (
            AdvancedValues::OneOf(words) | AdvancedValues::OneOfOrNumber(words),
            Value::StringValue(text),
        ) => words.contains(&text.as_str()),
        (AdvancedValues::OneOfOrNumber(words), Value::Int64Value(number)) => {
            usize::try_from(*number).is_ok_and(|number| number < words.len())
        }
        _ => false,
    }
}

/// Describes a value that [`accepts`] refuses.
fn wrong_value(key: &str, takes: AdvancedValues, value: &Value) -> String {
    let expected = match takes {
        AdvancedValues::Bool => "true or false".to_owned(),
        AdvancedValues::Int(0, i64::MAX) => "a whole number from 0".to_owned(),
        AdvancedValues::Int(least, most) => format!("a whole number from {least} to {most}"),
        AdvancedValues::Ints(least, most) => {
            format!("whole numbers from {least} to {most}, with commas between them")
        }
        AdvancedValues::Text => "a text".to_owned(),
        AdvancedValues::OneOf(words) => format!("one of {}", words.join(", ")),
        AdvancedValues::OneOfOrNumber(words) => {
            format!("one of {}, or 0 to {}", words.join(", "), words.len() - 1)
        }
    };
    let nearest = match (takes, value) {
        (AdvancedValues::OneOf(words), Value::StringValue(text)) => {
            nearest(text, words.iter().copied())
        }
        _ => None,
    };
    let help = nearest.map_or_else(
        || "change the value, or remove the key".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    let shown = shown(value);
    format!(
        "cannot use advanced_configuration {key}: it takes {expected}, not {shown}\nhelp: {help}"
    )
}

fn shown(value: &Value) -> String {
    match value {
        Value::StringValue(text) => format!("{:?}", cut(text)),
        Value::BoolValue(value) => value.to_string(),
        Value::Int64Value(number) => number.to_string(),
    }
}

/// Returns a client's text, truncated for an error message.
pub(super) fn cut(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(key: &str, value: Value) -> Result<(), String> {
        let value = AdvancedConfigValue { value: Some(value) };
        check(&BTreeMap::from([(key.to_owned(), value)]))
    }

    fn text(text: &str) -> Value {
        Value::StringValue(text.to_owned())
    }

    #[test]
    fn known_keys_and_values_pass() {
        assert_eq!(checked("tpu_trace_mode", text("TRACE_COMPUTE")), Ok(()));
        assert_eq!(
            checked("gpu_enable_nvtx_tracking", Value::BoolValue(true)),
            Ok(())
        );
        assert_eq!(
            checked("gpu_max_callback_api_events", Value::Int64Value(2 << 20)),
            Ok(())
        );
        assert_eq!(
            checked("tpu_power_trace_level", Value::Int64Value(2)),
            Ok(())
        );
        assert_eq!(checked("gpu_pm_sample_counters", text("a,b")), Ok(()));
        assert_eq!(
            checked("tpu_watched_sync_flag_number", text("1, 2")),
            Ok(())
        );
        assert_eq!(check(&BTreeMap::new()), Ok(()));
    }

    #[test]
    fn a_typo_names_the_nearest_key() {
        let said = checked("tpu_trace_mod", text("TRACE_COMPUTE")).unwrap_err();
        assert!(
            said.contains("\"tpu_trace_mod\"") && said.ends_with("did you mean tpu_trace_mode?"),
            "{said}"
        );
        let said = checked("gpu_max_callback_event", Value::Int64Value(1)).unwrap_err();
        assert!(said.contains("gpu_max_callback_api_events"), "{said}");
        let said = checked("x", Value::Int64Value(1)).unwrap_err();
        assert!(!said.contains("did you mean"), "{said}");
        let said = checked(&"long".repeat(100_000), Value::Int64Value(1)).unwrap_err();
        assert!(said.len() < 500, "{}", said.len());
    }

    #[test]
    fn a_wrong_value_says_what_is_right() {
        let said = checked("tpu_trace_mode", text("TRACE_COMPUT")).unwrap_err();
        assert!(said.ends_with("did you mean TRACE_COMPUTE?"), "{said}");
        let said = checked(
            "gpu_pm_sample_buffer_size_per_gpu_mb",
            Value::Int64Value(5_000),
        )
        .unwrap_err();
        assert!(said.contains("from 1 to 4096, not 5000"), "{said}");
        let said = checked("gpu_enable_nvtx_tracking", text("yes")).unwrap_err();
        assert!(said.contains("true or false, not \"yes\""), "{said}");
        assert!(checked("tpu_power_trace_level", Value::Int64Value(3)).is_err());
        assert!(checked("tpu_watched_sync_flag_mask", text("1,x")).is_err());
        let nothing = AdvancedConfigValue { value: None };
        assert!(check(&BTreeMap::from([("tpu_sc_dma".to_owned(), nothing)])).is_err());
    }

    #[test]
    fn values_have_the_types_of_their_keys() {
        let given = [
            ("gpu_enable_nvtx_tracking", Value::Int64Value(1)),
            ("gpu_max_callback_api_events", Value::Int64Value(1)),
            ("tpu_power_trace_level", text("POWER_TRACE_SPI")),
            ("tpu_sc_dma", Value::BoolValue(false)),
        ];
        let given = given.map(|(key, value)| {
            let value = AdvancedConfigValue { value: Some(value) };
            (key.to_owned(), value)
        });
        let found: Vec<OptionValue> = values(&BTreeMap::from(given))
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        let expected = [
            OptionValue::Bool(true),
            OptionValue::Int(1),
            OptionValue::Text("POWER_TRACE_SPI".to_owned()),
            OptionValue::Bool(false),
        ];
        assert_eq!(found, expected);
    }
}
