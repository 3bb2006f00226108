//! A system with larger pages than ours: what gives memory back, or moves it, must leave alone what shares such a page.

use super::*;

/// Runs `test` on a system with such pages.
fn with_pages_of(bytes: usize, test: impl FnOnce(&'static Allocator, &'static Heap)) {
    os::set_page_size(bytes);
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    test(allocator, heap);
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
    allocator.reclaim(&Heap::inert());
    let left = allocator.statistics();
    assert!(left.retained < 1 << 20 && left.active == 0, "{} and {}", left.retained, left.active);
    os::set_page_size(os::PAGE);
}

#[test]
fn they_are_survived_and_come_back() {
    with_pages_of(64 << 10, |allocator, heap| {
        run(allocator, heap, 11, None);
        let block = Filled::new(allocator.allocate(heap, 1 << 20), 1 << 20, 1);
        let wall = allocator.allocate(heap, 100_000);
        // SAFETY: the block is live, and replaced by the result.
        let moved = unsafe { allocator.reallocate(heap, block.pointer(), 3 << 20, 1) }.expect("ours");
        Filled { block: moved.expose_provenance(), ..block }.free(allocator, heap);
        Filled::new(wall, 100_000, 1).free(allocator, heap);
        allocator.reclaim(heap);
        // Parts of pages at the ends of runs stay.
        let retained = allocator.statistics().retained;
        assert!(retained < 1 << 20, "{retained} bytes stay");
    });
}

#[test]
fn holes_between_live_blocks_take_none_with_them() {
    for bytes in [16 << 10, 64 << 10] {
        with_pages_of(bytes, |allocator, heap| {
            let blocks: Vec<_> =
                (0..20_000).map(|_| Filled::new(allocator.allocate(heap, 700), 700, 5)).collect();
            let (kept, freed): (Vec<_>, Vec<_>) =
                blocks.into_iter().enumerate().partition(|(index, _)| index % 20 == 0);
            freed.into_iter().for_each(|(_, block)| block.free(allocator, heap));
            allocator.trim(heap);
            (0..4).for_each(|_| _ = allocator.purge_holes());
            // Freeing a block looks at its content.
            kept.into_iter().for_each(|(_, block)| block.free(allocator, heap));
        });
    }
}

#[test]
fn blocks_that_move_leave_their_neighbours_whole() {
    for bytes in [16 << 10, 64 << 10] {
        with_pages_of(bytes, |allocator, heap| {
            let sizes = (0..12).map(|index| (600 << 10) + index * 20_000);
            let mut blocks: Vec<_> =
                sizes.map(|size| Filled::new(allocator.allocate(heap, size), size, size as u8)).collect();
            for block in &mut blocks {
                // SAFETY: the block is live, and replaced by the result.
                let moved = unsafe { allocator.reallocate(heap, block.pointer(), block.size + (1 << 20), 1) };
                block.block = moved.expect("ours").expose_provenance();
            }
            blocks.into_iter().for_each(|block| block.free(allocator, heap));
        });
    }
}
