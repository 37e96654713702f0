//! Summaries of runs: everything that a comparison needs, without the trace.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use stepscope_engine::analysis::compare::memory::PeakHolder;
use stepscope_engine::analysis::compare::owner::{Owner, OwnerTime};
use stepscope_engine::analysis::compare::run::{
    ComparedFinding, ComparedRun, ComparedStep, FunctionTotal, LeftOut,
};
use stepscope_engine::analysis::op_class::OpClass;
use stepscope_engine::analysis::steps::bucket::StepBucket;
use stepscope_engine::analysis::training_phase::TrainingPhase;
use stepscope_model::Diagnostic;

use super::bucket_names;
use super::steps_choice::StepsChoice;
use crate::error::CliError;

/// Schema of the file.
const SCHEMA: &str = "stepscope.run-summary/1";
/// Largest file that is tried as a summary, bytes.
const LARGEST: u64 = 256 << 20;
const RECORDING: [&str; 3] = ["python_calls", "shapes", "memory"];
const LEFT_OUT: [(&str, LeftOut); 4] = [
    ("compiles", LeftOut::Compiles),
    ("warm_up", LeftOut::WarmUp),
    ("after_gap", LeftOut::AfterGap),
    ("unprofiled", LeftOut::Unprofiled),
];

/// A summary.
#[derive(Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) run: ComparedRun,
    /// The steps of the trace that were kept.
    pub(super) steps: StepsChoice,
}

/// Returns the file of a summary.
pub(super) fn text(run: &ComparedRun, steps: &StepsChoice) -> Result<String, CliError> {
    let mut value = to_json(run);
    value["compared_steps"] = steps.text().into();
    value["compared_rank"] = steps.rank.into();
    let text = serde_json::to_string(&value)?;
    // The schema comes first: a file is known by its head.
    let rest = text.strip_prefix('{').unwrap_or(&text);
    Ok(format!("{{\"schema\":\"{SCHEMA}\",{rest}\n"))
}

/// Returns the name of the run of a summary.
pub(super) fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Returns whether a file is a summary, by its head.
fn is_summary(path: &Path) -> Result<bool, CliError> {
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let is_small =
        std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() < LARGEST);
    if !is_json || !is_small {
        return Ok(false);
    }
    let mut head = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(4_096).read_to_end(&mut head))
        .map_err(|error| unreadable(path, &error))?;
    let mut windows = head.windows(SCHEMA.len());
    Ok(windows.any(|window| window == SCHEMA.as_bytes()))
}

fn unreadable(path: &Path, cause: &dyn std::fmt::Display) -> CliError {
    CliError::failed(format!("cannot read {}: {cause}", path.display()))
}

/// Reads a file that is a summary; `None` for any other file or folder.
pub(super) fn read_if_summary(path: &Path) -> Result<Option<Summary>, CliError> {
    if !is_summary(path)? {
        return Ok(None);
    }
    #[allow(
        clippy::disallowed_methods,
        reason = "a summary is small, and its size was checked"
    )]
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| unreadable(path, &error))?;
    if value["schema"] != SCHEMA {
        return Ok(None);
    }
    // Summaries of earlier versions lack the steps.
    let steps = value["compared_steps"].as_str().map(StepsChoice::read);
    let mut steps = steps.transpose()?.unwrap_or_default();
    let rank = value["compared_rank"].as_u64();
    steps.rank = rank.and_then(|rank| u32::try_from(rank).ok());
    let run = from_json(&value).ok_or_else(|| {
        let cause = "the summary lacks a field or has one of another type";
        unreadable(path, &cause)
    })?;
    Ok(Some(Summary { run, steps }))
}

