//! Figures of the exports, equal to those that SQLite computes (`tests/peers/nsight_export.py`).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stepscope_formats::probe::{Probe, ProbeSlice};
use stepscope_model::Diagnostic;

use stepscope_test_data::{self as traces, Corpus};

use super::{EXPORTS, emitted, export};

const PS_PER_NS: i64 = 1_000;

fn figures(name: &str) -> Value {
    let path = Corpus::committed().path(&format!("nsight/{name}.truth/figures.json"));
    serde_json::from_slice(&traces::bytes(&path)).unwrap()
}

/// Sums slices by a key: their number and their nanoseconds.
fn sums<'p>(
    probe: &'p Probe,
    key: impl Fn(&'p ProbeSlice) -> Option<String>,
) -> BTreeMap<String, (u64, i64)> {
    let mut sums: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for slice in &probe.slices {
        if let Some(key) = key(slice) {
            let sum = sums.entry(key).or_default();
            sum.0 += 1;
            sum.1 += slice.dur_ps / PS_PER_NS;
        }
    }
    sums
}

/// Rows of figures as a map: the first value is the key, the others a number and nanoseconds.
fn rows(figures: &Value, key: &str) -> BTreeMap<String, (u64, i64)> {
    let rows = figures[key].as_array().unwrap().iter();
    let row = |row: &Value| {
        let last = row.as_array().unwrap().len();
        let text = row[0].as_str().unwrap().to_owned();
        (
            text,
            (
                row[last - 2].as_u64().unwrap(),
                row[last - 1].as_i64().unwrap(),
            ),
        )
    };
    rows.map(row).collect()
}

fn of_category<'p>(category: &'p str) -> impl Fn(&'p ProbeSlice) -> Option<String> {
    move |slice| (slice.category == category).then(|| slice.name.clone())
}

#[test]
fn kernels_by_name_are_those_of_sql() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let figures = figures(name);
        let mut found = sums(&probe, of_category("kernel"));
        let graphs = found.remove("CUDA graph 11");
        assert_eq!(found, rows(&figures, "kernels"), "{name}");
        let graphs = graphs.map(|(count, ns)| json!([[count, ns]]));
        assert_eq!(graphs.as_ref(), figures.get("graphs"), "{name}");
        assert!(
            found.keys().any(|name| name.len() > 9_000),
            "texts on overflow pages"
        );
    }
}

#[test]
fn streams_are_busy_as_in_sql() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let mut by_stream: BTreeMap<(u32, i64), Vec<(i64, i64)>> = BTreeMap::new();
        for slice in &probe.slices {
            let track = probe.find_track(&slice.track).unwrap();
            if let (Some(device), Some(stream)) = (track.device, track.stream) {
                let span = (slice.start_ps, slice.start_ps + slice.dur_ps);
                by_stream.entry((device, stream)).or_default().push(span);
            }
        }
        let busy = by_stream.into_iter().map(|((device, stream), mut spans)| {
            spans.sort_unstable();
            let (mut until, mut sum) = (i64::MIN, 0);
            for (start, end) in spans {
                sum += (end - start.max(until)).max(0);
                until = until.max(end);
            }
            json!([device, stream, sum / PS_PER_NS])
        });
        assert_eq!(busy.collect::<Value>(), figures(name)["busy"], "{name}");
    }
}

#[test]
fn copies_and_memsets_are_those_of_sql() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let figures = figures(name);
        let bytes = |slice: &ProbeSlice| -> i64 {
            let args = probe.args(slice.args);
            let bytes = args.iter().find(|(key, _)| key == "bytes").unwrap();
            let number = bytes.1.strip_prefix("Int(").unwrap();
            number.strip_suffix(')').unwrap().parse().unwrap()
        };
        let of = |category: &str, start: &str| {
            let slices = probe
                .slices
                .iter()
                .filter(|slice| slice.category == category && slice.name.starts_with(start));
            slices.fold((0_u64, 0, 0), |(count, ns, sum), slice| {
                (count + 1, ns + slice.dur_ps / PS_PER_NS, sum + bytes(slice))
            })
        };
        let copies = [
            (1, "Memcpy HtoD (Pinned -> Device)"),
            (2, "Memcpy DtoH (Device -> Pageable)"),
        ];
        let copies = copies.map(|(kind, start)| {
            let (count, ns, bytes) = of("gpu_memcpy", start);
            json!([kind, count, ns, bytes])
        });
        assert_eq!(Value::from(copies.to_vec()), figures["copies"], "{name}");
        let (count, ns, bytes) = of("gpu_memset", "Memset (");
        assert_eq!(json!([[count, ns, bytes]]), figures["memsets"], "{name}");
    }
}

#[test]
fn calls_are_those_of_sql_without_versions() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let figures = figures(name);
        let found = sums(&probe, |slice| {
            let class = match slice.category.as_str() {
                "cuda_runtime" => 0,
                "cuda_driver" => 1,
                _ => return None,
            };
            Some(format!("{class} {}", slice.name))
        });
        let expected = figures["calls"].as_array().unwrap().iter().map(|row| {
            let call = row[0].as_str().unwrap();
            // `cuMemGetInfo_v2` keeps its version: it is part of the name.
            let call = match call.rsplit_once("_v") {
                Some((short, version)) if version.len() >= 4 => short,
                _ => call,
            };
            let sum = (row[2].as_u64().unwrap(), row[3].as_i64().unwrap());
            (format!("{} {call}", row[1]), sum)
        });
        assert_eq!(found, expected.collect(), "{name}");
        let os = sums(&probe, of_category("os_runtime"));
        assert_eq!(os, rows(&figures, "os_calls"), "{name}");
    }
}

