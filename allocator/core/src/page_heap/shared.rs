//! What all page heaps have in common, and the words by which they and the helper thread communicate.

use super::PageHeap;
use super::dense::Dense;
use super::filled::Filled;
use super::huge::{HUGE_FROM, HugePages};
use super::spread::Spread;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::units::{CHUNK, UNIT};

/// Page heaps that there may be.
pub(crate) const PAGE_HEAPS: usize = 16;
/// By which part what is known of a page heap may be wrong, and 256 KiB in any case. To tell of each change would
/// make all threads meet at one cache line.
const STEP_SHARES: Sums<usize> = Sums { resident: 8, dirty: 2, small: 8 };
const STEP_MIN: usize = (256 << 10) / UNIT;
/// Dirty units from which on a page heap, or all together, are worth a look: 1 MiB.
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

/// A figure that was told, and around it those that differ too little from it to be worth telling.
pub(super) struct Told {
    told: usize,
    low: usize,
    len: usize,
}

impl Told {
    /// None, and whatever comes makes a difference.
    const NOTHING: Self = Self { told: 0, low: 0, len: 0 };

    /// Nothing yet.
    pub(super) const NOTHING_OF_ALL: Sums<Self> =
        Sums { resident: Self::NOTHING, dirty: Self::NOTHING, small: Self::NOTHING };

    #[inline(always)]
    fn is_near(&self, own: usize) -> bool {
        own.wrapping_sub(self.low) < self.len
    }

    /// Tells of `own`, of which a part in `share` makes a difference from now on, as a part of `all`.
    fn tell(&mut self, own: usize, share: usize, all: &AtomicUsize) {
        let told = core::mem::replace(&mut self.told, own);
        if own != told {
            // Relaxed: a hint.
            all.fetch_add(own.wrapping_sub(told), Ordering::Relaxed);
        }
        let step = (own / share).max(STEP_MIN);
        self.low = own.saturating_sub(step - 1);
        self.len = own - self.low + step;
    }
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
    /// When the next trim would be due if those that a program asked for had come at the pace, in milliseconds of `os::now_ms`.
    pub(crate) trim_due_ms: AtomicUsize,
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
    /// The same of blocks that hold no whole chunk.
    pub(super) short: Filled,
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
            trim_due_ms: AtomicUsize::new(0),
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
            filled: Filled::long(),
            short: Filled::short(),
            spread: Spread::new(),
            mappings: AtomicUsize::new(0),
        }
    }

    /// Units that cost memory in all page heaps, as far as they have told.
    pub(crate) fn resident(&self) -> usize {
        // Relaxed: a hint.
        self.sums.resident.load(Ordering::Relaxed)
    }

    /// Units of spans of small blocks in all page heaps, as far as they have told.
    pub(crate) fn small(&self) -> usize {
        // Relaxed: a hint.
        self.sums.small.load(Ordering::Relaxed)
    }

    /// Whether there is so much in dirty runs, as far as page heaps have told, that a span will come from one: the program does not grow by it.
    pub(crate) fn has_dirty(&self) -> bool {
        // Relaxed: a hint.
        self.sums.dirty.load(Ordering::Relaxed) >= WORTH_A_LOOK
    }

    /// Whether what is dirty may be the rest of a huge page, all of it resident: too dear for who touches little of what he gets. Where
    /// more is dirty than that, it is what others have given back.
    pub(super) fn spares_dirty(&self) -> bool {
        // Relaxed, twice: hints.
        let (small, dirty) = (self.small(), self.sums.dirty.load(Ordering::Relaxed));
        small >= HUGE_FROM && dirty <= CHUNK / UNIT + small / 16
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
        let (own, known) = (self.own(), &self.told);
        // Relaxed: hints.
        let sum = |all: &AtomicUsize, own: usize, known: &Told| {
            all.load(Ordering::Relaxed).wrapping_sub(known.told).wrapping_add(own)
        };
        Sums {
            resident: sum(&shared.sums.resident, own.resident, &known.resident),
            dirty: sum(&shared.sums.dirty, own.dirty, &known.dirty),
            small: sum(&shared.sums.small, own.small, &known.small),
        }
    }

    /// Tells the other page heaps what this one has, as far as that has changed by much.
    pub(super) fn tell(&mut self, shared: &Shared) {
        let (own, known) = (self.own(), &mut self.told);
        if !known.resident.is_near(own.resident) {
            known.resident.tell(own.resident, STEP_SHARES.resident, &shared.sums.resident);
        }
        if !known.small.is_near(own.small) {
            known.small.tell(own.small, STEP_SHARES.small, &shared.sums.small);
        }
        if !known.dirty.is_near(own.dirty) {
            known.dirty.tell(own.dirty, STEP_SHARES.dirty, &shared.sums.dirty);
            // Relaxed: a hint.
            shared.dirty[usize::from(self.page_heap)].store(own.dirty, Ordering::Relaxed);
        }
    }
}
