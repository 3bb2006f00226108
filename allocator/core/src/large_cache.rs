//! A heap's most recently freed large blocks: a thread that allocates, uses and frees blocks of some size again and again gets
//! the same ones, whose pages are there and whose lines may still be in its caches, without a lock. (The idea is that of
//! oneTBB's large object cache, R. Dementiev's answer to the question that gave this project its second motto.)

pub(crate) mod sparse;

use core::cell::Cell;
use core::ptr;

use crate::span::Span;
use crate::units::UNIT;

/// Units of the largest block that is kept, and of all blocks that a cache holds as a rule: 1 MiB, about what the caches of a core hold.
pub(crate) const LARGEST: usize = (1 << 20) / UNIT;
/// Places for blocks in a cache, of which the first stands for none.
const PLACES: usize = 128;
/// No place.
const NONE: u8 = 0;
/// How often malloc finds nothing at all, with no free in between, before a thread may keep more.
const DRY: u8 = 4;

/// How many blocks in a row, each freed before the next is allocated, tell that a thread has one at a time.
const ALONE: u8 = 4;

/// Where the blocks of a cache are: for each number of units a stack, linked by places. All zeros are closed: nothing is put in.
pub(crate) struct Places {
    spans: [Cell<*const Span>; PLACES],
    /// Their units; 0: nothing is there.
    sizes: [Cell<u8>; PLACES],
    /// The place below in the same stack.
    below: [Cell<u8>; PLACES],
    /// For each number of units the place of the newest block. (Of more than the largest there is none.)
    tops: [Cell<u8>; LARGEST + LARGEST / 8 + 1],
    /// For each number of units how many blocks were shed for which there was not allowed to be room since.
    missed: [Cell<u8>; LARGEST + 1],
    /// The newest of the places where something was.
    left: Cell<u8>,
    /// The first place where nothing was yet; [`NONE`] while closed.
    fresh: Cell<u8>,
    /// Beside them, blocks of which little is touched.
    stacks: sparse::Stacks,
}

// Both are counted in bytes.
const _: () = assert!(LARGEST <= u8::MAX as usize);
const _: () = assert!(PLACES <= u8::MAX as usize && PLACES.is_power_of_two());

impl Places {
    const fn closed() -> Self {
        Self {
            spans: [const { Cell::new(ptr::null()) }; PLACES],
            sizes: [const { Cell::new(0) }; PLACES],
            below: [const { Cell::new(NONE) }; PLACES],
            tops: [const { Cell::new(NONE) }; LARGEST + LARGEST / 8 + 1],
            missed: [const { Cell::new(0) }; LARGEST + 1],
            left: Cell::new(NONE),
            fresh: Cell::new(NONE),
            stacks: sparse::Stacks::new(),
        }
    }

    /// A place where nothing is.
    #[inline(always)]
    fn take(&self) -> Option<u8> {
        let left = self.left.get();
        if left != NONE {
            self.left.set(self.below[usize::from(left) % PLACES].get());
            return Some(left);
        }
        let fresh = self.fresh.get();
        if fresh == NONE || usize::from(fresh) == PLACES {
            return None;
        }
        self.fresh.set(fresh + 1);
        Some(fresh)
    }
}

/// Places that nothing is put into.
struct Closed(Places);
// SAFETY: nobody writes to them: there is nothing to take, and no place.
unsafe impl Sync for Closed {}
static CLOSED: Closed = Closed(Places::closed());

