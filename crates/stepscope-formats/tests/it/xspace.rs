//! `XSpace`: real files against `jax.profiler.ProfileData`, and damaged ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stepscope_formats::probe::Probe;
use stepscope_formats::xspace::{
    COUNTERS_LINE, EventKind, HOST_PLANE, LineWriter, PlaneWriter, TrackRecord, WrittenStat,
    WrittenStatValue, XSpaceWriter,
};
use stepscope_formats::{Format, FormatError, read};
use stepscope_model::{Diagnostic, ReadContext, SharedBytes};

use stepscope_test_data::{self as traces, Corpus, corpus_tests};

mod damaged;
mod encoder;
mod neuron;
mod odd;
mod round_trip;

fn probe(bytes: Vec<u8>) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes);
    let mut probe = Probe::new();
    read(Format::XSpace, &bytes, &ReadContext::default(), &mut probe)?;
    Ok(probe)
}

/// The reference figures of the log folder that a file lies in.
fn truth(path: &Path) -> Option<serde_json::Value> {
    let run = path
        .ancestors()
        .find(|path| path.join("plugins").is_dir())?;
    let truth = run.with_extension("truth").join("profile_data.json");
    let text = truth.is_file().then(|| traces::bytes(&truth))?;
    serde_json::from_slice(&text).ok()
}

/// Events, sum of durations, first start and last end of a line, in picoseconds.
#[derive(Debug, Default, Clone)]
struct Line {
    name: String,
    events: u64,
    sum_ps: i128,
    first_ps: Option<i128>,
    last_ps: Option<i128>,
}

/// Lines in the order of the file, by the track keys that we gave them.
fn lines(probe: &Probe) -> Vec<Line> {
    let origin_ps = i128::from(probe.epoch.unwrap().origin_ns) * 1_000;
    let mut by_key = BTreeMap::<&str, Line>::new();
    for slice in &probe.slices {
        let line = by_key.entry(&slice.track).or_default();
        let start = origin_ps + i128::from(slice.start_ps);
        let end = start + i128::from(slice.dur_ps);
        line.events += 1;
        line.sum_ps += i128::from(slice.dur_ps);
        line.first_ps = Some(line.first_ps.map_or(start, |first| first.min(start)));
        line.last_ps = Some(line.last_ps.map_or(end, |last| last.max(end)));
    }
    probe
        .tracks
        .iter()
        .filter(|track| track.parent.is_some())
        .map(|track| Line {
            name: track.name.clone(),
            ..by_key.get(track.key.as_str()).cloned().unwrap_or_default()
        })
        .collect()
}

corpus_tests!(lines_and_events_equal_jax_profile_data,);

fn lines_and_events_equal_jax_profile_data(corpus: &Corpus) {
    let folder = corpus.folder();
    let mut compared = 0;
    println!("{:>9} {:>7} {:>5}  file", "bytes", "events", "lines");
    for path in traces::files(folder) {
        let Some(truth) = truth(&path) else {
            continue;
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        let of_files = truth["files"].as_array().unwrap();
        for of_file in of_files.iter().filter(|file| file["file"] == name) {
            let bytes = traces::bytes(&path);
            let length = bytes.len();
            let probe = probe(bytes).unwrap();
            let ours = lines(&probe);
            let theirs: Vec<_> = of_file["planes"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|plane| plane["lines"].as_array().unwrap())
                .collect();
            assert_eq!(ours.len(), theirs.len(), "{}", path.display());
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let place = format!("{} {}", path.display(), ours.name);
                assert_eq!(ours.name, theirs["name"].as_str().unwrap(), "{place}");
                assert_eq!(ours.events, theirs["events"].as_u64().unwrap(), "{place}");
                let close = |ours: i128, field: &str, rounded: u64| {
                    // The reference is in floats, each event rounded to a nanosecond.
                    let theirs = theirs[field].as_f64().unwrap();
                    let off = (ours as f64 / 1_000.0 - theirs).abs();
                    let allowed = (theirs.abs() * 4.0 * f64::EPSILON).max(rounded as f64);
                    assert!(off <= allowed, "{place} {field}: {ours} ps, {theirs} ns");
                };
                if ours.events > 0 {
                    close(ours.sum_ps, "sum_duration_ns", ours.events);
                    close(ours.first_ps.unwrap(), "first_start_ns", 1);
                    close(ours.last_ps.unwrap(), "last_end_ns", 2);
                }
            }
            for what in [
                Diagnostic::Unreadable,
                Diagnostic::Truncated,
                Diagnostic::BadTime,
                Diagnostic::MissingMetadata,
            ] {
                assert_eq!(probe.count(what), 0, "{}: {what:?}", path.display());
            }
            println!(
                "{length:>9} {:>7} {:>5}  {}",
                probe.slices.len(),
                ours.len(),
                path.strip_prefix(folder).unwrap().display()
            );
            compared += 1;
        }
    }
    assert!(
        compared >= corpus.either(5, 20),
        "only {compared} files were compared"
    );
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn damaged_files_give_their_good_part_and_a_diagnostic() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let read = |name: &str| probe(traces::bytes(&folder.join("broken").join(name)));

    let empty = read("empty.xplane.pb").unwrap();
    assert_eq!(empty.count(Diagnostic::EmptyTrace), 1);
    assert_eq!(empty.slices.len(), 0);

    let cut = read("truncated.xplane.pb").unwrap();
    println!("cut: {} slices, {:?}", cut.slices.len(), cut.diagnostics);
    assert!(!cut.slices.is_empty());
    assert_eq!(cut.count(Diagnostic::Truncated), 1);
    assert_eq!(cut.count(Diagnostic::Unreadable), 0);

    // Its very first length was destroyed.
    let mangled = read("tpu_utf8_mangled.xplane.pb")
        .err()
        .unwrap()
        .to_string();
    println!("mangled: {mangled}");
    assert!(mangled.contains("U+FFFD"), "{mangled}");
    assert!(!mangled.contains('\n'), "{mangled}");
}

