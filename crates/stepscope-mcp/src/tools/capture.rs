//! The tool `capture`.

use std::time::Duration;

use stepscope_remote::{
    Address, CaptureControl, CaptureRequest, Interval, capture_with, writable_log_dir,
};
use stepscope_report::report::number_format::duration;
use stepscope_report::report::{Column, Report, Table, Unit};

use super::Call;
use crate::answer::Answer;
use crate::args::{Argument, Values};
use crate::error::ToolError;

/// Duration of a capture that asks for none, milliseconds.
const DEFAULT_MS: usize = 1_000;

pub(super) const ARGUMENTS: &[Argument] = &[
    Argument::new(
        "addresses",
        Values::Texts(300),
        "programs to record, each HOST:PORT (default: all that the user allowed)",
    ),
    Argument::new(
        "duration_ms",
        // Clients give up a call after a minute.
        Values::Whole(10, 30_000),
        "recorded time in milliseconds (default 1000)",
    ),
];

/// Captures from running programs.
pub(super) fn capture(call: &Call<'_>) -> Result<Answer, ToolError> {
    let addresses = addresses(call)?;
    let ms = call.args.whole("duration_ms").unwrap_or(DEFAULT_MS);
    let log_dir = writable_log_dir(&call.engine.options().paths).map_err(|reasons| {
        let why = if reasons.is_empty() {
            "only files and object stores are served".to_owned()
        } else {
            reasons.join("; ")
        };
        ToolError::new(
            format!("cannot capture: there is no directory to write to: {why}"),
            "ask the user to start stepscope with a log directory that can be written",
        )
    })?;
    let control = CaptureControl::new();
    let abandoned = control.clone();
    if !call.stop.arm(move || abandoned.abandon()) {
        return Err(ToolError::cancelled());
    }
    let request = CaptureRequest {
        addresses: addresses.iter().map(ToString::to_string).collect(),
        interval: Interval::For(Duration::from_millis(ms as u64)),
        log_dir,
        ..CaptureRequest::default()
    };
    let captured = capture_with(&request, &control, &|_event| {})?;
    call.stop.cancel().check()?;

    let mut table = Table::new(vec![
        Column::new("address", "Address", Unit::Text),
        Column::new("events", "Events", Unit::Count),
        Column::new("bytes", "Size", Unit::Bytes),
        Column::new("problem", "Problem", Unit::Text),
    ]);
    let mut recorded = 0;
    let mut causes = Vec::new();
    for host in &captured.hosts {
        let (events, bytes, problem) = match &host.result {
            Ok(file) => {
                recorded += 1;
                let warnings = Some(file.warnings.join("; ")).filter(|text| !text.is_empty());
                (Some(file.events), Some(file.bytes), warnings)
            }
            Err(failure) => {
                causes.push(format!("{}: {failure}", host.address));
                (None, None, Some(failure.to_string()))
            }
        };
        table.push([
            host.address.clone().into(),
            events.into(),
            bytes.into(),
            problem.into(),
        ]);
    }
    if recorded == 0 {
        return Err(ToolError::new(
            format!("cannot capture: {}", causes.join("; ")),
            "the program must run, and have a profiler server: see the guide on capturing",
        ));
    }
    let results = captured.hosts.iter().map(|host| &host.result);
    let files = results.flatten().map(|file| file.path.as_path());
    let run = call.engine.run_with_file(files);
    let mut report = Report::new("capture");
    report.sentence = format!(
        "{} of {} programs were recorded for {}.",
        recorded,
        captured.hosts.len(),
        duration(ms as f64 * 1e6)
    )
    .into();
    if run.is_none() {
        report.note("The run is not in the list yet: call list_runs.");
    }
    report.table = table;
    Ok(Answer::new(run, report))
}

/// Returns the addresses to capture from: those asked for, if the user allowed each.
fn addresses(call: &Call<'_>) -> Result<Vec<Address>, ToolError> {
    let allowed = call.capture_from;
    let listed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    let help = if allowed.is_empty() {
        "the user allows programs when stepscope is started: --allow-capture HOST:PORT".to_owned()
    } else {
        format!("the user allowed {}", listed.join(", "))
    };
    let asked = call.args.text_list("addresses");
    if asked.is_empty() && !allowed.is_empty() {
        return Ok(allowed.to_vec());
    }
    if asked.is_empty() {
        return Err(ToolError::new(
            "cannot capture: the user allowed no program",
            help,
        ));
    }
    let find = |text: &String| {
        let address = Address::parse(text).ok();
        let known = allowed
            .iter()
            .find(|known| Some(*known) == address.as_ref());
        known.cloned().ok_or_else(|| {
            ToolError::new(
                format!("cannot capture from '{text}': the user did not allow this address"),
                &help,
            )
        })
    };
    asked.iter().map(find).collect()
}
