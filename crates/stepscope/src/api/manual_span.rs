//! Spans that start and end with separate calls, for bindings to other languages.
//!
//! A [`ManualSpan`] is a plain value: it may be dropped (the span is then shown as unfinished),
//! ended in any order, and even ended on another thread than the one it started on, which costs
//! more.

use std::sync::atomic::Ordering;

use crate::mirror;
use crate::ring::layout::{
    FLAG_ARGS, FLAG_NAMED_BY_TEXT, KIND_INSTANT, KIND_SPAN, KIND_STEP, meta, meta_extra, meta_kind,
    meta_name,
};
use crate::ring::memory::regions;
use crate::ring::names;
use crate::ring::session_state::{
    ACTIVE_BITS, LEVEL_MASK, MIRRORED, PUSHED, STATE, STEP_STATE, WATCHED, session,
};
use crate::ring::steps;
use crate::ring::writer::{OpenSlot, Writer, this_thread, with_writer};
use crate::span::{SpanArgValue, put_text, put_value};

/// An argument whose name is known only at run time.
pub type NamedArg<'a> = (&'a str, SpanArgValue<'a>);

/// The kind of a [`ManualSpan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A slice.
    Span,
    /// A step, by which analyses group; its number is the argument `step_num`.
    Step,
}

impl SpanKind {
    const fn bits(self) -> u8 {
        match self {
            Self::Span => KIND_SPAN,
            Self::Step => KIND_STEP,
        }
    }
}

/// The id of an interned name, valid in this process for ever; see [`ManualSpan::begin_known`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameNumber(u32);

impl NameNumber {
    /// Interns a text. Returns `None` when it cannot get a number now (see
    /// [`Span::enter`](crate::Span::enter)).
    pub fn intern(text: &str) -> Option<Self> {
        match names::intern(text) {
            0 => None,
            number => Some(Self(number)),
        }
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Bits of a span's state: its end must also be sent to other tools or step watches.
const EXTERNAL_BITS: u32 = PUSHED | WATCHED;

/// Bits of the third word that [`ManualSpan::add`] sets.
const ADDED: u64 = meta(0, 0, FLAG_ARGS, 0);

/// A started span. See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct ManualSpan {
    begin: u64,
    meta: u64,
    state: u32,
    slot: OpenSlot,
    /// Identifies the thread that started the span.
    thread: usize,
}

impl ManualSpan {
    /// A span that is not recorded.
    pub const NONE: Self = Self {
        begin: 0,
        meta: 0,
        state: 0,
        slot: Writer::NO_SLOT,
        thread: 0,
    };

