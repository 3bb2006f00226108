//! What the allocator answers: allocate, free, resize, for a thread's heap.

use core::ptr;

use crate::allocator::Allocator;
use crate::growing::{self, may_become_large};
use crate::heap::Heap;
use crate::large::{CLEARED_FROM, Foreign, clear_sparse};
use crate::options::Name;
use crate::os;
use crate::size_class::{self, Class, LINE, QUANTUM, SMALL_MAX, far_class};
use crate::starter::{self, MIXED};
use crate::units::{self, Entry, UNIT};

/// Whether a small block keeps its place when it is resized: while at least half of it is used. (A large one gives the rest back there.)
#[inline(always)]
pub fn keeps_place(old_size: usize, size: usize) -> bool {
    size <= old_size && size >= old_size / 2
}

/// Bytes to ask for where a small block of `old_size` bytes is to hold `size` and cannot, and how many are to be copied. Where it grows: three sixteenths more than it has, or what it
/// needs, for it is likely to grow again, and would be copied each time. (As in gperftools and TCMalloc, with a quarter.)
#[inline(always)]
pub fn to_resize(old_size: usize, size: usize) -> (usize, usize) {
    if size > old_size { (size.max(old_size + old_size / 16 * 3), old_size) } else { (size, size) }
}

/// Bytes of a small block with this entry; `None`: it is none, or came from a starter.
#[inline(always)]
pub(crate) fn small_size(entry: Entry) -> Option<usize> {
    if units::class_in_place(entry) == MIXED << units::CLASS_SHIFT {
        None
    } else {
        Some(size_class::of(units::class_in(entry)).size as usize)
    }
}

impl Allocator {
    /// A block of at least `size` bytes, aligned to 16; null: no memory.
    #[inline(always)]
    pub fn allocate(&self, heap: &Heap, size: usize) -> *mut u8 {
        match heap.near_class(size).or_else(|| far_class(size)) {
            Some(class) => self.allocate_class(heap, class),
            None => self.allocate_unusual(heap, size),
        }
    }

    /// A block of `class`; null: no memory.
    #[inline(always)]
    pub(crate) fn allocate_class(&self, heap: &Heap, class: Class) -> *mut u8 {
        let block = heap.place(class).pop();
        if block.is_null() { self.refill_or_reclaim(heap, class) } else { block }
    }

    /// A block of `class` when the loaded magazine is empty or not there; null: no memory.
    pub(crate) fn refill_or_reclaim(&self, heap: &Heap, class: Class) -> *mut u8 {
        let block = self.refill(heap, class);
        if block.is_null() { self.reclaim_and_refill(heap, class) } else { block }
    }

    #[cold]
    #[inline(never)]
    fn reclaim_and_refill(&self, heap: &Heap, class: Class) -> *mut u8 {
        self.reclaim(heap);
        self.refill(heap, class)
    }

    /// A large block, and whether it may hold anything but zeros; null: no memory.
    #[inline(never)]
    fn allocate_run(&self, heap: &Heap, size: usize, align: usize) -> (*mut u8, bool) {
        let freed = Self::take_freed(heap, size, align);
        if !freed.is_null() {
            return (freed, true);
        }
        let first = self.allocate_large(heap, size, align);
        // What no address space could hold is not worth giving everything back.
        if !first.0.is_null() || size.saturating_add(align) > os::window().len() / 2 {
            return first;
        }
        self.reclaim(heap);
        self.allocate_large(heap, size, align)
    }

