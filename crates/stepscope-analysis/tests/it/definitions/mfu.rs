//! Section "MFU".

use std::collections::BTreeMap;

use stepscope_analysis::mfu::{FlopSource, mfu};
use stepscope_analysis::op_profile::{WorkSource, op_profile};
use stepscope_analysis::torch_cost::{ProductFlops, product_flops};
use stepscope_model::{ArgValue, TrackKind};
use stepscope_store::{EventId, FactValue};
use stepscope_test_data::{Corpus, corpus_tests};

use super::operations::done;
use super::plain::{self, Span};
use super::{Case, Found, device, judge};

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let context = || case.context.clone();
    let run_profile = &case.run_profile;
    let ours = mfu(run_profile, &case.cancel).unwrap();
    let counted_flops = counted_flops(case);
    let (shapes, unknown) = from_shapes(case);
    let (flops, counted) = match (counted_flops > 0.0, shapes > 0.0) {
        (true, _) => (counted_flops, Some(FlopSource::ByXla)),
        (_, true) => (shapes, Some(FlopSource::FromShapes)),
        _ => match from_model(case) {
            0.0 => (0.0, None),
            flops => (flops, Some(FlopSource::FromModel)),
        },
    };
    found.same("who counts", ours.counted, counted, context);
    found.near(
        "operations that start in the steps",
        ours.flops,
        flops,
        context,
    );
    let unknown = if counted == Some(FlopSource::FromShapes) {
        unknown
    } else {
        0
    };
    found.same("calls not counted", ours.uncounted, unknown, context);
    let (mut possible, mut seconds) = (Some(0.0), 0.0);
    for analysis_window in &run_profile.analysis_windows {
        let length = analysis_window
            .range
            .end
            .since(analysis_window.range.start)
            .as_ns_f64()
            * 1e-9;
        let own: Vec<u32> = device::of_file(case, analysis_window.file)
            .map(|device| device.ordinal)
            .collect();
        seconds += length * own.len().max(1) as f64;
        if own.is_empty() {
            possible = None;
        }
        for ordinal in own {
            let fact = case.trace.files()[analysis_window.file]
                .fact(&format!("device.{ordinal}.peak_teraflops_per_second"));
            let peak = match fact {
                Some(FactValue::Double(tera)) => Some(tera * 1e12),
                Some(FactValue::Int(tera)) => Some(*tera as f64 * 1e12),
                Some(FactValue::Uint(tera)) => Some(*tera as f64 * 1e12),
                _ => by_name(case, analysis_window.file, ordinal)
                    .or_else(|| by_clock(case, analysis_window.file, ordinal)),
            };
            possible = possible.zip(peak).map(|(sum, peak)| sum + peak * length);
        }
    }
    found.near("length * devices", ours.device_seconds, seconds, context);
    found.near_all(
        "length * peaks of the devices",
        [ours.possible],
        [possible],
        context,
    );
    let share = possible.filter(|possible| *possible > 0.0 && counted.is_some());
    found.near_all(
        "MFU",
        [ours.counted_share()],
        [share.map(|possible| flops / possible)],
        context,
    );
    let is_possible = share.is_some_and(|possible| flops <= possible);
    let headline = ours.share().is_some() == (is_possible && ours.covered >= 0.8);
    found.holds(
        "MFU is reported only with sufficient coverage",
        headline,
        context,
    );
}

