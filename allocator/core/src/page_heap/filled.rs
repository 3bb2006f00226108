//! Huge pages for large blocks, in a program that fills them: there a page fault brings in 2 MiB at once. In a program that touches only a few pages of
//! each block, a huge page would make 512 pages resident for one. Which kind of program it is, blocks tell that got no huge pages: they, or their first 2 MiB, are looked at
//! when the next block is asked for, or when they are freed. Of how long blocks that is known, they tell as well: those much longer than any that was filled
//! may be a reserve of which a part is used.
//!
//! A mark makes the system bring in huge pages as the block is touched. It is removed when the block is freed, since the system would otherwise
//! fill holes that are purged later. Blocks too short for a huge page of their own lie side by side in one, as small ones do
//! ([`PageHeaps::bring_huge_page`](super::PageHeaps::bring_huge_page)).

use super::score::Score;
use super::{Ground, Shared};
use crate::os;
use crate::span::Span;
use crate::sync::{AtomicU8, AtomicUsize, Ordering};
use crate::units::{CHUNK, UNIT};

/// One in so many fresh blocks is not marked, so that it can be looked at.
const FRESH: u8 = 16;
/// Units of the longest block that shares a huge page with others.
pub(super) const SHARES_MOST: usize = CHUNK / UNIT / 2;
/// How much longer than the longest block that was seen to be filled a block may be that is expected to be filled as well. Programs have large
/// blocks that they fill, and reserve larger ones of which they use a part.
const LONGER: usize = 2;
/// One in so many of those is looked at until one is filled: a look takes as long as the page fault of a block of which little is touched.
const SHORT_LOOKS: u8 = 8;

/// Units of a block as they are remembered, at most: what is left of an address that a unit begins at.
const LONGEST: usize = UNIT - 1;

/// Units got from the system up to which huge pages may be asked for by marks on the mappings: 64 GiB. A chunk whose mark differs from its
/// neighbours' is a mapping of its own, of which a process may have 65 530.
const MARKS_UP_TO: usize = (64 << 30) / UNIT;

/// Whether marks may cost mappings.
fn may_mark(shared: &Shared) -> bool {
    // Relaxed: a bound, give or take what others do meanwhile.
    shared.mapped.load(Ordering::Relaxed) <= MARKS_UP_TO
}

/// What is known of how the program uses its large blocks, or those too short to hold a whole chunk. Each part is a hint.
pub(super) struct Filled {
    /// Where what is looked at next begins, and the units of its block; 0: nothing.
    watched: AtomicUsize,
    /// Units of the longest block that was seen to be filled.
    longest: AtomicUsize,
    /// Eighths of it that were touched, at least, in a block that is filled.
    least: u8,
    score: Score,
    /// Fresh blocks, counted.
    fresh: AtomicU8,
}

impl Filled {
    /// Of blocks with whole chunks, the first of which is looked at.
    pub(super) const fn long() -> Self {
        Self::new(7)
    }

    /// Of others, whose last units may not be asked for.
    pub(super) const fn short() -> Self {
        Self::new(5)
    }

    const fn new(least: u8) -> Self {
        Self {
            watched: AtomicUsize::new(0),
            longest: AtomicUsize::new(0),
            least,
            score: Score::new(),
            fresh: AtomicU8::new(0),
        }
    }

    /// Whether the short block that was counted last is to be looked at.
    fn is_due(&self) -> bool {
        // Relaxed: a hint.
        !self.score.is_lowest() || self.fresh.load(Ordering::Relaxed) % SHORT_LOOKS == 1
    }

    /// The first 2 MiB from `start` on, or up to its end, of a block of so many units.
    fn watch(&self, start: usize, units: usize) {
        // Relaxed: a hint.
        self.watched.store(start | units.min(LONGEST), Ordering::Relaxed);
    }

    /// Looks at what is watched, if it begins there.
    fn look_at(&self, start: usize) {
        // Relaxed: a hint.
        if self.watched.load(Ordering::Relaxed) / UNIT * UNIT == start {
            self.look();
        }
    }

