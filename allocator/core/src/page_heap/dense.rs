//! Which small blocks are worth huge pages: those of a program that touches at least half of their pages. Else a huge page would make all of
//! them resident. An arena's spans that came without pages of their own tell: when the next one of the class is needed, the last has been handed out.
//! Blocks up to a page are taken for touched as long as nothing tells otherwise, since one touched block makes a page of others resident, too.

use super::Ground;
use super::huge::HUGE_FROM;
use super::score::Score;
use crate::os;
use crate::size_class::{Class, ClassInfo};
use crate::span::Span;
use crate::sync::{AtomicU8, Ordering};
use crate::units::UNIT;

/// What is touched of a span of such a program at least, as a part of it.
const TOUCHED: usize = 2;
/// Of so many spans that could come from huge pages one does not, to be looked at: of blocks larger than a page, and of others.
const FRESH: u8 = 16;
const FRESH_SHORT: u8 = 64;
/// Units that an arena gets of a class of blocks up to a page after the span that it watches: magazines hold as much that the program has not got yet.
const HANDED_OUT: usize = 4;
/// Units of small blocks in the whole process from which on those up to a page are looked at: before there can be huge pages.
const LOOKS_FROM: usize = HUGE_FROM / 2;
/// Spans of other classes that an arena gets before it gives up waiting for one of the class of the span that it watches.
const PATIENCE: u8 = 16;

/// What is known of how the program uses such blocks. Each part is a hint.
pub(super) struct Dense {
    score: Score,
    /// The same of blocks up to a page.
    short: Score,
    /// Spans, counted.
    asked: AtomicU8,
}

impl Dense {
    pub(super) const fn new() -> Self {
        Self { score: Score::new(), short: Score::likely(), asked: AtomicU8::new(0) }
    }
}

/// The span that an arena watches. Guarded by the arena's lock.
pub(crate) struct Watched {
    /// Its class; 0: there is none.
    class: Class,
    start: usize,
    /// Units of its class that the arena got after it.
    since: usize,
    waited: u8,
}

impl Watched {
    pub(crate) const fn new() -> Self {
        Self { class: 0, start: 0, since: 0, waited: 0 }
    }

    /// Whether a span of `class` that is needed, of so many `units`, should come from a huge page, for all that is known of the program's blocks.
    pub(crate) fn is_dense(&mut self, ground: Ground, class: Class, info: &ClassInfo, units: usize) -> bool {
        let dense = &ground.shared.dense;
        let short = is_short(info);
        let (score, fresh, handed_out) = match short {
            true => (&dense.short, FRESH_SHORT, HANDED_OUT),
            false => (&dense.score, FRESH, 0),
        };
        if self.class == class {
            if self.since >= handed_out {
                let bytes = usize::from(info.units) * UNIT;
                let touched = os::resident(self.start, bytes, bytes);
                score.count(touched.is_some_and(|touched| touched >= bytes / TOUCHED));
                self.class = 0;
            }
            self.since += units;
        } else if self.class != 0 {
            self.waited += 1;
            if self.waited >= PATIENCE {
                self.class = 0;
            }
        }
        if short && ground.shared.small() < HUGE_FROM {
            return true;
        }
        // Relaxed: a hint.
        let is_example = dense.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(fresh);
        !is_example && score.is_high()
    }

    /// Watches a span that was just got for `class`, if it tells anything and no other is watched.
    pub(crate) fn watch(&mut self, ground: Ground, class: Class, info: &ClassInfo, span: &Span) {
        let tells = !is_short(info) || ground.shared.small() >= LOOKS_FROM;
        if self.class == 0 && !span.dirty.get() && tells {
            *self = Self { class, start: span.start.get(), since: 0, waited: 0 };
        }
    }
}

/// Whether blocks of a class are no larger than a page.
fn is_short(info: &ClassInfo) -> bool {
    info.size as usize <= os::PAGE
}
