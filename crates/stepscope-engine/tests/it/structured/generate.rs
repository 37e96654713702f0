//! Generator of traces of arbitrary structure: slices, flows, memory records, ranks, steps and counters in the
//! terms of the frameworks, with times, ids and sizes up to the limits of their types.
//!
//! The fuzz target `structured` and the engine's tests share this file. Every byte of the input is one decision;
//! after the end of the input every decision is zero.

use std::sync::Arc;

use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Dur, Epoch, EventSink, FlowBind, FlowDirection, FlowKey,
    InstantIn, NameId, Profile, ProfileCaller, ProfileKind, ProfileRow, SliceFlags, SliceFlow,
    SliceIn, SourceId, Time, TrackKind, TrackPatch,
};
use stepscope_store::{FileSink, FileSpec, Trace, TraceBuilder};

/// Maximum number of events of one file: enough for steps with operators, launches and kernels.
const MAX_EVENTS: usize = 160;

const NAMES: &[&str] = &[
    "ProfilerStep#1",
    "ProfilerStep#2",
    "train 3",
    "train",
    "aten::mm",
    "aten::addmm",
    "aten::conv2d",
    "aten::scaled_dot_product_attention",
    "aten::copy_",
    "autograd::engine::evaluate_function: AddmmBackward0",
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaGraphLaunch",
    "cudaStreamSynchronize",
    "cudaMalloc",
    "ampere_sgemm_128x64_tn",
    "Memcpy HtoD (Pageable -> Device)",
    "Memset (Device)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "nccl:all_reduce",
    "record_param_comms",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "Optimizer.step#SGD.step",
    "$train.py:12 loop",
    "nn.Module: Linear_0",
    "fusion.1",
    "%dot.3 = f32[16,16]{1,0} dot(f32[16,16]{1,0} %p.1, f32[16,16]{1,0} %p.2)",
    "all-reduce-start.1",
    "all-reduce-done.1",
    "jit_step(1234)",
    "TfrtCpuExecutable::Execute",
    "MemoryAllocation",
    "MemoryDeallocation",
    "[memory]",
    "[OutOfMemory]",
    "Iteration Start: PyTorch Profiler",
    "PjitFunction(step)",
    "gc",
    "",
    "näme <script>\u{1b}[31m\n",
];

const CATEGORIES: &[&str] = &[
    "cpu_op",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_runtime",
    "cuda_driver",
    "user_annotation",
    "gpu_user_annotation",
    "python_function",
    "cpu_instant_event",
    "overhead",
    "cuda_sync",
    "fwdbwd",
    "",
];

const TEXTS: &[&str] = &[
    "",
    "(null)",
    "[[2, 3], [3, 4]]",
    "[[9223372036854775807, 9223372036854775807], [9223372036854775807, 4]]",
    "[[], [], [-1]]",
    "['float', 'double']",
    "[65535, 65535, 4294967295]",
    "[0, 1, 2]",
    "allreduce",
    "_allgather_base",
    "float",
    "18446744073709551615",
    "-9223372036854775808",
    "1e308",
    "NaN",
    "train.py(12): loop;model.py(3): forward",
    "convolution",
    "jit(step)/dot_general",
    "GPU_0_bfc",
    "host_bfc",
    "grid:4294967295,65535,65535 block:1024,1,1 size:18446744073709551615",
    "kind_src:device kind_dst:host size:18446744073709551615 dest:0 async:1",
    "[",
];

/// Arguments that the analyses read.
const KEYS: &[&str] = &[
    "Addr",
    "Bytes",
    "Call stack",
    "Collective name",
    "Concrete Inputs",
    "Device Id",
    "Device Type",
    "Ev Idx",
    "External id",
    "Fwd thread id",
    "Group size",
    "In msg nelems",
    "Input Dims",
    "Input type",
    "Out msg nelems",
    "Process Group Name",
    "Process Group Ranks",
    "Python id",
    "Python parent id",
    "Sequence number",
    "Total Allocated",
    "Total Reserved",
    "allocation_bytes",
    "allocator_name",
    "block",
    "bytes",
    "bytes_accessed",
    "bytes_allocated",
    "bytes_available",
    "bytes_reserved",
    "correlation",
    "device",
    "device_duration_ps",
    "device_ordinal",
    "dtype",
    "est. achieved occupancy %",
    "flops",
    "fragmentation",
    "grid",
    "hlo_category",
    "hlo_module",
    "hlo_op",
    "index_on_host",
    "kernel_details",
    "long_name",
    "memcpy_details",
    "memory bandwidth (GB/s)",
    "model_flops",
    "peak_bytes_in_use",
    "program_id",
    "registers per thread",
    "requested_bytes",
    "run_id",
    "shape_with_layout",
    "shared memory",
    "size",
    "source",
    "stream",
    "tf_op",
    "theoretical_occupancy_pct",
    "wait_on_stream",
];

