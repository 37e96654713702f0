//! Writes a seed corpus for every target, with stepscope's writers: `cargo run --manifest-path
//! fuzz/Cargo.toml --example seeds`. Fails if a target has no seed.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use stepscope_formats::chrome_json::ChromeSink;
use stepscope_formats::gzip;
use stepscope_formats::perfetto::PerfettoSink;
use stepscope_formats::xspace::XSpaceSink;
use stepscope_model::{
    Diagnostic, Dur, Epoch, EventSink, FlowBind, FlowDirection, FlowKey, InstantIn, SliceFlags,
    SliceFlow, SliceIn, Time, TrackKind, TrackPatch,
};

fn main() -> io::Result<()> {
    let mut xspace = XSpaceSink::new();
    emit(&mut xspace);
    let mut chrome = ChromeSink::new(Vec::new());
    emit(&mut chrome);
    let mut perfetto = PerfettoSink::new(Vec::new());
    emit(&mut perfetto);
    let files = [
        ("xspace", xspace.finish(Vec::new())?),
        ("chrome", chrome.finish()?),
        ("perfetto", perfetto.finish()?),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let put = |target: &str, name: &str, bytes: &[u8]| -> io::Result<()> {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)
    };
    for (target, bytes) in &files {
        put(target, "whole", bytes)?;
        put(target, "half", &bytes[..bytes.len() / 2])?;
        put("detect", target, &bytes[..bytes.len().min(512)])?;
        let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        packed.write_all(&stored(bytes))?;
        put("gzip", target, &packed)?;
    }
    put(
        "chrome",
        "array",
        b"[{\"ph\":\"B\",\"ts\":1,\"name\":\"a\"},{\"ph\":\"E\",\"ts\":2}]",
    )?;
    put("nsight", "early", NSIGHT)?;
    put("nsight", "half", &NSIGHT[..NSIGHT.len() / 2])?;
    put("detect", "nsight", &NSIGHT[..4_096])?;
    put("rocprof", "whole", ROCPROF)?;
    put("detect", "rocprof", ROCPROF)?;
    put("detect", "pstats", b"\xfb\x29\x03\xfa\x01a")?;
    put("pstats", "whole", &statistics())?;
    put("torch_snapshot", "cuda", SNAPSHOT)?;
    for (name, packed) in PROGRAMS {
        let program = inflated(packed);
        put("hlo_module", name, &program)?;
        put("detect", name, &program[..512])?;
    }
    let live_arrays = inflated(LIVE_ARRAYS);
    put("pprof", "jax", &live_arrays)?;
    put("detect", "pprof", &live_arrays)?;
    for (number, (name, text)) in SAMPLED.iter().enumerate() {
        let choice = [u8::try_from(number).unwrap_or(0)];
        put("sampled", name, &[&choice, *text].concat())?;
        put("detect", name, text)?;
    }
    put("nccl_flight", "json", FLIGHT)?;
    put("nccl_flight", "pickle", FLIGHT_PICKLE)?;
    put("detect", "nccl_flight", FLIGHT_PICKLE)?;
    put("torch_compile_log", "whole", COMPILE_LOG)?;
    put("detect", "torch_compile_log", COMPILE_LOG)?;
    put("measureme", "whole", &self_profile())?;
    put("detect", "measureme", &self_profile())?;
    put("detect", "torch_snapshot", &SNAPSHOT[..64])?;
    put("report_text", "simple", SIMPLE)?;
    put("report_text", "advanced", ADVANCED)?;
    put(
        "detect",
        "chakra",
        b"\x0e\x12\x0c\x0a\x06schema\xea\x01\x011",
    )?;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    put("structured", "every_byte", &every_byte)?;
    for target in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets"))? {
        let target = target?.path();
        let name = target.file_stem().unwrap_or_default();
        if !folder.join(name).exists() {
            let name = name.display();
            return Err(io::Error::other(format!("target {name} has no seed")));
        }
    }
    Ok(())
}

const PROGRAMS: [(&str, &[u8]); 3] = [
    (
        "step",
        include_bytes!(
            "../../tests/data/traces/hlo/dump/module_0008.jit_step.cpu_after_optimizations.hlo.pb.gz"
        ),
    ),
    (
        "step_before",
        include_bytes!(
            "../../tests/data/traces/hlo/dump/module_0008.jit_step.before_optimizations.hlo.pb.gz"
        ),
    ),
    (
        "loop",
        include_bytes!(
            "../../tests/data/traces/hlo/dump/module_0010.jit_loop.cpu_after_optimizations.hlo.pb.gz"
        ),
    ),
];
const LIVE_ARRAYS: &[u8] = include_bytes!("../../tests/data/traces/hlo/device_memory.prof");

