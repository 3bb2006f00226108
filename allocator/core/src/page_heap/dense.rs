//! Which small blocks larger than a page are worth huge pages: those of a program that touches at least half of each. Else a huge page would make all of
//! them resident. An arena's spans that came without pages of their own tell: when the next one of the class is needed, the last has been handed out.

use super::Ground;
use super::score::Score;
use crate::os;
use crate::size_class::{Class, ClassInfo};
use crate::span::Span;
use crate::sync::{AtomicU8, Ordering};
use crate::units::UNIT;

/// What is touched of a span of such a program at least, as a part of it.
const TOUCHED: usize = 2;
/// Of so many spans that could come from huge pages one does not, to be looked at.
const FRESH: u8 = 16;
/// Spans of other classes that an arena gets before it gives up waiting for one of the class of the span that it watches.
const PATIENCE: u8 = 16;

/// What is known of how the program uses such blocks. Each part is a hint.
pub(super) struct Dense {
    score: Score,
    /// Spans, counted.
    asked: AtomicU8,
}

impl Dense {
    pub(super) const fn new() -> Self {
        Self { score: Score::new(), asked: AtomicU8::new(0) }
    }
}

/// The span that an arena watches. Guarded by the arena's lock.
pub(crate) struct Watched {
    /// Its class; 0: there is none.
    class: Class,
    start: usize,
    waited: u8,
}

impl Watched {
    pub(crate) const fn new() -> Self {
        Self { class: 0, start: 0, waited: 0 }
    }

    /// Whether a span of `class` that is needed should come from a huge page, for all that is known of the program's blocks.
    pub(crate) fn is_dense(&mut self, ground: Ground, class: Class, info: &ClassInfo) -> bool {
        if info.size as usize <= os::PAGE {
            return true;
        }
        let dense = &ground.shared.dense;
        if self.class == class {
            let bytes = usize::from(info.units) * UNIT;
            let touched = os::resident(self.start, bytes, bytes);
            dense.score.count(touched.is_some_and(|touched| touched >= bytes / TOUCHED));
            self.class = 0;
        } else if self.class != 0 {
            self.waited += 1;
            if self.waited >= PATIENCE {
                self.class = 0;
            }
        }
        // Relaxed: a hint.
        let is_example = dense.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(FRESH);
        !is_example && dense.score.is_high()
    }

    /// Watches a span that was just got for `class`, if it tells anything and no other is watched.
    pub(crate) fn watch(&mut self, class: Class, info: &ClassInfo, span: &Span) {
        if self.class == 0 && !span.dirty.get() && info.size as usize > os::PAGE {
            *self = Self { class, start: span.start.get(), waited: 0 };
        }
    }
}
