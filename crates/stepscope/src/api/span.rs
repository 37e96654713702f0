//! Recording functions: spans, steps, counters, instants.
//!
//! When nothing is recorded, each costs one relaxed load and a branch.

use std::hint::cold_path;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use crate::mirror;
use crate::ring::layout::{
    ARG_BOOL, ARG_DOUBLE, ARG_INT, ARG_UINT, FLAG_ARGS, FLAG_NAMED_BY_TEXT, KIND_ARG, KIND_COUNTER,
    KIND_INSTANT, KIND_SPAN, KIND_STEP, KIND_TEXT, MAX_TEXT_BYTES, RECORD_BYTES, meta, meta_name,
};
use crate::ring::names::{self, STEP_NUM, StaticName};
use crate::ring::session_state::{
    ACTIVE_BITS, LEVEL_MASK, MIRRORED, PUSHED, STATE, STEP_STATE, WATCHED,
};
use crate::ring::steps;
use crate::ring::writer::{OpenSlot, Writer, with_writer};

/// The value of an argument. Created by `From`; texts are copied when the event is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpanArgValue<'a> {
    /// A whole number.
    Int(i64),
    /// A whole number past `i64::MAX`.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// Text; beyond 16 KiB it is truncated, and counted.
    Str(&'a str),
}

macro_rules! from_numbers {
    ($($from:ty => $variant:ident as $as:ty;)+) => {
        $(impl From<$from> for SpanArgValue<'_> {
            #[inline]
            fn from(value: $from) -> Self {
                Self::$variant(<$as>::from(value))
            }
        })+
    };
}

from_numbers! {
    i8 => Int as i64;
    i16 => Int as i64;
    i32 => Int as i64;
    i64 => Int as i64;
    u8 => Int as i64;
    u16 => Int as i64;
    u32 => Int as i64;
    f32 => Double as f64;
    f64 => Double as f64;
    bool => Bool as bool;
}

impl From<u64> for SpanArgValue<'_> {
    #[inline]
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Uint(value), Self::Int)
    }
}

impl From<usize> for SpanArgValue<'_> {
    #[inline]
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

impl From<isize> for SpanArgValue<'_> {
    #[inline]
    fn from(value: isize) -> Self {
        Self::Int(value as i64)
    }
}

impl<'a> From<&'a str> for SpanArgValue<'a> {
    #[inline]
    fn from(value: &'a str) -> Self {
        Self::Str(value)
    }
}

impl<'a> From<&'a String> for SpanArgValue<'a> {
    #[inline]
    fn from(value: &'a String) -> Self {
        Self::Str(value)
    }
}

/// An argument's name and value.
pub type Arg<'a> = (&'a StaticName, SpanArgValue<'a>);

/// A guard that records its scope as one slice on this thread's track.
///
/// It stays on its thread. Leaking it ([`std::mem::forget`]) leaves a span that is shown as
/// unfinished.
#[must_use = "a span ends when its guard is dropped: `let _span = span!(...)`"]
#[derive(Debug)]
pub struct SpanGuard {
    begin: u64,
    meta: u64,
    state: u32,
    slot: OpenSlot,
    /// Makes the guard neither `Send` nor `Sync`.
    thread: PhantomData<*const ()>,
}

/// The guard's name for spans named at run time: `Span::enter(&name)`.
pub type Span = SpanGuard;

impl SpanGuard {
    const OFF: Self = Self {
        begin: 0,
        meta: 0,
        state: 0,
        slot: Writer::NO_SLOT,
        thread: PhantomData,
    };

    /// Creates a guard that records nothing.
    #[inline]
    pub const fn off() -> Self {
        Self::OFF
    }

    /// Starts a span with a name known at compile time. Used by [`span!`](crate::span!).
    #[inline]
    pub fn enter_static(name: &'static StaticName) -> Self {
        let state = STATE.load(Ordering::Relaxed);
        if state & ACTIVE_BITS == 0 {
            return Self::OFF;
        }
        cold_path();
        if state & MIRRORED != 0 {
            return mirrored(state, name.text(), &[]);
        }
        let id = name.id();
        if id == 0 {
            return begin_by_text(state, name.text(), KIND_SPAN, &[]);
        }
        with_writer(state, |writer| {
            let begin = writer.now();
            let meta = meta(id, KIND_SPAN, 0, 0);
            Self {
                begin,
                meta,
                state,
                slot: writer.open(begin, meta),
                thread: PhantomData,
            }
        })
        .unwrap_or(Self::OFF)
    }

