//! The outline of a file: the members around the list of events, the start of the list, and the
//! meaning of time zero.

use stepscope_model::Epoch;

use super::emitted::{Emitted, Ended};
use super::read_issues::{ReadIssue, TruncationPoint};
use crate::FormatError;
use crate::chrome_json::dialect::stepscope;
use crate::chrome_json::dialect::torch;
use crate::chrome_json::entry::{self, Next, find_entry, next_element};
use crate::json::number::ps_from_us_text;
use crate::json::scan::{self, ScanError, skip_space};
use crate::json::value::TopLevel;

/// Size of the file's tail that is searched for a clock base before the events are read.
const TAIL_BYTES: usize = 4 << 20;

/// Maximum plausible difference between the times of one run, in picoseconds (100 days).
const FAR_PS: i128 = 100 * 86_400 * 1_000_000_000_000;

/// Structure of a file outside its list of events.
pub(crate) struct Outline {
    /// Members of the outermost object, except lists of events.
    pub(crate) top: TopLevel,
    /// Offset after the opening bracket of the list.
    pub(crate) list: usize,
    /// Whether the file is a bare list.
    pub(crate) is_bare: bool,
    /// Where and why the text ends early, if it does.
    pub(crate) cut: Option<(TruncationPoint, usize)>,
    /// Offset of invalid JSON before the list; the list was then found by its name.
    pub(crate) damaged_head: Option<usize>,
}

/// Token after the members of the outermost object.
enum After {
    /// A list of events; offset after its bracket.
    List(usize),
    /// The end of the object; offset after it.
    Closed(usize),
}

/// Records text after the end of the trace.
fn note_rest(bytes: &[u8], behind: usize, emitted: &mut Emitted) {
    let at = skip_space(bytes, behind);
    if at < bytes.len() {
        emitted.issues.note(ReadIssue::Rest, at);
    }
}

fn malformed(reason: &str, offset: usize) -> FormatError {
    FormatError::Malformed {
        reason: reason.to_owned(),
        offset: offset as u64,
    }
}

