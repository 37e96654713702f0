//! The client against servers of every kind, each a fake that behaves in one way.

mod answers;
mod control;
mod failures;
mod fake;
mod perfetto_file;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use stepscope_remote::{
    CaptureControl, CaptureEvent, CaptureFailure, CaptureReport, CaptureRequest, Captured,
    Interval, capture_with,
};

/// Long enough to be an interval, short enough for a test.
const SHORT: Duration = Duration::from_millis(20);

/// A capture of a short interval into `log_dir`.
fn request(addresses: &[&str], log_dir: &Path) -> CaptureRequest {
    CaptureRequest {
        addresses: addresses
            .iter()
            .map(|&address| address.to_owned())
            .collect(),
        interval: Interval::For(SHORT),
        log_dir: log_dir.to_owned(),
        connect_timeout: Duration::from_mins(1),
        timeout: Duration::from_mins(1),
        ..CaptureRequest::default()
    }
}

/// The report and everything that was told on the way, without the progress.
fn observed(request: &CaptureRequest) -> (CaptureReport, Vec<CaptureEvent>) {
    let events = Mutex::new(Vec::new());
    let report = capture_with(request, &CaptureControl::new(), &|event| {
        let progress = matches!(
            event,
            CaptureEvent::Waiting { .. } | CaptureEvent::Recording { .. }
        );
        if !progress {
            events.lock().unwrap().push(event);
        }
    });
    (report.unwrap(), events.into_inner().unwrap())
}

fn captured(report: &CaptureReport) -> Captured {
    assert_eq!(report.hosts.len(), 1);
    report.hosts[0].result.clone().unwrap()
}

fn failure(report: &CaptureReport) -> CaptureFailure {
    assert_eq!(report.hosts.len(), 1);
    report.hosts[0].result.clone().unwrap_err()
}

/// Everything below a folder that is no folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Names of everything that lies directly in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// An XSpace of one plane with one line with so many events of 16 bytes.
fn xspace(events: usize) -> Vec<u8> {
    let event = [
        0x22, 14, 0x08, 1, 0x10, 5, 0x18, 7, 0x22, 6, 0x08, 1, 0x2a, 2, b'o', b'k',
    ];
    message(1, &message(3, &event.repeat(events)))
}

/// A field that holds a message.
fn message(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(content);
    out
}
