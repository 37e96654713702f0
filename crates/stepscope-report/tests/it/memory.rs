//! Memory, compared with the figures of torch and XProf for the same files.

use std::collections::BTreeMap;
use stepscope_test_data::Corpus;

use serde_json::Value;
use stepscope_analysis::memory::fragmentation::fragmentation;
use stepscope_analysis::memory::{Memory, Record};
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::Run;
use stepscope_model::Time;
use stepscope_report::report::Cell;
use stepscope_report::reports::{self, Options};

use stepscope_test_data::below;
use stepscope_test_data::runs::{figures, open};

fn memory(run: &Run) -> Memory {
    Memory::read(&run.trace, &Cancel::default()).unwrap()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn curve_equals_the_memory_timeline_of_torch() {
    let corpus = Corpus::collected();
    let traces = corpus.folder();
    let run = open(&traces.join("torch_cpu/cpu_memstack.pt.trace.json.gz")).remove(0);
    let memory = memory(&run);
    assert_eq!(memory.allocators.len(), 1);
    let cpu = &memory.allocators[0];
    assert!(cpu.absolute && cpu.addressed);
    let truth = figures(&traces.join("torch_cpu/cpu_memstack.truth/memory_timeline.json"));
    let sums: Vec<i64> = truth[1]
        .as_array()
        .unwrap()
        .iter()
        .map(|sizes| {
            sizes
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_i64)
                .sum()
        })
        .collect();
    // The model's memory exists before the first allocation.
    let before = sums[0];
    let usage = memory.usage(cpu, None).unwrap();
    assert_eq!(usage.peak + before, *sums.iter().max().unwrap());
    // Each new maximum of the allocator equals one of torch's, and so does nearly every level: torch counts a
    // tensor as freed slightly before or after its memory is.
    let (mut highest, mut same, mut all) = (0, 0, 0);
    for record in memory.records_of(cpu) {
        let known = sums.contains(&(record.in_use + before));
        assert!(known || record.in_use <= highest, "{record:?}");
        highest = highest.max(record.in_use);
        same += usize::from(known);
        all += 1;
    }
    assert!(same * 20 > all * 19, "{same} of {all}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn memory_peaks_equal_xprof() {
    let corpus = Corpus::collected();
    let traces = corpus.folder();
    let (mut compared, mut recorded) = (0, 0);
    let truths = below(&traces.join("xplane_real"), |path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("xprof_memory_profile.json"))
    });
    for truth in truths {
        let logs = truth.parent().unwrap().with_extension("");
        let memory = memory(&open(&logs).remove(0));
        let truth = figures(&truth);
        for (name, reference) in truth["memoryProfilePerAllocator"].as_object().unwrap() {
            let ours = memory
                .allocators
                .iter()
                .find(|ours| ours.name == *name || ours.name == format!("device {name}"))
                .unwrap_or_else(|| panic!("{}: no allocator {name}", logs.display()));
            let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
            let usage = memory.usage(ours, None).unwrap();
            let summary = &reference["profileSummary"];
            let context = format!("{} {name}", logs.display());
            let peak = number(&summary["peakStats"]["peakBytesInUse"]);
            assert_eq!(usage.peak, peak, "{context}: peak");
            let lifetime = number(&summary["peakBytesUsageLifetime"]);
            // XProf's may lie below its own peak (GPU_4_bfc of the V100 run): it is that of one record, ours is
            // the highest of all.
            if lifetime >= peak {
                assert_eq!(ours.lifetime_peak, Some(lifetime), "{context}: own mark");
            } else {
                assert!(ours.lifetime_peak >= Some(lifetime), "{context}: own mark");
            }
            let capacity = number(&summary["memoryCapacity"]);
            assert_eq!(ours.capacity, Some(capacity), "{context}: capacity");
            compared += 1;
            // The fraction of the free memory outside its largest block: XProf prints six digits.
            let same = |ours: f64, reference: f64| (ours - reference).abs() <= reference * 1e-5;
            let snapshots = reference["memoryProfileSnapshots"].as_array().unwrap();
            let mut most: f64 = 0.0;
            for snapshot in snapshots {
                let stats = &snapshot["aggregationStats"];
                let part = stats["fragmentation"].as_f64().unwrap();
                let in_use = number(&stats["heapAllocatedBytes"]);
                let label = |record: &Record| {
                    let part_of_ours = record.fragmentation.map(f64::from);
                    record.in_use == in_use && part_of_ours.is_some_and(|ours| same(ours, part))
                };
                assert!(memory.records_of(ours).any(label), "{context}: {stats}");
                most = most.max(part);
            }
            // XProf's list leaves out some records.
            let parts = memory
                .records_of(ours)
                .filter_map(|record| record.fragmentation);
            let highest = parts.fold(0.0, f32::max);
            let at = memory
                .allocators
                .iter()
                .position(|one| std::ptr::eq(one, ours));
            let found = fragmentation(&memory, at.unwrap(), ours, None).recorded;
            let of_ours = found.map_or(0.0, |found| found.most);
            assert!(
                same(of_ours, f64::from(highest)) && of_ours >= most * 0.99999,
                "{context}"
            );
            recorded += usize::from(most > 0.0);
        }
    }
    assert!(compared >= 15 && recorded >= 5, "{compared} {recorded}");
}

