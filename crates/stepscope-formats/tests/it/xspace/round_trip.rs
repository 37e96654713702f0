//! What is emitted into the writer and read back is what was emitted.

use std::sync::Arc;

use proptest::prelude::*;
use stepscope_formats::probe::Probe;
use stepscope_formats::xspace::XSpaceSink;
use stepscope_formats::{Format, read};
use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Dur, Epoch, EventSink, FlowBind, FlowDirection, FlowKey,
    InstantIn, NameId, ReadContext, SharedBytes, SliceFlags, SliceFlow, SliceIn, SourceId, Time,
    TrackId, TrackKind, TrackPatch,
};

use stepscope_test_data::{self as traces, Corpus, corpus_tests};

#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Str(String),
    Json(String),
    Bytes(Vec<u8>),
}

impl Value {
    fn borrow(&self) -> ArgValue<'_> {
        match self {
            Self::Int(value) => ArgValue::Int(*value),
            Self::Uint(value) => ArgValue::Uint(*value),
            Self::Double(value) => ArgValue::Double(*value),
            Self::Bool(value) => ArgValue::Bool(*value),
            Self::Str(text) => ArgValue::Str(text),
            Self::Json(text) => ArgValue::Json(text),
            Self::Bytes(bytes) => ArgValue::Bytes(bytes),
        }
    }
}

type Args = Vec<(String, Value)>;

#[derive(Clone, Debug)]
struct Flow {
    category: String,
    id: u64,
    direction: FlowDirection,
}

#[derive(Clone, Debug)]
enum Event {
    Slice {
        start_ps: i64,
        dur_ps: i64,
        name: String,
        category: String,
        args: Args,
        step: Option<i64>,
        flags: u8,
        flows: Vec<Flow>,
    },
    Instant {
        at_ps: i64,
        name: String,
        category: String,
        args: Args,
    },
    Flow {
        at_ps: i64,
        flow: Flow,
        bind: FlowBind,
    },
    Sample {
        at_ps: i64,
        value: f64,
    },
}

#[derive(Clone, Debug)]
struct Track {
    key: String,
    kind: TrackKind,
    parent: Option<usize>,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    unit: Option<String>,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Model {
    epoch: Epoch,
    tracks: Vec<Track>,
    modules: Vec<(String, Option<u64>)>,
    facts: Args,
}

/// Arguments by token.
struct Fixed(Vec<Args>);

impl ArgSource for Fixed {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let args = usize::try_from(token).ok().and_then(|at| self.0.get(at));
        for (key, value) in args.ok_or(ArgError::BadToken)? {
            visit(key, value.borrow());
        }
        Ok(())
    }
}

/// Names that mean something to the reader, and others.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("step_num".to_owned()),
        Just("flow".to_owned()),
        Just("correlation_id".to_owned()),
        Just("_p".to_owned()),
        Just("_pt".to_owned()),
        Just("_c".to_owned()),
        Just("_flow".to_owned()),
        Just("_category".to_owned()),
        Just("_kind".to_owned()),
        Just("_track".to_owned()),
        Just("_unfinished".to_owned()),
        Just("counter_value".to_owned()),
        Just("group_id".to_owned()),
        "[a-zé ]{0,6}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        (0..4_i64).prop_map(Value::Int),
        (i64::MAX as u64 + 1..=u64::MAX).prop_map(Value::Uint),
        any::<f64>().prop_map(Value::Double),
        any::<bool>().prop_map(Value::Bool),
        "[ -~ü\n]{0,12}".prop_map(Value::Str),
        Just(Value::Str("instant".to_owned())),
        Just(Value::Str("out 3 x".to_owned())),
        "x{129,140}".prop_map(Value::Str),
        Just(Value::Json("[1,{\"a\":null}]".to_owned())),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(Value::Bytes),
    ]
}

fn args() -> impl Strategy<Value = Args> {
    prop::collection::vec((key(), value()), 0..4)
}

