//! Advice for each finding, in terms of the run's framework and hardware.

use std::fmt::Write as _;

use super::platform::{Framework, Platform};
use crate::report::{in_sentence, share};
use stepscope_analysis::findings::{Detail, ExtraWork, Finding, FindingCause};

pub(super) fn advice(finding: &Finding, platform: &Platform) -> String {
    match finding.cause {
        FindingCause::InputBound => input(finding, platform),
        FindingCause::Straggler => straggler(finding).to_owned(),
        FindingCause::LoadImbalance => {
            "Share the work evenly: balance tokens between experts (capacity factor, auxiliary loss), sort \
             or pack samples by length, and compare the shapes of the slowest rank of each step."
                .to_owned()
        }
        FindingCause::ExposedCommunication => communication(finding, platform),
        FindingCause::ExposedCopy => copies(finding, platform),
        FindingCause::LaunchBound => launches(platform),
        FindingCause::SmallKernels => small_kernels(finding, platform),
        FindingCause::HostBound => host(finding, platform),
        FindingCause::Synchronization => synchronization(platform).to_owned(),
        FindingCause::MisplacedOp => format!(
            "Keep the tensors of {} on the device, so that neither it nor the copies around it run on the host.",
            finding.subjects.first().map_or_else(|| "the operator".to_owned(), |name| in_sentence(name))
        ),
        FindingCause::Compilation => format!(
            "{}{}{}",
            compilation(platform, !finding.compiled_functions.is_empty()),
            shapes(finding),
            compiled_functions(finding)
        ),
        FindingCause::AllocatorThrash => {
            "Do not call empty_cache() in the loop, and keep shapes the same from step to step, so that the \
             caching allocator can reuse its blocks."
                .to_owned()
        }
        FindingCause::Fragmentation => format!(
            "Let segments grow ({}=expandable_segments:True), and keep shapes from changing from step to step.",
            platform.allocator_variable()
        ),
        FindingCause::MemoryGrowth => {
            "Release what each step keeps: append loss.item() or loss.detach() to lists instead of tensors \
             that hold their graph, and clear caches that grow."
                .to_owned()
        }
        FindingCause::NearMemoryLimit => memory_limit(platform).to_owned(),
        FindingCause::OutlierSteps => {
            let collect = match platform.framework {
                Framework::Other => "",
                _ => ", collect garbage between epochs (gc.freeze(), gc.disable())",
            };
            format!(
                "Compare a long step with a usual one on the timeline, and move what it does beyond them out of \
                 the loop: write checkpoints in the background, evaluate and log less often{collect}."
            )
        }
        FindingCause::WarmUpOnly => match platform.framework {
            Framework::PyTorch => {
                "Nothing: leave the first steps out of comparisons (schedule(wait=…, warmup=…) in torch.profiler)."
            }
            _ => "Nothing: leave the first steps out of comparisons, as these figures do.",
        }
        .to_owned(),
        FindingCause::PipelineBubble => {
            "Split each batch into more micro-batches, so that all stages work at once, and balance the stages."
                .to_owned()
        }
        FindingCause::IdleUnknown => unknown(platform).to_owned(),
        FindingCause::ClockSkew => {
            "Synchronise the hosts' clocks (chrony, PTP) before comparing arrival times across ranks."
                .to_owned()
        }
        FindingCause::ProfilerOverhead => {
            "These times are not the program's: record with fewer options (no stacks, no shapes), or only a \
             few steps, before looking for anything else."
                .to_owned()
        }
        FindingCause::LowPrecisionOpportunity => precision(finding).to_owned(),
        FindingCause::MemoryBoundKernels => memory_bound(finding, platform).to_owned(),
        FindingCause::DeviceBound => busy(finding, platform),
    }
}

fn input(finding: &Finding, platform: &Platform) -> String {
    if let Detail::Input { in_process: true } = finding.detail {
        return "The DataLoader decodes in the main process: set num_workers (4 to 8 to begin with), \
                pin_memory=True and persistent_workers=True."
            .to_owned();
    }
    let text = match platform.framework {
        Framework::PyTorch => {
            "Make batches ready earlier: more DataLoader workers, a larger prefetch_factor, pin_memory=True, \
             cheaper decoding and augmentation."
        }
        Framework::Jax => {
            "Make batches ready earlier: load in other processes (Grain, tf.data with prefetch), and put the \
             next batch on the device while this one is computed."
        }
        Framework::TensorFlow => {
            "Make batches ready earlier: dataset.prefetch(tf.data.AUTOTUNE), parallel map and interleave."
        }
        Framework::TorchXla => {
            "Make batches ready earlier: MpDeviceLoader with more workers and prefetching."
        }
        Framework::Neuron | Framework::Other => {
            "Make batches ready earlier: load the next one in another thread or process while this one is computed."
        }
    };
    text.to_owned()
}

