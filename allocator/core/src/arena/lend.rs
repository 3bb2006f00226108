//! Blocks that an arena hands out in place of another one. A block of a class that fills lines stays with the thread that frees it, while its span stays with
//! the arena that owns it. So what a thread gives back later is room in an arena from which it takes nothing. Before the program grows, an arena without room therefore
//! borrows from one to which such blocks came back: blocks of other threads, or those of a thread that has ended or rests.
//!
//! What a thread that goes on gives back of its own is not lent: the thread will take it again, and would then find it in another processor's caches. Nor is anything borrowed while there are dirty
//! runs: then a span of one's own costs no memory, and one thread's blocks do not come to lie between another's.
//!
//! Both arenas' locks are held meanwhile, the second only if it is free.

use core::ptr;

use super::{Arena, Spans};
use crate::magazine::Slot;
use crate::size_class::{self, CLASS_SLOTS, Class};
use crate::sync::{AtomicPtr, Ordering};

/// For each class that fills lines an arena that may have room; null: nobody knows of any. Hints.
pub(crate) struct Lenders([AtomicPtr<Arena>; CLASS_SLOTS]);

impl Lenders {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; CLASS_SLOTS])
    }

    /// Blocks of `class` came back to `arena`.
    #[inline(never)]
    pub(crate) fn note(&self, arena: &Arena, class: Class) {
        // Relaxed: nothing is read through it. Not written each time: all threads look at it.
        if size_class::fills_lines(class) && self.0[class].load(Ordering::Relaxed).is_null() {
            // Release: pairs with the Acquire in `borrow`.
            self.0[class].store(ptr::from_ref(arena).cast_mut(), Ordering::Release);
        }
    }

    /// Hands out a block of `class` for each of the first of `slots`, from another arena than `own`; how many.
    pub(super) fn borrow(&self, own: &Arena, class: Class, slots: &[Slot]) -> usize {
        // Acquire: pairs with the Release in `note`: an arena is whole for whoever finds it.
        // SAFETY: arenas live for ever.
        let Some(lender) = (unsafe { self.0[class].load(Ordering::Acquire).as_ref() }) else { return 0 };
        let lent = match lender.spans.try_lock() {
            // Its own has no room, or nobody would ask.
            None if ptr::eq(lender, own) => 0,
            None => return 0,
            Some(mut spans) => spans.lend(class, slots),
        };
        if lent == 0 {
            // Relaxed: there is nothing to be seen.
            self.0[class].store(ptr::null_mut(), Ordering::Relaxed);
        }
        lent
    }
}

impl Spans {
    /// Hands out a block of `class` for each of the first of `slots`, if there is room; how many.
    fn lend(&mut self, class: Class, slots: &[Slot]) -> usize {
        let count = self.room_for(class, slots.len());
        self.take(class, &slots[..count]);
        count
    }
}
