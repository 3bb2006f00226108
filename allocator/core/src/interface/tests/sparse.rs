//! Large blocks of which the program touches little: threads keep many of them, and grant a part of long ones.

use super::*;

const MIB: usize = 1 << 20;

/// A heap of a program that touches `touched` bytes of its blocks, as those before it told when they were freed.
fn learned(touched: usize) -> (&'static Allocator, &'static Heap) {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let blocks: Vec<_> = (0..4).map(|_| touch(allocator.allocate(heap, 2 * MIB), touched)).collect();
    blocks.into_iter().for_each(|block| free(allocator, heap, block));
    (allocator, heap)
}

fn touch(block: *mut u8, bytes: usize) -> *mut u8 {
    // SAFETY: a live block of more bytes.
    unsafe { block.write_bytes(1, bytes) };
    block
}

fn free(allocator: &Allocator, heap: &Heap, block: *mut u8) {
    // SAFETY: the tests give up live blocks.
    assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
}

fn usable(allocator: &Allocator, block: *mut u8) -> usize {
    // SAFETY: the tests ask for live blocks.
    unsafe { allocator.usable_size(block) }.expect("ours")
}

fn resize(allocator: &Allocator, heap: &Heap, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the block is live, and the result is used instead.
    unsafe { allocator.reallocate(heap, block, size, 1) }.expect("ours")
}

#[test]
fn a_thread_gets_blocks_again_of_which_little_is_touched() {
    let (allocator, heap) = learned(100);
    heap.large.empty(|kept| allocator.free_run(kept));
    let sizes = [100_000, 300_000, 700_000, 2 * MIB, 3 * MIB, 3 * MIB, 7 * MIB];
    let allocate = || sizes.map(|size| touch(allocator.allocate(heap, size), 100));
    // Once before: while the program grows, nothing is kept.
    allocate().into_iter().for_each(|block| free(allocator, heap, block));
    let first = allocate();
    first.into_iter().for_each(|block| free(allocator, heap, block));
    let mapped = allocator.statistics().large_blocks;
    let mut again = allocate();
    assert_eq!(allocator.statistics().large_blocks, mapped, "the page heap was not asked");
    let mut first = first;
    first.sort_unstable();
    again.sort_unstable();
    assert_eq!(first, again);
}

#[test]
fn a_program_whose_blocks_grow_by_copies_fills_them() {
    let (allocator, heap) = learned(100);
    // Side by side, so that no block can grow where it is; and too short for their pages to be moved.
    let mut blocks: [_; 8] = std::array::from_fn(|_| touch(allocator.allocate(heap, 100_000), 100));
    assert!(allocator.sparse_bound() > 0);
    let mut copied = 0;
    for block in &mut blocks {
        let before = block.addr();
        *block = resize(allocator, heap, *block, 200_000);
        copied += usize::from(block.addr() != before);
    }
    assert!(copied >= 2 && allocator.sparse_bound() == 0, "{copied}");
    blocks.into_iter().for_each(|block| free(allocator, heap, block));
}

#[test]
fn a_program_that_fills_its_blocks_keeps_none_beyond_the_usual() {
    let (allocator, heap) = learned(2 * MIB);
    (0..8).for_each(|_| free(allocator, heap, touch(allocator.allocate(heap, 3 * MIB), 3 * MIB)));
    assert_eq!(heap.large.sparse_bytes(), 0);
    // Nor does it get more than it asks for.
    assert!(usable(allocator, allocator.allocate(heap, 17 * UNIT)) <= 17 * UNIT);
}

#[test]
fn less_is_kept_where_half_is_touched_than_where_hardly_anything_is() {
    let kept = [100, MIB - 10_000].map(|touched| {
        let (allocator, heap) = learned(touched);
        let blocks: Vec<_> = (0..64).map(|_| touch(allocator.allocate(heap, 2 * MIB), touched)).collect();
        blocks.into_iter().for_each(|block| free(allocator, heap, block));
        heap.large.sparse_bytes()
    });
    assert!(kept[1] >= 4 * MIB && kept[0] >= 3 * kept[1], "{kept:?}");
}

#[test]
fn a_long_block_that_serves_for_less_tells_no_more_than_others_would() {
    let (allocator, heap) = learned(100);
    let long = allocator.allocate(heap, 7 * MIB);
    free(allocator, heap, long);
    let sizes = [4 * MIB, 2 * MIB, MIB + 1];
    let block = sizes.iter().map(|&size| allocator.allocate(heap, size)).last().expect("three");
    let bytes = usable(allocator, block);
    assert!(bytes > MIB && bytes <= 5 * MIB / 4, "{bytes}");
}

