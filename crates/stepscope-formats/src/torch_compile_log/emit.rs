//! Emission of a log: a track of compilations and a track of the compiler's phases.

use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::vocabulary::torch_compile;
use stepscope_model::{
    ArgRef, ArgValue, Diagnostic, Dur, Epoch, EventSink, InstantIn, ReadContext, SliceFlags,
    SliceIn, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use super::Token;
use super::compilations::{Compilation, CompileLog, Content, Context};
use super::entries::{Entries, Entry, Line};
use super::metrics::{function, times};
use super::phases::{OpenPhase, OpenPhases, PhaseEvent};
use crate::FormatError;
use crate::cprofile::truncated;
use crate::json::scan::ScanError;
use crate::losses;

/// Number of entries between two checks for cancellation.
const OFTEN: u64 = 1_024;

/// Counts of what was left out or corrected.
#[derive(Default)]
struct Losses {
    truncated: u64,
    unreadable: u64,
    no_time: u64,
    negative: u64,
    unmatched_ends: u64,
    unfinished: u64,
    unknown_phases: u64,
}

struct EventEmitter<'a, S> {
    file: &'a [u8],
    source: SourceId,
    sink: &'a mut S,
    log: CompileLog,
    open: OpenPhases,
    /// Unix time of `Time::ZERO`, picoseconds.
    origin_ps: Option<i128>,
    /// The last time of a phase.
    last: Time,
    process: Option<TrackId>,
    compilations: Option<TrackId>,
    phases: Option<TrackId>,
    pid: Option<u64>,
    rank: Option<u64>,
    losses: Losses,
}

/// Emits a log.
pub(super) fn emit<S: EventSink>(
    file: &[u8],
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let mut emitter = EventEmitter {
        file,
        source,
        sink,
        log: CompileLog::default(),
        open: OpenPhases::default(),
        origin_ps: None,
        last: Time::MIN,
        process: None,
        compilations: None,
        phases: None,
        pid: None,
        rank: None,
        losses: Losses::default(),
    };
    let (mut entries, mut done, mut count) = (Entries::new(file), 0, 0_u64);
    while let Some(line) = entries.next() {
        match line {
            Line::Entry(entry) => {
                emitter.pid = emitter.pid.or(Some(entry.pid));
                if let Err(error) = emitter.entry(&entry) {
                    emitter.lose(error, entries.offset());
                }
            }
            Line::Unreadable => emitter.lose(ScanError::End, entries.offset()),
        }
        count += 1;
        if count.is_multiple_of(OFTEN) {
            context.advance((entries.offset() - done) as u64)?;
            done = entries.offset();
        }
    }
    if emitter.pid.is_none() {
        return Err(FormatError::Malformed {
            reason: "no entry of a structured trace log of torch.compile is in the file".to_owned(),
            offset: 0,
        });
    }
    emitter.finish();
    context.advance((file.len() - done) as u64)?;
    Ok(())
}