#[test]
fn each_kernel_is_linked_to_the_call_that_sql_joins() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let mut calls: BTreeMap<u64, usize> = BTreeMap::new();
        for slice in &probe.slices {
            for (category, id, direction) in &slice.flows {
                assert_eq!(category, "correlation");
                if *direction == 0 {
                    *calls.entry(*id).or_default() += 1;
                }
            }
        }
        assert!(calls.values().all(|count| *count == 1));
        let kernels = probe
            .slices
            .iter()
            .filter(|slice| slice.category == "kernel" && !slice.name.starts_with("CUDA graph"));
        let linked = kernels.filter(|slice| {
            let flow = slice.flows.first();
            flow.is_some_and(|(_, id, direction)| *direction == 2 && calls.contains_key(id))
        });
        assert_eq!(
            json!([[linked.count()]]),
            figures(name)["launched"],
            "{name}"
        );
    }
}

#[test]
fn ranges_marks_and_steps_are_those_of_sql() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let figures = figures(name);
        let unfinished: Vec<&ProbeSlice> =
            probe.slices.iter().filter(|one| one.flags == 1).collect();
        let starts = unfinished
            .iter()
            .map(|one| json!([one.name, one.start_ps / PS_PER_NS]));
        assert_eq!(starts.collect::<Value>(), figures["unfinished"], "{name}");
        assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 1);
        let found = sums(&probe, |slice| {
            let is_range = slice.category == "user_annotation" && slice.flags == 0;
            is_range.then(|| slice.name.clone())
        });
        assert_eq!(found, rows(&figures, "ranges"), "{name}");
        let marks = json!([[
            "checkpoint",
            probe
                .instants
                .iter()
                .filter(|one| one.name == "checkpoint")
                .count()
        ]]);
        assert_eq!(marks, figures["marks"], "{name}");
        let steps = probe.slices.iter().filter_map(|slice| {
            let end = slice.start_ps + slice.dur_ps;
            Some(json!([
                slice.step?,
                slice.start_ps / PS_PER_NS,
                end / PS_PER_NS
            ]))
        });
        assert_eq!(steps.collect::<Value>(), figures["steps"], "{name}");
    }
}

#[test]
fn counters_and_samples_are_those_of_sql() {
    for name in EXPORTS {
        let probe = emitted(&export(name)).unwrap();
        let figures = figures(name);
        let mut metrics: BTreeMap<(u32, String), (u64, i64)> = BTreeMap::new();
        let mut memory: BTreeMap<&str, f64> = BTreeMap::new();
        for (key, _, value) in &probe.samples {
            let track = probe.find_track(key).unwrap();
            if let Some((_, metric)) = track
                .name
                .split_once(": ")
                .filter(|_| key.contains("/metric/"))
            {
                let sum = metrics
                    .entry((track.device.unwrap(), metric.to_owned()))
                    .or_default();
                sum.0 += 1;
                #[allow(clippy::cast_possible_truncation, reason = "small whole numbers")]
                let value = *value as i64;
                sum.1 += value;
            } else if let Some((_, kind)) = key.split_once("/memory/") {
                let peak = memory.entry(kind).or_default();
                *peak = peak.max(*value);
            }
        }
        if let Some(expected) = figures.get("metrics") {
            let rows = metrics.into_iter();
            let rows =
                rows.map(|((device, metric), (count, sum))| json!([device, metric, count, sum]));
            assert_eq!(rows.collect::<Value>(), *expected);
            let peaks = [(1, "Pinned"), (2, "Device")];
            #[allow(clippy::cast_possible_truncation, reason = "whole numbers of bytes")]
            let peaks = peaks.map(|(kind, key)| json!([kind, memory[key] as i64]));
            assert_eq!(Value::from(peaks.to_vec()), figures["memory"]);
        } else {
            assert!(probe.samples.is_empty());
        }
        let profile = &probe.profiles[0];
        let mut leaves: BTreeMap<&str, (u64, i64)> = BTreeMap::new();
        for sample in &profile.samples.samples {
            let location = &profile.samples.locations[sample.stack[0] as usize];
            let row = &profile.rows[location[0].row as usize];
            let sum = leaves.entry(&row.name).or_default();
            sum.0 += sample.values[0].unsigned_abs();
            sum.1 += sample.values[1];
        }
        let leaves = leaves.into_iter().map(|(name, sum)| (name.to_owned(), sum));
        assert_eq!(
            leaves.collect::<BTreeMap<_, _>>(),
            rows(&figures, "samples"),
            "{name}"
        );
    }
}

#[test]
fn warnings_and_tables_that_are_not_read_are_notes() {
    let probe = emitted(&export("current")).unwrap();
    let detail = |what: Diagnostic| {
        let found = probe.diagnostics.iter().find(|one| one.0 == what);
        found.map(|one| one.2.as_str())
    };
    assert_eq!(
        detail(Diagnostic::WriterError),
        Some("Not all NVTX events might have been collected.")
    );
    assert_eq!(probe.count(Diagnostic::WriterError), 1);
    assert_eq!(
        detail(Diagnostic::UnknownEntry),
        Some("tables that are not read: SCHED_EVENTS")
    );
    for damage in [
        Diagnostic::Unreadable,
        Diagnostic::Truncated,
        Diagnostic::BadTime,
    ] {
        assert_eq!(probe.count(damage), 0, "{damage:?}");
    }
}
