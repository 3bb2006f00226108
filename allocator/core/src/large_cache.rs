//! A heap's most recently freed large blocks: a thread that allocates, uses and frees a block of some size again and again gets
//! the same one, whose pages are there and whose lines may still be in its caches, without a lock. (The idea is that of
//! oneTBB's large object cache, R. Dementiev's answer to the question that gave this project its second motto.)

use core::cell::Cell;
use core::ptr;

use crate::span::Span;
use crate::units::UNIT;

/// Blocks in a cache.
const SLOTS: usize = 8;
/// Units of the largest block that is kept, and of all blocks in a cache: 1 MiB, about what the caches of a core hold.
pub(crate) const LARGEST: usize = (1 << 20) / UNIT;

/// How many blocks in a row, each freed before the next is allocated, tell that a thread has one at a time.
const ALONE: u8 = 4;

/// Whether a block of `size` units will do for one of `wanted`.
#[inline(always)]
fn fits(size: usize, wanted: usize) -> bool {
    size.wrapping_sub(wanted) <= wanted / 8
}

/// Freed large blocks, in a ring.
pub(crate) struct LargeCache {
    spans: [Cell<*const Span>; SLOTS],
    /// Their units: a look at each span would be a cache miss.
    sizes: [Cell<u8>; SLOTS],
    /// Where the oldest is, and how many there are. (No bytes: the compiler reads more than a byte of which it needs few bits, and what follows a store
    /// of less waits for it.)
    oldest: Cell<u32>,
    count: Cell<u32>,
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

const _: () = assert!(LARGEST <= u8::MAX as usize);

impl LargeCache {
    pub(crate) const fn new() -> Self {
        Self {
            spans: [const { Cell::new(ptr::null()) }; SLOTS],
            sizes: [const { Cell::new(0) }; SLOTS],
            oldest: Cell::new(0),
            count: Cell::new(0),
            used: Cell::new(false),
            units: Cell::new(0),
            newest: Cell::new(0),
            is_free: Cell::new(true),
            alone: Cell::new(ALONE - 1),
            page_heap: Cell::new(0),
        }
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

    fn count(&self) -> usize {
        self.count.get() as usize
    }

    /// Where in the ring the block is that came as `age`th of those that are there.
    fn place(&self, age: usize) -> usize {
        (self.oldest.get() as usize + age) % SLOTS
    }

    /// Takes out the span that came as `age`th of those that are there.
    fn remove(&self, age: usize) -> Option<&'static Span> {
        if age >= self.count() {
            return None;
        }
        let place = self.place(age);
        let (removed, units) = (self.spans[place].get(), self.sizes[place].get());
        if age == 0 {
            self.oldest.set(self.place(1) as u32);
        } else {
            for newer in age + 1..self.count() {
                let (to, from) = (self.place(newer - 1), self.place(newer));
                self.spans[to].set(self.spans[from].get());
                self.sizes[to].set(self.sizes[from].get());
            }
        }
        self.count.set(self.count.get() - 1);
        self.units.set(self.units.get() - usize::from(units));
        // SAFETY: cached spans are large ones, whose descriptors are live.
        let span = unsafe { removed.as_ref() }?;
        span.cached.set(false);
        Some(span)
    }

    /// The newest span, if it has at least `units` units, and no more than an eighth more.
    #[inline(always)]
    pub(crate) fn take_newest(&self, units: usize) -> Option<&'static Span> {
        let newest = self.count().checked_sub(1)?;
        let place = self.place(newest);
        let size = usize::from(self.sizes[place].get());
        if !fits(size, units) {
            return None;
        }
        self.used.set(true);
        self.count.set(newest as u32);
        self.units.set(self.units.get() - size);
        // SAFETY: cached spans are large ones, whose descriptors are live.
        let span = unsafe { self.spans[place].get().as_ref() }?;
        span.cached.set(false);
        Some(span)
    }

