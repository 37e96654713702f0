//! Reading a text that is still being inflated.
//!
//! ```text
//! filling thread:  inflate ───────────────────────▸ emit the second half of what is left
//! this thread:       outline ▸ emit what is there ▸ emit the first half of it ▸ chain, finish
//! ```
//! Nothing is decided on a text that is not whole: an element that does not plainly end is left
//! alone until it is, and what was read of the head is compared with what the whole text says. If
//! anything differs, or the text does not become whole, nothing that was read early is used.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, OnceLock};

use stepscope_model::{Cancelled, EventSink, ReadContext, SharedBytes, SourceId};

use super::args::Source;
use super::emit::{Ended, EventEmitter, Plan, Steps};
use super::event::find_entry;
use super::reader::{Origin, Outline, Part, read_from, steps_of};
use crate::FormatError;
use crate::arriving::Arriving;

/// Text that is awaited before the outline is looked for: it nearly always holds the first events.
const HEAD_BYTES: usize = 1 << 20;
/// Text behind the place up to which it is read: longer than nearly all entries.
const MARGIN_BYTES: usize = 64 << 10;
/// Most that is read before the place is told again.
const GRAIN_BYTES: usize = 1 << 20;
/// What is left is shared between two threads if it is longer.
const WORTH_SHARING_BYTES: usize = 4 << 20;

/// What the head of the text says, as far as events are read by it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head {
    list: usize,
    origin_ns: i64,
    steps: Steps,
}

impl Head {
    /// `None` when there is no sound beginning, or when it is not known yet.
    fn of(bytes: &[u8], outline: &Outline, origin: Origin) -> Option<Self> {
        let origin_ns = origin.epoch.origin_ns;
        let is_sound = outline.damaged_head.is_none() && origin_ns != 0;
        is_sound.then(|| Self {
            list: outline.list,
            origin_ns,
            steps: steps_of(bytes, &outline.top),
        })
    }

    /// Waits until the head is there.
    fn wait(text: &dyn Arriving) -> Option<Self> {
        let mut awaited = HEAD_BYTES;
        loop {
            let may_come = text.wait_beyond(awaited);
            let bytes: &[u8] = text.as_ref();
            let found = Outline::open(bytes)
                .ok()
                .and_then(|outline| Self::of(bytes, &outline, Origin::find(bytes, &outline)));
            if found.is_some() || !may_come {
                return found;
            }
            awaited = bytes.len().saturating_mul(2);
        }
    }
}

/// Where events of one file go.
#[derive(Clone, Copy)]
struct Early<'a> {
    context: &'a ReadContext,
    source: SourceId,
}

