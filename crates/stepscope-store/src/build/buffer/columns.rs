//! Columns of slices that use little or no memory while their values are alike.

use stepscope_model::{ArgRef, SourceId};

use crate::columns::pages;

/// Values that are often all the same. The vector is filled from the first different value on.
#[derive(Clone, Debug, Default)]
pub(crate) struct UniformBuf<T> {
    pub(crate) one: T,
    /// Empty while all are equal to `one`.
    pub(crate) each: Vec<T>,
}

impl<T: Copy + PartialEq> UniformBuf<T> {
    /// Appends a value to the `len` existing ones.
    pub(super) fn push(&mut self, len: usize, value: T) {
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

    /// Appends many values to the `len` existing ones; `room` is the expected total.
    pub(super) fn extend(&mut self, len: usize, room: usize, values: &[T]) {
        let Some(first) = values.first() else {
            return;
        };
        if self.each.is_empty() {
            if len == 0 {
                self.one = *first;
            }
            if values.iter().all(|value| *value == self.one) {
                return;
            }
            pages::reserve(&mut self.each, room.max(len + values.len()));
            self.each.resize(len, self.one);
        }
        self.each.extend_from_slice(values);
    }

    /// Appends the `more_len` values of `more` to the `len` existing ones; `room` is the expected
    /// total.
    pub(super) fn append(&mut self, len: usize, room: usize, more: Self, more_len: usize) {
        if more_len == 0 {
            return;
        }
        if len == 0 && (more.each.is_empty() || room <= more_len) {
            *self = more;
        } else if !(self.each.is_empty() && more.each.is_empty() && self.one == more.one) {
            if self.each.is_empty() {
                pages::reserve(&mut self.each, room.max(len + more_len));
                self.each.resize(len, self.one);
            }
            if more.each.is_empty() {
                self.each.resize(len + more_len, more.one);
            } else {
                self.each.extend_from_slice(&more.each);
            }
        }
    }

    pub(super) fn map(&mut self, translate: impl Fn(T) -> T) {
        self.one = translate(self.one);
        for value in &mut self.each {
            *value = translate(*value);
        }
    }
}

/// Bits of argument references: four bytes each while all of them lie within 4 GiB.
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
    /// Appends one reference to the `len` existing ones; `room` is the expected total.
    pub(super) fn push(&mut self, len: usize, room: usize, bits: u64) {
        match self {
            Self::None => {
                if bits == 0 {
                    return;
                }
                // The first token is placed in the middle of the range, so that earlier ones fit as
                // well.
                let base = bits.saturating_sub(1 << 31);
                let mut from_base = Vec::new();
                pages::reserve(&mut from_base, room.max((len + 1).next_power_of_two()));
                from_base.resize(len, 0);
                *self = Self::Near { base, from_base };
                self.push(len, room, bits);
            }
            Self::Near { base, from_base } => {
                if let Some(distance) = distance(*base, bits) {
                    from_base.push(distance);
                } else {
                    self.widen(room);
                    self.push(len, room, bits);
                }
            }
            Self::Far(all) => all.push(bits),
        }
    }

    /// Appends many references.
    pub(super) fn extend(&mut self, len: usize, room: usize, args: &[ArgRef]) {
        let mut done = 0;
        if let Self::None = self {
            done = args.iter().take_while(|args| args.is_none()).count();
        } else if let Self::Near { base, from_base } = self {
            let near = args
                .iter()
                .map_while(|args| distance(*base, args.to_bits()));
            from_base.extend(near);
            done = from_base.len() - len;
        }
        for (len, args) in (len..).zip(args).skip(done) {
            self.push(len, room, args.to_bits());
        }
    }

    fn widen(&mut self, room: usize) {
        if let Self::Near { base, from_base } = self {
            let mut all = Vec::new();
            pages::reserve(&mut all, room.max(from_base.len() + 1));
            all.extend(from_base.iter().map(|distance| match distance {
                0 => 0,
                distance => base.wrapping_add(u64::from(*distance)),
            }));
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

    pub(super) fn append(&mut self, len: usize, room: usize, more: Self, more_len: usize) {
        let room = room.max(len + more_len);
        match (&mut *self, more) {
            (Self::None, Self::None) => {}
            (mine @ Self::None, more) if len == 0 && room == more_len => *mine = more,
            (mine @ Self::None, Self::Near { base, from_base }) => {
                let mut all = Vec::new();
                pages::reserve(&mut all, room);
                all.resize(len, 0);
                all.extend_from_slice(&from_base);
                *mine = Self::Near {
                    base,
                    from_base: all,
                };
            }
            (Self::Near { from_base, .. }, Self::None) => from_base.resize(len + more_len, 0),
            (
                Self::Near { base, from_base },
                Self::Near {
                    base: other,
                    from_base: more,
                },
            ) if *base == other => from_base.extend_from_slice(&more),
            (
                Self::Near { base, from_base },
                Self::Near {
                    base: other,
                    from_base: more,
                },
            ) if moved(&more, *base, other).all(|distance| distance.is_some()) => {
                from_base.extend(moved(&more, *base, other).flatten());
            }
            (_, more) => {
                for index in 0..more_len {
                    self.push(len + index, room, more.bits(index));
                }
            }
        }
    }

    pub(super) fn map_sources(&mut self, len: usize, shared: u16, new_ids: &[u16]) {
        let mut mapped = Self::None;
        for index in 0..len {
            let old = ArgRef::from_bits(self.bits(index));
            mapped.push(index, len, map_source(old, shared, new_ids).to_bits());
        }
        *self = mapped;
    }
}

/// Returns the distance to the base (0 means no arguments), or `None` if it does not fit.
fn distance(base: u64, bits: u64) -> Option<u32> {
    if bits == 0 {
        return Some(0);
    }
    bits.checked_sub(base)
        .and_then(|distance| u32::try_from(distance).ok())
        .filter(|distance| *distance != 0)
}

/// Converts distances from `other` to distances from `base`; `None` for each that does not fit.
fn moved(distances: &[u32], base: u64, other: u64) -> impl Iterator<Item = Option<u32>> {
    distances.iter().map(move |old| match old {
        0 => Some(0),
        old => distance(base, other.wrapping_add(u64::from(*old))),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(bits: &[u64]) -> ArgBuf {
        let mut args = ArgBuf::None;
        for (len, bits) in bits.iter().enumerate() {
            args.push(len, 0, *bits);
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
        joined.append(near.len(), 0, pushed(&far), far.len());
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
        flags.append(3, 0, other.clone(), 1);
        assert!(flags.each.is_empty());
        other.push(1, 5);
        flags.append(4, 0, other, 2);
        assert_eq!(flags.each, [2, 2, 2, 2, 2, 5]);
    }
}
