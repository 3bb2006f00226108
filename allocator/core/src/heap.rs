//! A thread's heap: for each class a loaded magazine, the previous one, and a private depot of full ones.
//!
//! ```text
//! malloc(size) → class → loaded magazine: pop
//!                          empty? Allocator::refill: previous magazine, or private depot, or the arena's inbox,
//!                                 or the shared depot (classes that fill lines), or the arena's spans
//! free(block)  → unit map: class, owner → own, or a class that fills lines? loaded magazine: push
//!                          full?    Allocator::make_room: swap with previous; a full one goes to the private depot, and
//!                                   when that holds too much, to the shared depot or back to its arena's spans
//!                          foreign? push_foreign: outgoing magazine → the owner's inbox
//!                          neither? a large block: LargeCache, or Allocator::free_large; NULL, or not ours
//! ```

mod idle;

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::{self, NonNull};

use self::idle::Idleness;
use crate::arena::{Arena, Donor};
use crate::claim::Claim;
use crate::growing::Growing;
use crate::large_cache::LargeCache;
use crate::magazine::{Empties, Magazine, Slot, Stack};
use crate::pace::Pace;
use crate::size_class::{
    self, BULKY_CLASSES, CLASS_BITS, CLASS_SLOTS, CLASSES, Class, FIRST_BULKY, FIRST_LONG, LONG_CLASSES,
    NEAR, NEAR_FILLING, Near,
};
use crate::sync::{AtomicU32, Ordering};
use crate::units::{self, CLASS_SHIFT, Entry};

/// A heap. Only its thread uses it, but for what `claim` and the registry's lock guard.
#[repr(C)]
pub struct Heap {
    /// For each class the slot of the newest block in the loaded magazine, or the guard below the oldest if there is none. First, so that a class's place is at a fixed offset.
    tops: [Cell<*const Slot>; CLASS_SLOTS],
    /// For each class the last slot of the loaded magazine.
    limits: [Cell<*const Slot>; CLASS_SLOTS],
    /// Class of each request that the table of near ones serves.
    near: Cell<Near>,
    /// The bits of an entry of the unit map that tell whether this heap may keep the block: see [`Entry`].
    pub(crate) mask: Cell<usize>,
    /// The arena; null for an inert heap.
    pub(crate) arena: Cell<*const Arena>,
    /// The arena that blocks of pooled classes come from.
    pool: Cell<*const Arena>,
    /// Bytes of blocks in the private depot, and what their magazines count for.
    pub(crate) depot_bytes: Cell<usize>,
    /// Bytes by which its magazines may hold more than the least, summed over the classes.
    pub(crate) grown: Cell<usize>,
    /// Whether its magazines lately wanted to grow by more than they may.
    crowded: Cell<bool>,
    /// Slow paths taken: they stand for time, and show others that the thread is active.
    events: AtomicU32,
    /// Who may touch the cold part: all that the fast paths do not use.
    pub(crate) claim: Claim,
    /// `events` when somebody looked last. This and what follows: guarded by the registry's lock.
    seen: Cell<u32>,
    /// What the last look found.
    idleness: Cell<Idleness>,
    /// The next one in the registry's list of heaps.
    pub(crate) next: Cell<*const Heap>,
    /// When the private depot was last trimmed, in milliseconds.
    pub(crate) trimmed_ms: Cell<u64>,
    /// The heap's growths when this thread last gave back what it keeps.
    pub(crate) growths: Cell<u32>,
    /// The arena from which this heap's arena may adopt spans.
    pub(crate) donor: Donor,
    /// Empty magazines.
    pub(crate) spares: Empties,
    /// A bit for each class of which the private depot takes magazines in order only.
    pub(crate) orders: Cell<u64>,
    /// Large blocks that this thread freed last.
    pub(crate) large: LargeCache,
    pub(crate) growing: Growing,
    pub(crate) bins: [Bin; CLASSES + 1],
    /// For each long class the last of the slow paths that was for it; up to date where threads are a crowd.
    used: [Cell<u16>; LONG_CLASSES],
    /// For each bulky class how often it is used; up to date where some threads wait.
    paces: [Pace; BULKY_CLASSES],
}

