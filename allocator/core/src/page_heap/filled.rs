//! Huge pages for large blocks, in a program that fills them: a page fault then brings 2 MiB at once. Where a program touches a few pages of
//! each block, a huge page would keep 512 for one. Which of the two it is, blocks that got no huge pages tell: when the next one
//! is asked for, or they are freed, their first 2 MiB are looked at.
//!
//! A mark makes the system bring huge pages as the block is touched. It goes when the block is freed: the system would
//! fill holes that are purged later.

use super::huge::may_mark;
use super::score::Score;
use super::{Ground, Shared};
use crate::os;
use crate::span::Span;
use crate::sync::{AtomicU8, AtomicUsize, Ordering};
use crate::units::CHUNK;

/// Bytes of a chunk that were touched, at least, in a block that is filled.
const TOUCHED: usize = CHUNK / 8 * 7;
/// Of so many fresh blocks one is not marked, to be looked at.
const FRESH: u8 = 16;

/// What is known of how the program uses large blocks. Each part is a hint.
pub(super) struct Filled {
    /// The first chunk of the block that is looked at next; 0: none.
    watched: AtomicUsize,
    score: Score,
    /// Fresh blocks, counted.
    fresh: AtomicU8,
}

impl Filled {
    pub(super) const fn new() -> Self {
        Self { watched: AtomicUsize::new(0), score: Score::new(), fresh: AtomicU8::new(0) }
    }
}

impl Shared {
    /// Looks at the watched block, if there is one.
    fn look(&self) {
        // Relaxed, here and below: hints.
        let chunk = self.filled.watched.swap(0, Ordering::Relaxed);
        if chunk == 0 {
            return;
        }
        let filled = os::resident(chunk, CHUNK, CHUNK).is_some_and(|touched| touched >= TOUCHED);
        self.filled.score.count(filled);
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
        if chunks.end <= marked.max(chunks.start)
            || !may_mark(self.shared)
            || self.shared.huge_pages.given(self) != os::HugePages::OnRequest
        {
            return;
        }
        self.shared.look();
        // Relaxed, here and below: hints.
        let is_example = marked == 0 && filled.fresh.fetch_add(1, Ordering::Relaxed).is_multiple_of(FRESH);
        if is_example || !filled.score.is_high() {
            // Relaxed: as above.
            filled.watched.store(chunks.start, Ordering::Relaxed);
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
        // Relaxed: a hint.
        if !chunks.is_empty() && self.shared.filled.watched.load(Ordering::Relaxed) == chunks.start {
            self.shared.look();
        }
        let marked = span.marked_to.replace(0);
        if marked > chunks.start {
            // SAFETY: chunks of a block of ours. A mark that stays may cost memory, no more.
            unsafe { os::mark(chunks.start, marked - chunks.start, false) };
        }
    }
}
