//! The title of a finding: one sentence whose values link to the evidence.

use super::platform::Platform;
use crate::report::{
    Link, Sentence, SentencePart, Unit, bytes, duration, in_sentence, plain, sentence, share,
    with_thousands,
};
use stepscope_analysis::findings::{Detail, Diagnosis, ExtraWork, Finding, FindingCause};

/// Maximum number of steps that a title lists.
const MOST_STEPS: usize = 5;

/// Returns the title. A value without a link of its own gets a link to the strongest event, or to
/// the page of the cause.
pub(super) fn title(finding: &Finding, diagnosis: &Diagnosis, platform: &Platform) -> Sentence {
    let evidence = finding.evidence.first();
    let link = evidence.map_or_else(
        || Link::page(finding.cause.page()),
        |event| Link::Event(*event),
    );
    sentence_of(finding, diagnosis, platform).or_link(&link)
}

fn sentence_of(finding: &Finding, diagnosis: &Diagnosis, platform: &Platform) -> Sentence {
    let cost = cost(finding, diagnosis);
    let at = location(finding);
    match finding.cause {
        FindingCause::InputBound => sentence!("The program waits for input{}: {}", at, cost),
        FindingCause::Straggler => straggler(finding, cost),
        FindingCause::LoadImbalance => {
            let of_devices =
                matches!(&finding.detail, Detail::Rank { who, .. } if who.starts_with("device"));
            sentence!(
                "Work is shared unevenly between the {}; they wait for the last one in {}: {}",
                if of_devices { "devices" } else { "ranks" },
                first(finding, "collectives"),
                cost
            )
        }
        FindingCause::ExposedCommunication => sentence!("Exposed communication{}: {}", at, cost),
        FindingCause::ExposedCopy => sentence!("Exposed copies{}: {}", at, cost),
        FindingCause::LaunchBound => {
            sentence!(
                "The host launches more slowly than the device computes{}: {}",
                at,
                cost
            )
        }
        FindingCause::SmallKernels => small_kernels(finding, cost),
        FindingCause::HostBound if matches!(finding.detail, Detail::None) => {
            sentence!("Garbage collection holds the program up{}: {}", at, cost)
        }
        FindingCause::HostBound if finding.detail == Detail::Waits => {
            sentence!(
                "The thread of the steps waits while no recorded thread computes{}: {}",
                at,
                cost
            )
        }
        FindingCause::HostBound => {
            sentence!("The device waits while the host works{}: {}", at, cost)
        }
        FindingCause::Synchronization => sentence!(
            "The host waits for the device ({} per step) and cannot run ahead{}: {}",
            calls(finding),
            at,
            cost
        ),
        FindingCause::MisplacedOp => {
            sentence!(
                "An operator runs on the CPU while the device waits{}: {}",
                at,
                cost
            )
        }
        FindingCause::Compilation => match &finding.detail {
            Detail::Steps { numbers, .. } => sentence!(
                "{} compile{}{}: {}",
                steps(numbers, platform),
                verb(numbers),
                at,
                cost
            ),
            _ if diagnosis.are_steps => sentence!("Compilation within steps{}: {}", at, cost),
            _ => sentence!("Compilation{}: {}", at, cost),
        },
        FindingCause::AllocatorThrash => {
            let within = if diagnosis.are_steps {
                " within steps"
            } else {
                ""
            };
            sentence!(
                "Memory is taken from the driver and given back{}{}: {}",
                within,
                at,
                cost
            )
        }
        FindingCause::Fragmentation => sentence!(
            "Allocations find no free block that is large enough, and the allocator asks the driver{}: {}",
            at,
            cost
        ),
        FindingCause::MemoryGrowth => growth(finding, at),
        FindingCause::NearMemoryLimit => limit(finding),
        FindingCause::OutlierSteps => outliers(finding, at, cost, platform),
        FindingCause::WarmUpOnly => match &finding.detail {
            Detail::WarmUp {
                numbers,
                compile_ns,
                loading_ns,
            } => {
                let compile = if *compile_ns > 0.0 {
                    sentence!(", {} of compilation", duration(*compile_ns))
                } else if *loading_ns > 0.0 {
                    sentence!(
                        ", {} to compile and load the graph in StepMarker",
                        duration(*loading_ns)
                    )
                } else {
                    Sentence::default()
                };
                sentence!(
                    "Only the first steps are slow ({}{}), as in every healthy program",
                    steps(numbers, platform),
                    compile
                )
            }
            _ => "Only the first steps are slow".into(),
        },
        FindingCause::PipelineBubble => {
            sentence!(
                "The devices take turns: each waits for another one, {}",
                cost
            )
        }
        FindingCause::IdleUnknown => {
            sentence!(
                "The device is idle, and the trace does not tell why: {}",
                cost
            )
        }
        FindingCause::ClockSkew => clocks(finding),
        FindingCause::ProfilerOverhead => {
            sentence!("The profiler itself delays the program{}: {}", at, cost)
        }
        FindingCause::LowPrecisionOpportunity => {
            sentence!("Matrix products in 32-bit precision{}: {}", at, cost)
        }
        FindingCause::MemoryBoundKernels
            if finding.detail == (Detail::Chains { attention: true }) =>
        {
            sentence!(
                "Attention is computed as products and softmax, kernel by kernel{}: {}",
                at,
                cost
            )
        }
        FindingCause::MemoryBoundKernels => sentence!(
            "Element-wise kernels in a row move memory that one fused kernel would not{}: {}",
            at,
            cost
        ),
        FindingCause::DeviceBound => busy(finding, platform),
    }
}

