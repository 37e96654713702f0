//! Potential savings of the kernels of busy devices: matrix products in a slow precision, memory traffic that
//! fusion avoids, and otherwise the heaviest operations.

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, TrackId};
use stepscope_store::{EventId, Trace};

use super::device_time::RankTime;
use super::launched::LaunchOf;
use crate::device::Work;
use crate::launch::operation;
use crate::parallel::Cancel;
use crate::peaks::is_called;
use crate::run_profile::RunProfile;

/// Kernels shorter than this are small: launching one takes as long.
const SMALL: Dur = Dur::from_ps(5_000_000);
/// Maximum gap between neighbours in a chain of fusible kernels; longer gaps have a cause of their own.
const NEIGHBOURS: Dur = Dur::from_ps(20_000_000);

/// Time of one operation on the devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heavy {
    pub(super) ps: f64,
    pub(super) kind: SliceKind,
    pub(super) longest: EventId,
    longest_dur: Dur,
}

/// Kernels of steady steps, sums over devices.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    /// Length of the windows times the number of devices.
    pub(super) length_ps: f64,
    pub(super) count: u64,
    pub(super) small: u64,
    pub(super) compute_ps: f64,
    /// Sums by the operation that launched the kernels, else by the name of the kernel.
    pub(super) operations: FxHashMap<NameId, Heavy>,
    /// Products in full 32-bit precision.
    pub(super) single_precision: FxHashMap<NameId, Heavy>,
    pub(super) single_precision_saving_ps: f64,
    /// The unit that would compute them faster.
    pub(super) faster_unit: Option<&'static str>,
    /// Consecutive memory-bound kernels, by operation.
    pub(super) chains: FxHashMap<NameId, Heavy>,
    pub(super) chains_saving_ps: f64,
    /// Whether such chains lie between the two products of attention.
    pub(super) attention: bool,
    /// Batched products; attention that is not one kernel consists of them.
    batched_products_ps: f64,
}

/// Fraction of the time of attention's products that goes into writing and reading scores, which a fused kernel
/// holds on the chip. An estimate: it depends on the length of the sequence and the size of the heads.
const SCORES: f64 = 0.5;

/// One kernel that moves memory.
struct Link {
    dur: Dur,
    operation: NameId,
    softmax: bool,
    event: EventId,
}

/// Reads the kernels of the sampled steady windows.
pub(super) fn kernels<'a>(
    run_profile: &RunProfile<'a>,
    times: &[RankTime],
    launch_of: &mut LaunchOf<'a>,
    cancel: &Cancel,
) -> Result<Kernels, Cancelled> {
    let trace = run_profile.trace;
    let mut found = Kernels::default();
    for time in times {
        for device in &time.devices {
            let unit = FastUnit::new(trace, time.rank.file, device.ordinal);
            for window in time.sampled.iter().filter(|window| window.is_steady()) {
                cancel.check()?;
                found.length_ps += window.dur().ps() as f64;
                for queue in &device.queues {
                    let mut reader = QueueReader {
                        trace,
                        unit: unit.as_ref(),
                        launch_of: &mut *launch_of,
                        found: &mut found,
                        chain: Vec::new(),
                        after_product: false,
                    };
                    let slices = trace.slices(queue.track);
                    let from = slices
                        .start
                        .partition_point(|start| *start < window.range.start);
                    let to = slices
                        .start
                        .partition_point(|start| *start < window.range.end);
                    let mut before = None;
                    for index in from..to {
                        if run_profile.devices.work(queue.track, index) == Some(Work::Compute) {
                            let gap = before.map(|end| slices.start[index].since(end));
                            reader.kernel(queue.track, index, gap);
                            before = Some(slices.end(index));
                        }
                    }
                    reader.end_chain(false);
                }
            }
        }
    }
    if found.attention {
        found.chains_saving_ps += SCORES * found.batched_products_ps;
    }
    Ok(found)
}

