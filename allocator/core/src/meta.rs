//! Memory for the allocator's own records: span descriptors, magazines, heaps, arenas. Never given back to the
//! system; records of a kind that are no longer needed are kept for reuse by whoever needs one.

use core::ptr::{self, NonNull};

use crate::os;
use crate::size_class::LINE;

/// Bytes asked from the system at a time.
const PIECE: usize = 256 << 10;

/// A bump allocator. Line 0 of every page stays unused: programs touch the first line of their pages most, and
/// processors predict cache ways by address bits that such lines share, which made one loop run at 5 or at 16 ns
/// by luck.
pub(crate) struct Meta {
    next: usize,
    end: usize,
    /// Bytes got from the system.
    mapped: usize,
}

impl Meta {
    pub(crate) const fn new() -> Self {
        Self { next: 0, end: 0, mapped: 0 }
    }

    /// Bytes got from the system.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped
    }

    fn map(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let memory = os::map(bytes, os::PAGE)?;
        self.mapped += bytes;
        Some(memory)
    }

    /// Zeroed memory for a `T`, aligned to a cache line.
    #[inline(never)]
    pub(crate) fn record<T>(&mut self) -> Option<NonNull<T>> {
        const { assert!(align_of::<T>() <= LINE && size_of::<T>() <= os::PAGE - LINE) }
        let bytes = size_of::<T>().next_multiple_of(LINE);
        if self.next.is_multiple_of(os::PAGE) || self.next % os::PAGE + bytes > os::PAGE {
            self.next = self.next.next_multiple_of(os::PAGE) + LINE;
        }
        if self.next + bytes > self.end {
            let piece = self.map(PIECE)?.as_ptr().expose_provenance();
            (self.next, self.end) = (piece + LINE, piece + PIECE);
        }
        let record = self.next;
        self.next += bytes;
        NonNull::new(ptr::with_exposed_provenance_mut(record))
    }

    /// Zeroed memory for `count` elements in a row.
    #[inline(never)]
    pub(crate) fn array<T>(&mut self, count: usize) -> Option<NonNull<T>> {
        let bytes = (count * size_of::<T>()).next_multiple_of(LINE);
        if bytes > PIECE / 4 {
            return Some(self.map(bytes.next_multiple_of(os::PAGE))?.cast());
        }
        let start = self.next.next_multiple_of(LINE);
        if start + bytes > self.end {
            let piece = self.map(PIECE)?.as_ptr().expose_provenance();
            (self.next, self.end) = (piece, piece + PIECE);
            return self.array(count);
        }
        self.next = start + bytes;
        NonNull::new(ptr::with_exposed_provenance_mut(start))
    }
}

/// Records of one kind that wait to be used again, linked through their first word.
pub(crate) struct Spares<T> {
    first: *mut T,
}

// SAFETY: a spare record belongs to the list, and the list to whoever can reach it.
unsafe impl<T> Send for Spares<T> {}

impl<T> Spares<T> {
    pub(crate) const fn new() -> Self {
        Self { first: ptr::null_mut() }
    }

    /// # Safety
    /// Nobody uses the record any more, and its memory came from [`Meta`].
    pub(crate) unsafe fn put(&mut self, record: NonNull<T>) {
        // The caller's pointer may come from a shared reference; the memory is the list's now, to write as well.
        let record = ptr::with_exposed_provenance_mut::<T>(record.as_ptr().addr());
        // SAFETY: the record's memory is unused, aligned to a line and longer than a word.
        unsafe { record.cast::<*mut T>().write(self.first) };
        self.first = record;
    }

    /// Memory for a record; its content is arbitrary.
    pub(crate) fn take(&mut self) -> Option<NonNull<T>> {
        let record = NonNull::new(self.first)?;
        // SAFETY: `put` wrote the link there.
        self.first = unsafe { record.cast::<*mut T>().read() };
        Some(record)
    }
}