impl<S: EventSink> EventEmitter<'_, S> {
    fn entry(&mut self, entry: &Entry) -> Result<(), ScanError> {
        let (context, found) = self.log.add(self.file, entry)?;
        self.rank = self.rank.or(context.rank);
        match found {
            Content::Collected => Ok(()),
            Content::Metrics(number) => {
                // In a log without phases, the first metrics give the origin.
                if self.origin_ps.is_none()
                    && let Some(compilation) = self.log.compilations.get(number)
                    && let (Some(start), _) = times(self.file, compilation)
                {
                    self.time(start);
                }
                Ok(())
            }
            Content::Phase => {
                let event = PhaseEvent::parse(self.file, entry.payload)?;
                self.phase(&event, context);
                Ok(())
            }
        }
    }

    /// Counts an entry that could not be read; at the end of the file, it was cut.
    fn lose(&mut self, error: ScanError, end: usize) {
        let is_last = error == ScanError::End && end >= self.file.len();
        if is_last {
            self.losses.truncated += 1;
        } else {
            self.losses.unreadable += 1;
        }
    }

    /// Converts picoseconds of Unix time; the first one sets the epoch. `None` far from it.
    fn time(&mut self, unix_ps: i128) -> Option<Time> {
        let origin = if let Some(origin) = self.origin_ps {
            origin
        } else {
            let ns = i64::try_from(unix_ps.div_euclid(1_000)).ok()?;
            self.sink.epoch(Epoch {
                origin_ns: ns,
                unix_ns: Some(ns),
            });
            let origin = i128::from(ns) * 1_000;
            self.origin_ps = Some(origin);
            origin
        };
        let relative = i64::try_from(unix_ps.checked_sub(origin)?).ok();
        relative.map(Time::from_ps)
    }

    fn phase(&mut self, event: &PhaseEvent, context: Context) {
        let Some((unix_ps, at)) = event.unix_ps.and_then(|ps| Some((ps, self.time(ps)?))) else {
            self.losses.no_time += 1;
            return;
        };
        self.last = self.last.max(at);
        let id = event.id.or(context.id);
        if let Some(id) = id
            && matches!(event.phase, b'B' | b'E')
        {
            self.log.add_phase_time(id, unix_ps, event.phase == b'B');
        }
        let name = self.sink.name(&truncated(&event.name));
        let category = self.sink.name(&truncated(&event.category));
        let phase = OpenPhase {
            name,
            category,
            start_ps: at.ps(),
            offset: event.offset,
        };
        match event.phase {
            b'B' => self.open.push(id, phase),
            b'E' => {
                let ended = self.open.pop(id, name);
                let Some((ended, inner)) = ended.split_first() else {
                    self.losses.unmatched_ends += 1;
                    return;
                };
                // The event of the end has the arguments of both.
                let ended = OpenPhase {
                    offset: event.offset,
                    ..*ended
                };
                self.emit_phase(ended, at, SliceFlags::NONE);
                for phase in inner {
                    self.emit_phase(*phase, at, SliceFlags::UNFINISHED);
                }
            }
            b'X' => {
                let end = event
                    .dur_ps
                    .and_then(|dur| self.time(unix_ps.checked_add(dur)?));
                self.emit_phase(phase, end.unwrap_or(at), SliceFlags::NONE);
            }
            b'i' | b'I' => {
                let track = self.phases_track();
                let args = ArgRef::new(self.source, Token::Phase(event.offset).pack());
                self.sink.instant(
                    track,
                    InstantIn {
                        at,
                        name,
                        category,
                        args,
                    },
                );
            }
            _ => self.losses.unknown_phases += 1,
        }
    }

    fn emit_phase(&mut self, phase: OpenPhase, end: Time, flags: SliceFlags) {
        let start = Time::from_ps(phase.start_ps);
        let track = self.phases_track();
        let dur = self.duration(end.since(start));
        self.losses.unfinished += u64::from(flags == SliceFlags::UNFINISHED);
        self.sink.slice(
            track,
            SliceIn {
                start,
                dur,
                name: phase.name,
                category: phase.category,
                args: ArgRef::new(self.source, Token::Phase(phase.offset).pack()),
                flags,
                ..SliceIn::default()
            },
        );
    }

    /// Counts and removes a negative duration.
    fn duration(&mut self, dur: Dur) -> Dur {
        self.losses.negative += u64::from(dur < Dur::ZERO);
        dur.max(Dur::ZERO)
    }

    fn finish(&mut self) {
        for phase in std::mem::take(&mut self.open).finish() {
            let end = self.last;
            self.emit_phase(phase, end, SliceFlags::UNFINISHED);
        }
        let log = std::mem::take(&mut self.log);
        let category = self.sink.name(torch_compile::CATEGORY);
        for (number, compilation) in log.compilations.iter().enumerate() {
            let Some((start, dur, flags)) = self.interval(&log, compilation) else {
                self.losses.no_time += 1;
                continue;
            };
            let function = function(self.file, &log, compilation);
            let name = match (function.name.as_str(), compilation.is_backward) {
                ("", _) => format!("compilation {}", compilation.id),
                (name, true) => format!("{name} (backward)"),
                (name, false) => name.to_owned(),
            };
            let name = self.sink.name(&name);
            let track = self.compilations_track();
            let dur = self.duration(dur);
            self.losses.unfinished += u64::from(flags == SliceFlags::UNFINISHED);
            self.sink.slice(
                track,
                SliceIn {
                    start,
                    dur,
                    name,
                    category,
                    args: ArgRef::new(self.source, Token::Compilation(number).pack()),
                    flags,
                    ..SliceIn::default()
                },
            );
        }
        if self.origin_ps.is_none() {
            self.sink.epoch(Epoch::default());
        }
        self.emit_facts(&log);
        self.diagnose(&log);
    }

    /// Returns the start, the duration and the flags of a compilation; `None` if the log has no time of it.
    fn interval(
        &mut self,
        log: &CompileLog,
        compilation: &Compilation,
    ) -> Option<(Time, Dur, SliceFlags)> {
        let phases = log.phase_times(compilation);
        if compilation.metrics.is_none() {
            let (first, last) = phases?;
            let (first, last) = (self.time(first)?, self.time(last)?);
            return Some((first, last.since(first), SliceFlags::UNFINISHED));
        }
        let (start, dur) = times(self.file, compilation);
        let start = self.time(start?)?;
        let dur = i64::try_from(dur.unwrap_or(0)).ok()?;
        Some((start, Dur::from_ps(dur), SliceFlags::NONE))
    }

    fn process_track(&mut self) -> TrackId {
        if let Some(track) = self.process {
            return track;
        }
        let pid = self.pid.unwrap_or(0);
        let track = self.sink.track(&format!("torch.compile/{pid}"));
        self.process = Some(track);
        self.sink.describe(
            track,
            TrackPatch {
                name: Some(&format!("torch.compile (process {pid})")),
                kind: Some(TrackKind::Group),
                pid: i64::try_from(pid).ok(),
                ..TrackPatch::default()
            },
        );
        track
    }

    fn compilations_track(&mut self) -> TrackId {
        if let Some(track) = self.compilations {
            return track;
        }
        let track = self.child_track("compilations", 0);
        self.compilations = Some(track);
        track
    }

    fn phases_track(&mut self) -> TrackId {
        if let Some(track) = self.phases {
            return track;
        }
        let track = self.child_track("phases", 1);
        self.phases = Some(track);
        track
    }

    /// Describes a track. Its events are of no thread: the file does not say which one compiled.
    fn child_track(&mut self, name: &str, order: i64) -> TrackId {
        let parent = self.process_track();
        let pid = self.pid.unwrap_or(0);
        let track = self.sink.track(&format!("torch.compile/{pid}/{name}"));
        self.sink.describe(
            track,
            TrackPatch {
                name: Some(name),
                kind: Some(TrackKind::Async),
                parent: Some(parent),
                pid: i64::try_from(pid).ok(),
                sort_index: Some(order),
                ..TrackPatch::default()
            },
        );
        track
    }

    fn emit_facts(&mut self, log: &CompileLog) {
        let number = |number: u64| ArgValue::Int(i64::try_from(number).unwrap_or(i64::MAX));
        Producer::PyTorch.emit(self.sink);
        if let Some(pid) = self.pid {
            self.sink.fact("pid", number(pid));
        }
        if let Some(rank) = self.rank {
            self.sink.fact("rank", number(rank));
        }
        self.sink
            .fact("compilations", number(log.compilations.len() as u64));
        for (name, count) in &log.skipped {
            self.sink
                .fact(&format!("skipped_entries.{name}"), number(*count));
        }
    }

    fn diagnose(&mut self, log: &CompileLog) {
        let losses = &self.losses;
        let beyond = (
            Diagnostic::LimitReached,
            log.beyond_limit,
            "entries of compilations beyond `max_compilations`",
        );
        let counted = [
            (
                Diagnostic::Truncated,
                losses.truncated,
                "the last entry is incomplete",
            ),
            (
                Diagnostic::Unreadable,
                losses.unreadable,
                "lines that are no entry, and entries with damaged JSON",
            ),
            (
                Diagnostic::BadTime,
                losses.no_time,
                "compilations and phases without a time",
            ),
            (
                Diagnostic::NegativeDuration,
                losses.negative,
                "compilations and phases that end before they begin",
            ),
            (Diagnostic::UnmatchedEnd, losses.unmatched_ends, "phases"),
            (
                Diagnostic::UnfinishedSlice,
                losses.unfinished,
                "compilations and phases",
            ),
            (
                Diagnostic::UnknownEntry,
                losses.unknown_phases,
                "Chrome trace events of other types",
            ),
            beyond,
        ];
        losses::diagnose(self.sink, &counted);
    }
}
