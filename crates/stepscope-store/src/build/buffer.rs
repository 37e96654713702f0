//! Unsorted events of one track.
//!
//! If a reader announces the number of slices, memory for all of them is reserved at once. The
//! slices that forks emit are then copied there during the merge, while they are still in the
//! processor's cache, and these columns become the columns of the finished track. Without an
//! announced number, a track's slices are stored in pieces, one per fork that emitted events for
//! it: a merge moves pieces and copies nothing. Only small pieces are joined, so that a thousand
//! forks do not leave a thousand tiny pieces. The names of such a piece are translated when the
//! track is finished, on the thread that finishes it.
//!
//! Memory per slice: start 8, length 8, name 4 bytes. Category (4), flags (1) and arguments (4 or
//! 8) use memory only from the first slice that needs them.

mod columns;

use std::sync::{Arc, Mutex};

use stepscope_model::{
    Dur, FlowBind, FlowDirection, FlowKey, InstantIn, NameId, SliceColumns, SliceFlags, SliceIn,
    Time,
};

use crate::columns::pages;

pub(crate) use columns::{ArgBuf, UniformBuf};

/// A flow end that is attached to a slice. The slice is identified by its position in the piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnFlow {
    pub(crate) slice: u32,
    pub(crate) key: FlowKey,
    pub(crate) direction: FlowDirection,
}

/// A flow end that is given by track and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LooseFlow {
    pub(crate) at: Time,
    pub(crate) key: FlowKey,
    pub(crate) direction: FlowDirection,
    pub(crate) bind: FlowBind,
}

/// A translation of a fork's ids to the parent's ids.
#[derive(Clone, Copy)]
pub(crate) struct IdMap<'a> {
    /// Ids below this one are the parent's and stay the same.
    pub(crate) shared: u32,
    /// The parent's ids for the remaining ids of the fork.
    pub(crate) new_ids: &'a [u32],
}

impl IdMap<'_> {
    pub(crate) fn get(self, id: u32) -> u32 {
        match id.checked_sub(self.shared) {
            None => id,
            Some(own) => self.new_ids.get(own as usize).copied().unwrap_or(0),
        }
    }

    pub(crate) fn name(self, id: NameId) -> NameId {
        NameId(self.get(id.0))
    }
}

/// An [`IdMap`] that is applied later.
#[derive(Clone, Debug)]
pub(crate) struct LaterMap {
    pub(crate) shared: u32,
    pub(crate) new_ids: Arc<[u32]>,
}

impl LaterMap {
    pub(crate) fn view(&self) -> IdMap<'_> {
        IdMap {
            shared: self.shared,
            new_ids: &self.new_ids,
        }
    }
}

/// Slices in the order in which they were emitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceBuf {
    pub(crate) start: Vec<Time>,
    pub(crate) dur: Vec<Dur>,
    pub(crate) name: Vec<NameId>,
    pub(crate) category: UniformBuf<NameId>,
    pub(crate) flags: UniformBuf<u8>,
    pub(crate) args: ArgBuf,
    /// Position of a step marker and its number.
    pub(crate) steps: Vec<(u32, i64)>,
    pub(crate) flows: Vec<OwnFlow>,
    /// Translations still to apply to names and categories, in order.
    pub(crate) later: Vec<LaterMap>,
    /// Expected number of slices, 0 if unknown.
    room: usize,
}

impl SliceBuf {
    /// Reserves memory for `count` more slices.
    fn expect(&mut self, count: usize) {
        self.room = self.room.max(self.len()).saturating_add(count);
        pages::reserve(&mut self.start, self.room);
        pages::reserve(&mut self.dur, self.room);
        pages::reserve(&mut self.name, self.room);
    }

    /// Returns whether a merged piece of this length is copied into this buffer.
    fn has_room(&self, more_len: usize) -> bool {
        self.later.is_empty() && self.len() + more_len <= self.room
    }

    pub(crate) fn len(&self) -> usize {
        self.start.len()
    }

