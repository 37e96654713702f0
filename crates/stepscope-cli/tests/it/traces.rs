//! Walks the whole traces folder, prints a table, and compares with the reference figures.
//!
//! The figures were computed by a slow, independent reading in double precision (microseconds),
//! so a time that needs more digits than a double holds is compared within what a double can say;
//! everything else is compared exactly, and busy time to a nanosecond an event.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use stepscope_cli::error::with_help;
use stepscope_cli::info::{Nanos, RunInfo, run_info};
use stepscope_engine::{ConvertOptions, Run, open_path};
use stepscope_model::ReadContext;
use stepscope_test_data::{Corpus, corpus_tests, files};

corpus_tests!(
    figures_equal_the_references,
    converted_traces_equal_their_origin
);

pub(crate) fn open_one(path: &Path) -> Result<Run, String> {
    let context = Arc::new(ReadContext::default());
    let opened = open_path(path, &context, false).map_err(|error| with_help(&error))?;
    assert_eq!(opened.len(), 1, "{}", path.display());
    opened
        .into_iter()
        .next()
        .unwrap()
        .map_err(|(_, error)| with_help(&error))
}

fn json(path: &Path) -> Value {
    let file = std::fs::File::open(path).unwrap();
    serde_json::from_reader(std::io::BufReader::new(file)).unwrap()
}

fn without_extension(name: &str) -> &str {
    [
        ".pt.trace.json.gz",
        ".json.gz",
        ".json",
        ".pftrace.gz",
        ".perfetto-trace",
    ]
    .iter()
    .find_map(|end| name.strip_suffix(end))
    .unwrap_or(name)
}

/// Where the figures of a Chrome JSON file are, if it has any.
fn counts_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let beside = path
        .with_file_name(format!("{}.truth", without_extension(name)))
        .join("counts.json");
    let session = session_truth(path)
        .map(|truth| truth.join(format!("{}.counts.json", without_extension(name))));
    [Some(beside), session]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
}

/// `X.truth` of `X/plugins/profile/SESSION/FILE`.
fn session_truth(path: &Path) -> Option<PathBuf> {
    let run = path.ancestors().nth(4)?;
    Some(run.with_file_name(format!("{}.truth", run.file_name()?.to_str()?)))
}

/// What differs from the reference figures, one line each.
struct Differences(Vec<String>);

impl Differences {
    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: &T, theirs: &T) {
        if ours != theirs {
            self.0
                .push(format!("{what}: {ours:?}, reference {theirs:?}"));
        }
    }

    fn near(&mut self, what: &str, ours: f64, theirs: f64, within: f64) {
        if (ours - theirs).abs() > within {
            self.0.push(format!(
                "{what}: {ours}, reference {theirs}, allowed {within}"
            ));
        }
    }
}

/// What a double of this size cannot tell apart, in its own unit.
fn double_error(value: f64) -> f64 {
    value.abs() * f64::EPSILON
}