fn flow() -> impl Strategy<Value = Flow> {
    let category = prop_oneof![
        Just("flow".to_owned()),
        Just("flow pjrt".to_owned()),
        Just("correlation".to_owned()),
        Just("generic".to_owned()),
        "[a-z ]{0,5}",
    ];
    let id = prop_oneof![0..4_u64, any::<u64>()];
    let direction = prop_oneof![
        Just(FlowDirection::Out),
        Just(FlowDirection::Through),
        Just(FlowDirection::In),
    ];
    (category, id, direction).prop_map(|(category, id, direction)| Flow {
        category,
        id,
        direction,
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "train [0-9]", "[ -~ß<>]{0,8}"]
}

fn time_ps() -> impl Strategy<Value = i64> {
    prop_oneof![-5_000..5_000_i64, -(1_i64 << 60)..1 << 60]
}

fn dur_ps() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), 0..5_000_i64, 0..1_i64 << 60]
}

fn event() -> impl Strategy<Value = Event> {
    let slice = (
        time_ps(),
        dur_ps(),
        name(),
        "[xy]?",
        args(),
        prop::option::of(-3..9_i64),
        0..8_u8,
        prop::collection::vec(flow(), 0..3),
    )
        .prop_map(
            |(start_ps, dur_ps, name, category, args, step, flags, flows)| Event::Slice {
                start_ps,
                dur_ps,
                name,
                category,
                args,
                step,
                flags,
                flows,
            },
        );
    let instant = (time_ps(), name(), "[xy]?", args()).prop_map(|(at_ps, name, category, args)| {
        Event::Instant {
            at_ps,
            name,
            category,
            args,
        }
    });
    let bind = prop_oneof![Just(FlowBind::Enclosing), Just(FlowBind::Next)];
    let loose =
        (time_ps(), flow(), bind).prop_map(|(at_ps, flow, bind)| Event::Flow { at_ps, flow, bind });
    prop_oneof![4 => slice, 2 => instant, 1 => loose]
}

fn track() -> impl Strategy<Value = Track> {
    let kind = prop_oneof![
        Just(TrackKind::Group),
        Just(TrackKind::Thread),
        Just(TrackKind::DeviceQueue),
        Just(TrackKind::Async),
        Just(TrackKind::Steps),
    ];
    let sample =
        (time_ps(), -1e9..1e9_f64).prop_map(|(at_ps, value)| Event::Sample { at_ps, value });
    let thread = (kind, prop::collection::vec(event(), 0..6));
    let counter = prop::collection::vec(sample, 1..4).prop_map(|e| (TrackKind::Counter, e));
    let numbers = (
        prop::option::of(any::<i64>()),
        prop::option::of(any::<i64>()),
        prop::option::of(0..9_u32),
        prop::option::of(-1..9_i64),
        prop::option::of("[a-z]{1,3}"),
    );
    (
        prop_oneof![3 => thread, 1 => counter],
        prop::option::of(0..6_usize),
        numbers,
    )
        .prop_map(
            |((kind, events), parent, (pid, tid, device, stream, unit))| Track {
                key: String::new(),
                kind,
                parent,
                pid,
                tid,
                device,
                stream,
                unit,
                events,
            },
        )
}

fn model() -> impl Strategy<Value = Model> {
    let epoch = (
        prop_oneof![
            Just(0),
            any::<i32>().prop_map(i64::from),
            Just(1_700_000_000_000_000_000)
        ],
        prop::option::of(1_600_000_000_000_000_000..1_900_000_000_000_000_000_i64),
    )
        .prop_map(|(origin_ns, unix_ns)| Epoch { origin_ns, unix_ns });
    (
        epoch,
        prop::collection::vec(track(), 0..7),
        prop::collection::vec(("[a-z]{1,4}", prop::option::of(any::<u64>())), 0..2),
        prop::collection::vec(("[a-z.]{5,6}", value()), 0..3),
    )
        .prop_map(|(epoch, mut tracks, modules, facts)| {
            for at in 0..tracks.len() {
                tracks[at].key = format!("{at}/{}", at * 7);
                // Parents are groups or threads that come before, so that there is no ring.
                let parent = tracks[at]
                    .parent
                    .filter(|parent| *parent < at && tracks[*parent].kind != TrackKind::Counter);
                tracks[at].parent = parent;
            }
            Model {
                epoch,
                tracks,
                modules,
                facts,
            }
        })
}