impl Outline {
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, FormatError> {
        let text = match bytes {
            [0xef, 0xbb, 0xbf, ..] => 3,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b'{' | b'[', 0, ..] | [0, b'{' | b'[', ..] => {
                return Err(malformed("the text is UTF-16; save it as UTF-8", 0));
            }
            _ => 0,
        };
        let start = skip_space(bytes, text);
        let mut outline = Self {
            top: TopLevel::new(),
            list: start + 1,
            is_bare: false,
            cut: None,
            damaged_head: None,
        };
        match bytes.get(start) {
            None => Err(FormatError::Empty),
            Some(b'[') => {
                outline.is_bare = true;
                outline.list = skip_space(bytes, start + 1);
                Ok(outline)
            }
            Some(b'{') => {
                let mut no_list = None;
                let members = skip_space(bytes, start + 1);
                let found = outline.members(bytes, members, &mut |at| no_list = Some(at));
                match found {
                    Ok(After::List(list)) => outline.list = list,
                    Ok(After::Closed(_)) => {
                        return Err(match no_list {
                            Some(at) => malformed("\"traceEvents\" is not a list", at),
                            None => malformed("no traceEvents: not a Chrome trace", start),
                        });
                    }
                    // Damage outside the events: the list can still be found by its name.
                    Err(stop) => {
                        let found = list_by_name(bytes, start);
                        outline.list = found.ok_or_else(|| stop_error(stop, bytes))?;
                        outline.damaged_head = Some(match stop {
                            ScanError::Damaged(at) => at,
                            ScanError::End => start,
                        });
                    }
                }
                Ok(outline)
            }
            Some(_) => Err(malformed("neither an object nor a list", start)),
        }
    }

    /// Reads members of the outermost object from `at` to the next list of events or the end of the
    /// object.
    fn members(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        not_a_list: &mut dyn FnMut(usize),
    ) -> Result<After, ScanError> {
        loop {
            match scan::byte_at(bytes, at)? {
                b'"' => {}
                b'}' => return Ok(After::Closed(at + 1)),
                _ => return Err(ScanError::Damaged(at)),
            }
            let (key, _) = scan::string(bytes, at + 1)?;
            at = skip_space(bytes, key.end + 1);
            if scan::byte_at(bytes, at)? != b':' {
                return Err(ScanError::Damaged(at));
            }
            at = skip_space(bytes, at + 1);
            let is_events = key.slice(bytes) == b"traceEvents";
            if is_events && scan::byte_at(bytes, at)? == b'[' {
                return Ok(After::List(skip_space(bytes, at + 1)));
            }
            let (value, next) = scan::value(bytes, at)?;
            if is_events {
                not_a_list(at);
            } else {
                self.top.push((key, value));
            }
            at = skip_space(bytes, next);
            match scan::byte_at(bytes, at)? {
                b',' => at = skip_space(bytes, at + 1),
                b'}' => return Ok(After::Closed(at + 1)),
                _ => return Err(ScanError::Damaged(at)),
            }
        }
    }

    /// Reads on after a list; returns the next list, if there is one.
    pub(crate) fn go_on(
        &mut self,
        bytes: &[u8],
        ended: Ended,
        emitted: &mut Emitted,
    ) -> Option<usize> {
        let behind = match ended {
            Ended::Closed(behind) => behind,
            Ended::CutInside(at) => {
                self.cut = Some((TruncationPoint::InsideEntry, at));
                return None;
            }
            Ended::CutBetween(at) | Ended::Handed(at) => {
                // A bare list can end without its bracket: Chrome's own rule.
                if !self.is_bare {
                    self.cut = Some((TruncationPoint::BetweenEntries, at));
                }
                return None;
            }
            Ended::Lost(_) => return None,
        };
        if self.is_bare {
            note_rest(bytes, behind, emitted);
            return None;
        }
        let at = skip_space(bytes, behind);
        match bytes.get(at) {
            Some(b'}') => {
                note_rest(bytes, at + 1, emitted);
                return None;
            }
            Some(b',') => {}
            None => {
                self.cut = Some((TruncationPoint::AfterTheList, at));
                return None;
            }
            Some(_) => {
                emitted.issues.note(ReadIssue::DamagedToTheEnd, at);
                return None;
            }
        }
        let issues = &mut emitted.issues;
        let found = self.members(bytes, skip_space(bytes, at + 1), &mut |at| {
            issues.note(ReadIssue::NotAList, at);
        });
        match found {
            Ok(After::List(list)) => {
                emitted.issues.note(ReadIssue::ListTwice, list);
                Some(list)
            }
            Ok(After::Closed(behind)) => {
                note_rest(bytes, behind, emitted);
                None
            }
            Err(ScanError::End) => {
                self.cut = Some((TruncationPoint::AfterTheList, bytes.len()));
                None
            }
            Err(ScanError::Damaged(at)) => {
                emitted.issues.note(ReadIssue::DamagedToTheEnd, at);
                None
            }
        }
    }
}

fn stop_error(stop: ScanError, bytes: &[u8]) -> FormatError {
    match stop {
        ScanError::End => malformed("the text ends before any trace event", bytes.len()),
        ScanError::Damaged(at) => malformed("not JSON, and no traceEvents behind it", at),
    }
}

fn list_by_name(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    memchr::memmem::find_iter(rest, b"\"traceEvents\"").find_map(|place| {
        let colon = skip_space(bytes, from + place + b"\"traceEvents\"".len());
        let bracket = skip_space(bytes, colon + 1);
        let is_list = bytes.get(colon) == Some(&b':') && bytes.get(bracket) == Some(&b'[');
        is_list.then(|| skip_space(bytes, bracket + 1))
    })
}

/// Meaning of `Time::ZERO`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) epoch: Epoch,
}

impl Origin {
    pub(crate) fn ps(self) -> i128 {
        i128::from(self.epoch.origin_ns) * 1_000
    }