const FLIGHT: &[u8] = br#"{"version":"2.5","pg_config":{"0":{"desc":"d","ranks":"[0, 1]"}},"pg_status":{"0":{
    "last_started_collective":-1}},"entries":[{"frames":[{"name":"f","filename":"g","line":7}],"pg_id":0,
    "process_group":["0","d"],"profiling_name":"nccl:all_reduce","time_created_ns":5,"input_sizes":[[3,4]],
    "input_dtypes":["Float"],"output_sizes":[[3,4]],"state":"completed","time_discovered_completed_ns":9}]}"#;
const FLIGHT_PICKLE: &[u8] =
    b"\x80\x02}(X\x09\0\0\0pg_config}X\x07\0\0\0entries](}(X\x0f\0\0\0time_created_nsK\x05\
    X\x0e\0\0\0profiling_nameX\x04\0\0\0nccluX\x01\0\0\0aeu.";

/// A compilation with phases and its backward graph, a recompilation, and a compilation without an end.
const COMPILE_LOG: &[u8] =
    b"V1127 21:26:05.551000 7 a.py:9] {\"str\": [\"/f.py\", 1]}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"chromium_event\": {}, \"has_payload\": \"0\"}\n\
    \t{\n\t\"name\": \"dynamo\",\n\t\"ts\": 100.5,\n\t\"args\": {\n\t\"compile_id\": \"0/0\"\n\t},\n\
    \t\"ph\": \"B\",\n\t\"cat\": \"dynamo_timed\"\n\t}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"dynamo_start\": {\"stack\": [{\"line\": 5, \"name\": \"f\", \
    \"filename\": 1}]}, \"rank\": 2, \"frame_id\": 0, \"frame_compile_id\": 0, \"attempt\": 0}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"artifact\": {\"name\": \"fx_graph_cache_hit\"}, \"frame_id\": 0, \
    \"frame_compile_id\": 0}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"chromium_event\": {}, \"has_payload\": \"0\"}\n\
    \t{\"name\": \"dynamo\", \"ts\": 109, \"args\": {\"compile_id\": \"0/0\"}, \"ph\": \"E\", \"cat\": \"dynamo_timed\"}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"compilation_metrics\": {\"co_name\": \"f\", \"start_time_us\": 101, \
    \"duration_us\": 7, \"graph_op_count\": 2, \"restart_reasons\": [\"a\"]}, \"frame_id\": 0, \"frame_compile_id\": 0}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"bwd_compilation_metrics\": {\"start_time\": 0.00012, \
    \"inductor_compile_time_s\": 1e-6}, \"frame_id\": 0, \"frame_compile_id\": 0}\n\
    V1127 21:26:05.551000 7 a.py:9] {\"artifact\": {\"name\": \"recompile_reasons\"}, \"compiled_autograd_id\": 1, \
    \"frame_id\": 0, \"frame_compile_id\": 1, \"has_payload\": \"0\"}\n\t[\n\t\"0/0: n == 1\"\n\t]\n";

