//! Spans: runs of units. A span is free, one large block, or cut into small blocks of one class; its descriptor lies outside it.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use crate::os;
use crate::size_class::{self, Class, SPAN_BLOCKS_MAX};
use crate::units::UNIT;

/// What a span is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// In the page heap's bins.
    Free,
    /// One block.
    Large,
    /// Blocks of one size class.
    Small,
}

const WORDS: usize = SPAN_BLOCKS_MAX / 64;

/// Descriptor of a span.
///
/// Guarded by the page heap's lock while free or large, by the owning arena's lock while small. A live large
/// block's descriptor is also read by whoever owns the block.
pub(crate) struct Span {
    /// Neighbours in the one list that the span is in: a bin of the page heap, or an arena's list of a class.
    next: Cell<*mut Span>,
    prev: Cell<*mut Span>,
    /// Neighbours in the page heap's queue of dirty spans, oldest first.
    pub(crate) newer: Cell<*mut Span>,
    pub(crate) older: Cell<*mut Span>,
    /// Address of the first byte.
    pub(crate) start: Cell<usize>,
    /// Length in units.
    pub(crate) units: Cell<usize>,
    /// When a free span became dirty, in milliseconds of `os::now_ms`.
    pub(crate) since_ms: Cell<u64>,
    /// Always guarded by the page heap's lock: neighbours ask for it.
    pub(crate) usage: Cell<Use>,
    /// Free or large: whether the memory may hold anything but zeros.
    pub(crate) dirty: Cell<bool>,
    /// Small: the class.
    class: Cell<u8>,
    /// Small: whether the span is in its arena's list, which holds all spans with room.
    pub(crate) listed: Cell<bool>,
    /// Small: blocks that were never handed out begin at this index.
    fresh: Cell<u16>,
    /// Small: how many bits are set in `free`.
    freed: Cell<u16>,
    /// Small: one bit for each block that was handed out and came back.
    free: [Cell<u64>; WORDS],
}

impl Span {
    /// A span of `units` units at `start`.
    pub(crate) fn new(start: usize, units: usize, usage: Use, dirty: bool) -> Self {
        Self {
            next: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            newer: Cell::new(ptr::null_mut()),
            older: Cell::new(ptr::null_mut()),
            start: Cell::new(start),
            units: Cell::new(units),
            since_ms: Cell::new(0),
            usage: Cell::new(usage),
            dirty: Cell::new(dirty),
            class: Cell::new(0),
            listed: Cell::new(false),
            fresh: Cell::new(0),
            freed: Cell::new(0),
            free: [const { Cell::new(0) }; WORDS],
        }
    }

    /// Address of the first byte after the span.
    pub(crate) fn end(&self) -> usize {
        self.start.get() + self.bytes()
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.units.get() * UNIT
    }

    /// Cuts the span into blocks of `class`, none of them handed out.
    pub(crate) fn cut(&self, class: Class) {
        self.class.set(class as u8);
        self.fresh.set(0);
        self.freed.set(0);
        for word in &self.free {
            word.set(0);
        }
    }

    /// The class of a small span.
    pub(crate) fn class(&self) -> Class {
        usize::from(self.class.get())
    }

    /// Blocks that could be handed out.
    pub(crate) fn room(&self) -> usize {
        usize::from(size_class::of(self.class()).blocks - self.fresh.get() + self.freed.get())
    }

