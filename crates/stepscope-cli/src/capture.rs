//! `stepscope capture`: captures from running programs.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use stepscope_engine::is_url;
use stepscope_remote::{
    CaptureControl, CaptureError, CaptureEvent, CaptureReport, CaptureRequest, Captured,
    HostReport, Interval, OptionValue, capture_with, perfetto_path, write_perfetto,
};
use stepscope_server::{
    LinkOutcome, LinkStopper, PerfettoLink, PerfettoLinkError, PerfettoLinkOptions,
};

use crate::args;
use crate::error::CliError;
use crate::interrupt;
use crate::staged::Staged;
use crate::text::{self, clean, short};

/// Shorter captures show no progress.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum number of failed hosts in the error's line.
const MAX_NAMED: usize = 8;
/// Maximum length of a host name in that line, characters.
const MAX_HOST_CHARS: usize = 80;

/// Runs the command.
pub fn run(asked: &args::CaptureArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut request = request(asked)?;
    let url = asked.logdir.as_ref().filter(|logdir| is_url(logdir));
    let staged = url.map(|url| Staged::new(url)).transpose()?;
    if let Some(staged) = &staged {
        staged.folder().clone_into(&mut request.log_dir);
    }
    let ends = InterruptHandler::default();
    let bar = bar();
    let (pressed, shown) = (ends.clone(), bar.clone());
    // Without a handler, Ctrl+C ends the command.
    let _ = interrupt::on_each(move |times| {
        let message = pressed.press(times);
        shown.println(message);
    });
    // The result of a single host with a single attempt is printed at the end.
    let once = request.addresses.len() == 1 && request.retries == 0;
    let report = capture_with(&request, &ends.control, &|event| match event {
        CaptureEvent::Failed { .. } if once => {}
        event => show(&bar, &event),
    });
    bar.finish_and_clear();
    if asked.logdir.is_none() && !report.as_ref().is_ok_and(CaptureReport::any_ok) {
        // The directory is empty: the capture failed.
        let _ = std::fs::remove_dir(&request.log_dir);
    }
    let mut report = report.map_err(refused)?;

    let perfetto = if asked.perfetto {
        write_all(&report)
    } else {
        Vec::new()
    };
    let link = if asked.no_perfetto_link {
        None
    } else {
        first_file(&perfetto).map(|path| {
            let options = PerfettoLinkOptions {
                timeout: asked.perfetto_timeout,
                ..PerfettoLinkOptions::default()
            };
            PerfettoLink::bind(path, &options)
        })
    };
    // Until the link was opened, the file has to stay here.
    let mut shown = perfetto.clone();
    let _staged = match staged {
        Some(mut staged) if report.any_ok() => {
            staged.upload("")?;
            show_urls(&staged, &mut report, &mut shown);
            Some(staged)
        }
        other => other,
    };
    let perfetto = shown;
    if asked.json {
        print_json(&report, &perfetto, link.as_ref(), out)?;
    } else {
        print_text(&report, &perfetto, link.as_ref(), out)?;
    }
    out.flush()?;
    let outcome = outcome(&report, &perfetto);
    match link {
        Some(Ok(waiting)) => {
            let ended = ends
                .wait(waiting)
                .map_err(|error| CliError::failed(format!("cannot serve the trace: {error}")))?;
            if !asked.json {
                print_end(ended, asked.perfetto_timeout, out)?;
            }
            outcome
        }
        Some(Err(error)) => outcome.and(Err(CliError::failed(error.to_string()))),
        None => outcome,
    }
}

/// Replaces the paths of copied files by their URLs.
fn show_urls(staged: &Staged, report: &mut CaptureReport, perfetto: &mut [PerfettoFile]) {
    report.folder = staged.url_of(&report.folder);
    let captured = report
        .hosts
        .iter_mut()
        .map(|host| host.result.as_mut().ok());
    for captured in captured.flatten() {
        captured.path = staged.url_of(&captured.path);
    }
    for path in perfetto.iter_mut().flatten().flatten() {
        *path = staged.url_of(path);
    }
}

