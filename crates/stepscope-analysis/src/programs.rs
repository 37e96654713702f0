//! The compiled programs (HLO modules) of a run: listed without reading them, and read one by one.

use std::collections::BTreeMap;
use std::fmt;

use stepscope_formats::hlo::{Module, module_header};
use stepscope_model::{Cancelled, Program as ProgramBytes};
use stepscope_store::Trace;

use crate::parallel::Cancel;

/// Name and number of a compiled program. Several programs of a run may share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramKey {
    /// Name, e.g. `jit_train_step`.
    pub name: Box<str>,
    /// Number by which events name it. On TPUs it takes all 64 bits: write it as text, never as a double.
    pub id: u64,
}

impl ProgramKey {
    fn new(serialized: &ProgramBytes<'_>) -> Option<Self> {
        let key = |name: &str, id| Self {
            name: name.into(),
            id,
        };
        match (serialized.name, serialized.id) {
            (Some(name), Some(id)) => Some(key(name, id)),
            (name, id) => {
                let header = module_header(serialized.bytes)?;
                let name = name.unwrap_or(&header.name);
                Some(key(name, id.unwrap_or(header.id)))
            }
        }
    }

    /// Returns whether a user's text names the program: its name, its number, or both as `name(number)`.
    pub fn is_named(&self, text: &str) -> bool {
        *self.name == *text || self.id.to_string() == text || self.to_string() == text
    }
}

impl fmt::Display for ProgramKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}({})", self.name, self.id)
    }
}

/// A compiled program of a run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name and number.
    pub key: ProgramKey,
    /// Its instructions and its memory plan.
    pub module: Module,
}

/// Lists the programs of a run by name and number, with the sizes of their messages in bytes. Reads no module.
///
/// Over several hosts the first host with a program wins.
pub fn list(trace: &Trace, cancel: &Cancel) -> Result<BTreeMap<ProgramKey, usize>, Cancelled> {
    let mut found = BTreeMap::new();
    visit(trace, cancel, |key, serialized| {
        found.entry(key).or_insert(serialized.bytes.len());
    })?;
    Ok(found)
}

/// Reads the programs of a run that `is_wanted` chooses, by name and number. What is not readable at all is
/// left out.
pub fn read(
    trace: &Trace,
    cancel: &Cancel,
    is_wanted: impl Fn(&ProgramKey) -> bool,
) -> Result<Vec<Program>, Cancelled> {
    let mut found: BTreeMap<ProgramKey, Module> = BTreeMap::new();
    visit(trace, cancel, |key, serialized| {
        if is_wanted(&key)
            && !found.contains_key(&key)
            && let Some(mut module) = Module::read(serialized.bytes)
        {
            module.name.clone_from(&key.name);
            found.insert(key, module);
        }
    })?;
    let programs = found
        .into_iter()
        .map(|(key, module)| Program { key, module });
    Ok(programs.collect())
}

fn visit(
    trace: &Trace,
    cancel: &Cancel,
    mut visit: impl FnMut(ProgramKey, &ProgramBytes<'_>),
) -> Result<(), Cancelled> {
    for file in 0..trace.files().len() {
        // A file that has changed since it was opened has no programs any more.
        let _ = trace.programs(file, &mut |serialized| {
            if cancel.check().is_ok()
                && let Some(key) = ProgramKey::new(serialized)
            {
                visit(key, serialized);
            }
        });
        cancel.check()?;
    }
    Ok(())
}
