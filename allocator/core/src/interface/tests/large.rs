//! Large blocks, as the unit map sees them: kept by the thread that frees them, resized, freed twice.

use super::*;
use crate::large_cache::LARGEST;
use crate::os::PAGE;
use crate::size_class::LINE;
use crate::units::UNKEPT;

/// A heap whose pages were all used before, so that nothing is learned from the blocks.
fn used(bytes: usize) -> (&'static Allocator, &'static Heap) {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    free(allocator, heap, allocator.allocate(heap, bytes));
    (allocator, heap)
}

fn free(allocator: &Allocator, heap: &Heap, block: *mut u8) {
    // SAFETY: the tests give up live blocks.
    assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
}

/// What the unit map says of the unit of a block that is none of the small ones.
fn large_at(allocator: &Allocator, block: *mut u8) -> usize {
    // SAFETY: ours.
    units::large_in(unsafe { allocator.units.entry(block.addr()) })
}

#[test]
fn the_unit_map_knows_where_large_blocks_begin_and_which_may_be_kept() {
    let (allocator, heap) = used(8 << 20);
    for (size, known) in [(40_000, 3), (LARGEST * UNIT, LARGEST), (LARGEST * UNIT + 1, UNKEPT)] {
        let block = allocator.allocate(heap, size);
        assert_eq!(large_at(allocator, block), known, "{size}");
        assert_eq!(large_at(allocator, block.wrapping_add(UNIT)), 0);
        free(allocator, heap, block);
        if known != UNKEPT {
            // Entries of other threads' blocks lie in the same cache line.
            assert_eq!(large_at(allocator, block), known, "it is not written where a thread keeps it");
        }
        heap.large.empty(|kept| allocator.free_run(kept));
        assert_eq!(large_at(allocator, block), 0, "{size}");
    }
    let fresh = allocator.allocate(heap, 12 << 20);
    assert_eq!(large_at(allocator, fresh), UNKEPT, "something may be learned from it");
}

#[test]
fn a_block_that_grows_moves_to_where_the_longest_block_was_that_its_thread_keeps() {
    let (allocator, heap) = used(4 << 20);
    let [growing, _behind, long, _end] =
        [100_000, 100_000, 900_000, 100_000].map(|size| allocator.allocate(heap, size));
    // Whatever else is free is used.
    while allocator.allocate(heap, 300_000).addr() < long.addr() + (4 << 20) {}
    free(allocator, heap, long);
    // SAFETY: live, and the result is used instead.
    let grow = |block, size| unsafe { allocator.reallocate(heap, block, size, 1) }.expect("ours");
    let moved = grow(growing, 300_000);
    assert!((long.addr()..long.addr() + 300_000).contains(&moved.addr()));
    assert_eq!(grow(moved, 700_000), moved);
    assert_eq!(heap.large.bytes(), 0);
}

/// Sixty-four blocks, and how far behind the beginnings of their runs they begin.
fn offsets(allocator: &Allocator, heap: &Heap, size: usize, align: usize) -> Vec<usize> {
    let blocks: Vec<_> = (0..64).map(|_| allocator.allocate_aligned(heap, size, align)).collect();
    let offset_of = |block: &*mut u8| {
        let (offset, end) = (block.addr() % UNIT, block.addr() + size);
        assert!(block.addr().is_multiple_of(align.max(LINE)), "{size} {align}");
        assert!(
            end.div_ceil(PAGE) == (end - offset).div_ceil(PAGE),
            "{size} {align}: no page more is touched"
        );
        // SAFETY: live.
        let usable = unsafe { allocator.usable_size(*block) }.expect("ours");
        assert!(usable >= size && (block.addr() + usable).is_multiple_of(UNIT), "{size} {align}");
        offset
    };
    let offsets = blocks.iter().map(offset_of).collect();
    blocks.into_iter().for_each(|block| free(allocator, heap, block));
    offsets
}

