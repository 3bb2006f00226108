//! Tending: what is given back although the program does nothing. The helper thread does it from time to time.

use crate::allocator::Allocator;
use crate::arena::{Arena, Holes};
use crate::eager::Free;
use crate::heap::Heap;
use crate::os;
use crate::size_class::CLASSES;
use crate::sync::Ordering;
use crate::units::UNIT;

/// At every so many looks (once a second) spans are searched for holes. A span from which no block was handed out since the search before gives its holes back.
const LOOKS_PER_SEARCH: u32 = 4;
/// Calls into the system for holes while an arena's lock is held, as a `Batch` counts them.
const HOLES_AT_ONCE: usize = 16;

/// Where nobody looks around each arena is looked at twice, the one with index 1 first: what a span has handed out since the look before, it is given time to.
const FIRST_LOOK: usize = 2;

/// What counts as much in a heap's private depot and its cache of large blocks: this part (a sixteenth) of the program's spans of small blocks, and more than [`STORED_MIN`] bytes.
const STORED_PART: usize = 16;
const STORED_MIN: usize = 64 << 10;

/// What a program must have at least, in bytes, to be worth a look before it forks: 2 MiB.
const LARGE_ENOUGH: usize = 2 << 20;

/// What a look around found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Free memory that is not old enough yet, or threads that were active: look again soon.
    Work,
    /// Nothing that could be given back, now or later, unless somebody frees more.
    Nothing,
}

impl Allocator {
    /// Empties the caches of threads that did nothing since the last look, and purges what has been free for long. `look`
    /// counts the calls.
    pub(crate) fn tend(&self, look: u32) -> Found {
        let active = self.empty_idle_heaps();
        if !active || self.is_tight() {
            self.retire_warm();
            self.empty_depots();
        }
        self.tables.pages.purge_old(self.ground(), os::now_ms());
        if self.is_tight() {
            self.tables.pages.purge_excess(self.ground());
        }
        // Between two searches it is not known.
        let busy = !look.is_multiple_of(LOOKS_PER_SEARCH) || self.purge_holes();
        if active || busy || self.tables.pages.has_dirty(self.ground()) {
            Found::Work
        } else {
            Found::Nothing
        }
    }

