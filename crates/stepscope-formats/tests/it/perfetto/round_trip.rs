//! Random traces, written and read back.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stepscope_formats::perfetto::{self, PerfettoSink};
use stepscope_formats::probe::Probe;
use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Diagnostic, Dur, Epoch, EventSink, FlowBind,
    FlowDirection, FlowKey, InstantIn, ReadContext, SharedBytes, SliceFlags, SliceFlow, SliceIn,
    Time, TrackKind, TrackPatch,
};

/// Arguments by token.
#[derive(Debug, Default)]
struct Given(Vec<Vec<(String, Value)>>);

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

impl ArgSource for Given {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let args = self.0.get(usize::try_from(token).unwrap());
        for (key, value) in args.ok_or(ArgError::BadToken)? {
            let value = match value {
                Value::Int(v) => ArgValue::Int(*v),
                Value::Uint(v) => ArgValue::Uint(*v),
                Value::Double(v) => ArgValue::Double(*v),
                Value::Bool(v) => ArgValue::Bool(*v),
                Value::Str(v) => ArgValue::Str(v),
                Value::Json(v) => ArgValue::Json(v),
                Value::Bytes(v) => ArgValue::Bytes(v),
            };
            visit(key, value);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Slice {
    track: usize,
    start_ps: i64,
    dur_ps: i64,
    name: usize,
    category: usize,
    step: Option<i64>,
    flags: u8,
    flow: Option<(usize, u64, u8)>,
    args: Vec<(String, Value)>,
}

/// Kind, parent, pid and tid of a track.
type Track = (u8, Option<usize>, Option<i64>, Option<i64>);

#[derive(Clone, Debug)]
struct GeneratedRun {
    epoch: (i64, Option<i64>),
    tracks: Vec<Track>,
    slices: Vec<Slice>,
    instants: Vec<(usize, i64, usize)>,
    samples: Vec<(i64, f64)>,
    flows: Vec<(usize, i64, u64, u8, bool)>,
}

const NAMES: [&str; 6] = [
    "",
    "forward",
    "aten::mm",
    "<b>\u{202e}",
    "naïve\n",
    "ProfilerStep#1",
];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        (1_u64 << 63..).prop_map(Value::Uint),
        any::<f64>().prop_map(Value::Double),
        any::<bool>().prop_map(Value::Bool),
        "[a-c]{0,8}".prop_map(Value::Str),
        Just(Value::Json("{\"a\":[1,null]}".to_owned())),
        proptest::collection::vec(any::<u8>(), 0..5).prop_map(Value::Bytes),
    ]
}

fn made() -> impl Strategy<Value = GeneratedRun> {
    let args = proptest::collection::vec(("[x-z]{0,2}", value()), 0..3);
    let flow = proptest::option::of((0_usize..4, prop_oneof![0_u64..5, any::<u64>()], 0_u8..3));
    let slice = (
        (
            0_usize..5,
            -50_000_i64..50_000,
            0_i64..30_000,
            0_usize..6,
            0_usize..3,
        ),
        (proptest::option::of(any::<i64>()), 0_u8..8, flow, args),
    )
        .prop_map(|((track, start_ps, dur_ps, name, category), rest)| Slice {
            track,
            start_ps,
            dur_ps,
            name,
            category,
            step: rest.0,
            flags: rest.1,
            flow: rest.2,
            args: rest.3,
        });
    (
        (any::<i64>(), proptest::option::of(any::<i64>())),
        proptest::collection::vec(
            (
                0_u8..6,
                proptest::option::of(0_usize..5),
                proptest::option::of(-1_i64..3),
                proptest::option::of(0_i64..3),
            ),
            5,
        ),
        proptest::collection::vec(slice, 0..30),
        proptest::collection::vec((0_usize..5, -9_000_i64..9_000, 0_usize..6), 0..5),
        proptest::collection::vec((-9_000_i64..9_000, -1e18_f64..1e18), 0..5),
        proptest::collection::vec(
            (
                0_usize..5,
                -9_000_i64..9_000,
                any::<u64>(),
                0_u8..3,
                any::<bool>(),
            ),
            0..5,
        ),
    )
        .prop_map(
            |(epoch, tracks, slices, instants, samples, flows)| GeneratedRun {
                epoch,
                tracks,
                slices,
                instants,
                samples,
                flows,
            },
        )
}

