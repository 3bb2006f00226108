//! Which heaps there are, who uses them and their arenas.

use core::ptr;

use crate::heap::Heap;
use crate::large_cache::Places;
use crate::meta::Spares;
use crate::units::ARENAS;

/// Index of the arena for threads without a heap.
pub(crate) const COMMON: u16 = 1;
/// Heaps of threads that ended that are kept as they are, for the next threads: one for each processor, but no more than this.
pub(crate) const WARM: usize = 8;

/// Who uses which arena. (The long array comes last: see [`Allocator`].)
#[repr(C)]
pub(crate) struct Registry {
    /// Heaps in use.
    count_of_heaps: u32,
    /// Arenas that exist have the indices 1 … `count`.
    pub(crate) count: u16,
    /// The first of the heaps.
    heaps: *const Heap,
    /// Heaps that no thread uses, with all that they hold, the longest unused first.
    warm: [Option<&'static Heap>; WARM],
    /// Records of heaps that no thread uses and that hold nothing.
    pub(crate) spares: Spares<Heap>,
    /// Places of their caches of large blocks.
    pub(crate) places: Spares<Places>,
    /// Heaps that use each arena.
    users: [u32; ARENAS],
}

// SAFETY: the heaps in the registry are used by no thread; whoever takes one out becomes its only user.
unsafe impl Send for Registry {}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self {
            count_of_heaps: 0,
            count: 0,
            heaps: ptr::null(),
            warm: [None; WARM],
            spares: Spares::new(),
            places: Spares::new(),
            users: [0; ARENAS],
        }
    }

    /// The heaps in use, those of ended threads that are kept warm included.
    pub(crate) fn heaps(&self) -> impl Iterator<Item = &'static Heap> + use<> {
        // SAFETY: listed heaps are live, and their memory is never unmapped.
        let first = unsafe { self.heaps.as_ref() };
        // SAFETY: as above.
        core::iter::successors(first, |heap| unsafe { heap.next.get().as_ref() })
    }

    /// How many of those there are.
    pub(crate) fn count_of_heaps(&self) -> u32 {
        self.count_of_heaps
    }

    /// How many of them are some thread's: those that are kept warm are nobody's.
    pub(crate) fn count_of_threads(&self) -> usize {
        self.count_of_heaps as usize - self.warm.iter().flatten().count()
    }

    pub(crate) fn list(&mut self, heap: &'static Heap) {
        heap.next.set(self.heaps);
        self.heaps = heap;
        self.count_of_heaps += 1;
    }

    pub(crate) fn unlist(&mut self, heap: &Heap) {
        match self.heaps().find(|other| ptr::eq(other.next.get(), heap)) {
            Some(before) => before.next.set(heap.next.get()),
            None => self.heaps = heap.next.get(),
        }
        self.count_of_heaps -= 1;
    }

    /// An arena without users (left by a thread that ended).
    pub(crate) fn orphan(&self) -> Option<u16> {
        (COMMON + 1..=self.count).find(|&index| self.users[usize::from(index)] == 0)
    }

    /// The arena with the fewest users.
    pub(crate) fn least_used(&self) -> Option<u16> {
        (COMMON + 1..=self.count).min_by_key(|&index| self.users[usize::from(index)])
    }
    /// Heaps that use the arena of this index.
    pub(crate) fn users(&mut self, index: u16) -> &mut u32 {
        &mut self.users[usize::from(index)]
    }

    /// A warm heap for a new thread: that of the first arena, so that the last ones are used rarely, and their spans become empty.
    pub(crate) fn take_warm(&mut self) -> Option<&'static Heap> {
        let index = |warm: &Option<&Heap>| Some((*warm)?.arena()?.index);
        self.warm.iter_mut().filter(|warm| warm.is_some()).min_by_key(|warm| index(warm))?.take()
    }

    /// The warm heap in this of [`WARM`] places, which is warm no more.
    pub(crate) fn take_warm_at(&mut self, place: usize) -> Option<&'static Heap> {
        self.warm[place].take()
    }

    /// Keeps a heap warm, as one of `most` at most; the longest unused one is returned where that is one too many.
    pub(crate) fn keep_warm(&mut self, heap: &'static Heap, most: usize) -> Option<&'static Heap> {
        let warm = &mut self.warm[..most];
        if let Some(place) = warm.iter_mut().find(|place| place.is_none()) {
            *place = Some(heap);
            return None;
        }
        warm.rotate_left(1);
        warm[most - 1].replace(heap)
    }

    /// Forgets all heaps but the warm ones and `own`: their threads are not in this process.
    pub(crate) fn forget_others(&mut self, own: Option<&'static Heap>) {
        (self.heaps, self.count_of_heaps) = (ptr::null(), 0);
        for heap in self.warm.into_iter().flatten().chain(own).filter(|heap| heap.arena().is_some()) {
            self.list(heap);
        }
    }
}
