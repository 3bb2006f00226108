//! Large blocks: runs of units straight from the page heap, one block each.

use core::ptr::{self, NonNull};

use crate::allocator::{Allocator, EVENTS_PER_LOOK};
use crate::heap::Heap;
use crate::large_cache::{LARGEST, sparse};
use crate::options::Name;
use crate::os;
use crate::page_heap::{MOVED_FROM, large, with_room};
use crate::size_class::{LINE, SMALL_MAX};
use crate::span::Span;
use crate::sync;
use crate::units::{self, Entry, UNIT, UNKEPT};

/// A block that this allocator did not hand out (or that is no block at all).
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign;

/// Bytes of the largest block that a cache of large blocks may hold.
pub(crate) const KEPT_MAX: usize = LARGEST * UNIT;
/// Bytes from which on a block of zeros may be had by giving back what was there: more than those caches hold.
pub(crate) const CLEARED_FROM: usize = KEPT_MAX + 1;
/// One in so many of a heap's slow paths looks, when a large block is freed, how much of it was touched, although other blocks lay there before.
const EVENTS_PER_TOUCHED: u32 = 1024;
/// The pages of a block that is to be zero go back to the system, instead of being filled with zeros, if at most one in so many of them is in memory.
const SPARSE: usize = 16;

/// Makes a large block of at least `size` bytes that nobody uses yet zero by giving its pages back, if few are in memory: the others would all
/// be brought only to be filled with zeros. `false`: it is as it was.
///
/// # Safety
/// The block is a large one, in the first unit of its run, and the caller has just allocated it.
pub(crate) unsafe fn clear_sparse(block: *mut u8, size: usize) -> bool {
    let (start, bytes) = (block.addr() / UNIT * UNIT, units(size) * UNIT);
    os::resident(start, bytes, bytes / SPARSE).is_some_and(|there| there <= bytes / SPARSE)
        // SAFETY: the caller's contract.
        && unsafe { os::purge(start, bytes) }
}

/// Units of a large block of `size` bytes.
#[inline(always)]
fn units(size: usize) -> usize {
    size.div_ceil(UNIT).max(1)
}

/// Whether a large block begins in the unit with this entry, live or in a cache.
#[inline(always)]
fn begins_large(entry: Entry) -> bool {
    !units::is_small(entry) && units::large_in(entry) != 0
}

/// Bytes by which a block of `size` bytes, at a multiple of `align`, may lie later than its run begins without reaching into another page.
#[inline(always)]
fn slack(size: usize, align: usize) -> usize {
    if align <= LINE { size.wrapping_neg() % os::PAGE } else { 0 }
}

/// The line of a page on which longer blocks than caches keep begin, where they may. (The first two and the last two of a page are dear on some
/// processors, for who goes from page to page.)
const LONG_LINE: usize = 8;

/// Lines of a page.
const LINES: usize = os::PAGE / LINE;

/// Chooses where the block in a run begins: on one of the lines that its `slack` allows, by the run's address. Else all blocks would begin in the same
/// sets of the processor's caches, which hold a dozen lines each. (J. Bonwick's colouring, "The Slab Allocator", 1994; jemalloc takes a random line, for a
/// page more.) Of long ones there are few, and who touches a byte of each page finds the lines again that others touched: they have one line for all.
#[inline(never)]
fn colour(run: &Span, slack: usize) -> NonNull<u8> {
    // The golden ratio: neighbours lie far apart.
    let number = ((run.start.get() / UNIT) as u32).wrapping_mul(0x9E37_79B1) >> (u32::BITS - LINES.ilog2());
    run.colour.set((number as usize * LINE) as u16);
    if run.units.get() > LARGEST {
        run.offset.set((LONG_LINE.min(slack / LINE) * LINE) as u16);
        // SAFETY: no run begins at 0.
        return unsafe { NonNull::new_unchecked(block_of(run)) };
    }
    coloured(run, slack)
}

