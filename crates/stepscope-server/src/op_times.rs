//! Measured times of the operations of compiled programs, kept for the next requests of the graph page.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use stepscope_analysis::ops::{OpGrouping, OpsQuery, Split, ops};
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::Run;
use stepscope_model::Cancelled;
use stepscope_store::{EventId, Trace};

use crate::run_cache::Cached;

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

/// The cached operation times of all runs.
#[derive(Default)]
pub(crate) struct OpTimesCache {
    times: Mutex<Vec<Cached<OpTimes>>>,
}

impl OpTimesCache {
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
        by: OpGrouping::Hlo,
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
