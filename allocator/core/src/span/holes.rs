//! Holes: pages of a span of small blocks in which no block is handed out. The system can have them back although the span
//! lives on.

use super::Span;
use crate::os::{self, PAGE, PARTS, Part};
use crate::size_class::{self, SPAN_UNITS_MAX, UNIT};

/// Whole pages of a span, a bit each.
type Pages = u64;

const _: () = assert!(SPAN_UNITS_MAX * UNIT / PAGE <= Pages::BITS as usize);
const _: () = assert!(PARTS >= MOST);

/// What a look at a span's holes found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing came back since the last search.
    Nothing,
    /// Blocks were handed out since the last look: more may be soon.
    Busy,
    /// It was searched.
    Searched,
}

/// Holes that a span has at most: between two of them lies a page that is none.
const MOST: usize = Pages::BITS as usize / 2;
/// What holes that go back by one call cost, in calls for one hole.
const TOGETHER: usize = 32;

/// Holes that go back to the system together: each call stops all processors that the program runs on. (On the systems that can do it.)
pub(crate) struct Batch<'a> {
    parts: [Part; PARTS],
    spans: [Option<&'a Span>; PARTS],
    count: usize,
}

impl<'a> Batch<'a> {
    pub(crate) const fn new() -> Self {
        Self { parts: [Part::NOTHING; PARTS], spans: [None; PARTS], count: 0 }
    }

    /// Adds the pages of `span` in which no block is handed out, if none was handed out since the last look: a span whose blocks only come
    /// back needs them no more. The caller holds the lock of the span's arena until it has [purged](Self::purge) the batch, before which there
    /// is room for [`MOST`].
    fn add(&mut self, span: &'a Span) -> Look {
        if span.freed.get() == 0 || !span.riddled.get() {
            return Look::Nothing;
        }
        if span.taken.replace(false) {
            return Look::Busy;
        }
        span.riddled.set(false);
        let mut left = span.holes() & !span.purged.get();
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let pages = (left >> first).trailing_ones() as usize;
            left &= !(super::ones(pages) << first);
            self.parts[self.count] = Part { start: span.base() + first * PAGE, len: pages * PAGE };
            self.spans[self.count] = Some(span);
            self.count += 1;
        }
        Look::Searched
    }

    /// Looks at a span; what it found, and what calls into the system cost meanwhile.
    pub(crate) fn look(&mut self, span: &'a Span) -> (Look, usize) {
        let cost = if self.count + MOST > PARTS { self.purge() } else { 0 };
        (self.add(span), cost)
    }

    /// Gives what was found back to the system; what that cost, in calls for one hole.
    pub(crate) fn purge(&mut self) -> usize {
        let parts = &self.parts[..core::mem::take(&mut self.count)];
        // SAFETY: no block that reaches into these pages is handed out, and while the caller holds the arena's lock none will be.
        let together = parts.len() > 1 && unsafe { os::purge_together(parts) };
        for (part, span) in parts.iter().zip(self.spans.iter().flatten()) {
            // SAFETY: as above.
            if together || unsafe { os::purge(part.start, part.len) } {
                let pages = super::ones(part.len / PAGE) << ((part.start - span.base()) / PAGE);
                span.purged.set(span.purged.get() | pages);
            }
        }
        if together { TOGETHER } else { parts.len() }
    }
}

impl Span {
    /// The pages in which no block is handed out, and some block was.
    fn holes(&self) -> Pages {
        let size = size_class::of(self.class()).size as usize;
        let before = self.start.get() - self.base();
        let fresh = usize::from(self.fresh.get());
        let mut pages = 0;
        let mut index = 0;
        while index < fresh {
            let free = self.free_from(index, fresh);
            if free == 0 {
                index += 1;
                continue;
            }
            let end = index + free;
            // What was never handed out, behind the last block, is free as well, and untouched but for the first page.
            let bytes = before + end * size;
            let last = if end == fresh { bytes.div_ceil(PAGE) } else { bytes / PAGE };
            let first = if index == 0 { 0 } else { (before + index * size).div_ceil(PAGE) };
            if first < last {
                pages |= super::ones(last - first) << first;
            }
            index = end;
        }
        pages
    }

