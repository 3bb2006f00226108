//! The budget: what each heap may keep for later. All heaps share it.

use crate::large_cache;
use crate::os;
use crate::size_class::BULKY_CLASSES;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::units::UNIT;

/// Bytes in one heap's private depot, its magazines counted: at most (what a thread frees and allocates again in one sweep over its data, for which it
/// would otherwise go to the spans), at least, and in all heaps together beyond the least.
const DEPOT_MAX: usize = 32 << 20;
const DEPOT_MIN: usize = 64 << 10;
const DEPOT_SUM: usize = 64 << 20;
/// The same for a depot that takes blocks of other arenas, which the threads that allocated them could otherwise have again: in all heaps together this part (a quarter) of the program's
/// spans of small blocks, and in any case this many bytes for each heap.
const STRANGE_PART: usize = 4;
const STRANGE_SMALL: usize = 256 << 10;
/// Up to this many heaps are few: the first thread often only waits for the one that works. The magazines of each may grow by [`FEW_KEEP`] bytes in any case, and each of two keeps as much of the other's blocks. (Without a
/// bound, what two threads free of each other's blocks adds up in both: in each class it is a random walk.)
const FEW: usize = 2;
const FEW_KEEP: usize = 1 << 20;
/// By how much the magazines of all heaps beyond those few may grow together, as a part (a sixteenth) of the program's spans of small blocks; and those of each heap in any
/// case, which suffices for one class.
const MAGAZINES_PART: usize = 16;
const MAGAZINES_MIN: usize = 128 << 10;
/// Beyond this many heaps for each processor, threads are a crowd, and all heaps together keep less: what a thread that waits keeps is of no use to those that run.
const CROWD: usize = 4;
/// Beyond this many, some threads wait for one, and a heap keeps blocks only of those bulky classes that its thread uses steadily, where that may be a sixteenth of the program's spans of small blocks: by two magazines
/// of 32 KiB in each heap and class. (With fewer heaps it may be one thread that waits for the others' end.)
const QUEUE: usize = 2;
const BULKY_KEPT: usize = BULKY_CLASSES * (64 << 10) / UNIT;
const BULKY_PART: usize = 16;
/// A heap keeps one empty magazine for every [`BYTES_PER_SPARE`] bytes that its private depot may hold, and at most [`SPARES_MAX`]: they circulate between threads that fill them and threads
/// that empty them, and are memory themselves.
const BYTES_PER_SPARE: usize = 32 << 10;
const SPARES_MAX: usize = 64;
/// Units of freed large blocks that one heap keeps at least (64 KiB), and in all heaps together for each processor beyond the least (4 MiB).
const LARGE_MIN: usize = (64 << 10) / UNIT;
const LARGE_SUM: usize = (4 << 20) / UNIT;
/// How many more units a heap may keep if its thread asks again for as many as it freed: 8 MiB, and 16 MiB for each processor in all heaps together.
const MORE_MAX: usize = (8 << 20) / UNIT;
const MORE_SUM: usize = (16 << 20) / UNIT;

/// See the module. Bounds on memory, not promises: each is read without regard to the others.
pub(crate) struct Budget {
    /// Not 0: heaps are more than [`CROWD`] for each processor.
    crowd: AtomicU32,
    /// Units of spans of small blocks up to which heaps keep blocks only of the bulky classes that their threads use steadily.
    paced: AtomicUsize,
    /// Bytes of a private depot.
    depot: AtomicUsize,
    /// Empty magazines.
    spares: AtomicU32,
    /// Bytes of a private depot that takes other arenas' blocks.
    strange: Share,
    /// Bytes by which the magazines of a heap may hold more than in any case.
    magazines: Share,
    /// Units of large blocks; and how many more where a thread asks for as many again.
    large: AtomicUsize,
    large_more: AtomicUsize,
}

/// Bytes that a heap may keep in a program that has so many units of spans of small blocks.
struct Share {
    for_each_unit: AtomicUsize,
    least: AtomicUsize,
}

impl Share {
    const fn new(for_each_unit: usize, least: usize) -> Self {
        Self { for_each_unit: AtomicUsize::new(for_each_unit), least: AtomicUsize::new(least) }
    }

