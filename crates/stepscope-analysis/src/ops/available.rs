//! Available classes of operations of a trace, and the properties that can split their rows.

use rustc_hash::FxHashSet;
use stepscope_model::{Cancelled, NameId};
use stepscope_store::Trace;

use super::class::{self, Verdict};
use super::{OpGrouping, OpsQuery, Split, compute_rows, hlo, likely};
use crate::parallel::Cancel;

/// Available queries of the operations of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// Classes with at least one operation.
    pub classes: Vec<OpGrouping>,
    /// Whether operations of the default class have shapes.
    pub shapes: bool,
    /// Whether operations of the default class have stacks.
    pub stacks: bool,
}

/// Searches for operations of every class.
///
/// Cost: one pass over the names of the slices; where a name is not sufficient, the class is collected.
pub fn available(trace: &Trace, cancel: &Cancel) -> Result<Available, Cancelled> {
    let verdicts = verdicts(trace, cancel)?;
    let mut found = Available::default();
    for (by, verdict) in OpGrouping::ALL.into_iter().zip(verdicts) {
        let has = match verdict {
            Verdict::No => false,
            Verdict::Yes => true,
            Verdict::IfHlo | Verdict::IfLong | Verdict::OutsideCompiler => {
                !rows(trace, by, Split::None, cancel)?.is_empty()
            }
        };
        if has {
            found.classes.push(by);
        }
    }
    let first = likely(trace)
        .into_iter()
        .find(|by| found.classes.contains(by));
    if let Some(by) = first {
        found.shapes = rows(trace, by, Split::Shapes, cancel)?
            .iter()
            .any(|row| row.shapes.is_some());
        found.stacks = rows(trace, by, Split::Stack, cancel)?
            .iter()
            .any(|row| !row.stack.is_empty());
    }
    Ok(found)
}

fn rows(
    trace: &Trace,
    by: OpGrouping,
    split: Split,
    cancel: &Cancel,
) -> Result<Vec<super::OpRow>, Cancelled> {
    let query = OpsQuery {
        by,
        split,
        range: None,
    };
    let catalogue = if by.is_compiled() {
        hlo::Catalogue::from_trace(trace)
    } else {
        hlo::Catalogue::default()
    };
    Ok(compute_rows(trace, &query, &catalogue, cancel)?.rows)
}

/// Returns the most favourable verdict of each class over all slices.
fn verdicts(trace: &Trace, cancel: &Cancel) -> Result<[Verdict; OpGrouping::ALL.len()], Cancelled> {
    let mut found = [Verdict::No; OpGrouping::ALL.len()];
    for track in trace.tracks() {
        let open: Vec<usize> = (0..OpGrouping::ALL.len())
            .filter(|&at| found[at] != Verdict::Yes && class::can_hold(OpGrouping::ALL[at], track))
            .collect();
        if open.is_empty() {
            continue;
        }
        let slices = trace.slices(track.id);
        let mut seen: FxHashSet<(NameId, NameId)> = FxHashSet::default();
        for (index, &name) in slices.name.iter().enumerate() {
            if index % (1 << 16) == 0 {
                cancel.check()?;
            }
            let category = slices.category.get(index);
            if !seen.insert((name, category)) {
                continue;
            }
            let kind = trace.kind(track.id, name, category);
            let (name, category) = (trace.name(name), trace.name(category));
            for &at in &open {
                let verdict = match class::verdict(OpGrouping::ALL[at], track, name, category, kind)
                {
                    // Programs of other frameworks may use the same names as labels.
                    Verdict::Yes
                        if OpGrouping::ALL[at] == OpGrouping::Action
                            && !class::action(name).is_some_and(class::is_lightnings) =>
                    {
                        Verdict::No
                    }
                    verdict => verdict,
                };
                if verdict == Verdict::Yes || found[at] == Verdict::No {
                    found[at] = verdict;
                }
            }
        }
    }
    Ok(found)
}
