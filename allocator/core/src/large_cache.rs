//! A heap's most recently freed large blocks. A thread that allocates, uses and frees blocks of some size again and again gets
//! the same ones, whose pages are there and whose lines may still be in its caches, without taking a lock. (The idea is that of
//! oneTBB's large object cache, by R. Dementiev.)

pub(crate) mod sparse;

use core::cell::Cell;
use core::ptr;

use crate::span::Span;
use crate::units::UNIT;

/// Units of the largest block that is kept, and of all blocks that a cache holds as a rule: 1 MiB, about what the caches of a core hold.
pub(crate) const LARGEST: usize = (1 << 20) / UNIT;
/// How often malloc finds nothing at all, with no free in between, before a thread may keep more.
const DRY: u8 = 4;

/// How many blocks in a row, each freed before the next is allocated, tell that a thread has one at a time.
const ALONE: u8 = 4;

/// Places for the blocks of a cache. All zeros are empty.
pub(crate) struct Places {
    /// For each number of units, from one on, the newest block; the others are below it.
    tops: [Cell<*mut Span>; LARGEST],
    /// For each number of units how many blocks were shed for which there was not allowed to be room since.
    missed: [Cell<u8>; LARGEST],
    /// Beside them, blocks of which little is touched.
    stacks: sparse::Stacks,
}

// A bit for each number of units.
const _: () = assert!(LARGEST == u64::BITS as usize);

impl Places {
    const fn empty() -> Self {
        Self {
            tops: [const { Cell::new(ptr::null_mut()) }; LARGEST],
            missed: [const { Cell::new(0) }; LARGEST],
            stacks: sparse::Stacks::new(),
        }
    }
}

/// Places that nothing is put into.
struct Closed(Places);
// SAFETY: nobody writes to them: no block is there, and none is put in.
unsafe impl Sync for Closed {}
static CLOSED: Closed = Closed(Places::empty());

/// Freed large blocks.
pub(crate) struct LargeCache {
    places: Cell<&'static Places>,
    /// A bit for each number of units, from one on, of which there are blocks, or were when it was last looked for one.
    occupied: Cell<u64>,
    /// Units of all.
    units: Cell<usize>,
    /// How many there may be beyond those that any cache may have.
    more: Cell<usize>,
    /// How often malloc found nothing at all in a row, and when it was last, in events of the heap.
    dry: Cell<u8>,
    dry_at: Cell<u32>,
    /// Units of the last block that left to make room.
    hand: Cell<u8>,
    is_open: Cell<bool>,
    /// Whether a block was put in or taken since the last trim.
    used: Cell<bool>,
    /// Where the newest block is, or was, of those that are too large to be kept.
    newest: Cell<usize>,
    /// Whether it has been freed, and how many in a row were before the next was allocated; a new thread needs one more.
    is_free: Cell<bool>,
    alone: Cell<u8>,
    /// One more than the page heap of such a thread; 0: it has none yet.
    pub(crate) page_heap: Cell<u8>,
}

impl LargeCache {
    /// A cache that takes nothing until it is [opened](LargeCache::open).
    pub(crate) const fn new() -> Self {
        Self {
            places: Cell::new(&CLOSED.0),
            occupied: Cell::new(0),
            units: Cell::new(0),
            more: Cell::new(0),
            dry: Cell::new(0),
            dry_at: Cell::new(0),
            hand: Cell::new(0),
            is_open: Cell::new(false),
            used: Cell::new(false),
            newest: Cell::new(0),
            is_free: Cell::new(true),
            alone: Cell::new(ALONE - 1),
            page_heap: Cell::new(0),
        }
    }

    /// Whether it has places.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// From now on it takes blocks, into `places`, which are all zeros and nobody else's.
    pub(crate) fn open(&self, places: &'static Places) {
        self.places.set(places);
        self.is_open.set(true);
    }

    /// Gives the places of an empty cache up.
    pub(crate) fn close(&self) -> Option<&'static Places> {
        debug_assert_eq!(self.units.get() * UNIT + self.sparse_bytes(), 0);
        self.is_open.replace(false).then(|| self.places.replace(&CLOSED.0))
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

