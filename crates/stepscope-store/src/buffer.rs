//! What has been poured into one track and is not sorted yet.
//!
//! A track's slices lie in pieces, one per fork that poured into it: merging moves pieces and
//! copies nothing (small ones are joined, so that a thousand forks do not leave a thousand
//! crumbs). Names of a merged piece are translated when the track is finished, on the thread that
//! finishes it.
//!
//! Memory per slice: start 8, length 8, name 4 bytes; category 4, flags 1 and arguments 4 or 8
//! only from the first slice on that needs them.

use std::sync::Arc;

use stepscope_model::{
    ArgRef, Dur, FlowBind, FlowDirection, FlowKey, InstantIn, NameId, SliceFlags, SliceIn,
    SourceId, Time,
};

/// Values that are often all the same; a vector from the first different one on.
#[derive(Clone, Debug, Default)]
pub(crate) struct UniformBuf<T> {
    pub(crate) one: T,
    /// Empty while all are equal to `one`.
    pub(crate) each: Vec<T>,
}

impl<T: Copy + PartialEq> UniformBuf<T> {
    /// Appends to `len` values.
    fn push(&mut self, len: usize, value: T) {
        if self.each.is_empty() {
            if len == 0 {
                self.one = value;
            } else if value != self.one {
                self.each.reserve((len + 1).next_power_of_two());
                self.each.resize(len, self.one);
                self.each.push(value);
            }
        } else {
            self.each.push(value);
        }
    }

    /// Appends `more_len` values of `more` to `len` of ours.
    fn append(&mut self, len: usize, more: Self, more_len: usize) {
        if more_len == 0 {
            return;
        }
        if len == 0 {
            *self = more;
        } else if !(self.each.is_empty() && more.each.is_empty() && self.one == more.one) {
            if self.each.is_empty() {
                self.each.reserve(len + more_len);
                self.each.resize(len, self.one);
            }
            if more.each.is_empty() {
                self.each.resize(len + more_len, more.one);
            } else {
                self.each.extend_from_slice(&more.each);
            }
        }
    }

    fn map(&mut self, translate: impl Fn(T) -> T) {
        self.one = translate(self.one);
        for value in &mut self.each {
            *value = translate(*value);
        }
    }
}

/// Bits of argument references: four bytes each while all lie within 4 GiB.
#[derive(Clone, Debug, Default)]
pub(crate) enum ArgBuf {
    #[default]
    None,
    Near {
        base: u64,
        from_base: Vec<u32>,
    },
    Far(Vec<u64>),
}

impl ArgBuf {
    fn push(&mut self, len: usize, bits: u64) {
        match self {
            Self::None => {
                if bits == 0 {
                    return;
                }
                // The first token sits in the middle, so that earlier ones fit as well.
                let base = bits.saturating_sub(1 << 31);
                let mut from_base = Vec::with_capacity((len + 1).next_power_of_two());
                from_base.resize(len, 0);
                *self = Self::Near { base, from_base };
                self.push(len, bits);
            }
            Self::Near { base, from_base } => {
                let distance = if bits == 0 {
                    Some(0)
                } else {
                    bits.checked_sub(*base)
                        .and_then(|distance| u32::try_from(distance).ok())
                        .filter(|distance| *distance != 0)
                };
                if let Some(distance) = distance {
                    from_base.push(distance);
                } else {
                    self.widen();
                    self.push(len, bits);
                }
            }
            Self::Far(all) => all.push(bits),
        }
    }

    fn widen(&mut self) {
        if let Self::Near { base, from_base } = self {
            let all = from_base
                .iter()
                .map(|distance| match distance {
                    0 => 0,
                    distance => base.wrapping_add(u64::from(*distance)),
                })
                .collect();
            *self = Self::Far(all);
        }
    }

    pub(crate) fn bits(&self, index: usize) -> u64 {
        match self {
            Self::None => 0,
            Self::Near { base, from_base } => match from_base.get(index) {
                None | Some(0) => 0,
                Some(distance) => base.wrapping_add(u64::from(*distance)),
            },
            Self::Far(all) => all.get(index).copied().unwrap_or(0),
        }
    }