    /// Whether no block is handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.freed.get() == self.fresh.get()
    }

    /// Hands out up to `wanted` blocks, lowest address first: those that came back, then those never used, so
    /// that untouched pages stay untouched. Returns how many.
    pub(crate) fn take(&self, wanted: usize, mut each: impl FnMut(*mut u8)) -> usize {
        let info = size_class::of(self.class());
        let (start, size) = (self.start.get(), info.size as usize);
        let block = |index: usize| ptr::with_exposed_provenance_mut(start + index * size);
        let mut left = wanted;
        if self.freed.get() > 0 {
            for (index, word) in self.free.iter().enumerate() {
                let mut bits = word.get();
                if bits == 0 {
                    continue;
                }
                let before = left;
                while bits != 0 && left > 0 {
                    each(block(index * 64 + bits.trailing_zeros() as usize));
                    bits &= bits - 1;
                    left -= 1;
                }
                word.set(bits);
                self.freed.set(self.freed.get() - (before - left) as u16);
                if left == 0 || self.freed.get() == 0 {
                    break;
                }
            }
        }
        let first = usize::from(self.fresh.get());
        let fresh = left.min(usize::from(info.blocks) - first);
        for index in first..first + fresh {
            each(block(index));
        }
        self.fresh.set((first + fresh) as u16);
        wanted - left + fresh
    }

    /// Takes back the leading ones of `blocks` that lie in this span; how many those are. Ends the process if one of
    /// them cannot be a block of this span that is handed out: a pointer into the middle of a block, or a block that was
    /// freed twice.
    pub(crate) fn take_back(&self, blocks: &[Cell<*mut u8>]) -> usize {
        let info = size_class::of(self.class());
        let (start, bytes, size) = (self.start.get(), self.bytes(), info.size as usize);
        let fresh = usize::from(self.fresh.get());
        let mut taken = 0;
        for block in blocks {
            let offset = block.get().addr().wrapping_sub(start);
            if offset >= bytes {
                break;
            }
            let index = ((offset as u64 * u64::from(info.reciprocal)) >> 32) as usize;
            if index * size != offset || index >= fresh {
                os::die("ample: free of a pointer that malloc did not return\n");
            }
            let word = &self.free[index / 64];
            let bit = 1 << (index % 64);
            if word.get() & bit != 0 {
                os::die("ample: free of a block that is free already\n");
            }
            word.set(word.get() | bit);
            taken += 1;
        }
        self.freed.set(self.freed.get() + taken as u16);
        taken
    }

    /// Whether the counts agree with the bits.
    #[cfg(test)]
    pub(crate) fn is_valid(&self) -> bool {
        let bits: u32 = self.free.iter().map(|word| word.get().count_ones()).sum();
        bits == u32::from(self.freed.get())
            && self.freed.get() <= self.fresh.get()
            && self.fresh.get() <= size_class::of(self.class()).blocks
    }
}

/// A list of spans, linked through their descriptors.
pub(crate) struct SpanList {
    head: *mut Span,
}

// SAFETY: the list is reached under the lock that guards its spans; see `Span`.
unsafe impl Send for SpanList {}

impl SpanList {
    pub(crate) const fn new() -> Self {
        Self { head: ptr::null_mut() }
    }

    /// The first span.
    pub(crate) fn first(&self) -> Option<&'static Span> {
        // SAFETY: listed descriptors are live, and descriptors' memory is never unmapped.
        unsafe { self.head.as_ref() }
    }

    /// The span after `span`, which is in this list.
    pub(crate) fn after(span: &Span) -> Option<&'static Span> {
        // SAFETY: as in `first`.
        unsafe { span.next.get().as_ref() }
    }

    /// Puts `span`, which is in no list, first.
    pub(crate) fn push(&mut self, span: NonNull<Span>) {
        // SAFETY: the caller passes a live descriptor.
        let new = unsafe { span.as_ref() };
        new.prev.set(ptr::null_mut());
        new.next.set(self.head);
        if let Some(head) = self.first() {
            head.prev.set(span.as_ptr());
        }
        self.head = span.as_ptr();
    }

    /// Takes `span`, which is in this list, out of it.
    pub(crate) fn remove(&mut self, span: &Span) {
        // SAFETY: neighbours in a list are live descriptors.
        match unsafe { span.prev.get().as_ref() } {
            Some(previous) => previous.next.set(span.next.get()),
            None => self.head = span.next.get(),
        }
        if let Some(next) = Self::after(span) {
            next.prev.set(span.prev.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(class: Class) -> Span {
        let span = Span::new(UNIT * 64, size_class::of(class).units.into(), Use::Free, false);
        span.cut(class);
        span
    }

    #[test]
    fn blocks_come_lowest_first_and_each_once() {
        let span = small(5);
        let mut blocks = Vec::new();
        let all = span.room();
        assert_eq!(span.take(10, |b| blocks.push(b.addr())), 10);
        assert_eq!(span.take(all, |b| blocks.push(b.addr())), all - 10);
        assert!(blocks.is_sorted());
        blocks.dedup();
        assert_eq!(blocks.len(), all);
        assert!(span.is_valid() && span.room() == 0);
        let back = [7, 3, 200].map(|index| Cell::new(ptr::without_provenance_mut::<u8>(blocks[index])));
        assert_eq!(span.take_back(&back), 3);
        let mut again = Vec::new();
        assert_eq!(span.take(5, |b| again.push(b.addr())), 3);
        assert_eq!(again, [blocks[3], blocks[7], blocks[200]]);
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_second_free_ends_the_process() {
        let span = small(1);
        let block = Cell::new(ptr::null_mut());
        span.take(1, |b| block.set(b));
        span.take_back(&[block.clone(), block]);
    }

    #[test]
    #[should_panic(expected = "malloc did not return")]
    fn a_pointer_into_a_block_ends_the_process() {
        let span = small(4);
        let block = Cell::new(ptr::null_mut());
        span.take(1, |b| block.set(b.wrapping_add(16)));
        span.take_back(&[block]);
    }
}
