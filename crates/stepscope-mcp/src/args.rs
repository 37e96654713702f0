//! Arguments of tools: their schema, and checked values.

use serde_json::{Map, Value, json};

use crate::error::ToolError;

/// A JSON object, as the protocol passes arguments.
pub(crate) type Object = Map<String, Value>;

/// An argument of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) values: Values,
    pub(crate) is_required: bool,
    /// What it means, for the model.
    pub(crate) meaning: &'static str,
}

/// The valid values of an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// A text of at most so many bytes.
    Text(usize),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number within bounds.
    Whole(u64, u64),
    /// A number from 0.
    Number,
    /// Texts of at most so many bytes each.
    Texts(usize),
}

/// Maximum number of texts of a list.
const MAX_TEXTS: usize = 100;

impl Argument {
    pub(crate) const fn new(name: &'static str, values: Values, meaning: &'static str) -> Self {
        Self {
            name,
            values,
            is_required: false,
            meaning,
        }
    }

    pub(crate) const fn required(
        name: &'static str,
        values: Values,
        meaning: &'static str,
    ) -> Self {
        Self {
            is_required: true,
            ..Self::new(name, values, meaning)
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.values {
            Values::Text(longest) => json!({"type": "string", "maxLength": longest}),
            Values::Words(words) => json!({"type": "string", "enum": words}),
            Values::Whole(low, high) => {
                json!({"type": "integer", "minimum": low, "maximum": high})
            }
            Values::Number => json!({"type": "number", "minimum": 0}),
            Values::Texts(longest) => json!({
                "type": "array",
                "items": {"type": "string", "maxLength": longest},
                "maxItems": MAX_TEXTS,
            }),
        };
        schema["description"] = self.meaning.into();
        schema
    }

    /// Returns the value if it is valid, else which values are.
    fn check(&self, value: &Value) -> Result<Value, String> {
        let is_short = |text: &str, longest: usize| text.len() <= longest;
        match self.values {
            Values::Text(longest) => match value {
                Value::String(text) if is_short(text, longest) => Ok(value.clone()),
                // Models pass ids as numbers.
                Value::Number(number) => Ok(number.to_string().into()),
                _ => Err(format!("a text of at most {longest} bytes")),
            },
            Values::Words(words) => match value.as_str() {
                Some(word) if words.contains(&word) => Ok(value.clone()),
                _ => Err(format!("one of {}", words.join(", "))),
            },
            Values::Whole(low, high) => match whole(value) {
                Some(number) if (low..=high).contains(&number) => Ok(number.into()),
                _ => Err(format!("a whole number from {low} to {high}")),
            },
            Values::Number => match number(value) {
                Some(number) if number >= 0.0 => Ok(number.into()),
                _ => Err("a number from 0".to_owned()),
            },
            Values::Texts(longest) => {
                let texts = match value {
                    Value::Array(texts) => texts.clone(),
                    one => vec![one.clone()],
                };
                let is_text =
                    |text: &Value| text.as_str().is_some_and(|text| is_short(text, longest));
                if texts.len() <= MAX_TEXTS && texts.iter().all(is_text) {
                    Ok(texts.into())
                } else {
                    Err(format!(
                        "a list of at most {MAX_TEXTS} texts of at most {longest} bytes"
                    ))
                }
            }
        }
    }
}

/// Returns a whole number; models write `20`, `20.0` and `"20"`.
fn whole(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let number = number(value)?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "whole numbers only; a float saturates at the ends of u64"
    )]
    let whole = number as u64;
    (number >= 0.0 && number.fract() == 0.0).then_some(whole)
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite())
}

/// Returns the JSON schema of arguments.
pub(crate) fn schema<'a>(arguments: impl Iterator<Item = &'a Argument> + Clone) -> Object {
    let properties: Object = arguments
        .clone()
        .map(|argument| (argument.name.to_owned(), argument.schema()))
        .collect();
    let required: Vec<&str> = arguments
        .filter(|argument| argument.is_required)
        .map(|argument| argument.name)
        .collect();
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    match schema {
        Value::Object(schema) => schema,
        _ => Object::new(),
    }
}

/// Arguments of a call that fit the schema of its tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args(Object);