/// Pours a model; odd tracks go through a fork, described only afterwards.
fn emit<S: EventSink>(model: &Model, sink: &mut S) {
    sink.epoch(model.epoch);
    let mut tokens = Vec::new();
    for track in &model.tracks {
        for event in &track.events {
            if let Event::Slice { args, .. } | Event::Instant { args, .. } = event {
                tokens.push(args.clone());
            }
        }
    }
    let source = sink.source(Arc::new(Fixed(tokens)));
    let mut token = 0;
    for (at, track) in model.tracks.iter().enumerate() {
        let id = sink.track(&track.key);
        if at % 2 == 1 {
            let mut fork = sink.fork();
            events(track, id, source, &mut token, &mut fork);
            sink.merge(fork);
        } else {
            events(track, id, source, &mut token, sink);
        }
        let parent = track
            .parent
            .map(|parent| sink.track(&model.tracks[parent].key));
        sink.describe(
            id,
            TrackPatch {
                name: Some(&format!("track {at}")),
                kind: Some(track.kind),
                parent,
                pid: track.pid,
                tid: track.tid,
                device: track.device,
                stream: track.stream,
                unit: track.unit.as_deref(),
                derived: (at % 3 == 0).then_some(true),
                ..TrackPatch::default()
            },
        );
    }
    for (name, program_id) in &model.modules {
        sink.module(name, *program_id);
    }
    for (key, value) in &model.facts {
        sink.fact(key, value.borrow());
    }
}

fn events<S: EventSink>(
    track: &Track,
    id: TrackId,
    source: SourceId,
    token: &mut u64,
    sink: &mut S,
) {
    let mut args_at = |args: &Args| {
        *token += 1;
        if args.is_empty() {
            ArgRef::NONE
        } else {
            ArgRef::new(source, *token - 1)
        }
    };
    for event in &track.events {
        match event {
            Event::Slice {
                start_ps,
                dur_ps,
                name,
                category,
                args,
                step,
                flags,
                flows,
            } => {
                let flows: Vec<_> = flows.iter().map(|flow| slice_flow(flow, sink)).collect();
                let slice = SliceIn {
                    start: Time::from_ps(*start_ps),
                    dur: Dur::from_ps(*dur_ps),
                    name: sink.name(name),
                    category: sink.name(category),
                    args: args_at(args),
                    step: *step,
                    flags: SliceFlags(*flags),
                    flows: &flows,
                };
                sink.slice(id, slice);
            }
            Event::Instant {
                at_ps,
                name,
                category,
                args,
            } => {
                let instant = InstantIn {
                    at: Time::from_ps(*at_ps),
                    name: sink.name(name),
                    category: sink.name(category),
                    args: args_at(args),
                };
                sink.instant(id, instant);
            }
            Event::Flow { at_ps, flow, bind } => {
                let flow = slice_flow(flow, sink);
                sink.flow(id, Time::from_ps(*at_ps), flow, *bind);
            }
            Event::Sample { at_ps, value } => sink.counter(id, Time::from_ps(*at_ps), *value),
        }
    }
}

fn slice_flow<S: EventSink>(flow: &Flow, sink: &mut S) -> SliceFlow {
    let category = if flow.category.is_empty() {
        NameId::EMPTY
    } else {
        sink.name(&flow.category)
    };
    SliceFlow {
        key: FlowKey {
            category,
            id: flow.id,
        },
        direction: flow.direction,
    }
}

