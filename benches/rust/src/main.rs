//! Cost of one span (enter and exit) of stepscope and other recorders, as ratios to a floor.
//!
//! `stepscope-bench` runs each case in a separate process, because most recorders can be set up
//! only once, and measures the same floor in each of them. The floor is the minimum work of a
//! recorder of this kind: read the time-stamp counter twice and store 24 bytes in a thread-local
//! ring. Figures are CPU time of the measuring thread, the median of nine rounds.
//!
//! Output: one JSON object per line: `{"case","off_ns","on_ns","floor_ns","floor_off_ns"}`.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};

const CASES: &[&str] = &[
    "stepscope",
    "stepscope-args",
    "stepscope-two-threads",
    "stepscope-tracing",
    "stepscope-layer",
    "perfetto-recorder",
    "tracy",
    "fastrace",
    "puffin",
    "tracing-chrome",
    "tracing-registry",
];
const ROUNDS: usize = 9;

fn main() {
    let case = std::env::args().nth(1);
    let Some(case) = case else {
        let me = std::env::current_exe().expect("this program has a path");
        for case in CASES {
            // While the kernel writes the files of the case before to the disk, a recorder's first store
            // to each page of a mapped file waits: up to 25 ns a span.
            let _ = Command::new("sync").status();
            let status = Command::new(&me).arg(case).status();
            if !status.is_ok_and(|status| status.success()) {
                eprintln!("{case}: not run");
            }
        }
        return;
    };
    let floor_off_ns = median(4_000_000, || drop(Floor::enter()));
    FLOOR_ON.store(true, Ordering::Relaxed);
    let floor_ns = median(2_000_000, || drop(Floor::enter()));
    let (off_ns, on_ns) = measure(&case);
    let number = |value: Option<f64>| value.map_or("null".to_owned(), |ns| format!("{ns:.2}"));
    println!(
        "{{\"case\":\"{case}\",\"off_ns\":{},\"on_ns\":{},\"floor_ns\":{floor_ns:.2},\"floor_off_ns\":{floor_off_ns:.2}}}",
        number(off_ns),
        number(on_ns),
    );
    // Tracy would wait here for a viewer that fetches its data.
    exit(0);
}