/// Compares with `counts.json`: plain json and sorting.
fn compare_counts(run: &RunInfo, truth: &Value) -> Vec<String> {
    let mut differences = Differences(Vec::new());
    let us = |value: Option<Nanos>| value.map(|ns| ns.ps() as f64 / 1e6);
    let d = &mut differences;
    // Matched B/E pairs are slices of ours; the reference counts complete events only.
    let pairs = truth["by_ph"]["E"].as_u64().unwrap_or(0);
    let reference: BTreeMap<String, u64> = serde_json::from_value(truth["by_cat"].clone()).unwrap();
    if pairs == 0 {
        d.equal(
            "slices",
            &run.slices,
            &truth["duration_events"].as_u64().unwrap(),
        );
        d.equal("by_category", &run.by_category, &reference);
    }
    let origin_us = run.files[0].origin_ns as f64 / 1e3;
    let error_us = double_error(origin_us.abs().max(1.0)).max(0.001);
    if let (Some(first), Some(last)) =
        (truth["first_ts_us"].as_f64(), truth["last_end_us"].as_f64())
    {
        d.near(
            "first_us",
            us(run.first_ns).unwrap_or(f64::NAN),
            first,
            error_us,
        );
        d.near(
            "last_us",
            us(run.last_ns).unwrap_or(f64::NAN),
            last,
            error_us,
        );
    } else {
        d.equal("first", &run.first_ns.is_none(), &true);
    }
    let tracks: BTreeMap<&str, _> = run
        .track_list
        .iter()
        .map(|track| (track.key.as_str(), track))
        .collect();
    for row in truth["per_track"].as_array().unwrap() {
        let key = format!(
            "{}/{}",
            row["pid"].as_str().unwrap(),
            row["tid"].as_str().unwrap()
        );
        let events = row["events"].as_u64().unwrap();
        let Some(track) = tracks.get(key.as_str()) else {
            d.0.push(format!("no track {key} ({events} events)"));
            continue;
        };
        if pairs > 0 {
            continue;
        }
        d.equal(&format!("events of {key}"), &track.events, &events);
        // A nanosecond an event, and what the reference itself loses in double precision.
        let busy_us = track.busy_ns.ps() as f64 / 1e6;
        let within = events as f64 * (0.001 + double_error(origin_us));
        d.near(
            &format!("busy_us of {key}"),
            busy_us,
            row["busy_us"].as_f64().unwrap(),
            within,
        );
    }
    let flows: u64 = truth["flow_pairs"]
        .as_object()
        .unwrap()
        .values()
        .map(|v| v.as_u64().unwrap())
        .sum();
    d.equal("flows", &run.flows, &flows);
    differences.0
}

/// Compares with `profile_data.json`: jax's own reading of an XSpace.
fn compare_planes(run: &Run, file: &Value) -> Vec<String> {
    let mut differences = Differences(Vec::new());
    let d = &mut differences;
    let info = run_info(run);
    d.equal("slices", &info.slices, &file["events"].as_u64().unwrap());
    let trace = &run.trace;
    let origin_ps = i128::from(trace.epoch().origin_ns) * 1_000;
    // The lines of a plane in the file's order; several may have one name, so they are compared
    // as a sorted list of (plane, line, events, first, last, sum).
    let mut ours: Vec<(String, String, u64, i128, i128, i128)> = Vec::new();
    for (at, track) in trace.tracks().iter().enumerate() {
        if track.slices == 0 || track.derived {
            continue;
        }
        let slices = trace.slices(stepscope_model::TrackId(u32::try_from(at).unwrap()));
        let plane = track
            .parent
            .map_or(String::new(), |p| trace.tracks()[p.index()].key.clone());
        let first = slices.start.iter().map(|t| t.ps()).min().unwrap();
        let last = (0..slices.len()).map(|i| slices.end(i).ps()).max().unwrap();
        let sum: i128 = slices.dur.iter().map(|dur| i128::from(dur.ps())).sum();
        ours.push((
            plane,
            track.name.clone(),
            u64::from(track.slices),
            origin_ps + i128::from(first),
            origin_ps + i128::from(last),
            sum,
        ));
    }
    let mut theirs: Vec<(String, String, u64, f64, f64, f64)> = Vec::new();
    for plane in file["planes"].as_array().unwrap() {
        for line in plane["lines"].as_array().unwrap() {
            let events = line["events"].as_u64().unwrap();
            if events > 0 {
                theirs.push((
                    plane["name"].as_str().unwrap().to_owned(),
                    line["name"].as_str().unwrap().to_owned(),
                    events,
                    line["first_start_ns"].as_f64().unwrap(),
                    line["last_end_ns"].as_f64().unwrap(),
                    line["sum_duration_ns"].as_f64().unwrap(),
                ));
            }
        }
    }
    d.equal("lines with events", &ours.len(), &theirs.len());
    ours.sort_by(|a, b| (&a.0, a.2, a.3).cmp(&(&b.0, b.2, b.3)));
    theirs.sort_by(|a, b| (&a.0, a.2).cmp(&(&b.0, b.2)).then(a.3.total_cmp(&b.3)));
    for (our, their) in ours.iter().zip(&theirs) {
        let what = format!("{} / {}", their.0, their.1);
        d.equal(
            &format!("plane of {what}"),
            &our.0.split('#').next().unwrap(),
            &their.0.as_str(),
        );
        d.equal(&format!("events of {what}"), &our.2, &their.2);
        // jax cuts begins and lengths to whole nanoseconds, and gives doubles.
        let ns = |ps: i128| ps as f64 / 1e3;
        let events = their.2 as f64;
        d.near(
            &format!("first of {what}"),
            ns(our.3),
            their.3,
            1.0 + double_error(their.3),
        );
        d.near(
            &format!("last of {what}"),
            ns(our.4),
            their.4,
            2.0 + double_error(their.4),
        );
        d.near(
            &format!("sum of {what}"),
            ns(our.5),
            their.5,
            events * (1.0 + double_error(their.5)),
        );
    }
    differences.0
}