fn direction(number: u8) -> FlowDirection {
    match number {
        0 => FlowDirection::Out,
        1 => FlowDirection::Through,
        _ => FlowDirection::In,
    }
}

/// Pours what was made; the second half of the slices into a fork if asked to.
fn emit<S: EventSink>(made: &GeneratedRun, sink: &mut S, forked: bool) {
    sink.epoch(Epoch {
        origin_ns: made.epoch.0,
        unix_ns: made.epoch.1,
    });
    sink.fact("host", ArgValue::Str("h"));
    sink.fact("rank", ArgValue::Int(-3));
    sink.module("jit_step", Some(u64::MAX));
    sink.diagnose(Diagnostic::DroppedByWriter, 7, "of 9");
    let given = made
        .slices
        .iter()
        .map(|slice| {
            let mut args = slice.args.clone();
            // Keys of one event are unique.
            let mut seen = Vec::new();
            args.retain(|arg| {
                !seen.contains(&arg.0) && {
                    seen.push(arg.0.clone());
                    true
                }
            });
            args
        })
        .collect();
    let source = sink.source(Arc::new(Given(given)));
    let ids: Vec<_> = (0..5).map(|at| sink.track(&format!("t/{at}"))).collect();
    let samples = sink.track("samples");
    for (at, (kind, parent, pid, tid)) in made.tracks.iter().enumerate() {
        let kind = [
            TrackKind::Group,
            TrackKind::Thread,
            TrackKind::DeviceQueue,
            TrackKind::Async,
            TrackKind::Counter,
            TrackKind::Steps,
        ][usize::from(*kind)];
        sink.describe(
            ids[at],
            TrackPatch {
                name: Some(["", "python", "stream 7", "a/b", "x"][at]).filter(|n| !n.is_empty()),
                kind: Some(kind),
                // Only earlier ones: a tree.
                parent: parent
                    .filter(|parent| *parent < at)
                    .map(|parent| ids[parent]),
                pid: *pid,
                tid: *tid,
                device: (at == 3).then_some(2),
                stream: tid.map(|tid| tid - 2),
                sort_index: pid.map(|pid| -pid),
                unit: (at == 2).then_some("bytes"),
                derived: Some(at == 1),
                ..TrackPatch::default()
            },
        );
    }
    sink.describe(
        samples,
        TrackPatch {
            name: Some("loss"),
            kind: Some(TrackKind::Counter),
            ..TrackPatch::default()
        },
    );
    let slices = |sink: &mut S, range: std::ops::Range<usize>| {
        for at in range {
            let slice = &made.slices[at];
            let flows: Vec<_> = slice
                .flow
                .iter()
                .map(|(category, id, towards)| SliceFlow {
                    key: FlowKey {
                        category: sink.name(NAMES[*category]),
                        id: *id,
                    },
                    direction: direction(*towards),
                })
                .collect();
            let args = if slice.args.is_empty() {
                ArgRef::NONE
            } else {
                ArgRef::new(source, at as u64)
            };
            let slice = SliceIn {
                start: Time::from_ps(slice.start_ps),
                dur: Dur::from_ps(slice.dur_ps),
                name: sink.name(NAMES[slice.name]),
                category: sink.name(["", "cpu_op", "kernel"][slice.category]),
                args,
                step: slice.step,
                flags: SliceFlags(slice.flags),
                flows: &flows,
            };
            sink.slice(ids[made.slices[at].track], slice);
        }
    };
    let count = made.slices.len();
    if forked {
        slices(sink, 0..count / 2);
        let mut fork = sink.fork();
        slices(&mut fork, count / 2..count);
        sink.merge(fork);
    } else {
        slices(sink, 0..count);
    }
    for (track, at_ps, name) in &made.instants {
        let instant = InstantIn {
            at: Time::from_ps(*at_ps),
            name: sink.name(NAMES[*name]),
            ..InstantIn::default()
        };
        sink.instant(ids[*track], instant);
    }
    for (at_ps, number) in &made.samples {
        sink.counter(samples, Time::from_ps(*at_ps), *number);
    }
    for (track, at_ps, id, towards, next) in &made.flows {
        let flow = SliceFlow {
            key: FlowKey {
                category: sink.name("ac2g"),
                id: *id,
            },
            direction: direction(*towards),
        };
        let bind = if *next {
            FlowBind::Next
        } else {
            FlowBind::Enclosing
        };
        sink.flow(ids[*track], Time::from_ps(*at_ps), flow, bind);
    }
}

