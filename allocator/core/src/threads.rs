//! Threads come and go: heaps are attached and detached, arenas created, orphaned and adopted.

use core::mem;
use core::ptr::NonNull;

use crate::allocator::Allocator;
use crate::arena::Arena;
use crate::heap::Heap;
use crate::large_cache::Places;
use crate::options::Name;
use crate::os;
use crate::registry::{COMMON, Registry, WARM};
use crate::size_class::{self, CLASSES, Class, LONG};
use crate::sync::{self, Ordering};
use crate::units::ARENAS;

/// Arenas for each processor, beside that for threads without a heap, unless `AMPLE_ARENAS` says otherwise: heaps beyond share them, and so the room that each would keep in spans of its own. (As many as glibc makes.)
pub(crate) const ARENAS_PER_PROCESSOR: usize = 8;

impl Allocator {
    /// A heap for the calling thread; `None`: no memory.
    pub fn attach(&self) -> Option<&'static Heap> {
        let mut registry = self.registry.lock();
        if let Some(warm) = registry.take_warm() {
            if let Some(arena) = warm.arena() {
                arena.inbox.open();
            }
            return Some(warm);
        }
        self.common_arena_in(&mut registry)?;
        let arena = match registry.orphan() {
            Some(index) => self.arena(index),
            None => match self.create_arena(&mut registry) {
                Some(arena) => arena,
                None => self.arena(registry.least_used()?),
            },
        };
        let record = match registry.spares.take() {
            Some(record) => record,
            None => self.meta.lock().record()?,
        };
        let users = registry.users(arena.index);
        if *users == 0 {
            arena.inbox.open();
        }
        *users += 1;
        let heap = Heap::write_to(record);
        heap.settle(arena, self.pool_of(arena));
        self.apply_options(heap);
        registry.list(heap);
        self.budget.share_out(registry.count_of_heaps());
        Some(heap)
    }

    /// The arena that the heaps of `arena` take blocks of pooled classes from: `arena` itself, or, beyond as many as there are processors, one of those.
    /// Such blocks may come from anywhere, and what a thread that waits for a processor does not use would be room of spans of its own that nobody uses.
    fn pool_of(&self, arena: &Arena) -> &'static Arena {
        let first = usize::from(COMMON + 1);
        let place = usize::from(arena.index).saturating_sub(first) % os::processors();
        self.arena((first + place) as u16)
    }

    /// Takes a heap back. It stays warm for a while: a thread that begins soon gets it with its magazines, but for full ones of longer
    /// blocks, which may never be asked for again. Of many such heaps the longest unused is emptied.
    ///
    /// # Safety
    /// The heap came from [`Allocator::attach`] of this allocator, and its thread uses it no more.
    pub unsafe fn detach(&self, heap: &'static Heap) {
        heap.claim.enter();
        let is_long = |class: &Class| size_class::of(*class).size >= LONG;
        (1..=CLASSES).filter(is_long).for_each(|class| self.flush_depot(heap, class, true));
        self.empty_large(heap);
        heap.claim.leave();
        let coldest = {
            let mut registry = self.registry.lock();
            // Nobody reads it any more: from now on blocks go straight back to their spans, which they would pin.
            if let Some(arena) = heap.arena()
                && *registry.users(arena.index) == 1
            {
                self.flush_linked(arena.inbox.close());
            }
            registry.keep_warm(heap, os::processors().min(WARM))
        };
        if let Some(coldest) = coldest {
            self.retire(coldest);
        }
    }

    /// Gives back all that a heap holds, and its record.
    fn retire(&self, heap: &'static Heap) {
        let Some(arena) = heap.arena() else { return };
        // It is still listed: somebody who tends idle heaps may be about to claim it.
        heap.claim.enter();
        self.flush(heap);
        heap.claim.leave();
        let mut registry = self.registry.lock();
        let users = registry.users(arena.index);
        *users -= 1;
        if *users == 0 {
            self.flush_linked(arena.inbox.close());
            arena.release_empty(self.below());
        }
        registry.unlist(heap);
        if let Some(places) = heap.large.close() {
            // SAFETY: only this function knows the heap, and it has given them up.
            unsafe { registry.places.put(NonNull::from(places)) };
        }
        // SAFETY: only this function knows the heap.
        unsafe { registry.spares.put(NonNull::from(heap)) };
        self.budget.share_out(registry.count_of_heaps());
    }

    /// Places for a cache of large blocks: all zeros; `None`: no memory.
    pub(crate) fn large_places(&self) -> Option<&'static Places> {
        let spare = self.registry.lock().places.take();
        let record = match spare {
            // SAFETY: a record of that size, which is nobody's.
            Some(spare) => unsafe {
                spare.write_bytes(0, 1);
                spare
            },
            None => self.meta.lock().record()?,
        };
        // SAFETY: all zeros are places, and records are never unmapped.
        Some(unsafe { record.as_ref() })
    }

    /// Whether several threads have heaps. (Those that are kept warm are no thread's.)
    pub(crate) fn has_several_threads(&self) -> bool {
        self.registry.lock().count_of_threads() > 1
    }

    /// Empties the heaps that no thread uses.
    pub(crate) fn retire_warm(&self) {
        for index in 0..WARM {
            let warm = self.registry.lock().take_warm_at(index);
            if let Some(heap) = warm {
                self.retire(heap);
            }
        }
    }

    /// The arena for threads without a heap: those that have ended it, and those for which there is no memory.
    pub(crate) fn common_arena(&self) -> Option<&'static Arena> {
        // Acquire: pairs with the Release in `create_arena`.
        let arena = self.tables.arenas[usize::from(COMMON)].load(Ordering::Acquire);
        // SAFETY: arenas live for ever.
        unsafe { arena.as_ref() }.or_else(|| self.common_arena_in(&mut self.registry.lock()))
    }

    fn common_arena_in(&self, registry: &mut Registry) -> Option<&'static Arena> {
        if registry.count < COMMON {
            let common = self.create_arena(registry)?;
            // Nobody empties this inbox: blocks go straight back to its spans.
            self.flush_linked(common.inbox.close());
        }
        Some(self.arena(COMMON))
    }

    fn create_arena(&self, registry: &mut Registry) -> Option<&'static Arena> {
        let index = registry.count + 1;
        let wanted = match self.options.get(Name::Arenas) {
            0 => ARENAS_PER_PROCESSOR * os::processors(),
            wanted => wanted,
        };
        if usize::from(index) > (usize::from(COMMON) + wanted).min(ARENAS - 1) {
            return None;
        }
        let record = self.meta.lock().record::<Arena>()?;
        let arena = Arena::write_to(record, index);
        self.tables.depots.spread_over(os::processors());
        // Release: pairs with the Acquire in `arena` and `common_arena`.
        self.tables.arenas[usize::from(index)].store(record.as_ptr(), Ordering::Release);
        registry.count = index;
        Some(arena)
    }

    /// Whether anybody holds a lock: a hint where there are other threads.
    pub(crate) fn is_locked(&self) -> bool {
        let mut held = false;
        self.each_lock(&mut |lock| held |= lock.is_held());
        held
    }

    /// Takes every lock, in the order in which nested ones are taken, so that no other thread is inside the allocator's shared state when
    /// the process forks.
    pub fn before_fork(&self) {
        self.each_lock(&mut |lock| {
            lock.acquire();
        });
        sync::set_forking(true);
    }

    /// Gives every lock back, in the parent after a fork.
    pub fn after_fork_in_parent(&self) {
        sync::set_forking(false);
        self.each_lock(&mut |lock| lock.release());
    }

    /// Gives every lock back in the child, where only the calling thread lives on (with `heap`, if it has one), and makes the
    /// other threads' arenas orphans. What their magazines held stays lost to the child.
    pub fn after_fork_in_child(&self, heap: Option<&'static Heap>) {
        sync::set_forking(false);
        self.each_lock(&mut |lock| lock.release());
        self.tables.pages.forget_marks(self.ground());
        self.eager.forget_turn();
        let mut registry = self.registry.lock();
        // They are lost, with what they hold.
        registry.forget_others(heap);
        for index in COMMON + 1..=registry.count {
            let is_its = |heap: &&Heap| heap.arena().is_some_and(|arena| arena.index == index);
            let users = registry.heaps().filter(is_its).count() as u32;
            if mem::replace(registry.users(index), users) > 0 && users == 0 {
                self.flush_linked(self.arena(index).inbox.close());
            }
        }
        self.budget.share_out(registry.count_of_heaps());
    }

    #[inline(never)]
    fn each_lock(&self, visit: &mut dyn FnMut(&crate::sync::RawLock)) {
        visit(self.registry.raw());
        for arena in &self.tables.arenas {
            // Acquire: pairs with the Release in `create_arena`, which cannot run while the registry is locked.
            // SAFETY: arenas live for ever.
            if let Some(arena) = unsafe { arena.load(Ordering::Acquire).as_ref() } {
                visit(arena.raw_lock());
            }
        }
        self.tables.depots.parts().for_each(|part| visit(part.raw_lock()));
        self.tables.pages.all().iter().for_each(|heap| visit(heap.raw()));
        visit(self.spares.raw());
        visit(self.meta.raw());
    }
}