    /// Size 0, or a large one.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_unusual(&self, heap: &Heap, size: usize) -> *mut u8 {
        if size == 0 {
            return self.allocate_class(heap, 1);
        }
        self.allocate_run(heap, size, QUANTUM).0
    }

    /// A block of at least `size` bytes at a multiple of `align` (a power of two); null: no memory.
    pub fn allocate_aligned(&self, heap: &Heap, size: usize, align: usize) -> *mut u8 {
        if align <= QUANTUM {
            return self.allocate(heap, size);
        }
        if align < LINE && self.options.is_on(Name::IsolateLines) {
            return self.allocate_shared(heap, size);
        }
        match size_class::class_of_aligned(size, align) {
            Some(class) => {
                if align > starter::GRANULE {
                    heap.leave_starter(class);
                }
                self.allocate_class(heap, class)
            }
            None => self.allocate_run(heap, size, align).0,
        }
    }

    /// A block of at least `size` bytes that has its cache lines to itself; null: no memory.
    pub fn allocate_shared(&self, heap: &Heap, size: usize) -> *mut u8 {
        match size.max(1).checked_next_multiple_of(LINE) {
            Some(lines) => self.allocate_aligned(heap, lines, LINE),
            None => ptr::null_mut(),
        }
    }

    /// A block of at least `size` bytes, all zero, aligned to `align` (a power of two); null: no memory.
    pub fn allocate_zeroed(&self, heap: &Heap, size: usize, align: usize) -> *mut u8 {
        let (block, dirty) = if size > SMALL_MAX && align <= QUANTUM {
            self.allocate_run(heap, size, align)
        } else {
            (self.allocate_aligned(heap, size, align), true)
        };
        // SAFETY: a fresh block of at least `size` bytes; from this size on a run of its own.
        if dirty && !block.is_null() && !(size >= CLEARED_FROM && unsafe { clear_sparse(block, size) }) {
            // SAFETY: as above.
            unsafe { block.write_bytes(0, size) };
        }
        block
    }

    /// Takes a block back; NULL is ignored.
    ///
    /// # Safety
    /// `block` is NULL, foreign, or a live block that nobody uses any more. `heap` is the calling thread's.
    #[inline(always)]
    pub unsafe fn free(&self, heap: &Heap, block: *mut u8) -> Result<(), Foreign> {
        // SAFETY: the caller's contract.
        let entry = unsafe { self.units.entry(block.addr()) };
        let taken = match heap.own_place(entry) {
            Some(place) => {
                place.push(block)
                    || Self::keepable(entry).is_some_and(|units| self.keep_large(heap, block, units))
            }
            None => heap.push_foreign(entry, block),
        };
        if taken || block.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's contract.
        unsafe { self.free_unusual(heap, block, entry) }
    }

    /// A block for which there is no room in the magazine that it belongs into, a large or foreign one.
    ///
    /// # Safety
    /// As for [`Allocator::free`]; `entry` is the block's.
    #[inline(always)]
    pub(crate) unsafe fn free_unusual(
        &self,
        heap: &Heap,
        block: *mut u8,
        entry: Entry,
    ) -> Result<(), Foreign> {
        if !units::is_small(entry) {
            // SAFETY: the caller's contract, and the entry says that the block is not a small one.
            return unsafe { self.free_not_small(heap, block, entry) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.free_slow(heap, block, entry) };
        Ok(())
    }

    /// A large or foreign block.
    ///
    /// # Safety
    /// As for [`Allocator::free_unusual`]; `block` is not a live small block.
    #[inline(never)]
    unsafe fn free_not_small(&self, heap: &Heap, block: *mut u8, entry: Entry) -> Result<(), Foreign> {
        let kept = Self::keepable(entry).is_some_and(|units| self.keep_sparse(heap, block, units));
        // SAFETY: the caller's contract.
        if kept { Ok(()) } else { unsafe { self.free_large(heap, block) } }
    }

    /// Bytes of a block that the program may use.
    ///
    /// # Safety
    /// `block` is foreign, or a live block; it is not NULL.
    #[inline]
    pub unsafe fn usable_size(&self, block: *mut u8) -> Result<usize, Foreign> {
        // SAFETY: the caller's contract.
        let entry = unsafe { self.units.entry(block.addr()) };
        match small_size(entry) {
            Some(size) => Ok(size),
            // SAFETY: the caller's contract.
            None => unsafe { self.unusual_size(block, entry) },
        }
    }

    /// Bytes of a large or foreign block, or of one that came from a starter.
    ///
    /// # Safety
    /// As for [`Allocator::usable_size`]; `entry` is the block's.
    #[inline(never)]
    unsafe fn unusual_size(&self, block: *mut u8, entry: Entry) -> Result<usize, Foreign> {
        if !units::is_small(entry) {
            // SAFETY: the caller's contract, and the entry says that the block is not a small one.
            return unsafe { self.large_size(block) };
        }
        let class = self.arena(units::arena_in(entry)).mixed_class(block);
        Ok(size_class::of(class).size as usize)
    }

    /// A block of at least `size` bytes with the content of `block` as far as it fits, in place where possible, at
    /// a multiple of `align` (a power of two, no more than `block` has); null: no memory, and `block` is as it was.
    ///
    /// # Safety
    /// `block` is foreign, or a live block that the caller gives up unless the result is null; it is not NULL.
    pub unsafe fn reallocate(
        &self,
        heap: &Heap,
        block: *mut u8,
        size: usize,
        align: usize,
    ) -> Result<*mut u8, Foreign> {
        // SAFETY: the caller's contract.
        let old_size = unsafe { self.usable_size(block) }?;
        let fits = if old_size <= SMALL_MAX {
            keeps_place(old_size, size)
        } else if size > SMALL_MAX {
            // As many units as it has: most of those that grow little by little.
            // SAFETY: the caller's contract; a block larger than any class is a large one.
            old_size.wrapping_sub(size) < UNIT || unsafe { self.resize_large(block, size) }?
        } else {
            heap.growing.stays_large(block.addr(), old_size, size)
        };
        if fits {
            return Ok(block);
        }
        let grows = size > old_size.max(SMALL_MAX) && align <= UNIT;
        let mut new = if grows {
            self.allocate_to_grow(heap, old_size, size, align)
        } else if may_become_large(old_size, size) && align <= UNIT {
            self.allocate_growing(heap, old_size, align)
        } else {
            ptr::null_mut()
        };
        let has_room = !new.is_null();
        if !has_room && grows && old_size > SMALL_MAX {
            // SAFETY: the caller's contract; a block larger than any class is a large one.
            let moved = unsafe { self.move_large(block, size) }?;
            if !moved.is_null() {
                return Ok(moved);
            }
        }
        if new.is_null() {
            let room = if old_size <= SMALL_MAX { to_resize(old_size, size).0 } else { size };
            new = self.allocate_aligned(heap, room, align);
        }
        if !new.is_null() {
            // SAFETY: both blocks are live and distinct, and at least that long.
            unsafe { ptr::copy_nonoverlapping(block, new, old_size.min(size)) };
            self.ground().learn_copied(old_size.min(size));
            // SAFETY: the caller gives the block up; one larger than any class is a large one.
            unsafe {
                if has_room && old_size > SMALL_MAX {
                    self.free_outgrown(block)
                } else {
                    self.free(heap, block)
                }
            }?;
        }
        Ok(new)
    }

    /// A large block instead of a small one of `old_size` bytes that grows, aligned to `align`, no more than a unit; null: it is to become a small one.
    fn allocate_growing(&self, heap: &Heap, old_size: usize, align: usize) -> *mut u8 {
        if heap.arena().is_none() {
            return ptr::null_mut();
        }
        let mut block = Self::take_freed(heap, growing::SIZE, align);
        // SAFETY: NULL, or where a block was.
        let entry_of = |block| unsafe { self.units.entry(block) };
        let Some(place) = heap.growing.place(block.addr(), entry_of) else {
            // SAFETY: a block that was just taken, or NULL.
            let _ = unsafe { self.free(heap, block) };
            return ptr::null_mut();
        };
        if block.is_null() {
            block = self.allocate_to_grow(heap, old_size, growing::SIZE, align);
        }
        if block.is_null() {
            block = self.allocate_aligned(heap, growing::SIZE, align);
        }
        place.set(block.addr());
        block
    }
}

#[cfg(test)]
mod tests;
