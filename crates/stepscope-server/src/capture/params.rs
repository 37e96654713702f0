//! Parameters of a capture: every field is checked, and an unknown field is rejected by name.

use std::time::Duration;

use serde_json::{Map, Value};
use stepscope_remote::{CaptureRequest, Interval, OptionValue};

use super::address::shown;
use crate::problem::Problem;

/// Maximum number of programs in one capture.
const MAX_HOSTS: usize = 64;
/// Longest capture, ms.
pub(crate) const MAX_DURATION_MS: u64 = 3_600_000;
/// Longest wait before a capture begins, ms.
const MAX_DELAY_MS: u64 = 600_000;
const MAX_RETRIES: u64 = 20;
const MAX_OPTIONS: usize = 64;
const MAX_KEY_LEN: usize = 128;
const MAX_VALUE_LEN: usize = 4_096;

/// Addresses as written, and the client's options except resolved addresses and directory.
pub(crate) struct CaptureParams {
    pub(crate) urls: Vec<String>,
    pub(crate) duration: Duration,
    pub(crate) request: CaptureRequest,
}

/// Parses the body of `POST /capture`.
pub(crate) fn parse(body: &[u8]) -> Result<CaptureParams, Problem> {
    let fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request("body", error.to_string()))?;
    let mut urls = None;
    let mut duration_ms = 1_000;
    let mut request = CaptureRequest {
        device_tracer_level: 1,
        python_tracer_level: 0,
        retries: 1,
        ..CaptureRequest::default()
    };
    for (name, value) in &fields {
        match name.as_str() {
            "urls" => urls = Some(text_list(value)?),
            "duration_ms" => duration_ms = number(name, value, 1..=MAX_DURATION_MS)?,
            "host_level" => request.host_tracer_level = small(number(name, value, 0..=3)?),
            "device" => request.device_tracer_level = u32::from(flag(name, value)?),
            "python" => request.python_tracer_level = u32::from(flag(name, value)?),
            "retries" => request.retries = small(number(name, value, 0..=MAX_RETRIES)?),
            "delay_ms" => {
                request.delay = Duration::from_millis(number(name, value, 0..=MAX_DELAY_MS)?);
            }
            "options" => request.options = options(value)?,
            unknown => {
                let name = shown(unknown);
                let detail = format!(
                    "there is no field {name}; there are urls, duration_ms, host_level, device, \
                     python, retries, delay_ms and options"
                );
                return Err(Problem::bad_request(&name, detail));
            }
        }
    }
    let urls = urls.ok_or_else(|| Problem::bad_request("urls", "urls is missing"))?;
    let duration = Duration::from_millis(duration_ms);
    request.interval = Interval::For(duration);
    Ok(CaptureParams {
        urls,
        duration,
        request,
    })
}

fn text_list(value: &Value) -> Result<Vec<String>, Problem> {
    let wrong = || {
        let detail = format!("urls is a list of 1 to {MAX_HOSTS} addresses like localhost:9012");
        Problem::bad_request("urls", detail)
    };
    let items = value.as_array().ok_or_else(wrong)?;
    if items.is_empty() || items.len() > MAX_HOSTS {
        return Err(wrong());
    }
    let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(wrong);
    items.iter().map(text).collect()
}

fn number(
    name: &str,
    value: &Value,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, Problem> {
    let whole = value.as_u64().filter(|number| bounds.contains(number));
    whole.ok_or_else(|| {
        let (low, high) = (bounds.start(), bounds.end());
        Problem::bad_request(
            name,
            format!("{name} is a whole number from {low} to {high}"),
        )
    })
}

/// Converts a number whose bounds fit into 32 bits.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn flag(name: &str, value: &Value) -> Result<bool, Problem> {
    let flag = value.as_bool();
    flag.ok_or_else(|| Problem::bad_request(name, format!("{name} is true or false")))
}

fn options(value: &Value) -> Result<std::collections::BTreeMap<String, OptionValue>, Problem> {
    let wrong = |detail: String| Problem::bad_request("options", detail);
    let fields = value
        .as_object()
        .filter(|fields| fields.len() <= MAX_OPTIONS)
        .ok_or_else(|| {
            wrong(format!(
                "options is an object of at most {MAX_OPTIONS} keys"
            ))
        })?;
    let option = |(key, value): (&String, &Value)| {
        if key.is_empty() || key.len() > MAX_KEY_LEN {
            let detail = format!("keys of options have 1 to {MAX_KEY_LEN} characters");
            return Err(wrong(detail));
        }
        let value = match value {
            Value::Bool(flag) => Some(OptionValue::Bool(*flag)),
            Value::Number(number) => number.as_i64().map(OptionValue::Int),
            Value::String(text) if text.len() <= MAX_VALUE_LEN => {
                Some(OptionValue::Text(text.clone()))
            }
            _ => None,
        };
        let value = value.ok_or_else(|| {
            wrong(format!(
                "{} is a text of at most {MAX_VALUE_LEN} characters, a whole number, true or false",
                shown(key)
            ))
        })?;
        Ok((key.clone(), value))
    };
    fields.iter().map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parameters_have_defaults() {
        let wanted = parse(br#"{"urls":["localhost:9012"]}"#).ok().unwrap();
        assert_eq!(wanted.urls, ["localhost:9012"]);
        assert_eq!(wanted.duration, Duration::from_secs(1));
        assert_eq!(wanted.request.device_tracer_level, 1);
        assert_eq!(wanted.request.python_tracer_level, 0);
    }

    #[test]
    fn every_field_arrives() {
        let body = br#"{"urls":["a:1","b:2"],"duration_ms":250,"host_level":3,"device":false,
            "python":true,"retries":2,"delay_ms":40,"options":{"a":"b","c":true,"d":-7}}"#;
        let wanted = parse(body).ok().unwrap();
        let request = wanted.request;
        assert_eq!(wanted.urls.len(), 2);
        assert!(
            matches!(request.interval, Interval::For(time) if time == Duration::from_millis(250))
        );
        assert_eq!(
            (
                request.host_tracer_level,
                request.device_tracer_level,
                request.python_tracer_level,
                request.retries,
                request.delay
            ),
            (3, 0, 1, 2, Duration::from_millis(40))
        );
        assert!(matches!(&request.options["a"], OptionValue::Text(text) if text == "b"));
        assert!(matches!(request.options["c"], OptionValue::Bool(true)));
        assert!(matches!(request.options["d"], OptionValue::Int(-7)));
    }
}
