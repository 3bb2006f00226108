//! Several page heaps side by side, each with its own lock; no run is split or merged between two of them. All arenas begin at the
//! first one; an arena that often finds the lock of its page heap taken moves on to the next. So a program whose threads rarely
//! meet keeps its free memory in one place, and one whose threads do meet spreads over as many locks as there are processors.
//! A thread that has one large block at a time takes it from a page heap that it shares with few such threads.
//! (glibc chooses arenas in this way; jemalloc has a page heap for each arena. Here page heaps also take dirty runs from each other.)

use core::cell::Cell;
use core::mem::offset_of;

use super::queue::Queue;
use super::shared::PAGE_HEAPS;
use super::{Ground, PageHeap, Run, Source};
use crate::os;
use crate::span::{Span, Use};
use crate::statistics::Statistics;
use crate::sync::{AtomicU8, Guard, Lock, Ordering, OwnLine};

/// The number of runs that an arena asks for between two looks at how often it met others, …
const WINDOW: u8 = 32;
/// … and at how many of these it must have found the lock taken to move on to the next page heap.
pub(super) const MEETINGS: u8 = 8;

/// Where an arena's runs come from. Guarded by nothing: each part is a hint.
pub(crate) struct Home {
    page_heap: AtomicU8,
    /// Runs asked for in this window, and how often the lock was taken.
    asked: AtomicU8,
    met: AtomicU8,
}

impl Home {
    /// At the first page heap.
    pub(crate) const fn new() -> Self {
        Self { page_heap: AtomicU8::new(0), asked: AtomicU8::new(0), met: AtomicU8::new(0) }
    }
}

#[cfg(test)]
impl Home {
    /// At another one.
    pub(super) fn at(page_heap: u8) -> Self {
        Self { page_heap: AtomicU8::new(page_heap), ..Self::new() }
    }

    pub(super) fn met(&self) -> u8 {
        // Relaxed: nothing else is learned from it.
        self.met.load(Ordering::Relaxed)
    }
}

/// See the module. A new one is all zeros, so that those of the process cost no memory until they are entered.
#[repr(C)]
pub(crate) struct PageHeaps {
    /// Threads that have one large block at a time, counted.
    apart: AtomicU8,
    /// One more than the last that was ever entered: the others hold nothing, and a look at their locks would cost each its pages.
    entered: AtomicU8,
    heaps: [OwnLine<Lock<PageHeap>>; PAGE_HEAPS],
}

impl PageHeaps {
    pub(crate) const fn new() -> Self {
        Self {
            apart: AtomicU8::new(0),
            entered: AtomicU8::new(0),
            heaps: [const { OwnLine(Lock::new(PageHeap::new())) }; PAGE_HEAPS],
        }
    }

    /// Where the page heaps lie: the first one, and how far the next one is.
    pub(crate) const fn place() -> [usize; 2] {
        [offset_of!(Self, heaps) + Lock::<PageHeap>::inside(), size_of::<OwnLine<Lock<PageHeap>>>()]
    }

    /// Where in each of them lies what its statistics are made of: units got from the system, in free runs, in dirty ones, in spans of small blocks, in
    /// starters; and how many large blocks there are.
    pub(crate) const fn places_of_units() -> [usize; 6] {
        [
            offset_of!(PageHeap, mapped),
            offset_of!(PageHeap, free_units),
            offset_of!(PageHeap, queue) + Queue::place_of_units(),
            offset_of!(PageHeap, small_units),
            offset_of!(PageHeap, mixed_units),
            offset_of!(PageHeap, large_blocks),
        ]
    }

    /// The locks, in the order in which they nest.
    pub(crate) fn all(&self) -> &[OwnLine<Lock<PageHeap>>; PAGE_HEAPS] {
        &self.heaps
    }

    /// Those that may hold anything. (A hint: one that is entered just now may be missing.)
    #[inline(never)]
    pub(super) fn entered(&self) -> &[OwnLine<Lock<PageHeap>>] {
        // Relaxed: a hint.
        &self.heaps[..usize::from(self.entered.load(Ordering::Relaxed))]
    }