impl<'a> Early<'a> {
    fn plan(self, bytes: &'a [u8], head: Head) -> Plan<'a> {
        Plan {
            bytes,
            context: self.context,
            origin_ps: i128::from(head.origin_ns) * 1_000,
            source: self.source,
            steps: head.steps,
            splits_rows: false,
        }
    }
}

/// Reads a text that `fill` makes on another thread; it returns whether the text is whole and sound.
/// `Ok(false)` when nothing could be read early: `sink` is to be thrown away then, and whatever text
/// there is to be read as a whole.
pub(super) fn read<S: EventSink, T: Arriving + 'static>(
    text: &Arc<T>,
    fill: impl FnOnce() -> bool + Send,
    context: &ReadContext,
    sink: &mut S,
) -> Result<bool, FormatError> {
    let shared: SharedBytes = Arc::<T>::clone(text);
    let source = Source::new(&shared);
    let into = Early {
        context,
        source: sink.source(source.clone()),
    };
    let (first_fork, second_fork) = (sink.fork(), sink.fork());
    // How far this thread has come at least.
    let place = AtomicUsize::new(0);
    let head = OnceLock::new();
    let (say, said) = sync_channel(1);
    let parts = std::thread::scope(|scope| -> Result<Vec<Part<S>>, Cancelled> {
        let (place, head) = (&place, &head);
        let filling = std::thread::Builder::new().name("chrome-inflate".to_owned());
        let filling = filling.spawn_scoped(scope, move || {
            if !fill() {
                return None;
            }
            let bytes: &[u8] = (**text).as_ref();
            // Without a head there is nothing to share yet: the other thread reads it all.
            let head = head.get().copied();
            let split = match head {
                Some(_) => split(bytes, place.load(Ordering::Relaxed)),
                None => bytes.len(),
            };
            // Nobody listens when the head made no sense.
            let _ = say.send(split);
            let part = (split, usize::MAX);
            let head = head.filter(|_| split < bytes.len())?;
            Some(Part::read(into.plan(bytes, head), part, second_fork))
        });
        let Ok(filling) = filling else {
            // No thread to be had: nothing is filled.
            return Ok(Vec::new());
        };
        let first = match Head::wait(&**text) {
            Some(found) => {
                let _ = head.set(found);
                emit_behind(&**text, into, found, place, &said, first_fork)
            }
            None => Ok(None),
        };
        let second = match filling.join() {
            Ok(second) => second.transpose(),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(first?.into_iter().chain(second?).collect())
    })?;
    let Some(head) = head.into_inner().filter(|_| !parts.is_empty()) else {
        return Ok(false);
    };
    let bytes: &[u8] = (**text).as_ref();
    let outline = Outline::open(bytes)?;
    let origin = Origin::find(bytes, &outline);
    if Head::of(bytes, &outline, origin) != Some(head) {
        return Ok(false);
    }
    read_from(
        into.plan(bytes, head),
        sink,
        outline,
        origin,
        &source,
        parts,
    )?;
    Ok(true)
}

/// Where the text that is left is cut in two: behind all that the thread which has come to `place`
/// reads before it asks; the end of the text where cutting it is not worth it.
fn split(bytes: &[u8], place: usize) -> usize {
    let left = bytes.len().saturating_sub(place);
    if left < WORTH_SHARING_BYTES {
        return bytes.len();
    }
    let middle = place + (left / 2).max(GRAIN_BYTES);
    find_entry(bytes, middle, bytes.len(), &mut (16 << 20)).map_or(bytes.len(), |found| found.at)
}

/// Reads behind the filling thread; `None` when the text does not become whole.
fn emit_behind<S: EventSink>(
    text: &dyn Arriving,
    into: Early<'_>,
    head: Head,
    place: &AtomicUsize,
    said: &Receiver<usize>,
    mut fork: S,
) -> Result<Option<Part<S>>, Cancelled> {
    let bytes: &[u8] = text.as_ref();
    let mut behind = EventEmitter::new(into.plan(bytes, head), &mut fork);
    let mut at = head.list;
    let early = loop {
        place.store(at, Ordering::Relaxed);
        if !text.wait_beyond(at.saturating_add(MARGIN_BYTES)) {
            break None;
        }
        let bytes: &[u8] = text.as_ref();
        behind.see(bytes, true);
        let limit = (bytes.len() - MARGIN_BYTES).min(at + GRAIN_BYTES);
        match behind.run(at, limit)? {
            Ended::Handed(next) => at = next,
            Ended::Unclear(next) => {
                at = next;
                while text.wait_beyond(text.as_ref().len()) {}
                break None;
            }
            ended => break Some(ended),
        }
    };
    let Ok(split) = said.recv() else {
        return Ok(None);
    };
    let bytes: &[u8] = text.as_ref();
    let limit = if split < bytes.len() {
        split
    } else {
        usize::MAX
    };
    behind.see(bytes, false);
    let ended = match early {
        Some(ended) => ended,
        None => behind.run(at, limit)?,
    };
    let emitted = behind.emitted;
    Ok(Some(Part {
        from: head.list,
        limit,
        fork,
        emitted,
        ended,
    }))
}
