//! Small blocks that grow by realloc and become large ones.

use super::*;
use crate::growing::{FROM, PLACES};
use crate::size_class::SMALL_MAX;
use crate::units::UNIT;

const STEP: usize = 4 << 10;

fn resize(allocator: &Allocator, heap: &Heap, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the tests resize live blocks.
    let new = unsafe { allocator.reallocate(heap, block, size, 16) }.expect("ours");
    assert!(!new.is_null());
    new
}

fn free(allocator: &Allocator, heap: &Heap, block: *mut u8) {
    // SAFETY: the tests give up live blocks.
    assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
}

fn is_large(allocator: &Allocator, block: *mut u8) -> bool {
    // SAFETY: ours.
    !units::is_small(unsafe { allocator.units.entry(block.addr()) })
}

/// A block that has grown from a small one to `size`.
fn grown(allocator: &Allocator, heap: &Heap, size: usize) -> *mut u8 {
    resize(allocator, heap, allocator.allocate(heap, FROM), size)
}

#[test]
fn a_buffer_that_grows_by_pages_is_copied_twice() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    for _ in 0..3 {
        let (mut block, mut moves, mut size) = (allocator.allocate(heap, STEP), 0, STEP);
        // SAFETY: a live block of that size.
        unsafe { block.write_bytes(7, size) };
        while size < SMALL_MAX + STEP {
            let new = resize(allocator, heap, block, size + STEP);
            moves += usize::from(new != block);
            // SAFETY: a live block of that size.
            unsafe { new.add(size).write_bytes(7, STEP) };
            (block, size) = (new, size + STEP);
        }
        assert!(moves <= 2, "{moves}");
        // SAFETY: a live block of that size, written above.
        assert!(unsafe { core::slice::from_raw_parts(block, size) }.iter().all(|&byte| byte == 7));
        free(allocator, heap, block);
    }
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn a_heap_has_a_few_such_blocks_at_a_time() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let mut blocks: Vec<_> = (0..2 * PLACES).map(|_| grown(allocator, heap, FROM + STEP)).collect();
    let large = |blocks: &[*mut u8]| blocks.iter().filter(|block| is_large(allocator, **block)).count();
    assert_eq!(large(&blocks), PLACES);
    // One that went on growing leaves its place to another, and so does one that was freed.
    blocks[0] = resize(allocator, heap, blocks[0], 6 * UNIT);
    free(allocator, heap, blocks.remove(1));
    let more = [(); 3].map(|()| grown(allocator, heap, FROM + STEP));
    assert_eq!(large(&more), 2);
    blocks.into_iter().chain(more).for_each(|block| free(allocator, heap, block));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn what_grows_stays_large_while_it_may_go_on_and_becomes_small_again_when_it_shrinks() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let block = grown(allocator, heap, FROM + STEP);
    let same = [FROM + STEP / 2, SMALL_MAX, FROM + 1].map(|size| resize(allocator, heap, block, size));
    assert_eq!(same, [block; 3]);
    let small = resize(allocator, heap, block, FROM);
    assert!(!is_large(allocator, small));
    free(allocator, heap, small);
    // One that was large from the beginning gives its pages back, also where one that grew was.
    for size in [SMALL_MAX + 1, 9 * UNIT] {
        heap.large.empty(|kept| allocator.free_run(kept));
        let first = allocator.allocate(heap, size);
        let second = allocator.allocate(heap, size);
        let shrunk = resize(allocator, heap, second, FROM + STEP);
        assert!(!is_large(allocator, shrunk));
        [first, shrunk].into_iter().for_each(|block| free(allocator, heap, block));
    }
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn blocks_of_threads_without_a_heap_stay_small() {
    let (allocator, inert) = (allocator(), Heap::inert());
    let block = grown(allocator, &inert, FROM + STEP);
    assert!(!is_large(allocator, block));
    free(allocator, &inert, block);
}

#[test]
fn a_small_block_that_grows_little_by_little_is_copied_a_few_times() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let (mut block, mut moves) = (allocator.allocate(heap, 16), 0);
    // SAFETY: a live block of that size.
    unsafe { block.write_bytes(7, 16) };
    for size in 17..=FROM {
        let new = resize(allocator, heap, block, size);
        moves += u32::from(new != block);
        // SAFETY: a live block of that size.
        unsafe { new.add(size - 1).write(7) };
        block = new;
    }
    // SAFETY: a live block of that size, written above.
    assert!(unsafe { core::slice::from_raw_parts(block, FROM) }.iter().all(|&byte| byte == 7));
    let doublings = (FROM / 16).ilog2();
    assert!(moves <= 4 * doublings, "{moves} moves in {doublings} doublings");
    // Little of it is room, and none where it shrinks.
    // SAFETY: ours.
    let usable = |block| unsafe { allocator.usable_size(block) }.expect("ours");
    assert!(usable(block) <= FROM + FROM / 4);
    let block = resize(allocator, heap, block, 1000);
    assert!(usable(block) == usable(allocator.allocate(heap, 1000)));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}
