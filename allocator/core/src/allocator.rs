//! The allocator: all its parts in one value, and the paths between them.

use core::mem::offset_of;
use core::ptr::{self, NonNull};

use crate::arena::{Arena, Below, Lenders};
use crate::budget::Budget;
use crate::depot::Depots;
use crate::eager::Eager;
use crate::heap::{Bin, Heap, MAGAZINE_COUNTS};
use crate::magazine::{Batches, Magazine, Stack};
use crate::meta::Meta;
use crate::options::{Name, Options};
use crate::outside::{Outside, Parts};
use crate::page_heap::{Ground, Home, PageHeaps, Shared};
use crate::registry::Registry;
use crate::size_class::{self, CLASSES, Class};
use crate::starter::MIXED;
use crate::sync::{self, AtomicPtr, Lock, Ordering, OwnLine};
use crate::units::{self, ARENAS, Entry, Kept, Units};

/// A private depot may hold this many times [`ClassInfo::unordered_most`](size_class::ClassInfo::unordered_most) of a class in no order before what is beyond that goes back: 1 MiB, which fits into a core's second-level cache.
const UNORDERED_TIMES: u32 = 4;
/// Empty magazines that are given away, or taken, at once.
pub(crate) const SPARES_AT_ONCE: u32 = 8;
/// Slow paths between two looks at the clock.
pub(crate) const EVENTS_PER_LOOK: u32 = 64;
/// Blocks of a class that it uses rarely that a thread of a crowd asks for at once.
const WANTED_RARELY: u8 = 2;

/// A whole allocator. The one that serves malloc is a static; tests make their own.
///
/// The order of the fields keeps what every process writes to together, between two long arrays of which little is written: the unit map's list of islands, and the registry's list of the arenas' users.
#[repr(C)]
pub struct Allocator {
    pub(crate) units: Units,
    pub(crate) tables: &'static Tables,
    pub(crate) options: Options,
    pub(crate) shared: OwnLine<Shared>,
    pub(crate) spares: OwnLine<Lock<Batches>>,
    pub(crate) meta: Lock<Meta>,
    pub(crate) budget: Budget,
    lenders: Lenders,
    /// Where the large blocks of threads without an arena come from.
    home: Home,
    pub(crate) eager: Eager,
    pub(crate) registry: Lock<Registry>,
    /// Read by nobody in this process.
    outside: Outside,
}

/// The parts of an allocator that are long and all zeros at first: they take no room in the library's file, and memory only where they are used.
#[repr(C)]
pub(crate) struct Tables {
    pub(crate) pages: PageHeaps,
    pub(crate) arenas: [AtomicPtr<Arena>; ARENAS],
    pub(crate) depots: Depots,
    kept: Kept,
}

impl Tables {
    pub(crate) const fn new() -> Self {
        Self {
            pages: PageHeaps::new(),
            arenas: [const { AtomicPtr::new(ptr::null_mut()) }; ARENAS],
            depots: Depots::new(),
            kept: Kept::new(),
        }
    }
}

