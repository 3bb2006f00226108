//! Spans: runs of units. A span is free, one large block, or cut into small blocks of one class; its descriptor lies outside it.

mod holes;
mod returns;

use core::cell::Cell;
use core::ptr::{self, NonNull};

use crate::magazine::Slot;
use crate::size_class::{self, Class, SPAN_BLOCKS_MAX, UNIT};

pub(crate) use self::holes::{Batch, Look};
pub(crate) use self::returns::FREE_ALREADY;

/// What a span is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// In the page heap's bins.
    Free,
    /// One block.
    Large,
    /// Blocks of one size class.
    Small,
    /// A thread's first blocks, of several classes.
    Mixed,
    /// Free, but in no list for the moment.
    Aside,
}

const WORDS: usize = SPAN_BLOCKS_MAX / 64;

/// A word whose lowest `count` bits, 1 to 64, are set.
fn ones(count: usize) -> u64 {
    !0 >> (64 - count)
}

/// Descriptor of a span.
///
/// Guarded by its page heap's lock while free or large, by the owning arena's lock while small. A live large
/// block's descriptor is also read by whoever owns the block.
///
/// What is needed to take blocks back lies in the first cache line, for spans of up to 64 blocks all of it.
#[repr(C, align(64))]
pub(crate) struct Span {
    /// Address of the first byte; while it is cut into blocks, of the first block.
    pub(crate) start: Cell<usize>,
    /// Length in units.
    pub(crate) units: Cell<usize>,
    /// Neighbours in the one list that the span is in: a bin of the page heap, or an arena's list of a class.
    next: Cell<*mut Span>,
    prev: Cell<*mut Span>,
    /// Small: how many blocks it is cut into.
    blocks: Cell<u16>,
    /// Small: blocks that were never handed out begin at this index.
    fresh: Cell<u16>,
    /// Small: how many bits are set in `free`.
    freed: Cell<u16>,
    /// Small: the class.
    class: Cell<u8>,
    /// Small: whether the span is in its arena's list, which holds all spans with room.
    pub(crate) listed: Cell<bool>,
    /// Small: whether a block was handed out since the last look for holes.
    taken: Cell<bool>,
    /// Small: whether there may be holes that no look has found.
    riddled: Cell<bool>,
    /// Always guarded by the page heap's lock: neighbours ask for it.
    pub(crate) usage: Cell<Use>,
    /// The page heap that the run belongs to.
    pub(crate) page_heap: u8,
    /// Free or large: whether the memory may hold anything but zeros.
    pub(crate) dirty: Cell<bool>,
    /// Large: whether it was freed and lies in a heap's cache. Only who owns the block, or the cache, touches it. (It is not told in the unit map: there
    /// the blocks of different threads lie in one cache line.)
    pub(crate) cached: Cell<bool>,
    /// Large: bytes before the block. Only who owns the block, or the cache, touches it.
    pub(crate) offset: Cell<u16>,
    /// Small: the holes that the system got back, a bit for each page; those in which a block was handed out since are in it no more.
    purged: Cell<u64>,
    /// Small: one bit for each block that was handed out and came back.
    free: [Cell<u64>; WORDS],
    /// Neighbours in the page heap's queue of dirty spans, oldest first. (In a heap's stack of large blocks, `newer` is the one below.)
    pub(crate) older: Cell<*mut Span>,
    // From here on, a line of its own, besides the first all that is needed to keep large blocks.
    pub(crate) newer: Cell<*mut Span>,
    /// When a free span became dirty, in milliseconds of `os::now_ms`.
    pub(crate) since_ms: Cell<u64>,
    /// Large: up to where its chunks are marked for huge pages; 0, or its beginning if it has grown and moved there: nowhere. Only who owns the block touches it.
    pub(crate) marked_to: Cell<usize>,
    /// Mappings of its own that the system keeps for it, at most, since pages were moved there. Guarded by the page heap's lock.
    pub(crate) mappings: Cell<u32>,
    /// Large: units that the block may use, where its run is much longer; 0: all of it. Only who owns the block, or the cache, touches it.
    pub(crate) granted: Cell<u32>,
    /// Large: bytes before the block if its size allows so many.
    pub(crate) colour: Cell<u16>,
}

