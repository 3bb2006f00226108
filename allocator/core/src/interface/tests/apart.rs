//! Threads that have nothing to do with each other, and should not find each other's memory in their caches.

use super::*;
use crate::os;
use crate::size_class;
use crate::units;

/// Blocks that a heap gets until the other has its turn.
const AT_ONCE: usize = 100;
const CYCLES: usize = 20;

/// Two heaps get so many blocks of some sizes each, and give most of them back in no order; `watch` is called after each cycle, with the blocks that the heaps have. However long that takes, no heap gives anything up because time has passed.
fn cycle(
    allocator: &'static Allocator,
    count: usize,
    sizes: &[usize],
    mut watch: impl FnMut(usize, [&[Filled]; 2]),
) {
    let heaps: [_; 2] = core::array::from_fn(|_| allocator.attach().expect("memory"));
    let (mut kept, mut random) = ([Vec::new(), Vec::new()], Random(7));
    let no_time_has_passed = |heap: &Heap| heap.trimmed_ms.set(os::now_ms());
    for cycle in 0..CYCLES {
        for most in (AT_ONCE..=count).step_by(AT_ONCE) {
            for (heap, kept) in heaps.into_iter().zip(&mut kept) {
                no_time_has_passed(heap);
                while kept.len() < most {
                    let size = sizes[random.below(sizes.len())];
                    kept.push(Filled::new(allocator.allocate(heap, size), size, 1));
                }
            }
        }
        watch(cycle, [&kept[0], &kept[1]]);
        // What the second gives back is there when the first asks for more.
        for (heap, kept) in heaps.into_iter().zip(&mut kept).rev() {
            let mut blocks: Vec<_> = kept.drain(..).map(Some).collect();
            (0..count).filter(|index| index % 10 > 0).for_each(|index| {
                no_time_has_passed(heap);
                let block = blocks[index * 7919 % count].take();
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
    let sizes: Vec<_> = (10..15).flat_map(|log| (0..4).map(move |part| (4 + part) << (log - 2))).collect();
    cycle(allocator, 1000, &sizes, |cycle, kept| {
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
    // Twice as many magazines as a heap keeps in any case, at least.
    let count = 2 * size_class::MAGAZINE_SLOTS * allocator.budget.spares() as usize / AT_ONCE * AT_ONCE;
    cycle(allocator, count, &[16], |cycle, _| {
        let given = allocator.spares.lock().take();
        // Until they know how many they have use for, they give some away.
        assert!(cycle < CYCLES / 2 || given.is_none(), "after {cycle} cycles");
    });
}
