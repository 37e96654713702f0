//! A text that is inflated on one thread and read on others, in one piece of memory that never moves.
//!
//! The memory is asked for as a whole (on Linux with large pages: touching a text of 60 MB page by
//! page takes longer than inflating it), and given by the system where it is touched. Who inflates holds
//! the one [`Writer`]; everybody else sees the bytes before a mark that only moves forward.
#![allow(
    unsafe_code,
    reason = "a slice that grows behind its readers cannot be said in safe Rust; every block says why it holds"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use memmap2::{MmapMut, MmapRaw};
use stepscope_formats::arriving::Arriving;
use stepscope_formats::gzip::Target;

/// See the module's text.
pub(crate) struct Growing {
    memory: MmapRaw,
    /// Bytes that are written and will not be written again.
    len: AtomicUsize,
    ended: AtomicBool,
    /// Held while the two above are changed, so that nobody misses it who goes to sleep.
    changing: Mutex<()>,
    changed: Condvar,
}

/// Writes behind what is there. There is one.
pub(crate) struct Writer(Arc<Growing>);

impl Growing {
    /// An empty text with room for so many bytes; `None` when there is not so much memory.
    pub(crate) fn with_room(bytes: usize) -> Option<(Arc<Self>, Writer)> {
        let memory = MmapMut::map_anon(bytes.max(1)).ok()?;
        // Whoever does not give large pages loses nothing by being asked.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        let text = Arc::new(Self {
            memory: memory.into(),
            len: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            changing: Mutex::default(),
            changed: Condvar::new(),
        });
        Some((Arc::clone(&text), Writer(text)))
    }

    fn change(&self, change: impl FnOnce()) {
        let held = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        change();
        drop(held);
        self.changed.notify_all();
    }
}

impl AsRef<[u8]> for Growing {
    fn as_ref(&self) -> &[u8] {
        let len = self.len.load(Ordering::Acquire);
        // SAFETY: `len` is at most the length of the memory, which lives as long as `self` and began
        // as zeros. Bytes before `len` were written before it was stored, and no writer gives out
        // a slice that begins before it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), len) }
    }
}

impl Arriving for Growing {
    fn wait_beyond(&self, len: usize) -> bool {
        let waits =
            || self.len.load(Ordering::Acquire) <= len && !self.ended.load(Ordering::Acquire);
        if waits() {
            let held = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let held = self.changed.wait_while(held, |()| waits());
            drop(held.unwrap_or_else(PoisonError::into_inner));
        }
        !self.ended.load(Ordering::Acquire)
    }
}

impl Target for Writer {
    fn len(&self) -> usize {
        self.0.len.load(Ordering::Relaxed)
    }

    fn put(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<&[u8]> {
        let text = &*self.0;
        let begin = text.len.load(Ordering::Relaxed);
        let room = most.min(text.memory.len() - begin);
        if room == 0 {
            return None;
        }
        // SAFETY: the range lies within the memory, which holds zeros or what an earlier call left.
        // Readers see nothing from `begin` on, there is one writer, and it is borrowed exclusively.
        let room =
            unsafe { std::slice::from_raw_parts_mut(text.memory.as_mut_ptr().add(begin), room) };
        let count = fill(room).min(room.len());
        text.change(|| text.len.store(begin + count, Ordering::Release));
        text.as_ref().get(begin..)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0
            .change(|| self.0.ended.store(true, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(writer: &mut Writer, bytes: &[u8]) -> bool {
        let put = writer.put(bytes.len(), |room| {
            let count = room.len();
            room.copy_from_slice(&bytes[..count]);
            count
        });
        put.is_some_and(|put| put == bytes)
    }

    #[test]
    fn readers_see_what_was_put_and_hear_the_end() {
        let (text, mut writer) = Growing::with_room(1 << 20).unwrap();
        let reader = std::thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn(move || {
            let mut seen = 0;
            while text.wait_beyond(seen) {
                let bytes: &[u8] = (*text).as_ref();
                assert!(bytes.len() > seen);
                assert!(bytes[seen..].iter().all(|byte| *byte == 7));
                seen = bytes.len();
            }
            (*text).as_ref().len()
        });
        for _ in 0..1_000 {
            assert!(put(&mut writer, &[7; 1_000]));
        }
        drop(writer);
        assert_eq!(reader.unwrap().join().unwrap(), 1_000_000);
    }

    #[test]
    fn a_full_text_takes_no_more_and_stays() {
        let (text, mut writer) = Growing::with_room(10).unwrap();
        assert!(put(&mut writer, b"0123456789"));
        assert!(writer.put(1, |_| 1).is_none());
        assert_eq!((*text).as_ref(), b"0123456789");
        assert!(text.wait_beyond(9));
        drop(writer);
        assert!(!text.wait_beyond(10));
    }

    #[test]
    fn what_was_not_kept_is_not_seen() {
        let (text, mut writer) = Growing::with_room(100).unwrap();
        let put = writer.put(50, |room| {
            room.fill(1);
            3
        });
        assert_eq!(put, Some(&[1_u8, 1, 1][..]));
        assert_eq!(writer.len(), 3);
        assert_eq!((*text).as_ref(), [1, 1, 1]);
    }
}
