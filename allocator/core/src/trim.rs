//! What heaps, inboxes and depots keep for later, and how they give it back: when time has passed, when a thread ends, when memory is short.

use core::ptr::NonNull;

use crate::allocator::{Allocator, SPARES_AT_ONCE};
use crate::heap::Heap;
use crate::magazine::{Magazine, Stack};
use crate::os;
use crate::size_class::{CLASSES, Class};
use crate::sync::Ordering;

/// Empty magazines that a heap still has after a trim.
const SPARES_TRIMMED: u32 = 8;
/// Bytes in a private depot, of all classes and as it counts them, from which on it takes magazines of each class in order only, beyond what it may have in none. A class
/// that holds less than a megabyte, from which on the same goes for one class ([`Allocator::bound_disorder`]), never counts for so much alone.
const UNORDERED_IN_ALL: usize = 12 << 20;
/// Milliseconds between two trims of a private depot.
const TRIM_MS: u64 = 500;
/// Trims that a program may ask for in a row before it must keep to a pace.
const TRIMS_AT_ONCE: u64 = 8;
/// The pace, in milliseconds for each: where a helper thread gives back what has been free for long, and where nobody does.
const PACE_TENDED_MS: u64 = 500;
const PACE_ALONE_MS: u64 = 125;
/// So many quarters of what is in memory go back at any pace, where nobody would give them back later, if they are [some megabytes](crate::eager::Free::is_much).
const MUCH_QUARTERS: usize = 1;
/// Calls into the system for holes at a trim where no helper thread looks for them, as a `Batch` counts them: a quarter of a millisecond.
const HOLES_ALONE: usize = 128;

impl Allocator {
    /// Gives all of an inbox's blocks back to the spans.
    pub(crate) fn flush_linked(&self, first: *mut Magazine) {
        let (arrived, emptied) = (Stack::from_linked(first), Stack::new());
        while let Some(magazine) = arrived.pop() {
            // SAFETY: records in an inbox are live, and were taken out by the caller.
            self.give_back_all(unsafe { magazine.as_ref() }, true);
            emptied.push(magazine);
        }
        if emptied.len() > 0 {
            self.spares.lock().put(&emptied);
        }
    }

    /// Gives everything that a heap holds back. The heap is as good as new afterwards.
    pub(crate) fn flush(&self, heap: &Heap) {
        (1..=CLASSES).for_each(|class| self.flush_class(heap, class));
        self.trim_spares(heap, 0);
        self.empty_large(heap);
    }

    /// Gives back what a heap holds of one class, with all magazines of it.
    pub(crate) fn flush_class(&self, heap: &Heap, class: Class) {
        let bin = &heap.bins[class];
        let loaded = heap.loaded(class);
        let kept = [loaded, NonNull::new(bin.previous.get()), NonNull::new(bin.outgoing.get())];
        heap.unload(class);
        for magazine in kept.into_iter().flatten() {
            // SAFETY: the magazines are this heap's.
            self.give_back_all(unsafe { magazine.as_ref() }, true);
            self.put_spare(heap, magazine);
        }
        while let Some(magazine) = heap.fetch(class) {
            self.shed(heap, class, magazine);
        }
    }

    /// Gives back the blocks of the previous magazine of `class`, and of those in the private depot. `for_others`: see [`Allocator::give_back_all`].
    pub(crate) fn flush_depot(&self, heap: &Heap, class: Class, for_others: bool) {
        // SAFETY: a heap's magazines are live.
        if let Some(previous) = unsafe { heap.bins[class].previous.get().as_ref() } {
            self.give_back_all(previous, for_others);
        }
        while let Some(magazine) = heap.fetch(class) {
            // SAFETY: as above.
            self.give_back_all(unsafe { magazine.as_ref() }, for_others);
            self.put_spare(heap, magazine);
        }
    }

    /// Gives back the blocks in the shared depots.
    pub(crate) fn empty_depots(&self) {
        for class in 1..=CLASSES {
            while let Some(magazine) = self.tables.depots.take(class, 0).into_linked() {
                self.flush_linked(magazine.as_ptr());
            }
        }
    }