    fn append(&mut self, len: usize, more: Self, more_len: usize) {
        if len == 0 {
            *self = more;
            return;
        }
        if matches!((&*self, &more), (Self::None, Self::None)) {
            return;
        }
        if let (
            Self::Near { base, from_base },
            Self::Near {
                base: other,
                from_base: more,
            },
        ) = (&mut *self, &more)
        {
            // Distances move by the difference of the bases, if they all still fit.
            let shift = i128::from(*other) - i128::from(*base);
            let fits = |distance: &u32| {
                *distance == 0
                    || u32::try_from(i128::from(*distance) + shift).is_ok_and(|moved| moved != 0)
            };
            if more.iter().all(fits) {
                let moved = |distance: &u32| match distance {
                    0 => 0,
                    distance => u32::try_from(i128::from(*distance) + shift).unwrap_or(0),
                };
                from_base.extend(more.iter().map(moved));
                return;
            }
        }
        for index in 0..more_len {
            self.push(len + index, more.bits(index));
        }
    }

    fn map_sources(&mut self, len: usize, shared: u16, new_ids: &[u16]) {
        let mut mapped = Self::None;
        for index in 0..len {
            let old = ArgRef::from_bits(self.bits(index));
            mapped.push(index, map_source(old, shared, new_ids).to_bits());
        }
        *self = mapped;
    }
}

fn map_source(at: ArgRef, shared: u16, new_ids: &[u16]) -> ArgRef {
    let Some((source, token)) = at.get() else {
        return at;
    };
    match source.0.checked_sub(shared) {
        None => at,
        Some(own) => new_ids
            .get(usize::from(own))
            .map_or(ArgRef::NONE, |id| ArgRef::new(SourceId(*id), token)),
    }
}

/// A flow end that is attached to a slice, named by its position among the piece's slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnFlow {
    pub(crate) slice: u32,
    pub(crate) key: FlowKey,
    pub(crate) direction: FlowDirection,
}

/// A flow end that is given by place and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LooseFlow {
    pub(crate) at: Time,
    pub(crate) key: FlowKey,
    pub(crate) direction: FlowDirection,
    pub(crate) bind: FlowBind,
}

/// How a fork's ids become the parent's.
#[derive(Clone, Copy)]
pub(crate) struct IdMap<'a> {
    /// Ids below this are the parent's already.
    pub(crate) shared: u32,
    /// The parent's ids of the others.
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

/// An [`IdMap`] to be applied later.
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

/// Slices in the order in which they were poured.
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
    /// Translations that names and categories still need, first one first.
    pub(crate) later: Vec<LaterMap>,
}

impl SliceBuf {
    pub(crate) fn len(&self) -> usize {
        self.start.len()
    }

    pub(crate) fn push(&mut self, slice: &SliceIn<'_>) {
        let len = self.start.len();
        self.category.push(len, slice.category);
        self.flags.push(len, slice.flags.0);
        self.args.push_if_needed(len, slice.args);
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

    /// Applies the translations that were put off.
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

    /// Takes over `more`; both are translated already.
    pub(crate) fn append(&mut self, mut more: Self) {
        let (len, more_len) = (self.len(), more.len());
        let shift = position(len);
        self.category.append(len, more.category, more_len);
        self.flags.append(len, more.flags, more_len);
        self.args.append(len, more.args, more_len);
        append(&mut self.start, &mut more.start);
        append(&mut self.dur, &mut more.dur);
        append(&mut self.name, &mut more.name);
        self.steps
            .extend(more.steps.iter().map(|(at, number)| (at + shift, *number)));
        self.flows.extend(more.flows.iter().map(|flow| OwnFlow {
            slice: flow.slice + shift,
            ..*flow
        }));
    }

    fn map_sources(&mut self, shared: u16, new_ids: &[u16]) {
        self.args.map_sources(self.start.len(), shared, new_ids);
    }
}

impl ArgBuf {
    fn push_if_needed(&mut self, len: usize, args: ArgRef) {
        if !(args.is_none() && matches!(self, Self::None)) {
            self.push(len, args.to_bits());
        }
    }
}

/// Appends and frees; an empty vector takes the other's memory.
fn append<T: Copy>(to: &mut Vec<T>, from: &mut Vec<T>) {
    if to.is_empty() {
        *to = std::mem::take(from);
    } else {
        to.append(from);
        *from = Vec::new();
    }
}

fn position(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Instants in the order in which they were poured.
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
        self.args.push_if_needed(len, instant.args);
        self.at.push(instant.at);
        self.name.push(instant.name);
    }

    fn append(&mut self, mut more: Self) {
        let (len, more_len) = (self.at.len(), more.at.len());
        self.category.append(len, more.category, more_len);
        self.args.append(len, more.args, more_len);
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

/// Samples of a counter in the order in which they were poured.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleBuf {
    pub(crate) at: Vec<Time>,
    pub(crate) value: Vec<f64>,
}

/// Below this, a merged piece is joined to the one before it.
const SMALL_PIECE: usize = 4_096;

/// All that was poured into one track.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventBuf {
    /// In pour order; the last one is poured into.
    pub(crate) slices: Vec<SliceBuf>,
    pub(crate) instants: Option<Box<InstantBuf>>,
    pub(crate) samples: Option<Box<SampleBuf>>,
    pub(crate) flows: Vec<LooseFlow>,
}

