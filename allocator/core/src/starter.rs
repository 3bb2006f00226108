//! Starters: one span of each arena in which blocks of all sizes up to 2 KiB lie side by side.
//!
//! A span of one class costs at least a page, so that a thread with one block of each of thirty sizes would keep thirty
//! pages for a few kilobytes. The first blocks of each class therefore come from the arena's starter, as far as it has
//! room; a class that goes on being used moves to spans of its own. Blocks of a starter never enter a magazine: they
//! are handed out and taken back one by one, under the arena's lock.
//!
//! A crowd of threads, which share arenas, needs no starters: there the first blocks of a class come one by one from the class's spans, and
//! go back there, so that a thread that uses the class little has no magazine for it.
//!
//! The unit map says [`MIXED`] for the units of a starter; the class of each block is found in the starter's table.

use crate::size_class::{self, CLASSES, Class, LINE};
use crate::sync::{self, AtomicU8, Ordering};
use crate::units::UNIT;

/// What stands for a class in the unit map's entry for a starter: no class, of which a heap has no magazine.
pub(crate) const MIXED: Class = 0;

/// Units of a starter.
pub(crate) const UNITS: usize = 4;
/// Bytes of a starter, and what its address is a multiple of.
pub(crate) const STARTER: usize = UNITS * UNIT;
/// Where a block may begin: at multiples of this many bytes.
pub(crate) const GRANULE: usize = LINE;
/// In the table: the block came back.
const FREE: u8 = 1 << 7;

/// Largest block that may lie in a starter, in bytes.
const LARGEST: usize = (2 << 10) + LINE;
/// Blocks of a class that a heap gets one after the other; then the class is in steady use.
const ALLOWANCE: u8 = 8;
/// The same, those that it gives back counted, in a crowd of threads, of blocks that could lie in a starter: where there are many, what they keep matters more than the time of their
/// first blocks.
const ALLOWANCE_IN_CROWD: u8 = 96;

/// How many blocks of `class` a heap gets one by one before it has a magazine of them: from its arena's starter, or, in a crowd, from spans.
pub(crate) fn allowance(class: Class, crowd: bool) -> u8 {
    match (crowd, size_class::of(class).size as usize <= LARGEST) {
        (true, true) => ALLOWANCE_IN_CROWD,
        (false, false) => 0,
        _ => ALLOWANCE,
    }
}

/// The table of a starter: for each granule the class of the block that begins there; 0: none does.
///
/// Written under the arena's lock. An entry changes only while its block is not live, so whoever owns a block may read the block's.
pub(crate) struct Table([AtomicU8; STARTER / GRANULE]);

impl Table {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; STARTER / GRANULE])
    }

    /// The class of a live block of the starter. Ends the process if there is no such block.
    pub(crate) fn class(&self, block: *mut u8) -> Class {
        let offset = block.addr() % STARTER;
        // Relaxed: whoever owns the block got it after the entry was written.
        let class = self.0[offset / GRANULE].load(Ordering::Relaxed);
        if !offset.is_multiple_of(GRANULE) || class == 0 {
            sync::die("ample: free of a pointer that malloc did not return\n");
        }
        if class & FREE != 0 {
            sync::die("ample: free of a block that is free already\n");
        }
        usize::from(class)
    }

    fn set(&self, granule: usize, class: u8) {
        // Relaxed: written under the arena's lock; for readers see `class`.
        self.0[granule].store(class, Ordering::Relaxed);
    }

    /// The first granule below `end` whose entry is `wanted`.
    fn find(&self, end: usize, wanted: u8) -> Option<usize> {
        // Relaxed: written under the arena's lock, which the caller holds.
        self.0[..end].iter().position(|entry| entry.load(Ordering::Relaxed) == wanted)
    }
}

/// How much of a starter is in use. Guarded by the arena's lock.
pub(crate) struct Fill {
    /// Granules below this one have been handed out.
    next: usize,
    /// Blocks that are handed out.
    live: usize,
    /// For each class the blocks that came back.
    free: [u16; CLASSES + 1],
}

impl Fill {
    pub(crate) const fn new() -> Self {
        Self { next: 0, live: 0, free: [0; CLASSES + 1] }
    }