/// A heap's magazines of one class, beside the loaded one's stack pointers.
pub(crate) struct Bin {
    /// The loaded magazine; null until the class is used.
    pub(crate) loaded: Cell<*mut Magazine>,
    /// The magazine that was loaded before: empty, or with blocks; null until there was one.
    pub(crate) previous: Cell<*mut Magazine>,
    /// Blocks of other arenas, on their way home; null until there was one.
    pub(crate) outgoing: Cell<*mut Magazine>,
    /// The private depot.
    pub(crate) full: Stack,
    /// The smallest `full.len()` since the last trim: what the thread could have done without (Bonwick's working set).
    pub(crate) low: Cell<u16>,
    /// Magazines that the private depot may hold: grows whenever it had none for malloc and had given one away before, shrinks by what was not
    /// needed. A thread that only allocates, or only frees, keeps next to nothing.
    pub(crate) allowed: Cell<u16>,
    /// Magazines given away for which malloc has not asked again.
    pub(crate) missed: Cell<u16>,
    /// Blocks to ask the arena for next time, and that a magazine may hold if that is more than the least; grows with use, shrinks with time.
    wanted: Cell<u8>,
    /// Blocks that came, or went back, one by one before the class is in steady use; `u8::MAX`: it is. (Of bulky classes the [`Pace`] tells.)
    pub(crate) started: Cell<u8>,
}

impl Bin {
    /// Blocks in the magazines that the fast paths do not touch. The caller has claimed the heap.
    pub(crate) fn cached_blocks(&self) -> usize {
        // SAFETY: a heap's magazines are live.
        let previous = unsafe { self.previous.get().as_ref() };
        previous.map_or(0, |magazine| usize::from(magazine.count.get())) + self.full.blocks()
    }
}

/// A thread uses a class rarely if none of its last so many slow paths was for it.
const RARELY: u16 = 64;
/// Blocks of the first refill of a class.
pub(crate) const FIRST_WANTED: u8 = 8;

/// Where a heap's stack pointers of one class are: an element of its `tops`, and behind those the same one of its `limits`.
pub(crate) struct Place<'a> {
    top: *const Cell<*const Slot>,
    heap: PhantomData<&'a Heap>,
}

impl Place<'_> {
    /// The place at an address.
    ///
    /// # Safety
    /// `tops` of a heap that outlives the place begins [`CLASS_SHIFT`] times a class before it; the calling thread is the heap's.
    #[inline(always)]
    pub(crate) unsafe fn at(top: *const u8) -> Self {
        Self { top: top.cast(), heap: PhantomData }
    }

    /// The newest block in the loaded magazine; null when there is none.
    #[inline(always)]
    pub(crate) fn pop(self) -> *mut u8 {
        // SAFETY: an element of `tops`.
        let place = unsafe { &*self.top };
        let top = place.get();
        // SAFETY: a top points to a slot or a guard of a loaded magazine, or to `NO_SLOT`.
        let block = unsafe { (*top).get() };
        if !block.is_null() {
            place.set(top.wrapping_sub(1));
        }
        block
    }

    /// Puts a block into the loaded magazine; `false` when that is full.
    #[inline(always)]
    pub(crate) fn push(self, block: *mut u8) -> bool {
        // SAFETY: an element of `tops`, and the one of `limits` for the same class.
        let (place, limit) = unsafe { (&*self.top, &*self.top.add(CLASS_SLOTS)) };
        let top = place.get();
        if ptr::eq(top, limit.get()) {
            return false;
        }
        let next = top.wrapping_add(1);
        // SAFETY: below the limit there is a slot above every top.
        unsafe { (*next).set(block) };
        place.set(next);
        true
    }
}

// What `Place` relies on.
const _: () = assert!(offset_of!(Heap, tops) == 0 && size_of::<Cell<*const Slot>>() == 1 << CLASS_SHIFT);
const _: () = assert!(offset_of!(Heap, limits) == CLASS_SLOTS << CLASS_SHIFT);

/// A slot that is always null: the top of a magazine that is not there.
struct NoSlot(Slot);
// SAFETY: nobody writes to it: it is the limit as well as the top, so free finds no room.
unsafe impl Sync for NoSlot {}
static NO_SLOT: NoSlot = NoSlot(Cell::new(ptr::null_mut()));

/// A heap that is no thread's own.
pub(crate) struct Inert(Heap);

// SAFETY: nobody writes to an inert heap but to its claim: all its magazines are absent, both empty and full.
unsafe impl Sync for Inert {}

/// The heap of a thread that has not used malloc yet: it cannot even be entered.
pub(crate) static FRESH: Inert = Inert(Heap { claim: Claim::never(), ..Heap::inert() });

impl Inert {
    /// The heap.
    pub(crate) fn heap(&self) -> &Heap {
        &self.0
    }
}

