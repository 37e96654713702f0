//! Memory, against what torch and XProf said of the same files.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use stepscope_analysis::memory::Memory;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::report::Cell;
use stepscope_analysis::reports::{self, Options};
use stepscope_engine::Run;
use stepscope_model::Time;

use crate::traces::{below, folder, open};

fn memory(run: &Run) -> Memory {
    Memory::read(&run.trace, &Cancel::default()).unwrap()
}

/// JSON, compressed or not.
fn json(path: &Path) -> Value {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::MultiGzDecoder::new(file)
        .read_to_end(&mut bytes)
        .or_else(|_| {
            bytes = std::fs::read_to_string(path)?.into_bytes();
            Ok::<_, std::io::Error>(0)
        })
        .unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn the_curve_is_that_of_torchs_memory_timeline() {
    let Some(traces) = folder() else { return };
    let run = open(&traces.join("torch_cpu/cpu_memstack.pt.trace.json.gz")).remove(0);
    let memory = memory(&run);
    assert_eq!(memory.allocators.len(), 1);
    let cpu = &memory.allocators[0];
    assert!(cpu.absolute && cpu.addressed);
    let truth = json(&traces.join("torch_cpu/cpu_memstack.truth/memory_timeline.json"));
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
    // Before the first allocation there is what the model holds.
    let before = sums[0];
    let usage = memory.usage(cpu, None);
    assert_eq!(usage.peak + before, *sums.iter().max().unwrap());
    // Each new height of the allocator is one of theirs, and so is nearly every level: they count a
    // tensor as gone a moment before or after its memory is.
    let (mut highest, mut same, mut all) = (0, 0, 0);
    for record in memory.of(cpu) {
        let known = sums.contains(&(record.in_use + before));
        assert!(known || record.in_use <= highest, "{record:?}");
        highest = highest.max(record.in_use);
        same += usize::from(known);
        all += 1;
    }
    assert!(same * 20 > all * 19, "{same} of {all}");
}

#[test]
fn peaks_are_those_of_xprof() {
    let Some(traces) = folder() else { return };
    let mut compared = 0;
    let truths = below(&traces.join("xplane_real"), |path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("xprof_memory_profile.json"))
    });
    for truth in truths {
        let logs = truth.parent().unwrap().with_extension("");
        let memory = memory(&open(&logs).remove(0));
        let truth = json(&truth);
        for (name, theirs) in truth["memoryProfilePerAllocator"].as_object().unwrap() {
            let ours = memory
                .allocators
                .iter()
                .find(|ours| ours.name == *name || ours.name == format!("device {name}"))
                .unwrap_or_else(|| panic!("{}: no allocator {name}", logs.display()));
            let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
            let usage = memory.usage(ours, None);
            let summary = &theirs["profileSummary"];
            let what = format!("{} {name}", logs.display());
            let peak = number(&summary["peakStats"]["peakBytesInUse"]);
            assert_eq!(usage.peak, peak, "{what}: peak");
            let lifetime = number(&summary["peakBytesUsageLifetime"]);
            // XProf's may lie below its own peak (GPU_4_bfc of the V100 run): it is that of one record,
            // ours is the highest of all.
            if lifetime >= peak {
                assert_eq!(ours.lifetime_peak, Some(lifetime), "{what}: own mark");
            } else {
                assert!(ours.lifetime_peak >= Some(lifetime), "{what}: own mark");
            }
            let capacity = number(&summary["memoryCapacity"]);
            assert_eq!(ours.capacity, Some(capacity), "{what}: capacity");
            compared += 1;
        }
    }
    assert!(compared >= 15, "{compared}");
}

#[test]
fn what_is_alive_adds_up_on_every_trace() {
    let Some(traces) = folder() else { return };
    let files = below(&traces, |path| {
        let text = path.to_string_lossy();
        path.is_file()
            && (text.contains("torch_") || text.contains("fit_pytorch_memory"))
            && text.ends_with(".json.gz")
            && !text.contains(".truth")
    });
    let (mut checked, mut peaks) = (0, 0);
    for path in files {
        for run in open(&path) {
            let memory = memory(&run);
            for allocator in memory
                .allocators
                .iter()
                .filter(|one| one.absolute && one.addressed)
            {
                let records: Vec<_> = memory.of(allocator).collect();
                let mut unknown = None;
                for record in records.iter().step_by(1 + records.len() / 50) {
                    // Of several records of one moment only the last one's level holds.
                    if records.iter().filter(|other| other.at == record.at).count() > 1 {
                        continue;
                    }
                    let (alive, before) = memory.alive(allocator, record.at);
                    let sum: i64 = alive.iter().map(|one| one.bytes).sum();
                    assert_eq!(sum + before, record.in_use, "{}", path.display());
                    // What was there before the recording can only be freed.
                    assert!(
                        unknown.is_none_or(|last| before <= last),
                        "{}",
                        path.display()
                    );
                    unknown = Some(before);
                    checked += 1;
                }
                let usage = memory.usage(allocator, None);
                let span = run.trace.span();
                let whole = Time::from_ps(span.start.ps())..Time::from_ps(span.end.ps() + 1);
                for bins in [1, 7, 1_000] {
                    let curve = memory.curve(allocator, &whole, bins);
                    assert_eq!(curve.in_use.iter().max(), Some(&usage.peak));
                    assert!(curve.at.len() <= 2 * bins, "{bins}");
                    assert!(curve.at.is_sorted());
                    peaks += 1;
                }
            }
        }
    }
    assert!(checked > 500 && peaks > 20, "{checked} {peaks}");
}

#[test]
fn the_report_says_who_and_when() {
    let Some(traces) = folder() else { return };
    let run = open(&traces.join("torch_gpu/h100_qwen.json.gz")).remove(0);
    for by in ["op", "category", "layer", "stack", "allocator"] {
        let options = Options {
            by: Some(by.to_owned()),
            top: 20,
            ..Options::default()
        };
        let report = reports::make(&run.trace, "memory", &options, &Cancel::default()).unwrap();
        assert!(
            report.sentence.starts_with("CUDA 0 held at most "),
            "{}",
            report.sentence
        );
        assert!(!report.table.rows.is_empty() && report.table.rows.len() <= 20);
        assert!(report.missing.is_none());
    }
}

/// torch knows the tensors and sorts them; from lives alone the sums at the peak are the same, but that
/// input that a backward pass uses counts as activations, and torch's "autograd detail" and what it
/// does not know as temporary.
#[test]
fn what_memory_is_for_agrees_with_torch() {
    let Some(traces) = folder() else { return };
    let truth = traces.join("torch_cpu/cpu_memstack.truth/memory_timeline.json");
    let truth: (Vec<i64>, Vec<Vec<i64>>) =
        serde_json::from_slice(&std::fs::read(truth).unwrap()).unwrap();
    let highest = truth.1.iter().max_by_key(|sizes| sizes.iter().sum::<i64>());
    // In torch's order: nothing, parameters, optimiser state, input, temporary, activations, gradients,
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
    let close = |ours: i64, theirs: i64| (ours - theirs).abs() <= 2 << 10;
    assert!(
        close(at_peak("activations"), activations + input),
        "{report:?}"
    );
    assert!(close(at_peak("gradients"), gradients), "{report:?}");
    assert!(
        close(at_peak("temporary"), temporary + detail + unknown),
        "{report:?}"
    );
    assert!(
        report.sentence.contains("in the backward pass")
            && report.sentence.contains("activations (estimated)"),
        "{}",
        report.sentence
    );
}
