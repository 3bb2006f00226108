//! A heap's most recently freed large blocks: a thread that allocates, uses and frees a block of some size again and again gets
//! the same one, whose pages are there and whose lines may still be in its caches, without a lock. (The idea is that of
//! oneTBB's large object cache, R. Dementiev's answer to the question that gave this project its second motto.)

use core::cell::Cell;
use core::ptr;

use crate::span::Span;
use crate::units::UNIT;

/// Units of the largest block that is kept, and of all blocks in a cache: 1 MiB, about what the caches of a core hold.
pub(crate) const LARGEST: usize = (1 << 20) / UNIT;
/// Places for blocks in a cache.
const PLACES: usize = 16;

/// How many blocks in a row, each freed before the next is allocated, tell that a thread has one at a time.
const ALONE: u8 = 4;

/// No place.
const NONE: u8 = PLACES as u8;

/// Freed large blocks: for each number of units a stack, linked by their places. Whoever asks for more than there is room for takes them out in the
/// order of their places.
pub(crate) struct LargeCache {
    blocks: [Cell<*mut u8>; PLACES],
    /// Their units.
    sizes: [Cell<u8>; PLACES],
    /// The place below in the same stack.
    below: [Cell<u8>; PLACES],
    /// For each number of units the place of the newest block. (Of more than the largest there is none.)
    tops: [Cell<u8>; LARGEST + LARGEST / 8 + 1],
    /// The place that was emptied last to make room.
    hand: Cell<u8>,
    /// Where in the cache nothing is: a bit for each place.
    empty: Cell<u32>,
    /// Whether a block was put in or taken since the last trim.
    used: Cell<bool>,
    /// Units of all.
    units: Cell<usize>,
    /// Where the newest block is, or was, of those that are too large to be kept.
    newest: Cell<usize>,
    /// Whether it has been freed, and how many in a row were before the next was allocated; a new thread needs one more.
    is_free: Cell<bool>,
    alone: Cell<u8>,
    /// One more than the page heap of such a thread; 0: it has none yet.
    pub(crate) page_heap: Cell<u8>,
}

const _: () = assert!(LARGEST <= u8::MAX as usize && PLACES.is_power_of_two() && PLACES < u32::BITS as usize);

impl LargeCache {
    /// A cache that takes nothing until it is [opened](LargeCache::open).
    pub(crate) const fn new() -> Self {
        Self {
            blocks: [const { Cell::new(ptr::null_mut()) }; PLACES],
            sizes: [const { Cell::new(0) }; PLACES],
            below: [const { Cell::new(NONE) }; PLACES],
            tops: [const { Cell::new(NONE) }; LARGEST + LARGEST / 8 + 1],
            hand: Cell::new(0),
            empty: Cell::new(0),
            used: Cell::new(false),
            units: Cell::new(0),
            newest: Cell::new(0),
            is_free: Cell::new(true),
            alone: Cell::new(ALONE - 1),
            page_heap: Cell::new(0),
        }
    }

    /// From now on it takes blocks.
    pub(crate) fn open(&self) {
        self.empty.set((1 << PLACES) - 1);
    }

    /// Whether a block of `units` is too large to be kept, and the thread has had one such block at a time lately.
    pub(crate) fn has_one_at_a_time(&self, units: usize) -> bool {
        units > LARGEST && self.is_free.get() && self.alone.get() == ALONE
    }

    /// A block was allocated.
    pub(crate) fn note_allocated(&self, span: &Span) {
        if span.units.get() > LARGEST {
            self.alone.set(if self.is_free.replace(false) { (self.alone.get() + 1).min(ALONE) } else { 0 });
            self.newest.set(span.start.get());
        }
    }

    /// A block was freed that is not kept.
    pub(crate) fn note_freed(&self, span: &Span) {
        if span.start.get() == self.newest.get() {
            self.is_free.set(true);
        }
    }

    /// Bytes of the blocks in it.
    pub(crate) fn bytes(&self) -> usize {
        self.units.get() * UNIT
    }

