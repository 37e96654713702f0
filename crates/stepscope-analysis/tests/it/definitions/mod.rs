//! The equations of docs/reference/definitions.md, on every trace of the folder.
//!
//! Every run is opened once, in one pass that all tests here share; each test checks one section of the page. The
//! reference values are computed from the events in the simplest way (module [`plain`]), never by the code under
//! test.

#![allow(
    clippy::similar_names,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::needless_pass_by_value,
    reason = "traces have tracks; indexes fit; what is compared exactly was computed exactly, and is handed over to be compared"
)]

mod collectives;
mod compilations;
mod device;
mod figures;
mod findings;
mod idle;
mod input;
mod kernels;
mod memory;
mod mfu;
mod operations;
mod plain;
mod ranks;
mod steps;
mod torch;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use stepscope_analysis::device::Devices;
use stepscope_analysis::launch::Launches;
use stepscope_analysis::memory::Memory;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::run_profile::{AnalysisScope, RunProfile};
use stepscope_analysis::steps::ThreadRows;
use stepscope_model::TrackId;
use stepscope_report::reports::{self, Options};
use stepscope_store::Trace;
use stepscope_test_data::Corpus;

use stepscope_test_data::below;
use stepscope_test_data::files;
use stepscope_test_data::runs::open;

/// One run, and data that several sections share.
struct Case<'a> {
    /// Path of the run.
    context: String,
    trace: &'a Trace,
    run_profile: RunProfile<'a>,
    launches: Arc<Launches>,
    memory: Memory,
    cancel: Cancel,
}

impl<'a> Case<'a> {
    fn new(context: String, trace: &'a Trace) -> Self {
        let cancel = Cancel::default();
        let run_profile = RunProfile::compute(trace, &AnalysisScope::default(), &cancel).unwrap();
        let launches = Launches::from_trace(trace, &run_profile.devices, &cancel).unwrap();
        let memory = Memory::read(trace, &cancel).unwrap();
        Self {
            context,
            trace,
            run_profile,
            launches,
            memory,
            cancel,
        }
    }

    /// Lists the rows of the thread of a row, that row first.
    fn same_thread(&self, track: TrackId) -> Vec<TrackId> {
        ThreadRows::new(self.trace).rows_of(track).collect()
    }

    fn devices(&self) -> &Devices<'a> {
        &self.run_profile.devices
    }

    /// Returns a report as users get it.
    fn report(&self, kind: &str, by: Option<&str>) -> serde_json::Value {
        let options = Options {
            by: by.map(str::to_owned),
            top: usize::MAX,
            ..Options::default()
        };
        let report = reports::make(self.trace, kind, &options, &self.cancel).unwrap();
        serde_json::to_value(&report).unwrap()
    }
}

/// Results of one section.
#[derive(Debug, Default)]
struct Found {
    /// Number of checks of each rule.
    checked: BTreeMap<&'static str, u64>,
    /// Number of failures of each rule, and the first of them.
    wrong: BTreeMap<&'static str, (u64, Vec<String>)>,
}

/// Maximum number of failures listed per rule.
const MAX_EXAMPLES: usize = 5;

impl Found {
    fn holds(&mut self, rule: &'static str, holds: bool, context: impl FnOnce() -> String) {
        *self.checked.entry(rule).or_default() += 1;
        if !holds {
            let (count, examples) = self.wrong.entry(rule).or_default();
            *count += 1;
            if examples.len() < MAX_EXAMPLES {
                examples.push(context());
            }
        }
    }

    fn same<T: PartialEq + Debug>(
        &mut self,
        rule: &'static str,
        ours: T,
        plain: T,
        context: impl FnOnce() -> String,
    ) {
        let holds = ours == plain;
        self.holds(rule, holds, || {
            format!("{}: {ours:?}, plainly {plain:?}", context())
        });
    }

    /// Compares two numbers that were rounded differently.
    fn near(
        &mut self,
        rule: &'static str,
        ours: f64,
        plain: f64,
        context: impl FnOnce() -> String,
    ) {
        let holds = (ours - plain).abs() <= 1e-6 * ours.abs().max(plain.abs()).max(1e-3);
        self.holds(rule, holds, || {
            format!("{}: {ours}, plainly {plain}", context())
        });
    }