/// Freed large blocks.
pub(crate) struct LargeCache {
    places: Cell<&'static Places>,
    /// Units of all.
    units: Cell<usize>,
    /// How many there may be beyond those that any cache may have.
    more: Cell<usize>,
    /// How often malloc found nothing at all in a row, and when it was last, in events of the heap.
    dry: Cell<u8>,
    dry_at: Cell<u32>,
    /// The place that was emptied last to make room.
    hand: Cell<u8>,
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
            units: Cell::new(0),
            more: Cell::new(0),
            dry: Cell::new(0),
            dry_at: Cell::new(0),
            hand: Cell::new(NONE),
            used: Cell::new(false),
            newest: Cell::new(0),
            is_free: Cell::new(true),
            alone: Cell::new(ALONE - 1),
            page_heap: Cell::new(0),
        }
    }

    /// Whether it has places.
    pub(crate) fn is_open(&self) -> bool {
        self.places.get().fresh.get() != NONE
    }

    /// From now on it takes blocks, into `places`, which are all zeros and nobody else's.
    pub(crate) fn open(&self, places: &'static Places) {
        places.fresh.set(NONE + 1);
        self.places.set(places);
    }

    /// Gives the places of an empty cache up.
    pub(crate) fn close(&self) -> Option<&'static Places> {
        debug_assert_eq!(self.units.get() * UNIT + self.sparse_bytes(), 0);
        self.is_open().then(|| self.places.replace(&CLOSED.0))
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
    fn unlink(&self, link: &Cell<u8>, units: usize) -> &'static Span {
        let (places, number) = (self.places.get(), link.get());
        let place = usize::from(number) % PLACES;
        link.set(places.below[place].get());
        places.below[place].set(places.left.replace(number));
        places.sizes[place].set(0);
        self.units.set(self.units.get() - units);
        // SAFETY: where a block is, its span was put in, whose descriptor is never unmapped.
        let span = unsafe { &*places.spans[place].get() };
        span.cached.set(false);
        span
    }

    /// Takes out the newest block of `units` units, or else of no more than an eighth more.
    #[inline(always)]
    pub(crate) fn take(&self, units: usize) -> Option<&'static Span> {
        if units > LARGEST {
            return None;
        }
        let tops = &self.places.get().tops;
        let (mut size, largest) = (units, units + units / 8);
        let top = loop {
            let top = tops.get(size)?;
            if top.get() != NONE {
                break top;
            }
            if size == largest {
                return None;
            }
            size += 1;
        };
        self.used.set(true);
        Some(self.unlink(top, size))
    }

    /// Takes out one of the longest blocks, if it has at least `units` units.
    pub(crate) fn take_longest(&self, units: usize) -> Option<&'static Span> {
        let tops = self.places.get().tops.get(units..)?;
        let above = tops.iter().rposition(|top| top.get() != NONE)?;
        Some(self.unlink(&tops[above], units + above))
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
            && let Some(missed) = self.places.get().missed.get(units)
            && let Some(left) = missed.get().checked_sub(1)
        {
            missed.set(left);
            // With those that it was not believed for.
            let blocks = if dry == DRY { usize::from(DRY) + 1 } else { 1 };
            self.more.set((self.more.get() + blocks * units).min(most));
        }
    }

    /// Puts a freed block of `units` units in beside all others, if there are no more than `bound` then, and there is a place for it; else `false`.
    #[inline(always)]
    pub(crate) fn put_beside(&self, span: &'static Span, units: usize, bound: usize) -> bool {
        let (all, places) = (self.units.get() + units, self.places.get());
        if all > bound {
            return false;
        }
        let Some(number) = places.take() else { return false };
        let place = usize::from(number) % PLACES;
        places.below[place].set(places.tops[units].replace(number));
        places.sizes[place].set(units as u8);
        places.spans[place].set(span);
        span.cached.set(true);
        self.used.set(true);
        self.units.set(all);
        true
    }

    /// Puts a freed block of `units` units, at most [`LARGEST`] and `bound`, into an open cache. What is more than `bound`, or than there are places for,
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
            let missed = &self.places.get().missed[units];
            missed.set(missed.get().saturating_add(1));
            shed(other);
        }
    }

    /// Takes out the block at the next place where one is, and its units.
    fn take_next(&self) -> Option<(&'static Span, usize)> {
        if self.units.get() == 0 {
            return None;
        }
        let places = self.places.get();
        let mut place = usize::from(self.hand.get());
        let units = loop {
            place = if place + 1 < usize::from(places.fresh.get()) { place + 1 } else { 1 };
            match places.sizes[place % PLACES].get() {
                0 => {}
                units => break usize::from(units),
            }
        };
        self.hand.set(place as u8);
        let mut link = &places.tops[units];
        while usize::from(link.get()) != place {
            link = &places.below[usize::from(link.get()) % PLACES];
        }
        Some((self.unlink(link, units), units))
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

    /// Blocks for which there are places.
    const MOST: usize = PLACES - 1;

    fn open() -> LargeCache {
        let cache = LargeCache::new();
        cache.open(Box::leak(Box::new(Places::closed())));
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
    fn no_more_go_in_than_there_are_places_or_units() {
        let cache = open();
        assert!(cache.put_beside(block(1), 8, 24) && cache.put_beside(block(2), 16, 24));
        assert!(!cache.put_beside(block(3), 1, 24), "more than the bound");
        assert!((3..=MOST).all(|number| cache.put_beside(block(number), 1, usize::MAX)));
        assert!(!cache.put_beside(block(MOST + 1), 1, usize::MAX), "no place");
        assert!(cache.take(16).is_some() && cache.put_beside(block(MOST + 1), 1, usize::MAX));
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
    fn others_make_room_in_turn() {
        let (cache, mut shed) = (open(), Vec::new());
        for number in 1..=MOST + 2 {
            cache.put(block(number), number % 3 + 1, 3 * PLACES, |other| shed.push(other));
        }
        assert_eq!(numbers(&shed), [1, 2]);
        shed.clear();
        cache.put(block(1000), LARGEST, LARGEST, |other| shed.push(other));
        let mut shed = numbers(&shed);
        shed.sort_unstable();
        assert!(shed.into_iter().eq(3..=MOST + 2));
        assert_eq!((cache.units.get(), cache.take(LARGEST).map(number)), (LARGEST, Some(1000)));
    }

    #[test]
    fn a_block_below_others_of_its_size_is_taken_out_alone() {
        let (cache, mut shed) = (open(), Vec::new());
        (1..=3).for_each(|number| assert!(cache.put_beside(block(number), 5, LARGEST)));
        cache.put(block(4), LARGEST - 10, LARGEST, |other| shed.push(other));
        assert_eq!(numbers(&shed), [1]);
        assert_eq!([(); 3].map(|()| cache.take(5).map(number)), [Some(3), Some(2), None]);
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
