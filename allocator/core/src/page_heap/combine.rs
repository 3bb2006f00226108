//! Runs made of a dirty run and the free runs beside it, clean and dirty in turn. Clean and dirty neighbours are kept as separate runs, since the one has no pages and reads as
//! zero, and the other has pages and may read as anything; but a request for which neither is long enough can have them together.

use super::{Ground, PageHeap, ptr};
use crate::span::{Span, Use};

/// Dirty runs that are looked at, the longest first.
const LOOKS: usize = 16;

impl PageHeap {
    /// A run of `units`, in no list: a dirty one, at least a quarter as long, and as much as is missing of what is free behind and before
    /// it. (Longer where a neighbour cannot be split for lack of memory for records.)
    #[inline(never)]
    pub(super) fn combine(&mut self, ground: Ground, units: usize) -> Option<&'static Span> {
        // No shorter ones: all of what it becomes counts as dirty, and `calloc` fills it with zeros.
        let long = |run: &&Span| run.units.get() >= units / 4;
        let suits = |run: &&'static Span| self.has_room_around(ground, run, units);
        let run = self.dirty.longest_first().take(LOOKS).take_while(long).find(suits)?;
        self.unlink(run);
        // Neighbours that are put back must not merge with it.
        run.usage.set(Use::Aside);
        while run.units.get() < units {
            let missing = units - run.units.get();
            if let Some(behind) = self.free_neighbour(ground, run.end()) {
                let place = self.unlink(behind);
                let rest =
                    if behind.units.get() > missing { self.split(ground, behind, missing) } else { None };
                self.join_ends(ground, run, [run, behind]);
                if let Some(rest) = rest {
                    self.link_at(ground, rest, place);
                }
            } else {
                let before = self.free_neighbour(ground, run.start.get() - 1)?;
                let place = self.unlink(before);
                let kept = before.units.get().saturating_sub(missing);
                let taken = if kept > 0 { self.split(ground, before, kept) } else { None };
                self.join_ends(ground, run, [taken.unwrap_or(before), run]);
                if taken.is_some() {
                    self.link_at(ground, before, place);
                }
            }
        }
        Some(run)
    }

    /// A clean run of `units` or more, made of a group of free ones whose dirty parts are short and are given back to the system for it: the heap would
    /// grow otherwise.
    #[inline(never)]
    pub(super) fn join(&mut self, ground: Ground, units: usize) -> Option<&'static Span> {
        let suits = |run: &&'static Span| self.has_room_around(ground, run, units);
        let run = self.dirty.longest_first().take(LOOKS).find(suits)?;
        let before = |part: &&'static Span| self.free_neighbour(ground, part.start.get() - 1);
        let first = core::iter::successors(Some(run), before).last()?.start.get();
        // From the first again each time: what was purged merges with what is beside it.
        loop {
            let found = self.group(ground, first).find(|part| !part.dirty.get() && part.units.get() >= units);
            if found.is_some() {
                return found;
            }
            let part = self.group(ground, first).find(|part| part.dirty.get())?;
            let purge = self.begin_purge(ground, part, part.units.get());
            if !self.purge(ground, purge) {
                return None;
            }
        }
    }

    /// The free runs from the one at `start` on that lie side by side.
    fn group(&self, ground: Ground, start: usize) -> impl Iterator<Item = &'static Span> {
        core::iter::successors(self.free_neighbour(ground, start), move |part| {
            self.free_neighbour(ground, part.end())
        })
    }

    /// Whether a free run and those beside it are `units` long together.
    fn has_room_around(&self, ground: Ground, run: &Span, units: usize) -> bool {
        let (mut room, mut start, mut end) = (run.units.get(), run.start.get(), run.end());
        while room < units {
            if let Some(behind) = self.free_neighbour(ground, end) {
                room += behind.units.get();
                end = behind.end();
            } else if let Some(before) = self.free_neighbour(ground, start - 1) {
                room += before.units.get();
                start = before.start.get();
            } else {
                return false;
            }
        }
        true
    }

    /// Makes `run` of it and a neighbour in no list, one before the other; the neighbour is no more.
    fn join_ends(&mut self, ground: Ground, run: &'static Span, parts: [&'static Span; 2]) {
        let [front, back] = parts;
        let (start, units) = (front.start.get(), front.units.get() + back.units.get());
        let other = if core::ptr::eq(front, run) { back } else { front };
        run.start.set(start);
        run.units.set(units);
        ground.join_mappings(run, other);
        self.discard(other);
        ground.units.set_ends(run.start.get(), units, ptr(run));
    }
}