    /// Starts a span with arguments. Used by [`span!`](crate::span!).
    #[inline]
    pub fn enter_static_with(name: &'static StaticName, args: &[Arg<'_>]) -> Self {
        let state = STATE.load(Ordering::Relaxed);
        if state & ACTIVE_BITS == 0 {
            return Self::OFF;
        }
        if state & MIRRORED != 0 {
            return mirrored(state, name.text(), args);
        }
        match name.id() {
            0 => begin_by_text(state, name.text(), KIND_SPAN, args),
            id => begin(state, id, KIND_SPAN, args),
        }
    }

    /// Starts a span with a name known only at run time.
    ///
    /// Looking up a known name costs about 10 ns. A process can register 24,575 different names of
    /// at most 1 KiB; further names are written as text with each event.
    #[inline]
    pub fn enter(name: &str) -> Self {
        Self::enter_with(name, &[])
    }

    /// Like [`Span::enter`](Self::enter), with arguments.
    #[inline]
    pub fn enter_with(name: &str, args: &[Arg<'_>]) -> Self {
        let state = STATE.load(Ordering::Relaxed);
        if state & ACTIVE_BITS == 0 {
            return Self::OFF;
        }
        if state & MIRRORED != 0 {
            return mirrored(state, name, args);
        }
        match names::intern(name) {
            0 => begin_by_text(state, name, KIND_SPAN, args),
            id => begin(state, id, KIND_SPAN, args),
        }
    }

    /// Returns whether the span is being recorded. Check it before computing expensive arguments.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.state & LEVEL_MASK != 0
    }

    /// Starts a mirrored or watched step, recorded or not.
    #[cold]
    #[inline(never)]
    fn begin_watched(mut state: u32, id: u32, name: &str, number: i64) -> Self {
        let count = if state & WATCHED == 0 {
            0
        } else {
            steps::count()
        };
        if count > 0 {
            state = STEP_STATE.load(Ordering::Relaxed);
        }
        let session = state & !(WATCHED | MIRRORED);
        let mut guard = if session & LEVEL_MASK == 0 {
            Self::OFF
        } else {
            begin_step(session, id, name, number)
        };
        if guard.state == 0 {
            (guard.begin, guard.state) = steps::begin_unrecorded();
        }
        if state & WATCHED != 0 {
            guard.state |= WATCHED;
            steps::began(guard.begin, number, count);
        }
        if state & MIRRORED != 0 && mirror::begin(name, guard.begin, Some(number)) {
            guard.state |= PUSHED;
        }
        guard
    }

    /// Ends a span whose session has ended, a watched step, or a mirrored span.
    #[cold]
    fn end_cold(&mut self) {
        if self.state & PUSHED != 0 {
            mirror::end(self.begin);
        }
        let state = self.state & !(WATCHED | PUSHED);
        let recorded =
            state & LEVEL_MASK != 0 && STATE.load(Ordering::Relaxed) & !MIRRORED == state;
        if !recorded && self.state & WATCHED == 0 {
            return;
        }
        let end = crate::platform::clock::ticks(state);
        if recorded {
            with_writer(state, |writer| {
                writer.close(self.slot, self.begin, end, self.meta);
            });
        }
        if self.state & WATCHED != 0 {
            steps::ended(self.begin, end, meta_name(self.meta));
        }
    }
}

impl Drop for SpanGuard {
    #[inline]
    fn drop(&mut self) {
        // A session that has ended has already written its open spans.
        if self.state == 0 {
            return;
        }
        cold_path();
        if STATE.load(Ordering::Relaxed) != self.state {
            return self.end_cold();
        }
        with_writer(self.state, |writer| {
            writer.close(self.slot, self.begin, writer.now(), self.meta);
        });
    }
}