    /// Takes out the newest block of `units` units, if there is one.
    #[inline(always)]
    fn pop(&self, units: usize) -> Option<&'static Span> {
        let top = &self.places.get().tops[(units - 1) % LARGEST];
        // SAFETY: what is there was put in as a span, whose descriptor is never unmapped.
        let span = unsafe { top.get().as_ref() }?;
        self.unlink(top, span, units);
        Some(span)
    }

    /// The same for the oldest.
    fn take_oldest(&self, units: usize) -> Option<&'static Span> {
        let mut link = &self.places.get().tops[units - 1];
        // SAFETY: as in `pop`.
        let mut span = unsafe { link.get().as_ref() }?;
        // SAFETY: as in `pop`.
        while let Some(older) = unsafe { span.newer.get().as_ref() } {
            (link, span) = (&span.newer, older);
        }
        self.unlink(link, span, units);
        Some(span)
    }

    /// Takes out the block of `units` units that `link` leads to.
    #[inline(always)]
    fn unlink(&self, link: &Cell<*mut Span>, span: &Span, units: usize) {
        link.set(span.newer.get());
        self.units.set(self.units.get() - units);
        span.cached.set(false);
    }

    /// Takes out the newest block of `units` units, or else of no more than an eighth more.
    #[inline(always)]
    pub(crate) fn take(&self, units: usize) -> Option<&'static Span> {
        if units > LARGEST {
            return None;
        }
        let mut found = self.pop(units);
        while found.is_none() {
            let above = (self.occupied.get() >> (units - 1)).trailing_zeros() as usize;
            if above > units / 8 {
                // Who never had any wrote nothing: those of threads that have no heap are one for all.
                return None;
            }
            found = self.pop(units + above);
            if found.is_none() {
                self.is_empty_of(units + above);
            }
        }
        self.used.set(true);
        found
    }

    /// Learns that there is no block of `units` units any more.
    #[inline(always)]
    fn is_empty_of(&self, units: usize) {
        self.occupied.set(self.occupied.get() & !(1 << (units - 1)));
    }

    /// Takes out one of the longest blocks, if it has at least `units` units.
    pub(crate) fn take_longest(&self, units: usize) -> Option<&'static Span> {
        loop {
            let longest = self.occupied.get().checked_ilog2()? as usize + 1;
            if longest < units {
                return None;
            }
            match self.pop(longest) {
                None => self.is_empty_of(longest),
                some => return some,
            }
        }
    }

    /// Units that there may be beyond those that any cache may have.
    #[inline(always)]
    pub(crate) fn more(&self) -> usize {
        self.more.get()
    }

    /// Malloc has asked for `units` units, and there were none, when `events` had happened; each free is one. Where the cache is empty again and again and no block
    /// is freed in between, and one of that size had been shed, there may be more from now on, up to `most`: the thread frees more at a time than there
    /// was room for. (Else sizes come and go at random, and more of them would only be memory.)
    pub(crate) fn note_missed(&self, units: usize, most: usize, events: u32) {
        let in_a_row = self.dry_at.replace(events) == events;
        let dry = if in_a_row && self.units.get() == 0 { self.dry.get().saturating_add(1) } else { 0 };
        self.dry.set(dry);
        if dry >= DRY
            && let Some(missed) = self.places.get().missed.get(units - 1)
            && let Some(left) = missed.get().checked_sub(1)
        {
            missed.set(left);
            // With those that it was not believed for.
            let blocks = if dry == DRY { usize::from(DRY) + 1 } else { 1 };
            self.more.set((self.more.get() + blocks * units).min(most));
        }
    }

    /// Whether there are no more than `bound` units with a block of `units` more, and it takes blocks at all.
    #[inline(always)]
    pub(crate) fn has_room(&self, units: usize, bound: usize) -> bool {
        self.units.get() + units <= bound && self.is_open()
    }

    /// Puts a freed block of `units` units in beside all others, for which there is room.
    #[inline(always)]
    pub(crate) fn push(&self, span: &'static Span, units: usize) {
        span.newer.set(self.places.get().tops[(units - 1) % LARGEST].replace(ptr::from_ref(span).cast_mut()));
        span.cached.set(true);
        self.occupied.set(self.occupied.get() | 1 << (units - 1));
        self.used.set(true);
        self.units.set(self.units.get() + units);
    }

    /// The same if there is room; else `false`.
    pub(crate) fn put_beside(&self, span: &'static Span, units: usize, bound: usize) -> bool {
        let has_room = self.has_room(units, bound);
        if has_room {
            self.push(span, units);
        }
        has_room
    }

    /// Puts a freed block of `units` units, at most [`LARGEST`] and `bound`, into an open cache. What is more than `bound`
    /// goes to `shed`.
    pub(crate) fn put(
        &self,
        span: &'static Span,
        units: usize,
        bound: usize,
        mut shed: impl FnMut(&'static Span),
    ) {
        while !self.put_beside(span, units, bound)
            && let Some((other, units)) = self.take_next()
        {
            let missed = &self.places.get().missed[units - 1];
            missed.set(missed.get().saturating_add(1));
            shed(other);
        }
    }

    /// Takes out the oldest block of the next number of units of which there are blocks, which is returned.
    fn take_next(&self) -> Option<(&'static Span, usize)> {
        while self.occupied.get() != 0 {
            let hand = u32::from(self.hand.get());
            let next = (hand + self.occupied.get().rotate_right(hand).trailing_zeros()) % u64::BITS;
            let units = next as usize + 1;
            match self.take_oldest(units) {
                None => self.is_empty_of(units),
                Some(span) => {
                    self.hand.set(units as u8);
                    return Some((span, units));
                }
            }
        }
        None
    }

    /// Takes everything out if nothing was put in or taken since the last call; of what lies in stacks, what was not needed, and all beyond `sparse` units. `most`
    /// is as for [`LargeCache::note_missed`], which may have become less.
    pub(crate) fn trim(&self, most: usize, sparse: usize, mut shed: impl FnMut(&'static Span)) {
        self.more.set(self.more.get().min(most));
        self.trim_sparse(sparse, &mut shed);
        if !self.used.replace(false) {
            self.empty_places(&mut shed);
        }
    }

    /// Takes everything out, and forgets that there might be more than usual.
    pub(crate) fn empty(&self, mut shed: impl FnMut(&'static Span)) {
        self.trim_sparse(0, &mut shed);
        self.empty_places(&mut shed);
    }

    /// The same, but for what lies in stacks.
    #[inline(never)]
    fn empty_places(&self, shed: &mut impl FnMut(&'static Span)) {
        while let Some((span, _)) = self.take_next() {
            shed(span);
        }
        self.more.set(0);
        // Nobody writes to places that are closed.
        if self.is_open() {
            self.places.get().missed.iter().for_each(|missed| missed.set(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Use;

    fn open() -> LargeCache {
        let cache = LargeCache::new();
        cache.open(Box::leak(Box::new(Places::empty())));
        cache
    }

    /// A block by its number.
    fn block(number: usize) -> &'static Span {
        Box::leak(Box::new(Span::new(number * UNIT, 1, Use::Large, true, 0)))
    }

    fn number(span: &Span) -> usize {
        span.start.get() / UNIT
    }

    fn numbers(blocks: &[&Span]) -> Vec<usize> {
        assert!(blocks.iter().all(|span| !span.cached.get()));
        blocks.iter().map(|span| number(span)).collect()
    }

    #[test]
    fn the_newest_block_of_its_size_comes_back_or_one_an_eighth_larger() {
        let cache = open();
        for (name, units) in [(1, 8), (2, 9), (3, 8)] {
            assert!(cache.put_beside(block(name), units, LARGEST));
        }
        assert!(cache.take(10).is_none() && cache.take(7).is_none());
        assert_eq!([3, 1, 2].map(|_| cache.take(8).map(number)), [Some(3), Some(1), Some(2)]);
        assert!(cache.take(8).is_none() && cache.take(LARGEST).is_none());
        assert_eq!(cache.units.get(), 0);
    }

    #[test]
    fn the_longest_is_taken_out_if_it_is_long_enough() {
        let cache = open();
        for (name, units) in [(1, 8), (2, LARGEST), (3, 20)] {
            assert!(cache.put_beside(block(name), units, usize::MAX));
        }
        assert!(cache.take_longest(LARGEST + 1).is_none() && cache.take_longest(usize::MAX).is_none());
        let taken = [(); 3].map(|()| cache.take_longest(9).map(number));
        assert_eq!((taken, cache.take_longest(8).map(number)), ([Some(2), Some(3), None], Some(1)));
        assert_eq!(cache.units.get(), 0);
    }

    #[test]
    fn no_more_go_in_than_there_may_be_units() {
        let cache = open();
        assert!(cache.put_beside(block(1), 8, 24) && cache.put_beside(block(2), 16, 24));
        assert!(!cache.put_beside(block(3), 1, 24) && cache.put_beside(block(3), 1, 25));
        assert!(cache.take(16).is_some() && cache.put_beside(block(4), 16, 25));
    }

    #[test]
    fn a_closed_cache_takes_nothing_and_gives_nothing() {
        let cache = LargeCache::new();
        assert!(!cache.is_open() && !cache.put_beside(block(1), 1, LARGEST) && cache.take(1).is_none());
        cache.put(block(1), 1, LARGEST, |_| unreachable!("nothing is there"));
        cache.empty(|_| unreachable!("nothing is there"));
        assert!(cache.close().is_none());
        let cache = open();
        assert!(cache.is_open() && cache.close().is_some() && !cache.is_open());
    }

    #[test]
    fn the_oldest_make_room_of_each_size_in_turn() {
        let (cache, mut shed) = (open(), Vec::new());
        for (name, units) in [(1, 20), (2, 10), (3, 20), (4, 10)] {
            assert!(cache.put_beside(block(name), units, LARGEST));
        }
        for name in 5..=8 {
            cache.put(block(name), 12, LARGEST, |other| shed.push(other));
        }
        assert_eq!(numbers(&shed), [2, 5, 1, 4], "of 10, 12, 20 units, and of 10 again");
        assert_eq!([(); 4].map(|()| cache.take(12).map(number)), [Some(8), Some(7), Some(6), None]);
        cache.put(block(1000), LARGEST, LARGEST, |other| shed.push(other));
        assert_eq!(numbers(&shed), [2, 5, 1, 4, 3]);
        assert_eq!((cache.units.get(), cache.take(LARGEST).map(number)), (LARGEST, Some(1000)));
    }

    /// Puts blocks of eight units in; how many were shed.
    fn free(cache: &LargeCache, blocks: usize) -> usize {
        let mut shed = 0;
        (1..=blocks).for_each(|number| cache.put(block(number), 8, LARGEST + cache.more(), |_| shed += 1));
        shed
    }

    /// Asks for blocks of eight units, with or without an event in between; how many there were.
    fn ask(cache: &LargeCache, blocks: u32, most: usize, with_events: bool) -> usize {
        let found = |number: &u32| {
            let found = cache.take(8).is_some();
            if !found {
                cache.note_missed(8, most, if with_events { *number } else { 0 });
            }
            found
        };
        (1..=blocks).filter(found).count()
    }

    #[test]
    fn who_asks_for_as_many_as_were_freed_may_keep_more_until_all_is_taken_out() {
        let cache = open();
        assert_eq!((free(&cache, 20), ask(&cache, 20, 8, false)), (12, 8));
        assert_eq!(cache.more(), 8, "no more than may be");
        assert_eq!((free(&cache, 20), ask(&cache, 20, 1000, false)), (11, 9));
        cache.trim(1000, 0, |_| unreachable!("it was used"));
        let more = cache.more();
        assert!(more > 3 * 8, "{more}");
        free(&cache, 20);
        assert_eq!(ask(&cache, 20, 1000, false), LARGEST / 8 + more / 8);
        free(&cache, 20);
        cache.empty(|_| ());
        assert_eq!((cache.more(), cache.bytes()), (0, 0));
        ask(&cache, 20, 1000, false);
        assert_eq!(cache.more(), 0, "what was shed before is forgotten");
    }

    #[test]
    fn sizes_that_come_and_go_earn_no_more() {
        let cache = open();
        free(&cache, 20);
        ask(&cache, 20, 1000, true);
        assert_eq!(cache.more(), 0, "blocks were freed in between");
        free(&cache, 20);
        cache.put(block(1), 5, usize::MAX, |_| unreachable!("there is room"));
        ask(&cache, 20, 1000, false);
        assert_eq!(cache.more(), 0, "one of another size is there");
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
        cache.trim(0, 0, |other| shed.push(other));
        assert!(shed.is_empty(), "it was used");
        cache.trim(0, 0, |other| shed.push(other));
        assert_eq!((numbers(&shed), cache.bytes()), (vec![1], 0));
    }
}
