//! Random tracks, for the property tests of the other modules.

use proptest::prelude::*;
use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Dur, Epoch, EventSink, FlowBind, FlowDirection, FlowKey,
    InstantIn, SliceFlags, SliceFlow, SliceIn, SourceId, Time, TrackKind, TrackPatch,
};
use stepscope_store::{FileSink, FileSpec, Trace, TraceBuilder};

/// A source without arguments.
struct Nothing;

impl ArgSource for Nothing {
    fn visit(&self, _: u64, _: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        Ok(())
    }
}

/// Something to emit.
#[derive(Clone, Debug)]
pub(crate) enum Emitted {
    Slice {
        track: u8,
        start: i64,
        dur: i64,
        name: u8,
        category: u8,
        args: Option<u64>,
        step: Option<i64>,
        flags: u8,
        flow: Option<(u64, u8)>,
    },
    Instant {
        track: u8,
        at: i64,
        name: u8,
    },
    Sample {
        at: i64,
        value: f64,
    },
    Flow {
        track: u8,
        at: i64,
        id: u64,
        direction: u8,
        next: bool,
    },
}

pub(crate) fn direction(number: u8) -> FlowDirection {
    [
        FlowDirection::Out,
        FlowDirection::Through,
        FlowDirection::In,
    ][usize::from(number % 3)]
}

fn slice() -> impl Strategy<Value = Emitted> {
    let place = (
        0_u8..4,
        0_i64..200,
        prop_oneof![Just(0_i64), 0..8_i64, 0..120_i64],
    );
    let more = (
        0_u8..6,
        0_u8..3,
        prop::option::weighted(0.4, 0_u64..1 << 40),
        prop::option::weighted(0.1, 0_i64..9),
        prop_oneof![9 => Just(0_u8), 1 => 1_u8..4],
        prop::option::weighted(0.3, (0_u64..6, 0_u8..3)),
    );
    (place, more).prop_map(
        |((track, start, dur), (name, category, args, step, flags, flow))| {
            Emitted::Slice {
                track,
                // Close to one another, so that they nest, overlap and coincide; some by a nanosecond.
                start: start * 1_000,
                dur: dur * 1_000,
                name,
                category,
                args,
                step,
                flags,
                flow,
            }
        },
    )
}

fn other() -> impl Strategy<Value = Emitted> {
    prop_oneof![
        (0_u8..4, 0_i64..200_000, 0_u8..6).prop_map(|(track, at, name)| Emitted::Instant {
            track,
            at,
            name
        }),
        (0_i64..200_000, -9.0..9.0).prop_map(|(at, value)| Emitted::Sample { at, value }),
        (0_u8..4, 0_i64..200_000, 0_u64..6, 0_u8..3, any::<bool>()).prop_map(
            |(track, at, id, direction, next)| Emitted::Flow {
                track,
                at,
                id,
                direction,
                next
            }
        ),
    ]
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Emitted>> {
    prop::collection::vec(prop_oneof![8 => slice(), 2 => other()], 0..120)
}

/// Pours one event, by key and name, as a reader would.
pub(crate) fn emit(event: &Emitted, sink: &mut FileSink) {
    match event {
        Emitted::Slice {
            track,
            start,
            dur,
            name,
            category,
            args,
            step,
            flags,
            flow,
        } => {
            let track = sink.track(&format!("p/{track}"));
            let name = sink.name(&format!("name {name}"));
            let category = match category {
                0 => stepscope_model::NameId::EMPTY,
                _ => sink.name(&format!("category {category}")),
            };
            let kind = sink.name("flow");
            let flows: Vec<_> = flow
                .iter()
                .map(|(id, way)| SliceFlow {
                    key: FlowKey {
                        category: kind,
                        id: *id,
                    },
                    direction: direction(*way),
                })
                .collect();
            sink.slice(
                track,
                SliceIn {
                    start: Time::from_ps(*start),
                    dur: Dur::from_ps(*dur),
                    name,
                    category,
                    args: args.map_or(ArgRef::NONE, |token| ArgRef::new(SourceId(0), token)),
                    step: *step,
                    flags: SliceFlags(*flags),
                    flows: &flows,
                },
            );
        }
        Emitted::Instant { track, at, name } => {
            let track = sink.track(&format!("p/{track}"));
            let name = sink.name(&format!("name {name}"));
            sink.instant(
                track,
                InstantIn {
                    at: Time::from_ps(*at),
                    name,
                    ..InstantIn::default()
                },
            );
        }
        Emitted::Sample { at, value } => {
            let track = sink.track("p/counter");
            sink.counter(track, Time::from_ps(*at), *value);
        }
        Emitted::Flow {
            track,
            at,
            id,
            direction: way,
            next,
        } => {
            let track = sink.track(&format!("p/{track}"));
            let category = sink.name("flow");
            let flow = SliceFlow {
                key: FlowKey { category, id: *id },
                direction: direction(*way),
            };
            let bind = if *next {
                FlowBind::Next
            } else {
                FlowBind::Enclosing
            };
            sink.flow(track, Time::from_ps(*at), flow, bind);
        }
    }
}

/// Describes the tracks that [`emit`] uses.
pub(crate) fn describe(sink: &mut FileSink) {
    sink.epoch(Epoch::default());
    sink.source(std::sync::Arc::new(Nothing));
    let group = sink.track("p");
    sink.describe(
        group,
        TrackPatch {
            kind: Some(TrackKind::Group),
            ..TrackPatch::default()
        },
    );
    for (key, kind) in [
        ("p/0", TrackKind::Thread),
        ("p/1", TrackKind::DeviceQueue),
        ("p/2", TrackKind::Async),
        ("p/3", TrackKind::Thread),
    ] {
        let track = sink.track(key);
        sink.describe(
            track,
            TrackPatch {
                kind: Some(kind),
                parent: Some(group),
                ..TrackPatch::default()
            },
        );
    }
}

pub(crate) fn build(events: &[Emitted]) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    describe(&mut sink);
    for event in events {
        emit(event, &mut sink);
    }
    builder.add(sink);
    builder.finish()
}

/// Everything that can be seen of a trace, as text; names as texts, since ids may differ.
pub(crate) fn everything(trace: &Trace) -> String {
    use std::fmt::Write;

    let mut text = String::new();
    let mut line = |part: String| writeln!(text, "{part}").expect("a string takes all");
    line(format!("{:?} {:?}", trace.span(), trace.slice_span()));
    for (category, count) in trace.by_category() {
        line(format!("{} {count}", trace.name(category)));
    }
    for found in trace.diagnostics() {
        line(format!("{found:?}"));
    }
    for file in trace.files() {
        line(format!("{file:?}"));
    }
    for track in trace.tracks() {
        line(format!("{track:?}"));
        let samples = trace.samples(track.id);
        line(format!("{:?} {:?}", samples.at, samples.value));
    }
    for id in 0..trace.event_count() {
        let id = stepscope_store::EventId(id);
        let Some(event) = trace.event(id) else {
            line("none".to_owned());
            continue;
        };
        line(format!(
            "{event:?} {} {}",
            trace.name(event.name),
            trace.name(event.category)
        ));
        for edge in trace.flows_out(id) {
            line(format!("out {edge:?} {}", trace.name(edge.key.category)));
        }
        for edge in trace.flows_in(id) {
            line(format!("in {edge:?}"));
        }
        line(format!("{:?}", trace.flow_ends(id)));
    }
    line(format!("{:?} {}", trace.step_marks(), trace.flow_count()));
    text
}