/// Handler of Ctrl+C.
#[derive(Clone, Debug, Default)]
struct InterruptHandler {
    control: CaptureControl,
    /// Set while a link waits for the browser.
    link: Arc<Mutex<Option<LinkStopper>>>,
}

impl InterruptHandler {
    /// Acts on the given press and returns a line that describes the action.
    fn press(&self, times: u32) -> &'static str {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stopper) = &*link {
            stopper.stop();
            return "not waiting for the browser any more";
        }
        if times == 1 {
            self.control.end_early();
            "ending the capture, its data is kept; CTRL+C again gives it up"
        } else {
            self.control.abandon();
            "giving up"
        }
    }

    fn wait(&self, link: PerfettoLink) -> std::io::Result<LinkOutcome> {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.stopper());
        link.wait()
    }
}

fn request(asked: &args::CaptureArgs) -> Result<CaptureRequest, CliError> {
    let interval = match (asked.ms.or(asked.duration_ms), asked.last) {
        (Some(ms), None) => Interval::For(Duration::from_millis(ms)),
        (None, Some(last)) => Interval::Last(last),
        _ => {
            return Err(CliError::usage(
                "cannot capture: no interval given\nhelp: give --duration-ms N or --last 10s",
            ));
        }
    };
    let log_dir = match (&asked.logdir, asked.ms) {
        (Some(logdir), _) => logdir.clone(),
        (None, Some(_)) => new_directory()?,
        (None, None) => {
            return Err(CliError::usage(
                "cannot capture: no log directory given\nhelp: name one with --logdir",
            ));
        }
    };
    Ok(CaptureRequest {
        addresses: asked
            .addresses
            .split(',')
            .map(|typed| with_host(typed.trim(), &asked.host))
            .collect(),
        interval,
        log_dir,
        session: asked.session.clone(),
        delay: Duration::from_millis(asked.delay_ms),
        retries: asked.retries,
        connect_timeout: asked.connect_timeout,
        timeout: asked.timeout,
        host_tracer_level: asked.host_tracer_level,
        python_tracer_level: asked.python_tracer_level,
        device_tracer_level: asked.device_tracer_level,
        max_events: asked.max_events,
        options: options(asked),
    })
}

fn options(asked: &args::CaptureArgs) -> BTreeMap<String, OptionValue> {
    let mut options: BTreeMap<_, _> = asked.options.iter().cloned().collect();
    if asked.python_sampling_hz > 0 {
        let hz = OptionValue::Int(asked.python_sampling_hz.into());
        options.insert("python_sampling_hz".to_owned(), hz);
    }
    options
}

/// Prepends the host of `--host` to an address that is a port only.
fn with_host(typed: &str, host: &str) -> String {
    let port = typed.strip_prefix(':').unwrap_or(typed);
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return typed.to_owned();
    }
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]:{port}");
    }
    format!("{host}:{port}")
}

/// Creates a new directory, if none was given.
fn new_directory() -> Result<PathBuf, CliError> {
    let parent = std::env::temp_dir();
    let process = std::process::id();
    for number in 0..1_000 {
        let folder = parent.join(format!("stepscope-{process}-{number}"));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(CliError::failed(format!(
                    "cannot create a directory in {}: {error}\nhelp: name one with --logdir",
                    parent.display()
                )));
            }
        }
    }
    Err(CliError::failed(format!(
        "cannot create a directory in {}: too many of earlier captures\nhelp: name one with --logdir",
        parent.display()
    )))
}

/// Converts to a usage error, or to a failure if the system is the cause.
fn refused(error: CaptureError) -> CliError {
    match error {
        CaptureError::LogDir { .. } | CaptureError::System { .. } => {
            CliError::failed(error.to_string())
        }
        error => CliError::usage(error.to_string()),
    }
}

fn bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(1), target);
    bar.set_style(
        ProgressStyle::with_template("{msg:>10} [{bar:40}] {percent:>3} %  {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> "),
    );
    bar
}