fn figures_equal_the_references(corpus: &Corpus) {
    let files = files(corpus.folder());
    let mut failures = Vec::new();
    let mut compared = (0, 0);
    println!(
        "{:<92} {:>12} {:>9} {:>7} {:>22} {:>22}  verdict",
        "file", "format", "slices", "tracks", "first_ns", "last_ns"
    );
    for path in &files {
        let shown = path
            .strip_prefix(corpus.folder())
            .unwrap()
            .display()
            .to_string();
        let shown = if shown.len() > 92 {
            format!("…{}", &shown[shown.len() - 91..])
        } else {
            shown
        };
        let outcome =
            std::panic::catch_unwind(|| open_one(path)).unwrap_or_else(|_| Err("panic".to_owned()));
        let run = match outcome {
            Ok(run) => run,
            Err(line) => {
                let allowed =
                    line.contains("recognised, not yet readable") || shown.starts_with("broken/");
                if !allowed || line.lines().count() > 2 || line == "panic" {
                    failures.push(format!("{shown}: {line}"));
                }
                println!("{shown:<92} {line}");
                continue;
            }
        };
        let info = run_info(&run);
        let mut verdicts = Vec::new();
        let mut wrong = Vec::new();
        if let Err(broken) = run.trace.debug_validate() {
            wrong.extend(
                broken
                    .into_iter()
                    .take(5)
                    .map(|line| format!("invariant: {line}")),
            );
        }
        if let Some(counts) = counts_of(path) {
            compared.0 += 1;
            let found = compare_counts(&info, &json(&counts));
            verdicts.push(if found.is_empty() {
                "= counts"
            } else {
                "DIFFERS from counts"
            });
            wrong.extend(found);
        }
        let planes = session_truth(path)
            .map(|truth| truth.join("profile_data.json"))
            .filter(|file| path.to_string_lossy().ends_with(".xplane.pb") && file.is_file());
        if let Some(planes) = planes {
            let truth = json(&planes);
            let name = path.file_name().unwrap().to_str().unwrap();
            let files = truth["files"].as_array().unwrap();
            let file = files
                .iter()
                .find(|file| file["file"] == name)
                .expect("a reference of the file");
            compared.1 += 1;
            let found = compare_planes(&run, file);
            verdicts.push(if found.is_empty() {
                "= jax"
            } else {
                "DIFFERS from jax"
            });
            wrong.extend(found);
        }
        if verdicts.is_empty() {
            verdicts.push("opened");
        }
        println!(
            "{shown:<92} {:>12} {:>9} {:>7} {:>22} {:>22}  {}",
            info.files[0].format,
            info.slices,
            info.tracks,
            info.first_ns.map_or(String::from("-"), |ns| ns.to_string()),
            info.last_ns.map_or(String::from("-"), |ns| ns.to_string()),
            verdicts.join(", "),
        );
        failures.extend(
            wrong
                .into_iter()
                .take(8)
                .map(|line| format!("{shown}: {line}")),
        );
    }
    println!(
        "{} files, {} compared with counts.json, {} with profile_data.json",
        files.len(),
        compared.0,
        compared.1
    );
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n")
    );
    let least = corpus.either((25, 15, 5), (100, 53, 20));
    assert!(
        files.len() > least.0,
        "the walk lost files: {}",
        files.len()
    );
    assert!(
        compared.0 >= least.1 && compared.1 >= least.2,
        "the walk lost reference figures: {compared:?}"
    );
}

