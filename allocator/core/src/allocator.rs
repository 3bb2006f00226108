//! The allocator: all its parts in one value, and the paths between them.

use core::ptr::{self, NonNull};

use crate::arena::{ARENAS, Arena, Below};
use crate::depot::Depot;
use crate::heap::Heap;
use crate::magazine::{Magazine, Stack};
use crate::meta::{Meta, Spares};
use crate::os;
use crate::page_heap::{Ground, PageHeap};
use crate::registry::Registry;
use crate::size_class::{self, CLASS_SLOTS, CLASSES, Class};
use crate::sync::{AtomicPtr, AtomicU32, Lock, Ordering};
use crate::units::{self, Entry, Units};

/// Magazines that wait in one inbox at most; beyond that, blocks go straight to their spans, so that a thread that sleeps does not keep memory.
const INBOX_BOUND: u32 = 32;
/// Empty magazines that a heap keeps.
const SPARES: u32 = 16;
/// Bytes of blocks in one heap's private depot: at most, at least, and in all heaps together beyond the least.
const DEPOT_MAX: usize = 8 << 20;
const DEPOT_MIN: usize = 64 << 10;
const DEPOT_SUM: usize = 64 << 20;
/// Slow paths between two looks at the clock.
const EVENTS_PER_LOOK: u32 = 64;
/// Milliseconds between two trims of a private depot.
const TRIM_MS: u64 = 500;

/// A whole allocator. The one that serves malloc is a static; tests make their own.
pub struct Allocator {
    pub(crate) units: Units,
    pub(crate) registry: Lock<Registry>,
    pub(crate) arenas: [AtomicPtr<Arena>; ARENAS],
    pub(crate) depots: [Lock<Depot>; CLASS_SLOTS],
    pub(crate) pages: Lock<PageHeap>,
    pub(crate) spares: Lock<Spares<Magazine>>,
    pub(crate) meta: Lock<Meta>,
    /// Heaps in use.
    pub(crate) heaps: AtomicU32,
}

