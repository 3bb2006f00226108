//! Where a worker keeps its blocks.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, slice};

use super::failure::Failure;

/// A vector of fixed capacity outside the heap, in pages of its own that are resident from the
/// start: it costs the measured part neither a call of the allocator nor a page fault.
#[derive(Debug)]
pub struct Slots<B> {
    start: NonNull<B>,
    length: usize,
    capacity: usize,
}

// SAFETY: `Slots` owns its pages and its elements, as a `Vec` does.
unsafe impl<B: Send> Send for Slots<B> {}
// SAFETY: as above: a shared `Slots` gives shared access to its elements only.
unsafe impl<B: Sync> Sync for Slots<B> {}

/// Bytes of all slots of the process.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes that all slots of the process have mapped, every page of them resident.
pub fn mapped_in_all() -> u64 {
    // Relaxed: a count, which orders nothing.
    MAPPED.load(Ordering::Relaxed)
}

/// Bytes to map: never none, which mmap refuses.
fn mapped_bytes<B>(capacity: usize) -> usize {
    capacity.max(1).saturating_mul(size_of::<B>())
}

impl<B: Copy> Slots<B> {
    /// No elements, and room for `capacity`.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub fn with_capacity(capacity: usize) -> Result<Self, Failure> {
        const { assert!(size_of::<B>() > 0 && align_of::<B>() <= 4096) };
        let bytes = mapped_bytes::<B>(capacity);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping, wherever the system likes, touches nobody's memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Failure::system("no memory for the slots", &io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).expect("mmap chooses no address 0 by itself");
        // Relaxed: as in `mapped_in_all`.
        MAPPED.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Self { start, length: 0, capacity })
    }

    /// `count` copies of an element.
    ///
    /// # Errors
    /// As [`with_capacity`](Self::with_capacity).
    pub fn filled(count: usize, element: B) -> Result<Self, Failure> {
        let mut slots = Self::with_capacity(count)?;
        for _ in 0..count {
            slots.push(element);
        }
        Ok(slots)
    }

    /// Where an element lies, for those who do not reach it by a reference.
    pub fn place(&self, index: usize) -> *mut B {
        assert!(index < self.length, "no such element");
        self.start.as_ptr().wrapping_add(index)
    }

    /// Elements that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends an element; there must be room for it.
    #[inline]
    pub fn push(&mut self, element: B) {
        assert!(self.length < self.capacity, "more elements than slots");
        // SAFETY: the mapping has room for `capacity` elements, and `length` is below that.
        unsafe { self.start.add(self.length).write(element) };
        self.length += 1;
    }

    /// Takes an element out, and puts the last one into its place; `index` must be in bounds.
    #[inline]
    pub fn swap_remove(&mut self, index: usize) -> B {
        let last = self[self.length - 1];
        let removed = std::mem::replace(&mut self[index], last);
        self.length -= 1;
        removed
    }

    /// Forgets all elements.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Forgets all elements but the first `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl<B> Deref for Slots<B> {
    type Target = [B];

    #[inline]
    fn deref(&self) -> &[B] {
        // SAFETY: the first `length` elements were written by `push`, and `self` owns them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<B> DerefMut for Slots<B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [B] {
        // SAFETY: as in `deref`, and `self` is borrowed for writing.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<B> Drop for Slots<B> {
    fn drop(&mut self) {
        let bytes = mapped_bytes::<B>(self.capacity);
        // Relaxed: as in `mapped_in_all`.
        MAPPED.fetch_sub(bytes as u64, Ordering::Relaxed);
        // SAFETY: this mapping was made by `with_capacity` with this very size; nobody uses it any more.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert_eq!(result, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_element_takes_the_place_of_one_that_is_taken_out() {
        let mut slots = Slots::with_capacity(3).expect("mapped");
        [1, 2, 3].into_iter().for_each(|element| slots.push(element));
        assert_eq!(slots.swap_remove(0), 1);
        assert_eq!(*slots, [3, 2]);
        assert_eq!(slots.swap_remove(1), 2);
        assert_eq!(*Slots::filled(2, 7).expect("mapped"), [7, 7]);
    }
}