/// Files of the formats of the target `sampled`, in its order.
const SAMPLED: [(&str, &[u8]); 6] = [
    (
        "speedscope",
        br#"{"shared":{"frames":[{"name":"a","file":"f","line":3},{"name":"b"}]},"profiles":[
        {"type":"sampled","name":"c","unit":"seconds","startValue":0,"samples":[[0,1],[0]],"weights":[0.01,0.02]},
        {"type":"evented","name":"d","unit":"bytes","events":[{"type":"O","frame":0,"at":1},
        {"type":"C","frame":0,"at":4}]},{"type":"evented","unit":"milliseconds","startValue":5,"endValue":9,
        "events":[{"type":"O","frame":1,"at":5}]}]}"#,
    ),
    (
        "collapsed",
        b"# a
a;b;c (d.py:3) 12
a;b 3
",
    ),
    (
        "perf",
        b"# a
train 9/10 [001] 100.001: 250 task-clock: \n	 63c a+0x1c (/b)
	 6f c (/b)

train 9 100.002: cycles: 1f d (e)
",
    ),
    (
        "firefox",
        br#"{"meta":{"interval":1,"startTime":5,"sampleUnits":{"threadCPUDelta":"ns"},"categories":[{"name":"c"}]},
        "threads":[{"name":"a","pid":"1","tid":2,"stringArray":["f","g"],"funcTable":{"name":[0,1],"fileName":[1,null]},
        "frameTable":{"func":[0,1],"line":[3,null],"category":[0,0]},"stackTable":{"frame":[0,1],"prefix":[null,0]},
        "samples":{"stack":[0,1,null],"time":[1,2,3],"weight":[1,2,1],"threadCPUDelta":[0,7,null]},
        "markers":{"name":[0,1],"startTime":[1,2],"endTime":[2,null],"phase":[1,0],"category":[0,0],
        "data":[{"type":"t"},null]}}]}"#,
    ),
    (
        "execution_trace",
        br#"{"schema":"1.1.1","pid":7,"nodes":[{"id":1,"name":"p","ctrl_deps":1,"attrs":[{"name":"tid","value":1}]},
        {"id":2,"name":"f","ctrl_deps":1,"inputs":{"values":[[3,4]],"shapes":[[2]],"types":["Tensor(float)"]},
        "attrs":[{"name":"rf_id","type":"uint64","value":3},{"name":"op_schema","type":"string","value":"f()"}]},
        {"id":3,"name":"g","rf_id":4,"parent":2,"tid":1,"input_shapes":[[2]],"inputs":[1]}]}"#,
    ),
    (
        // A thread with an operator, and a collective of a device that depends on it.
        "chakra_graph",
        b"\x07\x0a\x050.0.4\x22\x08\x01\x12\x01f\x18\x040\x058\x09B\x05\x12\x03[2]R\x0e\x0a\x09is_cpu_op\xd8\x01\x01.\x08\x02\x12\x01g\x18\x07\x22\x01\x01*\x01\x010\x0e8\x02R\x0d\x0a\x09comm_typeH\x01R\x0c\x0a\x04dimsR\x04\x0a\x02\x01\x02",
    ),
];

/// Inflates a small file.
fn inflated(packed: &[u8]) -> Vec<u8> {
    gzip::inflate_prefix(packed, 1 << 20)
}

const SNAPSHOT: &[u8] = include_bytes!("../../tests/data/traces/torch_memory/cuda.pickle");
const SIMPLE: &[u8] =
    b"FIT Profiler Report\n\n--------\n|  Action\t|  Mean duration (s)\t|  Total time (s) \t|\n\
    --------\n|  a\t|  0.5\t|  1.5\t|\n--------\n";
const ADVANCED: &[u8] = b"Profiler Report\nProfile stats for: a rank: 1\n  3 function calls (2 primitive calls) in \
    0.1 seconds\n\n   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n  3/2  0.1  0.1  0.1  \
    0.1 a.py:1(f)\n\nProfile stats for: records\n------  ------  ------\n  Name  Self CPU  # of Calls\n------  \
    ------  ------\n  op  1.5us  2\n------  ------  ------\nSelf CPU time total: 1.5us\n";

/// An export with pages of 512 bytes.
const NSIGHT: &[u8] = include_bytes!("../../tests/data/traces/nsight/early.sqlite");

const ROCPROF: &[u8] = br#"{"rocprofiler-sdk-tool":[{"metadata":{"node":{"hostname":"a"},"pid":1,"init_time":5,
    "command":["b"]},"agents":[{"id":{"handle":2},"type":2,"name":"c","logical_node_type_id":0}],"strings":{
    "buffer_records":[{"kind":"d","operations":["e","f"]}],"marker_api":[{"key":3,"value":"g"}]},
    "kernel_symbols":[{"kernel_id":4,"kernel_name":"h","arch_vgpr_count":8}],"buffer_records":{"kernel_dispatch":[
    {"kind":0,"operation":1,"thread_id":1,"correlation_id":{"internal":6},"start_timestamp":7,"end_timestamp":9,
    "dispatch_info":{"agent_id":{"handle":2},"queue_id":{"handle":1},"kernel_id":4,"workgroup_size":{"x":8,"y":1,"z":1},
    "grid_size":{"x":64,"y":1,"z":1}}}],"hip_api":[{"kind":0,"operation":1,"thread_id":1,"correlation_id":
    {"internal":6},"start_timestamp":6,"end_timestamp":7}],"marker_api":[{"correlation_id":{"internal":3},
    "thread_id":1,"start_timestamp":5,"end_timestamp":9}],"memory_copy":[{"kind":0,"operation":0,
    "start_timestamp":8,"end_timestamp":9,"dst_agent_id":{"handle":2},"bytes":16}]}}]}"#;