    pub(crate) fn push(&mut self, slice: &SliceIn<'_>) {
        let len = self.start.len();
        self.category.push(len, slice.category);
        self.flags.push(len, slice.flags.0);
        if !(slice.args.is_none() && matches!(self.args, ArgBuf::None)) {
            self.args.push(len, self.room, slice.args.to_bits());
        }
        self.start.push(slice.start);
        self.dur.push(slice.dur.max(Dur::ZERO));
        self.name.push(slice.name);
        if let Some(number) = slice.step {
            self.steps.push((position(len), number));
        }
        for flow in slice.flows {
            self.flows.push(OwnFlow {
                slice: position(len),
                key: flow.key,
                direction: flow.direction,
            });
        }
    }

    /// Appends many slices, as [`push`](Self::push) does for one.
    pub(crate) fn extend(&mut self, slices: &SliceColumns<'_>) {
        let len = self.start.len();
        let more = [
            slices.start.len(),
            slices.dur.len(),
            slices.name.len(),
            slices.category.len(),
            slices.args.len(),
        ];
        let more = more.into_iter().min().unwrap_or(0);
        self.category
            .extend(len, self.room, &slices.category[..more]);
        // `SliceColumns` carries no flags.
        self.flags
            .append(len, self.room, UniformBuf::default(), more);
        self.args.extend(len, self.room, &slices.args[..more]);
        self.start.extend_from_slice(&slices.start[..more]);
        let dur = slices.dur[..more].iter().map(|dur| (*dur).max(Dur::ZERO));
        self.dur.extend(dur);
        self.name.extend_from_slice(&slices.name[..more]);
    }

    /// Applies the deferred translations.
    pub(crate) fn translate(&mut self) {
        for later in std::mem::take(&mut self.later) {
            let ids = later.view();
            if ids.new_ids.is_empty() {
                continue;
            }
            for name in &mut self.name {
                *name = ids.name(*name);
            }
            self.category.map(|category| ids.name(category));
            for flow in &mut self.flows {
                flow.key.category = ids.name(flow.key.category);
            }
        }
    }

    /// Moves the slices of `more` to the end, which leaves `more` empty. Both are already
    /// translated.
    fn append(&mut self, more: &mut Self) {
        let (len, more_len) = (self.len(), more.len());
        let shift = position(len);
        let category = std::mem::take(&mut more.category);
        self.category.append(len, self.room, category, more_len);
        let flags = std::mem::take(&mut more.flags);
        self.flags.append(len, self.room, flags, more_len);
        let args = std::mem::take(&mut more.args);
        self.args.append(len, self.room, args, more_len);
        append(&mut self.start, &mut more.start);
        append(&mut self.dur, &mut more.dur);
        append(&mut self.name, &mut more.name);
        let steps = more.steps.drain(..);
        self.steps
            .extend(steps.map(|(at, number)| (at + shift, number)));
        let flows = more.flows.drain(..);
        self.flows.extend(flows.map(|flow| OwnFlow {
            slice: flow.slice + shift,
            ..flow
        }));
        more.room = 0;
    }

    fn map_sources(&mut self, shared: u16, new_ids: &[u16]) {
        self.args.map_sources(self.start.len(), shared, new_ids);
    }
}

/// Moves all values of `from` to the end of `to`. An empty `to` without capacity takes over the
/// memory of `from`.
fn append<T: Copy>(to: &mut Vec<T>, from: &mut Vec<T>) {
    if to.capacity() < from.len() && to.is_empty() {
        *to = std::mem::take(from);
    } else {
        to.append(from);
    }
}

fn position(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Instants in the order in which they were emitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstantBuf {
    pub(crate) at: Vec<Time>,
    pub(crate) name: Vec<NameId>,
    pub(crate) category: UniformBuf<NameId>,
    pub(crate) args: ArgBuf,
}

impl InstantBuf {
    fn push(&mut self, instant: &InstantIn) {
        let len = self.at.len();
        self.category.push(len, instant.category);
        self.args.push(len, 0, instant.args.to_bits());
        self.at.push(instant.at);
        self.name.push(instant.name);
    }

    fn append(&mut self, mut more: Self) {
        let (len, more_len) = (self.at.len(), more.at.len());
        self.category.append(len, 0, more.category, more_len);
        self.args.append(len, 0, more.args, more_len);
        append(&mut self.at, &mut more.at);
        append(&mut self.name, &mut more.name);
    }

    pub(crate) fn map_names(&mut self, ids: IdMap<'_>) {
        for name in &mut self.name {
            *name = ids.name(*name);
        }
        self.category.map(|category| ids.name(category));
    }
}

/// Samples of a counter in the order in which they were emitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleBuf {
    pub(crate) at: Vec<Time>,
    pub(crate) value: Vec<f64>,
}

