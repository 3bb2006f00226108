//! Giving dirty runs back to the system, the oldest first.

use super::{Ground, PageHeap, PageHeaps, ptr};
use crate::os;
use crate::span::{Span, Use};
use crate::sync::Lock;

/// How long a run stays dirty before it is purged, in milliseconds. With a look four times a second all is back within a second.
pub(super) const DECAY_MS: u64 = 700;
/// Units that one call into the system purges at most: 16 MiB.
pub(super) const SLICE: usize = (16 << 20) / crate::units::UNIT;
/// The same where the page heap is unlocked meanwhile: 2 MiB. A child that is forked in between has lost that much.
const UNLOCKED_SLICE: usize = (2 << 20) / crate::units::UNIT;

/// A run that is about to be purged, in no list, and what was cut off before and behind it because it is no whole page of the
/// system's. Neighbours take it for one in use.
pub(super) struct Purge {
    pub(super) span: &'static Span,
    cut_off: [Option<&'static Span>; 2],
}

impl Purge {
    /// Asks the system. `false`: it refused.
    fn ask(&self, ground: Ground) -> bool {
        // SAFETY: the run is free, and in no list any more.
        unsafe { ground.give_back(self.span) }
    }
}

impl PageHeaps {
    /// Purges all runs that were dirty for [`DECAY_MS`], and ends marks as old. Others may use the page heap while the system works.
    pub(crate) fn purge_old(&self, ground: Ground, now_ms: u64) {
        for heap in self.entered() {
            // Each once, also where the system refuses some, which may go back to where they were.
            let mut left = {
                let mut heap = heap.lock();
                heap.end_old_marks(ground, now_ms);
                heap.queue.units()
            };
            while left > 0
                && let Some(run) = Self::begin(heap, ground, now_ms)
            {
                left -= run.span.units.get().min(left);
                let purged = run.ask(ground);
                heap.lock().end_purge(ground, run, purged);
            }
        }
    }

    /// The lock is free again when this returns.
    fn begin(heap: &Lock<PageHeap>, ground: Ground, now_ms: u64) -> Option<Purge> {
        heap.lock().begin_purge_old(ground, now_ms, UNLOCKED_SLICE)
    }
}

impl PageHeap {
    /// Takes out the run that has been dirty longest, or the first `most` units of it, if that is [`DECAY_MS`] or more.
    pub(super) fn begin_purge_old(&mut self, ground: Ground, now_ms: u64, most: usize) -> Option<Purge> {
        let oldest = self.queue.oldest()?;
        let old = now_ms.saturating_sub(oldest.since_ms.get()) >= DECAY_MS;
        (old && !self.keeps_dirty(ground)).then(|| self.begin_purge(ground, oldest, most))
    }

    /// Takes out a dirty run, or the first `most` units of it.
    pub(super) fn begin_purge(&mut self, ground: Ground, span: &'static Span, most: usize) -> Purge {
        self.end_marks_around(ground, span);
        let place = self.unlink(span);
        let rest = if span.units.get() > most { self.split(ground, span, most) } else { None };
        // Not free for the moment, lest it be merged with anything.
        span.usage.set(Use::Aside);
        ground.units.set_ends(span.start.get(), span.units.get(), ptr(span));
        if let Some(rest) = rest {
            self.link_at(ground, rest, place);
        }
        let (span, cut_off) = self.whole_pages(ground, span);
        Purge { span, cut_off }
    }

    /// Puts a run back that the system has `purged`, or refused to.
    fn end_purge(&mut self, ground: Ground, run: Purge, purged: bool) {
        // What is still dirty is as new: the next run may be of whole pages.
        run.span.dirty.set(!purged);
        for part in [Some(run.span), run.cut_off[0], run.cut_off[1]].into_iter().flatten() {
            part.since_ms.set(os::now_ms());
            self.link(ground, part);
        }
        self.tell(ground.shared);
    }

    /// Purges a run that was taken out. Whether the system did so.
    pub(super) fn purge(&mut self, ground: Ground, run: Purge) -> bool {
        let purged = run.ask(ground);
        self.end_purge(ground, run, purged);
        purged
    }

    /// Purges the run that has been dirty longest, or the first `most` units of it. Whether the system did so, and how many units.
    pub(super) fn purge_oldest(&mut self, ground: Ground, most: usize) -> (bool, usize) {
        let Some(oldest) = self.queue.oldest() else { return (false, 0) };
        let run = self.begin_purge(ground, oldest, most);
        let units = run.span.units.get();
        (self.purge(ground, run), units)
    }
}
