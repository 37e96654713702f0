//! Names of slices that are collectives according to the compiled programs of a file.
//!
//! JAX names instructions after its own functions (`psum.3`, `ppermute`) and users name scopes, so the opcode
//! decides: `all-reduce` and similar ones, their `-start` and `-done` halves, and fusions and asynchronous calls
//! whose computation contains one.
//!
//! Cost: one pass over the instructions of files with programs, a second one where a computation other than the
//! entry contains a collective.

use rustc_hash::FxHashSet;
use stepscope_model::NameId;
use stepscope_model::vocabulary::xla::is_collective;
use stepscope_store::Trace;

use crate::hlo_text::name_and_opcode;

/// Returns the names of slices whose instruction is a collective in any program of the trace.
pub(super) fn collective_names(trace: &Trace) -> FxHashSet<NameId> {
    let mut names: FxHashSet<String> = FxHashSet::default();
    for (file, facts) in trace.files().iter().enumerate() {
        if !facts.modules.is_empty() {
            add_file_names(trace, file, &mut names);
        }
    }
    if names.is_empty() {
        return FxHashSet::default();
    }
    let found = trace.find_names(&mut |name| names.contains(name_and_opcode(name).0));
    found.into_iter().collect()
}

fn add_file_names(trace: &Trace, file: usize, names: &mut FxHashSet<String>) {
    let mut holders: FxHashSet<(String, Option<u64>, String)> = FxHashSet::default();
    // Instructions that were read before an error are valid.
    let _ = trace.instructions(file, &mut |instruction| {
        if !is_collective(instruction.opcode) {
            return;
        }
        names.insert(instruction.name.to_owned());
        if !instruction.entry {
            holders.insert((
                instruction.program.to_owned(),
                instruction.program_id,
                instruction.computation.to_owned(),
            ));
        }
    });
    if holders.is_empty() {
        return;
    }
    let _ = trace.instructions(file, &mut |instruction| {
        let runs_it = instruction.opcode == "fusion" || instruction.opcode.starts_with("async-");
        if runs_it && !instruction.calls.is_empty() {
            let called = (
                instruction.program.to_owned(),
                instruction.program_id,
                instruction.calls.to_owned(),
            );
            if holders.contains(&called) {
                names.insert(instruction.name.to_owned());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_of_collectives_and_their_halves() {
        for (opcode, expected) in [
            ("all-reduce", true),
            ("all-gather-start", true),
            ("collective-permute-done", true),
            ("ragged-all-to-all", true),
            ("reduce", false),
            ("copy-start", false),
            ("all-reduce-simplifier", false),
        ] {
            assert_eq!(is_collective(opcode), expected, "{opcode}");
        }
    }
}