/// Peaks of GPUs without a known name: cores, clock in kHz, and operations of a core and cycle, as XProf has them.
fn by_clock(case: &Case<'_>, file: usize, ordinal: u32) -> Option<f64> {
    let text = |key: &str| {
        let fact = case.trace.files()[file].fact(&format!("device.{ordinal}.{key}"));
        fact.map(ToString::to_string)
    };
    let number = |key: &str| text(key)?.parse::<f64>().ok();
    let capability = (
        number("compute_cap_major")?,
        number("compute_cap_minor").unwrap_or(0.0),
    );
    let is_amd = text("device_vendor").is_some_and(|vendor| vendor == "AMD");
    let known: &[((f64, f64), f64)] = if is_amd {
        &[((9.0, 5.0), 4096.0), ((9.0, 4.0), 2048.0)]
    } else {
        &[
            ((10.0, 0.0), 8192.0),
            ((9.0, 0.0), 4096.0),
            ((8.0, 6.0), 1024.0),
            ((8.0, 0.0), 2048.0),
            ((7.0, 0.0), 1024.0),
        ]
    };
    let (_, per_cycle) = known.iter().find(|(from, _)| capability >= *from)?;
    Some(number("core_count")? * number("clock_rate")? * 1e3 * per_cycle)
}

/// Peaks from the makers' data sheets for the devices of the folder.
fn by_name(case: &Case<'_>, file: usize, ordinal: u32) -> Option<f64> {
    let name = case.trace.files()[file]
        .fact(&format!("device.{ordinal}.name"))?
        .to_string();
    let known = [
        ("B200", 2250.0),
        ("H100 PCIe", 756.0),
        ("H100", 989.0),
        ("A100", 312.0),
        ("V100-PCIE", 112.0),
        ("V100", 125.0),
        ("MI300X", 1307.4),
        ("MI350X", 2306.9),
        ("MI250X", 191.5),
        ("MI250", 181.0),
    ];
    let peak = known.into_iter().find(|(known, _)| name.contains(known));
    peak.map(|(_, tera)| tera * 1e12)
}

fn in_steps(case: &Case<'_>, file: usize, start: i64) -> bool {
    let own = case
        .run_profile
        .analysis_windows
        .iter()
        .filter(|own| own.file == file);
    own.map(|own| plain::range(&own.range))
        .any(|range| range.contains(&start))
}

fn flops(case: &Case<'_>, event: EventId) -> f64 {
    let (model, flops, ..) = done(case, event);
    model.or(flops).unwrap_or(0.0)
}

/// Sums XLA's own counts; for loops, the counted operations inside.
fn counted_flops(case: &Case<'_>) -> f64 {
    let mut sum = 0.0;
    for track in case.trace.tracks() {
        let of_xla = track.kind == TrackKind::DeviceQueue
            && !track.derived
            && case.trace.files()[track.file].spec.format == "xspace";
        if !of_xla {
            continue;
        }
        let slices = case.trace.slices(track.id);
        let counted: Vec<(Span, f64, bool)> = (0..slices.len())
            .map(|index| {
                let work = case.devices().work(track.id, index).is_some();
                (
                    plain::span(&slices, index),
                    flops(case, slices.id(index)),
                    work,
                )
            })
            .filter(|one| one.1 > 0.0)
            .collect();
        for (position, (span, flops, work)) in counted.iter().enumerate() {
            let holds = || {
                counted[position + 1..]
                    .iter()
                    .any(|(inner, ..)| inner.0 < span.1)
            };
            if in_steps(case, track.file, span.0) && (*work || !holds()) {
                sum += flops;
            }
        }
    }
    sum
}

fn counts(name: &str) -> bool {
    let plain = [
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::_scaled_mm",
        "aten::convolution",
        "aten::_convolution",
        "aten::convolution_backward",
        "aten::_int_mm",
        "aten::_addmm_activation",
        "vllm::rocm_unquantized_gemm",
        "aiter::gemm_a16w16",
    ];
    let attention = name.contains("_attention") || name.contains("_flash_attn");
    plain.contains(&name) || attention && counted_flops_of_call(name, EXAMPLE, "[]") > 0
}

fn counted_flops_of_call(name: &str, dims: &str, concrete: &str) -> u64 {
    match product_flops(name, dims, concrete) {
        ProductFlops::Counted(flops) => flops,
        ProductFlops::Empty | ProductFlops::Unknown => 0,
    }
}