const _: () = assert!(core::mem::offset_of!(Span, free) == 64 - size_of::<u64>());
const _: () = assert!(
    core::mem::offset_of!(Span, newer) % 64 == 0
        && size_of::<Span>() - core::mem::offset_of!(Span, newer) <= 64
);

impl Span {
    /// A span of `units` units at `start`.
    pub(crate) fn new(start: usize, units: usize, usage: Use, dirty: bool, page_heap: u8) -> Self {
        Self {
            next: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            granted: Cell::new(0),
            newer: Cell::new(ptr::null_mut()),
            older: Cell::new(ptr::null_mut()),
            start: Cell::new(start),
            units: Cell::new(units),
            since_ms: Cell::new(0),
            page_heap,
            usage: Cell::new(usage),
            dirty: Cell::new(dirty),
            cached: Cell::new(false),
            offset: Cell::new(0),
            marked_to: Cell::new(0),
            mappings: Cell::new(0),
            colour: Cell::new(0),
            class: Cell::new(0),
            blocks: Cell::new(0),
            listed: Cell::new(false),
            fresh: Cell::new(0),
            freed: Cell::new(0),
            taken: Cell::new(false),
            riddled: Cell::new(false),
            purged: Cell::new(0),
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
        let (info, start, units) = (size_class::of(class), self.start.get(), self.units.get());
        let blocks = info.blocks(units);
        let left = self.bytes() - blocks * info.size as usize;
        self.start.set(start + info.colour(start / UNIT / units, left));
        self.class.set(class as u8);
        self.blocks.set(blocks as u16);
        self.fresh.set(0);
        self.freed.set(0);
        self.purged.set(0);
        for word in &self.free {
            word.set(0);
        }
    }

    /// Where the span begins that is cut into blocks.
    fn base(&self) -> usize {
        self.start.get() & !(UNIT - 1)
    }

    /// Makes it a run again, as before [`cut`](Self::cut).
    pub(crate) fn uncut(&self) {
        self.start.set(self.base());
    }

    /// The class of a small span.
    pub(crate) fn class(&self) -> Class {
        usize::from(self.class.get())
    }

    /// How many blocks a small span is cut into.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.get().into()
    }

    /// Blocks that could be handed out.
    pub(crate) fn room(&self) -> usize {
        usize::from(self.blocks.get() - self.fresh.get() + self.freed.get())
    }

