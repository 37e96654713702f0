//! Producers of a run, as its files tell.

use stepscope_model::vocabulary::producer::Producer;
use stepscope_store::{FactValue, Trace};

/// Returns whether this producer took part in a file of the run.
pub fn is_of(trace: &Trace, producer: Producer) -> bool {
    let mut facts = trace.files().iter().flat_map(|file| &file.facts);
    facts.any(|(key, value)| match value {
        FactValue::Text(name) => key == "kind" && name == producer.name(),
        FactValue::Bool(true) => Producer::from_fact(key) == Some(producer),
        _ => false,
    })
}
