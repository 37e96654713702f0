//! Producer of a run: the facts `kind` and `kind.…` of its files.

use stepscope_store::{FactValue, Trace};

/// Returns whether a file of the run is of this kind: `JAX`, `PyTorch`, `XLA`, `TensorFlow`, `NEURON`, `Rust`.
pub fn is_of(trace: &Trace, kind: &str) -> bool {
    let mut facts = trace.files().iter().flat_map(|file| &file.facts);
    facts.any(|(key, value)| {
        let named = key == "kind" && *value == FactValue::Text(kind.to_owned());
        named || (key.strip_prefix("kind.") == Some(kind) && *value == FactValue::Bool(true))
    })
}