    /// Takes out the block of `units` units that `link` leads to, which is there.
    #[inline(always)]
    fn unlink(&self, link: &Cell<u8>, units: usize) -> *mut u8 {
        let place = usize::from(link.get()) % PLACES;
        link.set(self.below[place].get());
        self.empty.set(self.empty.get() | 1 << place);
        self.units.set(self.units.get() - units);
        self.blocks[place].get()
    }

    /// Takes out the newest block of `units` units, or else of no more than an eighth more; and its units.
    #[inline(always)]
    pub(crate) fn take(&self, units: usize) -> Option<(*mut u8, usize)> {
        if units > LARGEST {
            return None;
        }
        let (mut size, largest) = (units, units + units / 8);
        while self.tops[size].get() == NONE {
            if size == largest {
                return None;
            }
            size += 1;
        }
        self.used.set(true);
        Some((self.unlink(&self.tops[size], size), size))
    }

    /// Puts a freed block of `units` units in beside all others, if there are no more than `bound` then, and there is a place for it; else `false`.
    #[inline(always)]
    pub(crate) fn put_beside(&self, block: *mut u8, units: usize, bound: usize) -> bool {
        let (all, empty) = (self.units.get() + units, self.empty.get());
        if all > bound || empty == 0 {
            return false;
        }
        let place = empty.trailing_zeros() as usize % PLACES;
        self.empty.set(empty & (empty - 1));
        self.below[place].set(self.tops[units].replace(place as u8));
        self.sizes[place].set(units as u8);
        self.blocks[place].set(block);
        self.used.set(true);
        self.units.set(all);
        true
    }

    /// Puts a freed block of `units` units in, at most `bound`, which is [`LARGEST`] at most. What is more than so many units, or than there is room for,
    /// goes to `shed`. The cache is open.
    pub(crate) fn put(&self, block: *mut u8, units: usize, bound: usize, mut shed: impl FnMut(*mut u8)) {
        while !self.put_beside(block, units, bound)
            && let Some(other) = self.take_next()
        {
            shed(other);
        }
    }

    /// Takes out the block at the next place where one is.
    fn take_next(&self) -> Option<*mut u8> {
        let (full, next) = (!self.empty.get() & ((1 << PLACES) - 1), u32::from(self.hand.get()) + 1);
        // Twice in a row: from the next place on, there is one before the end.
        let ahead = (full << PLACES | full) >> next;
        if self.units.get() == 0 {
            return None;
        }
        let place = (next + ahead.trailing_zeros()) as usize % PLACES;
        self.hand.set(place as u8);
        let units = usize::from(self.sizes[place].get());
        let mut link = &self.tops[units];
        while usize::from(link.get()) != place {
            link = &self.below[usize::from(link.get()) % PLACES];
        }
        Some(self.unlink(link, units))
    }

    /// Takes everything out if nothing was put in or taken since the last call.
    pub(crate) fn trim(&self, shed: impl FnMut(*mut u8)) {
        if !self.used.replace(false) {
            self.empty(shed);
        }
    }