#[test]
fn written_xspaces_are_read_back() {
    let mut plane = PlaneWriter::new(HOST_PLANE);
    let pid = plane.stat("process_id");
    plane.add_stat(pid, WrittenStatValue::Int(42));
    let forward = plane.event("forward");
    let step = plane.event("train");
    let loaded = plane.event_of("loaded", "io", EventKind::Instant);
    let number = plane.step_number();
    let batch = plane.stat("batch");
    let shape = plane.stat("shape");
    let text = plane.text("f32[8]");
    let mut line = LineWriter::new(-7, "python", 1_000);
    let stat = |id, value| WrittenStat { id, value };
    line.span(step, 0, 5_000, &[stat(number, WrittenStatValue::Int(3))]);
    let stats = [
        stat(batch, WrittenStatValue::Uint(u64::MAX)),
        stat(shape, WrittenStatValue::Text(text)),
    ];
    line.span(forward, 100, 2_000, &stats);
    line.point(loaded, 2_500, &[]);
    plane.add_line(line);
    let loss = plane.counter("loss", &TrackRecord::default());
    let value = plane.stat("counter_value");
    let mut line = LineWriter::new(1, COUNTERS_LINE, 0);
    line.sample(loss, 7, value, 0.5);
    plane.add_line(line);

    let mut writer = XSpaceWriter::new(Vec::new());
    writer.hostname("vm").unwrap();
    writer.plane(&plane).unwrap();
    writer
        .task_environment(1_700_000_000_000_000_000, 1_700_000_001_000_000_000)
        .unwrap();
    let probe = probe(writer.finish().unwrap()).unwrap();

    assert_eq!(
        probe.epoch.unwrap().unix_ns,
        Some(1_700_000_000_000_000_000)
    );
    let thread = probe.find_track("/host:CPU/-7").unwrap();
    assert_eq!((thread.pid, thread.tid), (Some(42), Some(0xffff_fff9)));
    let intervals: Vec<_> = probe
        .slices
        .iter()
        .map(|s| (s.start_ps, s.dur_ps))
        .collect();
    assert_eq!(intervals, [(1_000_000, 5_000), (1_000_100, 2_000)]);
    assert_eq!(probe.slices[0].step, Some(3));
    assert_eq!(probe.args(probe.slices[0].args), []);
    assert_eq!(
        probe.args(probe.slices[1].args),
        [
            ("batch".to_owned(), format!("Uint({})", u64::MAX)),
            ("shape".to_owned(), "Str(\"f32[8]\")".to_owned())
        ]
    );
    assert_eq!(probe.instants[0].at_ps, 1_002_500);
    assert_eq!(probe.instants[0].category, "io");
    assert_eq!(
        probe.samples,
        [("/host:CPU/counter/loss".to_owned(), 7, 0.5)]
    );
    assert_eq!(probe.diagnostics, []);
}