/// Everything that has to survive, one text a thing, sorted; times on the file's own clock.
fn lines(probe: &Probe) -> Vec<String> {
    let origin_ps = i128::from(probe.epoch.unwrap().origin_ns) * 1_000;
    let on_clock = |ps: i64| origin_ps + i128::from(ps);
    let name = |key: &str| probe.find_track(key).unwrap().name.clone();
    let mut found = Vec::new();
    for track in &probe.tracks {
        found.push(format!(
            "track {:?} {:?} in {:?} pid {:?} tid {:?} device {:?} stream {:?} unit {:?} {}",
            track.name,
            track.kind,
            track.parent.as_deref().map(name),
            track.pid,
            track.tid,
            track.device,
            track.stream,
            track.unit,
            track.derived,
        ));
    }
    for slice in &probe.slices {
        found.push(format!(
            "slice {} {} {} {:?} {:?} {:?} {} {:?} {:?}",
            name(&slice.track),
            on_clock(slice.start_ps),
            slice.dur_ps,
            slice.name,
            slice.category,
            slice.step,
            slice.flags,
            slice.flows,
            probe.args(slice.args),
        ));
    }
    for instant in &probe.instants {
        found.push(format!(
            "instant {} {} {:?} {:?} {:?}",
            name(&instant.track),
            on_clock(instant.at_ps),
            instant.name,
            instant.category,
            probe.args(instant.args),
        ));
    }
    for flow in &probe.flows {
        found.push(format!(
            "flow {} {} {:?} {} {} {}",
            name(&flow.track),
            on_clock(flow.at_ps),
            flow.category,
            flow.id,
            flow.direction,
            flow.bind,
        ));
    }
    for (track, at_ps, value) in &probe.samples {
        let track = name(track);
        found.push(format!("sample {track} {} {value}", on_clock(*at_ps)));
    }
    for module in &probe.modules {
        found.push(format!("module {module:?}"));
    }
    found.sort();
    found
}

fn written(emit: impl FnOnce(&mut XSpaceSink)) -> (Vec<u8>, Probe) {
    let mut sink = XSpaceSink::new();
    emit(&mut sink);
    let file = sink.finish(Vec::new()).unwrap();
    let bytes: SharedBytes = Arc::new(file.clone());
    let mut back = Probe::new();
    read(Format::XSpace, &bytes, &ReadContext::default(), &mut back).unwrap();
    (file, back)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trace_comes_back(model in model()) {
        let mut probe = Probe::new();
        emit(&model, &mut probe);
        let (_, back) = written(|sink| emit(&model, sink));
        prop_assert_eq!(lines(&back), lines(&probe));

        let (ours, theirs) = (back.epoch.unwrap(), model.epoch);
        let to_unix = |epoch: Epoch| epoch.unix_ns.map(|unix_ns| unix_ns - epoch.origin_ns);
        prop_assert_eq!(to_unix(ours), to_unix(theirs));
        for (key, value) in &probe.facts {
            let is_bytes = value.starts_with("Bytes");
            let last = probe.facts.iter().rfind(|fact| fact.0 == *key).unwrap();
            let found = back.facts.iter().rfind(|fact| fact.0 == *key);
            if !is_bytes && last.1 == *value {
                let json_as_text = value.replacen("Json(", "Str(", 1);
                prop_assert_eq!(&found.unwrap().1, &json_as_text);
            }
        }
    }
}

corpus_tests!(second_conversion_changes_nothing,);

fn second_conversion_changes_nothing(corpus: &Corpus) {
    let folder = corpus.folder();
    let mut converted = 0;
    for path in traces::files(folder) {
        if !path.to_string_lossy().ends_with(".xplane.pb") {
            continue;
        }
        let bytes: SharedBytes = Arc::new(traces::bytes(&path));
        let mut probe = Probe::new();
        let context = ReadContext::default();
        if read(Format::XSpace, &bytes, &context, &mut probe).is_err() {
            continue;
        }
        let convert = |bytes: &SharedBytes| {
            written(|sink| read(Format::XSpace, bytes, &context, sink).unwrap())
        };
        let (once, back) = convert(&bytes);
        let (after, before) = (lines(&back), lines(&probe));
        for (after, before) in after.iter().zip(&before) {
            assert_eq!(after, before, "{}", path.display());
        }
        assert_eq!(after.len(), before.len(), "{}", path.display());
        // Keys of tracks are links that users keep.
        for track in &probe.tracks {
            assert!(
                back.find_track(&track.key).is_some(),
                "{} lost {}",
                path.display(),
                track.key
            );
        }
        let (twice, _) = convert(&(Arc::new(once.clone()) as SharedBytes));
        assert!(once == twice, "{}", path.display());
        converted += 1;
    }
    assert!(
        converted > corpus.either(5, 20),
        "only {converted} files were converted"
    );
}
