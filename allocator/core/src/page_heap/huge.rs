//! Huge pages for large heaps of small blocks.

use super::filled::SHARES_MOST;
use super::marked::Marks;
use super::{Ground, Home, PageHeap, PageHeaps, Run, Source};
use crate::options::Name;
use crate::os;
use crate::span::{Span, Use};
use crate::sync::{AtomicI64, AtomicU8, AtomicUsize, Guard, Ordering};
use crate::units::{CHUNK, UNIT};

/// Units in spans of small blocks from which on fresh ones come in huge pages: 8 MiB. The unused part of a huge page is a
/// quarter of the heap at most, and less the larger the heap.
pub(super) const HUGE_FROM: usize = (8 << 20) / UNIT;

/// Makes memory of the heap do without huge pages until it is marked for them, also where the system gives them to all memory, as Debian's and Red Hat's do. A small heap would have one for its
/// first block, and a large block one for a few of its pages; and the system would fill again what is given back of either.
///
/// # Safety
/// It is memory of [`os::map`], of which nobody marked any.
pub(super) unsafe fn bar(start: usize, bytes: usize) {
    // SAFETY: the caller's contract. Where the system refuses there may be such pages.
    unsafe { os::mark(start, bytes, false) };
}

/// What the page faults cost that a huge page saves. (Where a virtual machine tells its host which memory is free, the first use of each 4 KiB of a
/// huge page may be a fault there: 2.8 ms were seen instead of 0.1.)
const SAVED_US: i64 = 700;
/// What huge pages may cost beyond what they save, all in all, and what they may have saved before at most.
const LOSS_MAX_US: i64 = 2500;
const GAIN_MAX_US: i64 = 50_000;
/// How long none is asked for after that, in milliseconds.
const DEAR_MS: usize = 10_000;

/// Whether the system gives huge pages, once somebody has asked.
pub(super) struct HugePages {
    known: AtomicU8,
    /// What they saved so far, in microseconds.
    gain_us: AtomicI64,
    /// Until when huge pages are too dear, in milliseconds of `os::now_ms`.
    dear_until_ms: AtomicUsize,
}

impl HugePages {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    pub(super) const fn new() -> Self {
        Self {
            known: AtomicU8::new(Self::UNKNOWN),
            gain_us: AtomicI64::new(0),
            dear_until_ms: AtomicUsize::new(0),
        }
    }

    /// Whether there are any for what is marked: not if nobody wants them, the system has refused one, or they are too dear at the moment.
    pub(super) fn are_given(&self, ground: Ground) -> bool {
        // Relaxed: a hint.
        let dear_until = self.dear_until_ms.load(Ordering::Relaxed);
        if dear_until > 0 && dear_until > os::now_ms() as usize {
            return false;
        }
        // Relaxed, here and below: everybody comes to the same result.
        match self.known.load(Ordering::Relaxed) {
            Self::UNKNOWN => {}
            known => return known == Self::YES,
        }
        let given = ground.options.is_on(Name::HugePages) && os::huge_pages();
        // Relaxed: as above.
        self.known.store(if given { Self::YES } else { Self::NO }, Ordering::Relaxed);
        given
    }

    /// What `make` returns, which makes the first of `pages` huge pages; and whether such pages are still worth their time. If that one was dear, so will
    /// be the others.
    #[inline(always)]
    pub(super) fn judge<T>(&self, pages: usize, make: impl FnOnce() -> T) -> (T, bool) {
        let before = os::worked_us();
        let made = make();
        (made, self.are_worth(pages, os::worked_us().saturating_sub(before)))
    }

    /// The same of so many that cost `cost` microseconds each.
    #[inline(never)]
    fn are_worth(&self, pages: usize, cost: u64) -> bool {
        let gain = SAVED_US.saturating_sub(cost as i64);
        let gain = if gain < 0 { gain.saturating_mul(pages as i64) } else { gain };
        // Relaxed, here and below: hints.
        let gain = self.gain_us.load(Ordering::Relaxed).saturating_add(gain);
        let worth = gain > -LOSS_MAX_US;
        let gain = if worth { gain.min(GAIN_MAX_US) } else { 0 };
        // Relaxed: as above.
        self.gain_us.store(gain, Ordering::Relaxed);
        if !worth {
            // Relaxed: as above.
            self.dear_until_ms.store(os::now_ms() as usize + DEAR_MS, Ordering::Relaxed);
        }
        worth
    }

    /// The system has refused one.
    pub(super) fn refuse(&self) {
        // Relaxed: as above.
        self.known.store(Self::NO, Ordering::Relaxed);
    }
}

/// What an arena wants for small blocks.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Units of which it takes any multiple, where only a shorter dirty run is free.
    pub(crate) least: usize,
    /// Units that it would like to have, a multiple of those.
    pub(crate) most: usize,
    /// Whether it will use all of its pages soon: others would be resident for nothing in a huge page.
    pub(crate) densely: bool,
    /// Whether its blocks are no larger than a page: see `dense`.
    pub(crate) short: bool,
}

