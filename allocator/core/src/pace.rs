//! How often a thread uses a size class whose blocks are so long that those that it keeps and does not use are most of what it keeps.

use core::cell::Cell;

use crate::os;

/// Slow paths for a class between two looks at the clock, …
const WINDOW: u8 = 16;
/// … and how long they may take if the thread is to count as one that uses the class steadily: 64 µs. A block that comes straight from its span, and goes straight back, takes some
/// 50 ns longer than one that is kept: a hundredth of the time of a thread that asks for one in 4 µs.
const STEADY_TICKS: u16 = 8;
/// So many looks in a row must find that it does not.
const PATIENCE: u8 = 2;
/// Microseconds of a tick.
const TICK_US: u64 = 8;

/// How often a heap's thread uses a class where its magazines do not suffice, or where it has none.
pub(crate) struct Pace {
    /// The last look at the clock, in ticks.
    looked: Cell<u16>,
    /// Slow paths until the next one.
    left: Cell<u8>,
    /// Looks after which the class no longer counts as used steadily, if none finds that it is. More than one: between two looks the thread may have waited for a processor.
    steady: Cell<u8>,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { looked: Cell::new(0), left: Cell::new(0), steady: Cell::new(0) }
    }

    /// Counts a slow path; whether the thread uses the class steadily, or the program is so large, as `is_large` tells now and then, that it does not matter.
    pub(crate) fn count(&self, is_large: impl FnOnce() -> bool) -> bool {
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            return self.steady.get() > 0;
        }
        let now = (os::now_us() / TICK_US) as u16;
        let ticks = now.wrapping_sub(self.looked.replace(now));
        let steady = ticks < STEADY_TICKS || is_large();
        self.left.set(WINDOW - 1);
        self.steady.set(if steady { PATIENCE } else { self.steady.get().saturating_sub(1) });
        self.steady.get() > 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Counts as many slow paths as lie between two looks at the clock; whether the class is used steadily after all of them, or after none.
    fn look(pace: &Pace) -> bool {
        let first = pace.count(|| false);
        assert!((1..WINDOW).all(|_| pace.count(|| false) == first), "only a look tells");
        first
    }

    #[test]
    fn a_class_is_used_steadily_until_two_looks_in_a_row_find_that_it_is_not() {
        let pace = Pace::new();
        os::work_us(TICK_US * u64::from(STEADY_TICKS));
        pace.looked.set(STEADY_TICKS);
        assert!(!look(&pace) && !look(&pace), "never yet");
        os::work_us(TICK_US * u64::from(STEADY_TICKS) - 1);
        pace.looked.set(0);
        assert!(look(&pace), "in less time");
        os::work_us(1_000_000);
        pace.looked.set(0);
        assert!(look(&pace), "no time has passed until now");
        assert!(look(&pace), "it may have waited for a processor");
        assert!(!look(&pace) && !look(&pace));
        assert!((0..WINDOW).any(|_| pace.count(|| true)), "it does not matter");
    }
}
