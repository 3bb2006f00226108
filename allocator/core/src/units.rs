//! From an address to what lies there: the unit map (class and owner of every unit) and the chunk table (span of every unit).
//!
//! Both are flat tables over the whole address space, reserved but not committed. A look-up is one load without a test for foreign
//! pointers, since what was never written reads as zero (`units/table.rs`). Page headers would do the same, but they all fall into the
//! same cache sets, whereas 64 bytes of the unit map cover 256 KiB of heap. (The idea of a page map outside the heap is
//! snmalloc's and tcmalloc's.)

mod table;

use core::ptr::NonNull;

use self::table::{FlatTable, island_words};
use crate::os;
use crate::size_class::{self, CLASS_BITS, Class};
use crate::span::Span;
use crate::sync::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

pub(crate) use crate::size_class::{UNIT, UNIT_SHIFT};

/// log2 of [`CHUNK`].
const CHUNK_SHIFT: u32 = 21;
/// Bytes of a chunk, the grain in which address space is acquired: 2 MiB.
pub(crate) const CHUNK: usize = 1 << CHUNK_SHIFT;
/// Units of a chunk.
const CHUNK_UNITS: usize = CHUNK / UNIT;

/// What the unit map says of a unit; 0: nothing (NULL, foreign, free, or inside a large block).
///
/// ```text
/// bits 3–8    class of its blocks: as it stands there, how far its place lies from the start of a heap
/// bits 9–21   code of the arena that takes them back, 0 where any heap may keep them
/// bits 22–31  index of the arena that owns the span; where all other bits are 0, what a large block is
/// ```
///
/// In the first unit of a large block, live or in a thread's cache, only the last of these are set: to its units where a heap may keep the block when it is
/// freed and live; else to [`UNKEPT`].
///
/// One `and` says whether a heap may keep a block: what is left of the entry under the heap's mask is the class, and nothing else,
/// if the code is 0 or that of the heap's arena. All codes have six of thirteen bits set, so that none is a part of another (E. Sperner,
/// 1928).
pub(crate) type Entry = u32;

/// log2 of how many bytes the places of neighbouring classes lie apart in a heap: see `Place` in `heap.rs`.
pub(crate) const CLASS_SHIFT: u32 = 3;
const CODE_SHIFT: u32 = CLASS_SHIFT + CLASS_BITS;
const CODE_BITS: u32 = 13;
const CODE_ONES: u32 = 6;
const INDEX_BITS: u32 = 10;
const INDEX_SHIFT: u32 = CODE_SHIFT + CODE_BITS;
const _: () = assert!(INDEX_SHIFT + INDEX_BITS == Entry::BITS);
/// Arenas that an entry can name, nobody's (index 0) included.
pub(crate) const ARENAS: usize = 1 << INDEX_BITS;

/// The code of each arena.
static CODES: [u16; ARENAS] = {
    let mut codes = [0; ARENAS];
    let (mut index, mut word) = (1, 0u16);
    while index < ARENAS {
        word += 1;
        if word.count_ones() == CODE_ONES {
            codes[index] = word;
            index += 1;
        }
    }
    assert!(word < 1 << CODE_BITS);
    codes
};

/// The code of the arena with this index, where it stands in an entry.
fn code_of(arena: u16) -> Entry {
    Entry::from(CODES[usize::from(arena) % ARENAS]) << CODE_SHIFT
}

/// Entry of a unit whose span has this class and this owner. Blocks of a class that fills lines may stay with whoever frees them.
pub(crate) fn entry_of(class: Class, arena: u16) -> Entry {
    let code = if size_class::fills_lines(class) { 0 } else { code_of(arena) };
    Entry::from(arena) << INDEX_SHIFT | code | (class as Entry) << CLASS_SHIFT
}

/// Stands for the units of a large block that is not to be kept, or from which something is to be learned before.
pub(crate) const UNKEPT: usize = ARENAS - 1;

/// Entry of the first unit of a large block: see [`Entry`].
pub(crate) fn entry_of_large(units: usize) -> Entry {
    debug_assert!(0 < units && units < ARENAS);
    (units as Entry) << INDEX_SHIFT
}

