//! Large runs that change their length, or their place.

use super::{Ground, PageHeap, ptr};
use crate::os;
use crate::span::Span;
use crate::sync::Ordering;

/// Runs whose pages came from elsewhere, at most: each may cost three of the mappings that a process may have (65 530).
const REMAPPED_MAX: usize = 4096;

impl PageHeap {
    /// Moves the pages of the large run `from` to the front of the large run `to`, which is no shorter, and takes `from` back.
    /// `false`: the system refused.
    pub(crate) fn remap(&mut self, ground: Ground, from: &'static Span, to: &'static Span) -> bool {
        // Relaxed: a bound, give or take what others do meanwhile.
        if ground.shared.remapped.load(Ordering::Relaxed) >= REMAPPED_MAX {
            return false;
        }
        // SAFETY: the caller owns both runs, and needs the content of `from` only.
        if !unsafe { os::remap(from.start.get(), to.start.get(), from.bytes()) } {
            return false;
        }
        to.remapped.set(true);
        // Relaxed: as above.
        ground.shared.remapped.fetch_add(1, Ordering::Relaxed);
        Self::unmix(ground, from);
        self.large_blocks -= 1;
        from.dirty.set(false);
        self.link(ground, from);
        true
    }

    /// Makes a run that nobody uses a mapping like any other, if it is not; then it is clean, and the result is `true`.
    pub(super) fn unmix(ground: Ground, span: &Span) -> bool {
        if !span.remapped.replace(false) {
            return false;
        }
        // Relaxed: as in `remap`.
        ground.shared.remapped.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: nobody uses the run.
        unsafe { os::unmix(span.start.get(), span.bytes()) }
    }

    /// Makes a large run `units` long (fewer than it has) and takes the rest back.
    pub(crate) fn shrink(&mut self, ground: Ground, span: &'static Span, units: usize) {
        if let Some(rest) = self.split(ground, span, units) {
            ground.units.set_ends(span.start.get(), units, ptr(span));
            self.large_blocks += 1;
            // Relaxed: as in `remap`.
            ground.shared.remapped.fetch_add(usize::from(rest.remapped.get()), Ordering::Relaxed);
            self.free(ground, rest);
        }
    }

    /// Makes a large run `units` long (more than it has) if the run behind it is free and long enough.
    pub(crate) fn extend(&mut self, ground: Ground, span: &'static Span, units: usize) -> bool {
        let more = units - span.units.get();
        let Some(next) = self.free_neighbour(ground, span.end()) else { return false };
        if next.start.get() != span.end() || next.units.get() < more {
            return false;
        }
        self.unlink(next);
        let rest = if next.units.get() > more { self.split(ground, next, more) } else { None };
        span.units.set(span.units.get() + next.units.get());
        ground.units.set_ends(span.start.get(), span.units.get(), ptr(span));
        self.discard(next);
        if let Some(rest) = rest {
            self.link(ground, rest);
        }
        true
    }
}