fn straggler(finding: &Finding) -> &'static str {
    match &finding.detail {
        Detail::Rank {
            extra_work: Some(ExtraWork::Input),
            ..
        } => {
            "Look at the input of that rank: slower storage, larger files, fewer loader workers or a busy host."
        }
        Detail::Rank {
            extra_work: Some(ExtraWork::Compute),
            ..
        } => {
            "Compare its kernels with those of another rank: a throttled device (clocks, power, temperature), \
             another program on it, or larger shapes."
        }
        _ => {
            "Compare its step with that of another rank: more input, other shapes, a slower device or a busier host."
        }
    }
}

fn communication(finding: &Finding, platform: &Platform) -> String {
    let mut text = match platform.framework {
        Framework::Jax | Framework::TorchXla | Framework::TensorFlow | Framework::Neuron => {
            "Give the compiler work to do during the collective (latency-hiding scheduler, asynchronous \
             collectives), or shard so that less is exchanged."
        }
        Framework::PyTorch | Framework::Other => {
            "Start collectives while the backward pass still computes (buckets, overlapping all-gathers), \
             send less (gradient accumulation, lower precision), and check that the link reaches its bandwidth."
        }
    }
    .to_owned();
    if let Detail::OneRank { of } = finding.detail {
        let _ = write!(
            text,
            " Files of the other ranks are missing ({of} in all): one rank cannot tell transfer from waiting for a late rank."
        );
    }
    text
}

fn copies(finding: &Finding, platform: &Platform) -> String {
    let named = |part: &str| finding.subjects.iter().any(|name| name.contains(part));
    let text = if named("Pageable") {
        "Copy from pinned memory (pin_memory=True) with non_blocking=True on a stream of its own, so that the \
         copy runs during computation."
    } else if named("PtoP") || named("Peer") {
        "Keep on each device what it needs, so that activations are not copied between devices in every layer; \
         copy on a stream of its own where it cannot be avoided."
    } else if platform.is_compiled() {
        "Keep on the device what every step uses (host offloading moves it each time), donate buffers, and give \
         the compiler work to do during its copies."
    } else {
        "Move data to the device once and keep it there; copy with non_blocking=True on a stream of its own."
    };
    text.to_owned()
}

fn launches(platform: &Platform) -> String {
    match platform.framework {
        Framework::Jax | Framework::TorchXla | Framework::TensorFlow | Framework::Neuron => {
            "Give the device more work per launch: one compiled program for the whole step (or for several), \
             larger batches, and no results fetched between launches."
                .to_owned()
        }
        Framework::PyTorch | Framework::Other if platform.replays_graphs => {
            "Capture more of the step in one graph, and give each launch more work: larger batches.".to_owned()
        }
        Framework::PyTorch | Framework::Other => format!(
            "Give the device more work per launch: {}, torch.compile(mode=\"reduce-overhead\"), larger batches.",
            platform.graphs()
        ),
    }
}

fn small_kernels(finding: &Finding, platform: &Platform) -> String {
    if platform.is_compiled() {
        return "Let one program compute the whole step, so that the compiler fuses element-wise work, and use \
                larger batches."
            .to_owned();
    }
    let in_optimizer = finding
        .subjects
        .first()
        .is_some_and(|name| name.to_ascii_lowercase().contains("optim"));
    if in_optimizer {
        "Update all tensors with few kernels: a fused optimizer (fused=True, or foreach=True)."
            .to_owned()
    } else {
        "Compute the same with fewer, larger kernels: torch.compile fuses element-wise work, fused optimizers \
         update all tensors at once, larger batches make each kernel longer."
            .to_owned()
    }
}

fn host(finding: &Finding, platform: &Platform) -> String {
    let waits = finding
        .subjects
        .iter()
        .any(|name| name.contains("lock") || name.contains("acquire"));
    if waits {
        return "The thread waits for another one: shorten what holds the lock, or hand the data over by a queue."
            .to_owned();
    }
    if finding.detail == Detail::Waits {
        return "Remove the wait, shorten what it waits for, or let another thread wait."
            .to_owned();
    }
    match platform.framework {
        Framework::Neuron | Framework::TorchXla => {
            "Build less on the host in each step: keep the graph the same, trace once, and fetch results rarely."
        }
        Framework::Jax => {
            "Move this work out of the step, into jit, or into another thread, and dispatch the next step before it."
        }
        _ => {
            "Move this work out of the step, onto the device, or into another process, so that the host launches \
             ahead of the device."
        }
    }
    .to_owned()
}

const fn synchronization(platform: &Platform) -> &'static str {
    match platform.framework {
        Framework::Jax => {
            "Read results less often: keep losses on the device and fetch them once every few steps; \
             block_until_ready only where you measure."
        }
        Framework::PyTorch | Framework::Other => {
            "Read results less often: no .item(), print or comparison of a device value inside the loop; keep \
             losses on the device and fetch them once every few steps."
        }
        _ => {
            "Read results less often: keep losses on the device and fetch them once every few steps."
        }
    }
}