/// A run whose length is none of a class, between blocks that stay: it was made before the program touched little.
#[test]
fn a_block_that_its_run_has_room_for_stays_there_whatever_the_length_of_its_class() {
    for freed_between in [true, false] {
        let allocator = allocator();
        let heap = allocator.attach().expect("memory");
        let [mut block, beside] =
            [70, 40].map(|units| touch(allocator.allocate(heap, units * UNIT - 4096), 100));
        touch(beside, 40 * UNIT - 4096);
        let blocks: Vec<_> = (0..4).map(|_| touch(allocator.allocate(heap, 2 * MIB), 100)).collect();
        blocks.into_iter().for_each(|block| free(allocator, heap, block));
        heap.large.empty(|kept| allocator.free_run(kept));
        if freed_between {
            free(allocator, heap, block);
            let part = touch(allocator.allocate(heap, 60 * UNIT), 60 * UNIT);
            assert_eq!(part.addr() / UNIT, block.addr() / UNIT, "a part of the run is granted");
            block = part;
        }
        assert!(allocator.sparse_bound() > 0);
        // The class after 64 units has 80.
        let resized = resize(allocator, heap, block, 69 * UNIT - 8192);
        assert_eq!(resized, block);
        assert!(usable(allocator, block) >= 69 * UNIT - 8192);
        // SAFETY: a live block of so many bytes, all of which were written.
        let content = unsafe { std::slice::from_raw_parts(beside, 40 * UNIT - 4096) };
        assert!(content.iter().all(|&byte| byte == 1));
        free(allocator, heap, block);
        free(allocator, heap, beside);
    }
}

#[test]
fn a_block_of_which_a_part_is_granted_grows_where_it_is_and_serves_whole_again() {
    let (allocator, heap) = learned(100);
    heap.large.empty(|kept| allocator.free_run(kept));
    let long = allocator.allocate(heap, 7 * MIB);
    let whole = usable(allocator, long);
    free(allocator, heap, long);
    let mut block = touch(allocator.allocate(heap, 600_000), 100);
    assert_eq!(block.addr() / UNIT, long.addr() / UNIT, "the only one there is");
    for size in [600_000, 2 * MIB, 6 * MIB, MIB] {
        let (addr, before) = (block.addr(), usable(allocator, block));
        block = resize(allocator, heap, block, size);
        let after = usable(allocator, block);
        assert_eq!(block.addr(), addr, "{size}");
        assert!(after >= size && (after < size * 3 / 2 || after == before), "{size}: {after}");
    }
    free(allocator, heap, block);
    let again = allocator.allocate(heap, 7 * MIB);
    assert_eq!(again.addr() / UNIT, long.addr() / UNIT);
    free(allocator, heap, again);
    // Beyond its run, with all that is in it.
    let mut block = touch(allocator.allocate(heap, 600_000), 600_000);
    assert!(usable(allocator, block) < MIB);
    for size in [7 * MIB + MIB / 2, 30 * MIB] {
        block = resize(allocator, heap, block, size);
        assert!(usable(allocator, block) >= size);
        // SAFETY: a live block of more bytes, of which so many were written.
        assert!(unsafe { std::slice::from_raw_parts(block, 600_000) }.iter().all(|&byte| byte == 1));
    }
    free(allocator, heap, block);
    let again = allocator.allocate(heap, 7 * MIB);
    assert!(usable(allocator, again).abs_diff(whole) < UNIT);
}

#[test]
#[should_panic(expected = "free already")]
fn a_second_free_of_such_a_block_ends_the_process() {
    let (allocator, heap) = learned(100);
    let block = allocator.allocate(heap, 3 * MIB);
    free(allocator, heap, block);
    free(allocator, heap, block);
}

#[test]
fn blocks_that_are_found_filled_go_back() {
    let (allocator, heap) = learned(100);
    let block = touch(allocator.allocate(heap, 3 * MIB), 3 * MIB);
    free(allocator, heap, block);
    assert!(heap.large.sparse_bytes() >= 3 * MIB);
    for _ in 0..4 {
        // It is used all the time, and looked at each time.
        let block = allocator.allocate(heap, 3 * MIB);
        free(allocator, heap, touch(block, 3 * MIB));
        heap.trimmed_ms.set(os::now_ms().wrapping_sub(10_000));
        allocator.trim_by_clock(heap);
    }
    assert_eq!((heap.large.sparse_bytes(), allocator.sparse_bound()), (0, 0));
}

#[test]
fn what_lies_unused_goes_back() {
    let (allocator, heap) = learned(100);
    let blocks = [(); 4].map(|()| allocator.allocate(heap, 3 * MIB));
    blocks.into_iter().for_each(|block| free(allocator, heap, block));
    for _ in 0..3 {
        heap.trimmed_ms.set(os::now_ms().wrapping_sub(10_000));
        allocator.trim_by_clock(heap);
    }
    assert_eq!(heap.large.sparse_bytes(), 0);
}

#[test]
fn blocks_that_come_back_again_and_again_begin_on_different_lines() {
    let (allocator, heap) = learned(100);
    let mut random = Random(1);
    let mut allocate = || -> Vec<_> {
        let sizes = (0..128).map(|_| 200_000 + random.below(100_000));
        sizes.map(|size| (allocator.allocate(heap, size), size.wrapping_neg() % os::PAGE)).collect()
    };
    for _ in 0..50 {
        allocate().into_iter().for_each(|(block, _)| free(allocator, heap, block));
    }
    let places = allocate();
    // On the lines of a power of two, as many as they may begin on.
    let half = |slack: usize| (1 << (slack + LINE).ilog2()) / 2;
    let behind = places.iter().filter(|(block, slack)| block.addr() % os::PAGE >= half(*slack)).count();
    assert!((40..=80).contains(&behind), "{behind} of 128 in the second half of where they may begin");
}