/// Emptied pieces that a sink and its forks share, so that the next fork reuses memory that was
/// touched recently.
#[derive(Clone, Default)]
pub(crate) struct Spare {
    pieces: Arc<Mutex<Vec<SliceBuf>>>,
}

/// Number of pieces to keep. More are not in use at the same time.
const SPARE_PIECES: usize = 16;

impl Spare {
    fn take(&self) -> SliceBuf {
        let piece = self.pieces.lock().ok().and_then(|mut all| all.pop());
        piece.unwrap_or_default()
    }

    fn put(&self, piece: SliceBuf) {
        if let Ok(mut all) = self.pieces.lock()
            && all.len() < SPARE_PIECES
        {
            all.push(piece);
        }
    }

    /// Frees all pieces.
    pub(crate) fn clear(&self) {
        if let Ok(mut all) = self.pieces.lock() {
            *all = Vec::new();
        }
    }
}

/// A merged piece with fewer slices is joined to the one before it.
const SMALL_PIECE: usize = 4_096;

/// All events of one track.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventBuf {
    /// Pieces in order of arrival. New events go into the last one.
    pub(crate) slices: Vec<SliceBuf>,
    pub(crate) instants: Option<Box<InstantBuf>>,
    pub(crate) samples: Option<Box<SampleBuf>>,
    pub(crate) flows: Vec<LooseFlow>,
}

impl EventBuf {
    /// Returns the piece that takes the next events.
    fn piece(&mut self) -> &mut SliceBuf {
        if self
            .slices
            .last()
            .is_none_or(|piece| !piece.later.is_empty())
        {
            self.slices.push(SliceBuf::default());
        }
        let last = self.slices.len() - 1;
        &mut self.slices[last]
    }

    pub(crate) fn slice(&mut self, slice: &SliceIn<'_>) {
        self.piece().push(slice);
    }

    pub(crate) fn slices(&mut self, slices: &SliceColumns<'_>) {
        self.piece().extend(slices);
    }

    /// Reserves memory for `count` more slices.
    pub(crate) fn expect_slices(&mut self, count: usize, spare: &Spare) {
        if count < SMALL_PIECE {
            return;
        }
        if self.slices.is_empty() {
            self.slices.push(spare.take());
        }
        self.piece().expect(count);
    }

    pub(crate) fn instant(&mut self, instant: &InstantIn) {
        self.instants.get_or_insert_default().push(instant);
    }