    fn set(&self, for_each_unit: usize, least: usize) {
        // Relaxed, twice: see Budget.
        self.for_each_unit.store(for_each_unit, Ordering::Relaxed);
        self.least.store(least, Ordering::Relaxed);
    }

    #[inline(always)]
    fn least(&self) -> usize {
        // Relaxed: see Budget.
        self.least.load(Ordering::Relaxed)
    }

    fn of(&self, small: usize) -> usize {
        // Relaxed: see Budget.
        (small * self.for_each_unit.load(Ordering::Relaxed)).max(self.least())
    }
}

impl Budget {
    /// That of a single heap.
    pub(crate) const fn new() -> Self {
        Self {
            crowd: AtomicU32::new(0),
            paced: AtomicUsize::new(0),
            depot: AtomicUsize::new(DEPOT_MAX),
            spares: AtomicU32::new(spares(DEPOT_MAX)),
            strange: Share::new(UNIT / STRANGE_PART, DEPOT_MAX),
            magazines: Share::new(UNIT / MAGAZINES_PART, FEW_KEEP),
            large: AtomicUsize::new(large_cache::LARGEST),
            large_more: AtomicUsize::new(MORE_MAX),
        }
    }

    /// Shares it out over `heaps` heaps.
    pub(crate) fn share_out(&self, heaps: u32) {
        let (heaps, processors) = (heaps.max(1) as usize, os::processors());
        let useful = heaps.min(CROWD * processors);
        // Relaxed: see the type.
        self.crowd.store(u32::from(heaps > useful), Ordering::Relaxed);
        let (strange_least, magazines_least) = match heaps {
            // There are no others' blocks but those of ended threads.
            1 => (DEPOT_MAX, FEW_KEEP),
            ..=FEW => (FEW_KEEP, FEW_KEEP),
            _ => (STRANGE_SMALL * useful / heaps, MAGAZINES_MIN),
        };
        self.strange.set(UNIT / STRANGE_PART * useful / (heaps * heaps), strange_least.max(DEPOT_MIN));
        let beyond = heaps.saturating_sub(FEW).max(1);
        self.magazines.set(UNIT / MAGAZINES_PART / beyond, magazines_least);
        let depot = (DEPOT_SUM / heaps).clamp(DEPOT_MIN, DEPOT_MAX);
        // Relaxed: see the type.
        self.spares.store(spares(depot), Ordering::Relaxed);
        let paced = if heaps > QUEUE * processors { heaps * BULKY_KEPT * BULKY_PART } else { 0 };
        let shares = [
            (&self.paced, paced),
            (&self.depot, depot),
            (&self.large, (LARGE_SUM * processors / heaps).clamp(LARGE_MIN, large_cache::LARGEST)),
            (&self.large_more, (MORE_SUM * processors / heaps).min(MORE_MAX)),
        ];
        for (place, share) in shares {
            // Relaxed: see the type.
            place.store(share, Ordering::Relaxed);
        }
    }

    /// Whether there are so many heaps that most of them wait for a processor.
    #[inline(always)]
    pub(crate) fn is_crowd(&self) -> bool {
        // Relaxed: see the type.
        self.crowd.load(Ordering::Relaxed) != 0
    }

    /// Units of spans of small blocks up to which heaps keep blocks only of those bulky classes that their threads use steadily; 0 where no thread waits.
    pub(crate) fn paced(&self) -> usize {
        // Relaxed: see the type.
        self.paced.load(Ordering::Relaxed)
    }

    /// Bytes that one heap's private depot may hold.
    #[inline(always)]
    pub(crate) fn depot(&self) -> usize {
        // Relaxed: see the type.
        self.depot.load(Ordering::Relaxed)
    }

    /// Empty magazines that one heap keeps at most.
    #[inline(always)]
    pub(crate) fn spares(&self) -> u32 {
        // Relaxed: see the type.
        self.spares.load(Ordering::Relaxed)
    }

    /// Bytes that it may hold in any case and still take blocks of other arenas.
    #[inline(always)]
    pub(crate) fn strange_least(&self) -> usize {
        self.strange.least()
    }