/// Everything that must come back, sorted; times as a file of nanoseconds holds them.
fn essence(probe: &Probe) -> BTreeMap<&'static str, Vec<String>> {
    let ns = |ps: i64| ps.div_euclid(1_000);
    // An end is an end; whether a flow starts or passes is told by the order of time.
    let end = |direction: u8| direction == 2;
    let mut found: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    found.insert("epoch", vec![format!("{:?}", probe.epoch)]);
    found.insert(
        "tracks",
        probe
            .tracks
            .iter()
            .map(|track| format!("{track:?}"))
            .collect(),
    );
    found.insert(
        "slices",
        probe
            .slices
            .iter()
            .map(|s| {
                let flows: Vec<_> = s.flows.iter().map(|f| (&f.0, f.1, end(f.2))).collect();
                format!(
                    "{} {}+{} {:?} {:?} {:?} {} {flows:?} {:?}",
                    s.track,
                    ns(s.start_ps),
                    ns(s.start_ps + s.dur_ps) - ns(s.start_ps),
                    s.name,
                    s.category,
                    s.step,
                    s.flags,
                    probe.args(s.args),
                )
            })
            .collect(),
    );
    found.insert(
        "instants",
        probe
            .instants
            .iter()
            .map(|i| format!("{} {} {:?} {:?}", i.track, ns(i.at_ps), i.name, i.category))
            .collect(),
    );
    found.insert(
        "samples",
        probe
            .samples
            .iter()
            .map(|s| format!("{} {} {:?}", s.0, ns(s.1), s.2))
            .collect(),
    );
    found.insert(
        "flows",
        probe
            .flows
            .iter()
            .map(|f| {
                let ends = end(f.direction);
                format!(
                    "{} {} {} {} {ends} {}",
                    f.track,
                    ns(f.at_ps),
                    f.category,
                    f.id,
                    f.bind
                )
            })
            .collect(),
    );
    found.insert(
        "facts",
        probe.facts.iter().map(|f| format!("{f:?}")).collect(),
    );
    found.insert(
        "modules",
        probe.modules.iter().map(|m| format!("{m:?}")).collect(),
    );
    found.insert(
        "diagnostics",
        probe.diagnostics.iter().map(|d| format!("{d:?}")).collect(),
    );
    for lines in found.values_mut() {
        lines.sort();
    }
    found
}

fn check(made: &GeneratedRun, forked: bool) {
    let mut before = Probe::new();
    emit(made, &mut before, forked);
    let mut sink = PerfettoSink::new(Vec::new());
    emit(made, &mut sink, forked);
    let file = sink.finish().unwrap();
    let mut after = Probe::new();
    let bytes: SharedBytes = Arc::new(file);
    perfetto::read(&bytes, &ReadContext::default(), &mut after).unwrap();
    let (before, after) = (essence(&before), essence(&after));
    for (what, lines) in &before {
        assert_eq!(lines, &after[what], "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order(made in made()) {
        check(&made, false);
    }

    #[test]
    fn in_order_of_time(mut made in made()) {
        made.slices.sort_by_key(|s| (s.track, s.start_ps, -s.dur_ps));
        check(&made, false);
    }

    #[test]
    fn with_a_fork(made in made()) {
        check(&made, true);
    }
}