fn to_json(run: &ComparedRun) -> Value {
    let steps = run.steps.iter().map(|step| {
        let left_out = step.left_out.and_then(|reason| {
            let known = LEFT_OUT.iter().find(|(_, known)| *known == reason);
            known.map(|(word, _)| *word)
        });
        json!([
            step.number,
            step.length_ns,
            step.buckets_ns,
            left_out,
            step.is_outlier
        ])
    });
    let owners = run.owners.iter().map(|time| {
        let owner = &time.owner;
        json!({
            "bucket": owner.bucket.as_str(),
            "class": owner.class.as_str(),
            "operation": owner.operation,
            "phase": owner.phase.as_str(),
            "kernel": owner.kernel,
            "module": owner.module,
            "shapes": owner.shapes,
            "calls": time.calls,
            "executions": time.executions,
            "mean_ps": time.mean_ps,
            "device_ns": time.device_ns,
            "by_step_ns": time.by_step_ns,
            "device_by_step_ns": time.device_by_step_ns,
        })
    });
    let totals = run.totals.iter();
    let totals = totals.map(|total| json!([total.name, total.calls, total.time_ns]));
    let losses = run.losses.iter();
    let losses: Vec<Value> = losses
        .map(|(what, count)| json!([what.code(), count]))
        .collect();
    let findings = run.findings.iter();
    let findings = findings.map(|finding| json!([finding.cause, finding.saving_ns]));
    let holders = run.peak_holders.iter();
    let holders = holders.map(|holder| json!([holder.name, holder.bytes, holder.allocations]));
    let recording = RECORDING.iter().zip(run.recording);
    let recording: Map<String, Value> = recording
        .map(|(option, on)| ((*option).to_owned(), on.into()))
        .collect();
    json!({
        "buckets": bucket_names(),
        "steps": steps.collect::<Vec<_>>(),
        "all_steps_left_out": run.all_steps_left_out,
        "is_whole_recording": run.is_whole_recording,
        "derived_steps": run.derived_steps,
        "mean_ps": run.mean_ps,
        "owners": owners.collect::<Vec<_>>(),
        "totals": totals.collect::<Vec<_>>(),
        "peak_memory_bytes": run.peak_memory_bytes,
        "peak_holders": holders.collect::<Vec<_>>(),
        "ranks": run.ranks,
        "devices": run.devices,
        "environment": run.environment,
        "recording": recording,
        "heaviest_shapes": run.heaviest_shapes,
        "unlaunched_share": run.unlaunched_share,
        "losses": losses,
        "clock_error_ns": run.clock_error_ns,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn from_json(value: &Value) -> Option<ComparedRun> {
    let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
    let numbers = |value: &Value| {
        value
            .as_array()?
            .iter()
            .map(number)
            .collect::<Option<Vec<f64>>>()
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let texts = |value: &Value| {
        value
            .as_array()?
            .iter()
            .map(text)
            .collect::<Option<Vec<String>>>()
    };
    let mut run = ComparedRun {
        all_steps_left_out: value["all_steps_left_out"].as_bool()?,
        is_whole_recording: value["is_whole_recording"].as_bool()?,
        derived_steps: value["derived_steps"].as_bool()?,
        mean_ps: value["mean_ps"].as_i64()?,
        peak_memory_bytes: number(&value["peak_memory_bytes"]),
        ranks: value["ranks"].as_u64()?,
        devices: texts(&value["devices"])?,
        unlaunched_share: number(&value["unlaunched_share"])?,
        // Summaries of earlier versions lack these.
        clock_error_ns: number(&value["clock_error_ns"]).unwrap_or_default(),
        ..ComparedRun::default()
    };
    for (option, on) in RECORDING.iter().zip(&mut run.recording) {
        *on = value["recording"][*option].as_bool()?;
    }
    for step in value["steps"].as_array()? {
        let left_out = step[3].as_str();
        run.steps.push(ComparedStep {
            number: step[0].as_i64()?,
            length_ns: number(&step[1])?,
            buckets_ns: numbers(&step[2])?.try_into().ok()?,
            left_out: left_out.and_then(|word| {
                let known = LEFT_OUT.iter().find(|(known, _)| *known == word);
                known.map(|(_, reason)| *reason)
            }),
            is_outlier: step[4].as_bool()?,
        });
    }
    let samples = run.samples().count();
    for time in value["owners"].as_array()? {
        let series = |value: &Value| {
            let series = numbers(value)?;
            (series.is_empty() || series.len() == samples).then_some(series)
        };
        run.owners.push(OwnerTime {
            owner: Owner {
                bucket: StepBucket::from_name(time["bucket"].as_str()?)?,
                class: OpClass::from_name(time["class"].as_str()?)?,
                operation: text(&time["operation"])?,
                phase: TrainingPhase::from_name(time["phase"].as_str()?)?,
                kernel: text(&time["kernel"])?,
                module: text(&time["module"])?,
                shapes: text(&time["shapes"])?,
            },
            calls: number(&time["calls"])?,
            executions: number(&time["executions"])?,
            mean_ps: time["mean_ps"].as_i64()?,
            device_ns: number(&time["device_ns"])?,
            by_step_ns: series(&time["by_step_ns"])?,
            device_by_step_ns: series(&time["device_by_step_ns"])?,
        });
    }
    for total in value["totals"].as_array()? {
        run.totals.push(FunctionTotal {
            name: text(&total[0])?,
            calls: number(&total[1])?,
            time_ns: number(&total[2])?,
        });
    }
    for loss in value["losses"].as_array().into_iter().flatten() {
        let code = loss[0].as_str()?;
        let known = Diagnostic::ALL.iter().find(|known| known.code() == code);
        run.losses
            .extend(known.copied().zip(Some(loss[1].as_u64()?)));
    }
    for finding in value["findings"].as_array()? {
        run.findings.push(ComparedFinding {
            cause: text(&finding[0])?,
            saving_ns: number(&finding[1]),
        });
    }
    // Summaries of earlier versions lack these.
    for holder in value["peak_holders"].as_array().into_iter().flatten() {
        run.peak_holders.push(PeakHolder {
            name: text(&holder[0])?,
            bytes: number(&holder[1])?,
            allocations: number(&holder[2])?,
        });
    }
    for (key, values) in value["environment"].as_object()? {
        run.environment.insert(key.clone(), texts(values)?);
    }
    for (operation, shapes) in value["heaviest_shapes"].as_object()? {
        run.heaviest_shapes.insert(operation.clone(), text(shapes)?);
    }
    Some(run)
}

/// Lists the summaries of a folder, the oldest first.
pub(super) fn summaries(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        if is_summary(&path)? {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_holds_everything_that_is_compared() {
        let mut run = ComparedRun {
            mean_ps: 7,
            ranks: 1,
            recording: [true, false, true],
            peak_memory_bytes: Some(5.0),
            peak_holders: vec![PeakHolder {
                name: "aten::mm".to_owned(),
                bytes: 5.0,
                allocations: 2.0,
            }],
            devices: vec!["A100".to_owned()],
            ..ComparedRun::default()
        };
        run.steps.push(ComparedStep {
            number: 3,
            length_ns: 0.5,
            buckets_ns: [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            left_out: None,
            is_outlier: true,
        });
        run.owners.push(OwnerTime {
            owner: Owner {
                bucket: StepBucket::Compute,
                class: OpClass::Matmul,
                operation: "aten::mm".to_owned(),
                phase: TrainingPhase::Backward,
                kernel: "gemm".to_owned(),
                module: String::new(),
                shapes: String::new(),
            },
            calls: 1.0,
            executions: 2.0,
            mean_ps: 7,
            device_ns: 0.25,
            by_step_ns: vec![0.5],
            device_by_step_ns: Vec::new(),
        });
        run.environment
            .insert("torch".to_owned(), vec!["2.9".to_owned()]);
        run.heaviest_shapes
            .insert("aten::mm".to_owned(), "[2, 3]".to_owned());
        run.losses.push((Diagnostic::DroppedByWriter, 3));
        run.clock_error_ns = 1.5;
        assert_eq!(from_json(&to_json(&run)), Some(run.clone()));
        let mut broken = to_json(&run);
        broken["owners"][0]["by_step_ns"] = json!([1.0, 2.0]);
        assert_eq!(from_json(&broken), None);
        assert_eq!(from_json(&json!({"schema": SCHEMA})), None);
    }
}
