//! Threads that have nothing to do with each other, and should not find each other's memory in their caches.

use super::*;
use crate::size_class;
use crate::units;

/// Each thread has so many blocks at a time: more magazines than a heap keeps in any case.
const BLOCKS: usize = 20_000;
const CYCLES: usize = 12;

/// Two heaps by turns get blocks of some sizes, and give most of them back in no order; `watch` is called after each cycle, with the blocks that the heaps have.
fn cycle(allocator: &'static Allocator, sizes: &[usize], mut watch: impl FnMut(usize, [&[Filled]; 2])) {
    let heaps: [_; 2] = core::array::from_fn(|_| allocator.attach().expect("memory"));
    let (mut kept, mut random) = ([Vec::new(), Vec::new()], Random(7));
    for cycle in 0..CYCLES {
        for (heap, kept) in heaps.into_iter().zip(&mut kept) {
            while kept.len() < BLOCKS {
                let size = sizes[random.below(sizes.len())];
                kept.push(Filled::new(allocator.allocate(heap, size), size, 1));
            }
        }
        watch(cycle, [&kept[0], &kept[1]]);
        // What the second gives back is there when the first asks for more.
        for (heap, kept) in heaps.into_iter().zip(&mut kept).rev() {
            let mut blocks: Vec<_> = kept.drain(..).map(Some).collect();
            (0..BLOCKS).filter(|index| index % 10 > 0).for_each(|index| {
                let block = blocks[index * 7919 % BLOCKS].take();
                block.expect("each once").free(allocator, heap);
            });
            kept.extend(blocks.into_iter().flatten());
        }
    }
    for (heap, kept) in heaps.into_iter().zip(kept) {
        kept.into_iter().for_each(|block| block.free(allocator, heap));
        // SAFETY: the heap is used no more.
        unsafe { allocator.detach(heap) };
    }
}

#[test]
fn they_do_not_change_blocks_of_classes_that_fill_lines() {
    let allocator = allocator();
    cycle(allocator, &[16, 48, 64, 80, 192, 1024], |cycle, kept| {
        // SAFETY: the blocks are live.
        let owner = |block: &Filled| unsafe { units::arena_in(allocator.units.entry(block.block)) };
        for blocks in kept {
            let mut owners: Vec<_> = blocks.iter().map(owner).collect();
            owners.sort_unstable();
            owners.dedup();
            assert_eq!(owners.len(), 1, "after {cycle} cycles");
        }
    });
}

#[test]
fn they_do_not_change_empty_magazines() {
    let allocator = allocator();
    assert!(BLOCKS / size_class::MAGAZINE_SLOTS > 2 * allocator.budget.spares() as usize);
    cycle(allocator, &[16], |cycle, _| {
        let given = allocator.spares.lock().take();
        // Until they know how many they have use for, they give some away.
        assert!(cycle < CYCLES / 2 || given.is_none(), "after {cycle} cycles");
    });
}
