//! What happens before the heap becomes larger than it ever was, since a program's memory is judged by its peak, and paid for by it.
//!
//! Threads are told, so that the heap does not grow by what they keep for later. Who would make one page heap grow waits for what is dirty in others
//! ([`PageHeaps::dirty`](super::heaps::PageHeaps::dirty)), unless it is small. And dirty runs, which were too short for what is asked for now, go back
//! to the system, the oldest first. That costs page faults when their addresses are used again, so it is bounded: by an eighth of the peak, which cost
//! as many page faults itself, and by 8 MiB, which is 2048 page faults for each page heap (a program has one unless its threads meet). For a block that is a
//! quarter of the heap itself, as in a program that works on one image after the other, up to half of the peak may go: what such blocks leave behind is
//! most of what there is. And what is dirty beyond as much as is in use may go in any case: otherwise threads whose blocks grow side by side, and are all freed before the
//! next begin, leave ever more runs that are too short for those.
//!
//! What was spent of that allowance comes back, but no more than that: nothing is saved up. 64 KiB come back in a millisecond, 2.6 % of which they cost where
//! a page fault and what went before take 1.6 µs; and an eighth of what is handed out for small blocks. Otherwise the peak would creep up where blocks come and go for long. (What is handed
//! out for large blocks does not count: a program of these alone would pay at every other one.)

use super::{Ground, PageHeap};
use crate::os;
use crate::sync::Ordering;
use crate::units::UNIT;

/// Which part of the peak may be purged for its sake, and how many units at most: 8 MiB.
const SHARE: usize = 8;
const PURGED_MAX: usize = (8 << 20) / UNIT;
/// From which part of the heap on a block counts as a large part of it, and which part of the peak may be purged for it.
const LARGE_SHARE: usize = 4;
const SHARE_FOR_LARGE: usize = 2;
/// Units handed out for small blocks for which one more may be purged.
const HANDED_PER_PURGED: usize = 8;
/// What comes back in a millisecond, in units times [`HANDED_PER_PURGED`]: 64 KiB.
const BACK_PER_MS: usize = HANDED_PER_PURGED * (64 << 10) / UNIT;
/// Units up to which a page heap grows rather than that a thread waits for another one: 8 MiB.
const WAITS_FROM: usize = (8 << 20) / UNIT;
/// By which part the peak grows until threads are told again, and by how many units in any case: 256 KiB.
const TOLD_SHARE: usize = 8;
const TOLD_MIN: usize = (256 << 10) / UNIT;

/// How large a page heap ever was, in units.
pub(super) struct Growth {
    /// The most that its runs in use and its dirty ones ever were.
    peak: usize,
    /// What was purged lest it become more, less what came back since: in units times [`HANDED_PER_PURGED`].
    spent: usize,
    /// When something came back last because of the time.
    back_ms: u64,
    /// The peak when threads were told last.
    told: usize,
}

impl Growth {
    pub(super) const fn new() -> Self {
        Self { peak: 0, spent: 0, back_ms: 0, told: 0 }
    }

    /// Counts `units` that are handed out for small blocks.
    pub(super) fn allow_for(&mut self, units: usize) {
        self.spent = self.spent.saturating_sub(units);
    }

    /// Counts the time until `now_ms`.
    fn allow_until(&mut self, now_ms: u64) {
        let passed = now_ms - core::mem::replace(&mut self.back_ms, now_ms);
        self.allow_for(passed as usize * BACK_PER_MS);
    }
}

#[cfg(test)]
impl Growth {
    /// Of a page heap that had so many units once.
    pub(super) const fn of(peak: usize) -> Self {
        Self { peak, ..Self::new() }
    }
}

impl PageHeap {
    /// Purges what the heap would otherwise grow by, or as much of that as may be, before `units` clean ones are taken.
    pub(super) fn before_growing(&mut self, ground: Ground, units: usize) {
        let after = self.own().resident.saturating_add(units);
        // Runs of which little was touched are no memory.
        if after <= self.growth.peak || self.keeps_dirty(ground) || ground.shared.spread.times() > 1 {
            return;
        }
        self.growth.allow_until(os::now_ms());
        let Growth { peak, spent, .. } = self.growth;
        let is_large = units >= after / LARGE_SHARE;
        let most = if is_large { after / SHARE_FOR_LARGE } else { (after / SHARE).min(PURGED_MAX) };
        let allowed = most.saturating_sub(spent.div_ceil(HANDED_PER_PURGED));
        // Beyond what is in use, which is what is left of the resident ones.
        let excess = (2 * self.queue.units()).saturating_sub(self.own().resident);
        self.growth.spent +=
            HANDED_PER_PURGED * self.purge_units(ground, (after - peak).min(allowed.max(excess)));
    }

    /// Whether a run of `units` would make the heap larger than it ever was.
    pub(crate) fn would_grow(&self, units: usize) -> bool {
        self.dirty.find(units).is_none() && self.own().resident + units > self.growth.peak
    }

    /// Whether a run of `units` would make the page heap so much larger than it ever was that whoever asks waits for others' dirty runs rather.
    pub(super) fn waits_rather_than_grow(&self, units: usize) -> bool {
        self.own().resident + units > self.growth.peak.max(WAITS_FROM)
    }

    /// Tells the threads if the page heap is larger now than it ever was.
    pub(super) fn note_growth(&mut self, ground: Ground) {
        let resident = self.own().resident;
        let Growth { peak, told, .. } = &mut self.growth;
        if resident <= *peak {
            return;
        }
        *peak = resident;
        if resident >= *told + (*told / TOLD_SHARE).max(TOLD_MIN) {
            *told = resident;
            // Relaxed: a hint; the next slow path sees it.
            ground.shared.growths.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Purges `most` units, or all that is dirty, the oldest first; how many the system took.
    fn purge_units(&mut self, ground: Ground, most: usize) -> usize {
        let mut purged = 0;
        while purged < most && self.queue.units() > 0 {
            let (done, units) = self.purge_oldest(ground, most - purged);
            if !done {
                break;
            }
            purged += units;
        }
        purged
    }
}
