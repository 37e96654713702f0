//! Saves the response of a server as one file, however the server delivers its data.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stepscope_formats::xspace::{count_events, messages};

use super::ask::data_of;
use super::connect::printable;
use super::report::{CaptureFailure, CaptureStage, Captured};
use super::session::{self, SessionFolder};
use crate::proto::ProfileResponse;

/// Time until a file that a server wrote must be visible here: network file systems show it with a
/// delay.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Maximum number of quoted messages of a program.
const MAX_MESSAGES: usize = 20;

/// Result of saving a response.
#[derive(Debug)]
pub(super) enum SaveOutcome {
    /// One file.
    File(Captured),
    /// The data has no events, and another attempt may follow: nothing was written.
    EmptyForNow,
}

/// Handling of data without events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfEmpty {
    /// Save the empty trace: it shows that nothing was recorded.
    Keep,
    /// Discard it and try again.
    TryAgain,
}

/// Destination of a host's data.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Stem of its file name.
    pub(super) stem: String,
    /// Paths of the other hosts' files.
    pub(super) others: BTreeSet<PathBuf>,
    /// The server may have written files into the session: the request contained the directory.
    pub(super) may_write: bool,
}

/// Saves a response as one file. Blocks: writes and calls fsync.
pub(super) fn keep(
    folder: &SessionFolder,
    slot: &Slot,
    answer: ProfileResponse,
    if_empty: IfEmpty,
) -> Result<SaveOutcome, CaptureFailure> {
    let says_empty = answer.empty_trace;
    match data_of(answer) {
        Some(content) => keep_content(folder, slot, &content, if_empty),
        None if slot.may_write => keep_file(folder, slot, says_empty, if_empty),
        None => Err(wrote_nothing(says_empty)),
    }
}

fn wrote_nothing(says_empty: bool) -> CaptureFailure {
    let message = if says_empty {
        "the program recorded nothing and sent nothing, capture while it works, or for longer"
    } else {
        "the program says that it recorded, and sent no data; it writes files of its own, so name a --logdir that both machines share"
    };
    CaptureFailure::new(CaptureStage::WroteNothing, message)
}

/// Saves the data in a response.
fn keep_content(
    folder: &SessionFolder,
    slot: &Slot,
    content: &[u8],
    if_empty: IfEmpty,
) -> Result<SaveOutcome, CaptureFailure> {
    let (events, warnings) = look(content)?;
    if events == 0 && if_empty == IfEmpty::TryAgain {
        return Ok(SaveOutcome::EmptyForNow);
    }
    let path = match written_too(folder, slot, content, events) {
        Some(path) => path,
        None => folder
            .save(&slot.stem, content)
            .map_err(|error| unwritable(folder, &error))?,
    };
    Ok(SaveOutcome::File(Captured {
        path,
        bytes: content.len() as u64,
        events,
        empty: events == 0,
        warnings,
    }))
}

/// Handles a file that a server wrote in addition to its response: keeps one of the two.
fn written_too(
    folder: &SessionFolder,
    slot: &Slot,
    content: &[u8],
    events: u64,
) -> Option<PathBuf> {
    if !slot.may_write {
        return None;
    }
    let place = folder.place(&slot.stem);
    for path in folder.appeared() {
        let is_ours = path == place;
        if !is_ours && slot.others.contains(&path) {
            continue;
        }
        let same_length =
            std::fs::metadata(&path).is_ok_and(|found| found.len() == content.len() as u64);
        if !is_ours && !same_length {
            continue;
        }
        let written = session::read(&path).unwrap_or_default();
        if written == content || is_ours && count_events(&written).events >= events {
            folder.claim(&path);
            return Some(path);
        }
        if is_ours {
            // The file appeared during this capture, and the response contains more.
            let _ = std::fs::remove_file(&path);
        }
    }
    None
}

/// Handles a response without data: the server wrote a file.
fn keep_file(
    folder: &SessionFolder,
    slot: &Slot,
    says_empty: bool,
    if_empty: IfEmpty,
) -> Result<SaveOutcome, CaptureFailure> {
    let Some(path) = find(folder, slot, says_empty) else {
        return Err(wrote_nothing(says_empty));
    };
    let content = session::read(&path).map_err(|error| {
        let message = format!(
            "the program wrote a file that cannot be read, {error}, {}",
            path.display()
        );
        CaptureFailure::new(CaptureStage::Failed, message)
    })?;
    let (events, warnings) = look(&content)?;
    if events == 0 && if_empty == IfEmpty::TryAgain {
        // The next attempt writes the file again.
        folder.release(&path);
        return Ok(SaveOutcome::EmptyForNow);
    }
    Ok(SaveOutcome::File(Captured {
        path,
        bytes: content.len() as u64,
        events,
        empty: events == 0,
        warnings,
    }))
}

/// Finds the file of a host and claims it.
fn find(folder: &SessionFolder, slot: &Slot, says_empty: bool) -> Option<PathBuf> {
    let place = folder.place(&slot.stem);
    let looks = if says_empty {
        1
    } else {
        SEEN_WITHIN.as_millis() / BETWEEN_LOOKS.as_millis()
    };
    for look in 0..looks {
        if look > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let found = folder.appeared();
        let own = found.iter().position(|path| *path == place);
        let foreign = found.iter().position(|path| !slot.others.contains(path));
        if let Some(path) = own.or(foreign).and_then(|index| found.get(index))
            && folder.claim(path)
        {
            return Some(path.clone());
        }
    }
    None
}

/// Returns the number of events in the data, and warnings about the data.
fn look(content: &[u8]) -> Result<(u64, Vec<String>), CaptureFailure> {
    let found = count_events(content);
    let mut warnings: Vec<_> = messages(content, MAX_MESSAGES)
        .iter()
        .map(|text| format!("the program says '{}'", printable(text)))
        .collect();
    if let Some((offset, why)) = found.fault {
        if found.planes == 0 {
            let message = format!(
                "what the program sent is no trace, {why} at byte {offset}, see what listens there"
            );
            return Err(CaptureFailure::new(CaptureStage::NotAProfiler, message));
        }
        warnings.push(format!("the trace is damaged at byte {offset}: {why}"));
    }
    Ok((found.events, warnings))
}

fn unwritable(folder: &SessionFolder, error: &io::Error) -> CaptureFailure {
    let path: &Path = folder.path();
    let message = match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "a file of this name is there already, {}, choose another session",
            path.display()
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
            "the disk is full, {}, make room and capture again",
            path.display()
        ),
        _ => format!(
            "the data cannot be written, {error}, {}, name another log directory",
            path.display()
        ),
    };
    CaptureFailure::new(CaptureStage::Failed, message)
}