    /// Takes everything out.
    pub(crate) fn empty(&self, shed: impl FnMut(*mut u8)) {
        core::iter::from_fn(|| self.take_next()).for_each(shed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Use;

    fn open() -> LargeCache {
        let cache = LargeCache::new();
        cache.open();
        cache
    }

    /// A block by its number.
    fn block(number: usize) -> *mut u8 {
        ptr::without_provenance_mut(number * UNIT)
    }

    fn numbers(blocks: &[*mut u8]) -> Vec<usize> {
        blocks.iter().map(|block| block.addr() / UNIT).collect()
    }

    #[test]
    fn the_newest_block_of_its_size_comes_back_or_one_an_eighth_larger() {
        let cache = open();
        for (number, units) in [(1, 8), (2, 9), (3, 8)] {
            assert!(cache.put_beside(block(number), units, LARGEST));
        }
        assert!(cache.take(10).is_none() && cache.take(7).is_none());
        for (number, units) in [(3, 8), (1, 8), (2, 9)] {
            assert_eq!(cache.take(8), Some((block(number), units)));
        }
        assert!(cache.take(8).is_none() && cache.take(LARGEST).is_none());
        assert_eq!(cache.units.get(), 0);
    }

    #[test]
    fn no_more_go_in_than_there_are_places_or_units() {
        let cache = open();
        assert!(cache.put_beside(block(1), 8, 24) && cache.put_beside(block(2), 16, 24));
        assert!(!cache.put_beside(block(3), 1, 24), "more than the bound");
        assert!((3..PLACES + 1).all(|number| cache.put_beside(block(number), 1, LARGEST)));
        assert!(!cache.put_beside(block(PLACES + 1), 1, LARGEST), "no place");
        assert!(cache.take(16).is_some() && cache.put_beside(block(PLACES + 1), 1, LARGEST));
        assert!(!LargeCache::new().put_beside(block(1), 1, LARGEST), "it is not open");
    }

    #[test]
    fn others_make_room_in_turn() {
        let (cache, mut shed) = (open(), Vec::new());
        for number in 1..=PLACES + 2 {
            cache.put(block(number), number % 3 + 1, LARGEST, |other| shed.push(other));
        }
        assert_eq!(numbers(&shed), [2, 3]);
        shed.clear();
        cache.put(block(100), LARGEST, LARGEST, |other| shed.push(other));
        shed.sort();
        assert!(numbers(&shed).into_iter().eq((1..=PLACES + 2).filter(|number| ![2, 3].contains(number))));
        assert_eq!((cache.units.get(), cache.take(LARGEST)), (LARGEST, Some((block(100), LARGEST))));
    }

    #[test]
    fn a_block_below_others_of_its_size_is_taken_out_alone() {
        let (cache, mut shed) = (open(), Vec::new());
        (1..=3).for_each(|number| assert!(cache.put_beside(block(number), 5, LARGEST)));
        cache.put(block(4), LARGEST - 10, LARGEST, |other| shed.push(other));
        assert_eq!(numbers(&shed), [2]);
        assert_eq!(
            [cache.take(5), cache.take(5), cache.take(5)],
            [Some((block(3), 5)), Some((block(1), 5)), None]
        );
    }

    #[test]
    fn a_thread_has_one_block_at_a_time_until_two_overlap() {
        let span =
            || -> &'static Span { Box::leak(Box::new(Span::new(UNIT, LARGEST + 1, Use::Large, true, 0))) };
        let (cache, blocks) = (LargeCache::new(), [span(), span()]);
        blocks[1].start.set(1 << 30);
        assert!(!cache.has_one_at_a_time(LARGEST + 1), "nothing is known");
        cache.note_allocated(blocks[0]);
        assert!(!cache.has_one_at_a_time(LARGEST + 1), "it is not free");
        cache.note_freed(blocks[0]);
        assert!(cache.has_one_at_a_time(LARGEST + 1));
        assert!(!cache.has_one_at_a_time(LARGEST), "such are kept");
        cache.note_allocated(blocks[0]);
        cache.note_allocated(blocks[1]);
        cache.note_freed(blocks[0]);
        assert!(!cache.has_one_at_a_time(LARGEST + 1), "the newest lives");
        for _ in 0..ALONE {
            cache.note_freed(blocks[1]);
            assert!(!cache.has_one_at_a_time(LARGEST + 1), "there were two");
            cache.note_allocated(blocks[1]);
        }
        cache.note_freed(blocks[1]);
        assert!(cache.has_one_at_a_time(LARGEST + 1));
    }

    #[test]
    fn what_was_not_used_for_a_while_is_shed() {
        let (cache, mut shed) = (open(), Vec::new());
        cache.put(block(1), 5, LARGEST, |_| unreachable!("there is room"));
        cache.trim(|other| shed.push(other));
        assert!(shed.is_empty(), "it was used");
        cache.trim(|other| shed.push(other));
        assert_eq!((numbers(&shed), cache.bytes()), (vec![1], 0));
    }
}