/// The block in a run that has a colour: on the line that is its colour if its `slack` allows that, or else on one of few others, so that it mostly lies where
/// the one before it lay, which may still be in the processor's caches.
#[inline(always)]
fn coloured(run: &Span, slack: usize) -> NonNull<u8> {
    let mask = (1 << (slack + LINE).ilog2()) - 1;
    run.offset.set(run.colour.get() & mask);
    // SAFETY: no run begins at 0.
    unsafe { NonNull::new_unchecked(block_of(run)) }
}

/// A block of `size` bytes at a multiple of `align`, up to [`UNIT`], in a run that lay in a cache.
#[inline(always)]
pub(crate) fn in_kept(run: &Span, size: usize, align: usize) -> NonNull<u8> {
    coloured(run, slack(size, align))
}

/// The block in a large run.
#[inline(always)]
fn block_of(run: &Span) -> *mut u8 {
    ptr::with_exposed_provenance_mut(run.start.get() + usize::from(run.offset.get()))
}

impl Allocator {
    /// The run for a large block of at least `size` bytes, up to [`KEPT_MAX`], that this thread freed lately: see [`in_kept`].
    #[inline(always)]
    pub(crate) fn take_kept(heap: &Heap, size: usize) -> Option<&'static Span> {
        heap.large.take(units(size))
    }

    /// A large block of at least `size` bytes at a multiple of `align` that this thread freed lately; null: there is none.
    #[inline(never)]
    pub(crate) fn take_freed(heap: &Heap, size: usize, align: usize) -> *mut u8 {
        if align > UNIT {
            return ptr::null_mut();
        }
        match Self::take_kept(heap, size) {
            Some(run) => in_kept(run, size, align).as_ptr(),
            None => Self::take_sparse(heap, size, align),
        }
    }

    /// The units of a live large block with this entry if [`Allocator::keep_large`] may keep it.
    #[inline(always)]
    pub(crate) fn keepable(entry: Entry) -> Option<usize> {
        if units::is_small(entry) {
            return None;
        }
        // `UNKEPT` is more than the largest.
        let units = units::large_in(entry);
        if units == 0 || units > LARGEST { None } else { Some(units) }
    }

    /// Keeps such a block of `units` for this thread, if it begins there, there is room (none where `AMPLE_CACHE` is 0), and no clock to look at. Else it is
    /// as it was, for [`Allocator::keep_sparse`].
    #[inline(always)]
    pub(crate) fn keep_large(&self, heap: &Heap, block: *mut u8, units: usize) -> bool {
        let bound = self.large_bound(heap);
        heap.large.has_room(units, bound)
            && self.keep(heap, block, units, |span| {
                heap.large.push(span, units);
                true
            })
    }

    /// The same for what there is no room for, beside it if the program touches little of such blocks. Else it is as it was, for [`Allocator::free_large`].
    #[inline(never)]
    pub(crate) fn keep_sparse(&self, heap: &Heap, block: *mut u8, units: usize) -> bool {
        let bound = self.sparse_bound();
        bound > 0 && self.keep(heap, block, units, |span| self.put_sparse(heap, span, bound))
    }

    fn put_sparse(&self, heap: &Heap, span: &'static Span, bound: usize) -> bool {
        heap.large.put_sparse(span, bound, self.ground().ends_are_clean())
    }

    #[inline(always)]
    fn keep(
        &self,
        heap: &Heap,
        block: *mut u8,
        units: usize,
        put: impl FnOnce(&'static Span) -> bool,
    ) -> bool {
        // SAFETY: its entry says that a large block begins there.
        let span = unsafe { self.units.span_of_block(block.addr()) };
        let kept = block == block_of(span)
            && !span.cached.get()
            && !heap.looks_next(EVENTS_PER_LOOK)
            && !self.options.thresholds.returns_at_once(units * UNIT)
            && put(span);
        if kept {
            // All of it serves again.
            span.granted.set(0);
            heap.count_event();
        }
        kept
    }

    /// Whether threads keep blocks like this one at all.
    #[inline(always)]
    fn keeps(&self, bytes: usize) -> bool {
        self.options.is_on(Name::Cache) && !self.options.thresholds.returns_at_once(bytes)
    }

    /// A large block of at least `size` bytes at a multiple of `align` (a power of two), and whether it may hold
    /// anything but zeros; null: no memory.
    pub(crate) fn allocate_large(&self, heap: &Heap, size: usize, align: usize) -> (*mut u8, bool) {
        if size > isize::MAX as usize {
            return (ptr::null_mut(), true);
        }
        if heap.arena().is_some() {
            heap.large.note_missed(units(size), self.budget.large_more(), heap.events());
            self.look_at_growth(heap);
        }
        heap.large.make_way(units(size), |short| self.free_run(short));
        let (least, wanted) = (units(size), self.length(units(size)));
        let run =
            |units, align| self.tables.pages.allocate(self.ground(), self.home(heap), large(units, align));
        let alone = || {
            let apart = heap.large.has_one_at_a_time(wanted);
            let run = large(wanted, align);
            apart
                .then(|| self.tables.pages.allocate_apart(self.ground(), &heap.large.page_heap, run))
                .flatten()
        };
        let elsewhere = || {
            let spread = self.ground().spread(wanted);
            let there = if spread > align { run(wanted, spread) } else { None };
            // Where the system gives no more, a hole may be long enough for the block alone.
            there
                .or_else(|| run(wanted, align))
                .or_else(|| if wanted > least { run(least, align) } else { None })
        };
        match alone().or_else(elsewhere) {
            Some(span) => {
                if !span.dirty.get() {
                    self.mark_fresh(span);
                }
                if heap.arena().is_some() {
                    heap.large.note_allocated(span);
                }
                self.hand_out(span);
                (colour(span, slack(size, align)).as_ptr(), span.dirty.get())
            }
            None => (ptr::null_mut(), true),
        }
    }

    /// Units that a heap may keep of freed blocks where the program touches little of them; 0: it touches much, or nothing is kept.
    #[inline(never)]
    pub(crate) fn sparse_bound(&self) -> usize {
        let keeps = self.options.is_on(Name::Cache) && !self.is_tight();
        if keeps { self.budget.large() * self.ground().kept_times() } else { 0 }
    }

    /// Units of a run for a block of `units`: where such blocks are sparse, as many as all blocks of a class have.
    fn length(&self, units: usize) -> usize {
        if self.sparse_bound() > 0 { sparse::length(units) } else { units }
    }

    /// A large block of at least `size` bytes out of those that are kept because little of them was touched; null: there is none.
    #[inline(never)]
    fn take_sparse(heap: &Heap, size: usize, align: usize) -> *mut u8 {
        heap.large.take_sparse(units(size)).map_or(ptr::null_mut(), |run| {
            let granted = sparse::length(units(size));
            if granted < run.units.get() {
                run.granted.set(granted as u32);
            }
            heap.large.note_allocated(run);
            colour(run, slack(size, align)).as_ptr()
        })
    }

    /// Makes a large run of the caller's a live block, or one that changed its length one again.
    #[inline(never)]
    fn hand_out(&self, span: &Span) {
        let units = span.units.get();
        // Of a fresh one something is learned when it is freed.
        let kept = span.dirty.get() && units <= LARGEST;
        self.units.set_entry(span.start.get(), units::entry_of_large(if kept { units } else { UNKEPT }));
    }

    /// The end of that.
    fn take_in(&self, span: &Span) {
        span.granted.set(0);
        self.units.set_entry(span.start.get(), 0);
    }

    /// See [`Ground::mark_fresh`](crate::page_heap::Ground).
    fn mark_fresh(&self, span: &Span) {
        if !self.is_tight() {
            self.ground().mark_fresh(span);
        }
    }

    /// A large block for one of `old_size` bytes that grows to `size` and cannot where it lies: where free memory has its pages already, and room to grow
    /// further; for one that was small so far rather one that this thread freed lately, which takes no lock. Null: there is no such place.
    #[inline(never)]
    pub(crate) fn allocate_to_grow(
        &self,
        heap: &Heap,
        old_size: usize,
        size: usize,
        align: usize,
    ) -> *mut u8 {
        if size > isize::MAX as usize {
            return ptr::null_mut();
        }
        let kept = if old_size <= SMALL_MAX { Self::take_freed(heap, size, align) } else { ptr::null_mut() };
        if !kept.is_null() {
            return kept;
        }
        // The longest that this thread keeps may be the only one with pages and room; where it becomes a dirty run, the block takes no more of it than it needs.
        if self.ground().kept_times() == 0
            && let Some(long) = heap.large.take_longest(with_room(units(size)))
        {
            self.free_run(long);
        }
        let run = self.tables.pages.allocate_with_room(self.ground(), self.home(heap), units(size));
        run.map_or(ptr::null_mut(), |run| {
            self.hand_out(run);
            colour(run, slack(size, align)).as_ptr()
        })
    }

    /// Gives a large block that grows, and cannot where it lies, `size` bytes elsewhere by moving its pages to where it will have room. Null: that is not
    /// worth it, or not possible.
    ///
    /// # Safety
    /// As for [`Allocator::large_span`]; if the result is not null, the block is no more.
    #[inline(never)]
    pub(crate) unsafe fn move_large(&self, block: *mut u8, size: usize) -> Result<*mut u8, Foreign> {
        // SAFETY: the caller's contract.
        let from = unsafe { self.large_span(block) }?;
        if from.bytes() < MOVED_FROM || size > isize::MAX as usize {
            return Ok(ptr::null_mut());
        }
        // Only within a page heap: both runs need its lock.
        let mut pages = self.tables.pages.of(from);
        let offset = from.offset.get();
        // All pages of the run move, those that the block does not need as well.
        let wanted = units(size + usize::from(offset)).max(from.units.get());
        let Some(to) = pages.allocate_large(self.ground(), wanted) else {
            return Ok(ptr::null_mut());
        };
        // Over pages that are there none are moved: they would be lost.
        if to.dirty.get() {
            pages.take_back(self.ground(), to);
            return Ok(ptr::null_mut());
        }
        self.ground().unmark(from);
        self.take_in(from);
        if !pages.remap(self.ground(), from, to) {
            self.hand_out(from);
            return Ok(ptr::null_mut());
        }
        drop(pages);
        self.mark_fresh(to);
        self.hand_out(to);
        to.offset.set(offset);
        Ok(block_of(to))
    }

    /// The span of the run that begins with `block`, or in which that small block lies; `None`: it is not ours.
    ///
    /// # Safety
    /// As for [`Units::entry`](crate::units::Units::entry).
    unsafe fn span_at(&self, block: *mut u8) -> Option<&'static Span> {
        // SAFETY: the caller's contract.
        let span = unsafe { self.units.span(block.addr()) }?;
        // SAFETY: descriptors' memory is never unmapped.
        Some(unsafe { span.as_ref() })
    }

    /// The span of a large block. Ends the process if `block` lies in our memory and is none.
    ///
    /// # Safety
    /// `block` is not a live small block, and not NULL.
    unsafe fn large_span(&self, block: *mut u8) -> Result<&'static Span, Foreign> {
        // SAFETY: the caller's contract.
        let entry = unsafe { self.units.entry(block.addr()) };
        // SAFETY: the caller's contract.
        match unsafe { self.span_at(block) } {
            Some(span) if begins_large(entry) && block == block_of(span) && !span.cached.get() => Ok(span),
            // SAFETY: the caller's contract.
            None if !unsafe { self.units.holds(block.addr()) } => Err(Foreign),
            _ => sync::die(
                "ample: free or realloc of a pointer that malloc did not return, or that is free already\n",
            ),
        }
    }

    /// Takes a large block back.
    ///
    /// # Safety
    /// `block` is not a live small block, and not NULL; if it is ours, nobody uses it any more.
    #[inline(never)]
    pub(crate) unsafe fn free_large(&self, heap: &Heap, block: *mut u8) -> Result<(), Foreign> {
        // SAFETY: the caller's contract.
        let span = unsafe { self.large_span(block) }?;
        self.ground().learn_touched(span, heap.looks_next(EVENTS_PER_TOUCHED));
        let (settled, units) = (heap.arena().is_some(), span.units.get());
        let (bound, sparse) = (self.large_bound(heap), self.sparse_bound());
        let most = if sparse > 0 { sparse } else { bound.min(LARGEST) };
        if settled {
            heap.large.note_freed(span);
        }
        if settled && units <= most && self.keeps(span.bytes()) && self.open_cache(heap) {
            // All of it serves again.
            span.granted.set(0);
            // Nothing is to be learned from it any more.
            if !span.dirty.replace(true) {
                self.hand_out(span);
            }
            if sparse == 0 {
                heap.large.put(span, units, bound, |other| self.free_run(other));
            } else {
                let beside = units <= LARGEST && heap.large.put_beside(span, units, bound);
                if !beside && !self.put_sparse(heap, span, sparse) {
                    self.free_run(span);
                }
            }
        } else {
            self.free_run(span);
        }
        if settled {
            self.look_at_clock(heap);
        }
        Ok(())
    }

    /// Sees to it that a heap can keep large blocks. `false`: no memory for that.
    fn open_cache(&self, heap: &Heap) -> bool {
        if heap.large.is_open() {
            return true;
        }
        let Some(places) = self.large_places() else { return false };
        heap.large.open(places);
        true
    }

    /// Takes a large block back that became another one, which has room: what is free beside it is to merge with it, for no cache has use for a size that
    /// the program's block has outgrown.
    ///
    /// # Safety
    /// As for [`Allocator::free_large`].
    pub(crate) unsafe fn free_outgrown(&self, block: *mut u8) -> Result<(), Foreign> {
        // SAFETY: the caller's contract.
        unsafe { self.large_span(block) }.map(|from| self.free_run(from))
    }

    /// Gives back the large blocks that a heap keeps.
    #[inline(never)]
    pub(crate) fn empty_large(&self, heap: &Heap) {
        heap.large.empty(|kept| self.free_run(kept));
    }

    /// Gives a large block's run back to the page heap, and what it should not keep to the system.
    pub(crate) fn free_run(&self, span: &'static Span) {
        self.take_in(span);
        self.ground().unmark(span);
        // Before the lock is taken: nobody else knows the run.
        let clean = self.options.thresholds.returns_at_once(span.bytes())
            // SAFETY: a live run of the caller's, who needs its content no more.
            && unsafe { self.ground().give_back(span) };
        span.dirty.set(!clean);
        let more = self.tables.pages.of(span).take_back(self.ground(), span);
        self.tables.pages.purge_excess_beside(self.ground(), span, more);
    }

    /// Bytes of a large block that the program may use.
    ///
    /// # Safety
    /// As for [`Allocator::large_span`].
    pub(crate) unsafe fn large_size(&self, block: *mut u8) -> Result<usize, Foreign> {
        // SAFETY: the caller's contract.
        let span = unsafe { self.large_span(block) }?;
        let units = match span.granted.get() {
            0 => span.units.get(),
            granted => granted as usize,
        };
        Ok(units * UNIT - usize::from(span.offset.get()))
    }

    /// Makes a large block large enough for `size` bytes where it lies, giving back what it does not need.
    ///
    /// # Safety
    /// As for [`Allocator::large_span`].
    #[inline(never)]
    pub(crate) unsafe fn resize_large(&self, block: *mut u8, size: usize) -> Result<bool, Foreign> {
        // SAFETY: the caller's contract.
        let span = unsafe { self.large_span(block) }?;
        if size > isize::MAX as usize {
            return Ok(false);
        }
        let needed = units(size + usize::from(span.offset.get()));
        let (now, granted) = (span.units.get(), span.granted.get() as usize);
        // What has room for the block is long enough, whatever the length of its class.
        let wanted = if needed <= now { self.length(needed).min(now) } else { self.length(needed) };
        if granted > 0 && wanted <= now {
            span.granted.set(wanted as u32);
            return Ok(true);
        }
        if wanted < now {
            self.ground().unmark(span);
            let more = self.tables.pages.of(span).shrink(self.ground(), span, wanted);
            self.tables.pages.purge_excess_beside(self.ground(), span, more);
        }
        let extended = wanted > now && self.tables.pages.of(span).extend(self.ground(), span, wanted);
        if extended {
            span.granted.set(0);
            self.mark_fresh(span);
        }
        if wanted != now {
            self.hand_out(span);
        }
        Ok(wanted <= now || extended)
    }
}