/// Builds a self-profile of rustc with an interval, an instant and a number.
fn self_profile() -> Vec<u8> {
    let mut events = b"MMES\x09\0\0\0".to_vec();
    // The first two bytes of the stream of texts after its header, and the third one.
    let (kind, label) = (100_000_011_u64, 100_000_013_u64);
    for (second, upper) in [(9_u32, 0_u32), (u32::MAX, 0xffff), (u32::MAX - 1, 0xffff)] {
        events.extend(kind.to_le_bytes());
        events.extend(label.to_le_bytes());
        for field in [1, 4, second, upper] {
            events.extend(field.to_le_bytes());
        }
    }
    let texts = b"MMSD\x09\0\0\0a\xffb\xfe\x0b\xe1\xf5\x05\0\0\0\0\x1ec\xff{\"cmd\":\"d\"}\xff";
    let mut index = b"MMSI\x09\0\0\0".to_vec();
    index.extend(100_000_001_u64.to_le_bytes());
    index.extend(23_u64.to_le_bytes());
    let mut out = b"MMPD\x09\0\0\0".to_vec();
    for (tag, content) in [(0, &events[..]), (1, texts), (2, &index)] {
        out.push(tag);
        out.extend(u32::try_from(content.len()).unwrap_or(0).to_le_bytes());
        out.extend(content);
    }
    out
}

/// Builds statistics of a recursive function.
fn statistics() -> Vec<u8> {
    let mut out = b"{\xa9\x03z\x04a.pyi\x03\0\0\0z\x01f)\x05i\x01\0\0\0i\x02\0\0\0g".to_vec();
    out.extend(0.25_f64.to_le_bytes());
    out.extend(b"f\x030.5{r\0\0\0\0)\x04i\x01\0\0\0i\x01\0\0\0g");
    out.extend(0.1_f64.to_le_bytes());
    out.extend(b"g");
    out.extend(0.2_f64.to_le_bytes());
    out.extend(b"00");
    out
}

/// Builds a deflate stream of one stored block, without a trailer: the fuzzer finds the rest.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let part = &bytes[..bytes.len().min(60_000)];
    let length = u16::try_from(part.len()).unwrap_or(0);
    let mut out = vec![1];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(part);
    out
}

/// Emits a few events of every kind.
fn emit<S: EventSink>(sink: &mut S) {
    sink.epoch(Epoch {
        origin_ns: 1_000_000,
        unix_ns: Some(1_700_000_000_000_000_000),
    });
    let group = sink.track("7");
    let worker = sink.track("7/8");
    let loss = sink.track("7/counter/loss/value");
    sink.describe(
        group,
        TrackPatch {
            name: Some("python"),
            kind: Some(TrackKind::Group),
            pid: Some(7),
            ..TrackPatch::default()
        },
    );
    sink.describe(
        worker,
        TrackPatch {
            name: Some("worker"),
            kind: Some(TrackKind::Thread),
            parent: Some(group),
            pid: Some(7),
            tid: Some(8),
            ..TrackPatch::default()
        },
    );
    sink.describe(
        loss,
        TrackPatch {
            name: Some("loss"),
            kind: Some(TrackKind::Counter),
            parent: Some(group),
            unit: Some("nats"),
            ..TrackPatch::default()
        },
    );
    let category = sink.name("cpu_op");
    let flow = |direction, id| SliceFlow {
        key: FlowKey { category, id },
        direction,
    };
    for (at, name) in (0_i64..).zip(["step", "forward", "backward", "step"]) {
        let name = sink.name(name);
        let flows = [flow(
            if at % 2 == 0 {
                FlowDirection::Out
            } else {
                FlowDirection::In
            },
            at as u64 / 2,
        )];
        let slice = SliceIn {
            start: Time::from_ps(at * 1_500_000),
            dur: Dur::from_ps(2_000_000),
            name,
            category,
            step: (at % 3 == 0).then_some(at),
            flags: if at == 2 {
                SliceFlags::UNFINISHED
            } else {
                SliceFlags::NONE
            },
            flows: &flows,
            ..SliceIn::default()
        };
        sink.slice(worker, slice);
        sink.counter(loss, Time::from_ps(at * 1_000_000), at as f64 / 3.0);
    }
    let instant = InstantIn {
        at: Time::from_ps(900_000),
        name: category,
        ..InstantIn::default()
    };
    sink.instant(worker, instant);
    sink.flow(
        worker,
        Time::from_ps(1_000),
        flow(FlowDirection::Out, 99),
        FlowBind::Next,
    );
    sink.module("jit_step", Some(3));
    sink.diagnose(Diagnostic::DroppedByWriter, 2, "of 9");
}