/// Slices that come before the break, as `broken/expected.json` counts them.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn broken_files_give_the_slices_before_the_break() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let expected = json(&folder.join("broken/expected.json"));
    let mut broken = 0;
    for (name, about) in expected["files"].as_object().unwrap() {
        let outcome = open_one(&folder.join("broken").join(name));
        if let Ok(run) = &outcome {
            run.trace.debug_validate().unwrap();
        }
        let Some(slices) = about["X_before_the_break"].as_u64() else {
            continue;
        };
        broken += 1;
        let run = outcome.unwrap_or_else(|line| panic!("{name}: {line}"));
        let info = run_info(&run);
        assert_eq!(info.slices, slices, "{name}");
        // The bracket alone is missing: nothing is lost, and many writers leave it out.
        if name != "array_unclosed.json" {
            let told = info
                .warnings
                .iter()
                .any(|warning| warning.severity == "data-loss");
            assert!(told, "{name}: {:?}", info.warnings);
        }
    }
    assert_eq!(broken, 3);
    // An XSpace that jax refuses altogether.
    let run = open_one(&folder.join("broken/truncated.xplane.pb")).unwrap();
    let info = run_info(&run);
    assert!(info.slices > 0 && info.warnings.iter().any(|w| w.code == "truncated"));
    // One clear line, and a line of help.
    let line = open_one(&folder.join("broken/empty.json")).unwrap_err();
    assert!(
        line.ends_with("/empty.json: the file is empty\nhelp: copy it again from where it was recorded, or record it again"),
        "{line}"
    );
}

/// Group, name, slices, busy picoseconds, points, samples.
type TrackEssence = (String, String, u64, i128, u64, u64);

/// What a conversion must keep, in the words of `info`: per track (named by its group and itself)
/// its events and what they cover, and the counts of everything else.
fn essence(info: &RunInfo) -> (Vec<TrackEssence>, [u64; 6]) {
    let mut tracks: Vec<_> = info
        .track_list
        .iter()
        .map(|track| {
            (
                track.parent_name.clone().unwrap_or_default(),
                track.name.clone(),
                track.events,
                track.busy_ns.ps(),
                track.instants,
                track.samples,
            )
        })
        .collect();
    tracks.sort();
    let counts = [
        info.slices,
        info.async_slices,
        info.instants,
        info.counters,
        info.flows,
        info.steps,
    ];
    (tracks, counts)
}