struct QueueReader<'a, 'b> {
    trace: &'a Trace,
    unit: Option<&'b FastUnit>,
    launch_of: &'b mut LaunchOf<'a>,
    found: &'b mut Kernels,
    chain: Vec<Link>,
    /// Whether a batched product ran directly before the chain.
    after_product: bool,
}

impl QueueReader<'_, '_> {
    fn kernel(&mut self, track: TrackId, index: usize, gap: Option<Dur>) {
        let slices = self.trace.slices(track);
        let (name, dur) = (slices.name[index], slices.dur[index]);
        let event = slices.id(index);
        let kind = self.trace.kind(track, name, slices.category.get(index));
        if kind == SliceKind::Input {
            return;
        }
        let launch = self.launch_of.get(track, index);
        let operation = launch
            .and_then(|launch| operation(self.trace, launch))
            .and_then(|id| self.trace.place_of_slice(id))
            .and_then(|(track, at)| self.trace.slices(track).name.get(at).copied())
            .unwrap_or(name);
        self.found.count += 1;
        self.found.small += u64::from(dur < SMALL);
        self.found.compute_ps += dur.ps() as f64;
        note(&mut self.found.operations, operation, kind, dur, event);
        let text = self.trace.name(name);
        if kind == SliceKind::MatMul
            && is_single_precision(text)
            && let Some(unit) = self.unit
        {
            note(
                &mut self.found.single_precision,
                operation,
                kind,
                dur,
                event,
            );
            self.found.single_precision_saving_ps += dur.ps() as f64 * (1.0 - 1.0 / unit.speedup);
            self.found.faster_unit = Some(unit.name);
        }
        let follows = gap.is_some_and(|gap| gap <= NEIGHBOURS);
        if !follows {
            self.end_chain(false);
        }
        let moves_memory = kind == SliceKind::Elementwise && dur >= SMALL && !is_fused(text);
        if moves_memory {
            self.chain.push(Link {
                dur,
                operation,
                softmax: text.contains("softmax"),
                event,
            });
            return;
        }
        let product = kind == SliceKind::MatMul;
        if product && self.trace.name(operation).contains("bmm") {
            self.found.batched_products_ps += dur.ps() as f64;
        }
        self.end_chain(product && follows);
        self.after_product = product;
    }

    /// Counts the potential saving of fusing consecutive kernels: all but the longest of them, and all of them
    /// where they lie between the two products of attention, which a fused kernel never writes out.
    fn end_chain(&mut self, before_product: bool) {
        let links = std::mem::take(&mut self.chain);
        let attention =
            self.after_product && before_product && links.iter().any(|link| link.softmax);
        self.after_product = false;
        let longest = links.iter().map(|link| link.dur).max().unwrap_or(Dur::ZERO);
        let sum: f64 = links.iter().map(|link| link.dur.ps() as f64).sum();
        let saving = if attention {
            sum
        } else {
            sum - longest.ps() as f64
        };
        if saving <= 0.0 {
            return;
        }
        self.found.attention |= attention;
        self.found.chains_saving_ps += saving;
        for link in links {
            note(
                &mut self.found.chains,
                link.operation,
                SliceKind::Elementwise,
                link.dur,
                link.event,
            );
        }
    }
}

fn note(
    sums: &mut FxHashMap<NameId, Heavy>,
    operation: NameId,
    kind: SliceKind,
    dur: Dur,
    event: EventId,
) {
    let heavy = sums.entry(operation).or_default();
    heavy.ps += dur.ps() as f64;
    if dur > heavy.longest_dur || heavy.ps <= dur.ps() as f64 {
        heavy.longest_dur = dur;
        heavy.longest = event;
        heavy.kind = kind;
    }
}

/// Sorts the operations, the heaviest first.
pub(super) fn heaviest(sums: &FxHashMap<NameId, Heavy>) -> Vec<(NameId, Heavy)> {
    let mut all: Vec<(NameId, Heavy)> = sums.iter().map(|(name, heavy)| (*name, *heavy)).collect();
    all.sort_by(|(a_name, a), (b_name, b)| {
        b.ps.total_cmp(&a.ps)
            .then_with(|| a_name.index().cmp(&b_name.index()))
    });
    all
}

