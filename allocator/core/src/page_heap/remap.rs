//! Moving the pages of a large run to another run. The system keeps a separate mapping for pages that came from elsewhere, and a process may have
//! 65 530 mappings. Such a mapping stays with its run as the run is freed, merged, split and used again, since giving it up would lose the pages. It
//! ends when the run's pages are given back.

use super::{Ground, PageHeap, huge};
use crate::os::{self, Moved};
use crate::span::{Span, Use};
use crate::sync::{self, Ordering};

/// Bytes from which on moving pages costs less than copying them.
pub(crate) const MOVED_FROM: usize = 512 << 10;
/// Mappings of that kind, at most. Each may cost three.
const MAPPINGS_MAX: usize = 4096;

/// How many a run can have: pages are never moved to where a mapping of that kind is, so that none is cut short but at the run's ends.
fn mappings_most(span: &Span) -> u32 {
    (span.bytes() / MOVED_FROM + 1) as u32
}

impl PageHeap {
    /// Moves the pages of the large run `from` to the front of the large run `to`, which is clean and no shorter, and takes `from` back.
    /// `false`: the system refused, or there are too many mappings already; then `to` is taken back.
    pub(crate) fn remap(&mut self, ground: Ground, from: &'static Span, to: &'static Span) -> bool {
        debug_assert!(!to.dirty.get() && to.mappings.get() == 0);
        // Relaxed: a bound, give or take what others do meanwhile.
        let moved = if ground.shared.mappings.load(Ordering::Relaxed) >= MAPPINGS_MAX {
            Moved::No
        } else {
            let remapped = from.mappings.get() > 0;
            // SAFETY: the caller owns both runs, and needs the content of `from` only.
            unsafe { os::remap(from.start.get(), to.start.get(), from.bytes(), remapped) }
        };
        match moved {
            Moved::Yes => {}
            Moved::No => {
                self.take_back(ground, to);
                return false;
            }
            Moved::PlaceLost => {
                self.forget(ground, to);
                return false;
            }
            Moved::Torn => sync::die("ample: the system moved a part of a block only\n"),
        }
        // Those that it had come along, and what it has grown by since is one more.
        ground.set_mappings(to, (from.mappings.get() + 1).min(mappings_most(to)));
        // For `mark_fresh` no new block, but one that has grown.
        to.marked_to.set(to.start.get());
        self.large_blocks -= 1;
        // SAFETY: nobody needs it any more. Where the system refuses, it reads as zero all the same.
        unsafe { ground.unmix(from) };
        from.dirty.set(false);
        self.link(ground, from);
        true
    }

    /// Gives up the addresses of a large run that are the heap's no more. Neighbours take it for one in use, for ever.
    #[cold]
    fn forget(&mut self, ground: Ground, run: &Span) {
        run.usage.set(Use::Aside);
        self.large_blocks -= 1;
        self.mapped -= run.units.get();
        // Relaxed: a sum that nothing else is read by.
        ground.shared.mapped.fetch_sub(run.units.get(), Ordering::Relaxed);
    }
}

impl Ground<'_> {
    /// Gives the pages of a run back to the system; it reads as zero then. `false`: it refused.
    ///
    /// # Safety
    /// The run is the caller's, who needs its content no more.
    pub(crate) unsafe fn give_back(self, span: &Span) -> bool {
        // SAFETY: the caller's contract.
        unsafe { self.unmix(span) || os::purge(span.start.get(), span.bytes()) }
    }

    /// Gives the pages of a run back if it has mappings of its own, which end by it. `false`: it has none, or the system refused.
    ///
    /// # Safety
    /// As for [`Ground::give_back`].
    unsafe fn unmix(self, span: &Span) -> bool {
        // SAFETY: the caller's contract.
        let done = span.mappings.get() > 0 && unsafe { os::unmix(span.start.get(), span.bytes()) };
        if done {
            self.set_mappings(span, 0);
            // SAFETY: as above.
            unsafe { huge::bar(span.start.get(), span.bytes()) };
        }
        done
    }

    /// Shares a run's mappings with the `rest` that was just cut off.
    pub(super) fn share_mappings(self, run: &Span, rest: &Span) {
        let both = run.mappings.get();
        if both > 0 {
            self.set_mappings(run, both.min(mappings_most(run)));
            self.set_mappings(rest, both.min(mappings_most(rest)));
        }
    }

    /// Gives a run the mappings of a `part` that was just added to it.
    pub(super) fn join_mappings(self, run: &Span, part: &Span) {
        if part.mappings.get() > 0 {
            self.set_mappings(run, (run.mappings.get() + part.mappings.get()).min(mappings_most(run)));
            self.set_mappings(part, 0);
        }
    }

    #[inline(never)]
    fn set_mappings(self, span: &Span, count: u32) {
        let before = span.mappings.replace(count);
        // Relaxed: as in `remap`. (A sum that wraps is right all the same.)
        self.shared.mappings.fetch_add((count as usize).wrapping_sub(before as usize), Ordering::Relaxed);
    }
}
