//! Large runs that change their length.

use super::{Ground, PageHeap, Source, large, ptr};
use crate::span::{Span, Use};
use crate::units::UNIT;

/// Which part of what a block needs is free behind it, at least, where it moves to without growing the heap: it will need that next.
const ROOM: usize = 4;

/// Units of a block of `units` and of [`ROOM`] behind it.
pub(crate) fn with_room(units: usize) -> usize {
    units.saturating_add(units.div_ceil(ROOM))
}

impl PageHeap {
    /// Makes a large run `units` long (fewer than it has) and takes the rest back. The result is that of [`PageHeap::take_back`].
    pub(crate) fn shrink(&mut self, ground: Ground, span: &'static Span, units: usize) -> bool {
        let Some(rest) = self.split(ground, span, units) else { return false };
        ground.units.set_ends(span.start.get(), units, ptr(span));
        self.large_blocks += 1;
        rest.dirty.set(true);
        self.take_back(ground, rest)
    }

    /// A run of `units` for a block that grows, out of the longest dirty one: what is left of that is behind it, so that the block need not move again
    /// for long. `None`: none is long enough, or dirty runs have few pages.
    pub(super) fn allocate_with_room(&mut self, ground: Ground, units: usize) -> Option<&'static Span> {
        let has_pages = ground.shared.spread.times() == 1;
        has_pages.then(|| self.allocate(ground, large(units, UNIT), Source::Roomy)).flatten()
    }

    /// The longest dirty run, if it is long enough for a block of `units` and [`ROOM`] behind it.
    pub(super) fn roomy(&self, units: usize) -> Option<&'static Span> {
        self.dirty.longest_first().next().filter(|run| run.units.get() >= with_room(units))
    }

    /// Units at the beginning of that run which are left to a large block that lies before it, and may grow too: as many as it has, or half of what the
    /// new one does not need.
    pub(super) fn left_before(&self, ground: Ground, run: &Span, units: usize) -> usize {
        let before = self.neighbour(ground, run.start.get().wrapping_sub(UNIT), Use::Large);
        before.map_or(0, |before| before.units.get().min((run.units.get() - with_room(units)) / 2))
    }

    /// Makes a large run `units` long (more than it has) if the free runs behind it, clean and dirty ones, are long enough.
    pub(crate) fn extend(&mut self, ground: Ground, span: &'static Span, units: usize) -> bool {
        match self.clean_behind(ground, span, units) {
            None => return false,
            Some(0) => {}
            Some(clean) => self.before_growing(ground, clean),
        }
        // Anew each time: what was purged merges with what is beside it.
        while span.units.get() < units
            && let Some(next) = self.free_neighbour(ground, span.end())
        {
            self.unlink(next);
            let missing = units - span.units.get();
            let rest = if next.units.get() > missing { self.split(ground, next, missing) } else { None };
            span.units.set(span.units.get() + next.units.get());
            ground.units.set_ends(span.start.get(), span.units.get(), ptr(span));
            ground.join_mappings(span, next);
            self.discard(next);
            if let Some(rest) = rest {
                self.link(ground, rest);
            }
        }
        self.note_growth(ground);
        self.heed_limit(ground);
        span.units.get() >= units
    }

    /// How many clean units a run takes in that becomes `units` long; `None`: what is free behind it is too short.
    fn clean_behind(&self, ground: Ground, span: &Span, units: usize) -> Option<usize> {
        let (mut missing, mut clean, mut end) = (units - span.units.get(), 0, span.end());
        while missing > 0 {
            let next = self.free_neighbour(ground, end)?;
            let taken = next.units.get().min(missing);
            missing -= taken;
            clean += if next.dirty.get() { 0 } else { taken };
            end = next.end();
        }
        Some(clean)
    }
}
