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

/// Freed large blocks, the newest first; those behind the last are null.
pub(crate) struct LargeCache {
    spans: [Cell<*const Span>; SLOTS],
    units: Cell<usize>,
    /// Whether a block was put in or taken since the last trim.
    used: Cell<bool>,
}

impl LargeCache {
    pub(crate) const fn new() -> Self {
        Self { spans: [const { Cell::new(ptr::null()) }; SLOTS], units: Cell::new(0), used: Cell::new(false) }
    }

    fn get(&self, index: usize) -> Option<&'static Span> {
        // SAFETY: cached spans are large ones, whose descriptors are live.
        unsafe { self.spans[index].get().as_ref() }
    }

    /// Bytes of the blocks in it.
    pub(crate) fn bytes(&self) -> usize {
        self.units.get() * UNIT
    }

    /// Takes out the span at `index`.
    fn remove(&self, index: usize) -> Option<&'static Span> {
        let span = self.get(index)?;
        for place in index..SLOTS - 1 {
            self.spans[place].set(self.spans[place + 1].get());
        }
        self.spans[SLOTS - 1].set(ptr::null());
        self.units.set(self.units.get() - span.units.get());
        span.cached.set(false);
        Some(span)
    }

    /// A span of at least `units` units, and of no more than an eighth more.
    pub(crate) fn take(&self, units: usize) -> Option<&'static Span> {
        let fits = |index: &usize| {
            self.get(*index).is_some_and(|span| (units..=units + units / 8).contains(&span.units.get()))
        };
        let found = (0..SLOTS).find(fits)?;
        self.used.set(true);
        self.remove(found)
    }

    /// Puts a freed span of at most [`LARGEST`] units in. What there is no more room for, the oldest first, goes to
    /// `shed`.
    pub(crate) fn put(&self, span: &'static Span, mut shed: impl FnMut(&'static Span)) {
        self.used.set(true);
        while let Some(last) = (0..SLOTS).rev().find(|&index| self.get(index).is_some())
            && (last == SLOTS - 1 || self.units.get() + span.units.get() > LARGEST)
            && let Some(oldest) = self.remove(last)
        {
            shed(oldest);
        }
        for place in (1..SLOTS).rev() {
            self.spans[place].set(self.spans[place - 1].get());
        }
        self.spans[0].set(span);
        self.units.set(self.units.get() + span.units.get());
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
            cache.put(span, |span| shed.push(span));
        }
        assert!(cache.take(10).is_none() && cache.take(7).is_none());
        assert!(ptr::eq(cache.take(8).expect("kept"), spans[2]));
        assert!(ptr::eq(cache.take(8).expect("kept"), spans[1]), "an eighth more will do");
        assert!(ptr::eq(cache.take(8).expect("kept"), spans[0]));
        assert!(cache.take(8).is_none() && shed.is_empty());
        assert!(spans.iter().all(|span| !span.cached.get()));
    }

    #[test]
    fn the_oldest_blocks_make_room() {
        let (cache, mut shed) = (LargeCache::new(), Vec::new());
        for units in 1..=10 {
            cache.put(span(units), |span| shed.push(span));
        }
        assert_eq!(units(&shed), [1, 2]);
        shed.clear();
        for _ in 0..2 {
            cache.put(span(LARGEST), |span| shed.push(span));
        }
        assert_eq!(units(&shed), [3, 4, 5, 6, 7, 8, 9, 10, LARGEST]);
        assert_eq!(cache.units.get(), LARGEST);
    }

    #[test]
    fn what_was_not_used_for_a_while_is_shed() {
        let (cache, mut shed) = (LargeCache::new(), Vec::new());
        cache.put(span(5), |_| unreachable!("there is room"));
        cache.trim(|span| shed.push(span));
        assert!(shed.is_empty(), "it was used");
        cache.trim(|span| shed.push(span));
        assert_eq!(units(&shed), [5]);
        assert_eq!(cache.units.get(), 0);
    }
}
