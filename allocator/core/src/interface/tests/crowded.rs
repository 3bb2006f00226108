//! More threads than processors: what waits is not to keep memory that nobody can use meanwhile.

use core::iter;

use super::*;
use crate::heap::FIRST_WANTED;
use crate::large_cache;
use crate::os;
use crate::size_class::{self, CLASSES, ClassInfo};
use crate::threads::ARENAS_PER_PROCESSOR;
use crate::units::{self, UNIT};

/// Of a class that does not fill lines, and of two that do, one of them long; none begins with blocks of the starter for long.
const SIZES: [usize; 3] = [48, 256, 4096];
/// Blocks of each size in each heap.
const BLOCKS: usize = if cfg!(miri) { 12 } else { 64 };

fn attach(allocator: &'static Allocator, count: usize) -> Vec<&'static Heap> {
    (0..count).map(|_| allocator.attach().expect("memory")).collect()
}

fn detach(allocator: &Allocator, heaps: Vec<&'static Heap>) {
    for heap in heaps {
        // SAFETY: the heap came from `attach`, and is used no more.
        unsafe { allocator.detach(heap) };
    }
}

#[test]
fn long_blocks_that_fill_lines_come_from_as_many_arenas_as_there_are_processors() {
    let allocator = allocator();
    let heaps = attach(allocator, 3 * os::processors());
    let load = |heap, size| -> Vec<_> {
        (0..BLOCKS).map(|index| Filled::new(allocator.allocate(heap, size), size, index as u8)).collect()
    };
    for (size, arenas) in SIZES.into_iter().zip([heaps.len(), heaps.len(), os::processors()]) {
        let blocks: Vec<_> = heaps.iter().map(|heap| load(heap, size)).collect();
        let owner = |blocks: &Vec<Filled>| {
            let newest = blocks.last().expect("there are some").block;
            // SAFETY: a live block.
            units::arena_in(unsafe { allocator.units.entry(newest) })
        };
        let owners: std::collections::BTreeSet<_> = blocks.iter().map(owner).collect();
        assert_eq!(owners.len(), arenas, "blocks of {size} bytes");
        for (heap, blocks) in heaps.iter().rev().zip(blocks) {
            blocks.into_iter().for_each(|block| block.free(allocator, heap));
        }
    }
    detach(allocator, heaps);
    allocator.reclaim(&Heap::inert());
    assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
}

#[test]
fn as_many_heaps_of_ended_threads_stay_warm_as_there_are_processors() {
    let allocator = allocator();
    detach(allocator, attach(allocator, 3 * os::processors()));
    assert_eq!(allocator.registry.lock().heaps().count(), os::processors());
}

#[test]
fn the_more_threads_the_fewer_freed_large_blocks_each_keeps() {
    let allocator = allocator();
    let mut heaps = attach(allocator, 1);
    let keep = |heap: &Heap| {
        // Of blocks of which little is touched it would be more.
        let filled = |byte| Filled::new(allocator.allocate(heap, 256 << 10), 256 << 10, byte);
        let blocks: Vec<_> = (1..=8).map(filled).collect();
        blocks.into_iter().for_each(|block| block.free(allocator, heap));
        heap.large.bytes()
    };
    assert_eq!(keep(heaps[0]), large_cache::LARGEST * UNIT);
    heaps.extend(attach(allocator, 8 * os::processors() - 1));
    assert_eq!(keep(heaps[0]), 512 << 10, "4 MiB for each processor");
    heaps.extend(attach(allocator, 12 * os::processors()));
    assert_eq!(keep(heaps[1]), 0, "4 MiB by twenty");
    detach(allocator, heaps);
}

#[test]
fn heaps_share_arenas_beyond_eight_for_each_processor() {
    let allocator = allocator();
    let most = ARENAS_PER_PROCESSOR * os::processors();
    let heaps = attach(allocator, 2 * most);
    let mut users = std::collections::BTreeMap::new();
    for heap in &heaps {
        *users.entry(heap.arena().expect("settled").index).or_insert(0) += 1;
    }
    assert_eq!(users.len(), most);
    assert!(users.values().all(|&users| users == 2), "{users:?}");
    detach(allocator, heaps);
    let again = attach(allocator, most);
    let arenas: std::collections::BTreeSet<_> =
        again.iter().filter_map(|heap| heap.arena()).map(|arena| arena.index).collect();
    assert!(
        arenas.len() > most / 2,
        "whoever begins when others have ended has an arena to itself, but for warm heaps"
    );
    detach(allocator, again);
}

#[test]
fn heaps_have_as_many_arenas_as_were_asked_for() {
    let allocator = allocator();
    assert!(allocator.options.set(Name::Arenas, 3));
    let heaps = attach(allocator, 7);
    let mut users = [0; 8];
    for heap in &heaps {
        let arena = heap.arena().expect("settled");
        users[usize::from(arena.index)] += 1;
        let pool = heap.source(CLASSES).expect("settled");
        assert!(allocator.existing_arenas().any(|other| core::ptr::eq(other, pool)));
    }
    users.sort_unstable();
    assert_eq!(users, [0, 0, 0, 0, 0, 2, 2, 3]);
    detach(allocator, heaps);
}

#[test]
fn a_thread_of_a_crowd_has_no_magazine_of_a_class_that_it_uses_little() {
    let allocator = allocator();
    let heaps = attach(allocator, 5 * os::processors());
    let (first, second) = (heaps[0], heaps[1]);
    for size in SIZES {
        let class = size_class::class_of(size).expect("a small size");
        let has_magazine = |heap: &Heap| {
            let bin = &heap.bins[class];
            !bin.loaded.get().is_null() || !bin.outgoing.get().is_null()
        };
        let allowed = if size <= 2 << 10 { 96 } else { 8 };
        let blocks: Vec<_> = (0..allowed)
            .map(|index| Filled::new(allocator.allocate(first, size), size, index as u8))
            .collect();
        let live = allocator.statistics().classes[class - 1].live;
        assert!(!has_magazine(first) && live == allowed, "{size} bytes: one by one from the spans");
        let more = Filled::new(allocator.allocate(first, size), size, 1);
        assert!(has_magazine(first), "{size} bytes: used much");
        // Another thread gives them back.
        blocks.into_iter().for_each(|block| block.free(allocator, second));
        assert!(!has_magazine(second), "{size} bytes: one by one to the spans");
        more.free(allocator, second);
        assert!(has_magazine(second), "{size} bytes: freed much");
    }
    detach(allocator, heaps);
}

#[test]
#[cfg(not(miri))]
fn a_thread_of_a_crowd_stores_no_long_blocks_that_it_uses_rarely() {
    // Blocks that a thread stores of a class, before and after it has used others for long.
    let stored = |heaps| {
        let allocator = allocator();
        let heaps = attach(allocator, heaps);
        let heap = heaps[0];
        let bin = &heap.bins[size_class::class_of(4096).expect("a small size")];
        let blocks = |count, size| -> Vec<_> {
            (0..count).map(|index| Filled::new(allocator.allocate(heap, size), size, index as u8)).collect()
        };
        let free = |block: Filled| block.free(allocator, heap);
        let mut long = blocks(300, 4096);
        long.drain(100..).for_each(free);
        let before = bin.cached_blocks();
        blocks(20_000, 48).into_iter().for_each(free);
        let events = heap.events();
        while heap.events() == events {
            free(long.pop().expect("soon there is no room in the loaded magazine"));
        }
        let after = bin.cached_blocks();
        long.into_iter().for_each(free);
        detach(allocator, heaps);
        [before, after].map(|blocks| blocks > 0)
    };
    assert_eq!(stored(4 * os::processors()), [true, true]);
    assert_eq!(stored(4 * os::processors() + 1), [true, false]);
}

#[test]
#[cfg(not(miri))]
fn where_some_threads_wait_a_heap_keeps_bulky_blocks_only_as_long_as_it_uses_them_steadily() {
    const SIZE: usize = 10_000;
    let class = size_class::class_of(SIZE).expect("a small size");
    // What a heap holds, in magazines and beside them, after its thread has replaced blocks, at first quickly and then with so many microseconds
    // between two looks at the clock.
    let kept = |heaps, us| {
        let allocator = allocator();
        let heaps = attach(allocator, heaps);
        let (heap, bin) = (heaps[0], &heaps[0].bins[class]);
        let replace = |rounds, count| {
            for index in 0..rounds {
                let blocks: Vec<_> =
                    (0..count).map(|_| Filled::new(allocator.allocate(heap, SIZE), SIZE, index)).collect();
                blocks.into_iter().for_each(|block| block.free(allocator, heap));
            }
        };
        os::work_us(0);
        replace(8, 60);
        assert!(!bin.loaded.get().is_null() && bin.cached_blocks() > 0, "used steadily");
        os::work_us(us);
        replace(20, 60);
        let live = allocator.statistics().classes[class - 1].live;
        let found = (!bin.loaded.get().is_null(), bin.cached_blocks() > 0, live > 0);
        os::work_us(0);
        replace(8, 60);
        assert!(!bin.loaded.get().is_null(), "used steadily again");
        detach(allocator, heaps);
        allocator.reclaim(&Heap::inert());
        assert_eq!(kept_bytes(allocator), 0, "everything was freed");
        found
    };
    let few = 2 * os::processors();
    assert_eq!(kept(few, 1000), (true, true, true));
    assert_eq!(kept(few + 1, 1000), (false, false, false));
    assert_eq!(kept(few + 1, 32), (true, true, true));
}

#[test]
#[cfg(not(miri))]
fn what_others_free_waits_for_no_thread_of_a_crowd() {
    let waiting = |heaps| {
        let allocator = allocator();
        let heaps = attach(allocator, heaps);
        let blocks: Vec<_> =
            (0..3000).map(|index| Filled::new(allocator.allocate(heaps[0], 48), 48, index as u8)).collect();
        blocks.into_iter().for_each(|block| block.free(allocator, heaps[1]));
        let inbox = heaps[0].arena().expect("settled").inbox.take_all();
        let waiting = !inbox.is_null();
        allocator.flush_linked(inbox);
        detach(allocator, heaps);
        waiting
    };
    assert!(waiting(4 * os::processors()) && !waiting(4 * os::processors() + 1));
}

#[test]
#[cfg(not(miri))]
fn magazines_grow_no_more_than_a_part_of_the_program_allows() {
    let allocator = allocator();
    let mut heaps = attach(allocator, 1);
    // What the magazines of a heap have grown by when it uses each class much; without the starter.
    let grown = |heap: &Heap| {
        let blocks: Vec<_> = (1..=CLASSES)
            .flat_map(|class| iter::repeat_n(size_class::of(class).size as usize, 300))
            .map(|size| allocator.allocate(heap, size))
            .collect();
        let found = (heap.grown.get(), allocator.budget.magazines(allocator.shared.small()));
        for block in blocks {
            // SAFETY: live, and given up here.
            assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
        }
        found
    };
    let most = |info: &ClassInfo| info.bytes_beyond(info.magazine_most);
    let first = |info: &ClassInfo| info.bytes_beyond(FIRST_WANTED.min(info.magazine_most));
    let all: usize = (1..=CLASSES).map(size_class::of).map(|info| most(info) - first(info)).sum();
    let (alone, may) = grown(heaps[0]);
    assert!((1 << 20..=may).contains(&alone) && alone < all / 2, "{alone} of {may}; {all}");
    heaps.extend(attach(allocator, 8 * os::processors()));
    let (crowded, may) = grown(heaps[heaps.len() - 1]);
    assert!((may / 2..=may).contains(&crowded) && may < all / 2, "{crowded} of {may}; {all}");
    (0..8).for_each(|_| (1..=CLASSES).for_each(|class| heaps[0].want_less(class)));
    assert_eq!(heaps[0].grown.get(), 0, "with time all of it comes back");
    detach(allocator, heaps);
}

#[test]
#[cfg(not(miri))]
fn threads_keep_little_of_each_others_blocks_and_more_of_their_own() {
    let class = size_class::class_of(1024).expect("a small size");
    for count in [2, 3 * os::processors()] {
        let allocator = allocator();
        let heaps = attach(allocator, count);
        // What `by` has in its private depot, in bytes, after it freed some megabytes that `from` allocated, and of which it has use for any number.
        let kept = |from: &Heap, by: &Heap| {
            by.bins[class].allowed.set(u16::MAX);
            let blocks: Vec<_> = (0..2500).map(|_| allocator.allocate(from, 1024)).collect();
            for block in blocks {
                // SAFETY: live, and given up here.
                assert_eq!(unsafe { allocator.free(by, block) }, Ok(()));
            }
            by.depot_bytes.get()
        };
        let (strange, own) = (kept(heaps[0], heaps[1]), kept(heaps[0], heaps[0]));
        let most = allocator.budget.strange(allocator.shared.small());
        assert!((most / 2..=most).contains(&strange), "{count} heaps: {strange} of {most}");
        assert!(own > most && own <= allocator.budget.depot(), "{count} heaps: {own} of {most}");
        detach(allocator, heaps);
    }
}