/// Records of torch for a `DataLoader` with workers: the memory it maps from them is not in `Total Allocated`.
const WORKERS: &str = r#"{"schemaVersion":1,"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":1,"ts":0,"dur":50},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":50,"dur":50},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":10,"args":{"Device Type":0,"Device Id":-1,"Addr":1,"Bytes":4096,"Total Allocated":4096,"Total Reserved":0}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":20,"args":{"Device Type":0,"Device Id":-1,"Addr":2,"Bytes":64,"Total Allocated":0,"Total Reserved":64}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":60,"args":{"Device Type":0,"Device Id":-1,"Addr":3,"Bytes":512,"Total Allocated":4608,"Total Reserved":0}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":70,"args":{"Device Type":0,"Device Id":-1,"Addr":2,"Bytes":-64,"Total Allocated":0,"Total Reserved":0}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":80,"args":{"Device Type":0,"Device Id":-1,"Addr":3,"Bytes":-512,"Total Allocated":4096,"Total Reserved":0}}
]}"#;

#[test]
fn worker_batches_have_their_own_allocator_and_lists_cover_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("workers.pt.trace.json");
    std::fs::write(&path, WORKERS).unwrap();
    let run = open(&path).remove(0);
    let memory = memory(&run);
    let curve: Vec<(&str, Vec<i64>)> = memory
        .allocators
        .iter()
        .map(|allocator| {
            let in_use = memory.records_of(allocator).map(|record| record.in_use);
            (allocator.name.as_str(), in_use.collect())
        })
        .collect();
    assert_eq!(
        curve,
        [("CPU", vec![4096, 4608, 4096]), ("CPU shared", vec![64, 0]),]
    );
    let sizes = |range: Option<std::ops::Range<Time>>, name: &str| {
        let options = Options {
            range,
            ..Options::default()
        };
        let report = reports::make(&run.trace, "memory", &options, &Cancel::default()).unwrap();
        let section = report.sections.iter().find(|section| section.name == name);
        let rows = section.map_or(&[][..], |section| &section.table.rows);
        rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    let cells = |sizes: &[i64]| {
        sizes
            .iter()
            .map(|size| Cell::from(*size))
            .collect::<Vec<_>>()
    };
    let begin = run.trace.span().start;
    let us = |us: i64| begin.saturating_add(stepscope_model::Dur::from_ps(us * 1_000_000));
    assert_eq!(sizes(None, "largest"), cells(&[4096, 512, 64]));
    assert_eq!(sizes(None, "never_freed"), cells(&[4096]));
    let second = Some(us(50)..us(100));
    assert_eq!(sizes(second.clone(), "largest"), cells(&[512]));
    assert_eq!(sizes(second.clone(), "never_freed"), []);
    assert_eq!(sizes(second, "alive"), cells(&[4096, 64]));
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn memory_report_has_allocating_operators_and_times() {
    let corpus = Corpus::collected();
    let traces = corpus.folder();
    let run = open(&traces.join("torch_gpu/h100_qwen.json.gz")).remove(0);
    for by in ["op", "category", "layer", "stack", "allocator"] {
        let options = Options {
            by: Some(by.to_owned()),
            top: 20,
            ..Options::default()
        };
        let report = reports::make(&run.trace, "memory", &options, &Cancel::default()).unwrap();
        assert!(
            report.sentence.to_string().starts_with("CUDA 0 peaked at "),
            "{}",
            report.sentence
        );
        assert!(!report.table.rows.is_empty() && report.table.rows.len() <= 20);
        assert!(report.missing.is_none());
    }
}

/// torch classifies the tensors it knows; lifetimes alone give the same sums at the peak, except that input that
/// a backward pass uses counts as activations, and torch's "autograd detail" and unknown memory as temporary.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn memory_categories_agree_with_torch() {
    let corpus = Corpus::collected();
    let traces = corpus.folder();
    let truth = traces.join("torch_cpu/cpu_memstack.truth/memory_timeline.json");
    let truth: (Vec<i64>, Vec<Vec<i64>>) =
        serde_json::from_slice(&std::fs::read(truth).unwrap()).unwrap();
    let highest = truth.1.iter().max_by_key(|sizes| sizes.iter().sum::<i64>());
    // In torch's order: none, parameters, optimiser state, input, temporary, activations, gradients, autograd
    // detail, unknown.
    // autograd detail, not known.
    let [
        _,
        _,
        _,
        input,
        temporary,
        activations,
        gradients,
        detail,
        unknown,
    ] = highest.unwrap()[..]
    else {
        panic!("torch's categories are others: {highest:?}");
    };
    let run = open(&traces.join("torch_cpu/cpu_memstack.pt.trace.json.gz")).remove(0);
    let options = Options {
        by: Some("category".to_owned()),
        ..Options::default()
    };
    let report = reports::make(&run.trace, "memory", &options, &Cancel::default()).unwrap();
    let at_peak = |category: &str| {
        let row = report
            .table
            .rows
            .iter()
            .find(|row| row[0] == category.into());
        match row.map(|row| &row[2]) {
            Some(Cell::Int(bytes)) => *bytes,
            other => panic!("{category}: {other:?}"),
        }
    };
    let close = |ours: i64, reference: i64| (ours - reference).abs() <= 2 << 10;
    assert!(
        close(at_peak("activations"), activations + input),
        "{report:?}"
    );
    assert!(close(at_peak("gradients"), gradients), "{report:?}");
    assert!(
        close(at_peak("temporary"), temporary + detail + unknown),
        "{report:?}"
    );
    let sentence = report.sentence.to_string();
    assert!(
        sentence.contains("(backward pass, ") && sentence.contains("activations (estimated)"),
        "{sentence}"
    );
}

