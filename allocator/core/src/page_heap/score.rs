//! What the last few blocks that were looked at have in common: a counter that goes up and down. A hint, guarded by nothing.

use crate::sync::{AtomicU8, Ordering};

/// What a block of the kind adds and one of another takes away, the most that there can be, and from where on the next one is taken for one of the kind.
const UP: u8 = 1;
const DOWN: u8 = 2;
const MOST: u8 = 4;
const HIGH: u8 = 2;

pub(super) struct Score(AtomicU8);

impl Score {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// One that is high until it learns better.
    pub(super) const fn high() -> Self {
        Self(AtomicU8::new(MOST))
    }

    /// One that is high until the first that is not of the kind.
    pub(super) const fn likely() -> Self {
        Self(AtomicU8::new(HIGH))
    }

    /// Counts a block that is, or is not, of the kind.
    #[inline(never)]
    pub(super) fn count(&self, is: bool) {
        // Relaxed, here and below: a hint.
        let before = self.0.load(Ordering::Relaxed);
        let after = if is { (before + UP).min(MOST) } else { before.saturating_sub(DOWN) };
        // Not each time: all threads look at the word.
        if after != before {
            // Relaxed: as above.
            self.0.store(after, Ordering::Relaxed);
        }
    }

    /// Whether none of the last was of the kind.
    pub(super) fn is_lowest(&self) -> bool {
        // Relaxed: a hint.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Whether the last two were of the kind, or nearly all of the last.
    pub(super) fn is_high(&self) -> bool {
        // Relaxed: a hint.
        self.0.load(Ordering::Relaxed) >= HIGH
    }
}
