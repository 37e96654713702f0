//! Classifies slices of host threads by name, category and the slices around them: operators, labels,
//! input stages, compilations.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use stepscope_model::vocabulary::kineto::{Category, MODULE_CALL};
use stepscope_model::vocabulary::lightning;
use stepscope_model::{NameId, SliceKind, TrackId};
use stepscope_store::{Slices, Trace};

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

/// Bits of [`HostKinds`]: the slice fetches input.
pub(crate) const FETCHES_INPUT: u8 = 1;
/// The slice compiles.
pub(crate) const COMPILES: u8 = 2;

/// Kinds of host slices, computed once for most names.
pub(crate) struct HostKinds<'a> {
    trace: &'a Trace,
    /// By name: slices of one name mostly have one category, and follow each other on a track.
    known: Vec<Option<(TrackId, NameId, u8)>>,
}

impl<'a> HostKinds<'a> {
    /// Creates it without reading a slice.
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            known: vec![None; trace.name_count()],
        }
    }

    /// Returns the bits of slices of a track with this name and category.
    pub(crate) fn get(&mut self, track: TrackId, name: NameId, category: NameId) -> u8 {
        let found = self.known.get_mut(name.index());
        if let Some(Some((of_track, of_category, bits))) = found.as_deref()
            && (*of_track, *of_category) == (track, category)
        {
            return *bits;
        }
        let kind = self.trace.kind(track, name, category);
        let mut bits = 0;
        if is_input(kind, self.trace.name(name)) {
            bits |= FETCHES_INPUT;
        }
        if kind == SliceKind::Compile {
            bits |= COMPILES;
        }
        if let Some(found) = found {
            *found = Some((track, category, bits));
        }
        bits
    }
}

/// The slices of a trace that lie inside a compilation.
///
/// Each slice is visited once, and only if a question leads to it: a program that never ends its spans nests
/// them thousands deep, and a view of a few milliseconds asks about few slices of a long track.
pub struct Compilations<'a> {
    trace: &'a Trace,
    /// For each slice of a track, what is known of it: [`UNKNOWN`], [`OUTSIDE`] or [`INSIDE`].
    tracks: Vec<OnceLock<Box<[AtomicU8]>>>,
}

const UNKNOWN: u8 = 0;
const OUTSIDE: u8 = 1;
const INSIDE: u8 = 2;

impl<'a> Compilations<'a> {
    /// Creates the index of a trace without reading a track.
    pub fn new(trace: &'a Trace) -> Self {
        let tracks = trace.tracks().iter().map(|_| OnceLock::new());
        Self {
            trace,
            tracks: tracks.collect(),
        }
    }

    /// Returns whether a slice lies inside a compilation.
    pub fn contains(&self, track: TrackId, index: usize) -> bool {
        let Some(known) = self.tracks.get(track.index()) else {
            return false;
        };
        let slices = self.trace.slices(track);
        let known = known.get_or_init(|| {
            let unknown = || AtomicU8::new(UNKNOWN);
            std::iter::repeat_with(unknown).take(slices.len()).collect()
        });
        // Parents come before their children; a slice without a parent names a later one.
        let parent = |index: usize| {
            let parent = slices.parent[index] as usize;
            (parent < index).then_some(parent)
        };
        let mut at = index;
        let answer = loop {
            match known.get(at).map(|state| state.load(Ordering::Relaxed)) {
                Some(UNKNOWN) => {}
                Some(state) => break state,
                None => return false,
            }
            match parent(at) {
                None => break OUTSIDE,
                Some(around) if self.compiles(track, &slices, around) => break INSIDE,
                Some(around) => at = around,
            }
        };
        // Two threads that walk the same slices find and write the same answer.
        let mut written = Some(index);
        while let Some(slice) = written {
            known[slice].store(answer, Ordering::Relaxed);
            written = parent(slice).filter(|_| slice != at);
        }
        answer == INSIDE
    }

    fn compiles(&self, track: TrackId, slices: &Slices<'_>, index: usize) -> bool {
        let name = slices.name[index];
        let kind = self.trace.kind(track, name, slices.category.get(index));
        let name = self.trace.name(name);
        // XLA's phases on TPUs: `XLA::TPU Phase1PreLayoutAssignment`.
        kind == SliceKind::Compile || name.starts_with("XLA::") || name.ends_with(" passes")
    }
}

/// Returns whether a category is that of framework operators in torch's profiler, in all versions.
pub fn is_operator(category: &str) -> bool {
    Category::from_name(category) == Some(Category::Operator)
}

/// Returns the module that a slice is a call of: `Linear_0` of torch's tracer, `net.0` of Lightning's labels.
pub fn called_module(name: &str) -> Option<&str> {
    if let Some(call) = name.strip_prefix(MODULE_CALL) {
        return Some(call);
    }
    let label = name.strip_prefix(lightning::MODULE)?;
    Some(label.rsplit_once(": ").map_or(label, |(_, path)| path))
}

/// Returns whether a slice is a label of the program.
pub fn is_label(name: &str, category: &str, kind: SliceKind) -> bool {
    if name.starts_with(lightning::LABEL) || name.starts_with('$') {
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

#[cfg(test)]
mod tests {
    use stepscope_model::{Dur, EventSink, SliceIn, Time, TrackKind, TrackPatch};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    /// Slices of one thread, each inside the one before it.
    fn nested<'a>(names: impl IntoIterator<Item = &'a str>, count: i64) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        let track = sink.track("main");
        sink.describe(
            track,
            TrackPatch {
                kind: Some(TrackKind::Thread),
                ..TrackPatch::default()
            },
        );
        for (index, name) in (0..).zip(names) {
            let name = sink.name(name);
            let slice = SliceIn {
                start: Time::from_ps(index),
                dur: Dur::from_ps(2 * (count - index)),
                name,
                ..SliceIn::default()
            };
            sink.slice(track, slice);
        }
        builder.add(sink);
        builder.finish()
    }

    #[test]
    fn calls_of_modules_are_recognized_in_both_forms() {
        for (name, expected) in [
            ("nn.Module: Linear_3", Some("Linear_3")),
            (
                "[pl][module]torch.nn.modules.linear.Linear: net.0",
                Some("net.0"),
            ),
            ("[pl][module]net.0", Some("net.0")),
            ("aten::linear", None),
        ] {
            assert_eq!(called_module(name), expected, "{name}");
        }
    }

    #[test]
    fn all_descendants_of_a_compilation_are_inside() {
        let trace = nested(["train", "backend_compile", "fold", "simplify"], 4);
        let compilations = Compilations::new(&trace);
        let inside = [0, 1, 2, 3].map(|index| compilations.contains(TrackId(0), index));
        assert_eq!(inside, [false, false, true, true]);
    }

    #[test]
    fn spans_nested_thousands_deep_are_visited_once() {
        let trace = nested(std::iter::repeat_n("never ended", 200_000), 200_000);
        let compilations = Compilations::new(&trace);
        assert!(
            (0..200_000)
                .rev()
                .all(|index| !compilations.contains(TrackId(0), index))
        );
    }

    #[test]
    fn a_question_visits_only_the_slices_around() {
        let trace = nested(["train", "backend_compile", "fold", "simplify"], 4);
        let compilations = Compilations::new(&trace);
        assert!(compilations.contains(TrackId(0), 2));
        let known = compilations.tracks[0].get().unwrap();
        let states: Vec<u8> = known.iter().map(|s| s.load(Ordering::Relaxed)).collect();
        assert_eq!(states, [UNKNOWN, UNKNOWN, INSIDE, UNKNOWN]);
    }
}