/// Bytes by stack and allocator.
type ByStack = BTreeMap<(String, String), i64>;

/// Finds the open functions of each record's thread, from all its slices and without the nesting of the store:
/// net bytes, and the depth of the deepest stack.
fn by_open_functions(run: &Run) -> (ByStack, usize) {
    let (trace, memory) = (&run.trace, memory(run));
    assert!(!memory.spells_stacks);
    let mut by_track: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for record in &memory.records {
        let on = trace.track_of(record.event).unwrap();
        by_track.entry(on.index()).or_default().push(record);
    }
    let (mut found, mut deepest) = (ByStack::new(), 0);
    for records in by_track.values() {
        let slices = trace.slices(trace.track_of(records[0].event).unwrap());
        let mut next = 0;
        let mut open: Vec<usize> = Vec::new();
        for record in records {
            while next < slices.len() && slices.start[next] <= record.at {
                open.push(next);
                next += 1;
            }
            open.retain(|index| slices.end(*index) >= record.at);
            let functions = open.iter().rev().filter(|index| {
                trace.name(slices.category.get(**index)) == "python_function"
                    || trace.name(slices.name[**index]).starts_with('$')
            });
            let names: Vec<&str> = functions.map(|at| trace.name(slices.name[*at])).collect();
            deepest = deepest.max(names.len());
            let allocator = &memory.allocators[record.allocator];
            // A free belongs to the stack of its allocation.
            let (stack, bytes) = match (record.bytes, record.freed) {
                (bytes, _) if bytes < 0 && record.tracked => continue,
                (bytes, _) if bytes < 0 && allocator.addressed => {
                    ("allocated before the recording".to_owned(), bytes)
                }
                (_, Some(_)) => (names.join(" < "), 0),
                (bytes, None) => (names.join(" < "), bytes),
            };
            *found.entry((stack, allocator.name.clone())).or_default() += bytes;
        }
    }
    (found, deepest)
}

