//! Large blocks: runs of units straight from the page heap, one block each.

use core::ptr;

use crate::allocator::Allocator;
use crate::heap::Heap;
use crate::large_cache;
use crate::options::Name;
use crate::os;
use crate::page_heap::{MOVED_FROM, large};
use crate::span::{Span, Use};
use crate::units::UNIT;

/// A block that this allocator did not hand out (or that is no block at all).
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign;

/// Bytes from which on a block of zeros may be had by giving back what was there: more than the caches of large blocks hold.
pub(crate) const CLEARED_FROM: usize = large_cache::LARGEST * UNIT + 1;
/// Of so many pages of a block that is to be zero one at most is in memory where they all go back to the system, instead of being filled with zeros.
const SPARSE: usize = 16;

/// Makes a large block of at least `size` bytes that nobody uses yet zero by giving its pages back, if few are in memory: the others would all
/// be brought only to be filled with zeros. `false`: it is as it was.
///
/// # Safety
/// The block begins a large run, and the caller has just allocated it.
pub(crate) unsafe fn clear_sparse(block: *mut u8, size: usize) -> bool {
    let (start, bytes) = (block.addr(), units(size) * UNIT);
    os::resident(start, bytes, bytes / SPARSE).is_some_and(|there| there <= bytes / SPARSE)
        // SAFETY: the caller's contract.
        && unsafe { os::purge(start, bytes) }
}

/// Units of a large block of `size` bytes.
fn units(size: usize) -> usize {
    size.div_ceil(UNIT).max(1)
}

/// Whether a block that begins where a run does is a large one that was handed out.
#[inline(always)]
fn is_live(span: &Span, block: *mut u8) -> bool {
    span.usage.get() == Use::Large && span.start.get() == block.addr() && !span.cached.get()
}

impl Allocator {
    /// The large block that this thread freed last, if it is about as large as `size`; else null.
    #[inline(always)]
    pub(crate) fn newest_large(heap: &Heap, size: usize) -> *mut u8 {
        let newest = heap.large.take_newest(units(size));
        newest.map_or(ptr::null_mut(), |span| ptr::with_exposed_provenance_mut(span.start.get()))
    }

    /// Keeps a large block for this thread, if there is room and nothing to learn from it. Else it is as it was, for
    /// [`Allocator::free_large`].
    ///
    /// # Safety
    /// As for [`Allocator::free_large`].
    #[inline(always)]
    pub(crate) unsafe fn keep_large(&self, heap: &Heap, block: *mut u8) -> bool {
        // SAFETY: the caller's contract.
        let Some(span) = (unsafe { self.units.span(block.addr()) }) else { return false };
        // SAFETY: descriptors' memory is never unmapped.
        let span: &'static Span = unsafe { span.as_ref() };
        let kept = is_live(span, block)
            && span.dirty.get()
            && self.keeps(heap, span)
            && heap.large.put_beside(span, self.large_bound());
        if kept {
            self.look_at_clock(heap);
        }
        kept
    }

    /// Whether threads keep blocks like this one at all.
    #[inline(always)]
    fn keeps(&self, heap: &Heap, span: &Span) -> bool {
        heap.arena().is_some()
            && self.options.is_on(Name::Cache)
            && !self.options.thresholds.returns_at_once(span.bytes())
    }

    /// A large block of at least `size` bytes at a multiple of `align` (a power of two), and whether it may hold
    /// anything but zeros; null: no memory.
    pub(crate) fn allocate_large(&self, heap: &Heap, size: usize, align: usize) -> (*mut u8, bool) {
        if size > isize::MAX as usize {
            return (ptr::null_mut(), true);
        }
        let cached = if align <= UNIT { heap.large.take(units(size)) } else { None };
        if cached.is_none() && heap.arena().is_some() {
            self.look_at_growth(heap);
        }
        let run = |align| self.pages.allocate(self.ground(), self.home(heap), large(units(size), align));
        let alone = || {
            let apart = heap.large.has_one_at_a_time(units(size));
            let run = large(units(size), align);
            apart.then(|| self.pages.allocate_apart(self.ground(), &heap.large.page_heap, run)).flatten()
        };
        let elsewhere = || {
            let spread = self.ground().spread(units(size));
            let there = if spread > align { run(spread) } else { None };
            there.or_else(|| run(align))
        };
        match cached.or_else(alone).or_else(elsewhere) {
            Some(span) => {
                if !span.dirty.get() {
                    self.mark_fresh(span);
                }
                if heap.arena().is_some() {
                    heap.large.note_allocated(span);
                }
                (ptr::with_exposed_provenance_mut(span.start.get()), span.dirty.get())
            }
            None => (ptr::null_mut(), true),
        }
    }