    /// Whether no block is handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.freed.get() == self.fresh.get()
    }

    /// Hands out a block for each of `slots`, as far as there is room: the lowest address into the last slot. Blocks
    /// that came back go first, then those never used, so that untouched pages stay untouched. Returns how many.
    pub(crate) fn take(&self, slots: &[Slot]) -> usize {
        let info = size_class::of(self.class());
        let (start, size) = (self.start.get(), info.size as usize);
        let (mut index, mut freed) = (0, usize::from(self.freed.get()));
        let (before, wanted, mut slots) = (freed, slots.len(), slots);
        while !slots.is_empty() {
            // Blocks of neighbouring addresses: of those that came back, or of those never used.
            let (first, count) = if freed > 0 {
                let word = &self.free[index];
                let bits = word.get();
                if bits == 0 {
                    index += 1;
                    continue;
                }
                let first = bits.trailing_zeros();
                let count = ((bits >> first).trailing_ones() as usize).min(slots.len());
                word.set(bits & !(ones(count) << first));
                freed -= count;
                (index * 64 + first as usize, count)
            } else {
                let first = usize::from(self.fresh.get());
                let count = slots.len().min(self.blocks() - first);
                if count == 0 {
                    break;
                }
                self.fresh.set((first + count) as u16);
                (first, count)
            };
            let (rest, run) = slots.split_at(slots.len() - count);
            slots = rest;
            let mut block = start + (first + count - 1) * size;
            let mut put = |slot: &Slot| {
                slot.set(ptr::with_exposed_provenance_mut(block));
                block -= size;
            };
            // Eight at once: the loop's own cost is more than a block's.
            let (others, eights) = run.as_rchunks();
            others.iter().for_each(&mut put);
            for [a, b, c, d, e, f, g, h] in eights {
                put(a);
                put(b);
                put(c);
                put(d);
                put(e);
                put(f);
                put(g);
                put(h);
            }
        }
        if freed != before {
            self.freed.set(freed as u16);
            // Of any page; which ones would cost more to tell than to give back again.
            self.purged.set(0);
        }
        self.taken.set(true);
        self.riddled.set(true);
        wanted - slots.len()
    }

    /// Whether the counts agree with the bits.
    #[cfg(test)]
    pub(crate) fn is_valid(&self) -> bool {
        let bits: u32 = self.free.iter().map(|word| word.get().count_ones()).sum();
        bits == u32::from(self.freed.get())
            && self.freed.get() <= self.fresh.get()
            && self.fresh.get() <= self.blocks.get()
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
        let span = Span::new(UNIT * 64, size_class::of(class).units.into(), Use::Free, false, 0);
        span.cut(class);
        span
    }

    /// The blocks that a span hands out when `wanted` are asked for, in the order in which malloc gets them.
    fn take(span: &Span, wanted: usize) -> Vec<*mut u8> {
        let slots = vec![Cell::new(ptr::null_mut()); wanted];
        let taken = span.take(&slots);
        slots.iter().rev().map(Cell::get).take(taken).collect()
    }

    fn give_back(span: &Span, blocks: impl IntoIterator<Item = *mut u8>) -> usize {
        let blocks = blocks.into_iter().map(Cell::new).collect::<Vec<_>>();
        let mut back = 0;
        while back < blocks.len() && span.offset(size_class::of(span.class()), &blocks[back]).is_some() {
            back += span.take_back(size_class::of(span.class()), &blocks[back..]);
        }
        back
    }

    #[test]
    fn blocks_come_lowest_first_and_each_once() {
        let span = small(5);
        let all = span.room();
        let mut blocks = take(&span, 10);
        assert_eq!(blocks.len(), 10);
        blocks.extend(take(&span, all));
        assert!(blocks.is_sorted_by(|a, b| a < b));
        assert_eq!(blocks.len(), all);
        assert!(span.is_valid() && span.room() == 0);
        assert_eq!(give_back(&span, [7, 3, 200].map(|index| blocks[index])), 3);
        assert_eq!(take(&span, 5), [blocks[3], blocks[7], blocks[200]]);
    }

    #[test]
    fn blocks_come_back_in_any_order_one_by_one_or_in_runs() {
        let span = small(3);
        let blocks = take(&span, span.room());
        let last = blocks.len() - 1;
        // Up over the ends of words, down over them, alone, and a stranger that ends it.
        let up = (60..200).collect::<Vec<_>>();
        let down = (201..=last).rev().collect::<Vec<_>>();
        let alone = [5, 0, 59];
        let order: Vec<_> = up.into_iter().chain(down).chain(alone).collect();
        let stranger = [ptr::without_provenance_mut(span.end())];
        let back = order.iter().map(|&index| blocks[index]).chain(stranger);
        assert_eq!(give_back(&span, back), order.len());
        assert!(span.is_valid());
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(take(&span, last), sorted.iter().map(|&index| blocks[index]).collect::<Vec<_>>());
        assert!(span.is_valid());
    }

    #[test]
    fn blocks_of_a_span_are_none_of_the_one_before() {
        let class = size_class::class_of(1024).expect("small");
        let units: usize = size_class::of(class).units.into();
        for number in 64..80 {
            let spans = [0, 1].map(|next| {
                let span = Span::new((number + next) * units * UNIT, units, Use::Free, false, 0);
                span.cut(class);
                span
            });
            let [before, after] = spans.each_ref().map(|span| take(span, span.room()));
            assert!(before.iter().all(|block| block.addr() < spans[1].base()));
            assert_eq!(give_back(&spans[0], [before[14], before[13], after[0]]), 2);
            assert!(spans[0].is_valid());
        }
    }

    #[test]
    #[should_panic(expected = "did not return")]
    fn a_pointer_before_the_first_block_ends_the_process() {
        let class = size_class::class_of(3000).expect("small");
        let units: usize = size_class::of(class).units.into();
        let span = Span::new(65 * units * UNIT, units, Use::Free, false, 0);
        span.cut(class);
        let blocks = take(&span, span.room());
        assert!(blocks[0].addr() > span.base());
        give_back(&span, [blocks[2]]);
        span.take_back(size_class::of(class), &[Cell::new(ptr::without_provenance_mut(span.base()))]);
    }

    #[test]
    fn blocks_come_back_in_no_order() {
        let span = small(1);
        let blocks = take(&span, span.room());
        for stride in [3, 7, 129, 511, 701] {
            let order: Vec<_> =
                (0..blocks.len()).map(|index| blocks[index * stride % blocks.len()]).collect();
            let (first, later) = order.split_at(blocks.len() / 3);
            assert_eq!(give_back(&span, first.iter().copied()), first.len());
            assert!(span.is_valid());
            assert_eq!(give_back(&span, later.iter().copied()), later.len());
            assert!(span.is_valid() && span.is_empty());
            assert_eq!(take(&span, blocks.len()), blocks, "stride {stride}");
        }
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_second_free_among_blocks_in_no_order_ends_the_process() {
        let span = small(1);
        let blocks = take(&span, 9);
        give_back(&span, [7, 3, 4, 1, 3, 0].map(|index| blocks[index]));
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn blocks_in_no_order_of_which_one_was_free_before_end_the_process() {
        let span = small(1);
        let blocks = take(&span, 9);
        give_back(&span, [blocks[4]]);
        give_back(&span, [7, 3, 4, 1].map(|index| blocks[index]));
    }

    #[test]
    fn a_single_block_is_taken_back_only_while_its_span_stays_what_it_is() {
        let span = small(5);
        let info = size_class::of(5);
        let blocks = take(&span, 3);
        assert!(!span.take_one_back(info, blocks[2].addr()), "it is not listed");
        span.listed.set(true);
        assert!(span.take_one_back(info, blocks[2].addr()) && span.take_one_back(info, blocks[0].addr()));
        assert!(!span.take_one_back(info, blocks[1].addr()), "it would be empty");
        assert!(span.is_valid() && !span.is_empty());
        assert_eq!(take(&span, 2), [blocks[0], blocks[2]]);
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_second_free_of_a_single_block_ends_the_process() {
        let span = small(5);
        let blocks = take(&span, 3);
        span.listed.set(true);
        span.take_one_back(size_class::of(5), blocks[0].addr());
        span.take_one_back(size_class::of(5), blocks[0].addr());
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_second_free_ends_the_process() {
        let span = small(1);
        let block = take(&span, 1)[0];
        give_back(&span, [block, block]);
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_second_free_within_a_run_ends_the_process() {
        let span = small(1);
        let blocks = take(&span, 4);
        give_back(&span, [blocks[2]]);
        give_back(&span, blocks);
    }

    #[test]
    #[should_panic(expected = "malloc did not return")]
    fn a_pointer_into_a_block_ends_the_process() {
        let span = small(4);
        let block = take(&span, 1)[0];
        give_back(&span, [block.wrapping_add(16)]);
    }

    #[test]
    #[should_panic(expected = "malloc did not return")]
    fn a_block_that_was_never_handed_out_ends_the_process() {
        let span = small(4);
        let blocks = take(&span, 2);
        let size = blocks[1].addr() - blocks[0].addr();
        give_back(&span, [blocks[0], blocks[1], blocks[1].wrapping_add(size)]);
    }
}