/// Returns the cost: `4.43 ms per step (31.0 %)`, or per recording.
fn cost(finding: &Finding, diagnosis: &Diagnosis) -> Sentence {
    let Some(ns) = finding.saving_ns else {
        return share(finding.share).into();
    };
    if diagnosis.are_steps {
        sentence!(
            "{} per step ({})",
            duration(ns / diagnosis.steps),
            share(finding.share)
        )
    } else {
        sentence!(
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

/// Returns ` in NAME` and its enclosing slice.
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

fn calls(finding: &Finding) -> Sentence {
    match finding.detail {
        Detail::Calls { per_step } => {
            let text = plain((per_step * 10.0).round() / 10.0);
            let times = if text == "1" { "time" } else { "times" };
            sentence!(
                "{} {}",
                SentencePart::value(text, per_step, Unit::Number),
                times
            )
        }
        _ => "several times".into(),
    }
}

fn straggler(finding: &Finding, cost: Sentence) -> Sentence {
    let Detail::Rank {
        who,
        rank,
        extra_work,
        extra_ns,
    } = &finding.detail
    else {
        return sentence!("One rank is late: {}", cost);
    };
    let who = match rank {
        Some(rank) => {
            SentencePart::value(who, (*rank).into(), Unit::Number).link(Link::Rank(*rank))
        }
        None => SentencePart::text(who),
    };
    let who = Sentence::from(who).capitalised();
    let why = extra_work.map(|work| {
        let verb = match work {
            ExtraWork::Compute => "computes",
            ExtraWork::Input => "fetches input",
            ExtraWork::Host => "works on its host",
            ExtraWork::Copy => "copies",
        };
        sentence!(" (it {} {} longer per step)", verb, duration(*extra_ns))
    });
    sentence!("{} is the straggler{}: the others wait {}", who, why, cost)
}

fn small_kernels(finding: &Finding, cost: Sentence) -> Sentence {
    let at = location(finding);
    let Detail::Kernels { small, all } = finding.detail else {
        return sentence!("Very many small kernels{}: {}", at, cost);
    };
    sentence!(
        "{} of {} kernels per step are shorter than 5 µs{}; the gaps between them: {}",
        whole(small),
        whole(all),
        at,
        cost
    )
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a count of kernels in a step"
)]
fn whole(number: f64) -> SentencePart {
    with_thousands(number.round() as i64)
}

/// Returns `Step 8`, `Steps 3 and 7`, `Steps 1, 2, 3 and 4 more`.
fn steps(numbers: &[i64], platform: &Platform) -> Sentence {
    // The numbers of derived steps are valid only within their report.
    let step = |text: String, number: i64| {
        if platform.has_step_marks {
            SentencePart::value(text, number as f64, Unit::Number).link(Link::Step(number))
        } else {
            SentencePart::text(text)
        }
    };
    if let [number] = numbers {
        return step(format!("Step {number}"), *number).into();
    }
    let shown = numbers.iter().take(MOST_STEPS);
    let mut shown: Vec<Sentence> = shown
        .map(|number| step(number.to_string(), *number).into())
        .collect();
    let more = numbers.len() - shown.len();
    let last = if more > 0 {
        Some(sentence!("{} more", more.to_string()))
    } else {
        shown.pop()
    };
    match last {
        Some(last) => sentence!("Steps {} and {}", Sentence::join(shown, ", "), last),
        None => "Some steps".into(),
    }
}

const fn verb(numbers: &[i64]) -> &'static str {
    if numbers.len() == 1 { "s" } else { "" }
}

fn outliers(finding: &Finding, at: String, cost: Sentence, platform: &Platform) -> Sentence {
    let Detail::Steps { numbers, of } = &finding.detail else {
        return sentence!("Some steps are much longer than the others{}: {}", at, cost);
    };
    let be = if numbers.len() == 1 { "is" } else { "are" };
    sentence!(
        "{} of {} {} much longer than the others{}: {}, spread over all steps",
        steps(numbers, platform),
        with_thousands(*of as u64).link(Link::page("steps")),
        be,
        at,
        cost
    )
}

fn growth(finding: &Finding, at: String) -> Sentence {
    let Detail::Growth {
        allocator,
        bytes_per_step,
        steps_left,
    } = &finding.detail
    else {
        return "Memory grows from step to step".into();
    };
    let left = steps_left.map(|steps| {
        sentence!(
            "; the device is full after {} more steps",
            with_thousands(steps)
        )
    });
    sentence!(
        "Memory of {} grows by {} per step{}{}",
        allocator,
        bytes(*bytes_per_step as f64),
        at,
        left
    )
}

fn limit(finding: &Finding) -> Sentence {
    let Detail::Limit {
        reserved,
        capacity,
        unused,
    } = finding.detail
    else {
        return "Device memory is nearly full".into();
    };
    let part = reserved as f64 / capacity.max(1) as f64;
    let spare = (unused * 10 > capacity)
        .then(|| sentence!("; {} of it are never used", bytes(unused as f64)));
    sentence!(
        "Memory of {} is nearly full: {} of {} ({}){}",
        first(finding, "the device"),
        bytes(reserved as f64),
        bytes(capacity as f64),
        share(part),
        spare
    )
}

fn clocks(finding: &Finding) -> Sentence {
    match finding.detail {
        Detail::Clocks { skew_ns } => sentence!(
            "The clocks of the ranks differ by {}; the timeline shows them aligned by their collectives",
            duration(skew_ns)
        ),
        _ => "The clocks of the ranks differ".into(),
    }
}

fn busy(finding: &Finding, platform: &Platform) -> Sentence {
    let Detail::Busy { device, heaviest } = &finding.detail else {
        return "The device is busy".into();
    };
    let heaviest = heaviest.iter().take(2);
    let heaviest = heaviest.map(|(name, part)| sentence!("{} {}", in_sentence(name), share(*part)));
    let heaviest = Sentence::join(heaviest, ", ");
    let most = (!heaviest.is_empty()).then(|| sentence!("; most of it is {}", heaviest));
    match device {
        Some(part) => sentence!("The device computes {} of the time{}", share(*part), most),
        None if platform.framework == super::platform::Framework::Other => sentence!(
            "The program is busy {} of the time{}",
            share(finding.share),
            most
        ),
        None => sentence!(
            "The CPU computes {} of the time{}",
            share(finding.share),
            most
        ),
    }
}