    /// Looks at what is watched, if there is anything.
    #[inline(never)]
    fn look(&self) {
        // Relaxed, here and below: hints.
        let watched = self.watched.swap(0, Ordering::Relaxed);
        if watched == 0 {
            return;
        }
        let (start, units) = (watched / UNIT * UNIT, watched % UNIT);
        let bytes = (units * UNIT).min(CHUNK);
        let least = bytes / 8 * usize::from(self.least);
        let is_filled = os::resident(start, bytes, bytes).is_some_and(|touched| touched >= least);
        self.score.count(is_filled);
        // Relaxed, both: hints.
        if is_filled && units > self.longest.load(Ordering::Relaxed) {
            self.longest.store(units, Ordering::Relaxed);
        }
    }

    /// Whether a block of so many units is likely to be filled. Of new ones, some are to be looked at, and those that are long beyond what was seen;
    /// one that grows was filled so far.
    #[inline(never)]
    fn expects(&self, units: usize, is_new: bool) -> bool {
        self.look();
        if is_new {
            // Relaxed, both: hints.
            let is_example = self.fresh.fetch_add(1, Ordering::Relaxed).is_multiple_of(FRESH);
            let longest = self.longest.load(Ordering::Relaxed);
            if is_example || units.min(LONGEST) > LONGER * longest {
                return false;
            }
        }
        self.score.is_high()
    }
}

impl Shared {
    /// Whether the next fresh block without a whole chunk is likely to be filled.
    pub(super) fn fills_short(&self) -> bool {
        self.short.expects(0, true)
    }
}

/// Whole chunks of a large block.
fn chunks(span: &Span) -> core::ops::Range<usize> {
    span.start.get().next_multiple_of(CHUNK)..span.end() / CHUNK * CHUNK
}

impl Ground<'_> {
    /// Marks what was fresh of a large block when it was handed out, or has grown since, if the program fills such blocks; or watches
    /// whether it does.
    pub(crate) fn mark_fresh(self, span: &Span) {
        let chunks = chunks(span);
        let (marked, filled) = (span.marked_to.get(), &self.shared.filled);
        let are_given = || self.shared.huge_pages.are_given(self);
        if chunks.is_empty() && marked == 0 {
            if span.units.get() <= SHARES_MOST && self.shared.short.is_due() && are_given() {
                self.shared.short.watch(span.start.get(), span.units.get());
            }
            return;
        }
        if chunks.end <= marked.max(chunks.start) || !may_mark(self.shared) || !are_given() {
            return;
        }
        if !filled.expects(span.units.get(), marked == 0) {
            filled.watch(chunks.start, span.units.get());
            return;
        }
        let start = marked.max(chunks.start);
        // The first huge page is brought at once, to see how long that takes.
        // SAFETY: chunks of a block of ours, which nobody uses but who asks for it, or for it to grow.
        let bring = || unsafe {
            let marked = os::mark(start, chunks.end - start, true);
            os::touch(start);
            marked
        };
        // What is there already saves nothing.
        let (brought, cheap) = match os::is_resident(start) {
            true => (bring(), true),
            false => self.shared.huge_pages.judge((chunks.end - start) / CHUNK, bring),
        };
        if brought {
            span.marked_to.set(chunks.end);
        }
        if !cheap {
            self.unmark(span);
        }
    }

    /// Ends what [`Ground::mark_fresh`] began, for a block that will be freed, shrunk or moved.
    pub(crate) fn unmark(self, span: &Span) {
        let chunks = chunks(span);
        if chunks.is_empty() {
            self.shared.short.look_at(span.start.get());
        } else {
            self.shared.filled.look_at(chunks.start);
        }
        let marked = span.marked_to.replace(0);
        if marked > chunks.start {
            // SAFETY: chunks of a block of ours. A mark that stays may cost memory, no more.
            unsafe { os::mark(chunks.start, marked - chunks.start, false) };
        }
    }
}