impl Heap {
    /// A heap in which every malloc and every free takes the slow path.
    pub(crate) const fn inert() -> Self {
        Self {
            tops: [const { Cell::new(&raw const NO_SLOT.0) }; CLASS_SLOTS],
            limits: [const { Cell::new(&raw const NO_SLOT.0) }; CLASS_SLOTS],
            near: Cell::new(NEAR),
            mask: Cell::new(units::NOBODYS_MASK),
            arena: Cell::new(ptr::null()),
            pool: Cell::new(ptr::null()),
            depot_bytes: Cell::new(0),
            grown: Cell::new(0),
            crowded: Cell::new(false),
            events: AtomicU32::new(0),
            claim: Claim::new(),
            seen: Cell::new(0),
            idleness: Cell::new(Idleness::Active),
            next: Cell::new(ptr::null()),
            trimmed_ms: Cell::new(0),
            growths: Cell::new(0),
            donor: Donor::new(),
            spares: Empties::new(),
            orders: Cell::new(0),
            large: LargeCache::new(),
            growing: Growing::new(),
            bins: [const {
                Bin {
                    loaded: Cell::new(ptr::null_mut()),
                    previous: Cell::new(ptr::null_mut()),
                    outgoing: Cell::new(ptr::null_mut()),
                    full: Stack::new(),
                    low: Cell::new(0),
                    allowed: Cell::new(0),
                    missed: Cell::new(0),
                    wanted: Cell::new(FIRST_WANTED),
                    started: Cell::new(0),
                }
            }; CLASSES + 1],
            used: [const { Cell::new(0) }; LONG_CLASSES],
            paces: [const { Pace::new() }; BULKY_CLASSES],
        }
    }

    /// From now on every block has its cache lines to itself.
    pub(crate) fn isolate_lines(&self) {
        self.near.set(NEAR_FILLING);
        (1..=CLASSES).for_each(|class| self.leave_starter(class));
    }