/// Each format written by us is read back with the same content.
fn converted_traces_equal_their_origin(corpus: &Corpus) {
    let dir = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let collected = &[
        "torch_cpu/cpu_memory.pt.trace.json.gz",
        "jax_cpu/train_h2_p1/plugins/profile/2026_11_20_15_23_40/vm.xplane.pb",
        "torch_gpu/a100_alexnet_cuda_sync.json.gz",
        "xplane_real/tpu_v6e_inference/plugins/profile/run/host0.xplane.pb",
        "chrome_json/chrome_116_page.json.gz",
        "perfetto/nested_tracks.perfetto-trace",
    ][..];
    let every_size = ConvertOptions {
        may_be_large: true,
        ..ConvertOptions::default()
    };
    for name in corpus.either(&collected[..2], collected) {
        let input = corpus.path(name);
        let original = run_info(&open_one(&input).unwrap());
        for extension in ["xplane.pb", "json", "json.gz", "pftrace"] {
            let output = dir.path().join(format!("out.{extension}"));
            let context = Arc::new(ReadContext::default());
            let report = match stepscope_engine::convert(&input, &output, &context, every_size) {
                Ok(report) => report,
                Err(error) => {
                    failures.push(format!("{name} -> {extension}: {error}"));
                    continue;
                }
            };
            let run = open_one(&output).unwrap();
            run.trace.debug_validate().unwrap();
            let again = run_info(&run);
            assert_eq!(report.bytes, std::fs::metadata(&output).unwrap().len());
            let (expected, found) = (essence(&original), essence(&again));
            if expected.1 != found.1 {
                failures.push(format!(
                    "{name} -> {extension}: counts {:?}, were {:?}",
                    found.1, expected.1
                ));
            }
            // Perfetto holds whole nanoseconds: a slice may lose one.
            let lossy = i128::from(extension == "pftrace") * 1_000;
            let same = |a: &TrackEssence, b: &TrackEssence| {
                (&a.0, &a.1, a.2, a.4, a.5) == (&b.0, &b.1, b.2, b.4, b.5)
                    && (a.3 - b.3).abs() <= lossy * i128::from(a.2)
            };
            let pairs = found.0.iter().zip(&expected.0);
            for (ours, theirs) in pairs.filter(|(a, b)| !same(a, b)).take(3) {
                failures.push(format!(
                    "{name} -> {extension}: track {ours:?}, was {theirs:?}"
                ));
            }
            if expected.0.len() != found.0.len() {
                failures.push(format!(
                    "{name} -> {extension}: {} tracks, were {}",
                    found.0.len(),
                    expected.0.len()
                ));
            }
            let moved = |a: Option<Nanos>, b: Option<Nanos>| match (a, b) {
                (Some(a), Some(b)) => (a.ps() - b.ps()).abs() > lossy,
                (a, b) => a != b,
            };
            if moved(original.first_ns, again.first_ns) || moved(original.last_ns, again.last_ns) {
                failures.push(format!(
                    "{name} -> {extension}: {:?} to {:?}, was {:?} to {:?}",
                    again.first_ns, again.last_ns, original.first_ns, original.last_ns
                ));
            }
            if original.by_category != again.by_category {
                failures.push(format!(
                    "{name} -> {extension}: categories {:?}",
                    again.by_category
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Several ranks and several hosts are one run; a trace and its twin in another format are too.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn directories_are_listed_as_runs() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let open = |sub: &str| {
        let context = Arc::new(ReadContext::default());
        let runs = open_path(&folder.join(sub), &context, false).unwrap();
        runs.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let dlrm = open("torch_multirank/dlrm8");
    assert_eq!(dlrm.len(), 1);
    let info = run_info(&dlrm[0]);
    assert_eq!(info.ranks, [0, 1, 2, 3, 4, 5, 6, 7]);
    let single: u64 = (0..8)
        .map(|rank| {
            let name = format!("torch_multirank/dlrm8/dlrm_rank{rank}.pt.trace.json.gz");
            run_info(&open(&name)[0]).slices
        })
        .sum();
    assert_eq!(info.slices, single);
    dlrm[0].trace.debug_validate().unwrap();

    let hosts = open("jax_cpu/multihost2");
    assert_eq!(hosts.len(), 1);
    assert_eq!(run_info(&hosts[0]).hosts, ["host0", "host1"]);
    assert_eq!(hosts[0].companions.len(), 2);

    // Different programs in one folder stay apart.
    assert_eq!(open("torch_cpu").len(), 10);
    assert_eq!(open("jax_cpu/inference")[0].companions.len(), 2);
}