/// Returns the input shapes for which the function was compiled, if the file has them.
fn shapes(finding: &Finding) -> String {
    let (told, more) = finding.shapes.split_at(finding.shapes.len().min(3));
    let told = told.join(", ");
    match (finding.shapes.len(), more.len()) {
        (0, _) => String::new(),
        (_, 0) => format!(" The file holds its programs for inputs of {told}."),
        (_, more) => {
            format!(" The file holds its programs for inputs of {told} and {more} other shapes.")
        }
    }
}

/// Returns which functions were compiled and which guards failed, if the run has a compile log.
fn compiled_functions(finding: &Finding) -> String {
    const SHOWN: usize = 3;
    let mut text = String::new();
    for function in finding.compiled_functions.iter().take(SHOWN) {
        let times = match function.count {
            1 => String::new(),
            count => format!(" {count} times"),
        };
        let source = function.source.as_ref();
        let source = source.map_or(String::new(), |source| format!(" ({source})"));
        let again = match function.failed_guards.as_slice() {
            [] => format!("{times}."),
            [guard] => format!(" again{times}: {guard}."),
            [guard, _] => format!(" again{times}: {guard}; one other guard failed."),
            [guard, rest @ ..] => {
                format!(
                    " again{times}: {guard}; {} other guards failed.",
                    rest.len()
                )
            }
        };
        let sentence = format!(" {}{source} was compiled{again}", function.name);
        text.push_str(&sentence);
    }
    text
}

const fn compilation(platform: &Platform, has_compile_log: bool) -> &'static str {
    match platform.framework {
        Framework::PyTorch if has_compile_log => {
            "Keep shapes and Python values the same from step to step: pad the last batch, \
             torch.compile(dynamic=True), mark_dynamic."
        }
        Framework::PyTorch => {
            "Keep shapes and Python values the same from step to step: pad the last batch, \
             torch.compile(dynamic=True), mark_dynamic. To see the guard that failed, run the program with \
             TORCH_TRACE=DIR, DIR the folder of the trace."
        }
        Framework::Jax => {
            "Keep shapes and static arguments the same from step to step: pad the last batch, pass changing \
             values as arrays; jax_explain_cache_misses names what changed."
        }
        _ => {
            "Keep shapes and Python values that reach the compiler the same from step to step: pad the last batch."
        }
    }
}

const fn memory_limit(platform: &Platform) -> &'static str {
    match platform.framework {
        Framework::Jax => {
            "A little more runs out of memory: recompute activations (jax.checkpoint), shard parameters, or use \
             a smaller batch."
        }
        _ => {
            "A little more runs out of memory: recompute activations (checkpointing), shard the optimizer, or \
             use a smaller batch."
        }
    }
}

const fn unknown(platform: &Platform) -> &'static str {
    match platform.framework {
        Framework::PyTorch => {
            "Record the host too (ProfilerActivity.CPU), so that the trace shows what launched each kernel."
        }
        Framework::Jax => {
            "Record the host too (host_tracer_level=2), so that the trace shows what the host did."
        }
        _ => "Record the host too, so that the trace shows what it did while the device waited.",
    }
}

fn precision(finding: &Finding) -> &'static str {
    match finding.detail {
        Detail::Precision { unit: "TF32" } => {
            "Allow TF32 (torch.set_float32_matmul_precision(\"high\")), or compute in bf16 (torch.autocast)."
        }
        Detail::Precision { unit: "fp16" } => {
            "Compute products in half precision (torch.autocast with float16 and a gradient scaler): this \
             device has no fast units for bf16."
        }
        _ => "Compute products in bf16 (torch.autocast): this device has fast units for it.",
    }
}

const fn memory_bound(finding: &Finding, platform: &Platform) -> &'static str {
    match finding.detail {
        Detail::Chains { attention: true } if platform.is_compiled() => {
            "Use a fused attention kernel (jax.nn.dot_product_attention with cuDNN, Pallas)."
        }
        Detail::Chains { attention: true } => {
            "Use a fused attention kernel (torch.nn.functional.scaled_dot_product_attention)."
        }
        _ if platform.is_compiled() => {
            "Write them so that the compiler can fuse them: in one jitted function, without materializing what \
             lies between."
        }
        _ => "Fuse them (torch.compile), or use an operator that computes all of it at once.",
    }
}

fn busy(finding: &Finding, platform: &Platform) -> String {
    let heaviest = match &finding.detail {
        Detail::Busy { heaviest, .. } => heaviest.first(),
        _ => None,
    };
    let most = heaviest.map_or(String::new(), |(name, part)| {
        format!(
            " Begin with {} ({}): its shapes and trend are in the table.",
            in_sentence(name),
            share(*part)
        )
    });
    if matches!(finding.detail, Detail::Busy { device: None, .. })
        && platform.framework == Framework::Other
    {
        return format!("Look at what takes most.{most}");
    }
    format!("Only less or faster computation shortens this part.{most}")
}
