//! How much free memory may stay, and how much memory the heap may have before it is tight: then free memory goes back to the
//! system at once, and threads keep next to nothing.

use super::shared::Sums;
use super::{DIRTY_MAX, Ground, PageHeap, SLICE, TENDED_DIRTY_MAX};
use crate::options::Name;
use crate::os;
use crate::sync::Ordering;
use crate::units::UNIT;

/// Of the memory that the process's control group may have, in hundredths.
const SHARE: usize = 75;

impl Ground<'_> {
    /// Units that the heap should have at most, if there is such a limit.
    #[inline(always)]
    fn limit(self) -> Option<usize> {
        // Relaxed: a hint; it is learned once.
        match (self.options.get(Name::SoftLimit), self.shared.group_limit.load(Ordering::Relaxed)) {
            (0, 0 | usize::MAX) => None,
            (0, units) => Some(units),
            (bytes, _) => Some(bytes / UNIT),
        }
    }
}

impl Ground<'_> {
    /// Where the program's addresses are limited since a moment ago: gives up those that the tables reserve and do not need. Whether any became free.
    #[cold]
    pub(crate) fn let_go(self) -> bool {
        // As long as this lives the tables stay as they are.
        let _records = self.meta.lock();
        self.units.heed_address_limit()
    }
}

impl PageHeap {
    /// Whether the heap has more memory than it should.
    #[inline(always)]
    pub(super) fn is_tight(&self, ground: Ground) -> bool {
        ground.limit().is_some_and(|limit| self.total(ground.shared).resident > limit)
    }

    /// Looks once what the control group may have. A heap that never grows is too small to matter to any.
    pub(super) fn learn_group_limit(&mut self, ground: Ground) {
        let known = &ground.shared.group_limit;
        // Relaxed: everybody comes to the same result.
        if known.load(Ordering::Relaxed) == 0 && ground.options.get(Name::SoftLimit) == 0 {
            let units = os::memory_limit().map_or(usize::MAX, |bytes| (bytes / 100 * SHARE / UNIT).max(1));
            // Relaxed: as above.
            known.store(units, Ordering::Relaxed);
        }
    }

    /// Tells the threads whether the heap is tight. If it is, gives free memory back, a slice of it, and calls for somebody who
    /// empties the caches of idle threads.
    pub(super) fn heed_limit(&mut self, ground: Ground) {
        self.tell(ground.shared);
        // As nearly always.
        // Relaxed: a hint; the next one sees it.
        if ground.limit().is_none() && ground.shared.tight.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut tight = self.is_tight(ground);
        if tight {
            // Release: for whoever calls, in `heed_calls`.
            ground.shared.calls.store(1, Ordering::Release);
            self.purge_excess(ground);
            tight = self.is_tight(ground);
        }
        let tight = tight.into();
        // Relaxed: as above.
        if ground.shared.tight.load(Ordering::Relaxed) != tight {
            // Relaxed: as above.
            ground.shared.tight.store(tight, Ordering::Relaxed);
        }
    }

    /// Whether free memory stays however old it is.
    pub(super) fn keeps_dirty(&self, ground: Ground) -> bool {
        ground.options.thresholds.kept().is_some()
    }

    /// Whether there is a dirty run that will be purged.
    pub(crate) fn has_dirty(&self, ground: Ground) -> bool {
        self.queue.units() > 0 && !self.keeps_dirty(ground)
    }

    /// Purges a slice if more is dirty than may be. `true`: there is still too much; to be called again, with the lock
    /// given up in between, so that other threads need not wait for all of it.
    pub(crate) fn purge_excess(&mut self, ground: Ground) -> bool {
        let (kept, tight) = (ground.options.thresholds.kept(), self.is_tight(ground));
        let Sums { resident, dirty, .. } = self.total(ground.shared);
        // As nearly always.
        if dirty <= DIRTY_MAX && kept.is_none() && !tight {
            self.trimming = false;
            return false;
        }
        // Each part may be a little wrong.
        let used = resident.saturating_sub(dirty);
        let (bound, goal) = match kept {
            _ if tight => (0, 0),
            Some((bound, goal)) => (bound / UNIT, goal / UNIT),
            None => {
                // Relaxed: a hint.
                let most = if ground.shared.tended.load(Ordering::Relaxed) == 0 {
                    let longer = ground.shared.spread.times();
                    (used * longer).clamp(DIRTY_MAX * longer, TENDED_DIRTY_MAX)
                } else {
                    TENDED_DIRTY_MAX
                };
                (most, most)
            }
        };
        // Without a threshold whole slices: the call into the system costs more than the pages.
        let most = if kept.is_some() { SLICE.min(dirty.saturating_sub(goal)) } else { SLICE };
        self.trimming = dirty > if self.trimming { goal } else { bound }
            && self.purge_oldest(ground, most).0
            && self.total(ground.shared).dirty > goal;
        self.trimming
    }
}