    pub(crate) fn sample(&mut self, at: Time, value: f64) {
        let samples = self.samples.get_or_insert_default();
        samples.at.push(at);
        samples.value.push(value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slices.iter().all(|piece| piece.len() == 0)
            && self.instants.is_none()
            && self.samples.is_none()
    }

    /// Returns the earliest time, or `None` if there is no event.
    pub(crate) fn first_time(&self) -> Option<Time> {
        let slices = self.slices.iter().flat_map(|piece| &piece.start);
        let instants = self.instants.iter().flat_map(|instants| &instants.at);
        let samples = self.samples.iter().flat_map(|samples| &samples.at);
        slices.chain(instants).chain(samples).min().copied()
    }

    /// Appends the events that a fork emitted.
    pub(crate) fn merge(
        &mut self,
        fork: Self,
        names: &LaterMap,
        sources: (u16, &[u16]),
        spare: &Spare,
    ) {
        let translated = !names.new_ids.is_empty();
        let (shared_sources, new_sources) = sources;
        for mut piece in fork.slices {
            if translated {
                piece.later.push(names.clone());
            }
            if !new_sources.is_empty() {
                piece.map_sources(shared_sources, new_sources);
            }
            match self.slices.last_mut() {
                Some(last) if last.has_room(piece.len()) => {
                    piece.translate();
                    last.append(&mut piece);
                    spare.put(piece);
                }
                Some(last) if last.len().max(piece.len()) < SMALL_PIECE => {
                    last.translate();
                    piece.translate();
                    last.append(&mut piece);
                }
                _ => self.slices.push(piece),
            }
        }
        if let Some(mut instants) = fork.instants {
            if translated {
                instants.map_names(names.view());
            }
            if !new_sources.is_empty() {
                let len = instants.at.len();
                instants.args.map_sources(len, shared_sources, new_sources);
            }
            self.instants.get_or_insert_default().append(*instants);
        }
        if let Some(mut samples) = fork.samples {
            let mine = self.samples.get_or_insert_default();
            append(&mut mine.at, &mut samples.at);
            append(&mut mine.value, &mut samples.value);
        }
        self.flows.extend(fork.flows.into_iter().map(|mut flow| {
            flow.key.category = names.view().name(flow.key.category);
            flow
        }));
    }

    /// Adds `by` to the times of all events.
    pub(crate) fn shift(&mut self, by: Dur) {
        if by == Dur::ZERO {
            return;
        }
        let slices = self.slices.iter_mut().flat_map(|piece| &mut piece.start);
        let instants = self
            .instants
            .iter_mut()
            .flat_map(|instants| &mut instants.at);
        let samples = self.samples.iter_mut().flat_map(|samples| &mut samples.at);
        let flows = self.flows.iter_mut().map(|flow| &mut flow.at);
        for at in slices.chain(instants).chain(samples).chain(flows) {
            *at = at.saturating_add(by);
        }
    }

    /// Translates all names. Names of slices are translated when the slices are taken.
    pub(crate) fn translate(&mut self, names: &LaterMap) {
        if names.new_ids.is_empty() {
            return;
        }
        for piece in &mut self.slices {
            piece.later.push(names.clone());
        }
        if let Some(instants) = &mut self.instants {
            instants.map_names(names.view());
        }
        for flow in &mut self.flows {
            flow.key.category = names.view().name(flow.key.category);
        }
    }

    /// Returns all slices in emit order, translated, in one buffer. One thread joins the times,
    /// another all other columns. Pieces are freed as they are copied.
    pub(crate) fn take_slices(&mut self) -> SliceBuf {
        let mut pieces = std::mem::take(&mut self.slices);
        if pieces.len() < 2 {
            let mut only = pieces.pop().unwrap_or_default();
            only.translate();
            return only;
        }
        let lens: Vec<usize> = pieces.iter().map(SliceBuf::len).collect();
        let len = lens.iter().sum();
        let starts = take(&mut pieces, |piece| &mut piece.start);
        let durs = take(&mut pieces, |piece| &mut piece.dur);
        let (times, mut all) = rayon::join(
            || (join(starts, len), join(durs, len)),
            || join_rest(pieces, &lens, len),
        );
        (all.start, all.dur) = times;
        all
    }
}

/// Joins all columns except the times.
fn join_rest(mut pieces: Vec<SliceBuf>, lens: &[usize], len: usize) -> SliceBuf {
    for piece in &mut pieces {
        piece.translate();
    }
    let mut all = SliceBuf {
        name: join(take(&mut pieces, |piece| &mut piece.name), len),
        room: len,
        ..SliceBuf::default()
    };
    let mut before = 0;
    for (piece, piece_len) in pieces.into_iter().zip(lens) {
        all.category.append(before, len, piece.category, *piece_len);
        all.flags.append(before, len, piece.flags, *piece_len);
        all.args.append(before, len, piece.args, *piece_len);
        let shift = position(before);
        all.steps
            .extend(piece.steps.iter().map(|(at, number)| (at + shift, *number)));
        all.flows.extend(piece.flows.iter().map(|flow| OwnFlow {
            slice: flow.slice + shift,
            ..*flow
        }));
        before += piece_len;
    }
    all
}

/// Takes one column out of every piece.
fn take<T>(pieces: &mut [SliceBuf], column: impl Fn(&mut SliceBuf) -> &mut Vec<T>) -> Vec<Vec<T>> {
    pieces
        .iter_mut()
        .map(|piece| std::mem::take(column(piece)))
        .collect()
}

fn join<T: Copy>(columns: Vec<Vec<T>>, len: usize) -> Vec<T> {
    let mut all = Vec::new();
    pages::reserve(&mut all, len);
    for column in columns {
        all.extend_from_slice(&column);
    }
    all
}

/// Returns whether a slice was computed by a tool instead of recorded.
pub(crate) fn is_derived(flags: u8) -> bool {
    SliceFlags(flags).contains(SliceFlags::DERIVED)
}