/// Shapes with operations for every kind of attention.
const EXAMPLE: &str = "[[2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 2, 2]]";

/// Counts the outermost of nested operators, and the calls with unknown operations: nothing is found, although no
/// input is empty.
fn from_shapes(case: &Case<'_>) -> (f64, u64) {
    let (mut sum, mut unknown) = (0.0, 0);
    for track in case.trace.tracks() {
        if track.kind != TrackKind::Thread || track.derived {
            continue;
        }
        let slices = case.trace.slices(track.id);
        let mut until = i64::MIN;
        for index in 0..slices.len() {
            let name = case.trace.name(slices.name[index]);
            let (start, end) = plain::span(&slices, index);
            if start < until || !counts(name) {
                continue;
            }
            until = end;
            if !in_steps(case, track.file, start) {
                continue;
            }
            let (mut dims, mut concrete) = (String::new(), String::new());
            let _ = case.trace.args(slices.id(index), &mut |key, value| {
                if let ArgValue::Json(text) | ArgValue::Str(text) = value {
                    match key {
                        "Input Dims" | "Input dims" => text.clone_into(&mut dims),
                        "Concrete Inputs" => text.clone_into(&mut concrete),
                        _ => {}
                    }
                }
            });
            let flops = counted_flops_of_call(name, &dims, &concrete);
            sum += flops as f64;
            let empty = dims.split(['[', ']', ',']).any(|size| size.trim() == "0");
            unknown += u64::from(flops == 0 && !empty);
        }
    }
    (sum, unknown)
}

/// Sums the work of the compiled operations that slices name, an equal part of it for each slice of an operation.
fn from_model(case: &Case<'_>) -> f64 {
    let profile = op_profile(case.trace, None, &case.cancel).unwrap();
    let mut each: BTreeMap<(String, String, bool), f64> = BTreeMap::new();
    for op in &profile.ops {
        if let (Some(program), Some(work), WorkSource::Model) =
            (&op.row.program, op.work, op.source)
        {
            let key = (program.clone(), op.row.name.clone(), op.row.on_device);
            each.insert(key, work.flops / op.row.count as f64);
        }
    }
    let mut sum = 0.0;
    for track in case.trace.tracks() {
        let on_device = track.kind == TrackKind::DeviceQueue;
        if track.derived || !(on_device || track.kind == TrackKind::Thread) || each.is_empty() {
            continue;
        }
        let slices = case.trace.slices(track.id);
        for index in 0..slices.len() {
            if !in_steps(case, track.file, plain::span(&slices, index).0) {
                continue;
            }
            let (mut operation, mut module, mut id) = (None, None, None);
            let _ = case
                .trace
                .args(slices.id(index), &mut |key, value| match (key, value) {
                    ("hlo_op", ArgValue::Str(text)) => operation = Some(text.to_owned()),
                    ("hlo_module", ArgValue::Str(text)) => module = Some(text.to_owned()),
                    ("program_id", ArgValue::Int(number)) => id = Some(number.cast_unsigned()),
                    ("program_id", ArgValue::Uint(number)) => id = Some(number),
                    ("program_id", ArgValue::Str(text)) => id = text.parse().ok(),
                    _ => {}
                });
            if let Some((operation, module)) = operation.zip(module) {
                let program = id.map_or(module.clone(), |id| format!("{module}({id})"));
                sum += each.get(&(program, operation, on_device)).unwrap_or(&0.0);
            }
        }
    }
    sum
}

corpus_tests!(mfu_is_operations_over_peak_operations);

fn mfu_is_operations_over_peak_operations(corpus: &Corpus) {
    judge(
        corpus,
        "mfu",
        &[
            ("who counts", 90),
            ("operations that start in the steps", 90),
            ("calls not counted", 90),
            ("length * devices", 90),
            ("length * peaks of the devices", 90),
            ("MFU", 90),
            ("MFU is reported only with sufficient coverage", 90),
        ],
    );
}
