//! What a finding says in one sentence.

use super::platform::Platform;
use crate::report::{bytes, duration, grouped, in_sentence, plain, share};
use stepscope_analysis::findings::{Cause, Detail, Diagnosis, ExtraWork, Finding};

/// Names of steps that a title lists.
const MOST_STEPS: usize = 5;

pub(super) fn title(finding: &Finding, diagnosis: &Diagnosis, platform: &Platform) -> String {
    let cost = cost(finding, diagnosis);
    let at = location(finding);
    match finding.cause {
        Cause::InputBound => format!("The program waits for input{at}: {cost}"),
        Cause::Straggler => straggler(finding, &cost),
        Cause::LoadImbalance => {
            let of_devices =
                matches!(&finding.detail, Detail::Rank { who, .. } if who.starts_with("device"));
            format!(
                "Work is shared unevenly between the {}; they wait for the last one in {}: {cost}",
                if of_devices { "devices" } else { "ranks" },
                first(finding, "collectives")
            )
        }
        Cause::ExposedCommunication => format!("Exposed communication{at}: {cost}"),
        Cause::ExposedCopy => format!("Exposed copies{at}: {cost}"),
        Cause::LaunchBound => {
            format!("The host launches more slowly than the device computes{at}: {cost}")
        }
        Cause::SmallKernels => small_kernels(finding, &cost),
        Cause::HostBound if matches!(finding.detail, Detail::None) => {
            format!("Garbage collection holds the program up{at}: {cost}")
        }
        Cause::HostBound => format!("The device waits while the host works{at}: {cost}"),
        Cause::Synchronization => format!(
            "The host waits for the device ({} per step) and cannot run ahead{at}: {cost}",
            calls(finding)
        ),
        Cause::MisplacedOp => {
            format!("An operator runs on the CPU while the device waits{at}: {cost}")
        }
        Cause::Compilation => match &finding.detail {
            Detail::Steps { numbers, .. } => {
                format!("{} compile{}{at}: {cost}", steps(numbers), verb(numbers))
            }
            _ if diagnosis.are_steps => format!("Compilation within steps{at}: {cost}"),
            _ => format!("Compilation{at}: {cost}"),
        },
        Cause::AllocatorThrash => {
            let within = if diagnosis.are_steps {
                " within steps"
            } else {
                ""
            };
            format!("Memory is taken from the driver and given back{within}{at}: {cost}")
        }
        Cause::Fragmentation => format!(
            "Allocations find no free block that is large enough, and the allocator asks the driver{at}: {cost}"
        ),
        Cause::MemoryGrowth => growth(finding, &at),
        Cause::NearMemoryLimit => limit(finding),
        Cause::OutlierSteps => outliers(finding, &at, &cost),
        Cause::WarmUpOnly => match &finding.detail {
            Detail::WarmUp {
                numbers,
                compile_ns,
                loading_ns,
            } => {
                let compile = if *compile_ns > 0.0 {
                    format!(", {} of compilation", duration(*compile_ns))
                } else if *loading_ns > 0.0 {
                    let more = duration(*loading_ns);
                    format!(", {more} to compile and load the graph in StepMarker")
                } else {
                    String::new()
                };
                format!(
                    "Only the first steps are slow ({}{compile}), as in every healthy program",
                    steps(numbers)
                )
            }
            _ => "Only the first steps are slow".to_owned(),
        },
        Cause::PipelineBubble => {
            format!("The devices take turns: each waits for another one, {cost}")
        }
        Cause::IdleUnknown => {
            format!("The device is idle, and the trace does not tell why: {cost}")
        }
        Cause::ClockSkew => clocks(finding),
        Cause::ProfilerOverhead => format!("The profiler itself delays the program{at}: {cost}"),
        Cause::LowPrecisionOpportunity => {
            format!("Matrix products in 32-bit precision{at}: {cost}")
        }
        Cause::MemoryBoundKernels => match finding.detail {
            Detail::Chains { attention: true } => format!(
                "Attention is computed as products and softmax, kernel by kernel{at}: {cost}"
            ),
            _ => format!(
                "Element-wise kernels in a row move memory that one fused kernel would not{at}: {cost}"
            ),
        },
        Cause::DeviceBound => busy(finding, platform),
    }
}

/// `4.43 ms per step (31.0 %)`, or of the recording.
fn cost(finding: &Finding, diagnosis: &Diagnosis) -> String {
    let Some(ns) = finding.saving_ns else {
        return share(finding.share);
    };
    if diagnosis.are_steps {
        format!(
            "{} per step ({})",
            duration(ns / diagnosis.steps),
            share(finding.share)
        )
    } else {
        format!(
            "{} of the recording ({})",
            duration(ns),
            share(finding.share)
        )
    }
}

fn first(finding: &Finding, otherwise: &str) -> String {
    finding
        .subjects
        .first()
        .map_or_else(|| otherwise.to_owned(), |name| in_sentence(name))
}

/// ` in NAME`, and what encloses it.
fn location(finding: &Finding) -> String {
    let is_step = |name: &&String| {
        matches!(finding.detail, Detail::Steps { .. }) && name.starts_with("step ")
    };
    let shown = finding.subjects.iter().filter(|name| !is_step(name));
    let mut names = shown.map(|name| in_sentence(name));
    match (names.next(), names.next()) {
        (Some(inner), Some(outer)) => format!(" in {inner} ({outer})"),
        (Some(inner), None) => format!(" in {inner}"),
        _ => String::new(),
    }
}