impl Args {
    /// Checks the arguments of a call. A null counts as absent.
    pub(crate) fn check<'a>(
        tool: &str,
        given: &Object,
        arguments: impl Iterator<Item = &'a Argument> + Clone,
    ) -> Result<Self, ToolError> {
        let mut checked = Object::new();
        for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let Some(argument) = arguments.clone().find(|argument| argument.name == name) else {
                let known: Vec<&str> = arguments.clone().map(|argument| argument.name).collect();
                let all = format!("'{tool}' takes {}", known.join(", "));
                return Err(ToolError::unknown("argument", name, known, &all));
            };
            let value = argument.check(value).map_err(|valid| {
                ToolError::new(
                    format!("cannot call '{tool}': the value of '{name}' is not valid"),
                    format!("'{name}' is {valid}"),
                )
            })?;
            checked.insert(name.clone(), value);
        }
        let missing = arguments
            .filter(|argument| argument.is_required)
            .find(|argument| !checked.contains_key(argument.name));
        match missing {
            Some(missing) => Err(ToolError::new(
                format!("cannot call '{tool}': '{}' is missing", missing.name),
                format!("'{}' is: {}", missing.name, missing.meaning),
            )),
            None => Ok(Self(checked)),
        }
    }

    /// Returns a text; an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name)?.as_str()?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns a whole number.
    pub(crate) fn whole(&self, name: &str) -> Option<usize> {
        usize::try_from(self.0.get(name)?.as_u64()?).ok()
    }

    /// Returns a number.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// Returns the texts of a list; none if it is absent.
    pub(crate) fn text_list(&self, name: &str) -> Vec<String> {
        let texts = self.0.get(name).and_then(Value::as_array);
        let texts = texts.into_iter().flatten();
        texts
            .filter_map(|text| Some(text.as_str()?.to_owned()))
            .collect()
    }

    /// Returns all of them with one replaced: the call that continues this one.
    pub(crate) fn with(&self, name: &str, value: Value) -> Object {
        let mut arguments = self.0.clone();
        arguments.insert(name.to_owned(), value);
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUMENTS: &[Argument] = &[
        Argument::required("run", Values::Text(20), "id of a run"),
        Argument::new("top", Values::Whole(1, 100), "rows"),
        Argument::new("from_ns", Values::Number, "start"),
        Argument::new("order", Values::Words(&["start", "longest"]), "order"),
        Argument::new("runs", Values::Texts(5), "ids"),
    ];

    fn check(given: Value) -> Result<Args, String> {
        let Value::Object(given) = given else {
            panic!("an object");
        };
        Args::check("t", &given, ARGUMENTS.iter()).map_err(|error| error.text())
    }

    #[test]
    fn numbers_are_read_as_models_write_them() {
        for value in [json!(20), json!(20.0), json!("20")] {
            let args = check(json!({"run": "a", "top": value, "from_ns": "1.5"})).unwrap();
            assert_eq!(
                (args.whole("top"), args.number("from_ns")),
                (Some(20), Some(1.5))
            );
        }
        let args = check(json!({"run": 7, "runs": "a", "top": null})).unwrap();
        assert_eq!((args.text("run"), args.whole("top")), (Some("7"), None));
        assert_eq!(args.text_list("runs"), ["a"]);
        assert_eq!(args.with("top", json!(3))["top"], 3);
    }

    #[test]
    fn wrong_values_say_which_are_valid() {
        for (given, expected) in [
            (json!({}), "'run' is missing\nhelp: 'run' is: id of a run"),
            (
                json!({"run": "a", "top": 0}),
                "'top' is a whole number from 1 to 100",
            ),
            (
                json!({"run": "a", "top": 1.5}),
                "'top' is a whole number from 1 to 100",
            ),
            (
                json!({"run": "a", "from_ns": -1}),
                "'from_ns' is a number from 0",
            ),
            (
                json!({"run": "a", "order": "x"}),
                "'order' is one of start, longest",
            ),
            (
                json!({"run": "a", "runs": ["123456"]}),
                "texts of at most 5 bytes",
            ),
            (json!({"run": "x".repeat(21)}), "a text of at most 20 bytes"),
            (
                json!({"run": "a", "tops": 1}),
                "did you mean 'top'? 't' takes run, top",
            ),
        ] {
            let error = check(given).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_schema_lists_required_arguments_and_bounds() {
        let schema = schema(ARGUMENTS.iter());
        assert_eq!(schema["required"], json!(["run"]));
        assert_eq!(schema["properties"]["top"]["maximum"], 100);
        assert_eq!(schema["additionalProperties"], false);
    }
}
