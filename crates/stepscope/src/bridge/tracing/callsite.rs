//! The table of `span!` and `event!` callsites in the program: looked up by metadata when a span is
//! created, by index afterwards.
//!
//! Nothing here waits: a fork in the middle of an addition leaves the child an unused index, but no
//! lock that stays locked.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tracing_core::Metadata;
use tracing_core::field::Field;

use crate::ring::names::{self, StaticName};

/// One more than the highest index. Callsites beyond it are not recorded.
pub(super) const MAX: usize = 1 << 15;
const TABLE: usize = MAX * 2;

/// A callsite; never freed.
pub(super) struct Callsite {
    metadata: &'static Metadata<'static>,
    index: u64,
    name: StaticName,
    fields: Box<[StaticName]>,
}

impl Callsite {
    /// Returns `tracing`'s metadata.
    pub(super) fn metadata(&self) -> &'static Metadata<'static> {
        self.metadata
    }

    /// Returns its index, from 1 and below [`MAX`].
    #[inline]
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Returns the id of its name, 0 when there is none now.
    #[inline]
    pub(super) fn name(&self) -> u32 {
        self.name.id()
    }

    /// Returns the id of a field's name.
    #[inline]
    pub(super) fn field_name(&self, field: &Field) -> u32 {
        match self.fields.get(field.index()) {
            Some(name) => name.id(),
            None => names::intern(field.name()),
        }
    }
}

static BY_METADATA: [AtomicPtr<Callsite>; TABLE] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; TABLE];
static BY_INDEX: [AtomicPtr<Callsite>; MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX];
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Returns the callsite with this index.
#[inline]
pub(super) fn by_index(index: u64) -> Option<&'static Callsite> {
    let slot = BY_INDEX.get(usize::try_from(index).ok()?)?;
    // SAFETY: published callsites live for ever.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Returns the callsite of a metadata, and creates it if it is new; `None` beyond the maximum.
#[inline]
pub(super) fn from_metadata(metadata: &'static Metadata<'static>) -> Option<&'static Callsite> {
    match find(metadata, place_of(metadata)) {
        Ok(callsite) => Some(callsite),
        Err(free) => add(metadata, free),
    }
}

#[inline]
fn place_of(metadata: &'static Metadata<'static>) -> usize {
    let address = std::ptr::from_ref(metadata) as usize;
    (address >> 4).wrapping_mul(0x9e37_79b9) >> 7
}

/// Returns the callsite, or the first free slot of the table from `at` on. The table is never full:
/// it has twice as many slots as there are callsites.
#[inline]
fn find(metadata: &'static Metadata<'static>, mut at: usize) -> Result<&'static Callsite, usize> {
    loop {
        at &= TABLE - 1;
        // SAFETY: published callsites live for ever.
        match unsafe { BY_METADATA[at].load(Ordering::Acquire).as_ref() } {
            None => return Err(at),
            Some(callsite) if std::ptr::eq(callsite.metadata, metadata) => return Ok(callsite),
            Some(_) => at += 1,
        }
    }
}

#[cold]
fn add(metadata: &'static Metadata<'static>, mut free: usize) -> Option<&'static Callsite> {
    let index = COUNT
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MAX).then_some(count + 1)
        })
        .ok()?;
    let created = Box::into_raw(Box::new(Callsite {
        metadata,
        index: index as u64,
        name: StaticName::new(metadata.name()),
        fields: metadata
            .fields()
            .iter()
            .map(|field| StaticName::new(field.name()))
            .collect(),
    }));
    BY_INDEX[index].store(created, Ordering::Release);
    loop {
        if BY_METADATA[free]
            .compare_exchange(
                std::ptr::null_mut(),
                created,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
        {
            // SAFETY: leaked just now.
            return Some(unsafe { &*created });
        }
        // Another thread was faster, in this slot or with this callsite; in the second case ours is
        // never found.
        match find(metadata, free) {
            Ok(callsite) => return Some(callsite),
            Err(next) => free = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_core::{Kind, Level, callsite::DefaultCallsite};

    use super::*;

    fn leaked() -> &'static Metadata<'static> {
        static ANY: Metadata<'static> = tracing_core::metadata! {
            name: "callsite::any",
            target: "test",
            level: Level::INFO,
            fields: &[],
            callsite: &CALLSITE,
            kind: Kind::SPAN,
        };
        static CALLSITE: DefaultCallsite = DefaultCallsite::new(&ANY);
        Box::leak(Box::new(tracing_core::metadata! {
            name: "callsite::leaked",
            target: "test",
            level: Level::INFO,
            fields: &[],
            callsite: &CALLSITE,
            kind: Kind::SPAN,
        }))
    }

    #[test]
    fn threads_agree_on_what_they_add_at_the_same_time() {
        let all: Vec<_> = (0..300).map(|_| leaked()).collect();
        let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        all.iter()
                            .map(|metadata| from_metadata(metadata).unwrap().index())
                            .collect()
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
        for (metadata, index) in all.iter().zip(&seen[0]) {
            let callsite = by_index(*index).unwrap();
            assert!(std::ptr::eq(callsite.metadata(), *metadata));
        }
        assert!(by_index(0).is_none() && by_index(MAX as u64).is_none());
    }

    #[test]
    fn fork_child_can_add_callsites_while_the_parent_adds() {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..MAX / 4 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    assert!(from_metadata(leaked()).is_some());
                }
            });
            for _ in 0..30 {
                // SAFETY: the child adds, and exits at once; if it should wait, the alarm ends it.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::alarm(20);
                        libc::_exit(i32::from(from_metadata(leaked()).is_none()));
                    }
                    let mut status = 0;
                    libc::waitpid(child, &raw mut status, 0);
                    assert_eq!(status, 0);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