impl EventBuf {
    pub(crate) fn slice(&mut self, slice: &SliceIn<'_>) {
        match self.slices.last_mut() {
            Some(piece) if piece.later.is_empty() => piece.push(slice),
            _ => {
                let mut piece = SliceBuf::default();
                piece.push(slice);
                self.slices.push(piece);
            }
        }
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
        self.slices.is_empty() && self.instants.is_none() && self.samples.is_none()
    }

    /// The earliest time, `None` if there is no event.
    pub(crate) fn first_time(&self) -> Option<Time> {
        let slices = self.slices.iter().flat_map(|piece| &piece.start);
        let instants = self.instants.iter().flat_map(|instants| &instants.at);
        let samples = self.samples.iter().flat_map(|samples| &samples.at);
        slices.chain(instants).chain(samples).min().copied()
    }

    /// Takes over what a fork poured, after what is here.
    pub(crate) fn merge(&mut self, fork: Self, names: &LaterMap, sources: (u16, &[u16])) {
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
                Some(last) if last.len().max(piece.len()) < SMALL_PIECE => {
                    last.translate();
                    piece.translate();
                    last.append(piece);
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

    /// Moves all events in time.
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

    /// Translates all names, those of slices when they are taken.
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

    /// All slices in pour order, translated: one buffer. Times are joined on one thread, all
    /// else on another; pieces are freed as they are copied.
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

/// Everything but the times.
fn join_rest(mut pieces: Vec<SliceBuf>, lens: &[usize], len: usize) -> SliceBuf {
    for piece in &mut pieces {
        piece.translate();
    }
    let mut all = SliceBuf {
        name: join(take(&mut pieces, |piece| &mut piece.name), len),
        ..SliceBuf::default()
    };
    let mut before = 0;
    for (piece, piece_len) in pieces.into_iter().zip(lens) {
        all.category.append(before, piece.category, *piece_len);
        all.flags.append(before, piece.flags, *piece_len);
        all.args.append(before, piece.args, *piece_len);
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

/// One column of all pieces, taken out of them.
fn take<T>(pieces: &mut [SliceBuf], column: impl Fn(&mut SliceBuf) -> &mut Vec<T>) -> Vec<Vec<T>> {
    pieces
        .iter_mut()
        .map(|piece| std::mem::take(column(piece)))
        .collect()
}

fn join<T: Copy>(columns: Vec<Vec<T>>, len: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(len);
    for column in columns {
        all.extend_from_slice(&column);
    }
    all
}

/// Whether a slice counts as computed rather than recorded.
pub(crate) fn is_derived(flags: u8) -> bool {
    SliceFlags(flags).contains(SliceFlags::DERIVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(bits: &[u64]) -> ArgBuf {
        let mut args = ArgBuf::None;
        for (len, bits) in bits.iter().enumerate() {
            args.push_if_needed(len, ArgRef::from_bits(*bits));
        }
        args
    }

    #[test]
    fn arguments_are_kept_near_and_far() {
        let near = [0, 0, 5_000_000_000, 0, 5_000_000_100, 4_000_000_000];
        let far = [0, 7, 0, 1 << 50, 3];
        for all in [&near[..], &far[..]] {
            let args = pushed(all);
            let read: Vec<_> = (0..all.len()).map(|i| args.bits(i)).collect();
            assert_eq!(read, all);
        }
        assert!(matches!(pushed(&near), ArgBuf::Near { .. }));
        assert!(matches!(pushed(&far), ArgBuf::Far(_)));
        assert!(matches!(pushed(&[0, 0]), ArgBuf::None));
        let mut joined = pushed(&near);
        joined.append(near.len(), pushed(&far), far.len());
        let read: Vec<_> = (0..11).map(|i| joined.bits(i)).collect();
        assert_eq!(read, [&near[..], &far[..]].concat());
    }

    #[test]
    fn uniform_values_stay_one() {
        let mut flags = UniformBuf::default();
        for len in 0..3 {
            flags.push(len, 2_u8);
        }
        assert!(flags.each.is_empty());
        let mut other = UniformBuf::default();
        other.push(0, 2_u8);
        flags.append(3, other.clone(), 1);
        assert!(flags.each.is_empty());
        other.push(1, 5);
        flags.append(4, other, 2);
        assert_eq!(flags.each, [2, 2, 2, 2, 2, 5]);
    }
}
