//! Chunks that are marked for huge pages together.
//!
//! A mark changes the mapping. The kernel then waits for every page fault that is under way in that mapping, and lets no new one begin meanwhile. If each
//! huge page were marked by itself, and the mark taken away once the page is there, two threads that fill memory would together get no more of it in a second than
//! one. Within one large marked area, each thread brings in its huge pages while the others bring in theirs.
//!
//! The marks are taken away when the last chunk was touched, when no chunk was for some time, or when memory among them is to be purged: the kernel's own thread (khugepaged) fills what is
//! marked, also what was given back. Until then, what has not been touched is free, but in no list. (A thread that touches a chunk just after another one took the marks away gets a small page instead of a huge one, and the rest as it is used.)

use super::purge::DECAY_MS;
use super::{Ground, PageHeap, Run, Source, ptr};
use crate::os;
use crate::span::{Span, Use};
use crate::units::{CHUNK, UNIT};

/// Units of a chunk.
const UNITS: usize = CHUNK / UNIT;
/// Chunks that are marked together: as many as the page heap has in spans of small blocks, but so many at least and at most (8 MiB and 128 MiB). They cost addresses only.
const LEAST: usize = 4;
const MOST: usize = if cfg!(miri) { LEAST } else { 64 };

/// A page heap's marked chunks.
pub(super) struct Marked {
    /// The chunks that are left.
    left: Option<&'static Span>,
    /// Where the marks begin.
    from: usize,
    /// When a chunk was last taken, in milliseconds of `os::now_ms`.
    since_ms: u64,
    /// Somebody is about to mark them.
    coming: bool,
}

impl Marked {
    pub(super) const fn new() -> Self {
        Self { left: None, from: 0, since_ms: 0, coming: false }
    }
}

/// The marks on a chunk that is to become a huge page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// It is to be marked with others, to there; see [`PageHeap::marks_are_set`].
    ComingTo(usize),
    /// It is marked, and others as well.
    There,
    /// It is the last one of those that were marked together, which begin there.
    LastFrom(usize),
}

impl PageHeap {
    /// A chunk, as a large block, that is to become a huge page. `None` also while others are about to mark some: that takes longer than the page faults that one has instead.
    #[inline(never)]
    pub(super) fn next_for_huge_page(&mut self, ground: Ground) -> Option<(&'static Span, Marks)> {
        if self.marked.coming {
            return None;
        }
        if let Some(run) = self.marked.left {
            self.marked.since_ms = os::now_ms();
            self.marked.left =
                if run.units.get() > UNITS { Some(self.split_off(ground, run)?) } else { None };
            let marks = self.marked.left.map_or(Marks::LastFrom(self.marked.from), |_| Marks::There);
            return Some((self.use_marked(ground, run), marks));
        }
        let units = (self.small_units / UNITS).clamp(LEAST, MOST) * UNITS;
        let run = self.allocate(ground, Run { units, align: CHUNK, usage: Use::Aside }, Source::Clean)?;
        let (start, end) = (run.start.get(), run.end());
        let rest = if run.dirty.get() { None } else { self.split_off(ground, run) };
        if rest.is_none() {
            self.put_aside_back(ground, run);
            return None;
        }
        self.marked = Marked { left: rest, from: start, since_ms: os::now_ms(), coming: true };
        Some((self.use_marked(ground, run), Marks::ComingTo(end)))
    }

    /// Whoever was to set marks has done so, or cannot.
    pub(super) fn marks_are_set(&mut self) {
        self.marked.coming = false;
    }

    /// Gives up what is left: it is marked no more, and others may have it.
    #[cold]
    pub(super) fn end_marks(&mut self, ground: Ground) {
        if !self.marked.coming
            && let Some(run) = self.marked.left.take()
        {
            let from = self.marked.from;
            // SAFETY: memory of this page heap.
            unsafe { os::mark(from, run.end() - from, false) };
            self.put_aside_back(ground, run);
        }
    }

    /// The same if none was wanted for [`DECAY_MS`].
    pub(super) fn end_old_marks(&mut self, ground: Ground, now_ms: u64) {
        if now_ms.saturating_sub(self.marked.since_ms) >= DECAY_MS {
            self.end_marks(ground);
        }
    }

    /// The same if a run that is to be purged lies among them.
    pub(super) fn end_marks_around(&mut self, ground: Ground, run: &Span) {
        if self
            .marked
            .left
            .is_some_and(|left| (self.marked.from..left.start.get()).contains(&run.start.get()))
        {
            self.end_marks(ground);
        }
    }

    /// What was set aside for huge pages, where the system gives no more, if it is as long as is `wanted`.
    #[cold]
    pub(super) fn set_aside(
        &mut self,
        ground: Ground,
        source: Source,
        wanted: usize,
    ) -> Option<&'static Span> {
        if matches!(source, Source::Roomy | Source::Dirty) {
            return None;
        }
        self.end_marks(ground);
        self.clean.find(wanted)
    }

    /// Cuts a run that is aside after its first chunk; the rest is aside, too.
    fn split_off(&mut self, ground: Ground, run: &Span) -> Option<&'static Span> {
        let rest = self.split(ground, run, UNITS)?;
        ground.units.set_ends(rest.start.get(), rest.units.get(), ptr(rest));
        Some(rest)
    }

    /// A chunk that was aside, as a large block.
    fn use_marked(&mut self, ground: Ground, chunk: &'static Span) -> &'static Span {
        chunk.usage.set(Use::Large);
        self.large_blocks += 1;
        self.free_units -= chunk.units.get();
        ground.units.set_ends(chunk.start.get(), chunk.units.get(), ptr(chunk));
        chunk
    }

    fn put_aside_back(&mut self, ground: Ground, run: &'static Span) {
        self.free_units -= run.units.get();
        self.link(ground, run);
    }
}
