//! Where large blocks begin, in a program that touches little of them. The next ones should begin where earlier ones did: then their first pages,
//! which are touched most, are there already, and no further ones are touched. So blocks begin at few places: at multiples of a
//! power of two, a quarter to a half of their size. (snmalloc achieves the same by size classes up to the largest sizes.) Blocks that are filled
//! lie side by side instead, since what lies between blocks would be lost. (So do those of a thread that has one block at a time: it finds the same place anyway.)
//!
//! Which kind of program it is, blocks tell that were fresh when they were handed out: when they are freed, the page heap looks how much of them was touched. A
//! `realloc` that copies tells as well: it fills its block.

use super::Ground;
use super::score::Score;
use crate::os;
use crate::span::Span;
use crate::units::{CHUNK, UNIT};

/// Units of the smallest block that is looked at, or spread: 64 KiB.
const SPREAD_FROM: usize = (64 << 10) / UNIT;
/// Units of the longest block that is judged with all others only: 1 MiB.
const SHORT_MOST: usize = (1 << 20) / UNIT;
/// Bytes that the places are apart at most. (Addresses cost nothing, except where they are limited, or charged.)
const APART_MOST: usize = CHUNK;
/// Parts of a block that are looked at, at most, and their bytes at most: what one call into the system tells.
const LOOKS: usize = 8;
const LOOK: usize = CHUNK;
/// What is touched of a sparse block at most, as a part of it.
const FEW: usize = 2;
/// The same of one that is hardly touched at all.
const HARDLY: usize = 16;
/// Units of the end of a block that are looked at, at most: 64 KiB; and what is there at most where it is clean, as a part of them.
const END: usize = (64 << 10) / UNIT;
const CLEAN: usize = 8;
/// How many times as much as of other blocks a thread may keep of either.
const KEPT_OF_FEW: usize = 8;
const KEPT_OF_HARDLY: usize = 32;

/// How sparse the program's large blocks are. A hint.
pub(super) struct Spread {
    score: Score,
    /// The same of the long ones alone: they may be sparse in a program that fills its others.
    long: Score,
    /// How many of them all are hardly touched.
    hardly: Score,
    /// How many that serve again have no pages at their ends.
    clean: Score,
}

impl Spread {
    pub(super) const fn new() -> Self {
        Self { score: Score::new(), long: Score::new(), hardly: Score::new(), clean: Score::high() }
    }

    /// The score of blocks of `units` alone, where they have one.
    fn of(&self, units: usize) -> &Score {
        if units > SHORT_MOST { &self.long } else { &self.score }
    }

    /// Counts what is known of all blocks, and of those of `units`.
    #[inline(never)]
    fn count(&self, units: usize, is_sparse: bool) {
        self.score.count(is_sparse);
        if units > SHORT_MOST {
            self.long.count(is_sparse);
        }
    }

    /// By how much dirty runs are longer, at least, than what was touched of them.
    pub(super) fn times(&self) -> usize {
        if self.score.is_high() { FEW } else { 1 }
    }
}

impl Ground<'_> {
    /// Bytes at a multiple of which a large block of `units` should begin.
    pub(crate) fn spread(self, units: usize) -> usize {
        if units < SPREAD_FROM || !self.shared.spread.of(units).is_high() {
            return UNIT;
        }
        ((UNIT << units.ilog2()) / 2).min(APART_MOST)
    }

    /// How many times as much as of other blocks a thread may keep of the program's large blocks, since they are sparse; 0: they are not.
    pub(crate) fn kept_times(self) -> usize {
        match &self.shared.spread {
            spread if !spread.score.is_high() => 0,
            spread if spread.hardly.is_high() => KEPT_OF_HARDLY,
            _ => KEPT_OF_FEW,
        }
    }

    /// Whether large blocks that serve again are clean towards their ends, since the program touches the fronts only. Where it touches ends as well, each
    /// block leaves pages at another place, until the run is full of them: it is memory like any other then.
    pub(crate) fn ends_are_clean(self) -> bool {
        self.shared.spread.clean.is_high()
    }

    /// Learns from a large block that is freed how much of such blocks the program touches, if it was fresh; or else, if it is one of those that are looked at
    /// all the same, that it touches little: what is there may be from earlier blocks.
    pub(crate) fn learn_touched(self, span: &Span, all_the_same: bool) {
        let fresh = !span.dirty.get();
        if span.units.get() < SPREAD_FROM || !(fresh || all_the_same) {
            return;
        }
        if fresh || !self.shared.spread.hardly.is_high() {
            self.look_at_touched(span, fresh);
        }
        if !fresh {
            self.look_at_end(span);
        }
    }

    /// Learns from a large block that served others before whether there are pages at three quarters of it.
    fn look_at_end(self, span: &Span) {
        let quarter = span.units.get() / 4;
        let bytes = quarter.min(END) * UNIT;
        // Where nobody knows, all of it.
        let touched = os::resident(span.start.get() + 3 * quarter * UNIT, bytes, bytes).unwrap_or(bytes);
        self.shared.spread.clean.count(touched <= bytes / CLEAN);
    }

    /// Learns that `realloc` has copied so many bytes into a large block: all of it that is looked at as a rule was touched then.
    pub(crate) fn learn_copied(self, bytes: usize) {
        if bytes >= SPREAD_FROM * UNIT {
            self.shared.spread.count(bytes / UNIT, false);
            self.shared.spread.hardly.count(false);
        }
    }

    /// Learns from a large block how much of such blocks the program touches, or only that it touches little.
    pub(crate) fn look_at_touched(self, span: &Span, also_much: bool) {
        let parts = span.bytes().div_ceil(LOOK).min(LOOKS);
        let apart = span.units.get() / parts * UNIT;
        let look = |part: usize| os::resident(span.start.get() + apart * part, apart.min(LOOK), LOOK);
        // Where nobody knows, all of it.
        let touched: usize = (0..parts).map(|part| look(part).unwrap_or(LOOK)).sum();
        let looked_at = parts * apart.min(LOOK);
        let spread = &self.shared.spread;
        let (few, hardly) = (touched <= looked_at / FEW, touched <= looked_at / HARDLY);
        if few || also_much {
            spread.count(span.units.get(), few);
        }
        if hardly || also_much {
            spread.hardly.count(hardly);
        }
    }
}