fn reported_by_stack(run: &Run) -> ByStack {
    let options = Options {
        by: Some("stack".to_owned()),
        top: usize::MAX,
        ..Options::default()
    };
    let table = reports::make(&run.trace, "memory", &options, &Cancel::default())
        .unwrap()
        .table;
    let at = |key: &str| table.columns.iter().position(|column| column.key == key);
    let indexes = (at("stack"), at("allocator"), at("net_bytes"));
    let (Some(stack), Some(allocator), Some(net)) = indexes else {
        panic!("{indexes:?}");
    };
    let row = |row: &Vec<Cell>| match (&row[stack], &row[allocator], &row[net]) {
        (Cell::Text(stack), Cell::Text(allocator), Cell::Int(net)) => {
            ((stack.clone(), allocator.clone()), *net)
        }
        other => panic!("{other:?}"),
    };
    table.rows.iter().map(row).collect()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn stacks_list_the_open_functions() {
    let corpus = Corpus::collected();
    let traces = corpus.folder();
    for file in ["h100_owlv2.json.gz", "h100_qwen.json.gz"] {
        let run = open(&traces.join("torch_gpu").join(file)).remove(0);
        let (expected, deepest) = by_open_functions(&run);
        let found = reported_by_stack(&run);
        assert!(deepest > 5 && found.len() > 5, "{file}: {deepest}");
        assert_eq!(found, expected, "{file}");
    }
}

/// Functions that overlap without nesting, and records of two threads.
#[test]
fn a_stack_is_no_longer_than_its_functions() {
    let function = |name, tid, from, to| {
        format!(
            r#"{{"ph":"X","cat":"python_function","name":"{name}","pid":1,"tid":{tid},"ts":{from},"dur":{}}}"#,
            to - from
        )
    };
    let mut events = vec![
        function("outer", 1, 0, 100),
        function("first", 1, 10, 50),
        function("second", 1, 30, 70),
        function("inner", 1, 40, 60),
        function("last", 1, 80, 90),
        function("other", 2, 0, 65),
    ];
    for tid in 1..=2 {
        for (number, at) in (5..100).step_by(10).enumerate() {
            let address = 1000 * tid + number;
            let bytes = tid << number;
            events.push(format!(
                r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":{tid},"ts":{at},"args":{{"Device Type":0,"Device Id":-1,"Addr":{address},"Bytes":{bytes},"Total Allocated":1,"Total Reserved":0}}}}"#
            ));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("overlap.pt.trace.json");
    let text = format!(
        r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#,
        events.join(",\n")
    );
    std::fs::write(&path, text).unwrap();
    let run = open(&path).remove(0);
    let found = reported_by_stack(&run);
    assert_eq!(found, by_open_functions(&run).0);
    let stacks: Vec<&str> = found.keys().map(|(stack, _)| stack.as_str()).collect();
    let expected = [
        "",
        "first < outer",
        "inner < second < first < outer",
        "inner < second < outer",
        "last < outer",
        "other",
        "outer",
        "second < first < outer",
        "second < outer",
    ];
    assert_eq!(stacks, expected);
}
