//! What a heap keeps of a class that its thread uses little: because the thread is new, because it is one of a crowd, threads that are many more than processors, or because the class is bulky and some threads wait for a processor. What
//! one of a crowd keeps is of no use while it waits for a processor, and it waits most of the time.

use core::ptr::{self, NonNull};

use crate::allocator::Allocator;
use crate::arena::Arena;
use crate::heap::Heap;
use crate::size_class::{Class, FIRST_BULKY};
use crate::starter;

impl Allocator {
    /// Whether a heap does without magazines of `class`, a bulky one: some threads wait for a processor, and its thread does not use the class steadily. (Not in a large program, of which such magazines
    /// are a small part.) Counts a slow path; if so, the heap has no magazine of the class from now on.
    fn does_without(&self, heap: &Heap, class: Class) -> bool {
        let paced = self.budget.paced();
        // All threads look at how large the program is, and change it: not each time.
        if paced == 0 || heap.pace(class).count(|| self.shared.small() >= paced) {
            return false;
        }
        if !heap.bins[class].loaded.get().is_null() {
            self.flush_class(heap, class);
        }
        true
    }

    /// A block of `class` without a magazine: one of the first, from the arena's starter or, in a crowd, from the spans; or a bulky one of a class of which the heap has [no magazine](Self::does_without).
    /// Null: no memory. `None`: the class is in steady use.
    #[inline(never)]
    pub(crate) fn start(&self, heap: &Heap, arena: &Arena, source: &Arena, class: Class) -> Option<*mut u8> {
        if class >= FIRST_BULKY {
            return self.does_without(heap, class).then(|| source.take_one(self.below(), class));
        }
        if self.starts(heap, class) {
            if self.budget.is_crowd() {
                return Some(source.take_one(self.below(), class));
            }
            let block = arena.take_mixed(self.below(), class);
            if !block.is_null() {
                return Some(block);
            }
        }
        heap.leave_starter(class);
        None
    }

    /// Whether a heap gives a block of `class` back without a magazine, as [`Allocator::start`] gets one.
    #[inline(never)]
    pub(crate) fn gives_back_first(&self, heap: &Heap, class: Class) -> bool {
        if class >= FIRST_BULKY {
            self.does_without(heap, class)
        } else {
            self.budget.is_crowd() && self.starts(heap, class)
        }
    }

    /// Whether the next block of `class`, which a heap gets or, in a crowd, gives back, is one of the first; counts it.
    fn starts(&self, heap: &Heap, class: Class) -> bool {
        let started = &heap.bins[class].started;
        let before = started.get();
        let starts = before < starter::allowance(class, self.budget.is_crowd());
        started.set(before + u8::from(starts));
        starts
    }

    /// Gives all blocks of `class` away but for those in the loaded magazine, if a thread of a crowd uses it rarely.
    #[inline(never)]
    pub(crate) fn shed_rare(&self, heap: &Heap, class: Class) {
        if !heap.uses_rarely(class) {
            return;
        }
        let place = &heap.bins[class].previous;
        if let Some(previous) = NonNull::new(place.get())
            // SAFETY: a heap's magazines are live.
            && unsafe { previous.as_ref() }.count.get() > 0
        {
            place.set(ptr::null_mut());
            self.shed(heap, class, previous);
        }
        while let Some(magazine) = heap.fetch(class) {
            self.shed(heap, class, magazine);
        }
    }
}