/// A run for small blocks.
fn small(units: usize) -> Run {
    Run { units, align: UNIT, usage: Use::Small }
}

impl PageHeaps {
    /// A span for small blocks. (A longer one than wanted where a run cannot be split for lack of memory for records.)
    pub(crate) fn allocate_small(
        &self,
        ground: Ground,
        home: &Home,
        wanted: Wanted,
    ) -> Option<&'static Span> {
        let Wanted { least, most, densely, short } = wanted;
        let take = |heap: &mut PageHeap| heap.allocate_dirty_small(ground, wanted);
        let (index, mut heap) = match self.dirty(ground, home, least, take) {
            Ok(span) => return Some(span),
            Err(home) => home,
        };
        let mut units = most;
        if densely && heap.wants_huge_page(ground, most) {
            if short && ground.shared.dense.wants_example() {
                units = least;
            } else {
                heap = self.bring_huge_page(ground, index, heap);
            }
        }
        let span = heap.allocate(ground, small(units), Source::Any);
        let span = span.or_else(|| heap.allocate(ground, small(least), Source::Any));
        span.or_else(|| {
            drop(heap);
            self.anywhere(ground, small(least))
        })
    }

    /// Puts a huge page among the dirty runs of a page heap, whose lock is given up meanwhile.
    pub(super) fn bring_huge_page<'a>(
        &'a self,
        ground: Ground,
        index: usize,
        mut heap: Guard<'a, PageHeap>,
    ) -> Guard<'a, PageHeap> {
        let Some((page, marks)) = heap.next_for_huge_page(ground) else { return heap };
        // To make it takes the system as long as a hundred spans take us: other threads need not wait.
        drop(heap);
        let (start, end) = (page.start.get(), page.end());
        // SAFETY: memory of this page heap; what is marked beyond the page is free.
        let mark = |from: usize, to: usize, huge| unsafe { os::mark(from, to - from, huge) };
        let marked = match marks {
            Marks::ComingTo(end) => {
                let marked = mark(start, end, true);
                // Others go without no longer than that: the first touch takes longer, and its thread may wait for a processor meanwhile.
                self.all()[index].lock().marks_are_set();
                marked
            }
            Marks::There | Marks::LastFrom(_) => true,
        };
        let make = || match marks {
            Marks::There | Marks::LastFrom(_) => {
                // As the first of them was. (To ask the system whether it is there would be to wait for whoever changes mappings.)
                // SAFETY: the page is ours alone.
                unsafe { os::touch(start) };
                true
            }
            // SAFETY: as above.
            Marks::ComingTo(_) => unsafe { os::collapse(start, CHUNK, marked) },
        };
        let (made, cheap) = ground.shared.huge_pages.judge(1, make);
        if let Marks::LastFrom(from) = marks {
            mark(from, end, false);
        }
        let mut heap = self.all()[index].lock();
        if !(made && cheap && marked) {
            heap.end_marks(ground);
        }
        heap.put_huge_page(ground, page, made);
        heap
    }
}

impl PageHeap {
    /// As much of a dirty run as is wanted.
    #[inline(never)]
    fn allocate_dirty_small(&mut self, ground: Ground, wanted: Wanted) -> Option<&'static Span> {
        let Wanted { least, most, .. } = wanted;
        let run = self.dirty.find(most).or_else(|| self.dirty.find(least))?;
        let units = (run.units.get() / least * least).min(most);
        self.allocate(ground, small(units), Source::Dirty)
    }

    /// Whether a run of `wanted` units for small blocks should come from a fresh huge page: many small blocks live, and no dirty
    /// run is long enough.
    fn wants_huge_page(&self, ground: Ground, wanted: usize) -> bool {
        self.total(ground.shared).small >= HUGE_FROM
            && wanted <= CHUNK / UNIT
            && self.dirty.find(wanted).is_none()
            && ground.shared.huge_pages.are_given(ground)
    }

    /// The same of a run for a large block without a whole chunk, if the program fills such blocks and has not said how much may stay free.
    pub(super) fn wants_huge_page_for(&self, ground: Ground, run: Run) -> bool {
        run.usage == Use::Large
            && run.units <= SHARES_MOST
            && self.mapped - self.free_units >= HUGE_FROM
            && ground.shared.huge_pages.are_given(ground)
            && !ground.options.thresholds.returns_at_once(run.units * UNIT)
            && ground.options.thresholds.kept().is_none()
            && ground.shared.fills_short()
    }

    /// Puts a huge page among the dirty runs, or, if the system has not made one of it, among the clean ones. A huge page costs an eighth
    /// of what its page faults would, and its blocks need one entry of the TLB. What is not used of it is purged like any dirty
    /// run.
    fn put_huge_page(&mut self, ground: Ground, page: &'static Span, made: bool) {
        if made {
            page.dirty.set(true);
            page.since_ms.set(os::now_ms());
        } else {
            ground.shared.huge_pages.refuse();
        }
        self.large_blocks -= 1;
        self.link(ground, page);
    }
}
