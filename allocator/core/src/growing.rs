//! Blocks that grow by realloc. From 8 KiB on a small one becomes a large one, which goes on growing where it lies: by steps of 4 KiB it would else be copied
//! seven times on its way to 32 KiB. (glibc extends it where it lies, if nothing is behind it; others copy.)
//!
//! Such a block has more room than it needs, and may keep it for long. So a heap has a few of them at a time, beside those in whose place a freed large block
//! would be kept.

use core::cell::Cell;
use core::ptr;

use crate::allocator::Allocator;
use crate::heap::Heap;
use crate::size_class::SMALL_MAX;
use crate::units::{self, UNIT, UNKEPT};

/// Bytes from which on a small block that grows becomes a large one.
pub(crate) const FROM: usize = 8 << 10;
/// Such blocks of one heap at a time.
pub(crate) const PLACES: usize = 8;
/// Units of the shortest large block, which such a block has as long as it would be a small one.
const SHORTEST: usize = (SMALL_MAX + 1).div_ceil(UNIT);

/// Where the blocks of a heap lie that became large ones, or did.
pub(crate) struct Growing([Cell<usize>; PLACES]);

impl Growing {
    pub(crate) const fn new() -> Self {
        Self([const { Cell::new(0) }; PLACES])
    }
}

/// Whether a block of `old_size` bytes may become a large one when it is resized to `size`, which would be a small one.
#[inline(always)]
pub(crate) fn may_become_large(old_size: usize, size: usize) -> bool {
    old_size >= FROM && size > old_size
}

/// Whether a large block of `old_size` bytes stays one when it is resized to `size`, which would be a small one: it may be growing.
pub(crate) fn stays_large(old_size: usize, size: usize) -> bool {
    size > FROM && old_size <= SHORTEST * UNIT
}

impl Allocator {
    /// A large block instead of a small one that grows, aligned to `align`, no more than a unit; null: it is to become a small one.
    pub(crate) fn allocate_growing(&self, heap: &Heap, old_size: usize, align: usize) -> *mut u8 {
        const SIZE: usize = SMALL_MAX + 1;
        let kept = Self::take_freed(heap, SIZE, align);
        if !kept.is_null() || heap.arena().is_none() {
            return kept;
        }
        let Some(place) = heap.growing.0.iter().find(|place| !self.may_be_short(place.get())) else {
            return ptr::null_mut();
        };
        let mut block = self.allocate_to_grow(heap, old_size, SIZE, align);
        if block.is_null() {
            block = self.allocate_aligned(heap, SIZE, align);
        }
        place.set(block.addr());
        block
    }

    /// Whether the large block that began at an address, or 0, may still live there and be as short as it was.
    fn may_be_short(&self, block: usize) -> bool {
        // SAFETY: NULL, or memory that was handed out.
        let entry = unsafe { self.units.entry(block) };
        let units = if units::is_small(entry) { 0 } else { units::large_in(entry) };
        // One of which something may be learned yet tells no length.
        units == UNKEPT || (1..=SHORTEST).contains(&units)
    }
}
