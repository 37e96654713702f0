//! The compiled programs (HLO modules) of a run: listed without reading them, and read one by one.
//!
//! Programs that were read are cached with the trace, up to [`MAX_CACHED_BYTES`], for its next reports and pages.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use stepscope_formats::hlo::{HeapEvent, Instruction, LogicalBuffer, Module, module_header};
use stepscope_hlo::cost::{Analysis, Cost, Rules};
use stepscope_hlo::graph::DataFlow;
use stepscope_hlo::memory::{Lifetime, Plan};
use stepscope_model::{Cancelled, Program as ProgramBytes};
use stepscope_store::Trace;

use crate::parallel::{self, Cancel};

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

/// Estimated memory that the cached programs of a trace take at most, bytes.
pub const MAX_CACHED_BYTES: usize = 256 << 20;

/// A compiled program of a run. What follows from the module is computed on first use.
#[derive(Debug)]
pub struct RunProgram {
    /// Its name and number.
    pub key: ProgramKey,
    /// Its instructions, and its memory plan as the file has it.
    pub module: Module,
    bytes: usize,
    plan: OnceLock<Option<Plan>>,
    base_costs: OnceLock<Analysis>,
    gpu_costs: OnceLock<Analysis>,
    flow: OnceLock<DataFlow>,
}

impl RunProgram {
    fn new(key: ProgramKey, mut module: Module, message_bytes: usize) -> Self {
        module.name.clone_from(&key.name);
        Self {
            bytes: message_bytes.saturating_add(memory_bytes(&module)),
            key,
            module,
            plan: OnceLock::new(),
            base_costs: OnceLock::new(),
            gpu_costs: OnceLock::new(),
            flow: OnceLock::new(),
        }
    }

    /// Returns the memory plan; `None` if the file has none.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.get_or_init(|| Plan::new(&self.module)).as_ref()
    }

    /// Returns the costs.
    pub fn costs(&self, rules: Rules) -> &Analysis {
        let costs = match rules {
            Rules::Base => &self.base_costs,
            Rules::Gpu => &self.gpu_costs,
        };
        costs.get_or_init(|| Analysis::with_rules(&self.module, rules))
    }

    /// Returns users and callers.
    pub fn flow(&self) -> &DataFlow {
        self.flow.get_or_init(|| DataFlow::new(&self.module))
    }

    /// Computes what a graph needs: the memory plan beside the base costs and the data flow.
    ///
    /// # Errors
    /// None of its own: those of [`parallel::both`].
    pub fn prepare_graph(&self) -> Result<(), Cancelled> {
        if self.plan.get().is_some() && self.base_costs.get().is_some() {
            return Ok(());
        }
        let costs_and_flow = || {
            self.costs(Rules::Base);
            self.flow();
            Ok(())
        };
        let plan = || {
            self.plan();
            Ok(())
        };
        parallel::both(costs_and_flow, plan).map(|_both| ())
    }
}

/// Estimates the memory of a module with its plan and its costs, bytes, without texts: they are in the message.
fn memory_bytes(module: &Module) -> usize {
    let instruction = size_of::<Instruction>() + 2 * size_of::<Cost>();
    let mut sum = module.instructions.len() * instruction;
    if let Some(plan) = &module.buffers {
        let events: usize = plan.traces.iter().map(|trace| trace.events.len()).sum();
        sum += plan.buffers.len() * (size_of::<LogicalBuffer>() + size_of::<Lifetime>());
        sum += events * 2 * size_of::<HeapEvent>();
    }
    sum
}

/// The programs of a trace that were read last, those of the newest request first.
#[derive(Default)]
struct ProgramCache {
    programs: Mutex<Vec<Arc<RunProgram>>>,
}

impl ProgramCache {
    fn get(&self) -> Vec<Arc<RunProgram>> {
        let programs = self.programs.lock();
        programs.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Caches the programs of a request, and those of earlier requests that still fit.
    fn insert(&self, requested: &[Arc<RunProgram>], most_bytes: usize) {
        let programs = self.programs.lock();
        let mut programs = programs.unwrap_or_else(PoisonError::into_inner);
        let is_requested =
            |known: &Arc<RunProgram>| requested.iter().any(|one| one.key == known.key);
        programs.retain(|known| !is_requested(known));
        programs.splice(..0, requested.iter().cloned());
        let mut sum = 0_usize;
        programs.retain(|known| {
            let with = sum.saturating_add(known.bytes);
            if with <= most_bytes {
                sum = with;
            }
            with <= most_bytes
        });
    }
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

/// Returns the programs of a run that `is_wanted` chooses, by name and number. What is not readable at all is
/// left out. Cached programs are not read again.
pub fn read(
    trace: &Trace,
    cancel: &Cancel,
    is_wanted: impl Fn(&ProgramKey) -> bool,
) -> Result<Vec<Arc<RunProgram>>, Cancelled> {
    let cache = trace.derived::<ProgramCache>();
    let known: BTreeMap<ProgramKey, Arc<RunProgram>> = cache
        .get()
        .into_iter()
        .map(|program| (program.key.clone(), program))
        .collect();
    let mut found: BTreeMap<ProgramKey, Arc<RunProgram>> = BTreeMap::new();
    visit(trace, cancel, |key, serialized| {
        if !is_wanted(&key) || found.contains_key(&key) {
            return;
        }
        let program = match known.get(&key) {
            Some(program) => Arc::clone(program),
            None => match Module::read(serialized.bytes) {
                Some(module) => {
                    let bytes = serialized.bytes.len();
                    Arc::new(RunProgram::new(key.clone(), module, bytes))
                }
                None => return,
            },
        };
        found.insert(key, program);
    })?;
    let programs: Vec<Arc<RunProgram>> = found.into_values().collect();
    cache.insert(&programs, MAX_CACHED_BYTES);
    Ok(programs)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn program(id: u64, bytes: usize) -> Arc<RunProgram> {
        let key = ProgramKey {
            name: "f".into(),
            id,
        };
        Arc::new(RunProgram::new(key, Module::default(), bytes))
    }

    #[test]
    fn programs_of_the_newest_requests_are_cached_up_to_a_bound() {
        let cache = ProgramCache::default();
        let ids = |cache: &ProgramCache| -> Vec<u64> {
            cache.get().iter().map(|program| program.key.id).collect()
        };
        cache.insert(&[program(1, 40), program(2, 40), program(3, 40)], 100);
        assert_eq!(ids(&cache), [1, 2]);
        let first = cache.get()[0].clone();
        cache.insert(&[first, program(4, 10)], 100);
        assert_eq!(ids(&cache), [1, 4, 2]);
        cache.insert(&[program(5, 90)], 100);
        assert_eq!(ids(&cache), [5, 4]);
        cache.insert(&[program(6, 101)], 100);
        assert_eq!(ids(&cache), [5, 4]);
    }
}
