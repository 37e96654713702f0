//! One small trace, looked at from all sides.

use std::sync::Arc;

use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Diagnostic, Dur, Epoch, EventSink, FlowBind,
    FlowDirection, FlowKey, InstantIn, SliceFlow, SliceIn, SourceId, Time, TrackKind, TrackPatch,
};
use stepscope_store::{EventId, FileSpec, Trace, TraceBuilder};

struct Echo;

impl ArgSource for Echo {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        visit("token", ArgValue::Uint(token));
        Ok(())
    }
}

fn us(us: i64) -> Time {
    Time::from_ps(us * 1_000_000)
}

fn for_us(us: i64) -> Dur {
    Dur::from_ps(us * 1_000_000)
}

fn build() -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    let source: SourceId = sink.source(Arc::new(Echo));
    let process = sink.track("1");
    let thread = sink.track("1/7");
    let stream = sink.track("gpu/9");
    let memory = sink.track("1/counter/mem");
    sink.describe(
        process,
        TrackPatch {
            name: Some("python"),
            kind: Some(TrackKind::Group),
            ..TrackPatch::default()
        },
    );
    for child in [thread, memory] {
        sink.describe(
            child,
            TrackPatch {
                parent: Some(process),
                ..TrackPatch::default()
            },
        );
    }
    sink.describe(
        stream,
        TrackPatch {
            kind: Some(TrackKind::DeviceQueue),
            ..TrackPatch::default()
        },
    );
    let (step, launch, kernel, ac2g) = (
        sink.name("ProfilerStep#3"),
        sink.name("cudaLaunchKernel"),
        sink.name("gemm"),
        sink.name("ac2g"),
    );
    let key = FlowKey {
        category: ac2g,
        id: 5,
    };
    // The inner slice comes first: the store sorts.
    sink.slice(
        thread,
        SliceIn {
            start: us(2),
            dur: for_us(3),
            name: launch,
            args: ArgRef::new(source, 40),
            flows: &[SliceFlow {
                key,
                direction: FlowDirection::Out,
            }],
            ..SliceIn::default()
        },
    );
    sink.slice(
        thread,
        SliceIn {
            start: us(0),
            dur: for_us(10),
            name: step,
            step: Some(3),
            ..SliceIn::default()
        },
    );
    sink.slice(
        stream,
        SliceIn {
            start: us(6),
            dur: for_us(8),
            name: kernel,
            ..SliceIn::default()
        },
    );
    sink.flow(
        stream,
        us(6),
        SliceFlow {
            key,
            direction: FlowDirection::In,
        },
        FlowBind::Enclosing,
    );
    sink.instant(
        thread,
        InstantIn {
            at: us(4),
            name: launch,
            ..InstantIn::default()
        },
    );
    sink.counter(memory, us(1), 7.0);
    builder.add(sink);
    builder.finish()
}

#[test]
fn one_small_trace_from_all_sides() {
    let trace = build();
    trace.debug_validate().unwrap();
    let keys: Vec<_> = trace
        .tracks()
        .iter()
        .map(|track| track.key.as_str())
        .collect();
    assert_eq!(keys, ["gpu/9", "1", "1/7", "1/counter/mem"]);
    let thread = trace.track_by_key("1/7").unwrap();
    let slices = trace.slices(thread);
    assert_eq!(slices.start, [us(0), us(2)]);
    assert_eq!(slices.depth, [0, 1]);
    assert_eq!(slices.parent, [u32::MAX, 0]);
    let step = trace.event(slices.id(0)).unwrap();
    assert_eq!((step.step, step.self_time), (Some(3), for_us(7)));
    assert_eq!(trace.first_child(step.id), Some(slices.id(1)));
    assert_eq!(trace.step_marks()[0].number, 3);
    let mut args = Vec::new();
    trace
        .args(slices.id(1), &mut |key, value| {
            args.push(format!("{key} {value:?}"));
        })
        .unwrap();
    assert_eq!(args, ["token Uint(40)"]);
    let links = trace.flows_out(slices.id(1));
    assert_eq!(links.len(), 1);
    assert_eq!(trace.flows_in(links[0].to), links);
    assert_eq!(trace.event(links[0].to).unwrap().start, us(6));
    assert_eq!(trace.flow_count(), 1);
    assert_eq!((trace.slice_count(), trace.event_count()), (3, 4));
    let instant = trace.event(EventId(3)).unwrap();
    assert!(instant.instant);
    assert_eq!(instant.start, us(4));
    assert_eq!(trace.event(EventId(4)), None);
    assert_eq!(trace.span(), us(0)..us(14));
    let items = trace.items(thread, us(0)..us(20), 4);
    assert_eq!(items.t0, [us(0), us(2)]);
    assert_eq!(items.count, [1, 1]);
    let strip = trace.busy_strip(&[thread, trace.tracks()[0].id], us(0)..us(20), 4);
    assert_eq!(strip, [255, 255, 204, 0]);
    let memory = trace.track_by_key("1/counter/mem").unwrap();
    assert_eq!(trace.tracks()[memory.index()].kind, TrackKind::Counter);
    assert!(
        trace
            .diagnostics()
            .iter()
            .all(|d| d.what != Diagnostic::OpenFlow)
    );
}
