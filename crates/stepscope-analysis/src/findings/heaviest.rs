//! Where to look when little stands out: the operations that take most.

use stepscope_model::{Dur, SliceKind};

use super::finders::{part, per_step};
use super::{Confidence, Finding};
use crate::ops::{OpReport, OpRow};
use crate::report::{in_sentence, share};
use crate::survey::Survey;
use crate::writer::is_compiled;

const NAME: &str = "operation";
/// Fewer findings than this are filled up.
pub const LEAST: usize = 2;
/// Below this part of the time an operation is not worth a look.
const SMALLEST: f64 = 0.02;

/// Fills up with the heaviest operations, below what stands out: by the device time that they
/// launched where it is known, else by their own time. Nothing is at stake for sure: a faster
/// operation gains a part of it.
pub fn fill(survey: &Survey<'_>, found: &mut Vec<Finding>, operations: &OpReport) {
    let launched = operations
        .rows
        .iter()
        .any(|row| row.launched_self_ps.unwrap_or(0) > 0);
    let time = |row: &OpRow| {
        if launched {
            row.launched_self_ps.unwrap_or(0)
        } else {
            row.self_ps
        }
    };
    let mut rows: Vec<&OpRow> = operations.rows.iter().filter(|row| works(row)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(time(row)));
    let missing = LEAST.saturating_sub(found.len());
    // Several devices and threads work side by side: their mean.
    let side_by_side = match survey.devices.list.len() {
        0 => 1,
        devices if launched || rows.first().is_some_and(|row| row.on_device) => devices,
        _ => 1,
    };
    let compiled = is_compiled(survey.trace);
    for row in rows.into_iter().take(missing) {
        let ps = time(row) / i128::try_from(side_by_side).unwrap_or(1);
        let stake = Dur::from_ps(i64::try_from(ps).unwrap_or(i64::MAX));
        if part(survey, stake) < SMALLEST || part(survey, stake) > 1.0 {
            continue;
        }
        let whose = if launched || row.on_device {
            "device"
        } else {
            "own"
        };
        let is_next = found.last().is_some_and(|last| last.name == NAME);
        let leads = if is_next {
            format!("Next: {whose} time of")
        } else {
            format!("Most {whose} time in one operation:")
        };
        found.push(Finding {
            name: NAME,
            title: format!(
                "{leads} {}, {} ({})",
                in_sentence(&row.name),
                per_step(survey, stake),
                share(part(survey, stake))
            ),
            stake,
            evidence: vec![row.longest],
            advice: advice(row.kind, compiled).to_owned(),
            confidence: Confidence::Low,
            page: "ops",
        });
    }
}

/// Whether a row is work: no step, no label around others, no waiting.
fn works(row: &OpRow) -> bool {
    !matches!(
        row.kind,
        SliceKind::Host
            | SliceKind::Input
            | SliceKind::Compile
            | SliceKind::Runtime
            | SliceKind::Wait
            | SliceKind::UserLabel
    )
}

const fn advice(kind: SliceKind, compiled: bool) -> &'static str {
    match kind {
        SliceKind::MatMul => {
            "A lower precision (bf16, TF32, fp8), dimensions in multiples of 8 or 128, and larger \
             batches make it faster; its shapes are in the table."
        }
        SliceKind::Attention if compiled => {
            "A fused kernel (jax.nn.dot_product_attention, Pallas) and a lower precision make it faster."
        }
        SliceKind::Attention => {
            "A fused kernel (scaled_dot_product_attention, FlashAttention) and a lower precision make \
             it faster."
        }
        SliceKind::Elementwise | SliceKind::Fusion if compiled => {
            "It moves memory more than it computes: a lower precision makes it faster, and so does a \
             shape of the program that lets the compiler fuse it with its neighbours."
        }
        SliceKind::Elementwise | SliceKind::Fusion => {
            "It moves memory more than it computes: fuse it with its neighbours (torch.compile), or use \
             a lower precision."
        }
        SliceKind::Copy => {
            "Keep data where it is used and in the layout that is needed, so that less is copied."
        }
        SliceKind::Collective => "Communicate less at once, or beside computation.",
        _ => "Its shapes, occurrences and trend over the steps are in the table.",
    }
}
