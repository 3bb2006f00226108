//! Which small blocks are worth huge pages: those of a program that touches at least half of their pages. For others a huge page would only make
//! untouched pages resident. This is learned from an arena's spans that came without pages of their own: when the next span of the class is needed, all blocks of the last one have been
//! handed out, and it can be looked at. Blocks of up to a page are taken for touched until something tells otherwise, since one touched block makes its neighbours on the page resident too.

use super::Ground;
use super::huge::{HUGE_FROM, Wanted};
use super::score::Score;
use crate::os;
use crate::size_class::{Class, ClassInfo, LINE};
use crate::span::Span;
use crate::sync::{AtomicUsize, Ordering};
use crate::units::UNIT;

/// What is touched of a span of such a program at least, as a part of it.
const TOUCHED: usize = 2;
/// One in so many spans of blocks larger than a page that could come from huge pages does not, so that it can be looked at.
const FRESH: usize = 16;
/// One in so many huge pages for blocks of up to a page waits until a span, the shortest possible, has been looked at.
const FRESH_SHORT: usize = 4;
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
    /// Spans of blocks larger than a page, counted, and huge pages for others.
    asked: AtomicUsize,
    asked_short: AtomicUsize,
}

impl Dense {
    pub(super) const fn new() -> Self {
        Self {
            score: Score::new(),
            short: Score::likely(),
            asked: AtomicUsize::new(0),
            asked_short: AtomicUsize::new(0),
        }
    }

    /// Whether a huge page for blocks up to a page should wait for a span that is to be looked at.
    pub(super) fn wants_example(&self) -> bool {
        // Relaxed: a hint.
        self.asked_short.fetch_add(1, Ordering::Relaxed) % FRESH_SHORT == FRESH_SHORT - 1
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

    /// What an arena that has `owned` units of `class` should get for it: from a huge page, if it needs much and by all that is known the program will touch it.
    pub(crate) fn wanted(&mut self, ground: Ground, class: Class, info: &ClassInfo, owned: usize) -> Wanted {
        let dense = &ground.shared.dense;
        let short = is_short(info);
        let most = info.next_units(owned);
        let mut wanted = Wanted { least: info.units.into(), most, densely: false, short };
        if info.is_busy(owned) {
            let score = if short { &dense.short } else { &dense.score };
            self.look(class, info, most, score);
            // Relaxed: a hint.
            let is_example = !short && dense.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(FRESH);
            wanted.densely = !is_example && score.is_high();
        }
        wanted
    }

    /// Looks at the span that is watched, if another of its class is needed, of so many `units`, and all of it has been handed out.
    fn look(&mut self, class: Class, info: &ClassInfo, units: usize, score: &Score) {
        if self.class != class {
            self.waited += u8::from(self.class != 0);
            if self.waited >= PATIENCE {
                *self = Self::new();
            }
            return;
        }
        let short = is_short(info);
        if short && self.since < HANDED_OUT {
            self.since += units;
            return;
        }
        let bytes = usize::from(info.units) * UNIT;
        let touched = os::resident(self.start, bytes, bytes);
        let is_touched = touched.is_some_and(|touched| touched >= bytes / TOUCHED);
        score.count(is_touched);
        if short && !is_touched {
            // Twice: huge pages that come until the next look would be resident for nothing.
            score.count(false);
        }
        *self = Self::new();
    }

    /// Watches a span that was just got for `class`, if it tells anything and no other is watched.
    pub(crate) fn watch(&mut self, ground: Ground, class: Class, info: &ClassInfo, span: &Span) {
        let tells = !is_short(info) || ground.shared.small() >= LOOKS_FROM;
        if self.class == 0 && !span.dirty.get() && tells {
            *self = Self { class, start: span.start.get(), since: 0, waited: 0 };
        }
    }
}

/// Whether blocks of a class are no larger than a page, or a page and a line.
fn is_short(info: &ClassInfo) -> bool {
    info.size as usize <= os::PAGE + LINE
}