/// Returns whether one kernel already does the work of many: optimizers over lists of tensors, and kernels that a
/// compiler generated.
fn is_fused(kernel: &str) -> bool {
    ["multi_tensor_apply", "fusion", "triton_", "fused", "Fused"]
        .iter()
        .any(|part| kernel.contains(part))
}

/// Returns whether the name of a product's kernel shows that it multiplies 32-bit floats without the units for
/// shorter ones. Names of cuBLAS, cuDNN and CUTLASS (`sgemm`, `ffma`, `f32f32_f32f32_f32`), of Tensile (`SB`,
/// `S_B` as its type) and of `MIOpen` (`fp32`).
fn is_single_precision(kernel: &str) -> bool {
    if kernel.contains("tf32") || kernel.contains("s1688") || kernel.contains("tensorop") {
        return false;
    }
    if let Some(rest) = kernel.strip_prefix("Cijk_") {
        let types = rest.splitn(3, '_').nth(2).unwrap_or("");
        return types.starts_with("SB_") || types.starts_with("S_B_");
    }
    ["sgemm", "_ffma_", "f32f32_f32f32_f32", "simt_s", "_fp32"]
        .iter()
        .any(|part| kernel.contains(part))
}

/// A unit of a device that multiplies matrices faster than its 32-bit units.
struct FastUnit {
    name: &'static str,
    speedup: f64,
}

/// Dense peaks from makers' data sheets, TFLOP/s: 32-bit floats without matrix units of shorter types, and the
/// fastest type that needs no other change of a program (TF32), or bfloat16, or half precision on devices without
/// bfloat16. The first entry whose words are in the device's name counts. Sources: `docs/reference/peaks.md`.
const UNITS: &[(&str, &str, f64, f64)] = &[
    ("H20", "TF32", 44.0, 74.0),
    ("H100 PCIe", "TF32", 51.0, 378.0),
    ("H100", "TF32", 67.0, 494.0),
    ("H200", "TF32", 67.0, 494.0),
    ("GH200", "TF32", 67.0, 494.0),
    ("H800", "TF32", 67.0, 494.0),
    ("B200", "TF32", 75.0, 1_100.0),
    ("GB200", "TF32", 80.0, 1_250.0),
    ("A100", "TF32", 19.5, 156.0),
    ("A800", "TF32", 19.5, 156.0),
    ("A10G", "TF32", 31.2, 35.0),
    ("A10", "TF32", 31.2, 62.5),
    ("A40", "TF32", 37.4, 74.8),
    ("L40S", "TF32", 91.6, 183.0),
    ("L40", "TF32", 90.5, 90.5),
    ("L4", "TF32", 30.3, 60.5),
    ("V100", "fp16", 15.7, 125.0),
    ("T4", "fp16", 8.1, 65.0),
    ("MI355X", "bf16", 157.3, 2_516.6),
    ("MI350X", "bf16", 144.2, 2_306.9),
    ("MI325X", "bf16", 163.4, 1_307.4),
    ("MI300X", "bf16", 163.4, 1_307.4),
    ("MI300A", "bf16", 122.6, 980.6),
    ("MI250X", "bf16", 47.9, 191.5),
    ("MI250", "bf16", 45.3, 181.0),
    ("MI210", "bf16", 45.3, 181.0),
    ("MI100", "fp16", 46.1, 184.6),
];

impl FastUnit {
    fn new(trace: &Trace, file: usize, ordinal: u32) -> Option<Self> {
        let facts = trace.files().get(file)?;
        let name = facts.fact(&format!("device.{ordinal}.name"))?.to_string();
        let (_, unit, slow, fast) = UNITS.iter().find(|(known, ..)| is_called(&name, known))?;
        (fast > slow).then(|| Self {
            name: unit,
            speedup: fast / slow,
        })
    }
}
