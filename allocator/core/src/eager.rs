//! When what was freed goes back where nobody looks around from time to time (see `helper.rs`): in programs of one thread, and where no helper thread is wanted. Many such programs sleep once they have freed most of
//! their memory: servers that start processes instead of threads. So it goes back as soon as most of it is free; but not while the program is so young that it may end before that is of
//! any use, nor where it is seen to ask for it again at once.

use core::cell::Cell;

use crate::sync::{AtomicU32, Ordering};

/// Bytes that are free, and in memory, below which nothing goes back: 8 MiB.
const LEAST: usize = 8 << 20;
/// How old the program must be, in milliseconds.
const AGE_MS: u64 = 1000;
/// Whoever has so much free again so soon, as a part of what went back before, would have needed it: a half, within a second.
const AGAIN_PART: usize = 2;
const AGAIN_MS: u64 = 1000;
/// How long nothing goes back then, in milliseconds: twice as long each time in a row.
const REST_MS: u64 = 2000;
const REST_MOST_MS: u64 = 60_000;

/// What is free, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Free {
    /// In spans of small blocks and in dirty runs, as far as it is in memory.
    pub(crate) resident: usize,
    /// What is in memory of spans, large blocks and runs, that included.
    pub(crate) all: usize,
}

/// See the module.
pub(crate) struct Eager {
    /// 1: somebody is about it.
    turn: AtomicU32,
    /// The look for holes that comes next, two at each arena; 0: nothing is under way.
    look: Cell<usize>,
    /// What was free when it last began, and when that was; or nothing, and when the program began, in milliseconds of `os::now_ms`.
    given: Cell<usize>,
    since_ms: Cell<u64>,
    /// How long nothing goes back from then on.
    rest_ms: Cell<u64>,
}

// SAFETY: the cells are used by who has the turn only.
unsafe impl Sync for Eager {}

/// Whoever has the turn.
pub(crate) struct Turn<'a>(&'a Eager);

impl Eager {
    pub(crate) const fn new() -> Self {
        Self {
            turn: AtomicU32::new(0),
            look: Cell::new(0),
            given: Cell::new(0),
            since_ms: Cell::new(0),
            rest_ms: Cell::new(0),
        }
    }

    /// The turn, if nobody has it.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        // Acquire: pairs with the Release of whoever had it before.
        (self.turn.swap(1, Ordering::Acquire) == 0).then_some(Turn(self))
    }

    /// In the child of a fork: whoever had the turn is not here. Each cell is a word, and none is half written.
    pub(crate) fn forget_turn(&self) {
        // Relaxed: nobody else is there.
        self.turn.store(0, Ordering::Relaxed);
    }
}

impl Turn<'_> {
    /// The look that comes next; 0: none is under way.
    pub(crate) fn look(&self) -> usize {
        self.0.look.get()
    }

    /// This one comes next.
    pub(crate) fn go_on(&self, look: usize) {
        self.0.look.set(look);
    }

    /// The program begins.
    pub(crate) fn know_birth(&self, now_ms: u64) {
        self.0.since_ms.set(now_ms);
        self.0.rest_ms.set(AGE_MS);
    }

    /// Whether it is to begin with what is free.
    pub(crate) fn begins(&self, now_ms: u64, free: impl FnOnce() -> Free) -> bool {
        let (long, rest_ms) = (now_ms.saturating_sub(self.0.since_ms.get()), self.0.rest_ms.get());
        if long < rest_ms {
            return false;
        }
        let free = free();
        if free.resident < LEAST || free.resident < free.all / 4 * 3 {
            return false;
        }
        let given = self.0.given.get();
        let again = given > 0 && long - rest_ms < AGAIN_MS && free.resident >= given / AGAIN_PART;
        if again {
            self.0.rest_ms.set((rest_ms * 2).clamp(REST_MS, REST_MOST_MS));
        } else {
            self.0.rest_ms.set(0);
            self.0.given.set(free.resident);
        }
        self.0.since_ms.set(now_ms);
        !again
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: see `turn`.
        self.0.turn.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn begins(eager: &Eager, free: usize, all: usize, now_ms: u64) -> bool {
        let free = || Free { resident: free * MIB, all: all * MIB };
        eager.turn().expect("nobody has it").begins(now_ms, free)
    }

    #[test]
    fn a_program_is_of_age_after_a_second() {
        let eager = Eager::new();
        eager.turn().expect("nobody has it").know_birth(7000);
        assert!(!begins(&eager, 100, 100, 7999));
        assert!(begins(&eager, 100, 100, 8000));
    }

    #[test]
    fn it_begins_when_most_is_free() {
        let eager = Eager::new();
        assert!(!begins(&eager, 7, 7, 5000), "too little");
        assert!(!begins(&eager, 70, 100, 5000), "much is used");
        assert!(begins(&eager, 75, 100, 5000));
        assert!(begins(&eager, 20, 25, 5001), "the rest of what is freed, soon after");
    }

    #[test]
    fn who_asks_for_it_again_at_once_is_left_alone_longer_and_longer() {
        let eager = Eager::new();
        assert!(begins(&eager, 100, 100, 5000));
        assert!(!begins(&eager, 100, 100, 5500), "it was needed again");
        assert!(!begins(&eager, 100, 100, 7400), "that long");
        assert!(!begins(&eager, 100, 100, 7600), "needed within a second of that");
        assert!(!begins(&eager, 100, 100, 11_500), "and twice as long");
        assert!(begins(&eager, 100, 100, 12_700), "not needed for more than a second");
        assert!(!begins(&eager, 100, 100, 13_000));
        assert!(begins(&eager, 100, 100, 16_100), "as long as the first time");
    }

    #[test]
    fn one_at_a_time_has_the_turn() {
        let eager = Eager::new();
        let turn = eager.turn().expect("nobody has it");
        assert!(eager.turn().is_none());
        turn.go_on(3);
        drop(turn);
        assert_eq!(eager.turn().expect("nobody has it").look(), 3);
    }
}
