//! When what was freed goes back where nobody looks around from time to time (see `helper.rs`): in programs of one thread, and where no helper thread is wanted. Many such programs sleep once they have freed most of
//! their memory: servers that start processes instead of threads. So it goes back as soon as most of it is free; but not while the program is so young that it may end before that is of
//! any use, nor where it is seen to ask for it again at once. By the same rule, but in any program and however young it is, what is free goes back before a fork.

use core::cell::Cell;

use crate::sync::{AtomicU32, Ordering};

/// Bytes that are free, and in memory, below which nothing goes back: 8 MiB.
const LEAST: usize = 8 << 20;
/// The same before a fork: 128 KiB, from which on glibc trims its heap, too.
const LEAST_AT_FORK: usize = 128 << 10;
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

impl Free {
    /// Whether it is worth to give it back for its own sake: [`LEAST`], and so many quarters of what is in memory, or more.
    pub(crate) fn is_much(&self, quarters: usize) -> bool {
        self.resident >= LEAST && self.resident >= self.all / 4 * quarters
    }
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
        let rests = self.long(now_ms) < self.0.rest_ms.get();
        !rests
            && Some(free())
                .filter(|free| free.is_much(3))
                .is_some_and(|free| self.gives(now_ms, free.resident))
    }

    /// Whether it is to give back what is free before a fork, in bytes. It does so however young the program is: from then on each of its processes would have that memory.
    pub(crate) fn begins_at_fork(&self, now_ms: u64, free: impl FnOnce() -> usize) -> bool {
        let rests = self.0.given.get() > 0 && self.long(now_ms) < self.0.rest_ms.get();
        !rests
            && Some(free()).filter(|free| *free >= LEAST_AT_FORK).is_some_and(|free| self.gives(now_ms, free))
    }

    /// How long it is since it last began.
    fn long(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.0.since_ms.get())
    }

    /// Begins with so many bytes, unless as much went back just before.
    fn gives(&self, now_ms: u64, free: usize) -> bool {
        let rest_ms = self.0.rest_ms.get();
        let given = self.0.given.get();
        let again = given > 0 && self.long(now_ms) - rest_ms < AGAIN_MS && free >= given / AGAIN_PART;
        if again {
            self.0.rest_ms.set((rest_ms * 2).clamp(REST_MS, REST_MOST_MS));
        } else {
            self.0.rest_ms.set(0);
            self.0.given.set(free);
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
    fn before_a_fork_a_young_program_gives_back_what_is_little_of_all_but_not_what_it_needs_again_at_once() {
        let forks = |eager: &Eager, free: usize, now_ms| {
            eager.turn().expect("nobody has it").begins_at_fork(now_ms, || free)
        };
        let eager = Eager::new();
        eager.turn().expect("nobody has it").know_birth(7000);
        assert!(!forks(&eager, LEAST_AT_FORK - 1, 7001), "too little");
        assert!(forks(&eager, 50 * MIB, 7002));
        assert!(!forks(&eager, 50 * MIB, 7003), "it was needed again");
        assert!(!forks(&eager, 50 * MIB, 9000), "that long");
        assert!(!begins(&eager, 100, 100, 9000), "nor anything else");
        assert!(forks(&eager, 50 * MIB, 10_100), "not needed for more than a second");
        assert!(forks(&eager, MIB, 10_101), "what was freed since");
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
