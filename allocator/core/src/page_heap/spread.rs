//! Where large blocks begin of which a program touches little. Those of the next ones should begin where earlier ones did: then their first pages,
//! which are touched most, are there already, instead of more and more others. So they begin at few places: at multiples of a
//! power of two, a quarter to a half of their size. (snmalloc gets the same by classes of sizes up to the largest.) Blocks that are filled
//! lie side by side, since what is between blocks would be lost.
//!
//! Which of the two it is, blocks tell that were fresh when they were handed out: when they are freed, it is looked how much of them was touched.

use super::Ground;
use crate::os;
use crate::span::Span;
use crate::sync::{AtomicU8, Ordering};
use crate::units::{CHUNK, UNIT};

/// Units of the smallest block that is looked at, or spread: 64 KiB.
const SPREAD_FROM: usize = (64 << 10) / UNIT;
/// Bytes that the places are apart at most. (Addresses cost nothing, except where they are limited, or charged.)
const APART_MOST: usize = CHUNK;
/// Parts of a block that are looked at, at most, and their bytes at most: what one call into the system tells.
const LOOKS: usize = 8;
const LOOK: usize = CHUNK;
/// What is touched of a sparse block at most, as a part of it.
const FEW: usize = 4;
/// What a sparse block adds to the score and one that is not takes from it, the most that it can be, and from where on blocks are spread.
const SPARSE: u8 = 1;
const NOT_SPARSE: u8 = 2;
const SCORE_MAX: u8 = 4;
const SPREAD_AT: u8 = 2;

/// How sparse the program's large blocks are. A hint.
pub(super) struct Spread {
    score: AtomicU8,
}

impl Spread {
    pub(super) const fn new() -> Self {
        Self { score: AtomicU8::new(0) }
    }

    fn is_on(&self) -> bool {
        // Relaxed: a hint.
        self.score.load(Ordering::Relaxed) >= SPREAD_AT
    }

    /// By how much dirty runs are longer, at least, than what was touched of them.
    pub(super) fn times(&self) -> usize {
        if self.is_on() { FEW } else { 1 }
    }
}

impl Ground<'_> {
    /// Bytes at a multiple of which a large block of `units` should begin.
    pub(crate) fn spread(self, units: usize) -> usize {
        if units < SPREAD_FROM || !self.shared.spread.is_on() {
            return UNIT;
        }
        ((UNIT << units.ilog2()) / 2).min(APART_MOST)
    }

    /// Learns from a large block that is freed, if it was fresh, how much of such blocks the program touches.
    pub(crate) fn learn_touched(self, span: &Span) {
        if span.dirty.get() || span.units.get() < SPREAD_FROM {
            return;
        }
        let parts = span.bytes().div_ceil(LOOK).min(LOOKS);
        let apart = span.units.get() / parts * UNIT;
        let look = |part: usize| os::resident(span.start.get() + apart * part, apart.min(LOOK), LOOK);
        // Where nobody knows, all of it.
        let touched: usize = (0..parts).map(|part| look(part).unwrap_or(LOOK)).sum();
        let score = &self.shared.spread.score;
        // Relaxed, here and below: a hint.
        let before = score.load(Ordering::Relaxed);
        let after = if touched <= parts * apart.min(LOOK) / FEW {
            (before + SPARSE).min(SCORE_MAX)
        } else {
            before.saturating_sub(NOT_SPARSE)
        };
        if after != before {
            // Relaxed: as above.
            score.store(after, Ordering::Relaxed);
        }
    }
}
