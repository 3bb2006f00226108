//! A flat table over the whole address space. It is reserved as a whole and made writable in islands. Where addresses or locked memory are limited, only islands are
//! mapped: from the beginning, or from the moment when the rest is let go.

use core::ops::Range;

use crate::os;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// Bytes of an island: the grain in which a table is made writable, and mapped where it is not whole.
const ISLAND: usize = 1 << 20;

/// Where tables lie: nobody maps there by himself, far below the system's own mappings and far above a program's. So what is let go stays free until it is
/// needed again. (Between the places at which the Java VM's ZGC maps heaps of up to 512 GiB, and below the race detectors' shadows.)
const PLACES: Range<usize> = 24 << 40..32 << 40;
/// From one place to the next: more than the longest table.
const APART: usize = 1 << 37;

/// Places for a table, one after the other from one that is another in each process, as far as the system places stacks at random.
fn places() -> impl Iterator<Item = usize> {
    let on_stack = 0u8;
    // The bits of a stack's address that are random become those of an island in all places.
    let first = (&raw const on_stack).addr() << 9;
    (0..PLACES.len() / APART).map(move |attempt| {
        PLACES.start + first.wrapping_add(attempt * APART) % PLACES.len() / ISLAND * ISLAND
    })
}

/// A table with one element for every 2^`SHIFT` bytes of the address space. An element is zero until it is written. Where `FOREIGN`, the elements of other
/// people's memory are read, too.
///
/// In this order: programs' memory lies near the end of the address space, so that of the islands' bits only those are ever written that lie beside the rest.
#[repr(C)]
pub(super) struct FlatTable<T, const SHIFT: u32, const ISLAND_WORDS: usize, const FOREIGN: bool> {
    /// One bit for each island that can be written.
    islands: [AtomicU32; ISLAND_WORDS],
    /// Where the element of address 0 is, or would be.
    base: AtomicPtr<T>,
    /// 0 until the table is there; then [`WHOLE`] or [`PIECEMEAL`].
    state: AtomicU32,
    /// One bit for each island that stayed when the rest was let go, and can only be read. Elsewhere: all zeros in nearly every program.
    kept: &'static [AtomicU32; ISLAND_WORDS],
}

const ABSENT: u32 = 0;
const WHOLE: u32 = 1;
const PIECEMEAL: u32 = 2;