impl Allocator {
    /// An allocator that holds no memory yet.
    #[allow(clippy::new_without_default, reason = "a const constructor for statics")]
    pub const fn new() -> Self {
        Self {
            units: Units::new(),
            registry: Lock::new(Registry::new()),
            arenas: [const { AtomicPtr::new(ptr::null_mut()) }; ARENAS],
            depots: [const { Lock::new(Depot::new()) }; CLASS_SLOTS],
            pages: Lock::new(PageHeap::new()),
            spares: Lock::new(Spares::new()),
            meta: Lock::new(Meta::new()),
            heaps: AtomicU32::new(0),
        }
    }

    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground { units: &self.units, meta: &self.meta }
    }

    pub(crate) fn below(&self) -> Below<'_> {
        Below { ground: self.ground(), pages: &self.pages }
    }

    /// The arena with this index, which some entry of the unit map names.
    pub(crate) fn arena(&self, index: u16) -> &'static Arena {
        // Acquire: pairs with the Release in `create_arena`.
        let arena = self.arenas[usize::from(index) % ARENAS].load(Ordering::Acquire);
        if arena.is_null() {
            os::die("ample: free of a pointer that malloc did not return\n");
        }
        // SAFETY: arenas live for ever.
        unsafe { &*arena }
    }

    /// A block of `class` when the loaded magazine is empty; null: no memory.
    pub(crate) fn refill(&self, heap: &Heap, class: Class) -> *mut u8 {
        let Some(arena) = heap.arena() else { return self.take_direct(class) };
        self.look_at_clock(heap);
        let bin = &heap.bins[class];
        let previous = bin.previous.get();
        // SAFETY: a heap's magazines are live.
        if let Some(filled) = unsafe { previous.as_ref() }
            && filled.count.get() > 0
        {
            bin.previous.set(heap.loaded(class).map_or(ptr::null_mut(), NonNull::as_ptr));
            heap.load(class, NonNull::from(filled), filled.count.get().into());
            return heap.pop(class);
        }
        let stored = heap.fetch(class).or_else(|| {
            bin.allowed.set(bin.allowed.get().saturating_add(1));
            self.empty_inbox(heap, arena);
            heap.fetch(class).or_else(|| {
                size_class::fills_lines(class).then(|| self.depots[class].lock().take()).flatten()
            })
        });
        if let Some(stored) = stored {
            if let Some(empty) = heap.loaded(class) {
                self.put_spare(heap, empty);
            }
            // SAFETY: the depots hold live magazines.
            heap.load(class, stored, unsafe { stored.as_ref() }.count.get().into());
            return heap.pop(class);
        }
        let Some(magazine) = heap.loaded(class).or_else(|| self.take_spare(heap, class)) else {
            return self.take_direct(class);
        };
        let capacity = size_class::of(class).magazine;
        let wanted = bin.refill.get().min(capacity);
        bin.refill.set((wanted * 2).min(capacity));
        // SAFETY: the magazine is this heap's.
        let count = arena.fill(self.below(), unsafe { magazine.as_ref() }, wanted.into());
        heap.load(class, magazine, count);
        heap.pop(class)
    }

    /// Takes back a small block that [`Heap::push_foreign`] did not take.
    ///
    /// # Safety
    /// `block` is a live small block with this entry.
    pub(crate) unsafe fn free_slow(&self, heap: &Heap, block: *mut u8, entry: Entry) {
        let class = units::class_in(entry);
        if heap.arena().is_some() {
            self.look_at_clock(heap);
            let stays = size_class::fills_lines(class) || heap.own_class(entry) < CLASS_SLOTS;
            let taken = if stays {
                self.make_room(heap, class) && heap.push(class, block)
            } else {
                self.make_outgoing(heap, class) && heap.push_foreign(entry, block)
            };
            if taken {
                return;
            }
        }
        self.give_back_direct(block, entry);
    }

    /// Makes room in the loaded magazine of `class`, which is full or not there. `false`: no memory for a magazine.
    fn make_room(&self, heap: &Heap, class: Class) -> bool {
        let bin = &heap.bins[class];
        let Some(full) = heap.loaded(class) else {
            return self.take_spare(heap, class).inspect(|&magazine| heap.load(class, magazine, 0)).is_some();
        };
        // SAFETY: a heap's magazines are live.
        match unsafe { bin.previous.get().as_ref() } {
            Some(empty) if empty.count.get() == 0 => {
                bin.previous.set(full.as_ptr());
                heap.load(class, NonNull::from(empty), 0);
            }
            previous => {
                let Some(fresh) = self.take_spare(heap, class) else { return false };
                bin.previous.set(full.as_ptr());
                heap.load(class, fresh, 0);
                if let Some(previous) = previous {
                    heap.store(NonNull::from(previous));
                    self.bound_depot(heap, class);
                }
            }
        }
        true
    }

    /// Sheds magazines of `class` until the private depot holds no more of them than this thread has use for, and no more of all
    /// than it may.
    fn bound_depot(&self, heap: &Heap, class: Class) {
        // Relaxed: a bound on memory, not a promise.
        let heaps = self.heaps.load(Ordering::Relaxed).max(1) as usize;
        let bound = (DEPOT_SUM / heaps).clamp(DEPOT_MIN, DEPOT_MAX);
        let bin = &heap.bins[class];
        while (bin.full.len() > bin.allowed.get().into() || heap.depot_bytes.get() > bound)
            && let Some(magazine) = heap.fetch(class)
        {
            self.shed(heap, magazine);
        }
    }

    /// Gives a magazine with blocks away: to the shared depot, or its blocks back to their arenas.
    fn shed(&self, heap: &Heap, magazine: NonNull<Magazine>) {
        // SAFETY: the magazine is the caller's.
        let class = unsafe { magazine.as_ref() }.class();
        if size_class::fills_lines(class) && self.depots[class].lock().put(class, magazine) {
            return;
        }
        // SAFETY: as above.
        self.give_back_all(unsafe { magazine.as_ref() });
        self.put_spare(heap, magazine);
    }

    /// Makes room in the outgoing magazine of `class`, which is full or not there. `false`: no memory for a magazine.
    fn make_outgoing(&self, heap: &Heap, class: Class) -> bool {
        let place = &heap.bins[class].outgoing;
        match NonNull::new(place.get()) {
            Some(full) if !self.deliver(full) => true,
            _ => {
                place.set(self.take_spare(heap, class).map_or(ptr::null_mut(), NonNull::as_ptr));
                !place.get().is_null()
            }
        }
    }

    /// Sends the blocks of an outgoing magazine home. `true`: the magazine went with them, `false`: it is empty now.
    fn deliver(&self, outgoing: NonNull<Magazine>) -> bool {
        // SAFETY: the magazine is the caller's.
        let magazine = unsafe { outgoing.as_ref() };
        let mut owners = magazine.blocks().iter().map(|slot| units::arena_in(self.entry(slot.get())));
        let Some(first) = owners.next() else { return false };
        if owners.all(|owner| owner == first) {
            // SAFETY: the magazine is the caller's, and goes to the inbox for good.
            let sent = unsafe { self.arena(first).inbox.put(outgoing.as_ptr(), INBOX_BOUND) };
            if sent {
                return true;
            }
        }
        self.give_back_all(magazine);
        false
    }

    /// Gives a magazine's blocks back to the spans of their arenas.
    fn give_back_all(&self, magazine: &Magazine) {
        let mut left = usize::from(magazine.count.replace(0));
        while left > 0 {
            let owner = units::arena_in(self.entry(magazine.slot(0).get()));
            left = self.arena(owner).give_back(self.below(), magazine, left);
        }
    }

    /// Entry of a live small block.
    fn entry(&self, block: *mut u8) -> Entry {
        // SAFETY: a live block.
        unsafe { self.units.entry(block.addr()) }
    }

    /// Takes what other threads sent home into the private depot.
    fn empty_inbox(&self, heap: &Heap, arena: &Arena) {
        let arrived = Stack::from_linked(arena.inbox.take_all());
        while let Some(magazine) = arrived.pop() {
            heap.store(magazine);
            // SAFETY: the magazine is this heap's now.
            self.bound_depot(heap, unsafe { magazine.as_ref() }.class());
        }
    }

    /// Gives all of an inbox's blocks back to the spans.
    pub(crate) fn flush_linked(&self, first: *mut Magazine) {
        let arrived = Stack::from_linked(first);
        while let Some(magazine) = arrived.pop() {
            // SAFETY: records in an inbox are live, and were taken out by the caller.
            self.give_back_all(unsafe { magazine.as_ref() });
            // SAFETY: nobody else knows the magazine.
            unsafe { self.spares.lock().put(magazine) };
        }
    }

    /// Gives everything that a heap holds back. The heap is as good as new afterwards.
    pub(crate) fn flush(&self, heap: &Heap) {
        for class in 1..=CLASSES {
            let bin = &heap.bins[class];
            let loaded = heap.loaded(class);
            let kept = [loaded, NonNull::new(bin.previous.get()), NonNull::new(bin.outgoing.get())];
            heap.unload(class);
            for magazine in kept.into_iter().flatten() {
                // SAFETY: the magazines are this heap's.
                self.give_back_all(unsafe { magazine.as_ref() });
                self.put_spare(heap, magazine);
            }
            while let Some(magazine) = heap.fetch(class) {
                self.shed(heap, magazine);
            }
        }
        while let Some(magazine) = heap.spares.pop() {
            // SAFETY: an empty magazine that nobody else knows.
            unsafe { self.spares.lock().put(magazine) };
        }
    }

    /// Gives back all that this thread's heap, the heaps of ended threads and the shared depots hold, and all free
    /// memory to the system: the last resort before 'no memory'.
    #[cold]
    pub(crate) fn reclaim(&self, heap: &Heap) {
        // An inert heap holds nothing, and is shared.
        if heap.arena().is_some() {
            self.flush(heap);
        }
        self.retire_warm();
        for depot in &self.depots {
            while let Some(magazine) = depot.lock().take() {
                self.flush_linked(magazine.as_ptr());
            }
        }
        for arena in &self.arenas {
            // Acquire: pairs with the Release in `create_arena`.
            // SAFETY: arenas live for ever.
            if let Some(arena) = unsafe { arena.load(Ordering::Acquire).as_ref() } {
                arena.release_empty(self.below());
            }
        }
        self.pages.lock().purge_all(self.ground());
    }

    /// Now and then, trims the private depot by what it could have done without.
    fn look_at_clock(&self, heap: &Heap) {
        heap.events.set(heap.events.get().wrapping_add(1));
        if !heap.events.get().is_multiple_of(EVENTS_PER_LOOK) {
            return;
        }
        let now = os::now_ms();
        if now.wrapping_sub(heap.trimmed_ms.get()) < TRIM_MS {
            return;
        }
        heap.trimmed_ms.set(now);
        for class in 1..=CLASSES {
            let bin = &heap.bins[class];
            for _ in 0..bin.low.get() {
                if let Some(magazine) = heap.fetch(class) {
                    self.shed(heap, magazine);
                }
            }
            bin.allowed.set(bin.allowed.get().saturating_sub(bin.low.get()).max(1));
            bin.low.set(bin.full.len() as u16);
        }
    }

    /// A block of `class` for a thread without a heap.
    pub(crate) fn take_direct(&self, class: Class) -> *mut u8 {
        match self.common_arena() {
            Some(arena) => arena.take_one(self.below(), class),
            None => ptr::null_mut(),
        }
    }

    /// Takes back a block from a thread without a heap.
    pub(crate) fn give_back_direct(&self, block: *mut u8, entry: Entry) {
        self.arena(units::arena_in(entry)).give_back_one(self.below(), block);
    }

    /// An empty magazine for `class`.
    fn take_spare(&self, heap: &Heap, class: Class) -> Option<NonNull<Magazine>> {
        if let Some(magazine) = heap.spares.pop() {
            // SAFETY: the magazine is this heap's.
            unsafe { magazine.as_ref() }.set_class(class);
            return Some(magazine);
        }
        let record = self.spares.lock().take();
        let record = record.or_else(|| self.meta.lock().record())?;
        // SAFETY: the record is ours alone, large and aligned enough.
        unsafe { record.write(Magazine::new(class)) };
        Some(record)
    }

    /// Keeps an empty magazine.
    fn put_spare(&self, heap: &Heap, magazine: NonNull<Magazine>) {
        if heap.spares.len() < SPARES {
            heap.spares.push(magazine);
        } else {
            // SAFETY: an empty magazine that nobody else knows.
            unsafe { self.spares.lock().put(magazine) };
        }
    }
}