const FACTS: &[&str] = &[
    "rank",
    "world_size",
    "device.count",
    "device.0.name",
    "device.0.memory_bytes",
    "device.0.sms",
    "peak_hbm_bw_gigabytes_per_second",
    "peak_teraflops_per_second",
    "traceName",
    "torch",
    "backend",
];

const TRACKS: &[(&str, TrackKind)] = &[
    ("thread 1", TrackKind::Thread),
    ("thread 2", TrackKind::Thread),
    ("stream 7", TrackKind::DeviceQueue),
    ("stream 20", TrackKind::DeviceQueue),
    ("XLA Ops", TrackKind::DeviceQueue),
    ("XLA Modules", TrackKind::DeviceQueue),
    ("Steps", TrackKind::Steps),
    ("async", TrackKind::Async),
    ("bytes in use", TrackKind::Counter),
];

/// An argument value that owns its text.
#[derive(Clone, Copy)]
enum Value {
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(&'static str),
    Json(&'static str),
}

/// Arguments by the number of their event.
struct Args(Vec<Vec<(&'static str, Value)>>);

impl ArgSource for Args {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let list = usize::try_from(token).ok().and_then(|at| self.0.get(at));
        for (key, value) in list.ok_or(ArgError::SourceChanged)? {
            visit(
                key,
                match *value {
                    Value::Int(number) => ArgValue::Int(number),
                    Value::Uint(number) => ArgValue::Uint(number),
                    Value::Double(number) => ArgValue::Double(number),
                    Value::Str(text) => ArgValue::Str(text),
                    Value::Json(text) => ArgValue::Json(text),
                },
            );
        }
        Ok(())
    }
}

/// The input: decisions, one after the other.
struct Decisions<'a>(&'a [u8]);

impl Decisions<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) + 1 == chances
    }

    fn bits(&mut self) -> u64 {
        (0..8).fold(0, |bits, _| bits << 8 | u64::from(self.byte()))
    }

    /// Returns a mostly small number, sometimes at a limit of its type or arbitrary.
    fn number(&mut self) -> i64 {
        const EDGES: &[i64] = &[
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            i64::MIN + 1,
            -1,
            1 << 62,
            u32::MAX as i64,
            i32::MIN as i64,
            1 << 53,
        ];
        match self.byte() {
            0..200 => i64::from(self.byte()) % 9,
            200..230 => i64::from(self.byte()) << (self.byte() % 40),
            230..250 => self.pick(EDGES),
            _ => self.bits().cast_signed(),
        }
    }

    /// Returns a mostly small number in 32 bits.
    fn small(&mut self) -> u32 {
        let number = self.number();
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Returns a time or a length within a few milliseconds; if `wild`, sometimes an arbitrary one.
    fn time(&mut self, wild: bool) -> i64 {
        if wild && self.one_in(8) {
            return self.number();
        }
        (i64::from(self.byte()) << 8 | i64::from(self.byte())) * 50_000
    }

    fn value(&mut self) -> Value {
        match self.byte() % 8 {
            0..4 => Value::Int(self.number()),
            4 => Value::Uint(self.number().cast_unsigned()),
            5 => Value::Double(self.double()),
            6 => Value::Str(self.pick(TEXTS)),
            _ => Value::Json(self.pick(TEXTS)),
        }
    }

    fn double(&mut self) -> f64 {
        match self.byte() % 4 {
            0 => self.number() as f64,
            1 => 1e300,
            2 => -0.5,
            _ => f64::from(self.byte()) / 7.0,
        }
    }
}

/// Builds the trace that these bytes determine.
pub(crate) fn trace(bytes: &[u8]) -> Trace {
    let mut input = Decisions(bytes);
    let mut builder = TraceBuilder::new();
    let wild = input.one_in(2);
    for file in 0..=input.below(4) {
        let rank = match input.byte() % 4 {
            0 => None,
            1 => Some(input.small()),
            _ => u32::try_from(file).ok(),
        };
        let mut sink = builder.file(FileSpec {
            path: format!("rank{file}.json"),
            format: input.pick(&["chrome", "xspace", "perfetto"]).to_owned(),
            bytes: input.number().unsigned_abs(),
            host: input.pick(&["host", "other", ""]).to_owned(),
            rank,
        });
        fill(&mut sink, &mut input, wild);
        builder.add(sink);
    }
    builder.finish()
}

