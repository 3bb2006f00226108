//! Spans that change their owner, and blocks that are lent: one thread loads a program's data, others replace it.

use super::*;
use crate::units;

/// Of a class that does not fill lines.
const SIZE: usize = 48;
/// Of one that does.
const FILLING: usize = 4096;
/// Blocks that are loaded.
const LOADED: usize = if cfg!(miri) { 600 } else { 100_000 };
/// Blocks that a thread has to itself at a time.
const PART: usize = LOADED / 10;

fn load(allocator: &Allocator, heap: &Heap) -> Vec<Filled> {
    (0..LOADED).map(|index| Filled::new(allocator.allocate(heap, SIZE), SIZE, index as u8)).collect()
}

/// Replaces a block at random, `times` times.
fn replace(allocator: &Allocator, heap: &Heap, blocks: &mut [Filled], times: usize, random: &mut Random) {
    for _ in 0..times {
        let slot = &mut blocks[random.below(blocks.len())];
        let fresh = Filled::new(allocator.allocate(heap, SIZE), SIZE, random.below(256) as u8);
        std::mem::replace(slot, fresh).free(allocator, heap);
    }
}

/// How many of the blocks are this heap's arena's.
fn owned(allocator: &Allocator, heap: &Heap, blocks: &[Filled]) -> usize {
    // SAFETY: the blocks are live.
    let entries = blocks.iter().map(|block| unsafe { allocator.units.entry(block.block) });
    let arena = heap.arena().expect("attached").index;
    entries.filter(|&entry| units::arena_in(entry) == arena).count()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn what_one_thread_loaded_another_replaces_in_the_same_memory() {
    // Whether somebody else takes a block there now and then.
    for busy in [false, true] {
        let allocator = allocator();
        let (loader, worker) = (allocator.attach().expect("memory"), allocator.attach().expect("memory"));
        let mut blocks = load(allocator, loader);
        let (before, mut most) = (allocator.tables.pages.statistics().active, 0);
        let mut random = Random(11);
        let mut others = Vec::new();
        for _ in 0..200 {
            replace(allocator, worker, &mut blocks, LOADED / 100, &mut random);
            most = most.max(allocator.tables.pages.statistics().active);
            let refills = if busy { 200 } else { 0 };
            others.extend((0..refills).map(|_| Filled::new(allocator.allocate(loader, 112), 112, 5)));
        }
        let adopted = owned(allocator, worker, &blocks);
        let left = owned(allocator, loader, &blocks);
        assert_eq!(adopted + left, LOADED);
        if busy {
            assert!(left > LOADED / 20, "whoever takes blocks keeps the spans: {left}");
        } else {
            assert!(left < LOADED / 10, "{left} are the loader's still");
            assert!(most < before * 3 / 2, "{before} bytes became {most}");
        }
        blocks.into_iter().chain(others).enumerate().for_each(|(index, block)| {
            block.free(allocator, [loader, worker][index % 2]);
        });
        // SAFETY: the heaps are used no more.
        unsafe {
            allocator.detach(loader);
            allocator.detach(worker);
        }
        assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
    }
}

#[test]
fn threads_that_replace_each_others_blocks_adopt_spans_at_the_same_time() {
    let allocator = allocator();
    let loader = allocator.attach().expect("memory");
    let exchange = Mutex::new(VecDeque::from_iter(load(allocator, loader)));
    std::thread::scope(|scope| {
        for seed in 1..4 {
            let exchange = &exchange;
            scope.spawn(move || {
                let (heap, mut random) = (allocator.attach().expect("memory"), Random(seed));
                for _ in 0..if cfg!(miri) { 4 } else { 200 } {
                    let mut mine: Vec<_> = {
                        let mut all = exchange.lock().expect("no panic");
                        let taken = all.len().min(PART);
                        all.drain(..taken).collect()
                    };
                    replace(allocator, heap, &mut mine, PART, &mut random);
                    // A thread without a heap frees one by one.
                    let one = Filled::new(allocator.allocate(heap, SIZE), SIZE, 1);
                    mine.push(one);
                    mine.swap_remove(random.below(mine.len())).free(allocator, &Heap::inert());
                    exchange.lock().expect("no panic").extend(mine);
                }
                // SAFETY: the heap is used no more.
                unsafe { allocator.detach(heap) };
            });
        }
    });
    let blocks = exchange.into_inner().expect("no panic");
    assert_eq!(blocks.len(), LOADED);
    blocks.into_iter().for_each(|block| block.free(allocator, loader));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(loader) };
    assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
}

