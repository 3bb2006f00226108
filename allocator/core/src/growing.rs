//! Small blocks that grow by realloc. From 8 KiB on, such a block becomes a large one, which goes on growing where it lies: growing by steps of 4 KiB, it would otherwise be copied
//! seven times on its way to 32 KiB. (glibc extends a block where it lies, if nothing is behind it; others copy.)
//!
//! Such a block has more room than it needs, and may keep it for long. So a heap has only a few of them at a time.

use core::cell::Cell;

use crate::size_class::SMALL_MAX;
use crate::units::{self, Entry, UNIT, UNKEPT};

/// Bytes from which on a small block that grows becomes a large one.
pub(crate) const FROM: usize = 8 << 10;
/// Such blocks of one heap at a time.
pub(crate) const PLACES: usize = 8;
/// Bytes of such a block as long as it would be a small one: no large one is shorter.
pub(crate) const SIZE: usize = SMALL_MAX + 1;
/// Units of it.
const SHORTEST: usize = SIZE.div_ceil(UNIT);

/// Where the blocks of a heap lie that became large ones, or did.
pub(crate) struct Growing([Cell<usize>; PLACES]);

impl Growing {
    pub(crate) const fn new() -> Self {
        Self([const { Cell::new(0) }; PLACES])
    }

    /// The place of a block, or, where it has none, one for it: where the entry that the unit map has for an address says that what began there is gone, or
    /// longer. (0: any block.)
    pub(crate) fn place(&self, block: usize, entry_of: impl Fn(usize) -> Entry) -> Option<&Cell<usize>> {
        let places = || self.0.iter();
        let own = places().find(|place| place.get() == block);
        own.or_else(|| places().find(|place| !may_be_short(entry_of(place.get()))))
    }

    /// Whether a large block of `old_size` bytes stays one when it is resized to `size`, which would be a small one: it may go on growing.
    pub(crate) fn stays_large(&self, block: usize, old_size: usize, size: usize) -> bool {
        size > FROM && old_size <= SHORTEST * UNIT && self.0.iter().any(|place| place.get() == block)
    }
}

/// Whether a large block that has this entry, or had it and was freed, may be as short as it was when it became one.
fn may_be_short(entry: Entry) -> bool {
    let units = if units::is_small(entry) { 0 } else { units::large_in(entry) };
    // One of which something may be learned yet tells no length.
    units == UNKEPT || (1..=SHORTEST).contains(&units)
}

/// Whether a block of `old_size` bytes may become a large one when it is resized to `size`, which would be a small one.
#[inline(always)]
pub(crate) fn may_become_large(old_size: usize, size: usize) -> bool {
    old_size >= FROM && size > old_size
}
