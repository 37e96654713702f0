//! Perfetto traces: real ones, made ones, damaged ones, and round trips.

mod damage;
mod meaning;
mod round_trip;

use std::collections::BTreeMap;
use std::sync::Arc;

use stepscope_formats::probe::Probe;
use stepscope_formats::{FormatError, gzip, perfetto};
use stepscope_model::{Diagnostic, Limits, ReadContext, SharedBytes};

use stepscope_test_data::{self as traces, Corpus, corpus_tests};

fn read(bytes: Vec<u8>) -> Result<Probe, FormatError> {
    let mut probe = Probe::new();
    let bytes: SharedBytes = Arc::new(bytes);
    perfetto::read(&bytes, &ReadContext::default(), &mut probe)?;
    Ok(probe)
}

fn truth(folder: &std::path::Path, name: &str) -> serde_json::Value {
    let path = folder.join(format!("perfetto/{name}.truth/perfetto_counts.json"));
    serde_json::from_slice(&traces::bytes(&path)).unwrap()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn packets_of_a_real_trace_are_counted_by_kind() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let truth = truth(folder, "android_cpu");
    let raw = traces::bytes(&folder.join("perfetto/android_cpu.pftrace.gz"));
    let inflated = gzip::inflate(&raw, &Limits::default(), &ReadContext::default());
    assert_eq!(
        inflated.bytes.len() as u64,
        truth["raw_bytes"].as_u64().unwrap()
    );
    let probe = read(inflated.bytes).unwrap();

    let expected: BTreeMap<String, u64> = truth["by_kind"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(kind, count)| (kind.clone(), count.as_u64().unwrap()))
        .collect();
    let found: BTreeMap<String, u64> = probe
        .facts
        .iter()
        .filter_map(|(key, value)| {
            let count = value.trim_start_matches("Int(").trim_end_matches(')');
            Some((
                key.strip_prefix("packets.")?.to_owned(),
                count.parse().ok()?,
            ))
        })
        .collect();
    assert_eq!(found, expected);
    let told: Vec<_> = probe
        .diagnostics
        .iter()
        .map(|(what, _, detail)| (*what, detail.as_str()))
        .collect();
    assert!(told.contains(&(Diagnostic::UnknownEntry, "ftrace_events: 25079")));
    assert!(told.contains(&(Diagnostic::UnknownEntry, "statsd_atom: 3081")));
    assert_eq!(probe.slices.len(), 0);
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn a_thousand_nested_tracks() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let truth = truth(folder, "nested_tracks");
    let probe = read(traces::bytes(
        &folder.join("perfetto/nested_tracks.perfetto-trace"),
    ))
    .unwrap();
    let begins = truth["track_event_types"]["TYPE_SLICE_BEGIN"]
        .as_u64()
        .unwrap();
    assert_eq!(probe.slices.len() as u64, begins);
    let used: std::collections::BTreeSet<_> = probe.slices.iter().map(|s| &s.track).collect();
    assert_eq!(
        used.len() as u64,
        truth["track_descriptors"].as_u64().unwrap()
    );
    for (uuid, expected) in truth["tracks_first200"].as_object().unwrap() {
        let track = probe.find_track(&format!("track/{uuid}")).unwrap();
        assert_eq!(track.name, expected["name"].as_str().unwrap());
        let parent = expected["parent"].as_u64().unwrap();
        let parent = (parent != 0).then(|| format!("track/{parent}"));
        assert_eq!(track.parent, parent);
    }
    for entry in truth["track_event_names_top100"].as_array().unwrap() {
        let (name, count) = (entry[0].as_str().unwrap(), entry[1].as_u64().unwrap());
        let found = probe.slices.iter().filter(|s| s.name == name).count();
        assert_eq!(found as u64, count, "{name}");
    }
    let origin = probe.epoch.unwrap().origin_ns;
    let first = probe.slices.iter().map(|s| s.start_ps).min().unwrap();
    let last = probe
        .slices
        .iter()
        .map(|s| s.start_ps + s.dur_ps)
        .max()
        .unwrap();
    assert_eq!(
        origin + first / 1_000,
        truth["first_packet_ts"].as_i64().unwrap()
    );
    assert_eq!(
        origin + last / 1_000,
        truth["last_packet_ts"].as_i64().unwrap()
    );
    assert!(probe.diagnostics.is_empty(), "{:?}", probe.diagnostics);
    assert!(probe.slices.iter().all(|s| s.category == "app"));
}

#[cfg(feature = "chrome")]
corpus_tests!(json_becomes_a_small_perfetto_trace);

/// JSON traces become Perfetto traces of the same content and at most a fifth of the size.
#[cfg(feature = "chrome")]
fn json_becomes_a_small_perfetto_trace(corpus: &Corpus) {
    use stepscope_formats::{chrome_json, perfetto::PerfettoSink};

    let collected = &[
        "torch_gpu/h100_bert_small.json.gz",
        "torch_gpu/h100_owlv2.json.gz",
        "torch_cpu/cpu_modules.pt.trace.json.gz",
        "chrome_json/chrome_116_page.json.gz",
    ][..];
    for name in corpus.either(&collected[2..3], collected) {
        let raw = traces::bytes(&corpus.path(name));
        let json = gzip::inflate(&raw, &Limits::default(), &ReadContext::default()).bytes;
        let json_bytes = json.len();
        let json: SharedBytes = Arc::new(json);
        let mut before = Probe::new();
        chrome_json::read(&json, &ReadContext::default(), &mut before).unwrap();
        let mut sink = PerfettoSink::new(Vec::new());
        chrome_json::read(&json, &ReadContext::default(), &mut sink).unwrap();
        let file = sink.finish().unwrap();
        println!("{name}: {json_bytes} bytes of JSON, {} written", file.len());
        if let Some(keep) = std::env::var_os("STEPSCOPE_KEEP") {
            let stem = name.replace(['/', '.'], "_");
            std::fs::write(std::path::Path::new(&keep).join(stem + ".pftrace"), &file).unwrap();
        }
        let after = read(file).unwrap();

        let ns = |ps: i64| ps.div_euclid(1_000);
        let lines = |probe: &Probe| {
            let mut lines: Vec<String> = probe
                .slices
                .iter()
                .map(|s| {
                    let end_ns = ns(s.start_ps + s.dur_ps);
                    let args = probe.args(s.args);
                    format!(
                        "{} {} {end_ns} {} {} {args:?}",
                        s.track,
                        ns(s.start_ps),
                        s.name,
                        s.category
                    )
                })
                .collect();
            lines.sort();
            lines
        };
        assert!(lines(&before) == lines(&after), "{name}: slices");
        assert_eq!(before.instants.len(), after.instants.len(), "{name}");
        assert_eq!(before.samples.len(), after.samples.len(), "{name}");
        assert_eq!(before.flows.len(), after.flows.len(), "{name}");
        let tracks = |probe: &Probe| {
            let mut tracks = probe.tracks.clone();
            tracks.sort_by(|a, b| a.key.cmp(&b.key));
            tracks
        };
        assert_eq!(tracks(&before), tracks(&after), "{name}");
        assert_eq!(before.epoch, after.epoch, "{name}");
    }
}