fn fill(sink: &mut FileSink, input: &mut Decisions<'_>, wild: bool) {
    if !input.one_in(4) {
        sink.epoch(Epoch {
            origin_ns: if wild { input.number() } else { 0 },
            unix_ns: (!input.one_in(4)).then(|| if wild { input.number() } else { 1_000 }),
        });
    }
    for _ in 0..input.below(4) {
        let key = input.pick(FACTS);
        match input.value() {
            Value::Int(number) => sink.fact(key, ArgValue::Int(number)),
            Value::Uint(number) => sink.fact(key, ArgValue::Uint(number)),
            Value::Double(number) => sink.fact(key, ArgValue::Double(number)),
            Value::Str(text) | Value::Json(text) => sink.fact(key, ArgValue::Str(text)),
        }
    }
    let tracks: Vec<_> = TRACKS
        .iter()
        .map(|(key, kind)| {
            let track = sink.track(key);
            let is_device = *kind == TrackKind::DeviceQueue;
            let ordinal = u32::try_from(input.below(3)).unwrap_or(0);
            sink.describe(
                track,
                TrackPatch {
                    name: Some(key),
                    kind: Some(*kind),
                    pid: Some(if wild { input.number() } else { 1 }),
                    tid: Some(if wild { input.number() } else { 1 }),
                    device: is_device.then_some(if wild && input.one_in(9) {
                        u32::MAX
                    } else {
                        ordinal
                    }),
                    stream: is_device.then(|| input.number()),
                    sort_index: Some(input.number()),
                    unit: (*kind == TrackKind::Counter).then_some("bytes"),
                    ..TrackPatch::default()
                },
            );
            track
        })
        .collect();
    let mut args = Vec::new();
    for _ in 0..input.below(MAX_EVENTS) {
        let track = input.pick(&tracks[..tracks.len() - 1]);
        let at = Time::from_ps(input.time(wild));
        match input.byte() % 16 {
            0 => sink.counter(tracks[tracks.len() - 1], at, input.double()),
            1 => {
                let end = flow(sink, input);
                let bind = input.pick(&[FlowBind::Enclosing, FlowBind::Next]);
                sink.flow(track, at, end, bind);
            }
            2..5 => {
                let name = input.pick(&["[memory]", "[memory]", "MemoryAllocation", "OOM"]);
                let instant = InstantIn {
                    at,
                    name: sink.name(name),
                    category: sink.name("cpu_instant_event"),
                    args: args_of(&mut args, input, true),
                };
                sink.instant(track, instant);
            }
            _ => {
                let flows: Vec<_> = (0..input.below(3)).map(|_| flow(sink, input)).collect();
                let slice = SliceIn {
                    start: at,
                    dur: Dur::from_ps(input.time(wild).max(0)),
                    name: sink.name(input.pick(NAMES)),
                    category: sink.name(input.pick(CATEGORIES)),
                    args: args_of(&mut args, input, false),
                    step: input.one_in(6).then(|| input.number()),
                    flags: SliceFlags(if input.one_in(9) { input.byte() & 7 } else { 0 }),
                    flows: &flows,
                };
                sink.slice(track, slice);
            }
        }
    }
    sink.source(Arc::new(Args(args)));
    if input.one_in(6) {
        profiles(sink, input);
    }
}

fn flow(sink: &mut FileSink, input: &mut Decisions<'_>) -> SliceFlow {
    SliceFlow {
        key: FlowKey {
            category: match input.byte() % 4 {
                0 => NameId::EMPTY,
                1 => sink.name("fwdbwd"),
                _ => sink.name("ac2g"),
            },
            id: input.number().cast_unsigned(),
        },
        direction: input.pick(&[
            FlowDirection::Out,
            FlowDirection::Through,
            FlowDirection::In,
        ]),
    }
}

fn args_of(
    all: &mut Vec<Vec<(&'static str, Value)>>,
    input: &mut Decisions<'_>,
    of_memory: bool,
) -> ArgRef {
    let mut list = Vec::new();
    if of_memory {
        for key in [
            "Addr",
            "Bytes",
            "Device Type",
            "Device Id",
            "Total Allocated",
            "Total Reserved",
        ] {
            list.push((key, Value::Int(input.number())));
        }
    }
    for _ in 0..input.below(6) {
        list.push((input.pick(KEYS), input.value()));
    }
    if list.is_empty() {
        return ArgRef::NONE;
    }
    all.push(list);
    ArgRef::new(SourceId(0), all.len() as u64 - 1)
}

fn profiles(sink: &mut FileSink, input: &mut Decisions<'_>) {
    let rows: Vec<ProfileRow> = (0..input.below(5))
        .map(|_| ProfileRow {
            name: input.pick(NAMES).into(),
            file: "train.py".into(),
            line: input.small(),
            calls: Some(input.number().unsigned_abs()),
            primitive_calls: Some(input.number().unsigned_abs()),
            total_s: Some(input.double()),
            self_s: Some(input.double()),
            mean_s: Some(input.double()),
            self_mean_s: None,
            percent: Some(input.double()),
            callers: vec![ProfileCaller {
                row: input.small(),
                calls: input.number().unsigned_abs(),
                primitive_calls: input.number().unsigned_abs(),
                total_s: input.double(),
                self_s: input.double(),
            }],
        })
        .collect();
    sink.profile(Profile {
        kind: input.pick(&ProfileKind::ALL),
        name: input.pick(&["", "run_training_batch"]).to_owned(),
        total_s: Some(input.double()),
        calls: Some(input.number().unsigned_abs()),
        rows,
        ..Profile::default()
    });
}