impl Allocator {
    /// An allocator that holds no memory yet.
    pub(crate) const fn new(tables: &'static Tables) -> Self {
        Self {
            units: Units::new(&tables.kept),
            tables,
            options: Options::new(),
            shared: OwnLine(Shared::new()),
            spares: OwnLine(Lock::new(Batches::new())),
            meta: Lock::new(Meta::new()),
            budget: Budget::new(),
            lenders: Lenders::new(),
            home: Home::new(),
            eager: Eager::new(),
            registry: Lock::new(Registry::new()),
            outside: Outside::new(Parts {
                outside: offset_of!(Self, outside),
                meta: offset_of!(Self, meta),
                tables: offset_of!(Self, tables),
                arenas: offset_of!(Tables, arenas),
                pages: offset_of!(Tables, pages),
            }),
        }
    }

    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground { options: &self.options, shared: &self.shared, units: &self.units, meta: &self.meta }
    }

    /// Whether the heap has more memory than it should.
    pub(crate) fn is_tight(&self) -> bool {
        // Relaxed: a hint; the next one sees it.
        self.shared.tight.load(Ordering::Relaxed) != 0
    }

    /// Where the large blocks of a heap's thread come from.
    pub(crate) fn home(&self, heap: &Heap) -> &Home {
        heap.arena().map_or(&self.home, |arena| &arena.home)
    }

    pub(crate) fn below(&self) -> Below<'_> {
        Below { ground: self.ground(), pages: &self.tables.pages, lenders: &self.lenders }
    }

    /// The arena with this index, which some entry of the unit map names.
    pub(crate) fn arena(&self, index: u16) -> &'static Arena {
        // Acquire: pairs with the Release in `create_arena`.
        let arena = self.tables.arenas[usize::from(index) % ARENAS].load(Ordering::Acquire);
        if arena.is_null() {
            sync::die("ample: free of a pointer that malloc did not return\n");
        }
        // SAFETY: arenas live for ever.
        unsafe { &*arena }
    }

    /// A block of `class` when the loaded magazine is empty or not there; null: no memory.
    #[inline]
    pub(crate) fn refill(&self, heap: &Heap, class: Class) -> *mut u8 {
        let (Some(arena), Some(source)) = (heap.arena(), heap.source(class)) else {
            return self.take_direct(class);
        };
        if !self.options.is_on(Name::Cache) {
            return source.take_one(self.below(), class);
        }
        self.look_at_clock(heap);
        let bin = &heap.bins[class];
        let previous = bin.previous.get();
        // SAFETY: a heap's magazines are live.
        if let Some(filled) = unsafe { previous.as_ref() }
            && filled.count.get() > 0
        {
            bin.previous.set(heap.loaded(class).map_or(ptr::null_mut(), NonNull::as_ptr));
            return heap.load_and_pop(class, NonNull::from(filled), filled.count.get());
        }
        let mut stored = heap.fetch(class);
        if stored.is_none() {
            heap.orders.set(heap.orders.get() & !(1 << class));
            if heap.may_start(class)
                && let Some(block) = self.start(heap, arena, source, class)
            {
                return block;
            }
            if let Some(left) = bin.missed.get().checked_sub(1) {
                bin.missed.set(left);
                bin.allowed.set(bin.allowed.get().saturating_add(1));
            }
            self.empty_inbox(heap, arena);
            stored = heap.fetch(class).or_else(|| self.take_shared(heap, class));
        }
        if let Some(stored) = stored {
            if let Some(empty) = NonNull::new(bin.loaded.get()) {
                self.put_spare(heap, empty);
            }
            // SAFETY: the depots hold live magazines.
            return heap.load_and_pop(class, stored, unsafe { stored.as_ref() }.count.get());
        }
        self.look_at_growth(heap);
        let loaded = NonNull::new(bin.loaded.get());
        let Some(magazine) = loaded.or_else(|| self.take_spare(heap, class)) else {
            return self.take_direct(class);
        };
        let mut wanted = heap.wanted(class);
        if self.budget.is_crowd() && heap.uses_rarely(class) {
            wanted = wanted.min(WANTED_RARELY);
        } else if wanted < size_class::of(class).magazine_most {
            heap.want_more(class, wanted, self.budget.magazines(self.shared.small()));
        }
        // SAFETY: the magazine is this heap's.
        let empty = unsafe { magazine.as_ref() };
        // Twice at most: a heap that was emptied stores nothing.
        let count = loop {
            let may_grow = || !self.stores_much(heap);
            match source.fill(self.below(), empty, wanted.into(), &heap.donor, may_grow) {
                Some(count) => break count,
                None => self.empty_cold(heap, false),
            }
        };
        if count == 0 {
            heap.load(class, magazine, 0);
            return ptr::null_mut();
        }
        heap.load_and_pop(class, magazine, count as u16)
    }

    /// Takes back a small block for which neither [`Place::push`](crate::heap::Place::push) nor [`Heap::push_foreign`] had room.
    ///
    /// # Safety
    /// `block` is a live small block with this entry.
    pub(crate) unsafe fn free_slow(&self, heap: &Heap, block: *mut u8, entry: Entry) {
        let class = units::class_in(entry);
        if class != MIXED && heap.arena().is_some() && self.options.is_on(Name::Cache) {
            self.look_at_clock(heap);
            let starts = heap.may_start(class) && self.gives_back_first(heap, class);
            let taken = !starts
                && if heap.own_place(entry).is_some() {
                    self.make_room(heap, class) && heap.place(class).push(block)
                } else {
                    self.make_outgoing(heap, class) && heap.push_foreign(entry, block)
                };
            if self.budget.is_crowd() {
                self.shed_rare(heap, class);
            }
            if taken {
                return;
            }
        }
        self.give_back_direct(block, entry);
    }

    /// Makes room in the loaded magazine of `class`, which is full or not there. `false`: no memory for a magazine.
    #[inline]
    fn make_room(&self, heap: &Heap, class: Class) -> bool {
        let bin = &heap.bins[class];
        let Some(full) = heap.loaded(class) else {
            return self.take_spare(heap, class).inspect(|&magazine| heap.load(class, magazine, 0)).is_some();
        };
        // SAFETY: a heap's magazines are live.
        let previous = unsafe { bin.previous.get().as_ref() };
        let empty = match previous {
            Some(previous) if previous.count.get() == 0 => NonNull::from(previous),
            _ => {
                let Some(fresh) = self.take_spare(heap, class) else { return false };
                fresh
            }
        };
        bin.previous.set(full.as_ptr());
        heap.load(class, empty, 0);
        if let Some(previous) = previous
            && previous.count.get() > 0
        {
            heap.store(class, NonNull::from(previous));
            self.bound_depot(heap, class);
        }
        true
    }

    /// Units of freed large blocks that a heap may keep.
    #[inline(always)]
    pub(crate) fn large_bound(&self, heap: &Heap) -> usize {
        if self.is_tight() { 0 } else { self.budget.large() + heap.large.more() }
    }

    /// Sheds magazines of `class` until the private depot holds no more of them than this thread has use for, and no more of all
    /// than it may.
    #[inline(always)]
    fn bound_depot(&self, heap: &Heap, class: Class) {
        let bin = &heap.bins[class];
        let most = if self.is_tight() { 0 } else { self.budget.depot() };
        let holds_too_much = || {
            let bytes = heap.depot_bytes.get();
            bin.full.len() > bin.allowed.get().into()
                || bytes > most
                || bytes > self.budget.strange_least() && self.holds_too_much_strange(heap, bin)
        };
        let mut kept = true;
        while holds_too_much()
            && let Some(magazine) = heap.fetch(class)
        {
            kept = false;
            bin.missed.set(bin.missed.get().saturating_add(1));
            self.shed(heap, class, magazine);
        }
        let (stored, most) = (bin.full.len(), u32::from(size_class::of(class).unordered_most));
        if kept && (stored > UNORDERED_TIMES * most || stored > most && heap.orders.get() >> class & 1 != 0) {
            self.bound_disorder(heap, class);
        }
    }

    /// Gives the newest magazines in a private depot back to their spans as long as their blocks are this heap's own and in no order: in the spans they find their order again. This begins
    /// when the depot holds many magazines of the class, or much of all classes, and goes on until malloc has emptied it. Otherwise a thread that frees much and allocates it again would get blocks from all over
    /// the memory for what lies side by side in the program's structures.
    #[inline(never)]
    fn bound_disorder(&self, heap: &Heap, class: Class) {
        let (full, info) = (&heap.bins[class].full, size_class::of(class));
        while full
            .top()
            .is_some_and(|newest| !newest.is_in_order(info.size as usize) && !self.is_strange(heap, newest))
            && let Some(magazine) = heap.fetch(class)
        {
            self.shed(heap, class, magazine);
            heap.orders.set(heap.orders.get() | 1 << class);
            if full.len() <= info.unordered_most.into() {
                break;
            }
        }
    }

    /// Whether the newest magazine in a private depot holds other arenas' blocks, and the depot more than it may with those.
    #[inline(never)]
    fn holds_too_much_strange(&self, heap: &Heap, bin: &Bin) -> bool {
        heap.depot_bytes.get() > self.budget.strange(self.shared.small())
            && bin.full.top().is_some_and(|newest| self.is_strange(heap, newest))
    }

    /// A magazine of `class` that other threads filled, of several from the shared depot, of which this heap keeps the rest.
    fn take_shared(&self, heap: &Heap, class: Class) -> Option<NonNull<Magazine>> {
        if self.tables.depots.is_empty(class) { None } else { self.take_some_shared(heap, class) }
    }

    #[inline(never)]
    fn take_some_shared(&self, heap: &Heap, class: Class) -> Option<NonNull<Magazine>> {
        let taken = self.tables.depots.take(class, heap.arena().map_or(0, |arena| arena.index));
        let first = taken.pop();
        while let Some(magazine) = taken.pop() {
            heap.store(class, magazine);
        }
        first
    }

    /// Gives a magazine of `class` with blocks away: to the shared depot, or its blocks back to their arenas.
    #[inline(never)]
    pub(crate) fn shed(&self, heap: &Heap, class: Class, magazine: NonNull<Magazine>) {
        // SAFETY: the magazine is the caller's.
        let blocks = unsafe { magazine.as_ref() };
        // If blocks of this heap's own went to the shared depot, other threads would take them, and this one theirs: each would get cold ones.
        // (A crowd shares arenas, so that its threads get each other's blocks anyway; and a magazine as it is costs less than a way through the spans.)
        let strange = self.budget.is_crowd() || self.is_strange(heap, blocks);
        if !(strange && size_class::fills_lines(class) && !self.is_tight() && self.share(class, magazine)) {
            self.give_back_all(blocks, strange);
            self.put_spare(heap, magazine);
        }
    }

    /// Gives a magazine with line-filling blocks of others to the shared depot. It goes to the arena of its newest block instead if the depot is busy, or if it is full and that arena's
    /// spans are busy. `false`: it is still the caller's.
    #[inline(never)]
    fn share(&self, class: Class, magazine: NonNull<Magazine>) -> bool {
        // SAFETY: the magazine is the caller's.
        let blocks = unsafe { magazine.as_ref() };
        let newest = blocks.slot(usize::from(blocks.count.get()) - 1).get();
        let owner = self.arena(units::arena_in(self.entry(newest)));
        let send_home = || !self.budget.is_crowd() && send(blocks, owner);
        self.tables.depots.put(class, magazine, owner.index, self.shared.small(), send_home)
            || owner.raw_lock().is_held() && send_home()
    }

    /// Whether the newest block of a magazine comes from elsewhere than this heap's own do.
    fn is_strange(&self, heap: &Heap, magazine: &Magazine) -> bool {
        magazine.blocks().last().is_some_and(|newest| !heap.owns(self.entry(newest.get())))
    }

    /// Makes room in the outgoing magazine of `class`, which is full or not there. `false`: as for
    /// [`Allocator::make_room`].
    fn make_outgoing(&self, heap: &Heap, class: Class) -> bool {
        let place = &heap.bins[class].outgoing;
        match NonNull::new(place.get()) {
            Some(full) if !self.deliver(heap, full) => true,
            _ => {
                place.set(self.take_spare(heap, class).map_or(ptr::null_mut(), NonNull::as_ptr));
                !place.get().is_null()
            }
        }
    }

    /// Sends the blocks of an outgoing magazine home. `true`: the magazine went with them, `false`: it is empty now. In a crowd they go to their spans, where any heap
    /// of their arena finds them, while the thread that they were allocated by waits for a processor.
    fn deliver(&self, heap: &Heap, outgoing: NonNull<Magazine>) -> bool {
        // SAFETY: the magazine is the caller's.
        let magazine = unsafe { outgoing.as_ref() };
        let mut owners = magazine.blocks().iter().map(|slot| units::arena_in(self.entry(slot.get())));
        let Some(first) = owners.next() else { return false };
        let owner = self.arena(first);
        heap.donor.note(owner);
        if !self.budget.is_crowd() && owners.all(|owner| owner == first) && send(magazine, owner) {
            return true;
        }
        self.give_back_all(magazine, true);
        false
    }

    /// Gives a magazine's blocks back to the spans of their arenas, where others may borrow them if they are `for_others`: what a thread gives back of its own it takes again itself.
    pub(crate) fn give_back_all(&self, magazine: &Magazine, for_others: bool) {
        let mut left = usize::from(magazine.count.replace(0));
        while left > 0 {
            let owner = self.arena(units::arena_in(self.entry(magazine.slot(0).get())));
            left = owner.give_back(self.below(), magazine, left);
            if for_others {
                self.lenders.note(owner, magazine.class());
            }
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
            // SAFETY: the magazine is this heap's now.
            let class = unsafe { magazine.as_ref() }.class();
            heap.store(class, magazine);
            self.bound_depot(heap, class);
        }
    }

    /// Now and then, trims the private depot by what it could have done without.
    #[inline]
    pub(crate) fn look_at_clock(&self, heap: &Heap) {
        if heap.count_event().is_multiple_of(EVENTS_PER_LOOK) {
            self.trim_by_clock(heap);
        }
    }

    /// Makes a heap do as the options say.
    pub(crate) fn apply_options(&self, heap: &Heap) {
        if self.options.is_on(Name::IsolateLines) {
            heap.isolate_lines();
        }
        if !self.options.is_on(Name::Cache) {
            self.flush(heap);
            (1..=CLASSES).for_each(|class| heap.leave_starter(class));
        }
    }

    /// A block of `class` for a thread without a heap.
    pub(crate) fn take_direct(&self, class: Class) -> *mut u8 {
        match self.common_arena() {
            Some(arena) => arena.take_one(self.below(), class),
            None => ptr::null_mut(),
        }
    }

    /// Takes back a small block without a heap: that of a thread that has none, or one of a starter.
    pub(crate) fn give_back_direct(&self, block: *mut u8, entry: Entry) {
        let mut owner = self.arena(units::arena_in(entry));
        if units::class_in(entry) == MIXED {
            owner.give_back_mixed(block);
            return;
        }
        while !owner.give_back_one(self.below(), block) {
            owner = self.arena(units::arena_in(self.entry(block)));
        }
    }

    /// An empty magazine for `class`.
    #[inline]
    fn take_spare(&self, heap: &Heap, class: Class) -> Option<NonNull<Magazine>> {
        let record = heap.spares.stack().pop().or_else(|| self.take_shared_spares(heap))?;
        // SAFETY: the record is ours alone: zeroed memory, or a magazine that was given up.
        unsafe { record.as_ref() }.empty(class);
        Some(record)
    }

    /// One of a batch of empty magazines of others, of which the rest is this heap's from now on.
    #[cold]
    fn take_shared_spares(&self, heap: &Heap) -> Option<NonNull<Magazine>> {
        let batch = self.spares.lock().take();
        // As many as a private depot may hold full.
        let most = self.budget.depot() / MAGAZINE_COUNTS;
        heap.spares.note_asked(batch.as_ref().map_or(1, Stack::len), most as u32);
        let Some(batch) = batch else { return self.meta.lock().record() };
        while batch.len() > 1
            && let Some(magazine) = batch.pop()
        {
            heap.spares.stack().push(magazine);
        }
        batch.pop()
    }

    /// Keeps an empty magazine.
    #[inline(always)]
    pub(crate) fn put_spare(&self, heap: &Heap, magazine: NonNull<Magazine>) {
        if heap.spares.put(magazine, self.budget.spares()) {
            heap.spares.note_given(SPARES_AT_ONCE);
            self.trim_spares(heap, heap.spares.stack().len().saturating_sub(SPARES_AT_ONCE));
        }
    }
}

/// Puts a magazine with blocks, which is the caller's, into an arena's inbox for good; `false`: that takes no more.
#[inline(never)]
fn send(magazine: &Magazine, arena: &Arena) -> bool {
    let bound = size_class::of(magazine.class()).inbox_most.into();
    // SAFETY: the magazine is the caller's until then.
    unsafe { arena.inbox.put(ptr::from_ref(magazine).cast_mut(), bound) }
}
