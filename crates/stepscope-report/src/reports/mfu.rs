//! [`mfu`](stepscope_analysis::mfu) as a report.

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use crate::report::{
    Link, Report, Sentence, SentencePart, Unit, duration, sentence, share, significant,
    with_thousands,
};
use crate::reports::{Options, steps as steps_report};
use stepscope_analysis::mfu::{FlopSource, Mfu, mfu_with_peaks};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::peaks::PeakSource;
use stepscope_analysis::run_profile::RunProfile;

const KIND: &str = "mfu";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let run_profile = RunProfile::compute(trace, &options.scope(), cancel)?;
    let found = mfu_with_peaks(&run_profile, &options.peaks, cancel)?;
    let Some(counted) = found.counted else {
        return Ok(Report::missing(
            KIND,
            "no file of this run counts floating-point operations, or holds the shapes to compute them from",
        ));
    };
    let seconds = found.time.as_ns_f64() * 1e-9;
    let rate = found.flops / seconds;
    let mut report = Report::new(KIND);
    let per = if run_profile.has_steps() {
        "step"
    } else {
        "recording"
    };
    let analysis_windows = run_profile.analysis_windows.len().max(1) as f64;
    let headline = found.is_covered() && !found.exceeds_peak();
    report.sentence = if headline {
        let mean_ns = found.time.as_ns_f64() / analysis_windows;
        sentence!(
            "{}: {}, {} in a {} of {}, {}.",
            utilisation(&found),
            operations(rate, "/s").link(Link::scalar("teraflops_per_second")),
            operations(found.flops / analysis_windows, "").link(
                run_profile
                    .has_steps()
                    .then_some(Link::scalar("teraflop_per_step"))
            ),
            per,
            duration(mean_ns).link(steps_report::nearest(&run_profile, mean_ns)),
            counted.as_str(),
        )
    } else {
        unknown(&found)
    };
    report.scalar("mfu_share", "MFU", Unit::Share, found.share());
    report.scalar(
        "covered_share",
        "Product time counted",
        Unit::Share,
        found.covered,
    );
    report.scalar(
        "teraflops_per_second",
        "TFLOP/s",
        Unit::Number,
        headline.then_some(rate / 1e12),
    );
    report.scalar(
        "teraflop_per_step",
        "TFLOP per step",
        Unit::Number,
        (headline && run_profile.has_steps()).then(|| found.flops / analysis_windows / 1e12),
    );
    // Devices that work in parallel: the mean over the analysis windows.
    let devices = found.device_seconds / seconds;
    report.scalar("devices", "Devices", Unit::Number, devices);
    report.scalar(
        "peak_teraflops_per_second",
        "Peak of a device",
        Unit::Number,
        found
            .possible
            .map(|all| (all / found.device_seconds / 1e9).round() / 1e3),
    );
    report.scalar("counted", "Counted", Unit::Text, counted.as_str());
    if found.uncounted > 0 {
        report.scalar(
            "uncounted_calls",
            "Calls not counted",
            Unit::Count,
            found.uncounted,
        );
        report.note(sentence!(
            "{} convolutions or products do not say their shapes and strides: what they did is not counted, and \
             more of the arithmetic is used than this.",
            with_thousands(found.uncounted).link(Link::scalar("uncounted_calls"))
        ));
    }
    report.notes.extend(found.peaks.iter().map(|(device, peak)| {
        let device = if device.is_empty() { "Devices" } else { device };
        let teraflops = peak.per_second / 1e12;
        Sentence::from(match peak.source {
            PeakSource::Given => format!("{device}: {teraflops} TFLOP/s, as given"),
            PeakSource::File => format!("{device}: {teraflops} TFLOP/s, as the file says"),
            PeakSource::DataSheet => format!(
                "{device}: {teraflops} TFLOP/s, as its maker states for dense products in 16 bits"
            ),
            PeakSource::CoresAndClock => format!(
                "{device}: {teraflops} TFLOP/s, cores times clock times operations of a core and cycle"
            ),
            PeakSource::Measured => format!(
                "{device}: {teraflops} TFLOP/s, as 'stepscope peaks' measured for products in 32 bits"
            ),
        })
    }));
    if counted == FlopSource::FromShapes {
        report.note(
            "Operations are computed from the shapes of products of matrices, convolutions and attention, as \
             torch.utils.flop_counter counts them. Kernels that no such operator launched (of Triton, of compiled \
             graphs) are not counted.",
        );
    }
    if counted == FlopSource::FromModel {
        report.note(
            "The trace states no FLOPs: those of compiled programs are from XLA's cost analysis of the programs in \
             the file. Custom calls without a model are not counted.",
        );
    }
    if found.possible.is_none() {
        report.note(
            "The peak of the devices is not in the files, and their names are not among those that are known.",
        );
    }
    Ok(report)
}

/// Returns the MFU in a sentence, as far as it is known.
fn utilisation(found: &Mfu) -> Sentence {
    let Some(part) = found.counted_share() else {
        return "The peak of the devices is unknown".into();
    };
    let is_tiny = part < 0.001;
    let shown = |tiny: &str| {
        let part = if is_tiny {
            SentencePart::value(tiny, part, Unit::Share)
        } else {
            share(part)
        };
        part.link(Link::scalar("mfu_share"))
    };
    if found.uncounted > 0 {
        sentence!(
            "The counted FLOPs are {} of the devices' peak",
            shown("less than 0.1 %").link(Link::scalar("teraflops_per_second"))
        )
    } else {
        sentence!("FLOPs utilisation (MFU) is {}", shown("below 0.1 %"))
    }
}

/// Returns the reason why there is no figure.
fn unknown(found: &Mfu) -> Sentence {
    let covered = share(found.covered).link(Link::scalar("covered_share"));
    if found.is_covered() && found.exceeds_peak() {
        return "MFU is unknown: more operations are counted than the devices can do in the time of the steps. \
                Either the host runs ahead, and its steps end before the work of its devices (record more steps), \
                or the peak is too low (--peak-flops)."
            .into();
    }
    if found.counted == Some(FlopSource::FromModel) {
        return sentence!(
            "MFU is unknown: the cost model knows the work of operations that take {} of the time.",
            covered
        );
    }
    if found.uncounted > 0 {
        sentence!(
            "MFU is unknown: {} of {} products have no shapes; those with shapes hold {} of the \
             products' time.",
            with_thousands(found.uncounted).link(Link::scalar("uncounted_calls")),
            with_thousands(found.products),
            covered
        )
    } else {
        sentence!(
            "MFU is unknown: operators with shapes launched only {} of the products' time; the \
             others are kernels of compiled or custom code.",
            covered
        )
    }
}

/// Returns a number of operations as part of a sentence: `1.81 TFLOP`, or a rate with the suffix
/// `/s`.
pub(super) fn operations(number: f64, per: &str) -> SentencePart {
    let (scale, prefix) = match number {
        size if size >= 1e15 => (1e15, "P"),
        size if size >= 1e12 => (1e12, "T"),
        size if size >= 1e9 => (1e9, "G"),
        _ => (1e6, "M"),
    };
    let text = format!("{} {prefix}FLOP{per}", significant(number / scale));
    SentencePart::value(text, number, Unit::Number)
}