    /// Whether no block is handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The classes of the blocks that are handed out, one for each.
    pub(crate) fn live(&self, table: &Table) -> impl Iterator<Item = Class> {
        // Relaxed: written under the arena's lock, which the caller holds.
        let entries = table.0[..self.next].iter().map(|entry| entry.load(Ordering::Relaxed));
        entries.filter(|entry| *entry != 0 && entry & FREE == 0).map(usize::from)
    }

    /// Hands out a block of `class`: its offset; `None`: there is no room.
    pub(crate) fn take(&mut self, table: &Table, class: Class) -> Option<usize> {
        if self.live == 0 {
            *self = Self::new();
        }
        let granule = if self.free[class] > 0 {
            self.free[class] -= 1;
            table.find(self.next, class as u8 | FREE)?
        } else {
            let first = self.next;
            let end = first + (size_class::of(class).size as usize).div_ceil(GRANULE);
            if end > table.0.len() {
                return None;
            }
            // What an earlier use of these granules has left.
            (first..end).for_each(|granule| table.set(granule, 0));
            self.next = end;
            first
        };
        table.set(granule, class as u8);
        self.live += 1;
        Some(granule * GRANULE)
    }

    /// Takes a block back.
    pub(crate) fn take_back(&mut self, table: &Table, block: *mut u8) {
        let class = table.class(block);
        table.set(block.addr() % STARTER / GRANULE, class as u8 | FREE);
        self.free[class] += 1;
        self.live -= 1;
    }
}

const _: () = assert!(CLASSES < FREE as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::without_provenance_mut;

    const SMALL: Class = 1;
    const LARGE: Class = 20;

    fn at(offset: usize) -> *mut u8 {
        without_provenance_mut(7 * STARTER + offset)
    }

    #[test]
    fn blocks_of_all_classes_lie_side_by_side_and_are_used_again() {
        let (table, mut fill) = (Table::new(), Fill::new());
        let size = size_class::of(LARGE).size as usize;
        assert_eq!(fill.take(&table, SMALL), Some(0));
        assert_eq!(fill.take(&table, LARGE), Some(GRANULE));
        let third = GRANULE + size.next_multiple_of(GRANULE);
        assert_eq!(fill.take(&table, SMALL), Some(third));
        assert_eq!(table.class(at(0)), SMALL);
        assert_eq!(table.class(at(GRANULE)), LARGE);
        fill.take_back(&table, at(GRANULE));
        assert_eq!(fill.take(&table, SMALL), Some(third + GRANULE));
        assert_eq!(fill.take(&table, LARGE), Some(GRANULE));
        assert!(!fill.is_empty());
    }

    #[test]
    fn a_full_one_has_no_room_and_an_empty_one_begins_anew() {
        let (table, mut fill) = (Table::new(), Fill::new());
        let mut blocks = Vec::new();
        while let Some(offset) = fill.take(&table, LARGE) {
            blocks.push(offset);
        }
        assert_eq!(blocks.len(), STARTER / (size_class::of(LARGE).size as usize).next_multiple_of(GRANULE));
        for offset in blocks {
            fill.take_back(&table, at(offset));
        }
        assert!(fill.is_empty());
        assert_eq!(fill.take(&table, SMALL), Some(0));
    }

    #[test]
    fn what_an_earlier_use_left_is_not_handed_out() {
        let (table, mut fill) = (Table::new(), Fill::new());
        let first: Vec<_> = (0..10).filter_map(|_| fill.take(&table, SMALL)).collect();
        first.into_iter().for_each(|offset| fill.take_back(&table, at(offset)));
        assert_eq!(fill.take(&table, LARGE), Some(0));
        let small = fill.take(&table, SMALL).expect("room");
        fill.take_back(&table, at(small));
        assert_eq!(fill.take(&table, SMALL), Some(small));
        assert_ne!(fill.take(&table, SMALL), Some(small));
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_second_free_ends_the_process() {
        let (table, mut fill) = (Table::new(), Fill::new());
        fill.take(&table, SMALL);
        fill.take(&table, SMALL);
        fill.take_back(&table, at(0));
        fill.take_back(&table, at(0));
    }

    #[test]
    #[should_panic(expected = "malloc did not return")]
    fn a_pointer_into_a_block_ends_the_process() {
        let (table, mut fill) = (Table::new(), Fill::new());
        fill.take(&table, LARGE);
        fill.take_back(&table, at(GRANULE));
    }
}
