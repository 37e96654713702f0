//! HTA's launch statistics, kernel breakdown, copies and temporal breakdown, by its definitions and to its
//! rounding: a start is rounded up to a whole microsecond, an end down.

#![allow(
    clippy::similar_names,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "traces have tracks, and the whole numbers in the peers' texts are exact"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stepscope_test_data::Corpus;

use stepscope_analysis::device::{Devices, Work};
use stepscope_analysis::kernels::{KernelGrouping, kernels};
use stepscope_analysis::launch::{Config, Launches};
use stepscope_analysis::parallel::Cancel;
use stepscope_compat::hta::{self, HtaKind};
use stepscope_engine::Run;
use stepscope_engine::report::peer_profiler::PeerProfiler;
use stepscope_model::{ArgValue, Dur, TrackId};

use stepscope_test_data::runs;
use stepscope_test_data::runs::{number, report, report_with};

fn value(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

/// Lists files of figures of one kind, with the trace of the rank that they describe.
fn of_one_rank(folder: &Path, file: &str) -> Vec<(PathBuf, PathBuf)> {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    stepscope_test_data::below(folder, |path| {
        name(path).is_some_and(|name| name.starts_with(file))
    })
    .into_iter()
    .filter_map(|path| {
        let truth = path.parent()?.parent()?;
        if truth.ends_with("dlrm8.truth") {
            let trace = folder.join("torch_multirank/dlrm8/dlrm_rank0.pt.trace.json.gz");
            return name(&path)?
                .ends_with("_rank0.csv")
                .then_some((trace, path));
        }
        Some((runs::trace_of(truth)?, path))
    })
    .collect()
}

fn first(path: &Path) -> Run {
    let mut runs = runs::open(path);
    assert_eq!(runs.len(), 1, "{}", path.display());
    runs.remove(0)
}

/// Returns start and end of a slice as HTA computes them, microseconds on the file's own clock.
fn whole_us(run: &Run, track: TrackId, index: usize) -> (i128, i128) {
    const US: i128 = 1_000_000;
    let slices = run.trace.slices(track);
    let origin = i128::from(run.trace.files()[0].epoch.origin_ns) * 1_000;
    let begin = origin + i128::from(slices.start[index].ps());
    let end = origin + i128::from(slices.end(index).ps());
    (-(-begin).div_euclid(US), end.div_euclid(US))
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn launch_statistics_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut compared, mut files) = (0, 0);
    for (path, figures) in of_one_rank(folder, "hta_kernel_launch_stats_rank") {
        let rows = runs::csv(&figures);
        // HTA's times of MTIA are no launches of kernels.
        if rows.is_empty() || path.to_string_lossy().contains("mtia") {
            continue;
        }
        let run = first(&path);
        let trace = &run.trace;
        let cancel = Cancel::default();
        let devices = Devices::from_trace(trace, &cancel).unwrap();
        let launches = Launches::from_trace(trace, &devices, &cancel).unwrap();
        // Durations of the call and of the work, and the delay, by the number that joins them.
        let mut ours: BTreeMap<i64, Vec<[i128; 3]>> = BTreeMap::new();
        for queue in devices.list.iter().flat_map(|device| &device.queues) {
            let slices = trace.slices(queue.track);
            for index in 0..slices.len() {
                let call = launches.get(queue.track, index);
                let position = call.and_then(|call| trace.place_of_slice(call));
                let joined = Config::from_event(trace, slices.id(index)).correlation;
                let (Some((track, at)), Some(joined)) = (position, joined) else {
                    continue;
                };
                let (work, call) = (
                    whole_us(&run, queue.track, index),
                    whole_us(&run, track, at),
                );
                ours.entry(joined).or_default().push([
                    call.1 - call.0,
                    work.1 - work.0,
                    (work.0 - call.1).max(0),
                ]);
            }
        }
        for row in rows {
            let expected = ["cpu_duration", "gpu_duration", "launch_delay"]
                .map(|key| value(&row[key]).round() as i128);
            let joined = value(&row["correlation"]) as i64;
            let actual = ours.get(&joined).cloned().unwrap_or_default();
            assert!(
                actual.contains(&expected),
                "{}: {joined}: {actual:?} {expected:?}",
                path.display()
            );
            compared += 1;
        }
        files += 1;
    }
    assert!(
        files >= 14 && compared > 14_000,
        "{files} files, {compared} launches"
    );
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn kernel_kinds_and_their_overlaps_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let run = first(&folder.join("torch_multirank/dlrm8"));
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let (compute, communication) = (&[Work::Compute][..], &[Work::Communication][..]);
    let memory = &[Work::Memcpy, Work::Memset][..];
    let mut sums: BTreeMap<&str, Dur> = BTreeMap::new();
    for device in &devices.list {
        let times = devices
            .times_in(device, device.span.clone(), &cancel)
            .unwrap();
        let all = [compute, communication, memory];
        // Only of this kind, and of exactly these two.
        let only = |one: usize| {
            let others: Vec<Work> = (0..3)
                .filter(|at| *at != one)
                .flat_map(|at| all[at])
                .copied()
                .collect();
            times.any_without(all[one], &others)
        };
        let both = |one: usize, other: usize, third: usize| {
            let overlapping: Vec<Work> = [all[other], all[third]].concat();
            let with = times.any_without(all[one], all[third]);
            let without = times.any_without(all[one], &overlapping);
            Dur::from_ps(with.ps() - without.ps())
        };
        for (kind, dur) in [
            ("COMPUTATION", only(0)),
            ("COMMUNICATION", only(1)),
            ("MEMORY", only(2)),
            ("COMPUTATION overlapping COMMUNICATION", both(0, 1, 2)),
            ("COMMUNICATION overlapping MEMORY", both(1, 2, 0)),
            ("COMPUTATION overlapping MEMORY", both(0, 2, 1)),
        ] {
            let sum = sums.entry(kind).or_default();
            *sum = sum.saturating_add(dur);
        }
    }
    let path = folder.join("torch_multirank/dlrm8.truth/hta/hta_gpu_kernel_breakdown_0.csv");
    let rows = runs::csv(&path);
    let all: f64 = rows.iter().map(|row| value(&row["sum"])).sum();
    for row in &rows {
        let actual = sums[row["kernel_type"].as_str()].as_ns_f64() / 1e3;
        assert_eq!(actual.round() as i64, value(&row["sum"]) as i64, "{row:?}");
        let share = (actual / all * 1e3).round() / 10.0;
        assert!(
            (share - value(&row["percentage"])).abs() < 0.051,
            "{row:?} {share}"
        );
    }
    assert_eq!(rows.len(), 5);
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn kernels_of_each_rank_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let path = folder.join("torch_multirank/dlrm8.truth/hta/hta_gpu_kernel_breakdown_1.csv");
    let figures = runs::csv(&path);
    let mut compared = 0;
    for rank in 0..8 {
        let run = first(&folder.join(format!(
            "torch_multirank/dlrm8/dlrm_rank{rank}.pt.trace.json.gz"
        )));
        let ours = report(&run, "kernels", Some("name"));
        let rows = ours["rows"].as_array().unwrap();
        let own = figures.iter().filter(|row| row["rank"] == rank.to_string());
        // HTA merges the small ones under one name; for some it has only the sum, which then is its mean, too.
        for row in own.filter(|row| row["name"] != "others") {
            let context = format!("rank {rank} {}", row["name"]);
            let actual = rows
                .iter()
                .find(|actual| actual["name"] == row["name"].as_str());
            let actual = actual.unwrap_or_else(|| panic!("no {context}"));
            for (own, expected) in [
                ("total_ns", "sum (us)"),
                ("max_ns", "max (us)"),
                ("min_ns", "min (us)"),
                ("mean_ns", "mean (us)"),
                ("deviation_ns", "stddev"),
            ] {
                let expected = value(&row[expected]);
                let one = value(&row["sum (us)"]) <= value(&row["mean (us)"]);
                if expected.is_finite() && (own == "total_ns" || !one) {
                    let actual = number(&actual[own]) / 1e3;
                    assert!(
                        (actual - expected).abs() < 1e-6 * expected.max(1.0),
                        "{context} {own}: {actual} {expected}"
                    );
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared} kernels");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn rates_of_copies_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let path = folder.join("torch_multirank/dlrm8.truth/hta/hta_memory_bw_summary.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let mut compared = 0;
    for line in text.lines().skip(3) {
        let cells: Vec<&str> = line.split(',').collect();
        let run = first(&folder.join(format!(
            "torch_multirank/dlrm8/dlrm_rank{}.pt.trace.json.gz",
            cells[0]
        )));
        let trace = &run.trace;
        let cancel = Cancel::default();
        let devices = Devices::from_trace(trace, &cancel).unwrap();
        let launches = Launches::from_trace(trace, &devices, &cancel).unwrap();
        let found = kernels(
            trace,
            &devices,
            &launches,
            KernelGrouping::Name,
            &trace.span(),
            &cancel,
        )
        .unwrap();
        // HTA merges the kinds of memory.
        let same = |name| trace.name(name).starts_with(cells[1]);
        let copies: Vec<_> = found.copies.iter().filter(|own| same(own.name)).collect();
        let sized: u64 = copies.iter().map(|own| own.sized).sum();
        assert_eq!(sized, value(cells[2]) as u64, "{line}");
        // HTA shows the rates in the file, which were computed before the times were rounded to whole
        // microseconds.
        let mut most = 0.0_f64;
        for queue in devices.list.iter().flat_map(|device| &device.queues) {
            let slices = trace.slices(queue.track);
            for index in (0..slices.len()).filter(|index| same(slices.name[*index])) {
                let bytes = Config::from_event(trace, slices.id(index)).bytes.unwrap() as f64;
                let ns = slices.dur[index].as_ns_f64();
                let mut total = 0.0;
                let read = trace.args(slices.id(index), &mut |key, value| match (key, value) {
                    ("memory bandwidth (GB/s)", ArgValue::Double(rate)) => total = rate,
                    ("memory bandwidth (GB/s)", ArgValue::Int(rate)) => total = rate as f64,
                    _ => {}
                });
                assert!(read.is_ok());
                most = most.max(total);
                let (low, high) = (bytes / (ns + 2e3), bytes / ns.max(1e-9));
                assert!(low * (1.0 - 1e-9) <= total, "{line}: {total} {low}");
                assert!(total <= high * (1.0 + 1e-9), "{line}: {total} {high}");
            }
        }
        assert!((most - value(cells[9])).abs() < 1e-9, "{line}: {most}");
        for own in copies {
            let (rate, best) = (own.rate().unwrap(), own.best_rate.unwrap());
            assert!(rate <= best * (1.0 + 1e-9), "{line}: {rate}");
        }
        let best = found.copies.iter().filter(|own| same(own.name));
        let best = best.filter_map(|own| own.best_rate).fold(0.0, f64::max);
        assert!((best / 1e9 - most).abs() < most * 1e-5, "{line}: {best}");
        compared += 1;
    }
    assert!(compared >= 5, "{compared}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn the_temporal_breakdown_equals_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let run = first(&folder.join("torch_multirank/dlrm8"));
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let truth = folder.join("torch_multirank/dlrm8.truth/hta");
    let rows = runs::csv(&truth.join("hta_temporal_breakdown.csv"));
    let overlaps = runs::csv(&truth.join("hta_comm_comp_overlap.csv"));
    assert_eq!((rows.len(), overlaps.len(), devices.list.len()), (8, 8, 8));
    for ((device, row), overlap) in devices.list.iter().zip(&rows).zip(&overlaps) {
        let times = devices
            .times_in(device, device.span.clone(), &cancel)
            .unwrap();
        let all = times.range.as_ns_f64();
        let other = times.busy().as_ns_f64() - times.compute().as_ns_f64();
        for (kind, ns) in [
            ("idle", times.idle().as_ns_f64()),
            ("compute", times.compute().as_ns_f64()),
            ("non_compute", other),
        ] {
            assert!(
                (ns / 1e3 - value(&row[&format!("{kind}_time(us)")])).abs() < 1e-9,
                "{kind} of {row:?}: {ns}"
            );
            // Two digits; HTA adds up rounded values, so the last digit may be off.
            let expected = value(&row[&format!("{kind}_time_pctg")]);
            assert!(
                (ns / all * 100.0 - expected).abs() < 0.0151,
                "{kind} of {row:?}"
            );
        }
        assert!((all / 1e3 - value(&row["kernel_time(us)"])).abs() < 1e-9);
        let hidden = times.hidden_communication().as_ns_f64() / times.communication().as_ns_f64();
        let expected = value(&overlap["comp_comm_overlap_pctg"]);
        assert!((hidden * 100.0 - expected).abs() < 0.0051, "{overlap:?}");
    }
}

/// Traces with HTA's figures in this table, and HTA's columns. Two traces have operators of the host that name a
/// stream, which HTA counts among the kernels as long as it leaves out no step.
fn with_hta(folder: &Path, table: &str) -> Vec<(PathBuf, PathBuf)> {
    let found = stepscope_test_data::below(folder, |path| {
        path.ends_with(format!("hta/hta_{table}.csv"))
    });
    let find_traces = found.into_iter().filter_map(|figures| {
        let truth = figures.parent()?.parent()?;
        let trace = if truth.ends_with("dlrm8.truth") {
            folder.join("torch_multirank/dlrm8")
        } else {
            runs::trace_of(truth)?
        };
        Some((trace, figures))
    });
    find_traces
        .filter(|(trace, _)| {
            let name = trace.to_string_lossy();
            !["mi300_xdit_sd35", "mi300_vllm_decode_graph_capture"]
                .iter()
                .any(|odd| name.contains(odd))
        })
        .collect()
}

/// HTA's figures by our implementation of its definitions.
fn by_hta(run: &Run) -> Vec<hta::RankTimes> {
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let launches = Launches::from_trace(&run.trace, &devices, &cancel).unwrap();
    hta::ranks(&run.trace, &launches, &cancel)
        .unwrap()
        .unwrap_or_default()
}

/// With the steps that HTA leaves out, and its whole microseconds.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn temporal_breakdowns_of_all_traces_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut ranks, mut cut, mut off) = (0, 0, Vec::new());
    for (path, figures) in with_hta(folder, "temporal_breakdown") {
        let found = by_hta(&first(&path));
        let rows = runs::csv(&figures);
        assert_eq!(found.len(), rows.len(), "{}", path.display());
        for (actual, row) in found.iter().zip(&rows) {
            off.extend(temporal_off(actual, |key| value(&row[key])).map(|key| (path.clone(), key)));
            ranks += 1;
            cut += usize::from(actual.left_out > 0);
        }
    }
    assert!(off.is_empty(), "{off:#?}");
    assert!(
        ranks >= 28 && cut >= 6,
        "{ranks} ranks, {cut} without their last step"
    );
}

/// Lists the differences in the temporal breakdown.
fn temporal_off(
    actual: &hta::RankTimes,
    expected: impl Fn(&str) -> f64,
) -> impl Iterator<Item = String> {
    let off = [
        ("idle_time(us)", actual.idle_us),
        ("compute_time(us)", actual.compute_us),
        ("non_compute_time(us)", actual.non_compute_us()),
        ("kernel_time(us)", actual.kernel_us),
    ]
    .map(|(key, us)| {
        (us != expected(key) as i64).then(|| format!("{key}: {us}, HTA {}", expected(key)))
    });
    off.into_iter().flatten()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn overlaps_of_all_traces_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut compared, mut off) = (0, Vec::new());
    for (path, figures) in with_hta(folder, "comm_comp_overlap") {
        let found = by_hta(&first(&path));
        for (actual, row) in found.iter().zip(runs::csv(&figures)) {
            let expected =
                Some(value(&row["comp_comm_overlap_pctg"])).filter(|share| share.is_finite());
            let ours = actual.overlap_percent();
            // Python rounds halves to the even digit.
            if ours.is_some() != expected.is_some()
                || ours
                    .zip(expected)
                    .is_some_and(|(ours, expected)| (ours - expected).abs() > 0.0101)
            {
                off.push((path.clone(), ours, expected));
            }
            compared += usize::from(expected.is_some());
        }
    }
    assert!(off.is_empty(), "{off:#?}");
    assert!(compared >= 12, "{compared}");
}

/// HTA's names of sets of kinds.
fn kinds_of(words: &str) -> Vec<HtaKind> {
    words
        .split(" overlapping ")
        .map(|word| match word {
            "COMPUTATION" => HtaKind::Computation,
            "COMMUNICATION" => HtaKind::Communication,
            _ => HtaKind::Memory,
        })
        .collect()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn idle_times_of_all_streams_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut compared, mut off) = (0, Vec::new());
    for (path, figures) in with_hta(folder, "idle_time_breakdown_0") {
        let run = first(&path);
        let found = by_hta(&run);
        for row in runs::csv(&figures) {
            let (rank, stream) = (value(&row["rank"]) as u32, value(&row["stream"]) as i64);
            let many = run.trace.files().len() > 1;
            let own = found
                .iter()
                .filter(|own| !many || run.trace.files()[own.file].spec.rank == Some(rank));
            let actual = own
                .flat_map(|own| &own.streams)
                .find(|own| run.trace.tracks()[own.track.index()].stream == Some(stream));
            // For a kernel without a call HTA takes the first event of the file as the call.
            if actual.is_some_and(|actual| !all_are_called(&run, actual.track)) {
                continue;
            }
            let us = actual.map(|actual| match row["idle_category"].as_str() {
                "host_wait" => actual.host_wait_us,
                "kernel_wait" => actual.kernel_wait_us,
                _ => actual.other_us,
            });
            if us != Some(value(&row["idle_time"]) as i64) {
                off.push((path.clone(), us, row));
            }
            compared += 1;
        }
    }
    assert!(off.is_empty(), "{} of {compared}: {off:#?}", off.len());
    assert!(compared > 80, "{compared}");
}

/// Returns whether the call of every slice of a stream is in the file.
fn all_are_called(run: &Run, track: TrackId) -> bool {
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let launches = Launches::from_trace(&run.trace, &devices, &cancel).unwrap();
    (0..run.trace.slices(track).len())
        .all(|index| devices.work(track, index).is_none() || launches.get(track, index).is_some())
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn the_stragglers_of_one_step_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let run = first(&folder.join("torch_multirank/dlrm8"));
    let rows =
        runs::csv(&folder.join("torch_multirank/dlrm8.truth/hta/hta_potential_stragglers.csv"));
    let expected: Vec<usize> = rows
        .iter()
        .map(|row| value(&row["rank"]) as usize)
        .collect();
    assert_eq!(straggling(&run), expected);
}

/// Returns the ranks that HTA would name.
fn straggling(run: &Run) -> Vec<usize> {
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let found = hta::stragglers(&run.trace, &devices, &cancel).unwrap();
    let found = found.unwrap();
    let rank = |file: &usize| run.trace.files()[*file].spec.rank.unwrap() as usize;
    found.named.iter().map(rank).collect()
}

/// Four ranks, five steps, times between microseconds (`tests/peers/hta_figures.py`).
#[test]
fn a_job_of_several_ranks_and_steps_equals_hta() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hta");
    let expected = runs::figures(&folder.join("figures.json"));
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        let name = format!("rank{rank}.json");
        std::fs::copy(folder.join(&name), dir.path().join(name)).unwrap();
    }
    let run = first(dir.path());
    let found = by_hta(&run);
    assert_eq!(found.len(), 4);
    let mut off: Vec<String> = Vec::new();
    for (position, actual) in found.iter().enumerate() {
        let row = &expected["temporal_breakdown"][position];
        off.extend(temporal_off(actual, |key| number(&row[key])));
        assert!(actual.left_out > 5, "the last step");
        let overlap = &expected["comm_comp_overlap"][position]["comp_comm_overlap_pctg"];
        if actual.overlap_percent() != overlap.as_f64() {
            off.push(format!(
                "overlap of {position}: {:?}, {overlap}",
                actual.overlap_percent()
            ));
        }
    }
    for row in expected["kernel_kinds"].as_array().unwrap() {
        let kinds = kinds_of(row["kernel_type"].as_str().unwrap());
        let us: i64 = found.iter().map(|actual| actual.exactly_us(&kinds)).sum();
        if Some(us) != row["sum"].as_i64() {
            off.push(format!("{us}: {row}"));
        }
    }
    for row in expected["idle_time_breakdown"].as_array().unwrap() {
        let (rank, stream) = (number(&row["rank"]) as usize, row["stream"].as_i64());
        let mut streams = found[rank].streams.iter();
        let actual = streams.find(|own| run.trace.tracks()[own.track.index()].stream == stream);
        let actual = actual.unwrap();
        let us = match row["idle_category"].as_str().unwrap() {
            "host_wait" => actual.host_wait_us,
            "kernel_wait" => actual.kernel_wait_us,
            _ => actual.other_us,
        };
        if us != number(&row["idle_time"]) as i64 {
            off.push(format!("{us}: {row}"));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
    let named: Vec<u64> = expected["potential_stragglers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(serde_json::Value::as_u64)
        .collect();
    let ours: Vec<u64> = straggling(&run).iter().map(|rank| *rank as u64).collect();
    assert_eq!(ours, named);
    // The reports show them under HTA's names, on request.
    let compared = |kind: &str| report_with(&run, kind, None, Some(PeerProfiler::Hta));
    let ranks = compared("ranks");
    let sections = ranks["sections"].as_array().unwrap();
    let shown = sections
        .iter()
        .find(|section| section["name"] == "hta_stragglers")
        .unwrap();
    let counts: Vec<f64> = shown["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| number(&row["steps"]))
        .collect();
    assert_eq!(counts, [0.0, 1.0, 3.0, 4.0]);
    let idle = compared("idle");
    let sections = idle["sections"].as_array().unwrap();
    let shown = sections
        .iter()
        .find(|section| section["name"] == "hta_temporal")
        .unwrap();
    let first = &expected["temporal_breakdown"][0]["idle_time(us)"];
    assert!((number(&shown["rows"][0]["idle_time_ns"]) - number(first) * 1e3).abs() < 1e-6);
    let overlap = compared("overlap");
    assert_eq!(
        overlap["rows"][0]["hta_overlap_percent"],
        expected["comm_comp_overlap"][0]["comp_comm_overlap_pctg"]
    );
    for kind in PeerProfiler::Hta.reports() {
        let text = report(&run, kind, None).to_string();
        assert!(
            !text.contains("\"HTA") && !text.contains("\"hta"),
            "{kind}: {text}"
        );
    }
}