/// Returns nanoseconds per span, off and on; `None` where the recorder lacks that state.
fn measure(case: &str) -> (Option<f64>, Option<f64>) {
    let scratch = std::env::temp_dir().join(format!("stepscope-bench-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("the temporary directory is writable");
    let result = match case {
        "stepscope" => {
            let off = median(4_000_000, || drop(stepscope::span!("span")));
            stepscope::start_trace(&scratch).expect("recording starts");
            let on = paced(|| drop(stepscope::span!("span")));
            stepscope::stop_trace().expect("recording stops");
            (Some(off), Some(on))
        }
        "stepscope-args" => {
            stepscope::start_trace(&scratch).expect("recording starts");
            let on = paced(|| drop(stepscope::span!("span", batch = 64_i64)));
            stepscope::stop_trace().expect("recording stops");
            (None, Some(on))
        }
        "stepscope-two-threads" => {
            stepscope::start_trace(&scratch).expect("recording starts");
            let other = std::thread::Builder::new()
                .name("other".to_owned())
                .spawn(|| paced(|| drop(stepscope::span!("span"))))
                .expect("a thread starts");
            let mine = paced(|| drop(stepscope::span!("span")));
            let theirs = other.join().expect("the thread ends");
            stepscope::stop_trace().expect("recording stops");
            (None, Some(mine.max(theirs)))
        }
        "stepscope-tracing" => {
            let off = median(1_000_000, tracing_span);
            stepscope::tracing::init().expect("no other subscriber is set");
            stepscope::start_trace(&scratch).expect("recording starts");
            let on = paced(tracing_span);
            stepscope::stop_trace().expect("recording stops");
            (Some(off), Some(on))
        }
        "stepscope-layer" => {
            use tracing_subscriber::prelude::*;
            tracing_subscriber::registry()
                .with(stepscope::tracing::RecorderLayer::new())
                .init();
            stepscope::start_trace(&scratch).expect("recording starts");
            let on = paced(tracing_span);
            stepscope::stop_trace().expect("recording stops");
            (None, Some(on))
        }
        "perfetto-recorder" => {
            let off = median(4_000_000, || { perfetto_recorder::scope!("span"); });
            perfetto_recorder::start().expect("recording starts");
            let on = rounds(200_000, || { perfetto_recorder::scope!("span"); }, || {
                drop(perfetto_recorder::ThreadTraceData::take_current_thread());
            });
            (Some(off), Some(on))
        }
        "tracy" => {
            let _client = tracy_client::Client::start();
            let on = rounds(200_000, || drop(tracy_client::span!("span", 0)), || {});
            (None, Some(on))
        }
        "fastrace" => fastrace_case(),
        "puffin" => {
            let off = median(4_000_000, || { puffin::profile_scope!("span"); });
            puffin::set_scopes_on(true);
            puffin::GlobalProfiler::lock().new_frame();
            let on = rounds(200_000, || { puffin::profile_scope!("span"); }, || {
                puffin::GlobalProfiler::lock().new_frame();
            });
            (Some(off), Some(on))
        }
        "tracing-chrome" => {
            use tracing_subscriber::prelude::*;
            let off = median(1_000_000, tracing_span);
            let (layer, guard) = tracing_chrome::ChromeLayerBuilder::new()
                .file(scratch.join("trace.json"))
                .build();
            tracing_subscriber::registry().with(layer).init();
            let on = rounds(100_000, tracing_span, || {});
            drop(guard);
            (Some(off), Some(on))
        }
        "tracing-registry" => {
            use tracing_subscriber::prelude::*;
            tracing_subscriber::registry().init();
            (None, Some(rounds(200_000, tracing_span, || {})))
        }
        other => {
            eprintln!("no case {other}");
            exit(2);
        }
    };
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

fn tracing_span() {
    let _entered = tracing::info_span!("span").entered();
}

fn fastrace_case() -> (Option<f64>, Option<f64>) {
    use fastrace::prelude::*;

    struct Nowhere;
    impl fastrace::collector::Reporter for Nowhere {
        fn report(&mut self, spans: Vec<SpanRecord>) {
            black_box(spans.len());
        }
    }

    let off = median(1_000_000, || drop(LocalSpan::enter_with_local_parent("span")));
    fastrace::set_reporter(Nowhere, fastrace::collector::Config::default());
    // A root holds about 10,000 local spans, so it is renewed every 4,096.
    let mut held = None;
    let mut count = 0_u64;
    let on = rounds(
        200_000,
        || {
            if count & 4095 == 0 {
                held.take();
                let root = Span::root("root", SpanContext::random());
                let guard = root.set_local_parent();
                held = Some((guard, root));
            }
            count += 1;
            drop(LocalSpan::enter_with_local_parent("span"));
        },
        || {},
    );
    held.take();
    fastrace::flush();
    (Some(off), Some(on))
}

/// Measures stepscope in bursts that fit into a ring, which is drained between them: no record is
/// dropped.
fn paced(span: impl FnMut()) -> f64 {
    rounds(10_000, span, || {
        stepscope::flush_trace();
    })
}

fn median(count: u64, span: impl FnMut()) -> f64 {
    rounds(count, span, || {})
}

/// Returns the median CPU nanoseconds of one `span` over the rounds; `between` is not measured.
fn rounds(count: u64, mut span: impl FnMut(), mut between: impl FnMut()) -> f64 {
    for _ in 0..1_000 {
        span();
    }
    between();
    let mut figures: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = thread_cpu_ns();
            for _ in 0..count {
                span();
            }
            let taken = (thread_cpu_ns() - began) / count as f64;
            between();
            taken
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[ROUNDS / 2]
}

/// Returns CPU time of this thread: steadier than wall-clock time on a shared machine.
fn thread_cpu_ns() -> f64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const THREAD_CPU_TIME: i32 = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the struct has the layout of a 64-bit Linux timespec and outlives the call.
    unsafe { clock_gettime(THREAD_CPU_TIME, &raw mut time) };
    time.seconds as f64 * 1e9 + time.nanoseconds as f64
}

static FLOOR_ON: AtomicBool = AtomicBool::new(false);
const FLOOR_RECORDS: usize = 1 << 14;

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Record {
    began: u64,
    ended: u64,
    name: u64,
}

struct Ring {
    next: usize,
    records: Vec<Record>,
}

thread_local! {
    static RING: UnsafeCell<Ring> = UnsafeCell::new(Ring {
        next: 0,
        records: vec![Record::default(); FLOOR_RECORDS],
    });
}

/// The minimum work of a recorder of this kind.
struct Floor {
    began: u64,
    on: bool,
}

impl Floor {
    #[inline(always)]
    fn enter() -> Self {
        let on = FLOOR_ON.load(Ordering::Relaxed);
        Self { began: if on { ticks() } else { 0 }, on }
    }
}

impl Drop for Floor {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.on {
            return;
        }
        let record = Record { began: self.began, ended: ticks(), name: 1 };
        RING.with(|ring| {
            // SAFETY: the ring is thread-local, and this block calls no code that accesses it
            // again.
            let ring = unsafe { &mut *ring.get() };
            ring.records[ring.next % FLOOR_RECORDS] = record;
            ring.next += 1;
        });
    }
}

#[inline(always)]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return std::time::Instant::now().elapsed().as_nanos() as u64;
}