/// Returns whether a session records or another tool receives spans. Check it before computing
/// expensive arguments.
#[inline]
pub fn is_enabled() -> bool {
    STATE.load(Ordering::Relaxed) & ACTIVE_BITS != 0
}

/// Like [`is_enabled`], for steps: also true while a step watch is active. When it is false, so is
/// [`is_enabled`].
#[inline]
pub fn is_step_enabled() -> bool {
    STEP_STATE.load(Ordering::Relaxed) & (ACTIVE_BITS | WATCHED) != 0
}

/// Starts a span in other tools, and in the session if one is active.
#[cold]
#[inline(never)]
fn mirrored(state: u32, name: &str, args: &[Arg<'_>]) -> SpanGuard {
    let state = state & !MIRRORED;
    let mut guard = match (state & LEVEL_MASK, names::intern(name)) {
        (0, _) => SpanGuard::OFF,
        (_, 0) => begin_by_text(state, name, KIND_SPAN, args),
        (_, id) => begin(state, id, KIND_SPAN, args),
    };
    if guard.begin == 0 {
        guard.begin = crate::platform::clock::ticks(state);
    }
    if mirror::begin(name, guard.begin, None) {
        guard.state |= PUSHED;
    }
    guard
}

#[inline]
fn begin(state: u32, id: u32, kind: u8, args: &[Arg<'_>]) -> SpanGuard {
    with_writer(state, |writer| {
        let begin = writer.now();
        for (name, value) in args {
            put_arg(writer, begin, name, *value);
        }
        let flags = if args.is_empty() { 0 } else { FLAG_ARGS };
        let meta = meta(id, kind, flags, 0);
        SpanGuard {
            begin,
            meta,
            state,
            slot: writer.open(begin, meta),
            thread: PhantomData,
        }
    })
    .unwrap_or(SpanGuard::OFF)
}

/// Starts a span whose name has no number: the text is written with the event.
#[cold]
fn begin_by_text(state: u32, name: &str, kind: u8, args: &[Arg<'_>]) -> SpanGuard {
    with_writer(state, |writer| {
        let begin = writer.now();
        put_text(writer, begin, 0, 0, name);
        for (name, value) in args {
            put_arg(writer, begin, name, *value);
        }
        let flags = FLAG_NAMED_BY_TEXT | if args.is_empty() { 0 } else { FLAG_ARGS };
        let meta = meta(0, kind, flags, 0);
        SpanGuard {
            begin,
            meta,
            state,
            slot: writer.open(begin, meta),
            thread: PhantomData,
        }
    })
    .unwrap_or(SpanGuard::OFF)
}

/// Writes one argument under a key.
#[inline]
fn put_arg(writer: Writer<'_>, key: u64, name: &StaticName, value: SpanArgValue<'_>) {
    put_value(writer, key, name.id(), 0, value);
}

/// Writes one argument whose name has this number; `flags` may mark the key as shared.
#[inline]
pub(crate) fn put_value(
    writer: Writer<'_>,
    key: u64,
    name: u32,
    flags: u8,
    value: SpanArgValue<'_>,
) {
    let (form, bits) = match value {
        SpanArgValue::Int(value) => (ARG_INT, value.cast_unsigned()),
        SpanArgValue::Uint(value) => (ARG_UINT, value),
        SpanArgValue::Double(value) => (ARG_DOUBLE, value.to_bits()),
        SpanArgValue::Bool(value) => (ARG_BOOL, u64::from(value)),
        SpanArgValue::Str(text) => {
            return put_text(writer, key, names::argument_name_id(name), flags, text);
        }
    };
    let meta = meta(names::argument_name_id(name), KIND_ARG, flags | form, 0);
    writer.record([key, bits, meta]);
}

/// Writes a text; name number 0 makes it the name of the event with this key.
pub(crate) fn put_text(writer: Writer<'_>, key: u64, name: u32, flags: u8, text: &str) {
    let mut len = text.len();
    if len > MAX_TEXT_BYTES {
        len = MAX_TEXT_BYTES;
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        writer.count_cut();
    }
    let extra = u16::try_from(len.div_ceil(RECORD_BYTES)).unwrap_or(0);
    writer.record_group(
        [key, len as u64, meta(name, KIND_TEXT, flags, extra)],
        &text.as_bytes()[..len],
    );
}

/// Starts a numbered step: a span named `train`, by which analyses (stepscope's and XProf's) group.
///
/// ```
/// for n in 0..3 {
///     let _step = stepscope::step(n);
///     // forward, backward, optimizer
/// }
/// ```
#[inline]
pub fn step(number: i64) -> SpanGuard {
    static TRAIN: StaticName = StaticName::new("train");
    step_of(&TRAIN, number)
}

/// Starts a numbered step with another name. XProf counts host steps whose name starts with `train`
/// or `test` and has no `/`.
#[inline]
pub fn step_named(name: &str, number: i64) -> SpanGuard {
    let state = STEP_STATE.load(Ordering::Relaxed);
    if state == 0 {
        return SpanGuard::OFF;
    }
    let id = names::intern(name);
    if state & (WATCHED | MIRRORED) != 0 {
        return SpanGuard::begin_watched(state, id, name, number);
    }
    begin_step(state, id, name, number)
}

#[inline]
fn step_of(name: &'static StaticName, number: i64) -> SpanGuard {
    let state = STEP_STATE.load(Ordering::Relaxed);
    if state == 0 {
        return SpanGuard::OFF;
    }
    let id = name.id();
    if state & (WATCHED | MIRRORED) != 0 {
        return SpanGuard::begin_watched(state, id, name.text(), number);
    }
    begin_step(state, id, name.text(), number)
}

#[inline]
fn begin_step(state: u32, id: u32, name: &str, number: i64) -> SpanGuard {
    let args = [(&STEP_NUM, SpanArgValue::Int(number))];
    match id {
        0 => begin_by_text(state, name, KIND_STEP, &args),
        id => begin(state, id, KIND_STEP, &args),
    }
}

/// Records one sample of a counter. A value that is not finite is dropped.
#[inline]
pub fn counter(name: &str, value: f64) {
    let state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS == 0 || !value.is_finite() {
        return;
    }
    point(
        state,
        names::intern(name),
        name,
        KIND_COUNTER,
        value.to_bits(),
        &[],
    );
}

/// Like [`counter()`], with a name known at compile time. Used by [`counter!`](crate::counter!).
#[inline]
pub fn counter_static(name: &'static StaticName, value: f64) {
    let state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS == 0 || !value.is_finite() {
        return;
    }
    point(
        state,
        name.id(),
        name.text(),
        KIND_COUNTER,
        value.to_bits(),
        &[],
    );
}

/// Records a point in time on this thread's track.
#[inline]
pub fn instant(name: &str) {
    let state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS == 0 {
        return;
    }
    point(state, names::intern(name), name, KIND_INSTANT, 0, &[]);
}

/// Like [`instant()`], with a name known at compile time and arguments. Used by
/// [`instant!`](crate::instant!).
#[inline]
pub fn instant_static(name: &'static StaticName, args: &[Arg<'_>]) {
    let state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS == 0 {
        return;
    }
    point(state, name.id(), name.text(), KIND_INSTANT, 0, args);
}

#[inline]
fn point(state: u32, id: u32, name: &str, kind: u8, value: u64, args: &[Arg<'_>]) {
    if state & MIRRORED != 0 {
        return mirrored_point(state, id, name, kind, value, args);
    }
    with_writer(state, |writer| {
        let at = writer.now();
        let mut flags = 0;
        if id == 0 {
            flags = FLAG_NAMED_BY_TEXT;
            put_text(writer, at, 0, 0, name);
        }
        for (name, value) in args {
            flags |= FLAG_ARGS;
            put_arg(writer, at, name, *value);
        }
        writer.record([at, value, meta(id, kind, flags, 0)]);
    });
}

/// Like [`point`], in other tools as well.
#[cold]
#[inline(never)]
fn mirrored_point(state: u32, id: u32, name: &str, kind: u8, value: u64, args: &[Arg<'_>]) {
    let sample = (kind == KIND_COUNTER).then(|| f64::from_bits(value));
    mirror::mark(name, sample);
    let state = state & !MIRRORED;
    if state & LEVEL_MASK != 0 {
        point(state, id, name, kind, value, args);
    }
}