fn calls(finding: &Finding) -> String {
    match finding.detail {
        Detail::Calls { per_step } => {
            let text = plain((per_step * 10.0).round() / 10.0);
            let times = if text == "1" { "time" } else { "times" };
            format!("{text} {times}")
        }
        _ => "several times".to_owned(),
    }
}

fn straggler(finding: &Finding, cost: &str) -> String {
    let Detail::Rank {
        who,
        extra_work,
        extra_ns,
    } = &finding.detail
    else {
        return format!("One rank is late: {cost}");
    };
    let mut letters = who.chars();
    let who: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(letters)
        .collect();
    let why = extra_work.map_or(String::new(), |work| {
        let verb = match work {
            ExtraWork::Compute => "computes",
            ExtraWork::Input => "fetches input",
            ExtraWork::Host => "works on its host",
            ExtraWork::Copy => "copies",
        };
        format!(" (it {verb} {} longer per step)", duration(*extra_ns))
    });
    format!("{who} is the straggler{why}: the others wait {cost}")
}

fn small_kernels(finding: &Finding, cost: &str) -> String {
    let at = location(finding);
    match finding.detail {
        Detail::Kernels { small, all } => format!(
            "{} of {} kernels per step are shorter than 5 µs{at}; the gaps between them: {cost}",
            whole(small),
            whole(all)
        ),
        _ => format!("Very many small kernels{at}: {cost}"),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a count of kernels in a step"
)]
fn whole(number: f64) -> String {
    grouped(number.round() as i64)
}

/// `Step 8`, `Steps 3 and 7`, `Steps 1, 2, 3 and 4 more`.
fn steps(numbers: &[i64]) -> String {
    let shown: Vec<String> = numbers
        .iter()
        .take(MOST_STEPS)
        .map(i64::to_string)
        .collect();
    match (&*shown, numbers.len() - shown.len()) {
        ([], _) => "Some steps".to_owned(),
        ([one], 0) => format!("Step {one}"),
        ([rest @ .., last], 0) => format!("Steps {} and {last}", rest.join(", ")),
        (all, more) => format!("Steps {} and {more} more", all.join(", ")),
    }
}

const fn verb(numbers: &[i64]) -> &'static str {
    if numbers.len() == 1 { "s" } else { "" }
}

fn outliers(finding: &Finding, at: &str, cost: &str) -> String {
    let Detail::Steps { numbers, of } = &finding.detail else {
        return format!("Some steps are much longer than the others{at}: {cost}");
    };
    let be = if numbers.len() == 1 { "is" } else { "are" };
    format!(
        "{} of {} {be} much longer than the others{at}: {cost}, spread over all steps",
        steps(numbers),
        grouped(*of as u64)
    )
}

fn growth(finding: &Finding, at: &str) -> String {
    let Detail::Growth {
        allocator,
        bytes_per_step,
        steps_left,
    } = &finding.detail
    else {
        return "Memory grows from step to step".to_owned();
    };
    let left = steps_left.map_or(String::new(), |steps| {
        format!("; the device is full after {} more steps", grouped(steps))
    });
    format!(
        "Memory of {allocator} grows by {} per step{at}{left}",
        bytes(*bytes_per_step as f64)
    )
}

fn limit(finding: &Finding) -> String {
    let Detail::Limit {
        reserved,
        capacity,
        unused,
    } = finding.detail
    else {
        return "Device memory is nearly full".to_owned();
    };
    let part = reserved as f64 / capacity.max(1) as f64;
    let spare = if unused * 10 > capacity {
        format!("; {} of it are never used", bytes(unused as f64))
    } else {
        String::new()
    };
    format!(
        "Memory of {} is nearly full: {} of {} ({}){spare}",
        first(finding, "the device"),
        bytes(reserved as f64),
        bytes(capacity as f64),
        share(part)
    )
}

fn clocks(finding: &Finding) -> String {
    match finding.detail {
        Detail::Clocks { skew_ns } => format!(
            "The clocks of the ranks differ by {}; the timeline shows them aligned by their collectives",
            duration(skew_ns)
        ),
        _ => "The clocks of the ranks differ".to_owned(),
    }
}

fn busy(finding: &Finding, platform: &Platform) -> String {
    let Detail::Busy { device, heaviest } = &finding.detail else {
        return "The device is busy".to_owned();
    };
    let most: Vec<String> = heaviest
        .iter()
        .take(2)
        .map(|(name, part)| format!("{} {}", in_sentence(name), share(*part)))
        .collect();
    let most = if most.is_empty() {
        String::new()
    } else {
        format!("; most of it is {}", most.join(", "))
    };
    match device {
        Some(part) => format!("The device computes {} of the time{most}", share(*part)),
        None if platform.framework == super::platform::Framework::Other => {
            format!(
                "The program is busy {} of the time{most}",
                share(finding.share)
            )
        }
        None => format!(
            "The CPU computes {} of the time{most}",
            share(finding.share)
        ),
    }
}
