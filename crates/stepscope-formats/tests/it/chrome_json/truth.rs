//! Every Chrome JSON trace of the folder that has reference figures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_formats::probe::Probe;
use stepscope_model::{Diagnostic, FlowDirection, TrackKind};

use super::{open, read_with, shared};
use stepscope_test_data::{Corpus, corpus_tests};

/// Each trace with the figures that belong to it.
fn cases(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(here) = left.pop() {
        for entry in std::fs::read_dir(&here).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let truth_folder = here.to_string_lossy().into_owned();
            if name == "counts.json" {
                let stem = truth_folder.strip_suffix(".truth").unwrap();
                let trace = ["json.gz", "json", "pt.trace.json.gz"]
                    .iter()
                    .map(|end| PathBuf::from(format!("{stem}.{end}")))
                    .find(|trace| trace.is_file());
                found.push((trace.unwrap_or_else(|| panic!("no trace for {stem}")), path));
            } else if let Some(file) = name.strip_suffix(".counts.json") {
                let run = PathBuf::from(truth_folder.strip_suffix(".truth").unwrap());
                let trace = below(&run, &format!("{file}.json.gz"));
                found.push((trace.unwrap_or_else(|| panic!("no {file}")), path));
            }
        }
    }
    found.sort();
    found
}

fn below(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .find_map(|entry| {
            let path = entry.path();
            if path.is_dir() {
                return below(&path, name);
            }
            (path.file_name()? == name).then_some(path)
        })
}

#[derive(Default)]
struct Figures {
    by_category: BTreeMap<String, u64>,
    first_ps: i128,
    last_ps: i128,
    /// Events and busy picoseconds of each track.
    tracks: BTreeMap<String, (u64, i64)>,
    flow_pairs: BTreeMap<String, u64>,
    flows: BTreeMap<String, u64>,
    negative: u64,
    steps: Vec<(i64, i128, i64)>,
}

fn union_ps(spans: &mut [(i64, i64)]) -> i64 {
    spans.sort_unstable();
    let mut total = 0;
    let mut until = i64::MIN;
    for (start, end) in spans {
        if *start > until {
            total += *end - *start;
            until = *end;
        } else if *end > until {
            total += *end - until;
            until = *end;
        }
    }
    total
}

fn figures(probe: &Probe) -> Figures {
    let origin_ps = i128::from(probe.epoch.unwrap().origin_ns) * 1_000;
    let mut found = Figures {
        first_ps: i128::MAX,
        last_ps: i128::MIN,
        negative: probe.count(Diagnostic::NegativeDuration),
        ..Figures::default()
    };
    let mut spans: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for slice in &probe.slices {
        let kind = probe.find_track(&slice.track).unwrap().kind;
        if kind == TrackKind::Async {
            continue;
        }
        let category = if slice.category.is_empty() {
            "None"
        } else {
            &slice.category
        };
        *found.by_category.entry(category.to_owned()).or_default() += 1;
        let end_ps = slice.start_ps + slice.dur_ps;
        found.first_ps = found.first_ps.min(origin_ps + i128::from(slice.start_ps));
        found.last_ps = found.last_ps.max(origin_ps + i128::from(end_ps));
        spans
            .entry(&slice.track)
            .or_default()
            .push((slice.start_ps, end_ps));
        if let Some(step) = slice.step {
            let start_ps = origin_ps + i128::from(slice.start_ps);
            found.steps.push((step, start_ps, slice.dur_ps));
        }
    }
    for (track, mut spans) in spans {
        let events = spans.len() as u64;
        found
            .tracks
            .insert(track.to_owned(), (events, union_ps(&mut spans)));
    }
    let mut ends: BTreeMap<&str, [BTreeSet<u64>; 2]> = BTreeMap::new();
    for flow in &probe.flows {
        let letter = ["s", "t", "f"][usize::from(flow.direction)];
        let key = format!("{}:{letter}", flow.category);
        *found.flows.entry(key).or_default() += 1;
        let sides = ends.entry(&flow.category).or_default();
        if flow.direction == FlowDirection::Out as u8 {
            sides[0].insert(flow.id);
        } else if flow.direction == FlowDirection::In as u8 {
            sides[1].insert(flow.id);
        }
    }
    for (category, [starts, ends]) in ends {
        let both = starts.intersection(&ends).count() as u64;
        found.flow_pairs.insert(category.to_owned(), both);
    }
    found.steps.sort_by_key(|step| step.1);
    found
}

fn counts_of(value: &Value) -> BTreeMap<String, u64> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, count)| (key.clone(), count.as_u64().unwrap()))
        .collect()
}

/// Microseconds as the figures print them (a float), to picoseconds.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the figures stay far below 2^127"
)]
fn ps_of(us: &Value) -> i128 {
    (us.as_f64().unwrap() * 1e6) as i128
}