    pub(crate) fn find(bytes: &[u8], outline: &Outline) -> Self {
        if let Some(epoch) = stepscope::epoch(bytes, &outline.top) {
            return Self { epoch };
        }
        let origin_ns = first_time_ns(bytes, outline.list).unwrap_or(0);
        let base = torch::unix_base_ns(bytes, &outline.top)
            .or_else(|| torch::unix_base_ns(bytes, &tail_members(bytes, outline.list)));
        // Before 2024 kineto's clock was the Unix clock itself: microseconds above 10^15.
        let is_unix = origin_ns > 1_000_000_000_000_000_000;
        let unix_ns = match base {
            Some(base) => base.checked_add(origin_ns),
            None => is_unix.then_some(origin_ns),
        };
        Self {
            epoch: Epoch { origin_ns, unix_ns },
        }
    }
}

/// Returns the first time in the list, rounded down to nanoseconds. Skips a first time that is far
/// from the others (broken, or zero), because every valid event would then be out of range.
fn first_time_ns(bytes: &[u8], list: usize) -> Option<i64> {
    let mut times: Vec<i128> = Vec::new();
    let mut at = list;
    let mut seen = 0;
    let mut budget = 64 << 20;
    while times.len() < 64 && (times.is_empty() || seen < 4_096) {
        seen += 1;
        let after = match entry::entry(bytes, at) {
            Ok(entry) => {
                let is_event = !matches!(entry.phase, 0 | b'M');
                let ps = entry
                    .ts
                    .raw(bytes)
                    .filter(|_| is_event)
                    .and_then(|raw| ps_from_us_text(raw.trim_ascii()).ok())
                    .filter(|ps| i64::try_from(ps.div_euclid(1_000)).is_ok());
                times.extend(ps);
                next_element(bytes, entry.end)
            }
            Err(stop) => Err(stop),
        };
        at = match after {
            Ok(Next::Element(next)) => next,
            Ok(Next::Closed(_)) => break,
            Err(_) => match find_entry(bytes, at + 1, bytes.len(), &mut budget) {
                Some(found) => found.at,
                None => break,
            },
        };
    }
    let mut sorted = times.clone();
    sorted.sort_unstable();
    let median = *sorted.get(sorted.len() / 2)?;
    let first = times
        .into_iter()
        .find(|time| (time - median).abs() < FAR_PS)?;
    i64::try_from(first.div_euclid(1_000)).ok()
}

/// Finds members of the outermost object after the list, near the end of the file: searches for the
/// name of a clock base, and accepts the match only if the text after it closes the object and the
/// file.
fn tail_members(bytes: &[u8], list: usize) -> TopLevel {
    let from = bytes.len().saturating_sub(TAIL_BYTES).max(list);
    let tail = bytes.get(from..).unwrap_or_default();
    for name in torch::UNIX_BASES {
        let quoted = format!("\"{name}\"");
        let Some(place) = memchr::memmem::find_iter(tail, quoted.as_bytes()).last() else {
            continue;
        };
        let mut found = TopLevel::new();
        if closes_the_file(bytes, from + place, &mut found) {
            return found;
        }
    }
    TopLevel::new()
}

fn closes_the_file(bytes: &[u8], mut at: usize, found: &mut TopLevel) -> bool {
    loop {
        if bytes.get(at) != Some(&b'"') {
            return false;
        }
        let Ok((key, _)) = scan::string(bytes, at + 1) else {
            return false;
        };
        let colon = skip_space(bytes, key.end + 1);
        if bytes.get(colon) != Some(&b':') {
            return false;
        }
        let Ok((value, next)) = scan::value(bytes, skip_space(bytes, colon + 1)) else {
            return false;
        };
        found.push((key, value));
        at = skip_space(bytes, next);
        match bytes.get(at) {
            Some(b',') => at = skip_space(bytes, at + 1),
            Some(b'}') => return skip_space(bytes, at + 1) == bytes.len(),
            _ => return false,
        }
    }
}