    /// The same in a program with `small` units of spans of small blocks.
    pub(crate) fn strange(&self, small: usize) -> usize {
        self.strange.of(small)
    }

    /// Bytes by which the magazines of one heap may hold more than in any case, in a program with `small` units of spans of small blocks.
    pub(crate) fn magazines(&self, small: usize) -> usize {
        self.magazines.of(small)
    }

    /// Units of freed large blocks that one heap may keep.
    #[inline(always)]
    pub(crate) fn large(&self) -> usize {
        // Relaxed: see the type.
        self.large.load(Ordering::Relaxed)
    }

    /// How many more it may keep whose thread asks again for as many as it freed.
    pub(crate) fn large_more(&self) -> usize {
        // Relaxed: see the type.
        self.large_more.load(Ordering::Relaxed)
    }
}

/// Empty magazines of a heap whose private depot holds so many bytes.
const fn spares(depot: usize) -> u32 {
    let spares = depot / BYTES_PER_SPARE;
    (if spares < SPARES_MAX { spares } else { SPARES_MAX }) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const GIB: usize = (1 << 30) / UNIT;

    fn of(heaps: usize) -> Budget {
        let budget = Budget::new();
        budget.share_out(heaps as u32);
        budget
    }

    #[test]
    fn two_heaps_keep_a_megabyte_of_each_others_blocks_and_more_of_their_own() {
        for (budget, strange) in [(Budget::new(), DEPOT_MAX), (of(1), DEPOT_MAX), (of(FEW), FEW_KEEP)] {
            assert_eq!((budget.strange_least(), budget.strange(0)), (strange, strange));
            assert_eq!((budget.magazines(0), budget.depot()), (FEW_KEEP, DEPOT_MAX));
        }
        assert!(of(FEW + 1).strange_least() < FEW_KEEP && of(FEW + 1).magazines(0) < FEW_KEEP);
    }

    #[test]
    fn empty_magazines_are_kept_for_what_a_depot_may_hold() {
        assert_eq!([1, 8, 32, 1_000_000].map(|heaps| of(heaps).spares()), [64, 64, 64, 2]);
        assert_eq!(of(128).spares() as usize, DEPOT_SUM / 128 / BYTES_PER_SPARE);
    }

    #[test]
    fn several_heaps_together_keep_a_quarter_of_the_program_of_other_arenas_blocks() {
        for heaps in FEW + 1..=CROWD * os::processors() {
            let together = of(heaps).strange(GIB) * heaps;
            assert!(together <= 256 << 20, "{heaps} heaps: {together}");
            assert!(together > 250 << 20, "{heaps} heaps: {together}");
        }
    }

    #[test]
    fn magazines_grow_by_a_part_of_the_program() {
        assert_eq!([Budget::new(), of(1), of(FEW)].map(|budget| budget.magazines(GIB)), [64 << 20; 3]);
        for beyond in [1, 2, 6] {
            let together = of(FEW + beyond).magazines(GIB) * beyond;
            assert!(together <= 64 << 20 && together > 60 << 20, "{beyond} more: {together}");
        }
        assert_eq!(of(FEW + 1).magazines(1), MAGAZINES_MIN);
    }

    #[test]
    fn heaps_mind_the_pace_where_some_threads_wait_in_a_program_that_is_not_much_larger() {
        let all_run = QUEUE * os::processors();
        assert_eq!(of(all_run).paced(), 0);
        for heaps in [all_run + 1, 100] {
            assert_eq!(of(heaps).paced(), heaps * (11 << 20) / UNIT);
        }
    }

    #[test]
    fn a_crowd_keeps_less_in_all() {
        let few = CROWD * os::processors();
        let together = |heaps: usize| of(heaps).strange(GIB) * heaps;
        assert!(together(few * 8) <= together(few) / 4);
        assert!(!of(few).is_crowd() && of(few + 1).is_crowd());
        let crowd = of(1_000_000);
        assert_eq!((crowd.strange(GIB), crowd.depot(), crowd.large()), (DEPOT_MIN, DEPOT_MIN, LARGE_MIN));
    }
}