    /// The page heap that a run belongs to.
    #[inline(never)]
    pub(crate) fn of(&self, span: &Span) -> Guard<'_, PageHeap> {
        self.heaps[usize::from(span.page_heap) % PAGE_HEAPS].lock()
    }

    /// As [`PageHeap::free`].
    pub(crate) fn free(&self, ground: Ground, span: &'static Span) {
        self.of(span).free(ground, span);
    }

    /// A run as [`PageHeap::allocate`] gives it. For a starter, which touches little of it, a clean one where [`Shared::spares_dirty`](super::Shared::spares_dirty) says so: what is left of a huge page
    /// is worth more to others. For a large block without a whole chunk one out of a fresh huge page, if the program fills such blocks.
    pub(crate) fn allocate(&self, ground: Ground, home: &Home, run: Run) -> Option<&'static Span> {
        if run.usage == Use::Mixed && ground.shared.spares_dirty() {
            let span = self.enter(home).1.allocate(ground, run, Source::Clean);
            return span.or_else(|| self.anywhere(ground, run));
        }
        let take = |heap: &mut PageHeap| heap.allocate(ground, run, Source::Dirty);
        let (index, mut own) = match self.dirty(ground, home, run.units, take) {
            Ok(span) => return Some(span),
            Err(home) => home,
        };
        if own.wants_huge_page_for(ground, run) {
            own = self.bring_huge_page(ground, index, own);
        }
        own.allocate(ground, run, Source::Any).or_else(|| {
            drop(own);
            self.anywhere(ground, run)
        })
    }

    /// As [`PageHeap::allocate_with_room`], in the page heap that an arena takes its runs from.
    pub(crate) fn allocate_with_room(
        &self,
        ground: Ground,
        home: &Home,
        units: usize,
    ) -> Option<&'static Span> {
        self.enter(home).1.allocate_with_room(ground, units)
    }

    /// As [`PageHeap::would_grow`], of the page heap that an arena takes its runs from.
    pub(crate) fn would_grow(&self, home: &Home, units: usize) -> bool {
        // Relaxed: a hint.
        let index = usize::from(home.page_heap.load(Ordering::Relaxed)) % PAGE_HEAPS;
        self.heaps[index].lock().would_grow(units)
    }

    /// A run for a thread that has one large block at a time, from the page heap of few such threads: what it frees is there when it asks again, and
    /// lies where it lay, so that it touches the same pages; in one page heap for all, whoever is first takes the beginning of what another freed.
    /// `None`: there is no memory in that one.
    pub(crate) fn allocate_apart(
        &self,
        ground: Ground,
        page_heap: &Cell<u8>,
        run: Run,
    ) -> Option<&'static Span> {
        if page_heap.get() == 0 {
            // Relaxed: each gets another number.
            let number = usize::from(self.apart.fetch_add(1, Ordering::Relaxed));
            page_heap.set((number % apart()) as u8 + 1);
        }
        let index = usize::from(page_heap.get()) - 1;
        self.note_entered(index);
        let mut heap = self.heaps[index].lock();
        heap.page_heap = index as u8;
        heap.allocate(ground, run, Source::Any)
    }

    fn note_entered(&self, index: usize) {
        if self.entered().len() <= index {
            // Relaxed: a hint.
            self.entered.fetch_max(index as u8 + 1, Ordering::Relaxed);
        }
    }

    /// The page heap that an arena takes its runs from, and its index.
    fn enter(&self, home: &Home) -> (usize, Guard<'_, PageHeap>) {
        // Relaxed, here and below: hints.
        let index = usize::from(home.page_heap.load(Ordering::Relaxed)) % PAGE_HEAPS;
        let asked = home.asked.load(Ordering::Relaxed) + 1;
        home.asked.store(asked % WINDOW, Ordering::Relaxed);
        if asked == WINDOW {
            // Relaxed: as above.
            home.met.store(0, Ordering::Relaxed);
        }
        self.note_entered(index);
        let mut own = self.heaps[index].try_lock().unwrap_or_else(|| self.meet(home, index));
        own.page_heap = index as u8;
        (index, own)
    }

    /// Waits for a page heap, and moves on to the next where that happens often.
    #[cold]
    fn meet(&self, home: &Home, index: usize) -> Guard<'_, PageHeap> {
        // Relaxed, here and below: hints.
        let met = home.met.load(Ordering::Relaxed) + 1;
        home.met.store(met % MEETINGS, Ordering::Relaxed);
        if met == MEETINGS {
            let next = (index + 1) % used();
            // Relaxed: as above.
            home.page_heap.store(next as u8, Ordering::Relaxed);
        }
        self.heaps[index].lock()
    }

    /// What `take` finds that is dirty: in the arena's page heap, or in another one that has `units` dirty ones, if that is not in use, or if the arena's would
    /// grow by much otherwise. Where there is nothing, the arena's page heap and its index.
    pub(super) fn dirty(
        &self,
        ground: Ground,
        home: &Home,
        units: usize,
        mut take: impl FnMut(&mut PageHeap) -> Option<&'static Span>,
    ) -> Result<&'static Span, (usize, Guard<'_, PageHeap>)> {
        let (index, mut own) = self.enter(home);
        if let Some(span) = take(&mut own) {
            return Ok(span);
        }
        let others = || ground.shared.with_dirty(units).filter(|&other| other != index);
        if others().next().is_none() {
            return Err((index, own));
        }
        let waits = own.waits_rather_than_grow(units);
        // Nobody waits for one lock while he holds another.
        drop(own);
        let found =
            others().filter_map(|other| self.heaps[other].try_lock()).find_map(|mut heap| take(&mut heap));
        let mut in_use = others().filter(|_| waits).map(|other| self.heaps[other].lock());
        found
            .or_else(|| in_use.find_map(|mut heap| take(&mut heap)))
            .ok_or_else(|| (index, self.heaps[index].lock()))
    }

    /// A run from any page heap that has one: the system gives no more.
    #[cold]
    pub(super) fn anywhere(&self, ground: Ground, run: Run) -> Option<&'static Span> {
        self.entered().iter().find_map(|heap| heap.lock().allocate(ground, run, Source::Free))
    }

    /// As [`PageHeap::purge_all`], in all page heaps.
    pub(crate) fn purge_all(&self, ground: Ground) -> bool {
        self.entered().iter().filter(|heap| heap.lock().purge_all(ground)).count() > 0
    }

    /// If there is `more` free in a span's page heap than there should be: gives it back, slice by slice. Others may use the page heap in between.
    pub(crate) fn purge_excess_beside(&self, ground: Ground, span: &Span, mut more: bool) {
        while more {
            more = self.of(span).purge_excess(ground);
        }
    }

    /// As [`PageHeap::purge_excess`], in all page heaps.
    pub(crate) fn purge_excess(&self, ground: Ground) {
        for heap in self.entered() {
            while heap.lock().purge_excess(ground) {}
        }
    }

    /// Units of spans, large blocks and dirty runs, and those of the dirty runs: of the first page heap, which has all in a program of one thread, as it is; of the
    /// others as far as they have told.
    pub(crate) fn resident_and_dirty(&self, ground: Ground) -> [usize; 2] {
        let total = self.heaps[0].lock().total(ground.shared);
        [total.resident, total.dirty]
    }

    /// In the child of a fork: what threads were about to mark that are not here others may have.
    pub(crate) fn forget_marks(&self, ground: Ground) {
        for heap in self.entered() {
            let mut heap = heap.lock();
            heap.marks_are_set();
            heap.end_marks(ground);
        }
    }

    /// As [`PageHeap::has_dirty`], in any page heap.
    pub(crate) fn has_dirty(&self, ground: Ground) -> bool {
        self.entered().iter().any(|heap| heap.lock().has_dirty(ground))
    }

    /// What the page heap knows of the heap's statistics.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for heap in self.entered() {
            heap.lock().count(&mut sum);
        }
        sum
    }
}

/// How many page heaps arenas go round: one for each processor. What is dirty in one is of no use to most arenas at the others.
fn used() -> usize {
    os::processors().min(PAGE_HEAPS)
}

/// How many those threads do that have one large block at a time: two for each, since they choose without looking, and should not choose the same.
fn apart() -> usize {
    (2 * os::processors()).min(PAGE_HEAPS)
}

/// A run of one large block.
pub(crate) fn large(units: usize, align: usize) -> Run {
    Run { units, align, usage: Use::Large }
}
