//! Classifies slices of host threads by name, category and the slices around them: operators, labels,
//! input stages, compilations.

use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{SliceKind, TrackId};
use stepscope_store::Trace;

/// Returns whether a slice of a host thread fetches input.
pub fn is_input(kind: SliceKind, name: &str) -> bool {
    const ABOUT: [&str; 14] = [
        "data",
        "dataset",
        "load",
        "loader",
        "loading",
        "prep",
        "prepare",
        "preprocess",
        "preprocessing",
        "fetch",
        "input",
        "inputs",
        "collate",
        "augment",
    ];
    // Data sent to other ranks is no input: TorchRec's `all2all_data:wait`.
    const NOT: [&str; 11] = [
        "forward",
        "backward",
        "all2all",
        "alltoall",
        "dist",
        "checkpoint",
        "state",
        "model",
        "weights",
        "params",
        "module",
    ];
    // `next_batch`, but not `train_batch`.
    const GETS: [&str; 5] = ["next", "get", "read", "wait", "make"];
    // Most slices are of other kinds: check the kind first.
    let has_input_kind = kind == SliceKind::Input || is_loader_frame(name);
    if !(has_input_kind || kind == SliceKind::UserLabel) || is_compiler_pass(name) {
        return false;
    }
    if has_input_kind {
        return true;
    }
    if name.contains("::") {
        return false;
    }
    let words = || {
        name.split(|letter: char| !letter.is_ascii_alphanumeric())
            .map(str::to_ascii_lowercase)
    };
    let gets_batch = || {
        words().any(|word| word == "batch" || word == "batches")
            && words().any(|word| GETS.contains(&&*word))
    };
    let is_about = words().any(|word| ABOUT.contains(&&*word)) || gets_batch();
    is_about && !words().any(|word| NOT.contains(&&*word))
}

/// Returns whether a Python frame is torch's `DataLoader` as it fetches a batch: `$dataloader.py:727 __next__` by
/// our call tracing, `torch/utils/data/dataloader.py(727): __next__` by the profiler of torch.
fn is_loader_frame(name: &str) -> bool {
    let is_file =
        name.starts_with("$dataloader.py:") || name.starts_with("torch/utils/data/dataloader.py(");
    is_file && name.ends_with("__next__")
}

/// Returns whether this is the name of a compiler pass (`infeed-decomposer`,
/// `optimize_input_output_buffer_alias`): words in lower case, the last of which names a transformation of a
/// program.
fn is_compiler_pass(name: &str) -> bool {
    const DONE: [&str; 34] = [
        "alias",
        "assignment",
        "canonicalizer",
        "combiner",
        "conversion",
        "converter",
        "creator",
        "decomposer",
        "decomposition",
        "elimination",
        "expander",
        "flattener",
        "folding",
        "forwarding",
        "fusion",
        "hoisting",
        "inserter",
        "insertion",
        "legalization",
        "legalizer",
        "linearizer",
        "motion",
        "optimizer",
        "partitioner",
        "propagation",
        "remover",
        "rewriter",
        "scheduler",
        "simplifier",
        "sinking",
        "splitter",
        "unification",
        "upcaster",
        "verifier",
    ];
    // Words that occur only in names of compiler passes.
    const COMPILERS: [&str; 5] = ["hlo", "spmd", "gspmd", "offloading", "sharding"];
    if !name.contains(['-', '_']) || name.chars().any(|letter| letter.is_ascii_uppercase()) {
        return false;
    }
    let mut words = name.split(['-', '_']);
    let last = words.clone().next_back().unwrap_or(name);
    DONE.contains(&last) || words.any(|word| COMPILERS.contains(&word))
}

/// Returns whether a slice lies inside a compilation.
pub fn compiles(trace: &Trace, on: TrackId, index: usize) -> bool {
    let slices = trace.slices(on);
    let mut at = index;
    while let Some(above) = slices.parent.get(at).map(|above| *above as usize) {
        let Some(name) = slices.name.get(above) else {
            return false;
        };
        let kind = trace.kind(on, *name, slices.category.get(above));
        let name = trace.name(*name);
        // XLA's phases on TPUs: `XLA::TPU Phase1PreLayoutAssignment`.
        if kind == SliceKind::Compile || name.starts_with("XLA::") || name.ends_with(" passes") {
            return true;
        }
        at = above;
    }
    false
}

/// Returns whether a category is that of framework operators in torch's profiler, in all versions.
pub fn is_operator(category: &str) -> bool {
    Category::from_name(category) == Some(Category::Operator)
}

/// Returns whether a slice is a label of the program.
pub fn is_label(name: &str, category: &str, kind: SliceKind) -> bool {
    if name.starts_with("[pl]") || name.starts_with('$') {
        return false;
    }
    match Category::from_name(category) {
        Some(Category::Annotation) => return true,
        Some(Category::Operator) => return kind == SliceKind::UserLabel,
        _ => {}
    }
    let written_small = name.starts_with(|first: char| first.is_lowercase())
        && !name.contains(|letter: char| letter.is_uppercase())
        && !name.contains("::")
        && !name.starts_with("end: ");
    let labelled = matches!(
        kind,
        SliceKind::UserLabel | SliceKind::Input | SliceKind::Host | SliceKind::Collective
    );
    (category.is_empty() || category == "span") && written_small && labelled
}
