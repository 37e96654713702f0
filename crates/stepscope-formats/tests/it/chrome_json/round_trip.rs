//! Pour, write, read: the same.

use std::sync::Arc;

use proptest::prelude::*;
use stepscope_formats::chrome_json::{ChromeSink, read as read_chrome};
use stepscope_formats::probe::Probe;
use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Diagnostic, Dur, Epoch, EventSink, FlowBind,
    FlowDirection, FlowKey, InstantIn, ReadContext, SliceFlags, SliceFlow, SliceIn, SourceId, Time,
    TrackKind, TrackPatch,
};

use super::{open, read, read_with, shared};
use stepscope_test_data::{Corpus, corpus_tests};

#[derive(Clone, Debug)]
enum Arg {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Str(String),
    Json(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Track {
    key: String,
    kind: TrackKind,
    name: Option<String>,
    parent: bool,
    numbers: (Option<i64>, Option<u32>, Option<i64>, Option<i64>),
}

#[derive(Clone, Debug)]
struct Slice {
    track: prop::sample::Index,
    start_ps: i64,
    dur_ps: i64,
    name: String,
    category: String,
    step: Option<i64>,
    flags: u8,
    args: Vec<(String, Arg)>,
    flows: Vec<(String, u64, FlowDirection)>,
}

type Instant = (prop::sample::Index, i64, String, Vec<(String, Arg)>);

#[derive(Clone, Debug)]
struct Run {
    epoch: Epoch,
    tracks: Vec<Track>,
    slices: Vec<Slice>,
    instants: Vec<Instant>,
    samples: Vec<(prop::sample::Index, i64, f64)>,
    flows: Vec<(
        prop::sample::Index,
        i64,
        String,
        u64,
        FlowDirection,
        FlowBind,
    )>,
    facts: Vec<(String, Arg)>,
}

/// Arguments kept in memory; the token is their place.
struct RecordedArgs(Vec<Vec<(String, Arg)>>);

fn with_arg(arg: &Arg, then: impl FnOnce(ArgValue<'_>)) {
    then(match arg {
        Arg::Int(number) => ArgValue::Int(*number),
        Arg::Uint(number) => ArgValue::Uint(*number),
        Arg::Double(number) => ArgValue::Double(*number),
        Arg::Bool(is) => ArgValue::Bool(*is),
        Arg::Str(text) => ArgValue::Str(text),
        Arg::Json(text) => ArgValue::Json(text),
        Arg::Bytes(bytes) => ArgValue::Bytes(bytes),
    });
}

impl ArgSource for RecordedArgs {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        for (key, arg) in &self.0[usize::try_from(token).unwrap()] {
            with_arg(arg, |value| visit(key, value));
        }
        Ok(())
    }
}

fn emit<S: EventSink>(run: &Run, sink: &mut S) {
    sink.epoch(run.epoch);
    let lists = run.slices.iter().map(|slice| slice.args.clone());
    let lists = lists.chain(run.instants.iter().map(|instant| instant.3.clone()));
    let source = sink.source(Arc::new(RecordedArgs(lists.collect())));
    let group = sink.track("9");
    sink.describe(
        group,
        TrackPatch {
            kind: Some(TrackKind::Group),
            name: Some("a group"),
            ..TrackPatch::default()
        },
    );
    let mut ids = Vec::new();
    for track in &run.tracks {
        let id = sink.track(&track.key);
        let (pid, device, stream, sort_index) = track.numbers;
        sink.describe(
            id,
            TrackPatch {
                name: track.name.as_deref(),
                kind: Some(track.kind),
                parent: track.parent.then_some(group),
                pid,
                device,
                stream,
                sort_index,
                ..TrackPatch::default()
            },
        );
        ids.push((id, track.kind));
    }
    let counters: Vec<_> = ids
        .iter()
        .filter(|id| id.1 == TrackKind::Counter)
        .map(|id| id.0)
        .collect();
    let rows: Vec<_> = ids
        .iter()
        .filter(|id| id.1 != TrackKind::Counter)
        .map(|id| id.0)
        .collect();
    for (token, slice) in run.slices.iter().enumerate() {
        let flows: Vec<_> = slice
            .flows
            .iter()
            .map(|(category, id, direction)| SliceFlow {
                key: FlowKey {
                    category: sink.name(category),
                    id: *id,
                },
                direction: *direction,
            })
            .collect();
        let name = sink.name(&slice.name);
        let category = sink.name(&slice.category);
        let emitted = SliceIn {
            start: Time::from_ps(slice.start_ps),
            dur: Dur::from_ps(slice.dur_ps),
            name,
            category,
            args: arg_ref(source, token, &slice.args),
            step: slice.step,
            flags: SliceFlags(slice.flags),
            flows: &flows,
        };
        sink.slice(*slice.track.get(&rows), emitted);
    }
    for (token, (track, at_ps, name, args)) in run.instants.iter().enumerate() {
        let instant = InstantIn {
            at: Time::from_ps(*at_ps),
            name: sink.name(name),
            category: sink.name("instant category"),
            args: arg_ref(source, run.slices.len() + token, args),
        };
        sink.instant(*track.get(&rows), instant);
    }
    if !counters.is_empty() {
        for (track, at_ps, value) in &run.samples {
            sink.counter(*track.get(&counters), Time::from_ps(*at_ps), *value);
        }
    }
    for (track, at_ps, category, id, direction, bind) in &run.flows {
        let key = FlowKey {
            category: sink.name(category),
            id: *id,
        };
        let flow = SliceFlow {
            key,
            direction: *direction,
        };
        sink.flow(*track.get(&rows), Time::from_ps(*at_ps), flow, *bind);
    }
    for (key, arg) in &run.facts {
        with_arg(arg, |value| sink.fact(key, value));
    }
    sink.module("jit_step", Some(u64::MAX));
    sink.diagnose(Diagnostic::OpenFlow, 3, "three \"open\" ends");
}

fn arg_ref(source: SourceId, token: usize, args: &[(String, Arg)]) -> ArgRef {
    if args.is_empty() {
        ArgRef::NONE
    } else {
        ArgRef::new(source, token as u64)
    }
}

fn arg() -> impl Strategy<Value = Arg> {
    prop_oneof![
        any::<i64>().prop_map(Arg::Int),
        (1_u64 << 63..=u64::MAX).prop_map(Arg::Uint),
        any::<f64>().prop_map(Arg::Double),
        any::<bool>().prop_map(Arg::Bool),
        any::<String>().prop_map(Arg::Str),
        prop_oneof![
            Just("[1, {\"a\": \"\\u00e9\"}]"),
            Just("null"),
            Just("[NaN]"),
            Just("{\"a\":\"\u{1}\"}"),
            Just("[1")
        ]
        .prop_map(|text| Arg::Json(text.to_owned())),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Arg::Bytes),
    ]
}

fn args() -> impl Strategy<Value = Vec<(String, Arg)>> {
    prop::collection::btree_map(any::<String>(), arg(), 0..4)
        .prop_map(|map| map.into_iter().collect())
}

fn direction() -> impl Strategy<Value = FlowDirection> {
    prop_oneof![
        Just(FlowDirection::Out),
        Just(FlowDirection::Through),
        Just(FlowDirection::In)
    ]
}

fn track() -> impl Strategy<Value = Track> {
    let key = prop_oneof![
        "[0-9]{1,3}/[0-9]{1,3}",
        "/(host|device):[A-Z]{3}/-?[0-9]{1,20}",
        "[a-z]{1,3}",
        "[a-z/\"\\\\é]{1,6}",
        "[0-9]/counter/[a-z/]{1,4}/[a-z]{0,3}",
        "[0-9]/async/[a-z]{1,3}/[a-z]{1,3}",
    ];
    let kind = prop_oneof![
        3 => Just(TrackKind::Thread),
        1 => Just(TrackKind::DeviceQueue),
        1 => Just(TrackKind::Async),
        1 => Just(TrackKind::Steps),
        2 => Just(TrackKind::Counter),
    ];
    (
        key,
        kind,
        prop::option::of(any::<String>()),
        any::<bool>(),
        any::<(Option<i64>, Option<u32>, Option<i64>, Option<i64>)>(),
    )
        .prop_map(|(key, kind, name, parent, numbers)| Track {
            key,
            kind,
            name: name.filter(|name| !name.is_empty()),
            parent,
            numbers,
        })
}

fn slice() -> impl Strategy<Value = Slice> {
    (
        any::<prop::sample::Index>(),
        -1_000_000_000_000_000_i64..1_000_000_000_000_000,
        0..1_000_000_000_000_i64,
        prop_oneof![any::<String>(), Just("ProfilerStep#3".to_owned())],
        prop_oneof![
            any::<String>(),
            Just(String::new()),
            Just("cpu_op".to_owned())
        ],
        prop::option::of(any::<i64>()),
        0..8_u8,
        args(),
        prop::collection::vec((any::<String>(), any::<u64>(), direction()), 0..3),
    )
        .prop_map(
            |(track, start_ps, dur_ps, name, category, step, flags, args, flows)| Slice {
                track,
                start_ps,
                dur_ps,
                name,
                category,
                step,
                flags,
                args,
                flows,
            },
        )
}

fn run() -> impl Strategy<Value = Run> {
    let time = -1_000_000_000_000_000_i64..1_000_000_000_000_000;
    let index = any::<prop::sample::Index>;
    let bind = prop_oneof![Just(FlowBind::Enclosing), Just(FlowBind::Next)];
    let epoch = (
        -1_000_000_000_000_000_000_i64..2_000_000_000_000_000_000,
        any::<Option<u32>>(),
    );
    (
        epoch,
        prop::collection::vec(track(), 1..8),
        prop::collection::vec(slice(), 0..12),
        prop::collection::vec((index(), time.clone(), any::<String>(), args()), 0..6),
        prop::collection::vec((index(), time.clone(), -1e300..1e300_f64), 0..6),
        prop::collection::vec(
            (
                index(),
                time,
                any::<String>(),
                any::<u64>(),
                direction(),
                bind,
            ),
            0..6,
        ),
        prop::collection::btree_map(any::<String>(), arg(), 0..4),
    )
        .prop_map(
            |(epoch, mut tracks, slices, instants, samples, flows, facts)| {
                tracks.sort_by(|a, b| a.key.cmp(&b.key));
                tracks.dedup_by(|a, b| a.key == b.key);
                tracks.retain(|track| track.key != "9");
                tracks.push(Track {
                    key: "1/1".to_owned() + "x",
                    kind: TrackKind::Thread,
                    name: None,
                    parent: false,
                    numbers: (None, None, None, None),
                });
                Run {
                    epoch: Epoch {
                        origin_ns: epoch.0,
                        unix_ns: epoch.1.map(|unix| i64::from(unix) * 1_000_000_000),
                    },
                    tracks,
                    slices,
                    instants,
                    samples,
                    flows,
                    facts: facts.into_iter().collect(),
                }
            },
        )
}

/// A probe's content in an order of its own, arguments resolved.
fn description(probe: &Probe) -> Vec<String> {
    let mut all = vec![format!("{:?}", probe.epoch)];
    for track in &probe.tracks {
        all.push(format!("{track:?}"));
    }
    for slice in &probe.slices {
        let args = probe.args(slice.args);
        let mut slice = slice.clone();
        slice.args = ArgRef::NONE;
        all.push(format!("{slice:?} {args:?}"));
    }
    for instant in &probe.instants {
        let args = probe.args(instant.args);
        let mut instant = instant.clone();
        instant.args = ArgRef::NONE;
        all.push(format!("{instant:?} {args:?}"));
    }
    all.extend(probe.samples.iter().map(|sample| format!("{sample:?}")));
    all.extend(probe.flows.iter().map(|flow| format!("{flow:?}")));
    all.extend(probe.modules.iter().map(|module| format!("{module:?}")));
    let mut facts = probe.facts.clone();
    facts.sort();
    all.extend(facts.iter().map(|fact| format!("{fact:?}")));
    all.extend(
        probe
            .diagnostics
            .iter()
            .filter(|said| said.0 != Diagnostic::EmptyTrace)
            .map(|said| format!("{said:?}")),
    );
    all.sort();
    all
}

fn write(emit: impl FnOnce(&mut ChromeSink<Vec<u8>>)) -> Vec<u8> {
    let mut sink = ChromeSink::new(Vec::new());
    emit(&mut sink);
    sink.finish().unwrap()
}

fn check(run: &Run) -> Result<(), TestCaseError> {
    let mut first = Probe::new();
    emit(run, &mut first);
    let written = write(|sink| emit(run, sink));
    let text = String::from_utf8(written).unwrap();
    if let Err(error) = serde_json::from_str::<serde_json::Value>(&text) {
        prop_assert!(false, "not strict JSON: {error}\n{text}");
    }
    let second = read(text.clone());
    let (first, second) = (description(&first), description(&second));
    for (before, after) in first.iter().zip(&second) {
        prop_assert_eq!(before, after, "\n{}", text);
    }
    prop_assert_eq!(first.len(), second.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_comes_back(run in run()) {
        check(&run)?;
    }
}

corpus_tests!(written_traces_equal_what_was_read);

fn written_traces_equal_what_was_read(corpus: &Corpus) {
    let committed = &[
        "torch_cpu/cpu_memstack.pt.trace.json.gz",
        "jax_cpu/train_h2_p1/plugins/profile/2026_11_20_15_23_40/vm.trace.json.gz",
        "neuron_like/two_cores/neuron_trace.json",
    ][..];
    let collected = &[
        "torch_gpu/h100_bert_small.json.gz",
        "torch_gpu/mtia_inference.json.gz",
        "chrome_json/chrome_116_page.json.gz",
        "jax_cpu/train_h2_p0/plugins/profile/2026_11_20_15_23_38/vm.trace.json.gz",
        "neuron_like/two_cores/neuron_trace.json",
        "broken/begin_end_unbalanced.json",
        "broken/truncated.json",
    ];
    for name in corpus.either(committed, collected) {
        let bytes = shared(open(&corpus.path(name)));
        let first = read_with(&bytes, 1).unwrap();
        let context = ReadContext::default();
        let written = write(|sink| read_chrome(&bytes, &context, sink).unwrap());
        let second = read(written);
        let (first, second) = (description(&first), description(&second));
        for (before, after) in first.iter().zip(&second) {
            assert_eq!(before, after, "{name}");
        }
        assert_eq!(first.len(), second.len(), "{name}");
    }
}

#[test]
fn forks_write_the_same_as_one_sink() {
    let event = |number: usize| {
        format!(
            r#"{{"ph":"X","name":"n{}","cat":"c","pid":1,"tid":{},"ts":{number},"dur":1,"args":{{"a":"{}"}}}}"#,
            number % 97,
            number % 5,
            "x".repeat(200)
        )
    };
    let events: Vec<_> = (0..40_000).map(event).collect();
    let bytes = shared(format!("[{}]", events.join(",")));
    let texts: Vec<_> = [1, 2]
        .into_iter()
        .map(|threads| {
            let mut context = ReadContext::default();
            context.threads = threads;
            write(|sink| read_chrome(&bytes, &context, sink).unwrap())
        })
        .collect();
    assert!(texts[0] == texts[1]);
}

#[test]
fn an_error_of_the_writer_is_returned_at_the_end() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut sink = ChromeSink::new(Full);
    sink.epoch(Epoch::default());
    let error = sink.finish().err().map(|error| error.kind());
    assert_eq!(error, Some(std::io::ErrorKind::StorageFull));
}