#[test]
fn large_blocks_begin_on_different_lines_where_that_costs_no_page() {
    let (allocator, heap) = used(8 << 20);
    for (size, least) in [(10 * PAGE + 1, 24), (10 * PAGE + 2048, 16), (11 * PAGE - 64, 2), (11 * PAGE, 1)] {
        // Twice: fresh ones, and some that the thread kept.
        for _ in 0..2 {
            let offsets = offsets(allocator, heap, size, 16);
            let different = offsets.iter().collect::<std::collections::BTreeSet<_>>().len();
            assert!(different >= least && offsets.iter().all(|offset| *offset < PAGE), "{size}: {offsets:?}");
        }
    }
    let long = LARGEST * UNIT;
    assert!(
        offsets(allocator, heap, long + 1, 16).iter().all(|offset| *offset == 512),
        "those that no cache keeps"
    );
    assert!(offsets(allocator, heap, long + PAGE - 64, 16).iter().all(|offset| *offset == 64));
    for align in [128, PAGE, UNIT, 4 * UNIT] {
        assert!(offsets(allocator, heap, 10 * PAGE + 1, align).iter().all(|offset| *offset == 0), "{align}");
    }
}

#[test]
fn a_block_is_kept_with_the_size_that_it_was_resized_to() {
    let (allocator, heap) = used(8 << 20);
    let block = allocator.allocate(heap, 10 * UNIT);
    for units in [4, 9] {
        // SAFETY: the block is live, and used as the result only.
        let resized = unsafe { allocator.reallocate(heap, block, units * UNIT, 1) };
        assert_eq!((resized, large_at(allocator, block)), (Ok(block), units));
        free(allocator, heap, block);
        let other = allocator.allocate(heap, 10 * UNIT);
        assert_ne!(other, block, "{units} units are too few");
        assert_eq!(allocator.allocate(heap, units * UNIT), block);
        free(allocator, heap, other);
        heap.large.empty(|kept| allocator.free_run(kept));
    }
}

#[test]
fn a_block_keeps_its_units_until_it_needs_more_or_fewer() {
    let (allocator, heap) = used(8 << 20);
    let block = allocator.allocate(heap, 5 * UNIT - PAGE);
    // SAFETY: live.
    let size = || unsafe { allocator.usable_size(block) }.expect("ours");
    // SAFETY: live, and used as the result only.
    let resize = |size| assert_eq!(unsafe { allocator.reallocate(heap, block, size, 1) }, Ok(block));
    let most = size();
    for (asked, units) in
        [(most, 5), (most - UNIT + 1, 5), (most - UNIT, 4), (most - UNIT + 1, 5), (most + 1, 6)]
    {
        resize(asked);
        assert_eq!((large_at(allocator, block), size()), (units, most + units * UNIT - 5 * UNIT), "{asked}");
    }
    free(allocator, heap, block);
}

#[test]
fn where_a_block_was_that_moved_none_is_live() {
    let (allocator, heap) = used(8 << 20);
    let block = allocator.allocate(heap, 1 << 20);
    let wall = allocator.allocate(heap, 40_000);
    // SAFETY: the block is live, and the result is used instead.
    let moved = unsafe { allocator.reallocate(heap, block, 2 << 20, 1) }.expect("ours");
    assert_ne!(moved, block);
    assert_eq!((large_at(allocator, block), large_at(allocator, moved)), (0, UNKEPT));
    free(allocator, heap, wall);
    free(allocator, heap, moved);
}

#[test]
#[should_panic(expected = "free already")]
fn a_second_free_of_a_block_that_is_kept_ends_the_process() {
    let (allocator, heap) = used(8 << 20);
    let block = allocator.allocate(heap, 40_000);
    free(allocator, heap, block);
    free(allocator, heap, block);
}

#[test]
#[should_panic(expected = "malloc did not return")]
fn a_pointer_into_a_block_ends_the_process() {
    let (allocator, heap) = used(8 << 20);
    let block = allocator.allocate(heap, 40_000);
    free(allocator, heap, block.wrapping_add(64));
}

#[test]
fn the_caches_of_retired_heaps_are_used_again() {
    let allocator = allocator();
    let mut mapped = Vec::new();
    for _ in 0..if cfg!(miri) { 3 } else { 100 } {
        let heaps: Vec<_> = (0..20).map(|_| allocator.attach().expect("memory")).collect();
        for heap in heaps {
            free(allocator, heap, allocator.allocate(heap, 40_000));
            assert!(heap.large.is_open());
            // SAFETY: the heap was attached here, and is not used any more.
            unsafe { allocator.detach(heap) };
        }
        allocator.retire_warm();
        mapped.push(allocator.meta.lock().mapped());
    }
    assert_eq!(mapped.first(), mapped.last());
}