/// Shows the progress, only on a terminal and only for long operations.
fn show(bar: &ProgressBar, event: &CaptureEvent) {
    match event {
        CaptureEvent::Waiting { until_start } if *until_start > QUIET => {
            bar.set_message("waiting");
        }
        CaptureEvent::Recording { elapsed, total } if *total >= QUIET => {
            bar.set_message("recording");
            bar.set_length(u64::try_from(total.as_millis()).unwrap_or(u64::MAX));
            bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        }
        CaptureEvent::Collecting { .. } => bar.set_message("collecting"),
        CaptureEvent::Failed {
            host,
            stage,
            message,
        } => bar.println(format!("{}: {stage}, {}", clean(host), clean(message))),
        CaptureEvent::Retrying { attempt } => {
            bar.println(format!("trying again ({attempt})"));
        }
        _ => {}
    }
}

/// Result of a host's Perfetto file; `None` for hosts without data.
type PerfettoFile = Option<Result<PathBuf, String>>;

/// Writes the Perfetto form of each host's trace into the same folder.
fn write_all(report: &CaptureReport) -> Vec<PerfettoFile> {
    report
        .hosts
        .iter()
        .map(|host| {
            let captured = host.result.as_ref().ok()?;
            let place = perfetto_path(&captured.path);
            Some(match write_perfetto(&captured.path, &place) {
                Ok(_) => Ok(place),
                Err(error) => Err(error.to_string()),
            })
        })
        .collect()
}

fn first_file(perfetto: &[PerfettoFile]) -> Option<&Path> {
    perfetto
        .iter()
        .flatten()
        .find_map(|written| written.as_deref().ok())
}

type Link = Result<PerfettoLink, PerfettoLinkError>;

fn print_text(
    report: &CaptureReport,
    perfetto: &[PerfettoFile],
    link: Option<&Link>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    for host in &report.hosts {
        let name = short(&host.address, MAX_HOST_CHARS);
        match &host.result {
            Ok(captured) => print_captured(&name, captured, out)?,
            Err(failure) if report.hosts.len() > 1 => {
                writeln!(
                    out,
                    "{name}: {}, {}",
                    failure.stage,
                    clean(&failure.message)
                )?;
            }
            // The error's line already reports it.
            Err(_) => {}
        }
    }
    for path in perfetto.iter().flatten().flatten() {
        writeln!(out, "for Perfetto: {}", clean(&path.display().to_string()))?;
    }
    if let Some(logdir) = log_dir(report).filter(|_| report.any_ok()) {
        let logdir = logdir.display().to_string();
        writeln!(
            out,
            "View it with: stepscope {}",
            clean(&text::shell_word(&logdir))
        )?;
    }
    if let Some(Ok(waiting)) = link {
        writeln!(out, "Open URL in browser: {}", waiting.url())?;
    }
    Ok(())
}

fn print_captured(name: &str, captured: &Captured, out: &mut dyn Write) -> Result<(), CliError> {
    let events = match captured.events {
        1 => "1 event".to_owned(),
        events => format!("{} events", text::count(events)),
    };
    writeln!(
        out,
        "{name}: {} ({events}, {})",
        clean(&captured.path.display().to_string()),
        text::bytes(captured.bytes)
    )?;
    for warning in &captured.warnings {
        writeln!(out, "{name}: note: {}", clean(warning))?;
    }
    Ok(())
}

/// Returns the log directory of `LOG_DIR/plugins/profile/SESSION`.
fn log_dir(report: &CaptureReport) -> Option<&Path> {
    report.folder.ancestors().nth(3)
}

fn print_end(ended: LinkOutcome, waited: Duration, out: &mut dyn Write) -> Result<(), CliError> {
    match ended {
        LinkOutcome::Fetched => writeln!(out, "the browser has the trace")?,
        LinkOutcome::TimedOut => writeln!(
            out,
            "no browser opened the link within {}; the file stays: open it in https://ui.perfetto.dev by hand",
            text::duration(waited.as_secs_f64() * 1e9)
        )?,
        _ => writeln!(
            out,
            "the file stays; open it in https://ui.perfetto.dev by hand"
        )?,
    }
    Ok(())
}