impl<T, const SHIFT: u32, const ISLAND_WORDS: usize, const FOREIGN: bool>
    FlatTable<T, SHIFT, ISLAND_WORDS, FOREIGN>
{
    /// `zero` stands in for the element of NULL until the table is there.
    pub(super) const fn new(zero: *const T, kept: &'static [AtomicU32; ISLAND_WORDS]) -> Self {
        Self {
            islands: [const { AtomicU32::new(0) }; ISLAND_WORDS],
            base: AtomicPtr::new(zero.cast_mut()),
            state: AtomicU32::new(ABSENT),
            kept,
        }
    }

    /// The element of `address`.
    ///
    /// The result may be read if the address is NULL, or was given to [`FlatTable::prepare`], or the table is whole, or the address lies in memory that
    /// was mapped when the table became one of islands and the table is `FOREIGN`.
    #[inline(always)]
    pub(super) fn at(&self, address: usize) -> *const T {
        // Relaxed: the base changes once, before the first address that needs it is handed out; whoever got such
        // an address from another thread got it by a hand-over that orders the base as well.
        self.base.load(Ordering::Relaxed).wrapping_add(address >> SHIFT)
    }

    /// The element of any `address`, which may be read; `None`: it is zero, and may not be there.
    pub(super) fn known(&self, address: usize) -> Option<*const T> {
        // Acquire: pairs with the Release in `prepare_island`: the island is there before its bit is.
        let known = os::window().contains(&address)
            && is_set(&self.islands, Self::island_of(address), Ordering::Acquire);
        known.then(|| self.at(address))
    }

    fn island_of(address: usize) -> usize {
        (address >> SHIFT) * size_of::<T>() / ISLAND
    }

    /// All islands, whole ones also where the window begins or ends in the middle of one.
    fn all() -> Range<usize> {
        let window = os::window();
        Self::island_of(window.start)..Self::island_of(window.end - 1) + 1
    }

    /// Bytes of the whole table.
    pub(super) fn bytes(&self) -> usize {
        Self::all().len() * ISLAND
    }

    /// Where an island lies.
    fn place_of(&self, island: usize) -> usize {
        // Relaxed: guarded by the records' lock.
        self.base.load(Ordering::Relaxed).addr().wrapping_add(island * ISLAND)
    }

    fn is(&self, state: u32) -> bool {
        // Relaxed: guarded by the records' lock.
        self.state.load(Ordering::Relaxed) == state
    }

    /// Makes the elements of `[start, start + len)` writable. The caller holds the records' lock.
    pub(super) fn prepare(&self, start: usize, len: usize) -> bool {
        let islands = Self::island_of(start)..=Self::island_of(start + len - 1);
        self.established() && islands.into_iter().all(|island| self.prepare_island(island))
    }

    /// Makes the table be there. The caller holds the records' lock.
    pub(super) fn established(&self) -> bool {
        !self.is(ABSENT) || self.establish_whole() || self.establish_in_pieces(reach())
    }

    fn establish_whole(&self) -> bool {
        if os::address_limit().is_some() {
            return false;
        }
        let all = Self::all();
        let reserve = |place| os::reserve(place, self.bytes());
        let Some(table) = places().find_map(|place| reserve(Some(place))).or_else(|| reserve(None)) else {
            return false;
        };
        let base = table.as_ptr().wrapping_sub(all.start * ISLAND).cast::<T>();
        // Relaxed: guarded by the records' lock; for readers see `at`.
        self.base.store(base, Ordering::Relaxed);
        // Relaxed: guarded by the records' lock.
        self.state.store(WHOLE, Ordering::Relaxed);
        true
    }

    /// The table where it cannot be whole, because of a limit on address space (`RLIMIT_AS`) or strict overcommit.
    fn establish_in_pieces(&self, reach: usize) -> bool {
        let Some(island) = places().find_map(|place| os::map_at(place, ISLAND)) else { return false };
        // Relaxed: as in `establish_whole`.
        self.base.store(island.as_ptr().cast(), Ordering::Relaxed);
        // Relaxed: guarded by the records' lock.
        self.islands[0].store(1, Ordering::Relaxed);
        // Relaxed: as above.
        self.state.store(PIECEMEAL, Ordering::Relaxed);
        // One that cannot be had is missed only by who frees a block there that is not ours.
        Self::each_foreign(reach, |island| {
            self.prepare_island(island);
        });
        true
    }

    /// The islands of the memory that is mapped, and of what lies no further than `reach` from it: the system puts there what it maps next.
    fn each_foreign(reach: usize, mut visit: impl FnMut(usize)) {
        if !FOREIGN {
            return;
        }
        let window = os::window();
        os::each_mapping(&mut |mapping| {
            let start = mapping.start.saturating_sub(reach).max(window.start);
            let end = mapping.end.saturating_add(reach).min(window.end);
            if start < end && !PLACES.contains(&mapping.start) {
                (Self::island_of(start)..=Self::island_of(end - 1)).for_each(&mut visit);
            }
        });
    }

    /// Gives all islands up that nobody needs: those that were never written, and hold no element of memory that is mapped or may be soon (see
    /// [`FlatTable::each_foreign`]). From now on islands are mapped where they are needed. Whether addresses became free. The caller holds the records' lock;
    /// other threads may read the elements of blocks meanwhile.
    pub(super) fn let_go(&self, reach: usize) -> bool {
        let all = Self::all();
        if self.is(ABSENT) {
            self.establish_in_pieces(reach);
        }
        // Elsewhere anybody may map something where an island is missing, before that is needed.
        if !self.is(WHOLE) || !PLACES.contains(&self.place_of(all.start)) {
            return false;
        }
        if FOREIGN {
            set(self.kept, 0);
        }
        Self::each_foreign(reach, |island| set(self.kept, island));
        // Relaxed: guarded by the records' lock.
        self.state.store(PIECEMEAL, Ordering::Relaxed);
        // Relaxed: as above.
        let stays = |island| {
            [self.kept, &self.islands].into_iter().any(|bits| is_set(bits, island, Ordering::Relaxed))
        };
        let mut island = all.start;
        while island < all.end {
            let unused = (island..all.end).take_while(|&island| !stays(island)).count();
            // SAFETY: islands of the reserved table that were never prepared: no block has its element there.
            if unused > 0 && !unsafe { os::give_up(self.place_of(island), unused * ISLAND) } {
                (island..island + unused).for_each(|island| set(self.kept, island));
            }
            island += unused + 1;
        }
        true
    }

    fn prepare_island(&self, island: usize) -> bool {
        // Relaxed, twice: guarded by the records' lock.
        if is_set(&self.islands, island, Ordering::Relaxed) {
            return true;
        }
        let reserved = self.is(WHOLE) || is_set(self.kept, island, Ordering::Relaxed);
        let place = self.place_of(island);
        let done = if reserved {
            // SAFETY: an island of the reserved table.
            unsafe { os::make_writable(place, ISLAND) }
        } else {
            os::map_at(place, ISLAND).is_some()
        };
        if done {
            set(&self.islands, island);
        }
        done
    }
}

/// How far from what is mapped a program that is not to have more may map something: its limit, or as far as is cheap.
fn reach() -> usize {
    super::REACH_MAX.min(os::address_limit().unwrap_or(usize::MAX))
}

fn is_set(bits: &[AtomicU32], island: usize, ordering: Ordering) -> bool {
    bits[island / 32].load(ordering) & 1 << (island % 32) != 0
}

/// The caller holds the records' lock.
fn set(bits: &[AtomicU32], island: usize) {
    let word = &bits[island / 32];
    // Relaxed: guarded by the records' lock.
    let before = word.load(Ordering::Relaxed);
    // Release: pairs with the Acquire in `known`.
    word.store(before | 1 << (island % 32), Ordering::Release);
}

pub(super) const fn island_words(element: usize, shift: u32) -> usize {
    ((1usize << (os::ADDRESS_BITS - shift)) * element / ISLAND).div_ceil(32)
}
