//! Compiled programs that the graph page has read, kept for its next requests.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use stepscope_analysis::ops::{By, OpsQuery, Split, ops};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs::{self, ProgramKey};
use stepscope_engine::Run;
use stepscope_formats::hlo::{InstructionAt, Module};
use stepscope_hlo::cost::Analysis;
use stepscope_hlo::graph::DataFlow;
use stepscope_hlo::memory::{MAIN_SPACE, Plan};
use stepscope_model::Cancelled;
use stepscope_store::{EventId, Trace};

use crate::run_cache::Cached;

/// Maximum number of cached programs of all runs.
const MAX_PROGRAMS: usize = 8;
/// Maximum number of runs whose operation times are cached.
const MAX_RUNS: usize = 8;

/// Measured time of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpTime {
    pub(crate) self_ps: i128,
    pub(crate) total_ps: i128,
    pub(crate) count: u64,
    /// The longest occurrence.
    pub(crate) longest: EventId,
}

/// Measured times of a run's operations: by program (`jit_step(8)`), then by name.
pub(crate) type OpTimes = FxHashMap<String, FxHashMap<String, OpTime>>;

/// A program with what its graph needs.
pub(crate) struct ParsedProgram {
    pub(crate) key: ProgramKey,
    pub(crate) module: Module,
    pub(crate) flow: DataFlow,
    pub(crate) costs: Analysis,
    /// Bytes alive at the peak of the default memory space, by the instruction that defines them.
    pub(crate) peak_bytes: FxHashMap<InstructionAt, u64>,
}

impl ParsedProgram {
    fn new(program: programs::Program) -> Self {
        let programs::Program { key, module } = program;
        let mut peak_bytes: FxHashMap<InstructionAt, u64> = FxHashMap::default();
        let spaces = Plan::new(&module).unwrap_or_default().spaces;
        for space in spaces.iter().filter(|space| space.number == MAIN_SPACE) {
            for alive in space.live.alive_at(space.live.peak_position) {
                if let Some(at) = alive.instruction {
                    let bytes = peak_bytes.entry(at).or_default();
                    *bytes = bytes.saturating_add(alive.bytes);
                }
            }
        }
        Self {
            flow: DataFlow::new(&module),
            costs: Analysis::new(&module),
            key,
            module,
            peak_bytes,
        }
    }
}

/// The cached programs and operation times of all runs.
#[derive(Default)]
pub(crate) struct ProgramCache {
    programs: Mutex<Vec<Cached<ParsedProgram>>>,
    times: Mutex<Vec<Cached<OpTimes>>>,
}

impl ProgramCache {
    /// Returns a program, read on first use; `None` if the run does not have it.
    pub(crate) fn program(
        &self,
        run: &Arc<Run>,
        key: &ProgramKey,
        cancel: &Cancel,
    ) -> Result<Option<Arc<ParsedProgram>>, Cancelled> {
        {
            let known = self.programs.lock();
            let known = known.unwrap_or_else(PoisonError::into_inner);
            let mut known = known.iter();
            if let Some(found) = known.find(|known| known.is_of(run) && known.value.key == *key) {
                return Ok(Some(Arc::clone(&found.value)));
            }
        }
        let read = programs::read(&run.trace, cancel, |known| known == key)?;
        let Some(program) = read.into_iter().next() else {
            return Ok(None);
        };
        let parsed = Arc::new(ParsedProgram::new(program));
        let known = self.programs.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        Cached::insert(&mut known, run, Arc::clone(&parsed), MAX_PROGRAMS);
        Ok(Some(parsed))
    }

    /// Returns the measured times of a run's compiled operations, computed on first use.
    pub(crate) fn times(&self, run: &Arc<Run>, cancel: &Cancel) -> Result<Arc<OpTimes>, Cancelled> {
        {
            let known = self.times.lock();
            let known = known.unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = known.iter().find(|known| known.is_of(run)) {
                return Ok(Arc::clone(&found.value));
            }
        }
        let times = Arc::new(op_times(&run.trace, cancel)?);
        let known = self.times.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        Cached::insert(&mut known, run, Arc::clone(&times), MAX_RUNS);
        Ok(times)
    }
}

fn op_times(trace: &Trace, cancel: &Cancel) -> Result<OpTimes, Cancelled> {
    let query = OpsQuery {
        by: By::Hlo,
        split: Split::None,
        range: None,
    };
    let mut found = OpTimes::default();
    for row in ops(trace, &query, cancel)?.rows {
        let Some(program) = row.program else {
            continue;
        };
        let time = found.entry(program).or_default().entry(row.name);
        let time = time.or_insert(OpTime {
            self_ps: 0,
            total_ps: 0,
            count: 0,
            longest: row.longest,
        });
        // A program that ran on several devices has a row for each.
        time.self_ps += row.self_ps;
        time.total_ps += row.total_ps;
        time.count += row.count;
    }
    Ok(found)
}
