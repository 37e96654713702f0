//! The programs of `hlo/`: `cost_analysis()`, `memory_analysis()` and XProf's memory viewer.

mod gpu;
mod graph;

use std::collections::BTreeMap;

use serde_json::Value;
use stepscope_hlo::cost::{Analysis, InstructionWork, counts_by_parts, executions};
use stepscope_hlo::memory::{MAIN_SPACE, Plan};
use stepscope_test_data::{Corpus, corpus_tests};

use crate::support::{Program, json, programs};

const SETS: [&str; 4] = ["mlp_train", "convnet", "sharded8", "zoo"];

fn by_name<'a>(programs: &'a [Program], name: &str) -> Vec<&'a Program> {
    let named = |program: &&Program| &*program.module.name == name;
    programs.iter().filter(named).collect()
}

/// Every figure of `compiled.cost_analysis()`, to the bit. Programs of one name are told apart by their
/// figures: one of them has all of these.
fn costs_are_those_of_xla(corpus: &Corpus) {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for set in SETS {
        let programs = programs(&corpus.path(&format!("hlo/{set}")));
        let truth = json(&corpus.path(&format!("hlo/{set}.truth/programs.json")));
        for (function, truth) in truth.as_object().unwrap() {
            let expected: BTreeMap<String, f32> = truth["cost_analysis"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (key.clone(), value.as_f64().unwrap() as f32))
                .collect();
            let name = truth["module_name"].as_str().unwrap();
            let found: Vec<BTreeMap<String, f32>> = by_name(&programs, name)
                .into_iter()
                .map(|program| {
                    let total = Analysis::new(&program.module).total;
                    total.named().into_iter().collect()
                })
                .collect();
            compared += 1;
            if !found.contains(&expected) {
                wrong.push(difference(set, function, &expected, found.first()));
            }
        }
    }
    assert!(compared > 10, "{compared}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn difference(
    set: &str,
    function: &str,
    expected: &BTreeMap<String, f32>,
    found: Option<&BTreeMap<String, f32>>,
) -> String {
    let empty = BTreeMap::new();
    let found = found.unwrap_or(&empty);
    let keys: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let lines = keys
        .into_iter()
        .filter(|key| expected.get(*key) != found.get(*key))
        .map(|key| format!("  {key}: {:?}, not {:?}", found.get(key), expected.get(key)));
    format!(
        "{set} {function}:\n{}",
        lines.collect::<Vec<_>>().join("\n")
    )
}

corpus_tests!(costs_are_those_of_xla);

/// `compiled.memory_analysis()`.
fn sizes_are_those_of_xla(corpus: &Corpus) {
    let mut compared = 0;
    for set in SETS {
        let programs = programs(&corpus.path(&format!("hlo/{set}")));
        let truth = json(&corpus.path(&format!("hlo/{set}.truth/programs.json")));
        for (function, truth) in truth.as_object().unwrap() {
            let truth_of = |key: &str| truth["memory_analysis"][key].as_u64().unwrap();
            let expected = [
                truth_of("argument_size_in_bytes"),
                truth_of("output_size_in_bytes"),
                truth_of("alias_size_in_bytes"),
                truth_of("temp_size_in_bytes"),
            ];
            let name = truth["module_name"].as_str().unwrap();
            let found: Vec<[u64; 4]> = by_name(&programs, name)
                .into_iter()
                .map(|program| {
                    let plan = Plan::new(&program.module).unwrap();
                    let main = plan.spaces.iter().find(|space| space.number == MAIN_SPACE);
                    let sizes = main.unwrap().sizes;
                    [sizes.argument, sizes.output, sizes.alias, sizes.temp]
                })
                .collect();
            assert!(
                found.contains(&expected),
                "{set} {function}: {found:?}, not {expected:?}"
            );
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}

corpus_tests!(sizes_are_those_of_xla);

fn bytes_of(value: &Value) -> u64 {
    (value.as_f64().unwrap_or(0.0) * f64::from(1 << 20)).round() as u64
}

/// XProf's memory viewer: the curve, the peak, and what is alive then.
fn heaps_are_those_of_xprof(corpus: &Corpus) {
    let mut compared = 0;
    for set in SETS {
        let programs = programs(&corpus.path(&format!("hlo/{set}")));
        let truth = json(&corpus.path(&format!("hlo/{set}.truth/xprof/memory_viewer.json.gz")));
        compared += compare_heaps(&programs, &truth);
    }
    assert!(compared > 10, "{compared}");
}

fn compare_heaps(programs: &[Program], truth: &Value) -> usize {
    let mut compared = 0;
    for (key, truth) in truth.as_object().unwrap() {
        let (module, space) = key.split_once("|space").unwrap();
        let program = programs.iter().find(|program| program.key == module);
        let program = program.unwrap_or_else(|| panic!("{module} is missing"));
        let plan = Plan::new(&program.module).unwrap();
        let space: i64 = space.parse().unwrap();
        let space = plan.spaces.iter().find(|found| found.number == space);
        let list = |name: &str| -> Vec<u64> {
            let values = truth[name].as_array();
            values.into_iter().flatten().map(bytes_of).collect()
        };
        let Some(space) = space else {
            assert_eq!(bytes_of(&truth["peakHeapMib"]), 0, "{key}");
            continue;
        };
        let heap = &space.xprof;
        let whole = |points: &[u64]| -> Vec<u64> {
            points.iter().map(|bytes| bytes + heap.indefinite).collect()
        };
        assert_eq!(heap.peak(), bytes_of(&truth["peakHeapMib"]), "{key}");
        let unpadded = heap.unpadded_heap_peak + heap.indefinite;
        assert_eq!(unpadded, bytes_of(&truth["peakUnpaddedHeapMib"]), "{key}");
        if heap.has_trace {
            assert_eq!(whole(&heap.points), list("heapSizes"), "{key}");
            assert_eq!(
                whole(&heap.unpadded_points),
                list("unpaddedHeapSizes"),
                "{key}"
            );
        }
        let position = truth["peakHeapSizePosition"].as_u64().unwrap_or(0);
        assert_eq!(heap.peak_position as u64, position, "{key}");
        let spans: BTreeMap<String, (u64, u64)> = heap
            .spans
            .iter()
            .map(|(id, start, end)| (id.to_string(), (*start as u64, *end as u64)))
            .collect();
        let expected: BTreeMap<String, (u64, u64)> = truth["logicalBufferSpans"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(id, span)| {
                let number = |key: &str| span[key].as_u64().unwrap_or(0);
                (id.clone(), (number("start"), number("limit")))
            })
            .collect();
        assert_eq!(spans, expected, "{key}");
        assert!(
            space.live.peak <= heap.peak(),
            "{key}: {} > {}",
            space.live.peak,
            heap.peak()
        );
        compared += 1;
    }
    compared
}

corpus_tests!(heaps_are_those_of_xprof);

/// The figures of the instructions add up to those of the module, with loops once and as often as they run.
fn costs_add_up(corpus: &Corpus) {
    let mut modules = 0;
    for set in SETS {
        for program in programs(&corpus.path(&format!("hlo/{set}"))) {
            let module = &program.module;
            let analysis = Analysis::new(module);
            let executions = executions(module);
            let (mut once, mut with_loops, mut unknown) =
                (InstructionWork::default(), InstructionWork::default(), 0);
            for (instruction, cost) in module.instructions.iter().zip(&analysis.instructions) {
                let runs = executions[instruction.computation as usize];
                if counts_by_parts(&instruction.opcode) {
                    continue;
                }
                with_loops.flops += cost.with_loops.flops * runs.with_loops;
                with_loops.bytes += cost.with_loops.bytes * runs.with_loops;
                if cost.is_unknown {
                    unknown += runs.once;
                    continue;
                }
                once.flops += f64::from(cost.properties.flops) * runs.once as f64;
                once.bytes += f64::from(cost.properties.bytes) * runs.once as f64;
            }
            // XLA adds in f32, and -1 for a custom call.
            let near = |sum: f64, figure: f32| {
                let figure = f64::from(figure) + unknown as f64;
                (sum - figure).abs() <= figure.abs() * 1e-5
            };
            assert!(near(once.flops, analysis.total.flops), "{}", program.key);
            assert!(near(once.bytes, analysis.total.bytes), "{}", program.key);
            let near = |sum: f64, figure: f64| (sum - figure).abs() <= figure.abs() * 1e-9;
            assert!(
                near(with_loops.flops, analysis.with_loops.flops),
                "{}",
                program.key
            );
            assert!(
                near(with_loops.bytes, analysis.with_loops.bytes),
                "{}",
                program.key
            );
            modules += 1;
        }
    }
    assert!(modules > 40, "{modules}");
}

corpus_tests!(costs_add_up);

/// Programs of real devices, with several memory spaces, and of other compilers.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn heaps_of_real_devices_are_those_of_xprof() {
    let corpus = Corpus::collected();
    let answers = corpus.folder().join("../reference/xprof_hlo_ref");
    let mut compared = 0;
    for entry in std::fs::read_dir(&answers).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let (set, trace) = name.split_once('.').unwrap();
        let programs = programs(&corpus.folder().join(set).join(trace));
        let truth = json(&folder.join("memory_viewer.json.gz"));
        compared += compare_heaps(&programs, &truth);
    }
    assert!(compared > 50, "{compared}");
}

/// Each instruction, compared with a model of the same rules that somebody else wrote.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn costs_of_instructions_are_those_of_another_model() {
    let corpus = Corpus::collected();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for set in SETS {
        let programs = programs(&corpus.path(&format!("hlo/{set}")));
        let truth = json(&corpus.path(&format!("hlo/{set}.truth/costs.json.gz")));
        for (key, truth) in truth.as_object().unwrap() {
            let program = programs.iter().find(|program| program.key == *key).unwrap();
            let analysis = Analysis::new(&program.module);
            for (instruction, cost) in program
                .module
                .instructions
                .iter()
                .zip(analysis.instructions)
            {
                let Some(truth) = truth["instructions"].get(&*instruction.name) else {
                    continue;
                };
                let found = cost.properties;
                let found = [found.flops, found.transcendentals, found.bytes];
                let expected = ["flops", "transcendentals", "bytes"]
                    .map(|name| truth[name].as_f64().unwrap() as f32);
                compared += 1;
                if found != expected {
                    wrong.push(format!(
                        "{key} {}: {found:?}, not {expected:?}",
                        instruction.name
                    ));
                }
            }
        }
    }
    assert!(compared > 500, "{compared}");
    assert!(
        wrong.is_empty(),
        "{} of {compared}\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