/// Whether the entry is that of a small block.
#[inline(always)]
pub(crate) fn is_small(entry: Entry) -> bool {
    entry as usize & NOBODYS_MASK != 0
}

/// The units in an entry that is not a small block's; 0: no large block begins there.
#[inline(always)]
pub(crate) fn large_in(entry: Entry) -> usize {
    debug_assert!(!is_small(entry));
    (entry >> INDEX_SHIFT) as usize
}

/// What a heap of this arena looks at in an entry: see [`Entry`].
pub(crate) fn mask_of(arena: u16) -> usize {
    NOBODYS_MASK & !(code_of(arena) as usize)
}

/// The mask of a heap without an arena.
pub(crate) const NOBODYS_MASK: usize = (1 << INDEX_SHIFT) - (1 << CLASS_SHIFT);

/// Class in an entry.
#[inline]
pub(crate) fn class_in(entry: Entry) -> Class {
    class_in_place(entry) >> CLASS_SHIFT
}

/// The same where it stands.
#[inline(always)]
pub(crate) fn class_in_place(entry: Entry) -> usize {
    entry as usize & ((1 << CLASS_BITS) - 1) << CLASS_SHIFT
}

/// Index of the owning arena in an entry.
#[inline]
pub(crate) fn arena_in(entry: Entry) -> u16 {
    (entry >> INDEX_SHIFT) as u16
}

/// What the chunk table knows of a chunk: the span of each unit. For a span of small blocks every unit is filled in, for
/// other runs the first and the last.
pub(crate) struct ChunkInfo {
    spans: [AtomicPtr<Span>; CHUNK_UNITS],
    /// The page heap whose chunk it is. Written once.
    page_heap: AtomicU8,
}

/// How far from what is mapped foreign memory is expected at most: 16 GiB, for which the unit map takes 4 MiB of addresses.
const REACH_MAX: usize = 16 << 30;

static NO_ENTRY: AtomicU32 = AtomicU32::new(0);
static NO_CHUNK: usize = 0;

const ENTRY_ISLANDS: usize = island_words(size_of::<Entry>(), UNIT_SHIFT);
const CHUNK_ISLANDS: usize = island_words(size_of::<usize>(), CHUNK_SHIFT);

/// What the tables note only when they let something go.
pub(crate) struct Kept {
    entries: [AtomicU32; ENTRY_ISLANDS],
    chunks: [AtomicU32; CHUNK_ISLANDS],
}

impl Kept {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { AtomicU32::new(0) }; ENTRY_ISLANDS],
            chunks: [const { AtomicU32::new(0) }; CHUNK_ISLANDS],
        }
    }
}

/// The unit map and the chunk table.
pub(crate) struct Units {
    /// Read for any address that a program gives to free.
    entries: FlatTable<AtomicU32, UNIT_SHIFT, ENTRY_ISLANDS, true>,
    /// Read for ours, and where its island tells that it may be.
    chunks: FlatTable<AtomicPtr<ChunkInfo>, CHUNK_SHIFT, CHUNK_ISLANDS, false>,
}

impl Units {
    pub(crate) const fn new(kept: &'static Kept) -> Self {
        Self {
            entries: FlatTable::new(&raw const NO_ENTRY, &kept.entries),
            chunks: FlatTable::new((&raw const NO_CHUNK).cast(), &kept.chunks),
        }
    }

    /// The entry of the unit in which `address` lies.
    ///
    /// # Safety
    /// `address` is NULL, or lies in memory that this allocator handed out, or in memory that is mapped: where the table is not whole, there are
    /// islands for that as well.
    #[inline(always)]
    pub(crate) unsafe fn entry(&self, address: usize) -> Entry {
        if cfg!(any(test, miri)) && !os::window().contains(&address) {
            return 0;
        }
        // SAFETY: the caller's contract and `FlatTable::at`.
        let entry = unsafe { &*self.entries.at(address) };
        // Relaxed: whoever holds a block of the unit got it after its class was written. The owner may change meanwhile; who acts on it looks
        // again under the owner's lock.
        entry.load(Ordering::Relaxed)
    }