/// Loads two heaps with blocks of a size, frees seven of eight of the first one's, and loads the second with more. By how many bytes the program grew then, and how many of those blocks the second
/// heap has from the first one's arena.
fn load_after_free(
    allocator: &'static Allocator,
    [first, second]: [&'static Heap; 2],
    freed_by: &'static Heap,
    size: usize,
) -> (usize, usize) {
    let load = |heap| -> Vec<_> {
        (0..1000).map(|index| Filled::new(allocator.allocate(heap, size), size, index as u8)).collect()
    };
    let free = |heap, blocks: Vec<Filled>| blocks.into_iter().for_each(|block| block.free(allocator, heap));
    let own = load(second);
    // One of eight stays, lest spans become empty.
    let (kept, freed): (Vec<_>, Vec<_>) = (0..).zip(load(first)).partition(|(index, _)| index % 8 == 0);
    free(freed_by, freed.into_iter().map(|(_, block)| block).collect());
    let before = allocator.tables.pages.statistics().active;
    let more = load(second);
    let grown = allocator.tables.pages.statistics().active - before;
    let borrowed = owned(allocator, first, &more);
    free(first, kept.into_iter().map(|(_, block)| block).collect());
    [own, more].into_iter().for_each(|blocks| free(second, blocks));
    (grown, borrowed)
}

#[test]
fn an_arena_borrows_what_others_gave_back_to_another_before_it_grows() {
    for (size, lent) in [(FILLING, true), (SIZE, false)] {
        let allocator = allocator();
        let heaps: [_; 3] = core::array::from_fn(|_| allocator.attach().expect("memory"));
        let (grown, borrowed) = load_after_free(allocator, [heaps[0], heaps[1]], heaps[2], size);
        let bytes = 1000 * size;
        assert_eq!(grown < bytes / 4, lent, "{grown} bytes more for {bytes} of {size} each");
        assert_eq!(borrowed > 500, lent, "{borrowed} of {size} bytes");
        for heap in heaps {
            // SAFETY: the heap is used no more.
            unsafe { allocator.detach(heap) };
        }
        assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
    }
}

#[test]
fn what_a_thread_gave_back_of_its_own_it_has_for_itself() {
    let allocator = allocator();
    let heaps: [_; 2] = core::array::from_fn(|_| allocator.attach().expect("memory"));
    let (grown, borrowed) = load_after_free(allocator, heaps, heaps[0], FILLING);
    assert!(borrowed == 0 && grown > 900 * FILLING, "{borrowed} borrowed, {grown} bytes more");
    for heap in heaps {
        // SAFETY: the heap is used no more.
        unsafe { allocator.detach(heap) };
    }
    assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
}

#[test]
fn threads_lend_to_each_other_at_the_same_time() {
    let allocator = allocator();
    let rounds = if cfg!(miri) { 2 } else { 200 };
    let exchange = Mutex::new(VecDeque::new());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let exchange = &exchange;
            scope.spawn(move || {
                let heap = allocator.attach().expect("memory");
                let mut random = Random(seed);
                for _ in 0..rounds {
                    let size = [1024, FILLING, 16 << 10][random.below(3)];
                    let blocks: Vec<_> = (0..40)
                        .map(|index| Filled::new(allocator.allocate(heap, size), size, index))
                        .collect();
                    let others = {
                        let mut exchange = exchange.lock().expect("not poisoned");
                        exchange.push_back(blocks);
                        if exchange.len() > 4 { exchange.pop_front() } else { None }
                    };
                    others.into_iter().flatten().for_each(|block: Filled| block.free(allocator, heap));
                }
                // SAFETY: the heap is used no more.
                unsafe { allocator.detach(heap) };
            });
        }
    });
    let heap = allocator.attach().expect("memory");
    let left = exchange.into_inner().expect("not poisoned");
    left.into_iter().flatten().for_each(|block| block.free(allocator, heap));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
    assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
}