    /// Gives back all that this thread's heap, the heaps of ended threads and the shared depots hold, and all free
    /// memory to the system: the last resort before 'no memory'. Whether anything went back to the system.
    #[cold]
    pub(crate) fn reclaim(&self, heap: &Heap) -> bool {
        // An inert heap holds nothing, and is shared.
        if heap.arena().is_some() {
            self.flush(heap);
        }
        self.retire_warm();
        self.empty_depots();
        for arena in self.existing_arenas() {
            arena.release_empty(self.below());
        }
        self.tables.pages.purge_all(self.ground())
    }

    /// Gives back whatever nobody uses: what idle threads and this one keep, and all free memory. Whether anything went
    /// back to the system.
    pub fn trim(&self, heap: &Heap) -> bool {
        // Twice: the first look only sees who is active.
        self.empty_idle_heaps();
        self.empty_idle_heaps();
        let reclaimed = self.reclaim(heap);
        // Twice: the first look only sees which spans are quiet.
        self.purge_holes();
        self.purge_holes();
        reclaimed
    }

    /// As [`Allocator::trim`] for programs that ask for it by habit, after every so many frees or every request, as protobuf's Python library does: no more often than pays, since
    /// what they free they need again at once. `false`, too: not now.
    pub fn trim_at_pace(&self, heap: &Heap) -> bool {
        let now = os::now_ms();
        // Relaxed: a hint.
        let tended =
            self.shared.tended.load(Ordering::Relaxed) != 0 && self.options.thresholds.kept().is_none();
        let pace = if tended { PACE_TENDED_MS } else { PACE_ALONE_MS };
        // Relaxed: a hint. What came at the slower pace counts no longer than what comes at this one.
        let due =
            (self.shared.trim_due_ms.load(Ordering::Relaxed) as u64).clamp(now, now + pace * TRIMS_AT_ONCE);
        let in_time = due - now <= pace * (TRIMS_AT_ONCE - 1);
        let next = if in_time { due + pace } else { due };
        // Relaxed: a hint. Of two threads that come at the same moment one may be counted for both.
        self.shared.trim_due_ms.store(next as usize, Ordering::Relaxed);
        if !in_time && (tended || !self.free_in_memory().is_much(MUCH_QUARTERS)) {
            return false;
        }
        self.trim(heap)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn trim_by_clock(&self, heap: &Heap) {
        if heap.depot_bytes.get() > UNORDERED_IN_ALL {
            heap.orders.set(u64::MAX);
        }
        let now = os::now_ms();
        if now.wrapping_sub(heap.trimmed_ms.get()) < TRIM_MS {
            return;
        }
        heap.trimmed_ms.set(now);
        for class in 1..=CLASSES {
            let bin = &heap.bins[class];
            for _ in 0..bin.low.get() {
                if let Some(magazine) = heap.fetch(class) {
                    self.shed(heap, class, magazine);
                }
            }
            bin.allowed.set(bin.allowed.get().saturating_sub(bin.low.get()));
            bin.low.set(bin.full.len() as u16);
            bin.missed.set(bin.missed.get() / 2);
            heap.want_less(class);
        }
        if let Some(arena) = heap.arena()
            // Relaxed: a hint.
            && self.shared.tended.load(Ordering::Relaxed) == 0
        {
            arena.purge_holes(HOLES_ALONE);
        }
        self.trim_spares(heap, SPARES_TRIMMED);
        heap.spares.forget();
        if let Some(span) = heap.large.sparse() {
            // What earlier blocks touched there counts: it is memory too.
            self.ground().look_at_touched(span, true);
        }
        heap.large.trim(self.budget.large_more(), self.sparse_bound(), |span| self.free_run(span));
    }

    /// Gives empty magazines away until the heap keeps no more than `kept`.
    pub(crate) fn trim_spares(&self, heap: &Heap, kept: u32) {
        let spares = heap.spares.stack();
        while spares.len() > kept {
            let batch = Stack::new();
            while spares.len() > kept
                && batch.len() < SPARES_AT_ONCE
                && let Some(magazine) = spares.pop()
            {
                batch.push(magazine);
            }
            self.spares.lock().put(&batch);
        }
    }
}