/// Returns success if every host delivered data and at least one event exists.
fn outcome(report: &CaptureReport, perfetto: &[PerfettoFile]) -> Result<(), CliError> {
    let failed: Vec<&HostReport> = report
        .hosts
        .iter()
        .filter(|host| host.result.is_err())
        .collect();
    if let [host] = report.hosts.as_slice()
        && let Err(failure) = &host.result
    {
        return Err(CliError::failed(format!(
            "cannot capture {}: {}: {}",
            short(&host.address, MAX_HOST_CHARS),
            failure.stage,
            failure.message
        )));
    }
    if !failed.is_empty() {
        let mut named: Vec<String> = failed
            .iter()
            .take(MAX_NAMED)
            .filter_map(|host| {
                let stage = host.result.as_ref().err()?.stage;
                Some(format!(
                    "{} ({stage})",
                    short(&host.address, MAX_HOST_CHARS)
                ))
            })
            .collect();
        if failed.len() > MAX_NAMED {
            named.push(format!("{} more", failed.len() - MAX_NAMED));
        }
        let kept = if report.any_ok() {
            "; the data of the others is kept"
        } else {
            ""
        };
        return Err(CliError::failed(format!(
            "cannot capture {} of {} hosts: {}{kept}",
            failed.len(),
            report.hosts.len(),
            named.join(", ")
        )));
    }
    let all_empty = report
        .hosts
        .iter()
        .all(|host| host.result.as_ref().is_ok_and(|captured| captured.empty));
    if all_empty {
        return Err(CliError::failed(format!(
            "cannot find an event in the capture {}: the programs recorded nothing\nhelp: capture while the program works, or for longer",
            report.folder.display()
        )));
    }
    let unwritten = perfetto
        .iter()
        .flatten()
        .find_map(|file| file.as_ref().err());
    match unwritten {
        Some(error) => Err(CliError::failed(error)),
        None => Ok(()),
    }
}

/// The result as JSON: see `docs/reference/capture.md`.
#[derive(Serialize)]
struct Json<'a> {
    session: &'a str,
    folder: String,
    hosts: Vec<JsonHost<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    perfetto_link: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonHost<'a> {
    address: &'a str,
    ok: bool,
    #[serde(flatten)]
    result: JsonResult<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    perfetto_path: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonResult<'a> {
    Captured {
        path: String,
        bytes: u64,
        events: u64,
        empty: bool,
        warnings: &'a [String],
    },
    Failed {
        stage: &'static str,
        message: &'a str,
    },
}

fn print_json(
    report: &CaptureReport,
    perfetto: &[PerfettoFile],
    link: Option<&Link>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let path = |path: &Path| path.display().to_string();
    let hosts = report.hosts.iter().enumerate().map(|(index, host)| {
        let result = match &host.result {
            Ok(captured) => JsonResult::Captured {
                path: path(&captured.path),
                bytes: captured.bytes,
                events: captured.events,
                empty: captured.empty,
                warnings: &captured.warnings,
            },
            Err(failure) => JsonResult::Failed {
                stage: failure.stage.key(),
                message: &failure.message,
            },
        };
        let written = perfetto.get(index).and_then(Option::as_ref);
        JsonHost {
            address: &host.address,
            ok: host.result.is_ok(),
            result,
            perfetto_path: written.and_then(|file| file.as_deref().ok()).map(path),
        }
    });
    let json = Json {
        session: &report.session,
        folder: path(&report.folder),
        hosts: hosts.collect(),
        perfetto_link: link
            .and_then(|link| link.as_ref().ok())
            .map(PerfettoLink::url),
    };
    let json = serde_json::to_string_pretty(&json)?;
    writeln!(out, "{}", text::clean_json(&json))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_the_host() {
        assert_eq!(with_host("9012", "h"), "h:9012");
        assert_eq!(with_host(":9012", "h"), "h:9012");
        assert_eq!(with_host("9012", "::1"), "[::1]:9012");
        assert_eq!(with_host("x:9012", "h"), "x:9012");
        assert_eq!(with_host("", "h"), "");
    }
}