    /// The newest span of at least `units` units, and of no more than an eighth more.
    pub(crate) fn take(&self, units: usize) -> Option<&'static Span> {
        if units > LARGEST {
            return None;
        }
        let fits = |age: &usize| fits(self.sizes[self.place(*age)].get().into(), units);
        let found = (0..self.count()).rev().find(fits)?;
        self.used.set(true);
        self.remove(found)
    }

    /// Puts a freed span in beside all others; `false` where there is no room.
    #[inline(always)]
    pub(crate) fn put_beside(&self, span: &'static Span, bound: usize) -> bool {
        let room = self.count() < SLOTS && self.units.get() + span.units.get() <= bound;
        if room {
            self.push(span);
        }
        room
    }

    /// Puts a freed span of at most `bound` units in, which is [`LARGEST`] at most. What is more than so many units, or than there is room for, goes to
    /// `shed`, the oldest first.
    pub(crate) fn put(&self, span: &'static Span, bound: usize, mut shed: impl FnMut(&'static Span)) {
        while !self.put_beside(span, bound) {
            match self.remove(0) {
                Some(oldest) => shed(oldest),
                None => return self.push(span),
            }
        }
    }

    #[inline(always)]
    fn push(&self, span: &'static Span) {
        self.used.set(true);
        let units = span.units.get();
        let place = self.place(self.count());
        self.spans[place].set(span);
        self.sizes[place].set(units as u8);
        self.count.set(self.count.get() + 1);
        self.units.set(self.units.get() + units);
        span.cached.set(true);
    }

    /// Takes everything out if nothing was put in or taken since the last call.
    pub(crate) fn trim(&self, shed: impl FnMut(&'static Span)) {
        if !self.used.replace(false) {
            self.empty(shed);
        }
    }

    /// Takes everything out.
    pub(crate) fn empty(&self, mut shed: impl FnMut(&'static Span)) {
        while let Some(span) = self.remove(0) {
            shed(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Use;

    fn span(units: usize) -> &'static Span {
        Box::leak(Box::new(Span::new(UNIT, units, Use::Large, true, 0)))
    }

    fn units(spans: &[&Span]) -> Vec<usize> {
        spans.iter().map(|span| span.units.get()).collect()
    }

    #[test]
    fn the_newest_block_that_fits_comes_back() {
        let (cache, mut shed) = (LargeCache::new(), Vec::new());
        let spans = [span(8), span(9), span(8)];
        for span in spans {
            cache.put(span, LARGEST, |span| shed.push(span));
        }
        assert!(cache.take(10).is_none() && cache.take(7).is_none());
        assert!(ptr::eq(cache.take(8).expect("kept"), spans[2]));
        assert!(ptr::eq(cache.take(8).expect("kept"), spans[1]), "an eighth more will do");
        assert!(ptr::eq(cache.take(8).expect("kept"), spans[0]));
        assert!(cache.take(8).is_none() && shed.is_empty());
        assert!(spans.iter().all(|span| !span.cached.get()));
    }

    #[test]
    fn the_newest_block_is_at_hand_and_no_other() {
        let (cache, spans) = (LargeCache::new(), [span(8), span(16)]);
        assert!(cache.take_newest(8).is_none());
        assert!(spans.iter().all(|&span| cache.put_beside(span, 24)));
        assert!(!cache.put_beside(span(1), 24), "more than the bound");
        assert!(cache.take_newest(8).is_none() && cache.take_newest(17).is_none(), "it does not fit");
        assert!(ptr::eq(cache.take_newest(15).expect("kept"), spans[1]));
        assert!(ptr::eq(cache.take_newest(8).expect("kept"), spans[0]));
        assert_eq!((cache.units.get(), cache.take_newest(1).is_none()), (0, true));
        assert!(spans.iter().all(|span| !span.cached.get()));
    }

    #[test]
    fn the_oldest_blocks_make_room() {
        let (cache, mut shed) = (LargeCache::new(), Vec::new());
        for units in 1..=10 {
            cache.put(span(units), LARGEST, |span| shed.push(span));
        }
        assert_eq!(units(&shed), [1, 2]);
        shed.clear();
        for _ in 0..2 {
            cache.put(span(LARGEST), LARGEST, |span| shed.push(span));
        }
        assert_eq!(units(&shed), [3, 4, 5, 6, 7, 8, 9, 10, LARGEST]);
        assert_eq!(cache.units.get(), LARGEST);
    }

    #[test]
    fn a_thread_has_one_block_at_a_time_until_two_overlap() {
        let (cache, blocks) = (LargeCache::new(), [span(LARGEST + 1), span(LARGEST + 1)]);
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
        let (cache, mut shed) = (LargeCache::new(), Vec::new());
        cache.put(span(5), LARGEST, |_| unreachable!("there is room"));
        cache.trim(|span| shed.push(span));
        assert!(shed.is_empty(), "it was used");
        cache.trim(|span| shed.push(span));
        assert_eq!(units(&shed), [5]);
        assert_eq!(cache.units.get(), 0);
    }
}