    /// The span that holds `address`, which is a live small block, or the first byte of a large one; `None` for
    /// what is not ours.
    ///
    /// # Safety
    /// As for [`Units::entry`].
    pub(crate) unsafe fn span(&self, address: usize) -> Option<NonNull<Span>> {
        Self::span_in(self.chunk(address)?, address)
    }

    /// The span of a block.
    ///
    /// # Safety
    /// `address` lies in a unit whose [`Units::entry`] is not 0, and stays so meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn span_of_block(&self, address: usize) -> &'static Span {
        // SAFETY: where there is such an entry the chunk was registered, and the span of each unit written; both stay for ever.
        unsafe {
            // Acquire: as in `chunk`.
            let info = &*(*self.chunks.at(address)).load(Ordering::Acquire);
            // Relaxed: as in `span_in`.
            &*info.spans[(address % CHUNK) >> UNIT_SHIFT].load(Ordering::Relaxed)
        }
    }

    fn span_in(info: &ChunkInfo, address: usize) -> Option<NonNull<Span>> {
        // Relaxed: whoever holds a block of the unit, or the lock of the chunk's page heap, got it after the span was written.
        NonNull::new(info.spans[(address % CHUNK) >> UNIT_SHIFT].load(Ordering::Relaxed))
    }

    /// What is known of the chunk in which `address` lies; `None` for what is not ours.
    fn chunk(&self, address: usize) -> Option<&'static ChunkInfo> {
        // SAFETY: the element is there to be read.
        let slot = unsafe { &*self.chunks.known(address)? };
        // Acquire: pairs with the Release in `register`: the chunk's info is there before it is seen.
        let info = NonNull::new(slot.load(Ordering::Acquire))?;
        // SAFETY: chunk infos live for ever.
        Some(unsafe { info.as_ref() })
    }

    /// Whether `address` lies in a chunk of ours.
    ///
    /// # Safety
    /// As for [`Units::entry`].
    pub(crate) unsafe fn holds(&self, address: usize) -> bool {
        // SAFETY: the element is there to be read.
        let slot = self.chunks.known(address).map(|slot| unsafe { &*slot });
        // Relaxed: nothing is read through it.
        slot.is_some_and(|slot| !slot.load(Ordering::Relaxed).is_null())
    }

    /// Reserves the tables, so that they answer for foreign addresses too. The caller holds the records' lock.
    pub(crate) fn establish(&self) -> bool {
        self.entries.established() && self.chunks.established()
    }

    /// Gives up what is reserved and not needed, so that it counts for no limit; islands no further than `reach` from what is mapped stay. Whether
    /// addresses became free. The caller holds the records' lock.
    pub(crate) fn let_go(&self, reach: usize) -> bool {
        let reach = reach.min(REACH_MAX);
        // Both.
        self.entries.let_go(reach) | self.chunks.let_go(reach)
    }

    /// Does that where addresses are limited to fewer than are reserved: then there would be none for anything else. (A higher limit may have been made of what
    /// the process had, by a program that wants no more than a part in addition.) Whether addresses became free. The caller holds the records' lock.
    pub(crate) fn heed_address_limit(&self) -> bool {
        let reserved = self.entries.bytes() + self.chunks.bytes();
        os::address_limit().is_some_and(|limit| limit < reserved && self.let_go(limit))
    }

    /// Makes room in the tables for the chunks in `[start, start + len)`, a fresh part of `page_heap`. `infos` gives zeroed
    /// memory for so many chunk infos in a row. The caller holds the page heap's lock and the records'.
    pub(crate) fn register(
        &self,
        start: usize,
        len: usize,
        page_heap: u8,
        mut infos: impl FnMut(usize) -> Option<NonNull<ChunkInfo>>,
    ) -> bool {
        if !self.entries.prepare(start, len) || !self.chunks.prepare(start, len) {
            return false;
        }
        let (Some(first), Some(others)) = (infos(1), infos(len / CHUNK - 1)) else { return false };
        for index in 0..len / CHUNK {
            // SAFETY: `infos` gave that many.
            let info = if index == 0 { first } else { unsafe { others.add(index - 1) } };
            // Zeroed memory that stays zero stays untouched: a program that uses a chunk or two of its first sixteen needs the records of these only.
            if page_heap > 0 {
                // Relaxed: nobody else knows the chunk; published by the Release below.
                // SAFETY: zeroed memory, which nobody else knows.
                unsafe { info.as_ref() }.page_heap.store(page_heap, Ordering::Relaxed);
            }
            // SAFETY: the table was prepared for this address.
            let slot = unsafe { &*self.chunks.at(start + index * CHUNK) };
            // Release: pairs with the Acquire in `span`.
            slot.store(info.as_ptr(), Ordering::Release);
        }
        true
    }

    /// The span whose first or last unit, or whose small block, `address` lies in, if that is of `page_heap`, whose lock the caller
    /// holds.
    pub(crate) fn neighbour(&self, address: usize, page_heap: u8) -> Option<NonNull<Span>> {
        let info = self.chunk(address)?;
        // Relaxed: written once, before the chunk was seen.
        (info.page_heap.load(Ordering::Relaxed) == page_heap).then(|| Self::span_in(info, address)).flatten()
    }

    /// Records `span` for the first and the last unit of `[start, start + units)`.
    pub(crate) fn set_ends(&self, start: usize, units: usize, span: *mut Span) {
        self.set_span(start, span);
        self.set_span(start + (units - 1) * UNIT, span);
    }

    /// Records `span` and `entry` for every unit of a span of small blocks, or clears them (null and 0).
    pub(crate) fn set_all(&self, start: usize, units: usize, span: *mut Span, entry: Entry) {
        for unit in 0..units {
            let address = start + unit * UNIT;
            self.set_span(address, span);
            self.set_entry(address, entry);
        }
    }

    /// Writes the entries of a span whose blocks may be live: only the owner may change, under the locks of both.
    pub(crate) fn set_entries(&self, span: &Span, entry: Entry) {
        (0..span.units.get()).for_each(|unit| self.set_entry(span.start.get() + unit * UNIT, entry));
    }

    /// Writes the entry of the unit in which `address` lies, which is ours.
    #[inline(always)]
    pub(crate) fn set_entry(&self, address: usize, entry: Entry) {
        // SAFETY: `register` made room for the address.
        let slot = unsafe { &*self.entries.at(address) };
        // Relaxed: blocks are handed out later by this thread, or by one that takes a lock after it; for live ones see `entry`.
        slot.store(entry, Ordering::Relaxed);
    }

    fn set_span(&self, address: usize, span: *mut Span) {
        // SAFETY: `register` made room for the address.
        let slot = unsafe { &*self.chunks.at(address) };
        // Relaxed: the chunk was registered under its page heap's lock, which every writer has held since.
        let info = slot.load(Ordering::Relaxed);
        // SAFETY: chunk infos live for ever.
        let info = unsafe { &*info };
        // Relaxed: as for entries.
        info.spans[(address % CHUNK) >> UNIT_SHIFT].store(span, Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<AtomicPtr<ChunkInfo>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;
    use crate::os::PAGE;
    use crate::size_class::{CLASS_SLOTS, CLASSES, fills_lines};

    #[test]
    fn a_mask_leaves_the_class_of_what_the_heap_may_keep_and_more_of_all_else() {
        // Miri would need an hour for all.
        let (arenas, owners) = if cfg!(miri) { (331, 83) } else { (7, 1) };
        for arena in (1..ARENAS as u16).step_by(arenas) {
            let left_of = |entry: Entry| entry as usize & mask_of(arena);
            for class in 1..CLASS_SLOTS {
                for owner in (1..ARENAS as u16).step_by(owners) {
                    let entry = entry_of(class, owner);
                    assert_eq!((class_in(entry), arena_in(entry)), (class, owner));
                    let may_keep = owner == arena || class <= CLASSES && fills_lines(class);
                    let class_alone = class << CLASS_SHIFT;
                    assert_eq!(
                        left_of(entry) == class_alone,
                        may_keep,
                        "class {class} of {owner} by {arena}"
                    );
                    assert_eq!(left_of(entry) < CLASS_SLOTS << CLASS_SHIFT, may_keep);
                }
            }
        }
    }

    #[test]
    fn a_heap_without_an_arena_keeps_what_anybody_may() {
        for class in 1..=CLASSES {
            let left = entry_of(class, 9) as usize & NOBODYS_MASK;
            assert_eq!(left == class << CLASS_SHIFT, fills_lines(class));
        }
    }

    /// Addresses for which the unit map has an island: 4 GiB.
    const OF_AN_ISLAND: usize = 4 << 30;

    fn units() -> Units {
        os::place_tables();
        Units::new(Box::leak(Box::new(Kept::new())))
    }

    /// Registers a chunk, with an entry that tells it from others.
    fn register(units: &Units, meta: &mut Meta, start: usize, entry: Entry) -> bool {
        let infos = |count| if count == 1 { meta.record() } else { meta.array(count) };
        let done = units.register(start, CHUNK, 3, infos);
        if done {
            units.set_entry(start, entry);
        }
        done
    }

    /// What free sees of an address.
    fn entry(units: &Units, address: usize) -> Entry {
        // SAFETY: only addresses are asked for that a table without all islands must know.
        unsafe { units.entry(address) }
    }

    // Miri's machine has no places for tables.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn what_is_reserved_and_not_needed_is_let_go_once() {
        let (units, mut meta) = (units(), Meta::new());
        let start = os::window().start.next_multiple_of(OF_AN_ISLAND);
        let (foreign, later) = (start + OF_AN_ISLAND, start + 2 * OF_AN_ISLAND);
        assert!(units.establish() && register(&units, &mut meta, start, 24));
        os::set_mappings(&[0x1000..0x2000, foreign + 7 * PAGE..foreign + 8 * PAGE]);
        assert!(units.let_go(PAGE));
        let given_up = os::given_up();
        assert!(given_up > 0);
        assert!(!units.let_go(PAGE) && os::given_up() == given_up, "a second time");
        assert_eq!((entry(&units, start), entry(&units, foreign)), (24, 0));
        for address in [foreign, later, 0, 1 << 40, usize::MAX] {
            // SAFETY: any address will do.
            assert!(!unsafe { units.holds(address) } && units.neighbour(address, 3).is_none());
        }
        for (address, number) in [(foreign, 32), (later, 40)] {
            assert!(register(&units, &mut meta, address, number));
        }
        assert_eq!([start, foreign, later].map(|address| entry(&units, address)), [24, 32, 40]);
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn before_there_is_a_table_it_begins_in_islands() {
        let (units, mut meta) = (units(), Meta::new());
        let (start, foreign) = (os::window().start, os::window().end - PAGE);
        os::set_mappings(&[0x1000..0x2000, foreign..foreign + PAGE]);
        assert!(!units.let_go(PAGE), "nothing was reserved");
        assert!(register(&units, &mut meta, start, 24));
        assert_eq!((entry(&units, start), entry(&units, foreign), os::given_up()), (24, 0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn what_the_system_does_not_take_back_is_still_there() {
        let (units, mut meta) = (units(), Meta::new());
        let start = os::window().start;
        assert!(units.establish() && register(&units, &mut meta, start, 24));
        os::inject(os::Faults::From(0));
        assert!(units.let_go(PAGE));
        assert!(os::refused_calls().contains(&os::Call::GiveUp) && os::given_up() == 0);
        os::inject(os::Faults::None);
        let other = os::window().end - CHUNK;
        assert!(register(&units, &mut meta, other, 32));
        assert_eq!((entry(&units, start), entry(&units, other)), (24, 32));
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn other_threads_find_their_blocks_meanwhile() {
        let (units, mut meta) = (units(), Meta::new());
        let start = os::window().start;
        assert!(units.establish() && register(&units, &mut meta, start, 24));
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    // Relaxed: only ends the loop.
                    while done.load(Ordering::Relaxed) == 0 {
                        assert_eq!(entry(&units, start), 24);
                        // SAFETY: any address will do.
                        assert!(unsafe { units.holds(start) && !units.holds(os::window().end - PAGE) });
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(units.let_go(0));
            std::thread::sleep(std::time::Duration::from_millis(5));
            // Relaxed: as above.
            done.store(1, Ordering::Relaxed);
        });
    }
}