    /// Makes an inert heap of a record of the caller's alone. (Copied, since the library has one already; not by way of the stack, a page of which each thread would keep.)
    pub(crate) fn write_to(record: NonNull<Self>) -> &'static Self {
        const CLAIM: usize = offset_of!(Heap, claim);
        let (from, to) = ((&raw const FRESH).cast::<u8>(), record.as_ptr().cast::<u8>());
        // SAFETY: both are as long as a heap; nobody writes to `FRESH` but to its claim; the record is the caller's, aligned enough, and is never unmapped.
        unsafe {
            to.copy_from_nonoverlapping(from, CLAIM);
            let rest = CLAIM + size_of::<Claim>();
            to.add(rest).copy_from_nonoverlapping(from.add(rest), size_of::<Self>() - rest);
            (&raw mut (*record.as_ptr()).claim).write(Claim::new());
            record.as_ref()
        }
    }

    /// Counts a slow path; how many there were.
    #[inline(always)]
    pub(crate) fn count_event(&self) -> u32 {
        // Relaxed: only this thread writes, and for others it is a hint.
        let events = self.events.load(Ordering::Relaxed).wrapping_add(1);
        // Relaxed: as above.
        self.events.store(events, Ordering::Relaxed);
        events
    }

    /// Slow paths taken.
    pub(crate) fn events(&self) -> u32 {
        // Relaxed: as in `count_event`.
        self.events.load(Ordering::Relaxed)
    }

    /// Whether the next slow path looks at the clock: one in `events_per_look`, a power of two, does.
    #[inline(always)]
    pub(crate) fn looks_next(&self, events_per_look: u32) -> bool {
        self.events() % events_per_look == events_per_look - 1
    }

    /// Whether the thread uses `class`, a pooled one, rarely: this is the first slow path for it in a long time, measured in slow paths. Notes that it was used; to be called in a crowd, where the class's magazines do not suffice.
    #[inline(never)]
    pub(crate) fn uses_rarely(&self, class: Class) -> bool {
        let now = self.events() as u16;
        size_class::is_pooled(class) && now.wrapping_sub(self.used[class - FIRST_LONG].replace(now)) > RARELY
    }

    /// How often its thread uses `class`, a bulky one.
    pub(crate) fn pace(&self, class: Class) -> &Pace {
        &self.paces[class - FIRST_BULKY]
    }

    /// Gives an inert heap its arena.
    pub(crate) fn settle(&self, arena: &Arena, pool: &Arena) {
        self.arena.set(arena);
        self.pool.set(pool);
        self.mask.set(units::mask_of(arena.index));
    }

    /// The arena of a heap that is not inert.
    pub(crate) fn arena(&self) -> Option<&'static Arena> {
        // SAFETY: arenas live for ever.
        unsafe { self.arena.get().as_ref() }
    }

    /// The arena that its blocks of `class` come from.
    pub(crate) fn source(&self, class: Class) -> Option<&'static Arena> {
        let arena = if size_class::is_pooled(class) { &self.pool } else { &self.arena };
        // SAFETY: arenas live for ever.
        unsafe { arena.get().as_ref() }
    }

    /// Whether a small block with this entry comes from where its own come from.
    pub(crate) fn owns(&self, entry: Entry) -> bool {
        self.source(units::class_in(entry)).is_some_and(|arena| arena.index == units::arena_in(entry))
    }

    /// See [`size_class::near_class`].
    #[inline(always)]
    pub(crate) fn near_class(&self, size: usize) -> Option<Class> {
        size_class::near_class(self.near(), size)
    }

    /// Its copy of the table of near requests.
    #[inline(always)]
    pub(crate) fn near(&self) -> &Near {
        // SAFETY: only this thread reaches the heap, and nobody writes to the table meanwhile.
        unsafe { &*self.near.as_ptr() }
    }

    /// The place of `class`.
    #[inline(always)]
    pub(crate) fn place(&self, class: Class) -> Place<'_> {
        debug_assert!(class < CLASS_SLOTS);
        self.place_at(class << CLASS_SHIFT)
    }

    /// The place that lies `offset` bytes, those of a class, from the start.
    #[inline(always)]
    fn place_at(&self, offset: usize) -> Place<'_> {
        // SAFETY: there lies an element of `tops`; only this thread reaches the heap.
        unsafe { Place::at(ptr::from_ref(self).cast::<u8>().wrapping_add(offset)) }
    }

    /// The place of the class of a small block with this entry if this heap's arena owns the block or it fills lines. `None`: it is to go home. (A block that is
    /// not small, and NULL, has the place of class 0, where there is never room.)
    #[inline(always)]
    pub(crate) fn own_place(&self, entry: Entry) -> Option<Place<'_>> {
        let left = entry as usize & self.mask.get();
        if left < CLASS_SLOTS << CLASS_SHIFT { Some(self.place_at(left)) } else { None }
    }

    /// Takes a small block with this entry that [`Heap::own_place`] did not know into the outgoing magazine of its class. `false` when
    /// that is full or not there. (If the heap's arena has become its owner meanwhile, it goes home like the others.)
    #[inline(always)]
    pub(crate) fn push_foreign(&self, entry: Entry, block: *mut u8) -> bool {
        let class = units::class_in(entry);
        // SAFETY: a heap's magazines are live. (There is none for the blocks of starters.)
        let Some(outgoing) = (unsafe { self.bins[class].outgoing.get().as_ref() }) else { return false };
        let count = outgoing.count.get();
        let room = count < self.least(class).into();
        let Some(slot) = outgoing.slot_if_any(count.into()).filter(|_| room) else { return false };
        slot.set(block);
        outgoing.count.set(count + 1);
        true
    }

    /// Blocks of `class` to ask the arena for.
    #[inline(always)]
    pub(crate) fn wanted(&self, class: Class) -> u8 {
        self.bins[class].wanted.get().min(size_class::of(class).magazine_most)
    }

    /// Makes the heap ask the arena for more than `wanted` blocks of `class` next time, as long as all its magazines together grow by no more than `most` bytes.
    pub(crate) fn want_more(&self, class: Class, wanted: u8, most: usize) {
        let (place, info) = (&self.bins[class].wanted, size_class::of(class));
        let next = (wanted * 2).min(info.magazine_most);
        let grown = self.grown.get() + info.bytes_beyond(next) - info.bytes_beyond(wanted);
        let crowded = grown > most;
        self.crowded.set(crowded);
        if crowded {
            place.set(next.min(info.magazine_crowded).max(wanted));
        } else {
            self.grown.set(grown);
            place.set(next);
        }
    }

    /// Time has passed: makes the heap ask for fewer blocks of `class` next time.
    pub(crate) fn want_less(&self, class: Class) {
        let (wanted, info) = (self.wanted(class), size_class::of(class));
        let next = (wanted / 2).max(FIRST_WANTED.min(info.magazine_most));
        self.grown.set(self.grown.get() + info.bytes_beyond(next) - info.bytes_beyond(wanted));
        self.bins[class].wanted.set(next);
    }

    /// Blocks that a magazine may hold while its `class` is little used.
    #[inline(always)]
    fn least(&self, class: Class) -> u8 {
        let info = size_class::of(class);
        if self.crowded.get() { info.magazine_crowded } else { info.magazine_least }
    }

    /// Makes `magazine`, which holds `count` blocks, the loaded one of `class`.
    pub(crate) fn load(&self, class: Class, magazine: NonNull<Magazine>, count: usize) {
        let bin = &self.bins[class];
        bin.loaded.set(magazine.as_ptr());
        self.tops[class].set(Magazine::top(magazine.as_ptr(), count));
        // A magazine that was filled when the class was used more may hold more than it should now.
        let capacity = usize::from(bin.wanted.get().max(self.least(class))).max(count);
        self.limits[class].set(Magazine::top(magazine.as_ptr(), capacity));
    }

    /// Makes `magazine`, which holds `count` blocks, at least one, the loaded one of `class`, and takes the newest.
    #[inline(always)]
    pub(crate) fn load_and_pop(&self, class: Class, magazine: NonNull<Magazine>, count: u16) -> *mut u8 {
        let left = usize::from(count) - 1;
        self.load(class, magazine, left);
        // SAFETY: the caller hands over a live magazine.
        unsafe { magazine.as_ref() }.slot(left).get()
    }

    /// Whether this heap has had only a few blocks of `class` so far, or the class is bulky.
    #[inline(always)]
    pub(crate) fn may_start(&self, class: Class) -> bool {
        self.bins[class].started.get() < u8::MAX
    }

    /// From now on the blocks of `class` come from spans of their own, in which they are aligned as their size is.
    pub(crate) fn leave_starter(&self, class: Class) {
        // No starter has bulky ones.
        if class < FIRST_BULKY {
            self.bins[class].started.set(u8::MAX);
        }
    }

    /// Makes the heap forget its magazines of `class`.
    pub(crate) fn unload(&self, class: Class) {
        self.tops[class].set(&raw const NO_SLOT.0);
        self.limits[class].set(&raw const NO_SLOT.0);
        for place in [&self.bins[class].loaded, &self.bins[class].previous, &self.bins[class].outgoing] {
            place.set(ptr::null_mut());
        }
    }

    /// The loaded magazine of `class`, its count brought up to date.
    #[inline(always)]
    pub(crate) fn loaded(&self, class: Class) -> Option<NonNull<Magazine>> {
        let magazine = NonNull::new(self.bins[class].loaded.get())?;
        let count = Magazine::count_at(magazine.as_ptr(), self.tops[class].get());
        // SAFETY: a loaded magazine is live.
        unsafe { magazine.as_ref() }.count.set(count as u16);
        Some(magazine)
    }

    /// Puts a magazine of `class` with blocks into the private depot.
    #[inline(always)]
    pub(crate) fn store(&self, class: Class, magazine: NonNull<Magazine>) {
        self.depot_bytes.set(self.depot_bytes.get() + bytes(class, magazine));
        self.bins[class].full.push(magazine);
    }

    /// Bytes of blocks in the private depot.
    pub(crate) fn stored_bytes(&self) -> usize {
        let magazines: u32 = self.bins.iter().map(|bin| bin.full.len()).sum();
        self.depot_bytes.get() - magazines as usize * MAGAZINE_COUNTS
    }

    /// Takes a magazine of `class` from the private depot.
    #[inline(always)]
    pub(crate) fn fetch(&self, class: Class) -> Option<NonNull<Magazine>> {
        let bin = &self.bins[class];
        let magazine = bin.full.pop()?;
        bin.low.set(bin.low.get().min(bin.full.len() as u16));
        self.depot_bytes.set(self.depot_bytes.get() - bytes(class, magazine));
        Some(magazine)
    }
}

/// What a magazine counts for in a private depot beside its blocks. A magazine is memory itself, half as much as 125 blocks of 16 bytes, and remains so while its
/// blocks are in use. With this, no more than a sixteenth of a depot's bound goes into magazines.
pub(crate) const MAGAZINE_COUNTS: usize = 16 * size_of::<Magazine>();

/// What a magazine of `class` that is not loaded counts for in a private depot, in bytes.
fn bytes(class: Class, magazine: NonNull<Magazine>) -> usize {
    // SAFETY: magazines in hand are live.
    let count = unsafe { magazine.as_ref() }.count.get();
    usize::from(count) * size_class::of(class).size as usize + MAGAZINE_COUNTS
}

const _: () = assert!(CLASS_BITS <= 6);
