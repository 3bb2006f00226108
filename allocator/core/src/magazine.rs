//! Magazines: stacks of pointers to blocks of one class, handled and exchanged as a whole (J. Bonwick & J. Adams, "Magazines
//! and Vmem", USENIX 2001).

use core::cell::Cell;
use core::ops::Range;
use core::ptr::{self, NonNull};

use crate::inbox::Linked;
use crate::size_class::{Class, MAGAZINE_SLOTS, PAIRED};

/// Of blocks that are larger than this, and of [`PAIRED`] bytes, a span holds so few that a magazine's often go on in another span.
const FEW_IN_A_SPAN: usize = 1024;

/// A place for a pointer to a block.
pub(crate) type Slot = Cell<*mut u8>;

/// A magazine. While it is loaded in a heap, the heap's `top` says how many blocks it holds; otherwise `count` does. Zeroed
/// memory is an empty one.
#[repr(C, align(64))]
pub(crate) struct Magazine {
    next: Cell<*mut Magazine>,
    pub(crate) count: Cell<u16>,
    class: Cell<u8>,
    /// In a [`Stack`]: how many there are from this one down.
    depth: Cell<u32>,
    /// Always null: what lies below the lowest slot stops malloc.
    guard: Slot,
    slots: [Slot; MAGAZINE_SLOTS],
}

const _: () = assert!(size_of::<Magazine>() == 1024);

impl Magazine {
    /// Makes of a zeroed record, or of a magazine that nobody uses any more, an empty magazine for blocks of `class`.
    pub(crate) fn empty(&self, class: Class) {
        self.next.set(ptr::null_mut());
        self.count.set(0);
        self.class.set(class as u8);
    }

    /// The class of its blocks.
    pub(crate) fn class(&self) -> Class {
        usize::from(self.class.get())
    }

    /// The top of the stack when it holds `count` blocks: the slot of the newest one, or the guard.
    pub(crate) fn top(this: *const Self, count: usize) -> *const Slot {
        // `wrapping_add`: the guard and the slots lie in a row.
        // SAFETY: a place inside the magazine; nothing is read.
        unsafe { &raw const (*this).guard }.wrapping_add(count)
    }

    /// How many blocks it holds when `top` is its top.
    pub(crate) fn count_at(this: *const Self, top: *const Slot) -> usize {
        (top.addr() - Self::top(this, 0).addr()) / size_of::<Slot>()
    }

    /// The slot with the given index, 0 being the oldest block's.
    pub(crate) fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// As [`Magazine::slot`]; none beyond the last.
    #[inline(always)]
    pub(crate) fn slot_if_any(&self, index: usize) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// A range of slots.
    pub(crate) fn slots(&self, range: Range<usize>) -> &[Slot] {
        &self.slots[range]
    }

    /// Whether its blocks of `size` bytes are in order, as far as a look at both ends of four stretches tells: whoever takes them one after the other goes through memory
    /// from one to the next, and leaves none out. (Also one of fewer than eight.) Of [few in a span](FEW_IN_A_SPAN) one stretch may go on in another span. The stretches are of two lengths, so that an order that repeats itself does not pass because it fits at both ends of each.
    pub(crate) fn is_in_order(&self, size: usize) -> bool {
        let apart = usize::from(self.count.get()) / 4;
        if apart < 2 {
            return true;
        }
        let address = |index: usize| self.slots[index].get().addr();
        let (short, long) = ((apart - 1) * size, apart * size);
        let broken = |start: usize, end: usize, length: usize| {
            usize::from(address(start).abs_diff(address(end)) != length)
        };
        let first_half = broken(0, apart - 1, short) + broken(apart, 2 * apart, long);
        let second_half = broken(2 * apart, 3 * apart, long) + broken(3 * apart, 4 * apart - 1, short);
        first_half + second_half <= usize::from(size > FEW_IN_A_SPAN || size == PAIRED)
    }

    /// The blocks, oldest first.
    pub(crate) fn blocks(&self) -> &[Slot] {
        self.slots(0..self.count.get().into())
    }
}

impl Linked for Magazine {
    fn set_next(&self, next: *mut Self) {
        self.next.set(next);
    }
}

/// A stack of magazines. One pointer: the top magazine knows how many there are.
pub(crate) struct Stack {
    first: Cell<*mut Magazine>,
}

// SAFETY: the magazines belong to the stack, and the stack to whoever can reach it.
unsafe impl Send for Stack {}