    /// How many blocks from `index` on came back, below `end`.
    fn free_from(&self, index: usize, end: usize) -> usize {
        let mut next = index;
        while next < end {
            let bits = self.free[next / 64].get() >> (next % 64);
            let count = (bits.trailing_ones() as usize).min(64 - next % 64);
            next += count;
            if count == 0 || !next.is_multiple_of(64) {
                break;
            }
        }
        next.min(end) - index
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::ptr;

    use super::*;
    use crate::size_class::class_of;
    use crate::span::Use;

    /// A span of memory of the simulated system, with all blocks of `size` bytes handed out, written, and all but `kept` back.
    fn riddled(size: usize, kept: &[usize]) -> (Span, Vec<*mut u8>) {
        riddled_behind(0, size, kept)
    }

    /// As [`riddled`], behind so many spans.
    fn riddled_behind(spans: usize, size: usize, kept: &[usize]) -> (Span, Vec<*mut u8>) {
        let class = class_of(size).expect("small");
        let units: usize = size_class::of(class).units.into();
        let start = os::map((spans + 1) * units * UNIT, UNIT).expect("memory").as_ptr();
        let start = start.expose_provenance() + spans * units * UNIT;
        let span = Span::new(start, units, Use::Small, false, 0);
        span.cut(class);
        let slots = vec![Cell::new(ptr::null_mut()); span.room()];
        span.take(&slots);
        let blocks: Vec<*mut u8> = slots.iter().rev().map(Cell::get).collect();
        for &block in &blocks {
            // SAFETY: a block of the span.
            unsafe { block.write_bytes(7, size) };
        }
        let back = (0..blocks.len()).filter(|index| !kept.contains(index));
        for index in back {
            span.take_back(size_class::of(class), &[Cell::new(blocks[index])]);
        }
        (span, blocks)
    }

    /// The pages of a span in which blocks lie, but for those of the block `kept`.
    fn beside(span: &Span, blocks: &[*mut u8], kept: *mut u8) -> Pages {
        let size = size_class::of(span.class()).size as usize;
        let [kept, last] = [kept, blocks[blocks.len() - 1]].map(|block| block.addr() - span.base());
        let used = kept / PAGE..(kept + size).div_ceil(PAGE);
        let pages = |count: usize| -> Pages { (1 << count) - 1 };
        pages((last + size).div_ceil(PAGE)) & !(pages(used.len()) << used.start)
    }

    /// A look at a span, and what it cost.
    fn purge(span: &Span) -> (Look, usize) {
        let mut batch = Batch::new();
        let (look, before) = batch.look(span);
        (look, before + batch.purge())
    }

    #[test]
    fn pages_without_a_live_block_go_back_once_and_the_live_keep_their_content() {
        let (span, blocks) = riddled(512, &[3, 20]);
        assert_eq!(purge(&span).0, Look::Busy, "blocks were handed out just now");
        // Blocks 0 … 7 lie in the first page, 16 … 23 in the third.
        assert_eq!(purge(&span), (Look::Searched, TOGETHER), "two parts by one call");
        assert_eq!(purge(&span).0, Look::Nothing);
        for (index, &block) in blocks.iter().enumerate() {
            // SAFETY: memory of the span.
            let byte = unsafe { block.read() };
            assert_eq!(byte, if [0, 2].contains(&(index / 8)) { 7 } else { 0 }, "block {index}");
        }
        let slots = vec![Cell::new(ptr::null_mut()); 9];
        span.take(&slots);
        assert_eq!(purge(&span).0, Look::Busy);
        // Of the second page a block is out again, the fourth is looked at anew.
        assert_eq!(purge(&span), (Look::Searched, 1));
    }

    #[test]
    fn blocks_larger_than_a_page_free_the_pages_that_are_theirs_alone() {
        let (span, blocks) = riddled(5120, &[1]);
        purge(&span);
        assert_eq!(span.holes(), beside(&span, &blocks, blocks[1]));
        assert_eq!(purge(&span), (Look::Searched, TOGETHER));
        // SAFETY: a live block.
        let content = unsafe { core::slice::from_raw_parts(blocks[1], 5120) };
        assert!(content.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn holes_end_where_blocks_begin_whatever_the_colour() {
        let mut coloured = 0;
        for spans in 0..8 {
            let (span, blocks) = riddled_behind(spans, 2600, &[5]);
            let base = span.base();
            coloured += usize::from(span.start.get() > base);
            assert_eq!(span.holes(), beside(&span, &blocks, blocks[5]), "{:x}", span.start.get());
            purge(&span);
            assert_eq!(purge(&span).0, Look::Searched);
            // SAFETY: a live block, and memory of the span.
            let (content, first) =
                unsafe { (core::slice::from_raw_parts(blocks[5], 2600), blocks[0].read()) };
            assert!(content.iter().all(|&byte| byte == 7) && first == 0);
            span.uncut();
            assert_eq!(span.start.get(), base);
        }
        assert!(coloured >= 4);
    }

    #[test]
    fn a_full_span_and_a_fresh_one_have_no_holes() {
        let (span, blocks) = riddled(64, &(0..256).collect::<Vec<_>>());
        assert_eq!(blocks.len(), 256);
        assert_eq!((purge(&span).0, span.holes()), (Look::Nothing, 0));
    }
}
