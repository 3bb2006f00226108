//! Runs made of a dirty one and its clean neighbours. They are two runs since one has pages and reads as anything, the other has none and
//! reads as zero; whoever needs a run that neither is long enough for can have both.

use super::{Ground, PageHeap, ptr};
use crate::span::{Span, Use};
use crate::units::UNIT;

/// Dirty runs that are looked at, the longest first.
const LOOKS: usize = 16;

impl PageHeap {
    /// A run of `units`, in no list: a dirty one, at least a quarter as long, and as much as is missing of what is free behind and before
    /// it. (Longer where a
    /// neighbour cannot be split for lack of memory for records.)
    pub(super) fn combine(&mut self, ground: Ground, units: usize) -> Option<&'static Span> {
        let length = |neighbour: Option<&Span>| neighbour.map_or(0, |span| span.units.get());
        // No shorter ones: all of what it becomes counts as dirty, and `calloc` fills it with zeros.
        let long = |run: &&Span| run.units.get() >= units / 4;
        let (run, before, behind) =
            self.dirty.longest_first().take(LOOKS).take_while(long).find_map(|run| {
                let before = self.free_neighbour(ground, run.start.get() - 1);
                let behind = self.free_neighbour(ground, run.end());
                let all = length(before) + run.units.get() + length(behind);
                (all >= units).then_some((run, before, behind))
            })?;
        self.unlink(run);
        let missing = units.saturating_sub(run.units.get());
        let from_behind = length(behind).min(missing);
        let (mut start, mut end, mut rests) = (run.start.get(), run.end(), [None, None]);
        if let Some(behind) = behind.filter(|_| from_behind > 0) {
            self.unlink(behind);
            rests[0] =
                if behind.units.get() > from_behind { self.split(ground, behind, from_behind) } else { None };
            end = behind.end();
            self.discard(behind);
        }
        if let Some(before) = before.filter(|_| missing > from_behind) {
            self.unlink(before);
            let kept = before.units.get() - (missing - from_behind);
            let taken = if kept > 0 { self.split(ground, before, kept) } else { None };
            rests[1] = taken.is_some().then_some(before);
            let taken = taken.unwrap_or(before);
            start = taken.start.get();
            self.discard(taken);
        }
        run.start.set(start);
        run.units.set((end - start) / UNIT);
        // Before the rests are put back: they look at their neighbours.
        run.usage.set(Use::Aside);
        ground.units.set_ends(start, run.units.get(), ptr(run));
        for rest in rests.into_iter().flatten() {
            self.link(ground, rest);
        }
        Some(run)
    }
}