    /// See [`Ground::mark_fresh`](crate::page_heap::Ground).
    fn mark_fresh(&self, span: &Span) {
        if !self.is_tight() {
            self.ground().mark_fresh(span);
        }
    }

    /// Gives a large block that grows, and cannot where it lies, `size` bytes elsewhere: where free memory has its pages already, by a copy; else by
    /// moving its pages to where it will have room. Null: that is not worth it, or not possible.
    ///
    /// # Safety
    /// As for [`Allocator::large_span`]; if the result is not null, the block is no more.
    pub(crate) unsafe fn move_large(&self, block: *mut u8, size: usize) -> Result<*mut u8, Foreign> {
        // SAFETY: the caller's contract.
        let from = unsafe { self.large_span(block) }?;
        if from.bytes() < MOVED_FROM || size > isize::MAX as usize {
            return Ok(ptr::null_mut());
        }
        let start = |run: &Span| ptr::with_exposed_provenance_mut(run.start.get());
        // Only within a page heap: both runs need its lock.
        let mut pages = self.pages.of(from);
        if let Some(to) = pages.allocate_dirty_with_room(self.ground(), units(size)) {
            drop(pages);
            // SAFETY: both runs are live, the caller's, and no shorter.
            unsafe { ptr::copy_nonoverlapping(block, start(to), from.bytes()) };
            self.free_run(from);
            return Ok(start(to));
        }
        let Some(to) = pages.allocate_large(self.ground(), units(size)) else {
            return Ok(ptr::null_mut());
        };
        // Over pages that are there none are moved: they would be lost.
        if !to.dirty.get() {
            self.ground().unmark(from);
            if pages.remap(self.ground(), from, to) {
                drop(pages);
                self.mark_fresh(to);
                return Ok(start(to));
            }
        }
        pages.take_back(self.ground(), to);
        Ok(ptr::null_mut())
    }

    /// The span of a large block. Ends the process if `block` lies in our memory and is none.
    ///
    /// # Safety
    /// `block` is not a live small block, and not NULL.
    unsafe fn large_span(&self, block: *mut u8) -> Result<&'static Span, Foreign> {
        // SAFETY: the caller's contract.
        let span = unsafe { self.units.span(block.addr()) };
        // SAFETY: descriptors' memory is never unmapped.
        match span.map(|span| -> &'static Span { unsafe { span.as_ref() } }) {
            Some(span) if is_live(span, block) => Ok(span),
            // SAFETY: the caller's contract.
            None if !unsafe { self.units.holds(block.addr()) } => Err(Foreign),
            _ => os::die(
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
        self.ground().learn_touched(span);
        let bound = self.large_bound();
        if span.units.get() <= bound && self.keeps(heap, span) {
            span.dirty.set(true);
            heap.large.put(span, bound, |span| self.free_run(span));
            self.look_at_clock(heap);
        } else {
            if heap.arena().is_some() {
                heap.large.note_freed(span);
            }
            self.free_run(span);
        }
        Ok(())
    }

    /// Gives a large block's run back to the page heap, and what it should not keep to the system.
    pub(crate) fn free_run(&self, span: &'static Span) {
        self.ground().unmark(span);
        // Before the lock is taken: nobody else knows the run.
        let clean = self.options.thresholds.returns_at_once(span.bytes())
            // SAFETY: a live run of the caller's, who needs its content no more.
            && unsafe { self.ground().give_back(span) };
        span.dirty.set(!clean);
        let mut more = self.pages.of(span).take_back(self.ground(), span);
        while more {
            more = self.pages.of(span).purge_excess(self.ground());
        }
    }

    /// Bytes of a large block that the program may use.
    ///
    /// # Safety
    /// As for [`Allocator::large_span`].
    pub(crate) unsafe fn large_size(&self, block: *mut u8) -> Result<usize, Foreign> {
        // SAFETY: the caller's contract.
        unsafe { self.large_span(block) }.map(Span::bytes)
    }

    /// Makes a large block large enough for `size` bytes where it lies, giving back what it does not need.
    ///
    /// # Safety
    /// As for [`Allocator::large_span`].
    pub(crate) unsafe fn resize_large(&self, block: *mut u8, size: usize) -> Result<bool, Foreign> {
        // SAFETY: the caller's contract.
        let span = unsafe { self.large_span(block) }?;
        if size > isize::MAX as usize {
            return Ok(false);
        }
        let (now, wanted) = (span.units.get(), units(size));
        if wanted < now {
            self.ground().unmark(span);
            self.pages.of(span).shrink(self.ground(), span, wanted);
        }
        let extended = wanted > now && self.pages.of(span).extend(self.ground(), span, wanted);
        if extended {
            self.mark_fresh(span);
        }
        Ok(wanted <= now || extended)
    }
}
