//! What all page heaps have together, and the words by which they and the helper thread understand each other.

use super::PageHeap;
use super::dense::Dense;
use super::filled::Filled;
use super::huge::HugePages;
use super::spread::Spread;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::units::UNIT;

/// Page heaps that there may be.
pub(crate) const PAGE_HEAPS: usize = 16;
/// By which part what is known of a page heap may be wrong, and 256 KiB in any case. To tell of each change would
/// make all threads meet at one cache line.
const STEP_SHARES: Sums<usize> = Sums { resident: 8, dirty: 2, small: 8 };
const STEP_MIN: usize = (256 << 10) / UNIT;
/// Dirty units from which on a page heap is worth a look by those of other page heaps: 1 MiB.
const WORTH_A_LOOK: usize = (1 << 20) / UNIT;

/// What a page heap has, in units, or all of them have.
#[derive(Clone, Copy)]
pub(super) struct Sums<T> {
    /// What costs memory, or would if the program touched all of what it has.
    pub(super) resident: T,
    /// In dirty runs.
    pub(super) dirty: T,
    /// In spans of small blocks.
    pub(super) small: T,
}

impl<T> Sums<T> {
    fn parts(&self) -> [&T; 3] {
        [&self.resident, &self.dirty, &self.small]
    }
}

/// Figures that differ too little from one that was told to be worth telling.
struct Around {
    low: usize,
    len: usize,
}

impl Around {
    const NONE: Self = Self { low: 0, len: 0 };

    /// Around `told`, of which a part in `share` makes a difference.
    fn new(told: usize, share: usize) -> Self {
        let step = told / share;
        let step = if step > STEP_MIN { step } else { STEP_MIN };
        Self { low: told.saturating_sub(step - 1), len: told - told.saturating_sub(step - 1) + step }
    }
}

/// What the other page heaps know of one.
pub(super) struct Told {
    sums: Sums<usize>,
    quiet: Sums<Around>,
}

impl Told {
    fn new(sums: Sums<usize>) -> Self {
        let quiet = Sums {
            resident: Around::new(sums.resident, STEP_SHARES.resident),
            dirty: Around::new(sums.dirty, STEP_SHARES.dirty),
            small: Around::new(sums.small, STEP_SHARES.small),
        };
        Self { sums, quiet }
    }

    /// Nothing yet, and whatever comes makes a difference.
    pub(super) const NOTHING: Self = Self {
        sums: Sums { resident: 0, dirty: 0, small: 0 },
        quiet: Sums { resident: Around::NONE, dirty: Around::NONE, small: Around::NONE },
    };
}

/// See the module. Guarded by nothing: each is a hint.
pub(crate) struct Shared {
    /// Not 0: somebody should look after the dirty runs.
    pub(crate) calls: AtomicU32,
    /// Not 0: the heap has more memory than it should (`AMPLE_SOFT_LIMIT`).
    pub(crate) tight: AtomicU32,
    /// How often a page heap became larger by an eighth than it ever was.
    pub(crate) growths: AtomicU32,
    /// Not 0: somebody looks after the dirty runs.
    pub(crate) tended: AtomicU32,
    sums: Sums<AtomicUsize>,
    /// Dirty units of each page heap.
    dirty: [AtomicUsize; PAGE_HEAPS],
    /// Units that the control group may have, less what it should be spared; 0: nobody has looked.
    pub(super) group_limit: AtomicUsize,
    /// Units got from the system.
    pub(super) mapped: AtomicUsize,
    pub(super) huge_pages: HugePages,
    pub(super) dense: Dense,
    pub(super) filled: Filled,
    pub(super) spread: Spread,
    /// Mappings that the system keeps for pages that were moved, at most.
    pub(super) mappings: AtomicUsize,
}

impl Shared {
    pub(crate) const fn new() -> Self {
        Self {
            calls: AtomicU32::new(0),
            tight: AtomicU32::new(0),
            growths: AtomicU32::new(0),
            tended: AtomicU32::new(0),
            sums: Sums {
                resident: AtomicUsize::new(0),
                dirty: AtomicUsize::new(0),
                small: AtomicUsize::new(0),
            },
            dirty: [const { AtomicUsize::new(0) }; PAGE_HEAPS],
            group_limit: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            huge_pages: HugePages::new(),
            dense: Dense::new(),
            filled: Filled::new(),
            spread: Spread::new(),
            mappings: AtomicUsize::new(0),
        }
    }

    /// Units of spans of small blocks in all page heaps, as far as they have told.
    pub(crate) fn small(&self) -> usize {
        // Relaxed: a hint.
        self.sums.small.load(Ordering::Relaxed)
    }

    /// The page heaps that have `units` dirty ones or more, and enough to be worth a look.
    pub(super) fn with_dirty(&self, units: usize) -> impl Iterator<Item = usize> {
        let least = units.max(WORTH_A_LOOK);
        // Relaxed: hints.
        let has = move |dirty: &AtomicUsize| dirty.load(Ordering::Relaxed) >= least;
        self.dirty.iter().enumerate().filter(move |(_, dirty)| has(dirty)).map(|(index, _)| index)
    }
}

impl PageHeap {
    pub(super) fn own(&self) -> Sums<usize> {
        let dirty = self.queue.units();
        Sums { resident: self.mapped - self.free_units + dirty, dirty, small: self.small_units }
    }

    /// What all page heaps have: this one exactly, the others as far as they have told.
    pub(super) fn total(&self, shared: &Shared) -> Sums<usize> {
        let (own, told) = (self.own(), &self.told.sums);
        // Relaxed: hints.
        let sum = |all: &AtomicUsize, own: usize, told: usize| {
            all.load(Ordering::Relaxed).wrapping_sub(told).wrapping_add(own)
        };
        Sums {
            resident: sum(&shared.sums.resident, own.resident, told.resident),
            dirty: sum(&shared.sums.dirty, own.dirty, told.dirty),
            small: sum(&shared.sums.small, own.small, told.small),
        }
    }

    /// Tells the other page heaps what this one has, if that has changed by much.
    pub(super) fn tell(&mut self, shared: &Shared) {
        let own = self.own();
        let quiet = |(&own, around): (&usize, &Around)| own.wrapping_sub(around.low) < around.len;
        if own.parts().into_iter().zip(self.told.quiet.parts()).all(quiet) {
            return;
        }
        let told = core::mem::replace(&mut self.told, Told::new(own)).sums;
        for ((all, own), told) in shared.sums.parts().into_iter().zip(own.parts()).zip(told.parts()) {
            // A large block that comes and goes changes one of them.
            if own != told {
                // Relaxed: a hint.
                all.fetch_add(own.wrapping_sub(*told), Ordering::Relaxed);
            }
        }
        // Relaxed: a hint.
        shared.dirty[usize::from(self.page_heap)].store(own.dirty, Ordering::Relaxed);
    }
}