corpus_tests!(figures_equal_an_independent_reading,);

fn figures_equal_an_independent_reading(corpus: &Corpus) {
    let folder = corpus.folder();
    let cases = cases(folder);
    assert!(
        cases.len() >= corpus.either(15, 53),
        "only {} traces with figures",
        cases.len()
    );
    println!(
        "{:<62} {:>8} {:>6} {:>7} {:>6}  diagnostics",
        "trace", "slices", "tracks", "flows", "steps"
    );
    let mut wrong = Vec::new();
    for (trace, truth) in cases {
        let bytes = shared(open(&trace));
        let probe = read_with(&bytes, 2).unwrap();
        let truth: Value = serde_json::from_slice(&open(&truth)).unwrap();
        let found = figures(&probe);
        let name = trace.strip_prefix(folder).unwrap().display().to_string();
        let mut differs = |what: &str, ours: String, theirs: String| {
            wrong.push(format!("{name}: {what}: {ours}, expected {theirs}"));
        };

        let by_category = counts_of(&truth["by_cat"]);
        if found.by_category != by_category {
            differs(
                "by category",
                format!("{:?}", found.by_category),
                format!("{by_category:?}"),
            );
        }
        if truth["duration_events"].as_u64() > Some(0) {
            // The figures' own floats are 0.25 us apart near 1.7e15 us.
            let first = ps_of(&truth["first_ts_us"]);
            let last = ps_of(&truth["last_end_us"]);
            for (what, ours, theirs) in [
                ("first", found.first_ps, first),
                ("last", found.last_ps, last),
            ] {
                let step = if theirs > 1_000_000_000_000_000_000_000 {
                    250_000
                } else {
                    1_000
                };
                if (ours - theirs).abs() > step {
                    differs(what, ours.to_string(), theirs.to_string());
                }
            }
        }
        let tracks = truth["tracks"].as_u64().unwrap();
        if found.tracks.len() as u64 != tracks {
            differs("tracks", found.tracks.len().to_string(), tracks.to_string());
        }
        for row in truth["per_track"].as_array().unwrap() {
            let key = format!(
                "{}/{}",
                row["pid"].as_str().unwrap(),
                row["tid"].as_str().unwrap()
            );
            let (events, busy) = found.tracks.get(&key).copied().unwrap_or_default();
            if Some(events) != row["events"].as_u64() {
                differs(
                    &format!("events of {key}"),
                    events.to_string(),
                    row["events"].to_string(),
                );
            }
            let busy_ps = ps_of(&row["busy_us"]);
            if (i128::from(busy) - busy_ps).abs() > i128::from(events) * 1_000 {
                differs(
                    &format!("busy of {key}"),
                    busy.to_string(),
                    busy_ps.to_string(),
                );
            }
        }
        if found.flows != counts_of(&truth["flows"]) {
            differs(
                "flows",
                format!("{:?}", found.flows),
                truth["flows"].to_string(),
            );
        }
        if found.flow_pairs != counts_of(&truth["flow_pairs"]) {
            differs(
                "flow pairs",
                format!("{:?}", found.flow_pairs),
                truth["flow_pairs"].to_string(),
            );
        }
        if Some(found.negative) != truth["negative_dur"].as_u64() {
            differs(
                "negative",
                found.negative.to_string(),
                truth["negative_dur"].to_string(),
            );
        }
        let steps = truth["profiler_steps"].as_array().unwrap();
        if !steps.is_empty() && steps.len() != found.steps.len() {
            differs(
                "steps",
                found.steps.len().to_string(),
                steps.len().to_string(),
            );
        }
        for (step, ours) in steps.iter().zip(&found.steps) {
            let number = step["name"]
                .as_str()
                .unwrap()
                .trim_start_matches("ProfilerStep#");
            let near = (ours.1 - ps_of(&step["ts"])).abs() <= 250_000
                && (i128::from(ours.2) - ps_of(&step["dur"])).abs() <= 500_000;
            if number != ours.0.to_string() || !near {
                differs("step", format!("{ours:?}"), step.to_string());
            }
        }
        let mut diagnostics: BTreeMap<&str, u64> = BTreeMap::new();
        for (what, count, _) in &probe.diagnostics {
            *diagnostics.entry(what.code()).or_default() += count;
        }
        println!(
            "{:<62} {:>8} {:>6} {:>7} {:>6}  {diagnostics:?}",
            name.chars()
                .rev()
                .take(62)
                .collect::<String>()
                .chars()
                .rev()
                .collect::<String>(),
            found.tracks.values().map(|track| track.0).sum::<u64>(),
            found.tracks.len(),
            found.flow_pairs.values().sum::<u64>(),
            found.steps.len(),
        );
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