    /// Starts a span. Returns [`ManualSpan::NONE`] when nothing is recorded and, for a step, no
    /// step watch is active.
    #[inline]
    pub fn begin(name: &str, kind: SpanKind, args: &[NamedArg<'_>]) -> Self {
        Self::begin_in_row(0, name, kind, args)
    }

    /// Like [`begin`](Self::begin), on a row of the calling thread; row 0 is the thread itself.
    /// Rows are for what one thread interleaves, such as the tasks of an event loop, whose spans do
    /// not nest.
    #[inline]
    pub fn begin_in_row(row: u16, name: &str, kind: SpanKind, args: &[NamedArg<'_>]) -> Self {
        let word = match kind {
            SpanKind::Span => &STATE,
            SpanKind::Step => &STEP_STATE,
        };
        let state = word.load(Ordering::Relaxed);
        if state & (ACTIVE_BITS | WATCHED) == 0 {
            return Self::NONE;
        }
        if state & (MIRRORED | WATCHED) != 0 {
            return begin_external(state, row, name, kind, args);
        }
        begin_as(state, row, names::intern(name), name, kind, args)
    }

    /// Like [`begin`](Self::begin), without arguments, with an interned name. Not mirrored to other
    /// tools.
    #[inline]
    pub fn begin_known(name: NameNumber) -> Self {
        let state = session();
        if state & LEVEL_MASK == 0 {
            return Self::NONE;
        }
        with_writer(state, |writer| {
            let begin = writer.now();
            let meta = meta(name.0, KIND_SPAN, 0, 0);
            Self {
                begin,
                meta,
                state,
                slot: writer.open(begin, meta),
                thread: writer.thread(),
            }
        })
        .unwrap_or(Self::NONE)
    }

    /// Whether its session still records, or it started in another tool.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state & EXTERNAL_BITS != 0 || self.is_recorded()
    }

    #[inline]
    fn is_recorded(&self) -> bool {
        self.session() != 0 && session() == self.session()
    }

    /// Returns the session that it started in.
    #[inline]
    fn session(&self) -> u32 {
        self.state & !EXTERNAL_BITS
    }

    /// Returns the row that it started on, while its session records; otherwise 0.
    #[inline]
    pub fn row(&self) -> u16 {
        match meta_extra(self.meta) {
            0 => 0,
            row if self.is_recorded() => row,
            _ => 0,
        }
    }

    /// Returns its start on the recorder's clock, which is unique among the spans of a thread.
    pub fn began(&self) -> u64 {
        self.begin
    }

    /// Whether this is a started span, unlike [`ManualSpan::NONE`].
    #[inline]
    pub fn was_begun(&self) -> bool {
        self.state != 0
    }

    /// Adds arguments to an open span. Ignored on another thread than the span's.
    pub fn add(&mut self, args: &[NamedArg<'_>]) {
        if !self.is_recorded() || args.is_empty() {
            return;
        }
        let added = with_writer(self.session(), |writer| {
            writer.thread() == self.thread && {
                put_all(writer, self.begin, args);
                true
            }
        });
        if added == Some(true) {
            self.meta |= ADDED;
        }
    }

    /// Ends the span.
    ///
    /// # Errors
    /// Returns the span, still open, when it started on another thread: see
    /// [`end_elsewhere`](Self::end_elsewhere).
    #[inline]
    pub fn end(self) -> Result<(), Self> {
        if self.state & EXTERNAL_BITS != 0 {
            return self.end_external();
        }
        // A session that has ended has already written its open spans.
        if !self.is_recorded() {
            return Ok(());
        }
        let ended = with_writer(self.state, |writer| {
            let is_owner = writer.thread() == self.thread;
            if is_owner {
                writer.close(self.slot, self.begin, writer.now(), self.meta);
            }
            is_owner
        });
        if ended == Some(false) {
            Err(self)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn end_external(mut self) -> Result<(), Self> {
        if self.state & PUSHED != 0 {
            if self.thread == this_thread() {
                mirror::end(self.begin);
            } else {
                mirror::end_elsewhere(self.thread, self.begin);
            }
        }
        if self.state & WATCHED != 0 {
            let end = crate::platform::clock::ticks(self.session());
            steps::ended(self.begin, end, meta_name(self.meta));
        }
        self.state = self.session();
        self.end()
    }

    /// Ends a span that started on another thread: it is recorded on this thread, with its name and
    /// arguments passed again. Scans the open spans of all threads.
    #[cold]
    pub fn end_elsewhere(self, name: &str, args: &[NamedArg<'_>]) {
        if !self.is_recorded() {
            return;
        }
        for region in regions() {
            if region.session.load(Ordering::SeqCst) != self.session() {
                continue;
            }
            // The owner frees a slot only when it ends the span, which does not happen here.
            for slot in region.open() {
                let held = slot.meta.load(Ordering::Acquire);
                let same = held != 0 && (held ^ self.meta) & !ADDED == 0;
                if same && slot.key.load(Ordering::Relaxed) == self.begin {
                    slot.meta.store(0, Ordering::Release);
                }
            }
        }
        let id = names::intern(name);
        with_writer(self.session(), |writer| {
            let mut flags = 0;
            if id == 0 {
                flags |= FLAG_NAMED_BY_TEXT;
                put_text(writer, self.begin, 0, 0, name);
            }
            if !args.is_empty() {
                flags |= FLAG_ARGS;
                put_all(writer, self.begin, args);
            }
            let meta = meta(id, meta_kind(self.meta), flags, 0);
            writer.record([self.begin, writer.now(), meta]);
        });
    }
}

/// Starts a mirrored span or a watched step, and records it if a session is active.
#[cold]
fn begin_external(
    state: u32,
    row: u16,
    name: &str,
    kind: SpanKind,
    args: &[NamedArg<'_>],
) -> ManualSpan {
    let session = state & !(MIRRORED | WATCHED);
    let id = names::intern(name);
    let mut span = if session & LEVEL_MASK == 0 {
        ManualSpan::NONE
    } else {
        begin_as(session, row, id, name, kind, args)
    };
    if span.state == 0 && state & WATCHED != 0 {
        (span.begin, span.state) = steps::begin_unrecorded();
        span.meta = meta(id, kind.bits(), 0, 0);
    } else if span.begin == 0 {
        span.begin = crate::platform::clock::ticks(session);
    }
    if span.thread == 0 {
        span.thread = this_thread();
    }
    let number = args.iter().find_map(|(name, value)| match value {
        SpanArgValue::Int(number) if kind == SpanKind::Step && *name == "step_num" => Some(*number),
        _ => None,
    });
    if state & WATCHED != 0 {
        span.state |= WATCHED;
        if let Some(number) = number {
            steps::began(span.begin, number, 0);
        }
    }
    if state & MIRRORED != 0 && mirror::begin(name, span.begin, number) {
        span.state |= PUSHED;
    }
    span
}

#[inline]
fn begin_as(
    state: u32,
    row: u16,
    id: u32,
    name: &str,
    kind: SpanKind,
    args: &[NamedArg<'_>],
) -> ManualSpan {
    with_writer(state, |writer| {
        let begin = writer.now();
        let mut flags = 0;
        if id == 0 {
            flags |= FLAG_NAMED_BY_TEXT;
            put_text(writer, begin, 0, 0, name);
        }
        if !args.is_empty() {
            flags |= FLAG_ARGS;
            put_all(writer, begin, args);
        }
        let meta = meta(id, kind.bits(), flags, row);
        ManualSpan {
            begin,
            meta,
            state,
            slot: writer.open(begin, meta),
            thread: writer.thread(),
        }
    })
    .unwrap_or(ManualSpan::NONE)
}

fn put_all(writer: Writer<'_>, key: u64, args: &[NamedArg<'_>]) {
    for (name, value) in args {
        put_value(writer, key, names::intern(name), 0, *value);
    }
}

/// Records a point in time on this thread's track, like [`instant()`](crate::instant()), with
/// arguments whose names are known only at run time.
pub fn instant_with(name: &str, args: &[NamedArg<'_>]) {
    instant_in_row(0, name, args);
}

/// Like [`instant_with`], on a row as in [`ManualSpan::begin_in_row`].
pub fn instant_in_row(row: u16, name: &str, args: &[NamedArg<'_>]) {
    let mut state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS == 0 {
        return;
    }
    if state & MIRRORED != 0 {
        mirror::mark(name, None);
        state &= !MIRRORED;
        if state & LEVEL_MASK == 0 {
            return;
        }
    }
    let id = names::intern(name);
    with_writer(state, |writer| {
        let at = writer.now();
        let mut flags = 0;
        if id == 0 {
            flags |= FLAG_NAMED_BY_TEXT;
            put_text(writer, at, 0, 0, name);
        }
        if !args.is_empty() {
            flags |= FLAG_ARGS;
            put_all(writer, at, args);
        }
        writer.record([at, 0, meta(id, KIND_INSTANT, flags, row)]);
    });
}

/// Sets the calling thread's name in the current recording; it takes precedence over the operating
/// system's name. At most 64 bytes are stored.
pub fn name_thread(name: &str) {
    let state = session();
    if state & LEVEL_MASK != 0 {
        with_writer(state, |writer| writer.set_thread_name(name));
    }
}

/// Returns a number that is unique for each recording of this process, 0 while nothing is recorded.
/// It is for work that is due once per recording.
#[inline]
pub fn recording_number() -> u32 {
    session()
}