    fn near_all<const N: usize>(
        &mut self,
        rule: &'static str,
        ours: [Option<f64>; N],
        plain: [Option<f64>; N],
        context: impl Fn() -> String,
    ) {
        for (index, (ours, plain)) in ours.into_iter().zip(plain).enumerate() {
            match (ours, plain) {
                (Some(ours), Some(plain)) => {
                    self.near(rule, ours, plain, || format!("{} [{index}]", context()));
                }
                (ours, plain) => {
                    self.same(rule, ours, plain, || format!("{} [{index}]", context()));
                }
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (rule, count) in other.checked {
            *self.checked.entry(rule).or_default() += count;
        }
        for (rule, (count, examples)) in other.wrong {
            let (sum, all) = self.wrong.entry(rule).or_default();
            *sum += count;
            all.extend(examples);
            all.truncate(MAX_EXAMPLES);
        }
    }
}

type Section = (&'static str, fn(&Case<'_>, &mut Found));

const SECTIONS: &[Section] = &[
    ("steps", steps::check),
    ("operations", operations::check),
    ("input", input::check),
    ("findings", findings::check),
    ("compilations", compilations::check),
    ("torch", torch::check),
    ("memory", memory::check),
    ("device", device::check),
    ("kernels", kernels::check),
    ("idle", idle::check),
    ("collectives", collectives::check),
    ("ranks", ranks::check),
    ("mfu", mfu::check),
    ("figures", figures::check),
];

/// Lists every file of the folder, and the folders whose files are one run.
fn runs(folder: &Path) -> Vec<PathBuf> {
    let mut paths = files(folder);
    paths.extend(below(folder, |path| {
        let ranks = path
            .parent()
            .is_some_and(|above| above.ends_with("torch_multirank"))
            && path.extension().is_none();
        let spaces = || {
            let entries = std::fs::read_dir(path).unwrap().flatten();
            entries
                .filter(|entry| entry.path().to_string_lossy().ends_with(".xplane.pb"))
                .count()
        };
        path.is_dir() && !path.ends_with("broken") && (ranks || spaces() > 1)
    }));
    // Large ones first, so that no thread is left with one at the end.
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |facts| facts.len());
    paths.sort_by_key(|path| std::cmp::Reverse(size(path)));
    paths
}

/// Rules that no committed trace reaches.
const COLLECTED_ONLY: &[&str] = &[
    "rows are of work",
    "capacity = in use + available + stack",
    "rates require counts",
    "there are outliers",
    "derived: three or more",
    "derived: runs of a program",
    "derived: the most time",
    "derived: do not nest",
    "derived: half of their time",
    "derived: even distances",
    "derived: outermost four levels",
    "derived: a tenth of the run or half of the devices' work",
];

/// The runs to check. The committed traces are from CPUs; those of the programs with known causes have
/// the shapes of GPUs, TPUs and Neuron devices.
fn paths_of(corpus: &Corpus) -> Vec<PathBuf> {
    let mut paths = runs(corpus.folder());
    if corpus.either(true, false) {
        paths.extend(runs(&corpus.path("../known_causes")));
    }
    paths
}

/// Checks all runs of a corpus, once for all tests.
fn walked(corpus: &Corpus) -> &'static BTreeMap<&'static str, Found> {
    static COMMITTED: OnceLock<BTreeMap<&'static str, Found>> = OnceLock::new();
    static COLLECTED: OnceLock<BTreeMap<&'static str, Found>> = OnceLock::new();
    let walk = || {
        let folder = corpus.folder();
        let paths = paths_of(corpus);
        let (next, all) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || {
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                for run in open(path) {
                    let context = path.strip_prefix(folder).unwrap_or(path);
                    let case = Case::new(context.display().to_string(), &run.trace);
                    for (name, check) in SECTIONS {
                        let mut found = Found::default();
                        check(&case, &mut found);
                        let mut all = all.lock().unwrap();
                        let all: &mut BTreeMap<&str, Found> = &mut all;
                        all.entry(*name).or_default().merge(found);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        all.into_inner().unwrap()
    };
    corpus.either(&COMMITTED, &COLLECTED).get_or_init(walk)
}

/// Fails with the violated rules of a section, and with the rules that were hardly checked.
fn judge(corpus: &Corpus, section: &str, rules: &[(&'static str, u64)]) {
    let found = &walked(corpus)[section];
    let wrong: Vec<String> = found
        .wrong
        .iter()
        .map(|(rule, (count, examples))| {
            let all = found.checked[rule];
            format!(
                "{rule}: {count} of {all} do not hold\n  {}",
                examples.join("\n  ")
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let hardly: Vec<String> = rules
        .iter()
        .filter_map(|(rule, least)| {
            let least = corpus.either(u64::from(!COLLECTED_ONLY.contains(rule)), *least);
            let count = found.checked.get(rule).copied().unwrap_or(0);
            (count < least).then(|| format!("{rule}: checked {count} times only"))
        })
        .collect();
    assert!(hardly.is_empty(), "{}", hardly.join("\n"));
    for rule in found.checked.keys() {
        assert!(
            rules.iter().any(|(known, _)| known == rule),
            "nothing says how often {rule:?} is to be checked"
        );
    }
}