    /// Gives back what the program freed, if that is most of its memory and nobody looks after it: a bounded part of it. `false`: to be called again.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back_eagerly(&self) -> bool {
        let Some(turn) = self.eager.turn() else { return true };
        let look = turn.look();
        if look == 0 {
            if !turn.begins(os::now_ms(), || self.free_in_memory()) {
                return true;
            }
            turn.go_on(FIRST_LOOK);
            return false;
        }
        if let Some(arena) = self.existing_arena(look / 2) {
            if let Holes::Done { .. } = arena.purge_holes(HOLES_AT_ONCE) {
                turn.go_on(look + 1);
            }
            return false;
        }
        // However new: no more is dirty there than is in use, or than 48 MiB.
        self.tables.pages.purge_old(self.ground(), u64::MAX);
        turn.go_on(0);
        true
    }

    /// Gives back what is free in runs, and in spans of small blocks, before the process forks: as long as any of its processes has a page, all of them keep it from the system, and
    /// whoever is first to write to it copies it. The calling thread holds no lock; or it may, as a signal handler in the midst of a malloc, if it is `alone`: then nothing happens.
    pub(crate) fn give_back_before_fork(&self, alone: bool) {
        // Nothing is written before it is known that it is worth it: each page that is costs a page fault while there is a child.
        if self.shared.resident() * UNIT < LARGE_ENOUGH || alone && self.is_locked() {
            return;
        }
        let free = || self.free_in_memory().resident;
        if self.eager.turn().is_some_and(|turn| turn.begins_at_fork(os::now_ms(), free)) {
            // However new.
            self.tables.pages.purge_old(self.ground(), u64::MAX);
            // Twice: the first look only sees which spans are quiet.
            self.purge_holes();
            self.purge_holes();
        }
    }

    /// What is free of small blocks' spans and of runs.
    pub(crate) fn free_in_memory(&self) -> Free {
        let [resident, dirty] = self.tables.pages.resident_and_dirty(self.ground());
        let (mut since, mut before) = (0, 0);
        for arena in self.existing_arenas() {
            let [more_since, more_before] = arena.room();
            since += more_since;
            before += more_before;
        }
        // What was free before the last look for holes has gone back, as far as its pages held nothing else.
        Free { resident: since + dirty * UNIT, all: (resident * UNIT).saturating_sub(before) }
    }

    /// Whether much was freed that nobody has looked at.
    pub(crate) fn is_called_for(&self) -> bool {
        self.tables.pages.has_dirty(self.ground()) || self.existing_arenas().any(Arena::is_called_for)
    }

    /// Gives back pages of spans in which no block is live, if none came or went since the last call. `true`: somewhere some did.
    pub(crate) fn purge_holes(&self) -> bool {
        let mut busy = false;
        for arena in self.existing_arenas() {
            loop {
                match arena.purge_holes(HOLES_AT_ONCE) {
                    Holes::More { busy: more } => busy |= more,
                    Holes::Done { busy: more } => {
                        busy |= more;
                        break;
                    }
                }
            }
        }
        busy
    }

    pub(crate) fn existing_arenas(&self) -> impl Iterator<Item = &'static Arena> {
        (1..).map_while(|index| self.existing_arena(index))
    }

    /// The arena with this index; they come one after the other, from 1 on.
    fn existing_arena(&self, index: usize) -> Option<&'static Arena> {
        // Acquire: pairs with the Release in `create_arena`.
        // SAFETY: arenas live for ever.
        unsafe { self.tables.arenas.get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// Takes what heaps keep whose threads took no slow path since the last call. `true`: some heap's did.
    pub(crate) fn empty_idle_heaps(&self) -> bool {
        let registry = self.registry.lock();
        let mut active = false;
        let mut asked = false;
        for heap in registry.heaps() {
            if heap.looks_idle() {
                heap.claim.ask();
                asked = true;
            } else {
                active |= !heap.is_emptied();
            }
        }
        if !asked {
            return active;
        }
        // Without barriers nobody may go in: then idle threads keep what they have.
        let ordered = os::barrier_everywhere();
        for heap in registry.heaps().filter(|heap| heap.was_asked()) {
            let ours = ordered && heap.claim.take();
            if ours {
                self.empty_cold(heap, true);
            }
            // Where there are no barriers, not to be asked for again.
            heap.set_emptied(ours || !ordered);
            heap.claim.give_back();
        }
        active
    }

    /// Gives back what a heap with an arena keeps for later, if the program became larger since the last time.
    #[inline]
    pub(crate) fn look_at_growth(&self, heap: &Heap) {
        // Relaxed: a hint.
        let growths = self.shared.growths.load(Ordering::Relaxed);
        if heap.growths.get() != growths {
            heap.growths.set(growths);
            // The thread goes on, and will want its blocks again.
            self.empty_cold(heap, false);
        }
    }

    /// Whether a heap keeps so much that it goes first where the program would become larger than it ever was: what a thread freed last is often
    /// of other sizes than what it asks for next.
    pub(crate) fn stores_much(&self, heap: &Heap) -> bool {
        let most = (self.shared.small() * UNIT / STORED_PART).max(STORED_MIN);
        let exceeds = |stored: usize| stored + heap.large.bytes() > most;
        // What the magazines count for beside their blocks makes it more: mostly no look at each class is needed.
        exceeds(heap.depot_bytes.get()) && exceeds(heap.stored_bytes())
    }

    /// Gives back all that a heap holds, but for what its fast paths may touch: the loaded magazines and the outgoing ones. `for_others`: see [`Allocator::give_back_all`].
    pub(crate) fn empty_cold(&self, heap: &Heap, for_others: bool) {
        let Some(arena) = heap.arena() else { return };
        self.flush_linked(arena.inbox.take_all());
        for class in 1..=CLASSES {
            self.flush_depot(heap, class, for_others);
        }
        self.trim_spares(heap, 0);
        self.empty_large(heap);
        arena.release_empty(self.below());
    }
}