impl Stack {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()) }
    }

    /// A stack of the magazines linked from `first` (null: none); its [`Stack::len`] means nothing.
    pub(crate) fn from_linked(first: *mut Magazine) -> Self {
        Self { first: Cell::new(first) }
    }

    /// The first of its magazines, linked as for [`Stack::from_linked`].
    pub(crate) fn into_linked(self) -> Option<NonNull<Magazine>> {
        NonNull::new(self.first.get())
    }

    /// The magazine that [`Stack::pop`] would take.
    pub(crate) fn top(&self) -> Option<&Magazine> {
        // SAFETY: stacked magazines are live; their memory is never unmapped.
        unsafe { self.first.get().as_ref() }
    }

    /// How many magazines there are.
    pub(crate) fn len(&self) -> u32 {
        self.top().map_or(0, |top| top.depth.get())
    }

    /// Blocks in all its magazines.
    pub(crate) fn blocks(&self) -> usize {
        // SAFETY: stacked magazines are live.
        let live = |magazine: *mut Magazine| unsafe { magazine.as_ref() };
        core::iter::successors(self.top(), |magazine| live(magazine.next.get()))
            .map(|magazine| usize::from(magazine.count.get()))
            .sum()
    }

    /// Puts a magazine that is in no stack on top; how many there are then.
    pub(crate) fn push(&self, magazine: NonNull<Magazine>) -> u32 {
        // SAFETY: the caller gives a live magazine away.
        let new = unsafe { magazine.as_ref() };
        let depth = self.len() + 1;
        new.depth.set(depth);
        new.set_next(self.first.get());
        self.first.set(magazine.as_ptr());
        depth
    }

    /// Takes the top magazine.
    pub(crate) fn pop(&self) -> Option<NonNull<Magazine>> {
        let magazine = NonNull::new(self.first.get())?;
        self.first.set(self.top()?.next.replace(ptr::null_mut()));
        Some(magazine)
    }
}

/// A heap's empty magazines. If there are too many, the heap gives some away; if it then asks for as many again, it keeps that many more from then on. Otherwise threads that free much and allocate
/// as much again would exchange magazines with each other, and find them in another processor's cache each time.
pub(crate) struct Empties {
    stack: Stack,
    /// How many more it keeps than in any case.
    more: Cell<u32>,
    /// Given away because they were too many, and not asked for again.
    missed: Cell<u32>,
}

impl Empties {
    pub(crate) const fn new() -> Self {
        Self { stack: Stack::new(), more: Cell::new(0), missed: Cell::new(0) }
    }

    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Puts one in; whether there are now more than the heap keeps, which is `least` in any case.
    #[inline(always)]
    pub(crate) fn put(&self, magazine: NonNull<Magazine>, least: u32) -> bool {
        self.stack.push(magazine) > least + self.more.get()
    }

    /// `count` were given away because there were too many.
    pub(crate) fn note_given(&self, count: u32) {
        self.missed.set(self.missed.get().saturating_add(count));
    }

    /// `count` are asked for and none is there; from now on the heap may keep as many more, up to `most` in all.
    pub(crate) fn note_asked(&self, count: u32, most: u32) {
        let missed = count.min(self.missed.get());
        self.missed.set(self.missed.get() - missed);
        self.more.set((self.more.get() + missed).min(most));
    }

    /// Time has passed: what was needed may no longer be.
    pub(crate) fn forget(&self) {
        self.more.set(self.more.get() / 2);
        self.missed.set(self.missed.get() / 2);
    }
}

/// Empty magazines that wait for a heap that needs some. They come and go in batches, so that a lock is taken once for many.
pub(crate) struct Batches {
    /// The newest batch, of which the first magazine's lowest slot leads to the next batch.
    first: *mut Magazine,
}

// SAFETY: the magazines belong to the batches, and those to whoever can reach them.
unsafe impl Send for Batches {}

impl Batches {
    pub(crate) const fn new() -> Self {
        Self { first: ptr::null_mut() }
    }

    /// Puts a batch of empty magazines in; one of none is ignored.
    pub(crate) fn put(&mut self, batch: &Stack) {
        let Some(first) = batch.top() else { return };
        first.slots[0].set(self.first.cast());
        self.first = batch.first.get();
    }

    /// Takes the newest batch out. Whoever uses one of its magazines must make it [empty](Magazine::empty).
    pub(crate) fn take(&mut self) -> Option<Stack> {
        let batch = Stack { first: Cell::new(self.first) };
        self.first = batch.top()?.slots[0].get().cast();
        Some(batch)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn magazines(count: usize) -> Vec<NonNull<Magazine>> {
        let new = || Magazine {
            next: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
            class: Cell::new(0),
            depth: Cell::new(0),
            guard: Cell::new(ptr::null_mut()),
            slots: [const { Cell::new(ptr::null_mut()) }; MAGAZINE_SLOTS],
        };
        (0..count).map(|_| NonNull::from(Box::leak(Box::new(new())))).collect()
    }

    /// Whether a magazine with blocks of `size` bytes at these multiples of it is in order.
    fn is_in_order(size: usize, places: impl IntoIterator<Item = usize>) -> bool {
        let magazine = magazines(1)[0];
        // SAFETY: just made.
        let magazine = unsafe { magazine.as_ref() };
        for (slot, place) in magazine.slots.iter().zip(places) {
            slot.set(ptr::without_provenance_mut(place * size));
            magazine.count.set(magazine.count.get() + 1);
        }
        magazine.is_in_order(size)
    }

    fn upwards() -> impl DoubleEndedIterator<Item = usize> {
        1..=MAGAZINE_SLOTS
    }

    #[test]
    fn blocks_side_by_side_are_in_order_upwards_and_downwards() {
        assert!(is_in_order(64, upwards()) && is_in_order(64, upwards().rev()));
        assert!(!is_in_order(64, upwards().map(|place| place * 2)));
        assert!(!is_in_order(64, upwards().map(|place| place * 31 % MAGAZINE_SLOTS)));
    }

    #[test]
    fn blocks_that_leave_some_out_are_not_in_order() {
        for group in 2..20 {
            assert!(
                !is_in_order(64, upwards().map(|place| place + place / group)),
                "one of {} is missing",
                group + 1
            );
        }
    }

    #[test]
    fn groups_that_lie_side_by_side_but_were_freed_in_an_order_of_their_own_are_not_in_order() {
        // As a tree is taken down: the children before their parent, its next sibling after that.
        let group = [4, 3, 2, 6, 5, 1, 0];
        assert!(!is_in_order(64, (0..MAGAZINE_SLOTS).map(|place| place / 7 * 7 + group[place % 7] + 1)));
    }

    #[test]
    fn of_large_blocks_one_stretch_may_go_on_elsewhere() {
        let broken = |at: usize| upwards().map(move |place| place + place / at * 1000);
        assert!(is_in_order(1088, broken(80)) && is_in_order(PAIRED, broken(80)));
        assert!(!is_in_order(1024, broken(80)));
        assert!(!is_in_order(1088, broken(40)), "three stretches");
    }

    #[test]
    fn a_few_blocks_are_in_order_as_they_are() {
        assert!(is_in_order(64, []) && is_in_order(64, [1]) && is_in_order(64, [10, 1, 20, 3, 100, 117, 2]));
        assert!(!is_in_order(64, [10, 1, 20, 5, 100, 117, 2, 15]));
    }

    #[test]
    fn as_many_empty_magazines_more_are_kept_as_were_given_away_and_asked_for_again() {
        const LEAST: u32 = 4;
        let empties = Empties::new();
        let kept = || {
            let all = magazines(20);
            let kept = all.into_iter().take_while(|&magazine| !empties.put(magazine, LEAST)).count();
            while empties.stack().pop().is_some() {}
            kept
        };
        assert_eq!(kept(), 4);
        empties.note_asked(3, 9);
        assert_eq!(kept(), 4, "none was given away: others have use for them");
        empties.note_given(6);
        assert_eq!(kept(), 4, "nor was any asked for again");
        empties.note_asked(4, 9);
        assert_eq!(kept(), 8);
        empties.note_asked(4, 5);
        assert_eq!(kept(), 9, "as many as may be");
        empties.forget();
        assert_eq!(kept(), 6);
    }

    #[test]
    fn batches_come_out_as_they_went_in_the_newest_first() {
        let all = magazines(6);
        let mut batches = Batches::new();
        batches.put(&Stack::new());
        assert!(batches.take().is_none(), "a batch of none is none");
        for part in [&all[..1], &all[1..4], &all[4..]] {
            let batch = Stack::new();
            for &magazine in part {
                batch.push(magazine);
            }
            batches.put(&batch);
        }
        for part in [&all[4..], &all[1..4], &all[..1]] {
            let batch = batches.take().expect("a batch");
            assert_eq!(batch.len() as usize, part.len());
            let taken: Vec<_> = core::iter::from_fn(|| batch.pop()).collect();
            assert!(taken.iter().eq(part.iter().rev()));
        }
        assert!(batches.take().is_none());
    }
}
